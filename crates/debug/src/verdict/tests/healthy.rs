//! Healthy but slow programs, each in the state in which it looks worst. None may get a verdict.

use std::time::Duration;

use super::{verdicts, verdicts_every};

#[track_caller]
fn quiet(texts: &[&str]) {
    assert_eq!(verdicts(texts), [""; 0]);
}

/// Checks that five equal samples lead to no verdict.
#[track_caller]
fn quiet_at(text: &str) {
    quiet(&[text; 5]);
}

const BARRIER: &str = "0-2: main@a.c:5 > MPI_Barrier!libmpi.so = running 99\n";

#[test]
fn load_imbalance() {
    let look = |waiting: &str, late: &str| {
        format!(
            "{waiting}: main@a.c:5 > MPI_Allreduce!libmpi.so = running 99\n{late}: main@a.c:4 > work@a.c:2 = running 99"
        )
    };
    let texts = [look("0-2", "3"), look("0,1,3", "2"), look("1-3", "0")];
    quiet(&[&texts[0], &texts[1], &texts[2], &texts[0]]);
    quiet_at(&texts[0]);
}

/// Each of these looks would lead to a verdict if the last rank were left out.
#[test]
fn ranks_that_were_not_found_may_be_those_that_continue() {
    for others in [
        "0-1: main@a.c:5 > MPI_Barrier!libmpi.so = poll 0\n2: main@a.c:5 > MPI_Recv!libmpi.so = poll 0",
        "0-2: main@a.c:5 > MPI_Recv!libmpi.so = poll 0",
        "0-2: main@a.c:5 > MPI_Send!libmpi.so = poll 0",
    ] {
        assert_eq!(verdicts(&[others; 5]).len(), 1, "{others}");
        for why in ["not found", "lost", "not started"] {
            quiet_at(&format!("{others}\n3: {why}"));
        }
    }
}

#[test]
fn all_in_one_collective() {
    quiet_at("0-3: main@a.c:5 > MPI_Allreduce!libmpi.so = running 99");
    quiet_at("0-3: main@a.c:5 > MPI_Allreduce!libmpi.so = poll 0");
}

#[test]
fn master_and_idle_workers() {
    quiet(&[
        "0: main@m.c:5 > plan@m.c:2 = running 99\n1-3: main@w.c:5 > MPI_Recv!libmpi.so = running 99",
        "0: main@m.c:6 > write_out@m.c:3 = running 99\n1-3: main@w.c:5 > MPI_Recv!libmpi.so = running 99",
        "0: main@m.c:5 > plan@m.c:2 = running 99\n1-3: main@w.c:5 > MPI_Recv!libmpi.so = running 99",
    ]);
    quiet_at(
        "0: main@m.c:5 > plan@m.c:2 = running 99\n1-3: main@w.c:5 > MPI_Recv!libmpi.so = poll 0",
    );
}

#[test]
fn master_waits_for_a_busy_worker() {
    quiet_at(
        "0,2,3: main@m.c:5 > MPI_Recv!libmpi.so = poll 0\n1: main@w.c:5 > task@w.c:2 = running 99",
    );
}

#[test]
fn one_writes_and_the_others_wait() {
    // The rank uses CPU time between two disk waits.
    quiet_at(&format!(
        "{BARRIER}3: main@a.c:4 > save@io.c:9 > write!libc.so.6 = disk 5"
    ));
}

#[test]
fn one_waits_for_the_disk_to_have_it_all() {
    quiet_at(&format!(
        "{BARRIER}3: main@a.c:4 > save@io.c:9 > fsync!libc.so.6 = disk 0"
    ));
}

#[test]
fn a_server_that_sleeps_and_looks() {
    quiet_at(
        "0: main@s.c:5 > MPI_Iprobe!libmpi.so = running 5\n1-3: main@w.c:5 > MPI_Recv!libmpi.so = running 99",
    );
    quiet_at(
        "0: main@s.c:6 > nanosleep!libc.so.6 = sleep 0\n1-3: main@w.c:5 > MPI_Barrier!libmpi.so = running 99",
    );
}

