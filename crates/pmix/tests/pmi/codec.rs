//! Each side decodes what the other side encodes, in both dialects.

use base::Rank;
use pmix::pmi::{
    Answer, Dialect, Group, IfAbsent, Kind, Members, Reach, Request, Spawn, SpawnApp,
    wire::{Framer, Message},
};
use proptest::prelude::*;

fn read(dialect: Dialect, bytes: &[u8]) -> Message {
    let mut framer = Framer::default();
    if dialect == Dialect::Two && !bytes.starts_with(b"cmd=") {
        framer.count();
    }
    framer.push(bytes);
    let message = framer.next().unwrap().unwrap();
    assert!(framer.is_empty());
    message
}

/// Generates text that both dialects can carry, without separators.
fn text() -> impl Strategy<Value = String> {
    "[!-~]{1,12}( [!-<>-~]{1,5}){0,2}".prop_map(|text| text.replace('=', "-"))
}

fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec((text(), text()), 0..3)
}

fn spawn() -> impl Strategy<Value = Spawn> {
    let app = (
        text(),
        prop::collection::vec(text(), 0..4),
        0..9_u32,
        pairs(),
    )
        .prop_map(|(program, args, count, infos)| SpawnApp {
            program,
            args,
            count,
            infos,
        });
    (prop::collection::vec(app, 1..4), pairs()).prop_map(|(apps, preput)| Spawn { apps, preput })
}

fn group() -> impl Strategy<Value = Option<Group>> {
    let members = prop_oneof![
        Just(Members::World),
        Just(Members::Node),
        prop::collection::btree_set(0..99_u32, 1..5)
            .prop_map(|ranks| Members::Ranks(ranks.into_iter().map(Rank).collect())),
    ];
    prop::option::of((members, any::<u32>()).prop_map(|(members, tag)| Group { members, tag }))
}

/// Generates requests that both dialects have.
fn shared() -> impl Strategy<Value = Vec<Request>> {
    let one = prop_oneof![
        Just(Request::GetKvsName),
        Just(Request::Finalize),
        (text(), text()).prop_map(|(key, value)| Request::Put {
            kvs: None,
            key,
            value
        }),
        (prop::option::of(text()), text()).prop_map(|(kvs, key)| Request::Get { kvs, key }),
        (any::<i32>(), text()).prop_map(|(code, message)| Request::Abort {
            code,
            message,
            reach: Reach::Job,
        }),
        (text(), text()).prop_map(|(service, port)| Request::Publish { service, port }),
        text().prop_map(|service| Request::Unpublish { service }),
        text().prop_map(|service| Request::Lookup { service }),
        Just(Request::Barrier { group: None }),
    ];
    one.prop_map(|request| vec![request])
}

fn requests() -> impl Strategy<Value = (Dialect, Vec<Request>)> {
    let dialect = prop_oneof![Just(Dialect::One), Just(Dialect::Two)];
    let one = prop_oneof![
        Just(Request::GetMaxes),
        Just(Request::GetAppnum),
        Just(Request::GetUniverseSize),
        group().prop_map(|group| Request::Barrier { group }),
    ];
    let two = prop_oneof![
        Just(Request::FullInit),
        text().prop_map(|key| Request::JobAttribute { key }),
        (text(), text()).prop_map(|(key, value)| Request::PutNodeAttribute { key, value }),
        (
            text(),
            prop_oneof![Just(IfAbsent::Say), Just(IfAbsent::Wait)]
        )
            .prop_map(|(key, absent)| Request::NodeAttribute { key, absent }),
        text().prop_map(|job| Request::Connect { job }),
        text().prop_map(|job| Request::Disconnect { job }),
        text().prop_map(|message| Request::Abort {
            code: 1,
            message,
            reach: Reach::Caller
        }),
    ];
    prop_oneof![
        (dialect.clone(), shared()),
        (dialect, spawn()).prop_map(|(dialect, spawn)| (dialect, Request::spawn(spawn, dialect))),
        one.prop_map(|request| (Dialect::One, vec![request])),
        two.prop_map(|request| (Dialect::Two, vec![request])),
    ]
}

fn answers() -> impl Strategy<Value = (Dialect, Answer)> {
    let dialect = prop_oneof![Just(Dialect::One), Just(Dialect::Two)];
    let shared = prop_oneof![
        text().prop_map(Answer::KvsName),
        Just(Answer::Put),
        text().prop_map(|value| Answer::Get { value: Some(value) }),
        Just(Answer::Finalize),
        Just(Answer::Published),
        Just(Answer::Unpublished),
        text().prop_map(|port| Answer::Lookup { port }),
        Just(Answer::Barrier { tag: 0 }),
        Just(Answer::Init {
            version: 2,
            subversion: 0
        }),
    ];
    let kinds = prop_oneof![Just(Kind::Put), Just(Kind::Spawn), Just(Kind::Barrier)];
    let refused = (kinds, 1..9, "[a-z_]{1,9}").prop_map(|(kind, rc, reason)| Answer::Refused {
        kind,
        rc,
        reason,
    });
    let one = prop_oneof![
        any::<u32>().prop_map(Answer::Appnum),
        any::<Option<u32>>().prop_map(Answer::UniverseSize),
        any::<u32>().prop_map(|tag| Answer::Barrier { tag }),
        Just(Answer::Spawned { job: None }),
    ];
    let two = prop_oneof![
        prop::option::of(text()).prop_map(|value| Answer::Get { value }),
        prop::option::of(text()).prop_map(|value| Answer::JobAttribute { value }),
        prop::option::of(text()).prop_map(|value| Answer::NodeAttribute { value }),
        Just(Answer::PutNodeAttribute),
        Just(Answer::Disconnected),
        text().prop_map(|job| Answer::Spawned { job: Some(job) }),
        (
            any::<u32>(),
            any::<u32>(),
            any::<u32>(),
            prop::option::of(text())
        )
            .prop_map(|(rank, size, appnum, spawner)| Answer::FullInit {
                rank: Rank(rank),
                size,
                appnum,
                spawner,
            }),
    ];
    prop_oneof![
        (dialect.clone(), shared),
        (dialect, refused),
        one.prop_map(|answer| (Dialect::One, answer)),
        two.prop_map(|answer| (Dialect::Two, answer)),
    ]
}

proptest! {
    #[test]
    fn requests_are_read_as_they_are_meant((dialect, requests) in requests()) {
        for request in requests {
            let bytes = request.message(dialect).encode().unwrap();
            let message = read(dialect, &bytes);
            prop_assert_eq!(Kind::asked_by(&message), Some(request.kind()));
            prop_assert_eq!(Request::decode(&message).unwrap(), request);
        }
    }

    #[test]
    fn answers_are_read_as_they_are_meant((dialect, answer) in answers(), thread in prop::option::of("0x[0-9a-f]{1,12}")) {
        let bytes = answer.message(dialect, thread.as_deref()).encode().unwrap();
        let message = read(dialect, &bytes);
        prop_assert_eq!(Kind::answered_by(&message), Some(answer.kind()));
        if dialect == Dialect::Two && answer.kind() != Kind::Init {
            prop_assert_eq!(message.field("thrid"), thread.as_deref());
        }
        prop_assert_eq!(Answer::decode(&message).unwrap(), answer);
    }
}
