//! The gathers of a run: who is asked, who answers when, and what has to come of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::Time;
use bytes::Bytes;
use overlay::{
    Address,
    node::{GatherId, Patience},
};

use crate::{agenda::Agenda, members::Members, rng::Rng};

/// Allowance for messages, in addition to what faults add.
const WAY_MAX: Duration = Duration::from_secs(3);
/// Time after the patience in which the end of a gather is reported: the root may be stopped.
const END_MAX: Duration = Duration::from_secs(3);

#[derive(Debug)]
struct Gather {
    /// Determines who answers when.
    choice: u64,
    asked: BTreeSet<Address>,
    /// Those of them that had not joined when the root asked.
    absent: BTreeSet<Address>,
    at: Time,
    patience: Patience,
    /// Members that got the question.
    reached: BTreeSet<Address>,
    /// When members gave their answers.
    answered: BTreeMap<Address, Time>,
    /// Members whose answers the root has.
    have: BTreeSet<Address>,
    is_over: bool,
}

/// All gathers, and the answers that members are about to give.
#[derive(Debug)]
pub(super) struct Gathers {
    all: BTreeMap<GatherId, Gather>,
    answers: Agenda<(Address, GatherId)>,
}

/// Returns the answer of a process.
pub(super) fn answer(who: Address) -> Bytes {
    Bytes::copy_from_slice(&who.0.to_le_bytes())
}

impl Gathers {
    pub(super) const fn new() -> Self {
        Self {
            all: BTreeMap::new(),
            answers: Agenda::new(),
        }
    }

    pub(super) fn on_begun(
        &mut self,
        now: Time,
        members: &Members,
        id: GatherId,
        choice: u64,
        asked: BTreeSet<Address>,
        patience: Patience,
    ) {
        let is_absent = |who: &Address| !members.is_member(*who);
        let gather = Gather {
            choice,
            absent: asked.iter().copied().filter(is_absent).collect(),
            asked,
            at: now,
            patience,
            reached: BTreeSet::new(),
            answered: BTreeMap::new(),
            have: BTreeSet::new(),
            is_over: false,
        };
        self.all.insert(id, gather);
    }

    /// Handles that a process gets a question. Most answer soon, some late, some never.
    pub(super) fn on_asked(&mut self, now: Time, who: Address, id: GatherId) -> Option<String> {
        let Some(gather) = self.all.get_mut(&id) else {
            return Some(format!("{who} is asked what nobody asks"));
        };
        if !gather.asked.contains(&who) || !gather.reached.insert(who) {
            return Some(format!("{who} is asked twice, or by mistake"));
        }
        let mut rng = Rng::new(gather.choice ^ u64::from(who.0) << 32);
        let merging = u64::try_from(gather.patience.merging.as_millis()).unwrap_or(0);
        let delay = match rng.below(20) {
            0..15 => rng.millis(0, 50),
            15..19 => rng.millis(0, merging * 3 / 2),
            _ => return None,
        };
        self.answers.at(now + delay, (who, id));
        None
    }

    pub(super) fn next_at(&self) -> Option<Time> {
        self.answers.next_at()
    }

    /// Returns the next process that answers.
    pub(super) fn next(&mut self) -> Option<(Address, GatherId)> {
        self.answers.next()
    }

    /// Lets a process answer later, because it is stopped.
    pub(super) fn later(&mut self, at: Time, who: Address, id: GatherId) {
        self.answers.at(at, (who, id));
    }

    pub(super) fn on_answered(&mut self, now: Time, who: Address, id: GatherId) {
        if let Some(gather) = self.all.get_mut(&id) {
            gather.answered.insert(who, now);
        }
    }

    pub(super) fn on_part(
        &mut self,
        id: GatherId,
        of: &BTreeSet<Address>,
        body: &Bytes,
    ) -> Option<String> {
        let Some(gather) = self.all.get_mut(&id).filter(|gather| !gather.is_over) else {
            return Some(format!("part of gather {}, which is not open", id.0));
        };
        let (words, rest) = body.as_chunks::<4>();
        let mut came: Vec<Address> = words
            .iter()
            .map(|word| Address(u32::from_le_bytes(*word)))
            .collect();
        came.sort_unstable();
        if !rest.is_empty() || !came.iter().eq(of.iter()) {
            return Some(format!("a part has answers of {came:?}, and says {of:?}"));
        }
        of.iter().find_map(|who| {
            if !gather.answered.contains_key(who) {
                return Some(format!("an answer of {who} comes that it has not given"));
            }
            let is_new = gather.have.insert(*who);
            (!is_new).then(|| format!("the answer of {who} is counted twice"))
        })
    }

    /// Checks the end of a gather: each member is in exactly one of answered and missing, and each that is missing was dead,
    /// silent or late.
    pub(super) fn on_gathered(
        &mut self,
        now: Time,
        members: &Members,
        id: GatherId,
        missing: &BTreeSet<Address>,
    ) -> Option<String> {
        let Some(gather) = self.all.get_mut(&id).filter(|gather| !gather.is_over) else {
            return Some(format!("gather {} ends twice, or never began", id.0));
        };
        gather.is_over = true;
        let expected: BTreeSet<Address> = gather.asked.difference(&gather.have).copied().collect();
        if expected != *missing {
            return Some(format!(
                "{missing:?} are said to be missing, {expected:?} are"
            ));
        }
        let until = gather.at + gather.patience.whole;
        if now > until + END_MAX {
            return Some(format!(
                "a gather ends only now, its patience was over at {until}"
            ));
        }
        let excused = |who: &&Address| {
            let answered = gather.answered.get(who);
            let merged = gather.at + gather.patience.merging;
            let is_late =
                answered.is_none_or(|at| (*at).max(merged) + WAY_MAX + members.delay() > until);
            is_late || gather.absent.contains(who) || !members.is_lucky(**who)
        };
        let wronged = missing.iter().find(|who| !excused(who));
        wronged.map(|who| format!("the answer of {who} is missing, and nothing has happened to it"))
    }

    /// Checks that no gather is open to which nobody can contribute any more.
    pub(super) fn check_open(&self, members: &Members) -> Option<String> {
        let mut open = self.all.iter().filter(|(_, gather)| !gather.is_over);
        let idle = open.find(|(_, gather)| {
            let is_done = |who: &Address| {
                gather.have.contains(who) || gather.absent.contains(who) || !members.is_member(*who)
            };
            gather.asked.iter().all(is_done)
        });
        idle.map(|(id, _)| format!("gather {} has all it can get, and does not end", id.0))
    }

    /// Returns the time at which the last gather has to be over.
    pub(super) fn last_until(&self) -> Time {
        let all = self.all.values();
        let until = all.map(|gather| gather.at + gather.patience.whole + END_MAX);
        until.max().unwrap_or(Time::ZERO)
    }

    /// Checks that all gathers are over.
    pub(super) fn check_rest(&self) -> Option<String> {
        let open = self.all.iter().find(|(_, gather)| !gather.is_over);
        open.map(|(id, _)| format!("gather {} never ends", id.0))
    }
}
