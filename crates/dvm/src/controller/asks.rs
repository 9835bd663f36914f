//! Requests of procs that the controller answers.

#[cfg(test)]
mod tests;

use base::{JobId, NodeId, ProcId, RankSet, Time};
use bytes::Bytes;
use pmix::{
    codec::{Format, Writer},
    message::{Answer, Request},
    server::{FoundFor, MAX_CARRIED, PublishedData},
    value::{Nspace, Proc, Status},
};

use super::{Controller, ControllerOutput};
use crate::{
    proto::{AskId, ToDaemon},
    syslog::SyslogFailure,
};

/// The destination of an answer: a node and the id of the request there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) struct Asker {
    pub(in crate::controller) node: NodeId,
    pub(in crate::controller) ticket: AskId,
}

/// Data that procs have published.
pub(super) type Published = PublishedData<Asker>;

impl Controller {
    /// Returns the PMIx nspace of a job, or of a tool.
    pub(super) fn nspace(&self, job: JobId) -> String {
        let of_tool = self.tools.nspace(job).map(str::to_owned);
        of_tool.unwrap_or_else(|| format!("{}@{job}", self.name))
    }

    pub(super) fn on_ask(
        &mut self,
        now: Time,
        node: NodeId,
        proc: ProcId,
        ticket: AskId,
        request: &[u8],
    ) {
        let asker = Asker { node, ticket };
        let Ok(nspace) = Nspace::from_text(&self.nspace(proc.job)) else {
            return self.answer(asker, &Answer::Status(Status::ERROR));
        };
        let from = Proc {
            nspace,
            rank: proc.rank.into(),
        };
        match Request::decode(Format::V4, request) {
            Ok(Request::Publish { infos, .. }) => {
                let (status, found) = self.published.publish(&from, infos);
                self.answer(asker, &Answer::Status(status));
                self.found(found);
            }
            // The end of the proc may arrive before its last request. A proc that has ended waits for no data.
            Ok(Request::Lookup { .. }) if self.has_ended(proc) => {
                let (status, data) = (Status::NOT_FOUND, Vec::new());
                self.answer(asker, &Answer::Found { status, data });
            }
            Ok(Request::Lookup { keys, infos, .. }) => {
                let found = self.published.lookup(now, asker, &from, keys, &infos);
                self.found(found);
            }
            Ok(Request::Unpublish { keys, infos, .. }) => {
                let status = self.published.unpublish(&from, &keys, &infos);
                self.answer(asker, &Answer::Status(status));
            }
            Ok(Request::Query { queries }) => self.on_query(now, asker, proc, &queries),
            Ok(Request::Spawn { infos, apps }) => self.spawn(now, asker, proc, &infos, apps),
            Ok(Request::Allocate { directive, infos }) => {
                self.on_allocate(now, asker, proc, directive, &infos);
            }
            Ok(_) => self.answer(asker, &Answer::Status(Status::NOT_SUPPORTED)),
            Err(error) => {
                self.log(format!("a daemon asks what cannot be read: {error}"));
                self.answer(asker, &Answer::Status(Status::ERROR));
            }
        }
    }

    /// Handles the end of procs: removes data that persists only as long as its process, and their pending look-ups.
    pub(super) fn published_owners_ended(&mut self, job: JobId, ranks: &RankSet) {
        let Ok(nspace) = Nspace::from_text(&self.nspace(job)) else {
            return;
        };
        for rank in ranks.iter() {
            self.published.proc_ended(&Proc {
                nspace: nspace.clone(),
                rank: rank.into(),
            });
        }
    }

    pub(super) fn has_ended(&self, proc: ProcId) -> bool {
        let job = self.jobs.get(&proc.job);
        let has_ended = job.is_none_or(|job| job.settled.contains(proc.rank));
        has_ended && !self.tools.contains(proc.job)
    }

    /// Answers look-ups whose time-out has expired.
    pub(super) fn expire_lookups(&mut self, now: Time) {
        let expired = self.published.expire(now);
        self.found(expired);
    }

    /// Answers a process that logs to the syslog of the controller's host.
    pub(super) fn on_syslogged(&mut self, asker: Asker, result: Result<(), SyslogFailure>) {
        let status = result.map_or_else(SyslogFailure::status, |()| Status::SUCCESS);
        self.answer(asker, &Answer::Status(status));
    }

    fn found(&mut self, found: impl IntoIterator<Item = FoundFor<Asker>>) {
        for FoundFor {
            token,
            status,
            data,
        } in found
        {
            self.answer(token, &Answer::Found { status, data });
        }
    }

    pub(super) fn answer(&mut self, asker: Asker, answer: &Answer) {
        let mut writer = Writer::new(Format::V4);
        answer.encode(&mut writer);
        if writer.as_bytes().len() > MAX_CARRIED {
            writer = Writer::new(Format::V4);
            Answer::Status(Status::OUT_OF_RESOURCE).encode(&mut writer);
        }
        self.outputs.push_back(ControllerOutput::Daemon(
            asker.node,
            ToDaemon::Answer {
                ticket: asker.ticket,
                answer: Bytes::from(writer.into_bytes()),
            },
        ));
    }
}
