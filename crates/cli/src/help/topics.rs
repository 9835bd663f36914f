//! The topics of `rally help`.

/// The commands of `rally`.
pub(crate) const COMMANDS: [&str; 27] = [
    "run",
    "launch",
    "up",
    "down",
    "submit",
    "queue",
    "explain",
    "hold",
    "release",
    "start-tool",
    "cancel",
    "signal",
    "pause",
    "resume",
    "usage",
    "priority",
    "wait",
    "output",
    "nodes",
    "page",
    "status",
    "top",
    "demo",
    "mpir-check",
    "ptp-proxy",
    "config",
    "help",
];

/// A subject of help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HelpTopic {
    /// `rally -h`.
    Short,
    /// `rally --help`.
    Full,
    /// `rally run -h`.
    RunShort,
    /// `rally run --help`.
    RunFull,
    /// The page of another command.
    Command(&'static str),
    Topic(&'static Topic),
    /// Any other word: the id of a message, or an unknown word.
    Subject(String),
}

/// A text about one topic.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

macro_rules! topics {
    ($($name:literal),* $(,)?) => {
        /// All topics, in the order in which they are listed.
        pub(crate) static TOPICS: [Topic; [$($name),*].len()] =
            [$(Topic { name: $name, text: include_str!(concat!("topics/", $name, ".txt")) }),*];
    };
}

topics!(
    "placement",
    "output",
    "input",
    "signals",
    "exit-codes",
    "environment",
    "personalities",
    "mpmd",
    "nodes",
    "debugging",
    "errors",
);

/// Returns the topic of this name.
pub(crate) fn topic(name: &str) -> Option<&'static Topic> {
    TOPICS.iter().find(|topic| topic.name == name)
}

/// Returns the names of all topics.
pub(crate) fn topic_names() -> Vec<&'static str> {
    TOPICS.iter().map(|topic| topic.name).collect()
}

impl HelpTopic {
    /// Returns the subject that a word after `help` names.
    pub(crate) fn from_subject(subject: &str) -> Self {
        if subject == "run" {
            return Self::RunFull;
        }
        if let Some(command) = COMMANDS.into_iter().find(|command| *command == subject) {
            return Self::Command(command);
        }
        topic(subject).map_or_else(|| Self::Subject(subject.to_owned()), Self::Topic)
    }
}
