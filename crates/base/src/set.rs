//! Rank sets.
//!
//! A set is a list of runs `start, start + stride, …, last` that do not overlap or interleave. One greedy rule makes them
//! from the ascending sequence of members. The same members therefore always give the same runs: equal sets have equal
//! memory, and the text form shows the runs.
//!
//! The rule: two neighbours (`x`, `x + 1`) make a run; three equidistant members make a run with a stride; and a run takes
//! the next member if it fits.

#[cfg(test)]
mod tests;

use std::{fmt, ops::Range, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use crate::Rank;

/// Maximum length of the text of a rank set or CPU set, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// Maximum number of members of a rank set that was parsed from text or received.
pub const MAX_MEMBERS: u64 = 1 << 24;

/// A set of ranks: sorted runs with strides. The text form is `0-511,513` and `0-1022/2`.
///
/// Inserting at the end costs amortized O(1), elsewhere O(runs). Set operations are linear in the number of runs if the
/// runs do not interleave, and otherwise in the members of the interleaved part.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankSet {
    runs: Vec<Run>,
}

/// Members `start`, `start + stride`, …, `last`. `stride` is 1 for a single member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Run {
    start: u32,
    last: u32,
    stride: u32,
}

impl Run {
    const fn single(member: u32) -> Self {
        Self {
            start: member,
            last: member,
            stride: 1,
        }
    }

    const fn is_single(self) -> bool {
        self.start == self.last
    }

    const fn len(self) -> u64 {
        ((self.last - self.start) / self.stride) as u64 + 1
    }

    const fn contains(self, member: u32) -> bool {
        self.start <= member
            && member <= self.last
            && (member - self.start).is_multiple_of(self.stride)
    }

    /// Splits the run into the members below `bound` and the others; requires `start < bound <= last`.
    const fn split(self, bound: u32) -> (Self, Self) {
        let last = self.start + (bound - 1 - self.start) / self.stride * self.stride;
        (
            Self { last, ..self },
            Self {
                start: last + self.stride,
                ..self
            },
        )
    }

    /// Returns the members behind `member`, which must be in the run; `None` if there are none.
    const fn after(self, member: u32) -> Option<Self> {
        if member == self.last {
            None
        } else {
            Some(Self {
                start: member + self.stride,
                ..self
            })
        }
    }
}

/// How a list of runs ends after another run was added to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pushed {
    /// As the list from which the run was taken: the runs that follow there can follow here as they are.
    AsItWas,
    Otherwise,
}

/// Which members of two sets an operation keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Any,
    Both,
    OnlyLeft,
}

