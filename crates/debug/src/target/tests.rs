//! Made-up machines, one for each way in which jobs are started.

mod elf;

use std::{collections::BTreeMap, path::Path};

use bytes::Bytes;

use super::*;
use crate::{maps::FileId, memory::Unreadable};

/// The user of all processes for which no other is said.
const USER: u32 = 1000;

#[derive(Clone, Debug)]
struct Made {
    process: Process,
    program: String,
    arguments: Vec<u8>,
    environment: Option<Vec<u8>>,
    owner: u32,
    /// Its file, where it has one, and where it is mapped.
    file: Option<(Bytes, u64)>,
    memory: BTreeMap<u64, Vec<u8>>,
    answer: Option<Vec<JobTable>>,
}

#[derive(Debug, Default)]
struct World(BTreeMap<i32, Made>);

impl World {
    /// Adds a process; its number is also when it started.
    fn add(&mut self, pid: i32, parent: i32, program: &str, environment: &str) -> &mut Made {
        let name = names::file_name(program).chars().take(15).collect();
        let mut environment = environment.replace(' ', "\0").into_bytes();
        environment.push(0);
        let made = Made {
            process: Process {
                pid,
                parent,
                name,
                started: u64::try_from(pid).unwrap(),
                state: 'S',
            },
            program: program.to_owned(),
            arguments: Vec::new(),
            environment: Some(environment),
            owner: USER,
            file: None,
            memory: BTreeMap::new(),
            answer: None,
        };
        self.0.entry(pid).insert_entry(made).into_mut()
    }

    fn find(&self, pid: i32) -> String {
        self.text(&Wish::Process(pid))
    }

    fn text(&self, wish: &Wish) -> String {
        match find(self, wish) {
            Ok(target) => target.to_string(),
            Err(why) => format!("{why:?}"),
        }
    }

    fn pids(&self, pid: i32) -> Vec<(u32, i32)> {
        let target = find(self, &Wish::Process(pid)).unwrap();
        let procs = target.procs.iter();
        procs.map(|(rank, proc)| (rank.0, proc.pid)).collect()
    }
}

impl Memory for Made {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let unreadable = Unreadable { address };
        let (start, bytes) = self
            .memory
            .range(..=address)
            .next_back()
            .ok_or(unreadable)?;
        let at = usize::try_from(address - start).unwrap();
        let part = bytes.get(at..).ok_or(unreadable)?;
        // What follows a text is unmapped, but a read may go over its end.
        let length = part.len().min(buffer.len());
        if length == 0 {
            return Err(unreadable);
        }
        buffer.fill(0);
        buffer[..length].copy_from_slice(&part[..length]);
        Ok(())
    }
}

impl Files for Made {
    fn open(&self, _: &Path) -> Option<Bytes> {
        None
    }

    fn open_mapped(&self, _: &Mapping) -> Option<Bytes> {
        self.file.as_ref().map(|(bytes, _)| bytes.clone())
    }
}

impl System for World {
    fn processes(&self) -> Vec<Process> {
        self.0.values().map(|made| made.process.clone()).collect()
    }

    fn environment(&self, pid: i32) -> Option<Vec<u8>> {
        self.0.get(&pid)?.environment.clone()
    }

    fn arguments(&self, pid: i32) -> Option<Vec<u8>> {
        Some(self.0.get(&pid)?.arguments.clone())
    }

    fn program(&self, pid: i32) -> Option<String> {
        Some(self.0.get(&pid)?.program.clone())
    }

    fn owner(&self, pid: i32) -> Option<u32> {
        Some(self.0.get(&pid)?.owner)
    }

    fn mappings(&self, pid: i32) -> Option<Vec<Mapping>> {
        let made = self.0.get(&pid)?;
        let Some((_, start)) = made.file else {
            return Some(Vec::new());
        };
        Some(vec![Mapping {
            range: start..start + 0x1000,
            readable: true,
            executable: true,
            offset: 0,
            file: Some(FileId {
                device: (8, 1),
                inode: u64::try_from(pid).unwrap(),
            }),
            path: "/usr/lib/libopen-rte.so.40".into(),
            deleted: false,
        }])
    }

    fn memory(&self, pid: i32) -> Box<dyn Memory + '_> {
        Box::new(self.0[&pid].clone())
    }

    fn files(&self, pid: i32) -> Box<dyn Files + '_> {
        Box::new(self.0[&pid].clone())
    }

    fn ask_launcher(&self, pid: i32) -> Result<Vec<JobTable>, String> {
        let answer = self.0.get(&pid).and_then(|made| made.answer.clone());
        answer.ok_or_else(|| "it does not answer".to_owned())
    }

    fn host(&self) -> String {
        "n1.cluster".into()
    }

    fn user(&self) -> u32 {
        USER
    }

    fn own_pid(&self) -> i32 {
        9999
    }
}

/// Where the made-up library is mapped.
const BASE: u64 = 0x7f00_0000_0000;

