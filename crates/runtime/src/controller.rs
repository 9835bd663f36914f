//! The host of a controller: the links to its fronts, and the socket at which other processes become fronts.
//!
//! What the controller says to daemons it gives to whoever drives it ([`Step::Say`]): how that reaches them is not its
//! business.

use std::{os::fd::OwnedFd, path::PathBuf};

use base::{NodeId, Time};
use dvm::{
    Controller, ControllerInput, ControllerOutput,
    proto::{FrontId, Missing, Note, ToController, ToDaemon, ToFront},
    spec::HoldAt,
};
use os::Pid;

use crate::{
    complaints::Complaints,
    control::Control,
    fronts::{Fronts, Outcome, STARTER},
    link::{ControllerLink, LinkError},
    reactor::Reactor,
};

/// What one step of a controller came to.
#[derive(Debug)]
pub(crate) enum Step {
    /// There is nothing to do.
    Idle,
    Done,
    Say(NodeId, ToDaemon),
}

/// What came of writing to the fronts, and of serving them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    Well,
    /// The controller has something to do.
    More,
}

/// What a host of a controller is told when it is made.
#[derive(Debug)]
pub(crate) struct ControllerSetup {
    /// Of the front that has forked us.
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
    fronts: Fronts,
    control: Control,
    setup: ControllerSetup,
}

impl ControllerHost {
    /// Takes over the socket of the link, on which the opening was read.
    pub(crate) fn open(
        now: Time,
        mut controller: Controller,
        link: ControllerLink,
        socket: OwnedFd,
        setup: ControllerSetup,
        reactor: &mut Reactor,
    ) -> Result<Self, os::Error> {
        let mut fronts = Fronts::new();
        fronts.add_starter(link, socket, reactor)?;
        let connected = ControllerInput::FrontConnected {
            front: STARTER,
            pid: number_of(setup.front_pid),
        };
        controller.handle(now, connected);
        Ok(Self {
            controller,
            fronts,
            control: Control::default(),
            setup,
        })
    }

    /// The front that has forked us is gone or has all that it is to be told, and no job of another one is left.
    pub(crate) fn is_over(&self) -> bool {
        !self.fronts.is_there(STARTER) && self.controller.is_idle() && self.fronts.are_written()
    }

    /// When [`Self::on_tick`] is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let deadlines = [self.controller.deadline(), self.fronts.deadline()];
        deadlines.into_iter().flatten().min()
    }

    pub(crate) fn on_tick(&mut self, now: Time, reactor: &mut Reactor) {
        self.controller.handle(now, ControllerInput::Tick);
        for front in self.fronts.overdue(now) {
            self.lose_front(now, front, reactor);
        }
    }

    pub(crate) fn on_daemon(&mut self, now: Time, node: NodeId, message: ToController) {
        let input = ControllerInput::Daemon(node, message);
        self.controller.handle(now, input);
    }

    pub(crate) fn on_front_readable(&mut self, now: Time, front: FrontId, reactor: &mut Reactor) {
        let received = self.fronts.receive(front, reactor);
        self.take_messages(now, front, reactor);
        self.on_outcome(now, front, received, reactor);
    }

    /// Takes what a front has said and was read already, as with the opening.
    pub(crate) fn take_messages(&mut self, now: Time, front: FrontId, reactor: &mut Reactor) {
        while let Served::Message = self.take_message(now, front, reactor) {
            if self.fronts.is_asking(front) {
                return;
            }
        }
    }

    fn take_message(&mut self, now: Time, front: FrontId, reactor: &mut Reactor) -> Served {
        match self.fronts.next_message(now, front) {
            Ok(Some(message)) => {
                let input = ControllerInput::Front(front, message);
                self.controller.handle(now, input);
                Served::Message
            }
            Ok(None) => Served::Nothing,
            Err(error) => {
                self.on_outcome(now, front, Outcome::Broken(error), reactor);
                Served::Nothing
            }
        }
    }

    fn on_outcome(&mut self, now: Time, front: FrontId, outcome: Outcome, reactor: &mut Reactor) {
        match outcome {
            Outcome::Open => {}
            Outcome::Closed => self.lose_front(now, front, reactor),
            Outcome::Broken(error) => {
                // What another process sends is its own affair.
                if front == STARTER {
                    (self.setup.admit)(&broken_link(&error));
                }
                self.lose_front(now, front, reactor);
            }
        }
    }

    fn lose_front(&mut self, now: Time, front: FrontId, reactor: &mut Reactor) {
        if self.fronts.close(front, reactor) {
            let lost = ControllerInput::FrontLost(front);
            self.controller.handle(now, lost);
        }
    }

    pub(crate) fn on_control_readable(&mut self, now: Time, reactor: &mut Reactor) {
        while self.fronts.has_room() {
            let complaints = &mut self.setup.complaints;
            let Some(peer) = self.control.accept(reactor, complaints) else {
                return;
            };
            // The directory is closed to others already.
            if ![0, os::effective_uid()].contains(&peer.uid) {
                continue;
            }
            match self.fronts.add(now, peer.socket, reactor) {
                Ok(front) => {
                    let pid = number_of(peer.pid);
                    let connected = ControllerInput::FrontConnected { front, pid };
                    self.controller.handle(now, connected);
                }
                Err(error) => self.setup.complaints.add(Missing::Control, &error),
            }
        }
        self.control.pause(reactor);
    }

    /// A descriptor may be free again, or there may be room for one more.
    pub(crate) fn resume(&self, reactor: &mut Reactor) {
        if self.fronts.has_room() {
            self.control.resume(reactor);
        }
    }

    /// Carries out the next thing that the controller asks for.
    pub(crate) fn step(&mut self, now: Time, reactor: &mut Reactor) -> Step {
        let Some(output) = self.controller.poll() else {
            return Step::Idle;
        };
        match output {
            ControllerOutput::Front(front, message) => self.fronts.send(front, message),
            ControllerOutput::Daemon(node, message) => {
                self.open_control(&message, reactor);
                return Step::Say(node, message);
            }
            ControllerOutput::Finished(front) => self.fronts.finish(now, front),
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
                self.setup.front_pid,
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
        if self.fronts.is_there(STARTER) {
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

    /// What is about the process of the controller is for the front that has forked it.
    fn tell(&mut self, message: ToFront) {
        self.fronts.send(STARTER, message);
    }

    /// Writes to the fronts what there is room for, and serves those that have read their answer.
    pub(crate) fn flush(&mut self, now: Time, reactor: &mut Reactor) -> Flushed {
        let mut flushed = Flushed::Well;
        for front in self.fronts.all() {
            if self.fronts.is_asking(front)
                && let Served::Message = self.take_message(now, front, reactor)
            {
                flushed = Flushed::More;
                if !self.fronts.is_asking(front) {
                    // What came behind its job was read already.
                    self.take_messages(now, front, reactor);
                }
            }
            let outcome = self.fronts.flush(front, reactor);
            if !matches!(outcome, Outcome::Open) {
                flushed = Flushed::More;
                self.on_outcome(now, front, outcome, reactor);
            }
            if self.fronts.is_due(front) {
                flushed = Flushed::More;
            }
        }
        flushed
    }
}

/// Whether a front had said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    Message,
    Nothing,
}

/// A pid as it is told; the kernel gives 0 for a process that is not in our pid namespace.
fn number_of(pid: Pid) -> u32 {
    u32::try_from(pid.as_raw()).unwrap_or_default()
}

pub(crate) fn broken_link(error: &LinkError) -> String {
    format!("the link to the front is broken: {error}")
}
