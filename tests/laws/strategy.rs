//! Random settings and the runs that they make, all sizes varying on their own.

use candle_core::{Device, Tensor};
use mha_trace::config::{
    AlibiForm, CausalAlign, DType, EmptyRow, Fill, Gate, Init, Input, Mask, NormOver, OtherNorm,
    Pairing, PositionTerm, Positions, QkNorm, RelativeBias, RopeScaling, SectionOrder, Seed,
    Setting,
};
use mha_trace::file::{Entry, Record};
use mha_trace::program::{Llama3, Longrope, Proportional, Yarn};
use mha_trace::{Run, Settings, Sources, Trace};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::sample::select;

use super::reading;

/// A run's settings, and what it is given.
#[derive(Debug, Clone)]
pub struct Case {
    pub settings: Settings,
    /// Parameters of norms, sinks, frequencies and a cache, where the run has them.
    pub given: Vec<Entry>,
    /// A float mask over (query, key) in some, for all queries, computed or not.
    pub attn_bias: Option<Vec<f32>>,
}

impl Case {
    /// The run, with these tensors in place of its own.
    pub fn run_with(&self, given: Vec<Entry>) -> Run {
        let mut entries = self.given.clone();
        if let Some(values) = &self.attn_bias {
            let tokens = self.settings.seq_len.expect("set");
            let rows = self.settings.queries.map(|queries| queries.of(tokens).expect("rows"));
            let (first, count) = rows.map_or((0, tokens), |rows| (rows.first, rows.count));
            let keys = values.len() / tokens;
            entries.push(entry(
                "attn_bias",
                &values[first * keys..][..count * keys],
                &[count, keys],
            ));
        }
        entries.extend(given);
        let record = Record { config: Some(self.settings.clone()), entries };
        let (settings, sources) =
            Sources::of_record(&record, &Settings::default()).expect("nothing is amiss");
        Run::new(&settings, sources).expect("the case is valid")
    }

    pub fn trace_with(&self, given: Vec<Entry>) -> Trace {
        self.run_with(given).trace().expect("the case runs")
    }

    pub fn trace(&self) -> Trace {
        self.trace_with(Vec::new())
    }

    pub fn has(&self, name: &str) -> bool {
        self.given.iter().any(|entry| entry.name == name)
    }

    /// The same with terms of relative positions, where queries and keys are those of one sequence, as many of each, and
    /// nothing is done to them behind their projections.
    fn with_positions(mut self, own: Option<(Settings, Entry)>) -> Self {
        let own = own.filter(|_| {
            let of = &self.settings;
            of.heads == of.kv_heads && of.kv_len.is_none() && !self.has("k_past")
        });
        let Some((settings, embeddings)) = own else { return self };
        for key in OF_HEADS {
            Setting::named(key).expect("a setting").take_away(&mut self.settings);
        }
        let is_left = |name: &str| {
            let is_of_heads = ["q_norm", "k_norm", "head_norm", "kv_norm", "_shared", "rope_freqs"];
            !name.starts_with("lambda") && !is_of_heads.iter().any(|end| name.ends_with(end))
        };
        self.given.retain(|entry| is_left(&entry.name));
        self.given.push(embeddings);
        self.settings = settings.over(self.settings);
        self
    }

    /// Drops the keys and values of an earlier layer.
    pub fn unshare(&mut self) {
        self.settings.shared_kv = None;
        self.given.retain(|entry| !entry.name.ends_with("_shared"));
    }

    /// Drops all masks but those by position.
    pub fn unmask(&mut self) {
        self.settings.key_mask = None;
        self.settings.lengths = None;
        self.attn_bias = None;
    }
}

/// What is done to queries and keys behind their projections, and what brings keys of other tokens.
const OF_HEADS: [&str; 10] = [
    "kv_lora_rank",
    "shared_kv",
    "add_bias_kv",
    "add_zero_attn",
    "rope",
    "qk_norm",
    "clip_qkv",
    "q_temperature",
    "lambda_init",
    "positions",
];

