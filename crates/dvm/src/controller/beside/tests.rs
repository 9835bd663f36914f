//! Tools beside the jobs of a controller with three nodes.

use base::{ExitStatus, Usage};

use super::*;
use crate::{
    controller::{
        ControllerOutput,
        spawned::tests::job,
        tests::{FRONT, JOB, NODES, World},
    },
    proto::{
        Drained, EndClass, FromFront, Launch, StartFailure, StartStep, Started, ToController,
        ToDaemon,
    },
    spec::{Environment, OnFailure},
};

/// A front that has no job.
const OTHER: FrontId = FrontId(1);
const TOOL: JobId = JobId(2);

/// Creates a world in which the ranks run, and another front is connected.
fn running() -> World {
    let mut world = World::new();
    for node in 0..NODES {
        launched(&mut world, node, JOB, node);
    }
    world.connects(OTHER, 78);
    world
}

fn launched(world: &mut World, node: u32, job: JobId, rank: u32) -> Vec<String> {
    let started = Started {
        executable: "./a.out".into(),
        pids: vec![(Rank(rank), 1)],
    };
    words(world.says(
        node,
        ToController::Launched {
            job,
            started: vec![started],
            failures: Vec::new(),
            unenforced: Vec::new(),
        },
    ))
}

/// The rank with the number of this node ends, and nothing of the job remains there.
fn ends(world: &mut World, node: u32, job: JobId, status: ExitStatus) -> Vec<String> {
    let classes = vec![EndClass {
        status,
        drained: Drained::Whole,
        ranks: RankSet::single(Rank(node)),
    }];
    let spent = Usage::default();
    let mut said = words(world.says(node, ToController::Ended { job, classes }));
    said.extend(words(world.says(node, ToController::Clean { job, spent })));
    said
}

fn tool(target: JobRef, one_per: OnePer) -> FromFront {
    let mut spec = job(OnFailure::Continue);
    spec.apps[0].program = "tool".into();
    spec.apps[0].env = [("LD_LIBRARY_PATH", "/of/tool")].into_iter().collect();
    FromFront::StartTool(Box::new(ToolRequest {
        target,
        one_per,
        spec: Box::new(spec),
    }))
}

/// Formats what matters for these tests.
fn words(outputs: Vec<ControllerOutput>) -> Vec<String> {
    let daemon = |message| match message {
        ToDaemon::Launch(launch) => Some(format!("job {} is launched", launch.job)),
        ToDaemon::LaunchedElsewhere(_) => Some("learns of a job".to_owned()),
        ToDaemon::Signal { job, signal } => Some(format!("job {job}: signal {}", signal.0)),
        ToDaemon::End { job, .. } => Some(format!("job {job}: end")),
        ToDaemon::Event { .. } => Some("an event".to_owned()),
        _ => None,
    };
    let front = |message| match message {
        ToFront::Accepted(job) => Some(format!("accepted {job}")),
        ToFront::Launched { job, .. } => Some(format!("launched {job}")),
        ToFront::Refused(refusal) => Some(format!("refused: {refusal:?}")),
        ToFront::Tool(news) => Some(format!("{news:?}")),
        ToFront::Ended(outcome) => Some(format!("ended: {:?}", outcome.cause)),
        _ => None,
    };
    let one = |output| match output {
        ControllerOutput::Daemon(node, message) => {
            Some(format!("node {node}: {}", daemon(message)?))
        }
        ControllerOutput::Front(id, message) => Some(format!("front {id}: {}", front(message)?)),
        ControllerOutput::Log(text) => Some(text),
        _ => None,
    };
    outputs.into_iter().filter_map(one).collect()
}

fn launch_of(outputs: Vec<ControllerOutput>) -> Arc<Launch> {
    let launch = outputs.into_iter().find_map(|output| match output {
        ControllerOutput::Daemon(_, ToDaemon::Launch(launch)) => Some(launch),
        _ => None,
    });
    launch.expect("the tool is launched")
}

