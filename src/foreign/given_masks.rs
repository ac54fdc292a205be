//! The masks and biases that a file holds under the names of arguments.

use candle_core::Tensor;

use super::contradiction::Contradiction;
use super::found_mask::{FoundMask, Keys, MASKS, Meaning, states_items};
use super::joined_masks::joined;
use super::matched::Match;
use super::names::{asked, is_called, meanings};
use super::numbers::{are_booleans, numbers};
use base::error::{Error, Result, quoted};
use base::lang;
use config::Settings;
use file::{Entry, Record};
use program::{Name, first_number};

/// What people call biases that are added to scores, in lower case.
const BIASES: &[&str] = &[
    "bias",
    "attn_bias",
    "attention_bias",
    "score_bias",
    "pair_bias",
    "position_bias",
    "pos_bias",
    "rel_pos_bias",
    "relative_position_bias",
    "rpb",
];

/// What people call which weights dropout keeps, in lower case.
const KEPT: &[&str] =
    &["dropout_mask", "keep_mask", "dropout_keep_mask", "attn_dropout_mask", "drop_mask"];

/// Takes which weights dropout keeps out of a file, under our name: what is not 0 is kept, unless so many are not 0 as are to
/// be dropped, by what was stated or is `said`. Where the file does not say which, dropped weights show it, unless they are to be
/// those that a seed gives.
///
/// # Errors
/// If candle fails.
pub fn take_kept(
    record: &mut Record,
    flags: &Settings,
    said: Option<f64>,
) -> Result<Option<Match>> {
    let is_some = |share: &f64| *share > 0.0;
    let stated = flags.dropout.filter(is_some);
    let Some(dropout) = stated.or(said.filter(is_some)) else { return Ok(None) };
    let is_it = |entry: &&mut Entry| is_called(&entry.name, KEPT) && entry.tensor.rank() > 2;
    if record.tensor(Name::DropoutKeep.as_str()).is_some() {
        return Ok(None);
    }
    let Some(entry) = record.entries.iter_mut().find(is_it) else {
        let is_dropped = |entry: &&Entry| asked(&entry.name).first() == Some(&Name::WeightsDropped);
        let dropped = record.entries.iter().find(is_dropped).filter(|_| flags.seed.is_none());
        let Some(Entry { name, tensor, .. }) = dropped.cloned() else { return Ok(None) };
        record.entries.push(Entry::of(Name::DropoutKeep.as_str(), tensor.ne(0.0)?));
        return Ok(Some(Match::as_it_is(Name::DropoutKeep, name).read(tr!("what is not 0"))));
    };
    let cells = numbers(&entry.tensor)?;
    let kept = cells.iter().filter(|cell| **cell != 0.0).count();
    let share = kept as f64 / cells.len().max(1) as f64;
    let is_dropped = (share - dropout).abs() < (share - (1.0 - dropout)).abs();
    let (tensor, how) = if is_dropped {
        (entry.tensor.eq(0.0)?, tr!("true means dropped"))
    } else {
        (entry.tensor.ne(0.0)?, tr!("true means kept"))
    };
    let own = Entry::of(Name::DropoutKeep.as_str(), tensor);
    let name = std::mem::replace(entry, own).name;
    Ok(Some(Match::as_it_is(Name::DropoutKeep, name).read(how)))
}

/// What kernels call the slopes of position biases, in lower case.
const SLOPES: &[&str] = &["alibi_slopes"];

/// Takes the slopes of position biases out of a file of queries, keys and values: one of each head, or of each item's.
pub fn take_slopes(record: &mut Record) -> Option<Entry> {
    let is_it = |entry: &Entry| {
        is_called(&entry.name, SLOPES)
            && entry.tensor.dtype().is_float()
            && matches!(entry.tensor.rank(), 1 | 2)
    };
    record.entries.iter().position(is_it).map(|at| record.entries.remove(at))
}

/// Takes the biases of scores out of a file of queries, keys and values, or of a layer, whose `bias` is that of a projection:
/// floats of queries and keys.
pub fn take_bias(record: &mut Record, caller: Caller) -> Option<Entry> {
    let is_of_layer = caller == Caller::Layer;
    let is_own = |entry: &Entry| Name::named(&entry.name).is_some();
    let is_it = |entry: &Entry| {
        let fewest = if is_of_layer { 3 } else { 2 };
        is_called(&entry.name, BIASES)
            && entry.tensor.dtype().is_float()
            && (fewest..=4).contains(&entry.tensor.rank())
            && !(is_of_layer && is_own(entry))
    };
    record.entries.iter().position(is_it).map(|at| record.entries.remove(at))
}

