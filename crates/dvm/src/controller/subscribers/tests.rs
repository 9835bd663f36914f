//! Tests of which nodes get a copy of output.

use base::{ExitStatus, Rank, RankSet};
use bytes::Bytes;

use crate::{
    controller::{
        ControllerOutput,
        tests::{JOB, World, to_daemons},
    },
    proto::{
        Chunk, ChunkEnd, Drained, EndClass, FromServer, Stream, ToController, ToDaemon, ToFront,
        ToServer,
    },
};

fn copies(outputs: Vec<ControllerOutput>) -> String {
    to_daemons(outputs, |message| match message {
        ToDaemon::Server(message) => match *message {
            ToServer::Output {
                proc,
                stream,
                bytes,
            } => Some(format!("{stream:?} of {proc}: {bytes:?}")),
            _ => None,
        },
        _ => None,
    })
}

fn wants(world: &mut World, node: u32, streams: &[Stream]) {
    let wanted = FromServer::Wanted {
        job: JOB,
        streams: streams.to_vec(),
    };
    world.says(node, ToController::Server(Box::new(wanted)));
}

fn writes(world: &mut World, node: u32, stream: Stream) -> String {
    let chunk = Chunk {
        job: JOB,
        rank: Rank(node),
        stream,
        bytes: Bytes::from_static(b"words\n"),
        end: ChunkEnd::Line,
    };
    copies(world.says(node, ToController::Output { job: JOB, chunk }))
}

#[test]
fn other_nodes_get_the_streams_that_they_want() {
    let mut world = World::new();
    assert_eq!(writes(&mut world, 1, Stream::Stdout), "");
    wants(&mut world, 0, &Stream::BOTH);
    wants(&mut world, 1, &[Stream::Stdout]);
    insta::assert_snapshot!(writes(&mut world, 1, Stream::Stdout), @r#"0: Stdout of 1.1: b"words\n""#);
    insta::assert_snapshot!(writes(&mut world, 2, Stream::Stdout), @r#"
    0: Stdout of 1.2: b"words\n"
    1: Stdout of 1.2: b"words\n"
    "#);
    insta::assert_snapshot!(writes(&mut world, 2, Stream::Stderr), @r#"0: Stderr of 1.2: b"words\n""#);
    let ended = EndClass {
        status: ExitStatus::Exited(0),
        drained: Drained::Whole,
        ranks: RankSet::single(Rank(2)),
    };
    let classes = vec![ended];
    insta::assert_snapshot!(copies(world.says(2, ToController::Ended { job: JOB, classes })), @r#"
    0: Stdout of 1.2: b""
    1: Stdout of 1.2: b""
    0: Stderr of 1.2: b""
    "#);
    wants(&mut world, 0, &[]);
    assert_eq!(writes(&mut world, 2, Stream::Stderr), "");
    world.lose(1);
    assert_eq!(writes(&mut world, 2, Stream::Stdout), "");
}

/// The output of ranks on a node that is lost ends.
#[test]
fn the_output_of_a_lost_node_ends() {
    let mut world = World::new();
    wants(&mut world, 0, &[Stream::Stdout]);
    insta::assert_snapshot!(copies(world.lose(2)), @r#"0: Stdout of 1.2: b"""#);
}

/// The front does not get what tools on a node have taken, until they let it go or the node is lost.
#[test]
fn output_may_go_to_tools_in_place_of_the_front() {
    let mut world = World::new();
    let shown = |world: &mut World, stream| {
        let chunk = Chunk {
            job: JOB,
            rank: Rank(2),
            stream,
            bytes: Bytes::from_static(b"words\n"),
            end: ChunkEnd::Line,
        };
        let outputs = world.says(2, ToController::Output { job: JOB, chunk });
        let to_front = |output: &ControllerOutput| {
            matches!(output, ControllerOutput::Front(_, ToFront::Output { .. }))
        };
        let is_shown = outputs.iter().any(to_front);
        let credits = to_daemons(outputs, |message| match message {
            ToDaemon::OutputCredit { stream, bytes, .. } => Some(format!("{stream:?} {bytes}")),
            _ => None,
        });
        (is_shown, credits)
    };
    let redirect = |world: &mut World, node, stdout: &str, stderr: &str| {
        let redirected = FromServer::Redirected {
            job: JOB,
            stdout: stdout.parse().unwrap(),
            stderr: stderr.parse().unwrap(),
        };
        world.says(node, ToController::Server(Box::new(redirected)));
    };
    assert_eq!(shown(&mut world, Stream::Stdout), (true, String::new()));
    redirect(&mut world, 0, "2", "");
    redirect(&mut world, 1, "0-1", "1-2");
    // The node gets its credit at once.
    assert_eq!(
        shown(&mut world, Stream::Stdout),
        (false, "2: Stdout 262".to_owned())
    );
    assert_eq!(
        shown(&mut world, Stream::Stderr),
        (false, "2: Stderr 262".to_owned())
    );
    world.lose(1);
    assert_eq!(shown(&mut world, Stream::Stderr), (true, String::new()));
    redirect(&mut world, 0, "", "");
    assert_eq!(shown(&mut world, Stream::Stdout), (true, String::new()));
}
