//! Messages of several daemons that were merged on their way ([`ToController::merge`]).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use base::{JobId, NodeId, Rank, Time, Usage};

use super::Controller;
use crate::{
    planted::{self, Bug},
    proto::{EndClass, Started, ToController},
};

impl Controller {
    /// Handles a message of these daemons as if each had sent its part of it.
    pub(super) fn on_daemons(
        &mut self,
        now: Time,
        nodes: &BTreeSet<NodeId>,
        message: ToController,
    ) {
        let Some(first) = nodes.first().copied() else {
            return;
        };
        let told = if planted::is(Bug::MergedTakenForFirst) {
            1
        } else {
            nodes.len()
        };
        match message {
            ToController::Launched {
                job,
                started,
                failures,
                unenforced,
            } if failures.is_empty() && unenforced.is_empty() => {
                self.on_launched_on(now, nodes, job, started)
            }
            ToController::Ended { job, classes } => {
                self.copy_output_ends_of_nodes(job, nodes, &classes);
                self.with(job, |job| job.on_ended(now, classes));
            }
            // Whose ranks these are does not matter.
            ToController::Held { .. } | ToController::ExitedEarly { .. } => {
                self.on_daemon(now, first, message);
            }
            // It does not matter which of them has used it.
            ToController::Clean { job, spent } => {
                for (number, node) in nodes.iter().take(told).enumerate() {
                    let spent = if number == 0 { spent } else { Usage::default() };
                    self.on_daemon(now, *node, ToController::Clean { job, spent });
                }
            }
            ToController::StdinClosed { .. } | ToController::FencesAbandoned { .. } => {
                for node in nodes.iter().take(told) {
                    self.on_daemon(now, *node, message.clone());
                }
            }
            _ => self.log(format!(
                "a message of {} nodes is none that can be merged: ignored",
                nodes.len()
            )),
        }
    }

    /// Gives each node its ranks of a merged report about the launch.
    fn on_launched_on(
        &mut self,
        now: Time,
        nodes: &BTreeSet<NodeId>,
        id: JobId,
        started: Vec<Started>,
    ) {
        let mut pids: BTreeMap<Rank, (usize, i32)> = BTreeMap::new();
        for (group, of) in started.iter().enumerate() {
            pids.extend(of.pids.iter().map(|(rank, pid)| (*rank, (group, *pid))));
        }
        for node in nodes {
            let share = self.jobs.get(&id).and_then(|job| job.shares.get(node));
            let mut own: BTreeMap<usize, Vec<(Rank, i32)>> = BTreeMap::new();
            for rank in share.iter().flat_map(|share| share.ranks.iter()) {
                if let Some((group, pid)) = pids.get(&rank) {
                    own.entry(*group).or_default().push((rank, *pid));
                }
            }
            let own = own.into_iter().filter_map(|(group, pids)| {
                let executable = started.get(group)?.executable.clone();
                Some(Started { executable, pids })
            });
            let launched = ToController::Launched {
                job: id,
                started: own.collect(),
                failures: Vec::new(),
                unenforced: Vec::new(),
            };
            self.on_daemon(now, *node, launched);
        }
    }

    /// Sends the ends of the output of ranks to the nodes that want it, other than their own.
    fn copy_output_ends_of_nodes(
        &mut self,
        id: JobId,
        nodes: &BTreeSet<NodeId>,
        classes: &[EndClass],
    ) {
        if !self.subscribers.has(id) {
            return;
        }
        for node in nodes {
            let share = self.jobs.get(&id).and_then(|job| job.shares.get(node));
            let Some(share) = share else {
                continue;
            };
            let own = classes.iter().map(|class| EndClass {
                ranks: class.ranks.intersection(&share.ranks),
                ..class.clone()
            });
            let own: Vec<EndClass> = own.collect();
            self.copy_output_ends(id, *node, &own);
        }
    }
}
