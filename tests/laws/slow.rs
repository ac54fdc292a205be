//! Attention again, slow and obvious: f64 and plain loops, one batch item, head and query at a time. Of the trace it
//! reads the given steps alone, and of those not the masks that follow from the config.

use std::collections::HashMap;

use mha_trace::config::{
    AlibiForm, CausalAlign, Config, DType, EmptyRow, Gate, Mask, NormOver, Pairing, PositionTerm,
    QkNorm, RelativeBias, SectionOrder, Sizes,
};
use mha_trace::program::dropout_scale;
use mha_trace::{Run, Settings, Trace};
use proptest::prelude::*;

use super::common::values;
use super::reading::{given, value, worst};
use super::strategy::cases;

struct Slow<'a> {
    config: &'a Config,
    /// The shapes and values of the given steps.
    given: HashMap<&'a str, (&'a [usize], Vec<f64>)>,
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a handful of features, heads and tokens; bf16 is cut out of f32"
)]
impl<'a> Slow<'a> {
    fn new(run: &'a Run, trace: &'a Trace) -> Self {
        let given =
            given(trace).map(|step| (step.name.as_str(), (step.value.dims(), values(&step.value))));
        Self { config: run.config(), given: given.collect() }
    }

    fn numbers(&self, name: &str) -> Option<&[f64]> {
        self.given.get(name).map(|(_, numbers)| numbers.as_slice())
    }

    /// The features of a given step at this place of its other axes.
    fn features(&self, name: &str, place: &[usize]) -> &[f64] {
        let (shape, numbers) = &self.given[name];
        let (length, others) = shape.split_last().expect("has axes");
        let at = others.iter().zip(place).fold(0, |at, (size, place)| at * size + place);
        &numbers[at * length..][..*length]
    }

    /// The element of a mask at (item, head, query, key), whatever axes it has.
    fn masked(&self, name: &str, cell: [usize; 4]) -> Option<f64> {
        let (shape, numbers) = self.given.get(name)?;
        let skipped = cell.len() - shape.len();
        let sizes = shape.iter().zip(&cell[skipped..]);
        Some(numbers[sizes.fold(0, |index, (size, at)| index * size + at % size)])
    }

    /// A vector times the weight of a projection, plus its bias.
    fn project(&self, vector: &[f64], name: &str) -> Vec<f64> {
        let weight = self.numbers(&format!("w_{name}")).expect("every run has its weights");
        let bias = self.numbers(&format!("b_{name}"));
        let feature = |(out, row): (usize, &[f64])| {
            let products = row.iter().zip(vector).map(|(w, x)| w * x);
            bias.map_or(0.0, |bias| bias[out]) + products.sum::<f64>()
        };
        weight.chunks(vector.len()).enumerate().map(feature).collect()
    }

    /// The features of a token of `input` that are projected, or of their latent, normalised.
    fn source(&self, name: &str, input: &str, [item, token]: [usize; 2]) -> Vec<f64> {
        let features = self.features(input, &[item, token]);
        let latent = self.config.sizes.latent;
        let (down, norm) = match (name, latent.and_then(|latent| latent.queries)) {
            ("k" | "v", _) if latent.is_some() => ("dkv", "w_c_kv_norm"),
            ("q", Some(_)) => ("dq", "w_c_q_norm"),
            _ => return features.to_vec(),
        };
        let latent = self.project(features, down);
        let squares: f64 = latent.iter().map(|x| x * x).sum();
        let root = (squares / latent.len() as f64 + self.config.plain.lora_norm_eps).sqrt();
        let weight = self.numbers(norm).expect("given");
        latent.iter().zip(weight).map(|(x, w)| x / root * w).collect()
    }

    /// A head of a projected token of `input`.
    fn head(&self, name: &str, input: &str, [item, token, head]: [usize; 3]) -> Vec<f64> {
        let all = self.project(&self.source(name, input, [item, token]), name);
        let sizes = &self.config.sizes;
        let shared = sizes.latent.map_or(0, |latent| latent.shared);
        let size = match name {
            "k" => sizes.head_dim - shared,
            "v" => sizes.v_head_dim,
            _ => sizes.head_dim,
        };
        all[head * size..][..size].to_vec()
    }

