//! Maps for the user: which ranks would run where, and why.
//!
//! The map of a job on this node is made here, and nothing is started for it. The controller makes that of a job on other
//! nodes, because only their daemons know the processors there. A dry run assumes those of this node.

use dvm::{
    alloc::Allocation,
    place::{self, JobMap, Topologies},
    proto::Refusal,
};
use message::Message;

use crate::{
    args::{self, Detail, MessageFormat, RunRequest},
    exit, messages, surroundings,
};

/// Why there is no map, with the exit code.
#[derive(Debug)]
pub(crate) struct Unplaced {
    pub(crate) message: Message,
    pub(crate) code: u8,
}

/// Whether the map includes notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notes {
    Shown,
    /// The job is launched behind it. The notes are left to the controller, which makes the same map and prints them.
    Apart,
}

/// Shows the map of a job.
#[derive(Debug)]
pub(crate) struct Presenter {
    wanted: place::Request,
    allocation: Allocation,
    /// How the daemons of other nodes are started, and why.
    daemons: Option<String>,
    detail: Detail,
    notes: Notes,
    format: MessageFormat,
}

impl Presenter {
    pub(crate) fn of(request: &RunRequest, detail: Detail, notes: Notes) -> Self {
        Self {
            wanted: request.spec.placement.clone(),
            allocation: request.allocation.clone(),
            daemons: request.daemons_before().map(|plan| {
                let why = request.started_by.as_ref();
                let why = why.map(|why| format!("daemons are started {why}"));
                let lines = std::iter::once(args::described(plan)).chain(why);
                lines.collect::<Vec<_>>().join("\n")
            }),
            detail,
            notes,
            format: request.front.message_format,
        }
    }

    /// Returns the map as text or as JSON.
    pub(crate) fn text(&self, map: &JobMap, topologies: &Topologies) -> String {
        let mut explanation = place::explain(map, &self.wanted, &self.allocation, topologies);
        if self.detail == Detail::Map {
            for app in &mut explanation.apps {
                app.why.clear();
            }
        }
        if self.detail == Detail::Reasons {
            explanation.daemons.clone_from(&self.daemons);
        }
        if self.notes == Notes::Apart {
            explanation.notes.clear();
        }
        match self.format {
            MessageFormat::Text => explanation.to_string(),
            MessageFormat::Json => {
                let mut text = serde_json::to_string(&explanation).unwrap_or_default();
                text.push('\n');
                text
            }
        }
    }

    pub(crate) const fn notes(&self) -> Notes {
        self.notes
    }

    /// Returns the map on nodes that all have the processors of this one.
    pub(crate) fn assume(&self) -> Result<String, Unplaced> {
        let topology = runtime::topology(&surroundings()).map_err(|error| Unplaced {
            message: messages::system(&error),
            code: exit::ExitCode::Resources.code(),
        })?;
        let topologies = Topologies::uniform(topology);
        let map = place::place(&self.wanted, &self.allocation, &topologies).map_err(|error| {
            let refusal = Refusal::Placement(error);
            Unplaced {
                message: dvm::messages::refused(&refusal),
                code: exit::refused(&refusal),
            }
        })?;
        Ok(self.text(&map, &topologies))
    }
}
