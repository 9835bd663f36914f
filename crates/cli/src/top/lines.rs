//! What a job has printed, as lines of text. The job may have printed anything; nothing of it but text is kept.
//!
//! Control characters do what a user expects of them in a line: a carriage return begins it again, as progress bars do, tabs and
//! backspaces move, and "erase to the end of the line" erases. Colors and all other escape sequences are dropped.

use std::collections::VecDeque;

use message::visible;
use vte::{Params, Parser, Perform};

/// Lines that are kept. The first ones are dropped.
pub(super) const LINES_MAX: usize = 5_000;
/// Characters of a line that are kept. The rest of the line is dropped.
pub(super) const LINE_MAX: usize = 2_000;
/// Distance of tab stops.
const TAB: usize = 8;

/// The last lines of an output.
#[derive(Default)]
pub(super) struct Lines {
    parser: Parser,
    text: Text,
}

#[derive(Debug, Default)]
struct Text {
    lines: VecDeque<String>,
    /// The line that has not ended.
    last: Vec<char>,
    /// Where the next character goes.
    column: usize,
    /// Number of lines that were dropped.
    dropped: usize,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lines").field(&self.text).finish()
    }
}

impl Lines {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.parser.advance(&mut self.text, bytes);
    }

    /// Returns the number of the line after the last one. Lines that were dropped count.
    pub(super) fn end(&self) -> usize {
        let unfinished = usize::from(!self.text.last.is_empty());
        self.text.dropped + self.text.lines.len() + unfinished
    }

    /// Returns the number of the first line that is kept.
    pub(super) const fn start(&self) -> usize {
        self.text.dropped
    }

    /// Returns `count` lines from number `first` on, as far as they are kept, without what a terminal would act on.
    pub(super) fn shown(&self, first: usize, count: usize) -> Vec<String> {
        let last: String = self.text.last.iter().collect();
        let unfinished = (!last.is_empty()).then_some(last);
        let skipped = first.saturating_sub(self.text.dropped);
        let all = self.text.lines.iter().chain(unfinished.as_ref());
        all.skip(skipped)
            .take(count)
            .map(|line| visible::line(line).into_owned())
            .collect()
    }
}

impl Perform for Text {
    fn print(&mut self, character: char) {
        if self.column >= LINE_MAX || character.is_control() {
            return;
        }
        match self.last.get_mut(self.column) {
            Some(place) => *place = character,
            None => {
                self.last.resize(self.column, ' ');
                self.last.push(character);
            }
        }
        self.column += 1;
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\n' => {
                let line: String = std::mem::take(&mut self.last).into_iter().collect();
                self.lines.push_back(line);
                self.column = 0;
                if self.lines.len() > LINES_MAX {
                    self.lines.pop_front();
                    self.dropped += 1;
                }
            }
            b'\r' => self.column = 0,
            b'\t' => self.column = ((self.column / TAB + 1) * TAB).min(LINE_MAX),
            0x08 => self.column = self.column.saturating_sub(1),
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, _: &[u8], _: bool, action: char) {
        let number = params
            .iter()
            .next()
            .and_then(|first| first.first().copied());
        match (action, number) {
            ('K', None | Some(0)) => self.last.truncate(self.column),
            ('K', Some(2)) => self.last.clear(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<String> {
        let mut lines = Lines::default();
        // Byte by byte, as it may come.
        for byte in bytes {
            lines.add(&[*byte]);
        }
        lines.shown(0, usize::MAX)
    }

    #[test]
    fn only_text_is_kept() {
        for (bytes, expected) in [
            (&b"one\ntwo\n"[..], &["one", "two"][..]),
            (b"no end", &["no end"]),
            (b"a\r\nb\r\n", &["a", "b"]),
            (b"10%\r20%\r100%\n", &["100%"]),
            (b"a long line\r\x1b[Kshort\n", &["short"]),
            (b"gone\x1b[2K\rnew\n", &["new"]),
            (b"a\tb\n", &["a       b"]),
            (b"ab\x08c\n", &["ac"]),
            (b"\x1b[31mred\x1b[0m\n", &["red"]),
            (b"\x1b]0;title\x07text\x1b]52;c;AAAA\x1b\\\n", &["text"]),
            (b"\x1b[2J\x1b[H\x1b[?1049l\x1bc\x1b[6nx\n", &["x"]),
            (b"\x1bP1$r\x1b\\\x1b_app\x1b\\y\n", &["y"]),
            (b"bell\x07 nul\0 shift\x0e\n", &["bell nul shift"]),
            ("Grüße 漢字\n".as_bytes(), &["Grüße 漢字"]),
            (b"\xff\xfe\n", &["\u{fffd}\u{fffd}"]),
            ("a\u{202e}b\u{9b}31m\n".as_bytes(), &[r"a\u{202e}b31m"]),
            (b"\n\n", &["", ""]),
        ] {
            let found = lines(bytes);
            assert_eq!(found, expected, "{:?}", String::from_utf8_lossy(bytes));
            let found = found.concat();
            assert!(!found.contains(char::is_control), "{found:?}");
        }
    }

    #[test]
    fn the_last_lines_and_the_beginning_of_each_are_kept() {
        let mut all = Lines::default();
        for number in 0..LINES_MAX + 10 {
            all.add(format!("line {number}\n").as_bytes());
        }
        assert_eq!((all.start(), all.end()), (10, LINES_MAX + 10));
        assert_eq!(all.shown(10, 2), ["line 10", "line 11"]);
        assert_eq!(all.shown(0, 1), ["line 10"]);
        assert_eq!(all.shown(all.end(), 5), Vec::<String>::new());
        let long = "x".repeat(LINE_MAX + 5) + "\t\tz\nnext";
        all.add(long.as_bytes());
        assert_eq!(all.shown(all.end() - 2, 1)[0].len(), LINE_MAX);
        assert_eq!(all.shown(all.end() - 1, 1), ["next"]);
    }

    /// A sequence that does not end costs no memory.
    #[test]
    fn endless_sequences_are_dropped() {
        for start in ["\x1b]0;", "\x1bP", "\x1b[", "\x1b_"] {
            let mut all = Lines::default();
            all.add(start.as_bytes());
            for _ in 0..1000 {
                all.add(b"0;0;0;0;0;0;0;0;");
            }
            all.add(b"\x18\ntext\n");
            assert_eq!(all.shown(all.end() - 1, 1), ["text"], "{start:?}");
        }
    }
}
