//! Options of `rally run` and `rally submit` as keys of a launch configuration.
//!
//! clap's definition says which options there are and what they take, so that a new option is a key without further code.

use std::ops::Range;

use clap::{ArgAction, Command, error::ErrorKind};
use toml::{Spanned, de::DeValue};

use super::{
    error::{KeyHelp, LaunchProblem, Table},
    mistake::Mistake,
};
use crate::args::{
    command_of,
    compat::Canonical,
    define::{AppArgs, JobArgs, machine::SubmitArgs},
    environment::EnvRules,
    from_clap,
};

/// Hidden options that are keys, because other names for what they do are longer.
const HIDDEN_BUT_KNOWN: [&str; 3] = ["exclude", "job-name", "nodes"];

/// Options that are no keys, and what to do instead.
const NOT_KEYS: [(&str, &str); 7] = [
    ("dry-run", "call `rally launch FILE --dry-run`"),
    (
        "explain",
        "call `rally run --explain` with what `rally launch FILE --dry-run` prints",
    ),
    ("app", "write a table `[[app]]` for each app"),
    ("from", "use `rally submit --from FILE`"),
    (
        "personality",
        "leave it out: keys are the options of `rally run`",
    ),
    ("help", "call `rally launch --help`"),
    ("version", "call `rally --version`"),
];

/// An option with its value, and its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileOption {
    /// The name, without hyphens.
    pub(super) flag: String,
    pub(super) value: Option<String>,
    pub(super) at: Range<usize>,
}

/// The options that a table may have.
#[derive(Debug)]
pub(super) struct Options {
    app: Command,
    job: Command,
    queue: Command,
}

impl Options {
    pub(super) fn define() -> Self {
        Self {
            app: command_of::<AppArgs>(),
            job: command_of::<JobArgs>(),
            queue: command_of::<SubmitArgs>(),
        }
    }

    fn of(&mut self, table: Table) -> &mut Command {
        match table {
            Table::App => &mut self.app,
            Table::Queue => &mut self.queue,
            _ => &mut self.job,
        }
    }

    /// Returns the options that a key stands for: none if it is switched off, several if its value is a list.
    pub(super) fn read(
        &mut self,
        table: Table,
        key: &Spanned<impl AsRef<str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Vec<FileOption>, Mistake> {
        let name = key.get_ref().as_ref();
        let at = value.span();
        let is_off = matches!(value.get_ref(), DeValue::Boolean(false));
        if !is_key(self.of(table), name) {
            let problem = self.unknown(table, name);
            return Err(Mistake::at(key.span(), problem));
        }
        let command = self.of(table);
        let values = values(command, name, value)?;
        let mut options = Vec::with_capacity(values.len());
        for value in values {
            let canonical = Canonical {
                flag: name.to_owned(),
                value: value.clone().map(Into::into),
                typed: name.to_owned(),
            };
            let given = std::slice::from_ref(&canonical);
            match command.try_get_matches_from_mut([canonical.argument()]) {
                // An option that cannot be `no` is off if it is left out.
                Err(_) if is_off => continue,
                // What it requires may be another key.
                Err(error) if error.kind() != ErrorKind::MissingRequiredArgument => {
                    let error = from_clap(&error, given, "rally launch");
                    return Err(Mistake::of_option(at, error));
                }
                Ok(_) | Err(_) => {}
            }
            if let Err(error) = EnvRules::read(given) {
                return Err(Mistake::of_option(at, error));
            }
            options.push(FileOption {
                flag: canonical.flag,
                value,
                at: at.clone(),
            });
        }
        Ok(options)
    }

    fn unknown(&mut self, table: Table, name: &str) -> LaunchProblem {
        let instead = NOT_KEYS.iter().find(|(key, _)| *key == name);
        let elsewhere = [Table::App, Table::Job, Table::Queue]
            .into_iter()
            .find(|other| is_key(self.of(*other), name));
        let help = match (instead, elsewhere) {
            (Some((_, words)), _) => KeyHelp::Words(words),
            (None, Some(other)) => KeyHelp::Move(other),
            (None, None) => {
                let command = self.of(table);
                let names = command.get_arguments().filter_map(|arg| arg.get_long());
                let names = names.filter(|name| is_key(command, name));
                let own: &[&str] = match table {
                    Table::App => &["program", "args", "env"],
                    Table::Job => &["env"],
                    _ => &[],
                };
                match message::nearest(name, names.chain(own.iter().copied())) {
                    Some(nearest) => KeyHelp::Nearest(nearest.to_owned()),
                    None if table == Table::Queue => KeyHelp::Options("rally submit"),
                    None => KeyHelp::Options("rally run"),
                }
            }
        };
        LaunchProblem::UnknownKey {
            table,
            key: name.to_owned(),
            help,
        }
    }
}

/// Returns true if an option of this name is a key.
fn is_key(command: &Command, name: &str) -> bool {
    let mut all = command.get_arguments();
    let found = all.find(|arg| arg.get_long() == Some(name));
    let is_shown = |arg: &clap::Arg| !arg.is_hide_set() || HIDDEN_BUT_KNOWN.contains(&name);
    found.is_some_and(is_shown) && !NOT_KEYS.iter().any(|(key, _)| *key == name)
}

/// Returns the values of an option in the order in which it is repeated; `None` is an option without a value.
fn values(
    command: &Command,
    name: &str,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<Option<String>>, Mistake> {
    let mut all = command.get_arguments();
    let Some(arg) = all.find(|arg| arg.get_long() == Some(name)) else {
        return Ok(Vec::new());
    };
    let range = arg.get_num_args().unwrap_or_else(|| {
        if arg.get_action().takes_values() {
            1.into()
        } else {
            0.into()
        }
    });
    let wanted = match (range.max_values(), arg.get_action()) {
        (0, _) => "true or false",
        (_, ArgAction::Append) => "a text or a list of texts",
        _ => "a text or a number",
    };
    let wrong = |value: &Spanned<DeValue<'_>>| {
        let problem = LaunchProblem::WrongType {
            key: name.to_owned(),
            found: type_of(value.get_ref()),
            wanted,
        };
        Mistake::at(value.span(), problem)
    };
    match value.get_ref() {
        DeValue::Boolean(true) if range.min_values() == 0 => Ok(vec![None]),
        DeValue::Boolean(false) if range.max_values() == 0 => Ok(Vec::new()),
        _ if range.max_values() == 0 => Err(wrong(value)),
        DeValue::Boolean(is_on) => Ok(vec![Some(if *is_on { "yes" } else { "no" }.to_owned())]),
        DeValue::Array(list) if matches!(arg.get_action(), ArgAction::Append) => {
            let texts = list.iter().map(|element| {
                let text = scalar(element.get_ref()).ok_or_else(|| wrong(element))?;
                checked(name, text, element.span()).map(Some)
            });
            texts.collect()
        }
        other => {
            let text = scalar(other).ok_or_else(|| wrong(value))?;
            Ok(vec![Some(checked(name, text, value.span())?)])
        }
    }
}

/// Returns a text or a number as text.
pub(super) fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// Refuses what cannot be a word of a command line.
pub(super) fn checked(key: &str, text: String, at: Range<usize>) -> Result<String, Mistake> {
    if text.contains('\0') {
        let problem = LaunchProblem::Unusable {
            key: key.to_owned(),
            what: "contains a zero byte",
            help: "remove it: no program can be given one",
        };
        return Err(Mistake::at(at, problem));
    }
    Ok(text)
}

pub(super) const fn type_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
