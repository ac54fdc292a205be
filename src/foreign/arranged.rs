//! In which order do the axes of queries, keys and values stand?

use candle_core::Tensor;

use super::contradiction::Contradiction;
use super::matched::Match;
use base::error::{Error, Result};
use config::{QkvFormat, Start};
use program::Name;

/// A way to read a file's queries, keys and values.
#[derive(Clone)]
pub struct Qkv {
    /// In which order their axes stood.
    pub format: QkvFormat,
    /// What they are: projected, or split into heads too.
    pub start: Start,
    /// The number of heads, where it is told and the tensors have no axis for it.
    pub heads: Option<usize>,
    /// The three as the steps of that start.
    pub tensors: Vec<(Name, Tensor)>,
    /// What was taken as what.
    pub matches: Vec<Match>,
    /// Whether it is meant only if nothing is wrong in it.
    pub is_tentative: bool,
    /// What is wrong if these are what was read.
    pub against: Vec<Contradiction>,
}

impl Qkv {
    /// One without tensors yet.
    pub fn of(format: QkvFormat, start: Start, heads: Option<usize>) -> Self {
        let (tensors, matches, against) = (Vec::new(), Vec::new(), Vec::new());
        Self { format, start, heads, tensors, matches, is_tentative: false, against }
    }
}

/// A tensor of queries, keys or values in our order of axes. What they are follows from the number of axes where `start`
/// does not say it: with one for the heads they are split.
///
/// # Errors
/// If the tensor has another number of axes than such tensors have.
pub fn arranged(
    name: &str,
    tensor: &Tensor,
    format: QkvFormat,
    start: Option<Start>,
) -> Result<(Start, Tensor)> {
    let split = |tensor: candle_core::Result<Tensor>| Ok((Start::Heads, tensor?.contiguous()?));
    let heads_first = || tensor.transpose(0, 1)?.unsqueeze(0);
    match (tensor.rank(), format, start) {
        (4, QkvFormat::Bhsd, None | Some(Start::Heads)) => split(Ok(tensor.clone())),
        (4, QkvFormat::Bshd, None | Some(Start::Heads)) => split(tensor.transpose(1, 2)),
        (4, QkvFormat::Sbhd, None | Some(Start::Heads)) => split(tensor.permute((1, 2, 0, 3))),
        (3, QkvFormat::Thd, None | Some(Start::Heads))
        | (3, QkvFormat::Bshd | QkvFormat::Sbhd, Some(Start::Heads)) => split(heads_first()),
        (3, QkvFormat::Bhsd, Some(Start::Heads)) => split(tensor.unsqueeze(0)),
        (3, QkvFormat::Sbhd, None | Some(Start::Projections)) => {
            Ok((Start::Projections, tensor.transpose(0, 1)?.contiguous()?))
        }
        (3, QkvFormat::Bhsd | QkvFormat::Bshd, None | Some(Start::Projections)) => {
            Ok((Start::Projections, tensor.clone()))
        }
        (2, _, Some(Start::Projections)) => Ok((Start::Projections, tensor.unsqueeze(0)?)),
        (2, _, None | Some(Start::Heads)) => split(tensor.unsqueeze(0)?.unsqueeze(0)),
        (rank, ..) => {
            let axes = match format {
                QkvFormat::Bhsd => "(batch, head, token, head_dim)",
                QkvFormat::Bshd => "(batch, token, head, head_dim)",
                QkvFormat::Sbhd => "(token, batch, head, head_dim)",
                QkvFormat::Thd => "(token, head, head_dim)",
            };
            let axes = match start {
                Some(Start::Projections) => "(batch, token, heads · head_dim)",
                _ => axes,
            };
            let what = tr!(
                "is {dims}, which has {rank} axes; {axes} is needed",
                dims = format!("{:?}", tensor.dims()),
                rank,
                axes
            );
            let fix = tr!(
                "give the order of the axes with `qkv_format`, or say what they are with `start`"
            );
            Err(Error::tensor(name, what, fix))
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;

    /// What is needed follows from what they are said to be, else from the order of their axes.
    #[test]
    fn the_axes_that_are_needed_are_told() {
        let five = Tensor::zeros((1, 2, 3, 4, 5), DType::F32, &Device::Cpu).expect("zeros");
        for (format, start, axes) in [
            (QkvFormat::Bshd, None, "(batch, token, head, head_dim)"),
            (QkvFormat::Thd, Some(Start::Heads), "(token, head, head_dim)"),
            (QkvFormat::Bshd, Some(Start::Projections), "(batch, token, heads · head_dim)"),
        ] {
            let error = arranged("q", &five, format, start).expect_err("refused").to_string();
            assert!(error.contains(&format!("5 axes; {axes} is needed")), "{error}");
        }
    }
}
