//! The configuration of a connection: connector, server, authentication and format.

use std::ffi::{CStr, CString};

use bytes::Bytes;

use super::{ServerUri, UriError};
use crate::{
    Error,
    codec::{Family, Format, Items, Writer},
    handshake::{ConnectorKind, Hello, Owner},
    keys,
    message::GroupForm,
    value::{Info, Key, Nspace, PmixRank, Proc, Value},
};

/// Environment variables with the address of a server, newest codec first. Variables for newer libraries (`PMIX_SERVER_URI51`,
/// `PMIX_SERVER_URI61`) occur only in addition to these.
const URIS: [(&str, Codec); 3] = [
    ("PMIX_SERVER_URI41", Codec::V41),
    ("PMIX_SERVER_URI4", Codec::V4),
    ("PMIX_SERVER_URI3", Codec::V3),
];

const REAL_USER: &CStr = c"pmix.ruid";
const REAL_GROUP: &CStr = c"pmix.rgid";
const EFFECTIVE_GROUP: &CStr = c"pmix.egid";

/// Codec that this side announces. The protocol has no negotiation: a server that does not know the codec closes the connection,
/// and some versions of PRRTE crash. Therefore we announce the oldest sufficient codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Codec {
    /// For servers of version 3, with fixed-width integers.
    V3,
    /// For servers of version 4.0.
    V4,
    /// For all servers from 4.1 on.
    V41,
}

impl Codec {
    const fn name(self) -> &'static CStr {
        match self {
            Self::V3 => c"v3",
            Self::V4 => c"v4",
            Self::V41 => c"v41",
        }
    }

    /// Returns the version of libpmix that we announce. Servers use it where versions with the same codec differ: to version 3
    /// they send the session info as single facts.
    const fn version(self) -> &'static CStr {
        match self {
            Self::V3 => c"3.2.0",
            Self::V4 => c"4.0.0",
            Self::V41 => c"5.0.0",
        }
    }

    const fn family(self) -> Family {
        match self {
            Self::V3 => Family::Fixed,
            Self::V4 | Self::V41 => Family::Flex,
        }
    }
}

/// Method of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// Effective user and group as two numbers, which prove nothing. A careful server asks its kernel for the peer's user.
    Native,
    /// No authentication.
    None,
}

/// Kind of connector, with its name if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connector {
    /// Process that was registered with the server before it started.
    Client(Proc),
    /// Tool that gets a name from the server.
    Tool,
    /// Tool that has a name.
    NamedTool(Proc),
    /// Tool that is also a registered process, such as a debugger's daemon.
    ClientTool(Proc),
    /// Tool that starts jobs, and gets a name from the server.
    Launcher,
    /// Tool that starts jobs, and has a name.
    NamedLauncher(Proc),
    /// Tool that starts jobs, and is also a registered process.
    ClientLauncher(Proc),
}

impl Connector {
    /// Returns the kind of connector in the handshake.
    #[must_use]
    pub const fn kind(&self) -> ConnectorKind {
        match self {
            Self::Client(_) => ConnectorKind::Client,
            Self::Tool => ConnectorKind::Tool,
            Self::NamedTool(_) => ConnectorKind::NamedTool,
            Self::ClientTool(_) => ConnectorKind::ClientTool,
            Self::Launcher => ConnectorKind::Launcher,
            Self::NamedLauncher(_) => ConnectorKind::NamedLauncher,
            Self::ClientLauncher(_) => ConnectorKind::ClientLauncher,
        }
    }

    /// Returns the name in the handshake; `None` if the server assigns it.
    #[must_use]
    pub const fn proc(&self) -> Option<&Proc> {
        match self {
            Self::Tool | Self::Launcher => None,
            Self::Client(proc)
            | Self::NamedTool(proc)
            | Self::ClientTool(proc)
            | Self::NamedLauncher(proc)
            | Self::ClientLauncher(proc) => Some(proc),
        }
    }
}

