//! Output and input of procs: lines, windows of credit, EOF.
//!
//! Hides how bytes read from pipes become chunks that end at line ends, and how the amount of data in flight is limited.
//! It also hides how one stream of input reaches several procs that read at different speeds.
//!
//! Bounds: a line of up to [`LINE_MAX`] bytes stays whole. The start of a line is sent after [`PARTIAL_DELAY`]. If the
//! kernel or a full buffer cut the line, its rest is sure to come, and the start is sent after [`CUT_DELAY`]. At most
//! [`OUTPUT_WINDOW`] bytes of each job, node and stream are in flight. At most [`STDIN_WINDOW`] bytes of input are in
//! flight, or [`STDIN_FIRST`] until every reader has read some.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use base::Time;
use bytes::Bytes;

use crate::{
    planted::{self, Bug},
    proto::ChunkEnd,
};

/// Maximum size of a line in bytes. A longer line is sent in parts.
pub const LINE_MAX: usize = 64 * 1024;

/// Maximum wait for the end of a line whose writer has paused. Long enough for a line written in several calls, short
/// enough that a prompt seems to appear immediately.
pub const PARTIAL_DELAY: Duration = Duration::from_millis(25);

/// Maximum wait for the end of a line that a full buffer cut off, and not its writer. The writer must be scheduled
/// again before it can write the rest. On a node with many ranks per core, that takes longer than a prompt may wait.
pub const CUT_DELAY: Duration = Duration::from_secs(1);

/// Unit in bytes of full buffers. The kernel may split a longer write (`PIPE_BUF` of pipe(7)). The C library writes out
/// a full buffer of this size regardless of line ends.
pub const BLOCK: usize = 4096;

/// Channel of a proc's stream. It determines the sizes of the pieces into which full buffers cut lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conduit {
    #[default]
    Pipe,
    Terminal,
}

impl Conduit {
    /// Returns true if a read of `read` bytes ended because a buffer was full, and not because the writer ended its
    /// write there.
    ///
    /// The C library has a buffer of 1,024 bytes for a terminal. A writer blocks in the middle of a line if it writes
    /// more than there is room for. The pages of a pipe need not be full then. A terminal delivers less than a page per
    /// read, in two parts where its ring buffer wraps around.
    #[must_use]
    pub const fn is_full(self, read: usize) -> bool {
        let (block, half) = match self {
            Self::Pipe => (BLOCK, 32 * 1024),
            Self::Terminal => (1024, 2 * 1024),
        };
        read.is_multiple_of(block) || read >= half
    }
}

/// Maximum amount of one stream between a daemon and the front's descriptor, counted by [`cost`]. When it is reached,
/// the daemon stops reading.
pub const OUTPUT_WINDOW: u64 = 8 * 1024 * 1024;

/// Cost of a chunk in addition to its bytes, for the messages and queues around it. It bounds the memory for many small
/// chunks.
const CHUNK_COST: u64 = 256;

/// Returns how much of an [`OUTPUT_WINDOW`] a chunk of `bytes` bytes uses.
#[must_use]
pub const fn cost(bytes: usize) -> u64 {
    bytes as u64 + CHUNK_COST
}

/// Maximum number of input bytes between the front's descriptor and the procs' pipes.
pub const STDIN_WINDOW: u64 = 2 * 1024 * 1024;

/// Input window in bytes until every reader has shown that it reads: the capacity of a pipe (pipe(7)). A proc whose
/// pipe has taken more than that has read some of it. For a proc that never reads, we buffer at most this much in its
/// pipe and as much again outside.
pub const STDIN_FIRST: u64 = 64 * 1024;

/// Assembles chunks of whole lines from the reads of one stream of one proc.
#[derive(Debug, Default)]
pub struct Assembler {
    conduit: Conduit,
    /// In a box, because most procs have no such line most of the time.
    pending: Option<Box<Pending>>,
}

/// Start of a line whose end has not arrived.
#[derive(Debug)]
struct Pending {
    /// At most [`LINE_MAX`] bytes.
    bytes: Vec<u8>,
    /// Time since which the first byte has waited for the end of the line.
    since: Time,
    /// The maximum wait.
    delay: Duration,
}

/// Piece of output that can be sent.
pub type Piece = (Bytes, ChunkEnd);

impl Assembler {
    #[must_use]
    pub fn new(conduit: Conduit) -> Self {
        Self {
            conduit,
            pending: None,
        }
    }

