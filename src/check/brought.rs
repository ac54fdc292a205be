//! What a file brings beside its steps: a mask, the positions of its tokens, and which steps it has.

use candle_core::{DType, Tensor};

use super::cells::cells;
use base::error::Result;
use config::Settings;
use file::{Entry, Record};
use foreign::{FoundMask, Match, Unmatched, are_booleans, last_segment, meanings};
use program::{Name, first_number};
use run::positions_in;

/// Has the run compute what the file has steps of that not every run has, where the settings do not say it.
pub fn bring_steps(record: &Record, settings: &mut Settings) {
    let has = |is_it: &dyn Fn(&Entry) -> bool| record.entries.iter().any(is_it);
    let may_be = |entry: &Entry, name| meanings(&entry.name).contains(&name);
    if has(&|entry| may_be(entry, Name::Lse)) {
        settings.lse.get_or_insert(true);
    }
    // With an axis of heads, the weights of every head have the same names.
    if has(&|entry| entry.tensor.rank() == 3 && may_be(entry, Name::WeightsMean)) {
        settings.mean_weights.get_or_insert(true);
    }
    let is_absorbed = |entry: &Entry| {
        let named = meanings(&entry.name);
        named.first().is_some_and(|name| [Name::QAbsorbed, Name::LatentOutputs].contains(name))
    };
    let has_latent =
        settings.kv_lora_rank.is_some() || record.tensor(Name::WDkv.as_str()).is_some();
    if has_latent && has(&is_absorbed) {
        settings.absorb.get_or_insert(true);
    }
}

/// Takes the positions out of a file that models of transformers have under this name, if the run turns or scales by
/// positions and nothing states them.
///
/// # Errors
/// If they are no positions.
pub fn take_positions(
    record: &mut Record,
    settings: &mut Settings,
    matches: &mut Vec<Match>,
) -> Result<Option<Unmatched>> {
    let is_it = |entry: &Entry| last_segment(&entry.name).eq_ignore_ascii_case("position_ids");
    let Some(at) = record.entries.iter().position(is_it) else { return Ok(None) };
    let Entry { name: tensor, tensor: numbers, .. } = record.entries.remove(at);
    let left_out = |why: &str| Ok(Some(Unmatched { tensor: tensor.clone(), why: why.to_owned() }));
    if settings.positions.is_some() || settings.rope_offset.is_some() {
        return left_out(tr!("the settings say the positions"));
    }
    if settings.rope.is_none() && settings.q_temperature.is_none() {
        return left_out(tr!("nothing turns or scales by positions here"));
    }
    settings.positions = Some(positions_in(&numbers)?);
    matches.push(Match::as_it_is("positions", &tensor).read(tr!("the tokens' own")));
    Ok(None)
}

/// Whether the settings say what a mask of the file's would.
pub fn replaces_mask(record: &Record, settings: &Settings) -> bool {
    record.tensor(Name::Mask.as_str()).is_some()
        && settings.attn_mask.is_none()
        && settings.replace("attn_mask")
}

/// The ways to read a file's `mask`: floats are added to the scores, and 1 may mean either.
///
/// # Errors
/// If candle fails.
pub fn masks_beside(record: &Record) -> Result<Vec<FoundMask>> {
    let Some(mask) = record.tensor(Name::Mask.as_str()) else { return Ok(Vec::new()) };
    let found = |mask: Tensor, how: &str| FoundMask {
        name: Name::Mask.to_string(),
        mask,
        how: String::from(how),
    };
    if mask.dtype().is_float() && !are_booleans(&cells(mask)?) {
        return Ok(vec![found(mask.clone(), tr!("added to the scores"))]);
    }
    Ok(vec![
        found(mask.eq(0.0)?, tr!("true means blocked")),
        found(mask.ne(0.0)?, tr!("true means attend")),
    ])
}

/// Which keys a query may not see.
type Blocks<'b> = &'b dyn Fn(usize, usize) -> bool;

/// What a mask that a file brings is, in words.
///
/// # Errors
/// If candle fails.
pub fn told_mask(mask: &Tensor) -> Result<String> {
    let [queries, keys] = *mask.dims().last_chunk::<2>().unwrap_or(&[1, 1]);
    let cells = mask.flatten_all()?.to_vec1::<u8>()?;
    let all = |is_blocked: &dyn Fn(usize, usize) -> bool| {
        let expected = |at: usize| is_blocked(at / keys % queries, at % keys);
        cells.iter().enumerate().all(|(at, cell)| (*cell != 0) == expected(at))
    };
    // Behind a cache the last query sees the last key.
    let seen = |query: usize| query + keys.saturating_sub(queries);
    let known: [(&str, Blocks); 7] = [
        (tr!("none: it blocks nothing"), &|_, _| false),
        ("causal", &|query, key| key > seen(query)),
        (tr!("causal and strict: no token sees itself"), &|query, key| key >= seen(query)),
        (tr!("causal, but for the next key, which is seen"), &|query, key| key > seen(query) + 1),
        (tr!("an inverted causal one: it blocks the past and the token itself"), &|query, key| {
            key <= seen(query)
        }),
        (tr!("a reversed causal one: it blocks the past"), &|query, key| key < seen(query)),
        (tr!("causal, aligned to the first query and key"), &|query, key| key > query),
    ];
    let found = known.iter().find(|(_, is_blocked)| all(*is_blocked));
    let blocked = cells.iter().filter(|cell| **cell != 0).count();
    let by_rows = cells
        .chunks(keys * queries)
        .all(|item| item.chunks(keys).all(|row| Some(row) == item.chunks(keys).next()));
    Ok(match found {
        Some((told, _)) => (*told).to_owned(),
        None if by_rows => tr!(
            "one of keys alone, the same for every query ({blocked} of {cells} cells)",
            blocked,
            cells = cells.len()
        ),
        None => tr!(
            "none of the usual ones: it blocks {blocked} of {cells} cells",
            blocked,
            cells = cells.len()
        ),
    })
}

/// Whether a boolean mask, true where a query attends, lets some query attend to no key.
///
/// # Errors
/// If candle fails.
pub fn leaves_rows_empty(mask: &Tensor) -> Result<bool> {
    let dims = mask.dims();
    let has_queries = dims.len() > 1 && dims[dims.len() - 2] > 1;
    if mask.dtype().is_float() || !has_queries {
        return Ok(false);
    }
    let most = mask.to_dtype(DType::U8)?.max(dims.len() - 1)?;
    Ok(most.flatten_all()?.to_vec1::<u8>()?.contains(&0))
}

/// Whether a file holds a NaN.
///
/// # Errors
/// If candle fails.
pub fn has_nan(record: &Record) -> Result<bool> {
    for entry in record.entries.iter().filter(|entry| entry.tensor.dtype().is_float()) {
        if first_number(&entry.tensor, f64::is_nan)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
