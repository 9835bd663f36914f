//! Machines: `rally up`, its queue, and what survives.

mod allocations;
mod control;
mod disk;
mod hangs;
mod kills;
mod leaks;
mod nodes;
mod resources;

use std::{collections::BTreeMap, fs};

use mischief::Proc;
use nix::{
    sys::signal::{self, Signal},
    unistd::{self, Pid},
};

use crate::harness::{DEADLINE, Finished, Sandbox, Stream, Terminal, dbgr, eventually, rally};

/// A machine that ends with the test.
pub(crate) struct Machine<'a>(&'a Sandbox);

impl<'a> Machine<'a> {
    pub(crate) fn up(sandbox: &'a Sandbox, args: &[&str]) -> Self {
        let all = [&["up"], args].concat();
        sandbox.run_rally(&all).expect_code(0);
        Self(sandbox)
    }

    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        self.0.run_rally(args)
    }

    /// Returns what a command prints that succeeds.
    pub(crate) fn out(&self, args: &[&str]) -> String {
        self.run(args).expect_code(0).out().trim_end().to_owned()
    }

    /// Submits, and returns the number of the job.
    pub(crate) fn submit(&self, args: &[&str]) -> String {
        let all = [&["submit", "--parsable"], args].concat();
        self.out(&all)
    }

    /// Returns the states of all jobs, by number.
    pub(crate) fn states(&self) -> BTreeMap<String, String> {
        let listed = self.out(&["queue", "--over", "--message-format=json"]);
        let rows = listed.lines().map(|line| {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let state = row["state"].as_str().unwrap().to_owned();
            (row["job"].to_string(), state)
        });
        rows.collect()
    }

    /// Waits until a job is in a state.
    pub(crate) fn expect_state(&self, job: &str, state: &str) {
        let is_there = || (self.states().get(job).map(String::as_str) == Some(state)).then_some(());
        let found = eventually(DEADLINE, is_there);
        assert!(
            found.is_some(),
            "job {job} is not {state}: {:?}",
            self.states()
        );
    }

    pub(crate) fn down(self) {
        self.run(&["down", "--now"]).expect_code(0);
        self.0.expect_no_process();
    }

    /// Returns the pid of the controller.
    fn controller(&self) -> i32 {
        let ours = self.0.alive().into_iter();
        let ours: Vec<_> = ours
            .filter(|process| process.runs(&rally()) && process.args.contains(" up"))
            .collect();
        let parent = |pid: i32| ours.iter().find(|process| process.pid == pid);
        // The guardian has no parent here. A rank that is just being forked is a child of the controller.
        let is_guardian = |process: &Proc| parent(process.ppid).is_none();
        let controller = ours
            .iter()
            .find(|process| parent(process.ppid).is_some_and(is_guardian))
            .expect("the guardian has a child");
        controller.pid
    }

    /// Kills the process of the controller.
    pub(crate) fn kill_controller(self) {
        signal::kill(Pid::from_raw(self.controller()), Signal::SIGKILL).unwrap();
    }

    /// Kills the process of the controller, and waits until all of the machine is gone.
    fn kill(self) -> &'a Sandbox {
        let sandbox = self.0;
        self.kill_controller();
        sandbox.expect_no_process();
        sandbox
    }
}

