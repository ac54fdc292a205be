//! What is added to the scores: linear position biases, and float masks.

use candle_core::{DType, Device, Tensor};

use super::alibi::{Distance, Distances, alibi_slopes};
use super::mask::{broadcasts, joined};
use super::relative::Relative;
use super::slip::Slip;
use crate::axis::Axis::{Bucket, Head, Key, Query};
use crate::axis::{Axes, Dim};
use crate::narrow::{Narrowed, Part};
use crate::op::{Misread, Operation, at, read};
use crate::pattern::{Pattern, Products, Read};
use crate::slips::{Kind, Knob, Range, Sibling, whole};
use crate::terms::{Term, Value, factor};
use base::error::Result;

/// Biases of scores.
#[derive(Debug, Clone, PartialEq)]
pub enum Biasing {
    /// (head): the slopes of the heads' position biases, in f64.
    Slopes {
        /// A slope a head.
        slopes: Vec<f64>,
    },
    /// (head, query, key): −slope · distance of query and key, in f64. Reads the slopes.
    Distances(Distances),
    /// (head, query, key): learned biases of relative positions. Reads a table (bucket, head).
    Relative(Relative),
    /// Position biases and a float mask added up in f64, as one number of the run's type. Reads one or more of them.
    Sum {
        /// The type of the run.
        dtype: DType,
    },
    /// Scores + position biases or a float mask, broadcast from the right.
    Add,
}

