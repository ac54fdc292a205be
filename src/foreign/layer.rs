//! A layer's four projections, read from the layout that a file has them in.

use std::collections::HashMap;
use std::path::PathBuf;

use candle_core::Tensor;

use super::matched::Match;
use super::names::last_segment;
use super::packed::{Heads, Part, by_heads, in_blocks, in_four, refuse_other_size, stored_in_out};
use super::weight_scales::{Scaled, WeightScales};
use base::error::{Error, Result};
use config::Packing;
use program::{Name, Projection};

/// The names of a weight and of its bias.
pub type Names = (String, String);

/// A layer whose weights a file holds.
pub struct Layer {
    /// What stands before the names, with its separator.
    pub prefix: String,
    /// The input projections: one a projection, or one for all three.
    pub inputs: Vec<Names>,
    /// The output projection.
    pub output: Names,
    /// How its weights are stored.
    pub stored: Stored,
}

/// How the weights of separate projections are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// (out, in), as `nn.Linear` has them.
    Rows,
    /// (heads, in, `head_dim`), and (heads, `head_dim`, out) of the output projection, as `TransformerLens` has them.
    Heads,
    /// (out, in), keys and values from one matrix of their latent, as `DeepSeek` has them.
    Latent,
    /// (in, out), or (in, heads, `head_dim`) and (heads, `head_dim`, out), as Flax and Keras have them.
    Kernels,
}

impl Layer {
    /// The prefix without its separator.
    pub fn shown_prefix(&self) -> &str {
        self.prefix.trim_end_matches(['.', '/'])
    }

    /// Whether the layer is the one of that prefix, or within it, or has the prefix's module hold its projections, as
    /// BERT's `attention.self` does.
    pub fn is_under(&self, asked: &str) -> bool {
        let is_under = |name: &str| {
            let rest = name.strip_prefix(asked);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '/']))
        };
        let first = self.inputs.first().map(|(weight, _)| format!("{}{weight}", self.prefix));
        asked.is_empty()
            || is_under(self.shown_prefix())
            || first.is_some_and(|name| is_under(&name))
    }

    /// The parameters among a file's names that stand in the layer's module, and of which none of `weights` was read.
    /// What stands in the module of the output projection comes after attention.
    pub fn unread(&self, names: &[&str], weights: &Weights) -> Vec<String> {
        // Parameters of single heads are matched together, with a star for the head.
        let is_it = |read: &str, name: &str| match read.split_once('*') {
            Some((before, after)) => name.starts_with(before) && name.ends_with(after),
            None => read == name,
        };
        let read = |name: &str| weights.matches.iter().any(|matched| is_it(&matched.tensor, name));
        let projection = self.output.0.strip_suffix(".weight").unwrap_or(&self.output.0);
        let after = projection.rsplit_once('.').map(|(module, _)| format!("{module}."));
        let is_of_layer = |name: &str| {
            name.strip_prefix(self.prefix.as_str()).is_some_and(|rest| {
                let is_after = after.as_ref().is_some_and(|after| rest.starts_with(after));
                // Without a prefix, what is deeper belongs to other modules.
                let is_own = is_parameter(rest) && rest.matches('.').count() < 2;
                !is_after && (!self.prefix.is_empty() || is_own)
            })
        };
        let names = names.iter().filter(|name| is_of_layer(name) && !read(name));
        names.map(|name| (*name).to_owned()).collect()
    }

    /// How its matrix is packed, as far as its name tells.
    fn packing(&self) -> Packing {
        match self.inputs.as_slice() {
            [(weight, _)] if weight == "query_key_value.weight" => Packing::Heads,
            _ => Packing::Blocks,
        }
    }

    /// Whether the prefix has the asked one somewhere in it, as `model.layers.1.self_attn` has `layers.1`.
    pub fn has_within(&self, asked: &str) -> bool {
        let parts = |name: &str| name.split(['.', '/']).map(str::to_owned).collect::<Vec<_>>();
        let asked = parts(asked);
        parts(self.shown_prefix()).windows(asked.len()).any(|window| window == asked)
    }

    /// The weights (out, in) and biases (out). A projection without a bias beside one that has one gets zeros. `read`
    /// gives the file's tensor of a name, if there is one; `heads` is needed where heads are packed one by one.
    ///
    /// # Errors
    /// If `read` fails, or a weight's shape makes no sense.
    pub fn weights(
        &self,
        heads: Heads,
        read: impl Fn(&str) -> Result<Option<Tensor>>,
    ) -> Result<Weights> {
        let in_few_bits = Scaled::by(&read);
        let weights = self.laid_out(heads, &|name| in_few_bits.tensor(name))?;
        let scales =
            in_few_bits.scales(&weights.matches, |read| Ok(self.laid_out(heads, read)?.tensors))?;
        let matches = [weights.matches, in_few_bits.matches.into_inner()].concat();
        Ok(Weights { matches, scales, ..weights })
    }

    /// The same of tensors that are read as they are.
    fn laid_out(
        &self,
        heads: Heads,
        read: &dyn Fn(&str) -> Result<Option<Tensor>>,
    ) -> Result<Weights> {
        let mut found = LayerReader { layer: self, read: &read, weights: Weights::default() };
        match self.inputs.as_slice() {
            [queries, others] if self.stored == Stored::Latent => {
                found.latent(queries, others)?;
            }
            [packed] => found.packed(packed, heads)?,
            [queries, others] => found.keys_and_values(queries, others)?,
            separate => {
                let [inputs @ .., output] = Name::PROJECTIONS;
                for (projection, names) in inputs.into_iter().zip(separate) {
                    found.separate(projection, names)?;
                }
                found.separate(output, &self.output)?;
                found.packed_biases()?;
            }
        }
        found.others(heads)?;
        found.gate_in_queries(heads)?;
        found.complete_biases()?;
        Ok(found.weights)
    }
}

