//! Tests of the `Hello` of daemons.

use base::{JobId, NodeId, Signal};

use crate::{
    controller::{
        ControllerInput, ControllerOutput,
        spawned::tests::job,
        tests::{JOB, NODES, World, hello},
    },
    place::Oversubscribe,
    proto::{
        FromFront, FrontId, NotEnforced, Note, ToController, ToDaemon, ToFront, Unenforced, VERSION,
    },
    spec::{
        JobSpec, LimitedResource, MapFor, OnFailure, Preload, PreloadFile, Preloaded, UniverseSize,
    },
};

/// Formats the outputs that matter for these tests.
fn words(outputs: Vec<ControllerOutput>) -> Vec<String> {
    let one = |output| match output {
        ControllerOutput::Daemon(node, ToDaemon::Launch(launch)) => {
            let names: Vec<&str> = launch.nodes.iter().map(|node| node.host.as_str()).collect();
            Some(format!("{node}: launch on {}", names.join(", ")))
        }
        ControllerOutput::Front(_, ToFront::Refused(refusal)) => Some(format!("{refusal:?}")),
        ControllerOutput::Log(text) => Some(text),
        _ => None,
    };
    outputs.into_iter().filter_map(one).collect()
}

fn of_version(node: u32, theirs: u32) -> ToController {
    match hello(node) {
        ToController::Hello {
            node,
            host,
            topology,
            ..
        } => ToController::Hello {
            resources: Default::default(),
            version: theirs,
            node,
            host,
            topology,
        },
        other => other,
    }
}

