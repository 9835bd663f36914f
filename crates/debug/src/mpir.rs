//! The reader's side of MPIR: finds the symbols of the interface in a *starter*, a process that starts ranks, and reads its
//! proc table and variables. The starter need not be stopped.
//!
//! [`Finder`] searches the files that a process has mapped, with [`Located`] as the result: the addresses of the symbols in its
//! memory. [`Reader`] reads what is there. The symbols may be in the program (srun, `rally`) or in a library of it (Open MPI 4).
//! A variable of a library that the program refers to can have been moved into the program by the linker (a copy relocation), so
//! the program's own symbols come first, as for the dynamic linker.
//!
//! `MPIR_proctable` points to `MPIR_proctable_size` rows of 24 bytes: a pointer to the host's name, a pointer to the program's
//! path, the pid in 4 bytes, and 4 bytes of padding. That is the layout on 64-bit processors. It is fixed here because launchers
//! are shipped without the debug information that would describe it. The size of each variable is taken from its symbol. A
//! starter with 32 bits has no symbols for us: [`Image`] does not read its files.

pub mod check;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    image::{Files, Image},
    maps::{FileId, Mapping},
    memory::Memory,
};

const ROW: usize = 24;
const PID_AT: usize = 16;
/// Maximum number of rows; a larger table is rejected as broken.
const MAX_ROWS: usize = crate::target::MAX_RANKS;

/// Maximum total bytes of host names and program paths, enough for the longest table with long paths; a table with more is
/// rejected as broken.
const MAX_TEXTS: usize = 256 << 20;

/// Maximum bytes of an array of characters; a longer one is read no further. Launchers have arrays of 256 to 4,096 bytes.
const MAX_ARRAY: u64 = 64 << 10;

/// The name of the type of a row, which the debug information of a starter describes.
const ROW_TYPE: &str = "MPIR_PROCDESC";

/// Declares the symbols, with their names and their number.
macro_rules! symbols {
    ($($(#[$doc:meta])* $symbol:ident $name:literal)*) => {
        /// A symbol of the interface, or one that launchers have beside it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Symbol {
            $($(#[$doc])* $symbol,)*
        }

        impl Symbol {
            /// All symbols.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$symbol),*];

            /// Returns the name in the symbol table.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$symbol => $name,)*
                }
            }
        }
    };
}

symbols! {
    /// Pointer to the rows.
    Proctable "MPIR_proctable"
    /// Number of rows.
    ProctableSize "MPIR_proctable_size"
    /// Set by a debugger.
    BeingDebugged "MPIR_being_debugged"
    /// What the call of the breakpoint means.
    DebugState "MPIR_debug_state"
    /// Pointer to the reason for an abort.
    DebugAbortString "MPIR_debug_abort_string"
    /// The function on which a debugger puts its breakpoint.
    Breakpoint "MPIR_Breakpoint"
    /// The process is not a rank.
    IAmStarter "MPIR_i_am_starter"
    /// Ranks are stopped before `main`.
    AcquiredPreMain "MPIR_acquired_pre_main"
    /// A debugger should show `main`.
    ForceToMain "MPIR_force_to_main"
    /// A debugger may attach to some ranks only.
    PartialAttachOk "MPIR_partial_attach_ok"
    /// The job is not MPI.
    IgnoreQueues "MPIR_ignore_queues"
    /// Array with the path of the debugger's daemon.
    ExecutablePath "MPIR_executable_path"
    /// Array with the arguments of that daemon.
    ServerArguments "MPIR_server_arguments"
    /// Array with the path of a FIFO.
    AttachFifo "MPIR_attach_fifo"
    /// In ranks: set by a debugger to let them go on.
    DebugGate "MPIR_debug_gate"
    /// Pointer to the launcher's name of the job.
    JobId "totalview_jobid"
    /// Pointer to the number of its step.
    StepId "totalview_stepid"
}

/// A symbol in the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its address.
    pub address: u64,
    /// Its size in bytes, as the symbol table gives it; 0 if that gives none.
    pub size: u64,
}

/// Whether the debug information of the file that has the symbols describes the type of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowType {
    /// It contains the type's name.
    Described,
    /// There is no debug information, or it does not contain the name.
    Absent,
}

