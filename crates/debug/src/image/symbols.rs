//! The symbol tables of a file: which function has an address.

use std::{collections::BTreeMap, ops::Range};

use bytes::Bytes;
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, SymbolKind,
    read::elf::ElfFile64,
};

/// Functions by address.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// In ascending order of addresses, one for each address.
    functions: Vec<Function>,
}

#[derive(Debug)]
struct Function {
    address: u64,
    /// Nothing where the symbol has no size, as those of assembly often have none.
    size: u64,
    /// Where its section ends; its own address where it is in none.
    section_end: u64,
    /// Where its name stands in the file.
    name: (usize, usize),
}

/// A function with the addresses that a symbol gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Covering {
    /// Its name as the file writes it.
    pub(super) name: String,
    /// From its first instruction to the next function, or to the end of its section.
    pub(super) range: Range<u64>,
    pub(super) extent: Extent,
}

/// How the end of a function is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Its symbol has a size.
    Told,
    /// Its symbol has none: functions without a symbol may stand in its range as well.
    Guessed,
}

/// Functions that are kept of one file.
const MAX_FUNCTIONS: usize = 1 << 22;

impl Symbols {
    pub(super) fn load(file: &Bytes) -> Self {
        let Ok(elf) = ElfFile64::<LittleEndian>::parse(&**file) else {
            return Self::default();
        };
        let ends: BTreeMap<usize, u64> = elf
            .sections()
            .map(|it| (it.index().0, it.address().saturating_add(it.size())))
            .collect();
        let mut functions = Vec::new();
        let tables = [elf.symbol_table(), elf.dynamic_symbol_table()];
        for symbol in tables.iter().flatten().flat_map(ObjectSymbolTable::symbols) {
            let named = symbol.name_bytes().ok().filter(|name| !name.is_empty());
            let (Some(name), SymbolKind::Text, true) =
                (named, symbol.kind(), symbol.is_definition())
            else {
                continue;
            };
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
        // Of several names the one is kept that a person would have written.
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

    /// The function that has an address.
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
        // Names with versions are those of a table that was copied from another.
        let name = name.split(|&byte| byte == b'@').next()?;
        Some(Covering {
            name: String::from_utf8_lossy(name).into_owned(),
            range,
            extent,
        })
    }
}

/// Whether a person would rather have written the first name.
pub(super) fn is_plainer(name: &str, other: &str) -> bool {
    plainness(name.as_bytes()) < plainness(other.as_bytes())
}

/// How far a name is from what a person would write: `__GI___nanosleep` is further than `nanosleep`.
fn plainness(name: &[u8]) -> (usize, usize) {
    let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
    (underscores, name.len())
}

/// Address and size of symbols of any kind, each where there is one of that name. The tables are walked once, however many
/// names there are, and no further than to the last of them.
pub(super) fn find<const N: usize>(file: &[u8], names: [&str; N]) -> [Option<(u64, u64)>; N] {
    let mut found = [None; N];
    let Ok(elf) = ElfFile64::<LittleEndian>::parse(file) else {
        return found;
    };
    let tables = [elf.dynamic_symbol_table(), elf.symbol_table()];
    let symbols = tables.iter().flatten().flat_map(ObjectSymbolTable::symbols);
    for symbol in symbols {
        let Ok(name) = symbol.name_bytes() else {
            continue;
        };
        let Some(at) = names.iter().position(|wanted| wanted.as_bytes() == name) else {
            continue;
        };
        if found[at].is_none() && symbol.is_definition() {
            found[at] = Some((symbol.address(), symbol.size()));
            if found.iter().all(Option::is_some) {
                break;
            }
        }
    }
    found
}
