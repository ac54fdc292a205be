//! Everything a run draws, in the order in which the notebooks draw it.

use std::collections::HashMap;

use candle_core::{Device, Tensor};

use super::generator::Generator;
use crate::config::{Config, Init, Input};
use crate::error::Result;

/// Draws X (batch, `seq_len`, `d_in`), the weights (out, in) and biases (out) of the four projections and, with
/// dropout, the keep-mask (batch, heads, `seq_len`, `seq_len`), bit for bit as PyTorch does after `torch.manual_seed`.
///
/// X comes first. With [`Init::Linear`] the modules q, k, v, o follow and dropout draws last, in the forward pass.
/// With [`Init::XavierUniform`] q, k and v are constructed, their weights redrawn, and o comes after dropout.
///
/// # Errors
/// If a tensor cannot be made.
pub fn draw(config: &Config) -> Result<HashMap<String, Tensor>> {
    let mut drawn =
        Drawn { generator: Generator::new(config.seed.0), config, tensors: HashMap::new() };
    drawn.x()?;
    for projection in ["q", "k", "v"] {
        drawn.linear(projection, config.d_in)?;
    }
    match config.init {
        Init::Linear => {
            drawn.linear("o", config.d_model)?;
            drawn.dropout_keep()?;
        }
        Init::XavierUniform => {
            for projection in ["q", "k", "v"] {
                drawn.xavier(projection, config.d_in)?;
            }
            drawn.dropout_keep()?;
            drawn.linear("o", config.d_model)?;
            drawn.xavier("o", config.d_model)?;
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
    fn x(&mut self) -> Result<()> {
        let shape = [self.config.batch, self.config.seq_len, self.config.d_in];
        let count = shape.iter().product();
        let values = match self.config.input {
            Input::Randn => self.generator.randn(count),
            Input::Rand => self.generator.rand(count),
        };
        self.put("x", values, &shape)
    }

    /// The construction of `nn.Linear`: weight, then bias.
    fn linear(&mut self, name: &str, inputs: usize) -> Result<()> {
        let outputs = self.config.d_model;
        let weight = self.generator.linear_weight(inputs, outputs);
        self.put(&format!("w_{name}"), weight, &[outputs, inputs])?;
        if self.config.bias {
            let bias = self.generator.linear_bias(inputs, outputs);
            self.put(&format!("b_{name}"), bias, &[outputs])?;
        }
        Ok(())
    }

    fn xavier(&mut self, name: &str, inputs: usize) -> Result<()> {
        let outputs = self.config.d_model;
        let weight = self.generator.xavier_uniform(inputs, outputs);
        self.put(&format!("w_{name}"), weight, &[outputs, inputs])
    }

    fn dropout_keep(&mut self) -> Result<()> {
        let &Config { batch, heads, seq_len, dropout, .. } = self.config;
        if dropout == 0.0 {
            return Ok(());
        }
        let shape = [batch, heads, seq_len, seq_len];
        let keep = self.generator.dropout_keep(shape.iter().product(), dropout);
        let bits: Vec<u8> = keep.into_iter().map(u8::from).collect();
        self.tensors
            .insert("dropout_keep".to_owned(), Tensor::from_vec(bits, &shape, &Device::Cpu)?);
        Ok(())
    }

    fn put(&mut self, name: &str, values: Vec<f32>, shape: &[usize]) -> Result<()> {
        let tensor = Tensor::from_vec(values, shape, &Device::Cpu)?;
        self.tensors.insert(name.to_owned(), tensor.to_dtype(self.config.dtype.into())?);
        Ok(())
    }
}
