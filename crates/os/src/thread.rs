//! Writing to descriptors that may block for ever: a stopped terminal, a pipe without a reader, a file on a dead server.
//!
//! Our caller shares the descriptors that we inherited, so they must not be made non-blocking; and a regular file
//! blocks whatever its flags say. So a thread of its own writes, and the event loop goes on.

use std::{
    collections::VecDeque,
    fmt,
    io::IoSlice,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    task::Poll,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use crate::{
    error::Error,
    mailbox::{self, Mailbox},
    pipe::{self, MAX_SLICES, WriteOutcome},
};

/// Maximum number of queued chunks. Their producer bounds their bytes.
pub const MAX_QUEUED_CHUNKS: usize = 256;
/// Size of the thread's stack, which has no deep calls.
const STACK_SIZE: usize = 64 << 10;

type Chunk = Box<dyn AsRef<[u8]> + Send>;

/// Error: the queue has [`MAX_QUEUED_CHUNKS`] chunks, or writing has failed for good. It contains the refused chunk.
pub struct Full<T>(pub T);

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

/// Writes chunks in order on a thread of its own, which starts with the first chunk. If the thread cannot be started (at
/// the limit of processes), call [`BlockingWriter::take_back`] to get the descriptor back.
///
/// Dropping it discards the chunks that were not written. The thread ends after its current write, which may be never; the
/// exit of the process does not wait for it.
#[derive(Debug)]
pub struct BlockingWriter {
    shared: Arc<Mailbox<State>>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// No chunk was pushed yet.
    New(OwnedFd),
    Running,
    /// The thread could not be started. The descriptor is here until it is taken back.
    NoThread(Option<OwnedFd>),
}

struct State {
    /// The descriptor to write to, until the thread takes it.
    fd: Option<OwnedFd>,
    queue: VecDeque<Chunk>,
    /// Number of chunks that the thread has taken and not finished.
    writing: usize,
    /// Bytes written since the last call of [`BlockingWriter::completed`].
    completed: u64,
    error: Option<i32>,
    /// Set when the writer is dropped: the thread is to end.
    closed: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("queued", &self.queue.len())
            .field("writing", &self.writing)
            .field("completed", &self.completed)
            .field("error", &self.error)
            .field("closed", &self.closed)
            .finish()
    }
}

impl BlockingWriter {
    /// Makes a writer to `fd`. The second value is a descriptor that becomes readable when bytes were written or writing
    /// failed: add it to the loop, and call [`Self::completed`] when it is readable.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn new(fd: OwnedFd) -> Result<(Self, OwnedFd), Error> {
        let (shared, watched) = Mailbox::new(State {
            fd: None,
            queue: VecDeque::new(),
            writing: 0,
            completed: 0,
            error: None,
            closed: false,
        })?;
        Ok((
            Self {
                shared,
                phase: Phase::New(fd),
            },
            watched,
        ))
    }

    /// Queues a chunk. The chunk is dropped on the writing thread, or when the writer is dropped.
    ///
    /// # Errors
    /// [`Full`] with the chunk. [`Self::error`] and [`Self::take_back`] say whether the caller may retry.
    pub fn push<T: AsRef<[u8]> + Send + 'static>(&mut self, chunk: T) -> Result<(), Full<T>> {
        self.start();
        if let Phase::NoThread(_) = self.phase {
            return Err(Full(chunk));
        }
        let state = self.shared.lock();
        if state.error.is_some() || state.queue.len() + state.writing >= MAX_QUEUED_CHUNKS {
            return Err(Full(chunk));
        }
        drop(state);
        self.shared
            .change(|state| state.queue.push_back(Box::new(chunk)));
        Ok(())
    }

    /// Returns the number of bytes written since the last call, and makes the watched descriptor unreadable again.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.shared.clear();
        std::mem::take(&mut self.shared.lock().completed)
    }

    /// Returns the errno that ended the writing for good: `EPIPE`, `ENOSPC`, `EIO`, `EFBIG`... Queued chunks were dropped.
    #[must_use]
    pub fn error(&self) -> Option<i32> {
        self.shared.lock().error
    }

    /// Returns the descriptor, once, if the thread could not be started. No chunk was accepted then, and none will be.
    #[must_use]
    pub fn take_back(&mut self) -> Option<OwnedFd> {
        match &mut self.phase {
            Phase::NoThread(fd) => fd.take(),
            Phase::New(_) | Phase::Running => None,
        }
    }

    /// Returns true if every accepted chunk was written or dropped.
    #[must_use]
    pub fn idle(&self) -> bool {
        let state = self.shared.lock();
        state.queue.is_empty() && state.writing == 0
    }

    /// Starts the thread at the first chunk: most streams never need one.
    fn start(&mut self) {
        if !matches!(self.phase, Phase::New(_)) {
            return;
        }
        if let Phase::New(fd) = std::mem::replace(&mut self.phase, Phase::Running) {
            self.shared.lock().fd = Some(fd);
        }
        let shared = Arc::clone(&self.shared);
        let started = mailbox::start("writer", STACK_SIZE, move || run(&shared));
        if started.is_err() {
            self.phase = Phase::NoThread(self.shared.lock().fd.take());
        }
    }
}

