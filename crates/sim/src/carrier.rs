//! The tree that joins the daemons of a run with the controller: it encodes, merges and casts messages as `runtime::daemons`
//! does, and its processes are the code that ships.
//!
//! Each message that arrives is compared with those that were sent: it has to be the next one of its sender, or for its
//! receiver, on its lane. A merged message has to be made of the next ones of all its senders.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use base::{NodeId, Time};
use bytes::Bytes;
use dvm::proto::{ToController, ToDaemon};
use overlay::{
    Address,
    lanes::Lane,
    node::{Class, Node, Output, Timing},
    wire,
};

use crate::{
    members::{Members, Trouble, restless},
    net::Net,
    rng::Rng,
    tree::parents,
};

/// The tree of a run.
#[derive(Clone, Debug)]
pub(crate) struct TreePlan {
    pub(crate) radix: u32,
    pub(crate) timing: Timing,
    /// Maximum delay of the network.
    pub(crate) delay_max: Duration,
}

/// News for the controller or a daemon.
#[derive(Debug)]
pub(crate) enum News {
    /// A message of these daemons, with the messages that it was made of.
    FromDaemons(BTreeSet<NodeId>, ToController, Vec<(NodeId, ToController)>),
    ToDaemon(NodeId, ToDaemon),
    /// A daemon has its place in the tree.
    Ready(NodeId),
    Lost(BTreeSet<NodeId>, String),
    /// A daemon has lost the controller.
    Abandoned(NodeId),
    /// A daemon hears that the session is over.
    Ended(NodeId),
}

#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) net: Net,
    pub(crate) members: Members,
    pub(crate) plan: TreePlan,
    count: u32,
    /// Messages that were sent and have not arrived.
    up: BTreeMap<(NodeId, Lane), VecDeque<ToController>>,
    down: BTreeMap<(NodeId, Lane), VecDeque<ToDaemon>>,
    /// The last message of each daemon that has arrived.
    last: BTreeMap<(NodeId, Lane), ToController>,
    /// Messages for which the way to the controller has no room.
    waiting: BTreeMap<NodeId, VecDeque<ToController>>,
    /// A message of the controller for these daemons that is not sent yet: a copy for another daemon may follow.
    cast: Option<(BTreeSet<Address>, ToDaemon)>,
}

const fn address_of(node: NodeId) -> Address {
    Address(node.0 + 1)
}

const fn node_of(address: Address) -> NodeId {
    NodeId(address.0 - 1)
}

const fn lane_up(message: &ToController) -> Lane {
    match message.is_urgent() {
        true => Lane::Control,
        false => Lane::Bulk,
    }
}

const fn lane_down(message: &ToDaemon) -> Lane {
    match message.is_bulk() {
        true => Lane::Bulk,
        false => Lane::Control,
    }
}

/// Merges messages on their way.
pub(crate) fn merge(bodies: &[Bytes]) -> Option<Bytes> {
    let messages = bodies.iter().map(|body| wire::decode(body).ok());
    let messages: Option<Vec<ToController>> = messages.collect();
    wire::encode(&ToController::merge(messages?)?).ok()
}

impl Carrier {
    /// Makes the tree of a controller and of this number of daemons, which start immediately.
    pub(crate) fn new(plan: TreePlan, count: u32, rng: Rng) -> Self {
        let mut net = Net::new(rng, plan.delay_max, plan.timing, merge);
        net.start_root(parents(count, plan.radix));
        for who in (1..=count).map(Address) {
            net.start(who);
        }
        Self {
            net,
            members: Members::new(plan.timing, count),
            plan,
            count,
            up: BTreeMap::new(),
            down: BTreeMap::new(),
            last: BTreeMap::new(),
            waiting: BTreeMap::new(),
            cast: None,
        }
    }

    /// Returns the time until which the process of a daemon is stopped, if it is.
    pub(crate) fn stopped(&self, node: NodeId) -> Option<Time> {
        self.net.stopped(address_of(node))
    }

    /// Returns the time until which the controller is stopped, if it is.
    pub(crate) fn controller_stopped(&self) -> Option<Time> {
        self.net.stopped(Address::ROOT)
    }

    /// Returns the time after the last fault in which everything that was lost is noticed, and all reports have arrived.
    pub(crate) fn rest(&self) -> Duration {
        let Timing { lease, window } = self.plan.timing;
        let height = crate::tree::shape(self.count, self.plan.radix).height();
        2 * (lease + window) + lease / 3 * height + crate::tree::REST
    }

    /// Sends a message of a daemon, as soon as there is room for it.
    pub(crate) fn send_up(&mut self, now: Time, node: NodeId, message: ToController) {
        self.waiting.entry(node).or_default().push_back(message);
        self.net.now = self.net.now.max(now);
        self.pour(node);
    }

