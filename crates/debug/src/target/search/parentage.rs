//! Finds workers by parent and child processes, if nothing better is known.

use std::collections::BTreeMap;

use super::{
    super::{
        How, Note,
        names::file_name,
        wrappers::{is_starter, is_wrapper},
    },
    Search,
};

/// Maximum depth of nested processes that only start others.
const MAX_DEPTH: usize = 16;

/// A result: the processes in the order of their start, how they were found, and notes about processes left out.
pub(super) type Workers = (Vec<i32>, How, Vec<Note>);

/// Returns the processes that a starter such as make has started, or a process together with its forks. `None` if the process is
/// neither: then it is the only rank.
pub(super) fn children(search: &Search<'_>, pid: i32) -> Option<Workers> {
    let program = search.program(pid);
    if is_starter(&program, search.command(pid)) {
        let mut workers = Vec::new();
        collect(search, pid, 0, &mut workers);
        return largest(search, pid, workers);
    }
    // Only children that still execute the same program are forks without an exec.
    let children = search.children(pid);
    if children.is_empty()
        || children
            .iter()
            .any(|&child| search.program(child) != program)
    {
        return None;
    }
    let mut all = vec![pid];
    all.extend(children);
    let how = How::Children {
        of: pid,
        program: shown(search, pid),
    };
    Some((all, how, Vec::new()))
}

fn collect(search: &Search<'_>, pid: i32, depth: usize, workers: &mut Vec<i32>) {
    for child in search.children(pid) {
        let only_starts = is_starter(&search.program(child), search.command(child));
        if only_starts && depth < MAX_DEPTH && !search.children(child).is_empty() {
            collect(search, child, depth + 1, workers);
        } else {
            workers.push(child);
        }
    }
}

/// Chooses the workers of the program that most of them execute.
fn largest(search: &Search<'_>, pid: i32, workers: Vec<i32>) -> Option<Workers> {
    let mut programs = by_program(search, workers);
    let best = programs
        .iter()
        .max_by_key(|(program, of)| {
            // Shells come last: users hardly ever mean them.
            (
                !is_wrapper(program, ""),
                of.len(),
                std::cmp::Reverse(of.first().copied()),
            )
        })
        .map(|(program, _)| program.clone())?;
    let chosen = programs.remove(&best)?;
    let rest = programs.into_values().flatten().collect();
    let notes = left_out(search, rest).collect();
    let how = How::Children {
        of: pid,
        program: best,
    };
    Some((search.by_start(chosen), how, notes))
}

/// Returns a note for each program of the processes that were left out.
pub(super) fn left_out(search: &Search<'_>, pids: Vec<i32>) -> impl Iterator<Item = Note> + use<> {
    let notes = by_program(search, pids).into_iter();
    notes.map(|(program, of)| Note::OtherChildren {
        program,
        processes: of.len(),
    })
}

fn by_program(search: &Search<'_>, pids: Vec<i32>) -> BTreeMap<String, Vec<i32>> {
    let mut programs: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for pid in pids {
        programs.entry(shown(search, pid)).or_default().push(pid);
    }
    programs
}

fn shown(search: &Search<'_>, pid: i32) -> String {
    file_name(&search.program(pid)).to_owned()
}
