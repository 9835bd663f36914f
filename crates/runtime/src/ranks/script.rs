//! Scripts that the kernel does not know: without `#!`, they are given to a shell.

use std::{
    ffi::{CStr, CString},
    fs::File,
    io::Read,
    path::Path,
};

use os::{SpawnError, SpawnStep};

/// An error number of Linux, the same on every architecture that we build for.
const ENOEXEC: i32 = 8;
/// Runs scripts without a first line that names their interpreter.
pub(super) const SHELL: &CStr = c"/bin/sh";
/// Of so many bytes at its beginning a file that the kernel does not know is judged.
const SCRIPT_HEAD: u64 = 256;

pub(super) fn is_unknown_format(error: SpawnError) -> bool {
    error.step == SpawnStep::Exec && error.errno == ENOEXEC
}

/// Whether a file that the kernel does not know is meant for a shell, as one may write scripts without `#!`. Anything
/// else, given to a shell, would end in words about its contents, or in nothing at all.
pub(super) fn is_script(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = os::open_for_reading(path)
        .and_then(|file| File::from(file).take(SCRIPT_HEAD).read_to_end(&mut head));
    read.is_ok() && !head.is_empty() && head.iter().all(|byte| is_text(*byte))
}

/// Whether a byte occurs in text, whatever its encoding: of the control characters only those that move a printer, ring
/// its bell or change its colour do.
const fn is_text(byte: u8) -> bool {
    matches!(byte, 0x07..=0x0d | 0x1b | 0x20..=0x7e | 0x80..)
}

/// What execvp(3) gives a shell: the script in the place of its name, then its arguments.
pub(super) fn shell_argv(program: &CStr, argv: &[CString]) -> Vec<CString> {
    [SHELL, program]
        .into_iter()
        .map(CStr::to_owned)
        .chain(argv.iter().skip(1).cloned())
        .collect()
}
