//! Processes: this one, its children, and what /proc says about any process.
#![expect(unsafe_code, reason = "fork, kill and prctl")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    os::{
        fd::{FromRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
    time::Duration,
};

use base::Signal;

use crate::{
    error::{Error, check},
    files::read_kernel_file,
    resource::Resource,
};

/// One tick of the CPU time counters: `USER_HZ` is 100 on all architectures that we build for.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// A process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(i32);

impl Pid {
    /// Makes a pid of a number.
    #[must_use]
    pub const fn from_raw(raw: i32) -> Self {
        Self(raw)
    }

    /// Returns the number.
    #[must_use]
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Returns the pid of this process.
#[must_use]
pub fn current_pid() -> Pid {
    // SAFETY: only returns a number.
    Pid(unsafe { libc::getpid() })
}

/// Returns the effective user id of this process.
#[must_use]
pub fn effective_uid() -> u32 {
    // SAFETY: only returns a number.
    unsafe { libc::geteuid() }
}

/// Returns the effective group id of this process.
#[must_use]
pub fn effective_gid() -> u32 {
    // SAFETY: only returns a number.
    unsafe { libc::getegid() }
}

/// Returns the node's name as gethostname(2) does, or `localhost` if there is none.
#[must_use]
pub fn host_name() -> String {
    let mut buffer = [0_u8; 256];
    // SAFETY: the kernel writes at most the stated length; the last byte stays zero.
    let result = unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
    let length = buffer
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(buffer.len());
    let name = String::from_utf8_lossy(&buffer[..length]);
    if result == 0 && !name.is_empty() {
        name.into_owned()
    } else {
        "localhost".to_owned()
    }
}

/// Sends `signal` to one process. Make sure that the pid has not been reused: that cannot happen to a child that we have
/// not reaped. For other processes compare [`start_time`].
///
/// # Errors
/// `ESRCH` if it is gone; `EPERM` if it is not ours; `EINVAL` for pids below 1, which kill(2) takes for groups.
pub fn kill(pid: Pid, signal: Signal) -> Result<(), Error> {
    const OPERATION: &str = "send a signal to a process";
    if pid.0 < 1 {
        return Err(Error::Call {
            operation: OPERATION,
            errno: libc::EINVAL,
        });
    }
    // SAFETY: sends a signal to one process and touches no memory.
    check(OPERATION, unsafe { libc::kill(pid.0, signal.0) }).map(drop)
}

/// Returns false if the system does not let us signal `pid` because it runs as another user.
#[must_use]
pub fn may_signal(pid: Pid) -> bool {
    // SAFETY: signal 0 is not delivered, and the call touches no memory.
    let refused = pid.0 >= 1 && unsafe { libc::kill(pid.0, 0) } != 0;
    !(refused && nix::errno::Errno::last() == nix::errno::Errno::EPERM)
}

/// Sends `signal` to the process group of `leader`.
///
/// # Errors
/// `ESRCH` if the group is empty; `EPERM` if none of its processes is ours; `EINVAL` for `leader` 1 and below, since
/// kill(2) takes -1 for all processes.
pub fn kill_group(leader: Pid, signal: Signal) -> Result<(), Error> {
    const OPERATION: &str = "send a signal to a process group";
    if leader.0 <= 1 {
        return Err(Error::Call {
            operation: OPERATION,
            errno: libc::EINVAL,
        });
    }
    // SAFETY: sends a signal to one group and touches no memory.
    check(OPERATION, unsafe { libc::kill(-leader.0, signal.0) }).map(drop)
}

/// Makes this process a subreaper: it adopts orphaned descendants, including those in sessions of their own.
///
/// # Errors
/// Only on kernels before 3.4.
pub fn become_subreaper() -> Result<(), Error> {
    // SAFETY: this option takes a number and touches no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1_u64, 0_u64, 0_u64, 0_u64) };
    check("adopt orphans", result).map(drop)
}

/// Has the kernel send us a signal when our parent dies. Returns false if `parent` is not our parent any more: then it has died
/// already, and no signal comes.
///
/// # Errors
/// Only for a number that is no signal.
pub fn signal_at_parents_death(signal: Signal, parent: Pid) -> Result<bool, Error> {
    let number = u64::try_from(signal.0).unwrap_or(0);
    // SAFETY: this option takes a number and touches no memory; the other call returns one.
    let (result, now) = unsafe {
        let result = libc::prctl(libc::PR_SET_PDEATHSIG, number, 0_u64, 0_u64, 0_u64);
        (result, libc::getppid())
    };
    check("learn of the death of the parent", result)?;
    Ok(now == parent.0)
}

/// Which of the two processes we are after [`fork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The original process; the value is the child's pid.
    Parent(Pid),
    /// The new process.
    Child,
}

