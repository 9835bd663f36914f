//! A tree of overlay processes by itself: they start, send, and meet with faults of networks, processes and strangers.
//!
//! The messages are numbers; nobody looks into them. The checks are what [`overlay::node`] promises: they are in `check`.

mod check;
mod gathers;
mod plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    time::Duration,
};

use base::{NodeId, Time};
use bytes::Bytes;
use overlay::{
    Address, Shape,
    lanes::Lane,
    node::{Class, Node, Output, Patience},
    secure::{Build, Secret},
};

pub(crate) use self::plan::Size;
use self::{
    check::Ledger,
    plan::{Fault, Plan, STRANGERS, Step, Stranger},
};
use crate::{
    net::{self, Net, Then},
    record::{Played, Recorded, Report},
    rng::Rng,
};

/// Time after the last step in which everything that was lost is noticed.
pub(crate) const REST: Duration = Duration::from_secs(20);
/// Time in which the end of the session reaches every process.
pub(crate) const FAREWELL: Duration = Duration::from_secs(30);
/// Allowance for each process on the way, in addition to the delays of the network.
pub(crate) const HOP_MAX: Duration = Duration::from_millis(5);
/// Number of events after which a run counts as an endless loop.
const EVENTS_MAX: u64 = 2_000_000;

pub(crate) fn run(rng: &mut Rng, size: Size, recorded: Recorded) -> Played {
    let plan = plan::make(rng, size);
    let faults = plan.faults;
    let mut run = Run::new(plan, rng.clone(), recorded);
    run.play();
    let report = Report {
        events: run.events,
        faults,
        finished: run.net.now,
    };
    run.ledger.into_played(report)
}

struct Run {
    plan: Plan,
    net: Net,
    ledger: Ledger,
    events: u64,
    /// Number of the last message.
    number: u32,
    /// Number of strangers so far; each has an address of its own.
    strangers: u32,
}

/// Returns the shape of a tree of a root and these members.
pub(crate) fn shape(members: u32, radix: u32) -> Shape {
    let radix = NonZeroU32::new(radix).unwrap_or(NonZeroU32::MIN);
    Shape::new(members.saturating_add(1), radix)
}

/// Returns each process of a tree with its parent, except the root.
pub(crate) fn parents(members: u32, radix: u32) -> impl Iterator<Item = (Address, Address)> {
    let shape = shape(members, radix);
    (1..=members).filter_map(move |member| {
        let parent = shape.position(NodeId(member))?.parent()?;
        Some((Address(member), Address(parent.0)))
    })
}

impl Run {
    fn new(plan: Plan, rng: Rng, recorded: Recorded) -> Self {
        let mut net = Net::new(rng, plan.delay_max, plan.timing, merge);
        net.start_root(parents(plan.members, plan.radix));
        let mut ledger = Ledger::new(plan.timing, plan.members, recorded);
        ledger.note(Time::ZERO, || {
            let Plan {
                members,
                radix,
                timing,
                absent,
                ..
            } = &plan;
            format!("{members} members, radix {radix}, {timing:?}, absent {absent:?}")
        });
        Self {
            plan,
            net,
            ledger,
            events: 0,
            number: 0,
            strangers: 0,
        }
    }

    fn play(&mut self) {
        for (when, step) in std::mem::take(&mut self.plan.steps) {
            self.run_until(Time::ZERO + when);
            if self.ledger.is_faulty() {
                return;
            }
            self.ledger.note(self.net.now, || format!("{step:?}"));
            self.perform(step);
            self.hear();
        }
        let timing = self.plan.timing;
        // Reports of what was received go up one level in a third of a lease.
        let reports = timing.lease / 3 * shape(self.plan.members, self.plan.radix).height();
        let rest = 2 * (timing.lease + timing.window) + reports + REST;
        let gathered = self.ledger.gathers.last_until();
        self.run_until(self.net.now.max(gathered) + rest);
        // The caller's time limit for the start: it knows which processes have failed.
        let over = (1..=self.plan.members).map(Address);
        // The root may have been stopped when it was told the first time.
        let has_failed =
            |who: &Address| self.plan.absent.contains(who) || self.ledger.members.has_failed(*who);
        let over: Vec<Address> = over.filter(has_failed).collect();
        if !over.is_empty() {
            for member in over {
                self.net
                    .with(Address::ROOT, |root, now| root.give_up(now, member));
            }
            self.run_until(self.net.now + rest);
        }
        self.ledger.note(self.net.now, || "the end".to_owned());
        self.ledger.check_rest(&self.net, self.plan.members);
        self.net.with(Address::ROOT, |root, _| root.end());
        // All links are up and idle, so the message passes from one process to the next.
        let hop = 4 * self.plan.delay_max + HOP_MAX;
        let way = hop * shape(self.plan.members, self.plan.radix).height();
        self.ledger.members.end_by = Some(self.net.now + way);
        self.run_until(self.net.now + FAREWELL);
        self.ledger.check_end(self.net.now);
    }

