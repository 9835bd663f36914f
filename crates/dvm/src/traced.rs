//! Ranks that were released while a debugger was attached to them.
//!
//! Continuing such a rank is up to its debugger, so we send it no SIGCONT. When the debugger detaches or dies, the
//! kernel puts the rank back into its former stop and sends no event. The rank would then stay stopped for ever. We
//! therefore poll these ranks as long as there are any.
//!
//! | a rank is | poll: traced | poll: no answer | poll: not traced | it exits |
//! |---|---|---|---|---|
//! | not watched | – | – | – | – |
//! | watched | record the tracer | – | report it as *left* or *lost*; stop watching | stop watching |
//!
//! A rank is *lost* if its debugger has died. It is *left* if the debugger lives or is unknown.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use base::{JobId, ProcId, RankSet, Time};

use crate::planted::{self, Bug};

/// Interval at which watched ranks are polled.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The process of a debugger. The start time distinguishes it from a later process with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debugger {
    pub pid: i32,
    /// Start time of the process; `None` if it was gone before we could read it.
    pub started: Option<u64>,
}

/// The result of polling one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    TracedBy(Debugger),
    /// No process traces the rank.
    Free(Former),
    /// The kernel gave no answer.
    Unknown,
}

/// The fate of the debugger that was attached to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Former {
    Lives,
    Gone,
    /// We never learned which process it was.
    Unknown,
}

/// An event that the caller reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A rank was released while a debugger was, or may have been, attached to it. `None` if the kernel did not say;
    /// then polling finds the debugger.
    LetGo(ProcId, Option<Debugger>),
    /// Answers [`Output::FindTracer`] with the result.
    FoundTracer(ProcId, Seen),
    Ended(ProcId),
    /// The time that [`Traced::deadline`] returned has passed.
    Tick,
}

/// An action for the caller to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Check which process traces the rank, and if none does, whether its former debugger still lives.
    FindTracer(ProcId, Option<Debugger>),
    /// These ranks have no tracer any more. The debuggers of those in `lost` have died; those in `left` were detached.
    Untraced {
        job: JobId,
        left: RankSet,
        lost: RankSet,
    },
}

/// The state machine of one node's watched ranks.
#[derive(Debug, Default)]
pub struct Traced {
    watched: BTreeMap<ProcId, Option<Debugger>>,
    look_at: Option<Time>,
    /// Number of outstanding answers to [`Output::FindTracer`].
    asked: usize,
    found: BTreeMap<JobId, (RankSet, RankSet)>,
    outputs: VecDeque<Output>,
}