/// Duplicates this process. A [`crate::Loop`] made before is shared with the child and must not be used there: make loops
/// after forking.
///
/// # Errors
/// `EAGAIN` and `ENOMEM`; [`Error::Threads`] if other threads run.
pub fn fork() -> Result<Forked, Error> {
    let threads = thread_count()?;
    if threads != 1 {
        return Err(Error::Threads { threads });
    }
    // SAFETY: this is the only thread, so no lock can be held by a thread that is missing in the child.
    match check("fork", unsafe { libc::fork() })? {
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(Pid(pid))),
    }
}

/// Ends this process immediately: destructors, flushes and exit handlers are skipped. It is meant for a child made by
/// [`fork`]: the kernel frees a copied address space faster as a whole than piece by piece.
pub fn exit_at_once(code: u8) -> ! {
    // SAFETY: ends the process and touches no memory.
    unsafe { libc::_exit(code.into()) }
}

fn thread_count() -> Result<u64, Error> {
    // The link count of this directory is the number of threads plus two: one call instead of a scan.
    let path = "/proc/self/task";
    let links = fs::metadata(path)
        .map_err(Error::file("count the threads in", path))?
        .nlink();
    Ok(links.saturating_sub(2))
}

/// Starts a new session: leaves the old session, process group and controlling terminal.
///
/// # Errors
/// `EPERM` if this process leads a process group.
pub fn new_session() -> Result<(), Error> {
    // SAFETY: changes only this process's session.
    check("start a session", unsafe { libc::setsid() }).map(drop)
}

/// Raises the soft limit of descriptors to the hard limit. Returns the old soft limit and the hard limit. Ranks should get
/// the old soft limit back, because programs that use select(2) break above 1,024.
#[must_use]
pub fn raise_descriptor_limit() -> (u64, u64) {
    let (soft, hard) = limit(Resource::Descriptors);
    if soft < hard {
        let raised = libc::rlimit {
            rlim_cur: hard,
            rlim_max: hard,
        };
        // SAFETY: reads an owned struct. If the call is refused, the old limit stays, which is a valid outcome.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) };
    }
    (soft, hard)
}

/// Returns the soft and the hard limit of this process; `u64::MAX` means unlimited.
#[must_use]
pub fn limit(resource: Resource) -> (u64, u64) {
    let mut limit = [u64::MAX; 2];
    // SAFETY: the kernel writes two 64-bit numbers into an owned array; no limit is changed.
    unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            0_i32,
            resource.raw(),
            std::ptr::null::<u64>(),
            limit.as_mut_ptr(),
        );
    }
    (limit[0], limit[1])
}

/// Closes all descriptors from this one on, which our caller has left open. Nothing in this process may own one of
/// them: call it while no file is open.
pub fn close_from(first: u32) {
    // SAFETY: nothing in this process owns a descriptor yet, so that none is closed under its owner.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) == 0 };
    if done {
        return;
    }
    // Kernels before 5.9 do not have the call.
    let open = numeric_entries("/proc/self/fd")
        .filter(|&fd| u32::try_from(fd).is_ok_and(|fd| fd >= first));
    for fd in open.collect::<Vec<_>>() {
        // SAFETY: as above. The descriptor of the listing itself is closed already, and the call fails.
        unsafe { libc::close(fd) };
    }
}

