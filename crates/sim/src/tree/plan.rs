//! Generates the trees of the families `tree` and `crowd`: their size and timing, what their processes send, and the faults.

use std::{collections::BTreeSet, time::Duration};

use base::NodeId;
use overlay::{
    Address,
    lanes::Lane,
    node::{Class, Patience, Timing},
};

use super::shape;
use crate::{
    members::{Trouble, harmless},
    rng::Rng,
};

/// Longest message, in bytes.
pub(super) const LONGEST: usize = 60_000;
/// Address of the first stranger: no process of a tree has it.
pub(super) const STRANGERS: u32 = 0x00f0_0000;
/// Number of faults of a run that has any.
const FAULTS: std::ops::RangeInclusive<u64> = 3..=6;
/// Number of members of a crowd, with the root 1,024 processes.
const CROWD: u32 = 1_023;

/// Size of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// Up to 90 members, mostly few.
    Any,
    /// [`CROWD`] members.
    Crowd,
}

/// A run of the family `tree` or `crowd`.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) members: u32,
    pub(super) radix: u32,
    pub(super) timing: Timing,
    pub(super) delay_max: Duration,
    /// Processes that are never started.
    pub(super) absent: BTreeSet<Address>,
    pub(super) steps: Vec<(Duration, Step)>,
    pub(super) faults: u32,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Start(Address),
    /// The root expects an absent process no longer.
    GiveUp(Address),
    /// A process sends this many messages to the root, as far as there is room.
    Send {
        from: Address,
        lane: Lane,
        count: u32,
        length: usize,
    },
    /// Processes that this number chooses send a message that may be merged.
    Say {
        choice: u64,
        lane: Lane,
        class: Class,
    },
    /// The root sends a message to members that this number chooses.
    Cast {
        choice: u64,
        lane: Lane,
        length: usize,
    },
    /// The root asks members that this number chooses.
    Ask {
        choice: u64,
        lane: Lane,
        patience: Patience,
    },
    Fault(Fault),
    /// Ends a fault of the network.
    Mend(BTreeSet<Address>),
    /// Ends [`Trouble::Mute`].
    Unmute(Address),
}

#[derive(Clone, Debug)]
pub(super) enum Fault {
    Trouble(Trouble),
    /// The process is started a second time.
    Duplicate(Address),
    /// Somebody sends again what the process has sent to the root.
    Replay(Address),
    Stranger(Stranger),
}

/// Somebody who is not part of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stranger {
    /// It sends something else, twice.
    Garbage,
    /// It connects, and sends nothing.
    Silent,
    /// It connects and closes the connection.
    Scan,
    /// It does not know the secret.
    Secret,
    /// It is another build.
    Build,
    /// Nobody has started it.
    Unknown,
}

pub(super) fn make(rng: &mut Rng, size: Size) -> Plan {
    let (members, radix) = match (size, rng.below(10)) {
        (Size::Crowd, _) => (CROWD, rng.pick([4, 8, 32, 32])),
        (Size::Any, few) => {
            let members = match few {
                0..5 => rng.number(1, 9),
                5..9 => rng.number(8, 40),
                _ => rng.number(40, 90),
            };
            (members, rng.pick([1, 2, 2, 3, 4, 32]).max(members / 12))
        }
    };
    let timings = [(10_000, 2_000), (3_000, 4_000), (1_000, 3_000)];
    let (lease, window) = rng.pick(timings);
    let timing = Timing {
        lease: Duration::from_millis(lease),
        window: Duration::from_millis(window),
    };
    let delays = [100, 2_000, 30_000];
    let mut plan = Plan {
        members,
        radix,
        timing,
        delay_max: Duration::from_micros(rng.pick(delays)),
        absent: BTreeSet::new(),
        steps: Vec::new(),
        faults: 0,
    };
    let start_max = rng.pick([0, 200, 3_000]);
    for member in (1..=members).map(Address) {
        if rng.chance(3) {
            plan.absent.insert(member);
            plan.step(rng.millis(0, 8_000), Step::GiveUp(member));
        } else {
            plan.step(rng.millis(0, start_max), Step::Start(member));
        }
    }
    let length = 2_000 + rng.between(0, 8_000);
    for _ in 0..rng.between(5, 40) {
        let when = rng.millis(0, length);
        plan.step(when, talk(rng, members));
    }
    if !rng.chance(10) {
        for _ in 0..rng.between(*FAULTS.start(), *FAULTS.end()) {
            let most = if rng.chance(30) {
                start_max + 50
            } else {
                length
            };
            let when = rng.millis(0, most);
            plan.add_fault(rng, when);
        }
    }
    if rng.chance(25) {
        let when = rng.millis(0, length);
        plan.step(when, Step::Fault(stranger(rng)));
        plan.faults += 1;
    }
    plan.add_says(rng, length);
    plan.add_gathers(rng.clone(), length);
    plan.steps.sort_by_key(|(when, _)| *when);
    plan
}

