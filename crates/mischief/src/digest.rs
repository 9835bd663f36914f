//! A checksum of a byte stream, for comparing the data seen by two processes.

use std::fmt;

/// Length and FNV-1a checksum of a stream. It hashes whole words of eight bytes, so that it keeps up with a pipe.
///
/// It finds lost, duplicated and swapped bytes. It is not cryptographic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    bytes: u64,
    state: u64,
    /// Bytes of the incomplete last word, in the low-order end.
    tail: u64,
}

impl Digest {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    const WORD: u64 = 8;

    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: 0,
            state: Self::BASIS,
            tail: 0,
        }
    }

    /// Returns the digest of a stream that consists of this slice.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut digest = Self::new();
        digest.update(bytes);
        digest
    }

    /// Adds the next bytes. The result does not depend on how the stream is split into slices.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !self.bytes.is_multiple_of(Self::WORD)
            && let [first, rest @ ..] = bytes
        {
            self.byte(*first);
            bytes = rest;
        }
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.bytes += Self::WORD;
            self.mix(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.byte(*byte);
        }
    }

    fn byte(&mut self, byte: u8) {
        self.tail |= u64::from(byte) << (8 * (self.bytes % Self::WORD));
        self.bytes += 1;
        if self.bytes.is_multiple_of(Self::WORD) {
            self.mix(self.tail);
            self.tail = 0;
        }
    }

    const fn mix(&mut self, word: u64) {
        self.state = (self.state ^ word)
            .wrapping_mul(Self::PRIME)
            .rotate_left(29);
    }

    /// Returns the number of bytes in the stream.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

/// Writes the number of bytes and the checksum, in the common format of all programs here.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = (self.state ^ self.tail).wrapping_mul(Self::PRIME);
        write!(f, "{} bytes, checksum {last:016x}", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_makes_no_difference() {
        let bytes = (0..1_000u32)
            .map(|n| (n * 7 % 251) as u8)
            .collect::<Vec<_>>();
        for cut in 0..bytes.len() {
            let (head, tail) = bytes.split_at(cut);
            let mut digest = Digest::of(head);
            digest.update(tail);
            assert_eq!(digest, Digest::of(&bytes), "cut at {cut}");
        }
    }

    #[test]
    fn lost_doubled_and_swapped_bytes_differ() {
        let shown = |bytes: &[u8]| Digest::of(bytes).to_string();
        let whole = shown(b"a stream of some words");
        for other in [
            &b"a stream of some word"[..],
            b"a stream of some wordss",
            b"a stream fo some words",
            b"a stream of some words\0",
        ] {
            assert_ne!(shown(other), whole);
        }
    }
}
