//! Judges from several samples which ranks block a job.
//!
//! There is no verdict on a single sample, on a job that makes progress, or on a wait shorter than its rule requires. There
//! is also no verdict if a slow program could have led to the same samples. The rules are a table ([`rules`]). docs/verdicts.md
//! explains them, and says how often they were right and wrong.

mod below;
mod outlook;
mod proved;
pub mod roles;
pub mod rules;
mod sentence;
mod within;
mod words;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt};

use base::{Rank, RankSet};
use serde::{Deserialize, Serialize};

use self::{
    roles::{Manner, Role},
    rules::{Need, Odd, Rule},
};
use crate::{
    samples::{Jobs, Neighbors, Observation, Sample, Work},
    stack::{Activity, FrameId, Frames},
};

pub use self::{
    outlook::{MoreSamples, Outlook, outlook},
    rules::{Confidence, RuleId},
};

/// A statement about what may be wrong with a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The rule that the verdict follows from.
    pub rule: RuleId,
    /// The confidence of the verdict.
    #[serde(rename = "sureness")]
    pub confidence: Confidence,
    /// The observation and its meaning, as a sentence without a full stop.
    pub sentence: String,
    /// The evidence.
    pub cites: Vec<Cite>,
}

/// Evidence: what some ranks did in some samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cite {
    /// The ranks.
    #[serde(serialize_with = "as_text", deserialize_with = "from_text")]
    pub ranks: RankSet,
    /// The pids of the descendants of these ranks that have this stack, ascending; empty if the ranks themselves have it.
    #[serde(default)]
    pub processes: Vec<i32>,
    /// The numbers of the samples, from 0.
    pub samples: Vec<usize>,
    /// The stack of the first of the ranks, outermost frame first; empty for exited ranks.
    pub frames: Vec<FrameId>,
    /// The activity of the thread; `None` for exited ranks.
    pub activity: Option<Activity>,
}

fn as_text<S: serde::Serializer>(ranks: &RankSet, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(ranks)
}

fn from_text<'de, D: serde::Deserializer<'de>>(from: D) -> Result<RankSet, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// Returns the verdicts on a job, the one with the highest confidence first. Most jobs get none.
#[must_use]
pub fn judge(frames: &Frames, samples: &[Sample], all: &Observation) -> Vec<Verdict> {
    let mut verdicts = judge_stacks(frames, samples, all);
    if let Some(proved) = proved::judge(frames, samples, all) {
        // What the stacks suggest is the same, with less evidence; what the kernel reports is something else.
        verdicts.retain(|it| it.confidence == Confidence::Certain);
        verdicts.insert(0, proved);
    }
    verdicts
}

/// Returns the verdicts that follow from stacks.
fn judge_stacks(frames: &Frames, samples: &[Sample], all: &Observation) -> Vec<Verdict> {
    let mut verdicts = within::judge(frames, all);
    let explained = within::ranks(&verdicts);
    let mut stances = stances(all);
    for rank in advanced(samples).iter() {
        // It only seems to wait: between two samples it has returned, and has waited again.
        if let Some((role, _)) = stances.get_mut(&rank) {
            *role = Role::Alive;
        }
    }
    let of_job = holding(all, &stances)
        .find(|held| is_met(held.need, all))
        .map(|held| verdict(frames, all, held));
    // A verdict on the locks within a rank makes `BehindLock` redundant.
    verdicts.extend(of_job.filter(|it| it.rule != RuleId::BehindLock || explained.is_empty()));
    verdicts.sort_by_key(|verdict| std::cmp::Reverse(verdict.confidence));
    verdicts
}

/// Returns the ranks whose recorded calls of MPI show that they communicate.
#[must_use]
pub fn advanced(samples: &[Sample]) -> RankSet {
    let calls = |sample: &Sample| sample.snapshot.calls.keys().copied().collect::<Vec<_>>();
    let pairs = samples.windows(2).flat_map(|pair| {
        let [before, after] = pair else {
            return Vec::new();
        };
        let mut ranks = calls(after);
        ranks.retain(|rank| {
            let before = before.snapshot.calls.get(rank);
            before.is_some_and(|before| after.snapshot.calls[rank].has_advanced(before))
        });
        ranks
    });
    pairs.collect()
}

/// The role of each rank in its job, and how the rank waits.
type Stances = BTreeMap<Rank, (Role, Manner)>;

