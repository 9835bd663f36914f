//! What users see while the controller of Slurm does not answer, or is gone.

use std::{fs, process::Stdio};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::*;
use crate::harness::{Running, Stream};

/// Where the controller keeps its jobs on the test bed.
const JOBS_OF_SLURM: &str = "/run/cluster/slurm/job_state";
/// Ends when the test wants it, with a code of its own.
const UNTIL_GO: &str = "until test -e go; do sleep 0.05; done; exit 4";
/// Time after which we give a command of Slurm up.
const PATIENCE: &str = "2";

/// The controller of the test bed. It runs again at the end of the test.
struct Controller {
    pid: Pid,
    words: Vec<String>,
}

impl Controller {
    fn find() -> Self {
        let all = mischief::all_procs();
        let found = all
            .iter()
            .find(|process| process.args.contains("slurmctld "));
        let pid = found.expect("slurmctld runs").pid;
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        let words = line.split_terminator('\0').map(str::to_owned);
        Self {
            pid: Pid::from_raw(pid),
            words: words.collect(),
        }
    }

    fn signal(&self, signal: Signal) {
        signal::kill(self.pid, signal).unwrap();
    }

    /// Kills it, and waits until it is gone.
    fn kill(&self) {
        self.signal(Signal::SIGKILL);
        let is_gone = || {
            let mut all = mischief::all_procs().into_iter();
            let is_there =
                all.any(|process| process.pid == self.pid.as_raw() && process.state != 'Z');
            (!is_there).then_some(())
        };
        assert!(eventually(DEADLINE, is_gone).is_some());
    }

    /// Starts it again after a kill. It lives as long as the cluster.
    fn start(&mut self) {
        let mut command = Command::new("setsid");
        command
            .args(&self.words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let pid = command.spawn().unwrap().id();
        self.pid = Pid::from_raw(pid.try_into().unwrap());
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if signal::kill(self.pid, Signal::SIGCONT).is_err() {
            self.start();
        }
    }
}

impl Site {
    /// Returns a command that gives commands of Slurm up soon.
    fn impatient(&self, args: &[&str]) -> Command {
        let mut command = self.command(args);
        command.env("RALLY_SLURM_PATIENCE", PATIENCE);
        command
    }

    /// Returns a command whose commands of Slurm try for three seconds, and not for nine, to reach the controller.
    fn hasty(&self, args: &[&str]) -> Command {
        let own = self.path("slurm.conf");
        // Commands that were started before may read it now.
        if !own.exists() {
            let usual = std::env::var("SLURM_CONF").unwrap();
            let usual = fs::read_to_string(usual).unwrap();
            fs::write(&own, format!("{usual}MessageTimeout=4\n")).unwrap();
        }
        let mut command = self.command(args);
        command.env("SLURM_CONF", own);
        command
    }

    /// Returns how often somebody has asked the controller for one job.
    fn questions(&self) -> u32 {
        let shown = self.slurm("sdiag", &[]);
        let mut lines = shown.lines();
        let line = lines.find(|line| line.contains("REQUEST_JOB_INFO_SINGLE "));
        let count = line.and_then(|line| line.split("count:").nth(1)?.split_whitespace().next());
        count.map_or(0, |count| count.parse().unwrap())
    }

    /// Starts a `rally wait`, and returns when it has seen the job.
    fn start_waiting(&self, command: &mut Command) -> Running {
        let before = self.questions();
        let waiting = self.sandbox.start(command);
        // It asks again only after an answer.
        let has_seen = || (self.questions() > before + 1).then_some(());
        assert!(eventually(DEADLINE, has_seen).is_some());
        waiting
    }

