//! What the kernel lets us do with other processes, and which mechanism restricts it.

use std::fs;

use crate::{
    namespace::is_nested,
    process::{Pid, current_pid, read_proc},
};

/// The number of `CAP_SYS_PTRACE`.
const CAP_SYS_PTRACE: u32 = 19;

/// Returns true if we may trace the processes of all users.
#[must_use]
pub fn may_trace_all() -> bool {
    read_proc(current_pid(), "status").is_some_and(|status| has_capability(&status, CAP_SYS_PTRACE))
}

fn has_capability(status: &[u8], number: u32) -> bool {
    let line = status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"CapEff:"));
    let mask = line
        .and_then(|line| std::str::from_utf8(line).ok())
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> number & 1 == 1)
}

/// Returns Yama's `ptrace_scope`, 0 to 3: who may trace whom. `None` without that security module.
#[must_use]
pub fn ptrace_scope() -> Option<u8> {
    fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Returns the release of the kernel, such as `6.1.0-32-amd64`; `None` if it is unknown.
#[must_use]
pub fn kernel_release() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(release.trim().to_owned())
}

/// Returns true if `/proc` is mounted such that it hides the processes of other users.
#[must_use]
pub fn hides_processes() -> bool {
    fs::read_to_string("/proc/self/mounts").is_ok_and(|mounts| hides(&mounts))
}

fn hides(mounts: &str) -> bool {
    mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(1);
        let here = words.next() == Some("/proc");
        let options = words.nth(1).unwrap_or_default();
        here && options
            .split(',')
            .filter_map(|option| option.strip_prefix("hidepid="))
            .any(|value| !matches!(value, "0" | "off"))
    })
}

/// Returns true if we are in a container: in a namespace that is not the initial one, or behind a seccomp filter while
/// there are files that containers usually have. The files alone prove nothing: a host may have been installed from an
/// image.
#[must_use]
pub fn is_contained() -> bool {
    const MARKS: [&str; 3] = ["/.dockerenv", "/run/.containerenv", "/.singularity.d"];
    let marked = || MARKS.iter().any(|mark| fs::exists(mark).unwrap_or(false));
    let filtered = || {
        let status = read_proc(current_pid(), "status");
        status.is_some_and(|status| has_filter(&status))
    };
    is_nested() || (marked() && filtered())
}

/// Returns true if a seccomp filter is active.
fn has_filter(status: &[u8]) -> bool {
    let line = status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"Seccomp:"));
    line.is_some_and(|line| line.trim_ascii() == b"2")
}

/// Returns true if the kernel protects a process from its own user (it is not dumpable): then its files in `/proc` belong
/// to root.
#[must_use]
pub fn is_guarded(pid: Pid) -> bool {
    use std::os::unix::fs::MetadataExt;
    let owner = crate::foreign::owner_of(pid);
    let file = fs::metadata(format!("/proc/{pid}/environ")).ok();
    file.is_some_and(|file| file.uid() == 0 && owner.is_some_and(|owner| owner != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read() {
        let all = b"Name:\tx\nCapPrm:\t0\nCapEff:\t000001ffffffffff\n";
        assert!(has_capability(all, CAP_SYS_PTRACE));
        let docker = b"CapEff:\t00000000a80425fb\n";
        assert!(!has_capability(docker, CAP_SYS_PTRACE));
        assert!(!has_capability(b"", CAP_SYS_PTRACE));
    }

    #[test]
    fn filters_are_read() {
        assert!(has_filter(b"Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!has_filter(b"Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"));
        assert!(!has_filter(b""));
    }

    #[test]
    fn options_of_proc_are_read() {
        let mounted =
            |options: &str| format!("sysfs /sys sysfs rw 0 0\nproc /proc proc {options} 0 0\n");
        assert!(!hides(&mounted("rw,nosuid")));
        assert!(!hides(&mounted("rw,hidepid=0")));
        assert!(!hides(&mounted("rw,hidepid=off")));
        assert!(hides(&mounted("rw,hidepid=2,gid=4")));
        assert!(hides(&mounted("rw,hidepid=invisible")));
        assert!(!hides("x /sys sysfs rw,hidepid=2 0 0\n"));
    }
}
