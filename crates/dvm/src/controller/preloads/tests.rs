use base::{JobId, NodeId};
use bytes::Bytes;

use super::super::{
    ControllerInput, ControllerOutput,
    spawned::tests::job,
    tests::{NODES, World},
};
use crate::{
    proto::{
        EndReason, FromFront, FrontId, PreloadFailure, PreloadNews, Refusal, ToController,
        ToDaemon, ToFront, ToPreload,
    },
    spec::{OnFailure, Preload, PreloadFile, Preloaded},
};

/// A job with a file, after the job of the world.
const COPIED: JobId = JobId(2);
const SECOND: FrontId = FrontId(1);

/// Returns a world whose second job has a file of three bytes. The file was read, and offered to the nodes.
fn offered() -> World {
    let mut world = World::new();
    let mut spec = job(OnFailure::EndJob);
    spec.placement.apps[0].count = Some(NODES);
    spec.preload = Some(Preload {
        place: None,
        files: vec![PreloadFile {
            path: "/home/in".into(),
            name: "in".into(),
            mode: 0o644,
        }],
        use_of: Preloaded::default(),
    });
    world.connects(SECOND, 78);
    let asked = world.hears(SECOND, FromFront::Submit(Box::new(spec)));
    assert_eq!(words(&asked), ["read /home/in at 0"]);
    assert_eq!(
        words(&read(&mut world, "abc")),
        ["n0: begin", "n1: begin", "n2: begin"]
    );
    world
}

fn read(world: &mut World, bytes: &'static str) -> Vec<ControllerOutput> {
    world.handle(ControllerInput::FileRead {
        job: COPIED,
        result: Ok(Bytes::from_static(bytes.as_bytes())),
    })
}

fn say(world: &mut World, news: PreloadNews) -> Vec<String> {
    let all = (0..NODES).flat_map(|node| {
        let news = news.clone();
        world.says(node, ToController::Preload { job: COPIED, news })
    });
    words(&all.collect::<Vec<_>>())
}

fn words(outputs: &[ControllerOutput]) -> Vec<String> {
    let one = |output: &ControllerOutput| match output {
        ControllerOutput::Daemon(NodeId(node), ToDaemon::Preload { job, what }) => {
            assert_eq!(*job, COPIED);
            Some(match what {
                ToPreload::Begin(_) => format!("n{node}: begin"),
                ToPreload::Chunk { bytes, .. } => format!("n{node}: {} bytes", bytes.len()),
                ToPreload::Drop => format!("n{node}: drop"),
            })
        }
        ControllerOutput::Daemon(NodeId(node), ToDaemon::Launch(launch)) => {
            Some(format!("n{node}: launch {}", launch.job))
        }
        ControllerOutput::ReadFile { path, offset, .. } => {
            Some(format!("read {} at {offset}", path.display()))
        }
        ControllerOutput::Front(SECOND, ToFront::Refused(refusal)) => Some(match refusal {
            Refusal::NotPreloaded(failed) => {
                format!("refused: {:?}, {} others", failed.hosts, failed.others)
            }
            Refusal::NodeLost { host } => format!("refused: {host} is lost"),
            other => format!("{other:?}"),
        }),
        ControllerOutput::Front(SECOND, ToFront::Ended(_)) => Some("ended".to_owned()),
        ControllerOutput::Log(what) => Some(what.clone()),
        _ => None,
    };
    outputs.iter().filter_map(one).collect()
}

#[test]
fn the_launch_follows_the_last_copy() {
    let mut world = offered();
    assert_eq!(say(&mut world, PreloadNews::Ready), ["read /home/in at 0"]);
    assert_eq!(
        words(&read(&mut world, "abc")),
        ["n0: 3 bytes", "n1: 3 bytes", "n2: 3 bytes"]
    );
    assert_eq!(
        say(&mut world, PreloadNews::Stored),
        ["n0: launch 2", "n1: launch 2", "n2: launch 2"]
    );
    // From now on, the daemons remove the files by themselves.
    world.controller.drop_files(COPIED);
    assert_eq!(world.controller.poll(), None);
}

#[test]
fn a_node_that_cannot_store_the_files_is_named_and_the_others_drop_them() {
    let mut world = offered();
    let says = |world: &mut World, node, news| {
        words(&world.says(node, ToController::Preload { job: COPIED, news }))
    };
    let full = PreloadNews::Failed(PreloadFailure::NoRoom {
        directory: "/tmp".into(),
        needed: 3,
        free: 2,
    });
    assert_eq!(says(&mut world, 0, PreloadNews::Ready), [""; 0]);
    assert_eq!(says(&mut world, 1, full), [""; 0]);
    assert_eq!(
        says(&mut world, 2, PreloadNews::Ready),
        [
            "n0: drop",
            "n1: drop",
            "n2: drop",
            "refused: [\"n1\"], 2 others"
        ]
    );
}

#[test]
fn a_job_that_ends_before_its_launch_drops_its_files() {
    let ends: [fn(&mut World) -> Vec<ControllerOutput>; 3] = [
        |world| world.hears(SECOND, FromFront::End(EndReason::TerminalLost)),
        |world| world.handle(ControllerInput::FrontLost(SECOND)),
        |world| world.lose(1),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let mut world = offered();
        let heard = words(&end(&mut world));
        let dropped = heard.iter().filter(|word| word.ends_with("drop")).count();
        // A lost node is told nothing.
        let expected = if number == 2 { 2 } else { 3 };
        assert_eq!(dropped, expected, "{heard:?}");
        if number == 2 {
            assert!(
                heard.contains(&"refused: n1 is lost".to_owned()),
                "{heard:?}"
            );
        }
        // Answers that were under way are ignored.
        assert_eq!(say(&mut world, PreloadNews::Ready), [""; 0]);
        assert_eq!(words(&read(&mut world, "abc")), [""; 0]);
    }
}
