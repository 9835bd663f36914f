//! The processes of a tree: which have joined, what has happened to them, and which of them may be lost.
//!
//! [`Members::strike`] lets a fault happen in the network, and notes what may come of it. The checks compare what the root
//! reports with that. The families `tree` and `dvm` share them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::Time;
use overlay::{
    Address, Loss,
    node::{Node, Output, RECONNECT_MAX, Timing},
};

use crate::net::Net;

/// Allowance for messages and dialing, in addition to a lease and a window, until a loss is reported.
const REPORT_MAX: Duration = Duration::from_secs(3);
/// The same if a process alone dies, and the kernel of its node reports that.
const CLOSED_MAX: Duration = Duration::from_secs(2);
/// Time in which two processes whose connection was broken have connected again.
const RESUME_MAX: Duration = Duration::from_secs(1);

/// A fault of the network, of a node or of a process.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// A connection of the process breaks.
    Reset(Address),
    /// These nodes reach only each other for a while.
    Part(BTreeSet<Address>, Duration),
    /// Packets of the node do not arrive for a while; packets to it do.
    Mute(Address, Duration),
    /// The process is stopped for a while.
    Stop(Address, Duration),
    Kill(Address),
    PowerOff(Address),
}

impl Trouble {
    pub(crate) const fn lasts(&self) -> Duration {
        match self {
            Self::Part(_, time) | Self::Mute(_, time) | Self::Stop(_, time) => *time,
            Self::Reset(_) | Self::Kill(_) | Self::PowerOff(_) => Duration::ZERO,
        }
    }
}

/// Returns how long a node may be cut off without a loss, whatever else happens to it.
///
/// Silence is noticed after two thirds of a lease at the earliest. Then the link can be resumed for the reconnect window, of
/// which an attempt to dial and the network take a part.
pub(crate) fn harmless(timing: Timing) -> Duration {
    (timing.lease * 2 / 3 + timing.window).saturating_sub(Duration::from_millis(1_300))
}

#[derive(Debug)]
pub(crate) struct Members {
    timing: Timing,
    /// Number of members, joined or not.
    count: u32,
    ready: BTreeSet<Address>,
    /// Processes that have joined, as the root has reported, with the time.
    joined: BTreeMap<Address, Time>,
    lost: BTreeMap<Address, Time>,
    /// Processes that know that they have no way to the root.
    over: BTreeSet<Address>,
    ended: BTreeSet<Address>,
    dead: BTreeMap<Address, Time>,
    /// Dead processes whose connections their kernels have closed.
    closed: BTreeSet<Address>,
    /// Processes that were cut off for longer than is harmless.
    unlucky: BTreeSet<Address>,
    /// Until when a process is cut off or stopped, at most.
    disturbed_until: BTreeMap<Address, Time>,
    /// Number of faults that may delay a report.
    disturbances: u32,
    /// Until when some process is cut off or stopped.
    rough_until: Time,
    /// Processes whose connections were broken, and when.
    resets: Vec<(Time, Address)>,
    /// What faults may add to the time that a message takes.
    delay: Duration,
    /// Number of the last part of the network that was made.
    part: u32,
    /// When every process has to know that the session is over; `None` before its end.
    pub(crate) end_by: Option<Time>,
}

impl Members {
    pub(crate) const fn new(timing: Timing, count: u32) -> Self {
        Self {
            timing,
            count,
            ready: BTreeSet::new(),
            joined: BTreeMap::new(),
            lost: BTreeMap::new(),
            over: BTreeSet::new(),
            ended: BTreeSet::new(),
            dead: BTreeMap::new(),
            closed: BTreeSet::new(),
            unlucky: BTreeSet::new(),
            disturbed_until: BTreeMap::new(),
            disturbances: 0,
            rough_until: Time::ZERO,
            resets: Vec::new(),
            delay: Duration::ZERO,
            part: 0,
            end_by: None,
        }
    }

    fn all(&self) -> impl Iterator<Item = Address> + use<> {
        (1..=self.count).map(Address)
    }

    pub(crate) fn is_dead(&self, who: Address) -> bool {
        self.dead.contains_key(&who)
    }

    /// Returns true if a process is dead, or knows that it has no way to the root.
    pub(crate) fn is_over(&self, who: Address) -> bool {
        self.is_dead(who) || self.over.contains(&who)
    }

    /// Returns true if a process will not join.
    pub(crate) fn has_failed(&self, who: Address) -> bool {
        self.is_over(who) && !self.joined.contains_key(&who)
    }

    /// Returns true if a process may send.
    pub(crate) fn is_ready(&self, who: Address) -> bool {
        self.ready.contains(&who) && !self.is_over(who)
    }

    /// Returns true if the root counts a process as a member.
    pub(crate) fn is_member(&self, who: Address) -> bool {
        self.joined.contains_key(&who) && !self.lost.contains_key(&who)
    }