/// Sets close-on-exec on every descriptor from `first` on. Call it first in `main`, so that ranks do not inherit
/// descriptors that our caller leaked to us.
pub fn close_on_exec_from(first: u32) {
    // SAFETY: changes only flags of descriptors.
    let done = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        ) == 0
    };
    if done {
        return;
    }
    // Kernels before 5.11 do not have the flag.
    for fd in
        numeric_entries("/proc/self/fd").filter(|&fd| u32::try_from(fd).is_ok_and(|fd| fd >= first))
    {
        // SAFETY: changes only a flag; for a descriptor closed meanwhile the call fails.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Contents of /proc/PID/stat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Process id.
    pub pid: Pid,
    /// Parent's process id.
    pub ppid: Pid,
    /// State: R running, S sleeping, D uninterruptible, T stopped, t traced, Z zombie, I idle.
    pub state: char,
    /// Process group.
    pub pgrp: Pid,
    /// Session.
    pub session: Pid,
    /// Start time in clock ticks since boot. Together with the pid it identifies the process.
    pub start_time: u64,
    /// Name of the command, at most 15 bytes.
    pub name: String,
    /// CPU time of its threads, and of the children that it has reaped: `user` and `system` together.
    pub cpu: Duration,
    /// The part in user mode.
    pub user: Duration,
    /// The part in the kernel.
    pub system: Duration,
    /// Addresses of the program in memory.
    pub loaded: Loaded,
    /// Whether it is a kernel thread, which has no memory of its own.
    pub is_kernel: bool,
}

/// The flag `PF_KTHREAD` of a process.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Addresses at which the kernel has placed a program in its process. After an exec at least the stack begins elsewhere.
/// All are 0 for a process that we may not inspect, and for a zombie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Start of the program's code.
    pub code: u64,
    /// Start of the stack of its first thread.
    pub stack: u64,
}

/// Returns the contents of /proc/PID/stat; `None` if the process is gone.
#[must_use]
pub fn inspect(pid: Pid) -> Option<ProcessInfo> {
    parse_stat(&read_proc(pid, "stat")?)
}

/// Returns the start time of `pid` in clock ticks since boot, which together with the pid identifies the process. `None` if
/// it is gone.
#[must_use]
pub fn start_time(pid: Pid) -> Option<u64> {
    inspect(pid).map(|info| info.start_time)
}

