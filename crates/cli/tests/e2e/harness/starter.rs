//! Reads a starter process as a debugger would: symbols from the file, values from the memory of the process.

use std::{collections::BTreeMap, fs, os::unix::fs::FileExt, path::Path};

/// A symbol table of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolTable {
    /// The table for the dynamic linker, which `strip` keeps.
    Dynamic,
    /// The full table, which `strip` removes.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolKind {
    Object,
    Function,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) kind: SymbolKind,
    pub(crate) size: u64,
    /// The address: relative to the load address, or absolute.
    value: u64,
}

/// A 64-bit little-endian executable.
#[derive(Debug)]
pub(crate) struct Elf {
    bytes: Vec<u8>,
}

/// Constants of the format, see elf(5).
mod elf {
    pub(super) const SYMTAB: u64 = 2;
    pub(super) const DYNSYM: u64 = 11;
    pub(super) const DYN: u64 = 3;
    pub(super) const SYMBOL_SIZE: usize = 24;
}

impl Elf {
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        assert!(
            bytes.starts_with(b"\x7fELF\x02\x01"),
            "{}: 64 bits, little-endian",
            path.display()
        );
        Self { bytes }
    }

    fn number(&self, at: usize, size: usize) -> u64 {
        let bytes = &self.bytes[at..at + size];
        bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    fn offset(&self, at: usize) -> usize {
        usize::try_from(self.number(at, 8)).unwrap()
    }

    /// Returns true if addresses are relative to the load address.
    fn is_relocated(&self) -> bool {
        self.number(16, 2) == elf::DYN
    }

    /// Returns the offsets of the section headers.
    fn sections(&self) -> Vec<usize> {
        let first = self.offset(40);
        let count = usize::try_from(self.number(60, 2)).unwrap();
        (0..count).map(|index| first + 64 * index).collect()
    }

    /// Returns the defined symbols of a table; empty if the table does not exist.
    pub(crate) fn symbols(&self, table: SymbolTable) -> BTreeMap<String, Symbol> {
        let wanted = match table {
            SymbolTable::Dynamic => elf::DYNSYM,
            SymbolTable::Full => elf::SYMTAB,
        };
        let sections = self.sections();
        let mut found = BTreeMap::new();
        for section in &sections {
            if self.number(section + 4, 4) != wanted {
                continue;
            }
            let names = sections[usize::try_from(self.number(section + 40, 4)).unwrap()];
            let names = self.offset(names + 24);
            let (start, size) = (self.offset(section + 24), self.offset(section + 32));
            for at in (start..start + size).step_by(elf::SYMBOL_SIZE) {
                let defined = self.number(at + 6, 2) != 0;
                let name = names + usize::try_from(self.number(at, 4)).unwrap();
                let name = self.bytes[name..].split(|byte| *byte == 0).next().unwrap();
                let symbol = Symbol {
                    kind: match self.number(at + 4, 1) & 15 {
                        1 => SymbolKind::Object,
                        2 => SymbolKind::Function,
                        _ => SymbolKind::Other,
                    },
                    value: self.number(at + 8, 8),
                    size: self.number(at + 16, 8),
                };
                if defined {
                    found.insert(String::from_utf8_lossy(name).into_owned(), symbol);
                }
            }
        }
        found
    }
}

/// A row of the proc table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) host: String,
    pub(crate) executable: String,
    pub(crate) pid: i32,
}

/// A running starter, read through `/proc/PID/mem`. It is neither stopped nor traced.
#[derive(Debug)]
pub(crate) struct Starter {
    memory: fs::File,
    symbols: BTreeMap<String, Symbol>,
    base: u64,
}

impl Starter {
    /// Opens a process. Returns `None` if it does not exist, or has not yet executed its program.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let elf = Elf::read(&path);
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        let path = path.to_str()?;
        let first = maps.lines().find(|line| line.ends_with(path))?;
        let base = u64::from_str_radix(first.split_once('-')?.0, 16).ok()?;
        let symbols = elf.symbols(SymbolTable::Dynamic);
        // It may have executed another program first.
        symbols.get("MPIR_proctable")?;
        Some(Self {
            memory: fs::File::options()
                .read(true)
                .write(true)
                .open(format!("/proc/{pid}/mem"))
                .ok()?,
            symbols,
            base: if elf.is_relocated() { base } else { 0 },
        })
    }

    fn bytes<const COUNT: usize>(&self, at: u64) -> [u8; COUNT] {
        let mut bytes = [0; COUNT];
        self.memory
            .read_exact_at(&mut bytes, at)
            .unwrap_or_else(|error| panic!("{COUNT} bytes at {at:#x}: {error}"));
        bytes
    }

    fn address(&self, name: &str, size: u64) -> u64 {
        let symbol = self.symbols.get(name);
        let symbol = symbol.unwrap_or_else(|| panic!("there is no symbol {name}"));
        assert_eq!(symbol.size, size, "{name}");
        self.base + symbol.value
    }

    /// Returns the value of a C `int`.
    pub(crate) fn int(&self, name: &str) -> i32 {
        i32::from_le_bytes(self.bytes(self.address(name, 4)))
    }

    /// Sets a C `int`, as a debugger does.
    pub(crate) fn set(&self, name: &str, value: i32) {
        let at = self.address(name, 4);
        self.memory.write_all_at(&value.to_le_bytes(), at).unwrap();
    }

    /// Returns the text that a `char *` points to. `None` for a null pointer.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let pointer = u64::from_le_bytes(self.bytes(self.address(name, 8)));
        (pointer != 0).then(|| self.string(pointer))
    }

    fn string(&self, at: u64) -> String {
        let bytes = (at..).map(|at| self.bytes::<1>(at)[0]);
        let bytes = bytes.take_while(|byte| *byte != 0).collect();
        String::from_utf8(bytes).unwrap()
    }

    pub(crate) fn table(&self) -> Vec<Row> {
        let size = u64::try_from(self.int("MPIR_proctable_size")).unwrap();
        let table = u64::from_le_bytes(self.bytes(self.address("MPIR_proctable", 8)));
        let row = |at: u64| Row {
            host: self.string(u64::from_le_bytes(self.bytes(at))),
            executable: self.string(u64::from_le_bytes(self.bytes(at + 8))),
            pid: i32::from_le_bytes(self.bytes(at + 16)),
        };
        (0..size).map(|index| row(table + 24 * index)).collect()
    }
}
