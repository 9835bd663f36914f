//! What one thread was doing: its frames, as a person names them, and whether it ran or waited.
//!
//! Nothing here tells two ranks apart that do the same: no address, no pid and no thread id is part of a [`Frame`], so
//! that stacks can be compared and merged. Equal frames are kept once, in [`Frames`], and meant by [`FrameId`].

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// A place in a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The name of the function as its language writes it; nothing where the module has no symbol for the address.
    pub function: Option<Arc<str>>,
    /// The file name, without directories, of the program or library that holds it. None for Python.
    pub module: Option<Arc<str>>,
    /// The line that is executed, or for a caller that of the call.
    pub source: Option<Source>,
    /// What kind of code it is.
    pub kind: FrameKind,
}

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Source {
    /// As the compiler has recorded it, often with directories.
    pub file: Arc<str>,
    /// From 1; 0 where the compiler made code that belongs to no line.
    pub line: u32,
}

/// What kind of code a frame is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameKind {
    /// A function with a frame of its own.
    Native,
    /// A function that the compiler has put into its caller.
    Inlined,
    /// The kernel called a signal handler here; the callee is the handler, the caller what it interrupted.
    Signal,
    /// A function of Python.
    Python,
}

/// Why a stack ends where it does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// At the thread's first function.
    Start,
    /// No rule leads further: the outer frames are missing.
    Lost,
    /// The stack is longer than we read, or has more frames than we keep.
    Bound,
}

/// A thread's frames, outermost first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stack {
    /// From the thread's start to where it is.
    pub frames: Vec<FrameId>,
    /// Whether the first frame is the thread's first.
    pub end: End,
}

/// What a thread does, as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    /// It has a processor or waits for one.
    Running,
    /// It sleeps in a system call.
    Waiting(Wait),
    /// It sleeps where no signal reaches it, which is nearly always for a disk or a file server.
    Disk,
    /// A signal has stopped it.
    Stopped,
    /// Its control group is frozen: by a batch system that has suspended the job, or a container that is paused.
    Frozen,
    /// A debugger has stopped it.
    Traced,
    /// It has ended, while others of its process live: the first thread of a program whose `main` calls `pthread_exit`.
    Ended,
}

/// For what a thread sleeps, by its system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// For a lock, a condition or another thread.
    Futex,
    /// The same for a limited time: it ends by itself.
    Timed,
    /// For a lock, a condition or a semaphore that other processes have too.
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
    /// In another call, or in one that we may not look at.
    Other,
}

/// Of the second argument of `futex`: what it does.
const FUTEX_COMMAND: u64 = 0x7f;
/// Of the second argument of `futex`: no other process takes part.
const FUTEX_PRIVATE: u64 = 0x80;

impl Wait {
    pub(crate) const fn of_futex(arguments: &[u64; 6]) -> Self {
        // FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI and FUTEX_LOCK_PI2 have a limit.
        let waits = matches!(arguments[1] & FUTEX_COMMAND, 0 | 6 | 9 | 11 | 13);
        match (waits && arguments[3] != 0, arguments[1] & FUTEX_PRIVATE) {
            (true, _) => Self::Timed,
            (false, 0) => Self::Shared,
            (false, _) => Self::Futex,
        }
    }

    /// The same, once the kernel says of it only that it goes on with it (`restart_syscall`): on a futex it does so with
    /// a limit alone.
    #[must_use]
    pub const fn resumed(self) -> Self {
        match self {
            Self::Futex => Self::Timed,
            other => other,
        }
    }

    /// For what a thread sleeps in a function of the C library, where its system call does not say: once it was stopped and
    /// let go, the kernel calls it `restart_syscall`.
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

/// What was seen of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seen {
    /// Its threads, the first one first, also if that has ended.
    Threads(Vec<Thread>),
    /// Nothing.
    Missing(Missing),
}

/// Why nothing was seen of a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Missing {
    /// It has ended.
    Gone,
    /// It has ended, and its parent has not asked for its status yet.
    Zombie,
    /// Another process traces it.
    TracedBy(i32),
    /// The kernel does not let us look at it.
    NotPermitted,
    /// Nothing shows which process it is: no other may be taken for it.
    Unproved,
    /// It became another program while we looked.
    Changed,
    /// It is on a host that we do not reach.
    Elsewhere(String),
    /// It did not stop in time: it sleeps where no signal reaches it, and we could not read its registers.
    Unreachable,
    /// The agent of its host was lost.
    AgentLost(String),
    /// The agent of its host did not answer in time, or not for this rank.
    AgentSilent(String),
    /// The agent of its host has refused the command.
    AgentRefused(String),
}

/// One thread at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Thread {
    /// The kernel's number of it.
    pub tid: i32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Where it is.
    pub stack: Stack,
    /// What it does.
    pub activity: Activity,
    /// The processor time that it has used since it was started.
    pub cpu: Duration,
    /// How long we have stopped it for.
    pub stopped: Duration,
}

/// A frame in [`Frames`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct FrameId(u32);

/// Each different frame once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Frame>", into = "Vec<Frame>")]
pub struct Frames {
    /// With what each is found by.
    frames: Vec<(Arc<Frame>, u64)>,
    /// Numbers are compared sooner than names, which often begin alike.
    ids: BTreeMap<u64, Vec<FrameId>>,
}

impl Frames {
    /// No frames.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of a frame, which it keeps.
    ///
    /// # Panics
    /// Beyond 2^32 different frames, for which no memory would suffice.
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

    /// The frame of a number that [`Self::intern`] gave.
    #[must_use]
    pub fn get(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize].0
    }

    /// Takes over the frames of another; the numbers that they have here, in the order of their numbers there.
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

    /// Takes over one frame of another table; the number that it has here.
    pub fn adopt(&mut self, other: &Self, id: FrameId) -> FrameId {
        let (frame, hash) = &other.frames[id.index()];
        self.find(frame, *hash)
            .unwrap_or_else(|| self.add(Arc::clone(frame), *hash))
    }

    /// Every frame.
    pub fn iter(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter().map(|(frame, _)| &**frame)
    }

    /// How many different frames there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

/// The same for equal frames in every process of this program: it has no seed.
fn hash(frame: &Frame) -> u64 {
    let mut hasher = DefaultHasher::new();
    frame.hash(&mut hasher);
    hasher.finish()
}

impl From<Vec<Frame>> for Frames {
    /// The frames with their numbers in this order. A frame that stands there twice would shift the others: no writer of
    /// ours does that, and of foreign ones the numbers are checked.
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
    /// Its place in what [`Frames::absorb`] gives.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Frame {
    /// Whether it is in no program or library that is known: its code was loaded later than it was asked what is loaded, or
    /// was made while the program ran.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.kind == FrameKind::Native && self.module.is_none()
    }
}

impl fmt::Display for Frame {
    /// `function (file:line)`, with the file's name without directories, or the module's where no line is known.
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
    /// The file's name without directories.
    #[must_use]
    pub fn name(&self) -> &str {
        self.file.rsplit('/').next().unwrap_or(&self.file)
    }
}

impl fmt::Display for Source {
    /// The file's name without directories, and the line.
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
