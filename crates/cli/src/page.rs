//! `rally page`: a server for one page about a machine, on the loopback interface (`docs/decisions/0041-page.md`).
//!
//! This file is the host: it owns the sockets and the threads. [`request`] decides what a request gets, [`visitor`] is the state of one
//! connection, [`view`] asks the machine, and [`reports`] has hang reports made. [`response`] turns answers into bytes.
//!
//! The server lives until a signal, or the end of the machine: then it answers for [`FAREWELL`] that the machine has ended, so that the
//! browsers know.

mod access;
mod messages;
mod reports;
mod request;
mod response;
mod view;
mod visitor;

use std::{
    collections::BTreeMap,
    net::{Shutdown, TcpStream},
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use base::{Signal, Time};
use os::{
    AcceptOutcome, ChildEvent, Clock, Event, Interest, Loop, ReadOutcome, SocketOwners, Token,
    Worker, WriteOutcome,
};
use runtime::{FoundMachine, ask::AskError};
use serde::Serialize;

pub(crate) use self::messages::KINDS;
use self::{
    access::{Access, Secret},
    reports::Reports,
    request::{Head, Peer, Refusal, Wanted, judge},
    response::Response,
    view::{Answer, Question, View},
    visitor::Visitor,
};
use crate::{
    args::{MessageFormat, World, request::machine::Which},
    exit::{self, ExitCode},
    machine::{self, Connection, Failure, lines, select},
    print, say,
};

/// Connections of browsers at the same time. Further ones wait in the backlog of the socket.
const VISITORS_MAX: usize = 64;
/// Connections of other users at the same time, which only hear that they are refused. Further ones are closed.
const STRANGERS_MAX: usize = 8;
/// Questions that the worker has not answered. It may be blocked by a file server that is gone; further ones are refused.
const QUESTIONS_MAX: usize = 128;
/// Size of a read from a connection, in bytes.
const READ_SIZE: usize = 16 << 10;
/// Pause after a connection for which there is no descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long browsers can still ask after the machine has ended. The page asks each second.
const FAREWELL: Duration = Duration::from_secs(3);
/// Signals that end the page.
const ENDING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// Serves the page of a machine until the end, and returns the exit code.
pub(crate) fn serve(which: &Which, port: Option<u16>, world: &World) -> u8 {
    let served = Server::open(which, port, world).and_then(|mut server| {
        let code = server.announce(which.format, &world.host);
        if code != exit::SUCCESS {
            return Ok(code);
        }
        let end = server.run().map_err(resources)?;
        server.reports.stop();
        match end {
            End::Signal(signal) => Ok(exit::signal(signal)),
            End::Machine if machine::ended_as_told(&server.machine) => {
                say(&messages::over(&server.machine.name), which.format);
                Ok(exit::SUCCESS)
            }
            End::Machine => Err(machine::lost(&server.machine.name, &AskError::Closed)),
        }
    });
    served.unwrap_or_else(|(message, code)| {
        say(&message, which.format);
        code.code()
    })
}

fn resources(error: os::Error) -> Failure {
    (crate::messages::system(&error), ExitCode::Resources)
}

/// The link in JSON.
#[derive(Serialize)]
struct Link<'a> {
    url: &'a str,
    port: u16,
    machine: &'a str,
}

/// Why the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Signal(Signal),
    Machine,
}

/// How the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Runs,
    /// It has ended, and the server ends at this time.
    Ended(Time),
}

/// A question of a visitor.
struct Order {
    visitor: Token,
    question: Question,
}

#[derive(Debug)]
struct Server {
    events: Loop,
    listener: Token,
    /// When to accept again. `None`: now.
    accept_after: Option<Time>,
    owners: SocketOwners,
    own: u32,
    port: u16,
    access: Access,
    visitors: BTreeMap<Token, Visitor>,
    worker: Worker<Order, (Token, Answer)>,
    /// Number of questions that it has not answered.
    open_questions: usize,
    /// Readable when the worker has answers.
    answered: Token,
    /// A connection to the machine, over which nothing is asked. It is closed when the machine ends.
    lifeline: Option<Token>,
    life: Life,
    machine: FoundMachine,
    reports: Reports,
}

impl Server {
    fn open(which: &Which, port: Option<u16>, world: &World) -> Result<Self, Failure> {
        let found = select(world, which.machine.as_deref())?;
        let mut lifeline = Connection::to(&found)?;
        // The machine closes connections over which nothing was asked.
        lifeline.nodes()?;
        let (socket, port) = os::listen_loopback_on(port.unwrap_or(0))
            .map_err(|error| messages::no_port(port, &error))?;
        Self::over(found, lifeline.into_inquirer().into_link().1, socket, port).map_err(resources)
    }

