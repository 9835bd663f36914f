//! The messages about jobs of Slurm: what went wrong in Slurm's words, and what it means in ours.

use std::path::Path;

use base::{ExitStatus, JobId, RankSet};
use message::Message;

use super::{
    parse::{Fault, Job, fault},
    state::{Phase, meaning},
    tool::{NotRun, Ran},
};
use crate::{exit::ExitCode, machine::Failure};

message::kinds! {
    /// All kinds of messages about jobs of Slurm.
    pub(crate) const KINDS;

    NO_TOOL: Error "slurm/no-tool"
"`rally` uses the commands of Slurm: `sbatch`, `squeue`, `scontrol` and `scancel`. They are looked for in PATH. This one is not there, or \
cannot be started. The exit code is 123."

    TOO_LONG: Error "slurm/too-much"
"A command of Slurm has printed more than `rally` reads of it, which is more than a line for each of a million tasks, and was killed. Its answer is not \
used, because a part of it would be wrong. The exit code is 123."

    SILENT: Error "slurm/no-answer"
"A command of Slurm could not reach the controller of Slurm (`slurmctld`), or did not end in time and was killed. If `sbatch` was slow, the \
job may have been submitted all the same: `rally queue --to slurm` shows it then. The exit code is 123."

    REFUSED: Error "slurm/rejected"
"Slurm has refused the job or the order. The message has Slurm's words. The exit code is 120 if an option or a name is wrong, and 122 if Slurm \
cannot or may not run such a job."

    GONE: Error "slurm/unknown-job"
"The controller of Slurm does not know this job. It forgets jobs some time after their end (`MinJobAge`, usually 5 minutes). If the site keeps \
accounts, `sacct -j JOB` still knows them. The exit code is 120, or 125 if `rally wait` has seen the job and cannot know how it has ended."

    NO_TASK: Error "slurm/no-such-task"
"`slurm:17[3-5]` names tasks of the array 17. Slurm gives a task a number of its own when it starts: `slurm:19` may then be the same as `slurm:17[3]`, and \
has no tasks. The exit code is 120."

    IS_OVER: Error "slurm/is-over"
"The job has ended, so that it cannot be canceled, held or released any more. The exit code is 120."

    ODD: Error "slurm/odd-answer"
"A command of Slurm has succeeded, but `rally` does not understand its answer. Please report it, with the version of Slurm. The exit code is \
125."

    NOT_SUCCEEDED: Error "slurm/job-failed"
"`rally wait` has the exit code of the first of these jobs that has not succeeded: that of the job itself, 124 if Slurm has ended it at its time \
limit, 143 if it was canceled or another job has taken its nodes, 137 if it used too much memory, and 125 if a node was lost."

    NO_OUTPUT: Error "slurm/no-output"
"What a job of Slurm prints goes to a file on its nodes. `rally output` reads this file here, so that it has to be on a file system that both \
have. The exit code is 121."

    REMARK: Warning "slurm/remark"
"Slurm has accepted the job, and `sbatch` has written something about it. Slurm says so too when it ignores an option."

    NOT_BESIDE: Warning "slurm/not-listed"
"`rally queue` lists the jobs of the machine, and beside them those that `rally` has submitted to Slurm. Slurm has given no answer, so that these are missing. `rally queue --to machine` does not ask Slurm."

    PATIENT: Warning "slurm/waits-for-controller"
"The controller of Slurm does not answer while `rally` waits for a job. Jobs run on without it. `rally` asks again for ten minutes."
}

/// The name of a fact that has Slurm's own words.
const SLURM_SAYS: &str = "Slurm says";

