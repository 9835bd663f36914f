//! Messages about problems around a job.

use super::*;
use crate::proto::{LastCall, Missing, Refused, Rest};

fn closed(ranks: Option<&str>, reasons: &[(&str, u64)], count: u64) -> Note {
    let reasons = reasons.iter();
    Note::Refused(Refused {
        node: NodeId(0),
        ranks: ranks.map(set),
        count,
        reasons: reasons
            .map(|(reason, times)| ((*reason).to_owned(), *times))
            .collect(),
    })
}

#[test]
fn connections_that_are_closed() {
    let foreign = "it belongs to user 1001, the job to user 1000";
    let small = Job::small();
    let cases = [
        closed(None, &[(foreign, 1)], 1),
        closed(
            None,
            &[(foreign, 90_000), ("it says that it is a\u{1b}[2Jb", 1)],
            100_001,
        ),
        closed(Some("0"), &[("tools cannot connect here", 1)], 1),
        closed(Some("0-1,3"), &[("tools cannot connect here", 5)], 5),
    ];
    let text = cases.map(|note| shown(&super::note(&note, &small.scene())));
    insta::assert_snapshot!(text.concat(), @r"
    pmix/refused Warning: 1 connection to the PMIx port on `n1` was refused
      reason: it belongs to user 1001, the job to user 1000
      effect: none on the job
    pmix/refused Warning: 100001 connections to the PMIx port on `n1` were refused
      reason: it belongs to user 1001, the job to user 1000 (90000 times)
    it says that it is a\u{1b}[2Jb (1 time)
    other reasons (10000 times)
      effect: none on the job
    pmix/refused Warning: 1 connection of rank 0 to PMIx on `n1` was closed
      reason: tools cannot connect here
      effect: requests of these ranks over PMIx fail
    pmix/refused Warning: 5 connections of ranks 0-1,3 to PMIx on `n1` were closed
      reason: tools cannot connect here (5 times)
      effect: requests of these ranks over PMIx fail
    ");
}

#[test]
fn what_a_job_does_without() {
    let small = Job::small();
    let all = [
        Missing::Room,
        Missing::Client,
        Missing::Control,
        Missing::Place,
        Missing::Record,
        Missing::Directory,
        Missing::Output(Rank(3)),
        Missing::Recording,
        Missing::Removal,
        Missing::Recorder,
    ];
    let text = all.map(|what| {
        let note = Note::Missing {
            node: Some(NodeId(0)),
            what,
            why: "cannot do so: Too many open files".to_owned(),
        };
        shown(&super::note(&note, &small.scene()))
    });
    let elsewhere = Note::Missing {
        node: None,
        what: Missing::Place,
        why: "cannot do so".to_owned(),
    };
    assert!(
        note(&elsewhere, &small.scene())
            .headline
            .contains("this job on this host is not")
    );
    insta::assert_snapshot!(text.concat(), @"
    job/without Warning: new PMIx connections on `n1` wait until others end
      reason: cannot do so: Too many open files
      help: `ulimit -n` shows the limit on open files
    job/without Warning: a PMIx connection on `n1` was not accepted
      reason: cannot do so: Too many open files
    job/without Warning: `rally release` does not find this job
      reason: cannot do so: Too many open files
      help: SIGCONT to `rally` releases the ranks as well
    job/without Warning: the record of this job on `n1` is not in the usual directory
      reason: cannot do so: Too many open files
      help: `rally release` finds it; but the usual directory needs repair
    job/without Warning: there is no record of this job on `n1`
      reason: cannot do so: Too many open files
      help: `rally release` does not find the job; if all processes of `rally` are killed together, processes of the job may remain
    job/without Warning: a directory or file for ranks or tools on `n1` could not be created
      reason: cannot do so: Too many open files
    job/without Warning: the rest of what rank 3 on `n1` writes is lost
      reason: cannot do so: Too many open files
    job/without Warning: `n1` is not recorded any more
      reason: cannot do so: Too many open files
      help: `--record FILE` writes FILE on this node, and FILE.N in the same directory on node N
    job/without Warning: preloaded files remain on `n1`
      reason: cannot do so: Too many open files
      help: `rally` tries again when it ends; after that, remove the directory there
    job/without Warning: calls of MPI on `n1` are not recorded
      reason: cannot do so: Too many open files
      help: the recorder needs a directory for its library and 1 MiB for each rank, in which programs may be executed
    ");
}

#[test]
fn ranks_that_leave_without_finalize() {
    let small = Job::small();
    let wide = Job::wide();
    let cases = [
        (&small, "3", Rest::Well),
        (&wide, "0-1,6", Rest::Well),
        (&small, "3", Rest::Badly),
        (&wide, "0-1,6", Rest::Badly),
    ];
    let notes = cases.map(|(job, ranks, rest)| {
        let ranks = set(ranks);
        shown(&note(&Note::Unfinished { ranks, rest }, &job.scene()))
    });
    insta::assert_snapshot!(notes.concat(), @"
    job/no-finalize Warning: rank 3 on `n1` ended with code 0, but without `MPI_Finalize`
      effect: none on the exit code: it ended with code 0
      help: a program that exits early should call `MPI_Finalize`, or `MPI_Abort` if it has failed
    job/no-finalize Warning: ranks 0-1,6 on `n[08,11]` ended with code 0, but without `MPI_Finalize`
      effect: none on the exit code: they ended with code 0
      help: a program that exits early should call `MPI_Finalize`, or `MPI_Abort` if it has failed
    job/no-finalize Warning: rank 3 on `n1` ended with code 0, but without `MPI_Finalize`
      effect: other ranks may have waited or failed because of it
      help: a program that exits early should call `MPI_Finalize`, or `MPI_Abort` if it has failed
    job/no-finalize Warning: ranks 0-1,6 on `n[08,11]` ended with code 0, but without `MPI_Finalize`
      effect: other ranks may have waited or failed because of them
      help: a program that exits early should call `MPI_Finalize`, or `MPI_Abort` if it has failed
    ");
    let outcome = Outcome {
        cause: Cause::Unfinished(set("1")),
        size: 8,
        ended: vec![
            (TERMINATED, set("0,2-7")),
            (ExitStatus::Exited(0), set("1")),
        ],
        not_started: RankSet::new(),
        failed_on: Vec::new(),
        ended_by_us: set("0,2-7"),
        left: RankSet::new(),
    };
    let said: Vec<String> = super::outcome(&outcome, &small.scene())
        .iter()
        .map(shown)
        .collect();
    insta::assert_snapshot!(said.concat(), @"
    job/left-alone Error: rank 1 on `n1` ended with code 0, but without `MPI_Finalize`, and others were still at work
      effect: the other 7 ranks were ended
      help: a program that exits early should call `MPI_Finalize`, or `MPI_Abort` if it has failed
    ");
}

#[test]
fn a_job_whose_allocation_is_over() {
    let note = Note::SpawnedFailed {
        job: JobId(2),
        cause: Box::new(Cause::Ended(EndReason::TimeLimit)),
    };
    let text = shown(&super::note(&note, &Job::small().scene()));
    insta::assert_snapshot!(text, @"job/spawned-failed Warning: job 2, which a rank spawned, failed: the time of its allocation was over");
}

#[test]
fn an_allocation_that_nobody_can_grant() {
    let by = base::ProcId {
        job: JobId(1),
        rank: Rank(3),
    };
    let small = Job::small();
    let text = shown(&note(&Note::NoScheduler { by }, &small.scene()));
    insta::assert_snapshot!(text, @"
    job/no-scheduler Note: rank 3 of job 1 asks for an allocation, and no queue is there to grant it
      help: run the job on a machine: `rally up`, then `rally run --on-machine main`
    ");
}

#[test]
fn requests_that_slurm_does_not_fulfil() {
    use crate::{
        proto::AllocationRefusal as Why,
        slurm::{NotDone, Tool},
    };
    let by = base::ProcId {
        job: JobId(1),
        rank: Rank(3),
    };
    let patience = Duration::from_secs(30);
    let (tool, words) = (Tool::Salloc, "Invalid partition name specified".to_owned());
    let silent = NotDone::Silent {
        tool: Tool::Scontrol,
        patience,
    };
    let failed = |words: &str| NotDone::Failed {
        tool: Tool::Scancel,
        words: words.to_owned(),
    };
    let refused = |why| Note::AllocationRefused { by, why };
    let notes = [
        refused(Why::BySlurm(NotDone::Failed { tool, words })),
        refused(Why::BySlurm(failed(""))),
        refused(Why::BySlurm(silent)),
        refused(Why::BySlurm(NotDone::NotRun {
            tool,
            why: "it is not in PATH".to_owned(),
        })),
        refused(Why::BySlurm(NotDone::Unclear { tool })),
        refused(Why::MoreNodes),
        refused(Why::Part),
        Note::AllocationLeft {
            job: 17,
            why: failed("Access/permission denied"),
        },
    ];
    let small = Job::small();
    let text = notes.map(|one| shown(&note(&one, &small.scene())));
    insta::assert_snapshot!(text.concat(), @"
    job/allocation-refused Note: rank 3 of job 1 gets no allocation of Slurm
      reason: `salloc` says: Invalid partition name specified
    job/allocation-refused Note: a request of rank 3 of job 1 about its allocation of Slurm has failed
      reason: `scancel` fails without a reason
    job/allocation-refused Note: a request of rank 3 of job 1 about its allocation of Slurm has failed
      reason: `scontrol` gave no answer for 30 s
    job/allocation-refused Note: rank 3 of job 1 gets no allocation of Slurm
      reason: `salloc` cannot be run: it is not in PATH
      help: put the directory of Slurm's commands into PATH
    job/allocation-refused Note: rank 3 of job 1 gets no allocation of Slurm
      reason: what `salloc` prints is not understood
    job/allocation-refused Note: rank 3 of job 1 asks for more nodes or CPUs in an allocation of Slurm, which cannot grow
      help: request a new allocation for them
    job/allocation-refused Note: rank 3 of job 1 gives back a part of an allocation of Slurm, which is given back only as a whole
    job/allocation-left Warning: job 17 of Slurm, an allocation of this job, was not given back
      reason: `scancel` says: Access/permission denied
      help: cancel it: `scancel 17`
    ");
}

#[test]
fn what_a_rank_has_called_last() {
    let small = Job::small();
    let all = [
        (true, "MPI_Recv from rank 0, tag 7, WORLD"),
        (
            false,
            "MPI_Barrier on \"a\u{1b}[2J\nerror: b\", collective operation 3",
        ),
    ];
    let text = all.map(|(in_progress, call)| {
        let last = LastCall {
            call: call.to_owned(),
            number: 12,
            in_progress,
        };
        let note = Note::LastCall {
            rank: Rank(3),
            last,
        };
        shown(&super::note(&note, &small.scene()))
    });
    insta::assert_snapshot!(text.concat(), @r#"
    rank/last-call Note: rank 3 ended in MPI_Recv from rank 0, tag 7, WORLD (call 12 of MPI)
    rank/last-call Note: rank 3 ended after MPI_Barrier on "a\u{1b}[2J\nerror: b", collective operation 3 (call 12 of MPI)
    "#);
}
