//! Descendants of ranks: workers of a data loader or a pool, commands of a shell. A report groups them by the name of their
//! command, below the ranks.

use std::collections::BTreeMap;

use base::{Rank, RankSet};
use serde::{Deserialize, Serialize};

use super::counted;
use crate::{
    snapshot::Child,
    stack::{Activity, FrameId, Seen, Thread},
    tree::{Ending, Threads, Tree, Which},
};

/// The owner of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ThreadOwner {
    /// The program. The stack of the thread is shown.
    Program,
    /// A library, described in a few words. Such threads are only counted.
    Library(String),
}

/// The descendants with one name, in one sample.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Children {
    /// All of these processes, sorted by rank and pid.
    pub procs: Vec<ChildPlace>,
    /// The stacks of the processes that could be sampled.
    pub tree: Tree,
    /// Number of processes that could not be sampled.
    pub unseen: usize,
}

/// One descendant of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChildPlace {
    /// The rank of which it is a descendant.
    pub rank: Rank,
    /// Pid of the process.
    pub pid: i32,
    /// Pid of its parent.
    pub parent: i32,
}

/// Groups the descendants of all ranks by name.
pub(super) fn of(
    children: &BTreeMap<Rank, Vec<Child>>,
    mut owner: impl FnMut(&Thread) -> ThreadOwner,
    mut shown: impl FnMut(&Thread) -> Vec<FrameId>,
) -> BTreeMap<String, Children> {
    let mut named: BTreeMap<String, Children> = BTreeMap::new();
    for (&rank, children) in children {
        for child in children {
            let of_name = named.entry(child.name.to_string()).or_default();
            of_name.procs.push(ChildPlace {
                rank,
                pid: child.pid,
                parent: child.parent,
            });
            let Seen::Threads(threads) = &child.seen else {
                of_name.unseen += 1;
                continue;
            };
            let living = threads.iter().filter(|it| it.activity != Activity::Ended);
            for (index, thread) in living.enumerate() {
                if index > 0 && owner(thread) != ThreadOwner::Program {
                    continue;
                }
                let ending = Ending {
                    thread: Which::nth(index),
                    activity: thread.activity,
                    end: thread.stack.end.clone(),
                };
                of_name.tree.insert(&shown(thread), ending, rank);
            }
        }
    }
    named
}

impl Children {
    /// Adds the descendants of other ranks. `translation` maps their frame ids to ours.
    pub(super) fn merge(&mut self, other: &Self, translation: &[FrameId]) {
        self.procs.extend(&other.procs);
        self.procs.sort_unstable();
        self.tree.merge(&other.tree, translation);
        self.unseen = self.unseen.saturating_add(other.unseen);
    }

    /// Returns the ranks that have such descendants.
    #[must_use]
    pub fn ranks(&self) -> RankSet {
        self.procs.iter().map(|child| child.rank).collect()
    }

    /// Returns `4 processes of python3 below these ranks, 2 each`. For up to [`NUMBERED`] processes it has their pids
    /// instead.
    pub(super) fn sentence(&self, name: &str) -> String {
        let mut threads = Threads::default();
        self.procs
            .iter()
            .for_each(|child| threads.insert(child.rank));
        let each: Vec<u32> = threads.by_count().map(|(each, _)| each).collect();
        let processes = counted(self.procs.len() as u64, "process");
        let numbers: Vec<String> = self.procs.iter().map(|it| it.pid.to_string()).collect();
        let more = match each[..] {
            _ if numbers.len() <= NUMBERED => format!(": {}", numbers.join(", ")),
            [each] if each > 1 => format!(", {each} each"),
            _ => String::new(),
        };
        let unseen = match self.unseen {
            0 => String::new(),
            unseen => format!("; {unseen} could not be looked at"),
        };
        let these = if threads.ranks().len() == 1 {
            "this rank"
        } else {
            "these ranks"
        };
        format!("{processes} of `{name}` below {these}{more}{unseen}")
    }
}

/// Maximum number of processes to list by pid.
pub(super) const NUMBERED: usize = 4;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        report::{Colour, Detail, Guides, Layout, Report, from_json, html, json, text},
        samples::{Boundary, Motion, Recording, tests::script},
        snapshot::Snapshot,
        stack::Missing,
    };

    /// Makes ranks 10 to 19 of the script workers of rank 0, and ranks 20 to 39 workers of rank 1.
    fn recording(written: &str) -> Recording {
        let mut recording = script::recording(Duration::from_secs(1), &[written, written, written]);
        for sample in &mut recording.samples {
            let Snapshot {
                procs, children, ..
            } = &mut sample.snapshot;
            for (rank, seen) in procs.split_off(&Rank(10)) {
                let pid = 1000 + i32::try_from(rank.0).unwrap();
                children.entry(Rank(rank.0 / 20)).or_default().push(Child {
                    pid,
                    parent: 7,
                    name: "worker\u{1b}".into(),
                    seen,
                });
            }
        }
        recording
    }

    fn shown(recording: Recording) -> String {
        let look = Layout {
            width: 100,
            detail: Detail::Folded,
            colour: Colour::Never,
            guides: Guides::Unicode,
        };
        let report = Report::of(recording, Detail::Folded);
        assert!(html(&report).contains("below th"));
        let text = text(&report, &look);
        let written = json(&report);
        let again = from_json(&written).unwrap();
        assert_eq!(json(&again), written);
        assert_eq!(text, super::super::text(&again, &look));
        text.split_once("\n\n").unwrap().1.to_owned()
    }

    #[test]
    fn below_their_ranks() {
        insta::assert_snapshot!(shown(recording(
            "0-1: main@a.c:5 > read!libc.so = read 0\n\
             10-12,20-22: main@w.c:1 > sem_wait!libc.so = futex 0\n\
             23: not permitted"
        )), @r"
    2 [0-1] reading, stuck, 0% cpu: read < main (a.c:5)

    2 [0-1] main (a.c:5) > read · reading

    2 [0-1] 7 processes of `worker�` below these ranks; 1 could not be looked at
    2 [0-1] (3 threads each) main (w.c:1) > sem_wait · futex
    ");
        insta::assert_snapshot!(shown(recording(
            "0: main@a.c:5 > read!libc.so = read 0\n10: main@w.c:1 > work = running 9"
        )), @r"
    1 [0] reading, stuck, 0% cpu: read < main (a.c:5)

    1 [0] main (a.c:5) > read · reading

    1 [0] 1 process of `worker�` below this rank: 1010
    1 [0] main (w.c:1) > work · running
    ");
    }

    #[test]
    fn each_is_followed_through_the_looks() {
        let mut recording = recording(
            "0: main@a.c:5 > read!libc.so = read 0\n\
             10: main@w.c:1 > sem_wait!libc.so = futex 0\n\
             11: not permitted\n12: main = running 0",
        );
        let last = recording.samples.last_mut().unwrap();
        let children = last.snapshot.children.get_mut(&Rank(0)).unwrap();
        // One worker exits before the last sample.
        children.pop();
        assert!(recording.is_whole());
        let all = recording.observe(Boundary::Known);
        let children = &all.ranks[&Rank(0)].children;
        assert_eq!(children.keys().copied().collect::<Vec<_>>(), [1010, 1011]);
        let worker = children[&1010].main.as_ref().unwrap();
        assert_eq!(worker.motion, Motion::Stuck);
        assert!(children[&1011].main.is_none());
        let unseen = recording.samples[0].snapshot.children[&Rank(0)].get(1);
        assert!(matches!(
            unseen.map(|child| &child.seen),
            Some(Seen::Missing(Missing::NotPermitted))
        ));
    }
}
