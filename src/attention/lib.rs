//! Multi-head attention, as the paper has it.

mod disentangled;
mod keys;
mod masks;
mod pairs;
mod parts;
mod projections;
mod recurrent;

use std::collections::HashMap;

use base::error::Result;
use config::{Config, End, Gate, Norm, NormOver, Plain, QkNorm};
use program::{
    Axes, Axis, Frequencies, Heads, Linear, Map, Name, OVER_HEADS, Op, Program, Rotary, Scaling,
    Size, Temperature, Weighting,
};

/// The shapes of what comes from outside though it could follow from the settings: masks, biases, frequencies.
pub type Outside = HashMap<Name, Vec<usize>>;

/// The program of multi-head attention ("Attention Is All You Need", section 3.2):
/// softmax(Q·Kᵀ / √`d_k`) · V of every head, the heads side by side, times `w_oᵀ`. Of it, what lies between the config's
/// start and its end.
///
/// # Errors
/// If the sizes do not fit each other.
pub fn attention(config: &Config, outside: &Outside) -> Result<Program> {
    let p = Builder { program: Program::default(), config, outside };
    match config.plain.recurrence {
        Some(recurrence) => recurrent::recurrent(p, recurrence),
        None => by_softmax(p),
    }
}

/// The program of a run that weighs values by softmax.
fn by_softmax(mut p: Builder) -> Result<Program> {
    let Builder { config, .. } = p;
    let Config { sizes, plain, .. } = config;

    let x = p.given(Name::X);
    let memory = if sizes.is_cross { p.given(Name::Memory) } else { x };
    let memory_v = sizes.d_memory_v.map_or(memory, |_| p.given(Name::MemoryV));
    let [w_q, w_k, w_v, w_o] = Name::PROJECTIONS.map(|(weight, bias)| p.parameters(weight, bias));
    let bias_kv = sizes.has_bias_kv.then(|| (p.given(Name::BiasK), p.given(Name::BiasV)));
    let latents = p.latents();
    let norm = config.norm.map(|norm| p.of_norm(norm));
    let concat_norm =
        plain.concat_norm.map(|_| (rms_norm(plain.concat_norm_eps), p.given(Name::WConcatNorm)));
    let gate = plain.gate.map(|gate| (gate, p.parameters(Name::WGate, Name::BGate)));
    let of_pairs = p.of_pairs();
    let sinks = plain.sinks.then(|| p.given(Name::Sinks));
    let table = plain.relative_bias.map(|_| p.given(Name::RelativeTable));
    let positions = p.positions();
    let freqs = p.frequencies()?;
    let others = p.others(bias_kv);
    let mask = p.mask()?;
    let mask = p.padded(Name::MaskPadded, mask)?;
    let attn_bias = p.attn_bias(table)?;
    let attn_bias = p.padded(Name::AttnBiasPadded, attn_bias)?;
    let dropout = p.dropout()?;

    let of_latent = [w_k.first().copied(), w_v.first().copied()];
    let ([mut queries, mut keys, mut values], mut shared) =
        p.projected([x, memory, memory_v], [&w_q, &w_k, &w_v], latents)?;
    [queries, keys, values] = p.as_stored([queries, keys, values])?;

    if let Some((norm, of_q, of_k)) = norm.as_ref().filter(|_| !plain.qk_norm_after_rope) {
        queries = p.then(Name::QNorm, normalize(norm, plain), &after(queries, of_q))?;
        keys = p.then(Name::KNorm, normalize(norm, plain), &after(keys, of_k))?;
    }
    if plain.v_norm.is_some() {
        values = p.then(Name::VNorm, rms_norm(plain.v_norm_eps), &[values])?;
    }
    [queries, keys, values] = p.clipped([queries, keys, values])?;
    if let Some(factor) = plain.value_scale {
        values = p.then(Name::VScaled, Scaling::By { factor }, &[values])?;
    }
    ([queries, keys, values], shared) = p.turned([queries, keys, values], shared, freqs)?;
    if let Some(shared) = shared {
        let name = if sizes.absorbs() { Name::KLatent } else { Name::KJoined };
        keys = p.then(name, Heads::Join, &[keys, shared])?;
    }
    if let Some((norm, of_q, of_k)) = norm.filter(|_| plain.qk_norm_after_rope) {
        queries = p.then(Name::QRotNorm, normalize(&norm, plain), &after(queries, &of_q))?;
        keys = p.then(Name::KRotNorm, normalize(&norm, plain), &after(keys, &of_k))?;
    }
    if let Some(temperature) = temperature_factors(config) {
        queries = p.then(Name::QScaled, Scaling::Temperature(temperature), &[queries])?;
    }
    if let (true, Some(w_k)) = (sizes.absorbs(), of_latent[0]) {
        queries = p.absorbed(queries, w_k)?;
    }
    [keys, values] = p.with_others([keys, values], others)?;

    let positions = ([&w_q[..], &w_k[..]], positions);
    let scores = p.scores([queries, keys], positions, attn_bias, mask)?;
    let beside: Vec<usize> = std::iter::once(scores).chain(sinks).collect();
    let mut weights = p.then(Name::Weights, Weighting::softmax(config.empty_rows), &beside)?;
    let mut ends = vec![config.end.step()];
    let parts = config.parts().map(|parts| p.parted(parts, &beside, values)).transpose()?;
    if plain.lse {
        if parts.is_none() {
            p.then(Name::Lse, Weighting::LogSumExp, &beside)?;
        }
        ends.push(Name::Lse);
    }
    if let Some((keep, scale)) = dropout {
        let dropout = Weighting::Dropout { p: plain.dropout };
        weights = p.then(Name::WeightsDropped, dropout, &[weights, keep, scale])?;
        ends.extend((config.end == End::Weights).then_some(Name::WeightsDropped));
    }

    if plain.mean_weights {
        p.then(Name::WeightsMean, Weighting::MeanOverHeads, &[weights])?;
        ends.push(Name::WeightsMean);
    }

    if let Some(of_pairs) = &of_pairs {
        weights = p.subtracted(weights, of_pairs)?;
    }

    let weighted = |p: &mut Builder, name| match parts.clone() {
        Some((op, read)) => p.then(name, op, &read),
        None => p.then(name, Linear::WeightedSum, &[weights, values]),
    };
    let mut head_outputs = match of_latent[1].filter(|_| sizes.absorbs()) {
        Some(w_v) => {
            let of_latent = weighted(&mut p, Name::LatentOutputs)?;
            p.then(Name::HeadOutputs, Linear::Expand, &[of_latent, w_v])?
        }
        None => weighted(&mut p, Name::HeadOutputs)?,
    };
    if let Some(of_pairs) = &of_pairs {
        head_outputs = p.of_one_size(head_outputs, of_pairs)?;
    }
    let mut concat = p.then(Name::Concat, Heads::Merge, &[head_outputs])?;
    concat = p.gated(concat, concat_norm, x, gate)?;
    let to_model = Linear::Project { tokens: Axis::Query, rows: None };
    p.then(Name::Output, to_model, &after(concat, &w_o))?;
    p.ended(&ends)
}