impl Drop for BlockingWriter {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.closed = true;
            state.queue.clear();
        });
    }
}

impl State {
    /// Takes as many chunks as one call can write; `None` if the writer was dropped.
    fn take(&mut self) -> Poll<Option<Vec<Chunk>>> {
        if self.closed {
            return Poll::Ready(None);
        }
        let count = self.queue.len().min(MAX_SLICES);
        if count == 0 {
            return Poll::Pending;
        }
        self.writing = count;
        Poll::Ready(Some(self.queue.drain(..count).collect()))
    }
}

/// Writes until there is an error or the writer was dropped.
fn run(shared: &Mailbox<State>) {
    let Some(fd) = shared.lock().fd.take() else {
        return;
    };
    while let Some(chunks) = shared.wait_for(State::take) {
        if let Err(errno) = write_all(shared, &fd, &chunks) {
            drop(chunks);
            return fail(shared, errno);
        }
        // Drop the chunks before they count as finished: that may release a slot that the event loop waits for.
        drop(chunks);
        shared.lock().writing = 0;
        shared.wake_loop();
    }
}

fn write_all(shared: &Mailbox<State>, fd: &OwnedFd, chunks: &[Chunk]) -> Result<(), i32> {
    let mut slices: Vec<IoSlice<'_>> = chunks
        .iter()
        .map(|chunk| IoSlice::new((**chunk).as_ref()))
        .collect();
    let mut rest = &mut slices[..];
    // Skips leading empty buffers, with which a write would make no progress.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match pipe::write_vectored(fd.as_fd(), rest) {
            Ok(WriteOutcome::Bytes(0)) => return Err(libc::EIO),
            Ok(WriteOutcome::Bytes(size)) => {
                IoSlice::advance_slices(&mut rest, size);
                let mut state = shared.lock();
                state.completed += size as u64;
                if state.closed {
                    return Ok(());
                }
                drop(state);
                if !rest.is_empty() {
                    shared.wake_loop();
                }
            }
            Ok(WriteOutcome::WouldBlock) => wait_writable(fd)?,
            Ok(WriteOutcome::Closed) => return Err(libc::EPIPE),
            Err(error) => return Err(error.errno()),
        }
    }
    Ok(())
}

fn fail(shared: &Mailbox<State>, errno: i32) {
    let mut state = shared.lock();
    state.error = Some(errno);
    state.queue.clear();
    state.writing = 0;
    drop(state);
    shared.wake_loop();
}

