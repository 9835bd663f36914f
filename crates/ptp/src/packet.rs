//! Packets, which both framings carry, and what can be wrong with the bytes of one.

use std::fmt;

/// Longest packet that is accepted or sent, in bytes after its length. A real submission has some kilobytes: arguments and variables. In
/// the binary framing, the first byte of a packet is zero up to this length.
pub const MAX_PACKET: usize = 4 << 20;
/// Most arguments of a packet.
pub const MAX_ARGS: usize = 65_536;

/// A command or an event.
#[derive(Clone, PartialEq, Eq)]
pub struct Packet {
    /// What the packet means. Commands and events have numbers of their own.
    pub id: u32,
    /// Number that the client has chosen for a command. An event repeats that of the command to which it belongs.
    pub transaction: u32,
    /// Arguments, in their order. Many have the form `key=value`. No byte is special.
    pub args: Vec<Vec<u8>>,
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}:", self.id, self.transaction)?;
        for arg in &self.args {
            write!(f, " {}", arg.escape_ascii())?;
        }
        Ok(())
    }
}

/// The form of the packets of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Hexadecimal numbers as text: PTP 2.0 to 4.2.
    Ascii,
    /// Binary numbers, and packets that may be compressed: PTP 5.0 to 6.0.
    Binary,
    /// A line of text for each packet: people and scripts.
    Lines,
}

/// A bound that a packet exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    Packet,
    Args,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packet => write!(f, "a packet has more than {MAX_PACKET} bytes"),
            Self::Args => write!(f, "a packet has more than {MAX_ARGS} arguments"),
        }
    }
}

/// Why bytes are no packet. The connection cannot be used any more: where the next packet begins is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("{0}")]
    TooLarge(Bound),
    #[error("the first byte is {0:#04x}, with which no form of packets begins")]
    NoFraming(u8),
    #[error("a number is not hexadecimal")]
    NotHex,
    #[error("{0:#04x} is where {1:#04x} is due")]
    Separator(u8, u8),
    #[error("a packet ends before its contents do")]
    Short,
    #[error("a packet goes on after its last argument: {0} more")]
    Trailing(usize),
    #[error("a number has more than 32 bits")]
    Varint,
    #[error("the flags of a packet are {0:#04x}, and only 0x40 and 0x50 are known beside 0")]
    Flags(u8),
    #[error("an argument has the type {0}, and only 0 is known")]
    Type(u8),
    #[error("the frequencies of a compressed packet are negative or add up to more than 31 bits")]
    Frequencies,
}

/// Reads a number of an element. Clients take them as signed numbers of 32 bits.
pub(crate) fn number(digits: &[u8]) -> Option<u32> {
    let number: u32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    i32::try_from(number).ok()?;
    Some(number)
}

/// Longest piece of a client's text that a message repeats, in bytes.
const SHOWN_MAX: usize = 64;

/// Returns text of a client in a form that can be shown, cut if it is long.
pub(crate) fn shown(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN_MAX) {
        Some(cut) if cut.len() < bytes.len() => format!("{}...", cut.escape_ascii()),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// Takes what a body contains, from its beginning to its end.
pub(crate) struct Body<'a>(pub(crate) &'a [u8]);

impl<'a> Body<'a> {
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }
}
