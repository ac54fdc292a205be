//! What do the differences of two values have in common? Those of rounding have nothing.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use candle_core::Tensor;

use super::cells::cells;
use super::thresholds::{
    DEVIATIONS, DEVIATIONS_ADDED_UP, DIRECTION, DIRECTION_FROM, LEAST_CELLS, LEAST_DIFFERENCE,
    MANY_GROUPS, MANY_ROWS,
};
use base::error::Result;
use program::{Axes, Axis};

/// What the differences of all cells of two values have in common. Rounding has a size and no direction: a factor or a
/// shift that all numbers share is none at far smaller size.
#[derive(Clone, Default)]
pub struct Trend {
    rows: usize,
    count: usize,
    /// Sums of right · right, of left · right, and of the differences.
    own: f64,
    both: f64,
    shift: f64,
    size: f64,
}

impl Trend {
    /// Adds a row and what it should be. Cells that `is_masked` says so of do not count.
    pub fn add(&mut self, left: &[f64], right: &[f64], is_masked: impl Fn(f64) -> bool) {
        self.rows += 1;
        let cells = left.iter().zip(right);
        let cells = cells
            .filter(|(left, right)| left.is_finite() && right.is_finite() && !is_masked(**right));
        for (left, right) in cells {
            self.count += 1;
            self.own += right * right;
            self.both += left * right;
            self.shift += left - right;
            self.size = self.size.max(right.abs());
        }
    }

    /// Adds what other rows have.
    pub fn join(&mut self, others: &Self) {
        self.rows += others.rows;
        self.count += others.count;
        self.own += others.own;
        self.both += others.both;
        self.shift += others.shift;
        self.size = self.size.max(others.size);
    }

    /// Whether it has no more than what rounding may have, which takes the worst row off by `ratio` of its size, or of that of
    /// the `terms` where these cancel out.
    pub fn has_no_direction(&self, ratio: f64, terms: f64) -> bool {
        let (count, rows) = (self.count as f64, self.rows as f64);
        let (shift, larger) = (self.shift / count, terms / (self.own / count).sqrt());
        let slope = self.both / self.own - 1.0;
        let most = DIRECTION * ratio * (MANY_ROWS / rows).sqrt().max(1.0);
        self.count < DIRECTION_FROM
            || self.own == 0.0
            || (slope.abs() <= most * larger.max(1.0) && shift.abs() <= most * self.size.max(terms))
    }
}

/// What the differences of a step's cells have in common, over all of them and over those of one head, item, query,
/// feature or row: a shift and a factor. Rounding has a size and no direction, so that either is far smaller than the
/// rounding of one number.
#[derive(Debug, Clone)]
pub struct Trends {
    dims: Vec<usize>,
    groupings: Vec<Grouping>,
    /// The factor, less 1, that all numbers may share: code rounds constants too, such as the scale of the scores.
    factor: f64,
    /// How many of its standard deviations a trend may have.
    deviations: f64,
    /// What is no difference in any type.
    least: f64,
}

/// Cells grouped by their places on some axes.
#[derive(Debug, Clone)]
struct Grouping {
    /// The axes whose places a group shares, by position.
    shared: Vec<usize>,
    spreads: Vec<Spread>,
    /// The sum of the squares of what rounding takes the cells off by.
    squares: f64,
}

/// How far rounding takes what the cells of a group have in common: a standard deviation.
#[derive(Debug, Clone, Copy, Default)]
struct Spread {
    shift: f64,
    factor: f64,
    /// What is allowed of a factor is multiplied by that.
    margin: f64,
}

/// Sums over the cells of a group, of what they are off by (d), of what they should be (v), and of the variance of what
/// rounding takes them off by.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    count: f64,
    d: f64,
    d_d: f64,
    d_v: f64,
    variance: f64,
    variance_v_v: f64,
    v: f64,
    abs_v: f64,
    v_v: f64,
}

