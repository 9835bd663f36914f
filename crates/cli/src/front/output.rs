//! Prints the ranks' output without ever blocking on its reader.
//!
//! A terminal stopped by Ctrl-S, or a pipe that nobody empties, must block neither signals nor the other stream. Pipes and
//! terminals are reopened through /proc. The new open file description can be non-blocking without any effect on other
//! processes that use the old one. Where reopening is impossible (a socket, a pipe of another user), a thread does the
//! blocking writes. Where no thread can be created, at the limit of processes, small pieces are written when poll reports
//! room. The credit of the daemons bounds the amount of waiting output.

use std::{
    collections::{BTreeMap, VecDeque},
    io::IoSlice,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use base::{JobId, NodeId, Rank, Time};
use bytes::{Bytes, BytesMut};
use dvm::{
    proto::{Chunk, OutputCredit, Stream, TableRow},
    stdio::{self, OUTPUT_WINDOW},
};
use message::Message;
use os::{BlockingWriter, Clock, Interest, Loop, Token, WriteOutcome};

use crate::{
    args::{FrontOptions, MessageFormat},
    render::{Renderer, Streams},
};

/// The errno of a write to a pipe without a reader.
pub(super) const EPIPE: i32 = 32;
/// The errno of a write to a terminal that has hung up.
pub(super) const EIO: i32 = 5;
/// Credit is sent in portions of at least this many bytes.
const CREDIT_PORTION: u64 = OUTPUT_WINDOW / 16;
/// Small waiting pieces are joined into buffers of at most about this many bytes.
const JOIN_MAX: usize = 64 * 1024;
/// The size requested for a pipe that was full once, in bytes: larger pipes need fewer turns on both sides.
const PIPE_SIZE: usize = 1024 * 1024;

/// How bytes are written.
#[derive(Debug)]
enum Sink {
    /// Non-blocking, in the event loop. `grown`: its pipe was already enlarged.
    Direct { token: Token, grown: bool },
    /// A regular file or /dev/null: a write never waits for a reader.
    File(OwnedFd),
    Thread {
        writer: BlockingWriter,
        token: Token,
    },
    /// In the event loop although it blocks: each write is preceded by a check for room. Another writer may fill that room
    /// in between, so this is used only if no thread can be created.
    Polled(Token),
    /// The descriptor was closed when we started, or writing has failed for good.
    Lost,
}

/// The most accounts per stream with unsent credit. Beyond that, the oldest account sends its credit, however little.
const MAX_ACCOUNTS: usize = 16_384;

/// The account of a piece of output. Credit is counted for each job, node and stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Account {
    job: JobId,
    node: NodeId,
    stream: Stream,
}

/// Credit to send once `printed` bytes are printed.
#[derive(Debug)]
struct Debt {
    /// `None` for our own messages, which need no credit.
    account: Option<Account>,
    printed: u64,
    cost: u64,
}

/// One destination of output.
#[derive(Debug)]
struct Printer {
    sink: Sink,
    terminal: bool,
    waiting: VecDeque<Bytes>,
    /// When the printer last changed from idle to busy.
    busy_since: Time,
    debts: VecDeque<Debt>,
    /// Unsent credit, in bytes.
    credit: BTreeMap<Account, u64>,
    /// Accounts with enough credit for a message.
    due: Vec<Account>,
    loss: Option<i32>,
}

/// The printers of both streams.
#[derive(Debug)]
pub(super) struct Printers {
    stdout: Printer,
    /// `None` if stderr is the same file as stdout: one queue then keeps the lines of both intact.
    stderr: Option<Printer>,
    renderer: Renderer,
    /// The rank for which the terminal is in raw mode. Its output needs no carriage returns.
    raw_for: Option<Rank>,
    /// The job that we have submitted. `None` until the controller has accepted it.
    job: Option<JobId>,
    progress: Progress,
}

/// Whether the last line of the terminal shows progress. Whatever is printed next has to erase it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Shown,
    None,
}

