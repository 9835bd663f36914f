//! Messages of a stream: a header of 16 bytes, then a payload (section 1.1 of `docs/formats/pmix.md`).

#[cfg(test)]
mod tests;

use bytes::{Buf, Bytes, BytesMut};

pub use crate::bound::MAX_MESSAGE;
use crate::{Bound, Error, Malformed};

/// Bytes of a header: sender, tag, length, and four that C adds.
pub const HEADER: usize = 16;
/// The tag of the first request of a connection; smaller ones are for pushes and heartbeats (section 1.2).
pub const FIRST_REQUEST: u32 = 100;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// From the server: an event.
    Event,
    /// To the server: the process lives. Never answered.
    Heartbeat,
    /// From the server: output of a process.
    Output,
    /// A request, or the answer to the one of the same number.
    Request(u32),
    /// Nothing that is known.
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

    /// The number in the header.
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

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The number that the sender has at the receiver, which nobody looks at.
    pub sender: u32,
    pub tag: Tag,
    pub payload: Bytes,
}

impl Frame {
    /// The message as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = start(self.sender);
        bytes.extend_from_slice(&self.payload);
        finish(bytes, self.tag)
    }
}

/// The header of a message whose payload is sent behind it by itself, because others get the same.
#[must_use]
pub fn head(sender: u32, tag: Tag, payload: &Bytes) -> Bytes {
    let mut header = start(sender);
    // Nobody writes a message of 4 GiB: each of its parts is bounded by MAX_MESSAGE.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    header[4..8].copy_from_slice(&tag.number().to_be_bytes());
    header[8..12].copy_from_slice(&length.to_be_bytes());
    header.into()
}

/// Room for a header, behind which the payload is written; [`finish`] fills it in.
#[must_use]
pub fn start(sender: u32) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[..4].copy_from_slice(&sender.to_be_bytes());
    bytes
}

/// Fills in the header of a message that [`start`] began.
#[must_use]
pub fn finish(mut message: Vec<u8>, tag: Tag) -> Vec<u8> {
    let length = message.len().saturating_sub(HEADER);
    // Nobody writes a message of 4 GiB: each of its parts is bounded by MAX_MESSAGE.
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    if let Some(header) = message.get_mut(4..12) {
        header[..4].copy_from_slice(&tag.number().to_be_bytes());
        header[4..].copy_from_slice(&length.to_be_bytes());
    }
    message
}

/// Cuts a stream into messages, however it arrives.
#[derive(Debug, Default)]
pub struct Framer {
    bytes: BytesMut,
}

impl Framer {
    /// Takes what has arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that have arrived and are no whole message yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.bytes.len()
    }

    /// The next message, when it is there whole.
    ///
    /// # Errors
    /// [`Error::Limit`] as soon as its header says that it is longer than [`MAX_MESSAGE`].
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

    /// The payload of the handshake, which comes before all messages and whose header is in the sender's own order.
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
            // Room for the rest is made in steps, as it comes.
            return Ok(None);
        }
        self.bytes.advance(HEADER);
        let payload = self.bytes.split_to(length).freeze();
        if self.bytes.is_empty() {
            // A connection that is silent takes no memory for what it once sent.
            self.bytes = BytesMut::new();
        }
        Ok(Some(payload))
    }
}

/// A handshake behind its header.
#[must_use]
pub fn handshake(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xff; 8];
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(payload);
    bytes
}
