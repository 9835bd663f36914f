//! Machines: nodes that come and go.

use super::*;

/// The plan of a machine with a command for each node.
fn machine(nodes: u32) -> Start {
    let command = StartCommand {
        argv: vec!["ssh".into(), HOST_WORD.into(), "exec /bin/sh".into()],
        nodes: Vec::new(),
        delivery: Delivery::Staged,
        check: vec!["ssh".into(), HOST_WORD.into(), "true".into()],
        prompting: Prompting::Never,
        elsewhere: None,
    };
    let plan = DaemonPlan {
        environment: vec!["A=1".into(), "SSH_AUTH_SOCK=/old".into()],
        late: Some(Box::new(LateStart::OfMachine {
            command_here: StartCommand {
                argv: vec!["rally".into()],
                delivery: Delivery::Direct,
                ..command.clone()
            },
            here: "head".to_owned(),
            command,
        })),
        ..plan(nodes, Delivery::Staged)
    };
    let hosts = (0..nodes).map(|number| format!("n{number}"));
    Start(Bootstrap::new(at(0), plan, hosts.collect()).of_machine())
}

impl Start {
    fn add(&mut self, time: u64, nodes: &[(u32, &str)]) -> String {
        self.add_of(time, None, nodes)
    }

    fn add_of(&mut self, time: u64, slurm_job: Option<u32>, nodes: &[(u32, &str)]) -> String {
        let nodes = nodes
            .iter()
            .map(|(id, host)| (NodeId(*id), (*host).to_owned()));
        let addition = Addition {
            nodes: nodes.collect(),
            environment: vec!["SSH_AUTH_SOCK=/new".into()],
            slurm_job,
        };
        self.0.add(at(time), addition);
        self.outputs()
    }
}

#[test]
fn failures_are_reported_together_and_all_of_them() {
    let mut start = machine(4);
    start.outputs();
    assert_eq!(start.exit(1, 0, 255), "give up 0");
    assert_eq!(start.exit(2, 1, 255), "give up 1");
    // The other two are still being started.
    assert_eq!(
        start.tick(),
        "4: failed, 0 of 4 joined: n[0-1] Exited(255) tried [] printed []"
    );
    assert_eq!(start.handle(5, Input::Joined(NodeId(2))), "");
    let said = start.exit(6, 3, 255);
    assert!(
        said.starts_with("give up 3, failed, 1 of 4 joined: n3"),
        "{said}"
    );
}

#[test]
fn an_added_node_gets_the_command_for_late_ones() {
    let mut start = machine(1);
    start.outputs();
    start.handle(1, Input::Joined(NodeId(0)));
    assert_eq!(
        start.add(2, &[(1, "n7"), (2, "head")]),
        "start 1, send 1 Script, start 2, send 2 Frame"
    );
    let plan = start.0.plan();
    let words = |command: usize| -> Vec<_> {
        let words = plan.commands[command].argv.iter();
        words.map(|word| word.to_str().unwrap()).collect()
    };
    assert_eq!(words(1), ["ssh", "n7", "exec /bin/sh"]);
    assert_eq!(words(2), ["rally"]);
    assert_eq!(plan.commands[1].check[1], "n7");
    assert_eq!(plan.environment, ["A=1", "SSH_AUTH_SOCK=/new"]);
    assert_eq!(start.print(3, 1, "@rally have\n"), "send 1 Frame");
    assert_eq!(start.handle(4, Input::Joined(NodeId(1))), "");
    let said = start.exit(4, 2, 1);
    assert!(said.starts_with("give up 2, failed"), "{said}");
    assert!(said.contains("head Exited(1)"), "{said}");
}

