//! Directories and files for our user alone. Their names cannot be guessed, nothing existed there before, and symbolic
//! links that others have put there are not followed.
#![expect(unsafe_code, reason = "the standard library gives no random bytes")]

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
        },
    },
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open, openat, renameat},
    sys::stat::{Mode, fchmod},
    unistd::{UnlinkatFlags, close, unlinkat},
};

use crate::{error::Error, process::effective_uid};

/// Permissions of a private directory.
const DIRECTORY_MODE: u32 = 0o700;
/// Maximum number of names tried. A second one is needed only if another process has guessed 64 random bits.
const TRIES: u32 = 8;

/// Makes a directory for us alone (mode 0700) in `parent`, named `prefix` and 16 random hexadecimal digits, and returns its
/// path. The parent should be ours, or sticky like /tmp: the owner of any other could replace the directory.
///
/// # Errors
/// Those of mkdir(2); `EINVAL` for a prefix with a slash. `EPERM` if the directory did not become private: on a file system
/// without owners and permissions, or under a umask that removes our own permissions.
pub fn make_private_dir(parent: &Path, prefix: &str) -> Result<PathBuf, Error> {
    const OPERATION: &str = "make the private directory";
    if prefix.contains(['/', '\0']) {
        return Err(error(OPERATION, parent.join(prefix), Errno::EINVAL));
    }
    let mut tried = 0;
    loop {
        let path = parent.join(format!("{prefix}{:016x}", random_number()?));
        tried += 1;
        match DirBuilder::new().mode(DIRECTORY_MODE).create(&path) {
            Ok(()) => {
                return check_private(&path, effective_uid())
                    .map_err(|failure| {
                        let _ = fs::remove_dir(&path);
                        Error::file(OPERATION, &path)(failure)
                    })
                    .map(|()| path);
            }
            Err(failure) if failure.kind() == io::ErrorKind::AlreadyExists && tried < TRIES => {}
            Err(failure) => return Err(Error::file(OPERATION, path)(failure)),
        }
    }
}

/// Returns true if a directory belongs to our user, is no link, and lets nobody else in.
#[must_use]
pub fn is_private_dir(path: &Path) -> bool {
    check_private(path, effective_uid()).is_ok()
}

/// Makes the file `name` in `directory` for us alone (mode 0600), whatever the umask. It appears complete or not at all: it
/// is written under a name that begins with `.new-` and then renamed. An existing file or link of that name is replaced;
/// the target of a link is not touched.
///
/// # Errors
/// Those of open(2), write(2) and rename(2); `EINVAL` if `name` is no plain file name.
pub fn write_private_file(directory: &Path, name: &OsStr, bytes: &[u8]) -> Result<(), Error> {
    let written = if is_plain_name(name) {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let temporary = format!(".new-{:016x}", random_number()?);
        open(directory, flags, Mode::empty()).and_then(|directory| {
            let directory = directory.as_fd();
            write_new(directory, &temporary, bytes)
                .and_then(|()| renameat(directory, temporary.as_str(), directory, name))
                .inspect_err(|_| {
                    let _ = unlinkat(directory, temporary.as_str(), UnlinkatFlags::NoRemoveDir);
                })
        })
    } else {
        Err(Errno::EINVAL)
    };
    written.map_err(|errno| error("write the private file", directory.join(name), errno))
}

/// What happens with a symbolic link in place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// The file is its target.
    Followed,
    /// It is an error.
    Refused,
}

/// A file that grows as its owner writes, and that is for us alone (mode 0600).
#[derive(Debug)]
pub struct Appender {
    path: PathBuf,
    file: File,
}

impl Appender {
    /// Makes the file. An existing one loses its contents.
    ///
    /// # Errors
    /// Those of open(2), chmod(2) and truncate(2).
    pub fn create(path: &Path, links: Links) -> Result<Self, Error> {
        let flags = match links {
            Links::Followed => 0,
            Links::Refused => OFlag::O_NOFOLLOW.bits(),
        };
        let create = || {
            let mut options = File::options();
            options.append(true).create(true).mode(0o600);
            let file = options.custom_flags(flags).open(path)?;
            // A device, such as /dev/null, stays as it is.
            if file.metadata()?.is_file() {
                file.set_permissions(fs::Permissions::from_mode(0o600))?;
                file.set_len(0)?;
            }
            Ok(file)
        };
        let file = create().map_err(Error::file("create", path))?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// Those of write(2). Some of the bytes may have been written.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(bytes);
        written.map_err(Error::file("write", &*self.path))
    }
}

