//! The failures of a start, in classes: nodes that failed alike are one entry of a message.

use std::collections::{BTreeMap, BTreeSet};

use base::{HostList, NodeId};
use serde::{Deserialize, Serialize};

use super::{Bootstrap, Command, CommandId, OnFailure, Output, StartCommand, State, stage};

/// Nodes whose daemons did not join, in classes of equal reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotJoined {
    pub classes: Vec<NotJoinedClass>,
    /// Number of nodes that were to be started.
    pub nodes: u32,
    /// Number of nodes that did join.
    pub joined: u32,
}

/// Nodes that failed for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotJoinedClass {
    pub hosts: HostList,
    pub reason: Reason,
    /// What the node has tried in vain: directories for the program, or addresses of the launcher, each with the result.
    pub tried: Vec<String>,
    /// The program that was to start the daemon, without its directory.
    pub program: String,
    /// A command for the user to try, with the first of these nodes; empty if there is none.
    pub check: Vec<String>,
    /// The last lines that it printed. If other nodes may have failed alike, the name of the node is replaced by `HOST`.
    pub printed: Vec<String>,
    /// The nodes whose daemons had tried to start these nodes before the head did.
    pub failed_at: HostList,
}

/// Why a daemon did not join.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Reason {
    NotStarted(String),
    Exited(u8),
    Killed(i32),
    /// The node's shell has not answered.
    NoAnswer {
        seconds: u64,
    },
    /// The node takes no more of the program.
    NotTaken {
        seconds: u64,
    },
    /// The daemon has not connected, and its command still runs.
    Late {
        seconds: u64,
    },
    /// The daemon has found no way to the launcher.
    CannotConnect,
    /// No directory of the node takes the program.
    NoPlace,
    /// The node is of another kind: the name of its kernel and its machine.
    OtherSystem(String),
    /// The daemon says why it cannot run on its node.
    Refused(String),
}

/// The words with which a process says that it cannot listen: the range of ports follows.
pub const NO_PORT: &str = "no port is free in";

/// What nodes of one class have in common: the reason, what they have tried, and what was printed.
type Key<'a> = (&'a Reason, &'a [String], Vec<String>);

impl Bootstrap {
    /// Reports the failures once every other command has failed too, or its daemons have joined.
    pub(super) fn report_if_complete(&mut self) {
        let mut commands = self.commands.iter();
        if !commands.any(|command| command.state.is_starting()) {
            self.report();
        }
    }

    pub(super) fn report(&mut self) {
        self.report_at = None;
        let failed = match self.on_failure {
            OnFailure::GoOnTogether => {
                let unreported = std::mem::take(&mut self.unreported);
                self.failures(unreported)
            }
            OnFailure::ReportAll | OnFailure::GoOn => {
                if std::mem::replace(&mut self.is_reported, true) {
                    return;
                }
                self.failures(0..u32::try_from(self.commands.len()).unwrap_or(u32::MAX))
            }
        };
        self.outputs.push_back(Output::Failed(failed));
    }

    /// Returns those of these commands that have failed, in classes.
    pub(super) fn failures(&self, of: impl IntoIterator<Item = CommandId>) -> NotJoined {
        let mut classes: BTreeMap<Key<'_>, Vec<CommandId>> = BTreeMap::new();
        for id in of {
            let Some(command) = self.commands.get(id as usize) else {
                continue;
            };
            if let State::Failed(reason) = &command.state {
                let printed = command.printed.lines(&self.names(command));
                let class = (reason, command.tried.as_slice(), printed);
                classes.entry(class).or_default().push(id);
            }
        }
        let planned = self.plan.commands.iter().map(|plan| plan.nodes.len());
        let nodes: usize = planned.sum();
        let missing = self.commands.iter().map(|command| command.missing.len());
        let joined = nodes.saturating_sub(missing.sum());
        let classes = classes
            .into_iter()
            .map(|((reason, tried, printed), ids)| self.class(reason, tried, printed, &ids));
        NotJoined {
            classes: classes.collect(),
            nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
            joined: u32::try_from(joined).unwrap_or(u32::MAX),
        }
    }

    fn class(
        &self,
        reason: &Reason,
        tried: &[String],
        printed: Vec<String>,
        ids: &[CommandId],
    ) -> NotJoinedClass {
        let commands = || ids.iter().filter_map(|id| self.commands.get(*id as usize));
        let hosts = commands().flat_map(|command| self.names(command));
        let failed_at = commands().filter_map(|command| command.failed_at);
        let failed_at: BTreeSet<NodeId> = failed_at.collect();
        NotJoinedClass {
            failed_at: failed_at
                .iter()
                .filter_map(|node| self.name(node))
                .collect(),
            hosts: hosts.collect(),
            reason: reason.clone(),
            tried: tried.to_vec(),
            program: self.program(ids),
            check: self.check(ids),
            printed: match (ids, self.on_failure) {
                ([_], OnFailure::ReportAll) => commands()
                    .flat_map(|command| command.printed.lines(&[]))
                    .collect(),
                _ => printed,
            },
        }
    }

    /// Returns the names of a command's nodes that are missing.
    fn names(&self, command: &Command) -> Vec<&str> {
        let missing = command.missing.iter();
        missing.filter_map(|node| self.name(node)).collect()
    }

    fn name(&self, node: &NodeId) -> Option<&str> {
        self.hosts.get(node.0 as usize).map(String::as_str)
    }

    fn program(&self, ids: &[CommandId]) -> String {
        let program = self.planned(ids).and_then(|plan| plan.argv.first());
        let program = program.map(|program| program.to_string_lossy());
        let name = program.as_deref().and_then(|path| path.rsplit('/').next());
        name.unwrap_or("command").to_owned()
    }

    fn check(&self, ids: &[CommandId]) -> Vec<String> {
        let words = self.planned(ids).map(|plan| plan.check.iter());
        let words = words.into_iter().flatten();
        words
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    fn planned(&self, ids: &[CommandId]) -> Option<&StartCommand> {
        self.plan.commands.get(*ids.first()? as usize)
    }
}

impl NotJoinedClass {
    /// Returns the reason in words.
    #[must_use]
    pub fn why(&self) -> String {
        let program = &self.program;
        match &self.reason {
            Reason::NotStarted(why) => why.clone(),
            Reason::Exited(code) => format!("`{program}` exited with code {code}"),
            Reason::Killed(signal) => format!("`{program}` was killed by signal {signal}"),
            Reason::NoAnswer { seconds } => {
                format!("its shell has not answered within {seconds} s")
            }
            Reason::NotTaken { seconds } => {
                format!("it has taken no more of the program for {seconds} s")
            }
            Reason::Late { seconds } => format!("its daemon has not connected within {seconds} s"),
            Reason::CannotConnect => "its daemon cannot connect to `rally`".to_owned(),
            Reason::Refused(why) => why.clone(),
            Reason::NoPlace => "the program cannot be stored there".to_owned(),
            Reason::OtherSystem(system) => {
                format!(
                    "it is `{system}`, and this program is for `{}`",
                    stage::own_system()
                )
            }
        }
    }
}