/// Returns true if a signal to `pid` would have its default action. That is so if the process neither handles nor ignores
/// it, and some thread neither blocks it nor waits for it. Returns `false` if the process is gone.
///
/// /proc shows a signal that a thread waits for in `sigwait` as not blocked, so the thread's system call is checked. If the
/// kernel does not reveal the call, the thread counts as not waiting. Call this before sending the signal, since a thread
/// that the signal has woken may be anywhere.
#[must_use]
pub fn leaves_to_default(pid: Pid, signal: Signal) -> bool {
    let place = u32::try_from(signal.0 - 1).unwrap_or(u32::MAX);
    let bit = 1_u64.checked_shl(place).unwrap_or(0);
    let lacks = |status: &[u8], names: &[&str]| {
        let text = String::from_utf8_lossy(status);
        names.iter().all(|name| {
            let mask = text
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            mask.is_some_and(|mask| mask & bit == 0)
        })
    };
    if !read_proc(pid, "status").is_some_and(|status| lacks(&status, &["SigIgn:", "SigCgt:"])) {
        return false;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().flatten().any(|thread| {
        let blocks_not =
            fs::read(thread.path().join("status")).is_ok_and(|status| lacks(&status, &["SigBlk:"]));
        blocks_not && !waits_for_signals(&thread.path())
    })
}

/// Returns true if the thread with this /proc directory is in `sigwait`, `sigwaitinfo` or `sigtimedwait`.
fn waits_for_signals(thread: &Path) -> bool {
    let call = fs::read_to_string(thread.join("syscall")).unwrap_or_default();
    let number = call.split_whitespace().next();
    number.and_then(|number| number.parse().ok()) == Some(libc::SYS_rt_sigtimedwait)
}

/// Returns the tracer of `pid`; `None` if it has none, or is gone.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`: its status could not be read now.
pub fn tracer(pid: Pid) -> Result<Option<Pid>, Error> {
    let path = format!("/proc/{pid}/status");
    let read = fs::File::open(&path).and_then(|mut file| read_kernel_file(&mut file));
    let status = match read {
        Ok(status) => status,
        Err(error) => {
            let error = Error::file("read", path)(error);
            return match error.errno() {
                libc::EMFILE | libc::ENFILE | libc::ENOMEM => Err(error),
                _ => Ok(None),
            };
        }
    };
    let line = status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"TracerPid:"));
    let number = line.and_then(|line| std::str::from_utf8(line).ok()?.trim().parse().ok());
    Ok(number.filter(|tracer| *tracer != 0).map(Pid))
}

/// Returns the environment that `pid` was started with: `NAME=value` entries, each ended by a zero byte. `None` if the
/// process is gone or we may not read it.
#[must_use]
pub fn environment_of(pid: Pid) -> Option<Vec<u8>> {
    read_proc(pid, "environ")
}

/// Returns the number of bytes that `pid` and its threads have written with system calls, to any kind of file. `None` if
/// the process is gone or we may not read it.
#[must_use]
pub fn bytes_written(pid: Pid) -> Option<u64> {
    let io = read_proc(pid, "io")?;
    let mut lines = io.split(|&byte| byte == b'\n');
    let count = lines.find_map(|line| line.strip_prefix(b"wchar: "))?;
    std::str::from_utf8(count).ok()?.parse().ok()
}

/// Returns a pidfd, which becomes readable when `pid` exits, whether or not it is our child. `None` if the process is gone,
/// or on kernels before 5.3.
#[must_use]
pub fn end_of(pid: Pid) -> Option<OwnedFd> {
    // SAFETY: opens a descriptor, which closes on exec, and touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: it was opened above, and nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the pids of all processes, ascending.
#[must_use]
pub fn all_processes() -> Vec<Pid> {
    let mut pids: Vec<Pid> = numeric_entries("/proc").map(Pid).collect();
    pids.sort_unstable();
    pids
}

/// Returns the direct children of this process, including zombies. The kernel may omit one while another exits: repeat the
/// call until [`crate::has_children`] returns false.
#[must_use]
pub fn children() -> Vec<Pid> {
    let own = current_pid();
    listed_children(own).unwrap_or_else(|| {
        let parents = parents_of_all();
        parents
            .into_iter()
            .filter(|&(_, parent)| parent == own)
            .map(|(pid, _)| pid)
            .collect()
    })
}

/// Returns all descendants of `root`, parents before their children. Processes come and go meanwhile: repeat the call until
/// it returns none.
///
/// The kernel's lists of children are followed, at a cost proportional to the number of descendants. If they yield nothing
/// (on an old kernel, or because a child was omitted while another exited), every process is examined.
#[must_use]
pub fn descendants(root: Pid) -> Vec<Pid> {
    descendants_without_those_below(root, |_| false)
}

/// Returns the descendants of `root`, as [`descendants`] does, without those that are below a process for which `is_end` returns true.
/// Where most children are known, this costs as much as there are others.
#[must_use]
pub fn descendants_without_those_below(root: Pid, is_end: impl Fn(Pid) -> bool) -> Vec<Pid> {
    let listed = walk(root, |parent| match is_end(parent) {
        true => Vec::new(),
        false => listed_children(parent).unwrap_or_default(),
    });
    if !listed.is_empty() {
        return listed;
    }
    let mut children_of: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
    for (pid, parent) in parents_of_all() {
        children_of.entry(parent).or_default().push(pid);
    }
    walk(root, |parent| match is_end(parent) {
        true => Vec::new(),
        false => children_of.remove(&parent).unwrap_or_default(),
    })
}

/// Returns the descendants of `root` as far as the kernel lists them now. Unlike [`descendants`], it does not look through all processes
/// if there are none, unless the kernel has no such lists: ask it about many processes.
#[must_use]
pub fn listed_descendants(root: Pid) -> Vec<Pid> {
    match listed_children(root) {
        Some(_) => walk(root, |parent| listed_children(parent).unwrap_or_default()),
        None => descendants(root),
    }
}

fn walk(root: Pid, mut children_of: impl FnMut(Pid) -> Vec<Pid>) -> Vec<Pid> {
    let mut found = Vec::new();
    // A pid that is reused meanwhile could close a cycle.
    let mut seen = BTreeSet::from([root]);
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for child in children_of(parent) {
            if seen.insert(child) {
                found.push(child);
                next.push(child);
            }
        }
    }
    found
}

