//! The checks of a reply: it has each rank once, and tells the truth about it.

use std::collections::BTreeMap;

use base::{NodeId, Rank, Time};
use debug::{
    reply::Partial,
    session::Reply,
    stack::{FrameId, Frames, Missing, Seen},
    tree::Which,
};
use overlay::Address;

use super::{super::truth::Truth, Character, Command, Ledger, MERGING_MAX, WAY_MAX, host};

/// The entries of a rank in a reply.
#[derive(Debug, Default)]
struct Said {
    stacks: Vec<Vec<String>>,
    missing: Vec<Missing>,
    /// Number of entries in a description.
    described: u32,
}

/// The entries of all ranks in a reply.
type All = BTreeMap<Rank, Said>;

impl Ledger {
    /// Checks the reply to a command, and ends the command.
    pub(in super::super) fn on_reply(&mut self, now: Time, reply: &Reply, truth: &Truth) {
        let Some(command) = self.commands.get(&reply.id).filter(|it| !it.is_over) else {
            return self.fault_if(now, Some(format!("{:?} has two replies", reply.id)));
        };
        let wrong = self
            .check_waiting(command)
            .or_else(|| self.check_reasons(command, reply))
            .or_else(|| self.check_content(now, command, reply, truth))
            .or_else(|| self.check_time(now, command))
            .or_else(|| self.check_parts(command));
        let wrong = wrong.map(|wrong| format!("the reply to {:?}: {wrong}", reply.id));
        if let Some(command) = self.commands.get_mut(&reply.id) {
            command.is_over = true;
        }
        self.fault_if(now, wrong);
    }

    fn check_waiting(&self, command: &Command) -> Option<String> {
        let untold = command.asked.len() != command.told.len();
        let early = command.waiting.first_key_value();
        let early = early.map(|(node, until)| format!("{node} may answer until {until}"));
        early.or_else(|| untold.then(|| "not all agents were asked".to_owned()))
    }

    /// Checks why ranks are missing.
    fn check_reasons(&self, command: &Command, reply: &Reply) -> Option<String> {
        let all = reply.missing.iter();
        let mut all = all.flat_map(|(why, ranks)| ranks.iter().map(move |rank| (rank, why)));
        let wrong = all.find_map(|(rank, why)| {
            let is_right = match command.nowhere.get(&rank) {
                Some(right) => right == why,
                None => {
                    let node = node_of(command, rank)?;
                    self.is_reason(command, node, why)
                }
            };
            (!is_right).then(|| format!("rank {rank} is missing without a reason: {why:?}"))
        });
        let is_missing = |rank: &Rank| reply.missing.values().any(|all| all.contains(*rank));
        let mut nowhere = command.nowhere.keys();
        let known = nowhere.find(|rank| !is_missing(rank));
        wrong.or_else(|| known.map(|rank| format!("rank {rank} is known, and nobody was asked")))
    }

    /// Returns true if the ranks of a node may be missing for this reason.
    fn is_reason(&self, command: &Command, node: NodeId, why: &Missing) -> bool {
        let is_sound = self.is_true(node) && !command.spoiled.contains(&node);
        let has_answer = command.answered.contains(&node);
        let (may_be, of) = match why {
            Missing::AgentLost(of) => (command.lost.contains(&node), of),
            Missing::AgentRefused(of) => (command.refused.contains(&node), of),
            // An agent that lies may leave out its ranks.
            Missing::AgentSilent(of) => {
                let left_out = has_answer && !is_sound;
                (command.given_up.contains(&node) || left_out, of)
            }
            _ => return false,
        };
        may_be && *of == host(node) && !(has_answer && is_sound)
    }

