//! The exit codes of the launcher. `docs/exit-codes.md` has the same table for users; a test keeps them consistent.

use base::Signal;
use dvm::{
    machine::NotDone,
    messages::{StartProblem, classify},
    proto::{Cause, EndReason, Outcome, PreloadFailure, Refusal, StartFailure},
};

/// The exit codes for ends that no rank caused.
///
/// A program may exit with one of these numbers itself. The message on stderr distinguishes the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum ExitCode {
    /// Every rank exited with 0.
    Success = 0,
    /// The command line is wrong.
    Usage = 120,
    /// A file or directory named by the user cannot be used.
    BadFile = 121,
    /// The ranks cannot be placed.
    Placement = 122,
    /// The environment or a limit prevents the job.
    Resources = 123,
    /// The job reached its time limit, as with timeout(1).
    TimeLimit = 124,
    /// A part of the launcher was lost or failed, or a rank broke the protocol.
    Internal = 125,
    /// A program was found but cannot be executed (the shell's code).
    NotExecutable = 126,
    /// A program, or its interpreter, was not found (the shell's code).
    NotFound = 127,
    /// The reader of the output has closed the pipe: 128 + SIGPIPE.
    OutputLost = 141,
}

pub(crate) const SUCCESS: u8 = ExitCode::Success.code();
pub(crate) const INTERNAL: u8 = ExitCode::Internal.code();

/// The base of an exit code after a signal: the signal's number is added.
const SIGNAL_BASE: i32 = 128;

impl ExitCode {
    /// All our codes, in ascending order.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 10] = [
        Self::Success,
        Self::Usage,
        Self::BadFile,
        Self::Placement,
        Self::Resources,
        Self::TimeLimit,
        Self::Internal,
        Self::NotExecutable,
        Self::NotFound,
        Self::OutputLost,
    ];

    /// Returns the number that the shell sees.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the meaning, in the words of the table in `docs/exit-codes.md`.
    #[cfg(test)]
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Success => "every rank exited with 0",
            Self::Usage => {
                "the command line is wrong: an unknown option, a value out of range, a bad pattern"
            }
            Self::BadFile => {
                "a file or directory that was named cannot be used: hostfile, configfile, working directory, output file"
            }
            Self::Placement => "the ranks cannot be placed: not enough slots, no such host or core",
            Self::Resources => {
                "the environment or a limit is in the way: processes, descriptors, memory, binding, ptrace"
            }
            Self::TimeLimit => "the job ran into its time limit",
            Self::Internal => {
                "a part of ours was lost or failed, or the debugger of `--on-debugger-loss=kill`, or a rank broke the protocol that ranks start with, or ended without the `MPI_Init` in which others waited, or without `MPI_Finalize` while others were at work"
            }
            Self::NotExecutable => "a program was found but cannot be executed",
            Self::NotFound => "a program, or the interpreter that it names, was not found",
            Self::OutputLost => "nobody reads the job's output any more (128 + SIGPIPE)",
        }
    }
}

/// Returns the code for an end by a signal: 128 plus its number, at most 255.
pub(crate) fn signal(signal: Signal) -> u8 {
    u8::try_from(SIGNAL_BASE.saturating_add(signal.0)).unwrap_or(u8::MAX)
}

/// Returns the code for a job that was refused.
pub(crate) const fn refused(refusal: &Refusal) -> u8 {
    match refusal {
        Refusal::Placement(_) | Refusal::TooFewGpus { .. } | Refusal::NothingCounted => {
            ExitCode::Placement.code()
        }
        Refusal::Pattern(_) | Refusal::NoSuchRank { .. } => ExitCode::Usage.code(),
        Refusal::OtherVersion { .. } | Refusal::NodeLost { .. } | Refusal::ToolEnded => {
            ExitCode::Internal.code()
        }
        Refusal::Directive(_) => ExitCode::Usage.code(),
        Refusal::Machine(why) => not_done(why).code(),
        Refusal::NoTarget(_) => ExitCode::Usage.code(),
        Refusal::TooManyJobs { .. } | Refusal::NotJoined(_) => ExitCode::Resources.code(),
        Refusal::NotPreloaded(failed) => match failed.failure {
            PreloadFailure::Unreadable { .. } | PreloadFailure::Changed { .. } => {
                ExitCode::BadFile.code()
            }
            PreloadFailure::NoRoom { .. }
            | PreloadFailure::NoPlace(_)
            | PreloadFailure::Unwritable { .. } => ExitCode::Resources.code(),
        },
    }
}

