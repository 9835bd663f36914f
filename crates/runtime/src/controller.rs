//! The host of a controller: its front's end of the link, and the socket at which other processes ask.
//!
//! What the controller says to daemons it gives to whoever drives it ([`Step::Say`]): how that reaches them is not its
//! business.

use std::{os::fd::OwnedFd, path::PathBuf};

use base::{NodeId, Time};
use dvm::{
    Controller, ControllerInput, ControllerOutput,
    proto::{Missing, Note, ToController, ToDaemon, ToFront},
    spec::HoldAt,
};
use os::{Interest, Pid, Token};

use crate::{
    complaints::Complaints,
    control::Control,
    link::{ControllerLink, LinkError, Received},
    reactor::{Reactor, Source},
};

/// What one step of a controller came to.
#[derive(Debug)]
pub(crate) enum Step {
    /// There is nothing to do.
    Idle,
    Done,
    Say(NodeId, ToDaemon),
}

/// What came of writing to the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    Well,
    /// The link cannot go on: the controller has something to do.
    FrontLost,
}

/// What a host of a controller is told when it is made.
#[derive(Debug)]
pub(crate) struct ControllerSetup {
    pub(crate) front_pid: Pid,
    /// Where the socket for other processes goes; without it there is none.
    pub(crate) session: Option<PathBuf>,
    /// Says what the front cannot be told.
    pub(crate) admit: fn(&str),
    /// What the job does without, as is known already.
    pub(crate) complaints: Complaints,
}

/// A controller, and what it has of the kernel.
pub(crate) struct ControllerHost {
    controller: Controller,
    link: ControllerLink,
    front: Option<Token>,
    front_writes: Interest,
    control: Control,
    setup: ControllerSetup,
    finished: bool,
}

impl ControllerHost {
    /// Takes over the socket of the link, on which the opening was read.
    pub(crate) fn open(
        controller: Controller,
        link: ControllerLink,
        socket: Option<OwnedFd>,
        setup: ControllerSetup,
        reactor: &mut Reactor,
    ) -> Result<Self, os::Error> {
        let front = match socket {
            Some(socket) => Some(reactor.add(socket, Interest::Read, Source::Front)?),
            None => None,
        };
        Ok(Self {
            controller,
            link,
            front,
            front_writes: Interest::Read,
            control: Control::default(),
            setup,
            finished: false,
        })
    }

    /// The job is over, and the front has all that it is to be told.
    pub(crate) fn is_over(&self) -> bool {
        self.finished && (self.front.is_none() || !self.link.link.has_outgoing())
    }

