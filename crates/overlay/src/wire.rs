//! Frames on a byte stream, used by every link between our processes.
//!
//! A stream begins with a preamble: four magic bytes and the version. Then come frames: a length, a kind and a body. The
//! caller defines the kinds and the bodies. The format is described in `docs/formats/front-link.md`.
//!
//! | state of [`Incoming`] | what has been received | result | next state |
//! |---|---|---|---|
//! | `Preamble` | our magic bytes and version | – | `Frames` |
//! | `Preamble` | another preamble | error | `Refused` |
//! | `Frames` | a complete frame | the frame | `Frames` |
//! | `Frames` | a length of 0, or above [`FRAME_MAX`] | error | `Refused` |
//! | `Refused` | anything | the same error | `Refused` |
//!
//! Nothing here does I/O: the caller passes bytes in and takes bytes out.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};
use zeroize::Zeroize as _;

/// The version of the frames and their contents. Both ends of a link must have the same one. Increment it with every change
/// to a message or its encoding.
pub const VERSION: u16 = 17;
/// Maximum length of a frame in bytes. A job description with a thousand environments fits; a longer frame means that the
/// peer is broken.
pub const FRAME_MAX: usize = 64 * 1024 * 1024;

/// The first bytes of a stream.
const MAGIC: [u8; 4] = *b"RLLY";
const PREAMBLE: usize = MAGIC.len() + size_of::<u16>();
/// Size of length and kind in bytes.
const HEAD: usize = 5;

/// Why a stream cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("the peer speaks another protocol")]
    Foreign,
    #[error("the peer speaks version {theirs} of the protocol, and we speak {VERSION}")]
    Version { theirs: u16 },
    #[error("a frame of {length} bytes is longer than {FRAME_MAX}, or has no kind")]
    Length { length: usize },
    #[error("a message cannot be encoded")]
    Unencodable,
    #[error("the body of a message cannot be decoded")]
    Undecodable,
}

/// Encodes a value as the body of a frame.
///
/// # Errors
///
/// [`WireError::Unencodable`] for a type that the encoding does not support.
pub fn encode<T: Serialize>(value: &T) -> Result<Bytes, WireError> {
    encode_within(value, 0)
}

/// Encodes a value as the body of a frame, in one piece of memory if it has at most `room` bytes.
///
/// # Errors
///
/// As those of [`encode`].
pub fn encode_within<T: Serialize>(value: &T, room: usize) -> Result<Bytes, WireError> {
    match postcard::to_extend(value, Vec::with_capacity(room)) {
        Ok(body) => Ok(Bytes::from(body)),
        Err(_) => Err(WireError::Unencodable),
    }
}

/// Decodes the body of a frame.
///
/// # Errors
///
/// [`WireError::Undecodable`] if the body is no such value.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, WireError> {
    postcard::from_bytes(body).map_err(|_| WireError::Undecodable)
}

/// Decodes a value at the start of a body, and returns the bytes behind it. They are not copied.
///
/// # Errors
///
/// [`WireError::Undecodable`] if the body does not begin with such a value.
pub fn decode_first<T: DeserializeOwned>(body: &Bytes) -> Result<(T, Bytes), WireError> {
    match postcard::take_from_bytes(body) {
        Ok((value, rest)) => Ok((value, body.slice_ref(rest))),
        Err(_) => Err(WireError::Undecodable),
    }
}

/// What happens with bytes that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterWrite {
    Dropped,
    /// They are overwritten first, if nobody else has them.
    Erased,
}

/// The queue of outgoing bytes.
#[derive(Debug)]
pub struct Outgoing {
    queue: VecDeque<Bytes>,
    /// Number of bytes of the first piece that were written. A piece stays whole until its end, so that it can be erased.
    offset: usize,
    after_write: AfterWrite,
}

impl Default for Outgoing {
    fn default() -> Self {
        let mut preamble = Vec::with_capacity(PREAMBLE);
        preamble.extend_from_slice(&MAGIC);
        preamble.extend_from_slice(&VERSION.to_le_bytes());
        Self {
            queue: VecDeque::from([Bytes::from(preamble)]),
            offset: 0,
            after_write: AfterWrite::Dropped,
        }
    }
}