/// Returns the cursor to column 1 and erases the line.
const ERASE: &str = "\r\x1b[K";

impl Printers {
    pub(super) fn new(
        events: &mut Loop,
        options: &FrontOptions,
        stdout: Option<OwnedFd>,
        stderr: Option<OwnedFd>,
    ) -> Result<Self, os::Error> {
        let same = matches!(
            (&stdout, &stderr),
            (Some(stdout), Some(stderr)) if os::is_same_file(stdout.as_fd(), stderr.as_fd())
        );
        let streams = if same {
            Streams::Together
        } else {
            Streams::Apart
        };
        Ok(Self {
            stdout: Printer::new(events, stdout)?,
            stderr: match streams {
                Streams::Together => None,
                Streams::Apart => Some(Printer::new(events, stderr)?),
            },
            renderer: Renderer::new(options, streams),
            raw_for: None,
            job: None,
            progress: Progress::None,
        })
    }

    pub(super) const fn set_job(&mut self, job: JobId) {
        self.job = Some(job);
    }

    /// Sets or clears the rank for which the terminal is in raw mode. In raw mode a line feed does not return the cursor to
    /// column 1.
    pub(super) const fn set_raw(&mut self, rank: Option<Rank>) {
        self.raw_for = rank;
    }

    const fn printer(&mut self, stream: Stream) -> &mut Printer {
        match (stream, &mut self.stderr) {
            (Stream::Stderr, Some(stderr)) => stderr,
            (Stream::Stdout | Stream::Stderr, _) => &mut self.stdout,
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Printer> {
        std::iter::once(&mut self.stdout).chain(&mut self.stderr)
    }

    pub(super) fn print(&mut self, events: &mut Loop, node: NodeId, chunk: &Chunk) {
        let cost = stdio::cost(chunk.bytes.len());
        let mut bytes = self.renderer.render(chunk, os::wall_clock());
        let foreign = self
            .raw_for
            .is_some_and(|rank| rank != chunk.rank || Some(chunk.job) != self.job);
        if foreign && self.printer(chunk.stream).terminal {
            bytes = with_returns(&bytes);
        }
        let printer = self.printer(chunk.stream);
        let account = Account {
            job: chunk.job,
            node,
            stream: chunk.stream,
        };
        printer.push(events, Some(account), bytes, cost);
    }

    /// Stores the facts about the job that labels contain.
    pub(super) fn learn(&mut self, job: JobId, size: u32, table: &[TableRow]) {
        self.renderer.learn(job, size, table);
    }

    /// Queues a message of our own behind the output that waits on stderr.
    pub(super) fn queue_message(
        &mut self,
        events: &mut Loop,
        message: &Message,
        format: MessageFormat,
    ) {
        let mut text = self.renderer.close_line(Stream::Stderr).to_vec();
        text.extend_from_slice(message::text(message, format).as_bytes());
        self.push_own(events, text);
    }

    /// Shows a line of progress, if stderr is a terminal that has printed everything else.
    pub(super) fn show_progress(&mut self, events: &mut Loop, line: &str) {
        let printer = self.printer(Stream::Stderr);
        if printer.terminal && printer.idle() {
            let text = Bytes::from(format!("{ERASE}{line}"));
            printer.push(events, None, text, 0);
            self.progress = Progress::Shown;
        }
    }

    /// Erases the line of progress.
    pub(super) fn end_progress(&mut self, events: &mut Loop) {
        if std::mem::replace(&mut self.progress, Progress::None) == Progress::Shown {
            let text = Bytes::from_static(ERASE.as_bytes());
            self.printer(Stream::Stderr).push(events, None, text, 0);
        }
    }

    fn push_own(&mut self, events: &mut Loop, text: Vec<u8>) {
        self.end_progress(events);
        let raw = self.raw_for.is_some();
        let printer = self.printer(Stream::Stderr);
        let bytes = if raw && printer.terminal {
            with_returns(&text)
        } else {
            Bytes::from(text)
        };
        printer.push(events, None, bytes, 0);
    }

    /// Queues complete lines of a helper process for stderr.
    pub(super) fn queue_lines(&mut self, events: &mut Loop, lines: &[u8]) {
        let mut text = self.renderer.close_line(Stream::Stderr).to_vec();
        text.extend_from_slice(lines);
        self.push_own(events, text);
    }

    /// Prints a last message, but only if stderr is idle: a busy stderr may be blocked for ever.
    pub(super) fn print_if_idle(&mut self, message: &Message, format: MessageFormat) {
        if self.printer(Stream::Stderr).idle() {
            use std::io::Write;
            let _ = std::io::stderr().write_all(message::text(message, format).as_bytes());
        }
    }

    pub(super) fn on_ready(&mut self, events: &mut Loop, token: Token) {
        for printer in self.all() {
            if printer.is(token) {
                printer.on_ready(events);
            }
        }
    }

    /// Returns credit to send, in portions: one message per line would cost more than the line.
    pub(super) fn credit(&mut self) -> Option<OutputCredit> {
        self.all().find_map(|printer| {
            let Account { job, node, stream } = printer.due.pop()?;
            let bytes = printer.credit.remove(&Account { job, node, stream })?;
            Some(OutputCredit {
                job,
                node,
                stream,
                bytes,
            })
        })
    }

    /// Returns a stream that was lost since the last call, with its errno.
    pub(super) fn take_loss(&mut self) -> Option<(Stream, i32)> {
        Stream::BOTH.into_iter().find_map(|stream| {
            self.printer(stream)
                .loss
                .take()
                .map(|errno| (stream, errno))
        })
    }

    pub(super) const fn is_terminal(&mut self, stream: Stream) -> bool {
        self.printer(stream).terminal
    }

    /// Returns true if all output was printed or dropped.
    pub(super) fn idle(&self) -> bool {
        self.stdout.idle() && self.stderr.as_ref().is_none_or(Printer::idle)
    }

    /// Drops waiting and future output of each destination that has been busy for `patience` or longer. Returns the number
    /// of bytes dropped. A destination that became busy just now is not stuck: its reader has had no time yet.
    pub(super) fn drop_stuck(&mut self, events: &mut Loop, now: Time, patience: Duration) -> u64 {
        let mut dropped = 0;
        let stuck =
            |printer: &&mut Printer| !printer.idle() && printer.busy_since + patience <= now;
        for printer in self.all().filter(stuck) {
            dropped += printer
                .waiting
                .iter()
                .map(|bytes| bytes.len() as u64)
                .sum::<u64>();
            printer.lose(events, EPIPE);
            // The caller reports the loss.
            printer.loss = None;
        }
        dropped
    }
}

/// Returns the text with a carriage return before each line feed, for a terminal in raw mode.
fn with_returns(text: &[u8]) -> Bytes {
    let mut returned = BytesMut::with_capacity(text.len() + text.len() / 8);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\n") {
            Some(line) => {
                returned.extend_from_slice(line);
                returned.extend_from_slice(b"\r\n");
            }
            None => returned.extend_from_slice(line),
        }
    }
    returned.freeze()
}

