//! The socket at which other processes of the user become fronts of the controller (`docs/formats/front-link.md`). It is
//! opened for jobs whose ranks are held, so that others do not pay for it, and goes with the directory of the session.

use std::{os::fd::AsFd, path::Path};

use dvm::proto::Missing;
use os::{Interest, Peer, Token};

use crate::{
    complaints::Complaints,
    reactor::{Reactor, Source},
};

/// The beginning of the socket's name in the directory of the session; behind it stands the front's pid.
pub(crate) const NAME: &str = "control-";

/// The socket, once it is open.
#[derive(Debug, Default)]
pub(crate) struct Control {
    listener: Option<Token>,
}

impl Control {
    /// Opens the socket, if it is not open. Without it nobody can ask, which is said.
    pub(crate) fn open(
        &mut self,
        session: Option<&Path>,
        front: os::Pid,
        reactor: &mut Reactor,
        complaints: &mut Complaints,
    ) {
        let (None, Some(session)) = (&self.listener, session) else {
            return;
        };
        let path = session.join(format!("{NAME}{front}"));
        let opened = os::make_private_dirs(session)
            .and_then(|()| os::listen_at(&path))
            .and_then(|listener| reactor.add(listener, Interest::Read, Source::Control));
        match opened {
            Ok(token) => self.listener = Some(token),
            Err(error) => complaints.add(Missing::Control, &error),
        }
    }

    /// The next process that waits, if one does.
    pub(crate) fn accept(
        &self,
        reactor: &mut Reactor,
        complaints: &mut Complaints,
    ) -> Option<Peer> {
        let fd = reactor.fd(self.listener?)?;
        match os::accept_at(fd.as_fd()) {
            Ok(accepted) => accepted,
            Err(error) => {
                complaints.add(Missing::Control, &error);
                self.pause(reactor);
                None
            }
        }
    }

    /// Looks at nobody who waits, until a connection or a descriptor is free.
    pub(crate) fn pause(&self, reactor: &mut Reactor) {
        if let Some(listener) = self.listener {
            let _ = reactor.set_interest(listener, Interest::None);
        }
    }

    pub(crate) fn resume(&self, reactor: &mut Reactor) {
        if let Some(listener) = self.listener {
            let _ = reactor.set_interest(listener, Interest::Read);
        }
    }
}
