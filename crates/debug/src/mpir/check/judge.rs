//! From what was seen to a finding, one function for one or a few statements.

use std::{collections::BTreeSet, time::Duration};

use base::{ExitStatus, Rank, RankSet};

use super::{
    Called,
    facts::{Here, Linked, RankFacts, Said, SymbolFacts, ended},
    statement::{Finding, Statement as S, Verdict},
};
use crate::mpir::{Miss, RowType, Symbol, Table};

/// The symbols without which no debugger can work, and their sizes on 64-bit processors; 0 for a function.
const NEEDED: [(Symbol, u64); 5] = [
    (Symbol::Proctable, 8),
    (Symbol::ProctableSize, 4),
    (Symbol::BeingDebugged, 4),
    (Symbol::DebugState, 4),
    (Symbol::Breakpoint, 0),
];

/// Further symbols with a fixed size.
const SIZED: [(Symbol, u64); 3] = [
    (Symbol::DebugAbortString, 8),
    (Symbol::JobId, 8),
    (Symbol::StepId, 8),
];

/// Arrays, and the sizes that the document gives them. A longer one is right: a debugger takes the size of the symbol.
const ARRAYS: [(Symbol, u64); 3] = [
    (Symbol::ExecutablePath, 256),
    (Symbol::ServerArguments, 1024),
    (Symbol::AttachFifo, 256),
];

/// The share of the time for which ranks are watched that one which waits may use the processor: one tenth.
const WAITING_SHARE: u32 = 10;

/// The state in which the processes of the job exist.
pub(super) const SPAWNED: i32 = 1;
/// The state in which the job is being ended.
pub(super) const ABORTING: i32 = 2;

fn right(statement: S, seen: impl Into<String>) -> Finding {
    Finding::new(statement, Verdict::Right, seen)
}

fn wrong(statement: S, seen: impl Into<String>) -> Finding {
    Finding::new(statement, Verdict::Wrong, seen)
}

fn absent(statement: S, seen: impl Into<String>) -> Finding {
    Finding::new(statement, Verdict::NotApplicable, seen)
}

pub(super) fn unchecked(statement: S, seen: impl Into<String>) -> Finding {
    Finding::new(statement, Verdict::NotChecked, seen)
}

/// Returns right if `wrongs` is empty, and otherwise wrong with what is in it.
fn by(statement: S, wrongs: &[String], seen: impl Into<String>) -> Finding {
    if wrongs.is_empty() {
        right(statement, seen)
    } else {
        wrong(statement, wrongs.join("; "))
    }
}

/// Judges what can be seen before `main`.
pub(super) fn symbols(facts: &SymbolFacts) -> Vec<Finding> {
    let missing: Vec<String> = NEEDED
        .iter()
        .filter(|(symbol, _)| !facts.has(*symbol))
        .map(|(symbol, _)| format!("there is no {}", symbol.name()))
        .collect();
    let with_size = |symbol: Symbol| Some((symbol, *facts.sizes.get(&symbol)?));
    let differs = |(symbol, size, least): (Symbol, u64, u64)| {
        format!("{} has {size} bytes instead of {least}", symbol.name())
    };
    let fixed = NEEDED.iter().chain(&SIZED).filter_map(|(symbol, wanted)| {
        let (symbol, size) = with_size(*symbol)?;
        // A symbol of a linker script, or in assembly, can lack a size.
        (*wanted != 0 && size != 0 && size != *wanted).then_some((symbol, size, *wanted))
    });
    let arrays = ARRAYS.iter().filter_map(|(symbol, least)| {
        let (symbol, size) = with_size(*symbol)?;
        (size < *least).then_some((symbol, size, *least))
    });
    let sizes: Vec<String> = fixed.chain(arrays).map(differs).collect();
    let long: Vec<String> = ARRAYS
        .iter()
        .filter_map(|(symbol, _)| with_size(*symbol))
        .map(|(symbol, size)| format!("{}[{size}]", symbol.name()))
        .collect();
    let long = if long.is_empty() {
        "as the types have".to_owned()
    } else {
        format!("as the types have; {}", long.join(", "))
    };
    let row_type = match facts.row_type {
        RowType::Described => right(S::RowType, "MPIR_PROCDESC is described"),
        RowType::Absent => wrong(
            S::RowType,
            "MPIR_PROCDESC is not described, so debuggers assume the layout of C",
        ),
    };
    let starter = if facts.has(Symbol::IAmStarter) {
        right(S::Starter, "it is there")
    } else {
        absent(
            S::Starter,
            "it is not there, so debuggers take the launcher for rank 0",
        )
    };
    let unset = match facts.being_debugged {
        0 => right(S::Unset, "it is 0 when the program begins"),
        other => wrong(S::Unset, format!("it is {other} when the program begins")),
    };
    let daemons = [Symbol::ExecutablePath, Symbol::ServerArguments];
    let daemons = match daemons.map(|symbol| facts.has(symbol)) {
        [true, true] => right(
            S::DaemonSymbols,
            "MPIR_executable_path and MPIR_server_arguments are there",
        ),
        [false, false] => absent(S::DaemonSymbols, "it has neither"),
        [true, false] => wrong(S::DaemonSymbols, "there is no MPIR_server_arguments"),
        [false, true] => wrong(S::DaemonSymbols, "there is no MPIR_executable_path"),
    };
    vec![
        by(
            S::Symbols,
            &missing,
            format!("all are there, in `{}`", facts.file),
        ),
        by(S::Sizes, &sizes, long),
        row_type,
        starter,
        unset,
        daemons,
    ]
}

