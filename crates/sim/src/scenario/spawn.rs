//! Random jobs that ranks spawn by PMIx.

use std::collections::BTreeMap;

use base::Rank;
use dvm::proto::StartFailure;

use super::{Child, make::Maker};
use crate::files::Owner;
use crate::script::{Data, FOR_EVER, Op, Party, Patience, PmixOp, Site};

/// Maximum number of ranks of a spawned job.
const CHILD_RANKS_MAX: u32 = 4;
/// Maximum depth of a spawned job in the tree of jobs; the job of the front has depth 0.
const DEPTH_MAX: u32 = 2;

impl Maker<'_> {
    /// Returns the scripts of the front's job, in which some ranks spawn other jobs.
    pub(super) fn spawners(&mut self, size: u32) -> BTreeMap<Rank, Vec<Op>> {
        let mut scripts = self.talk(size);
        for _ in 0..self.rng.between(1, 3) {
            let rank = Rank(self.rng.number(0, size - 1));
            let spawn = self.spawn(rank, 1);
            if let Some(ops) = scripts.get_mut(&rank) {
                self.insert(ops, spawn);
            }
        }
        scripts
    }

    /// Inserts operations at a random position of a script, after its init.
    fn insert(&mut self, ops: &mut Vec<Op>, what: Vec<Op>) {
        let init = |op: &Op| matches!(op, Op::Pmix(PmixOp::Init));
        let first = ops.iter().position(init).map_or(ops.len(), |at| at + 1);
        let at = self.rng.length(first, ops.len());
        ops.splice(at..at, what);
    }

    /// Adds a child job, whose depth in the tree of jobs is `depth`. Returns the operations of the spawner: the spawn, and its
    /// part in the collectives with the child, if there are any.
    fn spawn(&mut self, by: Rank, depth: u32) -> Vec<Op> {
        let number = self.children.len();
        self.children.push(Child::default());
        let mut apps = vec![self.rng.number(1, CHILD_RANKS_MAX)];
        if self.rng.chance(25) {
            apps.push(self.rng.number(1, 2));
        }
        let size = apps.iter().sum();
        let before = self.child.replace(number);
        let site = if self.rng.chance(8) {
            Site::Nowhere
        } else if self.files_of == Owner::SpawnedJobs && self.rng.chance(80) {
            Site::WithFiles
        } else {
            Site::Anywhere
        };
        let mut ops = vec![Op::Pmix(PmixOp::Spawn(
            number,
            apps.clone(),
            site,
            Patience::Waits,
        ))];
        let mut child = Child::default();
        match self.rng.below(10) {
            0 | 1 => {
                for rank in (0..size).map(Rank) {
                    let script = self.short_life();
                    child.scripts.insert(rank, script);
                }
            }
            2 | 3 => child.scripts = self.talk(size),
            4 => {
                for rank in (0..size).map(Rank) {
                    let script = self.endless();
                    child.scripts.insert(rank, script);
                }
            }
            5 => {
                child.unstartable = self.unstartable_child(&apps);
                child.scripts = self.talk(size);
            }
            _ => {
                child.scripts = self.relatives(size);
                ops.extend(self.relations(by, number, size));
                if self.rng.chance(20) {
                    let victim = Rank(self.rng.number(0, size - 1));
                    if let Some(ops) = child.scripts.get_mut(&victim) {
                        self.break_off(ops);
                    }
                }
            }
        }
        if depth < DEPTH_MAX && self.rng.chance(20) {
            let rank = Rank(self.rng.number(0, size - 1));
            let spawn = self.spawn(rank, depth + 1);
            if let Some(ops) = child.scripts.get_mut(&rank) {
                self.insert(ops, spawn);
            }
        }
        self.child = before;
        if let Some(place) = self.children.get_mut(number) {
            *place = child;
        }
        ops
    }

    fn short_life(&mut self) -> Vec<Op> {
        let mut ops = self.some_output(3);
        ops.push(Op::Sleep(self.rng.millis(0, 400)));
        ops.push(self.ending());
        ops
    }

    /// Returns the operations of a spawner whose child connects to it.
    fn relations(&mut self, by: Rank, child: usize, size: u32) -> Vec<Op> {
        let all = vec![Party::Rank(by), Party::Child(child)];
        let last = Party::ChildRank(child, Rank(size - 1));
        let mut ops = Vec::new();
        let mut say = |op| ops.push(Op::Pmix(op));
        if self.rng.chance(30) {
            // Job info of another job is available without a connect.
            say(PmixOp::Get(vec![
                (Party::Child(child), "pmix.job.size".to_owned()),
                (last, "pmix.lrank".to_owned()),
            ]));
        }
        say(PmixOp::Put(format!("parent of {child}")));
        say(PmixOp::Commit);
        say(PmixOp::Connect(all.clone()));
        say(PmixOp::Get(vec![(last, "child".to_owned())]));
        say(PmixOp::Fence(all.clone(), Data::With));
        say(PmixOp::Disconnect(all));
        ops
    }

    /// Returns the scripts of a child that connects to its spawner.
    fn relatives(&mut self, size: u32) -> BTreeMap<Rank, Vec<Op>> {
        let child = self.child.unwrap_or(0);
        let all = vec![Party::Parent, Party::Job];
        let asks = self.rng.chance(30);
        let mut scripts = BTreeMap::new();
        for rank in (0..size).map(Rank) {
            let mut ops = vec![Op::Sleep(self.rng.millis(0, 40)), Op::Pmix(PmixOp::Init)];
            let mut say = |op| ops.push(Op::Pmix(op));
            if asks {
                say(PmixOp::Get(vec![(Party::Parent, "pmix.hname".to_owned())]));
            }
            say(PmixOp::Put("child".to_owned()));
            say(PmixOp::Commit);
            say(PmixOp::Connect(all.clone()));
            say(PmixOp::Get(vec![(
                Party::Parent,
                format!("parent of {child}"),
            )]));
            say(PmixOp::Fence(all.clone(), Data::With));
            say(PmixOp::Disconnect(all.clone()));
            say(PmixOp::Finalize);
            ops.extend(self.some_output(2));
            if self.rng.chance(10) {
                self.needs_end = true;
                ops.push(Op::Sleep(FOR_EVER));
            }
            scripts.insert(rank, ops);
        }
        scripts
    }

    fn unstartable_child(&mut self, apps: &[u32]) -> BTreeMap<Rank, StartFailure> {
        let (failure, by_app) = self.start_failure();
        let first = apps.first().copied().unwrap_or(1);
        let size: u32 = apps.iter().sum();
        let victim = self.rng.number(0, size - 1);
        let alike = |rank: &u32| {
            if by_app {
                (*rank < first) == (victim < first)
            } else {
                *rank == victim
            }
        };
        let ranks = (0..size).filter(alike);
        ranks.map(|rank| (Rank(rank), failure.clone())).collect()
    }
}
