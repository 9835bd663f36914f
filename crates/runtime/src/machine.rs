//! What makes a controller a machine: its directory, its store, and the files of jobs without a front.
//!
//! Each machine has a directory, `STATE/HOST/NAME`:
//!
//! | file | what it is |
//! |---|---|
//! | `lock` | locked while the machine lives |
//! | `store` | queue and history (`docs/formats/machine-store.md`) |
//! | `control` | the socket to which fronts connect |
//! | `origin` | in which allocation of a resource manager the machine runs, in one line; empty if in none |
//!
//! The kernel drops the lock when the controller exits, however it ends. So a directory whose lock is free is that of a machine that
//! has ended, and the next one of this name continues its queue.
//!
//! Threads of their own ([`os::Worker`]) read and write the store and the files, because both may block, and a file that blocks must
//! not hold up the store.

mod files;
mod store;
mod watches;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io::{self, Write as _},
    os::{fd::OwnedFd, unix::fs::symlink},
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    time::Duration,
};

use base::{JobId, NodeId, Time};
use bytes::Bytes;
use dvm::{
    CaptureStart, Captured, ControllerInput, JobWatch, NotWatched,
    machine::{Batch, Declared, Setup, Wall},
    proto::{CannotRun, FrontId},
    queue::Limits,
    spec::JobSpec,
};
use os::{Clock, Interest, Pid, Worker};
use serde::{Deserialize, Serialize};

use self::{
    files::Files as JobFiles,
    store::{Store, StoreError},
    watches::Watches,
};
use crate::{
    control,
    reactor::{Reactor, Source},
};

const LOCK: &str = "lock";
const CONTROL: &str = "control";
const ORIGIN: &str = "origin";

/// How often the lock is tried: who looks whether a machine runs has it for a moment.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Bytes of an origin that are read.
const ORIGIN_MAX: usize = 256;

/// What a controller needs to be a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachinePlan {
    pub name: String,
    /// Its directory.
    pub directory: PathBuf,
    /// The allocation of a resource manager in which it runs; empty if there is none.
    pub origin: String,
    /// How submitted jobs are watched for hangs; `None` if there is no `dbgr`.
    pub debugger: Option<Debugger>,
    /// What tools spawn is modeled after it.
    pub model: Option<Box<JobSpec>>,
    pub declared: Declared,
    pub limits: Limits,
}

/// How `dbgr` is started for a submitted job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Debugger {
    pub program: PathBuf,
    /// Options with which it reaches the nodes of the machine.
    pub options: Vec<String>,
    /// `NAME=value`.
    pub environment: Vec<OsString>,
}

/// Why a machine cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MachineError {
    #[error("the machine `{0}` runs")]
    Running(String),
    #[error("`{}` belongs to somebody else, or lets others in: it must be yours alone (mode 0700)", .0.display())]
    NotPrivate(PathBuf),
    #[error("cannot use `{path}`: {why}", path = .0.display(), why = .1)]
    Directory(PathBuf, io::Error),
    #[error(transparent)]
    Os(#[from] os::Error),
    #[error("cannot use the store `{path}`: {why}", path = .0.display(), why = .1)]
    Store(PathBuf, StoreError),
}

impl From<MachineError> for CannotRun {
    fn from(error: MachineError) -> Self {
        match error {
            MachineError::Running(name) => Self::MachineRuns(name),
            MachineError::Os(error) => Self::System(error.to_string()),
            other @ (MachineError::NotPrivate(_)
            | MachineError::Directory(..)
            | MachineError::Store(..)) => Self::NoMachine(other.to_string()),
        }
    }
}

/// A machine on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundMachine {
    pub name: String,
    pub directory: PathBuf,
    pub origin: String,
    pub life: MachineLife,
    /// What tells it from other machines of the same name.
    instance: Vec<u8>,
}

/// Whether a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineLife {
    Runs,
    /// It has ended, and has left a queue or a history.
    Ended,
}

