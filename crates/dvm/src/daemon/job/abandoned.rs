//! Procs that we cannot end: their pids are reported, and they are abandoned.
//!
//! | after SIGKILL, the proc | it is abandoned after |
//! |---|---|
//! | belongs to another user, whose processes we may not signal | [`KILL_MAX`], because it may exit by itself |
//! | is blocked in the kernel, or the kernel is still tearing it down | [`PROC_KILL_MAX`] |

use std::time::Duration;

use std::collections::BTreeMap;

use base::{Rank, RankSet, Time};
use pmix::pmi;

use super::{LocalJob, Out, Phase, Proc};
use crate::{
    daemon::{Output, proc_id, sweep::KILL_MAX},
    planted::{self, Bug},
    proto::{Note, Stream, ToController},
};

/// How long the kernel may take to carry out SIGKILL: freeing the memory of a large proc takes seconds.
pub(super) const PROC_KILL_MAX: Duration = Duration::from_secs(10);

/// The reason why we cannot end a proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    NotPermitted,
    Stuck,
}

impl LocalJob {
    /// Records a proc of another user that could not be killed. It may still exit for another reason: sudo, for
    /// example, forwards SIGTERM.
    pub(in crate::daemon) fn on_not_permitted(&mut self, now: Time, rank: Rank, pid: i32) {
        let is_alive = |proc: &Proc| proc.life.is_alive();
        if matches!(self.phase, Phase::Killing { .. })
            && self.procs.get(&rank).is_some_and(is_alive)
        {
            let until = now + KILL_MAX;
            let (_, ranks) = self
                .not_permitted
                .get_or_insert_with(|| (until, BTreeMap::new()));
            ranks.insert(rank, pid);
        }
    }

    /// Returns the procs that are still alive, with their pids.
    pub(super) fn alive(&self) -> BTreeMap<Rank, i32> {
        let alive = self.procs.iter().filter(|(_, proc)| proc.life.is_alive());
        alive
            .filter_map(|(rank, proc)| Some((*rank, proc.pid?)))
            .collect()
    }

    /// Reports and abandons procs that we cannot end.
    pub(super) fn abandon(
        &mut self,
        now: Time,
        ranks: &BTreeMap<Rank, i32>,
        why: Why,
        out: &mut Out,
    ) {
        let job = self.launch.job;
        let mut pids = Vec::new();
        let mut left = RankSet::new();
        for (&rank, &pid) in ranks {
            let proc = self.procs.get_mut(&rank);
            if !proc.is_some_and(|proc| proc.life.on_given_up()) {
                continue;
            }
            pids.push(pid);
            left.insert(rank);
            self.close_outputs(now, rank, out);
            self.stop_feeding(rank, out);
            self.tell_pmi(now, pmi::Input::Closed { client: rank }, out);
            self.settle(rank);
        }
        if pids.is_empty() {
            return;
        }
        let node = self.node;
        let note = match why {
            Why::NotPermitted => Note::NotPermitted { node, pids },
            Why::Stuck => Note::Stuck { node, pids },
        };
        out.push_back(Output::Send(ToController::Note { job, note }));
        out.push_back(Output::Send(ToController::Unkillable { job, ranks: left }));
        self.finish_if_done(now, out);
    }

