//! From commands to requests and answers: what the fields mean.

use crate::pmi::{
    Bound, Error, MAX_KEY, MAX_KVS_NAME, MAX_VALUE, Malformed, SUBVERSION, VERSION,
    error::shorten,
    wire::{Form, Message, one_line},
};

/// The kinds of request, each with the names of its command and of the answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Init,
    GetMaxes,
    GetAppnum,
    GetKvsName,
    GetUniverseSize,
    Put,
    Get,
    Barrier,
    Finalize,
    Abort,
    Publish,
    Unpublish,
    Lookup,
    Spawn,
}

/// Every kind, the command that asks, and the command that answers. An abort has no answer.
const KINDS: [(Kind, &str, &str); 14] = [
    (Kind::Init, "init", "response_to_init"),
    (Kind::GetMaxes, "get_maxes", "maxes"),
    (Kind::GetAppnum, "get_appnum", "appnum"),
    (Kind::GetKvsName, "get_my_kvsname", "my_kvsname"),
    (Kind::GetUniverseSize, "get_universe_size", "universe_size"),
    (Kind::Put, "put", "put_result"),
    (Kind::Get, "get", "get_result"),
    (Kind::Barrier, "barrier_in", "barrier_out"),
    (Kind::Finalize, "finalize", "finalize_ack"),
    (Kind::Abort, "abort", ""),
    (Kind::Publish, "publish_name", "publish_result"),
    (Kind::Unpublish, "unpublish_name", "unpublish_result"),
    (Kind::Lookup, "lookup_name", "lookup_result"),
    (Kind::Spawn, "spawn", "spawn_result"),
];

impl Kind {
    /// The name of the command that asks.
    #[must_use]
    pub fn request(self) -> &'static str {
        KINDS
            .iter()
            .find(|(kind, ..)| *kind == self)
            .map_or("", |(_, request, _)| request)
    }

    /// The name of the command that answers, empty for an abort, which has no answer.
    #[must_use]
    pub fn answer(self) -> &'static str {
        KINDS
            .iter()
            .find(|(kind, ..)| *kind == self)
            .map_or("", |(_, _, answer)| answer)
    }
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first one on every connection.
    Init {
        version: u32,
        subversion: u32,
    },
    GetMaxes,
    GetAppnum,
    GetKvsName,
    GetUniverseSize,
    /// Visible to every rank after the next barrier.
    Put {
        kvs: String,
        key: String,
        value: String,
    },
    Get {
        kvs: String,
        key: String,
    },
    Barrier,
    Finalize,
    /// The job is to be ended with this exit code.
    Abort {
        code: i32,
        message: String,
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
    /// One part of a spawn of `total` parts; it is answered after the last one.
    Spawn {
        total: u32,
        so_far: u32,
    },
}