/// Says why a command has given no answer.
pub(super) fn not_run(program: &str, error: &NotRun) -> Failure {
    let message = match error {
        NotRun::Missing => Message::new(&NO_TOOL, format!("there is no `{program}` in PATH"))
            .with_help("log in to a computer on which Slurm's commands are installed, or set PATH"),
        NotRun::System(why) => Message::new(&NO_TOOL, format!("`{program}` cannot be started"))
            .fact("reason", why.clone()),
        NotRun::TooLong(most) => {
            let what = format!("`{program}` has printed more than {} MiB", most >> 20);
            Message::new(&TOO_LONG, what)
                .fact("effect", "it was killed, and its answer is not used")
                .with_help("ask for fewer jobs")
        }
        NotRun::Slow(patience) => {
            let what = format!(
                "`{program}` has not answered for {}",
                message::duration(*patience)
            );
            let message = Message::new(&SILENT, what).fact("effect", "it was killed");
            if program == "sbatch" {
                message
                    .fact("job", "it may have been submitted")
                    .with_help("`rally queue --to slurm` shows whether it was")
            } else {
                message.with_help("Slurm may be busy: try again later")
            }
        }
    };
    (message, ExitCode::Resources)
}

/// Says why a command has failed. `subject` is what it was to do.
pub(super) fn failed(program: &str, subject: &str, job: Option<JobId>, ran: &Ran) -> Failure {
    let words = ran.words(program);
    let words = if words.is_empty() {
        match ran.status {
            ExitStatus::Exited(code) => format!("nothing: `{program}` exited with code {code}"),
            ExitStatus::Signaled { signal, .. } => format!("nothing: {signal} ended `{program}`"),
            status @ ExitStatus::OutOfMemory { .. } => format!("nothing: `{program}` was {status}"),
        }
    } else {
        words
    };
    match (fault(&words), job) {
        (Fault::Silent, _) => {
            let message = Message::new(&SILENT, "Slurm does not answer")
                .fact(SLURM_SAYS, words)
                .fact("effect", subject.to_owned())
                .with_help("`scontrol ping` shows whether its controller runs; try again later");
            (message, ExitCode::Resources)
        }
        (Fault::NoSuchJob, Some(job)) => gone(job),
        (Fault::Usage, _) => (refused(subject, words), ExitCode::Usage),
        (Fault::Refused | Fault::NoSuchJob, _) => (refused(subject, words), ExitCode::Placement),
    }
}

fn refused(subject: &str, words: String) -> Message {
    Message::new(&REFUSED, format!("Slurm refuses: {subject}")).fact(SLURM_SAYS, words)
}

pub(super) fn gone(job: JobId) -> Failure {
    let message = Message::new(&GONE, format!("Slurm does not know job {job}"))
        .fact(
            "reason",
            "there was none, or it ended some time ago and is forgotten",
        )
        .with_help(format!("if the site keeps accounts: `sacct -j {job}`"));
    (message, ExitCode::Usage)
}

/// Says that a job was forgotten before we saw its end.
pub(super) fn vanished(job: JobId) -> Failure {
    let message = Message::new(&GONE, format!("Slurm has forgotten job {job}"))
        .fact("effect", "it is over, and its exit code is not known")
        .with_help(format!("if the site keeps accounts: `sacct -j {job}`"));
    (message, ExitCode::Internal)
}

/// Says that tasks were forgotten before we saw their ends.
pub(super) fn tasks_vanished(job: JobId, tasks: &RankSet) -> Failure {
    let what = format!("Slurm has forgotten {} of job {job}", named(tasks));
    let message = Message::new(&GONE, what)
        .fact("effect", "the exit code is not known")
        .with_help(format!("if the site keeps accounts: `sacct -j {job}`"));
    (message, ExitCode::Internal)
}

/// Says that a job has no tasks. `task` is the name of the task whose own number this is.
pub(super) fn no_array(job: JobId, task: Option<String>) -> Failure {
    let message = match task {
        None => Message::new(&NO_TASK, format!("job {job} of Slurm is no array"))
            .with_help(format!("name the whole job: `slurm:{job}`")),
        Some(task) => {
            let what = format!("job {job} of Slurm is one task, and no array");
            let help = format!("name it by one of its numbers: `slurm:{job}` or `slurm:{task}`");
            Message::new(&NO_TASK, what)
                .fact("task", format!("`slurm:{task}`"))
                .with_help(help)
        }
    };
    (message, ExitCode::Usage)
}

