//! Errors in a text that names nodes.

use std::fmt;

use base::ParseHostListError;
use thiserror::Error;

/// Error in a text that names nodes. `Display` is the whole message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct AllocError {
    /// File or option that the text is from.
    pub origin: String,
    /// Line number, from 1. `None` if the text is a command line option.
    pub line: Option<u32>,
    pub problem: Problem,
}

/// Problem in a text that names nodes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    #[error("it is too long, with {length} bytes")]
    TooLong { length: usize },
    #[error("there are more than {max} nodes", max = base::MAX_HOSTS)]
    TooManyNodes,
    #[error("no node is named")]
    Empty,
    #[error("{0}")]
    HostList(ParseHostListError),
    #[error("`{word}` is not a number of slots")]
    BadCount { word: String },
    #[error("`{word}` names no slot: leave the node out instead")]
    ZeroSlots { word: String },
    #[error("`{key}` is not known")]
    UnknownKey {
        key: String,
        nearest: Option<&'static str>,
    },
    #[error("`{word}` is not `key=value`")]
    NotKeyValue { word: String },
    #[error("`{word}` is neither `+nN` nor `+e:N`")]
    BadRelative { word: String },
    #[error("`{word}` refers to the nodes of an allocation or a host file, and there is neither")]
    NoBase { word: String },
    #[error("there is no node `{word}`: {}", numbered(*nodes))]
    NoSuchNode { word: String, nodes: usize },
    #[error("`{word}` asks for more unused nodes than there are: {unused}")]
    TooFewUnused { word: String, unused: usize },
    #[error("`{key}` is given twice")]
    Twice { key: &'static str },
    #[error("max_slots={max} is less than slots={slots}")]
    MaxBelowSlots { max: u32, slots: u32 },
}

/// Returns the range of relative names.
fn numbered(nodes: usize) -> String {
    match nodes.checked_sub(1) {
        None => "there are no nodes".to_owned(),
        Some(0) => "the only node is `+n0`".to_owned(),
        Some(last) => format!("the nodes are `+n0` to `+n{last}`"),
    }
}

impl Problem {
    pub(super) fn at(self, origin: &str, line: Option<u32>) -> AllocError {
        AllocError {
            origin: origin.to_owned(),
            line,
            problem: self,
        }
    }

    fn help(&self) -> Option<String> {
        Some(match self {
            Self::UnknownKey {
                nearest: Some(nearest),
                ..
            } => format!("did you mean `{nearest}`?"),
            Self::UnknownKey { nearest: None, .. } | Self::NotKeyValue { .. } => {
                "a line is `name`, `name:4` or `name slots=4 max_slots=8`".to_owned()
            }
            _ => return None,
        })
    }
}

impl AllocError {
    /// Returns the stable name of the message.
    #[must_use]
    pub const fn id(&self) -> &'static str {
        "alloc/bad-text"
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read the nodes of {}", self.origin)?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.problem)?;
        if let Some(help) = self.problem.help() {
            write!(f, "\n  help:   {help}")?;
        }
        Ok(())
    }
}
