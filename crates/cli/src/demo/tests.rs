//! Ranks of the demo against the real server, each on a thread of its own.

use std::{
    collections::BTreeMap,
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex},
    thread,
};

use base::Rank;
use pmix::pmi::{Config, Event, Input, LocalRank, Output, Server};

use super::*;

/// Changes what a rank gets to read.
type Forge = fn(&str, &str) -> String;

struct Host {
    server: Server,
    streams: BTreeMap<Rank, UnixStream>,
    forge: Forge,
    aborted: usize,
}

impl Host {
    fn handle(&mut self, input: Input<'_>) {
        self.server.handle(input);
        while let Some(output) = self.server.poll() {
            match output {
                Output::Send { client, bytes } => {
                    // A rank that has failed does not read any more.
                    let _ = (&self.streams[&client]).write_all(&bytes);
                }
                Output::Close { client, why } => panic!("rank {client} was closed: {why}"),
                Output::Event(Event::Fence { id, puts }) => {
                    let forge = self.forge;
                    let puts = puts
                        .into_iter()
                        .map(|(key, value)| {
                            let value = forge(&key, &value);
                            (key, value)
                        })
                        .collect();
                    self.server.handle(Input::FenceDone { id, puts });
                }
                Output::Event(Event::FenceBroken { .. }) => {
                    self.aborted += 1;
                    self.server.handle(Input::FenceFailed);
                }
                Output::Event(_) => {}
            }
        }
    }
}

/// Runs the demo on `size` ranks; gives for each what it printed, or its message.
fn demo(size: u32, forge: Forge) -> Vec<String> {
    let ranks = (0..size)
        .map(|rank| LocalRank {
            rank: Rank(rank),
            appnum: 0,
        })
        .collect();
    let config = Config {
        ranks,
        universe: size,
        kvs_name: "kvs_1".to_owned(),
        process_mapping: None,
    };
    let pairs = (0..size)
        .map(|_| UnixStream::pair().unwrap())
        .collect::<Vec<_>>();
    let streams = (0..size)
        .zip(&pairs)
        .map(|(rank, (ours, _))| (Rank(rank), ours.try_clone().unwrap()))
        .collect();
    let host = Host {
        server: Server::new(config).unwrap(),
        streams,
        forge,
        aborted: 0,
    };
    let host = Arc::new(Mutex::new(host));
    thread::scope(|scope| {
        let running = (0..size)
            .zip(pairs)
            .map(|(number, (mut ours, theirs))| {
                let host = Arc::clone(&host);
                scope.spawn(move || {
                    let mut buffer = [0; 512];
                    while let Ok(length @ 1..) = ours.read(&mut buffer) {
                        let bytes = &buffer[..length];
                        host.lock().unwrap().handle(Input::Bytes {
                            client: Rank(number),
                            bytes,
                        });
                    }
                    host.lock().unwrap().handle(Input::Closed {
                        client: Rank(number),
                    });
                });
                scope.spawn(move || {
                    let place = Place {
                        rank: number,
                        size,
                        host: format!("n{}", number / 2),
                        pid: 100 + number,
                    };
                    let mut out = Vec::new();
                    let result = rank(&place, &theirs, &mut out);
                    theirs.shutdown(Shutdown::Both).unwrap();
                    let mut text = String::from_utf8(out).unwrap();
                    if let Err(error) = result {
                        text.push_str(&report::text(&message(&error), MessageFormat::Text));
                    }
                    text
                })
            })
            .collect::<Vec<_>>();
        running
            .into_iter()
            .map(|rank| rank.join().unwrap())
            .collect()
    })
}

fn as_put(_key: &str, value: &str) -> String {
    value.to_owned()
}