impl Sink {
    fn of(events: &mut Loop, fd: Option<OwnedFd>) -> Result<Self, os::Error> {
        let Some(fd) = fd else { return Ok(Self::Lost) };
        if os::is_regular_or_null(fd.as_fd()) {
            return Ok(Self::File(fd));
        }
        if let Some(own) = os::reopen_nonblocking(fd.as_fd(), os::Direction::Write) {
            let token = events.add(own, Interest::None)?;
            return Ok(Self::Direct {
                token,
                grown: false,
            });
        }
        let (writer, ready) = BlockingWriter::new(fd)?;
        Ok(Self::Thread {
            writer,
            token: events.add(ready, Interest::Read)?,
        })
    }
}

impl Printer {
    fn new(events: &mut Loop, fd: Option<OwnedFd>) -> Result<Self, os::Error> {
        let terminal = fd.as_ref().is_some_and(|fd| os::is_terminal(fd.as_fd()));
        let sink = Sink::of(events, fd)?;
        Ok(Self {
            sink,
            terminal,
            waiting: VecDeque::new(),
            busy_since: Clock::now(),
            debts: VecDeque::new(),
            credit: BTreeMap::new(),
            due: Vec::new(),
            loss: None,
        })
    }

    fn is(&self, token: Token) -> bool {
        match &self.sink {
            Sink::Direct { token: ours, .. }
            | Sink::Thread { token: ours, .. }
            | Sink::Polled(ours) => *ours == token,
            Sink::File(_) | Sink::Lost => false,
        }
    }