impl RankSet {
    /// Makes the empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { runs: Vec::new() }
    }

    /// Makes the empty set: the same as `new`, for use in expressions.
    #[must_use]
    pub const fn empty() -> Self {
        Self::new()
    }

    /// Makes the set of one rank.
    #[must_use]
    pub fn single(rank: Rank) -> Self {
        Self {
            runs: vec![Run::single(rank.0)],
        }
    }

    /// Makes the set of the ranks from `range.start` up to but excluding `range.end`.
    #[must_use]
    pub fn range(range: Range<u32>) -> Self {
        let mut set = Self::new();
        if range.start < range.end {
            set.push_run(Run {
                start: range.start,
                last: range.end - 1,
                stride: 1,
            });
        }
        set
    }

    /// Adds one rank.
    pub fn insert(&mut self, rank: Rank) {
        match self.last() {
            Some(last) if rank <= last => {
                if !self.contains(rank) {
                    self.append(&Self::single(rank));
                }
            }
            Some(_) | None => self.push(rank.0),
        }
    }

    #[must_use]
    pub fn contains(&self, rank: Rank) -> bool {
        let after = self.runs.partition_point(|run| run.start <= rank.0);
        after
            .checked_sub(1)
            .and_then(|index| self.runs.get(index))
            .is_some_and(|run| run.contains(rank.0))
    }

    /// Returns the number of members, in O(runs).
    #[must_use]
    pub fn len(&self) -> usize {
        let members = self.runs.iter().map(|run| run.len()).sum::<u64>();
        usize::try_from(members).unwrap_or(usize::MAX)
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the lowest rank.
    #[must_use]
    pub fn first(&self) -> Option<Rank> {
        self.runs.first().map(|run| Rank(run.start))
    }

    /// Returns the highest rank.
    #[must_use]
    pub fn last(&self) -> Option<Rank> {
        self.runs.last().map(|run| Rank(run.last))
    }

    /// Returns the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.runs.iter().flat_map(|run| {
            let members = (run.last - run.start) / run.stride;
            (0..=members).map(move |index| Rank(run.start + index * run.stride))
        })
    }

    /// Returns the number of runs. Each takes 12 bytes in memory, and about as many when sent.
    #[must_use]
    pub const fn runs(&self) -> usize {
        self.runs.len()
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.merge(other, Keep::Any)
    }

    /// Adds the members of `other`. Only our runs from its first member on are touched: none if all of them are below. Of
    /// these, all behind its last member move as they are, as soon as one of them comes out as it was.
    pub fn append(&mut self, other: &Self) {
        if self.last() < other.first() {
            for &run in &other.runs {
                self.push_run(run);
            }
        } else if let Some(first) = other.first() {
            let ours = self.runs.partition_point(|run| run.last < first.0);
            let ours = self.runs.split_off(ours);
            self.merge_in(&ours, &other.runs, Keep::Any);
        }
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.merge(other, Keep::Both)
    }

    /// Returns the members of `self` that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.merge(other, Keep::OnlyLeft)
    }

    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.intersection(other).is_empty()
    }

    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Returns the runs that reach into the span from the first to the last member of another set.
    fn runs_within(&self, other: &Self) -> &[Run] {
        let (Some(first), Some(last)) = (other.first(), other.last()) else {
            return &[];
        };
        let start = self.runs.partition_point(|run| run.last < first.0);
        let end = self.runs.partition_point(|run| run.start <= last.0);
        self.runs.get(start..end).unwrap_or_default()
    }

    fn merge(&self, other: &Self, keep: Keep) -> Self {
        let mut out = Self::new();
        // Runs beyond the other set's span cannot matter for these two, so few ranks against many cost little.
        let left = match keep {
            Keep::Both => self.runs_within(other),
            Keep::Any | Keep::OnlyLeft => &self.runs,
        };
        let right = match keep {
            Keep::Both | Keep::OnlyLeft => other.runs_within(self),
            Keep::Any => &other.runs,
        };
        out.merge_in(left, right, keep);
        out
    }

    /// Appends what an operation keeps of two lists of runs, all above ours. Walks both lists once. The lower run is cut where
    /// the other one begins, so that every piece is either in one set only or begins in both.
    fn merge_in(&mut self, left: &[Run], right: &[Run], keep: Keep) {
        let (mut left, mut right) = (left.iter().copied(), right.iter().copied());
        let (mut a, mut b) = (left.next(), right.next());
        loop {
            match (a, b) {
                (None, None) => return,
                (Some(run), None) => {
                    if keep == Keep::Both {
                        return;
                    }
                    if self.push_run(run) == Pushed::AsItWas {
                        return self.runs.extend(left);
                    }
                    a = left.next();
                }
                (None, Some(run)) => {
                    if keep != Keep::Any {
                        return;
                    }
                    if self.push_run(run) == Pushed::AsItWas {
                        return self.runs.extend(right);
                    }
                    b = right.next();
                }
                (Some(x), Some(y)) if x.start < y.start => {
                    let (head, rest) = if x.last < y.start {
                        (x, left.next())
                    } else {
                        split_some(x.split(y.start))
                    };
                    if keep != Keep::Both {
                        self.push_run(head);
                    }
                    a = rest;
                }
                (Some(x), Some(y)) if y.start < x.start => {
                    let (head, rest) = if y.last < x.start {
                        (y, right.next())
                    } else {
                        split_some(y.split(x.start))
                    };
                    if keep == Keep::Any {
                        self.push_run(head);
                    }
                    b = rest;
                }
                (Some(x), Some(y)) => {
                    let last = if x.stride == y.stride {
                        x.last.min(y.last)
                    } else {
                        x.start
                    };
                    if keep != Keep::OnlyLeft {
                        self.push_run(Run {
                            start: x.start,
                            last,
                            stride: x.stride,
                        });
                    }
                    a = x.after(last).or_else(|| left.next());
                    b = y.after(last).or_else(|| right.next());
                }
            }
        }
    }

    /// Adds a member above all others.
    fn push(&mut self, member: u32) {
        debug_assert!(self.runs.last().is_none_or(|run| run.last < member));
        if let [.., before, last] = self.runs.as_mut_slice()
            && last.is_single()
            && before.is_single()
            && member - last.start != 1
            && member - last.start == last.start - before.start
        {
            *before = Run {
                start: before.start,
                last: member,
                stride: member - last.start,
            };
            self.runs.pop();
            return;
        }
        match self.runs.last_mut() {
            Some(run) if member - run.last == run.stride => run.last = member,
            Some(_) | None => self.runs.push(Run::single(member)),
        }
    }

    /// Adds a run whose members are above all others, in O(1). After a few single members, the last run has the stride of
    /// the new one and takes all remaining members.
    fn push_run(&mut self, run: Run) -> Pushed {
        let mut rest = Some(run);
        while let Some(part) = rest {
            if let Some(tail) = self.runs.last_mut()
                && !tail.is_single()
                && tail.stride == part.stride
                && part.start - tail.last == part.stride
            {
                tail.last = part.last;
                break;
            }
            self.push(part.start);
            rest = part.after(part.start);
        }
        // The last run ends with the last two members of the new one, unless one of both has a single member. What is added
        // next depends on nothing else.
        match self.runs.last() {
            Some(tail) if !run.is_single() && !tail.is_single() => Pushed::AsItWas,
            _ => Pushed::Otherwise,
        }
    }
}

