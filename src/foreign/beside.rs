//! A layer's parameters beside the four projections: those of norms, sinks, gates and biases of positions.

use candle_core::Tensor;

use super::layer::{LayerReader, Stored};
use super::matched::Match;
use super::packed::{Heads, Part};
use base::error::{Error, Result};
use config::NormOver;
use program::Name;

impl<R: Fn(&str) -> Result<Option<Tensor>>> LayerReader<'_, R> {
    /// The parameters beside the projections, as norms of every head's queries and keys.
    pub(super) fn others(&mut self, heads: Heads) -> Result<()> {
        for step in Name::ALL.iter().filter(|step| !step.row().stored.is_empty()) {
            for name in step.row().stored.iter().chain([&step.row().name]) {
                let is_new = |(full, ..): &(String, _, _)| {
                    !self.weights.matches.iter().any(|matched| matched.tensor == *full)
                };
                // What latents are normalised by can be called as norms of heads are.
                if let Some((full, tensor, how)) = self.of_heads(*step, name)?.filter(is_new) {
                    // (1, 1, width) in nn.MultiheadAttention.
                    let is_added = matches!(step, Name::BiasK | Name::BiasV);
                    let tensor = if is_added { tensor.flatten_all()? } else { tensor };
                    let tensor = self.norm_of_heads(*step, tensor, heads)?;
                    let (tensor, repeated) = self.gate_of_heads(*step, tensor, heads)?;
                    let how = how.or(repeated);
                    self.refuse_other_norms(*step, &full, &tensor, heads)?;
                    self.take(*step, &full, tensor, how);
                    break;
                }
            }
        }
        Ok(())
    }

    /// A tensor; where its name has a place for the head, those of all heads, one below the other.
    fn of_heads(&self, step: Name, name: &str) -> Result<Option<(String, Tensor, Option<String>)>> {
        if !name.contains("{}") {
            return Ok(self.own_or_shared(step, name)?.map(|(full, tensor)| (full, tensor, None)));
        }
        let mut all = Vec::new();
        while let Some((_, tensor)) = self.tensor(&name.replace("{}", &all.len().to_string()))? {
            all.push(tensor);
        }
        if all.is_empty() {
            return Ok(None);
        }
        let full = format!("{}{}", self.layer.prefix, name.replace("{}", "*"));
        let how = Some(tr!("heads stacked").to_owned());
        Ok(Some((full, Tensor::stack(&all, 0)?, how)))
    }

    /// A parameter of the layer. A table of relative position biases may be that of the first layer, as in T5, or of a
    /// module around the layers, as in `MPNet`; so are embeddings of relative positions, and their norm, which is called as
    /// any other.
    fn own_or_shared(&self, step: Name, name: &str) -> Result<Option<(String, Tensor)>> {
        let is_of_positions = matches!(step, Name::WRelNorm | Name::BRelNorm);
        if is_of_positions && !self.weights.tensors.contains_key(&Name::RelEmbeddings) {
            return Ok(None);
        }
        let is_around =
            is_of_positions || matches!(step, Name::RelativeTable | Name::RelEmbeddings);
        let own = self.tensor(name)?;
        if own.is_some() || !is_around {
            return Ok(own);
        }
        let mut words: Vec<&str> = self.layer.shown_prefix().split('.').collect();
        let mut of_first = words.clone();
        let number = of_first.iter_mut().find(|word| word.parse::<usize>().is_ok());
        let mut places = Vec::new();
        if let Some(number) = number {
            *number = "0";
            places.push(of_first.join("."));
        }
        while words.pop().is_some() && !words.is_empty() {
            places.push(words.join("."));
        }
        for place in places {
            let full = format!("{place}.{name}");
            if let Some(tensor) = (self.read)(&full)? {
                return Ok(Some((full, tensor)));
            }
        }
        Ok(None)
    }

    /// Of every head first the query's rows and then the gate's, as Qwen3-Next has them: twice as many as heads reach the
    /// output projection.
    pub(super) fn gate_in_queries(&mut self, heads: Heads) -> Result<()> {
        let dims = |step: Name| self.weights.tensors.get(&step).map(Tensor::dims);
        let (Some(&[rows, _]), Some(&[_, width])) = (dims(Name::WQ), dims(Name::WO)) else {
            return Ok(());
        };
        let has_own = self.weights.tensors.contains_key(&Name::WGate);
        // The features of keys from a latent need not be as many as those of values.
        let is_latent =
            self.layer.stored == Stored::Latent || self.weights.tensors.contains_key(&Name::WDkv);
        if rows != 2 * width || has_own || is_latent {
            return Ok(());
        }
        let of_norm = || dims(Name::WQNorm)?.last().copied();
        let split = || width.checked_div(heads.queries?);
        let head_dim = heads.head_dim.or_else(split).or_else(of_norm);
        let Some(head_dim) = head_dim.filter(|dim| *dim > 0 && width.is_multiple_of(*dim)) else {
            let what = tr!(
                "has {rows} rows of queries and gates, but nothing says how many heads there are",
                rows
            );
            return Err(Error::tensor(Name::WQ, what, "pass `heads=N`"));
        };
        let every_other = |from: usize| {
            (0..width / head_dim).map(|head| ((2 * head + from) * head_dim, head_dim)).collect()
        };
        let [queries, ..] = Name::PROJECTIONS;
        let parts = [(queries, 0), (Name::GATE, 1)]
            .map(|(projection, from)| Part { projection, blocks: every_other(from) });
        for (step, stored) in [(Name::WQ, tr!("rows")), (Name::BQ, tr!("entries"))] {
            let Some(packed) = self.weights.tensors.remove(&step) else { continue };
            let is_it = |matched: &Match| matched.step == step.as_str();
            let Some(at) = self.weights.matches.iter().position(is_it) else { continue };
            let name = self.weights.matches.remove(at).tensor;
            for part in &parts {
                let (weight, bias) = part.projection;
                let own = if step == Name::WQ { weight } else { bias };
                self.take(own, &name, part.of(&packed)?, Some(part.told(stored)));
            }
        }
        Ok(())
    }

    /// The projection of a gate that every head has one of: for each feature of a head the same.
    fn gate_of_heads(
        &self,
        step: Name,
        tensor: Tensor,
        heads: Heads,
    ) -> Result<(Tensor, Option<String>)> {
        let width = self.weights.tensors.get(&Name::WO).and_then(|w_o| w_o.dims().get(1).copied());
        let (Some(width), [rows, columns @ ..]) = (width, tensor.dims()) else {
            return Ok((tensor, None));
        };
        let is_gate = matches!(step, Name::WGate | Name::BGate);
        if !is_gate || *rows >= width || heads.queries != Some(*rows) || width % rows != 0 {
            return Ok((tensor, None));
        }
        let shape = [&[*rows, width / rows], columns].concat();
        let whole = [&[width], columns].concat();
        let repeated = tensor.unsqueeze(1)?.broadcast_as(shape)?.reshape(whole)?;
        Ok((repeated, Some(tr!("one for all features of a head").to_owned())))
    }

    /// The weight of a norm over all heads, as (head, `head_dim`).
    fn norm_of_heads(&self, step: Name, tensor: Tensor, heads: Heads) -> Result<Tensor> {
        let is_norm = matches!(step, Name::WQNorm | Name::WKNorm | Name::BQNorm | Name::BKNorm);
        if !is_norm || heads.norm_over != Some(NormOver::All) {
            return Ok(tensor);
        }
        let queries = self.weights.tensors.get(&Name::WQ).and_then(|w_q| w_q.dims().first());
        let split = || queries?.checked_div(heads.queries?);
        let size = tensor.elem_count();
        match heads.head_dim.or_else(split).filter(|dim| *dim > 0 && size.is_multiple_of(*dim)) {
            Some(head_dim) => Ok(tensor.reshape((size / head_dim, head_dim))?),
            None => Ok(tensor),
        }
    }

    /// Norms of all heads together, where a norm of each is meant.
    fn refuse_other_norms(
        &self,
        step: Name,
        full: &str,
        weight: &Tensor,
        heads: Heads,
    ) -> Result<()> {
        // With one key head, a norm of it is as long as a norm of all.
        let queries = self.weights.tensors.get(&Name::WQ).filter(|_| step == Name::WQNorm);
        let width = queries.and_then(|w_q| w_q.dims().first());
        if width.is_some()
            && weight.rank() == 1
            && weight.dims().first() == width
            && heads.queries != Some(1)
        {
            let fix = tr!("pass `qk_norm_over=all`");
            let what =
                tr!("is a norm of all heads together, and the settings have one of each head");
            return Err(Error::tensor(full, what, fix));
        }
        Ok(())
    }
}
