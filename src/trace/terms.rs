//! How one number came about: the terms that an operation adds up, and their factors.

use std::str::FromStr;

use candle_core::{DType, IndexOp, Tensor};

use super::op::Op;
use super::program::{Step, Trace};
use crate::config::{EmptyRows, Rope, root};
use crate::error::{Error, Result, near_miss};
use crate::source::dropout_scale;

/// A factor of a term.
#[derive(Debug, Clone, PartialEq)]
pub struct Factor {
    /// What it is: `q_heads[0,1,2,0]`, `1 / √4`.
    pub name: String,
    /// Its value.
    pub value: f64,
}

/// A product of factors. A number is the sum of its terms.
#[derive(Debug, Clone, PartialEq)]
pub struct Term(pub Vec<Factor>);

impl Term {
    /// The product.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.0.iter().map(|factor| factor.value).product()
    }
}

/// A cell of a step, written as `scores[0,1,2,3]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The step's name.
    pub step: String,
    /// An index an axis, outermost first.
    pub index: Vec<usize>,
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.trim().strip_suffix(']').and_then(|text| text.split_once('['));
        let wrong = || format!("`{text}` is no cell such as scores[0,1,2,3]");
        let (step, index) = parts.ok_or_else(wrong)?;
        let index: Result<Vec<usize>, _> = index.split(',').map(|at| at.trim().parse()).collect();
        Ok(Self { step: step.trim().to_owned(), index: index.map_err(|_| wrong())? })
    }
}

impl Trace {
    /// The step of a cell, its value there, and the terms that add up to it; none of what is given.
    ///
    /// # Errors
    /// If there is no such step, or no such cell in it.
    pub fn explain(&self, cell: &Cell) -> Result<(&Step, f64, Vec<Term>)> {
        let step = self.step(&cell.step).ok_or_else(|| {
            let names: Vec<&str> = self.steps().iter().map(|step| step.name.as_str()).collect();
            let fix = match near_miss(&cell.step, &names) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("this run has {}", names.join(", ")),
            };
            Error::config(format!("this run has no step {}", cell.step), fix)
        })?;
        let sizes = step.axes.shape();
        let is_there = sizes.len() == cell.index.len()
            && cell.index.iter().zip(&sizes).all(|(at, size)| at < size);
        if !is_there {
            let what = format!("has no cell {:?}: it is {}", cell.index, step.axes);
            let fix = "give an index an axis, counted from 0";
            return Err(Error::tensor(&step.name, what, fix));
        }
        let read = self.read_by(step);
        let inputs: Vec<Input> =
            read.iter().map(|step| Input { name: &step.name, tensor: &step.value }).collect();
        let value = Input { name: &step.name, tensor: &step.value }.at(&cell.index)?.value;
        Ok((step, value, step.op.terms(&inputs, &cell.index)?))
    }
}

/// A tensor that an operation reads, and its name.
#[derive(Clone, Copy)]
struct Input<'a> {
    name: &'a str,
    tensor: &'a Tensor,
}

impl Input<'_> {
    fn at(&self, index: &[usize]) -> Result<Factor> {
        let mut value = self.tensor.clone();
        for at in index {
            value = value.i(*at)?;
        }
        let value = value.to_dtype(DType::F64)?.to_scalar()?;
        let index: Vec<String> = index.iter().map(ToString::to_string).collect();
        Ok(Factor { name: format!("{}[{}]", self.name, index.join(",")), value })
    }

    /// The cell that is broadcast to `index`.
    fn broadcast_at(&self, index: &[usize]) -> Result<Factor> {
        let skipped = index.len().saturating_sub(self.tensor.rank());
        let own = index.iter().skip(skipped).zip(self.tensor.dims());
        self.at(&own.map(|(at, size)| if *size == 1 { 0 } else { *at }).collect::<Vec<_>>())
    }

    /// The values along the last axis.
    fn row(&self, index: &[usize]) -> Result<Vec<f64>> {
        let mut row = self.tensor.clone();
        for at in index {
            row = row.i(*at)?;
        }
        Ok(row.to_dtype(DType::F64)?.to_vec1()?)
    }
}

fn factor(name: impl Into<String>, value: f64) -> Factor {
    Factor { name: name.into(), value }
}