/// Numbers as a file holds them.
pub fn entry(name: &str, values: &[f32], shape: &[usize]) -> Entry {
    reading::entry(name, Tensor::from_slice(values, shape, &Device::Cpu).expect("the shape fits"))
}

/// Cases in f64, where rounding blurs less.
pub fn wide_cases() -> impl Strategy<Value = Case> {
    cases().prop_map(|mut case| {
        case.settings.dtype = Some(DType::F64);
        case
    })
}

/// Sizes that fit each other.
#[derive(Debug, Clone)]
struct Sizes {
    batch: usize,
    tokens: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    v_head_dim: Option<usize>,
    /// Where it is not heads · `head_dim`.
    d_model: Option<usize>,
    d_in: usize,
    past: usize,
    /// The tokens and features of a second input, in cross attention.
    memory: Option<(usize, usize)>,
}

impl Sizes {
    fn v_head_dim(&self) -> usize {
        self.v_head_dim.unwrap_or(self.head_dim)
    }

    fn keys(&self) -> usize {
        self.past + self.memory.map_or(self.tokens, |(keys, _)| keys)
    }

    fn settings(&self) -> Settings {
        Settings {
            batch: Some(self.batch),
            seq_len: Some(self.tokens),
            heads: Some(self.heads),
            kv_heads: Some(self.kv_heads),
            head_dim: self.d_model.map(|_| self.head_dim),
            v_head_dim: self.v_head_dim,
            d_model: Some(self.d_model.unwrap_or(self.heads * self.head_dim)),
            d_in: Some(self.d_in),
            kv_len: self.memory.map(|(keys, _)| keys),
            d_memory: self.memory.map(|(_, features)| features),
            ..Settings::default()
        }
    }
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let heads = select(vec![(1, 1), (2, 2), (2, 1), (3, 3), (3, 1), (4, 2), (4, 1), (6, 3)]);
    let own = (1..4_usize, 1..7_usize, heads, 1..8_usize, weighted(0.3, 1..14_usize), 1..9_usize);
    let others = prop_oneof![
        4 => Just((0, None)),
        3 => (1..5_usize).prop_map(|past| (past, None)),
        3 => (1..8_usize, 1..9_usize).prop_map(|memory| (0, Some(memory))),
    ];
    let v_head_dim = weighted(0.3, 1..8_usize);
    (own, others, v_head_dim).prop_map(|(own, (past, memory), v_head_dim)| {
        let (batch, tokens, heads, head_dim, d_model, d_in) = own;
        let (heads, kv_heads) = heads;
        Sizes { batch, tokens, heads, kv_heads, head_dim, v_head_dim, d_model, d_in, past, memory }
    })
}