/// Overwrites bytes that are not needed any more. Returns them; `None` if somebody else has them too.
fn erased(piece: Bytes) -> Option<BytesMut> {
    let mut bytes = piece.try_into_mut().ok()?;
    bytes.as_mut().zeroize();
    Some(bytes)
}

impl Outgoing {
    /// Overwrites what was written: frames may hold answers to prompts for passwords.
    #[must_use]
    pub const fn erasing(mut self) -> Self {
        self.after_write = AfterWrite::Erased;
        self
    }

    /// Appends a frame: its kind, a part of the body that is copied, and one that is not.
    ///
    /// # Errors
    ///
    /// [`WireError::Length`] for a frame that the peer would refuse. It is not queued.
    pub fn push(&mut self, kind: u8, fixed: &[u8], body: Bytes) -> Result<(), WireError> {
        let length = 1 + fixed.len() + body.len();
        let written = match u32::try_from(length) {
            Ok(written) if length <= FRAME_MAX => written,
            _ => return Err(WireError::Length { length }),
        };
        let mut head = Vec::with_capacity(HEAD + fixed.len());
        head.extend_from_slice(&written.to_le_bytes());
        head.push(kind);
        head.extend_from_slice(fixed);
        self.queue.push_back(Bytes::from(head));
        if !body.is_empty() {
            self.queue.push_back(body);
        }
        Ok(())
    }

    /// Returns true if all bytes were written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the bytes to write, in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut skipped = self.offset;
        self.queue
            .iter()
            .map(move |piece| &piece[std::mem::take(&mut skipped)..])
    }

    /// Removes `count` bytes that were written.
    pub fn written(&mut self, count: usize) {
        for piece in self.take_written(count) {
            if self.after_write == AfterWrite::Erased {
                drop(erased(piece));
            }
        }
    }

    /// Removes `count` bytes that were written, and returns the pieces that were written to their end.
    fn take_written(&mut self, count: usize) -> Vec<Bytes> {
        let mut done = Vec::new();
        self.offset += count;
        while let Some(first) = self.queue.pop_front() {
            if self.offset < first.len() {
                self.queue.push_front(first);
                return done;
            }
            self.offset -= first.len();
            done.push(first);
        }
        done
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Preamble,
    Frames,
    Refused(WireError),
}

/// The bytes received and not yet taken as frames.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: BytesMut,
    state: State,
}

impl Incoming {
    /// Appends bytes that were read.
    pub fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete frame: its kind and its body.
    ///
    /// # Errors
    ///
    /// The peer's violation of the format, in this call and all later ones.
    pub fn frame(&mut self) -> Result<Option<(u8, Bytes)>, WireError> {
        let frame = self.own_frame()?;
        Ok(frame.map(|(kind, body)| (kind, body.freeze())))
    }

    /// Returns the next complete frame, whose body nobody else has: it can be erased.
    ///
    /// # Errors
    ///
    /// As those of [`Self::frame`].
    pub fn own_frame(&mut self) -> Result<Option<(u8, BytesMut)>, WireError> {
        if self.state == State::Preamble {
            let Some(preamble) = self.bytes.first_chunk::<PREAMBLE>() else {
                return Ok(None);
            };
            let [a, b, c, d, version @ ..] = *preamble;
            let theirs = u16::from_le_bytes(version);
            if [a, b, c, d] != MAGIC {
                return self.refuse(WireError::Foreign);
            }
            if theirs != VERSION {
                return self.refuse(WireError::Version { theirs });
            }
            drop(self.bytes.split_to(PREAMBLE));
            self.state = State::Frames;
        }
        if let State::Refused(error) = self.state {
            return Err(error);
        }
        let Some(length) = self.bytes.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 || length > FRAME_MAX {
            return self.refuse(WireError::Length { length });
        }
        if self.bytes.len() < 4 + length {
            return Ok(None);
        }
        let mut frame = self.bytes.split_to(4 + length);
        let kind = frame[4];
        drop(frame.split_to(HEAD));
        Ok(Some((kind, frame)))
    }

