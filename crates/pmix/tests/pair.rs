//! Our own client against our own server, with scripted trouble.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of tests fails the test by panicking"
)]

use std::collections::BTreeMap;

use base::Rank;
use pmix::pmi::{
    Answer, Client, Config, Error, Event, FenceId, Input, Kind, LocalRank, Output, Request, Server,
};

const KVS: &str = "job-1";

/// A server with `n` clients, all on one node, and everything that came out of it.
struct Pair {
    server: Server,
    clients: Vec<Client>,
    /// Answers that have come and were not taken by the script.
    answers: BTreeMap<u32, Answer>,
    events: Vec<Event>,
    closed: Vec<(Rank, Error)>,
}

impl Pair {
    fn new(n: u32) -> Self {
        let config = Config {
            ranks: (0..n)
                .map(|rank| LocalRank {
                    rank: Rank(rank),
                    appnum: rank / 2,
                })
                .collect(),
            universe: 9,
            kvs_name: KVS.to_owned(),
            process_mapping: None,
        };
        Self {
            server: Server::new(config).unwrap(),
            clients: (0..n).map(|_| Client::default()).collect(),
            answers: BTreeMap::new(),
            events: Vec::new(),
            closed: Vec::new(),
        }
    }

    /// The same with every rank initialized.
    fn initialized(n: u32) -> Self {
        let mut pair = Self::new(n);
        for rank in 0..n {
            assert_eq!(
                pair.ask(rank, &Client::INIT),
                Answer::Init {
                    version: 1,
                    subversion: 1
                }
            );
        }
        pair.events.clear();
        pair
    }

