//! The symbol tables of a file: find the function at an address.

use std::{collections::BTreeMap, ops::Range};

use bytes::Bytes;
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, SymbolKind,
    read::elf::{ElfFile64, ElfSymbol64, Sym},
};

use super::{MAX_NAME, sections};

/// Function symbols by address.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// In ascending order of addresses, one function for each address.
    functions: Vec<Function>,
}

#[derive(Debug)]
struct Function {
    address: u64,
    /// The size in bytes; 0 if the symbol has none, which is common in assembly.
    size: u64,
    /// The end address of its section; the function's own address if it is in no section.
    section_end: u64,
    /// Offset and length of its name in the file.
    name: (usize, usize),
}

/// The function symbol that covers an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Covering {
    /// The raw name, without a symbol version.
    pub(super) name: String,
    /// From the first instruction to the end given by the symbol's size. Without a size: to the next symbol or the end of the
    /// section.
    pub(super) range: Range<u64>,
    pub(super) extent: Extent,
}

/// How the end of a function is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// From the size of its symbol.
    Told,
    /// Guessed, as the symbol has no size: functions without a symbol may be in the range as well.
    Guessed,
}

/// Maximum number of functions kept for one file.
const MAX_FUNCTIONS: usize = 1 << 22;
/// Maximum total bytes of names read from one file; a name counts once for each symbol that has it. Further symbols are not read.
const MAX_NAMES: usize = 1 << 29;
/// Maximum number of leading underscores counted by [`plainness`].
const MAX_UNDERSCORES: usize = 16;

/// A symbol table of an ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    /// `.symtab`, with all symbols; `strip` removes it.
    Full,
    /// `.dynsym`, with the symbols that are exported or imported.
    Dynamic,
}

type Elf<'a> = ElfFile64<'a, LittleEndian>;

/// Returns the symbols of these tables with their names, in order; a name is empty if the symbol has none. Stops after `left`
/// bytes of names: many symbols can share one long name.
fn named<'a>(
    elf: &'a Elf<'a>,
    tables: [Table; 2],
    mut left: usize,
) -> impl Iterator<Item = (ElfSymbol64<'a, 'a, LittleEndian>, &'a [u8])> {
    let tables = tables.into_iter().filter_map(|table| {
        let (symbols, raw) = match table {
            Table::Full => (elf.symbol_table(), elf.elf_symbol_table()),
            Table::Dynamic => (elf.dynamic_symbol_table(), elf.elf_dynamic_symbol_table()),
        };
        let names = elf.section_by_index(raw.string_section()).ok()?;
        Some((symbols?, names.data().ok()?))
    });
    let all = tables.flat_map(|(table, names)| table.symbols().map(move |it| (it, names)));
    all.map_while(move |(symbol, names)| {
        let at = symbol.elf_symbol().st_name(LittleEndian) as usize;
        let name = names.get(at..).unwrap_or_default();
        // A name without an end within `MAX_NAME` bytes counts as none.
        let name = &name[..name.len().min(MAX_NAME)];
        let end = name.iter().position(|&byte| byte == 0);
        left = left.checked_sub(end.unwrap_or(name.len()) + 1)?;
        Some((symbol, &name[..end.unwrap_or(0)]))
    })
}

impl Symbols {
    pub(super) fn load(file: &Bytes) -> Self {
        let Ok(elf) = ElfFile64::<LittleEndian>::parse(&**file) else {
            return Self::default();
        };
        let ends: BTreeMap<usize, u64> = sections::all(&elf)
            .map(|it| (it.index().0, it.address().saturating_add(it.size())))
            .collect();
        let mut functions = Vec::new();
        for (symbol, name) in named(&elf, [Table::Full, Table::Dynamic], MAX_NAMES) {
            let is_function = symbol.kind() == SymbolKind::Text && !symbol.is_undefined();
            if !is_function || name.is_empty() {
                continue;
            }
            if functions.len() == MAX_FUNCTIONS {
                break;
            }
            functions.push(Function {
                address: symbol.address(),
                size: symbol.size(),
                section_end: symbol
                    .section_index()
                    .and_then(|index| ends.get(&index.0).copied())
                    .unwrap_or_else(|| symbol.address()),
                name: (name.as_ptr() as usize - file.as_ptr() as usize, name.len()),
            });
        }
        let text = |function: &Function| {
            let (start, length) = function.name;
            file.get(start..start + length).unwrap_or_default()
        };
        // Of several names for one address, keep the one that a person is most likely to have written.
        functions.sort_by(|left, right| {
            (
                left.address,
                left.size == 0,
                plainness(text(left)),
                text(left),
            )
                .cmp(&(
                    right.address,
                    right.size == 0,
                    plainness(text(right)),
                    text(right),
                ))
        });
        functions.dedup_by_key(|function| function.address);
        Self { functions }
    }

