//! Which earlier tensors is one the sum of? So residual streams are made, and no module gives them.

use candle_core::{DType, Tensor};

use super::super::cells::solved;
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

/// The tensors that make a sum, and their factors: plain ones, else those that are `meant`, else as few as do.
pub fn with_factors(
    sum: &Tensor,
    earlier: &[(usize, Tensor)],
    meant: &[usize],
    tolerance: f64,
) -> Result<Option<Vec<(usize, f64)>>> {
    let plain = terms(sum, earlier, tolerance)?;
    if !plain.is_empty() {
        return Ok(Some(plain.into_iter().map(|at| (at, 1.0)).collect()));
    }
    let fewer = (2..=MOST).map(|count| some(earlier, count));
    let mut choices = std::iter::once(vec![meant.to_vec()]).chain(fewer);
    choices.find_map(|choices| weighed(sum, earlier, choices, tolerance).transpose()).transpose()
}

/// The tensors that make a sum with factors, of one of these choices, and the factors; nothing where none comes within the
/// tolerance.
fn weighed(
    sum: &Tensor,
    earlier: &[(usize, Tensor)],
    choices: impl IntoIterator<Item = Vec<usize>>,
    tolerance: f64,
) -> Result<Option<Vec<(usize, f64)>>> {
    let mut best = (tolerance, None);
    for places in choices.into_iter().filter(|places| !places.is_empty()) {
        let of = |place: &usize| {
            earlier.iter().find(|(at, own)| at == place && own.dims() == sum.dims())
        };
        let Some(parts) = places.iter().map(of).collect::<Option<Vec<_>>>() else { continue };
        let parts: Vec<&Tensor> = parts.into_iter().map(|(_, own)| own).collect();
        let Some(factors) = factors(sum, &parts)? else { continue };
        let scaled =
            parts.iter().zip(&factors).map(|(part, factor)| Ok(part.affine(*factor, 0.0)?));
        let off = apart(sum, &added_up(scaled)?)?;
        if off < best.0 {
            best = (off, Some(places.into_iter().zip(factors).collect()));
        }
    }
    Ok(best.1)
}

/// All choices of so many earlier tensors.
fn some(earlier: &[(usize, Tensor)], count: usize) -> Vec<Vec<usize>> {
    let place = |at: usize| earlier.get(at).map(|(place, _)| *place);
    let chosen = choices(earlier.len(), count).into_iter();
    chosen.map(|own| own.into_iter().filter_map(place).collect()).collect()
}

/// The factors by which these tensors come nearest to a sum, by least squares; nothing where they do not tell.
fn factors(sum: &Tensor, parts: &[&Tensor]) -> Result<Option<Vec<f64>>> {
    let dot = |left: &Tensor, right: &Tensor| -> Result<f64> {
        Ok(left.mul(right)?.to_dtype(DType::F64)?.sum_all()?.to_scalar()?)
    };
    let mut rows = Vec::new();
    for own in parts {
        let row = parts.iter().chain([&sum]).map(|other| dot(own, other));
        rows.push(row.collect::<Result<Vec<f64>>>()?);
    }
    Ok(solved(rows))
}

/// A residual stream is the sum of itself, an attention and an MLP.
pub const MOST: usize = 3;

/// The choices of so many of `all` places, later ones first.
pub fn choices(all: usize, count: usize) -> Vec<Vec<usize>> {
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
        let found = weighed(&other, &earlier, some(&earlier, 2), 1e-5).expect("numbers");
        let [(1, one), (2, factor)] = found.expect("found")[..] else {
            panic!("the second and third")
        };
        assert!((one - 1.0).abs() < 1e-5 && (factor - 0.22).abs() < 1e-5);
        assert!(terms(&none, &earlier, 1e-5).expect("numbers").is_empty());
    }
}
