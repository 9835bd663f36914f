//! The connections of a controller's fronts: the one that has forked the controller, and those that have connected to its
//! socket.
//!
//! | state | a message | the controller has finished with it | its time is over | end of file, or what does not decode |
//! |---|---|---|---|---|
//! | `Asking` | is passed on; a job → `Submitted` | → `Closing` | lost | lost |
//! | `Submitted` | is passed on | → `Closing` | – | lost |
//! | `Closing` | is passed on | – | closed | closed |
//!
//! We read from a front that is `Asking` only after its last answer was written out and its last question taken, so neither
//! questions nor answers pile up. Of a front with a job, output that it has not read is bounded by the credit of the job's
//! nodes, and answers by [`MAX_ANSWERS`]. None of that holds for the front that has forked us: it may be stopped for hours.

use std::{collections::BTreeMap, os::fd::OwnedFd, time::Duration};

use base::Time;
use dvm::proto::{FromFront, FrontId, ToFront};
use os::{Interest, Token};

use crate::{
    link::{ControllerLink, LinkError, Received},
    reactor::{Reactor, Source},
};

/// The front that has forked the controller.
pub(crate) const STARTER: FrontId = FrontId(0);
/// Fronts that have connected and are served at once; others wait in the kernel's queue.
const MAX_CONNECTED: usize = 8;
/// How long a front without a job may say nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers that a front with a job may leave unread. With one more it is lost.
const MAX_ANSWERS: u32 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asking {
        until: Time,
    },
    Submitted,
    /// `None` for the front that has forked us.
    Closing {
        until: Option<Time>,
    },
}

#[derive(Debug)]
struct Connection {
    link: ControllerLink,
    token: Token,
    interest: Interest,
    state: State,
    /// Whether a message may wait among what was read.
    behind: bool,
    /// Answers since everything was written last.
    answers: u32,
}

/// What became of a read or a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    Open,
    /// Its end of file was read.
    Closed,
    Broken(LinkError),
}

/// The connections by the number of their fronts.
#[derive(Debug)]
pub(crate) struct Fronts {
    connections: BTreeMap<FrontId, Connection>,
    next: u32,
}

impl Fronts {
    pub(crate) const fn new() -> Self {
        Self {
            connections: BTreeMap::new(),
            next: STARTER.0 + 1,
        }
    }

    /// Adds the front that has forked us, with the link that carried the opening message (the allocation).
    pub(crate) fn add_starter(
        &mut self,
        link: ControllerLink,
        socket: OwnedFd,
        reactor: &mut Reactor,
    ) -> Result<(), os::Error> {
        self.insert(STARTER, link, socket, State::Submitted, reactor)
    }

    /// Adds a front that has connected. It has [`PATIENCE`] to say something.
    pub(crate) fn add(
        &mut self,
        now: Time,
        socket: OwnedFd,
        reactor: &mut Reactor,
    ) -> Result<FrontId, os::Error> {
        let front = FrontId(self.next);
        let until = now + PATIENCE;
        let link = ControllerLink::inline();
        self.insert(front, link, socket, State::Asking { until }, reactor)?;
        self.next += 1;
        Ok(front)
    }

    fn insert(
        &mut self,
        front: FrontId,
        link: ControllerLink,
        socket: OwnedFd,
        state: State,
        reactor: &mut Reactor,
    ) -> Result<(), os::Error> {
        let interest = Interest::Read;
        let token = reactor.add(socket, interest, Source::Front(front))?;
        let connection = Connection {
            link,
            token,
            interest,
            state,
            behind: false,
            answers: 0,
        };
        self.connections.insert(front, connection);
        Ok(())
    }

    /// Whether one more connection is served.
    pub(crate) fn has_room(&self) -> bool {
        let connected = self.connections.keys().filter(|front| **front != STARTER);
        connected.count() < MAX_CONNECTED
    }

    pub(crate) fn is_there(&self, front: FrontId) -> bool {
        self.connections.contains_key(&front)
    }

    /// Whether every front got all that it is to be told.
    pub(crate) fn are_written(&self) -> bool {
        let mut connections = self.connections.values();
        connections.all(|connection| !connection.link.link.has_outgoing())
    }

    pub(crate) fn all(&self) -> Vec<FrontId> {
        self.connections.keys().copied().collect()
    }

