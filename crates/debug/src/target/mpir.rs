//! Reads the table for debuggers (MPIR) of a launcher that continues to run meanwhile.
//!
//! `MPIR_proctable` points to `MPIR_proctable_size` rows of 24 bytes: a pointer to the host's name, a pointer to the program's
//! path, the pid in 4 bytes, and 4 bytes of padding. That is the layout that the "MPIR Process Acquisition Interface" has on
//! 64-bit processors. It is fixed here because launchers are shipped without the debug information that would describe it. The
//! symbols may be in any library of the launcher. The size of each variable is taken from its symbol.

use std::{cell::RefCell, collections::BTreeMap};

use super::System;
use crate::{
    image::Image,
    maps::{FileId, Mapping},
    memory::Memory,
};

const ROW: usize = 24;
const PID_AT: usize = 16;
/// Maximum number of rows; a larger table is rejected as broken.
const MAX_ROWS: usize = super::MAX_RANKS;

/// Maximum total bytes of host names and program paths, enough for the longest table with long paths; a table with more is
/// rejected as broken.
const MAX_TEXTS: usize = 256 << 20;

/// The table of a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) rows: Vec<Row>,
    /// The file that contains the symbols.
    pub(super) file: String,
    /// The launcher's name for the job, or `job.step`; `None` if it has none.
    pub(super) job: Option<String>,
}

/// A row of the table; its index is the rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) host: String,
    pub(super) program: String,
    pub(super) pid: i32,
}

/// Why no table was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// The process does not have the symbols.
    NoSymbols,
    /// The table has no rows; `state` is `MPIR_debug_state`.
    Empty { state: i32 },
    /// The size is implausible, or the pointers lead to unmapped memory.
    Broken,
    /// The mappings or the variables cannot be read.
    Unreadable,
}

/// The variables in a file: address and size of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Symbols {
    table: (u64, u64),
    size: (u64, u64),
    state: Option<(u64, u64)>,
    job: Option<(u64, u64)>,
    step: Option<(u64, u64)>,
}

/// Reads tables, and remembers where each file has its symbols. `None` in `files` is a file without them.
#[derive(Debug, Default)]
pub(super) struct Tables {
    files: RefCell<BTreeMap<FileId, Option<Symbols>>>,
}

impl Tables {
    /// Reads the table of a process.
    pub(super) fn read(&self, system: &dyn System, pid: i32) -> Result<Table, Miss> {
        let mappings = system.mappings(pid).ok_or(Miss::Unreadable)?;
        let memory = system.memory(pid);
        let mut seen = std::collections::BTreeSet::new();
        let mut miss = Miss::NoSymbols;
        // The load address of a file follows from the mapping of its code.
        for mapping in mappings.iter().filter(|mapping| mapping.executable) {
            let Some(file) = mapping.file.filter(|file| seen.insert(*file)) else {
                continue;
            };
            let Some((symbols, bias)) = self.symbols(system, pid, mapping, file) else {
                continue;
            };
            match read(&*memory, &symbols, bias) {
                Ok((rows, job)) => {
                    return Ok(Table {
                        rows,
                        file: super::names::file_name(&mapping.path).to_owned(),
                        job,
                    });
                }
                Err(why) => miss = why,
            }
        }
        Err(miss)
    }

    fn symbols(
        &self,
        system: &dyn System,
        pid: i32,
        mapping: &Mapping,
        file: FileId,
    ) -> Option<(Symbols, u64)> {
        let known = self.files.borrow().get(&file).copied();
        if known == Some(None) {
            return None;
        }
        let image = system
            .files(pid)
            .open_mapped(mapping)
            .and_then(|bytes| Image::parse(&mapping.path, bytes).ok());
        // Forks of a launcher map the same files, and searching the symbols of a large program takes time.
        let symbols = known.unwrap_or_else(|| image.as_ref().and_then(symbols));
        self.files.borrow_mut().insert(file, symbols);
        let bias = image?.bias(mapping.range.start, mapping.offset)?;
        Some((symbols?, bias))
    }
}

fn symbols(image: &Image) -> Option<Symbols> {
    let [table, size, state, job, step] = image.symbols([
        "MPIR_proctable",
        "MPIR_proctable_size",
        "MPIR_debug_state",
        "totalview_jobid",
        "totalview_stepid",
    ]);
    Some(Symbols {
        table: table?,
        size: size?,
        state,
        job,
        step,
    })
}

fn read(
    memory: &dyn Memory,
    symbols: &Symbols,
    bias: u64,
) -> Result<(Vec<Row>, Option<String>), Miss> {
    let number = |(address, size): (u64, u64)| -> Option<i64> {
        let address = address.wrapping_add(bias);
        match size {
            8 => Some(memory.word(address).ok()?.cast_signed()),
            // Without a size in the symbol, assume the `int` of the interface.
            0 | 4 => {
                let mut bytes = [0; 4];
                memory.read(address, &mut bytes).ok()?;
                Some(i32::from_le_bytes(bytes).into())
            }
            _ => None,
        }
    };
    let pointer = |(address, _): (u64, u64)| memory.word(address.wrapping_add(bias)).ok();
    let text = |address: u64| -> Option<String> {
        let text = memory.text(address).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    let state = symbols.state.and_then(number).unwrap_or(0);
    let state = i32::try_from(state).unwrap_or(0);
    let size = number(symbols.size).ok_or(Miss::Unreadable)?;
    let table = pointer(symbols.table).ok_or(Miss::Unreadable)?;
    if size == 0 || table == 0 {
        return Err(Miss::Empty { state });
    }
    let size = usize::try_from(size).map_err(|_| Miss::Broken)?;
    if size > MAX_ROWS {
        return Err(Miss::Broken);
    }
    let bytes = memory.bytes(table, size * ROW).map_err(|_| Miss::Broken)?;
    // Many rows of a launcher point to the same string.
    let mut texts: BTreeMap<u64, String> = BTreeMap::new();
    let mut named = |address: u64| -> String {
        texts
            .entry(address)
            .or_insert_with(|| text(address).unwrap_or_default())
            .clone()
    };
    let mut left = MAX_TEXTS;
    let mut rows = Vec::new();
    let (parts, _) = bytes.as_chunks::<ROW>();
    for part in parts {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&part[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let mut pid = [0; 4];
        pid.copy_from_slice(&part[PID_AT..PID_AT + 4]);
        let row = Row {
            host: named(word(0)),
            program: named(word(8)),
            pid: i32::from_le_bytes(pid),
        };
        // Many rows can all point to one long string.
        left = left
            .checked_sub(row.host.len() + row.program.len())
            .ok_or(Miss::Broken)?;
        rows.push(row);
    }
    let said = |symbol: Option<(u64, u64)>| -> Option<String> {
        let text = text(pointer(symbol?)?)?;
        (!text.is_empty()).then_some(text)
    };
    let job = match (said(symbols.job), said(symbols.step)) {
        (Some(job), Some(step)) => Some(format!("{job}.{step}")),
        (job, _) => job,
    };
    Ok((rows, job))
}
