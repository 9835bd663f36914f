//! Reads the Python frames of each thread in a CPython 3.8 to 3.14 process from its memory.
//!
//! None of our code runs in the process. Its interpreter has a list of thread states, and each of these a chain of frames,
//! innermost first. [`Process::find`] finds the list and the layouts of the structures. [`Interpreter::chain`] copies a chain
//! while its thread is stopped. [`Codes::read`] finds names and lines afterwards: code objects do not change while a frame refers
//! to them. [`merge()`] inserts the frames into the native stack.
//!
//! From 3.11 on, one call of the interpreter's loop can execute several Python frames; before, exactly one. A chain marks the
//! outermost frame of each call, so that calls can be matched with native frames.
//!
//! The memory of a running process can contain anything. Therefore every length is bounded. A chain with a cycle or an unmapped
//! address ends there, and is marked as incomplete.

mod code;
mod layout;
mod lines;
mod merge;
mod pages;
mod process;
mod runtimes;
mod text;

#[cfg(test)]
mod tests;

pub use code::{Codes, PythonFrame, PythonStack};
pub use layout::Version;
pub use merge::{Plumbing, merge};
pub use pages::Pages;
pub use process::Process;
pub use runtimes::Runtimes;

use std::sync::Arc;

use crate::memory::Memory;
use layout::{Executing, Layout, Next};

/// The interpreter of a process: where its state is, and the layouts of its structures.
#[derive(Clone, Debug)]
pub struct Interpreter {
    version: Version,
    runtime: u64,
    layout: Layout,
    /// The file name of the program or library that contains the interpreter's code.
    module: Arc<str>,
}

/// A thread that the interpreter knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// The address of its thread state.
    pub address: u64,
    /// The value of `pthread_self()`, which is where its thread-local variables begin (`%fs` on x86-64).
    pub pthread: u64,
    /// The thread id in the process's own pid namespace; `None` before 3.11.
    pub native: Option<u64>,
}

/// The frames of one thread at one moment, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    frames: Vec<RawFrame>,
    /// True if the chain was followed to its end.
    whole: bool,
}

/// A frame without names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RawFrame {
    code: u64,
    at: At,
    /// True for the outermost frame of a call of the interpreter's loop.
    is_entry: bool,
}

/// The current instruction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The offset in the code in bytes; negative before its first instruction.
    Offset(i64),
    /// The address of the instruction, and the index of the copy of the code that contains it.
    Address(u64, u32),
}

/// Maximum number of thread states read in one process.
pub const MAX_THREADS: usize = 1 << 14;
/// Maximum number of interpreters read in one process.
const MAX_INTERPRETERS: usize = 1 << 10;
/// Maximum number of frames read in one chain.
pub const MAX_FRAMES: usize = 1 << 16;

impl Interpreter {
    /// Returns the interpreter whose state is at `runtime`; `None` if its version is unknown.
    ///
    /// `version` is the version according to the file; from 3.13 on, the state itself contains it. `module` is the name of the
    /// file.
    #[must_use]
    pub fn at(
        runtime: u64,
        version: Option<Version>,
        module: Arc<str>,
        memory: &dyn Memory,
    ) -> Option<Self> {
        let (version, layout) = Layout::described(runtime, memory)
            .or_else(|| version.and_then(|version| Some((version, Layout::of(version)?))))?;
        Some(Self {
            version,
            runtime,
            layout,
            module,
        })
    }

    /// Returns the version of Python.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Returns the address of the interpreter's state (`_PyRuntime`).
    #[must_use]
    pub const fn runtime(&self) -> u64 {
        self.runtime
    }

    /// Returns the threads that the interpreter has now.
    #[must_use]
    pub fn threads(&self, memory: &dyn Memory) -> Vec<ThreadState> {
        let layout = &self.layout;
        let mut threads = Vec::new();
        let word = |address: u64| memory.word(address).unwrap_or(0);
        let mut interpreter = word(self.runtime.wrapping_add(layout.interpreters));
        for _ in 0..MAX_INTERPRETERS {
            if interpreter == 0 {
                break;
            }
            let mut address = word(interpreter.wrapping_add(layout.threads));
            while address != 0 && threads.len() < MAX_THREADS {
                let Some(thread) = self.thread(address, memory) else {
                    break;
                };
                threads.push(thread);
                address = word(address.wrapping_add(layout.next_thread));
            }
            interpreter = word(interpreter.wrapping_add(layout.next_interpreter));
        }
        threads
    }