    /// Takes the bytes of one read, and appends the pieces that can be sent now to `out`, in order. Whole lines inside
    /// `bytes` are not copied.
    pub fn push(&mut self, now: Time, mut bytes: Bytes, out: &mut Vec<Piece>) {
        let read = bytes.len();
        if let Some(pending) = &mut self.pending {
            let line_end = memchr::memchr(b'\n', &bytes).map(|at| at + 1);
            let taken = line_end.unwrap_or(bytes.len());
            if pending.bytes.len() + taken > LINE_MAX || planted::is(Bug::LinesCutByReads) {
                if planted::is(Bug::LongLineDropped) {
                    pending.bytes.clear();
                }
                self.flush(ChunkEnd::Partial, out);
            } else {
                let part = bytes.split_to(taken);
                if line_end.is_none() {
                    return self.keep(now, read, &part);
                }
                pending.bytes.extend_from_slice(&part);
                self.flush(ChunkEnd::Line, out);
            }
        }
        if let Some(at) = memchr::memrchr(b'\n', &bytes) {
            out.push((bytes.split_to(at + 1), ChunkEnd::Line));
        }
        if bytes.len() >= LINE_MAX {
            out.push((bytes, ChunkEnd::Partial));
        } else if !bytes.is_empty() {
            self.keep(now, read, &bytes);
        }
    }

    /// Keeps another part of the pending line, which came in a read of `read` bytes, and sets the maximum wait for the rest.
    fn keep(&mut self, now: Time, read: usize, part: &[u8]) {
        let pending = self.pending.get_or_insert_with(|| {
            Box::new(Pending {
                bytes: Vec::new(),
                since: now,
                delay: PARTIAL_DELAY,
            })
        });
        pending.bytes.extend_from_slice(part);
        let cut = pending.bytes.len() >= BLOCK || self.conduit.is_full(read);
        pending.delay = if cut { CUT_DELAY } else { PARTIAL_DELAY };
    }

    /// Restarts the wait for the end of a line. Reading had been paused because the output window was full.
    pub fn on_reading_resumed(&mut self, now: Time) {
        if let Some(pending) = &mut self.pending {
            pending.since = now;
        }
    }

    /// Returns the time from which [`Self::flush_due`] has something to send.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if planted::is(Bug::PromptKeptBack) {
            return None;
        }
        let pending = self.pending.as_ref()?;
        Some(pending.since + pending.delay)
    }

    /// Sends a partial line that has waited long enough.
    pub fn flush_due(&mut self, now: Time, out: &mut Vec<Piece>) {
        if self.deadline().is_some_and(|deadline| deadline <= now)
            && !planted::is(Bug::PromptKeptBack)
        {
            self.flush(ChunkEnd::Partial, out);
        }
    }

    /// Sends the rest after the stream has ended.
    pub fn finish(&mut self, out: &mut Vec<Piece>) {
        if !planted::is(Bug::PartialLineLostAtEnd) {
            self.flush(ChunkEnd::Partial, out);
        }
    }

    fn flush(&mut self, end: ChunkEnd, out: &mut Vec<Piece>) {
        if let Some(pending) = self.pending.take() {
            out.push((Bytes::from(pending.bytes), end));
        }
    }
}

/// Whether more output may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Open,
    Shut,
}

/// Credit window for the output of one stream.
#[derive(Debug)]
pub struct Window {
    under_way: u64,
    flow: Flow,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            under_way: 0,
            flow: Flow::Open,
        }
    }
}

impl Window {
    /// Counts a sent chunk of `bytes` bytes. Returns `Some(Shut)` if reading must stop now.
    pub fn sent(&mut self, bytes: usize) -> Option<Flow> {
        self.under_way += cost(bytes);
        (self.flow == Flow::Open && self.under_way >= OUTPUT_WINDOW).then(|| {
            self.flow = Flow::Shut;
            Flow::Shut
        })
    }

    /// Counts credit, in units of [`cost`]. Returns `Some(Open)` if reading may continue.
    pub fn credited(&mut self, bytes: u64) -> Option<Flow> {
        self.under_way = self.under_way.saturating_sub(bytes);
        (self.flow == Flow::Shut && self.under_way <= OUTPUT_WINDOW / 2).then(|| {
            self.flow = Flow::Open;
            Flow::Open
        })
    }

    #[must_use]
    pub const fn flow(&self) -> Flow {
        self.flow
    }
}

