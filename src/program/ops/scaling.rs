//! Numbers on their own: norms of heads, and the scale and cap of scores.

use candle_core::{D, Tensor};

use super::functions::{Map, Norm, Squares};
use super::score_slips::ScoreSlip;
use super::slip::Slip;
use crate::error::Result;
use crate::program::axis::Axis::{Head, HeadDim};
use crate::program::axis::{Axes, Dim};
use crate::program::op::{Misread, Op, Operation};
use crate::program::slips::{Kind, Knob, Range, Sibling};
use crate::program::terms::{Term, Value, factor};

/// Numbers that are scaled, each or by rows.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Scaling {
    /// x / √(mean(x²) + ε) · w over the features of every head ("Root Mean Square Layer Normalization", Zhang and
    /// Sennrich, 2019, equation 4), or over all heads together. Reads heads (batch, head, token, `head_dim`) and w
    /// (`head_dim`), or (head, `head_dim`) where the norm runs over all.
    RmsNorm {
        /// ε.
        eps: f64,
        /// What is added to w: 1 as in Gemma 3, otherwise 0.
        offset: f64,
        /// Whether the norm runs over all heads of a token, as in `OLMo` 2.
        over_heads: bool,
    },
    /// Scores / √`d_k`.
    Root {
        /// The features of a head, `d_k`.
        head_dim: usize,
    },
    /// Scores · a factor, in place of 1/√`d_k`.
    By {
        /// The factor.
        factor: f64,
    },
    /// C · tanh(scores / C): no score is beyond ±C ("Gemma 2", Gemma Team, 2024, section 2).
    SoftCap {
        /// C.
        cap: f64,
    },
}

impl Operation for Scaling {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [x, others @ ..] = inputs else { return Err(Misread.into()) };
        Ok(match (self, others) {
            (Self::RmsNorm { eps, offset, over_heads }, [weight]) => {
                let mut squares = x.sqr()?.mean_keepdim(D::Minus1)?;
                if *over_heads {
                    squares = squares.mean_keepdim(1)?;
                }
                let root = (squares + *eps)?.sqrt()?;
                let weight = if *over_heads { weight.unsqueeze(1)? } else { (*weight).clone() };
                let weight = if *offset == 0.0 { weight } else { (weight + *offset)? };
                x.broadcast_div(&root)?.broadcast_mul(&weight)?
            }
            (Self::RmsNorm { .. }, _) => return Err(Misread.into()),
            (Self::Root { head_dim }, _) => x.broadcast_div(&number(root(*head_dim), x)?)?,
            (Self::By { factor }, _) => x.broadcast_mul(&number(*factor, x)?)?,
            (Self::SoftCap { cap }, _) => {
                let cap = number(*cap, x)?;
                x.broadcast_div(&cap)?.tanh()?.broadcast_mul(&cap)?
            }
        })
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match (self, inputs) {
            (
                Self::RmsNorm { over_heads: false, .. },
                [heads @ [.., (HeadDim, d)], [(HeadDim, w)]],
            ) if d == w => Ok(heads.to_vec()),
            (
                Self::RmsNorm { over_heads: true, .. },
                [heads @ [_, (Head, h), _, (HeadDim, d)], [(Head, of), (HeadDim, w)]],
            ) if d == w && h == of => Ok(heads.to_vec()),
            (Self::Root { .. } | Self::By { .. } | Self::SoftCap { .. }, [x]) => Ok(x.to_vec()),
            (
                Self::RmsNorm { .. } | Self::Root { .. } | Self::By { .. } | Self::SoftCap { .. },
                _,
            ) => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [x, others @ ..] = names else { return Err(Misread) };
        Ok(match self {
            Self::RmsNorm { eps, offset, over_heads } => {
                let weight = others.first().ok_or(Misread)?;
                let weight = match offset {
                    0.0 => (*weight).to_owned(),
                    offset => format!("({offset} + {weight})"),
                };
                let over = if *over_heads { " over all heads" } else { "" };
                format!("{x} / √(mean({x}²{over}) + {eps:e}) · {weight}")
            }
            Self::Root { .. } => format!("{x} / √d_k"),
            Self::By { factor } => format!("{x} · {factor}"),
            Self::SoftCap { cap } => format!("{cap} · tanh({x} / {cap})"),
        })
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let ([x, others @ ..], [row @ .., d]) = (inputs, cell) else { return Err(Misread.into()) };
        let own = x.at(cell)?;
        Ok(vec![Term(match self {
            Self::RmsNorm { eps, offset, over_heads } => {
                let weight = others.first().ok_or(Misread)?;
                let (row, mut weight) = match row {
                    [item, head, token] if *over_heads => {
                        let heads = x.tensor.dims().get(1).copied().unwrap_or(0);
                        let rows = (0..heads).map(|head| x.row(&[*item, head, *token]));
                        (rows.collect::<Result<Vec<_>>>()?.concat(), weight.at(&[*head, *d])?)
                    }
                    _ => (x.row(row)?, weight.at(&[*d])?),
                };
                #[allow(clippy::cast_precision_loss, reason = "heads have few features")]
                let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
                let norm = factor("1 / √(mean of squares + ε)", (mean + eps).sqrt().recip());
                if *offset != 0.0 {
                    weight = factor(format!("{offset} + {}", weight.name), offset + weight.value);
                }
                vec![own, norm, weight]
            }
            Self::Root { head_dim } => {
                vec![own, factor(format!("1 / √{head_dim}"), root(*head_dim).recip())]
            }
            Self::By { factor: by } => vec![own, factor("scale", *by)],
            Self::SoftCap { cap } => {
                let name = format!("tanh({} / {cap})", own.name);
                vec![factor("softcap", *cap), factor(name, (own.value / cap).tanh())]
            }
        })])
    }

