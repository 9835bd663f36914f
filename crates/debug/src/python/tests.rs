//! Recordings of processes with several versions of Python, compared to what these reported about themselves.
//!
//! A recording is compressed. It begins with lines: `python MINOR RUNTIME`, where RUNTIME is the address of the interpreter's
//! state in hexadecimal, and then the output of `testdata/python/program.py` up to `ready`. The parts of its memory that were
//! read follow: each is an address and a length of eight bytes, and its bytes.

use std::{collections::BTreeMap, io::Read};

use proptest::prelude::*;

use super::*;
use crate::memory::Unreadable;

#[derive(Clone)]
pub(super) struct Recorded(pub(super) BTreeMap<u64, Vec<u8>>);

impl Memory for Recorded {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let (start, bytes) = self
            .0
            .range(..=address)
            .next_back()
            .ok_or(Unreadable { address })?;
        let at = usize::try_from(address - start).unwrap();
        let end = at.checked_add(buffer.len()).unwrap();
        buffer.copy_from_slice(bytes.get(at..end).ok_or(Unreadable { address })?);
        Ok(())
    }
}

struct Recording {
    minor: u8,
    runtime: u64,
    /// The frames of each thread, innermost first, as `name|file|line`.
    threads: Vec<(u64, Vec<String>)>,
    memory: Recorded,
}

const RECORDINGS: [&[u8]; 7] = [
    include_bytes!("../../../../testdata/python/3.8.gz"),
    include_bytes!("../../../../testdata/python/3.9.gz"),
    include_bytes!("../../../../testdata/python/3.10.gz"),
    include_bytes!("../../../../testdata/python/3.11.gz"),
    include_bytes!("../../../../testdata/python/3.12.gz"),
    include_bytes!("../../../../testdata/python/3.13.gz"),
    include_bytes!("../../../../testdata/python/3.14.gz"),
];

fn parse(file: &[u8]) -> Recording {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file)
        .read_to_end(&mut bytes)
        .unwrap();
    let mut rest = &bytes[..];
    let mut line = || {
        let end = rest.iter().position(|&byte| byte == b'\n').unwrap();
        let text = std::str::from_utf8(&rest[..end]).unwrap().to_owned();
        rest = &rest[end + 1..];
        text
    };
    let head = line();
    let words: Vec<&str> = head.split(' ').collect();
    let mut threads: Vec<(u64, Vec<String>)> = Vec::new();
    loop {
        let text = line();
        if text == "ready" {
            break;
        }
        match text.strip_prefix("thread ") {
            Some(thread) => {
                let ident = thread.split(' ').next().unwrap().parse().unwrap();
                threads.push((ident, Vec::new()));
            }
            None => threads.last_mut().unwrap().1.push(text.trim().to_owned()),
        }
    }
    let mut parts = BTreeMap::new();
    while let Some((head, after)) = rest.split_at_checked(16) {
        let address = u64::from_le_bytes(head[..8].try_into().unwrap());
        let length = u64::from_le_bytes(head[8..].try_into().unwrap());
        let (part, after) = after.split_at(usize::try_from(length).unwrap());
        parts.insert(address, part.to_vec());
        rest = after;
    }
    Recording {
        minor: words[1].parse().unwrap(),
        runtime: u64::from_str_radix(words[2], 16).unwrap(),
        threads,
        memory: Recorded(parts),
    }
}

impl Recording {
    fn interpreter(&self) -> Option<Interpreter> {
        let version = Some(Version(self.minor));
        Interpreter::at(self.runtime, version, "python".into(), &self.memory)
    }
}

fn thread_of(threads: &[ThreadState], base: u64) -> ThreadState {
    *threads
        .iter()
        .find(|thread| thread.is_of(Some(base), 0))
        .unwrap()
}

fn shown(frame: &PythonFrame) -> String {
    let source = frame.frame.source.as_ref();
    format!(
        "{}|{}|{}",
        frame.frame.function.as_deref().unwrap_or("?"),
        source.map_or("?", |source| &*source.file),
        source.map_or(0, |source| source.line)
    )
}