pub(super) fn no_such_task(job: JobId, tasks: &RankSet) -> Failure {
    let what = format!("Slurm does not know {} of job {job}", named(tasks));
    let message = Message::new(&NO_TASK, what)
        .fact(
            "reason",
            "the array has no such task, or Slurm has forgotten it after its end",
        )
        .with_help(format!("`rally queue slurm:{job}` shows the array"));
    (message, ExitCode::Usage)
}

fn named(tasks: &RankSet) -> String {
    let word = if tasks.len() == 1 { "task" } else { "tasks" };
    format!("{word} {tasks}")
}

pub(super) fn is_over(job: JobId) -> Failure {
    let message = Message::new(&IS_OVER, format!("job {job} of Slurm is over"));
    (message, ExitCode::Usage)
}

pub(super) fn odd(program: &str, answer: &[u8]) -> Failure {
    let answer = String::from_utf8_lossy(answer);
    let line = answer.lines().next().unwrap_or_default().to_owned();
    let message = Message::new(&ODD, format!("the answer of `{program}` is not understood")).fact(
        "answer",
        if line.is_empty() {
            "nothing".to_owned()
        } else {
            line
        },
    );
    (message, ExitCode::Internal)
}

/// Says how a job ended that has not succeeded.
pub(super) fn not_succeeded(job: &Job) -> Message {
    let what = match job.phase() {
        Phase::Canceled => "been canceled",
        _ => "failed",
    };
    let message = Message::new(
        &NOT_SUCCEEDED,
        format!("job {} of Slurm has {what}", job.name()),
    );
    let failed = job.failed_indexes();
    let message = message.maybe("tasks", (!failed.is_empty()).then(|| failed.to_string()));
    let Some(part) = job.deciding() else {
        return message;
    };
    let message = message.fact(SLURM_SAYS, slurms_words(&part.state, &part.reason));
    let message = message.maybe(
        "reason",
        meaning(&part.state, &part.reason).map(str::to_owned),
    );
    match (part.exit, part.signal) {
        (0, 0) => message,
        (0, signal) => message.fact("signal", signal.to_string()),
        (code, _) => message.fact("exit code", code.to_string()),
    }
}

/// Returns Slurm's words for a state and its reason: `PENDING (Priority)`.
pub(super) fn slurms_words(state: &str, reason: &str) -> String {
    match reason {
        "" | "None" => state.to_owned(),
        reason => format!("{state} ({reason})"),
    }
}

pub(super) fn no_output(job: JobId, path: Option<&Path>, why: &str) -> Failure {
    let message = Message::new(
        &NO_OUTPUT,
        format!("there is no output of job {job} of Slurm"),
    )
    .fact("reason", why.to_owned())
    .maybe("file", path.map(|path| path.display().to_string()));
    (message, ExitCode::BadFile)
}

pub(super) fn patient(why: &Message) -> Message {
    let message = Message::new(&PATIENT, "Slurm does not answer; waiting goes on");
    because(message, why)
}

/// Adds why there is no answer: in Slurm's words, or in ours if it has said nothing.
fn because(message: Message, why: &Message) -> Message {
    match why.facts.iter().find(|(name, _)| *name == SLURM_SAYS) {
        Some((name, words)) => message.fact(name, words.clone()),
        None => message.fact("reason", why.headline.clone()),
    }
}

pub(super) fn remark(words: &str) -> Message {
    Message::new(&REMARK, "Slurm has accepted the job, with a remark").fact(SLURM_SAYS, words)
}

pub(super) fn not_beside(why: &Message) -> Message {
    let message = Message::new(&NOT_BESIDE, "the jobs in Slurm are not listed");
    because(message, why)
}

#[cfg(test)]
mod tests;
