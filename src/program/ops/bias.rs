//! What is added to the scores: linear position biases, and float masks.

use candle_core::{DType, Device, Tensor};

use super::mask::{broadcasts, joined};
use super::slip::Slip;
use crate::error::Result;
use crate::program::axis::Axis::{Head, Key, Query};
use crate::program::axis::{Axes, Dim};
use crate::program::narrow::{Narrowed, Part};
use crate::program::op::{Misread, Operation, at, read};
use crate::program::slips::{Kind, Knob, Range, Sibling, whole};
use crate::program::terms::{Term, Value, factor};

/// Biases of scores.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Biasing {
    /// (head): the slopes of the heads' position biases, in f64.
    Slopes {
        /// A slope a head.
        slopes: Vec<f64>,
    },
    /// (head, query, key): −slope · |position of the query − position of the key|, in f64. Reads the slopes.
    Distances {
        /// Which distance that is.
        sort: Distance,
        /// The position of the first query row.
        first: usize,
        /// Query rows.
        queries: usize,
        /// Keys.
        keys: usize,
    },
    /// Position biases and a float mask added up in f64, as one number of the run's type. Reads one or more of them.
    Sum {
        /// The type of the run.
        dtype: DType,
    },
    /// Scores + position biases or a float mask, broadcast from the right.
    Add,
}

/// Which distance of a query and a key a position bias grows with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Distance {
    /// |query − key|.
    #[default]
    Absolute,
    /// query − key, below 0 for keys to come.
    Signed,
    /// last key − key, the same for every query.
    FromLast,
}

impl Distance {
    /// The distance of the two among so many keys.
    #[allow(clippy::cast_precision_loss, reason = "exact below 2^53 tokens")]
    fn of(self, query: usize, key: usize, keys: usize) -> f64 {
        match self {
            Self::Absolute => query.abs_diff(key) as f64,
            Self::Signed => query as f64 - key as f64,
            Self::FromLast => keys as f64 - 1.0 - key as f64,
        }
    }
}

/// The slopes of so many heads: 2^(−8/n), 2^(−16/n), … for n heads, where n is a power of two; otherwise those of the
/// next lower power, followed by every other one of the next higher, as the paper's code has it ("Train Short, Test
/// Long", Press et al., 2021, section 3).
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "heads are few")]
pub fn alibi_slopes(heads: usize) -> Vec<f64> {
    let of_power = |n: usize| (1..=n).map(move |at| (-8.0 * at as f64 / n as f64).exp2());
    if heads.is_power_of_two() {
        return of_power(heads).collect();
    }
    let lower = heads.next_power_of_two() / 2;
    of_power(lower).chain(of_power(2 * lower).step_by(2)).take(heads).collect()
}