impl Plan {
    fn step(&mut self, when: Duration, step: Step) {
        self.steps.push((when, step));
    }

    /// Returns the parent of a member, as planned; `None` if it is the root.
    fn parent(&self, who: Address) -> Option<Address> {
        let position = shape(self.members, self.radix).position(NodeId(who.0))?;
        let parent = position.parent().filter(|parent| *parent != NodeId(0));
        parent.map(|parent| Address(parent.0))
    }

    /// Adds two faults, if the tree is high enough: a process is cut off until it is lost, and what is cast meanwhile does not
    /// reach those below it. A process that has it loses its own parent.
    fn add_double_fault(&mut self, rng: &mut Rng, when: Duration) {
        let leaf = Address(rng.number(1, self.members));
        let above = std::iter::successors(Some(leaf), |who| self.parent(*who));
        let above: Vec<Address> = above.take(4).collect();
        let &[_, cut, _, dead] = above.as_slice() else {
            return self.add_flood(rng, when);
        };
        let Timing { lease, window } = self.timing;
        let time = (lease + window) * 2;
        let nodes = BTreeSet::from([cut]);
        self.step(when + time, Step::Mend(nodes.clone()));
        self.step(
            when,
            Step::Fault(Fault::Trouble(Trouble::Part(nodes, time))),
        );
        for _ in 0..rng.between(1, 4) {
            let step = Step::Cast {
                choice: u64::MAX,
                lane: rng.pick(Lane::ALL),
                length: rng.length(4, 300),
            };
            self.step(when + rng.millis(1, 50), step);
        }
        let after = when + rng.millis(100, 1_000);
        self.step(after, Step::Fault(Fault::Trouble(Trouble::Kill(dead))));
        self.faults += 2;
    }

    /// Stops a process, and lets one further below send so much that it cannot wait in those between them.
    fn add_flood(&mut self, rng: &mut Rng, when: Duration) {
        let from = Address(rng.number(1, self.members));
        let stopped = self.parent(from).and_then(|parent| self.parent(parent));
        let fault = Trouble::Stop(stopped.unwrap_or(Address::ROOT), rng.millis(200, 1_500));
        self.step(when, Step::Fault(Fault::Trouble(fault)));
        for _ in 0..rng.between(1, 6) {
            let step = Step::Send {
                from,
                lane: Lane::Bulk,
                count: 70,
                length: LONGEST,
            };
            self.step(when + rng.millis(1, 200), step);
        }
        self.faults += 1;
    }

    /// Adds questions of the root to half of the runs: at any time, and shortly before faults.
    fn add_gathers(&mut self, mut rng: Rng, length: u64) {
        if rng.chance(50) {
            return;
        }
        let faults = self.steps.iter().filter_map(|(when, step)| match step {
            Step::Fault(Fault::Trouble(_)) => Some(*when),
            _ => None,
        });
        let faults: Vec<Duration> = faults.collect();
        for _ in 0..rng.between(1, 5) {
            let when = if faults.is_empty() || rng.chance(40) {
                rng.millis(0, length)
            } else {
                let fault = faults[rng.length(0, faults.len() - 1)];
                fault.saturating_sub(rng.micros(0, 100_000))
            };
            let whole = Duration::from_secs(rng.pick([3, 20, 60, 150]));
            let merging = rng.millis(100, 4_000).min(whole);
            let step = Step::Ask {
                choice: if rng.chance(50) { u64::MAX } else { rng.next() },
                lane: rng.pick(Lane::ALL),
                patience: Patience { merging, whole },
            };
            self.step(when, step);
        }
    }

    /// Adds messages that may be merged: at any time, and shortly before and after deaths.
    fn add_says(&mut self, rng: &mut Rng, length: u64) {
        for _ in 0..rng.between(2, 16) {
            let when = rng.millis(0, length);
            self.step(when, say(rng));
        }
        let deaths = self.steps.iter().filter_map(|(when, step)| match step {
            Step::Fault(Fault::Trouble(Trouble::Kill(_))) => Some(*when),
            _ => None,
        });
        for died in deaths.collect::<Vec<_>>() {
            for _ in 0..rng.between(2, 8) {
                let when = died + rng.micros(0, 40_000);
                self.step(when.saturating_sub(Duration::from_millis(20)), say(rng));
            }
        }
    }

