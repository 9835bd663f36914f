//! What a user asks for, resolved: the world was consulted, nothing is left to look up.

use std::{collections::BTreeSet, ffi::OsString, time::Duration};

use base::{Rank, RankSet, Signal};
use serde::{Deserialize, Serialize};

use crate::place;

/// One job as it is handed to the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// The programs, in the order of the command line; `placement.apps[i]` says how many procs `apps[i]` has.
    pub apps: Vec<App>,
    /// How many ranks, where, bound to what.
    pub placement: place::Request,
    /// Procs that programs may think could run; absent where the user has not said it.
    pub universe: Option<UniverseSize>,
    pub stdin: StdinTarget,
    pub stdio: StdioPlan,
    pub end: EndPolicy,
    pub hold: HoldPlan,
    pub variables: BTreeSet<Family>,
    pub gpus: Option<GpuPlan>,
}

/// How many procs a job may have together with those that it spawns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UniverseSize {
    /// As many as the allocation has slots.
    Slots,
    /// Nobody counts.
    Unknown,
    Procs(u32),
}

/// Which GPUs procs find in their environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPlan {
    pub kind: GpuKind,
    /// Those that may be given out, as their variable names them; the same on every node.
    pub available: Vec<String>,
    pub share: GpuShare,
}

/// Whose GPUs they are, and with that how programs are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GpuKind {
    Nvidia,
    Amd,
}

/// Who gets which GPUs of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GpuShare {
    /// All procs find the first so many.
    Together(u32),
    /// Each proc has so many of its own.
    Each(u32),
}

impl GpuKind {
    /// The variable in which programs find the GPUs that they may use.
    #[must_use]
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Nvidia => "CUDA_VISIBLE_DEVICES",
            Self::Amd => "ROCR_VISIBLE_DEVICES",
        }
    }
}

impl GpuPlan {
    /// What the proc with this local rank finds in its variable.
    #[must_use]
    pub fn of(&self, local_rank: u32) -> String {
        let (from, count) = match self.share {
            GpuShare::Together(count) => (0, count),
            GpuShare::Each(count) => (u64::from(local_rank) * u64::from(count), count),
        };
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let own = self.available.iter().skip(from).take(count as usize);
        own.map(String::as_str).collect::<Vec<_>>().join(",")
    }

    /// How many GPUs so many procs on one node need.
    #[must_use]
    pub fn needed(&self, procs: u32) -> u64 {
        match self.share {
            GpuShare::Together(count) => u64::from(count),
            GpuShare::Each(count) => u64::from(count) * u64::from(procs),
        }
    }
}

/// The launcher whose variables tell a rank who it is, beside our own and those of PMI and PMIx: wrapper scripts and
/// programs read them, for instance to choose a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Family {
    OpenMpi,
    Slurm,
    /// What differs by rank for torch; where its first rank listens is in the environment of the apps.
    Torch,
}

/// One executable of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// As typed: a path when it contains a slash, else a name looked for in `search`.
    pub program: OsString,
    /// The arguments after the program's name.
    pub args: Vec<OsString>,
    /// The whole environment of its procs, before the variables that differ by rank.
    pub env: Vec<(OsString, OsString)>,
    /// Absolute working directory.
    pub directory: OsString,
    /// Directories to look for `program` in, separated by colons, in order.
    pub search: OsString,
    /// File mode creation mask; `None` inherits ours.
    pub umask: Option<u32>,
    /// Who may look into its procs.
    pub tracers: Tracers,
}

/// Who may trace a proc where the kernel would leave that to its ancestors (Yama's `ptrace_scope` 1); elsewhere it makes no
/// difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tracers {
    /// Its ancestors, as the kernel has it.
    #[default]
    Ancestors,
    /// Any process of the same user: the watchdog is no ancestor of the procs.
    SameUser,
}

/// Which ranks get what the front reads from its standard input. The others read end-of-file at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StdinTarget {
    None,
    Rank(Rank),
    All,
}

