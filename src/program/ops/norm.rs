//! Norms: numbers divided by their root mean square, with or without their mean subtracted first.

use candle_core::{D, Tensor};

use super::functions::{Norm, Squares};
use super::scaling::Scaling;
use super::slip::Slip;
use crate::axis::Axis::{Head, HeadDim};
use crate::axis::{Axes, Dim};
use crate::op::{Misread, Op};
use crate::pattern::{Function, Multiplier, Pattern, Place, Products, Read, Row};
use crate::slips::{Kind, Knob, Range, Sibling};
use crate::terms::{Factor, Term, Value, factor};
use crate::working::Normed;
use base::error::Result;

/// x / √(mean(x²) + ε) · w + b over the features of the last axis ("Root Mean Square Layer Normalization", Zhang and
/// Sennrich, 2019, equation 4), or over all heads together; with x less its mean in place of x, `LayerNorm` ("Layer
/// Normalization", Ba et al., 2016). Reads x, perhaps w and perhaps b, each (feature), or (head, `head_dim`) beside heads
/// (batch, head, token, `head_dim`) where every head has its own, and where the norm runs over all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalize {
    /// Whether the mean is subtracted first, as `LayerNorm` does.
    pub is_centred: bool,
    /// ε.
    pub eps: f64,
    /// What is added to w: 1 as in Gemma 3, otherwise 0.
    pub offset: f64,
    /// Whether the norm runs over all heads of a token, as in `OLMo` 2.
    pub over_heads: bool,
}

impl Normalize {
    /// The same norm, with every part of it open to mistakes.
    #[must_use]
    pub fn slip(&self) -> Norm {
        let over = if self.over_heads { vec![1, 3] } else { vec![1] };
        let Self { is_centred, eps, offset, .. } = *self;
        Norm { is_centred, over, offset, ..Norm::rms(eps) }
    }

    pub(super) fn value(&self, x: &Tensor, others: &[&Tensor]) -> Result<Tensor> {
        let mean = |x: &Tensor| {
            let of_heads = x.mean_keepdim(D::Minus1)?;
            if self.over_heads { of_heads.mean_keepdim(1) } else { Ok(of_heads) }
        };
        let x = if self.is_centred { x.broadcast_sub(&mean(x)?)? } else { x.clone() };
        let root = (mean(&x.sqr()?)? + self.eps)?.sqrt()?;
        let normed = x.broadcast_div(&root)?;
        let [weight, bias @ ..] = others else { return Ok(normed) };
        let weight = of_heads(weight)?;
        let weight = if self.offset == 0.0 { weight } else { (weight + self.offset)? };
        let scaled = normed.broadcast_mul(&weight)?;
        match bias {
            [] => Ok(scaled),
            [bias] => Ok(scaled.broadcast_add(&of_heads(bias)?)?),
            _ => Err(Misread.into()),
        }
    }

    pub(super) fn axes(&self, x: &[Dim], others: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let fits = |parameter: &[Dim]| match (x, parameter) {
            ([.., last], [own]) => !self.over_heads && last == own,
            ([_, (Head, h), _, (HeadDim, d)], [(Head, of), (HeadDim, own)]) => h == of && d == own,
            _ => false,
        };
        let is_whole = !self.over_heads || matches!(x, [_, (Head, _), _, (HeadDim, _)]);
        if is_whole && others.len() <= 2 && others.iter().all(|other| fits(other)) {
            Ok(x.to_vec())
        } else {
            Err(Misread)
        }
    }

    pub(super) fn formula(&self, x: &str, others: &[&str]) -> String {
        let over = if self.over_heads { tr!(" over all heads") } else { "" };
        let (own, squares) = if self.is_centred {
            (format!("({x} − mean({x}{over}))"), format!("var({x}{over})"))
        } else {
            (x.to_owned(), format!("mean({x}²{over})"))
        };
        let normed = format!("{own} / √({squares} + {:e})", self.eps);
        let [weight, bias @ ..] = others else { return normed };
        let weight = match self.offset {
            0.0 => (*weight).to_owned(),
            offset => format!("({offset} + {weight})"),
        };
        let scaled = format!("{normed} · {weight}");
        [&[scaled.as_str()], bias].concat().join(" + ")
    }

