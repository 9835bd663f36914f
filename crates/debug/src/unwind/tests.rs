//! Tests of tail calls, in hand-written programs.

mod aarch64;
mod site;

use std::{cell::Cell, path::Path};

use base::{Arch, Registers};
use bytes::Bytes;

use super::{Capture, Images, calls::MAX_STEPS};
use crate::{
    image::{
        Files, Reading,
        tests::made::{LENGTH, Program},
    },
    maps::{self, Mapping},
    memory::{Memory, Unreadable},
    stack::Frames,
};

/// The address where the program is mapped.
const BASE: u64 = 0x10_0000;
/// The address of the stack.
const STACK: u64 = 0x7000_0000;
/// The address of the slots, as in the program's file.
const SLOTS: u64 = 0x6_0000;

/// Slots that all hold the same value; counts the reads.
struct Slots {
    held: Cell<Option<u64>>,
    read: Cell<usize>,
}

impl Slots {
    fn holding(held: u64) -> Self {
        Self {
            held: Cell::new(Some(held)),
            read: Cell::new(0),
        }
    }
}

impl Memory for Slots {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        // Other reads look for a signal trampoline, which the code is not.
        if buffer.len() != 8 {
            buffer.fill(0);
            return Ok(());
        }
        self.read.set(self.read.get() + 1);
        let held = self.held.get().ok_or(Unreadable { address })?;
        buffer.copy_from_slice(&held.to_le_bytes());
        Ok(())
    }
}

struct OneFile(Cell<Option<Bytes>>);

impl Files for OneFile {
    fn open(&self, _: &Path) -> Option<Bytes> {
        None
    }

    fn open_mapped(&self, _: &Mapping) -> Option<Bytes> {
        let file = self.0.take();
        self.0.set(file.clone());
        file
    }
}

/// Unwinds threads of the program.
struct Reader {
    images: Images,
    frames: Frames,
    file: OneFile,
}

impl Reader {
    fn at(file: Bytes) -> Self {
        Self {
            images: Images::new(Arch::X86_64, Reading::Lines),
            frames: Frames::new(),
            file: OneFile(Cell::new(Some(file))),
        }
    }

    /// Returns the functions of a thread, innermost first. The first address is that of the thread, the others are return
    /// addresses.
    fn functions(&mut self, addresses: &[u64], memory: &dyn Memory) -> Vec<String> {
        let line = format!(
            "{BASE:x}-{:x} r-xp 00000000 fe:00 7 /program\n",
            BASE + LENGTH as u64
        );
        let code = self
            .images
            .code(&maps::parse(line.as_bytes()), &self.file, memory);
        let mut bytes = Vec::new();
        for (above, address) in (1_u64..).zip(&addresses[1..]) {
            bytes.extend((STACK + 16 * above).to_le_bytes());
            bytes.extend((BASE + address).to_le_bytes());
        }
        bytes.extend([0; 64]);
        let capture = Capture {
            registers: Registers::X86_64 {
                instruction: BASE + addresses[0],
                stack: STACK,
                frame: STACK,
                thread: 0,
            },
            bytes,
        };
        self.images.begin();
        let (images, frames) = (&mut self.images, &mut self.frames);
        let stack = images.unwind(&code, &capture, memory, &self.file, frames);
        let names = stack.frames.iter().rev();
        let name = |&id| frames.get(id).function.as_deref().unwrap_or("?").to_owned();
        names.map(name).collect()
    }
}

/// Returns a program where `main` calls `stub`, `stub` jumps to `public` through a slot, and `public` ends with a jump to
/// `inner`.
fn by_slot() -> Bytes {
    let mut program = Program::new();
    program.function("main", 0x1000, 0x100);
    program.function("public", 0x2000, 0x40);
    program.function("inner", 0x3000, 0x40);
    program.jump(0x1010, &[0xe8], 0x5000);
    program.jump(0x5000, &[0xff, 0x25], SLOTS);
    program.jump(0x2010, &[0xe9], 0x3000);
    program.build()
}

#[test]
fn a_call_is_looked_up_once_wherever_it_has_led_in_a_function() {
    let mut reader = Reader::at(by_slot());
    let slots = Slots::holding(BASE + 0x2000);
    for at in [0x3000, 0x3001, 0x3020] {
        let functions = reader.functions(&[at, 0x1015], &slots);
        assert_eq!(functions[..3], ["inner", "public", "main"], "{at:x}");
    }
    assert_eq!(slots.read.get(), 1);
    assert_eq!(reader.images.tail_calls.len(), 1);
}