    /// Returns the states of the jobs with a name, in Slurm's words.
    fn named(&self, name: &str) -> Vec<String> {
        let shown = self.slurm("squeue", &["-h", "-t", "all", "-n", name, "-o", "%T"]);
        shown.lines().map(str::to_owned).collect()
    }
}

/// A controller that is busy: it takes connections, and does not answer.
#[test]
fn a_controller_that_does_not_answer_loses_nothing() {
    let site = Site::new();
    let job = site.submit(&["-n", "1", "--", "sh", "-c", UNTIL_GO]);
    site.expect_state(&job, "RUNNING");
    let waiting = site.start_waiting(&mut site.impatient(&["wait", &job]));
    let controller = Controller::find();
    controller.signal(Signal::SIGSTOP);
    waiting.expect(Stream::Stderr, "waiting goes on");
    let run = |args: &[&str]| site.sandbox.run(&mut site.impatient(args));
    run(&["queue", "--to", "slurm"])
        .expect_code(123)
        .expect_err(&[
            "has not answered for 2 s",
            "Slurm may be busy: try again later",
        ]);
    let name = format!("stopped-{}", std::process::id());
    let args = ["submit", "--to", "slurm", "-n", "1", "--job-name", &name];
    run(&[&args[..], &["--", "true"]].concat())
        .expect_code(123)
        .expect_err(&[
            "`sbatch` has not answered for 2 s",
            "it may have been submitted",
            "`rally queue --to slurm` shows whether it was",
        ]);
    controller.signal(Signal::SIGCONT);
    fs::write(site.path("go"), "").unwrap();
    waiting.end().expect_code(4).expect_err(&["FAILED"]);
    // The help is right: the list has the job if Slurm has it.
    let named = site.named(&name);
    assert!(named.len() <= 1, "{named:?}");
    let list = ["queue", "--to", "slurm", "--over", "--message-format=json"];
    let listed = site.run(&list).expect_code(0).out();
    assert_eq!(listed.contains(&name), !named.is_empty(), "{listed}");
    super::super::expect_no_daemon();
}

/// A controller that is killed, and starts again later. A job ends meanwhile.
#[test]
fn a_controller_that_is_killed_loses_nothing() {
    let site = Site::new();
    let job = site.submit(&["-n", "1", "--", "sh", "-c", UNTIL_GO]);
    site.expect_state(&job, "RUNNING");
    let name = format!("killed-{}", std::process::id());
    let held = site.submit(&["--hold", "-n", "1", "--job-name", &name, "--", "true"]);
    // Slurm writes its jobs a moment after it has told their numbers. Both jobs are in the file that has the later one.
    let is_written = || {
        let written = fs::read(JOBS_OF_SLURM).unwrap_or_default();
        let mut places = written.windows(name.len());
        places.any(|place| place == name.as_bytes()).then_some(())
    };
    assert!(eventually(DEADLINE, is_written).is_some());
    let waiting = site.start_waiting(&mut site.hasty(&["wait", &job]));
    let mut controller = Controller::find();
    controller.kill();
    let orders = [
        &["queue", "--to", "slurm"][..],
        &["submit", "--to", "slurm", "-n", "1", "--", "true"],
        &["cancel", &held],
    ];
    let asked = orders.map(|args| site.sandbox.start(&mut site.hasty(args)));
    for order in asked {
        order.end().expect_code(123).expect_err(&[
            "Slurm does not answer",
            "Slurm says: ",
            "Unable to contact slurm controller",
            "`scontrol ping` shows whether its controller runs",
        ]);
    }
    waiting.expect(Stream::Stderr, "Unable to contact slurm controller");
    waiting.expect(Stream::Stderr, "waiting goes on");
    fs::write(site.path("go"), "").unwrap();
    let has_ended = || {
        let mut all = mischief::all_procs().into_iter();
        (!all.any(|process| process.args.contains(UNTIL_GO))).then_some(())
    };
    assert!(eventually(DEADLINE, has_ended).is_some());
    controller.start();
    waiting.end().expect_code(4).expect_err(&["FAILED"]);
    site.expect_state(&held, "PENDING (JobHeldUser)");
    site.run(&["release", &held]).expect_code(0);
    site.run(&["wait", &held]).expect_code(0);
    super::super::expect_no_daemon();
}

/// Jobs of a partition with a higher priority take the nodes of others.
#[test]
fn a_preempted_job_fails_or_waits_again() {
    let site = Site::new();
    let sleep = [
        "--host",
        "n4",
        "-n",
        "2",
        "--",
        "sh",
        "-c",
        "echo up; exec sleep 65",
    ];
    let once = site.submit(&sleep);
    let again = site.submit(&[&["--requeue"], &sleep[..]].concat());
    site.expect_state(&once, "RUNNING");
    site.expect_state(&again, "RUNNING");
    let urgent = [
        "--slurm-option",
        "partition=urgent",
        "--host",
        "n4",
        "-n",
        "4",
        "--",
        "true",
    ];
    let urgent = site.submit(&urgent);
    site.run(&["wait", &urgent]).expect_code(0);
    site.run(&["wait", &once])
        .expect_code(143)
        .expect_err(&["PREEMPTED"]);
    site.expect_state(&again, "PENDING");
    site.run(&["cancel", &again]).expect_code(0);
    super::super::expect_no_daemon();
    site.sandbox.expect_no_process();
}
