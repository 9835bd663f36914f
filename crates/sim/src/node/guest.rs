//! Tools that connect to the server beside the controller, which admits them. Each hears what it has asked for, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use base::{JobId, NodeId, Rank, Time};
use bytes::Bytes;
use dvm::{
    Caller,
    proto::{Dropped, Keeping, Stream},
};
use pmix::{
    client::{
        Config, Connector, Done, Input, Lost, Output, ProgramEvent, ServerUri, Stdio, Terms,
        Ticket, infos,
    },
    codec::{Format, Writer},
    keys,
    launcher::{Callback, Called, Step},
    server::Conn,
    tool::{Event as Said, Extent, Follow, JobEnd, PullId, Stage, Tool},
    value::{Info, IofChannels, Nspace, Proc, ProcInfo, Status, Value},
};

mod jobs;

use super::Node;
use crate::{
    kernel::{ClientId, GARBAGE, OWNER},
    ledger::{Completeness, Inquiry, Pull, job_id, proc_id},
    names::{NAME, nspace},
    scenario::{Errand, GuestPlan, Held, Keepalive, Order, StarterPlan, Stop, Streams, Where},
    script::{Question, named},
    world::{Event, World},
};

/// Time that a tool may wait for what the server or the controller can answer at once, in addition to the delays of the run.
const ANSWER_MAX: Duration = Duration::from_millis(60);

/// The number of the tool that has started the launcher, among all tools.
const STARTER: usize = 99;

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
    /// Time from which it surely hears of all jobs.
    follows: Option<Time>,
    /// Jobs of whose end it has heard.
    ended: BTreeSet<JobId>,
    stages: BTreeSet<(JobId, Stage)>,
    /// True once it has asked for the ends of jobs that it spawns, before it wanted to hear of all jobs: earlier ends are not repeated then.
    hears_own_ends: bool,
    /// Time from which it hears of the ends of all jobs; `None` if it hears of earlier ones too.
    hears_ends_from: Option<Time>,
    /// Jobs that it has spawned, by the index of the child.
    jobs: BTreeMap<usize, JobId>,
    /// The launcher that it may release: the server to which it has connected, or the name that it has given the launcher.
    launcher: Option<Proc>,
    role: Role,
    /// Output for which it has asked, by the number of the request. That of 0 was requested by its directives.
    pulls: BTreeMap<u64, (Option<PullId>, Pull)>,
    /// Number of times that it was told that the launcher waits for it.
    readies: u64,
    state: State,
    tick_for: Option<Time>,
}

/// What a tool is to the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Guest,
    /// It has started the launcher.
    Starter(Keepalive),
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
    Pull(u64, Option<Keeping>),
    StopPulling(u64),
    Ready,
    Release,
    Spawn(usize),
    Finalize,
}

/// Returns the directives of a tool for the job of the launcher.
fn directives(plan: &StarterPlan) -> Vec<Info> {
    let mut directives = Vec::new();
    if plan.goes_on {
        directives.extend(infos([(keys::NOHUP, Value::Bool(true))]));
    }
    if plan.stop == Stop::Exec {
        directives.extend(infos([(keys::STOP_ON_EXEC, Value::Bool(true))]));
    }
    for stream in &plan.forward {
        let key = match stream {
            Stream::Stdout => keys::FWD_STDOUT,
            Stream::Stderr => keys::FWD_STDERR,
        };
        directives.extend(infos([(key, Value::Bool(true))]));
    }
    directives.extend(plan.keeping.into_iter().flat_map(kept));
    directives
}

/// Returns the directives that ask for output to be kept.
fn kept(keeping: Keeping) -> Vec<Info> {
    let dropped = match keeping.dropped {
        Dropped::Oldest => keys::IOF_DROP_OLDEST,
        Dropped::Newest => keys::IOF_DROP_NEWEST,
    };
    infos([
        (keys::IOF_CACHE_SIZE, Value::Uint32(keeping.bytes)),
        (dropped, Value::Bool(true)),
    ])
}

const fn channels(stream: Stream) -> IofChannels {
    match stream {
        Stream::Stdout => IofChannels::STDOUT,
        Stream::Stderr => IofChannels::STDERR,
    }
}

