//! A debug session owns the commands of a user. It sends each command to the agents, and merges their answers into one reply.
//!
//! A command is for a set of ranks. Each agent gets the ranks of its own node. The session merges the answers as they arrive. A
//! command ends with its reply when every agent has answered, or was given up. The reply has every rank: one without an answer
//! is *missing*, with the reason.
//!
//! | an agent with an outstanding answer | its ranks are |
//! |---|---|
//! | answers | answered; ranks that the answer leaves out are *silent* |
//! | refuses | *refused* |
//! | is lost, or sends an answer that it was not asked for | *lost*, in every command |
//! | sends nothing for [`SILENCE`], or the command takes longer than [`LONGEST`] | *silent* |
//!
//! The session drops an answer that comes too late, or after its command was cancelled, and reports that with
//! [`Output::Dropped`]. The host gives each input with the time. [`Session::deadline`] is the time of the next
//! [`Input::Tick`].

mod schedule;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    time::Duration,
};

use base::{NodeId, Rank, RankSet, Time};

use crate::{
    proto::{Action, CommandId, Extent, FromAgent, Proc, ToAgent},
    reply::{Description, Fault, Partial, PartialSample, PartialStacks},
    stack::Missing,
    target::{Target, Whereabouts},
};

pub use self::schedule::{LEAST_BETWEEN, MAX_SAMPLES, Plan, Samples, Schedule};

/// How long an agent may send nothing. Reading one file of debug information can take an agent long.
pub const SILENCE: Duration = Duration::from_secs(60);
/// How long a command may take, even if signs of life come.
pub const LONGEST: Duration = Duration::from_secs(3600);
/// Active commands of one session.
pub const MAX_COMMANDS: usize = 64;
/// Agents of one session.
pub const MAX_AGENTS: usize = 1 << 20;

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The agent of a node has connected.
    Joined {
        /// Its node.
        node: NodeId,
        /// The name of its host.
        host: String,
    },
    /// The process of an agent has exited, or its link is closed.
    Lost(NodeId),
    /// An agent has sent a message.
    Message(NodeId, FromAgent),
    /// The user has cancelled a command.
    Cancel(CommandId),
    /// The time of [`Session::deadline`] has come.
    Tick,
}

/// What the host does next.
#[derive(Debug)]
pub enum Output {
    /// Send a message to an agent.
    Send(NodeId, ToAgent),
    /// Close the link to an agent that cannot be trusted.
    Close(NodeId, Fault),
    /// Give the user the reply to a command, which is over.
    Reply(Reply),
    /// Log that an answer was dropped.
    Dropped {
        /// The node of the agent.
        node: NodeId,
        /// The command that the answer is for.
        id: CommandId,
        /// Why.
        why: Dropped,
    },
}

/// The result of a command.
#[derive(Debug)]
pub struct Reply {
    /// The command.
    pub id: CommandId,
    /// The merged answers of the agents. Samples and stacks mark the missing ranks as well.
    pub answer: Partial,
    /// Ranks without an answer, by the reason.
    pub missing: BTreeMap<Missing, RankSet>,
}

/// Why an answer was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The command is over: its reply went out without this agent, or the user cancelled it.
    Over,
    /// The command goes on without this agent, which was silent for too long or has answered before.
    Late,
}

/// Why a session refuses a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// [`MAX_COMMANDS`] commands are active.
    #[error("{MAX_COMMANDS} commands are active")]
    Full,
}

/// Where the process of a rank is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the node of an agent.
    At(NodeId, Proc),
    /// Out of the reach of every agent.
    Nowhere(Missing),
}