/// Gives a process the table of a launcher.
fn give_table(made: &mut Made, job: Option<&str>, rows: &[(&str, &str, i32)]) {
    made.file = Some((elf::library(job.is_some()), BASE));
    let mut texts = 0x10_0000;
    let mut text = |memory: &mut BTreeMap<u64, Vec<u8>>, text: &str| -> u64 {
        texts += 0x1000;
        memory.insert(texts, [text.as_bytes(), &[0]].concat());
        texts
    };
    let mut bytes = Vec::new();
    for (host, program, pid) in rows {
        bytes.extend(text(&mut made.memory, host).to_le_bytes());
        bytes.extend(text(&mut made.memory, program).to_le_bytes());
        bytes.extend(pid.to_le_bytes());
        // Open MPI leaves anything there.
        bytes.extend([0xde, 0xad, 0xbe, 0xef]);
    }
    made.memory.insert(0x20_0000, bytes);
    let variable = |at: u64| BASE + at;
    let table: u64 = if rows.is_empty() { 0 } else { 0x20_0000 };
    let size = i32::try_from(rows.len()).unwrap();
    made.memory
        .insert(variable(elf::TABLE), table.to_le_bytes().into());
    // What stands behind the four bytes is no part of the number.
    made.memory.insert(
        variable(elf::SIZE),
        [size.to_le_bytes(), [0xff; 4]].concat(),
    );
    made.memory
        .insert(variable(elf::STATE), 1_i32.to_le_bytes().into());
    if let Some(job) = job {
        let job = text(&mut made.memory, job);
        made.memory
            .insert(variable(elf::JOB), job.to_le_bytes().into());
    }
}

fn ranks(world: &mut World, parent: i32, environment: impl Fn(i32) -> String) {
    for rank in 0..3 {
        world.add(100 + rank, parent, "/home/u/solver", &environment(rank));
    }
}

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
    unsure: rank 3 should be process 103, and there is none of that number
    note: the launcher is process 11, `orterun`
    note: 1 rank is on other nodes, which this version does not reach
");
    // A rank, and the launcher itself, lead to the same.
    for pid in [11, 100, 101] {
        assert_eq!(
            find(&world, &Wish::Process(pid)).unwrap().procs.len(),
            4,
            "{pid}"
        );
    }
    // The number of a rank on another node means nothing here.
    world.add(200, 1, "/bin/other", "");
    assert_eq!(world.pids(200), [(0, 200)]);
    // Nor is what else the launcher has started a rank.
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
    // The helper that srun forks is not worth a word.
    give_table(world.add(12, 11, "/usr/bin/srun", ""), Some("7"), &[]);
    let tried = find(&world, &Wish::Process(11)).unwrap().tried;
    assert_eq!(tried, []);
    // The ranks are not below it.
    assert_eq!(world.pids(101), [(0, 100), (1, 101)]);
    // Another job of the node has nothing to do with it.
    world.add(
        210,
        50,
        "/home/u/solver",
        "SLURM_PROCID=0 SLURM_JOB_ID=8 SLURM_STEP_ID=0",
    );
    assert_eq!(world.pids(210), [(0, 210)]);
    // Without it, all with the same job.
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
      - the environment of the processes below process 10: none has `PMIX_RANK`, `OMPI_COMM_WORLD_RANK`, `PMI_RANK`, `SLURM_PROCID`, `RANK`, `PARALLEL_SEQ`
      + nothing makes it part of a job: it is rank 0
    ranks:
      0: process 10, `/usr/bin/srun`
    unsure: process 10 is a launcher that has not started its ranks yet; what is shown is the launcher itself
