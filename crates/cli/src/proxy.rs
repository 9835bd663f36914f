//! `rally ptp-proxy`: what an Eclipse with PTP 2 to 6 starts, or connects to, as the proxy of a resource manager (`docs/ptp.md`).
//!
//! This file is the host of [`ptp::Session`]: it owns the sockets, and tells the session what the machine says. [`client`] is the connection to
//! the client, [`mod@check`] turns what it submits into the job of `rally run`, [`job`] is the front of such a job, [`nodes`] what the client knows
//! of the machine, [`own`] a machine that ends with the proxy, [`routes`] the file by which debuggers find each other, and [`attach`] a `dbgr` that attaches to a job.
//!
//! The proxy lives as long as its client, or until a signal or the end of the machine. Its jobs end with it, because the machine ends the
//! jobs of a front that is gone; with `--on-disconnect=continue` it stays until they are over.

mod attach;
mod check;
mod client;
mod job;
mod messages;
mod nodes;
mod own;
mod routes;

use std::{collections::BTreeMap, os::fd::AsFd as _, time::Duration};

use base::{Signal, Time};
use dvm::machine::{Ask, Reply};
use os::{ChildEvent, Clock, Event, Interest, Loop, Token};
use ptp::{
    Config, Dialect, Fault, Input, JobKey, Level, Output, Over, Session, Submission, Taken, Ticket,
    code,
};
use runtime::{
    FoundMachine,
    ask::{AskError, Inquirer},
};

pub(crate) use self::messages::KINDS;
use self::{
    attach::Attached,
    check::{Terms, check},
    client::{Client, Got, Lifeline, NoClient, meet},
    job::{Job, Life, Told},
    nodes::Nodes,
};
use crate::{
    args::{World, request::proxy::ProxyRequest},
    choices::OnLoss,
    exit::{self, ExitCode},
    machine::{self, Asker, Connection, Failure},
    say,
};

/// Jobs of a client at the same time. A further one is refused.
const JOBS_MAX: usize = 512;
/// The longest wait for the machine to take a connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the machine is asked about its nodes.
const NODES_EVERY: Duration = Duration::from_secs(2);
/// Events that wait for the client while what is printed by a `dbgr` is not read.
const ATTACHED_WAITING_MAX: usize = 256;
/// How long a client may take to read why the session ends.
const FAREWELL: Duration = Duration::from_secs(2);
/// Name of the machine's only queue.
const QUEUE: &str = "default";
/// Signals that end the proxy.
const ENDING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

fn resources(error: os::Error) -> Failure {
    (crate::messages::system(&error), ExitCode::Resources)
}

/// Why the proxy ends.
#[derive(Debug)]
enum End {
    Client(Over),
    Signal(Signal),
    Machine(Failure),
}

/// Serves a client, and returns the exit code.
pub(crate) fn run(request: &ProxyRequest, world: &World) -> u8 {
    let fail = |(message, code): Failure| {
        say(&message, request.which.format);
        code.code()
    };
    let served = Proxy::open(request, world)
        .and_then(|mut proxy| proxy.run().map_err(|error| resources(error).into()));
    match served {
        Ok(End::Client(why)) => code_of(&why),
        Ok(End::Signal(signal)) | Err(NoClient::Signal(signal)) => exit::signal(signal),
        Ok(End::Machine(failure)) | Err(NoClient::Failed(failure)) => fail(failure),
    }
}

fn code_of(why: &Over) -> u8 {
    match why {
        Over::Quit => ExitCode::Success,
        Over::Closed | Over::Cut | Over::Unread => ExitCode::OutputLost,
        Over::UsedUp => ExitCode::Resources,
        Over::Malformed(_) | Over::TooLong(_) => ExitCode::Internal,
    }
    .code()
}

