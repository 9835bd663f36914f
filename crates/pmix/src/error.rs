//! Errors that a peer can cause. The classification follows rustls: by the side at fault and by the remedy.

use std::fmt;

use crate::{bound::Bound, value::DataType};

/// Reason why a peer's bytes were rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are not a message of the protocol.
    #[error("malformed message: {what}")]
    Malformed {
        /// Kind of malformation.
        what: Malformed,
    },
    /// The message is valid but not allowed in this state.
    #[error("peer misbehaved: expected {expected}, got {got}")]
    PeerMisbehaved {
        /// The messages allowed in this state.
        expected: &'static str,
        /// The received message.
        got: &'static str,
    },
    /// Both sides are correct, but have no version in common.
    #[error("peer asks for {theirs}, which this side does not speak")]
    PeerIncompatible {
        /// Codec that the peer asked for, shortened to [`THEIRS_MAX`] characters.
        theirs: String,
    },
    /// A part of the protocol that this side does not implement.
    #[error("{what} is not supported")]
    Unsupported {
        /// The unsupported part.
        what: Unsupported,
    },
    /// A length or count above its bound.
    #[error("{which} exceeds its bound: {value} is more than {}", which.limit())]
    Limit {
        /// The bound that was exceeded.
        which: Bound,
        /// The rejected value.
        value: u64,
    },
}

impl Error {
    pub(crate) const fn malformed(what: Malformed) -> Self {
        Self::Malformed { what }
    }
}

/// Maximum number of characters of a peer's text in an error.
pub const THEIRS_MAX: usize = 40;

/// Kind of malformed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The message is shorter than it announces.
    Truncated,
    /// A number is out of range for its type.
    NumberTooLarge,
    /// A length or count is negative.
    NegativeCount,
    /// A string has no NUL at its end.
    NoNul,
    /// A string has a NUL before its end.
    InnerNul,
    /// A required name is absent.
    NoName,
    /// The number of values differs from the expected one.
    WrongCount,
    /// An item has a different type than the message requires.
    WrongKind { expected: DataType, got: DataType },
    /// A number that is encoded as text is invalid.
    NotANumber,
    /// A compressed list has no end.
    NoRegexEnd,
    /// The header is not that of a handshake.
    NoHandshake,
    /// A nested buffer is of a different kind than those of the connection.
    OtherBuffer(u8),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("it ends too early"),
            Self::NumberTooLarge => f.write_str("a number does not fit"),
            Self::NegativeCount => f.write_str("a length is negative"),
            Self::NoNul => f.write_str("a string has no final NUL byte"),
            Self::InnerNul => f.write_str("a string contains a NUL byte"),
            Self::NoName => f.write_str("a name is absent"),
            Self::WrongCount => f.write_str("there is not exactly one value"),
            Self::WrongKind { expected, got } => {
                write!(f, "a {got:?} is given instead of a {expected:?}")
            }
            Self::NotANumber => f.write_str("a text is not the number that it must be"),
            Self::NoRegexEnd => f.write_str("a compressed list has no end"),
            Self::NoHandshake => f.write_str("it does not begin with a handshake"),
            Self::OtherBuffer(kind) => write!(f, "it contains a buffer of kind {kind}"),
        }
    }
}

/// Unsupported part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// Values of a type with unknown encoding.
    Kind(DataType),
    /// A command, by its number.
    Command(u8),
    /// A kind of connector, by its number.
    Connector(u8),
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "a value of kind {kind:?}"),
            Self::Command(number) => write!(f, "command {number}"),
            Self::Connector(number) => write!(f, "a connector of kind {number}"),
        }
    }
}

impl Bound {
    /// Returns an error when `value` is above the bound.
    pub(crate) fn check(self, value: usize) -> Result<(), Error> {
        let value = value as u64;
        if value > self.limit() {
            Err(Error::Limit { which: self, value })
        } else {
            Ok(())
        }
    }
}