    fn flops(&self, _: &[&Axes], output: &Axes) -> u128 {
        output.count().saturating_mul(match self {
            Self::RmsNorm { .. } => 4,
            Self::Root { .. } | Self::By { .. } => 1,
            Self::SoftCap { .. } => 3,
        })
    }

    fn knobs(&self) -> Vec<Knob> {
        match self {
            &Self::RmsNorm { eps, offset, over_heads } => vec![Knob {
                name: "eps",
                value: eps,
                range: Range::Positive,
                common: vec![0.0, 1e-12, 1e-8, 1e-6, 1e-5, 1e-3, 1e-2],
                with: Box::new(move |eps| Some(Self::RmsNorm { eps, offset, over_heads }.into())),
            }],
            Self::Root { .. } | Self::By { .. } => vec![Knob {
                name: "scale",
                value: match self {
                    Self::Root { head_dim } => root(*head_dim).recip(),
                    Self::By { factor } => *factor,
                    Self::RmsNorm { .. } | Self::SoftCap { .. } => 1.0,
                },
                range: Range::Factor,
                common: vec![1.0],
                with: Box::new(|factor| Some(Self::By { factor }.into())),
            }],
            Self::SoftCap { cap } => vec![Knob {
                name: "softcap",
                value: *cap,
                range: Range::Positive,
                common: vec![1.0, 5.0, 10.0, 20.0, 30.0, 50.0, 100.0],
                with: Box::new(|cap| (cap > 0.0).then(|| Self::SoftCap { cap }.into())),
            }],
        }
    }

