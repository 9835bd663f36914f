//! Generates the runs of the family `debug`: the tree, the ranks and what they do, the agents, the commands and the faults.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{NodeId, Rank, RankSet, Time};
use debug::{
    proto::{Action, Extent},
    report::Detail,
    session::SILENCE,
};
use overlay::{Address, node::Timing};

use super::{
    member::Character,
    program::PHASES,
    truth::{After, Life},
};
use crate::{
    members::{Trouble, harmless},
    rng::Rng,
};

/// Number of faults of a run that has any.
const FAULTS: std::ops::RangeInclusive<u64> = 3..=6;
/// Time in which commands begin, in milliseconds.
const LENGTH: u64 = 20_000;
/// Time at which some further commands begin, in milliseconds: agents may be silent by then.
const LATE: u64 = 65_000;
/// Largest number of nodes for a command that may take as long as any.
const LONG_NODES: u32 = 3;
/// Pid of the first rank of a node.
const FIRST_PID: i32 = 1_000;

/// A run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) members: u32,
    pub(super) radix: u32,
    pub(super) timing: Timing,
    pub(super) delay_max: Duration,
    /// Start time of each process. Processes without one never start.
    pub(super) starts: BTreeMap<Address, Duration>,
    pub(super) lives: BTreeMap<Rank, Life>,
    pub(super) characters: BTreeMap<NodeId, Character>,
    /// The longest time that a step takes on each node, in microseconds.
    pub(super) slowness: BTreeMap<NodeId, u64>,
    pub(super) acts: Vec<(Duration, Act)>,
    /// Faults at any time.
    pub(super) faults: Vec<(Duration, Fault)>,
    pub(super) count: u32,
}

