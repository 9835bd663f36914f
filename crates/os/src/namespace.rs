//! Pid namespaces: the numbers that a process has in them, and whether we are in a nested one.
#![expect(unsafe_code, reason = "nix does not know NS_GET_PARENT")]

use std::{
    fs::{self, File},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
};

use crate::process::{Pid, current_pid, read_proc};

/// ioctl request for the parent of a namespace.
const NS_GET_PARENT: libc::c_ulong = 0xb702;
/// Inode numbers of the initial namespaces, which the kernel makes itself.
const FIRST_PID_NAMESPACE: u64 = 0xeffffffc;
const FIRST_USER_NAMESPACE: u64 = 0xeffffffd;

/// The pid namespace of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidNamespace {
    /// Number of namespaces from that of `/proc` down to this one.
    depth: usize,
    /// Inode number; `None` for the namespace of `/proc`, in which every process has a number.
    id: Option<u64>,
}

impl PidNamespace {
    /// Returns the pid namespace of a process; `None` if the process is gone or we may not inspect it.
    #[must_use]
    pub fn of(pid: Pid) -> Option<Self> {
        let depth = numbers(pid)?.len() - 1;
        let id = match depth {
            0 => None,
            _ => Some(namespace(pid, "pid")?),
        };
        Some(Self { depth, id })
    }

    /// Returns true if it is not the namespace of `/proc`, so its pids differ from those there.
    #[must_use]
    pub const fn is_nested(self) -> bool {
        self.id.is_some()
    }

    /// Returns the pid of a process in it; `None` if it has none, or that is unknown.
    #[must_use]
    pub fn number_of(self, pid: Pid) -> Option<i32> {
        let Some(id) = self.id else {
            return Some(pid.as_raw());
        };
        let numbers = numbers(pid)?;
        let number = *numbers.get(self.depth)?;
        let between = numbers.len() - 1 - self.depth;
        (ancestor(pid, between)? == id).then_some(number)
    }
}

/// Returns a text that only processes with the same processes in `/proc` have in common, whatever names their node has: the id of
/// the boot and the pid namespace. `None` if we may not read it.
#[must_use]
pub fn node_identity() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = namespace(current_pid(), "pid")?;
    Some(format!("{} {namespace}", boot.trim()))
}

/// Returns true if the pids in `/proc` are those of our own namespace. They are not if we are in a nested pid namespace and
/// `/proc` was mounted outside of it: the same number then means two processes.
#[must_use]
pub fn sees_own_processes() -> bool {
    let own = current_pid().to_string();
    fs::read_link("/proc/self").is_ok_and(|link| link.as_path() == Path::new(&own))
}

/// Returns the pid of a process, or of that of a thread, in its own namespace.
#[must_use]
pub fn own_number(pid: Pid) -> Option<i32> {
    numbers(pid)?.last().copied()
}

/// Returns true if a process is in our network namespace: in another one, it has a loopback interface of its own.
#[must_use]
pub fn shares_network(pid: Pid) -> bool {
    let own = namespace(current_pid(), "net");
    own.is_some() && namespace(pid, "net") == own
}

/// Returns true if we are in a pid or user namespace other than the initial one.
pub(crate) fn is_nested() -> bool {
    let differs =
        |kind: &str, first: u64| namespace(current_pid(), kind).is_some_and(|id| id != first);
    differs("pid", FIRST_PID_NAMESPACE) || differs("user", FIRST_USER_NAMESPACE)
}

/// Returns the pids of a process, or of that of a thread, from the namespace of `/proc` down to its own; there is at least one.
fn numbers(pid: Pid) -> Option<Vec<i32>> {
    parse_numbers(&read_proc(pid, "status")?)
}

fn parse_numbers(status: &[u8]) -> Option<Vec<i32>> {
    let line = status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"NStgid:"))?;
    let words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let numbers: Vec<i32> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
    (!numbers.is_empty()).then_some(numbers)
}

/// Returns the inode number of a namespace of a process.
fn namespace(pid: Pid, kind: &str) -> Option<u64> {
    let link = fs::metadata(format!("/proc/{pid}/ns/{kind}")).ok()?;
    Some(link.ino())
}

/// Returns the inode number of the pid namespace that is `steps` levels above that of a process.
fn ancestor(pid: Pid, steps: usize) -> Option<u64> {
    if steps == 0 {
        return namespace(pid, "pid");
    }
    let mut at = OwnedFd::from(File::open(format!("/proc/{pid}/ns/pid")).ok()?);
    for _ in 0..steps {
        // SAFETY: the request takes no argument and gives a new descriptor, or -1.
        let parent = unsafe { libc::ioctl(at.as_raw_fd(), NS_GET_PARENT) };
        if parent < 0 {
            return None;
        }
        // SAFETY: the kernel has just returned it, and nothing else owns it.
        at = unsafe { OwnedFd::from_raw_fd(parent) };
    }
    Some(File::from(at).metadata().ok()?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read() {
        let numbers = |status: &str| parse_numbers(status.as_bytes());
        assert_eq!(
            numbers("Name:\tx\nNStgid:\t42\t7\t1\n"),
            Some(vec![42, 7, 1])
        );
        assert_eq!(numbers("Name:\tx\nNStgid:\t42\n"), Some(vec![42]));
        assert_eq!(numbers("Name:\tx\nNStgid:\n"), None);
        assert_eq!(numbers("Name:\tx\n"), None);
    }

    #[test]
    fn we_are_where_we_are() {
        let own = current_pid();
        let namespace = PidNamespace::of(own).unwrap();
        assert!(!namespace.is_nested());
        assert_eq!(namespace.number_of(own), Some(own.as_raw()));
        assert!(sees_own_processes());
        assert!(shares_network(own));
        assert_eq!(own_number(own), Some(own.as_raw()));
        assert_eq!(PidNamespace::of(Pid::from_raw(i32::MAX)), None);
        // The test runs in a thread of its own.
        let thread = Pid::from_raw(nix::unistd::gettid().as_raw());
        assert_ne!(thread, own);
        assert_eq!(own_number(thread), Some(own.as_raw()));
    }
}
