//! The processes at the beginning of the search: ancestors, children, and the evidence in their environments.

use super::Search;
use crate::target::{
    environment::{self, Evidence},
    wrappers::is_wrapper,
};

/// Maximum number of nested wrappers.
const MAX_WRAPPERS: usize = 8;

impl Search<'_> {
    /// Returns the process that does a rank's work: the rank itself, or the only child of a wrapper.
    pub(in crate::target) fn unwrap(&self, pid: i32) -> i32 {
        let mut at = pid;
        for _ in 0..MAX_WRAPPERS {
            match self.children(at)[..] {
                [only] if self.is_wrapper(at) => at = only,
                _ => break,
            }
        }
        at
    }

    pub(in crate::target) fn is_wrapper(&self, pid: i32) -> bool {
        is_wrapper(&self.program(pid), self.command(pid))
    }

    /// Returns true if `above` is an ancestor of `below`.
    pub(in crate::target) fn is_above(&self, above: i32, below: i32) -> bool {
        let mut at = below;
        while let Some(parent) = self.parent(at) {
            if parent == above {
                return true;
            }
            at = parent;
        }
        false
    }

    /// Returns the parent. `None` if that is process 1, or if it started after its child: then the parent's pid was reused.
    pub(in crate::target) fn parent(&self, pid: i32) -> Option<i32> {
        let process = self.processes.get(&pid)?;
        let parent = self.processes.get(&process.parent)?;
        (parent.pid > 1 && parent.pid != pid && parent.started <= process.started)
            .then_some(parent.pid)
    }

    pub(in crate::target) fn evidence(&self, pid: i32) -> Option<Vec<Evidence>> {
        if let Some(evidence) = self.evidence.borrow().get(&pid) {
            return evidence.clone();
        }
        let evidence = self
            .system
            .environment(pid)
            .map(|environment| environment::evidence(&environment));
        self.evidence.borrow_mut().insert(pid, evidence.clone());
        evidence
    }

    /// Returns the live children, in the order of their start.
    pub(in crate::target) fn children(&self, pid: i32) -> Vec<i32> {
        self.children.get(&pid).cloned().unwrap_or_default()
    }

    /// Returns the path of the program; empty if we have no permission to read it.
    pub(in crate::target) fn program(&self, pid: i32) -> String {
        self.system.program(pid).unwrap_or_default()
    }

    pub(in crate::target) fn command(&self, pid: i32) -> &str {
        self.processes.get(&pid).map_or("", |process| &process.name)
    }

    /// Returns the start time in ticks since boot; `None` if there was no such process.
    pub(in crate::target) fn started(&self, pid: i32) -> Option<u64> {
        self.processes.get(&pid).map(|process| process.started)
    }

    pub(in crate::target) fn by_start(&self, mut pids: Vec<i32>) -> Vec<i32> {
        pids.sort_by_key(|&pid| (self.started(pid), pid));
        pids
    }
}
