//! Several looks at the same ranks: what moves, what is stuck, what runs in circles.
//!
//! | seen in all looks | processor time | motion |
//! |---|---|---|
//! | the same wait, called from the same lines | little | [`Motion::Stuck`] |
//! | the same wait, called from the same lines | more | [`Motion::Spinning`] |
//! | the same function of the user, called from the same lines | little, and the same place below | [`Motion::Stuck`] |
//! | the same function of the user, called from the same lines | else | [`Motion::Looping`] |
//! | anything else | any | [`Motion::Moving`] |
//!
//! A wait that is begun again and again on the same line looks like one wait: two looks do not tell them apart, and
//! what is built on this ([`crate::verdict`]) must not forget it.

mod boundary;
mod children;
mod noise;
#[cfg(test)]
pub(crate) mod script;
#[cfg(test)]
mod tests;
mod work;

use std::{collections::BTreeMap, time::Duration};

use base::{Rank, RankSet};
use serde::{Deserialize, Serialize};

use crate::{
    image::Joining,
    known::{self, Kind},
    snapshot::Snapshot,
    stack::{Activity, FrameId, Frames, Missing, Seen, Thread, Wait},
};

pub use boundary::{Boundary, Cut, Spot};
pub use children::{ChildTrack, Followed};
pub use work::Work;

/// All ranks at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// How long after the first look.
    pub at: Duration,
    /// What was seen.
    pub snapshot: Snapshot,
}

/// Looks with the frames that they speak of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recording {
    /// Every frame that was seen.
    pub frames: Frames,
    /// The looks, the first one first.
    pub samples: Vec<Sample>,
}

/// What a thread did between the first and the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Motion {
    /// There was only one look.
    Unknown,
    /// It stands.
    Stuck,
    /// It waits at one place and uses processor time for it.
    Spinning,
    /// It stays in one function of the user.
    Looping,
    /// It is somewhere else each time.
    Moving,
}

/// Processor time of which a thread that stands may use one part in so many: to wake up and look.
const LITTLE: u32 = 100;
/// What a thread uses between two looks because we look at it.
const BY_LOOKING: Duration = Duration::from_millis(2);

/// What was seen of one thread.
#[derive(Clone, Debug)]
pub struct Track {
    /// Its name.
    pub name: String,
    /// Where it was in each look, and what it did.
    pub seen: Vec<(Cut, Activity)>,
    /// What that amounts to.
    pub motion: Motion,
    /// The processor time that it has used between the first and the last look.
    pub cpu: Duration,
}

/// What was seen of one rank.
#[derive(Clone, Debug, Default)]
pub struct RankTrack {
    /// Its first thread, or where that has ended the first that lives.
    pub main: Option<Track>,
    /// Its other threads, without those that libraries keep for themselves.
    pub others: Vec<Track>,
    /// Threads of libraries, by what they are known as.
    pub helpers: BTreeMap<&'static str, u32>,
    /// The processor time that these have used together.
    pub helping: Duration,
    /// What processes below it have done.
    pub below: Work,
    /// Those of them that were looked at in all looks, by their numbers.
    pub children: BTreeMap<i32, ChildTrack>,
    /// Whether these are all of them.
    pub followed: Followed,
    /// Why nothing was seen of it, in each look; nothing where something was.
    pub missing: Vec<Option<Missing>>,
    /// Whether threads have come or gone.
    pub threads: Crew,
}

/// Whether a rank has kept its threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crew {
    /// The same in all looks.
    #[default]
    Same,
    /// Some have come or gone.
    Changed,
}

/// All looks, rank by rank.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// From the first look to the last.
    pub span: Duration,
    /// How many looks there were.
    pub looks: usize,
    /// What was seen of each rank.
    pub ranks: BTreeMap<Rank, RankTrack>,
    /// What processes beside the ranks have done.
    pub beside: Work,
    /// Whether their launcher has other jobs.
    pub jobs: Jobs,
    /// Whether jobs of other launchers may take part.
    pub neighbors: Neighbors,
}

/// What jobs of other launchers do that a job can be joined with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Neighbors {
    /// It can be joined with none.
    #[default]
    Strangers,
    /// It can be: those that are to be seen wait, and others may be on other machines.
    Idle,
    /// It can be, and they are at work.
    AtWork,
}

/// Whether a job is the only one of its launcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jobs {
    /// It is.
    #[default]
    One,
    /// There are others, which it has perhaps spawned, and whose messages it may wait for.
    Several,
}

/// Ranks of which the same was seen in all looks.
#[derive(Clone, Debug)]
pub struct Class {
    /// Who.
    pub ranks: RankSet,
    /// Where they were at the last look, outermost first.
    pub frames: Vec<FrameId>,
    /// What they did then; nothing of ranks that could not be seen.
    pub activity: Result<Activity, Missing>,
    /// What they did over time.
    pub motion: Motion,
    /// The processor time that all of them have used.
    pub cpu: Duration,
    /// Lines of the user's innermost function on which they were seen, ascending.
    pub lines: Vec<u32>,
}