/// Returns the exit code for an order that was not carried out.
pub(crate) const fn not_done(why: &NotDone) -> ExitCode {
    match why {
        NotDone::NoMachine
        | NotDone::NoSuchJob(_)
        | NotDone::IsOver(_)
        | NotDone::NotRunning(_)
        | NotDone::IsAllocation(_)
        | NotDone::NoSuchNode(_) => ExitCode::Usage,
        NotDone::NotAccepted(_) | NotDone::NoResource(_) | NotDone::DependencyFailed(_) => {
            ExitCode::Placement
        }
        NotDone::NotStored(_)
        | NotDone::NotRead(_)
        | NotDone::GoingDown
        | NotDone::Busy(_)
        | NotDone::NodesBusy(_)
        | NotDone::NodeLeaves(_)
        | NotDone::NodeEnds(_)
        | NotDone::NodeBad(_)
        | NotDone::NodeStays(_)
        | NotDone::TooManyStarts(_) => ExitCode::Resources,
    }
}

/// Returns the code for a job that has ended.
///
/// A rank's own code is returned unchanged. If several ranks failed, the first failure counts. If several could not be
/// started, the one with the lowest rank counts.
pub(crate) fn code_of(outcome: &Outcome) -> u8 {
    code_of_cause(&outcome.cause)
}

fn code_of_cause(cause: &Cause) -> u8 {
    match cause {
        Cause::Success => SUCCESS,
        Cause::Failed { status, .. } => match status.code() {
            // A failed rank with code 0 would be an internal error, and must not count as success.
            0 => INTERNAL,
            code => code,
        },
        Cause::Aborted { code, .. } => *code,
        Cause::NotStarted(classes) => classes
            .iter()
            .min_by_key(|(_, ranks)| ranks.first())
            .map_or(INTERNAL, |(failure, _)| not_started(failure).code()),
        Cause::Protocol { .. }
        | Cause::Absent(_)
        | Cause::Unfinished(_)
        | Cause::NodeLost { .. } => INTERNAL,
        Cause::Spawned { cause, .. } => code_of_cause(cause),
        Cause::Ended(reason) => match reason {
            EndReason::Signal(number) => signal(*number),
            EndReason::OutputLost => ExitCode::OutputLost.code(),
            EndReason::TimeLimit | EndReason::Waited => ExitCode::TimeLimit.code(),
            EndReason::TerminalLost => signal(Signal::HUP),
            EndReason::Canceled => signal(Signal::TERM),
            EndReason::InputLost(_) => ExitCode::Resources.code(),
            // A tool has watched the job to its end.
            EndReason::TargetEnded => SUCCESS,
            EndReason::FrontLost
            | EndReason::SpawnerEnded
            | EndReason::DebuggerLost
            | EndReason::ToolEnded => INTERNAL,
        },
    }
}

/// Returns true if the launcher or its input caused the end, and not a rank, a signal or a time limit.
pub(crate) fn is_error(cause: &Cause) -> bool {
    match cause {
        Cause::NotStarted(_)
        | Cause::Protocol { .. }
        | Cause::Absent(_)
        | Cause::Unfinished(_)
        | Cause::NodeLost { .. } => true,
        Cause::Success | Cause::Failed { .. } | Cause::Aborted { .. } => false,
        Cause::Spawned { cause, .. } => is_error(cause),
        Cause::Ended(reason) => match reason {
            EndReason::InputLost(_)
            | EndReason::FrontLost
            | EndReason::SpawnerEnded
            | EndReason::DebuggerLost
            | EndReason::ToolEnded => true,
            EndReason::Signal(_)
            | EndReason::OutputLost
            | EndReason::TimeLimit
            | EndReason::Waited
            | EndReason::TerminalLost
            | EndReason::Canceled
            | EndReason::TargetEnded => false,
        },
    }
}

/// Returns the code for a proc that could not be started.
pub(crate) fn not_started(failure: &StartFailure) -> ExitCode {
    match classify(failure) {
        StartProblem::NoProgram | StartProblem::NoInterpreter => ExitCode::NotFound,
        StartProblem::NotExecutable
        | StartProblem::IsDirectory
        | StartProblem::WrongFormat
        | StartProblem::Busy => ExitCode::NotExecutable,
        StartProblem::NoDirectory | StartProblem::OutputFile => ExitCode::BadFile,
        StartProblem::ArgumentsTooLong
        | StartProblem::NoPids
        | StartProblem::NoDescriptors
        | StartProblem::NoMemory
        | StartProblem::CannotBind
        | StartProblem::NoTerminal
        | StartProblem::CannotTrace => ExitCode::Resources,
        StartProblem::Other => ExitCode::Internal,
    }
}

#[cfg(test)]
mod tests {
    use base::{ExitStatus, JobId, Rank, RankSet};
    use dvm::proto::StartStep;

    use super::*;

    const DOCUMENT: &str = include_str!("../../../docs/exit-codes.md");

