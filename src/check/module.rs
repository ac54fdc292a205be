//! Does a file hold a call of `nn.MultiheadAttention`? Its `query`, `key` and `value` are inputs, not yet projected.

use candle_core::Tensor;

use super::cells::cells;
use base::error::Result;
use config::{Fill, Mask, Settings};
use file::{Entry, Record};
use foreign::{Match, has_layer, is_called, last_segment, meanings};
use program::Name;

/// What `forward` calls its inputs.
const ARGUMENTS: [&str; 3] = ["query", "key", "value"];
/// The parameters that no other code has.
const ITS_OWN: [&str; 5] =
    ["in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "bias_k"];

/// A file read as a call of the module.
pub struct ModuleCall {
    /// The file with x, memory and `memory_v`.
    pub record: Record,
    /// The settings, with what the module does where they say nothing.
    pub settings: Settings,
    /// What was taken as what.
    pub matches: Vec<Match>,
    /// Whether its parameters can be of this module alone.
    pub is_certain: bool,
}

impl ModuleCall {
    /// The file as such a call; nothing where it cannot be one.
    ///
    /// # Errors
    /// If candle fails.
    pub fn of(record: &Record, flags: &Settings) -> Result<Option<Self>> {
        let has_x = record.entries.iter().any(|entry| meanings(&entry.name).contains(&Name::X));
        if has_x || flags.x.is_some() || flags.q.is_some() || flags.start.is_some() {
            return Ok(None);
        }
        if flags.weights.is_none() && !has_layer(record, flags) {
            return Ok(None);
        }
        let Some([query, key, value]) = places(record) else { return Ok(None) };
        let mut record = record.clone();
        let tensor = |at: usize| record.entries[at].tensor.clone();
        let of_query = is_same(&tensor(key), &tensor(query))?;
        let of_key = is_same(&tensor(value), &tensor(key))?;
        // Where only the values are others, the keys are a second input too.
        let mut names = vec![(query, Name::X)];
        if !(of_query && of_key) {
            names.push((key, Name::Memory));
        }
        if !of_key {
            names.push((value, Name::MemoryV));
        }
        let mut matches = Vec::new();
        for (at, name) in &names {
            let own = &mut record.entries[*at].name;
            matches.push(Match::as_it_is(name.as_str(), own.as_str()));
            name.as_str().clone_into(own);
        }
        let is_read = |at: usize| {
            names.iter().any(|(read, _)| *read == at) || ![query, key, value].contains(&at)
        };
        let entries = record.entries.into_iter().enumerate().filter(|(at, _)| is_read(*at));
        record.entries = entries.map(|(_, entry)| entry).collect();
        let mut settings = flags.clone();
        settings.mask.get_or_insert(Mask::Recorded);
        settings.mask_fill.get_or_insert(Fill(f64::NEG_INFINITY));
        let is_own = |entry: &Entry| ITS_OWN.contains(&last_segment(&entry.name));
        let is_certain = flags.weights.is_some() || record.entries.iter().any(is_own);
        Ok(Some(Self { record, settings, matches, is_certain }))
    }
}

/// Where the three inputs stand.
fn places(record: &Record) -> Option<[usize; 3]> {
    let place = |name: &str| {
        let is_it =
            |entry: &Entry| is_called(&entry.name, &[name]) && matches!(entry.tensor.rank(), 2 | 3);
        let mut found = record.entries.iter().enumerate().filter(|(_, entry)| is_it(entry));
        let (at, _) = found.next()?;
        found.next().is_none().then_some(at)
    };
    let [query, key, value] = ARGUMENTS.map(place);
    Some([query?, key?, value?])
}

fn is_same(left: &Tensor, right: &Tensor) -> Result<bool> {
    if left.dims() != right.dims() || left.dtype() != right.dtype() {
        return Ok(false);
    }
    let (left, right) = (cells(left)?, cells(right)?);
    // NaN is the same as NaN.
    Ok(left.iter().zip(&right).all(|(left, right)| left.total_cmp(right).is_eq()))
}
