//! `dbgr stacks`: finds the ranks of real jobs, under every launcher.

use std::{collections::BTreeMap, fs, path::Path};

use crate::harness::{
    DEADLINE, Finished, Running, Sandbox, Slurm, Stream, compiled, dbgr, eventually, rally,
    testdata, venv,
};

/// The number of ranks of a job.
const RANKS: usize = 3;

/// A sandbox, with a program that waits for a file.
struct Trial {
    sandbox: Sandbox,
    program: String,
    go: String,
}

impl Trial {
    /// Compiles the program with the compiler of an MPI library.
    fn mpi(compiler: &Path) -> Self {
        Self::with(compiler, &[])
    }

    fn plain() -> Self {
        Self::with(Path::new("cc"), &["-DPLAIN"])
    }

    fn with(compiler: &Path, options: &[&str]) -> Self {
        let sandbox = Sandbox::new();
        let program = compiled(compiler, &testdata("stacks/wait.c"), options);
        Self {
            program: program.to_str().unwrap().to_owned(),
            go: sandbox.path("go").to_str().unwrap().to_owned(),
            sandbox,
        }
    }

    /// Starts a launcher with these arguments and the program, and waits until all its ranks run.
    fn launch(&self, launcher: &Path, args: &[&str]) -> Running {
        let mut command = self.sandbox.command(launcher);
        command.args(args).args([&self.program, &self.go]);
        self.start(&mut command, RANKS)
    }

    fn start(&self, command: &mut std::process::Command, ranks: usize) -> Running {
        let user = nix::unistd::Uid::effective();
        if user.is_root() {
            for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
                command.env(name, "1");
            }
        }
        // Saves a second in each `MPI_Init`.
        command.env("OMPI_MCA_btl", "^ofi");
        let running = self.sandbox.start(command);
        running.expect_times(Stream::Stdout, "ready", ranks);
        running
    }

    fn dbgr(&self, args: &[&str]) -> Finished {
        let mut command = self.sandbox.command(dbgr());
        command.arg("stacks").args(args);
        self.sandbox.run(&mut command)
    }

    /// Returns the explanation of how the ranks were found, and the pid of each.
    fn explain(&self, target: &str) -> (String, BTreeMap<u32, i32>) {
        let text = self.dbgr(&["--explain", target]).expect_code(0).out();
        (text.clone(), listed(&text))
    }

    /// Returns the processes of the program, by the value of this environment variable.
    fn ranks(&self, variable: &str) -> BTreeMap<u32, i32> {
        let pids = self.pids().into_iter();
        pids.map(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
            let environment = String::from_utf8_lossy(&environment).into_owned();
            let prefix = format!("{variable}=");
            let value = environment
                .split('\0')
                .find_map(|text| text.strip_prefix(&prefix));
            (value.unwrap().parse().unwrap(), pid)
        })
        .collect()
    }

    /// Returns the processes that execute the program.
    fn pids(&self) -> Vec<i32> {
        let found = self.sandbox.find(&self.go).into_iter();
        found
            .map(|process| process.pid)
            .filter(|pid| {
                let program = fs::read_link(format!("/proc/{pid}/exe"));
                program.is_ok_and(|program| program == Path::new(&self.program))
            })
            .collect()
    }

    /// Checks that the pids of launcher, rank, and the launcher's parent lead to the same ranks and stacks.
    fn expect(&self, running: &Running, ranks: &BTreeMap<u32, i32>, how: &[&str]) {
        let launcher = running.pid.to_string();
        let (text, found) = self.explain(&launcher);
        assert_eq!(&found, ranks, "{text}");
        for part in how {
            assert!(text.contains(part), "{part:?} is not said: {text}");
        }
        let last = ranks.values().last().unwrap().to_string();
        let (text, found) = self.explain(&last);
        assert_eq!(&found, ranks, "by rank {last}: {text}");
        let stacks = self.dbgr(&[&launcher]).expect_code(0).out();
        assert!(stacks.contains("wait_here"), "{stacks}");
    }

    fn let_go(&self, running: Running) {
        self.sandbox.file("go", "");
        running.end().expect_code(0);
    }
}

/// Returns the ranks in an explanation.
fn listed(text: &str) -> BTreeMap<u32, i32> {
    let ranks = text.lines().filter_map(|line| {
        let (rank, rest) = line.trim().split_once(": process ")?;
        let pid = rest.split(',').next()?;
        Some((rank.parse().ok()?, pid.parse().ok()?))
    });
    ranks.collect()
}

