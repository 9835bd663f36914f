//! Starting programs: clone with CLONE_VM and CLONE_VFORK.
//!
//! The child shares our memory until it execs, so nothing is copied however large this process is. A failure leaves its
//! step and errno in our memory, where we read them when the call returns: no error pipe is needed
//! (`docs/decisions/0003-spawn.md`). In return, the child may only make raw system calls between clone and exec: no
//! allocation, no lock, no panic, no signal handler.
//!
//! The order of the child's steps matters in four places. The child joins its cgroup first: the descriptor for that is one of
//! ours, and what follows already counts there. Descriptors come before limits, because a low limit of
//! descriptors would prevent moving them. Signals are unblocked before tracing begins: a traced child stops on any signal,
//! and its tracer, which is suspended by vfork, could never continue it. And SIGTSTP is dropped first: a Ctrl-Z that
//! arrives before the child has its own process group would stop it, and us with it.
//!
//! A parent of ten thousand programs holds several descriptors for each. If its descriptor table were copied for every
//! child and then closed there, starting n programs would take n² steps. So the child shares the table at first. The few
//! descriptors that it needs are put under low numbers, and its own copy contains only those. If that is refused, by an old
//! kernel or a container's seccomp filter, the child gets a copy of the whole table.
#![expect(
    unsafe_code,
    reason = "clone with shared memory and the child's raw system calls"
)]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_long, c_void},
    num::NonZeroUsize,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
};

use base::CpuSet;
use nix::{
    errno::Errno,
    sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, mprotect, munmap},
};

use crate::{
    error::{Error, describe_errno},
    pipe,
    process::Pid,
    resource::Resource,
    signal::{self, SignalSet},
};

/// Size of the child's stack. It needs one or two KiB; a debug build needs a little more.
const STACK_SIZE: NonZeroUsize = NonZeroUsize::new(64 << 10).unwrap();
/// Inaccessible memory below the stack, so that an overflow crashes and corrupts nothing.
const GUARD_SIZE: NonZeroUsize = NonZeroUsize::new(64 << 10).unwrap();
/// Number of descriptors that a program usually gets.
const PLACES: usize = 4;
/// Lowest descriptor that the child may close: it always keeps the numbers of the standard streams.
const LOWEST_UNNEEDED: c_int = 3;

/// A program to start and its setup.
#[derive(Debug)]
pub struct SpawnSpec<'a> {
    /// The file to execute. PATH is not searched, and a file of unknown format is not given to a shell. A relative path is
    /// resolved in `cwd`.
    pub program: &'a CStr,
    /// The arguments, beginning with the program's own name.
    pub argv: &'a [CString],
    /// The environment: `NAME=value` entries.
    pub envp: &'a [CString],
    /// More environment, for variables that programs share. It comes behind `envp`, which wins in programs that take the first
    /// of two equal names, as getenv(3) does.
    pub envp_shared: &'a [&'a CStr],
    /// The working directory; ours if `None`.
    pub cwd: Option<&'a CStr>,
    /// Descriptors for the program, each with its number there. Sources and targets may overlap in any way. All other
    /// descriptors must be close-on-exec.
    pub fds: &'a [(BorrowedFd<'a>, i32)],
    /// CPUs that it may run on; ours if `None`.
    pub affinity: Option<&'a CpuSet>,
    /// File mode creation mask; ours if `None`.
    pub umask: Option<u32>,
    /// Who may trace it besides its ancestors, if the kernel restricts that (`PR_SET_PTRACER`).
    pub tracers: Tracers,
    /// Resource limits: which, soft, hard.
    pub limits: &'a [(Resource, u64, u64)],
    /// The session that it runs in.
    pub session: Session,
    /// What happens to it when we end.
    pub orphan: Orphan,
    /// Whether it stops at its first instruction.
    pub trace: Trace,
    /// The file `cgroup.procs` of the cgroup that it joins, open for writing; ours if `None`.
    pub cgroup: Option<BorrowedFd<'a>>,
}

