//! The role of a rank in its job, judged by all samples together.

use std::time::Duration;

use crate::{
    known::Kind,
    samples::{ChildTrack, Followed, Motion, Observation, RankTrack, ThreadSet, Track, Work},
    stack::{Activity, Missing},
};

/// What a rank did in every sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The rank waits in a collective.
    Collective,
    /// The rank waits until the surviving ranks agree how to continue without the failed ones.
    Recovery,
    /// The rank waits in the initialization of MPI, such as `MPI_Init`.
    Start,
    /// The rank waits in the finalization of MPI, such as `MPI_Finalize`.
    Finish,
    /// The rank waits for a message.
    Receive,
    /// The rank waits until its message is received.
    Send,
    /// The rank waits in a call that both sends and receives.
    Exchange,
    /// The rank waits for requests, which may be sends or receives.
    Completion,
    /// The rank waits for the other side of an access epoch of a window.
    Epoch,
    /// The rank waits for a lock on a window, or for the completion of its own operation on one.
    Window,
    /// The rank waits for a file, in MPI.
    File,
    /// The rank waits for another job, in MPI.
    OtherJob,
    /// The rank is in an MPI function, but it is unknown what that waits for.
    UnknownMpi,
    /// The rank waits for a lock, and none of its threads runs.
    Lock,
    /// The rank waits for a semaphore or a lock in shared memory, and none of its threads runs. Signal handlers and other
    /// processes may release these.
    Shared,
    /// The rank waits for its own threads, and none of them runs.
    Threads,
    /// The rank waits for a child process to exit. That process waits for a lock or its threads, or is stopped by a signal.
    Helper,
    /// The rank waits for the workers of its data loader.
    Data,
    /// The rank waits until its files are written to the disk.
    Sync,
    /// The rank is in disk wait and has used no CPU time.
    Disk,
    /// A signal has stopped the rank.
    Stopped,
    /// The control group of the rank is frozen.
    Frozen,
    /// A debugger has stopped the rank.
    Traced,
    /// The rank has exited.
    Dead,
    /// The rank runs in one function.
    Looping,
    /// The rank makes progress, or it waits for something that no rule is about.
    Alive,
    /// The rank could not be sampled.
    Unseen,
}

/// Whether waiting ranks use CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Manner {
    /// The ranks sleep. A rank that sleeps in all samples has not left its wait and come back in between.
    Asleep,
    /// The ranks poll. They may have left the wait and come back to the same line.
    Polling,
}

/// Least CPU time of a thread that works, as a divisor of the span of the samples.
const WORKING_CPU_DIVISOR: u32 = 20;
/// Least CPU time of a rank in an endless loop, as a divisor of the span of the samples. It allows for ranks that share a
/// CPU.
const LOOP_CPU_DIVISOR: u32 = 10;
/// CPU time between two samples that sampling itself may cost a sleeping thread.
const SAMPLING_COST: Duration = Duration::from_millis(1);

/// Returns the role of a rank, and how the rank waits.
#[must_use]
pub fn role(track: &RankTrack, all: &Observation) -> (Role, Manner) {
    if let Some(role) = unseen(track) {
        return (role, Manner::Asleep);
    }
    let Some(main) = &track.main else {
        return (Role::Unseen, Manner::Asleep);
    };
    match main.activity() {
        Some(Activity::Stopped) => return (Role::Stopped, Manner::Asleep),
        Some(Activity::Frozen) => return (Role::Frozen, Manner::Asleep),
        Some(Activity::Traced) => return (Role::Traced, Manner::Asleep),
        _ => {}
    }
    if track.threads == ThreadSet::Changed || track.others.iter().any(|it| works(it, all)) {
        return (Role::Alive, Manner::Polling);
    }
    match main.motion {
        Motion::Unknown | Motion::Moving => (Role::Alive, Manner::Polling),
        Motion::Looping if main.cpu >= all.span / LOOP_CPU_DIVISOR => {
            (Role::Looping, Manner::Polling)
        }
        Motion::Looping => (Role::Alive, Manner::Polling),
        Motion::Stuck => {
            let role = match stuck(main, all) {
                // Another thread that sleeps or writes may continue soon, and then release the lock or exit.
                Role::Lock | Role::Threads | Role::Shared if !is_behind(track, all) => Role::Alive,
                Role::Shared | Role::Data if track.below.max(all.beside) == Work::AtWork => {
                    Role::Alive
                }
                Role::Alive if is_behind_helper(main, track, all) => Role::Helper,
                role => role,
            };
            // A thread that ran between samples may have left the call and come back to the same line.
            let manner = if main.cpu <= sampling_cost(all) {
                Manner::Asleep
            } else {
                Manner::Polling
            };
            (role, manner)
        }
        Motion::Spinning => (spinning(main), Manner::Polling),
    }
}

/// Returns true if every thread of the rank except the main thread waits only for threads.
fn is_behind(track: &RankTrack, all: &Observation) -> bool {
    track.others.iter().all(is_held) && helpers_wait(track, all)
}

