//! What of a run may be computed in fewer bits, as tensor cores and automatic casts do?

use candle_core::Tensor;

use base::error::Result;
use program::{Gradient, Heads, Linear, Op, PartStage, Precision, Product, Scaling, Step};

/// What of a run is computed, or kept, in fewer bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lowered {
    products: Option<Products>,
    /// The type of the keys and values that a cache holds.
    cache: Option<Precision>,
}

/// Which matrix products are computed in fewer bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Products {
    precision: Precision,
    which: Which,
    cast: Cast,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    Projections,
    Attention,
    Scores,
    /// What splits hold of the values, which is merged.
    Splits,
    /// Not only products, but every step.
    Steps,
}

/// What of a product is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cast {
    Inputs,
    Result,
    Both,
    /// The result, which keeps its type in the steps behind it, as tensors do.
    Kept,
    BothKept,
}

impl Cast {
    const ALL: [Self; 5] = [Self::Inputs, Self::Both, Self::Result, Self::BothKept, Self::Kept];

    fn is_of_inputs(self) -> bool {
        matches!(self, Self::Inputs | Self::Both | Self::BothKept)
    }

    fn is_of_result(self) -> bool {
        self != Self::Inputs
    }

    fn is_kept(self) -> bool {
        matches!(self, Self::Kept | Self::BothKept)
    }
}

impl Lowered {
    /// What code computes in fewer bits, the likeliest first; a cache and products at once only where two are asked for.
    pub fn all(two: bool) -> impl Iterator<Item = Self> {
        let caches = [None, Some(Precision::F16), Some(Precision::Bf16)];
        caches.into_iter().flat_map(move |cache| {
            let products = Products::all().filter(move |_| two || cache.is_none()).map(Some);
            let none = cache.is_some().then_some(None);
            none.into_iter().chain(products).map(move |products| Self { products, cache })
        })
    }

    /// Every step of a run in 16 bits is rounded.
    pub fn every_step(precision: Precision) -> Self {
        let products = Products { precision, which: Which::Steps, cast: Cast::Result };
        Self { products: Some(products), cache: None }
    }

    /// `the matrix products are computed in bf16`.
    pub fn in_words(self) -> String {
        let cache =
            self.cache.map(|cache| tr!("the cache holds {cache} numbers", cache = cache.name()));
        let products = self.products.map(Products::in_words);
        cache.into_iter().chain(products).collect::<Vec<_>>().join(tr!(", and "))
    }

    /// A step's value, in fewer bits if it is of what has them.
    ///
    /// # Errors
    /// If candle fails.
    pub fn eval(self, step: &Step, inputs: &[&Tensor]) -> Result<Tensor> {
        let cached = match (&step.op, self.cache, inputs) {
            (Op::Linear(Linear::DotProduct | Linear::WeightedSum), Some(cache), [_, right]) => {
                Some(cache.round(right)?)
            }
            _ => None,
        };
        let inputs = match (&cached, inputs) {
            (Some(right), [left, _]) => &[*left, right],
            _ => inputs,
        };
        let value = match self.products {
            Some(products) => products.eval(&step.op, inputs)?,
            None => step.op.eval(inputs)?,
        };
        let is_cached = matches!(step.op, Op::Heads(Heads::Append | Heads::Repeat { .. }));
        Ok(match self.cache.filter(|_| is_cached) {
            Some(cache) => cache.round(&value)?,
            None => value,
        })
    }
}

impl Products {
    fn all() -> impl Iterator<Item = Self> {
        let types = [Precision::Tf32, Precision::CutTf32, Precision::F16, Precision::Bf16];
        let of_splits = types
            .into_iter()
            .filter(|own| own.dtype().is_some())
            .map(|precision| Self { precision, which: Which::Splits, cast: Cast::Result });
        let of_products = types.into_iter().flat_map(|precision| {
            let is_type = matches!(precision, Precision::F16 | Precision::Bf16);
            let casts = Cast::ALL.into_iter().filter(move |cast| is_type || !cast.is_of_result());
            casts.flat_map(move |cast| {
                let each = [Which::All, Which::Attention, Which::Projections, Which::Scores];
                each.into_iter().map(move |which| Self { precision, which, cast })
            })
        });
        of_products.chain(of_splits)
    }