/// Where a process has the symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    places: [Option<Place>; Symbol::ALL.len()],
    /// The path of the file that has the proc table, and its identity.
    path: String,
    id: Option<FileId>,
}

impl Located {
    /// Returns the place of a symbol; `None` if the process does not have it.
    #[must_use]
    pub const fn place(&self, symbol: Symbol) -> Option<Place> {
        self.places[symbol as usize]
    }

    /// Returns the name of the file that has the proc table, without directories.
    #[must_use]
    pub fn file(&self) -> &str {
        file_name(&self.path)
    }

    /// Returns whether the type of the rows is described. This may read all debug information of the file.
    pub fn row_type(&self, mappings: &[Mapping], files: &dyn Files) -> RowType {
        let mapping = mappings.iter().find(|mapping| mapping.file == self.id);
        let image = mapping.and_then(|mapping| {
            let bytes = files.open_mapped(mapping)?;
            Image::parse(&self.path, bytes).ok()
        });
        if image.is_some_and(|image| image.describes(ROW_TYPE, &self.path, files)) {
            RowType::Described
        } else {
            RowType::Absent
        }
    }
}

/// A proc table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The rows; the index is the rank.
    pub rows: Vec<Row>,
    /// The number of texts to which the rows point. Equal texts at several addresses count several times.
    pub texts: usize,
}

/// A row of a proc table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The name of the host; empty if it cannot be read.
    pub host: String,
    /// The path of the program; empty if it cannot be read.
    pub program: String,
    /// The pid on that host.
    pub pid: i32,
}

/// Why no table was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The process does not have the symbols.
    NoSymbols,
    /// The table has no rows; `state` is `MPIR_debug_state`.
    Empty {
        /// The state.
        state: i32,
    },
    /// The size is implausible, or the pointers lead to unmapped memory.
    Broken,
    /// The mappings or the variables cannot be read.
    Unreadable,
}

/// The symbols of a file: address, as in the file, and size of each.
type OfFile = [Option<(u64, u64)>; Symbol::ALL.len()];

/// Finds symbols, and remembers what each file defines. `None` in `files` is a file without them.
#[derive(Debug, Default)]
pub struct Finder {
    files: RefCell<BTreeMap<FileId, Option<OfFile>>>,
}

impl Finder {
    /// Returns where a process with these mappings and files has the symbols; `None` if it has no proc table.
    pub fn locate(&self, mappings: &[Mapping], files: &dyn Files) -> Option<Located> {
        let mut seen = BTreeSet::new();
        // The load address of a file follows from the mapping of its code. The program is mapped below its libraries.
        let parts: Vec<(OfFile, u64, &Mapping)> = mappings
            .iter()
            .filter(|mapping| mapping.executable)
            .filter_map(|mapping| {
                let file = mapping.file.filter(|file| seen.insert(*file))?;
                let (symbols, bias) = self.symbols(mapping, file, files)?;
                Some((symbols, bias, mapping))
            })
            .collect();
        let has_table = |(found, ..): &&(OfFile, u64, &Mapping)| {
            let has = |symbol: Symbol| found[symbol as usize].is_some();
            has(Symbol::Proctable) && has(Symbol::ProctableSize)
        };
        let (.., mapping) = parts.iter().find(has_table)?;
        let mut places = [None; Symbol::ALL.len()];
        for (symbols, bias, _) in &parts {
            for (place, symbol) in places.iter_mut().zip(symbols) {
                let found = symbol.map(|(address, size)| Place {
                    address: address.wrapping_add(*bias),
                    size,
                });
                *place = place.or(found);
            }
        }
        Some(Located {
            places,
            path: mapping.path.clone(),
            id: mapping.file,
        })
    }

    fn symbols(&self, mapping: &Mapping, file: FileId, files: &dyn Files) -> Option<(OfFile, u64)> {
        // Forks of a launcher map the same files, and searching the symbols of a large program takes time.
        let known = self.files.borrow().get(&file).copied();
        if matches!(known, Some(None)) {
            return None;
        }
        let image = files
            .open_mapped(mapping)
            .and_then(|bytes| Image::parse(&mapping.path, bytes).ok());
        let found = known.unwrap_or_else(|| image.as_ref().and_then(symbols));
        self.files.borrow_mut().insert(file, found);
        let bias = image?.bias(mapping.range.start, mapping.offset)?;
        Some((found?, bias))
    }
}

