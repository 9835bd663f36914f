//! The record: a file that exists as long as this process lives. If all processes of a job are killed together, the next
//! start uses it to find and kill our descendants: their environment contains the record's name. It removes the file too.
//!
//! The controller holds a lock on its file. The lock shows that it is alive, even to processes in other pid namespaces that
//! share the directory but cannot see the controller. The kernel drops the lock when the process exits, whether or not it
//! has been reaped.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Write as _,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use base::{Signal, Time, Topology};
use dvm::proto::Missing;
use os::{Abandoned, Clock};

use super::{
    control::NAME,
    limits,
    place::{Places, Surroundings, Unusable},
    preload, rendezvous, slurm,
};

/// The variable that every rank and its descendants carry, with the controller's pid and start time.
pub(crate) const OWNER_VARIABLE: &str = "RALLY_OWNER";

/// Directory of the memory that MPI libraries share between the ranks of a node.
const SHARED_MEMORY: &str = "/dev/shm";
/// Prefixes of the names of such memory. A killed rank cannot remove it, and other launchers often do not either.
const LIBRARIES: &[&str] = &[
    // Open MPI 4 and 5.
    "vader_segment.",
    "sm_segment.",
    // MPICH 5, and MPICH 4 during its start.
    "mpich_shm_",
    "mpich_shar_tmp",
    // UCX and NCCL.
    "ucx_shm_posix_",
    "nccl-",
];
/// EBUSY: reported for a file that is removed again each time before it is locked.
const EBUSY: i32 = 16;
/// How often making the file is tried.
const CREATE_TRIES: u32 = 200;
/// Pause between two tries. Another start may take our file for a stale one before we have locked it. It needs time to look
/// at every process before it removes the file. All tries together take one second.
const CREATE_PAUSE: Duration = Duration::from_millis(5);

/// How long to wait for killed processes to disappear. A process has its memory until it is gone, which takes longer on a
/// busy node. If that is not enough, the next start removes the rest.
const ENDING_MAX: Duration = Duration::from_millis(500);
/// Pause between two looks at all processes.
const ENDING_PAUSE: Duration = Duration::from_millis(5);

/// Whether processes or shared memory of a job remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remaining {
    Nothing,
    /// Some process or memory is still disappearing, or cannot be removed.
    Something,
}

/// The file of a living controller; removed on drop.
#[derive(Debug)]
pub(crate) struct Record {
    owner: String,
    file: Option<(PathBuf, File)>,
}

impl Record {
    /// Makes the file. If no directory for it is usable (full disk, directories of other users), the job runs without one:
    /// no command finds the job, and no later start kills what it leaves. The second value says what is missing, and why,
    /// for a report to the user.
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
                    // A start that still takes the file for stale searches for processes marked with its name. Our ranks
                    // must not match.
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

    /// Notes a directory elsewhere, so that it is removed if this process is killed.
    pub(crate) fn note(&self, directory: &Path) {
        if let Some((_, mut file)) = self.file.as_ref().map(|(path, file)| (path, file)) {
            // Without the note, the directory stays then.
            let _ = file.write_all(directory.as_os_str().as_bytes());
        }
    }