    fn push(&mut self, events: &mut Loop, account: Option<Account>, bytes: Bytes, cost: u64) {
        if self.idle() {
            self.busy_since = Clock::now();
        }
        let printed = bytes.len() as u64;
        match self.debts.back_mut() {
            // Small pieces share a debt; each large piece has its own.
            Some(last) if last.account == account && last.cost < CREDIT_PORTION / 8 => {
                last.printed += printed;
                last.cost += cost;
            }
            _ => self.debts.push_back(Debt {
                account,
                printed,
                cost,
            }),
        }
        let joinable = bytes.len() < JOIN_MAX / 4;
        match self.waiting.back_mut() {
            Some(last) if joinable && last.len() < JOIN_MAX => {
                let mut joined = BytesMut::from(std::mem::take(last));
                joined.extend_from_slice(&bytes);
                *last = joined.freeze();
            }
            _ => self.waiting.push_back(bytes),
        }
        self.feed(events);
    }

    /// Writes as much as there is room for.
    fn feed(&mut self, events: &mut Loop) {
        let written = match &mut self.sink {
            Sink::Lost => Err(EPIPE),
            Sink::File(fd) => write_all_there_is_room_for(&mut self.waiting, |slices| {
                os::write_vectored(fd.as_fd(), slices)
            }),
            Sink::Direct { token, grown } => {
                let token = *token;
                let written = write_all_there_is_room_for(&mut self.waiting, |slices| match events
                    .fd(token)
                {
                    Some(fd) => os::write_vectored(fd, slices),
                    None => Ok(WriteOutcome::Closed),
                });
                if !self.waiting.is_empty() && !*grown {
                    *grown = true;
                    // Has no effect on a terminal.
                    if let Some(fd) = events.fd(token) {
                        os::request_pipe_size(fd, PIPE_SIZE);
                    }
                }
                let wanted = wanted_for(&self.waiting);
                written.and_then(|written| watch(events, token, wanted, written))
            }
            Sink::Polled(token) => {
                let token = *token;
                let written = write_all_there_is_room_for(&mut self.waiting, |slices| match events
                    .fd(token)
                {
                    Some(fd) => os::write_if_room(fd, slices.first().map_or(&[], |slice| slice)),
                    None => Ok(WriteOutcome::Closed),
                });
                let wanted = wanted_for(&self.waiting);
                written.and_then(|written| watch(events, token, wanted, written))
            }
            Sink::Thread { writer, .. } => {
                while let Some(bytes) = self.waiting.pop_front() {
                    if let Err(os::Full(bytes)) = writer.push(bytes) {
                        self.waiting.push_front(bytes);
                        break;
                    }
                }
                if let Some(fd) = writer.take_back() {
                    return self.go_on_without_thread(events, fd);
                }
                writer.error().map_or_else(|| Ok(writer.completed()), Err)
            }
        };
        match written {
            Ok(written) => self.settle(written),
            Err(errno) => self.lose(events, errno),
        }
    }