#[test]
fn what_the_programs_said_of_themselves() {
    for file in RECORDINGS {
        let recording = parse(file);
        let interpreter = recording.interpreter().unwrap();
        let version = interpreter.version();
        assert_eq!(version, Version(recording.minor));
        let threads = interpreter.threads(&recording.memory);
        let mut codes = Codes::new();
        assert_eq!(recording.threads.len(), 12, "{version}");
        for (ident, expected) in &recording.threads {
            let thread = thread_of(&threads, *ident);
            let chain = interpreter.chain(&thread, &recording.memory).unwrap();
            let stack = codes.read(&interpreter, &chain, &recording.memory);
            let found: Vec<String> = stack.frames.iter().map(shown).collect();
            assert_eq!(&found, expected, "{version}");
            assert!(stack.is_whole, "{version}");
        }
    }
}

#[test]
fn which_frames_share_a_call_of_the_loop() {
    let mut text = String::new();
    for file in RECORDINGS {
        let recording = parse(file);
        let interpreter = recording.interpreter().unwrap();
        let threads = interpreter.threads(&recording.memory);
        text.push_str(&format!("{}\n", interpreter.version()));
        for (ident, expected) in &recording.threads {
            if !expected
                .iter()
                .any(|frame| frame.contains("through_c") || frame.contains("generating"))
            {
                continue;
            }
            let thread = thread_of(&threads, *ident);
            let chain = interpreter.chain(&thread, &recording.memory).unwrap();
            let stack = Codes::new().read(&interpreter, &chain, &recording.memory);
            for frame in stack.frames {
                let mark = if frame.is_entry { '-' } else { ' ' };
                let name = frame.frame.function.unwrap();
                text.push_str(&format!("  {mark} {name}\n"));
            }
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_chain_that_leads_into_itself_ends_and_is_not_whole() {
    for file in RECORDINGS {
        let mut recording = parse(file);
        let interpreter = recording.interpreter().unwrap();
        let threads = interpreter.threads(&recording.memory);
        let (ident, frames) = recording
            .threads
            .iter()
            .max_by_key(|(_, frames)| frames.len())
            .unwrap();
        let thread = thread_of(&threads, *ident);
        let chain = interpreter.chain(&thread, &recording.memory).unwrap();
        assert!(chain.is_whole() && chain.len() == frames.len() && chain.len() > 900);
        // Redirect each pointer to an outer frame to an inner one, so that the chain becomes a cycle.
        let innermost = interpreter.innermost(&thread, &recording.memory).unwrap();
        let mut at = innermost;
        for _ in 0..500 {
            at = interpreter.after(at, &recording.memory).unwrap();
        }
        let target = interpreter.after(at, &recording.memory).unwrap();
        for bytes in recording.memory.0.values_mut() {
            for word in bytes.chunks_exact_mut(8) {
                if word == target.to_le_bytes() {
                    word.copy_from_slice(&innermost.to_le_bytes());
                }
            }
        }
        let chain = interpreter.chain(&thread, &recording.memory).unwrap();
        assert!(!chain.is_whole());
        assert!((500..5000).contains(&chain.len()), "{}", chain.len());
    }
}

#[test]
fn a_state_that_became_another_threads_has_no_chain() {
    let recording = parse(RECORDINGS[3]);
    let interpreter = recording.interpreter().unwrap();
    let mut thread = interpreter.threads(&recording.memory)[0];
    thread.pthread += 1;
    assert_eq!(interpreter.chain(&thread, &recording.memory), None);
}

#[test]
fn a_code_object_that_took_the_place_of_another_is_read_anew() {
    let mut recording = parse(RECORDINGS[3]);
    let interpreter = recording.interpreter().unwrap();
    let threads = interpreter.threads(&recording.memory);
    let thread = |at: usize| thread_of(&threads, recording.threads[at].0);
    let (thread, other) = (thread(0), thread(11));
    let chain = interpreter.chain(&thread, &recording.memory).unwrap();
    let (mut codes, raw) = (Codes::new(), chain.frames[0]);
    let before = codes.read(&interpreter, &chain, &recording.memory);
    let other = interpreter.chain(&other, &recording.memory).unwrap();
    let other = other.frames[other.len() - 1].code;
    let length = interpreter.layout.code.length;
    let bytes = recording.memory.bytes(other, length).unwrap();
    let (start, part) = recording
        .memory
        .0
        .range_mut(..=raw.code)
        .next_back()
        .unwrap();
    let at = usize::try_from(raw.code - start).unwrap();
    part[at..at + length].copy_from_slice(&bytes);
    let after = codes.read(&interpreter, &chain, &recording.memory);
    assert_ne!(
        before.frames[0].frame.function,
        after.frames[0].frame.function
    );
}

#[test]
fn a_code_object_that_could_not_be_read_whole_is_read_again() {
    /// Memory where only reads of one length succeed: code objects, but not their names.
    struct Alone<'a>(&'a Recorded, usize);

    impl Memory for Alone<'_> {
        fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
            if buffer.len() != self.1 {
                return Err(Unreadable { address });
            }
            self.0.read(address, buffer)
        }
    }

    let recording = parse(RECORDINGS[3]);
    let interpreter = recording.interpreter().unwrap();
    let threads = interpreter.threads(&recording.memory);
    let thread = thread_of(&threads, recording.threads[0].0);
    let chain = interpreter.chain(&thread, &recording.memory).unwrap();
    let mut codes = Codes::new();
    let alone = Alone(&recording.memory, interpreter.layout.code.length);
    let before = codes.read(&interpreter, &chain, &alone);
    assert!(before.frames.iter().all(|it| it.frame.function.is_none()));
    let after = codes.read(&interpreter, &chain, &recording.memory);
    assert!(after.frames.iter().all(|it| it.frame.function.is_some()));
}

