//! The job of the family `thousand`: every rank is a client of PMI, writes and exits. Some, on nodes far apart, talk to each
//! other, by PMIx or PMI.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::Rank;
use dvm::spec::{EndPolicy, OnFailure};
use pmix::{pmi::Dialect, value::Status};

use super::{company::Company, make::Maker, talk::CODES};
use crate::{
    ledger::TERMINATIONS,
    script::{Data, Lookup, Op, Party, PmiOp, PmixOp},
};

/// Number of PMIx clients of a run. Each gets the job info of all ranks.
const CLIENTS: [u32; 2] = [12, 32];
/// Number of PMI clients of a run, if there are any.
const PMI_CLIENTS: [u32; 2] = [3, 12];
/// Number of members whose values a member gets after a fence.
const ASKED: usize = 4;
/// Longest pause of a client, in milliseconds, so that faults happen meanwhile.
const PAUSE_MS: u64 = 700;

impl Maker<'_> {
    pub(super) fn thousand(&mut self, end: &mut EndPolicy) -> BTreeMap<Rank, Vec<Op>> {
        let mut scripts = self.each(Self::pmi_writer);
        let mut taken = BTreeSet::new();
        let clients = self.some_ranks(CLIENTS, &mut taken);
        let rounds = self.rng.between(1, 2);
        let data = if self.rng.chance(70) {
            Data::With
        } else {
            Data::Without
        };
        let company = self.company(&clients, rounds);
        for at in 0..clients.len() {
            let ops = self.far_talker(&clients, at, rounds, data, &company);
            scripts.insert(clients[at], ops);
        }
        for _ in 0..self.rng.pick([0, 0, 1, 2]) {
            let victim = self.rng.pick([clients[0], clients[clients.len() / 2]]);
            if let Some(ops) = scripts.get_mut(&victim) {
                self.break_off(ops);
            }
        }
        if self.rng.chance(50) {
            // A barrier of PMI over several nodes is broken only in ways that end the job.
            self.is_of_fences = true;
            end.on_failure = OnFailure::EndJob;
            let clients = self.some_ranks(PMI_CLIENTS, &mut taken);
            for rank in &clients {
                let ops = self.far_fencer(&clients, *rank);
                scripts.insert(*rank, ops);
            }
        }
        scripts
    }

    /// Returns a program that writes, and that uses PMI as far as every client of it does: in a job with clients, a rank that is
    /// none ends too early.
    fn pmi_writer(&mut self) -> Vec<Op> {
        let dialect = self.rng.pick([Dialect::One, Dialect::Two]);
        let mut ops = vec![
            Op::Sleep(self.rng.millis(0, 300)),
            Op::Pmi(PmiOp::Init(dialect)),
        ];
        if dialect == Dialect::Two {
            ops.push(Op::Pmi(PmiOp::FullInit));
        }
        ops.extend(self.some_output(2));
        ops.push(Op::Sleep(self.rng.millis(0, 1_500)));
        ops.push(Op::Pmi(PmiOp::Finalize));
        ops
    }

    /// Returns ranks that are not taken, in a random order, and takes them.
    fn some_ranks(&mut self, [least, most]: [u32; 2], taken: &mut BTreeSet<Rank>) -> Vec<Rank> {
        let many = self.rng.number(least, most);
        let mut ranks = Vec::new();
        while ranks.len() < many as usize {
            let rank = self.any_rank();
            if taken.insert(rank) {
                ranks.push(rank);
            }
        }
        ranks
    }

    /// Returns the program of a PMIx client that talks to the other members, of which it is number `at`.
    fn far_talker(
        &mut self,
        members: &[Rank],
        at: usize,
        rounds: u64,
        data: Data,
        company: &Company,
    ) -> Vec<Op> {
        let me = members[at];
        let neighbor = members[(at + 1) % members.len()];
        let others = members.iter().cycle().skip(at + 1).take(ASKED);
        let others: Vec<Rank> = others.copied().collect();
        let all: Vec<Party> = members.iter().copied().map(Party::Rank).collect();
        let service = |round: u64, of: Rank| format!("s{round}-{of}");
        let mut ops = vec![Op::Sleep(self.rng.millis(0, 200)), Op::Pmix(PmixOp::Init)];
        if self.rng.chance(30) {
            let mut codes: Vec<Status> = CODES.to_vec();
            codes.extend(TERMINATIONS);
            ops.push(Op::Pmix(PmixOp::Register(codes)));
        }
        for round in 0..rounds {
            let key = format!("k{round}");
            let mut say = |op| ops.push(Op::Pmix(op));
            say(PmixOp::Put(key.clone()));
            say(PmixOp::Commit);
            say(PmixOp::Publish(service(round, me)));
            if self.rng.chance(15) {
                say(PmixOp::Notify(self.notify(self.size)));
            }
            if self.rng.chance(40) {
                say(PmixOp::Get(vec![(Party::Rank(neighbor), key.clone())]));
            }
            ops.push(Op::Sleep(self.rng.millis(0, PAUSE_MS)));
            ops.extend(company.round(me, round));
            let mut say = |op| ops.push(Op::Pmix(op));
            say(PmixOp::Fence(all.clone(), data));
            let asked = others.iter();
            let asked = asked.map(|rank| (Party::Rank(*rank), key.clone()));
            say(PmixOp::Get(asked.collect()));
            let wait = self.rng.chance(20).then(|| Duration::from_secs(1));
            say(PmixOp::Lookup(Lookup {
                service: service(round, neighbor),
                of: neighbor,
                wait,
            }));
            // The only rank that looks up the previous service did so before it reached this fence.
            if let Some(before) = round.checked_sub(1) {
                say(PmixOp::Unpublish(service(before, me)));
            }
        }
        ops.extend(company.last(me));
        ops.push(Op::Pmix(PmixOp::Finalize));
        ops.push(Op::Sleep(self.rng.millis(0, 30)));
        ops
    }

    /// Returns the program of a PMI client that meets the other members in barriers of their own.
    fn far_fencer(&mut self, members: &[Rank], me: Rank) -> Vec<Op> {
        let key = |rank: Rank| format!("k-{rank}");
        let value = |rank: Rank| format!("value of {rank}");
        let neighbor = members
            .iter()
            .cycle()
            .skip_while(|rank| **rank != me)
            .nth(1);
        let neighbor = neighbor.copied().unwrap_or(me);
        let port = |rank: Rank| (format!("pmi-{rank}"), format!("port of {rank}"));
        let mut sorted = members.to_vec();
        sorted.sort_unstable();
        let mut ops = vec![
            Op::Sleep(self.rng.millis(0, 200)),
            Op::Pmi(PmiOp::Init(Dialect::One)),
        ];
        let mut say = |op| ops.push(Op::Pmi(op));
        say(PmiOp::Put {
            key: key(me),
            value: value(me),
        });
        let (service, own) = port(me);
        say(PmiOp::Publish { service, port: own });
        ops.push(Op::Sleep(self.rng.millis(0, PAUSE_MS)));
        let mut say = |op| ops.push(Op::Pmi(op));
        say(PmiOp::Group(sorted.clone()));
        for other in members.iter().take(ASKED).copied().chain([neighbor]) {
            say(PmiOp::Get {
                key: key(other),
                value: value(other),
            });
        }
        let (service, port) = port(neighbor);
        say(PmiOp::Lookup { service, port });
        say(PmiOp::Group(sorted));
        say(PmiOp::Finalize);
        ops
    }
}