    fn refuse<T>(&mut self, error: WireError) -> Result<T, WireError> {
        self.bytes = BytesMut::new();
        self.state = State::Refused(error);
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(outgoing: &Outgoing) -> Vec<u8> {
        outgoing.pieces().flatten().copied().collect()
    }

    #[test]
    fn who_speaks_otherwise_is_refused() {
        let refused = |bytes: &[u8]| {
            let mut incoming = Incoming::default();
            incoming.take(bytes);
            let error = incoming.frame().unwrap_err();
            incoming.take(&all(&Outgoing::default()));
            assert_eq!(incoming.frame(), Err(error), "once refused, always refused");
            error.to_string()
        };
        let hello = |version: u16| [b"RLLY", version.to_le_bytes().as_slice()].concat();
        assert_eq!(
            refused(&hello(VERSION + 1)),
            format!(
                "the peer speaks version {} of the protocol, and we speak {VERSION}",
                VERSION + 1
            )
        );
        let said = [
            refused(b"GET / HTTP/1.1"),
            refused(&[hello(VERSION), 0_u32.to_le_bytes().to_vec()].concat()),
            refused(&[hello(VERSION), u32::MAX.to_le_bytes().to_vec()].concat()),
        ];
        insta::assert_snapshot!(said.join("\n"), @"
        the peer speaks another protocol
        a frame of 0 bytes is longer than 67108864, or has no kind
        a frame of 4294967295 bytes is longer than 67108864, or has no kind
        ");
    }

    #[test]
    fn what_the_peer_would_refuse_is_not_sent() {
        let mut outgoing = Outgoing::default();
        let before = all(&outgoing);
        let body = Bytes::from(vec![0; FRAME_MAX]);
        let length = FRAME_MAX + 1;
        assert_eq!(
            outgoing.push(0, &[], body.clone()),
            Err(WireError::Length { length })
        );
        assert_eq!(all(&outgoing), before);
        assert_eq!(outgoing.push(0, &[], body.slice(1..)), Ok(()));
    }

    /// A piece that was written in parts is erased whole.
    #[test]
    fn what_was_written_can_be_erased() {
        let mut outgoing = Outgoing::default();
        outgoing.push(7, &[], Bytes::from(vec![b'x'; 9])).unwrap();
        let before_body = PREAMBLE + HEAD;
        assert_eq!(outgoing.take_written(before_body + 4).len(), 2);
        assert_eq!(outgoing.pieces().collect::<Vec<_>>(), [b"xxxxx"]);
        let [body] = <[Bytes; 1]>::try_from(outgoing.take_written(5)).unwrap();
        assert!(outgoing.is_empty());
        let shared = body.clone();
        assert_eq!(erased(shared), None);
        assert_eq!(erased(body).as_deref(), Some(&[0; 9][..]));
    }

    #[test]
    fn a_value_without_a_form_is_an_error() {
        /// A sequence of unknown length.
        struct Endless;
        impl Serialize for Endless {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq((0..3).filter(|number| number % 2 == 0))
            }
        }
        assert_eq!(encode(&Endless), Err(WireError::Unencodable));
        assert_eq!(decode::<u32>(&encode(&7_u32).unwrap()), Ok(7));
        assert_eq!(decode::<u32>(&[0xff]), Err(WireError::Undecodable));
    }

    proptest! {
        #[test]
        fn frames_arrive_whole_however_they_are_cut(
            frames in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 0..40)), 0..12),
            cuts in prop::collection::vec(1_usize..30, 1..40),
        ) {
            let mut outgoing = Outgoing::default();
            for (kind, fixed, body) in &frames {
                outgoing.push(*kind, fixed, Bytes::copy_from_slice(body)).unwrap();
            }
            let mut incoming = Incoming::default();
            let mut arrived = Vec::new();
            for cut in cuts.iter().cycle() {
                let some: Vec<u8> = outgoing.pieces().flatten().copied().take(*cut).collect();
                if some.is_empty() {
                    break;
                }
                outgoing.written(some.len());
                incoming.take(&some);
                while let Some((kind, body)) = incoming.frame().unwrap() {
                    arrived.push((kind, body.to_vec()));
                }
            }
            prop_assert!(outgoing.is_empty());
            let sent = frames.into_iter().map(|(kind, fixed, body)| (kind, [fixed, body].concat()));
            prop_assert_eq!(arrived, sent.collect::<Vec<_>>());
        }
    }
}
