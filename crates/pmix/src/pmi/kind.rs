//! The two dialects, the kinds of request, and the commands for each kind of request and its answer.

use crate::pmi::{
    SUBVERSION, VERSION,
    wire::{Form, Message},
};

/// One of the two protocols. The first line of a connection determines which one it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dialect {
    /// PMI-1, version 1.
    One,
    /// PMI-2, version 2.
    Two,
}

impl Dialect {
    /// Both dialects.
    pub const ALL: [Self; 2] = [Self::One, Self::Two];

    /// Returns the major and minor version of the dialect that this side speaks.
    #[must_use]
    pub const fn version(self) -> (u32, u32) {
        match self {
            Self::One => (VERSION, SUBVERSION),
            Self::Two => (2, 0),
        }
    }

    /// Returns the dialect that uses an encoding.
    const fn of(form: Form) -> Self {
        match form {
            Form::Line | Form::Multi => Self::One,
            Form::Counted => Self::Two,
        }
    }
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Init,
    FullInit,
    GetMaxes,
    GetAppnum,
    GetKvsName,
    GetUniverseSize,
    Put,
    Get,
    JobAttribute,
    PutNodeAttribute,
    NodeAttribute,
    Barrier,
    Finalize,
    Abort,
    Publish,
    Unpublish,
    Lookup,
    Spawn,
    Connect,
    Disconnect,
}

/// Table of kinds, each with its request in PMI-1, its answer in PMI-1, and its request in PMI-2. An empty name means that there
/// is none. In PMI-2 the answer is named like the request with `-response` appended. An abort has no answer.
const KINDS: [(Kind, &str, &str, &str); 20] = [
    (Kind::Init, "init", "response_to_init", ""),
    (Kind::FullInit, "", "", "fullinit"),
    (Kind::GetMaxes, "get_maxes", "maxes", ""),
    (Kind::GetAppnum, "get_appnum", "appnum", ""),
    (
        Kind::GetKvsName,
        "get_my_kvsname",
        "my_kvsname",
        "job-getid",
    ),
    (
        Kind::GetUniverseSize,
        "get_universe_size",
        "universe_size",
        "",
    ),
    (Kind::Put, "put", "put_result", "kvs-put"),
    (Kind::Get, "get", "get_result", "kvs-get"),
    (Kind::JobAttribute, "", "", "info-getjobattr"),
    (Kind::PutNodeAttribute, "", "", "info-putnodeattr"),
    (Kind::NodeAttribute, "", "", "info-getnodeattr"),
    (Kind::Barrier, "barrier_in", "barrier_out", "kvs-fence"),
    (Kind::Finalize, "finalize", "finalize_ack", "finalize"),
    (Kind::Abort, "abort", "", "abort"),
    (
        Kind::Publish,
        "publish_name",
        "publish_result",
        "name-publish",
    ),
    (
        Kind::Unpublish,
        "unpublish_name",
        "unpublish_result",
        "name-unpublish",
    ),
    (Kind::Lookup, "lookup_name", "lookup_result", "name-lookup"),
    (Kind::Spawn, "spawn", "spawn_result", "spawn"),
    (Kind::Connect, "", "", "job-connect"),
    (Kind::Disconnect, "", "", "job-disconnect"),
];

impl Kind {
    fn row(self) -> (&'static str, &'static str, &'static str) {
        let row = KINDS.iter().find(|(kind, ..)| *kind == self);
        row.map_or(("", "", ""), |(_, request, answer, counted)| {
            (request, answer, counted)
        })
    }

    /// Returns the command name of the request, empty if the dialect has none. The first command is the same in both dialects.
    #[must_use]
    pub fn request(self, dialect: Dialect) -> &'static str {
        let (request, _, counted) = self.row();
        match dialect {
            Dialect::Two if self != Self::Init => counted,
            _ => request,
        }
    }

    /// Returns the command name of the answer, empty if there is none.
    #[must_use]
    pub fn answer(self, dialect: Dialect) -> String {
        let (_, answer, counted) = self.row();
        match dialect {
            _ if self == Self::Abort => String::new(),
            Dialect::Two if counted.is_empty() => answer.to_owned(),
            Dialect::Two => format!("{counted}-response"),
            Dialect::One => answer.to_owned(),
        }
    }

    /// Returns the kind of request that a command is; `None` if it is not a request.
    #[must_use]
    pub fn asked_by(message: &Message) -> Option<Self> {
        let dialect = Dialect::of(message.form());
        let named = |(kind, ..): &&(Self, _, _, _)| {
            let multi = dialect == Dialect::One && *kind == Self::Spawn;
            kind.request(dialect) == message.name() && multi == (message.form() == Form::Multi)
        };
        let found = KINDS.iter().find(named).map(|(kind, ..)| *kind);
        found.filter(|kind| {
            // A kind that the dialect lacks has an empty name, and `init` is always a line.
            !message.name().is_empty() && (dialect == Dialect::One || *kind != Self::Init)
        })
    }

    /// Returns the kind of request that a command answers; `None` if it is not an answer.
    #[must_use]
    pub fn answered_by(message: &Message) -> Option<Self> {
        let dialect = Dialect::of(message.form());
        let named = |(kind, ..): &&(Self, _, _, _)| kind.answer(dialect).as_str() == message.name();
        let found = KINDS.iter().find(named).map(|(kind, ..)| *kind);
        found.filter(|_| !message.name().is_empty())
    }
}
