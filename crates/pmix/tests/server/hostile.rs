//! Peers that disconnect, stall, and send false data: only their own connection is affected.

use bytes::Bytes;
use pmix::{
    frame::{self, Framer, MAX_MESSAGE},
    handshake::{Hello, MAX_HANDSHAKE},
    message::Request,
    server::{Conn, Input, PeerOwner},
    value::{Proc, Status},
};

use crate::{
    recording::{self, Recording, Side},
    world::{UID, V5, World, fence, hello, job, nspace, proc},
};

/// Returns the longest recorded dialogue of a library version. Each of its bytes is a place to disconnect.
fn longest(version: &str) -> Recording {
    recording::all()
        .into_iter()
        .filter(|recording| recording.name.contains(&format!("-client{version}-")))
        .max_by_key(|recording| recording.sent_by(Side::Client).len())
        .unwrap()
}

/// Returns the name of the client in a recording.
fn who(stream: &[u8]) -> Proc {
    let mut framer = Framer::default();
    framer.push(stream);
    let payload = framer.next_handshake().unwrap().unwrap();
    Hello::decode(&payload).unwrap().proc.unwrap()
}

/// Creates a server with the job of a recording, and a process of another job that must not be affected.
fn with_witness(who: &Proc) -> (World, Conn) {
    let mut world = World::new(&[("witness", 1)]);
    let ranks = who.rank.0.max(3) + 1;
    let mut job = job("x", ranks);
    job.nspace = who.nspace.clone();
    world.handle(Input::Register(Box::new(job)));
    let witness = world.connect("witness", 0);
    (world, witness)
}

fn is_undisturbed(world: &mut World, witness: Conn) {
    let status = world.status_of(witness, &fence(&[proc("witness", 0)]));
    assert_eq!(status, Status::SUCCESS);
    assert!(world.pushes(witness).is_empty());
}

/// Disconnects after every single byte of the requests of a real library.
fn break_off_everywhere(version: &str) {
    let stream = longest(version).sent_by(Side::Client);
    let who = who(&stream);
    for length in 0..=stream.len() {
        let (mut world, witness) = with_witness(&who);
        let conn = world.accept(PeerOwner::Uid(UID));
        world.deaf(conn);
        world.bytes(conn, &stream[..length]);
        assert!(world.is_open(conn), "closed after {length} bytes");
        is_undisturbed(&mut world, witness);
        world.close(conn);
        is_undisturbed(&mut world, witness);
        world.assert_no_state_left();
    }
}

#[test]
fn version_3_breaks_off_everywhere() {
    break_off_everywhere("3.2.3");
}

#[test]
fn version_4_breaks_off_everywhere() {
    break_off_everywhere("4.2.2");
}

#[test]
fn version_5_breaks_off_everywhere() {
    break_off_everywhere("5.0.11");
}

#[test]
fn version_6_breaks_off_everywhere() {
    break_off_everywhere("6.1.0");
}

#[test]
fn bytes_may_come_one_by_one() {
    for version in ["3.2.3", "4.2.2", "5.0.11", "6.1.0"] {
        let stream = longest(version).sent_by(Side::Client);
        let who = who(&stream);
        let (mut world, witness) = with_witness(&who);
        let conns = [0, 1].map(|_| {
            let conn = world.accept(PeerOwner::Uid(UID));
            world.deaf(conn);
            conn
        });
        world.bytes(conns[0], &stream);
        let at_once = world.heard(conns[0]);
        world.close(conns[0]);
        let (mut world, _) = with_witness(&who);
        let conn = world.accept(PeerOwner::Uid(UID));
        world.deaf(conn);
        for byte in &stream {
            world.bytes(conn, std::slice::from_ref(byte));
        }
        assert_eq!(world.heard(conn).len(), at_once.len(), "{version}");
        let _ = witness;
    }
}

