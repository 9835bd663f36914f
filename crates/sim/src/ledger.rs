//! A record of what really happened in a run, with which everything that the cluster reports is compared.

mod clients;
mod copies;
pub(crate) mod facts;
mod known;
mod tools;
mod traffic;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use base::{ExitStatus, JobId, NodeId, ProcId, Rank, Time};
use bytes::Bytes;
use dvm::{
    proto::{Chunk, ChunkEnd, StartFailure, Stream},
    stdio::{BLOCK, CUT_DELAY, Conduit, LINE_MAX, PARTIAL_DELAY},
};
use pmix::{
    tool::Stage,
    value::{Proc, Status},
};

use self::{clients::Clients, copies::Copies, facts::Facts, known::Known, traffic::Traffic};
pub(crate) use self::{
    clients::{Inquiry, Reaped, TERMINATIONS},
    copies::{Completeness, Pull},
    facts::{child_of, host, job_id},
};
use crate::{kernel::Pid, names::called};

/// Maximum time from the read of output to the chunk that contains it. It covers `PARTIAL_DELAY` and late wake-ups.
const PARTIAL_MAX: Duration = Duration::from_millis(50);
/// Maximum time from the read of output to its chunk if a full buffer cut off a line.
const CUT_MAX: Duration = CUT_DELAY.saturating_add(PARTIAL_MAX);

/// One read of output by a daemon.
#[derive(Debug)]
struct Read {
    /// Offset of the end of the read in the stream, in bytes.
    end: u64,
    size: usize,
    at: Time,
}

/// The state of an output stream at its daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TapeEnd {
    Open,
    /// All writers have closed the stream, and the daemon has read it to end of file.
    Whole,
    /// The daemon has closed the stream before end of file, because a descendant of the rank keeps it open.
    Closed,
}

/// The output of one rank and its descendants on one stream. Numbers and offsets are in bytes.
#[derive(Debug)]
pub(crate) struct Tape {
    /// Written bytes that have not arrived at the front.
    expected: VecDeque<Bytes>,
    written: u64,
    /// Offset of the end of the rank's own output. Its descendants wrote all later bytes.
    own: u64,
    read: u64,
    reads: VecDeque<Read>,
    /// Time since which the daemon reads the stream; `None` while it has paused reading.
    reading: Option<Time>,
    /// Time up to which the daemon was stopped, at least.
    stopped: Time,
    sent: u64,
    arrived: u64,
    newlines: Vec<u64>,
    /// Offsets at which a chunk ended within a line before `PARTIAL_DELAY`. Only a line longer than `LINE_MAX` may be cut there.
    cuts: Vec<u64>,
    pub(crate) end: TapeEnd,
}

impl Tape {
    pub(crate) const fn new() -> Self {
        Self {
            expected: VecDeque::new(),
            written: 0,
            own: 0,
            read: 0,
            reads: VecDeque::new(),
            reading: Some(Time::ZERO),
            stopped: Time::ZERO,
            sent: 0,
            arrived: 0,
            newlines: Vec::new(),
            cuts: Vec::new(),
            end: TapeEnd::Open,
        }
    }

    pub(crate) fn on_written(&mut self, bytes: Bytes, by_rank: bool) {
        self.newlines
            .extend(memchr::memchr_iter(b'\n', &bytes).map(|at| self.written + at as u64));
        self.written += bytes.len() as u64;
        if by_rank {
            self.own = self.written;
        }
        self.expected.push_back(bytes);
    }

    pub(crate) fn on_read(&mut self, now: Time, bytes: usize) {
        self.read += bytes as u64;
        self.reads.push_back(Read {
            end: self.read,
            size: bytes,
            at: now,
        });
    }

    pub(crate) const fn on_paused(&mut self) {
        self.reading = None;
    }

    /// Notes that the daemon does not run until this time.
    pub(crate) fn on_stopped(&mut self, until: Time) {
        self.stopped = self.stopped.max(until);
    }

    pub(crate) const fn on_resumed(&mut self, now: Time) {
        self.reading = Some(now);
    }