/// Judges the first call of the breakpoint with a state other than 0, after `ignored` calls with 0.
pub(super) fn spawned(said: &Said, ignored: u32) -> [Finding; 2] {
    let before = match ignored {
        0 => String::new(),
        1 => ", after 1 call with state 0".to_owned(),
        calls => format!(", after {calls} calls with state 0"),
    };
    let announced = right(S::Announced, format!("it was called{before}"));
    let state = match said.state {
        SPAWNED => right(S::Spawned, "it is 1"),
        other => wrong(S::Spawned, format!("it is {other}")),
    };
    [announced, state]
}

/// Judges a table. `expected` is the number of ranks, if the user has given it.
pub(super) fn table(table: &Result<Table, Miss>, expected: Option<u32>) -> [Finding; 2] {
    let table = match table {
        Ok(table) => table,
        Err(why) => {
            let why = match why {
                Miss::Empty { .. } => "it is empty",
                Miss::Broken => "its size or its pointers are broken",
                Miss::Unreadable | Miss::NoSymbols => "it cannot be read",
            };
            return [wrong(S::Table, why), unchecked(S::Strings, why)];
        }
    };
    let rows = table.rows.len();
    let mut wrongs = Vec::new();
    let mut complain = |what: &str, is_wrong: &dyn Fn(usize) -> bool| {
        let found = list((0..rows).filter(|row| is_wrong(*row)));
        if let Some(found) = found {
            wrongs.push(format!("{found}: {what}"));
        }
    };
    complain("no host", &|row| table.rows[row].host.is_empty());
    complain("no program", &|row| table.rows[row].program.is_empty());
    complain("no pid", &|row| table.rows[row].pid <= 0);
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<usize> = (0..rows)
        .filter(|row| {
            let row = &table.rows[*row];
            row.pid > 0 && !seen.insert((&row.host, row.pid))
        })
        .collect();
    complain("the process of an earlier row", &|row| twice.contains(&row));
    if let Some(expected) = expected
        && usize::try_from(expected) != Ok(rows)
    {
        wrongs.push(format!("{} instead of {expected}", counted(rows, "row")));
    }
    let hosts: BTreeSet<&str> = table.rows.iter().map(|row| &*row.host).collect();
    let seen = format!(
        "{} on {}",
        counted(rows, "row"),
        counted(hosts.len(), "host")
    );
    let texts = table.rows.iter().flat_map(|row| [&row.host, &row.program]);
    let names = texts.collect::<BTreeSet<_>>().len();
    let strings = if table.texts > names {
        let texts = counted(table.texts, "string");
        wrong(
            S::Strings,
            format!("{texts} for {}", counted(names, "name")),
        )
    } else {
        let texts = counted(table.texts, "string");
        right(
            S::Strings,
            format!("{texts} for {}", counted(names, "name")),
        )
    };
    [by(S::Table, &wrongs, seen), strings]
}

/// The reason why nothing can be said about processes.
const NONE_HERE: &str = "no rank is on this node; run the check on a node of the job";

