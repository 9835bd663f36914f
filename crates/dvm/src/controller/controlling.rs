//! The controlling tool: the one that has started this launcher, or for which the launcher waits because its environment says so.
//!
//! Jobs of fronts wait for its release. Its directives then apply to them, it hears of them as a spawner does, and gets the output that it
//! has asked for. `docs/formats/indirect-launch.md` has the rules.
//!
//! | state | the tool is admitted | a tool releases the launcher | the tool's connection ends | the tool dies (its pipe) |
//! |---|---|---|---|---|
//! | `Nobody` | – | – | – | – |
//! | `Expected` | of a tool that has started us: `Waits` | `Released` by that tool | – | `Gone` |
//! | `Waits` | – | `Released` | `Gone` | `Gone` |
//! | `Released` | – | – | the jobs go on, with the ranks that its directives hold | the jobs end: `Gone` |
//! | `Gone` | – | – | – | – |
//!
//! In `Gone`, jobs are refused: nobody is left to release them, or to hear of them. In `Expected`, the user's own signals end the wait.

#[cfg(test)]
mod tests;

use std::ffi::CStr;

use base::{JobId, NodeId, ProcId, Rank, Time};
use bytes::Bytes;
use pmix::{
    codec::{Format, Reader},
    keys,
    server::unknown_launch_directive,
    value::{Info, Status, Value},
};
use serde::{Deserialize, Serialize};

use super::{
    Controller, ControllerOutput, Job, Origin,
    held::Hearers,
    job::Spawner,
    spawned::{
        agent::execute_all,
        find,
        spec::{forwarded, hold, kept, logged_news, vary},
    },
};
use crate::{
    place,
    planted::{self, Bug},
    proto::{Cause, EndReason, FrontId, Note, Refusal, ToDaemon, ToFront},
    spec::{HoldAt, JobSpec, MapFor},
};

/// How a tool controls this launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// It has started the launcher, which is connected to it. The directives are infos, packed as `docs/formats/pmix.md` defines.
    Started { directives: Bytes },
    /// The environment asks the launcher to wait for a tool.
    Pause,
}

/// The controlling tool and its directives.
#[derive(Debug, Default)]
pub(super) struct Controlling {
    state: State,
    /// The front whose job waits.
    front: Option<FrontId>,
    /// `None` if no tool has started this launcher.
    directives: Option<Vec<Info>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Nobody,
    Expected,
    Waits(ProcId),
    Released(ProcId),
    Gone,
}

/// What a job of a front waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    Given,
    Awaited,
    Never,
}

impl Controlling {
    /// Notes the first front, whose job a tool controls.
    pub(super) fn on_submit(&mut self, front: FrontId) {
        self.front.get_or_insert(front);
    }

    /// Returns true if the job goes on when the tool has died.
    fn goes_on(&self) -> bool {
        let said = self.directives.as_ref();
        let said = said.and_then(|infos| find(infos, keys::NOHUP));
        said.is_some_and(Value::is_set)
    }

    pub(super) fn permission(&self, job: &Job) -> Permission {
        let is_meant = job.origin == Origin::Front && self.front == Some(job.front);
        if !is_meant || job.spec.map == MapFor::Front {
            return Permission::Given;
        }
        match self.state {
            State::Nobody | State::Released(_) => Permission::Given,
            State::Expected | State::Waits(_) => Permission::Awaited,
            State::Gone => Permission::Never,
        }
    }
}

impl Controller {
    /// Notes that a tool controls this launcher, before any front submits a job.
    pub(super) fn be_controlled(&mut self, control: Control) {
        self.controlling.state = State::Expected;
        if let Control::Started { directives } = control {
            let mut reader = Reader::new(Format::V4, &directives);
            self.controlling.directives = Some(reader.list().unwrap_or_default());
        }
    }

    /// The tool that has started this launcher is admitted, or is refused.
    pub(super) fn on_controlling_tool(&mut self, admitted: Option<(JobId, u32)>) {
        match admitted {
            Some((job, rank)) if self.controlling.state == State::Expected => {
                let rank = Rank(rank);
                let tool = ProcId { job, rank };
                self.controlling.state = if planted::is(Bug::StartedByConnecting) {
                    State::Released(tool)
                } else {
                    State::Waits(tool)
                };
            }
            Some(_) => {}
            None => self.lose_controlling_tool(),
        }
    }

    /// Tells a tool that has connected that the launcher waits for its release, if it does.
    pub(super) fn tell_launcher_ready(&mut self, node: NodeId, tool: ProcId) {
        let is_awaited = match self.controlling.state {
            State::Waits(proc) => proc == tool,
            // During a pause, any tool may release it.
            State::Expected => self.controlling.directives.is_none(),
            State::Nobody | State::Released(_) | State::Gone => false,
        };
        let to = Hearers::Spawner(tool);
        if is_awaited && let Some(event) = self.event(to, Status::LAUNCHER_READY, [None, None]) {
            let event = ToDaemon::Event { event };
            self.outputs
                .push_back(ControllerOutput::Daemon(node, event));
        }
    }