/// The norm of queries and keys.
fn normalize(norm: &Norm, plain: &Plain) -> Scaling {
    let (is_centred, offset) = (norm.kind.is_centred(), norm.kind.offset());
    let over = if plain.qk_norm_over == NormOver::All { OVER_HEADS.to_vec() } else { vec![1] };
    let is_mean = norm.kind != QkNorm::L2;
    let norm = program::Norm { is_centred, offset, over, is_mean, ..program::Norm::rms(norm.eps) };
    Scaling::Norm(norm)
}

/// An RMS norm of rows.
fn rms_norm(eps: f64) -> Scaling {
    Scaling::Norm(program::Norm::rms(eps))
}

/// The factors of queries from the first computed one on, by its position.
fn temperature_factors(config: &Config) -> Option<Temperature> {
    let Plain { q_temperature, q_temperature_floor, q_temperature_offset, .. } = config.plain;
    let scale = q_temperature?;
    let from = config.rope.as_ref().map_or(config.sizes.past_len, |rope| rope.offset);
    // Of a token with several it is that of time.
    let places = config.places().map(|places| places.of_section(0));
    let floor = q_temperature_floor as f64;
    let first = from + config.sizes.first_query();
    let offset = q_temperature_offset;
    Some(Temperature { scale, floor, first, places, offset, is_floored: true })
}

fn after(x: usize, parameters: &[usize]) -> Vec<usize> {
    std::iter::once(x).chain(parameters.iter().copied()).collect()
}

/// A program that is being laid out.
struct Builder<'a> {
    program: Program,
    config: &'a Config,
    outside: &'a Outside,
}

