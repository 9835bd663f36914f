//! The encoding of PMI-2: six characters with the length of the rest, then `cmd=NAME;key=value;...`.
//!
//! - The count is a decimal number padded with spaces on either side: both occur in clients.
//! - `;` in a value is written twice. MPICH 4.1 and later write it once; therefore text without `=` belongs to the value before
//!   it, with the `;`.
//! - The last `;` may be missing.

use super::{Form, Message};
use crate::pmi::{Bound, Error, Malformed};

/// Length of the count in characters.
pub(super) const COUNT: usize = 6;

/// Returns the bytes of a command, without checking that a reader decodes the same.
pub(super) fn write(message: &Message) -> Result<Vec<u8>, Error> {
    let mut text = format!("cmd={};", message.name);
    for (key, value) in &message.fields {
        text.push_str(key);
        text.push('=');
        text.push_str(&value.replace(';', ";;"));
        text.push(';');
    }
    Bound::Counted.check(text.len())?;
    Ok(format!("{:6}{text}", text.len()).into_bytes())
}

/// Parses the count in front of a command.
pub(super) fn read_count(count: &[u8]) -> Result<usize, Error> {
    std::str::from_utf8(count)
        .ok()
        .map(|text| text.trim_matches(' '))
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .ok_or(Error::Malformed(Malformed::NoCount))
}

/// Parses a command without its count.
pub(super) fn read(text: &str) -> Result<Message, Error> {
    let rest = text
        .strip_prefix("cmd=")
        .ok_or(Error::Malformed(Malformed::NoCommand))?;
    let (name, mut rest) = rest.split_once(';').unwrap_or((rest, ""));
    let mut message = Message::new(Form::Counted, name);
    while !rest.is_empty() {
        let end = rest.find(['=', ';']).unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        match after.strip_prefix('=') {
            Some(_) if key.is_empty() => return Err(Error::Malformed(Malformed::NoKey)),
            Some(after) => {
                let (value, after) = value(after);
                message.push(key, value)?;
                rest = after;
            }
            None => {
                let (value, after) = value(rest);
                message.push_keyless(';', &value)?;
                rest = after;
            }
        }
    }
    Ok(message)
}

/// Splits off the value before the next single `;`, and returns it unescaped with the text after the `;`.
fn value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut rest = text;
    while let Some((part, after)) = rest.split_once(';') {
        value.push_str(part);
        match after.strip_prefix(';') {
            Some(after) => {
                value.push(';');
                rest = after;
            }
            None => return (value, after),
        }
    }
    value.push_str(rest);
    (value, "")
}
