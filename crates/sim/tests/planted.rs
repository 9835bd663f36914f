//! Checks that a run finds each planted bug, and prints after how many runs.

#![cfg(feature = "planted")]

use std::fmt::Debug;

use sim::{Failure, Family};

/// Number of seeds of each family within which a bug must be found.
const SEEDS_MAX: u64 = 200;

/// Returns true if the command line chooses a bug.
fn is_chosen(bug: &impl Debug) -> bool {
    std::env::args().all(|word| !word.starts_with("bug=") || word == format!("bug={bug:?}"))
}

/// Checks that runs of these families find each of the bugs.
fn find<Bug: Copy + Debug>(
    bugs: impl IntoIterator<Item = Bug>,
    families: &[Family],
    play: impl Fn(Bug, Family, u64) -> Option<Box<Failure>>,
) {
    let mut missed = Vec::new();
    for bug in bugs.into_iter().filter(is_chosen) {
        let mut tried = 0;
        let found = (0..SEEDS_MAX)
            .flat_map(|seed| families.iter().map(move |family| (*family, seed)))
            .find_map(|(family, seed)| {
                tried += 1;
                play(bug, family, seed)
            });
        match found {
            Some(failure) => println!(
                "{:<32} after {tried:>4} runs, {} seed {}: {}",
                format!("{bug:?}"),
                failure.family.name(),
                failure.seed,
                failure.what
            ),
            None => missed.push(bug),
        }
    }
    assert!(
        missed.is_empty(),
        "not found within {SEEDS_MAX} seeds: {missed:?}"
    );
}

#[test]
fn every_planted_bug_is_found() {
    let runs_dvm = |family: &Family| !matches!(family, Family::Tree | Family::Crowd);
    let families: Vec<Family> = Family::ALL.into_iter().filter(runs_dvm).collect();
    find(dvm::planted::Bug::ALL, &families, |bug, family, seed| {
        dvm::planted::with(bug, || sim::run(family, seed)).err()
    });
}

#[test]
fn every_planted_bug_of_the_tree_is_found() {
    find(
        overlay::planted::Bug::ALL,
        &[Family::Tree],
        |bug, family, seed| overlay::planted::with(bug, || sim::run(family, seed)).err(),
    );
}
