//! Checks of the number of messages between the PMIx servers and the controller: each kind of message that a node sends or
//! gets has a bound that follows from what happens on that node. Without the bounds, a message to all nodes for each rank
//! would go unnoticed, because its effect is right.

use std::collections::{BTreeMap, BTreeSet};

use base::{ExitStatus, NodeId, ProcId};
use dvm::proto::{FromServer, ToController, ToDaemon, ToServer};
use pmix::value::Status;

use super::{Ledger, clients::COORDINATOR};
use crate::{
    kernel::{Ask, Together},
    script::Way,
};

/// Events about the abnormal end of a process: its cause, PROC_TERMINATED, and PROC_TERM_WO_SYNC for those that it is connected
/// with.
const EVENTS_OF_END: u64 = 3;
/// Messages that a member is gone, for each rank: its connection breaks, and it ends.
const GOES_OF_RANK: u64 = 2;

/// What has happened on the nodes, and what they have sent and got because of it.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    nodes: BTreeMap<NodeId, Counts>,
    /// Number of events that all nodes have sent.
    events: u64,
    /// Procs that some process has named in a connect. Their regular ends are told, too.
    connected: BTreeSet<ProcId>,
    /// Number of members in all calls that the coordinator of groups brings together. It asks their nodes about their losses.
    coordinated: u64,
    /// True once a process of any node has registered for EVENT_PROC_TERMINATED.
    are_ends_wanted: bool,
}

#[derive(Debug, Default)]
struct Counts {
    /// Calls of collectives by ranks of the node.
    calls: u64,
    /// Gets by ranks of the node.
    gets: u64,
    /// Events that ranks of the node have sent.
    notified: u64,
    /// Groups that ranks of the node have left.
    left: u64,
    /// Ranks that have ended with code 0, and all others.
    regular_ends: u64,
    abnormal_ends: u64,
    /// Regular ends of connected ranks, who have not disconnected as far as is known.
    connected_ends: u64,
    /// 1 if a rank of the node has registered for EVENT_PROC_TERMINATED.
    wants_ends: u64,
    // The messages.
    watches: u64,
    events_sent: u64,
    events_got: u64,
    goes: u64,
    shares: u64,
    waits: u64,
    questions: u64,
}

/// Returns a fault if there are more messages than `most`.
fn over(node: NodeId, what: &str, count: u64, most: u64, why: &str) -> Option<String> {
    (count > most).then(|| {
        format!(
            "too many messages: node {node} {what} {count} times, at most {most} follow from {why}"
        )
    })
}

impl Ledger {
    /// Records a request as the cause of messages.
    pub(super) fn on_cause(&mut self, proc: ProcId, ask: &Ask) {
        let Some(node) = self.facts.node_of(proc) else {
            return;
        };
        let counts = self.traffic.nodes.entry(node).or_default();
        match ask {
            Ask::Together(kind, members) => {
                counts.calls += 1;
                if *kind == Together::Connect {
                    self.traffic.connected.extend(self.facts.members(members));
                }
            }
            Ask::Construct(circle, members) => {
                counts.calls += 1;
                if circle.way != Way::Together {
                    self.traffic.coordinated += members.len() as u64;
                }
            }
            Ask::Get(..) => counts.gets += 1,
            Ask::Notify(_) | Ask::Release(_) => counts.notified += 1,
            Ask::Leave(_) => counts.left += 1,
            Ask::Register(codes) if codes.contains(&Status::EVENT_PROC_TERMINATED) => {
                counts.wants_ends = 1;
                self.traffic.are_ends_wanted = true;
            }
            _ => {}
        }
    }

    /// Records an event of a tool as the cause of messages.
    pub(crate) fn on_notified_at(&mut self, node: NodeId) {
        self.traffic.nodes.entry(node).or_default().notified += 1;
    }

    /// Records the end of a rank as the cause of messages.
    pub(crate) fn on_end_known(&mut self, proc: ProcId, status: ExitStatus) {
        let Some(node) = self.facts.node_of(proc) else {
            return;
        };
        let is_inside = self.pmix.is_inside(proc);
        // A spawned job is connected with its spawner.
        let is_connected =
            self.facts.parent_of(proc.job).is_some() || self.traffic.connected.contains(&proc);
        let counts = self.traffic.nodes.entry(node).or_default();
        if status.is_success() && !is_inside {
            counts.regular_ends += 1;
            counts.connected_ends += u64::from(is_connected);
        } else {
            counts.abnormal_ends += 1;
        }
    }

    /// Checks the number of messages of this kind that a node has sent. Returns a description of the error.
    pub(crate) fn on_said(&mut self, node: NodeId, message: &ToController) -> Option<String> {
        let ToController::Server(message) = message else {
            return None;
        };
        let (ranks, jobs) = (self.facts.ranks_on(node), self.facts.jobs());
        let coordinated = if node == COORDINATOR {
            self.traffic.coordinated
        } else {
            0
        };
        let are_ends_wanted = self.traffic.are_ends_wanted;
        let counts = self.traffic.nodes.entry(node).or_default();
        match **message {
            FromServer::Event { .. } => {
                self.traffic.events += 1;
                counts.events_sent += 1;
                let regular = if are_ends_wanted {
                    counts.regular_ends
                } else {
                    0
                };
                let most = counts.notified
                    + counts.left
                    + EVENTS_OF_END * counts.abnormal_ends
                    + counts.connected_ends
                    + regular
                    + counts.wants_ends;
                let why = "its ranks' events and ends";
                over(node, "sends an event", counts.events_sent, most, why)
            }
            FromServer::MembersGone => {
                counts.goes += 1;
                let most = GOES_OF_RANK * ranks + counts.calls + counts.left + jobs;
                let why = "its ranks, their calls, and the jobs";
                over(node, "says that members are gone", counts.goes, most, why)
            }
            FromServer::Gather { .. } => {
                counts.shares += 1;
                let (count, most) = (counts.shares, counts.calls);
                over(node, "sends a share", count, most, "its ranks' calls")
            }
            FromServer::Waits { .. } => {
                counts.waits += 1;
                let (count, most) = (counts.waits, counts.calls);
                over(node, "says that it waits", count, most, "its ranks' calls")
            }
            FromServer::Ask { .. } => {
                counts.questions += 1;
                let most = counts.gets + counts.calls + coordinated;
                let why = "its ranks' gets and calls, and the groups that it coordinates";
                over(node, "asks another node", counts.questions, most, why)
            }
            _ => None,
        }
    }

    /// Checks the number of messages of this kind that a node gets. Returns a description of the error.
    pub(crate) fn on_told(&mut self, node: NodeId, message: &ToDaemon) -> Option<String> {
        let ToDaemon::Server(message) = message else {
            return None;
        };
        let counts = self.traffic.nodes.entry(node).or_default();
        match **message {
            ToServer::Watch => {
                counts.watches += 1;
                over(node, "is told to watch", counts.watches, 1, "any losses")
            }
            ToServer::Event { .. } => {
                counts.events_got += 1;
                let most = self.traffic.events - counts.events_sent;
                let why = "the events of the other nodes";
                over(node, "gets an event", counts.events_got, most, why)
            }
            _ => None,
        }
    }
}
