//! Encoding of the messages between a session and its agents: one message of postcard each. The link splits the byte stream
//! into messages. docs/formats/debug-session.md lists the fields and the bounds.
//!
//! Bytes from a peer are not trusted. [`decode`] checks what holds for every message. The session checks that an answer is
//! about what it asked for.

use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::proto::{Answers, FromAgent, FromNode, ToAgent, ToNode};

/// Largest encoded message, in bytes. The overlay carries it as one body.
pub const MAX_MESSAGE: usize = 48 << 20;

/// A message of this protocol.
pub trait Message: Serialize + DeserializeOwned {}

impl Message for Answers {}
impl Message for ToAgent {}
impl Message for FromAgent {}
impl Message for ToNode {}
impl Message for FromNode {}

/// The reason why a message could not be encoded or decoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The message is longer than [`MAX_MESSAGE`].
    #[error("a message of {length} bytes, more than {MAX_MESSAGE}")]
    TooLong {
        /// Length of the message in bytes.
        length: usize,
    },
    /// The message cannot be encoded.
    #[error("a message cannot be encoded: {0}")]
    Encode(postcard::Error),
    /// The bytes are no message of this protocol, or a value in them is out of bounds.
    #[error("bytes that are not a message: {0}")]
    Malformed(postcard::Error),
    /// This many bytes follow the end of the message.
    #[error("{0} bytes after the end of a message")]
    Rest(usize),
}

/// Encodes a message.
///
/// # Errors
/// The message is longer than [`MAX_MESSAGE`], or a value in it cannot be encoded.
pub fn encode(message: &impl Message) -> Result<Vec<u8>, Error> {
    let bytes = postcard::to_stdvec(message).map_err(Error::Encode)?;
    check(bytes.len())?;
    Ok(bytes)
}

/// Decodes a message from exactly these bytes.
///
/// # Errors
/// The bytes are longer than [`MAX_MESSAGE`], are no valid message, or have bytes after its end.
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
