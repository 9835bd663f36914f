//! Starts in which daemons start others.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A plan for ssh in which daemons start others, and each process starts `radix` others at a time.
fn tree(nodes: u32, radix: u32) -> DaemonPlan {
    let mut plan = DaemonPlan {
        radix: NonZeroU32::new(radix).unwrap(),
        tree_start: TreeStart::From(1),
        ..plan(nodes, Delivery::Staged)
    };
    for command in &mut plan.commands {
        command.elsewhere = Some(vec!["ssh".into(), "-oBatchMode=yes".into()]);
    }
    plan
}

impl Start {
    /// Reports an event of a command that a daemon runs.
    fn from(&mut self, time: u64, node: u32, input: Input) -> String {
        self.0.handle_from(at(time), NodeId(node), input);
        self.outputs()
    }

    fn print_from(&mut self, time: u64, node: u32, command: CommandId, text: &str) -> String {
        let bytes = text.as_bytes().to_vec();
        self.from(time, node, Input::Printed { command, bytes })
    }

    fn join(&mut self, time: u64, node: u32) -> String {
        self.handle(time, Input::Joined(NodeId(node)))
    }
}

fn exited(command: CommandId) -> Input {
    let status = ExitStatus::Exited(255);
    Input::Exited { command, status }
}

/// A start of some nodes, one at a time. The head has started node 0, which starts node 1; the head starts node 2.
fn one_at_a_daemon(nodes: u32) -> Start {
    let mut start = Start::of(nodes, tree(nodes, 1));
    assert_eq!(start.outputs(), "start 0, send 0 Script");
    assert_eq!(start.print(1, 0, "@rally have x\n"), "send 0 Frame");
    assert_eq!(
        start.join(1, 0),
        "start 1 at 0, send 1 Script at 0, start 2, send 2 Script"
    );
    start
}

#[test]
fn daemons_that_have_joined_start_others() {
    let mut start = one_at_a_daemon(4);
    let need = format!("@rally which\n@rally need {}\n", own_system());
    assert_eq!(
        start.print_from(2, 0, 1, &need),
        "send 1 Hash at 0, send 1 Program at 0"
    );
    assert_eq!(
        start.print_from(3, 0, 1, "@rally have x\n"),
        "send 1 Frame at 0"
    );
    // The place is free again, and the new daemon is a place too: the first of them gets the last node.
    assert_eq!(start.join(4, 1), "start 3 at 1, send 3 Script at 1");
    start.print(4, 2, "@rally have x\n");
    start.print_from(4, 1, 3, "@rally have x\n");
    start.join(4, 2);
    assert_eq!(start.join(4, 3), "");
    assert_eq!(start.0.deadline(), None);
    // Each daemon ends its own commands.
    start.handle(5, Input::Over);
    assert_eq!(start.exit(5, 0, 0), "");
    assert_eq!(start.tick(), "6: kill 2");
    assert!(start.0.is_over());
}

#[test]
fn a_list_that_is_short_or_has_other_commands_is_started_by_the_head() {
    let short = DaemonPlan {
        tree_start: TreeStart::From(5),
        ..tree(4, 1)
    };
    let never = DaemonPlan {
        tree_start: TreeStart::Never,
        ..tree(4, 1)
    };
    let mut direct = tree(4, 1);
    direct.commands[3].delivery = Delivery::Direct;
    let mut only_here = tree(4, 1);
    only_here.commands[2].elsewhere = None;
    let mut of_two = tree(4, 1);
    of_two.commands[2].nodes.push(NodeId(4));
    for plan in [short, never, direct, only_here, of_two] {
        let mut start = Start::of(5, plan);
        let first = start.outputs();
        assert_eq!(first.matches("start").count(), 4, "{first}");
        assert_eq!(start.join(1, 0), "");
    }
    assert!(tree(4, 1).starts_in_tree());
}

