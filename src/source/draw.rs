//! Everything a run draws, in the order in which the notebooks draw it.

use std::collections::HashMap;

use candle_core::{Device, Tensor};

use super::generator::Generator;
use crate::config::{Config, Init, Input};
use crate::error::Result;

/// Draws X (batch, `seq_len`, `d_in`), in cross attention the memory (batch, `kv_len`, `d_memory`), the weights (out, in)
/// and biases (out) of the four projections and, with dropout, the keep-mask (batch, heads, query, key), bit for bit as
/// PyTorch does after `torch.manual_seed`.
///
/// X comes first, then the memory. With [`Init::Linear`] the modules q, k, v, o follow and dropout draws last, in the forward pass.
/// With [`Init::XavierUniform`] q, k and v are constructed, their weights redrawn, and o comes after dropout.
///
/// # Errors
/// If a tensor cannot be made.
pub fn draw(config: &Config) -> Result<HashMap<String, Tensor>> {
    let mut drawn =
        Drawn { generator: Generator::new(config.seed.0), config, tensors: HashMap::new() };
    drawn.tokens("x", [config.batch, config.seq_len, config.d_in])?;
    if let Some(kv_len) = config.kv_len {
        drawn.tokens("memory", [config.batch, kv_len, config.d_memory])?;
    }
    for projection in ["q", "k", "v"] {
        drawn.linear(projection)?;
    }
    match config.init {
        Init::Linear => {
            drawn.linear("o")?;
            drawn.dropout_keep()?;
        }
        Init::XavierUniform => {
            for projection in ["q", "k", "v"] {
                drawn.xavier(projection)?;
            }
            drawn.dropout_keep()?;
            drawn.linear("o")?;
            drawn.xavier("o")?;
        }
    }
    Ok(drawn.tensors)
}

struct Drawn<'a> {
    generator: Generator,
    config: &'a Config,
    tensors: HashMap<String, Tensor>,
}

impl Drawn<'_> {
    fn tokens(&mut self, name: &str, shape: [usize; 3]) -> Result<()> {
        let count = shape.iter().product();
        let values = match self.config.input {
            Input::Randn => self.generator.randn(count),
            Input::Rand => self.generator.rand(count),
        };
        self.put(name, values, &shape)
    }

    /// The construction of `nn.Linear`: weight, then bias.
    fn linear(&mut self, name: &str) -> Result<()> {
        let (outputs, inputs) = self.config.projection(name);
        let weight = self.generator.linear_weight(inputs, outputs);
        self.put(&format!("w_{name}"), weight, &[outputs, inputs])?;
        if self.config.bias {
            let bias = self.generator.linear_bias(inputs, outputs);
            self.put(&format!("b_{name}"), bias, &[outputs])?;
        }
        Ok(())
    }

    fn xavier(&mut self, name: &str) -> Result<()> {
        let (outputs, inputs) = self.config.projection(name);
        let weight = self.generator.xavier_uniform(inputs, outputs);
        self.put(&format!("w_{name}"), weight, &[outputs, inputs])
    }

    /// Dropout of the weights of all queries, of which the computed ones' are kept: those rows are as in a whole run.
    fn dropout_keep(&mut self) -> Result<()> {
        let &Config { batch, heads, seq_len, dropout, .. } = self.config;
        if dropout == 0.0 {
            return Ok(());
        }
        let shape = [batch, heads, seq_len, self.config.key_count()];
        let keep = self.generator.dropout_keep(shape.iter().product(), dropout);
        let bits: Vec<u8> = keep.into_iter().map(u8::from).collect();
        let mut keep = Tensor::from_vec(bits, &shape, &Device::Cpu)?;
        if let Some(rows) = self.config.queries {
            keep = keep.narrow(2, rows.first, rows.count)?.contiguous()?;
        }
        self.tensors.insert("dropout_keep".to_owned(), keep);
        Ok(())
    }

    fn put(&mut self, name: &str, values: Vec<f32>, shape: &[usize]) -> Result<()> {
        let tensor = Tensor::from_vec(values, shape, &Device::Cpu)?;
        self.tensors.insert(name.to_owned(), tensor.to_dtype(self.config.dtype.into())?);
        Ok(())
    }
}
