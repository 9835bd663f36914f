//! Processes that are not ours: their threads, memory and files. A thread is stopped for a moment to read its registers,
//! and runs on as if nothing had happened.
#![expect(
    unsafe_code,
    reason = "nix has no PTRACE_SEIZE of a thread with a wait that ends"
)]

use std::{
    cell::RefCell,
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::uio::{RemoteIoVec, process_vm_readv},
};

use crate::{
    arch,
    error::Error,
    files::Mapped,
    process::{Pid, TICK, numeric_entries, read_proc},
};
use base::{InKernel, Registers};

/// A thread stopped by us. Dropping it lets the thread run on.
#[derive(Debug)]
pub struct StoppedThread {
    tid: Pid,
    /// When the stop was requested.
    since: Instant,
    /// A signal that arrived meanwhile and must be delivered when the thread runs on; 0 for none.
    signal: i32,
}

/// Why a thread could not be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStopped {
    /// It has exited.
    Gone,
    /// The kernel forbids it, or another process traces it already.
    NotPermitted,
    /// It did not stop in time, usually because it is in uninterruptible sleep.
    Late,
    /// The kernel refused it with this errno.
    Refused(i32),
}

/// Contents of /proc/PID/task/TID/stat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// State: R running, S sleeping, D uninterruptible, T stopped, t traced, Z zombie.
    pub state: char,
    /// The CPU time that it has used.
    pub cpu: Duration,
    /// Name of the thread, at most 15 bytes.
    pub name: String,
    /// The CPU that it ran on last.
    pub processor: u32,
}

/// How long to poll for the stop without sleeping, and how long to sleep between later polls.
const SPIN: Duration = Duration::from_micros(300);

impl StoppedThread {
    /// Stops one thread, which need not be the first of its process, and waits at most `patience` until it has stopped.
    ///
    /// The thread gets no signal, and its process is not stopped. A system call that it sleeps in goes on afterwards. The
    /// kernel ends a few calls (such as `epoll_wait`) with `EINTR`, as it does for any signal. Those without a timeout are
    /// restarted; those with one are not, because the remaining time is unknown.
    ///
    /// # Errors
    /// See [`NotStopped`]. A thread that is late stops as soon as it can, until [`sleep_and_detach_late`] lets it run on.
    pub fn stop(tid: Pid, patience: Duration) -> Result<Self, NotStopped> {
        let since = Instant::now();
        request(libc::PTRACE_SEIZE, tid, 0)?;
        if let Err(why) = request(libc::PTRACE_INTERRUPT, tid, 0) {
            LATE.with_borrow_mut(|late| late.push(tid));
            return Err(why);
        }
        loop {
            match traced(tid) {
                Traced::Stopped(signal) => return Ok(Self { tid, since, signal }),
                Traced::Gone => return Err(NotStopped::Gone),
                Traced::Runs => {}
            }
            let waited = since.elapsed();
            if waited > patience {
                LATE.with_borrow_mut(|late| late.push(tid));
                return Err(NotStopped::Late);
            }
            if waited < SPIN {
                thread::yield_now();
            } else {
                thread::sleep(SPIN);
            }
        }
    }

    /// Returns its registers.
    ///
    /// # Errors
    /// `ESRCH`: it was killed.
    pub fn registers(&self) -> Result<Registers, Error> {
        Ok(arch::leading(&arch::read(self.tid)?))
    }

    /// Lets it run on. Returns an upper bound of the time for which it was stopped.
    #[must_use = "drop it where the time is of no interest"]
    pub fn release(self) -> Duration {
        let since = self.since;
        drop(self);
        since.elapsed()
    }

    /// Restarts a system call that the kernel has ended because of our stop, if no signal is pending.
    fn repair(&self) {
        let Ok(registers) = arch::read(self.tid) else {
            return;
        };
        let Some(registers) = arch::begun_again(registers) else {
            return;
        };
        // A pending signal would have ended the call too, and the program may rely on that.
        if self.signal != 0 || has_signal(self.tid) {
            return;
        }
        arch::write(self.tid, &registers);
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        self.repair();
        if !detach(self.tid, self.signal) {
            LATE.with_borrow_mut(|late| late.push(self.tid));
        }
    }
}

thread_local! {
    /// Threads that this thread traces and that have not stopped yet, or were killed and not reaped; their parent cannot
    /// reap them before we do. There are at most as many as the inspected processes have threads.
    static LATE: RefCell<Vec<Pid>> = const { RefCell::new(Vec::new()) };
}

/// How often to poll late threads. A late thread stays stopped for at most this time.
pub const LATE_STEP: Duration = Duration::from_millis(5);

