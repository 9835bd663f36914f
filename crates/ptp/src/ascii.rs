//! The framing of PTP 2.0 to 4.2 (section 2).
//!
//! A packet is its length in eight hexadecimal digits and its body: ` IIII:TTTTTTTT:NNNNNNNN`, which are the id, the transaction and the
//! number of arguments, and for each argument ` SSSSSSSS:` and its bytes.

use crate::packet::{Body, Bound, MAX_ARGS, Malformed, Packet};

/// Digits of the length of a packet.
pub(crate) const LENGTH: usize = 8;
/// Bytes of a body without arguments.
const HEAD: usize = " IIII:TTTTTTTT:NNNNNNNN".len();
/// Bytes of an argument beside its own.
const ARG: usize = " SSSSSSSS:".len();

/// Returns the number that these digits are.
pub(crate) fn number(digits: &[u8]) -> Result<u32, Malformed> {
    let digit = |number: Result<u32, Malformed>, digit: &u8| {
        let value = char::from(*digit).to_digit(16).ok_or(Malformed::NotHex)?;
        // At most eight digits.
        Ok(number? << 4 | value)
    };
    digits.iter().fold(Ok(0), digit)
}

impl Body<'_> {
    fn separator(&mut self, due: u8) -> Result<(), Malformed> {
        match self.byte()? {
            byte if byte == due => Ok(()),
            byte => Err(Malformed::Separator(byte, due)),
        }
    }

    fn number(&mut self, digits: usize) -> Result<u32, Malformed> {
        number(self.take(digits)?)
    }
}

pub(crate) fn decode(body: &[u8]) -> Result<Packet, Malformed> {
    let mut body = Body(body);
    body.separator(b' ')?;
    let id = body.number(4)?;
    body.separator(b':')?;
    let transaction = body.number(8)?;
    body.separator(b':')?;
    let count = body.number(8)? as usize;
    if count > MAX_ARGS {
        return Err(Malformed::TooLarge(Bound::Args));
    }
    let arg = |_| {
        body.separator(b' ')?;
        let length = body.number(8)? as usize;
        body.separator(b':')?;
        Ok(body.take(length)?.to_vec())
    };
    let args = (0..count).map(arg).collect::<Result<_, _>>()?;
    match body.0.len() {
        0 => Ok(Packet {
            id,
            transaction,
            args,
        }),
        trailing => Err(Malformed::Trailing(trailing)),
    }
}

/// Returns the length of the body of a packet.
pub(crate) fn length(packet: &Packet) -> usize {
    let args = packet.args.iter().map(|arg| ARG + arg.len());
    HEAD + args.sum::<usize>()
}

pub(crate) fn encode(packet: &Packet) -> Vec<u8> {
    let Packet {
        id,
        transaction,
        args,
    } = packet;
    let head = format!(
        "{:08x} {id:04x}:{transaction:08x}:{:08x}",
        length(packet),
        args.len()
    );
    let mut bytes = head.into_bytes();
    for arg in args {
        bytes.extend(format!(" {:08x}:", arg.len()).as_bytes());
        bytes.extend(arg);
    }
    bytes
}
