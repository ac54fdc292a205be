//! Which ways are there to understand a recorded file?

use super::bias_claim::with_its_bias;
use super::cores::{cores, of_pages};
use super::delta::of_delta_rule;
use super::finding::Contradiction;
use super::found_masks::{masks_against, masks_beside};
use super::gradients::with_gradients;
use super::items_of_x::in_each_order;
use super::lacking::lacking;
use super::layout_claim::laid_out_otherwise;
use super::mask_claim::{with_items_either_way, with_ones_either_way};
use super::module::ModuleCall;
use super::reading::{Draft, Reading};
use super::rotation::{entry_of_positions, is_of_module, take_frequencies, take_positions};
use super::scale_claim::with_other_scales;
use super::unstated::{alibi_left_out, bring_steps, dropped, is_of_f64};
use base::error::Result;
use config::{End, NormOver, Setting, Settings, Start};
use file::{Entry, Record};
use foreign::{
    Caller, Evidence, Inputs, Match, Tables, dropout_of, find_inputs, find_pages, find_qkv,
    has_delta_rule, meanings, said_by_config, take_arguments, take_bias, take_evidence,
    take_gradients, take_kept, take_mask, take_selection, unpacked,
};
use program::Name;
use run::{Sources, positions_in};

/// The ways to understand a file, the plain one first. One of ours says what it means; `flags` override it. Of another
/// they say what was meant, and what they leave open is taken from the tensors. X of such a file may be (`seq_len`,
/// batch, `d_in`), as `nn.MultiheadAttention` has it without `batch_first`.
///
/// # Errors
/// If the flags name a file that cannot be read, X or a weight is missing, or a layer must be picked.
pub fn readings(record: &Record, flags: &Settings) -> Result<Vec<Reading>> {
    let mut forward = record.clone();
    let is_foreign = record.config.is_none();
    let is_stated = flags.recurrence.is_some();
    if is_foreign && (is_stated || flags.weights.is_none() && has_delta_rule(record)?) {
        return of_delta_rule(forward, flags);
    }
    if is_foreign {
        forward = unpacked(forward)?;
        without_kept_axes(&mut forward)?;
    }
    let gradients = if is_foreign { take_gradients(&mut forward) } else { Vec::new() };
    let all = of_forward(&forward, flags)?;
    let all = all.into_iter().map(with_ones_either_way).collect::<Result<Vec<_>>>()?.concat();
    let all = all.into_iter().map(with_items_either_way).collect::<Result<Vec<_>>>()?.concat();
    let rescaled = with_other_scales(&all);
    let all = [all, rescaled].concat();
    if gradients.is_empty() {
        return Ok(all);
    }
    let with = |reading| with_gradients(reading, &gradients, &forward.entries, flags);
    Ok(all.into_iter().map(with).collect::<Result<Vec<_>>>()?.concat())
}

/// Leaves out the last axis of what code has reduced, where it kept it with one place: `keepdim=True`.
fn without_kept_axes(record: &mut Record) -> Result<()> {
    for entry in &mut record.entries {
        let means = meanings(&entry.name);
        let is_reduced = matches!(means.first(), Some(Name::Lse | Name::Delta));
        if is_reduced && matches!(entry.tensor.dims(), [_, _, _, 1]) {
            entry.tensor = entry.tensor.squeeze(3)?;
        }
    }
    Ok(())
}

/// The same of a file without gradients.
fn of_forward(record: &Record, flags: &Settings) -> Result<Vec<Reading>> {
    let call = if record.config.is_none() { ModuleCall::of(record, flags)? } else { None };
    let Some(ModuleCall { record: renamed, settings, matches, is_certain }) = call else {
        return called(record, flags, Caller::Layer);
    };
    let as_module = called(&renamed, &settings, Caller::Module).map(|mut all| {
        // Parameters do not tell of a key of zeros.
        if settings.add_zero_attn.is_none() {
            let with_zero = |reading: &Reading| {
                let settings = Settings { add_zero_attn: Some(true), ..reading.settings.clone() };
                Reading { settings, ..reading.clone() }
            };
            all.extend(all.iter().map(with_zero).collect::<Vec<_>>());
        }
        for reading in &mut all {
            reading.matches.extend(matches.iter().cloned());
        }
        all
    });
    let as_core = called(record, flags, Caller::Layer);
    match (as_module, as_core) {
        (Ok(first), Ok(others)) if is_certain => Ok([first, others].concat()),
        (Ok(others), Ok(first)) => Ok([first, others].concat()),
        (Ok(only), Err(_)) => Ok(only),
        (Err(error), Err(_)) if is_certain => Err(error),
        (Err(_), other) => other,
    }
}

