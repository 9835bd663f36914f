//! One process with several hosts around one event loop.
//!
//! There are two kinds. The first one has the controller, the daemon of its own node if the job uses that node, and the
//! root of the tree if there are other nodes. The second one has the daemon of another node, and that node's place in the
//! tree. A controller and a daemon in the same process exchange the values that a wire would carry, over a link with the
//! same bounds.

mod member;
mod root;
mod starting;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use base::{NodeId, Signal, Time};
use dvm::{
    ProcEnd,
    bootstrap::CANNOT_CONNECT,
    proto::{Missing, ToController, ToDaemon},
};
use os::{ChildEvent, Clock, Event};
use overlay::{Full, InProcess, Loss};

pub use self::member::{MemberBirth, guard_member};
use self::root::Ground;
pub(crate) use self::root::{open_tree, random_bytes, run};
use crate::{
    controller::{self, ControllerHost, Flushed},
    daemon::{self, DaemonHost},
    daemons::{self, DaemonTree},
    reactor::{Channel, Child, Reactor, Source, TreeChannel},
    starters::{Delegate, Starters},
    tape::Tape,
};

/// Ranks started in one turn of the loop. Between two turns, events are handled: exits of ranks, messages of fronts,
/// signals.
const SPAWNS_PER_TURN: u32 = 256;
/// A read of a file that is copied to other nodes counts as so many starts of ranks.
const READ_COST: u32 = 32;
/// Time in which the daemons of other nodes have to disconnect when the session is over, and a daemon has to be rid of its
/// jobs when it has lost the controller.
const ENDING_MAX: Duration = Duration::from_secs(3);
/// The node of the controller, if it is the only one.
const LOCAL: NodeId = NodeId(0);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The front has got all messages, or there was no job; the session was ended.
    Clean,
    /// The front or the controller was lost, or this process had to give up; the reason was reported.
    Failed,
}

/// Whether the state machines have more output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Done,
    More,
}

/// Whether the loop continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Next,
    /// Nothing is left to do, and all messages were sent.
    Over(Exit),
}

/// Jobs after which the memory that they have left in pieces is given back: it is several MiB after a thousand that were in the queue
/// at the same time, and giving it back takes as long as the start of a few.
const MANY_JOBS: u32 = 256;

/// A daemon in this process.
struct Local {
    host: DaemonHost,
    link: InProcess<ToDaemon, ToController>,
    /// A message for which the link had no room. The daemon is not polled again before it was sent.
    unsent: Option<ToController>,
}

/// What the process is for, besides its daemons.
enum Head {
    /// It has the controller.
    Controller(Box<ControllerHost>),
    /// The controller is elsewhere.
    Member(Member),
}

/// The state of a process without a controller.
struct Member {
    state: MemberState,
    /// Prints a line for whoever started this process. It must not block.
    report: fn(&str),
}

/// | state | the tree says | next state |
/// |---|---|---|
/// | `Joining` | ready | `Joined` |
/// | `Joining` | unreachable | `Ending`, reported |
/// | any but `Ending` | abandoned | `Ending`: the daemon kills its jobs |
/// | any but `Ending` | ended | `Ending` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberState {
    Joining,
    Joined,
    /// The process ends when its daemon has no job any more, at the latest at this time.
    Ending(Exit, Time),
}

/// The hosts of one process.
pub(crate) struct Process {
    reactor: Reactor,
    head: Head,
    daemons: BTreeMap<NodeId, Local>,
    /// This process's place in the tree; `None` if there is no other node.
    tree: Option<DaemonTree>,
    /// The commands that start the other daemons; in a process without the controller, those that it runs for it.
    starters: Option<Starters>,
    /// What is needed for other nodes, if this is a machine; they may come later.
    ground: Option<Box<Ground>>,
    delegate: Option<Delegate>,
    /// Set when the session is over and the other daemons are about to end: the time at which that takes too long.
    ending: Option<Time>,
    /// A message to a daemon for which its link had no room. The controller is not polled again before it was sent.
    unsent: Option<(NodeId, ToDaemon)>,
    taken: Vec<Event>,
    /// Jobs that are over since memory was given back.
    over_jobs: u32,
    /// The recording of the state machines.
    tape: Option<Rc<Tape>>,
}

