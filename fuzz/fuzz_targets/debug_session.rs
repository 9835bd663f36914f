//! What agents say to a debug session: any bytes are decoded or refused, what was decoded is encoded again, and a session that
//! hears it neither panics nor loses a rank.
#![no_main]

use std::collections::BTreeMap;

use base::{NodeId, Rank, RankSet, Time};
use debug::{
    proto::{Action, CommandId, Extent, FromAgent, Proc, ToAgent},
    report::Detail,
    session::{Input, LONGEST, Output, Place, Session},
    wire,
};
use libfuzzer_sys::fuzz_target;

/// Ranks of the agent, and of nobody.
const RANKS: u32 = 8;

fn encoded_again<M: wire::Message>(bytes: &[u8]) -> Option<M> {
    let message: M = wire::decode(bytes).ok()?;
    let again = wire::encode(&message).expect("what was decoded can be encoded");
    let same: M = wire::decode(&again).expect("what was encoded can be decoded");
    assert_eq!(wire::encode(&same).expect("it was encoded before"), again);
    Some(message)
}

fuzz_target!(|bytes: &[u8]| {
    let _ = encoded_again::<ToAgent>(bytes);
    let node = NodeId(0);
    let Some(message) = encoded_again::<FromAgent>(bytes) else {
        return;
    };
    let mut session = Session::new();
    let host = "n1".to_owned();
    session.handle(Time::ZERO, Input::Joined { node, host });
    let place = |rank| {
        let proc = Proc { pid: 7, started: 9 };
        (Rank(rank), Place::At(node, proc))
    };
    session.follow((0..RANKS).map(place).collect::<BTreeMap<_, _>>());
    let all = RankSet::range(0..RANKS);
    let actions = [
        Action::Sample(Extent::Everybody),
        Action::Stacks(Detail::Folded),
        Action::Describe,
    ];
    for action in actions {
        session
            .command(Time::ZERO, &all, action)
            .expect("there are few");
    }
    // Whatever it is, once for every command.
    for id in 1..=3 {
        let message = match &message {
            FromAgent::Done { part, .. } => FromAgent::Done {
                id: CommandId(id),
                part: part.clone(),
            },
            other => other.clone(),
        };
        session.handle(Time::ZERO, Input::Message(node, message));
    }
    session.handle(Time::ZERO + LONGEST, Input::Tick);
    let mut replies = 0;
    while let Some(output) = session.poll() {
        if let Output::Reply(reply) = output {
            replies += 1;
            let missing = reply.missing.values();
            let missing = missing.fold(RankSet::new(), |all, ranks| all.union(ranks));
            assert_eq!(reply.answer.ranks().union(&missing), all);
        }
    }
    assert_eq!(replies, 3);
    assert_eq!(session.deadline(), None);
});
