//! Random trees, orders of start, and faults: what the tree promises holds in each of them.

use proptest::prelude::*;

use super::{super::*, merging, net::Net};
use crate::lanes::window;

/// Longest message.
const LONGEST: usize = 60_000;

/// One step of a run, for the process with this index.
#[derive(Clone, Debug)]
enum Step {
    StartNext,
    Send {
        from: u32,
        lane: usize,
        length: usize,
    },
    /// Processes send a message that may be merged.
    Say {
        mask: u32,
        lane: usize,
        class: u64,
    },
    Cast {
        mask: u32,
        lane: usize,
    },
    Run {
        micros: u64,
    },
    Reset {
        member: u32,
    },
    /// The network drops the packets of a process for less than any limit.
    ShortCut {
        member: u32,
        millis: u64,
    },
    /// The same for longer than a lease and a window.
    LongCut {
        member: u32,
        millis: u64,
    },
    /// A process neither reads nor writes for a while.
    Stop {
        member: u32,
        millis: u64,
    },
    Kill {
        member: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::StartNext),
        6 => (0..9_u32, 0..2_usize, 1..LONGEST).prop_map(|(from, lane, length)| Step::Send { from, lane, length }),
        4 => (any::<u32>(), 0..2_usize).prop_map(|(mask, lane)| Step::Cast { mask, lane }),
        6 => (any::<u32>(), 0..2_usize, 0..2_u64).prop_map(|(mask, lane, class)| Step::Say { mask, lane, class }),
        4 => (1..3_000_u64).prop_map(|micros| Step::Run { micros }),
        3 => (0..9_u32).prop_map(|member| Step::Reset { member }),
        1 => (0..9_u32, 100..4_000_u64).prop_map(|(member, millis)| Step::ShortCut { member, millis }),
        1 => (0..9_u32, 13_000..20_000_u64).prop_map(|(member, millis)| Step::LongCut { member, millis }),
        1 => (0..9_u32, 1..4_000_u64).prop_map(|(member, millis)| Step::Stop { member, millis }),
        1 => (0..9_u32).prop_map(|member| Step::Kill { member }),
    ]
}

/// A run, and what must come of it.
struct Run {
    net: Net,
    members: u32,
    to_start: Vec<u32>,
    /// Processes that were killed, or cut off for long or while they joined.
    unlucky: BTreeSet<u32>,
    killed: BTreeSet<u32>,
    /// Numbers of messages by sender or receiver, and lane. They increase over both lanes.
    up: BTreeMap<(u32, usize), Vec<u32>>,
    down: BTreeMap<(u32, usize), Vec<u32>>,
    next: u32,
}

impl Run {
    fn new(members: u32, radix: u32, order: &[u32]) -> Self {
        let net = Net::new(members, radix);
        let to_start = order.iter().copied().filter(|one| *one <= members);
        Self {
            members,
            to_start: to_start.collect(),
            net,
            unlucky: BTreeSet::new(),
            killed: BTreeSet::new(),
            up: BTreeMap::new(),
            down: BTreeMap::new(),
            next: 0,
        }
    }

    fn body(&mut self, length: usize) -> (u32, Vec<u8>) {
        self.next += 1;
        let mut body = self.next.to_le_bytes().to_vec();
        body.resize(length.max(4), 7);
        (self.next, body)
    }

    fn has_joined(&self, member: u32) -> bool {
        self.net.joined_members().contains(&member)
    }

    fn is_returning(&self, member: u32) -> bool {
        let node = self.net.nodes.get(&Address(member));
        node.is_some_and(|node| node.returning.is_some())
    }

