//! What can be wrong with a peer. The taxonomy is rustls': it says whose fault it is and what would help.

use std::fmt;

use crate::{bound::Bound, value::DataType};

/// Why a peer's bytes were not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are no message of the protocol.
    #[error("malformed message: {what}")]
    Malformed {
        /// What is wrong with them.
        what: Malformed,
    },
    /// The bytes are a message, but not one that may come now.
    #[error("peer misbehaved: expected {expected}, got {got}")]
    PeerMisbehaved {
        /// What would have been right in this state.
        expected: &'static str,
        /// What came.
        got: &'static str,
    },
    /// Both sides are right, but they have no version in common.
    #[error("peer asks for {theirs}, which this side does not speak")]
    PeerIncompatible {
        /// What the peer asked for, shortened to [`THEIRS_MAX`] bytes.
        theirs: String,
    },
    /// A part of the protocol that this side does not implement.
    #[error("{what} is not supported")]
    Unsupported {
        /// Which part.
        what: Unsupported,
    },
    /// A length or count above its bound.
    #[error("{which} exceeds its bound: {value} is more than {}", which.limit())]
    Limit {
        /// Which bound it is.
        which: Bound,
        /// The value that was refused.
        value: u64,
    },
}

impl Error {
    pub(crate) const fn malformed(what: Malformed) -> Self {
        Self::Malformed { what }
    }
}

/// How many bytes of a peer's text an error repeats.
pub const THEIRS_MAX: usize = 40;

/// What is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// More was announced than came.
    Truncated,
    /// A number does not fit into its kind.
    NumberTooLarge,
    /// A length or count is negative.
    NegativeCount,
    /// A string has no NUL at its end.
    NoNul,
    /// A string has a NUL before its end.
    InnerNul,
    /// A name that must be there is absent.
    NoName,
    /// Several values where one must be.
    NotOne,
    /// The kind of an item is another than the message has there.
    WrongKind { expected: DataType, got: DataType },
    /// A number that travels as text is none.
    NotANumber,
    /// A compressed list has no end.
    NoRegexEnd,
    /// The header of a handshake says something else than a handshake.
    NoHandshake,
    /// Nested buffers of another kind than the connection's.
    OtherBuffer(u8),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("it ends too early"),
            Self::NumberTooLarge => f.write_str("a number does not fit"),
            Self::NegativeCount => f.write_str("a length is negative"),
            Self::NoNul => f.write_str("a string has no end"),
            Self::InnerNul => f.write_str("a string has an end before its end"),
            Self::NoName => f.write_str("a name is absent"),
            Self::NotOne => f.write_str("several values stand where one must be"),
            Self::WrongKind { expected, got } => {
                write!(f, "a {got:?} stands where a {expected:?} must be")
            }
            Self::NotANumber => f.write_str("text that must be a number is none"),
            Self::NoRegexEnd => f.write_str("a compressed list has no end"),
            Self::NoHandshake => f.write_str("it does not begin with a handshake"),
            Self::OtherBuffer(kind) => write!(f, "it contains a buffer of kind {kind}"),
        }
    }
}

/// What is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// Values of a kind that has no known form.
    Kind(DataType),
    /// A command by its number.
    Command(u8),
    /// A way to connect by its number.
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
    /// An error when `value` is above the bound.
    pub(crate) fn check(self, value: usize) -> Result<(), Error> {
        let value = value as u64;
        if value > self.limit() {
            Err(Error::Limit { which: self, value })
        } else {
            Ok(())
        }
    }
}