    /// The head of a token's features, normalised; `all` are those of all its heads, which some norms run over.
    fn normed(&self, vector: Vec<f64>, all: &[f64], name: &str, head: usize) -> Vec<f64> {
        let Some(norm) = self.config.norm else { return vector };
        let one = |parameter: String, otherwise: f64| {
            let own = self.given.get(parameter.as_str()).map(|(shape, numbers)| {
                let own = if shape.len() == 2 { head } else { 0 };
                numbers[own * vector.len()..][..vector.len()].to_vec()
            });
            own.unwrap_or_else(|| vec![otherwise; vector.len()])
        };
        let (weight, bias) =
            (one(format!("w_{name}_norm"), 1.0), one(format!("b_{name}_norm"), 0.0));
        let offset = if norm.kind == QkNorm::RmsPlusOne { 1.0 } else { 0.0 };
        let over = if self.config.plain.qk_norm_over == NormOver::All { all } else { &vector };
        let is_layer = matches!(norm.kind, QkNorm::Layer | QkNorm::LayerNoBias);
        let mean = if is_layer { over.iter().sum::<f64>() / over.len() as f64 } else { 0.0 };
        let squares = over.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        let of = if norm.kind == QkNorm::L2 { 1.0 } else { over.len() as f64 };
        let root = (squares / of + norm.eps).sqrt();
        let parameters = weight.iter().zip(&bias);
        let normed = vector.iter().zip(parameters);
        normed.map(|(x, (w, b))| (x - mean) / root * (w + offset) + b).collect()
    }

    fn clipped(&self, vector: Vec<f64>) -> Vec<f64> {
        let limit = self.config.plain.clip_qkv.unwrap_or(f64::INFINITY);
        vector.into_iter().map(|x| x.max(-limit).min(limit)).collect()
    }

    /// A head's query or key of a token.
    fn vector(&self, name: &str, input: &str, [item, token, head]: [usize; 3]) -> Vec<f64> {
        let all = self.project(&self.source(name, input, [item, token]), name);
        let mut vector = self.head(name, input, [item, token, head]);
        let is_after = self.config.plain.qk_norm_after_rope;
        if !is_after {
            vector = self.normed(vector, &all, name, head);
        }
        vector = self.clipped(vector);
        if name == "k" && self.config.sizes.latent.is_some_and(|latent| latent.shared > 0) {
            let shared = self.project(self.features(input, &[item, token]), "kr");
            vector.extend(self.turned(shared, item, token));
        } else {
            vector = self.turned(vector, item, token);
        }
        if is_after { self.normed(vector, &[], name, head) } else { vector }
    }

    /// A head's vector of a token of x, at its position.
    fn turned(&self, mut vector: Vec<f64>, item: usize, token: usize) -> Vec<f64> {
        let Some(rope) = &self.config.rope else { return vector };
        let freqs = self.numbers("rope_freqs").expect("rotation has frequencies");
        let start = if rope.at_end { vector.len() - 2 * freqs.len() } else { 0 };
        for (pair, freq) in freqs.iter().enumerate() {
            let (first, second) = match rope.pairing {
                Pairing::Half => (pair, pair + freqs.len()),
                Pairing::Interleaved => (2 * pair, 2 * pair + 1),
            };
            let position = self.position(item, token, pair).unwrap_or(rope.offset + token);
            let sign = if rope.backwards { -1.0 } else { 1.0 };
            let angle = sign * position as f64 * freq;
            let (first, second) = (start + first, start + second);
            let (a, b) = (vector[first], vector[second]);
            vector[first] = (a * angle.cos() - b * angle.sin()) * rope.factor();
            vector[second] = (a * angle.sin() + b * angle.cos()) * rope.factor();
        }
        vector
    }

