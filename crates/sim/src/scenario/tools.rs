//! Programs that act as tools: they ask for process tables and other facts of jobs, at any time, and some of them are gone when
//! the answer comes.

use std::collections::BTreeMap;

use base::{NodeId, Rank, Signal};
use pmix::value::Status;

use super::{Family, make::Maker};
use crate::{
    files::Owner,
    script::{About, Op, Patience, PmixOp, Question, Site},
};

/// Maximum number of questions that a program asks at once.
const AT_ONCE_MAX: u64 = 4;
/// Maximum number of places in a program at which it asks.
const PLACES_MAX: u64 = 3;

/// Whether a program stays for the answer to its first question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Haste {
    Leaves,
    Stays,
}

impl Maker<'_> {
    /// Lets spawners act as debuggers: their jobs are held until they release them.
    fn debug(&mut self, ops: &mut Vec<Op>, first: usize) {
        let is_spawn = |op: &Op| matches!(op, Op::Pmix(PmixOp::Spawn(..)));
        let Some(at) = ops.iter().position(is_spawn) else {
            return;
        };
        if self.tools.chance(40) {
            ops.insert(first + 1, Op::Pmix(PmixOp::Watch));
            return self.hold(ops, at + 1, first);
        }
        self.hold(ops, at, first);
    }

    fn hold(&mut self, ops: &mut Vec<Op>, at: usize, first: usize) {
        let Some(Op::Pmix(PmixOp::Spawn(child, procs, site, patience))) = ops.get_mut(at) else {
            return;
        };
        let held = match site {
            Site::Anywhere => Site::Held,
            Site::WithFiles => Site::HeldWithFiles,
            Site::Nowhere | Site::Held | Site::HeldWithFiles => return,
        };
        if !self.tools.chance(50) {
            return;
        }
        *site = held;
        let child = *child;
        let size: u32 = procs.iter().sum();
        if self.tools.chance(25) {
            // It is gone when the job starts, or soon afterwards, and does not release it.
            if self.tools.chance(50) {
                *patience = Patience::GoesOn;
            }
            ops.truncate(at + 1);
            if self.tools.chance(40) {
                ops.push(Op::Sleep(self.tools.micros(0, 5_000)));
            }
            ops.push(if self.tools.chance(50) {
                Op::Exit(3)
            } else {
                Op::Crash(Signal::KILL)
            });
            return;
        }
        let mut release = Vec::new();
        if self.tools.chance(50) {
            release.push(Op::Sleep(self.tools.micros(0, 30_000)));
        }
        if self.tools.chance(40) {
            let some = (0..size).map(Rank).filter(|_| self.tools.chance(50));
            let some = Some(some.collect());
            release.push(Op::Pmix(PmixOp::Release(child, some)));
            release.push(Op::Sleep(self.tools.micros(0, 3_000)));
        }
        release.push(Op::Pmix(PmixOp::Release(child, None)));
        ops.splice(at + 1..at + 1, release);
        if self.tools.chance(60) {
            let codes = vec![Status::READY_FOR_DEBUG];
            ops.insert(first + 1, Op::Pmix(PmixOp::Register(codes)));
        }
    }

    /// Lets programs of the job of the front, and of the jobs that it spawns, ask questions. The random numbers are drawn from a
    /// stream of their own, so that the other runs stay as they were.
    pub(super) fn inquire(&mut self, scripts: &mut BTreeMap<Rank, Vec<Op>>) {
        let families = [Family::Pmix, Family::Spawn, Family::Nodes, Family::Dvm];
        let spawns_with_files = self.files_of == Owner::SpawnedJobs;
        if !(families.contains(&self.family) || spawns_with_files) || !self.tools.chance(40) {
            return;
        }
        let size = self.size;
        self.inquire_of(scripts, size, &[About::Own, About::Own, About::Nobody]);
        let mut children = std::mem::take(&mut self.children);
        for child in &mut children {
            let size = u32::try_from(child.scripts.len()).unwrap_or(1).max(1);
            let about = [About::Own, About::Parent, About::Nobody];
            self.inquire_of(&mut child.scripts, size, &about);
        }
        self.children = children;
    }

    fn inquire_of(&mut self, scripts: &mut BTreeMap<Rank, Vec<Op>>, size: u32, about: &[About]) {
        // Some ask all at the same point, where their requests have the same tags, and one of them does not wait.
        let hasty = self
            .tools
            .chance(50)
            .then(|| self.tools.number(0, size - 1));
        for (rank, ops) in scripts {
            let is_init = |op: &Op| matches!(op, Op::Pmix(PmixOp::Init));
            let Some(first) = ops.iter().position(is_init) else {
                continue;
            };
            self.debug(ops, first);
            if let Some(hasty) = hasty {
                let who = if hasty == rank.0 {
                    Haste::Leaves
                } else {
                    Haste::Stays
                };
                self.ask_at_once(ops, first, size, who);
            }
            if !self.tools.chance(50) {
                continue;
            }
            let mut about = about.to_vec();
            about.extend(ops.iter().filter_map(|op| match op {
                Op::Pmix(PmixOp::Spawn(child, ..)) => Some(About::Child(*child)),
                _ => None,
            }));
            for _ in 0..self.tools.between(1, PLACES_MAX) {
                let at = self.tools.length(first + 1, ops.len());
                let patience = if self.tools.chance(70) {
                    Patience::Waits
                } else {
                    Patience::GoesOn
                };
                let ask = self.ask(size, &about, patience);
                ops.insert(at, ask);
            }
            if self.tools.chance(15) {
                let at = self.tools.length(first + 1, ops.len());
                let ask = self.ask(size, &about, Patience::GoesOn);
                ops.truncate(at);
                ops.push(ask);
                self.leave(ops);
            }
        }
    }

    /// Lets a program ask first of all. Who is hasty leaves without the answer.
    fn ask_at_once(&mut self, ops: &mut Vec<Op>, first: usize, size: u32, who: Haste) {
        let (question, patience) = match who {
            Haste::Leaves => (Question::Table, Patience::GoesOn),
            Haste::Stays => {
                let rank = Rank(self.tools.number(0, size.saturating_sub(1)));
                (Question::Pid(rank), Patience::Waits)
            }
        };
        let ask = PmixOp::Ask(vec![(About::Own, question)], patience);
        if who == Haste::Leaves {
            ops.truncate(first + 1);
            ops.push(Op::Pmix(ask));
            if self.tools.chance(60) {
                return come_back(ops);
            }
            return self.leave(ops);
        }
        ops.insert(first + 1, Op::Pmix(ask));
    }

    fn ask(&mut self, size: u32, about: &[About], patience: Patience) -> Op {
        let nodes = self.nodes;
        let questions = (0..self.tools.between(1, AT_ONCE_MAX)).map(|_| {
            let about = about[self.tools.length(0, about.len() - 1)];
            let question = match self.tools.below(10) {
                0..4 => Question::Table,
                4 => Question::OwnNode,
                5 => Question::Node(NodeId(self.tools.number(0, nodes))),
                6 | 7 => Question::Pid(Rank(self.tools.number(0, size))),
                8 => Question::Facts,
                _ => Question::Jobs,
            };
            (about, question)
        });
        Op::Pmix(PmixOp::Ask(questions.collect(), patience))
    }

    /// Ends a program that has asked and does not wait.
    fn leave(&mut self, ops: &mut Vec<Op>) {
        if self.tools.chance(40) {
            ops.push(Op::Sleep(self.tools.micros(0, 5_000)));
        }
        match self.tools.below(5) {
            0 => ops.push(Op::Exit(0)),
            1 => ops.push(Op::Crash(Signal::KILL)),
            2 => {
                ops.push(Op::Pmix(PmixOp::Garbage));
                ops.push(Op::Sleep(self.tools.millis(0, 2_000)));
            }
            3 => come_back(ops),
            _ => ops.push(Op::Pmix(PmixOp::Finalize)),
        }
    }
}

/// Closes the connection and opens another one, over which the program asks under the same tags as before.
fn come_back(ops: &mut Vec<Op>) {
    let questions = vec![
        (About::Own, Question::Pid(Rank(0))),
        (About::Own, Question::Table),
    ];
    ops.extend(
        [
            PmixOp::HangUp,
            PmixOp::Init,
            PmixOp::Ask(questions, Patience::Waits),
            PmixOp::Finalize,
        ]
        .map(Op::Pmix),
    );
}
