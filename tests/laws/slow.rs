//! Attention again, slow and obvious: f64 and plain loops, one batch item, head and query at a time.

use candle_core::DType;
use mha_trace::config::{Config, EmptyRows};
use mha_trace::source::dropout_scale;
use mha_trace::{Run, Trace};
use proptest::prelude::*;

use super::common::values;
use super::strategy::cases;

struct Slow<'a> {
    config: &'a Config,
    trace: &'a Trace,
}

impl Slow<'_> {
    fn given(&self, name: &str) -> Option<Vec<f64>> {
        self.trace.step(name).map(|step| values(&step.value))
    }

    /// The element of a mask at (item, head, query, key), whatever axes it has.
    fn masked(&self, name: &str, cell: [usize; 4]) -> Option<f64> {
        let step = self.trace.step(name)?;
        let shape = step.axes.shape();
        let skipped = cell.len() - shape.len();
        let index = shape
            .iter()
            .zip(&cell[skipped..])
            .fold(0, |index, (size, at)| index * size + at % size);
        self.given(name).map(|values| values[index])
    }

    /// `rows` (token, in) times the weight of a projection, plus its bias.
    fn project(&self, rows: &[Vec<f64>], name: &str) -> Vec<Vec<f64>> {
        let weight = self.given(&format!("w_{name}")).expect("every run has its weights");
        let bias = self.given(&format!("b_{name}"));
        let feature = |row: &Vec<f64>, out: usize| {
            let mut sum = bias.as_ref().map_or(0.0, |bias| bias[out]);
            for (at, x) in row.iter().enumerate() {
                sum += x * weight[out * row.len() + at];
            }
            sum
        };
        rows.iter()
            .map(|row| (0..self.config.d_model).map(|out| feature(row, out)).collect())
            .collect()
    }

    fn weights(&self, scores: &mut [f64], [item, head, query]: [usize; 3]) -> Vec<f64> {
        for (key, score) in scores.iter_mut().enumerate() {
            *score += self.masked("attn_bias", [item, head, query, key]).unwrap_or(0.0);
            if self.masked("mask", [item, head, query, key]) == Some(1.0) {
                *score = self.config.mask_fill.0;
            }
        }
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if largest == f64::NEG_INFINITY {
            let value = if self.config.empty_rows == EmptyRows::Zero { 0.0 } else { f64::NAN };
            return vec![value; scores.len()];
        }
        let sum: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
        scores.iter().map(|score| (score - largest).exp() / sum).collect()
    }

    fn output(&self) -> Vec<f64> {
        let &Config { batch, seq_len, d_in, heads, .. } = self.config;
        let head_dim = self.config.head_dim;
        let x = self.given("x").expect("every run has x");
        let mut output = Vec::new();
        for item in 0..batch {
            let row = |token| x[(item * seq_len + token) * d_in..][..d_in].to_vec();
            let rows: Vec<Vec<f64>> = (0..seq_len).map(row).collect();
            let [q, k, v] = ["q", "k", "v"].map(|name| self.project(&rows, name));
            let mut concat = vec![vec![0.0; self.config.d_model]; seq_len];
            for head in 0..heads {
                let features = head * head_dim..(head + 1) * head_dim;
                for query in 0..seq_len {
                    let dot =
                        |key: usize| features.clone().map(|f| q[query][f] * k[key][f]).sum::<f64>();
                    #[allow(clippy::cast_precision_loss, reason = "a handful of features")]
                    let root = (head_dim as f64).sqrt();
                    let scaled = |key| self.config.scale.map_or(dot(key) / root, |s| dot(key) * s);
                    let capped = |score: f64| {
                        self.config.softcap.map_or(score, |cap| cap * (score / cap).tanh())
                    };
                    let mut scores: Vec<f64> =
                        (0..seq_len).map(|key| capped(scaled(key))).collect();
                    let weights = self.weights(&mut scores, [item, head, query]);
                    for (key, weight) in weights.into_iter().enumerate() {
                        let keep = self
                            .masked("dropout_keep", [item, head, query, key])
                            .map_or(1.0, |keep| {
                                keep * f64::from(dropout_scale(self.config.dropout))
                            });
                        for f in features.clone() {
                            concat[query][f] += weight * keep * v[key][f];
                        }
                    }
                }
            }
            output.extend(self.project(&concat, "o").into_iter().flatten());
        }
        output
    }
}

fn worst(run: &Run, trace: &Trace) -> f64 {
    let slow = Slow { config: run.config(), trace };
    let ours = values(&trace.step("output").expect("every run has an output").value);
    let pairs = ours.into_iter().zip(slow.output());
    let difference = |(ours, slow): (f64, f64)| match (ours.is_nan(), slow.is_nan()) {
        (true, true) => 0.0,
        (false, false) => (ours - slow).abs() / slow.abs().max(1.0),
        _ => f64::INFINITY,
    };
    pairs.map(difference).fold(0.0, f64::max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_slow_attention_agrees(case in cases()) {
        let run = case.run_with(Vec::new());
        let trace = run.trace().expect("the case runs");
        // Some hundred additions of numbers below 10³, rounded to 2⁻⁵³ or 2⁻²⁴ of their size, amplified by exp
        // by no more than the scores' size.
        let tolerance = match candle_core::DType::from(run.config().dtype) {
            DType::F64 => 1e-11,
            _ => 1e-3,
        };
        let worst = worst(&run, &trace);
        prop_assert!(worst <= tolerance, "{worst:e}");
    }
}
