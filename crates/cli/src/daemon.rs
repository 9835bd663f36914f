//! `rally __daemon`: the daemon of another node. The launcher starts it and says on its standard input what to do.

use std::{ffi::OsString, io, os::fd::AsFd, path::PathBuf};

use runtime::MemberBirth;

use crate::{
    args::{SLURM_NODE, of_node},
    exit, surroundings,
};

/// Name and version of this program.
pub(crate) const BUILD: &str = concat!("rally ", env!("CARGO_PKG_VERSION"));

/// Runs the daemon, and returns its exit code. `file` says what to do; without it standard input does.
pub(crate) fn serve(file: Option<PathBuf>) -> u8 {
    let birth = MemberBirth {
        host: os::host_name(),
        alias: std::env::var(SLURM_NODE).ok(),
        build: BUILD.to_owned(),
        file,
        start_log: crate::log::start_on_node,
        report,
        surroundings: surroundings(),
        descriptors: os::raise_descriptor_limit(),
        environment: of_node(std::env::vars_os()),
        commands_environment: variables(),
        pass_on_log: crate::log::pass_on,
    };
    runtime::guard_member(&birth).unwrap_or(exit::INTERNAL)
}

/// Returns the variables that ssh needs on this node, such as HOME and, if the agent was forwarded, SSH_AUTH_SOCK: all of them.
fn variables() -> Vec<OsString> {
    let variables = std::env::vars_os().map(|(mut entry, value)| {
        entry.push("=");
        entry.push(value);
        entry
    });
    variables.collect()
}

/// Writes a line for the launcher: it shows the last lines if this daemon does not connect, or is lost.
fn report(what: &str) {
    report_to(io::stderr(), what);
}

/// Writes a line if there is room for it. A launcher that is stopped reads nothing, and the daemon must end its ranks meanwhile.
fn report_to(launcher: impl AsFd, what: &str) {
    let line = format!("rally: {what}\n");
    let _ = os::write_if_room(launcher, line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_does_not_wait_for_its_reader() {
        let (theirs, ours) = os::pipe().unwrap();
        report_to(&ours, "first");
        // Far more than a pipe holds.
        (0..10_000).for_each(|_| report_to(&ours, "the pipe is full"));
        let mut buffer = [0; 13];
        let read = os::read(theirs.as_fd(), &mut buffer).unwrap();
        assert_eq!(read, os::ReadOutcome::Bytes(13));
        assert_eq!(&buffer, b"rally: first\n");
    }
}
