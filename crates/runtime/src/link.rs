//! The stream between front and controller: frames over a socket pair, with a bounded receive buffer.
//!
//! The format is in `docs/formats/front-link.md`. Bulk data (output, input) is carried raw behind a small head;
//! everything else is postcard. What was read into a slot of shared memory is not copied between the processes: only its
//! place travels, and comes back as a release when the bytes were used.

use std::{
    collections::{BTreeMap, VecDeque},
    io::IoSlice,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, PoisonError},
};

use base::{JobId, Rank};
use bytes::{Bytes, BytesMut};
use dvm::{
    alloc::Allocation,
    proto::{Chunk, ChunkEnd, FromFront, Stream, ToFront},
};
use os::{ReadOutcome, WriteOutcome};

/// Longest frame. A job's description with a thousand environments fits; a longer length is a broken peer.
const FRAME_MAX: usize = 64 * 1024 * 1024;
/// Bytes asked for in one read: messages are small, and what is large travels in shared memory.
const READ_SIZE: usize = 16 * 1024;
/// Length and kind.
const HEAD: usize = 5;
/// Shorter output is copied into the frame: a place in the region is worth more than a small copy.
const SHARED_MIN: usize = 16 * 1024;

const KIND_MESSAGE: u8 = 0;
const KIND_OUTPUT: u8 = 1;
const KIND_OUTPUT_SHARED: u8 = 2;
const KIND_STDIN: u8 = 3;
const KIND_RELEASE: u8 = 4;
const KIND_STDIN_SHARED: u8 = 5;

/// Why a link cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
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
pub enum Received {
    Open,
    Closed,
}

/// Frames on their way out, and bytes on their way in. The descriptor belongs to the event loop.
#[derive(Debug)]
pub struct Link {
    outgoing: VecDeque<Bytes>,
    incoming: BytesMut,
    /// Zeroed once: what is read is copied out of it, and is small where it is many.
    buffer: Vec<u8>,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            outgoing: VecDeque::new(),
            incoming: BytesMut::new(),
            buffer: vec![0; READ_SIZE],
        }
    }
}

