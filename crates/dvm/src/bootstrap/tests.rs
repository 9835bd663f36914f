//! Starts of daemons, event by event.

mod growth;
mod tree;

use super::*;
use crate::bootstrap::stage::own_system;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Time {
    Time::ZERO + SECOND * u32::try_from(seconds).unwrap()
}

/// A plan with a command for each node.
fn plan(nodes: u32, delivery: Delivery) -> DaemonPlan {
    let command = |number: u32| StartCommand {
        argv: vec!["/usr/bin/ssh".into(), format!("n{number}").into()],
        nodes: vec![NodeId(number)],
        delivery: delivery.clone(),
        check: vec!["ssh".into(), format!("n{number}").into(), "true".into()],
        prompting: Prompting::OnTerminal,
        elsewhere: None,
    };
    DaemonPlan {
        local: None,
        commands: (0..nodes).map(command).collect(),
        program: "/opt/rally".into(),
        argument: "__daemon".to_owned(),
        environment: Vec::new(),
        radix: RADIX,
        ports: None,
        interfaces: Vec::new(),
        hosting: Hosting::Alone,
        lease: LEASE,
        window: WINDOW,
        tree_start: TreeStart::Never,
        late: None,
    }
}

/// A plan with one command for all nodes.
fn plan_of_one(nodes: u32) -> DaemonPlan {
    let shell = ["srun", "--nodelist={host}", "/bin/sh"].map(str::to_owned);
    let command = StartCommand {
        argv: vec!["srun".into()],
        nodes: (0..nodes).map(NodeId).collect(),
        delivery: Delivery::Checked {
            shell: shell.into(),
        },
        check: Vec::new(),
        prompting: Prompting::Never,
        elsewhere: None,
    };
    DaemonPlan {
        commands: vec![command],
        ..plan(0, Delivery::Staged)
    }
}

/// Names a daemon that runs a command.
fn at_place(place: Place) -> String {
    match place {
        Place::Head => String::new(),
        Place::Daemon(node) => format!(" at {node}"),
    }
}

/// A start in progress. Each step returns what it asks for, as text.
struct Start(Bootstrap);

impl Start {
    fn new(nodes: u32, delivery: Delivery) -> Self {
        Self::of(nodes, plan(nodes, delivery))
    }

    fn of(nodes: u32, plan: DaemonPlan) -> Self {
        let hosts = (0..nodes).map(|number| format!("n{number}"));
        Self(Bootstrap::new(at(0), plan, hosts.collect()))
    }

    fn outputs(&mut self) -> String {
        let mut text = Vec::new();
        while let Some(output) = self.0.poll() {
            text.push(match output {
                Output::Start(place, id) => format!("start {id}{}", at_place(place)),
                Output::Send(place, id, part) => format!("send {id} {part:?}{}", at_place(place)),
                Output::Kill(place, id) => format!("kill {id}{}", at_place(place)),
                Output::GiveUp(node) => format!("give up {node}"),
                Output::Failed(failed) => {
                    let class = |class: &NotJoinedClass| {
                        let NotJoinedClass {
                            hosts,
                            reason,
                            tried,
                            printed,
                            failed_at,
                            ..
                        } = class;
                        let before = match failed_at.is_empty() {
                            true => String::new(),
                            false => format!(" after {failed_at}"),
                        };
                        format!("{hosts} {reason:?} tried {tried:?} printed {printed:?}{before}")
                    };
                    let classes: Vec<_> = failed.classes.iter().map(class).collect();
                    let (joined, nodes) = (failed.joined, failed.nodes);
                    format!(
                        "failed, {joined} of {nodes} joined: {}",
                        classes.join(" | ")
                    )
                }
            });
        }
        text.join(", ")
    }

    fn handle(&mut self, time: u64, input: Input) -> String {
        self.0.handle(at(time), input);
        self.outputs()
    }

    fn print(&mut self, time: u64, command: CommandId, text: &str) -> String {
        let bytes = text.as_bytes().to_vec();
        self.handle(time, Input::Printed { command, bytes })
    }

