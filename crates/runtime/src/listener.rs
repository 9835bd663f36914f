//! A listening socket that rests for a while when no connection can be accepted.
//!
//! The kernel reports no event when a descriptor, or memory, becomes free elsewhere on the node. So the owner of a port
//! tries again after [`REST`], and earlier if this process closes a descriptor.

use std::{os::fd::BorrowedFd, time::Duration};

use base::Time;
use os::{Interest, Token};

use crate::reactor::Reactor;

/// How long a port is not watched after the system had no room for a connection.
const REST: Duration = Duration::from_millis(100);

/// A listening socket in the event loop.
#[derive(Debug)]
pub(crate) struct Listener {
    token: Token,
    /// When the port is watched again; `None` if it is watched.
    paused_until: Option<Time>,
}

impl Listener {
    pub(crate) const fn new(token: Token) -> Self {
        Self {
            token,
            paused_until: None,
        }
    }

    pub(crate) fn fd<'a>(&self, reactor: &'a Reactor) -> Option<BorrowedFd<'a>> {
        reactor.fd(self.token)
    }

    /// Stops watching the listening.
    pub(crate) fn pause(&mut self, now: Time, reactor: &mut Reactor) {
        self.paused_until = Some(now + REST);
        let _ = reactor.set_interest(self.token, Interest::None);
    }

    /// Watches the port again.
    pub(crate) fn resume(&mut self, reactor: &mut Reactor) {
        if self.paused_until.take().is_some() {
            let _ = reactor.set_interest(self.token, Interest::Read);
        }
    }

    /// Returns the time at which [`Self::on_tick`] is due.
    pub(crate) const fn deadline(&self) -> Option<Time> {
        self.paused_until
    }

    pub(crate) fn on_tick(&mut self, now: Time, reactor: &mut Reactor) {
        if self.paused_until.is_some_and(|until| until <= now) {
            self.resume(reactor);
        }
    }
}

#[cfg(test)]
mod tests {
    use os::{Event, Loop};

    use super::*;
    use crate::reactor::{Source, TreeChannel};

    /// The connection was made while the port rested, and no descriptor is closed: only the deadline wakes the listening.
    #[test]
    fn a_port_without_room_is_tried_again() {
        let mut reactor = Reactor::new(Loop::new(&[]).unwrap());
        let (listener, number) = os::listen_loopback().unwrap();
        let source = Source::Tree(TreeChannel::Port);
        let token = reactor.add(listener, Interest::Read, source).unwrap();
        let mut listening = Listener::new(token);
        assert_eq!(listening.deadline(), None);
        let now = os::Clock::now();
        listening.pause(now, &mut reactor);
        let _client = os::connect_remote(([127, 0, 0, 1], number).into()).unwrap();
        let mut events = Vec::new();
        reactor.wait(Some(now), &mut events).unwrap();
        assert_eq!(events, [Event::Deadline]);

        let until = listening.deadline().unwrap();
        listening.on_tick(now, &mut reactor);
        assert_eq!(listening.deadline(), Some(until), "it is too early");
        listening.on_tick(until, &mut reactor);
        assert_eq!(listening.deadline(), None);
        events.clear();
        reactor.wait(Some(now + REST * 100), &mut events).unwrap();
        assert_eq!(events, [Event::Readable(token)]);
    }
}
