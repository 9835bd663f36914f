//! Gathers: the root asks members something, and their answers are merged on the way up.
//!
//! The overlay does not know what an answer is. The owner of each process supplies the merge ([`Node::merge_with`]), which has to
//! be associative and commutative. A *part* is a merged answer with the set of the members that it covers. A process merges two
//! parts only if no member is in both, and the root accepts a part only if it has the answer of none of its members. So no
//! answer is counted twice, whichever ways parts have taken.
//!
//! **An answer that was lost on its way is given again.** Each member keeps its own answer until the root ends the gather; it
//! keeps no part that it has passed on. Parts have no numbers from end to end, unlike messages (`delivery`): a process that dies
//! takes with it what it has merged. Its children return to the root, and the root asks everybody below them for the answers that
//! it does not have (*again*). So may an answer come twice: the root drops a part if it has all its members. It refuses a part of
//! which it has some members, because a merged answer cannot be taken apart, and asks the others again. Each refusal uses up a
//! copy of an answer that the root has, and the root asks nobody again whose answer it has, so this ends.
//!
//! To keep parts until the root reports them would spare the second merge. But each process would keep every part twice, merged
//! and unmerged, because the root may have one and not the other. Deaths are rare, and answers are not.
//!
//! | a gather at a member | event | response | next state |
//! |---|---|---|---|
//! | – | the root asks | [`Output::Asked`] if this process is asked, the same to those below | `Merging` |
//! | `Merging` | a part, or the own answer; others are awaited | keep it | `Merging` |
//! | `Merging` | the last part that was awaited | merge, pass up | `Passing` |
//! | `Merging` | its share of the time for merging is over | merge what is there, pass up | `Passing` |
//! | `Merging` | more than [`PARTS_MAX`] bytes are kept | merge what is there, pass up | `Merging` |
//! | `Merging` | a process below is lost | merge what is there, pass up; await nobody more below that child | `Merging` or `Passing` |
//! | `Merging`, `Passing` | the root asks again | give the own answer again, await those who are asked again | `Merging` if there is time |
//! | `Passing` | a part | pass it up | `Passing` |
//! | any | the root ends the gather, or the patience is over | forget it | – |
//!
//! | a gather at the root | event | response | next state |
//! |---|---|---|---|
//! | – | [`Node::gather`] | ask; who is not connected is missing | `Open` |
//! | `Open` | a part with new members only | [`Output::Part`] | `Open` |
//! | `Open` | a part with members that it has and others | ask the others again | `Open` |
//! | `Open` | a process returns | ask those again below it whose answers are missing | `Open` |
//! | `Open` | all have answered or are lost; the patience is over; [`Node::end_gather`] | [`Output::Gathered`] with the missing members, end the gather below | – |
//!
//! A process on the way waits for a shorter time than the process above it: 7/8 of [`Patience::merging`] for each hop. So the
//! answers of the others arrive in time if a member does not answer. A part is passed up before the loss of a process below is
//! reported.
//!
//! The root keeps sets of members only. The owner merges parts as they come, in whatever form it likes.

use std::collections::{BTreeMap, BTreeSet};

use base::Time;
use bytes::Bytes;

use super::{Node, Output, Standing};
use crate::{
    lanes::Lane,
    packet::{Address, BODY_MAX, GatherId, Head, Loss, Members, Patience, Purpose},
    planted::{self, Bug},
};

/// Maximum number of gathers of one root at the same time.
pub const GATHERS_MAX: usize = 64;
/// Number of bytes of parts that a process keeps for one gather. With more it passes on what it has.
pub const PARTS_MAX: usize = 8 * 1024 * 1024;
/// What a part counts in addition to its body.
const PART_BYTES: usize = 64;

/// Merges the answers of disjoint sets of members; `None` if they cannot be merged. Then they are passed on as they are.
pub type Merge = fn(&[Bytes]) -> Option<Bytes>;

/// The error of a gather that is one too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{GATHERS_MAX} gathers are open")]
pub struct TooMany;

/// The gathers of a process.
#[derive(Debug, Default)]
pub(super) struct Gathers {
    merge: Option<Merge>,
    /// Of other processes: those in which this one takes part, or which it passes on.
    open: BTreeMap<GatherId, Open>,
    /// At the root, its own.
    collecting: BTreeMap<GatherId, Collecting>,
    last: u64,
}

/// An answer of some members.
#[derive(Debug)]
struct Part {
    of: BTreeSet<Address>,
    body: Bytes,
}

/// A gather at a member.
#[derive(Debug)]
struct Open {
    lane: Lane,
    own: Own,
    state: State,
    parts: Vec<Part>,
    /// When it passes on what it has.
    pass_at: Time,
    /// When it forgets the gather.
    until: Time,
}

