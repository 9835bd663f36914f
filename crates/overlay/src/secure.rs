//! One connection between two processes of a session: the handshake, and encrypted records.
//!
//! Each side begins with a preamble in clear text: magic bytes, the version of the protocol, and the build. Two builds that
//! differ can thus name each other. Then the sides perform a Noise handshake (`NNpsk0`) with the session's secret as the
//! pre-shared key. Both preambles are its prologue, so a changed preamble makes the handshake fail. After it, the stream
//! consists of records: a length of two bytes and an encrypted body of at most [`RECORD_MAX`] bytes. The format is described
//! in `docs/formats/node-link.md`.
//!
//! | state | what has been received | what is sent | next state |
//! |---|---|---|---|
//! | `Dialed` | the acceptor's preamble, same version and build | first handshake message | `Awaiting` |
//! | `Accepted` | the dialer's preamble, same version and build | preamble | `Expecting` |
//! | `Dialed`, `Accepted` | another preamble | preamble (acceptor, unless the magic bytes differ) | `Broken` |
//! | `Expecting` | first handshake message, made with our secret | second handshake message | `Open` |
//! | `Awaiting` | second handshake message, made with our secret | – | `Open` |
//! | `Expecting`, `Awaiting` | another message | – | `Broken` |
//! | `Open` | a record that decrypts | – | `Open` |
//! | `Open` | another record | – | `Broken` |
//! | `Broken` | anything | – | `Broken` |
//!
//! The acceptor sends nothing before it has seen our magic bytes, so a port scan learns nothing. Nothing here does I/O: the
//! caller passes bytes in and takes bytes out. The caller limits the time of a handshake.

mod keys;
mod preamble;
#[cfg(test)]
mod tests;

use std::fmt;

use bytes::{Buf as _, Bytes, BytesMut};
use snow::{Builder, HandshakeState, TransportState};

use self::{
    keys::Primitives,
    preamble::{Preamble, take_preamble},
};
pub use self::{
    keys::{Entropy, Secret},
    preamble::Build,
};
use crate::planted::{self, Bug};

/// Version of the protocol between nodes. Increment it with every change to a message or its encoding.
pub const VERSION: u16 = 7;
/// Maximum length of a record's plaintext in bytes. A short control record never waits behind more than one long record
/// that the socket has not taken.
pub const RECORD_MAX: usize = 32 * 1024;
/// Most bytes of a record or a write that is not part of a stream: an empty buffer is given back after it. Most connections
/// are silent most of the time, and the root may have many.
const SHORT: usize = 1024;
/// Maximum length of the name of a build in bytes.
pub const BUILD_MAX: usize = 100;
const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_BLAKE2s";
/// Length of the authentication tag of an encrypted message in bytes.
const TAG: usize = 16;
/// Length of each of the two handshake messages: a public key and a tag.
const HANDSHAKE: usize = 32 + TAG;
/// Length of a record's length in bytes.
const HEAD: usize = 2;

/// Why a connection cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecureError {
    #[error("the peer speaks another protocol")]
    Foreign,
    #[error("the peer is `{theirs}`, and we are `{ours}`")]
    Build { theirs: String, ours: String },
    #[error(
        "the peer speaks version {theirs} of the protocol of nodes, and we speak {VERSION}; it is `{build}`"
    )]
    Version { theirs: u16, build: String },
    #[error("the peer does not know the secret of this session")]
    Secret,
    #[error("a record was changed on its way")]
    Record,
    #[error("a record of {length} bytes is empty or longer than {RECORD_MAX}")]
    Length { length: usize },
}

enum State {
    Dialed(Box<Own>),
    Accepted(Box<Own>),
    Awaiting(Box<HandshakeState>),
    Expecting(Box<HandshakeState>),
    Open(Box<TransportState>),
    Broken(SecureError),
}

/// What a handshake needs of our side.
struct Own {
    build: Build,
    secret: Secret,
    /// The private key of this handshake.
    key: [u8; 32],
}

/// One end of a connection.
pub struct Secure {
    state: State,
    incoming: BytesMut,
    outgoing: BytesMut,
}

impl fmt::Debug for Secure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Dialed(_) => "Dialed",
            State::Accepted(_) => "Accepted",
            State::Awaiting(_) => "Awaiting",
            State::Expecting(_) => "Expecting",
            State::Open(_) => "Open",
            State::Broken(_) => "Broken",
        };
        write!(f, "Secure({state})")
    }
}

