//! The answers of servers and their encoding.

use base::Rank;

use crate::pmi::{
    Bound, Dialect, Error, Kind, MAX_KEY, MAX_KVS_NAME, MAX_VALUE, Malformed,
    error::shorten,
    wire::{Form, Message, one_line},
};

/// Value on the wire for an unknown universe size.
const UNKNOWN: i64 = -1;

/// Answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Init {
        version: u32,
        subversion: u32,
    },
    /// PMI-2: answer to `fullinit`.
    FullInit {
        rank: Rank,
        size: u32,
        appnum: u32,
        /// The name of the job that spawned this one, if any.
        spawner: Option<String>,
    },
    /// Longest name of a key-value space, key and value, in bytes.
    Maxes {
        kvs_name: usize,
        key: usize,
        value: usize,
    },
    Appnum(u32),
    KvsName(String),
    UniverseSize(Option<u32>),
    Put,
    /// `None` if there is no such key; PMI-1 encodes that as a refusal.
    Get {
        value: Option<String>,
    },
    /// PMI-2: the value of an attribute of the job, `None` if there is none.
    JobAttribute {
        value: Option<String>,
    },
    /// PMI-2: the attribute was stored.
    PutNodeAttribute,
    /// PMI-2: the value of an attribute of the node, `None` if there is none.
    NodeAttribute {
        value: Option<String>,
    },
    Barrier {
        /// The tag of the group, 0 if the barrier had none.
        tag: u32,
    },
    Finalize,
    Published,
    Unpublished,
    Lookup {
        port: String,
    },
    Spawned {
        /// The name of the new job; `None` in PMI-1, which does not send it.
        job: Option<String>,
    },
    /// PMI-2: the job was disconnected.
    Disconnected,
    /// The request was understood but not carried out: an answer with a non-zero `rc`.
    Refused {
        kind: Kind,
        rc: i32,
        reason: String,
    },
}

impl Answer {
    /// The answer of all our servers to `get_maxes`.
    pub(crate) const MAXES: Self = Self::Maxes {
        kvs_name: MAX_KVS_NAME,
        key: MAX_KEY,
        value: MAX_VALUE,
    };

    /// Creates a refusal with `rc=1` and its reason in one word.
    pub(crate) fn refused(kind: Kind, reason: impl ToString) -> Self {
        Self::Refused {
            kind,
            rc: 1,
            reason: reason.to_string(),
        }
    }