impl<'a> SpawnSpec<'a> {
    /// Returns the setup of a program in our session, without descriptors, that has all else from us.
    #[must_use]
    pub const fn new(program: &'a CStr, argv: &'a [CString], envp: &'a [CString]) -> Self {
        Self {
            program,
            argv,
            envp,
            envp_shared: &[],
            cwd: None,
            fds: &[],
            affinity: None,
            umask: None,
            tracers: Tracers::Ancestors,
            limits: &[],
            session: Session::Ours,
            orphan: Orphan::Killed,
            trace: Trace::No,
            cgroup: None,
        }
    }
}

/// The session that a program runs in. The program leads a process group of its own, unless it is in ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Session {
    /// Ours.
    #[default]
    Ours,
    /// Ours, and our process group: in the foreground the program may read the terminal, whose keys signal it too.
    OursWithGroup,
    /// A new one: the kernel may share CPU time among sessions (`docs/decisions/0013-sessions.md`).
    Own,
    /// A new one, with the terminal on descriptor 0 as its controlling terminal.
    WithTerminal,
}

/// What happens to a program when the thread that has started it exits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orphan {
    /// It gets SIGKILL.
    #[default]
    Killed,
    /// Nothing: it learns of our end in another way, and has to clean up.
    Lives,
}

/// Whether we trace a program when it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trace {
    /// It runs untraced.
    #[default]
    No,
    /// It stops at its first instruction; [`crate::reap()`] reports the stop, [`crate::leave_stopped`] ends the tracing.
    StopOnExec,
}

/// Who may trace a program if the kernel restricts tracing to ancestors: Yama's `ptrace_scope` 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracers {
    /// Its ancestors.
    #[default]
    Ancestors,
    /// Any process of the same user.
    SameUser,
}

/// A step between clone and the program's first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum SpawnStep {
    /// Creating the process.
    Clone,
    /// Moving it to its cgroup.
    Cgroup,
    /// Giving it a process group or session.
    ProcessGroup,
    /// Setting its parent-death signal.
    ParentDeath,
    /// Giving it its descriptors.
    Descriptors,
    /// Giving it its controlling terminal.
    Terminal,
    /// Binding it to CPUs.
    Affinity,
    /// Setting the file mode creation mask.
    Umask,
    /// Changing to the working directory.
    Directory,
    /// Setting resource limits.
    Limits,
    /// Resetting signals.
    Signals,
    /// Starting to be traced by us.
    Trace,
    /// Executing the program.
    Exec,
}

/// Why a program did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot start the program: {step:?}: {}", describe_errno(*errno))]
pub struct SpawnError {
    /// The step that failed.
    pub step: SpawnStep,
    /// The error number, see errno(3).
    pub errno: i32,
}

/// The descriptor table that a child begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    /// Ours; the child replaces it by a copy of its own with close_range(2).
    Shared,
    /// A copy of ours, because close_range is refused.
    Copied,
}

impl Table {
    const fn clone_flags(self) -> c_int {
        match self {
            Self::Shared => libc::CLONE_FILES,
            Self::Copied => 0,
        }
    }
}

/// Starts programs, one after another, on a reused stack. Use it only from a thread that lives as long as the process: the
/// parent-death signal fires when the *thread* that started the child exits.
#[derive(Debug)]
pub struct Spawner {
    stack: Stack,
    pointers: Pointers,
    /// Reserved descriptors with low numbers. While a child starts they are copies of its descriptors; otherwise they are
    /// /dev/null.
    places: Vec<OwnedFd>,
    /// An open /dev/null, for places that are not in use.
    nothing: OwnedFd,
    table: Table,
    /// Bit set of signals that had a handler when this was made, see [`signal::caught`].
    caught: u64,
}

