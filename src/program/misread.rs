//! Do tensors and cells fit an operation?

use base::error::Error;

/// Inputs that do not fit an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misread;

impl From<Misread> for Error {
    fn from(_: Misread) -> Self {
        Self::tensor(
            "operation",
            "cannot be computed from these tensors",
            "read the inputs that the operation's page names",
        )
    }
}

/// The index of a cell of so many axes.
pub(super) fn at<const N: usize>(cell: &[usize]) -> Result<[usize; N], Misread> {
    cell.try_into().map_err(|_| Misread)
}

/// The inputs of an operation that reads so many.
pub(super) fn read<const N: usize, T: Copy>(inputs: &[T]) -> Result<[T; N], Misread> {
    inputs.try_into().map_err(|_| Misread)
}
