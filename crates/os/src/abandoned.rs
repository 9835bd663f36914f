//! Abandoned files: left by dead processes, and not open or mapped in any process.
//!
//! Linux 5.3 and newer grant a write lease exactly if no other process has the file open or mapped, whoever that is (fcntl(2)). An
//! older kernel may refuse it on a file system in memory. Then `/proc` decides, if we may inspect every process of our user. That is
//! often not so: a session of sshd, or ssh-agent, may not be inspected by its own user.

use std::{
    collections::BTreeSet,
    fs::{self, Metadata, OpenOptions},
    io::ErrorKind,
    os::{
        fd::AsRawFd as _,
        unix::fs::{MetadataExt, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    time::SystemTime,
};

use nix::{
    errno::Errno,
    sys::stat::{major, minor},
};

use crate::{
    namespace::{is_nested, sees_own_processes},
    permission::kernel_release,
    process::{Pid, all_processes, effective_uid},
};

/// The identity of a file whatever its name: major and minor device number as the kernel prints them, and inode.
type Identity = (u64, u64, u64);

/// Result of a search for abandoned files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// Exactly these files are abandoned.
    Files(Vec<PathBuf>),
    /// A process that holds some of the files is exiting: search again later.
    NotYet,
}

/// Returns the files in `directory` that are ours and that no process has open or mapped. Their names begin with one of
/// `prefixes`, and they were made at `since` or later.
///
/// Leaves out files of which that cannot be known, because `/proc` does not show all processes (we are in a nested pid namespace),
/// or because the kernel has no exact leases and a process of our user cannot be inspected (it is not dumpable, or is in another
/// user namespace).
#[must_use]
pub fn abandoned_files(directory: &Path, prefixes: &[&str], since: SystemTime) -> Abandoned {
    let user = effective_uid();
    let mut free = Vec::new();
    let mut others = Vec::new();
    let are_exact = leases_are_exact();
    for (path, metadata) in ours(directory, prefixes, user) {
        if made(&metadata).is_none_or(|made| made < since) {
            continue;
        }
        match lease_on(&path) {
            Lease::Granted => free.push(path),
            lease => others.push(Candidate {
                path,
                identity: identity(&metadata),
                is_held: lease == Lease::Refused && are_exact,
            }),
        }
    }
    let hidden = without_holders(&mut others, user);
    for file in others {
        match hidden.fate_of(&file) {
            Fate::Abandoned => free.push(file.path),
            // The free ones are found again.
            Fate::NotYet => return Abandoned::NotYet,
            Fate::Unknown => {}
        }
    }
    Abandoned::Files(free)
}

/// A file that may be abandoned.
struct Candidate {
    path: PathBuf,
    identity: Identity,
    /// The kernel says that some process has it open or mapped.
    is_held: bool,
}

/// Who may hold a file although `/proc` does not show it. Of several, the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hidden {
    Nobody,
    /// A living process that we may not inspect. One of its user ids is ours, so it may have files that other users may not open.
    Stranger,
    /// Processes of other pid namespaces.
    Namespace,
    /// A process that is exiting: its memory is released, or its first thread has exited. Meanwhile only root may inspect it.
    Exiting,
}

/// What can be said of a file that no process holds as far as `/proc` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Abandoned,
    NotYet,
    Unknown,
}

/// Returns true if the kernel refuses a lease only if a process has the file open or mapped (since Linux 5.3).
fn leases_are_exact() -> bool {
    let release = kernel_release().unwrap_or_default();
    let mut numbers = release
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(5), Some(3))
}

/// fcntl(2) command for the signal of a lease or of asynchronous I/O (Linux's `fcntl.h`, the same for all architectures).
const F_SETSIG: i32 = 10;

/// What the kernel says to a request for a write lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lease {
    /// No process has the file open or mapped.
    Granted,
    /// Some process has.
    Refused,
    /// There are no leases: the administrator has switched them off, or the file system has none. Or the file cannot be opened.
    Unknown,
}

#[expect(unsafe_code, reason = "no crate has these commands of fcntl(2)")]
fn lease_on(path: &Path) -> Lease {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match opened {
        Ok(file) => file,
        // Another process has a lease, because it searches too.
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Lease::Refused,
        Err(_) => return Lease::Unknown,
    };
    // The kernel sends a signal if somebody opens the file before the lease ends with `file`. SIGURG is ignored; SIGIO, which is
    // the default, would end this process.
    let commands = [(F_SETSIG, libc::SIGURG), (libc::F_SETLEASE, libc::F_WRLCK)];
    for (command, argument) in commands {
        // SAFETY: the descriptor is open, and these commands take an integer.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
        if result != 0 {
            return match Errno::last() {
                Errno::EAGAIN => Lease::Refused,
                _ => Lease::Unknown,
            };
        }
    }
    Lease::Granted
}

