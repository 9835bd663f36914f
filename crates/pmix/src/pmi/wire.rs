//! From bytes to commands and back: `cmd=NAME key=value ...\n`, and `mcmd=NAME\nkey=value\n...endcmd\n`.
//!
//! The grammar is that of MPICH's `pmi-1.1.txt`. Two points that it leaves open are settled like this:
//!
//! - A word without `=` belongs to the value before it (`msg=no such key`), because peers write such messages.
//! - The value of a free-text key (`msg`, `message`, `errmsg`) reaches to the end of its line, `=` signs included.
//!
//! In the multi-line form every line is one field and its value reaches to the end of the line.

use std::{borrow::Cow, collections::VecDeque};

use crate::pmi::{Bound, Error, Malformed};

/// Bytes of one command, line ends included. The longest one that MPICH 5 sends by itself is a `put` of a value of
/// 1,024 bytes; a spawn carries the arguments of a program.
pub const MAX_COMMAND: usize = 64 * 1024;

/// Fields of one command. Only a spawn has more than five.
pub const MAX_FIELDS: usize = 4096;

/// Keys whose value is a sentence: it reaches to the end of the line.
const FREE_TEXT: [&str; 3] = ["msg", "message", "errmsg"];

const END_OF_MULTI: &[u8] = b"endcmd";

/// The two ways of writing a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `cmd=NAME key=value ...`, one line.
    Line,
    /// `mcmd=NAME`, one field a line, `endcmd`.
    Multi,
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

    /// The bytes of the command.
    ///
    /// # Errors
    ///
    /// `Malformed` when a name or value contains a separator, so that the other side would read something else;
    /// `Limit` when it is longer than a reader accepts.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let (start, between, end) = match self.form {
            Form::Line => ("cmd=", ' ', "\n"),
            Form::Multi => ("mcmd=", '\n', "\nendcmd\n"),
        };
        let mut text = format!("{start}{}", self.name);
        for (key, value) in &self.fields {
            text.push(between);
            text.push_str(key);
            text.push('=');
            text.push_str(value);
        }
        text.push_str(end);
        Bound::Command.check(text.len())?;
        // Reading it back is the definition of representable, and cheaper to be sure of than a second grammar.
        let mut framer = Framer::default();
        framer.push(text.as_bytes());
        match framer.next() {
            Ok(Some(read)) if read == *self && framer.is_empty() => Ok(text.into_bytes()),
            Err(limit @ Error::Limit { .. }) => Err(limit),
            _ => Err(Error::Malformed(Malformed::NotRepresentable)),
        }
    }
}

/// Cuts a stream of bytes into commands.
#[derive(Debug, Default)]
pub struct Framer {
    /// Bytes not yet consumed. No longer than [`MAX_COMMAND`] after `next` has returned `None`.
    buffer: VecDeque<u8>,
    /// How many bytes of `buffer` are known to hold no end of a line, so that a slow sender costs linear time.
    searched: usize,
    /// A multi-line command whose `endcmd` has not come yet, and its bytes so far.
    partial: Option<(Message, usize)>,
}

impl Framer {
    /// Takes bytes of the peer. Call [`Self::next`] until it returns `None` before giving more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
    }

    /// Whether nothing is left, not even a part of a command.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.partial.is_none()
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
        loop {
            let Some(line) = self.line()? else {
                return Ok(None);
            };
            let text =
                std::str::from_utf8(&line).map_err(|_| Error::Malformed(Malformed::NotText))?;
            match self.partial.take() {
                None if text.trim_matches(' ').is_empty() => {}
                None => {
                    if let Some(rest) = text.strip_prefix("mcmd=") {
                        self.partial = Some((Message::new(Form::Multi, rest), line.len() + 1));
                    } else {
                        return parse_line(text).map(Some);
                    }
                }
                Some((message, _)) if line == END_OF_MULTI => return Ok(Some(message)),
                Some((mut message, size)) => {
                    let size = size + line.len() + 1;
                    Bound::Command.check(size + END_OF_MULTI.len() + 1)?;
                    Bound::Fields.check(message.fields.len() + 1)?;
                    message.fields.push(parse_field(text)?);
                    self.partial = Some((message, size));
                }
            }
        }
    }

    /// The next line without its end.
    fn line(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let found = self
            .buffer
            .iter()
            .skip(self.searched)
            .position(|byte| *byte == b'\n');
        let Some(end) = found.map(|at| at + self.searched) else {
            self.searched = self.buffer.len();
            Bound::Command.check(self.buffer.len())?;
            return Ok(None);
        };
        Bound::Command.check(end + 1)?;
        self.searched = 0;
        let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
        line.pop();
        Ok(Some(line))
    }
}

/// One `key=value`.
fn parse_field(text: &str) -> Result<(String, String), Error> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(Error::Malformed(Malformed::NoKey)),
    }
}

