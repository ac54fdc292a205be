//! The gradients that a file of other code holds: of which steps they are, under a reading of its forward pass.

use candle_core::Tensor;

use super::cells::cells;
use super::finding::Contradiction;
use super::reading::Reading;
use base::error::{Result, quoted};
use config::{End, OutputGradient, Settings, Start};
use file::{Entry, Record};
use foreign::{
    AxisOrder, Match, Unmatched, asked, find_inputs, gradient_of, last_segment, meanings,
    of_other_shape,
};
use program::{Name, Role, first_number};
use run::Sources;

/// A reading of a file with its gradients, which a backward pass is to give: one for each order in which the axes of the
/// output's gradient may stand. Where the file has none of the output, and no flag says which it is, the forward pass alone.
///
/// # Errors
/// If the file of the output's gradient cannot be read.
pub fn with_gradients(
    reading: Reading,
    gradients: &[Entry],
    forward: &[Entry],
    flags: &Settings,
) -> Result<Vec<Reading>> {
    let (of_end, others): (Vec<&Entry>, Vec<&Entry>) =
        gradients.iter().partition(|entry| is_of_end(entry, &reading.settings));
    let says_so = |entry: &&Entry| of_ones(&entry.tensor);
    let is_said = flags.d_output == Some(OutputGradient::Ones) && of_end.iter().all(says_so);
    let stated = flags.d_output.as_ref().filter(|_| !is_said);
    let in_file = stated_in_file(flags)?;
    let mut readings = Vec::new();
    let recorded = of_end.iter().map(|first| (Some(*first), false));
    let firsts: Vec<(Option<&Entry>, bool)> = match stated {
        // What a flag says of the output's gradient comes before what the file has.
        Some(_) => std::iter::once((in_file.as_ref(), true)).chain(recorded).collect(),
        None if of_end.is_empty() && flags.backward == Some(true) => vec![(None, true)],
        None => recorded.collect(),
    };
    for (first, is_stated) in firsts {
        let beside = gradients.iter().filter(|entry| is_of_end(entry, &reading.settings));
        let is_other = |entry: &&Entry| first.is_some_and(|first| first.name != entry.name);
        let beside = beside.filter(|entry| !is_stated && is_other(entry));
        let others = others.iter().copied().chain(beside);
        let differs = |entry: &Entry| in_file.as_ref().is_none_or(|own| !hold_the_same(own, entry));
        for mut own in under_each_order(&reading, first) {
            let named = named(others.clone(), &own, forward, flags);
            own.record.entries.extend(named);
            keep_what_gradients_show(&mut own)?;
            match (first, stated) {
                _ if is_stated => {
                    let why = tr!("--d-output says what it is");
                    let left = of_end.iter().filter(|entry| differs(entry));
                    own.unmatched.extend(left.map(|entry| Unmatched {
                        tensor: entry.name.clone(),
                        why: why.to_owned(),
                    }));
                }
                (Some(first), Some(stated)) if differs(first) => {
                    let step = own.settings.first_gradient().unwrap_or(Name::Output);
                    let stated = stated.to_string();
                    let found = Contradiction::of_numbers("d_output", step, stated, &first.name);
                    own.contradictions.push(found);
                }
                _ => {}
            }
            readings.push(own);
        }
    }
    if readings.is_empty() {
        readings.push(alone(reading, gradients, &of_end));
    }
    Ok(readings)
}

/// The gradient of the output in the file that a flag names.
fn stated_in_file(flags: &Settings) -> Result<Option<Entry>> {
    let Some(OutputGradient::File(place)) = &flags.d_output else { return Ok(None) };
    let d_output = flags.d_output.clone();
    let alone = Settings { d_output, backward: Some(true), ..Settings::default() };
    let sources = Sources::load(&alone)?;
    let tensor = alone.first_gradient().and_then(|first| sources.tensor(first));
    Ok(tensor.map(|tensor| Entry::of(place.0.as_str(), tensor.clone())))
}

