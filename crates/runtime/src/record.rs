//! A file for as long as this process lives, so that the next start finds what was left when everything was killed at
//! once: our descendants, which carry our name in their environment, and the file itself.
//!
//! Its controller holds a lock on the file. That says who lives, also to those in other pid namespaces who share the
//! directory but cannot see the process; and it ends with the process, whether or not somebody has waited for it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use base::{Signal, Time, Topology};
use dvm::proto::Missing;
use os::{Abandoned, Clock};

use super::{
    control::NAME,
    place::{Places, Surroundings, Unusable},
};

/// The variable that every rank and its descendants carry, with the controller's pid and start time.
pub(crate) const OWNER_VARIABLE: &str = "RALLY_OWNER";

/// Where libraries share memory between the ranks of a node.
const SHARED_MEMORY: &str = "/dev/shm";
/// What they call it. A rank that is killed cannot remove it, and whoever has started it before us often does not.
const LIBRARIES: &[&str] = &[
    // Open MPI 4 and 5.
    "vader_segment.",
    "sm_segment.",
    // MPICH 5, and while it starts MPICH 4.
    "mpich_shm_",
    "mpich_shar_tmp",
    // UCX and NCCL.
    "ucx_shm_posix_",
    "nccl-",
];
/// What a file that is always just being removed counts as.
const EBUSY: i32 = 16;
/// How often making the file is tried.
const CREATE_TRIES: u32 = 200;
/// How long somebody who takes the file for a stale one, between our making it and locking it, is given to remove it:
/// that takes a look at every process. All tries together are one second.
const CREATE_PAUSE: Duration = Duration::from_millis(5);

/// How long what is ending is waited for. A process that is killed has its memory until it is gone, which takes as long as
/// the node is busy. What takes longer is left to the next start.
const ENDING_MAX: Duration = Duration::from_millis(500);
/// From one look at all processes to the next.
const ENDING_PAUSE: Duration = Duration::from_millis(5);

/// Whether all is gone that a job has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    /// Something is ending, or cannot be ended.
    Something,
}

/// The file of a living controller; removed when dropped.
#[derive(Debug)]
pub(crate) struct Record {
    owner: String,
    file: Option<(PathBuf, File)>,
}

impl Record {
    /// Makes the file. Without a directory for it (a full disk, somebody else's directories) the job runs without one: nobody
    /// finds it, and nobody ends what it leaves. The controller tells what is missing, and why.
    pub(crate) fn create(surroundings: &Surroundings) -> (Self, Option<(Missing, String)>) {
        let pid = os::current_pid();
        let start = os::start_time(pid).unwrap_or_default();
        let owner = format!("{}.{start}", pid.as_raw());
        let (file, passed) = Places::of(surroundings).first(|make| create_file(&owner, make));
        match file {
            Some(file) => {
                let odd = passed.iter().find(|why| why.is_odd());
                let missing = odd.map(|why| {
                    let used = file.0.parent().unwrap_or(&file.0).display();
                    (Missing::Place, format!("{why}; `{used}` is used"))
                });
                let file = Some(file);
                (Self { owner, file }, missing)
            }
            None => {
                let whys: Vec<String> = passed.iter().map(ToString::to_string).collect();
                let record = Self {
                    // Whoever still thinks that the file is stale will look for its name, and must not find our ranks.
                    owner: format!("{owner}.unrecorded"),
                    file: None,
                };
                (record, Some((Missing::Record, whys.join("; "))))
            }
        }
    }

    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// A directory for files of the ranks, which is made when the first of them asks for it. It goes when we go.
    pub(crate) fn session(&self) -> Option<PathBuf> {
        self.file.as_ref().map(|(path, _)| session(path))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // The lock is held until the file is gone. All ranks are gone by now.
        if let Some((path, file)) = &self.file {
            let left = wait_until(Clock::now() + ENDING_MAX, || remove_leftovers(file));
            os::remove_files(&[session(path)]);
            if left == Left::Nothing {
                remove(path);
            }
        }
    }
}

fn create_file(
    owner: &str,
    make: &dyn Fn() -> Result<PathBuf, Unusable>,
) -> Result<(PathBuf, File), Unusable> {
    let mut path = make()?.join(owner);
    for _ in 0..CREATE_TRIES {
        match os::create_locked(&path) {
            Ok(Some(file)) => return Ok((path, file)),
            // Whoever ends last removes the directory, perhaps between our two steps.
            Ok(None) => os::sleep(CREATE_PAUSE),
            Err(error) => {
                // The directory must not be made once more.
                if let Some(directory) = path.parent() {
                    let _ = fs::remove_dir(directory);
                }
                let errno = error.raw_os_error().unwrap_or_default();
                return Err(Unusable::System { path, errno });
            }
        }
        path = make()?.join(owner);
    }
    let errno = EBUSY;
    Err(Unusable::System { path, errno })
}

/// The directory beside a record. Its parent is private, so that its name need not be a secret.
fn session(record: &Path) -> PathBuf {
    record.with_added_extension("d")
}

fn remove(path: &Path) {
    let _ = fs::remove_file(path);
    // Succeeds for the last one only.
    if let Some(directory) = path.parent() {
        let _ = fs::remove_dir(directory);
    }
}