    /// Sends what waits for room.
    fn pour(&mut self, node: NodeId) {
        let who = address_of(node);
        while self.net.node(who).is_some_and(Node::has_room)
            && let Some(message) = self.waiting.get(&node).and_then(VecDeque::front)
        {
            let (lane, class) = (lane_up(message), message.class());
            let Ok(body) = wire::encode(message) else {
                return;
            };
            let is_sent = self.net.with(who, |node, now| match class {
                Some(class) => node.send_mergeable(now, lane, Class(class), body),
                None => node.send(lane, body),
            });
            if !is_sent {
                return;
            }
            if let Some(message) = self.waiting.get_mut(&node).and_then(VecDeque::pop_front) {
                self.up.entry((node, lane)).or_default().push_back(message);
            }
        }
        if self.waiting.get(&node).is_some_and(VecDeque::is_empty) {
            self.waiting.remove(&node);
        }
    }

    /// Sends a message to a daemon. Equal messages in succession travel as one.
    pub(crate) fn send_down(&mut self, now: Time, node: NodeId, message: ToDaemon) {
        let to = address_of(node);
        if let Some((others, cast)) = &mut self.cast
            && cast.is_same(&message)
            && others.insert(to)
        {
            return;
        }
        self.flush(now);
        self.cast = Some(([to].into(), message));
    }

    /// Sends the message that waits for copies.
    pub(crate) fn flush(&mut self, now: Time) {
        let Some((to, message)) = self.cast.take() else {
            return;
        };
        self.net.now = self.net.now.max(now);
        let lane = lane_down(&message);
        let Ok(body) = wire::encode(&message) else {
            return;
        };
        for who in &to {
            let key = (node_of(*who), lane);
            let log = self.down.entry(key).or_default();
            log.push_back(message.clone());
        }
        self.net.with(Address::ROOT, |root, now| {
            root.cast(now, &to, lane, &body);
        });
    }

    /// Lets the next event of the network happen.
    pub(crate) fn step(&mut self) {
        self.net.step();
        for node in self.waiting.keys().copied().collect::<Vec<_>>() {
            self.pour(node);
        }
    }

    /// Lets a fault happen. Returns the daemon that dies of it.
    pub(crate) fn strike(&mut self, now: Time, trouble: &Trouble) -> Option<NodeId> {
        self.net.now = self.net.now.max(now);
        let is_new = self.members.strike(&mut self.net, trouble);
        match trouble {
            Trouble::Kill(who) | Trouble::PowerOff(who) if is_new => {
                self.waiting.remove(&node_of(*who));
                Some(node_of(*who))
            }
            _ => None,
        }
    }

    /// Ends a fault of the network.
    pub(crate) fn mend(&mut self, now: Time, trouble: &Trouble) {
        self.net.now = self.net.now.max(now);
        match trouble {
            Trouble::Part(nodes, _) => self.net.join(nodes),
            Trouble::Mute(who, _) => self.net.unmute(*who),
            _ => {}
        }
    }

    /// Ends the process of the controller.
    pub(crate) fn kill_root(&mut self, now: Time) {
        self.net.now = self.net.now.max(now);
        self.cast = None;
        self.net.kill(Address::ROOT);
    }

    /// Ends the session.
    pub(crate) fn end(&mut self, by: Time) {
        self.members.end_by = Some(by);
        self.net.with(Address::ROOT, |root, _| root.end());
    }

    /// Returns the next news. The error is the description of a fault.
    pub(crate) fn news(&mut self) -> Result<Option<News>, String> {
        if let Some(fault) = self.net.take_fault() {
            return Err(fault);
        }
        while let Some((who, output)) = self.net.news() {
            if let Some(wrong) = self.members.on_news(self.net.now, who, &output) {
                return Err(wrong);
            }
            let news = match output {
                Output::Received { from, lane, body } if who == Address::ROOT => {
                    self.received_at_root(from, lane, &body)?
                }
                Output::Received { lane, body, .. } => self.received_at_daemon(who, lane, &body)?,
                Output::Merged { of, lane, body } => self.merged_at_root(&of, lane, &body)?,
                Output::Lost { members, loss, .. } => {
                    let nodes = members.into_iter().map(node_of).collect();
                    News::Lost(nodes, loss.to_string())
                }
                Output::Ready => News::Ready(node_of(who)),
                Output::Unreachable(_) | Output::Abandoned(_) => {
                    self.waiting.remove(&node_of(who));
                    News::Abandoned(node_of(who))
                }
                Output::Ended => {
                    self.net.leave(who);
                    News::Ended(node_of(who))
                }
                Output::Asked { .. } | Output::Part { .. } | Output::Gathered { .. } => {
                    return Err(format!("{who} hears of a gather, and daemons have none"));
                }
                Output::Dial(..)
                | Output::Close(_)
                | Output::Joined(_)
                | Output::Refused { .. } => {
                    continue;
                }
            };
            return Ok(Some(news));
        }
        Ok(None)
    }