/// Whether two tensors have the same numbers.
fn hold_the_same(left: &Entry, right: &Entry) -> bool {
    let all = |entry: &Entry| cells(&entry.tensor).ok();
    all(left).is_some_and(|own| all(right) == Some(own))
}

/// Whether all numbers are 1.
pub fn of_ones(tensor: &Tensor) -> bool {
    matches!(first_number(tensor, |cell| (cell - 1.0).abs() > 0.0), Ok(None))
}

/// The reading without a backward pass, with why there is none: that starts from the output's gradient.
fn alone(mut reading: Reading, gradients: &[Entry], of_end: &[&Entry]) -> Reading {
    let run = reading.clone().run().ok();
    let ends = reading.settings.end.unwrap_or(End::of(reading.settings.start.unwrap_or_default()));
    let end = run.as_ref().and_then(|run| run.program().step(ends.step()));
    for entry in gradients {
        let is_first = of_end.iter().any(|first| first.name == entry.name);
        let first = of_end.first().map(|first| quoted(&first.name));
        let why = match (first, end) {
            (Some(_), Some(end)) if is_first => of_other_shape(entry, &[end]),
            (Some(first), _) => tr!("{first}, the gradient of the output, does not fit it", first),
            (None, _) => tr!("the gradient of the output is missing; `d_output` says which it was")
                .to_owned(),
        };
        reading.unmatched.push(Unmatched { tensor: entry.name.clone(), why });
    }
    reading
}

/// Whether it may be the gradient of what the run ends at.
fn is_of_end(entry: &Entry, settings: &Settings) -> bool {
    let start = settings.start.unwrap_or_default();
    let end = settings.end.unwrap_or(End::of(start)).step();
    let means = meanings_of(entry);
    // Kernels call what they end at the output.
    means.contains(&end) || (end != Name::Output && means.first() == Some(&Name::Output))
}

/// The steps of which it may be the gradient.
fn meanings_of(entry: &Entry) -> Vec<Name> {
    let means = meanings(&format!("d_{}", gradient_of(&entry.name).unwrap_or_default()));
    let of = |name: Name| if let Name::Gradient(own) = name { own.step() } else { name };
    means.into_iter().map(of).collect()
}

/// The reading with a backward pass that starts from this gradient, in each order that its lengths allow.
fn under_each_order(reading: &Reading, first: Option<&Entry>) -> Vec<Reading> {
    let mut own = reading.clone();
    own.settings.backward = Some(true);
    let Some(first) = first else { return Some(own).filter(runs).into_iter().collect() };
    own.settings.d_output = Some(OutputGradient::Ones);
    if own.settings.start != Some(Start::Heads) || own.settings.end != Some(End::Concat) {
        return in_each_order(&own, first);
    }
    // The gradient of heads that are not side by side tells that the run ends at them.
    let ends: &[End] =
        if first.tensor.rank() == 4 { &[End::Heads] } else { &[End::Concat, End::Heads] };
    let ending = |end: &End| {
        let mut own = own.clone();
        own.settings.end = Some(*end);
        in_each_order(&own, first)
    };
    ends.iter().map(ending).find(|readings| !readings.is_empty()).unwrap_or_default()
}

