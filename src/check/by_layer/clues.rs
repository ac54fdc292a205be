//! What can be said of a part that got equal inputs and gave other numbers, by these alone?

use candle_core::Tensor;

use super::super::cells::ratio;
use super::super::grammar::numbers::short;
use super::measure::apart;
use base::error::{Result, listed};
use program::wide;

/// What the port's rows are of the reference's rows, both (1, rows, width), where one rule gives all of them: a factor, one
/// for each row, a vector that is added to each, rows of other tokens, or dropout.
pub fn clue(meant: &Tensor, own: &Tensor, tolerance: f64) -> Result<Option<String>> {
    let (meant, own) = (rows(meant)?, rows(own)?);
    let (Some(first), true) =
        (meant.first(), meant.len() == own.len() && meant.len() >= LEAST_ROWS)
    else {
        return Ok(None);
    };
    let width = first.len();
    if width < LEAST_ROWS {
        return Ok(None);
    }
    let near = |left: &[f64], right: &[f64]| {
        let size = right.iter().fold(0.0, |most, own| f64::max(most, own.abs()));
        // NaN is near nothing.
        left.iter().zip(right).all(|(l, r)| (l - r).abs() <= 4.0 * tolerance * size)
    };
    let pairs = || meant.iter().zip(&own);
    // Of equal rows there is nothing to say: others are off.
    if pairs().all(|(meant, own)| near(meant, own)) {
        return Ok(None);
    }
    let factors: Vec<f64> = pairs().map(|(meant, own)| factor(meant, own)).collect();
    let is_scaled = pairs().zip(&factors).all(|((meant, own), factor)| {
        near(&meant.iter().map(|number| number * factor).collect::<Vec<_>>(), own)
    });
    if own.iter().flatten().all(|number| *number == 0.0) {
        return Ok(Some(tr!("all of it is 0: it is left out, or not filled").to_owned()));
    }
    if is_scaled {
        let (least, most) =
            factors.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), own| {
                (f64::min(least, *own), f64::max(most, *own))
            });
        let told = |factor: f64| format!("{factor:.4}");
        // Factors that are apart by the rounding of the type are one: that of all rows.
        return Ok(Some(if most - least <= tolerance.max(1e-3) * most.abs() {
            let one = factor(&meant.concat(), &own.concat());
            let (factor, root) = (told(one), one.powi(-2));
            let is_whole = (root - root.round()).abs() <= tolerance * root && root >= 1.0;
            let root = if is_whole { format!("{root:.0}") } else { told(root) };
            tr!("all of it is {factor} times the reference's (1/√{root})", factor, root)
        } else {
            let (least, most) = (told(least), told(most));
            tr!(
                "each row is the reference's by a factor of its own, from {least} to {most}",
                least,
                most
            )
        }));
    }
    if let Some(told) = capped(&meant, &own, tolerance) {
        return Ok(Some(told));
    }
    let added: Vec<Vec<f64>> =
        pairs().map(|(meant, own)| own.iter().zip(meant).map(|(l, r)| l - r).collect()).collect();
    let is_one = added.iter().zip(&own).all(|(one, own)| {
        let shift: Vec<f64> =
            one.iter().zip(&added[0]).zip(own).map(|((l, r), own)| own + l - r).collect();
        near(&shift, own)
    });
    if is_one {
        return Ok(Some(
            tr!("one vector is added to every row, or left out, as a bias is").to_owned(),
        ));
    }
    for shift in 1..=MOST_SHIFT.min(meant.len() - LEAST_ROWS) {
        // Where an item ends and the next one begins, rows have no such neighbours.
        let is_shifted = |left: &[Vec<f64>], right: &[Vec<f64>]| {
            let pairs = left.iter().zip(right.iter().skip(shift));
            let (count, all) =
                (pairs.clone().filter(|(left, right)| near(left, right)).count(), pairs.count());
            count * 4 >= all * 3 && count >= 2
        };
        if is_shifted(&meant, &own) {
            return Ok(Some(tr!(
                "row i is the reference's row i − {shift}: positions are {shift} too low",
                shift
            )));
        }
        if is_shifted(&own, &meant) {
            return Ok(Some(tr!(
                "row i is the reference's row i + {shift}: positions are {shift} too high",
                shift
            )));
        }
    }
    let from: Option<Vec<usize>> =
        own.iter().map(|own| meant.iter().position(|meant| near(meant, own))).collect();
    if let Some(from) = from {
        let moved = from.iter().enumerate().filter(|(at, from)| at != *from);
        let moved: Vec<String> = moved.map(|(at, from)| tr!("{at} has {from}", at, from)).collect();
        let moved = listed(&moved);
        return Ok(Some(tr!(
            "its rows are rows of the reference at other places, as those of other tokens or positions are: {moved}",
            moved
        )));
    }
    Ok(dropped(&meant, &own, tolerance))
}

/// Fewer rows, or numbers in one, say nothing.
const LEAST_ROWS: usize = 3;
/// Positions are looked for so many tokens away.
const MOST_SHIFT: usize = 4;

