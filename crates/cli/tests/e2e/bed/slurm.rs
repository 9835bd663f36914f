//! Jobs of Slurm, with a real controller.

mod controller;

use std::{path::PathBuf, process::Command};

use crate::harness::{DEADLINE, Finished, Sandbox, eventually};

/// A directory that all nodes see, in which jobs are submitted.
struct Site {
    sandbox: Sandbox,
    directory: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self {
            sandbox: Sandbox::new(),
            directory,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.sandbox.rally(args);
        // Slurm's daemon complains about a TMPDIR that the node lacks, in the output of the job.
        command
            .current_dir(self.directory.path())
            .env_remove("TMPDIR");
        command
    }

    fn run(&self, args: &[&str]) -> Finished {
        self.sandbox.run(&mut self.command(args))
    }

    /// Submits, and returns the name of the job.
    fn submit(&self, args: &[&str]) -> String {
        let all = [&["submit", "--to", "slurm", "--parsable"], args].concat();
        let submitted = self.run(&all).expect_code(0);
        format!("slurm:{}", submitted.out().trim_end())
    }

    /// Waits until a job is in a state, in Slurm's word.
    fn expect_state(&self, job: &str, state: &str) {
        let mut shown = String::new();
        let found = eventually(DEADLINE, || {
            shown = self.run(&["queue", job]).expect_code(0).out();
            shown
                .contains(&format!("Slurm says: {state}"))
                .then_some(())
        });
        assert!(found.is_some(), "{job} is not {state}: {shown}");
    }

    /// Runs a command of Slurm, and returns what it prints.
    fn slurm(&self, program: &str, args: &[&str]) -> String {
        let mut command = self.sandbox.command(program);
        self.sandbox.run(command.args(args)).out()
    }
}

const SAY: &str = "echo $RALLY_RANK of $RALLY_SIZE on $(hostname) in $RALLY_QUEUE_JOB";

#[test]
fn a_job_runs_on_nodes_of_slurm() {
    let site = Site::new();
    let job = site.submit(&["-N", "2", "--per-node", "2", "--", "sh", "-c", SAY]);
    site.run(&["wait", &job]).expect_code(0);
    let number = job.trim_start_matches("slurm:");
    let lines = site.run(&["output", &job]).expect_code(0).out();
    let ranks: Vec<&str> = lines
        .lines()
        .filter(|line| line.contains(" of 4 on n"))
        .collect();
    assert_eq!(ranks.len(), 4, "{lines}");
    assert!(
        ranks
            .iter()
            .all(|line| line.ends_with(&format!(" in {number}"))),
        "{lines}"
    );
    let hosts: std::collections::BTreeSet<_> = ranks
        .iter()
        .filter_map(|line| line.split(' ').nth(4))
        .collect();
    assert_eq!(hosts.len(), 2, "{lines}");
    let listed = site
        .run(&["queue", "--to", "slurm", "--over"])
        .expect_code(0)
        .out();
    assert!(
        listed
            .lines()
            .any(|line| line.starts_with(&format!("{job} ")) && line.contains(" COMPLETED ")),
        "{listed}"
    );
    let failed = site.submit(&["-n", "1", "--", "sh", "-c", "exit 7"]);
    site.run(&["wait", &failed])
        .expect_code(7)
        .expect_err(&["FAILED (NonZeroExitCode)"]);
}

#[test]
fn tasks_of_an_array_have_indexes_and_files() {
    let site = Site::new();
    let script = "echo task $RALLY_ARRAY_INDEX; [ $RALLY_ARRAY_INDEX != 3 ] || exit 5";
    let job = site.submit(&[
        "-n",
        "1",
        "--array",
        "1-5/2",
        "--max-running",
        "2",
        "--output-to",
        "50%-%i",
        "--",
        "sh",
        "-c",
        script,
    ]);
    site.run(&["wait", &job])
        .expect_code(5)
        .expect_err(&["tasks:      3"]);
    assert_eq!(
        std::fs::read_to_string(site.path("50%-5")).unwrap(),
        "task 5\n"
    );
    let one = site.run(&["output", &format!("{job}[1]")]);
    one.expect_code(0).expect_out("task 1\n");
    let all = site.run(&["output", &job]).expect_code(0).out();
    assert!(
        all.contains("task 1\n") && all.contains("task 3\n") && all.contains("task 5\n"),
        "{all}"
    );
}

#[test]
fn jobs_wait_for_others_and_for_a_release() {
    let site = Site::new();
    let held = site.submit(&["--hold", "-n", "1", "--", "true"]);
    let number = held.trim_start_matches("slurm:");
    let after = site.submit(&["--after", number, "-n", "1", "--", "true"]);
    let never = site.submit(&[
        "--after",
        after.trim_start_matches("slurm:"),
        "-n",
        "1",
        "--",
        "true",
    ]);
    site.expect_state(&held, "PENDING (JobHeldUser)");
    site.expect_state(&after, "PENDING (Dependency)");
    site.run(&["release", &held]).expect_code(0);
    site.run(&["wait", &held, &after, &never]).expect_code(0);
    let failed = site.submit(&["-n", "1", "--", "false"]);
    let number = failed.trim_start_matches("slurm:");
    let ok = site.submit(&["--after", number, "-n", "1", "--", "true"]);
    let any = site.submit(&["--after", &format!("any:{number}"), "-n", "1", "--", "true"]);
    site.run(&["wait", &any]).expect_code(0);
    site.run(&["wait", &ok])
        .expect_code(143)
        .expect_err(&["CANCELLED (DependencyNeverSatisfied)"]);
}

