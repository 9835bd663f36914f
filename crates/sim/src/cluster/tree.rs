//! A cluster whose daemons are joined by the tree: what the tree carries, what happens to it, and its end.

use std::time::Duration;

use base::{NodeId, Time};
use dvm::{ControllerInput, proto::ToController};
use overlay::Address;

use super::Cluster;
use crate::{
    carrier::News,
    members::Trouble,
    node::Node,
    tree::{FAREWELL, HOP_MAX, shape},
    world::Event,
};

/// Time in which all daemons join. Nothing fails meanwhile: the overlay's own family has the faults of starts.
const JOIN_MAX: Duration = Duration::from_secs(60);
/// Time in which a daemon that has lost the controller ends its jobs, in addition to the bounds of the ends of jobs.
const ABANDONED_MAX: Duration = Duration::from_secs(20);

impl Cluster {
    /// Lets all daemons join and say hello.
    pub(super) fn join(&mut self) {
        let beside = self.world.beside_root;
        if let Some(node) = beside.and_then(|node| self.nodes.get_mut(&node)) {
            node.say_hello(&mut self.world);
        }
        let all = self.nodes.len() - usize::from(beside.is_some());
        while self.hellos < all && !self.world.is_faulty() {
            let is_late = self.world.now > Time::ZERO + JOIN_MAX;
            if is_late || !self.step() {
                self.world
                    .fault(format!("only {} of {all} daemons have joined", self.hellos));
            }
        }
    }

    /// Lets the next event happen, of the cluster or of its network. Returns false if there is none.
    pub(super) fn step(&mut self) -> bool {
        let at = self.world.next_at();
        match &mut self.world.carrier {
            Some(carrier)
                if let Some(first) = carrier.net.next_at()
                    && at.is_none_or(|at| first <= at) =>
            {
                self.world.now = self.world.now.max(first);
                carrier.step();
            }
            _ => {
                let Some(event) = self.world.next() else {
                    return false;
                };
                match self.stopped(&event) {
                    // No other event is scheduled for a part of a microsecond.
                    Some(until) => self.world.at(until + Duration::from_nanos(1), event),
                    None => self.on_event(event),
                }
            }
        }
        self.hear_tree();
        true
    }

    /// Returns the time of the next event.
    fn next_at(&self) -> Option<Time> {
        let carrier = self.world.carrier.as_ref();
        let net = carrier.and_then(|carrier| carrier.net.next_at());
        self.world.next_at().into_iter().chain(net).min()
    }

    /// Returns the time until which the process that an event concerns is stopped, if it is. Ranks are not stopped with it.
    fn stopped(&self, event: &Event) -> Option<Time> {
        let Some(carrier) = &self.world.carrier else {
            return self.stopped_with_controller(event);
        };
        if self.is_at_door(event) {
            return carrier.controller_stopped();
        }
        match event {
            Event::Readable { node, .. }
            | Event::FeedStdin { node, .. }
            | Event::Reap { node, .. }
            | Event::Trap { node, .. }
            | Event::Spawn { node, .. }
            | Event::Swept { node, .. }
            | Event::FilesActed { node, .. }
            | Event::PmiToDaemon { node, .. }
            | Event::PmiClosed { node, .. }
            | Event::ClientUp { node, .. }
            | Event::DaemonTick { node, .. } => carrier.stopped(*node),
            Event::ControllerTick { .. }
            | Event::FromFront { .. }
            | Event::FilesFound { .. }
            | Event::FileRead { .. } => carrier.controller_stopped(),
            _ => None,
        }
    }

    /// Sends what waits, and handles what the tree has brought.
    fn hear_tree(&mut self) {
        loop {
            let now = self.world.now;
            let Some(carrier) = &mut self.world.carrier else {
                return;
            };
            carrier.flush(now);
            match carrier.news() {
                Ok(Some(news)) => self.on_tree(news),
                Ok(None) => return,
                Err(wrong) => return self.world.fault(wrong),
            }
            if self.world.is_faulty() {
                return;
            }
        }
    }

