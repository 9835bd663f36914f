//! The PMIx servers of several nodes: their collectives are completed here, and their messages to each other are
//! forwarded.
//!
//! A question from one server to another is open until it is answered, until the asking server cancels it, or until
//! either node is lost. The servers bound their open questions and their shares in flight
//! (`pmix::server::{MAX_QUESTIONS, MAX_SENT, MAX_SENT_BYTES}`).

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use base::{JobId, NodeId, Time};
use bytes::Bytes;
use pmix::{
    server::{GatherId, GatherNumber, GatherTicket, Gathers, Notice, Watchers},
    value::Status,
};

use super::{Controller, ControllerOutput};
use crate::proto::{FromServer, ToDaemon, ToServer};

/// Collectives and questions in progress between servers.
#[derive(Debug, Default)]
pub(super) struct Servers {
    gathers: Gathers,
    /// Unanswered questions: the asking node, its ticket, and the asked node.
    questions: BTreeSet<(NodeId, u64, NodeId)>,
}

impl Controller {
    pub(super) fn on_server(&mut self, now: Time, node: NodeId, message: FromServer) {
        let Some(message) = self.on_tool_news(now, node, message) else {
            return;
        };
        // Late answers of a daemon may arrive when all jobs are over.
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
                gathers.no_share(node.0, &GatherId(id), Status(number))
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
            FromServer::Redirected { .. }
            | FromServer::ToolConnects { .. }
            | FromServer::ToolLeft { .. }
            | FromServer::LauncherReleased { .. } => Vec::new(),
            FromServer::Event { event, nodes } => {
                self.pass_event(node, &event, nodes);
                Vec::new()
            }
        };
        self.tell_gathered(notices);
    }

    /// Handles the loss of a node: ends collectives that need it, and closes questions from it and to it.
    pub(super) fn server_lost(&mut self, node: NodeId) {
        let notices = self.servers.gathers.node_lost(node.0);
        self.tell_gathered(notices);
        let lost = |(asker, _, asked): &(NodeId, u64, NodeId)| *asker == node || *asked == node;
        let questions = self.servers.questions.extract_if(.., lost);
        for (asker, ticket, asked) in questions.collect::<Vec<_>>() {
            // One of the two nodes is lost and gets no message.
            self.lost_answer(asker, ticket);
            let over = ToServer::NoLongerAsked {
                node: asker,
                ticket,
            };
            self.tell_server(asked, over);
        }
    }

    /// Notifies all servers that a job is over on all nodes.
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
                Notice::Watch(Watchers::Only(node)) => (node, ToServer::Watch),
                Notice::Watch(Watchers::AllBut(but)) => {
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

    /// Sends a message to the server of a node, unless the node is lost.
    pub(super) fn tell_server(&mut self, node: NodeId, message: ToServer) {
        if self.nodes.contains_key(&node) {
            let message = ToDaemon::Server(Box::new(message));
            self.outputs
                .push_back(ControllerOutput::Daemon(node, message));
        }
    }

    /// Passes an event of a node on to these others, or to all of them.
    fn pass_event(&mut self, from: NodeId, event: &Bytes, nodes: Option<Vec<NodeId>>) {
        let nodes = nodes.unwrap_or_else(|| self.nodes.keys().copied().collect());
        for other in nodes.into_iter().filter(|other| *other != from) {
            let event = event.clone();
            self.tell_server(other, ToServer::Event { event });
        }
    }
}