/// Cases of every kind.
pub fn cases() -> impl Strategy<Value = Case> {
    sizes().prop_flat_map(|sizes| {
        let parts = (choices(), masks(&sizes), scores(sizes.keys()));
        let given = (
            norms(&sizes),
            (sinks(sizes.heads), differential(&sizes)),
            rotation(&sizes),
            (past(&sizes), relative(sizes.heads), latent(&sizes), disentangled(sizes.d_in)),
            beside(&sizes),
            of_values(&sizes),
        );
        let head_dim = sizes.head_dim;
        (Just(sizes.settings()), parts, given).prop_map(
            move |(base, (choices, masks, scores), given)| {
                let (masks, attn_bias) = masks;
                let (
                    (norm, norms),
                    ((sink, sinks), pairs),
                    (rope, freqs),
                    others,
                    (beside, more),
                    more_of_values,
                ) = given;
                let (past, relative, latent, positions) = others;
                let (is_same, turns_values, shared) = more_of_values;
                let mut settings = choices.over(masks).over(scores).over(norm).over(sink);
                settings = settings.over(rope).over(beside).over(base);
                // The float mask is given as a run's whole attn_bias, and a window is one of a causal mask.
                let is_causal = settings.mask == Some(Mask::Causal);
                let is_cross = settings.kv_len.is_some();
                let has_biases = attn_bias.is_none() && !is_cross;
                settings.alibi = settings.alibi.filter(|_| has_biases);
                settings.alibi_form = settings.alibi_form.filter(|_| has_biases);
                settings.window = settings.window.filter(|_| is_causal || !is_cross);
                settings.chunk = settings.chunk.filter(|_| !is_cross);
                settings.causal_align = settings.causal_align.filter(|_| is_causal);
                let (relative, table) =
                    if has_biases { relative } else { (Settings::default(), Vec::new()) };
                let latent = latent.map(|latent| with_latent(&settings, head_dim, latent));
                let v_head_dim = settings.v_head_dim.filter(|own| *own != head_dim);
                let is_plain = latent.is_none() && v_head_dim.is_none();
                settings.rope_value =
                    (is_plain && settings.rope.is_some() && turns_values).then_some(true);
                settings.k_eq_v =
                    (is_plain && settings.d_memory_v.is_none() && is_same).then_some(true);
                let shared = shared.filter(|_| latent.is_none() && !is_cross);
                settings.shared_kv = shared.is_some().then(|| "shared.safetensors".into());
                if latent.is_some() {
                    (settings.add_bias_kv, settings.d_memory_v) = (None, None);
                }
                let (mut latent, of_latent) = latent.unwrap_or_default();
                latent.absorb = latent.absorb.filter(|_| past.is_empty());
                let shared = shared.unwrap_or_default();
                // Values are then of other heads than keys.
                let (pairs, vectors) = pairs
                    .filter(|_| is_plain && settings.v_head_dim.is_none())
                    .filter(|_| past.is_empty() && shared.is_empty())
                    .filter(|_| settings.k_eq_v.is_none())
                    .unwrap_or_default();
                let given =
                    [norms, sinks, freqs, past, table, more, of_latent, shared, vectors].concat();
                settings.rope_at_end = settings
                    .rope_at_end
                    .filter(|_| latent.qk_rope_head_dim.is_none_or(|shared| shared == 0));
                let settings = latent.over(relative).over(pairs).over(settings);
                Case { settings, given, attn_bias }.with_positions(positions)
            },
        )
    })
}

/// Masks of keys, a float mask, and the rows that are computed.
fn masks(sizes: &Sizes) -> impl Strategy<Value = (Settings, Option<Vec<f32>>)> + use<> {
    let (tokens, keys) = (sizes.tokens, sizes.keys());
    let rows = vec(vec(prop::bool::ANY, keys), sizes.batch)
        .prop_map(|rows| rows.iter().map(|row| key_row(row)).collect::<Vec<_>>());
    let lengths = vec(0..=keys, sizes.batch);
    let score = prop_oneof![4 => -2.0..2.0_f32, 1 => Just(f32::NEG_INFINITY)];
    let queries = (0..tokens).prop_flat_map(move |first| (Just(first), first + 1..=tokens));
    let align = select(CausalAlign::ALL);
    (
        weighted(0.3, rows),
        weighted(0.3, lengths),
        weighted(0.25, vec(score, tokens * keys)),
        weighted(0.3, queries),
        weighted(0.4, align),
    )
        .prop_map(|(key_mask, lengths, attn_bias, queries, causal_align)| {
            let queries = queries.map(|(from, to)| format!("{from}..{to}").parse().expect("rows"));
            let of = Settings { key_mask, lengths, queries, causal_align, ..Settings::default() };
            (of, attn_bias)
        })
}