impl Spawner {
    /// Reserves the stack. Signal handlers must be installed before this call.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`, or the error of opening /dev/null.
    pub fn new() -> Result<Self, Error> {
        let nothing = pipe::dev_null()?;
        let places = (0..PLACES)
            .map(|_| pipe::duplicate(nothing.as_fd()))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            stack: Stack::new()?,
            pointers: Pointers::default(),
            places,
            nothing,
            table: Table::Shared,
            caught: signal::caught(),
        })
    }

    /// Starts a program. Returns when it is executing, or has failed, after about 100 us. The program leads a process group
    /// of its own whose number is its pid, unless its [`Session`] says otherwise, and gets SIGKILL when this thread exits,
    /// unless it is to live on. It blocks no signal; those that we handle or ignore ourselves have their default action.
    ///
    /// # Errors
    /// The step that failed, and why. No child is left then.
    pub fn spawn(&mut self, spec: &SpawnSpec<'_>) -> Result<Pid, SpawnError> {
        self.pointers.fill(spec);
        let staged = self.stage(spec).map_err(|error| SpawnError {
            step: SpawnStep::Descriptors,
            errno: error.errno(),
        });
        let result = staged.and_then(|()| {
            let table = self.table;
            let result = self.start(spec);
            if self.table == table {
                return result;
            }
            // close_range was refused before the child did anything else. This happens once: from now on the table is
            // copied.
            self.start(spec)
        });
        for place in self.places.iter().take(spec.fds.len()) {
            // The child's ends must not stay open in this process. It cannot fail: both descriptors are open.
            let _ = pipe::duplicate_onto(self.nothing.as_fd(), place.as_fd());
        }
        result
    }

    /// Puts the descriptors of the next child under low numbers.
    fn stage(&mut self, spec: &SpawnSpec<'_>) -> Result<(), Error> {
        while self.places.len() < spec.fds.len() {
            self.places.push(pipe::duplicate(self.nothing.as_fd())?);
        }
        for (place, (source, target)) in self.places.iter().zip(spec.fds) {
            pipe::duplicate_onto(*source, place.as_fd())?;
            self.pointers.fds.push((place.as_raw_fd(), *target));
        }
        Ok(())
    }

    fn start(&mut self, spec: &SpawnSpec<'_>) -> Result<Pid, SpawnError> {
        let fds = &mut self.pointers.fds;
        let mut child = Child {
            spec,
            argv: &self.pointers.argv,
            envp: &self.pointers.envp,
            first_unneeded_fd: fds
                .iter()
                .map(|&(place, _)| place.saturating_add(1))
                .max()
                .unwrap_or(0)
                .max(LOWEST_UNNEEDED),
            fds,
            table: self.table,
            parent: i32::try_from(std::process::id()).unwrap_or(0),
            default_signals: self.caught | signal::IGNORED_BY_US,
            first_free_fd: spec
                .fds
                .iter()
                .map(|&(_, target)| target.saturating_add(1))
                .max()
                .unwrap_or(0),
            step: SpawnStep::Clone,
            errno: 0,
        };
        // With all signals blocked, no handler of ours can run in the child, which shares our memory.
        let cloned = SignalSet::with_all_blocked(|| {
            // SAFETY: the stack is mapped, aligned and used by nothing else: CLONE_VFORK suspends us until the child has
            // exec'ed or exited. So the child is also the only one to touch `child`, which outlives the call. `run` makes
            // raw system calls only.
            let pid = unsafe {
                libc::clone(
                    run,
                    self.stack.top(),
                    libc::CLONE_VM | self.table.clone_flags() | libc::CLONE_VFORK | libc::SIGCHLD,
                    (&raw mut child).cast::<c_void>(),
                )
            };
            if pid == -1 {
                Err(Errno::last_raw())
            } else {
                Ok(pid)
            }
        });
        let pid = cloned.map_err(|errno| SpawnError {
            step: SpawnStep::Clone,
            errno,
        })?;
        // The child wrote through a pointer, which the compiler need not have noticed: read the fields as volatile.
        // SAFETY: `child` is a live local and the child process is done with it.
        let (step, errno, table) = unsafe {
            (
                (&raw const child.step).read_volatile(),
                (&raw const child.errno).read_volatile(),
                (&raw const child.table).read_volatile(),
            )
        };
        self.table = table;
        if errno == 0 {
            return Ok(Pid::from_raw(pid));
        }
        // SAFETY: waits for our own child, which is exiting; no status is requested.
        while unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WALL) } == -1
            && Errno::last() == Errno::EINTR
        {}
        Err(SpawnError { step, errno })
    }
}

