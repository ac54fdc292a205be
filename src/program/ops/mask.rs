//! Which keys a query may not see, and what becomes of their scores.

use candle_core::{Device, Tensor};

use super::blocked_keys::BlockedKeys;
use super::documents::Documents;
use super::fill::Fill;
use super::hidden::Mask;
use super::position::ByPosition;
use super::scaling::number;
use super::selected::Selected;
use crate::adjoint::{Adjoint, Operand};
use crate::axis::{Axes, Dim};
use crate::misread::{Misread, read};
use crate::operation::{Facts, Operation};
use crate::part::Part;
use crate::pattern::{Multiplier, Pattern, Products, Read, When};
use crate::rows::Rows;
use crate::terms::Reason;
use base::error::Result;

/// Masks, true = blocked, and their use.
#[derive(Debug, Clone, PartialEq)]
pub enum Masking {
    /// (query, key): true where a key is hidden by its position.
    ByPosition(ByPosition),
    /// True where nobody may see the key: (batch, 1, 1, key).
    Keys(BlockedKeys),
    /// (batch, 1, query, key): true where a key is of another document.
    Documents(Documents),
    /// (batch, head, query, key): true where a key was not chosen for the query.
    Selected(Selected),
    /// True where any of several masks is, broadcast from the right.
    AnyOf,
    /// True where a mask is not.
    Not,
    /// The fill where the mask is true, the score elsewhere. Reads scores and a boolean mask.
    Fill {
        /// What a masked score becomes.
        fill: Fill,
    },
}

impl Masking {
    fn mask(&self) -> Option<&dyn Mask> {
        match self {
            Self::ByPosition(mask) => Some(mask),
            Self::Keys(mask) => Some(mask),
            Self::Documents(mask) => Some(mask),
            Self::Selected(mask) => Some(mask),
            Self::AnyOf | Self::Not | Self::Fill { .. } => None,
        }
    }

    /// Why a cell of a mask is true; nothing where it is not, or where the operation only hands on what others say.
    pub fn reason(&self, cell: &[usize]) -> Option<Reason> {
        let ([.., query, key], item) = (cell, cell.first()?) else { return None };
        let head = cell.get(1).filter(|_| cell.len() == 4).copied().unwrap_or_default();
        self.mask()?.reason([*item, head, *query, *key])
    }
}

