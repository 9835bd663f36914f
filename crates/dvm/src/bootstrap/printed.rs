//! What a start command prints: lines, of which the last ones are kept as evidence.

use std::collections::VecDeque;

use base::NodeId;

use super::{Bootstrap, CommandId, State};

/// Maximum number of bytes of a command's output that are kept as evidence: the last ones.
pub const EVIDENCE_MAX: usize = 4096;

/// Maximum number of lines that are shown when a daemon is lost: the last ones.
const LAST_WORDS_MAX: usize = 4;

impl Bootstrap {
    /// Returns the command that has started the daemon of a node.
    #[must_use]
    pub fn started(&self, node: NodeId) -> Option<CommandId> {
        let commands = (0..).zip(self.plan.commands.iter().zip(&self.commands));
        let mut started = commands.filter(|(_, (plan, command))| {
            plan.nodes.contains(&node) && matches!(command.state, State::Joined | State::Over)
        });
        started.next().map(|(id, _)| id)
    }

    /// Returns what the start command of a node's daemon has printed since the daemon joined: the last words of the daemon, or
    /// those of the command about it. If the command has several nodes, only lines with the name of the node count.
    pub fn last_words(&mut self, node: NodeId) -> Option<String> {
        let id = self.started(node)? as usize;
        let is_of_one = self.plan.commands.get(id)?.nodes.len() == 1;
        let host = self.hosts.get(node.0 as usize)?;
        let printed = &mut self.commands.get_mut(id)?.printed;
        printed.end();
        let lines = printed.lines.iter();
        let mut lines: Vec<&str> = lines
            .filter(|line| is_of_one || line.contains(host.as_str()))
            .map(String::as_str)
            .collect();
        let last = lines.split_off(lines.len().saturating_sub(LAST_WORDS_MAX));
        (!last.is_empty()).then(|| last.join("; "))
    }
}

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

    /// Forgets all lines: evidence is what follows.
    pub(super) fn forget(&mut self) {
        self.lines.clear();
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
