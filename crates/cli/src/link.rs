//! The stream between front and controller: frames over a socket pair, with a bounded receive buffer.
//!
//! The format is in `docs/formats/front-link.md`. Bulk data (output, input) is carried raw behind a small head;
//! everything else is postcard. What a rank wrote is not copied between the processes when it lies in the shared
//! region: only its place travels, and comes back as a release when it was printed.

use std::{
    collections::{BTreeMap, VecDeque},
    io::IoSlice,
    os::fd::BorrowedFd,
};

use base::Rank;
use bytes::{Bytes, BytesMut};
use dvm::proto::{Chunk, ChunkEnd, FromFront, Stream, ToFront};
use os::{ReadOutcome, WriteOutcome};

/// Longest frame. A job's description with a thousand environments fits; a longer length is a broken peer.
const FRAME_MAX: usize = 64 * 1024 * 1024;
/// Bytes asked for in one read.
const READ_SIZE: usize = 256 * 1024;
/// Length and kind.
const HEAD: usize = 5;
/// Shorter output is copied into the frame: a place in the region is worth more than a small copy.
const SHARED_MIN: usize = 16 * 1024;

const KIND_MESSAGE: u8 = 0;
const KIND_OUTPUT: u8 = 1;
const KIND_OUTPUT_SHARED: u8 = 2;
const KIND_STDIN: u8 = 3;
const KIND_RELEASE: u8 = 4;

/// Why a link cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error(transparent)]
    Os(#[from] os::Error),
    #[error("the peer sent a frame of {length} bytes, more than {FRAME_MAX}")]
    TooLong { length: usize },
    #[error("the peer sent a frame of unknown kind {0}")]
    UnknownKind(u8),
    #[error("the peer sent a frame that does not decode: {0}")]
    Malformed(&'static str),
}

/// Whether more can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Open,
    Closed,
}

/// Frames on their way out, and bytes on their way in. The descriptor belongs to the event loop.
#[derive(Debug, Default)]
pub(crate) struct Link {
    outgoing: VecDeque<Bytes>,
    incoming: BytesMut,
}

impl Link {
    /// Something waits to be written.
    pub(crate) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    fn push(&mut self, kind: u8, fixed: &[u8], body: Bytes) {
        let length = u32::try_from(1 + fixed.len() + body.len()).unwrap_or(u32::MAX);
        let mut head = Vec::with_capacity(HEAD + fixed.len());
        head.extend_from_slice(&length.to_le_bytes());
        head.push(kind);
        head.extend_from_slice(fixed);
        self.outgoing.push_back(Bytes::from(head));
        if !body.is_empty() {
            self.outgoing.push_back(body);
        }
    }

    /// Writes what there is room for.
    pub(crate) fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<Received, LinkError> {
        while !self.outgoing.is_empty() {
            let slices: Vec<IoSlice<'_>> =
                self.outgoing.iter().take(os::MAX_SLICES).map(|bytes| IoSlice::new(bytes)).collect();
            match os::write_vectored(fd, &slices)? {
                WriteOutcome::Bytes(written) => self.advance(written),
                WriteOutcome::WouldBlock => break,
                WriteOutcome::Closed => return Ok(Received::Closed),
            }
        }
        Ok(Received::Open)
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(first) = self.outgoing.front_mut() {
            if written < first.len() {
                let _ = first.split_to(written);
                return;
            }
            written -= first.len();
            self.outgoing.pop_front();
        }
    }

    /// Reads once.
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>) -> Result<Received, LinkError> {
        let start = self.incoming.len();
        self.incoming.resize(start + READ_SIZE, 0);
        let outcome = os::read(fd, &mut self.incoming[start..]);
        let read = match outcome {
            Ok(ReadOutcome::Bytes(read)) => read,
            _ => 0,
        };
        self.incoming.truncate(start + read);
        Ok(match outcome? {
            ReadOutcome::Closed => Received::Closed,
            ReadOutcome::Bytes(_) | ReadOutcome::WouldBlock => Received::Open,
        })
    }

    /// The next whole frame: its kind and what follows.
    fn frame(&mut self) -> Result<Option<(u8, Bytes)>, LinkError> {
        let Some(head) = self.incoming.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length == 0 || length > FRAME_MAX {
            return Err(LinkError::TooLong { length });
        }
        if self.incoming.len() < 4 + length {
            return Ok(None);
        }
        let mut frame = self.incoming.split_to(4 + length).freeze();
        let kind = frame[4];
        let _ = frame.split_to(HEAD);
        Ok(Some((kind, frame)))
    }
}

/// Fixed part of an output frame: rank, stream, end of the chunk.
fn output_head(chunk: &Chunk) -> [u8; 6] {
    let rank = chunk.rank.0.to_le_bytes();
    let stream = match chunk.stream {
        Stream::Stdout => 1,
        Stream::Stderr => 2,
    };
    let end = match chunk.end {
        ChunkEnd::Line => 0,
        ChunkEnd::Partial => 1,
    };
    [rank[0], rank[1], rank[2], rank[3], stream, end]
}

fn read_output_head(head: &[u8; 6]) -> Result<(Rank, Stream, ChunkEnd), LinkError> {
    let rank = Rank(u32::from_le_bytes([head[0], head[1], head[2], head[3]]));
    let stream = match head[4] {
        1 => Stream::Stdout,
        2 => Stream::Stderr,
        _ => return Err(LinkError::Malformed("an unknown stream")),
    };
    let end = match head[5] {
        0 => ChunkEnd::Line,
        1 => ChunkEnd::Partial,
        _ => return Err(LinkError::Malformed("an unknown chunk end")),
    };
    Ok((rank, stream, end))
}

