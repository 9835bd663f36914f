//! Text of messages: for people, or as one JSON object per line.
//!
//! The form for people resembles that of compiler messages: severity and headline, then facts with aligned names, then
//! help.

use std::io::{self, Write};

use crate::{Message, Severity, visible};

/// Output form of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

/// Number of spaces before the name of a fact.
const INDENT: usize = 2;

/// Writes a message in one call, so that other writers to the same file cannot interleave their output with it.
///
/// # Errors
///
/// Errors of the writer.
pub fn print(message: &Message, format: Format, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(text(message, format).as_bytes())
}

/// Returns the text of a message with its final line feed.
#[must_use]
pub fn text(message: &Message, format: Format) -> String {
    match format {
        Format::Text => human(message),
        Format::Json => json(message),
    }
}

const fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

fn human(message: &Message) -> String {
    let help = message.help.as_ref().map(|help| ("help", help));
    let lines = || {
        let facts = message.facts.iter().map(|(name, value)| (*name, value));
        facts.chain(help)
    };
    let width = lines().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
    let headline = visible::line(&message.headline);
    let mut text = format!("{}: {headline}\n", severity(message.severity));
    for (name, value) in lines() {
        let name = format!("{name}:");
        // Indent every line of a value to the same column.
        for (index, line) in value.split('\n').enumerate() {
            let name = if index == 0 { name.as_str() } else { "" };
            let line = format!("{:INDENT$}{name:width$} {}", "", visible::line(line));
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

fn json(message: &Message) -> String {
    /// Line that programs can distinguish from other lines of JSON, such as output.
    #[derive(serde::Serialize)]
    struct Line<'a> {
        r#type: &'static str,
        #[serde(flatten)]
        message: &'a Message,
    }
    let line = Line {
        r#type: "message",
        message,
    };
    // Serialization fails only for maps whose keys are no strings, and there is no such map. The fallback is still
    // JSON, with the id only.
    let mut text = serde_json::to_string(&line)
        .unwrap_or_else(|_| format!(r#"{{"type":"message","id":"{}"}}"#, message.id));
    text.push('\n');
    visible::json(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use crate::Kind;

    use super::*;

    const AGENT: Kind = Kind {
        id: "bootstrap/agent-failed",
        severity: Severity::Error,
        explanation: "Ssh failed.",
    };

    fn example() -> Message {
        Message::new(
            &AGENT,
            "cannot start the daemon on `n[0417-0420]`: ssh exited with status 255",
        )
        .fact("step", "bootstrap, 512 nodes, parent `n0401`")
        .fact("ssh", "Permission denied (publickey)")
        .fact(
            "effect",
            "the job was not started; 508 daemons are shutting down",
        )
        .with_help("try `ssh n0417 true` from `n0401`, or pass `--bootstrap=slurm`")
    }

    #[test]
    fn people_read_aligned_facts() {
        insta::assert_snapshot!(text(&example(), Format::Text), @"
        error: cannot start the daemon on `n[0417-0420]`: ssh exited with status 255
          step:   bootstrap, 512 nodes, parent `n0401`
          ssh:    Permission denied (publickey)
          effect: the job was not started; 508 daemons are shutting down
          help:   try `ssh n0417 true` from `n0401`, or pass `--bootstrap=slurm`
        ");
        let bare = Message::new(&AGENT, "no more");
        assert_eq!(text(&bare, Format::Text), "error: no more\n");
        let long = bare
            .fact("location of it", "one\ntwo\n\nfour")
            .with_help("none");
        insta::assert_snapshot!(text(&long, Format::Text), @"
        error: no more
          location of it: one
                          two

                          four
          help:           none
        ");
    }

    #[test]
    fn programs_read_one_object_per_line() {
        let text = text(&example().fact("odd", "\"\n\u{1b}ü"), Format::Json);
        assert_eq!(text.matches('\n').count(), 1);
        insta::assert_snapshot!(text, @r#"{"type":"message","id":"bootstrap/agent-failed","severity":"error","headline":"cannot start the daemon on `n[0417-0420]`: ssh exited with status 255","facts":{"step":"bootstrap, 512 nodes, parent `n0401`","ssh":"Permission denied (publickey)","effect":"the job was not started; 508 daemons are shutting down","odd":"\"\n\u001bü"},"help":"try `ssh n0417 true` from `n0401`, or pass `--bootstrap=slurm`"}"#);
    }

    /// Only our own line feeds, in facts and help, start a new line.
    #[test]
    fn nothing_of_others_reaches_the_terminal_as_it_is() {
        let evil = "\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\r";
        let message = Message::new(&AGENT, format!("no `{evil}`\nerror: forged"))
            .fact("value", format!("{evil}\nsecond"))
            .with_help(format!("try `{evil}`"));
        insta::assert_snapshot!(text(&message, Format::Text), @r"
        error: no `\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\r`\nerror: forged
          value: \u{1b}]0;x\u{7}\u{9b}31m\u{202e}\r
                 second
          help:  try `\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\r`
        ");
        insta::assert_snapshot!(text(&message, Format::Json), @r#"{"type":"message","id":"bootstrap/agent-failed","severity":"error","headline":"no `\u001b]0;x\u0007\u009b31m\u202e\r`\nerror: forged","facts":{"value":"\u001b]0;x\u0007\u009b31m\u202e\r\nsecond"},"help":"try `\u001b]0;x\u0007\u009b31m\u202e\r`"}"#);
    }

    #[test]
    fn printing_is_one_write() {
        struct Once(Vec<usize>);
        impl Write for Once {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.push(bytes.len());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut out = Once(Vec::new());
        print(&example(), Format::Text, &mut out).unwrap();
        assert_eq!(out.0, [text(&example(), Format::Text).len()]);
    }
}
