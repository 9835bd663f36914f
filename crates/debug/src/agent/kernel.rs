//! The questions of an agent about processes, and the answers of its host.
//!
//! A question is one step that needs the kernel. The host carries it out, and the agent decides what the answer means and what to
//! ask next.

use std::time::Duration;

use base::{InKernel, Registers};

use crate::{image::Files, memory::Memory};

/// A step for the host. Most questions have an [`Answer`] of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// List all processes of this node.
    Processes,
    /// Read the owners of some processes.
    Owners {
        /// The pids.
        pids: Vec<i32>,
    },
    /// Identify the process that has a pid now, and its program.
    Identity {
        /// The pid.
        pid: i32,
        /// The thread through which the process is read. If it is `None`, the host picks a living thread.
        through: Option<i32>,
    },
    /// Read the mappings of a process.
    Mappings {
        /// A living thread of the process.
        through: i32,
    },
    /// List the threads of a process, the first one first.
    Threads {
        /// The pid.
        pid: i32,
        /// A living thread of the process.
        through: i32,
    },
    /// Read the activity of a thread.
    Thread {
        /// The pid of its process.
        pid: i32,
        /// The thread id.
        tid: i32,
    },
    /// Stop a thread, and copy its stack.
    Stop {
        /// The thread id.
        tid: i32,
        /// The thread through which the memory of the process is read.
        through: i32,
        /// The maximum time until the thread stops.
        patience: Duration,
        /// Maximum number of bytes of the stack to copy.
        copy: usize,
        /// A buffer for the copy, which the answer returns.
        room: Vec<u8>,
    },
    /// Release a stopped thread.
    Release {
        /// The thread id.
        tid: i32,
        /// As for [`Question::Stop`].
        through: i32,
    },
    /// Copy memory as far as it can be read.
    Copy {
        /// A live thread of the process.
        through: i32,
        /// The address of the first byte.
        address: u64,
        /// Maximum number of bytes to copy.
        limit: usize,
    },
    /// Find the tracer of a thread.
    Tracer {
        /// The thread id.
        tid: i32,
    },
    /// Read the state of a process that cannot be sampled.
    Remains {
        /// The pid.
        pid: i32,
    },
    /// Read the regions of recorded calls that processes with a pid have left.
    Left {
        /// The pid.
        pid: i32,
    },
    /// Read the command line of a process.
    Arguments {
        /// The pid.
        pid: i32,
    },
    /// Find the processor that a thread last ran on.
    Processor {
        /// The thread id.
        tid: i32,
    },
}

/// An answer of the host.
#[derive(Clone, Debug)]
pub enum Answer {
    /// All processes.
    Processes(Vec<Process>),
    /// The user id of each process, in the order of the question.
    Owners(Vec<Option<u32>>),
    /// The thread through which the process is read, and the identity of the process; `None` if there is no such process.
    Identity(Option<(i32, Identity)>),
    /// The text of `/proc/PID/maps`; `None` if it cannot be read. And the pid of the process as it sees it.
    Mappings(Option<Vec<u8>>, Option<i32>),
    /// The thread ids, and the state of the control group of the process.
    Threads(Vec<i32>, Group),
    /// Facts about the thread, and its state in the kernel; `None` if the thread has exited, or may not be read.
    Thread(Option<ThreadFacts>, Option<InKernel>),
    /// The thread is stopped: its registers and the copy of its stack. [`Question::Release`] has to follow.
    Stopped(Registers, Vec<u8>),
    /// The other answer to [`Question::Stop`]: the thread is not stopped.
    NotStopped(NotStopped),
    /// How long the thread was stopped.
    Released(Duration),
    /// The bytes that could be read.
    Copied(Vec<u8>),
    /// The pid of the tracer; `None` if there is none, or it may not be read.
    Tracer(Option<i32>),
    /// The state of the process, as in [`Process`], and its number of threads; `None` if the process has exited.
    Remains(Option<(char, usize)>),
    /// The bytes of each region, at most [`LEFT_MAX`] of them.
    Left(Vec<Vec<u8>>),
    /// The words, each with a zero byte at the end, and the start time of the process that has the pid now.
    Arguments(Option<Vec<u8>>, Option<u64>),
    /// The number of the processor.
    Processor(Option<u32>),
}

/// Regions of one pid that are read. There are several if a pid was used again and both jobs go on.
pub const LEFT_MAX: usize = 4;

/// The process that a question was about, which the host lends together with the answer.
#[derive(Clone, Copy)]
pub struct Lent<'a> {
    /// The memory of the process.
    pub memory: &'a dyn Memory,
    /// The files that the process has mapped.
    pub files: &'a dyn Files,
}

impl std::fmt::Debug for Lent<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lent")
    }
}

/// A process, as in `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The pid.
    pub pid: i32,
    /// The pid of the parent.
    pub parent: i32,
    /// The name of the command, at most 15 bytes.
    pub name: String,
    /// R running, S sleeping, D uninterruptible, T stopped, t traced, Z dead but not reaped, I idle.
    pub state: char,
    /// When the process started, in ticks since boot.
    pub started: u64,
    /// CPU time of the process and of the children that it has reaped.
    pub cpu: Duration,
}

/// The identity of a process and of the program that it executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// When the process started, in ticks since boot.
    pub started: u64,
    /// The start address of its program's code.
    pub code: u64,
    /// The address of the stack of its first thread. This and `code` are 0 if the process has exited or may not be read.
    pub stack: u64,
}

/// The state of the control group of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The processes of the group run.
    Runs,
    /// The group is frozen: none of its threads runs.
    Frozen,
}

/// Facts about a thread from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadFacts {
    /// The state, as in [`Process`].
    pub state: char,
    /// CPU time of the thread.
    pub cpu: Duration,
    /// The name, at most 15 bytes.
    pub name: String,
}

/// Why a thread was not stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStopped {
    /// The thread has exited.
    Gone,
    /// The kernel forbids it, or another process traces the thread.
    NotPermitted,
    /// The thread did not stop in time, or the kernel refused for another reason.
    Late,
}
