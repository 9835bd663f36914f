//! Compressed bodies of binary packets (section 3.1). They are only decoded: what we send is never compressed.
//!
//! A code is a binary tree, which both sides make from the frequencies of the 256 bytes. It depends on the order in which nodes of equal
//! frequency are joined, which is that of two queues:
//!
//! 1. The leaves are in the first queue, ordered by frequency and then by byte. The second queue is empty.
//! 2. The first child of a new node is the head of the first queue if that is strictly less frequent than the head of the second, which it
//!    is otherwise. The second child is the head of the other queue; but if the next one of the same queue is strictly less frequent, that
//!    one. If a queue is empty, both come from the other one.
//! 3. The new node has the sum of their frequencies. It becomes the last one of the first queue if that is empty or its last one is strictly
//!    less frequent; otherwise the last one of the second queue.
//! 4. This repeats until one node is left. A bit 0 leads to the first child.

use std::collections::VecDeque;

use crate::packet::{Bound, MAX_PACKET, Malformed};

/// Bytes of the frequencies in a packet: 256 numbers of four bytes, the most significant one first.
pub(crate) const TABLE: usize = 256 * 4;

/// A code by which compressed bodies are decoded.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    /// Children of each inner node. A child below 256 is a leaf, and that byte; others are inner nodes, the number of which is 256 less.
    nodes: Vec<[usize; 2]>,
}

/// A node on its way into the tree.
#[derive(Clone, Copy)]
struct Joined {
    frequency: u32,
    child: usize,
}

impl Default for Code {
    /// The code of a connection on which no frequencies have come: all bytes are equally frequent.
    fn default() -> Self {
        Self::of(&[1; 256])
    }
}

impl Code {
    /// Reads the frequencies of a packet.
    pub(crate) fn decode(table: &[u8; TABLE]) -> Result<Self, Malformed> {
        let mut frequencies = [0; 256];
        let mut sum: u32 = 0;
        for (frequency, bytes) in frequencies.iter_mut().zip(table.as_chunks().0) {
            *frequency = u32::from_be_bytes(*bytes);
            // The sender has signed numbers, which must not overflow.
            let next = sum.checked_add(*frequency);
            let next = next.filter(|sum| i32::try_from(*sum).is_ok());
            sum = next.ok_or(Malformed::Frequencies)?;
        }
        Ok(Self::of(&frequencies))
    }

    fn of(frequencies: &[u32; 256]) -> Self {
        let leaf = |(child, frequency): (usize, &u32)| Joined {
            frequency: *frequency,
            child,
        };
        let mut leaves: Vec<Joined> = frequencies.iter().enumerate().map(leaf).collect();
        leaves.sort_by_key(|leaf| leaf.frequency);
        let mut queues = [VecDeque::from(leaves), VecDeque::new()];
        let mut nodes = Vec::with_capacity(255);
        while let Some([first, second]) = take_two(&mut queues) {
            let new = Joined {
                frequency: first.frequency + second.frequency,
                child: 256 + nodes.len(),
            };
            nodes.push([first.child, second.child]);
            let is_last = |last: &Joined| new.frequency > last.frequency;
            let into = usize::from(!queues[0].back().is_none_or(is_last));
            queues[into].push_back(new);
        }
        Self { nodes }
    }

    /// Decodes a bit stream, the least significant bit of each byte first, to a body of this length.
    pub(crate) fn expand(&self, length: usize, bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
        if length > MAX_PACKET {
            return Err(Malformed::TooLarge(Bound::Packet));
        }
        let bits = bytes
            .iter()
            .flat_map(|byte| (0..8).map(move |bit| usize::from(byte >> bit & 1)));
        let root = self.nodes.len() - 1;
        let mut node = root;
        // A byte has at least one bit: a length that is not true reserves nothing.
        let mut body = Vec::with_capacity(length.min(bytes.len() * 8));
        for bit in bits {
            if body.len() == length {
                break;
            }
            match self.nodes[node][bit] {
                inner @ 256.. => node = inner - 256,
                leaf => {
                    body.extend(u8::try_from(leaf));
                    node = root;
                }
            }
        }
        match body.len() == length {
            true => Ok(body),
            false => Err(Malformed::Short),
        }
    }
}

/// Takes the children of the next node; `None` if one node is left.
fn take_two(queues: &mut [VecDeque<Joined>; 2]) -> Option<[Joined; 2]> {
    if queues[0].len() + queues[1].len() < 2 {
        return None;
    }
    let head = |queue: &VecDeque<Joined>| queue.front().map(|node| node.frequency);
    let (from, other) = match (head(&queues[0]), head(&queues[1])) {
        (Some(one), Some(two)) if one < two => (0, 1),
        (Some(_), None) => (0, 1),
        _ => (1, 0),
    };
    let first = queues[from].pop_front()?;
    let second = match (head(&queues[from]), head(&queues[other])) {
        (Some(same), Some(others)) if others > same => from,
        (_, Some(_)) => other,
        (_, None) => from,
    };
    Some([first, queues[second].pop_front()?])
}
