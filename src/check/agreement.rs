//! Do two values of a step agree, but for rounding? Every comparison of the search asks this.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use candle_core::{DType, Tensor};

use super::cells::{cells, largest_of_rows, over_rows};
use super::compare::compare;
use super::noise::Noise;
use super::rerun::{exact, rounded, shake, size_of_terms, summed};
use super::thresholds::{
    ALLOWED, ALLOWED_ALONE, AS_LARGE, DIRECTION, LEAST_CELLS, NEARER, OF_LARGE_NOISE,
    SAME_ROUNDING, SHARED, TIES,
};
use super::tolerance::{Tolerance, Tolerances, size_of_loss};
use super::trend::{Trend, Trends};
use base::error::Result;
use program::{Name, Precision, Role, Step, Trace};

/// What a value that is compared with a recorded one claims to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// What the run should give.
    Expected,
    /// What a mistake gives. Noise that is larger than all that was recorded would excuse any, and excuses none.
    Mistake,
    /// What is computed in fewer bits: all but where the last of these falls.
    Rounded(Precision),
}

/// How far rounding alone takes each step of one run, and what that excuses.
#[derive(Clone)]
pub struct Agreement {
    /// The noise of each step, computed from what was recorded where that is all there.
    noise: HashMap<Name, Noise>,
    /// The noise of each step of the whole run, from its inputs on.
    of_run: HashMap<Name, Noise>,
    /// What the cells of a step of a run in 16 bits may be off by in common.
    trends: HashMap<Name, Trends>,
    /// The 16-bit type that was recorded.
    half: Option<Precision>,
    /// Whether NaN among recorded values stands for what was not recorded, which agrees with everything.
    has_gaps: bool,
    /// The largest number of the gradient of the output.
    loss: f64,
    /// What the user allows, if less than the types do.
    tolerances: Tolerances,
}

impl Agreement {
    /// Measures the noise of a run: the difference of every step's value from what it is in f64, when it is computed as it
    /// was recorded: in the type of the run, sums included, or with every value rounded to `half`. `recorded` has what was
    /// recorded, given tensors among it, in the type of the run; NaN in it stands for what was not recorded if it
    /// `has_gaps`.
    pub fn measured(
        trace: &Trace,
        recorded: &HashMap<Name, Tensor>,
        half: Option<DType>,
        has_gaps: bool,
        tolerances: &Tolerances,
    ) -> Result<Self> {
        let rounded = half.map_or_else(|| summed(trace), |half| rounded(trace, half))?;
        let exact = exact(trace)?;
        let wide = |read: &Step| match exact.get(&read.name) {
            Some(exact) => Ok(exact.clone()),
            None if read.value.dtype().is_float() => read.value.to_dtype(DType::F64),
            None => Ok(read.value.clone()),
        };
        let half = half.and_then(Precision::of_tensors);
        let (noise, of_run, trends) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (loss, tolerances) = (size_of_loss(trace)?, tolerances.clone());
        let mut this = Self { noise, of_run, trends, half, has_gaps, loss, tolerances };
        for step in trace.steps() {
            let (Some(exact), Some(rounded)) = (exact.get(&step.name), rounded.get(&step.name))
            else {
                continue;
            };
            let terms = || {
                let read = trace.read_by(step).into_iter().map(wide);
                let read = read.collect::<candle_core::Result<Vec<_>>>()?;
                size_of_terms(trace, step, &read.iter().collect::<Vec<_>>())
            };
            this.add(step, exact, rounded, Noise::of(step, exact, rounded, ALLOWED, terms)?)?;
        }
        this.of_run.clone_from(&this.noise);
        if let Some(half) = half {
            this.add_single_steps(trace, recorded, half)?;
        }
        Ok(this)
    }

    /// The noise of steps in 16 bits that are computed from recorded values, which may have been rounded when they were
    /// recorded.
    fn add_single_steps(
        &mut self,
        trace: &Trace,
        recorded: &HashMap<Name, Tensor>,
        half: Precision,
    ) -> Result<()> {
        for step in trace.steps().iter().filter(|step| step.is_computed()) {
            let inputs = trace.read_by(step).into_iter();
            let inputs = inputs.map(|input| Some((input.name, recorded.get(&input.name)?)));
            let Some(inputs) = inputs.collect::<Option<Vec<_>>>() else { continue };
            let (mut exact, mut shaken) = (Vec::new(), Vec::new());
            for (name, value) in inputs {
                let is_float = value.dtype().is_float();
                let wide = if is_float { value.to_dtype(DType::F64)? } else { value.clone() };
                let is_setting = matches!(name.role(), Role::Setting | Role::Random);
                let is_rounded = is_float && !is_setting;
                shaken.push(if is_rounded {
                    shake(&wide, &cells(&wide)?, half.spacing() / 2.0)?
                } else {
                    wide.clone()
                });
                exact.push(wide);
            }
            let [inputs, shaken]: [Vec<&Tensor>; 2] =
                [exact.iter().collect(), shaken.iter().collect()];
            let (exact, rounded) = (step.op.eval(&inputs)?, half.round(&step.op.eval(&shaken)?)?);
            let terms = || size_of_terms(trace, step, &inputs);
            let noise = Noise::of(step, &exact, &rounded, ALLOWED_ALONE, terms)?;
            self.add(step, &exact, &rounded, noise)?;
        }
        Ok(())
    }