    /// The position that a pair is turned by, where positions are given.
    fn position(&self, item: usize, token: usize, pair: usize) -> Option<usize> {
        let settings = Settings::from(self.config);
        let rows = &settings.positions?.0;
        let sections = settings.rope_sections.unwrap_or_default();
        let section = match (rows.len(), settings.rope_section_order.unwrap_or_default()) {
            (1, _) => 0,
            (_, SectionOrder::Interleaved) => {
                let own = pair % 3;
                if pair < 3 * sections[own] { own } else { 0 }
            }
            _ => usize::from(pair >= sections[0]) + usize::from(pair >= sections[0] + sections[1]),
        };
        let items = &rows[section];
        Some(items[item % items.len()][token])
    }

    fn query(&self, item: usize, token: usize, head: usize) -> Vec<f64> {
        let mut vector = self.vector("q", "x", [item, token, head]);
        let plain = &self.config.plain;
        if let Some(scale) = plain.q_temperature {
            let past = self.config.sizes.past_len;
            let from = self.config.rope.as_ref().map_or(past, |rope| rope.offset);
            let time = Settings::from(self.config).positions.map(|all| {
                let items = &all.0[0];
                items[item % items.len()][token]
            });
            let position = time.unwrap_or(from + token);
            let steps = (position + plain.q_temperature_offset) / plain.q_temperature_floor;
            for x in &mut vector {
                *x *= 1.0 + scale * (1.0 + steps as f64).ln();
            }
        }
        vector
    }

    fn value_of(&self, input: &str, place: [usize; 3]) -> Vec<f64> {
        let name = if self.config.plain.k_eq_v { "k" } else { "v" };
        let mut vector = self.head(name, input, place);
        if self.config.plain.v_norm.is_some() {
            let eps = self.config.plain.v_norm_eps;
            let squares: f64 = vector.iter().map(|x| x * x).sum();
            let root = (squares / vector.len() as f64 + eps).sqrt();
            for x in &mut vector {
                *x /= root;
            }
        }
        let scale = self.config.plain.value_scale.unwrap_or(1.0);
        let scaled = self.clipped(vector).into_iter().map(|x| x * scale).collect();
        match &self.config.rope {
            Some(rope) if rope.turns_values => self.turned(scaled, place[0], place[1]),
            _ => scaled,
        }
    }

    /// The heads side by side, as they go into the output projection.
    fn gated(&self, mut concat: Vec<f64>, item: usize, token: usize) -> Vec<f64> {
        if self.config.plain.concat_norm.is_some() {
            let eps = self.config.plain.concat_norm_eps;
            let squares: f64 = concat.iter().map(|x| x * x).sum();
            let root = (squares / concat.len() as f64 + eps).sqrt();
            let weight = self.numbers("w_concat_norm").expect("given");
            for (x, w) in concat.iter_mut().zip(weight) {
                *x = *x / root * w;
            }
        }
        if let Some(kind) = self.config.plain.gate {
            let gate = self.project(self.features("x", &[item, token]), "gate");
            for (x, gate) in concat.iter_mut().zip(gate) {
                *x *= match kind {
                    Gate::Sigmoid => 1.0 / (1.0 + (-gate).exp()),
                    Gate::Softplus => (1.0 + gate.exp()).ln(),
                };
            }
        }
        concat
    }