    /// Records and checks a chunk that a daemon sends. Returns a description of the first error.
    pub(crate) fn on_sent(&mut self, now: Time, chunk: &Chunk) -> Option<String> {
        let start = self.sent;
        self.sent += chunk.bytes.len() as u64;
        if self.sent > self.read {
            return Some("more is sent than was read".to_owned());
        }
        if chunk.bytes.is_empty() {
            return Some("an empty chunk".to_owned());
        }
        if chunk.bytes.ends_with(b"\n") != (chunk.end == ChunkEnd::Line) {
            return Some(format!("a chunk ends in the wrong way: {:?}", chunk.end));
        }
        while self.reads.front().is_some_and(|read| read.end <= start) {
            self.reads.pop_front();
        }
        // Time before the daemon last resumed reading does not count.
        let since = match (self.reads.front(), self.reading) {
            (Some(read), Some(since)) => read.at.max(since),
            _ => now,
        };
        let waited = now.since(since);
        let mut parts = self.reads.iter().take_while(|read| read.end <= self.sent);
        let cut = chunk.bytes.len() >= BLOCK || parts.any(|read| Conduit::Pipe.is_full(read.size));
        if now.since(since.max(self.stopped)) > if cut { CUT_MAX } else { PARTIAL_MAX } {
            return Some(format!("output was kept back for {waited:?}"));
        }
        if chunk.end == ChunkEnd::Partial && waited < PARTIAL_DELAY {
            self.cuts.push(self.sent);
        }
        None
    }

    /// Compares a chunk that arrives at the front with the bytes that were written. Returns a description of the first error.
    pub(crate) fn on_arrived(&mut self, mut bytes: &[u8]) -> Option<String> {
        self.arrived += bytes.len() as u64;
        while !bytes.is_empty() {
            let Some(expected) = self.expected.front_mut() else {
                return Some("more arrives than was written".to_owned());
            };
            let part = expected.len().min(bytes.len());
            if expected.split_to(part) != bytes[..part] {
                return Some(format!(
                    "other bytes arrive than were written, up to offset {}",
                    self.arrived
                ));
            }
            bytes = &bytes[part..];
            if expected.is_empty() {
                self.expected.pop_front();
            }
        }
        None
    }

    /// Checks the complete stream at the end of a run. Its node must not have been lost. Returns a description of the first
    /// error.
    pub(crate) fn check(&self, reader: Reader) -> Option<String> {
        if self.end == TapeEnd::Open {
            return Some("was neither read to its end nor closed".to_owned());
        }
        if self.sent != self.read {
            return Some(format!("{} bytes were read, {} sent", self.read, self.sent));
        }
        if self.end == TapeEnd::Whole && self.read != self.written {
            return Some(format!(
                "{} bytes were written, {} read",
                self.written, self.read
            ));
        }
        if self.read < self.own {
            return Some(format!(
                "the rank itself wrote {} bytes, {} were read",
                self.own, self.read
            ));
        }
        if reader == Reader::Present && self.arrived != self.sent {
            return Some(format!(
                "{} bytes were sent, {} arrived",
                self.sent, self.arrived
            ));
        }
        self.cuts.iter().find_map(|cut| {
            let before = self.newlines.partition_point(|at| at < cut);
            let start = before
                .checked_sub(1)
                .and_then(|index| self.newlines.get(index))
                .map_or(0, |at| at + 1);
            let end = self.newlines.get(before).map_or(self.written, |at| at + 1);
            let whole = end - start;
            // A chunk at the end of the stream is exempt: the last line may have no line feed.
            (*cut != self.sent && whole <= LINE_MAX as u64)
                .then(|| format!("a line of {whole} bytes was cut at offset {cut}"))
        })
    }

    pub(crate) const fn all_sent(&self) -> bool {
        self.sent == self.read
    }
}

/// Whether the front of a job receives the output to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Present,
    Gone,
}

/// The stdin that a front sends to the ranks of its job. `content` is all of it; `sent` is the number of bytes sent so far.
#[derive(Debug, Default)]
pub(crate) struct SentInput {
    pub(crate) content: Bytes,
    pub(crate) sent: u64,
    /// True once the front has sent end of file.
    pub(crate) ended: bool,
}

