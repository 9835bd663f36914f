//! Limits on the lengths and counts in received messages.

use std::fmt;

/// Maximum number of bytes in the name of a namespace: the standard's `PMIX_MAX_NSLEN`.
pub const MAX_NSPACE: u64 = 255;
/// Maximum number of bytes in a key: the standard's `PMIX_MAX_KEYLEN`.
pub const MAX_KEY: u64 = 511;
/// Maximum number of bytes in a handshake: libpmix's own bound for a credential.
pub const MAX_HANDSHAKE: u64 = 131_072;
/// Maximum number of bytes in a payload, and so the most that a client can put in one message. By default libpmix 3 refuses more
/// than 16 MiB and 6 more than 32 MiB; 4 and 5 have no limit. Memory is allocated only for bytes that have arrived.
pub const MAX_MESSAGE: u64 = 128 << 20;
/// Deepest nesting of values inside values. The deepest nesting seen from a real program is five.
pub const MAX_DEPTH: u64 = 24;

/// A length or count that has a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Bytes in the name of a namespace.
    Nspace,
    /// Bytes in a key.
    PmixKey,
    /// Bytes in a handshake.
    Handshake,
    /// Bytes in the payload of a message.
    Message,
    /// Nesting depth of values inside values.
    Depth,
}

impl Bound {
    /// Returns the largest accepted value.
    #[must_use]
    pub const fn limit(self) -> u64 {
        match self {
            Self::Nspace => MAX_NSPACE,
            Self::PmixKey => MAX_KEY,
            Self::Handshake => MAX_HANDSHAKE,
            Self::Message => MAX_MESSAGE,
            Self::Depth => MAX_DEPTH,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nspace => "the length of the name of a namespace",
            Self::PmixKey => "the length of a key",
            Self::Handshake => "the length of a handshake",
            Self::Message => "the length of a message",
            Self::Depth => "the depth of values inside values",
        })
    }
}
