//! What is the product of two matrices, as PyTorch gives it?

use candle_core::{D, Device, Tensor};

use crate::axis::Axis::{Head, HeadDim, Query};
use crate::axis::Dim;
use crate::misread::Misread;
use crate::rows::Numbers;
use crate::small::{FEW, multiply};
use base::error::Result;

/// Every head times its rows of a weight, transposed: (batch, head, query, latent) and (heads · features, latent) give
/// (batch, head, query, features).
pub fn expand(heads: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let weight = of_heads(weight, heads.dim(1)?)?.transpose(2, 3)?;
    product(heads, &spread(&weight, heads)?, false)
}

/// The axes of that.
pub fn expanded(inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
    match inputs {
        [[b, h @ (Head, heads), q @ (Query, _), d], [rows, latent]]
            if *heads > 0 && rows.1 % heads == 0 && d.1 == latent.1 =>
        {
            Ok(vec![*b, *h, *q, (HeadDim, rows.1 / heads)])
        }
        _ => Err(Misread),
    }
}

/// A weight by heads: (1, head, rows of the head, in).
pub fn of_heads(weight: &Tensor, heads: usize) -> candle_core::Result<Tensor> {
    let (rows, inputs) = weight.dims2()?;
    weight.reshape((1, heads, rows / heads.max(1), inputs))
}

/// The weights of heads, for every item of the batch.
pub fn spread(weight: &Tensor, heads: &Tensor) -> candle_core::Result<Tensor> {
    let (_, count, rows, columns) = weight.dims4()?;
    weight.broadcast_as((heads.dim(0)?, count, rows, columns))?.contiguous()
}

/// What is the same for every item of a batch, for each of them.
pub fn shared(right: &Tensor, left: &Tensor) -> candle_core::Result<Tensor> {
    if right.dim(0)? == left.dim(0)? { Ok(right.clone()) } else { spread(right, left) }
}

/// left · right, or left · rightᵀ, in which a sum of zeros is +0 as in PyTorch: candle leaves −0 where one or two products are
/// added.
pub fn product(left: &Tensor, right: &Tensor, is_transposed: bool) -> Result<Tensor> {
    if let Some(product) = small_product(left, right, is_transposed) {
        return product;
    }
    let product = if is_transposed { left.matmul(&right.t()?) } else { left.matmul(right) }?;
    let is_short = left.dims().last().is_some_and(|inner| *inner <= 2);
    let is_single = product.dims().iter().rev().take(2).any(|size| *size == 1);
    Ok(if is_short || is_single { product.affine(1.0, 0.0)? } else { product })
}

/// leftᵀ · right of matrices: large ones are read where they stand.
pub fn turned_product(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    let turned = left.transpose(D::Minus2, D::Minus1)?;
    let is_small = left.elem_count().saturating_mul(right.dim(D::Minus1)?) <= FEW;
    product(&if is_small { turned.contiguous()? } else { turned }, right, false)
}

/// The product of a few small matrices of f32; nothing of others.
fn small_product(left: &Tensor, right: &Tensor, is_transposed: bool) -> Option<Result<Tensor>> {
    let (outer, [rows, inner]) = left.dims().split_last_chunk()?;
    let (of_right, last) = right.dims().split_last_chunk::<2>()?;
    let [of_inner, columns] = if is_transposed { [last[1], last[0]] } else { *last };
    let shape = [outer, &[*rows, columns]].concat();
    let products =
        shape.iter().chain([inner]).try_fold(1_usize, |all, size| all.checked_mul(*size));
    if (outer, *inner) != (of_right, of_inner) || !(1..=FEW).contains(&products?) {
        return None;
    }
    let (left, right) = Numbers::<f32>::of(left).zip(Numbers::<f32>::of(right))?;
    let mut product = vec![0.0; shape.iter().product()];
    let factors = left.chunks(rows * inner).zip(right.chunks(inner * columns));
    for ((left, right), product) in factors.zip(product.chunks_mut(rows * columns)) {
        multiply(left, right, is_transposed, [*rows, *inner, columns], product);
    }
    Some(Tensor::from_vec(product, shape, &Device::Cpu).map_err(Into::into))
}
