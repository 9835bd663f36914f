//! The messages of several clients arrive in any order. Each request is answered exactly once, and with the values that were put.

use pmix::{
    codec::Format,
    message::{Answer, Request},
    server::Conn,
    value::{Scope, Status, Value},
};
use proptest::prelude::*;

use crate::world::{V3, V5, V6, V42, World, all, commit, fence, get, proc, values_of};

/// Script that all clients run, each at its own pace.
#[derive(Clone, Debug)]
struct Script {
    clients: u32,
    rounds: u32,
    /// Clients in the order of their turns. After the last turn, the remaining requests follow in order.
    turns: Vec<u32>,
    /// Targets of the clients' gets, each with the round that puts the key.
    gets: Vec<(u32, u32)>,
}

fn scripts() -> impl Strategy<Value = Script> {
    (1..6_u32, 1..4_u32).prop_flat_map(|(clients, rounds)| {
        (
            proptest::collection::vec(0..clients, 0..200),
            proptest::collection::vec((0..clients, 0..rounds), 1..6),
        )
            .prop_map(move |(turns, gets)| Script {
                clients,
                rounds,
                turns,
                gets,
            })
    })
}

/// Returns the requests of one client.
fn requests(script: &Script, client: u32, format: Format) -> Vec<Request> {
    let mut requests = vec![Request::JobInfo];
    for round in 0..script.rounds {
        let key = format!("round {round}");
        let number = client * 100 + round;
        requests.push(commit(format, Scope::GLOBAL, &[(&key, number)]));
        // Some gets precede the put, some follow it.
        let asks = script.gets.iter().filter(|(_, asked)| *asked <= round + 1);
        requests.extend(
            asks.map(|(whom, asked)| get(&proc("a", *whom), &format!("round {asked}"), Vec::new())),
        );
        requests.push(fence(&[all("a")]));
    }
    requests
}

proptest! {
    #[test]
    fn every_request_is_answered_once(script in scripts()) {
        let mut world = World::new(&[("a", script.clients)]);
        let tongues = [V5, V3, V6, V42];
        let mut clients: Vec<(Conn, std::vec::IntoIter<Request>)> = (0..script.clients)
            .map(|client| {
                let tongue = tongues[client as usize % tongues.len()];
                let conn = world.connect_as("a", client, tongue);
                let requests = requests(&script, client, world.format(conn));
                (conn, requests.into_iter())
            })
            .collect();
        let mut sent = Vec::new();
        let rest = (0..script.clients).flat_map(|client| std::iter::repeat_n(client, 100));
        for client in script.turns.iter().copied().chain(rest) {
            let (conn, requests) = &mut clients[client as usize];
            if let Some(request) = requests.next() {
                let tag = world.send(*conn, &request);
                sent.push((*conn, tag, request));
            }
        }
        for (conn, tag, request) in sent {
            // The world checks that no request is answered twice.
            let answer = world.answer(conn, tag);
            prop_assert!(answer.is_some(), "{request:?} is not answered");
            let answer = answer.unwrap();
            prop_assert_eq!(answer.status(), Status::SUCCESS);
            if let (Answer::Buffers { .. }, Request::Get { rank, key, .. }) = (&answer, &request) {
                let key = key.as_ref().unwrap().to_string();
                let round: u32 = key.strip_prefix("round ").unwrap().parse().unwrap();
                let values = values_of(world.format(conn), &answer, &proc("a", rank.0));
                prop_assert_eq!(&values[&key], &Value::Uint32(rank.0 * 100 + round));
            }
        }
        world.assert_no_state_left();
    }

    /// Clients disconnect anywhere in their scripts: all requests of the others are answered, with success or an error.
    #[test]
    fn nobody_waits_for_the_dead(script in scripts(), breaks in proptest::collection::vec(0..40_usize, 5)) {
        let mut world = World::new(&[("a", script.clients)]);
        let mut clients: Vec<(Conn, std::vec::IntoIter<Request>)> = (0..script.clients)
            .map(|client| {
                let conn = world.connect("a", client);
                let mut requests = requests(&script, client, Format::V4);
                // Client 0 does not disconnect.
                if client > 0 {
                    requests.truncate(breaks[client as usize - 1]);
                }
                (conn, requests.into_iter())
            })
            .collect();
        let rest = (0..script.clients).flat_map(|client| std::iter::repeat_n(client, 100));
        for client in script.turns.iter().copied().chain(rest) {
            let (conn, requests) = &mut clients[client as usize];
            match requests.next() {
                Some(request) => {
                    world.send(*conn, &request);
                }
                None if client > 0 && world.is_open(*conn) => {
                    let conn = *conn;
                    world.close(conn);
                    world.end("a", client, crate::world::KILLED);
                }
                None => {}
            }
        }
        world.pass(std::time::Duration::from_secs(10));
        let unanswered = world.unanswered(clients[0].0);
        prop_assert!(unanswered.is_empty(), "{:?}", unanswered);
        world.assert_no_state_left();
    }
}
