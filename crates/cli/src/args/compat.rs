//! Translates what users of `mpiexec`, `mpirun` and `srun` type into our own flags.
//!
//! It hides every foreign spelling: single-dash long options, options with two values, other names, other forms of values.
//! The result is a list of segments, one for each app between `:`. Each has options in our own spelling, which clap then
//! parses, and the unmodified program with its arguments. Nothing after a program's name is ever read as an option.
//!
//! Which of our own options take a value comes from clap's definition ([`Native`]), so no flag is defined twice.

mod rewrite;
mod table;
mod translator;

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use clap::Args as _;

use self::{
    table::{Means, Spelling, spellings},
    translator::Translator,
};
use super::{Error, Personality, define::RunArgs};

/// The most segments in one command line. More are refused before they cost memory.
pub(crate) const MAX_SEGMENTS: usize = 1 << 16;

/// An option in our own spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Canonical {
    /// The name, without hyphens.
    pub(crate) flag: String,
    pub(crate) value: Option<OsString>,
    /// The option as the user wrote it, for error messages.
    pub(crate) typed: String,
}

impl Canonical {
    /// Returns the option in the form that clap parses.
    pub(crate) fn argument(&self) -> OsString {
        let mut text = OsString::from("--");
        text.push(&self.flag);
        if let Some(value) = &self.value {
            text.push("=");
            text.push(value);
        }
        text
    }
}

/// One app's part of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) options: Vec<Canonical>,
    /// The program and its arguments, as typed; empty if the segment has only options.
    pub(crate) program: Vec<OsString>,
}

/// A request for information instead of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    ShortHelp,
    FullHelp,
    Topic(String),
    Version,
    /// `srun --mpi=list`.
    MpiTypes,
}

/// A command line in our own spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Translation {
    /// The personality, after any `--personality`.
    pub(crate) personality: Personality,
    /// The segments; at least one.
    pub(crate) segments: Vec<Segment>,
    /// Options without any effect here, as typed, in order.
    pub(crate) ignored: Vec<String>,
    pub(crate) asks: Option<Asks>,
}

/// How many values an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    None,
    One,
    /// A name and a value: two words, or one with `=` between them.
    Pair,
    /// One value, which must be attached with `=`.
    Attached,
    /// One value, either attached, or the next word if that is a number. No program is named by a number.
    Number,
    /// One value, either attached, or the next word if that names readers: `all`, `none`, or numbers.
    Readers,
}

/// Our own options, as clap defines them.
#[derive(Clone, Debug)]
pub(crate) struct Native {
    options: Vec<NativeOption>,
    /// A letter that has one meaning here, whatever it means to other launchers, and the name of its option.
    letter: Option<(char, &'static str)>,
}

#[derive(Clone, Debug)]
struct NativeOption {
    /// The long name, without hyphens.
    flag: String,
    short: Option<char>,
    takes: Takes,
}

impl Native {
    /// Returns the options of `rally run`.
    pub(crate) fn of_run() -> Self {
        Self::of(&mut RunArgs::augment_args(clap::Command::new("run")))
    }

    /// Returns the options of `rally run`, and those of another command with all of them.
    pub(crate) fn of_run_and<A: clap::Args>() -> Self {
        let command = RunArgs::augment_args(clap::Command::new("run"));
        Self::of(&mut A::augment_args(command))
    }

    /// Returns the options of a command.
    pub(super) fn of(command: &mut clap::Command) -> Self {
        command.build();
        let options = command
            .get_arguments()
            .filter_map(|arg| {
                let takes = match arg.get_num_args() {
                    Some(range) if range.max_values() == 0 => Takes::None,
                    Some(range) if range.min_values() == 0 => Takes::Attached,
                    _ => Takes::One,
                };
                Some(NativeOption {
                    flag: arg.get_long()?.to_owned(),
                    short: arg.get_short(),
                    takes,
                })
            })
            .collect();
        Self {
            options,
            letter: None,
        }
    }

    /// Gives a letter one meaning, whatever it means to other launchers.
    pub(crate) fn with_letter(self, letter: char, flag: &'static str) -> Self {
        Self {
            letter: Some((letter, flag)),
            ..self
        }
    }

    /// Returns the option that a letter means here.
    fn of_letter(&self, name: &str) -> Option<&NativeOption> {
        let (letter, flag) = self.letter?;
        let mut letters = name.chars();
        let is_it = letters.next() == Some(letter) && letters.next().is_none();
        is_it.then(|| self.find(flag)).flatten()
    }

    fn find(&self, name: &str) -> Option<&NativeOption> {
        let mut letters = name.chars();
        let letter = letters.next().filter(|_| letters.next().is_none());
        self.options.iter().find(|option| match letter {
            Some(_) => option.short == letter,
            None => option.flag == name,
        })
    }

    /// Returns true if an option of this name exists, native or foreign.
    #[cfg(test)]
    pub(crate) fn knows(&self, name: &str, personality: Personality) -> bool {
        self.find(name).is_some() || spellings().any(|spelling| spelling.is(name, personality))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.options.iter().map(|option| option.flag.as_str())
    }
}

/// An option found on the command line, with its values: the argument of the functions in the table.
#[derive(Debug)]
pub(super) struct Given<'a> {
    /// The name, without hyphens.
    pub(super) option: &'a str,
    /// The option as typed, with its hyphens, or the name of the variable that stands for it.
    pub(super) typed: &'a str,
    pub(super) values: Vec<OsString>,
    /// The index of its segment, from 0.
    pub(super) segment: usize,
}

