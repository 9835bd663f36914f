//! The verdict that follows from recorded calls of MPI.

use base::Rank;

use super::{Confidence, RuleId, Verdict, roles::Role, sentence, words};
use crate::{
    recorded::{
        proof::{Proof, prove},
        words::{Mistake, cause},
    },
    samples::{Observation, Sample},
    stack::Frames,
};

/// Proves from the last two samples that ranks can never go on, if they cannot.
pub(super) fn judge(frames: &Frames, samples: &[Sample], all: &Observation) -> Option<Verdict> {
    let [.., before, after] = samples else {
        return None;
    };
    let (before, after) = (&before.snapshot.calls, &after.snapshot.calls);
    let has_only_main = |rank: Rank| {
        let others = all.ranks.get(&rank).map(|track| track.others.is_empty());
        others == Some(true)
    };
    let proof = prove(before, after, has_only_main)?;
    if !proof
        .stuck
        .iter()
        .all(|(rank, _)| is_seen(&proof, all, *rank))
    {
        return None;
    }
    let cause = cause(&proof, after)?;
    let ranks = cause.ranks.iter().map(|rank| (rank, Role::Alive));
    let groups = words::groups(frames, all, ranks);
    Some(Verdict {
        rule: match cause.mistake {
            Mistake::DifferentCollectives => RuleId::DifferentCollectives,
            Mistake::NotEntered => RuleId::NotEntered,
            Mistake::CrossedCommunicators => RuleId::CrossedCommunicators,
            Mistake::NeverSent => RuleId::NeverSent,
            Mistake::NeverReceived => RuleId::NeverReceived,
            Mistake::OpenEpoch => RuleId::OpenEpoch,
            Mistake::CycleOfWaits => RuleId::CycleOfWaits,
        },
        confidence: Confidence::Proved,
        sentence: cause.sentence,
        cites: sentence::cites(frames, all, &groups),
    })
}

/// Returns whether the stack of a rank shows the call that its region shows. A call that an exception or `longjmp` has left seems to
/// last until the next one begins.
fn is_seen(proof: &Proof<'_>, all: &Observation, rank: u32) -> bool {
    let Some(stuck) = proof.stuck.get(&rank) else {
        return false;
    };
    let main = all
        .ranks
        .get(&Rank(rank))
        .and_then(|track| track.main.as_ref());
    let wait = main.and_then(|main| main.seen.last()?.0.wait.as_ref());
    let name = stuck.call.function().name;
    let plain = name.strip_suffix("_c").unwrap_or(name);
    wait.is_some_and(|wait| wait.name.eq_ignore_ascii_case(plain) || *wait.name == *name)
}