/// The weights of a layer under our names.
#[derive(Default)]
pub struct Weights {
    /// By step.
    pub tensors: HashMap<Name, Tensor>,
    /// What was taken as what.
    pub matches: Vec<Match>,
    /// The number of heads, where the shapes tell.
    pub heads: Option<usize>,
    /// The files that they are read from.
    pub files: Vec<PathBuf>,
    /// The layer's parameters beside them.
    pub unread: Vec<String>,
    /// What those in few bits were multiplied by.
    pub scales: WeightScales,
}

/// Whether modules have parameters of that name.
pub fn is_parameter(name: &str) -> bool {
    matches!(last_segment(name), "weight" | "bias")
}

/// The name of a bias that stands beside the module of its weight: `attention.q_bias` for `attention.query.weight`, as in
/// `VideoMAE`.
fn beside(weight: &str, step: Name) -> String {
    let module = weight.rsplit_once('.').map_or("", |(module, _)| module);
    let path = module.rfind('.').and_then(|end| module.get(..=end)).unwrap_or_default();
    format!("{path}{}_bias", step.as_str().trim_start_matches("w_"))
}

/// Reads a layer's tensors.
pub struct LayerReader<'a, R> {
    pub layer: &'a Layer,
    pub read: &'a R,
    pub weights: Weights,
}

