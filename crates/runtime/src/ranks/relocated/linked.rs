//! Where a program's ELF file says that its Open MPI is searched for.

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

/// Maximum length of a name or a list of directories in a program, in bytes.
const MAX_TEXT: u64 = 64 << 10;

/// Lists of directories in which a program that is linked with the library searches for it.
pub(super) struct Linked {
    /// List to search before `LD_LIBRARY_PATH` (`before`) or after it (`after`).
    pub(super) before: Option<OsString>,
    pub(super) after: Option<OsString>,
}

/// Returns `None` for files that are not linked with the library, or are no 64-bit ELF file.
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
    // `DT_STRTAB` holds an address in memory: find its offset in the file.
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
        // `DT_RPATH`, the older of the two, is ignored if there is a `DT_RUNPATH`.
        before: list(elf::DT_RPATH).filter(|_| after.is_none()),
        after,
    })
}

/// Returns a list of directories with `$ORIGIN` replaced by the program's directory.
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