impl Process {
    /// Lets `dbgr` connect, which has the daemons of other nodes start its agents.
    fn admit_fronts(&mut self) {
        if let Head::Controller(controller) = &mut self.head {
            controller.admit_fronts(&mut self.reactor);
        }
    }

    fn new(
        reactor: Reactor,
        head: Head,
        daemons: impl IntoIterator<Item = (NodeId, DaemonHost)>,
    ) -> Self {
        let local = |host| Local {
            host,
            link: InProcess::new(),
            unsent: None,
        };
        let daemons = daemons.into_iter();
        Self {
            reactor,
            head,
            daemons: daemons.map(|(node, host)| (node, local(host))).collect(),
            tree: None,
            starters: None,
            ground: None,
            delegate: None,
            ending: None,
            unsent: None,
            taken: Vec::new(),
            over_jobs: 0,
            tape: None,
        }
    }

    fn run(&mut self) -> Exit {
        loop {
            match self.turn(None) {
                Ok(Turn::Next) => {}
                Ok(Turn::Over(exit)) => return exit,
                Err(error) => {
                    match &mut self.head {
                        Head::Controller(controller) => {
                            controller.fail(Clock::now(), &error, &mut self.reactor);
                        }
                        Head::Member(member) => (member.report)(&error.to_string()),
                    }
                    return Exit::Failed;
                }
            }
        }
    }

    /// Carries out all that the state machines ask for, waits for events, at most until `limit`, and handles them.
    pub(crate) fn turn(&mut self, limit: Option<Time>) -> Result<Turn, os::Error> {
        let mut progress = self.pump();
        self.report_missing(Clock::now());
        let now = Clock::now();
        if let Head::Controller(controller) = &mut self.head
            && controller.flush(now, &mut self.reactor) == Flushed::More
        {
            // The controller still has to answer the message that was just taken.
            progress = Progress::More;
        }
        self.flush_tree(now);
        if progress == Progress::Done
            && let Some(exit) = self.over(now)
        {
            return Ok(Turn::Over(exit));
        }
        // Resume before the wait: a listener that was paused for lack of descriptors may be the only source of the next
        // event.
        if self.reactor.take_closed() {
            self.resume();
        }
        self.give_back_memory();
        let at_once = (progress == Progress::More).then_some(Time::ZERO);
        let deadline = [limit, at_once]
            .into_iter()
            .flatten()
            .chain(self.deadline())
            .min();
        let mut taken = std::mem::take(&mut self.taken);
        self.reactor.wait(deadline, &mut taken)?;
        let now = Clock::now();
        for event in taken.drain(..) {
            self.on_event(now, event);
        }
        self.taken = taken;
        Ok(Turn::Next)
    }

    /// Gives memory back to the system when no job is left of many.
    fn give_back_memory(&mut self) {
        for local in self.daemons.values_mut() {
            self.over_jobs = self.over_jobs.saturating_add(local.host.take_forgotten());
        }
        if self.over_jobs < MANY_JOBS {
            return;
        }
        let has_jobs = match &self.head {
            Head::Controller(controller) => controller.has_jobs(),
            Head::Member(_) => self.daemons.values().any(|local| !local.host.is_idle()),
        };
        if !has_jobs {
            self.over_jobs = 0;
            os::give_back_memory();
        }
    }

    fn resume(&mut self) {
        if let Head::Controller(controller) = &mut self.head {
            controller.resume(&mut self.reactor);
        }
        for local in self.daemons.values_mut() {
            local.host.resume(&mut self.reactor);
        }
        if let Some(tree) = &mut self.tree {
            tree.resume(&mut self.reactor);
        }
    }

    fn deadline(&self) -> Option<Time> {
        let head = match &self.head {
            Head::Controller(controller) => controller.deadline(),
            Head::Member(member) => match member.state {
                MemberState::Ending(_, until) => Some(until),
                MemberState::Joining | MemberState::Joined => None,
            },
        };
        let tree = self.tree.as_ref().and_then(DaemonTree::deadline);
        let starters = self.starters.as_ref().and_then(Starters::deadline);
        let daemons = self
            .daemons
            .values()
            .filter_map(|local| local.host.deadline());
        let delegate = self.delegate.as_ref().and_then(Delegate::deadline);
        let others = [head, tree, starters, delegate, self.ending];
        let others = others.into_iter().flatten();
        daemons.chain(others).min()
    }

