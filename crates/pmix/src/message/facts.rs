//! Facts with their owner, in a buffer of their own.
//!
//! A message carries these buffers as byte objects, which its decoder does not open. They hold the data in the answer to a get,
//! the facts of a rank in the job info, and the job info of another job in the answer to a connect. These are sections 6.5, 6.2
//! and 7.11 of `docs/formats/pmix.md`.

use bytes::Bytes;

use crate::{
    Error,
    codec::{Format, Reader, Wire, Writer},
    value::Kval,
};

/// Facts about one owner. The owner is a [`crate::value::Proc`] in the answer to a get, a [`crate::value::PmixRank`] under the
/// key [`crate::keys::PROC_BLOB`], and a [`crate::value::Nspace`] in the answer to a connect.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts<Owner> {
    pub owner: Owner,
    pub facts: Vec<Kval>,
}

impl<Owner: Wire> Facts<Owner> {
    /// Decodes a whole buffer.
    ///
    /// # Errors
    /// The bytes are not such a buffer.
    pub fn decode(format: Format, bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(format, bytes);
        Ok(Self {
            owner: reader.item()?,
            facts: reader.each()?,
        })
    }

    /// Encodes the buffer, which a message carries as a byte object.
    #[must_use]
    pub fn encode(&self, format: Format) -> Bytes {
        let mut writer = Writer::new(format);
        writer.item(&self.owner);
        writer.each(&self.facts);
        writer.into_bytes().into()
    }
}
