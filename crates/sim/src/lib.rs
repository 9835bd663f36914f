//! A cluster in one thread: a controller, daemons, fronts and programs on a fake kernel, driven by one seed.
//!
//! [`run`] generates a scenario from a family and a seed, and plays it in virtual time. During the run and at its end, it
//! checks that everything the cluster reports is true. The same family and seed give the same run, event by event.
//! `docs/simulator.md` explains the checks and how to read a failure. Six families use no cluster: [`Family::Beside`] tests
//! smaller state machines, each by itself; [`Family::Tree`] and [`Family::Crowd`] test the processes of the overlay;
//! [`Family::Debug`] tests a debug session over these processes; [`Family::Queue`] tests the queue of a machine, and [`Family::Machine`] the machine itself. In [`Family::Dvm`] and [`Family::Thousand`] these processes join the daemons of a cluster.
//!
//! **Architecture invariant:** this crate reads no clock, uses no files and no processes, and depends on none of `os`,
//! `runtime` and `cli`. The code under test is [`dvm`], [`overlay`], [`pmix`] and [`debug`]; everything around it is simulated.

mod agenda;
mod agents;
mod beside;
mod carrier;
mod cluster;
mod files;
mod front;
mod kernel;
mod ledger;
mod machine;
mod members;
mod names;
mod net;
mod node;
pub mod queue;
mod record;
pub mod replay;
mod rng;
pub mod scale;
mod scenario;
mod script;
mod tree;
mod verdict;
mod world;

use std::fmt;

pub use self::{record::Report, scenario::Family};
use self::{
    record::{Played, Recorded},
    rng::Rng,
};

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
/// Returns the first fault, with the record of the run up to it. A run that is not repeated event by event is a fault too:
/// its seed proves nothing.
pub fn run(family: Family, seed: u64) -> Result<Report, Box<Failure>> {
    confirm(family, seed, |recorded| play(family, seed, recorded))
}

/// Plays a run, and if it fails once more with a record.
fn confirm(
    family: Family,
    seed: u64,
    mut play: impl FnMut(Recorded) -> Played,
) -> Result<Report, Box<Failure>> {
    let what = match play(Recorded::No).result {
        Ok(report) => return Ok(report),
        Err(what) => what,
    };
    let again = play(Recorded::Yes);
    let what = match again.result {
        Err(repeated) if repeated == what => what,
        Err(other) => format!("{what}; the repeated run failed otherwise: {other}"),
        Ok(_) => format!("{what}; the repeated run, which is recorded, did not fail"),
    };
    Err(Box::new(Failure {
        family,
        seed,
        what,
        record: again.record,
    }))
}

fn play(family: Family, seed: u64, recorded: Recorded) -> Played {
    let mut rng = Rng::new(seed.wrapping_mul(31).wrapping_add(family as u64));
    match family {
        Family::Beside => return beside::run(&mut rng, recorded),
        Family::Tree => return tree::run(&mut rng, tree::Size::Any, recorded),
        Family::Crowd => return tree::run(&mut rng, tree::Size::Crowd, recorded),
        Family::Debug => return agents::run(&mut rng, recorded),
        Family::Queue => return queue::run(&mut rng, recorded),
        Family::Machine => return machine::run(&mut rng, recorded),
        _ => {}
    }
    let scenario = scenario::make(family, &mut rng);
    cluster::run(scenario, rng, recorded)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is reported if a run has this result, and its repetition that one.
    fn confirmed(first: Result<Report, &str>, second: Result<Report, &str>) -> String {
        let mut results = vec![second, first];
        let confirmed = confirm(Family::Life, 7, |recorded| Played {
            result: results.pop().unwrap().map_err(str::to_owned),
            record: match recorded {
                Recorded::Yes => vec!["an event".to_owned()],
                Recorded::No => Vec::new(),
            },
        });
        confirmed.map_or_else(|failure| failure.to_string(), |_| "ok".to_owned())
    }

    #[test]
    fn a_failure_that_is_not_repeated_is_a_failure() {
        let passes = Ok(Report::default());
        assert_eq!(confirmed(passes, Err("never played")), "ok");
        let again = "again: cargo xtask sim --family life --seed 7";
        assert_eq!(
            confirmed(Err("it hangs"), Err("it hangs")),
            format!("an event\nseed=7 family=life: it hangs\n{again}")
        );
        assert_eq!(
            confirmed(Err("it hangs"), passes),
            format!(
                "an event\nseed=7 family=life: it hangs; the repeated run, which is recorded, did not fail\n{again}"
            )
        );
        assert_eq!(
            confirmed(Err("it hangs"), Err("it loops")),
            format!(
                "an event\nseed=7 family=life: it hangs; the repeated run failed otherwise: it loops\n{again}"
            )
        );
    }
}
