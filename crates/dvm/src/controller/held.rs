//! Jobs that are held for a debugger: notification of their spawners, and the loss of a debugger.

use std::ffi::CStr;

use base::{JobId, NodeId, ProcId, RankSet};
use bytes::Bytes;
use pmix::{
    codec::{Format, Writer},
    keys,
    message::Push,
    value::{Info, Key, Nspace, PmixRank, Proc, Range, Status, Value},
};

use super::{Controller, ControllerOutput};
use crate::{
    proto::{Cause, EndReason, Note, ToDaemon, ToFront},
    spec::{HoldAt, OnDebuggerLoss},
};

/// Who hears of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hearers {
    Spawner(ProcId),
    /// Every process that has registered for the event.
    All,
}

impl Controller {
    /// Handles the loss of a debugger. By the job's policy, either the daemon has already continued the ranks, or the
    /// job ends.
    pub(super) fn on_debugger_lost(&mut self, id: JobId, ranks: RankSet) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        match job.spec.end.on_debugger_loss {
            OnDebuggerLoss::Kill => self.end(id, Cause::Ended(EndReason::DebuggerLost)),
            OnDebuggerLoss::Release => {
                let note = Note::DebuggerLost { job: id, ranks };
                self.with(id, |job| job.tell(ToFront::Note(note)));
            }
        }
    }

    /// Sends one event to the proc that spawned the job, however many ranks are held (section 8.3 of
    /// `docs/formats/pmix.md`). Any tool may debug the job of a front.
    pub(super) fn tell_ready(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let to = match job.observer() {
            Some(by) => Hearers::Spawner(by),
            None => Hearers::All,
        };
        let place = match job.spec.hold.at {
            HoldAt::Init => Some("pmix-init"),
            HoldAt::App => Some("mpi-init"),
            HoldAt::Exec | HoldAt::Nowhere => None,
        };
        let place = place.and_then(|place| {
            let key = Key::new(keys::BREAKPOINT).ok()?;
            Some(Info::new(key, Value::text(place)))
        });
        self.tell_of_job(to, id, Status::READY_FOR_DEBUG, place);
    }

    /// Sends an event about a job.
    pub(super) fn tell_of_job(
        &mut self,
        to: Hearers,
        id: JobId,
        status: Status,
        more: Option<Info>,
    ) {
        let name = info(keys::NSPACE, Value::text(&self.nspace(id)));
        if let Some(event) = self.event(to, status, [name, more]) {
            self.tell_nodes(&event);
        }
    }

    /// Returns an event of the launcher, packed.
    pub(super) fn event(
        &self,
        to: Hearers,
        status: Status,
        more: [Option<Info>; 2],
    ) -> Option<Bytes> {
        let name = |text: &str| Nspace::from_text(text).ok();
        let server = name(&self.name)?;
        let (range, named) = match to {
            Hearers::All => (Range::SESSION, None),
            Hearers::Spawner(by) => {
                let nspace = name(&self.nspace(by.job));
                let spawner = nspace.map(|nspace| Proc {
                    nspace,
                    rank: by.rank.into(),
                });
                let named = spawner.map(|spawner| Value::procs(vec![spawner]));
                (
                    Range::CUSTOM,
                    named.and_then(|procs| info(keys::EVENT_CUSTOM_RANGE, procs)),
                )
            }
        };
        let infos = [
            info(keys::EVENT_NON_DEFAULT, Value::Bool(true)),
            named,
            self.clock.timestamp(),
        ];
        let event = Push::Event {
            status,
            source: Proc {
                nspace: server,
                rank: PmixRank(0),
            },
            infos: infos.into_iter().chain(more).flatten().collect(),
            range: Some(range),
        };
        let mut writer = Writer::new(Format::V4);
        event.encode(&mut writer);
        Some(Bytes::from(writer.into_bytes()))
    }

    /// Sends an event to the PMIx servers of all nodes.
    pub(super) fn tell_nodes(&mut self, event: &Bytes) {
        self.tell_nodes_but(None, event);
    }

    /// Sends an event to the PMIx servers of all nodes but this one.
    pub(super) fn tell_nodes_but(&mut self, deaf: Option<NodeId>, event: &Bytes) {
        let nodes = self.nodes.keys().filter(|node| deaf != Some(**node));
        self.outputs.extend(nodes.map(|node| {
            let event = event.clone();
            ControllerOutput::Daemon(*node, ToDaemon::Event { event })
        }));
    }
}

fn info(key: &CStr, value: Value) -> Option<Info> {
    Key::new(key).ok().map(|key| Info::new(key, value))
}