    /// A tool lets the launcher go on.
    pub(super) fn on_launcher_released(&mut self, now: Time, by: ProcId) {
        self.controlling.state = match self.controlling.state {
            State::Expected => State::Released(by),
            State::Waits(tool) => State::Released(tool),
            State::Nobody | State::Released(_) | State::Gone => return,
        };
        for id in self.living() {
            // Its time begins now.
            self.with(id, |job| job.start_clock(now));
            self.launch_if_ready(id);
        }
    }

    /// The connection to a tool has ended. Nobody else knows of the ranks that its directives hold.
    pub(super) fn controlling_tool_left(&mut self, tool: JobId) {
        match self.controlling.state {
            State::Waits(proc) if proc.job == tool => self.lose_controlling_tool(),
            State::Released(proc) if proc.job == tool => {
                if planted::is(Bug::HeldByDirectives) {
                    return;
                }
                let is_held = |job: &&Job| matches!(job.origin, Origin::Controlled { by, holds: true, .. } if by == proc);
                let held = self.jobs.values().filter(is_held);
                for id in held.map(|job| job.id).collect::<Vec<_>>() {
                    self.with(id, |job| {
                        job.release(None);
                    });
                }
            }
            _ => {}
        }
    }

    /// The tool that has started this launcher is dead.
    pub(super) fn on_controlling_tool_died(&mut self) {
        match self.controlling.state {
            State::Expected | State::Waits(_) => self.lose_controlling_tool(),
            State::Released(_) if self.controlling.goes_on() => {}
            State::Released(_) if planted::is(Bug::RunsOnWithoutTool) => {}
            State::Released(_) => {
                let is_controlled = |job: &&Job| matches!(job.origin, Origin::Controlled { .. });
                let jobs = self.jobs.values().filter(is_controlled);
                for id in jobs.map(|job| job.id).collect::<Vec<_>>() {
                    self.end(id, Cause::Ended(EndReason::ToolEnded));
                }
                // A job that is submitted from now on would run without it.
                self.controlling.state = State::Gone;
            }
            State::Nobody | State::Gone => {}
        }
    }

    fn lose_controlling_tool(&mut self) {
        if planted::is(Bug::DeadToolAwaited) {
            return;
        }
        self.controlling.state = State::Gone;
        for id in self.living() {
            self.launch_if_ready(id);
        }
    }

    /// Stops the clock of a job that waits for a tool. If the user has to start the tool, the front is told.
    pub(super) fn wait_for_tool(&mut self, id: JobId) {
        let job = self.jobs.get(&id);
        if job.map(|job| self.controlling.permission(job)) != Some(Permission::Awaited) {
            return;
        }
        let is_paused = self.controlling.directives.is_none();
        self.with(id, |job| {
            job.stop_clock();
            if is_paused {
                job.tell(ToFront::Note(Note::WaitsForTool));
            }
        });
    }

    /// Applies the directives of the controlling tool to a job of a front, and has the tool hear of it.
    pub(super) fn take_directives(&mut self, id: JobId) {
        let State::Released(by) = self.controlling.state else {
            return;
        };
        let directives = self.controlling.directives.clone().unwrap_or_default();
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.origin != Origin::Front || self.controlling.front != Some(job.front) {
            return;
        }
        let keep = kept(&directives, Spawner::Rank);
        job.origin = Origin::Controlled {
            by,
            forward: forwarded(&directives, Spawner::Rank),
            holds: job.spec.hold.at == HoldAt::Nowhere,
            keep: keep.unwrap_or(None),
            log: logged_news(&directives),
        };
        if keep.is_err() {
            let key = keys::IOF_CACHE_SIZE.to_string_lossy().into_owned();
            return self.refuse(id, Refusal::Directive(key));
        }
        if let Err(refusal) = direct(&mut job.spec, &directives) {
            self.refuse(id, refusal);
        }
    }
}

/// Applies a tool's directives to a job. What the job's own command line says takes precedence, but for variables, which have an order.
fn direct(spec: &mut JobSpec, directives: &[Info]) -> Result<(), Refusal> {
    let refused = |key: &CStr| Refusal::Directive(key.to_string_lossy().into_owned());
    if let Some(key) = unknown_launch_directive(directives) {
        return Err(refused(key.as_c_str()));
    }
    if spec.hold.at == HoldAt::Nowhere {
        spec.hold = hold(directives, &[]).map_err(|_| refused(keys::STOP_IN_INIT))?;
    }
    for app in &mut spec.apps {
        vary(&mut app.env, directives);
    }
    execute_all(directives, spec).map_err(|_| refused(keys::EXEC_AGENT))?;
    let policy = |key: &CStr| -> Option<&str> { find(directives, key)?.as_text()?.to_str().ok() };
    let request = &mut spec.placement;
    if let (None, Some(said)) = (&request.map_by, policy(keys::MAP_BY)) {
        request.map_by = Some(place::map_by(said).map_err(|_| refused(keys::MAP_BY))?);
    }
    if let (None, Some(said)) = (&request.rank_by, policy(keys::RANK_BY)) {
        request.rank_by = Some(place::rank_by(said).map_err(|_| refused(keys::RANK_BY))?);
    }
    if let (None, Some(said)) = (&request.bind_to, policy(keys::BIND_TO)) {
        request.bind_to = Some(place::bind_to(said).map_err(|_| refused(keys::BIND_TO))?);
    }
    Ok(())
}