    pub(crate) fn joined(&self) -> impl Iterator<Item = Address> {
        let joined = self.joined.keys().copied();
        joined.filter(|who| !self.lost.contains_key(who))
    }

    /// Returns true if nothing has happened to a process for which it may be lost.
    pub(crate) fn is_lucky(&self, who: Address) -> bool {
        !self.is_dead(who) && !self.unlucky.contains(&who)
    }

    /// Returns the number of processes that may be lost.
    pub(crate) fn unlucky(&self) -> usize {
        self.dead.len() + self.unlucky.len()
    }

    /// Returns what the faults so far may add to the time that a message takes: each has to be noticed, and those who carried the
    /// message return, and send it again.
    pub(crate) const fn delay(&self) -> Duration {
        self.delay
    }

    pub(crate) fn may_be_lost(&mut self, who: Address) {
        self.unlucky.insert(who);
    }

    /// Lets a fault happen, and notes what may come of it. Returns false if the process was dead before.
    pub(crate) fn strike(&mut self, net: &mut Net, trouble: &Trouble) -> bool {
        let now = net.now;
        self.delay += trouble.lasts() + 2 * (self.timing.lease + self.timing.window);
        match trouble {
            Trouble::Reset(who) => {
                // A connection that is closed during its handshake counts as refused.
                if !net.node(*who).is_some_and(|node| node.load().has_way) {
                    self.may_be_lost(*who);
                }
                let peer = net.reset(*who);
                self.on_reset(now, [Some(*who), peer]);
            }
            Trouble::Part(nodes, time) => {
                for who in self.cut_off(net, nodes) {
                    self.disturb(net, who, *time);
                }
                self.disturbed(now, *time);
                self.part += 1;
                net.part(nodes, self.part);
            }
            Trouble::Mute(who, time) => {
                for who in self.cut_off(net, &[*who].into()) {
                    self.disturb(net, who, *time);
                }
                self.disturbed(now, *time);
                net.mute(*who);
            }
            Trouble::Stop(who, time) => {
                if *who != Address::ROOT {
                    self.disturb(net, *who, *time);
                }
                // A child that is coming back cannot reach it meanwhile, and the window of the child goes on. A short stop leaves
                // the child time enough.
                for child in self.children(net, &[*who].into()) {
                    if !self.is_alone(now, child, *time) && *time > harmless(self.timing) / 2 {
                        self.may_be_lost(child);
                    }
                }
                self.disturbed(now, *time);
                net.stop(*who, *time);
            }
            Trouble::Kill(who) => {
                if self.is_dead(*who) {
                    return false;
                }
                self.on_death(now, *who);
                self.closed.insert(*who);
                net.kill(*who);
            }
            Trouble::PowerOff(who) => {
                if self.is_dead(*who) {
                    return false;
                }
                self.on_death(now, *who);
                net.power_off(*who);
            }
        }
        true
    }

    /// Returns these nodes, and those whose parent is among them: a parent reports a silent child, even if the root reaches
    /// both.
    fn cut_off(&self, net: &Net, nodes: &BTreeSet<Address>) -> BTreeSet<Address> {
        let children = self.children(net, nodes);
        nodes.iter().copied().chain(children).collect()
    }

    /// Returns the processes whose parent is among these.
    fn children(&self, net: &Net, nodes: &BTreeSet<Address>) -> Vec<Address> {
        let is_below = |who: &Address| {
            let parent = net.node(*who).and_then(Node::parent);
            parent.is_some_and(|parent| nodes.contains(&parent))
        };
        self.all().filter(is_below).collect()
    }

    /// Notes that a node is cut off for a while.
    fn disturb(&mut self, net: &Net, who: Address, time: Duration) {
        let has_way = net.node(who).is_some_and(|node| node.load().has_way);
        let is_settled = has_way && self.is_member(who);
        if time > harmless(self.timing) || !is_settled || !self.is_alone(net.now, who, time) {
            self.may_be_lost(who);
        }
    }

    /// Notes that a process is cut off; returns false if it is cut off already.
    fn is_alone(&mut self, now: Time, who: Address, time: Duration) -> bool {
        let Timing { lease, window } = self.timing;
        let until = self.disturbed_until.entry(who).or_insert(now);
        // After a fault, a process may need a lease and a window to find its place again.
        let is_alone = *until <= now;
        *until = (*until).max(now + time + lease + window);
        is_alone
    }

    fn on_death(&mut self, now: Time, who: Address) {
        self.dead.insert(who, now);
        self.disturbances += 1;
    }

