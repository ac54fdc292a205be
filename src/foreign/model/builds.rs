//! The builds that families of models vary, and the columns of their rows.

#![allow(clippy::unnecessary_wraps, reason = "these make the columns of rows, which may be empty")]

use super::family::{
    Family, HeadDim, KeyHeads, Kind, Latent, Long, Norm, Part, Pattern, Relative, Rope, Scale,
    Sees, Sinks, Turned, When, Window,
};
use config::{AlibiForm, Gate, NormOver, Pairing, QkNorm, SectionOrder};

/// Sizes by their usual names; as many key heads as query heads, and nothing else.
pub const PLAIN: Family = Family {
    types: &[],
    parts: &[part("layers.{}.self_attn", Sees::Past)],
    width: &["hidden_size"],
    heads: &["num_attention_heads"],
    layers: &["num_hidden_layers"],
    kv_heads: KeyHeads::AsQueries,
    head_dim: HeadDim::Split,
    v_head_dim: None,
    latent: None,
    bias: When::Never,
    packing: &[],
    norm: None,
    v_norm: None,
    value_scale: None,
    clip: None,
    temperature: None,
    concat_norm: None,
    gate: None,
    shared: None,
    rope: None,
    scale: Scale::Root,
    softcap: None,
    window: None,
    pattern: Pattern::Each(Kind::Full),
    alibi: When::Never,
    alibi_form: AlibiForm::Paper,
    relative: None,
    chunk: None,
    sinks: Sinks::None,
    disentangled: When::Never,
    adds_residual: false,
    refused: &[],
    k_eq_v: When::Never,
};

/// Layers of a decoder that a model around it may call with a prefix that sees itself both ways.
pub const PREFIXED: &[Part] = &[part(
    "layers.{}.self_attn",
    Sees::PastUnlessMasked(When::If("use_bidirectional_attention", false)),
)];

/// Llama's build, which most decoders vary.
pub const LLAMA: Family = Family {
    types: &["llama", "arcee", "aria_text", "deepseek_ocr2_text"],
    kv_heads: KeyHeads::Key("num_key_value_heads", None),
    head_dim: HeadDim::Key("head_dim", None),
    bias: When::If("attention_bias", false),
    rope: Some(ROPE),
    ..PLAIN
};

pub const ROPE: Rope = Rope {
    when: When::Always,
    pairing: Pairing::Half,
    halves: When::Never,
    at_end: false,
    base: 10_000.0,
    base_keys: &["rope_theta"],
    sliding_base: None,
    part: 1.0,
    part_keys: &["partial_rotary_factor"],
    dims: None,
    bases: "",
    layers: Turned::All,
    scaling: "",
    long: Long::Stated,
    sections: None,
    backwards: false,
    values: When::Never,
    alpha: false,
};
pub const PAIRS: Rope = Rope { pairing: Pairing::Interleaved, ..ROPE };

/// `DeepSeek`'s build of multi-head latent attention.
pub const LATENT: Family = Family {
    kv_heads: KeyHeads::AsQueries,
    head_dim: HeadDim::Parts([("qk_nope_head_dim", 128), ("qk_rope_head_dim", 64)]),
    v_head_dim: Some(("v_head_dim", 128)),
    latent: Some(Latent {
        queries: ("q_lora_rank", 1536),
        keys: ("kv_lora_rank", 512),
        shared: ("qk_rope_head_dim", 64),
    }),
    rope: Some(Rope {
        at_end: true,
        dims: Some(("qk_rope_head_dim", Some(64))),
        part_keys: &[],
        halves: When::IfNot("rope_interleave", true),
        ..PAIRS
    }),
    scale: Scale::RootYarn,
    ..LLAMA
};

pub const SIGMOID: Option<(Gate, When)> = Some((Gate::Sigmoid, When::Always));

/// Qwen3-Next's build: most layers have no softmax attention, and the others a gate.
pub const GATED: Family = Family {
    head_dim: head_dim(256),
    norm: Some(Norm { kind: QkNorm::RmsPlusOne, ..NORM }),
    gate: SIGMOID,
    rope: rotary_part(0.25),
    pattern: last_of("full_attention_interval", 4, Kind::Other),
    ..LLAMA
};