#[test]
fn our_own_launcher() {
    let trial = Trial::plain();
    let job = trial.launch(&rally(), &["run", "-n", "3"]);
    let ranks = trial.ranks("PMIX_RANK");
    trial.expect(&job, &ranks, &["+ the table of `rally`"]);
    let (text, found) = trial.explain(&format!("{}@1", job.pid));
    assert_eq!(found, ranks, "{text}");
    let name = text.split('`').nth(1).unwrap();
    assert!(name.starts_with("rally-") && name.ends_with("@1"), "{text}");
    assert_eq!(trial.explain(name).1, ranks);
    trial.let_go(job);
}

#[test]
fn open_mpi_4_keeps_a_table_in_a_library() {
    let trial = Trial::mpi("mpicc.openmpi".as_ref());
    let job = trial.launch("mpirun.openmpi".as_ref(), &["--oversubscribe", "-n", "3"]);
    let how = [
        "+ the table for debuggers (`MPIR_proctable`) of `orterun`",
        "it is in `libopen-rte.so",
    ];
    trial.expect(&job, &trial.ranks("OMPI_COMM_WORLD_RANK"), &how);
    trial.let_go(job);
}

#[test]
fn open_mpi_4_behind_a_shell() {
    let trial = Trial::mpi("mpicc.openmpi".as_ref());
    let script = r#"sleep 0; mpirun.openmpi --oversubscribe -n 3 "$0" "$1"; exit $?"#;
    let job = trial.launch("/bin/bash".as_ref(), &["-c", script]);
    let how = [
        "+ the table for debuggers (`MPIR_proctable`) of `orterun`",
        "the launcher is process",
    ];
    trial.expect(&job, &trial.ranks("OMPI_COMM_WORLD_RANK"), &how);
    trial.let_go(job);
}

#[test]
fn open_mpi_5_is_read_by_the_environment_of_its_ranks() {
    let bin = venv("openmpi").join("bin");
    let trial = Trial::mpi(&bin.join("mpicc"));
    let job = trial.launch(&bin.join("mpirun"), &["--oversubscribe", "-n", "3"]);
    let ranks = trial.ranks("PMIX_RANK");
    let how = [
        "+ `PMIX_NAMESPACE` and `PMIX_RANK` in the environment of the descendants of process",
        "`prterun`, process",
        "not asked; `--ask-launcher` asks it",
    ];
    trial.expect(&job, &ranks, &how);
    trial.let_go(job);
}

#[test]
fn open_mpi_5_answers_when_it_is_asked() {
    let bin = venv("openmpi").join("bin");
    let trial = Trial::mpi(&bin.join("mpicc"));
    let job = trial.launch(&bin.join("mpirun"), &["--oversubscribe", "-n", "3"]);
    let ranks = trial.ranks("PMIX_RANK");
    // Asked only once: the launcher may not exit after a second time.
    let text = trial.dbgr(&["--explain", "--ask-launcher", &job.pid.to_string()]);
    let text = text.expect_code(0).out();
    for part in [
        "+ the answer of `prterun`",
        "as a PMIx server: job `prterun-",
    ] {
        assert!(text.contains(part), "{part:?} is not said: {text}");
    }
    assert_eq!(listed(&text), ranks, "{text}");
    trial.let_go(job);
}

#[test]
fn hydra_is_read_by_the_environment_of_its_ranks() {
    let bin = venv("mpich").join("bin");
    let trial = Trial::mpi(&bin.join("mpicc"));
    let job = trial.launch(&bin.join("mpiexec"), &["-n", "3"]);
    let how = ["+ `PMI_RANK` in the environment of the descendants of process"];
    trial.expect(&job, &trial.ranks("PMI_RANK"), &how);
    trial.let_go(job);
}

#[test]
fn a_launcher_that_sets_rank() {
    let trial = Trial::plain();
    let script = trial.sandbox.file(
        "launcher.py",
        "import os, subprocess, sys\n\
         ranks = [subprocess.Popen(sys.argv[1:], env={**os.environ, 'RANK': str(2 - i), 'WORLD_SIZE': '3'}) for i in range(3)]\n\
         sys.exit(max(rank.wait() for rank in ranks))\n",
    );
    let job = trial.launch("/usr/bin/python3".as_ref(), &[&script]);
    let how = ["+ `RANK` and `WORLD_SIZE` in the environment of the descendants of process"];
    trial.expect(&job, &trial.ranks("RANK"), &how);
    trial.let_go(job);
}

#[test]
fn wrappers_are_no_ranks() {
    let trial = Trial::plain();
    let script = r#"sh -c '"$0" "$1"; exit $?' "$0" "$1"; exit $?"#;
    let job = trial.launch(&rally(), &["run", "-n", "3", "bash", "-c", script]);
    let ranks = trial.ranks("PMIX_RANK");
    assert_eq!(ranks.len(), RANKS);
    let how = ["3 ranks were started by `bash`, which only waits; `dbgr` takes its child"];
    trial.expect(&job, &ranks, &how);
    trial.let_go(job);
}