/// The ways to understand a file whose attention was called so. Where norms of each head were meant, and do not fit, those of
/// all heads together may.
fn called(record: &Record, flags: &Settings, caller: Caller) -> Result<Vec<Reading>> {
    called_as_stated(record, flags, caller).or_else(|error| {
        let all = NormOver::All;
        let over_all = Settings { qk_norm_over: Some(all), ..flags.clone() };
        if flags.qk_norm.is_none() || flags.qk_norm_over == Some(all) {
            return Err(error);
        }
        let readings = called_as_stated(record, &over_all, caller).unwrap_or_default();
        let mut readings: Vec<Reading> =
            readings.into_iter().filter(|reading| reading.run_as_it_is().is_ok()).collect();
        if readings.is_empty() {
            return Err(error);
        }
        for reading in &mut readings {
            let weight = reading.name_in_file(Name::WQNorm.as_str());
            if let Some(stated) = flags.qk_norm_over {
                let both = [stated, all].map(|over| over.to_string());
                let found = Contradiction::of("qk_norm_over", Name::QNorm, both, &weight);
                reading.contradictions.push(found);
            } else {
                let how = tr!("which is {numbers}", numbers = all);
                reading.matches.push(Match::as_it_is("qk_norm_over", weight).read(how));
            }
        }
        Ok(readings)
    })
}

/// The same under the norms that are stated.
fn called_as_stated(record: &Record, flags: &Settings, caller: Caller) -> Result<Vec<Reading>> {
    // Without a file of weights, the prefix picks a layer of this one, or nothing where it says which are its own.
    let own = record.config.as_ref().and_then(|config| config.weights.as_ref());
    let prefix = flags.prefix.clone().filter(|_| flags.weights.as_ref().or(own).is_some());
    let flags_beside = Settings { prefix, ..flags.clone() };
    if record.config.is_some() {
        return Ok(vec![stating_its_run(record.clone(), &flags_beside)?]);
    }
    let Inputs { record, matches, heads, unmatched, scales } = find_inputs(record.clone(), flags)?;
    let (settings, mut record, mut matches) = (flags_beside, record, matches);
    let dropout = dropout_of(&record)?;
    matches.extend(take_kept(&mut record, &settings, dropout)?);
    if settings.splits.is_some() {
        matches.extend(foreign::join_states(&mut record)?);
    }
    let evidence = Vec::new();
    let mut draft = Draft { record, settings, matches, unmatched, evidence, scales };
    if draft.settings.dtype.is_none() && is_of_f64(&draft.record)? {
        draft.settings.dtype = Some(config::DType::F64);
    }
    let stated = draft.settings.clone();
    let is_stated = |setting: &Setting| setting.is_set(&stated) || setting.is_left_out(&stated);
    let whole = draft.record.clone();
    draft.evidence = take_evidence(&mut draft.record, is_stated)?;
    draft.evidence.extend(dropped(&draft)?);
    draft.evidence.extend(alibi_left_out(&draft));
    draft.leave_unstated();
    bring_steps(&draft.record, &mut draft.settings);
    take_positions(&mut draft)?;
    let freqs = take_frequencies(&mut draft)?;
    let with_freqs = |mut all: Vec<Reading>| {
        for reading in &mut all {
            reading.freqs.clone_from(&freqs);
        }
        all
    };
    if starts_behind_inputs(&draft.record, &draft.settings) {
        let pages = find_pages(&whole)?;
        if !pages.is_empty() {
            return of_pages(&draft, pages);
        }
        let (matches, evidence) = take_selection(&mut draft.record, &mut draft.settings)?;
        draft.matches.extend(matches);
        draft.evidence.extend(evidence);
        draft.matches.extend(take_arguments(&mut draft.record, &mut draft.settings)?);
        let qkv = match draft.settings.q {
            Some(_) => Vec::new(),
            None => find_qkv(&draft.record, &draft.settings)?,
        };
        if draft.settings.q.is_some() || !qkv.is_empty() {
            let otherwise = laid_out_otherwise(&draft)?;
            return cores(draft, qkv).map(|all| with_freqs([all, otherwise].concat()));
        }
    }
    // What kernels go by of themselves, layers do not.
    let more = take_evidence(&mut draft.record, |_| true)?;
    draft.evidence.extend(more);
    draft.leave_unstated();
    if draft.settings.end.is_none() && ends_before_output(&draft.record, &draft.settings) {
        draft.settings.end = Some(End::Concat);
        draft.matches.extend(output_as_heads(&mut draft.record));
    }
    let settings = draft.settings.clone();
    draft.settings.heads = settings.heads.or(heads);
    let bias = take_bias(&mut draft.record, Caller::Layer);
    let mut all = with_freqs(under_each_mask(draft, caller)?);
    if let Some(bias) = bias {
        for reading in &mut all {
            let biased = with_its_bias(reading.clone(), &bias)?;
            if biased.run_as_it_is().is_ok() {
                *reading = biased;
            } else {
                reading.record.entries.push(bias.clone());
            }
        }
    }
    in_each_order(all, &settings)
}

