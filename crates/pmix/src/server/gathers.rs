//! The collectives that have members on several nodes, as the controller sees them.
//!
//! A node sends a *share* when all members on it have called, and each node is answered with the shares of all. What a
//! share means is the matter of the servers.
//!
//! States of a gather:
//!
//! | state | waits | share | absent, declined | withdrawn | forgotten | node lost |
//! |---|---|---|---|---|---|---|
//! | not known | it waits | it waits | nothing | nothing | nothing | nothing |
//! | some nodes wait | it waits | all are there: every node gets them; else it waits | those who wait get the status | the others who wait get the status | the others wait on | by the table in [`super::collective`]: those who wait get LOST_CONNECTION, unless its share is there and that is enough |
//!
//! After each of these ends a gather is not known any more, nor when nobody waits any more. Its owners are the servers
//! that wait: they withdraw when their time is over or their job ends. So there are never more gathers than servers have
//! collectives under way, which they bound.
//!
//! A node that has a share in a gather already is in the next one of the same name. Links keep the order, so the shares
//! of a name need no numbers to be matched.
//!
//! It may be that on some node nobody is left to call. Its server does not know that others wait, so it says when members
//! have gone ([`Gathers::members_gone`]). From then on it is asked about the gathers that wait for it: of each name about
//! the oldest, and about the next one when that is over. And the others say from then on for what they wait, also before
//! they have a share ([`Gathers::waits`]): as long as nobody has gone, that is not worth a message.

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

/// The gathers of a dvm: one value, beside the controller. Nodes have the numbers of [`super::NodeFacts::id`].
#[derive(Debug, Default)]
pub struct Gathers {
    /// Those of a name in the order in which they began.
    open: BTreeMap<GatherId, VecDeque<Gather>>,
    next: u64,
    /// Nodes that have said that members have gone.
    thinned: BTreeSet<u32>,
    lost: BTreeSet<u32>,
    /// What servers are to be told.
    notices: Vec<Notice>,
}

#[derive(Debug)]
struct Gather {
    number: GatherNumber,
    nodes: BTreeSet<u32>,
    /// Nodes that wait for members of their own.
    waiting: BTreeMap<u32, GatherTicket>,
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
    /// [`super::Input::Watch`], for every node but this.
    Watch { but: u32 },
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

    /// Whether it can never be complete without these nodes.
    fn is_broken(&self, id: &GatherId, lost: &BTreeSet<u32>) -> bool {
        let mut without = self.nodes.intersection(lost);
        without.any(|node| id.needs_callers() || self.lacks(*node))
    }

    /// Whether it waits for a node that does not wait in it.
    fn is_free(&self, node: u32) -> bool {
        self.lacks(node) && !self.waiting.contains_key(&node)
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

    /// A node waits for members of its own: [`super::Output::Waits`].
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

    /// Nobody waits on a node any more, whatever becomes of it: [`super::Output::Forgotten`].
    pub fn forgotten(&mut self, node: u32, ticket: GatherTicket, id: &GatherId) -> Vec<Notice> {
        let own = |gather: &Gather| gather.waiting.get(&node) == Some(&ticket);
        if let Some(at) = self.position(id, own)
            && let Some(gather) = self.open.get_mut(id).and_then(|queue| queue.get_mut(at))
        {
            gather.waiting.remove(&node);
            if gather.waiting.is_empty() && gather.shares.is_empty() {
                self.take(id, at);
            }
            // Now it is not sure any more that somebody there will call.
            self.ask(id, node);
        }
        std::mem::take(&mut self.notices)
    }

    /// Members on a node do not come to the oldest gather of a name that waits for it: [`super::Output::Absent`].
    pub fn absent(&mut self, node: u32, id: &GatherId, status: Status) -> Vec<Notice> {
        if let Some(at) = self.position(id, |gather| gather.is_free(node)) {
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
                || gather.waiting.get(&node) == Some(&ticket)
        };
        if let Some(at) = self.position(id, meant) {
            self.end(id, at, Some(node), status);
        }
        std::mem::take(&mut self.notices)
    }

    /// Members on a node have gone: [`super::Output::MembersGone`].
    pub fn members_gone(&mut self, node: u32) -> Vec<Notice> {
        if self.thinned.insert(node) {
            self.notices.push(Notice::Watch { but: node });
        }
        let ids: Vec<GatherId> = self.open.keys().cloned().collect();
        for id in ids {
            self.ask(&id, node);
        }
        std::mem::take(&mut self.notices)
    }

    /// A node is lost, and everybody on it.
    pub fn node_lost(&mut self, node: u32) -> Vec<Notice> {
        self.lost.insert(node);
        self.notices.push(Notice::Watch { but: node });
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

    /// The oldest gather of a name for what a node begins, or a new one.
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

    /// A node waits in a gather: those are asked who may not come.
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

    /// Asks a node whose members have gone about the oldest gather of a name that waits for it.
    fn ask(&mut self, id: &GatherId, node: u32) {
        if !self.thinned.contains(&node) || self.lost.contains(&node) {
            return;
        }
        let queue = self.open.get(id);
        // Where it waits itself, those on it have called who could.
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