#[test]
fn what_ranks_have_started_is_below_them() {
    let trial = Trial::plain();
    let script = r#""$0" "$1" & "$0" "$1" & wait; exit 0"#;
    let mut command = trial.sandbox.rally(&["run", "-n", "2", "sh", "-c", script]);
    let job = trial.start(command.args([&trial.program, &trial.go]), 4);
    let pid = job.pid.to_string();
    let found = trial.dbgr(&["--width=300", &pid]).expect_code(0);
    let text = found.out();
    let pids: Vec<String> = trial.pids().iter().map(i32::to_string).collect();
    let (_, below) = text.split_once("below these ranks: ").expect(&text);
    let (numbers, stacks) = below.split_once('\n').unwrap();
    let mut numbers: Vec<&str> = numbers.split(", ").collect();
    numbers.sort_unstable();
    let mut expected: Vec<&str> = pids.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(numbers, expected, "{text}");
    assert!(
        stacks.starts_with("2 [0-1] (2 threads each) main") && stacks.contains("wait_here"),
        "{text}"
    );
    let json = trial.dbgr(&["--json", &pid]).expect_code(0).out();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let children = &json["samples"][0]["children"][0];
    assert_eq!(children["processes"].as_array().unwrap().len(), 4);
    assert_eq!(children["stacks"][0]["threads"][0]["each"], 2);
    trial.let_go(job);
}

#[test]
fn a_shell_loop() {
    let trial = Trial::plain();
    // Started one after another, so that their ranks are known.
    let script = r#"for i in 1 2 3; do "$0" "$1" & done; wait; exit 0"#;
    let job = trial.launch("/bin/bash".as_ref(), &["-c", script]);
    let ranks: BTreeMap<u32, i32> = (0..).zip(trial.pids()).collect();
    let (text, found) = trial.explain(&job.pid.to_string());
    let sorted = |ranks: &BTreeMap<u32, i32>| {
        let mut pids: Vec<i32> = ranks.values().copied().collect();
        pids.sort_unstable();
        pids
    };
    assert_eq!(sorted(&found), sorted(&ranks), "{text}");
    assert!(
        text.contains("`dbgr` numbered them in the order of their start"),
        "{text}"
    );
    // The pid of one process means only this process.
    let (text, found) = trial.explain(&ranks[&1].to_string());
    assert_eq!(found, BTreeMap::from([(0, ranks[&1])]), "{text}");
    trial.let_go(job);
}

#[test]
fn gnu_parallel_numbers_its_jobs() {
    let trial = Trial::plain();
    let mut command = trial.sandbox.command("/usr/bin/parallel");
    let line = format!("{} {} # {{}}", trial.program, trial.go);
    command.args(["--will-cite", "-j", "3", "-u", &line, ":::", "a", "b", "c"]);
    let job = trial.start(&mut command, RANKS);
    let how = ["+ `PARALLEL_SEQ` in the environment of the descendants of process"];
    trial.expect(&job, &trial.ranks("PARALLEL_SEQ"), &how);
    trial.let_go(job);
}

#[test]
fn by_the_name_of_the_program() {
    let trial = Trial::plain();
    let own = trial.sandbox.path("solver-7").to_str().unwrap().to_owned();
    fs::copy(&trial.program, &own).unwrap();
    let mut command = trial.sandbox.rally(&["run", "-n", "3", &own, &trial.go]);
    let job = trial.start(&mut command, RANKS);
    // Other tests may run simultaneously: the path distinguishes this one.
    let pattern = format!("{}/solver-?", trial.sandbox.work().display());
    let text = trial
        .dbgr(&["--explain", "--name", &pattern])
        .expect_code(0)
        .out();
    assert!(text.contains("3 ranks of `solver-7`"), "{text}");
    assert!(
        text.contains("numbered by `PMIX_NAMESPACE` and `PMIX_RANK`"),
        "{text}"
    );
    trial.let_go(job);
}

#[test]
fn what_is_not_there() {
    let sandbox = Sandbox::new();
    let stacks = |target: &[&str]| {
        let mut command = sandbox.command(dbgr());
        command.arg("stacks").args(target);
        sandbox.run(&mut command).expect_code(120)
    };
    stacks(&["2147483647"]).expect_err(&["error: there is no process 2147483647 on this node"]);
    stacks(&["1@77"])
        .expect_err(&["error: no process on this node says that it belongs to job `1@77`"]);
    stacks(&["--name", "/no/such/*"]).expect_err(&["is called `/no/such/*`"]);
    stacks(&[]).expect_err(&["Usage: dbgr stacks"]);
}

