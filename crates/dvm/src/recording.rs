//! Recordings: what entered and left the state machines of one process, in a form from which the simulator replays it.
//!
//! `docs/formats/recording.md` describes the format. Hidden here: the encoding, and which contents a recording omits.
//! [`Event::hide`] replaces values of environment variables, and the text that ranks read and write. Controller and daemon
//! pass these on without looking at them, except for line feeds. So they behave alike with the replacements.
//!
//! The contents of preloaded files stay in inputs, because both machines compute their digests. In outputs, which are only
//! compared, the digest of a chunk replaces it.

use std::{ffi::OsString, sync::Arc};

use base::{NodeId, Time};
use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    ControllerInput, ControllerOutput, DaemonConfig, Input, Output,
    alloc::Allocation,
    machine::{Ask, Batch},
    preload::FileAct,
    proto::{self, FromFront, ToController, ToDaemon, ToFront, ToPreload, ToServer},
    spec::App,
};

/// Version of the format. The events also depend on the version of the messages ([`proto::VERSION`]).
pub const VERSION: u32 = 2;
/// Maximum length of an encoded event, in bytes. A message between two processes, with what belongs to it, fits.
pub const EVENT_MAX: usize = 65 * 1024 * 1024;

const MAGIC: [u8; 8] = *b"RALLYREC";
const PREAMBLE: usize = MAGIC.len() + 2 * size_of::<u32>();
/// Size of the length before each event, in bytes.
const HEAD: usize = size_of::<u32>();

/// The replacement for the value of an environment variable.
const HIDDEN: &str = "?";
/// The replacement for each byte of text, except for line feeds.
const BLANK: u8 = b'x';

/// An event of a state machine, in the order in which the process made them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event<'a> {
    /// The process has made its controller, with these arguments.
    Controller {
        allocation: Allocation,
        name: String,
    },
    /// The process has made a daemon.
    Daemon(Box<DaemonConfig>),
    ControllerGets(Time, Box<ControllerInput>),
    ControllerSends(Box<ControllerOutput>),
    /// The controller has no output. Its deadline follows.
    ControllerIdle(Option<Time>),
    DaemonGets(NodeId, Time, #[serde(borrow)] Box<Input<'a>>),
    /// The daemon has lost the controller.
    DaemonLoses(NodeId, Time),
    DaemonSends(NodeId, Box<Output>),
    /// The daemon has no output. Its deadline follows.
    DaemonIdle(NodeId, Option<Time>),
}

/// Why bytes are no recording that we can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    #[error("this is no recording of `rally run --record`")]
    Foreign,
    #[error(
        "the recording has version {format}.{messages}, and this program reads {VERSION}.{}: use the sources of the `rally` that wrote it",
        proto::VERSION
    )]
    Version { format: u32, messages: u32 },
    #[error("an event of {length} bytes is longer than {EVENT_MAX}, or empty")]
    Length { length: usize },
    #[error("an event does not decode")]
    Undecodable,
    #[error("an event cannot be encoded")]
    Unencodable,
}

/// Returns the first bytes of a recording.
#[must_use]
pub fn preamble() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(proto::VERSION.to_le_bytes());
    bytes
}

impl<'a> Event<'a> {
    /// Encodes the event: its length, then the event.
    ///
    /// # Errors
    ///
    /// The event is too long.
    pub fn encode(&self) -> Result<Vec<u8>, RecordingError> {
        let encoded = postcard::to_extend(self, vec![0; HEAD]);
        let mut bytes = encoded.map_err(|_| RecordingError::Unencodable)?;
        let length = bytes.len() - HEAD;
        match u32::try_from(length) {
            Ok(written) if length <= EVENT_MAX => {
                bytes[..HEAD].copy_from_slice(&written.to_le_bytes());
                Ok(bytes)
            }
            _ => Err(RecordingError::Length { length }),
        }
    }