    /// Returns how the process has ended, if nothing is left to do.
    fn over(&mut self, now: Time) -> Option<Exit> {
        match &mut self.head {
            Head::Controller(controller) => {
                // The end is final: what a front submits after it is not started any more.
                if self.ending.is_none() && !controller.is_over() {
                    return None;
                }
                let Some(tree) = &mut self.tree else {
                    return Some(Exit::Clean);
                };
                let until = match self.ending {
                    Some(until) => until,
                    None => {
                        tree.end();
                        if let Some(starters) = &mut self.starters {
                            starters.end(now);
                        }
                        // Send this before the next wait.
                        self.flush_tree(now);
                        *self.ending.insert(now + ENDING_MAX)
                    }
                };
                let is_done = self.tree.as_ref().is_none_or(DaemonTree::is_alone)
                    && self.starters.as_ref().is_none_or(Starters::is_over);
                (is_done || until <= now).then_some(Exit::Clean)
            }
            Head::Member(member) => match member.state {
                MemberState::Joining | MemberState::Joined => None,
                MemberState::Ending(exit, until) => {
                    let is_idle = self.daemons.values().all(|local| local.host.is_idle());
                    let is_sent = self.tree.as_ref().is_none_or(DaemonTree::is_written);
                    let is_over = self.delegate.as_ref().is_none_or(Delegate::is_over);
                    ((is_idle && is_sent && is_over) || until <= now).then_some(exit)
                }
            },
        }
    }

