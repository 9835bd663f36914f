//! What a login on a node decides, and what comes back from it: limits, the log, recordings.

use std::fs;

use super::{
    expect_no_daemon,
    host::{Host, over},
};
use crate::harness::Sandbox;

/// The limits of ranks are those that the node gives to its users, and not those of `rally`.
#[test]
fn ranks_have_the_limits_of_their_node() {
    let sandbox = Sandbox::new();
    let mut host = Host::new(2);
    // dash counts blocks of 512 bytes, and bash 1024.
    host.set_login_script("ulimit -n 333; ulimit -c 14; exec /bin/sh \"$@\"");
    let limits = "echo $(hostname) $(ulimit -Sn) $(ulimit -c)";
    let mut command = over(&sandbox, "n1,n2", &["-n", "2", "--", "bash", "-c", limits]);
    let ended = sandbox.run(&mut command).expect_code(0);
    let lines = ended.sorted();
    let (first, second) = lines.split_once('\n').unwrap();
    assert!(
        first.starts_with("n1 ") && !first.ends_with(" 7"),
        "{lines}"
    );
    assert_eq!(second, "n2 333 7");
    expect_no_daemon();
}

/// The log of daemons comes back through ssh. Their recordings stay on their nodes, in the directory of the launcher's.
#[test]
fn the_log_comes_back_and_recordings_stay() {
    let sandbox = Sandbox::new();
    let nodes = [Host::new(1), Host::new(2)];
    let record = format!("/tmp/record-{}", std::process::id());
    let args = ["-n", "2", "--record", &record, "--", "echo", "here"];
    let mut command = over(&sandbox, "n1,n2", &args);
    command.env("RALLY_LOG", "debug");
    let ended = sandbox
        .run(&mut command)
        .expect_code(0)
        .expect_out("here\nhere\n");
    let log = ended.err();
    for node in ["n1[", "n2["] {
        let exits = log.lines().filter(|line| {
            line.contains(node) && line.contains(" daemon: ") && line.contains("<- Exited proc=")
        });
        assert_eq!(exits.count(), 1, "{node}: {log}");
    }
    expect_no_daemon();
    let replayed = |bytes: &[u8]| {
        let mut replay = sim::replay::Replay::default();
        replay.take(bytes).unwrap();
        replay.end().unwrap()
    };
    replayed(&fs::read(&record).unwrap());
    fs::remove_file(&record).unwrap();
    for (number, node) in (0..).zip(&nodes) {
        // Each node has its own /tmp, which the head sees elsewhere.
        let file = format!("/run/cluster/{}{record}.{number}", node.name());
        replayed(&fs::read(&file).unwrap());
        fs::remove_file(&file).unwrap();
    }
}
