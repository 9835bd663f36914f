//! Several nodes with a server each, and a controller between them.
//!
//! Messages from a node to the controller wait in a queue of the node, and messages from the controller in an inbox per node. A
//! test therefore controls the order of delivery.

use std::{
    collections::{BTreeSet, VecDeque},
    ffi::CString,
    time::Duration,
};

use base::ExitStatus;
use bytes::Bytes;
use pmix::{
    message::{Answer, Request},
    server::{
        AppFacts, Conn, Elsewhere, Event, GatherId, GatherNumber, GatherTicket, Gathers, Input,
        Job, NodeFacts, Notice, Output, QuestionTicket, RankFacts, Watchers,
    },
    value::{Info, Nspace, Status, Value},
};

use crate::world::{World, job, proc, values_of};

/// Message from the controller to a node.
#[derive(Clone, Debug)]
pub(crate) enum ToNode {
    Gathered(GatherTicket, Result<Vec<(u32, Bytes)>, Status>),
    Watch,
    Awaited(GatherId, GatherNumber),
    Question(u32, QuestionTicket, Bytes),
    NoLongerAsked(u32, QuestionTicket),
    QuestionAnswered(QuestionTicket, Result<Bytes, Status>),
    Event(Box<Event>),
}

pub(crate) struct Cluster {
    pub(crate) nodes: Vec<World>,
    pub(crate) gathers: Gathers,
    pub(crate) inboxes: Vec<VecDeque<ToNode>>,
    lost: Vec<bool>,
    /// Questions without an answer: the asking node, its ticket and the node that is asked.
    questions: BTreeSet<(u32, QuestionTicket, u32)>,
    /// Number of messages that nodes have sent to the controller.
    pub(crate) said: usize,
}

/// Creates the facts of a job, as node `here` has them. `ranks` lists the node of each rank.
pub(crate) fn job_on(name: &str, ranks: &[u32], here: u32, nodes: u32) -> Job {
    let size = u32::try_from(ranks.len()).unwrap();
    let on = |node: u32| ranks.iter().filter(move |other| **other == node).count();
    Job {
        apps: vec![AppFacts {
            size,
            ..AppFacts::default()
        }],
        nodes: (0..nodes)
            .map(|node| NodeFacts {
                name: CString::new(format!("node{node}")).unwrap(),
                id: node,
                procs: u32::try_from(on(node)).unwrap(),
                oversubscribed: false,
            })
            .collect(),
        ranks: ranks
            .iter()
            .enumerate()
            .map(|(rank, node)| {
                let before = ranks[..rank].iter().filter(|other| *other == node).count();
                RankFacts {
                    app_rank: u32::try_from(rank).unwrap(),
                    node: *node,
                    local_rank: u16::try_from(before).unwrap(),
                    node_rank: u16::try_from(before).unwrap(),
                    ..RankFacts::default()
                }
            })
            .collect(),
        here,
        ..job(name, size)
    }
}

impl Cluster {
    /// Creates a cluster in which all nodes know these jobs, each given by its name and the node of each rank.
    pub(crate) fn new(nodes: u32, jobs: &[(&str, &[u32])]) -> Self {
        let mut cluster = Self {
            nodes: (0..nodes)
                .map(|node| World::on(node, (u64::from(node) + 1, nodes.into())))
                .collect(),
            gathers: Gathers::default(),
            inboxes: (0..nodes).map(|_| VecDeque::new()).collect(),
            lost: vec![false; nodes as usize],
            questions: BTreeSet::new(),
            said: 0,
        };
        for (name, ranks) in jobs {
            for node in 0..nodes {
                let job = job_on(name, ranks, node, nodes);
                cluster.nodes[node as usize].handle(Input::Register(Box::new(job)));
            }
        }
        cluster
    }

    /// Creates a cluster with a job `a` whose ranks are all connected. Returns each rank's node and connection.
    pub(crate) fn of(nodes: u32, ranks: &[u32]) -> (Self, Vec<RankConn>) {
        let mut cluster = Self::new(nodes, &[("a", ranks)]);
        let conns = cluster.connect_all("a", ranks);
        (cluster, conns)
    }

    pub(crate) fn connect_all(&mut self, name: &str, ranks: &[u32]) -> Vec<RankConn> {
        let ranks = (0..).zip(ranks);
        ranks
            .map(|(rank, node)| {
                (
                    *node as usize,
                    self.nodes[*node as usize].connect(name, rank),
                )
            })
            .collect()
    }

    /// Sends a request without delivering any messages between nodes.
    pub(crate) fn send_only(&mut self, (node, conn): RankConn, request: &Request) -> u32 {
        self.nodes[node].send(conn, request)
    }

    /// Sends a request and delivers all messages that follow from it.
    pub(crate) fn send(&mut self, rank: RankConn, request: &Request) -> u32 {
        let tag = self.send_only(rank, request);
        self.settle();
        tag
    }