impl Operation for Biasing {
    #[allow(clippy::cast_precision_loss, reason = "exact below 2^53 tokens")]
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(match (self, inputs) {
            (Self::Slopes { slopes }, _) => Tensor::new(slopes.as_slice(), &Device::Cpu)?,
            (Self::Distances { sort, first, queries, keys }, [slopes]) => {
                let slopes = slopes.to_dtype(DType::F64)?.to_vec1::<f64>()?;
                let count = slopes.len().saturating_mul(*queries).saturating_mul(*keys);
                let mut biases = Vec::with_capacity(count);
                for slope in &slopes {
                    for query in (*first..).take(*queries) {
                        biases.extend((0..*keys).map(|key| -slope * sort.of(query, key, *keys)));
                    }
                }
                Tensor::from_vec(biases, (slopes.len(), *queries, *keys), &Device::Cpu)?
            }
            (Self::Sum { dtype }, [only]) => only.to_dtype(*dtype)?,
            (Self::Sum { dtype }, [first, others @ ..]) => {
                let wide = first.to_dtype(DType::F64)?;
                let add =
                    |sum: Tensor, bias: &&Tensor| sum.broadcast_add(&bias.to_dtype(DType::F64)?);
                others.iter().try_fold(wide, add)?.to_dtype(*dtype)?
            }
            (Self::Add, [scores, bias]) => scores.broadcast_add(bias)?,
            (Self::Distances { .. } | Self::Sum { .. } | Self::Add, _) => {
                return Err(Misread.into());
            }
        })
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match (self, inputs) {
            (Self::Slopes { slopes }, []) => Ok(vec![(Head, slopes.len())]),
            (Self::Distances { queries, keys, .. }, [[heads @ (Head, _)]]) => {
                Ok(vec![*heads, (Query, *queries), (Key, *keys)])
            }
            (Self::Sum { .. }, _) => joined(inputs),
            (Self::Add, [scores, bias]) if broadcasts(bias, scores) => Ok(scores.to_vec()),
            (Self::Slopes { .. } | Self::Distances { .. } | Self::Add, _) => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        Ok(match self {
            Self::Slopes { slopes } => {
                let slopes: Vec<String> = slopes.iter().map(ToString::to_string).collect();
                slopes.join(", ")
            }
            Self::Distances { sort, first, keys, .. } => {
                let query =
                    if *first == 0 { "query".to_owned() } else { format!("query + {first}") };
                let distance = match sort {
                    Distance::Absolute => format!("|{query} − key|"),
                    Distance::Signed => format!("({query} − key)"),
                    Distance::FromLast => format!("({} − key)", keys.saturating_sub(1)),
                };
                format!("−{} · {distance}", read::<1, _>(names)?[0])
            }
            Self::Sum { .. } | Self::Add => names.join(" + "),
        })
    }