#[test]
fn a_job_waits_for_all_daemons() {
    let mut world = World::waiting();
    for node in 1..NODES {
        assert_eq!(words(world.says(node, hello(node))), [""; 0]);
    }
    insta::assert_snapshot!(words(world.says(0, hello(0))).join("\n"), @"
    0: launch on n0, n1, n2
    1: launch on n0, n1, n2
    2: launch on n0, n1, n2
    ");
}

/// The daemon beside a controller that is no node hears of the job, and runs no rank, even if nobody has said which nodes are meant.
#[test]
fn nothing_runs_on_a_door() {
    let mut world = World::after(Some(ControllerInput::Door));
    let is_told = |output: &ControllerOutput| {
        matches!(
            output,
            ControllerOutput::Daemon(NodeId(NODES), ToDaemon::LaunchedElsewhere(_))
        )
    };
    for node in [NODES, 2, 1] {
        assert_eq!(words(world.says(node, hello(node))), [""; 0]);
    }
    let outputs = world.says(0, hello(0));
    assert!(outputs.iter().any(is_told));
    insta::assert_snapshot!(words(outputs).join("\n"), @"
    0: launch on n0, n1, n2
    1: launch on n0, n1, n2
    2: launch on n0, n1, n2
    ");
}

#[test]
fn a_daemon_of_another_version_is_refused_with_the_job() {
    let mut world = World::waiting();
    let refused = words(world.says(0, of_version(0, VERSION + 1))).join("\n");
    let expected = format!(
        "OtherVersion {{ host: \"n0\", ours: {VERSION}, theirs: {} }}",
        VERSION + 1
    );
    assert_eq!(refused, expected);
}

/// A node is lost while the job waits for daemons, or before it is submitted.
#[test]
fn a_job_that_would_wait_for_a_lost_node_is_refused() {
    let mut world = World::waiting();
    world.says(0, hello(0));
    insta::assert_snapshot!(words(world.lose(1)).join("\n"), @r#"NodeLost { host: "n1" }"#);
    let mut world = World::new();
    world.lose(1);
    let submitted = submit(&mut world, job(OnFailure::EndJob));
    insta::assert_snapshot!(words(submitted).join("\n"), @r#"NodeLost { host: "n1" }"#);
}

/// Submits a job by a further front.
fn submit(world: &mut World, spec: JobSpec) -> Vec<ControllerOutput> {
    let front = FrontId(7);
    world.connects(front, 1);
    world.hears(front, FromFront::Submit(Box::new(spec)))
}

/// The agents of a debugger are such a job.
#[test]
fn a_further_job_that_continues_is_placed_on_the_other_nodes() {
    let mut world = World::new();
    world.lose(1);
    let mut spec = job(OnFailure::Continue);
    spec.placement.apps[0].count = Some(2);
    spec.placement.oversubscribe = Oversubscribe::Allow;
    spec.universe = Some(UniverseSize::Slots);
    let submitted = submit(&mut world, spec);
    let sizes = submitted.iter().filter_map(|output| match output {
        ControllerOutput::Daemon(_, ToDaemon::Launch(launch)) => Some(launch.universe),
        _ => None,
    });
    let sizes: Vec<u32> = sizes.map(|universe| universe.slots).collect();
    assert_eq!(sizes, [2, 2]);
    insta::assert_snapshot!(words(submitted).join("\n"), @"
    0: launch on n0, n2
    2: launch on n0, n2
    ");
}

/// Daemons on other nodes may take long to start.
#[test]
fn an_interrupt_ends_a_job_that_waits_for_daemons() {
    let mut world = World::waiting();
    let front = *world.controller.fronts.keys().next().unwrap();
    world.hears(front, FromFront::Signal(Signal::USR1));
    assert!(!world.controller.is_idle());
    world.hears(front, FromFront::Signal(Signal::INT));
    assert!(world.controller.is_idle());
}

/// The daemon is connected already, so the job goes on whatever a second `Hello` contains.
#[test]
fn a_second_hello_is_ignored() {
    let mut world = World::new();
    let renamed = match hello(1) {
        ToController::Hello {
            version,
            node,
            topology,
            ..
        } => ToController::Hello {
            resources: Default::default(),
            version,
            node,
            host: "other".to_owned(),
            topology,
        },
        other => other,
    };
    let mut heard = Vec::new();
    for message in [hello(1), of_version(1, VERSION + 1), renamed] {
        heard.extend(words(world.says(1, message)));
    }
    insta::assert_snapshot!(heard.join("\n"), @"
    the daemon on node 1 says hello again: ignored
    the daemon on node 1 says hello again: ignored
    the daemon on node 1 says hello again: ignored
    ");
    assert_eq!(world.controller.nodes[&NodeId(1)].host, "n1");
}

/// A daemon of another version, which cannot take part in later jobs, does not cause a running job to be refused.
#[test]
fn another_version_does_not_end_what_runs() {
    let mut world = World::new();
    world.lose(2);
    let heard = words(world.says(2, of_version(2, VERSION + 1)));
    assert_eq!(heard, [""; 0]);
}

/// Two jobs may wait for the daemons together. Neither has a size before it is placed.
#[test]
fn no_two_jobs_have_the_same_global_ranks() {
    let mut world = World::waiting();
    let other = FrontId(7);
    world.connects(other, 78);
    world.hears(other, FromFront::Submit(Box::new(job(OnFailure::Continue))));
    let mut launched = Vec::new();
    for node in 0..NODES {
        for output in world.says(node, hello(node)) {
            if let ControllerOutput::Daemon(NodeId(0), ToDaemon::Launch(launch)) = output {
                launched.push((launch.job, launch.offset));
            }
        }
    }
    assert_eq!(launched, [(JOB, 0), (JobId(2), NODES)]);
}

/// The map is made as for a launch, and nothing is launched, read or copied.
#[test]
fn a_job_that_is_only_placed_ends_with_its_map() {
    let mut world = World::waiting();
    let other = FrontId(7);
    world.connects(other, 78);
    let mut spec = job(OnFailure::Continue);
    spec.placement.apps[0].count = Some(2);
    spec.map = MapFor::Front;
    let file = PreloadFile {
        path: "/in".into(),
        name: "in".into(),
        mode: 0o400,
    };
    spec.preload = Some(Preload {
        place: None,
        files: vec![file],
        use_of: Preloaded::default(),
    });
    let mut heard = world.hears(other, FromFront::Submit(Box::new(spec)));
    for node in 0..NODES {
        heard.extend(world.says(node, hello(node)));
    }
    let mut said = Vec::new();
    for output in heard {
        match output {
            ControllerOutput::Front(front, ToFront::Placed { map, topologies }) => {
                let kinds = topologies.kinds().len();
                said.push(format!("{front}: {} ranks, {kinds} kind", map.ranks()));
            }
            ControllerOutput::Finished(front) => said.push(format!("{front} is finished")),
            ControllerOutput::Daemon(node, ToDaemon::Launch(launch)) => {
                assert_eq!(launch.job, JOB);
                said.push(format!("launch on {node}"));
            }
            ControllerOutput::ReadFile { .. } => said.push("a file is read".to_owned()),
            _ => {}
        }
    }
    insta::assert_snapshot!(said.join("\n"), @"
    launch on 0
    launch on 1
    launch on 2
    7: 2 ranks, 1 kind
    7 is finished
    ");
}

/// The front may show the map before there is output.
#[test]
fn a_front_that_wants_the_map_gets_it_before_the_launch() {
    let mut world = World::new();
    let other = FrontId(7);
    world.connects(other, 78);
    let mut spec = job(OnFailure::Continue);
    spec.map = MapFor::FrontAndLaunch;
    let heard = world.hears(other, FromFront::Submit(Box::new(spec)));
    let is_placed = |output: &ControllerOutput| {
        matches!(output, ControllerOutput::Front(_, ToFront::Placed { .. }))
    };
    let is_launch = |output: &ControllerOutput| {
        matches!(output, ControllerOutput::Daemon(_, ToDaemon::Launch(_)))
    };
    let placed = heard.iter().position(is_placed).unwrap();
    assert!(placed < heard.iter().position(is_launch).unwrap());
    assert_eq!(heard.iter().filter(|output| is_placed(output)).count(), 1);
}

#[test]
fn nodes_that_do_not_enforce_a_limit_for_the_same_reason_share_a_note() {
    let mut world = World::new();
    let mut notes = Vec::new();
    for node in 0..NODES {
        let why = match node {
            1 => NotEnforced::Shared,
            _ => NotEnforced::NoCgroups,
        };
        let limits = [LimitedResource::Cpu].into();
        let outputs = world.says(
            node,
            ToController::Launched {
                job: JOB,
                started: Vec::new(),
                failures: Vec::new(),
                unenforced: vec![Unenforced { why, limits }],
            },
        );
        let noted = outputs.into_iter().filter_map(|output| match output {
            ControllerOutput::Front(_, ToFront::Note(Note::NotLimited { hosts, unenforced })) => {
                Some(format!("{hosts}: {:?}", unenforced.why))
            }
            _ => None,
        });
        let noted: Vec<String> = noted.collect();
        assert!(noted.is_empty() || node + 1 == NODES, "{noted:?}");
        notes.extend(noted);
    }
    assert_eq!(notes, ["n[0,2]: NoCgroups", "n1: Shared"]);
}