#[test]
fn a_machine_runs_jobs_until_it_is_told_to_end() {
    let sandbox = Sandbox::new();
    let up = sandbox
        .run_rally(&["up", "--host", "localhost:3"])
        .expect_code(0);
    assert!(
        up.err().contains("machine `main` is up: 1 node, 3 slots"),
        "{}",
        up.err()
    );
    let machine = Machine(&sandbox);
    let run = machine.run(&[
        "run",
        "--on-machine",
        "main",
        "-n",
        "2",
        "sh",
        "-c",
        "echo $RALLY_RANK",
    ]);
    let run = run
        .expect_code(0)
        .expect_err(&["the job runs on machine `main`"]);
    assert_eq!(run.sorted(), "0\n1");
    let failed = machine.run(&[
        "run",
        "-q",
        "--on-machine",
        "main",
        "-n",
        "1",
        "sh",
        "-c",
        "exit 7",
    ]);
    assert_eq!(failed.code(), 7);
    let job = machine.submit(&[
        "-n",
        "2",
        "sh",
        "-c",
        "echo $RALLY_QUEUE_JOB; echo wrong >&2",
    ]);
    assert_eq!(job, "3");
    machine.run(&["wait", &job]).expect_code(0);
    let shown = machine.run(&["output", &job]).expect_code(0);
    assert_eq!(shown.sorted(), "3\n3\nwrong\nwrong");
    assert_eq!(sandbox.read("rally-3.out").lines().count(), 4);
    let status = machine.out(&["status"]);
    assert!(
        status.contains("3 of 3 free") && status.contains("0 running, 0 waiting"),
        "{status}"
    );
    machine.down();
    let gone = sandbox.run_rally(&["status"]).expect_code(120);
    gone.expect_err(&["no machine runs on this host", "`rally up` starts one"]);
}

#[test]
fn the_queue_explains_holds_and_cancels() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let first = machine.submit(&["-n", "2", "sleep", "1000"]);
    machine.expect_state(&first, "running");
    let second = machine.submit(&["-n", "1", "true"]);
    let third = machine.submit(&["-n", "1", "--hold", "true"]);
    let explained = machine.out(&["explain", &second]);
    assert!(explained.contains("waits for the end of 1"), "{explained}");
    assert!(
        explained.contains("after job 1, which has no time limit"),
        "{explained}"
    );
    let explained = machine.out(&["explain", &third]);
    assert!(explained.contains("held: it is held"), "{explained}");
    machine.run(&["hold", &second]).expect_code(0);
    machine.run(&["cancel", &first]).expect_code(0);
    machine.expect_state(&first, "canceled");
    assert_eq!(machine.states()[&second], "held");
    let nothing = machine.run(&["output", &second]).expect_code(121);
    nothing.expect_err(&["it waits, because it is held"]);
    machine.run(&["release", &second]).expect_code(0);
    machine.run(&["wait", &second]).expect_code(0);
    machine.run(&["wait", &first]).expect_code(143);
    assert_eq!(machine.states()[&third], "held");
    let over = machine.run(&["hold", &first]).expect_code(120);
    over.expect_err(&["job 1 is over"]);
    let unknown = machine.run(&["explain", "99"]).expect_code(120);
    unknown.expect_err(&["the machine knows no job 99"]);
    let large = machine.run(&["submit", "-n", "3", "true"]).expect_code(122);
    large.expect_err(&["room for 2 of the 3 units", "see with `rally nodes`"]);
    machine.down();
}

#[test]
fn arrays_and_dependencies_run_in_order() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let script = "echo $RALLY_ARRAY_INDEX; test $RALLY_ARRAY_INDEX != 3";
    let array = machine.submit(&["--hold", "--array", "1-4", "sh", "-c", script]);
    let after = format!("any:{array}");
    let next = machine.submit(&[
        "-n",
        "1",
        "--after",
        &after,
        "sh",
        "-c",
        "cat rally-1-*.out",
    ]);
    let never = machine.submit(&["-n", "1", "--after", &array, "true"]);
    machine.run(&["release", &array]).expect_code(0);
    let failed = machine.run(&["wait", &array]).expect_code(1);
    failed.expect_err(&[
        "job 1 has failed",
        "tasks:  3",
        "task 3: rank 0 exited with code 1",
    ]);
    machine.run(&["wait", &next]).expect_code(0);
    assert_eq!(machine.run(&["output", &next]).sorted(), "1\n2\n3\n4");
    assert_eq!(machine.out(&["output", "1[2]"]), "2");
    assert_eq!(machine.states()[&never], "canceled");
    let details = machine.out(&["queue", &never]);
    assert!(
        details.contains("job 1, on which it depends, has not succeeded"),
        "{details}"
    );
    machine.down();
}