    /// Decodes an event that [`Reader::next_event`] has returned.
    ///
    /// # Errors
    ///
    /// The bytes are no event, or more than one.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, RecordingError> {
        match postcard::take_from_bytes(bytes) {
            Ok((event, [])) => Ok(event),
            Ok(_) | Err(_) => Err(RecordingError::Undecodable),
        }
    }

    /// Replaces what a recording must not contain.
    #[must_use]
    pub fn hide(mut self) -> Self {
        match &mut self {
            Self::ControllerGets(_, input) => match &mut **input {
                ControllerInput::Front(
                    _,
                    FromFront::Submit(spec) | FromFront::SubmitBeside(spec),
                ) => hide_apps(&mut spec.apps),
                ControllerInput::Front(_, FromFront::StartTool(request)) => {
                    hide_apps(&mut request.spec.apps);
                }
                ControllerInput::Front(_, FromFront::Ask(ask)) => {
                    if let Ask::Submit(submission) = &mut **ask {
                        hide_apps(&mut submission.spec.apps);
                    }
                }
                // A recording is of one run, and begins with an empty store.
                ControllerInput::Machine(setup) => setup.stored.clear(),
                ControllerInput::Fetched(Ok(values)) => values.clear(),
                ControllerInput::Front(_, FromFront::Stdin(bytes)) => blank(bytes),
                ControllerInput::Daemon(_, message) | ControllerInput::Daemons(_, message) => {
                    hide_report(message);
                }
                _ => {}
            },
            Self::ControllerSends(output) => match &mut **output {
                ControllerOutput::Front(_, ToFront::Output { chunk, .. }) => {
                    blank(&mut chunk.bytes);
                }
                ControllerOutput::Store(Batch(writes)) => {
                    for write in writes {
                        if let Some(value) = &mut write.value {
                            blank(value);
                        }
                    }
                }
                ControllerOutput::Capture { bytes, .. } => blank(bytes),
                ControllerOutput::Daemon(_, message) => {
                    hide_order(message);
                    if let ToDaemon::Preload {
                        what: ToPreload::Chunk { bytes, .. },
                        ..
                    } = message
                    {
                        digest(bytes);
                    }
                }
                ControllerOutput::FindFiles { wanted, .. } => {
                    for search in wanted.iter_mut().filter_map(|file| file.search.as_mut()) {
                        *search = OsString::from(HIDDEN);
                    }
                }
                _ => {}
            },
            Self::DaemonGets(_, _, input) => match &mut **input {
                Input::Message(message) => hide_order(message),
                Input::Output { bytes, .. } => blank(bytes),
                _ => {}
            },
            Self::DaemonSends(_, output) => match &mut **output {
                Output::Send(message) => hide_report(message),
                Output::Prepare { apps, .. } => hide_apps(apps),
                Output::WriteStdin { bytes, .. } => blank(bytes),
                Output::Files {
                    act: FileAct::Write { bytes },
                    ..
                } => digest(bytes),
                _ => {}
            },
            Self::Controller { .. }
            | Self::Daemon(_)
            | Self::ControllerIdle(_)
            | Self::DaemonLoses(..)
            | Self::DaemonIdle(..) => {}
        }
        self
    }

    /// Returns true if a replayed state machine did what the recorded one did. Both events are without hidden contents.
    ///
    /// A PMIx client may get output of other ranks. The recording has that output only as bytes of the client's
    /// connection, and the replay has the replacement.
    #[must_use]
    pub fn is_repeated_by(&self, replayed: &Self) -> bool {
        if let (Self::DaemonSends(node, ours), Self::DaemonSends(same_node, theirs)) =
            (self, replayed)
            && let (
                Output::ClientSend { conn, bytes },
                Output::ClientSend {
                    conn: same_conn,
                    bytes: again,
                },
            ) = (&**ours, &**theirs)
        {
            let is_same = |(one, other): (&u8, &u8)| one == other || *other == BLANK;
            return (node, conn, bytes.len()) == (same_node, same_conn, again.len())
                && bytes.iter().zip(again).all(is_same);
        }
        self == replayed
    }
}

fn hide_order(message: &mut ToDaemon) {
    match message {
        ToDaemon::Launch(launch) | ToDaemon::LaunchedElsewhere(launch) => {
            hide_apps(&mut Arc::make_mut(launch).apps);
        }
        ToDaemon::Stdin { bytes, .. } | ToDaemon::Push { bytes, .. } => blank(bytes),
        ToDaemon::Server(message) => {
            if let ToServer::Output { bytes, .. } = &mut **message {
                blank(bytes);
            }
        }
        _ => {}
    }
}

fn hide_report(message: &mut ToController) {
    match message {
        ToController::Output { chunk, .. } => blank(&mut chunk.bytes),
        ToController::Push { bytes, .. } => blank(bytes),
        _ => {}
    }
}

fn hide_apps(apps: &mut [App]) {
    for app in apps {
        app.search = OsString::from(HIDDEN);
        // Which of these names a spawned program keeps depends on the values. No state machine reads them otherwise.
        Arc::make_mut(&mut app.elsewhere).own.clear();
        app.env = app.env.iter().map(|(name, _)| (name, HIDDEN)).collect();
    }
}

/// Replaces text. The length and the line feeds stay, because the daemon cuts output at them.
fn blank(bytes: &mut Bytes) {
    let blank = |byte: &u8| if *byte == b'\n' { b'\n' } else { BLANK };
    *bytes = bytes.iter().map(blank).collect();
}

/// Replaces bytes of a preloaded file.
fn digest(bytes: &mut Bytes) {
    *bytes = Bytes::copy_from_slice(&Sha256::digest(&*bytes));
}

/// Cuts a recording into events.
#[derive(Debug, Default)]
pub struct Reader {
    bytes: BytesMut,
    has_preamble: bool,
}

impl Reader {
    /// Appends bytes that were read. Take all events before the next call: then the reader keeps less than one.
    pub fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the bytes of the next event. `None` if it is not complete.
    ///
    /// # Errors
    ///
    /// The bytes are no recording that we can read.
    pub fn next_event(&mut self) -> Result<Option<Bytes>, RecordingError> {
        if !self.has_preamble {
            let beginning = self.bytes.len().min(MAGIC.len());
            if self.bytes[..beginning] != MAGIC[..beginning] {
                return Err(RecordingError::Foreign);
            }
            let Some(preamble) = self.bytes.first_chunk::<PREAMBLE>() else {
                return Ok(None);
            };
            let number = |at: usize| {
                preamble[at..]
                    .first_chunk()
                    .copied()
                    .map(u32::from_le_bytes)
            };
            let format = number(MAGIC.len()).unwrap_or_default();
            let messages = number(MAGIC.len() + 4).unwrap_or_default();
            if (format, messages) != (VERSION, proto::VERSION) {
                return Err(RecordingError::Version { format, messages });
            }
            drop(self.bytes.split_to(PREAMBLE));
            self.has_preamble = true;
        }
        let Some(length) = self.bytes.first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 || length > EVENT_MAX {
            return Err(RecordingError::Length { length });
        }
        if self.bytes.len() < HEAD + length {
            return Ok(None);
        }
        drop(self.bytes.split_to(HEAD));
        Ok(Some(self.bytes.split_to(length).freeze()))
    }

    /// Returns true if the recording ends inside an event, or before its first one.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        !self.has_preamble || !self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests;
