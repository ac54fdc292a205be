//! A layer's four projections, read from the layout that a file has them in.

use std::collections::HashMap;

use candle_core::Tensor;

use super::taken::Taken;
use crate::error::{Error, Result};

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
    /// Whether weights are (heads, in, `head_dim`), as `TransformerLens` has them.
    pub per_head: bool,
}

impl Layer {
    /// The prefix without its separator.
    pub fn shown_prefix(&self) -> &str {
        self.prefix.trim_end_matches(['.', '/'])
    }

    /// Whether the layer is the one of that prefix, or within it.
    pub fn is_under(&self, asked: &str) -> bool {
        let rest = self.shown_prefix().strip_prefix(asked);
        asked.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '/']))
    }

    /// The weights (out, in) and biases (out). A projection without a bias beside one that has one gets zeros. `read`
    /// gives the file's tensor of a name, if there is one.
    ///
    /// # Errors
    /// If `read` fails, or a weight's shape makes no sense.
    pub fn weights(&self, read: impl Fn(&str) -> Result<Option<Tensor>>) -> Result<Weights> {
        let mut found = Found { layer: self, read: &read, weights: Weights::default() };
        found.refuse_added_keys()?;
        match self.inputs.as_slice() {
            [packed] => found.packed(packed)?,
            separate => {
                for (projection, names) in ["q", "k", "v"].into_iter().zip(separate) {
                    found.separate(projection, names)?;
                }
                found.separate("o", &self.output)?;
            }
        }
        found.refuse_grouped_queries()?;
        found.complete_biases()?;
        Ok(found.weights)
    }
}

/// The weights of a layer under our names.
#[derive(Default)]
pub struct Weights {
    /// By step name.
    pub tensors: HashMap<String, Tensor>,
    /// What was taken as what.
    pub taken: Vec<Taken>,
    /// The number of heads, where the shapes tell.
    pub heads: Option<usize>,
}

/// A layer's tensors, as they are found.
struct Found<'a, R> {
    layer: &'a Layer,
    read: &'a R,
    weights: Weights,
}