#[test]
fn output_is_followed_and_a_job_is_canceled() {
    let site = Site::new();
    let job = site.submit(&[
        "-N",
        "2",
        "--per-node",
        "1",
        "--",
        "sh",
        "-c",
        "echo up; exec sleep 67",
    ]);
    let following = site
        .sandbox
        .start(&mut site.command(&["output", "-f", &job]));
    following.expect_times(crate::harness::Stream::Stdout, "up", 2);
    site.run(&["cancel", &job]).expect_code(0);
    site.run(&["wait", &job])
        .expect_code(143)
        .expect_err(&["has been canceled"]);
    following.end().expect_code(0);
    site.run(&["cancel", &job])
        .expect_code(120)
        .expect_err(&["is over"]);
    super::expect_no_daemon();
    site.sandbox.expect_no_process();
}

/// Slurm gives each task a number of its own when it starts, and the last one that of the array.
#[test]
fn a_task_is_canceled_by_its_own_number_and_no_other() {
    let site = Site::new();
    let array = site.submit(&[
        "-n",
        "1",
        "--array",
        "1-3",
        "--",
        "sh",
        "-c",
        "exec sleep 66",
    ]);
    let number = array.trim_start_matches("slurm:");
    let running = || {
        site.slurm(
            "squeue",
            &["-h", "-j", number, "-t", "RUNNING", "-o", "%A %K"],
        )
    };
    let mut tasks = String::new();
    let found = eventually(DEADLINE, || {
        tasks = running();
        (tasks.lines().count() == 3).then_some(())
    });
    assert!(found.is_some(), "{tasks}");
    let mut rows = tasks.lines().filter_map(|line| line.split_once(' '));
    let own = rows.find(|(own, _)| *own != number);
    let (own, index) = own.expect("only the last task has the number of the array");
    let task = format!("slurm:{own}");
    site.run(&["cancel", &task]).expect_code(0);
    site.run(&["wait", &task])
        .expect_code(143)
        .expect_err(&[&format!("job {number}[{index}] of Slurm has been canceled")]);
    assert_eq!(running().lines().count(), 2, "{}", running());
    site.run(&["cancel", &array]).expect_code(0);
    site.run(&["wait", &array]).expect_code(143);
    super::expect_no_daemon();
    site.sandbox.expect_no_process();
}

/// `rally` ends the job at its limit; Slurm, which counts minutes, would come later.
#[test]
fn a_time_limit_ends_a_job_of_slurm() {
    let site = Site::new();
    let job = site.submit(&["-n", "2", "--time", "1", "--", "sleep", "68"]);
    site.run(&["wait", &job]).expect_code(124);
    let said = site.run(&["output", &job]).expect_code(0).out();
    assert!(said.contains("time limit of 1 s"), "{said}");
    super::expect_no_daemon();
}

#[test]
fn slurm_refuses_in_its_words() {
    let site = Site::new();
    let submit = |option: &str| {
        site.run(&[
            "submit",
            "--to",
            "slurm",
            "--slurm-option",
            option,
            "-n",
            "1",
            "--",
            "true",
        ])
    };
    submit("partition=nope")
        .expect_code(120)
        .expect_err(&["Invalid partition name specified"]);
    submit("constraint=nope")
        .expect_code(120)
        .expect_err(&["Invalid feature specification"]);
    let hosts = site.run(&[
        "submit", "--to", "slurm", "--host", "nowhere", "-n", "1", "--", "true",
    ]);
    hosts
        .expect_code(120)
        .expect_err(&["Invalid node name specified"]);
    site.run(&["wait", "slurm:4000000"])
        .expect_code(120)
        .expect_err(&["Slurm does not know job 4000000"]);
}

/// An administrator takes a node down, as Slurm does itself when a node does not answer.
#[test]
fn a_lost_node_ends_a_job_of_slurm_or_requeues_it() {
    let site = Site::new();
    let sleep = [
        "--host",
        "n16",
        "-n",
        "1",
        "--",
        "sh",
        "-c",
        "echo up; exec sleep 69",
    ];
    let once = site.submit(&sleep);
    let again = site.submit(&[&["--requeue"], &sleep[..]].concat());
    site.expect_state(&once, "RUNNING");
    site.expect_state(&again, "RUNNING");
    site.slurm(
        "scontrol",
        &["update", "NodeName=n16", "State=DOWN", "Reason=test"],
    );
    let lost = site.run(&["wait", &once]);
    site.expect_state(&again, "PENDING");
    site.run(&["cancel", &again]).expect_code(0);
    // The daemon of the node may have brought it back already. Slurm ends what it lost there when the node registers.
    let is_idle = || {
        site.slurm("scontrol", &["reconfigure"]);
        site.slurm("scontrol", &["update", "NodeName=n16", "State=RESUME"]);
        let state = site.slurm("sinfo", &["-h", "-n", "n16", "-o", "%T"]);
        (state.trim() == "idle").then_some(())
    };
    assert!(eventually(DEADLINE, is_idle).is_some());
    lost.expect_code(125)
        .expect_err(&["NODE_FAIL", "one of its nodes was lost"]);
    super::expect_no_daemon();
}
