//! Processes: ours, our children, and what /proc says about any.
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

/// A tick of the counters of processor time: `USER_HZ`, which is 100 on all processors of this kind.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// A process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(i32);

impl Pid {
    /// The process with this number.
    #[must_use]
    pub const fn from_raw(raw: i32) -> Self {
        Self(raw)
    }

    /// The number.
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

/// This process.
#[must_use]
pub fn current_pid() -> Pid {
    // SAFETY: asks for a number.
    Pid(unsafe { libc::getpid() })
}

/// The user whose rights this process has.
#[must_use]
pub fn effective_uid() -> u32 {
    // SAFETY: asks for a number.
    unsafe { libc::geteuid() }
}

/// The group whose rights we have.
#[must_use]
pub fn effective_gid() -> u32 {
    // SAFETY: asks for a number.
    unsafe { libc::getegid() }
}

/// The node's name as gethostname(2) gives it; `localhost` where there is none.
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

/// Sends `signal` to one process. Make sure that the pid is still that process: it is while it is our own child
/// that was not reaped; for others compare [`start_time`].
///
/// # Errors
/// `ESRCH` when it is gone, `EPERM` when it is not ours, `EINVAL` for pids below 1, which kill(2) takes for groups.
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

/// Whether the system lets us signal `pid`: it does not where the process belongs to another user.
#[must_use]
pub fn may_signal(pid: Pid) -> bool {
    // SAFETY: signal 0 is sent to nobody, and the call touches no memory.
    let refused = pid.0 >= 1 && unsafe { libc::kill(pid.0, 0) } != 0;
    !(refused && nix::errno::Errno::last() == nix::errno::Errno::EPERM)
}

/// Sends `signal` to the process group that `leader` founded.
///
/// # Errors
/// `ESRCH` when the group is empty, `EPERM` when none of it is ours, `EINVAL` for 1 and below: kill(2) takes -1 for
/// every process there is.
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

/// Makes this process the one that adopts orphaned descendants, also those with sessions of their own.
///
/// # Errors
/// Only on kernels before 3.4.
pub fn become_subreaper() -> Result<(), Error> {
    // SAFETY: this option takes a number and touches no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1_u64, 0_u64, 0_u64, 0_u64) };
    check("adopt orphans", result).map(drop)
}

/// Who we are after [`fork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The old process.
    Parent(Pid),
    /// The new one.
    Child,
}

/// Duplicates this process. A [`crate::Loop`] made before is shared with the child and must not be used there: make
/// loops after forking.
///
/// # Errors
/// `EAGAIN` and `ENOMEM`; [`Error::Threads`] while other threads run.
pub fn fork() -> Result<Forked, Error> {
    let threads = thread_count()?;
    if threads != 1 {
        return Err(Error::Threads { threads });
    }
    // SAFETY: only this thread exists, so no lock can be held by one that the child does not have.
    match check("fork", unsafe { libc::fork() })? {
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(Pid(pid))),
    }
}

/// Ends this process at once: nothing is dropped, flushed or run. For a child made by [`fork`], whose memory is a copy
/// that the kernel frees faster as a whole than piece by piece.
pub fn exit_at_once(code: u8) -> ! {
    // SAFETY: ends the process and touches no memory.
    unsafe { libc::_exit(code.into()) }
}

fn thread_count() -> Result<u64, Error> {
    // The link count of this directory is two more than the threads: one call instead of a scan.
    let path = "/proc/self/task";
    let links = fs::metadata(path)
        .map_err(Error::file("count the threads in", path))?
        .nlink();
    Ok(links.saturating_sub(2))
}

/// Leaves session, process group and controlling terminal behind.
///
/// # Errors
/// `EPERM` when this process leads a group already.
pub fn new_session() -> Result<(), Error> {
    // SAFETY: changes only this process's session.
    check("start a session", unsafe { libc::setsid() }).map(drop)
}

/// Raises the soft limit of descriptors to the hard one. Returns the old soft limit, which ranks should get back
/// because programs that use select(2) break above 1,024, and the hard limit.
#[must_use]
pub fn raise_descriptor_limit() -> (u64, u64) {
    let (soft, hard) = limit(Resource::Descriptors);
    if soft < hard {
        let raised = libc::rlimit {
            rlim_cur: hard,
            rlim_max: hard,
        };
        // SAFETY: reads an owned struct. A refusal leaves the old limit, which is reported as it is.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) };
    }
    (soft, hard)
}

/// Soft and hard limit of this process, `u64::MAX` for none.
#[must_use]
pub fn limit(resource: Resource) -> (u64, u64) {
    let mut limit = [u64::MAX; 2];
    // SAFETY: the kernel writes two 64-bit numbers into an owned array; nothing is set.
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

/// Makes every descriptor from `first` on close when a program is started, whoever left it open. Call it first thing
/// in `main`, so that ranks do not inherit what our caller leaked to us.
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
    // Kernels before 5.11.
    for fd in
        numeric_entries("/proc/self/fd").filter(|&fd| u32::try_from(fd).is_ok_and(|fd| fd >= first))
    {
        // SAFETY: changes only a flag; a number that is closed meanwhile is refused.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// What /proc/PID/stat says about a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// The process.
    pub pid: Pid,
    /// Its parent.
    pub ppid: Pid,
    /// R running, S sleeping, D uninterruptible, T stopped, t traced, Z dead but not reaped, I idle.
    pub state: char,
    /// Its process group.
    pub pgrp: Pid,
    /// Its session.
    pub session: Pid,
    /// When it started, in clock ticks since boot: with the pid, its identity.
    pub start_time: u64,
    /// Its command's name, at most 15 bytes.
    pub name: String,
    /// The processor time of its threads, and of the children whose end it has taken note of.
    pub cpu: Duration,
    /// Where its program was put.
    pub loaded: Loaded,
    /// It is a thread of the kernel, with no memory of its own.
    pub is_kernel: bool,
}

/// `PF_KTHREAD` among the flags of a process.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Where the kernel has put a program in the memory of its process: after an exec its stack, at least, begins elsewhere. All
/// is 0 where it is not ours to look at, and where the process is dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Where the program's own code begins.
    pub code: u64,
    /// Where the stack of its first thread begins.
    pub stack: u64,
}

