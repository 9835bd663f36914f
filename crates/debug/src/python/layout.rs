//! The layouts of the interpreter's structures, by version: offsets of the fields that are read.
//!
//! From 3.13 on, a table at the beginning of the interpreter's state contains them (`_Py_DebugOffsets`). For 3.8 to 3.12 the
//! numbers are the results of `offsetof` with the internal headers of each version, on x86-64 without `Py_TRACE_REFS`.

use std::fmt;

use super::{At, RawFrame};
use crate::memory::Memory;

/// A minor version of Python 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u8);

/// Offsets in bytes, each from the beginning of its structure.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Runtime state: the first interpreter.
    pub(super) interpreters: u64,
    /// Interpreter: the next one.
    pub(super) next_interpreter: u64,
    /// Interpreter: its first thread.
    pub(super) threads: u64,
    /// Thread: the next one.
    pub(super) next_thread: u64,
    pub(super) pthread: u64,
    pub(super) native: Option<u64>,
    /// Thread: its innermost frame, or the structure that points to it.
    pub(super) frame: u64,
    /// That structure: the innermost frame. `None` if `frame` is the frame itself.
    pub(super) frame_behind: Option<u64>,
    /// Number of bytes of a frame to read.
    pub(super) frame_length: usize,
    frame_code: usize,
    frame_previous: usize,
    frame_at: usize,
    entry: Entry,
    pub(super) code: CodeLayout,
    pub(super) bytes: BytesLayout,
    pub(super) text: TextLayout,
    pub(super) lines: Lines,
}

/// How a frame encodes its position, and how the frames of one call of the loop are found.
#[derive(Clone, Copy, Debug)]
enum Entry {
    /// Each frame is a call. The position is a number of units of this many bytes each.
    Each { bytes: i64 },
    /// A flag at this offset marks the outermost frame of a call.
    Flag(usize),
    /// A frame of the loop's own separates calls: the value of its `owner` field is at least `OWNED_BY_LOOP`.
    Border {
        owner: usize,
        /// The index of the thread's own copy of the code; `None` except in free-threaded builds.
        copy: Option<usize>,
    },
}

const OWNED_BY_LOOP: u8 = 3;

#[derive(Clone, Debug)]
pub(super) struct CodeLayout {
    /// Number of bytes of a code object to read.
    pub(super) length: usize,
    pub(super) file: usize,
    pub(super) name: usize,
    /// The qualified name: with those of the enclosing classes and functions.
    pub(super) qualified: Option<usize>,
    pub(super) first_line: usize,
    pub(super) lines: usize,
    /// The first instruction, inside the object.
    pub(super) start: Option<usize>,
    /// The copies of the code for individual threads.
    pub(super) copies: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BytesLayout {
    pub(super) length: u64,
    pub(super) data: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TextLayout {
    pub(super) length: usize,
    pub(super) state: usize,
    /// The first character of a string of ASCII characters only.
    pub(super) ascii: u64,
    /// The first character of any other string.
    pub(super) other: u64,
}

/// The encoding of the line table of a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    /// `co_lnotab`, up to 3.9.
    Increments,
    /// 3.10: ranges of instructions with lines (PEP 626).
    Ranges,
    /// From 3.11: ranges with lines and columns (PEP 657).
    Locations,
}

/// The role of a frame.
pub(super) enum Executing {
    Python(RawFrame),
    Border,
}

/// The link from a frame to the next outer one.
pub(super) enum Next {
    Frame(u64),
    Nothing,
}

impl Layout {
    /// Returns the layout of a version before 3.13, which does not describe itself.
    pub(super) fn of(version: Version) -> Option<Self> {
        let old = |lines, last: usize, bytes| Self {
            interpreters: 32,
            next_interpreter: 0,
            threads: 8,
            next_thread: 8,
            pthread: 176,
            native: None,
            frame: 24,
            frame_behind: None,
            frame_length: last + 4,
            frame_code: 32,
            frame_previous: 24,
            frame_at: last,
            entry: Entry::Each { bytes },
            code: CodeLayout {
                length: 128,
                file: 104,
                name: 112,
                qualified: None,
                first_line: 40,
                lines: 120,
                start: None,
                copies: None,
            },
            bytes: BytesLayout {
                length: 16,
                data: 32,
            },
            text: TextLayout {
                length: 16,
                state: 32,
                ascii: 48,
                other: 72,
            },
            lines,
        };
        Some(match version.0 {
            8 | 9 => old(Lines::Increments, 104, 1),
            // The position counts instructions of two bytes each.
            10 => old(Lines::Ranges, 96, 2),
            11 => Self {
                interpreters: 40,
                threads: 16,
                pthread: 152,
                native: Some(160),
                frame: 56,
                frame_behind: Some(8),
                frame_length: 70,
                frame_code: 32,
                frame_previous: 48,
                frame_at: 56,
                entry: Entry::Flag(68),
                code: CodeLayout {
                    length: 144,
                    file: 112,
                    name: 120,
                    qualified: Some(128),
                    first_line: 72,
                    lines: 136,
                    start: Some(184),
                    copies: None,
                },
                ..old(Lines::Locations, 0, 0)
            },
            12 => Self {
                interpreters: 40,
                threads: 72,
                pthread: 136,
                native: Some(144),
                frame: 56,
                frame_behind: Some(0),
                frame_length: 71,
                frame_code: 0,
                frame_previous: 8,
                frame_at: 56,
                entry: Entry::Border {
                    owner: 70,
                    copy: None,
                },
                code: CodeLayout {
                    length: 144,
                    file: 112,
                    name: 120,
                    qualified: Some(128),
                    first_line: 68,
                    lines: 136,
                    start: Some(192),
                    copies: None,
                },
                text: TextLayout {
                    length: 16,
                    state: 32,
                    ascii: 40,
                    other: 56,
                },
                ..old(Lines::Locations, 0, 0)
            },
            _ => return None,
        })
    }

