//! Phrases on the descendants of a rank: workers of a data loader or a pool, commands of a shell. The rank may wait for them.

use std::collections::BTreeMap;

use base::{Rank, RankSet};

use super::{Cite, roles::Role, words};
use crate::{
    known::Kind,
    samples::{ChildTrack, Motion, Observation, Track},
    stack::{Activity, Frames},
};

/// Maximum number of activities to describe in a sentence.
const DOINGS: usize = 2;
/// Maximum number of processes to name by pid. More processes are only counted.
const NUMBERED: usize = 3;
/// Source files of processes that Python starts for its own housekeeping.
const HOUSEKEEPING: [&str; 2] = ["/resource_tracker.py", "/forkserver.py"];

/// The part of a sentence on the descendants of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Below {
    relation: Relation,
    /// The phrase, including the words that connect it to the sentence.
    pub(super) said: String,
    /// The processes that the phrase describes, each with its rank.
    named: Vec<(Rank, i32)>,
}

/// The relation between the processes and their rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    /// The rank waits for the exit of the process: ` for process 4711 `sh`, which is in read`.
    Awaited,
    /// The rank has started the process: `, and its process 4712 `python3` is in disk wait`.
    Child,
}

impl Below {
    /// Returns true if the rank waits for the exit of the first of the processes.
    pub(super) fn is_awaited(&self) -> bool {
        self.relation == Relation::Awaited
    }

    /// Returns the evidence for the phrase. Processes that did the same in the same samples share a [`Cite`].
    pub(super) fn cites(&self, all: &Observation) -> Vec<Cite> {
        let mut cites: Vec<Cite> = Vec::new();
        for &(rank, pid) in &self.named {
            let child = all.ranks.get(&rank).and_then(|it| it.children.get(&pid));
            let main = child.and_then(|child| child.main.as_ref());
            let of_one = main.map(|main| words::of_track(&RankSet::single(rank), main));
            for cite in of_one.into_iter().flatten() {
                let same = cites.iter_mut().find(|it| {
                    (&it.frames, it.activity, &it.samples)
                        == (&cite.frames, cite.activity, &cite.samples)
                });
                match same {
                    Some(same) => {
                        same.ranks.insert(rank);
                        same.processes.push(pid);
                    }
                    None => cites.push(Cite {
                        processes: vec![pid],
                        ..cite
                    }),
                }
            }
        }
        for cite in &mut cites {
            cite.processes.sort_unstable();
        }
        cites
    }
}

/// Describes the descendants of a group of ranks. Returns `None` if they have no bearing on what the ranks do.
pub(super) fn of_group(frames: &Frames, all: &Observation, group: &words::Group) -> Option<Below> {
    if !has_bearing(group.role) {
        return None;
    }
    let first = group.ranks.first()?;
    let kind = all.ranks.get(&first)?.main.as_ref()?.wait()?.kind;
    let one = group.ranks.len() == 1;
    if kind == Kind::Child && one {
        return awaited(frames, all, first).or_else(|| describe_children(frames, all, group));
    }
    describe_children(frames, all, group)
}

/// Returns true if a rank in this role may wait for its descendants. A rank held by MPI, a debugger or the kernel does not.
const fn has_bearing(role: Role) -> bool {
    matches!(
        role,
        Role::Alive | Role::Helper | Role::Data | Role::Shared | Role::Lock | Role::Threads
    )
}

type Children = BTreeMap<i32, ChildTrack>;

/// Describes the child that a rank waits for. While a process waits for its only child, the phrase goes on with that child.
/// Returns `None` if the rank does not have exactly one child.
fn awaited(frames: &Frames, all: &Observation, rank: Rank) -> Option<Below> {
    let children = &all.ranks.get(&rank)?.children;
    let is_direct = |child: &&ChildTrack| !children.contains_key(&child.parent);
    let mut direct = children.iter().filter(|(_, child)| is_direct(child));
    let (&pid, child) = direct.next().filter(|_| direct.next().is_none())?;
    let mut said = format!(" for process {pid} `{}`", child.name);
    let mut named = vec![(rank, pid)];
    let (mut pid, mut child) = (pid, child);
    // Only a corrupt recording has a process that is its own ancestor. The bound ends such a loop.
    for _ in 0..children.len() {
        let Some((next, below)) = waited_by(children, pid, child) else {
            break;
        };
        said.push_str(&format!(", which waits for {next} `{}`", below.name));
        named.push((rank, next));
        (pid, child) = (next, below);
    }
    let main = child.main.as_ref()?;
    said.push_str(", which ");
    said.push_str(&does(frames, main, Number::One));
    Some(Below {
        relation: Relation::Awaited,
        said,
        named,
    })
}

