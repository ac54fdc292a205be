//! What is added to the scores: linear position biases, and float masks.

use candle_core::{DType, Device, Tensor};

use super::alibi::{Distance, Distances};
use super::collect::Collect;
use super::gradient::Gradient;
use super::mask::{broadcasts, joined};
use super::picked::Picked;
use super::position::shift_rows;
use super::relative::Relative;
use crate::adjoint::Adjoint;
use crate::axis::Axis::{Bucket, Head, Key, Query};
use crate::axis::{Axes, Dim, signed};
use crate::misread::{Misread, at, read};
use crate::operation::Operation;
use crate::part::Part;
use crate::pattern::{Multiplier, Pattern, Products, Read};
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
    /// (batch, head, query, key): of the products with all relative positions, that of each key's distance.
    Picked(Picked),
    /// Position biases and a float mask added up in f64, as one number of the run's type. Reads one or more of them.
    Sum {
        /// The type of the run.
        dtype: DType,
    },
    /// Scores + position biases or a float mask, broadcast from the right.
    Add,
}

impl Operation for Biasing {
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
                let biases = table.contiguous()?.index_select(&rows, 0)?.t()?.contiguous()?;
                biases.reshape((heads, own.queries, own.keys))?
            }
            (Self::Picked(own), [products]) => own.value(products)?,
            (Self::Sum { dtype }, [only]) => only.to_dtype(*dtype)?,
            (Self::Sum { dtype }, [first, others @ ..]) => {
                let wide = first.to_dtype(DType::F64)?;
                let add =
                    |sum: Tensor, bias: &&Tensor| sum.broadcast_add(&bias.to_dtype(DType::F64)?);
                others.iter().try_fold(wide, add)?.to_dtype(*dtype)?
            }
            (Self::Add, [scores, bias]) => scores.broadcast_add(bias)?,
            (
                Self::Distances(_)
                | Self::Relative(_)
                | Self::Picked(_)
                | Self::Sum { .. }
                | Self::Add,
                _,
            ) => {
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
            (Self::Picked(own), [products]) => own.axes(products),
            (Self::Sum { .. }, _) => joined(inputs),
            (Self::Add, [scores, bias]) if broadcasts(bias, scores) => Ok(scores.to_vec()),
            (
                Self::Slopes { .. }
                | Self::Distances(_)
                | Self::Relative(_)
                | Self::Picked(_)
                | Self::Add,
                _,
            ) => Err(Misread),
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
            Self::Picked(own) => own.formula(read::<1, _>(names)?[0]),
            Self::Sum { .. } | Self::Add => return Err(Misread),
        })
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
            Self::Slopes { slopes } => {
                let slopes = slopes.iter().map(|slope| ("slope".to_owned(), *slope)).collect();
                Pattern::Sum(vec![Products::one([Multiplier::Listed(0, slopes)])])
            }
            // They differ from cell to cell.
            Self::Distances(_) | Self::Relative(_) | Self::Picked(_) => Pattern::ByCell,
        }
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let factors = match self {
            Self::Distances(own) => {
                let ([slopes], [head, query, key]) = (read(inputs)?, at(cell)?);
                let slope = slopes.at(&[head])?;
                if own.is_narrow {
                    let bias = own.of(slope.value, query, key);
                    vec![factor(tr!("bf16(slope · key) · scale"), bias)]
                } else {
                    let distance = own.distance(query, key);
                    #[allow(clippy::float_cmp, reason = "1 exactly")]
                    let by = Some(own.factor).filter(|by| *by != 1.0).map(|by| factor("scale", by));
                    [slope, factor("−distance", -distance)].into_iter().chain(by).collect()
                }
            }
            Self::Relative(own) => {
                let ([table], [head, query, key]) = (read(inputs)?, at(cell)?);
                vec![table.at(&[own.row(query, key), head])?]
            }
            Self::Picked(own) => return own.terms(inputs, cell),
            Self::Slopes { .. } | Self::Sum { .. } | Self::Add => return Ok(Vec::new()),
        };
        Ok(vec![Term(factors)])
    }

    fn adjoint(&self, input: usize, inputs: &[&Axes], value: &Axes) -> Adjoint {
        let Some(own) = inputs.get(input) else { return Adjoint::Nothing };
        match self {
            Self::Slopes { .. } | Self::Distances(_) => Adjoint::Nothing,
            Self::Relative(relative) => {
                let (relative, axes) = (relative.clone(), own.iter().collect());
                Adjoint::on_gradient(Gradient::Table { relative, axes, is_last: false })
            }
            Self::Picked(picked) => {
                let (picked, axes) = (picked.clone(), own.iter().collect());
                Adjoint::on_gradient(Gradient::Picked { picked, axes, is_last: false })
            }
            Self::Sum { .. } | Self::Add => Collect::of_broadcast(own, value),
        }
    }

    fn narrowed(&self, part: Part, _: &[&Axes], _: &Axes) -> Option<Self> {
        if let Self::Picked(own) = self {
            return own.clone().narrowed(part).map(Self::Picked);
        }
        let mut own = self.clone();
        if let (Self::Distances(own), Part::Rows(rows)) = (&mut own, part) {
            shift_rows(&mut own.shifts, signed(rows.first));
        }
        let grid = match &mut own {
            Self::Distances(own) => Some((&mut own.first, &mut own.queries, &mut own.keys)),
            Self::Relative(own) => Some((&mut own.first, &mut own.queries, &mut own.keys)),
            Self::Slopes { .. } | Self::Picked(_) | Self::Sum { .. } | Self::Add => None,
        };
        match (grid, part) {
            (Some((first, queries, _)), Part::Rows(rows)) => {
                (*first, *queries) = (*first + rows.first, rows.count);
            }
            (Some((.., keys)), Part::Keys(count)) => *keys = count,
            _ => {}
        }
        Some(own)
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        output.count().saturating_mul(match self {
            Self::Slopes { .. } | Self::Relative(_) | Self::Picked(_) => 0,
            Self::Distances(_) | Self::Add => 1,
            Self::Sum { .. } => inputs.len().saturating_sub(1) as u128,
        })
    }
}
