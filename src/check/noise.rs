//! How far rounding alone takes each step of a run, and what that explains.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use candle_core::{DType, Tensor};

use super::compare::{compare, is_exact_in};
use super::fit::cells;
use super::rerun::{exact, rounded};
use super::tolerance::Tolerance;
use super::trend::{DIRECTION, Trend, Trends};
use base::error::Result;
use program::{Axis, Name, Precision, Role, Step, Trace, of_pairs};
use run::LOW;

/// What the noise of one run is multiplied by: another order of additions and other instructions give other noise of
/// the same size, and one run is a small sample of it. With it none of 1500 correct runs by PyTorch, in f64, f32, f16
/// and bf16, in reduced precision and with the products added in random order, is called different
/// (`benches/pytorch.py noise --runs 500`, with seeds 0, 5 and 7); of 500 others (seed 11) two are, in which ten numbers
/// or fewer are too few to tell bf16 products by.
pub const ALLOWED: f64 = 16.0;

/// Right runs by PyTorch are off by no more than that in multiples of their noise: of 247 in bf16 and f16, of which all steps,
/// some or the output alone were recorded, the worst is off by 2.6 times.
pub const USUAL: f64 = 3.0;

/// What the noise of a single step in 16 bits is multiplied by, if its inputs were recorded. Nothing adds up there but the
/// roundings within the step: a rotation in bf16 rounds cosine, products and sum.
const ALLOWED_ALONE: f64 = 4.0;

/// What counts of noise that is larger than what was recorded, relative to the size of a row.
const OF_LARGE_NOISE: f64 = 0.02;

/// The noise of every step of one run.
#[derive(Clone)]
pub struct Noise {
    steps: HashMap<Name, StepNoise>,
    /// What the cells of a step of a run in 16 bits may be off by in common.
    trends: HashMap<Name, Trends>,
    /// The 16-bit type that was recorded.
    half: Option<Precision>,
    /// Whether NaN on the left stands for what was not recorded, which agrees with everything.
    gaps: bool,
}

/// The noise of a step, relative to the size of its rows, a row being what the last axis runs over. So the rounding of
/// one huge token does not excuse what the others differ by.
#[derive(Clone, Copy, Default)]
struct StepNoise {
    /// The largest difference of a row that rounding alone makes, divided by the row's size.
    ratio: f64,
    /// The size that a row is taken to have at least: that of the middle one. The noise of a small row can come from
    /// larger numbers that cancelled.
    least: f64,
    /// What the noise is multiplied by.
    allowed: f64,
    /// What masked cells hold, if it is a number. They say nothing of a row's size.
    fill: Option<f64>,
}

impl Noise {
    /// Measures it: the difference of every step's value from what it is in f64, when it is computed as it was
    /// recorded, in the type of the run or with every value rounded to `half`.
    ///
    /// # Errors
    /// If candle fails.
    pub fn of(trace: &Trace, half: Option<DType>) -> Result<Self> {
        let rounded = match half {
            Some(half) => rounded(trace, half)?,
            None => HashMap::new(),
        };
        // Without a type of its own, the run is rounded as it is.
        let exact = exact(trace)?;
        let half = half.and_then(Precision::of_tensors);
        let mut noise = Self { steps: HashMap::new(), trends: HashMap::new(), half, gaps: false };
        for step in trace.steps() {
            let Some(exact) = exact.get(&step.name) else { continue };
            let rounded = rounded.get(&step.name).unwrap_or(&step.value);
            noise.add(step, exact, rounded, true)?;
        }
        Ok(noise)
    }