impl Traced {
    /// Handles one event.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::LetGo(proc, debugger) => {
                self.watched.insert(proc, debugger);
                self.look_at.get_or_insert(now + LOOK_EVERY);
            }
            Input::Ended(proc) => drop(self.watched.remove(&proc)),
            Input::FoundTracer(proc, seen) => self.on_found_tracer(now, proc, seen),
            Input::Tick => {
                if self.look_at.is_some_and(|at| at <= now) {
                    // The next poll is scheduled when all answers have arrived.
                    self.look_at = None;
                    let watched = self.watched.iter();
                    let looks =
                        watched.map(|(proc, debugger)| Output::FindTracer(*proc, *debugger));
                    self.outputs.extend(looks);
                    self.asked = self.watched.len();
                }
            }
        }
    }

    /// Returns the next action. Call it after every [`Self::handle`] until it returns `None`.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the time at which [`Input::Tick`] is due.
    #[must_use]
    pub const fn deadline(&self) -> Option<Time> {
        self.look_at
    }

    fn on_found_tracer(&mut self, now: Time, proc: ProcId, seen: Seen) {
        self.asked = self.asked.saturating_sub(1);
        match (self.watched.get_mut(&proc), seen) {
            (Some(debugger), Seen::TracedBy(by)) => *debugger = Some(by),
            (Some(_), Seen::Free(former)) => {
                self.watched.remove(&proc);
                let (left, lost) = self.found.entry(proc.job).or_default();
                let is_lost = former == Former::Gone && !planted::is(Bug::LostDebuggerTakenForLeft);
                let ranks = if is_lost { lost } else { left };
                ranks.insert(proc.rank);
            }
            (Some(_), Seen::Unknown) | (None, _) => {}
        }
        if self.asked > 0 {
            return;
        }
        let found = std::mem::take(&mut self.found).into_iter();
        let untraced = found.map(|(job, (left, lost))| Output::Untraced { job, left, lost });
        self.outputs.extend(untraced);
        if !self.watched.is_empty() {
            self.look_at.get_or_insert(now + LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use base::Rank;

    use super::*;

    const GDB: Debugger = Debugger {
        pid: 9,
        started: Some(1),
    };

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn rank(number: u32) -> ProcId {
        ProcId {
            job: JobId(1),
            rank: Rank(number),
        }
    }

    /// Polls once, answers each check with `seen`, and returns the untraced ranks.
    fn look(traced: &mut Traced, millis: u64, seen: impl Fn(ProcId) -> Seen) -> Vec<Output> {
        traced.handle(at(millis), Input::Tick);
        let mut found = Vec::new();
        while let Some(output) = traced.poll() {
            match output {
                Output::FindTracer(proc, _) => {
                    traced.handle(at(millis), Input::FoundTracer(proc, seen(proc)));
                }
                untraced @ Output::Untraced { .. } => found.push(untraced),
            }
        }
        found
    }

    #[test]
    fn ranks_are_looked_at_until_nobody_has_them() {
        let mut traced = Traced::default();
        assert_eq!(traced.deadline(), None);
        for number in 0..4 {
            traced.handle(at(0), Input::LetGo(rank(number), Some(GDB)));
        }
        assert_eq!(traced.deadline(), Some(at(500)));
        assert_eq!(look(&mut traced, 499, |_| Seen::Unknown), []);
        assert_eq!(look(&mut traced, 500, |_| Seen::TracedBy(GDB)), []);
        assert_eq!(traced.deadline(), Some(at(1_000)));
        traced.handle(at(600), Input::Ended(rank(3)));
        let seen = |proc: ProcId| match proc.rank.0 {
            0 => Seen::Free(Former::Lives),
            1 => Seen::Free(Former::Gone),
            _ => Seen::Unknown,
        };
        let untraced = Output::Untraced {
            job: JobId(1),
            left: RankSet::single(Rank(0)),
            lost: RankSet::single(Rank(1)),
        };
        assert_eq!(look(&mut traced, 1_000, seen), [untraced]);
        // One rank is still watched; after it, no more wake-ups are scheduled.
        assert_eq!(traced.deadline(), Some(at(1_500)));
        let untraced = Output::Untraced {
            job: JobId(1),
            left: RankSet::single(Rank(2)),
            lost: RankSet::new(),
        };
        let free = |_| Seen::Free(Former::Unknown);
        assert_eq!(look(&mut traced, 1_500, free), [untraced]);
        assert_eq!(traced.deadline(), None);
    }

    #[test]
    fn a_look_tells_who_has_a_rank_now() {
        let mut traced = Traced::default();
        traced.handle(at(0), Input::LetGo(rank(0), None));
        assert_eq!(look(&mut traced, 500, |_| Seen::TracedBy(GDB)), []);
        traced.handle(at(1_000), Input::Tick);
        assert_eq!(traced.poll(), Some(Output::FindTracer(rank(0), Some(GDB))));
        // The rank exits before the answer arrives: there is nothing to report, and nothing to poll.
        traced.handle(at(1_000), Input::Ended(rank(0)));
        traced.handle(at(1_000), Input::FoundTracer(rank(0), Seen::Unknown));
        assert_eq!((traced.poll(), traced.deadline()), (None, None));
    }
}
