//! Tests each rule on samples written by hand: hangs that it must find, and healthy jobs on which it must not give a verdict.

mod healthy;
mod hung;
mod undecided;

use std::time::Duration;

use super::{Verdict, judge};
use crate::samples::{Boundary, Recording, tests::script::recording};

const SECOND: Duration = Duration::from_secs(1);

/// Returns the verdicts on samples that are `every` apart.
fn verdicts_every(every: Duration, texts: &[&str]) -> Vec<String> {
    let recording = recording(every, texts);
    let verdicts = of_recording(&recording);
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

/// Returns the verdicts on a recording.
fn of_recording(recording: &Recording) -> Vec<Verdict> {
    let all = recording.observe(Boundary::Known);
    judge(&recording.frames, &recording.samples, &all)
}

/// Ranks that are in the same call in every sample, and that have communicated between.
#[test]
fn who_communicates_does_not_wait() {
    let text = "0-1: main@a.c:1 > MPI_Recv!libmpi.so = poll 0";
    let mut recording = recording(SECOND, &[text; 4]);
    assert_eq!(of_recording(&recording).len(), 1);
    for (count, sample) in (5..).zip(&mut recording.samples) {
        for rank in [0, 1] {
            let calls = crate::recorded::tests::that_has_sent(rank, count);
            sample.snapshot.calls.insert(base::Rank(rank), calls);
        }
    }
    assert_eq!(of_recording(&recording), []);
    // They have stopped to communicate.
    for sample in &mut recording.samples {
        for rank in [0, 1] {
            let calls = crate::recorded::tests::that_has_sent(rank, 5);
            sample.snapshot.calls.insert(base::Rank(rank), calls);
        }
    }
    assert_eq!(of_recording(&recording).len(), 1);
}