/// The facts of a run so far.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// True if files of the run cannot all be copied, or change meanwhile.
    pub(crate) has_troubled_files: bool,
    /// True if tools may ask for output.
    pub(crate) has_door: bool,
    pub(crate) tapes: BTreeMap<(ProcId, Stream), Tape>,
    pub(crate) spawned: BTreeMap<ProcId, Pid>,
    pub(crate) spawned_at: BTreeMap<ProcId, Time>,
    pub(crate) failed: BTreeMap<ProcId, StartFailure>,
    pub(crate) statuses: BTreeMap<ProcId, ExitStatus>,
    pub(crate) died: BTreeMap<ProcId, Time>,
    pub(crate) reaped: BTreeMap<ProcId, Reaped>,
    /// Ended jobs and their exit codes. Jobs that they have spawned may go on.
    pub(crate) over: Vec<(JobId, u64)>,
    /// Time at which the controller has heard of the end of the last rank of each of them.
    pub(crate) over_at: BTreeMap<JobId, Time>,
    /// Time at which each daemon received the event for the end of each job in `over`.
    pub(crate) over_told: BTreeMap<(NodeId, JobId), Time>,
    /// Time at which each daemon received the event that all ranks of a spawned job are held.
    pub(crate) held_told: BTreeMap<(NodeId, JobId), Time>,
    /// Ranks whose release a process has requested, and since when.
    pub(crate) released: BTreeMap<ProcId, Time>,
    /// Time at which the daemon of each held rank has heard that it is stopped.
    pub(crate) trapped: BTreeMap<ProcId, Time>,
    /// Jobs that at least one daemon has forgotten.
    pub(crate) forgotten: BTreeSet<JobId>,
    /// Jobs whose end was requested or has become necessary.
    pub(crate) ending: BTreeSet<JobId>,
    pub(crate) pmix: Clients,
    pub(crate) facts: Facts,
    pub(crate) known: Known,
    traffic: Traffic,
    pub(crate) copies: Copies,
    /// Time at which each held rank was continued.
    pub(crate) continued: BTreeMap<ProcId, Time>,
    /// Numbers of tools that were admitted.
    tools: BTreeSet<JobId>,
    /// Time at which each tool has died, has left, or has broken the protocol.
    pub(crate) tools_left: BTreeMap<JobId, Time>,
    /// True if directives hold the ranks of the job that a tool controls, and not the user.
    pub(crate) directives_hold: bool,
    /// Time from which the controller has a job to which what a tool spawns can belong.
    pub(crate) can_spawn_since: Option<Time>,
    /// Number of the tool that has started the launcher.
    pub(crate) starter: Option<JobId>,
    /// True once that tool has died, has left, or may have.
    pub(crate) is_starter_gone: bool,
    /// Time at which a tool has released the launcher.
    pub(crate) released_at: Option<Time>,
    /// Number of times that the door was told that the launcher waits for a tool.
    pub(crate) readies_told: u64,
    /// Time at which the door was told how far a job has come that a tool controls.
    pub(crate) stages_told: BTreeMap<(JobId, Stage), Time>,
    /// Upper bound of a round trip between a process and the controller.
    pub(crate) slack: Duration,
    /// Sum of the times for which processes of daemons were stopped.
    pub(crate) stops: Duration,
    /// Ranks whose node was lost.
    pub(crate) lost: BTreeSet<ProcId>,
    pub(crate) lost_nodes: BTreeMap<NodeId, Time>,
    /// Processes that a daemon has reported as stuck and abandoned.
    pub(crate) stuck: BTreeSet<(NodeId, Pid)>,
    /// Time of the last event that is a valid reason for a job to continue.
    pub(crate) busy_until: Time,
    /// The input of each job that a front has submitted.
    pub(crate) inputs: BTreeMap<JobId, SentInput>,
    /// Number of bytes of its job's input that each rank and its descendants have read.
    pub(crate) input_read: BTreeMap<ProcId, u64>,
}

impl Ledger {
    pub(crate) fn new(slack: Duration) -> Self {
        Self {
            has_troubled_files: false,
            has_door: false,
            tapes: BTreeMap::new(),
            spawned: BTreeMap::new(),
            spawned_at: BTreeMap::new(),
            failed: BTreeMap::new(),
            statuses: BTreeMap::new(),
            died: BTreeMap::new(),
            reaped: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            over: Vec::new(),
            over_at: BTreeMap::new(),
            over_told: BTreeMap::new(),
            held_told: BTreeMap::new(),
            released: BTreeMap::new(),
            trapped: BTreeMap::new(),
            continued: BTreeMap::new(),
            tools_left: BTreeMap::new(),
            directives_hold: false,
            can_spawn_since: None,
            ending: BTreeSet::new(),
            pmix: Clients::default(),
            facts: Facts::default(),
            known: Known::default(),
            traffic: Traffic::default(),
            copies: Copies::default(),
            tools: BTreeSet::new(),
            starter: None,
            is_starter_gone: false,
            released_at: None,
            readies_told: 0,
            stages_told: BTreeMap::new(),
            slack,
            stops: Duration::ZERO,
            lost: BTreeSet::new(),
            lost_nodes: BTreeMap::new(),
            stuck: BTreeSet::new(),
            busy_until: Time::ZERO,
            inputs: BTreeMap::new(),
            input_read: BTreeMap::new(),
        }
    }

