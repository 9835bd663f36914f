//! A tool beside the ranks of another job: what its processes are told about these.
//!
//! | variable | value |
//! |---|---|
//! | `RALLY_TOOL_JOB` | the name of the job that has the ranks: its nspace |
//! | `RALLY_TOOL_RANKS` | rank and pid of each rank on this node that has not ended, or of the process's only rank: `0:1234,2:1236` |
//! | `RALLY_TOOL_INDEX`, `RALLY_TOOL_COUNT` | number of the process among those of the tool, from 0; how many there are |
//!
//! The kernel bounds each variable ([`LIST_MAX`]). A longer list of ranks is not set, and the tool asks by other means.

use std::{collections::BTreeMap, ffi::OsString};

use base::{Rank, RankSet};

use super::LocalJob;
use crate::proto::{Beside, OnePer};

/// Maximum length of the list of ranks, in bytes. Linux takes 128 KiB for a variable with its name and value.
pub(in crate::daemon) const LIST_MAX: usize = 120 * 1024;

/// The ranks of a job on this node, beside which a tool is started.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Target {
    ranks: RankSet,
    /// The pids of those that have not ended.
    pids: BTreeMap<Rank, i32>,
}

impl LocalJob {
    /// Returns the procs of this job as the target of a tool.
    pub(in crate::daemon) fn as_target(&self) -> Target {
        let living = self.procs.iter().filter(|(_, proc)| proc.life.is_alive());
        Target {
            ranks: self.procs.keys().copied().collect(),
            pids: living
                .filter_map(|(rank, proc)| Some((*rank, proc.pid?)))
                .collect(),
        }
    }

    /// Returns the variables of a process of a tool: none of those that make it a rank.
    pub(super) fn variables_of_tool(&self, own: Rank, beside: &Beside) -> Vec<(String, OsString)> {
        let list = match beside.one_per {
            OnePer::Node => listed(self.target.pids.iter()),
            OnePer::Rank => {
                // The processes are in the order of their ranks.
                let ranks = beside.ranks.intersection(&self.target.ranks);
                let position = self.procs.keys().position(|proc| *proc == own);
                let rank = position.and_then(|position| ranks.iter().nth(position));
                let rank = rank.and_then(|rank| self.target.pids.get_key_value(&rank));
                listed(rank.into_iter())
            }
        };
        let mut env: Vec<(String, OsString)> = Vec::new();
        let mut set = |name: &str, value: String| env.push((name.to_owned(), value.into()));
        set("RALLY_TOOL_JOB", beside.nspace.clone());
        set("RALLY_TOOL_INDEX", own.to_string());
        set("RALLY_TOOL_COUNT", self.launch.size().to_string());
        if list.len() <= LIST_MAX {
            set("RALLY_TOOL_RANKS", list);
        }
        env
    }
}

fn listed<'a>(ranks: impl Iterator<Item = (&'a Rank, &'a i32)>) -> String {
    let words: Vec<String> = ranks.map(|(rank, pid)| format!("{rank}:{pid}")).collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, sync::Arc};

    use base::{ExitStatus, JobId, ProcId, Rank, Time, Usage};

    use crate::{
        daemon::{
            Daemon, Input, Output, PmiConnection, ProcEnd,
            tests::{daemon, launch},
        },
        proto::{Beside, Launch, OnePer, ToDaemon},
    };

    /// Launches a job and starts its procs, with pids that begin with this one. Returns the orders.
    fn start(daemon: &mut Daemon, launch: Launch, mut pid: i32) -> Vec<crate::SpawnOrder> {
        let message = ToDaemon::Launch(Arc::new(launch));
        daemon.handle(Time::ZERO, Input::Message(message));
        let mut orders = Vec::new();
        while let Some(output) = daemon.poll() {
            if let Output::Spawn(order) = output {
                let executable = OsString::from("/a");
                daemon.handle(
                    Time::ZERO,
                    Input::Spawned {
                        proc: order.proc,
                        pid,
                        executable,
                    },
                );
                pid += 1;
                orders.push(*order);
            }
        }
        orders
    }

    fn told(orders: &[crate::SpawnOrder]) -> String {
        let one = |order: &crate::SpawnOrder| {
            assert_eq!(order.pmi, PmiConnection::None);
            let line = |(name, value): &(String, OsString)| format!("{name}={}", value.display());
            let mut lines: Vec<String> = order.env.iter().map(line).collect();
            lines.sort();
            lines.join("\n")
        };
        orders.iter().map(one).collect::<Vec<_>>().join("\n--\n")
    }

    fn tool(number: u32, procs: u32, one_per: OnePer) -> Launch {
        Launch {
            beside: Some(Beside {
                target: JobId(1),
                nspace: "rally-node-77@1".to_owned(),
                one_per,
                // Rank 1 had ended when the tool was requested.
                ranks: [Rank(0), Rank(2), Rank(3)].into_iter().collect(),
            }),
            ..launch(number, procs)
        }
    }

    #[test]
    fn a_tool_knows_the_ranks_and_is_none() {
        let mut daemon = daemon();
        start(&mut daemon, launch(1, 4), 100);
        for rank in [1, 2] {
            let proc = ProcId {
                job: JobId(1),
                rank: Rank(rank),
            };
            let end = ProcEnd {
                status: ExitStatus::SUCCESS,
                used: Usage::default(),
            };
            daemon.handle(Time::ZERO, Input::Exited { proc, end });
        }
        let on_node = start(&mut daemon, tool(2, 1, OnePer::Node), 200);
        insta::assert_snapshot!(told(&on_node), @"
        RALLY_TOOL_COUNT=1
        RALLY_TOOL_INDEX=0
        RALLY_TOOL_JOB=rally-node-77@1
        RALLY_TOOL_RANKS=0:100,3:103
        ");
        let of_ranks = start(&mut daemon, tool(3, 3, OnePer::Rank), 300);
        insta::assert_snapshot!(told(&of_ranks), @"
        RALLY_TOOL_COUNT=3
        RALLY_TOOL_INDEX=0
        RALLY_TOOL_JOB=rally-node-77@1
        RALLY_TOOL_RANKS=0:100
        --
        RALLY_TOOL_COUNT=3
        RALLY_TOOL_INDEX=1
        RALLY_TOOL_JOB=rally-node-77@1
        RALLY_TOOL_RANKS=
        --
        RALLY_TOOL_COUNT=3
        RALLY_TOOL_INDEX=2
        RALLY_TOOL_JOB=rally-node-77@1
        RALLY_TOOL_RANKS=3:103
        ");
    }

    #[test]
    fn a_tool_whose_target_is_over_is_started_all_the_same() {
        let mut daemon = daemon();
        let orders = start(&mut daemon, tool(2, 1, OnePer::Node), 200);
        assert!(told(&orders).ends_with("RALLY_TOOL_RANKS="));
    }
}
