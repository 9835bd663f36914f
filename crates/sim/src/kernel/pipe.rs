//! Pipes with a finite capacity.

use std::collections::VecDeque;

use bytes::Bytes;

/// Identifier of a pipe on its node; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PipeId(pub(crate) u32);

#[derive(Debug)]
pub(crate) struct Pipe {
    queue: VecDeque<Bytes>,
    len: usize,
    room: usize,
    pub(crate) writers: u32,
    pub(crate) readers: u32,
}

/// The result of a read. `Nothing` means that the pipe is empty and still has a writer; `End` is end of file.
#[derive(Debug)]
pub(crate) enum Taken {
    Bytes(Bytes),
    Nothing,
    End,
}

impl Pipe {
    pub(super) const fn new(room: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            len: 0,
            room,
            writers: 0,
            readers: 0,
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes and returns at most `max` bytes.
    pub(super) fn take(&mut self, max: usize) -> Taken {
        let Some(first) = self.queue.front_mut() else {
            return if self.writers == 0 {
                Taken::End
            } else {
                Taken::Nothing
            };
        };
        // A read that the first piece can satisfy copies nothing. Smaller pieces are joined, as a real pipe does.
        let bytes = if first.len() >= max {
            first.split_to(max)
        } else {
            let mut joined = Vec::with_capacity(max.min(self.len));
            while let Some(piece) = self.queue.front_mut() {
                let part = piece.len().min(max - joined.len());
                joined.extend_from_slice(&piece.split_to(part));
                if !piece.is_empty() {
                    break;
                }
                self.queue.pop_front();
            }
            Bytes::from(joined)
        };
        if self.queue.front().is_some_and(Bytes::is_empty) {
            self.queue.pop_front();
        }
        self.len -= bytes.len();
        Taken::Bytes(bytes)
    }

    /// Moves as many bytes as fit from the front of `bytes` into the pipe, and returns their number. `None` if the pipe has no
    /// reader.
    pub(super) fn put(&mut self, bytes: &mut Bytes) -> Option<usize> {
        if self.readers == 0 {
            return None;
        }
        let part = bytes.len().min(self.room - self.len);
        if part > 0 {
            self.queue.push_back(bytes.split_to(part));
            self.len += part;
        }
        Some(part)
    }
}