fn stances(all: &Observation) -> Stances {
    let ranks = all.ranks.iter();
    ranks
        .map(|(&rank, track)| (rank, roles::role(track, all)))
        .collect()
}

/// A rule that holds for a job, and the samples that it requires before it becomes a verdict.
struct Held {
    rule: &'static Rule,
    need: &'static Need,
    waiting: Vec<(Rank, Role)>,
    odd: Vec<(Rank, Role)>,
}

/// Returns the rules that hold for a job, in the order of the table, even if the samples are too few for them.
fn holding<'a>(all: &'a Observation, stances: &'a Stances) -> impl Iterator<Item = Held> + 'a {
    // The ranks may wait for messages from a job that they have spawned. So most rules apply only if there is no other job.
    let is_alone = all.jobs == Jobs::One && all.beside == Work::Idle;
    rules::OF_JOBS
        .iter()
        .filter(move |rule| is_alone || rule.holds_beside_others())
        .filter_map(|rule| hold(rule, all, stances))
}

fn hold(rule: &'static Rule, all: &Observation, stances: &Stances) -> Option<Held> {
    let odd_roles = match rule.odd {
        Odd::In(roles) | Odd::Few(roles) => roles,
        Odd::AllWait(_) | Odd::DifferentCalls | Odd::NotAwaited => &[],
    };
    let (mut waiting, mut odd) = (Vec::new(), Vec::new());
    // A rank that is connected to another job may have received a message from it between two samples. Even an
    // unchanged wait does not prove that it slept, so the rank counts as polling. While the other job works, a message may
    // still come, and the rule does not apply.
    let mut manner = match all.neighbors {
        Neighbors::AtWork if rule.is_of_messages() => return None,
        Neighbors::Idle if rule.is_of_messages() => Manner::Polling,
        _ => Manner::Asleep,
    };
    for (&rank, &(role, how)) in stances {
        if odd_roles.contains(&role) {
            odd.push((rank, role));
        } else if rule.waiting.contains(&role) {
            waiting.push((rank, role));
        } else if rule.ignored.contains(&role) {
            continue;
        } else {
            return None;
        }
        manner = manner.max(how);
    }
    let holds = !waiting.is_empty()
        && match rule.odd {
            Odd::In(_) => !odd.is_empty(),
            Odd::Few(_) => !odd.is_empty() && odd.len() < waiting.len(),
            Odd::AllWait(roles) => {
                let there = |role| waiting.iter().any(|(_, own)| own == role);
                waiting.len() > 1 && roles.iter().all(there)
            }
            Odd::NotAwaited => true,
            Odd::DifferentCalls => calls(all, &waiting) > 1,
        };
    let need = match manner {
        Manner::Asleep => &rule.asleep,
        Manner::Polling => &rule.polling,
    };
    let need = need.as_ref().filter(|_| holds)?;
    Some(Held {
        rule,
        need,
        waiting,
        odd,
    })
}

fn verdict(frames: &Frames, all: &Observation, held: Held) -> Verdict {
    let rule = held.rule;
    let waiting = words::groups(frames, all, held.waiting.into_iter());
    let odd = words::groups(frames, all, held.odd.into_iter());
    let mut sentence = sentence::sentence(frames, all, &waiting);
    sentence.push_str(", ");
    sentence.push_str(&words::since(all.span));
    if !odd.is_empty() {
        sentence.push_str("; ");
        sentence.push_str(&sentence::sentence(frames, all, &odd));
    }
    if !rule.means.is_empty() {
        sentence.push_str(": ");
        sentence.push_str(rule.means);
    }
    let mut cites = sentence::cites(frames, all, &waiting);
    cites.extend(sentence::cites(frames, all, &odd));
    Verdict {
        rule: rule.id,
        confidence: held.need.confidence,
        sentence,
        cites,
    }
}

fn is_met(need: &Need, all: &Observation) -> bool {
    all.samples >= need.samples && all.span >= need.span
}

/// Counts the different calls in which the ranks wait.
fn calls(all: &Observation, ranks: &[(Rank, Role)]) -> usize {
    let mut names: Vec<&str> = ranks
        .iter()
        .filter_map(|(rank, _)| Some(&*all.ranks.get(rank)?.main.as_ref()?.wait()?.name))
        .collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

impl fmt::Display for Verdict {
    /// Writes `likely: ranks 0-2 wait in …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.confidence, self.sentence)
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Possible => "possible",
            Self::Likely => "likely",
            Self::Certain => "certain",
            Self::Proved => "proved",
        })
    }
}
