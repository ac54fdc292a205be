//! What kernels keep of splits and tiles: states under two names, logarithms in base 2, and tiles in another order or with
//! another maximum.

use candle_core::{D, DType, Tensor};

use super::hints::LOWEST_SCORE;
use super::matched::Match;
use super::names::is_called;
use super::steps::{FITS, Named, Unmatched, distance};
use base::error::Result;
use file::{Entry, Record};
use program::{Name, Precision, Step, Trace};

/// The states of two splits, each under a name of its own.
const STATES: [(Name, [&[&str]; 2]); 2] = [
    (Name::SplitOutputs, [&["prefix_output", "v_a"], &["suffix_output", "v_b"]]),
    (Name::SplitLse, [&["prefix_lse", "s_a"], &["suffix_lse", "s_b"]]),
];

/// What fits this well has nothing but rounding in it.
const EXACT: f64 = 1e-3;

/// Puts the states of two splits together, as the splits of one tensor.
///
/// # Errors
/// If candle fails.
pub fn join_states(record: &mut Record) -> Result<Vec<Match>> {
    let mut matches = Vec::new();
    for (step, [first, second]) in STATES {
        let find = |names: &[&str]| {
            record.entries.iter().find(|entry| is_called(&entry.name, names)).cloned()
        };
        let (Some(first), Some(second)) = (find(first), find(second)) else { continue };
        if first.tensor.dims() != second.tensor.dims() {
            continue;
        }
        record.entries.retain(|entry| entry.name != first.name && entry.name != second.name);
        let tensor = Tensor::stack(&[&first.tensor, &second.tensor], 0)?;
        record.entries.push(Entry::of(step.as_str(), tensor));
        let both = tr!("{first} and {second}", first = first.name, second = second.name);
        matches.push(Match::as_it_is(step.as_str(), both));
    }
    Ok(matches)
}

/// A logarithm or a maximum in base e, where it is kept in base 2, or `is_meant` to be.
fn in_base_e(step: &Step, tensor: &Tensor, is_meant: bool) -> Result<Option<Tensor>> {
    let is_log = matches!(step.name, Name::SplitLse | Name::SplitMax | Name::TileMax | Name::Lse);
    if !is_log || !tensor.dtype().is_float() {
        return Ok(None);
    }
    let natural = (tensor * std::f64::consts::LN_2)?;
    let [binary, own] = [distance(&natural, &step.value)?, distance(tensor, &step.value)?];
    // Where base 2 is meant, wrong numbers are in it too, unless they fit the other one far better.
    let is_it = binary < EXACT && own > EXACT || is_meant && binary < 2.0 * own && own > EXACT;
    Ok(is_it.then_some(natural))
}

/// Whether the recorded log-sum-exp is that of the recorded masked scores, whatever those should be: it is in base e then.
fn follows_from_scores(record: &Record, trace: &Trace) -> Result<bool> {
    let tensor = |name: Name| record.tensor(name.as_str());
    let (Some(scores), Some(lse), Some(step)) =
        (tensor(Name::MaskedScores), tensor(Name::Lse), trace.step(Name::Lse))
    else {
        return Ok(false);
    };
    let is_plain = trace.read_by(step).iter().all(|read| read.name == Name::MaskedScores);
    if !is_plain || scores.dims().get(..lse.rank()) != Some(lse.dims()) {
        return Ok(false);
    }
    let own = scores.to_dtype(DType::F64)?.log_sum_exp(D::Minus1)?;
    Ok(distance(lse, &own)? <= EXACT)
}

/// What `FlashInfer` is called with, in lower case.
const OF_FLASHINFER: [&str; 8] = [
    "paged_kv_indptr",
    "paged_kv_indices",
    "paged_kv_last_page_len",
    "qo_indptr",
    "kv_indptr",
    "indptr",
    "custom_mask",
    "packed_custom_mask",
];

