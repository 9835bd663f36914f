//! Communicators of two groups, and other jobs: calls on them are shown, and nothing is proved from them.

use std::collections::BTreeMap;

use super::{OPTIONS, built, calls, ends_with, last_call};
use crate::{
    hangs::{ranks, recorded::Library, started_with, stop, verdict},
    harness::{Running, Sandbox, Stream},
};

/// Starts two parents, which spawn two children.
fn spawning(sandbox: &Sandbox, program: &str, what: &str) -> Running {
    let run = started_with(sandbox, &OPTIONS, "2", &[program, what]);
    run.expect_times(Stream::Stdout, "ready", 4);
    run
}

/// Returns the children of parents with these pids.
fn children(sandbox: &Sandbox, program: &str) -> BTreeMap<u32, i32> {
    let parents = ranks(sandbox, program);
    let all = sandbox.find(program).into_iter();
    let others = all.filter(|it| !parents.values().any(|pid| *pid == it.pid));
    others
        .filter_map(|it| Some((it.variable("RALLY_RANK")?.parse().ok()?, it.pid)))
        .collect()
}

/// The parents wait for a child that is busy.
#[test]
fn nothing_is_proved_of_who_waits_for_another_job() {
    for library in [Library::Mpich5, Library::OpenMpi5] {
        let sandbox = Sandbox::new();
        let program = built(library, "spawns.c", &[]);
        let run = spawning(&sandbox, &program, "waits");
        let parents = ranks(&sandbox, &program);
        let said = verdict(&sandbox, "3", "300", &parents);
        assert!(!said.contains("proved"), "{library:?}: {said}");
        let said = verdict(&sandbox, "2", "300", &children(&sandbox, &program));
        assert!(!said.contains("proved"), "{library:?}: {said}");
        let shown = calls(&sandbox, &run, &["--ranks", "0"]);
        for call in [
            "MPI_Comm_spawn root 0, WORLD (spawns.c:16)\n",
            "MPI_Bcast root MPI_ROOT, intercommunicator [?], collective operation 1 (spawns.c:17)\n",
            "MPI_Sendrecv to rank 0, tag 2, from rank 0, tag 2, intercommunicator [?] (spawns.c:18)\n",
            "MPI_Intercomm_merge on intercommunicator [?], collective operation 2 (spawns.c:19)\n",
            "MPI_Barrier on [?], collective operation 1 (spawns.c:20)\n",
        ] {
            assert!(shown.contains(call), "{library:?}: {call}{shown}");
        }
        assert_eq!(
            last_call(&shown, "rank 0"),
            "MPI_Recv from rank 1, tag 7, intercommunicator [?] (spawns.c:28)"
        );
        stop(run);
    }
}

#[test]
fn parents_that_wait_for_each_other_are_proved() {
    let sandbox = Sandbox::new();
    let program = built(Library::Mpich5, "spawns.c", &[]);
    let run = spawning(&sandbox, &program, "fails");
    ends_with(
        &sandbox,
        &program,
        "proved: rank 0 waits in MPI_Recv (spawns.c:32) from rank 1, tag 7, WORLD; rank 1 has sent it 0 with tag 7; \
         rank 1 waits in MPI_Barrier (spawns.c:33) on WORLD, collective operation 2; rank 0 has begun 1",
    );
    stop(run);
}

/// Children are recorded as their parents are, and have a WORLD of their own.
#[test]
fn children_that_wait_for_each_other_are_proved() {
    let sandbox = Sandbox::new();
    let program = built(Library::OpenMpi5, "spawns.c", &[]);
    let run = spawning(&sandbox, &program, "child");
    super::settles(|| {
        let said = verdict(&sandbox, "2", "500", &children(&sandbox, &program));
        let last = said.lines().last().unwrap_or_default().to_owned();
        let expected = "proved: rank 0 waits in MPI_Recv (spawns.c:32) from rank 1, tag 7, WORLD; rank 1 has sent it 0 with tag 7; \
                        rank 1 waits in MPI_Barrier (spawns.c:33) on WORLD, collective operation 2; rank 0 has begun 1";
        (last == expected).then_some(()).ok_or(last)
    });
    let said = verdict(&sandbox, "2", "300", &ranks(&sandbox, &program));
    assert!(!said.contains("proved"), "{said}");
    stop(run);
}

#[test]
fn nothing_is_proved_over_two_groups() {
    for (library, what) in [
        (Library::Mpich5, "healthy"),
        (Library::OpenMpi5, "healthy"),
        (Library::Mpich5, "between"),
        (Library::OpenMpi5, "between"),
    ] {
        let sandbox = Sandbox::new();
        let program = built(library, "between.c", &[]);
        let run = started_with(&sandbox, &OPTIONS, "4", &[&program, what]);
        let said = verdict(&sandbox, "3", "300", &ranks(&sandbox, &program));
        assert!(!said.contains("proved"), "{library:?}, {what}: {said}");
        if what == "between" {
            let shown = calls(&sandbox, &run, &["--ranks", "3"]);
            for call in [
                "MPI_Intercomm_create on WORLD#1[1,3] (between.c:15)\n",
                "MPI_Sendrecv to rank 2 (rank 1 there), tag 2, from rank 2 (rank 1 there), tag 2, intercommunicator [0,2] (between.c:16)\n",
            ] {
                assert!(shown.contains(call), "{library:?}: {call}{shown}");
            }
            assert_eq!(
                last_call(&shown, "rank 3"),
                "MPI_Recv from rank 2 (rank 1 there), tag 7, intercommunicator [0,2] (between.c:27)"
            );
        }
        stop(run);
    }
}

/// What two groups are merged to has one, which all members know by the same number.
#[test]
fn a_deadlock_of_merged_groups_is_proved() {
    for library in [Library::Mpich5, Library::OpenMpi4] {
        let sandbox = Sandbox::new();
        let program = built(library, "between.c", &[]);
        let run = started_with(&sandbox, &OPTIONS, "4", &[&program, "merged"]);
        ends_with(
            &sandbox,
            &program,
            "proved: rank 3 waits in MPI_Recv (between.c:27) from rank 2 (rank 1 there), tag 7, [0-3]; rank 2 has sent it 0 with tag 7; \
             ranks 0-2 wait in MPI_Barrier (between.c:28) on [0-3], collective operation 2; rank 3 has begun 1",
        );
        stop(run);
    }
}
