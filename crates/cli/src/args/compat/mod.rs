//! From what users of `mpiexec`, `mpirun` and `srun` type to our own flags.
//!
//! It hides every foreign spelling: single-dash long options, options with two values, other names, other forms of
//! values. Out come segments (one for each app, between `:`), each with options in our own spelling, which clap then
//! parses, and the program with its arguments, untouched: nothing after a program's name is ever read as an option.
//!
//! Which of our own options want a value is asked of clap's definition ([`Native`]), so no flag is defined twice.

mod rewrite;
mod table;

use std::{
    ffi::{OsStr, OsString},
    iter::Peekable,
    os::unix::ffi::{OsStrExt, OsStringExt},
    slice,
};

use clap::Args as _;

use self::table::{Means, Spelling, spellings};
use super::{Error, Personality, define::RunArgs, error::Elsewhere, nearest};
use crate::help;

/// Options and programs of one command line; more is refused before it costs memory.
pub(crate) const MAX_SEGMENTS: usize = 1 << 16;

/// An option in our own spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Canonical {
    /// Without hyphens.
    pub(crate) flag: String,
    pub(crate) value: Option<OsString>,
    /// As the user wrote it, for error messages.
    pub(crate) typed: String,
}

impl Canonical {
    /// As clap reads it.
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
    /// The program and its arguments, as typed; empty where only options stand.
    pub(crate) program: Vec<OsString>,
}

/// A question that the command line asks instead of naming a job.
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
    /// After any `--personality`.
    pub(crate) personality: Personality,
    /// At least one.
    pub(crate) segments: Vec<Segment>,
    /// Options that have no effect here, as typed, in order.
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
    /// Only one that is attached with `=`.
    Attached,
    /// One that is attached, or a number in the next word; no program has a number for its name.
    Number,
    /// One that is attached, or ranks in the next word: `all`, `none`, or numbers.
    Readers,
}

/// Our own options, as clap defines them.
#[derive(Clone, Debug)]
pub(crate) struct Native {
    options: Vec<NativeOption>,
}

#[derive(Clone, Debug)]
struct NativeOption {
    /// The long name.
    flag: String,
    short: Option<char>,
    takes: Takes,
}

impl Native {
    /// The options of `rally run`.
    pub(crate) fn of_run() -> Self {
        let mut command = RunArgs::augment_args(clap::Command::new("run"));
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
        Self { options }
    }

    fn find(&self, name: &str) -> Option<&NativeOption> {
        let mut letters = name.chars();
        let letter = letters.next().filter(|_| letters.next().is_none());
        self.options.iter().find(|option| match letter {
            Some(_) => option.short == letter,
            None => option.flag == name,
        })
    }

    /// Whether there is an option of this name, ours or another's.
    #[cfg(test)]
    pub(crate) fn knows(&self, name: &str, personality: Personality) -> bool {
        self.find(name).is_some() || spellings().any(|spelling| spelling.is(name, personality))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.options.iter().map(|option| option.flag.as_str())
    }
}

/// An option that was found, with its values: what the functions of the table work on.
#[derive(Debug)]
pub(super) struct Given<'a> {
    /// Without hyphens.
    pub(super) option: &'a str,
    /// With its hyphens, or the name of the variable that stands for it.
    pub(super) typed: &'a str,
    pub(super) values: Vec<OsString>,
    /// The number of the segment it stands in, from 0.
    pub(super) segment: usize,
}

/// Collects what an option becomes.
#[derive(Debug)]
pub(super) struct Emit<'a> {
    typed: String,
    here: &'a mut Vec<Canonical>,
    everywhere: &'a mut Vec<Canonical>,
    ignored: &'a mut Vec<String>,
}

impl Emit<'_> {
    /// An option of this segment.
    pub(super) fn here(&mut self, flag: &str, value: impl Into<OsString>) {
        self.here.push(Canonical {
            flag: flag.into(),
            value: Some(value.into()),
            typed: self.typed.clone(),
        });
    }

    /// An option of this segment without a value.
    pub(super) fn plain(&mut self, flag: &str) {
        self.here.push(Canonical {
            flag: flag.into(),
            value: None,
            typed: self.typed.clone(),
        });
    }

    /// An option that stands before those of every segment.
    pub(super) fn everywhere(&mut self, flag: &str, value: impl Into<OsString>) {
        self.everywhere.push(Canonical {
            flag: flag.into(),
            value: Some(value.into()),
            typed: self.typed.clone(),
        });
    }

    /// An option without effect.
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

