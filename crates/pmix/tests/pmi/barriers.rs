//! The barrier of all ranks, in both dialects.

use base::Rank;
use pmix::pmi::{Answer, Dialect, Event, FenceId, Input, Reach, Request};

use super::pair::{BARRIER, Pair, pairs};

fn fence(id: u64, puts: &[(&str, &str)]) -> Event {
    Event::Fence {
        id: FenceId(id),
        puts: pairs(puts),
    }
}

fn broken(lost: &[u32], waiting: &[u32]) -> Event {
    Event::FenceBroken {
        lost: lost.iter().copied().map(Rank).collect(),
        waiting: waiting.iter().copied().map(Rank).collect(),
    }
}

fn done(id: u64, puts: &[(&str, &str)]) -> Input<'static> {
    Input::FenceDone {
        id: FenceId(id),
        puts: pairs(puts),
    }
}

#[test]
fn a_fence_carries_what_was_put_and_brings_what_others_put() {
    for dialect in Dialect::ALL {
        let mut pair = Pair::initialized(2, dialect);
        assert_eq!(pair.put(0, "a", "1"), Answer::Put);
        assert_eq!(pair.put(1, "b", "x=y z"), Answer::Put);
        pair.send(0, &BARRIER);
        assert_eq!(pair.events(), []);
        assert_eq!(pair.server.missing().collect::<Vec<_>>(), [Rank(1)]);
        pair.send(1, &BARRIER);
        assert_eq!(pair.events(), [fence(0, &[("a", "1"), ("b", "x=y z")])]);
        assert_eq!(pair.barrier_rcs(), []);

        pair.handle(done(0, &[("c", "other node")]));
        assert_eq!(pair.barrier_rcs(), [(0, 0), (1, 0)]);
        assert_eq!(pair.get(1, "a").as_deref(), Some("1"));
        assert_eq!(pair.get(0, "b").as_deref(), Some("x=y z"));
        assert_eq!(pair.get(0, "c").as_deref(), Some("other node"));
        assert_eq!(pair.get(0, "d"), None);

        // The next fence of the same ranks is a new one, without values of the previous one.
        pair.send(0, &BARRIER);
        pair.send(1, &BARRIER);
        assert_eq!(pair.events(), [fence(1, &[])]);
        pair.handle(done(0, &[]));
        assert_eq!(
            pair.barrier_rcs(),
            [],
            "a late answer to an old fence releases nobody"
        );
        pair.handle(done(1, &[]));
        assert_eq!(pair.barrier_rcs(), [(0, 0), (1, 0)]);
    }
}

#[test]
fn a_rank_that_finalized_is_not_waited_for() {
    for dialect in Dialect::ALL {
        let mut pair = Pair::initialized(3, dialect);
        pair.send(0, &BARRIER);
        assert_eq!(pair.ask(1, &Request::Finalize), Answer::Finalize);
        pair.close(1);
        assert_eq!(pair.events(), [Event::Finalized { client: Rank(1) }]);
        pair.send(2, &BARRIER);
        assert_eq!(pair.events(), [fence(0, &[])]);
    }
}

#[test]
fn the_last_rank_that_finalizes_instead_of_coming_completes_the_barrier() {
    for dialect in Dialect::ALL {
        let mut pair = Pair::initialized(2, dialect);
        pair.send(0, &BARRIER);
        pair.ask(1, &Request::Finalize);
        assert_eq!(
            pair.events(),
            [Event::Finalized { client: Rank(1) }, fence(0, &[])]
        );
    }
}

#[test]
fn a_lost_rank_breaks_the_barrier_once_and_for_all_later_ones() {
    for dialect in Dialect::ALL {
        let mut pair = Pair::initialized(3, dialect);
        pair.send(0, &BARRIER);
        pair.close(1);
        assert_eq!(
            pair.events(),
            [Event::Lost { client: Rank(1) }, broken(&[1], &[0])]
        );
        pair.close(1);
        assert_eq!(pair.events(), [], "it is said once");
        pair.handle(Input::FenceFailed);
        assert_eq!(pair.barrier_rcs(), [(0, 1)]);
        pair.send(2, &BARRIER);
        assert_eq!(pair.barrier_rcs(), [(2, 1)]);
        assert_eq!(pair.ask(2, &Request::Finalize), Answer::Finalize);
    }
}

