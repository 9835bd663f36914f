//! The results of a search, and their texts for the user.

use std::{collections::BTreeMap, fmt, io, net::SocketAddr};

use base::{HostList, Rank, RankSet};

use super::environment::Family;

/// How the ranks were identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// By the table of `rally`.
    OwnTable { launcher: i32, job: Option<String> },
    /// By the table of another launcher.
    Table {
        launcher: i32,
        program: String,
        /// The file that contains the symbols: the program, or one of its libraries.
        file: String,
        job: Option<String>,
    },
    /// By the launcher's answer to a PMIx query.
    Pmix {
        launcher: i32,
        program: String,
        job: String,
    },
    /// By the searches of agents on several nodes.
    Nodes {
        /// What was searched for: a name or a job.
        wish: String,
        /// The number of nodes.
        nodes: usize,
        /// The source of the rank numbers; if `None`, we number the processes.
        variables: Option<String>,
        job: Option<String>,
    },
    /// By variables in the environment of the ranks.
    Environment {
        variables: &'static str,
        /// The pid whose descendants were searched; `None` if all processes were searched.
        below: Option<i32>,
        job: Option<String>,
    },
    /// As children of one process; we number them.
    Children { of: i32, program: String },
    /// By a pattern for their names. `variables` is the source of the rank numbers; if `None`, we number them.
    Name {
        pattern: String,
        variables: Option<&'static str>,
        /// The name of the job that all of them belong to; `None` if unknown.
        job: Option<String>,
    },
    /// As a single process, which is not part of a job.
    Alone,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnTable { launcher, job } => {
                write!(f, "the table of `rally`, process {launcher}")?;
                of_job(f, job.as_deref())
            }
            Self::Table {
                launcher,
                program,
                file,
                job,
            } => {
                write!(
                    f,
                    "the table for debuggers (`MPIR_proctable`) of `{program}`, process {launcher}, read from its memory"
                )?;
                if file != program {
                    write!(f, "; it is in `{file}`")?;
                }
                of_job(f, job.as_deref())
            }
            Self::Pmix {
                launcher,
                program,
                job,
            } => write!(
                f,
                "the answer of `{program}`, process {launcher}, as a PMIx server: job `{job}`"
            ),
            Self::Nodes {
                wish,
                nodes,
                variables,
                ..
            } => {
                let nodes = count(*nodes, "node", "nodes");
                write!(f, "a search for `{wish}` on {nodes}")?;
                match variables {
                    Some(variables) => write!(f, ", numbered by {variables}"),
                    None => f.write_str(
                        "; `dbgr` numbered the processes node by node, in the order of their start",
                    ),
                }
            }
            Self::Environment {
                variables,
                below,
                job,
            } => {
                write!(f, "{variables} in the environment of ")?;
                match below {
                    Some(pid) => write!(f, "the descendants of process {pid}")?,
                    None => write!(f, "your processes on this node")?,
                }
                of_job(f, job.as_deref())
            }
            Self::Children { of, program } => write!(
                f,
                "process {of} started them, all `{program}`; `dbgr` numbered them in the order of their start"
            ),
            Self::Name {
                pattern,
                variables: Some(variables),
                job,
            } => {
                write!(f, "the name `{pattern}`, numbered by {variables}")?;
                of_job(f, job.as_deref())
            }
            Self::Name {
                pattern,
                variables: None,
                ..
            } => write!(
                f,
                "the name `{pattern}`; `dbgr` numbered the processes in the order of their start"
            ),
            Self::Alone => write!(f, "nothing makes it part of a job: it is rank 0"),
        }
    }
}

fn of_job(f: &mut fmt::Formatter<'_>, job: Option<&str>) -> fmt::Result {
    match job {
        Some(job) => write!(f, ": job `{job}`"),
        None => Ok(()),
    }
}

