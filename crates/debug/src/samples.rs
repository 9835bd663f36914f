//! Compares several samples of the same ranks: what moves, what is stuck, and what loops.
//!
//! | in all samples | CPU time | motion |
//! |---|---|---|
//! | the same wait, called from the same lines | little | [`Motion::Stuck`] |
//! | the same wait, called from the same lines | more | [`Motion::Spinning`] |
//! | the same user function, called from the same lines | little, in the same known call or in none | [`Motion::Stuck`] |
//! | the same user function, called from the same lines | more, or in different known calls | [`Motion::Looping`] |
//! | anything else | any | [`Motion::Moving`] |
//!
//! Repeated waits on the same line cannot be distinguished from one long wait. Rules that use motions ([`crate::verdict`]) have to
//! allow for that.

mod boundary;
mod children;
mod noise;
#[cfg(test)]
pub(crate) mod tests;
mod work;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base::{Rank, RankSet};
use serde::{Deserialize, Serialize};

use crate::{
    image::Joining,
    known::{self, Kind},
    snapshot::Snapshot,
    stack::{Activity, FrameId, Frames, Missing, Seen, Thread, Wait},
};

pub use boundary::{Boundary, Cut, Location};
pub use children::{ChildTrack, Followed};
pub use work::Work;

/// A snapshot of all ranks, with its time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The time since the first sample.
    pub at: Duration,
    /// The state of the ranks.
    pub snapshot: Snapshot,
}

/// Samples, with one table for their frames.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recording {
    /// The frames of all samples.
    pub frames: Frames,
    /// The samples, oldest first.
    pub samples: Vec<Sample>,
}

/// What a thread did from the first sample to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Motion {
    /// There was only one sample, or the rank is missing.
    Unknown,
    /// The thread makes no progress and uses hardly any CPU time.
    Stuck,
    /// The thread waits at one place and uses CPU time to do so.
    Spinning,
    /// The thread stays in one function of the user's code.
    Looping,
    /// The thread is at different places in different samples.
    Moving,
}

/// Limit of the CPU time of a stuck thread, as a divisor of the elapsed time: the thread may wake up to test its condition.
const IDLE_CPU_DIVISOR: u32 = 100;
/// CPU time that sampling itself costs a thread, from one sample to the next.
const SAMPLING_COST: Duration = Duration::from_millis(2);

/// One thread over all samples.
#[derive(Clone, Debug)]
pub struct Track {
    /// The name of the thread.
    pub name: Arc<str>,
    /// The stack, cut at its [`Boundary`], and the activity of the thread in each sample.
    pub seen: Vec<(Cut, Activity)>,
    /// The motion over all samples.
    pub motion: Motion,
    /// CPU time between the first and the last sample.
    pub cpu: Duration,
}

/// One rank over all samples.
#[derive(Clone, Debug, Default)]
pub struct RankTrack {
    /// The main thread: the first one that was alive in the first sample that contains the rank. `None` if the rank was never seen.
    pub main: Option<Track>,
    /// The other threads, except the helper threads of libraries.
    pub others: Vec<Track>,
    /// The number of helper threads, by the name of the helper.
    pub helpers: BTreeMap<&'static str, u32>,
    /// CPU time of all helper threads.
    pub helping: Duration,
    /// Whether descendants of the rank worked: used CPU time, started or exited.
    pub below: Work,
    /// The descendants that are in all samples, by pid.
    pub children: BTreeMap<i32, ChildTrack>,
    /// Whether `children` has all descendants.
    pub followed: Followed,
    /// For each sample the reason why the rank is missing; `None` if it was seen.
    pub missing: Vec<Option<Missing>>,
    /// Whether threads started or exited between samples.
    pub threads: ThreadSet,
}

/// Whether a rank has the same threads in all samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadSet {
    /// The rank has the same threads in all samples.
    #[default]
    Same,
    /// Some threads started or exited, or a thread reuses the id of another one.
    Changed,
}

/// All samples, rank by rank.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The time from the first sample to the last.
    pub span: Duration,
    /// The number of samples.
    pub samples: usize,
    /// Each rank over all samples.
    pub ranks: BTreeMap<Rank, RankTrack>,
    /// Whether other descendants of the launcher worked.
    pub beside: Work,
    /// Whether the launcher of the ranks has other jobs.
    pub jobs: Jobs,
    /// Whether the job may be connected to jobs of other launchers.
    pub neighbors: Neighbors,
}

/// State of the other launchers' jobs to which the job may be connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Neighbors {
    /// The program contains no function that can connect its job to another job.
    #[default]
    NotConnected,
    /// The job may be connected. The other jobs on the sampled nodes are idle, but there may be jobs on other nodes.
    Idle,
    /// The job may be connected, and other jobs on the sampled nodes work.
    AtWork,
}

/// Whether a job is the only one of its launcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jobs {
    /// There is no other job.
    #[default]
    One,
    /// There are other jobs. The job may have spawned them, and may wait for their messages.
    Several,
}

/// A class: ranks whose main threads have the same motion, and the same place and activity in the last sample.
#[derive(Clone, Debug)]
pub struct Class {
    /// The ranks.
    pub ranks: RankSet,
    /// The stack of the ranks in the last sample, outermost frame first.
    pub frames: Vec<FrameId>,
    /// The activity of the ranks in the last sample, or the reason why they are missing.
    pub activity: Result<Activity, Missing>,
    /// The motion of the ranks over all samples.
    pub motion: Motion,
    /// Total CPU time of these ranks.
    pub cpu: Duration,
    /// Lines of the innermost user function on which the ranks were seen, in ascending order.
    pub lines: Vec<u32>,
}

