//! The rank's side of PMI, for our own programs and for tests of the server.

use crate::pmi::{
    Answer, Dialect, Error, Kind, Request,
    error::shorten,
    wire::{Framer, Message},
};

/// The rank's side of a connection: one request at a time, then its answer.
///
/// ```
/// # use pmix::pmi::{Answer, Client, Dialect, Request};
/// let mut client = Client::new(Dialect::One);
/// assert_eq!(client.init()?, b"cmd=init pmi_version=1 pmi_subversion=1\n");
/// let answer = client.receive(b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n")?;
/// assert_eq!(answer, Some(Answer::Init { version: 1, subversion: 2 }));
/// # Ok::<(), pmix::pmi::Error>(())
/// ```
#[derive(Debug)]
pub struct Client {
    dialect: Dialect,
    framer: Framer,
    state: State,
}

#[derive(Debug)]
enum State {
    /// No request is outstanding.
    Idle,
    /// A request of this kind is outstanding.
    Waiting(Kind),
    /// The client has finalized or aborted, or the server misbehaved.
    Ended,
}

impl Client {
    /// Creates a client that has sent nothing yet.
    #[must_use]
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            framer: Framer::default(),
            state: State::Idle,
        }
    }

    /// Returns the bytes of the first request of every connection. In PMI-2 a [`Request::FullInit`] follows.
    ///
    /// # Errors
    ///
    /// As [`Self::request`].
    pub fn init(&mut self) -> Result<Vec<u8>, Error> {
        self.request(&Self::first(self.dialect))
    }

    /// Returns the first request of every connection.
    #[must_use]
    pub const fn first(dialect: Dialect) -> Request {
        let (version, subversion) = match dialect {
            // Every client of PMI-1 announces 1.1, whatever it supports: the server's answer has the minor version that applies.
            Dialect::One => (1, 1),
            Dialect::Two => dialect.version(),
        };
        Request::Init {
            version,
            subversion,
        }
    }

    /// Returns the bytes to send for `request`.
    ///
    /// # Errors
    ///
    /// `Malformed` or `Limit` when the request cannot be encoded, `Unsupported` when the dialect does not have it; the state is
    /// unchanged then. `PeerMisbehaved` when the caller breaks the order: a request is still outstanding, or the connection has
    /// ended.
    pub fn request(&mut self, request: &Request) -> Result<Vec<u8>, Error> {
        self.requests(std::slice::from_ref(request))
    }

    /// Returns the bytes to send for several requests that have one answer: the parts of a spawn.
    ///
    /// # Errors
    ///
    /// As [`Self::request`].
    pub fn requests(&mut self, requests: &[Request]) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        for request in requests {
            if request.kind().request(self.dialect).is_empty() {
                let what = format!("{:?}", request.kind());
                return Err(Error::Unsupported { what });
            }
            let message = request.message(self.dialect);
            let expected = match self.state {
                State::Idle => None,
                State::Waiting(_) => Some("no request before the answer to the last one"),
                State::Ended => Some("no request after the end"),
            };
            if let Some(expected) = expected {
                return Err(Error::PeerMisbehaved {
                    expected,
                    got: message.name().to_owned(),
                });
            }
            bytes.extend(message.encode()?);
        }
        if let Some(last) = requests.last() {
            self.state = match last.kind() {
                Kind::Abort => State::Ended,
                kind => State::Waiting(kind),
            };
        }
        Ok(bytes)
    }

    /// Processes received bytes, and returns the answer once it is complete.
    ///
    /// # Errors
    ///
    /// The server breaks the protocol, or its answer does not match the request. The connection is unusable afterwards.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Error> {
        self.framer.push(bytes);
        let answer = self
            .framer
            .next()
            .and_then(|message| message.map_or(Ok(None), |message| self.take(&message)));
        if answer.is_err() {
            self.state = State::Ended;
        }
        answer
    }

    fn take(&mut self, message: &Message) -> Result<Option<Answer>, Error> {
        let answer = Answer::decode(message)?;
        match (&self.state, answer.kind()) {
            (State::Waiting(asked), kind) if *asked == kind && self.framer.is_empty() => {
                self.state = if matches!(answer, Answer::Finalize) {
                    State::Ended
                } else {
                    State::Idle
                };
                if self.dialect == Dialect::Two && matches!(answer, Answer::Init { .. }) {
                    self.framer.count();
                }
                Ok(Some(answer))
            }
            (State::Waiting(_), _) => Err(Error::PeerMisbehaved {
                expected: "the answer to what was asked",
                got: shorten(message.name()),
            }),
            (State::Idle | State::Ended, _) => Err(Error::PeerMisbehaved {
                expected: "no answer without a request",
                got: shorten(message.name()),
            }),
        }
    }
}