/// Waits until `fd` is writable. It blocks, unless another process that shares the open file has made it non-blocking.
fn wait_writable(fd: &OwnedFd) -> Result<(), i32> {
    loop {
        match poll(
            &mut [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)],
            PollTimeout::NONE,
        ) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno as i32),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, thread, time::Duration};

    use super::*;
    use crate::{
        clock::Clock,
        event::{Event, Interest, Loop},
        pipe::{ReadOutcome, pipe, read, set_nonblocking},
    };

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Runs a loop as a caller does until `done`; returns the bytes completed.
    fn run_until(
        writer: &BlockingWriter,
        watched: OwnedFd,
        done: impl Fn(&BlockingWriter, u64) -> bool,
    ) -> u64 {
        let mut events = Vec::new();
        let mut completed = 0;
        let mut event_loop = Loop::new(&[]).unwrap();
        event_loop.add(watched, Interest::Read).unwrap();
        while !done(writer, completed) {
            event_loop
                .wait(Some(Clock::now() + PATIENCE), &mut events)
                .unwrap();
            assert!(!events.contains(&Event::Deadline), "{writer:?}");
            completed += writer.completed();
        }
        completed
    }

    fn read_all(reader: OwnedFd) -> thread::JoinHandle<Vec<u8>> {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let mut buffer = vec![0; 1 << 16];
            while let ReadOutcome::Bytes(size) = read(reader.as_fd(), &mut buffer).unwrap() {
                bytes.extend_from_slice(&buffer[..size]);
            }
            bytes
        })
    }

    #[test]
    fn bytes_arrive_in_order_through_a_pipe_that_is_full_most_of_the_time() {
        let (reader, writer_end) = pipe().unwrap();
        set_nonblocking(writer_end.as_fd()).unwrap();
        let (mut writer, watched) = BlockingWriter::new(writer_end).unwrap();
        assert!(writer.idle());
        let mut expected = Vec::new();
        for number in 0..200_u32 {
            let chunk = number.to_le_bytes().repeat(number as usize * 10);
            expected.extend_from_slice(&chunk);
            writer.push(chunk).unwrap();
        }
        assert!(
            !writer.idle(),
            "nobody reads, so a pipe cannot have taken all of it"
        );
        let bytes = read_all(reader);
        let total = expected.len() as u64;
        let completed = run_until(&writer, watched, |writer, completed| {
            completed == total && writer.idle()
        });
        assert_eq!((completed, writer.error()), (total, None));
        drop(writer);
        assert_eq!(bytes.join().unwrap(), expected);
    }

    #[test]
    fn the_queue_is_bounded_and_gives_the_chunk_back() {
        let (_reader, writer_end) = pipe().unwrap();
        let (mut writer, _watched) = BlockingWriter::new(writer_end).unwrap();
        let chunk = vec![7; 1 << 16];
        let accepted = (0..2 * MAX_QUEUED_CHUNKS)
            .take_while(|_| writer.push(chunk.clone()).is_ok())
            .count();
        // Without a reader, only the pipe's capacity was written.
        assert!(
            (MAX_QUEUED_CHUNKS..=MAX_QUEUED_CHUNKS + 1).contains(&accepted),
            "{accepted}"
        );
        let Err(Full(back)) = writer.push(chunk.clone()) else {
            panic!("not full")
        };
        assert_eq!(back, chunk);
    }

    #[test]
    fn failures_are_final() {
        let (reader, writer_end) = pipe().unwrap();
        drop(reader);
        let full = OwnedFd::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
        for (fd, errno) in [(writer_end, libc::EPIPE), (full, libc::ENOSPC)] {
            let (mut writer, watched) = BlockingWriter::new(fd).unwrap();
            writer.push(b"lost".as_slice()).unwrap();
            assert_eq!(
                run_until(&writer, watched, |writer, _| writer.error().is_some()),
                0
            );
            assert_eq!(writer.error(), Some(errno));
            assert!(writer.idle());
            assert!(writer.push("more").is_err());
        }
    }

    #[test]
    fn empty_chunks_are_finished_too() {
        let (_reader, writer_end) = pipe().unwrap();
        let (mut writer, watched) = BlockingWriter::new(writer_end).unwrap();
        for chunk in ["", "a", "", ""] {
            writer.push(chunk).unwrap();
        }
        assert_eq!(
            run_until(&writer, watched, |writer, completed| writer.idle()
                && completed == 1),
            1
        );
    }
}
