//! The stack of a thread: its frames, and whether the thread runs or waits.
//!
//! Threads of different ranks that do the same have equal frames: a [`Frame`] contains no address, pid or thread id. So stacks
//! can be compared and merged. Equal frames are stored once, in [`Frames`], and referred to by [`FrameId`].

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// A location in a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The name of the function as in its language; `None` if there is no symbol for the address.
    pub function: Option<Arc<str>>,
    /// The file name, without directories, of the program or library that contains the function; `None` for Python.
    pub module: Option<Arc<str>>,
    /// The current line, or that of the call if the frame is a caller's; `None` if unknown.
    pub source: Option<Source>,
    /// The kind of code.
    pub kind: FrameKind,
}

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Source {
    /// The path as recorded by the compiler, often with directories.
    pub file: Arc<str>,
    /// The line number, from 1; 0 for compiler-generated code that belongs to no line.
    pub line: u32,
}

/// The kind of code that a frame executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameKind {
    /// A native function with a frame of its own.
    Native,
    /// A native function that the compiler has inlined into its caller.
    Inlined,
    /// The kernel called a signal handler here: the callee is the handler, the caller is the interrupted function.
    Signal,
    /// A Python function.
    Python,
}

/// Why unwinding ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// At the thread's first function: the stack is complete.
    Start,
    /// No unwinding rule leads further: the outer frames are missing.
    Lost,
    /// The stack has more frames than are unwound ([`crate::unwind::MAX_FRAMES`]).
    Bound,
}

/// The frames of a thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stack {
    /// From the thread's first function to its current one. Threads at the same place share the list.
    pub frames: Arc<[FrameId]>,
    /// Why there are no further outer frames.
    pub end: End,
}

/// The state of a thread, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    /// It runs or waits for a CPU.
    Running,
    /// It sleeps in a system call.
    Waiting(Wait),
    /// It is in uninterruptible sleep, nearly always waiting for a disk or a file server. Signals do not reach it.
    Disk,
    /// A signal has stopped it.
    Stopped,
    /// Its control group is frozen: the batch system has suspended the job, or the container is paused.
    Frozen,
    /// A debugger has stopped it.
    Traced,
    /// It has exited while other threads of the process live, as the first thread does if `main` calls `pthread_exit`.
    Ended,
}

/// What a thread sleeps for, according to its system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// For a lock, a condition variable or another thread.
    Futex,
    /// As [`Wait::Futex`], but with a timeout: it ends by itself.
    Timed,
    /// For a lock, a condition variable or a semaphore that is shared with other processes.
    Shared,
    /// For one of several descriptors.
    Poll,
    /// To read from a pipe, socket, terminal or file.
    Read,
    /// To write.
    Write,
    /// For time to pass.
    Sleep,
    /// For a child process.
    Child,
    /// For a lock on a file.
    FileLock,
    /// For a signal.
    Signal,
    /// In another system call, or in one that we may not read.
    Other,
}

/// The bits of `futex`'s second argument that select the operation.
const FUTEX_COMMAND: u64 = 0x7f;
/// The bit of `futex`'s second argument that excludes other processes.
const FUTEX_PRIVATE: u64 = 0x80;

impl Wait {
    pub(crate) const fn of_futex(arguments: &[u64; 6]) -> Self {
        // FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI and FUTEX_LOCK_PI2 take a timeout.
        let waits = matches!(arguments[1] & FUTEX_COMMAND, 0 | 6 | 9 | 11 | 13);
        match (waits && arguments[3] != 0, arguments[1] & FUTEX_PRIVATE) {
            (true, _) => Self::Timed,
            (false, 0) => Self::Shared,
            (false, _) => Self::Futex,
        }
    }

    /// Returns this wait for a call that the kernel has resumed with `restart_syscall`. A futex is resumed that way only if it
    /// has a timeout.
    #[must_use]
    pub const fn resumed(self) -> Self {
        match self {
            Self::Futex => Self::Timed,
            other => other,
        }
    }

