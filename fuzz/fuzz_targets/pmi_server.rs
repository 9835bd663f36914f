//! A server of four ranks, two of PMI-1 and two of PMI-2, against well-behaved clients of ours, against raw bytes, and
//! against a host with bad timing.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::Arbitrary;
use base::Rank;
use libfuzzer_sys::fuzz_target;
use pmix::pmi::{
    Answer, Ask, Client, Config, Dialect, Event, FenceId, Group, IfAbsent, Input, Kind, LocalRank,
    MAX_QUEUED, Members, Output, Reach, Reply, Request, Server, Spawn, SpawnApp, Spawned, Ticket,
};

const RANKS: u8 = 4;
const KVS: &str = "job-1";

#[derive(Arbitrary, Debug)]
enum Op<'a> {
    /// The client asks, if it has no question open.
    Ask(u8, Say),
    /// The rank's connection carries what no client of ours would say.
    Raw(u8, &'a [u8]),
    Close(u8),
    /// The host answers the fence that it was told of, or another one.
    FenceDone {
        late: bool,
        key: u8,
    },
    FenceFailed,
    /// The host answers a question, or one that nobody has asked.
    Answer {
        ticket: u8,
        how: u8,
    },
    GroupDone {
        members: u8,
        tag: u8,
    },
}

#[derive(Arbitrary, Debug)]
enum Say {
    Init,
    FullInit,
    GetMaxes,
    GetKvsName,
    Put { key: u8, value: u16 },
    Get { key: u8 },
    JobAttribute(u8),
    PutNodeAttribute(u8),
    NodeAttribute(u8, bool),
    Barrier,
    Group { members: u8, tag: u8 },
    Finalize,
    Abort(i32, bool),
    Publish(u8),
    Lookup(u8),
    Unpublish(u8),
    Spawn { apps: u8, args: u8, preput: u16 },
    Connect,
}

fn dialect(rank: Rank) -> Dialect {
    if rank.0 < 2 {
        Dialect::One
    } else {
        Dialect::Two
    }
}

/// A group by the bits of a number; one of six ranks, of which the last two are on another node.
fn group(members: u8, tag: u8) -> Group {
    let members = match members % 66 {
        64 => Members::World,
        65 => Members::Node,
        bits => Members::Ranks(
            (0..6)
                .filter(|rank| bits >> rank & 1 == 1)
                .map(Rank)
                .collect(),
        ),
    };
    Group {
        members,
        tag: u32::from(tag % 3),
    }
}

impl Say {
    fn requests(&self, dialect: Dialect) -> Vec<Request> {
        let name = |key: &u8| format!("key {}", key % 8);
        let kvs = Some(KVS.to_owned());
        vec![match self {
            Self::Init => Client::first(dialect),
            Self::FullInit => Request::FullInit,
            Self::GetMaxes => Request::GetMaxes,
            Self::GetKvsName => Request::GetKvsName,
            Self::Put { key, value } => Request::Put {
                kvs,
                key: name(key),
                value: "v".repeat(usize::from(*value % 1100)),
            },
            Self::Get { key } => Request::Get {
                kvs,
                key: name(key),
            },
            Self::JobAttribute(key) => Request::JobAttribute { key: name(key) },
            Self::PutNodeAttribute(key) => Request::PutNodeAttribute {
                key: name(key),
                value: "a;b".to_owned(),
            },
            Self::NodeAttribute(key, wait) => Request::NodeAttribute {
                key: name(key),
                absent: if *wait { IfAbsent::Wait } else { IfAbsent::Say },
            },
            Self::Barrier => Request::Barrier { group: None },
            Self::Group { members, tag } => Request::Barrier {
                group: Some(group(*members, *tag)),
            },
            Self::Finalize => Request::Finalize,
            Self::Abort(code, job) => Request::Abort {
                code: *code,
                message: "a=b c".to_owned(),
                reach: if *job { Reach::Job } else { Reach::Caller },
            },
            Self::Publish(key) => Request::Publish {
                service: name(key),
                port: "tag#0".to_owned(),
            },
            Self::Lookup(key) => Request::Lookup { service: name(key) },
            Self::Unpublish(key) => Request::Unpublish { service: name(key) },
            Self::Spawn { apps, args, preput } => {
                let app = SpawnApp {
                    program: "a".to_owned(),
                    args: vec!["x y".to_owned(); usize::from(*args)],
                    count: 1,
                    infos: Vec::new(),
                };
                let spawn = Spawn {
                    apps: vec![app; usize::from(apps % 5) + 1],
                    preput: vec![("PORT".to_owned(), "p".repeat(usize::from(preput % 1100)))],
                };
                return Request::spawn(spawn, dialect);
            }
            Self::Connect => Request::Connect {
                job: KVS.to_owned(),
            },
        }]
    }
}

struct World {
    server: Server,
    clients: BTreeMap<Rank, Client>,
    /// Ranks that have never sent raw bytes: only these are held to the rules.
    honest: BTreeMap<Rank, bool>,
    /// Ranks of PMI-2 whose first line was answered: before it there is nothing that both sides read alike.
    greeted: BTreeSet<Rank>,
    /// The question that each honest rank has open.
    open: BTreeMap<Rank, Kind>,
    /// Questions that the host has.
    asked: BTreeMap<Ticket, Kind>,
    fence: Option<FenceId>,
    /// The next fence that may be announced: each is announced once, in order.
    expected: u64,
}

