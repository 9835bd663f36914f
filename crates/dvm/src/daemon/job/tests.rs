//! Tests of a job on one node: its limits, what is counted, and signals for procs that have no process yet.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use base::{ExitStatus, JobId, ProcId, Rank, Signal, Time, Usage};

use crate::{
    daemon::{
        Daemon, Input, Output, ProcEnd,
        tests::{daemon, launch},
    },
    proto::{Counted, LastCall, Launch, NotEnforced, Note, ToController, ToDaemon, Unenforced},
    spec::{LimitedResource, ResourceLimits},
};

const JOB: JobId = JobId(1);
const LIMITS: ResourceLimits = ResourceLimits {
    memory: Some(2 << 30),
    milli_cpus: Some(1_500),
};

fn counted(seconds: u64) -> Counted {
    Counted {
        user: Duration::from_secs(seconds),
        peak: Some(1 << 20),
        ..Counted::default()
    }
}

/// Runs a job of one rank to its end. Returns the limits that the host of the daemon got, and the messages about launch and end.
fn run(
    daemon: &mut Daemon,
    unenforced: &[Unenforced],
    counted: Option<Counted>,
) -> (Option<ResourceLimits>, Vec<ToController>) {
    let launch = Launch {
        limits: LIMITS,
        ..launch(1, 1)
    };
    let now = Time::ZERO;
    let (mut limits, mut said) = (None, Vec::new());
    let launched = ToDaemon::Launch(Arc::new(launch));
    daemon.handle(now, Input::Message(launched));
    while let Some(output) = daemon.poll() {
        let answer = match output {
            Output::Prepare {
                job,
                limits: wanted,
                ..
            } => {
                limits = Some(wanted);
                Input::Unenforced {
                    job,
                    unenforced: unenforced.to_vec(),
                }
            }
            Output::Spawn(order) => {
                let proc = order.proc;
                let executable = "/a".into();
                let pid = 100;
                let spawned = Input::Spawned {
                    proc,
                    pid,
                    executable,
                };
                daemon.handle(now, spawned);
                let end = ProcEnd {
                    status: ExitStatus::SUCCESS,
                    used: Usage {
                        user: Duration::from_secs(1),
                        read: 5,
                        ..Usage::default()
                    },
                };
                let rank = Rank(0);
                let proc = ProcId { job: JOB, rank };
                Input::Exited { proc, end }
            }
            Output::Sweep { job, .. } => Input::Swept {
                job,
                left: Vec::new(),
                not_permitted: BTreeSet::new(),
                counted,
            },
            Output::Send(
                message @ (ToController::Launched { .. } | ToController::Clean { .. }),
            ) => {
                said.push(message);
                continue;
            }
            _ => continue,
        };
        daemon.handle(now, answer);
    }
    (limits, said)
}

#[test]
fn what_the_node_does_not_enforce_is_reported_with_the_launch() {
    let lacking = [Unenforced {
        why: NotEnforced::NoController,
        limits: [LimitedResource::Cpu].into(),
    }];
    let (limits, said) = run(&mut daemon(), &lacking, None);
    assert_eq!(limits, Some(LIMITS));
    match &said[0] {
        ToController::Launched { unenforced, .. } => assert_eq!(unenforced[..], lacking),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_cgroup_has_counted_is_what_the_job_has_used() {
    let spent = |counted| match run(&mut daemon(), &[], counted).1.last() {
        Some(ToController::Clean { spent, .. }) => *spent,
        other => panic!("{other:?}"),
    };
    let by_procs = spent(None);
    assert_eq!((by_procs.cpu().as_secs(), by_procs.peak), (1, 0));
    let by_cgroup = spent(Some(counted(7)));
    assert_eq!((by_cgroup.cpu().as_secs(), by_cgroup.peak), (7, 1 << 20));
    // This cgroup does not count storage.
    assert_eq!(by_cgroup.read, 5);
}

#[test]
fn limits_that_are_not_enforced_are_left_out() {
    let cases = [
        (&[][..], LIMITS),
        (
            &[LimitedResource::Memory],
            ResourceLimits {
                memory: None,
                ..LIMITS
            },
        ),
        (
            &[LimitedResource::Cpu],
            ResourceLimits {
                milli_cpus: None,
                ..LIMITS
            },
        ),
        (
            &[LimitedResource::Cpu, LimitedResource::Memory],
            ResourceLimits::default(),
        ),
    ];
    for (left_out, expected) in cases {
        let left_out: BTreeSet<LimitedResource> = left_out.iter().copied().collect();
        let limits = LIMITS.without(&left_out);
        assert_eq!(limits, expected);
        assert_eq!(&LIMITS.wanted() - &left_out, limits.wanted());
    }
}

/// A pause reaches a job whose procs are still being started.
#[test]
fn procs_that_are_started_after_a_stop_are_stopped() {
    for (signals, expected) in [(&[Signal::STOP][..], 2), (&[Signal::STOP, Signal::CONT], 0)] {
        let mut daemon = daemon();
        let now = Time::ZERO;
        let launched = ToDaemon::Launch(Arc::new(launch(1, 2)));
        daemon.handle(now, Input::Message(launched));
        for signal in signals.iter().copied() {
            let message = ToDaemon::Signal { job: JOB, signal };
            daemon.handle(now, Input::Message(message));
        }
        let mut stopped = 0;
        while let Some(output) = daemon.poll() {
            match output {
                Output::Prepare { job, .. } => {
                    let unenforced = Vec::new();
                    daemon.handle(now, Input::Unenforced { job, unenforced });
                }
                Output::Spawn(order) => {
                    let spawned = Input::Spawned {
                        proc: order.proc,
                        pid: 100,
                        executable: "/a".into(),
                    };
                    daemon.handle(now, spawned);
                }
                Output::Signal { signal, .. } => {
                    assert_eq!(signal, Signal::STOP);
                    stopped += 1;
                }
                _ => {}
            }
        }
        assert_eq!(stopped, expected, "{signals:?}");
    }
}

/// The ranks that are ended with the job were in their calls because another one had failed.
#[test]
fn the_last_call_of_a_rank_that_we_end_is_not_told() {
    for (ended, expected) in [(false, 1), (true, 0)] {
        let mut daemon = daemon();
        let now = Time::ZERO;
        let launched = ToDaemon::Launch(Arc::new(launch(1, 1)));
        daemon.handle(now, Input::Message(launched));
        if ended {
            let grace = Duration::from_secs(5);
            let end = ToDaemon::End { job: JOB, grace };
            daemon.handle(now, Input::Message(end));
        }
        let proc = ProcId {
            job: JOB,
            rank: Rank(0),
        };
        let last = LastCall {
            call: "MPI_Barrier on WORLD".to_owned(),
            number: 1,
            in_progress: true,
        };
        daemon.handle(now, Input::LastCall { proc, last });
        let told = std::iter::from_fn(|| daemon.poll()).filter(|output| {
            matches!(
                output,
                Output::Send(ToController::Note {
                    note: Note::LastCall { .. },
                    ..
                })
            )
        });
        assert_eq!(told.count(), expected);
    }
}
