//! PMI fences over several nodes. They use the same state machine as the collectives of PMIx servers, [`Gathers`],
//! whose table describes each message.

#[cfg(test)]
mod tests;

use base::{JobId, NodeId};
use bytes::Bytes;
use pmix::{
    server::{GatherId, GatherNumber, GatherTicket, Gathers, Notice},
    value::Status,
};

use super::{Controller, ControllerOutput};
use crate::{
    planted::{self, Bug},
    proto::{Broken, FenceId, FenceNews, ToDaemon},
};

/// First byte of a fence's [`GatherId`]. No PMIx server creates such an id, and it does not decode as one. Therefore a
/// fence fails if a participant is lost after it has called.
const PMI: u8 = u8::MAX;

/// Fences in progress. A rank is in at most [`pmix::pmi::MAX_WAITING`] of them.
pub(super) type Fences = Gathers;

fn name(id: &FenceId) -> GatherId {
    let group = id.group.as_deref();
    let mut name = vec![PMI, u8::from(group.is_some())];
    name.extend(id.job.0.to_be_bytes());
    name.extend(group.unwrap_or_default().bytes());
    GatherId(Bytes::from(name))
}

fn id(GatherId(name): &GatherId) -> Option<FenceId> {
    let (head, group) = name.split_first_chunk::<6>()?;
    let [_, has_group, a, b, c, d] = *head;
    let group = std::str::from_utf8(group).ok()?.to_owned();
    Some(FenceId {
        job: JobId(u32::from_be_bytes([a, b, c, d])),
        group: (has_group == 1).then_some(group),
    })
}

fn ticket(job: JobId, number: u32) -> GatherTicket {
    GatherTicket(u64::from(job.0) << 32 | u64::from(number))
}

impl Controller {
    pub(super) fn on_fence(&mut self, node: NodeId, id: &FenceId, news: FenceNews) {
        let fences = &mut self.fences;
        let (of, name) = (node.0, name(id));
        let lost = Status::LOST_CONNECTION;
        let notices = match news {
            FenceNews::Share {
                number,
                nodes,
                share,
            } => {
                let job = self.jobs.get(&id.job);
                let all = || {
                    job.iter()
                        .flat_map(|job| job.shares.keys().copied())
                        .collect()
                };
                let nodes: Vec<NodeId> = nodes.unwrap_or_else(all);
                let nodes: Vec<u32> = nodes.iter().map(|node| node.0).collect();
                fences.share(of, ticket(id.job, number), &name, &nodes, share)
            }
            FenceNews::Withdrawn { number } => {
                fences.withdrawn(of, ticket(id.job, number), &name, lost)
            }
            FenceNews::Declined { gather } => {
                fences.declined(of, &name, GatherNumber(gather), Err(lost))
            }
        };
        self.tell_fenced(notices);
    }

    /// Handles a node whose fences have failed or whose ranks are gone.
    pub(super) fn on_fences_abandoned(&mut self, node: NodeId) {
        let notices = self.fences.members_gone(node.0);
        self.tell_fenced(notices);
    }

    /// Handles the loss of a node: no fence that needs it can complete.
    pub(super) fn fences_without(&mut self, node: NodeId) {
        let notices = self.fences.node_lost(node.0);
        self.tell_fenced(notices);
    }

    fn tell_fenced(&mut self, notices: Vec<Notice>) {
        let mut first = None;
        for notice in notices {
            let (node, message) = match notice {
                Notice::Gathered {
                    node,
                    ticket: GatherTicket(ticket),
                    result,
                } => {
                    if planted::is(Bug::FenceDoneToOneNode) && *first.get_or_insert(node) != node {
                        continue;
                    }
                    let (job, number) = (ticket >> 32, ticket & u64::from(u32::MAX));
                    let fenced = ToDaemon::Fenced {
                        job: JobId(u32::try_from(job).unwrap_or(0)),
                        number: u32::try_from(number).unwrap_or(0),
                        shares: result.map_err(|_| Broken),
                    };
                    (NodeId(node), fenced)
                }
                Notice::Awaited {
                    node,
                    id: name,
                    number: GatherNumber(gather),
                } => {
                    let Some(id) = id(&name) else { continue };
                    (NodeId(node), ToDaemon::FenceAwaited { id, gather })
                }
                // Daemons do not report what they wait for in advance.
                Notice::Watch(_) => continue,
            };
            if self.nodes.contains_key(&node) && !self.is_idle() {
                self.outputs
                    .push_back(ControllerOutput::Daemon(node, message));
            }
        }
    }
}
