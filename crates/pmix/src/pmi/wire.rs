//! Conversion between bytes and commands, in the two encodings that PMI has.
//!
//! - PMI-1, [`Form::Line`] and [`Form::Multi`]: lines of text, in `lines`.
//! - PMI-2, [`Form::Counted`]: the length in six characters, then fields that end with `;`, in `counted`.
//!
//! A connection begins with lines. When both sides have agreed on PMI-2, [`Framer::count`] switches to counted commands.

mod counted;
mod lines;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::VecDeque};

use crate::pmi::{Bound, Error, Malformed};

/// Maximum number of bytes in a command of one line, line feed included. The longest one that MPICH 5 itself sends is a `put` of
/// a value of 1,024 bytes.
pub const MAX_COMMAND: usize = 64 * 1024;

/// Maximum number of bytes in a command of several lines: one part of a spawn, with the arguments of a program.
pub const MAX_MULTI: usize = 1024 * 1024;

/// Maximum number of bytes in a counted command without its count, which has six digits.
pub const MAX_COUNTED: usize = 999_999;

/// Maximum number of fields in one command. Only a spawn has more than five.
pub const MAX_FIELDS: usize = 4096;

/// Encoding of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `cmd=NAME key=value ...`, one line.
    Line,
    /// `mcmd=NAME`, one field a line, `endcmd`.
    Multi,
    /// `    23cmd=NAME;key=value;`
    Counted,
}

/// A command with its name and its fields in wire order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    form: Form,
    name: String,
    fields: Vec<(String, String)>,
}

impl Message {
    /// Creates a command without fields.
    #[must_use]
    pub fn new(form: Form, name: &str) -> Self {
        Self {
            form,
            name: name.to_owned(),
            fields: Vec::new(),
        }
    }

    /// Returns the command with a field appended. A free-text field must be the last one.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.fields.push((key.to_owned(), value.to_string()));
        self
    }

    /// Returns the command with a field appended if there is a value.
    #[must_use]
    pub(crate) fn with_some(self, key: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Returns the encoding of the command.
    #[must_use]
    pub const fn form(&self) -> Form {
        self.form
    }

    /// Returns the name of the command, such as `get_maxes`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value of the first field with this key.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the value of a required field.
    pub(crate) fn need(&self, key: &'static str) -> Result<&str, Error> {
        self.field(key)
            .ok_or(Error::Malformed(Malformed::Missing(key)))
    }

    /// Returns the value of a required field as a number of type `T`.
    pub(crate) fn number<T: std::str::FromStr>(&self, key: &'static str) -> Result<T, Error> {
        self.need(key)?
            .parse()
            .map_err(|_| Error::Malformed(Malformed::NotANumber(key)))
    }

    /// Returns the value of an optional field that must be `TRUE` or `FALSE`.
    pub(crate) fn boolean(&self, key: &'static str) -> Result<Option<bool>, Error> {
        match self.field(key) {
            None => Ok(None),
            Some("TRUE") => Ok(Some(true)),
            Some("FALSE") => Ok(Some(false)),
            Some(_) => Err(Error::Malformed(Malformed::NotABoolean(key))),
        }
    }

    /// Returns the fields in wire order.
    pub(crate) fn fields(&self) -> &[(String, String)] {
        &self.fields
    }

    /// Returns the bytes of the command.
    ///
    /// # Errors
    ///
    /// `Malformed` when a name or value contains a separator, so that the peer would decode something else. `Limit` when the
    /// command is longer than a reader accepts.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let (bytes, mut framer) = match self.form {
            Form::Line | Form::Multi => (lines::write(self)?, Framer::default()),
            Form::Counted => (counted::write(self)?, Framer::counted()),
        };
        // A command is representable if reading it back gives the same command. This is safer than a second grammar.
        framer.push(&bytes);
        match framer.next() {
            Ok(Some(read)) if read == *self && framer.is_empty() => Ok(bytes),
            Err(limit @ Error::Limit { .. }) => Err(limit),
            _ => Err(Error::Malformed(Malformed::NotRepresentable)),
        }
    }

    /// Appends a field, within the bound.
    fn push(&mut self, key: &str, value: String) -> Result<(), Error> {
        Bound::Fields.check(self.fields.len() + 1)?;
        self.fields.push((key.to_owned(), value));
        Ok(())
    }

    /// Appends text without a key to the value before it, together with the separator between them.
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

/// Current encoding of the received commands.
#[derive(Debug)]
enum Cut {
    Lines {
        /// An incomplete command of several lines and its size in bytes so far; `None` between commands. In a box, because
        /// few commands have several lines.
        partial: Option<Box<(Message, usize)>>,
    },
    Counted,
}

/// Splitter of a byte stream into commands.
#[derive(Debug)]
pub struct Framer {
    /// Unconsumed bytes: at most those of one command after `next` has returned `None`.
    buffer: VecDeque<u8>,
    /// Number of bytes at the start of `buffer` known to contain no line feed, so that a slow sender costs linear time.
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
    /// Creates a framer that expects counted commands from the start.
    #[must_use]
    pub fn counted() -> Self {
        let mut framer = Self::default();
        framer.count();
        framer
    }

    /// Switches to counted commands for all bytes after the commands returned so far.
    pub fn count(&mut self) {
        self.searched = 0;
        self.cut = Cut::Counted;
    }

    /// Appends received bytes. Call [`Self::next`] until it returns `None` before appending more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
    }

    /// Returns true if no bytes remain, not even part of a command.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && !matches!(self.cut, Cut::Lines { partial: Some(_) })
    }

    /// Returns the next complete command, or `None` until more bytes arrive.
    ///
    /// # Errors
    ///
    /// `Malformed` and `Limit`. The next command cannot be found after an error: close the connection.
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
            match partial.take().map(|partial| *partial) {
                None if text.trim_matches(' ').is_empty() => {}
                None => {
                    if let Some(name) = text.strip_prefix("mcmd=") {
                        let message = Message::new(Form::Multi, name);
                        *partial = Some(Box::new((message, line.len() + 1)));
                    } else {
                        return lines::read(text).map(Some);
                    }
                }
                Some((message, _)) if line == lines::END_OF_MULTI => return Ok(Some(message)),
                Some((mut message, size)) => {
                    let size = size + line.len() + 1;
                    Bound::Multi.check(size + lines::END_OF_MULTI.len() + 1)?;
                    lines::read_field(&mut message, text)?;
                    *partial = Some(Box::new((message, size)));
                }
            }
        }
    }

    /// Returns the next line without its end.
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

/// Converts bytes to text. Rejects a NUL, because most peers would stop reading at it.
fn text(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains('\0'))
        .ok_or(Error::Malformed(Malformed::NotText))
}

/// Converts a sentence to one line for a single field: line ends become spaces.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    let text = text.trim_matches([' ', '\n', '\r']);
    if text.contains('\n') {
        Cow::Owned(text.replace('\n', " "))
    } else {
        Cow::Borrowed(text)
    }
}
