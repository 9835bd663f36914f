//! The socket to which other processes of the user connect as fronts (`docs/formats/front-link.md`). It is opened before the
//! launch for jobs whose ranks are held, and for jobs with other nodes, whose daemons start the agents of `dbgr`, and whose start
//! commands may ask the user. For other jobs it is opened when their ranks have been started: so it does not delay these, and only
//! `rally start-tool` misses it if that fails. It is removed with the session directory.

use std::{
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use base::Time;
use dvm::proto::Missing;
use os::{Interest, Peer};

use crate::{
    listener::Listener,
    missing::MissingReports,
    reactor::{Reactor, Source},
};

/// Prefix of the socket's name in the session directory; the pid of the front follows.
pub(crate) const NAME: &str = "control-";

/// Returns the path of the socket in a session directory.
pub(crate) fn path(session: &Path, front: os::Pid) -> PathBuf {
    session.join(format!("{NAME}{front}"))
}

/// What happens if the socket cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfRefused {
    /// The user is told: the job needs it.
    Report,
    Ignore,
}

/// The socket, once it is open.
#[derive(Debug, Default)]
pub(crate) struct Control {
    listener: Option<Listener>,
}

impl Control {
    /// Opens the socket if it is not open. If that fails, no other front can connect.
    pub(crate) fn open(
        &mut self,
        path: Option<&Path>,
        if_refused: IfRefused,
        reactor: &mut Reactor,
        missing_reports: &mut MissingReports,
    ) {
        let (None, Some(path)) = (&self.listener, path) else {
            return;
        };
        let directory = path.parent().unwrap_or(path);
        let opened = os::make_private_dirs(directory)
            .and_then(|()| os::listen_at(path))
            .and_then(|listener| reactor.add(listener, Interest::Read, Source::Control));
        match opened {
            Ok(token) => self.listener = Some(Listener::new(token)),
            Err(error) if if_refused == IfRefused::Report => {
                missing_reports.add(Missing::Control, &error);
            }
            Err(_) => {}
        }
    }

    /// Accepts the next pending connection, if there is one.
    pub(crate) fn accept(
        &mut self,
        now: Time,
        reactor: &mut Reactor,
        missing_reports: &mut MissingReports,
    ) -> Option<Peer> {
        let fd = self.listener.as_ref()?.fd(reactor)?;
        match os::accept_at(fd.as_fd()) {
            Ok(accepted) => accepted,
            Err(error) => {
                missing_reports.add(Missing::Control, &error);
                self.pause(now, reactor);
                None
            }
        }
    }

    /// Stops accepting until a connection or a descriptor is free, or for a while.
    pub(crate) fn pause(&mut self, now: Time, reactor: &mut Reactor) {
        if let Some(listener) = &mut self.listener {
            listener.pause(now, reactor);
        }
    }

    pub(crate) fn resume(&mut self, reactor: &mut Reactor) {
        if let Some(listener) = &mut self.listener {
            listener.resume(reactor);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.listener.as_ref().and_then(Listener::deadline)
    }

    pub(crate) fn on_tick(&mut self, now: Time, reactor: &mut Reactor) {
        if let Some(listener) = &mut self.listener {
            listener.on_tick(now, reactor);
        }
    }
}
