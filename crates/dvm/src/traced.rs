//! Ranks that were let go while a debugger had them.
//!
//! Such a rank is the debugger's to continue, so it got no SIGCONT with the others. When the debugger lets go of it, on
//! purpose or by dying, the kernel puts it back into the stop that it came from, and tells nobody: it would stand there
//! for ever. There is no event to wait for, so these ranks are looked at now and then, as long as there are any.
//!
//! | a rank is | seen traced | cannot be seen | seen free | ends |
//! |---|---|---|---|---|
//! | not watched | – | – | – | – |
//! | watched | by whom is kept | – | *left* if its debugger lives, *lost* if not: not watched | not watched |

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use base::{JobId, ProcId, RankSet, Time};

use crate::planted::{self, Bug};

/// How often they are looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A process, and when it started: a number alone may come to mean another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debugger {
    pub pid: i32,
    /// Absent where it was gone before it could be asked.
    pub started: Option<u64>,
}

/// What a look at a rank has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    TracedBy(Debugger),
    /// Nobody traces it.
    Free(Former),
    /// The kernel did not say.
    Unknown,
}

/// What has become of the debugger that a rank had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Former {
    Lives,
    Gone,
    /// It was never known who it is.
    Unknown,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// This rank was let go, and a debugger has it, or may: where the kernel did not say, that is found out.
    LetGo(ProcId, Option<Debugger>),
    /// Answers [`Output::Look`].
    Looked(ProcId, Seen),
    Ended(ProcId),
    /// The time that [`Traced::deadline`] gave has come.
    Tick,
}

/// What the caller is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Look at a rank, and where nobody has it any more, at the debugger that had it.
    Look(ProcId, Option<Debugger>),
    /// Nobody has these ranks any more. The debugger of those in `left` lives on, that of those in `lost` is gone.
    Untraced {
        job: JobId,
        left: RankSet,
        lost: RankSet,
    },
}

/// The state machine of one node.
#[derive(Debug, Default)]
pub struct Traced {
    watched: BTreeMap<ProcId, Option<Debugger>>,
    look_at: Option<Time>,
    /// Ranks that are being looked at.
    asked: usize,
    found: BTreeMap<JobId, (RankSet, RankSet)>,
    outputs: VecDeque<Output>,
}

impl Traced {
    /// Takes one event.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::LetGo(proc, debugger) => {
                self.watched.insert(proc, debugger);
                self.look_at.get_or_insert(now + LOOK_EVERY);
            }
            Input::Ended(proc) => drop(self.watched.remove(&proc)),
            Input::Looked(proc, seen) => self.on_looked(now, proc, seen),
            Input::Tick => {
                if self.look_at.is_some_and(|at| at <= now) {
                    // Until all have been looked at there is no next time.
                    self.look_at = None;
                    let watched = self.watched.iter();
                    let looks = watched.map(|(proc, debugger)| Output::Look(*proc, *debugger));
                    self.outputs.extend(looks);
                    self.asked = self.watched.len();
                }
            }
        }
    }

    /// The next thing to do. Call until `None` after every [`Self::handle`].
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Input::Tick`] is due.
    #[must_use]
    pub const fn deadline(&self) -> Option<Time> {
        self.look_at
    }

    fn on_looked(&mut self, now: Time, proc: ProcId, seen: Seen) {
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

    /// Looks once, answers for each rank that is asked for, and says what was found.
    fn look(traced: &mut Traced, millis: u64, seen: impl Fn(ProcId) -> Seen) -> Vec<Output> {
        traced.handle(at(millis), Input::Tick);
        let mut found = Vec::new();
        while let Some(output) = traced.poll() {
            match output {
                Output::Look(proc, _) => {
                    traced.handle(at(millis), Input::Looked(proc, seen(proc)));
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
        // One is left, and then nobody is woken any more.
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
        assert_eq!(traced.poll(), Some(Output::Look(rank(0), Some(GDB))));
        // It ends before the answer: there is nothing to say, and nothing to look at.
        traced.handle(at(1_000), Input::Ended(rank(0)));
        traced.handle(at(1_000), Input::Looked(rank(0), Seen::Unknown));
        assert_eq!((traced.poll(), traced.deadline()), (None, None));
    }
}
