//! Input that a process pushes by PMIx to ranks on several nodes.
//!
//! Each node that has some of the ranks gets the bytes, and answers when it has taken them. The push is answered when
//! all of these nodes have answered, are clean or are lost.

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, RankSet};
use bytes::Bytes;

use super::{Job, JobOutput};
use crate::{
    controller::asks::Asker,
    proto::{PushResult, ToDaemon},
};

/// Maximum number of pushes to one job that wait for an answer. A further push is answered with [`PushResult::Full`].
pub(super) const MAX_PUSHES: usize = 64;

/// Pushes that wait for answers from nodes, by push number.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
}

/// Input for ranks of a job.
#[derive(Debug)]
pub(in crate::controller) struct Push {
    pub(in crate::controller) ranks: RankSet,
    pub(in crate::controller) bytes: Bytes,
    /// No more input follows for these ranks.
    pub(in crate::controller) is_last: bool,
}

#[derive(Debug)]
struct Waiting {
    asker: Asker,
    /// Nodes that have yet to answer.
    nodes: BTreeSet<NodeId>,
    /// The best result so far.
    result: PushResult,
}

impl Job {
    /// Sends pushed input to the nodes of these ranks.
    pub(in crate::controller) fn push(
        &mut self,
        asker: Asker,
        Push {
            ranks,
            bytes,
            is_last,
        }: Push,
    ) {
        if self.pushes.waiting.len() >= MAX_PUSHES {
            return self.answer_push(asker, PushResult::Full);
        }
        let job = self.id;
        let number = self.pushes.next;
        let shares = self.shares.iter().filter(|(_, share)| !share.clean);
        let named: BTreeMap<NodeId, RankSet> = shares
            .map(|(node, share)| (*node, share.ranks.intersection(&ranks)))
            .filter(|(_, ranks)| !ranks.is_empty())
            .collect();
        if named.is_empty() {
            return self.answer_push(asker, PushResult::Unread);
        }
        self.pushes.next += 1;
        let waiting = Waiting {
            asker,
            nodes: named.keys().copied().collect(),
            result: PushResult::Unread,
        };
        self.pushes.waiting.insert(number, waiting);
        for (node, ranks) in named {
            let bytes = bytes.clone();
            self.say(
                node,
                ToDaemon::Push {
                    job,
                    number,
                    ranks,
                    bytes,
                    is_last,
                },
            );
        }
    }

    /// Handles a node's answer to a push.
    pub(in crate::controller) fn on_pushed(
        &mut self,
        node: NodeId,
        number: u64,
        result: PushResult,
    ) {
        let Some(waiting) = self.pushes.waiting.get_mut(&number) else {
            return;
        };
        if waiting.nodes.remove(&node) {
            waiting.result = waiting.result.max(result);
        }
        if waiting.nodes.is_empty()
            && let Some(waiting) = self.pushes.waiting.remove(&number)
        {
            self.answer_push(waiting.asker, waiting.result);
        }
    }

    /// Closes the pushes to a node that is clean or lost, because it will not answer them.
    pub(super) fn end_pushes_to(&mut self, node: NodeId) {
        let numbers: Vec<u64> = self.pushes.waiting.keys().copied().collect();
        for number in numbers {
            self.on_pushed(node, number, PushResult::Unread);
        }
    }

    fn answer_push(&mut self, asker: Asker, result: PushResult) {
        let answer = JobOutput::Answer(asker, result.status());
        self.outputs.push_back(answer);
    }
}