/// An act of the user. A search waits for the commands before it, and a command for the search before it.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Search,
    Command {
        ranks: RankSet,
        action: Action,
        cancelled_after: Option<Duration>,
        /// Faults, at times since the command was given.
        faults: Vec<(Duration, Fault)>,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Fault {
    Trouble(Trouble),
    /// The agent of a node is stopped for a while. The process that keeps its place in the tree runs.
    Stall(NodeId, Duration),
    /// A rank exits.
    End(Rank),
}

pub(super) fn make(rng: &mut Rng) -> Plan {
    let members = match rng.below(10) {
        0..3 => rng.number(1, 4),
        3..9 => rng.number(3, 16),
        _ => rng.number(16, 40),
    };
    let timings = [
        (10_000, 2_000),
        (10_000, 2_000),
        (3_000, 4_000),
        (1_000, 3_000),
    ];
    let (lease, window) = rng.pick(timings);
    let mut plan = Plan {
        members,
        radix: rng.pick([1, 2, 2, 3, 4, 32]).max(members / 8),
        timing: Timing {
            lease: Duration::from_millis(lease),
            window: Duration::from_millis(window),
        },
        delay_max: Duration::from_micros(rng.pick([100, 2_000, 30_000])),
        starts: BTreeMap::new(),
        lives: BTreeMap::new(),
        characters: BTreeMap::new(),
        slowness: BTreeMap::new(),
        acts: Vec::new(),
        faults: Vec::new(),
        count: 0,
    };
    let start_max = rng.pick([0, 200, 3_000]);
    for member in (1..=members).map(Address) {
        if !rng.chance(3) {
            plan.starts.insert(member, rng.millis(0, start_max));
        }
    }
    let is_rough = rng.chance(90);
    plan.add_ranks(rng);
    plan.add_agents(rng, is_rough);
    plan.acts.push((Duration::ZERO, Act::Search));
    for _ in 0..rng.between(1, 6) {
        let act = match rng.below(6) {
            0 => Act::Search,
            _ => plan.command(rng),
        };
        let late = if rng.chance(20) { LATE } else { 0 };
        plan.acts.push((rng.millis(late, late + LENGTH), act));
    }
    if is_rough {
        plan.add_accident(rng);
    }
    plan.acts.sort_by_key(|(when, _)| *when);
    if is_rough {
        for _ in 0..rng.between(*FAULTS.start(), *FAULTS.end()) {
            plan.add_fault(rng);
        }
    }
    plan
}

impl Plan {
    fn add_ranks(&mut self, rng: &mut Rng) {
        let first = if rng.chance(50) { 0 } else { 1 };
        let mut rank = 0;
        for node in first..=self.members {
            let own = u32::from(rng.chance(95)) * rng.number(1, 4);
            for pid in (FIRST_PID..).take(own as usize) {
                let mut phases = vec![(Time::ZERO, rng.number(0, PHASES - 1))];
                let mut at = Time::ZERO;
                while rng.chance(60) {
                    at = at + rng.millis(1, LENGTH);
                    phases.push((at, rng.number(0, PHASES - 1)));
                }
                let ends = rng.chance(25);
                let life = Life {
                    node: NodeId(node),
                    pid,
                    phases,
                    ends: ends.then(|| Time::ZERO + rng.millis(0, LENGTH * 3 / 2)),
                    after: if rng.chance(50) {
                        After::Nothing
                    } else {
                        After::Reused
                    },
                };
                self.lives.insert(Rank(rank), life);
                rank += 1;
            }
        }
    }

    fn add_agents(&mut self, rng: &mut Rng, is_rough: bool) {
        for node in (0..=self.members).map(NodeId) {
            let slowness = match rng.below(10) {
                0..6 => 2_000,
                6 | 7 => 50_000,
                8 => 900_000,
                _ => 4_000_000,
            };
            self.slowness.insert(node, slowness);
            let is_other = is_rough && node.0 > 0 && rng.chance(8);
            let character = match rng.below(10) {
                _ if !is_other => Character::Honest,
                0 | 1 => Character::Refuses,
                2 => Character::AnswersCancelled,
                3 => Character::Chatters(rng.millis(5_000, 50_000)),
                4 => Character::Twice,
                5 => Character::Garbles,
                6 => Character::Babbles,
                7 => Character::Unasked,
                8 => rng.pick([Character::Others, Character::UnknownCommand]),
                _ => Character::OtherKind,
            };
            self.characters.insert(node, character);
        }
    }

    /// Lets some runs have what needs several nodes or faults at the same time.
    fn add_accident(&mut self, rng: &mut Rng) {
        let node = NodeId(rng.number(1, self.members));
        let other = NodeId(rng.number(1, self.members));
        let chatters = Character::Chatters(rng.millis(5_000, 30_000));
        let (cancelled_after, fault) = match rng.below(10) {
            // An agent is given up, and answers while the command waits for another one.
            0 => {
                self.characters.insert(node, Character::AnswersCancelled);
                self.characters.insert(other, chatters);
                self.count += 1;
                let stall = Fault::Stall(node, rng.millis(LATE, LATE + LENGTH));
                let cancelled_after = rng.millis(100_000, 180_000);
                (Some(cancelled_after), Some((Duration::ZERO, stall)))
            }
            1 if self.members <= LONG_NODES => {
                self.characters.insert(other, chatters);
                (None, None)
            }
            2 => {
                for character in self.characters.values_mut().skip(1) {
                    if rng.chance(40) {
                        *character = Character::Refuses;
                    }
                }
                return;
            }
            // A rank exits during its sample, and another process gets its pid.
            3 => {
                let last = self.lives.len().saturating_sub(1);
                let Some((rank, life)) = self.lives.iter_mut().nth(rng.length(0, last)) else {
                    return;
                };
                (life.ends, life.after) = (None, After::Reused);
                self.slowness.insert(life.node, 900_000);
                self.count += 1;
                (None, Some((rng.millis(0, 10_000), Fault::End(*rank))))
            }
            _ => return,
        };
        let command = Act::Command {
            ranks: self.lives.keys().copied().collect(),
            action: rng.pick([
                Action::Stacks(Detail::Folded),
                Action::Sample(Extent::Everybody),
            ]),
            cancelled_after,
            faults: fault.into_iter().collect(),
        };
        self.acts.push((rng.millis(0, LENGTH), command));
    }

    fn command(&self, rng: &mut Rng) -> Act {
        let all = self.lives.keys().copied();
        let ranks: RankSet = if rng.chance(60) {
            all.collect()
        } else {
            all.filter(|_| rng.chance(60)).collect()
        };
        let chatters = { self.characters.values() }.any(|it| matches!(it, Character::Chatters(_)));
        // With many nodes, a command that takes as long as any takes too many events.
        let is_long = chatters && self.members > LONG_NODES;
        let cancelled_after = match rng.below(10) {
            0 => Some(rng.micros(0, 100_000)),
            1 => Some(rng.millis(0, 90_000)),
            _ if is_long => Some(rng.millis(1_000, 150_000)),
            _ => None,
        };
        Act::Command {
            ranks,
            action: match rng.below(10) {
                0..4 => Action::Stacks(rng.pick([Detail::Folded, Detail::Full])),
                4..6 => Action::Sample(Extent::Children),
                6..9 => Action::Sample(Extent::Everybody),
                _ => Action::Describe,
            },
            cancelled_after,
            faults: Vec::new(),
        }
    }

    /// Adds a fault, mostly shortly after a command, when the answers are on their way.
    fn add_fault(&mut self, rng: &mut Rng) {
        let fault = self.fault(rng);
        self.count += 1;
        let acts = self.acts.iter_mut();
        let commands = acts.filter_map(|(_, act)| match act {
            Act::Command { faults, .. } => Some(faults),
            Act::Search => None,
        });
        let mut commands: Vec<_> = commands.collect();
        if commands.is_empty() || rng.chance(20) {
            return self.faults.push((rng.millis(0, LENGTH), fault));
        }
        let most = rng.pick([20, 100, 1_000, 10_000, 70_000]);
        let last = commands.len() - 1;
        commands[rng.length(0, last)].push((rng.millis(0, most), fault));
    }

    fn fault(&self, rng: &mut Rng) -> Fault {
        let who = Address(rng.number(1, self.members));
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(0);
        let harmless = ms(harmless(self.timing));
        let whole = ms(self.timing.lease + self.timing.window);
        let silence = ms(SILENCE);
        let time = match rng.below(10) {
            0..6 => rng.millis(20, harmless),
            6 => rng.millis(harmless, whole + 1_500),
            _ => rng.millis(whole + 1_500, 2 * whole),
        };
        let trouble = match rng.below(20) {
            0 | 1 => Trouble::Reset(who),
            2 | 3 => Trouble::Part([who].into(), time),
            4 => {
                let mut nodes = BTreeSet::from([who]);
                for _ in 0..rng.below(u64::from(self.members)) {
                    nodes.insert(Address(rng.number(1, self.members)));
                }
                Trouble::Part(nodes, time)
            }
            5 | 6 => Trouble::Stop(who, time),
            7..9 => Trouble::Kill(who),
            9 | 10 => Trouble::PowerOff(who),
            11 => Trouble::Mute(who, time),
            12..14 if !self.lives.is_empty() => {
                let last = u32::try_from(self.lives.len() - 1).unwrap_or(0);
                return Fault::End(Rank(rng.number(0, last)));
            }
            _ => {
                let time = match rng.below(4) {
                    0 => rng.millis(10, 3_000),
                    1 => rng.millis(3_000, silence - 1_000),
                    2 => rng.millis(silence - 1_000, silence + 1_000),
                    _ => rng.millis(silence, 3 * silence),
                };
                return Fault::Stall(NodeId(who.0), time);
            }
        };
        Fault::Trouble(trouble)
    }
}