/// Tests hand-written memory of a free-threaded 3.14, which describes its own layout. No such Python was available for a
/// recording.
#[test]
fn the_description_of_3_14() {
    const RUNTIME: u64 = 0x1000;
    let mut memory = Written::default();
    let table = |memory: &mut Written, words: &[(u64, u64)]| {
        for (number, word) in words {
            memory.put(RUNTIME + number * 8, *word);
        }
    };
    // Cookie, version, free-threaded; runtime, interpreter, thread, frame, code, bytes, text.
    table(
        &mut memory,
        &[
            (0, u64::from_le_bytes(*b"xdebugpy")),
            (1, 0x030e_00f0),
            (2, 1),
        ],
    );
    table(&mut memory, &[(5, 0x400), (8, 0x10), (9, 0x18), (99, 0)]);
    table(
        &mut memory,
        &[(24, 0x8), (26, 0x48), (27, 0x98), (28, 0xa0)],
    );
    table(
        &mut memory,
        &[(32, 0x8), (33, 0x0), (34, 0x38), (36, 0x4a), (38, 0x4c)],
    );
    table(
        &mut memory,
        &[(40, 0x70), (41, 0x78), (42, 0x80), (43, 0x88), (44, 0x44)],
    );
    table(
        &mut memory,
        &[(48, 0xd8), (49, 0x90), (75, 0x20), (76, 0x28)],
    );
    table(&mut memory, &[(78, 0x30), (79, 0x20), (80, 0x38)]);
    let (interpreter, thread, border, outer, inner) = (0x8000, 0x9000, 0xa000, 0xa100, 0xa200);
    let (code, copies) = (0xb000, 0xc000);
    memory.put(RUNTIME + 0x400, interpreter);
    memory.put(interpreter + 0x10, 0);
    memory.put(interpreter + 0x18, thread);
    for (offset, word) in [(0x8, 0), (0x48, inner), (0x98, 0x7777), (0xa0, 77)] {
        memory.put(thread + offset, word);
    }
    // The reference to the code has a tag; each thread executes its own copy of the instructions.
    let mut frame = |at: u64, previous: u64, owner: u8, instruction: u64, copy: u32| {
        memory.put(at, code | 1);
        memory.put(at + 0x8, previous);
        memory.put(at + 0x38, instruction);
        let word = u64::from(copy) << 32 | u64::from(owner) << 16;
        memory.put(at + 0x48, word);
    };
    frame(inner, outer, 0, 0xd000 + 4, 1);
    frame(outer, border, 1, code + 0xd8 + 6, 0);
    frame(border, 0, 3, 0, 0);
    let (name, file, lines) = (0xe000, 0xe100, 0xe200);
    for (offset, word) in [
        (0x70, file),
        (0x80, name),
        (0x88, lines),
        (0x44, 10),
        (0x90, copies),
    ] {
        memory.put(code + offset, word);
    }
    for (offset, word) in [(0, 2), (8, code + 0xd8), (16, 0xd000)] {
        memory.put(copies + offset, word);
    }
    // The first string is interned forever and not ASCII; the second is ASCII. Both have one byte per character, which follow the
    // head.
    for (at, state, start, letters) in [
        (name, 3 | 0x09 << 8, 0x48, b"gr\xfcn"),
        (file, 0x19 << 8, 0x38, b"a.py"),
    ] {
        memory.put(at + 0x20, 4);
        memory.put(at + 0x30, state);
        memory.put(at + start, u64::from(u32::from_le_bytes(*letters)));
    }
    // Two instructions on line 11, then two on line 13, without columns.
    memory.put(lines + 0x20, 4);
    memory.put(
        lines + 0x28,
        u64::from(u32::from_le_bytes([0xe9, 2, 0xe9, 4])),
    );

    let interpreter =
        Interpreter::at(RUNTIME, None, "libpython3.14t.so.1.0".into(), &memory).unwrap();
    assert_eq!(interpreter.version().to_string(), "3.14");
    let threads = interpreter.threads(&memory);
    assert_eq!(threads.len(), 1);
    assert_eq!(threads[0].native, Some(77));
    let chain = interpreter.chain(&threads[0], &memory).unwrap();
    let stack = Codes::new().read(&interpreter, &chain, &memory);
    let found: Vec<(String, bool)> = stack
        .frames
        .iter()
        .map(|frame| (shown(frame), frame.is_entry))
        .collect();
    let expected = [
        ("gr\u{fc}n|a.py|13".to_owned(), false),
        ("gr\u{fc}n|a.py|13".to_owned(), true),
    ];
    assert_eq!(found, expected);
    assert!(stack.is_whole);
}

