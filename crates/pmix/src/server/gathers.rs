//! Collectives with members on several nodes, as the controller sees them.
//!
//! A node sends a *share* when all members on it have called. When the share of every node has arrived, each node gets
//! all of them. The controller does not look into a share.
//!
//! Nodes *wait* in a gather if they have reported a waiting member or sent a share. The events of a gather:
//!
//! | event | no such gather | some nodes wait in it |
//! |---|---|---|
//! | waits | created | this node waits too |
//! | share | created, with the share | share kept; the last one completes the gather, and every node gets all shares |
//! | declined with a share | no effect | the same as a share, but this node gets no answer |
//! | no share, declined with a status | no effect | ends: waiting nodes get the status |
//! | withdrawn | no effect | ends: the other waiting nodes get the status |
//! | forgotten | no effect | this node does not wait any more; the other nodes wait on |
//! | node lost, share missing or not enough | no effect | ends: waiting nodes get LOST_CONNECTION |
//! | node lost, share present and enough | no effect | the other nodes wait on |
//!
//! Whether the share of a lost node is enough depends on the collective, by the table in [`super::collective`]. A
//! gather that begins after a node was lost and needs it ends immediately.
//!
//! A gather is removed when it completes or ends, or when no node waits in it any more. The servers that wait in it own
//! it: they withdraw if their time-out expires or their job ends. So there are at most as many gathers as the servers
//! have active collectives, which the servers bound.
//!
//! A further share from the same node under the same id belongs to the next gather with that id. Links preserve the
//! order of messages, so these shares need no sequence numbers.
//!
//! A node may have no member left that will call, and its server cannot know that other nodes wait. A server therefore
//! reports when members have gone ([`Gathers::members_gone`]). From then on, the controller asks it about gathers that
//! lack its share: for each id about the oldest gather, and when that has ended about the next. The other servers
//! report from then on what they wait for, even before they have a share ([`Gathers::waits`]). Before the first member
//! has gone, these reports would be wasted messages.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use bytes::Bytes;

use super::{GatherId, GatherNumber, GatherTicket, MAX_CARRIED};
use crate::{
    planted::{self, Bug},
    value::Status,
};

/// The gathers of a dvm: one instance, in the controller. Nodes are identified by [`super::NodeFacts::id`].
#[derive(Debug, Default)]
pub struct Gathers {
    /// Gathers by collective id, each queue in the order in which its gathers began.
    open: BTreeMap<GatherId, VecDeque<Gather>>,
    next: u64,
    /// Nodes that have reported that members have gone.
    with_gone_members: BTreeSet<u32>,
    lost: BTreeSet<u32>,
    watch: Watch,
    /// Notices not yet returned to the host.
    notices: Vec<Notice>,
}

#[derive(Debug)]
struct Gather {
    number: GatherNumber,
    nodes: BTreeSet<u32>,
    /// Nodes that have reported that they wait for members of their own, with the tickets for their answers.
    waiting: BTreeMap<u32, GatherTicket>,
    /// Shares by node. The ticket is `None` if the node declined and expects no answer.
    shares: BTreeMap<u32, (Option<GatherTicket>, Bytes)>,
}

/// A message from the controller to the server of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// Becomes [`super::Input::Gathered`].
    Gathered {
        node: u32,
        ticket: GatherTicket,
        result: Result<Arc<[(u32, Bytes)]>, Status>,
    },
    /// Becomes [`super::Input::Watch`] on these nodes.
    Watch(Watchers),
    /// Becomes [`super::Input::Awaited`].
    Awaited {
        node: u32,
        id: GatherId,
        number: GatherNumber,
    },
}

/// The nodes that a [`Notice::Watch`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watchers {
    /// All nodes except this one.
    AllBut(u32),
    Only(u32),
}

/// Which nodes were told to watch. Each is told once: a job that ends on a thousand nodes would otherwise cost a million
/// messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Watch {
    #[default]
    Nobody,
    AllBut(u32),
    Everybody,
}

impl Gather {
    fn lacks(&self, node: u32) -> bool {
        self.nodes.contains(&node) && !self.shares.contains_key(&node)
    }

    /// Returns true if the gather cannot complete because of lost nodes.
    fn is_broken(&self, id: &GatherId, lost: &BTreeSet<u32>) -> bool {
        let mut without = self.nodes.intersection(lost);
        without.any(|node| id.needs_callers() || self.lacks(*node))
    }

    /// Returns true if it lacks the share of a node that does not wait in it either.
    fn is_free(&self, node: u32) -> bool {
        self.lacks(node) && !self.waiting.contains_key(&node)
    }
}

impl Gathers {
    /// Adds the share of a node all of whose members have called: [`super::Output::Gather`].
    pub fn share(
        &mut self,
        node: u32,
        ticket: GatherTicket,
        id: &GatherId,
        nodes: &[u32],
        share: Bytes,
    ) -> Vec<Notice> {
        let own = |gather: &Gather| gather.waiting.get(&node) == Some(&ticket);
        match self.position(id, own) {
            Some(at) => self.add(id, at, node, Some(ticket), share),
            None => {
                let at = self.free(id, node, nodes);
                self.add(id, at, node, Some(ticket), share);
            }
        }
        std::mem::take(&mut self.notices)
    }

