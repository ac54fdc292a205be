//! Does what was recorded contradict what was stated?
//!
//! A flag, or a model's config, is a hypothesis too. Where the record says something else of it, and the numbers follow
//! the record, that is what is wrong, and not a step of the code.

use candle_core::DType;

use super::cells::cells;
use super::finding::Contradiction;
use super::found_masks::masks_beside;
use super::mask_claim::{AgainstMask, by_mask, under_its_mask};
use super::reading::Reading;
use super::recomputed::Recomputed;
use base::error::{Result, quoted};
use config::{Config, Mask, Positions, Rotary, Setting};
use file::Entry;
use foreign::Evidence;
use program::{Frequencies, Name};
use run::Run;

/// What states that a kernel's arguments or positions are, and the first step that they are of.
struct Claim {
    key: &'static str,
    step: Name,
    stated: fn(&Config) -> Option<String>,
}

const CLAIMS: &[Claim] = &[
    Claim { key: "scale", step: Name::Scores, stated: |c| Some(c.scale_factor().to_string()) },
    Claim {
        key: "softcap",
        step: Name::ScoresCapped,
        stated: |c| c.plain.softcap.map(|cap| cap.to_string()),
    },
    Claim {
        key: "mask",
        step: Name::MaskedScores,
        stated: |c| {
            Some(c.masks.between).filter(|mask| *mask != Mask::Recorded).map(|m| m.to_string())
        },
    },
    Claim {
        key: "lengths",
        step: Name::MaskedScores,
        stated: |c| c.plain.lengths.as_ref().map(|lengths| listed(lengths)),
    },
    Claim {
        key: "segments",
        step: Name::MaskedScores,
        stated: |c| c.masks.segments.as_ref().map(|packed| packed.queries.to_string()),
    },
    Claim {
        key: "key_segments",
        step: Name::MaskedScores,
        stated: |c| c.masks.segments.as_ref().map(|packed| packed.keys.to_string()),
    },
    Claim {
        key: "positions",
        step: Name::QRot,
        stated: |c| {
            let counted = |first: usize| vec![vec![(first..).take(c.sizes.seq_len).collect()]];
            let first = c.rope.as_ref().map(|rope| counted(rope.offset));
            let rows = c.places().map(|places| places.rows.to_vec()).or(first)?;
            Some(once(&Positions::new(rows)))
        },
    },
    Claim {
        key: "qk_norm_eps",
        step: Name::QNorm,
        stated: |c| c.norm.as_ref().map(|norm| norm.eps.to_string()),
    },
    Claim {
        key: ROPE,
        step: Name::QRot,
        stated: |c| c.rope.as_ref().map(|rope| rope.pairing.to_string()),
    },
    Claim {
        key: "rope_base",
        step: Name::RopeFreqs,
        stated: |c| c.rope.as_ref().map(|rope| rope.base.to_string()),
    },
    Claim {
        key: "rope_dims",
        step: Name::RopeFreqs,
        stated: |c| c.rope.as_ref().map(|rope| rope.dims.to_string()),
    },
    Claim {
        key: "rope_attention_factor",
        step: Name::QRot,
        stated: |c| Some(c.rope.as_ref()?.attention_factor?.to_string()),
    },
    Claim { key: "heads", step: Name::QHeads, stated: |c| Some(c.sizes.heads.to_string()) },
    Claim { key: "kv_heads", step: Name::KHeads, stated: |c| Some(c.sizes.kv_heads.to_string()) },
];

/// Positions as text: of all items once where they have the same.
fn once(positions: &Positions) -> String {
    let rows = positions.0.iter().map(|items| {
        let all_alike = items.windows(2).all(|pair| pair[0] == pair[1]);
        if all_alike { items.iter().take(1).cloned().collect() } else { items.clone() }
    });
    let rows: Vec<Vec<Vec<usize>>> = rows.collect();
    let are_alike = rows.windows(2).all(|pair| pair[0] == pair[1]);
    let rows = if are_alike { rows.into_iter().take(1).collect() } else { rows };
    Positions::new(rows).to_string()
}