    /// The noise of steps in a 16-bit type that are computed from `recorded` values, which may have been rounded when they
    /// were recorded; of steps whose inputs were not recorded the noise of the run.
    ///
    /// # Errors
    /// If candle fails.
    pub fn alone(&self, trace: &Trace, recorded: &HashMap<Name, Tensor>) -> Result<Self> {
        let Some(half) = self.half else { return Ok(self.clone()) };
        let mut noise = self.clone();
        for step in trace.steps().iter().filter(|step| step.is_computed()) {
            let read = trace.read_by(step);
            let inputs =
                read.iter().map(|read| recorded.get(&read.name).map(|value| (read.name, value)));
            let Some(inputs) = inputs.collect::<Option<Vec<_>>>() else { continue };
            let wide = |value: &Tensor| {
                if value.dtype().is_float() {
                    value.to_dtype(DType::F64)
                } else {
                    Ok(value.clone())
                }
            };
            let exact = inputs.iter().map(|(_, value)| wide(value));
            let exact: Vec<Tensor> = exact.collect::<candle_core::Result<_>>()?;
            let shaken = inputs.iter().zip(&exact).map(|((name, _), value)| {
                let is_setting = matches!(name.role(), Role::Setting | Role::Random);
                if is_setting || !value.dtype().is_float() {
                    return Ok(value.clone());
                }
                shaken(value, half.spacing() / 2.0)
            });
            let shaken: Vec<Tensor> = shaken.collect::<Result<_>>()?;
            let eval = |inputs: &[Tensor]| step.op.eval(&inputs.iter().collect::<Vec<_>>());
            let (exact, rounded) = (eval(&exact)?, half.round(&eval(&shaken)?)?);
            noise.add(step, &exact, &rounded, false)?;
        }
        Ok(noise)
    }

    /// Adds the noise of a step that is `rounded` where it would be `exact`, by roundings that `add_up` over many steps or
    /// are those of its own.
    fn add(&mut self, step: &Step, exact: &Tensor, rounded: &Tensor, add_up: bool) -> Result<()> {
        let allowed = if add_up { ALLOWED } else { ALLOWED_ALONE };
        let noise = StepNoise { allowed, ..StepNoise::of(step, exact, rounded)? };
        if let Some(half) = self.half {
            // Code rounds constants too, such as the scale of the scores, by half of the spacing at most.
            let factor = if add_up { DIRECTION * noise.ratio } else { half.spacing() / 2.0 };
            let is_masked = |value| noise.is_masked(value);
            let trends = Trends::of(&step.axes, exact, rounded, factor, add_up, is_masked)?;
            self.trends.insert(step.name, trends);
        }
        self.steps.insert(step.name, noise);
        Ok(())
    }

    /// The same where NaN on the left stands for what was not recorded.
    #[must_use]
    pub fn with_gaps(&self) -> Self {
        Self { gaps: true, ..self.clone() }
    }

    /// Whether two values of a step are the same but for rounding. Noise that is larger than all that was recorded would
    /// excuse anything, and excuses nothing.
    ///
    /// # Errors
    /// If candle fails.
    pub fn agree(&self, step: Name, left: &Tensor, right: &Tensor) -> Result<bool> {
        self.agree_within(step, left, right, 0.0)
    }

    /// Whether a recorded value is the right one but for rounding. Of noise that is larger than all that was recorded, a
    /// little counts: kernels keep scores in f32, and are off by less than a run that rounds scores of hundreds to 16 bits.
    ///
    /// # Errors
    /// If candle fails.
    pub fn is_right(&self, step: Name, recorded: &Tensor, right: &Tensor) -> Result<bool> {
        self.agree_within(step, recorded, right, OF_LARGE_NOISE)
    }

    fn agree_within(
        &self,
        step: Name,
        left: &Tensor,
        right: &Tensor,
        of_large: f64,
    ) -> Result<bool> {
        if left.dims() != right.dims() {
            return Ok(false);
        }
        let by_type = self.by_type(left);
        let noise = self.at(step);
        let allowed = noise.allowed(left, of_large)?;
        let has_disagreed = AtomicBool::new(false);
        let rows = |(is_within, trend): &mut (bool, Trend), left: &[f64], right: &[f64]| {
            // One row that is off decides.
            if has_disagreed.load(Ordering::Relaxed) {
                return;
            }
            let within = |tolerance: Tolerance| {
                left.iter().zip(right).all(|(left, right)| {
                    tolerance.excess(*left, *right) <= 1.0 || (self.gaps && left.is_nan())
                })
            };
            trend.add(left, right, |value| noise.is_masked(value));
            if within(by_type) {
                return;
            }
            *is_within = false;
            let rounding = Tolerance { rtol: 0.0, atol: allowed * noise.size(right) };
            if !within(by_type.looser(rounding)) {
                has_disagreed.store(true, Ordering::Relaxed);
            }
        };
        let all = (true, Trend::default());
        let (is_within, trend) = over_rows(left, right, all, rows, |all, more| {
            all.0 &= more.0;
            all.1.join(&more.1);
        })?;
        let agrees = !has_disagreed.into_inner();
        let is_size = agrees && (is_within || trend.has_no_direction(noise.ratio));
        match self.trends.get(&step).filter(|_| is_size) {
            Some(trends) => trends.allow(left, right, |value| noise.is_masked(value)),
            None => Ok(is_size),
        }
    }

