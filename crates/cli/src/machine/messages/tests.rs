use dvm::bootstrap::{NotJoined, NotJoinedClass, Reason};
use message::Format;

use super::*;

#[test]
fn sentences() {
    let failures = [
        none_meant("RALLY_MACHINE"),
        none_meant("--on-machine"),
        no_output(JobId(17), "it has printed nothing"),
    ];
    let mut text = String::new();
    for (message, code) in failures {
        text += &format!("{}: {}", code.code(), message::text(&message, Format::Text));
    }
    for why in [
        CannotRun::MachineRuns("main".to_owned()),
        CannotRun::NoMachine("cannot use the store `/x`: it is damaged".to_owned()),
        // The reason alone decides nothing.
        CannotRun::NoMachine("cannot use `/x runs already`".to_owned()),
    ] {
        text += &message::text(&not_started(&why), Format::Text);
    }
    insta::assert_snapshot!(text, @r"
    120: error: `RALLY_MACHINE` says `none`, which is no machine
      effect: nothing was done: this command is about a machine
      help:   name one with `--on-machine NAME`; only `rally run` can do without one
    120: error: `--on-machine` says `none`, which is no machine
      effect: nothing was done: this command is about a machine
      help:   name one with `--on-machine NAME`; only `rally run` can do without one
    121: error: there is no output of job 17
      reason: it has printed nothing
    error: the machine `main` runs already
      help: `rally status` shows it; `--name` starts another one
    error: cannot use the store `/x`: it is damaged
      help: the directory of the machine is in RALLY_STATE_DIR, else in ~/.local/state/rally
    error: cannot use `/x runs already`
      help: the directory of the machine is in RALLY_STATE_DIR, else in ~/.local/state/rally
    ");
}

fn hosts(names: &[&str]) -> HostList {
    names.iter().copied().collect()
}

fn shown(messages: &[Message]) -> String {
    let text = |message: &Message| {
        let mut lines = vec![format!("{:?}: {}", message.severity, message.headline)];
        let facts = message.facts.iter();
        lines.extend(facts.map(|(name, text)| format!("  {name}: {text}")));
        lines.extend(message.help.iter().map(|help| format!("  help: {help}")));
        lines.join("\n")
    };
    messages.iter().map(text).collect::<Vec<_>>().join("\n")
}

fn of(joined: &[&str], there: &[&str], failed: &[&str]) -> Added {
    let class = NotJoinedClass {
        hosts: hosts(failed),
        reason: Reason::Exited(255),
        tried: Vec::new(),
        program: "ssh".to_owned(),
        check: vec!["ssh".to_owned(), "n9".to_owned(), "true".to_owned()],
        printed: vec!["ssh: connect to host HOST port 22: No route to host".to_owned()],
        failed_at: HostList::default(),
    };
    let number = |nodes: usize| u32::try_from(nodes).unwrap();
    Added {
        joined: hosts(joined),
        there: hosts(there),
        failed: NotJoined {
            classes: if failed.is_empty() {
                Vec::new()
            } else {
                vec![class]
            },
            nodes: number(joined.len() + failed.len()),
            joined: number(joined.len()),
        },
    }
}

#[test]
fn what_becomes_of_added_nodes() {
    let all = [
        of(&["n5"], &[], &[]),
        of(&["n5", "n6"], &["n1"], &["n9"]),
        of(&[], &["n1", "n2"], &[]),
        of(&[], &[], &["n9"]),
    ];
    let texts = all.iter().map(|one| {
        let (messages, code) = added(one, "main");
        format!("{}\n= {code}", shown(&messages))
    });
    insta::assert_snapshot!(texts.collect::<Vec<_>>().join("\n\n"), @"
    Note: 1 node has joined machine `main`
      nodes: `n5`
    = 0

    Note: 1 node is in machine `main` already
      nodes: `n1`
    Note: 2 nodes have joined machine `main`
      nodes: `n[5-6]`
    Warning: 1 of 3 nodes cannot be used
      reason: cannot start the daemon on `n9`: `ssh` exited with code 255
      ssh: ssh: connect to host HOST port 22: No route to host
      fine: 2 other nodes can be used
      effect: the machine goes on without them
      help: check that the node is up and on this network: `ssh n9 true`
    = 0

    Note: 2 nodes are in machine `main` already
      nodes: `n[1-2]`
    = 0

    Error: no node has joined machine `main`
      reason: cannot start the daemon on `n9`: `ssh` exited with code 255
      ssh: ssh: connect to host HOST port 22: No route to host
      effect: the machine goes on without them
      help: check that the node is up and on this network: `ssh n9 true`
    = 123
    ");
}

#[test]
fn bad_nodes_can_be_added_again_or_dropped() {
    let node = |name: &str, state| NodeLine {
        resources: Default::default(),
        name: name.to_owned(),
        number: base::NodeId(0),
        state,
        slots: 1,
        free: 0,
        jobs: Vec::new(),
    };
    let bad = || NodeStanding::Bad("no answer".to_owned());
    let nodes = [
        node("n1", bad()),
        node("n2", NodeStanding::Up),
        node("n3", bad()),
    ];
    let said: Vec<Message> = bad_nodes(&nodes).into_iter().collect();
    insta::assert_snapshot!(shown(&said), @"
    Warning: 2 nodes cannot be used
      help: when the reason is gone, `rally nodes --add n[1,3]` starts the daemons again; `rally nodes --drop n[1,3]` takes them out of the list
    ");
    assert_eq!(bad_nodes(&nodes[1..2]), None);
}
