//! The PMIx operations of a program, from init to finalize.

mod answers;
mod gets;
mod handlers;
mod requests;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use base::Time;

use self::gets::{Gets, Outcome};
pub use self::{
    answers::Done,
    gets::MAX_WAITING,
    handlers::{HandlerId, MAX_HANDLERS, Notice},
    requests::{Collect, PutError, Search},
};
use super::{
    Client, Config, Connector, Event as ClientEvent, Input, JobFacts, Lost, Output, Terms, Ticket,
    Viewpoint, infos,
};
use crate::{
    Error, keys,
    message::{Answer, Push, Request},
    value::{Info, IofChannels, Key, Nspace, PmixRank, Proc, Range, Scope, Status, Value},
};

/// Longest time from the welcome to the job info.
pub const FACTS_WAIT: Duration = Duration::from_secs(30);

/// Event of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A debugger holds the program before it is ready. The program continues when the debugger releases it.
    Held,
    /// The program is initialized under the name `me`.
    Ready { me: Proc, server: Proc },
    /// The result of a request. Each ticket gets one.
    Done {
        ticket: Ticket,
        result: Result<Done, Status>,
    },
    /// An event that matches at least one handler.
    Notice {
        handlers: Vec<HandlerId>,
        notice: Notice,
    },
    /// Output of a process that the program spawned, or whose output it requested.
    Stdio(Stdio),
    /// A message from the server was dropped because it was malformed or unexpected.
    Ignored { why: Error },
    /// The server has answered the finalize. The connection has ended.
    Finalized,
    /// The connection has ended without a finalize.
    Lost { why: Lost },
}

/// Piece of the output of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Stdio {
    pub source: Proc,
    pub channels: IofChannels,
    /// The number from the request for output; 0 for output requested by a spawn.
    pub id: u64,
    pub infos: Vec<Info>,
    /// Output; no bytes mean the end of the stream.
    pub bytes: bytes::Bytes,
}

/// PMIx connection of a program, from init to finalize.
///
/// | phase | action | next phase |
/// |---|---|---|
/// | Connecting | does the handshake | Learning |
/// | Learning | requests the job info | Ready; Registering if a debugger wants to hold the program |
/// | Registering | registers for the release event | Announcing |
/// | Announcing | sends the event that it is ready for the debugger | Held; Ready if the release has arrived |
/// | Held | waits for the release event without a timeout | Ready |
/// | Ready | carries out the requests of the program | Ended |
/// | Ended | none | none |
///
/// Requests before Ready are answered `INIT`. Any phase goes to Ended when the connection ends.
///
/// ```
/// use base::Time;
/// use pmix::{
///     client::{Collect, Config, Connector, Done, Input, Output, Program, ProgramEvent, Search},
///     handshake::Owner,
///     keys,
///     value::{Key, Nspace, PmixRank, Proc, Scope, Value},
/// };
/// # fn carry_out(_: &[u8]) {}
/// let now = Time::ZERO;
/// let me = Proc { nspace: Nspace::from_text("job-1")?, rank: PmixRank(0) };
/// let server = "daemon-n1.0;tcp4://127.0.0.1:4711".parse()?;
/// let owner = Owner { uid: 1000, gid: 1000 };
/// let mut program = Program::new(now, Config::new(server, Connector::Client(me.clone()), owner));
/// program.put(Scope::GLOBAL, Key::from_text("port")?, Value::Uint32(4711))?;
///
/// program.handle(now, Input::Opened);
/// program.handle(now, Input::Bytes(&[0; 8])); // the server's welcome
/// # let facts = [0, 0, 0, 0, 0, 0, 0, 101, 0, 0, 0, 26, 0, 0, 0, 0, 2, 12, b'j', b'o', b'b', b'-', b'1', 0,
/// #     2, 28, b'p', b'm', b'i', b'x', b'.', b'j', b'o', b'b', b'.', b's', b'i', b'z', b'e', 0, 14, 2];
/// program.handle(now, Input::Bytes(&facts)); // and the facts of the job, when it was asked for them
/// while let Some(output) = program.poll() {
///     match output {
///         Output::Connect(_address) => {}
///         Output::Send(bytes) => carry_out(&bytes),
///         Output::Close => {}
///         Output::Event(ProgramEvent::Ready { .. }) => {
///             program.commit();
///             program.fence(Vec::new(), Collect::Data);
///         }
///         Output::Event(_) => {}
///     }
/// }
/// assert_eq!(program.job().unwrap().size(), Some(2));
/// // A get that can be answered on this side is answered by the next poll.
/// let ticket = program.get(Proc::all(me.nspace), Key::new(keys::JOB_SIZE)?, Search::Anywhere);
/// let result = Ok(Done::Value(Value::Uint32(2)));
/// assert_eq!(program.poll(), Some(Output::Event(ProgramEvent::Done { ticket, result })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Program {
    client: Client,
    /// True if the other side has opened the connection. It has no job info for this side.
    is_acceptor: bool,
    phase: Phase,
    now: Time,
    me: Option<Proc>,
    server: Proc,
    jobs: BTreeMap<Nspace, JobFacts>,
    /// Values that the program has put, committed or not.
    own: BTreeMap<Key, Put>,
    /// Number of puts so far.
    puts: u64,
    /// Keys of uncommitted values, by the number of their put.
    uncommitted: BTreeMap<u64, Key>,
    gets: Gets,
    handlers: handlers::Handlers,
    purposes: BTreeMap<Ticket, Purpose>,
    outputs: VecDeque<Output<Event>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Learning(Ticket),
    Registering(Ticket, Release),
    Announcing(Ticket, Release),
    Held,
    Ready,
    Ended,
}

