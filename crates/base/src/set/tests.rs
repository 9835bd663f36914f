use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn set(members: impl IntoIterator<Item = u32>) -> RankSet {
    members.into_iter().map(Rank).collect()
}

#[test]
fn text_shows_the_memory_form() {
    for (members, text) in [
        (vec![], ""),
        (vec![5], "5"),
        (vec![0, 1], "0-1"),
        (vec![0, 2], "0,2"),
        (vec![0, 2, 4], "0-4/2"),
        (vec![0, 2, 3, 4], "0,2-4"),
        (vec![0, 1, 3, 5, 7], "0-1,3-7/2"),
        (vec![7, 5, 3, 5, 0, 1], "0-1,3-7/2"),
        (vec![0, 5, 6, 7], "0,5-7"),
    ] {
        let made = set(members);
        assert_eq!(made.to_string(), text);
        assert_eq!(text.parse::<RankSet>().unwrap(), made);
    }
    assert_eq!(
        RankSet::range(0..512)
            .union(&RankSet::single(Rank(513)))
            .to_string(),
        "0-511,513"
    );
    assert_eq!("4-9/2".parse::<RankSet>().unwrap().to_string(), "4-8/2");
}

#[test]
fn bad_text_says_where() {
    let error = |text: &str| text.parse::<RankSet>().unwrap_err().to_string();
    insta::assert_snapshot!(error("1,,2"), @"expected a number at position 2");
    insta::assert_snapshot!(error("1;2"), @"unexpected `;` at position 1");
    insta::assert_snapshot!(error("0,9-3"), @"the range at position 2 runs backwards: 9-3");
    insta::assert_snapshot!(error("1-2/0"), @"the stride at position 4 is zero");
    insta::assert_snapshot!(error("1-99999999999"), @"the number at position 2 is above 4294967294");
    insta::assert_snapshot!(error("0-4000000000"), @"the list has more than 16777216 members");
    insta::assert_snapshot!(error(&" ".repeat(MAX_TEXT + 1)), @"the list has 1048577 bytes, more than 1048576");
}

#[test]
fn a_huge_alternating_set_stays_small() {
    let even = (0..1_000_000).map(|n| Rank(2 * n)).collect::<RankSet>();
    assert_eq!(
        (even.runs(), even.len(), even.to_string().as_str()),
        (1, 1_000_000, "0-1999998/2")
    );
}

#[test]
fn forged_runs_are_refused() {
    for runs in [
        vec![(0, 1, 0)],
        vec![(0, 5, 1), (0, 0, 1)],
        vec![(7, u32::MAX, 2)],
        vec![(0, 1 << 25, 1)],
    ] {
        let json = serde_json::to_string(&runs).unwrap();
        let mut compact = Compact(serde_json::Deserializer::from_str(&json));
        assert!(RankSet::deserialize(&mut compact).is_err(), "{json}");
    }
}

/// JSON that claims not to be human-readable, so that the compact form is tested without another dependency.
struct Compact<'a>(serde_json::Deserializer<serde_json::de::StrRead<'a>>);

impl<'de> Deserializer<'de> for &mut Compact<'de> {
    type Error = serde_json::Error;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.0.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Generates members in clusters, so that runs, strides and gaps all occur.
fn members() -> impl Strategy<Value = BTreeSet<u32>> {
    let piece = (0_u32..200, 0_u32..12, 1_u32..5);
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| {
        pieces
            .into_iter()
            .flat_map(|(start, count, stride)| (0..count).map(move |n| start + n * stride))
            .collect()
    })
}

proptest! {
    #[test]
    fn agrees_with_a_btree_set(a in members(), b in members(), probe in 0_u32..260) {
        let (x, y) = (set(a.iter().copied()), set(b.iter().copied()));
        prop_assert_eq!(x.iter().map(|rank| rank.0).collect::<BTreeSet<_>>(), a.clone());
        prop_assert_eq!(x.len(), a.len());
        prop_assert_eq!(x.is_empty(), a.is_empty());
        prop_assert_eq!(x.contains(Rank(probe)), a.contains(&probe));
        prop_assert_eq!(x.first(), a.first().copied().map(Rank));
        prop_assert_eq!(x.last(), a.last().copied().map(Rank));
        prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
        prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
        // Compares memory, not only members: every way to make a set must give the canonical runs.
        prop_assert_eq!(x.union(&y), set(a.union(&b).copied()));
        let (below, above) = (set(a.iter().copied()), set(b.iter().map(|member| member + 230)));
        for (mut one, other) in [(x.clone(), &y), (below.clone(), &above), (above.clone(), &below)] {
            let both = one.union(other);
            one.append(other);
            prop_assert_eq!(one, both);
        }
        prop_assert_eq!(x.intersection(&y), set(a.intersection(&b).copied()));
        prop_assert_eq!(x.difference(&y), set(a.difference(&b).copied()));
        prop_assert_eq!(x.to_string().parse::<RankSet>().unwrap(), x.clone());
        let json = serde_json::to_string(&x).unwrap();
        prop_assert_eq!(serde_json::from_str::<RankSet>(&json).unwrap(), x.clone());
        let mut inserted = y.clone();
        inserted.insert(Rank(probe));
        let mut model = b.clone();
        model.insert(probe);
        prop_assert_eq!(inserted, set(model));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[0-9,/ -]{0,24}") {
        if let Ok(read) = text.parse::<RankSet>() {
            prop_assert_eq!(read.to_string().parse::<RankSet>().unwrap(), read);
        }
    }

    #[test]
    fn unordered_text_is_the_same_set(a in members(), seed in 0_usize..64) {
        let mut list = a.iter().map(u32::to_string).collect::<Vec<_>>();
        let middle = if list.is_empty() { 0 } else { seed % list.len() };
        list.rotate_left(middle);
        prop_assert_eq!(list.join(",").parse::<RankSet>().unwrap(), set(a));
    }
}