impl Recording {
    /// Looks at it as a whole.
    #[must_use]
    pub fn observe(&self, boundary: Boundary) -> Observation {
        observe(&self.frames, &self.samples, boundary)
    }

    /// Adds a snapshot with its own table of frames.
    pub fn push(&mut self, at: Duration, frames: Frames, snapshot: Snapshot) {
        let snapshot = snapshot.with_frames_in(frames, &mut self.frames);
        self.samples.push(Sample { at, snapshot });
    }

    /// Whether every frame that a stack means is there: of a recording that somebody else has written.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let mut snapshots = self.samples.iter().map(|it| &it.snapshot);
        snapshots.all(|it| it.is_within(&self.frames))
    }
}

/// Follows each thread of each rank through all looks.
#[must_use]
pub fn observe(frames: &Frames, samples: &[Sample], boundary: Boundary) -> Observation {
    let span = samples.last().map_or(Duration::ZERO, |last| last.at);
    let span = span.saturating_sub(samples.first().map_or(Duration::ZERO, |first| first.at));
    let mut ranks = BTreeMap::new();
    let all: std::collections::BTreeSet<Rank> = samples
        .iter()
        .flat_map(|sample| sample.snapshot.procs.keys().copied())
        .collect();
    for rank in all {
        let seen: Vec<Option<&Seen>> = samples
            .iter()
            .map(|sample| sample.snapshot.procs.get(&rank))
            .collect();
        let mut track = follow(frames, &seen, span, boundary);
        track.below = Work::below(samples, rank, span);
        track.children = children::follow(frames, samples, rank, span, boundary);
        track.followed = children::followed(samples, rank, &track.children);
        ranks.insert(rank, track);
    }
    let several = samples.iter().any(|it| it.snapshot.peers.has_other_jobs());
    let joins = |sample: &Sample| sample.snapshot.peers.joining() == Joining::Possible;
    let neighbors = match Work::of_neighbors(samples, span) {
        _ if !samples.iter().any(joins) => Neighbors::Strangers,
        Work::Idle => Neighbors::Idle,
        Work::AtWork => Neighbors::AtWork,
    };
    Observation {
        span,
        looks: samples.len(),
        ranks,
        beside: Work::beside(samples, span),
        jobs: if several { Jobs::Several } else { Jobs::One },
        neighbors,
    }
}

fn follow(
    frames: &Frames,
    looks: &[Option<&Seen>],
    span: Duration,
    boundary: Boundary,
) -> RankTrack {
    let mut track = RankTrack::default();
    let mut threads: BTreeMap<i32, Vec<&Thread>> = BTreeMap::new();
    let mut first = None;
    for look in looks {
        match look {
            Some(Seen::Threads(seen)) => {
                track.missing.push(None);
                // What has ended is nowhere, and what its process does, the others do.
                let living = |thread: &&Thread| thread.activity != Activity::Ended;
                for thread in seen.iter().filter(living) {
                    first = first.or(Some(thread.tid));
                    threads.entry(thread.tid).or_default().push(thread);
                }
            }
            Some(Seen::Missing(why)) => track.missing.push(Some(why.clone())),
            None => track.missing.push(Some(Missing::Gone)),
        }
    }
    let present = track.missing.iter().filter(|why| why.is_none()).count();
    for (tid, seen) in threads {
        let stacks = seen.iter().flat_map(|thread| &thread.stack.frames);
        let helper = known::helper(
            seen.first().map_or("", |thread| &thread.name),
            stacks.map(|&id| frames.get(id)),
        );
        if let Some(helper) = helper.filter(|_| first != Some(tid)) {
            *track.helpers.entry(helper).or_default() += 1;
            track.helping = track.helping.saturating_add(used(&seen));
            continue;
        }
        if seen.len() != present {
            track.threads = Crew::Changed;
        }
        let new = Track::new(frames, &seen, span, boundary);
        if first == Some(tid) {
            track.main = Some(new);
        } else {
            track.others.push(new);
        }
    }
    track
}

impl Track {
    fn new(frames: &Frames, seen: &[&Thread], span: Duration, boundary: Boundary) -> Self {
        let cpu = used(seen);
        let name = seen.first().map_or_else(String::new, |it| it.name.clone());
        let seen: Vec<(Cut, Activity)> = seen
            .iter()
            .map(|thread| (boundary.cut(frames, &thread.stack.frames), thread.activity))
            .collect();
        let motion = motion(frames, &seen, little(cpu, span, seen.len()));
        Self {
            name,
            seen,
            motion,
            cpu,
        }
    }

    /// What it waits in, if that was the same in all looks.
    #[must_use]
    pub fn wait(&self) -> Option<&known::Known> {
        let (cut, _) = self.seen.last()?;
        let stands = matches!(self.motion, Motion::Stuck | Motion::Spinning);
        cut.wait.as_ref().filter(|_| stands)
    }

