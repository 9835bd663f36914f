//! A simulated front: sends input within its credit, prints output at the speed of its reader, and acts on a schedule.

use std::{collections::BTreeMap, time::Duration};

use base::{JobId, NodeId, ProcId, RankSet, Time};
use dvm::{
    proto::{
        Cause, Chunk, FromFront, FrontId, JobRef, Note, Outcome, OutputCredit, Refusal, TableRow,
        ToFront,
    },
    stdio::{self, OUTPUT_WINDOW},
};

use crate::{
    names::called,
    scenario::{Act, Eof, InputPlan, PrintPlan},
    world::{Carried, Event, World},
};

/// Amount of printed output for which the front sends one credit message; the same as in the real front.
const CREDIT_PORTION: u64 = OUTPUT_WINDOW / 16;
/// Number of bytes of a stream that a node may have in flight in addition to the output window.
const WINDOW_SLACK: u64 = 4 * 1024 * 1024;

/// What the front has received from the controller.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) table: Option<Vec<TableRow>>,
    pub(crate) all_held: Option<(RankSet, RankSet)>,
    ending: Option<Cause>,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) leaky: RankSet,
    pub(crate) spawned_failed: BTreeMap<JobId, Cause>,
}

#[derive(Debug)]
pub(crate) struct Front {
    id: FrontId,
    /// Id of the front's own job; `None` until the controller has accepted it.
    pub(crate) job: Option<JobId>,
    input: InputPlan,
    print: PrintPlan,
    acts: Vec<(Duration, Act)>,
    release_after: Option<Duration>,
    nodes: u64,
    credit: u64,
    sent: u64,
    /// True once the front has sent the end of its input, or the controller has reported that no rank reads it.
    input_over: bool,
    reading: bool,
    /// Output that was received and not yet printed, for each stream, counted by [`stdio::cost`].
    unprinted: [u64; 2],
    /// Time at which the last chunk received so far is printed, for each stream.
    print_at: [Time; 2],
    /// Printed output that was not yet credited, for each stream.
    owed: BTreeMap<(JobId, NodeId), [u64; 2]>,
    pub(crate) gone: bool,
    pub(crate) told: Told,
}

impl Front {
    pub(crate) fn new(
        id: FrontId,
        input: InputPlan,
        print: PrintPlan,
        acts: Vec<(Duration, Act)>,
        release_after: Option<Duration>,
        nodes: usize,
    ) -> Self {
        Self {
            id,
            job: None,
            input,
            print,
            acts,
            release_after,
            nodes: nodes as u64,
            credit: 0,
            sent: 0,
            input_over: false,
            reading: false,
            unprinted: [0; 2],
            print_at: [Time::ZERO; 2],
            owed: BTreeMap::new(),
            gone: false,
            told: Told::default(),
        }
    }

    /// Schedules the actions of the front.
    pub(crate) fn begin(&self, world: &mut World) {
        for (index, (when, _)) in self.acts.iter().enumerate() {
            let front = self.id;
            world.after(*when, Event::FrontActs { front, index });
        }
    }

    pub(crate) fn vanish(&mut self, world: &mut World) {
        if !self.gone {
            self.gone = true;
            if let Some(link) = world.links.to_front.get_mut(&self.id) {
                link.cut();
            }
            let now = world.now;
            world.ledger.busy(now);
            world.hear_front(self.id, Carried::Lost);
        }
    }

    fn over(&self) -> bool {
        self.gone || self.told.outcome.is_some() || self.told.refusal.is_some()
    }

    pub(crate) fn act(&mut self, world: &mut World, index: usize) {
        let Some((_, act)) = self.acts.get(index).copied() else {
            return;
        };
        if self.over() {
            return;
        }
        world.note(|| "front".to_owned(), || format!("acts: {act:?}"));
        let message = match act {
            Act::Signal(signal) => FromFront::Signal(signal),
            Act::End(reason) => FromFront::End(reason),
            Act::Kill(reason) => FromFront::Kill(reason),
            Act::Release => release(None),
            Act::ReleaseSome(count) => release(Some(RankSet::range(0..count))),
            Act::Vanish => return self.vanish(world),
        };
        world.hear_front(self.id, Carried::Message(message));
    }