/// Removes from `files` those that a process has open or mapped according to `/proc`. Returns who may hold the remaining ones.
fn without_holders(files: &mut Vec<Candidate>, user: u32) -> Hidden {
    let mut hidden = if is_nested() || !sees_own_processes() {
        Hidden::Namespace
    } else {
        Hidden::Nobody
    };
    for pid in all_processes() {
        if files.is_empty() {
            break;
        }
        let may_hold = match held_by(pid) {
            Held::Known(held) => {
                files.retain(|file| !held.contains(&file.identity));
                Hidden::Nobody
            }
            Held::Until(open) if files.iter().any(|file| open.contains(&file.identity)) => {
                Hidden::Exiting
            }
            Held::Until(_) => Hidden::Nobody,
            Held::Unknown => Hidden::of(pid, user),
        };
        hidden = hidden.max(may_hold);
    }
    hidden
}

/// Returns the files in `directory` that are ours, whose names begin with one of `prefixes`, and that `pid` has open or
/// mapped.
#[must_use]
pub fn files_held_by(pid: Pid, directory: &Path, prefixes: &[&str]) -> Vec<PathBuf> {
    let (Held::Known(held) | Held::Until(held)) = held_by(pid) else {
        return Vec::new();
    };
    ours(directory, prefixes, effective_uid())
        .filter(|(_, metadata)| held.contains(&identity(metadata)))
        .map(|(path, _)| path)
        .collect()
}

/// Returns the files of `user` in a directory whose names begin with one of `prefixes`.
fn ours(
    directory: &Path,
    prefixes: &[&str],
    user: u32,
) -> impl Iterator<Item = (PathBuf, Metadata)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            prefixes.iter().any(|prefix| name.starts_with(prefix))
        })
        .filter_map(move |entry| {
            // This does not follow links, as lstat(2), and looks up no whole path: there may be very many such files.
            let metadata = entry.metadata().ok()?;
            let is_ours = metadata.is_file() && metadata.uid() == user;
            is_ours.then(|| (entry.path(), metadata))
        })
}

/// Returns when a file was made or, if its file system does not record that, last written.
fn made(metadata: &Metadata) -> Option<SystemTime> {
    metadata.created().or_else(|_| metadata.modified()).ok()
}

fn identity(metadata: &Metadata) -> Identity {
    let device = metadata.dev();
    (major(device), minor(device), metadata.ino())
}

/// The files that a process has open or mapped.
enum Held {
    Known(BTreeSet<Identity>),
    /// The process is exiting: its memory is released, and its open descriptors will be closed next.
    Until(BTreeSet<Identity>),
    /// We may not inspect the process, or it is gone.
    Unknown,
}

/// Returns the files that a process holds. Descriptors are read before mappings, because a process maps a file before it
/// closes the descriptor.
fn held_by(pid: Pid) -> Held {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"));
    let maps = fs::read(format!("/proc/{pid}/maps"));
    let (Ok(entries), Ok(maps)) = (entries, maps) else {
        return Held::Unknown;
    };
    let open = entries
        .flatten()
        .filter_map(|entry| fs::metadata(entry.path()).ok())
        .map(|metadata| identity(&metadata));
    if maps.is_empty() {
        return Held::Until(open.collect());
    }
    let mapped = maps.split(|byte| *byte == b'\n').filter_map(mapped);
    Held::Known(open.chain(mapped).collect())
}

impl Hidden {
    const fn fate_of(self, file: &Candidate) -> Fate {
        match (self, file.is_held) {
            // A process that is exiting closes its files before long, whether `/proc` still shows it or not.
            (Self::Exiting, _) | (Self::Nobody | Self::Stranger, true) => Fate::NotYet,
            (Self::Nobody, false) => Fate::Abandoned,
            (Self::Stranger, false) | (Self::Namespace, _) => Fate::Unknown,
        }
    }

    /// Classifies a process that we may not inspect, by its status file, which every user may read. The init process of the node is never a rank.
    fn of(pid: Pid, user: u32) -> Self {
        if pid.as_raw() == 1 {
            return Self::Nobody;
        }
        fs::read_to_string(format!("/proc/{pid}/status"))
            .map_or(Self::Nobody, |status| Self::with(&status, user))
    }

    fn with(status: &str, user: u32) -> Self {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let is_first_over =
            field("State:").is_some_and(|state| state.trim_start().starts_with(['Z', 'X']));
        let is_alone = field("Threads:").is_some_and(|threads| threads.trim() == "1");
        let ids = field("Uid:").unwrap_or_default();
        let is_ours = ids.split_whitespace().any(|id| id.parse() == Ok(user));
        if !is_ours || is_first_over && is_alone {
            Self::Nobody
        } else if field("VmSize:").is_some() {
            Self::Stranger
        } else {
            // A first thread that has exited shows no memory. The others are usually about to exit too.
            Self::Exiting
        }
    }
}

/// Parses a line of `maps`: `ADDRESSES PERMISSIONS OFFSET MAJOR:MINOR INODE NAME`. Returns `None` if no file is mapped.
fn mapped(line: &[u8]) -> Option<Identity> {
    // Only the name can contain spaces or bytes that are not ASCII.
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(3)?).ok()?;
    let number = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let (major, minor) = device.split_once(':')?;
    let hexadecimal = |digits| u64::from_str_radix(digits, 16).ok();
    (number != 0).then_some((hexadecimal(major)?, hexadecimal(minor)?, number))
}

