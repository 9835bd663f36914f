use base::RankSet;

use super::{
    super::words::{Mistake, cause},
    *,
};

fn receives(rank_: u32, from: i32, tag: i32, ordinal: u64) -> RankCalls {
    rank(rank_, 3).in_call(call("MPI_Recv", from, tag, ordinal))
}

fn sentence(calls: &Calls) -> String {
    cause(&proved(calls).unwrap(), calls).unwrap().sentence
}

#[test]
fn a_ring_of_receives_is_stuck_unless_a_message_was_sent() {
    let ring = [
        receives(0, 2, 5, 1),
        receives(1, 0, 5, 1),
        receives(2, 1, 5, 1),
    ];
    assert_eq!(stuck(&job(ring.clone())), [0, 1, 2]);
    for sender in 0..3 {
        let mut ring = ring.clone();
        let to = (i32::try_from(sender).unwrap() + 1) % 3;
        ring[sender] = ring[sender].clone().with(Direction::Sent, to, 5, 1);
        assert_eq!(stuck(&job(ring)), [0_u32; 0], "{sender}");
    }
    insta::assert_snapshot!(sentence(&job(ring)), @"rank 0 waits in MPI_Recv (a.c:1) from rank 2, tag 5, WORLD; rank 2 has sent it 0 with tag 5; rank 2 waits in MPI_Recv (a.c:1) from rank 1, tag 5, WORLD; rank 1 has sent it 0 with tag 5; rank 1 waits in MPI_Recv (a.c:1) from rank 0, tag 5, WORLD; rank 0 has sent it 0 with tag 5");
}

#[test]
fn other_tags_and_numbers_are_told() {
    let calls = job([
        receives(0, 1, 5, 3).with(Direction::Received, 1, 5, 3),
        receives(1, 0, 6, 1)
            .with(Direction::Sent, 0, 5, 2)
            .with(Direction::Sent, 0, 9, 4),
        rank(2, 3),
    ]);
    insta::assert_snapshot!(sentence(&calls), @"rank 0 waits in MPI_Recv (a.c:1) from rank 1, tag 5, WORLD; rank 1 has sent it 2 with tag 5, and 4 with tag 9; rank 1 waits in MPI_Recv (a.c:1) from rank 0, tag 6, WORLD; rank 0 has sent it 0 with tag 6");
}

#[test]
fn who_could_help_and_is_not_stuck_ends_the_proof() {
    // Rank 2 computes.
    let calls = job([receives(0, 1, 5, 1), receives(1, 2, 5, 1), rank(2, 3)]);
    assert_eq!(stuck(&calls), [0_u32; 0]);
    // Rank 2 has finalized: it never sends anything again.
    let mut ended = rank(2, 3);
    ended.finalized = true;
    let calls = job([receives(0, 1, 5, 1), receives(1, 2, 5, 1), ended]);
    assert_eq!(stuck(&calls), [0, 1]);
}

/// A rank that is dead does nothing more, in whatever call it was.
#[test]
fn who_waits_for_a_dead_rank_waits_for_ever() {
    let mut dead = receives(2, 0, 5, 1);
    dead.ended = true;
    let calls = job([receives(0, 1, 5, 1), receives(1, 2, 5, 1), dead.clone()]);
    assert_eq!(stuck(&calls), [0, 1]);
    insta::assert_snapshot!(sentence(&calls), @"rank 0 waits in MPI_Recv (a.c:1) from rank 1, tag 5, WORLD; rank 1 has sent it 0 with tag 5; rank 1 waits in MPI_Recv (a.c:1) from rank 2, tag 5, WORLD; rank 2 has sent it 0 with tag 5; rank 2 has ended");
    // What it had sent before may still arrive.
    let sent = dead.clone().with(Direction::Sent, 1, 5, 1);
    let calls = job([receives(0, 1, 5, 1), receives(1, 2, 5, 1), sent]);
    assert_eq!(stuck(&calls), [0_u32; 0]);
    for gone in [
        dead,
        RankCalls {
            finalized: true,
            ..rank(2, 3)
        },
    ] {
        let enters = |of: u32| rank(of, 3).in_collective("MPI_Barrier", 0);
        let calls = job([enters(0), enters(1), gone]);
        let cause = cause(&proved(&calls).unwrap(), &calls).unwrap();
        assert_eq!(cause.mistake, Mistake::NotEntered);
        assert_eq!(cause.ranks, RankSet::range(0..3), "{}", cause.sentence);
    }
}