/// The one way to understand a file that states its run: what it has beside the run's steps, arguments of functions and
/// their masks, says the same once more, or contradicts it.
fn stating_its_run(mut record: Record, flags: &Settings) -> Result<Reading> {
    let mut evidence = take_evidence(&mut record, |_| true)?;
    let positions = entry_of_positions(&record);
    if let Some(entry) = positions.map(|at| record.entries.remove(at)) {
        let told = positions_in(&entry.tensor)?.to_string();
        evidence.push(Evidence::of("positions", Name::QRot, &entry, told));
    }
    if let Some(config) = &record.config {
        let own = said_by_config(config, flags).into_iter();
        let own = own.filter(|own| evidence.iter().all(|found| found.key != own.key));
        evidence.extend(own.collect::<Vec<_>>());
    }
    let freqs = record.entries.iter().position(is_of_module);
    let freqs = freqs.map(|at| record.entries.remove(at));
    let mask = take_mask(&mut record, Caller::Core)?.into_iter().next();
    let contradictions = lacking(&mut record)?;
    let (settings, sources) = Sources::of_record(&record, flags)?;
    // What flags replace says what it did.
    let is_replaced = |name: Name| !sources.has(name) && !settings.name_file_of(name);
    let own = record.entries.iter().find(|entry| entry.name == Name::RopeFreqs.as_str());
    let freqs = freqs.or_else(|| own.filter(|_| is_replaced(Name::RopeFreqs)).cloned());
    let freqs = freqs.map(Tables::of_module);
    let mask = match mask {
        None if is_replaced(Name::Mask) => masks_beside(&record)?.into_iter().next(),
        taken => taken,
    };
    Ok(Reading {
        record,
        settings,
        sources,
        matches: Vec::new(),
        unmatched: Vec::new(),
        tokens_first: false,
        is_trivial: false,
        mask,
        evidence,
        freqs,
        bias: None,
        contradictions,
        is_tentative: false,
        rescaled: None,
        format: None,
    })
}

/// The readings of a file under each mask that it may mean, the likeliest first.
fn under_each_mask(mut draft: Draft, caller: Caller) -> Result<Vec<Reading>> {
    let mut masks = Vec::new();
    let mut beside_keys = None;
    if !states_keys(&draft.settings) {
        masks = take_mask(&mut draft.record, caller)?;
    } else if draft.settings.preset.is_none() {
        // What was stated of the keys holds, unless the file's mask says something else of them.
        beside_keys = take_mask(&mut draft.record, caller)?.into_iter().next();
    }
    let beside = match masks.first() {
        Some(_) => Vec::new(),
        None => masks_against(&draft.record, &draft.settings)?,
    };
    let chunked = masks.first().map_or(Ok(None), |mask| mask.with_chunks(draft.settings.chunk))?;
    let mut masks = masks.into_iter();
    let mut plain = draft.clone().reading(masks.next())?;
    if let Some(mask) = beside_keys {
        plain.unmatched.push(mask.left_out());
        plain.mask = Some(mask);
    }
    let mut all = vec![plain];
    for mask in masks.chain(beside) {
        all.push(draft.clone().reading(Some(mask))?);
    }
    if let Some(mask) = chunked {
        let mut reading = draft.reading(Some(mask))?;
        reading.settings.chunk = None;
        all.push(reading);
    }
    Ok(all)
}

/// Whether something states which keys are seen, beside the mask between positions.
fn states_keys(settings: &Settings) -> bool {
    settings.attn_mask.is_some()
        || settings.key_mask.is_some()
        || settings.lengths.is_some()
        || settings.preset.is_some()
}

/// Whether a file is of a run that starts behind its inputs: it is said so, or X or the weights are missing.
fn starts_behind_inputs(record: &Record, flags: &Settings) -> bool {
    let has = |name: Name| record.tensor(name.as_str()).is_some();
    match flags.start {
        Some(start) => start != Start::Inputs,
        None if flags.q.is_some() => true,
        None => {
            let has_x = flags.x.is_some() || has(Name::X);
            !has_x || !(flags.weights.is_some() || has(Name::WQ))
        }
    }
}

/// Whether a file lacks the output projection's weight.
fn ends_before_output(record: &Record, flags: &Settings) -> bool {
    let may_draw = flags.seed.is_some() || flags.preset.is_some();
    let is_output = |entry: &Entry| meanings(&entry.name) == [Name::Output];
    let has_weight = flags.weights.is_some() || record.tensor(Name::WO.as_str()).is_some();
    !(has_weight || may_draw && record.entries.iter().any(is_output))
}

/// Takes the output of a module without an output projection as the heads side by side.
fn output_as_heads(record: &mut Record) -> Option<Match> {
    if record.tensor(Name::Concat.as_str()).is_some() {
        return None;
    }
    let is_output = |entry: &&mut Entry| meanings(&entry.name) == [Name::Output];
    let entry = record.entries.iter_mut().find(is_output)?;
    let name = std::mem::replace(&mut entry.name, Name::Concat.to_string());
    let how = tr!("of a module that has no output projection");
    Some(Match::as_it_is(Name::Concat, name).read(how))
}
