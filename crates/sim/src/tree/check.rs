//! What happened in a tree, and the checks.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use base::Time;
use bytes::Bytes;
use overlay::{
    Address, Loss,
    lanes::{Lane, window},
    node::{DialError, Load, OUTBOX_MAX, Output, RECONNECT_MAX, Timing},
    secure::SecureError,
};

use super::{
    messages,
    plan::{LONGEST, STRANGERS, Stranger},
};
use crate::{
    net::{self, Net},
    world::{Played, RECORD_MAX, Recorded, Report},
};

/// Allowance for messages and dialing, in addition to a lease and a window, until a loss is reported.
const REPORT_MAX: Duration = Duration::from_secs(3);
/// The same if a process alone dies, and the kernel of its node reports that.
const CLOSED_MAX: Duration = Duration::from_secs(2);
/// Time in which two processes whose connection was broken have connected again.
const RESUME_MAX: Duration = Duration::from_secs(1);
/// What the heads of messages add to their lengths, at most.
const HEADS: u64 = 4_096;

/// What dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    Process,
    Node,
}

/// What was sent and received, for each process and lane.
type Log = BTreeMap<(Address, Lane), Vec<u32>>;

#[derive(Debug)]
pub(super) struct Ledger {
    timing: Timing,
    record: Option<VecDeque<String>>,
    fault: Option<String>,
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
    sent: Log,
    received: Log,
    cast: Log,
    delivered: Log,
    /// The largest number of a bulk message, by receiver and sender.
    bulk: BTreeMap<(Address, Address), u32>,
    /// Strangers that the root has to report, and how often it has.
    pub(super) refused: BTreeMap<Address, Stranger>,
    reports: BTreeMap<Address, u32>,
    /// When every process has to know that the session is over; `None` before its end.
    pub(super) end_by: Option<Time>,
}

impl Ledger {
    pub(super) fn new(timing: Timing, recorded: Recorded) -> Self {
        Self {
            timing,
            record: (recorded == Recorded::Yes).then(VecDeque::new),
            fault: None,
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
            sent: Log::new(),
            received: Log::new(),
            cast: Log::new(),
            delivered: Log::new(),
            bulk: BTreeMap::new(),
            refused: BTreeMap::new(),
            reports: BTreeMap::new(),
            end_by: None,
        }
    }

    pub(super) fn note(&mut self, now: Time, what: impl FnOnce() -> String) {
        if let Some(record) = &mut self.record {
            if record.len() == RECORD_MAX {
                record.pop_front();
            }
            record.push_back(format!("{:>14} {}", now.to_string(), what()));
        }
    }

    pub(super) fn fault(&mut self, now: Time, what: String) {
        if self.fault.is_none() {
            self.note(now, || format!("FAULT {what}"));
            self.fault = Some(what);
        }
    }

