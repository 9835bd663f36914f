//! The memory of this computer.

use std::{fs, path::Path};

/// Returns the memory in bytes that processes here may use: that of the computer, or the limit of our cgroups, if it is lower. 0 if
/// nothing says so.
#[must_use]
pub fn memory() -> u64 {
    let all = fs::read_to_string("/proc/meminfo").ok();
    let all = all.and_then(|text| total(&text));
    let own = fs::read_to_string("/proc/self/cgroup").ok();
    let limit = own.and_then(|text| limit(Path::new("/sys/fs/cgroup"), &text));
    all.into_iter().chain(limit).min().unwrap_or(0)
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the lowest limit of our cgroup of version 2 and those above it. `own` has the text of `/proc/self/cgroup`.
fn limit(root: &Path, own: &str) -> Option<u64> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let ours = root.join(path);
    let above = ours.ancestors().take_while(|place| place.starts_with(root));
    let limits = above.filter_map(|place| fs::read_to_string(place.join("memory.max")).ok());
    limits.filter_map(|text| text.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn the_lowest_limit_of_all_cgroups_counts() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("a/b");
        fs::create_dir_all(&place).unwrap();
        fs::write(root.path().join("a/memory.max"), "4096\n").unwrap();
        fs::write(place.join("memory.max"), "max\n").unwrap();
        let limit = |own| limit(root.path(), own);
        assert_eq!(limit("1:name=x:/q\n0::/a/b\n"), Some(4096));
        assert_eq!(limit("0::/"), None);
        assert_eq!(limit("5:memory:/a\n"), None);
    }
}