    fn exit(&mut self, time: u64, command: CommandId, code: u8) -> String {
        let status = ExitStatus::Exited(code);
        self.handle(time, Input::Exited { command, status })
    }

    /// Passes the next deadline.
    fn tick(&mut self) -> String {
        let now = self.0.deadline().unwrap();
        self.0.handle(now, Input::Tick);
        let seconds = now.since(Time::ZERO).as_secs_f64();
        format!("{seconds}: {}", self.outputs())
    }
}

#[test]
fn a_node_with_the_program_gets_the_frame() {
    let mut start = Start::new(1, Delivery::Staged);
    assert_eq!(start.outputs(), "start 0, send 0 Script");
    assert_eq!(start.print(1, 0, "welcome to n0\r\n\n@rally ha"), "");
    assert_eq!(start.print(1, 0, "ve /home/u/rally\n"), "send 0 Frame");
    assert_eq!(start.print(1, 0, "\n@rally have again\n"), "");
    assert_eq!(start.handle(2, Input::Joined(NodeId(0))), "");
    assert_eq!(start.0.deadline(), None);
    assert!(!start.0.is_over());
    start.handle(3, Input::Over);
    assert_eq!(start.exit(3, 0, 0), "");
    assert!(start.0.is_over());
}

#[test]
fn a_node_without_the_program_gets_it_until_a_directory_takes_it() {
    let mut start = Start::new(1, Delivery::Staged);
    start.outputs();
    assert_eq!(start.print(1, 0, "\n@rally which\n"), "send 0 Hash");
    assert_eq!(start.print(1, 0, "@rally which car is it\n"), "");
    let need = format!("@rally need {}\n", own_system());
    assert_eq!(start.print(1, 0, &need), "send 0 Program");
    // As long as the node takes bytes, there is time.
    assert_eq!(start.handle(50, Input::Taken(0)), "");
    assert_eq!(start.0.deadline(), Some(at(50) + SEND_MAX));
    assert_eq!(start.print(60, 0, "@rally skip /home/u: no space\n"), "");
    assert_eq!(start.print(60, 0, &need), "send 0 Program");
    assert_eq!(
        start.print(61, 0, "@rally have /tmp/rally\n"),
        "send 0 Frame"
    );
    assert_eq!(
        start.tick(),
        "121: kill 0, give up 0, failed, 0 of 1 joined: n0 Late { seconds: 60 } tried [] printed []"
    );
}

#[test]
fn a_node_that_asks_forever_is_given_up() {
    let mut start = Start::new(1, Delivery::Staged);
    start.outputs();
    let need = format!("@rally need {}\n", own_system());
    for _ in 0..PLACES_MAX {
        assert_eq!(start.print(1, 0, &need), "send 0 Program");
    }
    assert!(
        start
            .print(1, 0, &need)
            .starts_with("kill 0, give up 0, failed")
    );
}