impl Operation for Biasing {
    #[allow(clippy::cast_precision_loss, reason = "exact below 2^53 tokens")]
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(match (self, inputs) {
            (Self::Slopes { slopes }, _) => Tensor::new(slopes.as_slice(), &Device::Cpu)?,
            (Self::Distances(own), [slopes]) => {
                let slopes = slopes.to_dtype(DType::F64)?.to_vec1::<f64>()?;
                let count = slopes.len().saturating_mul(own.queries).saturating_mul(own.keys);
                let mut biases = Vec::with_capacity(count);
                for slope in &slopes {
                    for query in 0..own.queries {
                        biases.extend((0..own.keys).map(|key| own.of(*slope, query, key)));
                    }
                }
                Tensor::from_vec(biases, (slopes.len(), own.queries, own.keys), &Device::Cpu)?
            }
            (Self::Relative(own), [table]) => {
                let heads = table.dim(1)?;
                let rows = (0..own.queries).flat_map(|query| {
                    (0..own.keys)
                        .map(move |key| u32::try_from(own.row(query, key)).unwrap_or(u32::MAX))
                });
                let rows = Tensor::from_iter(rows, &Device::Cpu)?;
                let biases = table.index_select(&rows, 0)?.t()?.contiguous()?;
                biases.reshape((heads, own.queries, own.keys))?
            }
            (Self::Sum { dtype }, [only]) => only.to_dtype(*dtype)?,
            (Self::Sum { dtype }, [first, others @ ..]) => {
                let wide = first.to_dtype(DType::F64)?;
                let add =
                    |sum: Tensor, bias: &&Tensor| sum.broadcast_add(&bias.to_dtype(DType::F64)?);
                others.iter().try_fold(wide, add)?.to_dtype(*dtype)?
            }
            (Self::Add, [scores, bias]) => scores.broadcast_add(bias)?,
            (Self::Distances(_) | Self::Relative(_) | Self::Sum { .. } | Self::Add, _) => {
                return Err(Misread.into());
            }
        })
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match (self, inputs) {
            (Self::Slopes { slopes }, []) => Ok(vec![(Head, slopes.len())]),
            (Self::Distances(own), [[heads @ (Head, _)]]) => {
                Ok(vec![*heads, (Query, own.queries), (Key, own.keys)])
            }
            (Self::Relative(own), [[(Bucket, rows), heads @ (Head, _)]]) => {
                own.fits(*rows)?;
                Ok(vec![*heads, (Query, own.queries), (Key, own.keys)])
            }
            (Self::Sum { .. }, _) => joined(inputs),
            (Self::Add, [scores, bias]) if broadcasts(bias, scores) => Ok(scores.to_vec()),
            (Self::Slopes { .. } | Self::Distances(_) | Self::Relative(_) | Self::Add, _) => {
                Err(Misread)
            }
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        Ok(match self {
            Self::Slopes { slopes } => {
                let slopes: Vec<String> = slopes.iter().map(ToString::to_string).collect();
                slopes.join(", ")
            }
            Self::Distances(own) => {
                let query = match own.first {
                    0 => "query".to_owned(),
                    first => format!("query + {first}"),
                };
                let [slopes] = read(names)?;
                let product = match own.sort {
                    Distance::Absolute => format!("−{slopes} · |{query} − key|"),
                    Distance::Signed => format!("−{slopes} · ({query} − key)"),
                    Distance::FromLast => {
                        format!("{slopes} · (key − {})", own.keys.saturating_sub(1))
                    }
                    Distance::FromFirst => format!("{slopes} · key"),
                };
                let product = if own.is_narrow { format!("bf16({product})") } else { product };
                #[allow(clippy::float_cmp, reason = "1 exactly")]
                if own.factor == 1.0 { product } else { format!("{product} · {}", own.factor) }
            }
            Self::Relative(own) => own.formula(read::<1, _>(names)?[0]),
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
            Self::Distances(own) => {
                let ([slopes], [head, query, key]) = (read(inputs)?, at(cell)?);
                let slope = slopes.at(&[head])?;
                if own.is_narrow {
                    let bias = own.of(slope.value, query, key);
                    return Ok(vec![Term(vec![factor(tr!("bf16(slope · key) · scale"), bias)])]);
                }
                let distance = own.sort.of(own.first + query, key, own.keys);
                #[allow(clippy::float_cmp, reason = "1 exactly")]
                let by = Some(own.factor).filter(|by| *by != 1.0).map(|by| factor("scale", by));
                let factors = [slope, factor("−distance", -distance)].into_iter().chain(by);
                Ok(vec![Term(factors.collect())])
            }
            Self::Relative(own) => {
                let ([table], [head, query, key]) = (read(inputs)?, at(cell)?);
                Ok(vec![Term(vec![table.at(&[own.row(query, key), head])?])])
            }
            Self::Sum { .. } | Self::Add => {
                inputs.iter().map(|bias| Ok(Term(vec![bias.broadcast_at(cell)?]))).collect()
            }
        }
    }

    fn knobs(&self) -> Vec<Knob> {
        if let Self::Relative(own) = self {
            return own.knobs(|other| Self::Relative(other).into());
        }
        if let Self::Distances(own) = self {
            let own = own.clone();
            let bound = i64::try_from(own.keys.max(own.queries)).unwrap_or(i64::MAX);
            #[allow(clippy::cast_precision_loss, reason = "places are below 2^52")]
            let value = own.first as f64;
            return vec![Knob {
                name: tr!("position of the first query"),
                value,
                range: Range::Whole(0, bound),
                common: vec![0.0],
                with: Box::new(move |first| {
                    Some(Self::Distances(Distances { first: whole(first)?, ..own.clone() }).into())
                }),
            }];
        }
        let Self::Slopes { slopes } = self else { return Vec::new() };
        let slopes = slopes.clone();
        vec![Knob {
            name: tr!("factor of the slopes"),
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
                    tr!("the bias is subtracted"),
                ),
                Sibling::new(
                    Slip::Product,
                    Kind::Replaced,
                    tr!("the scores are multiplied by the bias"),
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
                    of(powers(0), tr!("the slopes begin with 2^0, not with 2^(−8 / heads)")),
                    of(powers(1), tr!("the slopes are those of a power of two, 2^(−8 i / heads)")),
                ];
                for ranks in [2, 4].into_iter().filter(|ranks| heads % ranks == 0 && heads > *ranks)
                {
                    let told =
                        tr!("the slopes are those of heads / {ranks}, {ranks} times over", ranks);
                    all.push(of(of_ranks(ranks), &told));
                }
                all.extend([
                    power(
                        0.5,
                        tr!("the slopes are powers of 2^(−4 / heads), not of 2^(−8 / heads)"),
                    ),
                    power(
                        2.0,
                        tr!("the slopes are powers of 2^(−16 / heads), not of 2^(−8 / heads)"),
                    ),
                ]);
                all
            }
            Self::Distances(own) => {
                let sorts = [
                    (Distance::Absolute, tr!("the distance is that of query and key")),
                    (
                        Distance::Signed,
                        tr!("the distance has a sign: keys to come are favoured, not disfavoured"),
                    ),
                    (
                        Distance::FromLast,
                        tr!("the distance is that from the last key, the same for every query"),
                    ),
                    (
                        Distance::FromFirst,
                        tr!("the bias grows with the key's position, the same for every query"),
                    ),
                ];
                let others = sorts.into_iter().filter(|(sort, _)| *sort != own.sort);
                let mut all: Vec<Sibling> = others
                    .map(|(sort, told)| {
                        let other = Self::Distances(Distances { sort, ..own.clone() });
                        Sibling::new(other, Kind::Replaced, told)
                    })
                    .collect();
                let told = if own.is_narrow {
                    tr!("positions and products are not rounded to bf16")
                } else {
                    tr!("positions and products are rounded to bf16")
                };
                let narrow = Distances { is_narrow: !own.is_narrow, ..own.clone() };
                all.push(Sibling::new(Self::Distances(narrow), Kind::Precision, told));
                #[allow(clippy::float_cmp, reason = "1 exactly")]
                if own.factor != 1.0 {
                    let unscaled = Distances { factor: 1.0, ..own.clone() };
                    let told = tr!("the biases are not scaled: they are added after the scaling");
                    all.push(Sibling::new(Self::Distances(unscaled), Kind::Omitted, told));
                    let twice = Distances { factor: 2.0 * own.factor, ..own.clone() };
                    let told = tr!("the biases are added twice, as in eager attention");
                    all.push(Sibling::new(Self::Distances(twice), Kind::Repeated, told));
                }
                all
            }
            Self::Relative(own) => {
                let others = own.others().into_iter();
                let sibling =
                    |(other, told)| Sibling::new(Self::Relative(other), Kind::Replaced, told);
                others.map(sibling).collect()
            }
            Self::Sum { .. } => Vec::new(),
        }
    }

