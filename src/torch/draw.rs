//! What does a run draw, and in which order?

use candle_core::{Device, Tensor};

use super::generator::Generator;
use base::error::{Result, refuse_too_large};
use config::{
    Config, DrawInputs, End, Init, Input, OutputGradient, PositionTerm, Recurrence, Settings,
    Sizes, Start,
};
use program::{Given, Name, Projection, Size};

/// Draws X (batch, `seq_len`, `d_in`), in cross attention the memory (batch, `kv_len`, `d_memory`), the weights (out, in)
/// and biases (out) of the four projections and, with dropout, the keep-mask (batch, heads, query, key), bit for bit as
/// PyTorch does after `torch.manual_seed`.
///
/// X comes first, then the memory; or, of a run that starts there, queries, keys and values in their place and in that of
/// their projections. Of these, those that settings name a file for are not drawn, unless [`DrawInputs::All`] are; weights
/// and masks are drawn even if they are given, as modules are made before a checkpoint is loaded. What a run ends before is not drawn. With
/// [`Init::Linear`] the modules q, k, v, o follow and dropout draws last, in the forward pass. With [`Init::XavierUniform`]
/// q, k and v are constructed, their weights redrawn, and o comes after dropout. The projection of a gate comes behind o.
/// The learned key and value of `add_bias_kv`, and the embeddings of relative positions, come behind the weights that are drawn
/// before dropout; their projections behind those of tokens.
///
/// # Errors
/// If a tensor cannot be made.
pub fn draw(config: &Config) -> Result<Given> {
    let [.., output] = Name::PROJECTIONS;
    let generator = Generator::of_cpu(config.plain.seed.0, config.plain.torch_cpu);
    let mut drawn = Drawn { generator, config, tensors: Given::new() };
    let (inputs, projections): (&[Name], Vec<Projection>) = match config.start {
        Start::Inputs if config.sizes.d_memory_v.is_some() => {
            (&[Name::X, Name::Memory, Name::MemoryV], inputs(config))
        }
        Start::Inputs if config.sizes.is_cross => (&[Name::X, Name::Memory], inputs(config)),
        Start::Inputs => (&[Name::X], inputs(config)),
        start => (start.given(), Vec::new()),
    };
    let projections = [projections, of_positions(config)].concat();
    let output = Some(output).filter(|_| config.end == End::Output);
    let gate = output.and(config.plain.gate).map(|_| Name::GATE);
    let are_all = config.plain.draw_inputs == DrawInputs::All;
    let settings = Settings::from(config);
    for name in inputs.iter().filter(|name| are_all || !settings.name_file_of(**name)) {
        drawn.tokens(*name)?;
    }
    if let Some(recurrence) = config.plain.recurrence {
        for name in [Name::G, Name::Beta] {
            let is_given = !are_all && settings.name_file_of(name);
            if !is_given && (name != Name::G || recurrence != Recurrence::Delta) {
                drawn.of_recurrence(name, recurrence)?;
            }
        }
    }
    for projection in &projections {
        drawn.linear(*projection)?;
    }
    match config.plain.init {
        Init::Linear => {
            output.map_or(Ok(()), |output| drawn.linear(output))?;
            gate.map_or(Ok(()), |gate| drawn.linear(gate))?;
            drawn.bias_kv()?;
            drawn.rel_embeddings()?;
            drawn.dropout_keep()?;
        }
        Init::XavierUniform => {
            for (weight, _) in &projections {
                drawn.xavier(*weight)?;
            }
            drawn.bias_kv()?;
            drawn.rel_embeddings()?;
            drawn.dropout_keep()?;
            for projection in output.into_iter().chain(gate) {
                drawn.linear(projection)?;
            }
            for (weight, _) in output.into_iter().chain(gate) {
                drawn.xavier(weight)?;
            }
        }
    }
    drawn.output_gradient()?;
    Ok(drawn.tensors)
}

/// The projections of relative positions: their own, or where they share those of tokens and none are made, these.
fn of_positions(config: &Config) -> Vec<Projection> {
    let is_shared = config.plain.share_att_key;
    let [of_keys, of_queries] = Name::OF_POSITIONS;
    let [query, key, ..] = Name::PROJECTIONS;
    let all = [(PositionTerm::C2p, of_keys, key), (PositionTerm::P2c, of_queries, query)];
    let own = all.into_iter().filter(|(term, ..)| config.has_term(*term));
    let own = own.filter(|_| !is_shared || config.start != Start::Inputs);
    own.map(|(_, own, of_tokens)| if is_shared { of_tokens } else { own }).collect()
}

/// The projections of the inputs in the order in which they are made: those of latents before what is projected from them.
fn inputs(config: &Config) -> Vec<Projection> {
    let [query, key, value, _] = Name::PROJECTIONS;
    let [of_queries, of_keys, shared] = Name::LATENT;
    let Some(latent) = config.sizes.latent else {
        return match (config.plain.shared_kv.is_some(), config.plain.k_eq_v) {
            (true, _) => vec![query],
            (false, true) => vec![query, key],
            (false, false) => vec![query, key, value],
        };
    };
    let of_queries = latent.queries.map(|_| of_queries);
    let shared = Some(shared).filter(|_| latent.shared > 0);
    let of_keys = [Some(of_keys), shared, Some(key), Some(value)];
    [of_queries, Some(query)].into_iter().chain(of_keys).flatten().collect()
}

struct Drawn<'a> {
    generator: Generator,
    config: &'a Config,
    tensors: Given,
}

