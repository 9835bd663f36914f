//! The messages of `rally mpir-check`, apart from its findings.

use message::{Kind, Message, Severity};

const NOT_FOUND: Kind = Kind {
    id: "mpir-check/not-found",
    severity: Severity::Error,
    explanation: "`rally mpir-check` starts the launcher that its command line names, and searches for it in PATH as a shell does.",
};
const NOT_EXECUTABLE: Kind = Kind {
    id: "mpir-check/not-executable",
    severity: Severity::Error,
    explanation: "The file that is named as the launcher exists, but cannot be executed: it is no program, or it lacks the permission.",
};
const REFUSED: Kind = Kind {
    id: "mpir-check/refused",
    severity: Severity::Error,
    explanation: "The system refuses something without which no launcher can be checked: to start a process, or to trace it. In a container, \
ptrace(2) may be forbidden. Where `/proc/sys/kernel/yama/ptrace_scope` is 3, no process may trace another.",
};

/// All kinds of messages in this file, for `rally help ID`.
pub(crate) const KINDS: &[&Kind] = &[&NOT_FOUND, &NOT_EXECUTABLE, &REFUSED];

pub(super) fn not_found(name: &str) -> Message {
    Message::new(&NOT_FOUND, format!("no program `{name}` was found"))
        .with_help("give the launcher and its arguments: `rally mpir-check -- srun -n4 ./a`")
}

pub(super) fn not_executable(name: &str) -> Message {
    Message::new(&NOT_EXECUTABLE, format!("`{name}` cannot be executed"))
}

pub(super) fn refused(why: &str) -> Message {
    Message::new(&REFUSED, "the launcher cannot be checked here")
        .fact("reason", why)
        .with_help("check whether this container or node permits ptrace")
}

#[cfg(test)]
mod tests {
    use message::Format;

    use super::*;

    #[test]
    fn every_sentence() {
        let mut text = Vec::new();
        for message in [
            not_found("srnu"),
            not_executable("./srun"),
            refused("cannot trace a process: Operation not permitted"),
        ] {
            message::print(&message, Format::Text, &mut text).unwrap();
        }
        insta::assert_snapshot!(String::from_utf8(text).unwrap(), @"
        error: no program `srnu` was found
          help: give the launcher and its arguments: `rally mpir-check -- srun -n4 ./a`
        error: `./srun` cannot be executed
        error: the launcher cannot be checked here
          reason: cannot trace a process: Operation not permitted
          help:   check whether this container or node permits ptrace
        ");
    }
}
