//! Norms: numbers divided by their root mean square, with or without their mean subtracted first.

use candle_core::{DType, Tensor};

use crate::axis::Axis::{Head, HeadDim};
use crate::axis::{Axes, Dim};
use crate::misread::Misread;
use crate::part::Part;
use crate::pattern::{Function, Multiplier, Pattern, Place, Products, Read, Row};
use base::error::Result;

/// x / √(mean(x²) + ε) · w + b over the features of the last axis ("Root Mean Square Layer Normalization", Zhang and
/// Sennrich, 2019, equation 4), or over all heads together; with x less its mean in place of x, `LayerNorm` ("Layer
/// Normalization", Ba et al., 2016). Reads x, perhaps w and perhaps b, each (feature), or (head, `head_dim`) beside heads
/// (batch, head, token, `head_dim`) where every head has its own, and where the norm runs over all.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each can be wrong by itself")]
pub struct Norm {
    /// Whether the mean is subtracted first, as `LayerNorm` does.
    pub is_centred: bool,
    /// ε.
    pub eps: f64,
    /// What is added to w: 1 as in Gemma 3, otherwise 0.
    pub offset: f64,
    /// The axes that one norm runs over, counted from the last: the features, or as in `OLMo` 2 those of all heads.
    pub over: Vec<usize>,
    /// Into how many groups the heads that it runs over are split, each with a mean of its own; 1, as it should be.
    pub groups: usize,
    /// Whether squares are averaged; else they are added up, as the L2 norm does.
    pub is_mean: bool,
    /// Whether ε is added to the root, not below it, as it should be.
    pub is_eps_outside: bool,
    /// What the mean of the squares is raised to: ½ for the root.
    pub power: f64,
    /// Which squares are averaged.
    pub squares: Squares,
}

/// What the gradient of a norm's input is made of.
pub(super) struct Parts {
    /// The gradient of the normed numbers, g.
    pub given: Tensor,
    /// The normed numbers, n.
    pub normed: Tensor,
    /// The mean of g · n.
    pub along: Tensor,
    /// The mean of g, where the mean of x was subtracted.
    pub mean: Option<Tensor>,
    /// What x was divided by.
    pub root: Tensor,
}

/// Which squares a norm averages, or what else stands in their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Squares {
    /// Those of the numbers that it divides, as it should be.
    Own,
    /// Those of the numbers before the mean was subtracted.
    Raw,
    /// Those of the numbers less their mean.
    Variance,
    /// The same, divided by their number less 1, as `torch.std` does.
    Unbiased,
    /// No squares: the absolute numbers.
    Absolute,
    /// No squares and no mean: the largest absolute number.
    Largest,
}

/// The features of all heads, as axes that a norm runs over.
pub const OVER_HEADS: [usize; 2] = [1, 3];

impl Norm {
    /// x / √(mean(x²) + ε) over the last axis.
    #[must_use]
    pub fn rms(eps: f64) -> Self {
        Self {
            is_centred: false,
            eps,
            offset: 0.0,
            over: vec![1],
            groups: 1,
            is_mean: true,
            is_eps_outside: false,
            power: 0.5,
            squares: Squares::Own,
        }
    }

    /// Whether it runs over all heads of a token.
    #[must_use]
    pub fn is_over_heads(&self) -> bool {
        self.over == OVER_HEADS
    }

    /// The axes that it runs over.
    fn places(&self, x: &Tensor) -> Vec<usize> {
        self.over.iter().filter_map(|at| x.rank().checked_sub(*at)).collect()
    }

    /// How many numbers one mean is of.
    fn count(&self, x: &Tensor) -> f64 {
        let places = self.places(x);
        let count: usize = places.iter().filter_map(|axis| x.dims().get(*axis)).product();
        count as f64 / self.groups as f64
    }

    /// The mean over its axes, of each group of heads where there are several.
    fn mean(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let over = |x: &Tensor, axes: Vec<usize>| {
            axes.iter().try_fold(x.clone(), |x, axis| x.mean_keepdim(*axis))
        };
        let (4, Some(each)) =
            (x.rank(), x.dims().get(1).and_then(|all| all.checked_div(self.groups)))
        else {
            return over(x, self.places(x));
        };
        if self.groups == 1 {
            return over(x, self.places(x));
        }
        // (batch, group, head, token, feature)
        let (batch, heads, tokens, features) = x.dims4()?;
        let grouped = x.reshape((batch, self.groups, each, tokens, features))?;
        let mean = over(&grouped, vec![2, 4])?;
        mean.broadcast_as((batch, self.groups, each, tokens, 1))?.reshape((batch, heads, tokens, 1))
    }

    #[allow(clippy::float_cmp, reason = "½ exactly is the root")]
    pub(super) fn value(&self, x: &Tensor, others: &[&Tensor]) -> Result<Tensor> {
        let axes = self.places(x);
        let mean = |x: &Tensor| self.mean(x);
        let raw = x;
        let x = if self.is_centred { x.broadcast_sub(&mean(x)?)? } else { x.clone() };
        let mut squares = match self.squares {
            Squares::Own => mean(&x.sqr()?),
            Squares::Raw => mean(&raw.sqr()?),
            Squares::Variance | Squares::Unbiased => mean(&raw.broadcast_sub(&mean(raw)?)?.sqr()?),
            Squares::Absolute => mean(&x.abs()?),
            Squares::Largest => axes.iter().try_fold(x.abs()?, |x, axis| x.max_keepdim(*axis)),
        }?;
        let count = self.count(&x);
        if !self.is_mean {
            squares = (squares * count)?;
        } else if self.squares == Squares::Unbiased {
            squares = (squares * (count / (count - 1.0)))?;
        }
        let root = |x: Tensor| if self.power == 0.5 { x.sqrt() } else { x.powf(self.power) };
        let root = if self.is_eps_outside {
            (root(squares)? + self.eps)?
        } else {
            root((squares + self.eps)?)?
        };
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
        let fits = |parameter: &&[Dim]| match (x, *parameter) {
            ([.., last], [own]) => last == own,
            ([_, (Head, h), _, (HeadDim, d)], [(Head, of), (HeadDim, own)]) => h == of && d == own,
            _ => false,
        };
        let is_there = self.over.iter().all(|at| (1..=x.len()).contains(at));
        let are_groups = self.groups == 1
            || self.is_over_heads()
                && x.get(1)
                    .is_some_and(|(_, heads)| self.groups > 0 && heads.is_multiple_of(self.groups));
        if is_there && are_groups && others.len() <= 2 && others.iter().all(fits) {
            Ok(x.to_vec())
        } else {
            Err(Misread)
        }
    }

