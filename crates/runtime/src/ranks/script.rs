//! Scripts without `#!`, which the kernel cannot execute: a shell runs them.

use std::{
    ffi::{CStr, CString},
    fs::File,
    io::Read,
    path::Path,
};

use os::{SpawnError, SpawnStep};

/// ENOEXEC of Linux, with the same value on every architecture that we build for.
const ENOEXEC: i32 = 8;
/// Shell for scripts without a first line that names their interpreter.
pub(super) const SHELL: &CStr = c"/bin/sh";
/// Bytes at the beginning of a file that decide whether it is a script.
const SCRIPT_HEAD: u64 = 256;

pub(super) fn is_unknown_format(error: SpawnError) -> bool {
    error.step == SpawnStep::Exec && error.errno == ENOEXEC
}

/// Returns true if a file that the kernel cannot execute looks like a shell script. Given anything else, a shell would
/// print confusing errors about its contents, or nothing.
pub(super) fn is_script(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = os::open_for_reading(path)
        .and_then(|file| File::from(file).take(SCRIPT_HEAD).read_to_end(&mut head));
    read.is_ok() && !head.is_empty() && head.iter().all(|byte| is_text(*byte))
}

/// Returns true if a byte occurs in text of any encoding. Of the control characters, that is BEL, those that move the print
/// position, and ESC.
const fn is_text(byte: u8) -> bool {
    matches!(byte, 0x07..=0x0d | 0x1b | 0x20..=0x7e | 0x80..)
}

/// Returns the arguments with which execvp(3) runs a shell: the script as the first argument, then its arguments.
pub(super) fn shell_argv(program: &CStr, argv: &[CString]) -> Vec<CString> {
    [SHELL, program]
        .into_iter()
        .map(CStr::to_owned)
        .chain(argv.iter().skip(1).cloned())
        .collect()
}
