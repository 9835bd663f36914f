//! The stream between a front and the controller: frames of `overlay::wire` over a stream socket.
//!
//! What is in them is in `docs/formats/front-link.md`. Bulk data (output, input) is carried raw behind a small head;
//! everything else is postcard. Between a front and the controller that it has forked, what was read into a slot of shared
//! memory is not copied: only its place travels, and comes back as a release when the bytes were used. To every other
//! front the bytes travel in the frames.

use std::{
    collections::BTreeMap,
    io::IoSlice,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, PoisonError},
};

use base::{JobId, NodeId, Rank};
use bytes::Bytes;
use dvm::{
    alloc::Allocation,
    proto::{Chunk, ChunkEnd, FromFront, Stream, ToFront},
};
use os::{ReadOutcome, WriteOutcome};
use overlay::wire::{self, Incoming, Outgoing, WireError};

/// Bytes asked for in one read: messages are small, and what is large travels in shared memory.
const READ_SIZE: usize = 16 * 1024;
/// Shorter output is copied into the frame: a place in the region is worth more than a small copy.
const SHARED_MIN: usize = 16 * 1024;

const KIND_MESSAGE: u8 = 0;
const KIND_OUTPUT: u8 = 1;
const KIND_OUTPUT_SHARED: u8 = 2;
const KIND_STDIN: u8 = 3;
const KIND_RELEASE: u8 = 4;
const KIND_STDIN_SHARED: u8 = 5;
const KIND_OPENING: u8 = 6;

/// Why a link cannot go on.
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

/// Whether more can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    Open,
    /// There is nothing to read now.
    Nothing,
    Closed,
}

/// Frames on their way out, and bytes on their way in. The descriptor belongs to the event loop.
#[derive(Debug)]
pub struct Link {
    outgoing: Outgoing,
    incoming: Incoming,
    /// Zeroed once: what is read is copied out of it, and is small where it is many.
    buffer: Vec<u8>,
    /// Why something could not be sent. Nothing is sent after it: the peer would miss it without knowing.
    broken: Option<WireError>,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            buffer: vec![0; READ_SIZE],
            broken: None,
        }
    }
}

impl Link {
    /// Something waits to be written.
    pub fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    fn push(&mut self, kind: u8, fixed: &[u8], body: Bytes) {
        if self.broken.is_none() {
            self.broken = self.outgoing.push(kind, fixed, body).err();
        }
    }

    fn push_value<T: serde::Serialize>(&mut self, kind: u8, value: &T) {
        match wire::encode(value) {
            Ok(body) => self.push(kind, &[], body),
            Err(error) => self.broken = self.broken.or(Some(error)),
        }
    }

    /// Writes what there is room for.
    ///
    /// # Errors
    ///
    /// Those of the system, and why something could not be sent, which ends the link.
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
    /// Those of the system.
    pub fn receive(&mut self, fd: BorrowedFd<'_>) -> Result<Received, LinkError> {
        Ok(match os::read(fd, &mut self.buffer)? {
            ReadOutcome::Bytes(read) => {
                self.incoming.take(&self.buffer[..read]);
                Received::Open
            }
            ReadOutcome::WouldBlock => Received::Nothing,
            ReadOutcome::Closed => Received::Closed,
        })
    }

