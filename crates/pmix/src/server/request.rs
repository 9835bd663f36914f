//! Dispatch of the requests of a connection.

use std::iter;

use base::Time;
use bytes::Bytes;

use super::{Ask, Event, Output, ReplyTo, Server, Ticket, directive, is_set, share::Kind};
use crate::{
    codec::Writer,
    keys,
    message::{Answer, Request},
    value::{AllocDirective, Info, Nspace, Proc, Status},
};

impl Server {
    /// Carries out one request of a connection.
    #[expect(clippy::too_many_lines, reason = "one arm for each request")]
    pub(super) fn on_request(&mut self, now: Time, reply: ReplyTo, from: &Proc, request: Request) {
        if directive::requires_unknown(&request) {
            return self.status(reply, Status::NOT_SUPPORTED);
        }
        match request {
            Request::JobInfo => self.tell_job(reply, &from.nspace),
            Request::Commit { buckets } => self.on_commit(now, reply, from, &buckets),
            Request::Get {
                nspace,
                rank,
                infos,
                key,
            } => {
                let target = Proc { nspace, rank };
                self.on_get(now, reply, from, target, infos, key);
            }
            Request::RefreshCache { nspace, rank } => {
                self.on_refresh(now, reply, &Proc { nspace, rank });
            }
            Request::Fence { procs, infos } => {
                self.on_collective(now, reply, from, Kind::Fence, &procs, infos);
            }
            Request::Connect { procs, infos, .. } => {
                self.on_collective(now, reply, from, Kind::Connect, &procs, infos);
            }
            Request::Disconnect { procs, infos } => {
                self.on_collective(now, reply, from, Kind::Disconnect, &procs, infos);
            }
            Request::GroupConstruct {
                group,
                procs,
                infos,
            } => self.on_construct(now, reply, from, group, &procs, infos),
            Request::GroupDestruct {
                group,
                procs,
                infos,
            } => self.on_destruct(now, reply, from, group, procs, infos),
            Request::GroupLeave { group, .. } => self.on_leave(reply, from, group),
            Request::Notify {
                status,
                range,
                infos,
            } => {
                let event = Event {
                    status,
                    source: from.clone(),
                    range,
                    infos,
                };
                self.on_notify(reply, event);
            }
            Request::Register { codes, infos } => self.on_register(reply, &codes, &infos),
            Request::Deregister { codes } => {
                self.events.deregister(reply.conn, &codes);
                // A deregistration gets no answer.
                drop(reply);
            }
            Request::Query { queries } => self.on_query(reply, from, queries),
            Request::Log {
                time,
                data,
                directives,
            } => self.on_log(reply, from, time, &data, &directives),
            Request::Monitor {
                monitor,
                error,
                infos,
            } => self.on_monitor(now, reply, from, &monitor, error, &infos),
            Request::GetCredential { .. } => self.on_get_credential(reply),
            Request::ValidateCredential { credential, .. } => {
                self.on_validate_credential(reply, &credential);
            }
            Request::ResolvePeers { node, nspace } => {
                self.on_resolve_peers(reply, node.as_deref(), nspace.as_deref());
            }
            Request::ResolveNode { nspace } => self.on_resolve_node(reply, nspace.as_deref()),
            // Finalize is handled in `peer`, with the state of the connection.
            Request::Finalize => self.status(reply, Status::SUCCESS),
            Request::IofPull {
                procs,
                infos,
                channels,
                id,
            } => self.on_pull(reply, from, procs, channels, &infos, id),
            Request::IofPush {
                procs,
                infos,
                bytes,
            } => self.on_stdin(reply, from, procs, &infos, bytes.unwrap_or_default()),
            Request::IofDeregister { id, .. } => self.on_stop_pulling(reply, id),
            request @ Request::Abort { .. } => {
                if let Some(job) = self.jobs.get_mut(&from.nspace) {
                    job.aborts(from.rank);
                }
                self.ask(reply, from.clone(), request);
            }
            request @ (Request::Publish { .. }
            | Request::Lookup { .. }
            | Request::Unpublish { .. }
            | Request::Spawn { .. }
            | Request::JobControl { .. }) => self.ask(reply, from.clone(), request),
            Request::Allocate { directive, .. } => match directive {
                AllocDirective::NEW
                | AllocDirective::EXTEND
                | AllocDirective::RELEASE
                | AllocDirective::REACQUIRE => self.ask(reply, from.clone(), request),
                // Nobody has defined one of the numbers for resource managers.
                _ => self.status(reply, Status::NOT_SUPPORTED),
            },
            Request::FabricRegister { .. }
            | Request::FabricUpdate { .. }
            | Request::SessionControl { .. }
            | Request::Opaque { .. } => self.status(reply, Status::NOT_SUPPORTED),
        }
    }

    pub(super) fn on_stdin(
        &mut self,
        reply: ReplyTo,
        from: &Proc,
        to: Vec<Proc>,
        infos: &[Info],
        bytes: Bytes,
    ) {
        let ticket = self.ticket(reply);
        self.out.push_back(Output::Stdin {
            ticket,
            from: from.clone(),
            to,
            is_last: bytes.is_empty() || is_set(infos, keys::IOF_COMPLETE),
            bytes,
        });
    }

    pub(super) fn ticket(&mut self, reply: ReplyTo) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.asks.insert(ticket, reply);
        ticket
    }

    pub(super) fn ask(&mut self, reply: ReplyTo, from: Proc, request: Request) {
        let ticket = self.ticket(reply);
        self.out.push_back(Output::Ask(Box::new(Ask {
            ticket,
            from,
            request,
        })));
    }

    /// Forwards an answer of the host. The answer to a spawn gets the facts of the new job, as with other servers:
    /// libpmix 4 takes facts about its ranks only from there.
    pub(super) fn on_answer(&mut self, reply: ReplyTo, answer: &Answer) {
        if let Answer::Spawned {
            status: Status::SUCCESS,
            nspace: Some(name),
            facts,
        } = answer
            && facts.is_empty()
            && let Ok(nspace) = Nspace::new(name)
            && self.jobs.contains_key(&nspace)
        {
            return self.tell_jobs(reply, iter::once(&nspace), |_| {}, Writer::raw);
        }
        self.answer(reply, answer);
    }

    pub(super) fn status(&mut self, reply: ReplyTo, status: Status) {
        self.answer(reply, &Answer::Status(status));
    }

    /// Sends an answer, if the connection still exists.
    pub(super) fn answer(&mut self, reply: ReplyTo, answer: &Answer) {
        let ReplyTo { conn, tag } = reply;
        if let Some(peer) = self.peers.get_mut(&conn)
            && let Some(bytes) = peer.answer(tag, answer)
        {
            self.out.push_back(Output::Send { conn, bytes });
        }
    }
}
