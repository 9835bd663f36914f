//! Peers that break the rules, and conditions in which few would notice a mistake.

use base::RankSet;

use super::{
    super::*,
    net::{Net, SECRET, at, config, entropy},
};
use crate::{
    lanes::{Credit, window},
    packet::{self, Head, Hello, Members, Note, Number, Welcome},
};

/// A process that knows the secret and says what it likes.
struct Liar {
    secure: Secure,
    conn: Conn,
}

impl Liar {
    /// Connects to a node from a host of its own.
    fn connect(node: &mut Node, now: Time, host: u8) -> Self {
        let from = SocketAddr::from(([10, 9, 9, host], 40_000));
        let conn = node.accept(now, from).unwrap();
        let mut entropy = entropy(Address(1000 + u32::from(host)));
        let secure = Secure::dial(&Build::new("rally test"), &SECRET, &mut entropy);
        let mut liar = Self { secure, conn };
        assert_eq!(liar.hear(node, now), []);
        liar
    }

    /// Connects and becomes a child of the node.
    fn join(node: &mut Node, now: Time, who: u32) -> (Self, u64) {
        let mut liar = Self::connect(node, now, u8::try_from(who).unwrap());
        let at = vec![at(Address(who))];
        let said = liar.say(node, now, &join(who, at));
        assert_eq!(said, [Note::Welcome(Welcome::Child)]);
        assert_eq!(liar.say(node, now, &Note::Alive), []);
        (liar, u64::from(who))
    }

    /// Passes bytes in both directions and returns the notes that came.
    fn hear(&mut self, node: &mut Node, now: Time) -> Vec<Note> {
        let mut notes = Vec::new();
        loop {
            let there = self.secure.outgoing().to_vec();
            self.secure.written(there.len());
            if !there.is_empty() {
                node.handle(now, Input::Bytes(self.conn, &there));
            }
            let back = node.outgoing(now, self.conn).to_vec();
            node.written(now, self.conn, back.len());
            self.secure.take(&back);
            while let Ok(Some(record)) = self.secure.record() {
                if let Some((2, note)) = record.split_first() {
                    notes.push(postcard::from_bytes(note).unwrap());
                }
            }
            if there.is_empty() && back.is_empty() {
                return notes;
            }
        }
    }

    fn say(&mut self, node: &mut Node, now: Time, note: &Note) -> Vec<Note> {
        let record = postcard::to_extend(note, vec![2]).unwrap();
        self.secure.seal(&record);
        self.hear(node, now)
    }

    /// Sends a packet.
    fn send(&mut self, node: &mut Node, now: Time, lane: Lane, head: &Head, body: &[u8]) {
        let head = packet::encode_head(head);
        let length = u32::try_from(head.len() + body.len()).unwrap();
        let frame = [&length.to_le_bytes()[..], &head, body].concat();
        for piece in frame.chunks(30_000) {
            let kind = [u8::from(lane == Lane::Bulk)];
            self.secure.seal(&[&kind[..], piece].concat());
        }
        self.hear(node, now);
    }
}

fn join(who: u32, at: Vec<SocketAddr>) -> Note {
    Note::Hello(Hello::Join {
        me: Address(who),
        reason: Reason::Start,
        link: u64::from(who),
        at,
    })
}

/// The head of a packet to the root with this number.
fn up(from: u32, own: u64) -> Head {
    let from = Address(from);
    let number = Number { own, control: 0 };
    Head::Up { from, number }
}

fn outputs(node: &mut Node) -> Vec<Output> {
    std::iter::from_fn(|| node.poll()).collect()
}

fn tree(parents: &[(u32, u32)]) -> Node {
    let parents = parents
        .iter()
        .map(|(member, parent)| (Address(*member), Address(*parent)));
    Node::root(config(Address::ROOT), entropy(Address::ROOT), parents)
}

fn many(count: u32) -> Vec<SocketAddr> {
    (0..count).map(|_| at(Address(7))).collect()
}

fn seconds(count: u64) -> Time {
    Time::ZERO + Duration::from_secs(count)
}