fn symbols(image: &Image) -> Option<OfFile> {
    // Few files have any: ask for all symbols only of a file that has one of these.
    const TELLING: [Symbol; 4] = [
        Symbol::Proctable,
        Symbol::ProctableSize,
        Symbol::BeingDebugged,
        Symbol::Breakpoint,
    ];
    let telling = image.symbols(TELLING.map(Symbol::name));
    telling
        .iter()
        .any(Option::is_some)
        .then(|| image.symbols(Symbol::ALL.map(Symbol::name)))
}

/// Returns the part of a path after the last `/`.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The variables of a starter, read from its memory.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    memory: &'a dyn Memory,
    located: &'a Located,
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("located", self.located)
            .finish_non_exhaustive()
    }
}

impl<'a> Reader<'a> {
    /// Reads these symbols from this memory.
    #[must_use]
    pub fn new(memory: &'a dyn Memory, located: &'a Located) -> Self {
        Self { memory, located }
    }

    /// Returns the value of an integer; `None` if it does not exist or cannot be read.
    #[must_use]
    pub fn int(&self, symbol: Symbol) -> Option<i64> {
        let place = self.located.place(symbol)?;
        match place.size {
            8 => Some(self.memory.word(place.address).ok()?.cast_signed()),
            // Without a size in the symbol, assume the `int` of the interface.
            0 | 4 => {
                let mut bytes = [0; 4];
                self.memory.read(place.address, &mut bytes).ok()?;
                Some(i32::from_le_bytes(bytes).into())
            }
            _ => None,
        }
    }

    /// Returns `MPIR_debug_state`; 0 if it does not exist or cannot be read.
    #[must_use]
    pub fn state(&self) -> i32 {
        let state = self.int(Symbol::DebugState).unwrap_or(0);
        i32::try_from(state).unwrap_or(0)
    }

    /// Returns the text to which a pointer points; `None` if there is none, or it is empty.
    #[must_use]
    pub fn text(&self, symbol: Symbol) -> Option<String> {
        let text = self.text_at(self.pointer(symbol)?)?;
        (!text.is_empty()).then_some(text)
    }

    /// Returns the text in an array of characters; `None` if there is none, or it is empty.
    #[must_use]
    pub fn array(&self, symbol: Symbol) -> Option<String> {
        let place = self.located.place(symbol)?;
        let length = usize::try_from(place.size.min(MAX_ARRAY)).ok()?;
        let bytes = self.memory.bytes(place.address, length).ok()?;
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Returns the launcher's name for the job, or `job.step`; `None` if it has none.
    #[must_use]
    pub fn job(&self) -> Option<String> {
        match (self.text(Symbol::JobId), self.text(Symbol::StepId)) {
            (Some(job), Some(step)) => Some(format!("{job}.{step}")),
            (job, _) => job,
        }
    }

    /// Returns the proc table.
    ///
    /// # Errors
    /// See [`Miss`].
    pub fn table(&self) -> Result<Table, Miss> {
        let size = self.int(Symbol::ProctableSize).ok_or(Miss::Unreadable)?;
        let table = self.pointer(Symbol::Proctable).ok_or(Miss::Unreadable)?;
        if size == 0 || table == 0 {
            let state = self.state();
            return Err(Miss::Empty { state });
        }
        let size = usize::try_from(size).map_err(|_| Miss::Broken)?;
        if size > MAX_ROWS {
            return Err(Miss::Broken);
        }
        let bytes = self.memory.bytes(table, size * ROW);
        let bytes = bytes.map_err(|_| Miss::Broken)?;
        // Many rows of a launcher point to the same string.
        let mut texts: BTreeMap<u64, String> = BTreeMap::new();
        let mut named = |address: u64| -> String {
            texts
                .entry(address)
                .or_insert_with(|| self.text_at(address).unwrap_or_default())
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
        Ok(Table {
            rows,
            texts: texts.len(),
        })
    }

    fn pointer(&self, symbol: Symbol) -> Option<u64> {
        let place = self.located.place(symbol)?;
        self.memory.word(place.address).ok()
    }

    fn text_at(&self, address: u64) -> Option<String> {
        let text = self.memory.text(address).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }
}

#[cfg(test)]
mod tests;