/// That one of the two is the other's with a soft cap: C · tanh(x / C).
fn capped(meant: &[Vec<f64>], own: &[Vec<f64>], tolerance: f64) -> Option<String> {
    let cap = |from: &[Vec<f64>], to: &[Vec<f64>]| -> Option<f64> {
        let pairs = || from.iter().flatten().zip(to.iter().flatten()).map(|(x, y)| (*x, *y));
        let (x, y) = pairs().max_by(|(left, _), (right, _)| left.abs().total_cmp(&right.abs()))?;
        let (x, y) = (x.abs(), y.abs());
        // Of numbers that the cap hardly changes it is not known.
        if !x.is_finite() || y <= 0.0 || y >= x * (1.0 - (8.0 * tolerance).max(1e-3)) {
            return None;
        }
        // What is left grows with the cap, from it to the number itself.
        let (mut low, mut high) = (y, x * 100.0);
        for _ in 0..200 {
            let middle = f64::midpoint(low, high);
            if middle * (x / middle).tanh() < y { low = middle } else { high = middle }
        }
        let cap = f64::midpoint(low, high);
        let mut all = pairs().map(|(x, y)| (cap * (x / cap).tanh() - y).abs());
        all.all(|off| off <= 4.0 * tolerance * y).then_some(cap)
    };
    // It is solved for from numbers that are rounded.
    let told = |cap: f64| short((cap * 1e4).round() / 1e4);
    if let Some(cap) = cap(own, meant) {
        return Some(tr!(
            "the reference's numbers are these with a soft cap of {cap}: it is left out",
            cap = told(cap)
        ));
    }
    let cap = cap(meant, own)?;
    Some(tr!("they are the reference's with a soft cap of {cap}", cap = told(cap)))
}

/// Whether some numbers are zero and all others the reference's by one factor, that of what is kept.
fn dropped(meant: &[Vec<f64>], own: &[Vec<f64>], tolerance: f64) -> Option<String> {
    let all = || meant.iter().flatten().zip(own.iter().flatten());
    let total = all().count();
    let kept: Vec<(f64, f64)> =
        all().filter(|(_, own)| **own != 0.0).map(|(meant, own)| (*meant, *own)).collect();
    let share = kept.len() as f64 / total as f64;
    if kept.len() == total || share < 0.2 {
        return None;
    }
    let (left, right): (Vec<f64>, Vec<f64>) = kept.into_iter().unzip();
    let factor = factor(&left, &right);
    let size = right.iter().fold(0.0, |most, own| f64::max(most, own.abs()));
    let is_it =
        left.iter().zip(&right).all(|(l, r)| (l * factor - r).abs() <= 4.0 * tolerance * size);
    // What is kept is scaled by 1 / (1 − p).
    let is_dropout = is_it && (1.0 / factor - share).abs() < 0.15 && factor > 1.0;
    let rate = format!("{:.2}", 1.0 - 1.0 / factor);
    is_dropout.then(|| tr!("it is dropout of p = {rate}: some numbers are 0, and all others the reference's by 1/(1 − p)", rate))
}

/// The factor by which the right is the left, by least squares; 0 where the left says none.
fn factor(left: &[f64], right: &[f64]) -> f64 {
    Some(ratio(right, left)).filter(|factor| factor.is_finite()).unwrap_or(0.0)
}

fn rows(tensor: &Tensor) -> Result<Vec<Vec<f64>>> {
    let wide = wide(tensor)?.to_dtype(candle_core::DType::F64)?;
    Ok(wide.flatten_to(1)?.to_vec2()?)
}

/// The tensor of another part with these numbers, and what it is called.
pub fn same_as<'a>(
    own: &Tensor,
    others: impl Iterator<Item = (&'a str, Result<Tensor>)>,
    tolerance: f64,
) -> Result<Option<&'a str>> {
    for (name, other) in others {
        let other = wide(&other?)?;
        if apart(&other, own)? <= tolerance {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;

    #[test]
    fn one_factor_of_all_rows_stays_one_where_numbers_are_rounded() {
        let numbers: Vec<f32> = (0..40_u8).map(|at| (f32::from(at) * 1.7).sin()).collect();
        let meant = Tensor::from_vec(numbers, (1, 5, 8), &Device::Cpu).expect("fits");
        let own = (&meant / 48_f64.sqrt()).expect("numbers");
        let told = |of: DType, tolerance| {
            let [meant, own] = [&meant, &own].map(|all| all.to_dtype(of).expect("numbers"));
            clue(&meant, &own, tolerance).expect("numbers")
        };
        let one = Some("all of it is 0.1443 times the reference's (1/√48)".to_owned());
        assert_eq!(told(DType::F32, 1e-5), one);
        let in_bf16 = told(DType::BF16, 1.6e-2).expect("told");
        assert!(in_bf16.starts_with("all of it is 0.144") && in_bf16.ends_with("(1/√48)"));
    }

    #[test]
    fn numbers_with_a_soft_cap_and_without_it_are_told() {
        let numbers: Vec<f32> = (0..40_u8).map(|at| 9.0 * (f32::from(at) * 1.7).sin()).collect();
        let plain = Tensor::from_vec(numbers, (1, 5, 8), &Device::Cpu).expect("fits");
        let capped =
            ((&plain / 6.0).and_then(|own| own.tanh()).expect("numbers") * 6.0).expect("fits");
        let told = |meant, own| clue(meant, own, 1e-5).expect("numbers").expect("told");
        assert_eq!(told(&plain, &capped), "they are the reference's with a soft cap of 6");
        let lacks = "the reference's numbers are these with a soft cap of 6: it is left out";
        assert_eq!(told(&capped, &plain), lacks);
    }
}
