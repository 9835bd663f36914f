//! The search for a program.

use std::{ffi::OsString, fs, os::unix::ffi::OsStrExt, path::Path};

use dvm::{
    proto::{StartFailure, StartStep},
    spec::App,
};
use os::Found;

/// Error numbers of Linux, with the same values on every architecture that we build for.
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;

/// Returns the file to execute. Missing files and directories are found here. If exec fails later with the same errno, the
/// cause is therefore something else, such as a missing interpreter.
pub(super) fn find(app: &App) -> Result<OsString, StartFailure> {
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
            // If exec of such a file fails, the kernel's errno gives the reason.
            Ok(_) => Ok(app.program.clone()),
            Err(error) => failed(error.raw_os_error().unwrap_or(ENOENT), app.program.clone()),
        };
    }
    match os::find_program(&app.program, &os::search_path(directory, &app.search)) {
        Found::Program(path) => Ok(path.into_os_string()),
        Found::NotExecutable(path) => failed(EACCES, path.into_os_string()),
        Found::Missing => failed(ENOENT, app.program.clone()),
    }
}
