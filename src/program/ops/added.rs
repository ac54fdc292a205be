//! Keys and values beside those of tokens, as `nn.MultiheadAttention` appends them (`add_bias_kv`, `add_zero_attn`).

use candle_core::Tensor;

use super::scaling::number;
use crate::axis::Axis::{Key, Model};
use crate::axis::{Axes, Dim};
use crate::narrow::{Narrowed, Part};
use crate::op::{Misread, Operation, at, read};
use crate::slips::{Kind, Sibling};
use crate::terms::{Term, Value, factor};
use base::error::Result;

/// What is added to the keys and values of tokens, and to what is said of those.
#[derive(Debug, Clone, PartialEq)]
pub enum Added {
    /// (batch, head, key, `head_dim`) and (model): behind the keys of every head its features of a learned one.
    Learned {
        /// Whether it stands in front of them, as it should not.
        is_first: bool,
    },
    /// (batch, head, key, `head_dim`): behind the keys of every head one of zeros.
    Zeros {
        /// Whether it stands in front of them, as it should not.
        is_first: bool,
    },
    /// A mask, or a bias of scores, and behind it a column of zeros for every added key: all see it.
    Columns {
        /// The keys of tokens, to which a mask of one column is spread.
        keys: usize,
        /// The columns that are added.
        count: usize,
        /// Where they stand and what is in them.
        column: Column,
    },
    /// Scores (batch, head, query, key), −∞ at these keys, as they should not be: as if there were none.
    Hide {
        /// The first of them.
        from: usize,
        /// How many there are.
        count: usize,
    },
}

/// A column that is added to masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Everybody sees it.
    Seen,
    /// Nobody does, as it should not be.
    Blocked,
    /// Everybody sees it, and it stands in front of the others, as it should not.
    First,
}

impl Added {
    /// The value with one more row of every head behind its own, or in front of them.
    fn beside(heads: &Tensor, row: &Tensor, is_first: bool) -> candle_core::Result<Tensor> {
        if is_first { Tensor::cat(&[row, heads], 2) } else { Tensor::cat(&[heads, row], 2) }
    }
}

impl Operation for Added {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [first, ..] = inputs else { return Err(Misread.into()) };
        Ok(match self {
            Self::Learned { is_first } => {
                let [heads, learned] = read(inputs)?;
                let (batch, count, _, head_dim) = heads.dims4()?;
                let row = learned.reshape((1, count, 1, head_dim))?;
                let row = row.broadcast_as((batch, count, 1, head_dim))?.contiguous()?;
                Self::beside(heads, &row, *is_first)?
            }
            Self::Zeros { is_first } => {
                let (batch, count, _, head_dim) = first.dims4()?;
                let shape = (batch, count, 1, head_dim);
                let row = Tensor::zeros(shape, first.dtype(), first.device())?;
                Self::beside(first, &row, *is_first)?
            }
            Self::Columns { keys, count, column } => {
                let (leading, own) = match first.dims() {
                    [leading @ .., own] => (leading, *own),
                    [] => return Err(Misread.into()),
                };
                let whole = [leading, &[*keys]].concat();
                let mask =
                    if own == *keys { (*first).clone() } else { first.broadcast_as(whole)? };
                let shape = [leading, &[*count]].concat();
                let columns = match column {
                    Column::Seen | Column::First => {
                        Tensor::zeros(shape, first.dtype(), first.device())?
                    }
                    Column::Blocked if first.dtype().is_float() => {
                        number(f64::NEG_INFINITY, first)?.broadcast_as(shape)?.contiguous()?
                    }
                    Column::Blocked => Tensor::ones(shape, first.dtype(), first.device())?,
                };
                let (mask, last) = (mask.contiguous()?, leading.len());
                let both = if *column == Column::First { [columns, mask] } else { [mask, columns] };
                Tensor::cat(&both, last)?
            }
            Self::Hide { from, count } => {
                let keys = first.dim(3)?;
                let hidden = |key: usize| u8::from((*from..from + count).contains(&key));
                let mask = Tensor::from_iter((0..keys).map(hidden), first.device())?;
                let low = number(f64::NEG_INFINITY, first)?.broadcast_as(first.shape())?;
                mask.broadcast_as(first.shape())?.where_cond(&low, first)?
            }
        })
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match (self, inputs) {
            (Self::Learned { .. }, [[b, (h, heads), (Key, keys), (d, size)], [(Model, width)]])
                if heads.checked_mul(*size) == Some(*width) =>
            {
                Ok(vec![*b, (*h, *heads), (Key, keys.saturating_add(1)), (*d, *size)])
            }
            (Self::Zeros { .. }, [[b, h, (Key, keys), d]]) => {
                Ok(vec![*b, *h, (Key, keys.saturating_add(1)), *d])
            }
            (Self::Columns { keys, count, .. }, [[leading @ .., (Key, own)]])
                if own == keys || *own == 1 =>
            {
                Ok([leading, &[(Key, keys.saturating_add(*count))]].concat())
            }
            (Self::Hide { .. }, [scores @ [_, _, _, (Key, _)]]) => Ok(scores.to_vec()),
            (
                Self::Learned { .. }
                | Self::Zeros { .. }
                | Self::Columns { .. }
                | Self::Hide { .. },
                _,
            ) => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [first, ..] = names else { return Err(Misread) };
        Ok(match self {
            Self::Learned { is_first } => {
                let [heads, learned] = read(names)?;
                let (one, other) = if *is_first { (learned, heads) } else { (heads, learned) };
                tr!("{one}, then {other}, in every head", one, other)
            }
            Self::Zeros { is_first: false } => tr!("{first}, then zeros", first),
            Self::Zeros { is_first: true } => tr!("zeros, then {first}", first),
            Self::Columns { count, column, .. } => {
                let columns = if *count == 1 { tr!("a column") } else { tr!("two columns") };
                match column {
                    Column::Seen => tr!("{first}, then {columns} of zeros", first, columns),
                    Column::Blocked => {
                        tr!("{first}, then {columns} that nobody sees", first, columns)
                    }
                    Column::First => tr!("{columns} of zeros, then {first}", columns, first),
                }
            }
            Self::Hide { from, count } => {
                tr!(
                    "-inf at key {from} … {count}, else {first}",
                    from,
                    count = from + count.saturating_sub(1),
                    first
                )
            }
        })
    }