impl Request {
    /// Which kind of request it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Init { .. } => Kind::Init,
            Self::GetMaxes => Kind::GetMaxes,
            Self::GetAppnum => Kind::GetAppnum,
            Self::GetKvsName => Kind::GetKvsName,
            Self::GetUniverseSize => Kind::GetUniverseSize,
            Self::Put { .. } => Kind::Put,
            Self::Get { .. } => Kind::Get,
            Self::Barrier => Kind::Barrier,
            Self::Finalize => Kind::Finalize,
            Self::Abort { .. } => Kind::Abort,
            Self::Publish { .. } => Kind::Publish,
            Self::Unpublish { .. } => Kind::Unpublish,
            Self::Lookup { .. } => Kind::Lookup,
            Self::Spawn { .. } => Kind::Spawn,
        }
    }

    /// The request that a command is.
    ///
    /// # Errors
    ///
    /// `Unsupported` for an unknown command, `Malformed` when a field is missing or not a number.
    pub fn decode(message: &Message) -> Result<Self, Error> {
        let kind = KINDS
            .iter()
            .find(|(_, name, _)| *name == message.name())
            .map(|(kind, ..)| *kind);
        let unsupported = || Error::Unsupported {
            what: shorten(message.name()),
        };
        let kind = kind.ok_or_else(unsupported)?;
        if (message.form() == Form::Multi) != (kind == Kind::Spawn) {
            return Err(unsupported());
        }
        let text = |key| message.need(key).map(str::to_owned);
        Ok(match kind {
            Kind::Init => Self::Init {
                version: message.number("pmi_version")?,
                subversion: message.number("pmi_subversion")?,
            },
            Kind::GetMaxes => Self::GetMaxes,
            Kind::GetAppnum => Self::GetAppnum,
            Kind::GetKvsName => Self::GetKvsName,
            Kind::GetUniverseSize => Self::GetUniverseSize,
            Kind::Put => Self::Put {
                kvs: text("kvsname")?,
                key: text("key")?,
                value: text("value")?,
            },
            Kind::Get => Self::Get {
                kvs: text("kvsname")?,
                key: text("key")?,
            },
            Kind::Barrier => Self::Barrier,
            Kind::Finalize => Self::Finalize,
            Kind::Abort => Self::Abort {
                // Clients that only want to be ended say no code; 1 is what their own runtime would exit with.
                code: if message.field("exitcode").is_some() {
                    message.number("exitcode")?
                } else {
                    1
                },
                message: message.field("message").unwrap_or_default().to_owned(),
            },
            Kind::Publish => Self::Publish {
                service: text("service")?,
                port: text("port")?,
            },
            Kind::Unpublish => Self::Unpublish {
                service: text("service")?,
            },
            Kind::Lookup => Self::Lookup {
                service: text("service")?,
            },
            Kind::Spawn => Self::Spawn {
                total: message.number("totspawns")?,
                so_far: message.number("spawnssofar")?,
            },
        })
    }

    /// The command that this request is.
    #[must_use]
    pub fn message(&self) -> Message {
        let form = if self.kind() == Kind::Spawn {
            Form::Multi
        } else {
            Form::Line
        };
        let message = Message::new(form, self.kind().request());
        match self {
            Self::Init {
                version,
                subversion,
            } => message
                .with("pmi_version", version)
                .with("pmi_subversion", subversion),
            Self::Put { kvs, key, value } => message
                .with("kvsname", kvs)
                .with("key", key)
                .with("value", value),
            Self::Get { kvs, key } => message.with("kvsname", kvs).with("key", key),
            Self::Abort {
                code,
                message: text,
            } => message
                .with("exitcode", code)
                .with("message", one_line(text)),
            Self::Publish { service, port } => message.with("service", service).with("port", port),
            Self::Unpublish { service } | Self::Lookup { service } => {
                message.with("service", service)
            }
            Self::Spawn { total, so_far } => {
                message.with("totspawns", total).with("spawnssofar", so_far)
            }
            Self::GetMaxes
            | Self::GetAppnum
            | Self::GetKvsName
            | Self::GetUniverseSize
            | Self::Barrier
            | Self::Finalize => message,
        }
    }
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Init {
        version: u32,
        subversion: u32,
    },
    /// The longest name, key and value, in bytes.
    Maxes {
        kvs_name: usize,
        key: usize,
        value: usize,
    },
    Appnum(u32),
    KvsName(String),
    UniverseSize(u32),
    Put,
    Get {
        value: String,
    },
    Barrier,
    Finalize,
    Published,
    Unpublished,
    Lookup {
        port: String,
    },
    /// The request was understood and not done: the answer to it with a non-zero `rc`.
    Refused {
        kind: Kind,
        rc: i32,
        reason: String,
    },
}

impl Answer {
    /// What every server of ours says to `init`.
    pub(crate) const INIT: Self = Self::Init {
        version: VERSION,
        subversion: SUBVERSION,
    };

    /// What every server of ours says to `get_maxes`.
    pub(crate) const MAXES: Self = Self::Maxes {
        kvs_name: MAX_KVS_NAME,
        key: MAX_KEY,
        value: MAX_VALUE,
    };

    /// A refusal with `rc=1`.
    pub(crate) fn refused(kind: Kind, reason: &str) -> Self {
        Self::Refused {
            kind,
            rc: 1,
            reason: reason.to_owned(),
        }
    }