    /// Adds the noise of a step that is `rounded` where it would be `exact`.
    fn add(&mut self, step: &Step, exact: &Tensor, rounded: &Tensor, noise: Noise) -> Result<()> {
        let adds_up = noise.allowed > ALLOWED_ALONE;
        // All gradients of a row share its delta, and what rounding takes that off by.
        let is_shared = adds_up && step.name.is_gradient();
        if let Some(half) = self.half.filter(|_| !is_shared) {
            // Code rounds constants too, such as the scale of the scores, by half of the spacing at most.
            let factor = if adds_up { DIRECTION * noise.ratio } else { half.spacing() / 2.0 };
            let is_masked = |value| noise.is_masked(value);
            let trends = Trends::of(&step.axes, exact, rounded, factor, adds_up, is_masked)?;
            self.trends.insert(step.name, trends);
        }
        self.noise.insert(step.name, noise);
        Ok(())
    }

    /// The largest number of the gradient of the output, which the tolerance of gradients goes with.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// The 16-bit type that was recorded, if one was.
    pub fn half(&self) -> Option<Precision> {
        self.half
    }

    /// A value, with `expected` where nothing was `recorded` of a step.
    pub fn over_gaps(
        &self,
        recorded: &Tensor,
        value: &Tensor,
        expected: &Tensor,
    ) -> Result<Tensor> {
        if !self.has_gaps || !recorded.dtype().is_float() {
            return Ok(value.clone());
        }
        let is_gap = recorded.ne(recorded)?;
        Ok(is_gap.where_cond(&expected.to_dtype(value.dtype())?, value)?)
    }

    /// Whether a recorded value of a step is this one, but for rounding.
    pub fn holds(
        &self,
        step: Name,
        recorded: &Tensor,
        value: &Tensor,
        claim: Claim,
    ) -> Result<bool> {
        if recorded.dims() != value.dims() {
            return Ok(false);
        }
        let of_large_noise = if claim == Claim::Expected { OF_LARGE_NOISE } else { 0.0 };
        match claim {
            Claim::Rounded(precision) if precision != Precision::Tf32 => {
                Ok(self.holds_within(step, recorded, value, of_large_noise)?
                    || are_one_bit_apart(recorded, value, precision)?)
            }
            _ => self.holds_within(step, recorded, value, of_large_noise),
        }
    }

    fn holds_within(
        &self,
        step: Name,
        recorded: &Tensor,
        value: &Tensor,
        of_large_noise: f64,
    ) -> Result<bool> {
        let by_type = self.by_type(step, recorded, value)?;
        let noise = self.noise.get(&step).copied().unwrap_or_default();
        let allowed = noise.allowed(recorded, of_large_noise)?;
        let has_disagreed = AtomicBool::new(false);
        let rows = |(is_within, trend): &mut (bool, Trend), recorded: &[f64], value: &[f64]| {
            // One row that is off decides.
            if has_disagreed.load(Ordering::Relaxed) {
                return;
            }
            let within = |tolerance: Tolerance| {
                recorded.iter().zip(value).all(|(recorded, value)| {
                    tolerance.excess(*recorded, *value) <= 1.0
                        || (self.has_gaps && recorded.is_nan())
                })
            };
            trend.add(recorded, value, |value| noise.is_masked(value));
            if within(by_type) {
                return;
            }
            *is_within = false;
            let rounding = Tolerance { rtol: 0.0, atol: allowed * noise.size(value) };
            if !within(by_type.looser(rounding)) {
                has_disagreed.store(true, Ordering::Relaxed);
            }
        };
        let all = (true, Trend::default());
        let (is_within, trend) = over_rows(recorded, value, all, rows, |all, more| {
            all.0 &= more.0;
            all.1.join(&more.1);
        })?;
        let agrees = !has_disagreed.into_inner();
        let shared = if self.half.is_none() && step.is_gradient() { SHARED } else { 1.0 };
        let has_no_direction = || trend.has_no_direction(shared * noise.ratio, noise.terms);
        let is_size_alone = agrees && (is_within || has_no_direction());
        match self.trends.get(&step).filter(|_| is_size_alone) {
            Some(trends) => trends.allow(recorded, value, |value| noise.is_masked(value)),
            None => Ok(is_size_alone),
        }
    }

