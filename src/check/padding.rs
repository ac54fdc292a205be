//! Which rows are of padded queries, whose numbers nothing reads?

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};

use base::error::Result;
use base::lang;
use config::Config;
use file::Record;
use program::{Axis, Name, Op, Step, Trace};

/// What became of the rows of padded queries.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PaddedRows {
    /// Which they are: `batch 1, queries 4 to 6`.
    pub rows: String,
    /// Whether they were left out, as asked for; otherwise all that differs is in them.
    pub left_out: bool,
}

/// The queries of a run that are padding: those of tokens that are no key to any query.
pub struct Padding {
    /// 1 where the query is padding: (batch, query).
    padded: Tensor,
}

impl Padding {
    /// The padding of self-attention; nothing where there is none.
    ///
    /// # Errors
    /// If candle fails.
    pub fn of(config: &Config, trace: &Trace) -> Result<Option<Self>> {
        if let Some(Op::Delta(own)) = trace.step(Name::VNew).map(|step| &step.op) {
            let tokens = config.sizes.own_keys;
            let is_outside = |spans: &[(usize, usize)], token: usize| {
                u8::from(!spans.iter().any(|(from, to)| (*from..*to).contains(&token)))
            };
            let rows = own.spans.iter();
            let cells = rows.flat_map(|own| (0..tokens).map(|token| is_outside(own, token)));
            let shape = (own.spans.len(), tokens);
            return Self::of_part(Tensor::from_vec(cells.collect(), shape, &Device::Cpu)?);
        }
        let (Some(blocked), Some(weights)) = (trace.blocked()?, trace.step(Name::Weights)) else {
            return Ok(None);
        };
        if config.sizes.is_cross {
            return Ok(None);
        }
        let blocked = blocked.broadcast_as(weights.value.shape())?;
        // Blocked in all heads and queries; and what a query may not see before it, none may, unless a window ends there.
        let columns = blocked.min(2)?.min(1)?;
        let (first, queries) = (config.sizes.first_position(), config.sizes.query_count());
        let keys = config.sizes.all_keys();
        let cells = blocked.flatten_all()?.to_vec1::<u8>()?;
        let column = columns.flatten_all()?.to_vec1::<u8>()?;
        let heads = config.sizes.heads;
        let is_of_keys = cells.chunks(keys.max(1)).enumerate().all(|(row, cells)| {
            let (item, own) = (row / queries / heads, first + row % queries);
            let is_padding = |key: usize| column.get(item * keys + key) == Some(&1);
            let behind_window = cells.iter().take(own).take_while(|cell| **cell != 0).count();
            cells
                .iter()
                .enumerate()
                .skip(behind_window)
                .all(|(key, cell)| *cell == 0 || key > own || is_padding(key))
        });
        if !is_of_keys {
            return Ok(None);
        }
        // The own key of the first query.
        Self::of_part(columns.narrow(1, first, queries)?.contiguous()?)
    }

    /// The padding, if it is a part of the queries.
    fn of_part(padded: Tensor) -> Result<Option<Self>> {
        let count = padded.to_dtype(DType::U32)?.sum_all()?.to_scalar::<u32>()?;
        let all = padded.elem_count();
        let is_part = count > 0 && usize::try_from(count).is_ok_and(|count| count < all);
        Ok(is_part.then_some(Self { padded }))
    }

    /// A recorded value with `other` in the rows of padded queries; nothing for a step without such rows.
    ///
    /// # Errors
    /// If candle fails.
    pub fn replaced(
        &self,
        step: &Step,
        recorded: &Tensor,
        other: &Tensor,
    ) -> Result<Option<Tensor>> {
        let axes: Vec<Axis> = step.axes.iter().map(|(axis, _)| axis).collect();
        let has = |axis| axes.contains(&axis);
        if !has(Axis::Batch) || !has(Axis::Query) || recorded.dims() != step.value.dims() {
            return Ok(None);
        }
        let (batch, queries) = self.padded.dims2()?;
        let shape: Vec<usize> = axes
            .iter()
            .map(|axis| match axis {
                Axis::Batch => batch,
                Axis::Query => queries,
                _ => 1,
            })
            .collect();
        let padded = self.padded.reshape(shape)?.broadcast_as(recorded.shape())?;
        let other = other.to_dtype(recorded.dtype())?.broadcast_as(recorded.shape())?;
        Ok(Some(padded.where_cond(&other, recorded)?))
    }

    /// The record with 0 in the rows of padded queries.
    ///
    /// # Errors
    /// If candle fails.
    pub fn emptied(&self, record: &Record, trace: &Trace) -> Result<Record> {
        let mut record = record.clone();
        let zero = Tensor::new(0_f32, &Device::Cpu)?;
        for step in trace.steps().iter().filter(|step| !step.name.is_given()) {
            let Some(value) = record.tensor(step.name.as_str()) else { continue };
            if let Some(emptied) = self.replaced(step, value, &zero)? {
                record.replace(step.name.as_str(), emptied);
            }
        }
        Ok(record)
    }

    /// Marks the rows of padded queries as not recorded, by NaN.
    ///
    /// # Errors
    /// If candle fails.
    pub fn unrecorded(&self, trace: &Trace, recorded: &mut HashMap<Name, Tensor>) -> Result<()> {
        for step in trace.steps().iter().filter(|step| !step.name.is_given()) {
            let Some(value) = recorded.get_mut(&step.name) else { continue };
            let nan = Tensor::new(f32::NAN, &Device::Cpu)?;
            if let Some(blank) = self.replaced(step, value, &nan)? {
                *value = blank;
            }
        }
        Ok(())
    }

    /// `batch 1, queries 4 to 6`.
    ///
    /// # Errors
    /// If candle fails.
    pub fn told(&self) -> Result<String> {
        let mut told = Vec::new();
        for (item, row) in self.padded.to_vec2::<u8>()?.iter().enumerate() {
            let mut spans: Vec<(usize, usize)> = Vec::new();
            for (at, _) in row.iter().enumerate().filter(|(_, padded)| **padded == 1) {
                match spans.last_mut() {
                    Some((_, last)) if *last + 1 == at => *last = at,
                    _ => spans.push((at, at)),
                }
            }
            let span = |(first, last): &(usize, usize)| match last - first {
                0 => tr!("query {first}", first),
                _ => tr!("queries {first} to {last}", first, last),
            };
            let spans: Vec<String> = spans.iter().map(span).collect();
            if !spans.is_empty() {
                told.push(tr!("batch {item}, {spans}", item, spans = lang::list(&spans)));
            }
        }
        Ok(told.join("; "))
    }
}
