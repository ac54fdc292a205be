//! What do people write in the place of a norm?

use super::{Knob, Range, Sibling, others};
use program::{Axes, Axis, Kind, Norm, Squares};

pub fn knobs(own: &Norm) -> Vec<Knob> {
    let powers = (0..10).map(|power| 0.1_f64.powi(power));
    let common: Vec<f64> = [0.0, 1e-12].into_iter().chain(powers).collect();
    vec![Knob::new(own, ("eps", own.eps), Range::Positive, &common, |own, eps| {
        own.eps = eps;
        true
    })]
}

pub fn siblings(own: &Norm, inputs: &[&Axes]) -> Vec<Sibling> {
    let other = if own.is_centred {
        "the RMS norm, which leaves the mean as it is, in place of LayerNorm"
    } else {
        "LayerNorm, which subtracts the mean, in place of the RMS norm"
    };
    let sum_or_mean = if own.is_mean {
        "the L2 norm, the root of the sum of squares, in place of their mean"
    } else {
        "the RMS norm, the root of the mean of squares, in place of their sum"
    };
    let mut all = others(
        own,
        Kind::Replaced,
        &[
            (other, |own| own.is_centred ^= true),
            (sum_or_mean, |own| own.is_mean ^= true),
            ("the mean is subtracted, and the squares are those of the numbers before", |own| {
                (own.is_centred, own.squares) = (true, Squares::Raw);
            }),
            ("the root of the mean square is forgotten", |own| own.power = 1.0),
            ("ε is added to the root, not below it", |own| own.is_eps_outside = true),
            (
                "it divides by the mean of the absolute numbers, not by the root mean square",
                |own| {
                    (own.squares, own.power) = (Squares::Absolute, 1.0);
                },
            ),
            ("it divides by the largest absolute number, not by the root mean square", |own| {
                (own.squares, own.power) = (Squares::Largest, 1.0);
            }),
        ],
    );
    if inputs.len() > 1 {
        let weight = if own.offset == 0.0 {
            "the weight is 1 + w in place of w"
        } else {
            "the weight is w in place of 1 + w"
        };
        all.extend(others(
            own,
            Kind::Replaced,
            &[
                (weight, |own| own.offset = 1.0 - own.offset),
                ("the weight is w − 1 in place of w", |own| own.offset = -1.0),
            ],
        ));
    }
    all.extend(by_deviation(own));
    all.extend(over_others(own, inputs));
    all
}

/// The other norm with the ε that it adds unless another is stated, and norms by standard deviations.
fn by_deviation(own: &Norm) -> Vec<Sibling> {
    let mut all = Vec::new();
    let mut replaced = |other: Norm, told: String| {
        all.push(Sibling::new(other, Kind::Replaced, told));
    };
    let (eps, usual_name, name) = if own.is_centred {
        (1e-6, tr!("the RMS norm (ε 1e-6)"), "LayerNorm")
    } else {
        (1e-5, tr!("LayerNorm (ε 1e-5)"), tr!("the RMS norm"))
    };
    let usual = Norm { is_centred: !own.is_centred, eps, ..own.clone() };
    replaced(usual, tr!("{usual_name} in place of {name}", usual_name, name));
    for (squares, which) in
        [(Squares::Variance, tr!("biased")), (Squares::Unbiased, tr!("unbiased"))]
    {
        for (is_eps_outside, place) in [(false, tr!("below")), (true, tr!("beside"))] {
            let by = tr!("by the {which} standard deviation, ε {place} the root", which, place);
            let other = Norm { is_eps_outside, squares, ..own.clone() };
            replaced(other.clone(), tr!("it divides {by}", by));
            if !own.is_centred {
                let told = tr!("LayerNorm, which divides {by}, in place of the RMS norm", by);
                replaced(Norm { is_centred: true, ..other }, told);
            }
        }
    }
    all
}

/// Over so many ranks heads are usually split.
const RANKS: [usize; 4] = [2, 4, 8, 16];

/// The norm over other axes.
fn over_others(own: &Norm, inputs: &[&Axes]) -> Vec<Sibling> {
    let over = |over: Vec<usize>, told: String| {
        Sibling::new(Norm { over, ..own.clone() }, Kind::Axes, told)
    };
    if own.is_over_heads() {
        let told = tr!("the norm runs over the features of a head, not over those of all heads");
        let heads = inputs.first().and_then(|axes| axes.iter().nth(1)).map_or(0, |(_, size)| size);
        let is_of_keys =
            inputs.first().is_some_and(|axes| axes.iter().any(|(axis, _)| axis == Axis::Key));
        // Of fewer key heads each rank may have one alone, where it has several of the queries.
        let most = if is_of_keys { heads } else { heads.saturating_sub(1) };
        let of_ranks =
            RANKS.into_iter().filter(|ranks| *ranks <= most && heads.is_multiple_of(*ranks));
        let of_ranks = of_ranks.map(|ranks| {
            let told = tr!(
                "the norm runs over the heads of each of {ranks} ranks, not over all heads: the sum of squares is not added up over ranks",
                ranks
            );
            Sibling::new(Norm { groups: ranks, ..own.clone() }, Kind::Axes, told)
        });
        return std::iter::once(over(vec![1], told.to_owned())).chain(of_ranks).collect();
    }
    let rank = inputs.first().map_or(0, |axes| axes.rank());
    let (axes, whose): (&[(usize, &str)], _) = match rank {
        4 => {
            (&[(2, tr!("tokens")), (3, tr!("heads")), (4, tr!("items"))], tr!("a head's features"))
        }
        _ => (&[(2, tr!("tokens")), (3, tr!("items"))], tr!("the features")),
    };
    let fits = axes.iter().filter(|(at, _)| *at <= rank);
    fits.flat_map(|(at, name)| {
        [
            over(vec![*at], tr!("the norm runs over the {name}, not over {whose}", name, whose)),
            over(vec![1, *at], tr!("the norm runs over features and {name} together", name)),
        ]
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_may_have_one_key_head_alone() {
        let all = Norm { over: vec![1, 3], ..Norm::rms(1e-6) };
        let of_two = |tokens: Axis| {
            let x = [(Axis::Batch, 1), (Axis::Head, 2), (tokens, 5), (Axis::HeadDim, 3)];
            let found = over_others(&all, &[&Axes::new(x)]);
            found.iter().any(|own| own.told.contains("the heads of each of 2 ranks"))
        };
        assert!(of_two(Axis::Key) && !of_two(Axis::Query));
    }
}