/// What later models do to the scores.
fn scores(keys: usize) -> impl Strategy<Value = Settings> {
    let window = weighted(0.3, 1..=keys + 1);
    let softcap = weighted(0.3, 0.5..5.0_f64);
    let scale = weighted(0.3, -0.5..1.5_f64);
    let chunk = weighted(0.2, 1..=keys + 1);
    let form = weighted(0.5, select(AlibiForm::ALL));
    (window, chunk, prop::bool::weighted(0.3), form, softcap, scale).prop_map(
        |(window, chunk, alibi, alibi_form, softcap, scale)| Settings {
            window,
            chunk,
            alibi: Some(alibi),
            alibi_form,
            softcap,
            scale,
            ..Settings::default()
        },
    )
}

/// One score per head that is no key's.
fn sinks(heads: usize) -> impl Strategy<Value = (Settings, Vec<Entry>)> {
    weighted(0.25, vec(-3.0..3.0_f32, heads)).prop_map(move |sinks| {
        let Some(sinks) = sinks else { return Default::default() };
        let settings = Settings { sinks: Some(true), ..Settings::default() };
        (settings, vec![entry("sinks", &sinks, &[heads])])
    })
}

/// Pairs of heads whose weights are subtracted, where heads can be paired.
fn differential(sizes: &Sizes) -> impl Strategy<Value = Option<(Settings, Vec<Entry>)>> + use<> {
    let is_paired = sizes.heads.is_multiple_of(2) && sizes.kv_heads.is_multiple_of(2);
    let head_dim = sizes.head_dim;
    let own = (0.05..0.95_f64, vec(-1.0..1.0_f32, 4 * head_dim), weighted(0.3, 1e-6..0.5_f64));
    weighted(0.4, own).prop_map(move |own| {
        let (lambda_init, vectors, head_norm_eps) = own.filter(|_| is_paired)?;
        let names = ["lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"].into_iter();
        let vectors = names.zip(vectors.chunks(head_dim));
        let entries = vectors.map(|(name, vector)| entry(name, vector, &[head_dim])).collect();
        let lambda_init = Some(lambda_init);
        Some((Settings { lambda_init, head_norm_eps, ..Settings::default() }, entries))
    })
}

/// Learned biases of relative positions, with a table. Distances where a bucket begins are no whole numbers, but for those
/// that are counted one by one: rounding does not tell on which side of it they are.
fn relative(heads: usize) -> impl Strategy<Value = (Settings, Vec<Entry>)> {
    let sort = select(vec![RelativeBias::Bidirectional, RelativeBias::OneSided]);
    let buckets = select(vec![4, 6, 8, 12, 16_usize]);
    let max_distance = select(vec![13, 17, 23, 101]);
    let settings = (sort, buckets, max_distance).prop_flat_map(move |(sort, buckets, most)| {
        let settings = Settings {
            relative_bias: Some(sort),
            relative_buckets: Some(buckets),
            relative_max_distance: Some(most),
            ..Settings::default()
        };
        let table = vec(-2.0..2.0_f32, buckets * heads);
        let table = table
            .prop_map(move |table| vec![entry("relative_bias_table", &table, &[buckets, heads])]);
        (Just(settings), table)
    });
    weighted(0.25, settings).prop_map(Option::unwrap_or_default)
}

/// Terms of relative positions, with their embeddings. Distances where a bucket begins are no whole numbers, but for those of
/// the last.
fn disentangled(d_in: usize) -> impl Strategy<Value = Option<(Settings, Entry)>> {
    let (c2p, p2c) = (PositionTerm::C2p, PositionTerm::P2c);
    let terms = select(vec![vec![c2p], vec![p2c], vec![c2p, p2c]]);
    let buckets = (select(vec![2, 4, 5, 8_usize]), select(vec![7, 13, 30_usize]));
    let positions = prop_oneof![
        (1..7_usize).prop_map(|most| (None, most)),
        buckets.prop_map(|(buckets, most)| (Some(buckets), most)),
    ];
    let eps = weighted(0.5, select(vec![1e-3, 0.1]));
    let settings = (terms, positions, prop::bool::ANY, eps);
    let own = settings.prop_flat_map(move |(terms, (position_buckets, most), is_shared, eps)| {
        let settings = Settings {
            disentangled: Some(terms),
            position_buckets,
            max_relative_positions: Some(most),
            share_att_key: Some(is_shared),
            rel_norm_eps: eps,
            ..Settings::default()
        };
        let rows = 2 * position_buckets.unwrap_or(most);
        let numbers = vec(-2.0..2.0_f32, rows * d_in);
        let shape = [1, rows, d_in];
        (Just(settings), numbers.prop_map(move |own| entry("rel_embeddings", &own, &shape)))
    });
    weighted(0.15, own)
}