impl Trends {
    /// The trends that a step's rounding has: of its cells as they are, `rounded`, beside what they would be, `exact`.
    /// `factor` is what all numbers may be multiplied by, less 1. Cells that `is_masked` says so of do not count.
    ///
    /// Roundings that `add_up` are passed on to many cells alike, which shows where there are many groups, and only there.
    ///
    /// # Errors
    /// If candle fails.
    pub fn of(
        axes: &Axes,
        exact: &Tensor,
        rounded: &Tensor,
        factor: f64,
        add_up: bool,
        is_masked: impl Fn(f64) -> bool,
    ) -> Result<Self> {
        let (dims, named): (Vec<usize>, Vec<Axis>) =
            (axes.shape(), axes.iter().map(|(axis, _)| axis).collect());
        let (rounded, exact) = (cells(rounded)?, cells(exact)?);
        // A number that happens to need no rounding could have needed some: as much as all have in the mean.
        let counts = |(left, right): &(&f64, &f64)| {
            left.is_finite() && right.is_finite() && !is_masked(**right)
        };
        let (d_d, v_v) = rounded
            .iter()
            .zip(&exact)
            .filter(counts)
            .fold((0.0, 0.0), |(d_d, v_v), (rounded, exact)| {
                (d_d + (rounded - exact).powi(2), v_v + exact * exact)
            });
        let size = exact.iter().filter(|value| value.is_finite());
        let size = size.fold(0.0, |size: f64, value| size.max(value.abs()));
        let relative = if v_v > 0.0 { d_d / v_v } else { 0.0 };
        let twins = twins(&rounded, dims.last().copied().unwrap_or(1));
        let groupings = groupings(&named).into_iter().map(|shared| {
            let twins = in_groups(&dims, &shared, &twins);
            let sums = sums(&dims, &shared, [&rounded, &exact], &is_masked, (relative, &twins));
            let squares = sums.iter().map(|sums| sums.d_d).sum();
            let mut spreads = spreads(&sums);
            if add_up {
                // Small numbers can come from large ones that cancelled, and have the rounding of those. What all cells of
                // a group share, as those of one feature share that of their values, is a sample of one.
                let typical = mean_square(&sums);
                let shared = root_mean_square(sums.iter().map(|sums| sums.d / sums.count));
                for (spread, sums) in spreads.iter_mut().zip(&sums) {
                    spread.shift = spread.shift.max(shared / 2.0);
                    let larger = (typical / (sums.v_v / sums.count)).sqrt();
                    spread.margin *= if larger.is_finite() { larger.max(1.0) } else { 1.0 };
                }
            }
            Grouping { shared, spreads, squares }
        });
        let (fewest, deviations) =
            if add_up { (MANY_GROUPS, DEVIATIONS_ADDED_UP) } else { (0, DEVIATIONS) };
        let groupings = groupings.filter(|grouping| grouping.spreads.len() >= fewest).collect();
        let least = LEAST_DIFFERENCE * size.min(1.0);
        Ok(Self { dims, groupings, factor, deviations, least })
    }

    /// Whether two values have no more in common in what they differ by than rounding has.
    ///
    /// # Errors
    /// If candle fails.
    pub fn allow(
        &self,
        left: &Tensor,
        right: &Tensor,
        is_masked: impl Fn(f64) -> bool,
    ) -> Result<bool> {
        if left.dims() != self.dims || right.dims() != self.dims {
            return Ok(true);
        }
        let (left, right) = (cells(left)?, cells(right)?);
        Ok(self.groupings.iter().all(|grouping| {
            let sums = sums(&self.dims, &grouping.shared, [&left, &right], &is_masked, (0.0, &[]));
            // Other instructions round more or less: what is left without what each group shares tells how much.
            let left_by = |own: fn(&Sums) -> f64| {
                let left: f64 = sums.iter().map(own).filter(|left| left.is_finite()).sum();
                let larger = (left / grouping.squares).sqrt();
                if larger.is_finite() { larger.max(1.0) } else { 1.0 }
            };
            let shift = left_by(|sums| sums.d_d - sums.d * sums.d / sums.count);
            let factor = left_by(|sums| sums.d_d - sums.d_v * sums.d_v / sums.v_v);
            let spreads = grouping.spreads.iter().map(|spread| Spread {
                shift: spread.shift * shift,
                factor: spread.factor * factor,
                ..*spread
            });
            sums.iter().zip(spreads).all(|(sums, spread)| self.allows(sums, spread))
        }))
    }

    fn allows(&self, sums: &Sums, spread: Spread) -> bool {
        let shift =
            self.factor * sums.v.abs() / sums.count + self.deviations * spread.shift + self.least;
        let factor = spread.margin * (self.factor + self.deviations * spread.factor)
            + self.least * sums.abs_v / sums.v_v;
        // Of few cells, or of zeros alone, there is nothing to say.
        if sums.count < LEAST_CELLS as f64 {
            return true;
        }
        let is_too_far = |apart: f64, allowed: f64| apart.abs() > allowed;
        !is_too_far(sums.d / sums.count, shift) && !is_too_far(sums.d_v / sums.v_v, factor)
    }
}

/// Over which axes cells have something in common: over all, all of one place on an axis, features of a head, and a row.
fn groupings(axes: &[Axis]) -> Vec<Vec<usize>> {
    let Some(last) = axes.len().checked_sub(1) else { return Vec::new() };
    let head = axes.iter().position(|axis| *axis == Axis::Head).filter(|head| *head < last);
    let mut groupings = vec![Vec::new(), (0..last).collect()];
    groupings.extend((0..axes.len()).map(|axis| vec![axis]));
    groupings.extend(head.map(|head| vec![head, last]));
    groupings.dedup();
    groupings
}

