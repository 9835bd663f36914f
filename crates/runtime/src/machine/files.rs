//! The files to which jobs without a front write.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// Files that are open at the same time. More jobs may write: the file that was used first is closed.
const OPEN_MAX: usize = 64;

/// The open files, the one that was opened last behind the others.
#[derive(Debug, Default)]
pub(super) struct Files(VecDeque<(PathBuf, File)>);

impl Files {
    /// Appends to a file, and makes it if it does not exist.
    pub(super) fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let known = self.0.iter().position(|(open, _)| open == path);
        let index = match known {
            Some(index) => index,
            None => {
                let file = os::append_to(path)?;
                if self.0.len() >= OPEN_MAX {
                    self.0.pop_front();
                }
                self.0.push_back((path.to_owned(), file));
                self.0.len() - 1
            }
        };
        let (_, file) = &mut self.0[index];
        file.write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_files_grow_in_turn() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number: usize| directory.path().join(format!("out-{number}"));
        let mut files = Files::default();
        for line in ["one\n", "two\n"] {
            for number in 0..3 * OPEN_MAX {
                files.append(&path(number), line.as_bytes()).unwrap();
                assert!(files.0.len() <= OPEN_MAX);
            }
        }
        for number in 0..3 * OPEN_MAX {
            assert_eq!(os::read_owned(&path(number)).unwrap().0, b"one\ntwo\n");
        }
        assert!(files.append(directory.path(), b"x").is_err());
    }
}