/// A chunk for the front, and what to give back when it was printed.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) chunk: Chunk,
    /// Present when the bytes lie in the shared region.
    pub(crate) release: Option<u64>,
}

/// What the front receives.
#[derive(Debug)]
pub(crate) enum FrontReceived {
    Message(ToFront),
    Output(Delivery),
}

/// The front's end.
#[derive(Debug)]
pub(crate) struct FrontLink {
    pub(crate) link: Link,
    region: os::SlotReader,
}

impl FrontLink {
    pub(crate) fn new(region: os::SlotReader) -> Self {
        Self { link: Link::default(), region }
    }

    pub(crate) fn send(&mut self, message: FromFront) {
        match message {
            FromFront::Stdin(bytes) => self.link.push(KIND_STDIN, &[], bytes),
            other => push_message(&mut self.link, &other),
        }
    }

    /// Says that the bytes of a delivery were used.
    pub(crate) fn release(&mut self, number: u64) {
        self.link.push(KIND_RELEASE, &number.to_le_bytes(), Bytes::new());
    }

    pub(crate) fn next(&mut self) -> Result<Option<FrontReceived>, LinkError> {
        let Some((kind, mut body)) = self.link.frame()? else { return Ok(None) };
        let received = match kind {
            KIND_MESSAGE => FrontReceived::Message(
                postcard::from_bytes(&body).map_err(|_| LinkError::Malformed("a message"))?,
            ),
            KIND_OUTPUT => {
                let (rank, stream, end) = read_output_head(&fixed(&mut body)?)?;
                FrontReceived::Output(Delivery { chunk: Chunk { rank, stream, bytes: body, end }, release: None })
            }
            KIND_OUTPUT_SHARED => {
                let (rank, stream, end) = read_output_head(&fixed(&mut body)?)?;
                let number = u64::from_le_bytes(fixed(&mut body)?);
                let slot = u32::from_le_bytes(fixed(&mut body)?);
                let offset = u32::from_le_bytes(fixed(&mut body)?) as usize;
                let length = u32::from_le_bytes(fixed(&mut body)?) as usize;
                let bytes = self
                    .region
                    .view(slot, offset, length)
                    .ok_or(LinkError::Malformed("a place outside of the shared region"))?;
                let chunk = Chunk { rank, stream, bytes: Bytes::from_owner(bytes), end };
                FrontReceived::Output(Delivery { chunk, release: Some(number) })
            }
            other => return Err(LinkError::UnknownKind(other)),
        };
        Ok(Some(received))
    }
}

/// The controller's end.
#[derive(Debug)]
pub(crate) struct ControllerLink {
    pub(crate) link: Link,
    region: os::SlotWriter,
    /// Output in the shared region that the front has not released.
    lent: BTreeMap<u64, Bytes>,
    next: u64,
}

impl ControllerLink {
    pub(crate) fn new(region: os::SlotWriter) -> Self {
        Self { link: Link::default(), region, lent: BTreeMap::new(), next: 0 }
    }

    pub(crate) fn send(&mut self, message: ToFront) {
        match message {
            ToFront::Output(chunk) => self.send_output(chunk),
            other => push_message(&mut self.link, &other),
        }
    }

    fn send_output(&mut self, chunk: Chunk) {
        let head = output_head(&chunk);
        let place = if chunk.bytes.len() < SHARED_MIN { None } else { self.region.place_of(&chunk.bytes) };
        let Some((slot, offset)) = place else {
            self.link.push(KIND_OUTPUT, &head, chunk.bytes);
            return;
        };
        let number = self.next;
        self.next += 1;
        let mut fixed = Vec::with_capacity(head.len() + 20);
        fixed.extend_from_slice(&head);
        fixed.extend_from_slice(&number.to_le_bytes());
        fixed.extend_from_slice(&slot.to_le_bytes());
        for value in [offset, chunk.bytes.len()] {
            // The region is smaller than 4 GiB.
            fixed.extend_from_slice(&u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes());
        }
        self.lent.insert(number, chunk.bytes);
        self.link.push(KIND_OUTPUT_SHARED, &fixed, Bytes::new());
    }

    pub(crate) fn next(&mut self) -> Result<Option<FromFront>, LinkError> {
        loop {
            let Some((kind, mut body)) = self.link.frame()? else { return Ok(None) };
            match kind {
                KIND_MESSAGE => {
                    return postcard::from_bytes(&body).map(Some).map_err(|_| LinkError::Malformed("a message"));
                }
                KIND_STDIN => return Ok(Some(FromFront::Stdin(body))),
                KIND_RELEASE => {
                    self.lent.remove(&u64::from_le_bytes(fixed(&mut body)?));
                }
                other => return Err(LinkError::UnknownKind(other)),
            }
        }
    }
}

fn push_message<T: serde::Serialize>(link: &mut Link, message: &T) {
    // Our own messages have no type that postcard refuses; an empty frame would be refused by the peer.
    let body = postcard::to_stdvec(message).unwrap_or_default();
    link.push(KIND_MESSAGE, &[], Bytes::from(body));
}

fn fixed<const N: usize>(body: &mut Bytes) -> Result<[u8; N], LinkError> {
    let head = *body.first_chunk::<N>().ok_or(LinkError::Malformed("a short frame"))?;
    let _ = body.split_to(N);
    Ok(head)
}