/// `T5Gemma`'s build: Gemma 2's, with a stack that sees both ways.
pub const T5GEMMA: Family = Family {
    kv_heads: key_heads(4),
    head_dim: head_dim(256),
    scale: Scale::RootOf("query_pre_attn_scalar", 256.0),
    softcap: Some(("attn_logit_softcapping", 50.0)),
    window: Some(Window { otherwise: Some(4096), per_side: 1, ..WINDOW }),
    pattern: EVEN,
    ..LLAMA
};

/// BERT's build, which most encoders vary.
pub const BERT: Family = Family {
    types: &[
        "bert",
        "ernie",
        "electra",
        "layoutlm",
        "rembert",
        "megatron-bert",
        "data2vec-text",
        "roc_bert",
        "luke",
        "tapas",
        "markuplm",
        "visual_bert",
        "splinter",
        "dpr",
        "clap_text_model",
        "align_text_model",
        "chinese_clip_text_model",
        "altclip_text_model",
        "bridgetower_text_model",
        "xmod",
        "blip_text_model",
    ],
    parts: &[
        part("encoder.layer.{}.attention", Sees::PastIf(When::If("is_decoder", false))),
        part("encoder.layer.{}.crossattention", Sees::Memory),
    ],
    bias: When::Always,
    ..PLAIN
};

/// BART's build, which most encoder-decoders vary.
pub const BART: Family = Family {
    types: &[
        "bart",
        "mbart",
        "plbart",
        "m2m_100",
        "marian",
        "pegasus",
        "blenderbot",
        "blenderbot-small",
        "whisper",
        "mvp",
        "trocr",
    ],
    parts: &[
        Part {
            heads: &["encoder_attention_heads"],
            ..part("encoder.layers.{}.self_attn", Sees::All)
        },
        BART_DECODER,
        BART_CROSS,
    ],
    width: &["d_model"],
    heads: &["decoder_attention_heads"],
    layers: &[],
    bias: When::Always,
    ..PLAIN
};

pub const BART_DECODER: Part =
    Part { heads: &["decoder_attention_heads"], ..part("decoder.layers.{}.self_attn", Sees::Past) };
pub const BART_CROSS: Part = Part {
    heads: &["decoder_attention_heads"],
    ..part("decoder.layers.{}.encoder_attn", Sees::Memory)
};

/// GPT-2's build.
pub const GPT2: Family = Family {
    types: &["gpt2", "imagegpt"],
    parts: &[part("h.{}.attn", Sees::Past), part("h.{}.crossattention", Sees::Memory)],
    width: &["n_embd", "hidden_size"],
    heads: &["n_head", "num_attention_heads"],
    layers: &["n_layer", "num_hidden_layers"],
    bias: When::Always,
    scale: Scale::Gpt2,
    ..PLAIN
};

/// The vision transformer's build.
pub const VIT: Family = Family {
    types: &[
        "vit",
        "deit",
        "vit_msn",
        "vit_mae",
        "ijepa",
        "dinov2",
        "dinov2_with_registers",
        "dpt",
        "pixio",
        "vivit",
        "videomae",
    ],
    parts: &[part("encoder.layer.{}.attention", Sees::All)],
    bias: When::Always,
    ..PLAIN
};

pub const CLIP: Family = Family {
    types: &["clip"],
    parts: &[
        Part {
            config: "text_config",
            ..part("text_model.encoder.layers.{}.self_attn", Sees::Past)
        },
        Part {
            config: "vision_config",
            ..part("vision_model.encoder.layers.{}.self_attn", Sees::All)
        },
    ],
    bias: When::Always,
    ..PLAIN
};

pub const fn part(path: &'static str, sees: Sees) -> Part {
    Part { config: "", path, sees, heads: &[] }
}

pub const fn key_heads(otherwise: usize) -> KeyHeads {
    KeyHeads::Key("num_key_value_heads", Some(otherwise))
}

pub const fn head_dim(otherwise: usize) -> HeadDim {
    HeadDim::Key("head_dim", Some(otherwise))
}

pub const fn base(base: f64) -> Option<Rope> {
    Some(Rope { base, ..ROPE })
}

pub const fn rotary_part(part: f64) -> Option<Rope> {
    Some(Rope { part, ..ROPE })
}

/// Sections of pairs in the order of the axes, and so many of each where a config is silent.
pub const fn in_order(sizes: [usize; 3]) -> Option<(SectionOrder, [usize; 3])> {
    Some((SectionOrder::Chunked, sizes))
}

