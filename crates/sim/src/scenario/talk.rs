//! Random programs that use PMIx.

use std::{collections::BTreeMap, time::Duration};

use base::{Rank, Signal};
use pmix::value::Status;

use super::{company::Company, make::Maker};
use crate::{
    ledger::TERMINATIONS,
    rng::Rng,
    script::{
        Circle, Data, FOR_EVER, Lookup, Notify, Number, Op, Party, PmixOp, Reach, Stranger, Way,
    },
};

/// Status codes of the events that programs send.
pub(super) const CODES: [Status; 3] = [Status(-3_001), Status(-3_002), Status(-3_003)];

/// Maximum number of ranks of which a rank gets the keys after a fence.
const ASKED_MAX: u32 = 12;

/// Maximum number of members of a group.
const CIRCLE_MAX: usize = 8;

/// The plan that all ranks of a job follow, so that their collectives match.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    size: u32,
    rounds: Vec<Round>,
    /// True if every rank looks up what its neighbour has published.
    publishes: bool,
    company: Company,
}

/// One round of a plan, which ends with a fence of all ranks and the gets and lookups after it.
#[derive(Clone, Debug)]
struct Round {
    data: Data,
    /// Members of an additional fence before the fence of all ranks; empty if there is none.
    group: Vec<Rank>,
    /// A PMIx group that some ranks construct.
    circle: Option<Circle>,
}

/// Returns a random group of a job of this size, sometimes.
fn circle(rng: &mut Rng, size: u32, name: String) -> Option<Circle> {
    if size < 2 || !rng.chance(35) {
        return None;
    }
    let mut ranks: Vec<Rank> = (0..size).map(Rank).collect();
    let count = rng.length(2, ranks.len().min(CIRCLE_MAX));
    let members = (0..count).map(|_| {
        let at = rng.length(0, ranks.len() - 1);
        ranks.swap_remove(at)
    });
    let members: Vec<Rank> = members.collect();
    let way = match rng.below(4) {
        0 | 1 => Way::Together,
        2 => Way::Added(rng.length(1, count - 1)),
        _ => Way::Led(rng.length(1, count)),
    };
    Some(Circle {
        name,
        members,
        way,
        number: rng.pick([Number::Unwanted, Number::ByFirst, Number::ByAll]),
    })
}

