//! `dbgr` at the root of the tree: the host of the session. It passes the messages between session and agents.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{NodeId, Rank, RankSet, Time};
use bytes::Bytes;
use debug::{
    proto::{Action, CommandId, FromNode, Search, ToAgent, ToNode},
    report::Detail,
    session::{Input, Output as Told, Place, Session},
    stack::Missing,
    target::{self, OnNode, Wish},
    wire,
};
use overlay::{
    Address,
    lanes::Lane,
    node::{GatherId, Output, Patience},
};

use super::{ASKING_MAX, Act, Event, Incoming, MERGING_MAX, Run, host};

/// Time in which an agent has to connect and to find the processes of its node.
pub(super) const START_MAX: Duration = Duration::from_secs(10);
/// Time for a later search.
const FIND_MAX: Duration = Duration::from_secs(5);
/// The node of the session.
const HERE: NodeId = NodeId(0);
/// What the user searches for.
const NAME: &str = "a.out";

/// The state of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Up,
    Down(Missing),
}

/// The state of `dbgr`.
#[derive(Debug)]
pub(super) struct Dbgr {
    session: Session,
    places: BTreeMap<Rank, Place>,
    states: BTreeMap<NodeId, State>,
    joined: BTreeSet<NodeId>,
    /// A command for several nodes that waits for further ones, and the nodes.
    command: Option<(BTreeSet<NodeId>, CommandId, RankSet, Action)>,
    gathers: BTreeMap<GatherId, CommandId>,
    /// Number of acts that the user has not begun.
    pub(super) acts: usize,
    /// Latest end of the current search; `None` without a search.
    search: Option<Time>,
    /// Nodes that have not answered a search.
    asked: BTreeSet<NodeId>,
    /// Those of them that did not answer in time.
    late: BTreeSet<NodeId>,
    /// The last answer of each node to a search.
    found: BTreeMap<NodeId, OnNode>,
    tick_for: Option<Time>,
}

impl Dbgr {
    pub(super) fn new(members: u32) -> Self {
        Self {
            session: Session::new(),
            places: BTreeMap::new(),
            states: (1..=members)
                .map(|node| (NodeId(node), State::Starting))
                .collect(),
            joined: BTreeSet::new(),
            command: None,
            gathers: BTreeMap::new(),
            acts: 0,
            search: None,
            asked: BTreeSet::new(),
            late: BTreeSet::new(),
            found: BTreeMap::new(),
            tick_for: None,
        }
    }

    pub(super) const fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    /// Returns true if the time for a search is over.
    pub(super) fn is_search_over(&self, now: Time) -> bool {
        self.search.is_some_and(|until| until <= now)
    }

    /// Returns the nodes by name, each with its number, or the reason why it does not answer.
    fn by_name(&self) -> BTreeMap<String, Result<NodeId, Missing>> {
        let state = |(node, state): (&NodeId, &State)| {
            let state = match state {
                State::Down(why) => Err(why.clone()),
                _ if self.late.contains(node) => Err(Missing::AgentSilent(host(*node))),
                _ => Ok(*node),
            };
            (host(*node), state)
        };
        self.states.iter().map(state).collect()
    }
}

impl Run {
    /// Begins the session with the agent of its own node.
    pub(super) fn begin_session(&mut self) {
        let (node, host) = (HERE, host(HERE));
        self.ledger.on_joined(node);
        self.tell(Input::Joined { node, host });
    }

    /// Begins the next acts of the user, until one of them has to wait.
    pub(super) fn act(&mut self) {
        let now = self.net.now;
        while !self.dbgr.is_searching() {
            if let Some(Act::Search) = self.todo.front()
                && self.ledger.is_open()
            {
                return;
            }
            let Some(act) = self.todo.pop_front() else {
                return;
            };
            self.dbgr.acts -= 1;
            match act {
                Act::Search => self.search(),
                Act::Command {
                    ranks,
                    action,
                    cancelled_after,
                    faults,
                } => {
                    for (after, fault) in faults {
                        self.agenda.at(now + after, Event::Fault(fault));
                    }
                    self.command(&ranks, action, cancelled_after);
                }
            }
        }
    }

