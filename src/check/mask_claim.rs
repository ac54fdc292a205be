//! What does the mask that a file brings say against what was stated?

use candle_core::Tensor;

use super::finding::Contradiction;
use super::mask_pair::{Conflict, Masks};
use super::mask_words::told_mask;
use super::reading::{OF_KEYS, OF_PAIRS, Reading};
use base::error::{Result, quoted};
use config::{Mask, Start};
use foreign::{FoundMask, Match, last_segment, states_items};
use program::{Name, first_number};

/// What the mask that a file brings says against what was stated; nothing where no mask was, or it says no more than which
/// keys are padding.
///
/// # Errors
/// If candle fails.
pub fn by_mask(reading: &Reading) -> Result<Option<AgainstMask>> {
    let (Some(mask), settings) = (&reading.mask, &reading.settings) else { return Ok(None) };
    let is_in_file = reading.states_mask();
    let states_keys = settings.lengths.is_some() || settings.key_mask.is_some() || is_in_file;
    let states_more = settings.window.is_some()
        || settings.chunk.is_some()
        || settings.segments.is_some()
        || is_in_file
        || reading.record.config.is_some()
        || settings.before_model.is_some();
    if !states_keys && !states_more && settings.mask.is_none() {
        return Ok(None);
    }
    let plain = if is_in_file { reading.clone() } else { reading.clone().without_mask() };
    let Ok(run) = plain.run_as_it_is() else { return Ok(None) };
    let Ok(recorded) = run.blocked_by(&mask.mask) else { return Ok(None) };
    let Some(masks) = Masks::of(run.blocked()?, &recorded, run.config())? else { return Ok(None) };
    // No mask between positions was stated: one that is none of these may stand beside it.
    let says_none = settings.mask == Some(Mask::None) && !states_more;
    if says_none && !states_keys && !masks.hides_what_follows() {
        return Ok(None);
    }
    let Some(Conflict { shows, hides, query, key }) = masks.conflict(states_keys) else {
        return Ok(None);
    };
    // True may mean either: one that is the stated mask when it is read the other way around does not contradict it.
    let is_of_layer = settings.start.unwrap_or_default() == Start::Inputs;
    let is_named =
        mask.name == Name::Mask.as_str() || is_of_layer && last_segment(&mask.name) == "attn_mask";
    let may_be_either = is_named && !mask.mask.dtype().is_float();
    if may_be_either && masks.are_opposite() {
        return Ok(None);
    }
    let is_meant = masks.closed().conflict(states_keys).is_none()
        || chunks_start_later(&plain, &masks, &recorded, states_keys)?;
    let (stated, recorded) = (told_mask(&masks.stated)?, told_mask(&masks.recorded)?);
    let how = match shows {
        true if masks.is_future(query, key) => tr!("it shows keys after the query"),
        true => tr!("it shows keys that were to be hidden"),
        false => tr!("it hides keys that were to be seen"),
    };
    let summary = tr!(
        "the mask was stated as {stated}; recorded is {recorded}, in {name}: {how}, the first is key {key} of query {query}",
        stated,
        name = quoted(&mask.name),
        recorded,
        how,
        key,
        query
    );
    let (setting, step) = ("mask", Name::MaskedScores);
    let contradiction = Contradiction::told(setting, step, [stated, recorded], summary);
    let is_of_keys = !masks.is_of_queries;
    Ok(Some(AgainstMask { contradiction, is_meant, is_of_keys, only_hides: hides && !shows }))
}

/// Whether a recorded mask is the stated one, but for its chunks, which are counted from the first token of an item that is no
/// padding, as in transformers.
fn chunks_start_later(
    reading: &Reading,
    masks: &Masks,
    recorded: &Tensor,
    states_keys: bool,
) -> Result<bool> {
    let Some(chunk) = reading.settings.chunk else { return Ok(false) };
    let Some(keys) = masks.seen_keys()? else { return Ok(false) };
    let keys = FoundMask::of("", keys, "");
    let Some(chunked) = keys.with_chunks(Some(chunk))? else { return Ok(false) };
    let mut other = reading.clone();
    other.sources = other.sources.with_mask(chunked.mask);
    other.settings.chunk = None;
    let Ok(run) = other.run_as_it_is() else { return Ok(false) };
    let masks = Masks::of(run.blocked()?, recorded, run.config())?;
    Ok(masks.is_some_and(|masks| masks.closed().conflict(states_keys).is_none()))
}

/// What a recorded mask says against what was stated.
pub struct AgainstMask {
    contradiction: Contradiction,
    /// Whether it is what was meant nevertheless.
    is_meant: bool,
    /// Whether it tells no queries apart, and so says nothing of positions.
    is_of_keys: bool,
    /// Whether it hides keys that were to be seen, and shows none that were not.
    only_hides: bool,
}

