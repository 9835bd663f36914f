//! The messages between a session and its agents as bytes: postcard, one message each. How bytes are cut into messages is the
//! link's business. docs/formats/debug-session.md has the fields and the bounds.
//!
//! What comes from a peer is foreign. Here it is checked for what every message must keep ([`decode`]); whether an answer is
//! about what was asked, the session checks.

use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::proto::{FromAgent, ToAgent};

/// Bytes of one message.
pub const MAX_MESSAGE: usize = 64 << 20;

/// A message of this protocol.
pub trait Message: Serialize + DeserializeOwned {}

impl Message for ToAgent {}
impl Message for FromAgent {}

/// Why a message was neither written nor read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// It is longer than [`MAX_MESSAGE`].
    #[error("a message of {length} bytes, more than {MAX_MESSAGE}")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// It cannot be written.
    #[error("a message cannot be encoded: {0}")]
    Encode(postcard::Error),
    /// It is none of this protocol, or says what none may.
    #[error("bytes that are no message: {0}")]
    Malformed(postcard::Error),
    /// It has bytes after its end.
    #[error("{0} bytes after the end of a message")]
    Rest(usize),
}

/// The bytes of a message.
///
/// # Errors
/// It is too long, or a number in it does not fit.
pub fn encode(message: &impl Message) -> Result<Vec<u8>, Error> {
    let bytes = postcard::to_stdvec(message).map_err(Error::Encode)?;
    check(bytes.len())?;
    Ok(bytes)
}

/// The message of some bytes.
///
/// # Errors
/// They are no message of a sound peer.
pub fn decode<M: Message>(bytes: &[u8]) -> Result<M, Error> {
    check(bytes.len())?;
    let (message, rest) = postcard::take_from_bytes(bytes).map_err(Error::Malformed)?;
    match rest.len() {
        0 => Ok(message),
        rest => Err(Error::Rest(rest)),
    }
}

const fn check(length: usize) -> Result<(), Error> {
    if length > MAX_MESSAGE {
        return Err(Error::TooLong { length });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