    fn command(&mut self, ranks: &RankSet, action: Action, cancelled_after: Option<Duration>) {
        let now = self.net.now;
        let Ok(id) = self.dbgr.session.command(now, ranks, action) else {
            return;
        };
        self.ledger
            .note(now, || format!("{id:?}: {action:?} for {ranks}"));
        let places = self.dbgr.places.iter();
        let places = places.filter(|(rank, _)| ranks.contains(**rank));
        let places = places.map(|(rank, place)| (*rank, place.clone())).collect();
        // Each process below the root sends one message with the answers of all below it.
        let all = (1..=self.plan.members).map(Address);
        let parents = all.filter_map(|who| self.net.node(who)?.parent());
        let below = parents.filter(|parent| *parent == Address::ROOT).count();
        self.ledger.on_command(now, id, action, places, below);
        if let Some(after) = cancelled_after {
            self.agenda.at(now + after, Event::Cancel(id));
        }
        self.settle();
    }

    pub(super) fn cancel(&mut self, id: CommandId) {
        self.ledger.note(self.net.now, || format!("cancel {id:?}"));
        self.ledger.on_cancel(id);
        self.tell(Input::Cancel(id));
    }

    pub(super) fn tick(&mut self) {
        self.dbgr.tick_for = None;
        self.tell(Input::Tick);
    }

    /// Passes an event to the session. The ledger has it already.
    pub(super) fn tell(&mut self, input: Input) {
        let now = self.net.now;
        self.ledger.expire(now);
        self.dbgr.session.handle(now, input);
        self.settle();
    }

    /// Carries out the outputs of the session.
    fn settle(&mut self) {
        let now = self.net.now;
        while let Some(output) = self.dbgr.session.poll() {
            match output {
                Told::Send(node, message) => self.pass(node, message),
                Told::Reply(reply) => {
                    self.ledger.note(now, || {
                        format!("the reply to {:?}, missing: {:?}", reply.id, reply.missing)
                    });
                    self.ledger.on_reply(now, &reply, &self.truth);
                    self.end_question(reply.id);
                }
                Told::Close(node, fault) => {
                    self.ledger.note(now, || format!("close {node}: {fault:?}"));
                    self.push(node, &ToNode::Agent(ToAgent::Stop));
                    self.lose(node);
                }
                Told::Dropped { node, id, why } => {
                    self.ledger
                        .note(now, || format!("dropped of {node}, {id:?}: {why:?}"));
                }
            }
        }
        self.ask_agents();
        self.ledger.check_open(now);
        let deadline = self.dbgr.session.deadline();
        if deadline != self.dbgr.tick_for
            && let Some(due) = deadline
        {
            self.dbgr.tick_for = deadline;
            self.agenda.at(due, Event::Tick);
        }
        if !self.ledger.is_open() {
            self.act();
        }
    }

    /// Sends a message of the session to an agent. All agents get the same command, with the ranks of all.
    fn pass(&mut self, node: NodeId, message: ToAgent) {
        let now = self.net.now;
        if let ToAgent::Do { id, ranks, .. } = &message {
            self.ledger.on_told(now, node, *id, ranks);
        }
        if node == HERE {
            return self.give(node, Incoming::Local(message));
        }
        let ToAgent::Do { id, ranks, action } = message else {
            return self.push(node, &ToNode::Agent(message));
        };
        match &mut self.dbgr.command {
            Some((nodes, of, all, _)) if *of == id => {
                nodes.insert(node);
                *all = all.union(&ranks);
            }
            _ => {
                self.ask_agents();
                self.dbgr.command = Some(([node].into(), id, ranks, action));
            }
        }
    }

