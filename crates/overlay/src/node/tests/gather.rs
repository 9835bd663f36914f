//! Gathers: what comes to the root, also if processes die or cannot be reached.

use proptest::prelude::*;

use super::{super::*, net::Net};
use crate::node::gather::PARTS_MAX;

const PATIENCE: Patience = Patience {
    merging: Duration::from_secs(30),
    whole: Duration::from_secs(60),
};

/// The answers are lists of numbers, so that each answer can be found in a merged one.
fn merge(bodies: &[Bytes]) -> Option<Bytes> {
    Some(Bytes::from(bodies.concat()))
}

fn answer(member: u32) -> Bytes {
    Bytes::copy_from_slice(&member.to_le_bytes())
}

fn numbers(body: &[u8]) -> Vec<u32> {
    let (numbers, rest) = body.as_chunks::<4>();
    assert!(rest.is_empty(), "{body:?}");
    let numbers = numbers.iter().map(|bytes| u32::from_le_bytes(*bytes));
    numbers.collect()
}

fn tree(members: u32, radix: u32) -> Net {
    let mut net = Net::joined(members, radix);
    for node in net.nodes.values_mut() {
        node.merge_with(merge);
    }
    net
}

fn ask(net: &mut Net, members: &[u32]) -> GatherId {
    let now = net.now;
    let to = members.iter().copied().map(Address).collect();
    let body = Bytes::from_static(b"where are you?");
    let id = net
        .root()
        .gather(now, &to, Lane::Control, &body, PATIENCE)
        .unwrap();
    net.run(Duration::from_millis(10));
    id
}

/// Answers the questions that these members have got.
fn answer_all(net: &mut Net, id: GatherId, members: impl IntoIterator<Item = u32>) {
    for member in members {
        let asked = net.news_of(member).iter();
        let asked = asked.filter(|news| matches!(news, Output::Asked { id: of, .. } if *of == id));
        assert_eq!(asked.count(), 1, "{member} is asked once");
        let node = net.nodes.get_mut(&Address(member)).unwrap();
        node.answer_gather(id, answer(member));
    }
    net.run(Duration::from_millis(10));
}

/// Returns the parts of a gather at the root.
fn parts(net: &Net, id: GatherId) -> Vec<Vec<u32>> {
    let parts = net.news_of(0).iter().filter_map(|news| match news {
        Output::Part { id: of, body, .. } if *of == id => Some(numbers(body)),
        _ => None,
    });
    parts.collect()
}

/// Returns the members that were missing at the end of a gather.
fn missing(net: &Net, id: GatherId) -> Option<Vec<u32>> {
    let mut ends = net.news_of(0).iter().filter_map(|news| match news {
        Output::Gathered { id: of, missing } if *of == id => {
            Some(missing.iter().map(|one| one.0).collect())
        }
        _ => None,
    });
    let end = ends.next();
    assert!(ends.next().is_none(), "a gather ends once");
    end
}

#[test]
fn answers_come_merged_from_each_child_of_the_root() {
    let mut net = tree(6, 2);
    let id = ask(&mut net, &[1, 2, 3, 4, 5, 6]);
    answer_all(&mut net, id, [3, 5, 6]);
    answer_all(&mut net, id, [1, 4]);
    // Somebody below 1 has not answered.
    assert_eq!(parts(&net, id), [[5, 6, 4]].map(Vec::from));
    assert_eq!(missing(&net, id), None);
    answer_all(&mut net, id, [2]);
    assert_eq!(parts(&net, id)[1], [3, 1, 2]);
    assert_eq!(missing(&net, id), Some(vec![]));
    assert!(net.nodes.values().all(|node| node.gathers() == 0));
}

#[test]
fn only_those_who_are_asked_answer() {
    let mut net = tree(6, 2);
    let id = ask(&mut net, &[2, 3, 9]);
    assert_eq!(net.news_of(1), []);
    answer_all(&mut net, id, [2, 3]);
    assert_eq!(parts(&net, id), [[2, 3]].map(Vec::from));
    assert_eq!(missing(&net, id), Some(vec![9]));
}

#[test]
fn the_others_arrive_in_time_if_one_does_not_answer() {
    let mut net = tree(14, 2);
    let id = ask(&mut net, &(1..=14).collect::<Vec<_>>());
    answer_all(&mut net, id, (1..=14).filter(|one| *one != 4));
    assert!(parts(&net, id).concat().len() < 13);
    // The processes above 4 pass on what they have, the lowest first.
    net.run(PATIENCE.merging);
    let mut came = parts(&net, id).concat();
    came.sort_unstable();
    assert_eq!(came, (1..=14).filter(|one| *one != 4).collect::<Vec<_>>());
    assert_eq!(missing(&net, id), None);
    net.run(PATIENCE.whole);
    assert_eq!(missing(&net, id), Some(vec![4]));
    assert!(net.nodes.values().all(|node| node.gathers() == 0));
}

