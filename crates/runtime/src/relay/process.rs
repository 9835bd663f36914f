//! The process of a relay: its event loop.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    os::fd::OwnedFd,
    time::Duration,
};

use base::{NodeId, Signal, Time};
use bytes::Bytes;
use dvm::bootstrap::DaemonPlan;
use os::{ChildEvent, Clock, Event, Interest, Loop, Token, WriteOutcome};
use overlay::{
    lanes::Lane,
    node::{GatherId, Merge, Node, Patience},
    secure::Entropy,
    wire::{self, Incoming, Outgoing},
};

use super::{ASKING_MAX, MERGING_MAX, News, kind, list, take_list, take_number};
use crate::{
    IGNORED,
    boot::{Boot, BootError, BootNode, listen, reachable_at},
    daemons::{address_of, node_of},
    process::{open_tree, random_bytes},
    reactor::{Child, Reactor, Read, Source, TreeChannel},
    starters::{self, Starters},
    tree::{self, TreeHost},
};

/// Time in which the other nodes have to disconnect when the session is over.
const ENDING_MAX: Duration = Duration::from_secs(3);
/// How long a process waits for the one above it to join. A node that does not answer must not keep those below it from joining in
/// time.
const PARENT_MAX: Duration = Duration::from_secs(3);
/// Bytes read from the program before other events are handled.
const READ_MAX: usize = 256 * 1024;

/// Whether the relay continues.
///
/// | state | event | next state |
/// |---|---|---|
/// | `Running` | the program has ended, or says so | `Ending` |
/// | `Running` | no way to the root, or the root has ended the session | `Ending` |
/// | `Ending` | no other process is connected, all commands have exited, all bytes are written, or it is late | exit |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Ending(Time),
}

struct Process {
    reactor: Reactor,
    tree: TreeHost,
    /// At the root: the commands that start the other nodes.
    starters: Option<Starters>,
    /// The link to the program; `None` once that has ended.
    program: Option<Token>,
    incoming: Incoming,
    outgoing: Outgoing,
    /// At the root, the gathers that are open, with the number that the program has given to its question.
    questions: BTreeMap<GatherId, u64>,
    state: State,
}

pub(super) fn root(
    plan: DaemonPlan,
    hosts: Vec<String>,
    build: &str,
    socket: OwnedFd,
) -> Result<(), BootError> {
    let mut reactor = Reactor::new(Loop::new(&IGNORED)?);
    let (mut tree, starters) = open_tree(Clock::now(), plan, hosts, "", build, None, &mut reactor)?;
    tree.wait_at_most(PARENT_MAX);
    let starters = starters.with_those_that_join();
    Ok(Process::new(reactor, tree, Some(starters), socket)?.run()?)
}

/// The port of a process of the tree, and the addresses at which others can reach it.
pub(super) struct Port {
    listener: OwnedFd,
    at: Vec<SocketAddr>,
}

impl Port {
    pub(super) fn open(boot: &Boot) -> Result<Self, BootError> {
        let (listener, port) = listen(boot.ports)?;
        let at = reachable_at(port, &boot.interfaces, boot.hosting)?;
        Ok(Self { listener, at })
    }
}

pub(super) fn member(
    boot: &Boot,
    port: Port,
    own: &BootNode,
    merge: Merge,
    socket: OwnedFd,
) -> Result<(), os::Error> {
    let mut reactor = Reactor::new(Loop::new(&IGNORED)?);
    let Port { listener, at } = port;
    let config = boot.config(own.node, at);
    let entropy = Entropy::new(random_bytes()?);
    let mut node = Node::member(Clock::now(), config, entropy, boot.root.clone());
    node.merge_with(merge);
    let tree = TreeHost::new(node, listener, &mut reactor)?;
    Process::new(reactor, tree, None, socket)?.run()
}

impl Process {
    fn new(
        mut reactor: Reactor,
        tree: TreeHost,
        starters: Option<Starters>,
        socket: OwnedFd,
    ) -> Result<Self, os::Error> {
        use std::os::fd::AsFd as _;
        os::set_nonblocking(socket.as_fd())?;
        let program = reactor.add(socket, Interest::Read, Source::Program)?;
        Ok(Self {
            reactor,
            tree,
            starters,
            program: Some(program),
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            questions: BTreeMap::new(),
            state: State::Running,
        })
    }

