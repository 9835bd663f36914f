//! Tools that connect to the server beside the controller, which admits them. Each hears what it has asked for, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use base::{JobId, NodeId, Time};
use pmix::{
    client::{Config, Connector, Done, Input, Lost, Output, ProgramEvent, Ticket},
    tool::{Event as Said, Extent, Follow, JobEnd, Stage, Tool},
    value::{Nspace, Proc, ProcInfo, Status},
};

use super::Node;
use crate::{
    kernel::{ClientId, GARBAGE, OWNER},
    ledger::{Inquiry, job_id},
    names::{NAME, nspace},
    scenario::{Errand, GuestPlan, Where},
    script::Question,
    world::{Event, World},
};

/// Time that a tool may wait for what the server or the controller can answer at once, in addition to the delays of the run.
const ANSWER_MAX: Duration = Duration::from_millis(60);

/// A tool, and what it has heard.
#[derive(Debug)]
pub(super) struct Guest {
    tool: Tool,
    number: usize,
    errands: VecDeque<(Duration, Errand)>,
    opened: Time,
    /// Time at which it was admitted.
    ready: Option<Time>,
    asked: BTreeMap<Ticket, (Asked, Time)>,
    follows: bool,
    /// Jobs of whose end it has heard.
    ended: BTreeSet<JobId>,
    state: State,
    tick_for: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    There,
    /// It has asked for the end of its connection, or has broken the protocol.
    Leaves,
    /// It is dead, or its connection has ended.
    Gone,
}

/// What a tool has asked for.
#[derive(Clone, Debug)]
enum Asked {
    Table(Question, Nspace),
    Follow,
    Finalize,
}

impl Guest {
    fn new(now: Time, number: usize, tool: Tool, plan: GuestPlan) -> Self {
        Self {
            tool,
            number,
            errands: plan.errands.into(),
            opened: now,
            ready: None,
            asked: BTreeMap::new(),
            follows: false,
            ended: BTreeSet::new(),
            state: State::There,
            tick_for: None,
        }
    }

    /// Does what its plan says next. Returns bytes that it sends besides those of the protocol.
    fn act(&mut self, now: Time, errand: Errand) -> Vec<u8> {
        match errand {
            Errand::Follow => {
                let ticket = self.tool.follow(Follow::All);
                self.asked.insert(ticket, (Asked::Follow, now));
            }
            Errand::Table(number, place) => {
                let (extent, question) = match place {
                    Where::Anywhere => (Extent::Job, Question::Table),
                    Where::AtTheDoor => (Extent::Node, Question::OwnNode),
                };
                let Ok(about) = Nspace::from_text(&nspace(JobId(number))) else {
                    return Vec::new();
                };
                let ticket = self.tool.proc_table(&about, extent);
                self.asked
                    .insert(ticket, (Asked::Table(question, about), now));
            }
            Errand::Finalize => {
                let ticket = self.tool.program().finalize(now);
                self.asked.insert(ticket, (Asked::Finalize, now));
                self.state = State::Leaves;
            }
            Errand::Babble => {
                self.state = State::Leaves;
                return GARBAGE.to_vec();
            }
            Errand::Die => self.state = State::Gone,
        }
        Vec::new()
    }

    /// Checks an event of the tool. Returns a description of an error.
    fn on_said(&mut self, world: &mut World, door: NodeId, said: Said) -> Option<String> {
        match said {
            Said::Program(ProgramEvent::Ready { me, server }) => {
                self.on_ready(world, door, &me, &server)
            }
            Said::Program(ProgramEvent::Done { ticket, result }) => {
                self.on_done(world.now, ticket, &result)
            }
            Said::Table { ticket, result } => self.on_table(world, door, ticket, &result),
            Said::JobStage { nspace, stage } => self.on_stage(world, door, &nspace, stage),
            Said::JobEnded { nspace, end } => self.on_ended(world, &nspace, end),
            Said::Program(ProgramEvent::Finalized) if self.state == State::Leaves => {
                self.state = State::Gone;
                None
            }
            Said::Program(ProgramEvent::Lost { why: Lost::Closed })
                if self.state == State::Leaves =>
            {
                self.state = State::Gone;
                None
            }
            other => Some(format!("hears {other:?}")),
        }
    }

