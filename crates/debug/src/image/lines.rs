//! Lines and inlined functions: the debug information of a file, in it or beside it.

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

/// What is known of the lines of one file.
pub(super) struct Lines {
    dwarf: Option<Dwarf>,
    /// The file that the debug information is in, where it is another, and its symbols, which the program's own may lack.
    beside: Option<(Bytes, Symbols)>,
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

/// Sections with debug information by name, uncompressed: those of the file and those of the one that it shares with others.
#[derive(Default)]
struct Sections {
    own: BTreeMap<&'static str, Bytes>,
    shared: BTreeMap<&'static str, Bytes>,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beside = self.beside.is_some();
        f.debug_struct("Lines")
            .field("beside", &beside)
            .finish_non_exhaustive()
    }
}

impl Lines {
    /// Reads what `file` has, or the first of `others` that belongs to it, and of that no more than `reading` says.
    pub(super) fn load(
        file: &Bytes,
        others: &[PathBuf],
        files: &dyn Files,
        reading: Reading,
    ) -> Option<Self> {
        if has_lines(file) {
            return Some(Self {
                dwarf: dwarf(file, files),
                beside: None,
            });
        }
        let beside = others
            .iter()
            .filter_map(|path| files.open(path))
            .find(|other| belongs(other, file) && has_lines(other))?;
        Some(Self {
            dwarf: match reading {
                Reading::Names => None,
                Reading::Lines => dwarf(&beside, files),
            },
            beside: Some((beside.clone(), Symbols::load(&beside))),
        })
    }

    /// The functions at an address, innermost first; none where nothing is known of it.
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
                    Some(Source {
                        file: location.file?.into(),
                        line: location.line.unwrap_or(0),
                    })
                });
                found.push((function, source));
            }
            found
        })
    }

    /// The function that the file beside has at an address.
    pub(super) fn symbol(&self, address: u64) -> Option<Covering> {
        let (file, symbols) = self.beside.as_ref()?;
        symbols.at(file, address)
    }
}

fn has_lines(file: &Bytes) -> bool {
    ElfFile64::<object::LittleEndian>::parse(&**file)
        .is_ok_and(|elf| sections::by_name(&elf, ".debug_info").is_some())
}

/// Whether two files are of one build. Where no build is named in either, their names alone have to do.
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