    fn ask_agents(&mut self) {
        let Some((nodes, id, ranks, action)) = self.dbgr.command.take() else {
            return;
        };
        let Ok(body) = wire::encode(&ToAgent::Do { id, ranks, action }) else {
            return;
        };
        let nodes: BTreeSet<Address> = nodes.iter().map(|node| Address(node.0)).collect();
        let patience = Patience {
            merging: MERGING_MAX,
            whole: ASKING_MAX,
        };
        let mut begun = None;
        self.net.with(Address::ROOT, |root, now| {
            let body = Bytes::from(body);
            begun = root
                .gather(now, &nodes, Lane::Control, &body, patience)
                .ok();
        });
        if let Some(gather) = begun {
            self.dbgr.gathers.insert(gather, id);
        }
    }

    fn end_question(&mut self, id: CommandId) {
        self.ask_agents();
        let gathers = self.dbgr.gathers.iter();
        let gather = gathers
            .filter(|(_, of)| **of == id)
            .map(|(gather, _)| *gather);
        if let Some(gather) = { gather }.next() {
            self.net
                .with(Address::ROOT, |root, now| root.end_gather(now, gather));
        }
    }

    fn push(&mut self, node: NodeId, message: &ToNode) {
        self.ask_agents();
        if let Ok(body) = wire::encode(message) {
            let (to, body) = ([Address(node.0)].into(), Bytes::from(body));
            self.net.with(Address::ROOT, |root, now| {
                root.cast(now, &to, Lane::Control, &body);
            });
        }
    }

    /// Begins a search on all nodes, except those that have not answered the last one.
    fn search(&mut self) {
        let now = self.net.now;
        let is_first = self.dbgr.found.is_empty() && self.dbgr.asked.is_empty();
        let time = if is_first { START_MAX } else { FIND_MAX };
        self.dbgr.search = Some(now + time);
        self.agenda.at(now + time, Event::SearchOver);
        let up = self.dbgr.states.iter();
        let up = up.filter(|(_, state)| **state == State::Up);
        for node in up.map(|(node, _)| *node).collect::<Vec<_>>() {
            self.ask(node);
        }
        self.check_search();
    }

    fn ask(&mut self, node: NodeId) {
        if self.dbgr.is_searching() && self.dbgr.asked.insert(node) {
            let search = Search::Wish(Wish::Name(NAME.to_owned()));
            self.push(node, &ToNode::Find(search));
        }
    }

    /// Ends the search if all nodes have answered.
    fn check_search(&mut self) {
        let is_open = |(node, state): (&NodeId, &State)| match state {
            State::Starting => true,
            State::Up => self.dbgr.asked.contains(node) && !self.dbgr.late.contains(node),
            State::Down(_) => false,
        };
        if !self.dbgr.states.iter().any(is_open) {
            self.end_search();
        }
    }

    /// Ends the search, and follows the ranks that were found.
    pub(super) fn end_search(&mut self) {
        let now = self.net.now;
        if !self.dbgr.is_searching() {
            return;
        }
        for (node, state) in &mut self.dbgr.states {
            match state {
                State::Starting => {
                    let why = "it did not connect".to_owned();
                    let host = host(*node);
                    *state = State::Down(Missing::NotStarted { host, why });
                }
                State::Up if self.dbgr.asked.contains(node) => drop(self.dbgr.late.insert(*node)),
                State::Up | State::Down(_) => {}
            }
        }
        let mut parts = vec![(host(HERE), self.truth.search(HERE, now))];
        let states = self.dbgr.states.iter();
        let up = states.filter(|(_, state)| **state == State::Up);
        for node in up.map(|(node, _)| *node).collect::<Vec<_>>() {
            if self.dbgr.joined.insert(node) {
                let host = host(node);
                self.ledger.on_joined(node);
                self.tell(Input::Joined { node, host });
            }
            if let Some(found) = self.dbgr.found.get(&node) {
                parts.push((host(node), found.clone()));
            }
        }
        let wish = Wish::Name(NAME.to_owned());
        let target = target::over_nodes(&wish, &parts, Some(&host(HERE)));
        let places = target.map(|target| Place::of_target(&target, HERE, &self.dbgr.by_name()));
        let places = places.unwrap_or_default();
        self.ledger.note(now, || format!("follow {places:?}"));
        self.dbgr.places.clone_from(&places);
        self.dbgr.search = None;
        self.dbgr.session.follow(places);
        self.settle();
        self.act();
    }

