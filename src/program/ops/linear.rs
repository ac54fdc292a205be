//! Matrix products: projections, dot products of queries and keys, values weighted and added up.

use candle_core::Tensor;

use super::collect::Collect;
use super::matmul::{expand, expanded, of_heads, product, shared, spread};
use super::product::Product;
use crate::adjoint::Operand::{Gradient as Of, Input};
use crate::adjoint::{Adjoint, dims};
use crate::axis::Axis::{Batch, Bucket, Head, HeadDim, Key, Model, Query};
use crate::axis::{Axes, Axis, Dim};
use crate::misread::Misread;
use crate::operation::Operation;
use crate::part::{Part, QueryRows};
use crate::pattern::{Pattern, Place, Products, Read};
use crate::rows::{Numbers, Rows};
use crate::small::multiply;
use base::error::Result;

/// Matrix products.
#[derive(Debug, Clone, PartialEq)]
pub enum Linear {
    /// x · Wᵀ (+ b), as `nn.Linear`. Reads x (batch, token, in), W (out, in) and perhaps b (out).
    Project {
        /// What the rows of the result are: queries or keys.
        tokens: Axis,
        /// The rows of x that are projected, if not all are.
        rows: Option<QueryRows>,
    },
    /// Q · Kᵀ of every head. Reads queries and keys (batch, head, token, `head_dim`), or in place of the keys those of all
    /// relative positions (1, head, bucket, `head_dim`), which are the same for every item.
    DotProduct,
    /// Weights · V of every head. Reads weights (batch, head, query, key) and values (batch, head, key, `head_dim`).
    WeightedSum,
    /// The first features of every head, times that head's rows of a weight: q · `W_K` of the head, which takes queries to the
    /// latent that keys are projected from ("DeepSeek-V2", 2024, appendix C). Reads queries (batch, head, query, `head_dim`)
    /// and W (heads · features, latent).
    Absorb,
    /// Every head, times that head's rows of a weight transposed: what is weighted of the latent becomes values. Reads
    /// (batch, head, query, latent) and W (heads · features, latent).
    Expand,
}

