//! Python string objects.

use super::layout::{TextLayout, number, word};
use crate::memory::Memory;

/// Maximum number of characters read from a string; longer ones are cut.
const MAX_CHARACTERS: u64 = 4096;

/// Possible positions of the `kind` bits in a string's state: after two bits for interning, or in free-threaded builds after one
/// or two bytes for it.
const SHIFTS: [u32; 3] = [2, 8, 16];

/// Returns the string at an address; `None` if there is no valid one.
pub(super) fn read(address: u64, layout: TextLayout, memory: &dyn Memory) -> Option<String> {
    let head = memory
        .bytes(address, usize::try_from(layout.ascii).ok()?)
        .ok()?;
    let length = word(&head, layout.length)?.min(MAX_CHARACTERS);
    let state = number(&head, layout.state)?.cast_unsigned();
    // Three bits of the kind; a bit that is set if the characters follow the head; a bit that is set if all are ASCII.
    let bits = SHIFTS.iter().map(|shift| state >> shift).find(|bits| {
        let (kind, compact) = (bits & 7, bits & 8);
        matches!(kind, 1 | 2 | 4) && compact != 0
    })?;
    let size = u64::from(bits & 7);
    let start = if bits & 16 != 0 {
        layout.ascii
    } else {
        layout.other
    };
    let bytes = memory
        .bytes(
            address.wrapping_add(start),
            usize::try_from(length * size).ok()?,
        )
        .ok()?;
    let character = |code: u32| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    Some(
        bytes
            .chunks_exact(usize::try_from(size).ok()?)
            .map(|bytes| {
                let mut whole = [0; 4];
                whole[..bytes.len()].copy_from_slice(bytes);
                character(u32::from_le_bytes(whole))
            })
            .collect(),
    )
}