impl Secure {
    /// Makes the end that has connected.
    #[must_use]
    pub fn dial(build: &Build, secret: &Secret, entropy: &mut Entropy) -> Self {
        let own = Own::new(build, secret, entropy);
        Self {
            incoming: BytesMut::new(),
            outgoing: BytesMut::from(&build.preamble()[..]),
            state: State::Dialed(own),
        }
    }

    /// Makes the end that has accepted the connection.
    #[must_use]
    pub fn accept(build: &Build, secret: &Secret, entropy: &mut Entropy) -> Self {
        Self {
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            state: State::Accepted(Own::new(build, secret, entropy)),
        }
    }

    /// Returns true if the handshake is complete: the peer has the secret, and [`Self::seal`] may be called.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Returns true at the dialing end if the acceptor has sent its preamble.
    #[must_use]
    pub(crate) const fn is_answered(&self) -> bool {
        !matches!(self.state, State::Dialed(_))
    }

    /// Appends bytes that were read, and continues the handshake.
    pub fn take(&mut self, bytes: &[u8]) {
        if !matches!(self.state, State::Broken(_)) {
            self.incoming.extend_from_slice(bytes);
            while self.step() == Step::Again {}
        }
    }

    /// Returns the plaintext of the next complete record.
    ///
    /// # Errors
    ///
    /// The reason why the connection cannot be used, in this call and all later ones.
    pub fn record(&mut self) -> Result<Option<Bytes>, SecureError> {
        let transport = match &mut self.state {
            State::Open(transport) => transport,
            State::Broken(error) => return Err(error.clone()),
            _ => return Ok(None),
        };
        let Some(head) = self.incoming.first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_le_bytes(*head));
        if length <= TAG || length > RECORD_MAX + TAG {
            return self.fail(SecureError::Length { length });
        }
        if self.incoming.len() < HEAD + length {
            return Ok(None);
        }
        let sealed = self.incoming.split_to(HEAD + length);
        if self.incoming.is_empty() && length <= SHORT {
            self.incoming = BytesMut::new();
        }
        // With room for the tag, the cipher works in place.
        let mut plain = vec![0; length];
        match transport.read_message(&sealed[HEAD..], &mut plain) {
            Ok(read) => {
                plain.truncate(read);
                Ok(Some(Bytes::from(plain)))
            }
            Err(_) => self.fail(SecureError::Record),
        }
    }

    /// Encrypts one record of at most [`RECORD_MAX`] bytes, and appends it to the outgoing bytes.
    pub fn seal(&mut self, plain: &[u8]) {
        debug_assert!(!plain.is_empty() && plain.len() <= RECORD_MAX);
        let State::Open(transport) = &mut self.state else {
            debug_assert!(false, "sealed before the handshake was complete");
            return;
        };
        let start = self.outgoing.len();
        let length = plain.len() + TAG;
        self.outgoing.resize(start + HEAD + length, 0);
        let (head, body) = self.outgoing[start..].split_at_mut(HEAD);
        head.copy_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
        let sealed = transport.write_message(plain, body);
        debug_assert_eq!(sealed, Ok(length));
    }

    /// Returns the bytes to write.
    #[must_use]
    pub fn outgoing(&self) -> &[u8] {
        &self.outgoing
    }

    /// Removes `count` bytes that were written.
    pub fn written(&mut self, count: usize) {
        self.outgoing.advance(count.min(self.outgoing.len()));
        if self.outgoing.is_empty() && count <= SHORT {
            self.outgoing = BytesMut::new();
        }
    }

    /// Performs one step of the handshake, if enough bytes have come for it.
    fn step(&mut self) -> Step {
        // The placeholder is never seen: each path below sets the state.
        let state = std::mem::replace(&mut self.state, State::Broken(SecureError::Foreign));
        match state.step(&mut self.incoming, &mut self.outgoing) {
            Ok((state, step)) => {
                self.state = state;
                step
            }
            Err(error) => {
                self.incoming = BytesMut::new();
                self.state = State::Broken(error);
                Step::Wait
            }
        }
    }

    fn fail<T>(&mut self, error: SecureError) -> Result<T, SecureError> {
        self.incoming = BytesMut::new();
        self.state = State::Broken(error.clone());
        Err(error)
    }
}

