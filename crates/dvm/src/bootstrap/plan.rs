//! The plan of a start: the commands, and what all daemons have in common.

use std::{ffi::OsString, num::NonZeroU32, os::unix::ffi::OsStrExt as _, time::Duration};

use base::{HostList, NodeId};
use serde::{Deserialize, Serialize};

use super::{COUNT_WORD, HOST_WORD, HOSTS_WORD, JOB_WORD};

/// Least number of nodes for which daemons start others, by default.
pub const TREE_START_MIN: u32 = 128;

/// How the daemons of the other nodes are started and connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonPlan {
    /// Index of the node whose daemon is part of the controller's own process.
    pub local: Option<NodeId>,
    pub commands: Vec<StartCommand>,
    /// Path of our program on this node. Other nodes may have the same file.
    pub program: OsString,
    /// The argument with which it runs on other nodes.
    pub argument: String,
    /// Environment of the commands: `NAME=value`.
    pub environment: Vec<OsString>,
    /// Maximum number of children of a daemon.
    pub radix: NonZeroU32,
    /// Lowest and highest port for connections between nodes. `None`: the kernel chooses.
    pub ports: Option<(u16, u16)>,
    /// Names or addresses of the network interfaces to use; all if it is empty.
    pub interfaces: Vec<String>,
    /// Whether the daemons stand for nodes on one host.
    pub hosting: Hosting,
    /// The lease and the reconnect window of links.
    pub lease: Duration,
    pub window: Duration,
    pub tree_start: TreeStart,
    /// How nodes are started that are not in the plan; `None` if there are never any.
    pub late: Option<Box<LateStart>>,
}

/// Nodes to start beside those of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addition {
    /// Their numbers follow those of all nodes before.
    pub nodes: Vec<(NodeId, String)>,
    /// Variables of the commands, `NAME=value`, in place of those of the plan with the same names.
    pub environment: Vec<OsString>,
    /// The job of Slurm whose nodes they are, if it is not the one in which we run.
    pub slurm_job: Option<u32>,
}

/// How nodes are started that are not in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LateStart {
    /// Nodes that a machine gets while it runs: each by a command of its own.
    OfMachine {
        /// The command without a node. [`HOST_WORD`] stands for the name of the node.
        command: StartCommand,
        /// The name of the controller's host, and the command that starts our program there.
        here: String,
        command_here: StartCommand,
    },
    /// Nodes of other jobs of Slurm: those of a job by one command. [`JOB_WORD`], [`COUNT_WORD`] and [`HOSTS_WORD`] stand for the number of
    /// the job, and for the number and the names of its nodes.
    OfSlurm {
        command: StartCommand,
        /// Environment of the command, in place of that of the plan: `NAME=value`.
        environment: Vec<OsString>,
    },
}

impl LateStart {
    /// Returns the commands for further nodes.
    #[must_use]
    pub fn commands_for(&self, addition: &Addition) -> Vec<StartCommand> {
        let nodes = &addition.nodes;
        match self {
            Self::OfMachine {
                command,
                here,
                command_here,
            } => {
                let command = |(node, host): &(NodeId, String)| {
                    let command = if host == here { command_here } else { command };
                    filled(command, vec![*node], &[(HOST_WORD, host)])
                };
                nodes.iter().map(command).collect()
            }
            Self::OfSlurm { command, .. } => {
                let hosts: HostList = nodes.iter().map(|(_, host)| host).collect();
                let job = addition.slurm_job.unwrap_or_default();
                let words = [
                    (JOB_WORD, job.to_string()),
                    (COUNT_WORD, nodes.len().to_string()),
                    (HOSTS_WORD, hosts.to_string()),
                ];
                let words = words.each_ref().map(|(word, text)| (*word, text.as_str()));
                let ids = nodes.iter().map(|(node, _)| *node).collect();
                vec![filled(command, ids, &words)]
            }
        }
    }
}

