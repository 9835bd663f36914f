//! Jobs that are held for a debugger: who hears of it, and how they are let go.

use base::{JobId, RankSet, Time};
use bytes::Bytes;
use pmix::{
    codec::{Format, Writer},
    keys,
    message::Push,
    value::{Info, Key, Nspace, PmixRank, Proc, Range, Status, Value},
};

use super::{Controller, ControllerOutput, FIRST, Job, Origin};
use crate::{
    control::{Reply, Request},
    hold::{Announcement, State},
    proto::{Cause, EndReason, Note, ToDaemon, ToFront},
    spec::{HoldAt, OnDebuggerLoss},
};

impl Controller {
    /// Tells whoever has asked for it that all ranks are held: the front, or the spawner of the job.
    pub(super) fn announce(&mut self, id: JobId, news: Option<Announcement>) {
        let Some(Announcement::AllHeld { held, dead }) = news else {
            return;
        };
        // Where none could be started there is nothing to attach to, and the end says why.
        if held.is_empty() {
            return;
        }
        if id == FIRST {
            self.tell(ToFront::AllHeld { held, dead });
        } else {
            self.tell_ready(id);
        }
    }

    /// Does what another process of the user asks for.
    pub(super) fn on_request(&mut self, request: Request) -> Reply {
        let (id, ranks) = match request {
            Request::Release { job, ranks } => (job, ranks),
            Request::Held => {
                let holds = |job: &&Job| !job.is_ending() && !job.hold.left().is_empty();
                let jobs = self.jobs.values().filter(holds);
                return Reply::Held(jobs.map(|job| job.id).collect());
            }
        };
        if self.jobs.get(&id).is_none_or(Job::is_ending) {
            return Reply::NoSuchJob;
        }
        match self.release(id, ranks.as_ref()) {
            None => Reply::NothingHeld,
            Some(ranks) => Reply::Released {
                ranks,
                held: self
                    .jobs
                    .get(&id)
                    .map(|job| job.hold.left())
                    .unwrap_or_default(),
            },
        }
    }

    /// Says once which ranks have not come to where they are to be held: they may never come there.
    pub(super) fn note_missing(&mut self, now: Time) {
        let Some(job) = self.jobs.get_mut(&FIRST) else {
            return;
        };
        if job.hold_note_at.is_none_or(|at| at > now) {
            return;
        }
        job.hold_note_at = None;
        if job.hold.state() != State::Gathering {
            return;
        }
        let note = Note::NotHeldYet {
            at: job.spec.hold.at,
            ranks: job.hold.left().difference(job.hold.held()),
            held: job.hold.held().clone(),
        };
        self.tell(ToFront::Note(note));
    }

    /// Lets ranks of a job go, all of them where none is named. Which were held, or would have been.
    pub(super) fn release(&mut self, id: JobId, ranks: Option<&RankSet>) -> Option<RankSet> {
        let job = self.jobs.get_mut(&id)?;
        let (freed, news) = job.hold.release(ranks);
        let left = job.hold.left();
        let freed = freed?;
        self.each_node(id, |job| ToDaemon::Release {
            job,
            ranks: freed.clone(),
        });
        self.announce(id, news);
        if id == FIRST {
            self.tell(ToFront::Released { held: left });
        }
        Some(freed)
    }

    /// The daemon has let them run on, or will not, as the job has it.
    pub(super) fn on_debugger_lost(&mut self, now: Time, id: JobId, ranks: RankSet) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        match job.spec.end.on_debugger_loss {
            OnDebuggerLoss::Kill => self.end(now, id, Cause::Ended(EndReason::DebuggerLost)),
            OnDebuggerLoss::Release => {
                let note = Note::DebuggerLost { job: id, ranks };
                self.tell(ToFront::Note(note));
            }
        }
    }

    /// One event for the proc that has spawned the job, however many ranks wait (section 8.3 of `docs/formats/pmix.md`).
    fn tell_ready(&mut self, id: JobId) {
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

    /// An event for the PMIx servers of all nodes.
    pub(super) fn tell_nodes(&mut self, event: Bytes) {
        let nodes: Vec<_> = self.nodes.keys().copied().collect();
        self.outputs.extend(nodes.into_iter().map(|node| {
            let event = event.clone();
            ControllerOutput::Daemon(node, ToDaemon::Event { event })
        }));
    }
}
