//! `dbgr calls`: the last calls of MPI of each rank.

use base::RankSet;
use debug::{proto::Extent, recorded::words::history, report::Detail, stack::Seen};

use super::{args, follow, local::Local, messages, print_clean, say};
use crate::exit;

/// Runs `dbgr calls`.
pub(super) fn list(args: &args::Calls) -> u8 {
    let mut local = Local::new(Detail::Folded);
    if let Err(code) = follow(&args.target, &mut local) {
        return code;
    }
    let sample = local.sample(Extent::Calls(args.last)).snapshot;
    let is_wanted = |rank| args.ranks.as_ref().is_none_or(|ranks| ranks.contains(rank));
    let recorded = sample.calls.iter().filter(|(rank, _)| is_wanted(**rank));
    let text: Vec<String> = recorded
        .map(|(rank, calls)| history(*rank, calls))
        .collect();
    let unrecorded: RankSet = sample
        .procs
        .iter()
        .filter(|(rank, seen)| {
            is_wanted(**rank)
                && !sample.calls.contains_key(rank)
                && !sample.unreadable.contains(**rank)
                && matches!(seen, Seen::Threads(_))
        })
        .map(|(rank, _)| *rank)
        .collect();
    let all: RankSet = sample.procs.keys().copied().collect();
    let absent = args.ranks.as_ref().map(|ranks| ranks.difference(&all));
    if let Some(absent) = absent.filter(|absent| !absent.is_empty()) {
        say(&messages::no_rank(&absent, &all));
    }
    let unreadable: RankSet = sample
        .unreadable
        .iter()
        .filter(|it| is_wanted(*it))
        .collect();
    if !unreadable.is_empty() {
        say(&messages::unreadable(&unreadable));
    }
    if !unrecorded.is_empty() {
        say(&messages::unrecorded(&unrecorded));
    }
    if text.is_empty() {
        return exit::ExitCode::Usage.code();
    }
    print_clean(&text.join("\n"))
}
