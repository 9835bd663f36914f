//! A debug session owns the commands of one user. It sends each command to the agents, and merges their answers into one
//! reply.
//!
//! A command is for a set of ranks. Each agent gets the ranks of its own node. The session merges the answers as they arrive.
//! A command ends with its reply when every agent has answered or was given up. The reply has an entry for every rank: a rank
//! without an answer is *missing*, with the reason.
//!
//! | an agent with an outstanding answer | its ranks are |
//! |---|---|
//! | answers | answered; ranks that the answer leaves out are *silent* |
//! | refuses | *refused* |
//! | answers together with others ([`Input::Answers`]) | the same |
//! | is lost, or sends an answer that it was not asked for | *lost*, in every command |
//! | answers together with others, and one answer is about something else | *silent*, in this command |
//! | sends nothing for [`SILENCE`] | *silent*, in every command until it sends a message |
//! | answers too late: the command takes longer than [`LONGEST`] | *silent* |
//!
//! A command does not wait for an agent that is silent already, so that the waits for it do not add up. The agent answers
//! the cancellation of its commands, and then gets the ranks that the session follows by then.
//!
//! The session drops an answer that comes too late, or after its command was cancelled, and reports that with
//! [`Output::Dropped`]. Each input comes with the current time. The host sends [`Input::Tick`] at the time that
//! [`Session::deadline`] returns.

mod schedule;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};

use base::{HostList, NodeId, Rank, RankSet, Time};

use crate::{
    planted::{self, Bug},
    proto::{Action, Answers, CommandId, Extent, FromAgent, Proc, ToAgent},
    reply::{Description, Fault, Partial, PartialSample, PartialStacks},
    stack::Missing,
    target::{Target, Whereabouts},
};

pub use self::schedule::{LEAST_BETWEEN, MAX_SAMPLES, Plan, Samples, Schedule};

/// Longest silence of an agent before it is given up. Reading one file of debug information can take an agent a long time.
pub const SILENCE: Duration = Duration::from_secs(60);
/// Longest duration of a command, even if its agents send signs of life.
pub const LONGEST: Duration = Duration::from_secs(3600);
/// Maximum number of active commands of one session.
pub const MAX_COMMANDS: usize = 64;
/// Maximum number of agents of one session.
pub const MAX_AGENTS: usize = 1 << 20;

/// Events that the host reports to the session.
#[derive(Debug)]
pub enum Input {
    /// The agent of a node has connected.
    Joined {
        /// The node of the agent.
        node: NodeId,
        /// The name of the node's host.
        host: String,
    },
    /// The process of the agent on this node has exited, or its link was closed.
    Lost(NodeId),
    /// The agent on this node has sent a message.
    Message(NodeId, FromAgent),
    /// The merged answers of the agents on some nodes. No node is in two parts of the answers to a command.
    Answers {
        /// The nodes.
        nodes: BTreeSet<NodeId>,
        /// The command.
        id: CommandId,
        /// What the agents have answered.
        answers: Answers,
    },
    /// The user has cancelled a command.
    Cancel(CommandId),
    /// [`Session::deadline`] has passed.
    Tick,
}

/// The next action of the host.
#[derive(Debug)]
pub enum Output {
    /// Send a message to an agent.
    Send(NodeId, ToAgent),
    /// Close the link to the agent on this node, because it has violated the protocol.
    Close(NodeId, Fault),
    /// Give the user the reply to a command, which has ended.
    Reply(Reply),
    /// Log that an answer was dropped.
    Dropped {
        /// The node of the agent.
        node: NodeId,
        /// The command that the answer is for.
        id: CommandId,
        /// The reason.
        why: Dropped,
    },
}

/// The result of a command.
#[derive(Debug)]
pub struct Reply {
    /// Id of the command.
    pub id: CommandId,
    /// The merged answers of the agents. Samples and stacks mark the missing ranks as well.
    pub answer: Partial,
    /// Ranks without an answer, by the reason.
    pub missing: BTreeMap<Missing, RankSet>,
}

/// The reason why an answer was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The command has ended: its reply was sent without this answer, or the user cancelled it.
    Over,
    /// The command continues without this agent, which was silent for too long or has answered before.
    Late,
    /// The answer was merged with others, and at least one of them violates the protocol.
    Faulty,
}

/// The reason why a session refuses a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// [`MAX_COMMANDS`] commands are active.
    #[error("{MAX_COMMANDS} commands are active")]
    Full,
}

