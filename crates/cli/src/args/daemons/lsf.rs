//! Daemons started by LSF: one `blaunch` for each node.

use std::ffi::OsString;

/// Returns the command that starts our program on a node. Like rsh, it passes standard input on; a shell is not needed.
pub(super) fn command(host: &str, own: &[OsString]) -> Vec<OsString> {
    let words = ["blaunch", "-no-shell", host].map(OsString::from);
    [&words, own].concat()
}