fn key_row(row: &[bool]) -> String {
    row.iter().map(|visible| if *visible { '1' } else { '0' }).collect()
}

/// A norm of the heads' queries and keys, with its parameters.
fn norms(sizes: &Sizes) -> impl Strategy<Value = (Settings, Vec<Entry>)> + use<> {
    let Sizes { heads, kv_heads, head_dim, .. } = *sizes;
    let of_heads = [("q", heads), ("k", kv_heads)];
    let numbers = vec(-2.0..2.0_f32, 2 * (heads + kv_heads) * head_dim);
    let eps = weighted(0.7, select(vec![1e-5, 1e-3, 0.1, 1.0]));
    let kind = select(QkNorm::ALL);
    let norm = (numbers, eps, kind, select(NormOver::ALL), prop::bool::weighted(0.3));
    weighted(0.5, norm).prop_map(move |norm| {
        let Some((numbers, qk_norm_eps, kind, over, after_rope)) = norm else {
            return Default::default();
        };
        // A sum over heads that stand for several grows where these are repeated.
        let is_sum = kind == QkNorm::L2 && kv_heads < heads;
        let may_be = kind.has_weight() || over == NormOver::All && !is_sum;
        let over = if may_be { over } else { NormOver::Head };
        let settings = Settings {
            qk_norm: Some(kind),
            qk_norm_eps,
            qk_norm_over: Some(over),
            qk_norm_after_rope: Some(after_rope && over != NormOver::All),
            ..Settings::default()
        };
        let mut numbers = numbers.as_slice();
        let mut parameter = |name: String, heads: usize| {
            let shape = if over == NormOver::Head { vec![head_dim] } else { vec![heads, head_dim] };
            let (own, rest) = numbers.split_at(shape.iter().product());
            numbers = rest;
            entry(&name, own, &shape)
        };
        let mut given = Vec::new();
        for (name, heads) in of_heads {
            let weight = kind.has_weight().then(|| parameter(format!("w_{name}_norm"), heads));
            given.extend(weight);
            let has_bias = kind == QkNorm::Layer;
            given.extend(has_bias.then(|| parameter(format!("b_{name}_norm"), heads)));
        }
        (settings, given)
    })
}

/// Whether values are the keys, or turn, and keys and values of an earlier layer.
fn of_values(sizes: &Sizes) -> impl Strategy<Value = (bool, bool, Option<Vec<Entry>>)> + use<> {
    let [keys, values] =
        [("k_shared", sizes.head_dim), ("v_shared", sizes.v_head_dim())].map(|(name, size)| {
            let shape = [sizes.batch, sizes.kv_heads, sizes.tokens, size];
            let numbers = vec(-2.0..2.0_f32, shape.iter().product::<usize>());
            numbers.prop_map(move |numbers| entry(name, &numbers, &shape))
        });
    let shared = weighted(0.15, (keys, values).prop_map(|(keys, values)| vec![keys, values]));
    (prop::bool::weighted(0.15), prop::bool::weighted(0.3), shared)
}