#[test]
fn four_ranks_compute_pi() {
    insta::assert_snapshot!(demo(4, as_put).concat(), @"
    rank 0 of 4 is process 100 on n0, reads from 3, is read by 1, adds 0.7853983422
    4 ranks closed the ring, the sum of their numbers is 6
    4 ranks computed pi: 3.1415926536, wrong by 3e-15
    rank 1 of 4 is process 101 on n0, reads from 0, is read by 2, adds 0.7853982230
    rank 2 of 4 is process 102 on n1, reads from 1, is read by 3, adds 0.7853981038
    rank 3 of 4 is process 103 on n1, reads from 2, is read by 0, adds 0.7853979846
    ");
}

#[test]
fn one_rank_is_its_own_neighbour() {
    insta::assert_snapshot!(demo(1, as_put).concat(), @"
    rank 0 of 1 is process 100 on n0, reads from 0, is read by 0, adds 3.1415926536
    1 rank closed the ring, the sum of their numbers is 0
    1 rank computed pi: 3.1415926536, wrong by 3e-13
    ");
}

#[test]
fn many_ranks_agree() {
    let lines = demo(33, as_put);
    assert!(lines[0].contains("33 ranks closed the ring, the sum of their numbers is 528\n"));
    assert!(lines[0].contains("pi: 3.1415926536,"));
    assert!(lines.iter().all(|line| !line.contains("error")));
}

#[test]
fn a_wrong_neighbour_is_noticed() {
    let forge = |key: &str, value: &str| match key {
        "seen-by-1" => "n7:666".to_owned(),
        _ => value.to_owned(),
    };
    let text = demo(3, forge);
    insta::assert_snapshot!(text[0], @"error: the demo's rank failed: rank 1 should have read `n0:100` and has read `n7:666`");
    // The others are told that rank 0 never comes.
    insta::assert_snapshot!(text[2], @"
    rank 2 of 3 is process 102 on n1, reads from 1, is read by 0, adds 1.0471972333
    error: the demo's rank failed: the daemon refused `barrier_in`: fence_failed
    ");
}

#[test]
fn a_damaged_value_is_noticed() {
    let forge = |key: &str, value: &str| match key {
        "part-1" => "pi".to_owned(),
        _ => value.to_owned(),
    };
    insta::assert_snapshot!(demo(2, forge)[0], @"
    rank 0 of 2 is process 100 on n0, reads from 1, is read by 1, adds 1.5707964460
    error: the demo's rank failed: `pi` is not a value for `part-1`
    ");
}

#[test]
fn outside_a_job_it_says_how_to_start_it() {
    let cases: [&[(&str, &str)]; 4] = [
        &[],
        &[("PMI_RANK", "0"), ("PMI_SIZE", "x")],
        &[("PMI_RANK", "4"), ("PMI_SIZE", "4")],
        &[("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("PMI_FD", "")],
    ];
    let text = cases.map(|variables| {
        let environment = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        report::text(
            &message(&place(&environment).unwrap_err()),
            MessageFormat::Text,
        )
    });
    insta::assert_snapshot!(text.concat(), @"
    error: the demo's rank failed: `PMI_RANK` is missing or wrong in its environment
      help: start it with `rally demo`
    error: the demo's rank failed: `PMI_SIZE` is missing or wrong in its environment
      help: start it with `rally demo`
    error: the demo's rank failed: `PMI_RANK` is missing or wrong in its environment
      help: start it with `rally demo`
    error: the demo's rank failed: `PMI_FD` is missing or wrong in its environment
      help: start it with `rally demo`
    ");
}

#[test]
fn the_daemons_end_is_noticed() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let peer = thread::spawn(move || {
        let mut ours = ours;
        let _ = ours.read(&mut [0; 64]);
    });
    let place = Place {
        rank: 0,
        size: 1,
        host: "n0".to_owned(),
        pid: 1,
    };
    let error = rank(&place, theirs, &mut Vec::new()).unwrap_err();
    peer.join().unwrap();
    insta::assert_snapshot!(error, @"the daemon closed the connection");
}

#[test]
fn strips_add_up_whatever_the_number_of_ranks() {
    for size in [1, 2, 7, 64] {
        let pi = (0..size).map(|rank| integrate(rank, size)).sum::<f64>();
        assert!((pi - std::f64::consts::PI).abs() < 1e-11, "{size}: {pi}");
    }
    // More ranks than strips: the last ones have nothing to do.
    assert_eq!(integrate(STRIPS, STRIPS + 1), 0.0);
}
