//! The output that daemons have sent, and what of it tools must get: what follows their requests, and what is kept for them before.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{JobId, NodeId, ProcId, Time};
use dvm::{
    ControllerInput,
    proto::{Dropped, Keeping, Stream, ToController},
};

use super::{Ledger, facts::Facts};
use crate::names::called;

/// What the daemon of a rank has sent of one stream.
#[derive(Debug, Default)]
struct Said {
    bytes: Vec<u8>,
    /// The length after each chunk, and when that was sent.
    lengths: Vec<(Time, usize)>,
}

impl Said {
    /// Returns the number of bytes that were sent until then.
    fn until(&self, time: Time) -> usize {
        let later = self.lengths.partition_point(|(at, _)| *at <= time);
        let last = later.checked_sub(1).and_then(|last| self.lengths.get(last));
        last.map_or(0, |(_, length)| *length)
    }
}

/// Output of a job that is kept for tools.
#[derive(Clone, Copy, Debug)]
struct Keep {
    /// Time of the request; [`Time::ZERO`] if the job was launched with it.
    asked: Time,
    /// Time from which all that is sent is kept; `None` if it may be that nothing is.
    sure: Option<Time>,
    keeping: Keeping,
}

/// All output of a run with a door.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    said: BTreeMap<(ProcId, Stream), Said>,
    /// Time at which the controller has heard that a rank is over.
    over: BTreeMap<ProcId, Time>,
    keeps: BTreeMap<(JobId, Stream), Vec<Keep>>,
    /// Streams that go to the tool that controls a job.
    pub(crate) forwarded: BTreeSet<(JobId, Stream)>,
}

/// Whether a tool must have got everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    Whole,
    /// It has left.
    Part,
}

/// What a tool has got of one stream of a process.
#[derive(Debug, Default)]
struct Got {
    bytes: Vec<u8>,
    is_over: bool,
}

/// A request of a tool for output, and what it has got.
#[derive(Debug)]
pub(crate) struct Pull {
    pub(crate) job: JobId,
    pub(crate) streams: Vec<Stream>,
    pub(crate) asked: Time,
    pub(crate) answered: Option<Time>,
    /// Time at which its end was requested.
    pub(crate) stopped: Option<Time>,
    /// True once that was granted.
    is_closed: bool,
    /// True if it was there before the job.
    is_from_start: bool,
    got: BTreeMap<(ProcId, Stream), Got>,
}

impl Pull {
    pub(crate) fn new(job: JobId, streams: Vec<Stream>, asked: Time) -> Self {
        Self {
            job,
            streams,
            asked,
            answered: None,
            stopped: None,
            is_closed: false,
            is_from_start: false,
            got: BTreeMap::new(),
        }
    }

    /// Creates a request that was made with the job.
    pub(crate) fn from_start(job: JobId, streams: Vec<Stream>) -> Self {
        Self {
            answered: Some(Time::ZERO),
            is_from_start: true,
            ..Self::new(job, streams, Time::ZERO)
        }
    }

    /// Notes that nothing more may come.
    pub(crate) const fn close(&mut self) {
        self.is_closed = true;
    }

    /// Takes output. No bytes are the end of the stream. Returns a description of an error.
    pub(crate) fn take(&mut self, proc: ProcId, stream: Stream, bytes: &[u8]) -> Option<String> {
        if proc.job != self.job || !self.streams.contains(&stream) {
            return Some(format!("gets {stream:?} of {}", called(proc)));
        }
        let got = self.got.entry((proc, stream)).or_default();
        if got.is_over || self.is_closed {
            return Some(format!(
                "gets more {stream:?} of {} after its end",
                called(proc)
            ));
        }
        got.bytes.extend(bytes);
        got.is_over = bytes.is_empty();
        None
    }
}

/// Returns the length of the common beginning of two streams.
fn beginning(one: &[u8], other: &[u8]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|(one, other)| one == other).count()
}

/// Returns the length of their common end.
fn end(one: &[u8], other: &[u8]) -> usize {
    let pairs = one.iter().rev().zip(other.iter().rev());
    pairs.take_while(|(one, other)| one == other).count()
}

impl Copies {
    /// Records output that a daemon sends.
    pub(crate) fn on_said(&mut self, now: Time, proc: ProcId, stream: Stream, bytes: &[u8]) {
        let said = self.said.entry((proc, stream)).or_default();
        said.bytes.extend(bytes);
        said.lengths.push((now, said.bytes.len()));
    }

    /// Records what the controller is about to hear.
    pub(crate) fn on_input(&mut self, now: Time, input: &ControllerInput, facts: &Facts) {
        match input {
            ControllerInput::Daemon(_, ToController::Ended { job, classes }) => {
                let ranks = classes.iter().flat_map(|class| class.ranks.iter());
                for rank in ranks {
                    self.over.entry(ProcId { job: *job, rank }).or_insert(now);
                }
            }
            ControllerInput::DaemonLost(node, _) => {
                for proc in facts.all_on(*node) {
                    self.over.entry(proc).or_insert(now);
                }
            }
            _ => {}
        }
    }

    /// Records that output is to be kept. `times` are those of a request and of its effect; a job may be launched with it.
    pub(crate) fn on_kept(
        &mut self,
        job: JobId,
        streams: &[Stream],
        keeping: Keeping,
        times: Option<(Time, Option<Time>)>,
    ) {
        let (asked, sure) = times.unwrap_or((Time::ZERO, Some(Time::ZERO)));
        let keep = Keep {
            asked,
            sure,
            keeping,
        };
        for stream in streams.iter().filter(|_| keeping.bytes > 0) {
            self.keeps.entry((job, *stream)).or_default().push(keep);
        }
    }

