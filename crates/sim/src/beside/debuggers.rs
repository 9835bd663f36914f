//! Ranks that are released while debuggers trace them. Debuggers detach from ranks or die, ranks exit, and the kernel does
//! not always report the tracer.

use std::{collections::BTreeMap, time::Duration};

use base::{JobId, ProcId, Rank, Time};
use dvm::traced::{Debugger, Former, Input, LOOK_EVERY, Output, Seen, Traced};

use super::{Agenda, Record, Wrong};
use crate::rng::Rng;

const HORIZON: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The controller releases this rank.
    Release(ProcId),
    /// The debugger of this rank detaches from it.
    LetGo(ProcId),
    /// The debugger with this pid dies.
    Dies(i32),
    Ends(ProcId),
    Tick,
}

/// A rank of this world.
#[derive(Debug)]
struct Traceable {
    /// Pid of the debugger that traces the rank.
    debugger: Option<i32>,
    is_watched: bool,
    /// Time since which the rank has no tracer.
    free: Option<Time>,
    /// Number of polls since then that the kernel did not answer.
    silences: u32,
    /// State of the former debugger when a poll found the rank untraced; `None` before.
    former: Option<Former>,
}

struct World {
    agenda: Agenda<Event>,
    traced: Traced,
    ranks: BTreeMap<ProcId, Traceable>,
    /// Pids of the live debuggers.
    living: Vec<i32>,
}

impl World {
    fn new(rng: &mut Rng) -> Self {
        let living: Vec<i32> = (100..).take(rng.length(1, 3)).collect();
        let mut agenda = Agenda::new();
        let mut ranks = BTreeMap::new();
        for number in 0..rng.number(1, 8) {
            let proc = ProcId {
                job: JobId(rng.number(1, 2)),
                rank: Rank(number),
            };
            let debugger = living[rng.length(0, living.len() - 1)];
            let released = Time::ZERO + rng.millis(0, 3_000);
            agenda.at(released, Event::Release(proc));
            match rng.between(0, 3) {
                0 => {}
                1 => agenda.at(released + rng.millis(1, 5_000), Event::Ends(proc)),
                _ => agenda.at(released + rng.millis(1, 5_000), Event::LetGo(proc)),
            }
            let rank = Traceable {
                debugger: Some(debugger),
                is_watched: false,
                free: None,
                silences: 0,
                former: None,
            };
            ranks.insert(proc, rank);
        }
        // All debuggers die, so in the end no rank is traced.
        for debugger in &living {
            let when = Time::ZERO + rng.millis(100, 12_000);
            agenda.at(when, Event::Dies(*debugger));
        }
        Self {
            agenda,
            traced: Traced::default(),
            ranks,
            living,
        }
    }

    fn happen(&mut self, rng: &mut Rng, event: Event) {
        let now = self.agenda.now;
        let free = |rank: &mut Traceable| {
            rank.debugger = None;
            rank.free.get_or_insert(now);
        };
        match event {
            Event::Release(proc) => {
                let Some(rank) = self.ranks.get_mut(&proc) else {
                    return;
                };
                // A rank without a debugger is continued with SIGCONT and not watched.
                let Some(pid) = rank.debugger else { return };
                rank.is_watched = true;
                let known = rng.chance(80).then(|| debugger(pid));
                self.traced.handle(now, Input::LetGo(proc, known));
            }
            Event::LetGo(proc) => {
                if let Some(rank) = self.ranks.get_mut(&proc) {
                    free(rank);
                }
            }
            Event::Dies(pid) => {
                self.living.retain(|living| *living != pid);
                let his = |rank: &&mut Traceable| rank.debugger == Some(pid);
                self.ranks.values_mut().filter(his).for_each(free);
            }
            Event::Ends(proc) => {
                self.ranks.remove(&proc);
                self.traced.handle(now, Input::Ended(proc));
            }
            Event::Tick => self.traced.handle(now, Input::Tick),
        }
    }

    fn look(&mut self, rng: &mut Rng, proc: ProcId, known: Option<Debugger>) -> Seen {
        let Some(rank) = self.ranks.get_mut(&proc) else {
            return Seen::Unknown;
        };
        if rng.chance(10) {
            rank.silences += u32::from(rank.free.is_some());
            return Seen::Unknown;
        }
        if let Some(pid) = rank.debugger {
            return Seen::TracedBy(debugger(pid));
        }
        let former = match known {
            None => Former::Unknown,
            Some(known) if self.living.contains(&known.pid) => Former::Lives,
            Some(_) => Former::Gone,
        };
        rank.former = Some(former);
        Seen::Free(former)
    }

    /// Checks that no untraced rank stays stopped. Each must be found within two polling intervals, and one more for each
    /// poll without an answer.
    fn check(&self, record: &mut Record) -> Result<(), Wrong> {
        let now = self.agenda.now;
        let forgotten = self.ranks.iter().find(|(_, rank)| {
            let given = LOOK_EVERY * (2 + rank.silences);
            rank.is_watched && rank.free.is_some_and(|free| now > free + given)
        });
        let rank = forgotten.map(|(proc, _)| proc.rank);
        record.require(rank.is_none(), || {
            format!("rank {rank:?} stands for ever, for nobody has it and nobody looks")
        })
    }

    fn on_untraced(
        &mut self,
        proc: ProcId,
        is_lost: bool,
        record: &mut Record,
    ) -> Result<(), Wrong> {
        let rank = self.ranks.get_mut(&proc);
        let Some(rank) = rank.filter(|rank| rank.is_watched && rank.free.is_some()) else {
            return record.require(false, || {
                format!("rank {} is said to be nobody's and is not", proc.rank)
            });
        };
        rank.is_watched = false;
        let former = rank.former;
        record.require(is_lost == (former == Some(Former::Gone)), || {
            format!(
                "the debugger of rank {} is {former:?}, and it is said to be lost: {is_lost}",
                proc.rank
            )
        })
    }
}

const fn debugger(pid: i32) -> Debugger {
    Debugger {
        pid,
        started: Some(1),
    }
}

pub(super) fn play(rng: &mut Rng, record: &mut Record) -> Result<Time, Wrong> {
    let mut world = World::new(rng);
    loop {
        let deadline = world.traced.deadline();
        world.agenda.tick_at(deadline, Event::Tick);
        let Some(event) = world.agenda.next() else {
            let watched = world.ranks.values().any(|rank| rank.is_watched);
            record.require(!watched, || "a rank is forgotten".to_owned())?;
            return Ok(world.agenda.now);
        };
        let now = world.agenda.now;
        record.require(now < Time::ZERO + HORIZON, || {
            "it is looked at ranks for ever".to_owned()
        })?;
        record.note(now, || format!("{event:?}"));
        world.happen(rng, event);
        while let Some(output) = world.traced.poll() {
            record.note(now, || format!("traced -> {output:?}"));
            match output {
                Output::FindTracer(proc, known) => {
                    let seen = world.look(rng, proc, known);
                    world.traced.handle(now, Input::FoundTracer(proc, seen));
                }
                Output::Untraced { job, left, lost } => {
                    for (ranks, is_lost) in [(left, false), (lost, true)] {
                        for rank in ranks.iter() {
                            world.on_untraced(ProcId { job, rank }, is_lost, record)?;
                        }
                    }
                }
            }
        }
        world.check(record)?;
    }
}