/// What the kernel knows about `pid`; `None` when it is gone.
#[must_use]
pub fn inspect(pid: Pid) -> Option<ProcessInfo> {
    parse_stat(&read_proc(pid, "stat")?)
}

/// When `pid` started, in clock ticks since boot: with the pid, its identity.
#[must_use]
pub fn start_time(pid: Pid) -> Option<u64> {
    inspect(pid).map(|info| info.start_time)
}

/// Whether a signal to `pid` would have its default action: the process neither handles nor ignores it, and it has a thread
/// that neither blocks it nor waits for it. `false` when the process is gone.
///
/// A thread in `sigwait` shows what it waits for as not blocked, so its system call has to be looked at. Where the kernel
/// does not tell that call, the thread counts as one that does not wait. Ask before the signal is sent: a thread that it
/// has woken may be anywhere.
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

/// Whether the thread with this directory in `/proc` is in `sigwait`, `sigwaitinfo` or `sigtimedwait`.
fn waits_for_signals(thread: &Path) -> bool {
    let call = fs::read_to_string(thread.join("syscall")).unwrap_or_default();
    let number = call.split_whitespace().next();
    number.and_then(|number| number.parse().ok()) == Some(libc::SYS_rt_sigtimedwait)
}

/// Who traces `pid`; `None` when nobody does, or it is gone.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`: it could not be looked up now.
pub fn tracer(pid: Pid) -> Result<Option<Pid>, Error> {
    let path = format!("/proc/{pid}/status");
    let status = match fs::read(&path) {
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

/// The environment that `pid` was started with, `NAME=value` each ended by a zero byte; `None` when it is gone or
/// not ours to read.
#[must_use]
pub fn environment_of(pid: Pid) -> Option<Vec<u8>> {
    read_proc(pid, "environ")
}

/// Bytes that `pid` and its threads have written with system calls, to whatever it was; `None` when it is gone or not ours
/// to read.
#[must_use]
pub fn bytes_written(pid: Pid) -> Option<u64> {
    let io = read_proc(pid, "io")?;
    let mut lines = io.split(|&byte| byte == b'\n');
    let count = lines.find_map(|line| line.strip_prefix(b"wchar: "))?;
    std::str::from_utf8(count).ok()?.parse().ok()
}

/// A descriptor that becomes readable when `pid` ends, whoever its parent is; `None` when it is gone, or the kernel is older
/// than 5.3.
#[must_use]
pub fn end_of(pid: Pid) -> Option<OwnedFd> {
    // SAFETY: it opens a descriptor, which closes on exec, and touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: it was opened above, and nobody else knows it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// All processes, ascending.
#[must_use]
pub fn all_processes() -> Vec<Pid> {
    let mut pids: Vec<Pid> = numeric_entries("/proc").map(Pid).collect();
    pids.sort_unstable();
    pids
}

/// The direct children of this process, dead ones included. The kernel may leave out one while another exits: ask
/// again until [`crate::has_children`] says that there are none.
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

/// The whole subtree below `root`, without it, parents before their children. Processes come and go meanwhile: ask
/// again until it is empty.
///
/// The kernel's own lists of children are followed, which costs as much as there are descendants. Where they give
/// nothing (an old kernel, or a child left out because another one was exiting) every process is looked at.
#[must_use]
pub fn descendants(root: Pid) -> Vec<Pid> {
    let listed = walk(root, |parent| listed_children(parent).unwrap_or_default());
    if !listed.is_empty() {
        return listed;
    }
    let mut children_of: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
    for (pid, parent) in parents_of_all() {
        children_of.entry(parent).or_default().push(pid);
    }
    walk(root, |parent| {
        children_of.remove(&parent).unwrap_or_default()
    })
}

fn walk(root: Pid, mut children_of: impl FnMut(Pid) -> Vec<Pid>) -> Vec<Pid> {
    let mut found = Vec::new();
    // A pid that is reused while we look could close a circle.
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

/// The children that the kernel lists for each thread of `pid`; `None` without CONFIG_PROC_CHILDREN.
fn listed_children(pid: Pid) -> Option<Vec<Pid>> {
    let mut children = Vec::new();
    let mut supported = false;
    for thread in numeric_entries(&format!("/proc/{pid}/task")) {
        // A thread that ended meanwhile has handed its children to another one.
        if let Ok(text) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")) {
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

/// The entries of a directory whose names are numbers.
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

/// Parses /proc/PID/stat. The name is in parentheses and may contain anything, parentheses and spaces too, so the
/// last one ends it.
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
    // Field 22 of proc_pid_stat(5); the session was field 6.
    let start_time = rest.split_ascii_whitespace().nth(19)?.parse().ok()?;
    // Fields 14 to 17.
    let ticks = rest.split_ascii_whitespace().skip(11).take(4);
    let ticks = ticks.filter_map(|field| field.parse::<u32>().ok());
    let ticks = ticks.fold(0, u32::saturating_add);
    // Fields 9, 26 and 28.
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
        cpu: TICK.saturating_mul(ticks),
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
