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
//! A thread of its own ([`os::Worker`]) reads and writes the store and the files, because both may block.

mod files;
mod store;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use base::Time;
use bytes::Bytes;
use dvm::{
    Captured, ControllerInput,
    machine::{Batch, Setup, Wall},
    proto::FrontId,
};
use os::{Clock, Interest, Pid, Worker};
use serde::{Deserialize, Serialize};

use self::{
    files::Files,
    store::{Store, StoreError},
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachinePlan {
    pub name: String,
    /// Its directory.
    pub directory: PathBuf,
    /// The allocation of a resource manager in which it runs; empty if there is none.
    pub origin: String,
}

/// Why a machine cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MachineError {
    #[error("the machine `{0}` runs already")]
    Running(String),
    #[error("cannot use `{path}`: {why}", path = .0.display(), why = .1)]
    Directory(PathBuf, io::Error),
    #[error(transparent)]
    Os(#[from] os::Error),
    #[error("cannot use the store `{path}`: {why}", path = .0.display(), why = .1)]
    Store(PathBuf, StoreError),
}

/// A machine on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundMachine {
    pub name: String,
    pub directory: PathBuf,
    pub origin: String,
    pub life: MachineLife,
}

/// Whether a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineLife {
    Runs,
    /// It has ended, and has left a queue or a history.
    Ended,
}

impl FoundMachine {
    /// Returns true if it runs now.
    #[must_use]
    pub fn runs(&self) -> bool {
        os::is_locked(&self.directory.join(LOCK))
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
    let found = entries.filter_map(|entry| {
        let directory = entry.ok()?.path();
        let name = directory.file_name()?.to_str()?.to_owned();
        let lock = directory.join(LOCK);
        if !lock.is_file() {
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
            directory,
            life,
        })
    });
    let mut found: Vec<FoundMachine> = found.collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// Order for the thread.
#[derive(Debug)]
enum Order {
    Store(Batch),
    Fetch {
        before: base::JobId,
        most: u32,
    },
    Append {
        path: PathBuf,
        output: Captured,
        bytes: Bytes,
    },
}

/// The machine's part of a controller's host.
#[derive(Debug)]
pub(crate) struct MachineHost {
    /// `None` while it is dropped.
    worker: Option<Worker<Order, ControllerInput>>,
    /// Locked as long as the machine lives.
    _lock: File,
    directory: PathBuf,
    /// Links to the socket, under the names at which tools find the jobs of these fronts.
    links: BTreeMap<FrontId, PathBuf>,
}

impl MachineHost {
    /// Takes the directory of a machine. Returns also what the controller has to know, with the names of its nodes.
    pub(crate) fn open(
        plan: &MachinePlan,
        nodes: Vec<String>,
        reactor: &mut Reactor,
    ) -> Result<(Self, Setup), MachineError> {
        let directory = &plan.directory;
        os::make_private_dirs(directory)?;
        let lock = take_lock(&directory.join(LOCK))
            .map_err(|error| MachineError::Directory(directory.clone(), error))?
            .ok_or_else(|| MachineError::Running(plan.name.clone()))?;
        // We have the lock, so no other machine uses these.
        let _ = fs::remove_file(directory.join(CONTROL));
        os::write_private_file(directory, ORIGIN.as_ref(), plan.origin.as_bytes())?;
        let failed = |error| MachineError::Store(directory.clone(), error);
        let (store, stored) = Store::open(directory).map_err(failed)?;
        let (worker, watched) = start(store)?;
        reactor.add(watched, Interest::Read, Source::Machine)?;
        let host = Self {
            worker: Some(worker),
            _lock: lock,
            directory: directory.clone(),
            links: BTreeMap::new(),
        };
        let setup = Setup {
            name: plan.name.clone(),
            epoch: epoch(Clock::now()),
            nodes,
            stored,
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

    fn order(&self, order: Order) {
        if let Some(worker) = &self.worker {
            worker.order(order);
        }
    }

    pub(crate) fn store(&self, batch: Batch) {
        self.order(Order::Store(batch));
    }

    pub(crate) fn fetch(&self, before: base::JobId, most: u32) {
        self.order(Order::Fetch { before, most });
    }

    pub(crate) fn append(&self, path: PathBuf, output: Captured, bytes: Bytes) {
        self.order(Order::Append {
            path,
            output,
            bytes,
        });
    }

    /// Returns what the thread has done.
    pub(crate) fn answers(&self) -> Vec<ControllerInput> {
        let worker = self.worker.as_ref();
        worker.map_or_else(Vec::new, |worker| worker.answers().into())
    }
}

impl Drop for MachineHost {
    fn drop(&mut self) {
        // Output of the last jobs may be on its way to their files.
        if let Some(worker) = self.worker.take() {
            worker.finish();
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

/// Starts the thread.
fn start(
    mut store: Store,
) -> Result<(Worker<Order, ControllerInput>, std::os::fd::OwnedFd), os::Error> {
    let mut files = Files::default();
    Worker::start("machine", move |order| match order {
        Order::Store(batch) => {
            let stored = store.write(&batch);
            ControllerInput::Stored(stored.map_err(|error| error.to_string()))
        }
        Order::Fetch { before, most } => {
            let found = store.past(before, most);
            ControllerInput::Fetched(found.map_err(|error| error.to_string()))
        }
        Order::Append {
            path,
            output,
            bytes,
        } => {
            let written = files.append(&path, &bytes);
            ControllerInput::Captured(output, written.map_err(|error| error.to_string()))
        }
    })
}

/// Returns the time of day at [`Time::ZERO`].
fn epoch(now: Time) -> Wall {
    let (seconds, nanos) = os::wall_clock();
    let millis = u64::try_from(seconds).unwrap_or_default() * 1000 + u64::from(nanos) / 1_000_000;
    Wall(millis.saturating_sub(now.as_nanos() / 1_000_000))
}