    fn check(&self) -> Result<(), LinkError> {
        match self.broken {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// The next whole frame: its kind and what follows.
    fn frame(&mut self) -> Result<Option<(u8, Bytes)>, LinkError> {
        self.check()?;
        Ok(self.incoming.frame()?)
    }
}

/// Bytes of the fixed part of an output frame.
const OUTPUT_HEAD: usize = 14;

/// Fixed part of an output frame: node, job, rank, stream, end of the chunk.
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

/// Output without its bytes, and the node that it comes from.
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

/// A place from a peer that shares no memory with us.
const NOTHING_SHARED: LinkError = LinkError::Malformed("a place in memory that is not shared");

/// What one end has of the memory that is shared with the other.
#[derive(Debug)]
struct Shared {
    lender: Lender,
    borrower: Borrower,
}

impl Shared {
    fn new(ours: os::SlotWriter, theirs: os::SlotReader) -> Self {
        Self {
            lender: Lender::new(ours),
            borrower: Borrower::new(theirs),
        }
    }
}

/// Where bytes lie that can be lent to the peer.
fn lend(shared: &mut Option<Shared>, bytes: &Bytes) -> Option<[u8; PLACE]> {
    shared.as_mut()?.lender.lend(bytes)
}

/// The bytes of a place that the peer has lent.
fn borrow(shared: Option<&Shared>, body: &mut Bytes) -> Result<Bytes, LinkError> {
    shared.ok_or(NOTHING_SHARED)?.borrower.borrow(body)
}

/// The peer gives a place back.
fn on_release(shared: &mut Option<Shared>, body: &mut Bytes) -> Result<(), LinkError> {
    let shared = shared.as_mut().ok_or(NOTHING_SHARED)?;
    shared.lender.on_release(body)
}

/// The front's end.
#[derive(Debug)]
pub struct FrontLink {
    pub link: Link,
    shared: Option<Shared>,
}

impl FrontLink {
    /// The end of the front that has forked the controller: `output` is what the controller fills, `input` what we fill.
    pub fn new(output: os::SlotReader, input: os::SlotWriter) -> Self {
        Self {
            link: Link::default(),
            shared: Some(Shared::new(input, output)),
        }
    }

    /// The end of a front that has connected to the controller.
    pub fn inline() -> Self {
        Self {
            link: Link::default(),
            shared: None,
        }
    }

    /// Says the allocation, before anything else.
    pub fn open(&mut self, allocation: &Allocation) {
        self.link.push_value(KIND_OPENING, allocation);
    }

    pub fn send(&mut self, message: FromFront) {
        match message {
            FromFront::Stdin(bytes) => match lend(&mut self.shared, &bytes) {
                Some(place) => self.link.push(KIND_STDIN_SHARED, &place, Bytes::new()),
                None => self.link.push(KIND_STDIN, &[], bytes),
            },
            other => self.link.push_value(KIND_MESSAGE, &other),
        }
    }

    /// A slot to read input into.
    pub fn input_slot(&self) -> Option<os::Slot> {
        self.shared.as_ref()?.lender.region.take()
    }

    /// Writes what there is room for, what was printed among it.
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<Received, LinkError> {
        if let Some(shared) = &self.shared {
            shared.borrower.give_back(&mut self.link);
        }
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
                    let bytes = borrow(self.shared.as_ref(), &mut body)?;
                    let chunk = Chunk { bytes, ..chunk };
                    ToFront::Output { node, chunk }
                }
                KIND_RELEASE => {
                    on_release(&mut self.shared, &mut body)?;
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
    shared: Option<Shared>,
}

impl ControllerLink {
    /// Goes on with the link on which the opening came.
    pub fn new(link: Link, output: os::SlotWriter, input: os::SlotReader) -> Self {
        Self {
            link,
            shared: Some(Shared::new(output, input)),
        }
    }

    /// The end to a front that has connected to us.
    pub fn inline() -> Self {
        Self {
            link: Link::default(),
            shared: None,
        }
    }

    pub fn send(&mut self, message: ToFront) {
        match message {
            ToFront::Output { node, chunk } => {
                let head = output_head(node, &chunk);
                match lend(&mut self.shared, &chunk.bytes) {
                    Some(place) => self.link.push(
                        KIND_OUTPUT_SHARED,
                        &[&head[..], &place].concat(),
                        Bytes::new(),
                    ),
                    None => self.link.push(KIND_OUTPUT, &head, chunk.bytes),
                }
            }
            other => self.link.push_value(KIND_MESSAGE, &other),
        }
    }

    /// Writes what there is room for, what was written to ranks among it.
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<Received, LinkError> {
        if let Some(shared) = &self.shared {
            shared.borrower.give_back(&mut self.link);
        }
        self.link.flush(fd)
    }

    pub fn next_message(&mut self) -> Result<Option<FromFront>, LinkError> {
        loop {
            let Some((kind, mut body)) = self.link.frame()? else {
                return Ok(None);
            };
            match kind {
                KIND_MESSAGE => {
                    return Ok(Some(wire::decode(&body)?));
                }
                KIND_STDIN => return Ok(Some(FromFront::Stdin(body))),
                KIND_STDIN_SHARED => {
                    let bytes = borrow(self.shared.as_ref(), &mut body)?;
                    return Ok(Some(FromFront::Stdin(bytes)));
                }
                KIND_RELEASE => on_release(&mut self.shared, &mut body)?,
                other => return Err(LinkError::UnknownKind(other)),
            }
        }
    }
}

/// What the front says first: the allocation. Waits for it, on a socket that blocks, as long as the front lives; `None`
/// when it has ended without a job. The link has what came behind it.
///
/// # Errors
///
/// Those of the system, and what the front has done against the format.
pub fn receive_opening(fd: BorrowedFd<'_>) -> Result<Option<(Allocation, Link)>, LinkError> {
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

/// Tells the front why there will be no controller. Where it cannot be told, it sees the end of the link.
pub fn send_failure(fd: BorrowedFd<'_>, why: &str) {
    let mut link = Link::default();
    link.push_value(KIND_MESSAGE, &ToFront::Failed(why.to_owned()));
    let _ = link.flush(fd);
}

fn fixed<const N: usize>(body: &mut Bytes) -> Result<[u8; N], LinkError> {
    let head = *body
        .first_chunk::<N>()
        .ok_or(LinkError::Malformed("a short frame"))?;
    let _ = body.split_to(N);
    Ok(head)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn region() -> os::SharedRegion {
        os::SharedRegion::new(4096, 1).unwrap()
    }

    /// The opening and what comes behind it are read together: nobody would read the rest again.
    #[test]
    fn what_comes_with_the_opening_is_not_lost() {
        let (ours, theirs) = os::socket_pair().unwrap();
        let mut front = FrontLink::new(region().into_reader(), region().into_writer());
        let allocation = Allocation { nodes: Vec::new() };
        front.open(&allocation);
        front.send(FromFront::StdinEof);
        assert_eq!(front.flush(ours.as_fd()).unwrap(), Received::Open);
        let (opened, link) = receive_opening(theirs.as_fd()).unwrap().unwrap();
        assert_eq!(opened, allocation);
        let mut controller =
            ControllerLink::new(link, region().into_writer(), region().into_reader());
        let next = controller.next_message().unwrap();
        assert_eq!(next, Some(FromFront::StdinEof));
        assert_eq!(controller.next_message().unwrap(), None);
    }

    #[test]
    fn without_a_job_there_is_no_opening() {
        let (ours, theirs) = os::socket_pair().unwrap();
        drop(ours);
        assert!(receive_opening(theirs.as_fd()).unwrap().is_none());
    }

    /// A message that cannot be sent is no empty frame, and those behind it do not take its place.
    #[test]
    fn what_cannot_be_sent_ends_the_link() {
        let (ours, theirs) = os::socket_pair().unwrap();
        let mut front = FrontLink::new(region().into_reader(), region().into_writer());
        front.flush(ours.as_fd()).unwrap();
        front.send(FromFront::Stdin(vec![0; wire::FRAME_MAX].into()));
        front.send(FromFront::StdinEof);
        let length = wire::FRAME_MAX + 1;
        let error = WireError::Length { length };
        let flushed = front.flush(ours.as_fd());
        assert!(matches!(flushed, Err(LinkError::Wire(why)) if why == error));
        assert!(front.next_message().is_err());
        let mut link = Link::default();
        link.receive(theirs.as_fd()).unwrap();
        assert!(matches!(link.frame(), Ok(None)), "nothing was sent");
    }
}
