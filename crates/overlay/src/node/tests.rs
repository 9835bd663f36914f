mod faults;
mod gather;
mod hostile;
mod merging;
mod net;

use net::{DELAY, Net, at, config, entropy};

use super::*;
use crate::{lanes::window, packet::BODY_MAX};

#[test]
fn processes_join_in_any_order_and_form_the_tree() {
    for order in [[1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1], [4, 1, 6, 3, 5, 2]] {
        let mut net = Net::new(6, 2);
        for member in order {
            net.start(member);
            net.run(Duration::from_millis(10));
        }
        assert_eq!(net.joined_members(), [1, 2, 3, 4, 5, 6]);
        let children = |of: u32| {
            let links = net.nodes[&Address(of)].links.iter();
            let children = links.filter(|(_, link)| link.side == Side::Child);
            children.map(|(peer, _)| peer.0).collect::<Vec<_>>()
        };
        assert_eq!(
            [children(0), children(1), children(4)],
            [vec![1, 4], vec![2, 3], vec![5, 6]]
        );
        for member in 1..=6 {
            assert_eq!(net.news_of(member), [Output::Ready]);
        }
    }
}

#[test]
fn a_process_that_is_expected_later_joins_below_the_root_and_a_lost_one_is_not_taken_for_it() {
    let mut net = Net::joined(6, 2);
    net.start(7);
    net.run(Duration::from_millis(10));
    assert!(!net.joined_members().contains(&7), "nobody expects it");
    net.root().expect(Address(7));
    net.root().expect(Address(8));
    net.kill(7);
    net.start(7);
    net.cut.insert(Address(2));
    net.run(Duration::from_secs(15));
    assert!(net.joined_members().contains(&7));
    assert!(net.nodes[&Address::ROOT].links.contains_key(&Address(7)));
    // The lost one runs, and finds its way again too late. Its node has another process now.
    net.start(8);
    net.cut.remove(&Address(2));
    net.run(Duration::from_secs(15));
    assert!(net.joined_members().contains(&8));
    net.news.clear();
    net.cast(&[7, 8], b"hello");
    net.send(8, Lane::Control, b"yes".to_vec());
    net.run(Duration::from_millis(10));
    for member in [7, 8] {
        assert_eq!(net.received(member), [(0, b"hello".to_vec())]);
    }
    assert_eq!(net.received(0), [(8, b"yes".to_vec())]);
}

#[test]
fn a_cast_reaches_its_members_once_and_no_other() {
    let mut net = Net::joined(12, 3);
    net.cast(&[2, 3, 7, 12], b"to some");
    net.cast(&(1..=12).collect::<Vec<_>>(), b"to all");
    net.run(Duration::from_millis(100));
    for member in 1..=12 {
        let received = net.received(member);
        let some = (0, b"to some".to_vec());
        let all = (0, b"to all".to_vec());
        if [2, 3, 7, 12].contains(&member) {
            assert_eq!(received, [some, all]);
        } else {
            assert_eq!(received, [all]);
        }
    }
}

#[test]
fn every_message_to_the_root_arrives_once_and_in_order() {
    let mut net = Net::joined(7, 2);
    for round in 0..5_u8 {
        for member in 1..=7 {
            net.send(member, Lane::Control, vec![round]);
        }
    }
    net.run(Duration::from_millis(100));
    for member in 1..=7 {
        let from: Vec<u8> = net
            .received(0)
            .into_iter()
            .filter(|(from, _)| *from == member)
            .map(|(_, body)| body[0])
            .collect();
        assert_eq!(from, [0, 1, 2, 3, 4]);
    }
}

#[test]
fn a_connection_that_breaks_loses_nothing() {
    let mut net = Net::joined(3, 1);
    for round in 0..40_u8 {
        net.send(3, Lane::Bulk, vec![round; 50_000]);
        net.cast(&[3], b"down");
        net.run(Duration::from_micros(250));
        // Each connection on the way in turn.
        net.reset(1 + u32::from(round) % 3);
    }
    net.run(Duration::from_secs(5));
    let rounds: Vec<u8> = net.received(0).iter().map(|(_, body)| body[0]).collect();
    assert_eq!(rounds, (0..40).collect::<Vec<_>>());
    assert_eq!(net.received(3).len(), 40);
    assert!(
        !net.news_of(0)
            .iter()
            .any(|news| matches!(news, Output::Lost { .. }))
    );
}