/// State of the debugger's release event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    Awaited,
    Come,
}

#[derive(Debug)]
struct Put {
    number: u64,
    scope: Scope,
    value: Value,
}

/// Purpose of a request that its answer does not reveal.
#[derive(Debug)]
enum Purpose {
    Commit(BTreeMap<u64, Key>),
    Connect,
    Register(HandlerId),
    /// A request of this module itself, whose answer the program does not get.
    Nothing,
}

impl Program {
    /// Creates a program that is not connected yet.
    #[must_use]
    pub fn new(now: Time, config: Config) -> Self {
        Self::over(now, Client::new(now, config))
    }

    /// Takes a connection that a launcher has opened, as [`Client::accept`] does. The phases Learning to Held are left out.
    #[must_use]
    pub fn accept(now: Time, terms: Terms) -> Self {
        let mut program = Self::over(now, Client::accept(now, terms));
        program.is_acceptor = true;
        program
    }

    fn over(now: Time, client: Client) -> Self {
        let server = client.config().server.server().clone();
        let mut program = Self {
            client,
            is_acceptor: false,
            phase: Phase::Connecting,
            now,
            me: None,
            server,
            jobs: BTreeMap::new(),
            own: BTreeMap::new(),
            puts: 0,
            uncommitted: BTreeMap::new(),
            gets: Gets::default(),
            handlers: handlers::Handlers::default(),
            purposes: BTreeMap::new(),
            outputs: VecDeque::new(),
        };
        program.pump();
        program
    }

    /// Returns the configuration of the connection.
    #[must_use]
    pub const fn config(&self) -> &Config {
        self.client.config()
    }

    /// Returns the name of the program; `None` until the server has accepted it.
    #[must_use]
    pub const fn me(&self) -> Option<&Proc> {
        self.me.as_ref()
    }

    /// Returns the name of the server: the one in the configuration until the server has said its own.
    #[must_use]
    pub const fn server(&self) -> &Proc {
        &self.server
    }

    /// Returns the cached job info of the program's own job; `None` until the server has accepted the program.
    #[must_use]
    pub fn job(&self) -> Option<&JobFacts> {
        self.job_named(&self.me.as_ref()?.nspace)
    }

    /// Returns the cached job info of a job; `None` if nothing about the job was received.
    #[must_use]
    pub fn job_named(&self, nspace: &Nspace) -> Option<&JobFacts> {
        self.jobs.get(nspace)
    }

