//! Tests of the search on made-up nodes, one for each way in which jobs are started.

mod elf;
mod nodes;
mod proof;
mod tables;
mod world;

use super::*;
use world::{BASE, World, give_table, ranks};

#[test]
fn variables_below_a_proxy() {
    let mut world = World::default();
    world.add(10, 1, "/usr/bin/mpiexec.hydra", "");
    world.add(11, 10, "/usr/bin/hydra_pmi_proxy", "");
    world.add(12, 10, "/usr/bin/hydra_pmi_proxy", "");
    for rank in 0..4 {
        let environment = format!("PMI_RANK={rank} PMI_SIZE=6");
        world.add(100 + rank, 11 + rank % 2, "/home/u/solver", &environment);
        // Descendants of a rank inherit its variables, but are not ranks.
        world.add(200 + rank, 100 + rank, "/bin/sh", &environment);
    }
    insta::assert_snapshot!(world.find(10), @r"
    6 ranks of `solver`
    found by:
      - a table for debuggers (MPIR): none in 3 processes
      + `PMI_RANK` in the environment of the descendants of process 10
    ranks:
      0: process 100, `/home/u/solver`
      1: process 101, `/home/u/solver`
      2: process 102, `/home/u/solver`
      3: process 103, `/home/u/solver`
      4: no process was found
      5: no process was found
    note: the job has 6 ranks; 4 of them live on this node
");
    let all = world.pids(10);
    assert_eq!(world.pids(102), all);
    assert_eq!(world.pids(202), all);
    insta::assert_snapshot!(world.find(202), @r"
    6 ranks of `solver`
    found by:
      - a table for debuggers (MPIR): none in 4 processes
      + `PMI_RANK` in the environment of the descendants of process 10
    ranks:
      0: process 100, `/home/u/solver`
      1: process 101, `/home/u/solver`
      2: process 102, `/home/u/solver`
      3: process 103, `/home/u/solver`
      4: no process was found
      5: no process was found
    unsure: process 202 is not a rank; rank 2 started it, and the job of that rank is shown
    note: the launcher is process 10, `mpiexec.hydra`
    note: the job has 6 ranks; 4 of them live on this node
");
}

#[test]
fn several_launchers_below_one_script() {
    let mut world = World::default();
    world.add(10, 1, "/bin/bash", "");
    for (launcher, ranks) in [(20, 2), (30, 1)] {
        world.add(launcher, 10, "/usr/bin/mpiexec", "");
        world.add(launcher + 1, launcher, "/usr/bin/hydra_pmi_proxy", "");
        for rank in 0..ranks {
            let environment = format!("PMI_RANK={rank} PMI_SIZE={ranks}");
            let pid = 100 + launcher + rank;
            world.add(pid, launcher + 1, "/home/u/solver", &environment);
        }
    }
    // Hydra does not name its jobs, and is not a PMIx server.
    insta::assert_snapshot!(world.find(10), @r"
    2 ranks of `solver`
    found by:
      - a table for debuggers (MPIR): none in 5 processes
      + `PMI_RANK` in the environment of the descendants of process 10
    ranks:
      0: process 120, `/home/u/solver`
      1: process 121, `/home/u/solver`
    note: there is another launcher, `mpiexec`, with 1 rank: `dbgr stacks 30`
    ");
    assert_eq!(world.pids(30), [(0, 130)]);
    assert_eq!(world.pids(121), [(0, 120), (1, 121)]);
    // A launcher with a table takes precedence; the others are still noted.
    let rows = [("n1", "/home/u/other", 140)];
    let job = "rally-n1-0badcafe-40@1";
    give_table(world.add(40, 10, "/usr/bin/rally", ""), Some(job), &rows);
    let environment = format!("PMIX_NAMESPACE={job} PMIX_RANK=0 PMI_RANK=0");
    world.add(140, 40, "/home/u/other", &environment);
    insta::assert_snapshot!(world.find(10), @r"
    job `rally-n1-0badcafe-40@1`: 1 rank of `other`
    found by:
      + the table of `rally`, process 40: job `rally-n1-0badcafe-40@1`
    ranks:
      0: process 140, `/home/u/other`
    note: there is another launcher, `mpiexec`, with 2 ranks: `dbgr stacks 20`
    note: there is another launcher, `mpiexec`, with 1 rank: `dbgr stacks 30`
    note: the launcher is process 40, `rally`
    ");
}

#[test]
fn a_launcher_that_is_a_rank_itself() {
    let mut world = World::default();
    // The script of a batch job is rank 0 of a step of its own, as are all its descendants.
    let batch = "SLURM_PROCID=0 SLURM_JOB_ID=7 RANK=0 WORLD_SIZE=1";
    world.add(10, 1, "/bin/bash", batch);
    world.add(11, 10, "/usr/bin/python3.11", batch);
    for rank in 0..3 {
        world.add(
            100 + rank,
            11,
            "/usr/bin/python3.11",
            &format!("{batch} OMPI_COMM_WORLD_RANK={rank}"),
        );
    }
    assert_eq!(world.pids(11), [(0, 100), (1, 101), (2, 102)]);
    for rank in 0..3 {
        let environment = format!("SLURM_PROCID=0 SLURM_JOB_ID=7 RANK={rank} WORLD_SIZE=1");
        world.add(100 + rank, 11, "/usr/bin/python3.11", &environment);
    }
    // Rank 0 has the same evidence as its launcher.
    assert_eq!(world.pids(11), [(0, 100), (1, 101), (2, 102)]);
}

#[test]
fn wrappers_doubles_and_missing_ranks() {
    let mut world = World::default();
    world.add(10, 1, "/usr/bin/torchrun", "");
    for (pid, rank) in [(100, 0), (101, 1), (102, 1)] {
        let environment = format!("RANK={rank} WORLD_SIZE=4 MASTER_ADDR=n1 MASTER_PORT=5");
        world.add(pid, 10, "/bin/bash", &environment);
        world.add(pid + 100, pid, "/usr/bin/numactl", &environment);
        world.add(pid + 200, pid + 100, "/usr/bin/python3.11", &environment);
    }
    insta::assert_snapshot!(world.find(10), @r"
    job `n1:5`: 4 ranks of `python3.11`
    found by:
      - a table for debuggers (MPIR): none in 1 process
      + `RANK` and `WORLD_SIZE` in the environment of the descendants of process 10: job `n1:5`
    ranks:
      0: process 300, `/usr/bin/python3.11`
      1: process 301, `/usr/bin/python3.11`
      2: no process was found
      3: no process was found
    unsure: processes 101 and 102 both claim to be rank 1; `dbgr` takes 101, which is older
    note: the job has 4 ranks; 2 of them live on this node
    note: 2 ranks were started by `bash`, which only waits; `dbgr` takes its child
");
    // A shell with several children is the rank itself.
    world.add(301 + 50, 101, "/bin/tee", "");
    assert_eq!(world.pids(10), [(0, 300), (1, 101), (2, 0), (3, 0)]);
}

#[test]
fn plain_children() {
    let mut world = World::default();
    world.add(10, 1, "/usr/bin/make", "");
    for number in 0..3 {
        // The order of start differs from that of the pids.
        world.add(110 - number, 10, "/bin/sh", "").process.started =
            50 + u64::from(number.unsigned_abs());
        world
            .add(200 + number, 110 - number, "/usr/lib/cc1", "")
            .process
            .started = 60 + u64::from(number.unsigned_abs());
    }
    world.add(300, 10, "/usr/bin/tee", "");
    world.add(301, 10, "/usr/bin/gone", "").process.state = 'Z';
    insta::assert_snapshot!(world.find(10), @r"
    3 ranks of `cc1`
    found by:
      - a table for debuggers (MPIR): none in 8 processes
      - the environment of the descendants of process 10: none has `PMIX_RANK`, `OMPI_COMM_WORLD_RANK`, `PMI_RANK`, `SLURM_PROCID`, `RANK`, `PARALLEL_SEQ`
      + process 10 started them, all `cc1`; `dbgr` numbered them in the order of their start
    ranks:
      0: process 200, `/usr/lib/cc1`
      1: process 201, `/usr/lib/cc1`
      2: process 202, `/usr/lib/cc1`
    note: left out: 1 process of `tee`
");
}

#[test]
fn forks_and_lone_processes() {
    let mut world = World::default();
    world.add(10, 1, "/usr/bin/postgres", "");
    world.add(11, 10, "/usr/bin/postgres", "");
    world.add(12, 10, "/usr/bin/postgres", "");
    assert_eq!(world.pids(10), [(0, 10), (1, 11), (2, 12)]);
    world.add(13, 10, "/bin/sh", "");
    insta::assert_snapshot!(world.find(10), @r"
    1 rank of `postgres`
    found by:
      - a table for debuggers (MPIR): none in 4 processes
      - the environment of the descendants of process 10: none has `PMIX_RANK`, `OMPI_COMM_WORLD_RANK`, `PMI_RANK`, `SLURM_PROCID`, `RANK`, `PARALLEL_SEQ`
      + nothing makes it part of a job: it is rank 0
    ranks:
      0: process 10, `/usr/bin/postgres`
    note: left out: 2 processes of `postgres`
    note: left out: 1 process of `sh`
");
    // A shell whose only child is a program: the child is the rank.
    world.add(20, 1, "/bin/bash", "");
    world.add(21, 20, "/home/u/solver", "");
    assert_eq!(world.pids(20), [(0, 21)]);
    // A shell without children is the rank itself.
    assert_eq!(world.pids(13), [(0, 13)]);
}

#[test]
fn gnu_parallel() {
    let mut world = World::default();
    world.add(10, 1, "/usr/bin/perl", "").process.name = "parallel".into();
    for number in 5..8 {
        let environment = format!("PARALLEL_SEQ={number} PARALLEL_PID=10");
        world.add(100 + number, 10, "/bin/bash", &environment);
        world.add(200 + number, 100 + number, "/home/u/solver", &environment);
    }
    assert_eq!(world.pids(10), [(5, 205), (6, 206), (7, 207)]);
}

#[test]
fn names() {
    let mut world = World::default();
    for rank in 0..3 {
        let environment = format!("RANK={} WORLD_SIZE=3", 2 - rank);
        let made = world.add(100 + rank, 1, "/usr/bin/python3.11", &environment);
        made.arguments = b"python3\0-u\0/home/u/train.py\0--fast\0".into();
    }
    world.add(200, 1, "/usr/bin/python3.11", "").arguments = b"python3\0other.py\0".into();
    world.add(201, 1, "/usr/bin/vim", "").arguments = b"vim\0train.py\0".into();
    world.add(202, 1, "/home/v/train.py", "").owner = 7;
    let named = |pattern: &str| world.text(&Wish::Name(pattern.into()));
    insta::assert_snapshot!(named("train*"), @r"
    3 ranks of `python3.11`
    found by:
      + the name `train*`, numbered by `RANK` and `WORLD_SIZE`
    ranks:
      0: process 102, `/usr/bin/python3.11`
      1: process 101, `/usr/bin/python3.11`
      2: process 100, `/usr/bin/python3.11`
");
    insta::assert_snapshot!(named("python3.*"), @r"
    4 ranks of `python3.11`
    found by:
      + the name `python3.*`; `dbgr` numbered the processes in the order of their start
    ranks:
      0: process 100, `/usr/bin/python3.11`
      1: process 101, `/usr/bin/python3.11`
      2: process 102, `/usr/bin/python3.11`
      3: process 200, `/usr/bin/python3.11`
");
    assert_eq!(
        named("/usr/bin/vi?"),
        named("vim").replace("`vim`;", "`/usr/bin/vi?`;")
    );
    assert_eq!(named("nothing"), r#"NoName { pattern: "nothing" }"#);
}

#[test]
fn what_a_rank_has_forked_is_no_rank_under_its_name() {
    let python = "/usr/bin/python3.11";
    let mut world = World::default();
    for rank in 0..2 {
        let environment = format!("RANK={rank} WORLD_SIZE=2 MASTER_ADDR=n1");
        world.add(100 + rank, 1, python, &environment);
        for (worker, parent) in [(200, 100), (300, 100), (400, 200)] {
            world.add(worker + rank, parent + rank, python, &environment);
        }
        // The child of a process without the name.
        world.add(500 + rank, 100 + rank, "/bin/sh", &environment);
        world.add(600 + rank, 500 + rank, python, &environment);
    }
    let named = |world: &World| {
        let target = find(world, &Wish::Name("python3*".into())).unwrap();
        let procs = target.procs.iter();
        let procs: Vec<_> = procs.map(|(rank, proc)| (rank.0, proc.pid)).collect();
        procs
    };
    assert_eq!(named(&world), [(0, 100), (1, 101)]);
    // A launcher with the name of its ranks has not their variables.
    world.add(90, 1, python, "");
    for rank in 0..2 {
        world.0.get_mut(&(100 + rank)).unwrap().process.parent = 90;
    }
    assert_eq!(named(&world), [(0, 90), (1, 100), (2, 101)]);
    // Without variables, nothing shows that a rank has forked the others.
    let mut world = World::default();
    world.add(100, 1, python, "");
    world.add(101, 100, python, "");
    assert_eq!(named(&world), [(0, 100), (1, 101)]);
}

#[test]
fn a_process_is_known_by_when_it_started() {
    let mut world = World::default();
    let rows = [
        ("n1", "/home/u/solver", 100),
        ("n2", "/home/u/solver", 100),
        ("n1", "/home/u/solver", 109),
    ];
    give_table(world.add(10, 1, "/usr/bin/orterun", ""), None, &rows);
    ranks(&mut world, 10, |rank| format!("RANK={rank} WORLD_SIZE=3"));
    let started = |world: &World, pid| -> Vec<Option<u64>> {
        let procs = find(world, &Wish::Process(pid)).unwrap().procs;
        procs.values().map(Proc::started).collect()
    };
    // The start time is unknown for a rank on another node and for a process that is gone.
    assert_eq!(started(&world, 10), [Some(100), None, None]);
    world.0.remove(&10);
    for rank in 0..3 {
        world.0.get_mut(&(100 + rank)).unwrap().process.parent = 11;
    }
    world.add(11, 1, "/usr/bin/torchrun", "");
    assert_eq!(started(&world, 11), [Some(100), Some(101), Some(102)]);
    // The start time is that of the wrapper's child, not that of the wrapper.
    world.0.get_mut(&100).unwrap().program = "/bin/bash".into();
    world.add(110, 100, "/home/u/solver", "RANK=0 WORLD_SIZE=3");
    assert_eq!(started(&world, 11), [Some(110), Some(101), Some(102)]);
}

#[test]
fn what_cannot_be_found() {
    let mut world = World::default();
    world.add(10, 1, "/bin/x", "").process.state = 'Z';
    world.add(11, 1, "/bin/y", "").environment = None;
    assert_eq!(world.find(10), "Ended { pid: 10 }");
    assert_eq!(world.find(11), "NotPermitted { pid: 11 }");
    assert_eq!(world.find(12), "NoProcess { pid: 12 }");
}

#[test]
fn why_launchers_give_no_answer() {
    let file = || "/tmp/pmix.n1.tool.7".to_owned();
    let all = [
        NoAnswer::NotAsked,
        NoAnswer::OtherNetwork,
        NoAnswer::NoFile,
        NoAnswer::Distrusted { file: file() },
        NoAnswer::Unreadable {
            file: file(),
            why: std::io::ErrorKind::PermissionDenied,
        },
        NoAnswer::Malformed { file: file() },
        NoAnswer::Socket {
            step: "connect to",
            address: std::net::SocketAddr::from(([127, 0, 0, 1], 7)),
            why: std::io::ErrorKind::ConnectionRefused,
        },
        NoAnswer::Silent,
        NoAnswer::Lost,
        NoAnswer::Refused { status: -46 },
        NoAnswer::OtherJobs,
    ];
    let text: Vec<String> = all.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(text.join("\n"), @r"
    not asked; `--ask-launcher` asks it
    it listens in another network namespace, which `dbgr` cannot reach
    no file says where it listens
    `/tmp/pmix.n1.tool.7` does not belong to its user
    cannot read `/tmp/pmix.n1.tool.7`: permission denied
    `/tmp/pmix.n1.tool.7` does not say where it listens
    cannot connect to 127.0.0.1:7: connection refused
    it did not answer in time
    it ended the connection
    it refuses to say (PMIx status -46)
    it knows no job that the process belongs to
    ");
}
