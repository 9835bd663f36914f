//! A look counts only where the process is after it what it was before.
//!
//! What a process has mapped is read before its threads are stopped. If it became another program in between, its
//! addresses mean something else, and names would be given to them all the same.

use debug::stack::{Missing, Seen};
use os::{Loaded, Pid};

/// Times that a process is looked at which becomes another program meanwhile.
const TRIES: u32 = 3;

/// What makes a process the one that it is, with the program that it executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// When it started, in ticks since boot.
    pub(super) started: u64,
    /// Where its program is.
    pub(super) loaded: Loaded,
}

impl Identity {
    /// That of the process which has this number now, by one of its threads that lives.
    pub(super) fn of(pid: Pid, through: Pid) -> Option<Self> {
        let process = os::inspect(pid)?;
        let loaded = if through == pid {
            process.loaded
        } else {
            os::inspect(through).map_or_else(Loaded::default, |thread| thread.loaded)
        };
        Some(Self {
            started: process.start_time,
            loaded,
        })
    }

    /// Whether what was seen of this one may be of the other. Who has ended, or is not ours any more, has no place where its
    /// program would be: what was seen before was its own.
    fn became(self, after: Self) -> bool {
        let unknown = after.loaded.stack == 0;
        self.started != after.started || !(unknown || self.loaded == after.loaded)
    }
}

/// Looks until the process is the same before and after.
pub(super) fn steady(
    mut identity: impl FnMut() -> Option<Identity>,
    mut look: impl FnMut(Identity) -> Seen,
) -> Seen {
    for _ in 0..TRIES {
        let Some(before) = identity() else {
            return Seen::Missing(Missing::Gone);
        };
        let seen = look(before);
        if !identity().is_some_and(|after| before.became(after)) {
            return seen;
        }
    }
    Seen::Missing(Missing::Changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of looks where the program stands at these places, one after the other.
    fn settled(stacks: &[u64]) -> (Seen, u64) {
        let mut stacks = stacks.iter();
        let mut looks = 0;
        let identity = || {
            let stack = *stacks.next()?;
            let loaded = Loaded { code: 1, stack };
            Some(Identity { started: 7, loaded })
        };
        let seen = steady(identity, |_| {
            looks += 1;
            Seen::Threads(Vec::new())
        });
        (seen, looks)
    }

    #[test]
    fn a_program_that_changes_is_looked_at_anew() {
        for (stacks, looks) in [
            (&[5, 5][..], 1),
            (&[5, 6, 6, 6], 2),
            (&[5, 6, 6, 7, 7, 7], 3),
            // It ended, with or without a trace.
            (&[5, 0], 1),
            (&[5], 1),
        ] {
            let (seen, number) = settled(stacks);
            assert!(matches!(seen, Seen::Threads(_)), "{stacks:?}");
            assert_eq!(number, looks, "{stacks:?}");
        }
        let (seen, looks) = settled(&[5, 6, 6, 7, 7, 8]);
        assert!(matches!(seen, Seen::Missing(Missing::Changed)));
        assert_eq!(looks, 3);
        let (seen, _) = settled(&[]);
        assert!(matches!(seen, Seen::Missing(Missing::Gone)));
    }
}