    fn on_tree(&mut self, news: News) {
        match news {
            News::FromDaemons(nodes, message, said) => {
                self.hellos += usize::from(matches!(message, ToController::Hello { .. }));
                match said[..] {
                    [(node, _)] => self.tell(ControllerInput::Daemon(node, message)),
                    _ => self.tell_merged(ControllerInput::Daemons(nodes, message), &said),
                }
            }
            News::ToDaemon(node, message) => {
                if let Some(node) = self.nodes.get_mut(&node).filter(|node| !node.is_alone()) {
                    node.on_message(&mut self.world, message);
                }
            }
            News::Ready(node) => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.say_hello(&mut self.world);
                }
            }
            News::Lost(nodes, why) => {
                self.world
                    .note(|| "tree".to_owned(), || format!("lost {nodes:?}: {why}"));
                for id in nodes {
                    if let Some(node) = self.nodes.get_mut(&id) {
                        node.count_as_lost(&mut self.world);
                    }
                    // The session ends with the last job.
                    if self.finished.is_none() {
                        self.tell(ControllerInput::DaemonLost(id, why.clone()));
                    }
                }
            }
            News::Abandoned(node) => {
                self.world
                    .note(|| "tree".to_owned(), || format!("{node} is abandoned"));
                if let Some(node) = self.nodes.get_mut(&node) {
                    if !self.headless {
                        node.count_as_lost(&mut self.world);
                    }
                    node.lose_controller(&mut self.world);
                }
            }
            News::Ended(node) => {
                let is_clean = self.nodes.get(&node).is_some_and(Node::is_clean);
                self.world.require(is_clean, || {
                    format!("the session ends, and daemon {node} has a job")
                });
            }
        }
    }

    /// Lets a fault of the tree happen.
    pub(super) fn strike(&mut self, index: usize, trouble: &Trouble) {
        let now = self.world.now;
        let Some(carrier) = &mut self.world.carrier else {
            return;
        };
        let dead = carrier.strike(now, trouble);
        self.world.ledger.busy(now);
        match trouble {
            Trouble::Part(_, time) | Trouble::Mute(_, time) => {
                self.world.after(*time, Event::Mend { index });
            }
            Trouble::Stop(who, time) => {
                self.world.ledger.stops += *time;
                if *who != Address::ROOT
                    && let Some(node) = self.nodes.get(&NodeId(who.0 - 1))
                {
                    node.pause(&mut self.world, now + *time);
                }
            }
            Trouble::Reset(_) | Trouble::Kill(_) | Trouble::PowerOff(_) => {}
        }
        let dead = dead.and_then(|dead| self.nodes.get_mut(&dead));
        if let Some(node) = dead.filter(|node| node.is_on()) {
            node.power_off(&mut self.world);
        }
    }

    pub(super) fn mend(&mut self, trouble: &Trouble) {
        let now = self.world.now;
        if let Some(carrier) = &mut self.world.carrier {
            carrier.mend(now, trouble);
        }
    }

    fn run_until(&mut self, until: Time, events: &mut u64) {
        while !self.world.is_faulty() && self.next_at().is_some_and(|at| at <= until) {
            *events += 1;
            self.step();
        }
        self.world.now = self.world.now.max(until);
    }

    /// Waits until nothing happens any more, ends the session, and checks that nothing remains.
    pub(super) fn end_tree(&mut self, events: &mut u64) {
        let Some(carrier) = &self.world.carrier else {
            return;
        };
        let rest = carrier.rest() + ABANDONED_MAX;
        let plan = carrier.plan.clone();
        let quiet = self.world.now.max(self.calm_at) + rest;
        self.run_until(quiet, events);
        self.is_ending = true;
        if self.headless {
            return self.check_alone();
        }
        let beside = usize::from(self.world.beside_root.is_some());
        let count = u32::try_from(self.nodes.len() - beside).unwrap_or(u32::MAX);
        // All links are up and idle, so the message passes from one process to the next.
        let way = (4 * plan.delay_max + HOP_MAX) * shape(count, plan.radix).height();
        let now = self.world.now;
        let Some(carrier) = &mut self.world.carrier else {
            return;
        };
        let mut wrong = carrier.check_rest();
        carrier.net.now = carrier.net.now.max(now);
        carrier.end(now + way);
        self.hear_tree();
        self.run_until(now + FAREWELL, events);
        if let Some(carrier) = &self.world.carrier {
            wrong = wrong.or_else(|| carrier.members.check_end());
            let left = carrier.survivor();
            wrong = wrong.or_else(|| left.map(|who| format!("process {who} is still there")));
        }
        if let Some(wrong) = wrong {
            self.world.fault(wrong);
        }
        self.check_alone();
    }

    /// Checks that no process of a job is left on any node, whether its daemon was lost or not.
    fn check_alone(&mut self) {
        for (id, node) in self.nodes.iter().filter(|(_, node)| node.is_on()) {
            let survivors = node.survivors(&self.world);
            self.world.require(survivors.is_empty(), || {
                format!("on node {id} are still alive {survivors:?}")
            });
            self.world.require(node.is_clean(), || {
                format!("daemon {id} has not forgotten the job")
            });
        }
    }
}