const fn split_some((head, rest): (Run, Run)) -> (Run, Option<Run>) {
    (head, Some(rest))
}

impl FromIterator<Rank> for RankSet {
    fn from_iter<I: IntoIterator<Item = Rank>>(iter: I) -> Self {
        let mut set = Self::new();
        set.extend(iter);
        set
    }
}

impl Extend<Rank> for RankSet {
    fn extend<I: IntoIterator<Item = Rank>>(&mut self, iter: I) {
        let mut unordered = Vec::new();
        for rank in iter {
            if self.last().is_none_or(|last| last < rank) {
                self.push(rank.0);
            } else {
                unordered.push(rank.0);
            }
        }
        if !unordered.is_empty() {
            unordered.sort_unstable();
            unordered.dedup();
            let mut other = Self::new();
            for member in unordered {
                other.push(member);
            }
            *self = self.union(&other);
        }
    }
}

impl fmt::Display for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, run) in self.runs.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{}", run.start)?;
            if !run.is_single() {
                write!(f, "-{}", run.last)?;
            }
            if run.stride > 1 {
                write!(f, "/{}", run.stride)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RankSet({self})")
    }
}

/// Why a text is not a list of numbers. Positions are byte offsets in the text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseSetError {
    #[error("the list has {length} bytes, more than {MAX_TEXT}")]
    TooLong { length: usize },
    #[error("expected a number at position {position}")]
    ExpectedNumber { position: usize },
    #[error("the number at position {position} is above {max}")]
    NumberTooLarge { position: usize, max: u32 },
    #[error("unexpected `{found}` at position {position}")]
    Unexpected { found: char, position: usize },
    #[error("the range at position {position} runs backwards: {first}-{last}")]
    Backwards {
        first: u32,
        last: u32,
        position: usize,
    },
    #[error("the stride at position {position} is zero")]
    ZeroStride { position: usize },
    #[error("the list has more than {max} members")]
    TooManyMembers { max: u64 },
}

/// One item of a list: `first`, `first-last` or `first-last/stride`.
#[derive(Clone, Copy)]
pub(crate) struct Item {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) stride: u32,
}

/// Parses `0-3,7,8-14/2` item by item. An empty or blank text is the empty list.
pub(crate) fn parse_items(
    text: &str,
    max: u32,
    mut each: impl FnMut(Item),
) -> Result<(), ParseSetError> {
    if text.len() > MAX_TEXT {
        return Err(ParseSetError::TooLong { length: text.len() });
    }
    let trimmed = text.trim_ascii_end();
    let mut at = text.len() - text.trim_ascii_start().len();
    if at >= trimmed.len() {
        return Ok(());
    }
    let number = |at: &mut usize| -> Result<u32, ParseSetError> {
        let position = *at;
        let digits = trimmed[position..]
            .bytes()
            .take_while(u8::is_ascii_digit)
            .count();
        if digits == 0 {
            return Err(ParseSetError::ExpectedNumber { position });
        }
        *at += digits;
        match trimmed[position..*at].parse::<u32>() {
            Ok(value) if value <= max => Ok(value),
            Ok(_) | Err(_) => Err(ParseSetError::NumberTooLarge { position, max }),
        }
    };
    loop {
        let position = at;
        let first = number(&mut at)?;
        let mut item = Item {
            first,
            last: first,
            stride: 1,
        };
        if trimmed[at..].starts_with('-') {
            at += 1;
            item.last = number(&mut at)?;
            if item.last < first {
                return Err(ParseSetError::Backwards {
                    first,
                    last: item.last,
                    position,
                });
            }
            if trimmed[at..].starts_with('/') {
                at += 1;
                let position = at;
                item.stride = number(&mut at)?;
                if item.stride == 0 {
                    return Err(ParseSetError::ZeroStride { position });
                }
            }
        }
        each(item);
        match trimmed[at..].chars().next() {
            None => return Ok(()),
            Some(',') => at += 1,
            Some(found) => {
                return Err(ParseSetError::Unexpected {
                    found,
                    position: at,
                });
            }
        }
    }
}