    fn run_until(&mut self, until: Time) {
        while !self.ledger.is_faulty() && self.next_at().is_some_and(|at| at <= until) {
            self.events += 1;
            let answer = self.ledger.gathers.next_at();
            if answer.is_some_and(|answer| self.net.next_at().is_none_or(|at| answer < at)) {
                self.answer();
            } else {
                self.net.step();
            }
            if self.events > EVENTS_MAX {
                self.ledger
                    .fault(self.net.now, "the run goes round in circles".to_owned());
            }
            if let Some(fault) = self.net.take_fault() {
                self.ledger.fault(self.net.now, fault);
            }
            self.hear();
        }
        self.net.now = self.net.now.max(until);
    }

    fn next_at(&self) -> Option<Time> {
        let answer = self.ledger.gathers.next_at();
        self.net.next_at().into_iter().chain(answer).min()
    }

    /// Lets the next process answer a question.
    fn answer(&mut self) {
        let at = self.ledger.gathers.next_at();
        let Some((who, id)) = self.ledger.gathers.next() else {
            return;
        };
        self.net.now = at.map_or(self.net.now, |at| self.net.now.max(at));
        if let Some(until) = self.net.stopped(who) {
            return self.ledger.gathers.later(until, who, id);
        }
        let given = |node: &mut Node, _| node.answer_gather(id, gathers::answer(who));
        if self.net.with(who, given) {
            self.ledger.gathers.on_answered(self.net.now, who, id);
        }
    }

    /// Lets the root ask members.
    fn ask(&mut self, choice: u64, lane: Lane, patience: Patience) {
        let all = (1..=self.plan.members).map(Address);
        let asked: BTreeSet<Address> = all.filter(|who| is_chosen(choice, *who)).collect();
        let now = self.net.now;
        let mut begun = None;
        self.net.with(Address::ROOT, |root, now| {
            begun = root.gather(now, &asked, lane, &Bytes::new(), patience).ok();
        });
        let Ledger {
            gathers, members, ..
        } = &mut self.ledger;
        if let Some(id) = begun {
            gathers.on_begun(now, members, id, choice, asked, patience);
        }
    }

