//! The connection to the client: how it comes about, and what waits to be written.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    os::fd::OwnedFd,
    time::Duration,
};

use base::{Signal, Time};
use os::{
    AcceptOutcome, Clock, ConnectOutcome, Event, Interest, Loop, PeerIdentity, ReadOutcome,
    RemoteOutcome, SocketOwners, Token, UnknownPeer, WriteOutcome,
};
use runtime::ask::AskError;

use super::messages;
use crate::{
    args::{
        MessageFormat,
        request::proxy::{Audience, Meeting},
    },
    exit,
    machine::{Failure, lost},
    print, say,
};

/// How often a connection is tried that is refused: the client may listen a little later than it starts the proxy.
const TRIES: u32 = 5;
/// Pause between two tries.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the client's computer may take to answer a try.
const CONNECT_MAX: Duration = Duration::from_secs(20);
/// Connections of others about which a message is printed: another user could fill a disk with them.
const SAID_MAX: u32 = 16;
/// Bytes that are read at once.
const READ_SIZE: usize = 16 << 10;
/// Bytes that are made ready for the client at once. What follows waits in the session, which has bounds.
const READY_MAX: usize = 64 << 10;

/// Who has the other end of a connection is asked before its first byte is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// The kernel is to say whose it is.
    Unchecked,
    Given,
}

/// The client.
#[derive(Debug)]
pub(super) struct Client {
    token: Token,
    trust: Trust,
    ready: Vec<u8>,
    written: usize,
    buffer: Vec<u8>,
}

/// What was read.
#[derive(Debug)]
pub(super) enum Got<'a> {
    Bytes(&'a [u8]),
    Nothing,
    End,
    /// Another user has the other end.
    Stranger(String),
}

/// Why there is no client.
pub(super) enum NoClient {
    Failed(Failure),
    Signal(Signal),
}

impl From<Failure> for NoClient {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<os::Error> for NoClient {
    fn from(error: os::Error) -> Self {
        Self::Failed(super::resources(error))
    }
}

/// Who has the other end of a connection.
enum Whose {
    /// Our own user, or root, which may be the ssh server that forwards the client's port.
    Ours,
    Stranger(String),
    /// The client has gone already, and nobody knows who it was.
    Gone,
}

fn whose(peer: PeerIdentity) -> Whose {
    use UnknownPeer::{Closing, Ended, Missing, NoProcess};
    match peer {
        PeerIdentity::User(uid) if uid == os::effective_uid() || uid == 0 => Whose::Ours,
        PeerIdentity::User(uid) => Whose::Stranger(format!("user {uid} has its other end")),
        PeerIdentity::Unknown(Closing | Ended | Missing | NoProcess) => Whose::Gone,
        PeerIdentity::Unknown(why) => {
            Whose::Stranger(format!("nobody knows who has its other end: {why}"))
        }
    }
}

/// Meets the client.
pub(super) fn meet(
    meeting: &Meeting,
    events: &mut Loop,
    lifeline: Lifeline<'_>,
    format: MessageFormat,
) -> Result<Client, NoClient> {
    match meeting {
        Meeting::Connect { host, port } => connect(host, *port, events, lifeline, format),
        Meeting::Listen { address, to } => {
            if *to == Audience::Own && !address.ip().is_loopback() {
                return Err(messages::not_loopback(*address).into());
            }
            listen(*address, *to, events, lifeline, format)
        }
    }
}

/// The connection to a machine over which nothing is asked, and its name: it is closed when the machine ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifeline<'a> {
    pub(super) token: Token,
    pub(super) machine: &'a str,
}

/// Waits until something is ready; `false` if the time is over. A signal, and the end of the machine, end the wait for a client.
fn wait(events: &mut Loop, until: Option<Time>, lifeline: Lifeline<'_>) -> Result<bool, NoClient> {
    let mut happened = Vec::new();
    loop {
        events.wait(until, &mut happened)?;
        let mut is_ready = false;
        for event in &happened {
            match event {
                Event::Signal(info) if info.signal == Signal::CHLD => while os::reap().is_some() {},
                Event::Signal(info) => return Err(NoClient::Signal(info.signal)),
                Event::Readable(token) if *token == lifeline.token => {
                    return Err(lost(lifeline.machine, &AskError::Closed).into());
                }
                Event::Readable(_) | Event::Writable(_) => is_ready = true,
                Event::Deadline => return Ok(false),
            }
        }
        if is_ready {
            return Ok(true);
        }
    }
}

fn connect(
    host: &str,
    port: u16,
    events: &mut Loop,
    lifeline: Lifeline<'_>,
    format: MessageFormat,
) -> Result<Client, NoClient> {
    let found = (host, port).to_socket_addrs();
    let addresses: Vec<SocketAddr> = found
        .map_err(|why| messages::no_host(host, &why.to_string()))?
        .collect();
    let mut why = "the name has no address".to_owned();
    for again in 0..TRIES {
        if again == 1 {
            say(&messages::waits(host, port, &why), format);
        }
        if again > 0 {
            // Nothing is open that could become ready.
            wait(events, Some(Clock::now() + PAUSE), lifeline)?;
        }
        for address in &addresses {
            match try_connect(*address, events, lifeline)? {
                Ok(client) => return Ok(client),
                Err(error) => why = error,
            }
        }
    }
    Err(messages::no_client(host, port, &why).into())
}

