//! The code before a call: any bytes, with any registers and any memory.

#![no_main]

use debug::{
    call_site::{Caller, arguments},
    memory::{Memory, Unreadable},
};
use libfuzzer_sys::fuzz_target;

/// Memory in which the input repeats.
struct Repeated<'a>(&'a [u8]);

impl Memory for Repeated<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let offset = address.checked_sub(STACK).filter(|offset| *offset < SIZE);
        let offset = offset.ok_or(Unreadable { address })?;
        for (at, byte) in (offset as usize..).zip(buffer) {
            *byte = self.0[at % self.0.len()];
        }
        Ok(())
    }
}

const START: u64 = 0x1000;
const STACK: u64 = 0x7000_0000;
const SIZE: u64 = 1 << 16;
/// Two bytes say where the call returns, two which registers are known, 16 what these hold; the rest is the code.
const HEAD: usize = 20;

fuzz_target!(|input: &[u8]| {
    let Some((head, code)) = input.split_at_checked(HEAD) else {
        return;
    };
    let short = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let known = short(2);
    let register = |number: usize| {
        let value = match head[4 + number] {
            // The end of the address space, where sums begin again.
            255 => u64::MAX,
            distance => STACK + u64::from(distance) * 8,
        };
        (known >> number & 1 != 0).then_some(value)
    };
    let caller = Caller {
        code,
        start: START,
        back: START + u64::from(short(0)),
        bias: 0x10_0000,
        registers: std::array::from_fn(register),
        changed: STACK..STACK + 64,
    };
    let _ = arguments(&caller, &Repeated(input), &|address| address & 8 == 0);
});
