//! A debug session over a tree: `dbgr` at the root, and the agents of the nodes.
//!
//! Session, agents, searches, the merge of answers and the processes of the tree are the code that ships. The simulator
//! replaces their hosts (`dbgr` and `member` do what `dbgr` and `runtime::relay` do), the network, and the ranks with their
//! kernels (`truth`). The module `check` compares each reply with what really happened.

mod check;
mod dbgr;
mod member;
mod plan;
mod program;
mod truth;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use base::{NodeId, Time};
use debug::{
    gathered,
    proto::CommandId,
    session::{self, LONGEST},
};
use overlay::{
    Address,
    lanes::Lane,
    node::{Node, Output},
};

use self::{
    check::Ledger,
    dbgr::Dbgr,
    member::{Incoming, Member, Sent},
    plan::{Act, Fault, Plan},
    truth::Truth,
};
use crate::{
    agenda::Agenda,
    members::{Members, Trouble},
    net::Net,
    record::{Played, Recorded, Report},
    rng::Rng,
    tree::parents,
};

/// How long answers wait for others to be merged with, at most, as in `runtime::relay`.
const MERGING_MAX: Duration = Duration::from_secs(20);
/// How long a question stays open, as in `runtime::relay`.
const ASKING_MAX: Duration = Duration::from_secs(3600);
/// Time after which a program tries to send again if the process in the tree had no room.
const ROOM_RETRY: Duration = Duration::from_millis(50);
/// Time after the last command for late answers.
const REST: Duration = Duration::from_secs(30);
/// Number of events after which a run counts as an endless loop.
const EVENTS_MAX: u64 = 4_000_000;

pub(crate) fn run(rng: &mut Rng, recorded: Recorded) -> Played {
    let plan = plan::make(rng);
    let faults = plan.count;
    let mut run = Run::new(plan, rng.clone(), recorded);
    run.play();
    let report = Report {
        events: run.events,
        faults,
        finished: run.net.now,
    };
    run.ledger.into_played(report)
}

/// Returns the name of a node.
fn host(node: NodeId) -> String {
    format!("n{node}")
}

#[derive(Debug)]
enum Event {
    Start(Address),
    /// The program of a node takes its next step.
    GoOn(NodeId),
    /// The program of a node sends its remaining messages.
    Send(NodeId),
    /// The deadline of the session.
    Tick,
    /// The next act of the user.
    Act(Act),
    Cancel(CommandId),
    /// The time for a search is over.
    SearchOver,
    Fault(Fault),
    Mend(Trouble),
    /// The root no longer expects absent processes.
    GiveUp,
}

struct Run {
    plan: Plan,
    net: Net,
    rng: Rng,
    agenda: Agenda<Event>,
    dbgr: Dbgr,
    members: BTreeMap<NodeId, Member>,
    truth: Truth,
    ledger: Ledger,
    /// Acts of the user that wait for a search or for commands.
    todo: VecDeque<Act>,
    events: u64,
}

impl Run {
    fn new(mut plan: Plan, mut rng: Rng, recorded: Recorded) -> Self {
        let own = Rng::new(rng.next());
        let mut net = Net::new(rng, plan.delay_max, plan.timing, gathered::merge);
        net.start_root(parents(plan.members, plan.radix));
        let mut ledger = Ledger::new(
            Members::new(plan.timing, plan.members),
            plan.characters.clone(),
            recorded,
        );
        ledger.note(Time::ZERO, || format!("{plan:?}"));
        let members = plan.characters.iter().map(|(node, character)| {
            let slowness = plan.slowness.get(node).copied().unwrap_or(1);
            (*node, Member::new(*node, *character, slowness))
        });
        let members = members.collect();
        let mut agenda = Agenda::new();
        for (who, at) in &plan.starts {
            agenda.at(Time::ZERO + *at, Event::Start(*who));
        }
        let mut dbgr = Dbgr::new(plan.members);
        dbgr.acts = plan.acts.len();
        for (at, act) in std::mem::take(&mut plan.acts) {
            agenda.at(Time::ZERO + at, Event::Act(act));
        }
        for (at, fault) in std::mem::take(&mut plan.faults) {
            agenda.at(Time::ZERO + at, Event::Fault(fault));
        }
        agenda.at(Time::ZERO + dbgr::START_MAX, Event::GiveUp);
        let truth = Truth::new(std::mem::take(&mut plan.lives));
        Self {
            plan,
            net,
            rng: own,
            agenda,
            dbgr,
            members,
            truth,
            ledger,
            todo: VecDeque::new(),
            events: 0,
        }
    }

    fn play(&mut self) {
        self.begin_session();
        let mut last = Time::ZERO;
        while !self.ledger.is_faulty() {
            let mine = self.agenda.next_at();
            let net = self.net.next_at();
            let Some(at) = mine.into_iter().chain(net).min() else {
                break;
            };
            if self.dbgr.acts > 0 || self.dbgr.is_searching() || self.ledger.is_open() {
                last = at;
            } else if at > last + REST {
                break;
            }
            self.events += 1;
            let is_endless = self.events > EVENTS_MAX || at > Time::ZERO + 8 * LONGEST;
            let wrong = is_endless.then(|| "the run goes round in circles".to_owned());
            self.ledger.fault_if(at, wrong);
            if mine.is_some_and(|mine| net.is_none_or(|net| mine < net)) {
                self.net.now = self.net.now.max(at);
                if let Some(event) = self.agenda.next() {
                    self.happen(event);
                }
            } else {
                self.net.step();
                self.agenda.now = self.net.now;
            }
            let wrong = self.net.take_fault();
            self.ledger.fault_if(self.net.now, wrong);
            self.hear();
        }
        self.ledger.check_end(self.net.now);
    }