/// Next operation on a proc's input pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feed {
    Write(Bytes),
    /// Close the pipe: everything was written, and no more input will come.
    Close,
}

/// Input queue for the pipe of one proc.
#[derive(Debug, Default)]
pub struct Feeder {
    queue: VecDeque<Bytes>,
    /// Size in bytes of the write in progress; `None` if there is none.
    writing: Option<u64>,
    /// Number of bytes written so far.
    consumed: u64,
    ended: bool,
    closed: bool,
}

impl Feeder {
    pub fn push(&mut self, bytes: Bytes) {
        if !self.closed && !bytes.is_empty() {
            self.queue.push_back(bytes);
        }
    }

    /// Marks the end of the input.
    pub fn end(&mut self) {
        self.ended = !(planted::is(Bug::InputEndForgotten) && self.queue.is_empty());
    }

    /// Records that the write in progress has completed.
    pub const fn written(&mut self) {
        if let Some(bytes) = self.writing.take() {
            self.consumed += bytes;
        }
    }

    /// Returns the number of bytes that the proc's pipe has taken since the start.
    #[must_use]
    pub const fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Returns the number of bytes that the proc's pipe has not taken yet.
    #[must_use]
    pub fn backlog(&self) -> u64 {
        let queued = self.queue.iter().map(|bytes| bytes.len() as u64);
        queued.chain(self.writing).sum()
    }

    /// Returns the next operation. Each one is returned once.
    pub fn poll(&mut self) -> Option<Feed> {
        if self.closed || self.writing.is_some() {
            return None;
        }
        if let Some(bytes) = self.queue.pop_front() {
            self.writing = Some(bytes.len() as u64);
            return Some(Feed::Write(bytes));
        }
        self.ended.then(|| {
            self.closed = true;
            Feed::Close
        })
    }
}

/// Progress of all readers of the input, and the credit for the front. The slowest reader sets the pace.
#[derive(Debug)]
pub struct InputCredit {
    /// Number of readers for each count of consumed bytes. Without this table, every write would have to check all
    /// readers, at a cost quadratic in their number.
    paces: BTreeMap<u64, usize>,
    /// Total credit given to the front so far.
    granted: u64,
}

impl InputCredit {
    /// Creates the credit state for a number of readers that have not consumed anything yet.
    #[must_use]
    pub fn new(readers: usize) -> Self {
        Self {
            paces: [(0, readers)]
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .collect(),
            granted: 0,
        }
    }

