//! What is no difference between two ranks: that one of them was found awake, or has used a little more time.

use std::{collections::BTreeMap, time::Duration};

use super::{Class, ClassKey, Motion, Spot};
use crate::stack::Activity;

/// Parts of a processor by which the use of ranks in one wait differs that do the same: one in so many.
const APART: u32 = 10;

/// The classes, without those that only chance has split: ranks in one wait, one of which was just awake when it was looked
/// at, or has come over the limit from standing to polling.
pub(super) fn joined(classes: BTreeMap<ClassKey, Class>, span: Duration) -> Vec<Class> {
    let (mut whole, mut awake) = (Vec::new(), Vec::new());
    let mut standing: BTreeMap<Spot, Vec<Class>> = BTreeMap::new();
    for ((spot, activity, motion), class) in classes {
        let stands = matches!(motion, Motion::Stuck | Motion::Spinning);
        match (spot.filter(|_| stands), activity) {
            (Some(spot), Ok(Activity::Running)) => awake.push((spot, class)),
            (Some(spot), Ok(Activity::Waiting(_))) => standing.entry(spot).or_default().push(class),
            _ => whole.push(class),
        }
    }
    for (spot, class) in awake {
        let there = standing.entry(spot).or_default();
        let near = there.iter_mut().filter(|it| are_near(&class, it, span));
        match near.max_by_key(|other| other.ranks.len()) {
            Some(near) => near.take(class),
            None => there.push(class),
        }
    }
    whole.extend(standing.into_values().flatten());
    whole
}

/// Whether the ranks of two classes use nearly the same part of a processor.
fn are_near(left: &Class, right: &Class, span: Duration) -> bool {
    let [left, right] = [left, right].map(|class| {
        let ranks = u32::try_from(class.ranks.len()).unwrap_or(u32::MAX);
        class.cpu.checked_div(ranks).unwrap_or_default()
    });
    left.abs_diff(right) <= span / APART
}

impl Class {
    /// Takes the ranks of another, and is said to do what most of them do.
    fn take(&mut self, other: Self) {
        if other.ranks.len() > self.ranks.len() {
            self.frames = other.frames;
            self.activity = other.activity;
            self.motion = other.motion;
        }
        self.ranks.append(&other.ranks);
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.lines.extend(other.lines);
        self.lines.sort_unstable();
        self.lines.dedup();
    }
}
