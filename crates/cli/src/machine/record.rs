//! A file for as long as this process lives, so that the next start finds what was left when everything was killed at
//! once: our descendants, which carry our name in their environment, and the file itself.
//!
//! Its controller holds a lock on the file. That says who lives, also to those in other pid namespaces who share the
//! directory but cannot see the process; and it ends with the process, whether or not somebody has waited for it.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use base::Signal;

use super::control::NAME;

/// The variable that every rank and its descendants carry, with the controller's pid and start time.
pub(crate) const OWNER_VARIABLE: &str = "RALLY_OWNER";

/// How often making the file is tried.
const CREATE_TRIES: u32 = 200;
/// How long somebody who takes the file for a stale one, between our making it and locking it, is given to remove it:
/// that takes a look at every process. All tries together are one second.
const CREATE_PAUSE: Duration = Duration::from_millis(5);

/// The file of a living controller; removed when dropped.
#[derive(Debug)]
pub(crate) struct Record {
    owner: String,
    file: Option<(PathBuf, File)>,
}

/// What one try to make the file came to.
#[derive(Debug)]
enum Made {
    Locked(PathBuf, File),
    /// Somebody removes the file or its directory at this moment.
    Removed,
    Impossible,
}

impl Record {
    /// Makes the file. Without a directory for it (a full disk, somebody else's directory) the job runs without one.
    pub(crate) fn create() -> Self {
        let pid = os::current_pid();
        let start = os::start_time(pid).unwrap_or_default();
        let owner = format!("{}.{start}", pid.as_raw());
        for _ in 0..CREATE_TRIES {
            match create_file(&owner) {
                Made::Locked(path, file) => {
                    return Self {
                        owner,
                        file: Some((path, file)),
                    };
                }
                Made::Removed => thread::park_timeout(CREATE_PAUSE),
                Made::Impossible => break,
            }
        }
        // Whoever still thinks that the file is stale will look for its name, and must not find our ranks.
        Self {
            owner: format!("{owner}.unrecorded"),
            file: None,
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
        // The lock is held until the file is gone.
        if let Some((path, _)) = &self.file {
            os::remove_files(&[session(path)]);
            remove(path);
        }
    }
}

fn create_file(owner: &str) -> Made {
    let Some(directory) = directory() else {
        return Made::Impossible;
    };
    let path = directory.join(owner);
    // The standard library opens every file close-on-exec: a rank must not hold the lock.
    let opened = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path);
    match opened {
        Ok(file) => match file.try_lock() {
            Ok(()) if is_at(&file, &path) => Made::Locked(path, file),
            Ok(()) | Err(TryLockError::WouldBlock) => Made::Removed,
            // A file system without locks: nobody could know that we live.
            Err(TryLockError::Error(_)) => {
                remove(&path);
                Made::Impossible
            }
        },
        // Whoever ends last removes the directory, perhaps between our two steps.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Made::Removed,
        Err(_) => {
            let _ = fs::remove_dir(directory);
            Made::Impossible
        }
    }
}

/// Whether `path` still leads to `file`, which may have been removed, and replaced, before it was locked.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(file), Ok(path)) => identity(file) == identity(path),
        _ => false,
    }
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

/// In memory where that is possible: the file is of no use after a restart, and a disk may be slow or full.
fn location() -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    if let Some(path) =
        variable("XDG_RUNTIME_DIR").filter(|path| path.is_absolute() && path.is_dir())
    {
        return path.join("rally");
    }
    let shared = PathBuf::from("/dev/shm");
    let parent = if shared.is_dir() {
        shared
    } else {
        variable("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"))
    };
    parent.join(format!("rally-{}", os::effective_uid()))
}

/// Our private directory, made where it is missing; `None` when it cannot be had or is not private.
fn directory() -> Option<PathBuf> {
    let path = location();
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => return Some(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(_) => return None,
    }
    is_private(&path).then_some(path)
}

fn is_private(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| {
        metadata.is_dir() && metadata.uid() == os::effective_uid() && metadata.mode() & 0o077 == 0
    })
}

/// Ends what controllers that died without a word have left behind, and removes their files.
pub(crate) fn sweep_stale() {
    let path = location();
    let Ok(entries) = fs::read_dir(&path) else {
        return;
    };
    if !is_private(&path) {
        return;
    }
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(owner) = name.to_str().filter(|name| is_owner(name)) else {
            continue;
        };
        let path = entry.path();
        // A living controller has the lock, and one that makes its file waits until we are done with it.
        let Some(_lock) = lock_stale(&path) else {
            continue;
        };
        end_descendants(owner);
        os::remove_files(&[session(&path)]);
        remove(&path);
    }
}

/// The sockets of our user's running jobs at which they can be asked, with the pids of their controller and front.
pub(crate) fn controls() -> Vec<(i32, i32, PathBuf)> {
    let path = location();
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    if !is_private(&path) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for session in entries(&path) {
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

/// Whether a file has the name of a record: a pid and a start time.
fn is_owner(name: &str) -> bool {
    name.split_once('.')
        .is_some_and(|(pid, start)| pid.parse::<i32>().is_ok() && start.parse::<u64>().is_ok())
}

/// The locked file at `path`, `None` when somebody else has the lock, or has removed it meanwhile.
fn lock_stale(path: &Path) -> Option<File> {
    let file = File::options().write(true).open(path).ok()?;
    file.try_lock().ok()?;
    is_at(&file, path).then_some(file)
}

/// Kills every process that carries `owner` in its environment.
fn end_descendants(owner: &str) {
    let mark = format!("{OWNER_VARIABLE}={owner}");
    for pid in os::all_processes() {
        let marked = os::environment_of(pid).is_some_and(|environment| {
            environment
                .split(|byte| *byte == 0)
                .any(|entry| entry == mark.as_bytes())
        });
        if marked {
            // It may have ended meanwhile; that is what we want.
            let _ = os::kill(pid, Signal::KILL);
        }
    }
}
