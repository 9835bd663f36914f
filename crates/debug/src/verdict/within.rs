//! Finds deadlocks between the threads of one rank.

use std::collections::BTreeMap;

use base::{Rank, RankSet};

use super::{
    Cite, Verdict, roles,
    rules::{Confidence, OF_THREADS, RuleId},
    words,
};
use crate::{
    known::{self, Kind},
    samples::{Observation, RankTrack, ThreadSet, Track},
    stack::{Activity, Frames},
};

/// Looks for a deadlock within each rank. Ranks with the same deadlock share a verdict.
pub(super) fn judge(frames: &Frames, all: &Observation) -> Vec<Verdict> {
    if all.samples < OF_THREADS.samples || all.span < OF_THREADS.span {
        return Vec::new();
    }
    let mut found: BTreeMap<(RuleId, String), (RankSet, Verdict)> = BTreeMap::new();
    for (&rank, track) in &all.ranks {
        let Some((rule, confidence, threads)) = deadlock(frames, all, track) else {
            continue;
        };
        let (waits, means) = say(frames, rule, &threads);
        let key = (rule, waits.clone());
        let (ranks, verdict) = found.entry(key).or_insert_with(|| {
            let verdict = Verdict {
                rule,
                confidence,
                sentence: format!("{waits}, {}: {means}", words::since(all.span)),
                cites: cites(rank, &threads),
            };
            (RankSet::new(), verdict)
        });
        ranks.insert(rank);
        for cite in &mut verdict.cites {
            cite.ranks.insert(rank);
        }
    }
    let named = found.into_values().map(|(ranks, mut verdict)| {
        verdict.sentence = format!("in {}, {}", words::who(&ranks), verdict.sentence);
        verdict
    });
    named.collect()
}

/// Returns the deadlocked threads of a rank, provided that all of its threads wait only for threads.
fn deadlock<'a>(
    frames: &Frames,
    all: &Observation,
    track: &'a RankTrack,
) -> Option<(RuleId, Confidence, Vec<&'a Track>)> {
    let main = track.main.as_ref()?;
    // While a rank is stopped, it does not show whether it could continue.
    if matches!(
        main.activity(),
        Some(Activity::Stopped | Activity::Frozen | Activity::Traced)
    ) {
        return None;
    }
    if track.threads == ThreadSet::Changed || track.missing.iter().any(Option::is_some) {
        return None;
    }
    let threads = || std::iter::once(main).chain(&track.others);
    let kind = |track: &Track| track.waits_for();
    let for_threads = |track: &Track| {
        !roles::works(track, all)
            && matches!(
                kind(track),
                Some(
                    Kind::Lock | Kind::Interpreter | Kind::Condition | Kind::Semaphore | Kind::Join
                )
            )
    };
    // Any other thread may hold the lock and release it later, even if it sleeps or reads now.
    if !threads().all(for_threads) || !roles::helpers_wait(track, all) {
        return None;
    }
    let locked: Vec<&Track> = threads()
        .filter(|it| kind(it) == Some(Kind::Lock))
        .collect();
    let ends = |track: &&Track| {
        let mut frames = track.frames().iter().map(|&id| frames.get(id));
        frames.any(known::is_ending)
    };
    if let Some(ending) = threads().find(ends) {
        // A signal handler may still post the semaphore.
        let confidence = match kind(ending) {
            Some(Kind::Semaphore) => Confidence::Possible,
            _ => Confidence::Likely,
        };
        return Some((RuleId::AtExit, confidence, vec![ending]));
    }
    match locked.len() {
        0 => None,
        1 => Some((RuleId::LockForEver, OF_THREADS.confidence, locked)),
        _ => Some((RuleId::LockOrder, OF_THREADS.confidence, locked)),
    }
}

/// Returns the evidence of these threads, without duplicates.
fn cites(rank: Rank, threads: &[&Track]) -> Vec<Cite> {
    let mut cites = Vec::new();
    for track in threads {
        for cite in words::of_track(&RankSet::single(rank), track) {
            if !cites.contains(&cite) {
                cites.push(cite);
            }
        }
    }
    cites
}

fn say(frames: &Frames, rule: RuleId, threads: &[&Track]) -> (String, &'static str) {
    // Threads that do the same share one part of the sentence.
    let mut alike: BTreeMap<String, (usize, &Track)> = BTreeMap::new();
    for &track in threads {
        let one = words::waits(frames, words::Who::Threads(1), track);
        alike.entry(one).or_insert((0, track)).0 += 1;
    }
    let mut parts: Vec<String> = alike
        .values()
        .take(words::PLACES)
        .map(|&(count, track)| words::waits(frames, words::Who::Threads(count), track))
        .collect();
    let rest = alike.values().skip(words::PLACES);
    let rest: usize = rest.map(|(count, _)| count).sum();
    if rest > 0 {
        let places = alike.len() - words::PLACES;
        let places = words::more_places(places);
        parts.push(format!("{rest} more at {places}"));
    }
    let means = match rule {
        RuleId::LockOrder => "no thread that could release the locks runs",
        RuleId::AtExit => "it is ending, and no other thread runs",
        _ => "no other thread runs that could release the lock",
    };
    (parts.join(" and "), means)
}

/// Returns the ranks that these verdicts are about.
pub(super) fn ranks(verdicts: &[Verdict]) -> Vec<Rank> {
    let cites = verdicts.iter().flat_map(|verdict| &verdict.cites);
    cites
        .flat_map(|cite| cite.ranks.iter().collect::<Vec<_>>())
        .collect()
}