impl Guest {
    fn new(
        now: Time,
        number: usize,
        tool: Tool,
        role: Role,
        errands: Vec<(Duration, Errand)>,
    ) -> Self {
        Self {
            tool,
            number,
            errands: errands.into(),
            opened: now,
            ready: None,
            asked: BTreeMap::new(),
            follows: None,
            ended: BTreeSet::new(),
            stages: BTreeSet::new(),
            hears_own_ends: false,
            hears_ends_from: None,
            jobs: BTreeMap::new(),
            launcher: None,
            role,
            pulls: BTreeMap::new(),
            readies: 0,
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
            Errand::Pull(number, streams, keeping) => {
                self.pull(now, JobId(number), streams, keeping);
            }
            Errand::StopPulling => {
                let mut running = self
                    .pulls
                    .iter_mut()
                    .filter(|(_, (_, pull))| pull.answered.is_some() && pull.stopped.is_none());
                if let Some((number, (Some(id), pull))) = running.next() {
                    pull.stopped = Some(now);
                    let ticket = self.tool.stop_pull(*id);
                    self.asked
                        .insert(ticket, (Asked::StopPulling(*number), now));
                }
            }
            Errand::Release => {
                let ticket = self
                    .tool
                    .release(self.launcher.clone().into_iter().collect());
                self.asked.insert(ticket, (Asked::Release, now));
            }
            Errand::Spawn(order) => self.spawn(now, order),
            // It is done with the ledger.
            Errand::LetGo(_) => {}
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
            Errand::ClosePipe => {}
        }
        Vec::new()
    }

    fn pull(&mut self, now: Time, job: JobId, streams: Streams, keeping: Option<Keeping>) {
        let Ok(name) = Nspace::from_text(&nspace(job)) else {
            return;
        };
        let streams = match streams {
            Streams::Both => Stream::BOTH.to_vec(),
            Streams::One(stream) => vec![stream],
        };
        let channels = streams.iter().map(|stream| channels(*stream));
        let channels = channels.fold(IofChannels::default(), IofChannels::with);
        let asked = keeping.map(kept).unwrap_or_default();
        let (id, ticket) = self.tool.pull(vec![Proc::all(name)], channels, asked);
        let pull = Pull::new(job, streams, now);
        self.pulls.insert(id.number(), (Some(id), pull));
        let asked = Asked::Pull(id.number(), keeping);
        self.asked.insert(ticket, (asked, now));
    }

    /// Takes the answer to a request for output.
    fn on_pulls(
        &mut self,
        world: &mut World,
        door: NodeId,
        number: u64,
        keeping: Option<Keeping>,
    ) -> Option<String> {
        let now = world.now;
        let patience = world.ledger.slack + ANSWER_MAX;
        let (_, pull) = self.pulls.get_mut(&number)?;
        pull.answered = Some(now);
        if let Some(keeping) = keeping {
            // Of a job that is not known there nothing is kept.
            let is_known = world.ledger.knew(door, pull.job, pull.asked, now);
            let sure = is_known.then(|| now + patience);
            let times = Some((pull.asked, sure));
            let (job, streams) = (pull.job, pull.streams.clone());
            world.ledger.copies.on_kept(job, &streams, keeping, times);
        }
        None
    }

    fn on_output(&mut self, world: &World, stdio: &Stdio) -> Option<String> {
        let Some(proc) = proc_id(&stdio.source) else {
            return Some(format!("gets output of {}", stdio.source));
        };
        let streams = Stream::BOTH.into_iter();
        let mut streams = streams.filter(|stream| channels(*stream) == stdio.channels);
        let stream = streams.next()?;
        if stdio.id == 0 && !self.pulls.contains_key(&0) {
            let forwarded = self.forwarded(world);
            let Some(pull) = forwarded.filter(|pull| pull.job == proc.job) else {
                return Some(format!("gets output of {}", stdio.source));
            };
            self.pulls.insert(0, (None, pull));
        }
        let Some((_, pull)) = self.pulls.get_mut(&stdio.id) else {
            return Some(format!("gets output for the request {}", stdio.id));
        };
        pull.take(proc, stream, &stdio.bytes)
    }

    /// Returns the output that it gets because its directives say so.
    fn forwarded(&self, world: &World) -> Option<Pull> {
        let number = self.job_number(world)?;
        let (job, streams) = world.ledger.forwarded_to(number)?;
        Some(Pull::from_start(job, streams))
    }

    /// Returns what is wrong with the output that it has got.
    fn wrong_output(&self, world: &World, door: NodeId) -> Option<String> {
        let patience = world.ledger.slack + ANSWER_MAX;
        let forwarded = self.forwarded(world);
        let forwarded = forwarded.filter(|_| !self.pulls.contains_key(&0));
        let pulls = self.pulls.values().map(|(_, pull)| pull);
        let mut pulls = pulls.chain(&forwarded);
        let completeness = match self.state {
            State::There => Completeness::Whole,
            State::Leaves | State::Gone => Completeness::Part,
        };
        pulls.find_map(|pull| {
            world
                .ledger
                .wrong_output(door, pull, completeness, patience)
        })
    }