impl Recording {
    /// Compares the samples.
    #[must_use]
    pub fn observe(&self, boundary: Boundary) -> Observation {
        observe(&self.frames, &self.samples, boundary)
    }

    /// Appends a snapshot that has its own table of frames.
    pub fn push(&mut self, at: Duration, frames: Frames, snapshot: Snapshot) {
        let snapshot = snapshot.with_frames_in(frames, &mut self.frames);
        self.samples.push(Sample { at, snapshot });
    }

    /// Returns true if the table has every frame of the stacks. A recording read from a file may lack some.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let mut snapshots = self.samples.iter().map(|it| &it.snapshot);
        snapshots.all(|it| it.is_within(&self.frames))
    }
}

/// Compares samples, thread by thread.
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
    // A spawned job on a node without ranks is not seen. With one node, it is beside the ranks.
    let joins = |sample: &Sample| match sample.snapshot.peers.joining() {
        Joining::Possible => true,
        Joining::Spawning => sample.snapshot.peers.0.len() > 1,
        Joining::Never => false,
    };
    let neighbors = match Work::of_neighbors(samples, span) {
        _ if !samples.iter().any(joins) => Neighbors::NotConnected,
        Work::Idle => Neighbors::Idle,
        Work::AtWork => Neighbors::AtWork,
    };
    Observation {
        span,
        samples: samples.len(),
        ranks,
        beside: Work::beside(samples, span),
        jobs: if several { Jobs::Several } else { Jobs::One },
        neighbors,
    }
}

fn follow(
    frames: &Frames,
    samples: &[Option<&Seen>],
    span: Duration,
    boundary: Boundary,
) -> RankTrack {
    let mut track = RankTrack::default();
    let mut threads: BTreeMap<i32, Vec<&Thread>> = BTreeMap::new();
    let mut first = None;
    for look in samples {
        match look {
            Some(Seen::Threads(seen)) => {
                track.missing.push(None);
                // An exited thread has no stack. The process goes on with its other threads.
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
        let stacks = seen.iter().flat_map(|thread| &*thread.stack.frames);
        let helper = known::helper(
            seen.first().map_or("", |thread| &thread.name),
            stacks.map(|&id| frames.get(id)),
        );
        if let Some(helper) = helper.filter(|_| first != Some(tid)) {
            *track.helpers.entry(helper).or_default() += 1;
            track.helping = track.helping.saturating_add(used(&seen));
            continue;
        }
        // CPU time that has shrunk is that of another thread, which reuses the thread id.
        let is_reused = !seen.is_sorted_by_key(|thread| thread.cpu);
        if seen.len() != present || is_reused {
            track.threads = ThreadSet::Changed;
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
        let name = seen
            .first()
            .map_or_else(|| "".into(), |it| Arc::clone(&it.name));
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

    /// Returns the call that the thread waits in, if it is the same in all samples.
    #[must_use]
    pub fn wait(&self) -> Option<&known::Known> {
        let (cut, _) = self.seen.last()?;
        let stands = matches!(self.motion, Motion::Stuck | Motion::Spinning);
        cut.wait.as_ref().filter(|_| stands)
    }

    /// Returns the kind of event that the thread waits for. The state in the kernel reveals timed waits and
    /// locks in shared memory; the name of the function does not.
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
            // A join is excluded: the kernel signals the exit of a thread through a futex that looks shared.
            Kind::Lock | Kind::Condition | Kind::Semaphore if is(Wait::Shared) => Kind::Shared,
            kind => kind,
        })
    }

    /// Returns the activity of the thread, if it is the same in all samples.
    #[must_use]
    pub fn activity(&self) -> Option<Activity> {
        let (_, last) = self.seen.last()?;
        self.seen
            .iter()
            .all(|(_, activity)| activity == last)
            .then_some(*last)
    }

    /// Returns the stack of the thread in the last sample, outermost frame first.
    #[must_use]
    pub fn frames(&self) -> &[FrameId] {
        self.seen.last().map_or(&[], |(cut, _)| &cut.frames)
    }
}

/// Returns the CPU time between the first sample of a thread and the last.
fn used(seen: &[&Thread]) -> Duration {
    match (seen.first(), seen.last()) {
        (Some(first), Some(last)) => last.cpu.saturating_sub(first.cpu),
        _ => Duration::ZERO,
    }
}

/// Returns `Use::Little` if a stuck thread could have used this much CPU time over `span`.
fn little(cpu: Duration, span: Duration, samples: usize) -> Use {
    let steps = u32::try_from(samples.saturating_sub(1)).unwrap_or(u32::MAX);
    if cpu <= (span / IDLE_CPU_DIVISOR).saturating_add(SAMPLING_COST.saturating_mul(steps)) {
        Use::Little
    } else {
        Use::More
    }
}

/// How much CPU time a thread has used.
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
    /// Returns the classes of ranks that did the same, the largest class first.
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

type ClassKey = (Option<Location>, Result<Activity, Missing>, Motion);

impl Track {
    fn class(&self, frames: &Frames) -> (ClassKey, Class) {
        let (place, activity) = match self.seen.last() {
            Some((cut, activity)) => (Some(cut.place(frames)), *activity),
            None => (None, Activity::Running),
        };
        // A library that polls is in a system call in some samples only. That does not make two ranks different.
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
            let source = frames.get(cut.cited_frame(frames)?).source.as_ref()?;
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
