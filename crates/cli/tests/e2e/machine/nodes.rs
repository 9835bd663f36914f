//! Nodes that come and go while a machine runs.

use super::*;

/// Prints the pid of its daemon into a file, and waits for another file.
const HOLD: &str =
    "echo $PPID > daemon.new; mv daemon.new daemon; until test -e go; do sleep 0.01; done";

impl Machine<'_> {
    /// Returns the states of the nodes, by name.
    fn nodes(&self) -> BTreeMap<String, String> {
        let listed = self.out(&["nodes", "--message-format=json"]);
        let rows = listed.lines().map(|line| {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = |key: &str| row[key].as_str().unwrap().to_owned();
            (text("node"), text("state"))
        });
        rows.collect()
    }

    fn expect_node(&self, node: &str, state: Option<&str>) {
        let is_there = || (self.nodes().get(node).map(String::as_str) == state).then_some(());
        let found = eventually(DEADLINE, is_there);
        assert!(
            found.is_some(),
            "{node} is not {state:?}: {:?}",
            self.nodes()
        );
    }

    /// Runs a job on a node until the file `go` is there. Returns its number, and the pid of the daemon.
    fn hold(&self, node: &str, more: &[&str]) -> (String, i32) {
        let _ = fs::remove_file(self.0.path("daemon"));
        let _ = fs::remove_file(self.0.path("go"));
        let job = [more, &["--host", node, "-n", "1", "sh", "-c", HOLD]].concat();
        let job = self.submit(&job);
        let told = || fs::read_to_string(self.0.path("daemon")).ok();
        let daemon = eventually(DEADLINE, told).expect("the job does not start");
        (job, daemon.trim().parse().unwrap())
    }

    /// Returns the processes of daemons on other nodes.
    fn daemons(&self) -> Vec<Proc> {
        let mut found = self.0.alive();
        found.retain(|process| process.args.contains("__daemon"));
        found
    }
}

#[test]
fn nodes_are_added_lost_added_again_and_dropped() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--bootstrap", "fork", "--nodes", "2"]);
    let before = machine.daemons().len();
    let waits = machine.submit(&["--on-machine", "main", "-n", "1", "true"]);
    machine.run(&["wait", &waits]).expect_code(0);
    let added = machine.run(&["nodes", "--add", "extra:2"]).expect_code(0);
    added.expect_err(&["1 node has joined machine `main`", "nodes: `extra`"]);
    machine.expect_node("extra", Some("up"));
    let again = machine.run(&["nodes", "--add", "extra"]).expect_code(0);
    again.expect_err(&["1 node is in machine `main` already"]);
    let script = "echo $RALLY_NODE $(cat /proc/$PPID/comm) >> where";
    let over = ["--map-by", "ppr:1:node", "-n", "3", "sh", "-c", script];
    let job = machine.submit(&over);
    machine.run(&["wait", &job]).expect_code(0);
    assert_eq!(sandbox.read("where").lines().count(), 3);

    let (job, daemon) = machine.hold("extra", &["--requeue"]);
    signal::kill(Pid::from_raw(daemon), Signal::SIGKILL).unwrap();
    machine.expect_state(&job, "waiting");
    let listed = machine.run(&["nodes"]).expect_code(0);
    listed.expect_err(&["1 node cannot be used", "`rally nodes --add extra`"]);
    assert!(
        machine
            .out(&["status"])
            .contains("2 of 3 usable; `rally nodes` says why")
    );
    machine.run(&["nodes", "--add", "extra"]).expect_code(0);
    machine.expect_state(&job, "running");
    sandbox.file("go", "");
    machine.run(&["wait", &job]).expect_code(0);

    let (job, _) = machine.hold("extra", &[]);
    let busy = machine.run(&["nodes", "--drop", "extra"]).expect_code(123);
    busy.expect_err(&[
        "1 task runs on these nodes",
        "the nodes stay in the machine",
    ]);
    machine
        .run(&["nodes", "--drop", "extra", "--now"])
        .expect_code(0);
    machine.expect_state(&job, "canceled");
    machine.expect_node("extra", None);
    let unknown = machine.run(&["nodes", "--drop", "extra"]).expect_code(120);
    unknown.expect_err(&["the machine has no node `extra`"]);

    machine.run(&["nodes", "--add", "extra"]).expect_code(0);
    let (job, _) = machine.hold("extra", &[]);
    let mut dropping = sandbox.rally(&["nodes", "--drop", "extra", "--wait"]);
    let dropping = sandbox.start(&mut dropping);
    machine.expect_node("extra", Some("leaving"));
    let leaves = machine.run(&["nodes", "--add", "extra"]).expect_code(123);
    leaves.expect_err(&["`extra` is about to leave the machine"]);
    sandbox.file("go", "");
    dropping.end().expect_code(0);
    machine.run(&["wait", &job]).expect_code(0);
    machine.expect_node("extra", None);
    let gone = eventually(DEADLINE, || {
        (machine.daemons().len() == before).then_some(())
    });
    assert!(gone.is_some(), "{:?}", machine.daemons());
    machine.down();
}

