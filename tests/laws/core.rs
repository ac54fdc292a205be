//! Laws of runs that start at queries, keys and values, of the log-sum-exp, and of packed documents.

use candle_core::{Device, Tensor};
use mha_trace::config::{CausalAlign, DType, End, Mask, Segments, Start};
use mha_trace::file::{Entry, Record};
use mha_trace::{Run, Settings, Sources, Trace};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::common::{Named, bits, values};
use super::reading::{ROUNDING, blocked, entry, first_of, rows, value, worst};
use super::strategy::{cases, wide_cases};

/// The run of these settings that is given these tensors.
fn run(settings: &Settings, given: Vec<Entry>) -> Trace {
    let record = Record { config: Some(settings.clone()), entries: given };
    let (settings, sources) =
        Sources::of_record(&record, &Settings::default()).expect("nothing is amiss");
    Run::new(&settings, sources).expect("the case is valid").trace().expect("the case runs")
}

/// Queries, keys and values of packed documents: of each how many there are, and their numbers.
#[derive(Debug, Clone)]
struct Packed {
    documents: Vec<(usize, usize)>,
    heads: usize,
    head_dim: usize,
    numbers: Vec<f64>,
    align: CausalAlign,
    mask: Mask,
}

impl Packed {
    /// (1, head, token, feature) of these tokens: of queries, keys or values.
    fn tensor(&self, what: usize, first: usize, count: usize) -> Tensor {
        let (heads, head_dim) = (self.heads, self.head_dim);
        let number = |at: usize| self.numbers[(at * 31 + what * 7) % self.numbers.len()];
        let cell = |head: usize, token: usize, feature: usize| {
            number((token * heads + head) * head_dim + feature)
        };
        let tokens = || first..first + count;
        let numbers: Vec<f64> = (0..heads)
            .flat_map(|head| tokens().map(move |token| (head, token)))
            .flat_map(|(head, token)| (0..head_dim).map(move |feature| cell(head, token, feature)))
            .collect();
        Tensor::from_vec(numbers, (1, heads, count, head_dim), &Device::Cpu).expect("fits")
    }

    fn given(&self, queries: (usize, usize), keys: (usize, usize)) -> Vec<Entry> {
        vec![
            entry("q_heads", self.tensor(0, queries.0, queries.1)),
            entry("k_heads", self.tensor(1, keys.0, keys.1)),
            entry("v_heads", self.tensor(2, keys.0, keys.1)),
        ]
    }

    fn settings(&self) -> Settings {
        Settings {
            start: Some(Start::Heads),
            mask: Some(self.mask),
            causal_align: Some(self.align).filter(|_| self.mask == Mask::Causal),
            dtype: Some(DType::F64),
            lse: Some(true),
            ..Settings::default()
        }
    }
}

