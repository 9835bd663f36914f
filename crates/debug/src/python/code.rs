//! Names and lines of frames, from their code objects.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    At, Chain, Interpreter, RawFrame,
    layout::{number, word},
    text,
};
use crate::{
    memory::Memory,
    stack::{Frame, FrameKind, Source},
};

/// The code objects of one process that were read, by address.
#[derive(Clone, Debug, Default)]
pub struct Codes {
    known: BTreeMap<u64, Known>,
    files: BTreeMap<u64, Arc<str>>,
    /// The total bytes of the line tables in `known`.
    kept: usize,
    /// The bytes of line tables that may still be read for the current chain.
    left: usize,
}

/// A frame with its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonFrame {
    /// The function, file and line.
    pub frame: Frame,
    /// True for the outermost frame of a call of the interpreter's loop.
    pub is_entry: bool,
}

/// The Python frames of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PythonStack {
    /// The frames, innermost first.
    pub frames: Vec<PythonFrame>,
    /// True if no outer frames are missing.
    pub is_whole: bool,
}

#[derive(Clone, Debug)]
struct Known {
    identity: Identity,
    function: Option<Arc<str>>,
    file: Option<Arc<str>>,
    /// The line table; `None` if it could not be read.
    lines: Option<Vec<u8>>,
}

impl Known {
    /// Returns true if nothing is missing that a later attempt could read.
    const fn is_whole(&self) -> bool {
        self.function.is_some() && self.file.is_some() && self.lines.is_some()
    }

    fn lines(&self) -> &[u8] {
        self.lines.as_deref().unwrap_or_default()
    }
}

/// The fields that distinguish a code object from another one at the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    name: u64,
    file: u64,
    lines: u64,
    first_line: i32,
}

/// Maximum number of code objects kept for one process.
const MAX_KNOWN: usize = 1 << 16;
/// Maximum bytes of one line table, enough for a function of 30,000 lines. The lines of the rest are unknown.
const MAX_LINES: u64 = 1 << 18;
/// Maximum total bytes of line tables kept for one process.
const MAX_KEPT: usize = 32 << 20;
/// Maximum total bytes of line tables read for one chain.
const MAX_READ: usize = 8 << 20;

impl Codes {
    /// Returns an empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the functions and lines of a chain. The thread may run meanwhile.
    pub fn read(
        &mut self,
        interpreter: &Interpreter,
        chain: &Chain,
        memory: &dyn Memory,
    ) -> PythonStack {
        self.left = MAX_READ;
        let frames = chain
            .frames
            .iter()
            .map(|frame| PythonFrame {
                frame: self.frame(interpreter, frame, memory),
                is_entry: frame.is_entry,
            })
            .collect();
        PythonStack {
            frames,
            is_whole: chain.whole,
        }
    }

    fn frame(&mut self, interpreter: &Interpreter, raw: &RawFrame, memory: &dyn Memory) -> Frame {
        let mut frame = Frame {
            function: None,
            module: None,
            source: None,
            kind: FrameKind::Python,
        };
        let layout = &interpreter.layout;
        let Ok(bytes) = memory.bytes(raw.code, layout.code.length) else {
            return frame;
        };
        let Some(known) = self.known(interpreter, raw.code, &bytes, memory) else {
            return frame;
        };
        let offset = match raw.at {
            At::Offset(offset) => Some(offset),
            At::Address(address, copy) => start(interpreter, raw.code, &bytes, copy, memory)
                .map(|start| address.wrapping_sub(start).cast_signed()),
        };
        let first = i64::from(known.identity.first_line);
        let line = offset.and_then(|offset| layout.lines.line(known.lines(), first, offset));
        frame.function.clone_from(&known.function);
        frame.source = known.file.clone().map(|file| Source {
            file,
            line: line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0),
        });
        frame
    }

    fn known(
        &mut self,
        interpreter: &Interpreter,
        address: u64,
        bytes: &[u8],
        memory: &dyn Memory,
    ) -> Option<&Known> {
        let layout = &interpreter.layout.code;
        let identity = Identity {
            name: word(bytes, layout.qualified.unwrap_or(layout.name))?,
            file: word(bytes, layout.file)?,
            lines: word(bytes, layout.lines)?,
            first_line: number(bytes, layout.first_line)?,
        };
        if self
            .known
            .get(&address)
            .is_none_or(|known| known.identity != identity || !known.is_whole())
        {
            if self.known.len() >= MAX_KNOWN || self.kept >= MAX_KEPT {
                self.known.clear();
                self.files.clear();
                self.kept = 0;
            }
            let known = self.load(interpreter, identity, memory);
            self.kept = self.kept.saturating_add(known.lines().len());
            self.left = self.left.saturating_sub(known.lines().len());
            self.known.insert(address, known);
        }
        self.known.get(&address)
    }

    fn load(
        &mut self,
        interpreter: &Interpreter,
        identity: Identity,
        memory: &dyn Memory,
    ) -> Known {
        let layout = &interpreter.layout;
        let text = |address| text::read(address, layout.text, memory).map(Arc::from);
        let lines = memory
            .word(identity.lines.wrapping_add(layout.bytes.length))
            .ok()
            .and_then(|length| usize::try_from(length.min(MAX_LINES)).ok())
            .filter(|&length| length <= self.left)
            .and_then(|length| {
                let data = identity.lines.wrapping_add(layout.bytes.data);
                memory.bytes(data, length).ok()
            });
        // All functions of a file share one string object for its name, which stays at its address while one of them exists.
        let file: Option<Arc<str>> = text(identity.file);
        let file = file.map(|file| match self.files.get(&identity.file) {
            Some(same) if *same == file => Arc::clone(same),
            _ => {
                self.files.insert(identity.file, Arc::clone(&file));
                file
            }
        });
        Known {
            identity,
            function: text(identity.name),
            file,
            lines,
        }
    }
}

/// Returns the address of the first instruction in the copy of a code object with this index.
fn start(
    interpreter: &Interpreter,
    code: u64,
    bytes: &[u8],
    copy: u32,
    memory: &dyn Memory,
) -> Option<u64> {
    let layout = &interpreter.layout.code;
    if copy != 0
        && let Some(copies) = layout.copies
    {
        // The number of copies, followed by their addresses.
        let copies = word(bytes, copies)?;
        let count = memory.word(copies).ok()?;
        let slot = copies.wrapping_add(8).wrapping_add(u64::from(copy) * 8);
        return (u64::from(copy) < count)
            .then(|| memory.word(slot).ok())
            .flatten();
    }
    Some(code.wrapping_add(layout.start? as u64))
}
