//! The files to which jobs without a front write. Each belongs to one run, and is closed when the run is over.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    fs::File,
    io::{self, Write as _},
    path::PathBuf,
};

use base::JobId;
use dvm::{CaptureStart, proto::Stream};
use os::Start;

/// Files that are open at the same time. More runs may write: the file that was opened first is closed, and opened again when its run
/// writes again.
const OPEN_MAX: usize = 64;

/// The file of one stream of a run.
type Id = (JobId, Stream);

/// The files of all runs.
#[derive(Debug, Default)]
pub(super) struct Files {
    paths: BTreeMap<Id, (PathBuf, u32)>,
    /// The open ones, the one that was opened last behind the others.
    open: VecDeque<(Id, File)>,
}

impl Files {
    /// Opens the files of a run. Without one for stderr, both streams have the same.
    pub(super) fn open(&mut self, run: JobId, start: &CaptureStart) -> Result<(), String> {
        let how = if start.truncates {
            Start::Nothing
        } else {
            Start::Kept
        };
        let files = [
            (Stream::Stdout, Some(&start.files.stdout)),
            (Stream::Stderr, start.files.stderr.as_ref()),
        ];
        for (stream, path) in files {
            let Some(path) = path else { continue };
            let path = PathBuf::from(OsString::clone(path));
            let id = (run, stream);
            self.paths.insert(id, (path, start.umask));
            let opened = self.file(id, how).map(drop);
            opened.map_err(|error| self.described(id, &error))?;
        }
        Ok(())
    }

    /// Appends to the file of a run.
    pub(super) fn append(
        &mut self,
        run: JobId,
        stream: Stream,
        bytes: &[u8],
    ) -> Result<(), String> {
        let id = if self.paths.contains_key(&(run, stream)) {
            (run, stream)
        } else {
            (run, Stream::Stdout)
        };
        let written = self
            .file(id, Start::Kept)
            .and_then(|mut file| file.write_all(bytes));
        written.map_err(|error| self.described(id, &error))
    }

    /// Closes the files of a run that is over.
    pub(super) fn close(&mut self, run: JobId) {
        self.paths.retain(|(of, _), _| *of != run);
        self.open.retain(|((of, _), _)| *of != run);
    }

    fn file(&mut self, id: Id, start: Start) -> io::Result<&File> {
        let index = match self.open.iter().position(|(open, _)| *open == id) {
            Some(index) => index,
            None => {
                let known = self.paths.get(&id);
                let (path, umask) = known.ok_or(io::ErrorKind::NotFound)?;
                let file = os::open_output(path, *umask, start)?;
                if self.open.len() >= OPEN_MAX {
                    self.open.pop_front();
                }
                self.open.push_back((id, file));
                self.open.len() - 1
            }
        };
        Ok(&self.open[index].1)
    }

    fn described(&self, id: Id, error: &io::Error) -> String {
        match self.paths.get(&id) {
            Some((path, _)) => format!("`{}`: {error}", path.display()),
            None => error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use dvm::machine::OutputFiles;

    use super::*;

    fn start(path: &std::path::Path, truncates: bool) -> CaptureStart {
        CaptureStart {
            files: OutputFiles {
                stdout: path.into(),
                stderr: None,
            },
            umask: 0o077,
            truncates,
        }
    }

    #[test]
    fn many_files_grow_in_turn() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number: u32| directory.path().join(format!("out-{number}"));
        let mut files = Files::default();
        let count = u32::try_from(3 * OPEN_MAX).unwrap();
        for run in 0..count {
            files.open(JobId(run), &start(&path(run), true)).unwrap();
        }
        for line in ["one\n", "two\n"] {
            for run in 0..count {
                files
                    .append(JobId(run), Stream::Stderr, line.as_bytes())
                    .unwrap();
                assert!(files.open.len() <= OPEN_MAX);
            }
        }
        for run in 0..count {
            assert_eq!(os::read_owned(&path(run)).unwrap().0, b"one\ntwo\n");
            files.close(JobId(run));
        }
        assert!(files.open.is_empty() && files.paths.is_empty());
        let permissions = path(0).metadata().unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777, 0o600);
        // A later run begins with an empty file, or goes on where the last one was.
        files.open(JobId(1), &start(&path(0), true)).unwrap();
        assert_eq!(os::read_owned(&path(0)).unwrap().0, b"");
        files.open(JobId(1), &start(&path(1), false)).unwrap();
        assert_eq!(os::read_owned(&path(1)).unwrap().0, b"one\ntwo\n");
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::default();
        let failed = files
            .open(JobId(1), &start(directory.path(), true))
            .unwrap_err();
        assert!(
            failed.starts_with(&format!("`{}`: ", directory.path().display())),
            "{failed}"
        );
        let nowhere = directory.path().join("none/out");
        assert!(files.open(JobId(2), &start(&nowhere, true)).is_err());
    }
}
