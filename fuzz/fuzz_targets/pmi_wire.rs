//! Any bytes are read as PMI-1 or refused; what was read is written back as the same commands, however it is cut.
#![no_main]

#[path = "pmi/again.rs"]
mod again;

use libfuzzer_sys::fuzz_target;
use pmix::pmi::wire::{Framer, MAX_COMMAND};

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    // Where a line is too long may be seen earlier when it comes in parts; all else is the same.
    let cut = (bytes.len() < MAX_COMMAND).then_some(usize::from(cut) + 1);
    again::check(Framer::default, bytes, cut);
});