/// Judges the processes of the rows as they are when the breakpoint is called.
pub(super) fn processes(ranks: &[RankFacts]) -> [Finding; 2] {
    let here = here(ranks);
    let gone = list(rows(ranks, |rank| *rank == RankFacts::Gone));
    if here.is_empty() && gone.is_none() {
        let none = |statement| unchecked(statement, NONE_HERE);
        return [none(S::Processes), none(S::Order)];
    }
    let mut wrongs = Vec::new();
    if let Some(gone) = gone {
        wrongs.push(format!("{gone}: there is no such process"));
    }
    let others = here.iter().filter(|(_, here)| here.is_named == Some(false));
    if let Some(others) = list(others.map(|(row, _)| *row)) {
        wrongs.push(format!("{others}: the process executes another program"));
    }
    let living = counted(here.len(), "process");
    let seen = format!("{living} live on this node");
    let processes = by(
        S::Processes,
        &wrongs,
        seen.replace("1 process live", "1 process lives"),
    );
    let told: Vec<(usize, u32)> = here
        .iter()
        .filter_map(|(row, here)| Some((*row, here.rank?)))
        .collect();
    let misplaced = told
        .iter()
        .filter(|(row, rank)| u32::try_from(*row) != Ok(*rank));
    let misplaced: Vec<String> = misplaced
        .map(|(row, rank)| format!("row {row} is rank {rank}"))
        .take(SHOWN_MAX)
        .collect();
    let order = if told.is_empty() {
        unchecked(S::Order, "no process has its rank in its environment")
    } else {
        let seen = format!(
            "so say the environments of {}",
            counted(told.len(), "process")
        );
        by(S::Order, &misplaced, seen)
    };
    [processes, order]
}

/// How many ranks out of order are named.
const SHOWN_MAX: usize = 4;

/// Judges whether ranks were held, from two looks at them with `watched` between them.
pub(super) fn held(
    facts: &SymbolFacts,
    first: &[RankFacts],
    last: &[RankFacts],
    watched: Duration,
) -> [Finding; 2] {
    let none = |statement| unchecked(statement, NONE_HERE);
    let pre_main = |judged: Finding| {
        if facts.has(Symbol::AcquiredPreMain) {
            judged
        } else {
            absent(S::PreMain, "it does not have MPIR_acquired_pre_main")
        }
    };
    let before = here(first);
    let now = here(last);
    if before.is_empty() {
        return [none(S::Held), pre_main(none(S::PreMain))];
    }
    let stopped = now.iter().filter(|(_, here)| here.is_stopped()).count();
    let total = before.len();
    let seen = format!("{stopped} of {} stopped", counted(total, "rank"));
    let held = held_or_not(&before, &now, watched, &seen);
    let late = now.iter().filter(|(_, here)| {
        !here.is_stopped() || matches!(here.linked, Linked::Loaded | Linked::WithMpi)
    });
    let late = list(late.map(|(row, _)| *row))
        .map(|rows| format!("{rows}: not stopped, or with libraries that are loaded before main"));
    let judged = match late {
        Some(late) => wrong(S::PreMain, late),
        None if now.len() < total => wrong(S::PreMain, seen),
        None => right(S::PreMain, seen),
    };
    [held, pre_main(judged)]
}

fn held_or_not(
    before: &[(usize, &Here)],
    now: &[(usize, &Here)],
    watched: Duration,
    seen: &str,
) -> Finding {
    let gone = before
        .iter()
        .filter(|(row, _)| !now.iter().any(|(other, _)| other == row));
    if let Some(gone) = list(gone.map(|(row, _)| *row)) {
        return wrong(S::Held, format!("{gone}: ended before that"));
    }
    let going = || now.iter().filter(|(_, here)| !here.is_stopped());
    let free = going().filter(|(_, here)| here.linked == Linked::Loaded);
    if let Some(free) = list(free.map(|(row, _)| *row)) {
        return wrong(
            S::Held,
            format!("{free}: not stopped, and without an MPI library in which it could wait"),
        );
    }
    let busy = going().filter(|(row, here)| {
        let earlier = before.iter().find(|(other, _)| other == row);
        let earlier = earlier.map_or(Duration::ZERO, |(_, here)| here.cpu);
        here.cpu.saturating_sub(earlier) > watched / WAITING_SHARE
    });
    if let Some(busy) = list(busy.map(|(row, _)| *row)) {
        return unchecked(
            S::Held,
            format!("{busy}: not stopped, and using the processor; it may poll in MPI_Init"),
        );
    }
    if going().next().is_some() {
        return right(
            S::Held,
            format!("{seen}; the others wait, in MPI_Init or before"),
        );
    }
    right(S::Held, seen)
}

