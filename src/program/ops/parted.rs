//! Softmax and the weighted sum over parts of the keys: in splits that are computed apart and merged, or tile by tile with a
//! running maximum.

use candle_core::{D, DType, Tensor};

use super::merges::with_next_row;
use super::part_values::divided;
use super::parts::{PartSlip, PartStage, Parted, Parts};
use crate::adjoint::Adjoint;
use crate::axis::{Axes, Axis, Dim};
use crate::misread::{Misread, read};
use crate::operation::Operation;
use crate::part::Part;
use crate::pattern::{Pattern, Place, Products, Read};
use crate::terms::{Factor, Term, Value, factor};
use base::error::Result;

impl Operation for Parted {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        match &self.stage {
            PartStage::Largest(parts) => self.largest(parts, inputs),
            PartStage::Factor => self.factors(read::<1, _>(inputs)?[0]),
            PartStage::Sum(parts) | PartStage::Weighted(parts) => self.sums(parts, inputs),
            PartStage::Quotient => {
                let [acc, sum] = read(inputs)?;
                match self.slip {
                    Some(PartSlip::EmptyNan) => Ok(acc.broadcast_div(&sum.unsqueeze(D::Minus1)?)?),
                    Some(PartSlip::Undivided) => Ok(acc.clone()),
                    _ => divided(acc, sum),
                }
            }
            PartStage::LogSum => {
                let [largest, sum] = read(inputs)?;
                let log = self.log(sum)?;
                if self.slip == Some(PartSlip::SumAlone) {
                    return Ok(log);
                }
                let own = largest.add(&log)?;
                if self.slip == Some(PartSlip::EmptyZero) {
                    return Ok(own.eq(f64::NEG_INFINITY)?.where_cond(&own.zeros_like()?, &own)?);
                }
                Ok(own)
            }
            PartStage::Merge => {
                let [all, others @ ..] = inputs else { return Err(Misread.into()) };
                self.merge(all, others)
            }
            PartStage::Share => {
                let [own, merged] = read(inputs)?;
                self.share(own, merged)
            }
            PartStage::Merged => {
                let [outputs, weights] = read(inputs)?;
                if self.slip == Some(PartSlip::NextRow) {
                    return with_next_row(outputs, weights);
                }
                Ok(outputs.broadcast_mul(&weights.unsqueeze(D::Minus1)?)?.sum(0)?)
            }
            PartStage::LastLogSum => self.last_log_sum(inputs),
            PartStage::Last => self.last(inputs),
        }
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let (Some(first), count) = (inputs.first(), inputs.len()) else { return Err(Misread) };
        let fits = |counts: &[usize]| if counts.contains(&count) { Ok(()) } else { Err(Misread) };
        let parted = |parts: &Parts, width: &[Dim]| match first {
            [rows @ .., (Axis::Key, _)] if rows.len() == 3 => {
                Ok([&[(parts.axis, parts.keys.len())], rows, width].concat())
            }
            _ => Err(Misread),
        };
        let behind = first.get(1..).map(<[Dim]>::to_vec).ok_or(Misread);
        match &self.stage {
            PartStage::Largest(parts) => fits(&[1, 2]).and_then(|()| parted(parts, &[])),
            PartStage::Sum(parts) => fits(&[2, 3]).and_then(|()| parted(parts, &[])),
            PartStage::Weighted(parts) => {
                fits(&[3, 4])?;
                parted(parts, inputs.get(2).and_then(|values| values.get(3..)).ok_or(Misread)?)
            }
            PartStage::Factor => fits(&[1]).map(|()| first.to_vec()),
            PartStage::Quotient | PartStage::LogSum | PartStage::Share => {
                fits(&[2]).map(|()| first.to_vec())
            }
            PartStage::Merge => fits(&[1, 2]).and(behind),
            PartStage::Merged => fits(&[2]).and(behind),
            PartStage::LastLogSum => fits(&[2, 3]).and(behind),
            PartStage::Last => fits(&[2, 4]).and(behind),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [first, second, third, fourth] =
            [0, 1, 2, 3].map(|at| names.get(at).copied().unwrap_or_default());
        let first_sinks = |of: usize| {
            let sinks = names.get(of).map(|sinks| tr!("; in the first, also {sinks}", sinks));
            sinks.unwrap_or_default()
        };
        Ok(match &self.stage {
            PartStage::Largest(parts) if parts.is_running() => {
                tr!("largest of {first} over the keys so far", first)
            }
            PartStage::Largest(_) => {
                tr!(
                    "largest of {first} over the split's keys{sinks}",
                    first,
                    sinks = first_sinks(1)
                )
            }
            PartStage::Factor => tr!("exp({first} of the tile before − {first})", first),
            PartStage::Sum(parts) if parts.is_running() => {
                tr!(
                    "before · {third} + Σ exp({first} − {second}) over the tile's keys",
                    first,
                    second,
                    third
                )
            }
            PartStage::Sum(_) => tr!(
                "Σ exp({first} − {second}) over the split's keys{sinks}",
                first,
                second,
                sinks = first_sinks(2)
            ),
            PartStage::Weighted(parts) if parts.is_running() => tr!(
                "before · {fourth} + Σ exp({first} − {second}) · {third} over the tile's keys",
                first,
                second,
                third,
                fourth
            ),
            PartStage::Weighted(_) => {
                tr!(
                    "Σ exp({first} − {second}) · {third} over the split's keys",
                    first,
                    second,
                    third
                )
            }
            PartStage::Quotient => format!("{first} / {second}"),
            PartStage::LogSum => format!("{first} + log {second}"),
            PartStage::Merge => tr!("log Σ exp({first}) over splits", first),
            PartStage::Share => format!("exp({first} − {second})"),
            PartStage::Merged => tr!("Σ {first} · {second} over splits", first, second),
            PartStage::LastLogSum if names.len() > 2 => {
                tr!(
                    "log(exp({first} + log {second}) + exp({third})) of the last tile",
                    first,
                    second,
                    third
                )
            }
            PartStage::LastLogSum => tr!("{first} + log {second} of the last tile", first, second),
            PartStage::Last if names.len() > 2 => tr!(
                "{first} / ({second} + exp({fourth} − {third})) of the last tile",
                first,
                second,
                third,
                fourth
            ),
            PartStage::Last => tr!("{first} / {second} of the last tile", first, second),
        })
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let (PartStage::Merged, Some(count)) =
            (&self.stage, inputs.first().and_then(|axes| axes.shape().first().copied()))
        else {
            return Pattern::ByCell;
        };
        let outputs = Read::of(0, [4, 0, 1, 2, 3].map(Place::on));
        let weights = Read::of(1, [4, 0, 1, 2].map(Place::on));
        Pattern::Sum(vec![Products::many(count, outputs, weights)])
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let (PartStage::Sum(parts) | PartStage::Weighted(parts)) = &self.stage else {
            return Ok(Vec::new());
        };
        let ([scores, largest, others @ ..], [part, row @ ..]) = (inputs, cell) else {
            return Err(Misread.into());
        };
        let [batch, head, query, feature @ ..] = row else { return Err(Misread.into()) };
        let rows = [*part, *batch, *head, *query];
        let m = largest.at(&rows)?;
        let exponential = |score: Factor| {
            let name = format!("exp({} − {})", score.name, m.name);
            factor(name, (score.value - m.value.max(f64::from(f32::MIN))).exp()).made_of(&score)
        };
        let (values, rest) = match (feature, others) {
            ([feature], [values, rest @ ..]) => (Some((values, *feature)), rest),
            _ => (None, others),
        };
        let mut terms = Vec::new();
        if let (true, [of_before, ..]) = (parts.is_running() && *part > 0, rest) {
            let tensors: Vec<&Tensor> = inputs.iter().map(|input| input.tensor).collect();
            let mut before = self.sums(parts, &tensors)?.get(*part - 1)?;
            for at in row {
                before = before.get(*at)?;
            }
            let before = before.to_dtype(DType::F64)?.to_scalar::<f64>()?;
            let name = tr!("the same after tile {part}", part = *part - 1);
            terms.push(Term(vec![factor(name, before), of_before.at(&rows)?]));
        }
        for key in parts.places(*part) {
            let mut factors = vec![exponential(scores.at(&[*batch, *head, *query, key])?)];
            if let Some((values, feature)) = values {
                factors.push(values.at(&[*batch, *head, key, feature])?);
            }
            terms.push(Term(factors));
        }
        if let ([sinks], true) = (rest, !parts.is_running() && self.counts_sink(*part)) {
            terms.push(Term(vec![exponential(sinks.at(&[*head])?)]));
        }
        Ok(terms)
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        let scores = inputs.first().map_or(0, |axes| axes.count());
        match &self.stage {
            PartStage::Largest(_) => scores,
            PartStage::Sum(_) => scores.saturating_mul(3),
            PartStage::Weighted(_) => scores.saturating_mul(2).saturating_mul(output.last_size()),
            PartStage::Factor | PartStage::LogSum | PartStage::Share => {
                output.count().saturating_mul(2)
            }
            PartStage::Quotient | PartStage::Last => output.count(),
            PartStage::Merge | PartStage::LastLogSum => scores.saturating_mul(4),
            PartStage::Merged => scores.saturating_mul(2),
        }
    }

