//! Matrix products of rows of f32, by the crate that candle has them from. Candle's own call takes whole tensors and all
//! cores at once; here a thread multiplies the rows that it has at hand, and writes them where they belong.
#![allow(
    unsafe_code,
    reason = "gemm reads and writes through pointers; the slices hold all of it, as is checked"
)]

use gemm::{Parallelism, gemm};

use crate::program::rows::Numbers;

/// Matrices that rows are multiplied by: one for every so many rows.
pub(super) struct Matrices<'a> {
    /// Their numbers, one matrix behind the other.
    pub(super) right: Numbers<'a, f32>,
    /// Whether each is (columns, inner), and its transpose is meant.
    pub(super) is_transposed: bool,
    /// How many rows are multiplied by the same one.
    pub(super) rows: usize,
    /// How long such a row is.
    pub(super) inner: usize,
    /// How long a row of the product is.
    pub(super) columns: usize,
}

impl Matrices<'_> {
    /// The rows from a place on, each times its matrix.
    pub(super) fn multiply(&self, first: usize, rows: &[f32], product: &mut [f32]) {
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

/// left · right or left · rightᵀ, where left is (rows, inner) and the result (rows, columns). A sum of zeros is +0 as in
/// PyTorch: gemm leaves −0 where one or two products are added.
///
/// # Panics
/// If a slice has another length than its matrix.
fn multiply(
    left: &[f32],
    right: &[f32],
    is_transposed: bool,
    [rows, inner, columns]: [usize; 3],
    result: &mut [f32],
) {
    assert_eq!(left.len(), rows * inner, "left");
    assert_eq!(right.len(), inner * columns, "right");
    assert_eq!(result.len(), rows * columns, "result");
    // Slices have fewer bytes than an isize can count.
    let [to_inner, to_columns] = [inner, columns].map(usize::cast_signed);
    let (right_column, right_row) = if is_transposed { (to_inner, 1) } else { (1, to_columns) };
    // SAFETY: the three slices are as long as their matrices, and the strides stay within these; the result is borrowed
    // mutably, so that it overlaps with neither factor. f32 is one of gemm's types.
    unsafe {
        gemm(
            rows,
            columns,
            inner,
            result.as_mut_ptr(),
            1,
            to_columns,
            false,
            left.as_ptr(),
            1,
            to_inner,
            right.as_ptr(),
            right_column,
            right_row,
            0.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
    if inner <= 2 {
        for number in result {
            *number += 0.0;
        }
    }
}
