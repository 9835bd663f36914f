//! The other nodes of a session: starts an agent on each, and passes messages.

mod searches;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{NodeId, RankSet, Signal, Time};
use bytes::Bytes;
use debug::{
    proto::{Action, Answers, CommandId, FromAgent, FromNode, Search, ToAgent, ToNode},
    report::Detail,
    stack::Missing,
    target::OnNode,
    wire,
};
use message::Message;
use os::Clock;
use runtime::relay::{self, JoinError, News, Received, Relay, Side};

use self::searches::Searches;
use super::{
    host,
    remote::{AGENT_ARGUMENT, BUILD},
    through,
};
use crate::{
    args::{self, AgentArgs, Starter, World},
    exit::ExitCode,
};

/// Time from the start in which an agent has to connect and to find the processes of its node. The report is made without
/// the nodes that take longer.
const START_MAX: Duration = Duration::from_secs(10);
/// Time for a node that has to get the program first.
const COPY_MAX: Duration = Duration::from_secs(60);
/// Time for a later search.
const FIND_MAX: Duration = Duration::from_secs(5);
/// The signals that end a watch and the waits for other nodes. A watch, and a wait between samples, block them, so a wait for nodes has
/// to look for them.
pub(super) const ENDING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];
/// Time between two looks for signals.
pub(super) const SIGNAL_CHECK: Duration = Duration::from_millis(100);
/// Maximum number of characters of the reason why an agent did not start.
const REASON_MAX: usize = 200;

/// Why there is no way to other nodes.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotReached {
    #[error(transparent)]
    Os(#[from] os::Error),
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error(transparent)]
    Args(#[from] args::Error),
}

impl NotReached {
    pub(super) fn message(&self) -> Message {
        match self {
            Self::Os(error) => crate::messages::system(error),
            Self::Join(JoinError::Os(error)) => crate::messages::system(error),
            Self::Join(JoinError::Boot(why)) => crate::messages::controller_failed(why),
            Self::Args(error) => error.message(),
        }
    }

    /// Returns the exit code.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Os(_) | Self::Join(_) => ExitCode::Resources.code(),
            Self::Args(error) => error.exit().code(),
        }
    }
}

/// News about another node, for the session.
#[derive(Debug)]
pub(super) enum Event {
    Message(FromAgent),
    Lost,
    /// Merged answers of several nodes to a command.
    Answers {
        nodes: BTreeSet<NodeId>,
        id: CommandId,
        answers: Answers,
    },
}

/// The state of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Up,
    Down(Missing),
}

/// The other nodes of a session.
#[derive(Debug)]
pub(super) struct Nodes {
    relay: Option<Relay>,
    /// The names of the other nodes.
    hosts: BTreeMap<NodeId, String>,
    states: BTreeMap<NodeId, State>,
    searches: Searches,
    /// What identifies each node that has answered a search, whatever its name.
    identities: BTreeMap<NodeId, String>,
    /// When all agents have to be there that need no copy of the program.
    until: Time,
    /// The time from the start to `until`.
    patience: Duration,
    /// When each node has to connect.
    due: BTreeMap<NodeId, Time>,
    detail: Detail,
    /// A command for several nodes that waits for further ones, and the nodes.
    command: Option<(BTreeSet<NodeId>, CommandId, RankSet, Action)>,
}