#[test]
fn a_process_that_dies_is_lost_and_those_below_it_return() {
    let mut net = Net::joined(6, 2);
    net.send(1, Lane::Control, b"last words".to_vec());
    net.run(Duration::from_millis(1));
    let died = net.now;
    net.kill(1);
    net.run(Duration::from_millis(500));
    assert_eq!(net.received(0), [(1, b"last words".to_vec())]);
    let lost: Vec<&Output> = net
        .news_of(0)
        .iter()
        .filter(|news| matches!(news, Output::Lost { .. }))
        .collect();
    let expected = Output::Lost {
        who: Address(1),
        members: [1].map(Address).into(),
        loss: Loss::Closed,
    };
    assert_eq!(lost, [&expected]);
    net.cast(&[1, 2, 3, 4, 5, 6], b"still there?");
    net.send(2, Lane::Control, b"yes".to_vec());
    net.run(Duration::from_millis(10));
    for member in [2, 3, 4, 5, 6] {
        assert_eq!(net.received(member).len(), 1);
        assert_eq!(net.news_of(member).len(), 1);
    }
    assert_eq!(net.received(0)[1..], [(2, b"yes".to_vec())]);
    assert!(net.now.since(died) < Duration::from_secs(1));
}

#[test]
fn what_a_process_took_and_did_not_pass_on_is_sent_again() {
    let mut net = Net::joined(6, 2);
    net.send(2, Lane::Bulk, b"output".to_vec());
    net.send(3, Lane::Control, b"news".to_vec());
    net.cast(&[2, 3], b"input");
    // Process 1 has received all of it and written it to its other side, and there it is lost.
    net.run(3 * DELAY / 2);
    for connection in [1, 2, 3] {
        net.reset(connection);
    }
    net.kill(1);
    net.run(Duration::from_secs(1));
    let mut received = net.received(0);
    received.sort();
    assert_eq!(received, [(2, b"output".to_vec()), (3, b"news".to_vec())]);
    for member in [2, 3] {
        assert_eq!(net.received(member), [(0, b"input".to_vec())]);
    }
}

