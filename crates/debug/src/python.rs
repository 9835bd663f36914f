//! The Python frames of each thread of a CPython 3.8 to 3.14 process, read out of its memory.
//!
//! Nothing of ours runs in the process. Its interpreter keeps a list of thread states, and each of those a chain of
//! frames, innermost first. [`Process::find`] says where the list begins and how the structures are laid out;
//! [`Interpreter::chain`] copies a chain, for which its thread has to stand; [`Codes::read`] finds names and lines
//! afterwards, for code objects do not change while a frame holds them. [`merge()`] puts the frames into the native stack.
//!
//! Since 3.11 one call of the interpreter's loop executes several Python frames, and before that exactly one. A chain
//! says which frame is the outermost of its call, so that calls can be counted off against native frames.
//!
//! Whatever stands in the memory of a process that runs on may be anything: every length is bounded, a chain that leads
//! into itself or to no memory ends there and says that it is not whole.

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

/// The interpreter of one process: where it keeps its threads, and how.
#[derive(Clone, Debug)]
pub struct Interpreter {
    version: Version,
    runtime: u64,
    layout: Layout,
    /// The file name of the program or library that holds its code.
    module: Arc<str>,
}

/// A thread that the interpreter knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// Where its state stands.
    pub address: u64,
    /// What its C library calls it, which is where its variables begin (`%fs`).
    pub pthread: u64,
    /// The kernel's number of it in its own pid namespace; from 3.11.
    pub native: Option<u64>,
}

/// The frames of one thread as they stood at one moment, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    frames: Vec<RawFrame>,
    /// Whether the chain was followed to its end.
    whole: bool,
}

/// A frame without its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RawFrame {
    code: u64,
    at: At,
    /// It is the outermost of a call of the interpreter's loop.
    is_entry: bool,
}

/// Where in its code a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Bytes from the beginning of the code; negative before its first instruction.
    Offset(i64),
    /// The address of an instruction, in the copy of the code that has this number.
    Address(u64, u32),
}

/// Thread states that are read of one process.
pub const MAX_THREADS: usize = 1 << 14;
/// Interpreters within one process.
const MAX_INTERPRETERS: usize = 1 << 10;
/// Frames of one chain.
pub const MAX_FRAMES: usize = 1 << 16;

impl Interpreter {
    /// The interpreter with its state at `runtime`; nothing where that is of no version that we know.
    ///
    /// `version` is what the file says; 3.13 and later say it themselves. `module` is the name of the file.
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

    /// Which Python it is.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Where its state stands.
    #[must_use]
    pub const fn runtime(&self) -> u64 {
        self.runtime
    }

    /// The threads that it has now.
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

    /// The frames of a thread, which must stand still meanwhile for them to be of one moment. None where the state is not
    /// that thread's any more.
    #[must_use]
    pub fn chain(&self, thread: &ThreadState, memory: &dyn Memory) -> Option<Chain> {
        // The thread may have ended, and its state have become another's.
        if self.thread(thread.address, memory).as_ref() != Some(thread) {
            return None;
        }
        let layout = &self.layout;
        let Some(mut at) = self.innermost(thread, memory) else {
            return Some(Chain::default());
        };
        let mut chain = Chain::default();
        let mut bytes = vec![0; layout.frame_length];
        // A chain that leads into itself is noticed by meeting the frame that was put down here, at each power of two.
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
                // Stands between two calls of the loop: what was seen last is the outermost of the inner one.
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

    /// Where the innermost frame of a thread stands, or zero.
    fn innermost(&self, thread: &ThreadState, memory: &dyn Memory) -> Option<u64> {
        let frame = thread.address.wrapping_add(self.layout.frame);
        let frame = memory.word(frame).ok()?;
        match self.layout.frame_behind {
            Some(behind) if frame != 0 => memory.word(frame.wrapping_add(behind)).ok(),
            _ => Some(frame),
        }
    }

    /// An interpreter in no memory.
    #[cfg(test)]
    fn for_test(version: Version, module: &str) -> Self {
        Self {
            version,
            runtime: 0,
            layout: Layout::of(version).unwrap(),
            module: module.into(),
        }
    }

    /// The frame that a frame has in the chain after it.
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
    /// Whether nothing is missing on its outer side.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.whole
    }

    /// The number of frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether the thread executes no Python.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

impl ThreadState {
    /// Whether it is the thread with its variables at `base`, or where that is not known, the one with the kernel's number
    /// `tid`: that is of the pid namespace that the thread is in, and may mean another thread here.
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