#[test]
fn a_pipeline() {
    let look = |busy: u32| {
        (0..4)
            .map(|rank| {
                if rank == busy {
                    format!("{rank}: main@p.c:7 > stage@p.c:3 = running 99\n")
                } else {
                    format!("{rank}: main@p.c:6 > MPI_Recv!libmpi.so = running 99\n")
                }
            })
            .collect::<String>()
    };
    let samples: Vec<String> = (0..12).map(|look_| look(look_ % 4)).collect();
    quiet(&samples.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn all_held_for_a_debugger() {
    quiet_at("0-3: main@a.c:3 > MPI_Init!libmpi.so > poll!libc.so.6 = poll 0");
    quiet_at("0-3: _start!ld-linux-x86-64.so.2 = traced 0");
    quiet_at("0-3: _start!ld-linux-x86-64.so.2 = stopped 0");
}

#[test]
fn producer_and_consumers() {
    quiet_at(
        "0: main@a.c:9 > pthread_join!libc.so.6 = futex 0
         0/maker: start_thread > make@a.c:3 > nanosleep!libc.so.6 = sleep 0
         0/taker: start_thread > take@a.c:6 > pthread_cond_wait!libc.so.6 = futex 0",
    );
    // Contention: the thread that holds the lock runs.
    quiet_at(
        "0: main@a.c:9 > pthread_join!libc.so.6 = futex 0
         0/a: start_thread > work@a.c:3 > pthread_mutex_lock!libc.so.6 = futex 0
         0/b: start_thread > work@a.c:3 > pthread_mutex_lock!libc.so.6 = futex 0
         0/c: start_thread > work@a.c:4 = running 99",
    );
    // An idle thread pool.
    quiet_at(
        "0: main@a.c:9 > pthread_cond_wait!libc.so.6 = futex 0
         0/a: start_thread > work@a.c:3 > pthread_cond_wait!libc.so.6 = futex 0",
    );
}

#[test]
fn openmp() {
    quiet_at(
        "0-2: main@a.c:5 > MPI_Barrier!libmpi.so = running 99
         3: main@a.c:3 > GOMP_parallel!libgomp.so.1 > gomp_team_barrier_wait_end!libgomp.so.1 = futex 0
         3/omp: clone > gomp_thread_start!libgomp.so.1 > main._omp_fn.0@a.c:4 = running 99",
    );
}

#[test]
fn python_that_sleeps() {
    quiet_at("0-3: py:main@a.py:9 > py:poll@a.py:4 > clock_nanosleep!libc.so.6 = sleep 0");
}

#[test]
fn a_large_allocation() {
    quiet_at(&format!(
        "{BARRIER}3: main@a.c:4 > fill@a.c:2 > memset!libc.so.6 = running 60"
    ));
}

#[test]
fn swapping() {
    quiet(&[
        &format!("{BARRIER}3: main@a.c:4 > work@a.c:2 = disk 3"),
        &format!("{BARRIER}3: main@a.c:4 > work@a.c:2 = disk 3"),
        &format!("{BARRIER}3: main@a.c:4 > work@a.c:3 = disk 3"),
    ]);
}

#[test]
fn a_startup() {
    quiet_at(
        "0-2: main@a.c:3 > MPI_Init!libmpi.so = poll 0\n3: _dl_start_user!ld-linux-x86-64.so.2 > open!ld-linux-x86-64.so.2 = disk 2",
    );
    quiet_at(
        "0-2: main@a.c:3 > MPI_Init!libmpi.so = poll 0\n3: _start > main@a.c:2 > read_input@a.c:1 = running 99",
    );
}

#[test]
fn one_sets_up_for_all() {
    quiet(&[
        "0: main@a.c:2 > mesh@a.c:8 > sort@a.c:1 = running 99\n1-3: main@a.c:5 > MPI_Bcast!libmpi.so = running 99",
        "0: main@a.c:2 > mesh@a.c:9 > split@a.c:1 = running 99\n1-3: main@a.c:5 > MPI_Bcast!libmpi.so = running 99",
        "0: main@a.c:2 > mesh@a.c:9 > split@a.c:1 = running 99\n1-3: main@a.c:5 > MPI_Bcast!libmpi.so = running 99",
    ]);
}

#[test]
fn a_front_for_people() {
    quiet_at(
        "0: main@a.c:2 > fgets!libc.so.6 > read!libc.so.6 = read 0\n1-3: main@a.c:5 > MPI_Bcast!libmpi.so = running 99",
    );
}

#[test]
fn a_child_that_works() {
    quiet_at(&format!(
        "{BARRIER}3: main@a.c:4 > system!libc.so.6 > waitpid!libc.so.6 = child 0"
    ));
}

#[test]
fn a_game_of_ping_pong() {
    quiet(&[
        "0: main@a.c:2 > MPI_Recv!libmpi.so = running 99\n1: main@a.c:5 > MPI_Recv!libmpi.so = running 99",
        "0: main@a.c:2 > MPI_Recv!libmpi.so = running 99\n1: main@a.c:6 > MPI_Send!libmpi.so = running 99",
        "0: main@a.c:2 > MPI_Recv!libmpi.so = running 99\n1: main@a.c:5 > MPI_Recv!libmpi.so = running 99",
        "0: main@a.c:2 > MPI_Recv!libmpi.so = running 99\n1: main@a.c:5 > MPI_Recv!libmpi.so = running 99",
        "0: main@a.c:2 > MPI_Recv!libmpi.so = running 99\n1: main@a.c:5 > MPI_Recv!libmpi.so = running 99",
    ]);
}

#[test]
fn two_components_with_their_own_collectives() {
    quiet(&[
        "0,1: main@a.c:2 > MPI_Allreduce!libmpi.so = running 99\n2,3: main@o.c:5 > MPI_Barrier!libmpi.so = running 99",
        "0,1: main@a.c:2 > MPI_Allreduce!libmpi.so = running 99\n2,3: main@o.c:4 > work@o.c:1 = running 99",
        "0,1: main@a.c:2 > MPI_Allreduce!libmpi.so = running 99\n2,3: main@o.c:5 > MPI_Barrier!libmpi.so = running 99",
        "0,1: main@a.c:2 > MPI_Allreduce!libmpi.so = running 99\n2,3: main@o.c:5 > MPI_Barrier!libmpi.so = running 99",
        "0,1: main@a.c:2 > MPI_Allreduce!libmpi.so = running 99\n2,3: main@o.c:5 > MPI_Barrier!libmpi.so = running 99",
    ]);
}

#[test]
fn a_rank_that_has_just_ended() {
    quiet(&[
        "0-2: main@a.c:5 > MPI_Barrier!libmpi.so = poll 0\n3: main@a.c:8 > f = running 99",
        "0-2: main@a.c:5 > MPI_Barrier!libmpi.so = poll 0\n3: gone",
    ]);
}

#[test]
fn ranks_that_go_on_without_one_that_has_ended() {
    let five = Duration::from_secs(5);
    // The survivors agree on which ranks are alive. Only survivors take part in these calls.
    for call in ["MPIX_Comm_shrink", "MPIX_Comm_agree"] {
        for how in ["poll 0", "running 99"] {
            let text = format!("0-2: main@a.c:5 > {call}!libmpi.so = {how}\n3: gone");
            assert_eq!(
                verdicts_every(five, &[text.as_str(); 12]),
                [""; 0],
                "{text}"
            );
            let text = format!(
                "0-1: main@a.c:7 > MPI_Recv!libmpi.so = {how}\n2: main@a.c:5 > {call}!libmpi.so = {how}\n3: gone"
            );
            assert_eq!(
                verdicts_every(five, &[text.as_str(); 12]),
                [""; 0],
                "{text}"
            );
        }
    }
    // The library needs a while to notice that a rank has exited.
    quiet(&["0-2: main@a.c:5 > MPI_Allreduce!libmpi.so = poll 0\n3: gone"; 9]);
    // One surviving rank at a time works.
    let texts: Vec<String> = (0..12)
        .map(|look| {
            let (waiting, works) = (["0-1", "0,2"][look % 2], [2, 1][look % 2]);
            format!(
                "{waiting}: main@a.c:5 > MPI_Allreduce!libmpi.so = running 99\n{works}: main@a.c:4 > step@a.c:2 = \
                 running 99\n3: gone"
            )
        })
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert_eq!(verdicts_every(five, &texts), [""; 0]);
    // The messages may come from a spawned job.
    let text = "0-2: main@a.c:5 > MPI_Recv!libmpi.so = poll 0\n3: gone\njob: 50";
    assert_eq!(verdicts_every(five, &[text; 12]), [""; 0]);
}

/// The exited ranks have left `MPI_Finalize`. The last rank is still in it, because it has more to free.
#[test]
fn ranks_that_have_ended_as_they_should() {
    for how in ["poll 0", "running 99"] {
        let text = format!("0-2: gone\n3: main@a.c:5 > MPI_Finalize!libmpi.so = {how}");
        let five = Duration::from_secs(5);
        assert_eq!(
            verdicts_every(five, &[text.as_str(); 12]),
            [""; 0],
            "{text}"
        );
    }
}

const JOIN: &str = "0: main@a.c:9 > pthread_join!libc.so.6 = futex 0";

#[test]
fn waits_for_some_time() {
    for wait in [
        "pthread_cond_timedwait!libc.so.6 = futex 0",
        "__pthread_cond_clockwait64!libc.so.6 = timed 0",
        "sem_timedwait!libc.so.6 = futex 0",
        "pthread_mutex_timedlock!libc.so.6 = futex 0",
        // The kernel reports the time limit, whatever the function is called.
        "pthread_cond_wait!libc.so.6 = timed 0",
        "pthread_mutex_lock!libc.so.6 = timed 0",
        "pthread_join!libc.so.6 = timed 0",
    ] {
        quiet_at(&format!("{BARRIER}3: main@a.c:9 > step@a.c:3 > {wait}"));
        quiet_at(&format!(
            "{JOIN}\n0/a: start_thread > f@a.c:3 > {wait}\n0/b: start_thread > g@a.c:4 > pthread_mutex_lock!libc.so.6 = futex 0"
        ));
    }
    for wait in [
        "py:get@/usr/lib/python3.11/queue.py:180 > py:wait@/usr/lib/python3.11/threading.py:331 > __sem_clockwait64!libc.so.6 = timed 0",
        "py:Event.wait@/usr/lib/python3.11/threading.py:629 > py:wait@/usr/lib/python3.11/threading.py:331 > do_futex_wait!libc.so.6 = timed 0",
        "py:Event.wait@/usr/lib/python3.11/threading.py:629 > sem_clockwait!libc.so.6 = futex 0",
        "py:join@/usr/lib/python3.11/threading.py:1112 > sem_clockwait!libc.so.6 = futex 0",
    ] {
        quiet_at(&format!("{BARRIER}3: py:main@a.py:9 > {wait}"));
    }
}

#[test]
fn python_that_waits_for_another_program() {
    for wait in [
        // Files of users and packages may have the same names as those of Python.
        "py:get@/u/job_queue.py:3 > recv!libc.so.6 = read 0",
        "py:get@/v/lib/python3.11/site-packages/ray/util/queue.py:3 > recv!libc.so.6 = read 0",
        // The frames below the wait show what it waits for.
        "py:get@/usr/lib/python3.11/queue.py:3 > py:own@/u/b.py:7 > recv!libc.so.6 = read 0",
        "py:get@/usr/lib/python3.11/queue.py:3 > py:own@/u/b.py:7 > send!libc.so.6 = write 0",
        "py:join@/usr/lib/python3.11/threading.py:3 > py:own@/u/b.py:7 > poll!libc.so.6 = poll 0",
        "py:join@/usr/lib/python3.11/threading.py:3 > py:own@/u/b.py:7 > wait4!libc.so.6 = child 0",
    ] {
        quiet_at(&format!("0: py:main@/u/a.py:9 > {wait}"));
    }
}

#[test]
fn a_semaphore_in_a_process_that_computes() {
    let waits = format!("{BARRIER}3: main@a.c:9 > sem_wait!libc.so.6 = futex 0");
    quiet_at(&waits);
    let ten = Duration::from_secs(10);
    let quiet = |text: &str| assert_eq!(verdicts_every(ten, &[text; 5]), [""; 0], "{text}");
    quiet(&format!("{waits}\nbelow 3: 60"));
    quiet(&format!("{waits}\nbeside: 60"));
    quiet(&format!("{waits}\njob: 0"));
    let lock = format!("{BARRIER}3: main@a.c:9 > pthread_mutex_lock!libc.so.6 = shared 0");
    quiet_at(&lock);
    quiet(&format!("{lock}\nbelow 3: 20"));
    quiet(&format!(
        "{JOIN}\n0/a: start_thread > f@a.c:3 > pthread_mutex_lock!libc.so.6 = shared 0"
    ));
}

#[test]
fn parents_of_a_job_that_computes() {
    quiet(&["0-3: main@a.c:5 > MPI_Recv!libmpi.so = running 99\njob: 100"; 12]);
    quiet(&["0-3: main@a.c:5 > MPI_Recv!libmpi.so = poll 0\njob: 0"; 12]);
    quiet(&["0-3: main@a.c:5 > MPI_Recv!libmpi.so = poll 0\nbeside: 30"; 12]);
    quiet_at(
        "0: main@a.c:5 > MPI_Comm_spawn!libmpi.so = poll 0\n1-3: main@a.c:7 > MPI_Barrier!libmpi.so = poll 0",
    );
}

#[test]
fn a_job_that_is_joined_with_that_of_another_launcher() {
    for how in ["poll 0", "running 99"] {
        for call in ["MPI_Recv", "MPI_Ssend", "MPI_Wait"] {
            quiet(
                &[format!("0-3: main@a.c:5 > {call}!libmpi.so = {how}\nneighbor: 60").as_str(); 12],
            );
        }
        let others = "0: main@a.c:5 > MPI_Recv!libmpi.so";
        for call in ["MPI_Barrier", "MPI_Finalize"] {
            let text = format!(
                "{others} = {how}\n1-3: main@a.c:9 > {call}!libmpi.so = {how}\nneighbor: 60"
            );
            quiet(&[text.as_str(); 12]);
        }
    }
}

#[test]
fn a_server_that_waits_for_clients() {
    quiet_at(
        "0: main@a.c:5 > MPI_Comm_accept!libmpi.so = poll 0\n1-3: main@a.c:7 > MPI_Barrier!libmpi.so = poll 0",
    );
    quiet_at(
        "0: main@a.c:5 > MPI_Comm_accept!libmpi.so = running 99\n1-3: main@a.c:7 > MPI_Recv!libmpi.so = running 99",
    );
}

#[test]
fn one_that_has_a_file_of_its_own() {
    quiet_at(
        "0: main@a.c:5 > MPI_File_close!libmpi.so > fsync!libc.so.6 = disk 5\n1-3: main@a.c:7 > MPI_Barrier!libmpi.so = poll 0",
    );
    quiet_at(
        "0: main@a.c:5 > MPI_File_write_all!libmpi.so = running 80\n1-3: main@a.c:7 > MPI_Barrier!libmpi.so = running 99",
    );
}

#[test]
fn one_that_uses_windows_of_others() {
    quiet(
        &["0: main@a.c:5 > MPI_Win_unlock!libmpi.so = running 99\n1-3: main@a.c:7 > MPI_Barrier!libmpi.so = running 99";
            12],
    );
    quiet(&["0-3: main@a.c:5 > MPI_Win_lock!libmpi.so = running 99"; 12]);
}

#[test]
fn functions_of_mpi_that_nobody_knows() {
    quiet(
        &["0: main@a.c:5 > MPI_Type_commit!libmpi.so = running 99\n1-3: main@a.c:7 > MPI_Barrier!libmpi.so = running 99";
            12],
    );
    quiet(
        &["0: main@a.c:5 > MPI_Isend!libmpi.so = running 99\n1-3: main@a.c:7 > MPI_Barrier!libmpi.so = running 99";
            12],
    );
}

#[test]
fn a_library_computes_in_threads_of_its_own() {
    quiet_at(&format!(
        "{BARRIER}3: main@a.c:9 > dgemm_!libopenblas.so > pthread_cond_wait!libc.so.6 = futex 0
         3/blas: start_thread > blas_thread_server!libopenblas.so > kernel!libopenblas.so = running 99"
    ));
}
