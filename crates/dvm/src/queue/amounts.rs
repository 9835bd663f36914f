//! Amounts of resources: what a node has, and what a job needs.

use std::collections::BTreeMap;

/// Names of the counted resources of a machine, for example `gpu` and `memory`. Their order never changes, so that amounts can be
/// compared by position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(Vec<String>);

impl Resources {
    /// Returns amounts with this many slots and these counted resources. A name that is new is added: the caller bounds their number.
    pub fn amounts(&mut self, slots: u32, counted: &BTreeMap<String, u64>) -> Amounts {
        let mut amounts = Amounts {
            slots,
            counted: Vec::new(),
        };
        for (name, count) in counted {
            let known = self.0.iter().position(|one| one == name);
            let index = known.unwrap_or_else(|| {
                self.0.push(name.clone());
                self.0.len() - 1
            });
            if amounts.counted.len() <= index {
                amounts.counted.resize(index + 1, 0);
            }
            amounts.counted[index] = *count;
        }
        amounts.trim();
        amounts
    }

    /// Returns the names and counts of the counted resources in `amounts` that are not zero.
    pub fn named(&self, amounts: &Amounts) -> BTreeMap<String, u64> {
        let named = self.0.iter().zip(&amounts.counted);
        let named = named.filter(|(_, count)| **count > 0);
        named.map(|(name, count)| (name.clone(), *count)).collect()
    }
}

/// Slots and counted resources. Two of them compare by position in their [`Resources`].
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amounts {
    pub slots: u32,
    /// Has no zeros at its end, so that equal amounts are equal values.
    counted: Vec<u64>,
}

impl Amounts {
    /// Returns this many slots, and nothing else.
    #[must_use]
    pub const fn slots(slots: u32) -> Self {
        Self {
            slots,
            counted: Vec::new(),
        }
    }

    /// Returns true if there is nothing.
    pub(crate) fn is_nothing(&self) -> bool {
        self.slots == 0 && self.counted.is_empty()
    }

    /// Returns true if there is something beside slots.
    pub(super) const fn is_counted(&self) -> bool {
        !self.counted.is_empty()
    }

    fn counted(&self, index: usize) -> u64 {
        self.counted.get(index).copied().unwrap_or(0)
    }

    fn trim(&mut self) {
        while self.counted.last() == Some(&0) {
            self.counted.pop();
        }
    }

    /// Returns how many times `unit` is in these amounts; `u32::MAX` if `unit` is nothing.
    pub(super) fn units_of(&self, unit: &Self) -> u32 {
        let of_slots = self.slots.checked_div(unit.slots).unwrap_or(u32::MAX);
        let counted = unit.counted.iter().enumerate();
        let of_counted = counted.filter_map(|(index, need)| self.counted(index).checked_div(*need));
        let of_counted = of_counted.map(|units| u32::try_from(units).unwrap_or(u32::MAX));
        of_counted.fold(of_slots, u32::min)
    }

    /// Returns how many times `unit` is in these amounts, if `once` is taken from them first; 0 if they do not cover `once`.
    pub(super) fn units_beside(&self, once: &Self, unit: &Self) -> u32 {
        if once.is_nothing() {
            return self.units_of(unit);
        }
        if !self.covers(once) {
            return 0;
        }
        let mut rest = self.clone();
        rest.take(once);
        rest.units_of(unit)
    }

    /// Returns true if `other` is in these amounts.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let mut counted = other.counted.iter().enumerate();
        self.slots >= other.slots && counted.all(|(index, need)| self.counted(index) >= *need)
    }

    /// Returns `units` times these amounts.
    pub(super) fn times(&self, units: u32) -> Self {
        let counted = self.counted.iter();
        Self {
            slots: self.slots.saturating_mul(units),
            counted: counted
                .map(|count| count.saturating_mul(u64::from(units)))
                .collect(),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.slots = self.slots.saturating_add(other.slots);
        if self.counted.len() < other.counted.len() {
            self.counted.resize(other.counted.len(), 0);
        }
        for (count, more) in self.counted.iter_mut().zip(&other.counted) {
            *count = count.saturating_add(*more);
        }
        self.trim();
    }

    /// Takes `other` out of these amounts.
    ///
    /// # Panics
    ///
    /// Panics if they do not cover `other`: then something was given twice.
    pub(super) fn take(&mut self, other: &Self) {
        assert!(self.covers(other), "{other:?} is taken from {self:?}");
        self.slots -= other.slots;
        for (count, less) in self.counted.iter_mut().zip(&other.counted) {
            *count -= less;
        }
        self.trim();
    }

    /// Returns the smaller one of each amount.
    pub(super) fn at_most(&self, other: &Self) -> Self {
        let counted = self.counted.iter().zip(&other.counted);
        let mut least = Self {
            slots: self.slots.min(other.slots),
            counted: counted.map(|(one, two)| *one.min(two)).collect(),
        };
        least.trim();
        least
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn amounts() -> impl Strategy<Value = Amounts> {
        (0..6_u32, vec(0..6_u64, 0..3)).prop_map(|(slots, counted)| {
            let mut amounts = Amounts { slots, counted };
            amounts.trim();
            amounts
        })
    }

    #[test]
    fn names_keep_their_positions() {
        let mut resources = Resources::default();
        let two = BTreeMap::from([("gpu".to_owned(), 2), ("memory".to_owned(), 0)]);
        let node = resources.amounts(8, &two);
        let one = BTreeMap::from([("memory".to_owned(), 5)]);
        let other = resources.amounts(1, &one);
        assert_eq!(resources.named(&other), one);
        assert_eq!(
            resources.named(&node),
            BTreeMap::from([("gpu".to_owned(), 2)])
        );
        assert!(!node.covers(&other));
    }

    proptest! {
        #[test]
        fn units_are_as_many_as_fit(have in amounts(), unit in amounts(), units in 0..8_u32) {
            let fits = have.covers(&unit.times(units));
            prop_assert_eq!(fits, units <= have.units_of(&unit));
        }

        #[test]
        fn what_was_taken_can_be_given_back(have in amounts(), part in amounts()) {
            prop_assume!(have.covers(&part));
            let mut rest = have.clone();
            rest.take(&part);
            prop_assert!(have.covers(&rest));
            rest.add(&part);
            rest.trim();
            prop_assert_eq!(rest, have);
        }

        #[test]
        fn the_least_is_in_both(one in amounts(), two in amounts(), other in amounts()) {
            let least = one.at_most(&two);
            prop_assert_eq!(least.covers(&other), one.covers(&other) && two.covers(&other));
        }
    }
}