/// The location of a rank's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The process is on the node of an agent.
    At(NodeId, Proc),
    /// No agent can reach the process, for this reason.
    Nowhere(Missing),
}

impl Place {
    /// Returns the places of the ranks of a target that was found on the node `here`. `nodes` are the other nodes by name,
    /// each with the reason why it has no agent.
    #[must_use]
    pub fn of_target(
        target: &Target,
        here: NodeId,
        nodes: &BTreeMap<String, Result<NodeId, Missing>>,
    ) -> BTreeMap<Rank, Self> {
        let silent = nodes.iter().filter(|(_, state)| state.is_err());
        let silent: HostList = silent.map(|(host, _)| host.as_str()).collect();
        let silent: Arc<str> = silent.to_string().into();
        let place = |proc: &crate::target::Proc| match &proc.place {
            &Whereabouts::Here { started } => {
                let pid = proc.pid;
                Self::At(here, Proc { pid, started })
            }
            // The process had exited before the search, but its node may have its recorded calls.
            Whereabouts::Gone { host } => {
                let node = match host {
                    None => Some(&here),
                    Some(host) => nodes.get(host).and_then(|node| node.as_ref().ok()),
                };
                let (pid, started) = (proc.pid, Proc::EXITED);
                node.map_or(Self::Nowhere(Missing::Gone), |node| {
                    Self::At(*node, Proc { pid, started })
                })
            }
            Whereabouts::Unproved => Self::Nowhere(Missing::Unproved),
            Whereabouts::NotFound => Self::Nowhere(Missing::NotFound(Arc::clone(&silent))),
            Whereabouts::There { host, started } => match nodes.get(host) {
                Some(Ok(node)) => {
                    let (pid, started) = (proc.pid, *started);
                    Self::At(*node, Proc { pid, started })
                }
                Some(Err(why)) => Self::Nowhere(why.clone()),
                None => Self::Nowhere(Missing::Elsewhere(host.clone())),
            },
            Whereabouts::On(host) => Self::Nowhere(match nodes.get(host) {
                Some(Err(why)) => why.clone(),
                Some(Ok(_)) => Missing::AgentSilent(host.clone()),
                None => Missing::Elsewhere(host.clone()),
            }),
        };
        let procs = target.procs.iter();
        procs.map(|(&rank, proc)| (rank, place(proc))).collect()
    }
}

/// A debug session.
#[derive(Debug, Default)]
pub struct Session {
    agents: BTreeMap<NodeId, Agent>,
    places: BTreeMap<Rank, Place>,
    commands: BTreeMap<CommandId, Command>,
    last_id: u64,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
struct Agent {
    host: String,
    state: Link,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Up,
    /// The agent was given up, and has sent no message since. It does not know which ranks the session follows.
    Silent,
    Lost,
}

/// An active command.
#[derive(Debug)]
struct Command {
    answer: Partial,
    missing: BTreeMap<Missing, RankSet>,
    waiting: BTreeMap<NodeId, Waiting>,
    /// The ranks of each node that was asked.
    asked: BTreeMap<NodeId, RankSet>,
    /// Time at which the command ends even if answers are outstanding.
    end: Time,
}

/// An agent with an outstanding answer.
#[derive(Debug)]
struct Waiting {
    ranks: RankSet,
    /// Time at which the agent is given up, unless it sends a message before. Every message counts as a sign of life,
    /// whichever command it is about.
    until: Time,
}

impl Session {
    /// Returns a session without agents and ranks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the ranks that the session follows, and sends each agent the ranks of its node.
    pub fn follow(&mut self, places: BTreeMap<Rank, Place>) {
        self.places = places;
        let mut of_agents: BTreeMap<NodeId, BTreeMap<Rank, Proc>> = BTreeMap::new();
        for (&node, agent) in &self.agents {
            if agent.state == Link::Up {
                of_agents.insert(node, BTreeMap::new());
            }
        }
        for (&rank, place) in &self.places {
            if let Place::At(node, proc) = place
                && let Some(procs) = of_agents.get_mut(node)
            {
                procs.insert(rank, *proc);
            }
        }
        for (node, procs) in of_agents {
            let follow = ToAgent::Follow(procs);
            self.outputs.push_back(Output::Send(node, follow));
        }
    }

    /// Returns the ranks that the session follows.
    #[must_use]
    pub fn ranks(&self) -> RankSet {
        self.places.keys().copied().collect()
    }

