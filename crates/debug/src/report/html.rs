//! A report as a self-contained HTML page: no other files, no network, and only optional features need a script.
//!
//! Text from the debugged programs is escaped everywhere, and the content security policy of the page forbids loading
//! anything. Long lists are cut off, so the page of 10,000 ranks in 200 classes has less than 150 KiB.

mod parts;

use std::fmt::Write as _;

use super::{Report, clean};
use crate::report::{Colour, Detail, Guides, Layout, text};

/// Width in columns of the report as text at the end of the page.
const TEXT_WIDTH: usize = 110;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// Formats a report as a page.
#[must_use]
pub fn html(report: &Report) -> String {
    let title = escaped(&report.title);
    let mut page = format!(
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n\
         <meta name=viewport content=\"width=device-width,initial-scale=1\">\n\
         <meta http-equiv=Content-Security-Policy content=\"default-src 'none';style-src 'unsafe-inline';script-src 'unsafe-inline'\">\n\
         <title>{title}: stacks</title>\n<style>\n{STYLE}</style>\n\
         <header><h1>{title}</h1>\n<p class=meta>{}",
        report.extent()
    );
    for (word, what) in [("seen from", &report.host), ("at", &report.date)] {
        if !what.is_empty() {
            let _ = write!(page, " · {word} {}", escaped(what));
        }
    }
    page.push_str("</p>\n");
    parts::processes(report, &mut page);
    page.push_str("</header>\n");
    for part in [
        parts::verdicts,
        parts::missing,
        parts::picture,
        parts::classes,
        parts::calls,
        parts::calls_from_code,
        parts::communicators,
        parts::locks,
        parts::recording,
        parts::placement,
        parts::circumstances,
    ] {
        part(report, &mut page);
    }
    let look = Layout {
        width: TEXT_WIDTH,
        detail: Detail::Folded,
        colour: Colour::Never,
        guides: Guides::Unicode,
    };
    let _ = write!(
        page,
        "<section><h2>As text <button id=copy hidden>copy</button></h2>\n<pre id=text>{}</pre></section>\n\
         <script>\n{SCRIPT}</script>\n</html>\n",
        escaped_lines(&text(report, &look))
    );
    page
}

/// Escapes a text for any place in the page, including quoted attributes. Control characters are replaced.
fn escaped(text: &str) -> String {
    escape(&clean(text))
}

/// Escapes a text of ours, and keeps its line feeds.
fn escaped_lines(text: &str) -> String {
    escape(text)
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            letter => safe.push(letter),
        }
    }
    safe
}
