//! Numbers and cells that are read off the recorded values, not picked from a list.

use candle_core::{DType, Tensor};

use super::evidence::Evidence;
use super::finding::Number;
use super::fit_cells::moved;
use super::fit_frequencies::frequencies;
use super::fit_knobs::Fits;
use super::fit_parts::{packed, part_of_sum};
use super::fit_positions::positions;
use super::fit_sums::sums;
use super::grammar::cost;
use super::grammar::numbers::{numbered, plain, scaled, shifted, short, with_number};
use super::hypothesis::Hypothesis;
use super::mistakes::{Knob, Range, knobs};
use super::sieve::Sieve;
use base::error::Result;
use program::{
    Change, Edit, Kind, Linear, Name, Op, Precision, Role, Scaling, Step, Weighting, of_pairs,
};

/// A fitted number must explain many more cells than it has freedoms.
pub const LEAST_CELLS: usize = 8;

/// Beyond so many places of an axis they are not looked for elsewhere.
pub const MOST_PLACES: usize = 128;

/// How many points of a range are tried before the best is refined.
const GRID: i32 = 80;

/// The mistakes that a number of a step is another one, for which the recorded value decides.
///
/// # Errors
/// If candle fails.
pub fn numbers(evidence: &Evidence, sieve: &Sieve, at: Name) -> Result<Vec<Hypothesis>> {
    let mut all = numbers_at(evidence, sieve, at, None)?;
    all.extend(positions(evidence, at)?);
    all.extend(read_times(evidence, sieve, at)?);
    all.extend(sums(&sieve.item(at), at)?);
    all.extend(moved(evidence, at)?);
    all.extend(frequencies(evidence, at)?);
    all.extend(packed(evidence, at)?);
    all.extend(part_of_sum(evidence, at)?);
    Ok(all)
}

/// Whether two lists are one but for rounding. Sums of products are off by the size of their terms, `floor`, also where
/// they cancel out.
pub fn are_near(left: &[f64], right: &[f64], floor: f64) -> bool {
    let near = |left: f64, right: f64| (left - right).abs() <= 1e-4 * (floor + right.abs());
    // Infinite numbers have no difference.
    left.iter().zip(right).all(|(left, right)| left.total_cmp(right).is_eq() || near(*left, *right))
}

/// A step that is no product, of which something that it reads is multiplied by a number.
fn read_times(evidence: &Evidence, sieve: &Sieve, at: Name) -> Result<Vec<Hypothesis>> {
    let mut all = Vec::new();
    let Some(step) = evidence.trace.step(at) else { return Ok(all) };
    let is_curved = matches!(step.op, Op::Weighting(Weighting::Softmax { .. }))
        || matches!(step.op, Op::Scaling(Scaling::SoftCap { .. }))
        || matches!(step.op, Op::Linear(Linear::Project { .. }));
    if !is_curved {
        return Ok(all);
    }
    for (slot, read) in evidence.trace.read_by(step).into_iter().enumerate() {
        let with = |factor: f64| {
            let op = Scaling::By { factor }.into();
            let told = tr!(
                "{read}, which it reads, is multiplied by {factor}",
                read = read.name,
                factor = short(factor)
            );
            let number = Number { parameter: "factor", meant: 1.0, found: factor };
            let change = Change::Before(slot, op, Vec::new());
            numbered(Kind::Inserted, cost::RARE, at, change, &told, number)
        };
        let error = |factor: f64| sieve.apart(&with(factor), at);
        if let Some(best) = refined(1.0, &error)? {
            let near = [0.1, 0.125, 0.25, 0.5, 2.0, 4.0, 8.0, 10.0];
            let near = near.into_iter().find(|value: &f64| (value - best).abs() < 1e-3 * best);
            all.extend(near.map(with));
            all.push(with(best));
        }
    }
    Ok(all)
}

