//! Tests of calls of MPI whose arguments are read from the code, in hand-written programs.

use base::{Arch, Registers};

use super::{super::Capture, BASE, Images, OneFile, SLOTS, STACK, Slots};
use crate::{
    image::{
        Reading,
        tests::made::{LENGTH, Program},
    },
    maps,
    stack::Frames,
};

/// `mov $8, %r8d; mov $1, %ecx; mov $0x44000000, %r9d`, at the beginning of `main`.
const ARGUMENTS: [u8; 17] = [
    0x41, 0xb8, 8, 0, 0, 0, 0xb9, 1, 0, 0, 0, 0x41, 0xb9, 0, 0, 0, 0x44,
];
const CALL: u64 = 0x1000 + ARGUMENTS.len() as u64;

/// Returns the call of a thread that is in `MPI_Recv`, called by `main` in a program that `make` has completed; and how many calls are
/// known after two threads were looked at.
fn read(make: impl FnOnce(&mut Program)) -> (Option<String>, usize) {
    let mut program = Program::new();
    program.function("main", 0x1000, 0x100);
    program.function("MPI_Recv", 0x2000, 0x40);
    program.function("wrapper", 0x4000, 0x40);
    program.function("main.cold", 0x6000, 0x40);
    program.put(0x1000, &ARGUMENTS);
    make(&mut program);
    let file = OneFile(Some(program.build()).into());
    let line = format!(
        "{BASE:x}-{:x} r-xp 00000000 fe:00 7 /lib/libmpi.so.12\n",
        BASE + LENGTH as u64
    );
    let slots = Slots::holding(BASE + 0x2000);
    let (mut images, mut frames) = (Images::new(Arch::X86_64, Reading::Lines), Frames::new());
    let mut found = Vec::new();
    for _ in 0..2 {
        let code = images.code(&maps::parse(line.as_bytes()), &file, &slots);
        let words = [STACK + 0x20, BASE + CALL + 5, 0, 0, 0, 0];
        let capture = Capture {
            registers: Registers::X86_64 {
                instruction: BASE + 0x2004,
                stack: STACK,
                frame: STACK,
                thread: 0,
            },
            bytes: words.into_iter().flat_map(u64::to_le_bytes).collect(),
        };
        let stack = images.unwind(&code, &capture, &slots, &file, &mut frames);
        let site = images.call_site(&code, &capture, &stack, &slots, &file, &mut frames);
        found.push(site.map(|site| site.sentence()));
    }
    assert_eq!(found[0], found[1]);
    (found.swap_remove(0), images.sites.len())
}

#[test]
fn a_call_is_read_once_if_nothing_is_doubtful() {
    const RIGHT: &str = "MPI_Recv from rank 1, tag 8, WORLD (main), read from the code";
    let right = || Some(RIGHT.to_owned());
    let direct = |program: &mut Program| program.jump(CALL, &[0xe8], 0x2000);
    assert_eq!(read(direct), (right(), 1));
    let by_slot = |program: &mut Program| {
        program.jump(CALL, &[0xe8], 0x5000);
        program.jump(0x5000, &[0xff, 0x25], SLOTS);
    };
    assert_eq!(read(by_slot), (right(), 1));
    // A function in between can have other arguments.
    let by_wrapper = |program: &mut Program| {
        program.jump(CALL, &[0xe8], 0x4000);
        program.jump(0x4010, &[0xe9], 0x2000);
    };
    assert_eq!(read(by_wrapper), (None, 0));
    let by_register = |program: &mut Program| program.put(CALL + 3, &[0xff, 0xd0]);
    assert_eq!(read(by_register), (None, 1));
    // A far part of the function jumps back: to the beginning, the second argument, the call, and into an instruction.
    let half = "MPI_Recv from rank 1, tag ?, WORLD (main), read from the code";
    for (to, expected) in [
        (0x1000, right()),
        (0x1006, Some(half.to_owned())),
        (CALL, None),
        (0x1007, None),
    ] {
        let from_afar = |program: &mut Program| {
            direct(program);
            program.jump(0x6010, &[0x0f, 0x84], to);
        };
        assert_eq!(read(from_afar), (expected, 1), "{to:x}");
    }
}