    /// Notes a fault that may delay reports, and lasts for this time.
    fn disturbed(&mut self, now: Time, time: Duration) {
        self.disturbances += 1;
        self.rough_until = self.rough_until.max(now + time);
        let late = std::mem::take(&mut self.resets);
        let late = late.into_iter().filter(|(at, _)| now < *at + RESUME_MAX);
        self.unlucky.extend(late.map(|(_, who)| who));
    }

    /// Notes that the connection between two processes was broken. They have only a short time to connect again, for
    /// which neither may be stopped or cut off.
    fn on_reset(&mut self, now: Time, ends: [Option<Address>; 2]) {
        for who in ends.into_iter().flatten() {
            if now < self.rough_until {
                self.unlucky.insert(who);
            }
            self.resets.push((now, who));
        }
    }

    /// Records and checks news about the membership of processes. Returns a description of an error.
    pub(crate) fn on_news(&mut self, now: Time, who: Address, news: &Output) -> Option<String> {
        match news {
            Output::Joined(member) => {
                let before = self.joined.insert(*member, now);
                before.map(|_| format!("{member} has joined twice"))
            }
            Output::Lost { who, members, loss } => self.on_lost(now, *who, members, loss),
            Output::Ready => {
                let first = self.ready.insert(who);
                (!first || who.0 > self.count)
                    .then(|| format!("{who} gets a place that is not its own"))
            }
            Output::Unreachable(_) | Output::Abandoned(_) => {
                self.over.insert(who);
                None
            }
            Output::Ended => {
                let first = self.ended.insert(who);
                let is_right = first && self.end_by.is_some_and(|by| now <= by);
                (!is_right).then(|| format!("{who} is told the end twice, too early or too late"))
            }
            _ => None,
        }
    }

    fn on_lost(
        &mut self,
        now: Time,
        who: Address,
        members: &BTreeSet<Address>,
        loss: &Loss,
    ) -> Option<String> {
        let is_named = *loss == Loss::Orphan || *members == BTreeSet::from([who]);
        let mut wrong =
            (!is_named).then(|| format!("the loss of {who} is said to be that of {members:?}"));
        for member in members {
            let found = if !self.is_member(*member) {
                Some(format!("{member} is lost, and no member"))
            } else if self.is_lucky(*member) {
                Some(format!(
                    "{member} is lost ({loss}), and nothing has happened to it"
                ))
            } else if self.end_by.is_some() {
                Some(format!("{member} is lost after the end"))
            } else {
                let died = self.dead.get(member).copied();
                died.and_then(|died| self.late(now, *member, died))
            };
            wrong = wrong.or(found);
            self.lost.insert(*member, now);
        }
        wrong
    }

    /// Checks that the loss of a dead process is reported in time.
    fn late(&self, now: Time, who: Address, died: Time) -> Option<String> {
        let Timing { lease, window } = self.timing;
        let since = self.joined.get(&who).map_or(died, |at| died.max(*at));
        let most = match self.disturbances {
            0 | 1 if self.closed.contains(&who) => RECONNECT_MAX + CLOSED_MAX,
            // A further fault is noticed, and those who carried the report return: each takes a lease and a window.
            others => (lease + window) * (2 * others.max(1) - 1) + REPORT_MAX,
        };
        (now > since + most).then(|| format!("the death of {who} at {died} is reported only now"))
    }

    /// Checks, when nothing happens any more, that the root knows who is there. Returns a description of the first error.
    pub(crate) fn check_rest(&self, net: &Net) -> Option<String> {
        self.all().find_map(|who| {
            let is_up = net.node(who).is_some();
            if is_up && self.is_lucky(who) {
                let is_well = self.is_member(who) && !self.over.contains(&who);
                return (!is_well)
                    .then(|| format!("{who} is no member, and nothing has happened to it"));
            }
            if self.is_dead(who) {
                return self
                    .is_member(who)
                    .then(|| format!("the death of {who} is never reported"));
            }
            (is_up && self.lost.contains_key(&who) && !self.over.contains(&who))
                .then(|| format!("{who} does not know that it is lost"))
        })
    }

    /// Checks that every member has heard the end. Returns a description of the first error.
    pub(crate) fn check_end(&self) -> Option<String> {
        let is_member = |who: &Address| self.is_member(*who) && !self.is_dead(*who);
        let mut untold = self.all().filter(is_member);
        let untold = untold.find(|who| !self.ended.contains(who));
        untold.map(|who| format!("{who} is not told the end"))
    }
}

/// Checks that nothing waits in the processes of a network. Returns a description of the first error.
pub(crate) fn restless(net: &Net, count: u32) -> Option<String> {
    (0..=count).map(Address).find_map(|who| {
        let load = net.node(who)?.load();
        let waits = load.to_parent + load.to_children + load.arrived + load.outbox + load.casts;
        let is_quiet = waits == 0 && load.connections == load.links;
        (!is_quiet).then(|| format!("{who} does not rest: {load:?}"))
    })
}
