//! `rally help`: pages generated from the command line's definition, topics, and the long forms of messages.

use message::Kind;

pub(crate) mod topics;

use crate::args::{Error, definition};

pub(crate) use self::topics::HelpTopic;
use self::topics::{COMMANDS, TOPICS};

/// Returns the kind of message with this id, from any of several tables.
pub(crate) fn explain(id: &str, tables: &[&[&'static Kind]]) -> Option<&'static Kind> {
    tables
        .iter()
        .flat_map(|table| table.iter())
        .find(|kind| kind.id == id)
        .copied()
}

/// Returns the text to print. `tables` contain all our messages.
///
/// # Errors
///
/// [`Error::NoSuchTopic`] if no topic and no message has that name.
pub(crate) fn text(asked: &HelpTopic, tables: &[&[&'static Kind]]) -> Result<String, Error> {
    Ok(match asked {
        HelpTopic::Short => tidy(&definition().render_help().to_string()),
        HelpTopic::Full => tidy(&definition().render_long_help().to_string()),
        HelpTopic::RunShort => command("run", Length::Screen),
        HelpTopic::RunFull => command("run", Length::Full),
        HelpTopic::Command(name) => command(name, Length::Full),
        HelpTopic::Topic(topic) => topic.text.to_owned(),
        HelpTopic::Subject(subject) => match explain(subject, tables) {
            Some(kind) => format!("{}\n\n{}\n", kind.id, fill(kind.explanation)),
            None => {
                let ids = tables
                    .iter()
                    .flat_map(|table| table.iter())
                    .map(|kind| kind.id);
                let known = TOPICS
                    .iter()
                    .map(|topic| topic.name)
                    .chain(COMMANDS)
                    .chain(ids);
                return Err(Error::NoSuchTopic {
                    subject: subject.clone(),
                    nearest: message::nearest(subject, known).map(str::to_owned),
                });
            }
        },
    })
}

/// How much of a page to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Screen,
    Full,
}

fn command(name: &str, length: Length) -> String {
    let mut all = definition();
    all.build();
    let Some(command) = all.find_subcommand_mut(name) else {
        return String::new();
    };
    match length {
        Length::Screen => tidy(&command.render_help().to_string()),
        Length::Full => tidy(&command.render_long_help().to_string()),
    }
}

/// Returns a page without blanks at the ends of lines, and with a line feed at its end.
fn tidy(page: &str) -> String {
    let lines = page.trim_end().lines().map(str::trim_end);
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The width of an explanation, in columns.
const WIDTH: usize = 80;

/// Wraps each paragraph to [`WIDTH`] columns.
fn fill(text: &str) -> String {
    let mut out = String::new();
    for (position, line) in text.lines().enumerate() {
        if position > 0 {
            out.push('\n');
        }
        let mut column = 0;
        for word in line.split(' ') {
            let length = word.chars().count();
            if column > 0 && column + 1 + length > WIDTH {
                out.push('\n');
                column = 0;
            } else if column > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += length;
        }
    }
    out
}

#[cfg(test)]
mod tests;
