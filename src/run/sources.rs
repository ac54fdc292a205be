//! Which tensors does a run take from outside, in place of drawn ones?

use std::collections::HashSet;
use std::path::PathBuf;

use candle_core::Tensor;

use super::LOW;
use super::masks::{self, check_shape, zeros_and_ones};
use attention::Outside;
use base::error::Result;
use config::{Config, End, Sizes, Start};
use file::{Record, split_place};
use foreign::{Match, WeightScales, holds_ones};
use program::{Given, Name, Program, Role, Size, first_number};

/// What a run takes from outside: tensors by step, and the attention mask as its file holds it.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    pub(super) tensors: Given,
    /// The steps whose tensors are what follows from the settings anyway.
    following: Vec<Name>,
    pub(super) attn_mask: Option<Tensor>,
    pub(super) heads: Option<usize>,
    pub(super) matches: Vec<Match>,
    /// The files that were read.
    pub(super) files: Vec<PathBuf>,
    /// Parameters of the layer that were not read.
    pub(super) unread: Vec<String>,
    /// What the weights in few bits were multiplied by.
    pub scales: WeightScales,
}

impl Sources {
    /// Takes a tensor as a step, from a place.
    pub(super) fn take(&mut self, step: Name, tensor: Tensor, matched: Match, place: &str) {
        self.matches.push(matched);
        self.files.push(split_place(place).0);
        self.tensors.insert(step, tensor);
    }

    /// Takes a tensor as a step, from the settings.
    pub fn keep(&mut self, step: Name, tensor: Tensor) {
        self.tensors.insert(step, tensor);
    }

    /// What was taken as what from the files.
    pub fn matches(&self) -> &[Match] {
        &self.matches
    }

    /// The files that were read.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The parameters of the layer that no step of a program reads, as their files call them.
    pub fn unread<'a>(&'a self, program: &'a Program) -> impl Iterator<Item = &'a str> {
        let is_read =
            |step: &str| Name::in_files(step).is_none_or(|name| program.step(name).is_some());
        let idle = self.matches.iter();
        let idle = idle.filter(move |matched| !matched.filled && !is_read(&matched.step));
        let idle = idle.map(|matched| matched.tensor.as_str());
        // One tensor may hold several parameters.
        let mut seen = HashSet::new();
        let all = self.unread.iter().map(String::as_str).chain(idle);
        all.filter(move |name| seen.insert(*name))
    }

    /// The number of heads, where the weights' shapes tell it.
    pub fn heads(&self) -> Option<usize> {
        self.heads
    }

    /// Whether a step is given.
    pub fn has(&self, step: Name) -> bool {
        self.tensors.contains_key(&step)
    }

    /// Whether a mask or biases of scores are given.
    #[must_use]
    pub fn has_mask(&self) -> bool {
        self.attn_mask.is_some() || self.has(Name::Mask) || self.has(Name::AttnBias)
    }

    /// The mask that is given.
    pub fn mask(&self) -> Option<&Tensor> {
        self.attn_mask.as_ref().or(self.tensor(Name::Mask))
    }

    /// The tensor of a step.
    pub fn tensor(&self, step: Name) -> Option<&Tensor> {
        self.tensors.get(&step)
    }

    /// The same with an attention mask, as its file holds it.
    pub fn with_mask(self, mask: Tensor) -> Self {
        Self { attn_mask: Some(mask), ..self }
    }

    /// The same with the floats of an attention mask that are 0 and 1 alone as what is seen; nothing where they are others.
    ///
    /// # Errors
    /// If candle fails.
    pub fn with_ones_seen(&self) -> Result<Option<Self>> {
        Ok(match &self.attn_mask {
            Some(mask) if mask.dtype().is_float() && holds_ones(mask)? => {
                Some(self.clone().with_mask(mask.ne(0.0)?))
            }
            _ => None,
        })
    }

    /// The same with a mask whose first axis is that of the items, where it may as well be that of heads or queries, of which
    /// there are as many, and that mask; nothing where its axes tell. What is added to the scores broadcasts as it is, unless
    /// it only blocks, and is said to be of items.
    ///
    /// # Errors
    /// If candle fails.
    pub fn with_mask_of_items(
        &self,
        sizes: &Sizes,
        is_said: bool,
    ) -> Result<Option<(Self, Tensor)>> {
        let mask = self.mask();
        let adds = |number: f64| number != 0.0 && number > LOW;
        let Some(mask) = mask else { return Ok(None) };
        if mask.dtype().is_float() && (!is_said || first_number(mask, adds)?.is_some()) {
            return Ok(None);
        }
        let Sizes { batch, heads, seq_len, .. } = *sizes;
        let other = if mask.rank() == 2 { seq_len } else { heads };
        let shape = masks::shape_of_items(mask.dims(), batch);
        let Some(shape) = shape.filter(|_| batch > 1 && batch == other) else { return Ok(None) };
        let mask = mask.reshape(&shape[..])?;
        let sources = match self.attn_mask {
            Some(_) => self.clone().with_mask(mask.clone()),
            None => self.replaced(Name::Mask, mask.clone()),
        };
        Ok(Some((sources, mask)))
    }

    /// The same without any mask of a file or of a record.
    pub fn without_mask(&self) -> Self {
        Self { attn_mask: None, ..self.without(Name::Mask) }
    }

    /// The same with another tensor of a step.
    pub fn replaced(&self, step: Name, tensor: Tensor) -> Self {
        let mut others = self.without(step);
        others.keep(step, tensor);
        others
    }