impl Operation for Linear {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [left, right, bias @ ..] = inputs else { return Err(Misread.into()) };
        match self {
            Self::DotProduct => product(left, &shared(right, left)?, true),
            Self::WeightedSum => product(left, &shared(right, left)?, false),
            Self::Absorb => {
                let weight = of_heads(right, left.dim(1)?)?;
                let left = left.narrow(3, 0, weight.dim(2)?)?.contiguous()?;
                product(&left, &spread(&weight, &left)?, false)
            }
            Self::Expand => expand(left, right),
            Self::Project { rows, .. } => {
                let x = match rows {
                    Some(rows) => &left.narrow(1, rows.first, rows.count)?.contiguous()?,
                    None => *left,
                };
                let (batch, tokens, inputs) = x.dims3()?;
                // One matrix product over all tokens.
                let product = product(&x.reshape((batch * tokens, inputs))?, right, true)?;
                let product = product.reshape((batch, tokens, right.dim(0)?))?;
                Ok(bias.iter().try_fold(product, |product, bias| product.broadcast_add(bias))?)
            }
        }
    }

    fn rows<'a>(&'a self, read: &[usize], others: &[&'a Tensor]) -> Option<Rows<'a>> {
        let ([batch, heads, rows, inner], [other]) = (*<&[usize; 4]>::try_from(read).ok()?, others)
        else {
            return None;
        };
        let (of_other, right) = (other.dims4().ok()?, Numbers::<f32>::of(other)?);
        let (columns, is_transposed) = match self {
            Self::DotProduct if of_other == (batch, heads, of_other.2, inner) => (of_other.2, true),
            Self::WeightedSum if of_other == (batch, heads, inner, of_other.3) => {
                (of_other.3, false)
            }
            Self::Project { .. }
            | Self::DotProduct
            | Self::WeightedSum
            | Self::Absorb
            | Self::Expand => return None,
        };
        let matrices = Matrices { right, is_transposed, rows, inner, columns };
        Some(Rows::new(columns, move |first, read, made| matrices.multiply(first, read, made)))
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match (self, inputs) {
            (Self::Project { tokens, rows }, [[b, t, i], [o, w_i], bias @ ..])
                if i.1 == w_i.1 && bias.len() <= 1 && bias.iter().all(|bias| *bias == [*o]) =>
            {
                Ok(vec![*b, (*tokens, rows.map_or(t.1, |rows| rows.count)), (Model, o.1)])
            }
            (Self::DotProduct, [[b, h, q @ (Query, _), d], [k_b, k_h, s @ (Key, _), k_d]])
                if (b, h, d) == (k_b, k_h, k_d) =>
            {
                Ok(vec![*b, *h, *q, *s])
            }
            (Self::DotProduct, [[b, h, t, d], [(Batch, 1), k_h, p @ (Bucket, _), k_d]])
                if (h, d) == (k_h, k_d) =>
            {
                Ok(vec![*b, *h, *t, *p])
            }
            (Self::WeightedSum, [[b, h, t, p @ (Bucket, _)], [(Batch, 1), v_h, v_p, d]])
                if (h, p) == (v_h, v_p) =>
            {
                Ok(vec![*b, *h, *t, *d])
            }
            (Self::WeightedSum, [[b, h, q, s @ (Key, _)], [v_b, v_h, v_s, d]])
                if (b, h, s) == (v_b, v_h, v_s) =>
            {
                Ok(vec![*b, *h, *q, *d])
            }
            (Self::Absorb, [[b, h @ (Head, heads), q @ (Query, _), d], [rows, latent]])
                if *heads > 0 && rows.1 % heads == 0 && rows.1 / heads <= d.1 =>
            {
                Ok(vec![*b, *h, *q, (HeadDim, latent.1)])
            }
            (Self::Expand, _) => expanded(inputs),
            (Self::Project { .. } | Self::DotProduct | Self::WeightedSum | Self::Absorb, _) => {
                Err(Misread)
            }
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [left, right, bias @ ..] = names else { return Err(Misread) };
        let product = match self {
            Self::Project { rows: Some(QueryRows { first, count }), .. } => {
                format!("{left}[{first}..{}] · {right}ᵀ", first + count)
            }
            Self::Absorb => tr!("{left} · {right}, head by head", left, right),
            Self::Expand => tr!("{left} · {right}ᵀ, head by head", left, right),
            Self::Project { .. } | Self::DotProduct | Self::WeightedSum => return Err(Misread),
        };
        Ok([&[product.as_str()], bias].concat().join(" + "))
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let inner = self.inner(inputs);
        let (heads, own) = rows_of_heads(inputs);
        let of_head = || Place::listed(1, (0..heads).map(|head| head * own));
        let on = |axes: &[usize]| axes.iter().copied().map(Place::on).collect::<Vec<_>>();
        let item = if is_of_positions(inputs) { Place::fixed() } else { Place::on(0) };
        let beside = |axes: &[usize]| [vec![item.clone()], on(axes)].concat();
        let (left, right) = match self {
            Self::Project { rows, .. } => {
                let first = rows.map_or(0, |rows| rows.first);
                let row = [Place::on(0), Place::on(1).moved(first), Place::on(3)];
                (row.to_vec(), on(&[2, 3]))
            }
            Self::DotProduct => (on(&[0, 1, 2, 4]), beside(&[1, 3, 4])),
            Self::WeightedSum => (on(&[0, 1, 2, 4]), beside(&[1, 4, 3])),
            Self::Absorb => (on(&[0, 1, 2, 4]), vec![of_head().and(Place::on(4)), Place::on(3)]),
            Self::Expand => (on(&[0, 1, 2, 4]), vec![of_head().and(Place::on(3)), Place::on(4)]),
        };
        let products = Products::many(inner, Read::of(0, left), Read::of(1, right));
        let bias = (2..inputs.len()).map(|bias| Products::one([Read::of(bias, on(&[2])).into()]));
        Pattern::Sum(std::iter::once(products).chain(bias).collect())
    }

    fn adjoint(&self, input: usize, inputs: &[&Axes], value: &Axes) -> Adjoint {
        let axes = dims(inputs, input);
        match (self, input) {
            (Self::Project { rows, .. }, 0) => {
                Adjoint::of(Product::Input { rows: *rows, axes }, [Of, Input(1)])
            }
            (Self::Project { rows, .. }, 1) => {
                Adjoint::of(Product::Weight { rows: *rows, axes }, [Of, Input(0)])
            }
            (Self::Project { .. }, _) => Collect::of_broadcast(&Axes::new(axes), value),
            (Self::DotProduct, 0) => Adjoint::of(Self::WeightedSum, [Of, Input(1)]),
            (Self::DotProduct, _) if is_of_positions(inputs) => {
                Adjoint::of(Product::OfItems { axes }, [Of, Input(0)])
            }
            (Self::DotProduct, _) => Adjoint::of(Product::Transposed, [Of, Input(0)]),
            (Self::WeightedSum, 0) => Adjoint::of(Self::DotProduct, [Of, Input(1)]),
            (Self::WeightedSum, _) => Adjoint::of(Product::Transposed, [Input(0), Of]),
            (Self::Absorb, 0) => Adjoint::of(Product::Expand { axes }, [Of, Input(1)]),
            (Self::Absorb, _) => Adjoint::of(Product::OfHeads { axes }, [Input(0), Of]),
            (Self::Expand, 0) => Adjoint::of(Self::Absorb, [Of, Input(1)]),
            (Self::Expand, _) => Adjoint::of(Product::OfHeads { axes }, [Of, Input(0)]),
        }
    }

    fn narrowed(&self, part: Part, inputs: &[&Axes], whole: &Axes) -> Option<Self> {
        let (Self::Project { tokens, rows }, Part::Rows(_) | Part::Keys(_)) = (self, part) else {
            return Some(self.clone());
        };
        let (first, count) = part.places();
        let read = inputs.first().and_then(|x| x.iter().nth(1)).map(|(_, tokens)| tokens);
        let all = whole.iter().nth(1).map(|(_, rows)| rows);
        // What reads rows reads those of the part alone.
        if *tokens != part.axis() || (read == Some(count) && all != Some(count)) {
            return Some(self.clone());
        }
        let first = rows.map_or(0, |rows| rows.first) + first;
        Some(Self::Project { tokens: *tokens, rows: Some(QueryRows { first, count }) })
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        let biases = inputs.len().saturating_sub(2) as u128;
        output.count().saturating_mul(2 * self.inner(inputs) as u128 + biases)
    }
}

/// Matrices that rows are multiplied by: one for every so many rows.
struct Matrices<'a> {
    /// Their numbers, one matrix behind the other.
    right: Numbers<'a, f32>,
    /// Whether each is (columns, inner), and its transpose is meant.
    is_transposed: bool,
    /// How many rows are multiplied by the same one.
    rows: usize,
    /// How long such a row is.
    inner: usize,
    /// How long a row of the product is.
    columns: usize,
}