/// What a name means under a personality.
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

    /// Refuses what cannot be meant, whatever its value.
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
    /// Without hyphens.
    pub(crate) option: &'a str,
    pub(crate) values: Vec<OsString>,
}

/// What a variable becomes.
#[derive(Debug)]
pub(crate) struct OfVariable {
    pub(crate) options: Vec<Canonical>,
    pub(crate) ignored: Vec<String>,
}

/// Translates a variable as if its option had been typed.
///
/// # Errors
///
/// As [`translate`], in the name of the variable.
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

/// Translates what follows the command's name.
///
/// # Errors
///
/// The first option that is unknown, lacks a value, has a value that cannot be translated, has two meanings, or asks
/// for something we do not have.
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
    // Our own word for it, wherever it stands.
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

#[derive(Debug)]
struct Translator<'a> {
    native: &'a Native,
    personality: Personality,
    tokens: Peekable<slice::Iter<'a, OsString>>,
    segments: Vec<Segment>,
    current: Segment,
    everywhere: Vec<Canonical>,
    ignored: Vec<String>,
    asks: Option<Asks>,
}

impl<'a> Translator<'a> {
    fn new(line: &'a [OsString], personality: Personality, native: &'a Native) -> Self {
        Self {
            native,
            personality,
            tokens: line.iter().peekable(),
            segments: Vec::new(),
            current: Segment::default(),
            everywhere: Vec::new(),
            ignored: Vec::new(),
            asks: None,
        }
    }

    fn run(&mut self) -> Result<(), Error> {
        while let Some(token) = self.tokens.next() {
            let bytes = token.as_bytes();
            if bytes == b":" {
                self.close_segment()?;
            } else if !self.current.program.is_empty() {
                self.current.program.push(token.clone());
            } else if bytes == b"--" {
                if let Some(program) = self.tokens.next() {
                    self.current.program.push(program.clone());
                }
            } else if bytes.len() > 1 && bytes.starts_with(b"-") {
                self.option(token)?;
                if self.asks.is_some() {
                    break;
                }
            } else {
                self.current.program.push(token.clone());
            }
        }
        self.close_segment()
    }

    fn close_segment(&mut self) -> Result<(), Error> {
        if self.segments.len() == MAX_SEGMENTS {
            return Err(Error::TooManyApps { max: MAX_SEGMENTS });
        }
        self.segments.push(std::mem::take(&mut self.current));
        Ok(())
    }

    fn option(&mut self, token: &'a OsStr) -> Result<(), Error> {
        let bytes = token.as_bytes();
        let hyphens = if bytes.starts_with(b"--") { 2 } else { 1 };
        let equals = bytes.iter().position(|byte| *byte == b'=');
        let name = bytes
            .get(hyphens..equals.unwrap_or(bytes.len()))
            .unwrap_or_default();
        let attached = equals
            .and_then(|at| bytes.get(at + 1..))
            .map(OsStr::from_bytes);
        let typed = String::from_utf8_lossy(
            bytes
                .get(..equals.unwrap_or(bytes.len()))
                .unwrap_or_default(),
        );
        let Ok(name) = str::from_utf8(name) else {
            return Err(self.unknown(&typed, ""));
        };
        if self.asks(name, hyphens, attached) {
            return Ok(());
        }
        if let Some(found) = self.find(name) {
            return self.apply(&found, &typed, attached);
        }
        if hyphens == 1 && (self.cluster(bytes)? || self.counted(name, attached)?) {
            return Ok(());
        }
        Err(self.unknown(&typed, name))
    }

    /// Answers options that ask something; true if this was one.
    fn asks(&mut self, name: &str, hyphens: usize, attached: Option<&OsStr>) -> bool {
        let value = attached.or_else(|| self.tokens.peek().map(|token| token.as_os_str()));
        let asked = match name {
            "mpi" if self.personality == Personality::Srun && value == Some(OsStr::new("list")) => {
                Asks::MpiTypes
            }
            "cpu-bind" | "cpu_bind" | "mem-bind" if value == Some(OsStr::new("help")) => {
                Asks::Topic("placement".to_owned())
            }
            "V" | "version" | "info" => Asks::Version,
            "h" if hyphens == 1 => Asks::ShortHelp,
            "help" | "h" | "?" | "usage" => {
                let next = self.tokens.peek().map(|token| token.as_os_str());
                let subject = attached
                    .or(next)
                    .and_then(OsStr::to_str)
                    .filter(|word| help::topic(word).is_some());
                subject.map_or(Asks::FullHelp, |word| Asks::Topic(word.to_owned()))
            }
            _ => return false,
        };
        self.asks = Some(asked);
        true
    }

