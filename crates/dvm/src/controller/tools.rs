//! Tools that are connected: processes that belong to no job, and that ask about jobs and control them.
//!
//! A tool has a number, as jobs have, under which its requests arrive. Tools have no procs and no front, and nothing waits for them: what
//! runs for itself ends with its last job.

mod spawns;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use base::{JobId, NodeId, ProcId, Rank, Time};
use pmix::value::{Nspace, Status};

pub(super) use self::spawns::target_of;
use super::Controller;
use crate::{
    planted::{self, Bug},
    proto::{Door, FromServer, ToServer, ToolName, Visitor},
};

/// Tools that may be connected at the same time. Further ones are refused.
const TOOLS_MAX: usize = 256;

/// The tools that are connected.
#[derive(Debug, Default)]
pub(super) struct Tools(BTreeMap<JobId, Tool>);

#[derive(Debug)]
struct Tool {
    /// The node to whose server it is connected.
    node: NodeId,
    nspace: String,
}

impl Tools {
    pub(super) fn contains(&self, tool: JobId) -> bool {
        self.0.contains_key(&tool)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the node to whose server a tool is connected.
    fn node(&self, tool: JobId) -> Option<NodeId> {
        self.0.get(&tool).map(|tool| tool.node)
    }

    /// Returns the nspace of a tool.
    pub(super) fn nspace(&self, tool: JobId) -> Option<&str> {
        self.0.get(&tool).map(|tool| tool.nspace.as_str())
    }
}

impl Controller {
    /// Handles news of a tool, and returns every other message.
    pub(super) fn on_tool_news(
        &mut self,
        now: Time,
        node: NodeId,
        message: FromServer,
    ) -> Option<FromServer> {
        match message {
            FromServer::ToolConnects { conn, visitor } => {
                self.on_tool_connects(node, conn, visitor);
            }
            FromServer::ToolLeft { tool } => self.on_tool_left(tool),
            FromServer::LauncherReleased { by } => self.on_launcher_released(now, by),
            FromServer::Redirected {
                job,
                stdout,
                stderr,
            } => {
                if self.jobs.contains_key(&job) {
                    self.subscribers.redirect(job, node, [stdout, stderr]);
                }
            }
            message => return Some(message),
        }
        None
    }

    /// Decides about a tool. It keeps the name that it has, unless that is the name of another tool, or could be one of ours.
    fn on_tool_connects(&mut self, node: NodeId, conn: u64, visitor: Visitor) {
        let is_ours = |name: &str| {
            let rest = name.strip_prefix(self.name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
        };
        let is_taken = |name: &str| self.tools.0.values().any(|tool| tool.nspace == name);
        let name = visitor.name.as_ref();
        let result = if name.is_some_and(|(name, _)| is_ours(name) || is_taken(name)) {
            Err(Status::EXISTS.0)
        } else if self.tools.0.len() < TOOLS_MAX {
            let tool = JobId(self.next_job);
            if !planted::is(Bug::NumberOfToolReused) {
                self.next_job += 1;
            }
            let (nspace, rank) = visitor.name.unwrap_or_else(|| (self.nspace(tool), 0));
            let named = ToolName {
                tool,
                nspace: nspace.clone(),
                rank,
            };
            self.tools.0.insert(tool, Tool { node, nspace });
            Ok(named)
        } else {
            Err(Status::RESOURCE_BUSY.0)
        };
        if visitor.door == Door::Theirs {
            let admitted = result.as_ref().ok();
            self.on_controlling_tool(admitted.map(|named: &ToolName| (named.tool, named.rank)));
        }
        let admitted = result.as_ref().ok().map(|named| ProcId {
            job: named.tool,
            rank: Rank(named.rank),
        });
        self.tell_server(node, ToServer::ToolAdmitted { conn, result });
        if let Some(tool) = admitted {
            self.tell_launcher_ready(node, tool);
        }
    }

    pub(super) fn on_tool_left(&mut self, id: JobId) {
        if let Some(tool) = self.tools.0.remove(&id) {
            if let Ok(nspace) = Nspace::from_text(&tool.nspace) {
                self.published.job_ended(&nspace);
            }
            self.end_jobs_of_tool(id);
            self.controlling_tool_left(id);
        }
    }

    /// Forgets the tools that were connected to the server of a lost node.
    pub(super) fn tools_without(&mut self, node: NodeId) {
        let lost = self.tools.0.iter().filter(|(_, tool)| tool.node == node);
        for tool in lost.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.on_tool_left(tool);
        }
    }
}