impl Nodes {
    /// Starts the agents of these nodes, whose numbers begin with 1. `starter` is who could do that in place of our own command.
    /// Daemons of a job start none on nodes that the job has lost.
    ///
    /// # Errors
    /// An error of the system, or an option or a setting that is of no use.
    pub(super) fn start(
        hosts: Vec<String>,
        agents: &AgentArgs,
        starter: Option<&Starter>,
        detail: Detail,
    ) -> Result<Self, NotReached> {
        let lost = match starter {
            Some(Starter::Daemons(socket)) => through::lost_nodes(socket),
            Some(Starter::Slurm(_)) | None => BTreeSet::new(),
        };
        let (lost, hosts): (Vec<String>, Vec<String>) =
            hosts.into_iter().partition(|host| lost.contains(host));
        let relay = if hosts.is_empty() {
            None
        } else {
            let plan = agents.plan(&hosts, AGENT_ARGUMENT, starter, &World::capture())?;
            let all = [os::host_name()].into_iter().chain(hosts.iter().cloned());
            match relay::root(plan, all.collect(), BUILD)? {
                Side::Program(relay) => Some(relay),
                Side::Relay(code) => os::exit_at_once(code),
            }
        };
        let down = |host: &String| {
            let (host, why) = (host.clone(), "the job has lost this node".to_owned());
            State::Down(Missing::NotStarted { host, why })
        };
        let states = hosts.iter().map(|_| State::Starting);
        let states: Vec<State> = states.chain(lost.iter().map(down)).collect();
        let hosts = hosts.into_iter().chain(lost);
        let hosts: BTreeMap<NodeId, String> = (1..).map(NodeId).zip(hosts).collect();
        // The daemons of a job always copy the program.
        let patience = match starter {
            Some(Starter::Daemons(_)) => COPY_MAX,
            Some(Starter::Slurm(_)) | None => START_MAX,
        };
        let until = Clock::now() + patience;
        Ok(Self {
            relay,
            states: hosts.keys().copied().zip(states).collect(),
            due: hosts.keys().map(|node| (*node, until)).collect(),
            hosts,
            searches: Searches::default(),
            identities: BTreeMap::new(),
            until,
            patience,
            detail,
            command: None,
        })
    }

    /// Has each node search for something, and returns what they have found. A node that does not answer in time has what it
    /// found last, and counts as silent until it answers.
    pub(super) fn find(&mut self, search: impl Fn(&str) -> Search) -> BTreeMap<NodeId, OnNode> {
        let hosts = self.hosts.iter();
        self.searches
            .begin(hosts.map(|(node, host)| (*node, search(host))).collect());
        let nodes: Vec<NodeId> = self.hosts.keys().copied().collect();
        for node in &nodes {
            if self.states.get(node) == Some(&State::Up) {
                self.ask(*node);
            }
        }
        loop {
            let now = Clock::now();
            let open = nodes.iter().filter_map(|node| match self.states.get(node) {
                Some(State::Starting) => self.due.get(node).copied(),
                Some(State::Up) => self.searches.due(*node),
                Some(State::Down(_)) | None => None,
            });
            let Some(until) = open.filter(|until| *until > now).max() else {
                break;
            };
            if os::pending_signal(&ENDING).is_some() {
                break;
            }
            self.receive(Some(until.min(now + SIGNAL_CHECK)));
        }
        for &node in &nodes {
            if self.states.get(&node) == Some(&State::Starting) {
                let host = self.hosts.get(&node).cloned().unwrap_or_default();
                let why = format!("it did not connect within {} s", self.patience(node));
                let why = Missing::NotStarted { host, why };
                self.states.insert(node, State::Down(why));
            }
        }
        let up = nodes.into_iter();
        let up = up.filter(|node| self.states.get(node) == Some(&State::Up));
        self.searches.end(up)
    }

    /// Returns the nodes by name, each with its number, or the reason why it does not answer.
    pub(super) fn by_name(&self) -> BTreeMap<String, Result<NodeId, Missing>> {
        let state = |(node, host): (&NodeId, &String)| {
            let state = match self.states.get(node) {
                Some(State::Down(why)) => Err(why.clone()),
                _ if self.searches.is_late(*node) => Err(Missing::AgentSilent(host.clone())),
                _ => Ok(*node),
            };
            (host.clone(), state)
        };
        self.hosts.iter().map(state).collect()
    }

    /// Returns the nodes whose agents are connected, with their names.
    pub(super) fn up(&self) -> impl Iterator<Item = (NodeId, &String)> {
        let hosts = self.hosts.iter();
        hosts
            .filter(|(node, _)| self.states.get(node) == Some(&State::Up))
            .map(|(node, host)| (*node, host))
    }