#[derive(Debug)]
enum State {
    /// It waits for the answers of these members.
    Merging(BTreeSet<Address>),
    Passing,
}

/// The answer of this process.
#[derive(Clone, Debug)]
enum Own {
    NotAsked,
    Asked,
    Answered(Bytes),
}

/// A gather at the root.
#[derive(Debug)]
struct Collecting {
    lane: Lane,
    asked: BTreeSet<Address>,
    have: BTreeSet<Address>,
    lost: BTreeSet<Address>,
    until: Time,
}

impl Gathers {
    pub(super) const fn merge(&self) -> Option<Merge> {
        self.merge
    }
}

impl Collecting {
    fn is_over(&self, now: Time) -> bool {
        let is_done = |one: &Address| self.have.contains(one) || self.lost.contains(one);
        self.until <= now || self.asked.iter().all(is_done)
    }
}

impl Node {
    /// Sets the function that merges answers and [mergeable](Self::send_mergeable) messages on their way. Without it they are
    /// passed on as they are.
    pub fn merge_with(&mut self, merge: Merge) {
        self.gathers.merge = Some(merge);
    }

    /// Asks these members at the root. [`Output::Part`] follows for each merged answer, and [`Output::Gathered`] at the end, at the
    /// latest when the patience is over.
    ///
    /// # Errors
    /// [`TooMany`] if [`GATHERS_MAX`] gathers are open.
    pub fn gather(
        &mut self,
        now: Time,
        to: &BTreeSet<Address>,
        lane: Lane,
        body: &Bytes,
        patience: Patience,
    ) -> Result<GatherId, TooMany> {
        if self.gathers.collecting.len() >= GATHERS_MAX {
            return Err(TooMany);
        }
        self.gathers.last += 1;
        let id = GatherId(self.gathers.last);
        let is_here = |one: &Address| {
            let state = self.expected.get(one).map(|expected| &expected.state);
            matches!(state, Some(Standing::Joined { .. }))
        };
        let (here, lost): (BTreeSet<Address>, _) = to.iter().partition(|one| is_here(one));
        let collecting = Collecting {
            lane,
            asked: to.clone(),
            have: BTreeSet::new(),
            lost,
            until: now + patience.whole,
        };
        self.gathers.collecting.insert(id, collecting);
        let hops = 1;
        let purpose = Purpose::Ask { id, patience, hops };
        self.cast_for(now, &here, lane, purpose, body);
        self.finish_gathers(now);
        Ok(id)
    }

    /// Ends a gather before its time. Who has not answered is missing.
    pub fn end_gather(&mut self, now: Time, id: GatherId) {
        if let Some(gather) = self.gathers.collecting.get_mut(&id) {
            gather.until = now;
        }
        self.finish_gathers(now);
    }

    /// Gives the answer of this process. It does nothing if this process was not asked, has answered, or the gather is over.
    pub fn answer_gather(&mut self, id: GatherId, body: Bytes) {
        debug_assert!(body.len() <= BODY_MAX, "an answer is too long");
        if let Some(open) = self.gathers.open.get_mut(&id)
            && matches!(open.own, Own::Asked)
        {
            open.own = Own::Answered(body.clone());
            let of = [self.config.me].into();
            self.add_part(id, Part { of, body });
        }
    }

    /// Handles a cast about a gather that has arrived. `below` are those below this process that it is for.
    pub(super) fn on_purpose(
        &mut self,
        now: Time,
        lane: Lane,
        purpose: Purpose,
        below: &BTreeSet<Address>,
        is_asked: Asked,
    ) {
        match purpose {
            Purpose::Message => {}
            Purpose::Ask { id, patience, hops } => {
                let mut awaited = below.clone();
                let own = match is_asked {
                    Asked::Yes => {
                        awaited.insert(self.config.me);
                        Own::Asked
                    }
                    Asked::No => Own::NotAsked,
                };
                let open = Open {
                    lane,
                    own,
                    state: State::Merging(awaited),
                    parts: Vec::new(),
                    pass_at: match planted::is(Bug::SilentAwaited) {
                        true => now + patience.whole,
                        false => now + patience.share(hops),
                    },
                    until: now + patience.whole,
                };
                self.gathers.open.insert(id, open);
                // A root keeps to its bound. Its last words about a gather may come behind the next one, on another lane.
                if self.gathers.open.len() > 2 * GATHERS_MAX {
                    self.gathers.open.pop_first();
                }
            }
            Purpose::Again(id) => self.on_again(now, id, below, is_asked),
            Purpose::End(id) => drop(self.gathers.open.remove(&id)),
        }
    }

