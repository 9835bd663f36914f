//! Files: finding programs, reading small kernel files, mapping, removing.
#![expect(
    unsafe_code,
    reason = "faccessat decides by the effective user, and files are mapped"
)]

use std::{
    ffi::{CString, OsStr, OsString},
    fs::{self, File},
    io::{self, Read, Write as _},
    num::NonZeroUsize,
    os::{
        fd::OwnedFd,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
        },
    },
    path::{Path, PathBuf},
    ptr::NonNull,
    slice,
};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::Error;

/// Opens a file for reading in an event loop. A FIFO opens immediately, and has its first event once there is a writer.
///
/// # Errors
/// Those of open(2).
pub fn open_for_reading(path: &Path) -> io::Result<OwnedFd> {
    File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map(OwnedFd::from)
}

/// A file mapped for reading.
#[derive(Debug)]
pub struct Mapped {
    base: NonNull<u8>,
    length: NonZeroUsize,
    device: (u32, u32),
    inode: u64,
}

impl Mapped {
    /// Maps a regular file.
    ///
    /// # Errors
    /// Those of open(2) and mmap(2); `EINVAL` if the file is empty or no regular file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = || Error::file("open", path);
        let error = |errno| Error::File {
            operation: "map",
            path: path.to_owned(),
            errno,
        };
        let (file, metadata) = open_at_once(path).map_err(failed())?;
        let length = usize::try_from(metadata.len()).ok();
        let length = length
            .filter(|_| metadata.is_file())
            .and_then(NonZeroUsize::new)
            .ok_or_else(|| error(libc::EINVAL))?;
        // SAFETY: a new mapping that overlaps nothing, and that nothing writes through.
        let base = unsafe {
            mmap(
                None,
                length,
                ProtFlags::PROT_READ,
                MapFlags::MAP_PRIVATE,
                &file,
                0,
            )
        }
        .map_err(|errno| error(errno as i32))?;
        let device = metadata.dev();
        Ok(Self {
            base: base.cast(),
            length,
            device: (libc::major(device), libc::minor(device)),
            inode: metadata.ino(),
        })
    }

    /// Returns the identity of the file: major and minor number of its device, and its inode.
    #[must_use]
    pub const fn identity(&self) -> ((u32, u32), u64) {
        (self.device, self.inode)
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping is readable over its length until it is dropped. If a process writes into the file, the bytes
        // that are read change, and any bytes are valid. If a process truncates it, we get SIGBUS, as does every reader of
        // a mapped file.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.length.get()) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        let _ = unsafe { munmap(self.base.cast(), self.length.get()) };
    }
}

// SAFETY: it is only read, and belongs to no thread.
unsafe impl Send for Mapped {}
// SAFETY: it is only read.
unsafe impl Sync for Mapped {}

/// Initial size of the buffer for a kernel file, in bytes: most of them fit.
const PAGE: usize = 4096;
/// Maximum length of a file in /proc or /sys that should be small, in bytes.
const SMALL_FILE: u64 = 1 << 20;

/// Returns true if `path` is a regular file that the effective user may execute.
#[must_use]
pub fn is_executable(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the name ends with a zero byte and outlives the call.
    let allowed =
        unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::X_OK, libc::AT_EACCESS) }
            == 0;
    allowed && path.is_file()
}

/// Result of a search for a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// This file can be executed.
    Program(PathBuf),
    /// Files of that name exist, but none can be executed; this is the first of them.
    NotExecutable(PathBuf),
    /// No file of that name exists.
    Missing,
}

/// Returns a search path (a value of `PATH`) whose relative and empty entries are made absolute by a directory.
#[must_use]
pub fn search_path(directory: &Path, path: &OsStr) -> OsString {
    let entries = path.as_bytes().split(|byte| *byte == b':').map(|entry| {
        let place = directory.join(OsStr::from_bytes(entry));
        // Drop the `.` components that a relative entry brings.
        let place: PathBuf = place.components().collect();
        place.into_os_string().into_vec()
    });
    OsString::from_vec(entries.collect::<Vec<_>>().join(&b':'))
}

/// Finds the file for `name` as a shell does. A name with a slash is used as it is. Any other is searched for in the
/// directories of `path` (the value of `PATH`), in order; an empty entry is the current directory.
#[must_use]
pub fn find_program(name: &OsStr, path: &OsStr) -> Found {
    if name.is_empty() {
        return Found::Missing;
    }
    let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
        vec![PathBuf::from(name)]
    } else {
        path.as_bytes()
            .split(|&byte| byte == b':')
            .map(|directory| {
                if directory.is_empty() {
                    &b"."[..]
                } else {
                    directory
                }
            })
            .map(|directory| Path::new(OsStr::from_bytes(directory)).join(name))
            .collect()
    };
    let mut found = Found::Missing;
    for candidate in candidates {
        if is_executable(&candidate) {
            return Found::Program(candidate);
        }
        if found == Found::Missing && candidate.exists() {
            found = Found::NotExecutable(candidate);
        }
    }
    found
}

