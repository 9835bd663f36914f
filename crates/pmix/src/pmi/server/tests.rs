//! The server's incremental counts match a full recount.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{barrier::Fence, *};

const RANKS: u32 = 4;

#[derive(Clone, Debug)]
enum Op {
    Say(u32, &'static str),
    Close(u32),
    FenceDone,
    FenceFailed,
    Answer(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let said = prop_oneof![
        4 => Just("cmd=init pmi_version=1 pmi_subversion=1\n"),
        4 => Just("cmd=barrier_in\n"),
        2 => Just("cmd=barrier_in group=0,1,2\n"),
        2 => Just("cmd=barrier_in group=WORLD:1\n"),
        1 => Just("cmd=put kvsname=k key=a value=b\n"),
        1 => Just("cmd=lookup_name service=a\n"),
        1 => Just("cmd=finalize\n"),
        1 => Just("cmd=abort exitcode=1 message=a\n"),
        1 => Just("cmd=dance\n"),
        1 => Just("cmd\n"),
        4 => Just("cmd=init pmi_version=2 pmi_subversion=0\n    13cmd=fullinit;"),
        4 => Just("    14cmd=kvs-fence;"),
        1 => Just("    35cmd=info-getnodeattr;key=a;wait=TRUE"),
        1 => Just("    39cmd=info-putnodeattr;key=a;value=value1;"),
        1 => Just("    13cmd=finalize;"),
    ];
    prop_oneof![
        14 => (0..RANKS, said).prop_map(|(rank, said)| Op::Say(rank, said)),
        1 => (0..RANKS).prop_map(Op::Close),
        3 => Just(Op::FenceDone),
        1 => Just(Op::FenceFailed),
        2 => (0_u64..4).prop_map(Op::Answer),
    ]
}

proptest! {
    /// The incremental counts match a full recount, and the fence events agree with them.
    #[test]
    fn the_counts_are_those_of_a_recount(ops in prop::collection::vec(op(), 0..60)) {
        let config = Config {
            ranks: (0..RANKS).map(|rank| LocalRank { rank: Rank(rank), appnum: 0 }).collect(),
            size: RANKS,
            universe: Some(RANKS),
            kvs_name: "k".to_owned(),
            process_mapping: None,
            spawned: None,
        };
        let mut server = Server::new(config).unwrap();
        for op in ops {
            match op {
                Op::Say(rank, said) => server.handle(Input::Bytes {
                    client: Rank(rank),
                    bytes: said.as_bytes(),
                }),
                Op::Close(rank) => server.handle(Input::Closed { client: Rank(rank) }),
                Op::FenceDone => server.handle(Input::FenceDone {
                    id: server.barriers.next_fence,
                    puts: Vec::new(),
                }),
                Op::FenceFailed => server.handle(Input::FenceFailed),
                Op::Answer(ticket) => server.handle(Input::Answered {
                    ticket: Ticket(ticket),
                    reply: Reply::Refused("no"),
                }),
            }
            let mut counts = [0; State::COUNT];
            let mut waiting = BTreeSet::new();
            for (rank, client) in &server.clients.of {
                counts[client.state as usize] += 1;
                if client.state == State::InBarrier {
                    waiting.insert(*rank);
                }
            }
            prop_assert_eq!(counts, server.clients.counts);
            prop_assert_eq!(&waiting, &server.clients.waiting);
            let complete = !waiting.is_empty() && server.missing().next().is_none();
            prop_assert_eq!(complete, server.barriers.fence == Fence::WithHost && !waiting.is_empty());
            let mut owed = server.asked.values().map(|asked| asked.to.client).collect::<Vec<_>>();
            owed.extend(server.stored.waiting());
            owed.extend(server.barriers.in_groups());
            for (rank, client) in &server.clients.of {
                let open = owed.iter().filter(|other| *other == rank).count();
                let served = matches!(client.state, State::Initialized | State::InBarrier);
                prop_assert_eq!(open, if served { client.waiting } else { 0 }, "rank {}", rank);
            }
            while let Some(output) = server.poll() {
                if let Output::Event(Event::FenceBroken { lost, .. }) = output {
                    prop_assert!(lost.iter().eq(server.clients.among(&[State::Lost]).collect::<Vec<_>>().iter()));
                }
            }
        }
    }
}
