//! Builds programs and libraries for tests.

use bytes::Bytes;

/// The size of a program's code in bytes.
pub(crate) const LENGTH: usize = 0x8_0000;
/// Sizes in bytes: of a file header, a section header, a program header and a symbol.
const HEADER: usize = 64;
const SECTION: usize = 64;
const SEGMENT: usize = 56;
const SYMBOL: usize = 24;
/// Symbol types: `STT_OBJECT` and `STT_FUNC`.
const OBJECT: u8 = 1;
const FUNCTION: u8 = 2;
/// Section types: `SHT_PROGBITS`, `SHT_SYMTAB`, `SHT_STRTAB` and `SHT_DYNSYM`.
const CONTENTS: u8 = 1;
const SYMBOLS: u8 = 2;
const NAMES: u8 = 3;
const DYNAMIC_SYMBOLS: u8 = 11;
/// The index of the section with the names. Before it are the null section and the symbols.
const NAMES_PLACE: u8 = 2;

/// A file with one segment and one symbol table.
pub(crate) struct Program {
    file: Vec<u8>,
    /// The address of the first byte.
    first: u64,
    /// The type of the section with the symbols.
    table: u8,
    symbols: Vec<Symbol>,
    /// Sections that were added: name and contents.
    sections: Vec<(String, Vec<u8>)>,
    /// The number of null program headers before that of the segment.
    empty_headers: usize,
}

struct Symbol {
    name: String,
    kind: u8,
    at: u64,
    size: u64,
}

/// A section to be written.
struct Section {
    name: usize,
    kind: u8,
    link: u8,
    at: usize,
    size: usize,
    entry: usize,
}

impl Program {
    /// Returns a program whose addresses equal the offsets in the file.
    pub(crate) fn new() -> Self {
        Self {
            file: vec![0x90; LENGTH],
            first: 0,
            table: SYMBOLS,
            symbols: Vec::new(),
            sections: Vec::new(),
            empty_headers: 0,
        }
    }

    /// Returns a stripped library, which has only dynamic symbols. Its addresses begin at `first`.
    pub(crate) fn stripped(first: u64, length: usize) -> Self {
        Self {
            file: vec![0; length],
            first,
            table: DYNAMIC_SYMBOLS,
            ..Self::new()
        }
    }

    pub(crate) fn function(&mut self, name: &str, at: u64, size: u64) {
        self.symbol(name, FUNCTION, at, size);
    }

    pub(crate) fn variable(&mut self, name: &str, at: u64, size: u64) {
        self.symbol(name, OBJECT, at, size);
    }

    fn symbol(&mut self, name: &str, kind: u8, at: u64, size: u64) {
        self.symbols.push(Symbol {
            name: name.to_owned(),
            kind,
            at,
            size,
        });
    }

    pub(crate) fn section(&mut self, name: &str, contents: &[u8]) {
        self.sections.push((name.to_owned(), contents.to_vec()));
    }

    pub(crate) fn empty_headers(&mut self, count: usize) {
        self.empty_headers = count;
    }

    pub(crate) fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = usize::try_from(at).unwrap();
        self.file[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes an instruction that consists of these bytes and of the distance from its end to `to`.
    pub(crate) fn jump(&mut self, at: u64, code: &[u8], to: u64) {
        let end = at + code.len() as u64 + 4;
        let distance = i32::try_from(to.cast_signed() - end.cast_signed()).unwrap();
        self.put(at, code);
        self.put(end - 4, &distance.to_le_bytes());
    }

    /// Builds the file. After the code come symbols, names, other sections, section headers and program headers.
    pub(crate) fn build(mut self) -> Bytes {
        let length = self.file.len();
        let (mut names, mut table) = (vec![0], vec![0; SYMBOL]);
        let mut named = |name: &str| {
            let at = names.len();
            names.extend(name.as_bytes());
            names.push(0);
            at
        };
        for symbol in &self.symbols {
            let name = named(&symbol.name);
            table.extend(u32::try_from(name).unwrap().to_le_bytes());
            // A global symbol in section 1.
            table.extend([0x10 | symbol.kind, 0, 1, 0]);
            table.extend((self.first + symbol.at).to_le_bytes());
            table.extend(symbol.size.to_le_bytes());
        }
        let added: Vec<(usize, Vec<u8>)> = self
            .sections
            .iter()
            .map(|(name, contents)| (named(name), contents.clone()))
            .collect();
        let mut sections = Vec::new();
        let mut add = |(name, kind, link, entry), contents: &[u8]| {
            sections.push(Section {
                name,
                kind,
                link,
                at: self.file.len(),
                size: contents.len(),
                entry,
            });
            self.file.extend(contents);
        };
        add((0, self.table, NAMES_PLACE, SYMBOL), &table);
        add((0, NAMES, 0, 0), &names);
        for (name, contents) in &added {
            add((*name, CONTENTS, 0, 0), contents);
        }
        self.headers(length, &sections);
        self.file.into()
    }

    fn headers(&mut self, length: usize, sections: &[Section]) {
        let word = |number: usize| (number as u64).to_le_bytes();
        let half = |number: usize| u16::try_from(number).unwrap().to_le_bytes();
        let (all_sections, all_segments) = (1 + sections.len(), self.empty_headers + 1);
        let sections_at = self.file.len().next_multiple_of(8);
        let segments_at = sections_at + all_sections * SECTION;
        self.file.resize(segments_at + all_segments * SEGMENT, 0);
        let mut put =
            |at: usize, bytes: &[u8]| self.file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &[0; HEADER]);
        put(0, b"\x7fELF\x02\x01\x01");
        // `ET_DYN`, `EM_X86_64`, version 1; then the offsets, sizes and numbers of the headers.
        put(16, &[3, 0, 62, 0, 1, 0, 0, 0]);
        put(32, &word(segments_at));
        put(40, &word(sections_at));
        put(52, &half(HEADER));
        put(54, &half(SEGMENT));
        put(56, &half(all_segments));
        put(58, &half(SECTION));
        put(60, &half(all_sections));
        put(62, &[NAMES_PLACE]);
        for (place, section) in (1..).zip(sections) {
            let header = sections_at + place * SECTION;
            put(header, &word(section.name)[..4]);
            put(header + 4, &[section.kind]);
            put(header + 24, &word(section.at));
            put(header + 32, &word(section.size));
            put(header + 40, &[section.link]);
            put(header + 56, &word(section.entry));
        }
        // `PT_LOAD`, readable and executable: everything before the section headers.
        let header = segments_at + self.empty_headers * SEGMENT;
        put(header, &[1, 0, 0, 0, 5, 0, 0, 0]);
        put(header + 16, &self.first.to_le_bytes());
        put(header + 24, &self.first.to_le_bytes());
        put(header + 32, &word(length));
        put(header + 40, &word(length));
    }
}