    pub(crate) fn release(&self, world: &mut World) {
        if !self.over() {
            world.hear_front(self.id, Carried::Message(release(None)));
        }
    }

    pub(crate) fn on_message(&mut self, world: &mut World, message: ToFront) {
        if self.gone {
            return;
        }
        world.note(|| "front".to_owned(), || format!("<- {message:?}"));
        if self.over() {
            world.fault(format!(
                "after the last message the front is told {message:?}"
            ));
            return;
        }
        match message {
            ToFront::Accepted(job) => {
                let again = self.job.replace(job);
                world.require(again.is_none(), || "a job is accepted twice".to_owned());
                let input = world.ledger.inputs.entry(job).or_default();
                input.content = self.input.content.clone();
            }
            ToFront::Output { node, chunk } => self.on_output(world, node, &chunk),
            ToFront::StdinCredit(bytes) => {
                self.credit += bytes;
                self.read_soon(world);
            }
            ToFront::StdinClosed => self.input_over = true,
            ToFront::Launched { table, .. } => {
                let again = self.told.table.replace(table);
                world.require(again.is_none(), || "the launch is told twice".to_owned());
            }
            ToFront::AllHeld { held, dead } => {
                let table = self.told.table.is_some();
                world.require(table, || "`all held` is told before the launch".to_owned());
                let again = self.told.all_held.replace((held, dead));
                world.require(again.is_none(), || "`all held` is told twice".to_owned());
                if let Some(after) = self.release_after {
                    let front = self.id;
                    world.after(after, Event::FrontReleases { front });
                }
            }
            ToFront::Note(Note::Leaky(ranks)) => self.told.leaky = ranks,
            ToFront::Note(Note::SpawnedFailed { job, cause }) => {
                let again = self.told.spawned_failed.insert(job, *cause);
                world.require(again.is_none(), || {
                    format!("the failure of job {job} is told twice")
                });
            }
            ToFront::Note(Note::Refused(refused)) => {
                world.ledger.pmix.told_refused += refused.count;
            }
            // The contents of these messages are not checked.
            ToFront::Note(_)
            | ToFront::Preloading(_)
            | ToFront::Released { .. }
            | ToFront::NotReleased(_)
            | ToFront::Holding(_)
            | ToFront::Placed { .. } => {}
            // No controller sends these: its host does.
            ToFront::Lost(_)
            | ToFront::Prompt(_)
            | ToFront::PromptWithdrawn(_)
            | ToFront::Answer(_)
            | ToFront::Reply(_)
            | ToFront::Queued(_)
            | ToFront::Numbered(_)
            | ToFront::Tool(_) => {
                world.require(false, || "a prompt, but no command asks".to_owned());
            }
            ToFront::Ending(cause) => {
                let again = self.told.ending.replace(cause);
                world.require(again.is_none(), || {
                    "the beginning of the end is told twice".to_owned()
                });
            }
            ToFront::Failed(why) => {
                world.fault(format!("the front is told of a failure: {why}"));
            }
            ToFront::Internal(why) => {
                world.fault(format!("the front is told of a failure: {why}"));
            }
            ToFront::Refused(refusal) => self.told.refusal = Some(refusal),
            ToFront::Ended(outcome) => {
                let announced = match (&self.told.ending, &outcome.cause) {
                    (Some(Cause::NotStarted(_)), Cause::NotStarted(_)) => true,
                    (Some(said), cause) => said == cause,
                    // The job ended by itself, though ranks may have failed, or a node was lost.
                    (None, cause) => matches!(
                        cause,
                        Cause::Success | Cause::Failed { .. } | Cause::NodeLost { .. }
                    ),
                };
                world.require(announced, || {
                    format!(
                        "the end was announced as {:?} and was {:?}",
                        self.told.ending, outcome.cause
                    )
                });
                self.told.outcome = Some(outcome);
            }
        }
    }