/// Whether the mask that a file brings hides keys that were to be seen, and shows none that were not; or leaves no key to be
/// seen beside what was stated, as one does that is read the wrong way around.
///
/// # Errors
/// If candle fails.
pub fn hides_more(reading: &Reading) -> Result<bool> {
    let is_open = reading.settings.mask == Some(Mask::Recorded);
    Ok(!is_open && (by_mask(reading)?.is_some_and(|found| found.only_hides) || hides_all(reading)?))
}

/// Whether no query sees a key.
///
/// # Errors
/// If candle fails.
pub fn hides_all(reading: &Reading) -> Result<bool> {
    let Ok(run) = reading.clone().run_as_it_is() else { return Ok(false) };
    match run.blocked()? {
        Some(blocked) => Ok(first_number(&blocked, |cell| cell == 0.0)?.is_none()),
        None => Ok(false),
    }
}

/// A reading, and the same with a mask of the floats 0 and 1 as what is seen: functions add floats, and people write masks in
/// them.
///
/// # Errors
/// If candle fails.
pub fn with_ones_either_way(reading: Reading) -> Result<Vec<Reading>> {
    let Some(sources) = reading.sources.with_ones_seen()? else { return Ok(vec![reading]) };
    let mut seen = Reading { sources, ..reading.clone() };
    if let Some(own) = seen.mask.as_mut().filter(|own| own.mask.dtype().is_float()) {
        own.mask = own.mask.ne(0.0)?;
    }
    let told = |mut reading: Reading, how: &str| {
        if let Some(own) = reading.matches.iter_mut().find(|own| own.step == "attn_mask") {
            *own = own.clone().read(how);
        }
        reading
    };
    Ok(vec![
        told(reading, tr!("0.0 and 1.0 are added to the scores: they block nothing")),
        told(seen, tr!("0.0 and 1.0 are no numbers to add: 1 means attend")),
    ])
}

/// A reading, and the same with a mask for each item where it may be one for each head or query, as there are as many.
///
/// # Errors
/// If candle fails.
pub fn with_items_either_way(reading: Reading) -> Result<Vec<Reading>> {
    if reading.record.config.is_some() || !reading.sources.has_mask() {
        return Ok(vec![reading]);
    }
    let Ok(run) = reading.run_as_it_is() else { return Ok(vec![reading]) };
    let is_said = reading.mask.as_ref().is_some_and(states_items);
    let sizes = &run.config().sizes;
    let Some((sources, mask)) = reading.sources.with_mask_of_items(sizes, is_said)? else {
        return Ok(vec![reading]);
    };
    let dims = reading.sources.mask().map_or(&[][..], Tensor::dims);
    let is_square = matches!(dims, [queries, keys] if queries == keys);
    let axis = if dims.len() == 2 { tr!("query") } else { tr!("head") };
    let of_axis = tr!("one for each {axis}", axis);
    let other = Reading { sources, is_tentative: !is_said, ..reading.clone() };
    let mut other = told_of_mask(other, tr!("one for each item"));
    let Some(own) = other.mask.as_mut().filter(|_| is_said) else {
        // People call one of queries and keys so anyway.
        let plain = if is_square { reading } else { told_of_mask(reading, &of_axis) };
        return Ok(vec![plain, other]);
    };
    let mut contradictions = reading.contradictions.clone();
    contradictions.push(Contradiction::of_items(&own.name, axis));
    own.mask = mask;
    Ok(vec![other, Reading { contradictions, is_tentative: true, ..reading }])
}

/// A reading with what its mask has one of told.
fn told_of_mask(mut reading: Reading, each: &str) -> Reading {
    let is_it = |own: &&mut Match| [Name::Mask.as_str(), "attn_mask"].contains(&own.step.as_str());
    if let Some(own) = reading.matches.iter_mut().find(is_it) {
        let how = own.how.iter().fold(each.to_owned(), |each, how| format!("{each}, {how}"));
        *own = own.clone().read(how);
    } else {
        let own = Match::as_it_is(Name::Mask.as_str(), Name::Mask.as_str());
        reading.matches.push(own.read(each));
    }
    reading
}

/// A reading under the mask of its file, and what that says against what was stated.
pub fn under_its_mask(reading: Reading, found: AgainstMask) -> Reading {
    let is_open = found.is_meant || reading.settings.mask == Some(Mask::Recorded);
    let mut whole = reading.under_its_mask(found.is_of_keys);
    whole.contradictions.extend(Some(found.contradiction).filter(|_| !is_open));
    whole
}

impl AgainstMask {
    /// Whether it says all that this setting does.
    pub fn says(&self, key: &str) -> bool {
        let of_pairs = if self.is_of_keys { &[][..] } else { OF_PAIRS };
        OF_KEYS.iter().chain(of_pairs).any(|own| *own == key) || key == "mask"
    }

    /// What is to be told, unless it is what was meant.
    pub fn meant_otherwise(self) -> Option<Contradiction> {
        Some(self.contradiction).filter(|_| !self.is_meant)
    }
}
