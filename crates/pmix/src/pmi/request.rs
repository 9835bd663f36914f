//! What clients ask, and how it is written.

use std::{borrow::Cow, fmt};

use base::Rank;

use crate::pmi::{
    Dialect, Error, Kind, Malformed, Part, Spawn,
    error::shorten,
    wire::{Form, Message, one_line},
};

/// Whom an abort is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Job,
    /// The caller alone, who will end by itself.
    Caller,
}

/// What a question for something that is not there yet gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfAbsent {
    /// The answer that it is not there.
    Say,
    /// The value when it comes.
    Wait,
}

/// Some ranks of a job that have a barrier of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    pub members: Members,
    /// Tells barriers of the same members apart, which threads may be in at once. It is in the answer.
    pub tag: u32,
}

/// Who is in a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Members {
    /// Every rank of the job.
    World,
    /// The ranks of the job on the caller's node.
    Node,
    /// These, in ascending order.
    Ranks(Vec<Rank>),
}

impl Group {
    /// `WORLD`, `NODE` or ranks with commas; then, where there is one, a colon and the tag.
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

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first one on every connection; its version decides what the connection speaks from here on.
    Init {
        version: u32,
        subversion: u32,
    },
    /// PMI-2: the first one after that. Who it is the client repeats, and nobody needs to know.
    FullInit,
    GetMaxes,
    GetAppnum,
    GetKvsName,
    GetUniverseSize,
    /// Visible to every rank after the next barrier.
    Put {
        /// Absent: the job's own.
        kvs: Option<String>,
        key: String,
        value: String,
    },
    Get {
        /// Absent: the job's own.
        kvs: Option<String>,
        key: String,
    },
    /// PMI-2: a fact of the job.
    JobAttribute {
        key: String,
    },
    /// PMI-2: visible at once, to the ranks of the node.
    PutNodeAttribute {
        key: String,
        value: String,
    },
    /// PMI-2.
    NodeAttribute {
        key: String,
        absent: IfAbsent,
    },
    Barrier {
        /// Absent: every rank of the job, in the barrier that has no tag.
        group: Option<Group>,
    },
    Finalize,
    /// The job is to be ended with this exit code.
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
    /// One part of a spawn; it is answered after the last one.
    Spawn(Part),
    /// PMI-2.
    Connect {
        job: String,
    },
    /// PMI-2.
    Disconnect {
        job: String,
    },
}

impl Request {
    /// Which kind of request it is.
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

    /// The request that a command is.
    ///
    /// # Errors
    ///
    /// `Unsupported` for an unknown command, `Malformed` when a field is missing or not what it should be, `Limit` for a
    /// spawn of too many programs.
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
                // Clients that only want to be ended say no code; 1 is what their own runtime would exit with.
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

    /// The command that this request is. A spawn of several programs is several commands in PMI-1: see [`Spawn::parts`].
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
                    // A counted field carries any text, a line only what fits into one.
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

    /// The requests that a spawn is: one for every program in PMI-1, one in PMI-2.
    #[must_use]
    pub fn spawn(spawn: Spawn, dialect: Dialect) -> Vec<Self> {
        spawn.parts(dialect).into_iter().map(Self::Spawn).collect()
    }
}

/// What the name of a service is called.
const fn service_key(form: Form) -> &'static str {
    match form {
        Form::Counted => "name",
        Form::Line | Form::Multi => "service",
    }
}
