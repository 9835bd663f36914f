//! What an agent asks its host about processes, and what the host answers.
//!
//! A question is one step that only the kernel can carry out. The host carries it out and decides nothing: what an answer
//! means, and what is asked next, the agent says.

use std::time::Duration;

use base::{InKernel, Registers};

use crate::{image::Files, memory::Memory};

/// One step for the host. It answers with the variant of [`Answer`] that has the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// List every process of this machine.
    Processes,
    /// Whose these processes are.
    Owners {
        /// Which processes.
        pids: Vec<i32>,
    },
    /// Which process and program has this number now.
    Identity {
        /// The process.
        pid: i32,
        /// The thread through which it is seen; without it the host picks one that lives.
        through: Option<i32>,
    },
    /// What the process has mapped: the text of `/proc/PID/maps`.
    Mappings {
        /// A thread of it that lives.
        through: i32,
    },
    /// The threads of a process, the first one first.
    Threads {
        /// The process.
        pid: i32,
        /// A thread of it that lives.
        through: i32,
    },
    /// What a thread does.
    Thread {
        /// Its process.
        pid: i32,
        /// The thread.
        tid: i32,
    },
    /// Stop a thread, and copy its stack while it stands.
    Stop {
        /// The thread.
        tid: i32,
        /// The thread of its process through which memory is read.
        through: i32,
        /// How long it may take to stop.
        patience: Duration,
        /// How many bytes of its stack to copy.
        copy: usize,
        /// A buffer for them, to be used again.
        room: Vec<u8>,
    },
    /// Let a thread go that was stopped.
    Release {
        /// The thread.
        tid: i32,
        /// As for [`Question::Stop`].
        through: i32,
    },
    /// Copy memory as far as it can be read.
    Copy {
        /// A thread of the process that lives.
        through: i32,
        /// Where to begin.
        address: u64,
        /// How many bytes at most.
        limit: usize,
    },
    /// Which process traces a thread.
    Tracer {
        /// The thread.
        tid: i32,
    },
    /// What is left of a process that cannot be read.
    Remains {
        /// The process.
        pid: i32,
    },
    /// What a process was started with.
    Arguments {
        /// The process.
        pid: i32,
    },
    /// The processor that a thread ran on last.
    Processor {
        /// The thread.
        tid: i32,
    },
}

/// What the host has found out.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Every process that there is.
    Processes(Vec<Process>),
    /// The user of each process, in the order of the question.
    Owners(Vec<Option<u32>>),
    /// The thread through which the process is seen, and which process it is; nothing where there is none.
    Identity(Option<(i32, Identity)>),
    /// The text; nothing where it cannot be read.
    Mappings(Option<Vec<u8>>),
    /// The threads, and what the control group of their process lets them do.
    Threads(Vec<i32>, Group),
    /// What it does, and what it does in the kernel where that may be read; nothing of a thread that has ended.
    Thread(Option<ThreadFacts>, Option<InKernel>),
    /// It stands: its registers, and what was copied of its stack. To be followed by [`Question::Release`].
    Stopped(Registers, Vec<u8>),
    /// The other answer to [`Question::Stop`]: it was not stopped.
    NotStopped(NotStopped),
    /// How long it has stood.
    Released(Duration),
    /// What could be read.
    Copied(Vec<u8>),
    /// The tracer, where there is one and it may be known.
    Tracer(Option<i32>),
    /// Its state, as in [`Process`], and how many threads it has; nothing of a process that is gone.
    Remains(Option<(char, usize)>),
    /// The words, each ended by a zero byte, and when the process that has the number now was started.
    Arguments(Option<Vec<u8>>, Option<u64>),
    /// The number of the processor.
    Processor(Option<u32>),
}

/// What a host lends for the time of one answer: the process that the question was about.
#[derive(Clone, Copy)]
pub struct Lent<'a> {
    /// Its memory.
    pub memory: &'a dyn Memory,
    /// The files that it has mapped.
    pub files: &'a dyn Files,
}

impl std::fmt::Debug for Lent<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lent")
    }
}

/// A process, as `/proc/PID/stat` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Who has started it, or has inherited it.
    pub parent: i32,
    /// The name of its command, at most 15 bytes.
    pub name: String,
    /// R running, S sleeping, D uninterruptible, T stopped, t traced, Z dead but not reaped, I idle.
    pub state: char,
    /// When it was started, in ticks since boot.
    pub started: u64,
    /// The processor time that it has used, with that of the children that it has waited for.
    pub cpu: Duration,
}

/// What makes a process the one that it is, with the program that it executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// When it was started, in ticks since boot.
    pub started: u64,
    /// Where the code of its program begins.
    pub code: u64,
    /// Where the stack of its first thread begins. It is 0, as is `code`, where the process is not ours to look at, and where
    /// it is dead.
    pub stack: u64,
}

/// What the control group of a process lets it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// It runs.
    Runs,
    /// None of its threads runs, whatever is asked of them.
    Frozen,
}

/// What the kernel says of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadFacts {
    /// As of a [`Process`].
    pub state: char,
    /// The processor time that it has used.
    pub cpu: Duration,
    /// Its name, at most 15 bytes.
    pub name: String,
}

/// Why a thread was not stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStopped {
    /// It has ended.
    Gone,
    /// The kernel forbids it, or another process traces it already.
    NotPermitted,
    /// It did not stop in time, or the kernel refused for another reason.
    Late,
}
