//! Writing files for people into directories that other users may write too. A user who guesses the name must not make us
//! write elsewhere, or over a file that is not ours.
//!
//! | what has the name | what is done |
//! |---|---|
//! | nothing | the file is written under a random name, then renamed if its own name is still free |
//! | a regular file of ours | the file is written under a random name, gets the old permissions, and replaces the old file |
//! | a device, or a FIFO of ours | it is written to |
//! | a symbolic link, a file of another user, a directory, a socket | refused |
//!
//! A file that this process has open (`/dev/stdout`, `/dev/fd/3`) is written to directly.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, RenameFlags, open, openat, renameat, renameat2},
    sys::stat::{Mode, SFlag, fchmod, fstatat},
    unistd::{UnlinkatFlags, close, linkat, unlinkat},
};

use crate::{private::random_number, process::effective_uid};

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub enum NotWritten {
    /// The name is a symbolic link, which may lead anywhere.
    #[error("it is a symbolic link, and links are not followed")]
    Link,
    /// A file of that name belongs to another user.
    #[error("it exists already, and belongs to user {owner}")]
    Others {
        /// Its owner.
        owner: u32,
    },
    /// Another process has made something of that name meanwhile.
    #[error("another process has just created it")]
    Taken,
    /// It is a directory or a socket, or the path names no file.
    #[error("it is not a regular file")]
    NoFile,
    /// The system refuses.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<Errno> for NotWritten {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Returns true if a path names a file that is open in this process. Such names are links.
fn is_open_file(path: &Path) -> bool {
    let Some(path) = path.to_str() else {
        return false;
    };
    let number = ["/dev/fd/", "/proc/self/fd/"]
        .into_iter()
        .find_map(|directory| path.strip_prefix(directory));
    matches!(path, "/dev/stdout" | "/dev/stderr")
        || number.is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
}

/// Writes a file, which appears complete or not at all.
///
/// # Errors
/// See [`NotWritten`].
pub fn publish(path: &Path, bytes: &[u8]) -> Result<(), NotWritten> {
    publish_of(effective_uid(), path, bytes)
}

/// Writes a file; files that belong to `user` count as ours.
fn publish_of(user: u32, path: &Path, bytes: &[u8]) -> Result<(), NotWritten> {
    if is_open_file(path) {
        return Ok(File::options().append(true).open(path)?.write_all(bytes)?);
    }
    let name = path.file_name().ok_or(NotWritten::NoFile)?;
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let directory = open(
        parent.unwrap_or_else(|| Path::new(".")),
        flags,
        Mode::empty(),
    )?;
    let directory = directory.as_fd();
    let found = match fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::ENOENT) => return put(directory, name, bytes, Place::Free),
        Err(errno) => return Err(errno.into()),
    };
    let kind = SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits());
    let ours = found.st_uid == user;
    match kind {
        SFlag::S_IFLNK => Err(NotWritten::Link),
        SFlag::S_IFCHR => write_to(directory, name, bytes),
        SFlag::S_IFIFO if ours => write_to(directory, name, bytes),
        SFlag::S_IFREG if ours => {
            let permissions = Mode::from_bits_truncate(found.st_mode);
            put(directory, name, bytes, Place::Ours(permissions))
        }
        SFlag::S_IFREG | SFlag::S_IFIFO => Err(NotWritten::Others {
            owner: found.st_uid,
        }),
        _ => Err(NotWritten::NoFile),
    }
}

/// What has the name of a file that is to be written.
#[derive(Clone, Copy)]
enum Place {
    Free,
    /// A file of ours, with these permissions.
    Ours(Mode),
}

/// Writes a file under a temporary name and renames it.
fn put(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    bytes: &[u8],
    place: Place,
) -> Result<(), NotWritten> {
    let number = random_number().map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
    let temporary = format!(".new-{number:016x}");
    let temporary = OsStr::new(&temporary);
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    // The umask applies.
    let mode = Mode::from_bits_truncate(0o666);
    let file = openat(directory, temporary, flags, mode)?;
    fill(file, bytes, place)
        .and_then(|()| match place {
            Place::Free => rename_to_free(directory, temporary, name),
            Place::Ours(_) => Ok(renameat(directory, temporary, directory, name)?),
        })
        .inspect_err(|_| {
            let _ = unlinkat(directory, temporary, UnlinkatFlags::NoRemoveDir);
        })
}

