//! `srun --multi-prog FILE`: one line for each set of ranks, with the program that they run.
//!
//! ```text
//! 0      ./server
//! 1-3,7  ./client rank %t, number %o of these
//! *      ./rest
//! ```
//!
//! `%t` is the rank, `%o` its index among the ranks of its line (for `*`, the rank). A rank may be in one line only. `*`, in
//! the last line, stands for all ranks that no line names.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use base::RankSet;

use super::{
    AppLine, Error, RunLine,
    error::{AppFileProblem, FileKind},
};
use crate::quoting;
use crate::values::MAX_PROCS;

/// A line of the file: a set of ranks and their program.
struct Row {
    /// The line number, from 1.
    number: usize,
    /// The ranks. `None` for `*`.
    ranks: Option<RankSet>,
    words: Vec<OsString>,
}

/// Replaces the file's name by the programs in it: one app for each run of consecutive ranks with the same command line.
pub(super) fn expand(line: &RunLine, path: &Path, text: &[u8]) -> Result<RunLine, Error> {
    let bad = |number, problem| Error::BadAppFile {
        what: FileKind::ProgramFile,
        path: path.to_owned(),
        line: number,
        problem,
    };
    let lines = quoting::lines(text).map_err(|(number, open)| bad(number, open.into()))?;
    let mut rows = Vec::with_capacity(lines.len());
    let last = lines.last().map_or(1, |line| line.number);
    for quoting::Line { number, words } in lines {
        let mut words = words.into_iter();
        let ranks = words.next().unwrap_or_default();
        let ranks = match ranks.to_str() {
            Some("*") => None,
            Some(text) => match text.parse::<RankSet>() {
                Ok(set) if !set.is_empty() => Some(set),
                _ => return Err(bad(number, AppFileProblem::NotRanks)),
            },
            None => return Err(bad(number, AppFileProblem::NotRanks)),
        };
        if words.len() == 0 {
            return Err(bad(number, AppFileProblem::NoProgram));
        }
        if rows.last().is_some_and(|row: &Row| row.ranks.is_none()) {
            return Err(bad(number, AppFileProblem::AfterRest));
        }
        rows.push(Row {
            number,
            ranks,
            words: words.collect(),
        });
    }
    let Some(base) = line.apps.first() else {
        return Ok(line.clone());
    };
    // Words after the file's name become arguments of every program.
    let more = base.program.get(1..).unwrap_or_default();
    // Without `-n`, the file determines the size of the job.
    let named = rows.iter().filter_map(|row| row.ranks.as_ref()?.last());
    let needed = named.max().map_or(1, |rank| rank.0.saturating_add(1));
    let size = base.args.procs.unwrap_or_else(|| needed.min(MAX_PROCS));
    let mut apps: Vec<AppLine> = Vec::new();
    let mut before: Option<(usize, Vec<OsString>)> = None;
    let rest = rows.iter().enumerate().find(|(_, row)| row.ranks.is_none());
    // The lines, by their next rank. The value has the index of this rank in its line, and the ranks after it. Two lines
    // with the same rank thus meet.
    let mut due = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        let mut later = row.ranks.iter().flat_map(RankSet::iter);
        if let Some(first) = later.next() {
            due.insert((first.0, index), (row, 0, later));
        }
    }
    for rank in 0..size {
        let mut named = None;
        while let Some(entry) = due.first_entry().filter(|entry| entry.key().0 == rank) {
            let ((_, index), (row, offset, mut later)) = entry.remove_entry();
            if named.replace((index, row, offset)).is_some() {
                return Err(bad(row.number, AppFileProblem::RankTwice(rank)));
            }
            if let Some(next) = later.next() {
                due.insert((next.0, index), (row, offset + 1, later));
            }
        }
        let row = named.or_else(|| rest.map(|(index, row)| (index, row, rank)));
        let Some((index, row, offset)) = row else {
            return Err(bad(last, AppFileProblem::RankMissing(rank)));
        };
        let words: Vec<OsString> = row
            .words
            .iter()
            .map(|word| fill_in(word, rank, offset))
            .chain(more.iter().cloned())
            .collect();
        let goes_on = before
            .as_ref()
            .is_some_and(|(other, said)| *other == index && *said == words);
        match apps.last_mut().filter(|_| goes_on) {
            Some(app) => app.args.procs = app.args.procs.map(|procs| procs + 1),
            None => {
                let mut app = base.clone();
                app.args.procs = Some(1);
                app.program.clone_from(&words);
                if !apps.is_empty() {
                    // The placement options of the first app apply to all apps.
                    app.args.map_by.clear();
                    app.args.per_node = None;
                    app.args.deal = None;
                }
                apps.push(app);
            }
        }
        before = Some((index, words));
    }
    if let Some(((rank, _), (row, ..))) = due.first_key_value() {
        let rank = *rank;
        return Err(bad(row.number, AppFileProblem::NoSuchRank { rank, size }));
    }
    Ok(RunLine {
        apps,
        ..line.clone()
    })
}

/// Replaces `%t` and `%o` in a word.
fn fill_in(word: &OsStr, rank: u32, offset: u32) -> OsString {
    let mut out = Vec::with_capacity(word.len());
    let mut bytes = word.as_bytes().iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (byte, bytes.peek()) {
            (b'%', Some(b't')) => out.extend(rank.to_string().into_bytes()),
            (b'%', Some(b'o')) => out.extend(offset.to_string().into_bytes()),
            _ => {
                out.push(byte);
                continue;
            }
        }
        bytes.next();
    }
    OsString::from_vec(out)
}