#[derive(Debug)]
struct Proxy<'a> {
    request: &'a ProxyRequest,
    world: &'a World,
    machine: FoundMachine,
    events: Loop,
    /// `None` when it has gone.
    client: Option<Client>,
    session: Session,
    /// Why the session is over.
    over: Option<Over>,
    nodes: Nodes,
    /// Asks the machine about its nodes.
    asker: Asker,
    /// Readable when there are answers.
    answered: Token,
    /// Closed when the machine ends.
    lifeline: Token,
    /// When to ask again. `None`: an answer is awaited.
    asks: Option<Time>,
    jobs: BTreeMap<Token, Job>,
    /// The connections of jobs.
    links: BTreeMap<JobKey, Token>,
    /// What attaches to jobs, by the pipe to which it writes.
    attached: BTreeMap<Token, Attached>,
    /// The last number of a job.
    last: u64,
    lost: Option<Lost>,
}

/// The machine is gone.
#[derive(Debug)]
struct Lost {
    failure: Failure,
    /// How long the client may still read.
    until: Time,
    /// Whether the client has been told, after what becomes of its jobs.
    is_told: bool,
}

impl<'a> Proxy<'a> {
    fn open(request: &'a ProxyRequest, world: &'a World) -> Result<Self, NoClient> {
        let format = request.which.format;
        // From now on a signal waits: a machine of our own must know first with whom it ends.
        let ending = ENDING.into_iter().filter(|signal| !os::is_ignored(*signal));
        let mut events = Loop::new(&ending.collect::<Vec<_>>())?;
        let (machine, mut connection) = own::connect(request, world)?;
        let mut lifeline = Connection::to(&machine)?;
        // The machine closes connections over which nothing was asked.
        lifeline.nodes()?;
        let (_, socket) = lifeline.into_inquirer().into_link();
        os::set_nonblocking(socket.as_fd())?;
        let lifeline = Lifeline {
            token: events.add(socket, Interest::Read)?,
            machine: &machine.name,
        };
        let client = meet(&request.meeting, &mut events, lifeline, format)?;
        let lifeline = lifeline.token;
        // The client may have come late.
        let Reply::Nodes(lines) = connection.ask(Ask::Nodes)? else {
            return Err(machine::lost(&machine.name, &AskError::Closed).into());
        };
        let mut nodes = Nodes::default();
        // The session begins with all of them.
        drop(nodes.update(lines));
        let (asker, answered) = Asker::start(connection)?;
        let session = Session::new(Config {
            dialect: request.dialect,
            charset: request.charset,
            machine: machine.name.clone(),
            queue: QUEUE.to_owned(),
            nodes: nodes.facts().to_vec(),
        });
        Ok(Self {
            request,
            world,
            machine,
            answered: events.add(answered, Interest::Read)?,
            lifeline,
            events,
            client: Some(client),
            session,
            over: None,
            nodes,
            asker,
            asks: Some(Clock::now() + NODES_EVERY),
            jobs: BTreeMap::new(),
            links: BTreeMap::new(),
            attached: BTreeMap::new(),
            last: 0,
            lost: None,
        })
    }

    fn run(&mut self) -> Result<End, os::Error> {
        let mut events = Vec::new();
        loop {
            self.settle();
            self.tell_loss();
            if let Some(end) = self.end() {
                return Ok(end);
            }
            self.events.wait(self.deadline(), &mut events)?;
            for event in events.drain(..) {
                match event {
                    Event::Signal(info) if info.signal == Signal::CHLD => self.reap(),
                    // The terminal of a client that has gone may go, too.
                    Event::Signal(info) if info.signal == Signal::HUP && self.over.is_some() => {}
                    Event::Signal(info) => return Ok(End::Signal(info.signal)),
                    Event::Readable(token) => self.on_readable(token),
                    // `settle` writes.
                    Event::Writable(_) => {}
                    Event::Deadline => self.on_tick(Clock::now()),
                }
            }
        }
    }

    fn deadline(&self) -> Option<Time> {
        let farewell = self.lost.as_ref().map(|lost| lost.until);
        let deadlines = [self.session.deadline(), self.asks, farewell];
        deadlines.into_iter().flatten().min()
    }

    fn on_tick(&mut self, now: Time) {
        self.session.handle(now, Input::Tick);
        if self.asks.is_some_and(|at| at <= now) {
            self.asks = None;
            self.asker.ask(Ask::Nodes);
        }
    }

