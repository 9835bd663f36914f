//! The collectives that have members on several nodes, as the controller of a machine sees them.
//!
//! A node sends a *share* when all members on it have called, and each node is answered with the shares of all. What a
//! share means is the matter of the servers.
//!
//! States of a gather:
//!
//! | state | share | absent, declined | withdrawn | node lost |
//! |---|---|---|---|---|
//! | not known | it waits | nothing | nothing | nothing |
//! | some shares wait | all are there: every node gets them; else it waits | those who wait get the status | the others who wait get the status | those who wait get LOST_CONNECTION |
//!
//! After each of these ends a gather is not known any more. Somebody always waits for it: its owners are the servers
//! whose shares are in it, which withdraw them when their time is over or their job ends. So there are never more gathers
//! than shares that wait, of which a server has [`super::MAX_SENT`] at most.
//!
//! A node that has a share in a gather already is in the next one of the same name. Links keep the order, so the shares
//! of a name need no numbers to be matched.
//!
//! It may be that on some node nobody is left to call. Its server does not know that others wait, so it says when members
//! have gone ([`Gathers::members_gone`]). From then on it is asked about the gathers that wait for it: of each name about
//! the oldest, and about the next one when that is over.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use bytes::Bytes;

use super::{GatherId, GatherNumber, GatherTicket};
use crate::{
    planted::{self, Bug},
    value::Status,
};

/// The gathers of a machine: one value, beside its controller. Nodes have the numbers of [`super::NodeFacts::id`].
#[derive(Debug, Default)]
pub struct Gathers {
    /// Those of a name in the order in which they began.
    open: BTreeMap<GatherId, VecDeque<Gather>>,
    next: u64,
    /// Nodes that have said that members have gone.
    thinned: BTreeSet<u32>,
    lost: BTreeSet<u32>,
    notices: Vec<Notice>,
}

#[derive(Debug)]
struct Gather {
    number: GatherNumber,
    nodes: BTreeSet<u32>,
    /// Without a ticket where nobody is to be answered.
    shares: BTreeMap<u32, (Option<GatherTicket>, Bytes)>,
}

/// What a server is to be told.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// [`super::Input::Gathered`].
    Gathered {
        node: u32,
        ticket: GatherTicket,
        result: Result<Arc<[(u32, Bytes)]>, Status>,
    },
    /// [`super::Input::Awaited`].
    Awaited {
        node: u32,
        id: GatherId,
        number: GatherNumber,
    },
}

impl Gather {
    fn lacks(&self, node: u32) -> bool {
        self.nodes.contains(&node) && !self.shares.contains_key(&node)
    }
}

impl Gathers {
    /// All members on a node have called: [`super::Output::Gather`].
    pub fn share(
        &mut self,
        node: u32,
        ticket: GatherTicket,
        id: &GatherId,
        nodes: &[u32],
        share: Bytes,
    ) -> Vec<Notice> {
        let at = self.oldest(id, node).unwrap_or_else(|| {
            let number = GatherNumber(self.next);
            self.next += 1;
            let queue = self.open.entry(id.clone()).or_default();
            queue.push_back(Gather {
                number,
                nodes: nodes.iter().copied().chain([node]).collect(),
                shares: BTreeMap::new(),
            });
            queue.len() - 1
        });
        self.add(id, at, node, Some(ticket), share);
        std::mem::take(&mut self.notices)
    }

    /// Members on a node do not come to the oldest gather of a name that waits for it: [`super::Output::Absent`].
    pub fn absent(&mut self, node: u32, id: &GatherId, status: Status) -> Vec<Notice> {
        if let Some(at) = self.oldest(id, node) {
            self.end(id, at, None, status);
        }
        std::mem::take(&mut self.notices)
    }

    /// The answer to [`Notice::Awaited`]: [`super::Output::Declined`].
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

    /// A node takes its share back: [`super::Output::Withdrawn`].
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
        };
        if let Some(at) = self.position(id, meant) {
            self.end(id, at, Some(node), status);
        }
        std::mem::take(&mut self.notices)
    }

    /// Members on a node have gone: [`super::Output::MembersGone`].
    pub fn members_gone(&mut self, node: u32) -> Vec<Notice> {
        self.thinned.insert(node);
        let ids: Vec<GatherId> = self.open.keys().cloned().collect();
        for id in ids {
            self.ask(&id, node);
        }
        std::mem::take(&mut self.notices)
    }

    /// A node is lost, and everybody on it.
    pub fn node_lost(&mut self, node: u32) -> Vec<Notice> {
        self.lost.insert(node);
        let ids: Vec<GatherId> = self.open.keys().cloned().collect();
        for id in ids {
            while let Some(at) = self.position(&id, |gather| gather.nodes.contains(&node)) {
                self.end(&id, at, None, Status::LOST_CONNECTION);
            }
        }
        std::mem::take(&mut self.notices)
    }

    /// Whether nobody waits. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn position(&self, id: &GatherId, test: impl Fn(&Gather) -> bool) -> Option<usize> {
        self.open.get(id)?.iter().position(test)
    }

    /// The oldest gather of a name that waits for a node.
    fn oldest(&self, id: &GatherId, node: u32) -> Option<usize> {
        self.position(id, |gather| gather.lacks(node))
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
        let is_first = gather.shares.is_empty();
        gather.shares.insert(node, (ticket, share));
        if gather.nodes.len() == gather.shares.len() {
            self.complete(id, at);
        } else if !gather.nodes.is_disjoint(&self.lost) {
            self.end(id, at, None, Status::LOST_CONNECTION);
        } else if is_first {
            let nodes: Vec<u32> = gather.nodes.iter().copied().collect();
            for node in nodes {
                if self.oldest(id, node) == Some(at) {
                    self.ask(id, node);
                }
            }
        }
        // The next one may wait for this node as well.
        self.ask(id, node);
    }

    /// Everybody has come.
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
        let all: Arc<[(u32, Bytes)]> = all.into();
        for (node, (ticket, _)) in gather.shares {
            let result = Ok(Arc::clone(&all));
            self.answer(node, ticket, result);
        }
    }

    /// Somebody does not come: those who wait are told, except for a node that knows.
    fn end(&mut self, id: &GatherId, at: usize, knows: Option<u32>, status: Status) {
        let Some(gather) = self.take(id, at) else {
            return;
        };
        for (node, (ticket, _)) in &gather.shares {
            if Some(*node) != knows {
                self.answer(*node, *ticket, Err(status));
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

    /// Asks a node whose members have gone about the oldest gather of a name that waits for it.
    fn ask(&mut self, id: &GatherId, node: u32) {
        if !self.thinned.contains(&node) || self.lost.contains(&node) {
            return;
        }
        let queue = self.open.get(id);
        if let Some(gather) = queue.and_then(|queue| queue.iter().find(|one| one.lacks(node))) {
            self.notices.push(Notice::Awaited {
                node,
                id: id.clone(),
                number: gather.number,
            });
        }
    }
}
