//! Plays every seed that has once found a bug.

use sim::Family;

/// The files in `seeds`, one per family. Each line has a seed and the bug that it found.
const FILES: [(Family, &str); 24] = [
    (Family::Life, include_str!("../seeds/life.txt")),
    (Family::Output, include_str!("../seeds/output.txt")),
    (Family::Flood, include_str!("../seeds/flood.txt")),
    (Family::Input, include_str!("../seeds/input.txt")),
    (Family::Fence, include_str!("../seeds/fence.txt")),
    (Family::Hold, include_str!("../seeds/hold.txt")),
    (Family::Start, include_str!("../seeds/start.txt")),
    (Family::Front, include_str!("../seeds/front.txt")),
    (Family::Loss, include_str!("../seeds/loss.txt")),
    (Family::Mix, include_str!("../seeds/mix.txt")),
    (Family::Pmix, include_str!("../seeds/pmix.txt")),
    (Family::Spawn, include_str!("../seeds/spawn.txt")),
    (Family::Beside, include_str!("../seeds/beside.txt")),
    (Family::Nodes, include_str!("../seeds/nodes.txt")),
    (Family::Fronts, include_str!("../seeds/fronts.txt")),
    (Family::Files, include_str!("../seeds/files.txt")),
    (Family::Tree, include_str!("../seeds/tree.txt")),
    (Family::Crowd, include_str!("../seeds/crowd.txt")),
    (Family::Dvm, include_str!("../seeds/dvm.txt")),
    (Family::Thousand, include_str!("../seeds/thousand.txt")),
    (Family::Debug, include_str!("../seeds/debug.txt")),
    (Family::Queue, include_str!("../seeds/queue.txt")),
    (Family::Machine, include_str!("../seeds/machine.txt")),
    (Family::Doors, include_str!("../seeds/doors.txt")),
];

#[test]
fn old_failures_stay_mended() {
    for (family, text) in FILES {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let seed = line
                .split_whitespace()
                .next()
                .and_then(|word| word.parse().ok());
            let Some(seed) = seed else {
                panic!("seeds/{}.txt: no seed in `{line}`", family.name());
            };
            if let Err(failure) = sim::run(family, seed) {
                panic!("\n{failure}\nit once found: {line}");
            }
        }
    }
}
