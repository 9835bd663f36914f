//! Random company of the ranks of a job: a group that one of them makes by invitation, a connect of some of them, and ranks
//! that want to hear of the ends of others.

use std::time::Duration;

use base::Rank;
use pmix::value::Status;

use super::{Fault, make::Maker};
use crate::script::{Data, GROUP_CODES, Guest, Invitation, Op, Party, PmixOp, Reply, Step};

/// Maximum number of guests of an invitation, and of connected ranks.
const COMPANY_MAX: usize = 8;

/// What some ranks of a job do in one of the rounds of its plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Company {
    invitation: Option<(u64, Invitation)>,
    connect: Option<(u64, Connect)>,
    /// Ranks that register for the regular ends of others.
    attentive: Vec<Rank>,
}

/// A connect of some ranks.
#[derive(Clone, Debug)]
struct Connect {
    members: Vec<Party>,
    ranks: Vec<Rank>,
    /// Time for which the last one keeps the others waiting.
    delay: Option<Duration>,
    /// True if they meet in a fence while they are connected.
    meets: bool,
    /// True if they disconnect.
    parts: bool,
}

impl Maker<'_> {
    /// Returns the company of these ranks. Its random numbers are drawn from a stream of their own.
    pub(super) fn company(&mut self, ranks: &[Rank], rounds: u64) -> Company {
        let mut company = Company::default();
        if ranks.len() > 1 && self.extra.chance(30) {
            let round = self.extra.between(0, rounds.saturating_sub(1));
            company.invitation = Some((round, self.invitation(ranks)));
        }
        if ranks.len() > 1 && self.extra.chance(30) {
            let round = self.extra.between(0, rounds.saturating_sub(1));
            let ranks = self.pick_some(ranks, 2);
            let members = ranks.iter().copied().map(Party::Rank).collect();
            let delay = self.extra.chance(40).then(|| self.extra.millis(300, 900));
            // Ranks of spawned jobs are not killed from outside.
            if delay.is_some() && self.child.is_none() && self.extra.chance(60) {
                let when = self.extra.millis(150, 600);
                self.faults.push((when, Fault::KillRank(ranks[0])));
            }
            let connect = Connect {
                members,
                delay,
                ranks,
                meets: self.extra.chance(40),
                parts: self.extra.chance(75),
            };
            company.connect = Some((round, connect));
        }
        let many = ranks.len() > usize::try_from(self.nodes).unwrap_or(usize::MAX) / 2;
        if many && self.extra.chance(25) {
            company.attentive = self.pick_some(ranks, 1);
        }
        company
    }

    /// Returns some of these ranks, at least `least`, in a random order.
    fn pick_some(&mut self, ranks: &[Rank], least: usize) -> Vec<Rank> {
        let mut left = ranks.to_vec();
        let count = self.extra.length(least, left.len().min(COMPANY_MAX));
        let some = (0..count).map(|_| {
            let at = self.extra.length(0, left.len() - 1);
            left.swap_remove(at)
        });
        some.collect()
    }

    fn invitation(&mut self, ranks: &[Rank]) -> Invitation {
        let chosen = self.pick_some(ranks, 2);
        let mut number = || {
            self.events += 1;
            self.events
        };
        let (invites, completes) = (number(), number());
        let guests = chosen.iter().skip(1).map(|rank| Guest {
            rank: *rank,
            number: number(),
            reply: Reply::Accepts,
        });
        let mut guests: Vec<Guest> = guests.collect();
        for guest in &mut guests {
            guest.reply = match self.extra.below(10) {
                0 | 1 => Reply::Declines,
                2 => Reply::IsSilent,
                _ => Reply::Accepts,
            };
        }
        let at = self.extra.length(0, chosen.len() - 1);
        Invitation {
            name: format!("guests-{:?}", self.child),
            leader: chosen[0],
            guests,
            invites,
            completes,
            patience: self.extra.millis(200, 3_000),
            names_members: self.extra.chance(50),
            leaver: chosen[at],
        }
    }
}

impl Company {
    /// Returns what a rank does first.
    pub(super) fn first(&self, rank: Rank) -> Vec<Op> {
        let codes = vec![Status::EVENT_PROC_TERMINATED];
        let wants = self.attentive.contains(&rank);
        wants
            .then(|| Op::Pmix(PmixOp::Register(codes)))
            .into_iter()
            .collect()
    }

    /// Returns what a rank does in a round.
    pub(super) fn round(&self, rank: Rank, number: u64) -> Vec<Op> {
        let mut ops = Vec::new();
        if let Some((round, invitation)) = &self.invitation
            && *round == number
        {
            let steps = invitation.steps_of(rank);
            if !steps.is_empty() {
                ops.push(Op::Pmix(PmixOp::Register(GROUP_CODES.to_vec())));
            }
            ops.extend(steps.into_iter().map(|step| take(invitation, step)));
        }
        if let Some((round, connect)) = &self.connect
            && *round == number
            && connect.ranks.contains(&rank)
        {
            let members = &connect.members;
            if connect.ranks.last() == Some(&rank) {
                ops.extend(connect.delay.map(Op::Sleep));
            }
            let mut say = |op| ops.push(Op::Pmix(op));
            say(PmixOp::Connect(members.clone()));
            if connect.meets {
                say(PmixOp::Fence(members.clone(), Data::Without));
            }
            if connect.parts {
                say(PmixOp::Disconnect(members.clone()));
            }
        }
        ops
    }

    /// Returns what a rank does at the end.
    pub(super) fn last(&self, rank: Rank) -> Vec<Op> {
        let Some((_, invitation)) = &self.invitation else {
            return Vec::new();
        };
        if invitation.steps_of(rank).is_empty() {
            return Vec::new();
        }
        let mut ops = Vec::new();
        if rank == invitation.leaver {
            ops.push(take(invitation, Step::Leave));
            // Who leaves stays for a while. The others do not wait for that.
            ops.push(Op::Sleep(invitation.patience));
        }
        ops.push(take(invitation, Step::Dissolve));
        ops
    }
}

fn take(invitation: &Invitation, step: Step) -> Op {
    Op::Pmix(PmixOp::Group(Box::new(invitation.clone()), step))
}
