//! Tools: processes that belong to no job. They ask about jobs, and control them.
//!
//! The host decides about each tool before it is welcomed ([`Output::ToolConnects`]), and gives a name to those that have none. A tool has
//! the namespace of its name for itself, as its only process.

use bytes::Bytes;

use super::{Conn, LogStream, Output, Refusal, Server, Tools, event::packed, peer::Role};
use crate::{
    handshake::{ConnectorKind, Hello},
    message::Push,
    value::{IofChannels, Proc},
};

impl Server {
    /// Checks that a tool may ask to be admitted.
    pub(super) fn admit_tool(&self, hello: &Hello) -> Result<(), Refusal> {
        if self.config.tools == Tools::Refused {
            return Err(Refusal::Tool);
        }
        if matches!(
            hello.kind,
            ConnectorKind::LegacyTool | ConnectorKind::LegacyLauncher
        ) {
            return Err(Refusal::LegacyTool);
        }
        let is_taken = |name: &Proc| {
            let mut tools = self.peers.values().filter_map(|peer| peer.tool());
            self.jobs.contains_key(&name.nspace)
                || name.nspace == self.config.identity.nspace
                || tools.any(|tool| tool.nspace == name.nspace)
        };
        match &hello.proc {
            Some(name) if is_taken(name) => Err(Refusal::NameTaken(name.clone())),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn is_tool(&self, conn: Conn) -> bool {
        let known = self.peers.get(&conn).and_then(|peer| peer.known());
        known.is_some_and(|known| known.role == Role::Tool)
    }

    /// Shows what a tool logs on its own streams: it belongs to no job, and nobody else waits for its words. Its library writes what comes as
    /// output.
    pub(super) fn show_tool(&mut self, conn: Conn, tool: &Proc, stream: LogStream, text: &Bytes) {
        let known = self.peers.get(&conn).and_then(|peer| peer.connected());
        let Some(format) = known.map(|known| known.format) else {
            return;
        };
        let push = Push::Output {
            source: tool.clone(),
            channels: match stream {
                LogStream::Stdout => IofChannels::STDOUT,
                LogStream::Stderr => IofChannels::STDERR,
            },
            id: 0,
            infos: Vec::new(),
            bytes: text.clone(),
        };
        let bytes = packed(&push, format);
        self.out.push_back(Output::Send { conn, bytes });
    }

    pub(super) fn on_tool_left(&mut self, tool: Proc) {
        self.monitors.forget(&tool, &mut self.timers);
        self.forget_kept_for(&tool);
        self.out.push_back(Output::ToolLeft { tool });
    }
}
