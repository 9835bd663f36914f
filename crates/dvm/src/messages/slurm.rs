//! Messages about allocations of Slurm that procs have requested.

use base::ProcId;
use message::duration;

use super::{Message, kind as k};
use crate::{
    proto::AllocationRefusal,
    slurm::{NotDone, Tool},
};

/// Returns the message about a request that is refused.
pub(super) fn refused(by: ProcId, why: &AllocationRefusal) -> Message {
    let ProcId { job, rank } = by;
    let rank = format!("rank {rank} of job {job}");
    let message = |headline: String| Message::new(&k::ALLOCATION_REFUSED, headline);
    match why {
        AllocationRefusal::BySlurm(why) => {
            let headline = match why.tool() {
                Tool::Salloc => format!("{rank} gets no allocation of Slurm"),
                Tool::Scontrol | Tool::Scancel => {
                    format!("a request of {rank} about its allocation of Slurm has failed")
                }
            };
            let message = message(headline).fact("reason", said(why));
            match why {
                NotDone::NotRun { .. } => {
                    message.with_help("put the directory of Slurm's commands into PATH")
                }
                NotDone::Failed { .. } | NotDone::Silent { .. } | NotDone::Unclear { .. } => {
                    message
                }
            }
        }
        AllocationRefusal::MoreNodes => message(format!(
            "{rank} asks for more nodes or CPUs in an allocation of Slurm, which cannot grow"
        ))
        .with_help("request a new allocation for them"),
        AllocationRefusal::Part => message(format!(
            "{rank} gives back a part of an allocation of Slurm, which is given back only as a whole"
        )),
    }
}

/// Returns the message about an allocation that was not given back.
pub(super) fn left(job: u32, why: &NotDone) -> Message {
    let headline = format!("job {job} of Slurm, an allocation of this job, was not given back");
    Message::new(&k::ALLOCATION_LEFT, headline)
        .fact("reason", said(why))
        .with_help(format!("cancel it: `scancel {job}`"))
}

/// Returns what has happened to the command.
fn said(why: &NotDone) -> String {
    let tool = why.tool().name();
    match why {
        NotDone::Failed { words, .. } if words.is_empty() => {
            format!("`{tool}` fails without a reason")
        }
        NotDone::Failed { words, .. } => format!("`{tool}` says: {words}"),
        NotDone::Silent { patience, .. } => {
            format!("`{tool}` gave no answer for {}", duration(*patience))
        }
        NotDone::NotRun { why, .. } => format!("`{tool}` cannot be run: {why}"),
        NotDone::Unclear { .. } => format!("what `{tool}` prints is not understood"),
    }
}