    /// The keys of a key head, those of the cache first, and the values of a value head: there are as many or fewer.
    fn keys_and_values(&self, item: usize, head: usize) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
        let sizes = &self.config.sizes;
        let input = if sizes.is_cross { "memory" } else { "x" };
        let of_values = if sizes.d_memory_v.is_some() { "memory_v" } else { input };
        let cached = |name| {
            let of = move |at| self.features(name, &[item, head, at]).to_vec();
            (0..self.config.sizes.past_len).map(of)
        };
        let tokens = 0..self.config.sizes.own_keys;
        let key = |token| self.vector("k", input, [item, token, head]);
        let keys = cached("k_past").chain(tokens.clone().map(key));
        let tokens = if head < self.pairs(sizes.kv_heads) { tokens } else { 0..0 };
        let values = tokens.map(|token| self.value_of(of_values, [item, token, head]));
        let shared = |name| {
            let of = move |at| self.features(name, &[item, head, at]).to_vec();
            (0..sizes.own_keys).map(of).collect::<Vec<_>>()
        };
        let (keys, values) = if self.config.plain.shared_kv.is_some() {
            (cached("k_past").chain(shared("k_shared")).collect::<Vec<_>>(), shared("v_shared"))
        } else {
            (keys.collect(), values.collect())
        };
        let added = |name, size: usize| {
            let of_head = |all: &[f64]| Some(all.get(head * size..)?.get(..size)?.to_vec());
            let learned = self.numbers(name).and_then(of_head);
            learned.into_iter().chain(sizes.has_zero_attn.then(|| vec![0.0; size]))
        };
        let keys = keys.into_iter().chain(added("bias_k", sizes.head_dim));
        let values = cached("v_past").chain(values).chain(added("bias_v", sizes.v_head_dim));
        (keys.collect(), values.collect())
    }

    fn is_blocked(&self, item: usize, token: usize, key: usize) -> bool {
        let c = self.config;
        let is_padding =
            c.masks.key_mask.as_ref().is_some_and(|rows| rows[item].as_bytes()[key] == b'0')
                || c.plain.lengths.as_ref().is_some_and(|lengths| key >= lengths[item]);
        // Bottom-right, the last token sees the last key: token + keys − tokens is the last that this one sees.
        let (keys, tokens) = match (c.plain.causal_align, c.sizes.is_cross) {
            (Some(CausalAlign::TopLeft), _) | (None, true) => (0, 0),
            _ => (c.sizes.keys(), c.sizes.seq_len),
        };
        let is_later = key + tokens > token + keys;
        let is_causal = c.masks.between == Mask::Causal;
        let is_outside = c.plain.window.is_some_and(|window| {
            let is_too_early = token + keys >= key + tokens + window;
            is_too_early || (!is_causal && key + tokens >= token + keys + window)
        });
        let is_other =
            c.plain.chunk.is_some_and(|chunk| (token + keys - tokens) / chunk != key / chunk);
        is_padding || (is_causal && is_later) || is_outside || is_other
    }

    /// What is added to a score: the head's slope times the distance, or what a file says.
    fn bias(&self, token: usize, cell @ [_, head, _, key]: [usize; 4]) -> f64 {
        let given = self.masked("attn_bias", cell);
        given.unwrap_or_else(|| self.alibi(token, head, key) + self.relative(token, head, key))
    }

    /// A learned bias. Bucket e + j begins at a distance of e · (max / e)^(j / (n − e)).
    fn relative(&self, token: usize, head: usize, key: usize) -> f64 {
        let plain = &self.config.plain;
        let Some(sort) = plain.relative_bias else { return 0.0 };
        let Sizes { heads, past_len, buckets, .. } = self.config.sizes;
        let (query, all) = (past_len + token, buckets.expect("has a table"));
        let is_both = sort == RelativeBias::Bidirectional;
        let count = if is_both { all / 2 } else { all };
        let apart = if is_both { query.abs_diff(key) } else { query.saturating_sub(key) };
        let exact = count / 2;
        let begins = |bucket: usize| {
            let power = (bucket - exact) as f64 / (count - exact) as f64;
            exact as f64 * (plain.relative_max_distance as f64 / exact as f64).powf(power)
        };
        let far = (exact..count).filter(|bucket| apart as f64 >= begins(*bucket) * (1.0 - 1e-9));
        let bucket = if apart < exact { apart } else { far.max().expect("the first") };
        let later = if is_both && key > query { count } else { 0 };
        self.features("relative_bias_table", &[later + bucket])[..heads][head]
    }

    fn alibi(&self, token: usize, head: usize, key: usize) -> f64 {
        if !self.config.plain.alibi {
            return 0.0;
        }
        let form = self.config.plain.alibi_form;
        let heads = self.config.sizes.heads;
        let power = if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 };
        // Heads beyond a power of two have places halfway between the others'.
        let place = if head < power { head as f64 + 1.0 } else { (head - power) as f64 + 0.5 };
        let slope = (-8.0 * place / power as f64).exp2();
        match form {
            AlibiForm::Paper => -slope * (self.config.sizes.past_len + token).abs_diff(key) as f64,
            AlibiForm::Bloom => slope * key as f64,
            // bf16 has the upper half of the bits of f32, rounded.
            AlibiForm::Falcon | AlibiForm::FalconEager => {
                let narrow = |number: f64| {
                    let bits = (number as f32).to_bits();
                    let up = 0x7fff + (bits >> 16 & 1);
                    f64::from(f32::from_bits((bits + up) & 0xffff_0000))
                };
                let times = if form == AlibiForm::FalconEager { 2.0 } else { 1.0 };
                narrow(narrow(slope) * narrow(key as f64)) * self.config.scale_factor() * times
            }
            AlibiForm::Mpt => slope * (key as f64 - (self.config.sizes.keys() - 1) as f64),
        }
    }

    /// The embedding of a distance, normalised.
    fn embedding(&self, token: usize, key: usize) -> Vec<f64> {
        let plain = &self.config.plain;
        let positions = self.config.sizes.positions.expect("has relative positions");
        let (span, apart, exact) = (positions.span, token.abs_diff(key), positions.span / 2);
        let place = if plain.position_buckets.is_none() || apart <= exact {
            apart
        } else {
            let whole = ((positions.max_distance - 1) as f64 / exact as f64).ln();
            let share = (apart as f64 / exact as f64).ln() / whole;
            exact + (share * (exact - 1) as f64 - 1e-9).ceil() as usize
        };
        let row = if key > token { span.saturating_sub(place) } else { span + place };
        let own = self.features("rel_embeddings", &[0, row.min(2 * span - 1)]).to_vec();
        let Some(eps) = plain.rel_norm_eps else { return own };
        let mean = own.iter().sum::<f64>() / own.len() as f64;
        let squares = own.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        let root = (squares / own.len() as f64 + eps).sqrt();
        let parameter = |name| self.numbers(name).expect("given");
        let parameters = parameter("w_rel_norm").iter().zip(parameter("b_rel_norm"));
        own.iter().zip(parameters).map(|(x, (w, b))| (x - mean) / root * w + b).collect()
    }

    /// What the relative position of a query and a key adds to their product.
    fn of_positions(&self, [token, head, at]: [usize; 3], query: &[f64], key: &[f64]) -> f64 {
        let plain = &self.config.plain;
        let term = |term: &PositionTerm| {
            let (name, vector) = if *term == PositionTerm::C2p { ("k", query) } else { ("q", key) };
            let name = if plain.share_att_key { name.into() } else { format!("pos_{name}") };
            let all = self.project(&self.embedding(token, at), &name);
            let own = &all[head * vector.len()..][..vector.len()];
            own.iter().zip(vector).map(|(position, x)| position * x).sum::<f64>()
        };
        plain.disentangled.iter().flatten().map(term).sum()
    }

    fn weights(&self, scores: &[f64], head: usize) -> Vec<f64> {
        let sink = self.numbers("sinks").map(|sinks| sinks[head]);
        let all: Vec<f64> = scores.iter().copied().chain(sink).collect();
        let largest = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if largest == f64::NEG_INFINITY {
            let value = if self.config.empty_rows == EmptyRow::Zero { 0.0 } else { f64::NAN };
            return vec![value; scores.len()];
        }
        let sum: f64 = all.iter().map(|score| (score - largest).exp()).sum();
        scores.iter().map(|score| (score - largest).exp() / sum).collect()
    }

    /// As many heads, or half as many where two of them make one.
    fn pairs(&self, heads: usize) -> usize {
        if self.config.plain.lambda_init.is_some() { heads / 2 } else { heads }
    }

    /// The weights of a head for the computed query `row`, which is of `token`, after dropout.
    fn dropped(&self, [item, head, row, token]: [usize; 4], keys: &[Vec<f64>]) -> Vec<f64> {
        let c = self.config;
        let query = self.query(item, token, head);
        let score = |(at, key): (usize, &Vec<f64>)| {
            let dot: f64 = query.iter().zip(key).map(|(q, k)| q * k).sum();
            let terms = 1 + c.plain.disentangled.as_ref().map_or(0, Vec::len);
            let root = (c.sizes.head_dim as f64 * terms as f64).sqrt();
            let scaled = |dot: f64| c.plain.scale.map_or(dot / root, |scale| dot * scale);
            let of_positions = scaled(self.of_positions([token, head, at], &query, key));
            let scaled = scaled(dot);
            let capped = c.plain.softcap.map_or(scaled, |cap| cap * (scaled / cap).tanh());
            let capped = capped + of_positions;
            // Masks and biases are of tokens.
            if at >= c.sizes.keys() {
                return capped;
            }
            let biased = capped + self.bias(token, [item, head, row, at]);
            if self.is_blocked(item, token, at) { c.masks.fill.0 } else { biased }
        };
        let scores: Vec<f64> = keys.iter().enumerate().map(score).collect();
        let kept = |(at, weight)| {
            let keep = self.masked("dropout_keep", [item, head, row, at]);
            keep.map_or(weight, |keep| weight * (keep * f64::from(dropout_scale(c.plain.dropout))))
        };
        self.weights(&scores, head).into_iter().enumerate().map(kept).collect()
    }

    /// λ of differential attention.
    fn lambda(&self, init: f64) -> f64 {
        let vector = |name| self.numbers(name).expect("given");
        let exponential = |q, k| {
            let products = vector(q).iter().zip(vector(k)).map(|(q, k)| q * k);
            products.sum::<f64>().exp()
        };
        exponential("lambda_q1", "lambda_k1") - exponential("lambda_q2", "lambda_k2") + init
    }

    /// A head's output of these weights; of pairs normalised and scaled.
    fn head_output(&self, weights: &[f64], values: &[Vec<f64>]) -> Vec<f64> {
        let mut output = vec![0.0; self.config.sizes.v_head_dim];
        for (weight, value) in weights.iter().zip(values) {
            for (sum, value) in output.iter_mut().zip(value) {
                *sum += weight * value;
            }
        }
        let Some(init) = self.config.plain.lambda_init else { return output };
        let squares: f64 = output.iter().map(|x| x * x).sum();
        let root = (squares / output.len() as f64 + self.config.plain.head_norm_eps).sqrt();
        let weight = self.numbers("w_head_norm").expect("given");
        output.iter().zip(weight).map(|(x, w)| x / root * w * (1.0 - init)).collect()
    }

    fn output(&self) -> Vec<f64> {
        let &Sizes { batch, heads, kv_heads, seq_len, queries, .. } = &self.config.sizes;
        let tokens = queries.map_or(0..seq_len, |rows| rows.first..rows.first + rows.count);
        let mut output = Vec::new();
        for item in 0..batch {
            let groups: Vec<_> =
                (0..kv_heads).map(|head| self.keys_and_values(item, head)).collect();
            for (row, token) in tokens.clone().enumerate() {
                let shared = heads / kv_heads;
                let weights =
                    |head| self.dropped([item, head, row, token], &groups[head / shared].0);
                let of_head = |head: usize| {
                    let weights = match self.config.plain.lambda_init {
                        None => weights(head),
                        Some(init) => {
                            let both = weights(2 * head).into_iter().zip(weights(2 * head + 1));
                            both.map(|(one, other)| one - self.lambda(init) * other).collect()
                        }
                    };
                    self.head_output(&weights, &groups[head / shared].1)
                };
                let concat: Vec<f64> = (0..self.pairs(heads)).flat_map(of_head).collect();
                output.extend(self.project(&self.gated(concat, item, token), "o"));
            }
        }
        output
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_slow_attention_agrees(case in cases()) {
        let run = case.run_with(Vec::new());
        let trace = run.trace().expect("the case runs");
        // Some hundred additions of numbers below 10³, rounded to 2⁻⁵³ or 2⁻²⁴ of their size, amplified by exp
        // by no more than the scores' size; an angle of some hundred turns is rounded likewise, and a norm amplifies
        // a head near 0 by no more than 1/√ε.
        let tolerance = if run.config().dtype == DType::F64 { 1e-11 } else { 1e-3 };
        let worst = worst(&values(value(&trace, "output")), &Slow::new(&run, &trace).output());
        prop_assert!(worst <= tolerance, "{worst:e}");
    }
}
