//! Which files are copied, and under which names.
//!
//! The files of a submitted job were looked up by its front. Those of a spawned job are looked up by the controller's
//! caller, on the controller's node.

use std::{
    ffi::OsString,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// A file that is to be looked up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedFile {
    /// Absolute path, or the name of a program without a slash if there is a search path.
    pub path: OsString,
    /// Directories with such a program, separated by colons.
    pub search: Option<OsString>,
    /// Absolute path of the directory at which relative paths of the search path begin.
    pub directory: OsString,
}

/// A regular file that the caller can read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFile {
    /// Absolute path.
    pub path: OsString,
    /// Permission bits.
    pub mode: u32,
}

/// Why a wanted file cannot be copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotFound {
    /// Its position among the wanted files.
    pub index: usize,
    pub path: OsString,
    /// Error number of the system call that failed.
    pub errno: i32,
    /// The same in words.
    pub why: String,
}

/// Returns the name of a copy: a relative path keeps its place, and an absolute one its whole path.
#[must_use]
pub fn copy_name(path: &Path) -> OsString {
    let mut name = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => name.push(part),
            Component::ParentDir => drop(name.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    name.into_os_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_copies_keep_their_place() {
        let cases = [
            ("a", "a"),
            ("./a", "a"),
            ("b/c/a", "b/c/a"),
            ("../a", "a"),
            ("b/../../a", "a"),
            ("/data/in/a", "data/in/a"),
        ];
        for (path, name) in cases {
            assert_eq!(copy_name(Path::new(path)), name, "{path}");
        }
    }
}