    /// When [`Self::on_tick`] is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let deadlines = [self.controller.deadline(), self.control.deadline()];
        deadlines.into_iter().flatten().min()
    }

    pub(crate) fn on_tick(&mut self, now: Time, reactor: &mut Reactor) {
        self.controller.handle(now, ControllerInput::Tick);
        self.control.on_tick(now, reactor);
    }

    pub(crate) fn on_daemon(&mut self, now: Time, node: NodeId, message: ToController) {
        let input = ControllerInput::Daemon(node, message);
        self.controller.handle(now, input);
    }

    pub(crate) fn on_front_readable(&mut self, now: Time, token: Token, reactor: &mut Reactor) {
        let Some(fd) = reactor.fd(token) else {
            return;
        };
        let received = self.link.link.receive(fd);
        self.take_messages(now, reactor);
        match received {
            Ok(Received::Open) => {}
            Ok(Received::Closed) => self.lose_front(now, reactor),
            Err(error) => {
                (self.setup.admit)(&broken_link(&error));
                self.lose_front(now, reactor);
            }
        }
    }

    /// Takes what the front has said and was read already, as with the opening.
    pub(crate) fn take_messages(&mut self, now: Time, reactor: &mut Reactor) {
        while self.front.is_some() {
            match self.link.next_message() {
                Ok(Some(message)) => {
                    self.controller.handle(now, ControllerInput::Front(message));
                }
                Ok(None) => return,
                Err(error) => {
                    (self.setup.admit)(&broken_link(&error));
                    self.lose_front(now, reactor);
                }
            }
        }
    }

    fn lose_front(&mut self, now: Time, reactor: &mut Reactor) {
        if let Some(token) = self.front.take() {
            reactor.close(token);
            self.controller.handle(now, ControllerInput::FrontLost);
        }
    }

    pub(crate) fn on_control_readable(&mut self, now: Time, reactor: &mut Reactor) {
        self.control
            .accept(now, reactor, &mut self.setup.complaints);
    }

    pub(crate) fn on_peer_readable(&mut self, now: Time, ticket: u64, reactor: &mut Reactor) {
        self.control
            .read(now, ticket, reactor, &mut self.controller);
    }

    /// A descriptor may be free again.
    pub(crate) fn resume(&self, reactor: &mut Reactor) {
        self.control.resume(reactor);
    }

    /// Carries out the next thing that the controller asks for.
    pub(crate) fn step(&mut self, reactor: &mut Reactor) -> Step {
        let Some(output) = self.controller.poll() else {
            return Step::Idle;
        };
        match output {
            ControllerOutput::Front(message) => self.link.send(message),
            ControllerOutput::Daemon(node, message) => {
                self.open_control(&message, reactor);
                return Step::Say(node, message);
            }
            ControllerOutput::Answer { ticket, reply } => {
                self.control.answer(ticket, &reply, reactor);
            }
            ControllerOutput::Finished => self.finished = true,
            ControllerOutput::Log(what) => self.admit(&what),
        }
        Step::Done
    }

    /// A job whose ranks are held can be asked for.
    fn open_control(&mut self, message: &ToDaemon, reactor: &mut Reactor) {
        if let ToDaemon::Launch(launch) = message
            && launch.hold.at != HoldAt::Nowhere
        {
            self.control.open(
                self.setup.session.as_deref(),
                self.setup.front_pid.as_raw(),
                reactor,
                &mut self.setup.complaints,
            );
        }
    }

    /// Passes on what the job does without on a node.
    pub(crate) fn miss(&mut self, node: NodeId, missing: Vec<(Missing, String)>) {
        for (what, why) in missing {
            self.tell(ToFront::Note(Note::Missing { node, what, why }));
        }
    }

    /// Passes on what it does without itself. The controller lives on this node.
    pub(crate) fn complain(&mut self, node: NodeId) {
        let missing = self.setup.complaints.take();
        self.miss(node, missing);
    }

    /// Something that our own code rules out has happened.
    pub(crate) fn admit(&mut self, what: &str) {
        if self.front.is_some() {
            self.tell(ToFront::Internal(what.to_owned()));
        } else {
            (self.setup.admit)(what);
        }
    }

    /// The last words before this process ends, which the front waits for.
    pub(crate) fn fail(&mut self, now: Time, error: &os::Error, reactor: &mut Reactor) {
        self.tell(ToFront::Failed(error.to_string()));
        self.flush(now, reactor);
    }

    fn tell(&mut self, message: ToFront) {
        if self.front.is_some() {
            self.link.send(message);
        }
    }

    /// Writes to the front what there is room for.
    pub(crate) fn flush(&mut self, now: Time, reactor: &mut Reactor) -> Flushed {
        let Some(token) = self.front else {
            return Flushed::Well;
        };
        let Some(fd) = reactor.fd(token) else {
            return Flushed::Well;
        };
        match self.link.flush(fd) {
            Ok(Received::Open) => {
                let wanted = if self.link.link.has_outgoing() {
                    Interest::ReadWrite
                } else {
                    Interest::Read
                };
                if wanted != self.front_writes {
                    self.front_writes = wanted;
                    if let Err(error) = reactor.set_interest(token, wanted) {
                        (self.setup.admit)(&error.to_string());
                    }
                }
            }
            // Its end of file is read, and handled, next.
            Ok(Received::Closed) => {}
            Err(error) => {
                (self.setup.admit)(&broken_link(&error));
                self.lose_front(now, reactor);
                return Flushed::FrontLost;
            }
        }
        Flushed::Well
    }
}

pub(crate) fn broken_link(error: &LinkError) -> String {
    format!("the link to the front is broken: {error}")
}