/// Configuration of a connection.
///
/// ```
/// use pmix::{client::{Config, Connector}, handshake::Owner};
/// let variables = [
///     ("PMIX_NAMESPACE", "job-1"),
///     ("PMIX_RANK", "0"),
///     ("PMIX_SERVER_URI41", "daemon-n1.0;tcp4://127.0.0.1:4711"),
/// ];
/// let get = |name: &str| {
///     let found = variables.iter().find(|(n, _)| *n == name);
///     found.map(|(_, value)| value.to_string())
/// };
/// let config = Config::from_environment(get, Owner { uid: 1000, gid: 1000 })?;
/// assert_eq!(config.connector.proc().unwrap().to_string(), "job-1:0");
/// # Ok::<(), pmix::client::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub server: ServerUri,
    pub connector: Connector,
    /// Effective user and group of this process.
    pub owner: Owner,
    pub security: Security,
    pub codec: Codec,
    /// Presence of types in items, which only debug builds need.
    pub items: Items,
    /// Version of the server's library, if known. It determines which layout is tried first for the answer to a group construct.
    pub server_version: Option<[u32; 3]>,
    /// Name of this node in the job info. If it is `None` and the facts of this process contain no name, "this node" means the
    /// facts that the server sent without a node.
    pub hostname: Option<CString>,
    /// Additional infos for the handshake; see [`Self::describe`].
    pub infos: Vec<Info>,
}

/// Reason why the environment does not describe a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A variable is not set. Without `PMIX_NAMESPACE` the process was not started by a launcher.
    #[error("`{variable}` is not set")]
    Missing { variable: &'static str },
    /// `PMIX_NAMESPACE` is longer than 255 bytes.
    #[error("`PMIX_NAMESPACE` is not a namespace: {0}")]
    Nspace(Error),
    /// `PMIX_RANK` is not the number of a rank.
    #[error("`PMIX_RANK` is not the number of a rank")]
    Rank,
    /// The value of a variable is not the address of a server.
    #[error("`{variable}` names no server: {why}")]
    Server {
        variable: &'static str,
        why: UriError,
    },
    /// `PMIX_SECURITY_MODE` allows neither `native` nor `none`.
    #[error("`PMIX_SECURITY_MODE` allows neither `native` nor `none`")]
    Security,
}

impl Config {
    /// Creates a configuration for a server of version 4.1 or later, with native authentication and without item types.
    #[must_use]
    pub const fn new(server: ServerUri, connector: Connector, owner: Owner) -> Self {
        Self {
            server,
            connector,
            owner,
            security: Security::Native,
            codec: Codec::V41,
            items: Items::Plain,
            server_version: None,
            hostname: None,
            infos: Vec::new(),
        }
    }