/// Whatever goes wrong at a daemon, the head starts the node once more. Only then it counts.
#[test]
fn the_head_starts_a_node_again_that_a_daemon_could_not_start() {
    let print = |text: &str| Input::Printed {
        command: 1,
        bytes: text.as_bytes().to_vec(),
    };
    let need = format!("@rally need {}\n", own_system());
    let tick = |after: Duration| (Some(at(1) + after), Input::Tick);
    /// An event, with its time if that is another one than of the event before.
    type Event = (Option<Time>, Input);
    let cases: &[(&str, Vec<Event>)] = &[
        (
            "not started",
            vec![(
                None,
                Input::NotStarted {
                    command: 1,
                    why: "`ssh` is not in PATH".to_owned(),
                },
            )],
        ),
        ("exited", vec![(None, exited(1))]),
        (
            "exited while it joins",
            vec![(None, print("@rally have x\n")), (None, exited(1))],
        ),
        (
            "another system",
            vec![(None, print("@rally need Linux sparc64\n"))],
        ),
        ("no directory", vec![(None, print("@rally none\n"))]),
        ("no answer", vec![tick(DAEMON_STEP_MAX)]),
        (
            "not taken",
            vec![(None, print(&need)), tick(DAEMON_STEP_MAX)],
        ),
        (
            "late",
            vec![(None, print("@rally have x\n")), tick(JOIN_MAX)],
        ),
        ("starter lost", vec![(None, Input::Lost(NodeId(0)))]),
    ];
    let run = |(name, events): &(&str, Vec<(Option<Time>, Input)>)| {
        let mut start = one_at_a_daemon(3);
        // The head is free for the node.
        start.print(1, 2, "@rally have x\n");
        start.join(1, 2);
        let mut last = String::new();
        for (time, input) in events {
            let time = time.unwrap_or(at(1));
            match input {
                Input::Tick | Input::Lost(_) => start.0.handle(time, input.clone()),
                _ => start.0.handle_from(time, NodeId(0), input.clone()),
            }
            last = start.outputs();
        }
        // The daemon says no more about it that counts.
        assert_eq!(start.from(70, 0, exited(1)), "", "{name}");
        assert_eq!(start.print_from(70, 0, 1, "@rally have x\n"), "", "{name}");
        start.print(70, 1, "ssh: no way to n1\n");
        format!("{name}: {last}; {}", start.exit(70, 1, 255))
    };
    let text: Vec<_> = cases.iter().map(run).collect();
    insta::assert_snapshot!(text.join("\n"), @r#"
    not started: start 1, send 1 Script; give up 1, failed, 2 of 3 joined: n1 Exited(255) tried [] printed ["ssh: no way to n1"] after n0
    exited: start 1, send 1 Script; give up 1, failed, 2 of 3 joined: n1 Exited(255) tried [] printed ["ssh: no way to n1"] after n0
    exited while it joins: start 1, send 1 Script; give up 1, failed, 2 of 3 joined: n1 Exited(255) tried [] printed ["ssh: no way to n1"] after n0
    another system: kill 1 at 0, start 1, send 1 Script; give up 1, failed, 2 of 3 joined: n1 Exited(255) tried [] printed ["ssh: no way to n1"] after n0
    no directory: kill 1 at 0, start 1, send 1 Script; give up 1, failed, 2 of 3 joined: n1 Exited(255) tried [] printed ["ssh: no way to n1"] after n0
    no answer: kill 1 at 0, start 1, send 1 Script; give up 1, failed, 2 of 3 joined: n1 Exited(255) tried [] printed ["ssh: no way to n1"] after n0
    not taken: kill 1 at 0, start 1, send 1 Script; give up 1, failed, 2 of 3 joined: n1 Exited(255) tried [] printed ["ssh: no way to n1"] after n0
    late: kill 1 at 0, start 1, send 1 Script; give up 1, failed, 2 of 3 joined: n1 Exited(255) tried [] printed ["ssh: no way to n1"] after n0
    starter lost: start 1, send 1 Script; give up 1, failed, 2 of 3 joined: n1 Exited(255) tried [] printed ["ssh: no way to n1"] after n0
    "#);
}

/// A daemon waits for the one above it. The head may be full of those that wait for a node that failed elsewhere.
#[test]
fn the_head_does_not_wait_for_those_that_wait_for_a_failed_node() {
    let mut start = one_at_a_daemon(4);
    assert_eq!(start.from(1, 0, exited(1)), "");
    assert_eq!(
        start.print(2, 2, "@rally have x\n"),
        "send 2 Frame, start 1, send 1 Script"
    );
    start.print(3, 1, "@rally have x\n");
    assert_eq!(start.join(4, 1), "start 3 at 1, send 3 Script at 1");
    assert_eq!(start.join(4, 2), "");
}

#[test]
fn a_daemon_whose_command_has_failed_gets_no_other() {
    let mut start = Start::of(12, tree(12, 2));
    start.outputs();
    let first = start.join(1, 0);
    assert_eq!(
        first,
        "start 2 at 0, send 2 Script at 0, start 3, send 3 Script"
    );
    // One each, until a daemon has started another one.
    assert_eq!(
        start.join(1, 1),
        "start 4 at 1, send 4 Script at 1, start 5, send 5 Script"
    );
    // The head is full.
    assert_eq!(start.from(2, 0, exited(2)), "");
    assert_eq!(
        start.join(3, 4),
        "start 6 at 4, send 6 Script at 4, start 7 at 1, send 7 Script at 1, start 8 at 4, send 8 Script at 4, start 9 at 1, send 9 Script at 1"
    );
    // Those that failed elsewhere come first.
    assert_eq!(
        start.join(3, 3),
        "start 2, send 2 Script, start 10 at 3, send 10 Script at 3, start 11 at 3, send 11 Script at 3"
    );
}

#[test]
fn the_head_starts_all_when_several_daemons_could_not() {
    let nodes = 40;
    let mut start = Start::of(nodes, tree(nodes, 8));
    start.outputs();
    // A node that joins, and the command that fails at it then. One place of the head is free at a time, and it takes a node
    // that failed elsewhere first.
    let joined = [
        (0, Some(8)),
        (1, Some(10)),
        (2, Some(11)),
        (3, Some(12)),
        (4, None),
        (5, None),
    ];
    let text: Vec<_> = joined
        .into_iter()
        .map(|(node, fails)| {
            let outputs = start.join(1, node);
            if let Some(command) = fails {
                assert_eq!(start.from(2, node, exited(command)), "");
            }
            outputs
        })
        .collect();
    insta::assert_snapshot!(text.join("\n"), @"
    start 8 at 0, send 8 Script at 0, start 9, send 9 Script
    start 8, send 8 Script, start 10 at 1, send 10 Script at 1
    start 10, send 10 Script, start 11 at 2, send 11 Script at 2
    start 11, send 11 Script, start 12 at 3, send 12 Script at 3
    start 12, send 12 Script
    start 13, send 13 Script
    ");
}

#[test]
fn a_daemon_that_joins_although_its_command_has_failed_is_not_started_again() {
    let mut start = one_at_a_daemon(4);
    start.print_from(1, 0, 1, "@rally have x\n");
    assert_eq!(start.from(2, 0, exited(1)), "");
    assert_eq!(start.join(3, 1), "start 3 at 1, send 3 Script at 1");
    start.print(4, 2, "@rally have x\n");
    assert_eq!(start.join(4, 2), "");
    // And the command that the head had started meanwhile counts for nothing.
    let mut start = one_at_a_daemon(3);
    start.join(1, 2);
    start.print_from(1, 0, 1, "@rally have x\n");
    assert_eq!(start.from(2, 0, exited(1)), "start 1, send 1 Script");
    start.join(3, 1);
    assert_eq!(start.exit(4, 1, 1), "");
    assert_eq!(start.0.failures(0..3).classes, []);
}

#[test]
fn a_daemon_has_a_bound_of_commands() {
    let mut places = Places::tree(NonZeroU32::MIN);
    places.open(NodeId(3));
    assert_eq!(places.take_head(), Some(Place::Head));
    let taken = std::iter::from_fn(|| {
        let place = places.take_any()?;
        places.give_back(place);
        Some(place)
    });
    let taken: Vec<Place> = taken.take(1000).collect();
    assert_eq!(
        taken,
        [Place::Daemon(NodeId(3)); DAEMON_COMMANDS_MAX as usize]
    );
}

/// What happens to a node of the test below.
#[derive(Clone, Copy, Debug)]
struct Fate {
    /// Whether its start from a daemon and from the head succeeds.
    from_daemon: bool,
    from_head: bool,
    /// Whether its daemon is lost after it has joined.
    lost: bool,
}

/// The commands that run.
#[derive(Debug, Default)]
struct World {
    /// The place of each command that is in progress.
    open: BTreeMap<CommandId, Place>,
    started: BTreeMap<CommandId, Vec<Place>>,
    joined: BTreeSet<NodeId>,
    failed: BTreeSet<NodeId>,
}

impl World {
    fn take(&mut self, bootstrap: &mut Bootstrap, head_max: usize, daemon_max: usize) {
        while let Some(output) = bootstrap.poll() {
            match output {
                Output::Start(place, id) => {
                    self.open.insert(id, place);
                    self.started.entry(id).or_default().push(place);
                    if let Place::Daemon(node) = place {
                        assert!(self.joined.contains(&node), "{node} has not joined");
                    }
                }
                Output::Kill(place, id) => {
                    assert_eq!(self.open.remove(&id), Some(place));
                }
                Output::GiveUp(node) => assert!(self.failed.insert(node)),
                Output::Send(place, id, _) => assert_eq!(self.open.get(&id), Some(&place)),
                Output::Failed(_) => {}
            }
        }
        let mut at: BTreeMap<Place, usize> = BTreeMap::new();
        for place in self.open.values() {
            *at.entry(*place).or_default() += 1;
        }
        for (place, count) in at {
            let most = match place {
                Place::Head => head_max,
                Place::Daemon(_) => daemon_max,
            };
            assert!(count <= most, "{count} at {place:?}");
        }
    }
}

proptest! {
    /// Each node is started once at a daemon and once at the head at most, and ends joined or failed. No place runs more
    /// commands than it may.
    #[test]
    fn every_node_is_started_and_joins_or_fails(
        fates in proptest::collection::vec(
            (any::<bool>(), proptest::bool::weighted(0.9), proptest::bool::weighted(0.1)), 1..120,
        ),
        radix in 1_u32..12,
        order in proptest::collection::vec(any::<prop::sample::Index>(), 600),
    ) {
        let fates: Vec<Fate> = fates
            .into_iter()
            .map(|(from_daemon, from_head, lost)| Fate { from_daemon, from_head, lost })
            .collect();
        let count = u32::try_from(fates.len()).unwrap();
        let plan = tree(count, radix);
        let hosts = (0..count).map(|node| format!("n{node}")).collect();
        let mut bootstrap = Bootstrap::new(at(0), plan, hosts).with_those_that_join();
        let (head_max, daemon_max) = (
            PARALLEL.get().min(radix) as usize,
            DAEMON_PARALLEL.get().min(radix) as usize,
        );
        let mut world = World::default();
        world.take(&mut bootstrap, head_max, daemon_max);
        for index in order.iter().cycle() {
            if world.open.is_empty() {
                break;
            }
            let which = index.index(world.open.len());
            let (id, place) = world.open.iter().nth(which).map(|(id, place)| (*id, *place)).unwrap();
            world.open.remove(&id);
            let fate = fates[id as usize];
            let node = NodeId(id);
            let is_well = match place {
                Place::Head => fate.from_head,
                Place::Daemon(_) => fate.from_daemon,
            };
            match place {
                _ if is_well => {
                    world.joined.insert(node);
                    bootstrap.handle(at(1), Input::Joined(node));
                    world.take(&mut bootstrap, head_max, daemon_max);
                    if fate.lost {
                        world.open.retain(|_, place| *place != Place::Daemon(node));
                        bootstrap.handle(at(1), Input::Lost(node));
                    }
                }
                Place::Head => bootstrap.handle(at(1), exited(id)),
                Place::Daemon(by) => bootstrap.handle_from(at(1), by, exited(id)),
            }
            world.take(&mut bootstrap, head_max, daemon_max);
        }
        for (id, fate) in (0..count).zip(&fates) {
            let node = NodeId(id);
            let started = &world.started[&id];
            let ways: Vec<bool> = started.iter().map(|place| *place == Place::Head).collect();
            prop_assert!(matches!(ways[..], [_] | [false, true]), "{started:?}");
            prop_assert!(world.joined.contains(&node) != world.failed.contains(&node));
            // Only the head's own failure counts.
            if world.failed.contains(&node) {
                prop_assert!(!fate.from_head && ways.ends_with(&[true]));
            }
        }
        // Commands of lost daemons may run a little longer.
        while let Some(due) = bootstrap.deadline() {
            prop_assert!(due <= at(1) + EXIT_MAX);
            bootstrap.handle(due, Input::Tick);
            while let Some(output) = bootstrap.poll() {
                prop_assert!(matches!(output, Output::Kill(Place::Head, _)), "{output:?}");
            }
        }
    }
}