/// Returns true if a rank waits for a process, and no descendant can continue. Each descendant waits for its child, is
/// stopped, or waits for what another thread or process would have to release. A descendant that could not be sampled may be
/// able to continue.
fn is_behind_helper(main: &Track, track: &RankTrack, all: &Observation) -> bool {
    let stands = |thread: &Track| is_held(thread) || thread.activity() == Some(Activity::Stopped);
    let waits = |thread: &Track| stands(thread) || thread.waits_for() == Some(Kind::Child);
    let children = || track.children.values();
    let has_no_way_on = |child: &ChildTrack| {
        let mut threads = child.main.iter().chain(&child.others);
        child.main.is_some()
            && child.threads == ThreadSet::Same
            && threads.all(|thread| !works(thread, all) && waits(thread))
    };
    main.waits_for() == Some(Kind::Child)
        && track.below.max(all.beside) == Work::Idle
        && track.followed == Followed::All
        && is_behind(track, all)
        && children().all(has_no_way_on)
        && children().any(|child| child.main.iter().chain(&child.others).any(stands))
}

/// Returns true if the helper threads of libraries use hardly any CPU time. Some of them compute for the program, which waits
/// for them.
pub(super) fn helpers_wait(track: &RankTrack, all: &Observation) -> bool {
    track.helping <= all.span / WORKING_CPU_DIVISOR
}

/// Returns true if a thread waits for another thread, or for a lock or semaphore shared with another process.
fn is_held(track: &Track) -> bool {
    matches!(
        track.waits_for(),
        Some(
            Kind::Lock
                | Kind::Interpreter
                | Kind::Condition
                | Kind::Semaphore
                | Kind::Shared
                | Kind::Join
        )
    )
}

/// Returns the CPU time that sampling may have cost a thread that slept through all samples.
fn sampling_cost(all: &Observation) -> Duration {
    let steps = u32::try_from(all.samples.saturating_sub(1)).unwrap_or(1);
    SAMPLING_COST.saturating_mul(steps)
}

/// Returns true if a thread works.
pub(super) fn works(track: &Track, all: &Observation) -> bool {
    !matches!(track.motion, Motion::Stuck) || track.cpu >= all.span / WORKING_CPU_DIVISOR
}

/// Returns the role of a rank that is missing in some sample; `None` if it was seen in all of them.
fn unseen(track: &RankTrack) -> Option<Role> {
    let first = track.missing.first()?;
    if track.missing.iter().all(Option::is_none) {
        return None;
    }
    // The rank itself has done nothing: only our view of it has changed.
    if track.missing.iter().flatten().any(Missing::is_out_of_view) {
        return Some(Role::Unseen);
    }
    let role = |why: &Option<Missing>| match why {
        Some(Missing::Gone | Missing::Zombie) => Some(Role::Dead),
        Some(Missing::Unreachable) => Some(Role::Disk),
        Some(Missing::Changed) | None => None,
        // A traced rank may run. [`Role::Traced`] would say that it is stopped.
        Some(_) => Some(Role::Unseen),
    };
    // A rank that was missing in some samples only has started or exited, which counts as progress.
    let same = track.missing.iter().all(|why| role(why) == role(first));
    Some(role(first).filter(|_| same).unwrap_or(Role::Alive))
}

fn stuck(main: &Track, all: &Observation) -> Role {
    let wait = main.waits_for();
    if main.activity() == Some(Activity::Disk) && main.cpu <= sampling_cost(all) {
        return match wait {
            Some(Kind::Sync) => Role::Sync,
            _ => Role::Disk,
        };
    }
    match wait {
        Some(Kind::Lock | Kind::Interpreter) => Role::Lock,
        Some(Kind::Condition | Kind::Join) => Role::Threads,
        Some(Kind::Semaphore | Kind::Shared) => Role::Shared,
        Some(Kind::Data) => Role::Data,
        Some(Kind::Sync) => Role::Sync,
        _ => spinning(main),
    }
}

/// Returns the role of a polling rank. MPI libraries poll in these calls; a thread that polls in any other call may make
/// progress.
fn spinning(main: &Track) -> Role {
    match main.waits_for() {
        Some(Kind::Collective) => Role::Collective,
        Some(Kind::Recovery) => Role::Recovery,
        Some(Kind::Start) => Role::Start,
        Some(Kind::Finish) => Role::Finish,
        Some(Kind::Receive) => Role::Receive,
        Some(Kind::Send) => Role::Send,
        Some(Kind::Exchange) => Role::Exchange,
        Some(Kind::Completion) => Role::Completion,
        Some(Kind::Epoch) => Role::Epoch,
        Some(Kind::Window) => Role::Window,
        Some(Kind::File) => Role::File,
        Some(Kind::OtherJob) => Role::OtherJob,
        Some(Kind::UnknownMpi) => Role::UnknownMpi,
        _ => Role::Alive,
    }
}
