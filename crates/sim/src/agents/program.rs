//! The program that all ranks of a run execute: an ELF file with symbols, and the registers and stack of a thread in it.

use base::Registers;
use bytes::Bytes;

/// Number of phases of the program, each with its own stack.
pub(super) const PHASES: u32 = 6;
/// The phase of a process that reuses the pid of a rank.
pub(super) const STRANGE: u32 = PHASES;

/// Address at which the program is mapped.
pub(super) const BASE: u64 = 0x10_0000;
/// Size of its code in bytes.
pub(super) const LENGTH: usize = 0x1000;
/// Address of the stack.
const STACK: u64 = 0x7000_0000;
/// Size of a function in bytes.
const FUNCTION: u64 = 0x100;
/// Distance from the begin of a function to the call in it.
const CALL: u64 = 0x20;
/// The functions before those of the phases.
const OUTER: [&str; 3] = ["_start", "main", "solve"];

/// Returns the functions of a thread in a phase, the outermost first, as places in the program.
fn path(phase: u32) -> Vec<u64> {
    let own = OUTER.len() as u64 + u64::from(phase);
    match phase % 2 {
        0 => vec![0, 1, own],
        _ => vec![0, 1, 2, own],
    }
}

fn name(place: u64) -> String {
    let outer = OUTER.len() as u64;
    let known = OUTER.into_iter().zip(0..).find(|(_, at)| *at == place);
    known.map_or_else(
        || format!("phase_{}", place.saturating_sub(outer)),
        |(name, _)| name.to_owned(),
    )
}

/// Returns the names of the functions of a thread in a phase, the outermost first.
pub(super) fn stack(phase: u32) -> Vec<String> {
    path(phase).into_iter().map(name).collect()
}

/// Returns the phase with this stack; `None` if no phase has it.
pub(super) fn phase(stack: &[String]) -> Option<u32> {
    (0..=STRANGE).find(|one| self::stack(*one) == stack)
}

const fn begin(place: u64) -> u64 {
    FUNCTION * (place + 1)
}

/// Returns registers and stack of a thread that is stopped in a phase. Each function keeps the frame of its caller.
pub(super) fn stopped(phase: u32) -> (Registers, Vec<u8>) {
    let path = path(phase);
    let mut bytes = Vec::new();
    for (above, caller) in (1_u64..).zip(path.iter().rev().skip(1)) {
        bytes.extend((STACK + 16 * above).to_le_bytes());
        bytes.extend((BASE + begin(*caller) + CALL).to_le_bytes());
    }
    bytes.extend([0; 64]);
    let inner = path.last().copied().unwrap_or(0);
    let registers = Registers::X86_64 {
        instruction: BASE + begin(inner) + CALL,
        stack: STACK,
        frame: STACK,
        thread: 0,
    };
    (registers, bytes)
}

/// Returns the text of the mappings of a process.
pub(super) fn mappings() -> Vec<u8> {
    let end = BASE + LENGTH as u64;
    format!("{BASE:x}-{end:x} r-xp 00000000 fe:00 7 /a.out\n").into_bytes()
}

/// Sizes in bytes: of the file header, a section header, a program header and a symbol.
const HEADER: usize = 64;
const SECTION: usize = 64;
const SYMBOL: usize = 24;

/// Returns the program file: the code, then symbols, names, the headers of sections and of one segment.
pub(super) fn file() -> Bytes {
    let (mut names, mut symbols) = (vec![0], vec![0; SYMBOL]);
    for place in 0..=(OUTER.len() as u64 + u64::from(STRANGE)) {
        symbols.extend(u32::try_from(names.len()).unwrap_or(0).to_le_bytes());
        // A global function in section 1.
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend(begin(place).to_le_bytes());
        symbols.extend(FUNCTION.to_le_bytes());
        names.extend(name(place).into_bytes());
        names.push(0);
    }
    let mut file = vec![0x90; LENGTH];
    let (symbols_at, names_at) = (file.len(), file.len() + symbols.len());
    file.extend(&symbols);
    file.extend(&names);
    let sections_at = file.len().next_multiple_of(8);
    let segment_at = sections_at + 3 * SECTION;
    file.resize(sections_at + SECTION, 0);
    let number = |number: usize| (number as u64).to_le_bytes();
    // `SHT_SYMTAB`, with its names in section 2, and `SHT_STRTAB`.
    for (kind, link, at, size, entry) in [
        (2, 2, symbols_at, symbols.len(), SYMBOL),
        (3, 0, names_at, names.len(), 0),
    ] {
        file.extend([0, 0, 0, 0, kind, 0, 0, 0]);
        file.extend([0; 16]);
        file.extend([number(at), number(size)].concat());
        file.extend([link, 0, 0, 0, 0, 0, 0, 0]);
        file.extend([number(0), number(entry)].concat());
    }
    // `PT_LOAD`, readable and executable.
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    file.extend([number(0), number(0), number(0)].concat());
    file.extend([number(LENGTH), number(LENGTH), number(0)].concat());
    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(16, 0);
    // `ET_DYN`, `EM_X86_64`, version 1.
    header.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    header.extend([number(0), number(segment_at), number(sections_at)].concat());
    header.extend([0; 4]);
    // Sizes and numbers of the headers, and the section with the names.
    header.extend([64, 0, 56, 0, 1, 0, 64, 0, 3, 0, 2, 0]);
    file[..HEADER].copy_from_slice(&header);
    Bytes::from(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_stack() {
        assert_eq!(stack(0), ["_start", "main", "phase_0"]);
        assert_eq!(stack(1), ["_start", "main", "solve", "phase_1"]);
        for one in 0..=STRANGE {
            assert_eq!(phase(&stack(one)), Some(one));
        }
        assert_eq!(phase(&["main".to_owned()]), None);
        assert!(begin(OUTER.len() as u64 + u64::from(STRANGE)) + FUNCTION <= LENGTH as u64);
    }
}