    /// Returns the kind of request that this answers.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Init { .. } => Kind::Init,
            Self::FullInit { .. } => Kind::FullInit,
            Self::Maxes { .. } => Kind::GetMaxes,
            Self::Appnum(_) => Kind::GetAppnum,
            Self::KvsName(_) => Kind::GetKvsName,
            Self::UniverseSize(_) => Kind::GetUniverseSize,
            Self::Put => Kind::Put,
            Self::Get { .. } => Kind::Get,
            Self::JobAttribute { .. } => Kind::JobAttribute,
            Self::PutNodeAttribute => Kind::PutNodeAttribute,
            Self::NodeAttribute { .. } => Kind::NodeAttribute,
            Self::Barrier { .. } => Kind::Barrier,
            Self::Finalize => Kind::Finalize,
            Self::Published => Kind::Publish,
            Self::Unpublished => Kind::Unpublish,
            Self::Lookup { .. } => Kind::Lookup,
            Self::Spawned { .. } => Kind::Spawn,
            Self::Disconnected => Kind::Disconnect,
            Self::Refused { kind, .. } => *kind,
        }
    }

    /// Encodes the answer as a command, addressed to a thread of the client if it has named one.
    #[must_use]
    pub fn message(&self, dialect: Dialect, thread: Option<&str>) -> Message {
        let kind = self.kind();
        let form = match (dialect, kind) {
            (Dialect::One, _) | (_, Kind::Init) => Form::Line,
            (Dialect::Two, _) => Form::Counted,
        };
        let message = Message::new(form, &kind.answer(dialect))
            .with_some("thrid", thread.filter(|_| form == Form::Counted));
        if let Self::Refused { rc, reason, .. } = self {
            let message = message.with("rc", rc);
            return match kind {
                // MPICH reads the version even from a refused init.
                Kind::Init => with_version(message, dialect.version()),
                _ => message.with(reason_key(form, kind), one_line(reason)),
            };
        }
        if let (Dialect::One, Self::Get { value: None }) = (dialect, self) {
            return message.with("rc", 1).with("msg", "key_not_found");
        }
        let message = message.with("rc", 0);
        match self {
            Self::Init {
                version,
                subversion,
            } => with_version(message, (*version, *subversion)),
            Self::FullInit {
                rank,
                size,
                appnum,
                spawner,
            } => {
                let (version, subversion) = Dialect::Two.version();
                message
                    .with("pmi-version", version)
                    .with("pmi-subversion", subversion)
                    .with("rank", rank)
                    .with("size", size)
                    .with("appnum", appnum)
                    .with_some("spawner-jobid", spawner.as_ref())
                    .with("debugged", "FALSE")
                    .with("pmiverbose", "FALSE")
            }
            Self::Maxes {
                kvs_name,
                key,
                value,
            } => message
                .with("kvsname_max", kvs_name)
                .with("keylen_max", key)
                .with("vallen_max", value),
            Self::Appnum(appnum) => message.with("appnum", appnum),
            Self::KvsName(name) => message.with(job_key(form), name),
            Self::UniverseSize(Some(size)) => message.with("size", size),
            Self::UniverseSize(None) => message.with("size", UNKNOWN),
            Self::Put if form == Form::Line => message.with("msg", "success"),
            Self::Get { value } if form == Form::Line => message.with_some("value", value.as_ref()),
            Self::Get { value } | Self::JobAttribute { value } | Self::NodeAttribute { value } => {
                let found = if value.is_some() { "TRUE" } else { "FALSE" };
                message
                    .with("found", found)
                    .with_some("value", value.as_ref())
            }
            Self::Barrier { tag } if form == Form::Line => message.with("tag", tag),
            // MPICH's client reads `port`, Slurm's reads `value`.
            Self::Lookup { port } => message
                .with("port", port)
                .with_some("value", (form == Form::Counted).then_some(port)),
            Self::Spawned { job } => message.with_some(
                job_key(form),
                job.as_ref().filter(|_| form == Form::Counted),
            ),
            Self::Put
            | Self::PutNodeAttribute
            | Self::Barrier { .. }
            | Self::Finalize
            | Self::Published
            | Self::Unpublished
            | Self::Disconnected
            | Self::Refused { .. } => message,
        }
    }

    /// Decodes an answer from a command.
    ///
    /// # Errors
    ///
    /// `Unsupported` for an unknown command, `Malformed` when a field is missing or invalid.
    pub fn decode(message: &Message) -> Result<Self, Error> {
        let unsupported = || Error::Unsupported {
            what: shorten(message.name()),
        };
        let kind = Kind::answered_by(message).ok_or_else(unsupported)?;
        let form = message.form();
        // Some servers leave `rc` out of an answer that cannot fail.
        let rc: i32 = if message.field("rc").is_some() {
            message.number("rc")?
        } else {
            0
        };
        if rc != 0 {
            let reason = message
                .field("msg")
                .or_else(|| message.field("errmsg"))
                .unwrap_or_default();
            return Ok(Self::Refused {
                kind,
                rc,
                reason: reason.to_owned(),
            });
        }
        let text = |key| message.need(key).map(str::to_owned);
        let optional = |key| message.field(key).map(str::to_owned);
        let found = || match message.boolean("found")? {
            Some(false) => Ok(None),
            Some(true) | None => text("value").map(Some),
        };
        Ok(match kind {
            Kind::Init => Self::Init {
                version: message.number("pmi_version")?,
                subversion: message.number("pmi_subversion")?,
            },
            Kind::FullInit => Self::FullInit {
                rank: Rank(message.number("rank")?),
                size: message.number("size")?,
                appnum: message.number("appnum")?,
                spawner: optional("spawner-jobid"),
            },
            Kind::GetMaxes => Self::Maxes {
                kvs_name: message.number("kvsname_max")?,
                key: message.number("keylen_max")?,
                value: message.number("vallen_max")?,
            },
            Kind::GetAppnum => Self::Appnum(message.number("appnum")?),
            Kind::GetKvsName => Self::KvsName(text(job_key(form))?),
            Kind::GetUniverseSize => {
                let size = message.number::<i64>("size")?;
                Self::UniverseSize(match size {
                    UNKNOWN => None,
                    size => Some(
                        size.try_into()
                            .map_err(|_| Error::Malformed(Malformed::NotANumber("size")))?,
                    ),
                })
            }
            Kind::Put => Self::Put,
            Kind::Get => Self::Get { value: found()? },
            Kind::JobAttribute => Self::JobAttribute { value: found()? },
            Kind::PutNodeAttribute => Self::PutNodeAttribute,
            Kind::NodeAttribute => Self::NodeAttribute { value: found()? },
            Kind::Barrier => Self::Barrier {
                tag: if message.field("tag").is_some() {
                    message.number("tag")?
                } else {
                    0
                },
            },
            Kind::Finalize => Self::Finalize,
            Kind::Publish => Self::Published,
            Kind::Unpublish => Self::Unpublished,
            Kind::Lookup => Self::Lookup {
                port: text("port")?,
            },
            Kind::Spawn => Self::Spawned {
                job: optional("jobid"),
            },
            Kind::Disconnect => Self::Disconnected,
            Kind::Abort | Kind::Connect => return Err(unsupported()),
        })
    }
}

/// Creates the refusal of an unknown command. It is named like most answers are.
pub(crate) fn unknown(request: &Message) -> Message {
    let name = request.name();
    match request.form() {
        Form::Counted => Message::new(Form::Counted, &format!("{name}-response"))
            .with_some("thrid", request.field("thrid"))
            .with("rc", 1)
            .with("errmsg", "unknown_command"),
        Form::Line | Form::Multi => Message::new(Form::Line, &format!("{name}_result"))
            .with("rc", 1)
            .with("msg", "unknown_command"),
    }
}

fn with_version(message: Message, (version, subversion): (u32, u32)) -> Message {
    message
        .with("pmi_version", version)
        .with("pmi_subversion", subversion)
}

/// Returns the key for the reason of a refusal.
const fn reason_key(form: Form, kind: Kind) -> &'static str {
    match (form, kind) {
        (Form::Counted, _) | (_, Kind::Spawn) => "errmsg",
        _ => "msg",
    }
}

/// Returns the key for the name of a job.
const fn job_key(form: Form) -> &'static str {
    match form {
        Form::Counted => "jobid",
        Form::Line | Form::Multi => "kvsname",
    }
}

/// Checks that `text` fits into one field of a dialect and within `bound`. In PMI-1 it must be one line, without spaces at its
/// ends and without a word that looks like a field.
pub(crate) fn check_field(dialect: Dialect, text: &str, bound: Bound) -> Result<(), Error> {
    bound.check(text.len())?;
    let form = match dialect {
        Dialect::One => Form::Line,
        Dialect::Two => Form::Counted,
    };
    Message::new(form, "x")
        .with("k", text)
        .with("z", "")
        .encode()
        .map(|_| ())
        .map_err(|error| match error {
            limit @ Error::Limit { .. } => limit,
            _ => Error::Malformed(Malformed::NotRepresentable),
        })
}