impl<R: Fn(&str) -> Result<Option<Tensor>>> LayerReader<'_, R> {
    pub fn tensor(&self, name: &str) -> Result<Option<(String, Tensor)>> {
        let name = format!("{}{name}", self.layer.prefix);
        Ok((self.read)(&name)?.map(|tensor| (name, tensor)))
    }

    pub fn take(&mut self, step: Name, name: &str, tensor: Tensor, how: Option<String>) {
        self.insert(step, tensor, Match { how, ..Match::as_it_is(step.as_str(), name) });
    }

    fn insert(&mut self, step: Name, tensor: Tensor, matched: Match) {
        self.weights.matches.push(matched);
        self.weights.tensors.insert(step, tensor);
    }

    /// A projection of its own.
    pub(super) fn separate(&mut self, (weight, bias): Projection, names: &Names) -> Result<()> {
        if let Some((name, tensor)) = self.tensor(&names.0)? {
            let (tensor, how, heads) = self.layer.stored.in_rows(&name, &tensor, weight)?;
            if weight == Name::WQ {
                self.weights.heads = heads;
            }
            self.take(weight, &name, tensor, how);
        }
        let own = self.tensor(&names.1)?;
        let own =
            own.map_or_else(|| self.tensor(&beside(&names.0, weight)), |own| Ok(Some(own)))?;
        if let Some((name, tensor)) = own {
            self.take(bias, &name, tensor.flatten_all()?, None);
        }
        Ok(())
    }

    /// Three projections in one matrix (out of all, in), or (out of all, in) transposed as GPT-2's `Conv1D` stores it: the
    /// output projection's size tells which. Then the output projection is stored so too.
    fn packed(&mut self, (weight, bias): &Names, heads: Heads) -> Result<()> {
        let (output, output_bias) = &self.layer.output;
        let (Some((name, matrix)), Some((output_name, output))) =
            (self.tensor(weight)?, self.tensor(output)?)
        else {
            return Ok(());
        };
        let transposed = stored_in_out(&name, &matrix, &output)?;
        let (matrix, output, how) = if transposed {
            (matrix.t()?, output.t()?.contiguous()?, Some(tr!("transposed").to_owned()))
        } else {
            (matrix, output, None)
        };
        let (rows, queries) = (matrix.dim(0)?, output.dim(1)?);
        let parts = match heads.packing.unwrap_or_else(|| self.layer.packing()) {
            Packing::Heads => by_heads(&name, rows, queries, heads)?,
            Packing::Blocks => in_blocks(rows, queries),
            Packing::Codegen => in_four(&name, rows, queries)?,
        };
        let stored = if transposed { tr!("columns") } else { tr!("rows") };
        self.split((&name, &matrix), bias, stored, &parts)?;
        self.take(Name::WO, &output_name, output, how);
        if let Some((name, bias)) = self.tensor(output_bias)? {
            self.take(Name::BO, &name, bias, None);
        }
        Ok(())
    }

    /// Queries apart, and keys and values in one matrix, all stored as (in, out), as GPT-2's cross attention has them.
    fn keys_and_values(&mut self, queries: &Names, others: &Names) -> Result<()> {
        let [q, k, v, o] = Name::PROJECTIONS;
        self.separate(q, queries)?;
        self.separate(o, &self.layer.output)?;
        let Some((name, packed)) = self.tensor(&others.0)? else { return Ok(()) };
        let packed = packed.t()?.contiguous()?;
        let half = packed.dim(0)? / 2;
        let parts = [(k, 0), (v, half)];
        let parts = parts.map(|(projection, from)| Part { projection, blocks: vec![(from, half)] });
        self.split((&name, &packed), &others.1, tr!("columns"), &parts)
    }

    /// The rows of a matrix, and the entries of its bias if it has one, that are of each projection.
    pub(super) fn split(
        &mut self,
        (name, matrix): (&str, &Tensor),
        bias: &str,
        stored: &str,
        parts: &[Part],
    ) -> Result<()> {
        for part in parts {
            self.take(part.projection.0, name, part.of(matrix)?, Some(part.told(stored)));
        }
        let Some((name, bias)) = self.tensor(bias)? else { return Ok(()) };
        refuse_other_size(&name, &bias, tr!("its weight has"), matrix.dim(0)?)?;
        self.split_bias(&name, &bias, parts)
    }

    /// The entries of a bias that are of each projection.
    fn split_bias(&mut self, name: &str, bias: &Tensor, parts: &[Part]) -> Result<()> {
        let bias = bias.flatten_all()?;
        for part in parts {
            self.take(part.projection.1, name, part.of(&bias)?, Some(part.told(tr!("entries"))));
        }
        Ok(())
    }

    /// The biases that `nn.MultiheadAttention` packs beside weights of their own, as `kdim` has it make.
    fn packed_biases(&mut self) -> Result<()> {
        let Some((name, packed)) = self.tensor("in_proj_bias")? else { return Ok(()) };
        let [inputs @ .., _] = Name::PROJECTIONS;
        let rows = inputs.map(|(weight, _)| {
            let weight = self.weights.tensors.get(&weight);
            weight.and_then(|weight| weight.dims().first().copied()).unwrap_or(0)
        });
        refuse_other_size(&name, &packed, tr!("its weights have"), rows.iter().sum())?;
        let mut from = 0;
        let parts = inputs.into_iter().zip(rows).map(|(projection, rows)| {
            from += rows;
            Part { projection, blocks: vec![(from - rows, rows)] }
        });
        self.split_bias(&name, &packed, &parts.collect::<Vec<_>>())
    }

    /// Zeros for the projections that have no bias, where others have one.
    fn complete_biases(&mut self) -> Result<()> {
        let has = |step: Name| self.weights.tensors.contains_key(&step);
        if !Name::PROJECTIONS.iter().any(|(_, bias)| has(*bias)) {
            return Ok(());
        }
        let others = Name::LATENT.into_iter().chain(Name::OF_POSITIONS).chain([Name::GATE]);
        for (weight, bias) in Name::PROJECTIONS.into_iter().chain(others) {
            let without = self
                .weights
                .tensors
                .get(&weight)
                .filter(|_| !self.weights.tensors.contains_key(&bias));
            if let Some(weight) = without {
                let size = weight.dims().first().copied().unwrap_or(0);
                let zeros = Tensor::zeros(size, weight.dtype(), weight.device())?;
                self.insert(bias, zeros, Match::zeros(bias.as_str()));
            }
        }
        Ok(())
    }
}

