//! The side of a tool on a connection that a launcher has opened (docs/formats/indirect-launch.md, sections 4 and 5).
//!
//! The launcher connects as a client does, and asks once for its job info, which contains the directives of the tool. From then
//! on the roles are exchanged: the tool sends requests, and the launcher answers and pushes. Each side has its own half of the
//! tags, so that a message under a tag of the launcher's half is a request of the launcher.
//!
//! | state | a whole handshake | a request of the launcher | `Closed` | deadline |
//! |---|---|---|---|---|
//! | Accepting | the awaited launcher is welcomed: Informing; anybody else is refused: Ended | – | Ended: `Closed` | Ended: `Silent` |
//! | Informing | – | the one for job info is answered: Ready; others are answered below | Ended: `Closed` | Ended: `Silent` |
//! | Ready | – | answered below | Ended: `Closed` | the overdue request: `TIMEOUT` |
//!
//! A launcher that raises an event by a request gets SUCCESS, and the event is reported as one that was pushed. It also gets
//! SUCCESS for a registration, because the tool sends it no events, and for its finalize. Other requests are answered
//! `NOT_SUPPORTED`.

use std::ffi::CStr;

use base::Time;

use super::{
    Client, Codec, Config, Connector, Event, LAST_ACCEPTOR_TAG, LAST_TAG, Lost, Output, ServerUri,
    State, Tags, WELCOME_WAIT,
};
use crate::{
    Error,
    codec::{Family, Writer},
    frame::{self, Tag},
    handshake::{ConnectorKind, Hello, Owner, Welcome},
    keys,
    message::{Answer, Push, Request},
    value::{Info, Key, Kval, Nspace, PmixRank, Proc, Status, Value},
};

/// What a tool tells the launcher that connects to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// Name and address of the tool, as the launcher has them in `PMIX_LAUNCHER_RNDZ_URI`.
    pub uri: ServerUri,
    /// The name that the tool has given the launcher. Whoever has another name is refused. `None` if it was given none, and chooses
    /// its own.
    pub launcher: Option<Proc>,
    /// Directives for the job that the launcher will start, as in a spawn.
    pub directives: Vec<Info>,
    /// Effective user and group of the tool.
    pub owner: Owner,
}

impl Terms {
    /// Returns the job info of a launcher.
    fn facts(&self, nspace: &Nspace, version: &CStr) -> Vec<Kval> {
        let launcher = Proc {
            nspace: nspace.clone(),
            rank: PmixRank::UNDEF,
        };
        let facts = [
            (keys::JOB_ID, Value::Proc(Box::new(launcher))),
            (
                keys::PARENT_ID,
                Value::Proc(Box::new(self.uri.server().clone())),
            ),
            (
                keys::LAUNCH_DIRECTIVES,
                Value::infos(self.directives.clone()),
            ),
            // libpmix expects the version of the launcher's own library.
            (
                keys::LIBRARY_VERSION,
                Value::String(Some(version.to_owned())),
            ),
        ];
        let facts = facts.into_iter().filter_map(|(key, value)| {
            let key = Key::new(key).ok()?;
            Some(Kval { key, value })
        });
        facts.collect()
    }
}

impl Client {
    /// Takes a connection that a launcher has opened. The caller has verified whose process it is.
    #[must_use]
    pub fn accept(now: Time, terms: Terms) -> Self {
        let me = Connector::NamedTool(terms.uri.server().clone());
        let config = Config::new(terms.uri.clone(), me, terms.owner);
        let mut client = Self::new(now, config);
        client.outputs.clear();
        client.state = State::Accepting {
            until: now + WELCOME_WAIT,
        };
        client.tags = Tags::new(LAST_TAG + 1, LAST_ACCEPTOR_TAG);
        client.terms = Some(terms);
        client
    }

