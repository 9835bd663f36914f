//! Jobs that are held for a debugger: notification of their spawners, and the loss of a debugger.

use base::{JobId, RankSet};
use bytes::Bytes;
use pmix::{
    codec::{Format, Writer},
    keys,
    message::Push,
    value::{Info, Key, Nspace, PmixRank, Proc, Range, Status, Value},
};

use super::{Controller, ControllerOutput, Origin};
use crate::{
    proto::{Cause, EndReason, Note, ToDaemon, ToFront},
    spec::{HoldAt, OnDebuggerLoss},
};

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
    /// `docs/formats/pmix.md`).
    pub(super) fn tell_ready(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let Origin::Spawned { by, .. } = job.origin else {
            return;
        };
        let place = match job.spec.hold.at {
            HoldAt::Init => Some("pmix-init"),
            HoldAt::App => Some("mpi-init"),
            HoldAt::Exec | HoldAt::Nowhere => None,
        };
        let name = |text: &str| Nspace::from_text(text).ok();
        let (Some(server), Some(spawner)) = (name(&self.name), name(&self.nspace(by.job))) else {
            return;
        };
        let spawner = Proc {
            nspace: spawner,
            rank: by.rank.into(),
        };
        let info = |key, value| Key::new(key).ok().map(|key| Info::new(key, value));
        let infos = [
            info(keys::EVENT_NON_DEFAULT, Value::Bool(true)),
            info(keys::EVENT_CUSTOM_RANGE, Value::procs(vec![spawner])),
            info(keys::NSPACE, Value::text(&self.nspace(id))),
            place.and_then(|place| info(keys::BREAKPOINT, Value::text(place))),
        ];
        let event = Push::Event {
            status: Status::READY_FOR_DEBUG,
            source: Proc {
                nspace: server,
                rank: PmixRank(0),
            },
            infos: infos.into_iter().flatten().collect(),
            range: Some(Range::CUSTOM),
        };
        let mut writer = Writer::new(Format::V4);
        event.encode(&mut writer);
        self.tell_nodes(Bytes::from(writer.into_bytes()));
    }

    /// Sends an event to the PMIx servers of all nodes.
    pub(super) fn tell_nodes(&mut self, event: Bytes) {
        let nodes: Vec<_> = self.nodes.keys().copied().collect();
        self.outputs.extend(nodes.into_iter().map(|node| {
            let event = event.clone();
            ControllerOutput::Daemon(node, ToDaemon::Event { event })
        }));
    }
}