impl<R: Fn(&str) -> Result<Option<Tensor>>> Found<'_, R> {
    fn tensor(&self, name: &str) -> Result<Option<(String, Tensor)>> {
        let name = format!("{}{name}", self.layer.prefix);
        Ok((self.read)(&name)?.map(|tensor| (name, tensor)))
    }

    fn take(&mut self, step: String, name: &str, tensor: Tensor, how: Option<String>) {
        let taken = Taken::as_it_is(step.clone(), name);
        self.weights.taken.push(Taken { how, ..taken });
        self.weights.tensors.insert(step, tensor);
    }

    /// `nn.MultiheadAttention` with `add_bias_kv` appends a key and a value to those of the tokens.
    fn refuse_added_keys(&self) -> Result<()> {
        match self.tensor("bias_k")? {
            Some((name, _)) => {
                let what =
                    "is a key added to those of the tokens (add_bias_kv), which is not traced";
                Err(Error::tensor(name, what, "make the layer without add_bias_kv"))
            }
            None => Ok(()),
        }
    }

    /// Fewer key and value heads than query heads.
    fn refuse_grouped_queries(&self) -> Result<()> {
        let rows = |name: &str| self.weights.tensors.get(name).map_or(&[][..], Tensor::dims);
        match (rows("w_q"), rows("w_k")) {
            (&[queries, _], &[keys, _]) if keys < queries => {
                let what = format!("has {keys} rows, and w_q {queries}: grouped-query attention");
                let fix = "this is not traced: check a layer with a key head for every query head";
                Err(Error::tensor("w_k", what, fix))
            }
            _ => Ok(()),
        }
    }

    /// A projection of its own.
    fn separate(&mut self, projection: &str, (weight, bias): &Names) -> Result<()> {
        if let Some((name, tensor)) = self.tensor(weight)? {
            let (tensor, how) = if self.layer.per_head {
                let how = "heads side by side".to_owned();
                self.weights.heads = tensor.dims().first().copied();
                (heads_side_by_side(&name, &tensor, projection)?, Some(how))
            } else {
                (tensor, None)
            };
            self.take(format!("w_{projection}"), &name, tensor, how);
        }
        if let Some((name, tensor)) = self.tensor(bias)? {
            self.take(format!("b_{projection}"), &name, tensor.flatten_all()?, None);
        }
        Ok(())
    }

    /// Three projections in one matrix (3 · out, in), or (in, 3 · out) as GPT-2's `Conv1D` stores it: the output
    /// projection's size tells which. Then the output projection is stored so too.
    fn packed(&mut self, (weight, bias): &Names) -> Result<()> {
        let (output, output_bias) = &self.layer.output;
        let (Some((name, matrix)), Some((output_name, output))) =
            (self.tensor(weight)?, self.tensor(output)?)
        else {
            return Ok(());
        };
        let transposed = stored_in_out(&name, &matrix, &output)?;
        let matrix = if transposed { matrix.t()? } else { matrix };
        let size = matrix.dim(0)? / 3;
        let stored = if transposed { "columns" } else { "rows" };
        for (at, projection) in ["q", "k", "v"].into_iter().enumerate() {
            let (from, to) = (at * size, (at + 1) * size);
            let how = format!("{stored} {from}..{to}");
            let part = matrix.narrow(0, from, size)?.contiguous()?;
            self.take(format!("w_{projection}"), &name, part, Some(how));
        }
        if let Some((name, packed)) = self.tensor(bias)? {
            let packed = packed.flatten_all()?;
            if packed.elem_count() != 3 * size {
                let what = format!("is {:?}, and its weight has {} rows", packed.dims(), 3 * size);
                return Err(Error::tensor(name, what, "give a bias of that size"));
            }
            for (at, projection) in ["q", "k", "v"].into_iter().enumerate() {
                let (from, to) = (at * size, (at + 1) * size);
                let part = packed.narrow(0, from, size)?;
                self.take(format!("b_{projection}"), &name, part, Some(format!("{from}..{to}")));
            }
        }
        let (output, how) = if transposed {
            (output.t()?.contiguous()?, Some("transposed".to_owned()))
        } else {
            (output, None)
        };
        self.take("w_o".to_owned(), &output_name, output, how);
        if let Some((name, bias)) = self.tensor(output_bias)? {
            self.take("b_o".to_owned(), &name, bias, None);
        }
        Ok(())
    }

    /// Zeros for the projections that have no bias, where others have one.
    fn complete_biases(&mut self) -> Result<()> {
        let has = |projection: &&str| self.weights.tensors.contains_key(&format!("b_{projection}"));
        let without: Vec<&str> = ["q", "k", "v", "o"].into_iter().filter(|p| !has(p)).collect();
        if without.len() == 4 {
            return Ok(());
        }
        for projection in without {
            if let Some(weight) = self.weights.tensors.get(&format!("w_{projection}")) {
                let size = weight.dims().first().copied().unwrap_or(0);
                let zeros = Tensor::zeros(size, weight.dtype(), weight.device())?;
                let step = format!("b_{projection}");
                self.take(step, "no tensor", zeros, Some("zeros".to_owned()));
            }
        }
        Ok(())
    }
}

/// Whether a packed matrix is stored as (in, 3 · out).
fn stored_in_out(name: &str, matrix: &Tensor, output: &Tensor) -> Result<bool> {
    let [d_model, _] = *output.dims() else {
        let what = format!("its output projection is {:?}, not a matrix", output.dims());
        return Err(Error::tensor(name, what, "give a matrix (out, in)"));
    };
    let [rows, columns] = *matrix.dims() else {
        let what = format!("is {:?}, not a matrix", matrix.dims());
        return Err(Error::tensor(name, what, "give a matrix (3 · out, in)"));
    };
    let packed = d_model.max(1).saturating_mul(3);
    let is_conv = name.ends_with("c_attn.weight");
    match (rows == packed, columns == packed) {
        (true, true) => Ok(is_conv),
        (rows_fit, columns_fit) if rows_fit != columns_fit => Ok(columns_fit),
        _ => {
            let what = format!(
                "is {:?}, and three projections to {d_model} features would be ({packed}, in)",
                matrix.dims()
            );
            Err(Error::tensor(name, what, "give q, k and v of one size packed below each other"))
        }
    }
}

/// (heads, in, `head_dim`) as (heads · `head_dim`, in); of the output projection, (heads, `head_dim`, out) as
/// (out, heads · `head_dim`).
fn heads_side_by_side(name: &str, tensor: &Tensor, projection: &str) -> Result<Tensor> {
    let [heads, rows, columns] = *tensor.dims() else {
        let what = format!("is {:?}, not (heads, in, head_dim)", tensor.dims());
        return Err(Error::tensor(name, what, "give a weight with an axis for the heads"));
    };
    Ok(if projection == "o" {
        tensor.reshape((heads * rows, columns))?.t()?.contiguous()?
    } else {
        tensor.transpose(1, 2)?.contiguous()?.reshape((heads * columns, rows))?
    })
}
