//! What a recorded file may mean: its settings and given tensors, as it says them itself or as other code wrote them.

use candle_core::Tensor;

use super::foreign;
use crate::config::{Fill, Settings};
use crate::error::{Error, Result};
use crate::file::Record;
use crate::source::{Sources, Taken, adopt_given};
use crate::trace::Run;

/// A way to understand a file.
pub struct Meant {
    /// The file, its given tensors under our names.
    pub record: Record,
    /// The settings of its run.
    pub settings: Settings,
    /// What its run is given.
    pub sources: Sources,
    /// What was taken as what so far.
    pub taken: Vec<Taken>,
    /// Whether X was turned from (`seq_len`, batch, `d_in`).
    pub tokens_first: bool,
}

/// The ways to understand a file, the plain one first. One of ours says what it means; `flags` override it. Of another
/// they say what was meant, and what they leave open is taken from the tensors. X of such a file may be (`seq_len`,
/// batch, `d_in`), as `nn.MultiheadAttention` has it without `batch_first`.
///
/// # Errors
/// If the flags name a file that cannot be read, X or a weight is missing, or a layer must be picked.
pub fn meant(record: &Record, flags: &Settings) -> Result<Vec<Meant>> {
    // Without a file of weights, the prefix picks a layer of this one, or nothing where it says which are its own.
    let prefix = flags.prefix.clone().filter(|_| flags.weights.is_some());
    let others = Settings { prefix, ..flags.clone() };
    if record.config.is_some() {
        let (settings, sources) = Sources::of_record(record, &others)?;
        let record = record.clone();
        return Ok(vec![Meant {
            record,
            settings,
            sources,
            taken: Vec::new(),
            tokens_first: false,
        }]);
    }
    let (record, mut taken, heads) = adopt_given(record.clone(), flags)?;
    let (mut settings, sources) = Sources::of_record(&record, &others)?;
    taken.extend(sources.taken().iter().cloned());
    if settings.heads.is_none() {
        settings.heads = heads;
    }
    if settings.mask_fill.is_none()
        && let Some((fill, tensor)) = foreign::mask_fill(&record)
    {
        settings.mask_fill = Some(Fill(fill));
        taken.push(Taken::as_it_is("mask_fill", tensor).read(format!("whose lowest is {fill:e}")));
    }
    let tokens_first = sources.with_tokens_first()?;
    if sources.tensor("mask").is_some() {
        let how = "true means blocked; --attn-mask FILE:mask takes it as attend";
        taken.push(Taken::as_it_is("mask", "mask").read(how));
    }
    let tokens_first = tokens_first.filter(|_| !is_one(sources.tensor("x"), 0));
    // Attention of one token is none: whatever it lacks would seem right. So that is not meant unless something says so.
    let says_so = settings.seq_len.is_some()
        || settings.batch.is_some()
        || ["memory", "k_past"].iter().any(|name| sources.tensor(name).is_some());
    let is_trivial = is_one(sources.tensor("x"), 1) && tokens_first.is_some() && !says_so;
    let plain = Meant { record, settings, sources, taken, tokens_first: false };
    let turned = tokens_first.map(|(sources, seen)| Meant {
        record: plain.record.clone(),
        settings: plain.settings.clone(),
        sources,
        taken: plain.taken.iter().cloned().chain([seen]).collect(),
        tokens_first: true,
    });
    Ok(std::iter::once(plain).filter(|_| !is_trivial).chain(turned).collect())
}

/// Whether a tensor is there, and that axis of it has one place.
fn is_one(tensor: Option<&Tensor>, axis: usize) -> bool {
    tensor.is_some_and(|tensor| tensor.dims().get(axis) == Some(&1))
}

impl Meant {
    /// The run, not yet started.
    ///
    /// # Errors
    /// If the settings contradict the tensors, or nothing tells the number of heads.
    pub fn run(&self) -> Result<Run> {
        Run::new(&self.decided()?, self.sources.clone())
    }

    /// The settings, with the number of heads that the tensors tell where nothing states it.
    fn decided(&self) -> Result<Settings> {
        let settings = self.settings.clone();
        let stated = settings.heads.is_some() || settings.preset.is_some();
        if stated || self.record.config.is_some() || self.sources.heads().is_some() {
            return Ok(settings);
        }
        let dims = |name: &str| self.sources.tensor(name).map(Tensor::dims).unwrap_or_default();
        let (&[batch, tokens, ..], &[width, ..]) = (dims("x"), dims("w_q")) else {
            return Ok(settings);
        };
        let by_size = |size: &usize| width.checked_div(*size).filter(|heads| heads * size == width);
        let of_norm = dims("w_q_norm").first().and_then(by_size);
        let queries = match settings.queries {
            Some(queries) => queries.of(tokens)?.count,
            None => tokens,
        };
        let own = dims("memory").get(1).copied().unwrap_or(tokens);
        let keys = own.saturating_add(dims("k_past").get(2).copied().unwrap_or(0));
        let told = || foreign::heads(&self.record, [batch, queries, keys], width);
        let stated = settings.head_dim.as_ref().and_then(by_size);
        let heads = stated.or(of_norm).or_else(told).ok_or_else(|| {
            let what =
                format!("no tensor tells how many heads the {width} features are split into");
            Error::config(what, "pass --heads N")
        })?;
        Ok(Settings { heads: Some(heads), ..settings })
    }
}
