//! Which way to understand a file is taken.

use std::time::Duration;

use super::interpretation::{Interpretation, interpretations};
use super::recomputed::{Recomputed, recompute};
use super::tolerance::Tolerances;
use base::error::{Error, Result};
use config::{Settings, Start};
use file::Record;
use foreign::{FITS, Orders};
use run::Run;

/// How long candidates may take, as estimated beforehand.
const PATIENCE: Duration = Duration::from_secs(60);

/// The ways to understand a file that are to be explained.
struct Ways {
    likeliest: Vec<Recomputed>,
    /// Less likely ones, with tensors in the order of axes that their names have.
    plain: Vec<Recomputed>,
    /// Those of items of one token each, which are meant only if nothing is wrong in them.
    trivial: Vec<Recomputed>,
}

/// A way to understand a file, the file's tensors beside those of its run, and where there is a choice, how far each step
/// is from the run's.
struct Way {
    interpretation: Interpretation,
    recomputed: Recomputed,
    apart: Vec<f64>,
}

impl Way {
    /// How many steps are the same but for the rounding of any type.
    fn same(&self) -> usize {
        self.apart.iter().filter(|apart| **apart <= FITS).count()
    }

    /// Whether X is read tokens-first here, and not in another way that finds as many steps, in their lengths: where batch
    /// and tokens have one length, a mistake can make a file look so.
    fn is_turned_from(&self, other: &Self) -> bool {
        let (own, other) = (&self.recomputed, &other.recomputed);
        own.tokens_first
            && !other.tokens_first
            && own.steps.len() == other.steps.len()
            && other.steps.iter().all(|step| step.shapes.is_none())
    }

    /// The same way with every tensor in the order of axes that its name has, if a mistake may have given one another.
    fn in_named_order(&self, tolerances: &Tolerances) -> Option<Recomputed> {
        let Self { interpretation, recomputed, .. } = self;
        if !recomputed.named.is_reordered || recomputed.tokens_first {
            return None;
        }
        let run = recomputed.run.clone();
        recompute(interpretation.clone(), run, tolerances, Orders::Plain).ok()
    }
}

/// Of several ways to understand a file those with the most steps that are the same but for the rounding of any type,
/// and of those the ones that find the most steps in it: a way that finds fewer understands less of it.
fn likeliest(mut ways: Vec<Way>, tolerances: &Tolerances) -> Result<Ways> {
    if ways.len() > 1 {
        for way in &mut ways {
            way.apart = way.recomputed.distances()?;
        }
    }
    let mut others = keep_most(&mut ways, Way::same);
    keep_most(&mut ways, |way| way.recomputed.steps.len());
    others.retain(|other| ways.iter().all(|way| way.is_turned_from(other)));
    keep_most(&mut others, Way::same);
    // What is wrong in some way is nearer to what it should be than what is read in the wrong way.
    if ways.iter().all(|way| way.recomputed.run.config().start != Start::Inputs) {
        let sum = |way: &Way| way.apart.iter().sum::<f64>();
        ways.sort_by(|left, right| sum(left).total_cmp(&sum(right)));
    }
    let plain = ways.iter().filter_map(|way| way.in_named_order(tolerances));
    let plain = plain.chain(others.into_iter().map(|other| {
        let named = other.in_named_order(tolerances);
        named.unwrap_or(other.recomputed)
    }));
    let plain = plain.collect();
    let likeliest = ways.into_iter().map(|way| way.recomputed).collect();
    Ok(Ways { likeliest, plain, trivial: Vec::new() })
}

/// Keeps the ways of which most can be counted, and gives the others.
fn keep_most<T>(ways: &mut Vec<T>, count: impl Fn(&T) -> usize) -> Vec<T> {
    let most = ways.iter().map(&count).max();
    ways.extract_if(.., |way| Some(count(way)) != most).collect()
}

/// The file's run beside the file, explained. Of the [`ways`] to understand the file the one is taken that leaves the
/// fewest steps without an explanation, the likeliest first.
///
/// # Errors
/// If the file cannot be understood, or candle fails.
pub fn judged(record: &Record, flags: &Settings, tolerances: &Tolerances) -> Result<Recomputed> {
    best(ways(record, flags, tolerances)?, tolerances)
}