#[test]
fn a_slot_that_could_not_be_read_is_read_again() {
    let mut reader = Reader::at(by_slot());
    let slots = Slots::holding(BASE + 0x2000);
    let held = slots.held.take();
    assert_eq!(
        reader.functions(&[0x3001, 0x1015], &slots)[..2],
        ["inner", "main"]
    );
    slots.held.set(held);
    assert_eq!(
        reader.functions(&[0x3001, 0x1015], &slots)[..3],
        ["inner", "public", "main"]
    );
}

#[test]
fn a_file_that_could_not_be_opened_is_opened_again() {
    let slots = Slots::holding(BASE + 0x2000);
    let mut reader = Reader::at(by_slot());
    let file = reader.file.0.take();
    assert_eq!(reader.functions(&[0x3001, 0x1015], &slots)[..1], ["?"]);
    reader.file.0.set(file);
    let functions = reader.functions(&[0x3001, 0x1015], &slots);
    assert_eq!(functions[..3], ["inner", "public", "main"]);
}

/// Tests the bound on the effort: many calls lead to functions that consist only of jumps, all of which would have to be
/// followed.
#[test]
fn a_program_of_jumps_does_not_keep_us() {
    const SIZE: u64 = 0x4000;
    let mut program = Program::new();
    program.function("calls", 0x1000, 0x1000);
    let calls: Vec<u64> = (0x1000..).step_by(5).take(16).collect();
    for &call in &calls {
        program.jump(call, &[0xe8], 0x4000);
    }
    for number in 0..20 {
        let start = 0x4000 + number * SIZE;
        program.function(&format!("jumps{number}"), start, SIZE);
        program.jump(start, &[0xe9], start + SIZE);
        for at in (start + 5..start + SIZE - 6).step_by(6) {
            program.jump(at, &[0xff, 0x25], SLOTS);
        }
    }
    let mut reader = Reader::at(program.build());
    let slots = Slots::holding(BASE + 0x1f80);
    let mut stack = vec![0x1004];
    stack.extend(calls.iter().map(|call| call + 5));
    // Searches that were cut off continue in the next sample; after some samples, nothing remains to be found.
    let mut read = Vec::new();
    while read.last() != Some(&0) && read.len() < 9 {
        slots.read.set(0);
        let functions = reader.functions(&stack, &slots);
        assert!(functions.len() >= stack.len());
        read.push(slots.read.get());
    }
    assert!(read[0] <= MAX_STEPS && read.len() > 2, "{read:?}");
    assert_eq!(read.last(), Some(&0), "{read:?}");
}

/// Tests a seed of the fuzz target, read as the target reads it: also as memory, where the file repeats on every page.
#[test]
fn the_fuzz_target_begins_with_a_call_through_a_slot() {
    struct Pages(&'static [u8]);

    impl Memory for Pages {
        fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
            let at = usize::try_from(address % 4096).unwrap();
            let there = self.0.get(at..at + buffer.len());
            buffer.copy_from_slice(there.ok_or(Unreadable { address })?);
            Ok(())
        }
    }

    let input = include_bytes!("../../../../fuzz/seeds/debug_image/call_through_a_slot");
    let word = |at: usize| u64::from_be_bytes(input[at..at + 8].try_into().unwrap());
    let file = OneFile(Cell::new(Some(Bytes::from_static(&input[26..]))));
    let line = format!("{BASE:x}-{:x} r-xp 00000000 fe:00 7 /program\n", 2 * BASE);
    let (mut images, mut frames) = (Images::new(Arch::X86_64, Reading::Lines), Frames::new());
    let code = images.code(&maps::parse(line.as_bytes()), &file, &Pages(input));
    let capture = Capture {
        registers: Registers::X86_64 {
            instruction: BASE + word(2),
            stack: word(10),
            frame: word(18),
            thread: 0,
        },
        bytes: input.to_vec(),
    };
    let stack = images.unwind(&code, &capture, &Pages(input), &file, &mut frames);
    let name = |&id| frames.get(id).function.as_deref().unwrap_or("?").to_owned();
    let names: Vec<String> = stack.frames.iter().rev().map(name).collect();
    assert_eq!(names[..3], ["inner", "public", "main"]);
}
