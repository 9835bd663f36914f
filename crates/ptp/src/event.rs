//! Events of the proxy (section 7).

use base::RankSet;

use crate::Packet;

/// The words of a generation of clients. The connection does not tell them apart, so the user says which one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PTP 2.0 and 2.1. Processes have numbers of their own, as jobs have.
    V2,
    /// PTP 4.0 to 6.0. The number of a process is its rank.
    V4,
}

/// What becomes of bytes that are no ASCII characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charset {
    /// They are sent as `\xNN`: a client up to PTP 5.0 disconnects at such a byte.
    #[default]
    Ascii,
    /// They are sent as they are: PTP 6.0 reads them as Latin-1.
    Bytes,
}

/// What a client knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Job,
    Machine,
    Node,
    Process,
    Queue,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It waits for its turn, or is being started.
    Starting,
    Running,
    Suspended,
    Completed,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    Starting,
    Running,
    Suspended,
    Exited,
    Signaled,
}

/// Severity of a message for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Fatal,
    Error,
    Warning,
    Info,
}

/// A fact about an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    pub key: &'static str,
    /// An attribute without a value is not sent: clients misread it.
    pub value: Vec<u8>,
}

/// Elements that have the same attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elements {
    pub ids: RankSet,
    pub attributes: Vec<Attribute>,
}

/// The values that an attribute may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    Boolean,
    Integer { min: i32, max: i32 },
    Enumerated(&'static [&'static str]),
    String,
}

/// What a client shows of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    pub id: &'static str,
    pub name: &'static str,
    pub description: &'static str,
    pub is_shown: bool,
    pub default: &'static str,
    pub of: Type,
}

/// What the proxy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Ok,
    /// A text for the user. Its transaction is that of the events.
    Message {
        level: Level,
        code: u32,
        text: Vec<u8>,
    },
    /// A command could not be executed. Most clients give up the connection.
    Error {
        code: u32,
        text: Vec<u8>,
    },
    /// The session is over.
    Shutdown,
    SubmitError {
        sub_id: Vec<u8>,
        code: u32,
        text: Vec<u8>,
    },
    TerminateError {
        job: u32,
        code: u32,
        text: Vec<u8>,
    },
    /// There are new elements.
    New {
        kind: Kind,
        parent: u32,
        elements: Vec<Elements>,
    },
    /// Something has changed. `job` is that of processes.
    Change {
        kind: Kind,
        job: Option<u32>,
        elements: Vec<Elements>,
    },
    Remove {
        kind: Kind,
        job: Option<u32>,
        ids: RankSet,
    },
    RemoveAll,
    Definition(Definition),
    /// The answer to GET_ATTRIBUTES: none can be got.
    GotAttributes,
    /// The answer to QUERY_ATTRIBUTES.
    QueriedAttributes,
}

impl JobState {
    #[must_use]
    pub const fn name(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            (Self::Starting, Dialect::V2) => "STARTED",
            (Self::Starting, Dialect::V4) => "STARTING",
            // There is no word for suspended jobs.
            (Self::Running, _) | (Self::Suspended, Dialect::V2) => "RUNNING",
            (Self::Suspended, Dialect::V4) => "SUSPENDED",
            (Self::Completed, Dialect::V2) => "TERMINATED",
            (Self::Completed, Dialect::V4) => "COMPLETED",
        }
    }
}

impl ProcessState {
    #[must_use]
    pub const fn name(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            (Self::Starting, _) => "STARTING",
            (Self::Running, _) => "RUNNING",
            (Self::Suspended, Dialect::V2) => "STOPPED",
            (Self::Suspended, Dialect::V4) => "SUSPENDED",
            (Self::Exited, Dialect::V2) => "EXITED",
            (Self::Signaled, Dialect::V2) => "EXITED_SIGNALLED",
            (Self::Exited | Self::Signaled, Dialect::V4) => "COMPLETED",
        }
    }
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Fatal => "FATAL",
            Self::Error => "ERROR",
            Self::Warning => "WARNING",
            Self::Info => "INFO",
        }
    }
}

impl Kind {
    /// Returns the last digit of the event of this kind.
    const fn digit(self) -> u32 {
        match self {
            Self::Job => 0,
            Self::Machine => 1,
            Self::Node => 2,
            Self::Process => 3,
            Self::Queue => 4,
        }
    }
}

impl Attribute {
    #[must_use]
    pub fn new(key: &'static str, value: impl Into<Vec<u8>>) -> Self {
        Self {
            key,
            value: value.into(),
        }
    }
}

/// Collects the arguments of an event.
struct Args {
    charset: Charset,
    args: Vec<Vec<u8>>,
}

impl Args {
    fn push(&mut self, value: impl ToString) {
        self.args.push(value.to_string().into_bytes());
    }

    /// Returns a text as it is sent. It never begins with `=`, which would not arrive.
    fn text(&self, text: &[u8]) -> Vec<u8> {
        match self.charset {
            Charset::Bytes => text.to_vec(),
            Charset::Ascii => {
                let safe = |byte: &u8| match byte {
                    0x80.. => format!("\\x{byte:02x}").into_bytes(),
                    byte => vec![*byte],
                };
                text.iter().flat_map(safe).collect()
            }
        }
    }

