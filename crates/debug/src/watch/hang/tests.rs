use std::{collections::BTreeMap, time::Duration};

use base::Rank;

use super::{Cause, HangDetector, Observed, Progress};
use crate::{
    recorded::{RankCalls, tests::that_has_polled},
    samples::{Boundary, tests::script::recording},
    verdict::{self, RuleId},
};

const SECOND: Duration = Duration::from_secs(1);

/// Returns the causes with the numbers of their samples, for an idle time of 3 s and one sample per second.
fn told(texts: &[&str], written: &[u64]) -> Vec<(usize, Cause)> {
    let recording = recording(SECOND, texts);
    let mut watch = HangDetector::new(3 * SECOND);
    let mut told = Vec::new();
    for (number, sample) in recording.samples.into_iter().enumerate() {
        let bytes = written.get(number).or_else(|| written.last()).copied();
        let look = Observed {
            sample,
            progress: BTreeMap::from([(
                Rank(0),
                Progress {
                    written: bytes.unwrap_or(0),
                },
            )]),
        };
        if let Some(cause) = watch.see(&recording.frames, look) {
            told.push((number, cause));
        }
    }
    told
}

const WAITS: &str = "0-3: main@a.c:1 > MPI_Barrier!libmpi.so > poll!libc.so.6 = running 100";
const WORKS: &str = "0-3: main@a.c:1 > step@a.c:7 = running 100";
const OTHER: &str = "0-3: main@a.c:1 > write_out@a.c:9 = running 100";

#[test]
fn it_is_told_once_after_the_idle_time() {
    assert_eq!(told(&[WAITS; 3], &[]), []);
    assert_eq!(told(&[WAITS; 9], &[]), [(3, Cause::Idle)]);
}

#[test]
fn and_again_when_it_has_moved_between() {
    let texts = [
        WAITS, WAITS, WAITS, WAITS, WORKS, WAITS, WAITS, WAITS, WAITS, WAITS,
    ];
    assert_eq!(told(&texts, &[]), [(3, Cause::Idle), (8, Cause::Idle)]);
}

#[test]
fn what_moves_is_no_hang() {
    assert_eq!(told(&[WORKS, OTHER, WORKS, OTHER, WORKS, WAITS], &[]), []);
    // A job that moves never hangs, however long it stays in one loop.
    assert_eq!(told(&[WORKS; 9], &[]), []);
}

#[test]
fn who_writes_does_not_hang() {
    let waits = "0: main@a.c:1 > read!libc.so.6 = read 0";
    assert_eq!(told(&[waits; 9], &[]), [(3, Cause::Idle)]);
    assert_eq!(told(&[waits; 9], &[1, 1, 2, 2, 2, 3]), [(8, Cause::Idle)]);
}

#[test]
fn one_thread_that_works_is_no_hang() {
    let join = "0: main@a.c:1 > pthread_join!libc.so.6 = futex 0\n";
    let works = [
        format!("{join}0/worker: clone > f@a.c:3 = running 100"),
        format!("{join}0/worker: clone > g@a.c:4 = running 100"),
    ];
    let texts = [&*works[0], &works[1], &works[0], &works[1], &works[0]];
    assert_eq!(told(&texts, &[]), []);
    let stands = format!("{join}0/worker: clone > f@a.c:3 > sem_wait!libc.so.6 = futex 0");
    assert_eq!(told(&[&*stands; 5], &[]), [(3, Cause::Idle)]);
}

#[test]
fn who_has_come_or_gone_has_moved() {
    let gone = format!("{WAITS}\n4: gone");
    let there = format!("{WAITS}\n4: main@a.c:1 > MPI_Barrier!libmpi.so = running 100");
    let texts = [&*there, &there, &gone, &gone, &gone];
    assert_eq!(told(&texts, &[]), []);
    let dead = told(&[&*gone; 5], &[]);
    assert_eq!(dead, [(3, Cause::Idle)]);
}

#[test]
fn a_verdict_is_enough() {
    // The bytes come from a thread that has no part in the job.
    let disk =
        "0-2: main@a.c:1 > MPI_Allreduce!libmpi.so = poll 0\n3: main@a.c:1 > f@a.c:2 = disk 0";
    let written = [0, 10, 20, 30, 40, 50];
    assert_eq!(told(&[disk; 5], &written), [(3, Cause::Verdict)]);
}

#[test]
fn while_it_is_stopped_or_debugged_time_stands() {
    let stopped = "0-3: main@a.c:1 > MPI_Barrier!libmpi.so = stopped 0";
    assert_eq!(told(&[stopped; 9], &[]), []);
    // The idle time starts again when the job continues.
    let waits = "0-3: main@a.c:1 > MPI_Barrier!libmpi.so = poll 0";
    let texts = [
        stopped, stopped, stopped, stopped, waits, waits, waits, waits, waits,
    ];
    assert_eq!(told(&texts, &[]), [(7, Cause::Idle)]);
    let one = "0-2: main@a.c:1 > MPI_Barrier!libmpi.so = poll 0\n3: main@a.c:1 > f = stopped 0";
    assert_eq!(told(&[one; 5], &[]), [(3, Cause::Idle)]);
}