    /// Returns the layout that the interpreter's state describes; `None` if it contains no description that we know.
    pub(super) fn described(runtime: u64, memory: &dyn Memory) -> Option<(Version, Self)> {
        let table = memory.bytes(runtime, TABLE_WORDS * 8).ok()?;
        if !table.starts_with(COOKIE) {
            return None;
        }
        let version = Version::of_hex(u32::try_from(word(&table, 8)?).ok()?)?;
        let free_threaded = word(&table, 16)? != 0;
        let at = match version.0 {
            13 => &TABLE_13,
            14 => &TABLE_14,
            _ => return None,
        };
        let long = |number: usize| word(&table, number * 8).filter(|&offset| offset < MAX_OFFSET);
        let short = |number: usize| {
            long(number)
                .filter(|&offset| offset < MAX_SHORT_OFFSET)
                .and_then(|offset| usize::try_from(offset).ok())
        };
        let owner = short(at.frame + 5)?;
        let frame_parts = [
            short(at.frame + 1)?,
            short(at.frame + 2)?,
            short(at.frame + 3)?,
        ];
        let copy = match at.copies {
            Some(copies) if free_threaded => Some((short(at.frame + 7)?, short(copies)?)),
            _ => None,
        };
        let code_parts = [
            short(at.code + 1)?,
            short(at.code + 2)?,
            short(at.code + 3)?,
            short(at.code + 4)?,
            short(at.code + 5)?,
        ];
        let ascii = long(at.text + 3)?;
        let length = |parts: &[usize]| parts.iter().max().map_or(0, |part| part + 8);
        let last_copy = copy.map_or([0; 2], |(frame, code)| [frame, code]);
        let layout = Self {
            interpreters: long(5)?,
            next_interpreter: long(8)?,
            threads: long(9)?,
            next_thread: long(at.thread + 2)?,
            frame: long(at.thread + 4)?,
            pthread: long(at.thread + 5)?,
            native: Some(long(at.thread + 6)?),
            frame_behind: None,
            frame_length: length(&frame_parts).max(owner + 1).max(last_copy[0] + 4),
            frame_previous: frame_parts[0],
            frame_code: frame_parts[1],
            frame_at: frame_parts[2],
            entry: Entry::Border {
                owner,
                copy: copy.map(|(frame, _)| frame),
            },
            code: CodeLayout {
                length: length(&code_parts).max(last_copy[1] + 8),
                file: code_parts[0],
                name: code_parts[1],
                qualified: Some(code_parts[2]),
                lines: code_parts[3],
                first_line: code_parts[4],
                start: Some(short(at.code + 9)?),
                copies: copy.map(|(_, code)| code),
            },
            bytes: BytesLayout {
                length: long(at.bytes + 1)?,
                data: long(at.bytes + 2)?,
            },
            text: TextLayout {
                state: short(at.text + 1)?,
                length: short(at.text + 2)?,
                ascii,
                // The length as UTF-8 and a pointer to that encoding lie in between.
                other: ascii + 16,
            },
            lines: Lines::Locations,
        };
        Some((version, layout))
    }