/// Removes a private directory and its contents; links are not followed. A missing directory is no error.
///
/// # Errors
/// `EPERM` if it is not ours alone, `ENOTDIR` or `ELOOP` if it is no directory: nothing is removed then. Otherwise those of
/// rmdir(2) and unlink(2), after which a part may remain.
pub fn remove_private_dir(path: &Path) -> Result<(), Error> {
    match check_private(path, effective_uid()).and_then(|()| fs::remove_dir_all(path)) {
        Err(failure) if failure.kind() != io::ErrorKind::NotFound => {
            Err(Error::file("remove the private directory", path)(failure))
        }
        _ => Ok(()),
    }
}

/// Fails unless `path` is a directory of `user` that no other user may enter.
fn check_private(path: &Path, user: u32) -> io::Result<()> {
    let metadata = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(path)?
        .metadata()?;
    let permissions = metadata.mode() & 0o777;
    if metadata.uid() == user && permissions == DIRECTORY_MODE {
        Ok(())
    } else {
        Err(Errno::EPERM.into())
    }
}

/// Returns true if `name` is an entry of a directory, and not the directory itself, its parent or something deeper.
fn is_plain_name(name: &OsStr) -> bool {
    let mut components = Path::new(name).components();
    matches!(components.next(), Some(Component::Normal(only)) if only.as_bytes() == name.as_bytes())
}

fn write_new(directory: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> nix::Result<()> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let mut file = File::from(openat(directory, name, flags, mode)?);
    fchmod(&file, mode)?;
    file.write_all(bytes)
        .map_err(|failure| Errno::from_raw(failure.raw_os_error().unwrap_or(libc::EIO)))?;
    // Some file systems report a lack of space only on close.
    close(file)
}

/// Returns a number that nobody can guess and that never repeats.
///
/// # Errors
/// The kernel has no random numbers; only a seccomp filter can cause that.
pub fn random_number() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    loop {
        // SAFETY: the kernel writes at most the stated length into an owned array.
        let result = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        // So few bytes are never split.
        if usize::try_from(result) == Ok(bytes.len()) {
            return Ok(u64::from_ne_bytes(bytes));
        }
        let errno = Errno::last();
        if errno != Errno::EINTR {
            return Err(Error::nix("get random bytes")(errno));
        }
    }
}

