//! What do the biases of scores that a file brings say against those that were stated?

use candle_core::{DType, Shape, Tensor};

use super::cells::cells;
use super::finding::{Contradiction, told};
use super::reading::Reading;
use base::error::Result;
use config::{CausalAlign, Setting};
use file::Entry;
use foreign::{FoundMask, Match, Unmatched, last_segment, precision};
use program::{ByPosition, Hides, Name, signed};
use run::Run;

/// The settings that bias scores by positions.
const BY_POSITION: &[&str] = &["alibi", "relative_bias"];

/// A bias below this hides a key.
const HIDES: f64 = -1e4;

/// A reading with the biases that its file brings: added to those that are stated, unless they are the same; and left aside
/// where a file of others is stated.
///
/// # Errors
/// If candle fails.
pub fn with_its_bias(mut reading: Reading, bias: &Entry) -> Result<Reading> {
    if reading.settings.attn_bias.is_some() {
        let why = tr!("the settings say the biases").to_owned();
        reading.unmatched.push(Unmatched { tensor: bias.name.clone(), why });
        reading.bias = Some(bias.clone());
        return Ok(reading);
    }
    if stated(&reading).is_none() {
        let mut other = reading.with_bias(bias);
        if let Some(key) = left_out(&other, bias) {
            let both = [tr!("left out").to_owned(), tr!("a bias").to_owned()];
            let step = Name::ScoresBiased;
            other.contradictions.push(Contradiction::of(key, step, both, &bias.name));
        }
        return Ok(other);
    }
    let is_stated = reading.run_as_it_is().ok().map(|run| says_the_same(&run, &bias.tensor));
    Ok(if is_stated.transpose()? == Some(true) {
        in_place(reading, bias)
    } else {
        Reading { bias: Some(bias.clone()), ..reading.with_bias(bias) }
    })
}

/// The reading without the mask that its file brings, where that holds the biases that were stated: it is how they are handed to
/// a function of queries, keys and values.
///
/// # Errors
/// If candle fails.
pub fn says_stated_bias(reading: &Reading, mask: &FoundMask) -> Result<Option<Reading>> {
    let is_biased = stated(reading).is_some() || reading.settings.attn_bias.is_some();
    if !is_biased || !mask.mask.dtype().is_float() {
        return Ok(None);
    }
    let mut bare = reading.clone().without_mask();
    let run = bare.run_as_it_is().ok();
    let is_it = run.map(|run| says_the_same(&run, &mask.mask)).transpose()? == Some(true);
    let how = tr!("the biases that were stated");
    bare.matches.push(Match::as_it_is("attn_bias", &mask.name).read(how));
    Ok(is_it.then_some(bare))
}

/// The reading without the biases of its file beside those that were stated, which the numbers may follow alone.
pub fn without_its_bias(reading: &Reading) -> Option<Reading> {
    let bias = reading.bias.as_ref().filter(|_| reading.settings.attn_bias.is_some())?;
    stated(reading).filter(|key| !reading.is_told(key))?;
    let mut other = reading.clone();
    other.settings.attn_bias = None;
    other.sources = other.sources.without(Name::GivenBias);
    other.matches.retain(|taken| taken.tensor != bias.name);
    let why = tr!("the settings say the biases").to_owned();
    other.unmatched.push(Unmatched { tensor: bias.name.clone(), why });
    Some(Reading { bias: None, is_tentative: true, ..other })
}

/// The biases of recorded slopes: each head's, times how far a key is from the query, below 0. The last query stands at the
/// last key of its item, as in `FlashAttention`.
///
/// # Errors
/// If candle fails.
fn of_slopes(reading: &Reading, slopes: &Entry) -> Result<Option<Entry>> {
    let Ok(run) = reading.run_as_it_is() else { return Ok(None) };
    let sizes = &run.config().sizes;
    let (items, [queries, keys]) = match *slopes.tensor.dims() {
        [heads] if heads == sizes.heads => (1, [sizes.query_count(), sizes.keys()]),
        [items, heads] if heads == sizes.heads => (items, [sizes.query_count(), sizes.keys()]),
        _ => return Ok(None),
    };
    let lengths = reading.settings.lengths.clone().unwrap_or_else(|| vec![keys]);
    // In a packed row it stands at the last key of its document.
    let align = CausalAlign::BottomRight;
    let (first, shifts) = (signed(sizes.first_query()), run.config().shifts(align));
    let packed = ByPosition { first, queries, keys, hides: Hides::Future, shifts };
    let is_packed = run.config().masks.segments.is_some();
    let distance = |length: usize, query: usize, key: usize| {
        let apart = if is_packed {
            packed.position(query) - signed(key)
        } else {
            signed(query + length) - signed(key + queries)
        };
        -(apart.abs() as f64)
    };
    let all = lengths.iter().flat_map(|length| {
        (0..queries).flat_map(move |query| (0..keys).map(move |key| distance(*length, query, key)))
    });
    let device = slopes.tensor.device();
    let distances = Tensor::from_iter(all, device)?.reshape((lengths.len(), 1, queries, keys))?;
    let slopes_of = slopes.tensor.to_dtype(DType::F64)?.reshape((items, sizes.heads, 1, 1))?;
    let biases = slopes_of.broadcast_mul(&distances)?.to_dtype(slopes.tensor.dtype())?;
    Ok(Some(Entry { tensor: biases, ..slopes.clone() }))
}

