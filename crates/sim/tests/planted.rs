//! Checks that a run finds each planted bug, and prints after how many runs.

#![cfg(feature = "planted")]

use std::fmt::Debug;

use dvm::planted::Bug;
use sim::{
    Failure, Family,
    replay::{Replay, ReplayError, Replayed},
};

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
    seeds: u64,
    play: impl Fn(Bug, Family, u64) -> Option<Box<Failure>>,
) {
    let mut missed = Vec::new();
    for bug in bugs.into_iter().filter(is_chosen) {
        let mut tried = 0;
        let found = (0..seeds)
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
        "not found within {seeds} seeds: {missed:?}"
    );
}

#[test]
fn every_planted_bug_is_found() {
    let runs_dvm = |family: &Family| {
        use Family::{Crowd, Debug, Dvm, Machine, Queue, Thousand, Tree};
        !matches!(
            family,
            Tree | Crowd | Dvm | Thousand | Debug | Queue | Machine
        )
    };
    let families: Vec<Family> = Family::ALL.into_iter().filter(runs_dvm).collect();
    find(Bug::ALL, &families, SEEDS_MAX, |bug, family, seed| {
        dvm::planted::with(bug, || sim::run(family, seed)).err()
    });
}

#[test]
fn every_planted_bug_of_the_tree_is_found() {
    find(
        overlay::planted::Bug::ALL,
        &[Family::Tree],
        SEEDS_MAX,
        |bug, family, seed| overlay::planted::with(bug, || sim::run(family, seed)).err(),
    );
}

#[test]
fn every_planted_bug_of_the_debugger_is_found() {
    find(
        debug::planted::Bug::ALL,
        &[Family::Debug],
        SEEDS_MAX,
        |bug, family, seed| debug::planted::with(bug, || sim::run(family, seed)).err(),
    );
}

#[test]
fn every_planted_bug_of_the_queue_is_found() {
    use dvm::queue::planted;
    find(
        planted::Bug::ALL,
        &[Family::Queue],
        SEEDS_MAX,
        |bug, family, seed| planted::with(bug, || sim::run(family, seed)).err(),
    );
}

#[test]
fn every_planted_bug_of_the_machine_is_found() {
    use dvm::machine::planted;
    find(
        planted::Bug::ALL,
        &[Family::Machine],
        SEEDS_MAX,
        |bug, family, seed| planted::with(bug, || sim::run(family, seed)).err(),
    );
}

/// Number of seeds of the family `dvm` in `families.rs`.
const DVM_SEEDS: u64 = 40;

/// Bugs where the daemons and the tree meet: the family `dvm` finds them within the seeds that every test run plays.
#[test]
fn every_planted_bug_of_the_joining_is_found() {
    use overlay::planted::Bug as OfTree;
    let of_dvm = [
        Bug::MergedTakenForFirst,
        Bug::FirstLossOnly,
        Bug::LostRanksLive,
        Bug::ControllerLossIgnored,
        Bug::NodeLossIgnored,
        // Tools come to the controller of the tree, too.
        Bug::OutlivesItsTool,
    ];
    find(of_dvm, &[Family::Dvm], DVM_SEEDS, |bug, family, seed| {
        dvm::planted::with(bug, || sim::run(family, seed)).err()
    });
    let of_tree = [
        OfTree::LostNotTold,
        OfTree::NotCastAgain,
        OfTree::ResumeBehindSent,
        OfTree::HeardNotTold,
    ];
    find(of_tree, &[Family::Dvm], DVM_SEEDS, |bug, family, seed| {
        overlay::planted::with(bug, || sim::run(family, seed)).err()
    });
}

/// Recordings of healthy runs; see their README.
const RECORDINGS: [(&str, &[u8]); 3] = [
    ("one", include_bytes!("../../../testdata/recording/one")),
    ("two", include_bytes!("../../../testdata/recording/two")),
    ("two.1", include_bytes!("../../../testdata/recording/two.1")),
];

fn replay(recording: &[u8]) -> Result<Replayed, ReplayError> {
    let mut replay = Replay::default();
    replay.take(recording)?;
    replay.end()
}

/// Code with a bug does not repeat what healthy code has done. Two short runs do not meet every bug; they meet each of these.
#[test]
fn a_replay_finds_planted_bugs() {
    for (name, recording) in RECORDINGS {
        let replayed = replay(recording);
        assert!(replayed.is_ok(), "{name}: {}", replayed.unwrap_err());
    }
    let finds = |bug: &Bug| {
        let differs = |error| matches!(error, ReplayError::Differs(_));
        RECORDINGS.iter().any(|(_, recording)| {
            dvm::planted::with(*bug, || replay(recording)).is_err_and(differs)
        })
    };
    let found: Vec<Bug> = Bug::ALL.into_iter().filter(finds).collect();
    insta::assert_debug_snapshot!(found, @r"
    [
        DoneBeforeLastStream,
        LeakTimerNeverArmed,
        InputEndForgotten,
        InputCreditTwice,
        InputReadAhead,
        KillAfterGraceForgotten,
        GraceIgnored,
        ContAfterTermForgotten,
        StraysNotSwept,
        LaunchedTooEarly,
        EndNotToldToPmix,
        GoneNotTold,
        EndsToAllNodes,
    ]
    ");
}