/// The same, from the cells at these places of an axis alone.
///
/// # Errors
/// If candle fails.
pub fn numbers_at(
    evidence: &Evidence,
    sieve: &Sieve,
    at: Name,
    part: Option<(usize, &[usize])>,
) -> Result<Vec<Hypothesis>> {
    let mut all = Vec::new();
    let Some(step) = evidence.trace.step(at) else { return Ok(all) };
    let sizes = &evidence.config.sizes;
    let Some(right) = evidence.right(step)? else { return Ok(all) };
    let Some(found) = evidence.recorded.get(&at) else { return Ok(all) };
    if found.dims() != right.dims() || found.elem_count() < LEAST_CELLS {
        return Ok(all);
    }
    let axis = part.and_then(|(at, _)| step.axes.iter().nth(at)).map(|(axis, _)| axis);
    let settings = evidence.trace.read_by(step).into_iter();
    let settings = settings.filter(|read| read.name.role() == Role::Setting);
    for owner in std::iter::once(step).chain(settings) {
        for knob in knobs(&owner.op) {
            let give = |value: f64| match with_number(owner.name, &knob, value, sizes) {
                Some(made) => sieve.given(&made, at),
                None => Ok(None),
            };
            let fits = Fits { found, part: part.zip(axis), give: &give };
            for fitted in fits.of(&knob)? {
                for value in [plain(fitted, &knob, sizes), fitted] {
                    let made = with_number(owner.name, &knob, value, sizes);
                    all.extend(made.into_iter().flat_map(|made| {
                        let own = fed(&made, owner, step);
                        own.into_iter().chain([made])
                    }));
                }
            }
        }
    }
    let (found, right) = (cells(found, part)?, cells(&right, part)?);
    let factor = ratio(&found, &right);
    let scale = Knob {
        name: "factor",
        value: 1.0,
        range: Range::Factor,
        common: vec![2.0, 0.5],
        with: Box::new(|_| None),
    };
    for factor in [plain(factor, &scale, sizes), factor] {
        all.extend(scaled(at, factor, sizes));
    }
    let differences: Vec<f64> = differences(&found, &right).collect();
    #[allow(clippy::cast_precision_loss, reason = "exact below 2^53")]
    let mean = differences.iter().sum::<f64>() / differences.len().max(1) as f64;
    if mean.is_finite() {
        all.push(shifted(at, plain(mean, &scale, sizes)));
        all.push(shifted(at, mean));
    }
    Ok(all)
}

/// The same mistake at one reader of a setting alone.
fn fed(made: &Hypothesis, owner: &Step, reader: &Step) -> Option<Hypothesis> {
    if owner.name == reader.name {
        return None;
    }
    let [Edit { change: Change::Replace(op), .. }] = made.edits.as_slice() else { return None };
    let slot = 1;
    let change = Change::Feed(slot, op.clone(), Vec::new());
    let summary = made.summary.replacen(owner.name.as_str(), reader.name.as_str(), 1);
    Some(Hypothesis {
        edits: vec![Edit::new(reader.name, change)],
        summary,
        cost: made.cost + 1,
        ..made.clone()
    })
}

/// Of some values, the first that has the least error.
///
/// # Errors
/// Those of `error`.
pub fn least<V: Copy>(
    values: impl IntoIterator<Item = V>,
    error: impl Fn(V) -> Result<f64>,
) -> Result<Option<V>> {
    let mut best: Option<(f64, V)> = None;
    for value in values {
        let error = error(value)?;
        if best.is_none_or(|(least, _)| error < least) {
            best = Some((error, value));
        }
    }
    Ok(best.map(|(_, value)| value))
}

/// The best of a wide range of positive numbers: the best of a grid, refined by thirds.
///
/// # Errors
/// Those of `error`.
pub fn refined(meant: f64, error: &dyn Fn(f64) -> Result<f64>) -> Result<Option<f64>> {
    let centre = if meant > 0.0 { meant.ln() } else { 1e-6_f64.ln() };
    let at = |place: f64| (centre + place * 0.25).exp();
    let mut best = (f64::INFINITY, 0.0);
    for place in -GRID..=GRID {
        let error = error(at(f64::from(place)))?;
        if error < best.0 {
            best = (error, f64::from(place));
        }
    }
    let (mut low, mut high) = (best.1 - 1.0, best.1 + 1.0);
    for _ in 0..40 {
        let (left, right) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if error(at(left))? < error(at(right))? {
            high = right;
        } else {
            low = left;
        }
    }
    Ok(best.0.is_finite().then(|| at(f64::midpoint(low, high))))
}

/// The type with fewer bits whose rounding alone can be what a step is off by: it holds every recorded number, none is
/// further off than a few of its steps, and there is no direction in it.
///
/// # Errors
/// If candle fails.
pub fn precision(evidence: &Evidence, at: Name) -> Result<Option<(Precision, bool)>> {
    let Some(step) = evidence.trace.step(at) else { return Ok(None) };
    let (Some(found), Some(value)) = (evidence.recorded.get(&at), evidence.right(step)?) else {
        return Ok(None);
    };
    if found.dims() != value.dims() {
        return Ok(None);
    }
    let (own, meant) = (cells(found, None)?, cells(&value, None)?);
    // Rounding makes no NaN.
    if own.iter().any(|value| value.is_nan()) {
        return Ok(None);
    }
    let pairs =
        || own.iter().zip(&meant).filter(|(own, meant)| is_number(**own) && is_number(**meant));
    let size = pairs().map(|(_, meant)| meant.abs()).fold(0.0, f64::max);
    let furthest = pairs().map(|(own, meant)| (own - meant).abs()).fold(0.0, f64::max);
    let slope = ratio(&own, &meant);
    // What the run's own type does to a step was looked at before the step was called wrong.
    let is_coarser = |precision: &Precision| {
        evidence.precision().is_none_or(|own| precision.spacing() > own.spacing())
    };
    for precision in [Precision::F16, Precision::Bf16].into_iter().filter(is_coarser) {
        let spacing = precision.spacing();
        // It is in most numbers that are none of the type.
        let exact = cells(&precision.round(&value)?, None)?;
        let is_other = |left: &f64, right: &f64| left.total_cmp(right).is_ne();
        let open = meant.iter().zip(&exact).filter(|(meant, exact)| is_other(meant, exact)).count();
        let off = own.iter().zip(&meant).filter(|(own, meant)| is_other(own, meant)).count();
        if off < LEAST_CELLS || 2 * off < open {
            continue;
        }
        if furthest <= 2.0 * spacing * size && (slope - 1.0).abs() <= spacing {
            let rounded = cells(&precision.round(found)?, None)?;
            return Ok(Some((precision, rounded == own)));
        }
    }
    Ok(None)
}

