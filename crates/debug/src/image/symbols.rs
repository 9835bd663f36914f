//! The symbol tables of a file: which function has an address.

use bytes::Bytes;
use object::{
    LittleEndian, Object, ObjectSymbol, ObjectSymbolTable, SymbolKind, read::elf::ElfFile64,
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
    size: u64,
    /// Where its name stands in the file.
    name: (usize, usize),
}

/// Functions that are kept of one file.
const MAX_FUNCTIONS: usize = 1 << 22;

impl Symbols {
    pub(super) fn load(file: &Bytes) -> Self {
        let Ok(elf) = ElfFile64::<LittleEndian>::parse(&**file) else {
            return Self::default();
        };
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

    /// The name of the function that has an address, as the file writes it.
    pub(super) fn at(&self, file: &[u8], address: u64) -> Option<String> {
        let after = self
            .functions
            .partition_point(|function| function.address <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        // What has no size reaches to the next.
        if function.size != 0 && address - function.address >= function.size {
            return None;
        }
        let (start, length) = function.name;
        let name = file.get(start..start.checked_add(length)?)?;
        // Names with versions are those of a table that was copied from another.
        let name = name.split(|&byte| byte == b'@').next()?;
        Some(String::from_utf8_lossy(name).into_owned())
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
