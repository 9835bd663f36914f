//! The bytes of a connection.

use bytes::{Buf as _, BytesMut};

use crate::{
    ascii, binary,
    huffman::Code,
    lines,
    packet::{Bound, Framing, MAX_ARGS, MAX_PACKET, Malformed, Packet},
};

/// Takes the bytes that come from the other side, in pieces of any length, and returns packets.
///
/// It holds at most one packet that is not whole, of at most [`MAX_PACKET`] bytes, beside the bytes of the last piece.
#[derive(Debug, Default)]
pub struct Decoder {
    framing: Option<Framing>,
    bytes: BytesMut,
    code: Option<Code>,
    /// Bytes in which no line ends.
    searched: usize,
    /// Why there are no more packets.
    malformed: Option<Malformed>,
}

impl Decoder {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the framing of the other side; `None` before its first byte.
    #[must_use]
    pub const fn framing(&self) -> Option<Framing> {
        self.framing
    }

    /// Takes bytes. Call [`Self::next_packet`] until it has none, before the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.malformed.is_none() {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Returns true if the other side has begun a packet that is not whole.
    #[must_use]
    pub fn is_within_packet(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Returns the next packet; `None` if it is not whole yet.
    ///
    /// # Errors
    ///
    /// The bytes are no packet. All further calls return the same error.
    pub fn next_packet(&mut self) -> Result<Option<Packet>, Malformed> {
        if let Some(malformed) = self.malformed {
            return Err(malformed);
        }
        self.take().inspect_err(|malformed| {
            self.malformed = Some(*malformed);
            self.bytes = BytesMut::new();
        })
    }

    fn take(&mut self) -> Result<Option<Packet>, Malformed> {
        let Some(first) = self.bytes.first() else {
            return Ok(None);
        };
        let framing = match self.framing {
            Some(framing) => framing,
            None => *self.framing.insert(match first {
                0 => Framing::Binary,
                b'A'..=b'Z' => Framing::Lines,
                digit if digit.is_ascii_hexdigit() => Framing::Ascii,
                other => return Err(Malformed::NoFraming(*other)),
            }),
        };
        match framing {
            Framing::Ascii => {
                self.take_counted(ascii::LENGTH, ascii::number, |body, _| ascii::decode(body))
            }
            Framing::Binary => self.take_counted(
                binary::LENGTH,
                |bytes| {
                    let bytes = bytes.iter();
                    Ok(bytes.fold(0, |length, byte| length << 8 | u32::from(*byte)))
                },
                binary::decode,
            ),
            Framing::Lines => self.take_line(),
        }
    }

    /// Takes a line. Empty ones are skipped.
    fn take_line(&mut self) -> Result<Option<Packet>, Malformed> {
        while let Some(end) = self.bytes[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n')
        {
            let mut line = self.bytes.split_to(self.searched + end + 1);
            self.searched = 0;
            line.truncate(line.len() - 1);
            if line.len() > MAX_PACKET {
                return Err(Malformed::TooLarge(Bound::Packet));
            }
            if !line.trim_ascii().is_empty() {
                return lines::decode(&line).map(Some);
            }
        }
        // The next bytes continue the line: it is searched once.
        self.searched = self.bytes.len();
        match self.searched {
            0..=MAX_PACKET => Ok(None),
            _ => Err(Malformed::TooLarge(Bound::Packet)),
        }
    }

    /// Takes a packet that begins with the length of its body.
    fn take_counted(
        &mut self,
        head: usize,
        number: impl Fn(&[u8]) -> Result<u32, Malformed>,
        decode: impl Fn(&[u8], &mut Option<Code>) -> Result<Packet, Malformed>,
    ) -> Result<Option<Packet>, Malformed> {
        let Some(digits) = self.bytes.get(..head) else {
            return Ok(None);
        };
        let length = number(digits)? as usize;
        if length > MAX_PACKET {
            return Err(Malformed::TooLarge(Bound::Packet));
        }
        let Some(body) = self.bytes.get(head..head + length) else {
            return Ok(None);
        };
        let packet = decode(body, &mut self.code)?;
        self.bytes.advance(head + length);
        Ok(Some(packet))
    }
}

/// Returns the bytes of a packet.
///
/// # Errors
///
/// The packet exceeds a bound.
///
/// # Panics
///
/// An argument begins with `=`, or has an empty value in the binary framing: clients misread both, and the caller leaves them out. The id has more than 16 bits.
pub fn encode(packet: &Packet, framing: Framing) -> Result<Vec<u8>, Bound> {
    let is_misread = |arg: &Vec<u8>| {
        let key = arg.iter().position(|byte| *byte == b'=');
        key == Some(0) || framing == Framing::Binary && key.is_some_and(|key| key + 1 == arg.len())
    };
    assert!(!packet.args.iter().any(is_misread), "{packet:?}");
    // The ASCII framing has four digits for it.
    assert!(packet.id <= 0xffff, "{packet:?}");
    if packet.args.len() > MAX_ARGS {
        return Err(Bound::Args);
    }
    // The binary form is never longer.
    if ascii::length(packet) > MAX_PACKET {
        return Err(Bound::Packet);
    }
    Ok(match framing {
        Framing::Ascii => ascii::encode(packet),
        Framing::Lines => {
            let line = lines::encode(packet);
            if line.len() > MAX_PACKET {
                return Err(Bound::Packet);
            }
            line
        }
        Framing::Binary => {
            let body = binary::encode(packet);
            let length = u32::try_from(body.len()).map_err(|_| Bound::Packet)?;
            let mut bytes = Vec::from(length.to_be_bytes());
            bytes.extend(body);
            bytes
        }
    })
}