    fn find(&self, name: &str) -> Option<Found<'a>> {
        let spelling = spellings().find(|spelling| spelling.is(name, self.personality));
        spelling
            .map(Found::Spelling)
            .or_else(|| self.native.find(name).map(Found::Native))
    }

    fn apply(
        &mut self,
        found: &Found<'_>,
        typed: &str,
        attached: Option<&OsStr>,
    ) -> Result<(), Error> {
        found.check(typed)?;
        let values = self.values(found.takes(), typed, attached)?;
        let given = Given {
            option: typed.trim_start_matches('-'),
            typed,
            values,
            segment: self.segments.len(),
        };
        self.emit(found, &given)
    }

    /// Makes of an option with its values what it becomes.
    fn emit(&mut self, found: &Found<'_>, given: &Given<'_>) -> Result<(), Error> {
        let mut emit = Emit {
            typed: given.typed.to_owned(),
            here: &mut self.current.options,
            everywhere: &mut self.everywhere,
            ignored: &mut self.ignored,
        };
        match found {
            Found::Native(option) if option.flag == "personality" => {
                let name = given
                    .values
                    .first()
                    .map(|value| value.to_string_lossy())
                    .unwrap_or_default();
                self.personality =
                    Personality::from_name(&name).ok_or_else(|| Error::UnknownPersonality {
                        name: name.clone().into_owned(),
                        nearest: nearest(
                            &name,
                            Personality::ALL.into_iter().map(Personality::name),
                        ),
                    })?;
            }
            Found::Native(option) => native(&option.flag, given, &mut emit),
            Found::Spelling(spelling) => match spelling.means {
                Means::Same(flag) => native(flag, given, &mut emit),
                Means::Fixed(flag, value) => emit.here(flag, value),
                Means::Plain(flag) => emit.plain(flag),
                Means::Each(rewrite) => rewrite(given, &mut emit)?,
                Means::Ignored => emit.ignored(given),
                Means::Only(values, why) => only(values, why, given)?,
                Means::Silent | Means::Conflict(_) | Means::Refused(_) => {}
            },
        }
        Ok(())
    }

    /// The values that follow an option.
    fn values(
        &mut self,
        takes: Takes,
        typed: &str,
        attached: Option<&OsStr>,
    ) -> Result<Vec<OsString>, Error> {
        let missing = || Error::MissingValue {
            option: typed.to_owned(),
        };
        match (takes, attached) {
            (Takes::None | Takes::Attached, None) => Ok(Vec::new()),
            (Takes::Readers, None) => {
                let is_readers = |word: &&OsString| {
                    matches!(word.as_bytes(), b"all" | b"none")
                        || word.as_bytes().first().is_some_and(u8::is_ascii_digit)
                            && word
                                .as_bytes()
                                .iter()
                                .all(|byte| byte.is_ascii_digit() || b",-".contains(byte))
                };
                let value = self.tokens.next_if(is_readers);
                Ok(value.cloned().into_iter().collect())
            }
            (Takes::None, Some(value)) => Err(Error::UnexpectedValue {
                option: typed.to_owned(),
                value: value.to_string_lossy().into_owned(),
            }),
            (Takes::Number, None) => {
                let is_number = |word: &&OsString| {
                    !word.is_empty() && word.as_bytes().iter().all(u8::is_ascii_digit)
                };
                Ok(self
                    .tokens
                    .next_if(is_number)
                    .cloned()
                    .into_iter()
                    .collect())
            }
            (Takes::Attached | Takes::Number | Takes::Readers | Takes::One, Some(value)) => {
                Ok(vec![value.to_owned()])
            }
            (Takes::One, None) => Ok(vec![self.value().ok_or_else(missing)?]),
            (Takes::Pair, _) => {
                let first = match attached {
                    Some(word) => word.to_owned(),
                    None => self.value().ok_or_else(missing)?,
                };
                match split_once(&first, b'=') {
                    Some((name, value)) => Ok(vec![name, value]),
                    // The second word may look like anything: `-genv CFLAGS -n`.
                    None => Ok(vec![
                        first,
                        self.tokens.next().cloned().ok_or_else(missing)?,
                    ]),
                }
            }
        }
    }

    /// The next word as a value; none if it is another option or the end of the segment.
    fn value(&mut self) -> Option<OsString> {
        let next = self.tokens.peek()?;
        let bytes = next.as_bytes();
        if bytes == b":" || bytes == b"--" {
            return None;
        }
        let is_option = bytes
            .strip_prefix(b"--")
            .or_else(|| bytes.strip_prefix(b"-"))
            .is_some_and(|rest| {
                let name = rest.split(|byte| *byte == b'=').next().unwrap_or_default();
                str::from_utf8(name).is_ok_and(|name| self.find(name).is_some())
            });
        if is_option {
            None
        } else {
            self.tokens.next().cloned()
        }
    }

    /// Reads `-n4`, `-qv`: letters behind one hyphen. False if it is none of those.
    ///
    /// Under the MPI names a value may be attached only when it is a number: there single-dash words are long options,
    /// and a mistyped one must not become a file name.
    fn cluster(&mut self, bytes: &'a [u8]) -> Result<bool, Error> {
        let mut parts = Vec::new();
        let mut rest = bytes.get(1..).unwrap_or_default();
        while let Some((letter, tail)) = rest.split_first() {
            if !letter.is_ascii_alphabetic() {
                return Ok(false);
            }
            let name = char::from(*letter).to_string();
            let Some(found) = self.find(&name) else {
                return Ok(false);
            };
            rest = tail;
            let attached = match found.takes() {
                Takes::None => None,
                Takes::Attached | Takes::Number | Takes::Readers => {
                    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                    let (value, tail) = rest.split_at_checked(digits).unwrap_or((&[], rest));
                    rest = tail;
                    if value.is_empty() {
                        None
                    } else {
                        Some(OsStr::from_bytes(value))
                    }
                }
                Takes::Pair => return Ok(false),
                Takes::One if rest.is_empty() => None,
                Takes::One => {
                    let number = rest.iter().all(u8::is_ascii_digit);
                    if !number && self.personality != Personality::Srun {
                        return Ok(false);
                    }
                    Some(OsStr::from_bytes(std::mem::take(&mut rest)))
                }
            };
            parts.push((found, format!("-{name}"), attached));
        }
        if parts.is_empty() {
            return Ok(false);
        }
        for (found, typed, attached) in parts {
            let letter = typed.strip_prefix('-').unwrap_or_default();
            if !self.asks(letter, 1, attached) {
                self.apply(&found, &typed, attached)?;
            }
        }
        Ok(true)
    }

    /// Reads `-np4`: a number of procs behind the name of its option. False if it is none of those.
    fn counted(&mut self, name: &str, attached: Option<&OsStr>) -> Result<bool, Error> {
        let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name.get(letters.len()..).unwrap_or_default();
        let is_count = matches!(letters, "np" | "ppn" | "npernode" | "perhost");
        if number.is_empty() || attached.is_some() || !is_count {
            return Ok(false);
        }
        let Some(found) = self.find(letters) else {
            return Ok(false);
        };
        self.apply(&found, &format!("-{letters}"), Some(OsStr::new(number)))?;
        Ok(true)
    }

    fn unknown(&self, typed: &str, name: &str) -> Error {
        let elsewhere = Personality::ALL.into_iter().find_map(|other| {
            let spelling = spellings().find(|spelling| spelling.is(name, other))?;
            Some(Elsewhere {
                personality: other,
                meaning: spelling.meaning(),
            })
        });
        let here = spellings()
            .filter(|spelling| spelling.under(self.personality) && spelling.is_offered());
        let names = here
            .flat_map(|spelling| spelling.names.iter().copied())
            .chain(self.native.names());
        let nearest = nearest(name, names.filter(|name| name.len() > 1)).map(|name| {
            let single = typed.starts_with('-')
                && !typed.starts_with("--")
                && self.personality != Personality::Srun;
            format!("{}{name}", if single { "-" } else { "--" })
        });
        Error::UnknownOption {
            option: typed.to_owned(),
            command: self.personality.command().to_owned(),
            nearest,
            elsewhere,
        }
    }
}

/// An option that is accepted with a few values only.
fn only(values: &[&str], why: super::error::NotOffered, given: &Given<'_>) -> Result<(), Error> {
    let value = given.values.first().map(|value| value.to_string_lossy());
    let value = value.unwrap_or_default();
    if values.iter().any(|known| *known == value) {
        return Ok(());
    }
    Err(Error::NotOffered {
        option: format!("{} {value}", given.typed),
        why,
    })
}

/// An option that keeps its values.
fn native(flag: &str, given: &Given<'_>, emit: &mut Emit<'_>) {
    match given.values.first() {
        Some(value) => emit.here(flag, value),
        None => emit.plain(flag),
    }
}

/// The parts before and after the first `byte`.
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
