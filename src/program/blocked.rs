//! Which keys a trace's masks block, and what became of rows without a visible one.

use std::collections::BTreeMap;
use std::fmt;

use candle_core::{D, DType, IndexOp, Tensor};

use super::axis::{Axis, unravel};
use super::graph::{Step, Trace};
use super::name::Name;
use base::error::Result;

/// The wholly masked rows of a batch item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmptyRows {
    /// The batch item; all of them where the masks do not tell them apart.
    pub item: Option<usize>,
    /// How many of its rows are wholly masked, in all heads.
    pub rows: usize,
    /// How many rows it has, in all heads.
    pub of: usize,
    /// The head and query of the first such row.
    pub first: (usize, usize),
    /// What softmax made of them.
    pub became: Became,
}
/// What softmax made of a wholly masked row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Became {
    /// NaN throughout.
    Nan,
    /// Zeros throughout.
    Zero,
    /// The masked keys share the weight, as they share the fill.
    Shared,
}

impl fmt::Display for EmptyRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.item {
            Some(item) => f.write_str(&tr!("batch {item}: ", item))?,
            None => f.write_str(tr!("every batch item: "))?,
        }
        if self.rows == self.of {
            f.write_str(tr!("every key is masked for every query; "))?;
        } else {
            let (head, query) = self.first;
            let Self { rows, of, .. } = self;
            f.write_str(&tr!(
                "every key is masked in {rows} of {of} rows, first head {head}, query {query}; ",
                rows,
                of,
                head,
                query
            ))?;
        }
        f.write_str(match self.became {
            Became::Nan => tr!("softmax of -inf alone makes their weights NaN"),
            Became::Zero => tr!("their weights are zero"),
            Became::Shared => {
                tr!("their weights are shared by the masked keys, as all have the same fill")
            }
        })
    }
}

impl Trace {
    /// The batch items with wholly masked rows.
    ///
    /// # Errors
    /// If candle fails.
    pub fn empty_rows(&self) -> Result<Vec<EmptyRows>> {
        let Some(weights) = self.step(Name::Weights) else { return Ok(Vec::new()) };
        let weights = &weights.value;
        let Some(blocked) = self.blocked()? else { return Ok(Vec::new()) };
        let (batch, heads, queries, _) = weights.dims4()?;
        let mut blocked = blocked.min(D::Minus1)?;
        while blocked.rank() < 3 {
            blocked = blocked.unsqueeze(0)?;
        }
        let of_all_items = blocked.dim(0)? == 1 && batch > 1;
        let repeats = heads / blocked.dim(1)? * (queries / blocked.dim(2)?);
        let mut found: BTreeMap<usize, (usize, (usize, usize))> = BTreeMap::new();
        for (at, _) in
            blocked.flatten_all()?.to_vec1::<u8>()?.iter().enumerate().filter(|(_, b)| **b == 1)
        {
            if let [item, head, query] = unravel(at, blocked.dims())[..] {
                found.entry(item).or_insert((0, (head, query))).0 += repeats;
            }
        }
        let report = |(item, (rows, first)): (usize, (usize, (usize, usize)))| {
            let row =
                weights.i((item, first.0, first.1))?.to_dtype(DType::F64)?.to_vec1::<f64>()?;
            let became = match row.iter().fold(0.0, |sum, weight| sum + weight) {
                sum if f64::is_nan(sum) => Became::Nan,
                0.0 => Became::Zero,
                _ => Became::Shared,
            };
            let item = (!of_all_items).then_some(item);
            Ok(EmptyRows { item, rows, of: heads * queries, first, became })
        };
        found.into_iter().map(report).collect()
    }

    /// 1 where a key is masked, by the boolean mask or by −∞ in the float mask.
    pub fn blocked(&self) -> Result<Option<Tensor>> {
        match self.step(Name::Weights) {
            Some(weights) => self.blocked_before(weights),
            None => Ok(None),
        }
    }

    /// The same of those of the two masks that a step reads, directly or through others.
    pub fn blocked_before(&self, step: &Step) -> Result<Option<Tensor>> {
        let ancestors = self.position(step.name).map(|at| self.ancestors(at)).unwrap_or_default();
        let read = |name: Name| {
            let at = self.position(name).filter(|at| ancestors.get(*at) == Some(&true))?;
            self.steps().get(at).map(|step| &step.value)
        };
        let mask = read(Name::MaskPadded).or_else(|| read(Name::Mask)).cloned();
        let added = read(Name::AttnBiasPadded).or_else(|| read(Name::AttnBias));
        let added = added.map(|bias| bias.eq(f64::NEG_INFINITY)).transpose()?;
        let blocked = match (mask, added) {
            (Some(mask), Some(added)) => Some(mask.broadcast_maximum(&added)?),
            (mask, added) => mask.or(added),
        };
        let has_heads = step.axes.iter().any(|(axis, _)| axis == Axis::Head);
        Ok(match blocked {
            // What is of all heads is blocked where all of them are.
            Some(blocked) if blocked.rank() == 4 && !has_heads => Some(blocked.min(1)?),
            blocked => blocked,
        })
    }
}