/// Where the procs' output goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StdioPlan {
    pub stdout: Destination,
    pub stderr: Destination,
    pub open: OpenMode,
    /// The rank that gets a terminal of its own for stdin, stdout and stderr, with this size at the start.
    pub pty: Option<Pty>,
    /// The terminal that each proc gets for its stdout, where we read that; `None`: a pipe.
    pub lines: Option<LineTerminal>,
    pub input: FrontInput,
}

/// Whether the front has an input to pass on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FrontInput {
    #[default]
    Readable,
    /// It was given a directory, or what is open for writing only: those who are to read find the same, and not the end of a
    /// file.
    Unreadable,
}

/// A terminal for the stdout of a proc, and for nothing else of it. Libraries write out each line at once where stdout is
/// a terminal, and when their buffer is full where it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineTerminal {
    pub size: WindowSize,
    pub without: WithoutTerminal,
}

/// What is done where there is no terminal to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WithoutTerminal {
    /// The proc gets a pipe.
    Pipe,
    /// The proc is not started.
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pty {
    pub rank: Rank,
    pub size: WindowSize,
}

/// Characters of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    pub rows: u16,
    pub columns: u16,
}

/// What becomes of what is in a file of output before the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpenMode {
    #[default]
    Append,
    /// The first proc of a node that opens a file empties it.
    Truncate,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Destination {
    /// To the front, which prints it.
    #[default]
    Forward,
    /// That of one rank to the front; that of the others is discarded.
    ForwardOnly(Rank),
    /// To a file on the rank's own node; the pattern is expanded by [`Pattern::expand`].
    File(Pattern),
    /// Where stdout of the same rank goes (meaningful for stderr only).
    WithStdout,
    Discard,
}

/// A file name with `%r` (rank), `%s` (job size), `%l` (local rank), `%h` (host name), `%j` (job), `%p` (the front's
/// pid), `%a` (app) and `%%`; digits between `%` and the letter pad with zeros to that width (at most
/// [`Pattern::WIDTH_MAX`]). Absolute, or relative to the rank's working directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern(pub OsString);

/// When and how a job is ended before its procs have ended by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndPolicy {
    pub on_failure: OnFailure,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// The whole job may take this long, measured from its submission.
    pub time_limit: Option<Duration>,
    /// What the procs get before the time limit.
    pub warning: Option<Warning>,
    /// How long the others may go on when the first proc has ended.
    pub wait: Option<Duration>,
    pub on_debugger_loss: OnDebuggerLoss,
}

/// A signal before the time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub signal: Signal,
    /// So long before it.
    pub before: Duration,
}

/// What the first proc that fails (code other than 0, or a signal) does to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnFailure {
    EndJob,
    Continue,
}

/// What becomes of procs that were held for a debugger when it is gone without having let go of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnDebuggerLoss {
    /// The job ends.
    Kill,
    /// They run on.
    Release,
}

/// Where procs are held for a debugger until they are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldAt {
    Nowhere,
    /// At their first instruction, before the program interpreter has run.
    Exec,
    /// In PMIx_Init.
    Init,
    /// Where the program or its MPI library looks for it: Open MPI at the end of MPI_Init.
    App,
}

/// Which procs are held, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldPlan {
    pub at: HoldAt,
    /// `None`: all of the job.
    pub ranks: Option<RankSet>,
}

impl HoldPlan {
    /// Nobody is held.
    pub const NOWHERE: Self = Self {
        at: HoldAt::Nowhere,
        ranks: None,
    };

    /// Every proc is held.
    #[must_use]
    pub const fn all(at: HoldAt) -> Self {
        Self { at, ranks: None }
    }

    /// Where a proc is held.
    #[must_use]
    pub fn of(&self, rank: Rank) -> HoldAt {
        let is_meant = self.ranks.as_ref().is_none_or(|ranks| ranks.contains(rank));
        if is_meant { self.at } else { HoldAt::Nowhere }
    }