    /// The number that stands there.
    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let [first, beside @ ..] = inputs else { return Err(Misread.into()) };
        if let Self::Hide { from, count } = self {
            let hidden = cell.last().is_some_and(|key| (*from..from + count).contains(key));
            let blocked = || factor("-inf", f64::NEG_INFINITY);
            return Ok(vec![Term(vec![if hidden { blocked() } else { first.at(cell)? }])]);
        }
        if let Self::Columns { keys, count, column } = self {
            // A mask is told by its reasons.
            if !first.tensor.dtype().is_float() {
                return Ok(Vec::new());
            }
            let [leading @ .., key] = cell else { return Err(Misread.into()) };
            let skipped = if *column == Column::First { *count } else { 0 };
            let own = key.checked_sub(skipped).filter(|own| own < keys);
            return Ok(vec![Term(vec![match own {
                Some(own) => first.broadcast_at(&[leading, &[own]].concat())?,
                None if *column == Column::Blocked => factor("-inf", f64::NEG_INFINITY),
                None => factor("0", 0.0),
            }])]);
        }
        let [b, head, key, feature] = at(cell)?;
        let (keys, head_dim) = (first.tensor.dim(2)?, first.tensor.dim(3)?);
        let is_first =
            matches!(self, Self::Learned { is_first: true } | Self::Zeros { is_first: true });
        let own = if is_first { key.checked_sub(1) } else { Some(key).filter(|key| *key < keys) };
        Ok(vec![Term(vec![match (own, beside) {
            (Some(own), _) => first.at(&[b, head, own, feature])?,
            (None, [learned]) => learned.at(&[head * head_dim + feature])?,
            (None, _) => factor("0", 0.0),
        }])])
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }

    fn siblings(&self, _: &[&Axes]) -> Vec<Sibling> {
        let in_front = tr!("the added key stands in front of the others");
        match self {
            Self::Learned { is_first: false } => {
                let first = Self::Learned { is_first: true };
                let zeros = Self::Zeros { is_first: false };
                let told = tr!("zeros are appended in place of what was learned");
                vec![
                    Sibling::new(zeros, Kind::Replaced, told),
                    Sibling::new(first, Kind::Axes, in_front),
                ]
            }
            Self::Zeros { is_first: false } => {
                vec![Sibling::new(Self::Zeros { is_first: true }, Kind::Axes, in_front)]
            }
            Self::Columns { column: Column::Seen, keys, count } => {
                let with = |column| Self::Columns { keys: *keys, count: *count, column };
                let blocked = tr!("nobody sees the added keys: they are not appended, \
                    or their columns are padded as blocked");
                let first =
                    tr!("the columns of the added keys stand in front of the mask, not behind it");
                vec![
                    Sibling::new(with(Column::Blocked), Kind::Mask, blocked),
                    Sibling::new(with(Column::First), Kind::Mask, first),
                ]
            }
            Self::Learned { .. }
            | Self::Zeros { .. }
            | Self::Columns { .. }
            | Self::Hide { .. } => Vec::new(),
        }
    }

    fn narrowed(&self, _: Part, _: &[&Axes], _: &Axes) -> Narrowed {
        Narrowed::Same
    }
}
