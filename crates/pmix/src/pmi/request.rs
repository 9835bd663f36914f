//! The requests of clients and their encoding.

use std::{borrow::Cow, fmt};

use base::Rank;

use crate::pmi::{
    Dialect, Error, Kind, Malformed, Part, Spawn,
    error::shorten,
    wire::{Form, Message, one_line},
};

/// Scope of an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Job,
    /// Only the caller, which exits by itself.
    Caller,
}

/// Behavior of a query for an attribute that does not exist yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfAbsent {
    /// Answer immediately that it does not exist.
    Say,
    /// Answer with the value once it exists.
    Wait,
}

/// Ranks of a job that have a barrier of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    pub members: Members,
    /// Number that distinguishes concurrent barriers of the same members by different threads. The answer repeats it.
    pub tag: u32,
}

/// Members of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Members {
    /// Every rank of the job.
    World,
    /// The ranks of the job on the caller's node.
    Node,
    /// These ranks, in ascending order.
    Ranks(Vec<Rank>),
}

impl Group {
    /// Parses `WORLD`, `NODE` or ranks separated by commas, optionally followed by a colon and the tag.
    fn parse(text: &str) -> Option<Self> {
        let (names, tag) = match text.split_once(':') {
            Some((names, tag)) => (names, tag.parse().ok()?),
            None => (text, 0),
        };
        let members = match names {
            "WORLD" => Members::World,
            "NODE" => Members::Node,
            names => {
                let ranks: Result<Vec<u32>, _> = names.split(',').map(str::parse).collect();
                let mut ranks: Vec<Rank> = ranks.ok()?.into_iter().map(Rank).collect();
                ranks.sort_unstable();
                ranks.dedup();
                Members::Ranks(ranks)
            }
        };
        Some(Self { members, tag })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.members {
            Members::World => f.write_str("WORLD")?,
            Members::Node => f.write_str("NODE")?,
            Members::Ranks(ranks) => {
                for (index, rank) in ranks.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma}{rank}")?;
                }
            }
        }
        write!(f, ":{}", self.tag)
    }
}

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// First request on every connection. Its version determines the dialect of the connection.
    Init {
        version: u32,
        subversion: u32,
    },
    /// PMI-2: second request on every connection. It repeats the identity of the client, which is not decoded.
    FullInit,
    GetMaxes,
    GetAppnum,
    GetKvsName,
    GetUniverseSize,
    /// Stores a value, visible to every rank after the next barrier.
    Put {
        /// Key-value space; `None` for the job's own.
        kvs: Option<String>,
        key: String,
        value: String,
    },
    Get {
        /// Key-value space; `None` for the job's own.
        kvs: Option<String>,
        key: String,
    },
    /// PMI-2: query for an attribute of the job.
    JobAttribute {
        key: String,
    },
    /// PMI-2: stores an attribute of the node, visible immediately to the ranks of the node.
    PutNodeAttribute {
        key: String,
        value: String,
    },
    /// PMI-2: query for an attribute of the node.
    NodeAttribute {
        key: String,
        absent: IfAbsent,
    },
    Barrier {
        /// `None` for the untagged barrier of every rank of the job.
        group: Option<Group>,
    },
    Finalize,
    /// Request to end the job, or only the caller, with this exit code.
    Abort {
        code: i32,
        message: String,
        reach: Reach,
    },
    Publish {
        service: String,
        port: String,
    },
    Unpublish {
        service: String,
    },
    Lookup {
        service: String,
    },
    /// One part of a spawn. The last part is answered.
    Spawn(Part),
    /// PMI-2: connect to another job. The server refuses it.
    Connect {
        job: String,
    },
    /// PMI-2: disconnect from another job. The server refuses it.
    Disconnect {
        job: String,
    },
}

