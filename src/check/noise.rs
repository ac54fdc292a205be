//! How far rounding alone takes each step of a run, and what that explains.

use std::collections::HashMap;

use candle_core::{DType, Tensor};

use super::compare::{CHUNK, chunk, compare, is_exact_in};
use super::tolerance::Tolerance;
use crate::error::Result;
use crate::program::{Axis, Name, Precision, Step, Trace};
use crate::run::LOW;

/// What the noise of one run is multiplied by: another order of additions and other instructions give other noise of
/// the same size, and one run is a small sample of it. With it none of 1500 correct runs by PyTorch, in f64, f32, f16
/// and bf16, in reduced precision and with the products added in random order, is called different
/// (`benches/pytorch.py noise --runs 500`, with seeds 0, 5 and 7); of 500 others (seed 11) two are, in which ten numbers
/// or fewer are too few to tell bf16 products by.
pub const ALLOWED: f64 = 16.0;

/// The noise of every step of one run.
#[derive(Clone)]
pub struct Noise {
    steps: HashMap<Name, StepNoise>,
    /// What numbers of the 16-bit type that was recorded may differ by.
    half: Option<Tolerance>,
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
        let computed = trace.steps().iter().filter_map(|step| Some((step, exact.get(&step.name)?)));
        let noise = computed.map(|(step, exact)| {
            let rounded = rounded.get(&step.name).unwrap_or(&step.value);
            Ok((step.name, StepNoise::of(step, exact, rounded)?))
        });
        let steps = noise.collect::<Result<_>>()?;
        Ok(Self { steps, half: half.map(Tolerance::of), gaps: false })
    }

    /// The same where NaN on the left stands for what was not recorded.
    #[must_use]
    pub fn with_gaps(&self) -> Self {
        Self { gaps: true, ..self.clone() }
    }

    /// Whether two values of a step are the same but for rounding.
    ///
    /// # Errors
    /// If candle fails.
    pub fn agree(&self, step: Name, left: &Tensor, right: &Tensor) -> Result<bool> {
        if left.dims() != right.dims() {
            return Ok(false);
        }
        let by_type = self.by_type(left);
        let noise = self.at(step);
        let (mut is_within, mut trend, mut largest) = (true, Trend::default(), 0.0_f64);
        let agrees = for_rows(left, right, |left, right| {
            let within = |tolerance: Tolerance| {
                left.iter().zip(right).all(|(left, right)| {
                    tolerance.excess(*left, *right) <= 1.0 || (self.gaps && left.is_nan())
                })
            };
            let rounding = || ALLOWED * noise.ratio * noise.size(right);
            trend.add(left, right, noise);
            largest = left
                .iter()
                .copied()
                .filter(|left| left.is_finite())
                .map(f64::abs)
                .fold(largest, f64::max);
            if within(by_type) {
                return true;
            }
            is_within = false;
            within(by_type.looser(Tolerance { rtol: 0.0, atol: rounding() }))
        })?;
        // Noise that is larger than all that was recorded would excuse anything.
        let is_told = is_within || ALLOWED * noise.ratio * noise.least <= largest;
        Ok(agrees && is_told && (is_within || trend.has_no_direction(noise.ratio)))
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
        let mut most = 0.0_f64;
        for_rows(left, right, |left, right| {
            let multiple = noise.difference(left, right) / (noise.ratio * noise.size(right));
            // Where there is no noise a multiple of it says nothing.
            most = if multiple.is_finite() { most.max(multiple) } else { most };
            true
        })?;
        Ok((noise.ratio > 0.0).then_some(most))
    }

    /// What numbers may differ by for their type. What the user allows says what differs, not what explains it.
    fn by_type(&self, recorded: &Tensor) -> Tolerance {
        let own = Tolerance::of(recorded.dtype());
        self.half.map_or(own, |half| own.looser(half))
    }

    fn at(&self, step: Name) -> StepNoise {
        self.steps.get(&step).copied().unwrap_or_default()
    }
}

/// What the differences of two values have in common. Rounding has a size and no direction: a factor or a shift that all
/// numbers share is none at far smaller size.
#[derive(Default)]
struct Trend {
    rows: usize,
    count: usize,
    /// Sums of right · right, of left · right, and of the differences.
    own: f64,
    both: f64,
    shift: f64,
    size: f64,
}

/// From so many numbers on a factor that they share says something.
const LEAST_NUMBERS: usize = 32;

/// What a factor or a shift that all numbers share may be, in multiples of the noise of single rows: over many numbers
/// rounding cancels out, so that even 1 is generous.
const DIRECTION: f64 = 1.0;

/// The numbers of a row can be off alike, as all of them come from the same weights, and so few rows cancel out less: the
/// mean of `n` goes with `1/√n`.
const MANY_ROWS: f64 = 16.0;

impl Trend {
    fn add(&mut self, left: &[f64], right: &[f64], noise: StepNoise) {
        self.rows += 1;
        let cells = left.iter().zip(right);
        let cells = cells.filter(|(left, right)| {
            left.is_finite() && right.is_finite() && !noise.is_masked(**right)
        });
        for (left, right) in cells {
            self.count += 1;
            self.own += right * right;
            self.both += left * right;
            self.shift += left - right;
            self.size = self.size.max(right.abs());
        }
    }