    /// For what it waits: the kernel knows of a wait for a limited time, and of a lock in shared memory, what the name of the
    /// function does not tell.
    #[must_use]
    pub fn waits_for(&self) -> Option<Kind> {
        let kind = self.wait()?.kind;
        let is = |wait| {
            let mut seen = self.seen.iter();
            seen.any(|(_, activity)| *activity == Activity::Waiting(wait))
        };
        Some(match kind {
            Kind::Lock | Kind::Condition | Kind::Semaphore | Kind::Join if is(Wait::Timed) => {
                Kind::Sleep
            }
            // The end of a thread is told in a way in which that of a process could be.
            Kind::Lock | Kind::Condition | Kind::Semaphore if is(Wait::Shared) => Kind::Shared,
            kind => kind,
        })
    }

    /// What it did in all looks, if that was the same.
    #[must_use]
    pub fn activity(&self) -> Option<Activity> {
        let (_, last) = self.seen.last()?;
        self.seen
            .iter()
            .all(|(_, activity)| activity == last)
            .then_some(*last)
    }

    /// Where it was at last.
    #[must_use]
    pub fn frames(&self) -> &[FrameId] {
        self.seen.last().map_or(&[], |(cut, _)| &cut.frames)
    }
}

/// The processor time between the first look at a thread and the last.
fn used(seen: &[&Thread]) -> Duration {
    match (seen.first(), seen.last()) {
        (Some(first), Some(last)) => last.cpu.saturating_sub(first.cpu),
        _ => Duration::ZERO,
    }
}

/// Whether a thread that stands could have used this much.
fn little(cpu: Duration, span: Duration, looks: usize) -> Use {
    let steps = u32::try_from(looks.saturating_sub(1)).unwrap_or(u32::MAX);
    if cpu <= (span / LITTLE).saturating_add(BY_LOOKING.saturating_mul(steps)) {
        Use::Little
    } else {
        Use::More
    }
}

/// How much processor time a thread has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Little,
    More,
}

fn motion(frames: &Frames, seen: &[(Cut, Activity)], cpu: Use) -> Motion {
    let Some((first, rest)) = seen.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return Motion::Unknown;
    };
    let place = first.0.place(frames);
    let same = rest.iter().all(|(cut, _)| cut.place(frames) == place);
    let waits = first.0.wait.as_ref();
    let waits = waits.is_some_and(|wait| wait.kind != Kind::Test);
    let working = first.0.working(frames);
    match (same, waits, cpu) {
        (true, _, Use::Little) => Motion::Stuck,
        (true, true, Use::More) => Motion::Spinning,
        _ if rest.iter().all(|(cut, _)| cut.working(frames) == working) => Motion::Looping,
        _ => Motion::Moving,
    }
}

impl Observation {
    /// Ranks of which the same was seen, the largest class first.
    #[must_use]
    pub fn classes(&self, frames: &Frames) -> Vec<Class> {
        let mut classes = BTreeMap::new();
        for (&rank, track) in &self.ranks {
            let gone = track.missing.last().cloned().flatten();
            let (key, new) = match (&track.main, gone) {
                (Some(main), None) => main.class(frames),
                (_, why) => {
                    let why = why.unwrap_or(Missing::Gone);
                    (
                        (None, Err(why.clone()), Motion::Unknown),
                        Class::missing(why),
                    )
                }
            };
            let class = classes.entry(key).or_insert(new);
            class.ranks.insert(rank);
            if let Some(main) = &track.main {
                class.cpu = class.cpu.saturating_add(main.cpu);
                class.lines.extend(main.lines(frames));
                class.lines.sort_unstable();
                class.lines.dedup();
            }
        }
        let mut classes = noise::joined(classes, self.span);
        classes.sort_by_key(|class| (std::cmp::Reverse(class.ranks.len()), class.ranks.first()));
        classes
    }
}

type ClassKey = (Option<Spot>, Result<Activity, Missing>, Motion);

impl Track {
    fn class(&self, frames: &Frames) -> (ClassKey, Class) {
        let (place, activity) = match self.seen.last() {
            Some((cut, activity)) => (Some(cut.place(frames)), *activity),
            None => (None, Activity::Running),
        };
        // A library that polls is now in a call and now not: that is no difference between two ranks.
        let activity = match self.motion {
            Motion::Spinning => Activity::Running,
            _ => activity,
        };
        let class = Class {
            ranks: RankSet::new(),
            frames: self.frames().to_vec(),
            activity: Ok(activity),
            motion: self.motion,
            cpu: Duration::ZERO,
            lines: Vec::new(),
        };
        ((place, Ok(activity), self.motion), class)
    }

    fn lines<'a>(&'a self, frames: &'a Frames) -> impl Iterator<Item = u32> + 'a {
        self.seen.iter().filter_map(|(cut, _)| {
            let source = frames.get(cut.cited(frames)?).source.as_ref()?;
            (source.line > 0).then_some(source.line)
        })
    }
}

impl Class {
    fn missing(why: Missing) -> Self {
        Self {
            ranks: RankSet::new(),
            frames: Vec::new(),
            activity: Err(why),
            motion: Motion::Unknown,
            cpu: Duration::ZERO,
            lines: Vec::new(),
        }
    }
}