    #[test]
    fn the_document_has_the_same_table() {
        let rows = DOCUMENT
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
            .filter(|row| row.starts_with(|c: char| c.is_ascii_digit()))
            .collect::<Vec<_>>();
        let table = ExitCode::ALL.map(|code| format!("{} | {}", code.code(), code.meaning()));
        let text = table
            .iter()
            .map(|row| format!("| {row} |\n"))
            .collect::<String>();
        assert_eq!(rows, table, "write this into docs/exit-codes.md:\n{text}");
    }

    #[test]
    fn codes_ascend_and_are_used_once() {
        assert!(
            ExitCode::ALL
                .windows(2)
                .all(|pair| pair[0].code() < pair[1].code())
        );
        assert_eq!(ExitCode::OutputLost.code(), signal(Signal::PIPE));
    }

    fn outcome(cause: Cause) -> Outcome {
        Outcome {
            cause,
            size: 4,
            ended: Vec::new(),
            not_started: RankSet::new(),
            failed_on: Vec::new(),
            left: RankSet::new(),
            ended_by_us: RankSet::new(),
        }
    }

    fn failure(step: StartStep, errno: i32) -> StartFailure {
        StartFailure {
            step,
            errno,
            subject: None,
        }
    }

    #[test]
    fn errors_are_told_from_ends() {
        let not_started = failure(StartStep::Find, 2);
        let ranks: RankSet = [Rank(0)].into_iter().collect();
        let cases = [
            (Cause::Success, false),
            (Cause::NotStarted(vec![(not_started, ranks.clone())]), true),
            (Cause::Absent(ranks), true),
            (Cause::Ended(EndReason::TimeLimit), false),
            (Cause::Ended(EndReason::Signal(Signal::INT)), false),
            (Cause::Ended(EndReason::FrontLost), true),
        ];
        for (cause, expected) in cases {
            assert_eq!(is_error(&cause), expected, "{cause:?}");
        }
    }

    #[test]
    fn causes_have_codes() {
        let failed = |status| Cause::Failed {
            rank: Rank(1),
            status,
        };
        let killed = |number| ExitStatus::Signaled {
            signal: Signal(number),
            core_dumped: false,
        };
        let not_started =
            |step, errno| Cause::NotStarted(vec![(failure(step, errno), RankSet::single(Rank(0)))]);
        let later = (failure(StartStep::Fork, 11), RankSet::range(2..4));
        let earlier = (failure(StartStep::Find, 2), RankSet::range(0..2));
        let cases = [
            (Cause::Success, 0),
            (failed(ExitStatus::Exited(3)), 3),
            (failed(ExitStatus::Exited(255)), 255),
            (failed(ExitStatus::Exited(0)), 125),
            (failed(killed(11)), 139),
            (failed(killed(64)), 192),
            (
                Cause::Aborted {
                    rank: Rank(0),
                    code: 7,
                    message: String::new(),
                },
                7,
            ),
            (
                Cause::Protocol {
                    rank: Rank(0),
                    what: String::new(),
                },
                125,
            ),
            (Cause::Absent(RankSet::range(0..1)), 125),
            (Cause::Unfinished(RankSet::range(0..1)), 125),
            (
                Cause::Spawned {
                    job: JobId(2),
                    cause: Box::new(failed(killed(6))),
                },
                134,
            ),
            (Cause::Ended(EndReason::Signal(Signal::INT)), 130),
            (Cause::Ended(EndReason::Signal(Signal::TERM)), 143),
            (Cause::Ended(EndReason::Signal(Signal(i32::MAX))), 255),
            (Cause::Ended(EndReason::OutputLost), 141),
            (Cause::Ended(EndReason::TimeLimit), 124),
            (Cause::Ended(EndReason::InputLost(5)), 123),
            (Cause::Ended(EndReason::TerminalLost), 129),
            (Cause::Ended(EndReason::Canceled), 143),
            (Cause::Ended(EndReason::FrontLost), 125),
            (Cause::Ended(EndReason::DebuggerLost), 125),
            (Cause::NotStarted(Vec::new()), 125),
            (Cause::NotStarted(vec![later, earlier]), 127),
            (not_started(StartStep::Find, 2), 127),
            (not_started(StartStep::Exec, 2), 127),
            (not_started(StartStep::Exec, 13), 126),
            (not_started(StartStep::Find, 21), 126),
            (not_started(StartStep::Exec, 8), 126),
            (not_started(StartStep::Directory, 2), 121),
            (not_started(StartStep::OutputFile, 13), 121),
            (not_started(StartStep::Fork, 11), 123),
            (not_started(StartStep::Channels, 24), 123),
            (not_started(StartStep::Exec, 7), 123),
            (not_started(StartStep::Trace, 1), 123),
            (not_started(StartStep::ParentDeath, 22), 125),
        ];
        for (cause, expected) in cases {
            let outcome = outcome(cause);
            assert_eq!(code_of(&outcome), expected, "{:?}", outcome.cause);
        }
        assert_eq!(refused(&Refusal::Pattern(String::new())), 120);
    }
}
