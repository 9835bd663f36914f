//! The memory of this computer.

use std::path::Path;

use crate::{cgroup::memory_limit_below, files::read_small};

/// Returns the memory in bytes that processes here may use: that of the computer, or the limit of our cgroups, if it is lower. 0 if
/// nothing says so.
#[must_use]
pub fn memory() -> u64 {
    memory_below(Path::new("/"))
}

fn memory_below(root: &Path) -> u64 {
    let all = read_small(&root.join("proc/meminfo")).ok();
    let all = all.and_then(|text| total(&text)).unwrap_or(0);
    match memory_limit_below(root) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is a number of bytes that is lower than another one"
        )]
        Some(limit) if limit < all as f64 => limit as u64,
        _ => all,
    }
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn memory_is_in_bytes() {
        assert_eq!(
            total("MemTotal:  24576 kB\nMemFree: 1 kB\n"),
            Some(24 << 20)
        );
        for text in ["", "MemFree: 1 kB", "MemTotal: x kB", "MemTotal: 5"] {
            assert_eq!(total(text), None, "{text}");
        }
    }

    /// Files of a system, and the memory that processes there may use.
    type Case<'a> = (&'a [(&'a str, &'a str)], u64);

    #[test]
    fn the_lowest_limit_of_all_cgroups_counts() {
        let two = ("proc/self/cgroup", "0::/a/b\n");
        let above = "sys/fs/cgroup/a/memory.max";
        let own = "sys/fs/cgroup/a/b/memory.max";
        let procs = ("sys/fs/cgroup/a/b/cgroup.procs", "");
        let one = ("proc/self/cgroup", "5:memory:/a\n0::/\n");
        let mount = (
            "proc/self/mountinfo",
            "30 24 0:26 / /mnt/memory rw - cgroup cgroup rw,memory\n",
        );
        let cases: [Case<'_>; 5] = [
            (&[], 24 << 20),
            (&[two, procs, (above, "4096\n"), (own, "max\n")], 4096),
            (&[two, procs, (own, "99999999999\n")], 24 << 20),
            (
                &[one, mount, ("mnt/memory/a/memory.limit_in_bytes", "8192\n")],
                8192,
            ),
            (
                &[
                    one,
                    mount,
                    (
                        "mnt/memory/a/memory.limit_in_bytes",
                        "9223372036854771712\n",
                    ),
                ],
                24 << 20,
            ),
        ];
        for (files, expected) in cases {
            let root = tempfile::tempdir().unwrap();
            let meminfo = ("proc/meminfo", "MemTotal:  24576 kB\n");
            for (name, text) in files.iter().chain([&meminfo]) {
                let path = root.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            assert_eq!(memory_below(root.path()), expected, "{files:?}");
        }
    }
}