/// Returns the text of a small kernel file.
///
/// # Errors
/// Those of open(2) and read(2); `EFBIG` beyond 1 MiB, `EIO` if it is not UTF-8.
pub(crate) fn read_small(path: &Path) -> Result<String, Error> {
    let error = |errno| Error::File {
        operation: "read",
        path: path.to_owned(),
        errno,
    };
    let failed = |failure: io::Error| error(failure.raw_os_error().unwrap_or(libc::EIO));
    let content =
        File::open(path).and_then(|file| read_kernel_file(&mut file.take(SMALL_FILE + 1)));
    let content = content.map_err(failed)?;
    if content.len() as u64 > SMALL_FILE {
        Err(error(libc::EFBIG))
    } else {
        String::from_utf8(content).map_err(|_| error(libc::EIO))
    }
}

/// Reads all of a file that the kernel generates during the read. The size of such a file is reported as 0. Asking for it
/// first, as the standard library does, costs two useless system calls; `dbgr` reads thousands of these files per sample.
///
/// # Errors
/// Those of read(2).
pub(crate) fn read_kernel_file(file: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut content = vec![0; PAGE];
    let mut length = 0;
    loop {
        match file.read(&mut content[length..]) {
            Ok(0) => break,
            Ok(size) => length += size,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if length == content.len() {
            content.resize(2 * length, 0);
        }
    }
    content.truncate(length);
    Ok(content)
}

/// Opens a file for reading without waiting, even if it is a FIFO, and returns its metadata.
pub(crate) fn open_at_once(path: &Path) -> io::Result<(File, fs::Metadata)> {
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// Returns the content of a small file and the user who owns it.
///
/// # Errors
/// Those of open(2) and read(2); `EFBIG` beyond 1 MiB, `EINVAL` if it is no regular file.
pub fn read_owned(path: &Path) -> Result<(Vec<u8>, u32), Error> {
    let failed = || Error::file("read", path);
    let error = |errno| Error::File {
        operation: "read",
        path: path.to_owned(),
        errno,
    };
    let (file, metadata) = open_at_once(path).map_err(failed())?;
    if !metadata.is_file() {
        return Err(error(libc::EINVAL));
    }
    let mut content = Vec::new();
    file.take(SMALL_FILE + 1)
        .read_to_end(&mut content)
        .map_err(failed())?;
    if content.len() as u64 > SMALL_FILE {
        return Err(error(libc::EFBIG));
    }
    Ok((content, metadata.uid()))
}

/// Returns at most `most` bytes from the beginning of a regular file of our user. A symbolic link is not followed.
///
/// # Errors
/// Those of open(2) and read(2); `EINVAL` if it is no regular file, `EPERM` if it belongs to another user.
pub fn read_own_file(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    let failed = || Error::file("read", path);
    let error = |errno| Error::File {
        operation: "read",
        path: path.to_owned(),
        errno,
    };
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOFOLLOW);
    let file = options.open(path).map_err(failed())?;
    let metadata = file.metadata().map_err(failed())?;
    if !metadata.is_file() {
        return Err(error(libc::EINVAL));
    }
    if metadata.uid() != nix::unistd::geteuid().as_raw() {
        return Err(error(libc::EPERM));
    }
    let mut content = Vec::new();
    file.take(most)
        .read_to_end(&mut content)
        .map_err(failed())?;
    Ok(content)
}

/// Makes sure that the names in a directory are still there after a loss of power.
///
/// # Errors
/// Those of open(2) and fsync(2).
pub fn sync_directory(path: &Path) -> Result<(), Error> {
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(Error::file("sync", path))
}

/// Returns at most `most` entries of a directory, in no order; none if it cannot be read.
#[must_use]
pub fn entries(directory: &Path, most: usize) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).take(most).collect()
}

/// Makes a directory for us alone (mode 0700), and its missing parents. One that exists is no error and is not changed.
///
/// # Errors
/// Those of mkdir(2).
pub fn make_private_dirs(path: &Path) -> Result<(), Error> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(Error::file("make the directory", path.to_path_buf()))
}

