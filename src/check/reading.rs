//! What is one way to understand a recorded file? Its settings and given tensors, as it says them itself or as other code
//! wrote them.

use candle_core::Tensor;

use super::finding::Contradiction;
use super::found_masks::{has_nan, leaves_rows_empty, replaces_mask};
use base::error::{Error, Result};
use config::{EmptyRow, Fill, Mask, NormOver, Place, QkvFormat, Setting, Settings, Start};
use file::{Entry, Record};
use foreign::{self, Evidence, FoundMask, Match, Tables, Unmatched, WeightScales, meanings};
use program::{Name, Role};
use run::{Run, Sources};

/// The settings that say which keys are padding.
pub const OF_KEYS: &[&str] = &["key_mask", "lengths"];

/// The settings that say which keys a query sees by its position.
pub const OF_PAIRS: &[&str] =
    &["mask", "causal_align", "window", "chunk", "segments", "key_segments", "selected"];

/// What is understood of a file so far.
#[derive(Clone)]
pub struct Draft {
    /// The file, its given tensors under our names.
    pub record: Record,
    /// The settings of its run.
    pub settings: Settings,
    /// What was taken as what.
    pub matches: Vec<Match>,
    /// What was left out.
    pub unmatched: Vec<Unmatched>,
    /// What the file says of settings that are stated.
    pub evidence: Vec<Evidence>,
    /// What its weights in few bits were multiplied by.
    pub scales: WeightScales,
}

/// A way to understand a file.
#[derive(Clone)]
pub struct Reading {
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
    /// In which order the axes of queries, keys and values stand in it, if it has such as heads.
    pub format: Option<QkvFormat>,
    /// Whether every item of X has one token here, and nothing says so: attention does nothing then, and whatever it lacks
    /// seems right.
    pub is_trivial: bool,
    /// The mask that the file brings.
    pub mask: Option<FoundMask>,
    /// What the file says of settings that are stated.
    pub evidence: Vec<Evidence>,
    /// The frequencies that the file says a module had.
    pub freqs: Option<Tables>,
    /// The biases of scores that the file has, where others are stated.
    pub bias: Option<Entry>,
    /// Where this reading goes by what was recorded, and not by what was stated.
    pub contradictions: Vec<Contradiction>,
    /// Whether it is meant only if nothing is wrong in it.
    pub is_tentative: bool,
    /// Which weights stand here times another power of their scales.
    pub rescaled: Option<(Vec<Name>, f64)>,
}

impl Draft {
    /// Says of what the file tells of settings that nothing states it, where that is so.
    pub fn leave_unstated(&mut self) {
        for Evidence { key, tensor, .. } in &self.evidence {
            let is_stated =
                Setting::named(key).is_some_and(|setting| setting.is_set(&self.settings));
            if is_stated || self.unmatched.iter().any(|left| left.tensor == *tensor) {
                continue;
            }
            let why = tr!("nothing states {key}, and the numbers fit without it", key).to_owned();
            self.unmatched.push(Unmatched { tensor: tensor.clone(), why });
        }
    }

    /// Leaves out the scales and zero points of numbers in few bits that there are none of, and offsets that nothing has.
    ///
    /// # Errors
    /// If candle fails.
    pub fn leave_scales(&mut self) -> Result<()> {
        let is_one = |entry: &mut Entry| {
            let of = Name::FEW_BITS.map(|[_, own, scale, zero, _]| [own, scale, zero]);
            let mut names = of.iter().flatten();
            Name::in_files(&entry.name).is_some_and(|own| names.any(|name| *name == own))
        };
        let left = self.record.entries.extract_if(.., is_one).map(|entry| Unmatched {
            tensor: entry.name,
            why: tr!("its axes are none of those of numbers in few bits here").to_owned(),
        });
        self.unmatched.extend(left);
        for at in (0..self.record.entries.len()).rev() {
            if let Some(why) = foreign::not_added(&self.record.entries[at])? {
                let (tensor, why) = (self.record.entries.remove(at).name, why.to_owned());
                self.unmatched.push(Unmatched { tensor, why });
            }
        }
        Ok(())
    }

