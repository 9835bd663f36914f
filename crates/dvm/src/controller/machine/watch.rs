//! Which runs without a front are watched for hangs. The caller starts a process for each.

use std::{ffi::OsString, time::Duration};

use base::{HostList, JobId};
use serde::{Deserialize, Serialize};

use super::DETACHED;
use crate::{
    controller::{Controller, ControllerOutput},
    machine::OutputFiles,
    messages,
    proto::FrontId,
    queue::TaskId,
};

/// Runs that are watched at the same time. Each needs a process that looks at all ranks now and then.
pub(super) const WATCHED_MAX: usize = 64;

/// A job without a front that is watched for hangs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobWatch {
    pub job: JobId,
    /// The PMIx nspace of its procs, which they have in PMIX_NAMESPACE.
    pub nspace: String,
    /// The nodes that have procs of it.
    pub hosts: HostList,
    /// Time without progress after which it hangs.
    pub idle: Duration,
    /// What is left of its time limit.
    pub left: Option<Duration>,
    /// Its place in the queue.
    pub task: TaskId,
    /// The directory in which its programs run.
    pub directory: OsString,
    /// Where its output goes, and so the reports.
    pub files: OutputFiles,
}

/// Why a job is not watched that asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotWatched {
    /// So many others are.
    TooMany(usize),
    /// When the machine was started, no `dbgr` was found.
    NoDbgr,
    /// `dbgr` could not be started, for the reason given.
    NotStarted(String),
}

impl Controller {
    /// Lets a run be watched that asks for it. It has a time limit of which so much is left.
    pub(in crate::controller) fn watch(&mut self, id: JobId, left: Option<Duration>) {
        let (Some(host), Some(job)) = (&mut self.machine, self.jobs.get(&id)) else {
            return;
        };
        let front = FrontId(DETACHED | id.0);
        let (Some(capture), Some(idle)) = (host.captures.get(&front), job.spec.watch) else {
            return;
        };
        if host.watched.len() >= WATCHED_MAX {
            return self.on_not_watched(id, &NotWatched::TooMany(WATCHED_MAX));
        }
        host.watched.insert(id);
        let hosts = job.shares.keys().filter_map(|node| self.nodes.get(node));
        let watch = JobWatch {
            job: id,
            nspace: job.nspace.clone(),
            hosts: hosts.map(|node| node.host.as_str()).collect(),
            idle,
            left,
            task: capture.task,
            directory: job
                .spec
                .apps
                .first()
                .map(|app| app.directory.clone())
                .unwrap_or_default(),
            files: capture.files.clone(),
        };
        self.outputs
            .push_back(ControllerOutput::Watch(Box::new(watch)));
    }

    /// Says in the file for the errors of a run that it is not watched.
    pub(in crate::controller) fn on_not_watched(&mut self, id: JobId, why: &NotWatched) {
        if let Some(host) = &mut self.machine {
            host.watched.remove(&id);
        }
        self.write_in_output(FrontId(DETACHED | id.0), &messages::not_watched(why));
    }

    /// Ends the watch of a run that is over.
    pub(in crate::controller) fn watch_no_longer(&mut self, id: JobId) {
        let host = self.machine.as_mut();
        if host.is_some_and(|host| host.watched.remove(&id)) {
            self.outputs.push_back(ControllerOutput::WatchEnd(id));
        }
    }
}
