//! Which keys or values did a product really read? Where the other operand is known and has rows enough, what a product gives is
//! solved for the one that was read, row by row, and that is held against the right one.

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};

use super::operand_words::{Layout, Other, told};
use super::rows::are_near;
use crate::candidate::{Candidate, cost};
use crate::cells::{Solved, cells, least_squares, ratio};
use crate::grammar::products;
use crate::scope::Scope;
use base::error::Result;
use config::Sizes;
use program::{Along, Block, Change, Edit, Heads, Kind, Linear, Name, Op, Slip, Step};

/// Of longer operands nothing is solved for.
const MOST_ROWS: usize = 512;
/// So much work is done for all heads.
const MOST_WORK: usize = 1 << 31;
/// A product is wrong where it is off by so much of its largest number, and what is solved for gives it where nothing is.
const OFF: f64 = 1e-4;
/// A number that was recorded in f32 is off by so much of the largest, and what is solved for by as much as that grows.
const NOISE: f64 = 3e-7;
/// Where that is more of a usual number of an operand than this, it tells nothing.
const BLURRED: f64 = 0.05;
/// A solved number is the right one within so much of a usual one, beside what noise makes of it.
const NEAR: f64 = 1e-3;

/// Rows of fewer features are like others by chance.
const LEAST_FEATURES: usize = 4;

/// One operand of a product, and the step and the slot that read it.
struct Operand {
    at: Name,
    slot: usize,
    input: Name,
}

/// What the recorded numbers of a step say of the keys or values that it follows from.
///
/// # Errors
/// If candle fails.
pub fn candidates(scope: &Scope, at: Name, sizes: &Sizes) -> Result<Vec<Candidate>> {
    let mut all = Vec::new();
    let Some((found, expected)) = scope.pair(at) else { return Ok(all) };
    if found.dtype() == DType::F16 || found.dtype() == DType::BF16 {
        return Ok(all);
    }
    let mut known: Option<Name> = None;
    for operand in operands(scope, sizes) {
        // What is told of heads before they are repeated is true behind that.
        if known.is_some() && known == Some(operand.input) {
            continue;
        }
        let is_of_keys = scope.trace().step(operand.at).is_some_and(|step| {
            step.name == Name::KRepeated || step.op == Op::Linear(Linear::DotProduct)
        });
        let Some(right) = scope.known(operand.input) else { continue };
        let Some(read) = Read::solved(scope, at, &operand, is_of_keys, [found, expected, right])?
        else {
            continue;
        };
        let what = if is_of_keys { tr!("keys") } else { tr!("values") };
        for (other, slip) in read.others()? {
            let layout = Layout { dims: read.dims, parts: scope.trace().parts() };
            let Some(told) = told(&other, &layout, what) else { continue };
            let edits = vec![Edit::new(operand.at, Change::before(operand.slot, slip))];
            let summary = format!("{}: {told}", operand.at);
            known = Some(operand.at);
            all.push(Candidate::new(Kind::Axes, cost::FITTED, edits, summary));
        }
    }
    Ok(all)
}

/// The operands of products, before they are repeated for query heads, and behind that.
fn operands(scope: &Scope, sizes: &Sizes) -> Vec<Operand> {
    let mut all = Vec::new();
    for (at, slot, input) in products(scope.trace(), sizes) {
        if slot == 0 {
            continue;
        }
        let step = scope.trace().step(input);
        if let Some(step) = step.filter(|step| matches!(step.op, Op::Heads(Heads::Repeat { .. }))) {
            let first = scope.trace().read_by(step).first().map(|read| read.name);
            all.extend(first.map(|first| Operand { at: step.name, slot: 0, input: first }));
        }
        all.push(Operand { at, slot, input });
    }
    all
}