    /// Returns why the proxy ends now, if it does.
    fn end(&mut self) -> Option<End> {
        let has_read = self.client.as_ref().is_none_or(Client::is_idle);
        let lost = self
            .lost
            .take_if(|lost| lost.until <= Clock::now() || lost.is_told && has_read);
        if let Some(lost) = lost {
            return Some(End::Machine(lost.failure));
        }
        let stays = self.request.on_disconnect == OnLoss::Continue && !self.jobs.is_empty();
        self.over.take_if(|_| !stays).map(End::Client)
    }

    fn on_readable(&mut self, token: Token) {
        if token == self.answered {
            return self.on_answers();
        }
        if token == self.lifeline {
            drop(self.events.remove(token));
            let failure = machine::lost(&self.machine.name, &AskError::Closed);
            return self.lose(Clock::now(), failure);
        }
        if self.client.as_ref().is_some_and(|client| client.is(token)) {
            return self.read_client();
        }
        if self.attached.contains_key(&token) {
            return self.read_attached(token);
        }
        let Some(fd) = self.events.fd(token) else {
            return;
        };
        let Some(job) = self.jobs.get_mut(&token) else {
            return;
        };
        let mut told = Told::new();
        let life = job.receive(fd, &mut self.nodes, &mut told);
        let now = Clock::now();
        for input in told {
            self.session.handle(now, input);
        }
        if let Some(words) = self.jobs.get_mut(&token).and_then(Job::take_ready) {
            self.attach(token, words);
        }
        if life == Life::Over {
            self.drop_job(token);
        }
    }

    /// Starts a `dbgr` for a job.
    fn attach(&mut self, link: Token, words: Vec<String>) {
        let Some(job) = self.jobs.get(&link).map(|job| job.key) else {
            return;
        };
        match Attached::start(job, words, &mut self.events) {
            Ok((token, attached)) => {
                self.attached.insert(token, attached);
            }
            Err(why) => {
                let text = format!("cannot attach to the job: {why}");
                let input = Input::Message(Level::Error, text);
                self.session.handle(Clock::now(), input);
            }
        }
    }

    fn read_attached(&mut self, token: Token) {
        match Attached::read(&mut self.events, token) {
            Some(text) if text.is_empty() => {}
            Some(text) => {
                let message = Input::Message(Level::Info, text);
                self.session.handle(Clock::now(), message);
            }
            None => drop(self.attached.remove(&token)),
        }
    }

    fn reap(&mut self) {
        while let Some(event) = os::reap() {
            if let ChildEvent::Exited { pid, .. } = event {
                self.attached.values_mut().for_each(|it| it.exited(pid));
            }
        }
    }

    fn drop_job(&mut self, token: Token) {
        if let Some(job) = self.jobs.remove(&token) {
            self.links.remove(&job.key);
            let attached = self.attached.values_mut();
            attached
                .filter(|it| it.job == job.key)
                .for_each(Attached::end);
        }
        drop(self.events.remove(token));
    }

    fn on_answers(&mut self) {
        let now = Clock::now();
        for answer in self.asker.answers() {
            match answer {
                Ok(Ok(Reply::Nodes(lines))) => {
                    for news in self.nodes.update(lines) {
                        self.session.handle(now, news);
                    }
                    self.asks = Some(now + NODES_EVERY);
                }
                Ok(_) => self.asks = Some(now + NODES_EVERY),
                Err(failure) => self.lose(now, failure),
            }
        }
    }

    fn lose(&mut self, now: Time, failure: Failure) {
        self.lost.get_or_insert_with(|| Lost {
            failure,
            until: now + FAREWELL,
            is_told: false,
        });
    }

    /// Tells the client that the machine is gone. The connections of its jobs break too, which is told first.
    fn tell_loss(&mut self) {
        let Some(lost) = &mut self.lost else {
            return;
        };
        if lost.is_told || !self.jobs.is_empty() {
            return;
        }
        lost.is_told = true;
        let message = Input::Message(Level::Fatal, lost.failure.0.headline.clone());
        self.session.handle(Clock::now(), message);
        self.settle();
    }

    fn read_client(&mut self) {
        let now = Clock::now();
        let Some(client) = &mut self.client else {
            return;
        };
        let input = match client.read(&self.events) {
            Got::Bytes(bytes) => Input::Bytes(bytes),
            Got::Nothing => return,
            Got::End => Input::End,
            Got::Stranger(who) => {
                say(&messages::stranger(&who), self.request.which.format);
                self.over = Some(Over::Closed);
                return;
            }
        };
        self.session.handle(now, input);
    }