/// Returns the child for which a process waits, if it is the only child.
fn waited_by<'a>(
    children: &'a Children,
    pid: i32,
    child: &ChildTrack,
) -> Option<(i32, &'a ChildTrack)> {
    let wait = child.main.as_ref()?.wait()?;
    if wait.kind != Kind::Child {
        return None;
    }
    let mut below = children.iter().filter(|(_, it)| it.parent == pid);
    let (&next, below) = below.next().filter(|_| below.next().is_none())?;
    Some((next, below))
}

/// Whether a process may continue, its name, and its activity as a phrase.
type Doing<'a> = (bool, &'a str, String);

/// Describes what the descendants of the ranks do: first those that are held, then by ascending number of processes. Small
/// groups are the odd ones, while most processes of a large group wait for work.
fn describe_children(frames: &Frames, all: &Observation, group: &words::Group) -> Option<Below> {
    let mut alike: BTreeMap<Doing<'_>, Vec<(Rank, i32)>> = BTreeMap::new();
    let mut plural: BTreeMap<String, String> = BTreeMap::new();
    for rank in group.ranks.iter() {
        for (&pid, child) in all.ranks.get(&rank).iter().flat_map(|it| &it.children) {
            let Some(main) = &child.main else { continue };
            if keeps_house(frames, main) {
                continue;
            }
            let one = does(frames, main, Number::One);
            plural
                .entry(one.clone())
                .or_insert_with(|| does(frames, main, Number::Many));
            let key = (!is_held(main), &*child.name, one);
            alike.entry(key).or_default().push((rank, pid));
        }
    }
    let mut alike: Vec<_> = alike.into_iter().collect();
    alike.sort_by_key(|((free, ..), pids)| (*free, pids.len(), pids.first().map(|(_, pid)| *pid)));
    let their = if group.ranks.len() == 1 {
        "its"
    } else {
        "their"
    };
    let loader = match (group.role, group.ranks.len()) {
        (Role::Data, 1) => " data loader's",
        (Role::Data, _) => " data loaders'",
        _ => "",
    };
    let rest: usize = alike.iter().skip(DOINGS).map(|(_, pids)| pids.len()).sum();
    let said = alike.iter().take(DOINGS).map(|((_, name, one), pids)| {
        let (who, doing) = match pids[..] {
            [(_, pid)] => (format!("process {pid} `{name}`"), one),
            _ if pids.len() <= NUMBERED => {
                let pids: Vec<String> = pids.iter().map(|(_, pid)| pid.to_string()).collect();
                (
                    format!("processes {} `{name}`", pids.join(", ")),
                    &plural[one],
                )
            }
            _ => (format!("{} processes `{name}`", pids.len()), &plural[one]),
        };
        format!(", and {their}{loader} {who} {doing}")
    });
    let mut said: String = said.collect();
    if rest > 0 {
        let does = if rest == 1 { "does" } else { "do" };
        said.push_str(&format!(", and {rest} more {does} something else"));
    }
    let named = alike.iter().take(DOINGS).flat_map(|(_, pids)| pids);
    let named = named.copied().collect();
    (!said.is_empty()).then_some(Below {
        relation: Relation::Child,
        said,
        named,
    })
}

/// Returns true for helper processes of Python itself.
fn keeps_house(frames: &Frames, main: &Track) -> bool {
    let mut sources = main
        .frames()
        .iter()
        .filter_map(|&id| frames.get(id).source.as_ref());
    sources.any(|source| HOUSEKEEPING.iter().any(|file| source.file.ends_with(file)))
}

/// Returns true if the process is stopped or in disk wait.
fn is_held(main: &Track) -> bool {
    matches!(
        main.activity(),
        Some(Activity::Disk | Activity::Stopped | Activity::Frozen | Activity::Traced)
    )
}

/// Grammatical number of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    One,
    Many,
}

/// Describes the activity over all samples: `is in read (io.c:3)`.
fn does(frames: &Frames, main: &Track, number: Number) -> String {
    let (is, runs) = match number {
        Number::One => ("is", "runs"),
        Number::Many => ("are", "run"),
    };
    match main.activity() {
        Some(Activity::Disk) => format!("{is} in disk wait in {}", words::place(frames, main)),
        Some(Activity::Stopped) => format!("{is} stopped by a signal"),
        Some(Activity::Frozen) => format!("{is} frozen by the control group"),
        Some(Activity::Traced) => format!("{is} held by a debugger"),
        _ => match (main.wait(), main.motion) {
            (Some(wait), _) => format!("{is} in {}{}", wait.name, words::caller(frames, main)),
            (None, Motion::Looping) => format!("{runs} in {}", words::place(frames, main)),
            (None, Motion::Moving) => {
                format!("{is} at work, last in {}", words::place(frames, main))
            }
            (None, _) => format!("{is} in {}", words::place(frames, main)),
        },
    }
}