/// What a step gives for each row of an operand: its value where the operand is the identity.
fn response(scope: &Scope, at: Name, operand: &Operand, one: &Tensor) -> Option<Tensor> {
    let mut made: HashMap<Name, Tensor> = HashMap::new();
    for step in scope.trace().steps() {
        let is_reader = step.name == operand.at;
        if !is_reader && made.is_empty() {
            continue;
        }
        let read = scope.trace().read_by(step);
        let is_reached = is_reader || read.iter().any(|read| made.contains_key(&read.name));
        if is_reached && step.is_computed() {
            let value = |(slot, read): (usize, &&Step)| match made.get(&read.name) {
                Some(other) => Some(other.clone()),
                None if is_reader && slot == operand.slot => Some(one.clone()),
                None => wide(scope.known(read.name)?).ok(),
            };
            let inputs: Option<Vec<Tensor>> = read.iter().enumerate().map(value).collect();
            let inputs = inputs?;
            // What does not fit such an operand does not follow from it row by row.
            let value = step.op.eval(&inputs.iter().collect::<Vec<_>>()).ok()?;
            if step.name == at {
                return Some(value);
            }
            if scope.recorded(step.name).is_none() {
                made.insert(step.name, value);
            }
        }
        if step.name == at {
            break;
        }
    }
    None
}

fn wide(tensor: &Tensor) -> candle_core::Result<Tensor> {
    if tensor.dtype().is_float() { tensor.to_dtype(DType::F64) } else { Ok(tensor.clone()) }
}

/// An operand (item, head, token, feature) as it was read, beside the right one.
struct Read {
    dims: [usize; 4],
    right: Vec<f64>,
    found: Vec<f64>,
    /// How far each row may be off.
    slack: Vec<f64>,
}

impl Read {
    /// What was read; nothing where what was recorded does not say it.
    fn solved(
        scope: &Scope,
        at: Name,
        operand: &Operand,
        is_of_keys: bool,
        [found, expected, right]: [&Tensor; 3],
    ) -> Result<Option<Self>> {
        let (&[items, heads, tokens, width], &[.., of_items, of_heads, queries, columns]) =
            (right.dims(), found.dims())
        else {
            return Ok(None);
        };
        // Keys are the columns of what is solved for, values the rows.
        let (count, others) = if is_of_keys { (width, tokens) } else { (tokens, width) };
        let is_told = width >= LEAST_FEATURES;
        if !is_told || of_items != items || columns != others || heads == 0 || of_heads % heads > 0
        {
            return Ok(None);
        }
        let layers = found.elem_count() / (items * of_heads * queries * columns).max(1);
        let group = of_heads / heads;
        let rows = layers * group * queries;
        let work = rows.saturating_mul(count * (count + others)).saturating_mul(items * heads);
        if rows < count || count > MOST_ROWS || work > MOST_WORK || count == 0 {
            return Ok(None);
        }
        let one = Tensor::eye(count, DType::F64, right.device())?;
        let one = one.broadcast_as((items, heads, count, count))?.contiguous()?;
        let Some(known) = response(scope, at, operand, &one) else { return Ok(None) };
        if known.elem_count() != layers * items * of_heads * queries * count {
            return Ok(None);
        }
        let [known, found, expected, right] = [&known, found, expected, right].map(cells);
        let (known, found, expected, right) = (known?, found?, expected?, right?);
        let usual = (right.iter().map(|own| own * own).sum::<f64>() / right.len() as f64).sqrt();
        let mut read = Self {
            dims: [items, heads, tokens, width],
            found: right.clone(),
            right,
            slack: vec![NEAR * usual; items * heads * tokens],
        };
        let mut is_off = false;
        for (item, head) in (0..items).flat_map(|item| (0..heads).map(move |head| (item, head))) {
            let places = (0..layers).flat_map(|layer| {
                (0..group * queries).map(move |row| {
                    ((layer * items + item) * of_heads + head * group) * queries + row
                })
            });
            let places: Vec<usize> = places.collect();
            let of = |all: &[f64], width: usize| -> Vec<Vec<f64>> {
                places.iter().map(|at| all[at * width..(at + 1) * width].to_vec()).collect()
            };
            let (found, expected) = (of(&found, columns), of(&expected, columns));
            let size = expected.iter().flatten().fold(0.0, |most: f64, own| most.max(own.abs()));
            let mut pairs = found.iter().flatten().zip(expected.iter().flatten());
            if pairs.all(|(own, right)| (own - right).abs() <= OFF * size) {
                continue;
            }
            is_off = true;
            let Some(solved) = least_squares(&of(&known, count), &found) else { return Ok(None) };
            if solved.rest.is_nan() || solved.rest > OFF * size {
                return Ok(None);
            }
            let first = (item * heads + head) * tokens;
            if !read.put(&solved, first, is_of_keys, [usual, NOISE * size]) {
                return Ok(None);
            }
        }
        Ok(is_off.then_some(read))
    }