/// What later models do to queries, keys, values and the heads side by side.
fn beside(sizes: &Sizes) -> impl Strategy<Value = (Settings, Vec<Entry>)> + use<> {
    let width = sizes.heads * sizes.v_head_dim();
    let eps = || weighted(0.7, select(vec![1e-3, 0.1, 1.0]));
    let values =
        (weighted(0.25, eps()), weighted(0.25, 0.2..3.0_f64), weighted(0.25, -1.5..1.5_f64));
    let temperature = weighted(0.3, (0.01..2.0_f64, 1..9_usize, 0..3_usize));
    let concat = (
        weighted(0.3, (eps(), vec(-2.0..2.0_f32, width))),
        weighted(0.3, select(vec![Gate::Sigmoid, Gate::Softplus])),
    );
    let is_cross = sizes.memory.is_some();
    let added = (weighted(0.2, Just(true)), weighted(0.2, Just(true)), weighted(0.3, 1..9_usize));
    (values, temperature, concat, added).prop_map(
        move |((v_norm, clip_qkv, value_scale), temperature, (norm, gate), added)| {
            let (of_concat, weight) = norm.unzip();
            let settings = Settings {
                v_norm: v_norm.map(|_| OtherNorm::Rms),
                v_norm_eps: v_norm.flatten(),
                clip_qkv,
                value_scale,
                q_temperature: temperature.map(|own| own.0),
                q_temperature_floor: temperature.map(|own| own.1),
                q_temperature_offset: temperature.map(|own| own.2),
                concat_norm: of_concat.map(|_| OtherNorm::Rms),
                concat_norm_eps: of_concat.flatten(),
                gate,
                add_bias_kv: added.0,
                add_zero_attn: added.1,
                d_memory_v: added.2.filter(|_| is_cross),
                ..Settings::default()
            };
            let weight = weight.map(|weight| entry("w_concat_norm", &weight, &[width]));
            (settings, weight.into_iter().collect())
        },
    )
}

/// Rotary positions, where queries and keys are of one sequence and a head has pairs of features.
fn rotation(sizes: &Sizes) -> BoxedStrategy<(Settings, Vec<Entry>)> {
    let head_dim = sizes.head_dim;
    if sizes.memory.is_some() || head_dim < 2 {
        return Just(Default::default()).boxed();
    }
    let dims = weighted(0.4, (1..=head_dim / 2).prop_map(|pairs| 2 * pairs));
    let base = weighted(0.5, 2.0..20_000.0_f64);
    let offset = weighted(0.4, 0..300_usize);
    let read = weighted(0.15, (vec(0.001..1.0_f32, head_dim / 2), weighted(0.5, 0.5..1.5_f64)));
    let places = weighted(0.3, positions(sizes.batch, sizes.tokens));
    let at_end = weighted(0.3, Just(true));
    let pairs = (select(Pairing::ALL), prop::bool::weighted(0.2), at_end);
    let settings = (pairs, base, dims, (offset, places), weighted(0.7, scaling()), read);
    let rotation = settings.prop_map(move |(pairs, rope_base, dims, from, scaling, read)| {
        let ((rope, backwards, at_end), (rope_offset, places)) = (pairs, from);
        let rope_dims = dims.or((head_dim % 2 == 1).then_some(head_dim - 1));
        let pairs = rope_dims.unwrap_or(head_dim) / 2;
        let factors = |scaling: RopeScaling| match scaling {
            RopeScaling::Longrope(own) => RopeScaling::Longrope(Longrope {
                short_factor: own.short_factor[..pairs].to_vec(),
                long_factor: own.long_factor[..pairs].to_vec(),
                ..own
            }),
            other => other,
        };
        let mut settings = Settings {
            rope: Some(rope),
            rope_backwards: Some(backwards),
            rope_at_end: at_end,
            rope_base,
            rope_dims,
            rope_offset: rope_offset.filter(|_| places.is_none()),
            rope_scaling: scaling.map(factors),
            ..Settings::default()
        };
        if let Some((positions, (first, second), order)) = places {
            let first = first.index(pairs + 1);
            let second = second.index(pairs - first + 1);
            settings.positions = Some(Positions::new(positions));
            settings.rope_sections = Some(vec![first, second, pairs - first - second]);
            settings.rope_section_order = Some(order);
        }
        let Some((freqs, factor)) = read else { return (settings, Vec::new()) };
        settings.rope_scaling = None;
        settings.rope_freqs = Some("freqs.npy".into());
        settings.rope_attention_factor = factor;
        (settings, vec![entry("rope_freqs", &freqs[..pairs], &[pairs])])
    });
    weighted(0.6, rotation).prop_map(Option::unwrap_or_default).boxed()
}