impl Matrices<'_> {
    /// The rows from a place on, each times its matrix.
    fn multiply(&self, first: usize, rows: &[f32], product: &mut [f32]) {
        let Self { right, is_transposed, inner, columns, .. } = self;
        let of_one = inner * columns;
        let (mut first, mut rows, mut product) = (first, rows, product);
        while !product.is_empty() {
            let count = (product.len() / columns).min(self.rows - first % self.rows);
            let matrix = first / self.rows * of_one;
            let right = right.get(matrix..matrix + of_one).unwrap_or_default();
            let (left, other_rows) = rows.split_at(count * inner);
            let (own, others) = product.split_at_mut(count * columns);
            multiply(left, right, *is_transposed, [count, *inner, *columns], own);
            (first, rows, product) = (first + count, other_rows, others);
        }
    }
}

impl Linear {
    /// How many products are added up for a cell.
    fn inner(&self, inputs: &[&Axes]) -> usize {
        match self {
            Self::Absorb => rows_of_heads(inputs).1,
            Self::Project { .. } | Self::DotProduct | Self::WeightedSum | Self::Expand => {
                inputs.first().and_then(|left| left.shape().last().copied()).unwrap_or(0)
            }
        }
    }
}

/// Whether the second input is of relative positions, and the same for every item.
fn is_of_positions(inputs: &[&Axes]) -> bool {
    inputs.get(1).is_some_and(|right| right.iter().nth(2).is_some_and(|(axis, _)| axis == Bucket))
}

/// The number of heads, and the rows of the weight that each of them has.
fn rows_of_heads(inputs: &[&Axes]) -> (usize, usize) {
    let size = |input: usize, axis: usize| {
        inputs.get(input).and_then(|axes| axes.shape().get(axis).copied()).unwrap_or(0)
    };
    let (heads, rows) = (size(0, 1), size(1, 0));
    (heads, rows.checked_div(heads).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Tensor};

    use super::*;
    use crate::Op;

    /// As `torch.zeros(1, 2, 4, keys) @ -torch.ones(1, 2, keys, 3)`, and as `F.linear` of two inputs and more.
    #[test]
    fn a_sum_of_zeros_has_no_sign() {
        let tensor = |value: f64, shape: &[usize]| {
            Tensor::full(value, shape, &Device::Cpu)
                .and_then(|t| t.to_dtype(DType::F32))
                .expect("fits")
        };
        let has_sign = |tensor: &Tensor| {
            let flat = tensor.flatten_all().and_then(|flat| flat.to_dtype(DType::F64));
            let values = flat.and_then(|flat| flat.to_vec1::<f64>());
            values.expect("numbers").iter().any(|value| value.is_sign_negative())
        };
        let of = |operation: Linear, left: &Tensor, right: &Tensor| {
            Op::from(operation).eval(&[left, right]).expect("fits")
        };
        let sizes = (1..=5).flat_map(|inner| [(inner, 4, 3), (inner, 1, 3), (inner, 4, 1)]);
        for (inner, rows, columns) in sizes {
            let said = format!("{rows} times {inner} times {columns}");
            for dtype in [DType::F32, DType::F64] {
                let tensor =
                    |value, shape: &[usize]| tensor(value, shape).to_dtype(dtype).expect("widens");
                let weights = tensor(0.0, &[1, 2, rows, inner]);
                let values = tensor(-1.0, &[1, 2, inner, columns]);
                assert!(!has_sign(&of(Linear::WeightedSum, &weights, &values)), "{said}");
                let keys = tensor(-1.0, &[1, 2, columns, inner]);
                assert!(!has_sign(&of(Linear::DotProduct, &weights, &keys)), "{said}");
                let (x, weight) = (tensor(0.0, &[1, rows, inner]), tensor(-1.0, &[columns, inner]));
                let project = Linear::Project { tokens: Query, rows: None };
                assert!(!has_sign(&of(project, &x, &weight)), "{said}");
            }
        }
    }
}