/// Tries once. The inner error is one after which another try may succeed.
fn try_connect(
    address: SocketAddr,
    events: &mut Loop,
    lifeline: Lifeline<'_>,
) -> Result<Result<Client, String>, NoClient> {
    let (begun, trust) = if address.ip().is_loopback() {
        (os::connect_loopback(address), Trust::Unchecked)
    } else {
        // The user has named the host.
        (os::connect_remote(address), Trust::Given)
    };
    let token = match begun.and_then(|socket| events.add(socket, Interest::Write)) {
        Ok(token) => token,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let until = Clock::now() + CONNECT_MAX;
    loop {
        let outcome = match events.fd(token) {
            Some(fd) => os::connect_outcome(fd),
            None => return Ok(Err("the connection is gone".to_owned())),
        };
        match outcome {
            Ok(ConnectOutcome::Connected) => {
                events.set_interest(token, Interest::Read)?;
                return Ok(Ok(Client::new(token, trust)));
            }
            Ok(ConnectOutcome::Pending) => {
                if !wait(events, Some(until), lifeline)? {
                    drop(events.remove(token));
                    return Ok(Err("it does not answer".to_owned()));
                }
            }
            Err(error) => {
                drop(events.remove(token));
                return Ok(Err(error.to_string()));
            }
        }
    }
}

fn listen(
    address: SocketAddr,
    to: Audience,
    events: &mut Loop,
    lifeline: Lifeline<'_>,
    format: MessageFormat,
) -> Result<Client, NoClient> {
    let listening = os::listen_at_address(address);
    let (listener, port) = listening.map_err(|error| messages::not_listening(address, &error))?;
    let address = SocketAddr::new(address.ip(), port);
    say(&messages::listens(address, lifeline.machine), format);
    if print(&format!("{address}\n"), MessageFormat::Text) != exit::SUCCESS {
        return Err(NoClient::Signal(Signal::PIPE));
    }
    let listener = events.add(listener, Interest::Read)?;
    let mut owners = SocketOwners::new()?;
    let mut strangers = 0;
    let accepted = loop {
        wait(events, None, lifeline)?;
        let Some(fd) = events.fd(listener) else {
            return Err(messages::not_listening(address, &closed()).into());
        };
        match to {
            Audience::Anyone => match os::accept_remote(fd)? {
                RemoteOutcome::Connection(socket, _) => break socket,
                RemoteOutcome::WouldBlock => {}
                RemoteOutcome::Exhausted(error) => return Err(error.into()),
            },
            Audience::Own => match os::accept(fd, &mut owners)? {
                AcceptOutcome::Connection(accepted) => match whose(accepted.peer) {
                    Whose::Ours => break accepted.fd,
                    Whose::Stranger(_) | Whose::Gone if strangers >= SAID_MAX => {}
                    Whose::Stranger(who) => {
                        strangers += 1;
                        say(&messages::stranger(&who), format);
                    }
                    Whose::Gone => {
                        strangers += 1;
                        say(&messages::gone(), format);
                    }
                },
                AcceptOutcome::WouldBlock => {}
                AcceptOutcome::Exhausted(error) => return Err(error.into()),
            },
        }
    };
    // It is for one client.
    drop(events.remove(listener));
    Ok(Client::new(
        events.add(accepted, Interest::Read)?,
        Trust::Given,
    ))
}

const fn closed() -> os::Error {
    os::Error::Call {
        operation: "listen",
        errno: 9,
    }
}

impl Client {
    fn new(token: Token, trust: Trust) -> Self {
        Self {
            token,
            trust,
            ready: Vec::new(),
            written: 0,
            buffer: vec![0; READ_SIZE],
        }
    }

    /// Returns true if it has taken everything that was ready for it.
    pub(super) fn is_idle(&self) -> bool {
        self.written == self.ready.len()
    }

    pub(super) fn is(&self, token: Token) -> bool {
        self.token == token
    }

    /// Reads once.
    pub(super) fn read(&mut self, events: &Loop) -> Got<'_> {
        let Some(fd) = events.fd(self.token) else {
            return Got::End;
        };
        if self.trust == Trust::Unchecked {
            // The client has accepted the connection, or it would not write.
            match SocketOwners::new().map(|mut owners| whose(owners.peer_of(fd))) {
                Ok(Whose::Ours) => self.trust = Trust::Given,
                Ok(Whose::Gone) => return Got::End,
                Ok(Whose::Stranger(who)) => return Got::Stranger(who),
                Err(error) => return Got::Stranger(error.to_string()),
            }
        }
        match os::read(fd, &mut self.buffer) {
            Ok(ReadOutcome::Bytes(count)) => Got::Bytes(&self.buffer[..count]),
            Ok(ReadOutcome::WouldBlock) => Got::Nothing,
            Ok(ReadOutcome::Closed) | Err(_) => Got::End,
        }
    }

    /// Writes what `next` returns, until the connection takes no more. Returns false if it is lost.
    pub(super) fn write(
        &mut self,
        events: &mut Loop,
        mut next: impl FnMut() -> Option<Vec<u8>>,
    ) -> bool {
        let mut wanted = Interest::Read;
        loop {
            if self.written == self.ready.len() {
                self.ready.clear();
                self.written = 0;
                while self.ready.len() < READY_MAX {
                    let Some(bytes) = next() else { break };
                    self.ready.extend(bytes);
                }
                if self.ready.is_empty() {
                    break;
                }
            }
            let Some(fd) = events.fd(self.token) else {
                return false;
            };
            match os::write(fd, &self.ready[self.written..]) {
                Ok(WriteOutcome::Bytes(count)) => self.written += count,
                Ok(WriteOutcome::WouldBlock) => {
                    wanted = Interest::ReadWrite;
                    break;
                }
                Ok(WriteOutcome::Closed) | Err(_) => return false,
            }
        }
        events.interest(self.token) == Some(wanted)
            || events.set_interest(self.token, wanted).is_ok()
    }

    pub(super) fn close(self, events: &mut Loop) -> Option<OwnedFd> {
        events.remove(self.token)
    }
}
