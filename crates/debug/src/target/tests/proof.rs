//! Pids in launchers' tables that belong to unrelated processes on this node.

use super::*;

/// Returns a node with a launcher and two ranks in a container. Their pids inside belong to two unrelated processes on the node.
fn contained(job: Option<&str>, environment: impl Fn(i32) -> String) -> World {
    let mut world = World::default();
    let rows = [("n1", "/home/u/solver", 7), ("n1", "/home/u/solver", 8)];
    let launcher = world.add(10, 1, "/usr/bin/orterun", "");
    launcher.inside = Some(("c", 1));
    give_table(launcher, job, &rows);
    for rank in 0..2 {
        let made = world.add(100 + rank, 10, "/home/u/solver", &environment(rank));
        made.inside = Some(("c", 7 + rank));
        // The unrelated processes may even have the same rank and program.
        world.add(7 + rank, 1, "/home/u/solver", &environment(rank));
    }
    world
}

#[test]
fn a_launcher_in_a_container() {
    let environment = |rank| format!("OMPI_COMM_WORLD_RANK={rank}");
    for job in [None, Some("j")] {
        let world = contained(job, environment);
        assert_eq!(world.pids(10), [(0, 100), (1, 101)], "{job:?}");
        assert_eq!(world.pids(101), [(0, 100), (1, 101)], "{job:?}");
        // The unrelated processes are found as themselves.
        assert_eq!(world.pids(7), [(0, 7)], "{job:?}");
    }
    insta::assert_snapshot!(contained(None, environment).find(10), @r"
    2 ranks of `solver`
    found by:
      + the table for debuggers (`MPIR_proctable`) of `orterun`, process 10, read from its memory; it is in `libopen-rte.so.40`
    ranks:
      0: process 100, `/home/u/solver`
      1: process 101, `/home/u/solver`
    note: the launcher, process 10, uses the process numbers of its container; the numbers here are those of this node
    ");
    // The launcher is an ancestor of its ranks, and they have no evidence.
    let world = contained(None, |_| String::new());
    assert_eq!(world.pids(10), [(0, 100), (1, 101)]);
}

#[test]
fn the_host_of_a_container_may_have_another_name() {
    let mut world = contained(None, |rank| format!("OMPI_COMM_WORLD_RANK={rank}"));
    let rows = [("c0ffee", "/home/u/solver", 7), ("n2", "/home/u/solver", 8)];
    give_table(world.0.get_mut(&10).unwrap(), None, &rows);
    // The second rank has evidence that it is on this node.
    assert_eq!(world.pids(10), [(0, 100), (1, 101)]);
    world.0.get_mut(&101).unwrap().environment = Some(Vec::new());
    let procs = find(&world, &Wish::Process(10)).unwrap().procs;
    assert_eq!(procs[&Rank(1)].place, Whereabouts::On("n2".into()));
}

#[test]
fn numbers_that_cannot_be_translated() {
    // A launcher in a container, whose ranks are started by a daemon outside: both there and here its pids belong to unrelated
    // processes.
    let mut world = World::default();
    let rows = [("n1", "/home/u/solver", 7), ("n1", "/home/u/solver", 8)];
    let launcher = world.add(10, 1, "/usr/bin/srun", "");
    launcher.inside = Some(("c", 1));
    give_table(launcher, Some("5.0"), &rows);
    world.add(30, 10, "/bin/bystander", "").inside = Some(("c", 7));
    world.add(8, 1, "/bin/bystander", "");
    world.add(50, 1, "/usr/sbin/slurmstepd", "").owner = 0;
    world.add(
        100,
        50,
        "/home/u/solver",
        "SLURM_PROCID=0 SLURM_JOB_ID=5 SLURM_STEP_ID=0",
    );
    insta::assert_snapshot!(world.find(10), @r"
    job `5.0`: 2 ranks of `solver`
    found by:
      + the table for debuggers (`MPIR_proctable`) of `srun`, process 10, read from its memory; it is in `libopen-rte.so.40`: job `5.0`
    ranks:
      0: process 100, `/home/u/solver`
      1: process 8 of the launcher's numbers, `/home/u/solver`
    unsure: the launcher knows rank 1 as process 8, but nothing shows which process on this node that is: the rank is skipped
    note: the launcher, process 10, uses the process numbers of its container; the numbers here are those of this node
    ");
}

#[test]
fn a_number_that_another_process_has_by_now() {
    let mut world = World::default();
    let rows = [
        ("n1", "/home/u/solver", 100),
        ("n1", "/home/u/solver", 101),
        ("n1", "/home/u/solver", 102),
        ("n1", "/home/u/solver", 103),
    ];
    let job = "rally-n1-0badcafe-11@1";
    give_table(world.add(10, 1, "/usr/bin/rally", ""), Some(job), &rows);
    let environment = |rank| format!("PMIX_NAMESPACE={job} PMIX_RANK={rank}");
    world.add(100, 10, "/home/u/solver", &environment(0));
    // In this order: a rank of another job, a child of another rank, and a rank that is not a descendant of the launcher.
    let other = "PMIX_NAMESPACE=rally-n1-0badcafe-12@1 PMIX_RANK=1";
    world.add(101, 1, "/home/u/solver", other);
    world.add(102, 100, "/bin/sh", &environment(0));
    world.add(103, 1, "/home/u/solver", &environment(3));
    insta::assert_snapshot!(world.find(10), @r"
    job `rally-n1-0badcafe-11@1`: 4 ranks of `solver`
    found by:
      + the table of `rally`, process 10: job `rally-n1-0badcafe-11@1`
    ranks:
      0: process 100, `/home/u/solver`
      1: process 101 of the launcher's numbers, `/home/u/solver`
      2: process 102 of the launcher's numbers, `/home/u/solver`
      3: process 103, `/home/u/solver`
    unsure: the launcher has process numbers for ranks 1-2 (101 is the first), but nothing shows which processes on this node they are: the ranks are skipped
    ");
    // A job that a rank has spawned has the same ranks, below the same launcher.
    for (said, places) in [
        (
            "PMIX_NAMESPACE=rally-n1-0badcafe-11@2",
            [Whereabouts::Unproved, Whereabouts::Unproved],
        ),
        (
            "PMIX_NAMESPACE=rally-n1-0badcafe-11@1",
            [
                Whereabouts::Here { started: 200 },
                Whereabouts::Here { started: 201 },
            ],
        ),
    ] {
        let mut world = World::default();
        give_table(
            world.add(10, 1, "/usr/bin/rally", ""),
            Some(job),
            &rows[..2],
        );
        for rank in 0..2 {
            world.add(100 + rank, 1, "/bin/bystander", "");
            let said = format!("{said} PMIX_RANK={rank}");
            world.add(200 + rank, 10, "/home/u/child", &said);
        }
        let procs = find(&world, &Wish::Process(10)).unwrap().procs;
        let found: Vec<Whereabouts> = procs.into_values().map(|proc| proc.place).collect();
        assert_eq!(found, places, "{said}");
    }
}

#[test]
fn a_launcher_that_is_the_first_process() {
    let mut world = World::default();
    let rows = [("n1", "/home/u/solver", 100), ("n1", "/home/u/solver", 101)];
    give_table(world.add(1, 0, "/usr/bin/orterun", ""), None, &rows);
    world.add(100, 1, "/home/u/solver", "OMPI_COMM_WORLD_RANK=0");
    // Orphans become children of process 1.
    world.add(101, 1, "/bin/bystander", "");
    let procs = find(&world, &Wish::Process(1)).unwrap().procs;
    assert_eq!(procs[&Rank(0)].place, Whereabouts::Here { started: 100 });
    assert_eq!(procs[&Rank(1)].place, Whereabouts::Unproved);
}

#[test]
fn threads_of_the_kernel() {
    let mut world = World::default();
    let worker = world.add(2, 0, "", "");
    worker.process.is_kernel = true;
    assert_eq!(world.find(2), "Kernel { pid: 2 }");
}
