//! The input of a job, from its front to the nodes whose ranks read it, and its end.

use std::collections::BTreeMap;

use base::NodeId;
use bytes::Bytes;

use super::{Job, JobOutput};
use crate::{
    proto::{ToDaemon, ToFront},
    stdio::STDIN_WINDOW,
};

/// Number of nodes by the credit that each has given. So the lowest credit is known without going over all nodes.
#[derive(Debug, Default)]
pub(super) struct Credits(BTreeMap<u64, u32>);

impl Credits {
    pub(super) fn add(&mut self, credit: u64) {
        *self.0.entry(credit).or_default() += 1;
    }

    fn remove(&mut self, credit: u64) {
        if let Some(nodes) = self.0.get_mut(&credit) {
            *nodes -= 1;
            if *nodes == 0 {
                self.0.remove(&credit);
            }
        }
    }

    fn lowest(&self) -> Option<u64> {
        self.0.keys().next().copied()
    }
}

impl Job {
    /// Forwards input from the front. Returns false, and forwards nothing, if it exceeds the front's credit.
    pub(in crate::controller) fn on_input(&mut self, bytes: &Bytes) -> bool {
        let taken = self.input_taken.saturating_add(bytes.len() as u64);
        if taken > self.input_given {
            return false;
        }
        self.input_taken = taken;
        self.each_reader(|job| ToDaemon::Stdin {
            job,
            bytes: bytes.clone(),
        });
        true
    }

    /// Forwards EOF from the front.
    pub(in crate::controller) fn on_input_end(&mut self) {
        self.each_reader(|job| ToDaemon::StdinEof { job });
    }

    /// Sends EOF to all ranks of a spawned job, because no process remains that could push input to it.
    pub(in crate::controller) fn end_pushed_input(&mut self) {
        self.each_node(|job| ToDaemon::StdinEof { job });
    }

    /// Adds a node's credit for input; `None` if its ranks read no more. The front gets credit for what the slowest
    /// node can take.
    pub(in crate::controller) fn on_input_credit(&mut self, node: NodeId, bytes: Option<u64>) {
        // Input of a spawned job is pushed, and its daemons themselves control the flow.
        if !self.is_of_front() {
            return;
        }
        let Some(share) = self.shares.get_mut(&node) else {
            return;
        };
        let Some(before) = share.input_credit else {
            return;
        };
        let after = bytes.map(|bytes| before.saturating_add(bytes));
        share.input_credit = after;
        self.input_credits.remove(before);
        if let Some(after) = after {
            self.input_credits.add(after);
        }
        let message = match self.input_credits.lowest() {
            None => ToFront::StdinClosed,
            Some(sum) if sum > self.input_given => {
                let credit = sum - self.input_given;
                self.input_given = sum;
                ToFront::StdinCredit(credit.min(STDIN_WINDOW))
            }
            Some(_) => return,
        };
        self.tell(message);
    }

    fn each_reader(&mut self, message: impl Fn(base::JobId) -> ToDaemon) {
        let nodes = self.shares.iter();
        let readers = nodes.filter(|(_, share)| share.input_credit.is_some());
        let messages = readers.map(|(node, _)| JobOutput::Daemon(*node, message(self.id)));
        self.outputs.extend(messages);
    }
}
