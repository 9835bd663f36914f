//! Tools that connect to the servers of nodes, before, while and after jobs run.

use std::time::Duration;

use base::NodeId;

use super::{Family, make::Maker};

/// A tool that connects to the server of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visit {
    pub(crate) node: NodeId,
    pub(crate) guise: Guise,
    pub(crate) manner: Manner,
}

/// What a visitor says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guise {
    Tool,
    Launcher,
    /// A tool with the name of the first rank of the first job.
    NamesakeOfRank,
    NamedLauncher,
    /// A tool that claims to be a process of the first job, which has no such rank.
    UnknownRank,
}

impl Guise {
    /// Returns true if the server refuses the visitor because it is a tool.
    pub(crate) const fn is_tool(self) -> bool {
        !matches!(self, Self::UnknownRank)
    }
}

/// How a visitor behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Waits for the answer to its handshake.
    Waits,
    /// Sends garbage behind its handshake.
    Babbles,
    /// Closes the connection behind its handshake.
    Leaves,
    /// Dies within its handshake.
    Dies,
}

/// Maximum number of visits of a run.
const VISITS_MAX: u64 = 8;

impl Maker<'_> {
    /// Returns the visits of a run, with their times. The random numbers are those of programs that act as tools.
    pub(super) fn visits(&mut self) -> Vec<(Duration, Visit)> {
        let families = [Family::Pmix, Family::Spawn, Family::Nodes, Family::Dvm];
        if !families.contains(&self.family) || !self.tools.chance(30) {
            return Vec::new();
        }
        let nodes = self.nodes;
        let visits = (0..self.tools.between(1, VISITS_MAX)).map(|_| {
            let when = match self.tools.below(4) {
                0 => self.tools.micros(0, 500),
                1 | 2 => self.tools.millis(0, 1_500),
                _ => self.tools.millis(1_500, 20_000),
            };
            let visit = Visit {
                node: NodeId(self.tools.number(0, nodes - 1)),
                guise: self.tools.pick([
                    Guise::Tool,
                    Guise::Tool,
                    Guise::Launcher,
                    Guise::NamesakeOfRank,
                    Guise::NamedLauncher,
                    Guise::UnknownRank,
                ]),
                manner: self.tools.pick([
                    Manner::Waits,
                    Manner::Waits,
                    Manner::Waits,
                    Manner::Babbles,
                    Manner::Leaves,
                    Manner::Dies,
                ]),
            };
            (when, visit)
        });
        visits.collect()
    }
}
