use std::collections::BTreeMap;

use base::{NodeId, Rank, RankSet};
use serde_json::{Value, json};

use super::*;
use crate::{
    agent::tests::fake::{FakeProcess, Node, STARTED},
    proto::{Action, CommandId, Extent, Proc, Refusal},
    reply::{self, Partial},
    report::Detail,
    stack::Seen,
    tree::Tree,
};

/// Returns the answers to each command from the agent of a node that has two ranks and a descendant of one of them.
fn said() -> Vec<FromAgent> {
    let process = |pid, parent, at| (pid, FakeProcess::new(pid, parent, "a.out", at));
    let processes = [
        process(10, 1, "wait"),
        process(11, 1, "main"),
        process(20, 11, "solve"),
    ];
    let mut node = Node::new(2, processes);
    let proc = |pid| Proc {
        pid,
        started: STARTED,
    };
    let procs = [
        (Rank(4), proc(10)),
        (Rank(7), proc(11)),
        (Rank(9), proc(12)),
    ];
    node.tell(ToAgent::Follow(procs.into()));
    let actions = [
        Action::Sample(Extent::Everybody),
        Action::Stacks(Detail::Folded),
        Action::Stacks(Detail::Full),
        Action::Describe,
    ];
    let ranks = RankSet::range(0..10);
    for (id, action) in (1..).zip(actions) {
        let (id, ranks) = (CommandId(id), ranks.clone());
        node.tell(ToAgent::Do { id, ranks, action });
    }
    let mut said = node.run();
    let id = CommandId(9);
    said.push(FromAgent::Working(id));
    let why = Refusal::Busy;
    said.push(FromAgent::Refused { id, why });
    said.push(FromAgent::Stopped);
    said
}

#[test]
fn messages_come_back_as_they_were() {
    for message in said() {
        let bytes = encode(&message).unwrap();
        let back: FromAgent = decode(&bytes).unwrap();
        assert_eq!(format!("{back:?}"), format!("{message:?}"));
        assert_eq!(encode(&back).unwrap(), bytes);
    }
    let proc = Proc { pid: 7, started: 9 };
    let ranks = RankSet::range(3..90);
    let id = CommandId(3);
    for message in [
        ToAgent::Follow(BTreeMap::from([(Rank(3), proc)])),
        ToAgent::Do {
            id,
            ranks,
            action: Action::Sample(Extent::Children),
        },
        ToAgent::Cancel(id),
        ToAgent::Stop,
    ] {
        let bytes = encode(&message).unwrap();
        assert_eq!(decode::<ToAgent>(&bytes), Ok(message));
    }
}

#[test]
fn what_is_cut_off_or_goes_on_is_no_message() {
    for message in said() {
        let mut bytes = encode(&message).unwrap();
        for length in 0..bytes.len() {
            let cut = decode::<FromAgent>(&bytes[..length]);
            assert!(matches!(cut, Err(Error::Malformed(_))), "{length} bytes");
        }
        bytes.push(0);
        assert!(matches!(decode::<FromAgent>(&bytes), Err(Error::Rest(1))));
    }
    let long = vec![0; MAX_MESSAGE + 1];
    let length = long.len();
    assert!(matches!(
        decode::<FromAgent>(&long),
        Err(Error::TooLong { length: found }) if found == length
    ));
}

/// Decodes an answer of an agent after `spoil` has changed it.
fn wrong(spoil: impl FnOnce(&mut Partial)) -> Result<FromAgent, Error> {
    let mut message = said().swap_remove(0);
    let FromAgent::Done { part, .. } = &mut message else {
        panic!("{message:?}");
    };
    spoil(part);
    decode(&encode(&message).unwrap())
}

#[test]
fn a_stack_has_no_frame_that_is_in_no_table() {
    let result = wrong(|part| {
        let Partial::Sample(sample) = part else {
            panic!("{part:?}");
        };
        sample.frames = crate::stack::Frames::new();
    });
    assert!(matches!(result, Err(Error::Malformed(_))), "{result:?}");
    let long = wrong(|part| {
        let Partial::Sample(sample) = part else {
            panic!("{part:?}");
        };
        sample.frames.intern(crate::stack::Frame {
            function: Some("x".repeat(reply::MAX_NAME + 1).into()),
            module: None,
            source: None,
            kind: crate::stack::FrameKind::Native,
        });
    });
    assert!(matches!(long, Err(Error::Malformed(_))));
    let right = wrong(|part| {
        let Partial::Sample(sample) = part else {
            panic!("{part:?}");
        };
        let seen = Seen::Threads(Vec::new());
        sample.snapshot.procs.insert(Rank(8), seen);
        sample.snapshot.peers.0.remove(&NodeId(7));
    });
    assert!(right.is_ok());
}

#[test]
fn what_no_tree_of_ours_is_is_refused() {
    // The nodes are given as parent, frame, and the ranks by their number of threads.
    let table = [
        (r#"[0, 0, []]"#, "fine"),
        (r#"[0, 0, []], [0, 1, [[1, "0"]]]"#, "fine"),
        (
            r#"[0, 0, [[1, "0"]]], [0, 1, []], [1, 0, [[2, "4-9"], [1, "3"]]]"#,
            "fine",
        ),
        (
            r#"[0, 0, []], [2, 0, [[1, "0"]]], [0, 0, [[1, "0"]]]"#,
            "a node of a tree stands before its parent",
        ),
        (
            r#"[0, 0, []], [1, 0, [[1, "0"]]]"#,
            "a node of a tree stands before its parent",
        ),
        (
            r#"[0, 0, []], [0, 3, [[1, "0"]]], [0, 3, [[1, "0"]]]"#,
            "a node of a tree has the same callee twice",
        ),
        (
            r#"[0, 0, [[1, "0"]]], [0, 3, []]"#,
            "a node of a tree has no threads",
        ),
        (
            r#"[0, 0, [[0, "0"]]]"#,
            "a set of threads has an empty part",
        ),
        (r#"[0, 0, [[1, ""]]]"#, "a set of threads has an empty part"),
    ];
    for (nodes, expected) in table {
        let nodes: Vec<(u32, u32, Value)> = serde_json::from_str(&format!("[{nodes}]")).unwrap();
        let ending = json!({"thread": "first", "activity": "running", "end": "start"});
        let node = |(parent, frame, threads): (u32, u32, Value)| {
            let ends = match threads.as_array() {
                Some(threads) if threads.is_empty() => json!([]),
                _ => json!([[ending, threads]]),
            };
            json!({"parent": parent, "frame": frame, "ends": ends})
        };
        let nodes: Vec<Value> = nodes.into_iter().map(node).collect();
        let said = match serde_json::from_value::<Tree>(nodes.into()) {
            Ok(_) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(said, expected);
    }
}