    /// Answers the handshake, once it is complete.
    pub(super) fn accepted(&mut self) {
        let State::Accepting { until } = self.state else {
            return;
        };
        let payload = match self.framer.next_handshake() {
            Ok(Some(payload)) => payload,
            Ok(None) => return,
            Err(why) => return self.lose(Lost::Broken(why)),
        };
        match self.welcome(&payload) {
            Ok(welcome) => {
                self.outputs.push_back(Output::Send(welcome.encode()));
                self.state = State::Informing { until };
                self.frames();
            }
            Err(why) => {
                let refusal = Welcome::Refused(Status::NOT_SUPPORTED);
                self.outputs.push_back(Output::Send(refusal.encode()));
                self.lose(Lost::Broken(why));
            }
        }
    }

    /// Checks who connects, takes over the format, and returns the answer.
    fn welcome(&mut self, payload: &bytes::Bytes) -> Result<Welcome, Error> {
        let stranger = |got| Error::PeerMisbehaved {
            expected: "the launcher that this tool has started",
            got,
        };
        let hello = Hello::decode(payload)?;
        let format = hello.format()?;
        let kinds = [
            ConnectorKind::NamedTool,
            ConnectorKind::ClientTool,
            ConnectorKind::NamedLauncher,
            ConnectorKind::ClientLauncher,
        ];
        if !kinds.contains(&hello.kind) {
            return Err(stranger("a process of another kind"));
        }
        let expected = self.terms.as_ref().and_then(|terms| terms.launcher.clone());
        let launcher = match (hello.proc.clone(), expected) {
            (Some(proc), Some(expected)) if proc != expected => {
                return Err(stranger("a process with another name"));
            }
            (Some(proc), _) => proc,
            (None, _) => return Err(stranger("a process without a name")),
        };
        self.config.codec = match format.family {
            Family::Fixed => Codec::V3,
            Family::Flex => Codec::V41,
        };
        self.config.items = format.items;
        self.config.server_version = Some(hello.version_numbers());
        let server = self.config.server.server().clone();
        self.peer = Some((launcher, hello.version));
        Ok(Welcome::Tool {
            assigned: None,
            server,
            security: Status::SUCCESS,
        })
    }

    /// Answers a request of the launcher.
    pub(super) fn asked(&mut self, tag: u32, payload: &[u8]) {
        let format = self.config.format();
        let request = match Request::decode(format, payload) {
            Ok(request) => request,
            Err(why) => {
                self.event(Event::Ignored { tag, why });
                return self.reply(tag, &Answer::Status(Status::UNPACK_FAILURE));
            }
        };
        let status = match request {
            Request::JobInfo => return self.inform(tag),
            Request::Deregister { .. } => return,
            Request::Register { .. } | Request::Finalize => Status::SUCCESS,
            Request::Notify {
                status,
                range,
                infos,
            } => {
                if let Some((source, _)) = self.peer.clone() {
                    self.event(Event::Push(Push::Event {
                        status,
                        source,
                        infos,
                        range: Some(range),
                    }));
                }
                Status::SUCCESS
            }
            _ => Status::NOT_SUPPORTED,
        };
        self.reply(tag, &Answer::Status(status));
    }

    /// Tells the launcher its job info. With the first one the connection is ready.
    fn inform(&mut self, tag: u32) {
        let (Some(terms), Some((server, version))) = (&self.terms, self.peer.clone()) else {
            return;
        };
        let me = terms.uri.server().clone();
        let nspace = server.nspace.clone();
        let facts = terms.facts(&nspace, &version);
        self.reply(tag, &Answer::JobInfo { nspace, facts });
        if let State::Informing { .. } = self.state {
            self.state = State::Ready { index: 0 };
            self.event(Event::Ready { me, server });
        }
    }

    fn reply(&mut self, tag: u32, answer: &Answer) {
        let mut writer = Writer::appending_to(self.config.format(), frame::start(0));
        answer.encode(&mut writer);
        let message = frame::finish(writer.into_bytes(), Tag::Request(tag));
        self.outputs.push_back(Output::Send(message));
    }
}