    fn perform(&mut self, step: &Step) {
        let settle = RECONNECT_MAX + Duration::from_millis(100);
        let member = |index: u32| 1 + index % self.members;
        match *step {
            Step::StartNext => {
                if let Some(next) = self.to_start.pop() {
                    self.net.start(next);
                }
            }
            Step::Send { from, lane, length } => {
                let from = member(from);
                let node = self.net.nodes.get(&Address(from));
                if node.is_some_and(|node| node.uplink.parent().is_some() && node.has_room()) {
                    let (number, body) = self.body(length);
                    self.net.send(from, Lane::ALL[lane], body);
                    self.up.entry((from, lane)).or_default().push(number);
                }
            }
            Step::Say { mask, lane, class } => {
                for from in (1..=self.members).filter(|one| mask & 1 << one != 0) {
                    let Some(node) = self.net.nodes.get_mut(&Address(from)) else {
                        continue;
                    };
                    if node.uplink.parent().is_some() && node.has_room() {
                        self.next += 1;
                        let body = merging::body(from, self.next);
                        node.send_mergeable(self.net.now, Lane::ALL[lane], Class(class), body);
                        self.up.entry((from, lane)).or_default().push(self.next);
                    }
                }
            }
            Step::Cast { mask, lane } => {
                let joined = self.net.joined_members();
                let to = joined.into_iter().filter(|one| mask & 1 << one != 0);
                let to: BTreeSet<Address> = to.map(Address).collect();
                let (number, body) = self.body(100);
                for one in &to {
                    self.down.entry((one.0, lane)).or_default().push(number);
                }
                let now = self.net.now;
                let lane = Lane::ALL[lane];
                self.net.root().cast(now, &to, lane, &Bytes::from(body));
            }
            Step::Run { micros } => self.net.run(Duration::from_micros(micros)),
            Step::Reset { member: index } => {
                self.net.reset_any(member(index));
                self.net.run(settle);
            }
            Step::ShortCut {
                member: index,
                millis,
            } => {
                let who = member(index);
                if !self.has_joined(who) || self.is_returning(who) {
                    self.unlucky.insert(who);
                }
                self.cut(who, millis);
            }
            Step::LongCut {
                member: index,
                millis,
            } => {
                let who = member(index);
                self.unlucky.insert(who);
                self.cut(who, millis);
            }
            Step::Stop {
                member: index,
                millis,
            } => {
                let who = member(index);
                if self.is_returning(who) {
                    self.unlucky.insert(who);
                }
                self.net.stopped.insert(Address(who));
                self.net.run(Duration::from_millis(millis));
                self.net.stopped.clear();
                self.net.run(settle);
            }
            Step::Kill { member: index } => {
                let who = member(index);
                if self.net.nodes.contains_key(&Address(who)) {
                    self.net.kill(who);
                    self.unlucky.insert(who);
                    self.killed.insert(who);
                }
            }
        }
    }

    fn cut(&mut self, who: u32, millis: u64) {
        self.net.cut.insert(Address(who));
        self.net.run(Duration::from_millis(millis));
        self.net.cut.clear();
        self.net.run(Duration::from_millis(400));
    }

    /// Lets the run end: everybody is started, and the root expects nobody who is dead.
    fn finish(&mut self) {
        while !self.to_start.is_empty() {
            self.perform(&Step::StartNext);
        }
        self.net.run(Duration::from_secs(30));
        let now = self.net.now;
        let dead: Vec<u32> = (1..=self.members)
            .filter(|one| self.killed.contains(one) || self.is_over(*one))
            .collect();
        for dead in dead {
            self.net.root().give_up(now, Address(dead));
        }
        self.net.run(Duration::from_secs(30));
    }

    /// Returns true if a process knows that it has no way to the root.
    fn is_over(&self, member: u32) -> bool {
        let mut news = self.net.news_of(member).iter();
        news.any(|one| matches!(one, Output::Abandoned(_) | Output::Unreachable(_)))
    }

    /// Returns true if a process was unlucky. Those below it return.
    fn may_be_lost(&self, member: u32) -> bool {
        self.unlucky.contains(&member)
    }

    fn check_queues(&self) {
        let deaths = u64::try_from(self.unlucky.len()).unwrap();
        for (me, node) in &self.net.nodes {
            for (peer, link) in &node.links {
                for lane in Lane::ALL {
                    // A process that was lost leaves what had arrived.
                    let most = (window(lane) + 2 * LONGEST as u64) * (1 + deaths);
                    let unsent = link.lanes.unsent(lane);
                    assert!(unsent <= most, "{me} has {unsent} bytes for {peer}");
                }
            }
            for connection in node.connections.values() {
                assert!(connection.notes.len() <= 2);
            }
        }
    }

