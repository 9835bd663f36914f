//! Files that a proc wants on the nodes of a job that it spawns (`PMIX_PRELOAD_BIN`, `PMIX_PRELOAD_FILES`).
//!
//! They are on the controller's node, as those of `rally run --preload-files` are, and as PRRTE's users expect. A relative path
//! begins at the working directory of its app. The spawner's node may be another one, on which the path has no meaning.

#[cfg(test)]
mod tests;

use std::{
    ffi::{CStr, OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use pmix::{
    keys,
    value::{Status, Value},
};

use crate::{
    preload::{WINDOW, WantedFile, copy_name},
    spec::{App, Preload, PreloadFile, Preloaded},
};

/// Maximum number of files of one spawned job.
const MAX_FILES: usize = 1024;
/// Maximum number of jobs whose files are being copied when a proc spawns a further job. Each of them may have a window of
/// chunks on its way. All windows together must leave room among the casts that the overlay keeps (64 MiB): a process that returns
/// after a loss is refused if casts were forgotten.
pub(super) const MAX_COPIED: usize = 4;
const _: () = assert!(MAX_COPIED as u64 * WINDOW <= 32 * 1024 * 1024);

/// The files of a job that is being spawned.
#[derive(Debug, Default)]
pub(super) struct Files {
    preload: Option<Preload>,
    /// How to find each file of `preload`, which lacks its path and its permissions.
    wanted: Vec<WantedFile>,
}

impl Files {
    /// Adds the files of an app. `said` returns the value of a directive.
    pub(super) fn add<'a>(
        &mut self,
        index: u32,
        app: &App,
        said: impl Fn(&CStr) -> Option<&'a Value>,
    ) -> Result<(), Status> {
        let is_set = |key: &CStr| said(key).is_some_and(Value::is_set);
        let file = |path: &OsStr| WantedFile {
            path: Path::new(&app.directory).join(path).into_os_string(),
            search: None,
            directory: app.directory.clone(),
        };
        if is_set(keys::PRELOAD_BIN) {
            let program = &app.program;
            let (wanted, name) = if program.as_bytes().contains(&b'/') {
                (file(program), copy_name(Path::new(program)))
            } else {
                let wanted = WantedFile {
                    path: program.clone(),
                    search: Some(app.search.clone()),
                    directory: app.directory.clone(),
                };
                (wanted, program.clone())
            };
            // Whoever may run the file may also read and run the copy, which is ours.
            self.want(wanted, name.clone(), 0o500)?;
            self.of_job().use_of.programs.insert(index, name);
        }
        if let Some(list) = said(keys::PRELOAD_FILES) {
            let list = list.as_text().ok_or(Status::BAD_PARAM)?.to_bytes();
            let paths = list.split(|byte| *byte == b',').map(OsStr::from_bytes);
            for path in paths.filter(|path| !path.is_empty()) {
                self.want(file(path), copy_name(Path::new(path)), 0o400)?;
            }
        }
        if is_set(keys::SET_SESSION_CWD) {
            self.of_job().use_of.inside.insert(index);
        }
        Ok(())
    }

    /// Notes that an agent executes an app, whose program is this argument.
    pub(super) fn executed_by_agent(&mut self, app: u32, argument: u32) {
        if let Some(preload) = &mut self.preload {
            preload.use_of.executed_by_agent(app, argument);
        }
    }

    /// Returns what is copied; `None` if no app needs a directory for files.
    pub(super) fn finish(self) -> (Option<Preload>, Vec<WantedFile>) {
        (self.preload, self.wanted)
    }

    fn of_job(&mut self) -> &mut Preload {
        self.preload.get_or_insert_with(|| Preload {
            place: None,
            files: Vec::new(),
            use_of: Preloaded::default(),
        })
    }

    /// Adds a file, unless it is there already. `needed` are permissions that the copy has in any case.
    fn want(&mut self, wanted: WantedFile, name: OsString, needed: u32) -> Result<(), Status> {
        if name.is_empty() {
            return Err(Status::BAD_PARAM);
        }
        let is_same = |known: &WantedFile| {
            known.search == wanted.search
                && Path::new(&known.path) == Path::new(&wanted.path)
                && (known.directory == wanted.directory || !depends_on_directory(&wanted))
        };
        let known = self
            .of_job()
            .files
            .iter()
            .position(|file| file.name == name);
        match known {
            Some(known) if self.wanted.get(known).is_some_and(is_same) => {
                self.of_job().files[known].mode |= needed;
            }
            // Two files cannot have one name.
            Some(_) => return Err(Status::BAD_PARAM),
            None if self.wanted.len() >= MAX_FILES => return Err(Status::OUT_OF_RESOURCE),
            None => {
                self.of_job().files.push(PreloadFile {
                    path: OsString::new(),
                    name,
                    mode: needed,
                });
                self.wanted.push(wanted);
            }
        }
        Ok(())
    }
}

/// Returns true if a file is searched for in a directory that has no absolute path.
fn depends_on_directory(wanted: &WantedFile) -> bool {
    wanted.search.as_ref().is_some_and(|search| {
        let mut places = search.as_bytes().split(|byte| *byte == b':');
        places.any(|place| !place.starts_with(b"/"))
    })
}
