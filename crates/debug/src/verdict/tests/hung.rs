//! Hanging programs.

use std::time::Duration;

use super::{of_recording, recording, verdicts, verdicts_every};

#[track_caller]
fn check(text: &str, samples: usize, expected: &str) {
    assert_eq!(verdicts(&vec![text; samples]), [expected]);
    assert!(verdicts(&[text]).is_empty(), "one sample is not enough");
}

#[test]
fn one_rank_in_disk_wait() {
    check(
        "0-36,38-1023: main@solver.c:200 > solve@solver.c:88 > MPI_Allreduce!libmpi.so = running 99
         37: main@solver.c:201 > read_block@io.c:41 > read!libc.so.6 = disk 0",
        3,
        "likely: ranks 0-36,38-1023 wait in MPI_Allreduce (solver.c:88), for at least 2 s; rank 37 is in read_block \
         (io.c:41), in disk wait in 3 of 3 samples: a disk or a file server does not answer",
    );
}

#[test]
fn one_rank_without_registers() {
    check(
        "0-2: main@a.c:5 > mpi_barrier_!libmpi_mpifh.so = running 99\n3: unreachable",
        3,
        "likely: ranks 0-2 wait in MPI_Barrier (a.c:5), for at least 2 s; rank 3 is in disk wait in 3 of 3 samples: a \
         disk or a file server does not answer",
    );
}

#[test]
fn frozen_ranks() {
    // All ranks are frozen wherever they were: the verdict neither blames a disk nor says that ranks wait for each other.
    let look = "0-2: main@a.c:5 > PMPI_Barrier!libmpi.so = frozen 99\n3: main@a.c:4 > read@a.c:2 = frozen 7";
    assert_eq!(
        verdicts(&[look, look, look]),
        [
            "certain: ranks 0-2 are in main (a.c:5), frozen by the control group in 3 of 3 samples; rank 3 is in \
         main (a.c:4), frozen by the control group in 3 of 3 samples, for at least 2 s: nothing runs before \
         it is thawed, as `scontrol resume` and `docker unpause` do"
        ]
    );
    // In a frozen process, waiting for a lock is no sign of a deadlock.
    let look = "0: main@a.c:5 > pthread_mutex_lock!libc.so = frozen 99";
    assert_eq!(
        verdicts(&[look, look, look, look]),
        [
            "certain: rank 0 is in main (a.c:5), frozen by the control group in 4 of 4 samples, for at least 3 s: \
         nothing runs before it is thawed, as `scontrol resume` and `docker unpause` do"
        ]
    );
    let look = "0-2: main@a.c:5 > PMPI_Barrier!libmpi.so = running 99\n3: main@a.c:4 > work@a.c:2 = frozen 0";
    assert_eq!(
        verdicts(&[look, look]),
        [
            "certain: ranks 0-2 wait in MPI_Barrier (a.c:5), for at least 1 s; rank 3 is in work (a.c:2), frozen \
         by the control group in 2 of 2 samples"
        ]
    );
}

#[test]
fn one_rank_stopped() {
    check(
        "0-2: main@a.c:5 > PMPI_Barrier!libmpi.so = running 99\n3: main@a.c:4 > work@a.c:2 = stopped 0",
        2,
        "certain: ranks 0-2 wait in MPI_Barrier (a.c:5), for at least 1 s; rank 3 is in work (a.c:2), stopped by a \
         signal in 2 of 2 samples",
    );
}

#[test]
fn one_rank_dead() {
    let asleep = "0,1,3: main@a.c:5 > MPI_Barrier!libmpi.so = poll 0\n2: gone";
    let said = "ranks 0-1,3 wait in MPI_Barrier (a.c:5), for at least 10 s; rank 2 has ended: it can no longer answer";
    let every = Duration::from_secs(5);
    assert_eq!(
        verdicts_every(every, &[asleep; 3]),
        [format!("likely: {said}")]
    );
    // A polling rank may have continued without the exited one, in one call after another.
    let polling = asleep.replace("poll 0", "running 99");
    assert!(verdicts_every(every, &[polling.as_str(); 9]).is_empty());
    assert_eq!(
        verdicts(&[polling.as_str(); 11]),
        [format!("possible: {said}")]
    );
    // A rank that is already in `MPI_Finalize` also waits for the exited rank.
    let one_at_end = format!("{asleep}\n4: main@a.c:9 > MPI_Finalize!libmpi.so = poll 0");
    assert_eq!(
        verdicts_every(every, &[one_at_end.as_str(); 3]),
        [format!("likely: {said}")]
    );
}