impl FoundMachine {
    /// Returns true if it runs now, and is not another one of the same name.
    #[must_use]
    pub fn runs(&self) -> bool {
        let lock = self.directory.join(LOCK);
        os::is_locked(&lock) && instance(&lock) == self.instance
    }

    /// Returns the path of the socket to which fronts connect.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.directory.join(CONTROL)
    }
}

/// Returns the machines whose directories are in `parent`, by name.
#[must_use]
pub fn machines(parent: &Path) -> Vec<FoundMachine> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    if !os::is_private_dir(parent) {
        return Vec::new();
    }
    let found = entries.filter_map(|entry| found_at(entry.ok()?.path()));
    let mut found: Vec<FoundMachine> = found.collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// Returns the machine with this name, if its directory is in `parent`, without a look at the others.
#[must_use]
pub fn machine_named(parent: &Path, name: &str) -> Option<FoundMachine> {
    // A name with a slash would lead out of the directory, and so would one of the names that every directory has.
    let is_name = !name.contains('/') && ![".", "..", ""].contains(&name);
    if !is_name || !os::is_private_dir(parent) {
        return None;
    }
    found_at(parent.join(name))
}

/// Returns the machine whose directory this is.
fn found_at(directory: PathBuf) -> Option<FoundMachine> {
    let name = directory.file_name()?.to_str()?.to_owned();
    let lock = directory.join(LOCK);
    // What others have put there is not asked, and not trusted with a job.
    if !lock.is_file() || !os::is_private_dir(&directory) {
        return None;
    }
    let life = if os::is_locked(&lock) {
        MachineLife::Runs
    } else {
        MachineLife::Ended
    };
    let origin = os::read_owned(&directory.join(ORIGIN));
    let origin = origin.map(|(bytes, _)| bytes).unwrap_or_default();
    let origin = String::from_utf8_lossy(&origin);
    let origin = origin.lines().next().unwrap_or_default();
    Some(FoundMachine {
        name,
        origin: origin.chars().take(ORIGIN_MAX).collect(),
        life,
        instance: instance(&lock),
        directory,
    })
}

/// Returns what the machine that has this lock has written there.
fn instance(lock: &Path) -> Vec<u8> {
    let written = os::read_owned(lock).map(|(bytes, _)| bytes);
    written.unwrap_or_default()
}

/// Order for the thread of the store.
#[derive(Debug)]
enum StoreOrder {
    Write(Batch),
    Fetch { before: JobId, most: u32 },
}

/// Order for the thread of the files.
#[derive(Debug)]
enum FileOrder {
    Open(Captured, CaptureStart),
    Append(Captured, Bytes),
    Close(JobId),
}

/// Time that each thread has to finish when the machine has ended. A file on a dead server must not keep it.
const FINISH_MAX: Duration = Duration::from_secs(2);

/// The machine's part of a controller's host.
#[derive(Debug)]
pub(crate) struct MachineHost {
    /// `None` while they are dropped.
    threads: Option<(Worker<StoreOrder, ControllerInput>, Files)>,
    /// Locked as long as the machine lives.
    _lock: File,
    directory: PathBuf,
    /// Links to the socket, under the names at which tools find the jobs of these fronts.
    links: BTreeMap<FrontId, PathBuf>,
    watches: Watches,
}

type Files = Worker<FileOrder, Option<ControllerInput>>;

