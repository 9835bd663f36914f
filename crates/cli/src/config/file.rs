//! Settings from TOML files.

use std::path::{Path, PathBuf};

use message::Message;
use thiserror::Error;
use toml::de::{DeTable, DeValue};

use super::settings::{BadSetting, Key, Layers, Source};
use crate::{
    files::{ReadProblem, read},
    kinds as k,
    values::ValueError,
};

/// The largest configuration file, in bytes.
pub(crate) const MAX_FILE: u64 = 1 << 20;

/// An error in a configuration file, or a variable whose value its setting does not accept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{problem}")]
pub(crate) struct ConfigError {
    /// The source of the error: a file with a line, or a variable.
    pub(crate) place: ConfigPlace,
    pub(crate) problem: ConfigProblem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigPlace {
    File { path: PathBuf, line: Option<usize> },
    Setting(Source),
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ConfigProblem {
    #[error("cannot read the configuration file: {0}")]
    Unreadable(ReadProblem),
    #[error("the configuration file is not TOML: {0}")]
    Syntax(String),
    #[error("there is no setting `{key}`")]
    UnknownKey {
        key: String,
        nearest: Option<String>,
    },
    #[error(
        "the setting `{key}` is a {found}, but settings are strings, numbers, and true or false"
    )]
    WrongType { key: String, found: &'static str },
    #[error("the setting `{key}` cannot be `{value}`: {reason}")]
    BadValue {
        key: String,
        value: String,
        reason: ValueError,
    },
}

/// A configuration file that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) found: Found,
}

/// Whether a configuration file exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Yes,
    No,
    /// It exists, but the system does not permit reading it.
    Unreadable(ReadProblem),
}

/// Who can correct a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Site,
    User,
}

/// Overrides earlier settings by those of a file. A missing file changes nothing. Neither does an unreadable file of the
/// site: users cannot correct it, and must still be able to work.
pub(crate) fn apply_file(
    layers: &mut Layers,
    path: &Path,
    owner: Owner,
) -> Result<Found, Box<ConfigError>> {
    let fail = |problem| {
        Box::new(ConfigError {
            place: ConfigPlace::File {
                path: path.to_owned(),
                line: None,
            },
            problem: ConfigProblem::Unreadable(problem),
        })
    };
    let bytes = match read(path, MAX_FILE) {
        Ok(bytes) => bytes,
        Err(problem) if problem.is_absence() => return Ok(Found::No),
        Err(problem @ ReadProblem::Kernel(_)) if owner == Owner::Site => {
            return Ok(Found::Unreadable(problem));
        }
        Err(problem) => return Err(fail(problem)),
    };
    let text = str::from_utf8(&bytes).map_err(|_| fail(ReadProblem::NotText))?;
    apply(layers, path, text)?;
    // An error counts even if a source with higher precedence overrides the setting.
    layers.parse().map_err(|bad| Box::new(bad.into()))?;
    Ok(Found::Yes)
}

/// Overrides earlier settings by those in the text of a file.
pub(crate) fn apply(layers: &mut Layers, path: &Path, text: &str) -> Result<(), Box<ConfigError>> {
    let at = |offset: usize, problem: ConfigProblem| {
        let line = Some(line_of(text, offset));
        Box::new(ConfigError {
            place: ConfigPlace::File {
                path: path.to_owned(),
                line,
            },
            problem,
        })
    };
    let table = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        at(offset, ConfigProblem::Syntax(error.message().to_owned()))
    })?;
    for (name, value) in table.get_ref() {
        let offset = name.span().start;
        let key = name.get_ref().to_string();
        // Other programs' configuration files use underscores, which cannot mean anything else here.
        let Some(setting) = Key::from_name(&key.replace('_', "-")) else {
            let nearest =
                message::nearest(&key, Key::ALL.into_iter().map(Key::name)).map(str::to_owned);
            return Err(at(offset, ConfigProblem::UnknownKey { key, nearest }));
        };
        let value = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(true) => "yes".to_owned(),
            DeValue::Boolean(false) => "no".to_owned(),
            DeValue::Datetime(_) => {
                return Err(at(offset, ConfigProblem::WrongType { key, found: "date" }));
            }
            DeValue::Array(_) => {
                return Err(at(offset, ConfigProblem::WrongType { key, found: "list" }));
            }
            DeValue::Table(_) => {
                return Err(at(
                    offset,
                    ConfigProblem::WrongType {
                        key,
                        found: "table",
                    },
                ));
            }
        };
        let source = Source::File {
            path: path.to_owned(),
            line: line_of(text, offset),
        };
        layers.set(setting, value, source);
    }
    Ok(())
}

/// Returns the line number, from 1, of the byte at `offset`.
fn line_of(text: &str, offset: usize) -> usize {
    text.bytes()
        .take(offset)
        .filter(|byte| *byte == b'\n')
        .count()
        + 1
}

impl ConfigError {
    /// Returns the message, which can be printed as text or as JSON.
    pub(crate) fn message(&self) -> Message {
        let kind = match &self.problem {
            ConfigProblem::Unreadable(_) | ConfigProblem::Syntax(_) => &k::BAD_CONFIG,
            ConfigProblem::UnknownKey { .. } => &k::UNKNOWN_SETTING,
            ConfigProblem::WrongType { .. } | ConfigProblem::BadValue { .. } => &k::BAD_SETTING,
        };
        let message = Message::new(kind, self.problem.to_string());
        let message = match &self.place {
            ConfigPlace::File {
                path,
                line: Some(line),
            } => message.fact("from", format!("{}:{line}", path.display())),
            ConfigPlace::File { path, line: None } => {
                message.fact("from", path.display().to_string())
            }
            ConfigPlace::Setting(source) => message.fact("from", source.to_string()),
        };
        match &self.problem {
            ConfigProblem::UnknownKey {
                nearest: Some(nearest),
                ..
            } => message.with_help(format!("did you mean `{nearest}`?")),
            ConfigProblem::Unreadable(ReadProblem::Kernel(_)) => message.with_help(
                "make it readable or move it away: it may contain settings that your jobs need",
            ),
            ConfigProblem::UnknownKey { nearest: None, .. } => {
                message.with_help("`rally config` lists all settings")
            }
            _ => message,
        }
    }
}

impl From<BadSetting> for ConfigError {
    fn from(bad: BadSetting) -> Self {
        let problem = ConfigProblem::BadValue {
            key: bad.key.name().to_owned(),
            value: bad.value,
            reason: bad.reason,
        };
        Self {
            place: ConfigPlace::Setting(bad.source),
            problem,
        }
    }
}