/// Sleeps for `time`, and meanwhile detaches threads that stopped after [`StoppedThread::stop`] had given up. Call it
/// between two samples, with zero if there is no time to spend. Returns the number of late threads that have not stopped yet:
/// unless it is zero, call again after [`LATE_STEP`].
pub fn sleep_and_detach_late(time: Duration) -> usize {
    let begin = Instant::now();
    loop {
        let late = LATE.with_borrow_mut(|late| {
            late.retain(|&tid| match traced(tid) {
                Traced::Stopped(signal) => !detach(tid, signal),
                Traced::Runs => true,
                Traced::Gone => false,
            });
            late.len()
        });
        let left = time.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return late;
        }
        thread::sleep(if late > 0 { left.min(LATE_STEP) } else { left });
    }
}

/// State of a thread that we trace.
enum Traced {
    /// It is stopped. This signal must still be delivered to it; 0 for none.
    Stopped(i32),
    /// It runs, or is in uninterruptible sleep.
    Runs,
    /// It has exited, and was reaped.
    Gone,
}

fn traced(tid: Pid) -> Traced {
    loop {
        let mut status = 0;
        // SAFETY: the status is an owned integer.
        let result =
            unsafe { libc::waitpid(tid.as_raw(), &raw mut status, libc::__WALL | libc::WNOHANG) };
        return match result {
            0 => Traced::Runs,
            -1 if Errno::last() == Errno::EINTR => continue,
            // A stop that is no ptrace event is caused by a signal about to be delivered.
            found if found > 0 && libc::WIFSTOPPED(status) => match status >> 16 {
                0 => Traced::Stopped(libc::WSTOPSIG(status)),
                _ => Traced::Stopped(0),
            },
            _ => Traced::Gone,
        };
    }
}

/// Detaches a stopped thread, so that it runs on. Returns true if that succeeded.
fn detach(tid: Pid, signal: i32) -> bool {
    let signal = usize::try_from(signal).unwrap_or(0);
    // Only a thread that was killed refuses.
    request(libc::PTRACE_DETACH, tid, signal).is_ok()
}

/// Returns true if a signal is pending that the thread does not block, or if that cannot be found out.
fn has_signal(tid: Pid) -> bool {
    let status = read_proc(tid, "status").unwrap_or_default();
    let set = |name: &str| {
        let status = std::str::from_utf8(&status).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    match (set("SigPnd:"), set("ShdPnd:"), set("SigBlk:")) {
        (Some(own), Some(shared), Some(blocked)) => (own | shared) & !blocked != 0,
        _ => true,
    }
}

fn request(request: libc::c_uint, tid: Pid, data: usize) -> Result<(), NotStopped> {
    // SAFETY: these requests take a pid and a number and touch no memory of ours.
    let result = unsafe { libc::ptrace(request, tid.as_raw(), 0_usize, data) };
    if result != -1 {
        return Ok(());
    }
    Err(match Errno::last() {
        Errno::ESRCH => NotStopped::Gone,
        Errno::EPERM | Errno::EACCES => NotStopped::NotPermitted,
        other => NotStopped::Refused(other as i32),
    })
}

/// Copies memory of a process at `address` into `buffer`. Returns the number of bytes that could be read, from the first
/// on.
///
/// # Errors
/// `EFAULT`: not even the first byte is mapped. `EPERM`: we may not read it. `ESRCH`: the process is gone.
pub fn read_memory(pid: Pid, address: u64, buffer: &mut [u8]) -> Result<usize, Error> {
    let length = buffer.len();
    let base = usize::try_from(address).unwrap_or(usize::MAX);
    let mut local = [io::IoSliceMut::new(buffer)];
    let remote = [RemoteIoVec { base, len: length }];
    process_vm_readv(
        nix::unistd::Pid::from_raw(pid.as_raw()),
        &mut local,
        &remote,
    )
    .map_err(Error::nix("read the memory of a process"))
}

/// Returns the memory map of a process as the kernel prints it; `None` if the process is gone or we may not read it.
#[must_use]
pub fn mappings(pid: Pid) -> Option<Vec<u8>> {
    read_proc(pid, "maps").filter(|maps| !maps.is_empty())
}

/// Returns the arguments of a process, each ended by a zero byte; `None` if it is gone.
#[must_use]
pub fn arguments_of(pid: Pid) -> Option<Vec<u8>> {
    read_proc(pid, "cmdline")
}

/// Returns the path of the program that a process executes; `None` if it is gone or we may not read it.
#[must_use]
pub fn program_of(pid: Pid) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Returns the real user id of a process; `None` if it is gone.
#[must_use]
pub fn owner_of(pid: Pid) -> Option<u32> {
    let status = read_proc(pid, "status")?;
    let line = status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"Uid:"))?;
    std::str::from_utf8(line)
        .ok()?
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()
}

