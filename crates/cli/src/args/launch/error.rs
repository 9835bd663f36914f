//! Mistakes in a launch configuration, and their messages.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use message::Message;
use thiserror::Error;

message::kinds! {
    /// All kinds of messages about the text of a launch configuration.
    pub(crate) const KINDS;

    BAD_FILE: Error "launch/bad-file"
"The file is not a launch configuration of this version of `rally`: it is not TOML, lacks `version = 1`, or describes no app. \
`rally launch --new FILE` writes an example with comments. The exit code is 121, and nothing was started."

    UNKNOWN_KEY: Error "launch/unknown-key"
"The launch configuration has a key that means nothing at its place. Keys of `[[app]]` are `program`, `args`, `env`, and the options of \
`rally run` for one app, without hyphens. Keys of `[job]` are `env` and the options of `rally run` for the whole job, and those of `[queue]` \
are the options of `rally submit`. `rally launch --new FILE` writes an example with comments."

    BAD_VALUE: Error "launch/bad-value"
"A key of the launch configuration has a value of the wrong type, or one that its option does not accept. The message says which \
values are accepted. The exit code is 121, and nothing was started."

    IMPOSSIBLE: Error "launch/impossible"
"Two parts of the launch configuration exclude each other, or the file has no answer to what the command line asks for. The exit code is 121, and \
nothing was started."
}

/// A mistake in a launch configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{problem}")]
pub(crate) struct LaunchError {
    pub(crate) path: PathBuf,
    /// The place of the mistake. `None` if it has none.
    pub(crate) at: Option<Position>,
    pub(crate) problem: LaunchProblem,
}

/// Returns a place in a file, for messages.
pub(crate) fn place(path: &Path, at: Option<Position>) -> String {
    match at {
        Some(at) => format!("{}:{at}", path.display()),
        None => path.display().to_string(),
    }
}

/// A place in a text. Both numbers begin with 1, and the column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    line: usize,
    column: usize,
}

impl Position {
    /// Returns the place of the byte at `offset`.
    pub(super) fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before.get(start..).unwrap_or_default().chars().count() + 1,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum LaunchProblem {
    #[error("the launch configuration is not TOML: {0}")]
    Syntax(String),
    #[error("the launch configuration has no `version`")]
    NoVersion,
    #[error("the launch configuration has version {0}, and this `rally` reads version 1")]
    Version(String),
    #[error("the launch configuration has no `[[app]]`")]
    NoApp,
    #[error("this `[[app]]` has no `program`")]
    NoProgram,
    #[error("{table} has no key `{key}`")]
    UnknownKey {
        table: Table,
        key: String,
        help: KeyHelp,
    },
    #[error("`{key}` is {found}, and has to be {wanted}")]
    WrongType {
        key: String,
        found: &'static str,
        wanted: &'static str,
    },
    #[error("`{key}` cannot be `{value}`: it is one of {}", .known.join(", "))]
    NotOneOf {
        key: String,
        value: String,
        known: &'static [&'static str],
        nearest: Option<&'static str>,
    },
    #[error("`{key}` {what}")]
    Unusable {
        key: String,
        what: &'static str,
        help: &'static str,
    },
    #[error("{first} and {second} cannot be used together")]
    Together {
        first: String,
        second: String,
        why: &'static str,
    },
    #[error("the debugger `{0}` is not told how it attaches to a job")]
    NoAttach(String),
}

/// A table of a launch configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    File,
    App,
    Job,
    Queue,
    Debugger,
    Sources,
    Actions,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "a launch configuration",
            Self::App => "`[[app]]`",
            Self::Job => "`[job]`",
            Self::Queue => "`[queue]`",
            Self::Debugger => "`[debugger]`",
            Self::Sources => "`[sources]`",
            Self::Actions => "`[actions]`",
        })
    }
}

/// What helps a user with an unknown key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyHelp {
    /// The key belongs to this table.
    Move(Table),
    Nearest(String),
    /// The table has few keys.
    Known(Vec<&'static str>),
    /// The table has the options of this command.
    Options(&'static str),
    Words(&'static str),
}

impl LaunchError {
    /// Returns the message, which can be printed as text or as JSON.
    pub(crate) fn message(&self) -> Message {
        let from = place(&self.path, self.at);
        let kind = match &self.problem {
            LaunchProblem::Syntax(_)
            | LaunchProblem::NoVersion
            | LaunchProblem::Version(_)
            | LaunchProblem::NoApp
            | LaunchProblem::NoProgram => &BAD_FILE,
            LaunchProblem::UnknownKey { .. } => &UNKNOWN_KEY,
            LaunchProblem::WrongType { .. }
            | LaunchProblem::NotOneOf { .. }
            | LaunchProblem::Unusable { .. } => &BAD_VALUE,
            LaunchProblem::Together { .. } | LaunchProblem::NoAttach(_) => &IMPOSSIBLE,
        };
        let message = Message::new(kind, self.problem.to_string()).fact("from", from);
        match self.help() {
            Some(help) => message.with_help(help),
            None => message,
        }
    }

    fn help(&self) -> Option<String> {
        Some(match &self.problem {
            LaunchProblem::NoVersion => "write `version = 1` into the first line".to_owned(),
            LaunchProblem::Version(_) => {
                "write `version = 1`, or use the `rally` that the file is for".to_owned()
            }
            LaunchProblem::NoApp => {
                "add one: `[[app]]` with `program = \"./a\"`; `rally launch --new FILE` writes an example".to_owned()
            }
            LaunchProblem::NoProgram => "add it: `program = \"./a\"`".to_owned(),
            LaunchProblem::UnknownKey { help, .. } => match help {
                KeyHelp::Move(table) => format!("write it into {table}"),
                KeyHelp::Nearest(nearest) => format!("did you mean `{nearest}`?"),
                KeyHelp::Known(known) => format!("its keys are {}", known.join(", ")),
                KeyHelp::Options(command) => {
                    format!("`{command} --help` lists the options, which are the keys")
                }
                KeyHelp::Words(words) => (*words).to_owned(),
            },
            LaunchProblem::NotOneOf {
                nearest: Some(nearest),
                ..
            } => format!("did you mean `{nearest}`?"),
            LaunchProblem::Unusable { help, .. } => (*help).to_owned(),
            LaunchProblem::Together { why, .. } => (*why).to_owned(),
            LaunchProblem::NoAttach(_) => {
                "add its words to `[debugger]`: `attach-args = [\"-p\", \"{job}\"]`".to_owned()
            }
            LaunchProblem::Syntax(_)
            | LaunchProblem::WrongType { .. }
            | LaunchProblem::NotOneOf { .. } => return None,
        })
    }
}