/// No task is forgotten, and none runs twice, although the controller is killed while the array runs.
#[test]
fn a_killed_machine_goes_on_with_its_queue() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let script =
        "echo start $RALLY_ARRAY_INDEX >> log; sleep 0.02; echo end $RALLY_ARRAY_INDEX >> log";
    let array = machine.submit(&["--array", "1-60", "-n", "1", "sh", "-c", script]);
    let held = machine.submit(&["-n", "1", "--hold", "true"]);
    let log = || fs::read_to_string(sandbox.path("log")).unwrap_or_default();
    let begun = eventually(DEADLINE, || (log().lines().count() > 20).then_some(()));
    assert!(begun.is_some(), "the array does not run");
    machine.kill();

    let again = sandbox
        .run_rally(&["up", "--host", "localhost:2"])
        .expect_code(0);
    again.expect_err(&["machine `main` had ended while jobs ran", "lost: 1"]);
    let machine = Machine(&sandbox);
    assert_eq!(machine.states()[&held], "held");
    machine.run(&["wait", &array]).expect_code(125);
    let details = machine.out(&["queue", &array, "--message-format=json"]);
    let row: serde_json::Value = serde_json::from_str(&details).unwrap();
    let failed = row["tasks"]["failed"].as_u64().unwrap();
    let succeeded = row["tasks"]["succeeded"].as_u64().unwrap();
    assert_eq!(failed + succeeded, 60, "{details}");
    assert!((1..=2).contains(&failed), "{details}");
    let log = log();
    for index in 1..=60 {
        let start = format!("start {index}");
        let starts = log.lines().filter(|line| *line == start).count();
        assert!(starts <= 1, "task {index} has run {starts} times");
        let end = format!("end {index}");
        let ends = log.lines().filter(|line| *line == end).count();
        assert!(ends == 1 || failed > 0, "task {index} has not run");
    }
    let ends = log.lines().filter(|line| line.starts_with("end")).count();
    assert!(ends as u64 >= succeeded, "{ends} of {succeeded}");
    machine.down();
}

#[test]
fn a_requeued_job_runs_again_after_a_kill() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &[]);
    let script = "echo run >> log; test $(wc -l < log) = 2 || exec sleep 1000";
    let job = machine.submit(&["-n", "1", "--requeue", "sh", "-c", script]);
    let begun = eventually(DEADLINE, || sandbox.path("log").exists().then_some(()));
    assert!(begun.is_some(), "the job does not run");
    machine.kill();
    let again = sandbox.run_rally(&["up"]).expect_code(0);
    again.expect_err(&["wait again:"]);
    let machine = Machine(&sandbox);
    machine.run(&["wait", &job]).expect_code(0);
    assert_eq!(sandbox.read("log"), "run\nrun\n");
    machine.down();
}

#[test]
fn a_front_waits_in_the_queue_and_may_give_up() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:1"]);
    let first = machine.submit(&["-n", "1", "sleep", "1000"]);
    machine.expect_state(&first, "running");
    let args = ["run", "--on-machine", "main", "-n", "1", "echo", "late"];
    let impatient = sandbox.start(&mut sandbox.rally(&args));
    impatient.expect(Stream::Stderr, "the job waits in the queue, as job 2");
    let patient = sandbox.start(&mut sandbox.rally(&args));
    patient.expect(Stream::Stderr, "the job waits in the queue, as job 3");
    impatient.signal(Signal::SIGINT);
    impatient.end().expect_code(130);
    machine.expect_state("2", "canceled");
    machine.run(&["cancel", &first]).expect_code(0);
    patient.end().expect_code(0).expect_out("late\n");
    // Whoever is killed leaves the queue too.
    let first = machine.submit(&["-n", "1", "sleep", "1000"]);
    machine.expect_state(&first, "running");
    let killed = sandbox.start(&mut sandbox.rally(&args));
    killed.expect(Stream::Stderr, "the job waits in the queue, as job 5");
    killed.signal(Signal::SIGKILL);
    machine.expect_state("5", "canceled");
    machine.down();
}