    fn on_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Signal(info) if info.signal == Signal::CHLD => self.reap(now),
            Event::Signal(info) if info.signal == Signal::TERM => {
                if let Head::Controller(controller) = &mut self.head {
                    controller.on_terminated(now);
                }
            }
            Event::Signal(_) => {}
            Event::Deadline => self.on_tick(now),
            Event::Readable(token) => {
                let reactor = &mut self.reactor;
                match (reactor.source(token), &mut self.head) {
                    (Some(Source::Front(front)), Head::Controller(controller)) => {
                        controller.on_front_readable(now, front, reactor);
                    }
                    (Some(Source::Control), Head::Controller(controller)) => {
                        controller.on_control_readable(now, reactor);
                    }
                    (Some(Source::Machine), Head::Controller(controller)) => {
                        controller.on_machine_readable(now);
                    }
                    (Some(Source::Node(node, channel)), _) => {
                        if let Some(local) = self.daemons.get_mut(&node) {
                            local.host.on_readable(now, token, channel, reactor);
                        }
                        if let Channel::Output(..) = channel {
                            // A chunk may cause a pause or credit, which must take effect before the next read.
                            self.pump();
                        }
                    }
                    (Some(Source::Tree(channel)), _) => self.on_tree_readable(now, channel),
                    (Some(Source::Command(command)), _) => self.on_printed(now, command),
                    (Some(Source::Keepalive), Head::Controller(controller)) => {
                        reactor.close(token);
                        controller.on_tool_died(now);
                    }
                    (Some(Source::Slurm(number)), Head::Controller(controller)) => {
                        controller.on_slurm_readable(now, number, reactor);
                    }
                    (
                        Some(
                            Source::Front(_)
                            | Source::Control
                            | Source::Machine
                            | Source::CommandInput(_)
                            | Source::Slurm(_)
                            | Source::Keepalive
                            | Source::Program,
                        )
                        | None,
                        _,
                    ) => {}
                }
            }
            Event::Writable(token) => match self.reactor.source(token) {
                // Writes to fronts are made at the end of the turn.
                Some(Source::Node(node, channel)) => {
                    if let Some(local) = self.daemons.get_mut(&node) {
                        let reactor = &mut self.reactor;
                        local.host.on_writable(now, token, channel, reactor);
                    }
                }
                Some(Source::Tree(TreeChannel::Peer(conn))) => {
                    if let Some(tree) = &mut self.tree {
                        tree.on_writable(now, conn, &mut self.reactor);
                    }
                }
                Some(Source::CommandInput(command)) => self.on_command_writable(now, command),
                _ => {}
            },
        }
    }

    fn on_tick(&mut self, now: Time) {
        for local in self.daemons.values_mut() {
            local.host.on_tick(now, &mut self.reactor);
        }
        if let Some(tree) = &mut self.tree {
            tree.on_tick(now, &mut self.reactor);
        }
        if let Some(starters) = &mut self.starters {
            starters.on_tick(now);
        }
        if let Some(delegate) = &mut self.delegate {
            delegate.on_tick(now);
        }
        if let Head::Controller(controller) = &mut self.head {
            controller.on_tick(now, &mut self.reactor);
        }
    }

    fn on_tree_readable(&mut self, now: Time, channel: TreeChannel) {
        let Some(tree) = &mut self.tree else {
            return;
        };
        match channel {
            TreeChannel::Port => {
                if let Some(news) = tree.on_port_readable(now, &mut self.reactor) {
                    self.on_news(now, news);
                }
            }
            TreeChannel::Peer(conn) => {
                tree.on_readable(now, conn, &mut self.reactor);
                // A message may cause a pause or credit, which must take effect before the next read.
                self.pump();
            }
        }
    }

    fn reap(&mut self, now: Time) {
        while let Some(event) = os::reap() {
            match event {
                ChildEvent::Exited { pid, status, used } => {
                    match self.reactor.children.remove(&pid) {
                        Some(Child::Proc { node, proc }) => {
                            if let Some(local) = self.daemons.get_mut(&node) {
                                let end = ProcEnd { status, used };
                                local.host.on_exited(now, proc, end, &mut self.reactor);
                            }
                        }
                        Some(Child::Command(command)) => {
                            self.on_command_exited(now, command, status);
                        }
                        Some(Child::Watch(job)) => {
                            if let Head::Controller(controller) = &mut self.head {
                                controller.on_watch_exited(now, job, pid);
                            }
                        }
                        Some(Child::Slurm(number)) => {
                            let reactor = &mut self.reactor;
                            if let Head::Controller(controller) = &mut self.head {
                                controller.on_slurm_exited(now, number, status, reactor);
                            }
                        }
                        None => {
                            for local in self.daemons.values_mut() {
                                local.host.on_stray_exited(now);
                            }
                        }
                    }
                }
                ChildEvent::Stopped { pid, signal } => {
                    if let Some(Child::Proc { node, proc }) = self.reactor.children.get(&pid)
                        && let Some(local) = self.daemons.get_mut(node)
                    {
                        local.host.on_stopped(now, *proc, pid, signal);
                    }
                }
            }
        }
    }

    /// Carries out what the state machines ask for, until none has output or `SPAWNS_PER_TURN` ranks were started or files read instead.
    fn pump(&mut self) -> Progress {
        let mut started = 0;
        while started < SPAWNS_PER_TURN {
            let now = Clock::now();
            // Deliver messages in flight before polling for more, so that no queue fills.
            if self.deliver(now) || self.step_starters(now) || self.step_delegate(now) {
                continue;
            }
            match self.step_daemons(now) {
                daemon::Step::Idle => {}
                daemon::Step::Started => {
                    started += 1;
                    continue;
                }
                daemon::Step::Bug(what) => {
                    self.report_bug(now, &what);
                    continue;
                }
                daemon::Step::Done | daemon::Step::Send(_) => continue,
            }
            match self.step_controller(now) {
                controller::Step::Idle => return Progress::Done,
                controller::Step::Done
                | controller::Step::Send(..)
                | controller::Step::Add(_)
                | controller::Step::Command(..) => {}
                controller::Step::Read => started += READ_COST,
            }
        }
        Progress::More
    }

    /// Delivers one message; returns false when none is in flight.
    fn deliver(&mut self, now: Time) -> bool {
        if let Some(tree) = &mut self.tree
            && let Some(news) = tree.step(now, &mut self.reactor)
        {
            self.on_news(now, news);
            return true;
        }
        for (node, local) in &mut self.daemons {
            if let Some(message) = local.link.down.receive() {
                local.host.on_message(now, message);
                return true;
            }
            match (&mut self.head, &mut self.tree) {
                (Head::Controller(controller), _) => {
                    if let Some(message) = local.link.up.receive() {
                        controller.on_daemon(now, *node, message);
                        return true;
                    }
                }
                (Head::Member(member), Some(tree)) => {
                    // Nobody hears a daemon that has lost the controller.
                    let is_heard = !matches!(member.state, MemberState::Ending(..));
                    if (!is_heard || tree.has_room())
                        && let Some(message) = local.link.up.receive()
                    {
                        if is_heard && let Err(error) = tree.send(now, &message) {
                            (member.report)(&error.to_string());
                        }
                        return true;
                    }
                }
                (Head::Member(_), None) => {}
            }
        }
        false
    }

    /// Handles news of the tree.
    fn on_news(&mut self, now: Time, news: daemons::News) {
        news.log();
        match (news, &mut self.head) {
            (daemons::News::FromDaemon(node, ToController::Starter(news)), Head::Controller(_)) => {
                if let Some(starters) = &mut self.starters {
                    starters.on_news(now, node, news);
                }
            }
            (daemons::News::ToDaemon(ToDaemon::Starter(order)), Head::Member(_)) => {
                if let Some(delegate) = &mut self.delegate {
                    delegate.on_order(now, order, &mut self.reactor);
                }
            }
            (daemons::News::ToDaemon(ToDaemon::Leave), Head::Member(member)) => {
                member.end(Exit::Clean, now);
                if let Some(delegate) = &mut self.delegate {
                    delegate.end(now);
                }
            }
            (daemons::News::FromDaemon(node, message), Head::Controller(controller)) => {
                controller.on_daemon(now, node, message);
            }
            (daemons::News::FromDaemons(nodes, message), Head::Controller(controller)) => {
                controller.on_daemons(now, nodes, message);
            }
            (daemons::News::Joined(node), Head::Controller(_)) => {
                if let Some(starters) = &mut self.starters {
                    starters.on_joined(now, node);
                }
            }
            (daemons::News::Lost { nodes, loss }, Head::Controller(controller)) => {
                for node in nodes {
                    let mut why = loss.to_string();
                    if let Some(starters) = &mut self.starters {
                        if let Some(words) = starters.last_words(now, node, &mut self.reactor) {
                            why = format!("{why}; its last words: {words}");
                        }
                        starters.on_lost(now, node);
                    }
                    controller.on_daemon_lost(now, node, why);
                }
            }
            (daemons::News::Refused { from, why }, Head::Controller(controller)) => {
                controller.on_stranger(now, from, why);
            }
            (daemons::News::Report(what), Head::Controller(controller)) => {
                controller.report(&what);
            }
            (daemons::News::Refused { from, why }, Head::Member(member)) => {
                let refused = ToController::Stranger { from, why };
                if let Some(tree) = &mut self.tree
                    && let Err(error) = tree.send(now, &refused)
                {
                    (member.report)(&error.to_string());
                }
            }
            (daemons::News::ToDaemon(message), Head::Member(_)) => {
                for local in self.daemons.values_mut() {
                    local.host.on_message(now, message.clone());
                }
            }
            (daemons::News::Ready, Head::Member(member)) => {
                if member.state == MemberState::Joining {
                    member.state = MemberState::Joined;
                }
            }
            (daemons::News::Unreachable(why), Head::Member(member)) => {
                (member.report)(&format!("{CANNOT_CONNECT}{why}"));
                member.state = MemberState::Ending(Exit::Failed, now);
            }
            (daemons::News::Abandoned(loss), Head::Member(_)) => self.abandon(now, &loss),
            (daemons::News::Ended, Head::Member(member)) => {
                member.end(Exit::Clean, now);
                if let Some(delegate) = &mut self.delegate {
                    delegate.end(now);
                }
            }
            (daemons::News::Report(what), Head::Member(member)) => (member.report)(&what),
            (daemons::News::Joined(_), Head::Member(_)) => {}
            (news, _) => {
                self.report_bug(now, &format!("unexpected news of the tree: {news:?}"));
            }
        }
    }

    /// Ends the jobs of this node: the controller is gone.
    fn abandon(&mut self, now: Time, loss: &Loss) {
        let Head::Member(member) = &mut self.head else {
            return;
        };
        if let MemberState::Ending(..) = member.state {
            return;
        }
        (member.report)(&format!("the launcher is gone: {loss}"));
        member.end(Exit::Failed, now);
        if let Some(delegate) = &mut self.delegate {
            delegate.abandon(now);
        }
        for local in self.daemons.values_mut() {
            local.host.controller_lost(now);
        }
    }

    /// Carries out one step of the first daemon that has output.
    fn step_daemons(&mut self, now: Time) -> daemon::Step {
        for local in self.daemons.values_mut() {
            let step = match local.unsent.take() {
                Some(message) => daemon::Step::Send(message),
                None => local.host.step(now, &mut self.reactor),
            };
            match step {
                daemon::Step::Idle => {}
                daemon::Step::Send(message) => match local.link.up.send(message) {
                    Ok(()) => return daemon::Step::Done,
                    Err(Full(message)) => local.unsent = Some(message),
                },
                other => return other,
            }
        }
        daemon::Step::Idle
    }

    fn step_controller(&mut self, now: Time) -> controller::Step {
        let Head::Controller(controller) = &mut self.head else {
            return controller::Step::Idle;
        };
        let step = match self.unsent.take() {
            Some((node, message)) => controller::Step::Send(node, message),
            None => controller.step(now, &mut self.reactor),
        };
        if let controller::Step::Command(command, wait) = step {
            if let Some(starters) = &mut self.starters {
                starters.on_wait(now, command, wait);
            }
            return controller::Step::Done;
        }
        let (node, message) = match step {
            controller::Step::Send(node, message) => (node, message),
            controller::Step::Add(addition) => {
                self.add_nodes(now, addition);
                return controller::Step::Done;
            }
            step => return step,
        };
        if let Some(local) = self.daemons.get_mut(&node) {
            return match local.link.down.send(message) {
                Ok(()) => controller::Step::Done,
                Err(Full(message)) => {
                    self.unsent = Some((node, message));
                    controller::Step::Idle
                }
            };
        }
        let Some(tree) = &mut self.tree else {
            controller.report_bug(&format!("a message for node {node}, which has no daemon"));
            return controller::Step::Done;
        };
        if let Err((nodes, error)) = tree.cast(now, node, message) {
            controller.on_unsendable(now, nodes, &error);
        }
        controller::Step::Done
    }

    fn flush_tree(&mut self, now: Time) {
        let Some(tree) = &mut self.tree else {
            return;
        };
        let sent = tree.flush_cast(now);
        tree.flush(now, &mut self.reactor);
        if let (Err((nodes, error)), Head::Controller(controller)) = (sent, &mut self.head) {
            controller.on_unsendable(now, nodes, &error);
        }
    }

    fn report_bug(&mut self, now: Time, what: &str) {
        match &mut self.head {
            Head::Controller(controller) => controller.report_bug(what),
            Head::Member(member) => match &mut self.tree {
                Some(tree) => drop(tree.send(now, &ToController::Bug(what.to_owned()))),
                None => (member.report)(what),
            },
        }
    }

    /// Reports to the front what the job has to do without.
    fn report_missing(&mut self, now: Time) {
        if let Head::Member(member) = &self.head
            && member.state == MemberState::Joining
        {
            // Nobody would get the reports yet.
            return;
        }
        let recording = self.tape.as_ref().and_then(|tape| tape.take_error());
        let recording = recording.map(|error| (Missing::Recording, error));
        match &mut self.head {
            Head::Controller(controller) => {
                let own = self.daemons.keys().next().copied();
                controller.report_missing(own, recording.into_iter().collect());
                controller.report_own_missing(own);
                for (node, local) in &mut self.daemons {
                    let missing = local.host.take_missing();
                    controller.report_missing(Some(*node), missing);
                }
            }
            Head::Member(_) => {
                let locals = self.daemons.values_mut();
                let missing = locals.flat_map(|local| local.host.take_missing());
                let missing: Vec<(Missing, String)> = missing.chain(recording).collect();
                for (what, why) in missing {
                    if let Some(tree) = &mut self.tree {
                        let _ = tree.send(now, &ToController::Missing { what, why });
                    }
                }
            }
        }
    }
}

impl Member {
    fn end(&mut self, exit: Exit, now: Time) {
        if !matches!(self.state, MemberState::Ending(..)) {
            self.state = MemberState::Ending(exit, now + ENDING_MAX);
        }
    }
}