    #[allow(clippy::cast_precision_loss, reason = "exact below 2^53 tokens")]
    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        match self {
            Self::Slopes { slopes } => {
                let [head] = at(cell)?;
                Ok(vec![Term(vec![factor("slope", *slopes.get(head).ok_or(Misread)?)])])
            }
            Self::Distances { sort, first, keys, .. } => {
                let ([slopes], [head, query, key]) = (read(inputs)?, at(cell)?);
                let distance = sort.of(first + query, key, *keys);
                Ok(vec![Term(vec![slopes.at(&[head])?, factor("−distance", -distance)])])
            }
            Self::Sum { .. } | Self::Add => {
                inputs.iter().map(|bias| Ok(Term(vec![bias.broadcast_at(cell)?]))).collect()
            }
        }
    }

    fn knobs(&self) -> Vec<Knob> {
        if let Self::Distances { sort, first, queries, keys } = self {
            let (sort, queries, keys) = (*sort, *queries, *keys);
            let bound = i64::try_from(keys.max(queries)).unwrap_or(i64::MAX);
            #[allow(clippy::cast_precision_loss, reason = "places are below 2^52")]
            let value = *first as f64;
            return vec![Knob {
                name: "position of the first query",
                value,
                range: Range::Whole(0, bound),
                common: vec![0.0],
                with: Box::new(move |first| {
                    Some(Self::Distances { sort, first: whole(first)?, queries, keys }.into())
                }),
            }];
        }
        let Self::Slopes { slopes } = self else { return Vec::new() };
        let slopes = slopes.clone();
        vec![Knob {
            name: "factor of the slopes",
            value: 1.0,
            range: Range::Factor,
            common: vec![-1.0, 0.5, 2.0],
            with: Box::new(move |factor| {
                let slopes = slopes.iter().map(|slope| slope * factor).collect();
                Some(Self::Slopes { slopes }.into())
            }),
        }]
    }

    fn siblings(&self, _: &[&Axes]) -> Vec<Sibling> {
        match self {
            Self::Add => vec![
                Sibling::new(
                    Slip::AddTimes { factor: -1.0, addend: 0.0 },
                    Kind::Replaced,
                    "the bias is subtracted",
                ),
                Sibling::new(
                    Slip::Product,
                    Kind::Replaced,
                    "the scores are multiplied by the bias",
                ),
            ],
            Self::Slopes { slopes } => {
                let power = |power: f64, told: &str| {
                    let slopes = slopes.iter().map(|slope| slope.powf(power)).collect();
                    Sibling::new(Self::Slopes { slopes }, Kind::Parameter, told)
                };
                let of = |slopes: Vec<f64>, told: &str| {
                    Sibling::new(Self::Slopes { slopes }, Kind::Parameter, told)
                };
                let heads = slopes.len();
                #[allow(clippy::cast_precision_loss, reason = "heads are few")]
                let powers = |first: usize| {
                    let slope = |at: usize| (-8.0 * at as f64 / heads as f64).exp2();
                    (first..first + heads).map(slope).collect::<Vec<f64>>()
                };
                let of_ranks = |ranks: usize| alibi_slopes(heads / ranks).repeat(ranks);
                let mut all = vec![
                    of(powers(0), "the slopes begin with 2^0, not with 2^(−8 / heads)"),
                    of(powers(1), "the slopes are those of a power of two, 2^(−8 i / heads)"),
                ];
                for ranks in [2, 4].into_iter().filter(|ranks| heads % ranks == 0 && heads > *ranks)
                {
                    let told =
                        format!("the slopes are those of heads / {ranks}, {ranks} times over");
                    all.push(of(of_ranks(ranks), &told));
                }
                all.extend([
                    power(0.5, "the slopes are powers of 2^(−4 / heads), not of 2^(−8 / heads)"),
                    power(2.0, "the slopes are powers of 2^(−16 / heads), not of 2^(−8 / heads)"),
                ]);
                all
            }
            Self::Distances { first, queries, keys, .. } => {
                let distances = |sort: Distance, told: &str| {
                    let (first, queries, keys) = (*first, *queries, *keys);
                    let other = Self::Distances { sort, first, queries, keys };
                    Sibling::new(other, Kind::Replaced, told)
                };
                vec![
                    distances(
                        Distance::Signed,
                        "the distance has a sign: keys to come are favoured, not disfavoured",
                    ),
                    distances(
                        Distance::FromLast,
                        "the distance is that from the last key, the same for every query",
                    ),
                ]
            }
            Self::Sum { .. } => Vec::new(),
        }
    }

    fn narrowed(&self, part: Part, _: &[&Axes], _: &Axes) -> Narrowed {
        match (self, part) {
            (Self::Distances { sort, first, keys, .. }, Part::Rows(rows)) => {
                let (first, queries) = (first + rows.first, rows.count);
                let (sort, keys) = (*sort, *keys);
                Narrowed::To(Self::Distances { sort, first, queries, keys }.into())
            }
            (
                Self::Slopes { .. } | Self::Distances { .. } | Self::Sum { .. } | Self::Add,
                Part::Item(_) | Part::Rows(_),
            ) => Narrowed::Same,
        }
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        output.count().saturating_mul(match self {
            Self::Slopes { .. } => 0,
            Self::Distances { .. } | Self::Add => 1,
            Self::Sum { .. } => inputs.len().saturating_sub(1) as u128,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Press et al., 2021: eight heads have 1/2, 1/4 … 1/256; twelve have four of sixteen's after those.
    #[test]
    fn slopes_are_those_of_the_paper() {
        let halves: Vec<f64> = (1..=8).map(|at| 0.5_f64.powi(at)).collect();
        assert_eq!(alibi_slopes(8), halves);
        let sixteen = alibi_slopes(16);
        let some_of_sixteen = [sixteen[0], sixteen[2], sixteen[4], sixteen[6]];
        assert_eq!(alibi_slopes(12), [halves.as_slice(), &some_of_sixteen].concat());
        assert_eq!(sixteen[..1], [0.5_f64.sqrt()]);
        assert_eq!(alibi_slopes(1), [0.5_f64.powi(8)]);
        assert_eq!(alibi_slopes(3).len(), 3);
    }
}
