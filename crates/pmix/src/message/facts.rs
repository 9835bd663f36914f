//! Facts with whom they are about, in a buffer of their own.
//!
//! A message carries such buffers as bytes that its own decoder does not look into: the answer to a get (section 6.5
//! of `docs/formats/pmix.md`), the facts of one rank in those of its job (6.2), the facts of another job in the answer
//! to a connect (7.11).

use bytes::Bytes;

use crate::{
    Error,
    codec::{Format, Reader, Wire, Writer},
    value::Kval,
};

/// Facts about one owner: a [`crate::value::Proc`] in the answer to a get, a [`crate::value::PmixRank`] under the key
/// [`crate::keys::PROC_BLOB`], a [`crate::value::Nspace`] in the answer to a connect.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts<Owner> {
    pub owner: Owner,
    pub facts: Vec<Kval>,
}

impl<Owner: Wire> Facts<Owner> {
    /// Reads a buffer to its end.
    ///
    /// # Errors
    /// The bytes are no such buffer.
    pub fn decode(format: Format, bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(format, bytes);
        Ok(Self {
            owner: reader.item()?,
            facts: reader.each()?,
        })
    }

    /// The buffer, which a message carries as a byte object.
    #[must_use]
    pub fn encode(&self, format: Format) -> Bytes {
        let mut writer = Writer::new(format);
        writer.item(&self.owner);
        writer.each(&self.facts);
        writer.into_bytes().into()
    }
}