#[test]
fn a_process_that_waits_on_two_connections_is_adopted_once() {
    let mut net = Net::new(3, 1);
    let other = SocketAddr::from(([10, 0, 0, 2], 1000));
    net.start_with(config(Address(2)), vec![at(Address::ROOT), other]);
    net.run(Duration::from_secs(1));
    let now = net.now;
    net.root().give_up(now, Address(1));
    net.run(Duration::from_secs(30));
    assert_eq!(net.news_of(0), [Output::Joined(Address(2))]);
    assert_eq!(net.news_of(2), [Output::Ready]);
    // The same from a peer that says hello twice.
    let mut root = tree(&[(1, 0), (2, 1)]);
    let mut first = Liar::connect(&mut root, Time::ZERO, 1);
    let mut second = Liar::connect(&mut root, Time::ZERO, 2);
    first.say(&mut root, Time::ZERO, &join(2, many(1)));
    second.say(&mut root, Time::ZERO, &join(2, many(1)));
    assert_eq!(outputs(&mut root), [Output::Close(first.conn)]);
    root.give_up(Time::ZERO, Address(1));
    let heard = second.hear(&mut root, Time::ZERO);
    assert!(matches!(heard[..], [Note::Welcome(Welcome::Child)]));
    assert_eq!(outputs(&mut root), []);
    second.say(&mut root, Time::ZERO, &Note::Alive);
    assert_eq!(outputs(&mut root), [Output::Joined(Address(2))]);
}

#[test]
fn an_answer_is_sent_however_long_the_process_has_waited() {
    let mut root = tree(&[(1, 0), (2, 1)]);
    let mut waiting = Liar::connect(&mut root, Time::ZERO, 1);
    waiting.say(&mut root, Time::ZERO, &join(2, many(1)));
    let _parent = Liar::join(&mut root, seconds(60), 1);
    root.handle(seconds(60), Input::Tick);
    let heard = waiting.hear(&mut root, seconds(61));
    assert!(
        matches!(heard[..], [Note::Welcome(Welcome::Elsewhere { .. })]),
        "{heard:?}"
    );
}

#[test]
fn a_process_that_waits_and_vanishes_is_forgotten() {
    let mut root = tree(&[(1, 0), (2, 1)]);
    let mut waiting = Liar::connect(&mut root, Time::ZERO, 1);
    waiting.say(&mut root, Time::ZERO, &join(2, many(1)));
    let end = Time::ZERO + PLACE_MAX + HANDSHAKE_MAX;
    while let Some(due) = root.deadline().filter(|due| *due < end) {
        root.handle(due, Input::Tick);
        assert_eq!(outputs(&mut root), []);
    }
    assert_eq!(root.deadline(), Some(end));
    root.handle(end, Input::Tick);
    assert_eq!(outputs(&mut root), [Output::Close(waiting.conn)]);
    assert_eq!(root.deadline(), None);
}

#[test]
fn a_process_without_an_address_has_its_children_below_the_root() {
    let mut net = Net::new(2, 1);
    let silent = Config {
        at: Vec::new(),
        ..config(Address(1))
    };
    net.start_with(silent, vec![at(Address::ROOT)]);
    net.start(2);
    net.run(Duration::from_secs(1));
    assert_eq!(net.joined_members(), [1, 2]);
    // A process that knows no address of the root says so.
    net.start_with(config(Address(3)), Vec::new());
    net.run(Duration::from_secs(1));
    assert_eq!(net.news_of(3), [Output::Unreachable(Vec::new())]);
}

#[test]
fn a_process_adopted_by_the_root_tells_its_children_where_it_is() {
    let mut net = Net::new(3, 1);
    net.start(2);
    net.run(Duration::from_millis(100));
    let now = net.now;
    net.root().give_up(now, Address(1));
    net.run(Duration::from_millis(100));
    net.start(3);
    net.run(Duration::from_secs(1));
    assert_eq!(net.joined_members(), [2, 3]);
    assert!(net.nodes[&Address(2)].links.contains_key(&Address(3)));
}

#[test]
fn lists_of_addresses_are_short() {
    let mut root = tree(&[(1, 0), (2, 1), (3, 1)]);
    let mut boaster = Liar::connect(&mut root, Time::ZERO, 1);
    boaster.say(&mut root, Time::ZERO, &join(1, many(100)));
    assert_eq!(outputs(&mut root), [Output::Close(boaster.conn)]);
    // The same in a packet.
    let (mut honest, _) = Liar::join(&mut root, Time::ZERO, 1);
    outputs(&mut root);
    let head = Head::Joined {
        who: Address(2),
        at: many(100_000),
    };
    honest.send(&mut root, Time::ZERO, Lane::Control, &head, &[]);
    assert!(matches!(
        outputs(&mut root)[..],
        [Output::Close(_), Output::Lost { .. }]
    ));
}

