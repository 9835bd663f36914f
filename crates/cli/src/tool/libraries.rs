//! The shared libraries that a program needs and that nodes may lack.
//!
//! They are found as the dynamic linker finds them: in the directories that the file names (`RPATH`, `RUNPATH`, with `$ORIGIN`), and in
//! those of `LD_LIBRARY_PATH`. What is found only in directories of the system is left to the nodes: these have it, and it has to be of
//! the same version as their dynamic linker.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use object::{
    Endianness,
    elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader64},
    read::elf::{Dyn as _, FileHeader as _},
};

/// The most libraries of one program. Further ones are left to the nodes.
const LIBRARIES_MAX: usize = 1024;
/// The directories of the system, and those below them.
const OF_THE_SYSTEM: [&str; 4] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64"];

/// What a file says to the dynamic linker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wants {
    needed: Vec<OsString>,
    /// Directories, in order. `$ORIGIN` stands for that of the file.
    directories: Vec<OsString>,
}

impl Wants {
    /// Reads an ELF file; `None` if it is none, or is not linked dynamically.
    fn read(bytes: &[u8]) -> Option<Self> {
        let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, bytes).ok()?;
        let (entries, link) = sections.dynamic(endian, bytes).ok()??;
        let strings = sections.strings(endian, bytes, link).ok()?;
        let mut wants = Self::default();
        for entry in entries {
            let tag = entry.tag(endian);
            let is_text = matches!(tag, DT_NEEDED | DT_RPATH | DT_RUNPATH);
            if !is_text {
                continue;
            }
            let text = entry.string(endian, strings).ok()?;
            match tag {
                DT_NEEDED => wants.needed.push(OsString::from_vec(text.to_vec())),
                _ => wants.directories.extend(split(text)),
            }
        }
        Some(wants)
    }
}

fn split(list: &[u8]) -> impl Iterator<Item = OsString> {
    let words = list.split(|byte| *byte == b':');
    words
        .filter(|word| !word.is_empty())
        .map(|word| OsString::from_vec(word.to_vec()))
}

/// Returns the directory that is meant in a file, which is in `origin`.
fn expanded(directory: &OsStr, origin: &Path) -> PathBuf {
    let text = directory.as_bytes();
    let rest = [&b"$ORIGIN"[..], b"${ORIGIN}"]
        .iter()
        .find_map(|name| text.strip_prefix(*name));
    match rest {
        Some(rest) => {
            let mut path = origin.as_os_str().to_owned();
            path.push(OsStr::from_bytes(rest));
            path.into()
        }
        None => directory.into(),
    }
}

fn is_of_the_system(directory: &Path) -> bool {
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    OF_THE_SYSTEM.iter().any(|one| directory.starts_with(one))
}

/// Returns the libraries of a program, by the name under which the dynamic linker looks for them. `read` reads a file, if it exists.
pub(crate) fn of_program(
    program: &Path,
    library_path: Option<&OsStr>,
    read: impl Fn(&Path) -> Option<Vec<u8>>,
) -> BTreeMap<OsString, PathBuf> {
    let of_variable: Vec<OsString> = library_path
        .map(|list| split(list.as_bytes()).collect())
        .unwrap_or_default();
    let mut found: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    let mut open: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    open.extend(read(program).map(|bytes| (program.to_owned(), bytes)));
    while let Some((file, bytes)) = open.pop() {
        let Some(wants) = Wants::read(&bytes) else {
            continue;
        };
        let origin = file.parent().unwrap_or(&file);
        for name in wants.needed {
            if found.contains_key(&name) || found.len() >= LIBRARIES_MAX {
                continue;
            }
            let directories = wants.directories.iter().chain(&of_variable);
            let places = directories
                .map(|directory| expanded(directory, origin))
                .filter(|directory| !is_of_the_system(directory))
                .map(|directory| directory.join(&name));
            let mut there = places.filter_map(|path| Some((read(&path)?, path)));
            if let Some((bytes, path)) = there.next() {
                found.insert(name, path.clone());
                open.push((path, bytes));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_meant_from_the_file() {
        let origin = Path::new("/opt/tool/bin");
        let cases = [
            ("$ORIGIN/../lib", "/opt/tool/bin/../lib", false),
            ("${ORIGIN}", "/opt/tool/bin", false),
            ("/opt/lib", "/opt/lib", false),
            (
                "/usr/lib/x86_64-linux-gnu",
                "/usr/lib/x86_64-linux-gnu",
                true,
            ),
            ("/usr/library", "/usr/library", false),
        ];
        for (typed, meant, of_the_system) in cases {
            let path = expanded(OsStr::new(typed), origin);
            assert_eq!(path, Path::new(meant));
            assert_eq!(is_of_the_system(&path), of_the_system, "{typed}");
        }
    }

    #[test]
    fn what_is_no_program_has_no_libraries() {
        for bytes in [&b"#!/bin/sh\n"[..], b"", b"\x7fELF\x02\x01\x01"] {
            assert_eq!(Wants::read(bytes), None);
        }
    }

    /// This test is itself linked with the C library, which every node has.
    #[test]
    fn libraries_of_the_system_are_left_to_the_nodes() {
        let own = std::env::current_exe().unwrap();
        let wants = Wants::read(&std::fs::read(&own).unwrap()).unwrap();
        assert!(wants.needed.iter().any(|name| name == "libc.so.6"));
        let read = |path: &Path| std::fs::read(path).ok();
        assert_eq!(of_program(&own, None, read), BTreeMap::new());
    }
}
