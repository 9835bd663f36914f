//! Starters whose files and memory are made up.

use std::path::Path;

use bytes::Bytes;

use super::*;
use crate::{image::tests::made::Program, memory::Unreadable};

/// The size of each mapping, and the difference between addresses in memory and in the file.
const LENGTH: usize = 0x1000;
const PROGRAM: u64 = 0x10_0000;
const LIBRARY: u64 = 0x7f_0000;

/// Files by the address of their mapping, and memory by its address.
#[derive(Default)]
struct Process {
    files: Vec<(u64, &'static str, Bytes)>,
    memory: Vec<(u64, Vec<u8>)>,
}

impl Process {
    fn map(&mut self, at: u64, path: &'static str, symbols: &[(&str, u64, u64)]) {
        let mut program = Program::stripped(0, LENGTH);
        for (name, address, size) in symbols {
            program.variable(name, *address, *size);
        }
        self.files.push((at, path, program.build()));
    }

    fn put(&mut self, at: u64, bytes: impl Into<Vec<u8>>) {
        self.memory.push((at, bytes.into()));
    }

    fn mappings(&self) -> Vec<Mapping> {
        let mapping = |(at, path, _): &(u64, &str, Bytes)| Mapping {
            range: *at..*at + LENGTH as u64,
            readable: true,
            writable: false,
            executable: true,
            offset: 0,
            file: Some(FileId {
                device: (0, 1),
                inode: *at,
            }),
            path: (*path).to_owned(),
            deleted: false,
        };
        self.files.iter().map(mapping).collect()
    }

    fn locate(&self) -> Option<Located> {
        Finder::default().locate(&self.mappings(), self)
    }
}

impl Files for Process {
    fn open(&self, _: &Path) -> Option<Bytes> {
        None
    }

    fn open_mapped(&self, mapping: &Mapping) -> Option<Bytes> {
        let mut files = self.files.iter();
        let file = files.find(|(at, ..)| *at == mapping.range.start);
        file.map(|(.., bytes)| bytes.clone())
    }
}

impl Memory for Process {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let part = self.memory.iter().find_map(|(at, bytes)| {
            let start = usize::try_from(address.checked_sub(*at)?).ok()?;
            bytes.get(start..).filter(|rest| !rest.is_empty())
        });
        let part = part.ok_or(Unreadable { address })?;
        // What follows is zero.
        let length = part.len().min(buffer.len());
        buffer.fill(0);
        buffer[..length].copy_from_slice(&part[..length]);
        Ok(())
    }
}

#[test]
fn the_symbols_are_found_wherever_they_are() {
    let mut process = Process::default();
    process.map(
        PROGRAM,
        "/usr/bin/orterun",
        &[("MPIR_being_debugged", 0x40, 4)],
    );
    process.map(0x50_0000, "/lib/libc.so.6", &[("malloc", 0x10, 4)]);
    assert_eq!(process.locate(), None);
    process.map(
        LIBRARY,
        "/lib/libopen-rte.so.40",
        &[
            ("MPIR_proctable", 0x10, 8),
            ("MPIR_proctable_size", 0x20, 4),
            ("MPIR_being_debugged", 0x30, 4),
            ("MPIR_attach_fifo", 0x100, 512),
        ],
    );
    let located = process.locate().unwrap();
    assert_eq!(located.file(), "libopen-rte.so.40");
    let place = |symbol| {
        located
            .place(symbol)
            .map(|place| (place.address, place.size))
    };
    assert_eq!(place(Symbol::Proctable), Some((LIBRARY + 0x10, 8)));
    assert_eq!(place(Symbol::AttachFifo), Some((LIBRARY + 0x100, 512)));
    // The program has its own copy of this variable, which the library uses as well.
    assert_eq!(place(Symbol::BeingDebugged), Some((PROGRAM + 0x40, 4)));
    assert_eq!(place(Symbol::Breakpoint), None);
    let row_type = located.row_type(&process.mappings(), &process);
    assert_eq!(row_type, RowType::Absent);
}

#[test]
fn the_type_of_the_rows_is_in_the_debug_information() {
    for (section, contents, expected) in [
        (
            ".debug_str",
            &b"char\0MPIR_PROCDESC\0"[..],
            RowType::Described,
        ),
        (".debug_info", b"\x05MPIR_PROCDESC\0", RowType::Described),
        (".debug_str", b"MPIR_PROCDESCRIPTION\0", RowType::Absent),
        (".comment", b"MPIR_PROCDESC\0", RowType::Absent),
    ] {
        let mut program = Program::new();
        program.variable("MPIR_proctable", 0x10, 8);
        program.variable("MPIR_proctable_size", 0x20, 4);
        program.section(section, contents);
        let mut process = Process::default();
        process
            .files
            .push((PROGRAM, "/usr/bin/srun", program.build()));
        let located = process.locate().unwrap();
        let found = located.row_type(&process.mappings(), &process);
        assert_eq!(found, expected, "{section}");
    }
}

#[test]
fn variables_of_all_kinds_are_read() {
    let mut process = Process::default();
    process.map(
        PROGRAM,
        "/usr/bin/srun",
        &[
            ("MPIR_proctable", 0x10, 8),
            ("MPIR_proctable_size", 0x20, 4),
            ("MPIR_debug_state", 0x28, 4),
            ("MPIR_debug_abort_string", 0x30, 8),
            ("MPIR_attach_fifo", 0x40, 8),
            ("MPIR_being_debugged", 0x50, 2),
            ("totalview_jobid", 0x60, 8),
            ("totalview_stepid", 0x68, 8),
        ],
    );
    let (table, host, path) = (0x20_0000_u64, 0x30_0000_u64, 0x30_1000_u64);
    process.put(PROGRAM + 0x10, table.to_le_bytes());
    process.put(PROGRAM + 0x20, 2_i32.to_le_bytes());
    process.put(PROGRAM + 0x28, 2_i32.to_le_bytes());
    process.put(PROGRAM + 0x30, (path + 8).to_le_bytes());
    // An array that is full has no zero byte.
    process.put(PROGRAM + 0x40, *b"/tmp/abc");
    process.put(PROGRAM + 0x60, (host + 8).to_le_bytes());
    process.put(PROGRAM + 0x68, (host + 16).to_le_bytes());
    process.put(host, *b"n1\0\0\0\0\0\0rally\0\0\0\x30\0");
    process.put(path, *b"/bin/a\0\0it failed\0");
    let row = |pid: u64| [host.to_le_bytes(), path.to_le_bytes(), pid.to_le_bytes()].concat();
    // The padding after a pid can contain anything.
    process.put(table, [row(7), row(8 | 0xdead_beef << 32)].concat());
    let located = process.locate().unwrap();
    let reader = Reader::new(&process, &located);
    let rows = [7, 8].map(|pid| Row {
        host: "n1".into(),
        program: "/bin/a".into(),
        pid,
    });
    let expected = Table {
        rows: rows.into(),
        texts: 2,
    };
    assert_eq!(reader.table(), Ok(expected));
    assert_eq!(reader.state(), 2);
    assert_eq!(
        reader.text(Symbol::DebugAbortString).as_deref(),
        Some("it failed")
    );
    assert_eq!(
        reader.array(Symbol::AttachFifo).as_deref(),
        Some("/tmp/abc")
    );
    assert_eq!(reader.job().as_deref(), Some("rally.0"));
    // No integer has two bytes; and these do not exist.
    assert_eq!(reader.int(Symbol::BeingDebugged), None);
    assert_eq!(reader.array(Symbol::ExecutablePath), None);
    assert_eq!(reader.text(Symbol::ExecutablePath), None);
}
