//! The stream between a front and the controller: frames of `overlay::wire` over a stream socket.
//!
//! The frames are described in `docs/formats/front-link.md`. Bulk data (output, input) is carried raw behind a small
//! header; everything else is postcard. Between the controller and the front that forked it, data in a slot of shared
//! memory is not copied. The frame only carries its place, and a release frame comes back when the bytes were used. Other
//! fronts get and send the bytes within the frames.

mod shared;
#[cfg(test)]
mod tests;

use std::{io::IoSlice, os::fd::BorrowedFd, path::PathBuf};

use base::{JobId, NodeId, Rank};
use bytes::{Bytes, BytesMut};
use dvm::{
    alloc::Allocation,
    bootstrap::DaemonPlan,
    prompts::ANSWER_MAX,
    proto::{CannotRun, Chunk, ChunkEnd, FromFront, Stream, ToFront},
    spec::JobSpec,
};
use os::{ReadOutcome, WriteOutcome};
use overlay::wire::{self, Incoming, Outgoing, WireError};
use zeroize::Zeroize as _;

use crate::{machine::MachinePlan, slurm::SlurmPlan};

use self::shared::{Malformed, Memory, fixed};

/// Bytes requested per read. Messages are small, and large data travels in shared memory.
const READ_SIZE: usize = 16 * 1024;

/// Bytes reserved for a message before it is encoded. An answer to a prompt fits, so that encoding leaves no copies of it.
const MESSAGE_ROOM: usize = 2 * ANSWER_MAX;

const KIND_MESSAGE: u8 = 0;
const KIND_OUTPUT: u8 = 1;
const KIND_OUTPUT_SHARED: u8 = 2;
const KIND_STDIN: u8 = 3;
const KIND_RELEASE: u8 = 4;
const KIND_STDIN_SHARED: u8 = 5;
const KIND_OPENING: u8 = 6;

/// The first message of the front that forked the controller.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Opening {
    pub allocation: Allocation,
    /// How the daemons of other nodes are started. `None` if the only node is this one.
    pub daemons: Option<DaemonPlan>,
    /// The file for a recording; `None`: nothing is recorded.
    pub recording: Option<PathBuf>,
    /// The controller is that of a machine.
    pub machine: Option<MachinePlan>,
    /// `None` if the front does not run inside a job of Slurm.
    pub slurm: Option<SlurmPlan>,
}

/// Why a link cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error(transparent)]
    Os(#[from] os::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the peer sent a frame of unknown kind {0}")]
    UnknownKind(u8),
    #[error("the peer sent a frame that does not decode: {0}")]
    Malformed(&'static str),
}

impl From<Malformed> for LinkError {
    fn from(Malformed(why): Malformed) -> Self {
        Self::Malformed(why)
    }
}

/// Whether the peer may send or take more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    Open,
    /// There is nothing to read now.
    Nothing,
    Closed,
}

/// Queued frames and unparsed bytes of one end. The event loop owns the descriptor.
#[derive(Debug)]
pub struct Link {
    end: End,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Buffer for reads, allocated once. What is read is copied out of it.
    buffer: Vec<u8>,
    /// The first error of encoding or queueing. Nothing is sent after it: the peer could not know that a message is
    /// missing.
    broken: Option<WireError>,
}

/// Whose end of a link it is. Answers to prompts, such as passwords, travel from the front to the controller: each end overwrites
/// what is left of them on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Front,
    Controller,
}

/// The end of a controller.
impl Default for Link {
    fn default() -> Self {
        Self::of(End::Controller)
    }
}

impl Link {
    fn of(end: End) -> Self {
        let outgoing = Outgoing::default();
        Self {
            end,
            outgoing: match end {
                End::Front => outgoing.erasing(),
                End::Controller => outgoing,
            },
            incoming: Incoming::default(),
            buffer: vec![0; READ_SIZE],
            broken: None,
        }
    }

    /// Returns true if frames are waiting to be written.
    pub fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    fn push(&mut self, kind: u8, fixed: &[u8], body: Bytes) {
        if self.broken.is_none() {
            self.broken = self.outgoing.push(kind, fixed, body).err();
        }
    }

    fn push_value<T: serde::Serialize>(&mut self, kind: u8, value: &T) {
        match wire::encode_within(value, MESSAGE_ROOM) {
            Ok(body) => self.push(kind, &[], body),
            Err(error) => self.broken = self.broken.or(Some(error)),
        }
    }

    /// Writes what the socket takes.
    ///
    /// # Errors
    ///
    /// Returns an error of the system, or the reason why a message could not be sent, which ends the link.
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<Received, LinkError> {
        self.check()?;
        while !self.outgoing.is_empty() {
            let pieces = self.outgoing.pieces().take(os::MAX_SLICES);
            let slices: Vec<IoSlice<'_>> = pieces.map(IoSlice::new).collect();
            match os::write_vectored(fd, &slices)? {
                WriteOutcome::Bytes(written) => self.outgoing.written(written),
                WriteOutcome::WouldBlock => break,
                WriteOutcome::Closed => return Ok(Received::Closed),
            }
        }
        Ok(Received::Open)
    }