impl Op {
    /// The terms whose sum is the value at a cell of this operation's result.
    fn terms(&self, inputs: &[Input], cell: &[usize]) -> Result<Vec<Term>> {
        let one = |factors: Vec<Factor>| Ok(vec![Term(factors)]);
        match (*self, inputs, cell) {
            (Self::Project { rows, .. }, [x, w, bias @ ..], &[b, t, o]) => {
                let t = t + rows.map_or(0, |rows| rows.first);
                let inner = 0..w.tensor.dim(1)?;
                let terms = inner.map(|i| Ok(Term(vec![x.at(&[b, t, i])?, w.at(&[o, i])?])));
                let bias = bias.iter().map(|bias| Ok(Term(vec![bias.at(&[o])?])));
                terms.chain(bias).collect()
            }
            (Self::SplitHeads { heads }, [x], &[b, h, t, d]) => {
                let head_dim = x.tensor.dim(2)? / heads;
                one(vec![x.at(&[b, t, h * head_dim + d])?])
            }
            (Self::RmsNorm { eps }, [heads, w], &[b, h, t, d]) => {
                let row = heads.row(&[b, h, t])?;
                #[allow(clippy::cast_precision_loss, reason = "a head has few features")]
                let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
                let norm = factor("1 / √(mean of squares + ε)", (mean + eps).sqrt().recip());
                one(vec![heads.at(cell)?, norm, w.at(&[d])?])
            }
            (Self::Rotate { .. }, [heads, freqs], _) => self.turned(heads, freqs, cell),
            (Self::Append, [past, own], &[b, h, t, d]) => {
                let cached = past.tensor.dim(2)?;
                one(vec![match t.checked_sub(cached) {
                    None => past.at(cell)?,
                    Some(own_t) => own.at(&[b, h, own_t, d])?,
                }])
            }
            (Self::RepeatHeads { times }, [heads], &[b, h, t, d]) => {
                one(vec![heads.at(&[b, h / times, t, d])?])
            }
            (Self::DotProduct, [queries, keys], &[b, h, q, k]) => {
                let inner = 0..keys.tensor.dim(3)?;
                let term = |d| Ok(Term(vec![queries.at(&[b, h, q, d])?, keys.at(&[b, h, k, d])?]));
                inner.map(term).collect()
            }
            (Self::Scale { head_dim }, [scores], _) => one(vec![
                scores.at(cell)?,
                factor(format!("1 / √{head_dim}"), root(head_dim).recip()),
            ]),
            (Self::ScaleBy { factor: by }, [scores], _) => {
                one(vec![scores.at(cell)?, factor("scale", by)])
            }
            (Self::SoftCap { cap }, [scores], _) => {
                let score = scores.at(cell)?;
                let name = format!("tanh({} / {cap})", score.name);
                one(vec![factor("softcap", cap), factor(name, (score.value / cap).tanh())])
            }
            (Self::AddMask, [scores, mask], _) => {
                Ok(vec![Term(vec![scores.at(cell)?]), Term(vec![mask.broadcast_at(cell)?])])
            }
            (Self::MaskFill { fill }, [scores, mask], _) => {
                let blocked = mask.broadcast_at(cell)?;
                one(vec![if blocked.value == 0.0 {
                    scores.at(cell)?
                } else {
                    factor(format!("mask_fill, as {} blocks", blocked.name), fill.0)
                }])
            }
            (Self::Softmax { empty_rows }, [scores], [rows @ .., _]) => {
                let row = scores.row(rows)?;
                let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                if empty_rows == EmptyRows::Zero && row.iter().all(|s| *s == f64::NEG_INFINITY) {
                    return one(vec![factor("0, as every key is blocked", 0.0)]);
                }
                let sum: f64 = row.iter().map(|score| (score - largest).exp()).sum();
                let score = scores.at(cell)?;
                let own =
                    factor(format!("exp({} − max)", score.name), (score.value - largest).exp());
                one(vec![own, factor("1 / Σ exp(s − max) over keys", sum.recip())])
            }
            (Self::Dropout { p }, [weights, keep], _) => {
                let scale = factor("1 / (1 − p)", f64::from(dropout_scale(p)));
                one(vec![weights.at(cell)?, keep.at(cell)?, scale])
            }
            (Self::WeightedSum, [weights, values], &[b, h, q, d]) => {
                let keys = 0..values.tensor.dim(2)?;
                let term =
                    |k| Ok(Term(vec![weights.at(&[b, h, q, k])?, values.at(&[b, h, k, d])?]));
                keys.map(term).collect()
            }
            (Self::MergeHeads, [heads], &[b, t, model]) => {
                let head_dim = heads.tensor.dim(3)?;
                one(vec![heads.at(&[b, model / head_dim, t, model % head_dim])?])
            }
            _ => Ok(Vec::new()),
        }
    }

    /// A turned feature: itself times the cosine, and its partner times the sine, of the pair's angle.
    fn turned(&self, heads: &Input, freqs: &Input, cell: &[usize]) -> Result<Vec<Term>> {
        let (Self::Rotate { pairing, first, factor: by }, &[b, h, t, d]) = (*self, cell) else {
            return Ok(Vec::new());
        };
        let pairs = freqs.tensor.dim(0)?;
        if d >= 2 * pairs {
            return Ok(vec![Term(vec![heads.at(cell)?])]);
        }
        let (pair, partner, is_first) = match pairing {
            Rope::Half if d < pairs => (d, d + pairs, true),
            Rope::Half => (d - pairs, d - pairs, false),
            Rope::Interleaved => (d / 2, d ^ 1, d % 2 == 0),
        };
        let frequency = freqs.at(&[pair])?;
        let position = first + t;
        #[allow(clippy::cast_precision_loss, reason = "positions are below 2^24")]
        let angle = position as f64 * frequency.value;
        // As it is multiplied: in the type of the run.
        #[allow(clippy::cast_possible_truncation, reason = "the product is rounded so")]
        let angle =
            if freqs.tensor.dtype() == DType::F32 { f64::from(angle as f32) } else { angle };
        let name = format!("{position} · {}", frequency.name);
        let (sign, minus) = if is_first { (-1.0, "−") } else { (1.0, "") };
        let mut terms = vec![
            Term(vec![heads.at(cell)?, factor(format!("cos({name})"), angle.cos())]),
            Term(vec![
                heads.at(&[b, h, t, partner])?,
                factor(format!("{minus}sin({name})"), sign * angle.sin()),
            ]),
        ];
        #[allow(clippy::float_cmp, reason = "1 exactly")]
        if by != 1.0 {
            for term in &mut terms {
                term.0.push(factor("attention factor", by));
            }
        }
        Ok(terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_reads() {
        let cell = Cell { step: "scores".to_owned(), index: vec![0, 1, 2, 3] };
        assert_eq!("scores[0,1,2,3]".parse(), Ok(cell.clone()));
        assert_eq!(" scores[0, 1,2, 3] ".parse(), Ok(cell));
        for text in ["scores", "scores[]", "scores[a]", "scores[0", "scores[-1]"] {
            assert!(text.parse::<Cell>().is_err(), "{text}");
        }
    }
}
