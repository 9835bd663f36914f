//! What a debugger sees of a starter and of its ranks.

use std::{collections::BTreeMap, time::Duration};

use base::ExitStatus;

use crate::{
    maps::Mapping,
    mpir::{Located, Miss, Reader, RowType, Symbol, Table, file_name},
};

/// What a program that the launcher executes has of the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolFacts {
    /// The name of the file that has the table.
    pub file: String,
    /// The symbols, each with its size.
    pub sizes: BTreeMap<Symbol, u64>,
    /// Whether the type of the rows is described.
    pub row_type: RowType,
    /// The value of `MPIR_being_debugged`.
    pub being_debugged: i64,
    /// The path of the attach FIFO; `None` if there is none.
    pub fifo: Option<String>,
}

impl SymbolFacts {
    /// Reads them from a starter.
    #[must_use]
    pub fn read(located: &Located, reader: &Reader<'_>, row_type: RowType) -> Self {
        let size = |symbol: Symbol| Some((symbol, located.place(symbol)?.size));
        Self {
            file: located.file().to_owned(),
            sizes: Symbol::ALL.into_iter().filter_map(size).collect(),
            row_type,
            being_debugged: reader.int(Symbol::BeingDebugged).unwrap_or(0),
            fifo: reader.array(Symbol::AttachFifo),
        }
    }

    pub(super) fn has(&self, symbol: Symbol) -> bool {
        self.sizes.contains_key(&symbol)
    }
}

/// What a starter says at `MPIR_Breakpoint`, or at any other moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// `MPIR_debug_state`.
    pub state: i32,
    /// The proc table.
    pub table: Result<Table, Miss>,
    /// `MPIR_debug_abort_string`; `None` if it is absent or empty.
    pub reason: Option<String>,
}

impl Said {
    /// Reads it from a starter.
    #[must_use]
    pub fn read(reader: &Reader<'_>) -> Self {
        Self {
            state: reader.state(),
            table: reader.table(),
            reason: reader.text(Symbol::DebugAbortString),
        }
    }
}

/// The process of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankFacts {
    /// On another node, where it is not looked at.
    Elsewhere,
    /// On this node there is no such process.
    Gone,
    /// On this node.
    Here(Here),
}

/// A process of a row on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Here {
    /// The state letter of `/proc`: R, S, D, T or t.
    pub state: char,
    /// The CPU time that it has used.
    pub cpu: Duration,
    /// The path of the program that it executes; empty if that cannot be read.
    pub program: String,
    /// Whether that is the program of the row; `None` if it cannot be found out.
    pub is_named: Option<bool>,
    /// The rank that its environment says; `None` if it says none.
    pub rank: Option<u32>,
    /// How far the loading of its libraries is.
    pub linked: Linked,
}

/// How far the dynamic linker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    /// The mappings cannot be read, or the program needs no libraries.
    Unknown,
    /// No library is mapped but the linker itself: the program has executed nothing of its own.
    NotYet,
    /// Libraries are mapped. None of them is one of MPI.
    Loaded,
    /// Libraries are mapped, one of MPI or PMIx among them.
    WithMpi,
}

impl Linked {
    /// Returns it for a process with these mappings, which executes this program.
    #[must_use]
    pub fn of(mappings: &[Mapping], program: &str) -> Self {
        let mut libraries = mappings
            .iter()
            .filter(|mapping| mapping.executable && mapping.file.is_some())
            .map(|mapping| mapping.path.as_str())
            .filter(|path| *path != program)
            .map(file_name)
            .peekable();
        if libraries.peek().is_none() {
            return Self::Unknown;
        }
        let mut found = Self::NotYet;
        for name in libraries {
            if MPI.iter().any(|start| name.starts_with(start)) {
                return Self::WithMpi;
            }
            if !name.starts_with("ld-") && !name.starts_with("ld.") {
                found = Self::Loaded;
            }
        }
        found
    }
}

/// The beginnings of names of libraries in which a rank waits for a debugger.
const MPI: [&str; 3] = ["libmpi", "libpmi", "libfmpich"];

impl Here {
    /// Returns true if it is stopped, by a signal or by its debugger.
    pub(super) const fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// Returns the end of a process, for the user.
pub(super) fn ended(status: ExitStatus) -> String {
    match status {
        ExitStatus::Exited(code) => format!("ended with code {code}"),
        ExitStatus::Signaled { signal, .. } => format!("was ended by {signal}"),
        ExitStatus::OutOfMemory { .. } => "was ended for lack of memory".to_owned(),
    }
}
