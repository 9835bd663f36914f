//! Runs whose controller is on a host that is no node of the jobs. Its daemon is a *door*: no rank runs there, and tools come to its
//! server.

use std::time::Duration;

use ::dvm::proto::{Dropped, EndReason, FrontId, Keeping, Stream};

use super::{Act, Family, Fault, Scenario};
use crate::rng::Rng;

/// The tools that come to the door.
#[derive(Clone, Debug)]
pub(crate) struct DoorPlan {
    pub(crate) guests: Vec<GuestPlan>,
    pub(crate) control: ControlPlan,
}

/// Whether the launcher waits for a tool.
#[derive(Clone, Debug)]
pub(crate) enum ControlPlan {
    Nobody,
    /// Its environment says so, and any tool may release it.
    Pause,
    /// This tool has started it.
    Started(StarterPlan),
}

/// A tool that starts the launcher.
#[derive(Clone, Debug)]
pub(crate) struct StarterPlan {
    pub(crate) keepalive: Keepalive,
    /// True if the job is to go on when the tool has died.
    pub(crate) goes_on: bool,
    /// Output that it gets from the beginning, and how much is kept for others.
    pub(crate) forward: Vec<Stream>,
    pub(crate) keeping: Option<Keeping>,
    /// Where its directives hold the ranks of the job.
    pub(crate) stop: Stop,
    pub(crate) errands: Vec<(Duration, Errand)>,
}

/// Whether the launcher has a pipe whose other end closes when its tool dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keepalive {
    Pipe,
    Nothing,
}

/// A tool that connects to the server beside the controller.
#[derive(Clone, Debug)]
pub(crate) struct GuestPlan {
    pub(crate) comes: Duration,
    /// What it does once it is admitted, each after a pause since the one before. Then it stays.
    pub(crate) errands: Vec<(Duration, Errand)>,
}

/// What a guest does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// It wants to hear of all jobs.
    Follow,
    /// It asks for the process table of the job with this number. There may be none, or a tool may have the number.
    Table(u32, Where),
    /// It wants output of the job with this number, and that so much of it is kept from then on.
    Pull(u32, Streams, Option<Keeping>),
    /// It wants no more of the first output that it gets.
    StopPulling,
    /// It lets the launcher go on.
    Release,
    /// It spawns a job.
    Spawn(Order),
    /// It releases held ranks, if it knows their job already.
    LetGo(Held),
    /// It closes the pipe to the launcher, and stays.
    ClosePipe,
    /// It ends its connection in order.
    Finalize,
    /// It is killed.
    Die,
    /// It breaks the protocol.
    Babble,
}

/// A job that a tool spawns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// Index of its programs among the children of the scenario.
    pub(crate) child: usize,
    pub(crate) ranks: u32,
    pub(crate) stop: Stop,
    pub(crate) then: Then,
}

/// Where the ranks of a job are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Nowhere,
    Exec,
    Init,
}

/// What becomes of a job when its tool is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Ends,
    GoesOn,
}

/// Ranks that a tool may release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Those of the job that it has spawned from this child.
    Child(usize),
    /// Those of the job that it controls.
    Controlled,
}

/// Which output a guest wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streams {
    One(Stream),
    Both,
}

/// Which processes of a job a guest asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    Anywhere,
    /// On the node of the server. There are none.
    AtTheDoor,
}

/// The families whose jobs run while there is a door.
const FAMILIES: [Family; 10] = [
    Family::Life,
    Family::Output,
    Family::Hold,
    Family::Start,
    Family::Front,
    Family::Loss,
    Family::Mix,
    Family::Pmix,
    Family::Spawn,
    Family::Nodes,
];
/// Maximum number of tools of a run.
const GUESTS_MAX: u64 = 6;
/// Maximum number of errands of a tool, without the last one.
const ERRANDS_MAX: u64 = 6;
/// Largest number of a job for which a tool asks. Tools have numbers too, so that some of these are no jobs.
const NUMBER_MAX: u32 = 5;
/// Number of requests of a tool that wants output again and again.
const LATE_PULLS: u32 = 12;
/// Time after which the user ends a job that a tool controls.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Generates a scenario of another family, with a door.
pub(super) fn with_door(rng: &mut Rng) -> Scenario {
    let family = rng.pick(FAMILIES);
    let mut own = Rng::new(rng.next());
    let mut scenario = super::make::make(family, rng);
    let mut guests: Vec<GuestPlan> = (0..own.between(1, GUESTS_MAX))
        .map(|_| guest(&mut own))
        .collect();
    let control = match own.below(10) {
        0..4 => ControlPlan::Nobody,
        4 | 5 => {
            release(&mut own, &mut guests);
            ControlPlan::Pause
        }
        _ => {
            let starter = starter(&mut own);
            if starter.keeping.is_some() {
                guests.extend(own.chance(70).then(|| late(&mut own)));
            }
            ControlPlan::Started(starter)
        }
    };
    if !matches!(control, ControlPlan::Nobody)
        && let Some(front) = scenario.fronts.first_mut()
    {
        // Whatever the tools do, the user loses patience some day.
        front.acts.push((PATIENCE, Act::End(EndReason::TimeLimit)));
        if own.chance(15) {
            scenario
                .faults
                .push((time(&mut own), Fault::KillFront(FrontId(0))));
        }
    }
    scenario.door = Some(DoorPlan { guests, control });
    if own.chance(30) {
        for _ in 0..own.between(1, 2) {
            let fault = Fault::StopController(own.millis(1, 3_000));
            scenario.faults.push((time(&mut own), fault));
        }
    }
    scenario
}

