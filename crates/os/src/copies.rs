//! Files that are read in pieces, and copies of them that are written in pieces.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File, Permissions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
};

use nix::sys::statvfs::{FsFlags, statvfs};

use crate::{error::Error, files::open_at_once};

/// What a file system offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that our user may still write.
    pub free: u64,
    /// Whether programs may be executed.
    pub runs_programs: bool,
}

/// Returns what the file system of a directory offers.
///
/// # Errors
/// Those of statvfs(3); `ENOTDIR` if it is no directory.
pub fn room(directory: &Path) -> Result<Room, Error> {
    const OPERATION: &str = "use";
    let error = |errno: i32| Error::File {
        operation: OPERATION,
        path: directory.to_owned(),
        errno,
    };
    let metadata = fs::metadata(directory).map_err(Error::file(OPERATION, directory))?;
    if !metadata.is_dir() {
        return Err(error(libc::ENOTDIR));
    }
    let found = statvfs(directory).map_err(|errno| error(errno as i32))?;
    Ok(Room {
        free: found
            .blocks_available()
            .saturating_mul(found.fragment_size()),
        runs_programs: !found.flags().contains(FsFlags::ST_NOEXEC),
    })
}

/// A regular file that is read.
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    path: PathBuf,
    mode: u32,
}

impl SourceFile {
    /// Opens a file.
    ///
    /// # Errors
    /// Those of open(2); `EISDIR` for a directory, `EINVAL` for anything else that is no regular file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        const OPERATION: &str = "read";
        let (file, metadata) = open_at_once(path).map_err(Error::file(OPERATION, path))?;
        if metadata.is_file() {
            return Ok(Self {
                file,
                path: path.to_owned(),
                mode: metadata.permissions().mode() & 0o777,
            });
        }
        Err(Error::File {
            operation: OPERATION,
            path: path.to_owned(),
            errno: if metadata.is_dir() {
                libc::EISDIR
            } else {
                libc::EINVAL
            },
        })
    }

    /// Returns the permission bits.
    #[must_use]
    pub const fn mode(&self) -> u32 {
        self.mode
    }

    /// Reads at an offset. Returns fewer bytes than `length` only at the end of the file.
    ///
    /// # Errors
    /// Those of read(2).
    pub fn read_at(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::with_capacity(length);
        let read = self
            .file
            .seek(SeekFrom::Start(offset))
            .and_then(|_| (&self.file).take(length as u64).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(bytes),
            Err(failure) => Err(Error::file("read", &self.path)(failure)),
        }
    }
}

/// Files with the same content, which is being written.
#[derive(Debug)]
pub struct Copies {
    /// One for each set of permissions, with the further names of that file.
    files: Vec<Copy>,
}

#[derive(Debug)]
struct Copy {
    file: File,
    path: PathBuf,
    mode: u32,
    links: Vec<PathBuf>,
}

impl Copies {
    /// Creates files in a directory of ours, each with its permission bits, and the directories in their names. Files with
    /// the same permissions are one file with several names.
    ///
    /// # Errors
    /// Those of open(2) and mkdir(2); `EEXIST` for a name that exists, `EINVAL` for one that leads out of the directory.
    pub fn create<'a>(
        directory: &Path,
        files: impl IntoIterator<Item = (&'a OsStr, u32)>,
    ) -> Result<Self, Error> {
        let mut copies: Vec<Copy> = Vec::new();
        for (name, mode) in files {
            let path = inside(directory, name)?;
            if let Some(parent) = path.parent() {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(parent)
                    .map_err(Error::file("make the directory", parent))?;
            }
            if let Some(same) = copies.iter_mut().find(|copy| copy.mode == mode) {
                same.links.push(path);
                continue;
            }
            let file = File::options()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path)
                .map_err(Error::file("create", &path))?;
            copies.push(Copy {
                file,
                path,
                mode,
                links: Vec::new(),
            });
        }
        Ok(Self { files: copies })
    }

    /// Appends bytes to all files.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        for copy in &mut self.files {
            let written = copy.file.write_all(bytes);
            written.map_err(Error::file("write", &copy.path))?;
        }
        Ok(())
    }

    /// Closes the files, sets their permissions, and makes their further names.
    ///
    /// # Errors
    /// Those of fchmod(2) and link(2). Some file systems report a lack of space only here.
    pub fn finish(self) -> Result<(), Error> {
        for Copy {
            file,
            path,
            mode,
            links,
        } in self.files
        {
            let finished = file
                .set_permissions(Permissions::from_mode(mode))
                .and_then(|()| nix::unistd::close(file).map_err(io::Error::from));
            finished.map_err(Error::file("write", &path))?;
            for link in links {
                // Not every file system has links.
                fs::hard_link(&path, &link)
                    .or_else(|_| fs::copy(&path, &link).map(drop))
                    .map_err(Error::file("write", &link))?;
            }
        }
        Ok(())
    }
}

