//! Which reading of a file is taken?

use std::collections::VecDeque;
use std::time::Duration;

use super::contradiction::{against_its_config, as_recorded};
use super::endings::other_endings;
use super::mask_claim::{hides_all, hides_more};
use super::reading::Reading;
use super::readings::readings;
use super::recomputed::{Recomputed, recompute};
use super::step_report::Status;
use super::tolerance::Tolerances;
use base::error::{Error, Result};
use config::{Fill, Settings, Start};
use file::Record;
use foreign::{FITS, Orders, without_scale};
use run::Run;

/// How long candidates may take, as estimated beforehand.
const PATIENCE: Duration = Duration::from_secs(60);

/// The same under a reading that is less likely than one that was looked into.
const PATIENCE_LATER: Duration = Duration::from_secs(2);

/// A fill that leaves no weight beside a visible key, as any such does.
const LOW: f64 = -1e9;

/// How much nearer a reading has to be that has more heads than keys: the same dump read in two orders of axes, one of them with
/// a hundred heads, is apart by the same within a tenth where it is all wrong.
const ODD: f64 = 1.25;

/// The readings of a file that are to be explained.
pub struct Likely {
    pub likeliest: Vec<Recomputed>,
    /// Less likely ones, with tensors in the order of axes that their names have.
    pub plain: Vec<Recomputed>,
    /// Those of items of one token each, which are meant only if nothing is wrong in them.
    trivial: Vec<Recomputed>,
}

/// A reading of a file, the file's tensors beside those of its run, and where there is a choice, how far each step is from the
/// run's.
struct Tried {
    reading: Reading,
    recomputed: Recomputed,
    apart: Vec<f64>,
}

impl Tried {
    /// How many steps are the same but for the rounding of any type.
    fn same(&self) -> usize {
        self.apart.iter().filter(|apart| **apart <= FITS).count()
    }

    /// Whether a recorded step is compared.
    fn compares(&self) -> bool {
        self.recomputed.steps.iter().any(|step| step.status != Status::Missing)
    }

    /// Whether X is read tokens-first here, and not in another reading that finds as many steps, in their lengths: where batch
    /// and tokens have one length, a mistake can make a file look so.
    fn is_turned_from(&self, other: &Self) -> bool {
        let (own, other) = (&self.recomputed, &other.recomputed);
        own.tokens_first
            && !other.tokens_first
            && own.steps.len() == other.steps.len()
            && other.steps.iter().all(|step| step.shapes.is_none())
    }

    /// The same reading with every tensor in the order of axes that its name has, if a mistake may have given one another.
    fn in_named_order(&self, tolerances: &Tolerances) -> Option<Recomputed> {
        let Self { reading, recomputed, .. } = self;
        if !recomputed.named.is_reordered || recomputed.tokens_first {
            return None;
        }
        let run = recomputed.run.clone();
        recompute(reading.clone(), run, tolerances, Orders::Plain).ok()
    }
}

/// Of several readings of a file those with the most steps that are the same but for the rounding of any type, and of those
/// the ones that find the most steps in it: one that finds fewer understands less of it.
fn likeliest(mut tried: Vec<Tried>, tolerances: &Tolerances) -> Result<Likely> {
    if tried.len() > 1 {
        for one in &mut tried {
            one.apart = one.recomputed.distances()?;
        }
    }
    let mut others = keep_most(&mut tried, Tried::same);
    keep_most(&mut tried, |one| one.recomputed.steps.len());
    others.retain(|other| tried.iter().all(|one| one.is_turned_from(other)));
    keep_most(&mut others, Tried::same);
    // What is wrong is nearer to what it should be than what is read as something else.
    if tried.iter().all(|one| one.recomputed.run.config().start != Start::Inputs) {
        // Of two that are about as near, the one that has no more heads than keys is likelier.
        let sum = |one: &Tried| {
            let sizes = &one.recomputed.run.config().sizes;
            let is_odd = sizes.kv_heads > sizes.keys();
            one.apart.iter().sum::<f64>() * if is_odd { ODD } else { 1.0 }
        };
        tried.sort_by(|left, right| sum(left).total_cmp(&sum(right)));
    }
    let plain = tried.iter().filter_map(|one| one.in_named_order(tolerances));
    let plain = plain.chain(others.into_iter().map(|other| {
        let named = other.in_named_order(tolerances);
        named.unwrap_or(other.recomputed)
    }));
    let plain = plain.collect();
    let likeliest = tried.into_iter().map(|one| one.recomputed).collect();
    Ok(Likely { likeliest, plain, trivial: Vec::new() })
}

/// Keeps those of which most can be counted, and gives the others.
fn keep_most<T>(all: &mut Vec<T>, count: impl Fn(&T) -> usize) -> Vec<T> {
    let most = all.iter().map(&count).max();
    all.extract_if(.., |one| Some(count(one)) != most).collect()
}

