//! What the caller tells a daemon, and what the daemon asks of the caller.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
};

use base::{CpuSet, ExitStatus, JobId, ProcId, RankSet, Signal, Usage};
use bytes::Bytes;
use pmix::server::{Conn, PeerOwner};
use serde::{Deserialize, Serialize};

use super::forms::{ConnForm, PeerOwnerForm};
use crate::{
    preload::FileAct,
    proto::{
        Counted, LastCall, PreloadFailure, ProcUsage, StartFailure, Stream, ToController, ToDaemon,
        Unenforced,
    },
    spec::{App, HoldAt, LineTerminal, Recorder, ResourceLimits, WindowSize},
    syslog::{SyslogFailure, SyslogLine},
};

/// A tool that has started the launcher, and to which this process is connected. Names are nspaces and ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    pub tool: (String, u32),
    /// The name by which the tool knows the launcher.
    pub me: (String, u32),
    /// Version of the tool's library, if it is known.
    pub version: Option<[u32; 3]>,
}

/// An event that the caller reports to the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input<'a> {
    Message(ToDaemon),
    /// Answers [`Output::Prepare`] if any app cannot be started. It arrives before any proc is started; then no proc is
    /// started.
    Unstartable {
        job: JobId,
        /// The reason for each app that cannot be started, by the app's index.
        failures: BTreeMap<u32, StartFailure>,
    },
    /// Answers [`Output::Prepare`] if the node does not enforce some limits. It arrives before any proc is started.
    Unenforced {
        job: JobId,
        unenforced: Vec<Unenforced>,
    },
    /// Answers [`Output::Spawn`]. `executable` is the path at which the program was found.
    Spawned {
        proc: ProcId,
        pid: i32,
        executable: OsString,
    },
    /// Answers [`Output::Spawn`].
    SpawnFailed {
        proc: ProcId,
        failure: StartFailure,
    },
    /// A proc that is to be held is stopped at its first instruction, and no process traces it.
    Trapped {
        proc: ProcId,
    },
    /// A debugger had these procs attached when they were to continue, and none of them is traced any more. The
    /// debuggers of the ranks in `left` have detached; those of the ranks in `lost` have died. The kernel has stopped
    /// the procs again.
    Untraced {
        job: JobId,
        left: RankSet,
        lost: RankSet,
    },
    Exited {
        proc: ProcId,
        end: ProcEnd,
    },
    /// Bytes read from a proc's stream.
    Output {
        proc: ProcId,
        stream: Stream,
        bytes: Bytes,
    },
    /// A stream has reached EOF, or reading it failed.
    OutputEnded {
        proc: ProcId,
        stream: Stream,
    },
    /// Answers [`Output::WriteStdin`]: all bytes were written to the pipe.
    StdinWritten {
        proc: ProcId,
    },
    /// The proc has closed the read end of its stdin.
    StdinBroken {
        proc: ProcId,
    },
    Pmi {
        proc: ProcId,
        bytes: &'a [u8],
    },
    PmiClosed {
        proc: ProcId,
    },
    /// A client has connected to the port in [`ServiceConfig`](super::ServiceConfig). A connection id is never reused.
    ClientAccepted {
        #[serde(with = "ConnForm")]
        conn: Conn,
        #[serde(with = "PeerOwnerForm")]
        owner: PeerOwner,
    },
    ClientBytes {
        #[serde(with = "ConnForm")]
        conn: Conn,
        bytes: &'a [u8],
    },
    /// This process is connected to the tool that has started the launcher. Comes at most once, at the node beside the controller.
    Called {
        #[serde(with = "ConnForm")]
        conn: Conn,
        caller: Caller,
    },
    ClientClosed {
        #[serde(with = "ConnForm")]
        conn: Conn,
    },
    /// The kernel does not permit us to kill the proc; `pid` is its process.
    NotPermitted {
        proc: ProcId,
        pid: i32,
    },
    /// Answers [`Output::Sweep`]. `left`: pids of the job's live processes that are not procs. `not_permitted`: those
    /// among them that we may not signal.
    Swept {
        job: JobId,
        left: Vec<i32>,
        not_permitted: BTreeSet<i32>,
        /// What the processes of the job have used until now; `None` without a cgroup.
        counted: Option<Counted>,
    },
    /// Answers [`Output::Measure`]: the procs that run.
    Measured {
        job: JobId,
        number: u64,
        procs: Vec<ProcUsage>,
        counted: Option<Counted>,
    },
    /// Answers [`Output::MeasureDaemon`]: the memory of this process in bytes, if it is known.
    DaemonMeasured {
        number: u64,
        memory: Option<u64>,
    },
    /// Answers [`Output::Syslog`].
    Syslogged {
        ticket: u64,
        result: Result<(), SyslogFailure>,
    },
    /// A process that a proc had left behind has exited.
    StrayExited,
    /// Answers [`Output::Files`]: the path of the directory, if it was made.
    FilesActed {
        job: JobId,
        result: Result<Option<OsString>, PreloadFailure>,
    },
    /// The time that [`Daemon::deadline`](super::Daemon::deadline) returned has passed.
    Tick,
    /// What a recorded rank has called last. It arrives before [`Self::Exited`], of ranks that have failed.
    LastCall {
        proc: ProcId,
        last: LastCall,
    },
}