#[test]
fn mismatched_collectives() {
    let text = "0-2: main@a.c:5 > MPI_Barrier!libmpi.so = poll 0\n3: main@a.c:9 > MPI_Bcast!libmpi.so = poll 0";
    check(
        text,
        3,
        "likely: ranks 0-2 wait in MPI_Barrier (a.c:5); rank 3 waits in MPI_Bcast (a.c:9), for at least 2 s: the \
         collectives do not match",
    );
    let text = text.replace("poll 0", "running 50");
    assert!(
        verdicts(&[text.as_str(); 3]).is_empty(),
        "who polls may loop"
    );
    assert!(verdicts(&[text.as_str(); 5])[0].starts_with("possible: "));
}

#[test]
fn a_collective_that_one_has_left_out() {
    check(
        "0-2: main@a.c:5 > MPI_Allreduce!libmpi.so = running 99\n3: main@a.c:9 > MPI_Recv!libmpi.so = running 99",
        5,
        "possible: ranks 0-2 wait in MPI_Allreduce (a.c:5), for at least 4 s; rank 3 waits in MPI_Recv (a.c:9): not all ranks have entered the collective",
    );
}

#[test]
fn all_but_one_at_the_end() {
    check(
        "0-2: main@a.c:5 > MPI_Finalize!libmpi.so = poll 0\n3: main@a.c:9 > MPI_Recv!libmpi.so = poll 0",
        3,
        "likely: ranks 0-2 wait in MPI_Finalize (a.c:5), for at least 2 s; rank 3 waits in MPI_Recv (a.c:9): a rank in MPI_Finalize takes no part in further communication",
    );
}

#[test]
fn a_ring_in_which_all_receive() {
    let text = "0-3: main@a.c:5 > shift@a.c:2 > MPI_Recv!libmpi.so = running 99";
    assert!(verdicts(&[text; 9]).is_empty());
    check(
        text,
        10,
        "possible: ranks 0-3 wait in MPI_Recv (a.c:2), for at least 9 s: all wait to receive and none sends",
    );
    check(
        &text.replace("running 99", "poll 0"),
        3,
        "likely: ranks 0-3 wait in MPI_Recv (a.c:2), for at least 2 s: all wait to receive and none sends",
    );
}

/// Other jobs may be on other nodes, and may have sent something between two samples.
#[test]
fn a_job_that_may_be_joined_with_others_which_wait() {
    let text = "0-3: main@a.c:5 > MPI_Recv!libmpi.so = poll 0\nneighbor: 0";
    assert!(verdicts(&[text; 9]).is_empty());
    check(
        text,
        10,
        "possible: ranks 0-3 wait in MPI_Recv (a.c:5), for at least 9 s: all wait to receive and none sends",
    );
    // One rank blocks all others, whatever other jobs do.
    let lock = "0-2: main@a.c:5 > MPI_Barrier!libmpi.so = poll 0\n3: main@a.c:9 > pthread_cond_wait!libc.so.6 = futex 0";
    for neighbor in ["neighbor: 0", "neighbor: 60"] {
        let said = verdicts(&[format!("{lock}\n{neighbor}").as_str(); 3]);
        assert!(said[0].starts_with("likely: "), "{said:?}");
    }
}

#[test]
fn mismatched_tags() {
    check(
        "0: main@a.c:5 > MPI_Ssend!libmpi.so = poll 0\n1: main@a.c:9 > MPI_Recv!libmpi.so = poll 0",
        3,
        "likely: rank 0 waits in MPI_Ssend (a.c:5); rank 1 waits in MPI_Recv (a.c:9), for at least 2 s: the messages that are sent are not those that are received: tag, rank or communicator differ",
    );
}