#[test]
fn a_rank_that_was_lost_before_breaks_the_barrier_as_soon_as_somebody_waits() {
    for dialect in Dialect::ALL {
        let mut pair = Pair::new(2, dialect);
        pair.close(1);
        assert_eq!(
            pair.events(),
            [],
            "a program without PMI may end whenever it likes"
        );
        pair.init(0);
        pair.events();
        pair.send(0, &BARRIER);
        assert_eq!(pair.events(), [broken(&[1], &[0])]);
    }
}

#[test]
fn a_rank_lost_while_the_host_has_the_fence_is_not_released_with_the_others() {
    for dialect in Dialect::ALL {
        let mut pair = Pair::initialized(2, dialect);
        pair.send(0, &BARRIER);
        pair.send(1, &BARRIER);
        pair.close(1);
        pair.handle(done(0, &[]));
        assert_eq!(pair.barrier_rcs(), [(0, 0)]);
    }
}

#[test]
fn a_rank_that_aborted_neither_completes_a_barrier_nor_is_answered() {
    for dialect in Dialect::ALL {
        let mut pair = Pair::initialized(2, dialect);
        let abort = Request::Abort {
            code: 42,
            message: "abort".to_owned(),
            reach: Reach::Job,
        };
        pair.send(1, &abort);
        for request in [BARRIER, Request::Finalize] {
            pair.raw(1, &request.message(dialect).encode().unwrap());
        }
        assert_eq!(
            pair.events(),
            [Event::Abort {
                client: Rank(1),
                code: 42,
                message: "abort".to_owned()
            }]
        );
        pair.send(0, &BARRIER);
        assert_eq!(pair.events(), []);
        assert_eq!(pair.server.missing().collect::<Vec<_>>(), [Rank(1)]);
        assert_eq!(pair.said(1), "");
        assert!(pair.answers.is_empty() && pair.closed.is_empty());
        // Once the rank has been killed, the barrier of the others is broken rather than complete.
        pair.close(1);
        assert_eq!(pair.events(), [broken(&[1], &[0])]);
    }
}

#[test]
fn a_rank_that_gives_up_alone_is_lost() {
    let mut pair = Pair::initialized(2, Dialect::Two);
    pair.send(0, &BARRIER);
    let abort = Request::Abort {
        code: 1,
        message: "enough".to_owned(),
        reach: Reach::Caller,
    };
    pair.send(1, &abort);
    assert_eq!(
        pair.events(),
        [Event::Lost { client: Rank(1) }, broken(&[1], &[0])]
    );
}

#[test]
fn ranks_of_both_dialects_are_in_one_barrier() {
    let mut pair = Pair::new(2, Dialect::Two);
    pair.init(1);
    pair.raw(
        0,
        b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=put key=a value=b;c\ncmd=barrier_in\n",
    );
    pair.send(1, &BARRIER);
    assert_eq!(pair.events().last(), Some(&fence(0, &[("a", "b;c")])));
    pair.handle(done(0, &[("a", "b;c"), ("d", "x y=z")]));
    assert_eq!(pair.barrier_rcs(), [(1, 0)]);
    assert_eq!(pair.get(1, "a").as_deref(), Some("b;c"));
    pair.raw(0, b"cmd=get key=d\n");
    assert_eq!(
        pair.said(0).lines().skip(1).collect::<Vec<_>>(),
        [
            "cmd=put_result rc=0 msg=success",
            "cmd=barrier_out rc=0 tag=0",
            // In a PMI-1 line the value would be read as another field.
            "cmd=get_result rc=1 msg=value_not_representable",
        ]
    );
}

#[test]
fn a_thread_is_answered_while_another_is_in_the_barrier() {
    for dialect in Dialect::ALL {
        let mut pair = Pair::initialized(2, dialect);
        let get = Request::Get {
            kvs: None,
            key: "universeSize".to_owned(),
        };
        for request in [BARRIER, get] {
            pair.raw(0, &request.message(dialect).encode().unwrap());
        }
        assert!(pair.said(0).contains("value=9"));
        pair.raw(0, b"");
        pair.send(1, &BARRIER);
        pair.handle(done(0, &[]));
        assert!(pair.said(0).contains("rc=0"));
        assert!(pair.closed.is_empty());
    }
}
