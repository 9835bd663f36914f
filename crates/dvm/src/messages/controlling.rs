//! Messages about tools that control the launcher.

use message::Message;

use super::{NOT_STARTED, kind as k, plain};

pub(super) fn waits() -> Message {
    Message::new(
        &k::WAITS_FOR_TOOL,
        "the job waits for a tool, because PMIX_LAUNCHER_PAUSE_FOR_TOOL is set",
    )
    .with_help("a tool finds the launcher by its pid; Ctrl-C ends the wait")
}

pub(super) fn ended_before_release() -> Message {
    Message::new(
        &k::TOOL_ENDED,
        "the tool that started the launcher has ended before it let the job begin",
    )
    .fact("effect", NOT_STARTED)
}

pub(super) fn ended() -> Message {
    Message::new(
        &k::TOOL_ENDED,
        "the job was ended because the tool that started the launcher has ended",
    )
}

pub(super) fn directive(key: &str) -> Message {
    Message::new(
        &k::TOOL_DIRECTIVE,
        format!(
            "cannot carry out a directive of the tool that started the launcher: `{}`",
            plain(key)
        ),
    )
    .fact("effect", NOT_STARTED)
}