    /// Records that a node waits for members of its own: [`super::Output::Waits`].
    pub fn waits(
        &mut self,
        node: u32,
        ticket: GatherTicket,
        id: &GatherId,
        nodes: &[u32],
    ) -> Vec<Notice> {
        let at = self.free(id, node, nodes);
        if let Some(gather) = self.open.get_mut(id).and_then(|queue| queue.get_mut(at)) {
            let is_first = gather.waiting.is_empty() && gather.shares.is_empty();
            gather.waiting.insert(node, ticket);
            self.begun(id, at, is_first);
        }
        std::mem::take(&mut self.notices)
    }

    /// Records that no process on a node waits in a gather any more: [`super::Output::Forgotten`].
    pub fn forgotten(&mut self, node: u32, ticket: GatherTicket, id: &GatherId) -> Vec<Notice> {
        let own = |gather: &Gather| gather.waiting.get(&node) == Some(&ticket);
        if let Some(at) = self.position(id, own)
            && let Some(gather) = self.open.get_mut(id).and_then(|queue| queue.get_mut(at))
        {
            gather.waiting.remove(&node);
            if gather.waiting.is_empty() && gather.shares.is_empty() {
                self.take(id, at);
            }
            // The remaining members on that node may never call.
            self.ask(id, node);
        }
        std::mem::take(&mut self.notices)
    }

    /// Ends the oldest gather of an id in which a node neither waits nor has a share: [`super::Output::NoShare`].
    pub fn no_share(&mut self, node: u32, id: &GatherId, status: Status) -> Vec<Notice> {
        if let Some(at) = self.position(id, |gather| gather.is_free(node)) {
            self.end(id, at, None, status);
        }
        std::mem::take(&mut self.notices)
    }

    /// Handles the answer to [`Notice::Awaited`]: [`super::Output::Declined`].
    pub fn declined(
        &mut self,
        node: u32,
        id: &GatherId,
        number: GatherNumber,
        result: Result<Bytes, Status>,
    ) -> Vec<Notice> {
        let meant = |gather: &Gather| gather.number == number && gather.lacks(node);
        if let Some(at) = self.position(id, meant) {
            match result {
                Ok(share) => self.add(id, at, node, None, share),
                Err(status) => self.end(id, at, None, status),
            }
        }
        std::mem::take(&mut self.notices)
    }

    /// Ends a gather in which a node has a share or waits: [`super::Output::Withdrawn`].
    pub fn withdrawn(
        &mut self,
        node: u32,
        ticket: GatherTicket,
        id: &GatherId,
        status: Status,
    ) -> Vec<Notice> {
        let meant = |gather: &Gather| {
            let share = gather.shares.get(&node);
            share.is_some_and(|(other, _)| *other == Some(ticket))
                || gather.waiting.get(&node) == Some(&ticket)
        };
        if let Some(at) = self.position(id, meant) {
            self.end(id, at, Some(node), status);
        }
        std::mem::take(&mut self.notices)
    }

    /// Records that members on a node have gone, and asks it about the gathers it may hold up:
    /// [`super::Output::MembersGone`].
    pub fn members_gone(&mut self, node: u32) -> Vec<Notice> {
        let is_first = self.with_gone_members.insert(node);
        if is_first && planted::is(Bug::WatchForEach) {
            self.watch = Watch::Nobody;
        }
        self.watch_others(node);
        let ids: Vec<GatherId> = self.open.keys().cloned().collect();
        for id in ids {
            self.ask(&id, node);
        }
        std::mem::take(&mut self.notices)
    }

    /// Records that a node is lost with all of its processes.
    pub fn node_lost(&mut self, node: u32) -> Vec<Notice> {
        self.lost.insert(node);
        self.watch_others(node);
        let ids: Vec<GatherId> = self.open.keys().cloned().collect();
        for id in ids {
            let mut at = 0;
            while let Some(gather) = self.open.get(&id).and_then(|queue| queue.get(at)) {
                if gather.is_broken(&id, &self.lost) {
                    self.end(&id, at, None, Status::LOST_CONNECTION);
                } else {
                    at += 1;
                }
            }
        }
        std::mem::take(&mut self.notices)
    }

    /// Lets all nodes but this one watch, unless they do already.
    fn watch_others(&mut self, node: u32) {
        let watchers = match self.watch {
            Watch::Nobody => Watchers::AllBut(node),
            Watch::AllBut(other) if other != node => Watchers::Only(other),
            Watch::AllBut(_) | Watch::Everybody => return,
        };
        self.watch = match watchers {
            Watchers::AllBut(node) => Watch::AllBut(node),
            Watchers::Only(_) => Watch::Everybody,
        };
        self.notices.push(Notice::Watch(watchers));
    }