    /// The same with what the file's other tensors tell of its run.
    ///
    /// # Errors
    /// If the tensors contradict the settings, or candle fails.
    pub fn reading(self, mask: Option<FoundMask>) -> Result<Reading> {
        let Self { record, settings, mut matches, mut unmatched, evidence, scales } = self;
        if mask.is_none() && replaces_mask(&record, &settings) {
            let why = tr!("the settings say which keys are seen, and it fits no better");
            let (tensor, why) = (Name::Mask.to_string(), why.to_owned());
            unmatched.push(Unmatched { tensor, why });
        }
        let (mut settings, mut sources) = Sources::of_record(&record, &settings)?;
        if !scales.factors.is_empty() {
            sources.scales = scales;
        }
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
        if settings.rope.is_some() && settings.rope_freqs.is_none() && sources.has(Name::RopeFreqs)
        {
            let freqs = Name::RopeFreqs.as_str();
            let own = matches.iter().rev().find(|taken| taken.step == freqs);
            settings.rope_freqs = Some(own.map_or(freqs, |taken| taken.tensor.as_str()).into());
        }
        let found = mask.clone();
        let mut against = None;
        if let Some(FoundMask { name, mask, how, also, aside, against: own }) = mask {
            matches.push(Match::as_it_is("attn_mask", &name).read(how));
            matches.extend(also.iter().cloned());
            let why = tr!("it blocks no more than what is applied, or no run of this size has it");
            let left = |tensor| Unmatched { tensor, why: why.to_owned() };
            unmatched.extend(aside.into_iter().filter(|_| own.is_none()).map(left));
            against = own;
            let says_else = settings.mask_fill.is_some() || settings.empty_rows.is_some();
            if !says_else && leaves_rows_empty(&mask)? && !has_nan(&record)? {
                settings.mask_fill = Some(Fill(f64::NEG_INFINITY));
                settings.empty_rows = Some(EmptyRow::Zero);
                let how =
                    tr!("a query that sees no key gets zeros, as of scaled_dot_product_attention");
                matches.push(Match::as_it_is("empty_rows", &name).read(how));
            }
            // The run has that one as a step, unless something says otherwise.
            if name == Name::Mask.as_str() {
                sources = sources.without_mask();
            }
            sources = sources.with_mask(mask);
            settings.attn_mask = Some(name.into());
        }
        let (tokens_first, is_trivial) = (false, false);
        let mut reading = Reading {
            record,
            settings,
            sources,
            matches,
            unmatched,
            tokens_first,
            is_trivial,
            mask: found,
            evidence,
            freqs: None,
            bias: None,
            contradictions: Vec::new(),
            is_tentative: false,
            rescaled: None,
            format: None,
        };
        if let Some((against, meant)) = against
            && reading.run_as_it_is().is_ok_and(|run| run.blocked_by(&meant).is_ok())
        {
            reading.contradictions.push(against);
            reading.is_tentative = true;
        }
        Ok(reading)
    }
}

impl Reading {
    /// Whether what was recorded of that setting is told already, as this goes by it.
    pub fn is_told(&self, setting: &str) -> bool {
        self.contradictions.iter().any(|told| told.setting == setting)
    }

    /// Whether it supposes a mistake: it is meant only if nothing else gives the numbers.
    pub fn supposes_a_mistake(&self) -> bool {
        self.is_tentative && !self.contradictions.is_empty()
    }

    /// Whether the file brings a mask under the name of an argument, which is in the run.
    pub fn brings_mask(&self) -> bool {
        self.mask.is_some() && self.settings.attn_mask.is_some() && !self.states_mask()
    }

    /// Whether the mask is stated by another file than the one that is read.
    pub fn states_mask(&self) -> bool {
        let own = self.mask.as_ref().map(|mask| mask.name.as_str());
        self.settings.attn_mask.as_ref().is_some_and(|Place(stated)| own != Some(stated))
    }

    /// The same with biases that the file has of the scores.
    #[must_use]
    pub fn with_bias(mut self, bias: &Entry) -> Self {
        let how = tr!("added to the scores");
        self.matches.push(Match::as_it_is("attn_bias", &bias.name).read(how));
        self.sources = self.sources.replaced(Name::GivenBias, bias.tensor.clone());
        self.settings.attn_bias = Some(bias.name.as_str().into());
        self
    }

