//! Jobs of all kinds over the tree, and what happens to its network, nodes and processes: the families `dvm` and `thousand`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::Rank;
use dvm::{proto::FrontId, spec::EndPolicy};
use overlay::{Address, node::Timing};

use super::{Family, Fault, make::Maker};
use crate::{
    carrier::TreePlan,
    members::{Trouble, harmless},
    script::Op,
};

/// Maximum number of faults of a run; a run has at least three.
const FAULTS_MAX: u64 = 6;
/// Time in which most faults happen, in milliseconds.
const FAULTY_MS: u64 = 1_500;
/// Sleeps up to this length are stretched, so that jobs last while faults happen.
const SHORT: Duration = Duration::from_millis(100);

impl Maker<'_> {
    /// Returns the tree of a run; `None` in other families.
    pub(super) fn tree_plan(&mut self) -> Option<TreePlan> {
        if !self.is_of_tree() {
            return None;
        }
        let timings = [(10_000, 2_000), (3_000, 4_000), (1_000, 3_000)];
        let (lease, window) = match self.family {
            // A thousand links say often enough that they are alive.
            Family::Thousand => timings[0],
            _ => self.rng.pick(timings),
        };
        let radix = match self.family {
            Family::Thousand => self.rng.pick([8, 32, 32]),
            _ => self.rng.pick([2, 2, 3, 4, 8, 32]),
        };
        Some(TreePlan {
            radix,
            timing: Timing {
                lease: Duration::from_millis(lease),
                window: Duration::from_millis(window),
            },
            delay_max: Duration::from_micros(self.rng.pick([100, 2_000, 20_000])),
        })
    }

    /// Returns true if the daemons of this family are joined by the tree.
    pub(super) fn is_of_tree(&self) -> bool {
        matches!(self.family, Family::Dvm | Family::Thousand)
    }

    pub(super) fn jobs_of_tree(&mut self, end: &mut EndPolicy) -> BTreeMap<Rank, Vec<Op>> {
        let size = self.size;
        if self.family == Family::Thousand {
            return self.thousand(end);
        }
        let mut scripts = match self.rng.below(10) {
            0..4 => self.talk(size),
            4 | 5 => return self.fencers(end),
            6 | 7 => self.spawners(size),
            8 => self.each(|maker| maker.writer()),
            _ => {
                let mut floods = 2;
                self.each(|maker| match maker.rng.below(3) {
                    0 if floods > 0 => {
                        floods -= 1;
                        maker.flood(0)
                    }
                    1 => maker.endless(),
                    _ => maker.life(),
                })
            }
        };
        let factor = self.rng.pick([1, 5, 20]);
        let ops = scripts.values_mut().flatten();
        for op in ops {
            if let Op::Sleep(time) = op
                && *time < SHORT
            {
                *time *= factor;
            }
        }
        scripts
    }

    pub(super) fn each(
        &mut self,
        mut script: impl FnMut(&mut Self) -> Vec<Op>,
    ) -> BTreeMap<Rank, Vec<Op>> {
        (0..self.size)
            .map(|rank| (Rank(rank), script(self)))
            .collect()
    }

    /// Adds three faults or more.
    pub(super) fn troubles(&mut self, timing: Timing) {
        let mut healthy: Vec<Address> = (1..=self.nodes).map(Address).collect();
        let many = self.rng.between(3, FAULTS_MAX);
        for number in 0..many + 2 {
            let early = self.rng.chance(35);
            let when = if early {
                self.rng.micros(0, 60_000)
            } else {
                self.rng.millis(0, FAULTY_MS)
            };
            let fault = if number < many {
                Fault::Trouble(self.trouble(&mut healthy, timing))
            } else {
                match self.rng.below(20) {
                    0..5 => Fault::KillRank(self.any_rank()),
                    5 => Fault::KillFront(FrontId(0)),
                    6 | 7 => Fault::LoseController,
                    _ => continue,
                }
            };
            self.faults.push((when, fault));
        }
    }

    /// Returns a fault of a process that does not die of another one.
    fn trouble(&mut self, healthy: &mut Vec<Address>, timing: Timing) -> Trouble {
        if healthy.is_empty() {
            return Trouble::Stop(Address::ROOT, self.rng.millis(200, 1_500));
        }
        let index = self.rng.length(0, healthy.len() - 1);
        let who = healthy[index];
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(0);
        let (harmless, whole) = (
            millis(harmless(timing)),
            millis(timing.lease + timing.window),
        );
        let time = match self.rng.below(10) {
            0..6 => self.rng.millis(20, harmless),
            6 => self.rng.millis(harmless, whole + 1_500),
            _ => self.rng.millis(whole + 1_500, 2 * whole),
        };
        match self.rng.below(25) {
            0..6 => Trouble::Reset(who),
            6..9 => Trouble::Part([who].into(), time),
            9 => {
                let mut nodes = BTreeSet::from([who]);
                for _ in 0..self.rng.below(u64::from(self.nodes)) {
                    nodes.insert(Address(self.rng.number(1, self.nodes)));
                }
                Trouble::Part(nodes, time)
            }
            10..13 => Trouble::Mute(who, time),
            13..16 => Trouble::Stop(who, time),
            16 | 17 => Trouble::Stop(Address::ROOT, self.rng.millis(200, 1_500)),
            18..22 => {
                healthy.swap_remove(index);
                Trouble::Kill(who)
            }
            _ => {
                healthy.swap_remove(index);
                Trouble::PowerOff(who)
            }
        }
    }
}
