//! One process with Python in it, from one look to the next.

use super::{Chain, Codes, Detail, Interpreter, Pages, Places, PythonStack, ThreadState, merge};
use crate::{
    memory::Memory,
    stack::{Frames, Stack},
    unwind::{Code, Images},
};

/// What is kept of a process: what does not change, and the threads that it had when they were last listed.
#[derive(Clone, Debug)]
pub struct Process {
    interpreter: Interpreter,
    threads: Vec<ThreadState>,
    codes: Codes,
}

impl Process {
    /// The process that has this code; nothing where it has no Python that we know.
    pub fn find(
        places: &mut Places,
        images: &Images,
        code: &Code,
        memory: &dyn Memory,
    ) -> Option<Self> {
        Some(Self::of(places.find(images, code, memory)?))
    }

    /// A process with this interpreter.
    #[must_use]
    pub fn of(interpreter: Interpreter) -> Self {
        Self {
            interpreter,
            threads: Vec::new(),
            codes: Codes::new(),
        }
    }

    /// Its interpreter.
    #[must_use]
    pub const fn interpreter(&self) -> &Interpreter {
        &self.interpreter
    }

    /// Lists its threads: before they are stopped, for each to stand no longer than its own frames take.
    pub fn list(&mut self, memory: &dyn Memory) {
        self.threads = self.interpreter.threads(&Pages::new(memory));
    }

    /// The frames of a thread that stands, and has its variables at `base`; or of the one with the kernel's number `tid`,
    /// where its registers are not known. Nothing where it is none of Python's.
    #[must_use]
    pub fn chain(&self, base: Option<u64>, tid: i32, memory: &dyn Memory) -> Option<Chain> {
        let memory = Pages::new(memory);
        // It has a state for each interpreter within the process that it was in, nearly always one.
        self.threads
            .iter()
            .filter(|thread| thread.is_of(base, tid))
            .filter_map(|thread| self.interpreter.chain(thread, &memory))
            .max_by_key(Chain::len)
    }

    /// The functions and lines of a chain.
    pub fn read(&mut self, chain: &Chain, memory: &dyn Memory) -> PythonStack {
        self.codes.read(&self.interpreter, chain, memory)
    }

    /// Reads a chain and puts it into the native stack that was taken with it.
    pub fn merge(
        &mut self,
        native: &Stack,
        chain: &Chain,
        memory: &dyn Memory,
        detail: Detail,
        frames: &mut Frames,
    ) -> Stack {
        let python = self.read(chain, memory);
        merge(native, &python, &self.interpreter, detail, frames)
    }
}
