//! Where a program's ELF file says that its Open MPI is searched for.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::FileExt,
    },
    path::Path,
};

use object::{
    Endianness, ReadCache, ReadRef as _,
    elf::{self, FileHeader64},
    read::{
        ReadCacheOps,
        elf::{Dyn as _, FileHeader as _, ProgramHeader as _},
    },
};

use super::LIBRARY;

/// Maximum length of a name or a list of directories in a program, in bytes.
const MAX_TEXT: u64 = 64 << 10;

/// Lists of directories in which a program that is linked with the library searches for it.
#[derive(Debug)]
pub(super) struct Linked {
    /// List to search before `LD_LIBRARY_PATH` (`before`) or after it (`after`).
    pub(super) before: Option<OsString>,
    pub(super) after: Option<OsString>,
}

/// An open file whose beginning was read. Most of what we want to know of a small program is there.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) file: File,
    pub(super) head: Vec<u8>,
    pub(super) length: u64,
    /// Where the next read begins.
    at: u64,
}

impl Content {
    pub(super) const fn new(file: File, head: Vec<u8>, length: u64) -> Self {
        Self {
            file,
            head,
            length,
            at: 0,
        }
    }

    /// Returns what of the beginning is at the next read.
    fn known(&self) -> &[u8] {
        let at = usize::try_from(self.at).ok();
        at.and_then(|at| self.head.get(at..)).unwrap_or_default()
    }
}

impl ReadCacheOps for Content {
    fn len(&mut self) -> Result<u64, ()> {
        Ok(self.length)
    }

    fn seek(&mut self, at: u64) -> Result<u64, ()> {
        self.at = at;
        Ok(at)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ()> {
        let known = self.known();
        let count = known.len().min(buffer.len());
        let count = match count {
            0 => self.file.read_at(buffer, self.at).map_err(drop)?,
            count => {
                buffer[..count].copy_from_slice(&known[..count]);
                count
            }
        };
        self.at += count as u64;
        Ok(count)
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), ()> {
        match self.known().get(..buffer.len()) {
            Some(known) => buffer.copy_from_slice(known),
            None => self.file.read_exact_at(buffer, self.at).map_err(drop)?,
        }
        self.at += buffer.len() as u64;
        Ok(())
    }
}

/// Returns `None` for files that are not linked with the library, or are no 64-bit ELF file.
pub(super) fn linked(content: Content, program: &Path) -> Option<Linked> {
    let file = &ReadCache::new(content);
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
#[expect(clippy::disallowed_methods, reason = "tests make the files")]
mod tests {
    use super::*;

    /// Returns a program that needs the library, with its dynamic section and its texts at these places.
    fn program(dynamic: u64, texts: u64) -> Vec<u8> {
        let strings = b"\0libmpi.so.40\0/opt/lib:$ORIGIN\0";
        let entries = [
            (elf::DT_NEEDED, 1),
            (elf::DT_RUNPATH, 14),
            // An address in memory, where the file begins at 0x1000.
            (elf::DT_STRTAB, 0x1000 + texts),
            (elf::DT_NULL, 0),
        ];
        let length = 0x3000_u64;
        let header = |kind: u32, offset: u64, address: u64, size: u64| {
            let mut header = kind.to_le_bytes().to_vec();
            header.extend(4_u32.to_le_bytes());
            for word in [offset, address, address, size, size, 8] {
                header.extend(word.to_le_bytes());
            }
            header
        };
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        bytes.extend(2_u16.to_le_bytes());
        bytes.extend(62_u16.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        for word in [0, 64, 0_u64] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(0_u32.to_le_bytes());
        for word in [64, 56, 2, 0, 0, 0_u16] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(header(1, 0, 0x1000, length));
        bytes.extend(header(2, dynamic, 0x1000 + dynamic, 64));
        bytes.resize(usize::try_from(length).unwrap(), 0);
        let mut put = |at: u64, part: &[u8]| {
            let at = usize::try_from(at).unwrap();
            bytes[at..at + part.len()].copy_from_slice(part);
        };
        put(texts, strings);
        for (number, (tag, value)) in (0..).zip(entries) {
            put(dynamic + 16 * number, &i64::to_le_bytes(tag.0));
            put(dynamic + 16 * number + 8, &u64::to_le_bytes(value));
        }
        bytes
    }

    #[test]
    fn wherever_in_the_file_it_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        // Before, across and behind the end of the 100, 250 or 4096 bytes that were read first.
        for (dynamic, texts) in [
            (0x200, 0x300),
            (0xfe0, 0x1ff0),
            (0x2000, 0xff0),
            (200, 0x2100),
        ] {
            let bytes = program(dynamic, texts);
            fs::write(&path, &bytes).unwrap();
            for head in [0, 4, 100, 250, 4096, bytes.len()] {
                let file = File::open(&path).unwrap();
                let content = Content::new(file, bytes[..head].to_vec(), bytes.len() as u64);
                let found = linked(content, Path::new("/nowhere/bin/a")).unwrap();
                assert_eq!(found.before, None);
                assert_eq!(found.after.unwrap(), "/opt/lib:/nowhere/bin");
            }
            // A file that was cut is no such program.
            let content = Content::new(File::open(&path).unwrap(), bytes[..64].to_vec(), 100);
            assert!(linked(content, Path::new("/a")).is_none());
        }
    }

    #[test]
    fn where_a_program_is() {
        let list = |text: &str| expanded(text.as_bytes(), Path::new("/nowhere/bin/a"));
        assert_eq!(
            list("$ORIGIN/../lib:/x:${ORIGIN}:$LIB/$"),
            "/nowhere/bin/../lib:/x:/nowhere/bin:$LIB/$"
        );
    }
}
