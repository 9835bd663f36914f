//! Machines over real hosts: nodes that come and go by ssh, and a machine inside a job of Slurm beside one outside.

use std::{fs, os::unix::process::CommandExt as _, path::Path, process::Command};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::{
    expect_no_daemon,
    host::{command_on, daemon_on, is_on},
    set_link,
};
use crate::harness::{DEADLINE, Finished, Sandbox, eventually, rally};

struct Machine(Sandbox);

impl Machine {
    fn up(args: &[&str]) -> Self {
        let machine = Self(Sandbox::new());
        machine.run(&[&["up"], args].concat()).expect_code(0);
        machine
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.0.rally(args);
        // In the background of a terminal, on which somebody may run the tests: ssh must not ask there.
        command.process_group(0);
        command
    }

    fn run(&self, args: &[&str]) -> Finished {
        self.0.run(&mut self.command(args))
    }

    fn submit(&self, args: &[&str]) -> String {
        let submitted = self.run(&[&["submit", "--parsable", "--wdir", "/"], args].concat());
        submitted.expect_code(0).out().trim_end().to_owned()
    }

    /// Waits until the line of a node has this word, or is gone.
    fn expect_node(&self, node: &str, word: Option<&str>) {
        let mut listed = String::new();
        let found = eventually(DEADLINE, || {
            listed = self.run(&["nodes"]).out();
            let mut lines = listed.lines().map(|line| line.split_whitespace());
            let line = lines.find(|line| line.clone().next() == Some(node));
            let state = line.and_then(|mut line| line.nth(1));
            (state == word).then_some(())
        });
        assert!(found.is_some(), "{node} is not {word:?}: {listed}");
    }

    fn expect_running(&self, job: &str) {
        let is_there = || {
            self.run(&["queue", job])
                .out()
                .contains("running")
                .then_some(())
        };
        assert!(
            eventually(DEADLINE, is_there).is_some(),
            "{job} does not run"
        );
    }

    fn down(self) {
        self.run(&["down", "--now"]).expect_code(0);
        self.0.expect_no_process();
        expect_no_daemon();
    }
}

/// Returns true if a daemon runs on a node.
fn has_daemon(node: u32) -> bool {
    let all = mischief::all_procs();
    let mut daemons = all.iter().filter(|one| one.args.ends_with("__daemon"));
    daemons.any(|one| is_on(one.pid, node))
}

fn expect_no_daemon_on(node: u32) {
    let gone = eventually(DEADLINE, || (!has_daemon(node)).then_some(()));
    assert!(gone.is_some(), "n{node} has a daemon");
}