#[test]
fn nothing_is_proved_of_ranks_that_move_or_whose_counts_are_doubtful() {
    use super::super::Doubt;
    let pair = [receives(0, 1, 5, 1), receives(1, 0, 5, 1), rank(2, 3)];
    let before = job(pair.clone());
    assert_eq!(stuck(&before), [0, 1]);
    // Another call at the same line.
    let mut after = pair.clone();
    after[1].threads[0].calls[0].number += 1;
    let after = job(after);
    assert!(prove(&before, &after, |_| true).is_none());
    // A thread that may call MPI.
    let mut threads = pair.clone();
    threads[0].threading = Threading::Any;
    let threads = job(threads);
    assert!(prove(&threads, &threads, |rank| rank != Rank(0)).is_none());
    assert!(prove(&threads, &threads, |_| true).is_some());
    // A count that may be wrong.
    let mut doubtful = pair.clone();
    doubtful[1].doubts.insert(Doubt::Calls);
    assert_eq!(stuck(&job(doubtful)), [0_u32; 0]);
    // Another job with ranks of the same numbers.
    let mut other = pair;
    other[1].rank = Some(2);
    assert_eq!(stuck(&job(other)), [0_u32; 0]);
}

#[test]
fn a_communicator_without_an_id_proves_nothing() {
    let mut pair = [receives(0, 1, 5, 1), receives(1, 0, 5, 1)];
    pair[0].communicators[0].id = None;
    assert_eq!(stuck(&job(pair.clone())), [0_u32; 0]);
    // The same number, but other members: a region with wrong bytes.
    pair[0].communicators[0] = communicator(1, WORLD, 0, 2);
    assert_eq!(stuck(&job(pair)), [0_u32; 0]);
}

#[test]
fn a_collective_needs_all_members_and_one_operation() {
    let enters = |of: u32| rank(of, 3).in_collective("MPI_Bcast", 0);
    // Everybody is there.
    assert_eq!(stuck(&job([enters(0), enters(1), enters(2)])), [0_u32; 0]);
    // One computes.
    assert_eq!(stuck(&job([enters(0), enters(1), rank(2, 3)])), [0_u32; 0]);
    // One waits for another.
    let calls = job([enters(0), enters(1), receives(2, 0, 5, 1)]);
    assert_eq!(stuck(&calls), [0, 1, 2]);
    insta::assert_snapshot!(sentence(&calls), @"ranks 0-1 wait in MPI_Bcast (a.c:1) on WORLD, collective operation 1; rank 2 has begun 0; rank 2 waits in MPI_Recv (a.c:1) from rank 0, tag 5, WORLD; rank 0 has sent it 0 with tag 5");
    // Another root, another function, and the same with a large count.
    let calls = job([
        enters(0),
        enters(1),
        rank(2, 3).in_collective("MPI_Bcast", 1),
    ]);
    insta::assert_snapshot!(sentence(&calls), @"as collective operation 1 of WORLD, ranks 0-1 have called MPI_Bcast (a.c:1) with root 0, and rank 2 has called MPI_Bcast (a.c:1) with root 1");
    let calls = job([
        enters(0),
        enters(1),
        rank(2, 3).in_collective("MPI_Barrier", 0),
    ]);
    insta::assert_snapshot!(sentence(&calls), @"as collective operation 1 of WORLD, rank 2 has called MPI_Barrier (a.c:1), and ranks 0-1 have called MPI_Bcast (a.c:1) with root 0");
    let calls = job([
        enters(0),
        enters(1),
        rank(2, 3).in_collective("MPI_Bcast_c", 0),
    ]);
    assert_eq!(stuck(&calls), [0_u32; 0]);
}

