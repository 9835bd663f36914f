//! Files written by users, which are read whole.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use thiserror::Error;

/// Why a file could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum ReadProblem {
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Kernel(i32),
    #[error("it is longer than {0} bytes")]
    TooLong(u64),
    #[error("it is not valid UTF-8")]
    NotText,
    #[error("it is a directory")]
    Directory,
    #[error("it is not a regular file")]
    NotRegular,
    #[error("reading failed")]
    Failed,
}

impl ReadProblem {
    /// Returns true if there is no such file.
    pub(crate) fn is_absence(self) -> bool {
        matches!(self, Self::Kernel(errno) if matches!(
            io::Error::from_raw_os_error(errno).kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        ))
    }
}

impl From<io::Error> for ReadProblem {
    /// Keeps the errno. The failed operation is always reading, and the caller names the file.
    fn from(error: io::Error) -> Self {
        match (error.raw_os_error(), error.kind()) {
            (Some(errno), _) => Self::Kernel(errno),
            (None, io::ErrorKind::InvalidData) => Self::NotText,
            (None, _) => Self::Failed,
        }
    }
}

/// Reads a whole file, unless it is longer than `max` bytes.
pub(crate) fn read(path: &Path, max: u64) -> Result<Vec<u8>, ReadProblem> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if length > max {
        Err(ReadProblem::TooLong(max))
    } else {
        Ok(bytes)
    }
}

/// Checks that a file can be opened and is no directory. A named pipe is not opened: that would wait for a writer, and
/// closing the pipe would break the writer.
pub(crate) fn read_probe(path: &Path) -> Result<(), ReadProblem> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(ReadProblem::Directory);
    }
    if metadata.is_file() {
        File::open(path)?;
    }
    Ok(())
}

/// Returns the permission bits of a regular file that we can read.
pub(crate) fn regular_mode(path: &Path) -> Result<u32, ReadProblem> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(ReadProblem::Directory);
    }
    if !metadata.is_file() {
        return Err(ReadProblem::NotRegular);
    }
    File::open(path)?;
    Ok(metadata.mode() & 0o777)
}