/// Collects the flags that an option is translated into.
#[derive(Debug)]
pub(super) struct Emit<'a> {
    typed: String,
    here: &'a mut Vec<Canonical>,
    everywhere: &'a mut Vec<Canonical>,
    ignored: &'a mut Vec<String>,
}

impl Emit<'_> {
    /// Adds an option to this segment.
    pub(super) fn here(&mut self, flag: &str, value: impl Into<OsString>) {
        self.here.push(Canonical {
            flag: flag.into(),
            value: Some(value.into()),
            typed: self.typed.clone(),
        });
    }

    /// Adds an option without a value to this segment.
    pub(super) fn plain(&mut self, flag: &str) {
        self.here.push(Canonical {
            flag: flag.into(),
            value: None,
            typed: self.typed.clone(),
        });
    }

    /// Adds an option in front of those of every segment.
    pub(super) fn everywhere(&mut self, flag: &str, value: impl Into<OsString>) {
        self.everywhere.push(Canonical {
            flag: flag.into(),
            value: Some(value.into()),
            typed: self.typed.clone(),
        });
    }

    /// Removes what earlier occurrences of the same option have added to this segment.
    pub(super) fn overrule(&mut self) {
        self.here.retain(|option| option.typed != self.typed);
    }

    /// Records an option without effect.
    pub(super) fn ignored(&mut self, given: &Given<'_>) {
        let mut text = given.typed.to_owned();
        if given.typed.starts_with('-') {
            for value in &given.values {
                text.push(' ');
                text.push_str(&value.to_string_lossy());
            }
        }
        self.ignored.push(text);
    }
}

/// The meaning of a name under a personality.
#[derive(Debug)]
enum Found<'a> {
    Spelling(&'static Spelling),
    Native(&'a NativeOption),
}

impl Found<'_> {
    const fn takes(&self) -> Takes {
        match self {
            Self::Spelling(spelling) => spelling.takes,
            Self::Native(option) => option.takes,
        }
    }

    /// Refuses options that are never accepted, whatever their values.
    fn check(&self, typed: &str) -> Result<(), Error> {
        let Self::Spelling(spelling) = self else {
            return Ok(());
        };
        match spelling.means {
            Means::Conflict(meanings) => Err(Error::TwoMeanings {
                option: typed.to_owned(),
                meanings,
            }),
            Means::Refused(why) => Err(Error::NotOffered {
                option: typed.to_owned(),
                why,
            }),
            _ => Ok(()),
        }
    }
}

/// A variable that stands for an option.
#[derive(Debug)]
pub(crate) struct Variable<'a> {
    pub(crate) name: &'a str,
    /// The name of the option, without hyphens.
    pub(crate) option: &'a str,
    pub(crate) values: Vec<OsString>,
}

/// The translation of a variable.
#[derive(Debug)]
pub(crate) struct OfVariable {
    pub(crate) options: Vec<Canonical>,
    pub(crate) ignored: Vec<String>,
}

/// Translates a variable as if its option had been typed.
///
/// # Errors
///
/// The errors of [`translate`], with the name of the variable.
pub(crate) fn translate_variable(
    variable: Variable<'_>,
    personality: Personality,
    native: &Native,
) -> Result<OfVariable, Error> {
    let mut translator = Translator::new(&[], personality, native);
    let Some(found) = translator.find(variable.option) else {
        return Err(translator.unknown(variable.name, variable.option));
    };
    found.check(variable.name)?;
    let given = Given {
        option: variable.option,
        typed: variable.name,
        values: variable.values,
        segment: 0,
    };
    translator.emit(&found, &given)?;
    let mut options = translator.everywhere;
    options.append(&mut translator.current.options);
    Ok(OfVariable {
        options,
        ignored: translator.ignored,
    })
}

/// Translates the words after the command's name.
///
/// # Errors
///
/// The first option that is unknown, lacks a value, has a value that cannot be translated, is ambiguous, or requests
/// something that we do not offer.
pub(crate) fn translate(
    line: &[OsString],
    personality: Personality,
    native: &Native,
) -> Result<Translation, Error> {
    let mut translator = Translator::new(line, personality, native);
    translator.run()?;
    let Translator {
        personality,
        mut segments,
        mut everywhere,
        ignored,
        asks,
        ..
    } = translator;
    // `--global-env`, our own option for every segment, may be in any of them.
    for segment in &mut segments {
        let global = segment
            .options
            .extract_if(.., |option| option.flag == "global-env");
        everywhere.extend(global.map(|option| Canonical {
            flag: "set-env".into(),
            ..option
        }));
    }
    if !everywhere.is_empty() {
        for segment in &mut segments {
            segment.options.splice(0..0, everywhere.iter().cloned());
        }
    }
    Ok(Translation {
        personality,
        segments,
        ignored,
        asks,
    })
}

/// Returns the parts before and after the first `byte`.
pub(super) fn split_once(text: &OsStr, byte: u8) -> Option<(OsString, OsString)> {
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|found| *found == byte)?;
    let after = bytes.get(at + 1..)?;
    Some((
        OsString::from_vec(bytes.get(..at)?.to_vec()),
        OsString::from_vec(after.to_vec()),
    ))
}

#[cfg(test)]
mod tests;