impl State {
    /// Performs one step of the handshake; see the table in the module's documentation.
    fn step(
        self,
        incoming: &mut BytesMut,
        outgoing: &mut BytesMut,
    ) -> Result<(Self, Step), SecureError> {
        let next = match self {
            Self::Dialed(own) => match take_preamble(incoming)? {
                None => return Ok((Self::Dialed(own), Step::Wait)),
                Some(theirs) => own.begin(&theirs, outgoing)?,
            },
            Self::Accepted(own) => match take_preamble(incoming)? {
                None => return Ok((Self::Accepted(own), Step::Wait)),
                Some(theirs) => {
                    outgoing.extend_from_slice(&own.build.preamble());
                    own.expect(&theirs)?
                }
            },
            Self::Expecting(mut handshake) => match take_handshake(incoming) {
                None => return Ok((Self::Expecting(handshake), Step::Wait)),
                Some(message) => {
                    read_handshake(&mut handshake, &message)?;
                    write_handshake(&mut handshake, outgoing)?;
                    open(*handshake)?
                }
            },
            Self::Awaiting(mut handshake) => match take_handshake(incoming) {
                None => return Ok((Self::Awaiting(handshake), Step::Wait)),
                Some(message) => {
                    read_handshake(&mut handshake, &message)?;
                    open(*handshake)?
                }
            },
            Self::Open(_) | Self::Broken(_) => return Ok((self, Step::Wait)),
        };
        Ok((next, Step::Again))
    }
}

/// Whether another step may be possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Again,
    Wait,
}

impl Own {
    fn new(build: &Build, secret: &Secret, entropy: &mut Entropy) -> Box<Self> {
        Box::new(Self {
            build: build.clone(),
            secret: if planted::is(Bug::SecretIgnored) {
                Secret::new([0; 32])
            } else {
                secret.clone()
            },
            key: entropy.next(),
        })
    }

    /// Begins the handshake as the dialer.
    fn begin(&self, theirs: &Preamble, outgoing: &mut BytesMut) -> Result<State, SecureError> {
        self.check(theirs)?;
        let ours = self.build.preamble();
        let mut handshake = self.handshake(&[&ours, &theirs.bytes], Side::Dialer)?;
        write_handshake(&mut handshake, outgoing)?;
        Ok(State::Awaiting(Box::new(handshake)))
    }

    /// Awaits the handshake as the acceptor.
    fn expect(&self, theirs: &Preamble) -> Result<State, SecureError> {
        self.check(theirs)?;
        let ours = self.build.preamble();
        let handshake = self.handshake(&[&theirs.bytes, &ours], Side::Acceptor)?;
        Ok(State::Expecting(Box::new(handshake)))
    }

    fn check(&self, theirs: &Preamble) -> Result<(), SecureError> {
        if theirs.version != VERSION {
            let (theirs, build) = (theirs.version, theirs.build.clone());
            return Err(SecureError::Version { theirs, build });
        }
        if theirs.build != self.build.0 && !planted::is(Bug::BuildNotCompared) {
            return Err(SecureError::Build {
                theirs: theirs.build.clone(),
                ours: self.build.0.clone(),
            });
        }
        Ok(())
    }

    fn handshake(&self, prologue: &[&[u8]], side: Side) -> Result<HandshakeState, SecureError> {
        let prologue = prologue.concat();
        let made = PATTERN.parse().and_then(|pattern| {
            let builder = Builder::with_resolver(pattern, Box::new(Primitives(self.key)))
                .psk(0, &self.secret.0)?
                .prologue(&prologue)?;
            match side {
                Side::Dialer => builder.build_initiator(),
                Side::Acceptor => builder.build_responder(),
            }
        });
        made.map_err(|_| SecureError::Secret)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Dialer,
    Acceptor,
}

fn take_handshake(incoming: &mut BytesMut) -> Option<Bytes> {
    (incoming.len() >= HANDSHAKE).then(|| incoming.split_to(HANDSHAKE).freeze())
}

fn write_handshake(
    handshake: &mut HandshakeState,
    outgoing: &mut BytesMut,
) -> Result<(), SecureError> {
    let mut message = [0; HANDSHAKE];
    match handshake.write_message(&[], &mut message) {
        Ok(HANDSHAKE) => {
            outgoing.extend_from_slice(&message);
            Ok(())
        }
        _ => Err(SecureError::Secret),
    }
}

fn read_handshake(handshake: &mut HandshakeState, message: &[u8]) -> Result<(), SecureError> {
    let mut payload = [0; HANDSHAKE];
    match handshake.read_message(message, &mut payload) {
        Ok(0) => Ok(()),
        _ => Err(SecureError::Secret),
    }
}

/// Takes the keys of a completed handshake.
fn open(handshake: HandshakeState) -> Result<State, SecureError> {
    match handshake.into_transport_mode() {
        Ok(transport) => Ok(State::Open(Box::new(transport))),
        Err(_) => Err(SecureError::Secret),
    }
}