impl Builder<'_> {
    /// The axes that a step has in every run of this config.
    fn axes(&self, name: Name) -> Axes {
        let dim = |size: &Size| (size.axis(), self.config.sizes.of(*size));
        Axes::new(name.row().sizes.iter().map(dim).collect::<Vec<_>>())
    }

    /// The program between the config's start and these ends, with its backward pass where there is one.
    fn ended(self, ends: &[Name]) -> Result<Program> {
        let Config { plain, start, end, .. } = self.config;
        let program = self.program.between(start.given(), ends);
        if !plain.backward {
            return Ok(program);
        }
        let wanted = plain.wrt.iter().flatten().filter_map(|name| Name::in_files(name));
        program.backward(end.step(), &wanted.collect::<Vec<_>>())
    }

    fn given(&mut self, name: Name) -> usize {
        let axes = self.axes(name);
        self.program.given(name, axes)
    }

    /// A norm, and its weight and bias of queries and of keys as far as it has them: with an axis for the heads unless all
    /// share them.
    fn of_norm(&mut self, norm: Norm) -> (Norm, Vec<usize>, Vec<usize>) {
        let mut given = |weight: Name, bias: Name| {
            let weight = norm.kind.has_weight().then_some(weight);
            let names = weight.into_iter().chain((norm.kind == QkNorm::Layer).then_some(bias));
            let given = names.map(|name| {
                let axes = self.axes(name);
                let shape = axes.shape();
                let is_shared = self.config.plain.qk_norm_over == NormOver::Head;
                let own = if is_shared { shape.get(1..).unwrap_or(&shape) } else { &shape };
                let axes = axes.last_of(own);
                self.program.given(name, axes)
            });
            given.collect()
        };
        (norm, given(Name::WQNorm, Name::BQNorm), given(Name::WKNorm, Name::BKNorm))
    }

    fn then(&mut self, name: Name, op: impl Into<Op>, inputs: &[usize]) -> Result<usize> {
        self.program.then(name, op, inputs)
    }

    /// What follows from the settings, unless it comes from outside.
    fn setting(&mut self, name: Name, op: impl Into<Op>, inputs: &[usize]) -> Result<usize> {
        match self.given_outside(name) {
            Some(given) => Ok(given),
            None => self.then(name, op, inputs),
        }
    }

    fn given_outside(&mut self, name: Name) -> Option<usize> {
        let axes = self.axes(name).last_of(self.outside.get(&name)?);
        Some(self.program.given(name, axes))
    }

    /// The weight (out, in) of a projection and, where there is one, its bias (out).
    fn parameters(&mut self, weight: Name, bias: Name) -> Vec<usize> {
        let weight = self.given(weight);
        let bias = self.config.plain.bias.then(|| self.given(bias));
        std::iter::once(weight).chain(bias).collect()
    }

    /// Queries, keys and values within the limit, if there is one.
    fn clipped(&mut self, heads: [usize; 3]) -> Result<[usize; 3]> {
        let Some(limit) = self.config.plain.clip_qkv else { return Ok(heads) };
        let [queries, keys, values] = heads;
        Ok([
            self.then(Name::QClipped, Scaling::Clip { limit }, &[queries])?,
            self.then(Name::KClipped, Scaling::Clip { limit }, &[keys])?,
            self.then(Name::VClipped, Scaling::Clip { limit }, &[values])?,
        ])
    }

    /// Queries and keys turned by their positions, and values where these turn too; of a shared key that alone.
    fn turned(
        &mut self,
        [queries, mut keys, mut values]: [usize; 3],
        mut shared: Option<usize>,
        freqs: Option<usize>,
    ) -> Result<([usize; 3], Option<usize>)> {
        let Some((rope, freqs)) = self.config.rope.as_ref().zip(freqs) else {
            return Ok(([queries, keys, values], shared));
        };
        let rotate = |first| Rotary::Rotate(rope.rotate(first));
        let first = self.config.sizes.first_query();
        let queries = self.then(Name::QRot, rotate(first), &[queries, freqs])?;
        match &mut shared {
            Some(shared) => *shared = self.then(Name::KRRot, rotate(0), &[*shared, freqs])?,
            None => keys = self.then(Name::KRot, rotate(0), &[keys, freqs])?,
        }
        if rope.turns_values {
            values = self.then(Name::VRot, rotate(0), &[values, freqs])?;
        }
        Ok(([queries, keys, values], shared))
    }

    /// The heads side by side after their norm, and times what the gate lets through.
    fn gated(
        &mut self,
        mut concat: usize,
        norm: Option<(Scaling, usize)>,
        x: usize,
        gate: Option<(Gate, Vec<usize>)>,
    ) -> Result<usize> {
        if let Some((norm, weight)) = norm {
            concat = self.then(Name::ConcatNorm, norm, &[concat, weight])?;
        }
        if let Some((gate, w_gate)) = gate {
            let map = match gate {
                Gate::Sigmoid => Map::Sigmoid,
                Gate::Softplus => Map::Softplus,
            };
            let of_x = Linear::Project { tokens: Axis::Query, rows: self.config.sizes.queries };
            let gate = self.then(Name::Gate, of_x, &after(x, &w_gate))?;
            let op = Scaling::Gate { map };
            concat = self.then(Name::ConcatGated, op, &[concat, gate])?;
        }
        Ok(concat)
    }

    /// Which weights dropout keeps, and the scale of those.
    fn dropout(&mut self) -> Result<Option<(usize, usize)>> {
        let p = self.config.plain.dropout;
        if p <= 0.0 {
            return Ok(None);
        }
        let keep = self.given(Name::DropoutKeep);
        Ok(Some((keep, self.setting(Name::DropoutScale, Weighting::DropoutScale { p }, &[])?)))
    }

    fn frequencies(&mut self) -> Result<Option<usize>> {
        let config = self.config;
        let Some(rope) = &config.rope else { return Ok(None) };
        let frequencies = Frequencies {
            dims: rope.dims,
            base: rope.base,
            scaling: rope.scaling.clone(),
            positions: rope.positions,
            dtype: config.dtype.into(),
        };
        self.setting(Name::RopeFreqs, Rotary::Frequencies(frequencies), &[]).map(Some)
    }
}
