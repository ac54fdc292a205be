//! What kind of layer one is: which keys its queries see, and whether it turns them.

use super::Model;
use super::family::{Kind, Pattern, Turned, Window};
use serde_json::Value;

use base::error::{Result, quoted};
use config::Mask;

impl Model<'_> {
    /// The window, if the model has one and the layer slides.
    pub(super) fn window(&self) -> Result<Option<usize>> {
        let window = self.model_window()?;
        if window.is_none() && self.layer.is_none() {
            return Ok(None);
        }
        let kind = self.kind()?;
        Ok(window.filter(|_| kind == Kind::Sliding))
    }

    /// The window of the layers that slide.
    fn model_window(&self) -> Result<Option<usize>> {
        let Some(Window { key, otherwise, per, per_side, when }) = self.family.window else {
            return Ok(None);
        };
        if !self.config.holds(when)? {
            return Ok(None);
        }
        let is_both = self.mask()? != Mask::Causal;
        // To both sides it is that of one, and the query itself.
        let window = |stated: usize| if is_both { stated / per_side + 1 } else { stated / per };
        Ok(self.config.size_or(key, otherwise)?.map(window))
    }

    /// What the layer is, by the config's list or by the family's pattern.
    pub(super) fn kind(&self) -> Result<Kind> {
        if matches!(self.family.pattern, Pattern::Uniform) {
            return Ok(Kind::Sliding);
        }
        let lists = ["layer_types", "attention_layers", "layers_block_type"];
        let stated = lists.into_iter().find(|list| self.config.get(list).is_some());
        let types = stated.map_or(Ok(None), |list| self.config.words(list))?;
        let named = match &types {
            Some(types) => match types.first() {
                Some(first) if types.iter().all(|kind| kind == first) => Some(*first),
                _ => types.get(self.this_layer()?).copied(),
            },
            None => None,
        };
        let kind = match named {
            None => self.kind_by_pattern()?,
            Some("full_attention" | "attention" | "global" | "hybrid") => Kind::Full,
            Some("sliding_attention" | "local") => Kind::Sliding,
            Some("chunked_attention") if self.family.chunk.is_some() => Kind::Chunked,
            Some(_) => Kind::Other,
        };
        if kind != Kind::Other {
            return Ok(kind);
        }
        let what = match named {
            Some(named) => {
                tr!("this layer is of type {named}, which is not supported", named = quoted(named))
            }
            None => tr!("this layer has no softmax attention").to_owned(),
        };
        Err(self.config.refused(what, tr!("choose a layer with softmax attention: `layer=N`")))
    }

    fn kind_by_pattern(&self) -> Result<Kind> {
        let slides = |slides| if slides { Kind::Sliding } else { Kind::Full };
        let config = &self.config;
        Ok(match self.family.pattern {
            Pattern::Uniform => Kind::Sliding,
            Pattern::Each(kind) => kind,
            Pattern::Every { by, first, there, elsewhere } => {
                let by = config.sized(by)?.max(1);
                let at = if first { 0 } else { by - 1 };
                if self.this_layer()? % by == at { there } else { elsewhere }
            }
            Pattern::FirstAndEvery(by) => {
                let layer = self.this_layer()?;
                slides(layer > 0 && !(layer + 1).is_multiple_of(by))
            }
            Pattern::From(key, otherwise) => {
                slides(self.this_layer()? >= config.sized((key, otherwise))?)
            }
            Pattern::EvenBefore(key, otherwise) => {
                let layer = self.this_layer()?;
                slides(layer % 2 == 0 && layer < config.sized((key, otherwise))?)
            }
            Pattern::Unturned => slides(!self.turns(Turned::Listed)?),
            Pattern::ChunkedIfTurned if self.turns(Turned::Listed)? => Kind::Chunked,
            Pattern::ChunkedIfTurned => Kind::Full,
            Pattern::Few { period, offset } => {
                let (period, offset) = (config.sized(period)?, config.sized(offset)?);
                let is_it = self.this_layer()? % period.max(1) == offset;
                if is_it { Kind::Full } else { Kind::Other }
            }
        })
    }

    /// Whether the layer turns queries and keys.
    pub(super) fn turns(&self, layers: Turned) -> Result<bool> {
        Ok(match layers {
            Turned::All => true,
            Turned::Sliding => self.kind()? == Kind::Sliding,
            Turned::SlidingIfWindow => {
                self.model_window()?.is_none() || self.kind()? == Kind::Sliding
            }
            Turned::Stated => match self.config.keys.get("rope_parameters") {
                Some(Value::Null) => false,
                Some(Value::Object(stated))
                    if stated.keys().any(|key| key.ends_with("_attention")) =>
                {
                    self.stated(false)?.is_some()
                }
                _ => true,
            },
            Turned::Listed => {
                let layer = self.this_layer()?;
                if let Some(turned) = self.config.numbers("no_rope_layers")? {
                    return Ok(turned.get(layer).is_none_or(|is| *is != Some(0.0)));
                }
                let by = self.config.sized(("no_rope_layer_interval", 4))?.max(1);
                !(layer + 1).is_multiple_of(by)
            }
        })
    }
}
