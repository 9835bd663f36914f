//! Namespaces of processes: which number a process has in which of them, and whether we are in one of our own.
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

/// Asks for the namespace that this one was made in.
const NS_GET_PARENT: libc::c_ulong = 0xb702;
/// The first namespaces, which the kernel makes itself, have these numbers.
const FIRST_PID_NAMESPACE: u64 = 0xeffffffc;
const FIRST_USER_NAMESPACE: u64 = 0xeffffffd;

/// The pid namespace of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidNamespace {
    /// How many namespaces lie between it and that of `/proc`.
    depth: usize,
    /// Its number; nothing where it is that of `/proc`, which every process has a number in.
    id: Option<u64>,
}

impl PidNamespace {
    /// The one that a process is in; nothing when the process is gone or not ours to look at.
    #[must_use]
    pub fn of(pid: Pid) -> Option<Self> {
        let depth = numbers(pid)?.len() - 1;
        let id = match depth {
            0 => None,
            _ => Some(namespace(pid, "pid")?),
        };
        Some(Self { depth, id })
    }

    /// Whether its numbers are not those of `/proc`.
    #[must_use]
    pub const fn is_nested(self) -> bool {
        self.id.is_some()
    }

    /// The number that a process has in it; nothing where it has none, or that is not to be known.
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

/// Whether the numbers in `/proc` are those by which we name processes to the kernel: not where we are in a pid namespace
/// of our own and `/proc` was mounted outside of it. The same number means two processes then.
#[must_use]
pub fn sees_own_processes() -> bool {
    let own = current_pid().to_string();
    fs::read_link("/proc/self").is_ok_and(|link| link.as_path() == Path::new(&own))
}

/// The number that a process has where it is itself.
#[must_use]
pub fn own_number(pid: Pid) -> Option<i32> {
    numbers(pid)?.last().copied()
}

/// Whether a process has the same network as we: another has a loopback interface of its own.
#[must_use]
pub fn shares_network(pid: Pid) -> bool {
    let own = namespace(current_pid(), "net");
    own.is_some() && namespace(pid, "net") == own
}

/// Whether we are in a pid namespace or a user namespace that somebody has made.
pub(crate) fn is_nested() -> bool {
    let differs =
        |kind: &str, first: u64| namespace(current_pid(), kind).is_some_and(|id| id != first);
    differs("pid", FIRST_PID_NAMESPACE) || differs("user", FIRST_USER_NAMESPACE)
}

/// The numbers of a process, from the namespace of `/proc` to its own; one at least.
fn numbers(pid: Pid) -> Option<Vec<i32>> {
    parse_numbers(&read_proc(pid, "status")?)
}

fn parse_numbers(status: &[u8]) -> Option<Vec<i32>> {
    let line = status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"NSpid:"))?;
    let words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let numbers: Vec<i32> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
    (!numbers.is_empty()).then_some(numbers)
}

/// The number of a namespace of a process.
fn namespace(pid: Pid, kind: &str) -> Option<u64> {
    let link = fs::metadata(format!("/proc/{pid}/ns/{kind}")).ok()?;
    Some(link.ino())
}

/// The number of the pid namespace so many steps above that of a process.
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
        // SAFETY: the kernel has just given it to us, and nobody else has it.
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
            numbers("Name:\tx\nNSpid:\t42\t7\t1\n"),
            Some(vec![42, 7, 1])
        );
        assert_eq!(numbers("Name:\tx\nNSpid:\t42\n"), Some(vec![42]));
        assert_eq!(numbers("Name:\tx\nNSpid:\n"), None);
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
    }
}
