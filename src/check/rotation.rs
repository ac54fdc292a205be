//! Which positions and rotary frequencies does a file have?

use super::finding::told;
use super::reading::Draft;
use base::error::Result;
use config::{Pairing, Setting, Settings};
use file::{Entry, Record};
use foreign::{
    Evidence, Match, POSITIONS, Tables, Unmatched, asked, is_called, last_segment, meanings,
    take_tables,
};
use program::Name;
use run::positions_in;

/// Where a file has positions under the name that models of transformers have for them, or else another.
pub fn entry_of_positions(record: &Record) -> Option<usize> {
    let at = |name: &&str| {
        record.entries.iter().position(|entry| {
            is_called(&entry.name, &[name]) && positions_in(&entry.tensor).is_ok()
        })
    };
    POSITIONS.iter().find_map(at)
}

/// Whether a tensor has the rotary frequencies of a module of transformers.
pub fn is_of_module(entry: &Entry) -> bool {
    last_segment(&entry.name) == "inv_freq"
}

/// Whether two factors of tables are not the same, but for the rounding of f32.
pub fn is_another(left: f64, right: f64) -> bool {
    (left - right).abs() > 1e-6 * left.abs().max(right.abs())
}

/// Takes recorded rotary frequencies out of a file where others may have been stated; where none were, they are the run's.
/// Where rotation is left out, they say that there was one, and so do rotated queries and keys.
pub fn take_frequencies(draft: &mut Draft) -> Result<Option<Tables>> {
    let Draft { record, settings, matches, evidence, .. } = draft;
    let is_left_out = Setting::named("rope").is_some_and(|rope| rope.is_left_out(settings));
    if settings.rope.is_none() && !is_left_out {
        return Ok(None);
    }
    let is_it = |entry: &Entry| is_of_module(entry) || entry.name == Name::RopeFreqs.as_str();
    let at = record.entries.iter().position(is_it).map(|at| record.entries.remove(at));
    let tables = match at {
        Some(freqs) => Some(Tables::of_module(freqs)),
        None => take_tables(record)?,
    };
    let is_rotated =
        |entry: &&Entry| matches!(asked(&entry.name).first(), Some(Name::QRot | Name::KRot));
    let shown = tables.as_ref().map(|tables| &tables.freqs);
    let shown = shown.or_else(|| record.entries.iter().find(is_rotated).filter(|_| is_left_out));
    let pairing = tables.as_ref().and_then(|tables| tables.pairing);
    if let Some(entry) = shown.filter(|_| is_left_out || pairing.is_some()) {
        let or = pairing.is_none().then(|| Pairing::Interleaved.to_string());
        let own = pairing.unwrap_or(Pairing::Half).to_string();
        evidence.push(Evidence { or, ..Evidence::of("rope", Name::QRot, entry, own) });
    }
    let Some(tables) = tables else { return Ok(None) };
    let Settings { rope_base, rope_dims, rope_scaling, rope_freqs, before_model, .. } = settings;
    if tables.elsewhere.is_some()
        || rope_base.is_some()
        || rope_freqs.is_some()
        || rope_dims.is_some()
        || rope_scaling.is_some()
        || before_model.is_some()
        || is_left_out
    {
        return Ok(Some(tables));
    }
    let stated = settings.rope_attention_factor;
    let is_other = stated.is_some_and(|stated| is_another(stated, tables.factor.unwrap_or(1.0)));
    settings.rope_attention_factor = stated.or(tables.factor);
    let against = Some(tables.clone()).filter(|_| is_other);
    let entry = tables.freqs;
    if entry.name != Name::RopeFreqs.as_str() {
        matches.push(Match::as_it_is(Name::RopeFreqs, &entry.name));
    }
    record.entries.push(Entry { name: Name::RopeFreqs.to_string(), ..entry });
    Ok(against)
}

/// Takes the positions out of a file that models of transformers have under this name, if the run turns or scales by
/// positions and nothing states them.
///
/// # Errors
/// If they are no positions.
pub fn take_positions(draft: &mut Draft) -> Result<()> {
    let Draft { record, settings, matches, unmatched, evidence, .. } = draft;
    let Some(at) = entry_of_positions(record) else { return Ok(()) };
    let mut entry = record.entries.remove(at);
    // A column has the tokens of all items, where these are not so many.
    let of_tokens = [Name::X, Name::Q, Name::QHeads].map(|name| {
        let is_it = |own: &&Entry| own.name == name.as_str() || meanings(&own.name).contains(&name);
        record.entries.iter().find(is_it).map(|own| own.tensor.dims())
    });
    let own = of_tokens.into_iter().flatten().next();
    if let (&[tokens, 1], Some([items, others @ ..])) = (entry.tensor.dims(), own)
        && tokens != *items
        && others.contains(&tokens)
    {
        entry.tensor = entry.tensor.flatten_all()?;
    }
    let Entry { name: tensor, tensor: numbers, .. } = entry.clone();
    let mut left_out = |why: &str| {
        unmatched.push(Unmatched { tensor: tensor.clone(), why: why.to_owned() });
        Ok(())
    };
    // Other names are of tokens as they are counted, which need not be those that they are turned by.
    let is_certain = is_called(&tensor, &["position_ids"]);
    if settings.positions.is_some() || settings.rope_offset.is_some() || !is_certain {
        let told = positions_in(&numbers)?.to_string();
        evidence.push(Evidence::of("positions", Name::QRot, &entry, told));
        return left_out(tr!("the settings say the positions"));
    }
    if settings.rope.is_none() && settings.q_temperature.is_none() {
        return left_out(tr!("nothing turns or scales by positions here"));
    }
    let positions = positions_in(&numbers)?;
    let mut rows = positions.0.iter().flatten();
    let how = if rows.all(|row| row.iter().copied().eq(0..row.len())) {
        tr!("the tokens' own").to_owned()
    } else {
        tr!("which is {numbers}", numbers = told(Some(&positions.to_string().into())))
    };
    matches.push(Match::as_it_is("positions", &tensor).read(how));
    settings.positions = Some(positions);
    Ok(())
}
