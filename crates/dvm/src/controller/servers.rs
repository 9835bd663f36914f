//! The PMIx servers of several nodes: their collectives meet here, and what one says to another passes.
//!
//! A question that one server asks another one waits for its answer, for word that nobody waits for that, or for the
//! loss of either node. A node has so many questions and shares under way as its server allows itself
//! (`pmix::server::{MAX_QUESTIONS, MAX_SENT, MAX_SENT_BYTES}`).

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use base::{JobId, NodeId};
use pmix::{
    server::{GatherId, GatherNumber, GatherTicket, Gathers, Notice},
    value::Status,
};

use super::{Controller, ControllerOutput};
use crate::proto::{FromServer, ToDaemon, ToServer};

/// What is under way between servers.
#[derive(Debug, Default)]
pub(super) struct Servers {
    gathers: Gathers,
    /// Questions that were not answered: who has asked, by which number, and whom.
    questions: BTreeSet<(NodeId, u64, NodeId)>,
}

impl Controller {
    pub(super) fn on_server(&mut self, node: NodeId, message: FromServer) {
        // Its last answers may come when all is over.
        if self.living().is_empty() {
            return;
        }
        let gathers = &mut self.servers.gathers;
        let notices = match message {
            FromServer::Gather {
                ticket,
                id,
                nodes,
                share,
            } => {
                let nodes: Vec<u32> = nodes.iter().map(|node| node.0).collect();
                gathers.share(node.0, GatherTicket(ticket), &GatherId(id), &nodes, share)
            }
            FromServer::Waits { ticket, id, nodes } => {
                let nodes: Vec<u32> = nodes.iter().map(|node| node.0).collect();
                gathers.waits(node.0, GatherTicket(ticket), &GatherId(id), &nodes)
            }
            FromServer::Forgotten { ticket, id } => {
                gathers.forgotten(node.0, GatherTicket(ticket), &GatherId(id))
            }
            FromServer::Absent { id, status: number } => {
                gathers.absent(node.0, &GatherId(id), Status(number))
            }
            FromServer::Withdrawn {
                ticket,
                id,
                status: number,
            } => gathers.withdrawn(node.0, GatherTicket(ticket), &GatherId(id), Status(number)),
            FromServer::MembersGone => gathers.members_gone(node.0),
            FromServer::Declined { id, number, result } => gathers.declined(
                node.0,
                &GatherId(id),
                GatherNumber(number),
                result.map_err(Status),
            ),
            FromServer::Ask {
                ticket,
                node: other,
                question,
            } => {
                if self.nodes.contains_key(&other) {
                    self.servers.questions.insert((node, ticket, other));
                    self.tell_server(
                        other,
                        ToServer::Asked {
                            node,
                            ticket,
                            question,
                        },
                    );
                } else {
                    self.lost_answer(node, ticket);
                }
                Vec::new()
            }
            FromServer::NoLongerAsks {
                ticket,
                node: other,
            } => {
                if self.servers.questions.remove(&(node, ticket, other)) {
                    self.tell_server(other, ToServer::NoLongerAsked { node, ticket });
                }
                Vec::new()
            }
            FromServer::Told {
                node: asker,
                ticket,
                result,
            } => {
                if self.servers.questions.remove(&(asker, ticket, node)) {
                    self.tell_server(asker, ToServer::Told { ticket, result });
                }
                Vec::new()
            }
            FromServer::Wanted { job, streams } => {
                if self.jobs.contains_key(&job) {
                    self.subscribers.set(job, node, &streams);
                }
                Vec::new()
            }
            FromServer::Event { event, nodes } => {
                let nodes = nodes.unwrap_or_else(|| self.nodes.keys().copied().collect());
                for other in nodes.into_iter().filter(|other| *other != node) {
                    let event = event.clone();
                    self.tell_server(other, ToServer::Event { event });
                }
                Vec::new()
            }
        };
        self.tell_gathered(notices);
    }

    /// A node is lost: nobody waits for it.
    pub(super) fn server_lost(&mut self, node: NodeId) {
        let notices = self.servers.gathers.node_lost(node.0);
        self.tell_gathered(notices);
        let lost = |(asker, _, asked): &(NodeId, u64, NodeId)| *asker == node || *asked == node;
        let questions = self.servers.questions.extract_if(.., lost);
        for (asker, ticket, asked) in questions.collect::<Vec<_>>() {
            // The one of the two that is left.
            self.lost_answer(asker, ticket);
            let over = ToServer::NoLongerAsked {
                node: asker,
                ticket,
            };
            self.tell_server(asked, over);
        }
    }

    /// A job is over on all nodes.
    pub(super) fn tell_servers_over(&mut self, job: JobId) {
        if self.allocation.nodes.len() > 1 {
            for node in self.nodes.keys().copied().collect::<Vec<_>>() {
                self.tell_server(node, ToServer::Over { job });
            }
        }
    }

    fn lost_answer(&mut self, node: NodeId, ticket: u64) {
        let result = Err(Status::LOST_CONNECTION.0);
        self.tell_server(node, ToServer::Told { ticket, result });
    }

    fn tell_gathered(&mut self, notices: Vec<Notice>) {
        for notice in notices {
            let (node, message) = match notice {
                Notice::Gathered {
                    node,
                    ticket: GatherTicket(ticket),
                    result,
                } => {
                    let result = result.map_err(|status| status.0).map(|shares| {
                        let shares = shares.iter();
                        shares
                            .map(|(node, share)| (NodeId(*node), share.clone()))
                            .collect()
                    });
                    (node, ToServer::Gathered { ticket, result })
                }
                Notice::Watch { but } => {
                    let nodes = self.nodes.keys().copied();
                    for node in nodes.filter(|node| node.0 != but).collect::<Vec<_>>() {
                        self.tell_server(node, ToServer::Watch);
                    }
                    continue;
                }
                Notice::Awaited {
                    node,
                    id: GatherId(id),
                    number: GatherNumber(number),
                } => (node, ToServer::Awaited { id, number }),
            };
            self.tell_server(NodeId(node), message);
        }
    }

    /// Says something to the server of a node, as long as the node is there.
    pub(super) fn tell_server(&mut self, node: NodeId, message: ToServer) {
        if self.nodes.contains_key(&node) {
            let message = ToDaemon::Server(Box::new(message));
            self.outputs
                .push_back(ControllerOutput::Daemon(node, message));
        }
    }
}