    /// Whether a value was computed in a type of fewer bits as this one was: all but where its last bit falls.
    ///
    /// # Errors
    /// If candle fails.
    pub fn agree_in(
        &self,
        step: Name,
        left: &Tensor,
        right: &Tensor,
        precision: Precision,
    ) -> Result<bool> {
        if precision == Precision::Tf32 || self.agree(step, left, right)? {
            return self.agree(step, left, right);
        }
        if left.dims() != right.dims() {
            return Ok(false);
        }
        // Both must be numbers of that type; sums in another order can fall on the other side of a tie.
        let are_of_type = is_exact_in(left, precision)? && is_exact_in(right, precision)?;
        let one_apart = Tolerance { rtol: precision.spacing(), atol: 1e-5 };
        Ok(are_of_type && {
            let found = compare(left, right, one_apart)?;
            let ties = compare(left, right, Tolerance { rtol: 1e-6, atol: 1e-7 })?;
            // Ties are rare: most cells are the same to the bit.
            found.mismatched == 0 && ties.mismatched * 20 <= ties.count
        })
    }

    /// The largest difference of two values of a step, in multiples of its noise; nothing where it has none.
    ///
    /// # Errors
    /// If candle fails.
    pub fn multiple(&self, step: Name, left: &Tensor, right: &Tensor) -> Result<Option<f64>> {
        let noise = self.at(step);
        let most = largest_of_rows(left, right, |left, right| {
            // Where there is no noise a multiple of it says nothing.
            noise.difference(left, right) / (noise.ratio * noise.size(right))
        })?;
        Ok((noise.ratio > 0.0).then_some(most))
    }

    /// What numbers may differ by for their type. What the user allows says what differs, not what explains it.
    fn by_type(&self, recorded: &Tensor) -> Tolerance {
        let own = Tolerance::of(recorded.dtype());
        let half = self.half.and_then(Precision::dtype);
        half.map_or(own, |half| own.looser(Tolerance::of(half)))
    }

    fn at(&self, step: Name) -> StepNoise {
        self.steps.get(&step).copied().unwrap_or_default()
    }
}

impl StepNoise {
    fn of(step: &Step, exact: &Tensor, rounded: &Tensor) -> Result<Self> {
        let fill = step.op.operation().facts().fill.filter(|fill| fill.is_finite());
        let fill = fill.map_or_else(|| lowest_score(step, exact), |fill| Ok(Some(fill)))?;
        let mut noise = Self { fill, ..Self::default() };
        let size = |sizes: &mut Vec<f64>, row: &[f64], _: &[f64]| sizes.push(noise.size(row));
        let mut sizes = over_rows(exact, exact, Vec::new(), size, Vec::append)?;
        let middle = sizes.len() / 2;
        if let Some((_, size, _)) =
            (!sizes.is_empty()).then(|| sizes.select_nth_unstable_by(middle, f64::total_cmp))
        {
            noise.least = *size;
        }
        noise.ratio = largest_of_rows(rounded, exact, |rounded, exact| {
            noise.difference(rounded, exact) / noise.size(exact)
        })?;
        Ok(noise)
    }

    /// What the numbers of a row may be off by, relative to its size: `of_large` where that is more than all that was
    /// recorded.
    fn allowed(&self, recorded: &Tensor, of_large: f64) -> Result<f64> {
        let allowed = self.allowed * self.ratio;
        if allowed <= OF_LARGE_NOISE {
            return Ok(allowed);
        }
        let largest = largest_of_rows(recorded, recorded, |row, _| {
            let finite = row.iter().copied().filter(|value| value.is_finite());
            finite.map(f64::abs).fold(0.0, f64::max)
        })?;
        Ok(if allowed * self.least <= largest { allowed } else { of_large })
    }

    /// The largest size of a row's finite values, but for masked ones.
    fn size(&self, row: &[f64]) -> f64 {
        let counts = |value: &f64| value.is_finite() && !self.is_masked(*value);
        row.iter().copied().filter(counts).map(f64::abs).fold(self.least, f64::max)
    }

