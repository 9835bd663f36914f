//! Files whose lock shows that their maker is alive.
//!
//! The kernel releases the lock when the process exits, even before it is reaped. Processes in other pid namespaces see the
//! lock too.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

/// Makes a file for our user alone and locks it. Returns `None` if another process holds the lock, or removes the file or
/// its directory at the same time.
///
/// # Errors
/// The file cannot be made, or its file system has no locks. No file is left then.
pub fn create_locked(path: &Path) -> io::Result<Option<File>> {
    // The standard library opens every file close-on-exec: a child must not hold the lock.
    let opened = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) if is_at(&file, path) => Ok(Some(file)),
        Ok(()) | Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => {
            let _ = fs::remove_file(path);
            Err(error)
        }
    }
}

/// Takes the lock of a file whose maker is gone. Returns `None` if another process holds it, or has removed the file
/// meanwhile.
#[must_use]
pub fn take_lock(path: &Path) -> Option<File> {
    let file = File::options().write(true).open(path).ok()?;
    file.try_lock().ok()?;
    is_at(&file, path).then_some(file)
}

/// Returns true if a process holds the lock of a file.
#[must_use]
pub fn is_locked(path: &Path) -> bool {
    let file = File::options().write(true).open(path);
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Returns true if `path` still leads to `file`, which may have been removed or replaced before it was locked.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(file), Ok(path)) => identity(file) == identity(path),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_lives_as_long_as_its_file_is_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert!(!is_locked(&path));
        assert!(take_lock(&path).is_none(), "there is no such file");
        let file = create_locked(&path).unwrap().unwrap();
        assert!(is_locked(&path));
        assert!(take_lock(&path).is_none());
        assert!(create_locked(&path).unwrap().is_none());
        drop(file);
        assert!(!is_locked(&path));
        let taken = take_lock(&path).unwrap();
        assert!(is_locked(&path));
        // The file with the same name is not the one that was locked.
        fs::remove_file(&path).unwrap();
        assert!(!is_at(&taken, &path));
        let other = create_locked(&path).unwrap().unwrap();
        assert!(!is_at(&taken, &path) && is_at(&other, &path));
    }

    #[test]
    fn what_cannot_be_made_is_no_race() {
        let directory = tempfile::tempdir().unwrap();
        let nowhere = directory.path().join("gone").join("file");
        assert!(create_locked(&nowhere).unwrap().is_none());
        assert!(create_locked(directory.path()).is_err());
    }
}
