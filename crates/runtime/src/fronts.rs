//! The connections of a controller's fronts: the front that forked the controller, and fronts that have connected to its
//! socket.
//!
//! | state | on a message | once the controller has finished, with this front or at all | after [`PATIENCE`] | on end of file or a malformed frame |
//! |---|---|---|---|---|
//! | `Asking` | pass it on; a job → `Submitted` | → `Closing` | the front is lost | the front is lost |
//! | `Submitted` | pass it on | → `Closing` | – | the front is lost |
//! | `Prompting` | pass it on, and wait for the answer of the user without a limit | → `Closing` | before the message: the front is lost | the front is lost |
//! | `Closing` | pass it on | – | close the connection | close the connection |
//!
//! A front that is `Asking` is read only after its last question was handled and the answer written. So neither
//! questions nor answers pile up. For a front with a job, the credit of the job's nodes bounds unread output, and
//! [`MAX_ANSWERS`] bounds unread answers. None of that holds for the front that forked us, which may be stopped for
//! hours.

use std::{collections::BTreeMap, os::fd::OwnedFd, time::Duration};

use base::Time;
use dvm::proto::{FromFront, FrontId, ToFront};
use os::{Interest, Peer, Pid, Token};

use crate::{
    link::{ControllerLink, LinkError, Received},
    reactor::{Reactor, Source},
};

/// The front that forked the controller.
pub(crate) const STARTER: FrontId = FrontId(0);
/// Maximum number of connected fronts of one job. More of them wait in the backlog of the listening socket.
pub(crate) const FRONTS_MAX: usize = 8;
/// Maximum number of connected fronts of a machine.
pub(crate) const MACHINE_FRONTS_MAX: usize = 1024;
/// Time in which a front without a job must send a message, and in which a closing front must read what was sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers that a front with a job may leave unread. With one more it is disconnected.
const MAX_ANSWERS: u32 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asking {
        until: Time,
    },
    Submitted,
    /// It asks for a start command. `None` after its prompt: then the user, or the front with the terminal, ends the wait.
    Prompting {
        until: Option<Time>,
    },
    /// `None` for the front that forked us, which has no deadline.
    Closing {
        until: Option<Time>,
    },
}

#[derive(Debug)]
struct Connection {
    link: ControllerLink,
    token: Token,
    interest: Interest,
    /// `None` for the front that forked us.
    pid: Option<Pid>,
    state: State,
    /// Whether the read buffer may hold another message.
    may_have_more: bool,
    /// Answers queued since the outgoing queue was last empty.
    answers: u32,
}

/// Result of a read or a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    Open,
    /// The front has closed the connection.
    Closed,
    Broken(LinkError),
}

/// Connections by the number of their front.
#[derive(Debug)]
pub(crate) struct Fronts {
    connections: BTreeMap<FrontId, Connection>,
    next: u32,
    /// Most connected fronts.
    most: usize,
}