/// What is called with a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A function of queries, keys and values.
    Core,
    /// A layer of some model.
    Layer,
    /// `nn.MultiheadAttention`.
    Module,
}

/// Takes the masks of `MASKS` out of a file, in the ways that they may be meant together: both where a name does not tell what
/// 1 means. One of keys alone is (batch, key). Of masks that go with no others, and in a file that states its run, it is the first.
///
/// # Errors
/// If a mask has no cells, or candle fails.
pub fn take_mask(record: &mut Record, caller: Caller) -> Result<Vec<FoundMask>> {
    let is_core = caller == Caller::Core;
    let other =
        if record.tensor(Name::Memory.as_str()).is_some() { Keys::Own } else { Keys::Memory };
    let items = items(record);
    let (mut all, mut known) = (Vec::new(), Keys::Either);
    for (name, keys, meaning, _) in MASKS.iter().filter(|(_, keys, ..)| *keys != other || is_core) {
        let is_it = |entry: &&Entry| is_called(&entry.name, &[name]);
        let Some(entry) = record.entries.iter().find(is_it) else { continue };
        // Queries have keys of their own, or those of a memory.
        if ![known, *keys].contains(&Keys::Either) && known != *keys {
            continue;
        }
        known = if known == Keys::Either { *keys } else { known };
        all.push(ways(entry, *meaning, caller, items)?);
    }
    // Alone, a step is read by the settings.
    let Some(first) = all.iter().position(|own| !own.is_step) else { return Ok(Vec::new()) };
    let together = match record.config {
        None => joined(&all.iter().map(|own| &own.ways[..]).collect::<Vec<_>>(), items)?,
        Some(_) => None,
    };
    let found = together.unwrap_or_else(|| all.swap_remove(first).ways);
    let is_taken = |entry: &Entry| {
        let mut names = found.iter().flat_map(|own| {
            let also = own.also.iter().map(|also| &also.tensor);
            also.chain(&own.aside).chain([&own.name])
        });
        names.any(|name| *name == entry.name)
    };
    record.entries.retain(|entry| !is_taken(entry));
    Ok(found)
}

/// The ways to read one mask.
struct Ways {
    ways: Vec<FoundMask>,
    /// Whether the run reads it as a step.
    is_step: bool,
}

/// The ways to read a mask of a file of so many items.
fn ways(entry: &Entry, meaning: Meaning, caller: Caller, items: Option<usize>) -> Result<Ways> {
    let Entry { name, tensor, .. } = entry;
    if tensor.elem_count() == 0 {
        let what = tr!("is {shape}, which has no cells", shape = format!("{:?}", tensor.dims()));
        return Err(Error::tensor(
            quoted(name),
            what,
            tr!("record it as it was applied, or not at all"),
        ));
    }
    // Zeros that are added block nothing; read the other way, they would block all.
    let is_added = tensor.dtype().is_float() && !holds_ones(tensor)?;
    let shows_the_future = meaning == Meaning::Either && shows_the_future_alone(tensor)?;
    // It is a step unless it would show each query the future alone.
    let is_step = is_called(name, &[Name::Mask.as_str()]) && !is_added && !shows_the_future;
    // True may mean either.
    let is_of_layer = caller == Caller::Layer && meaning == Meaning::AttendIfCore;
    let is_either = meaning == Meaning::Either || is_of_layer && !tensor.dtype().is_float();
    if is_either && !is_added {
        let mut ways = either_way(name, tensor)?;
        if is_of_layer || shows_the_future {
            ways.reverse();
        }
        return Ok(Ways { ways: ways.into(), is_step });
    }
    // One of 0 and 1 for models is of the keys of items, unless there are not so many, or it fits no such run.
    let is_of_items = items.is_none_or(|all| tensor.dims().first() == Some(&all));
    let mut ways = told_by_name(entry, meaning, caller, (is_added, is_of_items))?;
    // flash_attn's modules call so what is kept.
    if meaning == Meaning::Ignore && !is_added && caller != Caller::Module {
        let kept = |own: &FoundMask| -> Result<FoundMask> {
            let against = match &own.against {
                Some((told, mask)) => Some((told.clone(), mask.eq(0.0)?)),
                None => None,
            };
            let how = tr!("true means attend").to_owned();
            Ok(FoundMask { mask: own.mask.eq(0.0)?, how, against, ..own.clone() })
        };
        ways.extend(ways.iter().map(kept).collect::<Result<Vec<_>>>()?);
    }
    Ok(Ways { ways, is_step })
}

