//! Foreign text on its way to a terminal: names of files, values of options and variables, output of ranks. Such text
//! must not move the cursor, change colors, trigger a reply of the terminal, or change the direction of the text.
//!
//! Every message, and every other text that we print for people, passes through here once, where it is assembled.
//! Callers do not escape text before that.

use std::{borrow::Cow, fmt::Write};

/// Returns true for control characters and for characters that change the direction of the text.
fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes a single line. A line feed is escaped as well, because it would start a line that looks like ours.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |_| true,
        |character| character.escape_default().to_string(),
    )
}

/// Escapes lines of our own that may contain foreign text. Line feeds stay.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |character| character != '\n',
        |character| character.escape_default().to_string(),
    )
}

/// Escapes JSON. Any character that serde left unescaped is inside a string, where an escape is valid.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |character| character != '\n',
        |character| {
            let mut units = [0; 2];
            let mut escape = String::new();
            for unit in character.encode_utf16(&mut units) {
                // A write to a string cannot fail.
                let _ = write!(escape, "\\u{unit:04x}");
            }
            escape
        },
    )
}

fn escaped(
    text: &str,
    concerned: impl Fn(char) -> bool,
    escape: impl Fn(char) -> String,
) -> Cow<'_, str> {
    let is_escaped = |character| is_harmful(character) && concerned(character);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + text.len() / 4);
    for character in text.chars() {
        if is_escaped(character) {
            shown.push_str(&escape(character));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_shown() {
        for (text, one, several, in_json) in [
            ("plain \u{fc} \u{6f22} `x`", None, None, None),
            (
                "\u{1b}[2J",
                Some(r"\u{1b}[2J"),
                Some(r"\u{1b}[2J"),
                Some(r"\u001b[2J"),
            ),
            ("a\nb", Some(r"a\nb"), None, None),
            (
                "a\r\tb",
                Some(r"a\r\tb"),
                Some(r"a\r\tb"),
                Some(r"a\u000d\u0009b"),
            ),
            (
                "\u{7f}\u{9b}31m",
                Some(r"\u{7f}\u{9b}31m"),
                Some(r"\u{7f}\u{9b}31m"),
                Some(r"\u007f\u009b31m"),
            ),
            (
                "a\u{202e}b",
                Some(r"a\u{202e}b"),
                Some(r"a\u{202e}b"),
                Some(r"a\u202eb"),
            ),
        ] {
            assert_eq!(line(text), one.unwrap_or(text));
            assert_eq!(lines(text), several.unwrap_or(text));
            assert_eq!(json(text), in_json.unwrap_or(text));
        }
    }
}
