//! Daemons started by LSF: one `blaunch` for each node.

use std::ffi::OsString;

use crate::args::{DAEMON_ARGUMENT, World};

/// Returns the command that starts the daemon of a node. Like rsh, it passes standard input on; a shell is not needed.
pub(super) fn command(host: &str, world: &World) -> Vec<OsString> {
    let executable = world.executable.clone().into_os_string();
    let words = ["blaunch", "-no-shell", host].map(OsString::from);
    let mut argv = Vec::from(words);
    argv.extend([executable, DAEMON_ARGUMENT.into()]);
    argv
}