#[test]
fn a_tool_of_another_front_ends_with_its_target() {
    let mut world = running();
    let mut said = words(world.hears(OTHER, tool(JobRef::OfFront(77), OnePer::Node)));
    for node in 0..NODES {
        said.extend(launched(&mut world, node, TOOL, node));
    }
    said.push("---".to_owned());
    for node in 0..NODES {
        said.extend(ends(&mut world, node, JOB, ExitStatus::SUCCESS));
    }
    said.push("---".to_owned());
    for node in 0..NODES {
        said.extend(ends(&mut world, node, TOOL, ExitStatus::SUCCESS));
    }
    insta::assert_snapshot!(said.join("\n"), @"
    front 1: accepted 2
    node 0: job 2 is launched
    node 1: job 2 is launched
    node 2: job 2 is launched
    front 1: launched 2
    ---
    node 0: job 2: end
    node 1: job 2: end
    node 2: job 2: end
    node 0: an event
    node 1: an event
    node 2: an event
    front 0: ended: Success
    ---
    front 1: ended: Ended(TargetEnded)
    ");
    assert!(world.controller.is_idle());
}

#[test]
fn a_tool_of_its_own_front_is_reported_and_outlived() {
    let mut world = running();
    let mut said = words(world.hears(FRONT, tool(JobRef::Own, OnePer::Node)));
    for node in 0..NODES {
        said.extend(launched(&mut world, node, TOOL, node));
    }
    // Signals are for the ranks.
    said.extend(words(
        world.hears(FRONT, FromFront::Signal(base::Signal(10))),
    ));
    said.push("---".to_owned());
    said.extend(words(
        world.hears(FRONT, FromFront::End(EndReason::TimeLimit)),
    ));
    for node in 0..NODES {
        said.extend(ends(&mut world, node, JOB, ExitStatus::SUCCESS));
    }
    said.push("---".to_owned());
    for node in 0..NODES {
        said.extend(ends(&mut world, node, TOOL, ExitStatus::SUCCESS));
    }
    insta::assert_snapshot!(said.join("\n"), @"
    node 0: job 2 is launched
    node 1: job 2 is launched
    node 2: job 2 is launched
    front 0: Started(JobId(2))
    node 0: job 1: signal 10
    node 1: job 1: signal 10
    node 2: job 1: signal 10
    ---
    node 0: job 1: end
    node 1: job 1: end
    node 2: job 1: end
    node 0: job 2: end
    node 1: job 2: end
    node 2: job 2: end
    node 0: an event
    node 1: an event
    node 2: an event
    ---
    front 0: Ended { job: JobId(2), cause: Ended(TargetEnded) }
    front 0: ended: Ended(TimeLimit)
    ");
}

#[test]
fn the_end_of_a_tool_does_not_end_its_target() {
    let mut world = running();
    world.hears(FRONT, tool(JobRef::Own, OnePer::Node));
    let mut said = Vec::new();
    for node in 0..NODES {
        launched(&mut world, node, TOOL, node);
    }
    for node in 0..NODES {
        let status = ExitStatus::Exited(u8::try_from(node).unwrap());
        said.extend(ends(&mut world, node, TOOL, status));
    }
    insta::assert_snapshot!(said.join("\n"), @"front 0: Ended { job: JobId(2), cause: Failed { rank: Rank(1), status: Exited(1) } }");
    assert!(!world.controller.is_idle());
}

#[test]
fn a_tool_waits_until_the_ranks_of_its_target_are_known() {
    let mut world = World::new();
    let mut said = words(world.hears(FRONT, tool(JobRef::Own, OnePer::Node)));
    for node in 0..NODES {
        said.extend(launched(&mut world, node, JOB, node));
    }
    insta::assert_snapshot!(said.join("\n"), @"
    front 0: launched 1
    node 0: job 2 is launched
    node 1: job 2 is launched
    node 2: job 2 is launched
    ");
}

#[test]
fn where_there_is_nothing_to_be_beside() {
    let mut world = World::waiting();
    let mut said = words(world.hears(FRONT, tool(JobRef::Own, OnePer::Node)));
    let mut world = running();
    said.extend(words(
        world.hears(OTHER, tool(JobRef::Number(JobId(9)), OnePer::Node)),
    ));
    world.connects(OTHER, 79);
    said.extend(words(world.hears(OTHER, tool(JobRef::Own, OnePer::Node))));
    world.hears(FRONT, tool(JobRef::Own, OnePer::Node));
    said.extend(words(
        world.hears(FRONT, tool(JobRef::Number(TOOL), OnePer::Node)),
    ));
    insta::assert_snapshot!(said.join("\n"), @"
    front 0: Refused(NoTarget(NotStarted))
    front 1: refused: NoTarget(NoSuchJob)
    front 1: refused: NoTarget(NoSuchJob)
    front 0: Refused(NoTarget(IsTool))
    ");
}

#[test]
fn a_tool_that_cannot_be_started_is_never_said_to_run() {
    let mut world = running();
    world.hears(FRONT, tool(JobRef::Own, OnePer::Node));
    let failure = StartFailure {
        step: StartStep::Find,
        errno: 2,
        subject: Some("tool".into()),
    };
    let mut said = Vec::new();
    for node in 0..NODES {
        let failures = vec![(failure.clone(), RankSet::single(Rank(node)))];
        said.extend(words(world.says(
            node,
            ToController::Launched {
                job: TOOL,
                started: Vec::new(),
                failures,
                unenforced: Vec::new(),
            },
        )));
        let spent = Usage::default();
        said.extend(words(
            world.says(node, ToController::Clean { job: TOOL, spent }),
        ));
    }
    insta::assert_snapshot!(said.join("\n"), @r#"
    node 0: job 2: end
    node 1: job 2: end
    node 2: job 2: end
    front 0: Ended { job: JobId(2), cause: NotStarted([(StartFailure { step: Find, errno: 2, subject: Some("tool") }, RankSet(0-2))]) }
    "#);
}

/// The target lends what its ranks have, but what users change in the linker of ranks.
#[test]
fn what_a_tool_is() {
    let mut world = World::waiting();
    let target = world.controller.jobs.get_mut(&JOB).unwrap();
    let env: Environment = [
        ("HOME", "/home/u"),
        ("LD_LIBRARY_PATH", "/of/ranks"),
        ("LD_PRELOAD", "/map.so"),
    ]
    .into_iter()
    .collect();
    target.spec.apps[0].env = env;
    target.spec.apps[0].directory = "/run/here".into();
    let mut second = target.spec.apps[0].clone();
    second.directory = "/run/there".into();
    target.spec.apps.push(second);
    // The first app has the ranks on two nodes.
    let mut app = target.spec.placement.apps[0].clone();
    app.count = Some(1);
    target.spec.placement.apps.push(app);
    target.spec.placement.apps[0].count = Some(2);
    for node in 0..NODES {
        world.says(node, crate::controller::tests::hello(node));
    }
    for node in 0..NODES {
        launched(&mut world, node, JOB, node);
    }
    ends(&mut world, 1, JOB, ExitStatus::SUCCESS);
    let offset = world.controller.offset;
    let launch = launch_of(world.hears(FRONT, tool(JobRef::Own, OnePer::Rank)));
    assert_eq!(world.controller.offset, offset, "they are no ranks");
    let beside = launch.beside.clone().unwrap();
    assert_eq!(beside.target, JOB);
    assert_eq!(beside.ranks, [Rank(0), Rank(2)].into_iter().collect());
    let shown: Vec<String> = launch
        .map
        .nodes()
        .flat_map(|node| {
            launch
                .map
                .on_node(node)
                .into_iter()
                .map(move |one| (node, one))
        })
        .map(|(node, placed)| {
            let app = &launch.apps[placed.app as usize];
            let env = app.env.iter();
            let env: Vec<_> = env
                .map(|(name, value)| format!("{}={}", name.display(), value.display()))
                .collect();
            format!(
                "{} on node {node} in {}: {} {:?}",
                placed.rank,
                app.directory.display(),
                env.join(" "),
                app.elsewhere.more,
            )
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @"
    0 on node 0 in /run/here: HOME=/home/u LD_LIBRARY_PATH=/of/tool None
    1 on node 2 in /run/there: HOME=/home/u LD_LIBRARY_PATH=/of/tool None
    ");
}