    /// Closes both output streams of a proc, after forwarding what was already read.
    pub(super) fn close_outputs(&mut self, now: Time, rank: Rank, out: &mut Out) {
        for stream in Stream::BOTH {
            let Some(proc) = self.procs.get_mut(&rank) else {
                return;
            };
            if !proc.life.is_open(stream) {
                continue;
            }
            let mut pieces = Vec::new();
            proc.assembler(stream).finish(&mut pieces);
            proc.life.on_stream_ended(stream);
            out.push_back(Output::CloseOutput {
                proc: proc_id(self.launch.job, rank),
                stream,
            });
            self.pass_on(rank, stream, pieces, out);
            if planted::is(Bug::EndedTwice) {
                self.report_if_done(now, rank, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use base::{ExitStatus, JobId, Signal};

    use super::*;
    use crate::daemon::tests::{daemon, launch};
    use crate::{
        daemon::{Daemon, Input},
        proto::ToDaemon,
    };

    const JOB: JobId = JobId(1);

    /// Returns the outputs that concern the end of the job. Every proc gets a pid, and every sweep finds no processes.
    fn said(daemon: &mut Daemon, now: Time) -> Vec<String> {
        let mut said = Vec::new();
        let seconds = now.since(Time::ZERO).as_secs();
        while let Some(output) = daemon.poll() {
            match output {
                Output::Spawn(order) => {
                    let pid = 100 + i32::try_from(order.proc.rank.0).unwrap();
                    daemon.handle(
                        now,
                        Input::Spawned {
                            proc: order.proc,
                            pid,
                            executable: "/a".into(),
                        },
                    );
                }
                Output::Sweep { job, .. } => daemon.handle(
                    now,
                    Input::Swept {
                        counted: None,
                        job,
                        left: Vec::new(),
                        not_permitted: std::collections::BTreeSet::new(),
                    },
                ),
                Output::Signal { proc, signal } => {
                    said.push(format!("{seconds} s: {signal} to rank {}", proc.rank));
                }
                Output::Send(ToController::Note { note, .. }) => {
                    said.push(format!("{seconds} s: {note:?}"));
                }
                Output::Send(ToController::Unkillable { ranks, .. }) => {
                    said.push(format!("{seconds} s: left {ranks}"));
                }
                Output::Send(ToController::Clean { .. }) => {
                    said.push(format!("{seconds} s: clean"));
                }
                _ => {}
            }
        }
        said
    }

    /// Advances time from deadline to deadline, until the daemon has none within the next 24 hours.
    fn rest(daemon: &mut Daemon, mut now: Time) -> Vec<String> {
        let end = now + Duration::from_hours(24);
        let mut all = said(daemon, now);
        while let Some(due) = daemon.deadline().filter(|due| *due < end) {
            assert!(due > now, "the clock stands still at {now}");
            now = due;
            daemon.handle(now, Input::Tick);
            all.extend(said(daemon, now));
        }
        all
    }

    fn killed(ranks: u32) -> Daemon {
        let mut daemon = daemon();
        let now = Time::ZERO;
        let launch = std::sync::Arc::new(launch(1, ranks));
        daemon.handle(now, Input::Message(ToDaemon::Launch(launch)));
        said(&mut daemon, now);
        daemon.handle(now, Input::Message(ToDaemon::Kill { job: JOB }));
        daemon
    }

    #[test]
    fn a_rank_that_does_not_die_of_sigkill_is_named_and_left() {
        let mut daemon = killed(3);
        let status = ExitStatus::Signaled {
            signal: Signal::KILL,
            core_dumped: false,
        };
        let proc = proc_id(JOB, Rank(1));
        daemon.handle(
            Time::ZERO,
            Input::Exited {
                proc,
                end: status.into(),
            },
        );
        insta::assert_snapshot!(rest(&mut daemon, Time::ZERO).join("\n"), @"
        0 s: SIGKILL to rank 0
        0 s: SIGKILL to rank 1
        0 s: SIGKILL to rank 2
        10 s: Stuck { node: NodeId(0), pids: [100, 102] }
        10 s: left 0,2
        10 s: clean
        ");
    }

    #[test]
    fn a_rank_of_another_user_is_left_sooner_than_one_that_is_stuck() {
        let mut daemon = killed(2);
        let proc = proc_id(JOB, Rank(0));
        daemon.handle(Time::ZERO, Input::NotPermitted { proc, pid: 100 });
        insta::assert_snapshot!(rest(&mut daemon, Time::ZERO).join("\n"), @"
        0 s: SIGKILL to rank 0
        0 s: SIGKILL to rank 1
        2 s: NotPermitted { node: NodeId(0), pids: [100] }
        2 s: left 0
        10 s: Stuck { node: NodeId(0), pids: [101] }
        10 s: left 1
        10 s: clean
        ");
        // A later exit of an abandoned proc changes nothing.
        let status = ExitStatus::Exited(0);
        let now = Time::ZERO + Duration::from_mins(1);
        daemon.handle(
            now,
            Input::Exited {
                proc,
                end: status.into(),
            },
        );
        assert_eq!(said(&mut daemon, now), [""; 0]);
    }
}
