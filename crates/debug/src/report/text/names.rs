//! Formats frames in few columns.

use super::{Detail, MIN_ROOM, Page, Style, Word};
use crate::{
    report::{clean, name, view::GAP},
    stack::{Frame, FrameKind},
};

impl Page {
    /// Formats a frame in at most `room` columns, as far as shortening the name can achieve that.
    pub(super) fn frame(&self, frame: &Frame, room: usize) -> Word {
        let place = match &frame.source {
            Some(source) if source.line > 0 => clean(&source.to_string()),
            _ => String::new(),
        };
        let inlined = frame.kind == FrameKind::Inlined;
        let place = match (place.is_empty(), inlined) {
            (true, false) => String::new(),
            (true, true) => " (inlined)".to_owned(),
            (false, false) => format!(" ({place})"),
            (false, true) => format!(" ({place}, inlined)"),
        };
        let room = room.saturating_sub(place.chars().count()).max(MIN_ROOM / 2);
        let name = match name(frame) {
            gap if gap == GAP => self.sign(GAP, "...").to_owned(),
            name => self.shortened(&name, room),
        };
        vec![(Style::Plain, name), (Style::Place, place)]
    }

    /// Shortens a name to at most `room` characters. First it removes template arguments, the innermost first; then it cuts
    /// out the middle.
    pub(super) fn shortened(&self, name: &str, room: usize) -> String {
        if self.look.detail == Detail::Full || name.chars().count() <= room {
            return name.to_owned();
        }
        let ellipsis = self.sign("…", "...");
        let mut short = name.to_owned();
        for depth in (1..=nesting(name)).rev() {
            short = without_arguments(name, depth, ellipsis);
            if short.chars().count() <= room {
                return short;
            }
        }
        let letters: Vec<char> = short.chars().collect();
        let keep = room.saturating_sub(ellipsis.chars().count());
        // The end of a name says more than its beginning.
        let head = keep / 3;
        let tail = letters.len().saturating_sub(keep - head);
        let (head, tail) = (&letters[..head], &letters[tail..]);
        format!(
            "{}{ellipsis}{}",
            head.iter().collect::<String>(),
            tail.iter().collect::<String>()
        )
    }
}

/// Returns the depth of nested angle brackets in a name.
fn nesting(name: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for letter in name.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Replaces the content of angle brackets at depth `from` with an ellipsis.
fn without_arguments(name: &str, from: usize, ellipsis: &str) -> String {
    let (mut depth, mut short) = (0_usize, String::new());
    for letter in name.chars() {
        if letter == '<' {
            depth += 1;
            if depth == from {
                short.push('<');
                short.push_str(ellipsis);
            }
        }
        if letter == '>' && depth > 0 {
            depth -= 1;
            if depth + 1 == from {
                short.push('>');
                continue;
            }
        }
        if depth < from {
            short.push(letter);
        }
    }
    short
}
