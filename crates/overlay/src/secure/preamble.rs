//! The preamble in clear text, by which two builds name each other.

use std::fmt;

use bytes::{Bytes, BytesMut};

use super::{BUILD_MAX, SecureError, VERSION};

const MAGIC: [u8; 4] = *b"RLYN";

/// Magic bytes, version, length of the build.
const PREAMBLE_MIN: usize = MAGIC.len() + size_of::<u16>() + 1;

/// Name of the executable's build, such as `rally 1.2.0 (5f3c2a01)`. Only processes of the same build form a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build(pub(super) String);

impl Build {
    /// Makes the name. Characters that are not printable ASCII are replaced; bytes behind [`BUILD_MAX`] are cut off.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let printable = |character: char| match character {
            ' '..='~' => character,
            _ => '?',
        };
        Self(name.chars().take(BUILD_MAX).map(printable).collect())
    }

    pub(super) fn preamble(&self) -> Vec<u8> {
        let mut preamble = Vec::with_capacity(PREAMBLE_MIN + self.0.len());
        preamble.extend_from_slice(&MAGIC);
        preamble.extend_from_slice(&VERSION.to_le_bytes());
        preamble.push(u8::try_from(self.0.len()).unwrap_or(u8::MAX));
        preamble.extend_from_slice(self.0.as_bytes());
        preamble
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A preamble of the peer.
pub(super) struct Preamble {
    pub(super) version: u16,
    pub(super) build: String,
    pub(super) bytes: Bytes,
}

pub(super) fn take_preamble(incoming: &mut BytesMut) -> Result<Option<Preamble>, SecureError> {
    let known = incoming.len().min(MAGIC.len());
    if incoming[..known] != MAGIC[..known] {
        return Err(SecureError::Foreign);
    }
    let Some([_, _, _, _, version @ .., length]) = incoming.first_chunk::<PREAMBLE_MIN>() else {
        return Ok(None);
    };
    let (version, length) = (u16::from_le_bytes(*version), usize::from(*length));
    if length > BUILD_MAX {
        return Err(SecureError::Foreign);
    }
    if incoming.len() < PREAMBLE_MIN + length {
        return Ok(None);
    }
    let bytes = incoming.split_to(PREAMBLE_MIN + length).freeze();
    match str::from_utf8(&bytes[PREAMBLE_MIN..]) {
        Ok(build) if build.chars().all(|one| matches!(one, ' '..='~')) => Ok(Some(Preamble {
            version,
            build: build.to_owned(),
            bytes: bytes.clone(),
        })),
        _ => Err(SecureError::Foreign),
    }
}