impl World {
    fn new() -> Self {
        let ranks = || (0..u32::from(RANKS)).map(Rank);
        let config = Config {
            ranks: ranks().map(|rank| LocalRank { rank, appnum: 0 }).collect(),
            size: 6,
            universe: Some(8),
            kvs_name: KVS.to_owned(),
            process_mapping: Some("(vector,(0,1,4),(1,1,2))".to_owned()),
            spawned: Some(Spawned {
                by: "job-0".to_owned(),
                preput: vec![("key 7".to_owned(), "of the spawner".to_owned())],
            }),
        };
        Self {
            server: Server::new(config).expect("the configuration is right"),
            clients: ranks()
                .map(|rank| (rank, Client::new(dialect(rank))))
                .collect(),
            honest: ranks().map(|rank| (rank, true)).collect(),
            greeted: BTreeSet::new(),
            open: BTreeMap::new(),
            asked: BTreeMap::new(),
            fence: None,
            expected: 0,
        }
    }

    fn run(&mut self, op: &Op<'_>) {
        let rank = |number: &u8| Rank(u32::from(number % RANKS));
        match op {
            Op::Ask(number, say) => {
                let client = rank(number);
                let requests = say.requests(dialect(client));
                let first = matches!(say, Say::Init);
                if dialect(client) == Dialect::Two && !first && !self.greeted.contains(&client) {
                    return;
                }
                let Some(Ok(bytes)) = self.clients.get_mut(&client).map(|c| c.requests(&requests))
                else {
                    return;
                };
                let kind = requests[0].kind();
                if kind != Kind::Abort {
                    self.open.insert(client, kind);
                }
                self.server.handle(Input::Bytes {
                    client,
                    bytes: &bytes,
                });
            }
            Op::Raw(number, bytes) => {
                self.honest.insert(rank(number), false);
                self.server.handle(Input::Bytes {
                    client: rank(number),
                    bytes,
                });
            }
            Op::Close(number) => {
                self.clients.remove(&rank(number));
                self.server.handle(Input::Closed {
                    client: rank(number),
                });
            }
            Op::FenceDone { late, key } => {
                let id = if *late {
                    FenceId(u64::from(*key))
                } else {
                    self.fence.unwrap_or(FenceId(0))
                };
                if self.fence == Some(id) {
                    self.fence = None;
                }
                self.server.handle(Input::FenceDone {
                    id,
                    puts: vec![(format!("other{key}"), "x".to_owned())],
                });
            }
            Op::FenceFailed => self.server.handle(Input::FenceFailed),
            Op::Answer { ticket, how } => {
                let ticket = self.asked.keys().nth(usize::from(*ticket)).copied();
                let ticket = ticket.unwrap_or(Ticket(u64::from(*how)));
                self.asked.remove(&ticket);
                let reply = match how % 4 {
                    0 => Reply::Done,
                    1 => Reply::Port("p\n".repeat(usize::from(*how))),
                    2 => Reply::Job("job-2".to_owned()),
                    _ => Reply::Refused("no"),
                };
                self.server.handle(Input::Answered { ticket, reply });
            }
            Op::GroupDone { members, tag } => {
                let puts = vec![("of a group".to_owned(), "x".to_owned())];
                self.server.handle(Input::GroupDone {
                    group: group(*members, *tag),
                    puts,
                });
            }
        }
        self.drain();
    }

    fn drain(&mut self) {
        let mut sent: BTreeMap<Rank, usize> = BTreeMap::new();
        while let Some(output) = self.server.poll() {
            match output {
                Output::Send { client, bytes } => {
                    *sent.entry(client).or_default() += bytes.len();
                    let Some(peer) = self.clients.get_mut(&client) else {
                        continue;
                    };
                    let answer = peer.receive(&bytes);
                    if self.honest[&client] {
                        let answer = answer
                            .expect("the server speaks the protocol")
                            .expect("answers are whole");
                        assert_eq!(
                            self.open.remove(&client),
                            Some(answer.kind()),
                            "each question is answered once"
                        );
                        if let Answer::Init { .. } = answer {
                            self.greeted.insert(client);
                        }
                        if let Answer::Get { value: Some(value) } = answer {
                            assert!(value.len() <= 1024);
                        }
                    }
                }
                Output::Close { client, .. } => {
                    self.clients.remove(&client);
                    self.open.remove(&client);
                }
                Output::Event(Event::Fence { id, .. }) => {
                    assert_eq!(id, FenceId(self.expected));
                    self.expected += 1;
                    self.fence = Some(id);
                }
                Output::Event(Event::FenceBroken { lost, waiting }) => {
                    assert!(!lost.is_empty() && !waiting.is_empty());
                }
                Output::Event(Event::Ask { ticket, ask, .. }) => {
                    if let Ask::Spawn(spawn) = &ask {
                        assert!(!spawn.apps.is_empty());
                    }
                    assert!(
                        self.asked.insert(ticket, ask.kind()).is_none(),
                        "a ticket is given once"
                    );
                }
                Output::Event(_) => {}
            }
        }
        assert!(sent.values().all(|bytes| *bytes <= MAX_QUEUED));
        // An honest rank with an open question waits for others, or it has been told nothing because it is gone.
        for (client, kind) in &self.open {
            if self.honest[client] && self.clients.contains_key(client) {
                let waits = match kind {
                    Kind::Barrier | Kind::NodeAttribute => true,
                    kind => self.asked.values().any(|asked| asked == kind),
                };
                assert!(waits, "rank {client} waits for {kind:?}");
            }
        }
    }
}

fuzz_target!(|ops: Vec<Op<'_>>| {
    let mut world = World::new();
    for op in &ops {
        world.run(op);
    }
});