/// Writes a file for us alone (mode 0600), and makes its missing directories (mode 0700). There must be no file of this name.
///
/// # Errors
/// Those of mkdir(2), open(2) and write(2). No file is left then.
pub fn make_private_file(path: &Path, content: &[u8]) -> Result<(), Error> {
    if let Some(directory) = path.parent() {
        make_private_dirs(directory)?;
    }
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(Error::file("create", path))?;
    file.write_all(content).map_err(|error| {
        let _ = fs::remove_file(path);
        Error::file("write", path)(error)
    })
}

/// Removes files, and directories with all their contents. Missing ones and errors are ignored. A symbolic link is removed
/// itself, and not its target.
pub fn remove_files<P: AsRef<Path>>(paths: &[P]) {
    for path in paths {
        let path = path.as_ref();
        // An error may mean that the file was removed meanwhile.
        let _ = match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
            Err(_) => continue,
        };
    }
}

/// Removes a directory with all its contents. A missing one is no error. A symbolic link is removed itself, and not its target.
///
/// # Errors
/// Those of rmdir(2) and unlink(2), after which a part may remain.
pub fn remove_tree(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(failure) if failure.kind() != io::ErrorKind::NotFound => {
            Err(Error::file("remove", path)(failure))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_regular_files_of_our_own_are_read() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, b"0123456789").unwrap();
        assert_eq!(read_own_file(&file, 4).unwrap(), b"0123");
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let errno = |path: &Path| read_own_file(path, 4).unwrap_err().errno();
        assert_eq!(errno(&link), libc::ELOOP);
        assert_eq!(errno(root.path()), libc::EINVAL);
        assert_eq!(errno(&root.path().join("none")), libc::ENOENT);
        // One that belongs to somebody else: to root, or for root to nobody.
        let foreign = if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(65_534), None).unwrap();
            file
        } else {
            PathBuf::from("/etc/passwd")
        };
        assert_eq!(errno(&foreign), libc::EPERM);
    }

    #[test]
    fn a_private_file_is_ours_alone_and_replaces_none() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("made/too/file");
        make_private_file(&path, b"0:17\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"0:17\n");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        // Another one may have made it, or a link to elsewhere.
        let refused = make_private_file(&path, b"");
        let exists = |errno: i32| errno == libc::EEXIST;
        assert!(matches!(refused, Err(Error::File { errno, .. }) if exists(errno)));
        assert_eq!(fs::read(&path).unwrap(), b"0:17\n");
        let below = make_private_file(&path.join("file"), b"");
        assert!(
            matches!(below, Err(Error::File { errno, .. }) if errno == libc::ENOTDIR || exists(errno))
        );
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let root = tempfile::tempdir().unwrap();
        let make = |name: &str, mode: u32| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let first = make("a/tool", 0o644);
        let second = make("b/tool", 0o755);
        make("c/tool", 0o755);
        fs::create_dir_all(root.path().join("a/folder")).unwrap();
        let directory = |name: &str| root.path().join(name).display().to_string();
        let path = format!(
            "/nowhere:{}:{}:{}",
            directory("a"),
            directory("b"),
            directory("c")
        );
        let find = |name: &str, path: &str| find_program(OsStr::new(name), OsStr::new(path));
        assert_eq!(find("tool", &path), Found::Program(second.clone()));
        assert_eq!(
            find("tool", &directory("a")),
            Found::NotExecutable(first.clone())
        );
        assert_eq!(
            find("folder", &path),
            Found::NotExecutable(root.path().join("a/folder"))
        );
        assert_eq!(find("none", &path), Found::Missing);
        assert_eq!(find("", &path), Found::Missing);
        let full = second.display().to_string();
        assert_eq!(find(&full, ""), Found::Program(second.clone()));
        // An empty entry is the current directory, which is that of the crate in a test.
        assert_eq!(
            find("Cargo.toml", ""),
            Found::NotExecutable(PathBuf::from("./Cargo.toml"))
        );
        assert!(is_executable(&second) && !is_executable(&first) && !is_executable(root.path()));
    }

    #[test]
    fn small_files_have_a_bound() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        fs::write(&path, "x".repeat(1 << 20)).unwrap();
        assert_eq!(read_small(&path).unwrap().len(), 1 << 20);
        fs::write(&path, "x".repeat((1 << 20) + 1)).unwrap();
        assert_eq!(read_small(&path).unwrap_err().errno(), libc::EFBIG);
        assert_eq!(
            read_owned(&path).map(drop).unwrap_err().errno(),
            libc::EFBIG
        );
        assert_eq!(read_owned(root.path()).unwrap_err().errno(), libc::EINVAL);
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_small(&path).unwrap_err().errno(), libc::EIO);
        let own = crate::process::effective_uid();
        assert_eq!(read_owned(&path), Ok((vec![0xff], own)));
        assert_eq!(entries(root.path(), 9), [path]);
        assert!(entries(root.path(), 0).is_empty());
    }
}
