//! Form B of the MPI standard: a file with one app per line, for `mpiexec -configfile` and `mpirun --app`.
//!
//! A line contains what would be between two `:` on a command line: options, a program, its arguments. `#` at the start of a
//! word begins a comment, and `\` at the end of a line joins the next one to it. Single and double quotes work as in a
//! shell, but nothing is substituted.

use std::{ffi::OsString, os::unix::ffi::OsStringExt, path::Path};

use super::{
    Error, Personality, RunLine,
    compat::{Native, Translation, translate},
    error::{AppFileProblem, FileKind},
    read_segments,
};

/// The largest app file, in bytes.
pub(super) const MAX_FILE: u64 = 1 << 24;

/// The words of one app, and the number of the line where they begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) words: Vec<OsString>,
}

/// Replaces the apps of the command line, which then has no program, by those of a file.
pub(super) fn expand(line: &RunLine, path: &Path, text: &[u8]) -> Result<RunLine, Error> {
    let bad = |number, problem| Error::BadAppFile {
        what: FileKind::AppFile,
        path: path.to_owned(),
        line: number,
        problem,
    };
    let lines = split(text).map_err(|(number, problem)| bad(number, problem))?;
    if lines.is_empty() {
        return Err(bad(1, AppFileProblem::NoProgram));
    }
    let native = Native::of_run();
    let in_line = |number, error| bad(number, AppFileProblem::Line(Box::new(error)));
    for Line { number, words } in &lines {
        let segments = match translate(words, line.personality, &native) {
            Ok(Translation { segments, .. }) => segments,
            Err(error) => return Err(in_line(*number, error)),
        };
        if segments
            .iter()
            .any(|segment| segment.options.iter().any(|option| option.flag == "app"))
        {
            return Err(bad(*number, AppFileProblem::Nested));
        }
        if segments.iter().any(|segment| segment.program.is_empty()) {
            return Err(bad(*number, AppFileProblem::NoProgram));
        }
        // Parsed separately only to find the line of an error.
        if let Err(error) = read_segments(segments, Vec::new(), line.personality) {
            return Err(in_line(*number, error));
        }
    }
    // Parsed together, so that options that apply to every app reach every line.
    let words = lines
        .iter()
        .map(|line| line.words.as_slice())
        .collect::<Vec<_>>();
    let words: Vec<OsString> = words.join(&OsString::from(":"));
    let Translation {
        mut segments,
        ignored,
        ..
    } = translate(&words, line.personality, &native)?;
    for (position, segment) in segments.iter_mut().enumerate() {
        let job = if position == 0 {
            line.job.typed.as_slice()
        } else {
            &[]
        };
        let app = line
            .apps
            .first()
            .map(|app| app.typed.as_slice())
            .unwrap_or_default();
        let before = job.iter().filter(|option| option.flag != "app").chain(app);
        let before: Vec<_> = before.cloned().collect();
        segment.options.splice(0..0, before);
    }
    let ignored = line.ignored.iter().cloned().chain(ignored).collect();
    let personality: Personality = line.personality;
    read_segments(segments, ignored, personality)
}

/// Splits a text into lines, and each line into words. An error comes with the number of its first line.
pub(super) fn split(text: &[u8]) -> Result<Vec<Line>, (usize, AppFileProblem)> {
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
                None => return Err((number, AppFileProblem::OpenContinuation)),
                Some(b'\n') => number += 1,
                Some(b'\r') if bytes.next_if_eq(&b'\n').is_some() => number += 1,
                Some(byte) => word.get_or_insert_default().push(byte),
            },
            b'\'' | b'"' => {
                let began = number;
                let word = word.get_or_insert_default();
                loop {
                    match bytes.next() {
                        None => return Err((began, AppFileProblem::OpenQuote(char::from(byte)))),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match split(text.as_bytes()) {
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