impl Place {
    /// The places of the ranks of a target, which was found on the node `here`.
    #[must_use]
    pub fn of_target(target: &Target, here: NodeId) -> BTreeMap<Rank, Self> {
        let place = |proc: &crate::target::Proc| match &proc.place {
            &Whereabouts::Here { started } => {
                let pid = proc.pid;
                Self::At(here, Proc { pid, started })
            }
            // The process had exited before the search, so its pid may be that of another process.
            Whereabouts::Gone => Self::Nowhere(Missing::Gone),
            Whereabouts::Unproved => Self::Nowhere(Missing::Unproved),
            Whereabouts::On(host) => Self::Nowhere(Missing::Elsewhere(host.clone())),
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
    Lost,
}

/// An active command.
#[derive(Debug)]
struct Command {
    answer: Partial,
    missing: BTreeMap<Missing, RankSet>,
    waiting: BTreeMap<NodeId, Waiting>,
    /// When the command ends even if answers are outstanding.
    end: Time,
}

/// An agent with an outstanding answer.
#[derive(Debug)]
struct Waiting {
    ranks: RankSet,
    /// When to give the agent up, unless it sends something before. Every message of an agent is a sign of life, for whichever
    /// command it is.
    until: Time,
}

impl Session {
    /// A session without agents and ranks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Follows these ranks from now on, and sends each agent the ranks of its node.
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

    /// The followed ranks.
    #[must_use]
    pub fn ranks(&self) -> RankSet {
        self.places.keys().copied().collect()
    }

    /// Begins a command for those of `ranks` that the session follows.
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
                Place::At(node, _) => match self.lost(*node) {
                    Some(why) => missing.entry(why).or_default().insert(rank),
                    None => of_agents.entry(*node).or_default().insert(rank),
                },
            }
        }
        let mut waiting = BTreeMap::new();
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
            answer: nothing(action),
            missing,
            waiting,
            end: now + LONGEST,
        };
        self.commands.insert(id, command);
        self.finish();
        Ok(id)
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Joined { node, host } => self.join(node, host),
            Input::Lost(node) => self.lose(node),
            Input::Message(node, message) => self.hear(now, node, message),
            Input::Cancel(id) => self.cancel(id),
            Input::Tick => {}
        }
        self.expire(now);
        self.finish();
    }

    /// The next step for the host.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to give [`Input::Tick`]; `None` if no answer is outstanding.
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

    /// Takes in the agent of a node. It may replace a lost agent, and knows nothing yet.
    fn join(&mut self, node: NodeId, host: String) {
        if self.agents.len() >= MAX_AGENTS && !self.agents.contains_key(&node) {
            return;
        }
        // The new agent has not got the commands of the one before.
        self.lose(node);
        let state = Link::Up;
        self.agents.insert(node, Agent { host, state });
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
            command.give_up(node, &why);
        }
    }

    /// Why an agent cannot answer; `None` if it can.
    fn lost(&self, node: NodeId) -> Option<Missing> {
        match self.agents.get(&node) {
            Some(agent) if agent.state == Link::Up => None,
            Some(agent) => Some(Missing::AgentLost(agent.host.clone())),
            // No agent of this node has ever connected, so the name of its host is not known.
            None => Some(Missing::AgentLost(node.to_string())),
        }
    }

    fn hear(&mut self, now: Time, node: NodeId, message: FromAgent) {
        let up = self.agents.get(&node);
        let Some(host) = up.filter(|agent| agent.state == Link::Up) else {
            // A message that the agent sent before it was lost may arrive later.
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
        // An agent carries out one command at a time, so the others wait there.
        for command in self.commands.values_mut() {
            if let Some(waiting) = command.waiting.get_mut(&node) {
                waiting.until = now + SILENCE;
            }
        }
        let Some(command) = self.commands.get_mut(&id) else {
            return self.drop_answer(node, id, &message, Dropped::Over);
        };
        let Some(waiting) = command.waiting.get(&node) else {
            return self.drop_answer(node, id, &message, Dropped::Late);
        };
        match message {
            FromAgent::Refused { .. } => command.give_up(node, &Missing::AgentRefused(host)),
            FromAgent::Done { mut part, .. } => {
                let asked = &waiting.ranks;
                if let Err(fault) = part.check(node, asked) {
                    return self.distrust(node, fault);
                }
                part.name_host(node, &host);
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

    /// Reports a dropped answer. A late sign of life is dropped without a report.
    fn drop_answer(&mut self, node: NodeId, id: CommandId, message: &FromAgent, why: Dropped) {
        if matches!(message, FromAgent::Done { .. } | FromAgent::Refused { .. }) {
            self.outputs.push_back(Output::Dropped { node, id, why });
        }
    }

    fn distrust(&mut self, node: NodeId, fault: Fault) {
        self.outputs.push_back(Output::Close(node, fault));
        self.lose(node);
    }

    fn cancel(&mut self, id: CommandId) {
        let Some(command) = self.commands.get_mut(&id) else {
            return;
        };
        let waiting: Vec<NodeId> = command.waiting.keys().copied().collect();
        for node in waiting {
            let host = self.agents.get(&node).map(|agent| agent.host.clone());
            command.give_up(node, &Missing::AgentSilent(host.unwrap_or_default()));
            let cancel = ToAgent::Cancel(id);
            self.outputs.push_back(Output::Send(node, cancel));
        }
    }

    /// Gives up the agents whose deadline has passed.
    fn expire(&mut self, now: Time) {
        for (&id, command) in &mut self.commands {
            let end = command.end;
            let waiting = command.waiting.iter();
            let late = waiting.filter(|(_, waiting)| waiting.until.min(end) <= now);
            let late: Vec<NodeId> = late.map(|(&node, _)| node).collect();
            for node in late {
                let host = self.agents.get(&node).map(|agent| agent.host.clone());
                command.give_up(node, &Missing::AgentSilent(host.unwrap_or_default()));
                // Nobody waits for the answer any more, and the agent may be needed for other commands.
                let cancel = ToAgent::Cancel(id);
                self.outputs.push_back(Output::Send(node, cancel));
            }
        }
    }

    /// Ends the commands without outstanding answers.
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
    /// Gives up an agent, whose ranks are missing for this reason.
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

/// The merged answer before any agent has answered.
fn nothing(action: Action) -> Partial {
    match action {
        Action::Sample(Extent::Children | Extent::Everybody) => {
            Partial::Sample(PartialSample::default())
        }
        Action::Stacks(_) => Partial::Stacks(PartialStacks::default()),
        Action::Describe => Partial::Description(Description::default()),
    }
}
