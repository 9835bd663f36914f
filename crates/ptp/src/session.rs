//! The proxy's side of a session: one client, from its first byte to its last.
//!
//! | state | INIT | MODEL_DEF, filters, SUSPEND, RESUME, attributes | START_EVENTS | STOP_EVENTS | SUBMIT_JOB, TERMINATE_JOB | QUIT | end of input, or bytes that are no packet |
//! |---|---|---|---|---|---|---|---|
//! | `Fresh` | OK → `Ready`; ERROR if it is wrong | ERROR | ERROR | ERROR | ERROR | SHUTDOWN → `Leaving` | → `Over` |
//! | `Ready` | ERROR | OK | the model → `Telling` | OK | asks the platform | SHUTDOWN → `Leaving` | → `Over` |
//! | `Telling` | ERROR | OK | ERROR | OK for both → `Ready` | asks the platform | SHUTDOWN → `Leaving` | → `Over` |
//! | `Leaving` | – | – | – | – | – | – | → `Over` |
//!
//! In `Leaving` the client has [`LEAVE`] to close the connection, because some lose the SHUTDOWN otherwise. Bytes that come then are
//! ignored.
//!
//! What the client is told waits in two queues. Answers to commands go first. Events about elements wait while the client has suspended
//! them, and are dropped when it stops them. Both have a bound, at which the session ends. Output has none here: the platform sends as much as the
//! session has given credit for.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use base::{Rank, RankSet, Time};

use crate::{
    Attribute, Bound, Charset, Command, Decoder, Dialect, Event, Filters, Framing, JobState, Level,
    Malformed, NoCommand, Packet, Procs, Submission,
    definitions::definitions,
    encode,
    model::{JobKey, Model, NodeFacts, ProcessFacts, RankState, UsedUp},
    packet::shown,
};

/// How long the client may take to close the connection after it has quit.
pub const LEAVE: Duration = Duration::from_secs(2);
/// Submissions and terminations that wait for the platform. The next one is refused.
pub const ASKED_MAX: usize = 1024;
/// Bytes of submissions that wait for the platform. The next one is refused.
pub const ASKED_BYTES_MAX: usize = 64 << 20;
/// Longest name that a client may give to a submission, in bytes.
pub const SUB_ID_MAX: usize = 256;
/// Longest text of a fault, in bytes. A longer one is cut.
pub const FAULT_MAX: usize = 2048;
/// Answers that wait for a client that does not read.
pub const ANSWERS_MAX: usize = 4096;
/// Events that wait for a client, without those with output. What becomes of consecutive processes is one event.
pub const NEWS_MAX: usize = 131_072;
/// Longest text of output in one event. A longer one is split.
pub const TEXT_MAX: usize = 16 << 10;

/// What a session is told at its beginning.
#[derive(Clone, Debug)]
pub struct Config {
    /// The words of the client; `None` for those that go with its framing, of which only the older one has two.
    pub dialect: Option<Dialect>,
    pub charset: Charset,
    pub machine: String,
    pub queue: String,
    pub nodes: Vec<NodeFacts>,
}

/// Identifies an order to the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Output stream of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Why the platform refuses a job, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub code: u32,
    pub text: String,
}

/// A job that the platform has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub key: JobKey,
    pub name: String,
    pub procs: u32,
}

/// What happens to the session.
#[derive(Debug)]
pub enum Input<'a> {
    /// The client has sent these bytes.
    Bytes(&'a [u8]),
    /// The client has closed the connection, or it broke.
    End,
    /// The time for which [`Session::deadline`] has asked.
    Tick,
    /// The answer to [`Output::Submit`].
    Submitted(Ticket, Result<Taken, Fault>),
    /// The answer to [`Output::Terminate`].
    Terminated(Ticket, Result<(), Fault>),
    /// The processes of a job have been started, by rank.
    Started(JobKey, Vec<ProcessFacts>),
    Job(JobKey, JobState),
    Ranks(JobKey, RankSet, RankState),
    Output {
        job: JobKey,
        rank: Rank,
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// A node, by its index, has gone down or come back, or is new.
    Node(u32, NodeFacts),
    /// A text for the user. A client that is not told of events does not get it.
    Message(Level, String),
}

/// What the host does for the session.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Starts a job. The host answers once.
    Submit(Ticket, Box<Submission>),
    /// Ends a job. The host answers once, when the job is being ended.
    Terminate(Ticket, JobKey),
    /// So many bytes of output of a job have been sent or dropped.
    Credit(JobKey, Rank, Stream, usize),
    /// Close the connection: the session is over.
    Close(Over),
}

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Over {
    #[error("the client has quit")]
    Quit,
    #[error("the client has closed the connection")]
    Closed,
    #[error("the client has closed the connection within a packet")]
    Cut,
    #[error("the client has sent what is no packet: {0}")]
    Malformed(Malformed),
    #[error("the numbers after the client's baseId are used up")]
    UsedUp,
    #[error("the client leaves too much unread, or has suspended events for too long")]
    Unread,
    #[error("an event is too long for the client: {0}")]
    TooLong(Bound),
}

