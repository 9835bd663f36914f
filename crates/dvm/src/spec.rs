//! Job specification: the user's request after all lookups, for instance of files, of the environment and of GPUs.

mod environment;
mod gpus;
mod needs;
mod set;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    sync::Arc,
    time::Duration,
};

use base::{Rank, RankSet, Signal};
use serde::{Deserialize, Serialize};

pub use self::{
    environment::Environment,
    gpus::{FoundGpus, GpuKind, GpuPlan, GpuShare, NodeGpus},
    needs::{NodeResources, ResourceNeeds},
    set::{SET_NAME_MAX, SetName, SetNameError},
};
use crate::place;

/// Specification of a job, as the front sends it to the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Programs in the order of the command line. `placement.apps[i]` has the number of procs of `apps[i]`.
    pub apps: Vec<App>,
    /// Number of ranks, their nodes and their bindings.
    pub placement: place::Request,
    /// Universe size reported to programs; `None` if the user has not set it.
    pub universe: Option<UniverseSize>,
    pub stdin: StdinTarget,
    pub stdio: StdioPlan,
    pub end: EndPolicy,
    pub hold: HoldPlan,
    pub variables: BTreeSet<Family>,
    pub gpus: Option<GpuPlan>,
    /// Files that are copied to the nodes of the job before it starts; `None` if the job needs no directory for them.
    pub preload: Option<Preload>,
    pub map: MapFor,
    /// A job that it spawns has the same limits for itself.
    pub limits: ResourceLimits,
    /// Of a job without a front: report where its ranks are when they have made no progress for this time, and shortly before its time
    /// limit. `None`: nobody watches it, or its front does.
    pub watch: Option<Duration>,
    /// Counted resources of a machine.
    pub needs: ResourceNeeds,
    /// Process sets to which the procs of apps belong, by the index of the app.
    pub sets: BTreeMap<u32, SetName>,
    /// A job that it spawns has the same; the launch leaves out the daemons of a debugger.
    pub recorder: Recorder,
}

/// Limits for all procs of a job on one node together, on each of its nodes. `None` stands for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// CPU time in thousandths of a CPU.
    pub milli_cpus: Option<u32>,
}

impl ResourceLimits {
    /// Returns what is limited.
    #[must_use]
    pub fn wanted(&self) -> BTreeSet<LimitedResource> {
        let memory = self.memory.map(|_| LimitedResource::Memory);
        let cpu = self.milli_cpus.map(|_| LimitedResource::Cpu);
        memory.into_iter().chain(cpu).collect()
    }

    /// Returns those of the limits that are not in `left_out`.
    #[must_use]
    pub fn without(self, left_out: &BTreeSet<LimitedResource>) -> Self {
        Self {
            memory: self
                .memory
                .filter(|_| !left_out.contains(&LimitedResource::Memory)),
            milli_cpus: self
                .milli_cpus
                .filter(|_| !left_out.contains(&LimitedResource::Cpu)),
        }
    }
}

/// What a limit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LimitedResource {
    Memory,
    Cpu,
}

/// What the map of a job is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapFor {
    #[default]
    Launch,
    /// For the launch, and for the front, which gets it first ([`crate::proto::ToFront::Placed`]).
    FrontAndLaunch,
    /// For the front only: the job is placed and not launched.
    Front,
}

/// Files that are copied to the nodes of a job before it starts, into a directory of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preload {
    /// Absolute path of the directory on each node in which the job's directory is made; `None` lets the daemon choose.
    pub place: Option<OsString>,
    pub files: Vec<PreloadFile>,
    pub use_of: Preloaded,
}

/// File on the controller's node that is copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreloadFile {
    /// Absolute path.
    pub path: OsString,
    /// Path of the copy in the job's directory. It has no `.` and `..`, and no other file has the same.
    pub name: OsString,
    /// Permission bits of the copy.
    pub mode: u32,
}