    fn on_again(&mut self, now: Time, id: GatherId, below: &BTreeSet<Address>, is_asked: Asked) {
        let Some(open) = self.gathers.open.get_mut(&id) else {
            return;
        };
        let mut awaited = below.clone();
        let me = self.config.me;
        if is_asked == Asked::Yes {
            awaited.insert(me);
        }
        // They may have given their answers before, and the parts may still be here.
        for part in &open.parts {
            awaited.retain(|one| !part.of.contains(one));
        }
        let own = open.own.clone();
        match &mut open.state {
            State::Merging(before) => before.extend(awaited.iter().copied()),
            State::Passing if now < open.pass_at => open.state = State::Merging(awaited.clone()),
            State::Passing => {}
        }
        match own {
            Own::Answered(body) if awaited.contains(&me) => {
                let of = [me].into();
                self.add_part(id, Part { of, body });
            }
            _ if awaited.is_empty() => self.pass_if_complete(id),
            _ => {}
        }
    }

    /// Handles a part from a child.
    pub(super) fn on_part(
        &mut self,
        now: Time,
        peer: Address,
        id: GatherId,
        of: &Members,
        body: Bytes,
    ) {
        let is_root = self.config.me == Address::ROOT;
        let known = if is_root {
            // They may have got another place while the part was on its way.
            let gather = self.gathers.collecting.get(&id);
            gather.map(|gather| of.among(&gather.asked))
        } else {
            let link = self.links.get(&peer);
            link.map(|link| of.among(std::iter::once(&peer).chain(&link.below)))
        };
        let Some(known) = known else {
            return;
        };
        if known.is_empty() || known.len() != of.len() {
            let loss = "it sent answers of processes that were not asked, or are not below it";
            return self.lose_link(now, peer, Loss::Broken(loss.to_owned()));
        }
        let part = Part { of: known, body };
        if is_root {
            self.collect(now, id, part);
        } else {
            self.add_part(id, part);
        }
    }

    fn collect(&mut self, now: Time, id: GatherId, part: Part) {
        let Some(gather) = self.gathers.collecting.get_mut(&id) else {
            return;
        };
        let new: BTreeSet<Address> = part.of.difference(&gather.have).copied().collect();
        if new.len() == part.of.len() || planted::is(Bug::AnswerCountedTwice) {
            gather.have.extend(&part.of);
            let Part { of, body } = part;
            self.outputs.push_back(Output::Part { id, of, body });
            self.finish_gathers(now);
        } else {
            self.ask_again(now, id, &new);
        }
    }

    fn ask_again(&mut self, now: Time, id: GatherId, whom: &BTreeSet<Address>) {
        let Some(gather) = self.gathers.collecting.get(&id) else {
            return;
        };
        let asked = gather.asked.intersection(whom);
        let rest = asked.filter(|one| !gather.have.contains(one) && !gather.lost.contains(one));
        let rest: BTreeSet<Address> = rest.copied().collect();
        let lane = gather.lane;
        if !rest.is_empty() {
            self.cast_for(now, &rest, lane, Purpose::Again(id), &Bytes::new());
        }
    }

    /// Asks processes again at the root that have returned: what they sent may have been lost.
    pub(super) fn ask_returned(&mut self, now: Time, members: &BTreeSet<Address>) {
        if planted::is(Bug::ReturnedNotAsked) {
            return;
        }
        let all: Vec<GatherId> = self.gathers.collecting.keys().copied().collect();
        for id in all {
            self.ask_again(now, id, members);
        }
    }

    /// Notes at the root that these members were lost.
    pub(super) fn miss_answers(&mut self, now: Time, members: &BTreeSet<Address>) {
        if planted::is(Bug::LostAwaited) {
            return;
        }
        for gather in self.gathers.collecting.values_mut() {
            let asked = gather.asked.intersection(members);
            gather.lost.extend(asked);
        }
        self.finish_gathers(now);
    }

    /// Ends at the root the gathers that are over.
    fn finish_gathers(&mut self, now: Time) {
        let all = self.gathers.collecting.iter();
        let over = all.filter(|(_, gather)| gather.is_over(now));
        let over: Vec<GatherId> = over.map(|(id, _)| *id).collect();
        for id in over {
            if let Some(gather) = self.gathers.collecting.remove(&id) {
                let missing = gather.asked.difference(&gather.have).copied().collect();
                self.outputs.push_back(Output::Gathered { id, missing });
                let end = Purpose::End(id);
                self.cast_for(now, &gather.asked, gather.lane, end, &Bytes::new());
            }
        }
    }

    /// Keeps a part, or passes it on.
    fn add_part(&mut self, id: GatherId, part: Part) {
        let Some(open) = self.gathers.open.get_mut(&id) else {
            return;
        };
        if let State::Merging(awaited) = &mut open.state {
            awaited.retain(|one| !part.of.contains(one));
        }
        // An answer that was given again may still be here.
        let is_kept = |kept: &Part| part.of.is_subset(&kept.of);
        if !open.parts.iter().any(is_kept) {
            open.parts.retain(|kept| !kept.of.is_subset(&part.of));
            open.parts.push(part);
        }
        let kept = open.parts.iter().map(|kept| kept.body.len() + PART_BYTES);
        if kept.sum::<usize>() > PARTS_MAX {
            self.pass_parts(id);
        }
        self.pass_if_complete(id);
    }