    /// The next time at which [`Self::overdue`] is not empty.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let times = self.connections.values().filter_map(Connection::until);
        times.min()
    }

    /// The fronts without a job that have said nothing for too long.
    pub(crate) fn overdue(&self, now: Time) -> Vec<FrontId> {
        let overdue = |connection: &Connection| connection.until().is_some_and(|at| at <= now);
        let connections = self.connections.iter();
        connections
            .filter(|(_, connection)| overdue(connection))
            .map(|(front, _)| *front)
            .collect()
    }

    pub(crate) fn send(&mut self, front: FrontId, message: ToFront) {
        if let Some(connection) = self.connections.get_mut(&front) {
            connection.answers += u32::from(matches!(
                message,
                ToFront::Holding(_) | ToFront::Released { .. } | ToFront::NotReleased(_)
            ));
            connection.link.send(message);
        }
    }

    /// The front was told everything: its connection is closed when all is written.
    pub(crate) fn finish(&mut self, now: Time, front: FrontId) {
        if let Some(connection) = self.connections.get_mut(&front)
            && !matches!(connection.state, State::Closing { .. })
        {
            let until = (front != STARTER).then(|| now + PATIENCE);
            connection.state = State::Closing { until };
        }
    }

    /// The next message of a front, of those that were read. One that is asking gets its answer before the next.
    pub(crate) fn next_message(
        &mut self,
        now: Time,
        front: FrontId,
    ) -> Result<Option<FromFront>, LinkError> {
        let Some(connection) = self.connections.get_mut(&front) else {
            return Ok(None);
        };
        let is_asking = matches!(connection.state, State::Asking { .. });
        if is_asking && connection.link.link.has_outgoing() {
            return Ok(None);
        }
        let message = connection.link.next_message()?;
        connection.behind = message.is_some();
        match message {
            Some(FromFront::Submit(_)) if is_asking => connection.state = State::Submitted,
            Some(_) if is_asking => {
                let until = now + PATIENCE;
                connection.state = State::Asking { until };
            }
            Some(_) | None => {}
        }
        Ok(message)
    }

    /// Whether a front that is asking has its answer, and its next question may have been read already.
    pub(crate) fn is_due(&self, front: FrontId) -> bool {
        let connection = self.connections.get(&front);
        self.is_asking(front)
            && connection.is_some_and(|it| it.behind && !it.link.link.has_outgoing())
    }

    /// Whether a front has no job: it gets the answer to a message before the next one is taken.
    pub(crate) fn is_asking(&self, front: FrontId) -> bool {
        let connection = self.connections.get(&front);
        connection.is_some_and(|connection| matches!(connection.state, State::Asking { .. }))
    }

    /// Reads once; [`Self::next_message`] gives what came.
    pub(crate) fn receive(&mut self, front: FrontId, reactor: &Reactor) -> Outcome {
        let Some(connection) = self.connections.get_mut(&front) else {
            return Outcome::Open;
        };
        let Some(fd) = reactor.fd(connection.token) else {
            return Outcome::Open;
        };
        if connection.behind && matches!(connection.state, State::Asking { .. }) {
            return Outcome::Open;
        }
        match connection.link.link.receive(fd) {
            Ok(Received::Open | Received::Nothing) => Outcome::Open,
            Ok(Received::Closed) => Outcome::Closed,
            Err(error) => Outcome::Broken(error),
        }
    }

    /// Writes what there is room for.
    pub(crate) fn flush(&mut self, front: FrontId, reactor: &mut Reactor) -> Outcome {
        let Some(connection) = self.connections.get_mut(&front) else {
            return Outcome::Open;
        };
        let Some(fd) = reactor.fd(connection.token) else {
            return Outcome::Open;
        };
        match connection.link.flush(fd) {
            Ok(Received::Open | Received::Nothing) => {}
            // It may have closed only the direction in which we write, and would never be at its end.
            Ok(Received::Closed) if front != STARTER => return Outcome::Closed,
            // Its end of file is read, and handled, next.
            Ok(Received::Closed) => {}
            Err(error) => return Outcome::Broken(error),
        }
        let waits = connection.link.link.has_outgoing();
        if !waits {
            connection.answers = 0;
        }
        if connection.answers > MAX_ANSWERS && front != STARTER {
            return Outcome::Closed;
        }
        if matches!(connection.state, State::Closing { .. }) && !waits {
            self.close(front, reactor);
            return Outcome::Open;
        }
        let wanted = match (connection.state, waits) {
            (State::Asking { .. }, true) => Interest::Write,
            (State::Asking { .. }, false) if connection.behind => Interest::None,
            (_, false) => Interest::Read,
            (State::Submitted | State::Closing { .. }, true) => Interest::ReadWrite,
        };
        if wanted != connection.interest {
            connection.interest = wanted;
            if let Err(error) = reactor.set_interest(connection.token, wanted) {
                return Outcome::Broken(error.into());
            }
        }
        Outcome::Open
    }

    /// Closes a connection; false when there is none.
    pub(crate) fn close(&mut self, front: FrontId, reactor: &mut Reactor) -> bool {
        let Some(connection) = self.connections.remove(&front) else {
            return false;
        };
        reactor.close(connection.token);
        true
    }
}

impl Connection {
    const fn until(&self) -> Option<Time> {
        match self.state {
            State::Asking { until } => Some(until),
            State::Closing { until } => until,
            State::Submitted => None,
        }
    }
}
