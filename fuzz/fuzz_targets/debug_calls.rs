//! The region of recorded calls of a rank that writes anything into it, read twice and judged.

#![no_main]

use std::{collections::BTreeMap, sync::Arc};

use base::Rank;
use debug::{
    memory::{Memory, Unreadable},
    recorded::{overview, proof, region, words},
};
use libfuzzer_sys::fuzz_target;

/// Memory in which the input repeats. Its first half begins the region.
struct Repeated<'a>(&'a [u8]);

const AT: u64 = 0x7000_0000;
const SIZE: u64 = 2 << 20;

impl Memory for Repeated<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let offset = address.checked_sub(AT).filter(|offset| *offset < SIZE);
        let offset = offset.ok_or(Unreadable { address })?;
        for (at, byte) in (offset as usize..).zip(buffer) {
            *byte = self.0[at % self.0.len()];
        }
        Ok(())
    }
}

fuzz_target!(|input: &[u8]| {
    if input.is_empty() {
        return;
    }
    // What a dead process has left, read by the daemon of its node.
    if let region::Content::Calls(left) = region::read_left(&[input.to_vec()], None, region::Extent::Current) {
        let _ = left.last().map(|last| words::call(last, &left));
    }
    let memory = Repeated(input);
    let mut place = |_| Some(Arc::from("a.c:1"));
    let at = region::Region {
        address: AT,
        pid: None,
    };
    let extent = region::Extent::Last(20);
    let region::Content::Calls(calls) = region::read(&memory, at, extent, &mut place) else {
        return;
    };
    let _ = words::history(Rank(0), &calls);
    let all: BTreeMap<Rank, _> = (0..2).map(|rank| (Rank(rank), (*calls).clone())).collect();
    let _ = overview::Overview::of(&all);
    if let Some(proof) = proof::prove(&all, &all, |_| true) {
        let _ = words::cause(&proof, &all);
    }
});