#[test]
fn who_is_late_is_passed_on_alone() {
    let mut net = tree(6, 2);
    let id = ask(&mut net, &[1, 2, 3]);
    answer_all(&mut net, id, [1, 2]);
    assert_eq!(parts(&net, id).len(), 0);
    net.run(PATIENCE.merging);
    assert_eq!(parts(&net, id), [[1, 2]].map(Vec::from));
    answer_all(&mut net, id, [3]);
    assert_eq!(parts(&net, id)[1], [3]);
    assert_eq!(missing(&net, id), Some(vec![]));
}

#[test]
fn a_gather_that_ends_early_names_the_missing() {
    let mut net = tree(3, 1);
    let id = ask(&mut net, &[1, 2, 3]);
    let now = net.now;
    net.root().end_gather(now, id);
    net.run(Duration::from_millis(10));
    assert_eq!(missing(&net, id), Some(vec![1, 2, 3]));
    assert!(net.nodes.values().all(|node| node.gathers() == 0));
    // An answer to a question that is over goes nowhere.
    answer_all(&mut net, id, [3]);
    assert_eq!(parts(&net, id).len(), 0);
}

#[test]
fn the_answers_that_a_dead_process_has_merged_are_given_again() {
    let mut net = tree(6, 2);
    let id = ask(&mut net, &[1, 2, 3, 4, 5, 6]);
    answer_all(&mut net, id, [4, 5, 6, 2, 3]);
    // Process 1 has both answers, and waits for its own.
    net.kill(1);
    net.run(Duration::from_secs(1));
    let mut came = parts(&net, id).concat();
    came.sort_unstable();
    assert_eq!(came, [2, 3, 4, 5, 6]);
    assert_eq!(missing(&net, id), Some(vec![1]));
}

#[test]
fn an_answer_that_the_root_has_is_not_counted_again() {
    let mut net = tree(6, 2);
    let id = ask(&mut net, &[1, 2, 3]);
    answer_all(&mut net, id, [1, 2, 3]);
    // The root has them, and does not know it when they return: it has only just asked somebody else too.
    let now = net.now;
    let to = [1, 2, 3, 4].map(Address).into();
    let second = net
        .root()
        .gather(now, &to, Lane::Bulk, &Bytes::new(), PATIENCE)
        .unwrap();
    net.run(Duration::from_millis(10));
    answer_all(&mut net, second, [1, 2, 3]);
    assert_eq!(parts(&net, second), [[1, 2, 3]].map(Vec::from));
    net.kill(1);
    net.run(Duration::from_secs(1));
    assert_eq!(parts(&net, second).len(), 1);
    answer_all(&mut net, second, [4]);
    assert_eq!(missing(&net, second), Some(vec![]));
}

#[test]
fn the_root_asks_those_again_whose_answers_came_with_one_that_it_has() {
    let mut net = tree(3, 1);
    let id = ask(&mut net, &[1, 2, 3]);
    let now = net.now;
    answer_all(&mut net, id, [3]);
    // What another way would have brought: the answer of 3 alone, before that of 2 and 3.
    let of = |members: &[u32]| {
        let members: BTreeSet<Address> = members.iter().copied().map(Address).collect();
        crate::packet::Members::of(&members)
    };
    let root = net.root();
    root.on_part(now, Address(1), id, &of(&[3]), answer(3));
    root.on_part(
        now,
        Address(1),
        id,
        &of(&[2, 3]),
        Bytes::from_static(&[0; 8]),
    );
    answer_all(&mut net, id, [1, 2]);
    net.run(Duration::from_millis(10));
    let mut came = parts(&net, id).concat();
    came.sort_unstable();
    assert_eq!(came, [1, 2, 3]);
    assert_eq!(missing(&net, id), Some(vec![]));
}

#[test]
fn answers_that_cannot_be_merged_are_passed_on_as_they_are() {
    let mut net = tree(3, 1);
    for node in net.nodes.values_mut() {
        node.merge_with(|_| None);
    }
    let id = ask(&mut net, &[1, 2, 3]);
    answer_all(&mut net, id, [1, 2, 3]);
    let mut came = parts(&net, id);
    came.sort();
    assert_eq!(came, [[1], [2], [3]].map(Vec::from));
}

