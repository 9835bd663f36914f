//! Recorded requests of real libraries, sent to our server: each gets an answer that the library can decode.

use std::{collections::BTreeMap, time::Duration};

use pmix::{
    frame::{Framer, Tag},
    handshake::{ConnectorKind, Hello},
    message::{Answer, Command, GroupForm, Request, Shape},
    server::{Conn, Input, PeerOwner, PublishedData, Ticket},
    value::Status,
};

use crate::{
    recording::{self, Recording, Side},
    world::{UID, World, job},
};

/// Returns the recordings of the ranks of each run, in the order of the ranks.
fn runs() -> BTreeMap<String, Vec<Recording>> {
    let mut runs: BTreeMap<String, Vec<Recording>> = BTreeMap::new();
    for recording in recording::all() {
        if let Some((run, _)) = recording.name.split_once("-rank") {
            runs.entry(run.to_owned()).or_default().push(recording);
        }
    }
    runs
}

/// Splits a client's stream into its handshake and its messages.
fn messages(stream: &[u8]) -> (Hello, Vec<Vec<u8>>) {
    let mut framer = Framer::default();
    framer.push(stream);
    let hello = Hello::decode(&framer.next_handshake().unwrap().unwrap()).unwrap();
    let frames = std::iter::from_fn(|| framer.next_frame().unwrap());
    (hello, frames.map(|frame| frame.to_bytes()).collect())
}

/// Host that stores published data, and pretends to spawn jobs.
#[derive(Default)]
struct Host {
    published: PublishedData<Ticket>,
    spawned: u32,
}

impl Host {
    fn serve(&mut self, world: &mut World) {
        while !world.asks.is_empty() {
            for ask in std::mem::take(&mut world.asks) {
                let (ticket, from) = (ask.ticket, ask.from);
                let answer = match ask.request {
                    Request::Publish { infos, .. } => {
                        let (status, found) = self.published.publish(&from, infos);
                        for found in found {
                            let answer = Answer::Found {
                                status: found.status,
                                data: found.data,
                            };
                            let ticket = found.token;
                            world.handle(Input::Answer { ticket, answer });
                        }
                        Answer::Status(status)
                    }
                    Request::Lookup { keys, infos, .. } => {
                        match self
                            .published
                            .lookup(world.now, ticket, &from, keys, &infos)
                        {
                            Some(found) => Answer::Found {
                                status: found.status,
                                data: found.data,
                            },
                            None => continue,
                        }
                    }
                    Request::Unpublish { keys, infos, .. } => {
                        Answer::Status(self.published.unpublish(&from, &keys, &infos))
                    }
                    Request::Spawn { .. } => {
                        self.spawned += 1;
                        let child = job(&format!("child-{}", self.spawned), 1);
                        let nspace = child.nspace.clone();
                        world.handle(Input::Register(Box::new(child)));
                        Answer::Spawned {
                            status: Status::SUCCESS,
                            nspace: Some(nspace.as_c_str().to_owned()),
                            facts: Vec::new(),
                        }
                    }
                    _ => Answer::Status(Status::SUCCESS),
                };
                world.handle(Input::Answer { ticket, answer });
            }
        }
    }
}

/// Replays the ranks of a run. A rank sends its next message only when it has few unanswered requests, because a library may wait
/// for them.
fn replay(name: &str, recordings: &[Recording]) {
    let mut world = World::new(&[]);
    let mut host = Host::default();
    let dialogues: Vec<(Hello, Vec<Vec<u8>>)> = recordings
        .iter()
        .map(|recording| messages(&recording.sent_by(Side::Client)))
        .collect();
    let nspace = dialogues[0].0.proc.as_ref().unwrap().nspace.clone();
    let mut real = job("x", u32::try_from(recordings.len()).unwrap());
    real.nspace = nspace;
    world.handle(Input::Register(Box::new(real)));
    let mut conns: Vec<(Conn, std::vec::IntoIter<Vec<u8>>)> = Vec::new();
    for (hello, messages) in dialogues {
        assert_eq!(hello.kind, ConnectorKind::Client);
        let conn = world.accept(PeerOwner::Uid(UID));
        world.hello(conn, &hello);
        conns.push((conn, messages.into_iter()));
    }
    loop {
        let mut said = false;
        for (conn, messages) in &mut conns {
            // At most three: a library sends further requests while it waits for a get.
            if world.unanswered(*conn).len() >= 3 {
                continue;
            }
            if let Some(message) = messages.next() {
                announce(&mut world, *conn, &message);
                world.bytes(*conn, &message);
                assert!(world.is_open(*conn), "{name}: {:?}", world.refusals);
                host.serve(&mut world);
                said = true;
            }
        }
        if !said {
            // The remaining requests wait for something that times out.
            world.pass(Duration::from_secs(3));
            let waiting = conns
                .iter()
                .any(|(_, messages)| !messages.as_slice().is_empty());
            if !waiting {
                break;
            }
        }
    }
    world.pass(Duration::from_secs(60));
    for (conn, _) in &conns {
        let unanswered = world.unanswered(*conn);
        assert!(unanswered.is_empty(), "{name}: {unanswered:?}");
    }
    world.assert_no_state_left();
}

/// Records the command of a message, so that its answer can be decoded.
fn announce(world: &mut World, conn: Conn, message: &[u8]) {
    let mut framer = Framer::default();
    framer.push(message);
    let frame = framer.next_frame().unwrap().unwrap();
    let Tag::Request(tag) = frame.tag else {
        return;
    };
    let request = Request::decode(world.format(conn), &frame.payload).unwrap();
    let command: Command = request.command();
    if Shape::of(command, GroupForm::Members) != Shape::Nothing {
        world.expect_answer(conn, tag, command);
    }
}

#[test]
fn every_recorded_request_is_answered() {
    let runs = runs();
    assert_eq!(runs.len(), 28);
    for (name, recordings) in &runs {
        replay(name, recordings);
    }
}

#[test]
fn recorded_tools_are_turned_away_and_nothing_else() {
    let tools: Vec<Recording> = recording::all()
        .into_iter()
        .filter(|recording| recording.name.starts_with("tool-"))
        .collect();
    assert!(!tools.is_empty());
    for recording in tools {
        let (mut world, conns) = World::of(1);
        let conn = world.accept(PeerOwner::Uid(UID));
        world.bytes(conn, &recording.sent_by(Side::Client));
        assert!(!world.is_open(conn));
        assert!(world.is_open(conns[0]));
        world.assert_no_state_left();
    }
}