    /// Handles news of the root.
    pub(super) fn learn(&mut self, news: Output) {
        match news {
            Output::Received { from, body, .. } => self.on_body(NodeId(from.0), &body),
            Output::Part { id, of, body } => {
                let nodes = of.into_iter().map(|who| NodeId(who.0)).collect();
                self.on_part(id, nodes, &body);
            }
            Output::Gathered { id, .. } => drop(self.dbgr.gathers.remove(&id)),
            Output::Joined(who) => {
                let node = NodeId(who.0);
                let state = self.dbgr.states.get_mut(&node);
                let before = state.map(|state| match state {
                    State::Starting | State::Down(Missing::NotStarted { .. }) => {
                        std::mem::replace(state, State::Up)
                    }
                    state => state.clone(),
                });
                if let Some(State::Starting | State::Down(Missing::NotStarted { .. })) = before {
                    let detail = Detail::Folded;
                    self.push(node, &ToNode::Begin { node, detail });
                }
                if before == Some(State::Starting) {
                    self.ask(node);
                }
            }
            Output::Lost { members, .. } => {
                for who in members {
                    let node = NodeId(who.0);
                    if self.lose(node) {
                        self.ledger.on_lost(node);
                        self.tell(Input::Lost(node));
                    }
                }
            }
            _ => {}
        }
    }

    /// Notes the loss of a node. Returns true if the session has to hear of it.
    fn lose(&mut self, node: NodeId) -> bool {
        let Some(state) = self.dbgr.states.get_mut(&node) else {
            return false;
        };
        let down = State::Down(Missing::AgentLost(host(node)));
        let was_up = std::mem::replace(state, down) == State::Up;
        if self.dbgr.is_searching() {
            self.check_search();
        }
        was_up
    }

    fn on_body(&mut self, node: NodeId, body: &[u8]) {
        let now = self.net.now;
        match wire::decode(body) {
            Ok(FromNode::Found { found, .. }) => {
                self.ledger
                    .note(now, || format!("{node} has found {found:?}"));
                self.dbgr.asked.remove(&node);
                self.dbgr.late.remove(&node);
                self.dbgr.found.insert(node, found);
                if self.dbgr.is_searching() {
                    self.check_search();
                }
            }
            Ok(FromNode::Agent(message)) => {
                self.ledger
                    .note(now, || format!("{node} sends {message:?}"));
                self.ledger.on_message(now, node, &message);
                self.tell(Input::Message(node, message));
            }
            Err(_) => {
                if self.lose(node) {
                    self.ledger.on_lost(node);
                    self.tell(Input::Lost(node));
                }
            }
        }
    }

    fn on_part(&mut self, id: GatherId, nodes: BTreeSet<NodeId>, body: &[u8]) {
        let now = self.net.now;
        let Some(id) = self.dbgr.gathers.get(&id).copied() else {
            return;
        };
        self.ledger.note(now, || {
            format!("answers of {nodes:?} to {id:?}, {} bytes", body.len())
        });
        // It is unknown whose answer it was. The session gives up all of them after `SILENCE`.
        let Ok(answers) = wire::decode(body) else {
            return;
        };
        self.ledger.on_answers(now, &nodes, id, &answers);
        self.tell(Input::Answers { nodes, id, answers });
    }
}
