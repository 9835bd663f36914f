//! Sections of a file by name, its segments, and its build id.
//!
//! A hostile file can have one string of its whole length as the name of each section, and very many sections and segments.
//! Therefore names are compared only up to the length of the wanted name, and the numbers of sections and segments are bounded.

use object::{
    LittleEndian, Object, ObjectSection, SectionIndex,
    elf::{self, ProgramHeader64},
    read::elf::{ElfFile64, ElfSection64, FileHeader, ProgramHeader, SectionHeader},
};

/// Maximum number of sections read: programs have fewer than a hundred, or some thousands with a section for each function.
const MAX_SECTIONS: usize = 1 << 16;
/// Maximum number of program headers read: programs have about a dozen, and the kernel accepts up to 1,170.
const MAX_HEADERS: usize = 4096;
/// Maximum number of note sections and segments read, and of notes in each: programs have a few.
const MAX_NOTES: usize = 256;
/// Maximum length of a build id in bytes: most have 20.
const MAX_BUILD_ID: usize = 64;

/// Returns the first [`MAX_SECTIONS`] sections.
pub(super) fn all<'a, 'f>(
    elf: &'f ElfFile64<'a, LittleEndian>,
) -> impl Iterator<Item = ElfSection64<'a, 'f, LittleEndian>> {
    elf.sections().take(MAX_SECTIONS)
}

/// Returns the first [`MAX_HEADERS`] program headers.
pub(super) fn headers<'a>(
    elf: &ElfFile64<'a, LittleEndian>,
) -> impl Iterator<Item = &'a ProgramHeader64<LittleEndian>> {
    elf.elf_program_headers().iter().take(MAX_HEADERS)
}

/// Returns the section with this name, or the compressed `.zdebug_` section of old compilers.
pub(super) fn by_name<'a, 'f>(
    elf: &'f ElfFile64<'a, LittleEndian>,
    name: &str,
) -> Option<ElfSection64<'a, 'f, LittleEndian>> {
    let names = elf.elf_header().shstrndx(LittleEndian, elf.data()).ok()?;
    let names = SectionIndex(usize::try_from(names).ok()?);
    let names = elf.section_by_index(names).ok()?.data().ok()?;
    let find = |name: &[u8]| {
        all(elf).find(|section| {
            let at = section.elf_section_header().sh_name(LittleEndian);
            let rest = usize::try_from(at).ok().and_then(|at| names.get(at..));
            let rest = rest.and_then(|rest| rest.strip_prefix(name));
            rest.is_some_and(|rest| rest.first() == Some(&0))
        })
    };
    let compressed = || find(format!(".zdebug_{}", name.strip_prefix(".debug_")?).as_bytes());
    find(name.as_bytes()).or_else(compressed)
}

/// Returns the build id, which the linker derives from the content; `None` if the file has none.
pub(super) fn build_id(elf: &ElfFile64<'_, LittleEndian>) -> Option<Vec<u8>> {
    let sections = elf.elf_section_table().iter().take(MAX_SECTIONS);
    let sections = sections.filter_map(|it| it.notes(LittleEndian, elf.data()).ok()?);
    let segments = headers(elf).filter_map(|it| it.notes(LittleEndian, elf.data()).ok()?);
    let all = sections.chain(segments).take(MAX_NOTES);
    let mut notes = all.flat_map(|notes| notes.filter_map(Result::ok).take(MAX_NOTES));
    let found = notes.find(|note| {
        note.name() == elf::ELF_NOTE_GNU && note.n_type(LittleEndian) == elf::NT_GNU_BUILD_ID
    });
    let id = found?.desc();
    (id.len() <= MAX_BUILD_ID).then(|| id.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Image, tests::made::Program};

    #[test]
    fn a_section_is_found_by_its_name_or_as_old_compilers_compress_it() {
        let mut program = Program::new();
        for name in [
            ".debug_lines",
            ".zdebug_line",
            ".ztext",
            ".debug_str",
            ".zdebug_str",
        ] {
            program.section(name, name.as_bytes());
        }
        let image = Image::parse("x", program.build()).unwrap();
        for (name, expected) in [
            (".debug_lines", Some(".debug_lines")),
            (".debug_line", Some(".zdebug_line")),
            (".zdebug_line", Some(".zdebug_line")),
            (".debug_str", Some(".debug_str")),
            (".debug_lin", None),
            (".text", None),
        ] {
            let found = image.section(name).map(|(_, data)| data);
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{name}");
        }
    }

    #[test]
    fn no_more_headers_of_segments_are_read_than_programs_have() {
        for (empty, expected) in [(MAX_HEADERS - 1, Some(0x1000)), (MAX_HEADERS, None)] {
            let mut program = Program::new();
            program.empty_headers(empty);
            let image = Image::parse("x", program.build()).unwrap();
            assert_eq!(image.bias(0x1000, 0), expected, "{empty}");
        }
    }
}