    fn hear(&mut self) {
        while let Some((who, news)) = self.net.news() {
            if news == Output::Ended {
                self.net.leave(who);
            }
            self.ledger.on_news(self.net.now, who, news);
        }
        let wrong = self.ledger.gathers.check_open(&self.ledger.members);
        self.ledger.fault_if(self.net.now, wrong);
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::Start(who) => {
                if !self.ledger.members.is_dead(who) {
                    self.net.start(who);
                }
            }
            Step::GiveUp(who) => {
                self.net
                    .with(Address::ROOT, |root, now| root.give_up(now, who));
            }
            Step::Send {
                from,
                lane,
                count,
                length,
            } => {
                for _ in 0..count {
                    if !self.send(from, lane, length) {
                        break;
                    }
                }
            }
            Step::Say {
                choice,
                lane,
                class,
            } => {
                for from in (1..=self.plan.members).map(Address) {
                    if is_chosen(choice, from) {
                        self.say(from, lane, class);
                    }
                }
            }
            Step::Cast {
                choice,
                lane,
                length,
            } => self.cast(choice, lane, length),
            Step::Ask {
                choice,
                lane,
                patience,
            } => self.ask(choice, lane, patience),
            Step::Fault(fault) => self.break_something(fault),
            Step::Mend(nodes) => self.net.join(&nodes),
            Step::Unmute(who) => self.net.unmute(who),
        }
        for who in (0..=self.plan.members).map(Address) {
            if let Some(node) = self.net.node(who) {
                self.ledger.check_load(self.net.now, who, &node.load());
            }
        }
    }

    fn body(&mut self, length: usize) -> (u32, Bytes) {
        self.number += 1;
        let mut body = self.number.to_le_bytes().to_vec();
        body.resize(length.max(4), 7);
        (self.number, Bytes::from(body))
    }

    fn can_send(&self, from: Address) -> bool {
        let node = self.net.node(from);
        node.is_some_and(Node::has_room) && self.ledger.members.is_ready(from)
    }

    /// Lets a process send a message to the root that may be merged.
    fn say(&mut self, from: Address, lane: Lane, class: Class) {
        if !self.can_send(from) {
            return;
        }
        self.number += 1;
        let number = self.number;
        let words = [number | MARK, from.0];
        let body: Bytes = words.into_iter().flat_map(u32::to_le_bytes).collect();
        let said = |node: &mut Node, now| node.send_mergeable(now, lane, class, body);
        if self.net.with(from, said) {
            self.ledger.on_sent(self.net.now, from, lane, number);
        }
    }

    /// Sends a message to the root; returns false if there is no room for it, or no process that could send it.
    fn send(&mut self, from: Address, lane: Lane, length: usize) -> bool {
        if !self.can_send(from) {
            return false;
        }
        let (number, body) = self.body(length);
        if self.net.with(from, |node, _| node.send(lane, body)) {
            self.ledger.on_sent(self.net.now, from, lane, number);
            return true;
        }
        false
    }

    fn cast(&mut self, choice: u64, lane: Lane, length: usize) {
        let members = self.ledger.members.joined();
        let to: BTreeSet<Address> = members.filter(|who| is_chosen(choice, *who)).collect();
        let (number, body) = self.body(length);
        let cast = self
            .net
            .with(Address::ROOT, |root, now| root.cast(now, &to, lane, &body));
        if cast {
            self.ledger.on_cast(&to, lane, number);
        }
    }

    fn break_something(&mut self, fault: Fault) {
        match fault {
            Fault::Trouble(trouble) => {
                self.ledger.members.strike(&mut self.net, &trouble);
            }
            Fault::Duplicate(who) => {
                if self.ledger.members.is_member(who) {
                    let from = self.stranger();
                    let config = net::config(who, from, self.plan.timing);
                    self.net.start_with(from, config);
                }
            }
            Fault::Replay(who) => {
                let pieces = self.net.heard(who);
                if !pieces.is_empty() {
                    let from = self.stranger();
                    self.net.meddle(from, Address::ROOT, pieces, Then::Wait);
                }
            }
            Fault::Stranger(stranger) => self.meet(stranger),
        }
    }

    fn stranger(&mut self) -> Address {
        self.strangers += 1;
        Address(STRANGERS + self.strangers)
    }

    fn meet(&mut self, stranger: Stranger) {
        let from = self.stranger();
        let timing = self.plan.timing;
        let right = net::config(Address(1), from, timing);
        let mut refused = BTreeMap::from([(from, stranger)]);
        match stranger {
            Stranger::Garbage => {
                for _ in 0..2 {
                    let pieces = vec![b"GET / HTTP/1.1\r\n\r\n".to_vec()];
                    self.net.meddle(from, Address::ROOT, pieces, Then::Wait);
                }
            }
            Stranger::Silent => self.net.meddle(from, Address::ROOT, Vec::new(), Then::Wait),
            Stranger::Scan => {
                // Before all processes have joined, it may be one of them.
                refused.clear();
                self.net
                    .meddle(from, Address::ROOT, Vec::new(), Then::Close);
            }
            Stranger::Secret => {
                let secret = Secret::new([6; 32]);
                let config = overlay::node::Config { secret, ..right };
                self.net.start_with(from, config);
            }
            Stranger::Build => {
                let build = Build::new("rally old");
                let config = overlay::node::Config { build, ..right };
                self.net.start_with(from, config);
            }
            Stranger::Unknown => {
                let config = net::config(Address(STRANGERS - 1), from, timing);
                self.net.start_with(from, config);
            }
        }
        self.ledger.refused.extend(refused);
    }
}

/// Set in the number of a message that may be merged.
const MARK: u32 = 1 << 31;

const fn is_chosen(choice: u64, who: Address) -> bool {
    choice.rotate_left(who.0 % 64) & 3 != 0
}

/// Merged messages are one behind the other, so that each can be found.
#[expect(clippy::unnecessary_wraps, reason = "the type of merges")]
fn merge(bodies: &[Bytes]) -> Option<Bytes> {
    Some(Bytes::from(bodies.concat()))
}

/// Returns the numbers of the messages that came together, with their senders; `None` if they are none of ours.
fn messages(of: &BTreeSet<Address>, body: &Bytes) -> Option<Vec<(Address, u32)>> {
    let word = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
    let first = word(body.first_chunk()?);
    if first & MARK == 0 {
        return Some(of.iter().map(|from| (*from, first)).collect());
    }
    let (pairs, rest) = body.as_chunks::<8>();
    let pairs = pairs.iter().map(|pair| {
        let (words, _) = pair.as_chunks::<4>();
        (Address(word(&words[1])), word(&words[0]) & !MARK)
    });
    let pairs: Vec<(Address, u32)> = pairs.collect();
    let said: BTreeSet<Address> = pairs.iter().map(|pair| pair.0).collect();
    (rest.is_empty() && said == *of).then_some(pairs)
}
