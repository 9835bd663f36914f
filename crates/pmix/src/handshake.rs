//! The first message of a connection and its answer (section 3 of `docs/formats/pmix.md`).

#[cfg(test)]
mod tests;

use std::ffi::{CStr, CString};

use bytes::Bytes;

pub use crate::bound::MAX_HANDSHAKE;
use crate::{
    Error, Malformed, THEIRS_MAX,
    codec::{Format, Reader},
    error::Unsupported,
    value::{Info, Nspace, PmixRank, Proc, Status},
};

/// Size in bytes of the namespace field in an answer, with NUL and padding.
const NSPACE_FIELD: usize = 256;

/// Kind of connector, in the order of its numbers in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectorKind {
    /// Process that the server has registered.
    Client,
    LegacyTool,
    LegacyLauncher,
    /// Tool that asks the server for a name.
    Tool,
    /// Tool that has a name; also a server that attaches to a tool.
    NamedTool,
    /// Tool that is also a registered process.
    ClientTool,
    Launcher,
    NamedLauncher,
    ClientLauncher,
    /// Process that no launcher has started.
    Singleton,
    Scheduler,
}

impl ConnectorKind {
    const ALL: [Self; 11] = [
        Self::Client,
        Self::LegacyTool,
        Self::LegacyLauncher,
        Self::Tool,
        Self::NamedTool,
        Self::ClientTool,
        Self::Launcher,
        Self::NamedLauncher,
        Self::ClientLauncher,
        Self::Singleton,
        Self::Scheduler,
    ];

    const fn has_owner(self) -> bool {
        !matches!(self, Self::Client)
    }

    const fn has_name(self) -> bool {
        !matches!(
            self,
            Self::LegacyTool | Self::LegacyLauncher | Self::Tool | Self::Launcher
        )
    }

    /// Returns true if the server must assign a name.
    #[must_use]
    pub const fn wants_name(self) -> bool {
        matches!(self, Self::Tool | Self::Launcher)
    }
}

/// User and group that a connector claims, without proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// Handshake of a connector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Authentication method: `native`, `none`, `munge`.
    pub security: CString,
    pub credential: Bytes,
    pub kind: ConnectorKind,
    /// Claimed user and group; `None` for a plain client, which does not send it.
    pub owner: Option<Owner>,
    /// Name of the connector; `None` for kinds that do not send one.
    pub proc: Option<Proc>,
    /// Version of the connector's library, as text.
    pub version: CString,
    /// Codec for both directions of the connection.
    pub codec: CString,
    /// Kind of buffer.
    pub buffer: u8,
    /// Data store that the connector asks for: ours is always `hash`.
    pub store: CString,
    /// Remaining bytes: see [`Self::infos`].
    pub rest: Bytes,
}

impl Hello {
    /// Decodes the payload of a handshake.
    ///
    /// # Errors
    /// It is not a handshake of version 3 or later.
    pub fn decode(payload: &Bytes) -> Result<Self, Error> {
        let mut fields = Fields { rest: payload };
        let security = fields.string()?.to_owned();
        let length = fields.word()? as usize;
        let credential = Bytes::copy_from_slice(fields.take(length)?);
        let number = fields.byte()?;
        let kind = *ConnectorKind::ALL
            .get(usize::from(number))
            .ok_or(Error::Unsupported {
                what: Unsupported::Connector(number),
            })?;
        let owner = if kind.has_owner() {
            Some(Owner {
                uid: fields.word()?,
                gid: fields.word()?,
            })
        } else {
            None
        };
        let proc = if kind.has_name() {
            let nspace = Nspace::new(fields.string()?)?;
            let rank = PmixRank(fields.word()?);
            Some(Proc { nspace, rank })
        } else {
            None
        };
        Ok(Self {
            security,
            credential,
            kind,
            owner,
            proc,
            version: fields.string()?.to_owned(),
            codec: fields.string()?.to_owned(),
            buffer: fields.byte()?,
            store: fields.string()?.to_owned(),
            rest: Bytes::copy_from_slice(fields.rest),
        })
    }

