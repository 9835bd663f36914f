//! Waits of programs that go on. Nothing is proved of them.

use calls::layout::flags;

use super::*;

const NONE: [u32; 0] = [];

/// A rank of three in a wait for requests.
fn waits(name: &str, of: u32, requests: impl IntoIterator<Item = Pending>) -> RankCalls {
    let mut call = call(name, 0, 0, 0);
    call.pending = requests.into_iter().collect();
    rank(of, 3).in_call(call)
}

fn receives(of: u32, from: i32, tag: i32) -> RankCalls {
    rank(of, 3).in_call(call("MPI_Recv", from, tag, 1))
}

/// Rank 1 has sent its result and waits for more work; rank 2 computes.
#[test]
fn a_receive_with_any_tag_from_one_rank_may_have_its_message() {
    let any_tag = Flavor::Mpich.any_tag();
    let worker = || receives(1, 0, 9).with(Direction::Sent, 0, 7, 1);
    let results = [1, 2].map(|from| pending("MPI_Irecv", from, any_tag, 1));
    let master = waits("MPI_Waitall", 0, results);
    assert_eq!(stuck(&job([master, worker(), rank(2, 3)])), NONE);
    let mut exchange = call("MPI_Sendrecv", 2, 5, 1);
    (exchange.source, exchange.source_tag) = (1, any_tag);
    let master = rank(0, 3).in_call(exchange);
    assert_eq!(stuck(&job([master, worker(), rank(2, 3)])), NONE);
}

/// Rank 0 waits for a message of rank 2, which computes. Its own message to rank 1 was copied long ago.
#[test]
fn a_send_may_be_done_before_it_is_received() {
    let other = || receives(1, 0, 9);
    let from_2 = || pending("MPI_Irecv", 2, 5, 1);
    for (send, are_stuck) in [
        ("MPI_Isend", false),
        ("MPI_Send_init", false),
        ("MPI_Ibsend", false),
        ("MPI_Issend", true),
        ("MPI_Ssend_init", true),
    ] {
        let waits = waits("MPI_Waitall", 0, [pending(send, 1, 4, 1), from_2()]);
        let found = stuck(&job([waits, other(), rank(2, 3)]));
        assert_eq!(found, if are_stuck { &[0, 1][..] } else { &[] }, "{send}");
    }
    // If there is nothing else, one of the sends is not done, and whichever it is, it never will be.
    let two = [4, 5].map(|tag| pending("MPI_Isend", 1, tag, 1));
    let calls = job([waits("MPI_Waitall", 0, two.clone()), other(), rank(2, 3)]);
    assert_eq!(stuck(&calls), [0, 1]);
    let mut unknown = waits("MPI_Waitall", 0, two);
    unknown.threads[0].calls[0].unknown = 1;
    assert_eq!(stuck(&job([unknown, other(), rank(2, 3)])), NONE);
    // The operation of the root may be done too, a barrier never is.
    for (collective, are_stuck) in [("MPI_Ibcast", false), ("MPI_Ibarrier", true)] {
        let waits = waits("MPI_Waitall", 0, [pending(collective, 0, 0, 1), from_2()]);
        let found = stuck(&job([waits, other(), rank(2, 3)]));
        assert_eq!(!found.is_empty(), are_stuck, "{collective}");
    }
}

#[test]
fn an_exchange_may_have_sent_its_message() {
    let exchange = |source: i32| {
        let mut call = call("MPI_Sendrecv", 1, 4, 1);
        (call.source, call.source_tag, call.sent) = (source, 5, 1);
        rank(0, 3).in_call(call)
    };
    let other = || receives(1, 0, 9);
    assert_eq!(stuck(&job([exchange(2), other(), rank(2, 3)])), NONE);
    let nobody = Flavor::Mpich.proc_null();
    assert_eq!(stuck(&job([exchange(nobody), other(), rank(2, 3)])), [0, 1]);
    let buffered = rank(0, 3).in_call(call("MPI_Bsend", 1, 4, 1));
    assert_eq!(stuck(&job([buffered, other(), rank(2, 3)])), NONE);
}

/// An operation that failed on one rank was counted there, and tried again.
#[test]
fn numbers_of_operations_are_not_compared_after_a_failure() {
    let enters = |of: u32, name: &str| rank(of, 2).in_collective(name, 0);
    let pair = [enters(0, "MPI_Bcast"), enters(1, "MPI_Barrier")];
    assert_eq!(stuck(&job(pair.clone())), [0, 1]);
    for failed in [0, 1] {
        let mut pair = pair.clone();
        pair[failed].communicators[0].flags = flags::FAILED;
        assert_eq!(stuck(&job(pair)), NONE, "{failed}");
    }
    // Rank 1 moves, and has begun the operation while it was read.
    let mut pair = pair;
    pair[1].threads[0].calls.clear();
    assert_eq!(stuck(&job(pair.clone())), [0]);
    pair[1].communicators[0].last = vec![None];
    assert_eq!(stuck(&job(pair)), NONE);
}

/// A callback, or a tool, communicates inside the call in which the rank is.
#[test]
fn who_calls_inside_its_call_moves() {
    let pair = |inner: u64| {
        let mut inside = call("MPI_Send", 1, 5, inner);
        (inside.number, inside.nested, inside.in_progress) = (7 + inner, true, false);
        job([receives(0, 1, 5).in_call(inside), receives(1, 0, 5)])
    };
    let (before, after) = (pair(1), pair(2));
    assert!(prove(&before, &before, |_| true).is_some());
    assert!(prove(&before, &after, |_| true).is_none());
}

#[test]
fn a_second_thread_may_help_whatever_the_program_has_promised() {
    let mut pair = [receives(0, 1, 5), receives(1, 0, 5)];
    pair[0].threads.push(ThreadCalls {
        is_first: false,
        tid: 200,
        calls: Vec::new(),
    });
    let calls = job(pair);
    assert!(prove(&calls, &calls, |_| false).is_none());
}

/// The message that was sent may be for this receive: another one, which was started before, may still wait for its own.
#[test]
fn receives_that_were_started_may_not_have_taken_anything() {
    let any = Flavor::Mpich.any_source();
    let waits = || {
        receives(0, any, 5)
            .with(Direction::Received, any, 5, 1)
            .with(Direction::Received, 1, 5, 1)
    };
    let other = || receives(1, 0, 9).with(Direction::Sent, 0, 5, 1);
    let mut ended = rank(2, 3);
    ended.finalized = true;
    let calls = job([waits(), other(), ended.clone()]);
    assert_eq!(stuck(&calls), [0, 1]);
    let mut started = waits();
    started.communicators[0].flags = flags::STARTED;
    assert_eq!(stuck(&job([started, other(), ended])), NONE);
}