/// Returns the threads of a process, the first thread first; none if it is gone.
#[must_use]
pub fn threads_of(pid: Pid) -> Vec<Pid> {
    let mut threads: Vec<Pid> = numeric_entries(&format!("/proc/{pid}/task"))
        .map(Pid::from_raw)
        .collect();
    threads.sort_unstable_by_key(|&tid| (tid != pid, tid));
    threads
}

/// Returns the thread through which a process can be inspected. That is its first thread, whose number is the pid, unless
/// that has exited and others live. Then the process's memory and files are found only under the number of a living one.
#[must_use]
pub fn living_thread_of(pid: Pid) -> Pid {
    let dead = |info: ThreadInfo| matches!(info.state, 'Z' | 'X');
    let stat = |tid: Pid| parse_thread(&read_proc(pid, &format!("task/{tid}/stat"))?);
    if !stat(pid).is_some_and(dead) {
        return pid;
    }
    let mut threads = threads_of(pid).into_iter();
    let alive = threads.find(|&tid| stat(tid).is_some_and(|info| !dead(info)));
    alive.unwrap_or(pid)
}

/// Returns what the kernel reports about a thread; `None` if it is gone.
#[must_use]
pub fn inspect_thread(pid: Pid, tid: Pid) -> Option<ThreadInfo> {
    let mut info = parse_thread(&read_proc(pid, &format!("task/{tid}/stat"))?)?;
    // Exact to the nanosecond, if this kernel counts it: this shows whether a thread has not run at all.
    let exact = read_proc(pid, &format!("task/{tid}/schedstat"));
    if let Some(cpu) = exact.as_deref().and_then(parse_run_time) {
        info.cpu = cpu;
    }
    Some(info)
}

/// Parses the first number of /proc/PID/schedstat: CPU time in nanoseconds. It is 0 if the kernel does not count it.
fn parse_run_time(text: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(text).ok()?;
    let time = text.split_ascii_whitespace().next()?.parse().ok()?;
    (time > 0).then(|| Duration::from_nanos(time))
}

fn parse_thread(stat: &[u8]) -> Option<ThreadInfo> {
    let open = stat.iter().position(|&byte| byte == b'(')?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Fields 3, 14, 15 and 39 of proc_pid_stat(5).
    let ticks = |at: usize| fields.get(at)?.parse::<u32>().ok();
    Some(ThreadInfo {
        state: fields.first()?.chars().next()?,
        cpu: TICK.saturating_mul(ticks(11)?.saturating_add(ticks(12)?)),
        name: String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned(),
        processor: ticks(36)?,
    })
}

/// Returns what a thread does in the kernel; `None` if it is gone or we may not read it.
#[must_use]
pub fn in_kernel(pid: Pid, tid: Pid) -> Option<InKernel> {
    let text = read_proc(pid, &format!("task/{tid}/syscall"))?;
    parse_in_kernel(std::str::from_utf8(&text).ok()?)
}

fn parse_in_kernel(text: &str) -> Option<InKernel> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next()?;
    if first == "running" {
        return Some(InKernel::Running);
    }
    let call: i64 = first.parse().ok()?;
    let mut numbers = words.map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let mut arguments = [0; 6];
    if call >= 0 {
        for argument in &mut arguments {
            *argument = numbers.next()??;
        }
    }
    Some(InKernel::Blocked {
        call: u64::try_from(call).ok(),
        arguments,
        stack: numbers.next()??,
        instruction: numbers.next()??,
    })
}

/// Maps a file at a path in the file system of a process; `None` if it cannot be opened.
///
/// The mapping does not change unless the file is written to: compilers and package managers replace a file by a new one.
#[must_use]
pub fn map_file_of(pid: Pid, path: &Path) -> Option<Mapped> {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let open = |inside: &Path| Mapped::open(&root.join(inside)).ok();
    open(path.strip_prefix("/").ok()?).or_else(|| {
        // The kernel returns paths from our own root, which may contain the root of the process.
        let beginning = fs::read_link(&root).ok()?;
        open(path.strip_prefix(beginning).ok()?)
    })
}

/// Maps a file that a process has mapped at `start` to `end`, even if it was deleted.
#[must_use]
pub fn map_deleted_file_of(pid: Pid, start: u64, end: u64) -> Option<Mapped> {
    Mapped::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}").as_ref()).ok()
}