/// Codes of errors, which are those of other proxies.
pub mod code {
    /// Of messages that report no error of a command.
    pub const NONE: u32 = 0;
    /// The session is not ready for a command.
    pub const INIT: u32 = 1200;
    /// A submission is refused.
    pub const SUBMIT: u32 = 1202;
    /// There is no such job, or it is over.
    pub const JOB: u32 = 1203;
    /// A command cannot be carried out.
    pub const COMMAND: u32 = 1207;
}

#[derive(Debug)]
enum State {
    Fresh,
    Ready(Model),
    /// With the transaction of START_EVENTS.
    Telling(Model, u32),
    Leaving {
        until: Time,
    },
    Over,
}

/// What the platform has been asked.
#[derive(Debug)]
struct Asked {
    transaction: u32,
    /// Bytes of the submission.
    length: usize,
    about: About,
}

#[derive(Debug)]
enum About {
    /// With the name that the client has given the submission.
    Submission(Vec<u8>),
    /// With the number of the job.
    Termination(u32),
}

/// Output in an event, for which the platform gets credit.
#[derive(Clone, Copy, Debug)]
struct Cost(JobKey, Rank, Stream, usize);

/// The session with a client.
#[derive(Debug)]
pub struct Session {
    config: Config,
    decoder: Decoder,
    state: State,
    asked: BTreeMap<Ticket, Asked>,
    next: u64,
    filters: Filters,
    is_suspended: bool,
    answers: VecDeque<(u32, Event)>,
    events: VecDeque<(Event, Option<Cost>)>,
    /// Events without output among them.
    news: usize,
    out: VecDeque<Output>,
}