#[test]
fn a_machine_ends_only_as_it_is_told() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:1"]);
    let first = machine.submit(&[
        "-n",
        "1",
        "sh",
        "-c",
        "until test -e go; do sleep 0.01; done",
    ]);
    let waits = machine.submit(&["-n", "1", "true"]);
    machine.expect_state(&first, "running");
    let busy = machine.run(&["down"]).expect_code(123);
    busy.expect_err(&["1 task runs on the machine", "the machine goes on"]);
    let down = sandbox.start(&mut sandbox.rally(&["down", "--wait"]));
    let told = eventually(DEADLINE, || {
        machine
            .out(&["status"])
            .contains("about to end")
            .then_some(())
    });
    assert!(told.is_some(), "the machine is not told");
    let refused = machine.run(&["submit", "-n", "1", "true"]).expect_code(123);
    refused.expect_err(&["about to end"]);
    sandbox.file("go", "");
    down.end().expect_code(0);
    sandbox.expect_no_process();
    // What has waited is still there.
    let machine = Machine::up(&sandbox, &["--host", "localhost:1"]);
    machine.run(&["wait", &waits]).expect_code(0);
    machine.down();
}

/// Submits a script that fills the machine `one` and runs a job itself.
fn machine_script(machine: &Machine<'_>) -> String {
    let nested = "$RALLY run -n 1 true && exec env RALLY_MACHINE=one $RALLY run -n 1 true";
    machine.submit(&["--on-machine", "one", "--", "sh", "-c", nested])
}

#[test]
fn a_run_finds_the_right_machine_or_asks() {
    let sandbox = Sandbox::new();
    let one = Machine::up(&sandbox, &["--name", "one"]);
    let alone = one.run(&["run", "-n", "1", "true"]).expect_code(0);
    assert_eq!(alone.err(), "", "a machine is used without being told");
    let again = one.run(&["up", "--name", "one"]);
    assert_ne!(again.code(), 0);
    again.expect_err(&["the machine `one` runs already"]);
    let none = one.run(&["up", "--name", "none"]).expect_code(120);
    none.expect_err(&["a machine cannot be called `none`"]);
    let two = Machine::up(&sandbox, &["--name", "two"]);
    let asked = two.run(&["queue"]).expect_code(120);
    asked.expect_err(&["several machines run on this host", "running: `one`, `two`"]);
    let named = two
        .run(&["submit", "--on-machine", "two", "-n", "1", "true"])
        .expect_code(0);
    assert_eq!(named.out(), "job 1 on machine two\n");
    let held = ["submit", "--on-machine", "two", "--hold", "-n", "1", "true"];
    two.run(&held).expect_code(0);
    let asked = two.run(&["release", "2"]).expect_code(120);
    asked.expect_err(&["several machines run on this host"]);
    let other = two.run(&["release", "--on-machine", "one", "2"]);
    other
        .expect_code(120)
        .expect_err(&["the machine knows no job 2"]);
    two.run(&["release", "--on-machine", "two", "2"])
        .expect_code(0);
    two.run(&["wait", "--on-machine", "two", "2"])
        .expect_code(0);
    for args in [&["queue"][..], &["submit", "-n", "1", "true"]] {
        let mut command = sandbox.rally(args);
        let none = sandbox.run(command.env("RALLY_MACHINE", "none"));
        none.expect_code(120)
            .expect_err(&["`RALLY_MACHINE` says `none`, which is no machine"]);
    }
    let none = two.run(&["status", "--on-machine", "none"]);
    none.expect_code(120)
        .expect_err(&["`--on-machine` says `none`, which is no machine"]);
    let unknown = two
        .run(&["queue", "--on-machine", "three"])
        .expect_code(120);
    unknown.expect_err(&[
        "machine `three` does not run on this host",
        "running: `one`, `two`",
    ]);
    let down = two.run(&["down", "--on-machine", "one"]).expect_code(0);
    drop(down);
    one.run(&["up", "--name", "one", "--default"])
        .expect_code(0);
    let told = two.run(&["run", "-n", "1", "true"]).expect_code(0);
    told.expect_err(&["the job runs on machine `one`"]);
    let off = two
        .run(&["run", "--on-machine", "none", "-n", "1", "true"])
        .expect_code(0);
    assert_eq!(off.err(), "");
    let mut by_variable = sandbox.rally(&["run", "-n", "1", "true"]);
    let by_variable = sandbox.run(by_variable.env("RALLY_MACHINE", "two"));
    by_variable
        .expect_code(0)
        .expect_err(&["the job runs on machine `two`"]);
    // A script on the only slot does not wait for itself.
    let script = machine_script(&two);
    two.run(&["wait", "--on-machine", "one", &script])
        .expect_code(0);
    // A machine in an allocation is not meant outside of it.
    let mut inside = sandbox.rally(&["up", "--name", "inside", "--host", "localhost"]);
    sandbox
        .run(
            inside
                .env("SLURM_JOB_ID", "17")
                .env("RALLY_BOOTSTRAP", "fork"),
        )
        .expect_code(0);
    for name in ["one", "two"] {
        two.run(&["down", "--on-machine", name]).expect_code(0);
    }
    let outside = two.run(&["queue"]).expect_code(120);
    outside.expect_err(&[
        "no machine runs on this host",
        "elsewhere: `inside` (Slurm job 17)",
    ]);
    let mut queue = sandbox.rally(&["down"]);
    sandbox.run(queue.env("SLURM_JOB_ID", "17")).expect_code(0);
    sandbox.expect_no_process();
}