/// What kernels of `SGLang` are called with, which have some of the same names and logarithms in base e.
const OF_SGLANG: [&str; 3] = ["k_buffer", "v_buffer", "kv_indices"];

/// Whether a file holds what `FlashInfer` is called with, which gives log-sum-exps in base 2.
pub fn is_of_flashinfer<'n>(tensors: impl Iterator<Item = &'n str>) -> bool {
    let mut is_other = false;
    let found = tensors.filter(|tensor| {
        is_other |= is_called(tensor, &OF_SGLANG);
        is_called(tensor, &OF_FLASHINFER)
    });
    found.count() > 0 && !is_other
}

/// The log-sum-exp, of all keys or of a split's, that is +∞ for rows that see no key, as `FlashAttention` keeps it, with −∞ there.
fn of_empty_rows(step: &Step, tensor: &Tensor) -> Result<Option<Tensor>> {
    if !matches!(step.name, Name::Lse | Name::SplitLse) || tensor.dims() != step.value.dims() {
        return Ok(None);
    }
    let both = tensor.eq(f64::INFINITY)?.mul(&step.value.eq(f64::NEG_INFINITY)?)?;
    replaced(&both, &step.value.to_dtype(tensor.dtype())?, tensor)
}

/// Scores with a bias that blocks, with the run's fill where they have another one: both give the weight 0 in rows that see a
/// key.
fn of_other_fill(step: &Step, tensor: &Tensor) -> Result<Option<Tensor>> {
    if step.name != Name::ScoresBiased || tensor.dims() != step.value.dims() {
        return Ok(None);
    }
    let own = step.value.to_dtype(tensor.dtype())?;
    let is_fill = |tensor: &Tensor| tensor.le(LOWEST_SCORE);
    let sees_a_key = own.max_keepdim(D::Minus1)?.gt(LOWEST_SCORE)?.broadcast_as(own.shape())?;
    let both = is_fill(tensor)?.mul(&is_fill(&own)?)?.mul(&sees_a_key)?.mul(&tensor.ne(&own)?)?;
    replaced(&both, &own, tensor)
}

/// A tensor with the run's own numbers in some cells; nothing where there are none.
fn replaced(cells: &Tensor, own: &Tensor, tensor: &Tensor) -> Result<Option<Tensor>> {
    let is_some = cells.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()? > 0.0;
    Ok(if is_some { Some(cells.where_cond(own, tensor)?) } else { None })
}

/// Reads what is kept of tiles and splits in another way than here: logarithms in base 2 in base e, that of all as well where
/// it `is_binary` or theirs are; and where the results are right, it is no mistake in which order the tiles come, and which number is subtracted before the exponential.
///
/// # Errors
/// If candle fails.
pub fn as_kept(mut named: Named, trace: &Trace, mut is_binary: bool) -> Result<Named> {
    let steps: Vec<&Step> = trace.steps().iter().filter(|step| step.is_of_parts()).collect();
    // What kernels keep of the whole is in the base of what they keep of its parts.
    let others = [Name::Lse, Name::ScoresBiased].into_iter().filter_map(|name| trace.step(name));
    let is_natural = follows_from_scores(&named.record, trace)?;
    for step in steps.iter().copied().chain(others) {
        let is_it = |entry: &&mut Entry| entry.name == step.name.as_str();
        let Some(entry) = named.record.entries.iter_mut().find(is_it) else { continue };
        let mut read = None;
        if let Some(own) = of_other_fill(step, &entry.tensor)? {
            read = Some((own, tr!("another fill of what is blocked taken as the mask's")));
        } else if let Some(own) = of_empty_rows(step, &entry.tensor)? {
            read = Some((own, tr!("+∞ of rows that see no key taken as −∞")));
        } else if (step.name != Name::Lse || is_binary && !is_natural)
            && let Some(natural) = in_base_e(step, &entry.tensor, is_binary)?
        {
            is_binary = true;
            read = Some((natural, tr!("in base 2, times ln 2")));
        }
        if let Some((tensor, how)) = read {
            entry.tensor = tensor;
            let own = named.matches.iter().find(|own| own.step == step.name.as_str());
            let tensor = own.map_or_else(|| step.name.to_string(), |own| own.tensor.clone());
            named.matches.push(Match::as_it_is(step.name.as_str(), tensor).read(how));
        }
    }
    if steps.is_empty() {
        return Ok(named);
    }
    let (limit, why) = match of_results(&named.record, trace)? {
        Some(limit) => (
            limit,
            tr!(
                "the results are right, and it is kept in another way: in another order of tiles, or with another maximum"
            ),
        ),
        None if are_cut_elsewhere(&named.record, trace)? => (
            EXACT,
            tr!("merged rightly they give what they should: the keys are cut into them elsewhere"),
        ),
        None => return Ok(named),
    };
    // Sums go with the maximum that they are taken under.
    let mut is_other = false;
    for step in steps {
        let name = step.name.as_str();
        let Some(apart) = apart(&named.record, step)? else { continue };
        is_other |= apart >= limit;
        if !is_other {
            continue;
        }
        named.record.entries.retain(|entry| entry.name != name);
        let tensor = named.matches.iter().find(|own| own.step == name);
        let tensor = tensor.map_or_else(|| name.to_owned(), |own| own.tensor.clone());
        named.matches.retain(|own| own.step != name);
        named.unmatched.push(Unmatched { tensor, why: why.to_owned() });
    }
    Ok(named)
}

