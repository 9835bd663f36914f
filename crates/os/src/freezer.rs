//! Whether a process is frozen by its control group, as batch systems and `docker pause` do it. Of version 1 it looks like
//! one that waits for a disk, of version 2 like one that sleeps.

use std::path::{Component, Path, PathBuf};

use crate::{
    cgroup::{MEMBERSHIP, MOUNTS, USUAL_MOUNT, Version, cgroup_mount, group},
    files::read_small,
    process::{Pid, read_proc},
};

/// The controller of version 1 that freezes.
const CONTROLLER: &str = "freezer";
/// Where in the kernel a frozen thread stands, where that is told.
const FROZEN_IN: [&[u8]; 2] = [b"__refrigerator", b"do_freezer_trap"];

/// Where the groups are.
#[derive(Clone, Debug)]
pub struct Freezers {
    root: PathBuf,
    /// For each version that is mounted: which part of its groups, and where.
    mounted: Vec<(Version, PathBuf, PathBuf)>,
}

impl Freezers {
    /// Those of this machine.
    #[must_use]
    pub fn find() -> Self {
        Self::below(Path::new("/"))
    }

    /// Those of the system recorded below `root`.
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
        }
    }

    /// Whether a process is frozen, or about to be.
    #[must_use]
    pub fn has_frozen(&self, pid: Pid) -> bool {
        let own = MEMBERSHIP.replace("self", &pid.to_string());
        let membership = read_small(&self.root.join(own)).unwrap_or_default();
        let is_frozen = |(version, part, point): &(Version, PathBuf, PathBuf)| {
            let group = group(&membership, *version, CONTROLLER)?;
            let below = Path::new(group).strip_prefix(part).ok()?;
            // To a process in a cgroup namespace the kernel names what is outside of it by `..`. From our mount that path leads
            // to some other directory.
            if below.components().any(|it| it == Component::ParentDir) {
                return None;
            }
            let directory = point.join(below);
            Some(match version {
                Version::One => {
                    let state = read_small(&directory.join("freezer.state")).ok()?;
                    matches!(state.trim(), "FROZEN" | "FREEZING")
                }
                Version::Two => {
                    let events = read_small(&directory.join("cgroup.events")).ok()?;
                    events.lines().any(|line| line == "frozen 1")
                }
            })
        };
        self.mounted
            .iter()
            .filter_map(is_frozen)
            .any(|frozen| frozen)
            || stands_frozen(pid)
    }
}

/// Whether the kernel says that a process stands where those do that are frozen: in a container its group is not to be seen.
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
