//! Copies of output for PMIx processes on other nodes: of jobs that they have spawned, or whose output they pull. A tool may also take
//! output from the front of the job.
//!
//! A node reports which streams of a job its processes want ([`FromServer::Wanted`]). A process may spawn a job with its
//! output forwarded. The controller then subscribes its node before the job starts, so that the beginning of the output
//! is not lost.
//!
//! [`FromServer::Wanted`]: crate::proto::FromServer::Wanted

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use base::{JobId, NodeId, ProcId, Rank, RankSet};
use bytes::Bytes;

use super::{Controller, Origin};
use crate::{
    planted::{self, Bug},
    proto::{Chunk, EndClass, Stream, ToServer},
};

/// The nodes whose processes want a stream of a job.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    by_job: BTreeMap<JobId, BTreeSet<(Stream, NodeId)>>,
    /// Ranks whose output goes to tools on a node in place of the front, for each [`Stream`].
    redirected: BTreeMap<(JobId, NodeId), [RankSet; 2]>,
}

impl Subscribers {
    /// Sets what a node wants of a job.
    pub(super) fn set(&mut self, job: JobId, node: NodeId, streams: &[Stream]) {
        let wanted = self.by_job.entry(job).or_default();
        wanted.retain(|(_, other)| *other != node);
        wanted.extend(streams.iter().map(|stream| (*stream, node)));
        if wanted.is_empty() {
            self.by_job.remove(&job);
        }
    }

    /// Sets whose output goes to tools on a node in place of the front.
    pub(super) fn redirect(&mut self, job: JobId, node: NodeId, ranks: [RankSet; 2]) {
        match ranks.iter().all(RankSet::is_empty) {
            true => drop(self.redirected.remove(&(job, node))),
            false => drop(self.redirected.insert((job, node), ranks)),
        }
    }

    /// Returns true if output of a rank goes to tools in place of the front.
    pub(super) fn is_redirected(&self, job: JobId, rank: Rank, stream: Stream) -> bool {
        let range = (job, NodeId(0))..=(job, NodeId(u32::MAX));
        let mut nodes = self.redirected.range(range);
        nodes.any(|(_, ranks)| ranks[stream as usize].contains(rank))
    }

    /// Returns the nodes that want a stream of a job, except for `but`, the node that produced the output.
    fn of(&self, job: JobId, stream: Stream, but: NodeId) -> Vec<NodeId> {
        let wanted = self.by_job.get(&job).into_iter().flatten();
        wanted
            .filter(|(of, node)| *of == stream && *node != but)
            .map(|(_, node)| *node)
            .collect()
    }

    /// Returns true if some node wants a stream of a job.
    pub(super) fn has(&self, job: JobId) -> bool {
        self.by_job.contains_key(&job)
    }

    pub(super) fn forget_job(&mut self, job: JobId) {
        self.by_job.remove(&job);
        self.redirected.retain(|(of, _), _| *of != job);
    }

    pub(super) fn forget_node(&mut self, node: NodeId) {
        self.redirected.retain(|(_, of), _| *of != node);
        self.by_job.retain(|_, wanted| {
            wanted.retain(|(_, other)| *other != node);
            !wanted.is_empty()
        });
    }
}

impl Controller {
    /// Subscribes the node of the process that has spawned a job, if its output is to be forwarded, or kept where tools connect.
    pub(super) fn subscribe_spawner(&mut self, id: JobId) {
        let (by, forward, keep) = match self.jobs.get(&id).map(|job| &job.origin) {
            Some(
                Origin::Spawned {
                    by, forward, keep, ..
                }
                | Origin::Controlled {
                    by, forward, keep, ..
                },
            ) => (*by, &forward[..], keep),
            Some(Origin::Front | Origin::Beside) | None => return,
        };
        let streams = match keep {
            Some(_) if self.tools.contains(by.job) => &Stream::BOTH,
            _ => forward,
        };
        if let Some(node) = self.node_of(by) {
            self.subscribers.set(id, node, streams);
        }
    }

    /// Sends output to the other nodes that want it.
    pub(super) fn copy_output(&mut self, node: NodeId, chunk: &Chunk) {
        let Chunk {
            job,
            rank,
            stream,
            ref bytes,
            ..
        } = *chunk;
        let proc = ProcId { job, rank };
        for other in self.subscribers.of(job, stream, node) {
            let bytes = bytes.clone();
            let output = ToServer::Output {
                proc,
                stream,
                bytes,
            };
            self.tell_server(other, output);
        }
    }

    /// Sends the end of the output of the ranks of a class each.
    pub(super) fn copy_output_ends(&mut self, job: JobId, node: NodeId, classes: &[EndClass]) {
        for class in classes {
            self.end_output_of(job, node, &class.ranks);
        }
    }

    /// Sends the end of the output of the ranks of a lost node.
    pub(super) fn copy_output_ends_of_node(&mut self, id: JobId, node: NodeId) {
        let job = self.jobs.get(&id);
        let share = job.and_then(|job| Some(job.shares.get(&node)?.ranks.difference(&job.settled)));
        if let Some(ranks) = share {
            self.end_output_of(id, node, &ranks);
        }
    }

    fn end_output_of(&mut self, job: JobId, node: NodeId, ranks: &RankSet) {
        if planted::is(Bug::EndNotCopied) {
            return;
        }
        for stream in Stream::BOTH {
            for other in self.subscribers.of(job, stream, node) {
                for rank in ranks.iter() {
                    let output = ToServer::Output {
                        proc: ProcId { job, rank },
                        stream,
                        bytes: Bytes::new(),
                    };
                    self.tell_server(other, output);
                }
            }
        }
    }
}
