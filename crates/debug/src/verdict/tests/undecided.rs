//! Notes on jobs without a verdict.

use std::time::Duration;

use super::{SECOND, verdicts_every};
use crate::{
    report::{Detail, Report},
    samples::tests::script::recording,
};

fn said(every: Duration, texts: &[&str]) -> String {
    assert!(verdicts_every(every, texts).is_empty());
    Report::of(recording(every, texts), Detail::Folded).no_verdict()
}

fn said_of(text: &str) -> String {
    said(SECOND, &[text; 3])
}

const BARRIER: &str = "0-1,3: main@io.c:9 > MPI_Barrier!libmpi.so = running 99\n";

#[test]
fn who_is_where_the_others_are_not() {
    let sentences = [
        format!("{BARRIER}2: main@io.c:4 > load@io.c:5 > open!libc.so.6 = read 0"),
        format!("{BARRIER}2: main@io.c:4 > work@io.c:7 = running 99"),
        format!("{BARRIER}2: main@io.c:9 > MPI_Bcast!libmpi.so = running 99"),
        format!("{BARRIER}2: main@io.c:4 > sem_timedwait!libc.so.6 = timed 0"),
        format!("{BARRIER}2: main@io.c:4 > sem_wait!libc.so.6 = shared 0\nbelow 2: 80"),
        format!("{BARRIER}2: not permitted"),
        format!("{BARRIER}2,4: main@io.c:4 > fgets!libc.so.6 > read!libc.so.6 = read 0\njob: 0"),
        "0-3: main@io.c:9 > MPI_Barrier!libmpi.so = running 99".to_owned(),
        "0-3: main@io.c:9 > MPI_Recv!libmpi.so = running 99".to_owned(),
        "0-3: main@io.c:9 > MPI_Recv!libmpi.so = running 99\njob: 100".to_owned(),
        "0-3: main@io.c:9 > MPI_Recv!libmpi.so = running 99\nneighbor: 100".to_owned(),
        "0: main@io.c:9 > read!libc.so.6 = read 0".to_owned(),
    ];
    let said: String = sentences.iter().map(|text| said_of(text) + "\n").collect();
    insta::assert_snapshot!(said, @"
    no verdict: rank 2 is in open (io.c:5); ranks 0-1,3 wait in MPI_Barrier (io.c:9), perhaps for it
    no verdict: rank 2 runs in work (io.c:7) in 3 of 3 samples; ranks 0-1,3 wait in MPI_Barrier (io.c:9), perhaps for it; 5 samples over 30 s can show more (--samples 5 --every 8s)
    no verdict: ranks 0-1,3 wait in MPI_Barrier (io.c:9); rank 2 waits in MPI_Bcast (io.c:9); 5 samples over 4 s can show more (--samples 5 --every 1s)
    no verdict: rank 2 is in sem_timedwait (io.c:4); ranks 0-1,3 wait in MPI_Barrier (io.c:9), perhaps for it
    no verdict: rank 2 is in sem_wait (io.c:4); ranks 0-1,3 wait in MPI_Barrier (io.c:9), perhaps for it; processes that rank 2 started are at work
    no verdict: rank 2 could not be looked at; ranks 0-1,3 wait in MPI_Barrier (io.c:9), perhaps for it
    no verdict: ranks 2,4 are in read (io.c:4); ranks 0-1,3 wait in MPI_Barrier (io.c:9), perhaps for them; their launcher has other jobs, which they may wait for
    no verdict: ranks 0-3 wait in MPI_Barrier (io.c:9)
    no verdict: ranks 0-3 wait in MPI_Recv (io.c:9); 10 samples over 4 s can show more (--samples 10 --every 1s)
    no verdict: ranks 0-3 wait in MPI_Recv (io.c:9); their launcher has other jobs, which they may wait for
    no verdict: ranks 0-3 wait in MPI_Recv (io.c:9); the user's other jobs on this machine are at work, and may be connected with this one
    no verdict: the samples do not distinguish a program that hangs from a slow one
    ");
}

/// The rank may have gone on, or not.
#[test]
fn who_was_lost_once_is_not_at_work() {
    let there = format!("{BARRIER}2: main@io.c:9 > MPI_Barrier!libmpi.so = running 99");
    let lost = format!("{BARRIER}2: lost");
    insta::assert_snapshot!(said(SECOND, &[&there, &there, &lost]), @"no verdict: rank 2 could not be looked at in all samples; ranks 0-1,3 wait in MPI_Barrier (io.c:9), perhaps for it");
}

#[test]
fn where_more_looks_can_tell_no_more() {
    let texts: Vec<String> = (0..5)
        .map(|line| format!("{BARRIER}2: main@io.c:4 > work{line}@io.c:7 = running 99"))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    insta::assert_snapshot!(said(8 * SECOND, &texts), @"no verdict: rank 2 is in work4 (io.c:7); ranks 0-1,3 wait in MPI_Barrier (io.c:9), perhaps for it");
    insta::assert_snapshot!(said(SECOND, &[BARRIER; 2]), @"no verdict: ranks 0-1,3 wait in MPI_Barrier (io.c:9); 3 samples over 2 s can show more (--samples 3 --every 1s)");
    insta::assert_snapshot!(said(SECOND, &[BARRIER]), @"no verdict: one sample does not show what moves (--samples 3)");
}

#[test]
fn looks_that_were_enough_are_not_asked_for_again() {
    let loops = format!("{BARRIER}2: main@io.c:4 > work@io.c:7 = running 99");
    let receive = "0-3: main@io.c:9 > MPI_Recv!libmpi.so = running 99";
    let ms = Duration::from_millis;
    let asked: String = [
        (ms(1), 1000, BARRIER),
        (ms(500), 4, BARRIER),
        (ms(1200), 11, &loops),
        (ms(1), 15, &loops),
        (ms(400), 8, receive),
        (ms(400), 10, receive),
        (ms(5000), 4, receive),
    ]
    .into_iter()
    .map(|(every, samples, text)| {
        let said = said(every, &vec![text; samples]);
        let (_, asked) = said.rsplit_once("; ").unwrap();
        format!("{samples} every {} ms: {asked}\n", every.as_millis())
    })
    .collect();
    insta::assert_snapshot!(asked, @"
    1000 every 1 ms: samples over 2 s, instead of 1.0 s, can show more (--samples 3 --every 1s)
    4 every 500 ms: samples over 2 s, instead of 1.5 s, can show more (--samples 3 --every 1s)
    11 every 1200 ms: samples over 30 s, instead of 12.0 s, can show more (--samples 11 --every 3s)
    15 every 1 ms: samples over 2 s, instead of 0.0 s, can show more (--samples 3 --every 1s)
    8 every 400 ms: 10 samples over 4 s can show more (--samples 10 --every 1s)
    10 every 400 ms: samples over 4 s, instead of 3.6 s, can show more (--samples 10 --every 1s)
    4 every 5000 ms: 10 samples over 4 s can show more (--samples 10 --every 1s)
    ");
}

#[test]
fn what_a_rank_has_started_is_cited() {
    let system = "2: main@io.c:4 > system!libc.so.6 > waitpid!libc.so.6 = child 0\n";
    let sentences = [
        format!("{system}child 2 4711 7 sh: main@sh.c:3 > read!libc.so.6 = read 0"),
        format!(
            "{system}child 2 4711 7 sh: main@sh.c:3 > waitpid!libc.so.6 = child 0
             child 2 4712 4711 cp: copy@cp.c:3 > write!libc.so.6 = disk 0"
        ),
        format!("{system}child 2 4711 7 solver: main@s.c:3 > step@s.c:9 = running 90"),
        // It is unknown which of the two processes the rank waits for.
        format!(
            "{system}child 2 4711 7 sh: main@sh.c:3 > read!libc.so.6 = read 0
             child 2 4712 7 cp: main@cp.c:3 = stopped 0"
        ),
        // The process could not be sampled.
        format!("{system}child 2 4711 7 sh: not permitted"),
        // A process pool, and a helper process of Python itself.
        "2: py:main@p.py:4 > py:map@/usr/lib/python3.11/multiprocessing/pool.py:367 > sem_wait!libc.so.6 = shared 0
         child 2 4700 7 python3: py:main@/usr/lib/python3.11/multiprocessing/resource_tracker.py:9 > read!libc.so.6 = read 0
         child 2 4711 7 python3: py:work@p.py:9 > read!libc.so.6 = read 0
         child 2 4712 7 python3: py:worker@p.py:1 > sem_wait!libc.so.6 = shared 0
         child 2 4713 7 python3: py:worker@p.py:1 > sem_wait!libc.so.6 = shared 0
         below 2: 80"
            .to_owned(),
        // A rank that waits in MPI or computes does not wait for its own child processes.
        "2: main@io.c:9 > MPI_Barrier!libmpi.so = running 99
         child 2 4711 7 sh: main@sh.c:3 > read!libc.so.6 = read 0"
            .to_owned(),
        "2: main@io.c:4 > work@io.c:7 = running 99
         child 2 4711 7 sh: main@sh.c:3 > read!libc.so.6 = read 0"
            .to_owned(),
    ];
    let said: String = sentences
        .iter()
        .map(|text| said(SECOND, &[format!("{BARRIER}{text}").as_str(); 3]) + "\n")
        .collect();
    insta::assert_snapshot!(said, @"
    no verdict: rank 2 waits in system (io.c:4) for process 4711 `sh`, which is in read (sh.c:3); ranks 0-1,3 wait in MPI_Barrier (io.c:9), perhaps for it
    no verdict: rank 2 waits in system (io.c:4) for process 4711 `sh`, which waits for 4712 `cp`, which is in disk wait in copy (cp.c:3); ranks 0-1,3 wait in MPI_Barrier (io.c:9), perhaps for it
    no verdict: rank 2 waits in system (io.c:4) for process 4711 `solver`, which runs in step (s.c:9); ranks 0-1,3 wait in MPI_Barrier (io.c:9), perhaps for it
    no verdict: rank 2 is in system (io.c:4), and its process 4712 `cp` is stopped by a signal, and its process 4711 `sh` is in read (sh.c:3); ranks 0-1,3 wait in MPI_Barrier (io.c:9), perhaps for it
    no verdict: rank 2 is in system (io.c:4); ranks 0-1,3 wait in MPI_Barrier (io.c:9), perhaps for it
    no verdict: rank 2 is in sem_wait (p.py:4), and its process 4711 `python3` is in read (p.py:9), and its processes 4712, 4713 `python3` are in sem_wait (p.py:1); ranks 0-1,3 wait in MPI_Barrier (io.c:9), perhaps for it; processes that rank 2 started are at work
    no verdict: ranks 0-3 wait in MPI_Barrier (io.c:9)
    no verdict: rank 2 runs in work (io.c:7) in 3 of 3 samples; ranks 0-1,3 wait in MPI_Barrier (io.c:9), perhaps for it; 5 samples over 30 s can show more (--samples 5 --every 8s)
    ");
}