    fn thread(&self, address: u64, memory: &dyn Memory) -> Option<ThreadState> {
        let word = |offset: u64| memory.word(address.wrapping_add(offset)).ok();
        Some(ThreadState {
            address,
            pthread: word(self.layout.pthread)?,
            native: self.layout.native.and_then(word),
        })
    }

    /// Returns the frames of a thread, which must be stopped for the chain to be consistent. `None` if the thread state no longer
    /// belongs to this thread.
    #[must_use]
    pub fn chain(&self, thread: &ThreadState, memory: &dyn Memory) -> Option<Chain> {
        // The thread may have exited, and its state may have been reused for another.
        if self.thread(thread.address, memory).as_ref() != Some(thread) {
            return None;
        }
        let layout = &self.layout;
        let Some(mut at) = self.innermost(thread, memory) else {
            return Some(Chain::default());
        };
        let mut chain = Chain::default();
        let mut bytes = vec![0; layout.frame_length];
        // Detects cycles: `mark` is the frame that was current at the last power of two of steps.
        let (mut mark, mut next_mark) = (0, 1_usize);
        for step in 0..MAX_FRAMES {
            if at == 0 {
                chain.whole = true;
                break;
            }
            if at == mark || memory.read(at, &mut bytes).is_err() {
                break;
            }
            if step == next_mark {
                (mark, next_mark) = (at, next_mark * 2);
            }
            let Some((executing, previous)) = layout.frame(&bytes) else {
                break;
            };
            match executing {
                Executing::Python(frame) => chain.frames.push(frame),
                // A border lies between two calls of the loop: the frame before it is the outermost of the inner call.
                Executing::Border => {
                    if let Some(outermost) = chain.frames.last_mut() {
                        outermost.is_entry = true;
                    }
                }
            }
            let Next::Frame(previous) = previous else {
                chain.whole = true;
                break;
            };
            at = previous;
        }
        if let Some(outermost) = chain.frames.last_mut().filter(|_| chain.whole) {
            outermost.is_entry = true;
        }
        Some(chain)
    }

    /// Returns the address of a thread's innermost frame; 0 if it has none, `None` if that cannot be read.
    fn innermost(&self, thread: &ThreadState, memory: &dyn Memory) -> Option<u64> {
        let frame = thread.address.wrapping_add(self.layout.frame);
        let frame = memory.word(frame).ok()?;
        match self.layout.frame_behind {
            Some(behind) if frame != 0 => memory.word(frame.wrapping_add(behind)).ok(),
            _ => Some(frame),
        }
    }

    /// Returns an interpreter that is in no memory.
    #[cfg(test)]
    fn for_test(version: Version, module: &str) -> Self {
        Self {
            version,
            runtime: 0,
            layout: Layout::of(version).unwrap(),
            module: module.into(),
        }
    }

    /// Returns the address of the next outer frame.
    #[cfg(test)]
    fn after(&self, frame: u64, memory: &dyn Memory) -> Option<u64> {
        let bytes = memory.bytes(frame, self.layout.frame_length).ok()?;
        match self.layout.frame(&bytes)?.1 {
            Next::Frame(frame) => Some(frame),
            Next::Nothing => None,
        }
    }
}

impl Chain {
    /// Returns true if no outer frames are missing.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns the number of frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns true if the thread executes no Python code.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

impl ThreadState {
    /// Returns true if this is the thread whose thread-local variables begin at `base`. If that is unknown, compares the
    /// interpreter's thread id with `tid` instead. The former is of the thread's pid namespace: in a container it may equal the
    /// id of another thread.
    #[must_use]
    pub fn is_of(&self, base: Option<u64>, tid: i32) -> bool {
        match base {
            Some(base) => self.pthread == base,
            None => self
                .native
                .is_some_and(|native| u64::try_from(tid) == Ok(native)),
        }
    }
}
