//! Dice that fall the same way each time.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `0..bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap();
        usize::try_from((self.roll() >> 1) % bound).unwrap()
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Some of them, in their order; at least one if there is one.
    pub(crate) fn some<T: Clone>(&mut self, from: &[T]) -> Vec<T> {
        if from.is_empty() {
            return Vec::new();
        }
        let sure = self.below(from.len());
        let chosen = from.iter().enumerate();
        let chosen = chosen.filter(|(i, _)| *i == sure || self.one_in(2));
        chosen.map(|(_, item)| item.clone()).collect()
    }
}
