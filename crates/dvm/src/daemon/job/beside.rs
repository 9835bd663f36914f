//! A tool beside the ranks of another job: what its processes are told about these.
//!
//! | variable | value |
//! |---|---|
//! | `RALLY_TOOL_JOB` | the name of the job that has the ranks: its nspace |
//! | `RALLY_TOOL_RANKS` | rank and pid of each rank on this node that has not ended, or of the process's only rank: `0:1234,2:1236` |
//! | `RALLY_TOOL_RANKS_FILE` | a file with the same list as its only line, if the process is the only one on its node |
//! | `RALLY_TOOL_INDEX`, `RALLY_TOOL_COUNT` | number of the process among those of the tool, from 0; how many there are |
//!
//! The kernel bounds each variable ([`LIST_MAX`]). A longer list of ranks is only in the file, which is removed when the tool has ended.

use std::{collections::BTreeMap, ffi::OsString};

use base::{Rank, RankSet};

use super::{LocalJob, Out};
use crate::{
    daemon::{DaemonConfig, Output, service::job_dir},
    proto::{Beside, OnePer},
};

/// Maximum length of the list of ranks, in bytes. Linux takes 128 KiB for a variable with its name and value.
pub(in crate::daemon) const LIST_MAX: usize = 120 * 1024;
/// Name of the file with the list in the directory of the tool's job.
const FILE: &str = "/ranks";

/// The ranks of a job on this node, beside which a tool is started.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Target {
    ranks: RankSet,
    /// The pids of those that have not ended.
    pids: BTreeMap<Rank, i32>,
    /// The directory with the list of them, if the tool has one.
    directory: Option<OsString>,
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
            directory: None,
        }
    }

    /// Orders the file with the list of ranks, if there is a directory for it. With a process for each rank, none needs it: each list has
    /// one rank.
    pub(super) fn list_ranks(&mut self, config: &DaemonConfig, out: &mut Out) {
        let beside = self.launch.beside.as_ref();
        let one_per = beside.map(|beside| beside.one_per);
        let service = config.service.as_ref();
        let session = service.and_then(|service| service.session_dir.as_ref());
        if let (Some(OnePer::Node), Some(session)) = (one_per, session) {
            let directory = job_dir(session, self.launch.job);
            let bytes = format!("{}\n", listed(self.target.pids.iter())).into();
            let path = file_in(&directory);
            self.target.directory = Some(directory);
            out.push_back(Output::MakeFile { path, bytes });
        }
    }

    /// Removes the file with the list of ranks.
    pub(in crate::daemon) fn remove_list(&mut self, out: &mut Out) {
        let paths: Vec<OsString> = self.target.directory.take().into_iter().collect();
        if !paths.is_empty() {
            out.push_back(Output::RemoveFiles { paths });
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
        if let Some(directory) = &self.target.directory {
            env.push(("RALLY_TOOL_RANKS_FILE".to_owned(), file_in(directory)));
        }
        env
    }
}