#[test]
fn two_locks_in_another_order() {
    let text = "0: main@a.c:30 > pthread_join!libc.so.6 = futex 0
         0/first: start_thread > first@a.c:10 > ___pthread_mutex_lock!libc.so.6 = futex 0
         0/second: start_thread > second@a.c:20 > __pthread_mutex_lock!libc.so.6 = futex 0";
    check(
        text,
        3,
        "possible: in rank 0, a thread waits in pthread_mutex_lock (a.c:10) and a thread waits in pthread_mutex_lock \
         (a.c:20), for at least 2 s: no thread that could release the locks runs",
    );
    let owner =
        format!("{text}\n0/owner: start_thread > sleeper@a.c:2 > nanosleep!libc.so.6 = sleep 0");
    assert!(
        verdicts(&[owner.as_str(); 5]).is_empty(),
        "who sleeps may own them"
    );
}

/// Threads that wait at the same place are counted in one sentence.
#[test]
fn forty_threads_and_one_lock() {
    let mut text = "0: main@a.c:30 > pthread_join!libc.so.6 = futex 0".to_owned();
    for thread in 0..40 {
        text.push_str(&format!(
            "\n0/{thread:06b}: start_thread > worker@a.c:10 > pthread_mutex_lock!libc.so.6 = futex 0"
        ));
    }
    check(
        &text,
        3,
        "possible: in rank 0, 40 threads wait in pthread_mutex_lock (a.c:10), for at least 2 s: no thread that could \
         release the locks runs",
    );
}

/// The cited line is in the user's code, even if library frames have lines too.
#[test]
fn lines_of_others_are_not_cited() {
    let text = "0-2: py:main@train.py:88 > py:wrapper@/v/lib/python3.11/site-packages/torch/distributed/c10d_logger.py:83 \
         > py:all_reduce@/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:2000 = poll 0
         3: gone";
    assert_eq!(
        verdicts_every(Duration::from_secs(5), &[text; 3]),
        [
            "likely: ranks 0-2 wait in all_reduce (train.py:88), for at least 10 s; rank 3 has ended: it can no longer answer"
        ]
    );
}

#[test]
fn a_destructor_that_waits() {
    check(
        "0: main > exit!libc.so.6 > Log::~Log@a.cc:7 > pthread_mutex_lock!libc.so.6 = futex 0",
        3,
        "likely: in rank 0, a thread waits in pthread_mutex_lock (a.cc:7), for at least 2 s: it is ending, and no other \
         thread runs",
    );
}

#[test]
fn others_wait_for_a_rank_behind_a_lock() {
    check(
        "0-2: main@a.c:5 > MPI_Barrier!libmpi.so = running 99\n3: main@a.c:9 > pthread_cond_wait!libc.so.6 = futex 0",
        3,
        "likely: ranks 0-2 wait in MPI_Barrier (a.c:5), for at least 2 s; rank 3 waits in pthread_cond_wait (a.c:9): \
         none of its threads runs",
    );
}

#[test]
fn a_data_loader() {
    let text = "0-2: py:train@train.py:9 > py:all_reduce@/x/torch/distributed/distributed_c10d.py:7 > poll!libc.so.6 = poll 0
         3: py:train@train.py:5 > py:_try_get_data@/x/torch/utils/data/dataloader.py:3 > sem_clockwait!libc.so.6 = futex 0";
    assert!(verdicts(&[text; 5]).is_empty(), "data may be slow");
    assert_eq!(
        verdicts_every(Duration::from_secs(5), &[text; 3]),
        [
            "possible: ranks 0-2 wait in all_reduce (train.py:9), for at least 10 s; rank 3 waits in DataLoader \
             (train.py:5): the workers of its data loader are slow, or hang"
        ]
    );
}

