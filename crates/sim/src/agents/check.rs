//! A model of each command by the table of [`debug::session`]: which agents it awaits until when, and why a rank may be
//! missing. The checks compare each reply with the model and with the truth.

mod reply;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::discriminant,
    time::Duration,
};

use base::{NodeId, Rank, RankSet, Time};
use debug::{
    proto::{Action, Answers, CommandId, FromAgent},
    reply::Partial,
    session::{LONGEST, Place, SILENCE},
    stack::Missing,
};
use overlay::Address;

use super::{MERGING_MAX, host, member::Character, program::PHASES};
use crate::{
    members::Members,
    record::{Played, Record, Recorded, Report},
};

/// Allowance for messages, in addition to what faults add.
const WAY_MAX: Duration = Duration::from_secs(3);
/// Frames of all stacks: those of the phases, and the functions that they share.
const FRAMES_MAX: usize = PHASES as usize + 4;
/// Nodes of the tree of all stacks: the same, one function that is called by two others, and the root.
const NODES_MAX: usize = FRAMES_MAX + 2;

/// A command of the user.
#[derive(Debug)]
struct Command {
    at: Time,
    /// Latest time of the reply.
    end: Time,
    action: Action,
    ranks: RankSet,
    /// Why ranks are missing from the beginning.
    nowhere: BTreeMap<Rank, Missing>,
    /// The ranks of each node that has to be asked.
    asked: BTreeMap<NodeId, RankSet>,
    /// Nodes that the session has asked.
    told: BTreeSet<NodeId>,
    /// Until when each node is awaited.
    waiting: BTreeMap<NodeId, Time>,
    refused: BTreeSet<NodeId>,
    /// Nodes that were silent or late, or that the session did not await when the user cancelled the command.
    given_up: BTreeSet<NodeId>,
    lost: BTreeSet<NodeId>,
    /// Nodes whose answers the session has taken.
    answered: BTreeSet<NodeId>,
    /// Nodes whose answers were merged with one that may be false.
    spoiled: BTreeSet<NodeId>,
    /// The times at which the agents answered.
    given: BTreeMap<NodeId, Time>,
    /// Number of messages with answers that the root has received.
    parts: usize,
    /// Maximum of `parts` without faults.
    parts_max: usize,
    is_over: bool,
}

#[derive(Debug)]
pub(super) struct Ledger {
    record: Record,
    pub(super) members: Members,
    pub(super) characters: BTreeMap<NodeId, Character>,
    commands: BTreeMap<CommandId, Command>,
    /// Nodes whose agents the session knows.
    joined: BTreeSet<NodeId>,
    silent: BTreeSet<NodeId>,
    lost: BTreeSet<NodeId>,
    /// How long agents were stopped.
    pub(super) stalls: BTreeMap<NodeId, Duration>,
    last_id: u64,
}

impl Ledger {
    pub(super) fn new(
        members: Members,
        characters: BTreeMap<NodeId, Character>,
        recorded: Recorded,
    ) -> Self {
        Self {
            record: Record::new(recorded),
            members,
            characters,
            commands: BTreeMap::new(),
            joined: BTreeSet::new(),
            silent: BTreeSet::new(),
            lost: BTreeSet::new(),
            stalls: BTreeMap::new(),
            last_id: 0,
        }
    }

    pub(super) fn note(&mut self, now: Time, what: impl FnOnce() -> String) {
        self.record.note(now, what);
    }

    pub(super) fn fault_if(&mut self, now: Time, wrong: Option<String>) {
        if let Some(wrong) = wrong {
            self.record.fault(now, wrong);
        }
    }

    pub(super) const fn is_faulty(&self) -> bool {
        self.record.is_faulty()
    }

    pub(super) fn into_played(self, report: Report) -> Played {
        self.record.into_played(report)
    }

    pub(super) fn is_open(&self) -> bool {
        self.commands.values().any(|command| !command.is_over)
    }

    fn is_true(&self, node: NodeId) -> bool {
        let character = self.characters.get(&node);
        character.is_none_or(|character| character.is_true())
    }

    pub(super) fn on_joined(&mut self, node: NodeId) {
        self.joined.insert(node);
    }

