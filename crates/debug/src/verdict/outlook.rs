//! Notes for samples that lead to no verdict: which ranks differ from the waiting ones, and what more samples could show.

use std::time::Duration;

use base::{Rank, RankSet};

use super::{
    Stances, holding, is_met,
    roles::Role,
    rules::{MPI, OF_THREADS},
    sentence, stances, words,
};
use crate::{
    samples::{Jobs, Neighbors, Observation, Work},
    stack::Frames,
};

/// Notes on a job without a verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// The odd ranks, as a sentence without a full stop; `None` if no rank waits for others.
    pub odd: Option<String>,
    /// The samples that a rule needs to become a verdict; `None` if more samples would not help.
    pub wanted: Option<MoreSamples>,
}

/// A number of samples over a length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoreSamples {
    /// Number of samples, including those already taken.
    pub samples: usize,
    /// Time from the first sample to the last.
    pub span: Duration,
}

/// Returns the notes for samples that led to no verdict.
#[must_use]
pub fn outlook(frames: &Frames, all: &Observation) -> Outlook {
    let stances = stances(all);
    Outlook {
        odd: odd(frames, all, &stances),
        wanted: wanted(all, &stances),
    }
}

/// Returns the smallest need of the rules that hold, but do not have enough samples yet. Until the samples meet
/// [`OF_THREADS`], the need of the rules for threads, it returns that.
fn wanted(all: &Observation, stances: &Stances) -> Option<MoreSamples> {
    if !is_met(&OF_THREADS, all) {
        return Some(MoreSamples {
            samples: OF_THREADS.samples,
            span: OF_THREADS.span,
        });
    }
    let unmet = holding(all, stances).filter(|held| !is_met(held.need, all));
    let least = unmet.min_by_key(|held| (held.need.span, held.need.samples))?;
    Some(MoreSamples {
        samples: least.need.samples,
        span: least.need.span,
    })
}

fn odd(frames: &Frames, all: &Observation, stances: &Stances) -> Option<String> {
    let all_of = |waits: bool| {
        let ranks = stances.iter().map(|(&rank, &(role, _))| (rank, role));
        ranks.filter(move |(_, role)| MPI.contains(role) == waits)
    };
    let waiting = words::groups(frames, all, all_of(true));
    if waiting.is_empty() {
        return None;
    }
    let odd = words::groups(frames, all, all_of(false));
    let mut said = sentence::sentence(frames, all, &waiting);
    if !odd.is_empty() {
        let (who, one) = (sentence::sentence(frames, all, &odd), words::is_one(&odd));
        said = format!(
            "{who}; {said}, perhaps for {}",
            if one { "it" } else { "them" }
        );
    }
    if let Some(more) = peers(all, stances) {
        said.push_str("; ");
        said.push_str(&more);
    }
    Some(said)
}

/// Returns a phrase on the other processes whose work rules out a verdict.
fn peers(all: &Observation, stances: &Stances) -> Option<String> {
    let works = |rank: &Rank| {
        let track = all.ranks.get(rank);
        track.is_some_and(|track| track.below == Work::AtWork)
    };
    let alive = stances.iter().filter(|(_, (role, _))| *role == Role::Alive);
    let parents: RankSet = alive.map(|(&rank, _)| rank).filter(works).collect();
    if parents.first().is_some() {
        let who = words::who(&parents);
        return Some(format!("processes that {who} started are at work"));
    }
    match (all.jobs, all.beside) {
        (Jobs::Several, _) => {
            Some("their launcher has other jobs, which they may wait for".to_owned())
        }
        (Jobs::One, Work::AtWork) => {
            Some("processes that were started with them are at work".to_owned())
        }
        (Jobs::One, Work::Idle) if all.neighbors == Neighbors::AtWork => Some(
            "the user's other jobs on this machine are at work, and may be connected with this one"
                .to_owned(),
        ),
        (Jobs::One, Work::Idle) => None,
    }
}