/// Sections of pairs that alternate.
pub const fn interleaved(sizes: [usize; 3]) -> Option<(SectionOrder, [usize; 3])> {
    Some((SectionOrder::Interleaved, sizes))
}

pub const fn window(otherwise: usize) -> Option<Window> {
    Some(Window { otherwise: Some(otherwise), ..WINDOW })
}

/// None, unless a config has one.
pub const WINDOW: Window =
    Window { key: "sliding_window", otherwise: None, per: 1, per_side: 2, when: When::Always };
/// None, unless a config turns it on.
pub const SWITCHED: Option<Window> =
    Some(Window { otherwise: Some(4096), when: When::If("use_sliding_window", false), ..WINDOW });

pub const SLIDING: Pattern = Pattern::Each(Kind::Sliding);
/// The first of two slides.
pub const EVEN: Pattern = every(2, true, Kind::Sliding, Kind::Full);

/// The last of so many sees all, the others slide.
pub const fn last_full(of: usize) -> Pattern {
    last_of("sliding_window_pattern", of, Kind::Sliding)
}

/// The last of as many as the key says, or of so many, sees all.
pub const fn last_of(key: &'static str, of: usize, elsewhere: Kind) -> Pattern {
    Pattern::Every { by: (key, of), first: false, there: Kind::Full, elsewhere }
}

/// The first of so many sees all, the others slide.
pub const fn first_full(of: usize) -> Pattern {
    every(of, true, Kind::Full, Kind::Sliding)
}

pub const fn every(by: usize, first: bool, there: Kind, elsewhere: Kind) -> Pattern {
    Pattern::Every { by: ("sliding_window_pattern", by), first, there, elsewhere }
}

pub const NORM: Norm = Norm {
    when: When::Always,
    eps: ("rms_norm_eps", 1e-6),
    kind: QkNorm::Rms,
    over: NormOver::Head,
    after_rope: false,
    of_memory: false,
};

/// `LayerNorm` where a key says so; so much where it is absent.
pub const fn layer_norm(key: &'static str, otherwise: bool) -> Norm {
    Norm {
        when: When::If(key, otherwise),
        eps: ("layer_norm_eps", 1e-5),
        kind: QkNorm::Layer,
        ..NORM
    }
}

/// The same without a bias, with a weight for every head.
pub const fn layer_norm_per_head(key: &'static str) -> Option<Norm> {
    Some(Norm { kind: QkNorm::LayerNoBias, over: NormOver::PerHead, ..layer_norm(key, false) })
}

/// A norm of all heads together.
pub const fn rms_of_all(eps: f64) -> Option<Norm> {
    Some(Norm { eps: ("rms_norm_eps", eps), over: NormOver::All, ..NORM })
}

pub const fn rms(eps: f64) -> Option<Norm> {
    Some(Norm { eps: ("rms_norm_eps", eps), ..NORM })
}

/// Llama 3.1's scaling, by so much, of so many positions.
pub const APERTUS: &str = r#"{"rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}"#;
pub const CWM: &str = r#"{"rope_type": "llama3", "rope_theta": 1000000.0, "factor": 16.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}"#;
pub const MINISTRAL3: &str = r#"{"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384}"#;
pub const HIGGS: &str = r#"{"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 0.125,
    "high_freq_factor": 0.5, "original_max_position_embeddings": 1024}"#;
pub const GPT_OSS: &str = r#"{"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "truncate": false, "original_max_position_embeddings": 4096}"#;

pub const GEMMA4: &str =
    r#"{"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25}"#;

/// T5's buckets of distances.
pub const BUCKETS: Relative = Relative {
    when: When::Always,
    is_grid: false,
    buckets: ("relative_attention_num_buckets", 32),
    max_distance: ("relative_attention_max_distance", 128),
};

/// T5's build.
pub const T5: Family = Family {
    types: &["t5", "mt5", "umt5", "switch_transformers", "pop2piano"],
    parts: &[
        part("encoder.block.{}.layer.0.SelfAttention", Sees::All),
        part("decoder.block.{}.layer.0.SelfAttention", Sees::Past),
        part("decoder.block.{}.layer.1.EncDecAttention", Sees::Memory),
    ],
    width: &["d_model"],
    heads: &["num_heads"],
    layers: &[],
    head_dim: HeadDim::Key("d_kv", Some(64)),
    scale: Scale::By(1.0),
    relative: Some(BUCKETS),
    ..PLAIN
};