    /// Starts a command for the ranks in `ranks` that the session follows.
    ///
    /// # Errors
    /// [`MAX_COMMANDS`] commands are active.
    pub fn command(
        &mut self,
        now: Time,
        ranks: &RankSet,
        action: Action,
    ) -> Result<CommandId, Refused> {
        if self.commands.len() >= MAX_COMMANDS {
            return Err(Refused::Full);
        }
        self.last_id += 1;
        let id = CommandId(self.last_id);
        let mut missing: BTreeMap<Missing, RankSet> = BTreeMap::new();
        let mut of_agents: BTreeMap<NodeId, RankSet> = BTreeMap::new();
        let places = self.places.iter();
        for (&rank, place) in places.filter(|(rank, _)| ranks.contains(**rank)) {
            match place {
                Place::Nowhere(why) => missing.entry(why.clone()).or_default().insert(rank),
                Place::At(node, _) => match self.absent(*node) {
                    Some(why) => missing.entry(why).or_default().insert(rank),
                    None => of_agents.entry(*node).or_default().insert(rank),
                },
            }
        }
        let mut waiting = BTreeMap::new();
        let asked = of_agents.clone();
        for (node, ranks) in of_agents {
            let until = now + SILENCE;
            self.outputs.push_back(Output::Send(
                node,
                ToAgent::Do {
                    id,
                    ranks: ranks.clone(),
                    action,
                },
            ));
            waiting.insert(node, Waiting { ranks, until });
        }
        let command = Command {
            answer: empty_answer(action),
            missing,
            waiting,
            asked,
            end: now + LONGEST,
        };
        self.commands.insert(id, command);
        self.finish();
        Ok(id)
    }