#[test]
fn a_machine_over_nodes_does_without_a_lost_one() {
    let sandbox = Sandbox::new();
    let nodes = ["--bootstrap", "fork", "--nodes", "3"];
    let machine = Machine::up(&sandbox, &nodes);
    let script = "echo $RALLY_NODE >> where; exec sleep 1000";
    let job = machine.submit(&[
        "--map-by",
        "ppr:1:node",
        "-n",
        "3",
        "--requeue",
        "sh",
        "-c",
        script,
    ]);
    machine.expect_state(&job, "running");
    let daemons = || {
        let mut found = sandbox.alive();
        found.retain(|process| process.args.contains("__daemon"));
        found
    };
    let all = daemons();
    let child = all
        .iter()
        .find(|process| all.iter().any(|other| other.pid == process.ppid));
    let daemon = child.expect("a guardian has a child").pid;
    signal::kill(Pid::from_raw(daemon), Signal::SIGKILL).unwrap();
    machine.expect_state(&job, "waiting");
    let listed = machine.out(&["nodes"]);
    assert_eq!(listed.matches(" bad ").count(), 1, "{listed}");
    let explained = machine.out(&["explain", &job]);
    assert!(explained.contains("where no job starts"), "{explained}");
    let other = machine.submit(&["--map-by", "ppr:1:node", "-n", "2", "true"]);
    machine.run(&["wait", &other]).expect_code(0);
    machine.down();
}

/// Held ranks are released, and stacks are shown, as without a machine.
#[test]
fn tools_find_the_jobs_of_a_machine() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let args = [
        "run",
        "--on-machine",
        "main",
        "--stop-on-exec",
        "-n",
        "2",
        "sh",
        "-c",
        "echo free; exec sleep 1000",
    ];
    let front = sandbox.start(&mut sandbox.rally(&args));
    front.expect(Stream::Stderr, "held");
    let pid = front.pid.to_string();
    let released = machine
        .run(&["release", &pid, "--ranks", "1"])
        .expect_code(0);
    assert_eq!(
        released.out(),
        format!("job {pid}: released rank 1, still held rank 0\n")
    );
    machine.run(&["release"]).expect_code(0);
    front.expect_times(Stream::Stdout, "free\n", 2);
    let stacks = sandbox.run(&mut sandbox.face(&dbgr(), &["stacks", &pid]));
    let stacks = stacks.expect_code(0).out();
    assert!(stacks.contains("2 ranks"), "{stacks}");
    front.signal(Signal::SIGTERM);
    front.end().expect_code(143);
    machine.down();
}