    /// Processes one input and queues the outputs it causes.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        self.now = now;
        self.client.handle(now, input);
        // If the connection has ended, all gets fail with `UNREACH`, before any of them can expire.
        self.pump();
        if input == Input::Tick {
            while let Some((proc, outcome)) = self.gets.expired(now) {
                self.proceed(&proc, outcome);
                // A request that fails immediately belongs to the next get, which may also expire now.
                self.pump();
            }
        }
    }

    /// Returns the next output, `None` if there is none before the next input.
    pub fn poll(&mut self) -> Option<Output<Event>> {
        self.outputs.pop_front()
    }

    /// Returns the time at which to call [`Self::handle`] with [`Input::Tick`]; `None` if nothing is timed.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let times = [self.client.deadline(), self.gets.deadline()];
        times.into_iter().flatten().min()
    }

    /// Processes all outputs of the connection.
    fn pump(&mut self) {
        while let Some(output) = self.client.poll() {
            match output {
                Output::Connect(address) => self.outputs.push_back(Output::Connect(address)),
                Output::Send(bytes) => self.outputs.push_back(Output::Send(bytes)),
                Output::Close => self.outputs.push_back(Output::Close),
                Output::Event(event) => self.news(event),
            }
        }
    }

    fn news(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Ready { me, server } => {
                self.server = server;
                let view = Viewpoint {
                    rank: Some(me.rank),
                    hostname: self.config().hostname.clone(),
                };
                let facts = JobFacts::new(me.nspace.clone(), view);
                self.jobs.insert(me.nspace.clone(), facts);
                self.me = Some(me);
                if self.is_acceptor {
                    return self.ready();
                }
                let ticket = self.client.request(&Request::JobInfo);
                self.client.limit(ticket, self.now + FACTS_WAIT);
                self.phase = Phase::Learning(ticket);
            }
            ClientEvent::Answer { ticket, answer } => self.answer(ticket, answer),
            ClientEvent::Push(push) => self.push(push),
            ClientEvent::Ignored { why, .. } => self.event(Event::Ignored { why }),
            ClientEvent::Finalized => self.end(Event::Finalized),
            ClientEvent::Lost { why } => self.end(Event::Lost { why }),
        }
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        match self.phase {
            Phase::Learning(asked) if asked == ticket => self.learn(answer),
            Phase::Registering(asked, release) if asked == ticket => {
                if self.succeeded(&answer) {
                    let ready = Request::Notify {
                        status: Status::READY_FOR_DEBUG,
                        range: Range::RM,
                        infos: infos([
                            (keys::EVENT_NON_DEFAULT, Value::Bool(true)),
                            (keys::BREAKPOINT, Value::text("pmix-init")),
                            (keys::EVENT_DO_NOT_CACHE, Value::Bool(true)),
                        ]),
                    };
                    let ticket = self.client.request(&ready);
                    self.phase = Phase::Announcing(ticket, release);
                }
            }
            Phase::Announcing(asked, release) if asked == ticket => {
                if self.succeeded(&answer) {
                    match release {
                        Release::Come => self.released(),
                        Release::Awaited => {
                            self.phase = Phase::Held;
                            self.event(Event::Held);
                        }
                    }
                }
            }
            _ => match self.gets.whose(ticket) {
                Some(proc) => self.got(&proc, ticket, answer),
                None => self.done(ticket, answer),
            },
        }
    }

    /// Returns true if a step of the init succeeded. Otherwise ends the connection, because the init has failed.
    fn succeeded(&mut self, answer: &Answer) -> bool {
        let status = answer.status();
        if status != Status::SUCCESS {
            self.client.lose(Lost::NotStarted(status));
        }
        status == Status::SUCCESS
    }

    fn learn(&mut self, answer: Answer) {
        let Some(me) = self.me.clone() else {
            return;
        };
        let (nspace, facts) = match answer {
            Answer::JobInfo { nspace, facts } => (nspace, facts),
            other => return self.client.lose(Lost::NotStarted(other.status())),
        };
        if nspace != me.nspace {
            let why = Error::PeerMisbehaved {
                expected: "the facts of the program's own job",
                got: "the facts of another job",
            };
            return self.client.lose(Lost::Broken(why));
        }
        let format = self.config().format();
        if let Some(job) = self.jobs.get_mut(&nspace)
            && let Err(why) = job.add_job(format, facts)
        {
            return self.client.lose(Lost::Broken(why));
        }
        match self.is_to_stop(&me) {
            Ok(true) => {
                let ticket = self.client.request(&Request::Register {
                    codes: vec![Status::DEBUGGER_RELEASE],
                    infos: Vec::new(),
                });
                self.phase = Phase::Registering(ticket, Release::Awaited);
            }
            Ok(false) => self.ready(),
            Err(status) => self.client.lose(Lost::NotStarted(status)),
        }
    }

    /// Returns true if a debugger wants to hold this process in its init. A rank in the directive selects one process, a flag
    /// selects all; any other value is an error, as in libpmix 6, because it may be meant for others. Tools are never held.
    fn is_to_stop(&self, me: &Proc) -> Result<bool, Status> {
        let wish = self.jobs.get(&me.nspace);
        let wish = wish.and_then(|job| job.find(PmixRank::WILDCARD, keys::STOP_IN_INIT));
        match (&self.config().connector, wish) {
            (Connector::Client(_), Some(Value::Rank(rank))) => {
                Ok(*rank == me.rank || *rank == PmixRank::WILDCARD)
            }
            (Connector::Client(_), Some(value @ (Value::Bool(_) | Value::Undef))) => {
                Ok(value.is_set())
            }
            (Connector::Client(_), Some(_)) => Err(Status::BAD_PARAM),
            _ => Ok(false),
        }
    }

    fn released(&mut self) {
        self.phase = Phase::Ready;
        let codes = vec![Status::DEBUGGER_RELEASE];
        let ticket = self.client.request(&Request::Deregister { codes });
        self.purposes.insert(ticket, Purpose::Nothing);
        self.ready();
    }

    fn ready(&mut self) {
        self.phase = Phase::Ready;
        if let Some(me) = self.me.clone() {
            let server = self.server.clone();
            self.event(Event::Ready { me, server });
        }
    }

    fn push(&mut self, push: Push) {
        match push {
            Push::Event {
                status,
                source,
                infos,
                range,
            } => {
                if status == Status::DEBUGGER_RELEASE {
                    match &mut self.phase {
                        Phase::Held => return self.released(),
                        Phase::Registering(_, release) | Phase::Announcing(_, release) => {
                            *release = Release::Come;
                            return;
                        }
                        _ => {}
                    }
                }
                let notice = Notice {
                    status,
                    source,
                    infos,
                    range,
                };
                let handlers = self.handlers.matching(&notice);
                if !handlers.is_empty() {
                    self.event(Event::Notice { handlers, notice });
                }
            }
            Push::Output {
                source,
                channels,
                id,
                infos,
                bytes,
            } => self.event(Event::Stdio(Stdio {
                source,
                channels,
                id,
                infos,
                bytes,
            })),
        }
    }

    /// Reports the results of gets, and sends the next request if there is one.
    fn proceed(&mut self, proc: &Proc, outcome: Outcome) {
        for (ticket, result) in outcome.done {
            let result = result.map(Done::Value);
            self.event(Event::Done { ticket, result });
        }
        if let Some(request) = outcome.forget {
            self.client.forget(request);
        }
        if let Some(request) = outcome.ask {
            let ticket = self.client.request(&request);
            self.gets.asked(proc, ticket);
        }
    }

    fn end(&mut self, last: Event) {
        self.phase = Phase::Ended;
        for ticket in self.gets.clear() {
            let result = Err(Status::UNREACH);
            self.event(Event::Done { ticket, result });
        }
        self.purposes.clear();
        self.event(last);
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }
}