    /// The same without the mask that the file brings.
    #[must_use]
    pub fn without_mask(self) -> Self {
        let settings = Settings { attn_mask: None, attn_mask_true: None, ..self.settings };
        let matches = self.matches.into_iter().filter(|taken| taken.step != "attn_mask").collect();
        let sources = self.sources.without_mask();
        Self { settings, sources, matches, ..self }
    }

    /// The same with the mask that the file brings as all that says which keys are seen; one of keys alone says nothing of
    /// positions.
    #[must_use]
    pub fn under_its_mask(self, is_of_keys: bool) -> Self {
        let Some(FoundMask { name, mask, how, also, .. }) = self.mask.clone() else { return self };
        let mut whole = self.without_mask();
        whole.unmatched.retain(|tensor| tensor.tensor != name);
        whole.matches.retain(|taken| taken.step != Name::Mask.as_str());
        whole.matches.push(Match::as_it_is("mask", &name).read(how));
        whole.matches.extend(also);
        whole.sources = whole.sources.with_mask(mask);
        let settings = &mut whole.settings;
        let of_pairs = if is_of_keys { &[][..] } else { OF_PAIRS };
        for setting in OF_KEYS.iter().chain(of_pairs).filter_map(|key| Setting::named(key)) {
            setting.clear(settings);
        }
        settings.attn_mask = Some(name.into());
        if !is_of_keys {
            settings.mask = Some(Mask::Recorded);
        }
        whole
    }

    /// The run of these settings as they are.
    ///
    /// # Errors
    /// If the settings contradict the tensors, or nothing tells the number of heads.
    pub fn run_as_it_is(&self) -> Result<Run> {
        Run::new(&self.decided()?, self.given()?)
    }

    /// What the run is given.
    fn given(&self) -> Result<Sources> {
        match &self.rescaled {
            Some((weights, power)) => self.sources.rescaled(weights, *power),
            None => Ok(self.sources.clone()),
        }
    }

    /// The run, not yet started.
    ///
    /// # Errors
    /// If the settings contradict the tensors, or nothing tells the number of heads.
    pub fn run(&mut self) -> Result<Run> {
        let settings = self.decided()?;
        let run = Run::new(&settings, self.given()?)?;
        // As what models of transformers hand to their layers is.
        let by_position = [Name::CausalMask, Name::WindowMask, Name::ChunkMask];
        if !self.brings_mask() || !run.file_covers(&by_position)? {
            return Ok(run);
        }
        let how = tr!("it blocks what the masks between positions do: it is the whole mask");
        self.matches.push(Match::as_it_is("mask", "attn_mask").read(how));
        let mask = Some(Mask::None);
        let mut whole =
            Settings { mask, causal_align: None, window: None, chunk: None, ..settings };
        if run.file_covers(&[Name::KeyMask, Name::LengthMask])? {
            (whole.key_mask, whole.lengths) = (None, None);
        }
        Run::new(&whole, self.given()?)
    }

    /// What the tensors say of settings that are stated otherwise: by their shapes, or as they are there or not.
    pub fn said_by_tensors(&self) -> Vec<Evidence> {
        let sizes = self.sources.other_sizes(&self.settings).unwrap_or_default().into_iter();
        let sizes = sizes
            .map(|size| Evidence::of_tensor(size.key, size.tensor, Some(size.found.to_string())));
        let run = self.run_as_it_is().ok();
        let reads = |name| run.as_ref().is_none_or(|run| run.program().step(name).is_some());
        let brought = self.sources.others_brought(&self.settings, reads).into_iter();
        let brought = brought.map(|(key, text, name)| Evidence::of_tensor(key, name, text));
        let all = sizes.chain(brought).chain(self.said_by_heads()).chain(self.said_by_norm());
        all.map(|said| Evidence { tensor: self.name_in_file(&said.tensor), ..said }).collect()
    }

    /// What the weight of the queries' norm says of what that norm is over: one of all heads has an axis for them.
    fn said_by_norm(&self) -> Option<Evidence> {
        let rank = self.sources.tensor(Name::WQNorm)?.rank();
        let over = if rank == 1 { NormOver::Head } else { NormOver::All };
        let said = Evidence::of_tensor("qk_norm_over", Name::WQNorm, Some(over.to_string()));
        let or = Some(NormOver::PerHead.to_string()).filter(|_| rank > 1);
        let stated = self.settings.qk_norm_over.unwrap_or_default();
        let fits = (rank == 1) == (stated == NormOver::Head);
        Some(Evidence { or, ..said }).filter(|_| self.settings.qk_norm.is_some() && !fits)
    }