    /// Returns what a thread sleeps for in a function of the C library, if its system call does not say: after the thread was
    /// stopped and released, the call is `restart_syscall`.
    #[must_use]
    pub fn of_function(name: &str) -> Self {
        const WORDS: [(&str, Wait); 8] = [
            ("sleep", Wait::Sleep),
            ("poll", Wait::Poll),
            ("select", Wait::Poll),
            ("futex", Wait::Futex),
            ("pthread_", Wait::Futex),
            ("sem_", Wait::Futex),
            ("lll_lock", Wait::Futex),
            ("wait4", Wait::Child),
        ];
        let found = WORDS.iter().find(|(word, _)| name.contains(word));
        found.map_or(Self::Other, |(_, wait)| *wait)
    }
}

/// The sample of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seen {
    /// Its threads, the first one first, even if that has exited.
    Threads(Vec<Thread>),
    /// Nothing could be sampled.
    Missing(Missing),
}

/// Why a process could not be sampled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Missing {
    /// It has exited.
    Gone,
    /// It has exited, and its parent has not reaped it.
    Zombie,
    /// The process with this pid traces it.
    TracedBy(i32),
    /// The kernel does not permit it.
    NotPermitted,
    /// Nothing shows which process it is, and sampling another one must be avoided.
    Unproved,
    /// No node that was searched has it. The text lists the hosts that were not searched; it is empty if all were.
    NotFound(Arc<str>),
    /// It executed another program during the sample.
    Changed,
    /// It is on this host, which we do not reach.
    Elsewhere(String),
    /// It did not stop in time: it is in uninterruptible sleep, and its registers could not be read.
    Unreachable,
    /// The agent of this host did not start.
    NotStarted {
        /// The name of the host.
        host: String,
        /// The reason, as a sentence without a full stop.
        why: String,
    },
    /// The connection to the agent of this host was lost.
    AgentLost(String),
    /// The agent of this host did not answer in time, or not for this rank.
    AgentSilent(String),
    /// The agent of this host refused the command.
    AgentRefused(String),
}

impl Missing {
    /// Returns true if the process is missing because of its node or the agent there, and not because of what it does.
    #[must_use]
    pub const fn is_out_of_view(&self) -> bool {
        match self {
            Self::NotFound(_)
            | Self::Elsewhere(_)
            | Self::NotStarted { .. }
            | Self::AgentLost(_)
            | Self::AgentSilent(_)
            | Self::AgentRefused(_) => true,
            Self::Gone
            | Self::Zombie
            | Self::TracedBy(_)
            | Self::NotPermitted
            | Self::Unproved
            | Self::Changed
            | Self::Unreachable => false,
        }
    }
}

/// The sample of one thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Thread {
    /// The thread id.
    pub tid: i32,
    /// The name, at most 15 bytes. Threads with the same name share it.
    pub name: Arc<str>,
    /// The stack.
    pub stack: Stack,
    /// The state.
    pub activity: Activity,
    /// The CPU time that it has used since it started.
    pub cpu: Duration,
    /// How long we stopped it for this sample.
    pub stopped: Duration,
}

/// The id of a frame in a [`Frames`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct FrameId(u32);

/// Distinct frames.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Frame>", into = "Vec<Frame>")]
pub struct Frames {
    /// Each frame, with its hash.
    frames: Vec<(Arc<Frame>, u64)>,
    /// The frames by hash. Comparing hashes is faster than comparing names, which often have long common prefixes.
    ids: BTreeMap<u64, Vec<FrameId>>,
}

impl Frames {
    /// Returns a table without frames.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the id of a frame, which is added if it is new. An id stays valid.
    ///
    /// The table holds at most 2^32 frames, more than would fit in memory.
    pub fn intern(&mut self, frame: Frame) -> FrameId {
        let hash = hash(&frame);
        self.find(&frame, hash)
            .unwrap_or_else(|| self.add(Arc::new(frame), hash))
    }

