//! Sets of PUs.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::set::{Item, MAX_MEMBERS, ParseSetError, parse_items};

/// Upper bound of PU numbers, exclusive. Linux supports at most 8,192 PUs; the rest is reserve.
pub const MAX_PUS: u32 = 1 << 16;

const BITS: u32 = u64::BITS;

/// A set of PUs by the kernel's numbers. The text form is that of `/sys`: `0-3,7`.
///
/// It is a bitmap without trailing zeros, so equal sets have equal memory.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet {
    words: Vec<u64>,
}

const fn position(pu: u32) -> (usize, u64) {
    ((pu / BITS) as usize, 1 << (pu % BITS))
}

impl CpuSet {
    /// Makes the empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// Makes the set of one PU, or the empty set if `pu` is not below [`MAX_PUS`].
    #[must_use]
    pub fn single(pu: u32) -> Self {
        let mut set = Self::new();
        set.insert(pu);
        set
    }

    /// Makes a set from the words of a kernel bitmap: bit `b` of word `w` is PU `64 * w + b`.
    ///
    /// PUs from [`MAX_PUS`] on are ignored.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Self {
        let mut set = Self {
            words: words
                .iter()
                .take((MAX_PUS / BITS) as usize)
                .copied()
                .collect(),
        };
        set.trim();
        set
    }

    /// Returns the words of the bitmap, as [`CpuSet::from_words`] takes them. The last one is not zero.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds a PU. Numbers from [`MAX_PUS`] on are ignored: no Linux kernel has them, and a forged number must not cause a
    /// large allocation.
    pub fn insert(&mut self, pu: u32) {
        if pu >= MAX_PUS {
            return;
        }
        let (word, bit) = position(pu);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        if let Some(word) = self.words.get_mut(word) {
            *word |= bit;
        }
    }

    pub fn remove(&mut self, pu: u32) {
        let (word, bit) = position(pu);
        if let Some(word) = self.words.get_mut(word) {
            *word &= !bit;
        }
        self.trim();
    }

    #[must_use]
    pub fn contains(&self, pu: u32) -> bool {
        let (word, bit) = position(pu);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Returns the number of PUs.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the PU with the lowest number.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// Returns the PU with the highest number.
    #[must_use]
    pub fn last(&self) -> Option<u32> {
        let word = self.words.last()?;
        let words = u32::try_from(self.words.len()).ok()?;
        Some(words * BITS - 1 - word.leading_zeros())
    }

    /// Returns the PUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0_u32..)
            .step_by(BITS as usize)
            .zip(&self.words)
            .flat_map(|(base, word)| {
                let mut rest = *word;
                std::iter::from_fn(move || {
                    if rest == 0 {
                        return None;
                    }
                    let bit = rest.trailing_zeros();
                    rest &= rest - 1;
                    Some(base + bit)
                })
            })
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) = if self.words.len() < other.words.len() {
            (other, self)
        } else {
            (self, other)
        };
        let mut set = long.clone();
        for (word, more) in set.words.iter_mut().zip(&short.words) {
            *word |= more;
        }
        set
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut set = Self {
            words: self
                .words
                .iter()
                .zip(&other.words)
                .map(|(a, b)| a & b)
                .collect(),
        };
        set.trim();
        set
    }

    /// Returns the PUs of `self` that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut set = self.clone();
        for (word, less) in set.words.iter_mut().zip(&other.words) {
            *word &= !less;
        }
        set.trim();
        set
    }

    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & b == 0)
    }

    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    fn trim(&mut self) {
        let used = self
            .words
            .iter()
            .rposition(|word| *word != 0)
            .map_or(0, |last| last + 1);
        self.words.truncate(used);
    }
}

impl FromIterator<u32> for CpuSet {
    /// Ignores numbers from [`MAX_PUS`] on, as [`CpuSet::insert`] does.
    fn from_iter<I: IntoIterator<Item = u32>>(iter: I) -> Self {
        let mut set = Self::new();
        set.extend(iter);
        set
    }
}

impl Extend<u32> for CpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, iter: I) {
        for pu in iter {
            self.insert(pu);
        }
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pus = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = pus.next() {
            let mut last = first;
            while let Some(next) = pus.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl FromStr for CpuSet {
    type Err = ParseSetError;

    /// Parses the kernel's list form, `0-3,7`; a stride (`0-6/2`) is accepted too. Numbers must be below [`MAX_PUS`].
    fn from_str(text: &str) -> Result<Self, ParseSetError> {
        let mut set = Self::new();
        let mut members = 0;
        parse_items(
            text,
            MAX_PUS - 1,
            |Item {
                 first,
                 last,
                 stride,
             }| {
                members += u64::from((last - first) / stride) + 1;
                // A list with many repetitions must not cost unbounded time.
                if members <= MAX_MEMBERS {
                    set.extend((first..=last).step_by(stride as usize));
                }
            },
        )?;
        if members > MAX_MEMBERS {
            return Err(ParseSetError::TooManyMembers { max: MAX_MEMBERS });
        }
        Ok(set)
    }
}

impl Serialize for CpuSet {
    /// Writes text in formats for people (JSON), and the words of the bitmap in others (postcard).
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.words.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return String::deserialize(deserializer)?
                .parse()
                .map_err(de::Error::custom);
        }
        let words = Vec::<u64>::deserialize(deserializer)?;
        if words.len() > (MAX_PUS / BITS) as usize {
            return Err(de::Error::custom("a CPU set is too long"));
        }
        Ok(Self::from_words(&words))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_and_writes_the_kernels_lists() {
        for (text, again) in [
            ("", ""),
            ("0\n", "0"),
            ("0-3,7", "0-3,7"),
            ("7,0-1,2,3", "0-3,7"),
            ("0-6/2", "0,2,4,6"),
        ] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), again);
        }
        insta::assert_snapshot!("0-65536".parse::<CpuSet>().unwrap_err(), @"the number at position 2 is above 65535");
        insta::assert_snapshot!("0-".parse::<CpuSet>().unwrap_err(), @"expected a number at position 2");
        assert_eq!(CpuSet::single(MAX_PUS), CpuSet::new());
    }

    proptest! {
        #[test]
        fn agrees_with_a_btree_set(a: BTreeSet<u8>, b: BTreeSet<u8>, probe: u8) {
            let a = a.into_iter().map(u32::from).collect::<BTreeSet<_>>();
            let b = b.into_iter().map(u32::from).collect::<BTreeSet<_>>();
            let set = |members: &BTreeSet<u32>| members.iter().copied().collect::<CpuSet>();
            let (x, y) = (set(&a), set(&b));
            let probe = u32::from(probe);
            prop_assert_eq!(x.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert_eq!(x.len() as usize, a.len());
            prop_assert_eq!(x.first(), a.first().copied());
            prop_assert_eq!(x.last(), a.last().copied());
            prop_assert_eq!(x.contains(probe), a.contains(&probe));
            prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.union(&y), set(&a.union(&b).copied().collect()));
            prop_assert_eq!(x.intersection(&y), set(&a.intersection(&b).copied().collect()));
            prop_assert_eq!(x.difference(&y), set(&a.difference(&b).copied().collect()));
            prop_assert_eq!(x.to_string().parse::<CpuSet>().unwrap(), x.clone());
            prop_assert_eq!(CpuSet::from_words(x.words()), x.clone());
            let mut removed = x;
            removed.remove(probe);
            let mut model = a;
            model.remove(&probe);
            prop_assert_eq!(removed, set(&model));
        }
    }
}
