//! Where start commands run: at the head, or at daemons that have joined (*tree start*).
//!
//! Hidden here: which of them runs the next command. It is the one with the fewest commands in progress, so that all of them
//! work, and a short rest is spread over many. A daemon whose command has failed gets no other one: ssh may not work there, and a
//! place where everything fails at once would otherwise look like the fastest. When that has happened to
//! [`BAD_DAEMONS_MAX`] daemons, the head does all the rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    time::Duration,
};

use base::NodeId;

use super::{DAEMON_STEP_MAX, PARALLEL};

/// Maximum number of start commands at a daemon whose daemons have not joined yet.
pub const DAEMON_PARALLEL: NonZeroU32 = NonZeroU32::new(8).unwrap();
/// Maximum number of start commands that a daemon runs. They run as long as the daemons that they have started.
pub const DAEMON_COMMANDS_MAX: u32 = 32;
/// Number of daemons whose commands may fail before all others run at the head.
pub const BAD_DAEMONS_MAX: usize = 4;

/// Where a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The process with the controller.
    Head,
    /// The daemon of another node.
    Daemon(NodeId),
}

impl Place {
    /// Returns the time that a node has for a step: at the head so much, and at a daemon less.
    pub(super) fn step_max(self, at_head: Duration) -> Duration {
        match self {
            Self::Head => at_head,
            Self::Daemon(_) => at_head.min(DAEMON_STEP_MAX),
        }
    }
}

/// The commands of a daemon.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Commands whose daemons have not joined.
    open: u32,
    all: u32,
}

/// The places, and what they do.
#[derive(Debug)]
pub(super) struct Places {
    /// Maximum number of commands in progress at the head, and at each daemon; 0 at daemons without a tree start.
    head_max: u32,
    daemon_max: u32,
    /// Commands in progress at the head.
    head: u32,
    /// The daemons that start others.
    daemons: BTreeMap<NodeId, Load>,
    /// The same daemons with the number of their commands in progress and of all, for those that can have more in all.
    order: BTreeSet<(u32, u32, NodeId)>,
    /// Daemons whose commands have failed.
    bad: BTreeSet<NodeId>,
    /// Whether a command at a daemon has started another one. Before, each daemon gets one command: where ssh between nodes is not
    /// possible, few nodes have to wait for the head.
    has_worked: bool,
}

impl Places {
    /// Only the head starts daemons.
    pub(super) const fn head_only() -> Self {
        Self::with(PARALLEL.get(), 0)
    }

    /// Daemons start others. No process starts more at a time than have a place below it in the tree.
    pub(super) fn tree(radix: NonZeroU32) -> Self {
        Self::with(PARALLEL.min(radix).get(), DAEMON_PARALLEL.min(radix).get())
    }

    const fn with(head_max: u32, daemon_max: u32) -> Self {
        Self {
            head_max,
            daemon_max,
            head: 0,
            daemons: BTreeMap::new(),
            order: BTreeSet::new(),
            bad: BTreeSet::new(),
            has_worked: false,
        }
    }

    /// Takes a place for a command that may run anywhere.
    pub(super) fn take_any(&mut self) -> Option<Place> {
        let most = if self.has_worked { self.daemon_max } else { 1 };
        let first = self.order.first().copied();
        let daemon = first.filter(|(open, ..)| *open < most);
        match daemon {
            Some((open, _, node)) if open <= self.head || self.head >= self.head_max => {
                self.change(node, |load| {
                    load.open += 1;
                    load.all += 1;
                });
                Some(Place::Daemon(node))
            }
            _ => self.take_head(),
        }
    }

    /// Takes a place at the head.
    pub(super) fn take_head(&mut self) -> Option<Place> {
        let has_room = self.head < self.head_max;
        has_room.then(|| {
            self.head += 1;
            Place::Head
        })
    }

    pub(super) const fn head_max(&self) -> usize {
        self.head_max as usize
    }

    /// Takes a place at the head for a command that has failed elsewhere. It does not wait until the daemons of other commands have
    /// joined: they may wait for this one, which is above them in the tree.
    pub(super) const fn take_again(&mut self) -> Place {
        self.head += 1;
        Place::Head
    }

    /// Notes that a command is not in progress any more.
    pub(super) fn give_back(&mut self, place: Place) {
        match place {
            Place::Head => self.head = self.head.saturating_sub(1),
            Place::Daemon(node) => {
                self.change(node, |load| load.open = load.open.saturating_sub(1));
            }
        }
    }

    /// Lets a daemon start others.
    pub(super) fn open(&mut self, node: NodeId) {
        if self.daemon_max > 0 && !self.bad.contains(&node) {
            self.daemons.entry(node).or_default();
            self.change(node, |_| {});
        }
    }

    /// Notes that a daemon has started another one.
    pub(super) const fn worked(&mut self) {
        self.has_worked = true;
    }

    /// Gives a daemon no more commands: one of its own has failed.
    pub(super) fn failed(&mut self, node: NodeId) {
        self.close(node);
        self.bad.insert(node);
        if self.bad.len() >= BAD_DAEMONS_MAX {
            self.daemon_max = 0;
            self.daemons.clear();
            self.order.clear();
        }
    }

    /// Gives a daemon no more commands.
    pub(super) fn close(&mut self, node: NodeId) {
        if let Some(load) = self.daemons.remove(&node) {
            self.order.remove(&(load.open, load.all, node));
        }
    }

    fn change(&mut self, node: NodeId, change: impl FnOnce(&mut Load)) {
        if let Some(load) = self.daemons.get_mut(&node) {
            self.order.remove(&(load.open, load.all, node));
            change(load);
            if load.all < DAEMON_COMMANDS_MAX {
                self.order.insert((load.open, load.all, node));
            }
        }
    }
}