impl Drawn<'_> {
    /// The shape that a step has in every run of the config.
    fn shape(&self, name: Name) -> Vec<usize> {
        name.row().sizes.iter().map(|size| self.config.sizes.of(*size)).collect()
    }

    /// Refuses what this process cannot hold: what is drawn need not be of the run, which may end before.
    fn has_room(&self, name: Name) -> Result<()> {
        let sizes = self.shape(name).into_iter();
        let count = sizes.fold(1, |count: u128, size| count.saturating_mul(size as u128));
        // As f32, and in the type of the run.
        refuse_too_large(count.saturating_mul(12))
    }

    fn tokens(&mut self, name: Name) -> Result<()> {
        self.has_room(name)?;
        let count = self.shape(name).iter().product();
        let values = match self.config.plain.input {
            Input::Randn => self.generator.randn(count),
            Input::Rand => self.generator.rand(count),
        };
        self.put(name, values)
    }

    /// What a recurrence has of every token, from 0 to 1: β as it is drawn, and the logarithm of the decay with the other sign.
    fn of_recurrence(&mut self, name: Name, recurrence: Recurrence) -> Result<()> {
        self.has_room(name)?;
        let mut shape = self.shape(name);
        if name == Name::G && recurrence != Recurrence::Kda {
            shape.pop();
        }
        let numbers = self.generator.rand(shape.iter().product());
        let sign = if name == Name::G { -1.0 } else { 1.0 };
        let numbers: Vec<f32> = numbers.into_iter().map(|number| sign * number).collect();
        let tensor = Tensor::from_vec(numbers, shape, &Device::Cpu)?;
        self.tensors.insert(name, tensor.to_dtype(self.config.dtype.into())?);
        Ok(())
    }

    /// The outputs and inputs of a projection.
    fn features(&self, weight: Name) -> (usize, usize) {
        match self.shape(weight)[..] {
            [outputs, inputs] => (outputs, inputs),
            _ => (0, 0),
        }
    }

    /// The construction of `nn.Linear`: weight, then bias.
    fn linear(&mut self, (weight, bias): Projection) -> Result<()> {
        self.has_room(weight)?;
        let (outputs, inputs) = self.features(weight);
        let values = self.generator.linear_weight(inputs, outputs);
        self.put(weight, values)?;
        if self.config.plain.bias {
            let values = self.generator.linear_bias(inputs, outputs);
            self.put(bias, values)?;
        }
        Ok(())
    }

    fn xavier(&mut self, weight: Name) -> Result<()> {
        let (outputs, inputs) = self.features(weight);
        let values = self.generator.xavier_uniform(inputs, outputs);
        self.put(weight, values)
    }

    /// The learned key and value, as `nn.MultiheadAttention` draws them.
    fn bias_kv(&mut self) -> Result<()> {
        if self.config.sizes.has_bias_kv {
            for name in [Name::BiasK, Name::BiasV] {
                let width = self.shape(name).iter().product();
                let values = self.generator.xavier_normal(width);
                self.put(name, values)?;
            }
        }
        Ok(())
    }

    /// The embeddings of relative positions, as `nn.Embedding` draws them.
    fn rel_embeddings(&mut self) -> Result<()> {
        if self.config.sizes.positions.is_none() {
            return Ok(());
        }
        self.has_room(Name::RelEmbeddings)?;
        let count = self.shape(Name::RelEmbeddings).iter().product();
        let values = self.generator.randn(count);
        self.put(Name::RelEmbeddings, values)
    }

    /// Dropout of the weights of all queries, of which the computed ones' are kept: those rows are as in a whole run.
    fn dropout_keep(&mut self) -> Result<()> {
        let (sizes, dropout) = (&self.config.sizes, self.config.plain.dropout);
        if dropout == 0.0 {
            return Ok(());
        }
        let Sizes { batch, heads, seq_len, .. } = *sizes;
        let shape = [batch, heads, seq_len, sizes.all_keys()];
        let keep = self.generator.dropout_keep(shape.iter().product(), dropout);
        let bits: Vec<u8> = keep.into_iter().map(u8::from).collect();
        let mut keep = Tensor::from_vec(bits, &shape, &Device::Cpu)?;
        if let Some(rows) = sizes.queries {
            keep = keep.narrow(2, rows.first, rows.count)?.contiguous()?;
        }
        self.tensors.insert(Name::DropoutKeep, keep);
        Ok(())
    }

    /// The gradient that a backward pass starts from, of all queries, of which the computed ones' is kept.
    fn output_gradient(&mut self) -> Result<()> {
        let first = Settings::from(self.config).first_gradient();
        let Some(name) = first.filter(|_| self.config.plain.d_output == OutputGradient::Randn)
        else {
            return Ok(());
        };
        self.has_room(name)?;
        let sizes = &self.config.sizes;
        let at = name.row().sizes.iter().position(|size| *size == Size::Queries);
        let mut shape = self.shape(name);
        if let Some(rows) = at.and_then(|at| shape.get_mut(at)) {
            *rows = sizes.seq_len;
        }
        let numbers = self.generator.randn(shape.iter().product());
        let mut all = Tensor::from_vec(numbers, shape, &Device::Cpu)?;
        if let Some((rows, at)) = sizes.queries.zip(at) {
            all = all.narrow(at, rows.first, rows.count)?.contiguous()?;
        }
        self.tensors.insert(name, all.to_dtype(self.config.dtype.into())?);
        Ok(())
    }

    fn put(&mut self, name: Name, values: Vec<f32>) -> Result<()> {
        let tensor = Tensor::from_vec(values, self.shape(name), &Device::Cpu)?;
        self.tensors.insert(name, tensor.to_dtype(self.config.dtype.into())?);
        Ok(())
    }
}