    fn run(mut self) -> Result<(), os::Error> {
        let mut taken = Vec::new();
        loop {
            let now = Clock::now();
            while self.step(now) {}
            self.tree.flush(now, &mut self.reactor);
            self.flush_program();
            if self.is_over(now) {
                return Ok(());
            }
            if self.reactor.take_closed() {
                self.tree.resume(&mut self.reactor);
            }
            let ending = match self.state {
                State::Running => None,
                State::Ending(until) => Some(until),
            };
            let starters = self.starters.as_ref().and_then(Starters::deadline);
            let deadlines = [self.tree.deadline(), starters, ending];
            let deadline = deadlines.into_iter().flatten().min();
            self.reactor.wait(deadline, &mut taken)?;
            let now = Clock::now();
            for event in taken.drain(..) {
                self.on_event(now, event);
            }
        }
    }

    fn is_over(&self, now: Time) -> bool {
        let State::Ending(until) = self.state else {
            return false;
        };
        let is_idle = match &self.starters {
            Some(starters) => self.tree.is_alone() && starters.is_over(),
            None => self.tree.is_written(),
        };
        let is_told = self.program.is_none() || self.outgoing.is_empty();
        (is_idle && is_told) || until <= now
    }

    /// Carries out one thing that a state machine asks for; returns false if there is none.
    fn step(&mut self, now: Time) -> bool {
        if let Some(starters) = &mut self.starters {
            match starters.step(now, &mut self.reactor) {
                Some(starters::News::GiveUp(node)) => {
                    self.tree.give_up(now, address_of(node));
                    return true;
                }
                Some(starters::News::Copying(nodes)) => {
                    for node in nodes {
                        self.tell(&News::Copying(node));
                    }
                    return true;
                }
                // Agents start no others: the relay has no daemons.
                Some(starters::News::Order(..)) => return true,
                Some(starters::News::Failed(failed)) => {
                    self.tell(&News::NotJoined(failed));
                    return true;
                }
                None => {}
            }
        }
        let Some(news) = self.tree.step(now, &mut self.reactor) else {
            return false;
        };
        self.on_news(now, news);
        true
    }

    fn on_news(&mut self, now: Time, news: tree::News) {
        match news {
            tree::News::Received { from, body } => {
                let fixed = node_of(from).0.to_le_bytes();
                self.push(kind::BODY, &fixed, body);
            }
            // Only daemons send such messages.
            tree::News::Merged { .. } => {}
            tree::News::Asked { id, body } => {
                self.push(kind::ASKED, &id.0.to_le_bytes(), body);
            }
            tree::News::Part { id, of, body } => {
                if let Some(number) = self.questions.get(&id) {
                    let mut fixed = number.to_le_bytes().to_vec();
                    let of: Vec<NodeId> = of.into_iter().map(node_of).collect();
                    fixed.extend(list(&of));
                    self.push(kind::PART, &fixed, body);
                }
            }
            // The program knows who has not answered.
            tree::News::Gathered(id) => drop(self.questions.remove(&id)),
            tree::News::Joined(who) => {
                // Another node than the root hears of those below it.
                if let Some(starters) = &mut self.starters {
                    starters.on_joined(now, node_of(who));
                    self.tell(&News::Joined(node_of(who)));
                }
            }
            tree::News::Lost { members, loss } => {
                for who in members {
                    self.tell(&News::Lost(node_of(who), loss.to_string()));
                }
            }
            tree::News::Ready => {}
            tree::News::Unreachable(why) => self.fail(now, why),
            tree::News::Abandoned(loss) => self.fail(now, loss.to_string()),
            tree::News::Ended => {
                self.tell(&News::Ended);
                self.end(now);
            }
            tree::News::Refused { from, why } => {
                self.tell(&News::Report(format!(
                    "refused a connection from {from}: {why}"
                )));
            }
            tree::News::Report(what) => self.tell(&News::Report(what)),
        }
    }

    fn fail(&mut self, now: Time, why: String) {
        self.tell(&News::Failed(why));
        self.end(now);
    }

    /// Begins to end the session.
    fn end(&mut self, now: Time) {
        if self.state != State::Running {
            return;
        }
        self.state = State::Ending(now + ENDING_MAX);
        if let Some(starters) = &mut self.starters {
            self.tree.end();
            starters.end(now);
        }
    }

    fn tell(&mut self, news: &News) {
        if let Ok(body) = wire::encode(news) {
            self.push(kind::NEWS, &[], body);
        }
    }

    /// Queues a frame for the program. The agents bound the queue: each has one answer in flight.
    fn push(&mut self, kind: u8, fixed: &[u8], body: Bytes) {
        if self.program.is_some() {
            // A body is shorter than a frame.
            let _ = self.outgoing.push(kind, fixed, body);
        }
    }