    fn go_on_without_thread(&mut self, events: &mut Loop, fd: OwnedFd) {
        if let Sink::Thread { token, .. } = &self.sink {
            drop(events.remove(*token));
        }
        match events.add(fd, Interest::None) {
            Ok(token) => {
                self.sink = Sink::Polled(token);
                self.feed(events);
            }
            Err(error) => self.lose(events, error.errno()),
        }
    }

    fn on_ready(&mut self, events: &mut Loop) {
        self.feed(events);
    }

    /// Gives up on a destination whose reader is gone or that fails: from now on everything counts as printed.
    fn lose(&mut self, events: &mut Loop, errno: i32) {
        if let Sink::Direct { token, .. } | Sink::Thread { token, .. } | Sink::Polled(token) =
            self.sink
        {
            drop(events.remove(token));
        }
        if !matches!(self.sink, Sink::Lost) {
            self.loss = Some(errno);
            self.sink = Sink::Lost;
        }
        self.waiting.clear();
        for debt in std::mem::take(&mut self.debts) {
            self.pay(&debt);
        }
    }

    fn settle(&mut self, mut printed: u64) {
        while let Some(debt) = self.debts.front_mut() {
            let part = printed.min(debt.printed);
            debt.printed -= part;
            printed -= part;
            if debt.printed > 0 {
                return;
            }
            if let Some(debt) = self.debts.pop_front() {
                self.pay(&debt);
            }
        }
    }

    fn pay(&mut self, debt: &Debt) {
        if let Some(account) = debt.account {
            let credit = self.credit.entry(account).or_default();
            let before = *credit;
            *credit += debt.cost;
            if before < CREDIT_PORTION && *credit >= CREDIT_PORTION {
                self.due.push(account);
            }
            // The end of a spawned job is not reported to the front, so its remaining credit would otherwise stay here.
            if self.credit.len() > MAX_ACCOUNTS {
                let oldest = self.credit.keys().find(|it| !self.due.contains(it));
                self.due.extend(oldest.copied());
            }
        }
    }

    fn idle(&self) -> bool {
        self.waiting.is_empty()
            && match &self.sink {
                // An error that was not reported yet still counts as work.
                Sink::Thread { writer, .. } => writer.idle() && writer.error().is_none(),
                Sink::Direct { .. } | Sink::Polled(_) | Sink::File(_) | Sink::Lost => true,
            }
    }
}

/// Returns the event to wait for after a write that has not written these bytes.
fn wanted_for(left: &VecDeque<Bytes>) -> Interest {
    if left.is_empty() {
        Interest::None
    } else {
        Interest::Write
    }
}

fn watch(events: &mut Loop, token: Token, wanted: Interest, written: u64) -> Result<u64, i32> {
    match events.set_interest(token, wanted) {
        Ok(()) => Ok(written),
        Err(error) => Err(error.errno()),
    }
}

/// Writes until nothing waits or there is no room. Returns the number of bytes written, or the errno of a stream that
/// accepts no more.
fn write_all_there_is_room_for(
    waiting: &mut VecDeque<Bytes>,
    mut write: impl FnMut(&[IoSlice<'_>]) -> Result<WriteOutcome, os::Error>,
) -> Result<u64, i32> {
    let mut total = 0;
    while !waiting.is_empty() {
        let slices: Vec<IoSlice<'_>> = waiting
            .iter()
            .take(os::MAX_SLICES)
            .map(|bytes| IoSlice::new(bytes))
            .collect();
        match write(&slices) {
            Ok(WriteOutcome::Bytes(written)) => {
                total += written as u64;
                let mut left = written;
                while let Some(first) = waiting.front_mut() {
                    if left < first.len() {
                        let _ = first.split_to(left);
                        break;
                    }
                    left -= first.len();
                    waiting.pop_front();
                }
            }
            Ok(WriteOutcome::WouldBlock) => break,
            Ok(WriteOutcome::Closed) => return Err(EPIPE),
            Err(error) => return Err(error.errno()),
        }
    }
    Ok(total)
}
