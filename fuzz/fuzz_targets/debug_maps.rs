//! What a process has mapped, by a kernel that writes anything.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    for mapping in debug::maps::parse(text) {
        let _ = (mapping.range, mapping.path);
    }
});