fn listed<T: ToString>(numbers: &[T]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl Claim {
    /// What is to be said where this was recorded, and something else stated.
    fn against(
        &self,
        evidence: &Evidence,
        reading: &Reading,
        run: Option<&Run>,
    ) -> Option<Contradiction> {
        let stated = match run {
            Some(run) => (self.stated)(run.config()),
            // Without the right sizes there is no run.
            None => Some(reading.settings.to_json().get(self.key)?.to_string()),
        };
        let recorded = match evidence.text.parse::<Positions>() {
            _ if evidence.text.is_empty() => "none".to_owned(),
            Ok(positions) if self.key == "positions" => once(&positions),
            _ => evidence.text.clone(),
        };
        let stated = stated.unwrap_or_else(|| "none".to_owned());
        if is_alike(&stated, &recorded, evidence.precision) {
            return None;
        }
        let (key, tensor) = (self.key, &evidence.tensor);
        let (stated, recorded) = (shortened(&stated), shortened(&recorded));
        let summary = tr!(
            "{key} was stated as {stated}; recorded is {recorded}, in {tensor}",
            key,
            stated,
            tensor = quoted(tensor),
            recorded
        );
        Some(Contradiction { setting: self.key, step: self.step, stated, recorded, summary })
    }
}

/// Whether two lists of numbers are the same but for the rounding of what was recorded.
fn is_alike(stated: &str, recorded: &str, precision: f64) -> bool {
    let numbers = |text: &str| -> Option<Vec<f64>> {
        text.split([',', '/', ';']).map(|number| number.trim().parse().ok()).collect()
    };
    let (Some(left), Some(right)) = (numbers(stated), numbers(recorded)) else {
        return stated == recorded;
    };
    let near = |(l, r): (&f64, &f64)| (l - r).abs() <= precision * l.abs().max(r.abs());
    left.len() == right.len() && left.iter().zip(&right).all(near)
}

/// A list as it is told: the first of many numbers.
fn shortened(text: &str) -> String {
    const TOLD: usize = 40;
    match text.char_indices().nth(TOLD) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The reading with what was recorded in place of what was stated; nothing where the two say the same.
///
/// # Errors
/// If candle fails.
pub fn as_recorded(reading: &Reading, found: Option<&Recomputed>) -> Result<Option<Reading>> {
    let mut other = reading.clone();
    let run = found.map(|found| &found.run);
    let is_open = reading.settings.mask == Some(Mask::Recorded);
    // What does not fit the settings says nothing.
    let heads = reading.heads_of_scores().unwrap_or_default().map(Evidence::of_heads);
    let sizes = if run.is_none() { reading.other_sizes() } else { Vec::new() };
    for evidence in reading.evidence.iter().chain(&heads).chain(&sizes) {
        if !is_stated(reading, evidence.key) || reading.is_told(evidence.key) {
            continue;
        }
        let is_of_mask = evidence.key == "mask";
        let claim = CLAIMS.iter().find(|claim| claim.key == evidence.key);
        // A mask that the file brings says it all.
        let Some(claim) = claim.filter(|_| !is_of_mask || reading.mask.is_none()) else { continue };
        let Some(found) = claim.against(evidence, reading, run) else { continue };
        if evidence.apply(&mut other.settings) {
            other.contradictions.extend(Some(found).filter(|_| !is_of_mask || !is_open));
        }
    }
    if !reading.is_told("mask")
        && let Some(found) = by_mask(reading)?
    {
        other = under_its_mask(other, found);
    }
    if let Some(Entry { name, tensor, .. }) =
        reading.freqs.as_ref().filter(|_| !reading.is_told(ROPE))
        && let Some(rope) = run.and_then(|run| run.config().rope.as_ref())
        && let Some(found) = by_frequencies(&stated_frequencies(rope)?, &cells(tensor)?, name)
    {
        other.sources = other.sources.replaced(Name::RopeFreqs, tensor.clone());
        other.contradictions.push(found);
    }
    let is_other =
        other.settings != reading.settings || other.contradictions != reading.contradictions;
    Ok(Some(other).filter(|_| is_other))
}

/// What the mask and the frequencies of a file that states its run say against that. Its run goes by them as it is.
///
/// # Errors
/// If candle fails.
pub fn against_its_config(reading: &Reading, run: &Run) -> Result<Vec<Contradiction>> {
    let Reading { record, settings, sources, .. } = reading;
    let mut found = Vec::new();
    if record.config.is_none() {
        return Ok(found);
    }
    let is_named = settings.attn_mask.is_some() || settings.mask == Some(Mask::Recorded);
    if !is_named && run.is_given_otherwise(Name::Mask) {
        let mask = masks_beside(record)?.into_iter().next();
        let against = by_mask(&Reading { mask, ..reading.clone() })?;
        found.extend(against.and_then(AgainstMask::meant_otherwise));
    }
    if settings.rope_freqs.is_none()
        && !reading.is_told(ROPE)
        && run.is_given_otherwise(Name::RopeFreqs)
        && let (Some(rope), Some(recorded)) = (&run.config().rope, sources.tensor(Name::RopeFreqs))
    {
        let (stated, recorded) = (stated_frequencies(rope)?, cells(recorded)?);
        found.extend(by_frequencies(&stated, &recorded, Name::RopeFreqs.as_str()));
    }
    Ok(found)
}

/// The setting that rotary frequencies are of.
const ROPE: &str = "rope";

/// The rotary frequencies that follow from the settings.
fn stated_frequencies(rope: &Rotary) -> Result<Vec<f64>> {
    let Rotary { dims, base, scaling, positions, .. } = rope.clone();
    let numbers = Frequencies { dims, base, scaling, positions, dtype: DType::F64 }.numbers()?;
    Ok(numbers.into_iter().map(f64::from).collect())
}

/// What recorded rotary frequencies say against those that follow from the settings.
fn by_frequencies(stated: &[f64], recorded: &[f64], name: &str) -> Option<Contradiction> {
    let near = |(l, r): (&f64, &f64)| (l - r).abs() <= 1e-5 * l.abs().max(r.abs());
    if stated.len() == recorded.len() && stated.iter().zip(recorded).all(near) {
        return None;
    }
    let are_as_many = stated.len() == recorded.len();
    let [stated, recorded] = [stated, recorded].map(|freqs| {
        if are_as_many {
            told_frequencies(freqs)
        } else {
            tr!("{count} pairs", count = freqs.len())
        }
    });
    let summary = tr!(
        "the rotary frequencies were stated as {stated}; recorded is {recorded}, in {name}",
        stated,
        recorded,
        name = quoted(name)
    );
    Some(Contradiction { setting: ROPE, step: Name::RopeFreqs, stated, recorded, summary })
}

/// Frequencies as the powers of their base, if they are that.
#[allow(clippy::cast_precision_loss, reason = "a head has few features")]
fn told_frequencies(freqs: &[f64]) -> String {
    const TOLD: usize = 4;
    let count = freqs.len() as f64;
    let base = freqs.get(1).map(|second| second.powf(-count));
    let power = |at: usize, base: f64| base.powf(-(at as f64) / count);
    let near = |at: usize, base: f64| (power(at, base) / freqs[at] - 1.0).abs() < 1e-4;
    if let Some(base) = base.filter(|base| (0..freqs.len()).all(|at| near(at, *base))) {
        let rounded = base.round();
        let is_whole = (rounded / base - 1.0).abs() < 1e-5;
        return tr!("those of base {base}", base = if is_whole { rounded } else { base });
    }
    let first: Vec<String> = freqs.iter().take(TOLD).map(|freq| format!("{freq:.4}")).collect();
    tr!("{first} …", first = first.join(", "))
}

/// Whether something states a setting; a file that says its run states all.
fn is_stated(reading: &Reading, key: &str) -> bool {
    let setting = Setting::named(key);
    let settings = &reading.settings;
    let is_set = setting.is_some_and(|setting| setting.is_set(settings))
        || key == "positions" && settings.rope_offset.is_some();
    reading.record.config.is_some() || reading.settings.before_model.is_some() || is_set
}
