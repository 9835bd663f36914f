//! The framing of messages: a header of 16 bytes, then a payload (section 1.1 of `docs/formats/pmix.md`).

#[cfg(test)]
mod tests;

use bytes::{Buf, Bytes, BytesMut};

pub use crate::bound::MAX_MESSAGE;
use crate::{Bound, Error, Malformed};

/// Size of a header in bytes: sender, tag, length, and four bytes of C padding.
pub const HEADER: usize = 16;
/// The smallest tag of requests; lower tags are for pushes and heartbeats (section 1.2).
pub const FIRST_REQUEST: u32 = 100;

/// Purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// From the server: an event.
    Event,
    /// To the server: sign of life. Never answered.
    Heartbeat,
    /// From the server: output of a process.
    Output,
    /// A request, or the answer to the request with the same number.
    Request(u32),
    /// A tag with no known purpose.
    Reserved(u32),
}

impl Tag {
    const fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Event,
            1 => Self::Heartbeat,
            2 => Self::Output,
            3..FIRST_REQUEST | u32::MAX => Self::Reserved(number),
            number => Self::Request(number),
        }
    }

    /// Returns the number in the header.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Event => 0,
            Self::Heartbeat => 1,
            Self::Output => 2,
            Self::Request(number) | Self::Reserved(number) => number,
        }
    }
}

/// A message in its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Index that the receiver assigned to the sender. Receivers ignore it.
    pub sender: u32,
    pub tag: Tag,
    pub payload: Bytes,
}

impl Frame {
    /// Encodes the message.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = start(self.sender);
        bytes.extend_from_slice(&self.payload);
        finish(bytes, self.tag)
    }
}

/// Returns the header for a payload that is sent separately, because several receivers share it.
#[must_use]
pub fn head(sender: u32, tag: Tag, payload: &Bytes) -> Bytes {
    let mut header = start(sender);
    // A payload never reaches 4 GiB: each of its parts is bounded by MAX_MESSAGE.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    header[4..8].copy_from_slice(&tag.number().to_be_bytes());
    header[8..12].copy_from_slice(&length.to_be_bytes());
    header.into()
}

/// Creates a buffer with a placeholder for the header. The caller appends the payload, then calls [`finish`].
#[must_use]
pub fn start(sender: u32) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[..4].copy_from_slice(&sender.to_be_bytes());
    bytes
}

/// Completes the header of a message that [`start`] began.
#[must_use]
pub fn finish(mut message: Vec<u8>, tag: Tag) -> Vec<u8> {
    let length = message.len().saturating_sub(HEADER);
    // A message never reaches 4 GiB: each of its parts is bounded by MAX_MESSAGE.
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    if let Some(header) = message.get_mut(4..12) {
        header[..4].copy_from_slice(&tag.number().to_be_bytes());
        header[4..].copy_from_slice(&length.to_be_bytes());
    }
    message
}

/// Splitter of a byte stream into messages.
#[derive(Debug, Default)]
pub struct Framer {
    bytes: BytesMut,
}

impl Framer {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the number of received bytes that are not part of a returned message.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the next message, or `None` while it is incomplete.
    ///
    /// # Errors
    /// [`Error::Limit`] as soon as a header announces more than [`MAX_MESSAGE`].
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Error> {
        let Some(header) = self.bytes.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *header;
        let length = u32::from_be_bytes([i, j, k, l]);
        let Some(payload) = self.cut(length, Bound::Message)? else {
            return Ok(None);
        };
        Ok(Some(Frame {
            sender: u32::from_be_bytes([a, b, c, d]),
            tag: Tag::from_number(u32::from_be_bytes([e, f, g, h])),
            payload,
        }))
    }

    /// Returns the payload of the handshake, or `None` while it is incomplete. It precedes all messages, and its header is in the
    /// sender's byte order.
    ///
    /// # Errors
    /// The header is not that of a handshake, or announces more than [`crate::handshake::MAX_HANDSHAKE`].
    pub fn next_handshake(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(header) = self.bytes.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [sender @ .., _, _, _, _, _, _, _, _] = header;
        if *sender != [0xff; 8] {
            return Err(Error::malformed(Malformed::NoHandshake));
        }
        let [.., a, b, c, d, _, _, _, _] = *header;
        let length = u32::from_ne_bytes([a, b, c, d]);
        self.cut(length, Bound::Handshake)
    }

    /// Returns the received bytes that are not part of a returned message.
    pub(crate) fn take_rest(&mut self) -> Bytes {
        std::mem::take(&mut self.bytes).freeze()
    }

    fn cut(&mut self, length: u32, bound: Bound) -> Result<Option<Bytes>, Error> {
        let value = u64::from(length);
        if value > bound.limit() {
            return Err(Error::Limit {
                which: bound,
                value,
            });
        }
        let length = length as usize;
        if self.bytes.len() - HEADER < length {
            // The buffer grows in steps as bytes arrive, not to the announced length.
            return Ok(None);
        }
        self.bytes.advance(HEADER);
        let payload = self.bytes.split_to(length).freeze();
        if self.bytes.is_empty() {
            // Free the buffer, so that an idle connection does not hold memory from earlier messages.
            self.bytes = BytesMut::new();
        }
        Ok(Some(payload))
    }
}

/// Returns a handshake with its header.
#[must_use]
pub fn handshake(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xff; 8];
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(payload);
    bytes
}