/// Returns the command for these nodes, with the words that stand for others replaced.
fn filled(command: &StartCommand, nodes: Vec<NodeId>, replaced: &[(&str, &str)]) -> StartCommand {
    let text = |word: &str| {
        let words = replaced.iter();
        words.fold(word.to_owned(), |word, (from, to)| word.replace(from, to))
    };
    let filled = |word: &OsString| match word.to_str() {
        Some(word) => text(word).into(),
        // It is a path of ours.
        None => word.clone(),
    };
    let all = |words: &[OsString]| words.iter().map(filled).collect();
    let delivery = match &command.delivery {
        Delivery::Checked { shell } => Delivery::Checked {
            shell: shell.iter().map(|word| text(word)).collect(),
        },
        other => other.clone(),
    };
    StartCommand {
        argv: all(&command.argv),
        nodes,
        delivery,
        check: all(&command.check),
        prompting: command.prompting,
        elsewhere: None,
    }
}

impl DaemonPlan {
    /// Replaces variables of the commands by others of the same names.
    pub(super) fn renew_environment(&mut self, variables: Vec<OsString>) {
        let name = |entry: &OsString| -> Vec<u8> {
            let mut parts = entry.as_bytes().split(|byte| *byte == b'=');
            parts.next().unwrap_or_default().to_vec()
        };
        for variable in variables {
            let replaced = name(&variable);
            self.environment.retain(|entry| name(entry) != replaced);
            self.environment.push(variable);
        }
    }

    /// Returns true if daemons that have joined start others: the list is long enough, and every command can run at a daemon.
    #[must_use]
    pub fn starts_in_tree(&self) -> bool {
        let is_long = match self.tree_start {
            TreeStart::Never => false,
            TreeStart::From(nodes) => self.commands.len() >= nodes as usize,
        };
        is_long && self.commands.iter().all(StartCommand::can_run_elsewhere)
    }
}

/// Whether daemons start the daemons of other nodes (*tree start*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeStart {
    Never,
    /// If at least so many nodes are to be started.
    From(u32),
}

/// Whether a daemon has its host for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hosting {
    Alone,
    /// Several daemons stand for nodes on one host, so that no processor is theirs alone.
    Shared,
}

/// A command that starts daemons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartCommand {
    pub argv: Vec<OsString>,
    pub nodes: Vec<NodeId>,
    pub delivery: Delivery,
    /// A command by which a user can check that the first of the nodes is reachable; empty if there is none.
    pub check: Vec<OsString>,
    pub prompting: Prompting,
    /// The command for the same node at a daemon of another node; `None` if only the head can run it.
    pub elsewhere: Option<Vec<OsString>>,
}

impl StartCommand {
    /// Returns true if a daemon can run the command: it gives us a shell on one node, and nothing has to be prepared for it.
    fn can_run_elsewhere(&self) -> bool {
        self.delivery == Delivery::Staged && self.nodes.len() == 1 && self.elsewhere.is_some()
    }
}

/// Whether a start command may ask the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Prompting {
    /// It runs our program to ask, as ssh does, and the front asks on its terminal ([`crate::prompts`]).
    OnTerminal,
    Never,
}

/// How a daemon gets its program and its boot frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delivery {
    /// The command runs our program, which reads the frame from standard input.
    Direct,
    /// The command runs the words that follow it on each of its nodes, which share its standard input. They are `/bin/sh` and a
    /// script, which executes our program if the node has it. Nodes that do not have it get it through commands of their own.
    Checked {
        /// The command that runs `/bin/sh` on one node, with a standard input of its own. [`HOST_WORD`] stands for its name.
        shell: Vec<String>,
    },
    /// The command runs `/bin/sh`, which reads a script from standard input, and after it the program, if it is missing.
    Staged,
    /// The command runs our program and gives it no standard input. The frame is in a file that is removed when it is read;
    /// `{file}` in the command stands for its path.
    File,
}