#[test]
fn a_file_of_jobs_is_submitted_in_its_order() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let file = sandbox.file(
        "jobs",
        "echo one 'two three'\nsh -c 'exit 4'\n# no job\necho last\n",
    );
    let all = machine.submit(&["-n", "1", "--from", &file]);
    assert_eq!(all, "1\n2\n3");
    machine.run(&["wait", "1", "2", "3"]).expect_code(4);
    assert_eq!(machine.out(&["output", "1"]), "one two three");
    assert_eq!(machine.out(&["output", "3"]), "last");
    // A name is one, also if it is that of a program.
    let named = ["-n", "1", "--hold", "--job-name", "true", "--from", &file];
    assert_eq!(machine.submit(&named), "4\n5\n6");
    for (job, name) in [("1", "echo"), ("4", "true")] {
        let details = machine.out(&["queue", job, "--message-format=json"]);
        let name = format!("\"name\":\"{name}\"");
        assert!(details.contains(&name), "{details}");
    }
    let preload = ["submit", "-n", "1", "--preload-binary", "--from", &file];
    machine
        .run(&preload)
        .expect_code(120)
        .expect_err(&["each line has a program of its own"]);
    let large = machine
        .run(&["submit", "-n", "3", "--from", &file])
        .expect_code(122);
    assert_eq!(
        large.err().matches("room for 2 of the 3 units").count(),
        3,
        "{}",
        large.err()
    );
    let both = machine
        .run(&["submit", "--from", &file, "true"])
        .expect_code(120);
    both.expect_err(&["cannot be used together"]);
    let none = machine.run(&["submit", "--from", "none"]).expect_code(121);
    none.expect_err(&["cannot read the file of jobs `none`"]);
    machine.down();
}

#[test]
fn output_that_cannot_be_written_fails_the_job() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let nowhere = machine.submit(&[
        "-n",
        "1",
        "--output-to",
        "none/out",
        "sh",
        "-c",
        "sleep 1000",
    ]);
    let failed = machine.run(&["wait", &nowhere]).expect_code(121);
    failed.expect_err(&[
        "its output cannot be written to",
        "none/out",
        "No such file or directory",
    ]);
    let full = machine.submit(&["-n", "1", "--output-to", "/dev/full", "echo", "lost"]);
    let failed = machine.run(&["wait", &full]).expect_code(121);
    failed.expect_err(&["`/dev/full`: No space left on device"]);
    // What one job has written is not seen by the next one, and a silent job has an empty file.
    let first = machine.submit(&["-n", "1", "--output-to", "out", "echo", "first"]);
    machine.run(&["wait", &first]).expect_code(0);
    let silent = machine.submit(&["-n", "1", "--output-to", "out", "true"]);
    machine.run(&["wait", &silent]).expect_code(0);
    machine
        .run(&["output", &silent])
        .expect_code(0)
        .expect_out("");
    // All that a job has printed is in its file when the job is over.
    let much = machine.submit(&["-n", "2", "--output-to", "much", "sh", "-c", "seq 100000"]);
    machine.run(&["wait", &much]).expect_code(0);
    assert_eq!(sandbox.read("much").lines().count(), 200_000);
    machine.down();
}

#[test]
fn what_means_nothing_on_a_machine_is_refused() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    for option in ["--stop-on-exec", "--label", "--stdin=all", "--pty=0"] {
        let refused = machine
            .run(&["submit", "-n", "1", option, "true"])
            .expect_code(120);
        refused.expect_err(&["is not supported: nobody waits for the job"]);
    }
    let refused = machine
        .run(&["submit", "--bootstrap", "fork", "true"])
        .expect_code(120);
    refused.expect_err(&["the job runs on the nodes of a machine"]);
    let dry = machine
        .run(&["submit", "-n", "2", "--dry-run", "true"])
        .expect_code(0);
    assert!(dry.out().contains("2 ranks on 1 node"), "{}", dry.out());
    assert!(machine.states().is_empty());
    let relative = sandbox.run(sandbox.rally(&["queue"]).env("RALLY_STATE_DIR", "here"));
    relative
        .expect_code(123)
        .expect_err(&["RALLY_STATE_DIR is not an absolute path: `here`"]);
    machine.down();
}