    fn of_channel(&self, job: JobId, stream: Stream) -> impl Iterator<Item = &Said> {
        let all = self.said.iter();
        let of = all.filter(move |((proc, of), _)| proc.job == job && *of == stream);
        of.map(|(_, said)| said)
    }

    /// Returns the number of bytes of a channel that were sent after this time.
    fn since(&self, job: JobId, stream: Stream, time: Time) -> usize {
        let all = self.of_channel(job, stream);
        all.map(|said| said.bytes.len() - said.until(time)).sum()
    }

    /// Returns the time from which a tool that asks then must get everything, because it is kept or follows.
    fn must_have(&self, pull: &Pull, stream: Stream, sure: Time) -> Time {
        let keeps = self.keeps.get(&(pull.job, stream)).into_iter().flatten();
        let whole = keeps.filter_map(|keep| {
            let length = self.since(pull.job, stream, keep.asked);
            let from = keep.sure.filter(|from| *from <= pull.asked);
            from.filter(|_| length <= keep.keeping.bytes as usize)
        });
        whole.fold(sure, Time::min)
    }

    /// Returns true if something between what was kept and what follows may be missing.
    fn may_have_gap(&self, job: JobId, stream: Stream) -> bool {
        let mut keeps = self.keeps.get(&(job, stream)).into_iter().flatten();
        let length = self.since(job, stream, Time::ZERO);
        keeps.any(|keep| {
            keep.keeping.dropped == Dropped::Newest && length > keep.keeping.bytes as usize
        })
    }
}

impl Ledger {
    /// Returns true if the server of a node knew a job all the time between these two.
    pub(crate) fn knew(&self, node: NodeId, job: JobId, from: Time, to: Time) -> bool {
        let span = self.known.of_job(node, job);
        span.is_some_and(|span| span.covers(from, to))
    }

    /// Returns the job whose output goes to the tool with this number from the start.
    pub(crate) fn forwarded_to(&self, tool: JobId) -> Option<(JobId, Vec<Stream>)> {
        let forwarded = self.copies.forwarded.iter();
        let mut own = forwarded.filter(|(job, _)| self.facts.controller_of(*job) == Some(tool));
        let (job, first) = own.next()?;
        let others = own.map(|(_, stream)| *stream);
        Some((*job, std::iter::once(*first).chain(others).collect()))
    }

    /// Checks what a tool has got. Returns a description of an error.
    pub(crate) fn wrong_output(
        &self,
        door: NodeId,
        pull: &Pull,
        completeness: Completeness,
        patience: Duration,
    ) -> Option<String> {
        for ((proc, stream), got) in &pull.got {
            let nothing = Said::default();
            let said = self.copies.said.get(&(*proc, *stream)).unwrap_or(&nothing);
            if let Some(wrong) = self.misplaced(*stream, pull.job, said, got) {
                return Some(format!("gets {stream:?} of {}: {wrong}", called(*proc)));
            }
        }
        let answered = pull.answered?;
        if completeness == Completeness::Part {
            return None;
        }
        let sure = if pull.is_from_start {
            Time::ZERO
        } else {
            // Who asks when the job is over may get nothing.
            let span = self.known.of_job(door, pull.job)?;
            if span.until.is_some_and(|until| until <= answered) {
                return None;
            }
            answered.max(span.since) + patience
        };
        for (proc, over) in &self.copies.over {
            let is_stopped = pull
                .stopped
                .is_some_and(|stopped| *over + patience >= stopped);
            // Of a rank that was not started there is nothing.
            let is_void = !self.spawned.contains_key(proc);
            if proc.job != pull.job || is_stopped || is_void {
                continue;
            }
            for stream in &pull.streams {
                let from = self.copies.must_have(pull, *stream, sure);
                if from >= *over {
                    continue;
                }
                let nothing = (Said::default(), Got::default());
                let said = self.copies.said.get(&(*proc, *stream));
                let said = said.unwrap_or(&nothing.0);
                let got = pull.got.get(&(*proc, *stream)).unwrap_or(&nothing.1);
                let due = said.bytes.len() - said.until(from);
                if !got.is_over || got.bytes.len() < due {
                    let (length, end) = (got.bytes.len(), got.is_over);
                    return Some(format!(
                        "gets {length} bytes of {stream:?} of {} (end: {end}), {due} were due since {from}",
                        called(*proc)
                    ));
                }
            }
        }
        None
    }

    /// Returns how output differs from what was sent.
    fn misplaced(&self, stream: Stream, job: JobId, said: &Said, got: &Got) -> Option<String> {
        let all = &said.bytes;
        let length = got.bytes.len();
        let first = beginning(&got.bytes, all);
        let may_have_gap = self.copies.may_have_gap(job, stream);
        let is_right = if got.is_over {
            let last = end(&got.bytes, all);
            last == length || may_have_gap && first + last >= length
        } else {
            let is_part = |part: &[u8]| memchr::memmem::find(all, part).is_some();
            is_part(&got.bytes) || may_have_gap && is_part(&got.bytes[first..])
        };
        (!is_right).then(|| {
            format!(
                "{length} bytes, {first} from the beginning, of {} that were sent (gap: {may_have_gap})",
                all.len()
            )
        })
    }
}
