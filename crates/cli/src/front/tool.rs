//! Tools beside the ranks of the front's own job: that of the command line, and the servers of a debugger.
//!
//! A debugger with MPIR writes the program of its servers to `MPIR_executable_path` and their arguments to `MPIR_server_arguments`: when
//! it starts us, or while we are stopped in `MPIR_Breakpoint`. Both mean one process on each node with ranks. What follows waits until
//! the controller says that they run, or why they do not:
//!
//! | written | the servers are started | before |
//! |---|---|---|
//! | when all ranks are held, with `MPIR_being_debugged` | then | `MPIR_Breakpoint`: the debugger finds them running |
//! | in `MPIR_Breakpoint` | when the debugger continues us | the ranks are released |

use std::{collections::BTreeSet, ffi::OsString, mem, os::unix::ffi::OsStringExt as _};

use base::{JobId, RankSet};
use dvm::{
    proto::{FromFront, OnePer, ToolNews},
    spec::Preload,
};
use os::Pid;

use super::Front;
use crate::tool::{ToolCommand, Tools};

/// What happens when no tool is being started any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    /// Stop for the debugger: all ranks are held.
    Break(RankSet),
    /// The debugger, which traced us as this process before the breakpoint, has continued us.
    Resume(RankSet, Option<Pid>),
}

/// The tools of the front's job.
#[derive(Debug)]
pub(super) struct ToolState {
    tools: Tools,
    /// Tools of which the controller has not said yet that they run, or do not. At most two are requested.
    starting: usize,
    running: BTreeSet<JobId>,
    next: Next,
    /// The servers of the debugger were requested: once.
    has_servers: bool,
}

impl ToolState {
    pub(super) const fn new(tools: Tools) -> Self {
        Self {
            tools,
            starting: 0,
            running: BTreeSet::new(),
            next: Next::Nothing,
            has_servers: false,
        }
    }
}

/// Returns the servers that the debugger wants.
fn servers() -> Option<ToolCommand> {
    let server = mpir::server()?;
    Some(ToolCommand {
        program: OsString::from_vec(server.path),
        args: server
            .arguments
            .into_iter()
            .map(OsString::from_vec)
            .collect(),
        one_per: OnePer::Node,
    })
}

impl Front {
    /// Starts the tool of the command line, if there is one.
    pub(super) fn start_given_tool(&mut self) {
        if let Some(tool) = self.tools.tools.given.take() {
            let preload = self.tools.tools.preload.take();
            self.start_tool(tool, preload);
        }
    }

    fn start_tool(&mut self, tool: ToolCommand, preload: Option<Preload>) {
        let request = self.tools.tools.request(tool, preload);
        self.tools.starting += 1;
        self.link.send(FromFront::StartTool(Box::new(request)));
    }

    /// Starts the servers of the debugger, if it wants some and has none.
    fn start_servers(&mut self) {
        if self.tools.has_servers || !mpir::being_debugged() {
            return;
        }
        if let Some(servers) = servers() {
            self.tools.has_servers = true;
            self.start_tool(servers, None);
        }
    }

    /// Stops for the debugger, when the tools run.
    pub(super) fn on_all_held(&mut self, held: RankSet) {
        self.holds_ranks = true;
        self.start_servers();
        self.when_tools_run(Next::Break(held));
    }

    /// Goes on after the debugger has continued us, when its servers run.
    pub(super) fn on_continued(&mut self, held: RankSet, before: Option<Pid>) {
        self.start_servers();
        self.when_tools_run(Next::Resume(held, before));
    }

    fn when_tools_run(&mut self, next: Next) {
        self.tools.next = next;
        self.go_on();
    }

    fn go_on(&mut self) {
        if self.tools.starting > 0 {
            return;
        }
        match mem::replace(&mut self.tools.next, Next::Nothing) {
            Next::Nothing => {}
            Next::Break(held) => self.stop_for_debugger(held),
            Next::Resume(held, before) => self.resume(&held, before),
        }
    }

    /// Handles news of a tool.
    pub(super) fn on_tool(&mut self, news: &ToolNews) {
        if let Some(message) = dvm::messages::tool(news) {
            self.note(&message);
        }
        let is_settled = match news {
            ToolNews::Started(job) => self.tools.running.insert(*job),
            ToolNews::Refused(_) => true,
            ToolNews::Ended { job, .. } => !self.tools.running.remove(job),
        };
        if is_settled {
            self.tools.starting = self.tools.starting.saturating_sub(1);
            self.go_on();
        }
    }
}
