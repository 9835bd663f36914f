use super::*;

/// What Slurm 22.05 writes.
const FAILED: &str = "JobId=1 JobName=probe-job.sh UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901759 Nice=0 Account=(null) QOS=(null) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=3:0 RunTime=00:00:07 TimeLimit=UNLIMITED TimeMin=N/A SubmitTime=2026-11-26T05:29:34 EligibleTime=2026-11-26T05:29:34 AccrueTime=2026-11-26T05:29:34 StartTime=2026-11-26T05:29:37 EndTime=2026-11-26T05:29:37 Deadline=N/A SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-26T05:29:37 Scheduler=Main Partition=all AllocNode:Sid=head:0 ReqNodeList=(null) ExcNodeList=(null) NodeList=n1 BatchHost=n1 NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=1,node=1,billing=1 Command=/home/a b/job.sh WorkDir=/home/a b Comment=rally  StdErr=/home/a b/rally-1.out StdIn=/dev/null StdOut=/home/a b/rally-1.out Power= \n";
const HELD: &str = "JobId=2 ArrayJobId=2 ArrayTaskId=1-3,5%2 ArrayTaskThrottle=2 JobName=a b|c JobState=COMPLETED UserId=root(0) GroupId=root(0) JobState=PENDING Reason=JobHeldUser Dependency=(null) ExitCode=0:0 RunTime=00:00:00 TimeLimit=00:02:00 SubmitTime=2026-11-26T05:29:35 StartTime=Unknown EndTime=Unknown ReqNodeList=(null) NodeList= Command=(null) WorkDir=/w Comment=rally  StdErr=/w/x 2-4294967294.out StdIn=/dev/null StdOut=/w/x 2-4294967294.out Power= KillOInInvalidDependent=Yes \n";

/// An allocation, of which Slurm says less than of a batch job.
const ALLOCATION: &str = "JobId=4 JobName=rally-head-01ab23cd-4242 UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901759 Nice=0 Account=(null) QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=0 Reboot=0 ExitCode=0:0 RunTime=00:00:02 TimeLimit=00:05:00 TimeMin=N/A SubmitTime=2026-11-27T07:21:07 EligibleTime=2026-11-27T07:21:07 AccrueTime=Unknown StartTime=2026-11-27T07:21:07 EndTime=2026-11-27T07:26:07 Deadline=N/A SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-27T07:21:07 Scheduler=Main Partition=all AllocNode:Sid=head:0 ReqNodeList=(null) ExcNodeList=(null) NodeList=n1 BatchHost=n1 NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=1,node=1,billing=1 Command=(null) WorkDir=/w Comment=rally:3:more  Power= \n";

#[test]
fn an_allocation_is_known_by_its_comment() {
    let all = jobs(records(format!("{ALLOCATION}{FAILED}").as_bytes()));
    let [submitted, allocation] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(submitted.origin(), None);
    let origin = Origin {
        job: 3,
        request: Some("more".to_owned()),
    };
    assert_eq!(allocation.origin(), Some(&origin));
    assert_eq!(
        (allocation.phase(), allocation.is_array()),
        (Phase::Running, false)
    );
    assert_eq!(allocation.parts[0].stdout, None);
    // As squeue says it: a submitted job, allocations of it, and jobs of others.
    let text = "3|N/A|RUNNING|None|0:09|5:00|n2|rally|solver\n\
                5|N/A|PENDING|PartitionConfig|0:00|5:00||rally:3|rally-head-01ab23cd-4242\n\
                4|N/A|RUNNING|None|0:02|5:00|n1|rally:3:more|rally-head-01ab23cd-4242\n\
                6|N/A|RUNNING|None|0:02|5:00|n1|rallying|mine\n\
                7|N/A|RUNNING|None|0:02|5:00|n1|rally:|mine\n";
    let all = jobs(rows(text.as_bytes()));
    let origins: Vec<_> = all
        .iter()
        .map(|job| {
            let origin = job.origin();
            let request = origin.and_then(|origin| origin.request.as_deref());
            (job.id.0, origin.map(|origin| origin.job), request)
        })
        .collect();
    assert_eq!(
        origins,
        [
            (3, None, None),
            (4, Some(3), Some("more")),
            (5, Some(3), None)
        ]
    );
}

#[test]
fn records_of_scontrol_are_read() {
    let parts = records(format!("{FAILED}{HELD}\nnonsense\n").as_bytes());
    let [failed, held] = &parts[..] else {
        panic!("{parts:?}");
    };
    assert_eq!(
        (failed.job, &failed.indexes, failed.exit, failed.signal),
        (1, &None, 3, 0)
    );
    assert_eq!(
        (failed.state.as_str(), failed.nodes.as_str()),
        ("FAILED", "n1")
    );
    assert_eq!(failed.stdout, Some("/home/a b/rally-1.out".into()));
    assert_eq!(failed.stderr, failed.stdout);
    assert_eq!(failed.times[2], "2026-11-26T05:29:37");
    assert_eq!(held.name, "a b|c JobState=COMPLETED");
    assert_eq!(
        (held.state.as_str(), held.reason.as_str()),
        ("PENDING", "JobHeldUser")
    );
    assert_eq!(
        held.indexes.as_ref().map(ToString::to_string).as_deref(),
        Some("1-3,5")
    );
    assert_eq!(held.phase(), Phase::Held);
    assert_eq!((held.nodes.as_str(), held.times[1].as_str()), ("", ""));
}

