//! Programs and libraries: maps addresses to functions and source lines.
//!
//! A file is parsed once for all processes that have mapped it. Its parts are read when they are first needed: unwinding rules
//! for every stack, symbols and lines only for files that occur in a stack.

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

use addr2line::gimli::{
    self, BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry, Register,
    RegisterRule, UnwindContext, UnwindSection, UnwindTableRow,
};
use bytes::Bytes;
use memchr::memmem::Finder;
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

/// A program or library, or the vDSO, the code that the kernel maps into each process.
#[derive(Debug)]
pub struct Image {
    /// The file name without directories.
    name: Arc<str>,
    file: Bytes,
    segments: Vec<Segment>,
    /// The sections that the unwinder needs.
    pub(crate) unwinding: Unwinding,
    build_id: Option<Vec<u8>>,
    debug_link: Option<String>,
    symbols: OnceCell<Symbols>,
    joining: OnceCell<Joining>,
    lines: OnceCell<Option<Lines>>,
}

/// Whether a program can connect its job with that of another launcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Joining {
    /// It does not refer to any function that does this.
    #[default]
    Never,
    /// It refers to a function that spawns a job and connects with it.
    Spawning,
    /// It refers to such a function. That does not mean that it has called it.
    Possible,
}

/// The sections for unwinding, with their addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unwinding {
    pub(crate) text: Section,
    pub(crate) got: Section,
    pub(crate) eh_frame: Section,
    pub(crate) eh_frame_hdr: Section,
    pub(crate) debug_frame: Section,
}

impl Unwinding {
    /// Returns the range of the function at an address according to the unwinding rules; `None` if no rule covers it.
    fn function(&self, address: u64) -> Option<Range<u64>> {
        let found = self.description(address)?;
        let start = found.initial_address();
        Some(start..start.saturating_add(found.len()))
    }

    /// Returns the unwinding rules of the function at an address.
    fn description(&self, address: u64) -> Option<FrameDescriptionEntry<Rules<'_>>> {
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
        found.ok()
    }
}

/// The bytes of unwinding rules.
type Rules<'a> = EndianSlice<'a, gimli::LittleEndian>;

impl Unwinding {
    /// Returns where the function at an address has saved registers of its caller when it is there; `None` if no rule covers the
    /// address.
    fn saved(&self, address: u64) -> Option<UnwindTableRow<usize>> {
        let (header, rules) = (self.eh_frame_hdr.as_ref()?, self.eh_frame.as_ref()?);
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(header.0.start)
            .set_eh_frame(rules.0.start);
        let header = EhFrameHdr::new(&header.1, gimli::LittleEndian).parse(&bases, WORD);
        let header = header.ok()?;
        let rules = EhFrame::new(&rules.1, gimli::LittleEndian);
        let mut context = UnwindContext::new();
        let row = header.table()?.unwind_info_for_address(
            &rules,
            &bases,
            &mut context,
            address,
            UnwindSection::cie_from_offset,
        );
        row.ok().cloned()
    }
}

/// Where a function has saved a register of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saved {
    /// It has not changed it.
    Nowhere,
    /// In memory at this distance from the stack pointer of its caller.
    At(i64),
    /// The rules do not say, or in a way that we do not follow.
    Unknown,
}

/// Whether exceptions lead to places in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exceptions {
    /// All of them leave it.
    Leave,
    /// The function has places to which they lead, or it is not known.
    MayLand,
}

/// The size of an address in bytes.
const WORD: u8 = 8;

/// The addresses of a section, as in the file, and its bytes; `None` if the file lacks it.
pub(crate) type Section = Option<(Range<u64>, Bytes)>;

/// A loadable segment with code.
#[derive(Clone, Debug)]
struct Segment {
    offset: u64,
    length: u64,
    address: u64,
}

/// The error for a file that is not a program or library for a 64-bit little-endian processor.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not an ELF file for this processor: {0}")]
pub struct NotAnImage(object::Error);

/// The directory of separate debug information files, as debuggers search it.
const DEBUG_DIRECTORY: &str = "/usr/lib/debug";

/// Maximum total bytes of one file's compressed sections after decompression, as large as the debug information of the largest
/// programs. A section beyond that is treated as missing.
const MAX_DECOMPRESSED: u64 = 1 << 30;

/// Maximum length of a function's raw name, in bytes; templates can have longer ones, which are useless to read.
const MAX_NAME: usize = 1 << 14;
/// Maximum length of the path of another file, in bytes.
const MAX_PATH: usize = 4096;
/// Maximum number of code segments in a file; programs have one or two.
const MAX_SEGMENTS: usize = 256;