/// Whether recorded splits, which are not the run's, give what it does if they are merged rightly: each has other keys.
fn are_cut_elsewhere(record: &Record, trace: &Trace) -> Result<bool> {
    let names = [Name::SplitLse, Name::SplitOutputs, Name::Lse, Name::HeadOutputs];
    let [Some(lse), Some(outputs), Some(merged), Some(output)] = names.map(|name| trace.step(name))
    else {
        return Ok(false);
    };
    let recorded = [lse, outputs].map(|step| {
        let own = record.tensor(step.name.as_str());
        own.filter(|own| own.dims() == step.value.dims()).map(|own| own.to_dtype(DType::F64))
    });
    let [Some(lses), Some(outputs)] = recorded else { return Ok(false) };
    let is_other = apart(record, lse)?.is_some_and(|apart| apart >= EXACT);
    if trace.step(Name::Sinks).is_some() || !is_other {
        return Ok(false);
    }
    let (lses, outputs) = (lses?, outputs?);
    let whole = lses.log_sum_exp(0)?;
    let weights = lses.broadcast_sub(&whole)?.exp()?.unsqueeze(D::Minus1)?;
    let weighed = outputs.broadcast_mul(&weights)?.sum(0)?;
    Ok(distance(&whole, &merged.value)? < EXACT && distance(&weighed, &output.value)? < EXACT)
}

/// How far a recorded step is from the run's, if it is recorded.
fn apart(record: &Record, step: &Step) -> Result<Option<f64>> {
    let own = record.tensor(step.name.as_str());
    own.map(|own| distance(own, &step.value)).transpose()
}

/// How far a step may be from the run's where the results are right: as far as these are. Nothing where they are not, or no
/// output is recorded.
fn of_results(record: &Record, trace: &Trace) -> Result<Option<f64>> {
    let (mut furthest, mut limit) = (0.0_f64, None);
    for name in [Name::Lse, Name::HeadOutputs, Name::Concat, Name::Output] {
        let (Some(step), Some(own)) = (trace.step(name), record.tensor(name.as_str())) else {
            continue;
        };
        furthest = furthest.max(distance(own, &step.value)?);
        if name != Name::Lse {
            // Numbers of 16 bits may be stored in 32.
            let is_narrow = Precision::Bf16.holds_all(own)? || Precision::F16.holds_all(own)?;
            limit = Some(if is_narrow { FITS } else { EXACT });
        }
    }
    Ok(limit.filter(|limit| furthest < *limit))
}