    fn narrowed(&self, part: Part, _: &[&Axes], _: &Axes) -> Narrowed {
        match (self, part) {
            (Self::Distances(own), Part::Rows(rows)) => {
                let (first, queries) = (own.first + rows.first, rows.count);
                Narrowed::To(Self::Distances(Distances { first, queries, ..own.clone() }).into())
            }
            (Self::Distances(own), Part::Keys(keys)) => {
                Narrowed::To(Self::Distances(Distances { keys, ..own.clone() }).into())
            }
            (Self::Relative(own), Part::Keys(keys)) => {
                Narrowed::To(Self::Relative(Relative { keys, ..own.clone() }).into())
            }
            (Self::Relative(own), Part::Rows(rows)) => {
                let (first, queries) = (own.first + rows.first, rows.count);
                Narrowed::To(Self::Relative(Relative { first, queries, ..own.clone() }).into())
            }
            (
                Self::Slopes { .. }
                | Self::Distances(_)
                | Self::Relative(_)
                | Self::Sum { .. }
                | Self::Add,
                Part::Item(_) | Part::Rows(_) | Part::Keys(_) | Part::Tokens { .. },
            ) => Narrowed::Same,
        }
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let rank = inputs.iter().map(|axes| axes.rank()).max().unwrap_or(0);
        match self {
            Self::Sum { .. } | Self::Add => {
                let read = |(input, axes): (usize, &&Axes)| {
                    Products::one([Read::broadcast(input, axes, rank).into()])
                };
                Pattern::Sum(inputs.iter().enumerate().map(read).collect())
            }
            Self::Slopes { .. } | Self::Distances(_) | Self::Relative(_) => Pattern::ByCell,
        }
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        output.count().saturating_mul(match self {
            Self::Slopes { .. } | Self::Relative(_) => 0,
            Self::Distances(_) | Self::Add => 1,
            Self::Sum { .. } => inputs.len().saturating_sub(1) as u128,
        })
    }
}