impl Operation for Masking {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(match self {
            Self::ByPosition(_) | Self::Keys(_) | Self::Documents(_) | Self::Selected(_) => {
                let mask = self.mask().ok_or(Misread)?;
                let shape: Vec<usize> = mask.axes().into_iter().map(|(_, size)| size).collect();
                Tensor::from_vec(mask.cells(), shape, &Device::Cpu)?
            }
            Self::AnyOf => {
                let [first, others @ ..] = inputs else { return Err(Misread.into()) };
                let join = |all: Tensor, mask: &&Tensor| all.broadcast_maximum(mask);
                others.iter().try_fold((*first).clone(), join)?
            }
            Self::Not => read::<1, _>(inputs)?[0].eq(0_u8)?,
            Self::Fill { fill } => {
                let [scores, mask] = read(inputs)?;
                filled(scores, mask, fill.0)?
            }
        })
    }

    #[allow(clippy::cast_possible_truncation, reason = "the type of the scores")]
    fn rows<'a>(&'a self, read: &[usize], others: &[&'a Tensor]) -> Option<Rows<'a>> {
        let (Self::Fill { fill }, [mask]) = (self, others) else { return None };
        let fill = fill.0 as f32;
        Rows::with(read, mask, move |score, blocked: u8| if blocked == 0 { score } else { fill })
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match self {
            Self::ByPosition(_) | Self::Keys(_) | Self::Documents(_) | Self::Selected(_) => {
                let [] = read(inputs)?;
                Ok(self.mask().ok_or(Misread)?.axes())
            }
            Self::AnyOf => joined(inputs),
            Self::Not => Ok(read::<1, _>(inputs)?[0].to_vec()),
            Self::Fill { .. } => {
                let [scores, mask] = read(inputs)?;
                if broadcasts(mask, scores) { Ok(scores.to_vec()) } else { Err(Misread) }
            }
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        Ok(match self {
            Self::ByPosition(_) | Self::Keys(_) | Self::Documents(_) | Self::Selected(_) => {
                self.mask().ok_or(Misread)?.formula()
            }
            Self::AnyOf => return Err(Misread),
            Self::Not => tr!("not {names}", names = names.join(", ")),
            Self::Fill { fill } => {
                let [scores, mask] = read(names)?;
                tr!("{fill} where {mask}, else {scores}", fill, mask, scores)
            }
        })
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let broadcast = |(input, axes): (usize, &&Axes)| {
            let rank = inputs.iter().map(|axes| axes.rank()).max().unwrap_or(0);
            Read::broadcast(input, axes, rank)
        };
        match self {
            Self::Fill { fill } => {
                let [scores, mask] = inputs else { return Pattern::ByCell };
                let mask = broadcast((1, mask));
                let name = tr!("mask_fill, as {blocked} blocks", blocked = "{}");
                let filled = Multiplier::Number(name, fill.0, Some(mask.clone()));
                Pattern::Sum(vec![
                    Products::one([Read::same(0, scores).into()])
                        .when(When::Is(mask.clone(), false)),
                    Products::one([filled]).when(When::Is(mask, true)),
                ])
            }
            Self::AnyOf => Pattern::Any(inputs.iter().enumerate().map(broadcast).collect()),
            // They are told by their reasons.
            Self::ByPosition(_)
            | Self::Keys(_)
            | Self::Documents(_)
            | Self::Selected(_)
            | Self::Not => Pattern::ByCell,
        }
    }

    fn adjoint(&self, input: usize, _: &[&Axes], _: &Axes) -> Adjoint {
        match (self, input) {
            (Self::Fill { .. }, 0) => {
                let zero = Self::Fill { fill: Fill(0.0) };
                Adjoint::of(zero, [Operand::Gradient, Operand::Input(1)])
            }
            (
                Self::Fill { .. }
                | Self::ByPosition(_)
                | Self::Keys(_)
                | Self::Documents(_)
                | Self::Selected(_)
                | Self::AnyOf
                | Self::Not,
                _,
            ) => Adjoint::Nothing,
        }
    }

    fn narrowed(&self, part: Part, _: &[&Axes], whole: &Axes) -> Option<Self> {
        match self {
            Self::ByPosition(mask) => Some(Self::ByPosition(mask.narrowed(part))),
            Self::Keys(mask) => mask.narrowed(part, whole).map(Self::Keys),
            Self::Documents(mask) => mask.narrowed(part).map(Self::Documents),
            Self::Selected(mask) => mask.narrowed(part).map(Self::Selected),
            Self::AnyOf | Self::Not | Self::Fill { .. } => Some(self.clone()),
        }
    }

    fn facts(&self) -> Facts {
        match self {
            Self::Fill { fill } => Facts { fill: Some(fill.0), ..Facts::default() },
            Self::ByPosition(_)
            | Self::Keys(_)
            | Self::Documents(_)
            | Self::Selected(_)
            | Self::AnyOf
            | Self::Not => Facts::default(),
        }
    }
}

/// A number where a mask is true, and the scores elsewhere.
pub(super) fn filled(scores: &Tensor, mask: &Tensor, fill: f64) -> candle_core::Result<Tensor> {
    let shape = scores.shape();
    let fill = number(fill, scores)?.broadcast_as(shape)?;
    mask.broadcast_as(shape)?.where_cond(&fill, scores)
}

/// The axes that several broadcast to, aligned from the right.
pub(super) fn joined(inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
    let mut all: Vec<Dim> = inputs.iter().max_by_key(|dims| dims.len()).ok_or(Misread)?.to_vec();
    for dims in inputs {
        for ((axis, size), (own_axis, own)) in all.iter_mut().rev().zip(dims.iter().rev()) {
            if axis != own_axis || (*size != *own && *size != 1 && *own != 1) {
                return Err(Misread);
            }
            *size = (*size).max(*own);
        }
    }
    Ok(all)
}

/// Whether a mask's axes, aligned from the right, each are the scores' or 1.
pub(super) fn broadcasts(mask: &[Dim], scores: &[Dim]) -> bool {
    joined(&[mask, scores]).is_ok_and(|all| all == scores)
}
