//! Processes that are not ours, looked at from outside: their threads, memory and files. A thread is stopped for a
//! moment where its registers are wanted, and runs on as if nothing had been.
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

/// A thread that stands because of us. Dropping it lets it go.
#[derive(Debug)]
pub struct StoppedThread {
    tid: Pid,
    /// When it was made to stop.
    since: Instant,
    /// A signal that came while it was stopped and that it must still get.
    signal: i32,
}

/// Why a thread could not be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStopped {
    /// It has ended.
    Gone,
    /// The kernel forbids it, or another process traces it already.
    NotPermitted,
    /// It did not stop in time. It sleeps where no signal reaches it.
    Late,
    /// The kernel refused it with this error number.
    Refused(i32),
}

/// What /proc/PID/task/TID/stat says of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// R running, S sleeping, D uninterruptible, T stopped, t traced, Z dead.
    pub state: char,
    /// The processor time that it has used.
    pub cpu: Duration,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// The processor that it ran on last.
    pub processor: u32,
}

/// How long we spin for a thread to stop before we let others run between the looks.
const SPIN: Duration = Duration::from_micros(300);

impl StoppedThread {
    /// Stops a thread, for which it need not be the first of its process, and waits for `patience` until it stands.
    ///
    /// It gets no signal, and its process is not stopped. A system call that it sleeps in goes on afterwards. The kernel ends
    /// a few for this with `EINTR`, as it does for any signal (`epoll_wait` and its kin): those without a time limit are
    /// begun again, those with one are not, for the time that is left is not known.
    ///
    /// # Errors
    /// See [`NotStopped`]. A thread that is late stands as soon as it can, until [`sleep_and_detach_late`] lets it go.
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

    /// Its registers.
    ///
    /// # Errors
    /// `ESRCH`: it was killed.
    pub fn registers(&self) -> Result<Registers, Error> {
        Ok(arch::leading(&arch::read(self.tid)?))
    }

    /// Lets it go; how long it has stood at most.
    #[must_use = "drop it where the time is of no interest"]
    pub fn release(self) -> Duration {
        let since = self.since;
        drop(self);
        since.elapsed()
    }

    /// Has a call begun again that the kernel has ended because of our stop, although nobody has sent a signal.
    fn repair(&self) {
        let Ok(registers) = arch::read(self.tid) else {
            return;
        };
        let Some(registers) = arch::begun_again(registers) else {
            return;
        };
        // A signal that waits behind our stop has ended the call as well, and its program may rely on that.
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
    /// Threads that are traced by this one and do not stand yet, or were killed and not waited for: their own parent does
    /// not get them before. At most as many as there are threads of what is looked at.
    static LATE: RefCell<Vec<Pid>> = const { RefCell::new(Vec::new()) };
}

/// How long threads that are late may stand before they are let go.
const LATE_STEP: Duration = Duration::from_millis(5);

/// Sleeps, and meanwhile detaches threads that stopped after [`StoppedThread::stop`] had given up on them. Call it between
/// two samples, with zero where there is no time to spend.
pub fn sleep_and_detach_late(time: Duration) {
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
            return;
        }
        thread::sleep(if late > 0 { left.min(LATE_STEP) } else { left });
    }
}

/// What a thread that we trace does.
enum Traced {
    /// It stands, and must still get this signal, or none if it is 0.
    Stopped(i32),
    /// It runs, or sleeps where no signal reaches it.
    Runs,
    /// It has ended, and was waited for.
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
            // What is no event of the tracing is a signal on its way.
            found if found > 0 && libc::WIFSTOPPED(status) => match status >> 16 {
                0 => Traced::Stopped(libc::WSTOPSIG(status)),
                _ => Traced::Stopped(0),
            },
            _ => Traced::Gone,
        };
    }
}

/// Lets a thread go that stands; whether it did.
fn detach(tid: Pid, signal: i32) -> bool {
    let signal = usize::try_from(signal).unwrap_or(0);
    // Only a thread that was killed refuses.
    request(libc::PTRACE_DETACH, tid, signal).is_ok()
}

/// Whether a signal waits for a thread that does not block it; yes, if that is not to be known.
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

/// Copies what a process has at `address` into `buffer`; the number of bytes that are there, from the first on.
///
/// # Errors
/// `EFAULT`: not even the first byte is there. `EPERM`: it is not ours to look at. `ESRCH`: it is gone.
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

/// What a process has mapped, as the kernel writes it; nothing when it is gone or not ours to look at.
#[must_use]
pub fn mappings(pid: Pid) -> Option<Vec<u8>> {
    read_proc(pid, "maps").filter(|maps| !maps.is_empty())
}

/// The arguments of a process, each ended by a zero byte; nothing when it is gone.
#[must_use]
pub fn arguments_of(pid: Pid) -> Option<Vec<u8>> {
    read_proc(pid, "cmdline")
}

/// The program that a process executes, as it is called there; nothing when it is gone or not ours to look at.
#[must_use]
pub fn program_of(pid: Pid) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The real user of a process; nothing when it is gone.
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

/// The threads of a process, the first one first; none when it is gone.
#[must_use]
pub fn threads_of(pid: Pid) -> Vec<Pid> {
    let mut threads: Vec<Pid> = numeric_entries(&format!("/proc/{pid}/task"))
        .map(Pid::from_raw)
        .collect();
    threads.sort_unstable_by_key(|&tid| (tid != pid, tid));
    threads
}

/// The thread by which a process can be seen: its first one, which has its number, unless that has ended and others live on.
/// Then what a process has is found only under the number of one of them.
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

/// What the kernel says of a thread; nothing when it is gone.
#[must_use]
pub fn inspect_thread(pid: Pid, tid: Pid) -> Option<ThreadInfo> {
    let mut info = parse_thread(&read_proc(pid, &format!("task/{tid}/stat"))?)?;
    // To the nanosecond, where this kernel counts so: that a thread has not run at all is worth knowing.
    let exact = read_proc(pid, &format!("task/{tid}/schedstat"));
    if let Some(cpu) = exact.as_deref().and_then(parse_run_time) {
        info.cpu = cpu;
    }
    Some(info)
}

/// The processor time that a process has used with all its threads; nothing when it is gone.
#[must_use]
pub fn processor_time(pid: Pid) -> Option<Duration> {
    parse_thread(&read_proc(pid, "stat")?).map(|info| info.cpu)
}

/// The first number of /proc/PID/schedstat: nanoseconds on a processor. It is 0 where the kernel does not count.
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

/// What a thread does in the kernel; nothing when it is gone or not ours to look at.
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

/// A file as a process sees it, in its own file system; nothing when it cannot be opened.
///
/// It stays as it is now while it is looked at, unless somebody writes into it: compilers and package managers put a
/// new file in its place.
#[must_use]
pub fn map_file_of(pid: Pid, path: &Path) -> Option<Mapped> {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let open = |inside: &Path| Mapped::open(&root.join(inside)).ok();
    open(path.strip_prefix("/").ok()?).or_else(|| {
        // The kernel gives paths from our own root, in which that of the process may lie.
        let beginning = fs::read_link(&root).ok()?;
        open(path.strip_prefix(beginning).ok()?)
    })
}

/// A file that has no name any more but is mapped at `start` to `end`.
#[must_use]
pub fn map_deleted_file_of(pid: Pid, start: u64, end: u64) -> Option<Mapped> {
    Mapped::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}").as_ref()).ok()
}
