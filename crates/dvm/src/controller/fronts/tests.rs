//! Tests with two fronts of one controller, and a third one that has no job.

use base::{ExitStatus, JobId, NodeId, Rank, RankSet, Signal};
use bytes::Bytes;

use crate::{
    controller::{
        ControllerInput, ControllerOutput,
        spawned::tests::job,
        tests::{FRONT, JOB, NODES, World},
    },
    proto::{
        Chunk, ChunkEnd, Drained, EndClass, EndReason, FromFront, FrontId, JobRef, OutputCredit,
        Started, Stream, ToController, ToDaemon, ToFront,
    },
    spec::{HoldAt, HoldPlan, OnFailure, StdinTarget},
    stdio,
};

/// The front that has submitted the second job.
const OTHER: FrontId = FrontId(1);
const OTHER_JOB: JobId = JobId(2);
/// A front without a job.
const ASKER: FrontId = FrontId(2);

/// Creates a world with a second front. Its job has ranks on the first two nodes, reads input and is held.
fn world() -> World {
    let mut world = World::new();
    world.connects(OTHER, 78);
    let mut spec = job(OnFailure::EndJob);
    spec.placement.apps[0].count = Some(2);
    spec.stdin = StdinTarget::All;
    spec.hold = HoldPlan::all(HoldAt::Exec);
    let said = words(world.hears(OTHER, FromFront::Submit(Box::new(spec))));
    assert_eq!(said[0], "front 1: accepted 2");
    for node in 0..NODES {
        launched(&mut world, node, JOB, &[node]);
    }
    launched(&mut world, 0, OTHER_JOB, &[0]);
    launched(&mut world, 1, OTHER_JOB, &[1]);
    world
}

/// Formats the outputs that matter for these tests.
fn words(outputs: Vec<ControllerOutput>) -> Vec<String> {
    let daemon = |message| match message {
        ToDaemon::OutputCredit { job, bytes, .. } => Some(format!("job {job}: credit {bytes}")),
        ToDaemon::Stdin { job, bytes } => Some(format!("job {job}: input {bytes:?}")),
        ToDaemon::Signal { job, signal } => Some(format!("job {job}: signal {}", signal.0)),
        ToDaemon::End { job, .. } => Some(format!("job {job}: end")),
        ToDaemon::Kill { job } => Some(format!("job {job}: kill")),
        ToDaemon::Release { job, ranks } => Some(format!("job {job}: release {ranks}")),
        _ => None,
    };
    let front = |message| match message {
        ToFront::Accepted(job) => Some(format!("accepted {job}")),
        ToFront::Output { node, chunk } => Some(format!("output of job {} on {node}", chunk.job)),
        ToFront::StdinCredit(bytes) => Some(format!("input credit {bytes}")),
        ToFront::Ending(cause) => Some(format!("ending: {cause:?}")),
        ToFront::Ended(outcome) => Some(format!("ended: {:?}", outcome.cause)),
        ToFront::Released { job, ranks, held } => {
            Some(format!("job {job} released {ranks}, held {held:?}"))
        }
        ToFront::NotReleased(why) => Some(format!("{why:?}")),
        ToFront::Holding(jobs) => Some(format!("{jobs:?}")),
        ToFront::Lost(names) => Some(format!("lost: {names:?}")),
        _ => None,
    };
    let one = |output| match output {
        ControllerOutput::Daemon(node, message) => {
            Some(format!("node {node}: {}", daemon(message)?))
        }
        ControllerOutput::Front(id, message) => Some(format!("front {id}: {}", front(message)?)),
        ControllerOutput::Finished(id) => Some(format!("front {id}: finished")),
        ControllerOutput::Log(text) => Some(text),
        ControllerOutput::ReadFile { .. }
        | ControllerOutput::FindFiles { .. }
        | ControllerOutput::Syslog { .. }
        | ControllerOutput::Store(_)
        | ControllerOutput::Fetch { .. }
        | ControllerOutput::CaptureStart(..)
        | ControllerOutput::CaptureEnd(_)
        | ControllerOutput::Watch(_)
        | ControllerOutput::WatchEnd(_)
        | ControllerOutput::AddNodes { .. }
        | ControllerOutput::RunCommand { .. }
        | ControllerOutput::EndCommand(..)
        | ControllerOutput::Capture { .. } => None,
    };
    outputs.into_iter().filter_map(one).collect()
}

fn launched(world: &mut World, node: u32, job: JobId, ranks: &[u32]) {
    let started = Started {
        executable: "./a.out".into(),
        pids: ranks.iter().map(|rank| (Rank(*rank), 1)).collect(),
    };
    let started = vec![started];
    let failures = Vec::new();
    world.says(
        node,
        ToController::Launched {
            job,
            started,
            failures,
            unenforced: Vec::new(),
        },
    );
}

