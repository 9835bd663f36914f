//! Requests of clients and tools.

use bytes::Bytes;

use crate::{
    Error,
    codec::{CommandNumber, Format, Reader, Size, Time, Wire, Writer},
    error::Unsupported,
    value::{
        AllocDirective, App, Info, IofChannels, Key, Nspace, Packed, PmixRank, Proc, Query, Range,
        Scope, Status, Text,
    },
};

/// Command. The numbers are the same in every version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Command {
    JobInfo = 0,
    Abort = 1,
    Commit = 2,
    Fence = 3,
    Get = 4,
    Finalize = 5,
    Publish = 6,
    Lookup = 7,
    Unpublish = 8,
    Spawn = 9,
    Connect = 10,
    Disconnect = 11,
    Notify = 12,
    Register = 13,
    Deregister = 14,
    Query = 15,
    Log = 16,
    Allocate = 17,
    JobControl = 18,
    Monitor = 19,
    GetCredential = 20,
    ValidateCredential = 21,
    IofPull = 22,
    IofPush = 23,
    GroupConstruct = 24,
    GroupJoin = 25,
    GroupInvite = 26,
    GroupLeave = 27,
    GroupDestruct = 28,
    IofDeregister = 29,
    FabricRegister = 30,
    FabricUpdate = 31,
    DeviceDistances = 32,
    RefreshCache = 33,
    ResourceBlock = 34,
    SessionControl = 35,
    SystemInfo = 36,
    ResolvePeers = 37,
    ResolveNode = 38,
}

impl Command {
    const ALL: [Self; 39] = [
        Self::JobInfo,
        Self::Abort,
        Self::Commit,
        Self::Fence,
        Self::Get,
        Self::Finalize,
        Self::Publish,
        Self::Lookup,
        Self::Unpublish,
        Self::Spawn,
        Self::Connect,
        Self::Disconnect,
        Self::Notify,
        Self::Register,
        Self::Deregister,
        Self::Query,
        Self::Log,
        Self::Allocate,
        Self::JobControl,
        Self::Monitor,
        Self::GetCredential,
        Self::ValidateCredential,
        Self::IofPull,
        Self::IofPush,
        Self::GroupConstruct,
        Self::GroupJoin,
        Self::GroupInvite,
        Self::GroupLeave,
        Self::GroupDestruct,
        Self::IofDeregister,
        Self::FabricRegister,
        Self::FabricUpdate,
        Self::DeviceDistances,
        Self::RefreshCache,
        Self::ResourceBlock,
        Self::SessionControl,
        Self::SystemInfo,
        Self::ResolvePeers,
        Self::ResolveNode,
    ];

    /// Returns the command with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns the number of the command.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// Request of a client or tool.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Requests the job info of the connection's own job.
    JobInfo,
    /// Ends these processes, or the whole job if `procs` is empty.
    Abort {
        status: Status,
        message: Text,
        procs: Vec<Proc>,
    },
    /// Sends what the process has put: for each scope a buffer of [`crate::value::Kval`] items.
    Commit {
        buckets: Vec<(Scope, Packed)>,
    },
    Fence {
        procs: Vec<Proc>,
        infos: Vec<Info>,
    },
    /// Gets a value, or all data of the process if `key` is `None`.
    Get {
        nspace: Nspace,
        rank: PmixRank,
        infos: Vec<Info>,
        key: Option<Key>,
    },
    Finalize,
    /// Publishes data. `infos` contains data and directives mixed.
    Publish {
        uid: u32,
        infos: Vec<Info>,
    },
    Lookup {
        uid: u32,
        keys: Vec<Key>,
        infos: Vec<Info>,
    },
    Unpublish {
        uid: u32,
        keys: Vec<Key>,
        infos: Vec<Info>,
    },
    Spawn {
        infos: Vec<Info>,
        apps: Vec<App>,
    },
    Connect {
        procs: Vec<Proc>,
        infos: Vec<Info>,
        /// Infos that libpmix 6 appends: its own data, and the job's.
        data: Vec<Info>,
    },
    Disconnect {
        procs: Vec<Proc>,
        infos: Vec<Info>,
    },
    Notify {
        status: Status,
        range: Range,
        infos: Vec<Info>,
    },
    /// Registers an event handler. No codes mean every event without another handler.
    Register {
        codes: Vec<Status>,
        infos: Vec<Info>,
    },
    /// Deregisters event codes. Never answered.
    Deregister {
        codes: Vec<Status>,
    },
    Query {
        queries: Vec<Query>,
    },
    Log {
        time: u64,
        data: Vec<Info>,
        directives: Vec<Info>,
    },
    Allocate {
        directive: AllocDirective,
        infos: Vec<Info>,
    },
    /// Controls these targets, or the caller's job if there are none.
    JobControl {
        targets: Vec<Proc>,
        infos: Vec<Info>,
    },
    Monitor {
        monitor: Info,
        error: Status,
        infos: Vec<Info>,
    },
    GetCredential {
        infos: Vec<Info>,
    },
    ValidateCredential {
        credential: Bytes,
        infos: Vec<Info>,
    },
    IofPull {
        procs: Vec<Proc>,
        infos: Vec<Info>,
        channels: IofChannels,
        /// Number that the peer wants in the output pushed to it.
        id: u64,
    },
    /// Sends input. `None` or empty bytes mean the end of the input.
    IofPush {
        procs: Vec<Proc>,
        infos: Vec<Info>,
        bytes: Option<Bytes>,
    },
    IofDeregister {
        infos: Vec<Info>,
        id: u64,
    },
    GroupConstruct {
        group: Text,
        procs: Vec<Proc>,
        infos: Vec<Info>,
    },
    /// Destructs a group. `procs` is `None` from libpmix 4.2.2, which does not send the members.
    GroupDestruct {
        group: Text,
        procs: Option<Vec<Proc>>,
        infos: Vec<Info>,
    },
    GroupLeave {
        group: Text,
        infos: Vec<Info>,
    },
    FabricRegister {
        infos: Vec<Info>,
    },
    FabricUpdate {
        index: u64,
    },
    RefreshCache {
        nspace: Nspace,
        rank: PmixRank,
    },
    SessionControl {
        session: u32,
        infos: Vec<Info>,
    },
    ResolvePeers {
        node: Text,
        nspace: Text,
    },
    ResolveNode {
        nspace: Text,
    },
    /// A command that is not interpreted here, with its payload unchanged.
    Opaque {
        command: Command,
        payload: Bytes,
    },
}