#[test]
fn a_process_speaks_for_itself_and_those_below_it() {
    let mut root = tree(&[(1, 0), (2, 1), (3, 0), (4, 3)]);
    let (mut one, _) = Liar::join(&mut root, Time::ZERO, 1);
    let (mut three, _) = Liar::join(&mut root, Time::ZERO, 3);
    outputs(&mut root);
    let mut try_all = |from: &mut Liar, head: Head| {
        for lane in Lane::ALL {
            from.send(&mut root, Time::ZERO, lane, &head, b"x");
        }
        outputs(&mut root)
    };
    let up = |from: u32| up(from, 1);
    let joined = |who: u32| Head::Joined {
        who: Address(who),
        at: many(1),
    };
    let lost = |who: u32| Head::Lost {
        who: Address(who),
        below: Members::default(),
        loss: Loss::Closed,
    };
    // Another child, one that has not joined, the root, one that is unknown.
    for other in [3, 2, 0, 99] {
        assert_eq!(try_all(&mut one, up(other)), []);
    }
    // A child of another one, itself, the root, one that is unknown.
    for other in [4, 1, 3, 0, 99] {
        assert_eq!(try_all(&mut one, joined(other)), [], "{other}");
    }
    for other in [4, 1, 3, 0, 99] {
        assert_eq!(try_all(&mut one, lost(other)), [], "{other}");
    }
    assert_eq!(
        try_all(&mut one, joined(2)),
        [Output::Joined(Address(2))],
        "once"
    );
    assert_eq!(try_all(&mut one, up(2)).len(), 2);
    assert_eq!(try_all(&mut three, up(2)), []);
    assert_eq!(try_all(&mut one, lost(2)).len(), 1, "once");
}

#[test]
fn a_process_between_refuses_members_that_are_elsewhere() {
    let below = |liar: &mut Liar, node: &mut Node, who: u32| {
        let head = Head::Joined {
            who: Address(who),
            at: many(1),
        };
        liar.send(node, Time::ZERO, Lane::Control, &head, &[]);
    };
    for (who, is_broken) in [(7, false), (1, true), (6, true), (8, true)] {
        let mut net = Net::joined(1, 1);
        let middle = net.nodes.get_mut(&Address(1)).unwrap();
        let (mut five, _) = Liar::join(middle, Time::ZERO, 5);
        let (mut six, _) = Liar::join(middle, Time::ZERO, 6);
        below(&mut six, middle, 8);
        outputs(middle);
        below(&mut five, middle, who);
        assert_eq!(!outputs(middle).is_empty(), is_broken, "{who}");
    }
    let mut net = Net::joined(1, 1);
    let middle = net.nodes.get_mut(&Address(1)).unwrap();
    let (mut five, _) = Liar::join(middle, Time::ZERO, 5);
    let head = up(6, 1);
    five.send(middle, Time::ZERO, Lane::Control, &head, &[]);
    assert_eq!(outputs(middle), [Output::Close(five.conn)]);
}

#[test]
fn a_set_of_many_members_reaches_those_that_are_there() {
    let everyone = RankSet::range(0..1 << 24);
    let all = postcard::from_bytes(&postcard::to_allocvec(&everyone).unwrap()).unwrap();
    let members: Members = all;
    let known = [Address(1), Address(2)];
    assert_eq!(members.among(&known), BTreeSet::from(known));
}

#[test]
fn reasons_of_a_peer_are_short_and_printable() {
    let mut root = tree(&[(1, 0), (2, 1)]);
    let (mut one, _) = Liar::join(&mut root, Time::ZERO, 1);
    let head = Head::Joined {
        who: Address(2),
        at: many(1),
    };
    one.send(&mut root, Time::ZERO, Lane::Control, &head, &[]);
    outputs(&mut root);
    let head = Head::Lost {
        who: Address(2),
        below: Members::default(),
        loss: Loss::Broken("\x1b[2J".repeat(10_000)),
    };
    one.send(&mut root, Time::ZERO, Lane::Control, &head, &[]);
    let [Output::Lost { loss, .. }] = &outputs(&mut root)[..] else {
        panic!("it is lost");
    };
    let text = loss.to_string();
    assert!(text.len() <= 300 && !text.contains('\x1b'), "{text}");
}

#[test]
fn a_flood_of_connections_keeps_no_process_out_for_long() {
    let mut net = Net::new(1, 1);
    let from = |number: usize| {
        let [a, b] = u16::try_from(number).unwrap().to_be_bytes();
        SocketAddr::from(([10, 8, a, b], 40_000))
    };
    let now = net.now;
    for number in 0..2 * PENDING_MAX {
        net.root().accept(now, from(number));
    }
    assert_eq!(net.root().accept(now, from(0)), None);
    net.start(1);
    // The flood goes on.
    for round in 0..100 {
        net.run(Duration::from_millis(20));
        let now = net.now;
        for number in 0..20 {
            net.root().accept(now, from(round * 20 + number));
        }
    }
    assert_eq!(net.news_of(1), [Output::Ready]);
}

