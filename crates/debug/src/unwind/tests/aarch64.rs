//! A recording of a thread on aarch64, with return addresses that the processor has signed (`testdata/aarch64/stack.c`).

use std::io::Read as _;

use base::{Arch, Registers};
use bytes::Bytes;

use super::{Capture, Images, OneFile};
use crate::{
    image::Reading,
    maps,
    memory::{Memory, Unreadable},
    stack::{End, Frames},
};

const PROGRAM: &[u8] = include_bytes!("../../../../../testdata/aarch64/program.gz");
const STACK: &[u8] = include_bytes!("../../../../../testdata/aarch64/stack.gz");

/// The mapping of the program's only code segment.
const MAPS: &str = "400000-401000 r-xp 00000000 fe:00 7 /home/u/stack\n";

/// The registers, and parts of the memory with their addresses; the first part is the stack.
struct Recorded {
    registers: Registers,
    parts: Vec<(u64, Vec<u8>)>,
}

impl Memory for Recorded {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let found = self.parts.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(at..at + buffer.len())
        });
        buffer.copy_from_slice(found.ok_or(Unreadable { address })?);
        Ok(())
    }
}

fn unpacked(file: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file)
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}

fn recorded() -> Recorded {
    let text = String::from_utf8(unpacked(STACK)).unwrap();
    let mut lines = text.lines();
    let number = |word: &str| u64::from_str_radix(word, 16).unwrap();
    let words: Vec<u64> = lines.next().unwrap().split(' ').map(number).collect();
    let parts = lines.map(|line| {
        let (start, digits) = line.split_once(' ').unwrap();
        let bytes = digits.as_bytes().chunks(2);
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        (number(start), bytes.map(byte).collect())
    });
    Recorded {
        registers: Registers::Aarch64 {
            instruction: words[0],
            stack: words[1],
            frame: words[2],
            link: words[3],
        },
        parts: parts.collect(),
    }
}

#[test]
fn a_thread_in_the_handler_of_a_signal() {
    let recorded = recorded();
    let file = OneFile(std::cell::Cell::new(Some(Bytes::from(unpacked(PROGRAM)))));
    let (mut images, mut frames) = (Images::new(Arch::Aarch64, Reading::Lines), Frames::new());
    let code = images.code(&maps::parse(MAPS.as_bytes()), &file, &recorded);
    let capture = Capture {
        registers: recorded.registers,
        bytes: recorded.parts[0].1.clone(),
    };
    images.begin();
    let stack = images.unwind(&code, &capture, &recorded, &file, &mut frames);
    assert_eq!(stack.end, End::Start);
    let shown = stack.frames.iter().map(|&id| {
        let frame = frames.get(id);
        let name = frame.function.as_deref().unwrap_or("?");
        match &frame.source {
            Some(source) => format!("{name} {}:{}", source.file, source.line),
            None => name.to_owned(),
        }
    });
    let shown: Vec<String> = shown.collect();
    insta::assert_snapshot!(shown.join("\n"), @r"
    _start
    begin /home/u/stack.c:68
    outer /home/u/stack.c:60
    left_by_a_jump /home/u/stack.c:54
    interrupted /home/u/stack.c:48
    <signal handler called>
    handler /home/u/stack.c:41
    wait_for_ever /home/u/stack.c:34
    call /home/u/stack.c:19
    ");
}