/// Ends what controllers that died without a word have left behind, and removes their files.
pub fn sweep_stale(surroundings: &Surroundings) {
    // However many records there are, a start waits no longer.
    let until = Clock::now() + ENDING_MAX;
    for directory in Places::of(surroundings).likely() {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(owner) = name.to_str().filter(|name| is_owner(name)) else {
                continue;
            };
            let path = entry.path();
            // A living controller has the lock, and one that makes its file waits until we are done with it.
            let Some(lock) = os::take_lock(&path) else {
                continue;
            };
            let left = wait_until(until, || match end_descendants(owner) {
                Left::Nothing => remove_leftovers(&lock),
                Left::Something => Left::Something,
            });
            if left == Left::Nothing {
                os::remove_files(&[session(&path)]);
                remove(&path);
            }
        }
    }
}

/// The topology of this node, with what our records say about it: whether other jobs of our user run here. A job makes its
/// record before it looks at those of others, so that of two that start at once at least one knows of the other.
pub fn topology(surroundings: &Surroundings) -> Result<Topology, os::Error> {
    let topology = os::read_topology(Path::new("/"))?;
    Ok(if has_neighbours(surroundings) {
        topology.with_neighbours()
    } else {
        topology
    })
}

/// Whether a controller lives that is neither this process nor one of its descendants.
fn has_neighbours(surroundings: &Surroundings) -> bool {
    let directories = Places::of(surroundings).likely();
    let entries = directories
        .iter()
        .filter_map(|path| fs::read_dir(path).ok());
    let mut others = entries.flatten().flatten().filter(|entry| {
        let name = entry.file_name();
        let Some(owner) = name.to_str().filter(|name| is_owner(name)) else {
            return false;
        };
        let pid = owner.split_once('.').and_then(|(pid, _)| pid.parse().ok());
        pid.map(os::Pid::from_raw).is_some_and(|pid| {
            let us = os::current_pid();
            pid != us && !os::descendants(us).contains(&pid)
        })
    });
    others.any(|entry| os::is_locked(&entry.path()))
}

/// The sockets of our user's running jobs at which they can be asked, with the pids of their controller and front.
pub fn controls(surroundings: &Surroundings) -> Vec<(i32, i32, PathBuf)> {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let mut found = Vec::new();
    let places = Places::of(surroundings);
    for session in places.all().iter().flat_map(|path| entries(path)) {
        let name = session.file_name();
        let owner = name.to_str().and_then(|name| name.strip_suffix(".d"));
        let controller = owner.and_then(|owner| owner.split_once('.')?.0.parse().ok());
        let Some(controller) = controller else {
            continue;
        };
        for socket in entries(&session.path()) {
            let name = socket.file_name();
            let front = name.to_str().and_then(|name| name.strip_prefix(NAME));
            if let Some(front) = front.and_then(|front| front.parse().ok()) {
                found.push((controller, front, socket.path()));
            }
        }
    }
    found.sort();
    found
}

/// Tries to remove something until nothing of it is left, or until then; once in any case.
fn wait_until(until: Time, remove: impl Fn() -> Left) -> Left {
    loop {
        let left = remove();
        if left == Left::Nothing || Clock::now() >= until {
            return left;
        }
        os::sleep(ENDING_PAUSE);
    }
}

/// Removes the shared memory that was made since the record was, and that nobody has.
fn remove_leftovers(record: &File) -> Left {
    let made = record.metadata().and_then(|record| record.modified());
    match made {
        Ok(made) => remove_abandoned(made, |_| true),
        Err(_) => Left::Nothing,
    }
}

/// Removes shared memory that nobody has: what was made since then, and is meant.
fn remove_abandoned(since: SystemTime, is_meant: impl Fn(&Path) -> bool) -> Left {
    match os::abandoned_files(Path::new(SHARED_MEMORY), LIBRARIES, since) {
        Abandoned::Files(mut left) => {
            left.retain(|path| is_meant(path));
            os::remove_files(&left);
            Left::Nothing
        }
        Abandoned::NotYet => Left::Something,
    }
}

/// The shared memory of a program that is no rank of ours, but that we end.
#[derive(Debug)]
pub struct SharedMemory(Vec<PathBuf>);

impl SharedMemory {
    /// What a living program has.
    pub fn of(program: os::Pid) -> Self {
        Self(os::files_held_by(
            program,
            Path::new(SHARED_MEMORY),
            LIBRARIES,
        ))
    }

    /// Removes what nobody has any more.
    pub fn remove_abandoned(self) {
        if self.0.is_empty() {
            return;
        }
        let is_its = |path: &Path| self.0.iter().any(|one| one == path);
        wait_until(Clock::now() + ENDING_MAX, || {
            remove_abandoned(SystemTime::UNIX_EPOCH, is_its)
        });
    }
}

/// Whether a file has the name of a record: a pid and a start time.
fn is_owner(name: &str) -> bool {
    name.split_once('.')
        .is_some_and(|(pid, start)| pid.parse::<i32>().is_ok() && start.parse::<u64>().is_ok())
}

/// Kills every process that carries `owner` in its environment. One that has ended carries nothing.
fn end_descendants(owner: &str) -> Left {
    let mark = format!("{OWNER_VARIABLE}={owner}");
    let mut left = Left::Nothing;
    for pid in os::all_processes() {
        let marked = os::environment_of(pid).is_some_and(|environment| {
            environment
                .split(|byte| *byte == 0)
                .any(|entry| entry == mark.as_bytes())
        });
        if marked {
            left = Left::Something;
            // It may have ended meanwhile; that is what we want.
            let _ = os::kill(pid, Signal::KILL);
        }
    }
    left
}
