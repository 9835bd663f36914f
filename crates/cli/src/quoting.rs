//! Texts in lines of words, quoted as in a shell: files of apps and of options, and settings that are commands.
//!
//! `#` at the start of a word begins a comment, and `\` at the end of a line joins the next one to it. Single and double quotes
//! work as in a shell, but nothing is substituted.

use std::{ffi::OsString, os::unix::ffi::OsStringExt};

/// The words of a line, and the number of the line where they begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) words: Vec<OsString>,
}

/// What is open at the end of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Open {
    #[error("the quote {0} is never closed")]
    Quote(char),
    #[error("the last line ends in `\\`, but nothing follows")]
    Continuation,
}

/// Splits a text into lines, and each line into words. An error comes with the number of its first line.
pub(crate) fn lines(text: &[u8]) -> Result<Vec<Line>, (usize, Open)> {
    let mut lines = Vec::new();
    let mut line = Line::default();
    // `None` between words: an empty word is written `''`.
    let mut word: Option<Vec<u8>> = None;
    let mut number = 1;
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if line.words.is_empty() && word.is_none() {
            line.number = number;
        }
        match byte {
            b'\n' => {
                line.words.extend(word.take().map(OsString::from_vec));
                if !line.words.is_empty() {
                    lines.push(std::mem::take(&mut line));
                }
                number += 1;
            }
            b'\r' if bytes.peek() == Some(&b'\n') => {}
            b' ' | b'\t' | b'\r' => line.words.extend(word.take().map(OsString::from_vec)),
            b'#' if word.is_none() => while bytes.next_if(|byte| *byte != b'\n').is_some() {},
            b'\\' => match bytes.next() {
                None => return Err((number, Open::Continuation)),
                Some(b'\n') => number += 1,
                Some(b'\r') if bytes.next_if_eq(&b'\n').is_some() => number += 1,
                Some(byte) => word.get_or_insert_default().push(byte),
            },
            b'\'' | b'"' => {
                let began = number;
                let word = word.get_or_insert_default();
                loop {
                    match bytes.next() {
                        None => return Err((began, Open::Quote(char::from(byte)))),
                        Some(end) if end == byte => break,
                        Some(b'\\') if byte == b'"' => {
                            // As in a shell, a backslash in double quotes escapes only what would be special there.
                            match bytes
                                .next_if(|next| matches!(next, b'"' | b'\\' | b'$' | b'`' | b'\n'))
                            {
                                Some(b'\n') => number += 1,
                                Some(escaped) => word.push(escaped),
                                None => word.push(b'\\'),
                            }
                        }
                        Some(inner) => {
                            number += usize::from(inner == b'\n');
                            word.push(inner);
                        }
                    }
                }
            }
            _ => word.get_or_insert_default().push(byte),
        }
    }
    line.words.extend(word.map(OsString::from_vec));
    if !line.words.is_empty() {
        lines.push(line);
    }
    Ok(lines)
}

/// Returns a text that a POSIX shell, and [`lines`], read as this word.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns a line that a POSIX shell, and [`lines`], read as these words.
pub(crate) fn joined<T: AsRef<str>>(words: &[T]) -> String {
    let words = words.iter().map(|word| quoted(word.as_ref()));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_quoted_is_read_again(words in proptest::collection::vec("(?s).{0,8}", 1..5)) {
            let read = super::lines(super::joined(&words).as_bytes()).unwrap();
            let read: Vec<_> = read.into_iter().flat_map(|line| line.words).collect();
            let words: Vec<std::ffi::OsString> = words.iter().map(Into::into).collect();
            prop_assert_eq!(read, words);
        }
    }

    fn shown(text: &str) -> String {
        match super::lines(text.as_bytes()) {
            Ok(lines) => lines
                .iter()
                .map(|line| {
                    let words: Vec<_> = line
                        .words
                        .iter()
                        .map(|word| format!("<{}>", word.display()))
                        .collect();
                    format!("{}:{}", line.number, words.concat())
                })
                .collect::<Vec<_>>()
                .join(" "),
            Err((number, problem)) => format!("{number}: {problem}"),
        }
    }

    #[test]
    fn lines_are_split_like_a_shell_does() {
        let cases = [
            ("", ""),
            ("# nothing\n\n  \t\n", ""),
            ("-n 2 ./a x\n-n 1 ./b", "1:<-n><2><./a><x> 2:<-n><1><./b>"),
            ("./a # rest\n", "1:<./a>"),
            ("./a b#c\n", "1:<./a><b#c>"),
            ("-n 1 \\\n  echo 'b c'\n./d", "1:<-n><1><echo><b c> 3:<./d>"),
            ("a\\\nb", "1:<ab>"),
            ("'a'\"b\"c ''", "1:<abc><>"),
            (r#""a\"b\c" \$x"#, r#"1:<a"b\c><$x>"#),
            ("'a\nb' c\nd", "1:<a\nb><c> 3:<d>"),
            ("a\r\nb\r\n", "1:<a> 2:<b>"),
            ("\n'a", "2: the quote ' is never closed"),
            ("a\n\"b\n", "2: the quote \" is never closed"),
            ("a\\", "1: the last line ends in `\\`, but nothing follows"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(text), expected, "{text:?}");
        }
    }
}