/// Replaces every byte of the requests of a real library: other clients are never affected.
#[test]
fn every_byte_may_be_wrong() {
    let stream = longest("5.0.11").sent_by(Side::Client);
    let who = who(&stream);
    for at in 0..stream.len() {
        let mut wrong = stream.clone();
        wrong[at] = match at % 3 {
            0 => 0xff,
            1 => wrong[at] ^ 0x80,
            _ => wrong[at].wrapping_add(1),
        };
        let (mut world, witness) = with_witness(&who);
        let conn = world.accept(PeerOwner::Uid(UID));
        world.deaf(conn);
        world.bytes(conn, &wrong);
        is_undisturbed(&mut world, witness);
        if world.is_open(conn) {
            world.close(conn);
        }
        world.assert_no_state_left();
    }
}

#[test]
fn a_length_beyond_the_bound_closes_at_once() {
    // A false length in the header of the handshake or of a message is rejected before its payload arrives.
    for length in [MAX_HANDSHAKE + 1, 1 << 31, u64::from(u32::MAX)] {
        let (mut world, witness) = with_witness(&proc("a", 0));
        let conn = world.accept(PeerOwner::Uid(UID));
        let mut bytes = frame::handshake(&[]);
        bytes[8..12].copy_from_slice(&u32::try_from(length).unwrap().to_ne_bytes());
        world.bytes(conn, &bytes);
        assert!(!world.is_open(conn), "{length}");
        is_undisturbed(&mut world, witness);
        world.assert_no_state_left();
    }
    for length in [MAX_MESSAGE + 1, 1 << 31, u64::from(u32::MAX)] {
        let (mut world, witness) = with_witness(&proc("a", 0));
        let conn = world.connect("a", 0);
        let mut bytes = frame::finish(frame::start(0), frame::Tag::Request(101));
        bytes[8..12].copy_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
        world.bytes(conn, &bytes);
        assert!(!world.is_open(conn), "{length}");
        is_undisturbed(&mut world, witness);
        world.assert_no_state_left();
    }
}

#[test]
fn who_stalls_is_not_waited_for() {
    let (mut world, witness) = with_witness(&proc("a", 0));
    let conn = world.connect("a", 0);
    let mut bytes = frame::finish(frame::start(0), frame::Tag::Request(101));
    let length = u32::try_from(MAX_MESSAGE).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    world.bytes(conn, &bytes);
    world.bytes(conn, &[0; 1000]);
    is_undisturbed(&mut world, witness);
    assert_eq!(world.server.deadline(), None);
    world.assert_no_state_left();
}

#[test]
fn a_connection_that_is_closed_is_not_listened_to() {
    let (mut world, witness) = with_witness(&proc("a", 0));
    let conn = world.accept(PeerOwner::Uid(UID + 1));
    assert!(!world.is_open(conn));
    world.bytes(conn, &frame::handshake(&hello("a", 0, V5).encode()));
    world.handle(Input::Closed { conn });
    world.handle(Input::Closed { conn });
    is_undisturbed(&mut world, witness);
    assert_eq!(world.refusals.len(), 1);
    world.assert_no_state_left();
}

#[test]
fn an_answer_to_nobody_is_lost() {
    let (mut world, conns) = World::of(1);
    let request = Request::Lookup {
        uid: UID,
        keys: Vec::new(),
        infos: Vec::new(),
    };
    world.send(conns[0], &request);
    world.close(conns[0]);
    world.reply(pmix::message::Answer::Status(Status::SUCCESS));
    world.assert_no_state_left();
}

#[test]
fn values_within_values_have_an_end() {
    let (mut world, witness) = with_witness(&proc("a", 0));
    let conn = world.connect("a", 0);
    // Deeply nested arrays in an info of a fence.
    let mut payload = vec![2, 3, 2, 0, 2, 2, 2, 4, b'k', 0, 0];
    for _ in 0..100_000 {
        payload.extend_from_slice(&[39, 39, 1]);
    }
    let mut bytes = frame::start(0);
    bytes.extend_from_slice(&payload);
    world.bytes(conn, &frame::finish(bytes, frame::Tag::Request(101)));
    assert!(!world.is_open(conn));
    is_undisturbed(&mut world, witness);
    world.assert_no_state_left();
    let _ = (nspace("a"), Bytes::new());
}
