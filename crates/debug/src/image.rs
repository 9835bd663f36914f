//! Programs and libraries: what their files say of addresses.
//!
//! A file is parsed once for all processes that have mapped it. Its parts are read when they are first needed: the
//! unwinding rules for every stack, the symbols and lines only of files that stand in one.

mod lines;
mod names;
mod sections;
mod symbols;

use std::{
    cell::OnceCell,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use addr2line::gimli::{self, BaseAddresses, EhFrame, EhFrameHdr, UnwindSection};
use bytes::Bytes;
use object::{
    CompressedData, CompressionFormat, LittleEndian, ObjectSection, elf,
    read::elf::{ElfFile64, ProgramHeader},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    known,
    maps::Mapping,
    stack::{Frame, FrameKind, Source},
};
use lines::Lines;
use symbols::{Covering, Extent, Symbols};

/// A program or library, or the code that the kernel maps into each process.
#[derive(Debug)]
pub struct Image {
    /// The file name without directories.
    name: Arc<str>,
    file: Bytes,
    segments: Vec<Segment>,
    /// What the unwinder needs of it.
    pub(crate) unwinding: Unwinding,
    build_id: Option<Vec<u8>>,
    debug_link: Option<String>,
    symbols: OnceCell<Symbols>,
    joining: OnceCell<Joining>,
    lines: OnceCell<Option<Lines>>,
}

/// Whether a program can join its job with that of another launcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Joining {
    /// It names no function that does that.
    #[default]
    Never,
    /// It names such a function, which it may or may not have called.
    Possible,
}

/// Sections with unwinding rules, and where they stand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unwinding {
    pub(crate) text: Section,
    pub(crate) got: Section,
    pub(crate) eh_frame: Section,
    pub(crate) eh_frame_hdr: Section,
    pub(crate) debug_frame: Section,
}

impl Unwinding {
    /// The addresses of the function that rules for unwinding give an address to.
    fn function(&self, address: u64) -> Option<Range<u64>> {
        let (header, rules) = (self.eh_frame_hdr.as_ref()?, self.eh_frame.as_ref()?);
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(header.0.start)
            .set_eh_frame(rules.0.start);
        let header = EhFrameHdr::new(&header.1, gimli::LittleEndian).parse(&bases, WORD);
        let header = header.ok()?;
        let rules = EhFrame::new(&rules.1, gimli::LittleEndian);
        let found = header.table()?.fde_for_address(
            &rules,
            &bases,
            address,
            UnwindSection::cie_from_offset,
        );
        let found = found.ok()?;
        let start = found.initial_address();
        Some(start..start.saturating_add(found.len()))
    }
}

/// Bytes of an address.
const WORD: u8 = 8;

/// A section's addresses in the file's own numbering, and its bytes.
pub(crate) type Section = Option<(Range<u64>, Bytes)>;

/// A part of the file with code.
#[derive(Clone, Debug)]
struct Segment {
    offset: u64,
    length: u64,
    address: u64,
}

/// A file that is no program or library for this processor.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not an ELF file for this processor: {0}")]
pub struct NotAnImage(object::Error);

/// Where the files with debug information may be that were taken out of a program or library: how a debugger of the
/// system looks for them.
const DEBUG_DIRECTORY: &str = "/usr/lib/debug";

/// Bytes that compressed sections of one file may have together once they are decompressed: the debug information of the
/// largest programs. What does not fit is left out, as if the file did not have it.
const MAX_DECOMPRESSED: u64 = 1 << 30;

/// Bytes of the name of a function in a file: of templates, too, nobody reads more.
const MAX_NAME: usize = 1 << 14;
/// Bytes of the path of another file.
const MAX_PATH: usize = 4096;
/// Parts of a file with code: programs have one or two.
const MAX_SEGMENTS: usize = 256;

/// Gives the files that a process has, by their paths there.
pub trait Files {
    /// The bytes of a file; nothing where it cannot be opened.
    fn open(&self, path: &Path) -> Option<Bytes>;

    /// The bytes of the file that is mapped, which may have lost its name, or lost it to another file.
    fn open_mapped(&self, mapping: &Mapping) -> Option<Bytes>;
}

impl Image {
    /// Reads a file, of which the name is `path`.
    ///
    /// # Errors
    /// It is none that could be executed here.
    pub fn parse(path: &str, file: Bytes) -> Result<Self, NotAnImage> {
        let elf = ElfFile64::<LittleEndian>::parse(&*file).map_err(NotAnImage)?;
        let mut left = MAX_DECOMPRESSED;
        let mut section = |name: &str| -> Section {
            let section = sections::by_name(&elf, name)?;
            let bytes = contents(&section, &file, &mut left)?;
            let range = section.address()..section.address().checked_add(bytes.len() as u64)?;
            Some((range, bytes))
        };
        let unwinding = Unwinding {
            text: section(".text"),
            got: section(".got"),
            eh_frame: section(".eh_frame"),
            eh_frame_hdr: section(".eh_frame_hdr"),
            debug_frame: section(".debug_frame"),
        };
        let debug_link = sections::by_name(&elf, ".gnu_debuglink")
            .and_then(|section| section.data().ok())
            .and_then(|data| text(data, MAX_PATH));
        Ok(Self {
            name: path.rsplit('/').next().unwrap_or(path).into(),
            segments: segments(&elf),
            unwinding,
            build_id: sections::build_id(&elf),
            debug_link,
            file,
            symbols: OnceCell::new(),
            joining: OnceCell::new(),
            lines: OnceCell::new(),
        })
    }

