//! Two jobs by one spawn request: the apps that belong together, and those that are to be a job of their own, as the daemons of a debugger
//! beside their target.
//!
//! | the first job | its procs start | it does not start | it ends |
//! |---|---|---|---|
//! | is being started | the second one is spawned | the spawner is told why | the spawner is told |
//!
//! | the second job | its procs start | it does not start |
//! |---|---|---|
//! | is being started | the spawner gets the name of the first one | the first one ends, and the spawner is told why |

use std::ffi::CString;

use base::{JobId, ProcId, Time};
use pmix::{
    keys,
    message::Answer,
    value::{App as SpawnedApp, Info, Key, Nspace, Proc, Status, Value},
};

use super::{super::Controller, find};
use crate::{
    controller::asks::Asker,
    proto::{Cause, EndReason},
};

/// The other job of a spawn request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::controller) enum Partner {
    #[default]
    Nothing,
    /// It is spawned when this one has started.
    Then(Box<Rest>),
    /// It was spawned before, and its name is the answer.
    With(JobId),
}

/// What remains of a spawn request when its first job is made of it.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::controller) struct Rest {
    infos: Vec<Info>,
    apps: Vec<SpawnedApp>,
}

impl Partner {
    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

/// A second job that is to be spawned.
#[derive(Debug)]
pub(in crate::controller) struct Cospawned {
    asker: Asker,
    by: ProcId,
    /// The first one.
    with: JobId,
    rest: Box<Rest>,
}

/// Separates the apps of a second job, if some apps are to be one and others are not.
pub(super) fn split(infos: &[Info], apps: Vec<SpawnedApp>) -> (Vec<SpawnedApp>, Partner) {
    let is_set = |app: &SpawnedApp, key| find(&app.info, key).is_some_and(Value::is_set);
    let is_apart =
        |app: &SpawnedApp| is_set(app, keys::COSPAWN_APP) || is_set(app, keys::DEBUGGER_DAEMONS);
    let (second, first): (Vec<SpawnedApp>, Vec<SpawnedApp>) = apps.into_iter().partition(is_apart);
    if first.is_empty() || second.is_empty() {
        return ([first, second].concat(), Partner::Nothing);
    }
    // How the first job is placed and where it stops says nothing about the second one.
    let of_first = [
        keys::MAP_BY,
        keys::RANK_BY,
        keys::STOP_ON_EXEC,
        keys::STOP_IN_INIT,
        keys::STOP_IN_APP,
        keys::STDIN_TARGET,
        keys::FWD_STDIN,
    ];
    let is_for_all = |info: &&Info| !of_first.iter().any(|key| info.key == **key);
    let rest = Rest {
        infos: infos.iter().filter(is_for_all).cloned().collect(),
        apps: second,
    };
    (first, Partner::Then(Box::new(rest)))
}

impl Controller {
    /// Spawns the second jobs whose first ones have started.
    pub(in crate::controller) fn spawn_beside(&mut self, now: Time) {
        while let Some(cospawned) = self.cospawned.pop_front() {
            let Cospawned {
                asker,
                by,
                with,
                rest,
            } = cospawned;
            let Rest { mut infos, apps } = *rest;
            let are_daemons = |app: &SpawnedApp| find(&app.info, keys::DEBUGGER_DAEMONS).is_some();
            if apps.iter().any(are_daemons) {
                infos.extend(self.target(with));
            }
            let partner = Partner::With(with);
            if let Err(status) = self.spawn_job(now, asker, by, &infos, apps, partner) {
                self.spawn_failed(asker, Partner::With(with), status);
            }
        }
    }

    /// Returns the directive that makes a job the target of daemons.
    fn target(&self, of: JobId) -> Option<Info> {
        let all = Proc::all(Nspace::from_text(&self.nspace(of)).ok()?);
        let key = Key::new(keys::DEBUG_TARGET).ok()?;
        Some(Info::new(key, Value::Proc(Box::new(all))))
    }

    /// Goes on with the second job, or answers the spawner, now that a job has started.
    pub(super) fn spawn_succeeded(
        &mut self,
        asker: Asker,
        by: ProcId,
        id: JobId,
        partner: Partner,
    ) {
        let named = match partner {
            Partner::Then(rest) => {
                let with = id;
                return self.cospawned.push_back(Cospawned {
                    asker,
                    by,
                    with,
                    rest,
                });
            }
            Partner::With(first) => first,
            Partner::Nothing => id,
        };
        let answer = Answer::Spawned {
            status: Status::SUCCESS,
            nspace: CString::new(self.nspace(named)).ok(),
            facts: Vec::new(),
        };
        self.answer(asker, &answer);
    }

    /// Tells the spawner why a job does not start. The first job of the request does not go on alone.
    pub(in crate::controller) fn spawn_failed(
        &mut self,
        asker: Asker,
        partner: Partner,
        status: Status,
    ) {
        if let Partner::With(first) = partner {
            self.end(first, Cause::Ended(EndReason::SpawnerEnded));
        }
        self.answer(asker, &Answer::Status(status));
    }
}