    /// The largest finite difference of two rows, but for masked cells.
    fn difference(&self, left: &[f64], right: &[f64]) -> f64 {
        let cells = left.iter().zip(right).filter(|(_, right)| !self.is_masked(**right));
        let differences = cells.map(|(left, right)| (left - right).abs());
        differences.filter(|difference| difference.is_finite()).fold(0.0, f64::max)
    }

    /// Whether a value is the mask's fill, rounded or not, or lies beyond it where no score does.
    fn is_masked(&self, value: f64) -> bool {
        let is_beyond = |fill: f64| fill.abs() >= BEYOND_SCORES && value / fill >= 0.5;
        self.fill.is_some_and(|fill| (value - fill).abs() <= fill.abs() / 100.0 || is_beyond(fill))
    }
}

/// No score is as large as that, and no added mask as small: -10000 was usual before -inf was.
const BEYOND_SCORES: f64 = -LOW;

/// The lowest finite score, if no score is as low: it comes from a mask that is added, here or before.
fn lowest_score(step: &Step, value: &Tensor) -> Result<Option<f64>> {
    if step.axes.iter().last().is_none_or(|(axis, _)| axis != Axis::Key) {
        return Ok(None);
    }
    let lowest = -largest_of_rows(value, value, |row, _| {
        -row.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::min)
    })?;
    Ok(Some(lowest).filter(|lowest| *lowest <= -BEYOND_SCORES))
}

/// The largest finite number that the rows of two tensors of one shape give, and 0 where none is larger.
fn largest_of_rows(
    left: &Tensor,
    right: &Tensor,
    number: impl Fn(&[f64], &[f64]) -> f64 + Sync,
) -> Result<f64> {
    let larger = |most: &mut f64, number: f64| {
        if number.is_finite() {
            *most = most.max(number);
        }
    };
    let add = |most: &mut f64, left: &[f64], right: &[f64]| larger(most, number(left, right));
    over_rows(left, right, 0.0, add, |most, other| larger(most, *other))
}

/// Adds up what the rows of two tensors of one shape give, some on each core; the parts are joined in the order of the rows.
fn over_rows<T: Clone + Send + Sync>(
    left: &Tensor,
    right: &Tensor,
    none: T,
    add: impl Fn(&mut T, &[f64], &[f64]) + Sync,
    join: impl Fn(&mut T, &mut T),
) -> Result<T> {
    let width = left.dims().last().copied().unwrap_or(1).max(1);
    let parts = of_pairs(left, right, |left, right| {
        let mut sum = none.clone();
        let rows = left.chunks(width).zip(right.chunks(width));
        rows.for_each(|(left, right)| add(&mut sum, left, right));
        sum
    })?;
    Ok(parts.into_iter().fold(none, |mut all, mut part| {
        join(&mut all, &mut part);
        all
    }))
}