#[test]
fn the_processes_of_a_data_loader() {
    let waits = "0-1: py:main@train.py:9 > py:all_reduce@/x/torch/distributed/distributed_c10d.py:7 > poll!libc.so.6 = poll 0
         3: py:main@train.py:5 > py:_try_get_data@/x/torch/utils/data/dataloader.py:9 > poll!libc.so.6 = poll 0\n";
    let idle = "py:_worker_loop@w.py:3 > poll!libc.so.6 = poll 0";
    let sentences = [
        format!(
            "{waits}child 3 4712 7 pt_data_worker: py:load@data.py:3 > open!libc.so.6 = disk 0"
        ),
        format!(
            "{waits}child 3 4711 7 python3: {idle}
             child 3 4712 7 python3: {idle}
             child 3 4713 7 python3: py:load@data.py:3 > pthread_mutex_lock!libc.so.6 = futex 0"
        ),
        (4711..4720)
            .map(|pid| format!("child 3 {pid} 7 python3: {idle}\n"))
            .fold(waits.to_owned(), |all, one| all + &one),
    ];
    let said: Vec<String> = sentences
        .iter()
        .flat_map(|text| verdicts_every(Duration::from_secs(5), &[text.as_str(); 3]))
        .collect();
    insta::assert_snapshot!(said.join("\n"), @"
    possible: ranks 0-1 wait in all_reduce (train.py:9), for at least 10 s; rank 3 waits in DataLoader (train.py:5), and its data loader's process 4712 `pt_data_worker` is in disk wait in load (data.py:3): the workers of its data loader are slow, or hang
    possible: ranks 0-1 wait in all_reduce (train.py:9), for at least 10 s; rank 3 waits in DataLoader (train.py:5), and its data loader's process 4713 `python3` is in pthread_mutex_lock (data.py:3), and its data loader's processes 4711, 4712 `python3` are in poll (w.py:3): the workers of its data loader are slow, or hang
    possible: ranks 0-1 wait in all_reduce (train.py:9), for at least 10 s; rank 3 waits in DataLoader (train.py:5), and its data loader's 9 processes `python3` are in poll (w.py:3): the workers of its data loader are slow, or hang
    ");
}

#[test]
fn a_process_that_a_rank_waits_for_is_behind_a_lock() {
    let waits = "0-2: main@a.c:5 > MPI_Barrier!libmpi.so = running 99
         3: main@a.c:9 > system!libc.so.6 > waitpid!libc.so.6 = child 0\n";
    let said_of = |below: [&str; 3]| {
        let texts = below.map(|below| format!("{waits}{below}"));
        let recording = recording(
            Duration::from_secs(5),
            &texts.each_ref().map(String::as_str),
        );
        let verdicts = of_recording(&recording);
        let said: Vec<String> = verdicts
            .iter()
            .map(|verdict| {
                let cites = verdict.cites.iter().map(|cite| {
                    let inner = cite.frames.last().map(|&id| recording.frames.get(id));
                    let inner = inner.map(ToString::to_string).unwrap_or_default();
                    let (ranks, processes) = (&cite.ranks, &cite.processes);
                    format!("\n  {ranks} {processes:?} {:?} {inner}", cite.samples)
                });
                format!("{verdict}{}", cites.collect::<String>())
            })
            .collect();
        said.join("\n")
    };
    let long = |below: &str| said_of([below; 3]);
    let sh = "child 3 4711 7 sh: main@sh.c:3 > waitpid!libc.so.6 = child 0\n";
    let lock = "main@h.c:3 > pthread_mutex_lock!libc.so.6 = futex 0";
    let said = [
        format!("child 3 4711 7 helper: {lock}"),
        format!("{sh}child 3 4712 4711 helper: {lock}"),
        format!("{sh}child 3 4712 4711 helper: main@h.c:3 > read!libc.so.6 = stopped 0"),
        format!("child 3 4711 7 helper: {lock}\nchild 3 4712 7 helper: {lock}"),
    ];
    let said: Vec<String> = said.iter().map(|below| long(below)).collect();
    insta::assert_snapshot!(said.join("\n"), @"
    possible: ranks 0-2 wait in MPI_Barrier (a.c:5), for at least 10 s; rank 3 waits in system (a.c:9) for process 4711 `helper`, which is in pthread_mutex_lock (h.c:3): none of its threads runs, and no process that it or its launcher started
      0-2 [] [0, 1, 2] MPI_Barrier
      3 [] [0, 1, 2] system
      3 [4711] [0, 1, 2] pthread_mutex_lock
    possible: ranks 0-2 wait in MPI_Barrier (a.c:5), for at least 10 s; rank 3 waits in system (a.c:9) for process 4711 `sh`, which waits for 4712 `helper`, which is in pthread_mutex_lock (h.c:3): none of its threads runs, and no process that it or its launcher started
      0-2 [] [0, 1, 2] MPI_Barrier
      3 [] [0, 1, 2] system
      3 [4711] [0, 1, 2] waitpid
      3 [4712] [0, 1, 2] pthread_mutex_lock
    possible: ranks 0-2 wait in MPI_Barrier (a.c:5), for at least 10 s; rank 3 waits in system (a.c:9) for process 4711 `sh`, which waits for 4712 `helper`, which is stopped by a signal: none of its threads runs, and no process that it or its launcher started
      0-2 [] [0, 1, 2] MPI_Barrier
      3 [] [0, 1, 2] system
      3 [4711] [0, 1, 2] waitpid
      3 [4712] [0, 1, 2] read
    possible: ranks 0-2 wait in MPI_Barrier (a.c:5), for at least 10 s; rank 3 waits in system (a.c:9), and its processes 4711, 4712 `helper` are in pthread_mutex_lock (h.c:3): none of its threads runs, and no process that it or its launcher started
      0-2 [] [0, 1, 2] MPI_Barrier
      3 [] [0, 1, 2] system
      3 [4711, 4712] [0, 1, 2] pthread_mutex_lock
    ");
    for (what, below) in [
        (
            "it reads",
            format!("{sh}child 3 4712 4711 cat: main@h.c:3 > read!libc.so.6 = read 0"),
        ),
        (
            "it sleeps",
            "child 3 4711 7 sleep: main@h.c:3 > nanosleep!libc.so.6 = sleep 0".to_owned(),
        ),
        (
            "it waits for some time",
            "child 3 4711 7 helper: main@h.c:3 > pthread_mutex_timedlock!libc.so.6 = timed 0"
                .to_owned(),
        ),
        (
            "one of two reads",
            format!(
                "child 3 4711 7 helper: {lock}\nchild 3 4712 7 cat: main@h.c:3 > read!libc.so.6 = read 0"
            ),
        ),
        (
            "one is not seen",
            format!("child 3 4711 7 helper: {lock}\nchild 3 4712 7 cat: not permitted"),
        ),
        (
            "it works",
            format!("child 3 4711 7 helper: {lock}\nbelow 3: 80"),
        ),
        ("nobody has a lock", sh.to_owned()),
        ("nothing is seen", String::new()),
    ] {
        assert_eq!(long(&below), "", "{what}");
    }
    // If one of two processes is missing in any sample, it may have done anything then, so there is no verdict.
    let one = format!("child 3 4711 7 helper: {lock}\n");
    let both = format!("{one}child 3 4712 7 helper: {lock}");
    assert_ne!(long(&both), "");
    for unseen in ["not looked at", "traced by 7", "not permitted", "changed"] {
        let but_one = format!("{one}child 3 4712 7 helper: {unseen}");
        for look in 0..3 {
            let mut below = [both.as_str(); 3];
            below[look] = &but_one;
            assert_eq!(said_of(below), "", "{unseen} in sample {look}");
        }
        assert_eq!(long(&but_one), "", "{unseen}");
    }
}

#[test]
fn one_more_place_is_one() {
    let said = [1, 2].map(super::super::words::more_places);
    assert_eq!(said, ["1 more place", "2 more places"]);
}

#[test]
fn an_endless_loop() {
    let text = |line| {
        format!(
            "0-2: main@a.c:5 > MPI_Barrier!libmpi.so = running 99\n3: main@a.c:4 > spin@a.c:{line} = running 99"
        )
    };
    let texts: Vec<String> = (2..7).map(text).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert!(verdicts(&texts).is_empty(), "it may be a long computation");
    assert_eq!(
        verdicts_every(Duration::from_secs(8), &texts),
        [
            "possible: ranks 0-2 wait in MPI_Barrier (a.c:5), for at least 32 s; rank 3 runs in spin (a.c:6) in 5 of 5 \
             samples: it computes for long, or without end"
        ]
    );
}

/// On a node without ranks, nobody sees a spawned job.
#[test]
fn on_several_nodes_a_spawned_job_may_be_anywhere() {
    let waits = "0-3: main@a.c:5 > MPI_Recv!libmpi.so = poll 0\n";
    for (others, expected) in [
        ("spawner: 0", 1),
        ("elsewhere: 0", 1),
        ("spawner: 0\nelsewhere: 0", 0),
    ] {
        let text = format!("{waits}{others}");
        assert_eq!(verdicts(&[&*text; 3]).len(), expected, "{others}");
        // After ten samples the verdict is only possible.
        let many = verdicts(&[&*text; 10]);
        let is_possible = many[0].starts_with("possible: ");
        assert_eq!(is_possible, expected == 0, "{many:?}");
    }
}

#[test]
fn a_stopped_rank_stays_so_when_the_agent_of_another_is_lost() {
    let others =
        "0: main@a.c:5 > MPI_Barrier!libmpi.so = poll 0\n1: main@a.c:4 > f@a.c:2 = stopped 0\n";
    let there = format!("{others}2: main@a.c:4 > work@a.c:2 = running 99");
    let lost = format!("{others}2: lost");
    insta::assert_snapshot!(verdicts(&[&there, &there, &lost]).concat(), @"certain: rank 0 waits in MPI_Barrier (a.c:5), for at least 2 s; rank 1 is in f (a.c:2), stopped by a signal in 3 of 3 samples");
}

#[test]
fn an_epoch_that_nobody_ends() {
    check(
        "0-2: main@a.c:5 > MPI_Win_fence!libmpi.so = running 99\n3: main@a.c:9 > PMPI_Win_wait!libmpi.so = running 99",
        5,
        "possible: ranks 0-2 wait in MPI_Win_fence (a.c:5), for at least 4 s; rank 3 waits in MPI_Win_wait (a.c:9): not all ranks have entered the collective",
    );
}

#[test]
fn neighbours_that_do_not_match() {
    check(
        "0-2: main@a.c:5 > MPI_Neighbor_alltoallv!libmpi.so = poll 0\n3: main@a.c:9 > mpi_cart_create_!libmpi_mpifh.so = poll 0",
        3,
        "likely: ranks 0-2 wait in MPI_Neighbor_alltoallv (a.c:5); rank 3 waits in MPI_Cart_create (a.c:9), for at least 2 s: \
         the collectives do not match",
    );
}

#[test]
fn one_is_stopped_while_others_wait_for_a_file_and_for_other_jobs() {
    check(
        "0,1: main@a.c:5 > MPI_File_write_all!libmpi.so = running 99\n2: main@a.c:7 > MPI_Comm_accept!libmpi.so = poll 0
         3: main@a.c:4 > work@a.c:2 = stopped 0\njob: 99",
        2,
        "certain: ranks 0-1 wait in MPI_File_write_all (a.c:5), for at least 1 s; rank 3 is in work (a.c:2), stopped by a \
         signal in 2 of 2 samples",
    );
}

#[test]
fn others_wait_for_a_rank_behind_a_semaphore() {
    let text = "0-2: main@a.c:5 > MPI_Barrier!libmpi.so = running 99\n3: main@a.c:9 > sem_wait!libc.so.6 = shared 0\nbelow 3: 0";
    assert_eq!(
        verdicts_every(Duration::from_secs(5), &[text; 3]),
        [
            "possible: ranks 0-2 wait in MPI_Barrier (a.c:5), for at least 10 s; rank 3 waits in sem_wait (a.c:9): none of its \
             threads runs, and no process that it or its launcher started"
        ]
    );
}

#[test]
fn the_lock_of_an_interpreter_is_a_lock() {
    check(
        "0: main@a.c:9 > f@a.c:3 > pthread_mutex_lock!libc.so.6 = futex 0
         0/b: start_thread > g@a.c:4 > take_gil!libpython3.11.so > pthread_cond_timedwait!libc.so.6 = timed 0",
        3,
        "possible: in rank 0, a thread waits in pthread_mutex_lock (a.c:3), for at least 2 s: no other thread runs that could \
         release the lock",
    );
}
