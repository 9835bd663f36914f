//! Any bytes are read as PMI-2 or refused; what was read is written back as the same commands, however it is cut. The
//! input is read as it comes, and as the text of one command whose count is right.
#![no_main]

#[path = "pmi/again.rs"]
mod again;

use libfuzzer_sys::fuzz_target;
use pmix::pmi::wire::{Framer, MAX_COUNTED};

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let cut = Some(usize::from(cut) + 1);
    again::check(Framer::counted, bytes, cut);
    if bytes.len() <= MAX_COUNTED {
        let mut counted = format!("{:<6}cmd=", bytes.len() + 4).into_bytes();
        counted.extend_from_slice(bytes);
        again::check(Framer::counted, &counted, cut);
    }
});