    /// Encodes the payload of a handshake.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(self.security.as_bytes_with_nul());
        let length = u32::try_from(self.credential.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&self.credential);
        let number = ConnectorKind::ALL
            .iter()
            .position(|kind| *kind == self.kind);
        bytes.push(number.and_then(|n| u8::try_from(n).ok()).unwrap_or(0));
        if let Some(owner) = self.owner {
            bytes.extend_from_slice(&owner.uid.to_be_bytes());
            bytes.extend_from_slice(&owner.gid.to_be_bytes());
        }
        if let Some(proc) = &self.proc {
            bytes.extend_from_slice(proc.nspace.as_c_str().to_bytes_with_nul());
            bytes.extend_from_slice(&proc.rank.0.to_be_bytes());
        }
        bytes.extend_from_slice(self.version.as_bytes_with_nul());
        bytes.extend_from_slice(self.codec.as_bytes_with_nul());
        bytes.push(self.buffer);
        bytes.extend_from_slice(self.store.as_bytes_with_nul());
        bytes.extend_from_slice(&self.rest);
        bytes
    }

    /// Returns the format that the handshake asks for.
    ///
    /// # Errors
    /// [`Error::PeerIncompatible`]: the codec or the kind of buffer is unknown.
    pub fn format(&self) -> Result<Format, Error> {
        Format::by_name(self.codec.to_bytes(), self.buffer).ok_or_else(|| {
            let theirs = self.codec.to_string_lossy();
            Error::PeerIncompatible {
                theirs: theirs.chars().take(THEIRS_MAX).collect(),
            }
        })
    }

    /// Returns the first three numbers of the version: `4.2.2rc2` gives 4, 2, 2. A part without a number gives 0.
    #[must_use]
    pub fn version_numbers(&self) -> [u32; 3] {
        let mut numbers = [0; 3];
        let text = self.version.to_string_lossy();
        for (number, part) in numbers.iter_mut().zip(text.split('.')) {
            let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            *number = part[..digits].parse().unwrap_or(0);
        }
        numbers
    }

    /// Returns the infos that newer libraries append: pid, command line, real and effective user. Some send a stray NUL instead
    /// or after them. Undecodable bytes are therefore ignored, and the result is empty.
    #[must_use]
    pub fn infos(&self) -> Vec<Info> {
        let Ok(format) = self.format() else {
            return Vec::new();
        };
        Reader::new(format, &self.rest).list().unwrap_or_default()
    }
}

/// Answer of the server to a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Welcome {
    /// Answer to a client: 0 or an error, and the index that it must send in its headers.
    Client { status: Status, index: u32 },
    /// Answer to an accepted tool.
    Tool {
        /// Name assigned to the tool; `None` if it had one.
        assigned: Option<Proc>,
        server: Proc,
        security: Status,
    },
    /// Answer to a refused tool.
    Refused(Status),
}

impl Welcome {
    /// Encodes the answer, which has no frame header.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Client { status, index } => {
                bytes.extend_from_slice(&status.0.to_be_bytes());
                bytes.extend_from_slice(&index.to_be_bytes());
            }
            Self::Tool {
                assigned,
                server,
                security,
            } => {
                bytes.extend_from_slice(&Status::SUCCESS.0.to_be_bytes());
                for proc in assigned.iter().chain([server]) {
                    let end = bytes.len() + NSPACE_FIELD;
                    bytes.extend_from_slice(proc.nspace.as_bytes());
                    bytes.resize(end, 0);
                    bytes.extend_from_slice(&proc.rank.0.to_be_bytes());
                }
                bytes.extend_from_slice(&security.0.to_be_bytes());
            }
            Self::Refused(status) => bytes.extend_from_slice(&status.0.to_be_bytes()),
        }
        bytes
    }

    /// Decodes the answer to a connector of this kind. Returns the answer and its length in bytes, or `None` while it is
    /// incomplete.
    ///
    /// # Errors
    /// A namespace field has no NUL.
    pub fn decode(kind: ConnectorKind, bytes: &[u8]) -> Result<Option<(Self, usize)>, Error> {
        let mut fields = Fields { rest: bytes };
        let result = Self::fields(kind, &mut fields);
        match result {
            Ok(welcome) => Ok(Some((welcome, bytes.len() - fields.rest.len()))),
            Err(Error::Malformed {
                what: Malformed::Truncated,
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn fields(kind: ConnectorKind, fields: &mut Fields<'_>) -> Result<Self, Error> {
        let status = Status(fields.word()?.cast_signed());
        if matches!(kind, ConnectorKind::Client | ConnectorKind::Singleton) {
            let index = fields.word()?;
            return Ok(Self::Client { status, index });
        }
        if status != Status::SUCCESS {
            return Ok(Self::Refused(status));
        }
        let assigned = if kind.wants_name() {
            Some(fields.padded_proc()?)
        } else {
            None
        };
        Ok(Self::Tool {
            assigned,
            server: fields.padded_proc()?,
            security: Status(fields.word()?.cast_signed()),
        })
    }
}

/// Reader for the fields of a handshake: NUL-terminated strings and big-endian words.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(Error::malformed(Malformed::Truncated))?;
        self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.take(1)?[0])
    }

    fn word(&mut self) -> Result<u32, Error> {
        let mut word = [0; 4];
        word.copy_from_slice(self.take(4)?);
        Ok(u32::from_be_bytes(word))
    }

    fn string(&mut self) -> Result<&'a CStr, Error> {
        let string = CStr::from_bytes_until_nul(self.rest)
            .map_err(|_| Error::malformed(Malformed::NoNul))?;
        self.take(string.to_bytes_with_nul().len())?;
        Ok(string)
    }

    fn padded_proc(&mut self) -> Result<Proc, Error> {
        let field = self.take(NSPACE_FIELD)?;
        let nspace =
            CStr::from_bytes_until_nul(field).map_err(|_| Error::malformed(Malformed::NoNul))?;
        Ok(Proc {
            nspace: Nspace::new(nspace)?,
            rank: PmixRank(self.word()?),
        })
    }
}
