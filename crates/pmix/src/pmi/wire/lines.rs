//! The encoding of PMI-1: `cmd=NAME key=value ...\n`, and `mcmd=NAME\nkey=value\n...endcmd\n`.
//!
//! The grammar is that of MPICH's `pmi-1.1.txt`. We settle points that it leaves open as follows:
//!
//! - A word without `=` belongs to the value before it (`msg=no such key`), because peers write such messages.
//! - The value of a free-text key (`msg`, `message`, `errmsg`) extends to the end of its line, `=` signs included.
//!
//! In the multi-line form, every line is one field and its value extends to the end of the line. A line without `=` belongs to
//! the value before it, because the arguments of a program may contain line feeds.

use super::{Form, Message};
use crate::pmi::{Bound, Error, Malformed};

/// Keys with a sentence as value, which extends to the end of the line.
const FREE_TEXT: [&str; 3] = ["msg", "message", "errmsg"];

pub(super) const END_OF_MULTI: &[u8] = b"endcmd";

/// Returns the bytes of a command, without checking that a reader decodes the same.
pub(super) fn write(message: &Message) -> Result<Vec<u8>, Error> {
    let (start, between, end, bound) = match message.form {
        Form::Multi => ("mcmd=", '\n', "\nendcmd\n", Bound::Multi),
        Form::Line | Form::Counted => ("cmd=", ' ', "\n", Bound::Command),
    };
    let mut text = format!("{start}{}", message.name);
    for (key, value) in &message.fields {
        text.push(between);
        text.push_str(key);
        text.push('=');
        text.push_str(value);
    }
    text.push_str(end);
    bound.check(text.len())?;
    Ok(text.into_bytes())
}

/// Parses one line of a multi-line command.
pub(super) fn read_field(message: &mut Message, text: &str) -> Result<(), Error> {
    match text.split_once('=') {
        Some(("", _)) => Err(Error::Malformed(Malformed::NoKey)),
        Some((key, value)) => message.push(key, value.to_owned()),
        None => message.push_keyless('\n', text),
    }
}

/// Parses a command in the one-line form, without its line feed.
pub(super) fn read(text: &str) -> Result<Message, Error> {
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
                // Spaces between the name of the command and its first field are ignored; a word there is an error.
                if !(word.is_empty() && message.fields.is_empty()) {
                    message.push_keyless(' ', word)?;
                }
                rest = after;
                continue;
            }
        };
        if FREE_TEXT.contains(&key) {
            let value = current.split_once('=').map_or("", |(_, value)| value);
            message.push(key, value.to_owned())?;
            break;
        }
        message.push(key, value.to_owned())?;
        rest = after;
    }
    for (_, value) in &mut message.fields {
        value.truncate(value.trim_end_matches(' ').len());
    }
    Ok(message)
}

/// Splits off the text before the next space; the second part is the text after it, `None` without a space.
fn split_word(text: &str) -> (&str, Option<&str>) {
    match text.split_once(' ') {
        Some((word, rest)) => (word, Some(rest)),
        None => (text, None),
    }
}