/// How much of its distance from what was recorded a mistake may leave.
const NEARER: f64 = 0.5;

/// Whether `value` comes much nearer to what was `found` than the `right` one does, where the two differ. Where rounding is
/// large, what differs from the right one by less would agree with it as well.
///
/// # Errors
/// If candle fails.
pub fn is_nearer(found: &Tensor, value: &Tensor, right: &Tensor) -> Result<bool> {
    let (found, value, right) = (cells(found, None)?, cells(value, None)?, cells(right, None)?);
    let cells = found.iter().zip(value.iter().zip(&right));
    let changed = cells.filter(|(_, (value, right))| value.total_cmp(right).is_ne());
    // What was not recorded or is infinite on one side says nothing of how near.
    let finite = |apart: f64| if apart.is_finite() { apart.abs() } else { 0.0 };
    let (by_value, by_right) =
        changed.clone().fold((0.0, 0.0), |(by_value, by_right), (found, (value, right))| {
            (by_value + finite(found - value), by_right + finite(found - right))
        });
    // NaN or an infinity where the right one has a number is as far as can be.
    let is_apart = |found: f64, other: f64| {
        (found - other).abs().is_infinite() || found.is_nan() != other.is_nan()
    };
    let explains_most = changed
        .clone()
        .any(|(found, (value, right))| is_apart(*found, *right) && !is_apart(*found, *value));
    Ok(explains_most || by_value <= NEARER * by_right)
}

/// How much nearer `value` comes to what was `found` than the `right` one does: the sum of what each is off by.
///
/// # Errors
/// If candle fails.
pub fn gain(found: &Tensor, value: &Tensor, right: &Tensor) -> Result<f64> {
    let gain = distance(found, right, None)? - distance(found, value, None)?;
    Ok(if gain.is_nan() { 0.0 } else { gain })
}

/// Whether a gain is the most that there is, but for what sums in another order make of it.
pub fn is_as_near(gain: f64, most: f64) -> bool {
    gain >= most - 0.01 * most.abs()
}

/// A tensor's numbers, or those at these places of an axis.
pub fn cells(tensor: &Tensor, part: Option<(usize, &[usize])>) -> Result<Vec<f64>> {
    let tensor = match part {
        Some((axis, places)) => {
            let places: Vec<u32> = places.iter().filter_map(|at| u32::try_from(*at).ok()).collect();
            tensor.contiguous()?.index_select(&Tensor::new(places, tensor.device())?, axis)?
        }
        None => tensor.clone(),
    };
    Ok(tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1()?)
}

/// How far two tensors are apart: the sum of the absolute differences, of which no single one counts much.
///
/// # Errors
/// If candle fails.
pub fn distance(found: &Tensor, value: &Tensor, part: Option<(usize, &[usize])>) -> Result<f64> {
    if found.dims() != value.dims() {
        return Ok(f64::INFINITY);
    }
    let apart = |found: &[f64], value: &[f64]| -> f64 {
        differences(found, value).map(|difference| difference.abs().min(1e3)).sum()
    };
    let sum: f64 = match part {
        Some(_) => apart(&cells(found, part)?, &cells(value, part)?),
        None => of_pairs(found, value, apart)?.into_iter().sum(),
    };
    Ok(if sum.is_nan() { f64::INFINITY } else { sum })
}

/// The finite differences.
fn differences<'v>(found: &'v [f64], right: &'v [f64]) -> impl Iterator<Item = f64> + 'v {
    // Equal infinities have no difference.
    let pairs = found.iter().zip(right).filter(|(found, right)| found.total_cmp(right).is_ne());
    pairs.map(|(found, right)| found - right).filter(|difference| !difference.is_infinite())
}

/// Whether a value is finite, and small enough to be no fill.
pub fn is_number(value: f64) -> bool {
    value.is_finite() && value.abs() < 1e8
}

/// The factor that comes nearest, by least squares over what is finite and small enough to be no fill.
pub fn ratio(found: &[f64], right: &[f64]) -> f64 {
    let pairs = found.iter().zip(right).filter(|(f, r)| is_number(**f) && is_number(**r));
    let (above, below) = pairs.fold((0.0, 0.0), |(above, below), (found, right)| {
        (above + found * right, below + right * right)
    });
    above / below
}