impl Request {
    /// Returns the kind of the request.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Init { .. } => Kind::Init,
            Self::FullInit => Kind::FullInit,
            Self::GetMaxes => Kind::GetMaxes,
            Self::GetAppnum => Kind::GetAppnum,
            Self::GetKvsName => Kind::GetKvsName,
            Self::GetUniverseSize => Kind::GetUniverseSize,
            Self::Put { .. } => Kind::Put,
            Self::Get { .. } => Kind::Get,
            Self::JobAttribute { .. } => Kind::JobAttribute,
            Self::PutNodeAttribute { .. } => Kind::PutNodeAttribute,
            Self::NodeAttribute { .. } => Kind::NodeAttribute,
            Self::Barrier { .. } => Kind::Barrier,
            Self::Finalize => Kind::Finalize,
            Self::Abort { .. } => Kind::Abort,
            Self::Publish { .. } => Kind::Publish,
            Self::Unpublish { .. } => Kind::Unpublish,
            Self::Lookup { .. } => Kind::Lookup,
            Self::Spawn(_) => Kind::Spawn,
            Self::Connect { .. } => Kind::Connect,
            Self::Disconnect { .. } => Kind::Disconnect,
        }
    }

    /// Decodes a request from a command.
    ///
    /// # Errors
    ///
    /// `Unsupported` for an unknown command, `Malformed` when a field is missing or invalid, `Limit` for a spawn of too many
    /// programs.
    pub fn decode(message: &Message) -> Result<Self, Error> {
        let unsupported = || Error::Unsupported {
            what: shorten(message.name()),
        };
        let kind = Kind::asked_by(message).ok_or_else(unsupported)?;
        let two = message.form() == Form::Counted;
        let text = |key| message.need(key).map(str::to_owned);
        let optional = |key| message.field(key).map(str::to_owned);
        Ok(match kind {
            Kind::Init => Self::Init {
                version: message.number("pmi_version")?,
                subversion: message.number("pmi_subversion")?,
            },
            Kind::FullInit => Self::FullInit,
            Kind::GetMaxes => Self::GetMaxes,
            Kind::GetAppnum => Self::GetAppnum,
            Kind::GetKvsName => Self::GetKvsName,
            Kind::GetUniverseSize => Self::GetUniverseSize,
            Kind::Put => Self::Put {
                kvs: optional("kvsname"),
                key: text("key")?,
                value: text("value")?,
            },
            Kind::Get => Self::Get {
                kvs: optional(if two { "jobid" } else { "kvsname" }),
                key: text("key")?,
            },
            Kind::JobAttribute => Self::JobAttribute { key: text("key")? },
            Kind::PutNodeAttribute => Self::PutNodeAttribute {
                key: text("key")?,
                value: text("value")?,
            },
            Kind::NodeAttribute => Self::NodeAttribute {
                key: text("key")?,
                absent: match message.boolean("wait")? {
                    Some(true) => IfAbsent::Wait,
                    Some(false) | None => IfAbsent::Say,
                },
            },
            Kind::Barrier => Self::Barrier {
                // Only PMI-1 has groups.
                group: match message.field("group").filter(|_| !two) {
                    Some(group) => Some(
                        Group::parse(group)
                            .ok_or(Error::Malformed(Malformed::NotANumber("group")))?,
                    ),
                    None => None,
                },
            },
            Kind::Finalize => Self::Finalize,
            Kind::Abort => Self::Abort {
                // Clients that only want to be killed send no code; 1 is the exit code of their own runtime then.
                code: message.number("exitcode").unwrap_or(1),
                message: message
                    .field("message")
                    .or_else(|| message.field("msg"))
                    .unwrap_or_default()
                    .to_owned(),
                reach: match message.field("isworld") {
                    Some("FALSE") => Reach::Caller,
                    _ => Reach::Job,
                },
            },
            Kind::Publish => Self::Publish {
                service: text(service_key(message.form()))?,
                port: text("port")?,
            },
            Kind::Unpublish => Self::Unpublish {
                service: text(service_key(message.form()))?,
            },
            Kind::Lookup => Self::Lookup {
                service: text(service_key(message.form()))?,
            },
            Kind::Spawn => Self::Spawn(Part::decode(message)?),
            Kind::Connect => Self::Connect {
                job: text("jobid")?,
            },
            Kind::Disconnect => Self::Disconnect {
                job: text("jobid")?,
            },
        })
    }

    /// Encodes the request as a command. In PMI-1 a spawn of several programs needs several commands: see [`Spawn::parts`].
    #[must_use]
    pub fn message(&self, dialect: Dialect) -> Message {
        let form = match (dialect, self.kind()) {
            (_, Kind::Init) => Form::Line,
            (Dialect::One, Kind::Spawn) => Form::Multi,
            (Dialect::One, _) => Form::Line,
            (Dialect::Two, _) => Form::Counted,
        };
        let message = Message::new(form, self.kind().request(dialect));
        let two = dialect == Dialect::Two;
        match self {
            Self::Init {
                version,
                subversion,
            } => message
                .with("pmi_version", version)
                .with("pmi_subversion", subversion),
            Self::Put { kvs, key, value } => message
                .with_some("kvsname", kvs.as_ref().filter(|_| !two))
                .with("key", key)
                .with("value", value),
            Self::Get { kvs, key } => message
                .with_some(if two { "jobid" } else { "kvsname" }, kvs.as_ref())
                .with("key", key),
            Self::JobAttribute { key } => message.with("key", key),
            Self::PutNodeAttribute { key, value } => message.with("key", key).with("value", value),
            Self::NodeAttribute { key, absent } => message.with("key", key).with(
                "wait",
                match absent {
                    IfAbsent::Wait => "TRUE",
                    IfAbsent::Say => "FALSE",
                },
            ),
            Self::Barrier { group } => message.with_some("group", group.as_ref()),
            Self::Abort {
                code,
                message: text,
                reach,
            } => {
                let reach = match reach {
                    Reach::Job => "TRUE",
                    Reach::Caller => "FALSE",
                };
                message
                    .with("exitcode", code)
                    .with_some("isworld", two.then_some(reach))
                    // A counted field can carry any text, a line field only a single line.
                    .with(
                        "message",
                        if two {
                            Cow::Borrowed(text.as_str())
                        } else {
                            one_line(text)
                        },
                    )
            }
            Self::Publish { service, port } => {
                message.with(service_key(form), service).with("port", port)
            }
            Self::Unpublish { service } | Self::Lookup { service } => {
                message.with(service_key(form), service)
            }
            Self::Spawn(part) => part.write(message),
            Self::Connect { job } | Self::Disconnect { job } => message.with("jobid", job),
            Self::FullInit
            | Self::GetMaxes
            | Self::GetAppnum
            | Self::GetKvsName
            | Self::GetUniverseSize
            | Self::Finalize => message,
        }
    }

    /// Returns the requests for a spawn: one per program in PMI-1, one in all in PMI-2.
    #[must_use]
    pub fn spawn(spawn: Spawn, dialect: Dialect) -> Vec<Self> {
        spawn.parts(dialect).into_iter().map(Self::Spawn).collect()
    }
}

/// Returns the key for the name of a service.
const fn service_key(form: Form) -> &'static str {
    match form {
        Form::Counted => "name",
        Form::Line | Form::Multi => "service",
    }
}
