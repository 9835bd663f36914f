//! Cgroups: the CPU time that ours grants, and those that we make (`tree`).

mod tree;

use std::path::{Path, PathBuf};

pub use self::tree::{Cgroup, CgroupLimits, CgroupTree, CgroupUsage, Controller, NoCgroup};
use crate::files::read_small;

/// The file that lists the cgroups of this process.
pub(crate) const MEMBERSHIP: &str = "proc/self/cgroup";
/// The file that lists all mounts.
pub(crate) const MOUNTS: &str = "proc/self/mountinfo";
/// Mount point of cgroup version 2 on nearly every system.
pub(crate) const USUAL_MOUNT: &str = "sys/fs/cgroup";
/// The controller of version 1 that limits CPU time.
const CONTROLLER: &str = "cpu";
/// Maximum depth of groups that is examined; a deeper nesting would be a mistake in the data.
const MAX_DEPTH: usize = 64;

/// Returns the number of CPUs' worth of time that this process and its children get; `None` if unlimited. The tightest
/// limit from our own group up to the root counts: `cpu.max` in version 2, the CFS quota in version 1.
#[must_use]
pub fn cpu_quota() -> Option<f64> {
    cpu_quota_below(Path::new("/"))
}

/// Returns [`cpu_quota`] of the system recorded below `root`.
#[must_use]
pub(crate) fn cpu_quota_below(root: &Path) -> Option<f64> {
    tightest_of(root, CONTROLLER, cpus_of)
}

/// Returns the memory in bytes that this process and its children get by their cgroups, in the system recorded below `root`; `None` if
/// it is not limited.
#[must_use]
pub(crate) fn memory_limit_below(root: &Path) -> Option<f64> {
    tightest_of(root, "memory", bytes_of)
}

/// A limit of one group.
type Limit = fn(&Path, Version) -> Option<f64>;

/// Returns the tightest limit of our groups.
fn tightest_of(root: &Path, controller: &str, limit: Limit) -> Option<f64> {
    let membership = read_small(&root.join(MEMBERSHIP)).ok()?;
    let (version, group) = controlling_group(&membership, controller)?;
    // Nearly every system has version 2 here. Only others need the list of all mounts, which can be long.
    let usual = root.join(USUAL_MOUNT);
    let own = usual.join(group.trim_start_matches('/'));
    if version == Version::Two && own.join("cgroup.procs").exists() {
        return tightest(&usual, own, |group| limit(group, version));
    }
    let mounts = read_small(&root.join(MOUNTS)).ok()?;
    let (mounted, point) = mounts
        .lines()
        .find_map(|line| cgroup_mount(line, version, controller))?;
    // In a container only a part of the tree is mounted; the mount says which.
    let below = Path::new(group)
        .strip_prefix(mounted)
        .unwrap_or_else(|_| Path::new(""));
    let top = root.join(point.trim_start_matches('/'));
    tightest(&top, top.join(below), |group| limit(group, version))
}

/// Returns the tightest limit from `directory` up to `top`.
fn tightest(
    top: &Path,
    mut directory: PathBuf,
    limit_of: impl Fn(&Path) -> Option<f64>,
) -> Option<f64> {
    let mut tightest: Option<f64> = None;
    for _ in 0..MAX_DEPTH {
        if let Some(limit) = limit_of(&directory) {
            tightest = Some(tightest.map_or(limit, |tightest| tightest.min(limit)));
        }
        if directory == top || !directory.pop() {
            break;
        }
    }
    tightest
}

/// The version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// Returns the group that limits us by this controller: that of version 1 if it is mounted, else that of version 2.
fn controlling_group<'a>(membership: &'a str, controller: &str) -> Option<(Version, &'a str)> {
    [Version::One, Version::Two]
        .into_iter()
        .find_map(|version| Some((version, group(membership, version, controller)?)))
}

