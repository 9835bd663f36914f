//! A file for as long as this process lives, so that the next start finds what was left when everything was killed at
//! once: our descendants, which carry our name in their environment, and the file itself.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use base::Signal;
use os::Pid;

/// The variable that every rank and its descendants carry, with the controller's pid and start time.
pub(crate) const OWNER_VARIABLE: &str = "RALLY_OWNER";

/// How often making the file is tried.
const CREATE_TRIES: u32 = 3;

/// The file of a living controller; removed when dropped.
#[derive(Debug)]
pub(crate) struct Record {
    owner: String,
    path: Option<PathBuf>,
}

impl Record {
    /// Makes the file. Without a directory for it (a full disk, somebody else's directory) the job runs without one.
    pub(crate) fn create() -> Self {
        let pid = os::current_pid();
        let start = os::start_time(pid).unwrap_or_default();
        let owner = format!("{}.{start}", pid.as_raw());
        // Whoever ends last removes the directory, perhaps between our two steps: then it is made again.
        let path = (0..CREATE_TRIES).find_map(|_| create_file(&owner));
        Self { owner, path }
    }

    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            remove(path);
        }
    }
}

fn create_file(owner: &str) -> Option<PathBuf> {
    let directory = directory()?;
    let path = directory.join(owner);
    let made = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    match made {
        Ok(_) => Some(path),
        Err(_) => {
            let _ = fs::remove_dir(directory);
            None
        }
    }
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
        let Some(owner) = name.to_str() else { continue };
        let Some((pid, start)) = owner.split_once('.') else {
            continue;
        };
        let (Ok(pid), Ok(start)) = (pid.parse::<i32>(), start.parse::<u64>()) else {
            continue;
        };
        // A killed one that nobody has waited for is dead as well.
        let lives = os::inspect(Pid::from_raw(pid))
            .is_some_and(|info| info.start_time == start && info.state != 'Z');
        if lives {
            continue;
        }
        end_descendants(owner);
        remove(&entry.path());
    }
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
