//! What a start command asks the user, and the answer: messages between fronts and the controller's process.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroize as _;

/// Maximum length of the text of a prompt, in bytes. The rest is cut off.
pub const TEXT_MAX: usize = 4096;
/// Maximum length of an answer, in bytes: ssh reads no more. A longer line is no answer.
pub const ANSWER_MAX: usize = 1023;
/// Number of a prompt. No two prompts of a controller have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PromptId(pub u32);

/// What a start command asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub kind: PromptKind,
    /// The words of the command.
    pub text: String,
}

impl Asked {
    /// Makes a prompt of the words of ssh. `hint` is its variable `SSH_ASKPASS_PROMPT`.
    #[must_use]
    pub fn new(text: String, hint: Option<&str>) -> Self {
        let kind = PromptKind::of(&text, hint);
        Self { kind, text }.cut()
    }

    /// Cuts off the text beyond [`TEXT_MAX`].
    pub(crate) fn cut(mut self) -> Self {
        self.text.truncate(self.text.floor_char_boundary(TEXT_MAX));
        self
    }
}

/// A prompt for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    pub id: PromptId,
    /// Name of the node whose start command asks.
    pub host: String,
    pub asked: Asked,
}

/// The answer to a prompt. It is overwritten when it is dropped, and never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Returns `None` if the answer is longer than [`ANSWER_MAX`].
    #[must_use]
    pub fn new(answer: Vec<u8>) -> Option<Self> {
        let secret = Self(answer);
        (secret.0.len() <= ANSWER_MAX).then_some(secret)
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

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
    fn of(text: &str, hint: Option<&str>) -> Self {
        match hint {
            Some("none") => Self::Notice,
            Some("confirm") => Self::Confirm,
            _ if YES_OR_NO.iter().any(|words| text.contains(words)) => Self::Shown,
            _ => Self::Hidden,
        }
    }
}