    pub(crate) fn answer(&mut self, (node, conn): RankConn, tag: u32) -> Option<Answer> {
        self.nodes[node].answer(conn, tag)
    }

    pub(crate) fn status(&mut self, (node, conn): RankConn, tag: u32) -> Option<Status> {
        self.nodes[node].status(conn, tag)
    }

    /// Sends a request that must be answered once all messages are delivered.
    pub(crate) fn ask(&mut self, rank: RankConn, request: &Request) -> Answer {
        let tag = self.send(rank, request);
        let answer = self.answer(rank, tag);
        answer.unwrap_or_else(|| panic!("{request:?} is not answered"))
    }

    pub(crate) fn status_of(&mut self, rank: RankConn, request: &Request) -> Status {
        self.ask(rank, request).status()
    }

    /// Sends the same request from all ranks and returns the status each has got; `None` without an answer.
    pub(crate) fn together(
        &mut self,
        ranks: &[RankConn],
        request: &Request,
    ) -> Vec<Option<Status>> {
        let tags: Vec<u32> = ranks.iter().map(|rank| self.send(*rank, request)).collect();
        let both = ranks.iter().zip(tags);
        both.map(|(rank, tag)| self.status(*rank, tag)).collect()
    }

    /// Gets a number that another rank has put.
    pub(crate) fn value(&mut self, rank: RankConn, of: u32, key: &str) -> Result<u32, Status> {
        let of = proc("a", of);
        let answer = self.ask(rank, &crate::world::get(&of, key, Vec::new()));
        if answer.status() != Status::SUCCESS {
            return Err(answer.status());
        }
        let format = self.nodes[rank.0].format(rank.1);
        match values_of(format, &answer, &of).get(key) {
            Some(Value::Uint32(number)) => Ok(*number),
            other => panic!("{key} of {of} is {other:?}"),
        }
    }

    pub(crate) fn put(&mut self, (node, conn): RankConn, values: &[(&str, u32)]) {
        self.nodes[node].put(conn, values);
    }

    /// Delivers the first message of a node to the controller. Returns false if there is none.
    pub(crate) fn carry(&mut self, node: usize) -> bool {
        let Some(output) = self.nodes[node].away.pop_front() else {
            return false;
        };
        if self.lost[node] {
            return true;
        }
        self.said += 1;
        let from = u32::try_from(node).unwrap();
        let notices = match output {
            Output::Gather {
                ticket,
                id,
                nodes,
                share,
            } => {
                assert!(nodes.is_sorted() && nodes.contains(&from) && nodes.len() > 1);
                self.gathers.share(from, ticket, &id, &nodes, share)
            }
            Output::Waits { ticket, id, nodes } => self.gathers.waits(from, ticket, &id, &nodes),
            Output::Forgotten { ticket, id } => self.gathers.forgotten(from, ticket, &id),
            Output::NoShare { id, status } => self.gathers.no_share(from, &id, status),
            Output::Withdrawn { ticket, id, status } => {
                self.gathers.withdrawn(from, ticket, &id, status)
            }
            Output::MembersGone => self.gathers.members_gone(from),
            Output::Declined { id, number, result } => {
                self.gathers.declined(from, &id, number, result)
            }
            Output::Question {
                ticket,
                node,
                question,
            } => {
                if self.lost[node as usize] {
                    let got = ToNode::QuestionAnswered(ticket, Err(Status::LOST_CONNECTION));
                    self.say(from, got);
                } else {
                    self.questions.insert((from, ticket, node));
                    self.say(node, ToNode::Question(from, ticket, question));
                }
                Vec::new()
            }
            Output::NoLongerAsked { ticket, node } => {
                if self.questions.remove(&(from, ticket, node)) {
                    self.say(node, ToNode::NoLongerAsked(from, ticket));
                }
                Vec::new()
            }
            Output::QuestionAnswered {
                node,
                ticket,
                result,
            } => {
                if self.questions.remove(&(node, ticket, from)) {
                    self.say(node, ToNode::QuestionAnswered(ticket, result));
                }
                Vec::new()
            }
            Output::Event { event, elsewhere } => {
                for node in 0..self.nodes.len() {
                    let number = u32::try_from(node).unwrap();
                    let concerned = match &elsewhere {
                        Elsewhere::Nowhere => false,
                        Elsewhere::Everywhere => true,
                        Elsewhere::On(nodes) => nodes.contains(&number),
                    };
                    if concerned && number != from {
                        self.say(number, ToNode::Event(event.clone()));
                    }
                }
                Vec::new()
            }
            output => panic!("{output:?} does not leave a node"),
        };
        self.notice(notices);
        true
    }

    fn notice(&mut self, notices: Vec<Notice>) {
        for notice in notices {
            match notice {
                Notice::Gathered {
                    node,
                    ticket,
                    result,
                } => {
                    let result = result.map(|shares| shares.to_vec());
                    self.say(node, ToNode::Gathered(ticket, result));
                }
                Notice::Watch(Watchers::Only(node)) => self.say(node, ToNode::Watch),
                Notice::Watch(Watchers::AllBut(but)) => {
                    for node in (0..).take(self.nodes.len()).filter(|node| *node != but) {
                        self.say(node, ToNode::Watch);
                    }
                }
                Notice::Awaited { node, id, number } => {
                    self.say(node, ToNode::Awaited(id, number));
                }
            }
        }
    }

