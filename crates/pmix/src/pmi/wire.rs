//! From bytes to commands and back, in the two ways of writing that PMI has.
//!
//! - PMI-1, [`Form::Line`] and [`Form::Multi`]: lines of text, in `lines`.
//! - PMI-2, [`Form::Counted`]: the length in six characters, then fields that end with `;`, in `counted`.
//!
//! A connection begins with lines; [`Framer::count`] is said when both sides have agreed on PMI-2.

mod counted;
mod lines;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::VecDeque};

use crate::pmi::{Bound, Error, Malformed};

/// Bytes of a command of one line, its end included. The longest one that MPICH 5 sends by itself is a `put` of a value of
/// 1,024 bytes.
pub const MAX_COMMAND: usize = 64 * 1024;

/// Bytes of a command of several lines: one part of a spawn, which carries the arguments of a program.
pub const MAX_MULTI: usize = 1024 * 1024;

/// Bytes of a counted command without its count: the count has six digits.
pub const MAX_COUNTED: usize = 999_999;

/// Fields of one command. Only a spawn has more than five.
pub const MAX_FIELDS: usize = 4096;

/// The ways of writing a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `cmd=NAME key=value ...`, one line.
    Line,
    /// `mcmd=NAME`, one field a line, `endcmd`.
    Multi,
    /// `    23cmd=NAME;key=value;`
    Counted,
}

/// One command as it crosses the wire: its name and its fields in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    form: Form,
    name: String,
    fields: Vec<(String, String)>,
}

impl Message {
    /// A command without fields.
    #[must_use]
    pub fn new(form: Form, name: &str) -> Self {
        Self {
            form,
            name: name.to_owned(),
            fields: Vec::new(),
        }
    }

    /// The command with one more field at its end. A free-text field must be the last one.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.fields.push((key.to_owned(), value.to_string()));
        self
    }

    /// The command with one more field where there is a value.
    #[must_use]
    pub(crate) fn with_some(self, key: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// How the command is written.
    #[must_use]
    pub const fn form(&self) -> Form {
        self.form
    }

    /// The name of the command, such as `get_maxes`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of the first field with this key.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// The value of a field that must be there.
    pub(crate) fn need(&self, key: &'static str) -> Result<&str, Error> {
        self.field(key)
            .ok_or(Error::Malformed(Malformed::Missing(key)))
    }

    /// The value of a field that must be there and be a number of type `T`.
    pub(crate) fn number<T: std::str::FromStr>(&self, key: &'static str) -> Result<T, Error> {
        self.need(key)?
            .parse()
            .map_err(|_| Error::Malformed(Malformed::NotANumber(key)))
    }

    /// The value of a field that is `TRUE` or `FALSE` where it is there.
    pub(crate) fn boolean(&self, key: &'static str) -> Result<Option<bool>, Error> {
        match self.field(key) {
            None => Ok(None),
            Some("TRUE") => Ok(Some(true)),
            Some("FALSE") => Ok(Some(false)),
            Some(_) => Err(Error::Malformed(Malformed::NotABoolean(key))),
        }
    }

    /// Its fields, in their order.
    pub(crate) fn fields(&self) -> &[(String, String)] {
        &self.fields
    }

    /// The bytes of the command.
    ///
    /// # Errors
    ///
    /// `Malformed` when a name or value contains a separator, so that the other side would read something else;
    /// `Limit` when it is longer than a reader accepts.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let (bytes, mut framer) = match self.form {
            Form::Line | Form::Multi => (lines::write(self)?, Framer::default()),
            Form::Counted => (counted::write(self)?, Framer::counted()),
        };
        // Reading it back is the definition of representable, and cheaper to be sure of than a second grammar.
        framer.push(&bytes);
        match framer.next() {
            Ok(Some(read)) if read == *self && framer.is_empty() => Ok(bytes),
            Err(limit @ Error::Limit { .. }) => Err(limit),
            _ => Err(Error::Malformed(Malformed::NotRepresentable)),
        }
    }

    /// One more field, within the bound.
    fn push(&mut self, key: &str, value: String) -> Result<(), Error> {
        Bound::Fields.check(self.fields.len() + 1)?;
        self.fields.push((key.to_owned(), value));
        Ok(())
    }

    /// Text without a key: it belongs to the value before it, with the separator that stands between them.
    fn push_keyless(&mut self, separator: char, text: &str) -> Result<(), Error> {
        let (_, value) = self
            .fields
            .last_mut()
            .ok_or(Error::Malformed(Malformed::NoKey))?;
        value.push(separator);
        value.push_str(text);
        Ok(())
    }
}