    fn check_content(
        &self,
        now: Time,
        command: &Command,
        reply: &Reply,
        truth: &Truth,
    ) -> Option<String> {
        let all = said(&reply.answer);
        if let Some(other) = all.keys().find(|rank| !command.ranks.contains(**rank)) {
            return Some(format!("nobody has asked for rank {other}"));
        }
        let is_description = matches!(reply.answer, Partial::Description(_));
        let nothing = Said::default();
        command.ranks.iter().find_map(|rank| {
            let said = all.get(&rank).unwrap_or(&nothing);
            let reasons = reply.missing.iter();
            let reasons = reasons.filter(|(_, ranks)| ranks.contains(rank));
            let reasons: Vec<&Missing> = reasons.map(|(why, _)| why).collect();
            let is_once = match (&*reasons, is_description) {
                ([], true) => said.described == 1,
                ([], false) => said.stacks.len() + said.missing.len() == 1,
                ([_], true) => said.described == 0,
                ([why], false) => said.stacks.is_empty() && said.missing == [(*why).clone()],
                _ => false,
            };
            let node = node_of(command, rank);
            let is_sound =
                node.is_none_or(|node| self.is_true(node) && !command.spoiled.contains(&node));
            if !is_sound {
                return None;
            }
            if !is_once {
                return Some(format!(
                    "rank {rank} is not there once: {said:?}, {reasons:?}"
                ));
            }
            if !reasons.is_empty() || is_description {
                return None;
            }
            let is_true = match (&*said.stacks, &*said.missing) {
                ([stack], _) => truth.had(rank, stack, command.at, now),
                (_, [Missing::Gone]) => truth.has_ended(rank, now),
                _ => false,
            };
            (!is_true).then(|| format!("rank {rank} was never there: {said:?}"))
        })
    }

    /// Checks that the reply has the early answers of agents without faults, although other agents are silent.
    fn check_time(&self, now: Time, command: &Command) -> Option<String> {
        let slack = MERGING_MAX + WAY_MAX + self.members.delay();
        let mut given = command.given.iter();
        let late = given.find(|(node, at)| {
            let is_well = self.is_true(**node)
                && self.members.is_lucky(Address(node.0))
                && **at + slack < now;
            let is_here = command.answered.contains(node) || command.refused.contains(node);
            is_well && !is_here && !self.has_liar(command)
        });
        late.map(|(node, at)| format!("the answer of {node}, given at {at}, is not in it"))
    }

    /// Returns true if the command was sent to an agent whose answers the session rejects, together with those merged with them.
    /// Bytes that are no answer are not merged.
    fn has_liar(&self, command: &Command) -> bool {
        let is_garbled = |node| self.characters.get(node) == Some(&Character::Garbles);
        let mut asked = command.asked.keys();
        asked.any(|node| !self.is_true(*node) && !is_garbled(node))
    }

    /// Checks that the answers were merged if there was no fault.
    fn check_parts(&self, command: &Command) -> Option<String> {
        let is_quiet = self.members.delay().is_zero()
            && self.stalls.is_empty()
            && command.given_up.is_empty()
            && command.asked.keys().all(|node| self.is_true(*node));
        let soon = command.at + MERGING_MAX / 4;
        let is_soon = command.given.values().all(|at| *at < soon);
        let (parts, most) = (command.parts, command.parts_max);
        (is_quiet && is_soon && parts > most)
            .then(|| format!("it took {parts} messages with answers, {most} are enough"))
    }
}

fn node_of(command: &Command, rank: Rank) -> Option<NodeId> {
    let mut asked = command.asked.iter();
    let node = asked.find(|(_, ranks)| ranks.contains(rank));
    node.map(|(node, _)| *node)
}

fn names(frames: &Frames, stack: &[FrameId]) -> Vec<String> {
    let frames = stack.iter().map(|id| frames.get(*id));
    frames.map(ToString::to_string).collect()
}

fn said(answer: &Partial) -> All {
    let mut all = All::new();
    match answer {
        Partial::Sample(part) => {
            for (rank, seen) in &part.snapshot.procs {
                let said = all.entry(*rank).or_default();
                match seen {
                    Seen::Threads(threads) => {
                        let stacks = threads.iter();
                        let stacks = stacks.map(|it| names(&part.frames, &it.stack.frames));
                        said.stacks.extend(stacks);
                    }
                    Seen::Missing(why) => said.missing.push(why.clone()),
                }
            }
        }
        Partial::Stacks(part) => {
            part.merged.tree.each(|stack, ending, threads| {
                let stack = names(&part.frames, stack);
                for (count, ranks) in threads.by_count() {
                    for rank in ranks.iter() {
                        let said = all.entry(rank).or_default();
                        let count = if ending.thread == Which::First {
                            count
                        } else {
                            0
                        };
                        said.stacks.extend((0..count).map(|_| stack.clone()));
                    }
                }
            });
            for (why, ranks) in &part.missing {
                for rank in ranks.iter() {
                    all.entry(rank).or_default().missing.push(why.clone());
                }
            }
        }
        Partial::Description(part) => {
            for rank in part.ranks.iter().chain(part.processors.keys().copied()) {
                let _ = all.entry(rank).or_default();
            }
            for rank in part.ranks.iter() {
                all.entry(rank).or_default().described += 1;
            }
        }
    }
    all
}