    /// Returns the directory for files of the ranks. It is made when a rank first needs it, and removed with the record.
    pub(crate) fn session(&self) -> Option<PathBuf> {
        self.file.as_ref().map(|(path, _)| session(path))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // All ranks are gone by now. The lock is held until the file is removed.
        if let Some((path, file)) = &self.file {
            let remaining = retry_until(Clock::now() + ENDING_MAX, || remove_leftovers(file));
            remove_session(path);
            if remaining == Remaining::Nothing {
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
            // The record that ends last removes the directory, which may happen between `make` and `create_locked`.
            Ok(None) => os::sleep(CREATE_PAUSE),
            Err(error) => {
                // Give up without making the directory again, and remove it if it is empty.
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

/// Returns the directory beside a record. Its parent is private, so its name need not be secret.
fn session(record: &Path) -> PathBuf {
    record.with_added_extension("d")
}

/// Removes the directory beside a record, and the files elsewhere to which it leads.
fn remove_session(record: &Path) {
    let session = session(record);
    preload::remove_linked(&session);
    os::remove_files(&[session]);
}

fn remove(path: &Path) {
    let _ = fs::remove_file(path);
    // This fails unless the directory is empty.
    if let Some(directory) = path.parent() {
        let _ = fs::remove_dir(directory);
    }
}

/// Kills the processes that controllers left when they died without cleaning up, and removes their files.
pub fn sweep_stale(surroundings: &Surroundings) {
    // A start waits this long at most, whatever the number of records.
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
            // A living controller holds the lock. A controller that is making its file waits until we are done with it.
            let Some(lock) = os::take_lock(&path) else {
                continue;
            };
            let remaining = retry_until(until, || match end_descendants(owner) {
                Remaining::Nothing if limits::remove_of(Path::new("/"), owner) => {
                    remove_leftovers(&lock)
                }
                Remaining::Nothing => Remaining::Something,
                Remaining::Something => Remaining::Something,
            });
            if remaining == Remaining::Nothing {
                let session = session(&path);
                if let Some(environment) = surroundings.for_slurm {
                    slurm::cancel_left(&session, environment);
                }
                remove_session(&path);
                if let Ok((noted, _)) = os::read_owned(&path) {
                    rendezvous::remove_left(Path::new(OsStr::from_bytes(&noted)));
                }
                remove(&path);
            }
        }
    }
}

/// Removes directories for records that are empty: a controller or daemon may have died between making the directory and its record.
/// One that is about to make its record makes the directory again.
pub(crate) fn remove_empty_places(surroundings: &Surroundings) {
    for directory in Places::of(surroundings).likely() {
        let _ = fs::remove_dir(directory);
    }
}

/// Returns the topology of this node, and whether other jobs of our user run here, according to their records. A job makes
/// its record before it looks for others, so of two jobs that start simultaneously at least one sees the other.
pub fn topology(surroundings: &Surroundings) -> Result<Topology, os::Error> {
    let topology = os::read_topology(Path::new("/"))?;
    Ok(if has_neighbours(surroundings) {
        topology.with_neighbours()
    } else {
        topology
    })
}

/// Returns true if a controller lives that is neither this process nor a descendant of it.
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

/// Returns the control sockets of our user's running jobs, each with the pids of the job's controller and front.
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

/// Calls `remove` until nothing remains or `until` has passed, but at least once.
fn retry_until(until: Time, remove: impl Fn() -> Remaining) -> Remaining {
    loop {
        let remaining = remove();
        if remaining == Remaining::Nothing || Clock::now() >= until {
            return remaining;
        }
        os::sleep(ENDING_PAUSE);
    }
}

/// Removes shared memory that was made after the record and that no process has open or mapped.
fn remove_leftovers(record: &File) -> Remaining {
    let made = record.metadata().and_then(|record| record.modified());
    match made {
        Ok(made) => remove_abandoned(made, |_| true),
        Err(_) => Remaining::Nothing,
    }
}

/// Removes shared memory that no process has open or mapped, was made at `since` or later, and satisfies `is_meant`.
fn remove_abandoned(since: SystemTime, is_meant: impl Fn(&Path) -> bool) -> Remaining {
    match os::abandoned_files(Path::new(SHARED_MEMORY), LIBRARIES, since) {
        Abandoned::Files(mut left) => {
            left.retain(|path| is_meant(path));
            os::remove_files(&left);
            Remaining::Nothing
        }
        Abandoned::NotYet => Remaining::Something,
    }
}

/// Shared memory of a program that is no rank of ours, but that we end.
#[derive(Debug)]
pub struct SharedMemory(Vec<PathBuf>);

impl SharedMemory {
    /// Returns the shared memory that a living program has open or mapped.
    pub fn of(program: os::Pid) -> Self {
        Self(os::files_held_by(
            program,
            Path::new(SHARED_MEMORY),
            LIBRARIES,
        ))
    }

    /// Removes the part of that memory that no process has open or mapped any more.
    pub fn remove_abandoned(self) {
        if self.0.is_empty() {
            return;
        }
        let is_its = |path: &Path| self.0.iter().any(|one| one == path);
        retry_until(Clock::now() + ENDING_MAX, || {
            remove_abandoned(SystemTime::UNIX_EPOCH, is_its)
        });
    }
}

/// Returns true if `name` is that of a record: a pid and a start time.
fn is_owner(name: &str) -> bool {
    name.split_once('.')
        .is_some_and(|(pid, start)| pid.parse::<i32>().is_ok() && start.parse::<u64>().is_ok())
}

/// Kills every process that has `owner` in its environment. A zombie has no environment any more, so it does not count.
fn end_descendants(owner: &str) -> Remaining {
    let mark = format!("{OWNER_VARIABLE}={owner}");
    let mut remaining = Remaining::Nothing;
    for pid in os::all_processes() {
        let marked = os::environment_of(pid).is_some_and(|environment| {
            environment
                .split(|byte| *byte == 0)
                .any(|entry| entry == mark.as_bytes())
        });
        if marked {
            remaining = Remaining::Something;
            // An error means that the process has ended meanwhile.
            let _ = os::kill(pid, Signal::KILL);
        }
    }
    remaining
}
