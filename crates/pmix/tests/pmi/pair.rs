//! A server with its clients, and all outputs.

use std::collections::BTreeMap;

use base::Rank;
use pmix::pmi::{
    Answer, Ask, Client, Config, Dialect, Error, Event, Input, Kind, LocalRank, Output, Reply,
    Request, Server, Spawned, Ticket,
};

pub(super) const KVS: &str = "job-1";

/// A server with some clients, all on one node.
pub(super) struct Pair {
    pub(super) server: Server,
    dialect: Dialect,
    clients: BTreeMap<Rank, Client>,
    /// Answers that the test has not taken yet.
    pub(super) answers: BTreeMap<u32, Answer>,
    events: Vec<Event>,
    pub(super) closed: Vec<(Rank, Error)>,
    /// Bytes sent to ranks that use [`Self::raw`].
    said: BTreeMap<Rank, Vec<u8>>,
}

pub(super) fn config(ranks: std::ops::Range<u32>, size: u32) -> Config {
    Config {
        ranks: ranks
            .map(|rank| LocalRank {
                rank: Rank(rank),
                appnum: rank / 2,
            })
            .collect(),
        size,
        universe: Some(9),
        kvs_name: KVS.to_owned(),
        process_mapping: Some("(vector,(0,1,4))".to_owned()),
        spawned: None,
    }
}

impl Pair {
    /// Creates a server whose ranks have sent nothing.
    pub(super) fn new(n: u32, dialect: Dialect) -> Self {
        Self::of(config(0..n, n), dialect)
    }

    pub(super) fn of(config: Config, dialect: Dialect) -> Self {
        Self {
            clients: config
                .ranks
                .iter()
                .map(|local| (local.rank, Client::new(dialect)))
                .collect(),
            server: Server::new(config).unwrap(),
            dialect,
            answers: BTreeMap::new(),
            events: Vec::new(),
            closed: Vec::new(),
            said: BTreeMap::new(),
        }
    }

    /// Creates a server whose ranks are initialized.
    pub(super) fn initialized(n: u32, dialect: Dialect) -> Self {
        Self::new(n, dialect).begun()
    }

    pub(super) fn begun(mut self) -> Self {
        for rank in self.clients.keys().copied().collect::<Vec<_>>() {
            self.init(rank.0);
        }
        self.events.clear();
        self
    }

    pub(super) fn init(&mut self, rank: u32) {
        let (version, subversion) = self.dialect.version();
        let said = self.ask(rank, &Client::first(self.dialect));
        assert_eq!(
            said,
            Answer::Init {
                version,
                subversion
            }
        );
        if self.dialect == Dialect::Two {
            assert!(matches!(
                self.ask(rank, &Request::FullInit),
                Answer::FullInit { .. }
            ));
        }
    }

    pub(super) fn handle(&mut self, input: Input<'_>) {
        self.server.handle(input);
        while let Some(output) = self.server.poll() {
            match output {
                Output::Send { client, bytes } => {
                    if let Some(said) = self.said.get_mut(&client) {
                        said.extend(bytes);
                        continue;
                    }
                    let peer = self.clients.get_mut(&client).unwrap();
                    // Byte by byte, because the kernel may split a stream anywhere.
                    for byte in bytes {
                        if let Some(answer) = peer.receive(&[byte]).unwrap() {
                            assert!(self.answers.insert(client.0, answer).is_none());
                        }
                    }
                }
                Output::Close { client, why } => self.closed.push((client, why)),
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    pub(super) fn send(&mut self, rank: u32, request: &Request) {
        let peer = self.clients.get_mut(&Rank(rank)).unwrap();
        let bytes = peer.request(request).unwrap();
        self.handle(Input::Bytes {
            client: Rank(rank),
            bytes: &bytes,
        });
    }

    /// Sends several requests that have one answer.
    pub(super) fn send_all(&mut self, rank: u32, requests: &[Request]) {
        let peer = self.clients.get_mut(&Rank(rank)).unwrap();
        let bytes = peer.requests(requests).unwrap();
        for part in bytes.chunks(7) {
            self.handle(Input::Bytes {
                client: Rank(rank),
                bytes: part,
            });
        }
    }

    pub(super) fn ask(&mut self, rank: u32, request: &Request) -> Answer {
        self.send(rank, request);
        self.answer(rank)
    }

    pub(super) fn answer(&mut self, rank: u32) -> Answer {
        self.answers.remove(&rank).unwrap()
    }

    /// Returns the only question that the host has got.
    pub(super) fn asked(&mut self) -> (Ticket, Ask) {
        match self.events().pop() {
            Some(Event::Ask { ticket, ask, .. }) => (ticket, ask),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn reply(&mut self, ticket: Ticket, reply: Reply) {
        self.handle(Input::Answered { ticket, reply });
    }

    pub(super) fn put(&mut self, rank: u32, key: &str, value: &str) -> Answer {
        self.ask(rank, &put(key, value))
    }

    pub(super) fn get(&mut self, rank: u32, key: &str) -> Option<String> {
        let kvs = Some(KVS.to_owned());
        let key = key.to_owned();
        match self.ask(rank, &Request::Get { kvs, key }) {
            Answer::Get { value } => value,
            _ => None,
        }
    }

    /// Sends bytes without a [`Client`]. [`Self::said`] returns the answer.
    pub(super) fn raw(&mut self, rank: u32, bytes: &[u8]) {
        self.said.entry(Rank(rank)).or_default();
        self.handle(Input::Bytes {
            client: Rank(rank),
            bytes,
        });
    }

    pub(super) fn said(&mut self, rank: u32) -> String {
        let bytes = self.said.remove(&Rank(rank)).unwrap_or_default();
        String::from_utf8(bytes).unwrap()
    }

    pub(super) fn close(&mut self, rank: u32) {
        self.handle(Input::Closed { client: Rank(rank) });
    }

    pub(super) fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn barrier_rcs(&mut self) -> Vec<(u32, i32)> {
        std::mem::take(&mut self.answers)
            .into_iter()
            .map(|(rank, answer)| match answer {
                Answer::Barrier { .. } => (rank, 0),
                Answer::Refused {
                    kind: Kind::Barrier,
                    rc,
                    ..
                } => (rank, rc),
                other => panic!("rank {rank}: {other:?}"),
            })
            .collect()
    }
}

pub(super) fn put(key: &str, value: &str) -> Request {
    Request::Put {
        kvs: Some(KVS.to_owned()),
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

pub(super) const BARRIER: Request = Request::Barrier { group: None };

pub(super) fn pairs(puts: &[(&str, &str)]) -> Vec<(String, String)> {
    puts.iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// Returns the configuration of a spawned job, with the values that its spawner has put.
pub(super) fn spawned(preput: &[(&str, &str)]) -> Config {
    Config {
        spawned: Some(Spawned {
            by: "parent".to_owned(),
            preput: pairs(preput),
        }),
        ..config(0..2, 2)
    }
}
