//! Walks over the words of a command line: separates options, their values, and programs.

use std::{
    ffi::{OsStr, OsString},
    iter::Peekable,
    os::unix::ffi::OsStrExt,
    slice,
};

use super::{
    Asks, Canonical, Emit, Error, Found, Given, MAX_SEGMENTS, Means, Native, Segment, Takes,
    spellings, split_once,
};
use crate::{
    args::{
        Personality,
        error::{Elsewhere, NotOffered},
    },
    help::topics,
};

#[derive(Debug)]
pub(super) struct Translator<'a> {
    native: &'a Native,
    pub(super) personality: Personality,
    tokens: Peekable<slice::Iter<'a, OsString>>,
    pub(super) segments: Vec<Segment>,
    pub(super) current: Segment,
    pub(super) everywhere: Vec<Canonical>,
    pub(super) ignored: Vec<String>,
    pub(super) asks: Option<Asks>,
}

impl<'a> Translator<'a> {
    pub(super) fn new(line: &'a [OsString], personality: Personality, native: &'a Native) -> Self {
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

    pub(super) fn run(&mut self) -> Result<(), Error> {
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

    /// Records a request for information. Returns false for any other option.
    fn asks(&mut self, name: &str, hyphens: usize, attached: Option<&OsStr>) -> bool {
        let value = attached.or_else(|| self.tokens.peek().map(|token| token.as_os_str()));
        let asked = match name {
            "mpi" if self.personality == Personality::Srun && value == Some(OsStr::new("list")) => {
                Asks::MpiTypes
            }
            "cpu-bind" | "cpu_bind" | "mem-bind" | "hint" | "gres"
                if value == Some(OsStr::new("help")) =>
            {
                Asks::Topic("placement".to_owned())
            }
            "V" | "version" | "info" => Asks::Version,
            "h" if hyphens == 1 => Asks::ShortHelp,
            "help" | "h" | "?" | "usage" => {
                let next = self.tokens.peek().map(|token| token.as_os_str());
                let subject = attached
                    .or(next)
                    .and_then(OsStr::to_str)
                    .filter(|word| topics::topic(word).is_some());
                subject.map_or(Asks::FullHelp, |word| Asks::Topic(word.to_owned()))
            }
            _ => return false,
        };
        self.asks = Some(asked);
        true
    }

    pub(super) fn find(&self, name: &str) -> Option<Found<'a>> {
        if let Some(option) = self.native.of_letter(name) {
            return Some(Found::Native(option));
        }
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

    /// Adds the flags that an option with its values is translated into.
    pub(super) fn emit(&mut self, found: &Found<'_>, given: &Given<'_>) -> Result<(), Error> {
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
                        nearest: message::nearest(
                            &name,
                            Personality::ALL.into_iter().map(Personality::name),
                        )
                        .map(str::to_owned),
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

    /// Returns the values that follow an option.
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
                    // The second word is always a value, even if it looks like an option: `-genv CFLAGS -n`.
                    None => Ok(vec![
                        first,
                        self.tokens.next().cloned().ok_or_else(missing)?,
                    ]),
                }
            }
        }
    }

    /// Returns the next word as a value. `None` if it is another option or the end of the segment.
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

    /// Parses letters after one hyphen, such as `-n4` or `-qv`. Returns false if the word is not of this form.
    ///
    /// Under the MPI names an attached value must be a number. There, words with a single hyphen are long options, and a
    /// misspelled one must not become a file name.
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

    /// Parses a number of procs attached to the name of its option, such as `-np4`. Returns false if the word is not of this
    /// form.
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

    pub(super) fn unknown(&self, typed: &str, name: &str) -> Error {
        let elsewhere = Personality::ALL.into_iter().find_map(|other| {
            let mut there = spellings().filter(|spelling| spelling.is(name, other));
            let spelling = there.find(|spelling| spelling.is_offered())?;
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
        let nearest = message::nearest(name, names.filter(|name| name.len() > 1)).map(|name| {
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

/// Accepts an option only with certain values.
fn only(values: &[&str], why: NotOffered, given: &Given<'_>) -> Result<(), Error> {
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

/// Adds an option of ours, with its value unchanged.
fn native(flag: &str, given: &Given<'_>, emit: &mut Emit<'_>) {
    match given.values.first() {
        Some(value) => emit.here(flag, value),
        None => emit.plain(flag),
    }
}
