//! Numbers on their own: norms, scales, caps, clipping and gates.

use candle_core::Tensor;

use super::collect::Collect;
use super::few_bits::Dequantize;
use super::functions::Map;
use super::gradient::Gradient;
use super::norm::Norm;
use super::temperature::Temperature;
use crate::adjoint::Operand::{self, Gradient as Of, Input};
use crate::adjoint::{Adjoint, dims};
use crate::axis::{Axes, Dim, sizes};
use crate::misread::{Misread, read};
use crate::operation::{Facts, Operation};
use crate::part::Part;
use crate::pattern::{Function, Multiplier, Pattern, Products, Read};
use crate::rows::Rows;
use base::error::Result;

/// Numbers that are scaled, each or by rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Scaling {
    /// A norm.
    Norm(Norm),
    /// Scores / √`d_k`, or of n terms / √(n · `d_k`).
    Root {
        /// The features of a head, `d_k`.
        head_dim: usize,
        /// How many terms scores are the sum of.
        terms: usize,
    },
    /// Numbers · a factor: scores in place of 1/√`d_k`, or values.
    By {
        /// The factor.
        factor: f64,
    },
    /// C · tanh(scores / C): no score is beyond ±C ("Gemma 2", Gemma Team, 2024, section 2).
    SoftCap {
        /// C.
        cap: f64,
    },
    /// min(max(x, −C), C), as `torch.clamp` (`clip_qkv` of `OLMo` and MPT).
    Clip {
        /// C.
        limit: f64,
    },
    /// x · σ(gate) ("Gated Attention for Large Language Models", Qiu et al., 2025, equation 6). Reads x and the gate, of one
    /// shape.
    Gate {
        /// What the gate goes through.
        map: Map,
    },
    /// exp(factor · x): what is left of a state, by the logarithm of that.
    Exp {
        /// The factor, which should be 1.
        factor: f64,
    },
    /// A factor for every position.
    Temperature(Temperature),
    /// Numbers that are kept in few bits.
    Dequantize(Dequantize),
}

impl Scaling {
    /// What each number is multiplied by, if all are by the same.
    #[must_use]
    pub fn factor(&self) -> Option<f64> {
        match self {
            Self::Root { head_dim, terms } => Some(root(*head_dim, *terms).recip()),
            Self::By { factor } => Some(*factor),
            _ => None,
        }
    }
}