/// For each row the first one that has the same numbers.
fn twins(rounded: &[f64], width: usize) -> Vec<usize> {
    let mut known = HashMap::new();
    let first = |(at, row): (usize, &[f64])| {
        let mut hasher = DefaultHasher::new();
        for number in row {
            number.to_bits().hash(&mut hasher);
        }
        *known.entry(hasher.finish()).or_insert(at)
    };
    rounded.chunks(width.max(1)).enumerate().map(first).collect()
}

/// For each row how many of its group have its numbers.
fn in_groups(dims: &[usize], shared: &[usize], twins: &[usize]) -> Vec<f64> {
    let last = dims.len().saturating_sub(1);
    let width = dims.last().copied().unwrap_or(1).max(1);
    let of_rows: Vec<usize> = shared.iter().copied().filter(|axis| *axis != last).collect();
    let group = group_of(dims, &of_rows);
    let group = |row: usize| group(row * width);
    let mut counts = HashMap::new();
    for (row, twin) in twins.iter().enumerate() {
        *counts.entry((group(row), *twin)).or_insert(0.0) += 1.0;
    }
    twins.iter().enumerate().map(|(row, twin)| counts[&(group(row), *twin)]).collect()
}

/// Which group a cell is of, among those that share their places on some axes.
fn group_of(dims: &[usize], shared: &[usize]) -> impl Fn(usize) -> usize {
    let stride = |axis: &usize| dims[axis + 1..].iter().product::<usize>().max(1);
    let places: Vec<(usize, usize)> =
        shared.iter().map(|axis| (stride(axis), dims[*axis])).collect();
    move |cell| places.iter().fold(0, |group, (stride, size)| group * size + cell / stride % size)
}

/// The sums of every group. What a cell is off by has the variance of what it is seen to be off by, and `relative` of
/// its own square; where it stands for so many others of its group, which round alike, it has so many times that.
fn sums(
    dims: &[usize],
    shared: &[usize],
    [left, right]: [&[f64]; 2],
    is_masked: impl Fn(f64) -> bool,
    (relative, alike): (f64, &[f64]),
) -> Vec<Sums> {
    let width = dims.last().copied().unwrap_or(1).max(1);
    let count = shared.iter().map(|axis| dims[*axis]).product();
    let group = group_of(dims, shared);
    let mut groups = vec![Sums::default(); count];
    for (at, (left, right)) in left.iter().zip(right).enumerate() {
        if !left.is_finite() || !right.is_finite() || is_masked(*right) {
            continue;
        }
        let (sums, d) = (&mut groups[group(at)], left - right);
        sums.count += 1.0;
        sums.d += d;
        sums.d_d += d * d;
        sums.d_v += d * right;
        let alike = alike.get(at / width).copied().unwrap_or(1.0);
        let variance = alike * (d * d + relative * right * right);
        sums.variance += variance;
        sums.variance_v_v += variance * right * right;
        sums.v += right;
        sums.abs_v += right.abs();
        sums.v_v += right * right;
    }
    groups
}

/// The spreads of groups whose cells are off by rounding. Cells that round nearly alike, as those of similar tokens do, cancel
/// out less than others: by how much shows in all groups together.
fn spreads(groups: &[Sums]) -> Vec<Spread> {
    let alone = groups.iter().map(|sums| Spread {
        shift: sums.variance.sqrt() / sums.count,
        factor: sums.variance_v_v.sqrt() / sums.v_v,
        margin: 1.0,
    });
    let alone: Vec<Spread> = alone.collect();
    let shifts = groups.iter().zip(&alone).map(|(sums, own)| sums.d / sums.count / own.shift);
    let factors = groups.iter().zip(&alone).map(|(sums, own)| sums.d_v / sums.v_v / own.factor);
    let (shift, factor) = (root_mean_square(shifts).max(1.0), root_mean_square(factors).max(1.0));
    let together =
        |own: Spread| Spread { shift: shift * own.shift, factor: factor * own.factor, ..own };
    alone.into_iter().map(together).collect()
}

/// That of all cells of all groups, which is not finite where there are none.
fn mean_square(groups: &[Sums]) -> f64 {
    let (squares, count) = groups
        .iter()
        .fold((0.0, 0.0), |(squares, count), sums| (squares + sums.v_v, count + sums.count));
    squares / count
}

/// That of the finite numbers; 0 of none.
fn root_mean_square(values: impl Iterator<Item = f64>) -> f64 {
    let (count, squares) = values
        .filter(|value| value.is_finite())
        .fold((0.0, 0.0), |(count, squares), value| (count + 1.0, squares + value * value));
    if count > 0.0 { (squares / count).sqrt() } else { 0.0 }
}
