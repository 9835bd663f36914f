//! Dry runs: shows which ranks would run where, without starting anything.

use base::NodeId;
use dvm::{
    place::{self, Topologies},
    proto::Refusal,
};
use message::Message;

use crate::{
    args::{Detail, MessageFormat, RunRequest},
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
    /// The notes are left to the controller, which makes the same map and prints them.
    Apart,
}

/// Returns the map of a job, as text or as JSON.
pub(crate) fn explain(
    request: &RunRequest,
    detail: Detail,
    notes: Notes,
) -> Result<String, Unplaced> {
    let topology = runtime::topology(&surroundings()).map_err(|error| Unplaced {
        message: messages::system(&error),
        code: exit::ExitCode::Resources.code(),
    })?;
    let mut topologies = Topologies::default();
    for (node, _) in (0..).zip(&request.allocation.nodes) {
        topologies.push(NodeId(node), &topology);
    }
    let wanted = &request.spec.placement;
    let map = place::place(wanted, &request.allocation, &topologies).map_err(|error| {
        let refusal = Refusal::Placement(error);
        Unplaced {
            message: dvm::messages::refused(&refusal),
            code: exit::refused(&refusal),
        }
    })?;
    let mut explanation = place::explain(&map, wanted, &request.allocation, &topologies);
    if detail == Detail::Map {
        for app in &mut explanation.apps {
            app.why.clear();
        }
    }
    if notes == Notes::Apart {
        explanation.notes.clear();
    }
    Ok(match request.front.message_format {
        MessageFormat::Text => explanation.to_string(),
        MessageFormat::Json => {
            let mut text = serde_json::to_string(&explanation).unwrap_or_default();
            text.push('\n');
            text
        }
    })
}