/// Positions of tokens, one or three each, of all items or of each, with the sections of pairs and their order.
fn positions(
    batch: usize,
    tokens: usize,
) -> impl Strategy<Value = (Vec<Vec<Vec<usize>>>, (Index, Index), SectionOrder)> {
    let rows = (select(vec![1, 3_usize]), select(vec![1, batch])).prop_flat_map(
        move |(sections, items)| vec(vec(vec(0..40_usize, tokens), items), sections),
    );
    (rows, any::<(Index, Index)>(), select(SectionOrder::ALL))
}

/// Every kind of scaling, about as far as the few positions of a case reach.
fn scaling() -> impl Strategy<Value = RopeScaling> {
    let factor = 1.0..8.0_f64;
    let trained = 1..40_usize;
    prop_oneof![
        Just(RopeScaling::Default),
        factor.clone().prop_map(|factor| RopeScaling::Linear { factor }),
        (factor.clone(), trained.clone()).prop_map(|(factor, max_position_embeddings)| {
            RopeScaling::Dynamic { factor, max_position_embeddings }
        }),
        (factor.clone(), trained.clone(), 0.5..2.0_f64, 2.5..5.0_f64).prop_map(
            |(factor, original_max_position_embeddings, low_freq_factor, high_freq_factor)| {
                RopeScaling::Llama3(Llama3 {
                    factor,
                    original_max_position_embeddings,
                    low_freq_factor,
                    high_freq_factor,
                })
            }
        ),
        (
            vec(0.5..8.0_f64, 4),
            vec(0.5..8.0_f64, 4),
            2..40_usize,
            factor.clone(),
            weighted(0.3, (0.5..1.5_f64, 0.5..1.5_f64))
        )
            .prop_map(|(short_factor, long_factor, trained, factor, mscales)| {
                RopeScaling::Longrope(Longrope {
                    short_factor,
                    long_factor,
                    original_max_position_embeddings: trained,
                    factor,
                    attention_factor: None,
                    short_mscale: mscales.map(|(short, _)| short),
                    long_mscale: mscales.map(|(_, long)| long),
                })
            }),
        (0.1..1.0_f64, factor.clone()).prop_map(|(partial_rotary_factor, factor)| {
            RopeScaling::Proportional(Proportional { partial_rotary_factor, factor })
        }),
        (
            factor,
            trained,
            (1.0..32.0_f64, 0.05..1.0_f64),
            weighted(0.3, 0.5..1.5_f64),
            any::<bool>()
        )
            .prop_map(
                |(factor, trained, (beta_fast, beta_slow), attention_factor, truncate)| {
                    RopeScaling::Yarn(Yarn {
                        factor,
                        original_max_position_embeddings: trained,
                        beta_fast,
                        beta_slow,
                        attention_factor,
                        mscale: None,
                        mscale_all_dim: None,
                        truncate,
                    })
                }
            ),
    ]
}

/// The features of the latent of keys and values, of that of queries, and of the shared key; the weights of the norms.
type Latent = (usize, Option<usize>, usize, [Vec<f32>; 2]);

/// Latents of keys and values, and perhaps of queries, with a key that all heads share or without: how many features of it
/// where nothing turns, and the weights of the latents' norms.
fn latent(sizes: &Sizes) -> impl Strategy<Value = Option<Latent>> + use<> {
    let ranks = (1..9_usize, weighted(0.6, 1..9_usize), 0..sizes.head_dim);
    let latent = ranks.prop_flat_map(|(keys, queries, shared)| {
        let weights = [vec(-2.0..2.0_f32, keys), vec(-2.0..2.0_f32, queries.unwrap_or(0))];
        (Just(keys), Just(queries), Just(shared), weights)
    });
    weighted(0.25, latent)
}