/// Why a launcher that may be a PMIx server gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoAnswer {
    /// The user has not allowed us to ask it.
    NotAsked,
    /// It listens in another network namespace.
    OtherNetwork,
    /// It has no rendezvous file that contains its address.
    NoFile,
    /// The rendezvous file belongs neither to the launcher's user nor to root.
    Distrusted { file: String },
    /// The rendezvous file cannot be read.
    Unreadable { file: String, why: io::ErrorKind },
    /// The rendezvous file does not contain an address.
    Malformed { file: String },
    /// The connection failed.
    Socket {
        step: &'static str,
        address: SocketAddr,
        why: io::ErrorKind,
    },
    /// It did not answer before the deadline.
    Silent,
    /// It closed the connection.
    Lost,
    /// It answered with this PMIx status.
    Refused { status: i32 },
    /// It answered, but the process is not part of any of its jobs.
    OtherJobs,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("not asked; `--ask-launcher` asks it"),
            Self::OtherNetwork => {
                f.write_str("it listens in another network namespace, which `dbgr` cannot reach")
            }
            Self::NoFile => f.write_str("no file says where it listens"),
            Self::Distrusted { file } => write!(f, "`{file}` does not belong to its user"),
            Self::Unreadable { file, why } => write!(f, "cannot read `{file}`: {why}"),
            Self::Malformed { file } => write!(f, "`{file}` does not say where it listens"),
            Self::Socket { step, address, why } => write!(f, "cannot {step} {address}: {why}"),
            Self::Silent => f.write_str("it did not answer in time"),
            Self::Lost => f.write_str("it ended the connection"),
            Self::Refused { status } => write!(f, "it refuses to say (PMIx status {status})"),
            Self::OtherJobs => f.write_str("it knows no job that the process belongs to"),
        }
    }
}

/// An attempt that did not find the ranks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tried {
    /// None of `searched` processes has the MPIR symbols.
    NoTable { searched: usize },
    /// The process has the symbols, but its table has no rows.
    EmptyTable {
        launcher: i32,
        program: String,
        state: i32,
    },
    /// The process has the symbols, but they do not lead to a valid table.
    BrokenTable { launcher: i32, program: String },
    /// The memory of the process may not be read.
    Unreadable { pid: i32, program: String },
    /// The table of this launcher does not contain the process that the user named.
    OthersTable { launcher: i32, program: String },
    /// The process may be a PMIx server, but gave no usable answer.
    NoAnswer {
        launcher: i32,
        program: String,
        why: NoAnswer,
    },
    /// No descendant of the process has a variable with a rank.
    NoVariables { below: i32 },
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTable { searched } => {
                let processes = count(*searched, "process", "processes");
                write!(f, "a table for debuggers (MPIR): none in {processes}")
            }
            Self::EmptyTable {
                launcher,
                program,
                state,
            } => {
                write!(
                    f,
                    "the table for debuggers of `{program}`, process {launcher}, is empty"
                )?;
                match state {
                    2 => write!(f, ", and the job is being ended"),
                    _ => write!(
                        f,
                        ": its ranks have not started, or not all have called `MPI_Init`"
                    ),
                }
            }
            Self::BrokenTable { launcher, program } => write!(
                f,
                "the table for debuggers of `{program}`, process {launcher}: its memory cannot be read"
            ),
            Self::Unreadable { pid, program } => write!(
                f,
                "a table for debuggers of `{program}`, process {pid}: its memory may not be read"
            ),
            Self::OthersTable { launcher, program } => write!(
                f,
                "the table for debuggers of `{program}`, process {launcher}: the process is not in it"
            ),
            Self::NoAnswer {
                launcher,
                program,
                why,
            } => write!(
                f,
                "`{program}`, process {launcher}, as a PMIx server: {why}"
            ),
            Self::NoVariables { below } => write!(
                f,
                "the environment of the descendants of process {below}: none has {}",
                Family::all_variables()
            ),
        }
    }
}

