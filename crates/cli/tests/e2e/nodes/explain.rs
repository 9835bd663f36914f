//! The map of a job over nodes: `--explain` asks the nodes, `--dry-run` starts nothing.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use super::{over, processes};
use crate::{binding::cpus, harness::Sandbox};

/// Starts daemons on this node. That of the node `small` may use one CPU only.
const START: &str = r#"#!/bin/sh
host=$1; shift
[ $host = small ] && exec taskset -c CPU "$@"
exec "$@"
"#;

/// Returns a sandbox in which jobs may use the nodes `big` and `small`.
fn nodes() -> Sandbox {
    let sandbox = Sandbox::new();
    let cpu = cpus().0.first().unwrap().to_string();
    let file = sandbox.file("start", START.replace("CPU", &cpu));
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    sandbox
}

fn on(sandbox: &Sandbox, hosts: &str, options: &[&str]) -> Command {
    let start = sandbox.path("start").display().to_string();
    let template = format!("{start} {{host}} {{daemon}}");
    let mut command = sandbox.rally(&["run", "--bootstrap-command", &template]);
    command.args(["--host", hosts, "--map-by", "slot"]);
    command.args(options);
    // No rank may run.
    command.args(["--", "touch", "started"]);
    command
}

fn expect_nothing_started(sandbox: &Sandbox) {
    assert!(!sandbox.path("started").exists());
    assert!(processes(sandbox).is_empty());
    sandbox.expect_clean();
}

/// Returns the number of CPUs of each node, as the map shows it.
fn sizes(map: &str) -> Vec<String> {
    let lines = map.lines().filter(|line| line.contains("PU"));
    let sizes = lines.filter_map(|line| {
        let (node, rest) = line.split_once(": ranks ")?;
        let (_, pus) = rest.strip_suffix(")")?.rsplit_once(", ")?;
        Some(format!("{node} {pus}"))
    });
    sizes.collect()
}

fn size_of_this_node() -> String {
    match cpus().0.len() {
        1 => "1 PU".to_owned(),
        count => format!("{count} PUs"),
    }
}

#[test]
fn an_explanation_has_the_processors_of_the_nodes() {
    let sandbox = nodes();
    let run = sandbox.run(&mut on(&sandbox, "big,small", &["--explain"]));
    let run = run.expect_code(0);
    let here = size_of_this_node();
    assert_eq!(
        sizes(&run.out()),
        [format!("big {here}"), "small 1 PU".to_owned()]
    );
    assert!(run.out().contains("map as asked"), "{run:?}");
    assert_eq!(run.err(), "");
    expect_nothing_started(&sandbox);
}

#[test]
fn an_explanation_needs_no_file_for_the_nodes_and_no_terminal() {
    let sandbox = nodes();
    sandbox.file("in", "data");
    let options = [
        "--explain",
        "--preload-files",
        "in",
        "--pty",
        "--report-pid",
        "-",
    ];
    let run = sandbox.run(&mut on(&sandbox, "big,small", &options));
    let run = run.expect_code(0);
    assert_eq!(sizes(&run.out()).len(), 2);
    assert_eq!(run.err(), "");
    expect_nothing_started(&sandbox);
}

#[test]
fn an_explanation_as_json_has_the_processors_of_the_nodes() {
    let sandbox = nodes();
    let options = ["--explain", "--message-format", "json"];
    let run = sandbox.run(&mut on(&sandbox, "big,small", &options));
    let map: serde_json::Value = serde_json::from_str(&run.expect_code(0).out()).unwrap();
    let pus = |node: usize| map["placed"][node]["pus"].as_u64();
    let here = u64::from(cpus().0.len());
    assert_eq!((pus(0), pus(1)), (Some(here), Some(1)));
    expect_nothing_started(&sandbox);
}

#[test]
fn a_node_that_cannot_be_reached_is_named() {
    let sandbox = nodes();
    sandbox.file(
        "start",
        "#!/bin/sh\n[ $1 = small ] && exit 7\nshift\nexec \"$@\"\n",
    );
    let run = sandbox.run(&mut on(&sandbox, "big,small", &["--explain"]));
    let run = run
        .expect_code(123)
        .expect_err(&["cannot start the daemon on `small`", "exited with code 7"]);
    assert_eq!(run.out(), "");
    expect_nothing_started(&sandbox);
}

#[test]
fn a_job_that_does_not_fit_its_nodes_is_refused() {
    let sandbox = nodes();
    let options = ["--explain", "-n", "3"];
    let run = sandbox.run(&mut on(&sandbox, "big:1,small:1", &options));
    let run = run.expect_code(122).expect_err(&["not enough slots"]);
    assert_eq!(run.out(), "");
    expect_nothing_started(&sandbox);
}

/// The start command is not even called.
#[test]
fn a_dry_run_says_what_it_assumes() {
    let sandbox = nodes();
    sandbox.file("start", "#!/bin/sh\ntouch started\n");
    let here = size_of_this_node();
    for options in [&["--dry-run"][..], &["--dry-run", "--explain"]] {
        let run = sandbox.run(&mut on(&sandbox, "big,small", options));
        let run = run.expect_code(0);
        assert_eq!(sizes(&run.out()), [format!("big,small {here}")]);
        run.expect_err(&["other nodes are assumed to have the processors of this one"]);
    }
    let run = sandbox.run(&mut on(&sandbox, "big,small", &["--dry-run", "-q"]));
    assert_eq!(run.expect_code(0).err(), "");
    expect_nothing_started(&sandbox);
}

#[test]
fn a_map_before_the_job_has_the_processors_of_the_nodes() {
    let sandbox = nodes();
    let run = sandbox.run(&mut on(&sandbox, "big,small", &["--display", "map"]));
    let run = run.expect_code(0);
    let here = size_of_this_node();
    assert_eq!(
        sizes(&run.err()),
        [format!("big {here}"), "small 1 PU".to_owned()]
    );
    assert!(sandbox.path("started").exists());
}

#[test]
fn an_explanation_over_forked_nodes_leaves_nothing() {
    let sandbox = Sandbox::new();
    let options = ["-n", "3", "--explain", "--", "touch", "started"];
    let run = sandbox.run(&mut over(&sandbox, "3", &options));
    let run = run.expect_code(0);
    assert!(run.out().starts_with("3 ranks on 3 nodes\n"), "{run:?}");
    expect_nothing_started(&sandbox);
}