    fn over(
        machine: FoundMachine,
        lifeline: OwnedFd,
        socket: OwnedFd,
        port: u16,
    ) -> Result<Self, os::Error> {
        // `nohup rally page` goes on without its terminal.
        let ending = ENDING.into_iter().filter(|signal| !os::is_ignored(*signal));
        let mut events = Loop::new(&ending.collect::<Vec<_>>())?;
        let mut view = View::new(machine.clone());
        let (worker, answered) = Worker::start("page", move |order: Order| {
            (order.visitor, view.answer(&order.question))
        })?;
        os::set_nonblocking(lifeline.as_fd())?;
        Ok(Self {
            listener: events.add(socket, Interest::Read)?,
            accept_after: None,
            owners: SocketOwners::new()?,
            own: os::effective_uid(),
            port,
            access: Access::new(Secret::random()?, Secret::random()?, port),
            visitors: BTreeMap::new(),
            worker,
            open_questions: 0,
            answered: events.add(answered, Interest::Read)?,
            lifeline: Some(events.add(lifeline, Interest::Read)?),
            life: Life::Runs,
            machine,
            reports: Reports::default(),
            events,
        })
    }

    /// Prints the link.
    fn announce(&self, format: MessageFormat, host: &str) -> u8 {
        let url = self.access.link();
        let text = match format {
            MessageFormat::Text => format!("{url}\n"),
            MessageFormat::Json => lines([Link {
                url: &url,
                port: self.port,
                machine: &self.machine.name,
            }]),
        };
        let code = print(&text, format);
        if code == exit::SUCCESS && format == MessageFormat::Text {
            say(&messages::open(&self.machine.name, self.port, host), format);
        }
        code
    }

    fn run(&mut self) -> Result<End, os::Error> {
        let mut events = Vec::new();
        loop {
            self.events.wait(self.deadline(), &mut events)?;
            let now = Clock::now();
            for event in &events {
                match *event {
                    Event::Signal(info) if info.signal == Signal::CHLD => self.reap(),
                    Event::Signal(info) => return Ok(End::Signal(info.signal)),
                    Event::Readable(token) => self.readable(now, token),
                    Event::Writable(token) => self.write(now, token),
                    Event::Deadline => {}
                }
            }
            self.tick(now)?;
            if matches!(self.life, Life::Ended(until) if until <= now) {
                return Ok(End::Machine);
            }
        }
    }