/// Pointer arrays in the form that execve expects, kept for reuse.
#[derive(Debug, Default)]
struct Pointers {
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    /// Raw sources and targets of descriptors.
    fds: Vec<(c_int, c_int)>,
}

impl Pointers {
    fn fill(&mut self, spec: &SpawnSpec<'_>) {
        self.argv.clear();
        self.argv
            .extend(spec.argv.iter().map(|argument| argument.as_ptr()));
        if spec.argv.is_empty() {
            // An empty argv is a security risk for many programs; Linux would add an empty name.
            self.argv.push(spec.program.as_ptr());
        }
        self.argv.push(ptr::null());
        self.envp.clear();
        let own = spec.envp.iter().map(|variable| variable.as_ptr());
        let shared = spec.envp_shared.iter().map(|variable| variable.as_ptr());
        self.envp.extend(own.chain(shared));
        self.envp.push(ptr::null());
        self.fds.clear();
    }
}

/// What the child reads, and the three fields that it writes: `step`, `errno` and `table`.
struct Child<'a> {
    spec: &'a SpawnSpec<'a>,
    argv: &'a [*const c_char],
    envp: &'a [*const c_char],
    fds: &'a mut [(c_int, c_int)],
    parent: c_int,
    default_signals: u64,
    first_free_fd: c_int,
    /// The child needs neither this descriptor nor any above it.
    first_unneeded_fd: c_int,
    step: SpawnStep,
    errno: c_int,
    /// How the descriptor table was made, and how that of the next child should be.
    table: Table,
}

