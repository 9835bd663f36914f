//! The log: `RALLY_LOG` and `RALLY_LOG_FILE`.

use std::process::Command;

use crate::harness::Sandbox;

/// A job of two ranks on two nodes.
fn job(sandbox: &Sandbox, filter: &str, script: &str) -> Command {
    let nodes = ["--bootstrap", "fork", "--nodes", "2", "--map-by", "node"];
    let mut command = sandbox.rally(&["run", "-q", "-n", "2"]);
    command.args(nodes).args(["--", "sh", "-c", script]);
    command.env("RALLY_LOG", filter);
    command
}

/// Returns the lines of a log that contain all of these words.
fn with<'a>(log: &'a str, words: &[&str]) -> Vec<&'a str> {
    let has = |line: &&str| words.iter().all(|word| line.contains(word));
    log.lines().filter(has).collect()
}

#[test]
fn the_log_of_all_nodes_is_on_stderr_and_not_in_the_output() {
    let sandbox = Sandbox::new();
    let run = sandbox.run(&mut job(&sandbox, "debug", "echo here"));
    let run = run.expect_code(0);
    assert_eq!(run.out(), "here\nhere\n");
    let log = &run.err();
    assert_eq!(
        with(log, &[" front: ", "the job has ended"]).len(),
        1,
        "{log}"
    );
    assert_eq!(with(log, &[" controller: ", "<- Hello"]).len(), 2, "{log}");
    assert_eq!(with(log, &[" tree: ", "joined node=1"]).len(), 1, "{log}");
    assert_eq!(
        with(log, &[" daemon: ", "<- Exited", "exited with code 0"]).len(),
        2,
        "{log}"
    );
    // The second node has a name of its own, and so have the lines of its daemon.
    let node = format!("{}-n1[", os::host_name());
    assert_eq!(with(log, &[&node, "<- Exited proc=1.1"]).len(), 1, "{log}");
    assert!(with(log, &["TRACE"]).is_empty(), "{log}");
    assert!(!log.contains("@rally"), "{log}");
}

#[test]
fn parts_have_levels_of_their_own() {
    let sandbox = Sandbox::new();
    let run = sandbox.run(&mut job(&sandbox, "off,daemon=trace", "echo here"));
    let log = run.expect_code(0).err();
    assert!(
        !with(
            &log,
            &[" TRACE ", "<- Output proc=1.1 stream=Stdout bytes=5"]
        )
        .is_empty(),
        "{log}"
    );
    assert!(log.lines().all(|line| line.contains(" daemon: ")), "{log}");
}

#[test]
fn a_file_gets_the_log_of_all_nodes() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("log", "before\n");
    let mut command = job(&sandbox, "", "echo here >&2");
    let run = sandbox.run(command.env("RALLY_LOG_FILE", &file));
    assert_eq!(run.expect_code(0).err(), "here\nhere\n");
    let log = sandbox.read("log");
    assert!(log.starts_with("before\n"), "{log}");
    // Without a filter, the level is `info`.
    assert_eq!(
        with(&log, &["INFO", "-n1[", " daemon: started"]).len(),
        1,
        "{log}"
    );
    assert!(with(&log, &["DEBUG"]).is_empty(), "{log}");
}

#[test]
fn what_cannot_be_logged_is_an_error_before_anything_starts() {
    let sandbox = Sandbox::new();
    let run = sandbox.run(&mut job(&sandbox, "debug,deamon=trace", "echo here"));
    let run = run.expect_code(120).expect_err(&[
        "error: `deamon` in RALLY_LOG is no part of `rally` that logs",
        "RALLY_LOG: debug,deamon=trace",
        "help:      did you mean `daemon`?",
    ]);
    assert_eq!(run.out(), "");
    let mut command = job(&sandbox, "debug", "echo here");
    let run = sandbox.run(command.env("RALLY_LOG_FILE", "nowhere/log"));
    run.expect_code(121)
        .expect_err(&["error: cannot write to `nowhere/log`: No such file or directory"]);
}

#[test]
fn the_log_holds_no_variables_no_input_and_no_output() {
    let sandbox = Sandbox::new();
    let input = sandbox.file("input", "of-the-input\n");
    let mut command = job(
        &sandbox,
        "trace",
        "cat; echo of-the-$NAME; echo of-the-$NAME >&2",
    );
    command
        .env("NAME", "variable")
        .env("SECRET", "of-the-variables");
    // What precedes depends on the signals that are ignored here.
    let words = command.get_args().skip_while(|word| *word != "run");
    let mut words: Vec<_> = words.map(ToOwned::to_owned).collect();
    words.insert(1, format!("--input={input}").into());
    let mut again = sandbox.rally(&[]);
    for (name, value) in command.get_envs() {
        again.env(name, value.unwrap());
    }
    let file = sandbox.path("log");
    let run = sandbox.run(again.args(words).env("RALLY_LOG_FILE", &file));
    assert!(run.expect_code(0).out().contains("of-the-input"));
    let log = sandbox.read("log");
    assert!(with(&log, &["<- Output"]).len() > 3, "{log}");
    assert_eq!(with(&log, &["of-the-"]), Vec::<&str>::new());
}

/// Nobody reads the log, and the pipe is full: lines are dropped, and the job does not wait.
#[test]
fn a_job_does_not_wait_for_the_reader_of_its_log() {
    let sandbox = Sandbox::new();
    let script = "mkfifo log; exec 4<>log; \
         \"$RALLY\" run -q -n 2 --bootstrap fork --nodes 2 --map-by node \
         -- sh -c 'i=0; while [ $i -lt 1000 ]; do echo line; i=$((i+1)); done' 2>log; \
         echo code $?; head -n 1 <&4";
    let run = sandbox.run(sandbox.shell(script).env("RALLY_LOG", "trace"));
    let run = run.expect_code(0);
    assert_eq!(with(&run.out(), &["line"]).len(), 2000);
    assert_eq!(with(&run.out(), &["code 0"]).len(), 1);
    // The first line in the pipe is of any process.
    let out = run.out();
    let parts = [
        "front",
        "guardian",
        "controller",
        "daemon",
        "tree",
        "bootstrap",
    ];
    let is_of = |part: &&str| out.contains(&format!(" {part}: "));
    assert!(parts.iter().any(is_of), "{out}");
}

#[test]
fn a_lost_node_is_in_the_log() {
    let sandbox = Sandbox::new();
    let script = "[ $RALLY_NODE = 0 ] || kill -9 $(ps -o ppid= -p $$); sleep 60";
    let run = sandbox.run(&mut job(&sandbox, "warn", script));
    let run = run.expect_code(125);
    assert_eq!(
        with(&run.err(), &[" WARN ", " tree: lost: ", "node=1"]).len(),
        1,
        "{run:?}"
    );
}
