//! `cargo xtask cluster`: a cluster of namespaces on one machine, for tests and benchmarks of several nodes.
//!
//! Each node has its own network, host name, mounts (an empty home, `/run`, `/tmp`, `/var/tmp` and `/dev/shm`), System V IPC and
//! sshd. The *head* is one more such node, without sshd, on which `rally` is started. It shares the home with the machine, except
//! for `~/.ssh`. A bridge in the head's network connects the nodes and the head. All nodes share a copy of `/etc`. So the network
//! of the machine, and its files except the home, are neither changed nor visible in the cluster, and clusters do not see each
//! other.
//!
//! The pid namespace of the head contains those of the nodes. A check for leftover processes on the head therefore sees the processes
//! of all nodes, and no others. Each node has pids of its own, and a process of a node has another pid on the head, and another one on
//! the machine. The first process of the head is `init`: with its death the kernel kills all processes of the cluster, and removes
//! its namespaces, interfaces and mounts. So `down` only kills this one process, and removes one directory, `target/cluster/NAME`.
//! A cluster that belongs to another process, as in `with`, ends with that process, because `init` waits for the end of a pipe.
//!
//! | module | content |
//! |---|---|
//! | `plan` | names, addresses and configuration files as text |
//! | `bed` | a cluster seen from outside: creating, finding, entering and removing it |
//! | `init`, `node` | the first process of a cluster, and the holder of each node |
//! | `faults` | random faults while jobs run |
//! | `mounts`, `network` | private directories; the bridge, cables and rules |
//! | `relay` | signals and exit status of a command in the cluster |

mod bed;
mod faults;
mod init;
mod mounts;
mod network;
mod node;
mod plan;
mod relay;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Result, bail};
use nix::unistd::geteuid;

use self::{
    bed::{Bed, Owned},
    network::{Dropped, Link},
    plan::{NODES_MAX, Node, Plan},
    relay::Patience,
};
use crate::env::{root, which, works};