/// Opens files as a process sees them.
pub trait Files {
    /// Returns the bytes of a file by its path in the process's root; `None` if it cannot be opened.
    fn open(&self, path: &Path) -> Option<Bytes>;

    /// Returns the bytes of a mapped file, even if its path was removed or now refers to another file.
    fn open_mapped(&self, mapping: &Mapping) -> Option<Bytes>;
}

impl Image {
    /// Parses a file whose path is `path`.
    ///
    /// # Errors
    /// It is not an ELF file for a supported processor.
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

    /// Returns the file name without directories.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the build id, which the linker derives from the content; `None` if the file has none.
    #[must_use]
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// Returns the load bias if the code at the file offset `offset` is mapped at `start`. The load bias is the difference
    /// between mapped addresses and those in the file. `None` if no code segment contains the offset.
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

    /// Returns address (as in the file) and size of each of the named symbols; `None` for those that do not exist. Ask for all of
    /// them in one call: if one is missing, every symbol of the file is compared.
    #[must_use]
    pub fn symbols<const N: usize>(&self, names: [&str; N]) -> [Option<(u64, u64)>; N] {
        symbols::find(&self.file, names)
    }

    /// Returns true if the debug information of this file, or its separate debug information, contains a name. That is a hint that it
    /// describes the type or function of this name.
    #[must_use]
    pub fn describes(&self, name: &str, path: &str, files: &dyn Files) -> bool {
        let text = [name.as_bytes(), &[0]].concat();
        let finder = Finder::new(&text);
        let has = |file: &Bytes| {
            let Ok(elf) = ElfFile64::<LittleEndian>::parse(&**file) else {
                return false;
            };
            let mut left = MAX_DECOMPRESSED;
            // Short names are in `.debug_info` itself.
            [".debug_str", ".debug_info"].iter().any(|section| {
                let section = sections::by_name(&elf, section);
                let bytes = section.and_then(|section| contents(&section, file, &mut left));
                bytes.is_some_and(|bytes| finder.find(&bytes).is_some())
            })
        };
        let separate = || self.debug_files(path).into_iter();
        has(&self.file)
            || separate()
                .filter_map(|path| files.open(&path))
                .any(|file| has(&file))
    }

    /// Returns whether the code can connect its job with another: whether it refers to an MPI function that does.
    #[must_use]
    pub fn joining(&self) -> Joining {
        *self.joining.get_or_init(|| {
            let has = |is_it: fn(&[u8]) -> bool| symbols::has(&self.file, is_it);
            if has(known::joins_jobs) {
                Joining::Possible
            } else if has(known::spawns_jobs) {
                Joining::Spawning
            } else {
                Joining::Never
            }
        })
    }

