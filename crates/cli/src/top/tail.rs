//! The end of a file that may not exist yet, that grows, and that may begin anew. A thread reads it: the file may be on a dead server.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Bytes before the end of a file that are shown. What is before them is skipped.
const TAIL_MAX: u64 = 256 << 10;

/// What is new in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) path: PathBuf,
    pub(super) news: News,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    Missing,
    /// The file cannot be read, for the reason given.
    Unreadable(String),
    /// What is now in the file, from the beginning or from somewhere before the end.
    Begins(Vec<u8>),
    /// What was added since the last look.
    Goes(Vec<u8>),
}

/// Reads one file at a time.
#[derive(Debug, Default)]
pub(super) struct Tail {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    path: PathBuf,
    file: File,
    /// Device and inode.
    identity: (u64, u64),
    position: u64,
}

impl Tail {
    /// Returns what is new in a file.
    pub(super) fn look(&mut self, path: PathBuf, since: Since) -> Piece {
        if since == Since::Ever {
            self.open = None;
        }
        let news = self.news(&path).unwrap_or_else(|error| {
            self.open = None;
            match error.kind() {
                io::ErrorKind::NotFound => News::Missing,
                _ => News::Unreadable(error.to_string()),
            }
        });
        Piece { path, news }
    }

    fn news(&mut self, path: &Path) -> io::Result<News> {
        let metadata = path.metadata()?;
        let identity = (metadata.dev(), metadata.ino());
        let length = metadata.len();
        let goes_on = |open: &Open| {
            let is_same = open.path == path && open.identity == identity;
            is_same && (open.position..=open.position + TAIL_MAX).contains(&length)
        };
        if let Some(open) = self.open.as_mut().filter(|open| goes_on(open)) {
            return Ok(News::Goes(open.read(length)?));
        }
        // Does not wait for the other side of a FIFO.
        let mut file = File::from(os::open_for_reading(path)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let position = length.saturating_sub(TAIL_MAX);
        file.seek(SeekFrom::Start(position))?;
        let mut open = Open {
            path: path.to_owned(),
            file,
            identity,
            position,
        };
        let bytes = open.read(length)?;
        self.open = Some(open);
        Ok(News::Begins(bytes))
    }
}

/// What a look leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// Nothing: the caller has forgotten what it was told.
    Ever,
    /// What earlier looks at the same file have returned.
    LastLook,
}

impl Open {
    /// Reads up to `length`, so that a file that grows quickly holds nobody up.
    fn read(&mut self, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let rest = length.saturating_sub(self.position);
        let got = (&self.file).take(rest).read_to_end(&mut bytes)?;
        self.position += u64::try_from(got).unwrap_or(u64::MAX);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use super::*;

    #[test]
    fn a_file_is_followed_from_its_birth_to_its_next_life() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out");
        let mut tail = Tail::default();
        let mut look = |since| tail.look(path.clone(), since).news;
        assert_eq!(look(Since::Ever), News::Missing);
        fs::write(&path, "one\n").unwrap();
        assert_eq!(look(Since::LastLook), News::Begins(b"one\n".to_vec()));
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"two\n").unwrap();
        assert_eq!(look(Since::LastLook), News::Goes(b"two\n".to_vec()));
        assert_eq!(look(Since::LastLook), News::Goes(Vec::new()));
        assert_eq!(look(Since::Ever), News::Begins(b"one\ntwo\n".to_vec()));
        // The next run of the job begins the same file anew, or another one.
        file.set_len(0).unwrap();
        file.write_all(b"3\n").unwrap();
        assert_eq!(look(Since::LastLook), News::Begins(b"3\n".to_vec()));
        fs::rename(&path, directory.path().join("old")).unwrap();
        assert_eq!(look(Since::LastLook), News::Missing);
        fs::write(&path, "four\n").unwrap();
        assert_eq!(look(Since::LastLook), News::Begins(b"four\n".to_vec()));
        let much = vec![b'x'; usize::try_from(TAIL_MAX).unwrap() + 9];
        fs::write(&path, &much).unwrap();
        let News::Begins(bytes) = look(Since::LastLook) else {
            panic!("it goes on");
        };
        assert_eq!(bytes.len() as u64, TAIL_MAX);
    }

    #[test]
    fn what_is_no_file_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let mut tail = Tail::default();
        let mut why = |path: &Path| match tail.look(path.to_owned(), Since::Ever).news {
            News::Unreadable(why) => why,
            news => panic!("{news:?}"),
        };
        assert_eq!(why(directory.path()), "it is no regular file");
        assert_eq!(why(Path::new("/dev/zero")), "it is no regular file");
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(why(&fifo), "it is no regular file");
        assert!(why(Path::new("/dev/null/x")).contains("Not a directory"));
    }
}