impl FromStr for RankSet {
    type Err = ParseSetError;

    /// Parses `0-511,513`, `0-1022/2` and the empty text. Order and repetition do not matter.
    fn from_str(text: &str) -> Result<Self, ParseSetError> {
        let mut runs = Vec::new();
        let mut members = 0_u64;
        // The highest number is excluded, so that an exclusive end can always be represented.
        parse_items(
            text,
            u32::MAX - 1,
            |Item {
                 first,
                 last,
                 stride,
             }| {
                let run = Run {
                    start: first,
                    last: first + (last - first) / stride * stride,
                    stride,
                };
                let run = if run.is_single() {
                    Run::single(first)
                } else {
                    run
                };
                members = members.saturating_add(run.len());
                runs.push(run);
            },
        )?;
        if members > MAX_MEMBERS {
            return Err(ParseSetError::TooManyMembers { max: MAX_MEMBERS });
        }
        let ascending = runs
            .windows(2)
            .all(|pair| matches!(pair, [a, b] if a.last < b.start));
        let mut set = Self::new();
        if ascending {
            for run in runs {
                set.push_run(run);
            }
        } else {
            // Pairwise merging keeps a long unordered list at O(n log n) instead of O(n^2).
            let mut sets = runs
                .into_iter()
                .map(|run| {
                    let mut one = Self::new();
                    one.push_run(run);
                    one
                })
                .collect::<Vec<_>>();
            while sets.len() > 1 {
                sets = sets
                    .chunks(2)
                    .map(|pair| pair.iter().fold(Self::new(), |a, b| a.union(b)))
                    .collect();
            }
            set = sets.pop().unwrap_or_default();
        }
        Ok(set)
    }
}

/// An encoded run: distance from the end of the previous run, number of members minus one, stride.
type WireRun = (u32, u32, u32);

impl Serialize for RankSet {
    /// Writes text in formats for people (JSON), and numbers relative to the previous run in others (postcard).
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        let mut end = 0;
        let runs = self.runs.iter().map(|run| {
            let wire: WireRun = (
                run.start - end,
                (run.last - run.start) / run.stride,
                run.stride,
            );
            end = run.last;
            wire
        });
        serializer.collect_seq(runs.collect::<Vec<_>>())
    }
}

impl<'de> Deserialize<'de> for RankSet {
    /// Validates what was received: ascending, at most [`MAX_MEMBERS`] members. Converts it to the canonical runs.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return String::deserialize(deserializer)?
                .parse()
                .map_err(de::Error::custom);
        }
        let mut set = Self::new();
        let mut end = 0_u32;
        let mut members = 0_u64;
        for (index, (gap, more, stride)) in Vec::<WireRun>::deserialize(deserializer)?
            .into_iter()
            .enumerate()
        {
            if stride == 0 || (index > 0 && gap == 0) {
                return Err(de::Error::custom("the runs of a rank set must ascend"));
            }
            let run =
                end.checked_add(gap)
                    .zip(more.checked_mul(stride))
                    .and_then(|(start, length)| {
                        let last = start.checked_add(length).filter(|last| *last < u32::MAX)?;
                        Some(if length == 0 {
                            Run::single(start)
                        } else {
                            Run {
                                start,
                                last,
                                stride,
                            }
                        })
                    });
            let Some(run) = run else {
                return Err(de::Error::custom(
                    "a rank set reaches beyond the highest rank",
                ));
            };
            members += run.len();
            if members > MAX_MEMBERS {
                return Err(de::Error::custom("a rank set has too many members"));
            }
            set.push_run(run);
            end = run.last;
        }
        Ok(set)
    }
}
