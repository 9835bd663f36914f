//! A program of any bytes, mapped into a process of which registers and memory are any bytes too.

#![no_main]

use std::path::Path;

use base::{Arch, Registers};
use bytes::Bytes;
use debug::{
    image::{Files, Reading},
    maps::{self, Mapping},
    memory::{Memory, Unreadable},
    stack::Frames,
    unwind::{Capture, Images, MAX_FRAMES},
};
use libfuzzer_sys::fuzz_target;

/// The first bytes of the input, as often as there are pages.
struct Words<'a>(&'a [u8]);

impl Memory for Words<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        for (at, byte) in buffer.iter_mut().enumerate() {
            let place = address.wrapping_add(at as u64) % PAGE;
            let place = usize::try_from(place).unwrap_or(0);
            *byte = *self.0.get(place).ok_or(Unreadable { address })?;
        }
        Ok(())
    }
}

/// One file for all paths: the program, which is its own debug information too.
struct OneFile(Bytes);

impl Files for OneFile {
    fn open(&self, _: &Path) -> Option<Bytes> {
        Some(self.0.clone())
    }

    fn open_mapped(&self, _: &Mapping) -> Option<Bytes> {
        Some(self.0.clone())
    }
}

const PAGE: u64 = 4096;
const BASE: u64 = 0x10_0000;

/// Two bytes say which part of the program is mapped, 24 are registers, the rest is the program.
const HEAD: usize = 26;

fuzz_target!(|input: &[u8]| {
    let Some((head, program)) = input.split_at_checked(HEAD) else {
        return;
    };
    let word = |at: usize| {
        head[at..]
            .iter()
            .take(8)
            .fold(0, |word, &byte| word << 8 | u64::from(byte))
    };
    let registers = [word(2), word(10), word(18)];
    let offset = u64::from(head[0]);
    let memory = input[..input.len().min(4096)].to_vec();
    let files = OneFile(Bytes::copy_from_slice(program));
    let end = BASE + 0x10_0000;
    let offset = offset << 12;
    let line = format!("{BASE:x}-{end:x} r-xp {offset:08x} fe:00 7 /program\n");
    let words = Words(&memory);
    let [at, stack, frame] = registers;
    let instruction = BASE.wrapping_add(at & 0xfffff);
    let registers = [
        Registers::X86_64 {
            instruction,
            stack,
            frame,
            thread: 0,
        },
        Registers::Aarch64 {
            instruction,
            stack,
            frame,
            link: at,
        },
    ];
    for (arch, registers) in Arch::ALL.into_iter().zip(registers) {
        let (mut images, mut frames) = (Images::new(arch, Reading::Lines), Frames::new());
        let code = images.code(&maps::parse(line.as_bytes()), &files, &words);
        let _ = images.joining(&code);
        let capture = Capture {
            registers,
            bytes: memory.clone(),
        };
        let stack = images.unwind(&code, &capture, &words, &files, &mut frames);
        assert!(stack.frames.len() < 2 * MAX_FRAMES);
        let _ = images.call_site(&code, &capture, &stack, &words, &files, &mut frames);
    }
});
