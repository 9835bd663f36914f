//! What comes of a search, in words.

use std::{fmt, io, net::SocketAddr};

use base::{Rank, RankSet};

use super::environment::Family;

/// How the ranks are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// The table of our own launcher.
    OwnTable { launcher: i32, job: Option<String> },
    /// The table of another launcher.
    Table {
        launcher: i32,
        program: String,
        /// The file that has the symbols: the program, or a library of it.
        file: String,
        job: Option<String>,
    },
    /// The launcher has answered.
    Pmix {
        launcher: i32,
        program: String,
        job: String,
    },
    /// Variables in their environment.
    Environment {
        variables: &'static str,
        /// The process that they are below; nothing where all processes were looked at.
        below: Option<i32>,
        job: Option<String>,
    },
    /// They were started by one process; the numbers are ours.
    Children { of: i32, program: String },
    /// The pattern for their names; `variables` is where the numbers are from, and if nothing, they are ours.
    Name {
        pattern: String,
        variables: Option<&'static str>,
    },
    /// It is a single process.
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
            Self::Environment {
                variables,
                below,
                job,
            } => {
                write!(f, "{variables} in the environment of ")?;
                match below {
                    Some(pid) => write!(f, "the processes below process {pid}")?,
                    None => write!(f, "your processes on this node")?,
                }
                of_job(f, job.as_deref())
            }
            Self::Children { of, program } => write!(
                f,
                "process {of} has started them, all `{program}`; the numbers are ours, by the time of their start"
            ),
            Self::Name {
                pattern,
                variables: Some(variables),
            } => write!(f, "the name `{pattern}`, numbered by {variables}"),
            Self::Name {
                pattern,
                variables: None,
            } => write!(
                f,
                "the name `{pattern}`; the numbers are ours, by the time of their start"
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

/// Why a launcher that may be a PMIx server has given no answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoAnswer {
    /// The user does not want it to be asked.
    NotAsked,
    /// It listens in a network of its own.
    OtherNetwork,
    /// No file of it says where it listens.
    NoFile,
    /// That file belongs neither to its user nor to root.
    Distrusted { file: String },
    /// That file cannot be read.
    Unreadable { file: String, why: io::ErrorKind },
    /// That file does not say what it should.
    Malformed { file: String },
    /// The connection failed.
    Socket {
        step: &'static str,
        address: SocketAddr,
        why: io::ErrorKind,
    },
    /// It did not answer before the deadline.
    Silent,
    /// It ended the connection.
    Lost,
    /// It answered with this status of PMIx.
    Refused { status: i32 },
    /// It has answered, and the process is part of none of its jobs.
    OtherJobs,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("not asked; `--ask-launcher` does"),
            Self::OtherNetwork => {
                f.write_str("it listens in another network namespace, and we cannot get there")
            }
            Self::NoFile => f.write_str("there is no file of it that says where it listens"),
            Self::Distrusted { file } => write!(f, "`{file}` does not belong to its user"),
            Self::Unreadable { file, why } => write!(f, "cannot read `{file}`: {why}"),
            Self::Malformed { file } => write!(f, "`{file}` does not say where it listens"),
            Self::Socket { step, address, why } => write!(f, "cannot {step} {address}: {why}"),
            Self::Silent => f.write_str("it did not answer in time"),
            Self::Lost => f.write_str("it ended the connection"),
            Self::Refused { status } => write!(f, "it refuses to say (PMIx status {status})"),
            Self::OtherJobs => f.write_str("it knows no job of which the process is a part"),
        }
    }
}

/// A way that did not lead to the ranks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tried {
    /// None of these processes has the symbols.
    NoTable { looked_at: usize },
    /// It has the symbols, and no rows.
    EmptyTable {
        launcher: i32,
        program: String,
        state: i32,
    },
    /// It has the symbols, and what they lead to is no table.
    BrokenTable { launcher: i32, program: String },
    /// Its memory may not be read.
    Unreadable { pid: i32, program: String },
    /// A table that does not have the process that was named.
    OthersTable { launcher: i32, program: String },
    /// It might have answered as a PMIx server.
    NoAnswer {
        launcher: i32,
        program: String,
        why: NoAnswer,
    },
    /// No process below it has a variable that says its rank.
    NoVariables { below: i32 },
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTable { looked_at } => {
                let processes = count(*looked_at, "process", "processes");
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
                "the table for debuggers of `{program}`, process {launcher}: it cannot be read where it should be"
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
                "the environment of the processes below process {below}: none has {}",
                Family::all_variables()
            ),
        }
    }
}