fn output(job: JobId, length: usize) -> ToController {
    let chunk = Chunk {
        job,
        rank: Rank(0),
        stream: Stream::Stdout,
        bytes: Bytes::from(vec![b'x'; length]),
        end: ChunkEnd::Partial,
    };
    ToController::Output { job, chunk }
}

fn credit(job: JobId, node: u32, bytes: u64) -> FromFront {
    FromFront::OutputCredit(OutputCredit {
        job,
        node: NodeId(node),
        stream: Stream::Stdout,
        bytes,
    })
}

/// Ends every rank of a job with code 0. Rank N runs on node N, for all N below `nodes`.
fn ends(world: &mut World, job: JobId, nodes: u32) -> Vec<String> {
    let mut said = Vec::new();
    for node in 0..nodes {
        let class = EndClass {
            status: ExitStatus::SUCCESS,
            drained: Drained::Whole,
            ranks: RankSet::single(Rank(node)),
        };
        let classes = vec![class];
        said.extend(words(
            world.says(node, ToController::Ended { job, classes }),
        ));
        said.extend(words(world.says(
            node,
            ToController::Clean {
                job,
                spent: base::Usage::default(),
            },
        )));
    }
    said
}

#[test]
fn each_front_has_output_and_credit_of_its_own() {
    let mut world = world();
    let mut said = words(world.says(0, output(JOB, 100)));
    said.extend(words(world.says(0, output(OTHER_JOB, 200))));
    said.extend(words(world.says(1, output(OTHER_JOB, 300))));
    // Credit beyond the uncredited output, credit when there is none, and credit for the job of another front.
    said.extend(words(world.hears(OTHER, credit(OTHER_JOB, 1, 10_000))));
    said.extend(words(world.hears(OTHER, credit(OTHER_JOB, 1, 1))));
    said.extend(words(world.hears(OTHER, credit(JOB, 0, 100))));
    said.extend(words(world.hears(FRONT, credit(JOB, 0, 50))));
    assert_eq!(stdio::cost(300), 556);
    insta::assert_snapshot!(said.join("\n"), @"
    front 0: output of job 1 on 0
    front 1: output of job 2 on 0
    front 1: output of job 2 on 1
    node 1: job 2: credit 556
    node 0: job 1: credit 50
    ");
}

#[test]
fn input_and_signals_reach_the_job_of_their_front() {
    let mut world = world();
    let granted = ToController::StdinCredit {
        job: OTHER_JOB,
        bytes: 64,
    };
    let mut said = words(world.says(0, granted.clone()));
    said.extend(words(world.says(1, granted)));
    let input = FromFront::Stdin(Bytes::from_static(b"a"));
    said.extend(words(world.hears(OTHER, input)));
    said.extend(words(world.hears(FRONT, FromFront::Signal(Signal::INT))));
    insta::assert_snapshot!(said.join("\n"), @r#"
    front 1: input credit 64
    node 0: job 2: input b"a"
    node 1: job 2: input b"a"
    node 0: job 1: signal 2
    node 1: job 1: signal 2
    node 2: job 1: signal 2
    "#);
}

#[test]
fn a_front_that_leaves_takes_only_its_own_job_along() {
    let mut world = world();
    world.says(0, output(JOB, 100));
    let mut said = words(world.handle(ControllerInput::FrontLost(FRONT)));
    said.extend(ends(&mut world, JOB, NODES));
    assert!(!world.controller.is_idle());
    said.push("---".to_owned());
    said.extend(words(world.says(1, output(OTHER_JOB, 300))));
    said.extend(ends(&mut world, OTHER_JOB, 2));
    assert!(world.controller.is_idle());
    insta::assert_snapshot!(said.join("\n"), @"
    node 0: job 1: credit 356
    node 0: job 1: end
    node 1: job 1: end
    node 2: job 1: end
    ---
    front 1: output of job 2 on 1
    front 1: ended: Success
    front 1: finished
    ");
}

#[test]
fn the_end_of_one_job_is_the_end_of_its_front_alone() {
    let mut world = world();
    let end = FromFront::End(EndReason::OutputLost);
    let mut said = words(world.hears(OTHER, end));
    said.extend(ends(&mut world, OTHER_JOB, 2));
    // Later inputs for this front are ignored.
    said.extend(words(world.hears(OTHER, credit(OTHER_JOB, 0, 1))));
    said.extend(words(world.handle(ControllerInput::FrontLost(OTHER))));
    assert!(!world.controller.is_idle());
    insta::assert_snapshot!(said.join("\n"), @"
    front 1: ending: Ended(OutputLost)
    node 0: job 2: end
    node 1: job 2: end
    front 1: ended: Ended(OutputLost)
    front 1: finished
    ");
}

#[test]
fn whoever_connects_may_release() {
    let mut world = world();
    world.connects(ASKER, 79);
    let release = |job, ranks: Option<&[u32]>| FromFront::Release {
        job,
        ranks: ranks.map(|ranks| ranks.iter().copied().map(Rank).collect()),
    };
    let mut said = Vec::new();
    for question in [
        FromFront::Holds,
        release(JobRef::Own, None),
        release(JobRef::Number(JobId(3)), None),
        release(JobRef::OfFront(77), None),
        release(JobRef::OfFront(78), Some(&[1])),
        release(JobRef::Number(OTHER_JOB), None),
        release(JobRef::Number(OTHER_JOB), None),
        FromFront::Holds,
        FromFront::Stdin(Bytes::from_static(b"a")),
        FromFront::End(EndReason::OutputLost),
    ] {
        said.push(format!("{question:?}"));
        said.extend(words(world.hears(ASKER, question)));
    }
    insta::assert_snapshot!(said.join("\n"), @r#"
    Holds
    front 2: [HoldingJob { job: JobId(2), front: Some(78) }]
    Release { job: Own, ranks: None }
    front 2: NoSuchJob
    Release { job: Number(JobId(3)), ranks: None }
    front 2: NoSuchJob
    Release { job: OfFront(77), ranks: None }
    front 2: NothingHeld
    Release { job: OfFront(78), ranks: Some(RankSet(1)) }
    node 0: job 2: release 1
    node 1: job 2: release 1
    front 1: job 2 released 1, held RankSet(0)
    front 2: job 2 released 1, held RankSet(0)
    Release { job: Number(JobId(2)), ranks: None }
    node 0: job 2: release 0
    node 1: job 2: release 0
    front 1: job 2 released 0, held RankSet()
    front 2: job 2 released 0, held RankSet()
    Release { job: Number(JobId(2)), ranks: None }
    front 2: NothingHeld
    Holds
    front 2: []
    Stdin(b"a")
    End(OutputLost)
    "#);
}

#[test]
fn whoever_connects_may_ask_for_lost_nodes() {
    let mut world = world();
    world.connects(ASKER, 79);
    let none = words(world.hears(ASKER, FromFront::LostNodes));
    assert_eq!(none, ["front 2: lost: []"]);
    world.lose(1);
    let one = words(world.hears(ASKER, FromFront::LostNodes));
    assert_eq!(one, [r#"front 2: lost: ["n1"]"#]);
    // The machine has forgotten it, and a job goes on without its ranks there.
    world.controller.forget_node(NodeId(1));
    let still = words(world.hears(ASKER, FromFront::LostNodes));
    assert_eq!(still, one);
    world.controller.forget_node(NodeId(7));
    assert_eq!(words(world.hears(ASKER, FromFront::LostNodes)), one);
}

#[test]
fn a_front_has_one_job() {
    let mut world = world();
    let second = || FromFront::Submit(Box::new(job(OnFailure::EndJob)));
    insta::assert_snapshot!(words(world.hears(OTHER, second())).join("\n"), @"
    node 0: job 2: end
    node 1: job 2: end
    front 1: finished
    ");
    // The front is disconnected once, whatever it still sends.
    assert_eq!(words(world.hears(OTHER, second())), [""; 0]);
    assert_eq!(words(world.hears(OTHER, FromFront::Holds)), [""; 0]);
}

#[test]
fn each_stranger_is_reported_once_by_whatever_node() {
    let mut world = world();
    let from = |host: u8| std::net::SocketAddr::from(([10, 9, 9, host], 40_000));
    let mut notes = |host: u8, node: Option<u32>| {
        let (from, why) = (from(host), "why".to_owned());
        let said = match node {
            Some(node) => world.says(node, ToController::Stranger { from, why }),
            None => world.handle(ControllerInput::Stranger { from, why }),
        };
        said.len()
    };
    let first = [notes(1, Some(2)), notes(2, None)];
    let again = [notes(1, None), notes(1, Some(0)), notes(2, Some(2))];
    assert_eq!((first, again), ([1, 1], [0, 0, 0]));
    let many: usize = (3..=255).map(|host| notes(host, Some(1))).sum();
    assert_eq!(many, crate::controller::STRANGERS_MAX - 2);
}