    fn siblings(&self, inputs: &[&Axes]) -> Vec<Sibling> {
        let replaced = |op: Op, told: &str| Sibling::new(op, Kind::Replaced, told);
        match self {
            Self::RmsNorm { eps, offset, over_heads: false } => {
                let own = Norm { offset: *offset, ..Norm::rms(*eps) };
                let norm = |told: &str, norm: Norm| replaced(Slip::Norm(norm).into(), told);
                let rank = inputs.first().map_or(0, |axes| axes.rank());
                let mut all = vec![
                    norm(
                        "LayerNorm, which subtracts the mean, in place of the RMS norm",
                        Norm { is_centred: true, ..own.clone() },
                    ),
                    norm(
                        "the L2 norm, the root of the sum of squares, in place of their mean",
                        Norm { is_mean: false, ..own.clone() },
                    ),
                    norm(
                        "the mean is subtracted, and the squares are those of the numbers before",
                        Norm { is_centred: true, squares: Squares::Raw, ..own.clone() },
                    ),
                    norm(
                        "the root of the mean square is forgotten",
                        Norm { power: 1.0, ..own.clone() },
                    ),
                    norm(
                        if *offset == 0.0 {
                            "the weight is 1 + w in place of w"
                        } else {
                            "the weight is w in place of 1 + w"
                        },
                        Norm { offset: 1.0 - offset, ..own.clone() },
                    ),
                    norm("the weight is w − 1 in place of w", Norm { offset: -1.0, ..own.clone() }),
                    norm(
                        "ε is added to the root, not below it",
                        Norm { is_eps_outside: true, ..own.clone() },
                    ),
                ];
                let deviations = [(Squares::Variance, "biased"), (Squares::Unbiased, "unbiased")];
                // That is what LayerNorm adds unless another number is stated.
                let usual = Norm { is_centred: true, eps: 1e-5, ..own.clone() };
                all.push(norm("LayerNorm (ε 1e-5) in place of the RMS norm", usual));
                for (squares, which) in deviations {
                    for (is_eps_outside, place) in [(false, "below"), (true, "beside")] {
                        let own = Norm { is_eps_outside, squares, ..own.clone() };
                        let by = format!("by the {which} standard deviation, ε {place} the root");
                        all.push(norm(&format!("it divides {by}"), own.clone()));
                        let layer_norm = Norm { is_centred: true, ..own };
                        let told =
                            format!("LayerNorm, which divides {by}, in place of the RMS norm");
                        all.push(norm(&told, layer_norm));
                    }
                }
                let axes = [(2, "tokens"), (3, "heads"), (4, "items")];
                for (at, name) in axes.into_iter().filter(|(at, _)| *at <= rank) {
                    let one = Norm { over: vec![at], ..own.clone() };
                    let both = Norm { over: vec![1, at], ..own.clone() };
                    let told = format!("the norm runs over the {name}, not over a head's features");
                    all.push(Sibling::new(Slip::Norm(one), Kind::Axes, told));
                    let told = format!("the norm runs over features and {name} together");
                    all.push(Sibling::new(Slip::Norm(both), Kind::Axes, told));
                }
                all
            }
            Self::SoftCap { cap } => {
                let cap = *cap;
                let part = |outer: f64, inner: f64, told: &str| {
                    let slip = Slip::Scores(ScoreSlip::Cap { outer, inner });
                    Sibling::new(slip, Kind::Omitted, told)
                };
                vec![
                    replaced(
                        Slip::Clip { limit: cap }.into(),
                        "the scores are clipped at the cap, without tanh",
                    ),
                    replaced(Slip::Map(Map::Tanh).into(), "tanh of the scores, without the cap"),
                    part(1.0, cap.recip(), "tanh is not multiplied by the cap"),
                    part(cap, 1.0, "the scores are not divided by the cap before tanh"),
                ]
            }
            // The weight of a norm over all heads has an axis more than a faulty norm reads.
            Self::RmsNorm { over_heads: true, .. } | Self::Root { .. } | Self::By { .. } => {
                Vec::new()
            }
        }
    }

    fn constant(&self) -> Option<(&'static str, String, f64)> {
        match self {
            Self::Root { head_dim } => Some(("√d_k", format!("√{head_dim}"), root(*head_dim))),
            Self::RmsNorm { .. } | Self::By { .. } | Self::SoftCap { .. } => None,
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "exact below 2^53 features")]
fn root(head_dim: usize) -> f64 {
    (head_dim as f64).sqrt()
}

/// A number as a tensor of the type that it is to meet.
pub(super) fn number(value: f64, beside: &Tensor) -> candle_core::Result<Tensor> {
    Tensor::new(value, beside.device())?.to_dtype(beside.dtype())
}
