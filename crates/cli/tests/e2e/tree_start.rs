//! Starts in which daemons start others. A script with the name `ssh` stands for other nodes: it runs the command on this one, with
//! a home directory below that of the process that has called it. So the home of a daemon names all that have started it.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, process::Command};

use nix::sys::signal::Signal;

use crate::harness::{Sandbox, Stream};

/// Writes a line about each call. If there is a file `forbidden`, only the head may call it.
const SSH: &str = r#"#!/bin/bash
top=$(dirname "$0")
while [[ $1 == -* ]]; do shift; done
host=$1; shift
echo "${HOME#"$top"} $host" >>"$top/calls"
if [[ $host == dead* || ( -e $top/forbidden && $HOME != "$top" ) ]]; then
    echo "ssh: connect to host $host port 22: No route to host" >&2
    exit 255
fi
mkdir -p "$HOME/$host/tmp"
exec env -i PATH="$PATH" HOME="$HOME/$host" TMPDIR="$HOME/$host/tmp" RALLY_STRESS="$RALLY_STRESS" /bin/bash -c "$*"
"#;

/// The number of nodes, with a rank on each, and how many others each process starts at a time.
const NODES: usize = 12;
const RADIX: &str = "3";

fn nodes() -> Sandbox {
    let sandbox = Sandbox::new();
    let file = sandbox.file("ssh", SSH);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    sandbox
}

fn over(sandbox: &Sandbox, hosts: &str, args: &[&str]) -> Command {
    let ssh = sandbox.path("ssh").display().to_string();
    let mut command = sandbox.rally(&["run", "--ssh", &ssh, "--host", hosts, "-q"]);
    command.args([
        "--tree-start",
        "4",
        "--radix",
        RADIX,
        "--map-by",
        "ppr:1:node",
    ]);
    command.args(args);
    command
}

/// Returns for each host from where it was started, in order: how many processes were between the head and it.
fn calls(sandbox: &Sandbox) -> BTreeMap<String, Vec<usize>> {
    let mut calls: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for line in sandbox.read("calls").lines() {
        let (home, host) = line.split_once(' ').unwrap();
        let depth = home.matches('/').count();
        calls.entry(host.to_owned()).or_default().push(depth);
    }
    calls
}

#[test]
fn every_node_is_started_once_and_some_by_daemons() {
    let sandbox = nodes();
    let hosts = format!("n[1-{NODES}]");
    let ended = sandbox.run(&mut over(&sandbox, &hosts, &["--", "echo", "here"]));
    assert_eq!(ended.expect_code(0).out(), "here\n".repeat(NODES));
    let calls = calls(&sandbox);
    assert_eq!(calls.len(), NODES, "{calls:?}");
    assert!(calls.values().all(|from| from.len() == 1), "{calls:?}");
    let by_daemons = calls.values().filter(|from| from[0] > 0).count();
    assert!(by_daemons > 0, "{calls:?}");
    sandbox.expect_clean();
}

#[test]
fn the_head_starts_all_where_nodes_may_not_start_each_other() {
    let sandbox = nodes();
    sandbox.file("forbidden", "");
    let hosts = format!("n[1-{NODES}]");
    let ended = sandbox.run(&mut over(&sandbox, &hosts, &["--", "echo", "here"]));
    assert_eq!(ended.expect_code(0).out(), "here\n".repeat(NODES));
    let calls = calls(&sandbox);
    for (host, from) in &calls {
        assert!(matches!(from[..], [0] | [1, 0]), "{host}: {from:?}");
    }
    let in_vain = calls.values().filter(|from| from.len() > 1).count();
    assert!(in_vain > 0, "{calls:?}");
    sandbox.expect_clean();
}

#[test]
fn a_host_that_neither_a_daemon_nor_the_head_reaches_is_named_once() {
    let sandbox = nodes();
    let ended = sandbox.run(&mut over(&sandbox, "n[1-6],dead", &["--", "echo", "here"]));
    let ended = ended.expect_code(123).expect_err(&[
        "cannot start the daemon on `dead`: `ssh` exited with code 255",
        "No route to host",
        "6 other nodes can be used",
    ]);
    assert_eq!(ended.err().matches("error:").count(), 1, "{ended:?}");
    // Whether a daemon has a turn before the head depends on which of them are there.
    let by_daemon = ended.err().contains("first, then the node of `rally`");
    let from = &calls(&sandbox)["dead"];
    let is_right = match from[..] {
        [0] => !by_daemon,
        [first, 0] => first > 0 && by_daemon,
        _ => false,
    };
    assert!(is_right, "{from:?} {ended:?}");
    sandbox.expect_clean();
}

#[test]
fn nothing_remains_of_a_tree_whose_front_is_killed() {
    let sandbox = nodes();
    let hosts = format!("n[1-{NODES}]");
    let job = sandbox.start(&mut over(
        &sandbox,
        &hosts,
        &["--", "sh", "-c", "echo up; exec sleep 66"],
    ));
    job.expect_times(Stream::Stdout, "up", NODES);
    job.signal(Signal::SIGKILL);
    job.end();
    sandbox.expect_clean();
}
