//! Input that a process pushes to a job's procs by PMIx: a process on this node, or on another by way of the controller.

use base::{Rank, RankSet};

use super::{LocalJob, Out};
use crate::{
    daemon::service::{PushId, Pushed},
    proto::PushResult,
    stdio::STDIN_WINDOW,
};

/// Maximum number of a job's pushes that may wait for room. A further push is answered with [`PushResult::Full`].
const MAX_WAITING: usize = 64;

/// A push, and the result that answers it.
pub(in crate::daemon) type Taken = (PushId, PushResult);

impl LocalJob {
    /// Queues pushed input, and passes it on as soon as its readers have room.
    pub(in crate::daemon) fn on_pushed(&mut self, pushed: Pushed, out: &mut Out) {
        if self.pushed.len() >= MAX_WAITING {
            self.taken.push((pushed.id, PushResult::Full));
            return;
        }
        self.pushed.push_back(pushed);
        self.take_pushed(out);
    }

    /// Returns the pushes that were answered since the last call.
    pub(in crate::daemon) fn taken(&mut self) -> Vec<Taken> {
        std::mem::take(&mut self.taken)
    }

    /// Passes pushes on in order, until one has a reader whose backlog is full.
    pub(super) fn take_pushed(&mut self, out: &mut Out) {
        while let Some(next) = self.pushed.front() {
            let readers = self.readers(&next.ranks);
            let full = |rank: &Rank| {
                let proc = self.procs.get(rank);
                let feeder = proc.and_then(|proc| proc.feeder.as_ref());
                feeder.is_some_and(|feeder| feeder.backlog() >= STDIN_WINDOW)
            };
            if readers.iter().any(full) {
                return;
            }
            let Some(next) = self.pushed.pop_front() else {
                return;
            };
            // No reader is left, and this result makes the sender's library stop sending.
            let result = if readers.is_empty() {
                PushResult::Unread
            } else {
                PushResult::Taken
            };
            self.taken.push((next.id, result));
            for rank in readers {
                if let Some(feeder) = self
                    .procs
                    .get_mut(&rank)
                    .and_then(|proc| proc.feeder.as_mut())
                {
                    feeder.push(next.bytes.clone());
                    if next.is_last {
                        feeder.end();
                    }
                }
                self.feed(rank, out);
            }
        }
    }

    /// Returns those of the given ranks that may still read their stdin.
    fn readers(&self, ranks: &RankSet) -> Vec<Rank> {
        let named = self.procs.iter().filter(|(rank, _)| ranks.contains(**rank));
        let reading = named.filter(|(_, proc)| proc.feeder.is_some());
        reading.map(|(rank, _)| *rank).collect()
    }
}
