//! Tables of launchers, and their answers to PMIx queries.

use super::*;

#[test]
fn a_table_in_a_library_of_the_launcher_behind_a_shell() {
    let mut world = World::default();
    world.add(10, 1, "/usr/bin/bash", "");
    let rows = [
        ("n1", "/home/u/solver", 100),
        ("n1.cluster", "/home/u/solver", 101),
        ("n2", "/home/u/solver", 100),
        ("n1", "/home/u/solver", 103),
    ];
    give_table(world.add(11, 10, "/usr/bin/orterun", ""), None, &rows);
    ranks(&mut world, 11, |rank| {
        format!("OMPI_COMM_WORLD_RANK={rank}")
    });
    insta::assert_snapshot!(world.find(10), @r"
    4 ranks of `solver`
    found by:
      + the table for debuggers (`MPIR_proctable`) of `orterun`, process 11, read from its memory; it is in `libopen-rte.so.40`
    ranks:
      0: process 100, `/home/u/solver`
      1: process 101, `/home/u/solver`
      2: process 100 on `n2`, `/home/u/solver`
      3: process 103, `/home/u/solver`
    unsure: rank 3 should be process 103, but there is no such process
    note: the launcher is process 11, `orterun`
    note: 1 rank is on other nodes, where `dbgr` starts an agent
");
    // A rank and the launcher itself lead to the same job.
    for pid in [11, 100, 101] {
        assert_eq!(
            find(&world, &Wish::Process(pid)).unwrap().procs.len(),
            4,
            "{pid}"
        );
    }
    // A pid of a rank on another node has no meaning here.
    world.add(200, 1, "/bin/other", "");
    assert_eq!(world.pids(200), [(0, 200)]);
    // Other children of the launcher are not ranks.
    world.add(201, 11, "/bin/other", "");
    assert_eq!(world.pids(201), [(0, 201)]);
}

#[test]
fn of_several_launchers_the_one_with_rows() {
    let mut world = World::default();
    give_table(world.add(10, 1, "/usr/bin/srun", ""), Some("7"), &[]);
    let rows = [("n1", "/home/u/solver", 100), ("n1", "/home/u/solver", 101)];
    give_table(world.add(11, 10, "/usr/bin/srun", ""), Some("7"), &rows);
    world.add(50, 1, "/usr/sbin/slurmstepd", "").owner = 0;
    world.0.get_mut(&50).unwrap().environment = None;
    ranks(&mut world, 50, |rank| {
        format!("SLURM_PROCID={rank} SLURM_JOB_ID=7 SLURM_STEP_ID=0")
    });
    insta::assert_snapshot!(world.find(10), @r"
    job `7`: 2 ranks of `solver`
    found by:
      - the table for debuggers of `srun`, process 10, is empty: its ranks have not started, or not all have called `MPI_Init`
      + the table for debuggers (`MPIR_proctable`) of `srun`, process 11, read from its memory; it is in `libopen-rte.so.40`: job `7`
    ranks:
      0: process 100, `/home/u/solver`
      1: process 101, `/home/u/solver`
    note: the launcher is process 11, `srun`
");
    // The helper that srun forks is not mentioned.
    give_table(world.add(12, 11, "/usr/bin/srun", ""), Some("7"), &[]);
    let tried = find(&world, &Wish::Process(11)).unwrap().tried;
    assert_eq!(tried, []);
    // The ranks are not descendants of the launcher.
    assert_eq!(world.pids(101), [(0, 100), (1, 101)]);
    // Another job on the node is not related to it.
    world.add(
        210,
        50,
        "/home/u/solver",
        "SLURM_PROCID=0 SLURM_JOB_ID=8 SLURM_STEP_ID=0",
    );
    assert_eq!(world.pids(210), [(0, 210)]);
    // Without the launcher, all processes with the same job are found.
    world.0.remove(&10);
    world.0.remove(&11);
    world.0.remove(&12);
    insta::assert_snapshot!(world.find(101), @r"
    job `7.0`: 3 ranks of `solver`
    found by:
      - a table for debuggers (MPIR): none in 2 processes
      + `SLURM_PROCID` in the environment of your processes on this node: job `7.0`
    ranks:
      0: process 100, `/home/u/solver`
      1: process 101, `/home/u/solver`
      2: process 102, `/home/u/solver`
");
    insta::assert_snapshot!(world.text(&Wish::Job("7.0".into())), @r"
    job `7.0`: 3 ranks of `solver`
    found by:
      + `SLURM_PROCID` in the environment of your processes on this node: job `7.0`
    ranks:
      0: process 100, `/home/u/solver`
      1: process 101, `/home/u/solver`
      2: process 102, `/home/u/solver`
");
    assert_eq!(
        find(&world, &Wish::Job("7.1".into())),
        Err(NotFound::NoJob { name: "7.1".into() })
    );
}

#[test]
fn a_table_that_is_not_filled_or_broken() {
    let mut world = World::default();
    give_table(world.add(10, 1, "/usr/bin/srun", ""), None, &[]);
    insta::assert_snapshot!(world.find(10), @r"
    1 rank of `srun`
    found by:
      - the table for debuggers of `srun`, process 10, is empty: its ranks have not started, or not all have called `MPI_Init`
      - the environment of the descendants of process 10: none has `PMIX_RANK`, `OMPI_COMM_WORLD_RANK`, `PMI_RANK`, `SLURM_PROCID`, `RANK`, `PARALLEL_SEQ`
      + nothing makes it part of a job: it is rank 0
    ranks:
      0: process 10, `/usr/bin/srun`
    unsure: process 10 is a launcher that has not started its ranks yet; the launcher itself is shown
");
    let launcher = world.0.get_mut(&10).unwrap();
    launcher.memory.insert(BASE + elf::SIZE, vec![0xff; 8]);
    launcher
        .memory
        .insert(BASE + elf::TABLE, 0x20_0000_u64.to_le_bytes().into());
    insta::assert_snapshot!(world.find(10), @r"
    1 rank of `srun`
    found by:
      - the table for debuggers of `srun`, process 10: its memory cannot be read
      - the environment of the descendants of process 10: none has `PMIX_RANK`, `OMPI_COMM_WORLD_RANK`, `PMI_RANK`, `SLURM_PROCID`, `RANK`, `PARALLEL_SEQ`
      + nothing makes it part of a job: it is rank 0
    ranks:
      0: process 10, `/usr/bin/srun`
");
}

#[test]
fn a_table_that_would_fill_the_memory() {
    let mut world = World::default();
    let launcher = world.add(10, 1, "/usr/bin/srun", "");
    give_table(launcher, None, &[("n1", "/home/u/solver", 100)]);
    let text = 0x40_0000_u64;
    launcher
        .memory
        .insert(text, [&[b'x'; 4000][..], &[0]].concat());
    let rows = 40_000_i32;
    let row = [
        text.to_le_bytes(),
        text.to_le_bytes(),
        100_u64.to_le_bytes(),
    ]
    .concat();
    launcher
        .memory
        .insert(0x20_0000, row.repeat(usize::try_from(rows).unwrap()));
    launcher
        .memory
        .insert(BASE + elf::SIZE, rows.to_le_bytes().into());
    let target = find(&world, &Wish::Process(10)).unwrap();
    assert!(
        matches!(
            &target.tried[..],
            [Tried::BrokenTable { launcher: 10, .. }, ..]
        ),
        "{:?}",
        target.tried
    );
}

#[test]
fn our_own_jobs() {
    let mut world = World::default();
    let rows = [("n1", "/home/u/solver", 100), ("n1", "/home/u/solver", 101)];
    let job = "rally-n1-0badcafe-11@1";
    give_table(world.add(10, 1, "/usr/bin/rally", ""), Some(job), &rows);
    // A fork of the launcher, with a table that stays empty.
    give_table(world.add(11, 10, "/usr/bin/rally", ""), Some(job), &[]);
    for rank in 0..2 {
        let job = format!("PMIX_NAMESPACE={job} PMIX_RANK={rank}");
        world.add(100 + rank, 11, "/home/u/solver", &job);
        let spawned = format!("PMIX_NAMESPACE=rally-n1-0badcafe-11@2 PMIX_RANK={rank}");
        world.add(110 + rank, 11, "/home/u/worker", &spawned);
    }
    insta::assert_snapshot!(world.find(10), @r"
    job `rally-n1-0badcafe-11@1`: 2 ranks of `solver`
    found by:
      + the table of `rally`, process 10: job `rally-n1-0badcafe-11@1`
    ranks:
      0: process 100, `/home/u/solver`
      1: process 101, `/home/u/solver`
    note: there is another job, `rally-n1-0badcafe-11@2`, with 2 ranks: `dbgr stacks rally-n1-0badcafe-11@2`
");
    let first = world.pids(10);
    assert_eq!(world.pids(11), first);
    let named = |name: &str| {
        let target = find(&world, &Wish::Job(name.into())).unwrap();
        target
            .procs
            .values()
            .map(|proc| proc.pid)
            .collect::<Vec<_>>()
    };
    for name in ["10@1", "11@1", job] {
        assert_eq!(named(name), [100, 101], "{name}");
    }
    for name in ["10@2", "11@2", "rally-n1-0badcafe-11@2"] {
        assert_eq!(named(name), [110, 111], "{name}");
    }
    assert!(find(&world, &Wish::Job("1@2".into())).is_err());
    // The front was killed: its controller still has the ranks until it has ended the job.
    world.0.remove(&10);
    assert_eq!(world.pids(11), first);
    assert_eq!(world.pids(100), first);
}

#[test]
fn an_answer_of_the_launcher() {
    let mut world = World::default();
    let row = |rank, host: &str, pid| Row {
        rank,
        host: host.into(),
        pid,
        program: "/home/u/solver".into(),
    };
    let table = |number, rows| JobTable {
        job: format!("prterun-n1-10@{number}"),
        rows,
    };
    world.add(10, 1, "/usr/bin/prterun", "").answer = Some(vec![
        table(1, vec![row(0, "n1", 100), row(1, "n2", 700)]),
        table(2, vec![row(0, "n1", 101)]),
        // The tool that asks is a job itself.
        table(3, vec![row(0, "n1", 9999)]),
    ]);
    ranks(&mut world, 10, |rank| {
        format!("PMIX_NAMESPACE=prterun-n1-10@{} PMIX_RANK=0", 1 + rank)
    });
    insta::assert_snapshot!(world.find(10), @r"
    job `prterun-n1-10@1`: 2 ranks of `solver`
    found by:
      - a table for debuggers (MPIR): none in 1 process
      + the answer of `prterun`, process 10, as a PMIx server: job `prterun-n1-10@1`
    ranks:
      0: process 100, `/home/u/solver`
      1: process 700 on `n2`, `/home/u/solver`
    note: there is another job, `prterun-n1-10@2`, with 1 rank: `dbgr stacks prterun-n1-10@2`
    note: 1 rank is on other nodes, where `dbgr` starts an agent
");
    // The named process is a rank of the second job.
    assert_eq!(world.pids(101), [(0, 101)]);
    // The launcher does not answer.
    world.0.get_mut(&10).unwrap().answer = None;
    insta::assert_snapshot!(world.find(10), @r"
    job `prterun-n1-10@1`: 1 rank of `solver`
    found by:
      - a table for debuggers (MPIR): none in 1 process
      - `prterun`, process 10, as a PMIx server: it did not answer in time
      + `PMIX_NAMESPACE` and `PMIX_RANK` in the environment of the descendants of process 10: job `prterun-n1-10@1`
    ranks:
      0: process 100, `/home/u/solver`
    note: there is another job, `prterun-n1-10@2`, with 1 rank: `dbgr stacks prterun-n1-10@2`
    note: there is another job, `prterun-n1-10@3`, with 1 rank: `dbgr stacks prterun-n1-10@3`
");
}