#[cfg(test)]
mod tests {
    use std::{fs::File, time::Duration};

    use super::*;

    #[test]
    fn a_line_of_maps_names_a_file() {
        for (line, expected) in [
            (
                "7f0000000000-7f0000001000 rw-s 00000000 00:1b 77                         /dev/shm/a b",
                Some((0, 0x1b, 77)),
            ),
            (
                "7f0000000000-7f0000001000 rw-s 00000000 103:02 18446744073709551615 /x (deleted)",
                Some((0x103, 2, u64::MAX)),
            ),
            ("7ffc000-7ffd000 rw-p 00000000 00:00 0    [stack]", None),
            ("nonsense", None),
            ("", None),
        ] {
            assert_eq!(mapped(line.as_bytes()), expected, "{line}");
        }
    }

    /// A mapping counts after its descriptor is closed, also in a file system in memory.
    #[test]
    fn a_lease_shows_who_holds_a_file() {
        let path = format!("/dev/shm/rally-lease-{}", crate::process::current_pid());
        let path = Path::new(&path);
        fs::write(path, "x").unwrap();
        let free = lease_on(path);
        // The administrator may have switched leases off.
        let granted = match fs::read_to_string("/proc/sys/fs/leases-enable") {
            Ok(text) if text.trim() == "0" => Lease::Unknown,
            _ => Lease::Granted,
        };
        assert_eq!(free, granted);
        let open = File::open(path).unwrap();
        assert_eq!(lease_on(path), Lease::Refused);
        let mapped = crate::files::Mapped::open(path).unwrap();
        drop(open);
        assert_eq!(lease_on(path), Lease::Refused);
        drop(mapped);
        assert_eq!(lease_on(path), granted);
        fs::remove_file(path).unwrap();
        assert_eq!(lease_on(path), Lease::Unknown);
    }

    /// Whether we may inspect a process is left to the kernel; this test is about its user, and whether it is alive.
    #[test]
    fn who_lives_and_is_of_the_user_may_hold_files() {
        let (own, user) = (crate::process::current_pid(), effective_uid());
        assert_eq!(Hidden::of(own, user), Hidden::Stranger);
        assert_eq!(Hidden::of(own, user + 1), Hidden::Nobody);
        assert_eq!(Hidden::of(Pid::from_raw(1), 0), Hidden::Nobody);
        let nobody = Pid::from_raw(i32::MAX);
        assert_eq!(Hidden::of(nobody, user), Hidden::Nobody);
    }

    #[test]
    fn who_may_hold_a_file_decides_its_fate() {
        for (hidden, held, not_held) in [
            (Hidden::Nobody, Fate::NotYet, Fate::Abandoned),
            (Hidden::Stranger, Fate::NotYet, Fate::Unknown),
            (Hidden::Namespace, Fate::Unknown, Fate::Unknown),
            (Hidden::Exiting, Fate::NotYet, Fate::NotYet),
        ] {
            for (is_held, expected) in [(true, held), (false, not_held)] {
                let file = Candidate {
                    path: PathBuf::new(),
                    identity: (0, 0, 0),
                    is_held,
                };
                assert_eq!(hidden.fate_of(&file), expected, "{hidden:?} {is_held}");
            }
        }
    }

    #[test]
    fn what_a_status_says() {
        for (state, threads, memory, expected) in [
            ("S (sleeping)", 1, "VmSize:\t7 kB\n", Hidden::Stranger),
            ("R (running)", 1, "", Hidden::Exiting),
            ("Z (zombie)", 1, "", Hidden::Nobody),
            ("Z (zombie)", 2, "", Hidden::Exiting),
            ("X (dead)", 1, "", Hidden::Nobody),
        ] {
            let status = format!(
                "Name:\tx\nState:\t{state}\nUid:\t7\t8\t8\t8\n{memory}Threads:\t{threads}\n"
            );
            for (user, expected) in [(7, expected), (8, expected), (9, Hidden::Nobody)] {
                assert_eq!(Hidden::with(&status, user), expected, "{status}");
            }
        }
    }

    #[test]
    fn what_somebody_holds_stays() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for name in ["seg_free", "seg_open", "seg_", "other"] {
            fs::write(path(name), "x").unwrap();
        }
        std::os::unix::fs::symlink(path("other"), path("seg_link")).unwrap();
        let open = File::open(path("seg_open")).unwrap();
        let since = SystemTime::UNIX_EPOCH;
        let found = || {
            let Abandoned::Files(mut found) =
                abandoned_files(root.path(), &["seg_", "none"], since)
            else {
                panic!("nobody has it who ends");
            };
            found.sort();
            found
        };
        assert_eq!(found(), [path("seg_"), path("seg_free")]);
        drop(open);
        assert_eq!(found(), [path("seg_"), path("seg_free"), path("seg_open")]);
        let later =
            fs::metadata(path("seg_")).unwrap().modified().unwrap() + Duration::from_secs(60);
        let none = Abandoned::Files(Vec::new());
        assert_eq!(abandoned_files(root.path(), &["seg_"], later), none);
        assert_eq!(abandoned_files(&path("missing"), &["seg_"], since), none);
    }
}