#[test]
fn tasks_are_put_together() {
    let task = |index: u32, state: &str, exit: u8| {
        format!(
            "JobId={} ArrayJobId=7 ArrayTaskId={index} JobName=x UserId=u(1) JobState={state} Reason=None ExitCode={exit}:0 Command=x StdErr=/a StdIn=/b StdOut=/o-{index} \n",
            10 + index
        )
    };
    let text = |states: &[(&str, u8)]| {
        let lines = states.iter().enumerate().rev();
        lines
            .map(|(index, (state, exit))| task(u32::try_from(index).unwrap(), state, *exit))
            .collect::<String>()
    };
    let cases = [
        (&[("COMPLETED", 0), ("RUNNING", 0)][..], Phase::Running, 0),
        (&[("FAILED", 2), ("PENDING", 0)], Phase::Waiting, 2),
        (
            &[("COMPLETED", 0), ("FAILED", 4), ("FAILED", 5)],
            Phase::Failed,
            4,
        ),
        (&[("COMPLETED", 0), ("CANCELLED", 0)], Phase::Canceled, 143),
        (&[("COMPLETED", 0), ("COMPLETED", 0)], Phase::Succeeded, 0),
    ];
    for (states, phase, code) in cases {
        let all = jobs(records(text(states).as_bytes()));
        let [job] = &all[..] else {
            panic!("{all:?}");
        };
        assert_eq!((job.id, job.phase()), (JobId(7), phase), "{states:?}");
        if phase.is_over() {
            assert_eq!(job.exit_code(), code, "{states:?}");
        }
        assert_eq!(job.counts().all(), states.len());
        assert_eq!(job.parts[1].stdout, Some("/o-1".into()));
    }
}

#[test]
fn rows_of_squeue_are_read() {
    let text = "1|N/A|FAILED|NonZeroExitCode|0:00|UNLIMITED|n1|rally|probe-job.sh\n\
                3|N/A|PENDING|Dependency|0:00|2:00||(null)|wrap\n\
                2|1-5%2|PENDING|JobHeldUser|0:00|UNLIMITED||rally|a b|c\n\
                2|9|RUNNING|None|0:03|UNLIMITED|n2|rally|a b|c\nslurm: nonsense\n";
    let all = jobs(rows(text.as_bytes()));
    let shown: Vec<_> = all
        .iter()
        .map(|job| {
            (
                job.id.0,
                job.parts[0].name.as_str(),
                job.phase().word(),
                job.counts().all(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [(1, "probe-job.sh", "failed", 1), (2, "a b|c", "running", 6)]
    );
}

#[test]
fn names_of_files_are_filled() {
    let [out, err] = file_patterns(b"/w %%j/a b-%A-%a\x01/e\x01\nmore").unwrap();
    assert_eq!((&out[..], &err[..]), (&b"/w %%j/a b-%A-%a"[..], &b"/e"[..]));
    assert_eq!(file_patterns(b""), None);
    let cases = [
        ("/w %%j/a b-%A-%a", Some(3), Some("/w %j/a b-7-3")),
        ("/w/%j.out", None, Some("/w/7.out")),
        ("/w/%j.out", Some(3), None),
        ("/w/%x.out", None, None),
        ("/w/%", None, None),
        ("w", None, None),
    ];
    for (pattern, index, expected) in cases {
        let path = filled(pattern.as_bytes(), JobId(7), index);
        assert_eq!(path, expected.map(PathBuf::from), "{pattern}");
    }
}

#[test]
fn indexes_are_read() {
    let cases = [
        ("7", Some("7")),
        ("1-5%2", Some("1-5")),
        ("0-10:5,20", Some("0-10/5,20")),
        ("N/A", None),
        ("", None),
        ("1-...", None),
        ("1-5:0", None),
        ("4294967295", None),
    ];
    for (text, expected) in cases {
        let indexes = index_set(text).map(|indexes| indexes.to_string());
        assert_eq!(indexes.as_deref(), expected, "{text}");
    }
}

#[test]
fn answers_of_sbatch_are_read() {
    let cases = [
        ("17\n", Some(17)),
        ("17;blue\n", Some(17)),
        ("Welcome!\n\n17\n", Some(17)),
        ("", None),
        ("0\n", None),
        ("Submitted batch job 17\n", None),
    ];
    for (text, expected) in cases {
        assert_eq!(submitted(text.as_bytes()), expected.map(JobId), "{text:?}");
    }
}

#[test]
fn faults_are_known_by_slurms_words() {
    let cases = [
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            Fault::Silent,
        ),
        (
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            Fault::Silent,
        ),
        (
            "slurm_load_jobs error: Invalid job id specified",
            Fault::NoSuchJob,
        ),
        (
            "sbatch: error: invalid partition specified: nope",
            Fault::Usage,
        ),
        ("sbatch: unrecognized option '--bogus'", Fault::Usage),
        (
            "sbatch: error: Batch job submission failed: Invalid node name specified",
            Fault::Usage,
        ),
        (
            "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            Fault::Refused,
        ),
        ("", Fault::Refused),
    ];
    for (words, expected) in cases {
        assert_eq!(fault(words), expected, "{words}");
    }
}