/// Returns the path of a name in a directory.
fn inside(directory: &Path, name: &OsStr) -> Result<PathBuf, Error> {
    let mut components = Path::new(name).components();
    let is_plain = components.all(|component| matches!(component, Component::Normal(_)));
    let path = directory.join(name);
    if is_plain && !name.is_empty() {
        Ok(path)
    } else {
        Err(Error::File {
            operation: "create",
            path,
            errno: libc::EINVAL,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn copies_have_their_permissions_and_share_what_is_equal() {
        let root = tempfile::tempdir().unwrap();
        let names = [("bin/a", 0o755), ("b", 0o640), ("deep/down/c", 0o755)];
        let files = names.iter().map(|(name, mode)| (OsStr::new(*name), *mode));
        let mut copies = Copies::create(root.path(), files).unwrap();
        copies.write(b"one ").unwrap();
        copies.write(b"two").unwrap();
        copies.finish().unwrap();
        let metadata = |name: &str| fs::metadata(root.path().join(name)).unwrap();
        for (name, mode) in names {
            assert_eq!(fs::read(root.path().join(name)).unwrap(), b"one two");
            assert_eq!(metadata(name).mode() & 0o7777, mode, "{name}");
        }
        assert_eq!(metadata("bin/a").ino(), metadata("deep/down/c").ino());
        assert_ne!(metadata("bin/a").ino(), metadata("b").ino());
    }

    #[test]
    fn no_name_leads_out_and_no_file_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let create = |name: &str| {
            let copies = Copies::create(root.path(), [(OsStr::new(name), 0o600)]);
            copies.map(drop).map_err(|error| error.errno())
        };
        for name in ["../a", "/etc/a", "a/../../b", ""] {
            assert_eq!(create(name), Err(libc::EINVAL), "{name}");
        }
        assert_eq!(create("a"), Ok(()));
        assert_eq!(create("a"), Err(libc::EEXIST));
    }

    #[test]
    fn a_source_is_read_in_pieces() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        fs::write(&path, "0123456789").unwrap();
        let mut source = SourceFile::open(&path).unwrap();
        assert_eq!(source.read_at(4, 3).unwrap(), b"456");
        assert_eq!(source.read_at(0, 3).unwrap(), b"012");
        assert_eq!(source.read_at(8, 3).unwrap(), b"89");
        assert_eq!(source.read_at(20, 3).unwrap(), b"");
        let open = |path: &Path| SourceFile::open(path).map(drop).unwrap_err().errno();
        assert_eq!(open(root.path()), libc::EISDIR);
        assert_eq!(open(&root.path().join("none")), libc::ENOENT);
        assert_eq!(open(Path::new("/dev/null")), libc::EINVAL);
    }

    #[test]
    fn a_directory_has_room() {
        let root = tempfile::tempdir().unwrap();
        assert!(room(root.path()).unwrap().free > 0);
        assert!(room(&root.path().join("none")).is_err());
        assert_eq!(
            room(Path::new("/dev/null")).unwrap_err().errno(),
            libc::ENOTDIR
        );
    }
}