impl Request {
    /// Decodes the payload of a message. Trailing items are ignored, because later versions append some.
    ///
    /// # Errors
    /// The payload is malformed, or the command is unknown.
    #[expect(
        clippy::too_many_lines,
        reason = "one arm for each command, in the order of the format"
    )]
    pub fn decode(format: Format, payload: &[u8]) -> Result<Self, Error> {
        let reader = &mut Reader::new(format, payload);
        let CommandNumber(number) = reader.item()?;
        let command = Command::from_number(number).ok_or(Error::Unsupported {
            what: Unsupported::Command(number),
        })?;
        Ok(match command {
            Command::JobInfo => Self::JobInfo,
            Command::Abort => Self::Abort {
                status: reader.item()?,
                message: reader.item()?,
                procs: reader.list()?,
            },
            Command::Commit => {
                let mut buckets = Vec::new();
                while !reader.is_empty() {
                    buckets.push((reader.item()?, reader.item()?));
                }
                Self::Commit { buckets }
            }
            Command::Fence => Self::Fence {
                procs: reader.list()?,
                infos: reader.list()?,
            },
            Command::Get => Self::Get {
                nspace: reader.item()?,
                rank: reader.item()?,
                infos: reader.list()?,
                key: optional(reader)?,
            },
            Command::Finalize => Self::Finalize,
            Command::Publish => Self::Publish {
                uid: reader.item()?,
                infos: reader.list()?,
            },
            Command::Lookup => Self::Lookup {
                uid: reader.item()?,
                keys: keys(reader)?,
                infos: reader.list()?,
            },
            Command::Unpublish => Self::Unpublish {
                uid: reader.item()?,
                keys: keys(reader)?,
                infos: reader.list()?,
            },
            Command::Spawn => Self::Spawn {
                infos: reader.list()?,
                apps: reader.list()?,
            },
            Command::Connect => Self::Connect {
                procs: reader.list()?,
                infos: reader.list()?,
                data: reader.each()?,
            },
            Command::Disconnect => Self::Disconnect {
                procs: reader.list()?,
                infos: reader.list()?,
            },
            Command::Notify => Self::Notify {
                status: reader.item()?,
                range: reader.item()?,
                infos: reader.list()?,
            },
            Command::Register => Self::Register {
                codes: reader.list()?,
                infos: reader.list()?,
            },
            Command::Deregister => Self::Deregister {
                codes: reader.each()?,
            },
            Command::Query => Self::Query {
                queries: reader.list()?,
            },
            Command::Log => {
                let Time(time) = reader.item()?;
                Self::Log {
                    time,
                    data: reader.list()?,
                    directives: reader.list()?,
                }
            }
            Command::Allocate => Self::Allocate {
                directive: reader.item()?,
                infos: reader.list()?,
            },
            Command::JobControl => Self::JobControl {
                targets: reader.list()?,
                infos: reader.list()?,
            },
            Command::Monitor => Self::Monitor {
                monitor: reader.item()?,
                error: reader.item()?,
                infos: reader.list()?,
            },
            Command::GetCredential => Self::GetCredential {
                infos: reader.list()?,
            },
            Command::ValidateCredential => Self::ValidateCredential {
                credential: reader.item()?,
                infos: reader.list()?,
            },
            Command::IofPull => Self::IofPull {
                procs: reader.list()?,
                infos: reader.list()?,
                channels: reader.item()?,
                id: optional::<Size>(reader)?.map_or(0, |Size(id)| id),
            },
            Command::IofPush => Self::IofPush {
                procs: reader.list()?,
                infos: reader.list()?,
                bytes: optional(reader)?,
            },
            Command::IofDeregister => Self::IofDeregister {
                infos: reader.list()?,
                id: reader.item::<Size>()?.0,
            },
            Command::GroupConstruct => Self::GroupConstruct {
                group: reader.item()?,
                procs: reader.list()?,
                infos: reader.list()?,
            },
            Command::GroupDestruct => {
                let group = reader.item()?;
                let mut with_members = reader.clone();
                let (procs, infos) = match both(&mut with_members) {
                    Ok((procs, infos)) => (Some(procs), infos),
                    Err(_) => (None, reader.list()?),
                };
                Self::GroupDestruct {
                    group,
                    procs,
                    infos,
                }
            }
            Command::GroupLeave => Self::GroupLeave {
                group: reader.item()?,
                infos: reader.list()?,
            },
            Command::FabricRegister => Self::FabricRegister {
                infos: reader.list()?,
            },
            Command::FabricUpdate => Self::FabricUpdate {
                index: reader.item::<Size>()?.0,
            },
            Command::RefreshCache => Self::RefreshCache {
                nspace: reader.item()?,
                rank: reader.item()?,
            },
            Command::SessionControl => Self::SessionControl {
                session: reader.item()?,
                infos: reader.list()?,
            },
            Command::ResolvePeers => Self::ResolvePeers {
                node: reader.item()?,
                nspace: reader.item()?,
            },
            Command::ResolveNode => Self::ResolveNode {
                nspace: reader.item()?,
            },
            Command::GroupJoin
            | Command::GroupInvite
            | Command::DeviceDistances
            | Command::ResourceBlock
            | Command::SystemInfo => Self::Opaque {
                command,
                payload: Bytes::copy_from_slice(reader.rest()),
            },
        })
    }

    /// Encodes the payload of a message.
    #[expect(
        clippy::too_many_lines,
        reason = "one arm for each command, in the order of the format"
    )]
    pub fn encode(&self, writer: &mut Writer) {
        writer.item(&CommandNumber(self.command().number()));
        match self {
            Self::JobInfo | Self::Finalize => {}
            Self::Abort {
                status,
                message,
                procs,
            } => {
                writer.item(status);
                writer.item(message);
                writer.list(procs);
            }
            Self::Commit { buckets } => {
                for (scope, bucket) in buckets {
                    writer.item(scope);
                    writer.item(bucket);
                }
            }
            Self::Fence { procs, infos } | Self::Disconnect { procs, infos } => {
                writer.list(procs);
                writer.list(infos);
            }
            Self::JobControl { targets, infos } => {
                writer.list(targets);
                writer.list(infos);
            }
            Self::Get {
                nspace,
                rank,
                infos,
                key,
            } => {
                writer.item(nspace);
                writer.item(rank);
                writer.list(infos);
                if let Some(key) = key {
                    writer.item(key);
                }
            }
            Self::Publish { uid, infos } => {
                writer.item(uid);
                writer.list(infos);
            }
            Self::Lookup { uid, keys, infos } | Self::Unpublish { uid, keys, infos } => {
                writer.item(uid);
                writer.item(&Size(keys.len() as u64));
                writer.each(keys);
                writer.list(infos);
            }
            Self::Spawn { infos, apps } => {
                writer.list(infos);
                writer.list(apps);
            }
            Self::Connect { procs, infos, data } => {
                writer.list(procs);
                writer.list(infos);
                writer.each(data);
            }
            Self::Notify {
                status,
                range,
                infos,
            } => {
                writer.item(status);
                writer.item(range);
                writer.list(infos);
            }
            Self::Register { codes, infos } => {
                writer.list(codes);
                writer.list(infos);
            }
            Self::Deregister { codes } => {
                writer.each(codes);
            }
            Self::Query { queries } => writer.list(queries),
            Self::Log {
                time,
                data,
                directives,
            } => {
                writer.item(&Time(*time));
                writer.list(data);
                writer.list(directives);
            }
            Self::Allocate { directive, infos } => {
                writer.item(directive);
                writer.list(infos);
            }
            Self::Monitor {
                monitor,
                error,
                infos,
            } => {
                writer.item(monitor);
                writer.item(error);
                writer.list(infos);
            }
            Self::GetCredential { infos } | Self::FabricRegister { infos } => writer.list(infos),
            Self::ValidateCredential { credential, infos } => {
                writer.item(credential);
                writer.list(infos);
            }
            Self::IofPull {
                procs,
                infos,
                channels,
                id,
            } => {
                writer.list(procs);
                writer.list(infos);
                writer.item(channels);
                writer.item(&Size(*id));
            }
            Self::IofPush {
                procs,
                infos,
                bytes,
            } => {
                writer.list(procs);
                writer.list(infos);
                if let Some(bytes) = bytes {
                    writer.item(bytes);
                }
            }
            Self::IofDeregister { infos, id } => {
                writer.list(infos);
                writer.item(&Size(*id));
            }
            Self::GroupConstruct {
                group,
                procs,
                infos,
            } => {
                writer.item(group);
                writer.list(procs);
                writer.list(infos);
            }
            Self::GroupDestruct {
                group,
                procs,
                infos,
            } => {
                writer.item(group);
                if let Some(procs) = procs {
                    writer.list(procs);
                }
                writer.list(infos);
            }
            Self::GroupLeave { group, infos } => {
                writer.item(group);
                writer.list(infos);
            }
            Self::FabricUpdate { index } => writer.item(&Size(*index)),
            Self::RefreshCache { nspace, rank } => {
                writer.item(nspace);
                writer.item(rank);
            }
            Self::SessionControl { session, infos } => {
                writer.item(session);
                writer.list(infos);
            }
            Self::ResolvePeers { node, nspace } => {
                writer.item(node);
                writer.item(nspace);
            }
            Self::ResolveNode { nspace } => writer.item(nspace),
            Self::Opaque { payload, .. } => writer.raw(payload),
        }
    }

    /// Returns the command of the request.
    #[must_use]
    pub const fn command(&self) -> Command {
        match self {
            Self::JobInfo => Command::JobInfo,
            Self::Abort { .. } => Command::Abort,
            Self::Commit { .. } => Command::Commit,
            Self::Fence { .. } => Command::Fence,
            Self::Get { .. } => Command::Get,
            Self::Finalize => Command::Finalize,
            Self::Publish { .. } => Command::Publish,
            Self::Lookup { .. } => Command::Lookup,
            Self::Unpublish { .. } => Command::Unpublish,
            Self::Spawn { .. } => Command::Spawn,
            Self::Connect { .. } => Command::Connect,
            Self::Disconnect { .. } => Command::Disconnect,
            Self::Notify { .. } => Command::Notify,
            Self::Register { .. } => Command::Register,
            Self::Deregister { .. } => Command::Deregister,
            Self::Query { .. } => Command::Query,
            Self::Log { .. } => Command::Log,
            Self::Allocate { .. } => Command::Allocate,
            Self::JobControl { .. } => Command::JobControl,
            Self::Monitor { .. } => Command::Monitor,
            Self::GetCredential { .. } => Command::GetCredential,
            Self::ValidateCredential { .. } => Command::ValidateCredential,
            Self::IofPull { .. } => Command::IofPull,
            Self::IofPush { .. } => Command::IofPush,
            Self::IofDeregister { .. } => Command::IofDeregister,
            Self::GroupConstruct { .. } => Command::GroupConstruct,
            Self::GroupDestruct { .. } => Command::GroupDestruct,
            Self::GroupLeave { .. } => Command::GroupLeave,
            Self::FabricRegister { .. } => Command::FabricRegister,
            Self::FabricUpdate { .. } => Command::FabricUpdate,
            Self::RefreshCache { .. } => Command::RefreshCache,
            Self::SessionControl { .. } => Command::SessionControl,
            Self::ResolvePeers { .. } => Command::ResolvePeers,
            Self::ResolveNode { .. } => Command::ResolveNode,
            Self::Opaque { command, .. } => *command,
        }
    }
}

/// Decodes an item that may be missing at the end.
fn optional<T: Wire>(reader: &mut Reader<'_>) -> Result<Option<T>, Error> {
    if reader.is_empty() {
        Ok(None)
    } else {
        reader.item().map(Some)
    }
}

/// Decodes a list of processes and a list of infos.
fn both(reader: &mut Reader<'_>) -> Result<(Vec<Proc>, Vec<Info>), Error> {
    Ok((reader.list()?, reader.list()?))
}

/// Decodes a SIZE, then that many items of one string each.
fn keys(reader: &mut Reader<'_>) -> Result<Vec<Key>, Error> {
    let Size(count) = reader.item()?;
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(reader.item()?);
    }
    Ok(keys)
}
