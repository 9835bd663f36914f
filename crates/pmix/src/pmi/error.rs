//! Errors that a peer can cause.

use std::fmt;

/// Reason why a peer's bytes were rejected. The classification follows rustls: by the side at fault and by the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are not a message of the protocol.
    #[error("malformed message: {0}")]
    Malformed(Malformed),
    /// The message is valid but not allowed in this state.
    #[error("peer misbehaved: expected {expected}, got `{got}`")]
    PeerMisbehaved {
        /// The commands allowed in this state.
        expected: &'static str,
        /// The received command, shortened to [`GOT_MAX`] bytes.
        got: String,
    },
    /// Both sides are correct, but speak different versions.
    #[error("peer speaks PMI version {theirs}, this side speaks version {ours}")]
    PeerIncompatible {
        /// The major version of this side.
        ours: u32,
        /// The major version that the peer asked for.
        theirs: u32,
    },
    /// A message of the protocol that this side does not implement.
    #[error("`{what}` is not supported")]
    Unsupported {
        /// The name of the command, shortened to [`GOT_MAX`] bytes.
        what: String,
    },
    /// A length or count above its bound.
    #[error("{which} exceeds its bound: {value} is more than {}", which.limit())]
    Limit {
        /// The bound that was exceeded.
        which: Bound,
        /// The rejected value.
        value: usize,
    },
}

impl Error {
    /// Returns the error in one word for the peer. MPICH's own server does so too, and MPICH 4.0 fails at a space.
    pub(crate) fn word(&self) -> String {
        match self {
            Self::Malformed(Malformed::Missing(field)) => format!("missing_argument_{field}"),
            Self::Malformed(
                Malformed::NotANumber(field)
                | Malformed::NotABoolean(field)
                | Malformed::WrongCount(field),
            ) => format!("bad_argument_{field}"),
            Self::Malformed(Malformed::NotRepresentable) => "value_not_representable".to_owned(),
            Self::Malformed(_) => "malformed_command".to_owned(),
            Self::PeerMisbehaved { .. } => "not_now".to_owned(),
            Self::PeerIncompatible { .. } => "version".to_owned(),
            Self::Unsupported { .. } => "not_supported".to_owned(),
            Self::Limit { which, .. } => which.word().to_owned(),
        }
    }
}

/// Kind of malformed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The command is not UTF-8 text, or has a NUL.
    NotText,
    /// The command does not start with `cmd=` or `mcmd=`.
    NoCommand,
    /// A word that should be `key=value` has no key.
    NoKey,
    /// A field that the command needs is missing.
    Missing(&'static str),
    /// A field that must be a number is not one, or is out of range.
    NotANumber(&'static str),
    /// A field that must be `TRUE` or `FALSE` is neither.
    NotABoolean(&'static str),
    /// The announced number of these items differs from the number received.
    WrongCount(&'static str),
    /// The six characters before a command are not a valid length.
    NoCount,
    /// A name or value contains a separator and cannot be encoded as a field.
    NotRepresentable,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotText => f.write_str("the command is not UTF-8 text"),
            Self::NoCommand => f.write_str("the command does not start with `cmd=` or `mcmd=`"),
            Self::NoKey => f.write_str("a field has no key"),
            Self::Missing(field) => write!(f, "the field `{field}` is missing"),
            Self::NotANumber(field) => write!(f, "the field `{field}` is not a number in range"),
            Self::NotABoolean(field) => {
                write!(f, "the field `{field}` is neither `TRUE` nor `FALSE`")
            }
            Self::WrongCount(field) => {
                write!(f, "there are not as many fields as `{field}` says")
            }
            Self::NoCount => f.write_str("the command does not start with its length"),
            Self::NotRepresentable => {
                f.write_str("a key or value contains a separator of the protocol")
            }
        }
    }
}

/// A length or count that has a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Bytes of a command of one line, line feed included.
    Command,
    /// Bytes of a command of several lines, line feeds included.
    Multi,
    /// Bytes of a counted command, without its count.
    Counted,
    /// Number of fields in a command.
    Fields,
    /// Bytes of the name of a key-value space.
    KvsName,
    /// Bytes of a key.
    Key,
    /// Bytes of a value.
    Value,
    /// Number of entries in a job's key-value space.
    Entries,
    /// Bytes of answers that a client has requested and not read.
    Queued,
    /// Bytes of the name of a service.
    Service,
    /// Bytes of the thread id by which a client matches an answer with the thread that waits.
    Thread,
    /// Number of programs in one spawn.
    Apps,
    /// Number of unanswered requests of one client.
    Waiting,
}

impl Bound {
    /// Returns the largest accepted value.
    #[must_use]
    pub const fn limit(self) -> usize {
        use crate::pmi;
        match self {
            Self::Command => pmi::wire::MAX_COMMAND,
            Self::Multi => pmi::wire::MAX_MULTI,
            Self::Counted => pmi::wire::MAX_COUNTED,
            Self::Fields => pmi::wire::MAX_FIELDS,
            Self::KvsName => pmi::MAX_KVS_NAME,
            Self::Key => pmi::MAX_KEY,
            Self::Value => pmi::MAX_VALUE,
            Self::Entries => pmi::MAX_ENTRIES,
            Self::Queued => pmi::MAX_QUEUED,
            Self::Service => pmi::MAX_SERVICE,
            Self::Thread => pmi::MAX_THREAD,
            Self::Apps => pmi::MAX_APPS,
            Self::Waiting => pmi::MAX_WAITING,
        }
    }

    /// Returns the error word for a value above this bound.
    const fn word(self) -> &'static str {
        match self {
            Self::Command | Self::Multi | Self::Counted => "command_too_long",
            Self::Fields => "too_many_arguments",
            Self::KvsName => "kvsname_too_long",
            Self::Key => "key_too_long",
            Self::Value => "value_too_long",
            Self::Entries => "kvs_is_full",
            Self::Service => "service_too_long",
            Self::Thread => "thrid_too_long",
            Self::Apps => "too_many_programs",
            Self::Queued | Self::Waiting => "too_many_requests",
        }
    }

    /// Returns an error when `value` is above the bound.
    pub(crate) fn check(self, value: usize) -> Result<(), Error> {
        if value > self.limit() {
            Err(Error::Limit { which: self, value })
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Command | Self::Multi | Self::Counted => "the length of a command",
            Self::Fields => "the number of fields of a command",
            Self::KvsName => "the length of the name of a key-value space",
            Self::Key => "the length of a key",
            Self::Value => "the length of a value",
            Self::Entries => "the number of entries of the key-value space",
            Self::Queued => "the bytes of unread answers",
            Self::Service => "the length of the name of a service",
            Self::Thread => "the length of the mark of a thread",
            Self::Apps => "the number of programs of a spawn",
            Self::Waiting => "the number of requests that wait",
        })
    }
}

/// Maximum number of bytes of a peer's text in an error: enough to recognize it, too few to fill a log.
pub const GOT_MAX: usize = 80;

/// Returns `text` cut at a character boundary, to fit into an error.
pub(crate) fn shorten(text: &str) -> String {
    if text.len() <= GOT_MAX {
        return text.to_owned();
    }
    let end = text
        .char_indices()
        .map(|(at, _)| at)
        .take_while(|at| *at <= GOT_MAX)
        .last()
        .unwrap_or(0);
    format!("{}...", &text[..end])
}
