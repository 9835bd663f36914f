//! Preloaded files of jobs on this node.

use std::{
    ffi::{OsStr, OsString},
    sync::Arc,
};

use base::JobId;

use super::{Daemon, Output};
use crate::{
    preload::{Store, StoreOutput},
    proto::{Launch, PreloadFailure, ToController, ToPreload},
    spec::{App, PRELOAD_VARIABLE},
};

impl Daemon {
    pub(super) fn on_preload(&mut self, job: JobId, what: ToPreload) {
        match what {
            ToPreload::Begin(manifest) => {
                if self.stores.contains_key(&job) {
                    let what = format!("the files of job {job} begin twice: ignored");
                    return self.outputs.push_back(Output::Log(what));
                }
                self.stores.insert(job, Store::begin(manifest));
            }
            ToPreload::Chunk { number, bytes } => {
                // Chunks of a job that was dropped may still arrive.
                if let Some(store) = self.stores.get_mut(&job) {
                    store.on_chunk(number, bytes);
                }
            }
            ToPreload::Drop => return self.remove_files(job),
        }
        self.route_files(job);
    }

    pub(super) fn on_files_acted(
        &mut self,
        job: JobId,
        result: Result<Option<OsString>, PreloadFailure>,
    ) {
        if let Some(store) = self.stores.get_mut(&job) {
            store.on_acted(result);
            self.route_files(job);
        }
    }

    /// Removes the files of a job that is over.
    pub(super) fn remove_files(&mut self, job: JobId) {
        if let Some(store) = self.stores.get_mut(&job) {
            store.remove();
            self.route_files(job);
            self.stores.remove(&job);
        }
    }

    /// Removes the files of jobs that were not launched, because the controller is gone.
    pub(super) fn drop_unlaunched(&mut self) {
        let stores: Vec<JobId> = self.stores.keys().copied().collect();
        for job in stores {
            if !self.jobs.contains_key(&job) {
                self.remove_files(job);
            }
        }
    }

    fn route_files(&mut self, job: JobId) {
        let Some(store) = self.stores.get_mut(&job) else {
            return;
        };
        while let Some(output) = store.poll() {
            self.outputs.push_back(match output {
                StoreOutput::Act(act) => Output::Files { job, act },
                StoreOutput::Send(news) => Output::Send(ToController::Preload { job, news }),
                StoreOutput::Log(what) => Output::Log(what),
            });
        }
    }

    /// Returns a launch whose apps use the preloaded files of this node.
    pub(super) fn with_preloaded(&mut self, mut shared: Arc<Launch>) -> Arc<Launch> {
        if shared.preloaded.is_none() {
            return shared;
        }
        let launch = Arc::make_mut(&mut shared);
        let Some(preloaded) = launch.preloaded.take() else {
            return shared;
        };
        let store = self.stores.get(&launch.job);
        let Some(directory) = store.and_then(Store::directory).cloned() else {
            let what = format!("job {} is launched without its files", launch.job);
            self.outputs.push_back(Output::Log(what));
            return shared;
        };
        let is_tool = launch.beside.is_some();
        for (index, app) in (0..).zip(&mut launch.apps) {
            if let Some(name) = preloaded.programs.get(&index) {
                let argument = preloaded.arguments.get(&index);
                let argument = argument.and_then(|at| app.args.get_mut(*at as usize));
                *argument.unwrap_or(&mut app.program) = joined(&directory, name);
            }
            if preloaded.inside.contains(&index) {
                app.directory = directory.clone();
            }
            app.env.set(PRELOAD_VARIABLE, &directory);
            if is_tool {
                find_in(app, &directory);
            }
        }
        shared
    }
}

/// Lets a tool find its programs and libraries among the copies first. Ranks do not: a copy might have the name of a file of the system.
fn find_in(app: &mut App, directory: &OsStr) {
    for name in ["PATH", "LD_LIBRARY_PATH"].map(OsStr::new) {
        let path = before(directory, app.env.get(name));
        app.env.set(name, &path);
    }
    app.search = before(directory, Some(&app.search));
}

fn before(directory: &OsStr, others: Option<&OsStr>) -> OsString {
    let mut path = directory.to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        path.push(":");
        path.push(others);
    }
    path
}

fn joined(directory: &OsStr, name: &OsStr) -> OsString {
    let mut path = directory.to_owned();
    path.push("/");
    path.push(name);
    path
}
