//! What a program's file says about where it looks for its Open MPI.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use object::{
    Endianness, ReadCache, ReadRef as _,
    elf::{self, FileHeader64},
    read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _},
};

use super::LIBRARY;

/// Bytes of one name or list of directories in a program.
const MAX_TEXT: u64 = 64 << 10;

/// Where a program that is linked with the library looks for it.
pub(super) struct Linked {
    /// Before `LD_LIBRARY_PATH`, and after it.
    pub(super) before: Option<OsString>,
    pub(super) after: Option<OsString>,
}

/// `None` for programs that are not linked with it, and for what is no program.
pub(super) fn linked(program: &Path) -> Option<Linked> {
    let file = &ReadCache::new(File::from(os::open_for_reading(program).ok()?));
    let header = FileHeader64::<Endianness>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let headers = header.program_headers(endian, file).ok()?;
    let dynamic = headers
        .iter()
        .find_map(|header| header.dynamic(endian, file).ok()?)?;
    let value = |tag| {
        let mut entries = dynamic.iter();
        let entry = entries.find(|entry| entry.d_tag(endian) == tag)?;
        Some(entry.d_val(endian))
    };
    let texts = value(elf::DT_STRTAB)?;
    // The table's address is one in memory.
    let at = headers.iter().find_map(|header| {
        let inside = texts.checked_sub(header.p_vaddr(endian))?;
        let is_there = header.p_type(endian) == elf::PT_LOAD && inside < header.p_filesz(endian);
        is_there.then_some(header.p_offset(endian).checked_add(inside)?)
    })?;
    let end = file.len().ok()?;
    let text = |offset: u64| {
        let from = at.checked_add(offset)?;
        let until = from.checked_add(MAX_TEXT)?.min(end);
        file.read_bytes_at_until(from..until, 0).ok()
    };
    let mut needed = dynamic
        .iter()
        .filter(|entry| entry.d_tag(endian) == elf::DT_NEEDED)
        .filter_map(|entry| text(entry.d_val(endian)));
    needed.find(|name| *name == LIBRARY.as_bytes())?;
    let list = |tag| Some(expanded(text(value(tag)?)?, program));
    let after = list(elf::DT_RUNPATH);
    Some(Linked {
        // The older of the two lists, where the younger one is not.
        before: list(elf::DT_RPATH).filter(|_| after.is_none()),
        after,
    })
}

/// A list of directories, with the program's own for `$ORIGIN`.
fn expanded(list: &[u8], program: &Path) -> OsString {
    let program = fs::canonicalize(program).unwrap_or_else(|_| program.to_path_buf());
    let origin = program
        .parent()
        .map_or_else(|| OsStr::new("/"), Path::as_os_str);
    let mut text = Vec::with_capacity(list.len());
    let mut rest = list;
    while let Some(at) = memchr::memchr(b'$', rest) {
        let (before, from) = rest.split_at(at);
        text.extend_from_slice(before);
        let word = [&b"$ORIGIN"[..], b"${ORIGIN}"]
            .into_iter()
            .find(|word| from.starts_with(word));
        match word {
            Some(word) => {
                text.extend_from_slice(origin.as_bytes());
                rest = &from[word.len()..];
            }
            None => {
                text.push(b'$');
                rest = &from[1..];
            }
        }
    }
    text.extend_from_slice(rest);
    OsString::from_vec(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_program_is() {
        let list = |text: &str| expanded(text.as_bytes(), Path::new("/nowhere/bin/a"));
        assert_eq!(
            list("$ORIGIN/../lib:/x:${ORIGIN}:$LIB/$"),
            "/nowhere/bin/../lib:/x:/nowhere/bin:$LIB/$"
        );
    }
}
