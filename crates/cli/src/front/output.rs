//! Printing what ranks write, without ever waiting for whoever reads it.
//!
//! A terminal stopped by Ctrl-S or a pipe that nobody empties blocks a thread of its own per stream; the front goes on
//! serving signals and the other stream. What waits is bounded by the credit that the daemons have.

use std::{collections::VecDeque, os::fd::OwnedFd};

use base::JobId;
use bytes::{Bytes, BytesMut};
use dvm::{
    messages::Message,
    proto::{Stream, TableRow},
    stdio::{self, OUTPUT_WINDOW},
};
use os::{BlockingWriter, Interest, Loop, Token};

use crate::{
    args::{FrontOptions, MessageFormat},
    link::Delivery,
    render::Renderer,
    report,
};

/// The error of a pipe that nobody reads.
pub(super) const EPIPE: i32 = 32;
/// Credit is sent in portions of this size.
const CREDIT_PORTION: u64 = OUTPUT_WINDOW / 16;
/// Small pieces that wait are joined to buffers of this size.
const JOIN_MAX: usize = 64 * 1024;

/// What is to be given back when so many bytes were printed.
#[derive(Debug)]
struct Debt {
    printed: u64,
    cost: u64,
    release: Option<u64>,
}

/// One stream.
#[derive(Debug)]
struct Printer {
    writer: Option<BlockingWriter>,
    token: Option<Token>,
    /// What the writer's queue had no room for.
    waiting: VecDeque<Bytes>,
    debts: VecDeque<Debt>,
    credit: u64,
    loss: Option<i32>,
    lost: bool,
}

/// Both streams.
#[derive(Debug)]
pub(super) struct Printers {
    stdout: Printer,
    stderr: Printer,
    renderer: Renderer,
    released: Vec<u64>,
}

impl Printers {
    pub(super) fn new(
        events: &mut Loop,
        options: &FrontOptions,
        stdout: Option<OwnedFd>,
        stderr: Option<OwnedFd>,
    ) -> Result<Self, os::Error> {
        Ok(Self {
            stdout: Printer::new(events, stdout)?,
            stderr: Printer::new(events, stderr)?,
            renderer: Renderer::new(options),
            released: Vec::new(),
        })
    }

    const fn printer(&mut self, stream: Stream) -> &mut Printer {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    pub(super) fn print(&mut self, delivery: Delivery) {
        let stream = delivery.chunk.stream;
        let cost = stdio::cost(delivery.chunk.bytes.len());
        let bytes = self.renderer.render(&delivery.chunk, os::wall_clock());
        let debt = Debt { printed: bytes.len() as u64, cost, release: delivery.release };
        self.printer(stream).push(bytes, debt);
        self.settle();
    }

    /// What labels say about the job.
    pub(super) fn learn(&mut self, job: JobId, size: u32, table: &[TableRow]) {
        self.renderer.learn(job, size, table);
    }

    /// A sentence of ours, behind what is waiting on stderr.
    pub(super) fn say(&mut self, message: &Message, format: MessageFormat) {
        let mut text = self.renderer.close_line(Stream::Stderr).to_vec();
        text.extend_from_slice(report::text(message, format).as_bytes());
        let bytes = Bytes::from(text);
        let debt = Debt { printed: bytes.len() as u64, cost: 0, release: None };
        self.stderr.push(bytes, debt);
    }

    /// A last sentence: stderr may be blocked for ever, so that it is only tried.
    pub(super) fn say_at_once(&mut self, message: &Message, format: MessageFormat) {
        if self.stderr.idle() {
            use std::io::Write;
            let _ = std::io::stderr().write_all(report::text(message, format).as_bytes());
        }
    }

    pub(super) fn on_ready(&mut self, token: Token) {
        for printer in [&mut self.stdout, &mut self.stderr] {
            if printer.token == Some(token) {
                printer.on_ready();
            }
        }
        self.settle();
    }

    fn settle(&mut self) {
        for printer in [&mut self.stdout, &mut self.stderr] {
            printer.settle(&mut self.released);
        }
    }

    pub(super) fn released(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.released)
    }

    /// Credit to send, in portions: a message for each line would cost more than the line.
    pub(super) fn credit(&mut self, stream: Stream) -> Option<u64> {
        let printer = self.printer(stream);
        (printer.credit >= CREDIT_PORTION).then(|| std::mem::take(&mut printer.credit))
    }

    /// A stream that was lost since the last call, with its error.
    pub(super) fn take_loss(&mut self) -> Option<(Stream, i32)> {
        Stream::BOTH.into_iter().find_map(|stream| self.printer(stream).loss.take().map(|errno| (stream, errno)))
    }

    /// Everything was printed or thrown away.
    pub(super) fn idle(&self) -> bool {
        self.stdout.idle() && self.stderr.idle()
    }
}

impl Printer {
    fn new(events: &mut Loop, fd: Option<OwnedFd>) -> Result<Self, os::Error> {
        let mut printer = Self {
            writer: None,
            token: None,
            waiting: VecDeque::new(),
            debts: VecDeque::new(),
            credit: 0,
            loss: None,
            lost: false,
        };
        match fd {
            Some(fd) => {
                let (writer, ready) = BlockingWriter::new(fd)?;
                printer.writer = Some(writer);
                printer.token = Some(events.add(ready, Interest::Read)?);
            }
            // Our caller closed it: a rank that writes finds that out as it would with a closed descriptor of its own.
            None => printer.lost = true,
        }
        Ok(printer)
    }

    fn push(&mut self, bytes: Bytes, debt: Debt) {
        match self.debts.back_mut() {
            Some(last) if last.release.is_none() && debt.release.is_none() => {
                last.printed += debt.printed;
                last.cost += debt.cost;
            }
            _ => self.debts.push_back(debt),
        }
        if self.lost {
            self.discard();
            return;
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
        self.feed();
    }

    /// Hands the writer what it has room for.
    fn feed(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        while let Some(bytes) = self.waiting.pop_front() {
            if let Err(os::Full(bytes)) = writer.push(bytes) {
                self.waiting.push_front(bytes);
                break;
            }
        }
        if let Some(errno) = writer.error()
            && !self.lost
        {
            self.lost = true;
            self.loss = Some(errno);
            self.discard();
        }
    }

    fn on_ready(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        let mut printed = writer.completed();
        for debt in &mut self.debts {
            let part = printed.min(debt.printed);
            debt.printed -= part;
            printed -= part;
            if printed == 0 {
                break;
            }
        }
        self.feed();
    }

    /// Nobody reads: everything counts as printed.
    fn discard(&mut self) {
        self.waiting.clear();
        for debt in &mut self.debts {
            debt.printed = 0;
        }
    }

    fn settle(&mut self, released: &mut Vec<u64>) {
        while self.debts.front().is_some_and(|debt| debt.printed == 0) {
            if let Some(debt) = self.debts.pop_front() {
                self.credit += debt.cost;
                released.extend(debt.release);
            }
        }
    }

    fn idle(&self) -> bool {
        self.waiting.is_empty() && self.writer.as_ref().is_none_or(|writer| self.lost || writer.idle())
    }
}