/// The same reading; what differs is not explained where no choice depends on it.
///
/// # Errors
/// If the file cannot be understood, or candle fails.
pub fn understood(record: &Record, flags: &Settings) -> Result<Recomputed> {
    let tolerances = Tolerances::default();
    let mut readings = likely(record, flags, &tolerances)?;
    let is_only = readings.plain.is_empty() && readings.trivial.is_empty();
    match readings.likeliest.pop() {
        Some(only) if is_only && readings.likeliest.is_empty() => Ok(only),
        last => {
            readings.likeliest.extend(last);
            best(readings, &tolerances)
        }
    }
}

/// Whether a file is as its run makes it, but for rounding. No mistake is looked for.
///
/// # Errors
/// If the file cannot be understood, or candle fails.
pub fn fits(record: &Record, flags: &Settings, tolerances: &Tolerances) -> Result<bool> {
    let Likely { likeliest, plain, trivial } = likely(record, flags, tolerances)?;
    for reading in trivial.into_iter().chain(likeliest).chain(plain) {
        if reading.judge(tolerances, None)?.is_same() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What was tried of the readings of a file.
#[derive(Default)]
struct Found {
    plain: Vec<Tried>,
    /// Those that are meant if nothing is wrong in them but the rounding of some type.
    tentative: Vec<Recomputed>,
    trivial: Vec<Recomputed>,
    refused: Option<Error>,
    /// Whether a tentative one is further off.
    is_left: bool,
}

/// The [`likeliest`] readings of a file, or the first under which it is the same. A mistake is supposed only where no reading
/// without one gives the numbers, but for rounding.
pub fn likely(record: &Record, flags: &Settings, tolerances: &Tolerances) -> Result<Likely> {
    preset_says_something(record, flags)?;
    let (mistaken, meant): (Vec<Reading>, Vec<Reading>) =
        readings(record, flags)?.into_iter().partition(Reading::supposes_a_mistake);
    let (mut found, has_mistaken) = (Found::default(), !mistaken.is_empty());
    for readings in [meant, mistaken] {
        let mut same = found.first_same(readings, flags, tolerances)?;
        if same.is_none() && (has_mistaken || !found.tentative.is_empty()) {
            if found.is_rounding(tolerances)? {
                break;
            }
            same = found.same_but_for_rounding(tolerances)?;
        }
        if let Some(same) = same {
            let likeliest = vec![same];
            return Ok(Likely { likeliest, plain: Vec::new(), trivial: Vec::new() });
        }
    }
    let Found { plain, trivial, refused, is_left, .. } = found;
    if plain.is_empty() && is_left {
        without_scale(record)?;
    }
    match refused.filter(|_| plain.is_empty()) {
        Some(refused) => Err(refused),
        None => Ok(Likely { trivial, ..likeliest(plain, tolerances)? }),
    }
}

impl Found {
    /// The first of these under which the file is the same; the others are kept.
    fn first_same(
        &mut self,
        readings: Vec<Reading>,
        flags: &Settings,
        tolerances: &Tolerances,
    ) -> Result<Option<Recomputed>> {
        let mut left: VecDeque<Reading> = readings.into();
        while let Some(mut reading) = left.pop_front() {
            // Of several masks one was read the wrong way around where no key is left.
            let is_of_several = reading.mask.as_ref().is_some_and(|own| !own.also.is_empty());
            if is_of_several && hides_all(&reading)? {
                continue;
            }
            // What was stated is not the file's mask where that hides more.
            if reading.brings_mask() && hides_more(&reading)? {
                reading = reading.without_mask();
            }
            // The settings can tell that a reading is not meant, as those of so many items do.
            let run = match reading.run() {
                Ok(run) => run,
                Err(error) => {
                    left.extend(as_recorded(&reading)?);
                    self.refused.get_or_insert(error);
                    continue;
                }
            };
            seed_says_something(flags, &run)?;
            reading.contradictions.extend(against_its_config(&reading, &run)?);
            match recompute(reading.clone(), run, tolerances, Orders::Any) {
                Ok(recomputed) => {
                    if let Some(same) = self.take(reading, recomputed, flags, &mut left)? {
                        return Ok(Some(same));
                    }
                }
                Err(error) => {
                    left.extend(as_recorded(&reading)?);
                    self.refused.get_or_insert(error);
                }
            }
        }
        Ok(None)
    }

    /// Gives a reading back under which the file is the same, and else keeps it, with what may be meant in its place `left` to
    /// be tried.
    fn take(
        &mut self,
        reading: Reading,
        recomputed: Recomputed,
        flags: &Settings,
        left: &mut VecDeque<Reading>,
    ) -> Result<Option<Recomputed>> {
        let is_trivial = recomputed.is_trivial;
        // Tokens of one item, which attention may have failed to mix, are likelier than items of one token, tokens-first.
        let is_of_tokens = recomputed.tokens_first && self.plain.iter().any(Tried::compares);
        if is_trivial && (is_of_tokens || !recomputed.may_be_single_tokens()) {
            return Ok(None);
        }
        // What was recorded contradicts nothing that gives the numbers as well.
        let contradicts = !recomputed.contradictions.is_empty();
        if contradicts && self.plain.iter().any(|other| other.recomputed.is_same()) {
            return Ok(None);
        }
        // One that leaves tensors aside may be the same for not having understood them.
        let is_whole = (recomputed.unmatched.is_empty() || reading.is_tentative)
            && compares_all(&recomputed, &self.plain);
        if is_whole && recomputed.is_same() {
            return Ok(Some(recomputed));
        }
        if is_trivial {
            self.trivial.push(recomputed);
        } else if reading.is_tentative {
            self.is_left = true;
            if is_whole && recomputed.distances()?.into_iter().all(|apart| apart <= FITS) {
                self.tentative.push(recomputed);
            }
        } else {
            left.extend(other_endings(&reading)?);
            left.extend(filled_low(&reading, &recomputed, flags));
            left.extend(as_recorded(&reading)?);
            self.plain.push(Tried { reading, recomputed, apart: Vec::new() });
        }
        Ok(None)
    }

    /// Whether one of those that are meant anyway is the same but for rounding.
    fn is_rounding(&mut self, tolerances: &Tolerances) -> Result<bool> {
        let judged = std::mem::take(&mut self.plain).into_iter().map(|one| {
            let recomputed = one.recomputed.judge(tolerances, None)?;
            Ok(Tried { recomputed, ..one })
        });
        self.plain = judged.collect::<Result<_>>()?;
        Ok(self.plain.iter().any(|one| one.recomputed.is_same()))
    }

    /// The first tentative one that is.
    fn same_but_for_rounding(&mut self, tolerances: &Tolerances) -> Result<Option<Recomputed>> {
        for one in self.tentative.drain(..) {
            let judged = one.judge(tolerances, None)?;
            if judged.is_same() {
                return Ok(Some(judged));
            }
        }
        Ok(None)
    }
}

/// Whether a reading compares as many steps as others do: it is not the same for leaving some aside.
fn compares_all(recomputed: &Recomputed, others: &[Tried]) -> bool {
    others.iter().all(|other| other.recomputed.steps.len() <= recomputed.steps.len())
}

/// The reading under a low fill where nothing states one, and the rows alone differ that see no key: they have equal weights
/// then.
fn filled_low(reading: &Reading, found: &Recomputed, flags: &Settings) -> Option<Reading> {
    let is_stated = flags.mask_fill.is_some()
        || flags.empty_rows.is_some()
        || reading.record.config.is_some()
        || reading.matches.iter().any(|taken| taken.step == "mask_fill");
    let is_it = found.padded_rows.is_some() && !is_stated && !reading.is_tentative;
    is_it.then(|| {
        let mask_fill = Some(Fill(LOW));
        let settings = Settings { mask_fill, empty_rows: None, ..reading.settings.clone() };
        Reading { settings, is_tentative: true, ..reading.clone() }
    })
}

/// Refuses a preset where the file has settings.
fn preset_says_something(record: &Record, flags: &Settings) -> Result<()> {
    let (Some(preset), Some(_)) = (flags.preset, &record.config) else { return Ok(()) };
    let what = tr!("`preset={preset}` has no effect on a file that states its settings", preset);
    Err(Error::config(what, "leave it out, or give the settings that should differ"))
}

/// Refuses a seed where nothing is drawn.
fn seed_says_something(flags: &Settings, run: &Run) -> Result<()> {
    match flags.seed {
        Some(seed) if !run.draws()? => {
            let what = tr!(
                "`seed={seed}` has no effect: the file holds all inputs of the run",
                seed = seed.0
            );
            Err(Error::config(what, "leave it out"))
        }
        _ => Ok(()),
    }
}

/// Of several readings of a file, each explained, the one that leaves the fewest steps unexplained.
pub fn best(readings: Likely, tolerances: &Tolerances) -> Result<Recomputed> {
    for reading in readings.trivial {
        let judged = reading.judge(tolerances, Some(Duration::ZERO))?;
        if judged.is_same() {
            return Ok(judged);
        }
    }
    let mut best: Option<Recomputed> = None;
    let plain = readings.plain.into_iter().map(|reading| (reading, true));
    for (reading, is_plain) in
        readings.likeliest.into_iter().map(|reading| (reading, false)).chain(plain)
    {
        let is_explained = best.as_ref().is_some_and(|best| best.unexplained() == 0);
        if is_plain && is_explained && !best.as_ref().is_some_and(Recomputed::is_turned) {
            break;
        }
        // Where all is explained, another reading may still need nothing but rounding.
        let patience = match best {
            _ if is_explained || is_plain => Duration::ZERO,
            Some(_) => PATIENCE_LATER,
            None => PATIENCE,
        };
        let judged = reading.judge(tolerances, Some(patience))?;
        // One that needs nothing but rounding is the one that was meant.
        if judged.is_same() {
            return Ok(judged);
        }
        // One that needs less to be wrong is likelier; of equal ones the first.
        let is_better = |best: &Recomputed| {
            let leaves_fewer = judged.unexplained() < best.unexplained();
            leaves_fewer || (is_plain && judged.is_plainer(best))
        };
        if best.as_ref().is_none_or(is_better) {
            best = Some(judged);
        }
    }
    best.ok_or_else(|| {
        Error::config(
            "the file holds nothing to check",
            "record at least one computed step, such as output",
        )
    })
}