/// The machine had no other node before, and the command that reaches others is that of `rally up`.
#[test]
fn a_machine_on_one_node_gets_others() {
    let sandbox = Sandbox::new();
    let far = sandbox.file(
        "far",
        "#!/bin/sh\necho \"$SSH_AUTH_SOCK\" > agent\ntest \"$1\" = bad && { echo 'no way'; exit 9; }\nshift\nexec sh -c \"$*\"\n",
    );
    fs::set_permissions(&far, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let machine = Machine::up(&sandbox, &["--host", "localhost:1", "--ssh", &far]);
    let failed = machine.run(&["nodes", "--add", "bad"]).expect_code(123);
    failed.expect_err(&[
        "no node has joined machine `main`",
        "far` exited with code 9",
        "no way",
    ]);
    machine.expect_node("bad", Some("bad"));
    machine.run(&["nodes", "--drop", "bad"]).expect_code(0);
    machine.expect_node("bad", None);

    let mut add = sandbox.rally(&["nodes", "--add", "good:2,bad"]);
    let added = sandbox.run(add.env("SSH_AUTH_SOCK", "/new/agent"));
    added.expect_code(0).expect_err(&[
        "1 node has joined machine `main`",
        "1 of 2 nodes cannot be used",
        "no way",
    ]);
    let host = machine
        .nodes()
        .into_keys()
        .find(|name| name != "good" && name != "bad");
    let host = host.unwrap();
    // The node of the machine goes, and comes with its daemon.
    machine.run(&["nodes", "--drop", &host]).expect_code(0);
    let job = machine.submit(&["-n", "2", "sh", "-c", "echo $RALLY_NODE >> where"]);
    machine.run(&["wait", &job]).expect_code(0);
    machine
        .run(&["nodes", "--add", "localhost:3"])
        .expect_code(0);
    let listed = machine.out(&["nodes"]);
    let own = listed.lines().find(|line| line.starts_with(&host)).unwrap();
    assert!(
        own.split_whitespace()
            .eq([host.as_str(), "up", "3", "3", "-"]),
        "{listed}"
    );
    machine
        .run(&["run", "-q", "--on-machine", "main", "-n", "5", "true"])
        .expect_code(0);
    machine.down();
}

#[test]
fn words_about_nodes_are_checked() {
    let sandbox = Sandbox::new();
    let wait = sandbox.run_rally(&["nodes", "--wait"]).expect_code(120);
    wait.expect_err(&["--wait", "no --drop"]);
    let both = sandbox.run_rally(&["nodes", "--add", "a", "--drop", "b"]);
    both.expect_code(120);
    let bad = sandbox
        .run_rally(&["nodes", "--add", "a:x"])
        .expect_code(120);
    bad.expect_err(&["`--add`"]);
    let none = sandbox
        .run_rally(&["nodes", "--add-hostfile", "none"])
        .expect_code(121);
    none.expect_err(&["none"]);
}