impl Session {
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            decoder: Decoder::new(),
            state: State::Fresh,
            asked: BTreeMap::new(),
            next: 0,
            filters: Filters::default(),
            is_suspended: false,
            answers: VecDeque::new(),
            events: VecDeque::new(),
            news: 0,
            out: VecDeque::new(),
        }
    }

    /// Returns the time of the next [`Input::Tick`].
    #[must_use]
    pub const fn deadline(&self) -> Option<Time> {
        match self.state {
            State::Leaving { until } => Some(until),
            State::Fresh | State::Ready(_) | State::Telling(..) | State::Over => None,
        }
    }

    /// Returns what the host does next.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// Returns true if [`Self::poll`] has nothing to return.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.out.is_empty()
    }

    /// Returns the bytes that the client gets next. The host asks for them when it can write.
    pub fn packet(&mut self) -> Option<Vec<u8>> {
        let framing = self.decoder.framing()?;
        let (transaction, event) = match self.answers.pop_front() {
            Some(answer) => answer,
            None => {
                let State::Telling(_, start) = self.state else {
                    return None;
                };
                if self.is_suspended {
                    return None;
                }
                let (event, cost) = self.events.pop_front()?;
                self.news -= usize::from(cost.is_none());
                self.credit(cost);
                (start, event)
            }
        };
        let charset = match framing {
            // A line has an escape of its own.
            Framing::Lines => Charset::Bytes,
            Framing::Ascii | Framing::Binary => self.config.charset,
        };
        let packet = event.encode(transaction, self.dialect(framing), charset);
        match encode(&packet, framing) {
            Ok(bytes) => Some(bytes),
            Err(bound) => {
                self.end(Over::TooLong(bound));
                None
            }
        }
    }

    /// Takes an input.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Bytes(bytes) => self.on_bytes(now, bytes),
            Input::End => self.on_end(),
            Input::Tick => {
                if self.deadline().is_some_and(|until| until <= now) {
                    self.end(Over::Quit);
                }
            }
            Input::Submitted(ticket, result) => self.on_submitted(ticket, result),
            Input::Terminated(ticket, result) => self.on_terminated(ticket, result),
            Input::Started(job, processes) => self.tell(|model| Ok(model.start(job, processes))),
            Input::Job(job, state) => self.tell(|model| Ok(model.change_job(job, state))),
            Input::Ranks(job, ranks, state) => {
                self.tell(|model| Ok(Vec::from_iter(model.change_ranks(job, &ranks, &state))));
            }
            Input::Node(index, node) => {
                if let Some(known) = self.config.nodes.get_mut(index as usize) {
                    known.is_up = node.is_up;
                } else {
                    self.config.nodes.push(node.clone());
                }
                self.tell(|model| Ok(Vec::from_iter(model.change_node(index, node)?)));
            }
            Input::Message(level, text) => {
                if matches!(self.state, State::Telling(..)) {
                    let (code, text) = (code::NONE, text.into_bytes());
                    self.announce(vec![Event::Message { level, code, text }]);
                }
            }
            Input::Output {
                job,
                rank,
                stream,
                bytes,
            } => self.on_output(job, rank, stream, &bytes),
        }
    }

    fn dialect(&self, framing: Framing) -> Dialect {
        match framing {
            Framing::Ascii | Framing::Lines => self.config.dialect.unwrap_or(Dialect::V4),
            // No client of PTP 2 speaks it.
            Framing::Binary => Dialect::V4,
        }
    }

    fn end(&mut self, why: Over) {
        if matches!(self.state, State::Over) {
            return;
        }
        self.state = State::Over;
        self.answers.clear();
        self.drop_events();
        self.out.push_back(Output::Close(why));
    }

    fn on_end(&mut self) {
        let why = match self.state {
            State::Leaving { .. } => Over::Quit,
            _ if self.decoder.is_within_packet() => Over::Cut,
            _ => Over::Closed,
        };
        self.end(why);
    }

    fn on_bytes(&mut self, now: Time, bytes: &[u8]) {
        if matches!(self.state, State::Leaving { .. }) {
            return;
        }
        self.decoder.push(bytes);
        loop {
            if matches!(self.state, State::Over) {
                return;
            }
            match self.decoder.next_packet() {
                Ok(Some(packet)) => self.on_packet(now, &packet),
                Ok(None) => return,
                Err(malformed) => return self.end(Over::Malformed(malformed)),
            }
        }
    }

    fn answer(&mut self, transaction: u32, event: Event) {
        // After its SHUTDOWN the client waits for nothing.
        if matches!(self.state, State::Leaving { .. } | State::Over) {
            return;
        }
        match self.answers.len() {
            ANSWERS_MAX.. => self.end(Over::Unread),
            _ => self.answers.push_back((transaction, event)),
        }
    }

    /// Returns the number of events that wait for the client.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.events.len()
    }

    /// Queues events about elements.
    fn announce(&mut self, events: Vec<Event>) {
        for event in events {
            if let Some((last, None)) = self.events.back_mut()
                && last.join(&event)
            {
                continue;
            }
            if self.news >= NEWS_MAX {
                return self.end(Over::Unread);
            }
            self.events.push_back((event, None));
            self.news += 1;
        }
    }

    fn refuse(&mut self, transaction: u32, code: u32, text: impl Into<String>) {
        let text = text.into().into_bytes();
        self.answer(transaction, Event::Error { code, text });
    }

    fn on_packet(&mut self, now: Time, packet: &Packet) {
        let transaction = packet.transaction;
        let command = match Command::decode(packet) {
            Ok(command) => command,
            _ if matches!(self.state, State::Leaving { .. }) => return,
            Err(why @ (NoCommand::Unknown(_) | NoCommand::Mistake(_))) => {
                return self.refuse(transaction, code::COMMAND, why.to_string());
            }
            Err(why) => return self.refuse(transaction, code::INIT, why.to_string()),
        };
        match (&self.state, command) {
            (State::Leaving { .. } | State::Over, _) => {}
            (_, Command::Quit) => {
                self.drop_events();
                self.answer(transaction, Event::Shutdown);
                if !matches!(self.state, State::Over) {
                    self.state = State::Leaving { until: now + LEAVE };
                }
            }
            (State::Fresh, Command::Init { base_id }) => self.on_init(transaction, base_id),
            (State::Fresh, _) => self.refuse(transaction, code::INIT, "the first command is INIT"),
            (_, Command::Init { .. }) => {
                self.refuse(transaction, code::INIT, "the session has begun already");
            }
            (_, Command::StartEvents) => self.on_start(transaction),
            (_, Command::StopEvents) => self.on_stop(transaction),
            (_, Command::SubmitJob(submission)) => {
                let length = packet.args.iter().map(Vec::len).sum();
                self.on_submit(transaction, submission, length);
            }
            (_, Command::TerminateJob { job }) => self.on_terminate(transaction, job),
            (_, Command::ModelDef) => {
                for definition in
                    definitions(self.decoder.framing().map(|framing| self.dialect(framing)))
                {
                    self.answer(transaction, Event::Definition(definition));
                }
                self.answer(transaction, Event::Ok);
            }
            (_, Command::GetAttributes) => self.answer(transaction, Event::GotAttributes),
            (_, Command::QueryAttributes) => self.answer(transaction, Event::QueriedAttributes),
            (_, Command::FilterEvents) => self.answer(transaction, Event::Ok),
            (_, Command::SuspendEvents) => {
                self.is_suspended = true;
                self.answer(transaction, Event::Ok);
            }
            (_, Command::ResumeEvents) => {
                self.is_suspended = false;
                self.answer(transaction, Event::Ok);
            }
            (_, Command::SetFilters(filters)) => {
                self.filters.stdout |= filters.stdout;
                self.filters.stderr |= filters.stderr;
                self.answer(transaction, Event::Ok);
            }
            (_, Command::ClearFilters(filters)) => {
                self.filters.stdout &= !filters.stdout;
                self.filters.stderr &= !filters.stderr;
                self.answer(transaction, Event::Ok);
            }
        }
    }

    fn on_init(&mut self, transaction: u32, base_id: u32) {
        let dialect = self
            .decoder
            .framing()
            .map_or(Dialect::V4, |framing| self.dialect(framing));
        let Config {
            machine,
            queue,
            nodes,
            ..
        } = &self.config;
        match Model::new(dialect, base_id, machine, queue, nodes) {
            Ok(model) => {
                self.state = State::Ready(model);
                self.answer(transaction, Event::Ok);
            }
            Err(UsedUp) => self.refuse(transaction, code::INIT, Over::UsedUp.to_string()),
        }
    }

    fn on_start(&mut self, transaction: u32) {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Ready(model) => {
                let events = model.all();
                self.state = State::Telling(model, transaction);
                self.announce(events);
            }
            other => {
                self.state = other;
                self.refuse(transaction, code::COMMAND, "events are sent already");
            }
        }
    }

    fn on_stop(&mut self, transaction: u32) {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Telling(model, start) => {
                self.state = State::Ready(model);
                self.drop_events();
                self.answer(start, Event::Ok);
            }
            other => self.state = other,
        }
        self.answer(transaction, Event::Ok);
    }

    /// Asks the platform, unless it has been asked too much.
    fn ask(&mut self, asked: Asked) -> Option<Ticket> {
        let lengths = self.asked.values().map(|asked| asked.length);
        let bytes = lengths.sum::<usize>() + asked.length;
        if self.asked.len() >= ASKED_MAX || bytes > ASKED_BYTES_MAX {
            let text = "too many orders wait already: submit it again later".to_owned();
            let fault = Fault {
                code: code::COMMAND,
                text,
            };
            self.fail(asked, fault);
            return None;
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        self.asked.insert(ticket, asked);
        Some(ticket)
    }

    /// Tells the client that an order has failed.
    fn fail(&mut self, asked: Asked, fault: Fault) {
        let Fault { code, mut text } = fault;
        // It may repeat what the client has said.
        text.truncate(text.floor_char_boundary(FAULT_MAX));
        let text = text.into_bytes();
        let event = match asked.about {
            About::Submission(sub_id) => Event::SubmitError { sub_id, code, text },
            About::Termination(job) => Event::TerminateError { job, code, text },
        };
        self.answer(asked.transaction, event);
    }

    fn on_submit(&mut self, transaction: u32, submission: Box<Submission>, length: usize) {
        // Without it, the client cannot tell to which launch an error belongs.
        let Some(sub_id) = submission.sub_id.clone() else {
            return self.refuse(
                transaction,
                code::SUBMIT,
                "the submission has no `jobSubId`",
            );
        };
        if sub_id.len() > SUB_ID_MAX {
            let text = format!("the `jobSubId` has more than {SUB_ID_MAX} bytes");
            return self.refuse(transaction, code::SUBMIT, text);
        }
        let wrong = match (&submission.program.name, &submission.procs) {
            (None, _) => Some("the submission has no `execName`".to_owned()),
            (_, Procs::Invalid(text)) => Some(format!(
                "`jobNumProcs` is `{}`, and no number above 0",
                shown(text)
            )),
            _ if submission
                .debugger
                .as_ref()
                .is_some_and(|debugger| debugger.program.name.is_none()) =>
            {
                Some("the submission is to be debugged, and has no `debugExecName`".to_owned())
            }
            _ => None,
        };
        let asked = Asked {
            transaction,
            length,
            about: About::Submission(sub_id),
        };
        if let Some(text) = wrong {
            let fault = Fault {
                code: code::SUBMIT,
                text,
            };
            return self.fail(asked, fault);
        }
        if let Some(ticket) = self.ask(asked) {
            self.out.push_back(Output::Submit(ticket, submission));
        }
    }

    fn on_terminate(&mut self, transaction: u32, id: Option<u32>) {
        let (State::Ready(model) | State::Telling(model, _)) = &self.state else {
            return;
        };
        let key = id.and_then(|id| model.living(id));
        let asked = Asked {
            transaction,
            length: 0,
            about: About::Termination(id.unwrap_or(0)),
        };
        let Some(key) = key else {
            let text = match id {
                None => "the command has no `jobId` that is a number".to_owned(),
                Some(id) if model.knows(id) => format!("job {id} is over"),
                Some(id) => format!("there is no job {id}"),
            };
            let fault = Fault {
                code: code::JOB,
                text,
            };
            return self.fail(asked, fault);
        };
        let is_asked =
            |asked: &Asked| matches!(asked.about, About::Termination(other) if Some(other) == id);
        if self.asked.values().any(is_asked) {
            let fault = Fault {
                code: code::JOB,
                text: "the job is being ended already".to_owned(),
            };
            return self.fail(asked, fault);
        }
        if let Some(ticket) = self.ask(asked) {
            self.out.push_back(Output::Terminate(ticket, key));
        }
    }

    fn on_submitted(&mut self, ticket: Ticket, result: Result<Taken, Fault>) {
        let Some(asked) = self.asked.remove(&ticket) else {
            return;
        };
        let About::Submission(sub_id) = &asked.about else {
            unreachable!("{asked:?} is answered as a submission");
        };
        let taken = match result {
            Ok(taken) => taken,
            Err(fault) => return self.fail(asked, fault),
        };
        // The answer goes first: it is how the client knows the job that follows.
        let sub_id = sub_id.clone();
        self.answer(asked.transaction, Event::Ok);
        let Taken { key, name, procs } = taken;
        self.tell(|model| model.add_job(key, sub_id, name, procs));
    }

    fn on_terminated(&mut self, ticket: Ticket, result: Result<(), Fault>) {
        let Some(asked) = self.asked.remove(&ticket) else {
            return;
        };
        match result {
            Ok(()) => self.answer(asked.transaction, Event::Ok),
            Err(fault) => self.fail(asked, fault),
        }
    }

    /// Changes the model, and tells the client if it listens.
    fn tell(&mut self, change: impl FnOnce(&mut Model) -> Result<Vec<Event>, UsedUp>) {
        let is_told = matches!(self.state, State::Telling(..));
        let (State::Ready(model) | State::Telling(model, _)) = &mut self.state else {
            return;
        };
        match change(model) {
            Ok(events) if is_told => self.announce(events),
            Ok(_) => {}
            Err(UsedUp) => self.end(Over::UsedUp),
        }
    }

    fn on_output(&mut self, job: JobKey, rank: Rank, stream: Stream, bytes: &[u8]) {
        let (key, is_filtered) = match stream {
            Stream::Stdout => ("processStdout", self.filters.stdout),
            Stream::Stderr => ("processStderr", self.filters.stderr),
        };
        let framing = self.decoder.framing();
        // Clients of PTP 2 know one stream.
        let key = match framing.map(|framing| self.dialect(framing)) {
            Some(Dialect::V2) => "processStdout",
            Some(Dialect::V4) | None => key,
        };
        for bytes in bytes.chunks(TEXT_MAX) {
            let cost = Cost(job, rank, stream, bytes.len());
            let event = match &self.state {
                State::Telling(model, _) if !is_filtered => {
                    let output = model.output(job, rank, Attribute::new(key, bytes));
                    output.or_else(|| model.message_of(job, bytes))
                }
                _ => None,
            };
            match event {
                Some(event) => self.events.push_back((event, Some(cost))),
                None => self.credit(Some(cost)),
            }
        }
    }

    fn credit(&mut self, cost: Option<Cost>) {
        if let Some(Cost(job, rank, stream, bytes)) = cost {
            self.out.push_back(Output::Credit(job, rank, stream, bytes));
        }
    }

    fn drop_events(&mut self) {
        self.news = 0;
        for (_, cost) in std::mem::take(&mut self.events) {
            self.credit(cost);
        }
    }
}
