//! The side of a rank, for programs of ours and for tests of the server.

use crate::pmi::{
    Answer, Error, Kind, Request, SUBVERSION, VERSION,
    error::shorten,
    wire::{Framer, Message},
};

/// One rank's side of a connection: one request at a time, and the answer to it.
///
/// ```
/// # use pmix::pmi::{Answer, Client, Request};
/// let mut client = Client::default();
/// assert_eq!(client.request(&Client::INIT)?, b"cmd=init pmi_version=1 pmi_subversion=1\n");
/// let answer = client.receive(b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n")?;
/// assert_eq!(answer, Some(Answer::Init { version: 1, subversion: 1 }));
/// # Ok::<(), pmix::pmi::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Client {
    framer: Framer,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// Nothing is outstanding.
    #[default]
    Idle,
    /// The answer to this kind of request has not come.
    Waiting(Kind),
    /// Finalized, aborted, or the server misbehaved.
    Ended,
}

impl Client {
    /// The request that every connection starts with.
    pub const INIT: Request = Request::Init {
        version: VERSION,
        subversion: SUBVERSION,
    };

    /// The bytes to send for `request`.
    ///
    /// # Errors
    ///
    /// `Malformed` or `Limit` when the request cannot be written; nothing has changed then. `PeerMisbehaved` when it
    /// is the caller who misbehaves: the answer to the request before is outstanding, or the connection has ended.
    pub fn request(&mut self, request: &Request) -> Result<Vec<u8>, Error> {
        let message = request.message();
        let expected = match self.state {
            State::Idle => {
                let bytes = message.encode()?;
                let kind = request.kind();
                self.state = if kind == Kind::Abort {
                    State::Ended
                } else {
                    State::Waiting(kind)
                };
                return Ok(bytes);
            }
            State::Waiting(_) => "no request before the answer to the last one",
            State::Ended => "no request after the end",
        };
        Err(Error::PeerMisbehaved {
            expected,
            got: message.name().to_owned(),
        })
    }

    /// Takes bytes of the server, and gives the answer as soon as it is complete.
    ///
    /// # Errors
    ///
    /// The server does not speak the protocol, or answers something else than was asked. The connection is of no use
    /// after that.
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
                Ok(Some(answer))
            }
            (State::Waiting(asked), _) => Err(Error::PeerMisbehaved {
                expected: asked.answer(),
                got: shorten(message.name()),
            }),
            (State::Idle | State::Ended, _) => Err(Error::PeerMisbehaved {
                expected: "no answer without a request",
                got: shorten(message.name()),
            }),
        }
    }
}
