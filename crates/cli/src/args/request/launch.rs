//! The complete request of `rally launch`.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

use super::MessageFormat;
use crate::{
    args::{
        Args, Error,
        launch::error::{Position, place},
    },
    config::Source,
};

/// A command line for the user's shell, before or behind the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) line: String,
    pub(crate) at: Position,
}

/// The places of a configuration's options, for mistakes that are found later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) path: PathBuf,
    /// By the names of the options.
    pub(crate) of_options: BTreeMap<String, Position>,
}

impl Places {
    /// Returns a mistake of the command line with its place in the file.
    pub(crate) fn located(&self, error: Error) -> Error {
        let option = option_of(&error);
        Error::InLaunch {
            at: option.and_then(|option| self.of_options.get(option).copied()),
            path: self.path.clone(),
            error: Box::new(error),
        }
    }

    /// Returns the place of an action, for messages.
    pub(crate) fn of_action(&self, action: &Action) -> String {
        place(&self.path, Some(action.at))
    }
}

/// Returns the name of the option that a mistake is about, without hyphens and value.
fn option_of(error: &Error) -> Option<&str> {
    let typed = match error {
        Error::UnknownOption { option, .. }
        | Error::MissingValue { option }
        | Error::UnexpectedValue { option, .. }
        | Error::BadValue { option, .. }
        | Error::TwoMeanings { option, .. }
        | Error::NotOffered { option, .. }
        | Error::SaidTwice { option, .. }
        | Error::TooFewNodes { option, .. }
        | Error::NoNodeLeft { option, .. }
        | Error::NoNetwork { option, .. }
        | Error::Policy {
            from: Source::CommandLine(option),
            ..
        } => option,
        Error::Together { first, .. } => first,
        Error::NotForSlurm(refused) => &refused.option,
        Error::Unreadable { what, .. } => return what.option(),
        _ => return None,
    };
    let name = typed.trim_start_matches('-');
    name.split([' ', '=']).next()
}

/// A launch configuration to carry out.
#[derive(Clone, Debug)]
pub(crate) struct LaunchRequest {
    pub(crate) places: Places,
    pub(crate) pre: Vec<Action>,
    pub(crate) post: Vec<Action>,
    pub(crate) step: LaunchStep,
    /// The arguments of `dbgr`, for which ranks are held. `None` if they are not, or for another debugger.
    pub(crate) dbgr: Option<Vec<OsString>>,
    /// The debugger, if it does not get what the file says about sources.
    pub(crate) untold: Option<String>,
    /// Whether only to show what would be done.
    pub(crate) is_dry: bool,
    pub(crate) format: MessageFormat,
}

/// What is done between the actions.
#[derive(Clone, Debug)]
pub(crate) enum LaunchStep {
    /// A command line of ours, as words and parsed.
    Rally(Vec<OsString>, Box<Args>),
    /// The words of a debugger, and the command line of ours that it starts; none if it attaches.
    Debugger(Vec<OsString>, Vec<OsString>),
    /// Our debugger, with these arguments.
    Dbgr(Vec<OsString>),
}

/// A launch configuration to write, as an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewLaunch {
    pub(crate) path: PathBuf,
    pub(crate) format: MessageFormat,
}
