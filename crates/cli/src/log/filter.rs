//! The filter of the log: `debug`, `warn,daemon=trace`, as in `RUST_LOG`.

use message::{Kind, Message, nearest};
use runtime::log::{BOOTSTRAP, CONTROLLER, DAEMON, GUARDIAN, TREE};
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::FRONT;

/// The parts of `rally` that log.
const PARTS: [&str; 6] = [FRONT, GUARDIAN, CONTROLLER, DAEMON, TREE, BOOTSTRAP];
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// What is wrong with a filter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FilterError {
    /// The whole filter.
    text: String,
    word: String,
    expected: Expected,
}

/// What a word of a filter has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Level,
    Part,
    LevelOrPart,
}

impl FilterError {
    pub(super) fn message(&self, kind: &'static Kind, variable: &'static str) -> Message {
        let (word, text) = (&self.word, &self.text);
        let (what, known): (_, &[&[&str]]) = match self.expected {
            Expected::Level => ("no level", &[&LEVELS]),
            Expected::Part => ("no part of `rally` that logs", &[&PARTS]),
            Expected::LevelOrPart => (
                "neither a level nor a part of `rally` that logs",
                &[&LEVELS, &PARTS],
            ),
        };
        let headline = format!("`{word}` in {variable} is {what}");
        let message = Message::new(kind, headline)
            .fact(variable, text)
            .fact("levels", LEVELS.join(", "))
            .fact("parts", PARTS.join(", "));
        let known = known.iter().flat_map(|words| words.iter().copied());
        message.with_help(match nearest(word, known) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => "write a level, or PART=LEVEL: `warn,daemon=debug`".to_owned(),
        })
    }
}

/// Reads a filter. Of several entries for the same part, the last one holds.
pub(super) fn parse(text: &str) -> Result<Targets, FilterError> {
    let wrong = |word: &str, expected| FilterError {
        text: text.to_owned(),
        word: word.to_owned(),
        expected,
    };
    let mut targets = Targets::new();
    let entries = text.split(',').map(str::trim);
    for entry in entries.filter(|entry| !entry.is_empty()) {
        targets = match entry.split_once('=') {
            Some((part, level)) => {
                let (part, level) = (part.trim(), level.trim());
                let part = part_of(part).ok_or_else(|| wrong(part, Expected::Part))?;
                let level = level_of(level).ok_or_else(|| match level {
                    "" => wrong(entry, Expected::LevelOrPart),
                    level => wrong(level, Expected::Level),
                })?;
                targets.with_target(part, level)
            }
            None => match (level_of(entry), part_of(entry)) {
                (Some(level), _) => targets.with_default(level),
                (None, Some(part)) => targets.with_target(part, LevelFilter::TRACE),
                (None, None) => return Err(wrong(entry, Expected::LevelOrPart)),
            },
        };
    }
    Ok(targets)
}

fn part_of(word: &str) -> Option<&'static str> {
    PARTS.into_iter().find(|part| *part == word)
}

fn level_of(word: &str) -> Option<LevelFilter> {
    // An empty word would be a level.
    word.parse().ok().filter(|_| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn filters_mean_what_they_mean_in_rust_log() {
        let letters = [
            (Level::ERROR, 'E'),
            (Level::WARN, 'W'),
            (Level::INFO, 'I'),
            (Level::DEBUG, 'D'),
            (Level::TRACE, 'T'),
        ];
        let shown = |text: &str| {
            let targets = parse(text).unwrap();
            PARTS
                .map(|part| {
                    let is_on = |level: &&(Level, char)| targets.would_enable(part, &level.0);
                    letters
                        .iter()
                        .filter(is_on)
                        .map(|level| level.1)
                        .next_back()
                        .unwrap_or('-')
                })
                .iter()
                .collect::<String>()
        };
        // The highest level of front, guardian, controller, daemon, tree, bootstrap.
        for (text, levels) in [
            ("debug", "DDDDDD"),
            ("off", "------"),
            ("WARN", "WWWWWW"),
            ("5", "TTTTTT"),
            ("daemon", "---T--"),
            ("daemon=info", "---I--"),
            ("warn,daemon=trace", "WWWTWW"),
            (" daemon = trace , warn,", "WWWTWW"),
            ("debug,tree=off", "DDDD-D"),
            ("info,error", "EEEEEE"),
        ] {
            assert_eq!(shown(text), levels, "{text}");
        }
    }
}
