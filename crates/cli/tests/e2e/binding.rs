//! The default binding of ranks, with and without other jobs on the node.

use std::{fs, process::Command, thread};

use base::CpuSet;

use crate::harness::{Sandbox, Stream};

const SHOWS_ITS_CPUS: [&str; 3] = ["grep", "Cpus_allowed_list", "/proc/self/status"];

/// Returns the CPUs that we may use, and all CPUs of the node.
pub(crate) fn cpus() -> (CpuSet, CpuSet) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = listed(&status).remove(0);
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    (allowed, online.trim().parse().unwrap())
}

/// Returns the value of each `Cpus_allowed_list` line.
fn listed(text: &str) -> Vec<CpuSet> {
    let lines = text
        .lines()
        .filter_map(|line| line.split_once("Cpus_allowed_list:"));
    lines
        .map(|(_, list)| list.trim().parse().unwrap())
        .collect()
}

/// Returns a command for a job to which a resource manager has granted the whole node, according to its environment.
fn granted(sandbox: &Sandbox, arguments: &[&str]) -> Command {
    let mut command = sandbox.rally(arguments);
    let pus = cpus().0.len().to_string();
    command
        .env("SLURM_JOB_ID", "7")
        .env("SLURM_CPUS_ON_NODE", pus);
    command
}

#[test]
fn two_jobs_at_once_do_not_share_a_core() {
    let sandbox = Sandbox::new();
    let (allowed, online) = cpus();
    let job = || {
        let mut command = sandbox.rally(&["run", "-n", "1"]);
        let run = sandbox
            .run(command.args(SHOWS_ITS_CPUS))
            .expect_code(0)
            .expect_quiet();
        listed(&run.out())
    };
    let ran = thread::scope(|scope| {
        let both = [scope.spawn(job), scope.spawn(job)];
        both.map(|job| job.join().unwrap())
    });
    for cpus in ran {
        // If the test may use only a part of the node, the job is bound unless it sees the other job.
        if allowed == online {
            assert_eq!(cpus, std::slice::from_ref(&allowed));
        }
    }
}

#[test]
fn whoever_asks_is_bound() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["run", "-n", "1", "--bind-to", "core"][..],
        &["run", "-n", "1", "--map-by", "core"],
    ] {
        let mut command = sandbox.rally(arguments);
        let run = sandbox.run(command.args(SHOWS_ITS_CPUS)).expect_code(0);
        let mut binds =
            sandbox.rally(&["run", "-n", "1", "--dry-run", "--bind-to", "core", "true"]);
        let plan = sandbox.run(&mut binds).expect_code(0);
        let first = plan.out();
        let (_, pus) = first.trim().rsplit_once("PUs ").unwrap();
        assert_eq!(listed(&run.out()), [pus.parse::<CpuSet>().unwrap()]);
    }
}

/// In an allocation the cores are ours, but may be shared with another job of ours.
#[test]
fn a_job_beside_another_in_one_allocation_is_not_bound() {
    let sandbox = Sandbox::new();
    let shared = |command: &mut Command| {
        command.env("XDG_RUNTIME_DIR", sandbox.work());
    };
    let why = |arguments: &[&str]| {
        let mut command = granted(&sandbox, arguments);
        command.arg("true");
        shared(&mut command);
        let run = sandbox.run(&mut command).expect_code(0);
        let bound = run.out();
        let line = bound.lines().find(|line| line.contains("bind"));
        line.unwrap().trim().to_owned()
    };
    insta::assert_snapshot!(why(&["run", "-n", "1", "--explain"]), @"bind to core: the cores are for this job alone");

    let mut first = granted(&sandbox, &["run", "-n", "1"]);
    first.args(["sh", "-c", "echo there; read go"]);
    first.stdin(std::process::Stdio::piped());
    shared(&mut first);
    let first = sandbox.start(&mut first);
    first.expect(Stream::Stdout, "there");
    insta::assert_snapshot!(why(&["run", "-n", "1", "--explain"]), @"do not bind: another job of yours runs on these cores (`--bind-to core` binds nevertheless)");
    insta::assert_snapshot!(why(&["run", "-n", "1", "--explain", "--bind-to", "core"]), @"bind as asked: `--bind-to core`");
    let mut second = granted(&sandbox, &["run", "-n", "1"]);
    shared(&mut second);
    let second = sandbox.run(second.args(SHOWS_ITS_CPUS)).expect_code(0);
    assert_eq!(listed(&second.out()), [cpus().0]);
    first.signal(nix::sys::signal::Signal::SIGTERM);
    first.end();
}

/// Notes on a map are printed once, whether the map or the job prints them.
#[test]
fn a_map_that_is_shown_says_its_notes_once() {
    let sandbox = Sandbox::new();
    for options in [&["--display", "map"][..], &["--dry-run"], &["--explain"]] {
        let mut command = sandbox.rally(&["run", "-n", "1000"]);
        let run = sandbox
            .run(command.args(options).arg("true"))
            .expect_code(0);
        let said = [run.out(), run.err()].concat();
        assert_eq!(said.matches("note: ").count(), 1, "{options:?}: {run:?}");
        assert!(!said.contains("  bind to"), "{options:?}: {run:?}");
    }
}
