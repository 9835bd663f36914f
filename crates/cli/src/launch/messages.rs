//! Messages about carrying out a launch configuration. Those about its text are in `args::launch`.

use std::{io, path::Path};

use message::Message;

use super::actions::When;

message::kinds! {
    /// All kinds of messages in this file, for `rally help ID`.
    pub(crate) const KINDS;

    PRE_ACTION: Error "launch/pre-action"
"A command of `pre` in the launch configuration has failed, cannot be started, or was interrupted. The job is not started. The commands of `post` \
run. The exit code is 123, and after signal n it is 128 + n."

    POST_ACTION: Warning "launch/post-action"
"A command of `post` in the launch configuration has failed or cannot be started. The others run, and the exit code is that of the job, which \
the commands find in RALLY_LAUNCH_CODE."

    NOT_STARTED: Error "launch/debugger-not-started"
"The debugger that the launch configuration names cannot be started. A name without a slash is searched in PATH; `dbgr` is searched in the \
directory of `rally` first."

    HELD: Note "launch/held"
"`dbgr` shows where ranks are, but cannot control them yet. So `rally launch --debug` holds the ranks where `stop` says, and tells what to type in \
another terminal."

    UNTOLD: Note "launch/sources-not-passed-on"
"`[sources]` of the launch configuration is for the debugger. gdb gets it as options. Other debuggers get the directories in the place of `{sources}` in \
their `args`, separated by colons, and no substitutions. `dbgr` shows the names of source files as the compiler wrote them, and reads no sources."

    WRITTEN: Note "launch/written"
"`rally launch --new` has written an example of a launch configuration."

    NOT_WRITTEN: Error "launch/not-written"
"`rally launch --new` writes a file that does not exist yet. It overwrites none."
}

pub(super) fn failed(when: When, line: &str, what: &str, from: String) -> Message {
    let what = format!("`{line}`: {what}");
    match when {
        When::Before => Message::new(
            &PRE_ACTION,
            format!("the action before the job failed: {what}"),
        )
        .fact("from", from)
        .fact("effect", "the job was not started"),
        When::After => Message::new(
            &POST_ACTION,
            format!("an action after the job failed: {what}"),
        )
        .fact("from", from)
        .fact(
            "effect",
            "the other actions run, and the exit code is that of the job",
        ),
    }
}

pub(super) fn not_started(program: &str, why: &str) -> Message {
    Message::new(
        &NOT_STARTED,
        format!("cannot start the debugger `{program}`: {why}"),
    )
    .with_help("install it, or name its file in `program` of `[debugger]`")
}

pub(super) fn held(words: &str, pid: u32) -> Message {
    let words = if words.is_empty() { "stacks" } else { words };
    Message::new(&HELD, "the ranks are held for `dbgr`").with_help(format!(
        "in another terminal, `dbgr {words} {pid}` shows where they are, and `rally release {pid}` lets them run"
    ))
}

pub(super) fn untold(debugger: &str) -> Message {
    let message = Message::new(
        &UNTOLD,
        format!("the debugger `{debugger}` does not get all of `[sources]`"),
    );
    match debugger {
        "dbgr" => message.fact("reason", "it reads no sources"),
        _ => message.with_help("put `{sources}` into its `args`, where it expects the directories"),
    }
}

pub(super) fn written(path: &Path) -> Message {
    let path = path.display();
    Message::new(&WRITTEN, format!("wrote `{path}`")).with_help(format!(
        "`rally launch {path} --dry-run` shows what it does"
    ))
}

pub(super) fn not_written(path: &Path, error: &io::Error) -> Message {
    let message = Message::new(
        &NOT_WRITTEN,
        format!("cannot write `{}`: {error}", path.display()),
    );
    match error.kind() {
        io::ErrorKind::AlreadyExists => message.with_help("choose another name, or remove it"),
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::MessageFormat;

    #[test]
    fn every_sentence() {
        let exists = io::Error::from(io::ErrorKind::AlreadyExists);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let from = || "launch.toml:12:3".to_owned();
        let all = [
            failed(When::Before, "make", "exited with code 2", from()),
            failed(When::After, "./collect", "killed by SIGKILL", from()),
            not_started("ddt", "there is no such program"),
            held("", 4711),
            held("stacks --samples 2", 4711),
            untold("ddt"),
            untold("dbgr"),
            written(Path::new("launch.toml")),
            not_written(Path::new("launch.toml"), &exists),
            not_written(Path::new("launch.toml"), &full),
        ];
        let mut text = Vec::new();
        for message in all {
            message::print(&message, MessageFormat::Text, &mut text).unwrap();
        }
        insta::assert_snapshot!(String::from_utf8(text).unwrap());
    }
}