/// Returns the children that the kernel lists for each thread of `pid`; `None` without CONFIG_PROC_CHILDREN.
fn listed_children(pid: Pid) -> Option<Vec<Pid>> {
    let mut children = Vec::new();
    let mut supported = false;
    for thread in numeric_entries(&format!("/proc/{pid}/task")) {
        // If a thread has exited meanwhile, its children now belong to another thread.
        let file = format!("task/{thread}/children");
        let list = read_proc(pid, &file).and_then(|list| String::from_utf8(list).ok());
        if let Some(text) = list {
            supported = true;
            children.extend(
                text.split_ascii_whitespace()
                    .filter_map(|word| word.parse().ok())
                    .map(Pid),
            );
        }
    }
    children.sort_unstable();
    children.dedup();
    supported.then_some(children)
}

fn parents_of_all() -> Vec<(Pid, Pid)> {
    numeric_entries("/proc")
        .filter_map(|pid| inspect(Pid(pid)))
        .map(|info| (info.pid, info.ppid))
        .collect()
}

/// Returns the entries of a directory whose names are numbers.
pub(crate) fn numeric_entries(directory: &str) -> impl Iterator<Item = i32> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .filter_map(|entry| {
            entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
        })
}

pub(crate) fn read_proc(pid: Pid, file: &str) -> Option<Vec<u8>> {
    let mut file = fs::File::open(format!("/proc/{pid}/{file}")).ok()?;
    read_kernel_file(&mut file).ok()
}