    /// Returns the names of nodes that are further names of others, or of the node with the identity `own`.
    pub(super) fn twins(&self, own: Option<String>) -> BTreeSet<String> {
        let mut known: BTreeSet<&String> = own.iter().collect();
        let is_up = |node| self.states.get(node) == Some(&State::Up);
        let twins = self.identities.iter().filter(|(node, _)| is_up(*node));
        let twins = twins.filter(|(_, identity)| !known.insert(identity));
        let twins = twins.filter_map(|(node, _)| self.hosts.get(node).cloned());
        twins.collect()
    }

    /// Returns why no agent was started, if there is none.
    pub(super) fn why_none(&self) -> Option<&str> {
        let mut why = None;
        for state in self.states.values() {
            match state {
                State::Down(Missing::NotStarted { why: of_one, .. }) => why = Some(of_one.as_str()),
                State::Starting | State::Up | State::Down(_) => return None,
            }
        }
        why
    }

    /// Sends a message of the session to the agent of a node.
    pub(super) fn send(&mut self, node: NodeId, message: ToAgent) {
        let ToAgent::Do { id, ranks, action } = message else {
            return self.push(node, &ToNode::Agent(message));
        };
        // All agents get the same message, with the ranks of all.
        match &mut self.command {
            Some((nodes, of, all, _)) if *of == id => {
                nodes.insert(node);
                *all = all.union(&ranks);
            }
            _ => {
                self.ask_agents();
                self.command = Some(([node].into(), id, ranks, action));
            }
        }
    }

    /// Sends the command that waits for further nodes.
    pub(super) fn ask_agents(&mut self) {
        let (Some((nodes, id, ranks, action)), Some(relay)) =
            (self.command.take(), &mut self.relay)
        else {
            return;
        };
        let nodes: Vec<NodeId> = nodes.into_iter().collect();
        let sent = wire::encode(&ToAgent::Do { id, ranks, action })
            .map(|body| relay.ask(id.0, &nodes, Bytes::from(body)));
        if let Ok(Err(_)) = sent {
            self.relay = None;
        }
    }

    /// Notes that a command is over, whoever has not answered.
    pub(super) fn end(&mut self, id: CommandId) {
        self.ask_agents();
        if let Some(relay) = &mut self.relay
            && relay.enough(id.0).is_err()
        {
            self.relay = None;
        }
    }

    /// Ends the agent of a node, which has violated the protocol.
    pub(super) fn close(&mut self, node: NodeId) {
        self.push(node, &ToNode::Agent(ToAgent::Stop));
        let _ = self.lose(node);
    }

    /// Returns the next news for the session. `None` if there is none until `until`.
    pub(super) fn next(&mut self, until: Option<Time>) -> Option<(NodeId, Event)> {
        loop {
            // What concerns nodes that the session does not know yet is handled here.
            if let (node, Some(event)) = self.receive(until)? {
                return Some((node, event));
            }
        }
    }

    /// Returns the number of seconds in which a node had to connect.
    fn patience(&self, node: NodeId) -> u64 {
        let has_more = self.due.get(&node).is_some_and(|due| *due > self.until);
        let time = if has_more { COPY_MAX } else { self.patience };
        time.as_secs()
    }

    fn ask(&mut self, node: NodeId) {
        let due = self.until.max(Clock::now() + FIND_MAX);
        if let Some(search) = self.searches.ask(node, due) {
            self.push(node, &ToNode::Find(search));
        }
    }

    fn push(&mut self, node: NodeId, message: &ToNode) {
        self.ask_agents();
        let Some(relay) = &mut self.relay else {
            return;
        };
        // A message of the session is far shorter than the bound.
        let sent = wire::encode(message).map(|body| relay.cast(&[node], Bytes::from(body)));
        if let Ok(Err(_)) = sent {
            self.relay = None;
        }
    }

