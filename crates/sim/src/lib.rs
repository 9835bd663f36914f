//! A cluster in one thread: a controller, daemons, fronts and programs on a fake kernel, driven by one seed.
//!
//! [`run`] generates a scenario from a family and a seed, and plays it in virtual time. During the run and at its end, it
//! checks that everything the cluster reports is true. The same family and seed give the same run, event by event.
//! `docs/simulator.md` explains the checks and how to read a failure. The family [`Family::Beside`] uses no cluster: it
//! tests smaller state machines, each by itself.
//!
//! **Architecture invariant:** this crate reads no clock, uses no files and no processes, and depends on none of `os`,
//! `runtime` and `cli`. The code under test is [`dvm`] and [`pmix`]; everything around it is simulated.

mod beside;
mod cluster;
mod front;
mod kernel;
mod ledger;
mod names;
mod node;
mod rng;
mod scenario;
mod script;
mod verdict;
mod world;

use std::fmt;

use self::{rng::Rng, world::Recorded};
pub use self::{scenario::Family, world::Report};

/// A failed run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub family: Family,
    pub seed: u64,
    /// Description of the first fault, which ended the run.
    pub what: String,
    /// The last events up to the fault, one line each.
    pub record: Vec<String>,
}

/// Plays the scenario of a family and a seed. A failed run is repeated to record its events.
///
/// # Errors
///
/// Returns the first fault, with the record of the run up to it.
pub fn run(family: Family, seed: u64) -> Result<Report, Box<Failure>> {
    play(family, seed, Recorded::No).or_else(|_| {
        // Play it again, with a record. The run is the same, because it depends only on its family and seed.
        play(family, seed, Recorded::Yes)
    })
}

fn play(family: Family, seed: u64, recorded: Recorded) -> Result<Report, Box<Failure>> {
    let mut rng = Rng::new(seed.wrapping_mul(31).wrapping_add(family as u64));
    let played = if family == Family::Beside {
        beside::run(&mut rng, recorded)
    } else {
        let scenario = scenario::make(family, &mut rng);
        cluster::run(scenario, rng, recorded)
    };
    played.map_err(|(what, record)| {
        Box::new(Failure {
            family,
            seed,
            what,
            record,
        })
    })
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.record {
            writeln!(f, "{line}")?;
        }
        writeln!(
            f,
            "seed={} family={}: {}",
            self.seed,
            self.family.name(),
            self.what
        )?;
        write!(
            f,
            "again: cargo xtask sim --family {} --seed {}",
            self.family.name(),
            self.seed
        )
    }
}