/// Runs in the child until exec. On failure it sets `step` and `errno`, and exits.
extern "C" fn run(argument: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a pointer to a `Child` that outlives us, and is suspended meanwhile.
    let child = unsafe { &mut *argument.cast::<Child<'_>>() };
    let Err(errno) = child.become_program();
    child.errno = errno;
    // SAFETY: ends this process without running any exit handler of the parent.
    unsafe { libc::_exit(127) }
}

/// A type without values: exec does not return on success.
enum Never {}

impl Child<'_> {
    fn become_program(&mut self) -> Result<Never, c_int> {
        self.enter(SpawnStep::Cgroup);
        if let Some(cgroup) = self.spec.cgroup {
            // 0 stands for the process that writes.
            let own = b"0";
            raw(
                libc::SYS_write,
                [word(cgroup.as_raw_fd()), address(own.as_ptr()), 1, 0],
            )?;
        }
        self.enter(SpawnStep::ProcessGroup);
        match self.spec.session {
            Session::Ours => raw(libc::SYS_setpgid, [0, 0, 0, 0])?,
            Session::OursWithGroup => 0,
            Session::Own | Session::WithTerminal => raw(libc::SYS_setsid, [0; 4])?,
        };
        self.enter(SpawnStep::ParentDeath);
        if self.spec.orphan == Orphan::Killed {
            self.die_with_parent()?;
        }
        self.enter(SpawnStep::Descriptors);
        self.leave_our_table()?;
        self.move_descriptors()?;
        self.enter(SpawnStep::Terminal);
        if self.spec.session == Session::WithTerminal {
            raw(libc::SYS_ioctl, [0, word(libc::TIOCSCTTY), 0, 0])?;
        }
        self.enter(SpawnStep::Affinity);
        if let Some(mask) = self.spec.affinity {
            let words = mask.words();
            raw(
                libc::SYS_sched_setaffinity,
                [0, word(size_of_val(words)), address(words.as_ptr()), 0],
            )?;
        }
        self.enter(SpawnStep::Umask);
        if let Some(umask) = self.spec.umask {
            raw(libc::SYS_umask, [word(umask), 0, 0, 0])?;
        }
        self.enter(SpawnStep::Directory);
        if let Some(directory) = self.spec.cwd {
            raw(libc::SYS_chdir, [address(directory.as_ptr()), 0, 0, 0])?;
        }
        self.enter(SpawnStep::Limits);
        for &(resource, soft, hard) in self.spec.limits {
            let limit = [soft, hard];
            raw(
                libc::SYS_prlimit64,
                [0, word(resource.raw()), address(limit.as_ptr()), 0],
            )?;
        }
        self.enter(SpawnStep::Signals);
        self.reset_signals()?;
        self.enter(SpawnStep::Trace);
        if self.spec.tracers == Tracers::SameUser {
            // The setting survives exec. A kernel without Yama does not know the call, and needs no permission.
            let any = word(libc::PR_SET_PTRACER_ANY);
            let _ = raw(libc::SYS_prctl, [word(libc::PR_SET_PTRACER), any, 0, 0]);
        }
        if self.spec.trace == Trace::StopOnExec {
            raw(libc::SYS_ptrace, [word(libc::PTRACE_TRACEME), 0, 0, 0])?;
        }
        self.enter(SpawnStep::Exec);
        self.exec()
    }

    /// Records the current step, so that the parent knows where a failure happened.
    const fn enter(&mut self, step: SpawnStep) {
        self.step = step;
    }

    fn die_with_parent(&self) -> Result<(), c_int> {
        raw(
            libc::SYS_prctl,
            [word(libc::PR_SET_PDEATHSIG), word(libc::SIGKILL), 0, 0],
        )?;
        // The parent may have died before this call; then no signal will come.
        if raw(libc::SYS_getppid, [0; 4])? == c_long::from(self.parent) {
            Ok(())
        } else {
            Err(libc::ESRCH)
        }
    }

    /// Gives the child a descriptor table of its own.
    fn leave_our_table(&mut self) -> Result<(), c_int> {
        if self.table == Table::Copied {
            return Ok(());
        }
        let first = word(self.first_unneeded_fd);
        let last = word(u32::MAX);
        let flags = word(libc::CLOSE_RANGE_UNSHARE);
        match raw(libc::SYS_close_range, [first, last, flags, 0]) {
            // Kernels before 5.9, and containers whose seccomp filter does not know the call. They forbid unshare(2) as
            // well.
            Err(errno @ (libc::ENOSYS | libc::EPERM | libc::EINVAL)) => {
                self.table = Table::Copied;
                Err(errno)
            }
            result => result.map(drop),
        }
    }

    fn move_descriptors(&mut self) -> Result<(), c_int> {
        // First move every source that some entry will overwrite to a number above all targets.
        for index in 0..self.fds.len() {
            let (source, target) = self.fds[index];
            let overwritten =
                source != target && self.fds.iter().any(|&(_, other)| other == source);
            if overwritten {
                let moved = raw(
                    libc::SYS_fcntl,
                    [
                        word(source),
                        word(libc::F_DUPFD_CLOEXEC),
                        word(self.first_free_fd),
                        0,
                    ],
                )?;
                self.fds[index].0 = c_int::try_from(moved).map_err(|_| libc::EBADF)?;
            }
        }
        for &(source, target) in &*self.fds {
            if source == target {
                raw(libc::SYS_fcntl, [word(source), word(libc::F_SETFD), 0, 0])?;
            } else {
                raw(libc::SYS_dup3, [word(source), word(target), 0, 0])?;
            }
        }
        Ok(())
    }

    fn reset_signals(&self) -> Result<(), c_int> {
        // The kernel's sigaction: all zeros is the default disposition in every architecture's layout, and none of these is
        // longer than this array.
        const DEFAULT: [u64; 8] = [0; 8];
        const IGNORE: [u64; 8] = [libc::SIG_IGN as u64, 0, 0, 0, 0, 0, 0, 0];
        const MASK_SIZE: usize = 8;
        // Ignoring a signal discards it if it is pending.
        let mut old = DEFAULT;
        let stop = word(libc::SIGTSTP);
        raw(
            libc::SYS_rt_sigaction,
            [
                stop,
                address(IGNORE.as_ptr()),
                address(old.as_mut_ptr().cast_const()),
                word(MASK_SIZE),
            ],
        )?;
        raw(
            libc::SYS_rt_sigaction,
            [stop, address(old.as_ptr()), 0, word(MASK_SIZE)],
        )?;
        let mut bits = self.default_signals;
        while bits != 0 {
            let signal = bits.trailing_zeros() + 1;
            bits &= bits - 1;
            raw(
                libc::SYS_rt_sigaction,
                [word(signal), address(DEFAULT.as_ptr()), 0, word(MASK_SIZE)],
            )?;
        }
        let none = 0_u64;
        raw(
            libc::SYS_rt_sigprocmask,
            [
                word(libc::SIG_SETMASK),
                address(&raw const none),
                0,
                word(MASK_SIZE),
            ],
        )?;
        Ok(())
    }

    fn exec(&self) -> Result<Never, c_int> {
        let program = address(self.spec.program.as_ptr());
        let argv = address(self.argv.as_ptr());
        let envp = address(self.envp.as_ptr());
        match raw(libc::SYS_execve, [program, argv, envp, 0]) {
            Err(errno) => Err(errno),
            Ok(_) => Err(libc::ENOEXEC),
        }
    }
}

