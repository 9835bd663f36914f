//! Plays the first seeds of each family in every test run.

use sim::Family;

/// Returns the number of seeds of a family. Families with long runs have fewer; `flood` and `tree`, which move megabytes, and
/// `crowd` have fewest.
const fn seeds(family: Family) -> u64 {
    match family {
        Family::Flood => 60,
        Family::Tree => 60,
        Family::Crowd => 1,
        // A run takes a quarter of a minute in a release build.
        Family::Thousand => 0,
        Family::Dvm => 40,
        Family::Debug => 100,
        Family::Fronts | Family::Files | Family::Doors => 150,
        Family::Output | Family::Input | Family::Pmix | Family::Spawn | Family::Nodes => 150,
        _ => 300,
    }
}

fn play(family: Family) {
    for seed in 0..seeds(family) {
        if let Err(failure) = sim::run(family, seed) {
            panic!("\n{failure}");
        }
    }
}

macro_rules! families {
    ($($name:ident: $family:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            play(Family::$family);
        })*

        #[test]
        fn no_family_is_forgotten() {
            assert_eq!(Family::ALL, [$(Family::$family),*]);
        }
    };
}

families! {
    life: Life,
    output: Output,
    flood: Flood,
    input: Input,
    fence: Fence,
    hold: Hold,
    start: Start,
    front: Front,
    loss: Loss,
    mix: Mix,
    pmix: Pmix,
    spawn: Spawn,
    beside: Beside,
    nodes: Nodes,
    fronts: Fronts,
    files: Files,
    tree: Tree,
    crowd: Crowd,
    dvm: Dvm,
    thousand: Thousand,
    debug: Debug,
    queue: Queue,
    machine: Machine,
    doors: Doors,
}

/// A family that no longer fails has to move to [`Family::ALL`].
#[test]
fn families_that_are_known_to_fail_do() {
    for (family, why) in Family::KNOWN_TO_FAIL {
        let fails = (0..20).any(|seed| sim::run(family, seed).is_err());
        assert!(fails, "{} does not fail any more: {why}", family.name());
    }
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let is_short = |family: &Family| !matches!(family, Family::Crowd | Family::Thousand);
    for family in Family::ALL.into_iter().filter(is_short) {
        assert_eq!(sim::run(family, 7), sim::run(family, 7));
    }
}