/// The ways to read a mask whose name tells what 1 means.
fn told_by_name(
    Entry { name, tensor, .. }: &Entry,
    meaning: Meaning,
    caller: Caller,
    (is_added, is_of_items): (bool, bool),
) -> Result<Vec<FoundMask>> {
    let read = |mask: &Tensor, axes: &str| -> Result<FoundMask> {
        let (mask, how) = read_mask(mask.clone(), meaning, is_added, caller)?;
        Ok(FoundMask::of(name, mask, format!("{}{how}", lang::text(axes))))
    };
    let of_pairs = read(tensor, "")?;
    let (&[batch, keys], Meaning::Attend | Meaning::Ignore) = (tensor.dims(), meaning) else {
        return Ok(vec![of_pairs]);
    };
    let of_keys = read(&tensor.reshape((batch, 1, 1, keys))?, "")?;
    let mut of_pairs = read(tensor, OF_PAIRS)?;
    if is_of_items && states_items(&of_pairs) {
        let told = Contradiction::of_items(name, tr!("query"));
        of_pairs.against = Some((told, of_keys.mask.clone()));
    }
    Ok(match meaning {
        Meaning::Ignore if !is_of_items => vec![of_keys],
        _ if is_of_items => vec![of_keys, of_pairs],
        _ => vec![of_pairs, of_keys],
    })
}

/// A mask of 0 and 1 whose name does not tell what 1 means, true as what is blocked and as what is seen.
///
/// # Errors
/// If candle fails.
pub fn either_way(name: &str, mask: &Tensor) -> Result<[FoundMask; 2]> {
    Ok([
        FoundMask::of(name, mask.eq(0.0)?, tr!("true means blocked")),
        FoundMask::of(name, mask.ne(0.0)?, tr!("true means attend")),
    ])
}

/// How a mask of 0 and 1 for models is read that is not of the keys of items.
const OF_PAIRS: &str = "of queries and keys, ";

/// A mask as `attn_mask` takes it, and what its numbers mean.
fn read_mask(
    mask: Tensor,
    meaning: Meaning,
    is_added: bool,
    caller: Caller,
) -> Result<(Tensor, &'static str)> {
    Ok(match meaning {
        _ if is_added => (mask, tr!("added to the scores")),
        Meaning::Ignore => (mask.eq(0.0)?, tr!("true means ignored")),
        Meaning::AttendIfCore if caller == Caller::Module && !mask.dtype().is_float() => {
            (mask.eq(0.0)?, tr!("true means blocked, as in nn.MultiheadAttention"))
        }
        // Floats that are 0 and 1 would be added too.
        Meaning::AttendIfCore if mask.dtype().is_float() => (mask, tr!("added to the scores")),
        Meaning::AttendIfCore => (mask, tr!("true means attend")),
        Meaning::Attend | Meaning::Either => (mask.ne(0.0)?, tr!("1 means attend")),
    })
}

/// How many batch items a file has, by its X or its queries.
fn items(record: &Record) -> Option<usize> {
    let is_of_tokens = |entry: &&Entry| {
        let is_known = |name: &Name| matches!(name, Name::X | Name::Q | Name::QHeads);
        entry.tensor.rank() > 2 && meanings(&entry.name).iter().any(is_known)
    };
    record.entries.iter().find(is_of_tokens)?.tensor.dims().first().copied()
}

/// Whether a mask, true where it blocks, shows the keys after each query and no others: nobody means that.
fn shows_the_future_alone(mask: &Tensor) -> Result<bool> {
    let Some([queries, keys]) = mask.dims().last_chunk::<2>() else { return Ok(false) };
    let cells = numbers(mask)?;
    let last_seen = |at: usize| at / keys % queries + keys.saturating_sub(*queries);
    let is_it = |(at, cell): (usize, &f64)| (*cell > 0.0) == (at % keys <= last_seen(at));
    Ok(*queries > 1 && are_booleans(&cells) && cells.iter().enumerate().all(is_it))
}

/// Whether a tensor holds 0 and 1 alone, and some 1.
///
/// # Errors
/// If candle fails.
pub fn holds_ones(tensor: &Tensor) -> Result<bool> {
    Ok(first_number(tensor, |number| !are_booleans(&[number]))?.is_none()
        && first_number(tensor, |number| number > 0.0)?.is_some())
}