    /// The row that a cell is normed by, and its norm.
    pub(super) fn normed(&self, x: &Value, cell: &[usize]) -> Result<Normed> {
        let [place @ .., _] = cell else { return Err(Misread.into()) };
        let of = |place: &[usize]| -> Result<Vec<Factor>> {
            let numbers = x.row(place)?.into_iter().enumerate();
            Ok(numbers.map(|(d, number)| x.named(&[place, &[d]].concat(), number)).collect())
        };
        let row = match place {
            [item, _, token] if self.over_heads => {
                let heads = x.tensor.dims().get(1).copied().unwrap_or(0);
                let rows = (0..heads).map(|head| of(&[*item, head, *token]));
                rows.collect::<Result<Vec<_>>>()?.concat()
            }
            _ => of(place)?,
        };
        let numbers = || row.iter().map(|number| number.value);
        #[allow(clippy::cast_precision_loss, reason = "heads have few features")]
        let count = row.len() as f64;
        let mean = self.is_centred.then(|| numbers().sum::<f64>() / count);
        let less = mean.unwrap_or_default();
        let squares = numbers().map(|x| (x - less).powi(2)).sum::<f64>() / count;
        let root = (squares + self.eps).sqrt();
        Ok(Normed { row, mean, squares, eps: self.eps, root, over_heads: self.over_heads })
    }