#[test]
fn a_machine_ends_by_a_signal_and_keeps_nothing_of_its_shell() {
    let sandbox = Sandbox::new();
    let up = sandbox
        .run(&mut sandbox.shell("exec 7>log; $RALLY up 2>&1 | cat; ls -l /proc/self/fd >&2"));
    assert!(up.out().contains("machine `main` is up"), "{}", up.out());
    let machine = Machine(&sandbox);
    let job = machine.submit(&["-n", "1", "sleep", "1000"]);
    machine.expect_state(&job, "running");
    let ours = sandbox.alive().into_iter();
    let ours: Vec<_> = ours.filter(|process| process.runs(&rally())).collect();
    for process in &ours {
        let open = fs::read_dir(format!("/proc/{}/fd", process.pid))
            .unwrap()
            .flatten();
        let targets = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        let kept: Vec<_> = targets
            .filter(|target| target.ends_with("work/log"))
            .collect();
        assert!(kept.is_empty(), "{process}: {kept:?}");
        let directory = fs::read_link(format!("/proc/{}/cwd", process.pid)).unwrap();
        assert_eq!(directory.to_str(), Some("/"), "{process}");
    }
    for process in &ours {
        signal::kill(Pid::from_raw(process.pid), Signal::SIGTERM).unwrap();
    }
    sandbox.expect_no_process();
}

/// At a logout, the processes of the session get SIGHUP, and the terminal is hung up.
#[test]
fn a_machine_survives_the_end_of_its_terminal() {
    let sandbox = Sandbox::new();
    let script = r#""$RALLY" up --host localhost:1
        "$RALLY" submit -n 1 sh -c 'until test -e go; do sleep 0.01; done; echo on'
        "$RALLY" submit -n 1 echo next
        echo ready; sleep 1000"#;
    let (terminal, run) = Terminal::run(&sandbox, script);
    run.expect(Stream::Stdout, "ready");
    let machine = Machine(&sandbox);
    machine.expect_state("1", "running");
    let session = Some(Pid::from_raw(run.pid));
    let (inside, outside): (Vec<_>, Vec<_>) = sandbox
        .alive()
        .into_iter()
        .partition(|process| unistd::getsid(Some(Pid::from_raw(process.pid))).ok() == session);
    for process in &inside {
        signal::kill(Pid::from_raw(process.pid), Signal::SIGHUP).unwrap();
    }
    // The shell has ended, and nothing holds its terminal.
    run.end().expect_code(129);
    drop(terminal);
    for process in &outside {
        let pid = process.pid;
        let is_alive = signal::kill(Pid::from_raw(pid), None).is_ok();
        assert!(is_alive || !process.runs(&rally()), "{process} has ended");
    }
    assert_eq!(machine.states()["1"], "running");
    let later = machine.submit(&["-n", "1", "echo", "later"]);
    sandbox.file("go", "");
    machine.run(&["wait", "1", "2", &later]).expect_code(0);
    for (job, printed) in [("1", "on"), ("2", "next"), (&later, "later")] {
        assert_eq!(machine.out(&["output", job]), printed);
    }
    machine.down();
}

#[test]
fn a_directory_that_lets_others_in_is_not_used() {
    let sandbox = Sandbox::new();
    let host = sandbox.run(sandbox.command("uname").arg("-n")).out();
    let parent = sandbox.path(&format!(".local/state/rally/{}", host.trim()));
    fs::create_dir_all(&parent).unwrap();
    fs::set_permissions(&parent, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let up = sandbox.run_rally(&["up"]).expect_code(123);
    up.expect_err(&["it must be yours alone (mode 0700)"]);
    fs::create_dir_all(parent.join("main")).unwrap();
    fs::write(parent.join("main/lock"), "").unwrap();
    let asked = sandbox
        .run_rally(&["queue", "--on-machine", "main"])
        .expect_code(120);
    asked.expect_err(&["does not run on this host"]);
}

/// One Ctrl-C is enough while the nodes are being started, and nothing is left.
#[test]
fn starting_a_machine_can_be_interrupted() {
    let sandbox = Sandbox::new();
    let args = [
        "up",
        "--host",
        "far",
        "--bootstrap-command",
        "sh -c 'exec sleep 1000' {host} {daemon}",
    ];
    let up = sandbox.start(&mut sandbox.rally(&args));
    let begun = eventually(DEADLINE, || {
        (!sandbox.find("sleep 1000").is_empty()).then_some(())
    });
    assert!(begun.is_some(), "nothing is started");
    up.signal(Signal::SIGINT);
    up.end().expect_code(130);
    sandbox.expect_no_process();
}
