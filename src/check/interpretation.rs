//! What a recorded file may mean: its settings and given tensors, as it says them itself or as other code wrote them.

use candle_core::Tensor;

use super::brought::{
    bring_steps, has_nan, leaves_rows_empty, masks_beside, replaces_mask, take_positions,
};
use super::cores::cores;
use super::module::ModuleCall;
use base::error::{Error, Result};
use config::{EmptyRow, End, Fill, Mask, Settings, Start};
use file::{Entry, Record};
use foreign::{
    self, Caller, FoundMask, Inputs, Match, Unmatched, find_inputs, find_qkv, meanings,
    take_arguments, take_mask,
};
use program::{Name, Role};
use run::{Run, Sources};

/// A way to understand a file.
#[derive(Clone)]
pub struct Interpretation {
    /// The file, its given tensors under our names.
    pub record: Record,
    /// The settings of its run.
    pub settings: Settings,
    /// What its run is given.
    pub sources: Sources,
    /// What was taken as what so far.
    pub matches: Vec<Match>,
    /// What was left out so far.
    pub unmatched: Vec<Unmatched>,
    /// Whether X was turned from (`seq_len`, batch, `d_in`).
    pub tokens_first: bool,
    /// Whether every item of X has one token here, and nothing says so: attention does nothing then, and whatever it lacks
    /// seems right.
    pub is_trivial: bool,
    /// Whether the file brings a mask under the name of an argument.
    pub brings_mask: bool,
}

/// The ways to understand a file, the plain one first. One of ours says what it means; `flags` override it. Of another
/// they say what was meant, and what they leave open is taken from the tensors. X of such a file may be (`seq_len`,
/// batch, `d_in`), as `nn.MultiheadAttention` has it without `batch_first`.
///
/// # Errors
/// If the flags name a file that cannot be read, X or a weight is missing, or a layer must be picked.
pub fn interpretations(record: &Record, flags: &Settings) -> Result<Vec<Interpretation>> {
    let call = if record.config.is_none() { ModuleCall::of(record, flags)? } else { None };
    let Some(ModuleCall { record: renamed, settings, matches, is_certain }) = call else {
        return readings(record, flags, Caller::Layer);
    };
    let as_module = readings(&renamed, &settings, Caller::Module).map(|mut all| {
        // Parameters do not tell of a key of zeros.
        if settings.add_zero_attn.is_none() {
            let with_zero = |way: &Interpretation| {
                let settings = Settings { add_zero_attn: Some(true), ..way.settings.clone() };
                Interpretation { settings, ..way.clone() }
            };
            all.extend(all.iter().map(with_zero).collect::<Vec<_>>());
        }
        for way in &mut all {
            way.matches.extend(matches.iter().cloned());
        }
        all
    });
    let as_core = readings(record, flags, Caller::Layer);
    match (as_module, as_core) {
        (Ok(first), Ok(others)) if is_certain => Ok([first, others].concat()),
        (Ok(others), Ok(first)) => Ok([first, others].concat()),
        (Ok(only), Err(_)) => Ok(only),
        (Err(error), Err(_)) if is_certain => Err(error),
        (Err(_), other) => other,
    }
}