/// Judges the ranks after the starter was continued. `kept` is the row of the rank that has a debugger of its own.
pub(super) fn released(ranks: &[RankFacts], kept: Option<usize>) -> Finding {
    let here = here(ranks);
    let gone = rows(ranks, |rank| *rank == RankFacts::Gone).count();
    if here.is_empty() && gone == 0 {
        return unchecked(S::Released, NONE_HERE);
    }
    let others = || here.iter().filter(|(row, _)| Some(*row) != kept);
    let stopped = others().filter(|(_, here)| here.is_stopped());
    match list(stopped.map(|(row, _)| *row)) {
        Some(rows) => wrong(S::Released, format!("{rows}: still stopped")),
        None => {
            let running = others().count();
            right(S::Released, format!("{running} run, {gone} have ended"))
        }
    }
}

/// Judges whether a rank with a debugger of its own has stayed with it.
pub(super) fn partial(ranks: &[RankFacts], kept: usize) -> Finding {
    match ranks.get(kept) {
        Some(RankFacts::Here(here)) if here.is_stopped() => {
            right(S::Partial, format!("row {kept} stayed stopped"))
        }
        Some(RankFacts::Here(_)) => wrong(S::Partial, format!("row {kept} went on")),
        _ => wrong(S::Partial, format!("row {kept} was ended")),
    }
}

/// Judges a further call of the breakpoint.
pub(super) fn again(before: &Table, said: &Said) -> Finding {
    match &said.table {
        Ok(table) if table == before => wrong(S::Again, "it was called with the same table"),
        Ok(table) => right(
            S::Again,
            format!(
                "it was called with {} after {}",
                counted(table.rows.len(), "row"),
                before.rows.len()
            ),
        ),
        Err(_) => wrong(S::Again, "it was called without a table"),
    }
}

/// Judges the time after a debugger has detached. `expected` is how the launcher ended in another act.
pub(super) fn detached(
    status: Option<ExitStatus>,
    expected: Option<ExitStatus>,
    ranks: &[RankFacts],
) -> Finding {
    match (status, expected) {
        (Some(status), Some(expected)) if status != expected => {
            let (here, there) = (ended(status), ended(expected));
            let seen = format!("the launcher {here}; under the debugger it {there}");
            wrong(S::Detached, seen)
        }
        (Some(status @ ExitStatus::Signaled { .. }), None) => {
            wrong(S::Detached, format!("the launcher {}", ended(status)))
        }
        (Some(status), _) => right(S::Detached, format!("the launcher {}", ended(status))),
        (None, _) => {
            let here = here(ranks);
            let stopped = here.iter().filter(|(_, here)| here.is_stopped());
            match list(stopped.map(|(row, _)| *row)) {
                Some(rows) => wrong(S::Detached, format!("{rows}: still stopped")),
                None => right(S::Detached, "the launcher and its ranks run"),
            }
        }
    }
}

/// Judges what a job without a debugger has in its table.
pub(super) fn attached(said: &Said) -> Finding {
    match &said.table {
        Ok(table) => {
            let rows = counted(table.rows.len(), "row");
            right(
                S::Attached,
                format!("{rows}, MPIR_debug_state is {}", said.state),
            )
        }
        Err(_) => wrong(
            S::Attached,
            format!("the table is empty, MPIR_debug_state is {}", said.state),
        ),
    }
}

/// Judges ranks while a debugger has stopped their starter, and whether the starter lives when the debugger has left.
pub(super) fn no_barrier(ranks: &[RankFacts], after: Option<ExitStatus>) -> Finding {
    let here = here(ranks);
    let stopped = here.iter().filter(|(_, here)| here.is_stopped());
    if let Some(rows) = list(stopped.map(|(row, _)| *row)) {
        return wrong(S::NoBarrier, format!("{rows}: stopped"));
    }
    match after {
        Some(status @ ExitStatus::Signaled { .. }) => {
            wrong(S::NoBarrier, format!("the launcher {}", ended(status)))
        }
        Some(status) => right(
            S::NoBarrier,
            format!("the launcher {} later", ended(status)),
        ),
        None if here.is_empty() => right(S::NoBarrier, "the launcher runs"),
        None => right(S::NoBarrier, "the launcher and its ranks run"),
    }
}