    pub(crate) fn busy(&mut self, now: Time) {
        self.busy_until = self.busy_until.max(now);
    }

    /// Records the end of a job with its exit code. Only the first call for a job has an effect.
    pub(crate) fn on_job_over(&mut self, now: Time, job: JobId, code: u64) {
        self.over_at.entry(job).or_insert(now);
        if self.over.iter().all(|(other, _)| *other != job) {
            self.over.push((job, code));
        }
    }

    /// Records that a tool was admitted under a number. Returns false if a job or another tool has it.
    pub(crate) fn on_admitted(&mut self, number: JobId) -> bool {
        self.facts.size(number) == 0 && self.tools.insert(number)
    }

    /// Returns true if a tool has this number.
    pub(crate) fn is_tool(&self, number: JobId) -> bool {
        self.tools.contains(&number)
    }

    /// Returns the status of a job that has ended.
    pub(crate) fn status_of(&self, job: JobId) -> Option<Status> {
        let over = self.over.iter().find(|(one, _)| *one == job);
        let over = over.map(|(_, code)| Status(i32::try_from(*code).unwrap_or(-1)));
        // Who ends a job that was not launched is the cause of its end. The verdicts do not know such a job of a tool.
        let is_canceled = || self.facts.size(job) == 0;
        over.or_else(|| is_canceled().then_some(Status(1)))
    }

    /// Records that a daemon receives the event for the end of a job. Returns a description of the error if it has not ended, or was
    /// told before. A job may end before it is launched.
    pub(crate) fn on_over_told(&mut self, now: Time, node: NodeId, job: JobId) -> Option<String> {
        let has_run = self.spawned.keys().any(|proc| proc.job == job);
        let is_early = has_run && self.over.iter().all(|(one, _)| *one != job);
        let is_first = self.over_told.insert((node, job), now).is_none();
        let wrong = if is_early {
            "has not ended"
        } else {
            "was told before"
        };
        (is_early || !is_first)
            .then(|| format!("node {node} is told the end of job {job}, which {wrong}"))
    }

    /// Records and checks bytes that a process read from a rank's stdin. Returns a description of an error.
    pub(crate) fn on_input_read(&mut self, proc: ProcId, bytes: &[u8]) -> Option<String> {
        let read = self.input_read.entry(proc).or_default();
        let start = usize::try_from(*read).unwrap_or(usize::MAX);
        *read += bytes.len() as u64;
        let input = self.inputs.entry(proc.job).or_default();
        let expected = input.content.get(start..start + bytes.len());
        if *read > input.sent || expected != Some(bytes) {
            return Some(format!(
                "{} reads other input than was sent, from offset {start}",
                called(proc)
            ));
        }
        None
    }

    /// Checks an end of file that a process read from a rank's stdin. Returns a description of the error if it came too early.
    pub(crate) fn on_input_end(&self, proc: ProcId) -> Option<String> {
        let read = self.input_read.get(&proc).copied().unwrap_or(0);
        let input = self.inputs.get(&proc.job);
        let (sent, ended) = input.map_or((0, false), |input| (input.sent, input.ended));
        (!ended || read != sent).then(|| {
            format!(
                "{} reads the end of its input after {read} of {sent} bytes",
                called(proc),
            )
        })
    }
}

/// Returns the proc with this PMIx name; `None` if the name is not that of one rank.
pub(crate) fn proc_id(proc: &Proc) -> Option<ProcId> {
    let name = proc.nspace.to_string();
    let (_, job) = name.rsplit_once('@')?;
    let job = JobId(job.parse().ok()?);
    let rank = Rank(proc.rank.0);
    proc.rank.is_number().then_some(ProcId { job, rank })
}
