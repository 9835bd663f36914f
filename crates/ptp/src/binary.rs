//! The framing of PTP 5.0 to 6.0 (section 3).
//!
//! A packet is its length in four bytes, a byte of flags, and its body: the id, the transaction and the number of arguments, and for each
//! argument its type, its key and its value. All numbers but the first are LEB128.

use crate::{
    huffman::{self, Code},
    packet::{Body, Bound, MAX_ARGS, Malformed, Packet},
};

/// Bytes of the length of a packet.
pub(crate) const LENGTH: usize = 4;
/// The body is compressed.
const COMPRESSED: u8 = 0x40;
/// Frequencies are in front of a compressed body. They hold for the packets that follow, too.
const WITH_FREQUENCIES: u8 = 0x10;
/// The only type of arguments that is ever sent.
const TYPE: u8 = 0;

impl<'a> Body<'a> {
    /// Reads a number of at most five bytes.
    fn varint(&mut self) -> Result<u32, Malformed> {
        let mut number: u64 = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(number).map_err(|_| Malformed::Varint);
            }
        }
        Err(Malformed::Varint)
    }

    fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.varint()?;
        self.take(length as usize)
    }

    fn arg(&mut self) -> Result<Vec<u8>, Malformed> {
        match self.byte()? {
            TYPE => {}
            other => return Err(Malformed::Type(other)),
        }
        let (key, value) = (self.text()?, self.text()?);
        // An argument without `=` is a value without a key.
        Ok(match key {
            [] => value.to_vec(),
            key => [key, b"=", value].concat(),
        })
    }
}

/// Decodes a packet without its length. `code` is that of the connection.
pub(crate) fn decode(bytes: &[u8], code: &mut Option<Code>) -> Result<Packet, Malformed> {
    let mut bytes = Body(bytes);
    let expanded;
    let (body, zeros) = match bytes.byte()? {
        0 => (bytes.0, Zeros::Refused),
        flags if flags | WITH_FREQUENCIES == COMPRESSED | WITH_FREQUENCIES => {
            let length = u32::from_be_bytes(*bytes.take(4)?.as_array().ok_or(Malformed::Short)?);
            if flags & WITH_FREQUENCIES != 0 {
                let table = bytes.take(huffman::TABLE)?.as_array();
                *code = Some(Code::decode(table.ok_or(Malformed::Short)?)?);
            }
            let code = code.get_or_insert_default();
            expanded = code.expand(length as usize, bytes.0)?;
            (&expanded[..], Zeros::Skipped)
        }
        flags => return Err(Malformed::Flags(flags)),
    };
    parse(Body(body), zeros)
}

/// What zero bytes behind the last argument are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zeros {
    Refused,
    /// Clients in Java count five bytes too many in what they compress.
    Skipped,
}

fn parse(mut body: Body<'_>, zeros: Zeros) -> Result<Packet, Malformed> {
    let (id, transaction) = (body.varint()?, body.varint()?);
    let count = body.varint()? as usize;
    if count > MAX_ARGS {
        return Err(Malformed::TooLarge(Bound::Args));
    }
    let args = (0..count).map(|_| body.arg()).collect::<Result<_, _>>()?;
    let may_follow = zeros == Zeros::Skipped && body.0.iter().all(|byte| *byte == 0);
    if !body.0.is_empty() && !may_follow {
        return Err(Malformed::Trailing(body.0.len()));
    }
    Ok(Packet {
        id,
        transaction,
        args,
    })
}

fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// Encodes the body of a packet, with its flags and without its length.
pub(crate) fn encode(packet: &Packet) -> Vec<u8> {
    let mut bytes = vec![0];
    put_varint(&mut bytes, packet.id.into());
    put_varint(&mut bytes, packet.transaction.into());
    put_varint(&mut bytes, packet.args.len() as u64);
    for arg in &packet.args {
        let split = arg.iter().position(|byte| *byte == b'=');
        let (key, value) = split.map_or((&[][..], &arg[..]), |at| (&arg[..at], &arg[at + 1..]));
        bytes.push(TYPE);
        for text in [key, value] {
            put_varint(&mut bytes, text.len() as u64);
            bytes.extend(text);
        }
    }
    bytes
}