");
    let launcher = world.0.get_mut(&10).unwrap();
    launcher.memory.insert(BASE + elf::SIZE, vec![0xff; 8]);
    launcher
        .memory
        .insert(BASE + elf::TABLE, 0x20_0000_u64.to_le_bytes().into());
    insta::assert_snapshot!(world.find(10), @r"
    1 rank of `srun`
    found by:
      - the table for debuggers of `srun`, process 10: it cannot be read where it should be
      - the environment of the processes below process 10: none has `PMIX_RANK`, `OMPI_COMM_WORLD_RANK`, `PMI_RANK`, `SLURM_PROCID`, `RANK`, `PARALLEL_SEQ`
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
    // A fork of it, with a table that nobody fills.
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
    // The front was killed: its controller ends the job, and has it until then.
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
        // The tool that asks.
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
    note: 1 rank is on other nodes, which this version does not reach
");
    // A rank of the second job.
    assert_eq!(world.pids(101), [(0, 101)]);
    // It does not answer.
    world.0.get_mut(&10).unwrap().answer = None;
    insta::assert_snapshot!(world.find(10), @r"
    job `prterun-n1-10@1`: 1 rank of `solver`
    found by:
      - a table for debuggers (MPIR): none in 1 process
      - `prterun`, process 10, as a PMIx server: it does not answer
      + `PMIX_NAMESPACE` and `PMIX_RANK` in the environment of the processes below process 10: job `prterun-n1-10@1`
    ranks:
      0: process 100, `/home/u/solver`
    note: there is another job, `prterun-n1-10@2`, with 1 rank: `dbgr stacks prterun-n1-10@2`
    note: there is another job, `prterun-n1-10@3`, with 1 rank: `dbgr stacks prterun-n1-10@3`
");
}

#[test]
fn variables_below_a_proxy() {
    let mut world = World::default();
    world.add(10, 1, "/usr/bin/mpiexec.hydra", "");
    world.add(11, 10, "/usr/bin/hydra_pmi_proxy", "");
    world.add(12, 10, "/usr/bin/hydra_pmi_proxy", "");
    for rank in 0..4 {
        let environment = format!("PMI_RANK={rank} PMI_SIZE=6");
        world.add(100 + rank, 11 + rank % 2, "/home/u/solver", &environment);
        // What a rank starts is no rank.
        world.add(200 + rank, 100 + rank, "/bin/sh", &environment);
    }
    insta::assert_snapshot!(world.find(10), @r"
    4 ranks of `solver`
    found by:
      - a table for debuggers (MPIR): none in 3 processes
      + `PMI_RANK` in the environment of the processes below process 10
    ranks:
      0: process 100, `/home/u/solver`
      1: process 101, `/home/u/solver`
      2: process 102, `/home/u/solver`
      3: process 103, `/home/u/solver`
    note: the job has 6 ranks; 4 of them live on this node
");
    let all = world.pids(10);
    assert_eq!(world.pids(102), all);
    assert_eq!(world.pids(202), all);
    insta::assert_snapshot!(world.find(202), @r"
    4 ranks of `solver`
    found by:
      - a table for debuggers (MPIR): none in 4 processes
      + `PMI_RANK` in the environment of the processes below process 10
    ranks:
      0: process 100, `/home/u/solver`
      1: process 101, `/home/u/solver`
      2: process 102, `/home/u/solver`
      3: process 103, `/home/u/solver`
    unsure: process 202 is no rank, it was started by rank 2; what is shown is the job
    note: the launcher is process 10, `mpiexec.hydra`
    note: the job has 6 ranks; 4 of them live on this node
");
}

#[test]
fn a_launcher_that_is_a_rank_itself() {
    let mut world = World::default();
    // The script of a batch job is rank 0 of a step of its own; and so are all that it starts.
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
    // Rank 0 says what its launcher says, too.
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
    job `n1:5`: 2 ranks of `python3.11`
    found by:
      - a table for debuggers (MPIR): none in 1 process
      + `RANK` and `WORLD_SIZE` in the environment of the processes below process 10: job `n1:5`
    ranks:
      0: process 300, `/usr/bin/python3.11`
      1: process 301, `/usr/bin/python3.11`
    unsure: processes 101 and 102 both say that they are rank 1; 101 is older and was taken
    note: the job has 4 ranks; 2 of them live on this node
    note: 2 ranks were started by `bash`, which only waits; its child was taken
");
    // A shell that has more to do than to wait is the rank.
    world.add(301 + 50, 101, "/bin/tee", "");
    assert_eq!(world.pids(10), [(0, 300), (1, 101)]);
}

#[test]
fn plain_children() {
    let mut world = World::default();
    world.add(10, 1, "/usr/bin/make", "");
    for number in 0..3 {
        // In another order than that of their numbers.
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
      - the environment of the processes below process 10: none has `PMIX_RANK`, `OMPI_COMM_WORLD_RANK`, `PMI_RANK`, `SLURM_PROCID`, `RANK`, `PARALLEL_SEQ`
      + process 10 has started them, all `cc1`; the numbers are ours, by the time of their start
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
      - the environment of the processes below process 10: none has `PMIX_RANK`, `OMPI_COMM_WORLD_RANK`, `PMI_RANK`, `SLURM_PROCID`, `RANK`, `PARALLEL_SEQ`
      + nothing makes it part of a job: it is rank 0
    ranks:
      0: process 10, `/usr/bin/postgres`
    note: left out: 2 processes of `postgres`
    note: left out: 1 process of `sh`
");
    // A shell that waits for one program.
    world.add(20, 1, "/bin/bash", "");
    world.add(21, 20, "/home/u/solver", "");
    assert_eq!(world.pids(20), [(0, 21)]);
    // And one that waits for its user.
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
      + the name `python3.*`; the numbers are ours, by the time of their start
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
        procs.values().map(|proc| proc.started).collect()
    };
    // Of another node nothing is known, nor of what was gone already.
    assert_eq!(started(&world, 10), [Some(100), None, None]);
    world.0.remove(&10);
    for rank in 0..3 {
        world.0.get_mut(&(100 + rank)).unwrap().process.parent = 11;
    }
    world.add(11, 1, "/usr/bin/torchrun", "");
    assert_eq!(started(&world, 11), [Some(100), Some(101), Some(102)]);
    // A wrapper's child is not as old as the wrapper.
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