    /// Returns true if no reader is left.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.paces.is_empty()
    }

    /// Records that a reader that had consumed `from` bytes has now consumed `to`.
    pub fn advance(&mut self, from: u64, to: u64) {
        self.leave(from);
        *self.paces.entry(to).or_default() += 1;
    }

    /// Removes a reader that had consumed `at` bytes. It does not limit the credit any more.
    pub fn leave(&mut self, at: u64) {
        if let Some(count) = self.paces.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.paces.remove(&at);
            }
        }
    }

    /// Returns the credit to send to the front; `None` if it is less than a quarter of the window, or if no reader is
    /// left.
    pub fn due(&mut self) -> Option<u64> {
        let slowest = if planted::is(Bug::InputAtFastestPace) {
            self.paces.last_key_value()
        } else {
            self.paces.first_key_value()
        };
        let (slowest, _) = slowest?;
        let window = if *slowest > STDIN_FIRST || planted::is(Bug::InputReadAhead) {
            STDIN_WINDOW
        } else {
            STDIN_FIRST
        };
        let bytes = (slowest + window).saturating_sub(self.granted);
        (bytes >= window / 4).then(|| {
            if !planted::is(Bug::InputCreditTwice) {
                self.granted += bytes;
            }
            bytes
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(parts: &[&[u8]]) -> Vec<(String, ChunkEnd)> {
        let mut assembler = Assembler::default();
        let mut out = Vec::new();
        for part in parts {
            assembler.push(Time::ZERO, Bytes::copy_from_slice(part), &mut out);
        }
        assembler.finish(&mut out);
        out.into_iter()
            .map(|(bytes, end)| (String::from_utf8_lossy(&bytes).into_owned(), end))
            .collect()
    }

    type Case<'a> = (&'a [&'a [u8]], &'a [(&'a str, ChunkEnd)]);

    #[test]
    fn lines_stay_whole() {
        use ChunkEnd::{Line, Partial};
        let cases: &[Case<'_>] = &[
            (&[b"a\nb\n"], &[("a\nb\n", Line)]),
            (&[b"a", b"b\n"], &[("ab\n", Line)]),
            (
                &[b"a\nb", b"c\nd\ne"],
                &[("a\n", Line), ("bc\n", Line), ("d\n", Line), ("e", Partial)],
            ),
            (&[b"prompt> "], &[("prompt> ", Partial)]),
            (&[b""], &[]),
            (&[b"\n", b"\n"], &[("\n", Line), ("\n", Line)]),
        ];
        for (parts, expected) in cases {
            let expected: Vec<_> = expected
                .iter()
                .map(|(text, end)| ((*text).to_owned(), *end))
                .collect();
            assert_eq!(run(parts), expected);
        }
    }

    #[test]
    fn a_partial_line_waits_for_its_delay_only() {
        let mut assembler = Assembler::default();
        let mut out = Vec::new();
        assembler.push(Time::ZERO, Bytes::from_static(b"name? "), &mut out);
        assert!(out.is_empty());
        let deadline = assembler.deadline().unwrap();
        assembler.flush_due(Time::from_nanos(deadline.as_nanos() - 1), &mut out);
        assert!(out.is_empty());
        assembler.flush_due(deadline, &mut out);
        assert_eq!(out, [(Bytes::from_static(b"name? "), ChunkEnd::Partial)]);
        assert_eq!(assembler.deadline(), None);
    }

    #[test]
    fn a_line_that_a_buffer_cut_waits_for_its_rest() {
        use Conduit::{Pipe, Terminal};
        let cases: &[(Conduit, &[usize])] = &[
            (Pipe, &[4096]),
            (Pipe, &[10, 8192]),
            (Pipe, &[5000]),
            (Pipe, &[4000, 4000]),
            (Terminal, &[1024]),
            (Terminal, &[10, 2048]),
            (Terminal, &[4095]),
        ];
        for (conduit, parts) in cases {
            let mut assembler = Assembler::new(*conduit);
            let mut out = Vec::new();
            for part in *parts {
                assembler.push(Time::ZERO, Bytes::from(vec![b'x'; *part]), &mut out);
            }
            assembler.flush_due(Time::ZERO + PARTIAL_DELAY, &mut out);
            assert!(out.is_empty(), "{parts:?}");
            assembler.push(Time::ZERO, Bytes::from_static(b"\n"), &mut out);
            assert_eq!((out.len(), out[0].1), (1, ChunkEnd::Line), "{parts:?}");
        }
    }

    #[test]
    fn time_in_which_nothing_is_read_does_not_count() {
        let mut assembler = Assembler::default();
        let mut out = Vec::new();
        assembler.push(Time::ZERO, Bytes::from_static(b"start of a line"), &mut out);
        let later = Time::ZERO + Duration::from_secs(9);
        assembler.on_reading_resumed(later);
        assembler.flush_due(later, &mut out);
        assert!(out.is_empty());
        assembler.flush_due(later + PARTIAL_DELAY, &mut out);
        assert_eq!(out.len(), 1);
    }

    #[test]
    fn a_window_shuts_once_and_opens_at_half() {
        let mut window = Window::default();
        assert_eq!(
            window.sent(usize::try_from(OUTPUT_WINDOW - 2 * CHUNK_COST).unwrap()),
            None
        );
        assert_eq!(window.sent(0), Some(Flow::Shut));
        assert_eq!(window.sent(0), None);
        assert_eq!(window.credited(OUTPUT_WINDOW / 2), None);
        assert_eq!(window.credited(CHUNK_COST), Some(Flow::Open));
        assert_eq!(window.credited(10), None);
    }

    #[test]
    fn a_feeder_closes_after_its_last_byte() {
        let mut feeder = Feeder::default();
        feeder.push(Bytes::from_static(b"abc"));
        feeder.end();
        assert_eq!(feeder.poll(), Some(Feed::Write(Bytes::from_static(b"abc"))));
        assert_eq!(feeder.poll(), None);
        feeder.written();
        assert_eq!(feeder.consumed(), 3);
        assert_eq!(feeder.poll(), Some(Feed::Close));
        assert_eq!(feeder.poll(), None);
    }

    #[test]
    fn what_nobody_reads_is_not_collected() {
        // Two readers. The second one never reads, and its pipe takes as much as fits.
        let mut credit = InputCredit::new(2);
        assert_eq!(credit.due(), Some(STDIN_FIRST));
        credit.advance(0, STDIN_FIRST);
        assert_eq!(credit.due(), None, "one of two");
        credit.advance(0, STDIN_FIRST);
        assert_eq!(credit.due(), Some(STDIN_FIRST));
        credit.advance(STDIN_FIRST, 2 * STDIN_FIRST);
        assert_eq!(credit.due(), None, "the other pipe is full");
        // The second reader is removed, and the first one has shown that it reads.
        credit.leave(STDIN_FIRST);
        assert_eq!(credit.due(), Some(STDIN_WINDOW));
        assert!(!credit.is_unread());
        credit.leave(2 * STDIN_FIRST);
        assert!(credit.is_unread());
        assert_eq!(credit.due(), None);
    }

    #[test]
    fn input_credit_is_given_in_quarters_of_the_window() {
        let mut credit = InputCredit::new(1);
        credit.due();
        credit.advance(0, STDIN_FIRST / 4 - 1);
        assert_eq!(credit.due(), None);
        credit.advance(STDIN_FIRST / 4 - 1, STDIN_FIRST / 4);
        assert_eq!(credit.due(), Some(STDIN_FIRST / 4));
        credit.advance(STDIN_FIRST / 4, STDIN_FIRST + 1);
        assert_eq!(
            credit.due(),
            Some(STDIN_FIRST + 1 + STDIN_WINDOW - STDIN_FIRST / 4 * 5)
        );
        credit.advance(STDIN_FIRST + 1, STDIN_FIRST + STDIN_WINDOW / 4);
        assert_eq!(credit.due(), None);
        credit.advance(
            STDIN_FIRST + STDIN_WINDOW / 4,
            STDIN_FIRST + 1 + STDIN_WINDOW / 4,
        );
        assert_eq!(credit.due(), Some(STDIN_WINDOW / 4));
    }

    proptest! {
        /// Lets readers consume their input at random. The data in flight never exceeds the window, and no reader waits
        /// for credit that is due.
        #[test]
        fn the_slowest_reader_sets_the_pace(
            readers in 1usize..5,
            steps in prop::collection::vec((0usize..5, 1u64..400_000, 0u8..20), 0..200),
        ) {
            let mut credit = InputCredit::new(readers);
            let mut consumed = vec![Some(0); readers];
            let mut granted = credit.due().unwrap();
            for (reader, bytes, written) in steps {
                let Some(Some(at)) = consumed.get(reader).copied() else { continue };
                if written == 0 {
                    credit.leave(at);
                    consumed[reader] = None;
                } else {
                    let to = (at + bytes).min(granted);
                    credit.advance(at, to);
                    consumed[reader] = Some(to);
                }
                granted += credit.due().unwrap_or(0);
                let slowest = consumed.iter().flatten().copied().min();
                prop_assert_eq!(slowest.is_none(), credit.is_unread());
                let Some(slowest) = slowest else { break };
                let window = if slowest > STDIN_FIRST { STDIN_WINDOW } else { STDIN_FIRST };
                prop_assert!(granted <= slowest + window);
                prop_assert!(granted > slowest + window - window / 4);
            }
        }

        #[test]
        fn nothing_is_lost_and_short_lines_are_never_cut(
            lines in prop::collection::vec("[a-z]{0,40}", 0..40),
            cuts in prop::collection::vec(1usize..30, 1..60),
        ) {
            let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let mut assembler = Assembler::default();
            let (mut out, mut rest, mut cuts) = (Vec::new(), text.as_bytes(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (head, tail) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                assembler.push(Time::ZERO, Bytes::copy_from_slice(head), &mut out);
                rest = tail;
            }
            assembler.finish(&mut out);
            prop_assert!(out.iter().all(|(bytes, end)| *end == ChunkEnd::Line && bytes.ends_with(b"\n")));
            let joined: Vec<u8> = out.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect();
            prop_assert_eq!(joined, text.as_bytes());
        }

        #[test]
        fn lines_of_any_length_lose_nothing(lengths in prop::collection::vec(0usize..200_000, 0..5)) {
            let text: Vec<u8> = lengths.iter().flat_map(|n| std::iter::repeat_n(b'x', *n).chain([b'\n'])).collect();
            let mut assembler = Assembler::default();
            let mut out = Vec::new();
            for part in text.chunks(65_536) {
                assembler.push(Time::ZERO, Bytes::copy_from_slice(part), &mut out);
            }
            assembler.finish(&mut out);
            let joined: Vec<u8> = out.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect();
            prop_assert_eq!(joined, text);
        }
    }
}