    fn check(&self) {
        let mut lost: BTreeSet<u32> = BTreeSet::new();
        let mut joined: BTreeSet<u32> = BTreeSet::new();
        let mut arrived: BTreeMap<(u32, usize), Vec<u32>> = BTreeMap::new();
        for news in self.net.news_of(0) {
            match news {
                Output::Joined(who) => assert!(joined.insert(who.0), "{who} has joined twice"),
                Output::Lost { members, .. } => {
                    for member in members {
                        assert!(joined.contains(&member.0), "{member} had not joined");
                        assert!(lost.insert(member.0), "{member} is lost twice");
                    }
                }
                Output::Received { .. } | Output::Merged { .. } => {
                    for (from, lane, number) in merging::messages(news) {
                        assert!(joined.contains(&from), "{from} has not joined");
                        assert!(!lost.contains(&from), "{from} speaks after its loss");
                        arrived
                            .entry((from, lane as usize))
                            .or_default()
                            .push(number);
                    }
                }
                Output::Refused { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        for member in 1..=self.members {
            let news = self.net.news_of(member);
            let is_over = self.is_over(member);
            if !self.may_be_lost(member) {
                assert!(!lost.contains(&member), "{member} is lost");
                assert!(
                    joined.contains(&member),
                    "{member} has not joined: {news:?}"
                );
                assert!(!is_over, "{member}: {news:?}");
            } else if self.killed.contains(&member) {
                assert_eq!(
                    lost.contains(&member),
                    joined.contains(&member),
                    "{member} died"
                );
            } else if lost.contains(&member) {
                assert!(is_over, "{member} does not know that it is lost");
            }
            self.check_lanes(member);
            for lane in 0..2 {
                let all = |of: &BTreeMap<(u32, usize), Vec<u32>>| {
                    of.get(&(member, lane)).cloned().unwrap_or_default()
                };
                self.check_order(member, &all(&self.up), &all(&arrived));
                let received = news.iter().filter_map(|one| match one {
                    Output::Received { lane: on, body, .. } if *on == Lane::ALL[lane] => {
                        Some(number(body))
                    }
                    _ => None,
                });
                self.check_order(member, &all(&self.down), &received.collect::<Vec<_>>());
            }
        }
        self.check_quiet();
    }

    /// Checks that no bulk message has overtaken a control message, up or down.
    fn check_lanes(&self, member: u32) {
        let of = |news: &Output, who: u32| match news {
            Output::Received { from, lane, body } if from.0 == who => Some((*lane, number(body))),
            _ => None,
        };
        let up = self.net.news_of(0).iter().flat_map(merging::messages);
        let up = up.filter(|one| one.0 == member);
        let up = up.map(|(_, lane, number)| (lane, number));
        let down = self.net.news_of(member).iter();
        let down = down.filter_map(|one| of(one, 0));
        for messages in [up.collect::<Vec<_>>(), down.collect()] {
            let mut bulk = 0;
            for (lane, number) in messages {
                match lane {
                    Lane::Bulk => bulk = bulk.max(number),
                    Lane::Control => assert!(number > bulk, "{member}: {bulk} overtook {number}"),
                }
            }
        }
    }

    fn check_order(&self, member: u32, sent: &[u32], received: &[u32]) {
        if self.may_be_lost(member) {
            assert_eq!(Some(received), sent.get(..received.len()), "{member}");
        } else {
            assert_eq!(received, sent, "{member}");
        }
    }

    /// Checks that each connection belongs to a link that both ends have, and that nothing waits.
    fn check_quiet(&self) {
        for (me, node) in &self.net.nodes {
            assert_eq!(node.connections.len(), node.links.len(), "{me}");
            assert!(node.waiting.is_empty() && node.pending.is_empty() && node.arrived.is_empty());
            assert!(node.orphans.is_empty() && node.returning.is_none());
            assert_eq!(node.kept(), 0, "{me}");
            assert_eq!(node.to_write(), [], "{me}");
            for (peer, link) in &node.links {
                let other = &self.net.nodes[peer].links[me];
                assert_eq!(link.number, other.number, "{me} and {peer}");
                assert!(matches!(link.state, LinkState::Up { .. }));
                assert_eq!(link.lanes.unsent(Lane::Control), 0);
                assert_eq!(link.lanes.unsent(Lane::Bulk), 0);
            }
        }
    }
}

fn number(body: &Bytes) -> u32 {
    u32::from_le_bytes(*body.first_chunk().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_tree_keeps_its_promises_whatever_fails(
        members in 1..9_u32,
        radix in 1..4_u32,
        order in Just((1..9).collect::<Vec<u32>>()).prop_shuffle(),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut run = Run::new(members, radix, &order);
        for step in &steps {
            run.perform(step);
            run.check_queues();
        }
        run.finish();
        run.check();
    }
}
