//! Programs that act as tools: they ask for process tables and other facts of jobs, at any time, and some of them are gone when
//! the answer comes.

use std::collections::BTreeMap;

use base::{NodeId, Rank, Signal};

use super::{Family, make::Maker};
use crate::script::{About, Op, Patience, PmixOp, Question};

/// Maximum number of questions that a program asks at once.
const AT_ONCE_MAX: u64 = 4;
/// Maximum number of places in a program at which it asks.
const PLACES_MAX: u64 = 3;

impl Maker<'_> {
    /// Lets programs of the job of the front, and of the jobs that it spawns, ask questions. The random numbers are drawn from a
    /// stream of their own, so that the other runs stay as they were.
    pub(super) fn inquire(&mut self, scripts: &mut BTreeMap<Rank, Vec<Op>>) {
        let families = [Family::Pmix, Family::Spawn, Family::Nodes, Family::Dvm];
        if !families.contains(&self.family) || !self.tools.chance(40) {
            return;
        }
        let size = self.size;
        self.inquire_of(scripts, size, &[About::Own, About::Own, About::Nobody]);
        let mut children = std::mem::take(&mut self.children);
        for child in &mut children {
            let size = u32::try_from(child.scripts.len()).unwrap_or(1);
            let about = [About::Own, About::Parent, About::Nobody];
            self.inquire_of(&mut child.scripts, size, &about);
        }
        self.children = children;
    }

    fn inquire_of(&mut self, scripts: &mut BTreeMap<Rank, Vec<Op>>, size: u32, about: &[About]) {
        for ops in scripts.values_mut() {
            let is_init = |op: &Op| matches!(op, Op::Pmix(PmixOp::Init));
            let Some(first) = ops.iter().position(is_init) else {
                continue;
            };
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
            3 => {
                ops.push(Op::Pmix(PmixOp::HangUp));
                // Whoever comes back has a new connection, and asks under the same tags.
                ops.push(Op::Pmix(PmixOp::Init));
                ops.push(Op::Pmix(PmixOp::Ask(
                    vec![(About::Own, Question::Facts), (About::Own, Question::Table)],
                    Patience::Waits,
                )));
                ops.push(Op::Pmix(PmixOp::Finalize));
            }
            _ => ops.push(Op::Pmix(PmixOp::Finalize)),
        }
    }
}