/// The same way to understand the file; what differs is not explained where no choice depends on it.
///
/// # Errors
/// If the file cannot be understood, or candle fails.
pub fn understood(record: &Record, flags: &Settings) -> Result<Recomputed> {
    let tolerances = Tolerances::default();
    let mut ways = ways(record, flags, &tolerances)?;
    let is_only = ways.plain.is_empty() && ways.trivial.is_empty();
    match ways.likeliest.pop() {
        Some(only) if is_only && ways.likeliest.is_empty() => Ok(only),
        last => {
            ways.likeliest.extend(last);
            best(ways, &tolerances)
        }
    }
}

/// The [`likeliest`] ways to understand the file, or the first under which it is the same.
fn ways(record: &Record, flags: &Settings, tolerances: &Tolerances) -> Result<Ways> {
    preset_says_something(record, flags)?;
    let (mut found, mut trivial, mut refused) = (Vec::new(), Vec::new(), None);
    for mut interpretation in interpretations(record, flags)? {
        // The settings can tell that a way is not meant, as those of so many items do.
        let run = match interpretation.run() {
            Ok(run) => run,
            Err(error) => {
                refused = refused.or(Some(error));
                continue;
            }
        };
        seed_says_something(flags, &run)?;
        match recompute(interpretation.clone(), run, tolerances, Orders::Any) {
            Ok(recomputed) if recomputed.is_trivial && !recomputed.may_be_single_tokens() => {}
            // One that leaves tensors aside may be the same for not having understood them.
            Ok(recomputed) if recomputed.is_same() && recomputed.unmatched.is_empty() => {
                let likeliest = vec![recomputed];
                return Ok(Ways { likeliest, plain: Vec::new(), trivial: Vec::new() });
            }
            Ok(recomputed) if recomputed.is_trivial => trivial.push(recomputed),
            Ok(recomputed) => found.push(Way { interpretation, recomputed, apart: Vec::new() }),
            Err(error) if found.is_empty() => return Err(error),
            Err(_) => {}
        }
    }
    match refused.filter(|_| found.is_empty()) {
        Some(refused) => Err(refused),
        None => Ok(Ways { trivial, ..likeliest(found, tolerances)? }),
    }
}

/// Refuses a preset where the file has settings.
fn preset_says_something(record: &Record, flags: &Settings) -> Result<()> {
    let (Some(preset), Some(_)) = (flags.preset, &record.config) else { return Ok(()) };
    let what = tr!("`preset={preset}` says nothing beside a file that states its settings", preset);
    Err(Error::config(what, "leave it out, or give the settings that should be others"))
}

/// Refuses a seed where nothing is drawn.
fn seed_says_something(flags: &Settings, run: &Run) -> Result<()> {
    match flags.seed {
        Some(seed) if !run.draws()? => {
            let what = tr!(
                "`seed={seed}` draws nothing: the file holds all that the run is given",
                seed = seed.0
            );
            Err(Error::config(what, "leave it out"))
        }
        _ => Ok(()),
    }
}

/// Of several ways to understand a file, each explained, the one that leaves the fewest steps unexplained.
fn best(ways: Ways, tolerances: &Tolerances) -> Result<Recomputed> {
    for way in ways.trivial {
        let judged = way.judge(tolerances, Duration::ZERO)?;
        if judged.is_same() {
            return Ok(judged);
        }
    }
    let mut best: Option<Recomputed> = None;
    let plain = ways.plain.into_iter().map(|way| (way, true));
    for (way, is_plain) in ways.likeliest.into_iter().map(|way| (way, false)).chain(plain) {
        let is_explained = best.as_ref().is_some_and(|best| best.unexplained() == 0);
        if is_plain && is_explained && !best.as_ref().is_some_and(Recomputed::is_turned) {
            break;
        }
        // Where all is explained, another way may still need nothing but rounding.
        let patience = if is_explained || is_plain { Duration::ZERO } else { PATIENCE };
        let judged = way.judge(tolerances, patience)?;
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
    best.ok_or_else(|| Error::config("there is nothing to check", "record a step"))
}
