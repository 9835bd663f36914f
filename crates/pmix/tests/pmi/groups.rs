//! Group barriers of PMI 1.2.

use base::Rank;
use pmix::pmi::{Answer, Dialect, Event, Group, Input, Members, Request};

use super::pair::{BARRIER, Pair, config, pairs};

fn group(ranks: &[u32], tag: u32) -> Group {
    Group {
        members: Members::Ranks(ranks.iter().copied().map(Rank).collect()),
        tag,
    }
}

fn barrier(ranks: &[u32], tag: u32) -> Request {
    Request::Barrier {
        group: Some(group(ranks, tag)),
    }
}

fn reason(answer: Answer) -> String {
    match answer {
        Answer::Refused { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_members_of_a_group_go_on_when_all_are_there() {
    let mut pair = Pair::initialized(4, Dialect::One);
    pair.send(0, &barrier(&[0, 2], 7));
    assert!(pair.answers.is_empty());
    pair.send(2, &barrier(&[0, 2], 7));
    assert_eq!(pair.answer(0), Answer::Barrier { tag: 7 });
    assert_eq!(pair.answer(2), Answer::Barrier { tag: 7 });
    assert_eq!(pair.events(), [], "all of them are on this node");
    // The same barrier again is a new one.
    pair.send(0, &barrier(&[0, 2], 7));
    assert!(pair.answers.is_empty());
}

#[test]
fn barriers_of_the_same_members_have_tags() {
    let mut pair = Pair::initialized(2, Dialect::One);
    pair.raw(
        0,
        b"cmd=barrier_in group=0,1:7\ncmd=barrier_in group=1,0:8\n",
    );
    pair.raw(1, b"cmd=barrier_in group=0,1:8\n");
    assert_eq!(pair.said(0), "cmd=barrier_out rc=0 tag=8\n");
    pair.raw(0, b"");
    pair.raw(1, b"cmd=barrier_in group=0,1:7\n");
    assert_eq!(pair.said(0), "cmd=barrier_out rc=0 tag=7\n");
    assert_eq!(
        pair.said(1),
        "cmd=barrier_out rc=0 tag=8\ncmd=barrier_out rc=0 tag=7\n"
    );
}

#[test]
fn all_and_node_are_groups() {
    for name in ["WORLD:3", "NODE:3"] {
        let mut pair = Pair::initialized(2, Dialect::One);
        let line = format!("cmd=barrier_in group={name}\n");
        pair.raw(0, line.as_bytes());
        pair.raw(1, line.as_bytes());
        assert_eq!(pair.said(0), "cmd=barrier_out rc=0 tag=3\n", "{name}");
        assert_eq!(pair.events(), []);
    }
}

#[test]
fn what_is_no_group_is_refused() {
    let mut pair = Pair::initialized(3, Dialect::One);
    assert_eq!(reason(pair.ask(0, &barrier(&[1, 2], 0))), "not_a_member");
    assert_eq!(reason(pair.ask(0, &barrier(&[0, 3], 0))), "no_such_rank");
    pair.raw(1, b"cmd=barrier_in group=1,x\ncmd=barrier_in group=\n");
    pair.raw(
        1,
        b"cmd=barrier_in group=1,2:1\ncmd=barrier_in group=1,2:1\n",
    );
    insta::assert_snapshot!(pair.said(1), @r"
    cmd=barrier_out rc=1 msg=bad_argument_group
    cmd=barrier_out rc=1 msg=bad_argument_group
    cmd=barrier_out rc=1 msg=already_in_barrier
    ");
}

#[test]
fn a_member_that_finalized_is_not_waited_for() {
    let mut pair = Pair::initialized(3, Dialect::One);
    pair.send(0, &barrier(&[0, 1], 0));
    pair.ask(1, &Request::Finalize);
    assert_eq!(pair.answer(0), Answer::Barrier { tag: 0 });
}

#[test]
fn a_lost_member_breaks_its_groups_and_no_other() {
    let mut pair = Pair::initialized(4, Dialect::One);
    pair.send(0, &barrier(&[0, 1], 0));
    pair.send(2, &barrier(&[2, 3], 0));
    pair.close(1);
    let told = pair.events();
    assert!(
        matches!(&told[1], Event::FenceBroken { lost, .. } if *lost == [Rank(1)]),
        "{told:?}"
    );
    pair.handle(Input::FenceFailed);
    assert_eq!(reason(pair.answer(0)), "fence_failed");
    assert_eq!(reason(pair.ask(0, &barrier(&[0, 1], 1))), "fence_failed");
    assert!(pair.answers.is_empty());
    pair.send(3, &barrier(&[2, 3], 0));
    assert_eq!(pair.answer(2), Answer::Barrier { tag: 0 });
}

#[test]
fn a_member_lost_after_the_host_has_given_up_ends_the_wait() {
    let mut pair = Pair::initialized(3, Dialect::One);
    pair.send(0, &barrier(&[0, 1], 0));
    pair.handle(Input::FenceFailed);
    assert!(pair.answers.is_empty(), "both are alive");
    pair.close(1);
    assert_eq!(reason(pair.answer(0)), "fence_failed");
}

#[test]
fn members_on_other_nodes_are_for_the_host() {
    let mut pair = Pair::of(config(0..2, 4), Dialect::One).begun();
    assert_eq!(pair.put(0, "a", "1"), Answer::Put);
    pair.send(0, &barrier(&[0, 3], 5));
    let told = |puts: &[(&str, &str)]| Event::Group {
        group: group(&[0, 3], 5),
        puts: pairs(puts),
    };
    assert_eq!(pair.events(), [told(&[("a", "1")])]);
    let done = |tag| Input::GroupDone {
        group: group(&[0, 3], tag),
        puts: pairs(&[("a", "1"), ("b", "2")]),
    };
    pair.handle(done(6));
    assert!(pair.answers.is_empty());
    pair.handle(done(5));
    assert_eq!(pair.answer(0), Answer::Barrier { tag: 5 });
    pair.handle(done(5));
    assert!(pair.answers.is_empty(), "it is answered once");
    assert_eq!(pair.get(1, "b").as_deref(), Some("2"));
    // Ranks outside the group have not got the value: the next fence of all ranks transmits it.
    pair.send(0, &BARRIER);
    pair.send(1, &BARRIER);
    assert!(
        matches!(&pair.events()[..], [Event::Fence { puts, .. }] if *puts == pairs(&[("a", "1")]))
    );
}

#[test]
fn the_host_may_give_up_a_group_on_other_nodes() {
    let mut pair = Pair::of(config(0..2, 4), Dialect::One).begun();
    pair.send(0, &barrier(&[0, 3], 5));
    pair.handle(Input::FenceFailed);
    assert_eq!(reason(pair.answer(0)), "fence_failed");
}
