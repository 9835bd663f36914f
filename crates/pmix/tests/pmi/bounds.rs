//! Bounds of the server.

use base::Rank;
use pmix::pmi::{Answer, Dialect, Error, Input, MAX_ENTRIES, Output, Server};

use super::pair::{Pair, config, spawned};

fn reason(answer: Answer) -> String {
    match answer {
        Answer::Refused { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn keys_and_values_have_the_lengths_that_get_maxes_says() {
    for dialect in Dialect::ALL {
        let mut pair = Pair::initialized(1, dialect);
        assert_eq!(pair.put(0, &"k".repeat(64), &"v".repeat(1024)), Answer::Put);
        let long = pair.put(0, &"k".repeat(65), "v");
        assert_eq!(reason(long), "key_too_long");
        let long = pair.put(0, "k", &"v".repeat(1025));
        assert_eq!(reason(long), "value_too_long");
        assert_eq!(reason(pair.put(0, "PMI_x", "v")), "reserved_key");
        assert!(pair.closed.is_empty());
    }
}

#[test]
fn a_key_value_space_is_full_one_day() {
    let mut pair = Pair::initialized(1, Dialect::One);
    // The process mapping is the first entry.
    for number in 1..MAX_ENTRIES {
        assert_eq!(pair.put(0, &number.to_string(), "v"), Answer::Put);
    }
    assert_eq!(reason(pair.put(0, "one more", "v")), "kvs_is_full");
    assert_eq!(pair.put(0, "1", "w"), Answer::Put);
}

#[test]
fn commands_without_end_are_cut_off() {
    // A line that is too long.
    let mut pair = Pair::initialized(2, Dialect::One);
    pair.raw(0, &[b'x'; 64 * 1024]);
    assert!(pair.closed.is_empty());
    pair.raw(0, b"x");
    assert!(matches!(
        pair.closed.as_slice(),
        [(Rank(0), Error::Limit { .. })]
    ));

    // A multi-line command that is too long.
    pair.raw(1, b"mcmd=spawn\n");
    for _ in 0..1024 {
        pair.raw(1, format!("arg={}\n", "x".repeat(1019)).as_bytes());
    }
    assert!(matches!(
        pair.closed.as_slice(),
        [_, (Rank(1), Error::Limit { .. })]
    ));

    // A command with too many fields.
    let mut pair = Pair::initialized(1, Dialect::Two);
    let text = format!("cmd=spawn;{}", "a=;".repeat(4097));
    pair.raw(0, format!("{:6}{text}", text.len()).as_bytes());
    assert!(matches!(
        pair.closed.as_slice(),
        [(Rank(0), Error::Limit { .. })]
    ));
}

#[test]
fn questions_without_end_are_cut_off() {
    let mut pair = Pair::initialized(1, Dialect::One);
    pair.server.handle(Input::Bytes {
        client: Rank(0),
        bytes: "cmd=get_maxes\n".repeat(4000).as_bytes(),
    });
    let outputs: Vec<_> = std::iter::from_fn(|| pair.server.poll()).collect();
    let sent = |output: &Output| match output {
        Output::Send { bytes, .. } => bytes.len(),
        _ => 0,
    };
    assert!(outputs.iter().map(sent).sum::<usize>() <= 64 * 1024);
    assert!(matches!(
        outputs.last(),
        Some(Output::Close {
            why: Error::Limit { .. },
            ..
        })
    ));
}

#[test]
fn a_server_begins_only_with_what_its_clients_can_read() {
    assert!(Server::new(spawned(&[("a", "b")])).is_ok());
    for preput in [("a", "b\nc"), ("a b=", "c"), ("a", &"x".repeat(1025))] {
        assert!(Server::new(spawned(&[preput])).is_err(), "{preput:?}");
    }
    let mut long = config(0..1, 1);
    long.kvs_name = "k".repeat(257);
    assert!(Server::new(long).is_err());
}
