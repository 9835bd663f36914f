//! Recorded dialogues of real MPICH ranks with a real Hydra, replayed against the server.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of tests fails the test by panicking"
)]

use std::collections::BTreeMap;

use base::Rank;
use pmix::pmi::{
    Answer, Ask, Config, Dialect, Event, Input, Kind, LocalRank, Output, Reply, Request, Server,
    wire::{Framer, Message},
};

/// A recorded dialogue, replayed with one server per node.
struct Replay {
    /// The server of each node; `node_of` returns the index for a rank.
    servers: Vec<Server>,
    node_of: fn(Rank) -> usize,
    /// Fences that are complete on a node, without an answer from the host.
    fences: BTreeMap<usize, (pmix::pmi::FenceId, Vec<(String, String)>)>,
    answers: BTreeMap<Rank, Vec<Answer>>,
    events: Vec<Event>,
    /// Requests to the host.
    asks: Vec<Ask>,
    reply: Option<Reply>,
}

impl Replay {
    fn new(nodes: &[&[u32]], mapping: &str, node_of: fn(Rank) -> usize) -> Self {
        let server = |ranks: &&[u32]| {
            Server::new(Config {
                ranks: ranks
                    .iter()
                    .map(|rank| LocalRank {
                        rank: Rank(*rank),
                        appnum: 0,
                    })
                    .collect(),
                size: 2,
                universe: Some(2),
                kvs_name: "kvs_job".to_owned(),
                process_mapping: Some(mapping.to_owned()),
                spawned: None,
            })
            .unwrap()
        };
        Self {
            servers: nodes.iter().map(server).collect(),
            node_of,
            fences: BTreeMap::new(),
            answers: BTreeMap::new(),
            events: Vec::new(),
            asks: Vec::new(),
            reply: None,
        }
    }

    fn line(&mut self, client: Rank, line: &str) {
        let node = (self.node_of)(client);
        self.servers[node].handle(Input::Bytes {
            client,
            bytes: format!("{line}\n").as_bytes(),
        });
        self.drain(node);
        if self.fences.len() == self.servers.len() {
            let puts: Vec<_> = self
                .fences
                .values()
                .flat_map(|(_, puts)| puts.clone())
                .collect();
            for (node, (id, _)) in std::mem::take(&mut self.fences) {
                self.servers[node].handle(Input::FenceDone {
                    id,
                    puts: puts.clone(),
                });
                self.drain(node);
            }
        }
    }

    fn drain(&mut self, node: usize) {
        while let Some(output) = self.servers[node].poll() {
            match output {
                Output::Send { client, bytes } => self
                    .answers
                    .entry(client)
                    .or_default()
                    .extend(answers(&bytes)),
                Output::Event(Event::Fence { id, puts }) => {
                    assert!(self.fences.insert(node, (id, puts)).is_none());
                }
                Output::Event(Event::Ask { ticket, ask, .. }) => {
                    self.asks.push(ask);
                    let reply = self.reply.clone().unwrap();
                    self.servers[node].handle(Input::Answered { ticket, reply });
                }
                Output::Event(event) => self.events.push(event),
                Output::Close { client, why } => panic!("rank {client}: {why}"),
            }
        }
    }
}

fn messages(bytes: &[u8]) -> Vec<Message> {
    let mut framer = Framer::default();
    framer.push(bytes);
    let messages = std::iter::from_fn(|| framer.next().unwrap()).collect();
    assert!(framer.is_empty());
    messages
}

fn answers(bytes: &[u8]) -> Vec<Answer> {
    messages(bytes)
        .iter()
        .map(|message| Answer::decode(message).unwrap())
        .collect()
}

/// Parses a recording into (rank, direction, text) per line.
fn lines(recording: &str) -> impl Iterator<Item = (Rank, char, &str)> {
    recording.lines().map(|line| {
        let (head, text) = line.split_once(' ').unwrap();
        let (rank, way) = head.split_at(head.len() - 1);
        (
            Rank(rank.parse().unwrap()),
            way.chars().next().unwrap(),
            text,
        )
    })
}