    /// Does what the session says, and writes what connections take.
    fn settle(&mut self) {
        loop {
            while let Some(output) = self.session.poll() {
                self.act(output);
            }
            let Some(client) = &mut self.client else {
                break;
            };
            let session = &mut self.session;
            if !client.write(&mut self.events, || session.packet()) {
                self.session.handle(Clock::now(), Input::End);
            } else if self.session.is_quiet() {
                break;
            }
        }
        self.flush_jobs();
        self.pace_attached();
    }

    /// Lets a `dbgr` wait while the client does not read.
    fn pace_attached(&mut self) {
        let wanted = if self.session.waiting() < ATTACHED_WAITING_MAX {
            Interest::Read
        } else {
            Interest::None
        };
        for token in self.attached.keys() {
            if self.events.interest(*token) != Some(wanted) {
                let _ = self.events.set_interest(*token, wanted);
            }
        }
    }

    fn flush_jobs(&mut self) {
        for (token, job) in &mut self.jobs {
            let Some(fd) = self.events.fd(*token) else {
                continue;
            };
            // A link that fails shows at the next read.
            let _ = job.flush(fd);
            let wanted = if job.has_outgoing() {
                Interest::ReadWrite
            } else {
                Interest::Read
            };
            if self.events.interest(*token) != Some(wanted) {
                let _ = self.events.set_interest(*token, wanted);
            }
        }
    }

    fn act(&mut self, output: Output) {
        let now = Clock::now();
        match output {
            Output::Submit(ticket, submission) => {
                if let Err(fault) = self.submit(ticket, &submission) {
                    let refused: Result<Taken, Fault> = Err(fault);
                    self.session.handle(now, Input::Submitted(ticket, refused));
                }
            }
            Output::Terminate(ticket, key) => {
                let job = self
                    .links
                    .get(&key)
                    .and_then(|token| self.jobs.get_mut(token));
                let result = match job {
                    Some(job) => job.terminate(),
                    None => Err(Fault {
                        code: code::JOB,
                        text: "the job is over".to_owned(),
                    }),
                };
                self.session.handle(now, Input::Terminated(ticket, result));
            }
            Output::Credit(key, rank, stream, bytes) => {
                let job = self
                    .links
                    .get(&key)
                    .and_then(|token| self.jobs.get_mut(token));
                if let Some(job) = job {
                    job.credit(rank, stream, bytes);
                }
            }
            Output::Close(why) => {
                let continues = self.request.on_disconnect == OnLoss::Continue;
                let message = messages::over(&why, self.jobs.len(), continues);
                say(&message, self.request.which.format);
                if let Some(client) = self.client.take() {
                    client.close(&mut self.events);
                }
                self.over = Some(why);
            }
        }
    }

    fn submit(&mut self, ticket: Ticket, submission: &Submission) -> Result<(), Fault> {
        let fault = |text: String| Fault {
            code: code::SUBMIT,
            text,
        };
        if self.jobs.len() >= JOBS_MAX {
            let text = format!("{JOBS_MAX} jobs of this client live already: wait for one to end");
            return Err(fault(text));
        }
        let terms = Terms {
            dialect: self.request.dialect.unwrap_or(Dialect::V4),
            debuggers: self.request.debuggers,
            app: self.last + 1,
        };
        let checked = check(submission, terms, self.world)?;
        // A debugged program has a number of its own, before that of the job of its debuggers.
        self.last += if checked.debugged.is_some() { 2 } else { 1 };
        let key = JobKey(self.last);
        let lost = |why: String| fault(format!("machine `{}`: {why}", self.machine.name));
        let (link, socket) = Inquirer::connect(&self.machine.control(), PATIENCE)
            .map_err(|error| lost(error.to_string()))?
            .into_link();
        let token = os::set_nonblocking(socket.as_fd())
            .and_then(|()| self.events.add(socket, Interest::Read))
            .map_err(|error| lost(error.to_string()))?;
        self.jobs
            .insert(token, Job::submit(key, ticket, link, checked));
        self.links.insert(key, token);
        Ok(())
    }
}
