//! The side of a launcher that a tool has started: it connects to the tool, and then serves it over this connection.
//!
//! The launcher finds the tool's address in its environment. It connects as a tool does, and asks for its job info, in which the
//! tool's directives for the job are. From then on the roles are reversed: the tool sends requests, and the launcher's server answers
//! them ([`crate::server::Input::Called`]). `docs/formats/indirect-launch.md` describes the whole.
//!
//! | state | received | next state |
//! |---|---|---|
//! | `Greeting` | the whole welcome | `Asking`; a refusal fails |
//! | `Asking` | the answer to the request | `Called` is returned |
//! | `Asking` | a request of the tool | kept, for the server |
//!
//! The caller limits the whole in time.

#[cfg(test)]
mod tests;

use std::ffi::CStr;

use bytes::Bytes;

use crate::{
    Error,
    client::{Config, Connector, ServerUri, UriError, version_numbers},
    codec::{Format, Writer},
    frame::{self, Framer, Tag},
    handshake::{Owner, Welcome},
    keys,
    message::{Answer, Request, Shape},
    value::{Info, Nspace, PmixRank, Proc, Status},
};

/// The tag of the only request. Tools count from 101, or from 2147483699, and both ends send requests over one connection.
const TAG: u32 = 0x4000_0001;
/// Bytes of requests that a tool may send before it answers. The connection of one that sends more is given up.
pub const EARLY_REQUESTS_MAX: usize = 1 << 20;

/// A launcher that connects to the tool that has started it.
#[derive(Debug)]
pub struct Callback {
    config: Config,
    me: Proc,
    state: State,
    framer: Framer,
    early: Vec<u8>,
}

#[derive(Debug)]
enum State {
    Greeting { begun: Vec<u8> },
    Asking { tool: Proc },
}

/// What a launcher does next.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Send these bytes, and receive more.
    Send(Vec<u8>),
    /// Receive more.
    Receive,
    /// The tool has answered.
    Called(Box<Called>),
}

/// A tool that has started this launcher, and is served from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct Called {
    pub tool: Proc,
    /// The name that the tool knows the launcher by.
    pub me: Proc,
    /// Version of the tool's library, if it is known.
    pub version: Option<[u32; 3]>,
    /// Directives for the job, as in a spawn request.
    pub directives: Vec<Info>,
    /// Received bytes that are for the server.
    pub rest: Bytes,
}

/// Why a tool cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    #[error("it refuses the connection: {0}")]
    Refused(Status),
    #[error(transparent)]
    Protocol(#[from] Error),
    #[error(
        "it sends more than {EARLY_REQUESTS_MAX} bytes of requests before it answers that of the launcher"
    )]
    TooEarly,
}

impl Callback {
    /// Creates the launcher's side of a new connection to `tool`, and returns the first bytes to send.
    #[must_use]
    pub fn new(
        tool: ServerUri,
        me: Proc,
        owner: Owner,
        pid: u32,
        command_line: &str,
    ) -> (Self, Vec<u8>) {
        let connector = Connector::NamedTool(me.clone());
        let config = Config::new(tool, connector, owner).describe(pid, command_line);
        let hello = frame::handshake(&config.hello().encode());
        let callback = Self {
            config,
            me,
            state: State::Greeting { begun: Vec::new() },
            framer: Framer::default(),
            early: Vec::new(),
        };
        (callback, hello)
    }

    /// The format of the connection, in which the server answers.
    const fn format(&self) -> Format {
        self.config.format()
    }

    /// Handles received bytes.
    ///
    /// # Errors
    /// See [`CallbackError`]. The connection is of no use any more.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<Step, CallbackError> {
        match &mut self.state {
            State::Greeting { begun } => {
                begun.extend_from_slice(bytes);
                let begun = std::mem::take(begun);
                self.greeted(begun)
            }
            State::Asking { .. } => {
                self.framer.push(bytes);
                self.answered()
            }
        }
    }

    fn greeted(&mut self, bytes: Vec<u8>) -> Result<Step, CallbackError> {
        let kind = self.config.connector.kind();
        let Some((welcome, used)) = Welcome::decode(kind, &bytes)? else {
            self.state = State::Greeting { begun: bytes };
            return Ok(Step::Receive);
        };
        let tool = match welcome {
            Welcome::Tool {
                server,
                security: Status::SUCCESS,
                ..
            } => server,
            Welcome::Tool {
                security: status, ..
            }
            | Welcome::Refused(status)
            | Welcome::Client { status, .. } => return Err(CallbackError::Refused(status)),
        };
        // Requests of the tool may follow at once; they are read with the answer.
        self.framer.push(bytes.get(used..).unwrap_or_default());
        self.state = State::Asking { tool };
        let mut writer = Writer::appending_to(self.format(), frame::start(0));
        Request::JobInfo.encode(&mut writer);
        let request = frame::finish(writer.into_bytes(), Tag::Request(TAG));
        Ok(Step::Send(request))
    }

    fn answered(&mut self) -> Result<Step, CallbackError> {
        while let Some(message) = self.framer.next_frame()? {
            if message.tag != Tag::Request(TAG) {
                self.early.extend(message.to_bytes());
                if self.early.len() > EARLY_REQUESTS_MAX {
                    return Err(CallbackError::TooEarly);
                }
                continue;
            }
            let State::Asking { tool } = &self.state else {
                break;
            };
            let answer = Answer::decode(self.format(), Shape::JobInfo, &message.payload)?;
            let Answer::JobInfo { facts, .. } = answer else {
                break;
            };
            let fact = |key: &CStr| facts.iter().find(|fact| fact.key == *key);
            let directives = fact(keys::LAUNCH_DIRECTIVES).and_then(|fact| fact.value.as_infos());
            let version = fact(keys::LIBRARY_VERSION).and_then(|fact| fact.value.as_text());
            let version = version.and_then(|text| version_numbers(text.to_str().ok()?));
            let tool = tool.clone();
            let mut rest = std::mem::take(&mut self.early);
            rest.extend(self.framer.take_rest());
            return Ok(Step::Called(Box::new(Called {
                tool,
                me: self.me.clone(),
                version,
                directives: directives.into_iter().flatten().cloned().collect(),
                rest: rest.into(),
            })));
        }
        Ok(Step::Receive)
    }
}

/// What the environment says of a tool that has started this launcher.
#[derive(Clone, Debug, PartialEq)]
pub struct Summons {
    pub tool: ServerUri,
    /// The name that the launcher must have; `None` if it chooses one.
    pub me: Option<Proc>,
}

impl Summons {
    /// Reads the environment; `None` if no tool has started this launcher.
    ///
    /// # Errors
    /// The address is none.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, UriError> {
        let Some(address) = variable(ADDRESS) else {
            return Ok(None);
        };
        let name = variable("PMIX_SERVER_NSPACE").zip(variable("PMIX_SERVER_RANK"));
        let me = name.and_then(|(nspace, rank)| {
            Some(Proc {
                nspace: Nspace::from_text(&nspace).ok()?,
                rank: PmixRank(rank.trim().parse().ok()?),
            })
        });
        Ok(Some(Self {
            tool: address.parse()?,
            me,
        }))
    }
}

/// The variable with the address of the tool that has started a launcher.
pub const ADDRESS: &str = "PMIX_LAUNCHER_RNDZ_URI";
