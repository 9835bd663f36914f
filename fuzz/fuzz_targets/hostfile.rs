//! Files and options that describe hosts and ranks are read or refused with a message.
#![no_main]

use dvm::{alloc, place};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let names = alloc::LocalNames::new("here");
    if let Err(error) = alloc::hostfile(text, "file", &names, alloc::Base::default()) {
        assert!(!error.to_string().is_empty());
    }
    let _ = alloc::sequence(text, "file", &names, alloc::Base::default());
    let _ = alloc::hosts(text, "--host", &names, alloc::Base::default());
    let _ = place::rankfile(text, "file");
    let _ = place::map_by(text);
    let _ = place::rank_by(text);
    let _ = place::bind_to(text);
});
