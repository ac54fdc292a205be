//! Products of small matrices.

use pulp::{Arch, NullaryFnOnce};

use super::raw::multiply_blocks;

/// Up to so many products of numbers are made one row at a time, by the thread that is there. Before gemm makes its first ones
/// it reads dozens of files under /sys for every core of the machine, and candle reads /proc/cpuinfo for each product of
/// matrices, which together take a fifth of a notebook's run on two cores.
pub(super) const FEW: usize = 1 << 16;

/// left · right or left · rightᵀ, written where it belongs by the thread that has the rows at hand. Left is (rows, inner),
/// the result (rows, columns). The numbers are the same, to the last bit, whichever way they are made.
///
/// # Panics
/// If a slice has another length than its matrix.
pub(super) fn multiply(
    left: &[f32],
    right: &[f32],
    is_transposed: bool,
    sizes: [usize; 3],
    result: &mut [f32],
) {
    let arch = Arch::new();
    if matches!(arch, Arch::Scalar) || !is_small(is_transposed, sizes) {
        return multiply_blocks(left, right, is_transposed, sizes, result);
    }
    let [_, inner, columns] = sizes;
    let turned: Vec<f32>;
    let right = if is_transposed {
        let column = |at: usize| right.iter().skip(at).step_by(inner);
        turned = (0..inner).flat_map(column).copied().collect();
        &turned
    } else {
        right
    };
    arch.dispatch(Small { left, right, inner, columns, result });
}

/// Whether a product is made one row at a time where the processor does not round what it adds to a sum. Of few numbers in
/// all gemm reads none of its files, and adds up in other orders.
fn is_small(is_transposed: bool, [rows, inner, columns]: [usize; 3]) -> bool {
    /// gemm makes so many numbers of rows by rows without blocks.
    const WITHOUT_BLOCKS: usize = 256;
    let is_few = rows.saturating_mul(inner).saturating_mul(columns) <= FEW;
    let in_blocks = !is_transposed || rows.saturating_mul(columns) > WITHOUT_BLOCKS;
    is_few && in_blocks && rows > 1 && columns > 1 && inner > 2
}

/// The product of two matrices: what is added to a number is not rounded before, and added in order, as gemm does it.
struct Small<'a> {
    left: &'a [f32],
    right: &'a [f32],
    inner: usize,
    columns: usize,
    result: &'a mut [f32],
}

impl NullaryFnOnce for Small<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is compiled for the processor that is there")]
    fn call(self) {
        let rows = self.left.chunks(self.inner).zip(self.result.chunks_mut(self.columns));
        for (row, result) in rows {
            result.fill(0.0);
            for (number, others) in row.iter().zip(self.right.chunks(self.columns)) {
                for (sum, other) in result.iter_mut().zip(others) {
                    *sum = number.mul_add(*other, *sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of gemm's ways to multiply, every one that these sizes have.
    #[test]
    fn small_products_are_those_of_gemm() {
        let mut state = 3_u64;
        let mut numbers = |count: usize| -> Vec<f32> {
            let mut number = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                f32::from(u16::try_from(state >> 48).expect("16 bits")) / 16384.0 - 2.0
            };
            (0..count).map(|_| number()).collect()
        };
        let sizes = |rows| {
            [3, 4, 7, 33, 100].map(|inner| [2, 3, 8, 15, 16].map(|columns| [rows, inner, columns]))
        };
        for sizes in [2, 3, 5, 8, 17, 40].into_iter().flat_map(sizes).flatten() {
            let [rows, inner, columns] = sizes;
            for is_transposed in [false, true] {
                let left = numbers(rows * inner);
                let right = numbers(inner * columns);
                let bits = [multiply, multiply_blocks].map(|multiply| {
                    let mut result = vec![f32::NAN; rows * columns];
                    multiply(&left, &right, is_transposed, sizes, &mut result);
                    result.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                });
                assert!(bits[0] == bits[1], "{sizes:?}, transposed: {is_transposed}");
            }
        }
        assert!(is_small(false, [2, 3, 2]) && is_small(true, [17, 3, 16]));
        assert!(!is_small(true, [16, 3, 16]) && !is_small(false, [1, 3, 2]));
    }
}