/// The ways to understand a file whose attention was called so.
fn readings(record: &Record, flags: &Settings, caller: Caller) -> Result<Vec<Interpretation>> {
    // Without a file of weights, the prefix picks a layer of this one, or nothing where it says which are its own.
    let own = record.config.as_ref().and_then(|config| config.weights.as_ref());
    let prefix = flags.prefix.clone().filter(|_| flags.weights.as_ref().or(own).is_some());
    let others = Settings { prefix, ..flags.clone() };
    if record.config.is_some() {
        let (settings, sources) = Sources::of_record(record, &others)?;
        let record = record.clone();
        return Ok(vec![Interpretation {
            record,
            settings,
            sources,
            matches: Vec::new(),
            unmatched: Vec::new(),
            tokens_first: false,
            is_trivial: false,
            brings_mask: false,
        }]);
    }
    let Inputs { mut record, mut matches, heads, unmatched } = find_inputs(record.clone(), flags)?;
    let mut settings = others;
    bring_steps(&record, &mut settings);
    let mut unmatched = unmatched;
    unmatched.extend(take_positions(&mut record, &mut settings, &mut matches)?);
    let is_core = starts_behind_inputs(&record, &settings);
    if is_core {
        matches.extend(take_arguments(&mut record, &mut settings)?);
        let qkv = match settings.q {
            Some(_) => Vec::new(),
            None => find_qkv(&record, &settings)?,
        };
        if settings.q.is_some() || !qkv.is_empty() {
            return cores(&record, &settings, &(matches, unmatched), qkv);
        }
    }
    if settings.end.is_none() && ends_before_output(&record, &settings) {
        settings.end = Some(End::Concat);
    }
    let masks = if states_keys(&settings) { Vec::new() } else { take_mask(&mut record, caller)? };
    let beside = if masks.is_empty() && replaces_mask(&record, &settings) {
        masks_beside(&record)?
    } else {
        Vec::new()
    };
    if !beside.is_empty() {
        let why = tr!("the settings say which keys are seen, and it fits no better");
        unmatched.push(Unmatched { tensor: Name::Mask.to_string(), why: why.to_owned() });
    }
    let with = |mask: Option<FoundMask>, unmatched: &[Unmatched]| {
        let seen = (matches.clone(), unmatched.to_vec());
        let mut way = Interpretation::of(record.clone(), &settings, seen, mask)?;
        way.settings.heads = way.settings.heads.or(heads);
        Ok(way)
    };
    let chunked = masks.first().map_or(Ok(None), |mask| mask.with_chunks(settings.chunk))?;
    let mut masks = masks.into_iter();
    let mut plain = with(masks.next(), &unmatched)?;
    let own: Vec<Unmatched> =
        unmatched.iter().filter(|tensor| tensor.tensor != Name::Mask.as_str()).cloned().collect();
    let others = masks.chain(beside).map(|mask| with(Some(mask), &own));
    let mut others: Vec<Interpretation> = others.collect::<Result<_>>()?;
    if let Some(mask) = chunked {
        let mut way = with(Some(mask), &own)?;
        way.settings.chunk = None;
        others.push(way);
    }
    let (record, x) = (&plain.record, plain.sources.tensor(Name::X));
    let says_so = settings.seq_len.is_some()
        || settings.batch.is_some()
        || settings.past.is_some()
        || settings.lengths.as_ref().is_some_and(|lengths| is_long(x, 0, lengths.len()))
        || is_of_one_token(record, x)
        || [Name::Memory, Name::KPast].iter().any(|name| plain.sources.has(*name));
    let may_turn = says_so || !is_long(x, 0, 1);
    let is_trivial = is_long(x, 1, 1) && may_turn && !says_so;
    if plain.sources.tensor(Name::Mask).is_some() {
        let how = tr!("true means blocked; given as attn_mask, it means attend");
        plain.matches.push(Match::as_it_is("mask", "mask").read(how));
    }
    let mut turned = Vec::new();
    for way in std::iter::once(&plain).chain(&others).filter(|_| may_turn) {
        let Some((sources, seen)) = way.sources.with_tokens_first()? else { continue };
        let mut way =
            Interpretation { sources, tokens_first: true, is_trivial: false, ..way.clone() };
        way.matches.push(seen);
        turned.push(way);
    }
    plain.is_trivial = is_trivial && !turned.is_empty();
    let mut all: Vec<Interpretation> = std::iter::once(plain).chain(others).chain(turned).collect();
    all.sort_by_key(|way| way.is_trivial);
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

/// Whether a file has neither the output projection's weight nor its result.
fn ends_before_output(record: &Record, flags: &Settings) -> bool {
    let is_output = |entry: &Entry| meanings(&entry.name) == [Name::Output];
    let has_weight = flags.weights.is_some() || record.tensor(Name::WO.as_str()).is_some();
    !has_weight && !record.entries.iter().any(is_output)
}

/// What was taken as what, and what was left out, so far.
pub type Seen = (Vec<Match>, Vec<Unmatched>);

/// The recorded scores and weights of any step, a number for every query and key, of every head and item or of all as one.
pub fn of_cells(record: &Record) -> impl Iterator<Item = &Entry> {
    let is_of_cells = |name: Name| {
        let row = name.row();
        row.role == Role::Computed && row.is_of_scores()
    };
    record.entries.iter().filter(move |entry| {
        let own = Name::in_files(&entry.name);
        let mut names = own.into_iter().chain(meanings(&entry.name));
        matches!(entry.tensor.rank(), 3 | 4) && names.any(is_of_cells)
    })
}

/// Whether recorded scores or weights show that X has one token for each item.
fn is_of_one_token(record: &Record, x: Option<&Tensor>) -> bool {
    let Some([1, tokens, _] | [tokens, 1, _]) = x.map(Tensor::dims) else { return false };
    let is_square = |dims: &[usize]| dims.iter().filter(|size| *size == tokens).count() >= 2;
    let is_split = |entry: &Entry| {
        let (dims, meanings) = (entry.tensor.dims(), meanings(&entry.name));
        // Heads and items as two axes or as one, which is longer than that of the items, and then the token.
        let has_one_token = match dims {
            [_, _, 1, _] => true,
            [both, 1, _] => both > tokens,
            _ => false,
        };
        has_one_token && *tokens > 1 && meanings.iter().any(|name| name.row().is_of_heads())
    };
    of_cells(record).any(|entry| !is_square(entry.tensor.dims()))
        || record.entries.iter().any(is_split)
}

/// Whether a tensor is there, and that axis of it has so many places.
fn is_long(tensor: Option<&Tensor>, axis: usize, length: usize) -> bool {
    tensor.is_some_and(|tensor| tensor.dims().get(axis) == Some(&length))
}

impl Interpretation {
    /// A file that is understood so far, with what its other tensors tell of its run.
    ///
    /// # Errors
    /// If the tensors contradict the settings, or candle fails.
    pub fn of(
        record: Record,
        settings: &Settings,
        (mut matches, unmatched): Seen,
        mask: Option<FoundMask>,
    ) -> Result<Self> {
        let (mut settings, mut sources) = Sources::of_record(&record, settings)?;
        matches.extend(sources.matches().iter().cloned());
        if settings.mask_fill.is_none()
            && let Some((fill, tensor)) = foreign::mask_fill(&record)
        {
            settings.mask_fill = Some(Fill(fill));
            // Kernels fill with −∞ anyway.
            if fill.is_finite() || settings.start.unwrap_or_default() == Start::Inputs {
                let how = tr!("whose lowest is {fill}", fill = format!("{fill:e}"));
                matches.push(Match::as_it_is("mask_fill", tensor).read(how));
            }
        }
        let brings_mask = mask.is_some();
        if let Some(FoundMask { name, mask, how }) = mask {
            matches.push(Match::as_it_is("attn_mask", &name).read(how));
            let says_else = settings.mask_fill.is_some() || settings.empty_rows.is_some();
            if !says_else && leaves_rows_empty(&mask)? && !has_nan(&record)? {
                settings.mask_fill = Some(Fill(f64::NEG_INFINITY));
                settings.empty_rows = Some(EmptyRow::Zero);
                let how =
                    tr!("a query that sees no key gets zeros, as of scaled_dot_product_attention");
                matches.push(Match::as_it_is("empty_rows", &name).read(how));
            }
            sources = sources.with_mask(mask);
            settings.attn_mask = Some(name.into());
        }
        Ok(Self {
            record,
            settings,
            sources,
            matches,
            unmatched,
            tokens_first: false,
            is_trivial: false,
            brings_mask,
        })
    }

    /// The run, not yet started.
    ///
    /// # Errors
    /// If the settings contradict the tensors, or nothing tells the number of heads.
    pub fn run(&mut self) -> Result<Run> {
        let settings = self.decided()?;
        let run = Run::new(&settings, self.sources.clone())?;
        if !self.brings_mask || !run.covers_positions()? {
            return Ok(run);
        }
        let how = tr!("it blocks what the masks between positions do: it is the whole mask");
        self.matches.push(Match::as_it_is("mask", "attn_mask").read(how));
        let mask = Some(Mask::None);
        let whole = Settings { mask, causal_align: None, window: None, chunk: None, ..settings };
        Run::new(&whole, self.sources.clone())
    }

    /// The settings, with the number of heads that the tensors tell where nothing states it.
    fn decided(&self) -> Result<Settings> {
        let settings = self.settings.clone();
        let stated = settings.heads.is_some() || settings.preset.is_some();
        let is_told = self.sources.heads().is_some() || self.sources.start().is_some();
        if stated || self.record.config.is_some() || is_told {
            return Ok(settings);
        }
        let dims = |name: Name| self.sources.tensor(name).map(Tensor::dims).unwrap_or_default();
        let (&[batch, tokens, ..], &[width, ..]) = (dims(Name::X), dims(Name::WQ)) else {
            return Ok(settings);
        };
        let by_size = |size: &usize| width.checked_div(*size).filter(|heads| heads * size == width);
        let of_norm = dims(Name::WQNorm).last().and_then(by_size);
        let queries = match settings.queries {
            Some(queries) => queries.of(tokens)?.count,
            None => tokens,
        };
        let own = dims(Name::Memory).get(1).copied().unwrap_or(tokens);
        let added = [settings.add_bias_kv, settings.add_zero_attn]
            .map(|is_set| usize::from(is_set == Some(true)));
        let bias = usize::from(settings.add_bias_kv.is_none() && self.sources.has(Name::BiasK));
        let past = dims(Name::KPast).get(2).copied().unwrap_or(0);
        let keys = own.saturating_add(past).saturating_add(added.iter().sum::<usize>() + bias);
        let told = || foreign::heads(&self.record, [batch, queries, keys], width);
        let stated = settings.head_dim.as_ref().and_then(by_size);
        let heads = stated.or(of_norm).or_else(told).ok_or_else(|| {
            let what =
                tr!("no tensor tells how many heads the {width} features are split into", width);
            Error::config(what, "pass `heads=N`")
        })?;
        Ok(Settings { heads: Some(heads), ..settings })
    }
}
