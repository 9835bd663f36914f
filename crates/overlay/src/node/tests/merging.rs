//! Messages that are merged on their way. The property test of `faults` sends them too.

use super::{super::*, net::Net};
use crate::packet::{Members, Number};

/// Set in the number of a message that may be merged.
const MARK: u32 = 1 << 31;
const DONE: Class = Class(1);

/// Merged messages are one behind the other, so that each can be found.
pub(super) fn merge(bodies: &[Bytes]) -> Option<Bytes> {
    Some(Bytes::from(bodies.concat()))
}

/// Returns a message that may be merged.
pub(super) fn body(from: u32, number: u32) -> Bytes {
    let words = [number | MARK, from];
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Returns the messages that came together, with their senders, lanes and numbers.
pub(super) fn messages(news: &Output) -> Vec<(u32, Lane, u32)> {
    let (of, lane, body) = match news {
        Output::Received { from, lane, body } => ([*from].into(), *lane, body),
        Output::Merged { of, lane, body } => (of.clone(), *lane, body),
        _ => return Vec::new(),
    };
    let words = body.as_chunks::<4>().0.iter();
    let words: Vec<u32> = words.map(|word| u32::from_le_bytes(*word)).collect();
    if words[0] & MARK == 0 {
        return of.iter().map(|from| (from.0, lane, words[0])).collect();
    }
    let pairs = words.as_chunks::<2>().0.iter();
    let all: Vec<_> = pairs
        .map(|[number, from]| (*from, lane, number & !MARK))
        .collect();
    let said: BTreeSet<Address> = all.iter().map(|one| Address(one.0)).collect();
    assert_eq!(said, of, "the senders of a merged message");
    all
}

fn say(
    net: &mut Net,
    lane: Lane,
    class: Class,
    number: u32,
    members: impl IntoIterator<Item = u32>,
) {
    let now = net.now;
    for from in members {
        let node = net.nodes.get_mut(&Address(from)).unwrap();
        node.send_mergeable(now, lane, class, body(from, number));
    }
}

/// Returns the senders and numbers of what has come to the root, one line for each message.
fn came(net: &Net) -> Vec<String> {
    let came = net.news_of(0).iter().map(|news| {
        let said = messages(news);
        let said = said
            .iter()
            .map(|(from, _, number)| format!("{from}:{number}"));
        said.collect::<Vec<_>>().join(" ")
    });
    came.filter(|line| !line.is_empty()).collect()
}

#[test]
fn what_all_say_comes_as_one_message_from_each_child_of_the_root() {
    let mut net = Net::joined(14, 2);
    let before = net.now;
    say(&mut net, Lane::Control, DONE, 1, 1..=14);
    say(&mut net, Lane::Bulk, DONE, 2, 1..=14);
    say(&mut net, Lane::Bulk, Class(2), 3, 1..=14);
    // Nobody waits for a timer.
    net.run(Duration::from_millis(1));
    assert!(net.now.since(before) < MERGE_MAX);
    let merged = net.news_of(0).iter();
    let merged = merged.filter_map(|news| match news {
        Output::Merged { of, lane, .. } => Some((of.len(), *lane)),
        _ => None,
    });
    let merged: Vec<(usize, Lane)> = merged.collect();
    assert_eq!(merged.len(), 6, "{:?}", came(&net));
    assert!(merged.iter().all(|one| one.0 == 7));
    assert_eq!(
        merged.iter().filter(|one| one.1 == Lane::Control).count(),
        2
    );
    assert_eq!(net.news_of(0).iter().flat_map(messages).count(), 42);
    let idle = net.nodes.values().all(|node| node.held.bytes() == 0);
    assert!(idle);
}

#[test]
fn one_that_is_alone_waits_a_short_time_on_each_hop() {
    let mut net = Net::joined(14, 2);
    // 3 is a leaf below 2, which is below 1.
    say(&mut net, Lane::Bulk, DONE, 1, [3]);
    net.run(MERGE_MAX);
    assert_eq!(came(&net), [""; 0]);
    net.run(MERGE_MAX + Duration::from_millis(1));
    assert_eq!(came(&net), ["3:1"]);
    assert!(matches!(
        net.news_of(0)[0],
        Output::Received {
            from: Address(3),
            ..
        }
    ));
}

#[test]
fn nothing_overtakes_what_waits_on_its_lane() {
    let mut net = Net::joined(14, 2);
    let plain = |number: u32| number.to_le_bytes().to_vec();
    say(&mut net, Lane::Bulk, DONE, 1, [3]);
    net.send(3, Lane::Bulk, plain(2));
    say(&mut net, Lane::Bulk, DONE, 3, [3]);
    say(&mut net, Lane::Bulk, Class(2), 4, [3]);
    say(&mut net, Lane::Bulk, DONE, 5, [3]);
    // Others are of no concern.
    net.send(2, Lane::Bulk, plain(6));
    net.run(Duration::from_millis(5));
    assert_eq!(came(&net), ["2:6", "3:1", "3:2"]);
    // A control message goes ahead, as always.
    net.send(3, Lane::Control, plain(7));
    net.run(Duration::from_millis(1));
    assert_eq!(came(&net)[3..], ["3:7"]);
    say(&mut net, Lane::Control, DONE, 8, [3]);
    net.send(3, Lane::Bulk, plain(9));
    net.run(Duration::from_millis(1));
    assert_eq!(came(&net)[4..], ["3:8", "3:3", "3:4", "3:5", "3:9"]);
}

#[test]
fn what_a_process_kept_when_it_died_is_sent_again() {
    let mut net = Net::joined(14, 2);
    say(&mut net, Lane::Bulk, DONE, 1, [2, 3, 4, 5]);
    net.run(Duration::from_millis(2));
    assert_eq!(came(&net), [""; 0]);
    net.kill(1);
    net.run(Duration::from_secs(1));
    let mut came = came(&net);
    came.sort();
    assert_eq!(came, ["2:1", "3:1", "4:1", "5:1"]);
}

#[test]
fn a_loss_comes_behind_what_the_lost_process_has_said() {
    let mut net = Net::joined(14, 2);
    // 3 is a leaf; the processes above it keep what it says.
    say(&mut net, Lane::Bulk, DONE, 1, [3]);
    net.run(Duration::from_millis(1));
    net.kill(3);
    net.run(Duration::from_millis(2));
    assert_eq!(came(&net), [""; 0]);
    net.run(Duration::from_secs(1));
    let news: Vec<&Output> = net.news_of(0).iter().collect();
    assert!(matches!(
        news[..],
        [
            Output::Received {
                from: Address(3),
                ..
            },
            Output::Lost { .. }
        ]
    ));
}

#[test]
fn without_a_function_nothing_is_merged() {
    let mut net = Net::joined(6, 2);
    for node in net.nodes.values_mut() {
        node.merge_with(|_| None);
    }
    say(&mut net, Lane::Bulk, DONE, 1, 1..=6);
    net.run(Duration::from_millis(1));
    let mut came = came(&net);
    came.sort();
    assert_eq!(came, ["1:1", "2:1", "3:1", "4:1", "5:1", "6:1"]);
}

/// A process whose parent dies returns with its messages while a merged one with the same is still on its way.
#[test]
fn a_merged_message_with_one_that_has_come_is_dropped_and_the_others_come_again() {
    let mut net = Net::joined(3, 1);
    // 1 keeps what 2 and 3 say.
    say(&mut net, Lane::Bulk, DONE, 1, [2, 3]);
    net.run(Duration::from_millis(2));
    let of = vec![
        (
            Number { own: 1, control: 0 },
            Members::of(&[Address(2), Address(3)]),
        ),
        (Number { own: 2, control: 0 }, Members::of(&[Address(2)])),
    ];
    let (now, lane) = (net.now, Lane::Bulk);
    let root = net.root();
    // The first message of 2 has come on another way.
    assert!(root.on_numbered(
        now,
        Address(2),
        lane,
        Number { own: 1, control: 0 },
        &body(2, 1)
    ));
    root.on_mergeable(now, Address(1), lane, DONE, (&of, body(2, 1)));
    assert_eq!(came(&net), [""; 0]);
    // Who has to send again does so, and nothing comes twice.
    net.run(Duration::from_secs(1));
    assert_eq!(came(&net), ["3:1"]);
}

/// A process dies after its parent has got its message, and what is below it has returned to the root meanwhile.
#[test]
fn a_message_of_a_lost_process_arrives_with_one_of_a_process_that_has_moved() {
    let mut net = Net::joined(3, 1);
    let now = net.now;
    let root = net.root();
    let link = root.links.get_mut(&Address(1)).unwrap();
    assert!(link.below.remove(&Address(3)));
    let of = [(
        Number { own: 1, control: 0 },
        Members::of(&[Address(2), Address(3)]),
    )];
    let both = merge(&[body(2, 1), body(3, 1)]).unwrap();
    root.on_mergeable(now, Address(1), Lane::Bulk, DONE, (&of, both));
    net.run(Duration::from_millis(1));
    assert_eq!(came(&net), ["2:1 3:1"]);
}

#[test]
fn a_process_does_not_wait_for_those_that_have_left_with_a_lost_one() {
    let mut net = Net::joined(4, 1);
    net.kill(3);
    net.run(Duration::from_secs(1));
    let below = |net: &Net, at: u32, child: u32| {
        let links = &net.nodes.get(&Address(at)).unwrap().links;
        links.get(&Address(child)).unwrap().below.clone()
    };
    assert_eq!(below(&net, 1, 2), BTreeSet::new());
    assert_eq!(below(&net, 0, 1), [Address(2)].into());
}

#[test]
fn processes_with_several_messages_of_a_class_share_their_groups() {
    let mut net = Net::joined(14, 2);
    for member in 1..=7 {
        for (class, number) in [(DONE, 1), (Class(2), 2), (DONE, 3), (Class(2), 4)] {
            say(&mut net, Lane::Bulk, class, number, [member]);
        }
    }
    net.run(Duration::from_millis(1));
    let numbers = net.news_of(0).iter().map(|news| {
        let said = messages(news);
        (said.len(), said[0].2)
    });
    let numbers: Vec<(usize, u32)> = numbers.collect();
    assert_eq!(numbers, [(7, 1), (7, 2), (7, 3), (7, 4)]);
}