    fn find(&self, frame: &Frame, hash: u64) -> Option<FrameId> {
        let mut alike = self.ids.get(&hash)?.iter().copied();
        alike.find(|&id| self.get(id) == frame)
    }

    fn add(&mut self, frame: Arc<Frame>, hash: u64) -> FrameId {
        let id = FrameId(u32::try_from(self.frames.len()).unwrap_or(u32::MAX));
        self.frames.push((frame, hash));
        self.ids.entry(hash).or_default().push(id);
        id
    }

    /// Returns the frame with an id of this table.
    #[must_use]
    pub fn get(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize].0
    }

    /// Adds the frames of another table. Returns their ids in this one, in the order of their ids in the other.
    pub fn absorb(&mut self, other: &Self) -> Vec<FrameId> {
        other
            .frames
            .iter()
            .map(|(frame, hash)| {
                self.find(frame, *hash)
                    .unwrap_or_else(|| self.add(Arc::clone(frame), *hash))
            })
            .collect()
    }

    /// Adds one frame of another table, and returns its id in this one.
    pub fn adopt(&mut self, other: &Self, id: FrameId) -> FrameId {
        let (frame, hash) = &other.frames[id.index()];
        self.find(frame, *hash)
            .unwrap_or_else(|| self.add(Arc::clone(frame), *hash))
    }

    /// Returns an iterator over all frames.
    pub fn iter(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter().map(|(frame, _)| &**frame)
    }

    /// Returns the number of frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns true if there are no frames.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

/// Returns the hash of a frame. It has no seed, so equal frames have the same hash in every process of this build.
fn hash(frame: &Frame) -> u64 {
    let mut hasher = DefaultHasher::new();
    frame.hash(&mut hasher);
    hasher.finish()
}

impl From<Vec<Frame>> for Frames {
    /// Builds a table whose ids follow the order of the list. A duplicate would shift the ids after it: our writers produce none,
    /// and the ids of other writers are checked.
    fn from(list: Vec<Frame>) -> Self {
        let mut frames = Self::new();
        for frame in list {
            frames.intern(frame);
        }
        frames
    }
}

impl From<Frames> for Vec<Frame> {
    fn from(frames: Frames) -> Self {
        let frames = frames.frames.into_iter();
        frames.map(|(frame, _)| Frame::clone(&frame)).collect()
    }
}

impl FrameId {
    /// Returns the index in the result of [`Frames::absorb`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Frame {
    /// Returns true if the frame is in no known program or library: its code was mapped after the mappings were read, or was
    /// generated at run time.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.kind == FrameKind::Native && self.module.is_none()
    }
}

impl fmt::Display for Frame {
    /// Writes `function (file:line)`, with the file name without directories. Without a line: `function`, or `?? in module` for a
    /// nameless one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function.as_deref().unwrap_or("??"))?;
        match (&self.source, &self.module) {
            (Some(source), _) if source.line > 0 => write!(f, " ({source})"),
            (_, Some(module)) if self.function.is_none() => write!(f, " in {module}"),
            _ => Ok(()),
        }
    }
}

impl Source {
    /// Returns the file name without directories.
    #[must_use]
    pub fn name(&self) -> &str {
        self.file.rsplit('/').next().unwrap_or(&self.file)
    }
}

impl fmt::Display for Source {
    /// Writes the file name without directories, and the line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name(), self.line)
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Disk => "in disk wait",
            Self::Stopped => "stopped",
            Self::Frozen => "frozen",
            Self::Traced => "stopped by a debugger",
            Self::Ended => "ended",
            Self::Waiting(wait) => match wait {
                Wait::Futex => "futex",
                Wait::Timed => "timed wait",
                Wait::Shared => "futex",
                Wait::Poll => "poll",
                Wait::Read => "reading",
                Wait::Write => "writing",
                Wait::Sleep => "sleeping",
                Wait::Child => "waiting for a child",
                Wait::FileLock => "waiting for a file lock",
                Wait::Signal => "waiting for a signal",
                Wait::Other => "waiting",
            },
        })
    }
}