    fn on_ready(
        &mut self,
        world: &mut World,
        door: NodeId,
        me: &Proc,
        server: &Proc,
    ) -> Option<String> {
        let now = world.now;
        let late = self.opened + world.ledger.slack + ANSWER_MAX;
        if self.ready.replace(now).is_some() || now > late {
            return Some(format!("is admitted at {now}, it came at {}", self.opened));
        }
        if server.nspace.to_string() != format!("{NAME}-{door}") {
            return Some(format!("is admitted by {server}"));
        }
        let number = job_id(&me.nspace);
        let is_new = number.is_some_and(|number| world.ledger.on_admitted(number));
        (!is_new).then(|| format!("has the name {me}, which is none of its own"))
    }

    fn on_done(
        &mut self,
        now: Time,
        ticket: Ticket,
        result: &Result<Done, Status>,
    ) -> Option<String> {
        let (asked, at) = self.asked.remove(&ticket)?;
        match (&asked, result) {
            (_, Err(Status::UNREACH)) if self.state != State::There => None,
            (Asked::Follow, Ok(Done::Nothing)) => {
                self.follows = true;
                None
            }
            (Asked::Finalize, Ok(Done::Nothing)) => None,
            _ => Some(format!(
                "asks at {at} for {asked:?} and is answered at {now}: {result:?}"
            )),
        }
    }

    fn on_table(
        &mut self,
        world: &World,
        door: NodeId,
        ticket: Ticket,
        result: &Result<Vec<ProcInfo>, Status>,
    ) -> Option<String> {
        let Some((Asked::Table(question, about), asked)) = self.asked.remove(&ticket) else {
            return Some(format!("gets a table without a question: {result:?}"));
        };
        if *result == Err(Status::UNREACH) && self.state != State::There {
            return None;
        }
        let inquiry = Inquiry {
            here: door,
            question: &question,
            about: &about,
            asked,
            now: world.now,
        };
        world.ledger.on_told_table(inquiry, result)
    }

    /// Checks that a job has come so far. Nobody hears of the start of jobs that nobody has asked for.
    fn on_stage(&self, world: &World, door: NodeId, name: &Nspace, stage: Stage) -> Option<String> {
        let job = job_id(name)?;
        let is_held = world.ledger.held_told.contains_key(&(door, job));
        (stage != Stage::ReadyForDebug || !is_held)
            .then(|| format!("hears that job {job} has come to {stage:?}"))
    }

    fn on_ended(&mut self, world: &World, name: &Nspace, end: JobEnd) -> Option<String> {
        let job = job_id(name)?;
        let is_first = self.ended.insert(job);
        let right = world.ledger.status_of(job);
        (!is_first || right.is_none() || end.status != right)
            .then(|| format!("hears that job {job} has come to {end:?}, really: {right:?}"))
    }

    /// Returns what is missing when nothing happens any more. `finished` is the time at which the controller had nothing left to do:
    /// what was asked afterwards need not be answered.
    fn unheard(&self, world: &World, door: NodeId, finished: Time) -> Option<String> {
        if self.state != State::There {
            return None;
        }
        let patience = world.ledger.slack + ANSWER_MAX;
        let Some(ready) = self.ready else {
            return (self.opened + patience < finished).then(|| "was never admitted".to_owned());
        };
        let mut asked = self.asked.values();
        if let Some((asked, at)) = asked.find(|(_, at)| *at + patience < finished) {
            return Some(format!("was never answered to {asked:?} at {at}"));
        }
        let mut over = world.ledger.over_told.iter();
        let missed = over.find(|((node, job), at)| {
            *node == door && **at > ready && self.follows && !self.ended.contains(job)
        });
        missed.map(|((_, job), at)| format!("has not heard of the end of job {job} at {at}"))
    }
}