    pub(super) fn on_command(
        &mut self,
        now: Time,
        id: CommandId,
        action: Action,
        places: BTreeMap<Rank, Place>,
        parts_max: usize,
    ) {
        self.last_id = id.0;
        let mut command = Command {
            at: now,
            end: now + LONGEST,
            action,
            ranks: places.keys().copied().collect(),
            nowhere: BTreeMap::new(),
            asked: BTreeMap::new(),
            told: BTreeSet::new(),
            waiting: BTreeMap::new(),
            refused: BTreeSet::new(),
            given_up: BTreeSet::new(),
            lost: BTreeSet::new(),
            answered: BTreeSet::new(),
            spoiled: BTreeSet::new(),
            given: BTreeMap::new(),
            parts: 0,
            parts_max,
            is_over: false,
        };
        for (rank, place) in places {
            let why = match place {
                Place::Nowhere(why) => why,
                Place::At(node, _) => match self.absent(node) {
                    Some(why) => why,
                    None => {
                        command.asked.entry(node).or_default().insert(rank);
                        command.waiting.insert(node, now + SILENCE);
                        continue;
                    }
                },
            };
            command.nowhere.insert(rank, why);
        }
        self.commands.insert(id, command);
    }

    /// Returns why the session must not ask the agent of a node; `None` if it must.
    fn absent(&self, node: NodeId) -> Option<Missing> {
        if !self.joined.contains(&node) {
            Some(Missing::AgentLost(node.to_string()))
        } else if self.lost.contains(&node) {
            Some(Missing::AgentLost(host(node)))
        } else {
            let is_silent = self.silent.contains(&node);
            is_silent.then(|| Missing::AgentSilent(host(node)))
        }
    }

    /// Checks that the session may send a command to the agent of a node.
    pub(super) fn on_told(&mut self, now: Time, node: NodeId, id: CommandId, ranks: &RankSet) {
        let command = self.commands.get_mut(&id);
        let is_right = command.is_some_and(|command| {
            command.told.insert(node) && command.asked.get(&node) == Some(ranks)
        });
        self.record.require(now, is_right, || {
            format!("the session asks {node} for {ranks}, twice or by mistake")
        });
    }

    /// Notes that the agent of a node has answered.
    pub(super) fn on_given(&mut self, now: Time, node: NodeId, id: CommandId) {
        if let Some(command) = self.commands.get_mut(&id) {
            command.given.entry(node).or_insert(now);
        }
    }

    /// Handles a sign of life.
    fn hear(&mut self, now: Time, node: NodeId) {
        if self.lost.contains(&node) {
            return;
        }
        self.silent.remove(&node);
        for command in self.commands.values_mut() {
            if let Some(until) = command.waiting.get_mut(&node) {
                *until = now + SILENCE;
            }
        }
    }

    /// Notes that the session has lost the agent of a node.
    pub(super) fn on_lost(&mut self, node: NodeId) {
        if !self.joined.contains(&node) {
            return;
        }
        self.lost.insert(node);
        for command in self.commands.values_mut() {
            if command.waiting.remove(&node).is_some() {
                command.lost.insert(node);
            }
        }
    }

    /// Handles a message that came outside of a gather.
    pub(super) fn on_message(&mut self, now: Time, node: NodeId, message: &FromAgent) {
        if self.lost.contains(&node) || !self.joined.contains(&node) {
            return;
        }
        let (FromAgent::Working(id) | FromAgent::Done { id, .. } | FromAgent::Refused { id, .. }) =
            message
        else {
            return self.on_lost(node);
        };
        if id.0 > self.last_id {
            return self.on_lost(node);
        }
        self.hear(now, node);
        let Some(command) = self.commands.get_mut(id).filter(|it| !it.is_over) else {
            return;
        };
        match message {
            FromAgent::Done { .. } if command.waiting.remove(&node).is_some() => {
                command.answered.insert(node);
            }
            FromAgent::Refused { .. } if command.waiting.remove(&node).is_some() => {
                command.refused.insert(node);
            }
            _ => {}
        }
    }

