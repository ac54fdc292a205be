//! Which earlier tensors is one the sum of? So residual streams are made, and no module gives them.

use candle_core::{DType, Tensor};

use super::measure::apart;
use base::error::Result;
use program::added_up;

/// The tensors whose sum one is, up to three of them: the fewest, and of as many the nearest. Nothing where none comes within
/// the tolerance.
pub fn terms(sum: &Tensor, earlier: &[(usize, Tensor)], tolerance: f64) -> Result<Vec<usize>> {
    let fitting: Vec<&(usize, Tensor)> =
        earlier.iter().filter(|(_, own)| own.dims() == sum.dims()).collect();
    for count in 1..=MOST {
        let mut best: (f64, Vec<usize>) = (tolerance, Vec::new());
        for chosen in choices(fitting.len(), count) {
            let parts = chosen.iter().filter_map(|at| fitting.get(*at));
            let total = added_up(parts.clone().map(|(_, part)| Ok(part.clone())))?;
            let own = apart(sum, &total)?;
            if own < best.0 {
                best = (own, parts.map(|(at, _)| *at).collect());
            }
        }
        if !best.1.is_empty() {
            return Ok(best.1);
        }
    }
    Ok(Vec::new())
}

/// The two tensors of which the second, by a factor, is added to the first to make a sum; and the factor. Nothing where none
/// comes within the tolerance.
pub fn scaled(
    sum: &Tensor,
    earlier: &[(usize, Tensor)],
    tolerance: f64,
) -> Result<Option<(usize, usize, f64)>> {
    let fitting: Vec<&(usize, Tensor)> =
        earlier.iter().filter(|(_, own)| own.dims() == sum.dims()).collect();
    let dot = |left: &Tensor, right: &Tensor| -> Result<f64> {
        Ok(left.mul(right)?.to_dtype(DType::F64)?.sum_all()?.to_scalar()?)
    };
    let mut best = (tolerance, None);
    for (base, one) in &fitting {
        let rest = sum.sub(one)?;
        for (term, other) in fitting.iter().filter(|(term, _)| term != base) {
            let square = dot(other, other)?;
            let factor = if square > 0.0 { dot(&rest, other)? / square } else { 0.0 };
            let off = apart(sum, &one.add(&other.affine(factor, 0.0)?)?)?;
            if off < best.0 {
                best = (off, Some((*base, *term, factor)));
            }
        }
    }
    Ok(best.1)
}

/// A residual stream is the sum of itself, an attention and an MLP.
const MOST: usize = 3;

/// The choices of so many of `all` places, later ones first.
fn choices(all: usize, count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    (count..=all)
        .rev()
        .flat_map(|end| {
            let others = choices(end - 1, count - 1).into_iter();
            others.map(move |mut chosen| {
                chosen.push(end - 1);
                chosen
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn a_sum_is_told_from_its_terms() {
        let tensor = |numbers: [f32; 4]| {
            Tensor::new(&numbers, &Device::Cpu).and_then(|t| t.reshape((1, 1, 4))).expect("fits")
        };
        let all = [
            tensor([1.0, 2.0, 3.0, 4.0]),
            tensor([0.5, -1.0, 7.0, 2.0]),
            tensor([9.0, 1.0, -3.0, 0.25]),
        ];
        let earlier: Vec<(usize, Tensor)> = all.iter().cloned().enumerate().collect();
        let sum = all[0].add(&all[2]).expect("fits");
        assert_eq!(terms(&sum, &earlier, 1e-5).expect("numbers"), [0, 2]);
        assert_eq!(terms(&all[1], &earlier, 1e-5).expect("numbers"), [1]);
        let none = (sum * 1.5).expect("fits");
        let other = (&all[1] + (&all[2] * 0.22).expect("fits")).expect("fits");
        let (base, term, factor) = scaled(&other, &earlier, 1e-5).expect("numbers").expect("found");
        assert_eq!((base, term), (1, 2));
        assert!((factor - 0.22).abs() < 1e-5);
        assert!(terms(&none, &earlier, 1e-5).expect("numbers").is_empty());
    }
}