#[test]
fn long_answers_are_not_kept() {
    let mut net = tree(4, 1);
    let id = ask(&mut net, &[1, 2, 3, 4]);
    for member in [4, 3, 2] {
        let node = net.nodes.get_mut(&Address(member)).unwrap();
        let body = answer(member).repeat(PARTS_MAX / 8);
        node.answer_gather(id, Bytes::from(body));
        net.run(Duration::from_secs(1));
        for node in net.nodes.values() {
            assert!(node.kept_parts() <= PARTS_MAX);
        }
    }
    // Process 1 has not answered, and does not wait with so much.
    assert_eq!(parts(&net, id).len(), 1);
}

#[test]
fn the_root_has_at_most_so_many_gathers() {
    let mut net = tree(1, 1);
    let now = net.now;
    let to = [Address(1)].into();
    for _ in 0..GATHERS_MAX {
        net.root()
            .gather(now, &to, Lane::Control, &Bytes::new(), PATIENCE)
            .unwrap();
    }
    let more = net
        .root()
        .gather(now, &to, Lane::Control, &Bytes::new(), PATIENCE);
    insta::assert_snapshot!(more.unwrap_err(), @"64 gathers are open");
}

#[test]
fn a_process_speaks_for_nobody_else() {
    let mut net = tree(6, 2);
    let id = ask(&mut net, &[1, 2, 3]);
    let node = net.nodes.get_mut(&Address(2)).unwrap();
    let of = crate::packet::Members::of(&[Address(3)]);
    let head = crate::packet::Head::Part { id, of };
    node.push_up(Lane::Control, &head, answer(3));
    net.run(Duration::from_millis(500));
    assert_eq!(parts(&net, id).len(), 0);
    let lost = net.news_of(0).iter();
    let lost = lost.filter_map(|news| match news {
        Output::Lost { who, loss, .. } => Some((who.0, loss.to_string())),
        _ => None,
    });
    insta::assert_debug_snapshot!(lost.collect::<Vec<_>>(), @r#"
    [
        (
            2,
            "it sent answers of processes that were not asked, or are not below it",
        ),
    ]
    "#);
}

/// Longer than a run.
const LONG: Duration = Duration::from_secs(600);

/// One step of a run.
#[derive(Clone, Debug)]
enum Step {
    Gather {
        mask: u32,
        lane: usize,
        /// Seconds.
        merging: u64,
    },
    /// These members answer what they were asked.
    Answer {
        mask: u32,
    },
    Run {
        micros: u64,
    },
    Reset {
        member: u32,
    },
    ShortCut {
        member: u32,
        millis: u64,
    },
    LongCut {
        member: u32,
        millis: u64,
    },
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
        4 => (any::<u32>(), 0..2_usize, 1..100_u64).prop_map(|(mask, lane, merging)| Step::Gather { mask, lane, merging }),
        8 => any::<u32>().prop_map(|mask| Step::Answer { mask }),
        6 => (1..1_000_u64).prop_map(|micros| Step::Run { micros }),
        3 => (0..12_u32).prop_map(|member| Step::Reset { member }),
        1 => (0..12_u32, 100..4_000_u64).prop_map(|(member, millis)| Step::ShortCut { member, millis }),
        1 => (0..12_u32, 13_000..20_000_u64).prop_map(|(member, millis)| Step::LongCut { member, millis }),
        1 => (0..12_u32, 1..4_000_u64).prop_map(|(member, millis)| Step::Stop { member, millis }),
        2 => (0..12_u32).prop_map(|member| Step::Kill { member }),
    ]
}

/// A run, and what must come of it.
struct Run {
    net: Net,
    members: u32,
    /// Processes that were killed, or cut off.
    unlucky: BTreeSet<u32>,
    /// The gathers, with those who were asked and when.
    gathers: BTreeMap<GatherId, (BTreeSet<u32>, Time)>,
    /// Who has answered what in time, whatever became of it.
    answered: BTreeSet<(GatherId, u32)>,
}

impl Run {
    fn member(&self, index: u32) -> u32 {
        1 + index % self.members
    }

    fn cut(&mut self, who: u32, millis: u64) {
        self.net.cut.insert(Address(who));
        self.net.run(Duration::from_millis(millis));
        self.net.cut.clear();
        self.net.run(Duration::from_millis(400));
    }

    fn answer(&mut self, mask: u32) {
        for member in (1..=self.members).filter(|one| mask & 1 << one != 0) {
            let asked = self.net.news_of(member).iter();
            let asked = asked.filter_map(|news| match news {
                Output::Asked { id, .. } => Some(*id),
                _ => None,
            });
            for id in asked.collect::<Vec<_>>() {
                let is_first = self.answered.insert((id, member));
                let node = self.net.nodes.get_mut(&Address(member));
                if let Some(node) = node.filter(|_| is_first) {
                    node.answer_gather(id, answer(member));
                }
            }
        }
    }