/// Where dropout's mask was taken from dropped weights, what the mask of the scores blocks is 0 whether it was kept or not: the
/// gradient of the weights shows which it was.
fn keep_what_gradients_show(own: &mut Reading) -> Result<()> {
    let is_it = |taken: &Match| {
        taken.step == Name::DropoutKeep.as_str()
            && asked(&taken.tensor).first() == Some(&Name::WeightsDropped)
    };
    let shown = own.record.tensor(Name::Weights.gradient().as_str()).cloned();
    let Some(shown) = shown.filter(|_| own.matches.iter().any(is_it)) else { return Ok(()) };
    let Ok(trace) = own.clone().run().and_then(|run| run.trace()) else { return Ok(()) };
    let value = |name: Name| trace.step(name).map(|step| &step.value);
    let (Some(weights), Some(keep)) = (value(Name::Weights), value(Name::DropoutKeep)) else {
        return Ok(());
    };
    if shown.dims() == keep.dims() && weights.dims() == keep.dims() {
        let shown = (weights.eq(0.0)? * shown.ne(0.0)?)?;
        let keep = keep.to_dtype(shown.dtype())?.maximum(&shown)?;
        own.sources.keep(Name::DropoutKeep, keep);
    }
    Ok(())
}

/// The same where it is known at what the run ends.
fn in_each_order(own: &Reading, first: &Entry) -> Vec<Reading> {
    let axes = own.clone().run().ok().and_then(|run| {
        let name = own.settings.first_gradient()?;
        run.program().step(name).map(|step| (name, step.axes.clone()))
    });
    let Some((name, axes)) = axes else { return Vec::new() };
    let orders = AxisOrder::all(&axes, first.tensor.dims()).into_iter();
    let with = |order: AxisOrder| -> Result<Reading> {
        let mut own = own.clone();
        let tensor = order.apply(&first.tensor)?;
        own.sources.keep(name, tensor.clone());
        own.record.entries.push(Entry::of(name.as_str(), tensor));
        let taken = Match::as_it_is(name.as_str(), &first.name);
        own.matches.push(if order.is_plain() {
            taken
        } else {
            taken.read(tr!("axes {order}", order))
        });
        Ok(own)
    };
    orders.filter_map(|order| with(order).ok()).collect()
}

/// Whether a run can be made of it.
fn runs(reading: &Reading) -> bool {
    reading.clone().run().is_ok()
}

/// Whether a tensor may be a parameter of a layer, by its name.
fn is_of_layer(entry: &Entry) -> bool {
    matches!(last_segment(&entry.name).rsplit(['_', '.']).next(), Some("weight" | "bias"))
}

