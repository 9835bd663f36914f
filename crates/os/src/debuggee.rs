//! A process under our control, as a debugger has it: all of its threads are traced, it stops at one breakpoint, and it is
//! stopped or runs as a whole.
//!
//! A breakpoint is an instruction in the memory of the process. A child that the process forks has a copy of this memory and no
//! tracer, and would be killed by the breakpoint. So forks are traced for a moment: the child's copy is repaired, and the child
//! runs on untraced. A child that shares the memory until it executes a program (vfork) does not reach the breakpoint.
//!
//! The kernel kills the process when this thread exits, as long as the process is traced (`PTRACE_O_EXITKILL`).
#![expect(
    unsafe_code,
    reason = "nix has no PTRACE_SEIZE with the events and the listening stops that are needed"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    marker::PhantomData,
    os::unix::fs::FileExt,
    ptr,
    time::{Duration, Instant},
};

use base::{ExitStatus, Signal, Usage};
use nix::errno::Errno;

use crate::{
    arch,
    error::Error,
    foreign::threads_of,
    process::{Pid, read_proc},
    reap::{ChildEvent, decode, leave_stopped},
    signal::{SignalSet, wait_for_signal},
    spawn::{SpawnError, SpawnSpec, Spawner, Trace},
};

/// A traced process. Dropping it leaves the process traced, so that the kernel kills it when this thread exits.
#[derive(Debug)]
pub struct Debuggee {
    pid: Pid,
    threads: BTreeMap<Pid, Thread>,
    breakpoint: Option<Breakpoint>,
    /// The thread that was reported to be at the breakpoint. Others may be there too: they reach it again.
    arrived: Option<Pid>,
    /// Children that the process has forked and that have not stopped for the first time.
    forked: BTreeMap<Pid, Memory>,
    /// Threads that we trace and know nothing of yet: their first stop came before the event of their creation.
    early: BTreeSet<Pid>,
    /// How the process has ended.
    ended: Option<ExitStatus>,
    /// A SIGCONT of ours, which the process must not get.
    swallows_cont: bool,
    /// ptrace(2) is for the thread that traces.
    _thread: PhantomData<*const ()>,
}

/// A thread of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    Runs,
    /// It is stopped. This signal must still be delivered to it; 0 for none.
    Stopped(i32),
}

/// Whose memory a forked child has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Copied,
    Shared,
}

#[derive(Clone, Copy, Debug)]
struct Breakpoint {
    address: u64,
    original: [u8; arch::BREAKPOINT.len()],
}

/// What ended a time in which the process ran. It is stopped now, unless it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It is about to execute the first instruction behind the breakpoint.
    Breakpoint,
    /// It has executed a program, and is at its first instruction. The breakpoint is gone.
    Executed,
    /// It has ended.
    Ended(ExitStatus),
    /// The time is over.
    Nothing,
    /// This process has a signal pending.
    Interrupted(Signal),
}

/// The longest wait for threads that were asked to stop: they stop at once, unless they are in uninterruptible sleep.
const STOP_MAX: Duration = Duration::from_secs(5);
/// How often to look for a stop for which the kernel may merge the signal with an earlier one.
const LOOK_EVERY: Duration = Duration::from_millis(20);

const OPTIONS: libc::c_int = libc::PTRACE_O_EXITKILL
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK;

/// The event of a stop that no signal and no other event has caused. The libc crate lacks it.
const EVENT_STOP: libc::c_int = 128;

impl Debuggee {
    /// Starts a program, which is then stopped at its first instruction. It gets SIGKILL when this thread exits, also after
    /// [`Self::detach`].
    ///
    /// # Errors
    /// The program could not be started.
    pub fn start(
        spawner: &mut Spawner,
        spec: SpawnSpec<'_>,
    ) -> Result<Result<Self, Error>, SpawnError> {
        let pid = spawner.spawn(&SpawnSpec {
            trace: Trace::StopOnExec,
            ..spec
        })?;
        Ok(Self::take_over(pid))
    }

    /// Makes a child that has stopped at exec for its tracer of the old kind one that can be stopped at any time.
    fn take_over(pid: Pid) -> Result<Self, Error> {
        SignalSet::of(&[Signal::CHLD]).block()?;
        let deadline = Instant::now() + STOP_MAX;
        first_stop(pid, deadline)?;
        leave_stopped(pid)?;
        first_stop(pid, deadline)?;
        request(libc::PTRACE_SEIZE, pid, OPTIONS)?;
        first_stop(pid, deadline)?;
        let mut this = Self::of(pid);
        this.threads.insert(pid, Thread::Stopped(0));
        this.swallows_cont = true;
        crate::process::kill(pid, Signal::CONT)?;
        Ok(this)
    }