    /// Of the first keys alone each part has those that are among them.
    fn narrowed(&self, part: Part, _: &[&Axes], _: &Axes) -> Option<Self> {
        // The rows of a tile have each other's factors.
        use PartSlip::{AllCarried, AlongFeatures, NextRow, RowsCarried};
        if self.goes_by_loops() && !matches!(part, Part::Item(_)) {
            return None;
        }
        // The first keys alone have other groups.
        if self.kept_group().is_some() && matches!(part, Part::Keys(_)) {
            return None;
        }
        if self.slip == Some(NextRow) && !matches!(part, Part::Keys(_)) {
            return None;
        }
        // And the rows of a rank its own order.
        let goes_by_rows = self.goes_around()
            || matches!(self.slip, Some(AlongFeatures | RowsCarried | AllCarried));
        if goes_by_rows && matches!(part, Part::Rows(_) | Part::First(_)) {
            return None;
        }
        let mut own = self.clone();
        if let (
            PartStage::Largest(parts) | PartStage::Sum(parts) | PartStage::Weighted(parts),
            Part::Keys(count),
        ) = (&mut own.stage, part)
        {
            for (start, end) in parts.keys.iter_mut().flatten() {
                (*start, *end) = ((*start).min(count), (*end).min(count));
            }
        }
        Some(own)
    }

    fn adjoint(&self, _: usize, _: &[&Axes], _: &Axes) -> Adjoint {
        Adjoint::Unknown
    }
}
