//! What users are told: the parts of a message, and its text for people and for programs.
//!
//! A message is data until it is printed. It is of one [`Kind`], which has the stable id, the severity and the long
//! explanation; the headline, the facts and the help are those of one event. Which messages there are, and what they
//! say, belongs to those who know the event: `dvm::messages` speaks of jobs, `cli` of command lines and of debugging.
//!
//! **Architecture invariant:** nothing here knows what a job, a rank or a debugger is. Nothing is written but to the
//! writer that the caller brings, and [`text()`] is the only way out: no message reaches a terminal with control
//! characters that others have chosen.

mod nearest;
mod text;
pub mod visible;
mod words;

use serde::{Serialize, Serializer, ser::SerializeMap};

pub use nearest::nearest;
pub use text::{Format, print, text};
pub use words::duration;

/// How bad what a message says is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Something is wrong, and the program goes on or has ended well.
    Warning,
    /// What was asked for could not be done, or has failed.
    Error,
}

/// What a message is about, whatever its numbers and names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Stable: once released, an id keeps its meaning and is never used again for another.
    pub id: &'static str,
    pub severity: Severity,
    /// What `rally help ID` prints: what it means, why it happens, what to do.
    pub explanation: &'static str,
}

/// Declares kinds of message as constants, and the table that lists them.
#[macro_export]
macro_rules! kinds {
    (
        $(#[$doc:meta])*
        $vis:vis const $table:ident;
        $($name:ident: $severity:ident $id:literal $explanation:literal)*
    ) => {
        $(pub(crate) const $name: $crate::Kind = $crate::Kind {
            id: $id,
            severity: $crate::Severity::$severity,
            explanation: $explanation,
        };)*

        $(#[$doc])*
        $vis const $table: &[&$crate::Kind] = &[$(&$name),*];
    };
}

/// One thing to tell the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Stable: scripts may compare it, and `rally help ID` explains it.
    pub id: &'static str,
    pub severity: Severity,
    /// What happened: lowercase, without a final stop.
    pub headline: String,
    /// Names and values in the order in which they are read; no name occurs twice.
    #[serde(serialize_with = "facts_as_map")]
    pub facts: Vec<(&'static str, String)>,
    /// What the user can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

fn facts_as_map<S: Serializer>(
    facts: &[(&'static str, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(facts.len()))?;
    for (name, value) in facts {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

impl Message {
    /// A message without facts and help.
    #[must_use]
    pub fn new(kind: &Kind, headline: impl Into<String>) -> Self {
        Self {
            id: kind.id,
            severity: kind.severity,
            headline: headline.into(),
            facts: Vec::new(),
            help: None,
        }
    }

    /// Adds a fact after the others.
    #[must_use]
    pub fn fact(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.facts.push((name, value.into()));
        self
    }

    /// Adds a fact if there is one.
    #[must_use]
    pub fn maybe(self, name: &'static str, value: Option<String>) -> Self {
        match value {
            Some(value) => self.fact(name, value),
            None => self,
        }
    }

    /// Says what the user can do.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}