/// What may be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Several processes say that they are this rank.
    SameRank { rank: Rank, kept: i32, other: i32 },
    /// Processes of the table are not there; `pid` is that of the first of these ranks.
    Gone { ranks: RankSet, pid: i32 },
    /// Nothing shows that the processes of these numbers belong to the job; `pid` is that of the first of these ranks.
    Unproved { ranks: RankSet, pid: i32 },
    /// The launcher's table was empty, so that it looks like a lone process.
    NotStarted { launcher: i32 },
    /// Environments that may not be read.
    Hidden { processes: usize },
    /// The process that was named is below a rank.
    BelowRank { rank: Rank, pid: i32 },
    /// There are more than can be kept.
    TooMany { left_out: usize },
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameRank { rank, kept, other } => write!(
                f,
                "processes {kept} and {other} both say that they are rank {rank}; {kept} is older and was taken"
            ),
            Self::Gone { ranks, pid } if ranks.len() == 1 => write!(
                f,
                "rank {ranks} should be process {pid}, and there is none of that number"
            ),
            Self::Gone { ranks, pid } => write!(
                f,
                "of ranks {ranks} there are no processes of the numbers that the launcher has for them ({pid} for the first)"
            ),
            Self::Unproved { ranks, pid } if ranks.len() == 1 => write!(
                f,
                "rank {ranks} is process {pid} for its launcher, and nothing shows which process here that is: it is left alone"
            ),
            Self::Unproved { ranks, pid } => write!(
                f,
                "the launcher has process numbers for ranks {ranks} ({pid} for the first), and nothing shows which processes here \
                 they are: they are left alone"
            ),
            Self::NotStarted { launcher } => write!(
                f,
                "process {launcher} is a launcher that has not started its ranks yet; what is shown is the launcher itself"
            ),
            Self::Hidden { processes } => {
                let processes = count(*processes, "process", "processes");
                write!(
                    f,
                    "the environment of {processes} may not be read; ranks may be among them"
                )
            }
            Self::BelowRank { rank, pid } => write!(
                f,
                "process {pid} is no rank, it was started by rank {rank}; what is shown is the job"
            ),
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

/// What else there is to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Of these ranks what was started is a wrapper, and its only child was taken.
    Wrapped { ranks: usize, wrapper: String },
    /// The launcher is not the process that was named.
    Launcher { pid: i32, program: String },
    /// The launcher is in a pid namespace of its own, so that its numbers are not those of this node.
    Contained { launcher: i32 },
    /// Another job of the same launcher.
    OtherJob { job: String, ranks: usize },
    /// Another launcher below the process that was named.
    OtherLauncher {
        pid: i32,
        program: String,
        ranks: usize,
    },
    /// Children with other programs, which were left out.
    OtherChildren { program: String, processes: usize },
    /// Fewer ranks were found than the job has.
    Fewer { found: usize, size: usize },
    /// So many ranks are on other nodes.
    Elsewhere { ranks: usize },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrapped { ranks, wrapper } => write!(
                f,
                "{} started by `{wrapper}`, which only waits; its child was taken",
                count(*ranks, "rank was", "ranks were")
            ),
            Self::Launcher { pid, program } => {
                write!(f, "the launcher is process {pid}, `{program}`")
            }
            Self::Contained { launcher } => write!(
                f,
                "process {launcher}, the launcher, numbers processes as its container does; the numbers here are those of this node"
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
                "{} on other nodes, which this version does not reach",
                count(*ranks, "rank is", "ranks are")
            ),
        }
    }
}

/// Why nothing was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// There is no process of this number.
    NoProcess { pid: i32 },
    /// It is a thread of the kernel.
    Kernel { pid: i32 },
    /// It has ended and waits for its parent.
    Ended { pid: i32 },
    /// It may not be looked at.
    NotPermitted { pid: i32 },
    /// No process has this job in its environment.
    NoJob { name: String },
    /// No process of the user has such a name.
    NoName { pattern: String },
}

pub(super) fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 {
        format!("1 {one}")
    } else {
        format!("{number} {many}")
    }
}