#[test]
fn a_cast_that_a_returned_process_has_not_passed_on_is_kept() {
    let mut net = Net::joined(4, 1);
    let Timing { lease, window } = Timing::default();
    net.cut.insert(Address(3));
    net.cast(&[1, 2, 3, 4], b"input");
    net.run(Duration::from_millis(100));
    // Process 2 returns. It has the cast, and the process below it does not.
    net.kill(1);
    net.run(lease + window + Duration::from_secs(1));
    // The silence of process 3 is a loss, and process 4 returns.
    assert_eq!(net.received(4), [(0, b"input".to_vec())]);
    let lost = |who| [who].map(Address).into();
    let lost = [1, 3].map(lost).to_vec();
    let news = net.news_of(0).iter();
    let told = news.filter_map(|news| match news {
        Output::Lost { members, .. } => Some(members.clone()),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<BTreeSet<Address>>>(), lost);
    // What everybody has is not kept.
    net.run(lease);
    assert_eq!(net.root().kept(), 0);
}

#[test]
fn an_orphan_that_does_not_return_is_lost_by_the_name_of_its_parent() {
    let mut net = Net::joined(6, 2);
    net.kill(1);
    net.cut.insert(Address(2));
    net.kill(3);
    let Timing { lease, window } = Timing::default();
    net.run(lease + window - Duration::from_millis(1));
    assert_eq!(net.news_of(0).len(), 1);
    net.run(Duration::from_secs(1));
    let expected = Output::Lost {
        who: Address(1),
        members: [2, 3].map(Address).into(),
        loss: Loss::Orphan,
    };
    assert_eq!(net.news_of(0)[1..], [expected]);
    // Process 2 hears that it is too late.
    net.cut.clear();
    net.run(lease + window);
    assert!(matches!(net.news_of(2), [Output::Abandoned(_)]));
}

#[test]
fn an_orphan_that_would_need_a_forgotten_cast_is_refused() {
    let mut net = Net::joined(3, 1);
    net.kill(1);
    net.cut.insert(Address(2));
    net.run(Duration::from_secs(1));
    let body = Bytes::from(vec![0; BODY_MAX]);
    let now = net.now;
    for _ in 0..2 {
        let root = net.root();
        root.cast(now, &[Address(2)].into(), Lane::Bulk, &body);
        assert!(root.kept() <= CASTS_MAX);
    }
    net.cut.clear();
    net.run(Duration::from_secs(20));
    assert_eq!(net.news_of(2)[0], Output::Abandoned(Loss::Closed));
    assert_eq!(net.root().kept(), 0);
}

#[test]
fn a_leaf_that_dies_below_another_process_is_lost_alone() {
    let mut net = Net::joined(6, 2);
    net.kill(3);
    net.run(Duration::from_secs(1));
    let expected = Output::Lost {
        who: Address(3),
        members: [3].map(Address).into(),
        loss: Loss::Closed,
    };
    assert_eq!(net.news_of(0), [expected]);
    assert_eq!(net.news_of(2), []);
}

#[test]
fn silence_is_a_loss_after_lease_and_window_and_not_before() {
    let Timing { lease, window } = Timing::default();
    let mut net = Net::joined(2, 2);
    net.run(Duration::from_secs(60));
    assert_eq!(net.news_of(0), []);
    net.cut.insert(Address(2));
    net.run(lease / 2);
    assert_eq!(net.news_of(0), []);
    net.run(lease + window);
    let expected = Output::Lost {
        who: Address(2),
        members: [2].map(Address).into(),
        loss: Loss::Silent { millis: 10_000 },
    };
    assert_eq!(net.news_of(0), [expected]);
    // The process on the other side ends its own work too.
    net.run(DIAL_MAX);
    assert!(matches!(net.news_of(2), [Output::Abandoned(_)]));
    assert_eq!(net.news_of(1), []);
}

#[test]
fn a_link_that_comes_back_in_time_goes_on() {
    let Timing { lease, window } = Timing::default();
    let mut net = Net::joined(2, 2);
    net.send(2, Lane::Control, b"before".to_vec());
    net.run(Duration::from_millis(10));
    net.cut.insert(Address(2));
    net.send(2, Lane::Control, b"meanwhile".to_vec());
    net.cast(&[2], b"down");
    net.run(lease / 2);
    net.cut.clear();
    net.run(Duration::from_millis(10));
    assert_eq!(
        net.received(0),
        [(2, b"before".to_vec()), (2, b"meanwhile".to_vec())]
    );
    assert_eq!(net.received(2), [(0, b"down".to_vec())]);
    // After a lease, on another connection.
    net.cut.insert(Address(2));
    net.run(lease - Duration::from_millis(500));
    net.send(2, Lane::Control, b"late".to_vec());
    net.run(window);
    net.cut.clear();
    net.run(window);
    assert_eq!(net.received(0).len(), 3);
    assert_eq!(net.news_of(0).len(), 3, "{:?}", net.news_of(0));
}

/// The kernel tells the other end of a closed connection as soon as the network works again.
#[test]
fn a_silence_that_only_the_child_notices_loses_nobody() {
    let lease = Timing::default().lease;
    // The network works again at any time between two attempts of the child to connect.
    for millis in (0..700).step_by(50) {
        let mut net = Net::joined(1, 2);
        // The root hears the child later than the child hears the root.
        net.run(Duration::from_secs(2));
        net.send(1, Lane::Control, b"here".to_vec());
        net.run(Duration::from_millis(1));
        net.cut.insert(Address(1));
        net.run(lease - Duration::from_millis(2_900 - millis));
        let is_down = |net: &Net, of: u32, peer: u32| {
            let link = &net.nodes[&Address(of)].links[&Address(peer)];
            matches!(link.state, LinkState::Down { .. })
        };
        assert!(is_down(&net, 1, 0) && !is_down(&net, 0, 1), "{millis}");
        net.cut.clear();
        net.run(lease);
        assert!(!is_down(&net, 1, 0));
        assert_eq!(net.news_of(0).len(), 1, "{:?}", net.news_of(0));
        assert_eq!(net.nodes[&Address(1)].connections.len(), 1);
    }
}

#[test]
fn a_silence_that_only_the_parent_notices_loses_nobody() {
    let mut net = Net::joined(1, 1);
    net.mute.insert(Address(1));
    let is_up = |net: &Net| {
        let link = &net.nodes[&Address::ROOT].links[&Address(1)];
        matches!(link.state, LinkState::Up { .. })
    };
    while is_up(&net) {
        net.run(Duration::from_millis(100));
    }
    // The root closes the connection. Process 1 hears that, and gets no answer when it dials.
    net.run(Duration::from_secs(1));
    net.mute.clear();
    net.cast(&[1], b"are you there?");
    net.run(Timing::default().lease);
    assert_eq!(net.received(1).len(), 1);
    assert_eq!(net.news_of(0), []);
}

#[test]
fn an_idle_link_says_three_words_a_lease() {
    let mut net = Net::joined(1, 2);
    let before = net.bytes;
    net.run(Duration::from_secs(100));
    // 30 records of 20 bytes each way.
    assert!(
        (1000..=1400).contains(&(net.bytes - before)),
        "{}",
        net.bytes - before
    );
}

#[test]
fn strangers_are_refused_once_and_disturb_nobody() {
    let mut net = Net::joined(2, 2);
    let now = net.now;
    let root = net.nodes.get_mut(&Address::ROOT).unwrap();
    let from = |host: u8| SocketAddr::from(([10, 9, 9, host], 40_000));
    // A port scan, a slow one, a web browser twice, another secret, another build, and a process that was not started.
    let scan = root.accept(now, from(1)).unwrap();
    root.handle(now, Input::Closed(scan));
    root.accept(now, from(2)).unwrap();
    for _ in 0..2 {
        let browser = root.accept(now, from(3)).unwrap();
        root.handle(now, Input::Bytes(browser, b"GET / HTTP/1.1\r\n"));
    }
    let mut meet = |host: u8, config: Config| {
        let mut stranger = Node::member(
            now,
            config,
            entropy(Address(70 + u32::from(host))),
            vec![at(Address::ROOT)],
        );
        let Some(Output::Dial(conn, _)) = stranger.poll() else {
            panic!("it dials")
        };
        let theirs = root.accept(now, from(host)).unwrap();
        for _ in 0..6 {
            let bytes = stranger.outgoing(now, conn).to_vec();
            stranger.written(now, conn, bytes.len());
            root.handle(now, Input::Bytes(theirs, &bytes));
            let bytes = root.outgoing(now, theirs).to_vec();
            root.written(now, theirs, bytes.len());
            stranger.handle(now, Input::Bytes(conn, &bytes));
        }
        stranger.handle(now, Input::Closed(conn));
        std::iter::from_fn(|| stranger.poll()).last().unwrap()
    };
    let met = [
        meet(
            4,
            Config {
                secret: Secret::new([6; 32]),
                ..config(Address(1))
            },
        ),
        meet(
            5,
            Config {
                build: Build::new("rally old"),
                ..config(Address(1))
            },
        ),
        meet(6, config(Address(9))),
        meet(7, config(Address(1))),
    ];
    let met = met.map(|output| match output {
        Output::Unreachable(tried) => tried[0].1.to_string(),
        other => format!("{other:?}"),
    });
    insta::assert_snapshot!(met.join("\n"), @"
    the connection was closed during the handshake
    the peer is `rally test`, and we are `rally old`
    no such process was started for this session
    a process with the same address is connected
    ");
    net.run(HANDSHAKE_MAX);
    let refused: Vec<String> = net
        .news_of(0)
        .iter()
        .map(|news| match news {
            Output::Refused { from, why } => format!("{from}: {why}"),
            other => format!("{other:?}"),
        })
        .collect();
    insta::assert_snapshot!(refused.join("\n"), @"
    10.9.9.1:40000: the connection was closed during the handshake
    10.9.9.3:40000: the peer speaks another protocol
    10.9.9.4:40000: the peer does not know the secret of this session
    10.9.9.5:40000: the peer is `rally old`, and we are `rally test`
    10.9.9.6:40000: no such process was started for this session
    10.9.9.7:40000: a process with the same address is connected
    10.9.9.2:40000: no answer within 5 s
    ");
    net.cast(&[1, 2], b"all is well");
    net.run(Duration::from_millis(10));
    assert_eq!((net.received(1).len(), net.received(2).len()), (1, 1));
}

#[test]
fn a_process_whose_parent_does_not_come_gets_a_place_below_the_root() {
    let mut net = Net::new(6, 2);
    for member in [2, 3, 4, 5, 6] {
        net.start(member);
    }
    net.run(Duration::from_millis(100));
    assert_eq!(net.joined_members(), [4, 5, 6]);
    let now = net.now;
    let root = net.nodes.get_mut(&Address::ROOT).unwrap();
    root.give_up(now, Address(1));
    net.run(Duration::from_millis(100));
    assert_eq!(net.joined_members(), [2, 3, 4, 5, 6]);
    net.cast(&[2, 3], b"welcome");
    net.run(Duration::from_millis(100));
    assert_eq!((net.received(2).len(), net.received(3).len()), (1, 1));
}

#[test]
fn a_process_that_waits_for_its_place_gives_up_a_silent_root() {
    let Timing { lease, window } = Timing::default();
    let mut net = Net::new(6, 2);
    net.start(3);
    // The root says that it is there.
    net.run(10 * lease);
    assert_eq!((net.joined_members(), net.news_of(3)), (vec![], &[][..]));
    net.cut.insert(Address(3));
    net.run(lease + window - lease / 2);
    assert_eq!(net.news_of(3), []);
    net.run(lease);
    let given_up = [Output::Unreachable(vec![(
        at(Address::ROOT),
        DialError::Silent(lease + window),
    )])];
    assert_eq!(net.news_of(3), given_up);
}

#[test]
fn a_process_that_waits_for_its_place_survives_a_short_cut() {
    let Timing { lease, .. } = Timing::default();
    let mut net = Net::new(6, 2);
    net.start(3);
    net.run(lease);
    net.cut.insert(Address(3));
    net.run(lease / 2);
    net.cut.clear();
    net.run(4 * lease);
    net.start(1);
    net.run(Duration::from_millis(100));
    assert_eq!(net.joined_members(), [1, 3]);
}

#[test]
fn a_process_whose_parent_is_late_gets_a_place_below_the_root_in_time() {
    let mut net = Net::new(6, 2);
    net.root().wait_at_most(Duration::from_secs(3));
    for member in [2, 4, 5, 6] {
        net.start(member);
    }
    net.run(Duration::from_secs(2));
    net.start(3);
    net.run(Duration::from_millis(900));
    assert_eq!(net.joined_members(), [4, 5, 6]);
    // Each process waits for this time of its own.
    net.run(Duration::from_millis(200));
    assert_eq!(net.joined_members(), [2, 4, 5, 6]);
    net.run(Duration::from_secs(2));
    assert_eq!(net.joined_members(), [2, 3, 4, 5, 6]);
    net.start(1);
    net.run(Duration::from_millis(100));
    assert_eq!(net.joined_members(), [1, 2, 3, 4, 5, 6]);
    net.cast(&[1, 2, 3], b"welcome");
    net.run(Duration::from_millis(100));
    let received = [1, 2, 3].map(|member| net.received(member).len());
    assert_eq!(received, [1, 1, 1]);
}

#[test]
fn a_child_that_does_not_read_stops_only_its_own_packets() {
    let mut net = Net::joined(2, 2);
    net.stopped.insert(Address(2));
    for _ in 0..20 {
        net.send(1, Lane::Bulk, vec![1; 200_000]);
        net.cast(&[1, 2], b"go on");
        net.run(Duration::from_millis(5));
    }
    assert_eq!(net.received(0).len(), 20);
    assert_eq!(net.received(1).len(), 20);
}

#[test]
fn a_process_between_does_not_take_more_than_it_can_pass_on() {
    let mut net = Net::joined(2, 1);
    net.stopped.insert(Address::ROOT);
    for _ in 0..100 {
        net.send(2, Lane::Bulk, vec![1; 100_000]);
        net.run(Duration::from_millis(1));
    }
    let middle = &net.nodes[&Address(1)];
    let queued = middle.links[&Address::ROOT].lanes.unsent(Lane::Bulk);
    assert!(queued <= window(Lane::Bulk) + 200_000, "{queued}");
    assert!(!net.nodes[&Address(2)].has_room());
    net.stopped.clear();
    net.run(Duration::from_secs(1));
    assert_eq!(net.received(0).len(), 100);
}

#[test]
fn the_end_reaches_everyone_behind_what_was_sent_before() {
    let mut net = Net::joined(6, 2);
    net.cast(&[1, 2, 3, 4, 5, 6], b"last");
    net.nodes.get_mut(&Address::ROOT).unwrap().end();
    net.run(Duration::from_millis(10));
    for member in 1..=6 {
        assert_eq!(net.received(member), [(0, b"last".to_vec())]);
        assert_eq!(net.news_of(member).last(), Some(&Output::Ended));
        net.kill(member);
    }
    net.run(Duration::from_secs(1));
    assert_eq!(net.news_of(0), []);
    assert!(net.nodes[&Address::ROOT].is_alone());
}

/// A process may have something to finish when the session is over, and its parent nothing.
#[test]
fn a_process_does_not_return_when_its_parent_leaves_after_the_end() {
    let mut net = Net::joined(6, 2);
    net.root().end();
    net.run(Duration::from_millis(10));
    net.kill(1);
    net.run(Duration::from_secs(1));
    for member in 2..=6 {
        assert_eq!(net.news_of(member).last(), Some(&Output::Ended));
    }
    // Its goodbye was passed on by the one that left.
    assert!(!net.root().links.contains_key(&Address(2)));
    for member in 2..=6 {
        net.kill(member);
    }
    net.run(Duration::from_secs(1));
    assert_eq!(net.news_of(0), []);
    assert!(net.root().is_alone());
}

#[test]
fn a_process_whose_parent_is_lost_before_the_welcome_arrives_joins_elsewhere() {
    // How the parent is lost, and how long the process waits for the welcome.
    let losses = [
        ("killed", Duration::from_secs(1)),
        ("cut off", Duration::from_secs(20)),
    ];
    for (how, wait) in losses {
        let mut net = Net::new(3, 1);
        net.start(1);
        net.run(Duration::from_millis(10));
        net.start(2);
        let welcomed = |net: &Net| net.nodes[&Address(1)].links.contains_key(&Address(2));
        while !welcomed(&net) {
            net.run(DELAY / 4);
        }
        // The welcome is lost, and what the parent says to the root is not.
        net.reset_any(2);
        net.run(2 * DELAY);
        assert_eq!(net.news_of(2), []);
        if how == "killed" {
            net.kill(1);
        } else {
            net.cut.insert(Address(1));
        }
        net.run(wait);
        net.start(3);
        net.run(Duration::from_secs(1));
        assert_eq!(net.news_of(2), [Output::Ready], "{how}");
        assert_eq!(net.joined_members(), [1, 2, 3], "{how}");
        net.cast(&[2, 3], b"welcome");
        net.run(Duration::from_millis(10));
        assert_eq!((net.received(2).len(), net.received(3).len()), (1, 1));
        // Another process with its address is refused as before.
        let (now, from) = (net.now, SocketAddr::from(([10, 9, 9, 1], 40_000)));
        let conn = net.root().accept(now, from).unwrap();
        let comer = Comer {
            from,
            who: Address(2),
            link: 7,
            at: Vec::new(),
        };
        net.root().on_join(now, conn, comer, Reason::Start);
        let refused = net.news_of(0).len();
        net.run(Duration::from_millis(10));
        let news = &net.news_of(0)[refused..];
        assert!(matches!(news, [Output::Refused { .. }]), "{news:?}");
    }
}