    /// Returns the address of a section, as in the file, and its bytes.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<(u64, Bytes)> {
        let elf = ElfFile64::<LittleEndian>::parse(&*self.file).ok()?;
        let section = sections::by_name(&elf, name)?;
        let data = section.data().ok()?;
        Some((section.address(), self.file.slice_ref(data)))
    }

    /// Returns the functions at an address, innermost first: several if the compiler has inlined functions into another. Separate
    /// debug information is opened through `files`.
    ///
    /// There is always at least one function, which may have no name.
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
        // The outermost is not inlined and may have a symbol with a plainer name than the debug information: `poll`, not
        // `__GI___poll`.
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

    /// Returns the readable name of the symbol that covers an address.
    fn symbol(&self, address: u64) -> Option<Arc<str>> {
        Some(names::readable(&self.covering(address)?.name, None).into())
    }

    /// Returns the symbol that covers an address, from this file or its separate debug information.
    fn covering(&self, address: u64) -> Option<Covering> {
        let symbols = self.symbols.get_or_init(|| Symbols::load(&self.file));
        let separate = || self.lines.get()?.as_ref()?.symbol(address);
        let found = symbols.at(&self.file, address).or_else(separate)?;
        // A symbol without a size must not extend into a function that has only unwinding rules.
        let is_another = found.extent == Extent::Guessed
            && self
                .unwinding
                .function(address)
                .is_some_and(|function| !function.contains(&found.range.start));
        (!is_another).then_some(found)
    }

    /// Returns the address range of the function at an address: by its symbol, or else by its unwinding rules.
    #[must_use]
    pub fn function(&self, address: u64) -> Option<Range<u64>> {
        let named = self.covering(address).map(|found| found.range);
        named.or_else(|| self.unwinding.function(address))
    }

    /// Returns the address range of all code of the function at an address: by its unwinding rules, which compilers write, or else
    /// by its symbol if that has a size.
    #[must_use]
    pub fn whole_function(&self, address: u64) -> Option<Range<u64>> {
        let told = || {
            let found = self.covering(address)?;
            (found.extent == Extent::Told).then_some(found.range)
        };
        self.unwinding
            .function(address)
            .filter(|range| range.contains(&address))
            .or_else(told)
    }

    /// Returns whether exceptions lead to places in the function at an address.
    pub(crate) fn exceptions(&self, address: u64) -> Exceptions {
        match self.unwinding.description(address) {
            Some(found) if found.lsda().is_none() => Exceptions::Leave,
            _ => Exceptions::MayLand,
        }
    }

    /// Returns where the function at an address has saved a register of its caller when it is there.
    pub(crate) fn saved(&self, address: u64) -> impl Fn(u16) -> Saved {
        let row = self.unwinding.saved(address);
        move |register| {
            let Some(row) = &row else {
                return Saved::Unknown;
            };
            match row.register(Register(register)) {
                None | Some(RegisterRule::SameValue) => Saved::Nowhere,
                Some(RegisterRule::Offset(distance)) => Saved::At(distance),
                Some(_) => Saved::Unknown,
            }
        }
    }

    /// Returns true if a function's symbol begins at an address.
    #[must_use]
    pub fn has_symbol(&self, address: u64) -> bool {
        self.covering(address)
            .is_some_and(|found| found.range.start == address)
    }

    /// Returns the first `N` bytes of code at an address, as in the file.
    #[must_use]
    pub fn code<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let end = address.checked_add(N as u64)?;
        self.code_in(address..end, N)?.try_into().ok()
    }

    /// Returns the code in a range of addresses, as in the file; at most the first `most` bytes.
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

    /// Returns all code with its addresses, as in the file.
    pub(crate) fn all_code(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.segments.iter().filter_map(|segment| {
            let end = segment.address.checked_add(segment.length)?;
            let code = self.code_in(segment.address..end, usize::MAX)?;
            Some((segment.address, code))
        })
    }

    /// Returns the paths where separate debug information may be, the most likely first.
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

/// Returns the bytes of a section, decompressed if necessary. `left` is the remaining number of bytes that may be decompressed
/// for this file.
fn contents<'a>(section: &impl ObjectSection<'a>, file: &Bytes, left: &mut u64) -> Option<Bytes> {
    let data = section.compressed_data().ok()?;
    if data.format == CompressionFormat::None {
        return Some(file.slice_ref(data.data));
    }
    decompressed(&data, left).map(Bytes::from)
}

/// Compressed data can declare an enormous size: check it before memory is allocated.
fn decompressed(data: &CompressedData<'_>, left: &mut u64) -> Option<Vec<u8>> {
    *left = left.checked_sub(data.uncompressed_size)?;
    Some(data.decompress().ok()?.into_owned())
}

/// Returns the zero-terminated string at the beginning of `data`. `None` if it is not UTF-8, or the first `most` bytes contain no
/// zero.
fn text(data: &[u8], most: usize) -> Option<String> {
    let start = data.get(..data.len().min(most))?;
    let end = start.iter().position(|&byte| byte == 0)?;
    String::from_utf8(start[..end].to_vec()).ok()
}

fn segments(elf: &ElfFile64<'_, LittleEndian>) -> Vec<Segment> {
    sections::headers(elf)
        // A page of the file can belong to both the code segment and the one before it: consider only code.
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

/// How much to read of the separate debug information of system libraries. Reading it takes longer than everything else, and few
/// users want the line in the C library where a thread sleeps. The debug information of other files is always read completely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// Function names only.
    #[default]
    Names,
    /// Lines and inlined functions as well.
    Lines,
}

/// Returns true if a library was installed with the system.
fn is_of_the_system(path: &str) -> bool {
    ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"]
        .iter()
        .any(|directory| path.starts_with(directory))
        && path.contains(".so")
}

/// A function's name and source line, each `None` if unknown.
type Named = (Option<Arc<str>>, Option<Source>);

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) mod made;

    use super::*;

    /// One thousand letters `a`, compressed with zlib.
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
        // A section that declares less than its real size yields only the declared bytes.
        assert_eq!(
            decompressed(&data(10), &mut left).map(|it| it.len()),
            Some(10)
        );
        assert_eq!(decompressed(&data(u64::MAX), &mut left), None);
    }
}