    /// Traces a running process, which is then stopped.
    ///
    /// # Errors
    /// `EPERM`: the kernel forbids it, or another process traces it. `ESRCH`: it is gone.
    pub fn attach(pid: Pid) -> Result<Self, Error> {
        SignalSet::of(&[Signal::CHLD]).block()?;
        let mut this = Self::of(pid);
        request(libc::PTRACE_SEIZE, pid, OPTIONS)?;
        this.threads.insert(pid, Thread::Runs);
        // Threads that begin while the others are traced already are traced from their start.
        loop {
            let new: Vec<Pid> = threads_of(pid)
                .into_iter()
                .filter(|tid| !this.threads.contains_key(tid))
                .collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                match request(libc::PTRACE_SEIZE, tid, OPTIONS) {
                    // It has ended meanwhile; or it is traced from its start, and its first stop is still to come.
                    Err(error) if [libc::ESRCH, libc::EPERM].contains(&error.errno()) => {}
                    result => result?,
                }
                this.threads.insert(tid, Thread::Runs);
            }
        }
        this.stop()?;
        this.release_children();
        Ok(this)
    }

    fn of(pid: Pid) -> Self {
        Self {
            pid,
            threads: BTreeMap::new(),
            breakpoint: None,
            arrived: None,
            forked: BTreeMap::new(),
            early: BTreeSet::new(),
            ended: None,
            swallows_cont: false,
            _thread: PhantomData,
        }
    }

    /// Returns its pid.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Puts the breakpoint at an address, and removes an earlier one. The process must be stopped.
    ///
    /// # Errors
    /// `EIO`: there is no such address.
    pub fn set_breakpoint(&mut self, address: u64) -> Result<(), Error> {
        self.remove_breakpoint();
        let mut original = arch::BREAKPOINT;
        let read = crate::foreign::read_memory(self.pid, address, &mut original)?;
        if read != original.len() {
            return Err(Error::nix("read the code of a process")(Errno::EIO));
        }
        write_memory(self.pid, address, &arch::BREAKPOINT)?;
        self.breakpoint = Some(Breakpoint { address, original });
        Ok(())
    }

    /// Returns the address of the breakpoint; `None` if there is none.
    #[must_use]
    pub fn breakpoint(&self) -> Option<u64> {
        self.breakpoint.map(|breakpoint| breakpoint.address)
    }

    /// Removes the breakpoint. The process must be stopped.
    pub fn remove_breakpoint(&mut self) {
        self.arrived = None;
        if let Some(Breakpoint { address, original }) = self.breakpoint.take() {
            // An error means that the process was killed.
            let _ = write_memory(self.pid, address, &original);
        }
    }

    /// Lets the process run until something happens, at most for this time. Signals in `interrupts` must be blocked.
    ///
    /// # Errors
    /// A thread does not stop within five seconds, or a call was refused that the kernel documents as possible.
    pub fn run(&mut self, limit: Duration, interrupts: &[Signal]) -> Result<Happened, Error> {
        self.run_until(limit, interrupts, limit, || false)
    }

    /// Does what [`Self::run`] does, and asks after each interval of `every` whether that is enough.
    ///
    /// # Errors
    /// Those of [`Self::run`].
    pub fn run_until(
        &mut self,
        limit: Duration,
        interrupts: &[Signal],
        every: Duration,
        mut is_enough: impl FnMut() -> bool,
    ) -> Result<Happened, Error> {
        if let Some(status) = self.ended {
            return Ok(Happened::Ended(status));
        }
        self.step_over()?;
        let happened = self.until_something_happens(limit, interrupts, every, &mut is_enough);
        self.release_children();
        happened
    }

    fn until_something_happens(
        &mut self,
        limit: Duration,
        interrupts: &[Signal],
        every: Duration,
        is_enough: &mut dyn FnMut() -> bool,
    ) -> Result<Happened, Error> {
        let deadline = Instant::now() + limit;
        let stopped: Vec<(Pid, i32)> = self
            .threads
            .iter()
            .filter_map(|(tid, thread)| match thread {
                Thread::Stopped(signal) => Some((*tid, *signal)),
                Thread::Runs => None,
            })
            .collect();
        for (tid, signal) in stopped {
            self.go_on(tid, signal);
        }
        let awaited: Vec<Signal> = interrupts.iter().copied().chain([Signal::CHLD]).collect();
        let mut next = Instant::now() + every;
        loop {
            while let Some((tid, status)) = next_status() {
                if let Some(happened) = self.on_running(tid, status)? {
                    if !matches!(happened, Happened::Ended(_)) {
                        self.stop()?;
                    }
                    return Ok(happened);
                }
            }
            let now = Instant::now();
            let is_time = now >= next;
            if is_time {
                next = now + every;
            }
            let left = deadline.min(next).saturating_duration_since(now);
            if now >= deadline || (is_time && is_enough()) {
                self.stop()?;
                return Ok(self.ended.map_or(Happened::Nothing, Happened::Ended));
            }
            match wait_for_signal(&awaited, left) {
                Some(Signal::CHLD) | None => {}
                Some(signal) => {
                    self.stop()?;
                    return Ok(Happened::Interrupted(signal));
                }
            }
        }
    }

    /// Removes the breakpoint, and lets the process run untraced. The process must be stopped.
    pub fn detach(mut self) {
        self.remove_breakpoint();
        for (tid, thread) in &self.threads {
            let Thread::Stopped(signal) = *thread else {
                continue;
            };
            // Only a thread that was killed refuses.
            let _ = request(libc::PTRACE_DETACH, *tid, signal);
        }
    }

    /// Stops all threads.
    fn stop(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + STOP_MAX;
        let running: Vec<Pid> = self.running().collect();
        for tid in running {
            // A thread that has ended is reported below.
            let _ = request(libc::PTRACE_INTERRUPT, tid, 0);
        }
        while self.running().next().is_some() && self.ended.is_none() {
            while let Some((tid, status)) = next_status() {
                self.on_stopping(tid, status)?;
            }
            if self.running().next().is_none() || self.ended.is_some() {
                break;
            }
            if Instant::now() > deadline {
                return Err(Error::nix("stop a process")(Errno::ETIMEDOUT));
            }
            let _ = wait_for_signal(&[Signal::CHLD], LOOK_EVERY);
        }
        Ok(())
    }

    fn running(&self) -> impl Iterator<Item = Pid> {
        let running = self.threads.iter();
        running.filter_map(|(tid, thread)| (*thread == Thread::Runs).then_some(*tid))
    }

    /// Handles a change of a thread while the process runs. Returns what the caller must know.
    fn on_running(&mut self, tid: Pid, status: libc::c_int) -> Result<Option<Happened>, Error> {
        if !self.is_ours(tid, status) || self.has_ended(tid, status) {
            return Ok(self.ended.map(Happened::Ended));
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            0 if self.is_at_breakpoint(tid, signal)? => {
                self.arrived = Some(tid);
                return Ok(Some(Happened::Breakpoint));
            }
            0 if signal == libc::SIGCONT && self.swallows_cont => {
                self.swallows_cont = false;
                self.go_on(tid, 0);
            }
            0 => self.go_on(tid, signal),
            libc::PTRACE_EVENT_EXEC => {
                self.on_exec();
                return Ok(Some(Happened::Executed));
            }
            EVENT_STOP if is_stop(signal) => {
                // It stays stopped until a SIGCONT, as it would without us.
                let _ = request(libc::PTRACE_LISTEN, tid, 0);
            }
            event => {
                self.on_new(tid, event);
                self.go_on(tid, 0);
            }
        }
        Ok(None)
    }

    /// Handles a change of a thread while the process is to be stopped.
    fn on_stopping(&mut self, tid: Pid, status: libc::c_int) -> Result<(), Error> {
        if !self.is_ours(tid, status) || self.has_ended(tid, status) {
            return Ok(());
        }
        let signal = libc::WSTOPSIG(status);
        let kept = match status >> 16 {
            // Another thread at the breakpoint.
            0 if self.is_at_breakpoint(tid, signal)? => 0,
            0 if signal == libc::SIGCONT && self.swallows_cont => {
                self.swallows_cont = false;
                0
            }
            0 => signal,
            libc::PTRACE_EVENT_EXEC => {
                self.on_exec();
                0
            }
            event => {
                self.on_new(tid, event);
                0
            }
        };
        self.threads.insert(tid, Thread::Stopped(kept));
        Ok(())
    }

    /// Returns true if a thread belongs to the process. Deals with those that do not: forked children.
    fn is_ours(&mut self, tid: Pid, status: libc::c_int) -> bool {
        if self.threads.contains_key(&tid) {
            return true;
        }
        if !libc::WIFSTOPPED(status) {
            self.forked.remove(&tid);
            self.early.remove(&tid);
            return false;
        }
        if let Some(memory) = self.forked.remove(&tid) {
            self.release_child(tid, memory);
        } else {
            self.early.insert(tid);
        }
        false
    }

    /// Returns true if the thread has ended, and forgets it.
    fn has_ended(&mut self, tid: Pid, status: libc::c_int) -> bool {
        if libc::WIFSTOPPED(status) {
            return false;
        }
        self.threads.remove(&tid);
        if tid == self.pid
            && let Some(ChildEvent::Exited { status, .. }) = decode(tid, status, Usage::default())
        {
            self.ended = Some(status);
        }
        true
    }

    /// Handles the event of a thread that has created another one, or a process.
    fn on_new(&mut self, tid: Pid, event: libc::c_int) {
        let memory = match event {
            libc::PTRACE_EVENT_VFORK => Memory::Shared,
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_CLONE => Memory::Copied,
            _ => return,
        };
        let Some(new) = event_message(tid) else {
            return;
        };
        let is_thread = event == libc::PTRACE_EVENT_CLONE && threads_of(self.pid).contains(&new);
        let has_stopped = self.early.remove(&new);
        match (is_thread, has_stopped) {
            (true, true) => self.go_on(new, 0),
            (true, false) => drop(self.threads.insert(new, Thread::Runs)),
            (false, true) => self.release_child(new, memory),
            (false, false) => drop(self.forked.insert(new, memory)),
        }
    }

    /// Waits for the first stop of each forked child, and lets it run untraced. Nobody would do that later, if the process is let go.
    fn release_children(&mut self) {
        let deadline = Instant::now() + STOP_MAX;
        for (child, memory) in std::mem::take(&mut self.forked) {
            // An error means that it was killed.
            if first_stop(child, deadline).is_ok() {
                self.release_child(child, memory);
            }
        }
    }

    /// Lets a forked child run untraced, without the breakpoint.
    fn release_child(&self, child: Pid, memory: Memory) {
        if let (Some(breakpoint), Memory::Copied) = (&self.breakpoint, memory) {
            // An error means that the child was killed.
            let _ = write_memory(child, breakpoint.address, &breakpoint.original);
        }
        let _ = request(libc::PTRACE_DETACH, child, 0);
    }

    /// All other threads are gone, and the one that has executed the program has the pid as its number.
    fn on_exec(&mut self) {
        self.threads.clear();
        self.threads.insert(self.pid, Thread::Stopped(0));
        self.breakpoint = None;
        self.arrived = None;
    }

    /// Returns true if the thread has stopped at the breakpoint, and moves it back to the instruction there.
    fn is_at_breakpoint(&mut self, tid: Pid, signal: i32) -> Result<bool, Error> {
        let Some(breakpoint) = &self.breakpoint else {
            return Ok(false);
        };
        if signal != libc::SIGTRAP {
            return Ok(false);
        }
        let registers = match arch::read(tid) {
            Ok(registers) => registers,
            // It was killed.
            Err(error) if error.errno() == libc::ESRCH => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(registers) = arch::before_breakpoint(registers, breakpoint.address) else {
            return Ok(false);
        };
        arch::write(tid, &registers);
        self.threads.insert(tid, Thread::Stopped(0));
        Ok(true)
    }

    /// Has the thread that was reported execute the instruction at the breakpoint, while all others are stopped.
    fn step_over(&mut self) -> Result<(), Error> {
        let Some(Breakpoint { address, original }) = self.breakpoint else {
            return Ok(());
        };
        let Some(tid) = self.arrived.take() else {
            return Ok(());
        };
        write_memory(self.pid, address, &original)?;
        let deadline = Instant::now() + STOP_MAX;
        request(libc::PTRACE_SINGLESTEP, tid, 0)?;
        while !self.has_stepped(tid)? {
            if Instant::now() > deadline {
                return Err(Error::nix("step over a breakpoint")(Errno::ETIMEDOUT));
            }
            let _ = wait_for_signal(&[Signal::CHLD], LOOK_EVERY);
        }
        if self.ended.is_some() {
            return Ok(());
        }
        write_memory(self.pid, address, &arch::BREAKPOINT)
    }

    /// Returns true if a thread has made its single step, or has ended.
    fn has_stepped(&mut self, stepping: Pid) -> Result<bool, Error> {
        while let Some((tid, status)) = next_status() {
            if tid != stepping {
                self.on_stopping(tid, status)?;
                continue;
            }
            if self.has_ended(tid, status) {
                return Ok(true);
            }
            let signal = libc::WSTOPSIG(status);
            if status >> 16 == 0 && signal != libc::SIGTRAP {
                // A signal came first. It is delivered later, with the next start.
                self.threads.insert(tid, Thread::Stopped(signal));
                request(libc::PTRACE_SINGLESTEP, tid, 0)?;
                continue;
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Lets a thread run on.
    fn go_on(&mut self, tid: Pid, signal: i32) {
        // Only a thread that was killed refuses; its end is reported.
        let _ = request(libc::PTRACE_CONT, tid, signal);
        self.threads.insert(tid, Thread::Runs);
    }
}

/// Returns true for the signals that stop a process until SIGCONT.
const fn is_stop(signal: i32) -> bool {
    matches!(
        signal,
        libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU
    )
}

/// Waits until a thread has stopped.
fn first_stop(tid: Pid, deadline: Instant) -> Result<(), Error> {
    loop {
        let mut status = 0;
        // SAFETY: the status is an owned integer.
        let found = unsafe {
            let options = libc::__WALL | libc::WNOHANG | libc::WUNTRACED;
            libc::waitpid(tid.as_raw(), &raw mut status, options)
        };
        match found {
            0 if Instant::now() > deadline => {
                return Err(Error::nix("wait for a program")(Errno::ETIMEDOUT));
            }
            0 => drop(wait_for_signal(&[Signal::CHLD], LOOK_EVERY)),
            -1 if Errno::last() == Errno::EINTR => {}
            -1 => return Err(Error::last("wait for a program")),
            _ if libc::WIFSTOPPED(status) => return Ok(()),
            _ => return Err(Error::nix("trace a program")(Errno::ESRCH)),
        }
    }
}

/// Returns the next change of a child or a traced thread; `None` if there is none now.
fn next_status() -> Option<(Pid, libc::c_int)> {
    loop {
        let mut status = 0;
        // SAFETY: the status is an owned integer.
        let found = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::WNOHANG) };
        match found {
            -1 if Errno::last() == Errno::EINTR => {}
            tid if tid > 0 => return Some((Pid::from_raw(tid), status)),
            _ => return None,
        }
    }
}

/// Returns the number of the thread or process that an event is about.
fn event_message(tid: Pid) -> Option<Pid> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes one word into an owned integer.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_GETEVENTMSG,
            tid.as_raw(),
            ptr::null_mut::<libc::c_void>(),
            &raw mut message,
        )
    };
    let number = (result != -1).then_some(message)?;
    i32::try_from(number).ok().map(Pid::from_raw)
}