    /// To which kind of request this is an answer.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Init { .. } => Kind::Init,
            Self::Maxes { .. } => Kind::GetMaxes,
            Self::Appnum(_) => Kind::GetAppnum,
            Self::KvsName(_) => Kind::GetKvsName,
            Self::UniverseSize(_) => Kind::GetUniverseSize,
            Self::Put => Kind::Put,
            Self::Get { .. } => Kind::Get,
            Self::Barrier => Kind::Barrier,
            Self::Finalize => Kind::Finalize,
            Self::Published => Kind::Publish,
            Self::Unpublished => Kind::Unpublish,
            Self::Lookup { .. } => Kind::Lookup,
            Self::Refused { kind, .. } => *kind,
        }
    }

    /// The command that this answer is.
    #[must_use]
    pub fn message(&self) -> Message {
        let message = Message::new(Form::Line, self.kind().answer());
        if let Self::Refused { rc, reason, kind } = self {
            let message = message.with("rc", rc);
            // MPICH reads the version from a refused init too, and calls the sentence of a spawn `errmsg`.
            return match kind {
                Kind::Init => message
                    .with("pmi_version", VERSION)
                    .with("pmi_subversion", SUBVERSION),
                Kind::Spawn => message.with("errmsg", one_line(reason)),
                _ => message.with("msg", one_line(reason)),
            };
        }
        let message = message.with("rc", 0);
        match self {
            Self::Init {
                version,
                subversion,
            } => message
                .with("pmi_version", version)
                .with("pmi_subversion", subversion),
            Self::Maxes {
                kvs_name,
                key,
                value,
            } => message
                .with("kvsname_max", kvs_name)
                .with("keylen_max", key)
                .with("vallen_max", value),
            Self::Appnum(appnum) => message.with("appnum", appnum),
            Self::KvsName(name) => message.with("kvsname", name),
            Self::UniverseSize(size) => message.with("size", size),
            Self::Put => message.with("msg", "success"),
            Self::Get { value } => message.with("value", value),
            Self::Lookup { port } => message.with("port", port),
            Self::Barrier
            | Self::Finalize
            | Self::Published
            | Self::Unpublished
            | Self::Refused { .. } => message,
        }
    }

    /// The answer that a command is.
    ///
    /// # Errors
    ///
    /// `Unsupported` for an unknown command, `Malformed` when a field is missing or not a number.
    pub fn decode(message: &Message) -> Result<Self, Error> {
        let kind = KINDS
            .iter()
            .find(|(_, _, name)| *name == message.name())
            .map(|(kind, ..)| *kind);
        let unsupported = || Error::Unsupported {
            what: shorten(message.name()),
        };
        let kind = kind
            .filter(|kind| *kind != Kind::Abort)
            .ok_or_else(unsupported)?;
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
        Ok(match kind {
            Kind::Init => Self::Init {
                version: message.number("pmi_version")?,
                subversion: message.number("pmi_subversion")?,
            },
            Kind::GetMaxes => Self::Maxes {
                kvs_name: message.number("kvsname_max")?,
                key: message.number("keylen_max")?,
                value: message.number("vallen_max")?,
            },
            Kind::GetAppnum => Self::Appnum(message.number("appnum")?),
            Kind::GetKvsName => Self::KvsName(text("kvsname")?),
            Kind::GetUniverseSize => Self::UniverseSize(message.number("size")?),
            Kind::Put => Self::Put,
            Kind::Get => Self::Get {
                value: text("value")?,
            },
            Kind::Barrier => Self::Barrier,
            Kind::Finalize => Self::Finalize,
            Kind::Publish => Self::Published,
            Kind::Unpublish => Self::Unpublished,
            Kind::Lookup => Self::Lookup {
                port: text("port")?,
            },
            Kind::Abort | Kind::Spawn => return Err(unsupported()),
        })
    }
}

/// Whether `text` can be one field within `bound`: one line, no space at its ends, no word that looks like a field.
pub(crate) fn check_field(text: &str, bound: Bound) -> Result<(), Error> {
    bound.check(text.len())?;
    Message::new(Form::Line, "x")
        .with("k", text)
        .with("z", "")
        .encode()
        .map(|_| ())
        .map_err(|error| match error {
            limit @ Error::Limit { .. } => limit,
            _ => Error::Malformed(Malformed::NotRepresentable),
        })
}
