//! The states of jobs in Slurm's words and in ours, with the reasons why jobs wait and the exit codes.

use base::Signal;

use crate::exit::{self, ExitCode};

/// What a job does, in our words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Held,
    Running,
    Succeeded,
    Failed,
    Canceled,
}

impl Phase {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }

    pub(super) const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled)
    }
}

/// How a task has ended, if Slurm has decided its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// That of the job itself.
    OfJob,
    TimeLimit,
    Internal,
    Signal(Signal),
}

struct State {
    /// Slurm's word.
    word: &'static str,
    phase: Phase,
    /// What the word means; empty if ours says the same.
    meaning: &'static str,
    code: Code,
}

const fn state(word: &'static str, phase: Phase, meaning: &'static str, code: Code) -> State {
    State {
        word,
        phase,
        meaning,
        code,
    }
}

/// Slurm's states, as `scontrol` and `squeue` write them.
const STATES: [State; 26] = [
    state("PENDING", Phase::Waiting, "", Code::OfJob),
    state("REQUEUED", Phase::Waiting, "it runs again", Code::OfJob),
    state("REQUEUE_FED", Phase::Waiting, "it runs again", Code::OfJob),
    state(
        "REQUEUE_HOLD",
        Phase::Held,
        "it waits for a release to run again",
        Code::OfJob,
    ),
    state(
        "SPECIAL_EXIT",
        Phase::Held,
        "it waits for a release to run again",
        Code::OfJob,
    ),
    state(
        "RESV_DEL_HOLD",
        Phase::Held,
        "its reservation was deleted",
        Code::OfJob,
    ),
    state(
        "CONFIGURING",
        Phase::Running,
        "its nodes are being made ready",
        Code::OfJob,
    ),
    state("RUNNING", Phase::Running, "", Code::OfJob),
    state("SUSPENDED", Phase::Running, "it is suspended", Code::OfJob),
    state(
        "STOPPED",
        Phase::Running,
        "it is stopped by a signal",
        Code::OfJob,
    ),
    state("SIGNALING", Phase::Running, "", Code::OfJob),
    state("RESIZING", Phase::Running, "its size changes", Code::OfJob),
    state(
        "STAGE_OUT",
        Phase::Running,
        "its files are copied back",
        Code::OfJob,
    ),
    state(
        "COMPLETING",
        Phase::Running,
        "its last processes end",
        Code::OfJob,
    ),
    state("COMPLETED", Phase::Succeeded, "", Code::OfJob),
    state("FAILED", Phase::Failed, "", Code::OfJob),
    state(
        "TIMEOUT",
        Phase::Failed,
        "it reached its time limit",
        Code::TimeLimit,
    ),
    state(
        "DEADLINE",
        Phase::Failed,
        "it reached its deadline",
        Code::TimeLimit,
    ),
    state(
        "NODE_FAIL",
        Phase::Failed,
        "one of its nodes was lost",
        Code::Internal,
    ),
    state(
        "BOOT_FAIL",
        Phase::Failed,
        "one of its nodes did not start",
        Code::Internal,
    ),
    state(
        "LAUNCH_FAILED",
        Phase::Failed,
        "Slurm could not start it on its nodes",
        Code::Internal,
    ),
    state(
        "RECONFIG_FAIL",
        Phase::Failed,
        "its nodes could not be made ready",
        Code::Internal,
    ),
    state(
        "OUT_OF_MEMORY",
        Phase::Failed,
        "it used more memory than it may",
        Code::Signal(Signal::KILL),
    ),
    state(
        "PREEMPTED",
        Phase::Failed,
        "a job that comes first has taken its nodes",
        Code::Signal(Signal::TERM),
    ),
    state("CANCELLED", Phase::Canceled, "", Code::Signal(Signal::TERM)),
    state(
        "REVOKED",
        Phase::Canceled,
        "another cluster runs it",
        Code::Signal(Signal::TERM),
    ),
];

/// Why jobs wait: Slurm's word, and ours.
const REASONS: [(&str, &str); 17] = [
    ("Priority", "jobs of higher priority come first"),
    ("Resources", "not enough free resources"),
    ("Dependency", "it waits for other jobs"),
    (
        "DependencyNeverSatisfied",
        "a job that it waits for has failed",
    ),
    ("JobHeldUser", "it was held; `rally release` lets it start"),
    ("JobHeldAdmin", "an administrator holds it"),
    (
        "JobArrayTaskLimit",
        "as many tasks as allowed are running (--max-running)",
    ),
    ("BeginTime", "its time has not come"),
    ("ReqNodeNotAvail", "a node that it needs cannot be used now"),
    ("Nodes", "nodes that it needs cannot be used now"),
    ("PartitionDown", "the partition is closed"),
    ("PartitionInactive", "the partition is inactive"),
    (
        "PartitionNodeLimit",
        "the partition never gives so many nodes",
    ),
    (
        "PartitionTimeLimit",
        "the partition never gives so much time",
    ),
    ("Licenses", "licences are in use"),
    ("Reservation", "its reservation has not begun"),
    ("NodeDown", "a node that it needs is down"),
];

/// The reason of a job whose script Slurm could not start.
const NOT_LAUNCHED: &str = "JobLaunchFailure";