    /// Handles what the relay sends next. `None` if there is nothing until `until`.
    fn receive(&mut self, until: Option<Time>) -> Option<(NodeId, Option<Event>)> {
        let received = match &mut self.relay {
            Some(relay) => host::wait_and_release_late(until, |until| relay.next(until)),
            None => return self.lose_next(),
        };
        match received {
            Ok(None) => None,
            Ok(Some(Received::Body(node, body))) => Some((node, self.hear(node, &body))),
            Ok(Some(Received::Part(number, nodes, body))) => Some(self.take(number, nodes, &body)),
            Ok(Some(Received::Asked(..))) => Some((NodeId(0), None)),
            Ok(Some(Received::News(news))) => Some(self.learn(news)),
            Err(_) => {
                self.relay = None;
                self.lose_next()
            }
        }
    }

    /// Without the relay, all nodes are lost, one after the other.
    fn lose_next(&mut self) -> Option<(NodeId, Option<Event>)> {
        let mut states = self.states.iter();
        let lost = states.find(|(_, state)| !matches!(state, State::Down(_)));
        let node = *lost?.0;
        Some((node, self.lose(node)))
    }

    fn lose(&mut self, node: NodeId) -> Option<Event> {
        let host = self.hosts.get(&node)?.clone();
        let why = Missing::AgentLost(host);
        match self.states.insert(node, State::Down(why)) {
            Some(State::Up) => Some(Event::Lost),
            _ => None,
        }
    }

    fn take(
        &mut self,
        number: u64,
        nodes: BTreeSet<NodeId>,
        body: &[u8],
    ) -> (NodeId, Option<Event>) {
        let first = nodes.first().copied().unwrap_or(NodeId(0));
        let id = CommandId(number);
        match wire::decode(body) {
            Ok(answers) => (first, Some(Event::Answers { nodes, id, answers })),
            // Nobody knows whose answer it was. The session gives all of them up when it has waited long enough.
            Err(_) => (first, None),
        }
    }

    fn hear(&mut self, node: NodeId, body: &[u8]) -> Option<Event> {
        match wire::decode(body) {
            Ok(FromNode::Found { identity, found }) => {
                if let Some(identity) = identity {
                    self.identities.insert(node, identity);
                }
                self.searches.answer(node, found);
                None
            }
            Ok(FromNode::Agent(message)) => Some(Event::Message(message)),
            Err(_) => self.lose(node),
        }
    }

    fn learn(&mut self, news: News) -> (NodeId, Option<Event>) {
        match news {
            News::Joined(node) => {
                let before = self.states.get(&node).cloned();
                // The next search includes a node that has connected too late for this one.
                if let Some(State::Starting | State::Down(Missing::NotStarted { .. })) = before {
                    self.states.insert(node, State::Up);
                    let detail = self.detail;
                    self.push(node, &ToNode::Begin { node, detail });
                }
                if before == Some(State::Starting) {
                    self.ask(node);
                }
                (node, None)
            }
            News::Copying(node) => {
                self.due.insert(node, Clock::now() + COPY_MAX);
                (node, None)
            }
            News::Lost(node, _) => (node, self.lose(node)),
            News::NotJoined(failed) => {
                for (hosts, why) in relay::reasons(&failed) {
                    let why: String = why.chars().take(REASON_MAX).collect();
                    for host in hosts {
                        let node = self.hosts.iter().find(|(_, name)| **name == host);
                        let Some(&node) = node.map(|(node, _)| node) else {
                            continue;
                        };
                        let why = why.clone();
                        let down = State::Down(Missing::NotStarted { host, why });
                        if self.states.get(&node) == Some(&State::Starting) {
                            self.states.insert(node, down);
                        }
                    }
                }
                (NodeId(0), None)
            }
            News::Ended | News::Failed(_) | News::Report(_) => (NodeId(0), None),
        }
    }
}
