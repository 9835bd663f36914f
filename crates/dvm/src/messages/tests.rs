//! All messages, as a user would read them.

mod controlling;
mod limits;
mod nodes;
mod placement;
mod start;
mod trouble;

use std::time::Duration;

use base::{ExitStatus, JobId, NodeId, Rank, RankSet, Signal};

use super::*;
use crate::proto::JobNews;

/// Job of `./a.out`.
struct Job {
    nodes: Vec<String>,
    table: Vec<TableRow>,
    apps: Vec<App>,
    end: EndPolicy,
}

fn app(program: &str) -> App {
    App {
        program: program.into(),
        args: Vec::new(),
        env: crate::spec::Environment::default(),
        directory: "/home/u".into(),
        search: "/usr/bin:/bin".into(),
        elsewhere: std::sync::Arc::default(),
        umask: 0o022,
        tracers: crate::spec::Tracers::Ancestors,
    }
}

impl Job {
    /// Returns eight ranks on one node.
    fn small() -> Self {
        Self {
            nodes: vec!["n1".to_owned()],
            table: Vec::new(),
            apps: vec![app("./a.out")],
            end: EndPolicy::default(),
        }
    }

    /// Returns eight ranks of two programs on four nodes.
    fn wide() -> Self {
        let row = |rank| TableRow {
            rank: Rank(rank),
            host: format!("n{:02}", rank / 2 + 8),
            executable: if rank < 4 { "/opt/ocean" } else { "/opt/ice" }.into(),
            pid: 100 + i32::try_from(rank).unwrap(),
        };
        Self {
            nodes: (8..12).map(|node| format!("n{node:02}")).collect(),
            table: (0..8).map(row).collect(),
            apps: vec![app("/opt/ocean"), app("/opt/ice")],
            end: EndPolicy::default(),
        }
    }

    fn scene(&self) -> Scene<'_> {
        Scene {
            job: Some(JobId(1)),
            nodes: &self.nodes,
            table: &self.table,
            apps: &self.apps,
            end: self.end,
        }
    }
}

fn set(text: &str) -> RankSet {
    text.parse().unwrap()
}

fn ended(cause: Cause, classes: &[(ExitStatus, &str)], by_us: &str, not_started: &str) -> Outcome {
    let maybe = |text: &str| {
        if text.is_empty() {
            RankSet::new()
        } else {
            set(text)
        }
    };
    let ended = classes
        .iter()
        .map(|(status, ranks)| (*status, set(ranks)))
        .collect::<Vec<_>>();
    let not_started = maybe(not_started);
    let size = ended.iter().map(|(_, ranks)| ranks.len()).sum::<usize>() + not_started.len();
    Outcome {
        cause,
        size: u32::try_from(size).unwrap(),
        ended,
        not_started,
        failed_on: Vec::new(),
        ended_by_us: maybe(by_us),
        left: RankSet::new(),
    }
}

/// Returns the outcome with ranks that keep running.
fn left(outcome: Outcome, ranks: &str) -> Outcome {
    Outcome {
        left: set(ranks),
        ..outcome
    }
}

/// Returns the message without alignment, which is added when it is printed. Also checks the rules for wording.
pub(super) fn shown(message: &Message) -> String {
    let kind = KINDS.iter().find(|kind| kind.id == message.id);
    assert_eq!(
        kind.map(|kind| kind.severity),
        Some(message.severity),
        "{}",
        message.id
    );
    let first = message.headline.chars().next().unwrap();
    assert!(!first.is_uppercase(), "{}", message.headline);
    let mut names = Vec::new();
    for (name, value) in &message.facts {
        assert!(!names.contains(name), "{name} twice in {message:?}");
        assert!(!value.is_empty() && !value.ends_with('.'), "{value}");
        names.push(name);
    }
    for text in [Some(&message.headline), message.help.as_ref()]
        .into_iter()
        .flatten()
    {
        assert!(!text.ends_with('.') && !text.contains('\n'), "{text}");
        assert_eq!(text.matches('`').count() % 2, 0, "{text}");
    }
    let mut text = format!(
        "{} {:?}: {}\n",
        message.id, message.severity, message.headline
    );
    for (name, value) in &message.facts {
        text.push_str(&format!("  {name}: {value}\n"));
    }
    if let Some(help) = &message.help {
        text.push_str(&format!("  help: {help}\n"));
    }
    text
}

fn all(messages: &[Message]) -> String {
    messages.iter().map(shown).collect()
}

fn signaled(signal: Signal) -> ExitStatus {
    ExitStatus::Signaled {
        signal,
        core_dumped: false,
    }
}