/// What the apps of a job use of its preloaded files, by the index of the app.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preloaded {
    /// Apps whose program is one of the files, with its name.
    pub programs: BTreeMap<u32, OsString>,
    /// Apps of `programs` that an agent executes, with the index of the program among its arguments.
    pub arguments: BTreeMap<u32, u32>,
    /// Apps whose working directory is the job's directory.
    pub inside: BTreeSet<u32>,
}

impl Preloaded {
    /// Notes that an agent executes an app, whose program is this argument.
    pub(crate) fn executed_by_agent(&mut self, app: u32, argument: u32) {
        if self.programs.contains_key(&app) {
            self.arguments.insert(app, argument);
        }
    }
}

/// The variable in which the procs of a job find the directory of its preloaded files.
pub const PRELOAD_VARIABLE: &str = "RALLY_PRELOAD_DIR";

/// Universe size: the maximum number of procs of a job together with the jobs that it spawns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UniverseSize {
    /// The number of slots of the allocation.
    Slots,
    /// Unknown, the same as an unset size: PMI reports it as unknown, and PMIx reports the number of slots.
    Unknown,
    Procs(u32),
}

/// Launcher whose variables a rank gets in addition to ours and those of PMI and PMIx. Wrapper scripts and programs
/// read them to identify the rank, for instance to choose a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Family {
    OpenMpi,
    Slurm,
    /// The variables for torch that differ by rank. The address of its first rank is in the environment of the apps.
    Torch,
}

/// Executable of a job, with its arguments and environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// Program as typed: a path if it contains a slash, else a name to search for in `search`.
    pub program: OsString,
    /// Arguments after the program's name.
    pub args: Vec<OsString>,
    /// Complete environment of the procs, before the variables that differ by rank are added.
    pub env: Environment,
    /// Absolute path of the working directory.
    pub directory: OsString,
    /// Directories in which to search for `program`, in order, separated by colons.
    pub search: OsString,
    /// How the environment differs for procs on other hosts than the launcher's.
    pub elsewhere: Arc<Elsewhere>,
    /// File mode creation mask.
    pub umask: u32,
    /// Processes that may trace the procs.
    pub tracers: Tracers,
}

/// The environment of procs on other hosts than the launcher's, compared with [`App::env`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// Names of variables in [`App::env`] that describe the launcher's host or the user's session there. Procs get the value
    /// that their own node has, if any.
    pub own: Vec<OsString>,
    /// The variables of their node that procs get although [`App::env`] lacks them.
    pub more: NodeVariables,
}

/// Some of the variables that a node has before a launcher adds any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeVariables {
    #[default]
    None,
    /// All but those with these names. A final `*` stands for any suffix.
    AllExcept(Vec<OsString>),
}

/// Processes that may trace a proc where the kernel restricts that to its ancestors (`ptrace_scope` 1 of Yama).
/// Elsewhere this setting has no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tracers {
    /// The ancestors of the proc, the kernel's default.
    #[default]
    Ancestors,
    /// Any process of the same user. The watchdog needs this, because it is not an ancestor of the procs.
    SameUser,
}

/// Whether the calls of MPI of procs are recorded, for `dbgr` to read (docs/recorder.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recorder {
    #[default]
    Off,
    On,
}

/// Ranks that get the front's standard input. The other ranks read EOF immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StdinTarget {
    None,
    Rank(Rank),
    All,
}

/// Destinations of the procs' output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StdioPlan {
    pub stdout: Destination,
    pub stderr: Destination,
    pub open: OpenMode,
    /// Rank whose stdin, stdout and stderr are a separate terminal, and the initial size of that terminal.
    pub pty: Option<Pty>,
    /// Terminal for the stdout of each proc whose stdout we read. `None` stands for a pipe.
    pub lines: Option<LineTerminal>,
    pub input: FrontInput,
}

/// Whether the front's standard input is readable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FrontInput {
    #[default]
    Readable,
    /// The front's standard input is a directory, or is open for writing only. The ranks that read stdin then get the
    /// same error, and not EOF.
    Unreadable,
}

