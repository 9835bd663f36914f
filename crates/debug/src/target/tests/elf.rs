//! A library with the symbols of a launcher and nothing else.

use bytes::Bytes;

/// Where the variables are, from where the library is mapped.
pub(super) const TABLE: u64 = 0x800;
pub(super) const SIZE: u64 = 0x810;
pub(super) const STATE: u64 = 0x820;
pub(super) const JOB: u64 = 0x830;

/// The addresses in the file begin here, so that they are not those in memory.
const FIRST: u64 = 0x4000;
const SECTION: usize = 64;
const SYMBOL: usize = 24;

/// A shared library that was stripped: only its dynamic symbols are left.
pub(super) fn library(with_job: bool) -> Bytes {
    let mut symbols = vec![
        ("MPIR_proctable", TABLE, 8),
        ("MPIR_proctable_size", SIZE, 4),
        ("MPIR_debug_state", STATE, 4),
    ];
    if with_job {
        symbols.push(("totalview_jobid", JOB, 8));
    }
    let mut names = vec![0];
    let mut table = vec![0; SYMBOL];
    for (name, at, size) in symbols {
        table.extend(u32::try_from(names.len()).unwrap().to_le_bytes());
        // A global object, in a section that is defined.
        table.extend([0x11, 0, 1, 0]);
        table.extend((FIRST + at).to_le_bytes());
        table.extend(u64::to_le_bytes(size));
        names.extend(name.as_bytes());
        names.push(0);
    }
    let symbols_at = 0x100;
    let names_at = symbols_at + table.len();
    let sections_at = (names_at + names.len()).next_multiple_of(8);
    let mut file = vec![0; sections_at + 3 * SECTION];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    let word = |number: usize| u64::try_from(number).unwrap().to_le_bytes();
    put(0, b"\x7fELF\x02\x01\x01");
    // ET_DYN, EM_X86_64, version 1.
    put(16, &[3, 0, 62, 0, 1, 0, 0, 0]);
    put(32, &word(64));
    put(40, &word(sections_at));
    // Sizes of the headers, how many there are, and the section that could have their names.
    put(52, &[64, 0, 56, 0, 1, 0, 64, 0, 3, 0, 2, 0]);
    // One segment, of the whole file.
    put(64, &[1, 0, 0, 0, 5, 0, 0, 0]);
    put(80, &FIRST.to_le_bytes());
    put(88, &FIRST.to_le_bytes());
    put(96, &word(0x1000));
    put(104, &word(0x1000));
    put(symbols_at, &table);
    put(names_at, &names);
    // SHT_DYNSYM, whose names are in the second section, and SHT_STRTAB.
    for (section, kind, link, at, size, entry) in [
        (1, 11, 2_u8, symbols_at, table.len(), SYMBOL),
        (2, 3, 0, names_at, names.len(), 0),
    ] {
        let header = sections_at + section * SECTION;
        put(header + 4, &[kind]);
        put(header + 24, &word(at));
        put(header + 32, &word(size));
        put(header + 40, &[link]);
        put(header + 56, &word(entry));
    }
    file.into()
}

#[test]
fn it_is_one() {
    let image = crate::image::Image::parse("x", library(true)).unwrap();
    let names = ["none", "MPIR_debug_state", "", "MPIR_proctable"];
    let found = [
        None,
        Some((FIRST + STATE, 4)),
        None,
        Some((FIRST + TABLE, 8)),
    ];
    assert_eq!(image.symbols(names), found);
    assert_eq!(image.symbols([]), []);
    assert_eq!(image.bias(0x10_0000, 0), Some(0x10_0000 - FIRST));
}