    /// Adds a fault, and what is sent around it.
    fn add_fault(&mut self, rng: &mut Rng, when: Duration) {
        match rng.below(12) {
            0 => return self.add_double_fault(rng, when),
            1 => return self.add_flood(rng, when),
            _ => {}
        }
        let fault = fault(rng, self.members, self.timing);
        match &fault {
            Fault::Trouble(Trouble::Part(nodes, time)) => {
                self.step(when + *time, Step::Mend(nodes.clone()))
            }
            Fault::Trouble(Trouble::Mute(who, time)) => self.step(when + *time, Step::Unmute(*who)),
            _ => {}
        }
        // What follows a fault shows what it has lost.
        for _ in 0..rng.between(0, 6) {
            let after = when + rng.millis(0, 1_500);
            self.step(after, talk(rng, self.members));
        }
        // What is on its way through the process that dies, and what follows it on another way.
        if matches!(fault, Fault::Trouble(Trouble::Kill(_))) && rng.chance(40) {
            let from = Address(rng.number(1, self.members));
            for _ in 0..rng.between(5, 20) {
                let step = Step::Send {
                    from,
                    lane: rng.pick(Lane::ALL),
                    count: 1,
                    length: rng.length(4, 300),
                };
                let after = when + rng.micros(0, 40_000);
                self.step(after.saturating_sub(Duration::from_millis(20)), step);
            }
        }
        self.step(when, Step::Fault(fault));
        self.faults += 1;
    }
}

fn say(rng: &mut Rng) -> Step {
    Step::Say {
        choice: if rng.chance(30) { u64::MAX } else { rng.next() },
        lane: rng.pick(Lane::ALL),
        class: Class(rng.between(1, 3)),
    }
}

fn talk(rng: &mut Rng, members: u32) -> Step {
    let lane = rng.pick(Lane::ALL);
    let length = match rng.below(4) {
        0 => rng.length(4, LONGEST),
        _ => rng.length(4, 300),
    };
    if rng.chance(40) {
        let choice = rng.next();
        return Step::Cast {
            choice,
            lane,
            length,
        };
    }
    let count = if rng.chance(12) { 60 } else { rng.number(1, 4) };
    Step::Send {
        from: Address(rng.number(1, members)),
        lane,
        count,
        length,
    }
}

fn fault(rng: &mut Rng, members: u32, timing: Timing) -> Fault {
    let who = Address(rng.number(1, members));
    let harmless = u64::try_from(harmless(timing).as_millis()).unwrap_or(0);
    let whole = u64::try_from((timing.lease + timing.window).as_millis()).unwrap_or(0);
    let time = match rng.below(10) {
        0..6 => rng.millis(20, harmless),
        6 => rng.millis(harmless, whole + 1_500),
        _ => rng.millis(whole + 1_500, 2 * whole),
    };
    match rng.below(22) {
        0..4 => Fault::Trouble(Trouble::Reset(who)),
        4..7 => Fault::Trouble(Trouble::Part([who].into(), time)),
        7 | 8 => {
            let mut nodes = BTreeSet::from([who]);
            for _ in 0..rng.below(u64::from(members)) {
                nodes.insert(Address(rng.number(1, members)));
            }
            Fault::Trouble(Trouble::Part(nodes, time))
        }
        9 | 10 => Fault::Trouble(Trouble::Stop(who, time)),
        11 | 12 => Fault::Trouble(Trouble::Stop(Address::ROOT, rng.millis(200, 1_500))),
        13..15 => Fault::Trouble(Trouble::Kill(who)),
        15 | 16 => Fault::Trouble(Trouble::PowerOff(who)),
        17 | 18 => Fault::Duplicate(who),
        19 | 20 => Fault::Trouble(Trouble::Mute(who, time)),
        _ => Fault::Replay(who),
    }
}

fn stranger(rng: &mut Rng) -> Fault {
    Fault::Stranger(rng.pick([
        Stranger::Garbage,
        Stranger::Silent,
        Stranger::Scan,
        Stranger::Secret,
        Stranger::Build,
        Stranger::Unknown,
    ]))
}