fn error(operation: &'static str, path: PathBuf, errno: Errno) -> Error {
    Error::File {
        operation,
        path,
        errno: errno as i32,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn write(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), i32> {
        write_private_file(directory, OsStr::new(name), bytes).map_err(|error| error.errno())
    }

    #[test]
    fn a_file_that_grows_begins_empty_and_is_ours_alone() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let mut file = Appender::create(&path, Links::Followed).unwrap();
        file.append(b"one").unwrap();
        file.append(b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"onetwo");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        let said = |error: Error| {
            let text = error.to_string();
            text.replace(&root.path().display().to_string(), "")
        };
        let missing = Appender::create(&root.path().join("no/f"), Links::Followed).unwrap_err();
        assert_eq!(
            said(missing),
            "cannot create `/no/f`: No such file or directory"
        );
        let mut full = Appender::create(Path::new("/dev/full"), Links::Followed).unwrap();
        let full = full.append(b"one").unwrap_err();
        assert_eq!(
            said(full),
            "cannot write `/dev/full`: No space left on device"
        );
    }

    #[test]
    fn directories_have_names_of_their_own_and_are_ours_alone() {
        let root = tempfile::tempdir().unwrap();
        let made: Vec<PathBuf> = (0..3)
            .map(|_| make_private_dir(root.path(), "job.").unwrap())
            .collect();
        for path in &made {
            assert_eq!(mode(path), DIRECTORY_MODE);
            assert_eq!(path.parent(), Some(root.path()));
            let name = path.file_name().unwrap().to_str().unwrap();
            let digits = name.strip_prefix("job.").unwrap();
            assert_eq!(digits.len(), 16);
            assert!(u64::from_str_radix(digits, 16).is_ok());
        }
        assert_eq!(names(root.path()).len(), 3);
        for (parent, prefix, errno) in [
            (root.path().to_owned(), "a/b", libc::EINVAL),
            (root.path().to_owned(), "../a", libc::EINVAL),
            (root.path().to_owned(), "a\0", libc::EINVAL),
            (root.path().join("none"), "a", libc::ENOENT),
        ] {
            let refused = make_private_dir(&parent, prefix).unwrap_err();
            assert_eq!(refused.errno(), errno, "{refused}");
        }
        assert_eq!(names(root.path()).len(), 3);
    }

    #[test]
    fn files_are_replaced_whole_and_links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("precious"), "precious").unwrap();
        symlink(path("precious"), path("link")).unwrap();
        symlink(path("nowhere"), path("dangling")).unwrap();
        fs::write(path("old"), "much longer than what comes").unwrap();
        fs::set_permissions(path("old"), fs::Permissions::from_mode(0o644)).unwrap();
        let expected = ["dangling", "link", "new", "old"];
        for name in expected {
            write(root.path(), name, b"address").unwrap();
            assert_eq!(fs::read(path(name)).unwrap(), b"address", "{name}");
            assert_eq!(mode(&path(name)), 0o600, "{name}");
            assert!(!path(name).is_symlink(), "{name}");
        }
        assert_eq!(fs::read(path("precious")).unwrap(), b"precious");
        assert_eq!(
            names(root.path()),
            ["dangling", "link", "new", "old", "precious"]
        );
    }

    #[test]
    fn a_file_that_cannot_be_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("full/x")).unwrap();
        for name in ["", ".", "..", "a/b", "/a", "a/", "./a", "full/."] {
            assert_eq!(write(root.path(), name, b"x"), Err(libc::EINVAL), "{name}");
        }
        assert_eq!(write(root.path(), "full", b"x"), Err(libc::EISDIR));
        assert_eq!(
            write(&root.path().join("none"), "a", b"x"),
            Err(libc::ENOENT)
        );
        let long = "x".repeat(256);
        assert_eq!(write(root.path(), &long, b"x"), Err(libc::ENAMETOOLONG));
        assert_eq!(names(root.path()), ["full"]);
    }

    #[test]
    fn a_directory_goes_with_all_that_is_in_it_but_not_what_links_lead_to() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("other")).unwrap();
        fs::write(root.path().join("other/precious"), "").unwrap();
        let path = make_private_dir(root.path(), "job.").unwrap();
        fs::create_dir_all(path.join("a/b")).unwrap();
        write(&path.join("a/b"), "c", b"x").unwrap();
        symlink(root.path().join("other"), path.join("a/link")).unwrap();
        remove_private_dir(&path).unwrap();
        assert_eq!(names(root.path()), ["other"]);
        assert_eq!(names(&root.path().join("other")), ["precious"]);
        remove_private_dir(&path).unwrap();
    }

    #[test]
    fn what_is_not_ours_alone_is_not_removed() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let refused = |name: &str| remove_private_dir(&path(name)).unwrap_err().errno();
        let private = make_private_dir(root.path(), "job.").unwrap();
        fs::write(private.join("precious"), "").unwrap();
        symlink(&private, path("link")).unwrap();
        // With both O_DIRECTORY and O_NOFOLLOW, the kernel reports that a link is no directory.
        assert_eq!(refused("link"), libc::ENOTDIR);
        fs::write(path("file"), "").unwrap();
        assert_eq!(refused("file"), libc::ENOTDIR);
        let mut left = vec!["file", "link"];
        // Pretend to be another user, so that our directory belongs to a foreign one.
        let user = effective_uid();
        check_private(&private, user).unwrap();
        let theirs = check_private(&private, user + 1).unwrap_err();
        assert_eq!(theirs.raw_os_error(), Some(libc::EPERM));
        fs::set_permissions(&private, fs::Permissions::from_mode(0o750)).unwrap();
        assert_eq!(
            remove_private_dir(&private).unwrap_err().errno(),
            libc::EPERM
        );
        assert_eq!(names(&private), ["precious"]);
        let name = private.file_name().unwrap().to_str().unwrap();
        left.push(name);
        left.sort_unstable();
        assert_eq!(names(root.path()), left);
    }
}