impl MachineHost {
    /// Takes the directory of a machine. Returns also what the controller has to know, with the names of its nodes.
    pub(crate) fn open(
        plan: &MachinePlan,
        nodes: Vec<String>,
        local: Option<NodeId>,
        reactor: &mut Reactor,
    ) -> Result<(Self, Setup), MachineError> {
        let directory = &plan.directory;
        os::make_private_dirs(directory)?;
        let parent = directory.parent().unwrap_or(directory);
        for private in [parent, directory] {
            if !os::is_private_dir(private) {
                return Err(MachineError::NotPrivate(private.to_owned()));
            }
        }
        let mut lock = take_lock(&directory.join(LOCK))
            .map_err(|error| MachineError::Directory(directory.clone(), error))?
            .ok_or_else(|| MachineError::Running(plan.name.clone()))?;
        // We have the lock, so no other machine uses these.
        let instance = format!("{}\n", os::random_number()?);
        let written = lock
            .set_len(0)
            .and_then(|()| lock.write_all(instance.as_bytes()));
        written.map_err(|error| MachineError::Directory(directory.clone(), error))?;
        let _ = fs::remove_file(directory.join(CONTROL));
        os::write_private_file(directory, ORIGIN.as_ref(), plan.origin.as_bytes())?;
        let failed = |error| MachineError::Store(directory.clone(), error);
        let (store, stored) = guarded(|| Store::open(directory)).map_err(failed)?;
        let (store, store_watched) = start_store(store)?;
        let (files, files_watched) = start_files()?;
        reactor.add(store_watched, Interest::Read, Source::Machine)?;
        reactor.add(files_watched, Interest::Read, Source::Machine)?;
        let host = Self {
            threads: Some((store, files)),
            _lock: lock,
            directory: directory.clone(),
            links: BTreeMap::new(),
            watches: Watches::new(plan.debugger.clone())?,
        };
        let setup = Setup {
            name: plan.name.clone(),
            epoch: epoch(Clock::now()),
            nodes,
            local,
            stored,
            model: plan.model.clone(),
            declared: plan.declared.clone(),
            limits: plan.limits,
        };
        Ok((host, setup))
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.directory.join(CONTROL)
    }

    /// Makes a link to the socket, so that tools find it by the pid of a front whose job runs. Without one the job runs all the same.
    pub(crate) fn link(&mut self, front: FrontId, session: &Path, pid: Pid) {
        let path = control::path(session, pid);
        let made = os::make_private_dirs(session).is_ok();
        if made && symlink(self.control(), &path).is_ok() {
            self.links.insert(front, path);
        }
    }

    /// Removes the link of a front whose connection is closed.
    pub(crate) fn unlink(&mut self, front: FrontId) {
        if let Some(path) = self.links.remove(&front) {
            let _ = fs::remove_file(path);
        }
    }

    fn order(&self, order: StoreOrder) {
        if let Some((store, _)) = &self.threads {
            store.order(order);
        }
    }

    fn order_file(&self, order: FileOrder) {
        if let Some((_, files)) = &self.threads {
            files.order(order);
        }
    }

    pub(crate) fn store(&self, batch: Batch) {
        self.order(StoreOrder::Write(batch));
    }

    pub(crate) fn fetch(&self, before: JobId, most: u32) {
        self.order(StoreOrder::Fetch { before, most });
    }

    pub(crate) fn open_files(&self, output: Captured, start: CaptureStart) {
        self.order_file(FileOrder::Open(output, start));
    }

    pub(crate) fn append(&self, output: Captured, bytes: Bytes) {
        self.order_file(FileOrder::Append(output, bytes));
    }

    pub(crate) fn close_files(&self, job: JobId) {
        self.order_file(FileOrder::Close(job));
    }

    /// Starts the process that watches a job.
    pub(crate) fn watch(
        &mut self,
        now: Time,
        watch: &JobWatch,
        reactor: &mut Reactor,
    ) -> Result<(), NotWatched> {
        self.watches.begin(now, watch, reactor)
    }

    pub(crate) fn watch_no_longer(&mut self, now: Time, job: JobId) {
        self.watches.end(now, job);
    }

    /// Handles that the process that watches a job has exited.
    pub(crate) fn on_watch_exited(&mut self, now: Time, job: JobId, pid: Pid) {
        self.watches.on_exited(now, job, pid);
    }

    /// Returns when to call [`Self::on_tick`].
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.watches.deadline()
    }

    pub(crate) fn on_tick(&mut self, now: Time) {
        self.watches.on_tick(now);
    }

    /// Returns what the threads have done.
    pub(crate) fn answers(&self) -> Vec<ControllerInput> {
        let Some((store, files)) = &self.threads else {
            return Vec::new();
        };
        let written = files.answers().into_iter().flatten();
        written.chain(store.answers()).collect()
    }
}