/// Converts a number to a system call's argument. All of them fit: descriptors, signals, small sizes and constants.
fn word(value: impl TryInto<c_long>) -> c_long {
    value.try_into().unwrap_or(-1)
}

/// Converts an address to a system call's argument.
fn address<T>(pointer: *const T) -> c_long {
    pointer.addr().cast_signed() as c_long
}

/// Makes a raw system call. It may overwrite the suspended parent's errno, which is the same word. That is harmless: the
/// parent reads errno only if clone itself failed and there was no child.
fn raw(number: c_long, arguments: [c_long; 4]) -> Result<c_long, c_int> {
    let [a, b, c, d] = arguments;
    // SAFETY: every caller passes what that system call documents, with pointers to memory that lives until exec.
    match unsafe { libc::syscall(number, a, b, c, d) } {
        -1 => Err(Errno::last_raw()),
        result => Ok(result),
    }
}

/// Memory for the child's stack, with an inaccessible guard below.
#[derive(Debug)]
struct Stack {
    base: NonNull<c_void>,
}

impl Stack {
    const TOTAL: NonZeroUsize = STACK_SIZE.saturating_add(GUARD_SIZE.get());

    fn new() -> Result<Self, Error> {
        // SAFETY: a new private mapping that overlaps nothing.
        let base = unsafe {
            mmap_anonymous(
                None,
                Self::TOTAL,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_PRIVATE | MapFlags::MAP_STACK | MapFlags::MAP_NORESERVE,
            )
        }
        .map_err(Error::nix("reserve a stack for new programs"))?;
        let stack = Self { base };
        // SAFETY: the guard is the lower part of the mapping just made, which nothing uses yet.
        unsafe { mprotect(base, GUARD_SIZE.get(), ProtFlags::PROT_NONE) }
            .map_err(Error::nix("protect the stack for new programs"))?;
        // A huge page here would cost 2 MiB of memory. Kernels without huge pages refuse the advice, which is fine.
        // SAFETY: advice about our own mapping.
        let _ = unsafe { madvise(base, Self::TOTAL.get(), MmapAdvise::MADV_NOHUGEPAGE) };
        Ok(stack)
    }

    /// Returns the end of the mapping, where the stack begins: stacks grow downwards. It is aligned for every architecture.
    fn top(&mut self) -> *mut c_void {
        // SAFETY: one past the end of the mapping.
        unsafe { self.base.as_ptr().byte_add(Self::TOTAL.get()) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no child uses it: `spawn` returns only when the child has left it. A failure
        // would leave it mapped, which is harmless.
        let _ = unsafe { munmap(self.base, Self::TOTAL.get()) };
    }
}