    fn happen(&mut self, event: Event) {
        let now = self.net.now;
        match event {
            Event::Start(who) => {
                if !self.ledger.members.is_dead(who) {
                    self.net.start(who);
                }
            }
            Event::GoOn(node) => self.go_on(node),
            Event::Send(node) => self.send(node),
            Event::Tick => self.tick(),
            Event::Act(act) => {
                self.todo.push_back(act);
                self.act();
            }
            Event::Cancel(id) => self.cancel(id),
            Event::SearchOver if self.dbgr.is_search_over(now) => self.end_search(),
            // The search was over before.
            Event::SearchOver => {}
            Event::Fault(fault) => {
                self.ledger.note(now, || format!("{fault:?}"));
                self.strike(fault);
            }
            Event::Mend(Trouble::Part(nodes, _)) => self.net.join(&nodes),
            Event::Mend(Trouble::Mute(who, _)) => self.net.unmute(who),
            Event::Mend(_) => {}
            Event::GiveUp => {
                for who in (1..=self.plan.members).map(Address) {
                    let has_failed = self.ledger.members.has_failed(who);
                    if has_failed || !self.plan.starts.contains_key(&who) {
                        self.net
                            .with(Address::ROOT, |root, now| root.give_up(now, who));
                    }
                }
            }
        }
    }

    fn strike(&mut self, fault: Fault) {
        let now = self.net.now;
        match fault {
            Fault::Trouble(trouble) => {
                let until = now + trouble.lasts();
                if let Trouble::Part(..) | Trouble::Mute(..) = trouble {
                    self.agenda.at(until, Event::Mend(trouble.clone()));
                }
                self.ledger.members.strike(&mut self.net, &trouble);
            }
            Fault::Stall(node, time) => {
                *self.ledger.stalls.entry(node).or_default() += time;
                if let Some(member) = self.members.get_mut(&node) {
                    member.stalled = member.stalled.max(now + time);
                }
            }
            Fault::End(rank) => {
                if let Some(life) = self.truth.lives.get_mut(&rank) {
                    life.ends = Some(life.ends.map_or(now, |ends| ends.min(now)));
                }
            }
        }
    }

    /// Passes a message to a program.
    fn give(&mut self, node: NodeId, incoming: Incoming) {
        let now = self.net.now;
        let member = self.members.get_mut(&node);
        if let Some(at) = member.and_then(|member| member.take(now, incoming)) {
            self.agenda.at(at, Event::GoOn(node));
        }
    }

    fn go_on(&mut self, node: NodeId) {
        let now = self.net.now;
        let who = Address(node.0);
        if self.net.node(who).is_none() {
            // The program has died with its node.
            return;
        }
        if let Some(member) = self.members.get_mut(&node)
            && member.due.is_some_and(|due| due <= now)
            && let Some(at) = member.go_on(now, &self.truth, &mut self.rng)
        {
            self.agenda.at(at, Event::GoOn(node));
        }
        self.send(node);
    }

    /// Sends the messages of a program, as far as the process in the tree has room for them.
    fn send(&mut self, node: NodeId) {
        let who = Address(node.0);
        loop {
            let now = self.net.now;
            let later = self.net.stopped(who);
            let Some(process) = self.net.node(who) else {
                return;
            };
            let is_full = (node.0 > 0 && !process.has_room()).then(|| now + ROOM_RETRY);
            let Some(member) = self.members.get_mut(&node) else {
                return;
            };
            if let Some(later) = later.or(is_full) {
                if !member.outbox.is_empty() {
                    self.agenda.at(later, Event::Send(node));
                }
                return;
            }
            let Some(sent) = member.outbox.pop_front() else {
                return;
            };
            match sent {
                Sent::Up(body) => {
                    let sent = |process: &mut Node, _| process.send(Lane::Bulk, body);
                    self.net.with(who, sent);
                }
                Sent::Answer(gather, id, body) => {
                    self.ledger.note(now, || format!("{node} answers {id:?}"));
                    self.ledger.on_given(now, node, id);
                    let given = |process: &mut Node, _| process.answer_gather(gather, body);
                    self.net.with(who, given);
                }
                Sent::Local(message) => {
                    self.ledger.on_message(now, node, &message);
                    self.tell(session::Input::Message(node, message));
                }
            }
        }
    }

    /// Handles what the processes of the tree report.
    fn hear(&mut self) {
        while let Some((who, news)) = self.net.news() {
            let now = self.net.now;
            if !matches!(news, Output::Received { .. } | Output::Part { .. }) {
                self.ledger.note(now, || format!("{who}: {news:?}"));
            }
            let wrong = self.ledger.members.on_news(now, who, &news);
            self.ledger.fault_if(now, wrong);
            match news {
                Output::Received { body, .. } if who != Address::ROOT => {
                    self.give(NodeId(who.0), Incoming::Body(body));
                }
                Output::Asked { id, body } => {
                    self.give(NodeId(who.0), Incoming::Asked(id, body));
                }
                Output::Unreachable(_) | Output::Abandoned(_) | Output::Ended => {
                    self.net.leave(who);
                }
                news if who == Address::ROOT => self.learn(news),
                _ => {}
            }
        }
    }
}