    /// What the file calls the tensor that was taken as this one.
    pub fn name_in_file(&self, name: &str) -> String {
        let taken = self.matches.iter().find(|taken| taken.step == name);
        taken.map_or(name, |taken| &taken.tensor).to_owned()
    }

    /// What the recorded scores and weights say of the heads. What does not fit the settings says nothing.
    fn said_by_heads(&self) -> Option<Evidence> {
        let width = self.sources.tensor(Name::WQ).and_then(|w_q| w_q.dims().first());
        let by_norm = || {
            let weight = self.sources.tensor(Name::WQNorm).filter(|weight| weight.rank() == 1)?;
            let heads = width?.checked_div(*weight.dims().first()?)?;
            Some((heads, Name::WQNorm.as_str())).filter(|_| heads > 0)
        };
        let (heads, tensor) = self.heads_of_scores().ok()?.or_else(by_norm)?;
        match (&self.settings, width) {
            (Settings { heads: None, head_dim: Some(_), .. }, Some(width)) => {
                Some(Evidence::of_heads("head_dim", width.checked_div(heads)?, tensor))
            }
            _ => Some(Evidence::of_heads("heads", heads, tensor)),
        }
    }

    /// The number of heads of recorded scores and weights, and the tensor that says it.
    ///
    /// # Errors
    /// If the settings pick no such queries.
    pub fn heads_of_scores(&self) -> Result<Option<(usize, &str)>> {
        let settings = &self.settings;
        let dims = |name: Name| self.sources.tensor(name).map(Tensor::dims).unwrap_or_default();
        let ((&[batch, tokens, ..], &[width, ..], _) | (_, _, &[batch, tokens, width])) =
            (dims(Name::X), dims(Name::WQ), dims(Name::Q))
        else {
            return Ok(None);
        };
        let queries = match settings.queries {
            Some(queries) => queries.of(tokens)?.count,
            None => tokens,
        };
        let own = [Name::Memory, Name::K].into_iter().find_map(|name| dims(name).get(1).copied());
        let own = own.unwrap_or(tokens);
        let added = [settings.add_bias_kv, settings.add_zero_attn]
            .map(|is_set| usize::from(is_set == Some(true)));
        let bias = usize::from(settings.add_bias_kv.is_none() && self.sources.has(Name::BiasK));
        let past = dims(Name::KPast).get(2).copied().unwrap_or(0);
        let keys = own.saturating_add(past).saturating_add(added.iter().sum::<usize>() + bias);
        Ok(foreign::heads(&self.record, [batch, queries, keys], width))
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
        let &[width, ..] = dims(Name::WQ) else { return Ok(settings) };
        let by_size = |size: &usize| width.checked_div(*size).filter(|heads| heads * size == width);
        let of_norm = dims(Name::WQNorm).last().and_then(by_size);
        let stated = settings.head_dim.as_ref().and_then(by_size);
        let told = self.heads_of_scores()?.map(|(heads, _)| heads);
        let heads = stated.or(of_norm).or(told).ok_or_else(|| {
            let what =
                tr!("no tensor says how many heads the {width} features are split into", width);
            Error::config(what, "pass `heads=N`")
        })?;
        Ok(Settings { heads: Some(heads), ..settings })
    }
}

/// The recorded scores and weights of any step and the weights that dropout keeps, a number for every query and key, of every head and item or of all as one.
pub fn of_cells(record: &Record) -> impl Iterator<Item = &Entry> {
    let is_of_cells = |name: Name| {
        let row = name.row();
        matches!(row.role, Role::Computed | Role::Random) && row.is_of_scores()
    };
    record.entries.iter().filter(move |entry| {
        let own = Name::in_files(&entry.name);
        let mut names = own.into_iter().chain(meanings(&entry.name));
        matches!(entry.tensor.rank(), 3 | 4) && names.any(is_of_cells)
    })
}