impl Operation for Scaling {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [x, others @ ..] = inputs else { return Err(Misread.into()) };
        Ok(match self {
            Self::Norm(norm) => norm.value(x, others)?,
            Self::Root { head_dim, terms } => {
                x.broadcast_div(&number(root(*head_dim, *terms), x)?)?
            }
            Self::By { factor } => x.broadcast_mul(&number(*factor, x)?)?,
            Self::SoftCap { cap } => {
                let cap = number(*cap, x)?;
                x.broadcast_div(&cap)?.tanh()?.broadcast_mul(&cap)?
            }
            Self::Clip { limit } => x.clamp(-*limit, *limit)?,
            Self::Gate { map } => x.mul(&map.value(read::<1, _>(others)?[0])?)?,
            Self::Exp { factor } => (*x * *factor)?.exp()?,
            Self::Temperature(temperature) => temperature.value(x)?,
            Self::Dequantize(own) => own.value(x, others)?,
        })
    }

    #[allow(clippy::cast_possible_truncation, reason = "the type of the numbers")]
    fn rows<'a>(&'a self, read: &[usize], _: &[&'a Tensor]) -> Option<Rows<'a>> {
        match self {
            Self::Root { head_dim, terms } => {
                let root = root(*head_dim, *terms) as f32;
                Rows::mapped(read, move |number| number / root)
            }
            Self::By { factor } => {
                let factor = *factor as f32;
                Rows::mapped(read, move |number| number * factor)
            }
            Self::Norm(_)
            | Self::SoftCap { .. }
            | Self::Clip { .. }
            | Self::Gate { .. }
            | Self::Exp { .. }
            | Self::Temperature(_)
            | Self::Dequantize(_) => None,
        }
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let [x, others @ ..] = inputs else { return Err(Misread) };
        let fits = match self {
            Self::Norm(norm) => return norm.axes(x, others),
            Self::Dequantize(_) => return Dequantize::axes(x, others),
            Self::Gate { .. } => others.len() == 1 && others.iter().all(|o| sizes(o) == sizes(x)),
            Self::Temperature(_) => others.is_empty() && x.len() == 4,
            Self::Root { .. }
            | Self::By { .. }
            | Self::SoftCap { .. }
            | Self::Clip { .. }
            | Self::Exp { .. } => others.is_empty(),
        };
        if fits { Ok(x.to_vec()) } else { Err(Misread) }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [x, others @ ..] = names else { return Err(Misread) };
        match self {
            Self::Norm(norm) => Ok(norm.formula(x, others)),
            Self::Root { terms, .. } => Ok(format!("{x} / {}", of_terms(*terms))),
            Self::Temperature(temperature) => Ok(temperature.formula(x)),
            Self::By { .. }
            | Self::SoftCap { .. }
            | Self::Clip { .. }
            | Self::Gate { .. }
            | Self::Exp { .. }
            | Self::Dequantize(_) => Err(Misread),
        }
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let Some(x) = inputs.first() else { return Pattern::ByCell };
        let own = || Read::same(0, x);
        let times = |name: String, by| vec![own().into(), Multiplier::Number(name, by, None)];
        let factors = match self {
            Self::Norm(norm) => return norm.pattern(inputs),
            Self::Root { head_dim, terms } => {
                let root = root(*head_dim, *terms);
                times(format!("1 / √{}", head_dim.saturating_mul(*terms)), root.recip())
            }
            Self::By { factor } => times("scale".to_owned(), *factor),
            Self::SoftCap { cap } => vec![
                Multiplier::Number("softcap".to_owned(), *cap, None),
                Multiplier::Of(format!("tanh({{}} / {cap})"), Function::Tanh(*cap), own()),
            ],
            Self::Clip { limit } => {
                let name = tr!("{own} within ±{limit}", own = "{}", limit);
                vec![Multiplier::Of(name, Function::Clip(*limit), own())]
            }
            Self::Gate { map } => {
                let (name, gate) = (format!("{}({{}})", map.name()), Read { input: 1, ..own() });
                vec![own().into(), Multiplier::Of(name, Function::Map(*map), gate)]
            }
            Self::Exp { .. } => {
                vec![Multiplier::Of("exp({})".to_owned(), Function::Map(Map::Exp), own())]
            }
            Self::Temperature(temperature) => return temperature.pattern(x),
            Self::Dequantize(own) => return own.pattern(inputs),
        };
        Pattern::Sum(vec![Products::one(factors)])
    }

    fn flops(&self, _: &[&Axes], output: &Axes) -> u128 {
        output.count().saturating_mul(match self {
            Self::Norm(_) => 4,
            Self::Root { .. }
            | Self::By { .. }
            | Self::Clip { .. }
            | Self::Exp { .. }
            | Self::Temperature(_) => 1,
            Self::SoftCap { .. } => 3,
            Self::Gate { .. } | Self::Dequantize(_) => 2,
        })
    }

    fn adjoint(&self, input: usize, inputs: &[&Axes], value: &Axes) -> Adjoint {
        match (self, input) {
            (Self::Norm(norm), _) => of_norm(norm, input, inputs, value),
            (Self::Root { .. } | Self::By { .. } | Self::Temperature(_), _) => {
                Adjoint::on_gradient(self.clone())
            }
            (Self::SoftCap { cap }, _) => {
                Adjoint::of(Gradient::SoftCap { cap: *cap }, [Of, Operand::Value])
            }
            (Self::Clip { limit }, _) => {
                Adjoint::of(Gradient::Clip { limit: *limit }, [Of, Input(0)])
            }
            (Self::Gate { .. }, 0) => Adjoint::of(self.clone(), [Of, Input(1)]),
            (Self::Gate { map: map @ (Map::Sigmoid | Map::Softplus) }, _) => {
                Adjoint::of(Gradient::Gate { map: *map }, [Of, Input(0), Input(1)])
            }
            (Self::Gate { .. } | Self::Exp { .. }, _) => Adjoint::Unknown,
            (Self::Dequantize(own), _) => own.adjoint(input),
        }
    }

    fn narrowed(&self, part: Part, inputs: &[&Axes], whole: &Axes) -> Option<Self> {
        match self {
            Self::Temperature(own) if part.position(whole).is_some() => {
                Some(Self::Temperature(own.narrowed(part)))
            }
            Self::Norm(norm) if !norm.is_within(part, inputs, whole) => None,
            Self::Norm(_)
            | Self::Root { .. }
            | Self::By { .. }
            | Self::SoftCap { .. }
            | Self::Clip { .. }
            | Self::Gate { .. }
            | Self::Exp { .. }
            | Self::Temperature(_)
            | Self::Dequantize(_) => Some(self.clone()),
        }
    }

    fn facts(&self) -> Facts {
        let Self::Root { head_dim, terms } = self else { return Facts::default() };
        let made = format!("√{}", head_dim.saturating_mul(*terms));
        let constant = (of_terms(*terms), made, root(*head_dim, *terms));
        Facts { constant: Some(constant), ..Facts::default() }
    }
}

/// What the gradients of a norm's inputs are made of.
fn of_norm(norm: &Norm, input: usize, inputs: &[&Axes], value: &Axes) -> Adjoint {
    let axes = dims(inputs, input);
    match input {
        _ if !norm.is_right() => Adjoint::Unknown,
        0 if inputs.len() > 1 => {
            Adjoint::of(Gradient::Norm(norm.clone()), [Of, Input(0), Input(1)])
        }
        0 => Adjoint::of(Gradient::Norm(norm.clone()), [Of, Input(0)]),
        1 => {
            let norm = norm.clone();
            Adjoint::of(Gradient::NormWeight { norm, axes }, [Of, Input(0)])
        }
        _ if axes.len() == 1 => Collect::of_broadcast(&Axes::new(axes), value),
        _ => {
            let (slice, view, over) = (None, value.iter().collect(), vec![0, 2]);
            Adjoint::on_gradient(Collect { slice, view, over, axes })
        }
    }
}

fn root(head_dim: usize, terms: usize) -> f64 {
    (head_dim as f64 * terms as f64).sqrt()
}

/// What scores of so many terms are divided by.
fn of_terms(terms: usize) -> &'static str {
    match terms {
        0 | 1 => "√d_k",
        2 => "√(2 · d_k)",
        _ => "√(3 · d_k)",
    }
}

/// A number as a tensor of the type that it is to meet.
pub(super) fn number(value: f64, beside: &Tensor) -> candle_core::Result<Tensor> {
    Tensor::new(value, beside.device())?.to_dtype(beside.dtype())
}