    /// Its file name without directories.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What the linker has made of its content to tell it from every other.
    #[must_use]
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// How far from its own addresses it is mapped, where its code at `offset` is mapped to `start`.
    #[must_use]
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|segment| {
            // The kernel maps whole pages, so that a mapping may begin before its segment.
            let first = segment.offset & !0xfff;
            offset >= first && offset < segment.offset.saturating_add(segment.length)
        })?;
        let address = segment
            .address
            .wrapping_add(offset)
            .wrapping_sub(segment.offset);
        Some(start.wrapping_sub(address))
    }

    /// The addresses of symbols, in the file's own numbering, and their sizes; nothing for those that it does not have. Ask
    /// for all of them at once: where one is missing, every symbol is looked at.
    #[must_use]
    pub fn symbols<const N: usize>(&self, names: [&str; N]) -> [Option<(u64, u64)>; N] {
        symbols::find(&self.file, names)
    }

    /// Whether its code can join its job with another: whether it names a function of MPI that does.
    #[must_use]
    pub fn joining(&self) -> Joining {
        *self
            .joining
            .get_or_init(|| match symbols::has(&self.file, known::joins_jobs) {
                true => Joining::Possible,
                false => Joining::Never,
            })
    }

    /// The address of a section, in the file's own numbering, and its bytes.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<(u64, Bytes)> {
        let elf = ElfFile64::<LittleEndian>::parse(&*self.file).ok()?;
        let section = sections::by_name(&elf, name)?;
        let data = section.data().ok()?;
        Some((section.address(), self.file.slice_ref(data)))
    }

    /// The functions that the code at an address belongs to, innermost first: several where the compiler has put one into
    /// another. `files` is where debug information is looked for that is not in the file itself.
    ///
    /// There is always one at least, which may have no name.
    #[must_use]
    pub fn frames(
        &self,
        address: u64,
        path: &str,
        files: &dyn Files,
        reading: Reading,
    ) -> Vec<Frame> {
        let reading = if is_of_the_system(path) {
            reading
        } else {
            Reading::Lines
        };
        let lines = self
            .lines
            .get_or_init(|| Lines::load(&self.file, &self.debug_files(path), files, reading));
        let mut frames = lines
            .as_ref()
            .map_or_else(Vec::new, |lines| lines.frames(address));
        if frames.is_empty() {
            frames.push((None, None));
        }
        // The outermost is the function that has a symbol, which may be a better name: nobody has written `__GI___poll`.
        if let Some((name, _)) = frames.last_mut()
            && name.as_deref().is_none_or(|name| !name.contains("::"))
            && let Some(symbol) = self.symbol(address)
            && name
                .as_deref()
                .is_none_or(|name| symbols::is_plainer(&symbol, name))
        {
            *name = Some(symbol);
        }
        let last = frames.len() - 1;
        frames
            .into_iter()
            .enumerate()
            .map(|(at, (function, source))| Frame {
                function,
                module: Some(Arc::clone(&self.name)),
                source,
                kind: if at == last {
                    FrameKind::Native
                } else {
                    FrameKind::Inlined
                },
            })
            .collect()
    }

    /// The name of the function that has a symbol for an address.
    fn symbol(&self, address: u64) -> Option<Arc<str>> {
        Some(names::readable(&self.covering(address)?.name, None).into())
    }

    /// The function that has a symbol for an address, in this file or in the one beside it.
    fn covering(&self, address: u64) -> Option<Covering> {
        let symbols = self.symbols.get_or_init(|| Symbols::load(&self.file));
        let beside = || self.lines.get()?.as_ref()?.symbol(address);
        let found = symbols.at(&self.file, address).or_else(beside)?;
        // A symbol without a size does not reach into a function that only has rules for unwinding.
        let is_another = found.extent == Extent::Guessed
            && self
                .unwinding
                .function(address)
                .is_some_and(|function| !function.contains(&found.range.start));
        (!is_another).then_some(found)
    }

    /// The addresses of the function that an address belongs to: by its symbol, otherwise by its rules for unwinding.
    #[must_use]
    pub fn function(&self, address: u64) -> Option<Range<u64>> {
        let named = self.covering(address).map(|found| found.range);
        named.or_else(|| self.unwinding.function(address))
    }

    /// Whether a symbol says that a function begins at an address.
    #[must_use]
    pub fn has_symbol(&self, address: u64) -> bool {
        self.covering(address)
            .is_some_and(|found| found.range.start == address)
    }

    /// The first bytes of code at an address in the file's own numbering.
    #[must_use]
    pub fn code<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let end = address.checked_add(N as u64)?;
        self.code_in(address..end, N)?.try_into().ok()
    }

    /// The code at addresses in the file's own numbering, and no more than `most` bytes of it.
    #[must_use]
    pub fn code_in(&self, range: Range<u64>, most: usize) -> Option<&[u8]> {
        let at = self.segments.iter().find_map(|segment| {
            let at = range.start.checked_sub(segment.address)?;
            let is_inside = range.end.checked_sub(segment.address)? <= segment.length;
            is_inside.then(|| segment.offset.checked_add(at))?
        })?;
        let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        let at = usize::try_from(at).ok()?;
        self.file.get(at..at.checked_add(length.min(most))?)
    }

    /// Files that may hold the debug information of this one, the likeliest first.
    fn debug_files(&self, path: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        if let Some((first, rest)) = self.build_id.as_deref().and_then(<[u8]>::split_first) {
            let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
            files.push(format!("{DEBUG_DIRECTORY}/.build-id/{first:02x}/{rest}.debug").into());
        }
        if let Some(link) = &self.debug_link {
            let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
            files.push(format!("{directory}/{link}").into());
            files.push(format!("{directory}/.debug/{link}").into());
            files.push(format!("{DEBUG_DIRECTORY}{directory}/{link}").into());
        }
        files
    }
}