impl Fronts {
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            connections: BTreeMap::new(),
            next: STARTER.0 + 1,
            most,
        }
    }

    /// Adds the front that forked us, with the link from which the opening message (the allocation) was read.
    pub(crate) fn add_starter(
        &mut self,
        link: ControllerLink,
        socket: OwnedFd,
        reactor: &mut Reactor,
    ) -> Result<(), os::Error> {
        self.insert(STARTER, link, socket, None, State::Submitted, reactor)
    }

    /// Adds a front that has connected. It must send a message within [`PATIENCE`].
    pub(crate) fn add(
        &mut self,
        now: Time,
        peer: Peer,
        reactor: &mut Reactor,
    ) -> Result<FrontId, os::Error> {
        let until = now + PATIENCE;
        self.connect(peer, State::Asking { until }, reactor)
    }

    /// Adds a front that asks for a start command. It must send its prompt within [`PATIENCE`].
    pub(crate) fn add_prompting(
        &mut self,
        now: Time,
        peer: Peer,
        reactor: &mut Reactor,
    ) -> Result<FrontId, os::Error> {
        let until = Some(now + PATIENCE);
        self.connect(peer, State::Prompting { until }, reactor)
    }

    fn connect(
        &mut self,
        peer: Peer,
        state: State,
        reactor: &mut Reactor,
    ) -> Result<FrontId, os::Error> {
        let front = FrontId(self.next);
        let link = ControllerLink::inline();
        self.insert(front, link, peer.socket, Some(peer.pid), state, reactor)?;
        self.next += 1;
        Ok(front)
    }

    fn insert(
        &mut self,
        front: FrontId,
        link: ControllerLink,
        socket: OwnedFd,
        pid: Option<Pid>,
        state: State,
        reactor: &mut Reactor,
    ) -> Result<(), os::Error> {
        let interest = Interest::Read;
        let token = reactor.add(socket, interest, Source::Front(front))?;
        let connection = Connection {
            link,
            token,
            interest,
            pid,
            state,
            may_have_more: false,
            answers: 0,
        };
        self.connections.insert(front, connection);
        Ok(())
    }

    /// Returns true if one more front may connect. `prompting` is the number of fronts that may ask for start commands.
    pub(crate) fn has_room(&self, prompting: usize) -> bool {
        let connected = self.connections.keys().filter(|front| **front != STARTER);
        connected.count() < self.most + prompting
    }

    /// Returns the pid of a front that has connected, if it is in our pid namespace.
    pub(crate) fn pid_of(&self, front: FrontId) -> Option<Pid> {
        let pid = self.connections.get(&front)?.pid?;
        (pid.as_raw() > 0).then_some(pid)
    }

    pub(crate) fn is_there(&self, front: FrontId) -> bool {
        self.connections.contains_key(&front)
    }

    /// Returns true if no front has unwritten messages.
    pub(crate) fn are_written(&self) -> bool {
        let mut connections = self.connections.values();
        connections.all(|connection| !connection.link.link.has_outgoing())
    }

    pub(crate) fn all(&self) -> Vec<FrontId> {
        self.connections.keys().copied().collect()
    }

    /// Returns the next time at which [`Self::overdue`] is not empty.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let times = self.connections.values().filter_map(Connection::until);
        times.min()
    }

    /// Returns the fronts whose deadline has passed.
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
                ToFront::Holding(_)
                    | ToFront::Released { .. }
                    | ToFront::NotReleased(_)
                    | ToFront::Reply(_)
            ));
            connection.link.send(message);
        }
    }

    /// Closes a front's connection once all messages to it are written.
    pub(crate) fn finish(&mut self, now: Time, front: FrontId) {
        if let Some(connection) = self.connections.get_mut(&front)
            && !matches!(connection.state, State::Closing { .. })
        {
            let until = (front != STARTER).then(|| now + PATIENCE);
            connection.state = State::Closing { until };
        }
    }

    /// Closes all connections once all messages are written: the controller is over. Whoever does not read them must not keep it.
    pub(crate) fn finish_all(&mut self, now: Time) {
        for connection in self.connections.values_mut() {
            if connection.until().is_none() || !matches!(connection.state, State::Closing { .. }) {
                let until = Some(now + PATIENCE);
                connection.state = State::Closing { until };
            }
        }
    }

    /// Returns the next message from a front's read buffer. A front that is `Asking` must have got its last answer first.
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
        connection.may_have_more = message.is_some();
        if message.is_some() && matches!(connection.state, State::Prompting { .. }) {
            connection.state = State::Prompting { until: None };
        }
        match message {
            Some(FromFront::Submit(_) | FromFront::SubmitBeside(_) | FromFront::StartTool(_))
                if is_asking =>
            {
                connection.state = State::Submitted;
            }
            // The answer may take long: until jobs have ended, nodes have joined, or the disk has room. And whoever shows what
            // a machine says may be stopped for a while.
            Some(FromFront::Ask(_)) if is_asking => connection.state = State::Submitted,
            Some(_) if is_asking => {
                let until = now + PATIENCE;
                connection.state = State::Asking { until };
            }
            Some(_) | None => {}
        }
        Ok(message)
    }

    /// Returns true if a front that is `Asking` has got its answer, and its next question may be in the read buffer.
    pub(crate) fn is_due(&self, front: FrontId) -> bool {
        let connection = self.connections.get(&front);
        self.is_asking(front)
            && connection.is_some_and(|it| it.may_have_more && !it.link.link.has_outgoing())
    }

    /// Returns true if a front has no job. Such a front gets the answer to one message before the next is handled.
    pub(crate) fn is_asking(&self, front: FrontId) -> bool {
        let connection = self.connections.get(&front);
        connection.is_some_and(|connection| matches!(connection.state, State::Asking { .. }))
    }

    /// Reads once from a front. Use [`Self::next_message`] to take the messages.
    pub(crate) fn receive(&mut self, front: FrontId, reactor: &Reactor) -> Outcome {
        let Some(connection) = self.connections.get_mut(&front) else {
            return Outcome::Open;
        };
        let Some(fd) = reactor.fd(connection.token) else {
            return Outcome::Open;
        };
        if connection.may_have_more && matches!(connection.state, State::Asking { .. }) {
            return Outcome::Open;
        }
        match connection.link.link.receive(fd) {
            Ok(Received::Open | Received::Nothing) => Outcome::Open,
            Ok(Received::Closed) => Outcome::Closed,
            Err(error) => Outcome::Broken(error),
        }
    }

    /// Writes what the socket takes.
    pub(crate) fn flush(&mut self, front: FrontId, reactor: &mut Reactor) -> Outcome {
        let Some(connection) = self.connections.get_mut(&front) else {
            return Outcome::Open;
        };
        let Some(fd) = reactor.fd(connection.token) else {
            return Outcome::Open;
        };
        match connection.link.flush(fd) {
            Ok(Received::Open | Received::Nothing) => {}
            // It may have shut down only its reading side, in which case no end of file would follow.
            Ok(Received::Closed) if front != STARTER => return Outcome::Closed,
            // Its end of file is read and handled next.
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
            (State::Asking { .. }, false) if connection.may_have_more => Interest::None,
            (_, false) => Interest::Read,
            (State::Submitted | State::Prompting { .. } | State::Closing { .. }, true) => {
                Interest::ReadWrite
            }
        };
        if wanted != connection.interest {
            connection.interest = wanted;
            if let Err(error) = reactor.set_interest(connection.token, wanted) {
                return Outcome::Broken(error.into());
            }
        }
        Outcome::Open
    }

    /// Closes a connection; returns false if there is none.
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
            State::Prompting { until } | State::Closing { until } => until,
            State::Submitted => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use dvm::machine::{NotDone, Reply};
    use os::Loop;

    use super::*;

    #[test]
    fn who_does_not_read_does_not_keep_a_controller_that_is_over() {
        let mut reactor = Reactor::new(Loop::new(&[]).unwrap());
        let mut fronts = Fronts::new(FRONTS_MAX);
        let (ours, theirs) = os::socket_pair().unwrap();
        os::set_nonblocking(theirs.as_fd()).unwrap();
        let starter = ControllerLink::inline();
        fronts.add_starter(starter, theirs, &mut reactor).unwrap();
        let (_other, theirs) = os::socket_pair().unwrap();
        os::set_nonblocking(theirs.as_fd()).unwrap();
        let peer = Peer {
            socket: theirs,
            pid: os::current_pid(),
            uid: 0,
        };
        let start = Time::ZERO;
        let front = fronts.add(start, peer, &mut reactor).unwrap();
        // It has asked something whose answer may take long.
        fronts.connections.get_mut(&front).unwrap().state = State::Submitted;
        assert_eq!(fronts.deadline(), None);
        for front in [STARTER, front] {
            // More than a socket takes.
            let why = NotDone::NotStored("x".repeat(16 << 20));
            let reply = Reply::Refused(why);
            fronts.send(front, ToFront::Reply(Box::new(reply)));
            assert!(matches!(fronts.flush(front, &mut reactor), Outcome::Open));
        }
        assert!(!fronts.are_written());
        fronts.finish_all(start);
        // Once is enough, and the deadline does not move.
        let later = start + PATIENCE / 2;
        fronts.finish_all(later);
        let due = start + PATIENCE;
        assert_eq!(fronts.deadline(), Some(due));
        assert_eq!(fronts.overdue(later), []);
        for front in fronts.overdue(due) {
            assert!(fronts.close(front, &mut reactor));
        }
        assert!(fronts.are_written());
        assert_eq!(fronts.all(), []);
        drop(ours);
    }
}
