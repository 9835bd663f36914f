//! Daemons started by LSF: one `blaunch` for each node.

use std::ffi::OsString;

/// Returns the command that gives us a shell on a node. Like rsh, it passes standard input on. `-no-shell` leaves out the shell that
/// blaunch would start for the command.
pub(super) fn command(host: &str) -> Vec<OsString> {
    ["blaunch", "-no-shell", host, "/bin/sh"]
        .map(OsString::from)
        .to_vec()
}
