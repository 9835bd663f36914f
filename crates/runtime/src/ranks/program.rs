//! What to execute: the search for a program, its arguments and environment, and scripts that the kernel does not know.

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString, OsStr, OsString},
    fs::{self, File},
    io::Read,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use dvm::{
    proto::{StartFailure, StartStep},
    spec::{App, Tracers},
};
use os::{Found, SpawnError, SpawnStep};

use super::relocated;

/// Error numbers of Linux, the same on every architecture that we build for.
const ENOENT: i32 = 2;
const ENOEXEC: i32 = 8;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
/// Runs scripts without a first line that names their interpreter.
pub(super) const SHELL: &CStr = c"/bin/sh";
/// Of so many bytes at its beginning a file that the kernel does not know is judged.
const SCRIPT_HEAD: u64 = 256;

/// One app, ready to be executed many times.
#[derive(Debug)]
pub(super) struct Prepared {
    /// What the search found, or what it failed with.
    pub(super) program: Result<CString, StartFailure>,
    pub(super) argv: Vec<CString>,
    /// The arguments of a shell that runs it, when the kernel did not know the file and it turned out to be a script.
    pub(super) shell: Option<Vec<CString>>,
    pub(super) envp: Vec<CString>,
    /// Whether `envp` has lost what each rank has a value of its own for.
    has_own: bool,
    pub(super) directory: CString,
    pub(super) umask: Option<u32>,
    pub(super) tracers: os::Tracers,
}

impl Prepared {
    pub(super) fn new(app: &App) -> Self {
        let mut argv = vec![c_string(app.program.as_bytes().to_vec())];
        argv.extend(app.args.iter().map(|arg| c_string(arg.as_bytes().to_vec())));
        let program = find(app);
        let own = app.env.iter().map(|(name, value)| variable(name, value));
        let mut envp: Vec<_> = own.collect();
        if let Ok(program) = &program {
            let program = Path::new(OsStr::from_bytes(program.to_bytes()));
            let place = Path::new(&app.directory).join(program);
            envp.extend(relocated::variables(app, &place));
        }
        Self {
            program,
            argv,
            shell: None,
            envp,
            has_own: false,
            directory: c_string(app.directory.as_bytes().to_vec()),
            umask: app.umask,
            tracers: match app.tracers {
                Tracers::Ancestors => os::Tracers::Ancestors,
                Tracers::SameUser => os::Tracers::SameUser,
            },
        }
    }
}

impl Prepared {
    /// Leaves out what ranks have values of their own for: a name that is there twice means one thing to a shell and
    /// another to a program. The names are the same for all ranks of an app.
    pub(super) fn leave_out(&mut self, own: &[(String, OsString)]) {
        if std::mem::replace(&mut self.has_own, true) {
            return;
        }
        let names: BTreeSet<&[u8]> = own.iter().map(|(name, _)| name.as_bytes()).collect();
        self.envp.retain(|variable| {
            let name = variable.as_bytes().split(|byte| *byte == b'=').next();
            !names.contains(name.unwrap_or_default())
        });
    }
}

/// The file to execute. That it is missing, or a directory, is found here, so that a later error of the same number
/// is known to be about something else, such as its interpreter.
fn find(app: &App) -> Result<CString, StartFailure> {
    let directory = Path::new(&app.directory);
    let place = fs::metadata(directory);
    let bad = match &place {
        Ok(place) if place.is_dir() => None,
        Ok(_) => Some(ENOTDIR),
        Err(error) => Some(error.raw_os_error().unwrap_or(ENOENT)),
    };
    if let Some(errno) = bad {
        return Err(StartFailure {
            step: StartStep::Directory,
            errno,
            subject: Some(app.directory.clone()),
        });
    }
    let failed = |errno, subject| {
        Err(StartFailure {
            step: StartStep::Find,
            errno,
            subject: Some(subject),
        })
    };
    if app.program.as_bytes().contains(&b'/') {
        let path = directory.join(&app.program);
        return match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => failed(EISDIR, app.program.clone()),
            Ok(_) if !os::is_executable(&path) => failed(EACCES, app.program.clone()),
            // The kernel knows best why such a file does not run all the same.
            Ok(_) => Ok(c_string(app.program.as_bytes().to_vec())),
            Err(error) => failed(error.raw_os_error().unwrap_or(ENOENT), app.program.clone()),
        };
    }
    match os::find_program(&app.program, &search_path(directory, &app.search)) {
        Found::Program(path) => Ok(c_string(path.into_os_string().into_vec())),
        Found::NotExecutable(path) => failed(EACCES, path.into_os_string()),
        Found::Missing => failed(ENOENT, app.program.clone()),
    }
}

/// Where a rank looks for programs: relative entries of its path count from its directory.
pub(super) fn search_path(directory: &Path, search: &OsStr) -> OsString {
    let entries = search.as_bytes().split(|byte| *byte == b':').map(|entry| {
        let place = directory.join(OsStr::from_bytes(entry));
        // Without the dots in its midst that a relative entry brings.
        let place: PathBuf = place.components().collect();
        place.into_os_string().into_vec()
    });
    OsString::from_vec(entries.collect::<Vec<_>>().join(&b':'))
}

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

/// Arguments come from argv, a file or the environment, none of which can hold a NUL byte in Linux; what follows one
/// would be invisible to the program anyway.
pub(super) fn c_string(mut bytes: Vec<u8>) -> CString {
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(at);
    }
    CString::new(bytes).unwrap_or_default()
}

pub(super) fn variable(name: &OsStr, value: &OsStr) -> CString {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(b'=');
    bytes.extend_from_slice(value.as_bytes());
    c_string(bytes)
}
