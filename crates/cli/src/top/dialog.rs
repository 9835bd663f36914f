//! The text of a dialog, in lines that fit: what is drawn, and how far it can be scrolled.

use message::visible;
use os::WindowSize;

use super::layout::FRAME;

/// Columns of a dialog.
const COLUMNS_MAX: u16 = 76;

/// Returns the columns for text.
pub(super) fn room(size: WindowSize) -> usize {
    let columns = size.columns.min(COLUMNS_MAX);
    usize::from(columns.saturating_sub(FRAME + 2)).max(1)
}

/// Returns lines that fit.
pub(super) fn wrapped(lines: &[String], size: WindowSize) -> Vec<String> {
    let room = room(size);
    let lines = lines.iter();
    lines
        .flat_map(|line| broken(&visible::line(line), room))
        .collect()
}

/// Breaks a line at blanks. Further lines are indented like the first one, and a little more.
fn broken(line: &str, room: usize) -> Vec<String> {
    let count = |text: &str| text.chars().count();
    if count(line) <= room {
        return vec![line.to_owned()];
    }
    let indent = (line.len() - line.trim_start().len() + 2).min(room / 2);
    let mut lines = Vec::new();
    let mut current = String::new();
    for word in line.split_inclusive(' ') {
        if count(&current) + count(word.trim_end()) > room && !current.trim().is_empty() {
            lines.push(current.trim_end().to_owned());
            current = " ".repeat(indent);
        }
        current.push_str(word);
        while count(current.trim_end()) > room {
            let rest = current.chars().skip(room).collect::<String>();
            lines.push(current.chars().take(room).collect());
            current = " ".repeat(indent) + rest.trim_start();
            if rest.trim().is_empty() {
                current.clear();
            }
        }
    }
    if !current.trim().is_empty() {
        lines.push(current.trim_end().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_at_blanks() {
        for (line, lines) in [
            ("short", &["short"][..]),
            (
                "  why: one two three",
                &["  why: one", "    two", "    three"],
            ),
            ("/a/very/long/path", &["/a/very/lo", "  ng/path"]),
            ("", &[""]),
        ] {
            assert_eq!(broken(line, 10), lines, "{line}");
        }
    }
}