    fn pair(&mut self, key: &str, value: &[u8]) {
        self.args
            .push([key.as_bytes(), b"=", &self.text(value)].concat());
    }

    /// Adds attributes with their number in front.
    fn pairs(&mut self, pairs: &[(&str, &[u8])]) {
        let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
        self.push(pairs.clone().count());
        for (key, value) in pairs {
            self.pair(key, value);
        }
    }

    fn elements(&mut self, all: &[Elements]) {
        self.push(all.len());
        for elements in all {
            self.push(&elements.ids);
            let pair = |attribute: &'_ Attribute| (attribute.key, attribute.value.clone());
            let pairs: Vec<_> = elements.attributes.iter().map(pair).collect();
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(key, value)| (*key, &value[..]))
                .collect();
            self.pairs(&pairs);
        }
    }

    fn definition(&mut self, definition: &Definition) {
        let Definition {
            id,
            name,
            description,
            is_shown,
            default,
            ref of,
        } = *definition;
        let kind = match of {
            Type::Boolean => "BOOLEAN",
            Type::Integer { .. } => "INTEGER",
            Type::Enumerated(_) => "ENUMERATED",
            Type::String => "STRING",
        };
        let shown = is_shown.to_string();
        let mut fields: Vec<String> = [id, kind, name, description, &shown, default]
            .map(str::to_owned)
            .into();
        match of {
            Type::Boolean | Type::String => {}
            Type::Integer { min, max } => fields.extend([min.to_string(), max.to_string()]),
            Type::Enumerated(values) => {
                fields.extend(values.iter().map(|value| (*value).to_owned()))
            }
        }
        self.push(1);
        self.push(fields.len());
        for field in fields {
            self.push(field);
        }
    }
}

impl Event {
    /// Adds what another event says of further processes of the same job, if it says the same of them. Returns false if it does not.
    pub(crate) fn join(&mut self, other: &Self) -> bool {
        let (
            Self::Change {
                kind: Kind::Process,
                job,
                elements,
            },
            Self::Change {
                kind: Kind::Process,
                job: other_job,
                elements: others,
            },
        ) = (self, other)
        else {
            return false;
        };
        match (&mut elements[..], &others[..]) {
            ([mine], [theirs]) if job == other_job && mine.attributes == theirs.attributes => {
                mine.ids.append(&theirs.ids);
                true
            }
            _ => false,
        }
    }

    fn id(&self) -> u32 {
        match self {
            Self::Ok => 0,
            Self::Message { .. } => 1,
            Self::Error { .. } => 5,
            Self::Shutdown => 6,
            Self::SubmitError { .. } => 211,
            Self::TerminateError { .. } => 212,
            Self::New { kind, .. } => 220 + kind.digit(),
            Self::Change { kind, .. } => 230 + kind.digit(),
            Self::RemoveAll => 240,
            Self::Remove { kind, .. } => 241 + kind.digit(),
            Self::Definition(_) => 251,
            Self::GotAttributes => 252,
            Self::QueriedAttributes => 253,
        }
    }

    /// Returns the packet for a client. `transaction` is that of the command to which the event belongs.
    #[must_use]
    pub fn encode(&self, transaction: u32, dialect: Dialect, charset: Charset) -> Packet {
        let mut args = Args {
            charset,
            args: Vec::new(),
        };
        let of_job = |args: &mut Args, job: &Option<u32>| match (dialect, job) {
            (Dialect::V4, Some(job)) => args.push(job),
            (Dialect::V2, _) | (_, None) => {}
        };
        match self {
            Self::Ok | Self::Shutdown | Self::RemoveAll => {}
            Self::GotAttributes | Self::QueriedAttributes => args.push(0),
            Self::Message { level, code, text } => args.pairs(&[
                ("messageLevel", level.name().as_bytes()),
                ("messageCode", code.to_string().as_bytes()),
                ("messageText", text),
            ]),
            Self::Error { code, text } => args.pairs(&[
                ("errorCode", code.to_string().as_bytes()),
                ("errorMsg", text),
            ]),
            Self::SubmitError { sub_id, code, text } => args.pairs(&[
                ("jobSubId", sub_id),
                ("errorCode", code.to_string().as_bytes()),
                ("errorMsg", text),
            ]),
            Self::TerminateError { job, code, text } => args.pairs(&[
                ("jobId", job.to_string().as_bytes()),
                ("errorCode", code.to_string().as_bytes()),
                ("errorMsg", text),
            ]),
            Self::New {
                parent, elements, ..
            } => {
                args.push(parent);
                args.elements(elements);
            }
            Self::Change { job, elements, .. } => {
                of_job(&mut args, job);
                args.elements(elements);
            }
            Self::Remove { job, ids, .. } => {
                of_job(&mut args, job);
                args.push(ids);
            }
            Self::Definition(definition) => args.definition(definition),
        }
        Packet {
            id: self.id(),
            transaction,
            args: args.args,
        }
    }
}