    /// The largest difference of two values of a step, in multiples of the noise of the run; nothing where it has none.
    pub fn multiple(&self, step: Name, recorded: &Tensor, value: &Tensor) -> Result<Option<f64>> {
        let Some(noise) = self.of_run.get(&step).filter(|noise| noise.ratio > 0.0) else {
            return Ok(None);
        };
        largest_of_rows(recorded, value, |recorded, value| {
            noise.difference(recorded, value) / (noise.ratio * noise.size(value))
        })
        .map(Some)
    }

    /// What numbers may differ by for their type, or by what the user allows where that is less. What the user allows beyond
    /// says what differs, not what explains it.
    fn by_type(&self, step: Name, recorded: &Tensor, value: &Tensor) -> Result<Tolerance> {
        let tolerance = Tolerance::of(recorded.dtype());
        let half = self.half.and_then(Precision::dtype);
        let by_type = half.map_or(tolerance, |half| tolerance.looser(Tolerance::of(half)));
        let by_type = by_type.sized(Some(step), value)?.at_loss(Some(step), self.loss);
        let stated = self.tolerances.of(step.as_str(), by_type);
        let (rtol, atol) = (by_type.rtol.min(stated.rtol), by_type.atol.min(stated.atol));
        Ok(Tolerance { rtol, atol })
    }
}

/// Whether both are numbers of a narrow type and the same, but for sums in another order that fall on the other side of a tie.
fn are_one_bit_apart(left: &Tensor, right: &Tensor, precision: Precision) -> Result<bool> {
    if !precision.holds_all(left)? || !precision.holds_all(right)? {
        return Ok(false);
    }
    let one_apart = compare(left, right, Tolerance { rtol: precision.spacing(), atol: 1e-5 })?;
    let ties = compare(left, right, Tolerance { rtol: 1e-6, atol: 1e-7 })?;
    Ok(one_apart.mismatched == 0 && ties.mismatched * TIES <= ties.count)
}

/// Whether `value` comes much nearer to what was `recorded` than the `expected` one does, where the two differ.
pub fn is_nearer(recorded: &Tensor, value: &Tensor, expected: &Tensor) -> Result<bool> {
    // NaN or an infinity where the expected one has a number is as far as can be.
    let is_apart = |left: f64, right: f64| {
        (left - right).abs().is_infinite() || left.is_nan() != right.is_nan()
    };
    let finite = |apart: f64| if apart.is_finite() { apart.abs() } else { 0.0 };
    let (recorded, value, expected) = (cells(recorded)?, cells(value)?, cells(expected)?);
    let (mut by_value, mut by_expected, mut explains_most) = (0.0, 0.0, false);
    for ((recorded, value), expected) in recorded.into_iter().zip(value).zip(expected) {
        if value.total_cmp(&expected).is_ne() {
            by_value += finite(recorded - value);
            by_expected += finite(recorded - expected);
            explains_most |= is_apart(recorded, expected) && !is_apart(recorded, value);
        }
    }
    Ok(explains_most || by_value <= NEARER * by_expected)
}

/// Whether what `recorded` is off by is what `rounded` is off by, cell by cell. A factor that all numbers share is looked at
/// apart: rounding that cuts has one too, and so has many a mistake.
pub fn is_same_rounding(recorded: &Tensor, expected: &Tensor, rounded: &Tensor) -> Result<bool> {
    let number = |number: f64| if number.is_finite() { number } else { 0.0 };
    let off = |other: &Tensor| -> Result<Vec<f64>> {
        let apart = other.to_dtype(expected.dtype())?.sub(expected)?;
        Ok(cells(&apart)?.into_iter().map(number).collect())
    };
    let dot = |left: &[f64], right: &[f64]| -> f64 {
        left.iter().zip(right).map(|(left, right)| left * right).sum()
    };
    let expected: Vec<f64> = {
        let cells = cells(expected)?;
        cells.into_iter().map(number).collect()
    };
    let (recorded, rounded) = (off(recorded)?, off(rounded)?);
    if rounded.iter().filter(|off| **off != 0.0).count() < LEAST_CELLS {
        return Ok(false);
    }
    let square = dot(&expected, &expected);
    let [factor_recorded, factor_rounded] =
        [&recorded, &rounded].map(|off| dot(off, &expected) / square);
    let rest = |off: &[f64], factor: f64| -> Vec<f64> {
        off.iter().zip(&expected).map(|(off, expected)| off - factor * expected).collect()
    };
    let (of_recorded, of_rounded) =
        (rest(&recorded, factor_recorded), rest(&rounded, factor_rounded));
    let [size, size_rounded] = [&of_recorded, &of_rounded].map(|rest| dot(rest, rest).sqrt());
    let cosine = dot(&of_recorded, &of_rounded) / (size * size_rounded);
    let is_as_large = size * AS_LARGE >= size_rounded && size <= AS_LARGE * size_rounded;
    let is_factor = (factor_recorded - factor_rounded).abs() <= size_rounded / square.sqrt();
    Ok(cosine > SAME_ROUNDING && is_as_large && is_factor)
}
