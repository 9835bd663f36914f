//! Pseudorandom numbers that depend only on a seed.

use std::time::Duration;

/// The SplitMix64 generator: small, well distributed, and with the same sequence on every computer.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Creates a generator from a seed. The sequences of consecutive seeds are unrelated.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// Returns the next 64 bits.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `bound` - 1; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// Returns a number from `low` to `high`, inclusive; `low` if `high` is smaller.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Returns a length from `low` to `high`, inclusive; see [`Self::between`].
    pub(crate) fn length(&mut self, low: usize, high: usize) -> usize {
        usize::try_from(self.between(low as u64, high as u64)).unwrap_or(low)
    }

    /// Returns a 32-bit number from `low` to `high`, inclusive; see [`Self::between`].
    pub(crate) fn number(&mut self, low: u32, high: u32) -> u32 {
        u32::try_from(self.between(u64::from(low), u64::from(high))).unwrap_or(low)
    }

    /// Returns true with a probability of `percent` percent.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of the values; each is equally likely.
    pub(crate) fn pick<T: Copy, const N: usize>(&mut self, values: [T; N]) -> T {
        const { assert!(N > 0) };
        values[self.length(0, N - 1)]
    }

    /// Returns a duration from `low` to `high` microseconds, inclusive, in whole microseconds.
    pub(crate) fn micros(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.between(low, high))
    }

    /// Returns a duration from `low` to `high` milliseconds, inclusive, in whole microseconds.
    pub(crate) fn millis(&mut self, low: u64, high: u64) -> Duration {
        self.micros(low * 1_000, high * 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_its_stream_and_bounds_hold() {
        let mut rng = Rng::new(7);
        let first = rng.next();
        assert_eq!(Rng::new(7).next(), first);
        assert_ne!(Rng::new(8).next(), first);
        let drawn: Vec<u64> = (0..1_000).map(|_| rng.between(3, 9)).collect();
        assert!((3..=9).all(|value| drawn.contains(&value)));
        assert!(drawn.iter().all(|value| (3..=9).contains(value)));
        assert_eq!(rng.below(0), 0);
    }
}
