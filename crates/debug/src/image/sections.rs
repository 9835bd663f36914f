//! The sections of a file by their names.
//!
//! The names of a hostile file can be one text of its whole length, and its sections very many: each is compared with what is
//! looked for and no further, and no more sections than programs have are looked at.

use object::{
    LittleEndian, Object, ObjectSection, SectionIndex,
    read::elf::{ElfFile64, ElfSection64, FileHeader, SectionHeader},
};

/// Sections of a file that are looked at: programs have less than a hundred, and some thousands where each function has one.
const MAX_SECTIONS: usize = 1 << 16;

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