    /// Reads once.
    ///
    /// # Errors
    ///
    /// Returns an error of the system.
    pub fn receive(&mut self, fd: BorrowedFd<'_>) -> Result<Received, LinkError> {
        Ok(match os::read(fd, &mut self.buffer)? {
            ReadOutcome::Bytes(read) => {
                let bytes = &mut self.buffer[..read];
                self.incoming.take(bytes);
                // What a front gets is mostly output, which is no secret, and may be much.
                if self.end == End::Controller {
                    bytes.zeroize();
                }
                Received::Open
            }
            ReadOutcome::WouldBlock => Received::Nothing,
            ReadOutcome::Closed => Received::Closed,
        })
    }

    /// Queues a release for each place in the peer's memory that is no longer used.
    fn give_back(&mut self, memory: &Memory) {
        for number in memory.used() {
            self.push(KIND_RELEASE, &number.to_le_bytes(), Bytes::new());
        }
    }

    fn check(&self) -> Result<(), LinkError> {
        match self.broken {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Returns the kind and the body of the next complete frame.
    fn frame(&mut self) -> Result<Option<(u8, Bytes)>, LinkError> {
        let frame = self.own_frame()?;
        Ok(frame.map(|(kind, body)| (kind, body.freeze())))
    }

    /// Returns the kind and the body of the next complete frame, which nobody else has.
    fn own_frame(&mut self) -> Result<Option<(u8, BytesMut)>, LinkError> {
        self.check()?;
        Ok(self.incoming.own_frame()?)
    }
}

/// Length of the header of an output frame, in bytes.
const OUTPUT_HEAD: usize = 14;

/// Returns the header of an output frame: node, job, rank, stream, end of the chunk.
fn output_head(node: NodeId, chunk: &Chunk) -> [u8; OUTPUT_HEAD] {
    let mut head = [0; OUTPUT_HEAD];
    head[..4].copy_from_slice(&node.0.to_le_bytes());
    head[4..8].copy_from_slice(&chunk.job.0.to_le_bytes());
    head[8..12].copy_from_slice(&chunk.rank.0.to_le_bytes());
    head[12] = match chunk.stream {
        Stream::Stdout => 1,
        Stream::Stderr => 2,
    };
    head[13] = match chunk.end {
        ChunkEnd::Line => 0,
        ChunkEnd::Partial => 1,
    };
    head
}

/// Decodes the header of an output frame: its node, and a chunk without bytes.
fn read_output_head(body: &mut Bytes) -> Result<(NodeId, Chunk), LinkError> {
    let node = NodeId(u32::from_le_bytes(fixed(body)?));
    let job = JobId(u32::from_le_bytes(fixed(body)?));
    let rank = Rank(u32::from_le_bytes(fixed(body)?));
    let [stream, end] = fixed(body)?;
    let stream = match stream {
        1 => Stream::Stdout,
        2 => Stream::Stderr,
        _ => return Err(LinkError::Malformed("an unknown stream")),
    };
    let end = match end {
        0 => ChunkEnd::Line,
        1 => ChunkEnd::Partial,
        _ => return Err(LinkError::Malformed("an unknown chunk end")),
    };
    let chunk = Chunk {
        job,
        rank,
        stream,
        bytes: Bytes::new(),
        end,
    };
    Ok((node, chunk))
}

/// The front's end of a link.
#[derive(Debug)]
pub struct FrontLink {
    pub link: Link,
    memory: Memory,
}

impl FrontLink {
    /// Makes the end of the front that forks the controller. The controller fills `output`, the front `input`.
    pub fn new(output: os::SlotReader, input: os::SlotWriter) -> Self {
        Self {
            link: Link::of(End::Front),
            memory: Memory::shared(input, output),
        }
    }

    /// Makes the end of a front that has connected to the controller.
    pub fn inline() -> Self {
        Self {
            link: Link::of(End::Front),
            memory: Memory::Apart,
        }
    }

    /// Queues the opening, which must be the first frame.
    pub fn open(&mut self, opening: &Opening) {
        self.link.push_value(KIND_OPENING, opening);
    }

    pub fn send(&mut self, message: FromFront) {
        match message {
            FromFront::Stdin(bytes) => match self.memory.lend(&bytes) {
                Some(place) => self.link.push(KIND_STDIN_SHARED, &place, Bytes::new()),
                None => self.link.push(KIND_STDIN, &[], bytes),
            },
            other => self.link.push_value(KIND_MESSAGE, &other),
        }
    }

    /// Queues the submission of a job, and gives the job back.
    pub fn submit(&mut self, spec: Box<JobSpec>) -> Box<JobSpec> {
        let message = FromFront::Submit(spec);
        self.link.push_value(KIND_MESSAGE, &message);
        match message {
            FromFront::Submit(spec) => spec,
            _ => unreachable!("it was made two lines above"),
        }
    }

    /// Returns a free slot to read input into.
    pub fn input_slot(&self) -> Option<os::Slot> {
        self.memory.slot()
    }

    /// Writes what the socket takes, including releases of output that was printed.
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<Received, LinkError> {
        self.link.give_back(&self.memory);
        self.link.flush(fd)
    }

    pub fn next_message(&mut self) -> Result<Option<ToFront>, LinkError> {
        loop {
            let Some((kind, mut body)) = self.link.frame()? else {
                return Ok(None);
            };
            let message = match kind {
                KIND_MESSAGE => wire::decode(&body)?,
                KIND_OUTPUT => {
                    let (node, chunk) = read_output_head(&mut body)?;
                    let chunk = Chunk {
                        bytes: body,
                        ..chunk
                    };
                    ToFront::Output { node, chunk }
                }
                KIND_OUTPUT_SHARED => {
                    let (node, chunk) = read_output_head(&mut body)?;
                    let bytes = self.memory.borrow(&mut body)?;
                    let chunk = Chunk { bytes, ..chunk };
                    ToFront::Output { node, chunk }
                }
                KIND_RELEASE => {
                    self.memory.on_release(&mut body)?;
                    continue;
                }
                other => return Err(LinkError::UnknownKind(other)),
            };
            return Ok(Some(message));
        }
    }
}

/// The controller's end of a link.
#[derive(Debug)]
pub struct ControllerLink {
    pub link: Link,
    memory: Memory,
}

impl ControllerLink {
    /// Continues the link from which the opening message was read.
    pub fn new(link: Link, output: os::SlotWriter, input: os::SlotReader) -> Self {
        Self {
            link,
            memory: Memory::shared(output, input),
        }
    }

    /// Makes the controller's end for a front that has connected.
    pub fn inline() -> Self {
        Self {
            link: Link::default(),
            memory: Memory::Apart,
        }
    }

    pub fn send(&mut self, message: ToFront) {
        match message {
            ToFront::Output { node, chunk } => {
                let head = output_head(node, &chunk);
                // The output of other nodes was decrypted into memory that is not shared.
                let bytes = self.memory.placed(chunk.bytes);
                match self.memory.lend(&bytes) {
                    Some(place) => self.link.push(
                        KIND_OUTPUT_SHARED,
                        &[&head[..], &place].concat(),
                        Bytes::new(),
                    ),
                    None => self.link.push(KIND_OUTPUT, &head, bytes),
                }
            }
            other => self.link.push_value(KIND_MESSAGE, &other),
        }
    }

    /// Writes what the socket takes, including releases of input that was written to ranks.
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<Received, LinkError> {
        self.link.give_back(&self.memory);
        self.link.flush(fd)
    }

    pub fn next_message(&mut self) -> Result<Option<FromFront>, LinkError> {
        loop {
            let Some((kind, mut body)) = self.link.own_frame()? else {
                return Ok(None);
            };
            if kind == KIND_MESSAGE {
                let message = wire::decode(&body);
                // The answer to a prompt is kept only in the message.
                body.as_mut().zeroize();
                return Ok(Some(message?));
            }
            let mut body = body.freeze();
            match kind {
                KIND_STDIN => return Ok(Some(FromFront::Stdin(body))),
                KIND_STDIN_SHARED => {
                    let bytes = self.memory.borrow(&mut body)?;
                    return Ok(Some(FromFront::Stdin(bytes)));
                }
                KIND_RELEASE => self.memory.on_release(&mut body)?,
                other => return Err(LinkError::UnknownKind(other)),
            }
        }
    }
}

/// Receives the first frame of a front, the allocation, from a blocking socket; waits for it as long as the front lives.
/// Returns `None` if the front has closed the link: there is no job. The returned link holds the bytes that followed.
///
/// # Errors
///
/// Returns an error of the system or of the format.
pub fn receive_opening(fd: BorrowedFd<'_>) -> Result<Option<(Opening, Link)>, LinkError> {
    let mut link = Link::default();
    loop {
        match link.frame()? {
            Some((KIND_OPENING, body)) => return Ok(Some((wire::decode(&body)?, link))),
            Some((other, _)) => return Err(LinkError::UnknownKind(other)),
            None => {}
        }
        match link.receive(fd)? {
            Received::Open | Received::Nothing => {}
            Received::Closed => return Ok(None),
        }
    }
}

/// Sends the front the reason why there will be no controller. If that fails, the front only sees the end of the link.
pub fn send_failure(fd: BorrowedFd<'_>, why: CannotRun) {
    let mut link = Link::default();
    link.push_value(KIND_MESSAGE, &ToFront::Failed(why));
    let _ = link.flush(fd);
}