impl Drop for MachineHost {
    fn drop(&mut self) {
        // Output of the last jobs may be on its way to their files.
        if let Some((store, files)) = self.threads.take() {
            files.finish_within(FINISH_MAX);
            store.finish_within(FINISH_MAX);
        }
        let _ = fs::remove_file(self.directory.join(CONTROL));
    }
}

/// Locks the file of a machine; `None` if another machine has it.
fn take_lock(path: &Path) -> io::Result<Option<File>> {
    for _ in 1..LOCK_TRIES {
        match os::create_locked(path)? {
            Some(lock) => return Ok(Some(lock)),
            None => os::sleep(LOCK_PAUSE),
        }
    }
    os::create_locked(path)
}

/// Starts the thread of the store.
fn start_store(
    mut store: Store,
) -> Result<(Worker<StoreOrder, ControllerInput>, OwnedFd), os::Error> {
    Worker::start("store", move |order| match order {
        StoreOrder::Write(batch) => {
            let stored = guarded(|| store.write(&batch));
            ControllerInput::Stored(stored.map_err(|error| error.to_string()))
        }
        StoreOrder::Fetch { before, most } => {
            let found = guarded(|| store.past(before, most));
            ControllerInput::Fetched(found.map_err(|error| error.to_string()))
        }
    })
}

/// Starts the thread of the files.
fn start_files() -> Result<(Files, OwnedFd), os::Error> {
    let mut files = JobFiles::default();
    Worker::start("files", move |order| match order {
        FileOrder::Open(output, start) => {
            let opened = files.open(output.root, &start);
            Some(ControllerInput::Captured(output, opened))
        }
        FileOrder::Append(output, bytes) => {
            let written = files.append(output.root, output.stream, &bytes);
            Some(ControllerInput::Captured(output, written))
        }
        FileOrder::Close(job) => {
            files.close(job);
            None
        }
    })
}

/// Calls the store. It panics on some kinds of damage, which must not take the machine down without a word.
fn guarded<T>(act: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let result = panic::catch_unwind(AssertUnwindSafe(act));
    result.unwrap_or_else(|_| Err(StoreError::Damaged("see the log".to_owned())))
}

/// Returns the time of day at [`Time::ZERO`].
pub(crate) fn epoch(now: Time) -> Wall {
    let (seconds, nanos) = os::wall_clock();
    let millis = u64::try_from(seconds).unwrap_or_default() * 1000 + u64::from(nanos) / 1_000_000;
    Wall(millis.saturating_sub(now.as_nanos() / 1_000_000))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files")]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_found_by_its_name_as_in_the_list() {
        let parent = tempfile::tempdir().unwrap();
        let parent = parent.path();
        os::make_private_dirs(&parent.join("state/one")).unwrap();
        let state = parent.join("state");
        for name in ["two", "open"] {
            os::make_private_dirs(&state.join(name)).unwrap();
        }
        fs::write(state.join("one/origin"), "Slurm job 7\n").unwrap();
        let lock = os::create_locked(&state.join("one/lock")).unwrap().unwrap();
        for name in ["two/lock", "open/lock", "lock"] {
            fs::write(state.join(name), "").unwrap();
        }
        symlink(state.join("two"), state.join("link")).unwrap();
        let anybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(state.join("open"), anybody).unwrap();

        let all = machines(&state);
        let names: Vec<&str> = all.iter().map(|machine| machine.name.as_str()).collect();
        assert_eq!(names, ["one", "two"]);
        for machine in &all {
            assert_eq!(machine_named(&state, &machine.name).as_ref(), Some(machine));
        }
        assert_eq!(all[0].life, MachineLife::Runs);
        assert_eq!(all[0].origin, "Slurm job 7");
        for name in [
            "open",
            "link",
            "none",
            "",
            ".",
            "..",
            "../state/one",
            "one/",
        ] {
            assert_eq!(machine_named(&state, name), None, "{name}");
        }
        drop(lock);
        assert_eq!(
            machine_named(&state, "one").unwrap().life,
            MachineLife::Ended
        );
    }
}