impl Maker<'_> {
    pub(super) fn plan(&mut self, size: u32, rounds: u64) -> Plan {
        let child = self.child;
        let mut round = |number: u64| {
            let data = if self.rng.chance(70) {
                Data::With
            } else {
                Data::Without
            };
            let with_group = size > 2 && self.rng.chance(30);
            let group = (0..size).map(Rank);
            let group = group.filter(|_| with_group && self.rng.chance(60));
            let group = group.collect();
            let circle = circle(self.rng, size, format!("g{number}-{child:?}"));
            Round {
                data,
                group,
                circle,
            }
        };
        let planned = (0..rounds).map(&mut round).collect();
        let publishes = self.rng.chance(60);
        let ranks: Vec<Rank> = (0..size).map(Rank).collect();
        Plan {
            size,
            rounds: planned,
            publishes,
            company: self.company(&ranks, rounds),
        }
    }

    /// Returns the program of a rank that follows the plan.
    pub(super) fn talker(&mut self, rank: Rank, plan: &Plan) -> Vec<Op> {
        let mut ops = vec![Op::Sleep(self.rng.millis(0, 40)), Op::Pmix(PmixOp::Init)];
        if self.rng.chance(8) {
            let stranger = self.rng.pick([Stranger::Babbler, Stranger::Foreigner]);
            let at = self.rng.length(0, ops.len());
            ops.insert(at, Op::Pmix(PmixOp::Knock(stranger)));
        }
        if self.rng.chance(10) {
            // The forked process inherits the connection, and keeps it open.
            ops.push(self.stray());
        }
        if self.rng.chance(60) {
            let mut codes = CODES.to_vec();
            codes.truncate(self.rng.length(1, CODES.len()));
            if self.rng.chance(60) {
                codes.extend(TERMINATIONS);
                codes.push(Status::EVENT_JOB_END);
            }
            ops.push(Op::Pmix(PmixOp::Register(codes)));
        }
        ops.extend(plan.company.first(rank));
        for (number, round) in plan.rounds.iter().enumerate() {
            self.round(&mut ops, rank, plan, number, round);
        }
        let circles = plan.rounds.iter().filter_map(|round| round.circle.clone());
        let circles = circles.filter(|circle| circle.members.contains(&rank));
        ops.extend(circles.map(|circle| Op::Pmix(PmixOp::Destruct(circle))));
        ops.extend(plan.company.last(rank));
        ops.push(Op::Pmix(PmixOp::Finalize));
        ops.push(Op::Sleep(self.rng.millis(0, 30)));
        if self.rng.chance(10) {
            ops.push(Op::Pmix(PmixOp::Init));
            ops.push(Op::Pmix(PmixOp::Finalize));
        }
        ops
    }

    fn round(&mut self, ops: &mut Vec<Op>, rank: Rank, plan: &Plan, number: usize, round: &Round) {
        // All ranks put the same keys, so that a value of the wrong rank is detected.
        let key = format!("k{number}");
        let service = |number: usize, of: Rank| format!("s{number}-{of}");
        let neighbour = Rank((rank.0 + 1) % plan.size);
        let mut say = |op| ops.push(Op::Pmix(op));
        say(PmixOp::Put(key.clone()));
        say(PmixOp::Commit);
        if plan.publishes {
            say(PmixOp::Publish(self.service(service(number, rank))));
        }
        if self.rng.chance(40) {
            say(PmixOp::Notify(self.notify(plan.size)));
        }
        // Every rank commits before it waits, so no two ranks wait for each other.
        if self.rng.chance(30) {
            say(PmixOp::Get(vec![(Party::Rank(neighbour), key.clone())]));
        }
        if plan.publishes && self.rng.chance(20) {
            say(PmixOp::Lookup(Lookup {
                service: self.service(service(number, neighbour)),
                of: neighbour,
                wait: Some(Duration::from_secs(self.rng.between(1, 3))),
            }));
        }
        ops.push(Op::Sleep(self.rng.millis(0, 30)));
        let mut say = |op| ops.push(Op::Pmix(op));
        if round.group.contains(&rank) {
            let group = round.group.iter().copied().map(Party::Rank);
            say(PmixOp::Fence(group.collect(), round.data));
        }
        if let Some(circle) = &round.circle
            && circle.members.contains(&rank)
        {
            say(PmixOp::Construct(circle.clone()));
        }
        ops.extend(plan.company.round(rank, number as u64));
        let mut say = |op| ops.push(Op::Pmix(op));
        say(PmixOp::Fence(vec![Party::Job], round.data));
        let all = (0..plan.size).map(Rank);
        // In large jobs each rank asks some others only.
        let others =
            all.filter(|of| plan.size <= ASKED_MAX || (of.0 + rank.0) % plan.size < ASKED_MAX);
        say(PmixOp::Get(
            others
                .map(|rank| (Party::Rank(rank), key.clone()))
                .collect(),
        ));
        if plan.publishes {
            say(PmixOp::Lookup(Lookup {
                service: self.service(service(number, neighbour)),
                of: neighbour,
                wait: None,
            }));
            // The only rank that looks up the previous service did so before it reached this fence.
            if let Some(before) = number.checked_sub(1) {
                say(PmixOp::Unpublish(self.service(service(before, rank))));
            }
        }
    }

    /// Returns the name under which a rank of this job publishes a service; ranks of other jobs use other names.
    fn service(&self, name: String) -> String {
        match self.child {
            Some(child) => format!("{name} of child {child}"),
            None => name,
        }
    }

    pub(super) fn notify(&mut self, size: u32) -> Notify {
        self.events += 1;
        Notify {
            number: self.events,
            code: self.rng.pick(CODES),
            reach: match self.rng.below(4) {
                0 => Reach::Node,
                1 => Reach::Job,
                2 => Reach::Session,
                _ => {
                    let some = (0..size).map(Rank);
                    Reach::Some(some.filter(|_| self.rng.chance(50)).collect())
                }
            },
            group: None,
            members: None,
        }
    }

    /// Cuts a script at a random position, and appends one of the ends that real programs have.
    pub(super) fn break_off(&mut self, ops: &mut Vec<Op>) {
        let at = self.rng.length(1, ops.len().saturating_sub(2).max(1));
        ops.truncate(at);
        match self.rng.below(8) {
            0 => ops.push(Op::Exit(0)),
            1 | 2 => {
                ops.push(Op::Pmix(PmixOp::HangUp));
                let wait = self.rng.millis(0, 4_000);
                ops.push(Op::Sleep(wait));
            }
            3 => {
                let all = self.rng.chance(70);
                let ranks = if all { vec![] } else { vec![Rank(0)] };
                ops.push(Op::Pmix(PmixOp::Abort(17, ranks)));
                // Only a process that aborts its whole job may wait for its end indefinitely.
                let patient = self.rng.chance(70) && all;
                let wait = if patient {
                    FOR_EVER
                } else {
                    self.rng.millis(0, 500)
                };
                self.needs_end |= patient;
                ops.push(Op::Sleep(wait));
            }
            4 => {
                ops.push(Op::Pmix(PmixOp::Garbage));
                ops.push(Op::Sleep(self.rng.millis(0, 3_000)));
            }
            5 => {
                ops.push(Op::Pmix(PmixOp::Finalize));
                ops.push(Op::Sleep(self.rng.millis(0, 2_000)));
            }
            _ => ops.push(if self.rng.chance(50) {
                Op::Exit(3)
            } else {
                Op::Crash(self.rng.pick([Signal::SEGV, Signal::KILL]))
            }),
        }
    }

    /// Returns the scripts of a job whose ranks use PMIx. Up to two of the scripts break off.
    pub(super) fn talk(&mut self, size: u32) -> BTreeMap<Rank, Vec<Op>> {
        let rounds = self.rng.between(1, 3);
        let plan = self.plan(size, rounds);
        let mut scripts = BTreeMap::new();
        for rank in (0..size).map(Rank) {
            scripts.insert(rank, self.talker(rank, &plan));
        }
        for _ in 0..self.rng.pick([0, 0, 1, 1, 1, 2]) {
            let victim = Rank(self.rng.number(0, size - 1));
            if let Some(ops) = scripts.get_mut(&victim) {
                self.break_off(ops);
            }
        }
        scripts
    }
}
