//! Keys and values beside those of tokens, as `nn.MultiheadAttention` appends them (`add_bias_kv`, `add_zero_attn`).

use candle_core::Tensor;

use super::collect::Collect;
use super::scaling::number;
use crate::adjoint::Adjoint;
use crate::axis::Axis::{Key, Model};
use crate::axis::{Axes, Dim};
use crate::misread::{Misread, read};
use crate::operation::Operation;
use crate::pattern::{Multiplier, Pattern, Place, Products, Read, When};
use base::error::Result;

/// What is added to the keys and values of tokens, and to what is said of those.
#[derive(Debug, Clone, PartialEq)]
pub enum Added {
    /// (batch, head, key, `head_dim`) and (model): behind the keys of every head its features of a learned one.
    Learned,
    /// (batch, head, key, `head_dim`): behind the keys of every head one of zeros.
    Zeros,
    /// A mask, or a bias of scores, and behind it a column of zeros for every added key: all see it.
    Columns {
        /// The keys of tokens, to which a mask of one column is spread.
        keys: usize,
        /// The columns that are added.
        count: usize,
        /// Whether nobody sees them, as it should not be.
        is_blocked: bool,
    },
}

impl Operation for Added {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [first, ..] = inputs else { return Err(Misread.into()) };
        Ok(match self {
            Self::Learned => {
                let [heads, learned] = read(inputs)?;
                let (batch, count, _, head_dim) = heads.dims4()?;
                let row = learned.reshape((1, count, 1, head_dim))?;
                let row = row.broadcast_as((batch, count, 1, head_dim))?.contiguous()?;
                Tensor::cat(&[heads, &row], 2)?
            }
            Self::Zeros => first.pad_with_zeros(2, 0, 1)?,
            Self::Columns { keys, count, is_blocked } => {
                let [leading @ .., _] = first.dims() else { return Err(Misread.into()) };
                let mask = first.broadcast_as([leading, &[*keys]].concat())?.contiguous()?;
                let fill = match (is_blocked, first.dtype().is_float()) {
                    (false, _) => 0.0,
                    (true, true) => f64::NEG_INFINITY,
                    (true, false) => 1.0,
                };
                let columns = number(fill, first)?.broadcast_as([leading, &[*count]].concat())?;
                Tensor::cat(&[mask, columns.contiguous()?], leading.len())?
            }
        })
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match (self, inputs) {
            (Self::Learned, [[b, (h, heads), (Key, keys), (d, size)], [(Model, width)]])
                if heads.checked_mul(*size) == Some(*width) =>
            {
                Ok(vec![*b, (*h, *heads), (Key, keys.saturating_add(1)), (*d, *size)])
            }
            // What else is there it does not read.
            (Self::Zeros, [[b, h, (Key, keys), d], ..]) => {
                Ok(vec![*b, *h, (Key, keys.saturating_add(1)), *d])
            }
            (Self::Columns { keys, count, .. }, [[leading @ .., (Key, own)]])
                if own == keys || *own == 1 =>
            {
                Ok([leading, &[(Key, keys.saturating_add(*count))]].concat())
            }
            (Self::Learned | Self::Zeros | Self::Columns { .. }, _) => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [first, others @ ..] = names else { return Err(Misread) };
        Ok(match self {
            Self::Learned => {
                let [other] = read(others)?;
                tr!("{one}, then {other}, in every head", one = first, other)
            }
            Self::Zeros => tr!("{first}, then zeros", first),
            Self::Columns { count, .. } => {
                let columns = if *count == 1 { tr!("a column") } else { tr!("two columns") };
                tr!("{first}, then {columns} of zeros", first, columns)
            }
        })
    }

    fn adjoint(&self, input: usize, inputs: &[&Axes], value: &Axes) -> Adjoint {
        let Some(own) = inputs.get(input) else { return Adjoint::Nothing };
        let whole: Vec<Dim> = value.iter().collect();
        let [leading @ .., (_, all)] = whole.as_slice() else { return Adjoint::Nothing };
        let collect = |slice, view: Vec<Dim>, over| {
            let axes = own.iter().collect();
            Adjoint::on_gradient(Collect { slice: Some(slice), view, over, axes })
        };
        match (self, input) {
            (Self::Learned | Self::Zeros, 0) => Collect::of_slice(value, (2, 0), own),
            (Self::Learned, _) => {
                let mut view = whole.clone();
                let last = view.get_mut(2).map(|dim| std::mem::replace(&mut dim.1, 1));
                collect((2, last.unwrap_or(1).saturating_sub(1)), view, vec![0])
            }
            (Self::Zeros, _) => Adjoint::Nothing,
            (Self::Columns { keys, .. }, _) => {
                let is_spread = own.last_size() == 1 && *all > 1;
                let over = if is_spread { vec![leading.len()] } else { Vec::new() };
                collect((leading.len(), 0), [leading, &[(Key, *keys)]].concat(), over)
            }
        }
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let Some(first) = inputs.first().map(|axes| axes.shape()) else { return Pattern::ByCell };
        let number = |name: &str, value| Multiplier::Number(name.to_owned(), value, None);
        match (self, first.as_slice()) {
            (Self::Learned, &[_, heads, _, head_dim]) => {
                let of_head = Place::listed(1, (0..heads).map(|head| head * head_dim));
                let learned = Read::of(1, [of_head.and(Place::on(3))]);
                Pattern::behind(inputs, (2, 1), learned)
            }
            (Self::Zeros, _) => Pattern::behind(inputs, (2, 1), number("0", 0.0)),
            (Self::Columns { keys, count, is_blocked }, [leading @ .., own]) => {
                let last = leading.len();
                let place = |axis| Place::on(axis);
                let key = if own == keys { place(last) } else { Place::fixed() };
                let read = Read::of(0, (0..last).map(place).chain([key]).collect::<Vec<_>>());
                let beside = match is_blocked {
                    true => number("-inf", f64::NEG_INFINITY),
                    false => number("0", 0.0),
                };
                Pattern::Sum(vec![
                    Products::one([read.into()]).when(When::Within(last, [0, *keys])),
                    Products::one([beside]).when(When::Within(last, [*keys, keys + count])),
                ])
            }
            (Self::Learned | Self::Columns { .. }, _) => Pattern::ByCell,
        }
    }
}