    /// Handles an event.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Joined { node, host } => self.join(node, host),
            Input::Lost(node) => self.lose(node),
            Input::Message(node, message) => self.hear(now, node, message),
            Input::Answers { nodes, id, answers } => self.take(now, &nodes, id, answers),
            Input::Cancel(id) => self.cancel(id),
            Input::Tick => {}
        }
        self.expire(now);
        self.finish();
    }

    /// Returns the next action for the host.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when to send [`Input::Tick`]; `None` if no answer is outstanding.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let commands = self.commands.values();
        commands
            .filter_map(|command| {
                let until = command.waiting.values().map(|waiting| waiting.until).min();
                Some(until?.min(command.end))
            })
            .min()
    }

    /// Adds the agent of a node, and sends it its ranks. It may replace a lost agent.
    fn join(&mut self, node: NodeId, host: String) {
        if self.agents.len() >= MAX_AGENTS && !self.agents.contains_key(&node) {
            return;
        }
        // The new agent does not know the commands that its predecessor got.
        self.lose(node);
        let state = Link::Up;
        self.agents.insert(node, Agent { host, state });
        self.send_ranks(node);
    }

    /// Sends an agent the ranks of its node.
    fn send_ranks(&mut self, node: NodeId) {
        let procs = self.places.iter();
        let procs = procs.filter_map(|(&rank, place)| match place {
            Place::At(at, proc) if *at == node => Some((rank, *proc)),
            Place::At(..) | Place::Nowhere(_) => None,
        });
        let follow = ToAgent::Follow(procs.collect());
        self.outputs.push_back(Output::Send(node, follow));
    }

    fn lose(&mut self, node: NodeId) {
        let Some(agent) = self.agents.get_mut(&node) else {
            return;
        };
        agent.state = Link::Lost;
        let why = Missing::AgentLost(agent.host.clone());
        for command in self.commands.values_mut() {
            if planted::is(Bug::LostLeftOut) {
                command.waiting.remove(&node);
            }
            command.give_up(node, &why);
        }
    }

    /// Returns the reason why an agent is not asked; `None` if it is.
    fn absent(&self, node: NodeId) -> Option<Missing> {
        let Some(Agent { host, state }) = self.agents.get(&node) else {
            // No agent of this node has ever connected, so the name of the host is unknown.
            return Some(Missing::AgentLost(node.to_string()));
        };
        match state {
            Link::Up => None,
            Link::Silent if planted::is(Bug::SilentAsked) => None,
            Link::Silent => Some(Missing::AgentSilent(host.clone())),
            Link::Lost => Some(Missing::AgentLost(host.clone())),
        }
    }

    fn hear(&mut self, now: Time, node: NodeId, message: FromAgent) {
        let there = self.agents.get(&node);
        let Some(host) = there.filter(|agent| agent.state != Link::Lost) else {
            // A message that the agent sent before it was lost can still arrive.
            return;
        };
        let host = host.host.clone();
        let (FromAgent::Working(id) | FromAgent::Done { id, .. } | FromAgent::Refused { id, .. }) =
            message
        else {
            return self.lose(node);
        };
        if id.0 > self.last_id {
            return self.distrust(node, Fault::UnknownCommand);
        }
        self.note_life(now, node);
        let Some(command) = self.commands.get_mut(&id) else {
            return self.drop_answer(node, id, &message, Dropped::Over);
        };
        let Some(waiting) = command.waiting.get(&node) else {
            if planted::is(Bug::LateTaken)
                && let FromAgent::Done { part, .. } = message
            {
                let _ = command.answer.merge(part);
                return;
            }
            return self.drop_answer(node, id, &message, Dropped::Late);
        };
        match message {
            FromAgent::Refused { .. } => command.give_up(node, &Missing::AgentRefused(host)),
            FromAgent::Done { mut part, .. } => {
                let asked = &waiting.ranks;
                if let Err(fault) = part.check(&[node].into(), asked) {
                    return self.distrust(node, fault);
                }
                part.name_hosts([(node, host.clone())].into());
                let left_out = asked.difference(&part.ranks());
                if command.answer.merge(part).is_err() {
                    return self.distrust(node, Fault::OtherAnswer);
                }
                command.waiting.remove(&node);
                command.miss(left_out, &Missing::AgentSilent(host));
            }
            FromAgent::Working(_) | FromAgent::Stopped => {}
        }
    }

    /// Extends the deadlines of an agent. It carries out one command at a time, so a sign of life counts for its queued commands
    /// too. An agent that was silent takes part in the next command.
    fn note_life(&mut self, now: Time, node: NodeId) {
        if let Some(agent) = self.agents.get_mut(&node)
            && agent.state == Link::Silent
        {
            agent.state = Link::Up;
            self.send_ranks(node);
        }
        for command in self.commands.values_mut() {
            if let Some(waiting) = command.waiting.get_mut(&node)
                && !planted::is(Bug::SignsIgnored)
            {
                waiting.until = now + SILENCE;
            }
        }
    }

    /// Handles the merged answers of some nodes. A node among them may have been given up: its answer comes late but in time, and
    /// cannot be taken out.
    fn take(&mut self, now: Time, nodes: &BTreeSet<NodeId>, id: CommandId, answers: Answers) {
        for &node in nodes {
            self.note_life(now, node);
        }
        let Some(command) = self.commands.get_mut(&id) else {
            if let Some(&node) = nodes.first() {
                let why = Dropped::Over;
                self.outputs.push_back(Output::Dropped { node, id, why });
            }
            return;
        };
        let host = |node| self.agents.get(node).map(|agent| agent.host.clone());
        let hosts = nodes.iter().filter_map(|node| Some((*node, host(node)?)));
        let hosts: BTreeMap<NodeId, String> = hosts.collect();
        for (node, host) in &hosts {
            if answers.refused.contains(node) {
                command.give_up(*node, &Missing::AgentRefused(host.clone()));
            }
        }
        let asked = nodes.iter().filter_map(|node| command.asked.get(node));
        let asked = asked.fold(RankSet::new(), |all, ranks| all.union(ranks));
        let mut answered = RankSet::new();
        if let Some(mut part) = answers.part {
            let fault = part.check(nodes, &asked).err();
            let fault = fault.filter(|_| !planted::is(Bug::FaultyTaken));
            answered = part.ranks();
            part.name_hosts(hosts.clone());
            let fault = fault.or_else(|| {
                let merged = command.answer.merge(part);
                merged.err().map(|_| Fault::OtherAnswer)
            });
            if let Some(fault) = fault {
                return self.reject(id, nodes, fault);
            }
        }
        for ranks in command.missing.values_mut() {
            if !planted::is(Bug::LateStaysMissing) {
                *ranks = ranks.difference(&answered);
            }
        }
        command.missing.retain(|_, ranks| !ranks.is_empty());
        for (node, host) in hosts {
            if let Some(waiting) = command.waiting.remove(&node) {
                let left_out = waiting.ranks.difference(&answered);
                command.miss(left_out, &Missing::AgentSilent(host));
            }
        }
    }

    /// Reports a dropped answer. Late signs of life are dropped without a report.
    fn drop_answer(&mut self, node: NodeId, id: CommandId, message: &FromAgent, why: Dropped) {
        if matches!(message, FromAgent::Done { .. } | FromAgent::Refused { .. }) {
            self.outputs.push_back(Output::Dropped { node, id, why });
        }
    }

    /// Rejects the merged answer of some nodes. Nothing shows which of several agents is at fault: they are given up in this
    /// command only.
    fn reject(&mut self, id: CommandId, nodes: &BTreeSet<NodeId>, fault: Fault) {
        let mut all = nodes.iter();
        if let (Some(&node), None) = (all.next(), all.next()) {
            return self.distrust(node, fault);
        }
        for &node in nodes {
            let host = self.agents.get(&node).map(|agent| agent.host.clone());
            if let Some(command) = self.commands.get_mut(&id)
                && !planted::is(Bug::FaultyAwaited)
            {
                command.give_up(node, &Missing::AgentSilent(host.unwrap_or_default()));
            }
            let why = Dropped::Faulty;
            self.outputs.push_back(Output::Dropped { node, id, why });
        }
    }

    fn distrust(&mut self, node: NodeId, fault: Fault) {
        self.outputs.push_back(Output::Close(node, fault));
        self.lose(node);
    }

    fn cancel(&mut self, id: CommandId) {
        let command = self.commands.get(&id);
        let Some(command) = command.filter(|_| !planted::is(Bug::CancelIgnored)) else {
            return;
        };
        let waiting: Vec<NodeId> = command.waiting.keys().copied().collect();
        for node in waiting {
            self.stop_waiting(id, node);
        }
    }

    /// Gives up agents whose deadline has passed.
    fn expire(&mut self, now: Time) {
        let mut late = Vec::new();
        let mut silent = BTreeSet::new();
        for (&id, command) in &self.commands {
            for (&node, waiting) in &command.waiting {
                if waiting.until <= now {
                    silent.insert(node);
                    if planted::is(Bug::SilenceOfOneCommand) {
                        late.push((id, node));
                    }
                } else if command.end <= now && !planted::is(Bug::LongestIgnored) {
                    late.push((id, node));
                }
            }
        }
        let waiting = self.commands.iter().flat_map(|(&id, command)| {
            let nodes = command.waiting.keys();
            nodes.map(move |&node| (id, node))
        });
        if !planted::is(Bug::SilenceOfOneCommand) {
            late.extend(waiting.filter(|(_, node)| silent.contains(node)));
        }
        for &node in &silent {
            if let Some(agent) = self.agents.get_mut(&node) {
                agent.state = Link::Silent;
            }
        }
        for (id, node) in late {
            self.stop_waiting(id, node);
        }
    }

    /// Gives up an agent in one command. The session no longer needs the answer, and the agent may have other commands to carry
    /// out.
    fn stop_waiting(&mut self, id: CommandId, node: NodeId) {
        let host = self.agents.get(&node).map(|agent| agent.host.clone());
        if let Some(command) = self.commands.get_mut(&id) {
            command.give_up(node, &Missing::AgentSilent(host.unwrap_or_default()));
        }
        let cancel = ToAgent::Cancel(id);
        self.outputs.push_back(Output::Send(node, cancel));
    }

    /// Ends the commands that have no outstanding answers.
    fn finish(&mut self) {
        let over = self.commands.iter();
        let over = over.filter(|(_, command)| command.waiting.is_empty());
        let over: BTreeSet<CommandId> = over.map(|(&id, _)| id).collect();
        for id in over {
            let Some(mut command) = self.commands.remove(&id) else {
                continue;
            };
            for (why, ranks) in &command.missing {
                command.answer.miss(ranks, why);
            }
            self.outputs.push_back(Output::Reply(Reply {
                id,
                answer: command.answer,
                missing: mem::take(&mut command.missing),
            }));
        }
    }
}

impl Command {
    /// Gives up an agent, and marks its ranks as missing for this reason.
    fn give_up(&mut self, node: NodeId, why: &Missing) {
        if let Some(waiting) = self.waiting.remove(&node) {
            self.miss(waiting.ranks, why);
        }
    }

    fn miss(&mut self, ranks: RankSet, why: &Missing) {
        if !ranks.is_empty() {
            let missing = self.missing.entry(why.clone()).or_default();
            *missing = missing.union(&ranks);
        }
    }
}

/// Returns the merged answer before any agent has answered.
fn empty_answer(action: Action) -> Partial {
    match action {
        Action::Sample(Extent::Children | Extent::Everybody | Extent::Calls(_)) => {
            Partial::Sample(PartialSample::default())
        }
        Action::Stacks(_) => Partial::Stacks(PartialStacks::default()),
        Action::Describe => Partial::Description(Description::default()),
    }
}