/// Adds a door with tools to a run over the tree, most often.
pub(super) fn at_the_tree(own: &mut Rng, scenario: &mut Scenario) {
    if own.chance(40) {
        return;
    }
    let guests = (0..own.between(1, GUESTS_MAX)).map(|_| guest(own));
    scenario.door = Some(DoorPlan {
        guests: guests.collect(),
        control: ControlPlan::Nobody,
    });
}

/// Returns a time before, while or after jobs run.
fn time(rng: &mut Rng) -> Duration {
    match rng.below(4) {
        0 => rng.micros(0, 500),
        1 | 2 => rng.millis(0, 1_500),
        _ => rng.millis(1_500, 20_000),
    }
}

fn pause(rng: &mut Rng) -> Duration {
    match rng.below(3) {
        0 => Duration::ZERO,
        1 => rng.micros(0, 3_000),
        _ => rng.millis(0, 800),
    }
}

/// Lets some of the tools release the launcher, most often.
fn release(rng: &mut Rng, guests: &mut [GuestPlan]) {
    for guest in guests {
        if rng.chance(50) {
            let at = rng.length(0, guest.errands.len().saturating_sub(1));
            guest.errands.insert(at, (pause(rng), Errand::Release));
        }
    }
}

/// Returns a tool that starts the launcher. Most often it releases it.
fn starter(rng: &mut Rng) -> StarterPlan {
    let keepalive = if rng.chance(75) {
        Keepalive::Pipe
    } else {
        Keepalive::Nothing
    };
    let mut errands: Vec<(Duration, Errand)> = (0..rng.between(0, 3))
        .map(|_| (pause(rng), errand(rng)))
        .collect();
    if rng.chance(70) {
        errands.insert(0, (pause(rng), Errand::Follow));
    }
    if rng.chance(80) {
        let at = rng.length(0, errands.len());
        errands.insert(at, (pause(rng), Errand::Release));
    }
    let last = match rng.below(10) {
        0..5 => Some(Errand::Die),
        5 => Some(Errand::Finalize),
        6 => Some(Errand::ClosePipe),
        7 => Some(Errand::Babble),
        _ => None,
    };
    let when = if rng.chance(50) {
        pause(rng)
    } else {
        rng.millis(0, 2_500)
    };
    errands.extend(last.map(|last| (when, last)));
    StarterPlan {
        keepalive,
        goes_on: rng.chance(20),
        forward: Stream::BOTH
            .into_iter()
            .filter(|_| rng.chance(40))
            .collect(),
        keeping: rng.chance(60).then(|| keeping(rng)),
        stop: Stop::Nowhere,
        errands,
    }
}

fn guest(rng: &mut Rng) -> GuestPlan {
    let comes = time(rng);
    let mut errands: Vec<(Duration, Errand)> = (0..rng.between(0, ERRANDS_MAX))
        .map(|_| (pause(rng), errand(rng)))
        .collect();
    let last = match rng.below(10) {
        0..3 => Some(Errand::Finalize),
        3..5 => Some(Errand::Die),
        5 => Some(Errand::Babble),
        _ => None,
    };
    errands.extend(last.map(|last| (pause(rng), last)));
    GuestPlan { comes, errands }
}

/// Returns a tool that comes when the job has run for a while, and wants its output.
fn late(rng: &mut Rng) -> GuestPlan {
    let pulls = (0..LATE_PULLS).map(|index| {
        // The job of the front has one of the first two numbers.
        let errand = Errand::Pull(1 + index % 2, Streams::Both, None);
        (rng.millis(0, 300), errand)
    });
    let errands = pulls.collect();
    GuestPlan {
        comes: rng.micros(0, 1_000),
        errands,
    }
}

/// Returns how much is kept: often less than there is.
fn keeping(rng: &mut Rng) -> Keeping {
    Keeping {
        bytes: rng.pick([10, 200, 1_000, 20_000, 1_000_000]),
        dropped: rng.pick([Dropped::Oldest, Dropped::Newest]),
    }
}

fn errand(rng: &mut Rng) -> Errand {
    match rng.below(16) {
        0..3 => Errand::Follow,
        3..8 => {
            // Most often it is the job of the front.
            let most = if rng.chance(70) { 2 } else { NUMBER_MAX };
            let streams = rng.pick([
                Streams::Both,
                Streams::Both,
                Streams::One(Stream::Stdout),
                Streams::One(Stream::Stderr),
            ]);
            let keeping = rng.chance(40).then(|| keeping(rng));
            Errand::Pull(rng.number(1, most), streams, keeping)
        }
        8 => Errand::StopPulling,
        9 => Errand::Table(rng.number(1, NUMBER_MAX), Where::AtTheDoor),
        _ => Errand::Table(rng.number(1, NUMBER_MAX), Where::Anywhere),
    }
}
