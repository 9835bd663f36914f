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

/// Bytes of the name of a namespace in an answer, its NUL and padding included.
const NSPACE_FIELD: usize = 256;

/// Who connects, by the number in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectorKind {
    /// A process that the server has registered.
    Client,
    LegacyTool,
    LegacyLauncher,
    /// A tool that wants a name.
    Tool,
    /// A tool that brings its name; also a server that attaches to a tool.
    NamedTool,
    /// A tool that is a registered process as well.
    ClientTool,
    Launcher,
    NamedLauncher,
    ClientLauncher,
    /// A process that nobody launched.
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

    /// Whether the server has to give it a name.
    #[must_use]
    pub const fn wants_name(self) -> bool {
        matches!(self, Self::Tool | Self::Launcher)
    }
}

/// The user that a connector says it is: a claim, no proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// What a connector says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The way it proves who it is: `native`, `none`, `munge`.
    pub security: CString,
    pub credential: Bytes,
    pub kind: ConnectorKind,
    /// Everybody but a plain client says it.
    pub owner: Option<Owner>,
    /// Who it is; absent when it wants a name.
    pub proc: Option<Proc>,
    /// The version of its library, as text.
    pub version: CString,
    /// The codec that both sides use from now on.
    pub codec: CString,
    /// The kind of its buffers.
    pub buffer: u8,
    /// The data store that it wants: we have `hash` only.
    pub store: CString,
    /// Whatever follows: see [`Self::infos`].
    pub rest: Bytes,
}

impl Hello {
    /// Reads the payload of a handshake.
    ///
    /// # Errors
    /// It is no handshake of version 3 or later.
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

    /// The payload of a handshake.
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

    /// The format that it asks for.
    ///
    /// # Errors
    /// [`Error::PeerIncompatible`]: it names a codec that we do not have.
    pub fn format(&self) -> Result<Format, Error> {
        Format::by_name(self.codec.to_bytes(), self.buffer).ok_or_else(|| {
            let theirs = self.codec.to_string_lossy();
            Error::PeerIncompatible {
                theirs: theirs.chars().take(THEIRS_MAX).collect(),
            }
        })
    }

    /// The leading numbers of its version: `4.2.2rc2` is 4, 2, 2. What is no number is 0.
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

    /// What newer libraries add: their pid and command line, their real and effective user. Some send a stray NUL
    /// instead or after it, so that what cannot be read is left out and never refused.
    #[must_use]
    pub fn infos(&self) -> Vec<Info> {
        let Ok(format) = self.format() else {
            return Vec::new();
        };
        Reader::new(format, &self.rest).list().unwrap_or_default()
    }
}

/// The server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Welcome {
    /// To a client: 0 or why not, and the number that it sends in its headers.
    Client { status: Status, index: u32 },
    /// To a tool that is welcome.
    Tool {
        /// The name that it is given, when it wanted one.
        assigned: Option<Proc>,
        server: Proc,
        security: Status,
    },
    /// To a tool that is not.
    Refused(Status),
}

impl Welcome {
    /// The answer as bytes: it has no header.
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

    /// Reads the answer to a connector of this kind; gives it with the number of its bytes, or nothing as long as it
    /// is not there whole.
    ///
    /// # Errors
    /// The name of a namespace in it has no end.
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

/// The fields of a handshake: NUL-terminated strings and words with the highest byte first.
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
