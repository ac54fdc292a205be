//! What do kernels make of weights that they round to few bits before they multiply the values by them?

use super::{Grammar, after};
use crate::candidate::cost;
use program::{Change, Kind, Name, Precision, RoundedWeights, Slip};

/// What exponentials, 1 at most, are multiplied by before they are rounded to a type.
const FACTORS: [(Option<Precision>, &[f64]); 3] = [
    (Some(Precision::E4m3), &[448.0, 256.0, 240.0, 1.0]),
    (Some(Precision::E5m2), &[57_344.0, 1.0]),
    (None, &[127.0, 255.0, 112.0]),
];

impl Grammar<'_> {
    /// Weights that sum to 1 and are rounded to whole numbers then: small ones are lost.
    fn rounded_behind_the_sum(&mut self) {
        let Some(weights) = self.right.step(Name::Weights).map(|step| step.name) else { return };
        for factor in [127.0, 255.0] {
            let own = RoundedWeights {
                precision: None,
                factor,
                is_cut: false,
                is_of_sum: true,
                is_divided: true,
            };
            let told = tr!(
                "the weights are divided by their sum before they are rounded to int8, as weight · {factor}, not behind it: small ones are lost",
                factor
            );
            let change = after(Slip::RoundedWeights(own), &[]);
            self.add(Kind::Replaced, cost::RARE, weights, change, told);
        }
    }

    /// Weights beside values in few bits, which are rounded like them.
    pub(super) fn rounded_weights(&mut self) {
        self.rounded_behind_the_sum();
        let Some(output) = self.right.step(Name::HeadOutputs) else { return };
        let Some(slot) = self.read(output).iter().position(|read| *read == Name::Weights) else {
            return;
        };
        let at = output.name;
        for factor in [127.0, 255.0] {
            let (precision, is_of_sum, is_divided) = (None, false, true);
            let cut = RoundedWeights { precision, factor, is_cut: true, is_of_sum, is_divided };
            let told = tr!(
                "the weights, as exp(s − largest) · {factor}, are cut to whole numbers, not rounded, before they multiply the values: all are too small",
                factor
            );
            let change = Change::before(slot, Slip::RoundedWeights(cut));
            self.add(Kind::Replaced, cost::RARE, at, change, told);
        }
        let is_in_few_bits = |name: &Name| self.right.step(*name).is_some();
        if ![Name::KDequantized, Name::VDequantized].iter().any(is_in_few_bits) {
            return;
        }
        for (precision, factors) in FACTORS {
            for factor in factors.iter().copied() {
                let right = RoundedWeights {
                    precision,
                    factor,
                    is_cut: false,
                    is_of_sum: false,
                    is_divided: true,
                };
                let name = right.name();
                let told = tr!(
                    "the weights, as exp(s − largest) · {factor}, are rounded to {name} before they multiply the values",
                    factor,
                    name
                );
                let change = Change::before(slot, Slip::RoundedWeights(right));
                self.add(Kind::Precision, cost::RARE, at, change, &told);
                if factor > 1.0 {
                    let wrong = RoundedWeights { is_divided: false, ..right };
                    let told =
                        tr!("{told}, and the result is not divided by {factor}", told, factor);
                    let change = Change::before(slot, Slip::RoundedWeights(wrong));
                    self.add(Kind::Omitted, cost::COMMON, at, change, told);
                }
            }
        }
    }
}
