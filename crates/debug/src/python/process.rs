//! A process with Python, from one sample to the next.

use super::{
    Chain, Codes, Interpreter, MAX_FRAMES, Pages, Plumbing, PythonStack, Runtimes, ThreadState,
    merge,
};
use crate::{
    memory::Memory,
    stack::{Frames, Stack},
    unwind::{Code, Images},
};

/// The lasting facts about a process, and its threads when they were last listed.
#[derive(Clone, Debug)]
pub struct Process {
    interpreter: Interpreter,
    threads: Vec<ThreadState>,
    codes: Codes,
}

/// Maximum number of states of one thread read while it is stopped: a thread has one for each interpreter that it is in.
const MAX_STATES: usize = 64;

impl Process {
    /// Finds Python in a process with this code; `None` if it has no known version of Python.
    pub fn find(
        runtimes: &mut Runtimes,
        images: &Images,
        code: &Code,
        memory: &dyn Memory,
    ) -> Option<Self> {
        Some(Self::of(runtimes.find(images, code, memory)?))
    }

    /// Returns a process with this interpreter.
    #[must_use]
    pub fn of(interpreter: Interpreter) -> Self {
        Self {
            interpreter,
            threads: Vec::new(),
            codes: Codes::new(),
        }
    }

    /// Returns the interpreter.
    #[must_use]
    pub const fn interpreter(&self) -> &Interpreter {
        &self.interpreter
    }

    /// Lists the threads. Call it before threads are stopped, so that each is stopped only while its own frames are read.
    pub fn list(&mut self, memory: &dyn Memory) {
        self.threads = self.interpreter.threads(&Pages::new(memory));
    }

    /// Returns the frames of a stopped thread: the one whose thread-local variables begin at `base`; or if its registers are not
    /// known, the one with the thread id `tid`. `None` if it is not a thread of Python.
    #[must_use]
    pub fn chain(&self, base: Option<u64>, tid: i32, memory: &dyn Memory) -> Option<Chain> {
        let memory = Pages::new(memory);
        // A thread has a state for each interpreter of the process that it was in, nearly always one.
        let states = self.threads.iter().filter(|it| it.is_of(base, tid));
        let mut longest: Option<Chain> = None;
        let mut read = 0;
        for state in states.take(MAX_STATES) {
            let Some(chain) = self.interpreter.chain(state, &memory) else {
                continue;
            };
            read += chain.len();
            if longest.as_ref().is_none_or(|it| it.len() < chain.len()) {
                longest = Some(chain);
            }
            if read >= MAX_FRAMES {
                break;
            }
        }
        longest
    }

    /// Returns the functions and lines of a chain.
    pub fn read(&mut self, chain: &Chain, memory: &dyn Memory) -> PythonStack {
        self.codes.read(&self.interpreter, chain, memory)
    }

    /// Reads a chain, and inserts it into the native stack that was taken with it.
    pub fn merge(
        &mut self,
        native: &Stack,
        chain: &Chain,
        memory: &dyn Memory,
        plumbing: Plumbing,
        frames: &mut Frames,
    ) -> Stack {
        let python = self.read(chain, memory);
        merge(native, &python, &self.interpreter, plumbing, frames)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{memory::Unreadable, python::Version};

    /// Memory in which every word is 64; counts the reads.
    #[derive(Default)]
    struct Counted(Cell<usize>);

    impl Memory for Counted {
        fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
            self.0.set(self.0.get() + 1);
            for (at, byte) in buffer.iter_mut().enumerate() {
                let first = (address + at as u64).is_multiple_of(8);
                *byte = if first { 64 } else { 0 };
            }
            Ok(())
        }
    }

    #[test]
    fn a_thread_does_not_stand_for_ever_however_many_states_it_has() {
        let mut process = Process::of(Interpreter::for_test(Version(11), "python3.11"));
        let state = |number: u64| ThreadState {
            address: number << 20,
            pthread: 64,
            native: Some(64),
        };
        process.threads = (1..10_000).map(state).collect();
        let memory = Counted::default();
        let _ = process.chain(Some(64), 0, &memory);
        // Each state is on a page of its own.
        let read = memory.0.get();
        assert!((MAX_STATES..2 * MAX_STATES).contains(&read), "{read}");
    }
}
