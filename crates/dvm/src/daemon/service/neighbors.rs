//! Messages between the PMIx server of this node and those of other nodes.

use std::ffi::CString;

use base::{NodeId, Time};
use bytes::Bytes;
use pmix::{
    codec::{Format, Writer},
    frame::Tag,
    message::Push,
    server::{
        Elsewhere, Event, GatherId, GatherNumber, GatherTicket, Input, Output as FromPmix,
        QuestionTicket,
    },
    value::{Range, Status},
};

use super::Service;
use crate::{
    daemon::Output,
    proto::{FromServer, ToController, ToServer},
};

impl Service {
    /// Handles a message from another node's server, or from the controller on its behalf.
    pub(in crate::daemon) fn on_server(&mut self, now: Time, message: ToServer) {
        match message {
            ToServer::Over { job } => self.forget(now, job),
            ToServer::Gathered { ticket, result } => {
                let shares: Result<Vec<(u32, Bytes)>, Status> = match result {
                    Ok(shares) => Ok(shares
                        .iter()
                        .map(|(node, share)| (node.0, share.clone()))
                        .collect()),
                    Err(status) => Err(Status(status)),
                };
                let ticket = GatherTicket(ticket);
                let result = shares.as_deref().map_err(|status| *status);
                self.server.handle(now, Input::Gathered { ticket, result });
            }
            ToServer::Watch => self.server.handle(now, Input::Watch),
            ToServer::Awaited { id, number } => {
                let (id, number) = (GatherId(id), GatherNumber(number));
                self.server.handle(now, Input::Awaited { id, number });
            }
            ToServer::Asked {
                node,
                ticket,
                question,
            } => self.server.handle(
                now,
                Input::Question {
                    node: node.0,
                    ticket: QuestionTicket(ticket),
                    question: &question,
                },
            ),
            ToServer::NoLongerAsked { node, ticket } => {
                let (node, ticket) = (node.0, QuestionTicket(ticket));
                self.server
                    .handle(now, Input::NoLongerAsked { node, ticket });
            }
            ToServer::Told { ticket, result } => {
                let ticket = QuestionTicket(ticket);
                let result = result.as_deref().map_err(|status| Status(*status));
                self.server
                    .handle(now, Input::QuestionAnswered { ticket, result });
            }
            ToServer::Event { event } => self.on_event(now, &event),
            ToServer::Output {
                proc,
                stream,
                bytes,
            } => self.on_output(now, proc, stream, bytes),
            ToServer::SetDefined { job, name, ranks } => {
                if let Some(nspace) = self.names.get(&job).cloned()
                    && let Ok(name) = CString::new(name.as_str())
                {
                    let defined = Input::DefineSet {
                        nspace,
                        name,
                        ranks,
                    };
                    self.server.handle(now, defined);
                }
            }
            ToServer::ToolAdmitted { conn, result } => self.on_tool_admitted(now, conn, result),
        }
    }

    /// Handles an encoded event from the controller or another node. An event that cannot be decoded is dropped.
    pub(in crate::daemon) fn on_event(&mut self, now: Time, event: &[u8]) {
        if let Ok(Some(Push::Event {
            status,
            source,
            infos,
            range,
        })) = Push::decode(Format::V4, Tag::Event, event)
        {
            let event = Event {
                status,
                source,
                range: range.unwrap_or(Range::SESSION),
                infos,
            };
            self.server.handle(now, Input::Event(Box::new(event)));
        }
    }

    /// Sends an event of a process on this node to other nodes.
    pub(super) fn tell_event(&mut self, event: Event, elsewhere: Elsewhere) {
        let nodes = match elsewhere {
            Elsewhere::Nowhere => return,
            Elsewhere::Everywhere if self.is_alone => return,
            Elsewhere::Everywhere => None,
            Elsewhere::On(nodes) => Some(nodes.into_iter().map(NodeId).collect()),
        };
        let Event {
            status,
            source,
            range,
            infos,
        } = event;
        let push = Push::Event {
            status,
            source,
            infos,
            range: Some(range),
        };
        let mut writer = Writer::new(Format::V4);
        push.encode(&mut writer);
        let event = writer.into_bytes().into();
        self.say(FromServer::Event { event, nodes });
    }

    pub(super) fn say(&mut self, message: FromServer) {
        let message = ToController::Server(Box::new(message));
        self.effects.push_back(Output::Send(message));
    }

    /// Sends a server output to the servers of other nodes.
    pub(super) fn tell_neighbors(&mut self, output: FromPmix) {
        let nodes = |nodes: Vec<u32>| nodes.into_iter().map(NodeId).collect();
        self.say(match output {
            FromPmix::Gather {
                ticket: GatherTicket(ticket),
                id: GatherId(id),
                nodes: of,
                share,
            } => FromServer::Gather {
                ticket,
                id,
                nodes: nodes(of),
                share,
            },
            FromPmix::Waits {
                ticket: GatherTicket(ticket),
                id: GatherId(id),
                nodes: of,
            } => FromServer::Waits {
                ticket,
                id,
                nodes: nodes(of),
            },
            FromPmix::Forgotten {
                ticket: GatherTicket(ticket),
                id: GatherId(id),
            } => FromServer::Forgotten { ticket, id },
            FromPmix::NoShare {
                id: GatherId(id),
                status,
            } => FromServer::Absent {
                id,
                status: status.0,
            },
            FromPmix::Withdrawn {
                ticket: GatherTicket(ticket),
                id: GatherId(id),
                status,
            } => FromServer::Withdrawn {
                ticket,
                id,
                status: status.0,
            },
            FromPmix::MembersGone => FromServer::MembersGone,
            FromPmix::Declined {
                id: GatherId(id),
                number: GatherNumber(number),
                result,
            } => FromServer::Declined {
                id,
                number,
                result: result.map_err(|status| status.0),
            },
            FromPmix::Question {
                ticket: QuestionTicket(ticket),
                node,
                question,
            } => FromServer::Ask {
                ticket,
                node: NodeId(node),
                question,
            },
            FromPmix::NoLongerAsked {
                ticket: QuestionTicket(ticket),
                node,
            } => FromServer::NoLongerAsks {
                ticket,
                node: NodeId(node),
            },
            FromPmix::QuestionAnswered {
                node,
                ticket: QuestionTicket(ticket),
                result,
            } => FromServer::Told {
                node: NodeId(node),
                ticket,
                result: result.map_err(|status| status.0),
            },
            // All other outputs concern only this node.
            _ => return,
        });
    }
}