    /// Returns true if there are no gathers. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn position(&self, id: &GatherId, test: impl Fn(&Gather) -> bool) -> Option<usize> {
        self.open.get(id)?.iter().position(test)
    }

    /// Returns the index of the oldest gather of an id that lacks the share of a node.
    fn oldest(&self, id: &GatherId, node: u32) -> Option<usize> {
        self.position(id, |gather| gather.lacks(node))
    }

    /// Returns the index of the oldest gather of an id in which a node takes no part yet, or of a new one.
    fn free(&mut self, id: &GatherId, node: u32, nodes: &[u32]) -> usize {
        let free = self.position(id, |gather| gather.is_free(node));
        free.unwrap_or_else(|| {
            let number = GatherNumber(self.next);
            self.next += 1;
            let queue = self.open.entry(id.clone()).or_default();
            queue.push_back(Gather {
                number,
                nodes: nodes.iter().copied().chain([node]).collect(),
                waiting: BTreeMap::new(),
                shares: BTreeMap::new(),
            });
            queue.len() - 1
        })
    }

    /// Asks, after a node has joined a gather, the nodes whose members may not call. Ends the gather if a lost node
    /// prevents it.
    fn begun(&mut self, id: &GatherId, at: usize, is_first: bool) {
        let Some(gather) = self.open.get(id).and_then(|queue| queue.get(at)) else {
            return;
        };
        if gather.is_broken(id, &self.lost) {
            self.end(id, at, None, Status::LOST_CONNECTION);
        } else if is_first {
            let nodes: Vec<u32> = gather.nodes.iter().copied().collect();
            for node in nodes {
                if self.oldest(id, node) == Some(at) {
                    self.ask(id, node);
                }
            }
        }
    }

    fn add(
        &mut self,
        id: &GatherId,
        at: usize,
        node: u32,
        ticket: Option<GatherTicket>,
        share: Bytes,
    ) {
        let Some(gather) = self.open.get_mut(id).and_then(|queue| queue.get_mut(at)) else {
            return;
        };
        let is_first = gather.waiting.is_empty() && gather.shares.is_empty();
        gather.waiting.remove(&node);
        gather.shares.insert(node, (ticket, share));
        if gather.nodes.len() == gather.shares.len() {
            self.complete(id, at);
        } else {
            self.begun(id, at, is_first);
        }
        // The next gather of this id may lack this node's share as well.
        self.ask(id, node);
    }

    /// Removes a gather with all shares, and answers its nodes.
    fn complete(&mut self, id: &GatherId, at: usize) {
        let Some(gather) = self.take(id, at) else {
            return;
        };
        let shares = gather.shares.iter();
        let mut all: Vec<(u32, Bytes)> = shares
            .map(|(node, (_, share))| (*node, share.clone()))
            .collect();
        if planted::is(Bug::ShareForgotten) {
            all.pop();
        }
        let bytes: usize = all.iter().map(|(_, share)| share.len()).sum();
        let result: Result<Arc<[(u32, Bytes)]>, Status> = if bytes > MAX_CARRIED {
            Err(Status::OUT_OF_RESOURCE)
        } else {
            Ok(all.into())
        };
        for (node, (ticket, _)) in gather.shares {
            self.answer(node, ticket, result.clone());
        }
    }

    /// Removes a gather that cannot complete, and sends the status to its nodes, except to node `knows`.
    fn end(&mut self, id: &GatherId, at: usize, knows: Option<u32>, status: Status) {
        let Some(gather) = self.take(id, at) else {
            return;
        };
        for (node, (ticket, _)) in &gather.shares {
            if Some(*node) != knows {
                self.answer(*node, *ticket, Err(status));
            }
        }
        for (node, ticket) in &gather.waiting {
            if Some(*node) != knows {
                self.answer(*node, Some(*ticket), Err(status));
            }
        }
        for node in gather.nodes {
            if !gather.shares.contains_key(&node) {
                self.ask(id, node);
            }
        }
    }

    fn answer(
        &mut self,
        node: u32,
        ticket: Option<GatherTicket>,
        result: Result<Arc<[(u32, Bytes)]>, Status>,
    ) {
        if let Some(ticket) = ticket.filter(|_| !self.lost.contains(&node)) {
            self.notices.push(Notice::Gathered {
                node,
                ticket,
                result,
            });
        }
    }

    fn take(&mut self, id: &GatherId, at: usize) -> Option<Gather> {
        let queue = self.open.get_mut(id)?;
        let gather = queue.remove(at);
        if queue.is_empty() {
            self.open.remove(id);
        }
        gather
    }

    /// Asks a node whose members have gone about the oldest gather of an id that lacks its share.
    fn ask(&mut self, id: &GatherId, node: u32) {
        if !self.with_gone_members.contains(&node) || self.lost.contains(&node) {
            return;
        }
        let queue = self.open.get(id);
        // If the node waits itself, a member on it has called, and its server reports the outcome.
        if let Some(gather) = queue.and_then(|queue| queue.iter().find(|one| one.lacks(node)))
            && !gather.waiting.contains_key(&node)
        {
            self.notices.push(Notice::Awaited {
                node,
                id: id.clone(),
                number: gather.number,
            });
        }
    }
}
