use std::time::Duration;

use base::{ExitStatus, RankSet};
use message::Format;

use super::*;
use crate::slurm::parse::Part;

fn ran(err: &str) -> Ran {
    Ran {
        status: ExitStatus::Exited(1),
        out: Vec::new(),
        err: err.into(),
    }
}

fn ended(state: &str, reason: &str, exit: u8, signal: u8, index: Option<u32>) -> Job {
    Job {
        id: JobId(17),
        task: None,
        parts: vec![Part {
            job: 17,
            state: state.to_owned(),
            reason: reason.to_owned(),
            exit,
            signal,
            indexes: index.map(|index| RankSet::range(index..index + 1)),
            ..Part::default()
        }],
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn sentences() {
    let system = NotRun::System("no memory".to_owned());
    let slow = NotRun::Slow(Duration::from_secs(60));
    let down = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n";
    let partition = "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid partition name specified\n";
    let large = "sbatch: error: Batch job submission failed: Requested node configuration is not available\n";
    let subject = "the job was not submitted";
    let failures = [
        not_run("sbatch", &NotRun::Missing),
        not_run("sbatch", &system),
        not_run("sbatch", &slow),
        not_run("squeue", &slow),
        not_run("squeue", &NotRun::TooLong(1 << 30)),
        failed("sbatch", subject, None, &ran(down)),
        failed("sbatch", subject, None, &ran(partition)),
        failed("sbatch", subject, None, &ran(large)),
        failed("sbatch", subject, None, &ran("")),
        failed(
            "scontrol",
            "job 17",
            Some(JobId(17)),
            &ran("slurm_load_jobs error: Invalid job id specified\n"),
        ),
        vanished(JobId(17)),
        tasks_vanished(JobId(17), &"3-5".parse().unwrap()),
        is_over(JobId(17)),
        no_array(JobId(17), None),
        no_array(JobId(19), Some("17[3]".to_owned())),
        no_such_task(JobId(17), &"3-5".parse().unwrap()),
        no_such_task(JobId(17), &"9".parse().unwrap()),
        odd("sbatch", b""),
        odd("sbatch", b"what\never"),
        no_output(JobId(17), None, "it has not started"),
        no_output(
            JobId(17),
            Some(Path::new("/x/rally-17.out")),
            "its file is not on this computer",
        ),
    ];
    let mut text = String::new();
    for (message, code) in failures {
        text += &format!("{}: {}", code.code(), message::text(&message, Format::Text));
    }
    let silent = failed("squeue", "x", None, &ran(down)).0;
    for message in [
        patient(&silent),
        not_beside(&silent),
        remark("nice value ignored"),
    ] {
        text += &message::text(&message, Format::Text);
    }
    for job in [
        ended("FAILED", "NonZeroExitCode", 3, 0, None),
        ended("FAILED", "NonZeroExitCode", 0, 9, Some(4)),
        ended("TIMEOUT", "TimeLimit", 0, 15, None),
        ended("CANCELLED", "None", 0, 0, None),
        ended("NODE_FAIL", "NodeDown", 0, 0, None),
    ] {
        text += &format!(
            "{}: {}",
            job.exit_code(),
            message::text(&not_succeeded(&job), Format::Text)
        );
    }
    insta::assert_snapshot!(text, @"
    123: error: there is no `sbatch` in PATH
      help: log in to a computer on which Slurm's commands are installed, or set PATH
    123: error: `sbatch` cannot be started
      reason: no memory
    123: error: `sbatch` has not answered for 1 min
      effect: it was killed
      job:    it may have been submitted
      help:   `rally queue --to slurm` shows whether it was
    123: error: `squeue` has not answered for 1 min
      effect: it was killed
      help:   Slurm may be busy: try again later
    123: error: `squeue` has printed more than 1024 MiB
      effect: it was killed, and its answer is not used
      help:   ask for fewer jobs
    123: error: Slurm does not answer
      Slurm says: Batch job submission failed: Unable to contact slurm controller (connect failure)
      effect:     the job was not submitted
      help:       `scontrol ping` shows whether its controller runs; try again later
    120: error: Slurm refuses: the job was not submitted
      Slurm says: invalid partition specified: nope; Batch job submission failed: Invalid partition name specified
    122: error: Slurm refuses: the job was not submitted
      Slurm says: Batch job submission failed: Requested node configuration is not available
    122: error: Slurm refuses: the job was not submitted
      Slurm says: nothing: `sbatch` exited with code 1
    120: error: Slurm does not know job 17
      reason: there was none, or it ended some time ago and is forgotten
      help:   if the site keeps accounts: `sacct -j 17`
    125: error: Slurm has forgotten job 17
      effect: it is over, and its exit code is not known
      help:   if the site keeps accounts: `sacct -j 17`
    125: error: Slurm has forgotten tasks 3-5 of job 17
      effect: the exit code is not known
      help:   if the site keeps accounts: `sacct -j 17`
    120: error: job 17 of Slurm is over
    120: error: job 17 of Slurm is no array
      help: name the whole job: `slurm:17`
    120: error: job 19 of Slurm is one task, and no array
      task: `slurm:17[3]`
      help: name it by one of its numbers: `slurm:19` or `slurm:17[3]`
    120: error: Slurm does not know tasks 3-5 of job 17
      reason: the array has no such task, or Slurm has forgotten it after its end
      help:   `rally queue slurm:17` shows the array
    120: error: Slurm does not know task 9 of job 17
      reason: the array has no such task, or Slurm has forgotten it after its end
      help:   `rally queue slurm:17` shows the array
    125: error: the answer of `sbatch` is not understood
      answer: nothing
    125: error: the answer of `sbatch` is not understood
      answer: what
    121: error: there is no output of job 17 of Slurm
      reason: it has not started
    121: error: there is no output of job 17 of Slurm
      reason: its file is not on this computer
      file:   /x/rally-17.out
    warning: Slurm does not answer; waiting goes on
      Slurm says: sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)
    warning: the jobs in Slurm are not listed
      Slurm says: sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)
    warning: Slurm has accepted the job, with a remark
      Slurm says: nice value ignored
    3: error: job 17 of Slurm has failed
      Slurm says: FAILED (NonZeroExitCode)
      exit code:  3
    137: error: job 17 of Slurm has failed
      tasks:      4
      Slurm says: FAILED (NonZeroExitCode)
      signal:     9
    124: error: job 17 of Slurm has failed
      Slurm says: TIMEOUT (TimeLimit)
      reason:     it reached its time limit
      signal:     15
    143: error: job 17 of Slurm has been canceled
      Slurm says: CANCELLED
    125: error: job 17 of Slurm has failed
      Slurm says: NODE_FAIL (NodeDown)
      reason:     one of its nodes was lost
    ");
}