    fn in_words(self) -> String {
        let name = self.precision.name();
        let which = match self.which {
            Which::All => tr!("the matrix products"),
            Which::Projections => tr!("the projections"),
            Which::Attention => tr!("the products of queries, keys and values"),
            Which::Scores => tr!("the products of queries and keys"),
            Which::Splits => tr!("the outputs of the splits"),
            Which::Steps => tr!("all steps"),
        };
        let kept = if self.cast.is_kept() {
            tr!(", and so are the steps that read only those")
        } else {
            ""
        };
        if self.cast.is_of_inputs() {
            tr!("{which} are computed in {name}{kept}", which, name, kept)
        } else {
            tr!("the results of {which} are rounded to {name}{kept}", which, name, kept)
        }
    }

    fn is_of(self, op: &Op) -> bool {
        match (op, self.which) {
            (_, Which::Steps)
            | (Op::Linear(_) | Op::Gradient(Gradient::Product(_)), Which::All) => true,
            (Op::Parted(own), which) => which == Which::Splits && own.stage == PartStage::Quotient,
            (Op::Linear(Linear::Project { .. }), which) => which == Which::Projections,
            (Op::Linear(Linear::WeightedSum), which) => which == Which::Attention,
            (Op::Linear(_), which) => matches!(which, Which::Attention | Which::Scores),
            (Op::Gradient(Gradient::Product(product)), which) => {
                let is_of_heads = matches!(product, Product::Transposed);
                which == if is_of_heads { Which::Attention } else { Which::Projections }
            }
            _ => false,
        }
    }

    fn eval(self, op: &Op, inputs: &[&Tensor]) -> Result<Tensor> {
        if let Op::Total(total) = op {
            return total.value_by(inputs, |op, own| self.eval(op, own));
        }
        if !self.is_of(op) {
            return if self.cast.is_kept() { self.kept(op, inputs) } else { op.eval(inputs) };
        }
        let value = if self.cast.is_of_inputs() {
            // A bias of TF32 products is added behind them; one of 16 bits is cast like the rest.
            let is_cast = |at: usize| at < 2 || self.precision.dtype().is_some();
            let read = inputs.iter().enumerate().map(|(at, input)| {
                if is_cast(at) { self.precision.round(input) } else { Ok((*input).clone()) }
            });
            let read: Vec<Tensor> = read.collect::<candle_core::Result<_>>()?;
            op.eval(&read.iter().collect::<Vec<_>>())?
        } else {
            op.eval(inputs)?
        };
        Ok(if self.cast.is_of_result() { self.precision.round(&value)? } else { value })
    }

    /// A step that is no such product. Where it reads numbers of the type and no others, it gives some; norms do before
    /// their weights, which have the run's type. Those that read other tensors too, and softmax, go on in the run's.
    fn kept(self, op: &Op, inputs: &[&Tensor]) -> Result<Tensor> {
        let value = op.eval(inputs)?;
        let [first, rest @ ..] = inputs else { return Ok(value) };
        let is_narrow = || self.precision.holds_all(first);
        match (op, rest) {
            (Op::Scaling(Scaling::Norm(_)), [weight]) if is_narrow()? => {
                let plain = op.eval(&[first, &weight.ones_like()?])?;
                let factor = self.precision.round(&plain)?.div(&plain)?;
                // Zero stays zero.
                let factor = plain.ne(0.0)?.where_cond(&factor, &plain)?;
                Ok(value.mul(&factor)?)
            }
            (Op::Scaling(Scaling::Norm(_)), _) => Ok(value),
            (Op::Scaling(Scaling::SoftCap { cap }), _) if is_narrow()? => {
                let round = |tensor: Tensor| self.precision.round(&tensor);
                let tanh = round(round((*first / *cap)?)?.tanh()?)?;
                Ok(round((tanh * *cap)?)?)
            }
            (Op::Scaling(_) | Op::Masking(_), _) if is_narrow()? => {
                Ok(self.precision.round(&value)?)
            }
            _ => Ok(value),
        }
    }
}