    fn pass_if_complete(&mut self, id: GatherId) {
        if let Some(open) = self.gathers.open.get_mut(&id) {
            if matches!(&open.state, State::Merging(awaited) if awaited.is_empty()) {
                open.state = State::Passing;
            }
            if matches!(open.state, State::Passing) {
                self.pass_parts(id);
            }
        }
    }

    /// Merges the parts that are here, and passes them up.
    fn pass_parts(&mut self, id: GatherId) {
        let merge = self.gathers.merge;
        let Some(open) = self.gathers.open.get_mut(&id) else {
            return;
        };
        let lane = open.lane;
        let mut groups: Vec<(BTreeSet<Address>, Vec<Part>)> = Vec::new();
        for part in std::mem::take(&mut open.parts) {
            let group = groups
                .iter_mut()
                .find(|group| group.0.is_disjoint(&part.of));
            match group.filter(|_| merge.is_some()) {
                Some((all, parts)) => {
                    all.extend(&part.of);
                    parts.push(part);
                }
                None => groups.push((part.of.clone(), vec![part])),
            }
        }
        for (all, parts) in groups {
            let bodies: Vec<Bytes> = parts.iter().map(|part| part.body.clone()).collect();
            let merged = merge.filter(|_| bodies.len() > 1);
            let merged = merged.and_then(|merge| merge(&bodies));
            match merged.filter(|merged| merged.len() <= BODY_MAX) {
                Some(merged) => self.push_part(lane, id, &all, merged),
                None => {
                    for part in parts {
                        self.push_part(lane, id, &part.of, part.body);
                    }
                }
            }
        }
    }

    fn push_part(&mut self, lane: Lane, id: GatherId, of: &BTreeSet<Address>, body: Bytes) {
        let of = Members::of(of);
        self.push_up(lane, &Head::Part { id, of }, body);
    }

    /// Handles that somebody below a child is lost: passes on what is here, and awaits nobody more below that child. Whoever lives
    /// there returns to the root.
    pub(super) fn stop_awaiting(&mut self, child: Address) {
        if self.config.me == Address::ROOT || self.gathers.open.is_empty() {
            return;
        }
        let mut gone: BTreeSet<Address> = [child].into();
        if let Some(link) = self.links.get(&child) {
            gone.extend(&link.below);
        }
        let all: Vec<GatherId> = self.gathers.open.keys().copied().collect();
        for id in all {
            if let Some(open) = self.gathers.open.get_mut(&id)
                && let State::Merging(awaited) = &mut open.state
            {
                awaited.retain(|one| !gone.contains(one));
            }
            self.pass_parts(id);
            self.pass_if_complete(id);
        }
    }

    /// Forgets all gathers: there is no way to the root.
    pub(super) fn forget_gathers(&mut self) {
        self.gathers.open.clear();
    }

    /// Passes on the parts of gathers whose time has come.
    fn stop_merging(&mut self, now: Time) {
        self.gathers.open.retain(|_, open| now < open.until);
        let all = self.gathers.open.iter();
        let due = all.filter(|(_, open)| open.awaits() && open.pass_at <= now);
        let due: Vec<GatherId> = due.map(|(id, _)| *id).collect();
        for id in due {
            if let Some(open) = self.gathers.open.get_mut(&id) {
                open.state = State::Passing;
            }
            self.pass_parts(id);
        }
    }

    pub(super) fn on_gather_tick(&mut self, now: Time) {
        self.stop_merging(now);
        self.finish_gathers(now);
    }

    pub(super) fn gather_deadline(&self) -> Option<Time> {
        let open = self.gathers.open.values();
        let open = open.map(|open| {
            if open.awaits() {
                open.pass_at.min(open.until)
            } else {
                open.until
            }
        });
        let collecting = self.gathers.collecting.values().map(|gather| gather.until);
        open.chain(collecting).min()
    }

    /// Returns the number of gathers that this process knows.
    #[cfg(test)]
    pub(super) fn gathers(&self) -> usize {
        self.gathers.open.len() + self.gathers.collecting.len()
    }

    /// Returns the number of bytes of the parts that this process keeps.
    #[cfg(test)]
    pub(super) fn kept_parts(&self) -> usize {
        let parts = self.gathers.open.values().flat_map(|open| &open.parts);
        parts.map(|part| part.body.len()).sum()
    }
}

/// Whether a cast about a gather is for this process too, or only for others below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Yes,
    No,
}

impl Open {
    const fn awaits(&self) -> bool {
        matches!(self.state, State::Merging(_))
    }
}
