//! What a start command prints: lines, of which the last ones are kept as evidence.

use std::collections::VecDeque;

/// Maximum number of bytes of a command's output that are kept as evidence: the last ones.
pub const EVIDENCE_MAX: usize = 4096;

/// The output of a command.
#[derive(Debug, Default)]
pub(super) struct Printed {
    /// Complete lines, the last ones.
    lines: VecDeque<String>,
    /// The start of a line. The rest of a longer line is dropped.
    partial: Vec<u8>,
}

impl Printed {
    /// Takes bytes that were read. Returns the lines that they complete.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut complete = Vec::new();
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            let room = EVIDENCE_MAX.saturating_sub(self.partial.len());
            self.partial.extend(&piece[..piece.len().min(room)]);
            if pieces.peek().is_some() {
                complete.extend(self.end_line());
            }
        }
        complete
    }

    /// Keeps a line as evidence.
    pub(super) fn keep(&mut self, line: String) {
        self.lines.push_back(line);
        let mut length: usize = self.lines.iter().map(String::len).sum();
        while length > EVIDENCE_MAX {
            length -= self.lines.pop_front().map_or(length, |line| line.len());
        }
    }

    /// Keeps the last line, which nothing has ended.
    pub(super) fn end(&mut self) {
        let last = self.end_line();
        last.into_iter().for_each(|line| self.keep(line));
    }

    /// Returns the lines. The name of the node is replaced, so that nodes that failed alike have equal evidence.
    pub(super) fn lines(&self, names: &[&str]) -> Vec<String> {
        let same = |line: &String| match names {
            [name] => replaced(line, name),
            _ => line.clone(),
        };
        self.lines.iter().map(same).collect()
    }

    /// Returns the rest of the last line with these words.
    pub(super) fn after(&self, words: &str) -> Option<String> {
        let mut lines = self.lines.iter().rev();
        lines.find_map(|line| Some(line.split_once(words)?.1.to_owned()))
    }

    fn end_line(&mut self) -> Option<String> {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.partial)).into_owned();
        let line = line.trim_end();
        (!line.is_empty()).then(|| line.to_owned())
    }
}

/// Replaces a host's name where it is a word of its own: `n1` does not occur in `on10`.
fn replaced(line: &str, name: &str) -> String {
    if name.is_empty() {
        return line.to_owned();
    }
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(name) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        text += before;
        let is_word = !text.ends_with(is_part) && !after.starts_with(is_part);
        text += if is_word { "HOST" } else { name };
        rest = after;
    }
    text + rest
}
