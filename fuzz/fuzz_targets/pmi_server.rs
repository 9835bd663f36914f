//! A server of four ranks against well-behaved clients of ours, against raw bytes, and against a host with bad timing.
#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use base::Rank;
use libfuzzer_sys::fuzz_target;
use pmix::pmi::{
    Answer, Client, Config, Event, FenceId, Input, Kind, LocalRank, MAX_QUEUED, Output, Request, Server,
};

const RANKS: u8 = 4;
const KVS: &str = "job-1";

#[derive(Arbitrary, Debug)]
enum Op<'a> {
    /// The client asks, if it has no question open.
    Ask(u8, Ask),
    /// The rank's connection carries what no client of ours would say.
    Raw(u8, &'a [u8]),
    Close(u8),
    /// The host answers the fence that it was told of, or another one.
    FenceDone { late: bool, key: u8 },
    FenceFailed,
}

#[derive(Arbitrary, Debug)]
enum Ask {
    Init,
    GetMaxes,
    GetKvsName,
    Put { key: u8, value: u16 },
    Get { key: u8 },
    Barrier,
    Finalize,
    Abort(i32),
    Publish(u8),
    Lookup(u8),
    Unpublish(u8),
    Spawn { total: u8, so_far: u8 },
}

impl Ask {
    fn request(&self) -> Request {
        let key = |key: &u8| format!("key {key}");
        let service = key;
        let kvs = KVS.to_owned();
        match self {
            Self::Init => Client::INIT,
            Self::GetMaxes => Request::GetMaxes,
            Self::GetKvsName => Request::GetKvsName,
            Self::Put { key: k, value } => {
                Request::Put { kvs, key: key(k), value: "v".repeat(usize::from(*value % 1100)) }
            }
            Self::Get { key: k } => Request::Get { kvs, key: key(k) },
            Self::Barrier => Request::Barrier,
            Self::Finalize => Request::Finalize,
            Self::Abort(code) => Request::Abort { code: *code, message: "a=b c".to_owned() },
            Self::Publish(name) => Request::Publish { service: service(name), port: "tag#0".to_owned() },
            Self::Lookup(name) => Request::Lookup { service: service(name) },
            Self::Unpublish(name) => Request::Unpublish { service: service(name) },
            Self::Spawn { total, so_far } => Request::Spawn { total: u32::from(*total), so_far: u32::from(*so_far) },
        }
    }
}

struct World {
    server: Server,
    clients: BTreeMap<Rank, Client>,
    /// Ranks that have never sent raw bytes: only these are held to the rules.
    honest: BTreeMap<Rank, bool>,
    /// The question that each honest rank has open.
    open: BTreeMap<Rank, Kind>,
    fence: Option<FenceId>,
    /// The next fence that may be announced: each is announced once, in order.
    expected: u64,
}

impl World {
    fn new() -> Self {
        let ranks = || (0..u32::from(RANKS)).map(Rank);
        let config = Config {
            ranks: ranks().map(|rank| LocalRank { rank, appnum: 0 }).collect(),
            universe: 4,
            kvs_name: KVS.to_owned(),
            process_mapping: Some("(vector,(0,1,4))".to_owned()),
        };
        Self {
            server: Server::new(config).expect("the configuration is right"),
            clients: ranks().map(|rank| (rank, Client::default())).collect(),
            honest: ranks().map(|rank| (rank, true)).collect(),
            open: BTreeMap::new(),
            fence: None,
            expected: 0,
        }
    }

    fn run(&mut self, op: &Op<'_>) {
        let rank = |number: &u8| Rank(u32::from(number % RANKS));
        match op {
            Op::Ask(number, ask) => {
                let client = rank(number);
                let request = ask.request();
                // A spawn of several parts is answered once, which this simple client does not model.
                if matches!(request, Request::Spawn { total, so_far } if so_far < total) {
                    return;
                }
                let Some(Ok(bytes)) = self.clients.get_mut(&client).map(|c| c.request(&request)) else { return };
                if request.kind() != Kind::Abort {
                    self.open.insert(client, request.kind());
                }
                self.server.handle(Input::Bytes { client, bytes: &bytes });
            }
            Op::Raw(number, bytes) => {
                self.honest.insert(rank(number), false);
                self.server.handle(Input::Bytes { client: rank(number), bytes });
            }
            Op::Close(number) => {
                self.clients.remove(&rank(number));
                self.server.handle(Input::Closed { client: rank(number) });
            }
            Op::FenceDone { late, key } => {
                let id = if *late { FenceId(u64::from(*key)) } else { self.fence.unwrap_or(FenceId(0)) };
                if self.fence == Some(id) {
                    self.fence = None;
                }
                self.server.handle(Input::FenceDone { id, puts: vec![(format!("other{key}"), "x".to_owned())] });
            }
            Op::FenceFailed => self.server.handle(Input::FenceFailed),
        }
        self.drain();
    }

    fn drain(&mut self) {
        let mut sent: BTreeMap<Rank, usize> = BTreeMap::new();
        while let Some(output) = self.server.poll() {
            match output {
                Output::Send { client, bytes } => {
                    *sent.entry(client).or_default() += bytes.len();
                    let Some(peer) = self.clients.get_mut(&client) else { continue };
                    let answer = peer.receive(&bytes);
                    if self.honest[&client] {
                        let answer = answer.expect("the server speaks the protocol").expect("answers are whole");
                        assert_eq!(self.open.remove(&client), Some(answer.kind()), "each question is answered once");
                        if let Answer::Get { value } = answer {
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
                Output::Event(_) => {}
            }
        }
        assert!(sent.values().all(|bytes| *bytes <= MAX_QUEUED));
        // An honest rank with an open question is in the barrier, or it has been told nothing because it is gone.
        let waiting: Vec<Rank> = self.server.waiting().collect();
        for (client, kind) in &self.open {
            if self.honest[client] && self.clients.contains_key(client) {
                assert!(*kind == Kind::Barrier && waiting.contains(client), "rank {client} waits for {kind:?}");
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
