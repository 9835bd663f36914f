//! What the processes below a rank do, which it waits for or has started: workers of a data loader, of a pool, what a
//! shell runs.

use std::collections::BTreeMap;

use base::{Rank, RankSet};

use super::{Cite, roles::Role, words};
use crate::{
    known::Kind,
    samples::{ChildTrack, Motion, Observation, Track},
    stack::{Activity, Frames},
};

/// Kinds of doing that are told apart in a sentence.
const DOINGS: usize = 2;
/// Processes that are named one by one; more of them are counted.
const NUMBERED: usize = 3;
/// Sources of processes that Python starts for its own housekeeping.
const HOUSEKEEPING: [&str; 2] = ["/resource_tracker.py", "/forkserver.py"];

/// How a sentence goes on about the processes below a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Below {
    tie: Tie,
    /// What is said of them, with what it is joined to the sentence by.
    pub(super) said: String,
    /// Those of which something is said, and below which ranks they are.
    named: Vec<(Rank, i32)>,
}

/// What the processes are to their rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tie {
    /// ` for process 4711 `sh`, which is in read`: it waits for the end of this one.
    Awaited,
    /// `, and its process 4712 `python3` is in disk wait`.
    Had,
}

impl Below {
    /// Whether the rank waits for the end of the first of them.
    pub(super) fn is_awaited(&self) -> bool {
        self.tie == Tie::Awaited
    }

    /// What that is founded on; processes that did the same in the same samples are together.
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

/// What is said of the processes below some ranks that do the same; nothing where that has no bearing on what these do.
pub(super) fn of_group(frames: &Frames, all: &Observation, group: &words::Group) -> Option<Below> {
    if !has_bearing(group.role) {
        return None;
    }
    let first = group.ranks.first()?;
    let kind = all.ranks.get(&first)?.main.as_ref()?.wait()?.kind;
    let one = group.ranks.len() == 1;
    if kind == Kind::Child && one {
        return awaited(frames, all, first).or_else(|| had(frames, all, group));
    }
    had(frames, all, group)
}

/// Whether a rank in this role may wait for processes that it has started: what MPI, a debugger or the kernel holds does not.
const fn has_bearing(role: Role) -> bool {
    matches!(
        role,
        Role::Alive | Role::Helper | Role::Data | Role::Shared | Role::Lock | Role::Threads
    )
}

type Children = BTreeMap<i32, ChildTrack>;

/// Of a rank with one child, that and what it has started in turn, if each of them has one child.
fn awaited(frames: &Frames, all: &Observation, rank: Rank) -> Option<Below> {
    let children = &all.ranks.get(&rank)?.children;
    let is_direct = |child: &&ChildTrack| !children.contains_key(&child.parent);
    let mut direct = children.iter().filter(|(_, child)| is_direct(child));
    let (&pid, child) = direct.next().filter(|_| direct.next().is_none())?;
    let mut said = format!(" for process {pid} `{}`", child.name);
    let mut named = vec![(rank, pid)];
    let (mut pid, mut child) = (pid, child);
    // A child is above itself in no recording that is to be believed.
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
        tie: Tie::Awaited,
        said,
        named,
    })
}

/// The only child of a process that waits for it.
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

/// Whether a process may go on, its name, and what it does.
type Doing<'a> = (bool, &'a str, String);

/// What those below do, the fewest first: they are the odd ones, and what many do is mostly waiting for work.
fn had(frames: &Frames, all: &Observation, group: &words::Group) -> Option<Below> {
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
        tie: Tie::Had,
        said,
        named,
    })
}

/// Whether it is one of those that Python keeps for itself.
fn keeps_house(frames: &Frames, main: &Track) -> bool {
    let mut sources = main
        .frames()
        .iter()
        .filter_map(|&id| frames.get(id).source.as_ref());
    sources.any(|source| HOUSEKEEPING.iter().any(|file| source.file.ends_with(file)))
}

/// Whether it stands by no choice of its own.
fn is_held(main: &Track) -> bool {
    matches!(
        main.activity(),
        Some(Activity::Disk | Activity::Stopped | Activity::Frozen | Activity::Traced)
    )
}

/// Of how many processes something is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    One,
    Many,
}

/// `is in read (io.c:3)`, as the processor time and all samples together say.
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