/// Terminal for the stdout of a proc only. Libraries flush after every line if stdout is a terminal, and else when
/// their buffer is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineTerminal {
    pub size: WindowSize,
    pub without: WithoutTerminal,
}

/// Fallback if no terminal is available.
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

/// Size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    pub rows: u16,
    pub columns: u16,
}

/// Treatment of the existing content of an output file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpenMode {
    #[default]
    Append,
    /// The first proc on a node that opens a file truncates it.
    Truncate,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Destination {
    /// To the front, which prints the output.
    #[default]
    Forward,
    /// To the front for one rank. The output of the other ranks is discarded.
    ForwardOnly(Rank),
    /// To a file on the rank's own node. [`Pattern::expand`] computes its name.
    File(Pattern),
    /// To the destination of the same rank's stdout. Meaningful for stderr only.
    WithStdout,
    Discard,
}

/// Pattern for a file name: `%r` (rank), `%s` (job size), `%l` (local rank), `%h` (host name), `%j` (job), `%p` (the
/// front's pid), `%a` (app) and `%%`. Digits between `%` and the letter pad with zeros to that width (at most
/// [`Pattern::WIDTH_MAX`]). The name is absolute, or relative to the rank's working directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern(pub OsString);

/// Conditions under which a job is ended before all its procs have exited by themselves, and the way it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndPolicy {
    pub on_failure: OnFailure,
    /// Effect of the loss of a node on the procs of other nodes.
    pub on_node_loss: OnFailure,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Maximum run time of the whole job, measured from its submission; `None` for no limit.
    pub time_limit: Option<Duration>,
    /// Signal that the procs get before the time limit.
    pub warning: Option<Warning>,
    /// Maximum time that other procs may run after the first one has exited; `None` for no limit.
    pub wait: Option<Duration>,
    pub on_debugger_loss: OnDebuggerLoss,
}

/// Signal before the time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub signal: Signal,
    /// Time between the signal and the time limit.
    pub before: Duration,
}

/// Effect of a failure on the other procs: of the first proc that fails (a code other than 0, or a signal), or of a lost node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnFailure {
    EndJob,
    Continue,
}

/// Treatment of procs that were held for a debugger which is gone and did not detach from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnDebuggerLoss {
    /// The job ends.
    Kill,
    /// The procs continue to run.
    Release,
}

/// Point at which procs are held for a debugger until they are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldAt {
    Nowhere,
    /// At the first instruction, before the program interpreter has run.
    Exec,
    /// In `PMIx_Init`.
    Init,
    /// At the point where the program or its MPI library supports it. For Open MPI, that is the end of `MPI_Init`.
    App,
}

/// Procs that are held, and their holding point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldPlan {
    pub at: HoldAt,
    /// Ranks that are held; `None` stands for all ranks of the job.
    pub ranks: Option<RankSet>,
}

impl HoldPlan {
    /// Plan that holds no proc.
    pub const NOWHERE: Self = Self {
        at: HoldAt::Nowhere,
        ranks: None,
    };

    /// Returns a plan that holds every proc.
    #[must_use]
    pub const fn all(at: HoldAt) -> Self {
        Self { at, ranks: None }
    }

    /// Returns the holding point of a proc.
    #[must_use]
    pub fn of(&self, rank: Rank) -> HoldAt {
        let is_meant = self.ranks.as_ref().is_none_or(|ranks| ranks.contains(rank));
        if is_meant { self.at } else { HoldAt::Nowhere }
    }

    /// Returns the procs that are held in a job of `size` ranks.
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
            on_node_loss: OnFailure::EndJob,
            grace: Self::GRACE_DEFAULT,
            time_limit: None,
            warning: None,
            wait: None,
            on_debugger_loss: OnDebuggerLoss::Release,
        }
    }
}

/// Values for the letters of a [`Pattern`].
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

/// Error in a [`Pattern`].
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
    /// Maximum width of zero padding.
    pub const WIDTH_MAX: u32 = 16;

    /// Returns the file name for one rank.
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
