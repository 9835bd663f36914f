//! Whether a process is frozen by its control group, as batch systems and `docker pause` do it. A process frozen by version
//! 1 seems to wait for a disk; one frozen by version 2 seems to sleep.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    cgroup::{MEMBERSHIP, MOUNTS, USUAL_MOUNT, Version, cgroup_mount, group},
    files::read_small,
    process::{Pid, read_proc},
};

/// The controller of version 1 that freezes.
const CONTROLLER: &str = "freezer";
/// How long the state of a group is cached. A caller that inspects many processes asks about the same few groups.
const FRESH: Duration = Duration::from_millis(10);
/// Maximum number of cached groups.
const MAX_GROUPS: usize = 256;
/// Kernel functions in which a frozen thread waits, as shown by `wchan`.
const FROZEN_IN: [&[u8]; 2] = [b"__refrigerator", b"do_freezer_trap"];

/// The mounted hierarchies of control groups, with a cache of states.
#[derive(Clone, Debug)]
pub struct Freezers {
    root: PathBuf,
    /// For each mounted version: the part of its groups that is mounted, and the mount point.
    mounted: Vec<(Version, PathBuf, PathBuf)>,
    /// Whether a process is frozen, by the content of its cgroup file; `None` if the groups do not show it.
    known: BTreeMap<String, Option<bool>>,
    since: Instant,
}

impl Freezers {
    /// Finds the hierarchies of this node.
    #[must_use]
    pub fn find() -> Self {
        Self::below(Path::new("/"))
    }

    /// Finds the hierarchies of the system recorded below `root`.
    fn below(root: &Path) -> Self {
        let mounts = read_small(&root.join(MOUNTS)).unwrap_or_default();
        let mounted = [Version::One, Version::Two].map(|version| {
            let mut lines = mounts.lines();
            let mount = lines.find_map(|line| cgroup_mount(line, version, CONTROLLER));
            let (part, point) = match (mount, version) {
                (Some(mount), _) => mount,
                (None, Version::Two) => ("/", USUAL_MOUNT),
                (None, Version::One) => return None,
            };
            let point = root.join(point.trim_start_matches('/'));
            Some((version, PathBuf::from(part), point))
        });
        Self {
            root: root.to_owned(),
            mounted: mounted.into_iter().flatten().collect(),
            known: BTreeMap::new(),
            since: Instant::now(),
        }
    }

    /// Returns true if a process is frozen, or is being frozen.
    #[must_use]
    pub fn has_frozen(&mut self, pid: Pid) -> bool {
        let own = MEMBERSHIP.replace("self", &pid.to_string());
        let membership = read_small(&self.root.join(own)).unwrap_or_default();
        if self.since.elapsed() > FRESH || self.known.len() >= MAX_GROUPS {
            self.known.clear();
            self.since = Instant::now();
        }
        let state = self.known.get(&membership).copied();
        let state = state.unwrap_or_else(|| {
            let state = self.state_of(&membership);
            self.known.insert(membership, state);
            state
        });
        state.unwrap_or_else(|| stands_frozen(pid))
    }

    /// Returns whether one of these groups is frozen; `None` if none is known to be and some cannot be read.
    fn state_of(&self, membership: &str) -> Option<bool> {
        let states = self.mounted.iter();
        let states: Vec<Option<bool>> = states
            .map(|mount| Self::is_frozen_in(mount, membership))
            .collect();
        if states.contains(&Some(true)) {
            return Some(true);
        }
        let all_known = !states.is_empty() && !states.contains(&None);
        all_known.then_some(false)
    }

    /// Returns whether the group of a process in one hierarchy is frozen; `None` if the group cannot be read.
    fn is_frozen_in(
        (version, part, point): &(Version, PathBuf, PathBuf),
        membership: &str,
    ) -> Option<bool> {
        let group = group(membership, *version, CONTROLLER)?;
        let below = Path::new(group).strip_prefix(part).ok()?;
        // To a process in a cgroup namespace, the kernel shows groups outside of it with `..`. From our mount point that
        // path would lead to an unrelated directory.
        if below.components().any(|it| it == Component::ParentDir) {
            return None;
        }
        let directory = point.join(below);
        let (name, is_frozen): (_, fn(&str) -> bool) = match version {
            Version::One => ("freezer.state", |state| {
                matches!(state.trim(), "FROZEN" | "FREEZING")
            }),
            Version::Two => ("cgroup.events", |events| {
                events.lines().any(|line| line == "frozen 1")
            }),
        };
        match read_small(&directory.join(name)) {
            Ok(state) => Some(is_frozen(&state)),
            // The root of a hierarchy has no such file, and is never frozen.
            Err(error) if error.errno() == libc::ENOENT && group == "/" => Some(false),
            Err(_) => None,
        }
    }
}

/// Returns true if the kernel shows a process waiting where frozen ones wait. In a container its group may be invisible.
fn stands_frozen(pid: Pid) -> bool {
    let at = read_proc(pid, "wchan").unwrap_or_default();
    FROZEN_IN.contains(&at.as_slice())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn groups_say_who_is_frozen() {
        const ONE: &str = "31 1 0:26 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n";
        const TWO: &str = "30 1 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
        let one = "sys/fs/cgroup/freezer/job/1/freezer.state";
        let two = "sys/fs/cgroup/job/1/cgroup.events";
        let outside = "sys/fs/other/cgroup.events";
        let (in_one, in_two) = ("6:freezer:/job/1\n0::/\n", "0::/job/1\n");
        for (mounts, group, file, content, expected) in [
            (ONE, in_one, one, "FROZEN\n", true),
            (ONE, in_one, one, "FREEZING\n", true),
            (ONE, in_one, one, "THAWED\n", false),
            (TWO, in_two, two, "populated 1\nfrozen 1\n", true),
            (TWO, in_two, two, "populated 1\nfrozen 0\n", false),
            (TWO, "0::/../other\n", outside, "frozen 1\n", false),
            (TWO, "0::/job/../../other\n", outside, "frozen 1\n", false),
            (TWO, in_one, two, "populated 1\nfrozen 1\n", false),
            ("", in_two, two, "populated 1\nfrozen 1\n", true),
            ("", "", two, "populated 1\nfrozen 1\n", false),
        ] {
            let root = tempfile::tempdir().unwrap();
            let put = |name: &str, content: &str| {
                let path = root.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            };
            let pid = Pid::from_raw(i32::MAX);
            fs::create_dir_all(root.path().join("sys/fs/cgroup/job")).unwrap();
            put(MOUNTS, mounts);
            put(&format!("proc/{pid}/cgroup"), group);
            put(file, content);
            let frozen = Freezers::below(root.path()).has_frozen(pid);
            assert_eq!(frozen, expected, "{mounts} {group} {content}");
        }
    }
}