    fn perform(&mut self, step: &Step) {
        let settle = RECONNECT_MAX + Duration::from_millis(100);
        match *step {
            Step::Gather {
                mask,
                lane,
                merging,
            } => {
                let to = (1..=self.members).filter(|one| mask & 1 << one != 0);
                let to: BTreeSet<u32> = to.collect();
                let now = self.net.now;
                let asked = to.iter().copied().map(Address).collect();
                let lane = Lane::ALL[lane];
                let patience = Patience {
                    merging: Duration::from_secs(merging),
                    whole: LONG,
                };
                let root = self.net.root();
                let gather = root.gather(now, &asked, lane, &Bytes::new(), patience);
                if let Ok(id) = gather {
                    self.gathers.insert(id, (to, now));
                }
            }
            Step::Answer { mask } => self.answer(mask),
            Step::Run { micros } => self.net.run(Duration::from_micros(micros)),
            Step::Reset { member } => {
                let who = self.member(member);
                self.net.reset_any(who);
                self.net.run(settle);
            }
            Step::ShortCut { member, millis } => {
                let who = self.member(member);
                let node = self.net.nodes.get(&Address(who));
                if node.is_none_or(|node| node.returning.is_some()) {
                    self.unlucky.insert(who);
                }
                self.cut(who, millis);
            }
            Step::LongCut { member, millis } => {
                let who = self.member(member);
                self.unlucky.insert(who);
                self.cut(who, millis);
            }
            Step::Stop { member, millis } => {
                let who = self.member(member);
                let node = self.net.nodes.get(&Address(who));
                if node.is_none_or(|node| node.returning.is_some()) {
                    self.unlucky.insert(who);
                }
                self.net.stopped.insert(Address(who));
                self.net.run(Duration::from_millis(millis));
                self.net.stopped.clear();
                self.net.run(settle);
            }
            Step::Kill { member } => {
                let who = self.member(member);
                self.unlucky.insert(who);
                if self.net.nodes.contains_key(&Address(who)) {
                    self.net.kill(who);
                }
            }
        }
    }

    fn check(&self) {
        let mut have: BTreeMap<GatherId, BTreeSet<u32>> = BTreeMap::new();
        let mut over: BTreeSet<GatherId> = BTreeSet::new();
        for news in self.net.news_of(0) {
            match news {
                Output::Part { id, of, body } => {
                    assert!(!over.contains(id), "{id:?} has ended");
                    let mut came = numbers(body);
                    came.sort_unstable();
                    let of: Vec<u32> = of.iter().map(|one| one.0).collect();
                    assert_eq!(came, of, "a part has the answers that it says");
                    for one in of {
                        let is_new = have.entry(*id).or_default().insert(one);
                        assert!(is_new, "{one} is counted twice");
                        assert!(self.answered.contains(&(*id, one)));
                    }
                }
                Output::Gathered { id, missing } => {
                    assert!(over.insert(*id), "{id:?} ends twice");
                    let missing: BTreeSet<u32> = missing.iter().map(|one| one.0).collect();
                    let have = have.get(id).cloned().unwrap_or_default();
                    let asked = &self.gathers[id].0;
                    assert!(have.is_disjoint(&missing));
                    assert_eq!(&(&have | &missing), asked, "{id:?}");
                    for one in missing {
                        let has_answered = self.answered.contains(&(*id, one));
                        let is_unlucky = self.unlucky.contains(&one);
                        assert!(!has_answered || is_unlucky, "the answer of {one} is lost");
                    }
                }
                _ => {}
            }
        }
        assert_eq!(over.len(), self.gathers.len(), "all gathers end");
        for (me, node) in &self.net.nodes {
            assert_eq!(node.gathers(), 0, "{me}");
            assert_eq!(node.kept(), 0, "{me}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_answer_is_lost_or_counted_twice(
        members in 1..12_u32,
        radix in 1..4_u32,
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut run = Run {
            net: tree(members, radix),
            members,
            unlucky: BTreeSet::new(),
            gathers: BTreeMap::new(),
            answered: BTreeSet::new(),
        };
        for step in &steps {
            run.perform(step);
        }
        run.net.run(Duration::from_secs(40));
        // Every second member never answers the last questions.
        run.answer(0x5555_5555);
        run.net.run(LONG);
        run.check();
    }
}