    /// Creates the configuration of a launched process from its environment (docs/formats/pmix.md, section 2). `variable` returns
    /// the value of a variable; `owner` is the effective user and group.
    ///
    /// # Errors
    /// A variable is missing or has an unusable value.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
        owner: Owner,
    ) -> Result<Self, ConfigError> {
        let missing = |variable| ConfigError::Missing { variable };
        let nspace = variable("PMIX_NAMESPACE").ok_or_else(|| missing("PMIX_NAMESPACE"))?;
        let rank = variable("PMIX_RANK").ok_or_else(|| missing("PMIX_RANK"))?;
        let rank: PmixRank = PmixRank(rank.trim().parse().map_err(|_| ConfigError::Rank)?);
        if !rank.is_number() {
            return Err(ConfigError::Rank);
        }
        let proc = Proc {
            nspace: Nspace::from_text(&nspace).map_err(ConfigError::Nspace)?,
            rank,
        };
        let (server, codec) = Self::server_from_environment(&variable)?
            .ok_or_else(|| missing("PMIX_SERVER_URI41"))?;
        let security = match variable("PMIX_SECURITY_MODE") {
            None => Security::Native,
            Some(modes) if modes.split(',').any(|mode| mode == "native") => Security::Native,
            Some(modes) if modes.split(',').any(|mode| mode == "none") => Security::None,
            Some(_) => return Err(ConfigError::Security),
        };
        let items = match variable("PMIX_BFROP_BUFFER_TYPE").as_deref() {
            Some("PMIX_BFROP_BUFFER_FULLY_DESC") => Items::Described,
            _ => Items::Plain,
        };
        Ok(Self {
            security,
            codec,
            items,
            server_version: variable("PMIX_VERSION")
                .as_deref()
                .and_then(version_numbers),
            hostname: variable("PMIX_HOSTNAME").and_then(|name| CString::new(name).ok()),
            ..Self::new(server, Connector::Client(proc), owner)
        })
    }

    /// Returns the server that the environment names and the codec to use; `None` if it names none. A tool that runs as a process
    /// of a job finds its server this way.
    ///
    /// # Errors
    /// [`ConfigError::Server`]: the first variable that is set is not the address of a server.
    pub fn server_from_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<(ServerUri, Codec)>, ConfigError> {
        for (name, codec) in URIS {
            if let Some(text) = variable(name) {
                let server = text.parse().map_err(|why| ConfigError::Server {
                    variable: name,
                    why,
                })?;
                return Ok(Some((server, codec)));
            }
        }
        Ok(None)
    }

    /// Adds the infos that tools send in the handshake: pid, real and effective user, command line. Servers list them for
    /// connected tools, and refuse a tool whose users differ from its credential.
    #[must_use]
    pub fn describe(mut self, pid: u32, command_line: &str) -> Self {
        let Owner { uid, gid } = self.owner;
        let facts = [
            (keys::PROC_PID, Value::Pid(pid)),
            (REAL_USER, Value::Uint32(uid)),
            (keys::USER_ID, Value::Uint32(uid)),
            (REAL_GROUP, Value::Uint32(gid)),
            (EFFECTIVE_GROUP, Value::Uint32(gid)),
            (keys::COMMAND_LINE, Value::text(command_line)),
        ];
        self.infos.extend(infos(facts));
        self
    }

    /// Returns the format of this connection.
    #[must_use]
    pub const fn format(&self) -> Format {
        Format {
            family: self.codec.family(),
            items: self.items,
        }
    }

    /// Returns the layout that is tried first for the answer to a group construct.
    pub(super) fn group_form(&self) -> GroupForm {
        self.server_version
            .map_or(GroupForm::Members, GroupForm::of_version)
    }

    pub(crate) fn hello(&self) -> Hello {
        let (security, credential) = match self.security {
            Security::Native => {
                let Owner { uid, gid } = self.owner;
                let credential = [uid.to_ne_bytes(), gid.to_ne_bytes()].concat();
                (c"native", credential.into())
            }
            Security::None => (c"none", Bytes::new()),
        };
        let rest = if self.infos.is_empty() {
            Bytes::new()
        } else {
            let mut writer = Writer::new(self.format());
            writer.list(&self.infos);
            writer.into_bytes().into()
        };
        let kind = self.connector.kind();
        Hello {
            security: security.to_owned(),
            credential,
            kind,
            owner: (kind != ConnectorKind::Client).then_some(self.owner),
            proc: self.connector.proc().cloned(),
            version: self.codec.version().to_owned(),
            codec: self.codec.name().to_owned(),
            buffer: self.format().buffer_number(),
            store: c"hash".to_owned(),
            rest,
        }
    }
}

/// Returns the first three numbers of a version such as `5.0.11rc1` or `v4.2.2`; `None` if it does not begin with a number.
pub(crate) fn version_numbers(text: &str) -> Option<[u32; 3]> {
    let text = text.trim();
    let mut numbers = [0; 3];
    let parts = text.strip_prefix('v').unwrap_or(text).split('.');
    for (place, (number, part)) in numbers.iter_mut().zip(parts).enumerate() {
        let end = part.find(|c: char| !c.is_ascii_digit());
        match part[..end.unwrap_or(part.len())].parse() {
            Ok(value) => *number = value,
            Err(_) if place == 0 => return None,
            Err(_) => break,
        }
    }
    Some(numbers)
}

/// Creates infos from constant keys, such as those of [`keys`]. A key that is too long for PMIx would be left out.
#[must_use]
pub fn infos<const N: usize>(pairs: [(&CStr, Value); N]) -> Vec<Info> {
    let infos = pairs.into_iter().filter_map(|(key, value)| {
        let key = Key::new(key).ok()?;
        Some(Info::new(key, value))
    });
    infos.collect()
}