    /// Decodes the bytes of a frame; `None` if they are not a valid frame.
    pub(super) fn frame(&self, bytes: &[u8]) -> Option<(Executing, Next)> {
        let previous = match word(bytes, self.frame_previous)? {
            0 => Next::Nothing,
            previous => Next::Frame(previous),
        };
        // From 3.14 on, the lowest bits of a reference are reference counting tags.
        let code = word(bytes, self.frame_code)? & !7;
        let address = || word(bytes, self.frame_at);
        let (at, is_entry) = match self.entry {
            Entry::Each { bytes: each } => {
                let last = i64::from(number(bytes, self.frame_at)?);
                (At::Offset(last * each), true)
            }
            Entry::Flag(flag) => (At::Address(address()?, 0), *bytes.get(flag)? != 0),
            Entry::Border { owner, .. } if *bytes.get(owner)? >= OWNED_BY_LOOP => {
                return Some((Executing::Border, previous));
            }
            Entry::Border { copy, .. } => {
                let copy = copy.map_or(Some(0), |copy| number(bytes, copy))?;
                (At::Address(address()?, u32::try_from(copy).ok()?), false)
            }
        };
        (code != 0).then_some((Executing::Python(RawFrame { code, at, is_entry }), previous))
    }
}

const COOKIE: &[u8] = b"xdebugpy";
/// Number of words of the table to read, more than are used.
const TABLE_WORDS: usize = 100;
/// Upper bound of an offset: the runtime state of 3.14, the largest structure, has half a million bytes.
const MAX_OFFSET: u64 = 1 << 24;
/// Upper bound of an offset in a frame or in the head of a code object.
const MAX_SHORT_OFFSET: u64 = 1 << 12;

/// The beginnings of the parts of the table, in words.
struct Table {
    thread: usize,
    frame: usize,
    code: usize,
    /// The word with the offset of a code object's copies.
    copies: Option<usize>,
    bytes: usize,
    text: usize,
}

/// The table of 3.13: cookie, version and build flag. Then the words of each structure: 3 of the runtime, 13 of an interpreter, 9
/// of a thread, 6 of a frame, 10 of a code object, 2 of an object, 4 of a type, 3 each of a tuple, a list and a dict, 2 of a
/// float, 3 each of an int and of bytes.
const TABLE_13: Table = Table {
    thread: 19,
    frame: 28,
    code: 34,
    copies: None,
    bytes: 64,
    text: 67,
};

/// The table of 3.14: compared to 3.13, 3 more words of an interpreter, 2 of a frame, 1 of a code object, and 4 of a set.
const TABLE_14: Table = Table {
    thread: 22,
    frame: 31,
    code: 39,
    copies: Some(49),
    bytes: 74,
    text: 77,
};

impl Version {
    /// Returns the version from `PY_VERSION_HEX`; `None` if it is unknown.
    pub(super) fn of_hex(hex: u32) -> Option<Self> {
        let [3, minor, ..] = hex.to_be_bytes() else {
            return None;
        };
        Self::known(minor)
    }

    /// Returns the version from the name of a file such as `libpython3.8.so.1.0` or `python3.11`.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let (_, rest) = name.split_once("python3.")?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        Self::known(rest[..digits].parse().ok()?)
    }

    /// Returns the version from the tag in the names of compiled files (`cpython-38`), which is among the interpreter's
    /// constants.
    pub(super) fn of_constants(constants: &[u8]) -> Option<Self> {
        const TAG: &[u8] = b"\0cpython-3";
        let at = constants
            .windows(TAG.len())
            .position(|bytes| bytes == TAG)?;
        let rest = &constants[at + TAG.len()..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        Self::known(std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?)
    }

    fn known(minor: u8) -> Option<Self> {
        (8..=14).contains(&minor).then_some(Self(minor))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "3.{}", self.0)
    }
}

/// Returns the eight bytes at an offset.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(part.try_into().ok()?))
}

/// Returns the four bytes at an offset.
pub(super) fn number(bytes: &[u8], at: usize) -> Option<i32> {
    let part = bytes.get(at..at.checked_add(4)?)?;
    Some(i32::from_le_bytes(part.try_into().ok()?))
}