/// Numbers as they may have been before they were rounded to a type: each off by up to `by` of itself, equal ones alike,
/// as the tokens of a padded sequence are.
fn shaken(value: &Tensor, by: f64) -> Result<Tensor> {
    let shake = |value: f64| {
        // The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
        let mut bits = value.to_bits();
        for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9_u64), (27, 0x94d0_49bb_1331_11eb)] {
            bits = (bits ^ (bits >> shift)).wrapping_mul(factor);
        }
        #[allow(clippy::cast_precision_loss, reason = "any number between -1 and 1 does")]
        let part = (bits ^ (bits >> 31)) as f64 / u64::MAX as f64 * 2.0 - 1.0;
        if value.is_finite() { value * (1.0 + by * part) } else { value }
    };
    let cells = cells(value, None)?.into_iter().map(shake).collect();
    Ok(Tensor::from_vec(cells, value.shape(), value.device())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    use config::{Pairing, Settings};
    use run::{Run, Sources};

    fn tensor(rows: [[f32; 3]; 3]) -> Tensor {
        Tensor::new(&rows, &Device::Cpu).expect("a tensor")
    }

    fn noise(fill: Option<f64>) -> Noise {
        let step = StepNoise { ratio: 0.001, least: 1.0, allowed: ALLOWED, fill };
        Noise {
            steps: HashMap::from([(Name::Scores, step)]),
            trends: HashMap::new(),
            half: None,
            gaps: false,
        }
    }

    #[test]
    fn a_huge_row_excuses_no_other() {
        let right = tensor([[1.0, 1.0, 1.0], [1.0, 0.5, 1.0], [1e6, 0.0, 0.0]]);
        let rounded = tensor([[1.007, 1.0, 1.0], [1.0, 0.5, 1.0], [1e6, 7000.0, 0.0]]);
        assert!(noise(None).agree(Name::Scores, &rounded, &right).expect("compares"));
        let wrong = tensor([[1.1, 1.0, 1.0], [1.0, 0.5, 1.0], [1e6, 0.0, 0.0]]);
        assert!(!noise(None).agree(Name::Scores, &wrong, &right).expect("compares"));
    }

    #[test]
    fn a_masks_fill_excuses_nothing() {
        let right = tensor([[1.0, -1e9, -1e9], [1.0, 0.5, -1e9], [1.0, 0.0, 0.5]]);
        let wrong = tensor([[1.1, -1e9, -1e9], [1.0, 0.5, -1e9], [1.0, 0.0, 0.5]]);
        assert!(!noise(Some(-1e9)).agree(Name::Scores, &wrong, &right).expect("compares"));
        assert!(noise(None).agree(Name::Scores, &wrong, &right).expect("compares"));
    }

    /// By hand: the second row is 0.004 off in numbers of 2, and its noise a thousandth of that.
    #[test]
    fn what_is_off_is_told_in_multiples_of_the_noise() {
        let right = tensor([[1.0, 1.0, 1.0], [2.0, 0.5, 1.0], [0.0, 0.25, 0.0]]);
        let other = tensor([[1.001, 1.0, 1.0], [2.0, 0.496, 1.0], [0.0, 0.25, -0.0005]]);
        let multiple = |noise: Noise| {
            noise.multiple(Name::Scores, &other, &right).expect("compares").map(|factor| {
                // In f32 the differences themselves are rounded.
                (factor * 1000.0).round() / 1000.0
            })
        };
        assert_eq!(multiple(noise(None)), Some(2.0));
        let mut silent = noise(None);
        silent.steps.clear();
        assert_eq!(multiple(silent), None);
    }

    /// All numbers of a row come from the same weights: two rows may be off alike, and many may not.
    #[test]
    fn few_rows_may_be_off_alike() {
        let noise = noise(None);
        let agrees = |rows: usize, factor: f32| {
            let right = Tensor::ones((rows, 16), DType::F32, &Device::Cpu).expect("ones");
            let off = right.affine(f64::from(factor), 0.0).expect("scales");
            noise.agree(Name::Scores, &off, &right).expect("compares")
        };
        assert!(agrees(2, 1.0025) && !agrees(64, 1.0025));
        assert!(agrees(64, 1.0005) && !agrees(2, 1.004));
    }

    /// In f64 as in f32: the frequencies are powers in f32 anyway. Nobody rounds them to 16 bits, which would excuse any.
    #[test]
    fn the_last_bit_of_a_frequency_is_rounding() {
        for dtype in [config::DType::F32, config::DType::F64] {
            let settings = Settings {
                d_model: Some(12),
                rope: Some(Pairing::Half),
                rope_offset: Some(1000),
                dtype: Some(dtype),
                ..Settings::default()
            };
            let run = Run::new(&settings, Sources::default()).expect("valid");
            let trace = run.trace().expect("runs");
            let noise = Noise::of(&trace, None).expect("measures");
            let with_factor = |factor: f64| {
                let other = trace.run_with(|step, inputs| match step.name {
                    Name::RopeFreqs => Ok(step.value.affine(factor, 0.0)?),
                    _ if inputs.is_empty() => Ok(step.value.clone()),
                    _ => step.op.eval(inputs),
                });
                let other: Result<Trace> = other;
                other.expect("runs").step(Name::QRot).expect("there").value.clone()
            };
            let half = Noise::of(&trace, Some(DType::BF16)).expect("measures");
            let agrees = |noise: &Noise, factor: f64| {
                let value = &trace.step(Name::QRot).expect("there").value;
                noise.agree(Name::QRot, &with_factor(factor), value).expect("compares")
            };
            assert!(agrees(&noise, 1.0 + f64::from(f32::EPSILON)), "{dtype}");
            assert!(!agrees(&noise, 1.001) && !agrees(&half, 1.0003), "{dtype}");
        }
    }
}
