//! The sections of a file by their names, and its build id.
//!
//! The names of a hostile file can be one text of its whole length, and its sections very many: each is compared with what is
//! looked for and no further, and no more sections than programs have are looked at.

use object::{
    LittleEndian, Object, ObjectSection, SectionIndex, elf,
    read::elf::{ElfFile64, ElfSection64, FileHeader, ProgramHeader, SectionHeader},
};

/// Sections of a file that are looked at: programs have less than a hundred, and some thousands where each function has one.
const MAX_SECTIONS: usize = 1 << 16;
/// Sections and segments with notes that are looked at, and notes in each: programs have some of each.
const MAX_NOTES: usize = 256;
/// Bytes of a build id: most have 20.
const MAX_BUILD_ID: usize = 64;

/// The section of this name, or the one of old compilers that is compressed.
pub(super) fn by_name<'a, 'f>(
    elf: &'f ElfFile64<'a, LittleEndian>,
    name: &str,
) -> Option<ElfSection64<'a, 'f, LittleEndian>> {
    let names = elf.elf_header().shstrndx(LittleEndian, elf.data()).ok()?;
    let names = SectionIndex(usize::try_from(names).ok()?);
    let names = elf.section_by_index(names).ok()?.data().ok()?;
    let find = |name: &[u8]| {
        let mut sections = elf.sections().take(MAX_SECTIONS);
        sections.find(|section| {
            let at = section.elf_section_header().sh_name(LittleEndian);
            let rest = usize::try_from(at).ok().and_then(|at| names.get(at..));
            let rest = rest.and_then(|rest| rest.strip_prefix(name));
            rest.is_some_and(|rest| rest.first() == Some(&0))
        })
    };
    let compressed = || {
        find(
            format!(
                ".z{}",
                name.strip_prefix(".debug_")
                    .map(|rest| format!("debug_{rest}"))?
            )
            .as_bytes(),
        )
    };
    find(name.as_bytes()).or_else(compressed)
}

/// What the linker has made of a file's content to tell it from every other.
pub(super) fn build_id(elf: &ElfFile64<'_, LittleEndian>) -> Option<Vec<u8>> {
    let sections = elf.elf_section_table().iter().take(MAX_SECTIONS);
    let sections = sections.filter_map(|it| it.notes(LittleEndian, elf.data()).ok()?);
    let segments = elf.elf_program_headers().iter().take(MAX_SECTIONS);
    let segments = segments.filter_map(|it| it.notes(LittleEndian, elf.data()).ok()?);
    let all = sections.chain(segments).take(MAX_NOTES);
    let mut notes = all.flat_map(|notes| notes.filter_map(Result::ok).take(MAX_NOTES));
    let found = notes.find(|note| {
        note.name() == elf::ELF_NOTE_GNU && note.n_type(LittleEndian) == elf::NT_GNU_BUILD_ID
    });
    let id = found?.desc();
    (id.len() <= MAX_BUILD_ID).then(|| id.to_vec())
}