#[test]
fn ranks_that_poll_are_seen_often_enough_for_a_verdict() {
    let idle = 60 * SECOND;
    let every = HangDetector::new(idle).every();
    let texts = ["0-3: main@a.c:1 > MPI_Recv!libmpi.so > poll!libc.so.6 = running 100"; 20];
    // Each sample may come late.
    for late in [Duration::ZERO, SECOND, 2 * SECOND] {
        let recording = recording(every + late, &texts);
        let mut watch = HangDetector::new(idle);
        let told = recording.samples.into_iter().find_map(|sample| {
            let progress = BTreeMap::new();
            watch.see(&recording.frames, Observed { sample, progress })
        });
        assert_eq!(told, Some(Cause::Idle));
        let kept = watch.recording(&recording.frames);
        let verdicts = verdict::judge(&kept.frames, &kept.samples, &kept.observe(Boundary::Known));
        let rules: Vec<RuleId> = verdicts.iter().map(|it| it.rule).collect();
        assert_eq!(rules, [RuleId::NobodySends], "{late:?} late");
    }
}

#[test]
fn the_looks_of_the_idle_time_are_kept() {
    let recording = recording(SECOND, &[WAITS; 9]);
    let mut watch = HangDetector::new(3 * SECOND);
    for sample in recording.samples {
        let progress = BTreeMap::new();
        watch.see(&recording.frames, Observed { sample, progress });
    }
    let kept = watch.recording(&recording.frames);
    let times: Vec<u64> = kept.samples.iter().map(|it| it.at.as_secs()).collect();
    assert_eq!(times, [0, 1, 2, 3]);
    watch.forget();
    assert!(watch.samples.is_empty());
}

#[test]
fn who_cannot_be_seen_may_be_at_work() {
    let forbidden = "0-2: main@a.c:1 > MPI_Barrier!libmpi.so = poll 0\n3: not permitted";
    assert_eq!(told(&[forbidden; 9], &[]), []);
    let late = "0-2: main@a.c:1 > MPI_Barrier!libmpi.so = poll 0\n3: unreachable";
    assert_eq!(told(&[late; 5], &[]), [(3, Cause::Idle)]);
}

#[test]
fn a_look_at_which_nobody_is_seen_is_kept() {
    let debugged = "0-3: traced by 7";
    let stopped = "0-2: main@a.c:1 > f = stopped 0\n3: gone";
    for (text, is_kept) in [
        ("0-3: not permitted", true),
        ("0-3: unproved", true),
        ("0-1: not permitted\n2-3: unproved", true),
        ("0-3: gone", true),
        (debugged, false),
        (stopped, false),
    ] {
        let recording = recording(SECOND, &[text; 9]);
        let mut watch = HangDetector::new(3 * SECOND);
        for sample in recording.samples {
            let progress = BTreeMap::new();
            watch.see(&recording.frames, Observed { sample, progress });
        }
        assert_eq!(!watch.samples.is_empty(), is_kept, "{text}");
    }
}

#[test]
fn what_a_rank_has_started_works_for_it() {
    let waits = "0: main@a.c:1 > wait4!libc.so.6 = child 0";
    let with = |below: &str| format!("{waits}\nbelow 0: {below}");
    let (busy, idle) = (with("50"), with("0.5"));
    assert_eq!(told(&[&*busy; 6], &[]), []);
    // Waking up to test a condition does not count as work.
    assert_eq!(told(&[&*idle; 6], &[]), [(3, Cause::Idle)]);
    // A process that has exited has worked.
    let texts = [&*idle, &idle, waits, waits, waits, waits];
    assert_eq!(told(&texts, &[]), [(5, Cause::Idle)]);
}

/// Polls in a loop of the program's own look like work, unless they are recorded.
#[test]
fn who_only_polls_in_vain_hangs() {
    const POLLS: &str = "0: main@a.c:1 > MPI_Test!libmpi.so = running 100";
    const BETWEEN: &str = "0: main@a.c:1 > step@a.c:7 = running 100";
    let hangs = |texts: &[&str], calls: &dyn Fn(u32) -> Option<RankCalls>| {
        let recording = recording(SECOND, texts);
        let mut watch = HangDetector::new(3 * SECOND);
        let mut found = false;
        for (number, mut sample) in (0..).zip(recording.samples) {
            sample
                .snapshot
                .calls
                .extend(calls(number).map(|calls| (Rank(0), calls)));
            let progress = BTreeMap::new();
            let look = Observed { sample, progress };
            found |= watch.see(&recording.frames, look).is_some();
        }
        found
    };
    let in_vain = |number| Some(that_has_polled(0, 1000 * number));
    assert!(hangs(&[POLLS; 6], &in_vain));
    // It is not recorded.
    assert!(!hangs(&[POLLS; 6], &|_| None));
    // Its polls find something.
    let finds = |number: u32| {
        let progress = u64::from(number);
        in_vain(number).map(|calls| RankCalls { progress, ..calls })
    };
    assert!(!hangs(&[POLLS; 6], &finds));
    // It works between them.
    assert!(!hangs(
        &[POLLS, BETWEEN, POLLS, BETWEEN, POLLS, BETWEEN],
        &in_vain
    ));
    // It has stopped to poll, and computes in the operation of a reduction, say.
    let stopped = |_| Some(that_has_polled(0, 5));
    assert!(!hangs(&[POLLS; 6], &stopped));
}