#[test]
fn any_source_is_stuck_only_if_no_message_is_left() {
    let any = Flavor::Mpich.any_source();
    let waits = |of: u32, count| {
        rank(of, 2)
            .in_call(call("MPI_Recv", any, 5, 0))
            .with(Direction::Received, any, 5, count)
    };
    // Each has received one message before, and waits for the second.
    let calls = job([
        waits(0, 2).with(Direction::Sent, 1, 5, 1),
        waits(1, 2).with(Direction::Sent, 0, 5, 1),
    ]);
    assert_eq!(stuck(&calls), [0, 1]);
    insta::assert_snapshot!(sentence(&calls), @"ranks 0-1 wait in MPI_Recv (a.c:1) from any rank, tag 5, WORLD; no message is left");
    // One message is on its way.
    let calls = job([
        waits(0, 2).with(Direction::Sent, 1, 5, 2),
        waits(1, 2).with(Direction::Sent, 0, 5, 1),
    ]);
    assert_eq!(stuck(&calls), [0_u32; 0]);
    // A message with another tag does not help.
    let calls = job([
        waits(0, 2)
            .with(Direction::Sent, 1, 5, 1)
            .with(Direction::Sent, 1, 6, 1),
        waits(1, 2).with(Direction::Sent, 0, 5, 1),
    ]);
    assert_eq!(stuck(&calls), [0, 1]);
}

#[test]
fn one_request_ends_a_wait_for_any_but_not_one_for_all() {
    let waits = |name: &str, requests: Vec<Pending>, unknown| {
        let mut call = call(name, 0, 0, 0);
        call.pending = requests;
        call.unknown = unknown;
        rank(0, 2).in_call(call)
    };
    let (missing, there) = (pending("MPI_Irecv", 1, 5, 2), pending("MPI_Irecv", 1, 6, 1));
    // Rank 1 has sent one with each tag, and waits for rank 0.
    let other = || {
        rank(1, 2)
            .in_call(call("MPI_Recv", 0, 5, 1))
            .with(Direction::Sent, 0, 5, 1)
            .with(Direction::Sent, 0, 6, 1)
    };
    let both = vec![there, missing.clone()];
    assert_eq!(
        stuck(&job([waits("MPI_Waitall", both.clone(), 3), other()])),
        [0, 1]
    );
    assert_eq!(
        stuck(&job([waits("MPI_Waitany", both, 0), other()])),
        [0_u32; 0]
    );
    let one = vec![missing];
    assert_eq!(
        stuck(&job([waits("MPI_Waitany", one.clone(), 0), other()])),
        [0, 1]
    );
    assert_eq!(
        stuck(&job([waits("MPI_Waitsome", one, 1), other()])),
        [0_u32; 0]
    );
}

#[test]
fn a_send_is_stuck_until_its_receive_is_begun_by_whatever_source_and_tag() {
    let sends = || rank(0, 2).in_call(call("MPI_Ssend", 1, 5, 2));
    let other = || rank(1, 2).in_call(call("MPI_Recv", 0, 6, 1));
    assert_eq!(
        stuck(&job([sends(), other().with(Direction::Received, 0, 5, 1)])),
        [0, 1]
    );
    let (any, any_tag) = (Flavor::Mpich.any_source(), Flavor::Mpich.any_tag());
    for (peer, tag) in [(0, 5), (any, 5), (0, any_tag), (any, any_tag)] {
        let other = other().with(Direction::Received, peer, tag, 2);
        assert_eq!(stuck(&job([sends(), other])), [0_u32; 0], "{peer} {tag}");
    }
    // A send that failed is counted too, so the number of this one may be too high.
    let mut failed = sends();
    failed.communicators[0].flags = calls::layout::flags::FAILED;
    assert_eq!(
        stuck(&job([failed, other().with(Direction::Received, 0, 5, 1)])),
        [0_u32; 0]
    );
}

