//! The command that gives us a shell on another node: ssh, a command like it, or a template.

use crate::{quoting, values::ValueError};

/// The words of a template that are replaced: the node's name, the program to run there, and the file that says what to do.
pub(crate) const HOST: &str = "{host}";
pub(crate) const DAEMON: &str = "{daemon}";
pub(crate) const FILE: &str = "{file}";

/// A command in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words(pub(crate) Vec<String>);

impl Words {
    /// Returns a text that is parsed as these words.
    pub(crate) fn quoted(&self) -> String {
        let words = self.0.iter();
        let quoted = words.map(|word| format!("'{}'", word.replace('\'', r"'\''")));
        quoted.collect::<Vec<_>>().join(" ")
    }
}

/// Parses a command like ssh, with its options: it is called with the node's name and a command for the node's shell.
///
/// # Errors
///
/// The text is empty, or a quote is open.
pub(crate) fn ssh(text: &str) -> Result<Words, ValueError> {
    let words = words(text)?;
    if words.is_empty() {
        return Err(ValueError::Empty);
    }
    Ok(Words(words))
}

/// Parses a template. `None` if it is empty.
///
/// # Errors
///
/// A node's name or the program has no place in it, or a quote is open.
pub(crate) fn template(text: &str) -> Result<Option<Words>, ValueError> {
    let words = words(text)?;
    let has = |wanted| words.iter().any(|word: &String| word.contains(wanted));
    match words.is_empty() {
        true => Ok(None),
        false if has(HOST) && has(DAEMON) => Ok(Some(Words(words))),
        false => Err(ValueError::NotATemplate),
    }
}

fn words(text: &str) -> Result<Vec<String>, ValueError> {
    let lines = quoting::lines(text.as_bytes()).map_err(|(_, open)| ValueError::Open(open))?;
    let words = lines.into_iter().flat_map(|line| line.words);
    // Parts of a text are texts: it is split at ASCII characters only.
    Ok(words
        .map(|word| word.to_string_lossy().into_owned())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quoting::Open;

    #[test]
    fn commands_are_split_as_a_shell_does() {
        let cases = [
            ("ssh", "ssh"),
            (" /opt/ssh  -p 22\t-l me ", "/opt/ssh|-p|22|-l|me"),
            (
                "ssh -o 'ProxyCommand=nc %h %p' \"a \\\"b\" c\\ d ''",
                "ssh|-o|ProxyCommand=nc %h %p|a \"b|c d|",
            ),
            ("my\\'ssh \"it's\"", "my'ssh|it's"),
        ];
        for (text, words) in cases {
            let parsed = ssh(text).unwrap();
            assert_eq!(parsed.0.join("|"), words, "{text}");
            assert_eq!(ssh(&parsed.quoted()), Ok(parsed), "{text}");
        }
        let open = [
            ("ssh 'a", Open::Quote('\'')),
            ("ssh \"a", Open::Quote('"')),
            ("ssh \\", Open::Continuation),
        ];
        for (text, open) in open {
            assert_eq!(ssh(text), Err(ValueError::Open(open)), "{text}");
        }
        assert_eq!(ssh(" "), Err(ValueError::Empty));
    }

    #[test]
    fn a_template_needs_a_host_and_a_daemon() {
        assert_eq!(template(""), Ok(None));
        for text in ["ssh", "ssh {host}", "ssh n1 {daemon}"] {
            assert_eq!(template(text), Err(ValueError::NotATemplate), "{text}");
        }
        assert!(
            template("kubectl exec -i {host} -- {daemon}")
                .unwrap()
                .is_some()
        );
    }
}
