//! The lengths and counts of what a peer may send that every message has to keep to.

use std::fmt;

/// Bytes of the name of a namespace: the standard's `PMIX_MAX_NSLEN`.
pub const MAX_NSPACE: u64 = 255;
/// Bytes of a key: the standard's `PMIX_MAX_KEYLEN`.
pub const MAX_KEY: u64 = 511;
/// Bytes of a handshake: libpmix's own bound of a credential.
pub const MAX_HANDSHAKE: u64 = 131_072;
/// Bytes of a payload. libpmix 3 refuses more than 16 MiB and 6 more than 32 MiB unless told otherwise, 4 and 5 refuse
/// nothing; nobody may put more than this at once here. Memory is taken only for what has come.
pub const MAX_MESSAGE: u64 = 128 << 20;
/// Values inside values. The deepest that a program was seen to send is five.
pub const MAX_DEPTH: u64 = 24;

/// The lengths and counts that are bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Bytes of the name of a namespace.
    Nspace,
    /// Bytes of a key.
    PmixKey,
    /// Bytes of a handshake.
    Handshake,
    /// Bytes of a message.
    Message,
    /// Values inside values.
    Depth,
}

impl Bound {
    /// The largest value that is accepted.
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