fn packed() -> impl Strategy<Value = Packed> {
    let documents = vec((1..5_usize, 1..5_usize), 1..5);
    let parts = (documents, 1..4_usize, 1..5_usize, vec(-3.0..3.0_f64, 97));
    (parts, select(CausalAlign::ALL), select(Mask::ALL)).prop_map(
        |((documents, heads, head_dim, numbers), align, mask)| Packed {
            documents,
            heads,
            head_dim,
            numbers,
            align,
            mask,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_run_goes_on_from_given_heads_as_it_did(
        mut case in cases().prop_filter("a gate is of x, and heads given have all their features", |case| {
            let is_whole = case.settings.qk_rope_head_dim.is_none_or(|shared| shared == 0);
            // Relative positions may be projected as tokens are.
            is_whole && case.settings.gate.is_none() && case.settings.disentangled.is_none()
        }),
    ) {
        case.unshare();
        // A run that starts at heads has keys and values of them.
        case.settings.absorb = None;
        let whole = case.trace();
        let own = |name: &str| entry(name, value(&whole, name).clone());
        let names = ["q_heads", "k_heads", "v_heads", "w_o", "b_o", "bias_k", "bias_v"];
        let names = names.into_iter().filter(|name| whole.named(name).is_some());
        // What is drawn beside them follows other draws here.
        let drawn = whole.named("dropout_keep").map(|_| own("dropout_keep"));
        let given: Vec<Entry> =
            case.given.iter().cloned().chain(names.map(own)).chain(drawn).collect();
        let mut settings = case.settings.clone();
        (settings.start, settings.end) = (Some(Start::Heads), Some(End::Output));
        settings.d_model = None;
        let bias = case.attn_bias.as_ref().map(|_| own("attn_bias"));
        let core = run(&settings, [given, bias.into_iter().collect()].concat());
        prop_assert!(core.named("x").is_none() && core.named("q").is_none());
        for step in core.steps() {
            let same = whole.named(step.name.as_str()).expect("of the whole run");
            prop_assert_eq!(bits(&step.value), bits(&same.value), "{}", step.name);
        }
    }

    #[test]
    fn the_mean_of_the_weights_is_that_of_all_heads(mut case in wide_cases()) {
        case.settings.mean_weights = Some(true);
        let trace = case.trace();
        let (weights, mean) = (first_of(&trace, &["weights_dropped", "weights"]), value(&trace, "weights_mean"));
        let (batch, heads, queries, keys) = weights.dims4().expect("four axes");
        prop_assert_eq!(mean.dims(), [batch, queries, keys]);
        let (weights, mean) = (values(weights), values(mean));
        let of_item = heads * queries * keys;
        let count = f64::from(u32::try_from(heads).expect("few heads"));
        for (at, mean) in mean.into_iter().enumerate() {
            let (item, cell) = (at / (queries * keys), at % (queries * keys));
            let of_head = |head: usize| weights[item * of_item + head * queries * keys + cell];
            let expected = (0..heads).map(of_head).sum::<f64>() / count;
            // Weights are at most a few, and so is the rounding of their sum in f64.
            prop_assert!((mean - expected).abs() <= 1e-13 || (mean.is_nan() && expected.is_nan()));
        }
    }

    #[test]
    fn weights_are_exponentials_less_the_log_sum(mut case in wide_cases()) {
        case.settings.lse = Some(true);
        let trace = case.trace();
        let names = ["masked_scores", "scores_biased", "scores_relative", "scores_capped", "scores"];
        let scores = rows(first_of(&trace, &names));
        let weights = rows(value(&trace, "weights"));
        let blocked = rows(&blocked(&trace));
        for (at, lse) in values(value(&trace, "lse")).into_iter().enumerate() {
            if lse == f64::NEG_INFINITY {
                prop_assert!(scores[at].iter().all(|score| *score == f64::NEG_INFINITY));
            } else if blocked[at].contains(&0.0) {
                let expected: Vec<f64> = scores[at].iter().map(|score| (score - lse).exp()).collect();
                // A score of some tens rounded to 2⁻⁵³ of itself, which exp makes a relative difference.
                prop_assert!(worst(&weights[at], &expected) <= 1e-12);
            }
        }
    }

    #[test]
    fn packed_documents_are_as_each_alone(case in packed()) {
        let total = case.documents.iter().fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
        let lengths = |which: fn(&(usize, usize)) -> usize| {
            Some(Segments(vec![case.documents.iter().map(which).collect()]))
        };
        let settings = Settings {
            segments: lengths(|own| own.0),
            key_segments: lengths(|own| own.1),
            ..case.settings()
        };
        let row = run(&settings, case.given((0, total.0), (0, total.1)));
        let (mut query, mut key) = (0, 0);
        for (queries, keys) in &case.documents {
            let alone = run(&case.settings(), case.given((query, *queries), (key, *keys)));
            for (name, axis) in [("lse", 2), ("head_outputs", 2)] {
                let own = value(&row, name).narrow(axis, query, *queries).expect("within");
                let worst = worst(&values(&own), &values(value(&alone, name)));
                prop_assert!(worst <= ROUNDING, "{name}: {worst:e}");
            }
            (query, key) = (query + queries, key + keys);
        }
    }
}