/// The settings of latents beside the others, and what they are given. Where keys turn, what turns is all that they share.
fn with_latent(
    settings: &Settings,
    head_dim: usize,
    (keys, queries, shared, [of_keys, of_queries]): Latent,
) -> (Settings, Vec<Entry>) {
    let turned = settings.rope.map(|_| settings.rope_dims.unwrap_or(head_dim));
    let shared = turned.map_or(shared, |dims| if dims < head_dim { dims } else { 0 });
    let is_before = settings.qk_norm.is_some() && settings.qk_norm_after_rope != Some(true);
    let shared = if is_before { 0 } else { shared };
    let own = Settings {
        kv_lora_rank: Some(keys),
        q_lora_rank: queries,
        qk_rope_head_dim: Some(shared),
        ..Settings::default()
    };
    let own = Settings { absorb: absorbs(settings, shared).then_some(true), ..own };
    let mut given = vec![entry("w_c_kv_norm", &of_keys, &[keys])];
    given.extend(queries.map(|rank| entry("w_c_q_norm", &of_queries, &[rank])));
    (own, given)
}

/// Whether queries are taken to the latent: in half of the runs that let them.
fn absorbs(settings: &Settings, shared: usize) -> bool {
    let is_plain = settings.qk_norm.is_none()
        && settings.v_norm.is_none()
        && settings.clip_qkv.is_none()
        && settings.value_scale.is_none()
        && settings.bias != Some(true)
        && settings.add_zero_attn != Some(true)
        && settings.kv_heads.is_none_or(|kv_heads| Some(kv_heads) == settings.heads);
    let turns_own = settings.rope.is_some() && shared == 0;
    is_plain && !turns_own && settings.seed.is_some_and(|seed| seed.0.is_multiple_of(2))
}

/// A cache, where the sizes have one.
fn past(sizes: &Sizes) -> impl Strategy<Value = Vec<Entry>> + use<> {
    let shape = |dim| [sizes.batch, sizes.kv_heads, sizes.past, dim];
    let shapes = [shape(sizes.head_dim), shape(sizes.v_head_dim())];
    let numbers = |shape: [usize; 4]| vec(-2.0..2.0_f32, shape.iter().product::<usize>());
    (numbers(shapes[0]), numbers(shapes[1])).prop_map(move |(keys, values)| {
        let past = [("k_past", keys, shapes[0]), ("v_past", values, shapes[1])];
        let past = past.into_iter().filter(|(_, numbers, _)| !numbers.is_empty());
        past.map(|(name, numbers, shape)| entry(name, &numbers, &shape)).collect()
    })
}

/// The settings that are choices of their own.
fn choices() -> impl Strategy<Value = Settings> {
    let drawn = (any::<u64>(), prop::bool::ANY, prop::bool::ANY, prop::bool::ANY);
    let computed = (
        prop::bool::ANY,
        select(vec![-1e9, -1e4, f64::NEG_INFINITY]),
        prop::bool::ANY,
        select(vec![0.0, 0.0, 0.1, 0.5, 1.0]),
        prop::bool::ANY,
    );
    (drawn, computed).prop_map(
        |((seed, uniform, linear, bias), (causal, fill, zero, dropout, wide))| Settings {
            seed: Some(Seed(seed)),
            input: Some(if uniform { Input::Rand } else { Input::Randn }),
            init: Some(if linear { Init::Linear } else { Init::XavierUniform }),
            bias: Some(bias),
            mask: Some(if causal { Mask::Causal } else { Mask::None }),
            mask_fill: Some(Fill(fill)),
            empty_rows: Some(if zero { EmptyRow::Zero } else { EmptyRow::Nan }),
            dropout: Some(dropout),
            dtype: Some(if wide { DType::F64 } else { DType::F32 }),
            ..Settings::default()
        },
    )
}
