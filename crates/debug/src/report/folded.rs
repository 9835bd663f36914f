//! Folded stacks, the input format of flame graph tools: docs/formats/stacks.md.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{Report, name};
use crate::stack::{Frame, FrameKind};

/// Returns a line for each stack: its functions, and its number of threads, summed over all samples.
#[must_use]
pub fn folded(report: &Report) -> String {
    let mut lines = BTreeMap::<String, u64>::new();
    for sample in &report.samples {
        sample.tree.each(|stack, _, threads| {
            let names = stack.iter().map(|&id| safe(report.frames.get(id)));
            let line = names.collect::<Vec<_>>().join(";");
            // A thread without frames still counts as one.
            let line = if line.is_empty() {
                "??".to_owned()
            } else {
                line
            };
            let count = lines.entry(line).or_default();
            *count = count.saturating_add(threads.count());
        });
    }
    let mut text = String::new();
    for (line, count) in lines {
        let _ = writeln!(text, "{line} {count}");
    }
    text
}

/// Replaces the characters in a name that have a meaning in the format.
fn safe(frame: &Frame) -> String {
    let letters = name(frame);
    let letters = letters.chars().map(|letter| match letter {
        ';' => ',',
        '\u{fffd}' => '?',
        letter => letter,
    });
    let ending = match frame.kind {
        FrameKind::Inlined => "_[i]",
        FrameKind::Native | FrameKind::Signal | FrameKind::Python => "",
    };
    letters.chain(ending.chars()).collect()
}