    /// Takes what is solved for as the rows from the first on; not where noise blurs it.
    fn put(
        &mut self,
        solved: &Solved,
        first: usize,
        is_of_keys: bool,
        [usual, noise]: [f64; 2],
    ) -> bool {
        let width = self.dims[3];
        for (row, (own, growth)) in solved.rows.iter().enumerate() {
            let slack = NEAR * usual + noise * growth;
            if slack > BLURRED * usual {
                return false;
            }
            for (column, number) in own.iter().enumerate() {
                let (token, feature) = if is_of_keys { (column, row) } else { (row, column) };
                self.found[(first + token) * width + feature] = *number;
                let own = &mut self.slack[first + token];
                *own = own.max(slack);
            }
        }
        true
    }

    fn rows(&self) -> usize {
        self.slack.len()
    }

    fn row<'v>(&self, all: &'v [f64], at: usize) -> &'v [f64] {
        let width = self.dims[3];
        &all[at * width..(at + 1) * width]
    }

    fn is(&self, at: usize, other: &[f64]) -> bool {
        are_near(self.row(&self.found, at), other, 0.0, self.slack[at])
    }

    /// What it is in place of the right one, the plainest first, and the operation that makes that of it.
    fn others(&self) -> Result<Vec<(Other, Slip)>> {
        let wrong: Vec<usize> =
            (0..self.rows()).filter(|at| !self.is(*at, self.row(&self.right, *at))).collect();
        if wrong.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(found) = self.taken(&wrong).or_else(|| self.turned()) {
            return Ok(vec![found]);
        }
        let scaled = self.scaled(&wrong)?;
        let found = if scaled.is_some() { scaled } else { self.shifted(&wrong)? };
        Ok(found.into_iter().collect())
    }

    /// Rows that are others, or zeros.
    fn taken(&self, wrong: &[usize]) -> Option<(Other, Slip)> {
        let width = self.dims[3];
        let none = vec![0.0; width];
        let from = |at: usize| {
            if !wrong.contains(&at) {
                return Some(Some(at));
            }
            // Those of the same head are the nearest.
            let tokens = self.dims[2];
            let own = at / tokens * tokens;
            let rows = (own..own + tokens).chain((0..own).chain(own + tokens..self.rows()));
            let mut rows = rows.filter(|other| self.is(at, self.row(&self.right, *other)));
            rows.next().map(Some).or_else(|| self.is(at, &none).then_some(None))
        };
        let from: Vec<Option<usize>> = (0..self.rows()).map(from).collect::<Option<_>>()?;
        let memory = self.right.len();
        let places = from.iter().flat_map(|from| {
            (0..width).map(move |feature| from.map_or(memory, |from| from * width + feature))
        });
        let slip = Slip::Elsewhere(places.collect());
        Some((Other::Rows(from), slip))
    }

    /// Features in another order, the same in all rows.
    fn turned(&self) -> Option<(Other, Slip)> {
        let width = self.dims[3];
        let is_it = |own: usize, other: usize| {
            (0..self.rows()).all(|at| {
                let apart = self.row(&self.found, at)[own] - self.row(&self.right, at)[other];
                apart.abs() <= self.slack[at]
            })
        };
        let from =
            |own: usize| std::iter::once(own).chain(0..width).find(|other| is_it(own, *other));
        let from: Vec<usize> = (0..width).map(from).collect::<Option<_>>()?;
        Some((Other::Features(from.clone()), Slip::Along(3, Along::Take(from))))
    }

    /// Rows that are multiplied by numbers.
    fn scaled(&self, wrong: &[usize]) -> Result<Option<(Other, Slip)>> {
        let mut factors = vec![1.0; self.rows()];
        for at in wrong {
            let right = self.row(&self.right, *at);
            let factor = ratio(self.row(&self.found, *at), right);
            let scaled: Vec<f64> = right.iter().map(|own| factor * own).collect();
            if !factor.is_finite() || !self.is(*at, &scaled) {
                return Ok(None);
            }
            factors[*at] = factor;
        }
        // Numbers that are one are told, and multiplied, as one.
        let mut known: Vec<f64> = vec![1.0];
        for factor in &mut factors {
            let is_it = |known: &&f64| (*known - *factor).abs() <= 2.0 * NEAR * factor.abs();
            match known.iter().find(is_it) {
                Some(known) => *factor = *known,
                None => known.push(*factor),
            }
        }
        if known.len() > self.rows().div_ceil(2) {
            return Ok(None);
        }
        let [items, heads, tokens, _] = self.dims;
        let cells = Tensor::from_vec(factors.clone(), (items, heads, tokens, 1), &Device::Cpu)?;
        Ok(Some((Other::Times(factors), Slip::Rescaled(Block { cells, fill: 0.0 }))))
    }

    /// Rows to which the same is added throughout runs of tokens, as where a mean is taken out.
    fn shifted(&self, wrong: &[usize]) -> Result<Option<(Other, Slip)>> {
        let [items, heads, tokens, width] = self.dims;
        let apart = |at: usize| -> Vec<f64> {
            let pairs = self.row(&self.found, at).iter().zip(self.row(&self.right, at));
            pairs.map(|(own, right)| own - right).collect()
        };
        let (mut runs, mut added): (Vec<(usize, usize)>, Vec<f64>) = (Vec::new(), Vec::new());
        for at in 0..self.rows() {
            let own = if wrong.contains(&at) { apart(at) } else { vec![0.0; width] };
            let before = runs.last().copied().filter(|_| at % tokens > 0);
            let first = before.map(|(first, _)| added[first * width..(first + 1) * width].to_vec());
            let is_it = |before: &Vec<f64>| are_near(&own, before, 0.0, 2.0 * self.slack[at]);
            if let Some(before) = first.filter(is_it) {
                added.extend(before);
                if let Some((_, end)) = runs.last_mut() {
                    *end = at + 1;
                }
            } else {
                added.extend(own);
                runs.push((at, at + 1));
            }
        }
        if runs.len() > self.rows().div_ceil(4) {
            return Ok(None);
        }
        let mean_of = |(first, end): (usize, usize)| -> Vec<f64> {
            let of = |feature: usize| {
                let sum: f64 = (first..end).map(|at| self.row(&self.right, at)[feature]).sum();
                sum / (end - first) as f64
            };
            (0..width).map(of).collect()
        };
        let is_less_mean = runs.iter().filter(|(first, _)| wrong.contains(first)).all(|run| {
            let less: Vec<f64> = mean_of(*run).iter().map(|own| -own).collect();
            are_near(
                &added[run.0 * width..(run.0 + 1) * width],
                &less,
                0.0,
                2.0 * self.slack[run.0],
            )
        });
        let runs = runs.into_iter().filter(|(first, _)| wrong.contains(first)).collect();
        let cells = Tensor::from_vec(added, (items, heads, tokens, width), &Device::Cpu)?;
        let slip = Slip::Counted(Block { cells, fill: 0.0 });
        Ok(Some((Other::Plus { runs, is_less_mean }, slip)))
    }
}