/// How a proc has ended, and what it has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcEnd {
    pub status: ExitStatus,
    /// With the processes that it has started and waited for.
    pub used: Usage,
}

impl From<ExitStatus> for ProcEnd {
    fn from(status: ExitStatus) -> Self {
        let used = Usage::default();
        Self { status, used }
    }
}

/// An action for the caller to carry out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Output {
    Send(ToController),
    /// Prepare to start the programs of a job; each [`SpawnOrder`] refers to one of them by index.
    Prepare {
        job: JobId,
        apps: Vec<App>,
        /// Limits for all procs together.
        limits: ResourceLimits,
        recorder: Recorder,
        /// The job beside whose ranks the procs are, in a cgroup of their own.
        beside: Option<JobId>,
    },
    /// Start a proc. The answer is [`Input::Spawned`] or [`Input::SpawnFailed`], before any other input about that
    /// proc.
    Spawn(Box<SpawnOrder>),
    /// Send a signal to the whole process group of the proc.
    Signal {
        proc: ProcId,
        signal: Signal,
    },
    /// Find out what the procs of a job use, and answer with [`Input::Measured`].
    Measure {
        job: JobId,
        number: u64,
    },
    /// Find out how much memory this process uses, and answer with [`Input::DaemonMeasured`].
    MeasureDaemon {
        number: u64,
    },
    /// Send a line to the syslog of this node, and answer with [`Input::Syslogged`].
    Syslog {
        ticket: u64,
        line: SyslogLine,
    },
    /// Continue a held proc, unless a debugger is attached to it.
    Continue {
        proc: ProcId,
    },
    /// Stop reading a stream until [`Output::Resume`].
    Pause {
        proc: ProcId,
        stream: Stream,
    },
    Resume {
        proc: ProcId,
        stream: Stream,
    },
    /// Close our end of a stream that another process keeps open.
    CloseOutput {
        proc: ProcId,
        stream: Stream,
    },
    WriteStdin {
        proc: ProcId,
        bytes: Bytes,
    },
    /// Close the proc's stdin: after the bytes already written, the proc reads EOF.
    CloseStdin {
        proc: ProcId,
    },
    PmiSend {
        proc: ProcId,
        bytes: Vec<u8>,
    },
    PmiClose {
        proc: ProcId,
    },
    ClientSend {
        #[serde(with = "ConnForm")]
        conn: Conn,
        bytes: Bytes,
    },
    /// Close the connection after everything queued on it was sent.
    ClientClose {
        #[serde(with = "ConnForm")]
        conn: Conn,
    },
    /// Write a file whose path is passed to a proc that is started next, and make its missing directories.
    MakeFile {
        path: OsString,
        bytes: Bytes,
    },
    /// Create a directory whose path is passed to procs, and its missing parents.
    MakeDirectory {
        path: OsString,
    },
    /// Act on the directory of a job's preloaded files, and answer with [`Input::FilesActed`].
    Files {
        job: JobId,
        act: FileAct,
    },
    /// Remove these paths, which procs asked us to remove or a job does not need any more; a directory with everything in it.
    RemoveFiles {
        paths: Vec<OsString>,
    },
    Resize {
        proc: ProcId,
        size: WindowSize,
    },
    /// Send the signal, if any, to every process of the job that is not a proc, and answer which of them are alive.
    Sweep {
        job: JobId,
        signal: Option<Signal>,
    },
    /// Drop all state of this job.
    Forget {
        job: JobId,
    },
    /// Log a violation of the protocol by the controller or the caller. This is a bug of ours.
    Log(String),
}

/// Everything that is needed to start one proc, in addition to its [`App`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpawnOrder {
    pub proc: ProcId,
    /// Index into the apps of [`Output::Prepare`].
    pub app: u32,
    pub stdin: StreamPlan,
    pub stdout: StreamPlan,
    pub stderr: StreamPlan,
    /// Size of the terminal, for streams that are [`StreamPlan::Pty`].
    pub pty_size: Option<WindowSize>,
    /// Environment variables that differ by rank; they override those of the app.
    pub env: Vec<(String, OsString)>,
    /// PUs to bind the proc to; `None` if it is not bound.
    pub cpus: Option<CpuSet>,
    pub hold: HoldAt,
    pub pmi: PmiConnection,
}

/// Whether a proc gets a PMI connection, on [`PMI_DESCRIPTOR`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PmiConnection {
    Open,
    /// It is no rank.
    None,
}

/// Number of the descriptor on which a proc finds its PMI connection.
pub const PMI_DESCRIPTOR: i32 = 3;

/// The target of one stdio stream of a proc.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamPlan {
    Null,
    Pipe,
    /// For stdin only: every read fails.
    Unreadable,
    /// The slave side of the proc's own terminal.
    Pty,
    /// A terminal for this stream alone, without input.
    Lines(LineTerminal),
    /// A file, created if missing and appended to; a relative path starts at the app's directory.
    File(OsString),
    /// A file as in [`Self::File`], truncated first.
    NewFile(OsString),
    /// Whatever stdout is connected to.
    WithStdout,
}
