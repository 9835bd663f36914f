//! Lines and inlined functions: the debug information of a file, in the file itself or in a separate one.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use addr2line::gimli::{self, EndianSlice, LittleEndian};
use bytes::Bytes;
use object::{ObjectSection, read::elf::ElfFile64};
use self_cell::self_cell;

use super::{
    Files, MAX_DECOMPRESSED, MAX_PATH, Named, Reading, contents, names, sections,
    symbols::{Covering, Symbols},
    text,
};
use crate::stack::Source;

/// The debug information of one file.
pub(super) struct Lines {
    dwarf: Option<Dwarf>,
    /// The separate file with the debug information, if there is one, and its symbols, which the program itself may lack.
    separate: Option<(Bytes, Symbols)>,
}

type Reader<'a> = EndianSlice<'a, LittleEndian>;
type Context<'a> = addr2line::Context<Reader<'a>>;

self_cell!(
    struct Dwarf {
        owner: Sections,
        #[not_covariant]
        dependent: Context,
    }
);

/// Uncompressed debug sections by name: those of the file, and those of the supplementary file that several files share.
#[derive(Default)]
struct Sections {
    own: BTreeMap<&'static str, Bytes>,
    shared: BTreeMap<&'static str, Bytes>,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separate = self.separate.is_some();
        f.debug_struct("Lines")
            .field("separate", &separate)
            .finish_non_exhaustive()
    }
}

impl Lines {
    /// Loads the debug information of `file`, or of the first of `others` that belongs to it; for the latter only as much as
    /// `reading` allows.
    pub(super) fn load(
        file: &Bytes,
        others: &[PathBuf],
        files: &dyn Files,
        reading: Reading,
    ) -> Option<Self> {
        if has_lines(file) {
            return Some(Self {
                dwarf: dwarf(file, files),
                separate: None,
            });
        }
        let separate = others
            .iter()
            .filter_map(|path| files.open(path))
            .find(|other| belongs(other, file) && has_lines(other))?;
        Some(Self {
            dwarf: match reading {
                Reading::Names => None,
                Reading::Lines => dwarf(&separate, files),
            },
            separate: Some((separate.clone(), Symbols::load(&separate))),
        })
    }

    /// Returns the functions at an address, innermost first; empty if nothing is known.
    pub(super) fn frames(&self, address: u64) -> Vec<Named> {
        let Some(dwarf) = &self.dwarf else {
            return Vec::new();
        };
        dwarf.with_dependent(|_, context| {
            let mut found = Vec::new();
            let Ok(mut frames) = context.find_frames(address).skip_all_loads() else {
                return found;
            };
            while let Ok(Some(frame)) = frames.next() {
                let function = frame.function.and_then(|function| {
                    let name = function.raw_name().ok()?;
                    Some(names::readable(&name, function.language).into())
                });
                let source = frame.location.and_then(|location| {
                    let file = location.file?;
                    Some(Source {
                        file: file[..file.floor_char_boundary(MAX_PATH)].into(),
                        line: location.line.unwrap_or(0),
                    })
                });
                found.push((function, source));
            }
            found
        })
    }

    /// Returns the symbol of the separate file that covers an address.
    pub(super) fn symbol(&self, address: u64) -> Option<Covering> {
        let (file, symbols) = self.separate.as_ref()?;
        symbols.at(file, address)
    }
}

fn has_lines(file: &Bytes) -> bool {
    ElfFile64::<object::LittleEndian>::parse(&**file)
        .is_ok_and(|elf| sections::by_name(&elf, ".debug_info").is_some())
}

/// Returns true if two files are of the same build. Files without build ids match: then only their paths connect them.
fn belongs(other: &Bytes, file: &Bytes) -> bool {
    let id = |file: &Bytes| {
        let elf = ElfFile64::<object::LittleEndian>::parse(&**file).ok()?;
        sections::build_id(&elf)
    };
    id(other) == id(file)
}

fn dwarf(file: &Bytes, files: &dyn Files) -> Option<Dwarf> {
    let elf = ElfFile64::<object::LittleEndian>::parse(&**file).ok()?;
    let shared = sections::by_name(&elf, ".gnu_debugaltlink")
        .and_then(|section| section.data().ok())
        .and_then(|data| text(data, MAX_PATH))
        .and_then(|path| files.open(Path::new(&path)));
    let sections = Sections {
        own: all_sections(file),
        shared: shared.as_ref().map(all_sections).unwrap_or_default(),
    };
    Dwarf::try_new(sections, |sections| {
        let mut dwarf = load(&sections.own);
        if !sections.shared.is_empty() {
            dwarf.set_sup(load(&sections.shared));
        }
        addr2line::Context::from_dwarf(dwarf)
    })
    .ok()
}

fn load<'a>(sections: &'a BTreeMap<&'static str, Bytes>) -> gimli::Dwarf<Reader<'a>> {
    let section = |id: gimli::SectionId| {
        let bytes = sections.get(id.name()).map_or(&[][..], |bytes| bytes);
        Ok::<_, std::convert::Infallible>(EndianSlice::new(bytes, LittleEndian))
    };
    match gimli::Dwarf::load(section) {
        Ok(dwarf) => dwarf,
        Err(never) => match never {},
    }
}

fn all_sections(file: &Bytes) -> BTreeMap<&'static str, Bytes> {
    let Ok(elf) = ElfFile64::<object::LittleEndian>::parse(&**file) else {
        return BTreeMap::new();
    };
    let mut left = MAX_DECOMPRESSED;
    [
        gimli::SectionId::DebugAbbrev,
        gimli::SectionId::DebugAddr,
        gimli::SectionId::DebugAranges,
        gimli::SectionId::DebugInfo,
        gimli::SectionId::DebugLine,
        gimli::SectionId::DebugLineStr,
        gimli::SectionId::DebugRanges,
        gimli::SectionId::DebugRngLists,
        gimli::SectionId::DebugStr,
        gimli::SectionId::DebugStrOffsets,
    ]
    .into_iter()
    .filter_map(|id| {
        let section = sections::by_name(&elf, id.name())?;
        Some((id.name(), contents(&section, file, &mut left)?))
    })
    .collect()
}