/// A possible error in the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Several processes claim this rank.
    SameRank { rank: Rank, kept: i32, other: i32 },
    /// The processes of these ranks do not exist; `pid` is that of the first of these ranks.
    Gone { ranks: RankSet, pid: i32 },
    /// Nothing shows which processes these ranks are; `pid` is the launcher's pid of the first of them.
    Unproved { ranks: RankSet, pid: i32 },
    /// The launcher's table is empty, so the launcher itself is shown as a single process.
    NotStarted { launcher: i32 },
    /// The process that the user named is a descendant of a rank.
    BelowRank { rank: Rank, pid: i32 },
    /// No agent has searched these nodes, for this reason.
    NotSearched { nodes: HostList, why: String },
    /// The job has more processes than [`MAX_RANKS`](super::MAX_RANKS).
    TooMany { left_out: usize },
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameRank { rank, kept, other } => write!(
                f,
                "processes {kept} and {other} both claim to be rank {rank}; `dbgr` takes {kept}, which is older"
            ),
            Self::Gone { ranks, pid } if ranks.len() == 1 => write!(
                f,
                "rank {ranks} should be process {pid}, but there is no such process"
            ),
            Self::Gone { ranks, pid } => write!(
                f,
                "ranks {ranks} should be processes that do not exist ({pid} is the first)"
            ),
            Self::Unproved { ranks, pid } if ranks.len() == 1 => write!(
                f,
                "the launcher knows rank {ranks} as process {pid}, but nothing shows which process on this node that is: the rank is skipped"
            ),
            Self::Unproved { ranks, pid } => write!(
                f,
                "the launcher has process numbers for ranks {ranks} ({pid} is the first), but nothing shows which processes on this \
                 node they are: the ranks are skipped"
            ),
            Self::NotStarted { launcher } => write!(
                f,
                "process {launcher} is a launcher that has not started its ranks yet; the launcher itself is shown"
            ),
            Self::BelowRank { rank, pid } => write!(
                f,
                "process {pid} is not a rank; rank {rank} started it, and the job of that rank is shown"
            ),
            Self::NotSearched { nodes, why } => {
                write!(f, "{nodes} could not be searched: {why}")
            }
            Self::TooMany { left_out } => {
                write!(
                    f,
                    "{} left out",
                    count(*left_out, "process was", "processes were")
                )
            }
        }
    }
}

/// Further information for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// These ranks are wrappers, whose only child is shown.
    Wrapped { ranks: usize, wrapper: String },
    /// The launcher is not the process that the user named.
    Launcher { pid: i32, program: String },
    /// The launcher is in another pid namespace, so its pids differ from those of this node.
    Contained { launcher: i32 },
    /// The launcher has another job.
    OtherJob { job: String, ranks: usize },
    /// The named process has another launcher among its descendants.
    OtherLauncher {
        pid: i32,
        program: String,
        ranks: usize,
    },
    /// Children that execute another program were left out.
    OtherChildren { program: String, processes: usize },
    /// Fewer ranks were found than the job has.
    Fewer { found: usize, size: usize },
    /// This many ranks are on other nodes.
    Elsewhere { ranks: usize },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrapped { ranks, wrapper } => write!(
                f,
                "{} started by `{wrapper}`, which only waits; `dbgr` takes its child",
                count(*ranks, "rank was", "ranks were")
            ),
            Self::Launcher { pid, program } => {
                write!(f, "the launcher is process {pid}, `{program}`")
            }
            Self::Contained { launcher } => write!(
                f,
                "the launcher, process {launcher}, uses the process numbers of its container; the numbers here are those of this node"
            ),
            Self::OtherJob { job, ranks } => write!(
                f,
                "there is another job, `{job}`, with {}: `dbgr stacks {job}`",
                count(*ranks, "rank", "ranks")
            ),
            Self::OtherLauncher {
                pid,
                program,
                ranks,
            } => write!(
                f,
                "there is another launcher, `{program}`, with {}: `dbgr stacks {pid}`",
                count(*ranks, "rank", "ranks")
            ),
            Self::OtherChildren { program, processes } => write!(
                f,
                "left out: {} of `{program}`",
                count(*processes, "process", "processes")
            ),
            Self::Fewer { found, size } => write!(
                f,
                "the job has {}; {found} of them {} on this node",
                count(*size, "rank", "ranks"),
                if *found == 1 { "lives" } else { "live" }
            ),
            Self::Elsewhere { ranks } => write!(
                f,
                "{} on other nodes, where `dbgr` starts an agent",
                count(*ranks, "rank is", "ranks are")
            ),
        }
    }
}

/// Why nothing was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// There is no process with this pid.
    NoProcess { pid: i32 },
    /// The pid is a kernel thread.
    Kernel { pid: i32 },
    /// The process has exited, and its parent has not reaped it.
    Ended { pid: i32 },
    /// We may not read the process.
    NotPermitted { pid: i32 },
    /// No process has this job in its environment.
    NoJob { name: String },
    /// No process of the user has a matching name.
    NoName { pattern: String },
    /// A pid was given for several nodes, and means another process on each.
    PidOnNodes { pid: i32 },
    /// Processes of several jobs have the name. The nodes are those that have ranks of the job.
    SeveralJobs {
        wish: String,
        jobs: BTreeMap<String, HostList>,
    },
    /// No node has found the job or the name; the doubts are about nodes that were not searched.
    Nodes {
        wish: String,
        nodes: HostList,
        doubts: Vec<Doubt>,
    },
}

pub(super) fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 {
        format!("1 {one}")
    } else {
        format!("{number} {many}")
    }
}