/// Replays the requests of the ranks, and compares Hydra's answers with ours.
fn replay(recording: &str, mut replay: Replay) -> Replay {
    let mut hydra: BTreeMap<Rank, Vec<Answer>> = BTreeMap::new();
    for (rank, way, text) in lines(recording) {
        if way == '>' {
            replay.line(rank, text);
        } else {
            hydra
                .entry(rank)
                .or_default()
                .extend(answers(format!("{text}\n").as_bytes()));
        }
    }
    for answer in hydra
        .values_mut()
        .chain(replay.answers.values_mut())
        .flatten()
    {
        match answer {
            // The text of a refusal may differ.
            Answer::Refused { reason, .. } => reason.clear(),
            // Hydra shares a topology file, our server does not.
            Answer::Get { value: Some(value) } if value == "/tmp/hwloc.xml" => {
                *answer = Answer::Refused {
                    kind: Kind::Get,
                    rc: 1,
                    reason: String::new(),
                };
            }
            _ => {}
        }
    }
    let ours = replay.answers.clone();
    for (rank, expected) in hydra {
        let got = ours.get(&rank).map_or(&[][..], |answers| {
            &answers[..expected.len().min(answers.len())]
        });
        assert_eq!(got, expected, "answers to rank {rank}");
    }
    replay
}

const HELLO: &str = include_str!("../testdata/mpich-5.0.2/hello.txt");
const TWO_NODES: &str = include_str!("../testdata/mpich-5.0.2/two-nodes.txt");
const ABORT: &str = include_str!("../testdata/mpich-5.0.2/abort.txt");
const SPAWN: &str = include_str!("../testdata/mpich-5.0.2/spawn.txt");

fn one_node() -> Replay {
    Replay::new(&[&[0, 1]], "(vector,(0,1,2))", |_| 0)
}

#[test]
fn hello_on_one_node() {
    let done = replay(HELLO, one_node());
    assert_eq!(
        done.events
            .iter()
            .filter(|event| matches!(event, Event::Finalized { .. }))
            .count(),
        2
    );
}

#[test]
fn hello_on_two_nodes_exchanges_addresses() {
    let two = Replay::new(&[&[0], &[1]], "(vector,(0,2,1))", |rank| rank.0 as usize);
    let done = replay(TWO_NODES, two);
    assert_eq!(
        done.events
            .iter()
            .filter(|event| matches!(event, Event::Finalized { .. }))
            .count(),
        2
    );
}

#[test]
fn a_rank_that_aborts_and_runs_on_completes_no_barrier() {
    let done = replay(ABORT, one_node());
    let aborts: Vec<_> = done
        .events
        .iter()
        .filter(|event| matches!(event, Event::Abort { .. }))
        .collect();
    assert_eq!(
        aborts,
        [&Event::Abort {
            client: Rank(1),
            code: 42,
            message: "abort".to_owned()
        }]
    );
    assert!(ABORT.contains("1> cmd=abort exitcode=42 message=abort\n1> cmd=barrier_in\n"));
    assert!(
        !done
            .answers
            .values()
            .flatten()
            .any(|answer| answer.kind() == Kind::Barrier)
    );
    assert!(done.fences.is_empty());
}

#[test]
fn a_spawn_is_the_hosts() {
    let mut replay = one_node();
    replay.reply = Some(Reply::Job("job-2".to_owned()));
    let done = self::replay(SPAWN, replay);
    let Some(Ask::Spawn(spawn)) = done.asks.first() else {
        panic!("{:?}", done.asks);
    };
    let [app] = spawn.apps.as_slice() else {
        panic!("{spawn:?}");
    };
    assert_eq!(app.program, "./hello");
    assert_eq!(app.args, ["x", "y z"]);
    assert_eq!(app.count, 2);
    assert_eq!(app.infos, [("wdir".to_owned(), "/tmp".to_owned())]);
    let [(key, value)] = spawn.preput.as_slice() else {
        panic!("{spawn:?}");
    };
    assert_eq!(key, "PARENT_ROOT_PORT_NAME");
    assert!(value.starts_with("tag#0$connentry#") && value.ends_with('$'));
}

#[test]
fn what_was_recorded_is_written_again_byte_for_byte() {
    for recording in [HELLO, TWO_NODES, ABORT, SPAWN] {
        let mut text: BTreeMap<(Rank, char), String> = BTreeMap::new();
        for (rank, way, line) in lines(recording) {
            let text = text.entry((rank, way)).or_default();
            text.push_str(line);
            text.push('\n');
        }
        for ((_, way), text) in text {
            let messages = messages(text.as_bytes());
            let again: Vec<u8> = messages
                .iter()
                .flat_map(|message| message.encode().unwrap())
                .collect();
            assert_eq!(String::from_utf8(again).unwrap(), text);
            for message in messages.iter().filter(|_| way == '>') {
                let request = Request::decode(message).unwrap();
                assert_eq!(request.message(Dialect::One), *message);
            }
        }
    }
}