impl Link {
    /// Something waits to be written.
    pub fn has_outgoing(&self) -> bool {
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
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<Received, LinkError> {
        while !self.outgoing.is_empty() {
            let slices: Vec<IoSlice<'_>> = self
                .outgoing
                .iter()
                .take(os::MAX_SLICES)
                .map(|bytes| IoSlice::new(bytes))
                .collect();
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
    pub fn receive(&mut self, fd: BorrowedFd<'_>) -> Result<Received, LinkError> {
        Ok(match os::read(fd, &mut self.buffer)? {
            ReadOutcome::Bytes(read) => {
                self.incoming.extend_from_slice(&self.buffer[..read]);
                Received::Open
            }
            ReadOutcome::WouldBlock => Received::Open,
            ReadOutcome::Closed => Received::Closed,
        })
    }

    /// The next whole frame: its kind and what follows.
    fn frame(&mut self) -> Result<Option<(u8, Bytes)>, LinkError> {
        let Some(head) = self.incoming.first_chunk::<4>() else {
            return Ok(None);
        };
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
fn output_head(chunk: &Chunk) -> [u8; 10] {
    let job = chunk.job.0.to_le_bytes();
    let rank = chunk.rank.0.to_le_bytes();
    let stream = match chunk.stream {
        Stream::Stdout => 1,
        Stream::Stderr => 2,
    };
    let end = match chunk.end {
        ChunkEnd::Line => 0,
        ChunkEnd::Partial => 1,
    };
    let [a, b, c, d] = job;
    let [e, f, g, h] = rank;
    [a, b, c, d, e, f, g, h, stream, end]
}

fn read_output_head(head: &[u8; 10]) -> Result<(JobId, Rank, Stream, ChunkEnd), LinkError> {
    let [a, b, c, d, e, f, g, h, stream, end] = *head;
    let job = JobId(u32::from_le_bytes([a, b, c, d]));
    let rank = Rank(u32::from_le_bytes([e, f, g, h]));
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
    Ok((job, rank, stream, end))
}

/// Numbers of places that were used and can be given back.
type Returned = Arc<Mutex<Vec<u64>>>;

/// Bytes in the peer's slot. Dropping them is what gives the slot back, whoever holds them last.
struct Borrowed {
    view: os::SlotView,
    number: u64,
    returned: Returned,
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        self.view.as_ref()
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.returned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self.number);
    }
}

/// The side of a region whose slots we fill.
#[derive(Debug)]
struct Lender {
    region: os::SlotWriter,
    /// What the peer has not given back.
    lent: BTreeMap<u64, Bytes>,
    next: u64,
}

impl Lender {
    const fn new(region: os::SlotWriter) -> Self {
        Self {
            region,
            lent: BTreeMap::new(),
            next: 0,
        }
    }

    /// Where `bytes` lie, if that is worth telling, as the fixed part of a frame; they are kept until they come back.
    fn lend(&mut self, bytes: &Bytes) -> Option<[u8; PLACE]> {
        if bytes.len() < SHARED_MIN {
            return None;
        }
        let (slot, offset) = self.region.place_of(bytes)?;
        let number = self.next;
        self.next += 1;
        let mut place = [0; PLACE];
        place[..8].copy_from_slice(&number.to_le_bytes());
        place[8..12].copy_from_slice(&slot.to_le_bytes());
        // A slot is smaller than 4 GiB.
        place[12..16].copy_from_slice(&u32::try_from(offset).unwrap_or(u32::MAX).to_le_bytes());
        place[16..].copy_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.lent.insert(number, bytes.clone());
        Some(place)
    }

    fn on_release(&mut self, body: &mut Bytes) -> Result<(), LinkError> {
        self.lent.remove(&u64::from_le_bytes(fixed(body)?));
        Ok(())
    }
}

/// Bytes of a place: number, slot, offset, length.
const PLACE: usize = 20;

/// The side of a region that the peer fills.
#[derive(Debug)]
struct Borrower {
    region: os::SlotReader,
    returned: Returned,
}

impl Borrower {
    fn new(region: os::SlotReader) -> Self {
        Self {
            region,
            returned: Returned::default(),
        }
    }

    fn borrow(&self, body: &mut Bytes) -> Result<Bytes, LinkError> {
        let number = u64::from_le_bytes(fixed(body)?);
        let slot = u32::from_le_bytes(fixed(body)?);
        let offset = u32::from_le_bytes(fixed(body)?) as usize;
        let length = u32::from_le_bytes(fixed(body)?) as usize;
        let view = self.region.view(slot, offset, length);
        let view = view.ok_or(LinkError::Malformed("a place outside of the shared region"))?;
        Ok(Bytes::from_owner(Borrowed {
            view,
            number,
            returned: Arc::clone(&self.returned),
        }))
    }

    /// Gives back what was used.
    fn give_back(&self, link: &mut Link) {
        let numbers =
            std::mem::take(&mut *self.returned.lock().unwrap_or_else(PoisonError::into_inner));
        for number in numbers {
            link.push(KIND_RELEASE, &number.to_le_bytes(), Bytes::new());
        }
    }
}

/// The front's end.
#[derive(Debug)]
pub struct FrontLink {
    pub link: Link,
    output: Borrower,
    input: Lender,
}

impl FrontLink {
    pub fn new(output: os::SlotReader, input: os::SlotWriter) -> Self {
        Self {
            link: Link::default(),
            output: Borrower::new(output),
            input: Lender::new(input),
        }
    }

    /// Says what comes before any message; the peer reads it with [`receive_opening`].
    pub fn open(&mut self, allocation: &Allocation) {
        // Our own types hold nothing that postcard refuses; an empty opening would be refused by the peer.
        let body = postcard::to_stdvec(allocation).unwrap_or_default();
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let head = Bytes::copy_from_slice(&length.to_le_bytes());
        self.link.outgoing.extend([head, Bytes::from(body)]);
    }

    pub fn send(&mut self, message: FromFront) {
        match message {
            FromFront::Stdin(bytes) => match self.input.lend(&bytes) {
                Some(place) => self.link.push(KIND_STDIN_SHARED, &place, Bytes::new()),
                None => self.link.push(KIND_STDIN, &[], bytes),
            },
            other => push_message(&mut self.link, &other),
        }
    }

    /// A slot to read input into.
    pub fn input_slot(&self) -> Option<os::Slot> {
        self.input.region.take()
    }

    /// Writes what there is room for, what was printed among it.
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<Received, LinkError> {
        self.output.give_back(&mut self.link);
        self.link.flush(fd)
    }

    pub fn next_message(&mut self) -> Result<Option<ToFront>, LinkError> {
        loop {
            let Some((kind, mut body)) = self.link.frame()? else {
                return Ok(None);
            };
            let message = match kind {
                KIND_MESSAGE => {
                    postcard::from_bytes(&body).map_err(|_| LinkError::Malformed("a message"))?
                }
                KIND_OUTPUT => {
                    let (job, rank, stream, end) = read_output_head(&fixed(&mut body)?)?;
                    ToFront::Output(Chunk {
                        job,
                        rank,
                        stream,
                        bytes: body,
                        end,
                    })
                }
                KIND_OUTPUT_SHARED => {
                    let (job, rank, stream, end) = read_output_head(&fixed(&mut body)?)?;
                    let bytes = self.output.borrow(&mut body)?;
                    ToFront::Output(Chunk {
                        job,
                        rank,
                        stream,
                        bytes,
                        end,
                    })
                }
                KIND_RELEASE => {
                    self.input.on_release(&mut body)?;
                    continue;
                }
                other => return Err(LinkError::UnknownKind(other)),
            };
            return Ok(Some(message));
        }
    }
}

/// The controller's end.
#[derive(Debug)]
pub struct ControllerLink {
    pub link: Link,
    output: Lender,
    input: Borrower,
}

impl ControllerLink {
    pub fn new(output: os::SlotWriter, input: os::SlotReader) -> Self {
        Self {
            link: Link::default(),
            output: Lender::new(output),
            input: Borrower::new(input),
        }
    }

    pub fn send(&mut self, message: ToFront) {
        match message {
            ToFront::Output(chunk) => {
                let head = output_head(&chunk);
                match self.output.lend(&chunk.bytes) {
                    Some(place) => self.link.push(
                        KIND_OUTPUT_SHARED,
                        &[&head[..], &place].concat(),
                        Bytes::new(),
                    ),
                    None => self.link.push(KIND_OUTPUT, &head, chunk.bytes),
                }
            }
            other => push_message(&mut self.link, &other),
        }
    }

    /// Writes what there is room for, what was written to ranks among it.
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<Received, LinkError> {
        self.input.give_back(&mut self.link);
        self.link.flush(fd)
    }

    pub fn next_message(&mut self) -> Result<Option<FromFront>, LinkError> {
        loop {
            let Some((kind, mut body)) = self.link.frame()? else {
                return Ok(None);
            };
            match kind {
                KIND_MESSAGE => {
                    return postcard::from_bytes(&body)
                        .map(Some)
                        .map_err(|_| LinkError::Malformed("a message"));
                }
                KIND_STDIN => return Ok(Some(FromFront::Stdin(body))),
                KIND_STDIN_SHARED => {
                    return Ok(Some(FromFront::Stdin(self.input.borrow(&mut body)?)));
                }
                KIND_RELEASE => self.output.on_release(&mut body)?,
                other => return Err(LinkError::UnknownKind(other)),
            }
        }
    }
}

/// What the front says first, before any frame: the allocation, behind its length. Waits for it as long as the front
/// lives; `None` when it has ended without a job.
pub fn receive_opening(fd: BorrowedFd<'_>) -> Result<Option<Allocation>, LinkError> {
    let mut length = [0; 4];
    if !read_all(fd, &mut length)? {
        return Ok(None);
    }
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > FRAME_MAX {
        return Err(LinkError::TooLong { length });
    }
    let mut body = vec![0; length];
    if !read_all(fd, &mut body)? {
        return Ok(None);
    }
    postcard::from_bytes(&body)
        .map(Some)
        .map_err(|_| LinkError::Malformed("an allocation"))
}

/// Fills `buffer` from a socket that blocks; false at its end.
fn read_all(fd: BorrowedFd<'_>, mut buffer: &mut [u8]) -> Result<bool, LinkError> {
    while !buffer.is_empty() {
        match os::read(fd, buffer)? {
            ReadOutcome::Bytes(read) => buffer = &mut buffer[read..],
            ReadOutcome::WouldBlock => {}
            ReadOutcome::Closed => return Ok(false),
        }
    }
    Ok(true)
}

/// Tells the front why there will be no controller. Where it cannot be told, it sees the end of the link.
pub fn send_failure(fd: BorrowedFd<'_>, why: &str) {
    let mut link = Link::default();
    push_message(&mut link, &ToFront::Failed(why.to_owned()));
    let _ = link.flush(fd);
}

fn push_message<T: serde::Serialize>(link: &mut Link, message: &T) {
    // Our own messages have no type that postcard refuses; an empty frame would be refused by the peer.
    let body = postcard::to_stdvec(message).unwrap_or_default();
    link.push(KIND_MESSAGE, &[], Bytes::from(body));
}

fn fixed<const N: usize>(body: &mut Bytes) -> Result<[u8; N], LinkError> {
    let head = *body
        .first_chunk::<N>()
        .ok_or(LinkError::Malformed("a short frame"))?;
    let _ = body.split_to(N);
    Ok(head)
}