/// The reading with a file's biases of scores, or with those that its slopes make.
///
/// # Errors
/// If candle fails.
pub fn with_biases(
    mut reading: Reading,
    bias: Option<&Entry>,
    slopes: Option<&Entry>,
) -> Result<Reading> {
    let Some(slopes) = slopes.filter(|_| bias.is_none()) else {
        return bias.map_or(Ok(reading.clone()), |bias| with_its_bias(reading, bias));
    };
    if let Some(bias) = of_slopes(&reading, slopes)? {
        return with_its_bias(reading, &bias);
    }
    let why = tr!("it has no number for each head").to_owned();
    reading.unmatched.push(Unmatched { tensor: slopes.name.clone(), why });
    Ok(reading)
}

/// The setting of such biases that was stated to be left out.
fn left_out(reading: &Reading, bias: &Entry) -> Option<&'static str> {
    let name = last_segment(&bias.name).to_ascii_lowercase();
    let key = if name.contains("alibi") { BY_POSITION[0] } else { BY_POSITION[1] };
    let says_so = name.contains("alibi") || name.contains("pos") || name == "rpb";
    let is_left_out = |key: &&str| {
        Setting::named(key).is_some_and(|setting| setting.is_left_out(&reading.settings))
    };
    Some(key).filter(|_| says_so).filter(is_left_out)
}

/// The reading with the biases of its file in place of those that were stated otherwise.
pub fn under_its_bias(reading: &Reading) -> Option<Reading> {
    let bias = reading.bias.as_ref()?;
    let key = stated(reading).unwrap_or("attn_bias");
    if reading.is_told(key) {
        return None;
    }
    let stated = told(reading.settings.to_json().get(key));
    let mut other = in_place(reading.clone(), bias);
    other.unmatched.retain(|tensor| tensor.tensor != bias.name);
    let step = Name::ScoresBiased;
    other.contradictions.push(Contradiction::of_numbers(key, step, stated, &bias.name));
    Some(other)
}

/// The setting that states biases by position.
fn stated(reading: &Reading) -> Option<&'static str> {
    let is_on = |key: &&&str| {
        let stated = reading.settings.to_json().get(**key).cloned();
        stated.is_some_and(|value| value != false)
    };
    BY_POSITION.iter().find(is_on).copied()
}

/// The reading with these biases alone.
fn in_place(mut reading: Reading, bias: &Entry) -> Reading {
    for key in BY_POSITION {
        if let Some(setting) = Setting::named(key) {
            setting.take_away(&mut reading.settings);
        }
    }
    reading.matches.retain(|taken| taken.step != "attn_bias");
    Reading { bias: None, ..reading.with_bias(bias) }
}

/// Whether biases are those of a run but for rounding, where no mask hides a key. What is added to a whole row makes no
/// difference.
fn says_the_same(run: &Run, other: &Tensor) -> Result<bool> {
    let Some(own) = run.value_of(Name::AttnBias)? else { return Ok(false) };
    let blocked = match run.blocked()? {
        Some(blocked) => blocked,
        None => Tensor::zeros((), DType::U8, own.device())?,
    };
    let joint = |left: &Shape, right: &Shape| left.broadcast_shape_binary_op(right, "biases");
    let shape = joint(own.shape(), other.shape()).and_then(|both| joint(&both, blocked.shape()));
    let Ok(shape) = shape else { return Ok(false) };
    let wide = |tensor: &Tensor| cells(&tensor.broadcast_as(&shape)?);
    let (left, right, blocked) = (wide(&own)?, wide(other)?, wide(&blocked)?);
    let largest = left.iter().fold(1.0, |most: f64, cell| most.max(cell.abs()));
    // Both numbers of a difference are rounded, and so are those of the one that it is compared with.
    let most = 4.0 * precision(other) * largest;
    let apart = left.iter().zip(&right).zip(&blocked);
    let apart: Vec<Option<f64>> = apart
        .map(|((own, other), blocked)| (*blocked == 0.0 && *other > HIDES).then(|| other - own))
        .collect();
    let keys = shape.dims().last().copied().unwrap_or(1).max(1);
    Ok(apart.chunks(keys).all(|row| {
        let mut seen = row.iter().flatten();
        let first = seen.next().copied().unwrap_or_default();
        seen.all(|own| (own - first).abs() <= most)
    }))
}