    /// The same with these weights times a power of their scales.
    ///
    /// # Errors
    /// If candle fails.
    pub fn rescaled(&self, weights: &[Name], power: f64) -> Result<Self> {
        let mut others = self.clone();
        for name in weights {
            if let (Some(weight), Some(scale)) = (self.tensor(*name), self.scales.factors.get(name))
            {
                let factor = scale.to_dtype(weight.dtype())?.powf(power)?;
                others.keep(*name, (weight * factor)?);
            }
        }
        Ok(others)
    }

    /// The same with X (`seq_len`, batch, `d_in`) turned into (batch, `seq_len`, `d_in`), and memory likewise; nothing
    /// where that is the same.
    ///
    /// # Errors
    /// If candle fails.
    pub fn with_tokens_first(&self) -> Result<Option<(Self, Match)>> {
        let mut turned = self.clone();
        for name in [Name::X, Name::Memory, Name::MemoryV] {
            match self.tensor(name) {
                Some(tokens) if tokens.rank() == 3 => {
                    turned.tensors.insert(name, tokens.transpose(0, 1)?.contiguous()?);
                }
                Some(_) => return Ok(None),
                None if name == Name::X => return Ok(None),
                None => {}
            }
        }
        let seen = Match::as_it_is("x", "x").read(tr!("axes (query, batch, input)"));
        Ok(Some((turned, seen)))
    }

    /// The given tensors of a recorded trace that are `wanted`, of a run that starts there; and the gradients of ends, of
    /// which a backward pass starts from one.
    pub fn recorded(record: &Record, start: Start, wanted: impl Fn(Name) -> bool) -> Self {
        let is_first = |name: &Name| End::ALL.iter().any(|end| end.step().gradient() == *name);
        let is_given =
            |name: &Name| name.is_given() || start.given().contains(name) || is_first(name);
        let given = record.entries.iter().filter_map(|entry| {
            let name =
                Name::in_files(&entry.name).filter(|name| is_given(name) && wanted(*name))?;
            Some((name, entry.tensor.clone()))
        });
        Self { tensors: given.collect(), ..Self::default() }
    }

    /// Adds what `other` has, in place of what stands under the same name.
    pub(super) fn with(mut self, other: Self) -> Self {
        self.tensors.extend(other.tensors);
        self.attn_mask = other.attn_mask.or(self.attn_mask);
        self.heads = other.heads.or(self.heads);
        self.matches.extend(other.matches);
        self.files.extend(other.files);
        self.unread.extend(other.unread);
        if !other.scales.factors.is_empty() {
            self.scales = other.scales;
        }
        self
    }

    /// The same without the tensor of a step.
    pub fn without(&self, step: Name) -> Self {
        let mut others = self.clone();
        others.tensors.remove(&step);
        others
    }

    /// Marks a step's tensor as what follows from the settings, in a value of this shape.
    pub(super) fn follow(&mut self, step: Name, shape: &[usize]) {
        self.following.push(step);
        self.tensors.retain(|name, tensor| *name != step || tensor.dims() == shape);
    }

    /// Whether a step's tensor is what follows from the settings.
    pub(super) fn follows(&self, step: Name) -> bool {
        self.following.contains(&step)
    }

    /// The shapes of what is given in place of what would follow from the settings.
    ///
    /// # Errors
    /// If a mask does not broadcast to (batch, head, query, key).
    pub fn outside(&self, config: &Config) -> Result<Outside> {
        let mut outside = Outside::new();
        if let Some(mask) = &self.attn_mask {
            let (name, mask) = masks::shape_of_file(config, mask)?;
            outside.insert(name, mask.dims().to_vec());
        }
        if let Some(state) = self.tensor(Name::InitialState) {
            outside.insert(Name::InitialState, state.dims().to_vec());
        }
        for (name, tensor) in &self.tensors {
            if name.role() == Role::Setting && !self.following.contains(name) {
                let tensor = match name {
                    Name::GivenBias => masks::biases_of_file(config, tensor)?,
                    Name::Mask => masks::with_heads(config, tensor, config.sizes.query_count())?,
                    _ => tensor.clone(),
                };
                if name.row().is_of_scores() {
                    check_shape(config, name.as_str(), &tensor, config.sizes.query_count())?;
                }
                outside.insert(*name, tensor.dims().to_vec());
            }
        }
        Ok(outside)
    }

    /// The tensors that the run is given from here, in its type.
    ///
    /// # Errors
    /// If a mask does not fit, or a tensor cannot be made.
    pub fn given(&self, config: &Config) -> Result<Given> {
        let mut given = Given::new();
        if let Some(mask) = &self.attn_mask {
            let (name, mask) = masks::of_file(config, mask)?;
            given.insert(name, mask);
        }
        for (name, tensor) in &self.tensors {
            let tensor = if name.row().is_boolean {
                zeros_and_ones(name.as_str(), tensor)?
            } else {
                tensor.to_dtype(config.dtype.into())?
            };
            let tensor = match name {
                Name::GivenBias => masks::biases_of_file(config, &tensor)?,
                Name::Mask => masks::with_heads(config, &tensor, config.sizes.query_count())?,
                Name::RelEmbeddings => of_relative_positions(config, &tensor)?,
                _ => Self::computed_rows(config, *name, tensor)?,
            };
            given.insert(*name, tensor);
        }
        Ok(given)
    }
}

/// Embeddings of relative positions as checkpoints have them (position, feature), with an axis for the item that stands for
/// all: the first of them, as many as the run has.
fn of_relative_positions(config: &Config, tensor: &Tensor) -> Result<Tensor> {
    let tensor = if tensor.rank() == 2 { tensor.unsqueeze(0)? } else { tensor.clone() };
    let count = config.sizes.of(Size::Positions);
    let is_more = tensor.rank() == 3 && tensor.dim(1)? > count;
    Ok(if is_more { tensor.narrow(1, 0, count)?.contiguous()? } else { tensor })
}