/// Memory that was written word by word; all other words are zero.
#[derive(Default)]
struct Written(BTreeMap<u64, u64>);

impl Written {
    fn put(&mut self, address: u64, word: u64) {
        assert_eq!(address % 4, 0);
        if address % 8 == 4 {
            let before = self.0.entry(address - 4).or_default();
            *before |= word << 32;
            return;
        }
        *self.0.entry(address).or_default() |= word;
    }
}

impl Memory for Written {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        for (at, byte) in (address..).zip(buffer) {
            let word = self.0.get(&(at & !7)).copied().unwrap_or(0);
            *byte = word.to_le_bytes()[usize::try_from(at & 7).unwrap()];
        }
        Ok(())
    }
}

/// Memory in which every address is mapped, with pseudorandom content; the field is the seed.
struct Random(u64);

impl Memory for Random {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        for (at, byte) in (address..).zip(buffer) {
            let word = (at & !7 ^ self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // Some small numbers, so that not all lengths are rejected.
            let word = if word >> 62 == 0 { word >> 56 } else { word };
            *byte = word.to_le_bytes()[usize::try_from(at & 7).unwrap()];
        }
        Ok(())
    }
}

/// Maximum number of threads, and of frames in each, that are read from arbitrary memory.
const MAX_READ: usize = 12;

fn read_all(interpreter: &Interpreter, memory: &dyn Memory) {
    let mut codes = Codes::new();
    for thread in interpreter.threads(memory).iter().take(MAX_READ) {
        if let Some(chain) = interpreter.chain(thread, memory) {
            assert!(chain.len() <= MAX_FRAMES);
            let part = Chain {
                frames: chain.frames.into_iter().take(MAX_READ).collect(),
                whole: chain.whole,
            };
            let _ = codes.read(interpreter, &part, memory);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_memory_gives_an_answer(seed: u64, minor in 8_u8..13) {
        let random = Random(seed);
        let interpreter = Interpreter::at(seed, Some(Version(minor)), "python".into(), &random);
        read_all(&interpreter.unwrap(), &Pages::new(&random));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn memory_that_changes_gives_an_answer(which in 0..RECORDINGS.len(), changes: Vec<(u16, u16, u64)>) {
        let mut recording = parse(RECORDINGS[which]);
        let addresses: Vec<u64> = recording.memory.0.keys().copied().collect();
        for (part, at, word) in changes {
            let part = addresses[usize::from(part) % addresses.len()];
            let bytes = recording.memory.0.get_mut(&part).unwrap();
            let at = usize::from(at) % (bytes.len() / 8 + 1);
            if let Some(place) = bytes.chunks_exact_mut(8).nth(at) {
                // Half of the words become another address that is mapped.
                let word = if word % 2 == 0 { addresses[usize::try_from(word % 1000).unwrap() % addresses.len()] } else { word };
                place.copy_from_slice(&word.to_le_bytes());
            }
        }
        if let Some(interpreter) = recording.interpreter() {
            read_all(&interpreter, &recording.memory);
        }
    }
}
