//! Fences over all nodes: of a whole job, and of some of its ranks.

use std::collections::BTreeMap;

use base::{JobId, NodeId};

use super::{Controller, ControllerOutput, Job};
use crate::{
    planted::{self, Bug},
    proto::{FenceGroup, ToDaemon},
};

/// Values by their keys.
pub(super) type Puts = Vec<(String, String)>;

/// Fences of groups that have begun, by name, with what the nodes have brought that are in them.
pub(super) type GroupFences = BTreeMap<String, BTreeMap<NodeId, Puts>>;

impl Controller {
    /// A node has all of its ranks, or all members of a group that it has, in a fence.
    pub(super) fn on_fence(
        &mut self,
        id: JobId,
        node: NodeId,
        group: Option<FenceGroup>,
        puts: Puts,
    ) {
        match group {
            None => self.on_fence_of_all(id, node, puts),
            Some(group) => self.on_group(id, node, &group, puts),
        }
    }

    /// The fence is over when every node is in it.
    fn on_fence_of_all(&mut self, id: JobId, node: NodeId, puts: Puts) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(share) = job.shares.get_mut(&node) else {
            return;
        };
        if share.fence.is_some() {
            self.log(format!("node {node} is in the fence twice: ignored"));
            return;
        }
        share.fence = Some(puts);
        if job.shares.values().any(|share| share.fence.is_none()) {
            return;
        }
        let all: Puts = job
            .shares
            .values_mut()
            .filter_map(|share| share.fence.take())
            .flatten()
            .collect();
        let message = |job: JobId| ToDaemon::FenceDone {
            job,
            group: None,
            puts: all.clone(),
        };
        if planted::is(Bug::FenceDoneToOneNode) {
            let (job, node) = (job.id, job.shares.keys().next().copied());
            self.outputs
                .extend(node.map(|node| ControllerOutput::Daemon(node, message(job))));
            return;
        }
        self.each_node(id, message);
    }

    /// The fence is over when every node is in it that has a member.
    fn on_group(&mut self, id: JobId, node: NodeId, group: &FenceGroup, puts: Puts) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let brought = job.groups.entry(group.name.clone()).or_default();
        if brought.insert(node, puts).is_some() {
            self.log(format!(
                "node {node} is in the fence of `{}` twice: what it said first is forgotten",
                group.name
            ));
            return;
        }
        let nodes = nodes_of(job, group);
        let brought = job.groups.get(&group.name);
        if !brought.is_some_and(|brought| nodes.iter().all(|node| brought.contains_key(node))) {
            return;
        }
        let all = job.groups.remove(&group.name).unwrap_or_default();
        let puts: Puts = all.into_values().flatten().collect();
        let messages = nodes.into_iter().map(|node| {
            let (group, puts) = (Some(group.name.clone()), puts.clone());
            ControllerOutput::Daemon(
                node,
                ToDaemon::FenceDone {
                    job: id,
                    group,
                    puts,
                },
            )
        });
        self.outputs.extend(messages);
    }
}

/// The nodes that have members.
fn nodes_of(job: &Job, group: &FenceGroup) -> Vec<NodeId> {
    let has = |ranks: &base::RankSet| match &group.members {
        None => true,
        Some(members) => !members.intersection(ranks).is_empty(),
    };
    let shares = job.shares.iter().filter(|(_, share)| has(&share.ranks));
    shares.map(|(node, _)| *node).collect()
}