/// The gradients under the names that those of steps have; those of parameters are packed and laid out as these are. Where the
/// run starts behind its inputs, a gradient is that of the tensor of its name as it was given, which has not been turned.
fn named<'e>(
    gradients: impl Iterator<Item = &'e Entry>,
    reading: &Reading,
    forward: &[Entry],
    flags: &Settings,
) -> Vec<Entry> {
    let start = reading.settings.start.unwrap_or_default();
    let run = reading.clone().run().ok();
    let shape = |name: Name| Some(run.as_ref()?.program().step(name)?.axes.shape());
    let count = |name: Name| Some(shape(name)?.iter().product::<usize>());
    let read_by_softmax = run.as_ref().and_then(|run| {
        let weights = run.program().step(Name::Weights)?;
        Some(run.program().read_by(weights).first()?.name)
    });
    let (mut all, mut parameters) = (Vec::new(), Vec::new());
    for entry in gradients {
        let Some(own) = gradient_of(&entry.name) else {
            all.push(entry.clone().renamed(Name::Delta.as_str()));
            continue;
        };
        let last = last_segment(&own);
        let means = meanings_of(entry);
        let is_step = Name::in_files(last).is_some() || !means.is_empty();
        // Kernels add up the gradients of a shared key head's copies themselves, or leave that to their callers.
        let given = start.given().iter().chain(&[Name::KRepeated, Name::VRepeated]);
        let given: Vec<Name> = given.copied().filter(|given| means.contains(given)).collect();
        let is_as_large = |name: &&Name| count(**name) == Some(entry.tensor.elem_count());
        let given = given.iter().find(is_as_large).or(given.first());
        // Where nothing is masked, that of masked scores is that of scores at some stage.
        let is_masked = means.first() == Some(&Name::MaskedScores);
        let is_unmasked = is_masked && count(Name::MaskedScores).is_none();
        // A mask of floats is added to the scores, whose gradient it has where it has their shape.
        let is_mask = asked(last).first() == Some(&Name::Mask)
            && count(Name::Scores) == Some(entry.tensor.elem_count());
        // By its own name it is that of what softmax reads.
        let is_own = Name::named(last) == Some(Name::MaskedScores);
        let of_softmax = read_by_softmax.filter(|_| is_unmasked && is_own);
        // What a module is called with has the names of projected tensors.
        let of_input = reading.matches.iter().find(|taken| taken.tensor == own).and_then(|taken| {
            let inputs = [Name::X, Name::Memory, Name::MemoryV];
            inputs.into_iter().find(|input| input.as_str() == taken.step)
        });
        let name = match of_input.or(given.copied().filter(|_| start != Start::Inputs)) {
            Some(given) => given.gradient().to_string(),
            None if let Some(read) = of_softmax => read.gradient().to_string(),
            None if is_unmasked || is_mask => "d_logits".to_owned(),
            None if is_step => format!("d_{}", last.to_ascii_lowercase()),
            None => own.clone(),
        };
        let mut entry = entry.clone().renamed(name);
        // Axes of one place say nothing: PyTorch's `bias_k` is (1, 1, width).
        let step = Name::in_files(last).or(means.first().copied());
        let is_flat =
            |own: &Vec<usize>| own.len() == 1 && entry.tensor.dims().last() == own.first();
        let flat = step.and_then(shape).filter(is_flat);
        if let Some(flat) = flat.and_then(|shape| entry.tensor.reshape(shape).ok()) {
            entry.tensor = flat;
        }
        if is_step || is_mask { all.push(entry) } else { parameters.push(entry) }
    }
    let parameter =
        |entry: &Entry| Name::named(&entry.name).filter(|name| name.role() == Role::Parameter);
    let read = |entries: &[Entry]| {
        let record = Record { config: None, entries: entries.to_vec() };
        // The parameters may stand in another file, under other paths.
        let own = Settings { weights: None, prefix: None, ..flags.clone() };
        let found = find_inputs(record, &own).map(|inputs| {
            let is_filled = |entry: &Entry| {
                inputs.matches.iter().any(|taken| taken.filled && taken.step == entry.name)
            };
            let entries = inputs.record.entries.iter();
            entries.filter(|entry| !is_filled(entry)).cloned().collect::<Vec<_>>()
        });
        found.ok().filter(|all| all.iter().all(|entry| parameter(entry).is_some()))
    };
    // Where some have no gradient, the parameters themselves stand in for those, to tell the layout.
    let beside = || {
        let all: Vec<Entry> = forward.iter().filter(|own| is_of_layer(own)).cloned().collect();
        let is_new = |own: &&Entry| parameters.iter().all(|entry| entry.name != own.name);
        let mut found = read(
            &[&parameters[..], &all.iter().filter(is_new).cloned().collect::<Vec<_>>()].concat(),
        )?;
        found.retain(|entry| {
            let own = parameter(entry).and_then(|name| reading.sources.tensor(name));
            own.is_none_or(|own| {
                !hold_the_same(&Entry::of(entry.name.as_str(), own.clone()), entry)
            })
        });
        Some(found)
    };
    let found = read(&parameters).or_else(beside);
    for mut entry in found.unwrap_or(parameters.clone()) {
        // Norms of all heads have an axis of these here.
        let by_head = parameter(&entry).and_then(shape);
        let by_head = by_head.filter(|shape| shape.len() > entry.tensor.rank());
        if let Some(split) = by_head.and_then(|shape| entry.tensor.reshape(shape).ok()) {
            entry.tensor = split;
        }
        let name = match parameter(&entry) {
            Some(step) => step.gradient().to_string(),
            None => format!("{}.grad", entry.name),
        };
        all.push(entry.renamed(name));
    }
    all
}