#[test]
fn a_child_that_says_goodbye_and_vanishes_is_forgotten() {
    let mut root = tree(&[(1, 0)]);
    let (mut one, _) = Liar::join(&mut root, Time::ZERO, 1);
    outputs(&mut root);
    one.send(&mut root, Time::ZERO, Lane::Control, &Head::Bye, &[]);
    let end = root.deadline().unwrap();
    root.handle(end, Input::Tick);
    let end = root.deadline().unwrap_or(end);
    root.handle(end, Input::Tick);
    assert!(root.is_alone());
    assert_eq!(outputs(&mut root), [Output::Close(one.conn)]);
}

#[test]
fn a_link_resumed_behind_its_end_is_lost_and_not_mixed_up() {
    let mut root = tree(&[(1, 0)]);
    let (mut one, link) = Liar::join(&mut root, Time::ZERO, 1);
    let to = BTreeSet::from([Address(1)]);
    root.cast(Time::ZERO, &to, Lane::Control, &Bytes::from_static(b"one"));
    one.hear(&mut root, Time::ZERO);
    outputs(&mut root);
    let mut again = Liar::connect(&mut root, Time::ZERO, 2);
    let resume = Note::Hello(Hello::Resume {
        me: Address(1),
        link,
        received: [0, 1 << 40],
    });
    let heard = again.say(&mut root, Time::ZERO, &resume);
    assert_eq!(heard, [Note::Welcome(Welcome::Refused(Refusal::Expired))]);
    let lost = outputs(&mut root);
    assert!(lost.iter().any(|one| matches!(one, Output::Lost { .. })));
    assert!(lost.contains(&Output::Close(one.conn)));
    // Somebody who does not know the number of the link changes nothing.
    let mut root = tree(&[(1, 0)]);
    let (mut one, link) = Liar::join(&mut root, Time::ZERO, 1);
    let mut other = Liar::connect(&mut root, Time::ZERO, 2);
    let resume = Note::Hello(Hello::Resume {
        me: Address(1),
        link: link ^ 1,
        received: [0, 0],
    });
    other.say(&mut root, Time::ZERO, &resume);
    outputs(&mut root);
    one.send(&mut root, Time::ZERO, Lane::Control, &up(1, 1), b"here");
    assert_eq!(outputs(&mut root).len(), 1);
}

#[test]
fn a_link_resumed_twice_has_the_last_connection_and_loses_nothing() {
    let mut root = tree(&[(1, 0)]);
    let (mut one, link) = Liar::join(&mut root, Time::ZERO, 1);
    outputs(&mut root);
    let head = up(1, 1);
    one.send(&mut root, Time::ZERO, Lane::Control, &head, b"first");
    let received = [0, 0];
    let resume = Note::Hello(Hello::Resume {
        me: Address(1),
        link,
        received,
    });
    let mut second = Liar::connect(&mut root, Time::ZERO, 2);
    second.say(&mut root, Time::ZERO, &resume);
    let mut third = Liar::connect(&mut root, Time::ZERO, 3);
    third.say(&mut root, Time::ZERO, &resume);
    // Bytes of closed connections change nothing.
    one.send(&mut root, Time::ZERO, Lane::Control, &head, b"no");
    second.send(&mut root, Time::ZERO, Lane::Control, &head, b"no");
    third.send(&mut root, Time::ZERO, Lane::Control, &up(1, 2), b"second");
    let received = |body: &'static [u8]| Output::Received {
        from: Address(1),
        lane: Lane::Control,
        body: Bytes::from_static(body),
    };
    let expected = [
        received(b"first"),
        Output::Close(one.conn),
        Output::Close(second.conn),
        received(b"second"),
    ];
    assert_eq!(outputs(&mut root), expected);
}

#[test]
fn a_credit_beyond_the_window_ends_the_link() {
    let mut root = tree(&[(1, 0)]);
    let (mut one, _) = Liar::join(&mut root, Time::ZERO, 1);
    outputs(&mut root);
    let credit = |limit| {
        Note::Credit(Credit {
            lane: Lane::Bulk,
            received: 0,
            limit,
        })
    };
    one.say(&mut root, Time::ZERO, &credit(window(Lane::Bulk)));
    assert_eq!(outputs(&mut root), []);
    one.say(&mut root, Time::ZERO, &credit(u64::MAX));
    assert_eq!(outputs(&mut root).len(), 2);
}