    /// Whether it is as norms should be.
    pub(super) fn is_right(&self) -> bool {
        let Self { is_centred, eps, offset, ref over, is_mean, .. } = *self;
        *self == Self { is_centred, offset, over: over.clone(), is_mean, ..Self::rms(eps) }
    }

    /// The gradient of x for that of its norm, d: of every row with g = d · (weight + offset) and its normed numbers n,
    /// (g − n · mean(g · n)) / root, and less the mean of g where the mean of x was subtracted.
    pub(super) fn gradient(&self, d: &Tensor, x: &Tensor, weight: &[&Tensor]) -> Result<Tensor> {
        // Nearly equal numbers are subtracted, so that rounding of 32 bits would show.
        if d.dtype() == DType::F32 {
            let wide = |x: &&Tensor| x.to_dtype(DType::F64);
            let weight = weight.iter().map(wide).collect::<candle_core::Result<Vec<_>>>()?;
            let weight: Vec<&Tensor> = weight.iter().collect();
            return Ok(self.gradient(&wide(&d)?, &wide(&x)?, &weight)?.to_dtype(DType::F32)?);
        }
        let Parts { given, normed, along, mean, root } = self.gradient_parts(d, x, weight)?;
        let less = given.sub(&normed.broadcast_mul(&along)?)?;
        let less = mean.map_or(Ok(less.clone()), |mean| less.broadcast_sub(&mean))?;
        Ok(less.broadcast_div(&root)?)
    }

    pub(super) fn gradient_parts(
        &self,
        d: &Tensor,
        x: &Tensor,
        weight: &[&Tensor],
    ) -> Result<Parts> {
        let mean = |x: &Tensor| self.mean(x);
        let count = self.count(x);
        let sum_or_mean = |x: &Tensor| mean(x)? * if self.is_mean { 1.0 } else { count };
        let own = if self.is_centred { x.broadcast_sub(&mean(x)?)? } else { x.clone() };
        let root = (sum_or_mean(&own.sqr()?)? + self.eps)?.sqrt()?;
        let normed = own.broadcast_div(&root)?;
        let given = match weight {
            [weight, ..] => d.broadcast_mul(&(of_heads(weight)? + self.offset)?)?,
            [] => d.clone(),
        };
        let along = sum_or_mean(&given.mul(&normed)?)?;
        let mean = if self.is_centred { Some(mean(&given)?) } else { None };
        Ok(Parts { given, normed, along, mean, root })
    }

    pub(super) fn gradient_formula(&self, names: &[&str]) -> String {
        let [d, x, weight @ ..] = names else { return String::new() };
        let given = weight.first().map_or_else(
            || (*d).to_owned(),
            |weight| match self.offset {
                0.0 => format!("{d} · {weight}"),
                offset => format!("{d} · ({offset} + {weight})"),
            },
        );
        let over = if self.is_over_heads() { tr!(" over all heads") } else { "" };
        let centred = if self.is_centred { format!(" − mean(g{over})") } else { String::new() };
        let normed = self.formula(x, &[]);
        let mean = if self.is_mean { "mean" } else { tr!("sum") };
        tr!(
            "(g − n · {mean}(g · n{over}){centred}) / root, g = {given}, n = {normed}",
            mean,
            over,
            centred,
            given,
            normed
        )
    }

    pub(super) fn formula(&self, x: &str, others: &[&str]) -> String {
        let over = if self.is_over_heads() { tr!(" over all heads") } else { "" };
        let (own, squares) = if self.is_centred {
            (format!("({x} − mean({x}{over}))"), format!("var({x}{over})"))
        } else {
            let squares = if self.is_mean { "mean" } else { tr!("sum") };
            (x.to_owned(), format!("{squares}({x}²{over})"))
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

    pub(super) fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let [x, others @ ..] = inputs else { return Pattern::ByCell };
        let Self { is_centred: centred, eps, offset, .. } = *self;
        if !self.is_right() {
            return Pattern::ByCell;
        }
        let row = Row { over_heads: self.is_over_heads(), centred, summed: !self.is_mean, eps };
        let named = match (centred, self.is_mean) {
            (true, _) => "variance",
            (false, true) => tr!("mean of squares"),
            (false, false) => tr!("sum of squares"),
        };
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

    /// Whether it does the same to a part of the run as to the whole.
    pub(super) fn is_within(&self, part: Part, inputs: &[&Axes], whole: &Axes) -> bool {
        let from_last = part.position_in(inputs, whole).map(|at| whole.rank() - at);
        from_last.is_none_or(|at| !self.over.contains(&at))
    }
}

/// A parameter (head, feature) as heads (batch, head, token, feature) meet it.
fn of_heads(parameter: &Tensor) -> candle_core::Result<Tensor> {
    if parameter.rank() == 2 { parameter.unsqueeze(1) } else { Ok(parameter.clone()) }
}
