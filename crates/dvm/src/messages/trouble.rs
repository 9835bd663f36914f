//! Messages about problems around a job that do not end it.

use base::{NodeId, ProcId, RankSet};
use message::Severity;

use super::{
    Message, Scene, effect, kind as k,
    words::{count, plain, ranks_text},
};
use crate::{
    place,
    proto::{Missing, Outcome, Refused, Rest},
};

/// Returns the message about ranks that exited with code 0 inside MPI without ending the job.
pub(super) fn unfinished(ranks: &RankSet, rest: Rest, scene: &Scene<'_>) -> Message {
    let one = ranks.len() == 1;
    let effect = match rest {
        Rest::Well => format!(
            "none on the exit code: {} ended with code 0",
            if one { "it" } else { "they" },
        ),
        Rest::Badly => format!(
            "other ranks may have waited or failed because of {}",
            if one { "it" } else { "them" },
        ),
    };
    Message::new(&k::UNFINISHED, unfinished_headline(ranks, scene))
        .maybe("program", scene.program(ranks))
        .fact("effect", effect)
        .with_help(FINALIZE)
}

/// Returns the message about ranks that exited with code 0 inside MPI and whose exit ended the job.
pub(super) fn left_alone(ranks: &RankSet, outcome: &Outcome, scene: &Scene<'_>) -> Message {
    let headline = unfinished_headline(ranks, scene);
    Message::new(
        &k::LEFT_ALONE,
        format!("{headline}, and others were still at work"),
    )
    .maybe("program", scene.program(ranks))
    .maybe("effect", effect(ranks, outcome, scene))
    .with_help(FINALIZE)
}

const FINALIZE: &str =
    "a program that exits early should call `MPI_Finalize`, or `MPI_Abort` if it has failed";

fn unfinished_headline(ranks: &RankSet, scene: &Scene<'_>) -> String {
    format!(
        "{}{} ended with code 0, but without `MPI_Finalize`",
        ranks_text(ranks),
        scene.on(ranks)
    )
}

/// Returns the message about what a placement has done with a request.
pub(super) fn placement(note: &place::Note) -> Message {
    Message {
        id: note.id(),
        severity: Severity::Note,
        headline: note.to_string(),
        facts: Vec::new(),
        help: None,
    }
}

/// Returns the message about a request for an allocation that nobody can grant.
pub(super) fn no_scheduler(by: ProcId) -> Message {
    let ProcId { job, rank } = by;
    Message::new(
        &k::NO_SCHEDULER,
        format!(
            "rank {rank} of job {job} asks for an allocation, and no queue is there to grant it"
        ),
    )
    .with_help("run the job on a machine: `rally up`, then `rally run --on-machine main`")
}

/// Returns the message about closed connections to the PMIx port.
pub(super) fn refused(refused: &Refused, scene: &Scene<'_>) -> Message {
    let headline = match &refused.ranks {
        None => format!(
            "{} to the PMIx port on {} {} refused",
            count(refused.count, "connection", "connections"),
            scene.node(refused.node),
            if refused.count == 1 { "was" } else { "were" },
        ),
        Some(ranks) => format!(
            "{} of {} to PMIx on {} {} closed",
            count(refused.count, "connection", "connections"),
            ranks_text(ranks),
            scene.node(refused.node),
            if refused.count == 1 { "was" } else { "were" },
        ),
    };
    let named: u64 = refused.reasons.iter().map(|(_, times)| times).sum();
    let mut reasons: Vec<String> = refused
        .reasons
        .iter()
        .map(|(reason, times)| times_of(&plain(reason), *times, refused.count))
        .collect();
    if named < refused.count {
        let others = refused.count - named;
        reasons.push(times_of("other reasons", others, refused.count));
    }
    let message = Message::new(&k::REFUSED, headline).fact("reason", reasons.join("\n"));
    match refused.ranks {
        None => message.fact("effect", "none on the job"),
        Some(_) => message.fact("effect", "requests of these ranks over PMIx fail"),
    }
}

/// Returns a reason, with the number of connections closed for it if there were several connections.
fn times_of(reason: &str, times: u64, all: u64) -> String {
    if all == 1 {
        reason.to_owned()
    } else {
        format!("{reason} ({})", count(times, "time", "times"))
    }
}

/// Returns the message about a resource or service that the job runs without.
pub(super) fn missing(
    node: Option<NodeId>,
    what: Missing,
    why: &str,
    scene: &Scene<'_>,
) -> Message {
    let node = node.map_or_else(|| "this host".to_owned(), |node| scene.node(node));
    let (headline, help) = match what {
        Missing::Room => (
            format!("new PMIx connections on {node} wait until others end"),
            Some("`ulimit -n` shows the limit on open files"),
        ),
        Missing::Client => (
            format!("a PMIx connection on {node} was not accepted"),
            None,
        ),
        Missing::Control => (
            "`rally release` does not find this job".to_owned(),
            Some("SIGCONT to `rally` releases the ranks as well"),
        ),
        Missing::Place => (
            format!("the record of this job on {node} is not in the usual directory"),
            Some("`rally release` finds it; but the usual directory needs repair"),
        ),
        Missing::Record => (
            format!("there is no record of this job on {node}"),
            Some(
                "`rally release` does not find the job; if all processes of `rally` are killed together, processes of the job may remain",
            ),
        ),
        Missing::Directory => (
            format!("a directory or file for ranks or tools on {node} could not be created"),
            None,
        ),
        Missing::Output(rank) => (
            format!("the rest of what rank {rank} on {node} writes is lost"),
            None,
        ),
        Missing::Removal => (
            format!("preloaded files remain on {node}"),
            Some("`rally` tries again when it ends; after that, remove the directory there"),
        ),
        Missing::Recorder => (
            format!("calls of MPI on {node} are not recorded"),
            Some(
                "the recorder needs a directory for its library and 1 MiB for each rank, in which programs may be executed",
            ),
        ),
        Missing::Recording => (
            format!("{node} is not recorded any more"),
            Some(
                "`--record FILE` writes FILE on this node, and FILE.N in the same directory on node N",
            ),
        ),
    };
    let message = Message::new(&k::MISSING, headline).fact("reason", plain(why));
    match help {
        Some(help) => message.with_help(help),
        None => message,
    }
}