/// Time for the command of `with` to end after a signal. Then the cluster is removed, which kills the command.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the cluster, if there are several [default: one for each checkout, and one for each `with`]
    #[arg(long, global = true)]
    name: Option<String>,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Creates a cluster with the given number of nodes: `n1`, `n2` and so on.
    Up {
        nodes: u32,
        /// Also starts slurmctld on the head, and slurmd on each node.
        #[arg(long)]
        slurm: bool,
    },
    /// Runs a command on a node, or on `head`, with our stdin, stdout, stderr, signals and exit status.
    Exec {
        node: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// Creates a cluster, runs a command on its head, and removes the cluster.
    With {
        nodes: u32,
        /// Also starts slurmctld on the head, and slurmd on each node.
        #[arg(long)]
        slurm: bool,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// Disconnects a node from the network, as if its cable were pulled.
    Cut { node: String },
    /// Lets a node drop packets silently, as a firewall does. Several calls add up.
    Drop {
        node: String,
        #[command(flatten)]
        packets: Packets,
    },
    /// Reconnects a node to the network, and ends all dropping of packets.
    Restore { node: String },
    /// Lets random processes, cables and nodes fail while jobs run on a cluster of 8 nodes, and checks what follows.
    Faults(faults::Args),
    /// Lists the nodes with their addresses and services. Fails if the cluster is not up.
    Status,
    /// Removes the cluster, if there is one.
    Down,
    /// The first process of a cluster.
    #[command(hide = true)]
    Init(Own),
    /// The holder of a node.
    #[command(hide = true)]
    Node {
        #[command(flatten)]
        own: Own,
        node: String,
    },
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Packets {
    /// From and to this TCP or UDP port of the node.
    #[arg(long)]
    port: Option<u16>,
    /// All that leave or enter the node.
    #[arg(long)]
    all: bool,
}

/// Arguments of our own processes in the cluster.
#[derive(Debug, clap::Args)]
struct Own {
    #[arg(long)]
    nodes: u32,
    #[arg(long)]
    slurm: bool,
    #[arg(long)]
    directory: PathBuf,
}

/// Returns the arguments with which this program becomes `process` of a cluster.
fn words_for(plan: &Plan, process: &str, directory: &Path) -> Vec<String> {
    let (nodes, directory) = (plan.nodes.to_string(), directory.display().to_string());
    let words = [
        "cluster",
        "--name",
        &plan.name,
        process,
        "--nodes",
        &nodes,
        "--directory",
        &directory,
    ];
    let slurm = plan.slurm.then_some("--slurm");
    words.into_iter().chain(slurm).map(str::to_owned).collect()
}

/// Programs without which no cluster is possible.
const NEEDED: [&str; 8] = [
    "ip",
    "unshare",
    "nsenter",
    "setpriv",
    "ssh",
    "ssh-keygen",
    "sshd",
    "nft",
];
/// Programs of Slurm.
const NEEDED_BY_SLURM: [&str; 5] = ["munged", "slurmctld", "slurmd", "srun", "sinfo"];

/// Returns an error with the reason if no cluster with Slurm is possible here.
pub(crate) fn is_possible() -> Result<()> {
    check(NEEDED.into_iter().chain(NEEDED_BY_SLURM))
}

fn check(needed: impl IntoIterator<Item = &'static str>) -> Result<()> {
    if !geteuid().is_root() {
        bail!("only root can make namespaces: run this as root");
    }
    if let Some(missing) = needed.into_iter().find(|program| which(program).is_none()) {
        bail!("`{missing}` is not installed: `cargo xtask test --only install` installs it");
    }
    let spaces = [
        "--pid", "--fork", "--net", "--uts", "--mount", "--ipc", "true",
    ];
    if !works(Command::new("unshare").args(spaces)) {
        bail!("this machine does not permit new namespaces");
    }
    Ok(())
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => plan::default_name(&root()),
    };
    plan::check_name(&name)?;
    match &args.what {
        What::Up { nodes, slurm } => up(name, *nodes, *slurm)?.disown()?,
        What::Exec { node, command } => {
            return exec(&bed::find(&name)?, Node::named(node)?, command);
        }
        What::With {
            nodes,
            slurm,
            command,
        } => {
            let name = args.name.clone().unwrap_or_else(own_name);
            return with(up(name, *nodes, *slurm)?, command);
        }
        What::Cut { node } => bed::find(&name)?.set_link(Node::named(node)?, Link::Down)?,
        What::Drop { node, packets } => {
            let dropped = packets.port.map_or(Dropped::All, Dropped::Port);
            bed::find(&name)?.drop_packets(Node::named(node)?, dropped)?;
        }
        What::Restore { node } => bed::find(&name)?.restore(Node::named(node)?)?,
        What::Faults(args) if bed::is_inside() => return faults::run_inside(args),
        What::Faults(args) => return with(up(own_name(), faults::nodes(), false)?, &args.words()?),
        What::Status => print!("{}", bed::find(&name)?.status()?),
        What::Down => bed::down(&name)?,
        What::Init(own) => init::run(&own.plan(name), &own.directory)?,
        What::Node { own, node } => node::run(&own.plan(name), Node::named(node)?, &own.directory)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Own {
    const fn plan(&self, name: String) -> Plan {
        Plan {
            name,
            nodes: self.nodes,
            slurm: self.slurm,
        }
    }
}

/// Returns a name for a cluster of this process, which does not collide with the cluster of the checkout.
fn own_name() -> String {
    format!("{}-{}", plan::default_name(&root()), std::process::id())
}

fn up(name: String, nodes: u32, slurm: bool) -> Result<Owned> {
    if nodes == 0 || nodes > NODES_MAX {
        bail!("a cluster has 1 to {NODES_MAX} nodes");
    }
    let more: &[&str] = if slurm { &NEEDED_BY_SLURM } else { &[] };
    check(NEEDED.iter().chain(more).copied())?;
    bed::create(&Plan { name, nodes, slurm })
}

fn exec(bed: &Bed, node: Node, words: &[String]) -> Result<ExitCode> {
    let mut command = bed.direct_command(node, words)?;
    match relay::run(&mut command, Patience::Unlimited)? {
        Some(status) => relay::imitate(status),
        None => bail!("{words:?} did not end"),
    }
}

fn with(owned: Owned, words: &[String]) -> Result<ExitCode> {
    let mut command = owned.bed().direct_command(Node::Head, words)?;
    let ended = relay::run(&mut command, Patience::For(GRACE));
    owned.down()?;
    match ended? {
        Some(status) => relay::imitate(status),
        None => bail!(
            "{words:?} did not end within {} s after a signal",
            GRACE.as_secs()
        ),
    }
}

/// A cluster with Slurm, which is removed on drop.
#[derive(Debug)]
pub(crate) struct Cluster {
    owned: Owned,
}

impl Cluster {
    pub(crate) fn up(nodes: u32) -> Result<Self> {
        let owned = up(own_name(), nodes, true)?;
        Ok(Self { owned })
    }

    /// Returns the pids of all processes of the cluster, as the machine sees them.
    pub(crate) fn pids(&self) -> BTreeSet<i32> {
        self.owned.bed().pids()
    }

    /// Returns a command that runs `words` on the head.
    pub(crate) fn command(&self, words: &[String]) -> Result<Command> {
        self.owned.bed().command(Node::Head, words)
    }
}