    fn say(&mut self, node: u32, message: ToNode) {
        if !self.lost[node as usize] {
            self.inboxes[node as usize].push_back(message);
        }
    }

    /// Delivers the first message in the inbox of a node. Returns false if there is none.
    pub(crate) fn deliver(&mut self, node: usize) -> bool {
        let Some(message) = self.inboxes[node].pop_front() else {
            return false;
        };
        let world = &mut self.nodes[node];
        match message {
            ToNode::Gathered(ticket, Ok(shares)) => world.handle(Input::Gathered {
                ticket,
                result: Ok(&shares),
            }),
            ToNode::Gathered(ticket, Err(status)) => world.handle(Input::Gathered {
                ticket,
                result: Err(status),
            }),
            ToNode::Watch => world.handle(Input::Watch),
            ToNode::Awaited(id, number) => world.handle(Input::Awaited { id, number }),
            ToNode::Question(node, ticket, question) => world.handle(Input::Question {
                node,
                ticket,
                question: &question,
            }),
            ToNode::NoLongerAsked(node, ticket) => {
                world.handle(Input::NoLongerAsked { node, ticket });
            }
            ToNode::QuestionAnswered(ticket, result) => world.handle(Input::QuestionAnswered {
                ticket,
                result: result.as_deref().map_err(|status| *status),
            }),
            ToNode::Event(event) => world.handle(Input::Event(event)),
        }
        true
    }

    /// Delivers messages until none is in flight.
    pub(crate) fn settle(&mut self) {
        let mut steps = 0;
        let mut moved = true;
        while moved {
            moved = false;
            for node in 0..self.nodes.len() {
                while self.carry(node) || self.deliver(node) {
                    moved = true;
                    steps += 1;
                    assert!(steps < 100_000, "the nodes talk for ever");
                }
            }
        }
    }

    /// Lets time pass, and delivers all messages meanwhile.
    pub(crate) fn pass(&mut self, duration: Duration) {
        let step = Duration::from_millis(100);
        let mut left = duration;
        while !left.is_zero() {
            let now = left.min(step);
            for node in 0..self.nodes.len() {
                self.nodes[node].pass(now);
            }
            self.settle();
            left -= now;
        }
    }

    /// Ends a process and its connection.
    pub(crate) fn end(&mut self, rank: RankConn, name: &str, number: u32, status: ExitStatus) {
        let (node, conn) = rank;
        if self.nodes[node].is_open(conn) {
            self.nodes[node].close(conn);
        }
        self.nodes[node].end(name, number, status);
        self.settle();
    }

    /// Loses a node.
    pub(crate) fn lose(&mut self, node: usize) {
        self.lose_only(node);
        self.settle();
    }

    /// Loses a node without delivering the messages that follow.
    pub(crate) fn lose_only(&mut self, node: usize) {
        self.lost[node] = true;
        self.inboxes[node].clear();
        let number = u32::try_from(node).unwrap();
        let questions = std::mem::take(&mut self.questions);
        for (asker, ticket, asked) in questions {
            if asked == number {
                let got = ToNode::QuestionAnswered(ticket, Err(Status::LOST_CONNECTION));
                self.say(asker, got);
            } else if asker == number {
                self.say(asked, ToNode::NoLongerAsked(asker, ticket));
            } else {
                self.questions.insert((asker, ticket, asked));
            }
        }
        let notices = self.gathers.node_lost(u32::try_from(node).unwrap());
        self.notice(notices);
    }

    /// Ends all jobs and connections, and checks that no state remains.
    pub(crate) fn assert_no_state_left(mut self, jobs: &[&str]) {
        for name in jobs {
            for node in &mut self.nodes {
                node.handle(Input::Deregister(Nspace::from_text(name).unwrap()));
            }
            self.settle();
        }
        assert!(self.gathers.is_empty(), "{:?}", self.gathers);
        assert!(self.inboxes.iter().all(VecDeque::is_empty));
        assert!(self.questions.is_empty(), "{:?}", self.questions);
        for mut node in self.nodes {
            node.away.clear();
            node.assert_no_state_left();
        }
    }
}

/// The node of a rank, and its connection there.
pub(crate) type RankConn = (usize, Conn);

pub(crate) fn with(request: &Request, more: Info) -> Request {
    let mut request = request.clone();
    match &mut request {
        Request::Fence { infos, .. }
        | Request::Connect { infos, .. }
        | Request::Disconnect { infos, .. }
        | Request::GroupConstruct { infos, .. }
        | Request::GroupDestruct { infos, .. } => infos.push(more),
        _ => panic!("{request:?} is no collective"),
    }
    request
}