/// The master is one of those who could send to itself; the others are why it waits.
#[test]
fn who_waits_for_any_rank_is_told_with_another() {
    let any = Flavor::Mpich.any_source();
    let master = rank(0, 3).in_call(call("MPI_Recv", any, 5, 1));
    let worker = |of: u32| rank(of, 3).in_call(call("MPI_Probe", 0, 9, 0));
    insta::assert_snapshot!(sentence(&job([master, worker(1), worker(2)])), @"rank 0 waits in MPI_Recv (a.c:1) from any rank, tag 5, WORLD; no message is left; ranks 1-2 wait in MPI_Probe (a.c:1) from rank 0, tag 9, WORLD; rank 0 has sent it 0 with tag 9");
}

/// What was sent with other tags was received before.
#[test]
fn who_waits_for_any_tag_is_told_that_nothing_is_left() {
    let any_tag = Flavor::Mpich.any_tag();
    let waits = receives(0, 1, any_tag, 0).with(Direction::Received, 1, any_tag, 3);
    let other = receives(1, 0, 9, 1).with(Direction::Sent, 0, 5, 2);
    insta::assert_snapshot!(sentence(&job([waits, other, rank(2, 3)])), @"rank 0 waits in MPI_Recv (a.c:1) from rank 1, tag any, WORLD; no message is left; rank 1 waits in MPI_Recv (a.c:1) from rank 0, tag 9, WORLD; rank 0 has sent it 0 with tag 9");
}

#[test]
fn tags_that_are_not_named_are_counted() {
    let mut sender = receives(1, 0, 9, 1);
    for tag in 0..10 {
        sender = sender.with(Direction::Sent, 0, tag, 1);
    }
    let calls = job([receives(0, 1, 10, 1), sender, rank(2, 3)]);
    let said = sentence(&calls);
    assert!(said.contains("rank 1 has sent it 0 with tag 10, and 1 with tag 9, 1 with tag 8, 1 with tag 7, and more with 7 other tags;"), "{said}");
}

/// Two communicators of one name, and ranks that the program calls otherwise.
#[test]
fn communicators_and_ranks_are_told_apart() {
    let with = |of: u32, first: usize| {
        let mut calls = rank(of, 2);
        for (serial, origin) in [(3, 1), (4, 2)] {
            let mut on = communicator(serial, u64::from(serial), of, 2);
            (on.name, on.parent, on.origin) = (Some("grid".into()), Some(WORLD), origin);
            calls.communicators.push(on);
        }
        let serial = calls.communicators[1 + first].serial;
        calls.communicators[1 + first].collectives = 1;
        calls.communicators[1 + first].last = vec![Some((function("MPI_Barrier"), 0))];
        let mut barrier = call("MPI_Barrier", 0, 0, 1);
        barrier.communicator = serial;
        calls.in_call(barrier)
    };
    insta::assert_snapshot!(sentence(&job([with(0, 0), with(1, 1)])), @r#"rank 0 waits in MPI_Barrier (a.c:1) on "grid" WORLD#1, collective operation 1; rank 1 has begun 0; rank 1 waits in MPI_Barrier (a.c:1) on "grid" WORLD#2, collective operation 1; rank 0 has begun 0"#);
    // Rank 1 is rank 0 of a communicator of its own order.
    let turned = |of: u32| {
        let mut calls = rank(of, 2);
        let on = &mut calls.communicators[0];
        on.members = Members::List(vec![1, 0]);
        on.rank = 1 - of;
        calls.in_call(call("MPI_Recv", i32::try_from(of).unwrap(), 5, 1))
    };
    insta::assert_snapshot!(sentence(&job([turned(0), turned(1)])), @"rank 0 waits in MPI_Recv (a.c:1) from rank 1 (rank 0 there), tag 5, WORLD; rank 1 has sent it 0 with tag 5; rank 1 waits in MPI_Recv (a.c:1) from rank 0 (rank 1 there), tag 5, WORLD; rank 0 has sent it 0 with tag 5");
}