/// What stands in a section, as it was before it was compressed. `left` is how many bytes may yet be made of what is
/// compressed in its file.
fn contents<'a>(section: &impl ObjectSection<'a>, file: &Bytes, left: &mut u64) -> Option<Bytes> {
    let data = section.compressed_data().ok()?;
    if data.format == CompressionFormat::None {
        return Some(file.slice_ref(data.data));
    }
    decompressed(&data, left).map(Bytes::from)
}

/// Few bytes can say that they are very many: it is asked before memory is taken.
fn decompressed(data: &CompressedData<'_>, left: &mut u64) -> Option<Vec<u8>> {
    *left = left.checked_sub(data.uncompressed_size)?;
    Some(data.decompress().ok()?.into_owned())
}

/// The text that something begins with, up to a zero byte among the first ones.
fn text(data: &[u8], most: usize) -> Option<String> {
    let start = data.get(..data.len().min(most))?;
    let end = start.iter().position(|&byte| byte == 0)?;
    String::from_utf8(start[..end].to_vec()).ok()
}

fn segments(elf: &ElfFile64<'_, LittleEndian>) -> Vec<Segment> {
    sections::headers(elf)
        // One page of the file can belong to the code and to what stands before it: only code is looked for.
        .filter(|segment| {
            segment.p_type(LittleEndian) == elf::PT_LOAD
                && segment.p_flags(LittleEndian).0 & elf::PF_X.0 != 0
        })
        .take(MAX_SEGMENTS)
        .map(|segment| Segment {
            offset: segment.p_offset(LittleEndian),
            length: segment.p_filesz(LittleEndian),
            address: segment.p_vaddr(LittleEndian),
        })
        .collect()
}

/// How much is read of debug information that lies beside the libraries of the system: it takes longer than all else, and
/// few want to know in which line of the C library a thread sleeps. Of all other files everything is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// The names of functions.
    #[default]
    Names,
    /// Lines and inlined functions too.
    Lines,
}

/// Whether a library was installed with the system.
fn is_of_the_system(path: &str) -> bool {
    ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"]
        .iter()
        .any(|directory| path.starts_with(directory))
        && path.contains(".so")
}

/// A function's name and the line in it, each where it is known.
type Named = (Option<Arc<str>>, Option<Source>);

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) mod made;

    use super::*;

    /// A thousand times the letter a.
    const COMPRESSED: [u8; 17] = [
        0x78, 0x9c, 0x4b, 0x4c, 0x1c, 0x05, 0xa3, 0x60, 0x14, 0x0c, 0x77, 0x00, 0x00, 0xf9, 0xd8,
        0x7a, 0xf8,
    ];

    fn data(uncompressed_size: u64) -> CompressedData<'static> {
        CompressedData {
            format: CompressionFormat::Zlib,
            data: &COMPRESSED,
            uncompressed_size,
        }
    }

    #[test]
    fn what_is_compressed_is_no_larger_than_is_allowed() {
        let mut left = 2500;
        for rest in [1500, 500] {
            let bytes = decompressed(&data(1000), &mut left);
            assert_eq!(bytes, Some(vec![b'a'; 1000]));
            assert_eq!(left, rest);
        }
        assert_eq!(decompressed(&data(1000), &mut left), None);
        assert_eq!(left, 500);
        // Who says that it is less than it is gets what was said.
        assert_eq!(
            decompressed(&data(10), &mut left).map(|it| it.len()),
            Some(10)
        );
        assert_eq!(decompressed(&data(u64::MAX), &mut left), None);
    }
}
