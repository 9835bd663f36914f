//! Tools that connect to the PMIx server of this node. The controller gives each a number, as it does for jobs.

use std::collections::BTreeMap;

use base::{JobId, Signal, Time};
use pmix::{
    keys,
    server::{Conn, Door, Event, Input, Visitor},
    value::{Nspace, PmixRank, Proc, Range, Status},
};

use super::{Service, name};
use crate::{
    daemon::{Caller, Output},
    proto::{self, FromServer, ToController, ToolName},
};

impl Service {
    /// A tool that has started the launcher is connected.
    pub(in crate::daemon) fn on_called(&mut self, now: Time, conn: Conn, caller: &Caller) {
        let proc = |(nspace, rank): &(String, u32)| Proc {
            nspace: name(nspace),
            rank: PmixRank(*rank),
        };
        self.called = Some(proc(&caller.me).nspace);
        let input = Input::Called {
            conn,
            tool: proc(&caller.tool),
            version: caller.version,
        };
        self.server.handle(now, input);
    }

    /// Asks the controller about a tool.
    pub(super) fn on_tool(&mut self, conn: Conn, visitor: Visitor) {
        let Visitor {
            name,
            pid,
            command,
            door,
        } = visitor;
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let visitor = proto::Visitor {
            name: name.map(|name| (text(name.nspace.as_c_str()), name.rank.0)),
            pid,
            command: command.as_deref().map(text),
            door: match door {
                Door::Ours => proto::Door::Ours,
                Door::Theirs => proto::Door::Theirs,
            },
        };
        let conn = conn.0;
        self.say(FromServer::ToolConnects { conn, visitor });
    }

    pub(super) fn on_tool_admitted(&mut self, now: Time, conn: u64, result: Result<ToolName, i32>) {
        let name = result.map_err(Status).and_then(|named| {
            let nspace = Nspace::from_text(&named.nspace).map_err(|_| Status::BAD_PARAM)?;
            self.names.insert(named.tool, nspace.clone());
            self.jobs.insert(nspace.clone(), named.tool);
            self.tools.insert(nspace.clone());
            let rank = PmixRank(named.rank);
            Ok(Proc { nspace, rank })
        });
        let conn = Conn(conn);
        self.server.handle(now, Input::ToolAdmitted { conn, name });
    }

    pub(super) fn on_tool_left(&mut self, tool: &Proc) {
        self.tools.remove(&tool.nspace);
        if let Some(tool) = self.jobs.remove(&tool.nspace) {
            self.names.remove(&tool);
            self.say(FromServer::ToolLeft { tool });
        }
    }

    /// Handles a tool's request to release procs. The controller gets the request, and then releases those that are
    /// held.
    pub(super) fn released(&mut self, event: &Event) {
        let named = event
            .infos
            .iter()
            .find(|info| info.key == *keys::EVENT_CUSTOM_RANGE)
            .and_then(|info| info.value.as_procs());
        if self.is_tool(&event.source)
            && self.names_launcher(named.as_deref(), event.range)
            && let Some(by) = self.proc_id(&event.source)
        {
            self.say(FromServer::LauncherReleased { by });
        }
        let ranks = match (named, event.range) {
            (Some(procs), _) => self.ranks_of(procs.into_iter()),
            (None, Range::PROC_LOCAL | Range::RM) => BTreeMap::new(),
            (None, Range::NAMESPACE) => {
                self.ranks_of([&Proc::all(event.source.nspace.clone())].into_iter())
            }
            // A request without a range means all procs.
            (None, _) => {
                let all: Vec<Proc> = self.jobs.keys().cloned().map(Proc::all).collect();
                self.ranks_of(all.iter())
            }
        };
        // The procs may be on other nodes only.
        for (job, ranks) in ranks {
            let released = ToController::Released { job, ranks };
            self.effects.push_back(Output::Send(released));
        }
    }

    /// Returns whether the launcher is among those that a release concerns: only a list of others leaves it out.
    fn names_launcher(&self, named: Option<&[&Proc]>, range: Range) -> bool {
        let is_ours = |proc: &&Proc| {
            let called = self.called.as_ref();
            proc.nspace == self.identity.nspace || Some(&proc.nspace) == called
        };
        match named {
            Some(procs) => procs.iter().any(is_ours),
            None => !matches!(range, Range::PROC_LOCAL | Range::NAMESPACE),
        }
    }

    pub(super) fn is_tool(&self, proc: &Proc) -> bool {
        self.tools.contains(&proc.nspace)
    }

    /// Sends a signal to procs of any job, on any node.
    pub(super) fn signal_by_tool(&mut self, targets: &[Proc], signal: Signal) -> Status {
        let ranks = self.ranks_of(targets.iter());
        let meant: Vec<(JobId, _)> = ranks
            .into_iter()
            .filter(|(_, ranks)| !ranks.is_empty())
            .collect();
        if meant.is_empty() {
            return Status::NOT_FOUND;
        }
        for (job, ranks) in meant {
            let signal = ToController::SignalRanks { job, ranks, signal };
            self.effects.push_back(Output::Send(signal));
        }
        Status::SUCCESS
    }
}