impl Node {
    /// Lets a tool connect.
    pub(crate) fn receive(&mut self, world: &mut World, number: usize, plan: GuestPlan) {
        let server = format!("{NAME}-{}.0;tcp4://127.0.0.1:{}", self.id, self.port);
        let Ok(server) = server.parse() else {
            return world.fault("a tool has no address to connect to".to_owned());
        };
        if !self.on {
            return;
        }
        let (id, now) = (self.kernel.new_client(), world.now);
        let config = Config::new(server, Connector::Tool, OWNER).describe(4243, "guest");
        let tool = Tool::new(now, config);
        self.guests.insert(id, Guest::new(now, number, tool, plan));
        self.client_opened(world, id, self.port, OWNER.uid);
        self.tell_guest(world, id, Input::Opened);
    }

    pub(super) fn is_guest(&self, id: ClientId) -> bool {
        self.guests.contains_key(&id)
    }

    /// Tells a tool what its connection has brought.
    pub(super) fn tell_guest(&mut self, world: &mut World, id: ClientId, input: Input<'_>) {
        self.with_guest(world, id, |guest, now| {
            guest.tool.handle(now, input);
            Vec::new()
        });
    }

    /// Wakes a tool at its deadline.
    pub(super) fn tick_guest(&mut self, world: &mut World, id: ClientId, due: Time) {
        let waits = self.guests.get(&id).and_then(|guest| guest.tick_for);
        if waits == Some(due) {
            self.tell_guest(world, id, Input::Tick);
        }
    }

    /// Lets a tool do what it does next.
    pub(super) fn guest_acts(&mut self, world: &mut World, id: ClientId) {
        let mut done = None;
        self.with_guest(world, id, |guest, now| {
            let Some((_, errand)) = guest.errands.pop_front() else {
                return Vec::new();
            };
            done = Some((guest.number, errand));
            guest.act(now, errand)
        });
        let Some((number, errand)) = done else {
            return;
        };
        world.note(|| format!("g{number}"), || format!("{errand:?}"));
        if errand == Errand::Die {
            self.client_closed(world, id);
        }
        self.guest_goes_on(world, id);
    }

    fn guest_goes_on(&self, world: &mut World, id: ClientId) {
        let next = self.guests.get(&id).and_then(|guest| guest.errands.front());
        if let Some((pause, _)) = next {
            let node = self.id;
            world.after(*pause, Event::GuestActs { node, id });
        }
    }

    /// Lets something happen to a tool that is there, and carries out what it does.
    fn with_guest(
        &mut self,
        world: &mut World,
        id: ClientId,
        happens: impl FnOnce(&mut Guest, Time) -> Vec<u8>,
    ) {
        let is_there = |guest: &&mut Guest| guest.state != State::Gone;
        let Some(guest) = self.guests.get_mut(&id).filter(is_there) else {
            return;
        };
        let was_ready = guest.ready.is_some();
        let more = happens(guest, world.now);
        let (mut sent, mut closes) = (Vec::new(), false);
        while let Some(output) = guest.tool.poll() {
            match output {
                Output::Send(bytes) => sent.push(bytes),
                Output::Close => closes = true,
                Output::Connect(_) => {}
                Output::Event(said) => {
                    let number = guest.number;
                    world.note(|| format!("g{number}"), || format!("<- {said:?}"));
                    if let Some(wrong) = guest.on_said(world, self.id, said) {
                        world.fault(format!("tool {number} {wrong}"));
                    }
                }
            }
        }
        sent.extend(Some(more).filter(|more| !more.is_empty()));
        let is_admitted = !was_ready && guest.ready.is_some();
        let due = guest.tool.deadline().filter(|due| *due > world.now);
        let new_due = due.filter(|_| due != guest.tick_for);
        guest.tick_for = due;
        let node = self.id;
        if let Some(due) = new_due {
            world.at(due, Event::GuestTick { node, id, due });
        }
        for bytes in sent {
            self.client_sent(world, id, bytes);
        }
        if closes {
            self.client_closed(world, id);
        }
        if is_admitted {
            self.guest_goes_on(world, id);
        }
    }

    /// Returns what the first tool misses that misses something.
    pub(crate) fn unheard_by_guests(&self, world: &World, finished: Time) -> Option<String> {
        let mut missed = self.guests.values().filter_map(|guest| {
            let wrong = guest.unheard(world, self.id, finished)?;
            Some(format!("tool {} {wrong}", guest.number))
        });
        missed.next()
    }
}
