//! What a rank does for its job, by all samples together.

use std::time::Duration;

use crate::{
    known::Kind,
    samples::{ChildTrack, Followed, Motion, Observation, RankTrack, ThreadSet, Track, Work},
    stack::{Activity, Missing},
};

/// What a rank was found doing in every sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It waits in a collective.
    Collective,
    /// It waits until all that live agree on how to go on without the others.
    Recovery,
    /// It waits in MPI's initialization.
    Start,
    /// It waits in MPI's end.
    Finish,
    /// It waits for a message.
    Receive,
    /// It waits until its message is taken.
    Send,
    /// It sends and receives.
    Exchange,
    /// It waits for requests.
    Completion,
    /// It waits for the other side of an epoch of access to a window.
    Epoch,
    /// It waits for a lock on a window, or for what it does to one.
    Window,
    /// It waits for a file, in MPI.
    File,
    /// It waits for another job, in MPI.
    Outside,
    /// It is in a function of MPI of which nobody knows what it waits for.
    Call,
    /// It waits for a lock, and none of its threads runs.
    Lock,
    /// As for a lock, for a semaphore or something in shared memory: signal handlers and other processes may let go of it.
    Shared,
    /// It waits for its own threads, and none of them runs.
    Threads,
    /// It waits for the end of a process that it has started, and this for a lock, its threads or a signal to go on.
    Helper,
    /// It waits for the workers that prepare its data.
    Data,
    /// It waits until its files are on the disk.
    Sync,
    /// It is in disk wait and has used no processor time.
    Disk,
    /// A signal has stopped it.
    Stopped,
    /// Its control group is frozen.
    Frozen,
    /// A debugger has stopped it.
    Traced,
    /// It has ended.
    Dead,
    /// It runs in one function.
    Looping,
    /// It does something, or waits for something that comes and goes: nothing is said of it.
    Alive,
    /// It could not be looked at.
    Unseen,
}

/// Whether those that wait use processor time for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Manner {
    /// They sleep: whoever sleeps through all samples has not come and gone in between.
    Asleep,
    /// They poll: they may have left the wait and come to the same line again.
    Polling,
}

/// A thread with one part in so many of the time on a processor is at work.
const WORK: u32 = 20;
/// A rank in an endless loop has a processor for one part in so many at least, however many share it.
const LOOP: u32 = 10;
/// Processor time, between two samples, of a thread that has not run but for our looking.
const NOTHING: Duration = Duration::from_millis(1);

/// What a rank does, and how it waits.
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
        Motion::Looping if main.cpu >= all.span / LOOP => (Role::Looping, Manner::Polling),
        Motion::Looping => (Role::Alive, Manner::Polling),
        Motion::Stuck => {
            let role = match stuck(main, all) {
                // Another thread that sleeps or writes may go on soon, and then let go of the lock or end.
                Role::Lock | Role::Threads | Role::Shared if !is_behind(track, all) => Role::Alive,
                Role::Shared | Role::Data if track.below.max(all.beside) == Work::AtWork => {
                    Role::Alive
                }
                Role::Alive if is_behind_helper(main, track, all) => Role::Helper,
                role => role,
            };
            // Who has run at all may have left the call and come back to the same line.
            let manner = if main.cpu <= nothing(all) {
                Manner::Asleep
            } else {
                Manner::Polling
            };
            (role, manner)
        }
        Motion::Spinning => (spinning(main), Manner::Polling),
    }
}

/// Whether no thread of a rank does anything but wait for threads.
fn is_behind(track: &RankTrack, all: &Observation) -> bool {
    track.others.iter().all(is_held) && helpers_wait(track, all)
}

/// Whether a rank waits for a process, and all processes below it stand: each waits for the next one, or for what only
/// another thread or process can let go. One that was not seen may be the one that goes on.
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

/// Whether the threads of libraries use no processor: some of them compute for the program, and one waits for them.
pub(super) fn helpers_wait(track: &RankTrack, all: &Observation) -> bool {
    track.helping <= all.span / WORK
}

/// Whether a thread waits for another one, or for a process.
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

/// Processor time of a thread that has not run in all samples.
fn nothing(all: &Observation) -> Duration {
    let steps = u32::try_from(all.samples.saturating_sub(1)).unwrap_or(1);
    NOTHING.saturating_mul(steps)
}

/// Whether a thread does something.
pub(super) fn works(track: &Track, all: &Observation) -> bool {
    !matches!(track.motion, Motion::Stuck) || track.cpu >= all.span / WORK
}

/// What is known of a rank of which nothing was seen; nothing if something was.
fn unseen(track: &RankTrack) -> Option<Role> {
    let first = track.missing.first()?;
    if track.missing.iter().all(Option::is_none) {
        return None;
    }
    let role = |why: &Option<Missing>| match why {
        Some(Missing::Gone | Missing::Zombie) => Some(Role::Dead),
        Some(Missing::Unreachable) => Some(Role::Disk),
        // Who is traced may run: what could be seen would say that it stands.
        Some(
            Missing::TracedBy(_)
            | Missing::NotPermitted
            | Missing::Unproved
            | Missing::Elsewhere(_)
            | Missing::AgentLost(_)
            | Missing::AgentSilent(_)
            | Missing::AgentRefused(_),
        ) => Some(Role::Unseen),
        Some(Missing::Changed) | None => None,
    };
    // What has ended or appeared meanwhile is a change, and changes are good.
    let same = track.missing.iter().all(|why| role(why) == role(first));
    Some(role(first).filter(|_| same).unwrap_or(Role::Alive))
}

fn stuck(main: &Track, all: &Observation) -> Role {
    let wait = main.waits_for();
    if main.activity() == Some(Activity::Disk) && main.cpu <= nothing(all) {
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

/// Libraries that poll spin in these; what spins elsewhere makes progress.
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
        Some(Kind::Outside) => Role::Outside,
        Some(Kind::Call) => Role::Call,
        _ => Role::Alive,
    }
}
