//! Random settings and the runs that they make, all sizes varying on their own.

use candle_core::{Device, Tensor};
use mha_trace::config::{DType, EmptyRows, Fill, Init, Input, Mask, Seed};
use mha_trace::file::{Entry, Record};
use mha_trace::source::Sources;
use mha_trace::{Run, Settings, Trace};
use proptest::prelude::*;

/// A run's settings, and a float mask over (query, key) in some.
#[derive(Debug, Clone)]
pub struct Case {
    pub settings: Settings,
    pub attn_bias: Option<Vec<f32>>,
}

impl Case {
    /// The run, with these tensors in place of drawn ones.
    pub fn run_with(&self, mut given: Vec<Entry>) -> Run {
        if let Some(values) = &self.attn_bias {
            let tokens = self.settings.seq_len.expect("set");
            given.push(entry("attn_bias", values, &[tokens, tokens]));
        }
        let sources = Sources::recorded(&Record { config: None, entries: given }, |_| true);
        Run::new(&self.settings, sources).expect("the case is valid")
    }

    pub fn trace(&self) -> Trace {
        self.run_with(Vec::new()).trace().expect("the case runs")
    }
}

/// A tensor as a file holds it.
pub fn entry(name: &str, values: &[f32], shape: &[usize]) -> Entry {
    let tensor = Tensor::from_slice(values, shape, &Device::Cpu).expect("the shape fits");
    Entry { name: name.to_owned(), formula: None, axes: None, tensor }
}

/// Cases of every kind.
pub fn cases() -> impl Strategy<Value = Case> {
    let sizes = (1..4_usize, 1..7_usize, 1..4_usize, 1..6_usize, 1..9_usize);
    sizes.prop_flat_map(|(batch, tokens, heads, head_dim, d_in)| {
        let base = Settings {
            batch: Some(batch),
            seq_len: Some(tokens),
            heads: Some(heads),
            d_model: Some(heads * head_dim),
            d_in: Some(d_in),
            ..Settings::default()
        };
        let rows = prop::collection::vec(prop::collection::vec(prop::bool::ANY, tokens), batch)
            .prop_map(|rows| rows.iter().map(|row| key_row(row)).collect::<Vec<_>>());
        let lengths = prop::collection::vec(0..=tokens, batch);
        let keys = (prop::option::weighted(0.4, rows), prop::option::weighted(0.4, lengths));
        let score = prop_oneof![4 => -2.0..2.0_f32, 1 => Just(f32::NEG_INFINITY)];
        let attn_bias = prop::option::weighted(0.3, prop::collection::vec(score, tokens * tokens));
        let scores = scores(tokens);
        (Just(base), choices(), keys, attn_bias, scores).prop_map(
            |(base, choices, (key_mask, lengths), attn_bias, scores)| {
                let mut settings =
                    Settings { key_mask, lengths, ..choices }.over(scores).over(base);
                // The float mask is given as a run's whole attn_bias, and a window is one of a causal mask.
                settings.alibi = settings.alibi.filter(|_| attn_bias.is_none());
                settings.window = settings.window.filter(|_| settings.mask == Some(Mask::Causal));
                Case { settings, attn_bias }
            },
        )
    })
}

/// What later models do to the scores.
fn scores(tokens: usize) -> impl Strategy<Value = Settings> {
    let window = prop::option::weighted(0.3, 1..=tokens + 1);
    let softcap = prop::option::weighted(0.3, 0.5..5.0_f64);
    let scale = prop::option::weighted(0.3, -0.5..1.5_f64);
    (window, prop::bool::weighted(0.3), softcap, scale).prop_map(
        |(window, alibi, softcap, scale)| Settings {
            window,
            alibi: Some(alibi),
            softcap,
            scale,
            ..Settings::default()
        },
    )
}

fn key_row(row: &[bool]) -> String {
    row.iter().map(|visible| if *visible { '1' } else { '0' }).collect()
}

/// The settings that are choices of their own.
fn choices() -> impl Strategy<Value = Settings> {
    let drawn = (any::<u64>(), prop::bool::ANY, prop::bool::ANY, prop::bool::ANY);
    let computed = (
        prop::bool::ANY,
        prop::sample::select(vec![-1e9, -1e4, f64::NEG_INFINITY]),
        prop::bool::ANY,
        prop::sample::select(vec![0.0, 0.0, 0.1, 0.5, 1.0]),
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
            empty_rows: Some(if zero { EmptyRows::Zero } else { EmptyRows::Nan }),
            dropout: Some(dropout),
            dtype: Some(if wide { DType::F64 } else { DType::F32 }),
            ..Settings::default()
        },
    )
}