    fn require(&mut self, now: Time, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fault(now, what());
        }
    }

    pub(super) const fn is_faulty(&self) -> bool {
        self.fault.is_some()
    }

    pub(super) fn into_played(self, report: Report) -> Played {
        Played {
            result: self.fault.map_or(Ok(report), Err),
            record: self.record.unwrap_or_default().into(),
        }
    }

    pub(super) fn is_dead(&self, who: Address) -> bool {
        self.dead.contains_key(&who)
    }

    /// Returns true if a process is dead, or knows that it has no way to the root.
    pub(super) fn is_over(&self, who: Address) -> bool {
        self.is_dead(who) || self.over.contains(&who)
    }

    /// Returns true if a process will not join.
    pub(super) fn has_failed(&self, who: Address) -> bool {
        self.is_over(who) && !self.joined.contains_key(&who)
    }

    /// Returns true if a process may send.
    pub(super) fn is_ready(&self, who: Address) -> bool {
        self.ready.contains(&who) && !self.is_over(who)
    }

    /// Returns true if the root counts a process as a member.
    pub(super) fn is_member(&self, who: Address) -> bool {
        self.joined.contains_key(&who) && !self.lost.contains_key(&who)
    }

    pub(super) fn members(&self) -> impl Iterator<Item = Address> {
        let joined = self.joined.keys().copied();
        joined.filter(|who| !self.lost.contains_key(who))
    }

    /// Notes that a process dies; returns false if it has died before.
    pub(super) fn on_death(&mut self, now: Time, who: Address, death: Death) -> bool {
        if self.is_dead(who) {
            return false;
        }
        self.dead.insert(who, now);
        if death == Death::Process {
            self.closed.insert(who);
        }
        self.disturbances += 1;
        true
    }

    /// Notes a fault that may delay reports, and lasts for this time.
    pub(super) fn disturbed(&mut self, now: Time, time: Duration) {
        self.disturbances += 1;
        self.rough_until = self.rough_until.max(now + time);
        let late = std::mem::take(&mut self.resets);
        let late = late.into_iter().filter(|(at, _)| now < *at + RESUME_MAX);
        self.unlucky.extend(late.map(|(_, who)| who));
    }

    /// Notes that the connection between two processes was broken. They have only a short time to connect again, for
    /// which neither may be stopped or cut off.
    pub(super) fn on_reset(&mut self, now: Time, ends: [Option<Address>; 2]) {
        for who in ends.into_iter().flatten() {
            if now < self.rough_until {
                self.unlucky.insert(who);
            }
            self.resets.push((now, who));
        }
    }

    /// Notes that a process is cut off; returns false if it is cut off already.
    pub(super) fn disturb(&mut self, now: Time, who: Address, time: Duration) -> bool {
        let Timing { lease, window } = self.timing;
        let until = self.disturbed_until.entry(who).or_insert(now);
        // After a fault, a process may need a lease and a window to find its place again.
        let is_alone = *until <= now;
        *until = (*until).max(now + time + lease + window);
        is_alone
    }

    pub(super) fn may_be_lost(&mut self, who: Address) {
        self.unlucky.insert(who);
    }

    fn is_lucky(&self, who: Address) -> bool {
        !self.is_dead(who) && !self.unlucky.contains(&who)
    }

    pub(super) fn on_sent(&mut self, now: Time, from: Address, lane: Lane, message: u32) {
        self.note(now, || format!("{from} sends {message} on {lane:?}"));
        self.sent.entry((from, lane)).or_default().push(message);
    }

    pub(super) fn on_cast(&mut self, to: &BTreeSet<Address>, lane: Lane, message: u32) {
        for who in to {
            self.cast.entry((*who, lane)).or_default().push(message);
        }
    }

    pub(super) fn on_news(&mut self, now: Time, who: Address, news: Output) {
        if !matches!(news, Output::Received { .. } | Output::Merged { .. }) {
            self.note(now, || format!("{who}: {news:?}"));
        }
        match news {
            Output::Received { from, lane, body } => {
                self.received(now, who, (&[from].into(), lane, &body));
            }
            Output::Merged { of, lane, body } => self.received(now, who, (&of, lane, &body)),
            Output::Joined(member) => {
                let before = self.joined.insert(member, now);
                self.require(now, before.is_none(), || {
                    format!("{member} has joined twice")
                });
            }
            Output::Lost { who, members, loss } => self.on_lost(now, who, &members, &loss),
            Output::Ready => {
                let first = self.ready.insert(who);
                self.require(now, first && who.0 < STRANGERS, || {
                    format!("{who} gets a place that is not its own")
                });
            }
            Output::Unreachable(_) | Output::Abandoned(_) => {
                self.over.insert(who);
            }
            Output::Ended => {
                let first = self.ended.insert(who);
                let is_right = first && self.end_by.is_some_and(|by| now <= by);
                self.require(now, is_right, || {
                    format!("{who} is told the end twice, too early or too late")
                });
            }
            Output::Refused { from, why } => {
                let is_from = |who: &Address| net::at(*who).ip() == from.ip();
                let stranger = self.refused.iter().find(|(who, _)| is_from(who));
                if let Some((who, stranger)) = stranger.map(|(who, what)| (*who, *what)) {
                    *self.reports.entry(who).or_default() += 1;
                    let is_why = match stranger {
                        Stranger::Secret => matches!(why, DialError::Secure(SecureError::Secret)),
                        Stranger::Build => {
                            matches!(why, DialError::Secure(SecureError::Build { .. }))
                        }
                        _ => true,
                    };
                    self.require(now, is_why, || {
                        format!("a stranger ({stranger:?}) is refused, because {why}")
                    });
                }
            }
            // The runs have no gathers; the overlay's own property test has them.
            Output::Asked { .. } | Output::Part { .. } | Output::Gathered { .. } => {
                self.fault(now, format!("{who} hears of a gather that nobody began"));
            }
            Output::Dial(..) | Output::Close(_) => {}
        }
    }

    /// Checks messages that came together.
    fn received(&mut self, now: Time, who: Address, came: (&BTreeSet<Address>, Lane, &Bytes)) {
        let (of, lane, body) = came;
        let Some(messages) = messages(of, body) else {
            return self.fault(now, format!("{who} gets a message that nobody sent"));
        };
        for (from, message) in messages {
            self.note(now, || {
                format!("{who} gets {message} of {from} on {lane:?}")
            });
            if who == Address::ROOT {
                let is_member = self.is_member(from);
                self.require(now, is_member, || {
                    format!("{from} speaks, and is no member")
                });
                self.arrived(now, who, from, lane, message);
            } else {
                self.arrived(now, who, who, lane, message);
            }
        }
    }

    /// Checks that a message is the next one of its sender on its lane, and overtakes no control message.
    fn arrived(&mut self, now: Time, at: Address, key: Address, lane: Lane, message: u32) {
        let (sent, received) = if at == Address::ROOT {
            (&self.sent, &mut self.received)
        } else {
            (&self.cast, &mut self.delivered)
        };
        let received = received.entry((key, lane)).or_default();
        let sent = sent.get(&(key, lane)).map_or(&[][..], Vec::as_slice);
        let expected = sent.get(received.len()).copied();
        received.push(message);
        let bulk = self.bulk.entry((at, key)).or_default();
        let overtaken = (lane == Lane::Control && *bulk > message).then_some(*bulk);
        if lane == Lane::Bulk {
            *bulk = (*bulk).max(message);
        }
        self.require(now, expected == Some(message), || {
            format!("{at} gets message {message} of or for {key}, the next one is {expected:?}")
        });
        self.require(now, overtaken.is_none(), || {
            format!("{at}: bulk message {overtaken:?} has overtaken {message}")
        });
    }

    fn on_lost(&mut self, now: Time, who: Address, members: &BTreeSet<Address>, loss: &Loss) {
        let is_named = *loss == Loss::Orphan || *members == BTreeSet::from([who]);
        self.require(now, is_named, || {
            format!("the loss of {who} is said to be that of {members:?}")
        });
        for member in members {
            let is_member = self.is_member(*member);
            self.require(now, is_member, || {
                format!("{member} is lost, and no member")
            });
            let is_lucky = self.is_lucky(*member);
            self.require(now, !is_lucky, || {
                format!("{member} is lost ({loss}), and nothing has happened to it")
            });
            self.require(now, self.end_by.is_none(), || {
                format!("{member} is lost after the end")
            });
            self.lost.insert(*member, now);
            if let Some(died) = self.dead.get(member).copied() {
                self.check_late(now, *member, died);
            }
        }
    }

    /// Checks that the loss of a dead process is reported in time.
    fn check_late(&mut self, now: Time, who: Address, died: Time) {
        let Timing { lease, window } = self.timing;
        let since = self.joined.get(&who).map_or(died, |at| died.max(*at));
        let most = match self.disturbances {
            0 | 1 if self.closed.contains(&who) => RECONNECT_MAX + CLOSED_MAX,
            // A further fault is noticed, and those who carried the report return: each takes a lease and a window.
            others => (lease + window) * (2 * others.max(1) - 1) + REPORT_MAX,
        };
        self.require(now, now <= since + most, || {
            format!("the death of {who} at {died} is reported only now")
        });
    }

    /// Checks the bounds of what waits in a process.
    pub(super) fn check_load(&mut self, now: Time, who: Address, load: &Load) {
        let deaths = u64::try_from(self.dead.len() + self.unlucky.len()).unwrap_or(u64::MAX);
        let frame = LONGEST as u64 + HEADS;
        let both: u64 = Lane::ALL.into_iter().map(window).sum();
        // A process that was lost leaves what had arrived. After the loss of its parent, a process sends again what it keeps.
        let resent = if deaths > 0 { OUTBOX_MAX } else { 0 };
        let up = (both + 4 * frame) * (1 + deaths) + resent;
        self.require(now, load.to_parent <= up, || {
            format!(
                "{} bytes wait at {who} for its parent, {up} may",
                load.to_parent
            )
        });
        let arrived = both + 2 * frame;
        self.require(now, load.arrived <= arrived, || {
            format!(
                "{} bytes of one peer wait at {who}, {arrived} may",
                load.arrived
            )
        });
        let kept = OUTBOX_MAX + frame;
        self.require(now, load.outbox <= kept, || {
            format!(
                "{who} keeps {} bytes for the root, {kept} may be",
                load.outbox
            )
        });
    }

    /// Checks, when nothing happens any more, that all that could arrive has arrived, and that nothing waits.
    pub(super) fn check_rest(&mut self, net: &Net, members: u32) {
        let now = net.now;
        for who in (1..=members).map(Address) {
            let is_up = net.node(who).is_some();
            if is_up && self.is_lucky(who) {
                let is_well = self.is_member(who) && !self.over.contains(&who);
                self.require(now, is_well, || {
                    format!("{who} is no member, and nothing has happened to it")
                });
                for lane in Lane::ALL {
                    let up = (&self.sent, &self.received);
                    let down = (&self.cast, &self.delivered);
                    let missing = [up, down].into_iter().find_map(|(sent, received)| {
                        let of = |log: &Log| log.get(&(who, lane)).map_or(0, Vec::len);
                        (of(sent) != of(received)).then(|| (of(sent), of(received)))
                    });
                    self.require(now, missing.is_none(), || {
                        format!("sent and received by or for {who} on {lane:?}: {missing:?}")
                    });
                }
            }
            if self.dead.contains_key(&who) {
                let is_told = !self.is_member(who);
                self.require(now, is_told, || {
                    format!("the death of {who} is never reported")
                });
            } else if is_up && self.lost.contains_key(&who) {
                let is_over = self.over.contains(&who);
                self.require(now, is_over, || {
                    format!("{who} does not know that it is lost")
                });
            }
        }
        for who in (0..=members).map(Address) {
            let Some(node) = net.node(who) else {
                continue;
            };
            let load = node.load();
            let waits = load.to_parent + load.to_children + load.arrived + load.outbox + load.casts;
            let is_quiet = waits == 0 && load.connections == load.links;
            self.require(now, is_quiet, || format!("{who} does not rest: {load:?}"));
        }
        for (stranger, what) in self.refused.clone() {
            let reports = self.reports.get(&stranger).copied().unwrap_or(0);
            self.require(now, reports == 1, || {
                format!("a stranger ({what:?}) is reported {reports} times")
            });
        }
    }

    /// Checks that every member has heard the end.
    pub(super) fn check_end(&mut self, net: &Net, members: u32) {
        for who in (1..=members).map(Address) {
            let is_told = self.ended.contains(&who);
            let is_member = self.is_member(who) && !self.is_dead(who);
            self.require(net.now, is_told || !is_member, || {
                format!("{who} is not told the end")
            });
        }
    }
}