    fn on_output(&mut self, world: &mut World, node: NodeId, chunk: &Chunk) {
        let Chunk {
            job,
            rank,
            stream,
            bytes,
            ..
        } = chunk;
        let (job, stream) = (*job, *stream);
        let proc = ProcId { job, rank: *rank };
        let wrong = match world.ledger.tapes.get_mut(&(proc, stream)) {
            Some(tape) => tape.on_arrived(bytes),
            None => Some("nothing is connected to it".to_owned()),
        };
        if let Some(wrong) = wrong {
            world.fault(format!("{stream:?} of {}: {wrong}", called(proc)));
        }
        let slot = stream as usize;
        let cost = stdio::cost(bytes.len());
        self.unprinted[slot] += cost;
        let (waiting, bound) = (
            self.unprinted[slot],
            self.nodes * (OUTPUT_WINDOW + WINDOW_SLACK),
        );
        world.require(waiting <= bound, || {
            format!("{waiting} bytes of output wait at the front")
        });
        let mut at = self.print_at[slot].max(world.now) + world.delay(self.print.pause_max);
        for (from, to) in &self.print.stalls {
            if at >= Time::ZERO + *from && at < Time::ZERO + *to {
                at = Time::ZERO + *to;
            }
        }
        self.print_at[slot] = at;
        let credit = OutputCredit {
            job,
            node,
            stream,
            bytes: cost,
        };
        let front = self.id;
        world.at(at, Event::Printed { front, credit });
    }

    pub(crate) fn on_printed(&mut self, world: &mut World, printed: OutputCredit) {
        let slot = printed.stream as usize;
        let cost = printed.bytes;
        self.unprinted[slot] -= cost.min(self.unprinted[slot]);
        let is_over = self.over();
        let owed = self.owed.entry((printed.job, printed.node)).or_default();
        owed[slot] += cost;
        if owed[slot] >= CREDIT_PORTION && !is_over {
            let bytes = std::mem::take(&mut owed[slot]);
            let credit = FromFront::OutputCredit(OutputCredit { bytes, ..printed });
            world.hear_front(self.id, Carried::Message(credit));
        }
    }

    fn read_soon(&mut self, world: &mut World) {
        if !self.reading && !self.input_over && self.credit > 0 {
            self.reading = true;
            let pause = world.delay(self.input.pause_max);
            world.after(pause, Event::FrontReads { front: self.id });
        }
    }

    /// Reads once from the front's own stdin, and sends what it has read.
    pub(crate) fn read(&mut self, world: &mut World) {
        self.reading = false;
        if self.over() || self.input_over || self.credit == 0 {
            return;
        }
        let left = self.input.content.len() as u64 - self.sent;
        if left == 0 {
            if self.input.eof == Eof::Comes {
                self.input_over = true;
                if let Some(job) = self.job {
                    world.ledger.inputs.entry(job).or_default().ended = true;
                }
                world.hear_front(self.id, Carried::Message(FromFront::StdinEof));
            }
            return;
        }
        let most = world.rng.between(1, self.input.piece_max as u64);
        let part = left.min(most).min(self.credit);
        let start = usize::try_from(self.sent).unwrap_or(usize::MAX);
        let end = usize::try_from(self.sent + part).unwrap_or(usize::MAX);
        let bytes = self.input.content.slice(start..end);
        self.sent += part;
        self.credit -= part;
        if let Some(job) = self.job {
            world.ledger.inputs.entry(job).or_default().sent = self.sent;
        }
        world.hear_front(self.id, Carried::Message(FromFront::Stdin(bytes)));
        self.read_soon(world);
    }

    /// Returns the cause of the job's end; `None` until the front has received the outcome.
    pub(crate) fn cause(&self) -> Option<&Cause> {
        self.told.outcome.as_ref().map(|outcome| &outcome.cause)
    }
}

/// Returns the request to release these held ranks of the front's own job; `None` releases all of them.
const fn release(ranks: Option<RankSet>) -> FromFront {
    FromFront::Release {
        job: JobRef::Own,
        ranks,
    }
}
