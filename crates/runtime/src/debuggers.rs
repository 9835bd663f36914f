//! Ranks that were let go while a debugger had them.
//!
//! Such a rank is the debugger's to continue, so it got no SIGCONT with the others. When the debugger lets go of it, on
//! purpose or by dying, the kernel puts it back into the stop that it came from, and tells nobody: it would stand there
//! for ever. There is no event to wait for, so these ranks are looked at now and then, as long as there are any.

use std::{collections::BTreeMap, time::Duration};

use base::{JobId, ProcId, RankSet, Time};
use os::Pid;

/// How often they are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A process, and when it started.
type Identity = (Pid, Option<u64>);

#[derive(Debug)]
struct Watched {
    pid: Pid,
    /// Unknown where the kernel could not be asked.
    debugger: Option<Identity>,
}

#[derive(Debug, Default)]
pub(super) struct Debuggers {
    watched: BTreeMap<ProcId, Watched>,
    look_at: Option<Time>,
}

/// Ranks of one job that no debugger has any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Untraced {
    /// The debugger lives on: it has let go of them.
    pub(super) left: RankSet,
    /// It is gone.
    pub(super) lost: RankSet,
}

impl Debuggers {
    /// This rank was let go, and is in the hands of a debugger, or may be: where it could not be found out, it will be.
    pub(super) fn watch(&mut self, now: Time, proc: ProcId, pid: Pid, debugger: Option<Pid>) {
        let debugger = debugger.map(|debugger| (debugger, os::start_time(debugger)));
        self.watched.insert(proc, Watched { pid, debugger });
        self.look_at.get_or_insert(now + LOOK_EVERY);
    }

    /// It has ended.
    pub(super) fn forget(&mut self, proc: ProcId) {
        self.watched.remove(&proc);
    }

    /// When to look.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.look_at
    }

    /// Looks, if it is time; gives those that nobody traces any more, once.
    pub(super) fn look(&mut self, now: Time) -> BTreeMap<JobId, Untraced> {
        let mut found: BTreeMap<JobId, Untraced> = BTreeMap::new();
        if self.look_at.is_none_or(|at| now < at) {
            return found;
        }
        self.watched.retain(|proc, watched| {
            match os::tracer(watched.pid) {
                Ok(None) => {}
                // It is looked at again.
                Err(_) => return true,
                Ok(Some(debugger)) => {
                    if watched.debugger.is_none_or(|(known, _)| known != debugger) {
                        watched.debugger = Some((debugger, os::start_time(debugger)));
                    }
                    return true;
                }
            }
            let untraced = found.entry(proc.job).or_default();
            let ranks = if watched.debugger.is_none_or(lives) {
                &mut untraced.left
            } else {
                &mut untraced.lost
            };
            ranks.insert(proc.rank);
            false
        });
        self.look_at = (!self.watched.is_empty()).then(|| now + LOOK_EVERY);
        found
    }
}

/// Whether it is the same process still, and not a dead one that nobody has asked for.
fn lives((pid, started): Identity) -> bool {
    os::inspect(pid).is_some_and(|process| {
        Some(process.start_time) == started && !matches!(process.state, 'Z' | 'X')
    })
}