fn request(request: libc::c_uint, tid: Pid, data: i32) -> Result<(), Error> {
    // SAFETY: these requests take a pid and a number and touch no memory of ours.
    let result = unsafe { libc::ptrace(request, tid.as_raw(), 0_usize, libc::c_long::from(data)) };
    if result == -1 {
        Err(Error::last("trace a process"))
    } else {
        Ok(())
    }
}

/// Writes into the memory of a process, also where the process itself may not write if we trace it.
///
/// # Errors
/// `EACCES`, `EPERM`: we may not trace it. `EIO`: there is no such address. `ENOENT`: the process is gone.
pub fn write_memory(pid: Pid, address: u64, bytes: &[u8]) -> Result<(), Error> {
    let path = format!("/proc/{pid}/mem");
    let write = || {
        let file = fs::File::options().write(true).open(&path)?;
        file.write_all_at(bytes, address)
    };
    write().map_err(Error::file("write to", &path))
}

/// Returns the address of the first instruction of the program that a process executes. The dynamic linker goes there when it
/// has loaded the libraries of the program. `None` if the process is gone, is not ours to read, or has 32 bits.
#[must_use]
pub fn entry_point(pid: Pid) -> Option<u64> {
    let (words, _) = {
        let vector = read_proc(pid, "auxv")?;
        let (words, rest) = vector.as_chunks::<8>();
        (words.to_vec(), rest.len())
    };
    let words: Vec<u64> = words.into_iter().map(u64::from_le_bytes).collect();
    let mut pairs = words.chunks_exact(2);
    let entry = pairs.find(|pair| pair[0] == libc::AT_ENTRY)?;
    Some(entry[1])
}
