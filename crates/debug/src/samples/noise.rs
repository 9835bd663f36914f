//! Differences between ranks that are only noise: one of them was sampled while awake, or used slightly more CPU time.

use std::{collections::BTreeMap, time::Duration};

use super::{Class, ClassKey, Location, Motion};
use crate::stack::Activity;

/// Largest difference in CPU time per rank between two classes that are joined, as a divisor of the span of the samples.
const NEAR_CPU_DIVISOR: u32 = 10;

/// Joins classes that only chance has separated: their ranks are in the same wait, but some ranks were awake when they were
/// sampled. Or their CPU time was just over the limit between [`Motion::Stuck`] and [`Motion::Spinning`].
pub(super) fn joined(classes: BTreeMap<ClassKey, Class>, span: Duration) -> Vec<Class> {
    let (mut whole, mut awake) = (Vec::new(), Vec::new());
    let mut standing: BTreeMap<Location, Vec<Class>> = BTreeMap::new();
    for ((location, activity, motion), class) in classes {
        let stands = matches!(motion, Motion::Stuck | Motion::Spinning);
        match (location.filter(|_| stands), activity) {
            (Some(location), Ok(Activity::Running)) => awake.push((location, class)),
            (Some(location), Ok(Activity::Waiting(_))) => {
                standing.entry(location).or_default().push(class)
            }
            _ => whole.push(class),
        }
    }
    for (location, class) in awake {
        let there = standing.entry(location).or_default();
        let near = there.iter_mut().filter(|it| are_near(&class, it, span));
        match near.max_by_key(|other| other.ranks.len()) {
            Some(near) => near.take(class),
            None => there.push(class),
        }
    }
    whole.extend(standing.into_values().flatten());
    whole
}

/// Returns true if the ranks of two classes use nearly the same share of a CPU.
fn are_near(left: &Class, right: &Class, span: Duration) -> bool {
    let [left, right] = [left, right].map(|class| {
        let ranks = u32::try_from(class.ranks.len()).unwrap_or(u32::MAX);
        class.cpu.checked_div(ranks).unwrap_or_default()
    });
    left.abs_diff(right) <= span / NEAR_CPU_DIVISOR
}

impl Class {
    /// Adds the ranks of another class. The class that had more ranks determines the frames, the activity and the motion.
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
