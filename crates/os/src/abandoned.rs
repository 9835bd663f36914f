//! Files that were left by processes that are gone: nobody has them open, and nobody has them mapped.

use std::{
    collections::BTreeSet,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use nix::sys::stat::{major, minor};

use crate::{
    namespace::{is_nested, sees_own_processes},
    process::{Pid, all_processes, effective_uid},
};

/// A file, whatever it is called: its device, in two parts as the kernel prints them, and its number there.
type Identity = (u64, u64, u64);

/// Files that nobody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// These, and no others.
    Files(Vec<PathBuf>),
    /// A process is ending, and has some until it is gone: this has to be asked again.
    NotYet,
}

/// The files in `directory` that are ours, whose names begin with one of `prefixes`, that were made at `since` or later, and
/// that no process has open or mapped.
///
/// None where that cannot be known: where a process of our user cannot be looked into (it is not dumpable, or in another
/// user namespace), and where `/proc` does not show all processes because we are in a pid namespace of our own.
#[must_use]
pub fn abandoned_files(directory: &Path, prefixes: &[&str], since: SystemTime) -> Abandoned {
    let none = Abandoned::Files(Vec::new());
    let user = effective_uid();
    let mut found: Vec<(PathBuf, Identity)> = ours(directory, prefixes, user)
        .filter(|(_, metadata)| made(metadata).is_some_and(|made| made >= since))
        .map(|(path, metadata)| (path, identity(&metadata)))
        .collect();
    if found.is_empty() || is_nested() || !sees_own_processes() {
        return none;
    }
    let mut is_ending = false;
    for pid in all_processes() {
        match held_by(pid) {
            Held::Known(held) => found.retain(|(_, identity)| !held.contains(identity)),
            Held::Until(open) => {
                is_ending |= found.iter().any(|(_, identity)| open.contains(identity));
            }
            Held::Unknown => match Stranger::of(pid, user) {
                Stranger::MayHold => return none,
                Stranger::Ends => is_ending = true,
                Stranger::HasNothing => {}
            },
        }
        if found.is_empty() {
            return none;
        }
    }
    if is_ending {
        return Abandoned::NotYet;
    }
    Abandoned::Files(found.into_iter().map(|(path, _)| path).collect())
}

/// The files in `directory` that are ours, whose names begin with one of `prefixes`, and that a process has open or mapped.
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

/// The files of `user` in a directory whose names begin with one of `prefixes`.
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
            // Of the entry itself, as `lstat` has it: the directory may be full of such files.
            let metadata = entry.metadata().ok()?;
            let is_ours = metadata.is_file() && metadata.uid() == user;
            is_ours.then(|| (entry.path(), metadata))
        })
}

/// When a file was made, or, where its file system does not know that, written last.
fn made(metadata: &Metadata) -> Option<SystemTime> {
    metadata.created().or_else(|_| metadata.modified()).ok()
}

fn identity(metadata: &Metadata) -> Identity {
    let device = metadata.dev();
    (major(device), minor(device), metadata.ino())
}

/// What a process has open or mapped.
enum Held {
    Known(BTreeSet<Identity>),
    /// It ends: its memory is gone, and its descriptors follow.
    Until(BTreeSet<Identity>),
    /// We may not look, or the process is gone.
    Unknown,
}

/// Descriptors come first: a file is mapped before its descriptor is closed.
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

/// A process into which we may not look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stranger {
    /// It lives, and one of its user ids is ours: it can have files that others may not open.
    MayHold,
    /// The same, but its memory is gone, and the rest follows: meanwhile nobody but root may look.
    Ends,
    HasNothing,
}

impl Stranger {
    /// Everybody may read its status. The first process of the node is nobody's rank.
    fn of(pid: Pid, user: u32) -> Self {
        if pid.as_raw() == 1 {
            return Self::HasNothing;
        }
        fs::read_to_string(format!("/proc/{pid}/status"))
            .map_or(Self::HasNothing, |status| Self::with(&status, user))
    }

    fn with(status: &str, user: u32) -> Self {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let is_first_over =
            field("State:").is_some_and(|state| state.trim_start().starts_with(['Z', 'X']));
        let is_alone = field("Threads:").is_some_and(|threads| threads.trim() == "1");
        let ids = field("Uid:").unwrap_or_default();
        let is_ours = ids.split_whitespace().any(|id| id.parse() == Ok(user));
        if !is_ours || is_first_over && is_alone {
            Self::HasNothing
        } else if is_first_over || field("VmSize:").is_some() {
            // A first thread that has ended shows no memory, though others may run on.
            Self::MayHold
        } else {
            Self::Ends
        }
    }
}

/// The file of a line of `maps`: `ADDRESSES PERMISSIONS OFFSET MAJOR:MINOR NUMBER NAME`.
fn mapped(line: &[u8]) -> Option<Identity> {
    // Only the name can be something else than ASCII, or have spaces.
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

    /// Whether somebody may look into it is the kernel's business; what counts is whose it is, and that it lives.
    #[test]
    fn who_lives_and_is_of_the_user_may_hold_files() {
        let (own, user) = (crate::process::current_pid(), effective_uid());
        assert_eq!(Stranger::of(own, user), Stranger::MayHold);
        assert_eq!(Stranger::of(own, user + 1), Stranger::HasNothing);
        assert_eq!(Stranger::of(Pid::from_raw(1), 0), Stranger::HasNothing);
        let nobody = Pid::from_raw(i32::MAX);
        assert_eq!(Stranger::of(nobody, user), Stranger::HasNothing);
    }

    #[test]
    fn what_a_status_says() {
        for (state, threads, memory, expected) in [
            ("S (sleeping)", 1, "VmSize:\t7 kB\n", Stranger::MayHold),
            ("R (running)", 1, "", Stranger::Ends),
            ("Z (zombie)", 1, "", Stranger::HasNothing),
            ("Z (zombie)", 2, "", Stranger::MayHold),
            ("X (dead)", 1, "", Stranger::HasNothing),
        ] {
            let status = format!(
                "Name:\tx\nState:\t{state}\nUid:\t7\t8\t8\t8\n{memory}Threads:\t{threads}\n"
            );
            for (user, expected) in [(7, expected), (8, expected), (9, Stranger::HasNothing)] {
                assert_eq!(Stranger::with(&status, user), expected, "{status}");
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