impl Stored {
    /// A projection's weight as (out, in), how that was made of it, and the heads that it has an axis for.
    fn in_rows(
        self,
        name: &str,
        tensor: &Tensor,
        step: Name,
    ) -> Result<(Tensor, Option<String>, Option<usize>)> {
        let dims = tensor.dims();
        let (shape, fix) = match self {
            Self::Rows | Self::Latent => return Ok((tensor.clone(), None, None)),
            Self::Kernels if dims.len() == 2 => {
                return Ok((tensor.t()?.contiguous()?, Some(tr!("transposed").to_owned()), None));
            }
            Self::Heads => {
                ("(heads, in, head_dim)", tr!("give a weight with an axis for the heads"))
            }
            Self::Kernels => (
                tr!("(in, out) or (in, heads, head_dim)"),
                tr!("give a kernel as Flax and Keras have it"),
            ),
        };
        let [first, second, last] = *dims else {
            return Err(Error::tensor(
                name,
                tr!("is {dims}, not {shape}", dims = format!("{dims:?}"), shape),
                fix,
            ));
        };
        let (rows, heads) = match (step, self) {
            (Name::WO, _) => (tensor.reshape((first * second, last))?.t()?, first),
            (_, Self::Kernels) => (tensor.reshape((first, second * last))?.t()?, second),
            _ => (tensor.transpose(1, 2)?.contiguous()?.reshape((first * last, second))?, first),
        };
        Ok((rows.contiguous()?, Some(tr!("heads side by side").to_owned()), Some(heads)))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::layout::{Without, pick};

    /// The weights of an `nn.MultiheadAttention` with `kdim`, and a packed bias of so many entries.
    fn with_bias(entries: usize) -> Result<Weights> {
        let shape = |name: &str| match name {
            "a.q_proj_weight" | "a.out_proj.weight" => Some(vec![6, 6]),
            "a.k_proj_weight" => Some(vec![6, 4]),
            "a.v_proj_weight" => Some(vec![6, 5]),
            "a.in_proj_bias" => Some(vec![entries]),
            _ => None,
        };
        let names = ["q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"];
        let names = names.map(|name| format!("a.{name}"));
        let layer = pick(&names.each_ref().map(String::as_str), None, Without::default())?
            .expect("a layer");
        layer.weights(Heads::default(), |name| {
            let counted = |shape: Vec<usize>| {
                let count = u32::try_from(shape.iter().product::<usize>()).expect("few");
                Tensor::arange(0, count, &Device::Cpu)?.to_dtype(DType::F32)?.reshape(shape)
            };
            Ok(shape(name).map(counted).transpose()?)
        })
    }

    /// PyTorch takes them apart by `in_proj_bias.chunk(3)`: queries, keys, values.
    #[test]
    fn biases_beside_the_weights_of_kdim_are_those_of_queries_keys_and_values() {
        let weights = with_bias(18).expect("a layer");
        for (bias, first) in [(Name::BQ, 0.0), (Name::BK, 6.0), (Name::BV, 12.0)] {
            let found: Vec<f32> = weights.tensors[&bias].to_vec1().expect("numbers");
            let expected: Vec<f32> = (0_u8..6).map(|at| first + f32::from(at)).collect();
            assert_eq!(found, expected, "{bias}");
        }
    }

    #[test]
    fn a_packed_bias_beside_separate_weights_is_as_long_as_they_have_rows() {
        assert!(with_bias(18).is_ok_and(|weights| weights.tensors.contains_key(&Name::BV)));
        for entries in [17, 19, 20, 21] {
            let error = with_bias(entries).err().expect("refused");
            let said = format!("a.in_proj_bias: is [{entries}], and its weights have 18 rows");
            assert_eq!(error.to_string(), said);
        }
    }
}