    /// The procs that are held in a job of so many.
    #[must_use]
    pub fn among(&self, size: u32) -> RankSet {
        let all = RankSet::range(0..size);
        match (self.at, &self.ranks) {
            (HoldAt::Nowhere, _) => RankSet::new(),
            (_, None) => all,
            (_, Some(ranks)) => ranks.intersection(&all),
        }
    }
}

impl EndPolicy {
    pub const GRACE_DEFAULT: Duration = Duration::from_secs(5);
}

impl Default for EndPolicy {
    fn default() -> Self {
        Self {
            on_failure: OnFailure::EndJob,
            grace: Self::GRACE_DEFAULT,
            time_limit: None,
            warning: None,
            wait: None,
            on_debugger_loss: OnDebuggerLoss::Release,
        }
    }
}

/// Facts that a [`Pattern`] may name.
#[derive(Clone, Copy, Debug)]
pub struct PatternFacts<'a> {
    pub rank: u32,
    pub size: u32,
    pub local_rank: u32,
    pub app: u32,
    pub job: u32,
    pub front_pid: u32,
    pub host: &'a str,
}

/// What is wrong with a [`Pattern`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error(
        "`%{0}` means nothing (known: %r rank, %s size, %l local rank, %a app, %j job, %h host, %p pid, %%)"
    )]
    Unknown(char),
    #[error("a lone `%` ends the pattern (write `%%` for a percent sign)")]
    Unfinished,
    #[error("the width {0} is more than {max}", max = Pattern::WIDTH_MAX)]
    Width(u32),
}

impl Pattern {
    /// The widest zero padding.
    pub const WIDTH_MAX: u32 = 16;

    /// The file name for one rank.
    pub fn expand(&self, facts: &PatternFacts<'_>) -> Result<OsString, PatternError> {
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        let text = self.0.as_bytes();
        let mut name = Vec::with_capacity(text.len() + 16);
        let mut bytes = text.iter().copied();
        while let Some(byte) = bytes.next() {
            if byte != b'%' {
                name.push(byte);
                continue;
            }
            let mut width = 0u32;
            let letter = loop {
                match bytes.next() {
                    Some(digit @ b'0'..=b'9') => {
                        width = width * 10 + u32::from(digit - b'0');
                        if width > Self::WIDTH_MAX {
                            return Err(PatternError::Width(width));
                        }
                    }
                    Some(letter) => break letter,
                    None => return Err(PatternError::Unfinished),
                }
            };
            let number = match letter {
                b'r' => facts.rank,
                b's' => facts.size,
                b'l' => facts.local_rank,
                b'a' => facts.app,
                b'j' => facts.job,
                b'p' => facts.front_pid,
                b'h' => {
                    name.extend_from_slice(facts.host.as_bytes());
                    continue;
                }
                b'%' => {
                    name.push(b'%');
                    continue;
                }
                other => return Err(PatternError::Unknown(char::from(other))),
            };
            name.extend_from_slice(format!("{number:0width$}", width = width as usize).as_bytes());
        }
        Ok(OsString::from_vec(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_expand() {
        let facts = PatternFacts {
            rank: 7,
            size: 64,
            local_rank: 3,
            app: 1,
            job: 2,
            front_pid: 99,
            host: "n1",
        };
        let cases = [
            ("out.%r", Ok("out.7")),
            ("out.%4r", Ok("out.0007")),
            ("%h/%j.%a.%l.%s.%p%%", Ok("n1/2.1.3.64.99%")),
            ("out.%x", Err(PatternError::Unknown('x'))),
            ("out.%", Err(PatternError::Unfinished)),
            ("out.%99r", Err(PatternError::Width(99))),
        ];
        for (pattern, expected) in cases {
            let got = Pattern(pattern.into()).expand(&facts);
            assert_eq!(got, expected.map(OsString::from), "{pattern}");
        }
    }
}