fn file_in(directory: &OsString) -> OsString {
    let mut path = directory.clone();
    path.push(FILE);
    path
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
        proto::{Beside, Launch, OnePer, ToController, ToDaemon},
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

    /// Returns a daemon whose host has a directory for files.
    fn daemon_with_files() -> Daemon {
        let mut daemon = daemon();
        daemon.config.descriptors = u64::MAX;
        daemon.config.service.as_mut().unwrap().session_dir = Some("/session".into());
        daemon
    }

    /// The kernel starts no program with a longer variable.
    #[test]
    fn a_list_that_is_too_long_for_a_variable_is_in_the_file() {
        for (ranks, fits) in [(4, true), (12_000, false)] {
            let mut daemon = daemon_with_files();
            start(&mut daemon, launch(1, ranks), 100_000);
            let message = ToDaemon::Launch(Arc::new(tool(2, 1, OnePer::Node)));
            daemon.handle(Time::ZERO, Input::Message(message));
            let outputs: Vec<Output> = std::iter::from_fn(|| daemon.poll()).collect();
            let made = outputs
                .iter()
                .position(|one| matches!(one, Output::MakeFile { .. }));
            let started = outputs
                .iter()
                .position(|one| matches!(one, Output::Spawn(_)));
            assert!(made.unwrap() < started.unwrap());
            let (Output::MakeFile { path, bytes }, Output::Spawn(order)) =
                (&outputs[made.unwrap()], &outputs[started.unwrap()])
            else {
                unreachable!();
            };
            assert_eq!(path, "/session/2/ranks");
            let content = std::str::from_utf8(bytes).unwrap();
            let line = content.strip_suffix('\n').unwrap();
            let words: Vec<&str> = line.split(',').collect();
            assert_eq!(words.len(), ranks as usize);
            assert_eq!((words[0], words[3]), ("0:100000", "3:100003"));
            let value = |name: &str| {
                let mut all = order.env.iter();
                let found = all.find(|(one, _)| one == name);
                found.map(|(_, value)| value.to_str().unwrap())
            };
            assert_eq!(value("RALLY_TOOL_RANKS_FILE"), path.to_str());
            assert_eq!(value("RALLY_TOOL_RANKS"), fits.then_some(line), "{ranks}");
        }
    }

    #[test]
    fn the_file_is_removed_with_the_tool() {
        for one_per in [OnePer::Node, OnePer::Rank] {
            let mut daemon = daemon_with_files();
            start(&mut daemon, launch(1, 1), 100);
            let orders = start(&mut daemon, tool(2, 1, one_per), 200);
            let has_file = orders[0]
                .env
                .iter()
                .any(|(name, _)| name == "RALLY_TOOL_RANKS_FILE");
            assert_eq!(has_file, one_per == OnePer::Node);
            let proc = orders[0].proc;
            let end = ProcEnd {
                status: ExitStatus::SUCCESS,
                used: Usage::default(),
            };
            daemon.handle(Time::ZERO, Input::Exited { proc, end });
            let job = proc.job;
            let mut removed = Vec::new();
            while let Some(output) = daemon.poll() {
                match output {
                    Output::RemoveFiles { paths } => removed.extend(paths),
                    Output::Sweep { .. } => daemon.handle(
                        Time::ZERO,
                        Input::Swept {
                            job,
                            left: Vec::new(),
                            not_permitted: Default::default(),
                            counted: None,
                        },
                    ),
                    // The controller does not hear of the end before that.
                    Output::Send(ToController::Clean { .. }) => {
                        let expected = has_file.then_some("/session/2");
                        assert_eq!(removed, Vec::from_iter(expected.map(OsString::from)));
                    }
                    _ => {}
                }
            }
            assert!(!daemon.jobs.contains_key(&job));
        }
    }

    /// Its host makes a cgroup in that of the target.
    #[test]
    fn the_host_knows_beside_whose_ranks_the_procs_are() {
        let debugger = Launch {
            debugged: Some(JobId(1)),
            ..launch(3, 1)
        };
        for (launch, expected) in [
            (launch(1, 1), None),
            (tool(2, 1, OnePer::Node), Some(JobId(1))),
            (debugger, Some(JobId(1))),
        ] {
            let mut daemon = daemon();
            let message = ToDaemon::Launch(Arc::new(launch));
            daemon.handle(Time::ZERO, Input::Message(message));
            let prepared = std::iter::from_fn(|| daemon.poll()).find_map(|output| match output {
                Output::Prepare { beside, .. } => Some(beside),
                _ => None,
            });
            assert_eq!(prepared, Some(expected));
        }
    }

    #[test]
    fn a_tool_whose_target_is_over_is_started_all_the_same() {
        let mut daemon = daemon();
        let orders = start(&mut daemon, tool(2, 1, OnePer::Node), 200);
        assert!(told(&orders).ends_with("RALLY_TOOL_RANKS="));
    }
}