/// Reasons that begin so are limits of the site.
const LIMITS: [&str; 2] = ["QOS", "Assoc"];

/// Returns what a state means; an unknown word of a newer Slurm is a running job.
pub(super) fn phase(word: &str, reason: &str) -> Phase {
    let known = STATES.iter().find(|state| state.word == word);
    match known.map_or(Phase::Running, |state| state.phase) {
        Phase::Waiting if reason.starts_with("JobHeld") => Phase::Held,
        phase => phase,
    }
}

/// Explains a state or, of a job that waits, the reason. `None` if Slurm's word says it all.
pub(super) fn meaning(word: &str, reason: &str) -> Option<&'static str> {
    if matches!(phase(word, reason), Phase::Waiting | Phase::Held) {
        let known = REASONS.iter().find(|(theirs, _)| *theirs == reason);
        if let Some((_, ours)) = known {
            return Some(ours);
        }
        if LIMITS.iter().any(|limit| reason.starts_with(limit)) {
            return Some("a limit of the account or the class of jobs");
        }
    }
    if reason == NOT_LAUNCHED {
        return Some(
            "a node could not start it: it lacks the directory, or may not write the output file",
        );
    }
    let known = STATES.iter().find(|state| state.word == word);
    known
        .map(|state| state.meaning)
        .filter(|meaning| !meaning.is_empty())
}

/// Returns the exit code of a task that is over. `exit` and `signal` are what Slurm says about the process of the job.
pub(super) fn exit_code(word: &str, reason: &str, exit: u8, signal: u8) -> u8 {
    let known = STATES.iter().find(|state| state.word == word);
    let (phase, code) = known.map_or((Phase::Failed, Code::OfJob), |state| {
        (state.phase, state.code)
    });
    match (phase, code) {
        (Phase::Succeeded, _) => exit::SUCCESS,
        (_, Code::TimeLimit) => ExitCode::TimeLimit.code(),
        (_, Code::Internal) => ExitCode::Internal.code(),
        (_, Code::Signal(signal)) => exit::signal(signal),
        (_, Code::OfJob) if reason == NOT_LAUNCHED => ExitCode::BadFile.code(),
        (_, Code::OfJob) => match (exit, signal) {
            (0, 0) => ExitCode::Internal.code(),
            (0, number) => exit::signal(Signal(i32::from(number))),
            (code, _) => code,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn states_have_our_words_and_codes() {
        let cases = [
            (
                "PENDING",
                "Priority",
                0,
                0,
                "waiting",
                Some("jobs of higher priority come first"),
                None,
            ),
            (
                "PENDING",
                "JobHeldUser",
                0,
                0,
                "held",
                Some("it was held; `rally release` lets it start"),
                None,
            ),
            (
                "PENDING",
                "QOSMaxJobsPerUserLimit",
                0,
                0,
                "waiting",
                Some("a limit of the account or the class of jobs"),
                None,
            ),
            ("PENDING", "Odd", 0, 0, "waiting", None, None),
            ("RUNNING", "None", 0, 0, "running", None, None),
            (
                "COMPLETING",
                "None",
                0,
                0,
                "running",
                Some("its last processes end"),
                None,
            ),
            ("COMPLETED", "None", 0, 0, "succeeded", None, Some(0)),
            ("FAILED", "NonZeroExitCode", 3, 0, "failed", None, Some(3)),
            ("FAILED", "NonZeroExitCode", 0, 9, "failed", None, Some(137)),
            (
                "FAILED",
                "JobLaunchFailure",
                0,
                53,
                "failed",
                Some(
                    "a node could not start it: it lacks the directory, or may not write the output file",
                ),
                Some(121),
            ),
            ("FAILED", "None", 0, 0, "failed", None, Some(125)),
            (
                "FAILED",
                "NonZeroExitCode",
                124,
                0,
                "failed",
                None,
                Some(124),
            ),
            (
                "TIMEOUT",
                "TimeLimit",
                0,
                15,
                "failed",
                Some("it reached its time limit"),
                Some(124),
            ),
            ("CANCELLED", "None", 0, 15, "canceled", None, Some(143)),
            (
                "PREEMPTED",
                "None",
                0,
                15,
                "failed",
                Some("a job that comes first has taken its nodes"),
                Some(143),
            ),
            (
                "NODE_FAIL",
                "NodeDown",
                0,
                0,
                "failed",
                Some("one of its nodes was lost"),
                Some(125),
            ),
            (
                "OUT_OF_MEMORY",
                "OutOfMemory",
                0,
                125,
                "failed",
                Some("it used more memory than it may"),
                Some(137),
            ),
            ("NEW_WORD", "None", 0, 0, "running", None, None),
        ];
        for (word, reason, exit, signal, ours, means, code) in cases {
            let phase = phase(word, reason);
            assert_eq!(phase.word(), ours, "{word}");
            assert_eq!(meaning(word, reason), means, "{word}");
            assert_eq!(code.is_some(), phase.is_over(), "{word}");
            if let Some(code) = code {
                assert_eq!(exit_code(word, reason, exit, signal), code, "{word}");
            }
        }
    }
}