/// Parses /proc/PID/stat. The name is in parentheses and may contain anything, including parentheses and spaces, so it ends
/// at the last closing one.
fn parse_stat(stat: &[u8]) -> Option<ProcessInfo> {
    let open = stat.iter().position(|&byte| byte == b'(')?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let pid = std::str::from_utf8(stat.get(..open)?)
        .ok()?
        .trim()
        .parse()
        .ok()?;
    let name = String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let mut number = || fields.next().and_then(|field| field.parse().ok());
    let (ppid, pgrp, session) = (number()?, number()?, number()?);
    // Field 22 of proc_pid_stat(5). `rest` begins with field 3.
    let start_time = rest.split_ascii_whitespace().nth(19)?.parse().ok()?;
    // Fields 14 to 17: CPU time of the process and of its reaped children.
    let ticks = rest.split_ascii_whitespace().skip(11).take(4);
    let mut ticks = ticks.map(|field| field.parse::<u32>().unwrap_or(0));
    let mut time = || TICK.saturating_mul(ticks.next().unwrap_or(0));
    let [user, system, children_user, children_system] = [(); 4].map(|()| time());
    let user = user.saturating_add(children_user);
    let system = system.saturating_add(children_system);
    // Fields 9, 26 and 28: flags, start of code, start of stack.
    let field = |at| {
        let mut fields = rest.split_ascii_whitespace();
        fields
            .nth(at)
            .and_then(|field| field.parse().ok())
            .unwrap_or(0_u64)
    };
    let loaded = Loaded {
        code: field(23),
        stack: field(25),
    };
    Some(ProcessInfo {
        pid: Pid(pid),
        ppid: Pid(ppid),
        state,
        pgrp: Pid(pgrp),
        session: Pid(session),
        start_time,
        name,
        cpu: user.saturating_add(system),
        user,
        system,
        loaded,
        is_kernel: field(6) & KERNEL_THREAD != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_parsed_whatever_the_name() {
        let line = |name: &str| {
            format!(
                "42 ({name}) T 7 41 40 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 2 18446744073709551615 4096 8192 140000 1\n"
            )
        };
        for name in ["sleep", "a b", "x) R 1 (y", "(", ")", "", "\u{e9}"] {
            let expected = ProcessInfo {
                pid: Pid(42),
                ppid: Pid(7),
                state: 'T',
                pgrp: Pid(41),
                session: Pid(40),
                start_time: 987_654,
                name: name.to_owned(),
                cpu: Duration::from_millis(260),
                user: Duration::from_millis(120),
                system: Duration::from_millis(140),
                loaded: Loaded {
                    code: 4096,
                    stack: 140_000,
                },
                is_kernel: false,
            };
            assert_eq!(parse_stat(line(name).as_bytes()), Some(expected), "{name}");
        }
        let worker = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0\n";
        assert!(parse_stat(worker.as_bytes()).unwrap().is_kernel);
        for broken in [
            "",
            "42",
            "42 (x",
            "42 (x)",
            "42 (x) S 1 2",
            "x (y) S 1 2 3",
            ")(",
        ] {
            assert_eq!(parse_stat(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn we_find_ourselves() {
        let own = inspect(current_pid()).unwrap();
        let parent = Pid(i32::try_from(std::os::unix::process::parent_id()).unwrap());
        assert_eq!(own.pid, current_pid());
        assert_eq!(own.ppid, parent);
        assert!(all_processes().contains(&current_pid()));
        assert_eq!(start_time(current_pid()), Some(own.start_time));
        assert_eq!(tracer(current_pid()).unwrap(), None);
        assert!(environment_of(current_pid()).is_some());
        assert_eq!(inspect(Pid(i32::MAX)), None);
        assert!(descendants(parent).contains(&current_pid()));
        assert!(!host_name().is_empty());
    }

    #[test]
    fn pids_that_mean_everybody_are_refused() {
        for pid in [0, -1, -7] {
            assert_eq!(
                kill(Pid(pid), Signal(0)).unwrap_err().errno(),
                libc::EINVAL,
                "{pid}"
            );
        }
        for pid in [1, 0, -1] {
            assert_eq!(
                kill_group(Pid(pid), Signal(0)).unwrap_err().errno(),
                libc::EINVAL,
                "{pid}"
            );
        }
        kill(current_pid(), Signal(0)).unwrap();
        assert_eq!(
            kill(Pid(i32::MAX), Signal(0)).unwrap_err().errno(),
            libc::ESRCH
        );
    }

    #[test]
    fn fork_is_refused_while_threads_run() {
        // The test harness itself runs this in a second thread.
        assert!(matches!(fork(), Err(Error::Threads { threads }) if threads >= 2));
    }

    #[test]
    fn limits_can_be_raised() {
        let (soft, hard) = raise_descriptor_limit();
        assert!(soft <= hard);
        assert_eq!(limit(Resource::Descriptors), (hard, hard));
    }
}