#[test]
fn each_failure_has_its_reason() {
    let cases: &[(&str, &[&str])] = &[
        ("another system", &["@rally need Linux sparc64\n"]),
        (
            "no directory",
            &[
                "@rally skip /home/u: Read-only file system\n@rally skip /tmp: no space\n@rally none\n",
            ],
        ),
        (
            "words of ssh",
            &[
                "ssh: connect to host n0 port 22: No route to host\r\n",
                "exit 255",
            ],
        ),
        ("an open line", &["bash: no", "thing", "exit 1"]),
        (
            "no way back",
            &[
                "@rally have x\nrally: cannot connect to the launcher: 10.0.0.1:4000: refused; 10.1.0.1:4000: no answer\n",
                "exit 120",
            ],
        ),
        (
            "a daemon that cannot run",
            &[
                "@rally have x\nrally: cannot run here: it has no network `ib0`: its networks are `eth0`\n",
                "exit 125",
            ],
        ),
    ];
    let run = |(name, events): &(&str, &[&str])| {
        let mut start = Start::new(1, Delivery::Staged);
        start.outputs();
        let mut last = String::new();
        for event in *events {
            last = match event.strip_prefix("exit ") {
                Some(code) => start.exit(2, 0, code.parse().unwrap()),
                None => start.print(1, 0, event),
            };
        }
        format!("{name}: {last}")
    };
    let text: Vec<_> = cases.iter().map(run).collect();
    insta::assert_snapshot!(text.join("\n"), @r#"
    another system: kill 0, give up 0, failed, 0 of 1 joined: n0 OtherSystem("Linux sparc64") tried [] printed []
    no directory: kill 0, give up 0, failed, 0 of 1 joined: n0 NoPlace tried ["/home/u: Read-only file system", "/tmp: no space"] printed []
    words of ssh: give up 0, failed, 0 of 1 joined: n0 Exited(255) tried [] printed ["ssh: connect to host n0 port 22: No route to host"]
    an open line: give up 0, failed, 0 of 1 joined: n0 Exited(1) tried [] printed ["bash: nothing"]
    no way back: give up 0, failed, 0 of 1 joined: n0 CannotConnect tried ["10.0.0.1:4000: refused", "10.1.0.1:4000: no answer"] printed ["rally: cannot connect to the launcher: 10.0.0.1:4000: refused; 10.1.0.1:4000: no answer"]
    a daemon that cannot run: give up 0, failed, 0 of 1 joined: n0 Refused("it has no network `ib0`: its networks are `eth0`") tried [] printed ["rally: cannot run here: it has no network `ib0`: its networks are `eth0`"]
    "#);
}

#[test]
fn each_state_has_a_deadline() {
    let mut start = Start::new(1, Delivery::Staged);
    start.outputs();
    insta::assert_snapshot!(start.tick(), @"60: kill 0, give up 0, failed, 0 of 1 joined: n0 NoAnswer { seconds: 60 } tried [] printed []");
    let mut start = Start::new(1, Delivery::Staged);
    start.outputs();
    start.print(7, 0, &format!("@rally need {}\n", own_system()));
    insta::assert_snapshot!(start.tick(), @"67: kill 0, give up 0, failed, 0 of 1 joined: n0 NotTaken { seconds: 60 } tried [] printed []");
    let mut start = Start::new(1, Delivery::Direct);
    assert_eq!(start.outputs(), "start 0, send 0 Frame");
    insta::assert_snapshot!(start.tick(), @"60: kill 0, give up 0, failed, 0 of 1 joined: n0 Late { seconds: 60 } tried [] printed []");
    let mut start = Start::new(1, Delivery::File);
    assert_eq!(start.outputs(), "start 0");
    start.handle(1, Input::Joined(NodeId(0)));
    start.handle(2, Input::Over);
    assert_eq!(start.tick(), "3: kill 0");
    assert!(start.0.is_over());
}

#[test]
fn nodes_that_fail_alike_are_one_class() {
    let mut start = Start::new(5, Delivery::Staged);
    start.outputs();
    start.print(1, 4, "@rally have x\n");
    start.handle(1, Input::Joined(NodeId(4)));
    for id in 0..3 {
        start.print(1, id, &format!("ssh: n{id}: no such host as n{id}\n"));
    }
    assert_eq!(start.exit(1, 0, 255), "give up 0");
    assert_eq!(start.exit(1, 1, 255), "give up 1");
    assert_eq!(start.exit(1, 2, 255), "give up 2");
    // The last command still runs: it may fail too.
    insta::assert_snapshot!(start.tick(), @r#"4: failed, 1 of 5 joined: n[0-2] Exited(255) tried [] printed ["ssh: HOST: no such host as HOST"]"#);
    // The report was made. What fails later is not reported again.
    assert_eq!(start.exit(2, 3, 255), "");
}

#[test]
fn failures_are_reported_when_no_other_command_is_open() {
    let mut start = Start::new(2, Delivery::Staged);
    start.outputs();
    start.print(1, 1, "@rally have x\n");
    start.exit(1, 0, 255);
    let said = start.handle(2, Input::Joined(NodeId(1)));
    insta::assert_snapshot!(said, @"failed, 1 of 2 joined: n0 Exited(255) tried [] printed []");
}

#[test]
fn a_thousand_commands_start_a_few_at_a_time() {
    let mut start = Start::new(1000, Delivery::Staged);
    let first = start.outputs();
    assert_eq!(first.matches("start").count(), PARALLEL.get() as usize);
    let mut started = first.matches("start").count();
    for id in 0..1000 {
        assert_eq!(
            start.print(1, id, "@rally have x\n"),
            format!("send {id} Frame")
        );
        let more = start.handle(2, Input::Joined(NodeId(id)));
        started += more.matches("start").count();
    }
    assert_eq!(started, 1000);
    assert_eq!(start.0.deadline(), None);
}

#[test]
fn a_failure_stops_the_start_of_more() {
    let mut start = Start::new(1000, Delivery::Staged);
    start.outputs();
    for id in 0..64 {
        start.exit(1, id, 255);
    }
    assert_eq!(start.outputs(), "");
    assert!(start.0.is_over());
    assert_eq!(start.handle(2, Input::Tick), "");
}

#[test]
fn evidence_is_bounded_and_the_last() {
    let mut start = Start::new(1, Delivery::Staged);
    start.outputs();
    for number in 0..10_000 {
        start.print(1, 0, &format!("line {number}\n"));
    }
    start.print(1, 0, &"x".repeat(3 * EVIDENCE_MAX));
    start.print(1, 0, "\nthe end\n");
    let failed = start.exit(1, 0, 1);
    assert!(failed.ends_with("\"the end\"]"), "{failed}");
    assert!(failed.len() < EVIDENCE_MAX + 200, "{}", failed.len());
}

#[test]
fn the_script_quotes_the_path_and_is_one_command() {
    let program = stage::Program {
        size: 77,
        modified: Some(1234),
        path: b"/opt/it's/rally".to_vec(),
        argument: "__daemon".to_owned(),
    };
    let script = String::from_utf8(stage::script(&program)).unwrap();
    assert!(script.starts_with("{\n") && script.ends_with("\n}\n"));
    let check = String::from_utf8(stage::check(&program)).unwrap();
    for script in [script, check] {
        assert!(
            script
                .contains("size=77 modified='1234' argument=__daemon own='/opt/it'\\''s/rally'\n"),
            "{script}"
        );
        // A word that nothing has replaced.
        let is_word = |word: &str| word.ends_with('@') && word.len() > 1;
        let mut words = script.split([' ', '\'', '=', '\n']);
        assert_eq!(
            words.find(|word| word.starts_with('@') && is_word(word)),
            None
        );
    }
}

#[test]
fn the_nodes_that_join_are_used_where_not_all_are_needed() {
    let nodes = PARALLEL.get() + 2;
    let hosts = (0..nodes).map(|node| format!("n{node}")).collect();
    let mut bootstrap =
        Bootstrap::new(Time::ZERO, plan(nodes, Delivery::Direct), hosts).with_those_that_join();
    let started = std::iter::from_fn(|| bootstrap.poll());
    let started = started
        .filter(|output| matches!(output, Output::Start(..)))
        .count();
    assert_eq!(started, PARALLEL.get() as usize);
    for command in [0, 1] {
        let bytes = format!("ssh: connect to host n{command}: no route\n").into_bytes();
        bootstrap.handle(Time::ZERO, Input::Printed { command, bytes });
        let status = ExitStatus::Exited(255);
        bootstrap.handle(Time::ZERO, Input::Exited { command, status });
        let outputs: Vec<Output> = std::iter::from_fn(|| bootstrap.poll()).collect();
        let [
            Output::GiveUp(node),
            Output::Failed(failed),
            Output::Start(_, next),
            Output::Send(_, _, Part::Frame),
        ] = &outputs[..]
        else {
            panic!("{outputs:?}");
        };
        assert_eq!((node.0, *next), (command, PARALLEL.get() + command));
        // Each report is about one node, and equal failures look equal.
        let [class] = &failed.classes[..] else {
            panic!("{failed:?}");
        };
        assert_eq!(class.hosts.to_string(), format!("n{command}"));
        assert_eq!(class.printed, ["ssh: connect to host HOST: no route"]);
    }
    bootstrap.handle(Time::ZERO, Input::Joined(NodeId(2)));
    bootstrap.handle(Time::ZERO + JOIN_MAX, Input::Tick);
    let outputs: Vec<Output> = std::iter::from_fn(|| bootstrap.poll()).collect();
    let late = outputs
        .iter()
        .filter(|output| matches!(output, Output::Failed(_)));
    assert_eq!(late.count(), nodes as usize - 3);
}

#[test]
fn nodes_that_share_a_command_and_lack_the_program_get_commands_of_their_own() {
    let mut start = Start::of(3, plan_of_one(3));
    assert_eq!(start.outputs(), "start 0, send 0 Frame");
    // A node of another command, and a word that only nodes with a command of their own say.
    assert_eq!(start.print(1, 0, "@rally absent n7\n@rally which\n"), "");
    assert_eq!(
        start.print(1, 0, "\n@rally absent n1\n"),
        "start 1, send 1 Script"
    );
    let plan = &start.0.plan().commands;
    assert_eq!(plan[1].argv, ["srun", "--nodelist=n1", "/bin/sh"]);
    assert_eq!(
        (&plan[0].nodes, &plan[1].nodes),
        (&vec![NodeId(0), NodeId(2)], &vec![NodeId(1)])
    );
    // It is said once.
    assert_eq!(start.print(1, 0, "@rally absent n1\n"), "");
    assert_eq!(start.handle(1, Input::Joined(NodeId(0))), "");
    assert_eq!(
        start.print(1, 0, "@rally absent n2\n"),
        "start 2, send 2 Script"
    );
    assert_eq!(start.print(1, 1, "@rally which\n"), "send 1 Hash");
    assert_eq!(start.print(2, 1, "@rally have x\n"), "send 1 Frame");
    assert_eq!(start.print(2, 2, "@rally have x\n"), "send 2 Frame");
    for node in [1, 2] {
        assert_eq!(start.handle(3, Input::Joined(NodeId(node))), "");
    }
    assert_eq!(start.0.deadline(), None);
    start.handle(4, Input::Over);
    for command in 0..3 {
        assert!(!start.0.is_over());
        assert_eq!(start.exit(4, command, 0), "");
    }
    assert!(start.0.is_over());
}

#[test]
fn a_command_whose_nodes_all_lack_the_program_may_exit() {
    let mut start = Start::of(2, plan_of_one(2));
    start.outputs();
    start.print(1, 0, "@rally absent n0\n@rally absent n1\n");
    assert_eq!(start.exit(1, 0, 0), "");
    start.print(2, 1, "@rally have x\n");
    start.handle(2, Input::Joined(NodeId(0)));
    start.print(2, 2, "@rally skip /tmp: no space\n");
    insta::assert_snapshot!(start.print(2, 2, "@rally none\n"), @r#"kill 2, give up 1, failed, 1 of 2 joined: n1 NoPlace tried ["/tmp: no space"] printed []"#);
}

/// The daemons of one command that have joined work on when its other nodes are late.
#[test]
fn late_nodes_of_a_command_are_given_up_and_the_others_used() {
    let hosts = || ["n0", "n1", "n2"].map(str::to_owned).to_vec();
    let bootstrap = Bootstrap::new(at(0), plan_of_one(3), hosts()).with_those_that_join();
    let mut start = Start(bootstrap);
    start.outputs();
    for node in [0, 2] {
        start.handle(1, Input::Joined(NodeId(node)));
    }
    insta::assert_snapshot!(start.tick(), @"60: give up 1, failed, 2 of 3 joined: n1 Late { seconds: 60 } tried [] printed []");
    assert!(!start.0.is_over());
    // Without any that has joined, nobody needs the command.
    let bootstrap = Bootstrap::new(at(0), plan_of_one(3), hosts()).with_those_that_join();
    let mut start = Start(bootstrap);
    start.outputs();
    insta::assert_snapshot!(start.tick(), @"60: kill 0, give up 0, give up 1, give up 2, failed, 0 of 3 joined: n[0-2] Late { seconds: 60 } tried [] printed []");
    assert!(start.0.is_over());
    // If all nodes are needed, one that is late ends the start.
    let mut start = Start::of(2, plan_of_one(2));
    start.outputs();
    start.handle(1, Input::Joined(NodeId(0)));
    insta::assert_snapshot!(start.tick(), @"60: kill 0, give up 1, failed, 1 of 2 joined: n1 Late { seconds: 60 } tried [] printed []");
}

/// The user may think for as long as they want; then the node has its whole time again.
#[test]
fn the_time_of_a_command_does_not_run_while_the_user_is_asked() {
    let mut start = Start::new(2, Delivery::Staged);
    start.outputs();
    assert_eq!(start.handle(1, Input::Asks(0)), "");
    start.handle(2, Input::Asks(1));
    assert_eq!(start.0.deadline(), None);
    assert_eq!(start.handle(1000, Input::Tick), "");
    start.handle(1000, Input::GoesOn(1));
    let line = "@rally have /home/u/rally\n";
    assert_eq!(start.print(1001, 1, line), "send 1 Frame");
    start.handle(1002, Input::Joined(NodeId(1)));
    start.handle(2000, Input::GoesOn(0));
    assert_eq!(
        start.tick(),
        "2060: kill 0, give up 0, failed, 1 of 2 joined: n0 NoAnswer { seconds: 60 } tried [] printed []"
    );
}

/// The user is asked in vain if another node has failed.
#[test]
fn a_failure_is_reported_although_the_user_is_asked() {
    let mut start = Start::new(2, Delivery::Staged);
    start.outputs();
    start.handle(1, Input::Asks(0));
    assert_eq!(start.exit(2, 1, 255), "give up 1");
    assert_eq!(
        start.tick(),
        "5: failed, 0 of 2 joined: n1 Exited(255) tried [] printed []"
    );
    start.handle(6, Input::Over);
    assert_eq!(start.tick(), "7: kill 0");
    assert!(start.0.is_over());
}

/// A daemon that dies says why, or ssh does. What was printed before it joined does not count.
#[test]
fn a_lost_daemon_has_last_words() {
    let mut start = Start::new(2, Delivery::Direct);
    let printed = |command, text: &str| Input::Printed {
        command,
        bytes: text.as_bytes().to_vec(),
    };
    start.handle(0, printed(0, "Welcome to n0\n"));
    start.handle(1, Input::Joined(NodeId(0)));
    start.handle(1, Input::Joined(NodeId(1)));
    assert_eq!(start.0.last_words(NodeId(0)), None);
    start.handle(2, printed(0, "1\n2\n3\n4\nout of memory"));
    assert_eq!(start.0.started(NodeId(0)), Some(0));
    let words = start.0.last_words(NodeId(0));
    assert_eq!(words.as_deref(), Some("2; 3; 4; out of memory"));
    assert_eq!(start.0.last_words(NodeId(1)), None);

    let mut start = Start::of(2, plan_of_one(2));
    start.handle(1, Input::Joined(NodeId(0)));
    start.handle(1, Input::Joined(NodeId(1)));
    start.handle(2, printed(0, "srun: error: n1: task 1: Killed\n"));
    assert_eq!(start.0.last_words(NodeId(0)), None);
    let words = start.0.last_words(NodeId(1));
    assert_eq!(words.as_deref(), Some("srun: error: n1: task 1: Killed"));
}