#[test]
fn a_peer_that_does_not_read_gets_no_queue_of_notes() {
    let mut root = tree(&[(1, 0)]);
    let (mut one, _) = Liar::join(&mut root, Time::ZERO, 1);
    let head = packet::encode_head(&up(1, 1));
    let length = u32::try_from(head.len() + 30_000).unwrap();
    let frame = [&length.to_le_bytes()[..], &head, &[0; 30_000]].concat();
    let mut most = 0;
    for _ in 0..400 {
        one.secure.seal(&[&[0][..], &frame].concat());
        let bytes = one.secure.outgoing().to_vec();
        one.secure.written(bytes.len());
        root.handle(Time::ZERO, Input::Bytes(one.conn, &bytes));
        let notes = root.connections.get(&one.conn);
        most = most.max(notes.map_or(0, |one| one.notes.len()));
    }
    assert!(most <= 2, "{most}");
}

#[test]
fn a_process_whose_peer_does_not_read_sleeps_between_signs_of_life() {
    let mut root = tree(&[(1, 0)]);
    let (mut one, _) = Liar::join(&mut root, Time::ZERO, 1);
    let third = Timing::default().lease / 3;
    let alive = postcard::to_extend(&Note::Alive, vec![2]).unwrap();
    // The socket takes nothing. The peer says that it lives.
    for round in 1..=6 {
        let now = Time::ZERO + third * round;
        one.secure.seal(&alive);
        let bytes = one.secure.outgoing().to_vec();
        one.secure.written(bytes.len());
        root.handle(now, Input::Bytes(one.conn, &bytes));
        root.handle(now, Input::Tick);
        assert_eq!(root.deadline(), Some(now + third));
    }
}

#[test]
fn the_last_words_of_a_process_are_passed_on_before_its_loss() {
    let mut net = Net::joined(2, 1);
    net.stopped.insert(Address::ROOT);
    for round in 0..30_u8 {
        net.send(2, Lane::Bulk, vec![round; 100_000]);
    }
    net.run(Duration::from_millis(100));
    let middle = &net.nodes[&Address(1)].links[&Address(2)];
    let arrived = middle.lanes.received()[1] / 100_000;
    net.kill(2);
    net.run(Duration::from_secs(5));
    net.stopped.clear();
    net.run(Duration::from_secs(1));
    let news = net.news_of(0);
    assert_eq!(u64::try_from(net.received(0).len()).unwrap(), arrived);
    assert!(matches!(news.last(), Some(Output::Lost { .. })));
}

#[test]
fn what_was_dialed_is_closed_when_the_link_is_given_up() {
    let mut net = Net::joined(1, 1);
    net.cut.insert(Address(1));
    net.run(Duration::from_secs(20));
    assert!(matches!(net.news_of(1), [Output::Abandoned(_)]));
    assert!(net.nodes[&Address(1)].connections.is_empty());
    assert_eq!(net.nodes[&Address(1)].deadline(), None);
}

#[test]
fn a_child_that_floods_leaves_room_for_the_others() {
    let mut net = Net::new(3, 2);
    for member in [1, 2, 3] {
        net.start(member);
    }
    net.run(Duration::from_secs(1));
    // 2 is below 1; a third process joins there as well.
    let now = net.now;
    net.stopped.insert(Address::ROOT);
    let middle = net.nodes.get_mut(&Address(1)).unwrap();
    let (mut liar, _) = Liar::join(middle, now, 9);
    for round in 0..80_u8 {
        net.send(2, Lane::Bulk, vec![round; 50_000]);
    }
    net.run(Duration::from_millis(100));
    let middle = net.nodes.get_mut(&Address(1)).unwrap();
    let head = up(9, 1);
    liar.send(middle, now, Lane::Bulk, &head, b"and me");
    net.stopped.clear();
    let taken = |net: &Net| {
        let link = &net.nodes[&Address(1)].links[&Address(9)];
        !link.lanes.has_frame()
    };
    while !taken(&net) {
        net.run(Duration::from_micros(100));
    }
    assert!(net.received(0).len() < 16, "{}", net.received(0).len());
}

#[test]
fn a_process_that_was_given_up_gets_no_place_later() {
    let mut root = tree(&[(1, 0), (2, 1)]);
    let mut two = Liar::connect(&mut root, Time::ZERO, 2);
    two.say(&mut root, Time::ZERO, &join(2, many(1)));
    root.give_up(Time::ZERO, Address(2));
    root.give_up(Time::ZERO, Address(1));
    let heard = two.hear(&mut root, Time::ZERO);
    assert_eq!(heard, [Note::Welcome(Welcome::Refused(Refusal::Expired))]);
    assert_eq!(outputs(&mut root), [Output::Close(two.conn)]);
}