#[test]
fn the_command_of_a_lost_daemon_ends() {
    let mut start = machine(2);
    start.outputs();
    for node in 0..2 {
        start.handle(1, Input::Joined(NodeId(node)));
    }
    assert_eq!(start.handle(2, Input::Lost(NodeId(0))), "");
    assert_eq!(start.handle(2, Input::Lost(NodeId(1))), "");
    assert_eq!(start.exit(2, 1, 0), "");
    assert_eq!(start.0.deadline(), Some(at(2) + EXIT_MAX));
    assert_eq!(start.tick(), "3: kill 0");
    assert!(start.0.is_over());
    // Its node is started again by another command.
    assert_eq!(start.add(9, &[(2, "n0")]), "start 2, send 2 Script");
}

#[test]
fn a_command_of_several_daemons_runs_until_all_are_lost() {
    let mut start = Start::of(3, plan_of_one(3));
    start.outputs();
    for node in 0..3 {
        start.handle(1, Input::Joined(NodeId(node)));
    }
    for node in [2, 0] {
        start.handle(2, Input::Lost(NodeId(node)));
        assert_eq!(start.0.deadline(), None);
    }
    start.handle(3, Input::Lost(NodeId(1)));
    assert_eq!(start.tick(), "4: kill 0");
}

#[test]
fn late_nodes_of_several_commands_are_all_reported() {
    let hosts = (0..4).map(|number| format!("n{number}")).collect();
    let mut plan = plan_of_one(2);
    let second = StartCommand {
        nodes: vec![NodeId(2), NodeId(3)],
        ..plan.commands[0].clone()
    };
    plan.commands.push(second);
    let mut start = Start(Bootstrap::new(at(0), plan, hosts).of_machine());
    start.outputs();
    for node in [0, 2] {
        start.handle(1, Input::Joined(NodeId(node)));
    }
    insta::assert_snapshot!(start.tick(), @"60: give up 1, failed, 2 of 4 joined: n1 Late { seconds: 60 } tried [] printed [], give up 3, failed, 2 of 4 joined: n3 Late { seconds: 60 } tried [] printed []");
}

/// A job inside Slurm, whose own node is the only one.
#[test]
fn the_nodes_of_another_job_of_slurm_share_a_command() {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let shell = words("srun --jobid={job} -w{host} sh");
    let srun = words("srun --jobid={job} -n{count} -w{hosts}");
    let command = StartCommand {
        argv: srun.into_iter().map(Into::into).collect(),
        nodes: Vec::new(),
        delivery: Delivery::Checked { shell },
        check: Vec::new(),
        prompting: Prompting::Never,
        elsewhere: None,
    };
    let late = LateStart::OfSlurm {
        command,
        environment: vec!["B=2".into()],
    };
    let plan = DaemonPlan {
        late: Some(Box::new(late)),
        commands: Vec::new(),
        ..plan(0, Delivery::Direct)
    };
    let mut start = Start(Bootstrap::new(at(0), plan, vec!["n0".to_owned()]));
    assert_eq!(start.outputs(), "");
    let nodes = [(1, "n4"), (2, "n5"), (3, "n7")];
    assert_eq!(start.add_of(1, Some(17), &nodes), "start 0, send 0 Frame");
    let argv = |start: &Start, command: usize| {
        let argv = &start.0.plan().commands[command].argv;
        argv.join(std::ffi::OsStr::new(" ")).into_string().unwrap()
    };
    assert_eq!(argv(&start, 0), "srun --jobid=17 -n3 -wn[4-5,7]");
    assert_eq!(start.0.plan().environment, ["B=2", "SSH_AUTH_SOCK=/new"]);
    // One of them needs the program.
    start.handle(2, Input::Joined(NodeId(1)));
    assert_eq!(
        start.print(3, 0, "@rally absent n5\n"),
        "start 1, send 1 Script"
    );
    assert_eq!(argv(&start, 1), "srun --jobid=17 -wn5 sh");
    start.handle(4, Input::Joined(NodeId(3)));
    // Its failure is that of the addition, and not of what runs.
    assert_eq!(
        start.exit(5, 1, 1),
        "give up 2, failed, 2 of 3 joined: n5 Exited(1) tried [] printed []"
    );
    assert_eq!(
        start.add_of(9, Some(18), &[(4, "n8")]),
        "start 2, send 2 Frame"
    );
}