    /// Handles merged answers.
    pub(super) fn on_answers(
        &mut self,
        now: Time,
        nodes: &BTreeSet<NodeId>,
        id: CommandId,
        answers: &Answers,
    ) {
        for node in nodes {
            self.hear(now, *node);
        }
        let is_true = nodes.iter().all(|node| self.is_true(*node));
        let Some(command) = self.commands.get_mut(&id).filter(|it| !it.is_over) else {
            return;
        };
        command.parts += 1;
        for node in &answers.refused {
            // No run has as many commands as wait at an agent before it is busy.
            let is_right = self.characters.get(node) == Some(&Character::Refuses);
            self.record.require(now, is_right, || {
                format!("{node} refuses, and has no reason to")
            });
            command.waiting.remove(node);
            command.refused.insert(*node);
        }
        if let Some(part) = &answers.part {
            let asked = nodes.iter().filter_map(|node| command.asked.get(node));
            let asked = asked.fold(RankSet::new(), |all, ranks| all.union(ranks));
            let is_kind = discriminant(part) == discriminant(&kind(command.action));
            if part.check(nodes, &asked).is_err() || !is_kind {
                self.record.require(now, !is_true, || {
                    format!("the answers of {nodes:?} to {id:?} are not accepted")
                });
                return self.reject(nodes, id);
            }
            if !is_true {
                command.spoiled.extend(nodes);
            } else if let Partial::Stacks(part) = part {
                let (frames, size) = (part.frames.len(), part.merged.tree.len());
                let is_small = frames <= FRAMES_MAX && size <= NODES_MAX;
                self.record.require(now, is_small, || {
                    format!("the answers of {nodes:?} have {frames} frames and a tree of {size}")
                });
            }
        }
        for node in nodes {
            command.waiting.remove(node);
            if !answers.refused.contains(node) {
                command.answered.insert(*node);
            }
        }
    }

    /// Handles answers that violate the protocol.
    fn reject(&mut self, nodes: &BTreeSet<NodeId>, id: CommandId) {
        if let (1, Some(&node)) = (nodes.len(), nodes.first()) {
            return self.on_lost(node);
        }
        if let Some(command) = self.commands.get_mut(&id) {
            for node in nodes {
                if command.waiting.remove(node).is_some() {
                    command.given_up.insert(*node);
                }
            }
        }
    }

    pub(super) fn on_cancel(&mut self, id: CommandId) {
        if let Some(command) = self.commands.get_mut(&id) {
            let waiting = std::mem::take(&mut command.waiting);
            command.given_up.extend(waiting.into_keys());
        }
    }

    /// Gives up agents whose deadline has passed.
    pub(super) fn expire(&mut self, now: Time) {
        let all = self.commands.values();
        let all = all.flat_map(|command| &command.waiting);
        let silent = all.filter(|(_, until)| **until <= now);
        let silent: BTreeSet<NodeId> = silent.map(|(node, _)| *node).collect();
        for node in &silent {
            let wrong = self.wrongly_silent(*node);
            self.fault_if(now, wrong);
        }
        for command in self.commands.values_mut() {
            let is_late = command.end <= now;
            let late = command.waiting.keys().copied();
            let late = late.filter(|node| is_late || silent.contains(node));
            for node in late.collect::<Vec<_>>() {
                command.waiting.remove(&node);
                command.given_up.insert(node);
            }
        }
        self.silent.extend(silent);
    }

    /// Returns a description of the failure if neither the agent nor a fault explains the silence of a node.
    fn wrongly_silent(&self, node: NodeId) -> Option<String> {
        let stalled = self.stalls.get(&node).copied().unwrap_or_default();
        let quiet = stalled + self.members.delay() + MERGING_MAX + WAY_MAX;
        let is_well = self.characters.get(&node).is_none_or(|it| it.answers())
            && self.members.is_lucky(Address(node.0))
            && quiet < SILENCE;
        is_well.then(|| format!("{node} gives signs of life, and none arrives"))
    }

    /// Checks that a command has its reply as soon as it awaits no agent.
    pub(super) fn check_open(&mut self, now: Time) {
        let mut open = self.commands.iter().filter(|(_, it)| !it.is_over);
        let over = open
            .find(|(_, it)| it.waiting.is_empty())
            .map(|(id, _)| *id);
        self.record.require(now, over.is_none(), || {
            format!("{over:?} awaits nobody, and has no reply")
        });
    }

    /// Checks that all commands have their replies.
    pub(super) fn check_end(&mut self, now: Time) {
        let open = self.is_open();
        self.record
            .require(now, !open, || "a command has no reply".to_owned());
    }
}

/// Returns an answer of the right kind.
fn kind(action: Action) -> Partial {
    match action {
        Action::Sample(_) => Partial::Sample(debug::reply::PartialSample::default()),
        Action::Stacks(_) => Partial::Stacks(debug::reply::PartialStacks::default()),
        Action::Describe => Partial::Description(debug::reply::Description::default()),
    }
}
