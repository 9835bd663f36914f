//! The kinds of prompts, and how they are found in the words of ssh.

use serde::{Deserialize, Serialize};

/// How a prompt is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PromptKind {
    /// With a password, a passphrase or a code, which the terminal does not show.
    Hidden,
    /// With a line that the terminal shows: a word, or the fingerprint of a host's key.
    Shown,
    /// With yes or no. The words of ssh do not say that.
    Confirm,
    /// Not at all: ssh waits for something else, such as a touch of a security key.
    Notice,
}

/// Words in questions about the keys of hosts, for which ssh gives no hint.
const YES_OR_NO: [&str; 2] = ["(yes/no", "type 'yes'"];

impl PromptKind {
    /// Returns the kind of a prompt of ssh. `hint` is its variable `SSH_ASKPASS_PROMPT`. A prompt of an unknown kind is hidden.
    pub(super) fn of(text: &str, hint: Option<&str>) -> Self {
        match hint {
            Some("none") => Self::Notice,
            Some("confirm") => Self::Confirm,
            _ if YES_OR_NO.iter().any(|words| text.contains(words)) => Self::Shown,
            _ => Self::Hidden,
        }
    }
}