/// How the bytes that come are to be cut.
#[derive(Debug)]
enum Cut {
    Lines {
        /// A command of several lines whose `endcmd` has not come yet, and its bytes so far.
        partial: Option<(Message, usize)>,
    },
    Counted,
}

/// Cuts a stream of bytes into commands.
#[derive(Debug)]
pub struct Framer {
    /// Bytes not yet consumed, no more than those of one command after `next` has returned `None`.
    buffer: VecDeque<u8>,
    /// How many bytes of `buffer` are known to hold no end of a line, so that a slow sender costs linear time.
    searched: usize,
    cut: Cut,
}

impl Default for Framer {
    fn default() -> Self {
        Self {
            buffer: VecDeque::new(),
            searched: 0,
            cut: Cut::Lines { partial: None },
        }
    }
}

impl Framer {
    /// One for counted commands from the start.
    #[must_use]
    pub fn counted() -> Self {
        let mut framer = Self::default();
        framer.count();
        framer
    }

    /// What comes after the commands taken so far is counted.
    pub fn count(&mut self) {
        self.searched = 0;
        self.cut = Cut::Counted;
    }

    /// Takes bytes of the peer. Call [`Self::next`] until it returns `None` before giving more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
    }

    /// Whether nothing is left, not even a part of a command.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && !matches!(self.cut, Cut::Lines { partial: Some(_) })
    }

    /// The next complete command, or `None` until more bytes come.
    ///
    /// # Errors
    ///
    /// `Malformed` and `Limit`. The stream has no way to find its next command after that: close it.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator's `None` would be final, this one is not"
    )]
    pub fn next(&mut self) -> Result<Option<Message>, Error> {
        match self.cut {
            Cut::Lines { .. } => self.next_of_lines(),
            Cut::Counted => self.next_counted(),
        }
    }

    fn next_of_lines(&mut self) -> Result<Option<Message>, Error> {
        loop {
            let Some(line) = self.line()? else {
                return Ok(None);
            };
            let text = text(&line)?;
            let Cut::Lines { partial } = &mut self.cut else {
                return Ok(None);
            };
            match partial.take() {
                None if text.trim_matches(' ').is_empty() => {}
                None => {
                    if let Some(name) = text.strip_prefix("mcmd=") {
                        *partial = Some((Message::new(Form::Multi, name), line.len() + 1));
                    } else {
                        return lines::read(text).map(Some);
                    }
                }
                Some((message, _)) if line == lines::END_OF_MULTI => return Ok(Some(message)),
                Some((mut message, size)) => {
                    let size = size + line.len() + 1;
                    Bound::Multi.check(size + lines::END_OF_MULTI.len() + 1)?;
                    lines::read_field(&mut message, text)?;
                    *partial = Some((message, size));
                }
            }
        }
    }

    /// The next line without its end.
    fn line(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let bound = match self.cut {
            Cut::Lines { partial: Some(_) } => Bound::Multi,
            _ => Bound::Command,
        };
        let found = self
            .buffer
            .iter()
            .skip(self.searched)
            .position(|byte| *byte == b'\n');
        let Some(end) = found.map(|at| at + self.searched) else {
            self.searched = self.buffer.len();
            bound.check(self.buffer.len())?;
            return Ok(None);
        };
        bound.check(end + 1)?;
        self.searched = 0;
        let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
        line.pop();
        Ok(Some(line))
    }

    fn next_counted(&mut self) -> Result<Option<Message>, Error> {
        if self.buffer.len() < counted::COUNT {
            return Ok(None);
        }
        let count: Vec<u8> = self.buffer.iter().take(counted::COUNT).copied().collect();
        let length = counted::read_count(&count)?;
        if self.buffer.len() < counted::COUNT + length {
            return Ok(None);
        }
        self.buffer.drain(..counted::COUNT);
        let body: Vec<u8> = self.buffer.drain(..length).collect();
        counted::read(text(&body)?).map(Some)
    }
}

/// Bytes as text: without a NUL, at which most peers would stop to read.
fn text(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains('\0'))
        .ok_or(Error::Malformed(Malformed::NotText))
}

/// A sentence as one field can carry it: line ends become spaces.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    let text = text.trim_matches([' ', '\n', '\r']);
    if text.contains('\n') {
        Cow::Owned(text.replace('\n', " "))
    } else {
        Cow::Borrowed(text)
    }
}