    fn handle(&mut self, input: Input<'_>) {
        self.server.handle(input);
        while let Some(output) = self.server.poll() {
            match output {
                Output::Send { client, bytes } => {
                    // Byte by byte: what arrives together is up to the kernel.
                    for byte in bytes {
                        if let Some(answer) =
                            self.clients[client.0 as usize].receive(&[byte]).unwrap()
                        {
                            assert!(self.answers.insert(client.0, answer).is_none());
                        }
                    }
                }
                Output::Close { client, why } => self.closed.push((client, why)),
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    fn send(&mut self, rank: u32, request: &Request) {
        let bytes = self.clients[rank as usize].request(request).unwrap();
        self.handle(Input::Bytes {
            client: Rank(rank),
            bytes: &bytes,
        });
    }

    fn ask(&mut self, rank: u32, request: &Request) -> Answer {
        self.send(rank, request);
        self.answers.remove(&rank).unwrap()
    }

    fn put(&mut self, rank: u32, key: &str, value: &str) -> Answer {
        self.ask(
            rank,
            &Request::Put {
                kvs: KVS.to_owned(),
                key: key.to_owned(),
                value: value.to_owned(),
            },
        )
    }

    fn get(&mut self, rank: u32, key: &str) -> Option<String> {
        match self.ask(
            rank,
            &Request::Get {
                kvs: KVS.to_owned(),
                key: key.to_owned(),
            },
        ) {
            Answer::Get { value } => Some(value),
            _ => None,
        }
    }

    fn raw(&mut self, rank: u32, bytes: &[u8]) {
        self.handle(Input::Bytes {
            client: Rank(rank),
            bytes,
        });
    }

    fn close(&mut self, rank: u32) {
        self.handle(Input::Closed { client: Rank(rank) });
    }

    fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn barrier_rcs(&mut self) -> Vec<(u32, i32)> {
        std::mem::take(&mut self.answers)
            .into_iter()
            .map(|(rank, answer)| match answer {
                Answer::Barrier => (rank, 0),
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

fn pairs(puts: &[(&str, &str)]) -> Vec<(String, String)> {
    puts.iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn questions_are_answered() {
    let mut pair = Pair::initialized(3);
    let mut text = String::new();
    for request in [
        Request::GetMaxes,
        Request::GetAppnum,
        Request::GetKvsName,
        Request::GetUniverseSize,
    ] {
        text.push_str(&format!("{:?}\n", pair.ask(2, &request)));
    }
    insta::assert_snapshot!(text, @r#"
    Maxes { kvs_name: 256, key: 64, value: 1024 }
    Appnum(1)
    KvsName("job-1")
    UniverseSize(9)
    "#);
}

#[test]
fn a_fence_carries_what_was_put_and_brings_what_others_put() {
    let mut pair = Pair::initialized(2);
    assert_eq!(pair.put(0, "a", "1"), Answer::Put);
    assert_eq!(pair.put(1, "b", "x=y z"), Answer::Put);
    pair.send(0, &Request::Barrier);
    assert_eq!(pair.events(), []);
    assert_eq!(pair.server.missing().collect::<Vec<_>>(), [Rank(1)]);
    pair.send(1, &Request::Barrier);
    let puts = pairs(&[("a", "1"), ("b", "x=y z")]);
    assert_eq!(
        pair.events(),
        [Event::Fence {
            id: FenceId(0),
            puts
        }]
    );
    assert_eq!(pair.barrier_rcs(), []);

    pair.handle(Input::FenceDone {
        id: FenceId(0),
        puts: pairs(&[("c", "other node")]),
    });
    assert_eq!(pair.barrier_rcs(), [(0, 0), (1, 0)]);
    assert_eq!(pair.get(1, "a").as_deref(), Some("1"));
    assert_eq!(pair.get(0, "b").as_deref(), Some("x=y z"));
    assert_eq!(pair.get(0, "c").as_deref(), Some("other node"));
    assert_eq!(pair.get(0, "d"), None);

    // The next fence over the same ranks is a new one, with nothing of the old one in it.
    pair.send(0, &Request::Barrier);
    pair.send(1, &Request::Barrier);
    assert_eq!(
        pair.events(),
        [Event::Fence {
            id: FenceId(1),
            puts: vec![]
        }]
    );
    pair.handle(Input::FenceDone {
        id: FenceId(0),
        puts: vec![],
    });
    assert_eq!(
        pair.barrier_rcs(),
        [],
        "a late answer to an old fence releases nobody"
    );
    pair.handle(Input::FenceDone {
        id: FenceId(1),
        puts: vec![],
    });
    assert_eq!(pair.barrier_rcs(), [(0, 0), (1, 0)]);
}

#[test]
fn a_rank_that_finalized_is_not_waited_for() {
    let mut pair = Pair::initialized(3);
    pair.send(0, &Request::Barrier);
    assert_eq!(pair.ask(1, &Request::Finalize), Answer::Finalize);
    pair.close(1);
    assert_eq!(pair.events(), [Event::Finalized { client: Rank(1) }]);
    pair.send(2, &Request::Barrier);
    assert_eq!(
        pair.events(),
        [Event::Fence {
            id: FenceId(0),
            puts: vec![]
        }]
    );
}

#[test]
fn the_last_rank_that_finalizes_instead_of_coming_completes_the_barrier() {
    let mut pair = Pair::initialized(2);
    pair.send(0, &Request::Barrier);
    pair.ask(1, &Request::Finalize);
    assert_eq!(
        pair.events(),
        [
            Event::Finalized { client: Rank(1) },
            Event::Fence {
                id: FenceId(0),
                puts: vec![]
            }
        ]
    );
}

#[test]
fn a_lost_rank_breaks_the_barrier_once_and_for_all_later_ones() {
    let mut pair = Pair::initialized(3);
    pair.send(0, &Request::Barrier);
    pair.close(1);
    let broken = |lost: &[u32], waiting: &[u32]| Event::FenceBroken {
        lost: lost.iter().copied().map(Rank).collect(),
        waiting: waiting.iter().copied().map(Rank).collect(),
    };
    assert_eq!(
        pair.events(),
        [Event::Lost { client: Rank(1) }, broken(&[1], &[0])]
    );
    pair.close(1);
    assert_eq!(pair.events(), [], "it is said once");
    pair.handle(Input::FenceFailed);
    assert_eq!(pair.barrier_rcs(), [(0, 1)]);
    pair.send(2, &Request::Barrier);
    assert_eq!(pair.barrier_rcs(), [(2, 1)]);
    assert_eq!(pair.ask(2, &Request::Finalize), Answer::Finalize);
}

#[test]
fn a_rank_that_was_lost_before_breaks_the_barrier_as_soon_as_somebody_waits() {
    let mut pair = Pair::new(2);
    pair.close(1);
    assert_eq!(
        pair.events(),
        [],
        "a program without PMI may end whenever it likes"
    );
    pair.ask(0, &Client::INIT);
    pair.events();
    pair.send(0, &Request::Barrier);
    assert_eq!(
        pair.events(),
        [Event::FenceBroken {
            lost: vec![Rank(1)],
            waiting: vec![Rank(0)]
        }]
    );
}

#[test]
fn a_rank_lost_while_the_host_has_the_fence_is_not_released_with_the_others() {
    let mut pair = Pair::initialized(2);
    pair.send(0, &Request::Barrier);
    pair.send(1, &Request::Barrier);
    pair.close(1);
    pair.handle(Input::FenceDone {
        id: FenceId(0),
        puts: vec![],
    });
    assert_eq!(pair.barrier_rcs(), [(0, 0)]);
}

#[test]
fn a_rank_that_aborted_neither_completes_a_barrier_nor_is_answered() {
    let mut pair = Pair::initialized(2);
    pair.raw(1, b"cmd=abort exitcode=42 message=abort\ncmd=barrier_in\n");
    pair.raw(1, b"cmd=finalize\n");
    assert_eq!(
        pair.events(),
        [Event::Abort {
            client: Rank(1),
            code: 42,
            message: "abort".to_owned()
        }]
    );
    pair.send(0, &Request::Barrier);
    assert_eq!(pair.events(), []);
    assert_eq!(pair.server.missing().collect::<Vec<_>>(), [Rank(1)]);
    assert!(pair.answers.is_empty() && pair.closed.is_empty());
    // When it has been killed, the barrier of the others is broken and not complete.
    pair.close(1);
    assert_eq!(
        pair.events(),
        [Event::FenceBroken {
            lost: vec![Rank(1)],
            waiting: vec![Rank(0)]
        }]
    );
}

#[test]
fn names_are_published_once_and_found_by_others() {
    let mut pair = Pair::initialized(2);
    let service = || "ocean svc".to_owned();
    let publish = Request::Publish {
        service: service(),
        port: "tag=0 $x".to_owned(),
    };
    assert!(matches!(
        pair.ask(1, &Request::Lookup { service: service() }),
        Answer::Refused { .. }
    ));
    assert_eq!(pair.ask(0, &publish.clone()), Answer::Published);
    assert!(matches!(pair.ask(1, &publish), Answer::Refused { .. }));
    assert_eq!(
        pair.ask(1, &Request::Lookup { service: service() }),
        Answer::Lookup {
            port: "tag=0 $x".to_owned()
        }
    );
    assert_eq!(
        pair.ask(0, &Request::Unpublish { service: service() }),
        Answer::Unpublished
    );
    assert!(matches!(
        pair.ask(0, &Request::Unpublish { service: service() }),
        Answer::Refused { .. }
    ));
}

#[test]
fn whoever_breaks_the_rules_is_closed_and_nobody_else() {
    let cases: [(&str, &[u8]); 13] = [
        ("init twice", b"cmd=init pmi_version=1 pmi_subversion=1\n"),
        ("after finalize", b"cmd=finalize\ncmd=get_maxes\n"),
        ("in a barrier", b"cmd=barrier_in\ncmd=get_maxes\n"),
        ("no command", b"hello\n"),
        ("not text", b"cmd=\xff\n"),
        ("no key", b"cmd=get =1\n"),
        ("a word before any field", b"cmd=get x y=1\n"),
        ("no field", b"cmd=get kvsname=job-1\n"),
        ("no number", b"cmd=abort exitcode=x\n"),
        ("unknown command", b"cmd=dance\n"),
        ("wrong form", b"mcmd=get\nkvsname=job-1\nkey=a\nendcmd\n"),
        ("no field in a spawn", b"mcmd=spawn\nnprocs\nendcmd\n"),
        ("answer as request", b"cmd=barrier_out rc=0\n"),
    ];
    let mut text = String::new();
    for (what, bytes) in cases {
        let mut pair = Pair::initialized(2);
        pair.server.handle(Input::Bytes {
            client: Rank(0),
            bytes,
        });
        let mut closed = Vec::new();
        while let Some(output) = pair.server.poll() {
            if let Output::Close { client, why } = output {
                assert_eq!(client, Rank(0));
                closed.push(why.to_string());
            }
        }
        text.push_str(&format!("{what}: {}\n", closed.join("|")));
        assert_eq!(pair.ask(1, &Request::GetAppnum), Answer::Appnum(0));
        pair.raw(0, bytes);
        assert!(pair.closed.is_empty(), "it is closed once");
    }
    insta::assert_snapshot!(text, @r"
    init twice: peer misbehaved: expected init only once, got `init`
    after finalize: peer misbehaved: expected nothing after finalize, got `get_maxes`
    in a barrier: peer misbehaved: expected nothing before barrier_out, got `get_maxes`
    no command: malformed message: the line does not start with `cmd=` or `mcmd=`
    not text: malformed message: the line is not UTF-8
    no key: malformed message: a field has no key
    a word before any field: malformed message: a field has no key
    no field: malformed message: the field `key` is missing
    no number: malformed message: the field `exitcode` is not a number in range
    unknown command: `dance` is not supported
    wrong form: `get` is not supported
    no field in a spawn: malformed message: a field has no key
    answer as request: `barrier_out` is not supported
    ");
}

#[test]
fn another_version_is_refused_with_words() {
    let mut pair = Pair::new(1);
    pair.server.handle(Input::Bytes {
        client: Rank(0),
        bytes: b"cmd=init pmi_version=2 pmi_subversion=0\n",
    });
    let outputs: Vec<_> = std::iter::from_fn(|| pair.server.poll()).collect();
    assert_eq!(
        outputs,
        [
            Output::Send {
                client: Rank(0),
                bytes: b"cmd=response_to_init rc=1 pmi_version=1 pmi_subversion=1\n".to_vec()
            },
            Output::Close {
                client: Rank(0),
                why: Error::PeerIncompatible { ours: 1, theirs: 2 }
            },
        ]
    );
}

#[test]
fn bounds_refuse_or_close() {
    let mut pair = Pair::initialized(2);
    assert_eq!(pair.put(0, &"k".repeat(64), &"v".repeat(1024)), Answer::Put);
    assert!(matches!(
        pair.put(0, &"k".repeat(65), "v"),
        Answer::Refused { .. }
    ));
    assert!(matches!(
        pair.put(0, "k", &"v".repeat(1025)),
        Answer::Refused { .. }
    ));

    // A line without end.
    pair.raw(0, &[b'x'; 64 * 1024]);
    assert!(pair.closed.is_empty());
    pair.raw(0, b"x");
    assert!(matches!(
        pair.closed.as_slice(),
        [(Rank(0), Error::Limit { .. })]
    ));

    // A command of many lines without end.
    pair.raw(1, b"mcmd=spawn\n");
    for _ in 0..64 {
        pair.raw(1, format!("arg={}\n", "x".repeat(1023)).as_bytes());
    }
    assert!(matches!(
        pair.closed.as_slice(),
        [_, (Rank(1), Error::Limit { .. })]
    ));
}

#[test]
fn questions_without_end_are_cut_off() {
    let mut pair = Pair::initialized(1);
    pair.server.handle(Input::Bytes {
        client: Rank(0),
        bytes: "cmd=get_maxes\n".repeat(4000).as_bytes(),
    });
    let outputs: Vec<_> = std::iter::from_fn(|| pair.server.poll()).collect();
    let sent: usize = outputs
        .iter()
        .map(|output| {
            if let Output::Send { bytes, .. } = output {
                bytes.len()
            } else {
                0
            }
        })
        .sum();
    assert!(sent <= 64 * 1024);
    assert!(matches!(
        outputs.last(),
        Some(Output::Close {
            why: Error::Limit { .. },
            ..
        })
    ));
}

#[test]
fn only_the_last_part_of_a_spawn_is_answered() {
    let mut pair = Pair::initialized(1);
    pair.raw(
        0,
        b"mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=2\nspawnssofar=1\nendcmd\n",
    );
    assert!(pair.answers.is_empty() && pair.closed.is_empty());
    let answer = pair.ask(
        0,
        &Request::Spawn {
            total: 2,
            so_far: 2,
        },
    );
    assert!(matches!(
        answer,
        Answer::Refused {
            kind: Kind::Spawn,
            rc: 1,
            ..
        }
    ));
}

#[test]
fn a_client_minds_its_manners_and_its_servers() {
    let mut client = Client::default();
    assert!(
        client
            .request(&Request::Put {
                kvs: "k".into(),
                key: "a\nb".into(),
                value: String::new()
            })
            .is_err()
    );
    client.request(&Client::INIT).unwrap();
    assert!(client.request(&Request::GetMaxes).is_err(), "one at a time");
    assert!(
        client.receive(b"cmd=barrier_out rc=0\n").is_err(),
        "not what was asked"
    );
    assert!(
        client.request(&Request::GetMaxes).is_err(),
        "nothing after the end"
    );
    assert!(
        Client::default()
            .receive(b"cmd=barrier_out rc=0\n")
            .is_err(),
        "an answer to nothing"
    );
}
