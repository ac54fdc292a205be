//! Linear position biases ("Train Short, Test Long", Press et al., 2021).

use super::position::{Shift, shift};
use super::precision::Precision;
use crate::axis::{signed, whole};

choices! {
    /// How linear position biases are computed. Under a causal mask the weights are alike, but for rounding: those of a query
    /// differ by one number.
    AlibiForm {
        /// −slope · |query − key|, as in the paper.
        #[default]
        Paper = "paper",
        /// slope · key, as in BLOOM.
        Bloom = "bloom",
        /// slope · key, each and the product rounded to bf16, scaled with the scores, as in Falcon.
        Falcon = "falcon",
        /// The same twice, as Falcon's eager code has it: once with the scores, and once more with the mask.
        FalconEager = "falcon-eager",
        /// slope · (key − last key), as in MPT.
        Mpt = "mpt",
    }
}

impl AlibiForm {
    /// Which distance it goes by.
    pub fn distance(self) -> Distance {
        match self {
            Self::Paper => Distance::Absolute,
            Self::Bloom | Self::Falcon | Self::FalconEager => Distance::FromFirst,
            Self::Mpt => Distance::FromLast,
        }
    }
}

/// −slope · distance, for every head, query and key.
#[derive(Debug, Clone, PartialEq)]
pub struct Distances {
    /// Which distance that is.
    pub sort: Distance,
    /// The position of the first query row.
    pub first: usize,
    /// Query rows.
    pub queries: usize,
    /// Keys.
    pub keys: usize,
    /// Whether slope, distance and their product are rounded to bf16.
    pub is_narrow: bool,
    /// What positions are rounded to, by faulty code.
    pub positions: Option<Precision>,
    /// What the products are multiplied by.
    pub factor: f64,
    /// In a packed row, whose documents may have more keys than queries: from which row on the keys are so much further on.
    pub shifts: Vec<Shift>,
}

impl Distances {
    /// The distances as they are, of all keys.
    pub fn new(sort: Distance, first: usize, queries: usize, keys: usize) -> Self {
        let (is_narrow, positions, factor, shifts) = (false, None, 1.0, Vec::new());
        Self { sort, first, queries, keys, is_narrow, positions, factor, shifts }
    }

    /// The distance of a query row and a key.
    pub(super) fn distance(&self, query: usize, key: usize) -> f64 {
        let place = signed(self.first.saturating_add(query))
            .saturating_add(shift(&self.shifts, signed(query)));
        let held = |place: usize| {
            let rounded = self.positions.and_then(|own| whole(own.of(place as f64)));
            rounded.unwrap_or(place)
        };
        self.sort.of(held(usize::try_from(place).unwrap_or(0)), held(key), self.keys)
    }

    /// The bias of a query row and a key.
    pub(super) fn of(&self, slope: f64, query: usize, key: usize) -> f64 {
        let distance = self.distance(query, key);
        if self.is_narrow {
            let narrow = |number: f64| Precision::Bf16.of(number);
            return -narrow(narrow(slope) * narrow(distance)) * self.factor;
        }
        match self.sort {
            // 0 of the last key has no sign there.
            Distance::FromLast => 0.0 - slope * distance * self.factor,
            _ => -slope * distance * self.factor,
        }
    }
}

/// Which distance of a query and a key a position bias grows with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Distance {
    /// |query − key|.
    #[default]
    Absolute,
    /// query − key, below 0 for keys to come.
    Signed,
    /// last key − key, the same for every query.
    FromLast,
    /// −key: later keys are favoured, the same for every query.
    FromFirst,
}

impl Distance {
    /// The distance of the two among so many keys.
    pub(super) fn of(self, query: usize, key: usize, keys: usize) -> f64 {
        match self {
            Self::Absolute => query.abs_diff(key) as f64,
            Self::Signed => query as f64 - key as f64,
            Self::FromLast => keys as f64 - 1.0 - key as f64,
            Self::FromFirst => -(key as f64),
        }
    }
}

/// The slopes of so many heads: 2^(−8/n), 2^(−16/n), … for n heads, where n is a power of two; otherwise those of the
/// next lower power, followed by every other one of the next higher, as the paper's code has it ("Train Short, Test
/// Long", Press et al., 2021, section 3).
pub fn alibi_slopes(heads: usize) -> Vec<f64> {
    let of_power = |n: usize| (1..=n).map(move |at| (-8.0 * at as f64 / n as f64).exp2());
    if heads.is_power_of_two() {
        return of_power(heads).collect();
    }
    let lower = heads.next_power_of_two() / 2;
    of_power(lower).chain(of_power(2 * lower).step_by(2)).take(heads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Press et al., 2021: eight heads have 1/2, 1/4 … 1/256; twelve have four of sixteen's after those.
    #[test]
    fn slopes_are_those_of_the_paper() {
        let halves: Vec<f64> = (1..=8).map(|at| 0.5_f64.powi(at)).collect();
        assert_eq!(alibi_slopes(8), halves);
        let sixteen = alibi_slopes(16);
        let some_of_sixteen = [sixteen[0], sixteen[2], sixteen[4], sixteen[6]];
        assert_eq!(alibi_slopes(12), [halves.as_slice(), &some_of_sixteen].concat());
        assert_eq!(sixteen[..1], [0.5_f64.sqrt()]);
        assert_eq!(alibi_slopes(1), [0.5_f64.powi(8)]);
        assert_eq!(alibi_slopes(3).len(), 3);
    }

    #[test]
    #[allow(clippy::float_cmp, reason = "small whole numbers")]
    fn distances_are_counted_as_their_names_say() {
        let of =
            |distance: Distance| [(3, 1), (3, 4)].map(|(query, key)| distance.of(query, key, 6));
        assert_eq!(of(Distance::Absolute), [2.0, 1.0]);
        assert_eq!(of(Distance::Signed), [2.0, -1.0]);
        assert_eq!(of(Distance::FromLast), [4.0, 1.0]);
        assert_eq!(of(Distance::FromFirst), [-1.0, -4.0]);
    }
}