    /// Checks an event of the tool. Returns a description of an error.
    fn on_said(&mut self, world: &mut World, door: NodeId, said: Said) -> Option<String> {
        match said {
            Said::Program(ProgramEvent::Ready { me, server }) => {
                self.on_ready(world, door, &me, &server)
            }
            Said::Program(ProgramEvent::Stdio(stdio)) => self.on_output(world, &stdio),
            Said::Program(ProgramEvent::Done { ticket, result }) => {
                self.on_done(world, door, ticket, &result)
            }
            Said::Table { ticket, result } => self.on_table(world, door, ticket, &result),
            Said::JobStage { nspace, stage } => self.on_stage(world, door, &nspace, stage),
            Said::JobEnded { nspace, end } => self.on_ended(world, &nspace, end),
            Said::Program(ProgramEvent::Notice { notice, .. })
                if notice.status == Status::LAUNCHER_READY =>
            {
                self.readies += 1;
                let told = world.ledger.readies_told;
                (self.readies > told)
                    .then(|| format!("hears that the launcher waits, which was told {told} times"))
            }
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
        self.launcher = Some(server.clone());
        let number = job_id(&me.nspace);
        let is_new = number.is_some_and(|number| world.ledger.on_admitted(number));
        (!is_new).then(|| format!("has the name {me}, which is none of its own"))
    }

    fn on_done(
        &mut self,
        world: &mut World,
        door: NodeId,
        ticket: Ticket,
        result: &Result<Done, Status>,
    ) -> Option<String> {
        let now = world.now;
        let (asked, at) = self.asked.remove(&ticket)?;
        if let Asked::Spawn(child) = asked {
            return self.on_spawned(world, child, at, result);
        }
        match (&asked, result) {
            (_, Err(Status::UNREACH)) if self.state != State::There => None,
            (Asked::Follow, Ok(Done::Nothing)) => {
                self.follows.get_or_insert(now);
                if self.hears_own_ends {
                    self.hears_ends_from.get_or_insert(now);
                }
                None
            }
            (Asked::Pull(number, keeping), Ok(Done::Nothing)) => {
                self.on_pulls(world, door, *number, *keeping)
            }
            (Asked::StopPulling(number), Ok(Done::Nothing)) => {
                let (_, pull) = self.pulls.get_mut(number)?;
                pull.close();
                None
            }
            (Asked::Ready | Asked::Release | Asked::Finalize, Ok(Done::Nothing)) => None,
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

    /// Checks that a job has come so far. Only the tool for which the launcher has waited hears of the start of its job.
    fn on_stage(
        &mut self,
        world: &World,
        door: NodeId,
        name: &Nspace,
        stage: Stage,
    ) -> Option<String> {
        let job = job_id(name)?;
        let is_told = match stage {
            Stage::ReadyForDebug => {
                let holder = world.ledger.facts.holder_of(job).map(|by| by.job);
                let holder = holder.or_else(|| world.ledger.tool_of(job));
                let is_for_it = holder.is_none() || holder == self.job_number(world);
                is_for_it && world.ledger.held_told.contains_key(&(door, job))
            }
            Stage::Started | Stage::Launched => {
                let by = world.ledger.tool_of(job);
                by == self.job_number(world) && world.ledger.stages_told.contains_key(&(job, stage))
            }
        };
        let is_first = self.stages.insert((job, stage));
        (!is_first || !is_told).then(|| format!("hears that job {job} has come to {stage:?}"))
    }

    fn on_ended(&mut self, world: &World, name: &Nspace, end: JobEnd) -> Option<String> {
        let job = job_id(name)?;
        let is_first = self.ended.insert(job);
        let right = world.ledger.status_of(job);
        (!is_first || right.is_none() || end.status != right)
            .then(|| format!("hears that job {job} has come to {end:?}, really: {right:?}"))
    }

    /// Returns its number at the controller.
    fn job_number(&self, world: &World) -> Option<JobId> {
        match self.role {
            Role::Guest => job_id(&self.tool.as_program().me()?.nspace),
            Role::Starter(_) => world.ledger.starter,
        }
    }

    /// Returns what is missing when nothing happens any more. `finished` is the time at which the controller had nothing left to do:
    /// what was asked afterwards need not be answered.
    fn unheard(&self, world: &World, door: NodeId, finished: Time) -> Option<String> {
        if let Some(wrong) = self.wrong_output(world, door) {
            return Some(wrong);
        }
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
        if self.role != Role::Guest && self.readies < world.ledger.readies_told {
            return Some("has not heard that the launcher waits".to_owned());
        }
        if let Some(missed) = self.unheard_of_jobs(world, door, finished) {
            return Some(missed);
        }
        let number = self.job_number(world);
        let mut stages = world.ledger.stages_told.iter();
        let missed = stages.find(|((job, stage), at)| {
            let is_for_it = world.ledger.tool_of(*job) == number;
            let is_late = self.follows.is_some_and(|since| **at > since);
            is_for_it && is_late && !self.stages.contains(&(*job, *stage))
        });
        if let Some(((job, stage), at)) = missed {
            return Some(format!(
                "has not heard at {at} that job {job} has come to {stage:?}"
            ));
        }
        let since = self.hears_ends_from.unwrap_or(ready);
        let mut over = world.ledger.over_told.iter();
        let missed = over.find(|((node, job), at)| {
            *node == door && **at > since && self.follows.is_some() && !self.ended.contains(job)
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
        self.guests
            .insert(id, Guest::new(now, number, tool, Role::Guest, plan.errands));
        self.client_opened(world, id, self.port, OWNER.uid);
        self.tell_guest(world, id, Input::Opened);
    }

    /// Lets the tool that has started the launcher accept its connection, which the daemon then takes over. Returns the directives, packed.
    pub(crate) fn summon(&mut self, world: &mut World, plan: &StarterPlan) -> Option<Bytes> {
        let name = |text: &str| {
            let nspace = Nspace::from_text(text).ok()?;
            Some(named(&nspace, Rank(0)))
        };
        let (tool, launcher) = (name("debugger")?, name("debugger:1")?);
        let uri: ServerUri = "debugger.0;tcp4://127.0.0.1:999".parse().ok()?;
        let terms = Terms {
            uri: uri.clone(),
            launcher: Some(launcher.clone()),
            directives: directives(plan),
            owner: OWNER,
        };
        let now = world.now;
        let mut starter = Tool::accept(now, terms);
        let (mut callback, hello) = Callback::new(uri, launcher.clone(), OWNER, 77, "rally run");
        let mut to_tool = vec![hello];
        let mut called = None;
        while let Some(bytes) = to_tool.pop() {
            starter.handle(now, Input::Bytes(&bytes));
            while let Some(output) = starter.poll() {
                let Output::Send(bytes) = output else {
                    continue;
                };
                match callback.handle(&bytes).ok()? {
                    Step::Send(bytes) => to_tool.push(bytes),
                    Step::Receive => {}
                    Step::Called(by) => called = Some(by),
                }
            }
        }
        let called = called.filter(|called| called.tool == tool)?;
        let id = self.kernel.new_client();
        let errands = plan.errands.clone();
        let mut guest = Guest::new(
            now,
            STARTER,
            starter,
            Role::Starter(plan.keepalive),
            errands,
        );
        guest.ready = Some(now);
        guest.launcher = Some(launcher);
        self.guests.insert(id, guest);
        self.take_over(world, id, &called);
        self.with_guest(world, id, |guest, now| {
            let codes = vec![Status::LAUNCHER_READY];
            let (_, ticket) = guest.tool.program().register(codes, Vec::new());
            guest.asked.insert(ticket, (Asked::Ready, now));
            Vec::new()
        });
        self.guest_goes_on(world, id);
        let mut writer = Writer::new(Format::V4);
        writer.list(&called.directives);
        Some(writer.into_bytes().into())
    }

    /// Gives the daemon the connection to the tool that has started the launcher.
    fn take_over(&mut self, world: &mut World, id: ClientId, called: &Called) {
        let conn = Conn(id.0);
        let text = |proc: &Proc| (proc.nspace.to_string(), proc.rank.0);
        let caller = Caller {
            tool: text(&called.tool),
            me: text(&called.me),
            version: called.version,
        };
        self.client_taken_over(id);
        self.tell(world, dvm::Input::Called { conn, caller });
        let bytes = &called.rest[..];
        if !bytes.is_empty() {
            self.tell(world, dvm::Input::ClientBytes { conn, bytes });
        }
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
            let next = guest.errands.pop_front();
            let Some((_, errand)) = next.filter(|_| guest.state == State::There) else {
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
        if let Errand::LetGo(held) = errand {
            self.let_go(world, id, held);
        }
        if matches!(errand, Errand::Die | Errand::Finalize | Errand::Babble) {
            let now = world.now;
            let guest = self.guests.get(&id);
            let left = guest.and_then(|guest| guest.job_number(world));
            world.ledger.tools_left.extend(left.map(|left| (left, now)));
        }
        if errand == Errand::Release {
            let now = world.now;
            world.ledger.released_at.get_or_insert(now);
            world.ledger.on_notified_at(self.id);
        }
        let role = self.guests.get(&id).map(|guest| guest.role);
        if role == Some(Role::Starter(Keepalive::Pipe))
            && matches!(errand, Errand::Die | Errand::ClosePipe)
        {
            let delay = world.delay(world.latency.io_max);
            world.after(delay, Event::KeepaliveCloses);
        }
        if role.is_some_and(|role| role != Role::Guest)
            && matches!(
                errand,
                Errand::Die | Errand::ClosePipe | Errand::Finalize | Errand::Babble
            )
        {
            world.ledger.is_starter_gone = true;
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