    /// Removes and returns the message that has to be the next one of a daemon.
    fn next_of(
        &mut self,
        from: Address,
        lane: Lane,
        message: &ToController,
    ) -> Result<ToController, String> {
        if !self.members.is_member(from) {
            return Err(format!("{from} speaks, and is no member"));
        }
        let key = (node_of(from), lane);
        let log = self.up.entry(key).or_default();
        // A daemon may say twice what means the same twice, and both may have come as one.
        let last = self.last.get(&key);
        while log.front().is_some_and(|next| {
            next.class().is_some() && Some(next) == last && next.class() != message.class()
        }) {
            log.pop_front();
        }
        let next = log.pop_front();
        let next =
            next.ok_or_else(|| format!("a message of {from} arrives that it has not sent"))?;
        self.last.insert(key, next.clone());
        Ok(next)
    }

    /// Takes the messages of these daemons that a message is made of: the next one of each, and if that is not enough, those
    /// behind it that are part of the message too.
    fn take_said(
        &mut self,
        of: &BTreeSet<Address>,
        lane: Lane,
        message: &ToController,
    ) -> Result<Vec<(NodeId, ToController)>, String> {
        let mut said = Vec::new();
        for from in of {
            said.push((node_of(*from), self.next_of(*from, lane, message)?));
        }
        if merged(&said).as_ref() == Some(message) {
            return Ok(said);
        }
        for from in of {
            let log = self.up.entry((node_of(*from), lane)).or_default();
            let is_part = |next: &ToController| {
                let both = [message.clone(), next.clone()];
                next.class().is_some() && ToController::merge(both).as_ref() == Some(message)
            };
            while log.front().is_some_and(is_part)
                && let Some(next) = log.pop_front()
            {
                said.push((node_of(*from), next));
            }
        }
        if merged(&said).as_ref() == Some(message) {
            return Ok(said);
        }
        Err(format!("{message:?} arrives, and {said:?} were sent"))
    }

    fn received_at_root(
        &mut self,
        from: Address,
        lane: Lane,
        body: &Bytes,
    ) -> Result<News, String> {
        let message = wire::decode::<ToController>(body).map_err(|why| why.to_string())?;
        let said = self.take_said(&[from].into(), lane, &message)?;
        Ok(News::FromDaemons([node_of(from)].into(), message, said))
    }

    fn merged_at_root(
        &mut self,
        of: &BTreeSet<Address>,
        lane: Lane,
        body: &Bytes,
    ) -> Result<News, String> {
        let message = wire::decode::<ToController>(body).map_err(|why| why.to_string())?;
        let said = self.take_said(of, lane, &message)?;
        let nodes = of.iter().copied().map(node_of).collect();
        Ok(News::FromDaemons(nodes, message, said))
    }

    fn received_at_daemon(
        &mut self,
        who: Address,
        lane: Lane,
        body: &Bytes,
    ) -> Result<News, String> {
        let message = wire::decode::<ToDaemon>(body).map_err(|why| why.to_string())?;
        let log = self.down.get_mut(&(node_of(who), lane));
        let sent = log.and_then(VecDeque::pop_front);
        if sent.as_ref() != Some(&message) {
            return Err(format!(
                "to {who} comes {message:?}, the next one is {sent:?}"
            ));
        }
        Ok(News::ToDaemon(node_of(who), message))
    }

    /// Checks, when nothing happens any more, that everything has arrived, and nothing waits.
    pub(crate) fn check_rest(&self) -> Option<String> {
        let lucky = |node: &NodeId| self.members.is_lucky(address_of(*node));
        let up = self.up.iter();
        let up = up.filter(|(key, log)| {
            let same = |next: &ToController| Some(next) == self.last.get(key);
            lucky(&key.0) && !log.iter().all(same)
        });
        let mut up = up.map(|((node, lane), log)| format!("{log:?} of {node} on {lane:?}"));
        let down = self.down.iter();
        let down = down.filter(|((node, _), log)| lucky(node) && !log.is_empty());
        let mut down = down.map(|((node, lane), log)| format!("{log:?} for {node} on {lane:?}"));
        let left = up.next().or_else(|| down.next());
        let left = left.map(|left| format!("does not arrive: {left}"));
        let wrong = left.or_else(|| self.members.check_rest(&self.net));
        wrong.or_else(|| restless(&self.net, self.count))
    }

    /// Returns the first daemon whose process is still there.
    pub(crate) fn survivor(&self) -> Option<Address> {
        let mut all = (1..=self.count).map(Address);
        all.find(|who| self.net.node(*who).is_some() && !self.members.is_over(*who))
    }
}

/// Returns the message that is made of these.
fn merged(said: &[(NodeId, ToController)]) -> Option<ToController> {
    match said {
        [(_, one)] => Some(one.clone()),
        _ => ToController::merge(said.iter().map(|one| one.1.clone())),
    }
}