    /// Returns the function that covers an address.
    pub(super) fn at(&self, file: &[u8], address: u64) -> Option<Covering> {
        let after = self
            .functions
            .partition_point(|function| function.address <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        let (end, extent) = if function.size == 0 {
            let next = self.functions.get(after);
            let next = next.map_or(u64::MAX, |next| next.address);
            (function.section_end.min(next), Extent::Guessed)
        } else {
            let end = function.address.saturating_add(function.size);
            (end, Extent::Told)
        };
        let range = function.address..end;
        if !range.contains(&address) {
            return None;
        }
        let (start, length) = function.name;
        let name = file.get(start..start.checked_add(length)?)?;
        // Names in `.symtab` may have a symbol version after `@`.
        let name = name.split(|&byte| byte == b'@').next()?;
        Some(Covering {
            name: String::from_utf8_lossy(name).into_owned(),
            range,
            extent,
        })
    }
}

/// Returns true if `name` is plainer than `other`.
pub(super) fn is_plainer(name: &str, other: &str) -> bool {
    plainness(name.as_bytes()) < plainness(other.as_bytes())
}

/// Returns how unlike a name is to what a person would write; lower is plainer. `__GI___nanosleep` ranks behind `nanosleep`.
fn plainness(name: &[u8]) -> (usize, usize) {
    let start = name.iter().take(MAX_UNDERSCORES);
    let underscores = start.take_while(|&&byte| byte == b'_').count();
    (underscores, name.len())
}

/// Returns address and size of symbols of any kind, `None` for names that are not defined. Walks the tables once for all names,
/// and stops when the last one is found.
pub(super) fn find<const N: usize>(file: &[u8], names: [&str; N]) -> [Option<(u64, u64)>; N] {
    let mut found = [None; N];
    let Ok(elf) = ElfFile64::<LittleEndian>::parse(file) else {
        return found;
    };
    for (symbol, name) in named(&elf, [Table::Dynamic, Table::Full], MAX_NAMES) {
        let Some(at) = names.iter().position(|wanted| wanted.as_bytes() == name) else {
            continue;
        };
        if found[at].is_none() && !symbol.is_undefined() {
            found[at] = Some((symbol.address(), symbol.size()));
            if found.iter().all(Option::is_some) {
                break;
            }
        }
    }
    found
}

/// Returns true if a file defines or imports a symbol whose name satisfies `is_it`.
pub(super) fn has(file: &[u8], is_it: impl Fn(&[u8]) -> bool) -> bool {
    let Ok(elf) = ElfFile64::<LittleEndian>::parse(file) else {
        return false;
    };
    // A statically linked program has no dynamic symbols: search the full table as well.
    named(&elf, [Table::Dynamic, Table::Full], MAX_NAMES).any(|(_, name)| is_it(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::tests::made::Program;

    #[test]
    fn names_are_read_no_further_than_they_may_be() {
        let mut program = Program::new();
        program.function("first", 0x1000, 8);
        program.function(&"x".repeat(MAX_NAME), 0x2000, 8);
        program.function("last", 0x3000, 8);
        let file = program.build();
        let elf = Elf::parse(&*file).unwrap();
        let read = |most| -> Vec<String> {
            let all = named(&elf, [Table::Dynamic, Table::Full], most);
            all.map(|(_, name)| String::from_utf8(name.to_vec()).unwrap())
                .collect()
        };
        assert_eq!(read(MAX_NAMES), ["first", "", "last"]);
        assert_eq!(read(6 + MAX_NAME + 1), ["first", ""]);
        assert_eq!(read(6), ["first"]);
        assert_eq!(find(&file, ["last", "none"]), [Some((0x3000, 8)), None]);
        assert!(has(&file, |name| name == b"last"));
        assert!(!has(&file, |name| name == b"none"));
    }
}
