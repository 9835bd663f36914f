//! The log of this crate: its parts, what it may show of a value, and the lines of daemons on other nodes.
//!
//! An event names a part as its target, so that filters do not depend on our modules. Values are shown by the name of their
//! variant only (`Name`): their contents may be secret, such as environments, input and output of ranks.
//!
//! The daemon of another node writes its lines to its standard error, behind [`MARK`]. They reach the launcher through the
//! command that started the daemon, whose other output is evidence if the daemon does not connect. `Sifter` separates them.

use std::fmt::{self, Write as _};

/// Starting daemons on other nodes.
pub const BOOTSTRAP: &str = "bootstrap";
/// The process that waits for the controller, or for the daemon of another node.
pub const GUARDIAN: &str = "guardian";
/// The controller: what it gets from fronts and daemons, and what it sends to them.
pub const CONTROLLER: &str = "controller";
/// The daemon of a node: its ranks, and its messages.
pub const DAEMON: &str = "daemon";
/// The connections between nodes.
pub const TREE: &str = "tree";

/// The beginning of a line of a daemon's log on its standard error.
pub const MARK: &str = "@rally-log ";
/// Maximum length of a line of the log, in bytes, with its mark and its line feed. A pipe takes so many bytes in one piece.
pub const LINE_MAX: usize = 4096;

/// What daemons on other nodes log.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    pub filter: String,
    /// Writes a line that a daemon has logged. It must not block.
    pub pass_on: fn(&[u8]),
}

/// Shows the name of a value's variant, and nothing of its contents.
pub(crate) struct Name<'a>(pub(crate) &'a dyn fmt::Debug);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Passes on an identifier, and fails on whatever follows it, so that the rest is not formatted.
        struct Identifier<'a, 'b>(&'a mut fmt::Formatter<'b>);
        impl fmt::Write for Identifier<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                let is_part = |character: char| character.is_alphanumeric() || character == '_';
                match text.find(|character| !is_part(character)) {
                    None => self.0.write_str(text),
                    Some(end) => {
                        self.0.write_str(&text[..end])?;
                        Err(fmt::Error)
                    }
                }
            }
        }
        // An error is the end of the identifier.
        let _ = write!(Identifier(f), "{:?}", self.0);
        Ok(())
    }
}

/// What is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reading {
    /// The beginning of a line, which may become a mark, or a line of the log.
    #[default]
    Start,
    /// The rest of another line.
    Other,
    /// The rest of a line of the log that is too long.
    Excess,
}

/// Separates the lines of a daemon's log from what else a start command prints.
#[derive(Debug, Default)]
pub(crate) struct Sifter {
    reading: Reading,
    line: Vec<u8>,
}

impl Sifter {
    /// Takes bytes that were read. Passes each line of the log to `log`, without mark and line feed, and returns the rest.
    pub(crate) fn take(&mut self, bytes: &[u8], mut log: impl FnMut(&[u8])) -> Vec<u8> {
        let mut rest = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let ends = piece.ends_with(b"\n");
            match self.reading {
                Reading::Start => self.take_start(piece, &mut rest, &mut log),
                Reading::Other => rest.extend(piece),
                Reading::Excess => {}
            }
            if ends {
                self.reading = Reading::Start;
            }
        }
        rest
    }

    fn take_start(&mut self, piece: &[u8], rest: &mut Vec<u8>, log: &mut impl FnMut(&[u8])) {
        let room = LINE_MAX - self.line.len();
        self.line.extend(&piece[..piece.len().min(room)]);
        match self.line.strip_prefix(MARK.as_bytes()) {
            Some(text) => {
                let is_long = self.line.len() == LINE_MAX;
                if is_long || text.ends_with(b"\n") {
                    log(text.trim_ascii_end());
                    self.line.clear();
                    self.reading = Reading::Excess;
                }
            }
            None if MARK.as_bytes().starts_with(&self.line) => {}
            None => {
                rest.append(&mut self.line);
                rest.extend(&piece[piece.len().min(room)..]);
                self.reading = Reading::Other;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use dvm::proto::{FromFront, ToFront};

    use super::*;

    #[test]
    fn only_the_name_of_a_value_is_shown() {
        let values: [(&dyn fmt::Debug, &str); 5] = [
            (&FromFront::Stdin(Bytes::from_static(b"secret")), "Stdin"),
            (&FromFront::StdinEof, "StdinEof"),
            (&ToFront::Internal("secret".to_owned()), "Internal"),
            (&Box::new(Some("secret")), "Some"),
            (&"secret", ""),
        ];
        for (value, name) in values {
            assert_eq!(Name(value).to_string(), name);
        }
    }

    #[test]
    fn lines_of_the_log_are_separated_however_they_are_cut() {
        let text = format!(
            "Welcome\n{MARK}one\n@rally need 3\n{MARK}\n@rally-lo\n{MARK}{}\n{MARK}end\nlast",
            "x".repeat(LINE_MAX)
        );
        for cut in [1, 2, 7, 100, 5000, 20_000] {
            let mut sifter = Sifter::default();
            let (mut rest, mut log) = (Vec::new(), Vec::new());
            for piece in text.as_bytes().chunks(cut) {
                rest.extend(sifter.take(piece, |line| {
                    log.push(String::from_utf8_lossy(line).into_owned());
                }));
            }
            let long = "x".repeat(LINE_MAX - MARK.len());
            assert_eq!(log, ["one", "", &long, "end"], "{cut}");
            assert_eq!(
                String::from_utf8(rest).unwrap(),
                "Welcome\n@rally need 3\n@rally-lo\nlast",
                "{cut}"
            );
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut sifter = Sifter::default();
        // Far more than a line may have.
        for _ in 0..LINE_MAX {
            let rest = sifter.take(MARK.as_bytes(), |_| {});
            assert!(rest.is_empty());
            assert!(sifter.line.len() <= LINE_MAX);
        }
    }
}