#[test]
fn what_was_found_in_every_form() {
    let trial = Trial::plain();
    let job = trial.launch(&rally(), &["run", "-n", "3"]);
    let pid = job.pid.to_string();
    let said = |option: &str| trial.dbgr(&[&pid, option]).expect_code(0).out();
    let text = said("--color=never");
    assert!(
        text.contains("3 [0-2] main") && !text.contains('\u{1b}'),
        "{text}"
    );
    assert!(said("--color=always").contains("\u{1b}["));
    let narrow = said("--width=40");
    assert!(
        narrow.lines().all(|line| line.chars().count() <= 40),
        "{narrow}"
    );
    assert!(said("--full").contains("_start"));
    assert!(said("--timing").contains("3 threads were stopped for "));
    let folded = said("--folded");
    assert!(
        folded.contains("wait_here") && folded.trim_end().ends_with(" 3"),
        "{folded}"
    );
    let json: serde_json::Value = serde_json::from_str(&said("--json")).unwrap();
    assert_eq!(json["format"], "dbgr.stacks");
    assert_eq!(json["placement"].as_array().unwrap().len(), 3);
    assert_eq!(
        json["samples"][0]["stacks"][0]["threads"][0]["ranks"],
        "0-2"
    );
    let page = trial.sandbox.path("hang.html");
    let mut command = trial.sandbox.command(dbgr());
    command
        .args(["report", &pid, "--samples", "3", "--every", "50ms", "-o"])
        .arg(&page);
    trial.sandbox.run(&mut command).expect_code(0);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("3 samples"), "{page}");
    assert!(page.contains("wait_here") && page.ends_with("</html>\n"));
    let mut command = trial.sandbox.command(dbgr());
    command.args(["report", &pid, "-o", "/nowhere/hang.html"]);
    let failed = trial.sandbox.run(&mut command);
    assert!(failed.err().contains("cannot write `/nowhere/hang.html`"));
    trial.let_go(job);
}

#[test]
fn what_is_typed_most_works() {
    let trial = Trial::plain();
    let job = trial.launch(&rally(), &["run", "-n", "3"]);
    let pid = job.pid.to_string();
    let said = |args: &[&str]| {
        let mut command = trial.sandbox.command(dbgr());
        trial.sandbox.run(command.args(args)).expect_code(0).out()
    };
    assert!(said(&[&pid]).contains("3 [0-2] main"));
    // Only the page goes to stdout.
    let page = said(&["report", &pid, "--every=50ms", "-o", "-"]);
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    let name = format!("dbgr-{pid}.html");
    trial.sandbox.file(&name, "mine");
    let written = said(&["report", &pid, "--every=50ms"]);
    assert!(
        written.contains(&format!("written: dbgr-{pid}-2.html\n")),
        "{written}"
    );
    assert_eq!(trial.sandbox.read(&name), "mine");
    trial.let_go(job);
}

#[test]
fn who_has_seen_enough_gets_what_there_is() {
    let trial = Trial::plain();
    let job = trial.launch(&rally(), &["run", "-n", "3"]);
    let mut command = trial.sandbox.command(dbgr());
    command.args([&job.pid.to_string(), "--samples=1000", "--every=1h"]);
    let looking = trial.sandbox.start(&mut command);
    // Between samples it blocks SIGINT and waits for it. Before, the signal would kill it.
    let blocks = || {
        let status = fs::read_to_string(format!("/proc/{}/status", looking.pid)).unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let blocked = u64::from_str_radix(blocked.unwrap().trim(), 16).unwrap();
        (blocked & 2 != 0).then_some(())
    };
    eventually(DEADLINE, blocks).expect("it waits for the next sample");
    looking.signal(nix::sys::signal::Signal::SIGINT);
    let ended = looking.end().expect_code(130);
    assert!(ended.out().contains("3 [0-2] main"), "{ended:?}");
    ended.expect_err(&["note: interrupted: 1 of 1000 samples was taken"]);
    trial.let_go(job);
}

#[test]
fn srun_keeps_a_table() {
    let trial = Trial::plain();
    let slurm = Slurm::start(&trial.sandbox);
    let mut command = slurm.command("srun".as_ref());
    command.args(["-n", "3", &trial.program, &trial.go]);
    let job = trial.start(&mut command, RANKS);
    let ranks = trial.ranks("SLURM_PROCID");
    let how = ["+ the table for debuggers (`MPIR_proctable`) of `srun`"];
    trial.expect(&job, &ranks, &how);
    // The job's name in Slurm also finds it: first job, first step.
    let (text, found) = trial.explain("1.0");
    assert_eq!(found, ranks, "{text}");
    trial.let_go(job);
    slurm.stop();
}