    fn deadline(&self) -> Option<Time> {
        let farewell = match self.life {
            Life::Ended(until) => Some(until),
            Life::Runs => None,
        };
        let visitors = self.visitors.values().map(Visitor::deadline).min();
        [
            farewell,
            visitors,
            self.accept_after,
            self.reports.deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn readable(&mut self, now: Time, token: Token) {
        if token == self.listener {
            self.accept(now);
        } else if token == self.answered {
            for (visitor, answer) in self.worker.answers() {
                self.open_questions -= 1;
                self.answer(now, visitor, answer);
            }
        } else if self.lifeline == Some(token) {
            self.feel(now, token);
        } else if !self.reports.readable(token, &mut self.events) {
            self.read(now, token);
        }
    }

    /// Accepts what has connected, at most [`VISITORS_MAX`] at a time: others may connect without end, and signals come through the same
    /// loop.
    fn accept(&mut self, now: Time) {
        for _ in 0..VISITORS_MAX {
            if self.visitors.len() >= VISITORS_MAX {
                return;
            }
            let Some(listener) = self.events.fd(self.listener) else {
                return;
            };
            let accepted = match os::accept(listener, &mut self.owners) {
                Ok(AcceptOutcome::Connection(accepted)) => accepted,
                Ok(AcceptOutcome::WouldBlock) => return,
                Ok(AcceptOutcome::Exhausted(_)) | Err(_) => {
                    self.accept_after = Some(now + ACCEPT_PAUSE);
                    return;
                }
            };
            let peer = Peer::of(accepted.peer, self.own);
            let strangers = self.visitors.values();
            let strangers = strangers.filter(|visitor| visitor.peer != Peer::Own);
            if peer != Peer::Own && strangers.count() >= STRANGERS_MAX {
                continue;
            }
            if let Ok(token) = self.events.add(accepted.fd, Interest::Read) {
                self.visitors.insert(token, Visitor::new(now, peer));
            }
        }
    }

    fn read(&mut self, now: Time, token: Token) {
        let (Some(visitor), Some(fd)) = (self.visitors.get_mut(&token), self.events.fd(token))
        else {
            return;
        };
        let mut buffer = [0; READ_SIZE];
        let head = match os::read(fd, &mut buffer) {
            Ok(ReadOutcome::Bytes(count)) => visitor.read(now, &buffer[..count]),
            Ok(ReadOutcome::WouldBlock) => None,
            Ok(ReadOutcome::Closed) | Err(_) => {
                visitor.lost();
                None
            }
        };
        if let Some(head) = head {
            self.serve_request(now, token, &head);
        }
        self.write(now, token);
    }

    fn serve_request(&mut self, now: Time, token: Token, head: &Head) {
        let Some(visitor) = self.visitors.get_mut(&token) else {
            return;
        };
        let wanted = judge(head, &visitor.peer, self.port, &mut self.access);
        let question = match wanted {
            Err(refusal) => Err(Response::refused(&refusal)),
            Ok(Wanted::Enter) => Err(Response::enter(self.access.cookie())),
            Ok(Wanted::Asset(asset)) => Err(Response::asset(asset)),
            Ok(Wanted::Report(id)) => Err(match self.reports.html(id) {
                Some(html) => Response::report(html.to_vec()),
                None => Response::refused(&Refusal::NotFound),
            }),
            Ok(_) if self.life != Life::Runs => Err(Response::gone()),
            Ok(Wanted::State) => Ok(Question::State),
            Ok(Wanted::Job(view)) => {
                let reports = self.reports.of(view.job);
                Ok(Question::Job(view, reports))
            }
            Ok(Wanted::MakeReport(task)) => Ok(Question::Run(task)),
        };
        match question {
            Ok(_) if self.open_questions >= QUESTIONS_MAX => {
                visitor.answer(now, &Response::unavailable("the machine does not answer"));
            }
            Ok(question) => {
                self.open_questions += 1;
                self.worker.order(Order {
                    visitor: token,
                    question,
                });
            }
            Err(response) => visitor.answer(now, &response),
        }
    }

    fn answer(&mut self, now: Time, token: Token, answer: Answer) {
        let response = match answer {
            Answer::Response(response) => response,
            Answer::Run(task, run) => match self.reports.begin(task, &run, &mut self.events) {
                Ok(()) => Response::accepted(),
                Err(why) => Response::conflict(&why.to_string()),
            },
            Answer::MachineEnded => {
                self.machine_ended(now);
                Response::gone()
            }
        };
        // The visitor may be gone.
        if let Some(visitor) = self.visitors.get_mut(&token) {
            visitor.answer(now, &response);
            self.write(now, token);
        }
    }

    /// Sends what there is, as far as there is room.
    fn write(&mut self, now: Time, token: Token) {
        let (Some(visitor), Some(fd)) = (self.visitors.get_mut(&token), self.events.fd(token))
        else {
            return;
        };
        while !visitor.outgoing().is_empty() {
            match os::write(fd, visitor.outgoing()) {
                Ok(WriteOutcome::Bytes(count)) => {
                    if visitor.sent(now, count)
                        && let Ok(copy) = fd.try_clone_to_owned()
                    {
                        // An error means that the browser has closed the connection.
                        let _ = TcpStream::from(copy).shutdown(Shutdown::Write);
                    }
                }
                Ok(WriteOutcome::WouldBlock) => break,
                Ok(WriteOutcome::Closed) | Err(_) => visitor.lost(),
            }
        }
    }

    /// Notices the end of the machine. What it sends is of no interest.
    fn feel(&mut self, now: Time, token: Token) {
        let mut buffer = [0; READ_SIZE];
        let read = self.events.fd(token).map(|fd| os::read(fd, &mut buffer));
        match read {
            Some(Ok(ReadOutcome::Bytes(_) | ReadOutcome::WouldBlock)) => {}
            Some(Ok(ReadOutcome::Closed) | Err(_)) | None => self.machine_ended(now),
        }
    }

    fn machine_ended(&mut self, now: Time) {
        if let Some(lifeline) = self.lifeline.take() {
            drop(self.events.remove(lifeline));
        }
        if self.life == Life::Runs {
            self.life = Life::Ended(now + FAREWELL);
        }
    }

    fn reap(&mut self) {
        while let Some(event) = os::reap() {
            if let ChildEvent::Exited { pid, status, .. } = event {
                self.reports.exited(pid, status);
            }
        }
    }

    /// Handles deadlines, removes visitors that are gone, and sets what is waited for.
    fn tick(&mut self, now: Time) -> Result<(), os::Error> {
        self.reports.tick(now);
        if self.accept_after.is_some_and(|after| after <= now) {
            self.accept_after = None;
        }
        let due: Vec<Token> = self
            .visitors
            .iter()
            .filter(|(_, visitor)| visitor.deadline() <= now)
            .map(|(token, _)| *token)
            .collect();
        for token in due {
            if let Some(visitor) = self.visitors.get_mut(&token) {
                visitor.tick(now);
            }
            self.write(now, token);
        }
        let gone: Vec<Token> = self
            .visitors
            .iter()
            .filter(|(_, visitor)| visitor.is_gone())
            .map(|(token, _)| *token)
            .collect();
        for token in gone {
            self.visitors.remove(&token);
            drop(self.events.remove(token));
        }
        for (token, visitor) in &self.visitors {
            self.events.set_interest(*token, visitor.interest())?;
        }
        let has_room = self.visitors.len() < VISITORS_MAX && self.accept_after.is_none();
        let interest = if has_room {
            Interest::Read
        } else {
            Interest::None
        };
        self.events.set_interest(self.listener, interest)
    }
}