    pub(super) fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let [x, others @ ..] = inputs else { return Pattern::ByCell };
        let Self { over_heads, is_centred: centred, eps, offset } = *self;
        let row = Row { over_heads, centred, eps };
        let named = if centred { "variance" } else { tr!("mean of squares") };
        let last = x.rank().saturating_sub(1);
        let parameter = |input: usize, axes: &Axes| {
            let head = (axes.rank() == 2).then(|| Place::on(1));
            Read::of(input, head.into_iter().chain([Place::on(last)]).collect::<Vec<_>>())
        };
        let mut factors = vec![Multiplier::Root(format!("1 / √({named} + ε)"), row.clone())];
        factors.extend(others.first().map(|axes| match parameter(1, axes) {
            weight if offset == 0.0 => weight.into(),
            weight => Multiplier::Of(format!("{offset} + {{}}"), Function::Plus(offset), weight),
        }));
        let times = |first: Multiplier| Products::one([vec![first], factors.clone()].concat());
        let mut products = vec![times(Read::same(0, x).into())];
        products.extend(centred.then(|| times(Multiplier::Mean("−mean".to_owned(), row))));
        let bias = others.get(1).map(|axes| Products::one([parameter(2, axes).into()]));
        products.extend(bias);
        Pattern::Sum(products)
    }

    pub(super) fn terms(&self, x: &Value, others: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let [row @ .., d] = cell else { return Err(Misread.into()) };
        let own = x.at(cell)?;
        let at = |parameter: &Value| match (parameter.tensor.rank(), row) {
            (2, [_, head, _]) => parameter.at(&[*head, *d]),
            _ => parameter.at(&[*d]),
        };
        let Normed { mean, root, .. } = self.normed(x, cell)?;
        let named = if self.is_centred { "variance" } else { tr!("mean of squares") };
        let mut factors = vec![factor(format!("1 / √({named} + ε)"), root.recip())];
        if let Some(weight) = others.first() {
            let mut weight = at(weight)?;
            if self.offset != 0.0 {
                let name = format!("{} + {}", self.offset, weight.name);
                weight = factor(name, self.offset + weight.value).made_of(&weight);
            }
            factors.push(weight);
        }
        let times = |first: Factor| Term([vec![first], factors.clone()].concat());
        let mut terms = vec![times(own)];
        terms.extend(mean.map(|mean| times(factor("−mean", -mean))));
        if let Some(bias) = others.get(1) {
            terms.push(Term(vec![at(bias)?]));
        }
        Ok(terms)
    }

    pub(super) fn knobs(self) -> Vec<Knob> {
        vec![Knob {
            name: "eps",
            value: self.eps,
            range: Range::Positive,
            common: [0.0, 1e-12]
                .into_iter()
                .chain((1..10).map(|power| 0.1_f64.powi(power)))
                .collect(),
            with: Box::new(move |eps| Some(Scaling::Norm(Self { eps, ..self }).into())),
        }]
    }

    pub(super) fn siblings(&self, inputs: &[&Axes]) -> Vec<Sibling> {
        let own = self.slip();
        let norm =
            |told: &str, norm: Norm| Sibling::new(Op::from(Slip::Norm(norm)), Kind::Replaced, told);
        let (name, other) = if self.is_centred {
            (
                "LayerNorm",
                tr!("the RMS norm, which leaves the mean as it is, in place of LayerNorm"),
            )
        } else {
            (
                tr!("the RMS norm"),
                tr!("LayerNorm, which subtracts the mean, in place of the RMS norm"),
            )
        };
        let mut all = vec![
            norm(other, Norm { is_centred: !self.is_centred, ..own.clone() }),
            norm(
                tr!("the L2 norm, the root of the sum of squares, in place of their mean"),
                Norm { is_mean: false, ..own.clone() },
            ),
            norm(
                tr!("the mean is subtracted, and the squares are those of the numbers before"),
                Norm { is_centred: true, squares: Squares::Raw, ..own.clone() },
            ),
            norm(
                tr!("the root of the mean square is forgotten"),
                Norm { power: 1.0, ..own.clone() },
            ),
            norm(
                tr!("ε is added to the root, not below it"),
                Norm { is_eps_outside: true, ..own.clone() },
            ),
        ];
        if inputs.len() > 1 {
            let other = if self.offset == 0.0 {
                tr!("the weight is 1 + w in place of w")
            } else {
                tr!("the weight is w in place of 1 + w")
            };
            all.push(norm(other, Norm { offset: 1.0 - self.offset, ..own.clone() }));
            let less = Norm { offset: -1.0, ..own.clone() };
            all.push(norm(tr!("the weight is w − 1 in place of w"), less));
        }
        // That is what each adds unless another number is stated.
        let (usual, usual_name) = if self.is_centred {
            (1e-6, tr!("the RMS norm (ε 1e-6)"))
        } else {
            (1e-5, tr!("LayerNorm (ε 1e-5)"))
        };
        let usual = Norm { is_centred: !self.is_centred, eps: usual, ..own.clone() };
        all.push(norm(&tr!("{usual_name} in place of {name}", usual_name, name), usual));
        for (squares, which) in
            [(Squares::Variance, tr!("biased")), (Squares::Unbiased, tr!("unbiased"))]
        {
            for (is_eps_outside, place) in [(false, tr!("below")), (true, tr!("beside"))] {
                let own = Norm { is_eps_outside, squares, ..own.clone() };
                let by = tr!("by the {which} standard deviation, ε {place} the root", which, place);
                let told = tr!("it divides {by}", by);
                all.push(norm(&told, Norm { is_centred: self.is_centred, ..own.clone() }));
                if !self.is_centred {
                    let told = tr!("LayerNorm, which divides {by}, in place of the RMS norm", by);
                    all.push(norm(&told, Norm { is_centred: true, ..own }));
                }
            }
        }
        all.extend(self.over_others(inputs));
        all
    }

    /// The norm over other axes.
    fn over_others(&self, inputs: &[&Axes]) -> Vec<Sibling> {
        let own = self.slip();
        let over = |over: Vec<usize>, told: String| {
            Sibling::new(Slip::Norm(Norm { over, ..own.clone() }), Kind::Axes, told)
        };
        if self.over_heads {
            let told =
                tr!("the norm runs over the features of a head, not over those of all heads");
            return vec![over(vec![1], told.to_owned())];
        }
        let rank = inputs.first().map_or(0, |axes| axes.rank());
        let (axes, whose): (&[(usize, &str)], _) = match rank {
            4 => (
                &[(2, tr!("tokens")), (3, tr!("heads")), (4, tr!("items"))],
                tr!("a head's features"),
            ),
            _ => (&[(2, tr!("tokens")), (3, tr!("items"))], tr!("the features")),
        };
        let fits = axes.iter().filter(|(at, _)| *at <= rank);
        fits.flat_map(|(at, name)| {
            [
                over(
                    vec![*at],
                    tr!("the norm runs over the {name}, not over {whose}", name, whose),
                ),
                over(vec![1, *at], tr!("the norm runs over features and {name} together", name)),
            ]
        })
        .collect()
    }
}

/// A parameter (head, feature) as heads (batch, head, token, feature) meet it.
pub(super) fn of_heads(parameter: &Tensor) -> candle_core::Result<Tensor> {
    if parameter.rank() == 2 { parameter.unsqueeze(1) } else { Ok(parameter.clone()) }
}