    fn flush_program(&mut self) {
        let Some(token) = self.program else {
            return;
        };
        let mut interest = Interest::Read;
        while !self.outgoing.is_empty() {
            let piece = self.outgoing.pieces().next().unwrap_or_default();
            let written = self.reactor.write(token, piece);
            match written {
                Some(Ok(WriteOutcome::Bytes(count))) => self.outgoing.written(count),
                Some(Ok(WriteOutcome::WouldBlock)) => {
                    interest = Interest::ReadWrite;
                    break;
                }
                // The read reports the end.
                Some(Ok(WriteOutcome::Closed) | Err(_)) | None => break,
            }
        }
        if self.reactor.interest(token) != Some(interest) {
            let _ = self.reactor.set_interest(token, interest);
        }
    }

    fn on_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Signal(info) if info.signal == Signal::CHLD => self.reap(now),
            Event::Signal(_) => {}
            Event::Deadline => {
                self.tree.on_tick(now, &mut self.reactor);
                if let Some(starters) = &mut self.starters {
                    starters.on_tick(now);
                }
            }
            Event::Readable(token) => match self.reactor.source(token) {
                Some(Source::Tree(TreeChannel::Port)) => {
                    if let Some(news) = self.tree.on_port_readable(now, &mut self.reactor) {
                        self.on_news(now, news);
                    }
                }
                Some(Source::Tree(TreeChannel::Peer(conn))) => {
                    self.tree.on_readable(now, conn, &mut self.reactor);
                }
                Some(Source::Command(command)) => {
                    if let Some(starters) = &mut self.starters {
                        starters.on_readable(now, command, &mut self.reactor);
                    }
                }
                Some(Source::Program) => self.read_program(now, token),
                _ => {}
            },
            Event::Writable(token) => match self.reactor.source(token) {
                Some(Source::Tree(TreeChannel::Peer(conn))) => {
                    self.tree.on_writable(now, conn, &mut self.reactor);
                }
                Some(Source::CommandInput(command)) => {
                    if let Some(starters) = &mut self.starters {
                        starters.on_writable(now, command, &mut self.reactor);
                    }
                }
                _ => {}
            },
        }
    }

    fn reap(&mut self, now: Time) {
        while let Some(event) = os::reap() {
            let ChildEvent::Exited { pid, status, .. } = event else {
                continue;
            };
            if let Some(Child::Command(command)) = self.reactor.children.remove(&pid)
                && let Some(starters) = &mut self.starters
            {
                starters.on_exited(now, command, status, &mut self.reactor);
            }
        }
    }

    fn read_program(&mut self, now: Time, token: Token) {
        match self.reactor.read(token, READ_MAX) {
            Some(Ok(Read::Bytes(bytes))) => self.incoming.take(bytes),
            Some(Ok(Read::WouldBlock)) | None => return,
            Some(Ok(Read::Closed) | Err(_)) => {
                self.reactor.close(token);
                self.program = None;
                return self.end(now);
            }
        }
        loop {
            match self.incoming.frame() {
                Ok(Some((kind, body))) => self.on_frame(now, kind, body),
                Ok(None) => return,
                Err(_) => return self.end(now),
            }
        }
    }

    fn on_frame(&mut self, now: Time, kind: u8, mut body: Bytes) {
        match kind {
            kind::CAST => match take_list(&mut body) {
                Some(to) => {
                    let to = to.into_iter().map(address_of).collect();
                    self.tree.cast(now, &to, Lane::Control, &body);
                }
                None => self.end(now),
            },
            kind::ASK => {
                let number = take_number(&mut body);
                match number.zip(take_list(&mut body)) {
                    Some((number, to)) => self.ask(now, number, to, &body),
                    None => self.end(now),
                }
            }
            kind::ENOUGH => {
                let number = take_number(&mut body);
                let open = self.questions.iter();
                let mut open = open.filter(|(_, of)| Some(**of) == number);
                if let Some(id) = open.next().map(|(id, _)| *id) {
                    self.tree.end_gather(now, id);
                }
            }
            kind::ANSWER => match take_number(&mut body) {
                Some(number) => self.tree.answer_gather(GatherId(number), body),
                None => self.end(now),
            },
            kind::SEND => self.tree.send(Lane::Bulk, body),
            _ => self.end(now),
        }
    }

    fn ask(&mut self, now: Time, number: u64, to: BTreeSet<NodeId>, body: &Bytes) {
        let to = to.into_iter().map(address_of).collect();
        let patience = Patience {
            merging: MERGING_MAX,
            whole: ASKING_MAX,
        };
        // A session has no more commands than a root has gathers.
        if let Ok(id) = self.tree.gather(now, &to, body, patience) {
            self.questions.insert(id, number);
        }
    }
}