/// A whole line of the one-line form, without its end.
fn parse_line(text: &str) -> Result<Message, Error> {
    let text = text.trim_matches(' ');
    let rest = text
        .strip_prefix("cmd=")
        .ok_or(Error::Malformed(Malformed::NoCommand))?;
    let (name, mut rest) = split_word(rest);
    let mut message = Message::new(Form::Line, name);
    while let Some(current) = rest {
        let (word, after) = split_word(current);
        let (key, value) = match word.split_once('=') {
            Some(("", _)) => return Err(Error::Malformed(Malformed::NoKey)),
            Some(field) => field,
            None => {
                match message.fields.last_mut() {
                    Some((_, value)) => {
                        value.push(' ');
                        value.push_str(word);
                    }
                    // Spaces between the name of the command and its first field are harmless, a word is not.
                    None if word.is_empty() => {}
                    None => return Err(Error::Malformed(Malformed::NoKey)),
                }
                rest = after;
                continue;
            }
        };
        Bound::Fields.check(message.fields.len() + 1)?;
        if FREE_TEXT.contains(&key) {
            let value = current.split_once('=').map_or("", |(_, value)| value);
            message.fields.push((key.to_owned(), value.to_owned()));
            break;
        }
        message.fields.push((key.to_owned(), value.to_owned()));
        rest = after;
    }
    for (_, value) in &mut message.fields {
        value.truncate(value.trim_end_matches(' ').len());
    }
    Ok(message)
}

/// The text up to the next space, and what follows the space if there is one.
fn split_word(text: &str) -> (&str, Option<&str>) {
    match text.split_once(' ') {
        Some((word, rest)) => (word, Some(rest)),
        None => (text, None),
    }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(bytes: &[u8]) -> Result<Vec<Message>, Error> {
        let mut framer = Framer::default();
        framer.push(bytes);
        let mut messages = Vec::new();
        while let Some(message) = framer.next()? {
            messages.push(message);
        }
        Ok(messages)
    }

    /// What a line means, one field a word.
    fn fields(line: &str) -> String {
        match parse(format!("{line}\n").as_bytes()) {
            Err(error) => error.to_string(),
            Ok(messages) => messages
                .iter()
                .map(|message| {
                    let fields: Vec<_> = message
                        .fields
                        .iter()
                        .map(|(key, value)| format!("{key}=[{value}]"))
                        .collect();
                    format!("{}: {}", message.name, fields.join(" "))
                })
                .collect::<Vec<_>>()
                .join(" | "),
        }
    }

    #[test]
    fn lines_mean_what_peers_mean_by_them() {
        for (line, expected) in [
            ("cmd=get_maxes", "get_maxes: "),
            (" cmd=get_maxes  ", "get_maxes: "),
            ("cmd=get  kvsname=a key=b ", "get: kvsname=[a] key=[b]"),
            ("cmd=put value=segments=9", "put: value=[segments=9]"),
            (
                "cmd=get_result rc=1 msg=no such key a=b",
                "get_result: rc=[1] msg=[no such key a=b]",
            ),
            (
                "cmd=lookup_name service=ocean  svc x=1",
                "lookup_name: service=[ocean  svc] x=[1]",
            ),
            ("cmd=put value=", "put: value=[]"),
            ("", ""),
            ("mcmd=spawn\narg1=a b=c \nendcmd", "spawn: arg1=[a b=c ]"),
            (
                "cmd",
                "malformed message: the line does not start with `cmd=` or `mcmd=`",
            ),
        ] {
            assert_eq!(fields(line), expected, "{line:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_back_is_not_written() {
        for value in ["a\nb", " a", "a ", "x a=b"] {
            let message = Message::new(Form::Line, "put")
                .with("value", value)
                .with("z", 1);
            let written = message.encode();
            let free = value == " a";
            assert_eq!(written.is_ok(), free, "{value:?}");
        }
        let long = Message::new(Form::Line, "put")
            .with("value", "x".repeat(MAX_COMMAND))
            .encode();
        assert!(matches!(
            long,
            Err(Error::Limit {
                which: Bound::Command,
                ..
            })
        ));
    }

    fn message() -> impl Strategy<Value = Message> {
        let key = "[a-z][a-zA-Z0-9_]{0,8}";
        let value = "[!-~]{0,20}( [!-<>-~]{1,5}){0,2}";
        (
            any::<bool>(),
            "[a-z_]{1,12}",
            prop::collection::vec((key, value), 0..6),
        )
            .prop_map(|(multi, name, fields)| {
                let form = if multi { Form::Multi } else { Form::Line };
                fields
                    .iter()
                    .filter(|(key, _)| !FREE_TEXT.contains(&key.as_str()))
                    .fold(Message::new(form, &name), |message, (key, value)| {
                        message.with(key, value)
                    })
            })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(messages in prop::collection::vec(message(), 1..5)) {
            let bytes: Vec<u8> = messages.iter().flat_map(|message| message.encode().unwrap()).collect();
            prop_assert_eq!(parse(&bytes).unwrap(), messages);
        }

        #[test]
        fn the_cuts_of_a_stream_do_not_matter(messages in prop::collection::vec(message(), 1..5), cut in 1_usize..9) {
            let bytes: Vec<u8> = messages.iter().flat_map(|message| message.encode().unwrap()).collect();
            let mut framer = Framer::default();
            let mut read = Vec::new();
            for part in bytes.chunks(cut) {
                framer.push(part);
                while let Some(message) = framer.next().unwrap() {
                    read.push(message);
                }
            }
            prop_assert_eq!(read, messages);
            prop_assert!(framer.is_empty());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn what_was_read_can_be_written_again(text in "(cmd=[ a-z=]{0,30}\n|mcmd=x\n([a-z= ]{0,9}\n){0,3}endcmd\n){1,3}") {
            if let Ok(messages) = parse(text.as_bytes()) {
                for message in messages {
                    let again = parse(&message.encode().unwrap()).unwrap();
                    prop_assert_eq!(again, vec![message]);
                }
            }
        }
    }
}
