//! Tests each rule on samples written by hand: hangs that it must find, and healthy jobs on which it must not give a verdict.

mod healthy;
mod hung;
mod undecided;

use std::time::Duration;

use super::judge;
use crate::samples::{Boundary, tests::script::recording};

const SECOND: Duration = Duration::from_secs(1);

/// Returns the verdicts on samples that are `every` apart.
fn verdicts_every(every: Duration, texts: &[&str]) -> Vec<String> {
    let recording = recording(every, texts);
    let verdicts = judge(&recording.frames, &recording.observe(Boundary::Known));
    for verdict in &verdicts {
        let samples = verdict.cites.iter().flat_map(|cite| &cite.samples);
        assert!(samples.max() > Some(&0), "{verdict}: one sample is cited");
    }
    verdicts.iter().map(ToString::to_string).collect()
}

/// Returns the verdicts on samples that are a second apart.
fn verdicts(texts: &[&str]) -> Vec<String> {
    verdicts_every(SECOND, texts)
}