fn fill(file: OwnedFd, bytes: &[u8], place: Place) -> Result<(), NotWritten> {
    let mut file = File::from(file);
    if let Place::Ours(permissions) = place {
        fchmod(&file, permissions)?;
    }
    file.write_all(bytes)?;
    // Some file systems report a lack of space only on close.
    Ok(close(file)?)
}

/// Renames a file, unless something has the new name by now.
fn rename_to_free(directory: BorrowedFd<'_>, from: &OsStr, name: &OsStr) -> Result<(), NotWritten> {
    let renamed = renameat2(
        directory,
        from,
        directory,
        name,
        RenameFlags::RENAME_NOREPLACE,
    );
    let named = match renamed {
        // Network file systems do not support that. A hard link is refused too if the name is taken.
        Err(Errno::EINVAL | Errno::ENOSYS) => {
            linkat(directory, from, directory, name, AtFlags::empty())
                .and_then(|()| unlinkat(directory, from, UnlinkatFlags::NoRemoveDir))
        }
        renamed => renamed,
    };
    named.map_err(|errno| match errno {
        Errno::EEXIST => NotWritten::Taken,
        errno => errno.into(),
    })
}

/// Writes to an existing device or FIFO.
fn write_to(directory: BorrowedFd<'_>, name: &OsStr, bytes: &[u8]) -> Result<(), NotWritten> {
    let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty())?;
    Ok(File::from(file).write_all(bytes)?)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{
            fs::{PermissionsExt, symlink},
            net::UnixListener,
        },
    };

    use nix::unistd::mkfifo;

    use super::*;

    fn said(path: &Path) -> String {
        match publish(path, b"new") {
            Ok(()) => "written".to_owned(),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn files_that_are_open_have_these_names_and_no_others() {
        for (path, expected) in [
            ("/dev/stdout", true),
            ("/dev/stderr", true),
            ("/dev/fd/3", true),
            ("/proc/self/fd/12", true),
            ("/dev/stdoutX", false),
            ("/dev/fd/", false),
            ("/dev/fd/../../tmp/x", false),
            ("/proc/self/fd/1/x", false),
            ("/tmp/x", false),
        ] {
            assert_eq!(is_open_file(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn what_is_not_ours_stays_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("precious"), "precious").unwrap();
        symlink("precious", path("link")).unwrap();
        symlink("nothing", path("dangling")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        let _listener = UnixListener::bind(path("socket")).unwrap();
        for (name, why) in [
            ("link", "it is a symbolic link, and links are not followed"),
            (
                "dangling",
                "it is a symbolic link, and links are not followed",
            ),
            ("directory", "it is not a regular file"),
            ("socket", "it is not a regular file"),
        ] {
            assert_eq!(said(&path(name)), why);
        }
        assert_eq!(fs::read_to_string(path("precious")).unwrap(), "precious");
        assert!(!path("nothing").exists());
        // Pretend to be another user, so that our files belong to a foreign one.
        let user = effective_uid();
        let why = format!("it exists already, and belongs to user {user}");
        mkfifo(&path("pipe"), Mode::S_IRWXU).unwrap();
        for name in ["precious", "pipe"] {
            let written = publish_of(user + 1, &path(name), b"new");
            assert_eq!(written.unwrap_err().to_string(), why, "{name}");
        }
        assert_eq!(fs::read_to_string(path("precious")).unwrap(), "precious");
        // No temporary file remains.
        let hidden = fs::read_dir(root.path()).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.as_encoded_bytes().starts_with(b".new-")
        });
        assert_eq!(hidden.count(), 0);
    }

    #[test]
    fn what_is_ours_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("page.html");
        assert_eq!(said(&path), "written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        // Another name of the old file still leads to it.
        fs::write(&path, "a page that is longer").unwrap();
        let old = root.path().join("old");
        fs::hard_link(&path, &old).unwrap();
        assert_eq!(said(&path), "written");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_to_string(&old).unwrap(), "a page that is longer");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn a_name_that_is_taken_meanwhile_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = open(root.path(), flags, Mode::empty()).unwrap();
        symlink("precious", root.path().join("page")).unwrap();
        let put = put(directory.as_fd(), OsStr::new("page"), b"new", Place::Free);
        assert!(matches!(put, Err(NotWritten::Taken)), "{put:?}");
        assert!(!root.path().join("precious").exists());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn devices_are_written_to() {
        assert_eq!(said("/dev/null".as_ref()), "written");
        assert_eq!(said("/".as_ref()), "it is not a regular file");
        let full = publish("/dev/full".as_ref(), b"new");
        assert!(matches!(full, Err(NotWritten::System(_))), "{full:?}");
    }
}
