//! Tests of which nodes get a copy of output.

use base::{ExitStatus, Rank, RankSet};
use bytes::Bytes;

use crate::{
    controller::{
        ControllerOutput,
        tests::{JOB, World, to_daemons},
    },
    proto::{
        Chunk, ChunkEnd, Drained, EndClass, FromServer, Stream, ToController, ToDaemon, ToServer,
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