/// Returns the group of version 2, or that of a controller of version 1.
pub(crate) fn group<'a>(
    membership: &'a str,
    version: Version,
    controller: &str,
) -> Option<&'a str> {
    membership.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let is_meant = match version {
            Version::One => controllers.split(',').any(|it| it == controller),
            Version::Two => controllers.is_empty(),
        };
        is_meant.then_some(group)
    })
}

/// Returns the mounted part and the mount point, if a line of mountinfo is about the given hierarchy.
pub(crate) fn cgroup_mount<'a>(
    line: &'a str,
    version: Version,
    controller: &str,
) -> Option<(&'a str, &'a str)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut file_system = file_system.split(' ');
    let kind = file_system.next()?;
    let matches = match version {
        Version::Two => kind == "cgroup2",
        Version::One => {
            kind == "cgroup"
                && file_system
                    .nth(1)?
                    .split(',')
                    .any(|option| option == controller)
        }
    };
    let mut fields = mount.split(' ').skip(3);
    let (part, point) = (fields.next()?, fields.next()?);
    matches.then_some((part, point))
}

fn cpus_of(directory: &Path, version: Version) -> Option<f64> {
    let file = |name: &str| read_small(&directory.join(name)).ok();
    let (quota, period) = match version {
        Version::Two => {
            let text = file("cpu.max")?;
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?)
        }
        Version::One => {
            let quota = file("cpu.cfs_quota_us")?.trim().parse::<f64>().ok()?;
            if quota <= 0.0 {
                return None;
            }
            (
                quota,
                file("cpu.cfs_period_us")?.trim().parse::<f64>().ok()?,
            )
        }
    };
    (period > 0.0).then(|| quota / period)
}

fn bytes_of(directory: &Path, version: Version) -> Option<f64> {
    let name = match version {
        // Without a limit, its number is larger than any memory.
        Version::One => "memory.limit_in_bytes",
        Version::Two => "memory.max",
    };
    let text = read_small(&directory.join(name)).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<f64>);

    const V2_MOUNT: &str = "24 1 0:22 / /proc rw - proc proc rw\n30 1 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
    const V1_MOUNT: &str = "30 1 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
        31 1 0:26 /docker/1 /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";

    #[test]
    fn the_tightest_limit_counts() {
        let cases: &[Case<'_>] = &[
            ("no cgroup file", &[], None),
            (
                "not mounted",
                &[("proc/self/cgroup", "0::/a\n"), ("proc/self/mountinfo", "")],
                None,
            ),
            (
                "own group",
                &[
                    ("proc/self/cgroup", "0::/a/b\n"),
                    ("proc/self/mountinfo", V2_MOUNT),
                    ("sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"),
                    ("sys/fs/cgroup/a/cpu.max", "max 100000\n"),
                ],
                Some(1.5),
            ),
            (
                "parent is tighter",
                &[
                    ("proc/self/cgroup", "0::/a/b\n"),
                    ("proc/self/mountinfo", V2_MOUNT),
                    ("sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"),
                    ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
                ],
                Some(0.5),
            ),
            (
                "unlimited",
                &[
                    ("proc/self/cgroup", "0::/\n"),
                    ("proc/self/mountinfo", V2_MOUNT),
                    ("sys/fs/cgroup/cpu.max", "max 100000\n"),
                ],
                None,
            ),
            (
                "version 1 in a container",
                &[
                    (
                        "proc/self/cgroup",
                        "3:cpuset:/docker/1\n2:cpu,cpuacct:/docker/1/x\n0::/\n",
                    ),
                    ("proc/self/mountinfo", V1_MOUNT),
                    ("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n"),
                    ("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"),
                    ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n"),
                    ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
                ],
                Some(2.5),
            ),
            (
                "nonsense",
                &[
                    ("proc/self/cgroup", "0::/\n"),
                    ("proc/self/mountinfo", V2_MOUNT),
                    ("sys/fs/cgroup/cpu.max", "1 0\n"),
                ],
                None,
            ),
        ];
        for (name, files, expected) in cases {
            assert_eq!(cpu_quota_below(tree(files).path()), *expected, "{name}");
        }
    }
}