#[test]
fn hosts_are_added_lost_added_again_and_dropped() {
    let machine = Machine::up(&["--host", "n1:2,n2:2", "--lease", "1s"]);
    let added = machine
        .run(&["nodes", "--add", "n3:2,nowhere"])
        .expect_code(0);
    added.expect_err(&[
        "1 node has joined machine `main`",
        "1 of 2 nodes cannot be used",
        "Could not resolve hostname",
    ]);
    machine.run(&["nodes", "--drop", "nowhere"]).expect_code(0);
    let job = machine.submit(&["--map-by", "ppr:1:node", "-n", "3", "hostname"]);
    machine.run(&["wait", &job]).expect_code(0);
    let printed = machine.run(&["output", &job]).expect_code(0);
    assert_eq!(printed.sorted(), "n1\nn2\nn3");

    // Its daemon is killed.
    let sleeps = ["--host", "n3", "-n", "1", "--requeue", "sleep", "77"];
    let job = machine.submit(&sleeps);
    machine.expect_running(&job);
    signal::kill(Pid::from_raw(daemon_on(3)), Signal::SIGKILL).unwrap();
    machine.expect_node("n3", Some("bad"));
    machine.run(&["nodes", "--add", "n3:2"]).expect_code(0);
    machine.expect_running(&job);

    // It is cut off, comes back, and is added while its old daemon may still run.
    set_link(3, "down");
    machine.expect_node("n3", Some("bad"));
    set_link(3, "up");
    machine.run(&["nodes", "--add", "n3:2"]).expect_code(0);
    machine.expect_running(&job);

    machine
        .run(&["nodes", "--drop", "n3"])
        .expect_code(123)
        .expect_err(&["1 task runs on these nodes"]);
    machine
        .run(&["nodes", "--drop", "n3", "--now"])
        .expect_code(0);
    machine.expect_node("n3", None);
    expect_no_daemon_on(3);
    machine.run(&["cancel", &job]).expect_code(0);

    let shared = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let go = shared.path().join("go");
    let waits = format!("until test -e {}; do sleep 0.01; done", go.display());
    let job = machine.submit(&["--host", "n2", "-n", "1", "sh", "-c", &waits]);
    machine.expect_running(&job);
    let mut dropping = machine.command(&["nodes", "--drop", "n2", "--wait"]);
    let dropping = machine.0.start(&mut dropping);
    machine.expect_node("n2", Some("leaving"));
    fs::write(&go, "").unwrap();
    dropping.end().expect_code(0);
    machine.run(&["wait", &job]).expect_code(0);
    expect_no_daemon_on(2);
    machine.down();
}

/// Each waits for the other at the files `inside` and `outside`.
const IN_SLURM: &str = r#"
$RALLY up --name inside || exit 1
$RALLY status > inside.new; mv inside.new inside
$RALLY run --on-machine inside -n 1 hostname > ran
until test -e outside; do sleep 0.05; done
$RALLY status > both.new; mv both.new both
until test -e over; do sleep 0.05; done
$RALLY down; mv ran done
"#;

#[test]
fn a_machine_in_a_job_of_slurm_and_one_outside_are_not_mistaken_for_each_other() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| directory.path().join(name);
    let sandbox = Sandbox::new();
    let script = path("job.sh");
    fs::write(&script, format!("#!/bin/sh\n{IN_SLURM}")).unwrap();
    let state = path("state");
    let mut batch = sandbox.command("sbatch");
    batch.env_remove("TMPDIR").env_remove("XDG_RUNTIME_DIR");
    batch
        .current_dir(directory.path())
        .env("RALLY_STATE_DIR", &state);
    batch
        .args(["--parsable", "--nodelist=n5", "--output=log"])
        .arg(&script);
    let number = sandbox.run(&mut batch).expect_code(0).out();
    let said = |file: &Path| {
        let read = || fs::read_to_string(file).ok();
        let log = fs::read_to_string(path("log")).unwrap_or_default();
        eventually(DEADLINE, read).unwrap_or_else(|| panic!("{}: {log}", file.display()))
    };
    assert!(said(&path("inside")).contains("machine inside,"));
    let outside = |words: &str| {
        let script = format!(
            "cd {} && RALLY_STATE_DIR={} exec {} {words}",
            directory.path().display(),
            state.display(),
            rally().display()
        );
        sandbox.run(&mut command_on(5, &script))
    };
    let elsewhere = format!("elsewhere: `inside` (Slurm job {})", number.trim());
    let none = outside("status").expect_code(120);
    none.expect_err(&["no machine runs on this host", &elsewhere]);
    outside("up --name outside --host localhost").expect_code(0);
    let status = outside("status").expect_code(0).out();
    assert!(status.contains("machine outside,"), "{status}");
    fs::write(path("outside"), "").unwrap();
    assert!(said(&path("both")).contains("machine inside,"));
    // Who names one gets that one.
    let named = outside("run --on-machine inside -n 1 hostname").expect_code(0);
    assert_eq!(named.out(), "n5\n");
    outside("down").expect_code(0);
    fs::write(path("over"), "").unwrap();
    assert_eq!(said(&path("done")), "n5\n");
    expect_no_daemon();
}