const DUMPED: ExitStatus = ExitStatus::Signaled {
    signal: Signal::SEGV,
    core_dumped: true,
};
const TERMINATED: ExitStatus = ExitStatus::Signaled {
    signal: Signal::TERM,
    core_dumped: false,
};
const KILLED: ExitStatus = ExitStatus::Signaled {
    signal: Signal::KILL,
    core_dumped: false,
};
const OK: ExitStatus = ExitStatus::SUCCESS;

fn fail(rank: u32, status: ExitStatus) -> Cause {
    Cause::Failed {
        rank: Rank(rank),
        status,
    }
}

#[test]
fn success_is_quiet() {
    let job = Job::small();
    assert_eq!(
        outcome(&ended(Cause::Success, &[(OK, "0-7")], "", ""), &job.scene()),
        []
    );
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table of cases, and what is said of them"
)]
fn ranks_that_failed() {
    let three = ExitStatus::Exited(3);
    let small = Job::small();
    let mut on = Job::small();
    on.end.on_failure = OnFailure::Continue;
    let wide = Job::wide();
    let cases = [
        (
            "alone",
            &small,
            ended(fail(0, three), &[(three, "0")], "", ""),
        ),
        (
            "core",
            &small,
            ended(
                fail(2, DUMPED),
                &[(DUMPED, "2"), (TERMINATED, "0-1,3-7")],
                "0-1,3-7",
                "",
            ),
        ),
        (
            "alike",
            &small,
            ended(
                fail(2, three),
                &[(three, "0-2,5"), (TERMINATED, "3-4,6-7")],
                "3-4,6-7",
                "",
            ),
        ),
        (
            "two ranks",
            &small,
            ended(fail(1, three), &[(three, "1"), (KILLED, "0")], "0", ""),
        ),
        (
            "some done",
            &small,
            ended(
                fail(1, three),
                &[(OK, "0,2-6"), (three, "1"), (TERMINATED, "7")],
                "7",
                "",
            ),
        ),
        (
            "one done",
            &small,
            ended(
                fail(1, three),
                &[(OK, "0"), (three, "1"), (TERMINATED, "2-7")],
                "2-7",
                "",
            ),
        ),
        (
            "all done",
            &small,
            ended(fail(1, three), &[(OK, "0,2-7"), (three, "1")], "", ""),
        ),
        (
            "same code, but by us",
            &small,
            ended(fail(0, three), &[(three, "0-7")], "1-7", ""),
        ),
        (
            "deaf",
            &small,
            ended(
                fail(0, three),
                &[(three, "0"), (TERMINATED, "1-6"), (KILLED, "7")],
                "1-7",
                "",
            ),
        ),
        (
            "not all started",
            &small,
            ended(
                fail(0, three),
                &[(three, "0"), (TERMINATED, "1")],
                "1",
                "2-7",
            ),
        ),
        (
            "ways",
            &on,
            ended(
                fail(3, three),
                &[
                    (OK, "0"),
                    (three, "3"),
                    (signaled(Signal::SEGV), "1,4"),
                    (ExitStatus::Exited(1), "2,5-7"),
                ],
                "",
                "",
            ),
        ),
        (
            "continue",
            &on,
            ended(fail(3, three), &[(OK, "0-2,4-7"), (three, "3")], "", ""),
        ),
        (
            "continue, two",
            &on,
            ended(fail(0, three), &[(OK, "1"), (three, "0")], "", ""),
        ),
        (
            "nodes",
            &wide,
            ended(
                fail(2, three),
                &[(three, "0-3"), (TERMINATED, "4-7")],
                "4-7",
                "",
            ),
        ),
        (
            "programs",
            &wide,
            ended(
                fail(3, three),
                &[(three, "3-4"), (TERMINATED, "0-2,5-7")],
                "0-2,5-7",
                "",
            ),
        ),
        (
            "no table",
            &Job {
                table: Vec::new(),
                ..Job::wide()
            },
            ended(fail(0, three), &[(three, "0")], "", "1-7"),
        ),
    ];
    let text = cases.map(|(name, job, outcome)| {
        format!(
            "-- {name}\n{}",
            all(&super::outcome(&outcome, &job.scene()))
        )
    });
    insta::assert_snapshot!(text.concat(), @"
    -- alone
    job/rank-failed Error: rank 0 on `n1` exited with code 3
    -- core
    job/rank-failed Error: rank 2 on `n1` was killed by SIGSEGV, core dumped
      effect: the other 7 ranks were ended
    -- alike
    job/rank-failed Error: ranks 0-2,5 on `n1` exited with code 3
      first: rank 2
      effect: the other 4 ranks were ended
    -- two ranks
    job/rank-failed Error: rank 1 on `n1` exited with code 3
      effect: the other rank was ended; rank 0 needed SIGKILL
    -- some done
    job/rank-failed Error: rank 1 on `n1` exited with code 3
      effect: 1 of the other 7 ranks was ended, 6 had ended before
    -- one done
    job/rank-failed Error: rank 1 on `n1` exited with code 3
      effect: 6 of the other 7 ranks were ended, 1 had ended before
    -- all done
    job/rank-failed Error: rank 1 on `n1` exited with code 3
      effect: the other 7 ranks had ended by themselves
    -- same code, but by us
    job/rank-failed Error: rank 0 on `n1` exited with code 3
      effect: the other 7 ranks were ended
    -- deaf
    job/rank-failed Error: rank 0 on `n1` exited with code 3
      effect: the other 7 ranks were ended; rank 7 needed SIGKILL
    -- not all started
    job/rank-failed Error: rank 0 on `n1` exited with code 3
      effect: the other rank was ended; ranks 2-7 were not started
    -- ways
    job/rank-failed Error: rank 3 on `n1` exited with code 3
      effect: the other rank ran on to its end
    job/rank-failed Error: ranks 1,4 on `n1` were killed by SIGSEGV
    job/rank-failed Error: ranks 2,5-7 on `n1` exited with code 1
    -- continue
    job/rank-failed Error: rank 3 on `n1` exited with code 3
      effect: the other 7 ranks ran on to their end
    -- continue, two
    job/rank-failed Error: rank 0 on `n1` exited with code 3
      effect: the other rank ran on to its end
    -- nodes
    job/rank-failed Error: ranks 0-3 on `n[08-09]` exited with code 3
      program: `/opt/ocean`
      first: rank 2 on `n09`
      effect: the other 4 ranks were ended
    -- programs
    job/rank-failed Error: ranks 3-4 on `n[09-10]` exited with code 3
      first: rank 3 on `n09`
      effect: the other 6 ranks were ended
    -- no table
    job/rank-failed Error: rank 0 exited with code 3
      effect: ranks 1-7 were not started
    ");
}

#[test]
fn signals_that_mean_something() {
    let job = Job::small();
    let text = [
        Signal::KILL,
        Signal(4),
        Signal(7),
        Signal::ABRT,
        Signal(24),
        Signal(25),
        Signal(31),
        Signal(40),
    ]
    .map(|signal| rank::failed(&set("0"), signaled(signal), &job.scene()))
    .map(|message| shown(&message));
    insta::assert_snapshot!(text.concat(), @"
    job/rank-failed Error: rank 0 on `n1` was killed by SIGKILL
      help: unless a user or a tool sent it, memory may have run out: the kernel's log (`dmesg`) or the cgroup's `memory.events` says so
    job/rank-failed Error: rank 0 on `n1` was killed by SIGILL
      help: often a program built for a newer processor than this node has
    job/rank-failed Error: rank 0 on `n1` was killed by SIGBUS
      help: often `/dev/shm` or the file system of a mapped file is full: `df /dev/shm` shows it
    job/rank-failed Error: rank 0 on `n1` was killed by SIGABRT
    job/rank-failed Error: rank 0 on `n1` was killed by SIGXCPU
      help: the limit on CPU time was reached: `ulimit -t` shows it
    job/rank-failed Error: rank 0 on `n1` was killed by SIGXFSZ
      help: the limit on file size was reached: `ulimit -f` shows it
    job/rank-failed Error: rank 0 on `n1` was killed by SIGSYS
      help: a seccomp filter, usually that of a container, forbade a system call
    job/rank-failed Error: rank 0 on `n1` was killed by signal 40
    ");
}

#[test]
fn many_ways_to_fail_are_counted() {
    let job = Job::small();
    let texts = (0..30).map(|rank| rank.to_string()).collect::<Vec<_>>();
    let classes = texts
        .iter()
        .zip(1..)
        .map(|(rank, code)| (ExitStatus::Exited(code), rank.as_str()))
        .collect::<Vec<_>>();
    let messages = outcome(
        &ended(fail(0, ExitStatus::Exited(1)), &classes, "", ""),
        &job.scene(),
    );
    assert_eq!(messages.len(), CLASSES_MAX + 1);
    insta::assert_snapshot!(shown(&messages[CLASSES_MAX]), @"job/more-failed Error: ranks 8-29 failed in 22 ways more");
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table of cases, and what is said of them"
)]
fn other_ends() {
    let small = Job::small();
    let mut limited = Job::small();
    limited.end.time_limit = Some(Duration::from_secs(5400));
    let abort = |text: &str| Cause::Aborted {
        rank: Rank(3),
        code: 5,
        message: text.to_owned(),
    };
    let rest: &[_] = &[(ExitStatus::Exited(5), "3"), (TERMINATED, "0-2,4-7")];
    let cases = [
        (
            "abort",
            &small,
            ended(abort("bad\x1b[2J mesh\n"), rest, "0-2,4-7", ""),
        ),
        (
            "abort without text",
            &small,
            ended(abort(" "), rest, "0-2,4-7", ""),
        ),
        (
            "protocol",
            &small,
            ended(
                Cause::Protocol {
                    rank: Rank(3),
                    what: "unknown command `cmd=\tdance`".into(),
                },
                rest,
                "0-7",
                "",
            ),
        ),
        (
            "absent",
            &small,
            ended(Cause::Absent(set("2-3")), rest, "0-1,4-7", ""),
        ),
        (
            "signal",
            &small,
            ended(
                Cause::Ended(EndReason::Signal(Signal::INT)),
                &[(signaled(Signal::INT), "0-7")],
                "0-7",
                "",
            ),
        ),
        (
            "signal, one",
            &small,
            ended(
                Cause::Ended(EndReason::Signal(Signal::TERM)),
                &[(TERMINATED, "0")],
                "0",
                "",
            ),
        ),
        (
            "signal, late",
            &small,
            ended(
                Cause::Ended(EndReason::Signal(Signal::HUP)),
                &[(OK, "0-7")],
                "",
                "",
            ),
        ),
        (
            "signal, early",
            &small,
            ended(Cause::Ended(EndReason::Signal(Signal::INT)), &[], "", "0-7"),
        ),
        (
            "signal, between",
            &small,
            ended(
                Cause::Ended(EndReason::Signal(Signal::INT)),
                &[(TERMINATED, "0")],
                "0",
                "1-7",
            ),
        ),
        (
            "output",
            &small,
            ended(
                Cause::Ended(EndReason::OutputLost),
                &[(OK, "0"), (TERMINATED, "1-7")],
                "1-7",
                "",
            ),
        ),
        (
            "input",
            &small,
            ended(
                Cause::Ended(EndReason::InputLost(5)),
                &[(TERMINATED, "0-7")],
                "0-7",
                "",
            ),
        ),
        (
            "time, all run on",
            &limited,
            left(
                ended(Cause::Ended(EndReason::TimeLimit), &[], "", ""),
                "0-1",
            ),
        ),
        (
            "time, one runs on",
            &limited,
            left(
                ended(
                    Cause::Ended(EndReason::TimeLimit),
                    &[(TERMINATED, "1-2")],
                    "1-2",
                    "",
                ),
                "0",
            ),
        ),
        (
            "terminal",
            &small,
            ended(
                Cause::Ended(EndReason::TerminalLost),
                &[(TERMINATED, "0-7")],
                "0-7",
                "",
            ),
        ),
        (
            "canceled",
            &small,
            ended(
                Cause::Ended(EndReason::Canceled),
                &[(TERMINATED, "0-7")],
                "0-7",
                "",
            ),
        ),
        (
            "time",
            &limited,
            ended(
                Cause::Ended(EndReason::TimeLimit),
                &[(OK, "0-6"), (KILLED, "7")],
                "7",
                "",
            ),
        ),
        (
            "time, unknown",
            &small,
            ended(
                Cause::Ended(EndReason::TimeLimit),
                &[(TERMINATED, "0-7")],
                "0-7",
                "",
            ),
        ),
        (
            "both",
            &small,
            ended(
                Cause::Ended(EndReason::Signal(Signal::INT)),
                &[(TERMINATED, "0-1")],
                "0-1",
                "",
            ),
        ),
        (
            "debugger",
            &small,
            ended(
                Cause::Ended(EndReason::DebuggerLost),
                &[(TERMINATED, "0-7")],
                "0-7",
                "",
            ),
        ),
        (
            "front",
            &small,
            ended(
                Cause::Ended(EndReason::FrontLost),
                &[(TERMINATED, "0-7")],
                "0-7",
                "",
            ),
        ),
    ];
    let text = cases.map(|(name, job, outcome)| {
        format!(
            "-- {name}\n{}",
            all(&super::outcome(&outcome, &job.scene()))
        )
    });
    insta::assert_snapshot!(text.concat(), @r"
    -- abort
    job/aborted Error: rank 3 on `n1` aborted the job with code 5
      message: bad\u{1b}[2J mesh\n
      effect: the other 7 ranks were ended
    -- abort without text
    job/aborted Error: rank 3 on `n1` aborted the job with code 5
      effect: the other 7 ranks were ended
    -- protocol
    job/protocol Error: rank 3 on `n1` broke the rules of the process management interface
      what: unknown command `cmd=\tdance`
      effect: the other 7 ranks were ended
      help: the program's MPI library and this launcher do not speak the same protocol, or the program wrote to the descriptor in `PMI_FD`
    -- absent
    job/rank-absent Error: ranks 2-3 on `n1` ended without `MPI_Init`, and others waited for them there
      effect: the other 6 ranks were ended
      help: every rank of a job is part of `MPI_COMM_WORLD`: start a program without MPI as a job of its own
    -- signal
    job/ended-by-signal Error: the job was ended because the launcher got SIGINT
      effect: all 8 ranks were ended
    -- signal, one
    job/ended-by-signal Error: the job was ended because the launcher got SIGTERM
      effect: its only rank was ended
    -- signal, late
    job/ended-by-signal Error: the job was ended because the launcher got SIGHUP
      effect: no rank was left to be ended
    -- signal, early
    job/ended-by-signal Error: the job was ended because the launcher got SIGINT
      effect: no rank had been started
    -- signal, between
    job/ended-by-signal Error: the job was ended because the launcher got SIGINT
      effect: its only rank was ended; ranks 1-7 were not started
    -- output
    job/output-lost Note: the job was ended because nobody reads its output any more
      effect: 7 of 8 ranks were ended, 1 had ended before
    -- input
    job/input-lost Error: the job was ended because its input cannot be read: input/output error
      effect: all 8 ranks were ended
      help: `--stdin none` leaves it unread
    -- time, all run on
    job/time-limit Error: the job did not end within its time limit of 1 h 30 min
      effect: ranks 0-1 run on
    -- time, one runs on
    job/time-limit Error: the job did not end within its time limit of 1 h 30 min
      effect: 2 of 3 ranks were ended; rank 0 runs on
    -- terminal
    job/terminal-lost Error: the job was ended because the launcher's terminal is gone
      effect: all 8 ranks were ended
      help: with `--on-hangup=continue` it goes on
    -- canceled
    job/canceled Error: the job was canceled
      effect: all 8 ranks were ended
    -- time
    job/time-limit Error: the job did not end within its time limit of 1 h 30 min
      effect: 1 of 8 ranks was ended, 7 had ended before; rank 7 needed SIGKILL
    -- time, unknown
    job/time-limit Error: the job did not end within its time limit
      effect: all 8 ranks were ended
    -- both
    job/ended-by-signal Error: the job was ended because the launcher got SIGINT
      effect: both ranks were ended
    -- debugger
    job/debugger-lost Error: the job was ended because the debugger for which it was held is gone
      effect: all 8 ranks were ended
    -- front
    job/front-lost Error: the job was ended because the process that started it is gone
      effect: all 8 ranks were ended
    ");
}

#[test]
fn spawned_jobs_that_fail() {
    let small = Job::small();
    let rank = Rank(3);
    let causes = [
        Cause::Failed {
            rank,
            status: ExitStatus::Exited(7),
        },
        Cause::Failed {
            rank,
            status: signaled(Signal::SEGV),
        },
        Cause::Aborted {
            rank,
            code: 5,
            message: "bad\x1b[2J mesh\n".to_owned(),
        },
        Cause::Protocol {
            rank,
            what: "unknown command".to_owned(),
        },
        Cause::Absent(set("3")),
        Cause::NotStarted(Vec::new()),
        Cause::Ended(EndReason::SpawnerEnded),
        Cause::Ended(EndReason::DebuggerLost),
    ];
    let text = causes.map(|cause| {
        let note = Note::SpawnedFailed {
            job: JobId(2),
            cause: Box::new(cause),
        };
        shown(&super::note(&note, &small.scene()))
    });
    insta::assert_snapshot!(text.concat(), @r"
    job/spawned-failed Warning: job 2, which a rank spawned, failed: its rank 3 exited with code 7
    job/spawned-failed Warning: job 2, which a rank spawned, failed: its rank 3 was killed by SIGSEGV
    job/spawned-failed Warning: job 2, which a rank spawned, failed: its rank 3 aborted it with code 5
      message: bad\u{1b}[2J mesh
    job/spawned-failed Warning: job 2, which a rank spawned, failed: its rank 3 broke the rules of the process management interface
      message: unknown command
    job/spawned-failed Warning: job 2, which a rank spawned, failed: its rank 3 ended without `MPI_Init`
    job/spawned-failed Warning: job 2, which a rank spawned, failed: it could not be started
    job/spawned-failed Warning: job 2, which a rank spawned, failed: it was ended
    job/spawned-failed Warning: job 2, which a rank spawned, failed: it was ended, because its debugger is gone
    ");
}

/// Each is one line.
#[test]
fn what_is_logged_of_jobs() {
    let small = Job::small();
    let ended = |code, cause| JobNews::Ended {
        code,
        cause: Box::new(cause),
    };
    let failed = Cause::Failed {
        rank: Rank(1),
        status: ExitStatus::Exited(3),
    };
    let cases = [
        (JobNews::Started { ranks: 1 }, None),
        (JobNews::Started { ranks: 4 }, Some(1_795_310_407)),
        (ended(0, Cause::Success), Some(1_795_310_407)),
        (ended(3, failed), Some(1_795_310_407)),
        (ended(1, Cause::Ended(EndReason::SpawnerEnded)), None),
    ];
    let text = cases.map(|(news, at)| {
        let job = JobId(2);
        shown(&note(&Note::Logged { job, news, at }, &small.scene()))
    });
    insta::assert_snapshot!(text.concat(), @"
    job/spawned-started Note: job 2 started with 1 rank
    job/spawned-started Note: job 2 started at 2026-11-22 01:20:07 UTC with 4 ranks
    job/spawned-ended Note: job 2 ended at 2026-11-22 01:20:07 UTC with exit code 0
    job/spawned-ended Note: job 2 ended at 2026-11-22 01:20:07 UTC with exit code 3: its rank 1 exited with code 3
    job/spawned-ended Note: job 2 ended with exit code 1: it was ended
    ");
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table of cases, and what is said of them"
)]
fn notes() {
    let (small, wide) = (Job::small(), Job::wide());
    let cases = [
        (
            &wide,
            Note::NotHeldYet {
                at: HoldAt::Init,
                ranks: set("0-1,6"),
                held: RankSet::new(),
            },
        ),
        (
            &wide,
            Note::NotHeldYet {
                at: HoldAt::App,
                ranks: set("0"),
                held: set("1-7"),
            },
        ),
        (&small, Note::Leaky(set("3"))),
        (&wide, Note::Leaky(set("0-1,6"))),
        (
            &small,
            Note::DebuggerLost {
                job: JobId(1),
                ranks: set("3"),
            },
        ),
        (
            &wide,
            Note::DebuggerLost {
                job: JobId(1),
                ranks: set("0-1,6"),
            },
        ),
        (
            &small,
            Note::LeftBehind {
                node: NodeId(0),
                count: 1,
            },
        ),
        (
            &wide,
            Note::LeftBehind {
                node: NodeId(3),
                count: 2,
            },
        ),
        (
            &small,
            Note::LeftBehind {
                node: NodeId(7),
                count: 2,
            },
        ),
        (
            &small,
            Note::Stuck {
                node: NodeId(0),
                pids: vec![4711],
            },
        ),
        (
            &small,
            Note::Stuck {
                node: NodeId(0),
                pids: (1..=20).collect(),
            },
        ),
        (
            &small,
            Note::NotPermitted {
                node: NodeId(0),
                pids: vec![4711],
            },
        ),
        (
            &small,
            Note::NotPermitted {
                node: NodeId(0),
                pids: vec![4711, 4712],
            },
        ),
    ];
    let text = cases.map(|(job, note)| shown(&super::note(&note, &job.scene())));
    insta::assert_snapshot!(text.concat(), @"
    job/not-held-yet Note: 3 ranks have not reached PMIx_Init yet
      running: 0-1,6
      help: a program that never gets there runs on; `--stop-on-exec` holds any program
    job/not-held-yet Note: 1 rank has not reached the point where its library waits for a debugger yet
      running: 0
      held: 1-7
      help: a program that never gets there runs on; `--stop-on-exec` holds any program
    job/leaky Warning: rank 3 on `n1` has exited, but something still holds its output open
      effect: output that is written more than 1 s after the exit is lost
      help: a process started in the background should close or redirect its stdout and stderr
    job/leaky Warning: ranks 0-1,6 on `n[08,11]` have exited, but something still holds their output open
      effect: output that is written more than 1 s after the exit is lost
      help: a process started in the background should close or redirect its stdout and stderr
    job/debugger-gone Warning: rank 3 on `n1` runs on: its debugger is gone
      help: `--on-debugger-loss=kill` ends the job instead
    job/debugger-gone Warning: ranks 0-1,6 on `n[08,11]` run on: their debugger is gone
      help: `--on-debugger-loss=kill` ends the job instead
    job/left-behind Warning: 1 process that the job left behind on `n1` was ended
    job/left-behind Warning: 2 processes that the job left behind on `n11` were ended
    job/left-behind Warning: 2 processes that the job left behind on node 7 were ended
    job/stuck Error: 1 process on `n1` cannot be ended
      step: SIGKILL was sent, the kernel has not carried it out
      pid: 4711
      help: such a process waits in the kernel, often for a file server or a device; `ps -o pid,stat,wchan` shows for what
    job/stuck Error: 20 processes on `n1` cannot be ended
      step: SIGKILL was sent, the kernel has not carried it out
      pids: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 4 more
      help: such a process waits in the kernel, often for a file server or a device; `ps -o pid,stat,wchan` shows for what
    job/not-permitted Error: 1 process on `n1` runs on: it belongs to another user, and we may not end it
      pid: 4711
      help: that user or root can end such a process: `sudo kill PID`
    job/not-permitted Error: 2 processes on `n1` run on: they belong to another user, and we may not end them
      pids: 4711, 4712
      help: that user or root can end such a process: `sudo kill PID`
    ");
}

#[test]
fn spawned_jobs_of_one_program() {
    let small = Job::small();
    let failure = |step, subject: &str| crate::proto::StartFailure {
        step,
        errno: 2,
        subject: Some(subject.into()),
    };
    let not_started = |failure| Cause::NotStarted(vec![(failure, set("0-1"))]);
    let aborted = Cause::Aborted {
        rank: Rank(1),
        code: 42,
        message: "the ice is thin\n".to_owned(),
    };
    let mut text = String::new();
    for cause in [
        not_started(failure(StartStep::Find, "./ice")),
        not_started(failure(StartStep::Directory, "/nowhere")),
    ] {
        let cause = Box::new(cause);
        let job = JobId(2);
        text.push_str(&shown(&note(
            &Note::SpawnedFailed { job, cause },
            &small.scene(),
        )));
    }
    let spawned = |job, cause| Cause::Spawned {
        job: JobId(job),
        cause: Box::new(cause),
    };
    for cause in [spawned(2, aborted.clone()), spawned(2, spawned(3, aborted))] {
        let outcome = ended(cause, &[(TERMINATED, "0-7")], "0-7", "");
        for message in super::outcome(&outcome, &small.scene()) {
            text.push_str(&shown(&message));
        }
    }
    insta::assert_snapshot!(text, @"
    job/spawned-failed Warning: job 2, which a rank spawned, failed: cannot start `./ice`: there is no such file
    job/spawned-failed Warning: job 2, which a rank spawned, failed: cannot start it: cannot enter the working directory `/nowhere`: no such file or directory
    job/ended-with-spawned Error: job 2, which a rank spawned, failed, and this job was ended with it: its rank 1 aborted it with code 42
      message: the ice is thin
      effect: all 8 ranks were ended
    job/ended-with-spawned Error: job 2, which a rank spawned, failed, and this job was ended with it: job 3, which it spawned, failed: its rank 1 aborted it with code 42
      effect: all 8 ranks were ended
    ");
}

#[test]
fn refusals() {
    let pattern = crate::spec::Pattern("out.%x".into());
    let facts = crate::spec::PatternFacts {
        rank: 0,
        size: 1,
        local_rank: 0,
        app: 0,
        job: 1,
        front_pid: 1,
        host: "n1",
    };
    let error = pattern.expand(&facts).unwrap_err();
    insta::assert_snapshot!(shown(&refused(&Refusal::Pattern(error.to_string()))), @"
    output/bad-pattern Error: cannot make a file name for the output: `%x` means nothing (known: %r rank, %s size, %l local rank, %a app, %j job, %h host, %p pid, %%)
      effect: the job was not started
    ");
}

#[test]
fn words() {
    let odd = (0..400).map(|n| Rank(n * n)).collect::<RankSet>();
    insta::assert_snapshot!(ranks_text(&odd), @"ranks 0-1,4,9,16,25,36,49,64,81,100,121,144,169,196,225,256,289,324,361,400,441,484,529,576,625,676,729,784,841,900,961,1024,1089,1156,1225,1296,1369,1444,1521,1600,… (400 in all)");
    assert_eq!(plain(&"x".repeat(5000)).chars().count(), 1025);
    assert_eq!(brief(&"x".repeat(5000)).chars().count(), 161);
    let times = [0, 1500, 2000, 90_000, 5_400_000, 86_461_000];
    let text = times
        .map(|ms| duration(Duration::from_millis(ms)))
        .join(", ");
    insta::assert_snapshot!(text, @"0 s, 1.5 s, 2 s, 1 min 30 s, 1 h 30 min, 24 h 1 min 1 s");
}

#[test]
fn every_kind_is_explained_once() {
    let mut ids = KINDS.iter().map(|kind| kind.id).collect::<Vec<_>>();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), KINDS.len());
    for kind in KINDS {
        let (area, name) = kind.id.split_once('/').unwrap();
        let word = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
        };
        assert!(word(area) && word(name), "{}", kind.id);
        assert!(kind.explanation.ends_with('.'), "{}", kind.id);
        assert!(
            kind.explanation
                .starts_with(|c: char| c.is_uppercase() || c == '`'),
            "{}",
            kind.id
        );
        assert_eq!(explain(kind.id), Some(kind.explanation));
    }
    for problem in StartProblem::ALL {
        assert!(KINDS.contains(&problem.kind()));
    }
    assert_eq!(explain("job/never-was"), None);
}

#[test]
fn the_json_twin_is_an_object() {
    let message = note(&Note::Leaky(set("3")), &Job::small().scene());
    let value = serde_json::to_value(&message).unwrap();
    assert_eq!(value["id"], "job/leaky");
    assert_eq!(value["severity"], "warning");
    assert!(value["facts"]["effect"].as_str().unwrap().contains("1 s"));
    let message = Message::new(&k::OUTPUT_LOST, "x");
    insta::assert_snapshot!(serde_json::to_string(&message).unwrap(), @r#"{"id":"job/output-lost","severity":"note","headline":"x","facts":{}}"#);
}

#[test]
fn why_a_job_is_being_ended_in_one_line() {
    let small = Job::small();
    let aborted = |text: &str| Cause::Aborted {
        rank: Rank(3),
        code: 5,
        message: text.to_owned(),
    };
    let no_program = crate::proto::StartFailure {
        step: StartStep::Find,
        errno: 2,
        subject: Some("./a.out".into()),
    };
    let causes = [
        Cause::Success,
        fail(3, ExitStatus::Exited(7)),
        fail(3, signaled(Signal::KILL)),
        aborted("bad\0 mesh\n"),
        aborted(""),
        Cause::NotStarted(vec![(no_program, set("0-7"))]),
        Cause::Protocol {
            rank: Rank(3),
            what: "x".into(),
        },
        Cause::Absent(set("3")),
        Cause::Ended(EndReason::Signal(Signal::TERM)),
        Cause::Ended(EndReason::TimeLimit),
    ];
    let lines = causes.map(|cause| super::cause(&cause, &small.scene()) + "\n");
    insta::assert_snapshot!(lines.concat(), @r"

    rank 3 on `n1` exited with code 7
    rank 3 on `n1` was killed by SIGKILL
    rank 3 on `n1` aborted the job with code 5: bad\u{0} mesh\n
    rank 3 on `n1` aborted the job with code 5
    cannot start `./a.out` on `n1`: there is no such file
    rank 3 on `n1` broke the rules of the process management interface
    rank 3 on `n1` ended without `MPI_Init`, and others waited for it there
    the job was ended because the launcher got SIGTERM
    the job did not end within its time limit
    ");
}

#[test]
fn a_daemon_of_another_version() {
    let refusal = Refusal::OtherVersion {
        host: "n2".to_owned(),
        ours: 1,
        theirs: 2,
    };
    insta::assert_snapshot!(shown(&refused(&refusal)), @"
    job/other-version Error: the daemon on `n2` is of another version of rally
      protocol: 2 there, 1 here
      effect: the job was not started
      help: install the same version on all nodes
    ");
}

#[test]
fn a_node_that_was_lost_before_the_launch() {
    let refusal = Refusal::NodeLost {
        host: "n2".to_owned(),
    };
    insta::assert_snapshot!(shown(&refused(&refusal)), @"
    job/node-lost Error: the daemon on `n2` is gone
      effect: the job was not started
      help: start the job again, without this node if it is down
    ");
}

#[test]
fn gpus_and_waiting() {
    let refusal = |share| {
        shown(&refused(&Refusal::TooFewGpus {
            host: "n0".to_owned(),
            needed: 4,
            available: 2,
            procs: 4,
            share,
        }))
    };
    insta::assert_snapshot!(refusal(GpuShare::Together(4)), @"
    job/too-few-gpus Error: the job needs 4 GPUs, and `n0` has 2
      effect: the job was not started
      help: ask for fewer, or start fewer ranks
    ");
    insta::assert_snapshot!(refusal(GpuShare::Each(1)), @"
    job/too-few-gpus Error: the job needs 4 GPUs, and `n0` has 2
      ranks: 4 on the node, with 1 GPU each
      effect: the job was not started
      help: ask for fewer, or start fewer ranks
    ");
}