    fn has_no_direction(&self, ratio: f64) -> bool {
        #[allow(clippy::cast_precision_loss, reason = "exact below 2^53")]
        let (shift, rows) = (self.shift / self.count as f64, self.rows as f64);
        let slope = self.both / self.own - 1.0;
        let most = DIRECTION * ratio * (MANY_ROWS / rows).sqrt().max(1.0);
        self.count < LEAST_NUMBERS
            || self.own == 0.0
            || (slope.abs() <= most && shift.abs() <= most * self.size)
    }
}

impl StepNoise {
    fn of(step: &Step, exact: &Tensor, rounded: &Tensor) -> Result<Self> {
        let fill = step.op.operation().fill().filter(|fill| fill.is_finite());
        let fill = fill.map_or_else(|| lowest_score(step, exact), |fill| Ok(Some(fill)))?;
        let mut noise = Self { fill, ..Self::default() };
        let mut sizes = Vec::new();
        for_rows(exact, exact, |row, _| {
            sizes.push(noise.size(row));
            true
        })?;
        let middle = sizes.len() / 2;
        if let Some((_, size, _)) =
            (!sizes.is_empty()).then(|| sizes.select_nth_unstable_by(middle, f64::total_cmp))
        {
            noise.least = *size;
        }
        let mut ratio = 0.0_f64;
        for_rows(rounded, exact, |rounded, exact| {
            let relative = noise.difference(rounded, exact) / noise.size(exact);
            ratio = if relative.is_finite() { ratio.max(relative) } else { ratio };
            true
        })?;
        noise.ratio = ratio;
        Ok(noise)
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
    let mut lowest = 0.0_f64;
    for_rows(value, value, |row, _| {
        lowest = row.iter().copied().filter(|value| value.is_finite()).fold(lowest, f64::min);
        true
    })?;
    Ok(Some(lowest).filter(|lowest| *lowest <= -BEYOND_SCORES))
}

/// Shows two tensors of one shape row by row, until `go_on` says no; whether it never did.
fn for_rows(
    left: &Tensor,
    right: &Tensor,
    mut go_on: impl FnMut(&[f64], &[f64]) -> bool,
) -> Result<bool> {
    let width = left.dims().last().copied().unwrap_or(1).max(1);
    let (left, right) = (left.flatten_all()?, right.flatten_all()?);
    let whole_rows = width * (CHUNK / width).max(1);
    for start in (0..left.elem_count()).step_by(whole_rows) {
        let (left, right) = (chunk(&left, start, whole_rows)?, chunk(&right, start, whole_rows)?);
        if !left.chunks(width).zip(right.chunks(width)).all(|(left, right)| go_on(left, right)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The computed values of the run in f64.
///
/// # Errors
/// If candle fails.
pub fn exact(trace: &Trace) -> Result<HashMap<Name, Tensor>> {
    rerun(trace, |value| value.to_dtype(DType::F64))
}

/// The computed values of the run, every number rounded to a 16-bit type as it is made.
///
/// # Errors
/// If candle fails.
pub fn rounded(trace: &Trace, half: DType) -> Result<HashMap<Name, Tensor>> {
    rerun(trace, |value| value.to_dtype(half)?.to_dtype(DType::F32))
}

/// The computed values of the run, each number rounded as it is made; booleans stay.
fn rerun(
    trace: &Trace,
    round: impl Fn(&Tensor) -> candle_core::Result<Tensor>,
) -> Result<HashMap<Name, Tensor>> {
    let rounded = trace.run_with(|step, inputs| {
        let is_computed = step.is_computed();
        let value = if is_computed { step.op.eval(inputs)? } else { step.value.clone() };
        let rounded = if value.dtype().is_float() { round(&value)? } else { value.clone() };
        if step.name != Name::RopeFreqs {
            return Ok::<_, crate::Error>(rounded);
        }
        // Frequencies are powers in f32, of which the last bit is not the same everywhere. Nobody keeps them in 16 bits:
        // positions times them would be nowhere near.
        let wide = value.to_dtype(rounded.dtype())?;
        let is_exact = wide.dtype() == DType::F64;
        Ok(if is_exact { wide.affine(1.0 + f64::from(f32::EPSILON), 0.0)? } else { wide })
    })?;
    let computed = rounded.steps().iter().filter(|step| step.is_computed());
    Ok(computed.map(|step| (step.name, step.value.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    use crate::config::{Pairing, Settings};
    use crate::run::{Run, Sources};

    fn tensor(rows: [[f32; 3]; 3]) -> Tensor {
        Tensor::new(&rows, &Device::Cpu).expect("a tensor")
    }

    fn noise(fill: Option<f64>) -> Noise {
        let step = StepNoise { ratio: 0.001, least: 1.0, fill };
        Noise { steps: HashMap::from([(Name::Scores, step)]), half: None, gaps: false }
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
        for dtype in [crate::config::DType::F32, crate::config::DType::F64] {
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
