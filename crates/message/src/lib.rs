//! Messages to users: the parts of a message, and its text for people and for programs.
//!
//! A message is data until it is printed. Its [`Kind`] holds the stable id, the severity and the long explanation. The
//! headline, the facts and the help describe one event. The messages themselves are defined where the events occur:
//! `dvm::messages` has those about jobs, and `cli` those about command lines and debugging.
//!
//! **Architecture invariant:** nothing here knows what a job, a rank or a debugger is. Nothing is written except to the
//! writer that the caller supplies. All output goes through [`text()`], so control characters from foreign text never
//! reach a terminal.

mod nearest;
mod text;
mod time;
pub mod visible;
mod words;

use serde::{Serialize, Serializer, ser::SerializeMap};

pub use nearest::nearest;
pub use text::{Format, print, text};
pub use time::{WallClock, date, rfc3164, rfc3339};
pub use words::duration;

/// Severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The message is informative; nothing is wrong.
    Note,
    /// Something is wrong, but the program continues or has ended with success.
    Warning,
    /// The request could not be carried out, or has failed.
    Error,
}

/// Kind of a message: what all messages about the same problem have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Stable id. Once released, an id keeps its meaning and is never reused for another.
    pub id: &'static str,
    pub severity: Severity,
    /// Text that `rally help ID` prints: the meaning, the causes, and what to do.
    pub explanation: &'static str,
}

/// Declares kinds of message as constants, and a table that lists them.
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

/// Message to the user about one event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Stable id. Scripts may compare it, and `rally help ID` explains it.
    pub id: &'static str,
    pub severity: Severity,
    /// Description of the event: lowercase, without a final period.
    pub headline: String,
    /// Names and values in reading order. Each name occurs once.
    #[serde(serialize_with = "facts_as_map")]
    pub facts: Vec<(&'static str, String)>,
    /// Advice for the user; `None` if there is none.
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
    /// Creates a message without facts and help.
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

    /// Appends a fact.
    #[must_use]
    pub fn fact(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.facts.push((name, value.into()));
        self
    }

    /// Appends a fact if the value is `Some`.
    #[must_use]
    pub fn maybe(self, name: &'static str, value: Option<String>) -> Self {
        match value {
            Some(value) => self.fact(name, value),
            None => self,
        }
    }

    /// Sets the advice for the user.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}
