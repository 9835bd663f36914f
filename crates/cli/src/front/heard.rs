//! The log of what the controller says.

use dvm::proto::ToFront;
use tracing::{debug, error, info, trace};

use crate::log;

/// Logs a message of the controller.
pub(super) fn log_message(message: &ToFront) {
    match message {
        ToFront::Accepted(job) => info!(target: log::FRONT, %job, "the job is accepted"),
        ToFront::Launched { job, table, .. } => {
            info!(target: log::FRONT, %job, ranks = table.len(), "the job is launched");
        }
        ToFront::Output { node, chunk } => {
            let (rank, bytes) = (chunk.rank, chunk.bytes.len());
            trace!(target: log::FRONT, %node, %rank, bytes, "gets output");
        }
        ToFront::StdinCredit(bytes) => trace!(target: log::FRONT, bytes, "may send input"),
        ToFront::Preloading(_) => trace!(target: log::FRONT, "files are being copied"),
        ToFront::StdinClosed => debug!(target: log::FRONT, "no rank reads input any more"),
        ToFront::AllHeld { held, .. } => info!(target: log::FRONT, %held, "the ranks are held"),
        ToFront::Released { job, ranks, .. } => {
            info!(target: log::FRONT, %job, %ranks, "ranks are released");
        }
        ToFront::NotReleased(_) | ToFront::Holding(_) | ToFront::Lost(_) => {}
        ToFront::Note(_) => debug!(target: log::FRONT, "gets a note"),
        ToFront::Ending(_) => info!(target: log::FRONT, "the controller ends the job"),
        ToFront::Ended(_) => info!(target: log::FRONT, "the job has ended"),
        ToFront::Placed { .. } => info!(target: log::FRONT, "the job is placed"),
        ToFront::Prompt(_) => debug!(target: log::FRONT, "a start command asks the user"),
        ToFront::PromptWithdrawn(_) => debug!(target: log::FRONT, "a prompt is withdrawn"),
        ToFront::Answer(_) => {}
        ToFront::Refused(_) => error!(target: log::FRONT, "the job is refused"),
        ToFront::Failed(why) => error!(target: log::FRONT, "the controller has failed: {why}"),
        ToFront::Internal(what) => error!(target: log::FRONT, "bug: {what}"),
        ToFront::Reply(_) => debug!(target: log::FRONT, "gets an answer of the machine"),
        ToFront::Tool(_) => debug!(target: log::FRONT, "gets news of a tool"),
        ToFront::Numbered(job) => info!(target: log::FRONT, %job, "the job has a number"),
        ToFront::Queued(job) => info!(target: log::FRONT, %job, "the job waits"),
    }
}
