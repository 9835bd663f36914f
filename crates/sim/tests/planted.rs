//! Checks that a run finds each planted bug, and prints after how many runs.

#![cfg(feature = "planted")]

use dvm::planted::{self, Bug};
use sim::Family;

/// Number of seeds of each family within which a bug must be found.
const SEEDS_MAX: u64 = 200;

#[test]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    let chosen = |bug: &Bug| {
        std::env::args().all(|word| !word.starts_with("bug=") || word == format!("bug={bug:?}"))
    };
    for bug in Bug::ALL.into_iter().filter(chosen) {
        let mut tried = 0;
        let found = (0..SEEDS_MAX)
            .flat_map(|seed| Family::ALL.map(|family| (family, seed)))
            .find_map(|(family, seed)| {
                tried += 1;
                planted::with(bug, || sim::run(family, seed)).err()
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
