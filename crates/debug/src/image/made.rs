//! Programs made by hand, for tests.

use bytes::Bytes;

/// Bytes of the code of a program.
pub(crate) const LENGTH: usize = 0x8_0000;

/// A program with one segment, in which addresses are places in the file, and a table of functions: name, beginning and size.
pub(crate) struct Program {
    file: Vec<u8>,
    functions: Vec<(String, u64, u64)>,
}

impl Program {
    pub(crate) fn new() -> Self {
        Self {
            file: vec![0x90; LENGTH],
            functions: Vec::new(),
        }
    }

    pub(crate) fn function(&mut self, name: &str, at: u64, size: u64) {
        self.functions.push((name.to_owned(), at, size));
    }

    pub(crate) fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = usize::try_from(at).unwrap();
        self.file[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// An instruction of these bytes, and the distance from its end to `to`.
    pub(crate) fn jump(&mut self, at: u64, code: &[u8], to: u64) {
        let end = at + code.len() as u64 + 4;
        let distance = i32::try_from(to.cast_signed() - end.cast_signed()).unwrap();
        self.put(at, code);
        self.put(end - 4, &distance.to_le_bytes());
    }

    pub(crate) fn build(mut self) -> Bytes {
        let (mut names, mut table) = (vec![0], vec![0; 24]);
        for (name, at, size) in &self.functions {
            table.extend(u32::try_from(names.len()).unwrap().to_le_bytes());
            // A global function, in a section that is defined.
            table.extend([0x12, 0, 1, 0]);
            table.extend(at.to_le_bytes());
            table.extend(size.to_le_bytes());
            names.extend(name.as_bytes());
            names.push(0);
        }
        let symbols_at = LENGTH as u64;
        let names_at = symbols_at + table.len() as u64;
        let sections_at = (names_at + names.len() as u64).next_multiple_of(8);
        self.file
            .resize(usize::try_from(sections_at).unwrap() + 3 * 64, 0);
        self.put(0, &[0; 0x200]);
        self.put(0, b"\x7fELF\x02\x01\x01");
        // ET_DYN, EM_X86_64, version 1; where the headers are, and how large and how many they are.
        self.put(16, &[3, 0, 62, 0, 1, 0, 0, 0]);
        self.put(32, &64_u64.to_le_bytes());
        self.put(40, &sections_at.to_le_bytes());
        self.put(52, &[64, 0, 56, 0, 1, 0, 64, 0, 3, 0, 2, 0]);
        // PT_LOAD, readable and executable, of the whole file.
        self.put(64, &[1, 0, 0, 0, 5, 0, 0, 0]);
        self.put(96, &symbols_at.to_le_bytes());
        self.put(104, &symbols_at.to_le_bytes());
        self.put(symbols_at, &table);
        self.put(names_at, &names);
        // SHT_SYMTAB, whose names are in the second section, and SHT_STRTAB.
        for (section, kind, link, at, size, entry) in [
            (1, 2, 2_u8, symbols_at, table.len(), 24_u64),
            (2, 3, 0, names_at, names.len(), 0),
        ] {
            let header = sections_at + section * 64;
            self.put(header + 4, &[kind]);
            self.put(header + 24, &at.to_le_bytes());
            self.put(header + 32, &(size as u64).to_le_bytes());
            self.put(header + 40, &[link]);
            self.put(header + 56, &entry.to_le_bytes());
        }
        self.file.into()
    }
}