/// Judges what happened after a byte was written into the FIFO for the `time`-th time, which has started so many daemons.
pub(super) fn fifo(time: u32, called: Called, started: usize) -> Finding {
    let statement = if time == 1 { S::Fifo } else { S::FifoAgain };
    let daemons = match started {
        0 => "no daemon was started".to_owned(),
        1 => "1 daemon was started".to_owned(),
        more => format!("{more} daemons were started"),
    };
    match (called, started) {
        (Called::WithTable, _) => {
            right(statement, format!("MPIR_Breakpoint was called, {daemons}"))
        }
        (Called::WithoutTable, _) => wrong(
            statement,
            format!("MPIR_Breakpoint was called without a table, {daemons}"),
        ),
        (Called::No, 0) => wrong(
            statement,
            format!("MPIR_Breakpoint was not called, {daemons}"),
        ),
        (Called::No, _) => right(
            statement,
            format!("MPIR_Breakpoint was not called, {daemons}"),
        ),
    }
}

/// Judges the daemons that were started on this node, each with its arguments. `wanted` are those in `MPIR_server_arguments`.
pub(super) fn daemons(
    found: &[Vec<String>],
    wanted: &[String],
    ranks: &[RankFacts],
) -> [Finding; 2] {
    if here(ranks).is_empty() {
        return [S::Colocated, S::Arguments].map(|statement| unchecked(statement, NONE_HERE));
    }
    let Some(first) = found.first() else {
        let none = "no daemon was started on this node";
        return [wrong(S::Colocated, none), unchecked(S::Arguments, none)];
    };
    let started = match found.len() {
        1 => right(S::Colocated, "it runs on this node"),
        more => wrong(S::Colocated, format!("{more} of them run on this node")),
    };
    let shown = |words: &[String]| {
        let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
        words.join(" ")
    };
    let arguments = if found.iter().all(|words| words == wanted) {
        right(S::Arguments, shown(first))
    } else {
        let wanted = shown(wanted);
        wrong(
            S::Arguments,
            format!("{} instead of {wanted}", shown(first)),
        )
    };
    [started, arguments]
}

/// Judges the end of a job of which a rank was killed.
pub(super) fn aborted(
    facts: &SymbolFacts,
    said: Option<&Said>,
    status: Option<ExitStatus>,
) -> Finding {
    let has = facts.has(Symbol::DebugAbortString);
    match (said, status) {
        (Some(said), _) => match &said.reason {
            Some(reason) => right(S::Aborted, format!("state 2: {reason}")),
            None if has => wrong(S::Aborted, "state 2 without a reason"),
            None => absent(
                S::Aborted,
                "state 2; it does not have MPIR_debug_abort_string",
            ),
        },
        (None, status) => {
            let end = status.map_or_else(|| "runs on".to_owned(), ended);
            if has {
                wrong(
                    S::Aborted,
                    format!("it was not announced; the launcher {end}"),
                )
            } else {
                let without = "it does not have MPIR_debug_abort_string";
                absent(S::Aborted, format!("{without}; the launcher {end}"))
            }
        }
    }
}

/// Returns the rows on this node with their processes.
fn here(ranks: &[RankFacts]) -> Vec<(usize, &Here)> {
    let all = ranks.iter().enumerate();
    let here = all.filter_map(|(row, rank)| match rank {
        RankFacts::Here(here) => Some((row, here)),
        RankFacts::Elsewhere | RankFacts::Gone => None,
    });
    here.collect()
}

fn rows(ranks: &[RankFacts], is: impl Fn(&RankFacts) -> bool) -> impl Iterator<Item = usize> {
    let all = ranks.iter().enumerate();
    all.filter(move |(_, rank)| is(rank)).map(|(row, _)| row)
}

/// Returns a list of rows for the user; `None` if there are none.
fn list(rows: impl Iterator<Item = usize>) -> Option<String> {
    let rows = rows.filter_map(|row| u32::try_from(row).ok());
    let rows: RankSet = rows.map(Rank).collect();
    match rows.len() {
        0 => None,
        1 => Some(format!("row {rows}")),
        _ => Some(format!("rows {rows}")),
    }
}

/// Returns a number with its noun.
fn counted(number: usize, noun: &str) -> String {
    match (number, noun) {
        (1, _) => format!("1 {noun}"),
        (_, "process") => format!("{number} processes"),
        _ => format!("{number} {noun}s"),
    }
}
