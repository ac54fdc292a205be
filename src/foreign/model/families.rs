//! The families of models that are known, a row each, as transformers 5.23 computes their attention.

#![allow(clippy::unnecessary_wraps, reason = "these make the columns of rows, which may be empty")]

use super::family::{
    Family, HeadDim, KeyHeads, Kind, Long, Norm, Packing, Part, Pattern, Relative, Rope, Scale,
    Sees, Turned, When, Window,
};
use crate::config::{AlibiForm, NormOver, Pairing, QkNorm};

/// Sizes by their usual names; as many key heads as query heads, and nothing else.
const PLAIN: Family = Family {
    types: &[],
    parts: &[part("layers.{}.self_attn", Sees::Past)],
    width: &["hidden_size"],
    heads: &["num_attention_heads"],
    layers: &["num_hidden_layers"],
    kv_heads: KeyHeads::AsQueries,
    head_dim: HeadDim::Split,
    bias: When::Never,
    packing: &[],
    norm: None,
    rope: None,
    scale: Scale::Root,
    softcap: None,
    window: None,
    pattern: Pattern::Each(Kind::Full),
    alibi: When::Never,
    alibi_form: AlibiForm::Paper,
    relative: None,
    chunk: None,
    sinks: false,
    refused: &[],
};

/// Llama's build, which most decoders vary.
const LLAMA: Family = Family {
    types: &["llama", "arcee"],
    kv_heads: KeyHeads::Key("num_key_value_heads", None),
    head_dim: HeadDim::Key("head_dim", None),
    bias: When::If("attention_bias", false),
    rope: Some(ROPE),
    ..PLAIN
};

const ROPE: Rope = Rope {
    when: When::Always,
    pairing: Pairing::Half,
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
};
const PAIRS: Rope = Rope { pairing: Pairing::Interleaved, ..ROPE };

/// BERT's build, which most encoders vary.
const BERT: Family = Family {
    types: &["bert", "ernie", "electra", "layoutlm", "rembert", "megatron-bert", "data2vec-text"],
    parts: &[
        part("encoder.layer.{}.attention", Sees::PastIf(When::If("is_decoder", false))),
        part("encoder.layer.{}.crossattention", Sees::Memory),
    ],
    bias: When::Always,
    ..PLAIN
};

/// BART's build, which most encoder-decoders vary.
const BART: Family = Family {
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
    ],
    parts: &[
        Part {
            heads: &["encoder_attention_heads"],
            ..part("encoder.layers.{}.self_attn", Sees::All)
        },
        Part {
            heads: &["decoder_attention_heads"],
            ..part("decoder.layers.{}.self_attn", Sees::Past)
        },
        Part {
            heads: &["decoder_attention_heads"],
            ..part("decoder.layers.{}.encoder_attn", Sees::Memory)
        },
    ],
    width: &["d_model"],
    heads: &["decoder_attention_heads"],
    layers: &[],
    bias: When::Always,
    ..PLAIN
};

/// GPT-2's build.
const GPT2: Family = Family {
    types: &["gpt2"],
    parts: &[part("h.{}.attn", Sees::Past), part("h.{}.crossattention", Sees::Memory)],
    width: &["n_embd", "hidden_size"],
    heads: &["n_head", "num_attention_heads"],
    layers: &["n_layer", "num_hidden_layers"],
    bias: When::Always,
    scale: Scale::Gpt2,
    ..PLAIN
};

/// The vision transformer's build.
const VIT: Family = Family {
    types: &["vit", "deit", "vit_msn", "dinov2", "dinov2_with_registers"],
    parts: &[part("encoder.layer.{}.attention", Sees::All)],
    bias: When::Always,
    ..PLAIN
};

const CLIP: Family = Family {
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

const fn part(path: &'static str, sees: Sees) -> Part {
    Part { config: "", path, sees, heads: &[] }
}

const fn key_heads(otherwise: usize) -> KeyHeads {
    KeyHeads::Key("num_key_value_heads", Some(otherwise))
}

const fn head_dim(otherwise: usize) -> HeadDim {
    HeadDim::Key("head_dim", Some(otherwise))
}

const fn base(base: f64) -> Option<Rope> {
    Some(Rope { base, ..ROPE })
}

const fn rotary_part(part: f64) -> Option<Rope> {
    Some(Rope { part, ..ROPE })
}

const fn window(otherwise: usize) -> Option<Window> {
    Some(Window { otherwise: Some(otherwise), ..WINDOW })
}

/// None, unless a config has one.
const WINDOW: Window =
    Window { key: "sliding_window", otherwise: None, per: 1, when: When::Always };
/// None, unless a config turns it on.
const SWITCHED: Option<Window> =
    Some(Window { otherwise: Some(4096), when: When::If("use_sliding_window", false), ..WINDOW });

const SLIDING: Pattern = Pattern::Each(Kind::Sliding);
/// The first of two slides.
const EVEN: Pattern = every(2, true, Kind::Sliding, Kind::Full);

/// The last of so many sees all, the others slide.
const fn last_full(of: usize) -> Pattern {
    every(of, false, Kind::Full, Kind::Sliding)
}

/// The first of so many sees all, the others slide.
const fn first_full(of: usize) -> Pattern {
    every(of, true, Kind::Full, Kind::Sliding)
}

const fn every(by: usize, first: bool, there: Kind, elsewhere: Kind) -> Pattern {
    Pattern::Every { by: ("sliding_window_pattern", by), first, there, elsewhere }
}

const NORM: Norm = Norm {
    when: When::Always,
    eps: ("rms_norm_eps", 1e-6),
    kind: QkNorm::Rms,
    over: NormOver::Head,
};

/// A norm of all heads together.
const fn rms_of_all(eps: f64) -> Option<Norm> {
    Some(Norm { eps: ("rms_norm_eps", eps), over: NormOver::All, ..NORM })
}

const fn rms(eps: f64) -> Option<Norm> {
    Some(Norm { eps: ("rms_norm_eps", eps), ..NORM })
}

/// Llama 3.1's scaling, by so much, of so many positions.
const APERTUS: &str = r#"{"rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}"#;
const CWM: &str = r#"{"rope_type": "llama3", "rope_theta": 1000000.0, "factor": 16.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}"#;
const GPT_OSS: &str = r#"{"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "truncate": false, "original_max_position_embeddings": 4096}"#;

/// T5's buckets of distances.
const BUCKETS: Relative = Relative {
    when: When::Always,
    is_grid: false,
    buckets: ("relative_attention_num_buckets", 32),
    max_distance: ("relative_attention_max_distance", 128),
};

/// T5's build.
const T5: Family = Family {
    types: &["t5", "mt5", "umt5", "switch_transformers"],
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

/// Every family. Adding one is adding its row, and a recorded layer that holds it.
#[rustfmt::skip]
pub const FAMILIES: &[Family] = &[
    // Decoders of Llama's build.
    LLAMA,
    Family { types: &["jais2"], bias: When::If("attention_bias", true), ..LLAMA },
    Family { types: &["mistral"], kv_heads: key_heads(8), bias: When::Never, window: window(4096), pattern: Pattern::Uniform, ..LLAMA },
    Family { types: &["phimoe"], kv_heads: key_heads(8), rope: Some(Rope { base: 1e6, long: Long::Short, ..ROPE }), window: Some(WINDOW), pattern: Pattern::Uniform, ..LLAMA },
    Family { types: &["mixtral"], kv_heads: key_heads(8), rope: base(1e6), window: Some(WINDOW), pattern: Pattern::Uniform, ..LLAMA },
    Family { types: &["minimax"], kv_heads: key_heads(8), bias: When::Never, rope: base(1e6), window: Some(WINDOW),
        pattern: every(2, true, Kind::Full, Kind::Other), ..LLAMA },
    Family { types: &["ministral"], kv_heads: key_heads(8), bias: When::Never, window: window(4096), pattern: SLIDING, ..LLAMA },
    Family { types: &["qwen2", "qwen2_vl", "qwen2_5_vl", "qwen2_vl_text", "qwen2_5_vl_text"], kv_heads: key_heads(32),
        head_dim: HeadDim::Key("head_dim", None), bias: When::Always, window: SWITCHED, pattern: Pattern::From("max_window_layers", 28), ..LLAMA },
    Family { types: &["qwen2_moe"], kv_heads: key_heads(16), bias: When::If("qkv_bias", true), window: SWITCHED,
        pattern: Pattern::EvenBefore("max_window_layers", 28), ..LLAMA },
    Family { types: &["qwen3"], kv_heads: key_heads(32), head_dim: head_dim(128), norm: rms(1e-6), window: SWITCHED,
        pattern: Pattern::From("max_window_layers", 28), ..LLAMA },
    Family { types: &["qwen3_moe"], kv_heads: key_heads(4), norm: rms(1e-6), window: SWITCHED, pattern: Pattern::Uniform, ..LLAMA },
    Family { types: &["dots1"], kv_heads: key_heads(32), norm: rms(1e-6), window: window(4096),
        pattern: Pattern::From("max_window_layers", 62), ..LLAMA },
    Family { types: &["cohere"], rope: Some(Rope { base: 500_000.0, ..PAIRS }), refused: &[When::If("use_qk_norm", false)], ..LLAMA },
    Family { types: &["cohere2"], rope: Some(Rope { layers: Turned::Sliding, ..PAIRS }), window: window(4096), pattern: last_full(4), ..LLAMA },
    Family { types: &["ernie4_5"], kv_heads: key_heads(2), head_dim: head_dim(128), bias: When::If("use_bias", false),
        rope: Some(Rope { base: 500_000.0, ..PAIRS }), ..LLAMA },
    Family { types: &["ernie4_5_moe"], kv_heads: key_heads(4), bias: When::If("use_bias", false),
        rope: Some(Rope { base: 500_000.0, ..PAIRS }), ..LLAMA },
    Family { types: &["exaone4", "exaone_moe"], kv_heads: key_heads(32), bias: When::Never, norm: rms(1e-5),
        rope: Some(Rope { layers: Turned::SlidingIfWindow, ..ROPE }), window: window(4096), pattern: last_full(4), ..LLAMA },
    Family { types: &["gemma"], kv_heads: key_heads(16), head_dim: head_dim(256), ..LLAMA },
    Family { types: &["gemma2", "vaultgemma"], kv_heads: key_heads(4), head_dim: head_dim(256), scale: Scale::RootOf("query_pre_attn_scalar", 256.0),
        softcap: Some(("attn_logit_softcapping", 50.0)), window: window(4096), pattern: EVEN, ..LLAMA },
    Family { types: &["gemma3_text"], kv_heads: key_heads(4), head_dim: head_dim(256), scale: Scale::RootOf("query_pre_attn_scalar", 256.0),
        norm: Some(Norm { kind: QkNorm::RmsPlusOne, ..NORM }), window: window(4096), pattern: last_full(6),
        rope: Some(Rope { base: 1e6, sliding_base: Some((&["rope_local_base_freq"], 10_000.0)), ..ROPE }),
        parts: &[part("layers.{}.self_attn", Sees::PastIf(When::IfNot("use_bidirectional_attention", false)))], ..LLAMA },
    Family { types: &["llama4_text"], kv_heads: key_heads(8), head_dim: head_dim(128),
        rope: Some(Rope { base: 500_000.0, layers: Turned::Listed, ..PAIRS }), chunk: Some(("attention_chunk_size", 8192)),
        pattern: Pattern::ChunkedIfTurned, refused: &[When::If("use_qk_norm", true), When::If("attn_temperature_tuning", true)], ..LLAMA },
    Family { types: &["minimax_m2"], kv_heads: key_heads(8), head_dim: head_dim(128), bias: When::Never, norm: rms_of_all(1e-6),
        rope: Some(Rope { base: 5e6, dims: Some(("rotary_dim", None)), ..ROPE }),
        ..LLAMA },
    Family { types: &["olmo"], refused: &[When::Set("clip_qkv")], ..LLAMA },
    Family { types: &["olmoe"], norm: rms_of_all(1e-5), refused: &[When::Set("clip_qkv")], ..LLAMA },
    Family { types: &["olmo2"], norm: rms_of_all(1e-5), ..LLAMA },
    Family { types: &["flex_olmo"], norm: rms_of_all(1e-6), rope: base(500_000.0), ..LLAMA },
    Family { types: &["olmo3"], norm: rms_of_all(1e-5), window: window(4096), pattern: last_full(4),
        rope: Some(Rope { base: 500_000.0, sliding_base: Some((&[], 500_000.0)), ..ROPE }), ..LLAMA },
    Family { types: &["glm", "glm4"], kv_heads: key_heads(2), head_dim: head_dim(128), bias: When::If("attention_bias", true),
        rope: Some(Rope { part: 0.5, ..PAIRS }), ..LLAMA },
    Family { types: &["glm4_moe"], kv_heads: key_heads(8), norm: Some(Norm { when: When::If("use_qk_norm", false), eps: ("rms_norm_eps", 1e-5), ..NORM }),
        rope: rotary_part(0.5), ..LLAMA },
    Family { types: &["solar_open"], kv_heads: key_heads(8), head_dim: head_dim(128), rope: base(1e6), ..LLAMA },
    Family { types: &["gpt_oss"], kv_heads: key_heads(8), head_dim: head_dim(64), bias: When::If("attention_bias", true),
        rope: Some(Rope { base: 150_000.0, scaling: GPT_OSS, ..ROPE }), window: window(128), pattern: EVEN, sinks: true, ..LLAMA },
    Family { types: &["granite", "granitemoe", "granitemoeshared"], scale: Scale::Key("attention_multiplier", Some(1.0)), ..LLAMA },
    Family { types: &["hyperclovax"], scale: Scale::Key("attention_multiplier", None), ..LLAMA },
    Family { types: &["granite_swa"], kv_heads: key_heads(4), scale: Scale::Key("attention_multiplier", Some(1.0)),
        rope: Some(Rope { bases: "layer_rope_theta", ..ROPE }), window: window(128), pattern: first_full(4), sinks: true, ..LLAMA },
    Family { types: &["helium"], kv_heads: key_heads(20), head_dim: head_dim(128), rope: Some(Rope { base: 100_000.0, ..PAIRS }), ..LLAMA },
    Family { types: &["nemotron"], rope: rotary_part(0.5), ..LLAMA },
    Family { types: &["phi"], refused: &[When::If("qk_layernorm", false)], bias: When::Always, rope: rotary_part(0.5), ..LLAMA },
    Family { types: &["phi3"], bias: When::Never, rope: Some(Rope { long: Long::First(4096), ..ROPE }), window: Some(WINDOW), pattern: Pattern::Uniform, ..LLAMA },
    Family { types: &["seed_oss"], kv_heads: key_heads(8), head_dim: head_dim(128), bias: When::If("attention_bias", true), ..LLAMA },
    Family { types: &["smollm3"], kv_heads: key_heads(4), rope: Some(Rope { base: 2e6, layers: Turned::Listed, ..ROPE }),
        window: Some(Window { when: When::If("use_sliding_window", false), ..WINDOW }), pattern: Pattern::Unturned, ..LLAMA },
    Family { types: &["stablelm"], refused: &[When::If("qk_layernorm", false)], kv_heads: key_heads(32), head_dim: HeadDim::Split, bias: When::If("use_qkv_bias", false), rope: rotary_part(0.25), ..LLAMA },
    Family { types: &["starcoder2"], kv_heads: key_heads(2), bias: When::If("use_bias", true), window: Some(WINDOW), pattern: Pattern::Uniform, ..LLAMA },
    Family { types: &["apertus"], norm: rms(1e-5), rope: Some(Rope { base: 12e6, base_keys: &[], scaling: APERTUS, ..ROPE }), ..LLAMA },
    Family { types: &["hy_v3"], kv_heads: key_heads(8), head_dim: head_dim(128), norm: rms(1e-5), rope: base(11_158_840.0), ..LLAMA },
    Family { types: &["lfm2"], kv_heads: key_heads(8), bias: When::Never, norm: Some(Norm { eps: ("norm_eps", 1e-5), ..NORM }), rope: base(1e6), ..LLAMA },
    Family { types: &["cwm"], kv_heads: key_heads(8), head_dim: head_dim(128), bias: When::Never, window: window(8192), pattern: first_full(4),
        rope: Some(Rope { base: 1e6, base_keys: &[], scaling: CWM, ..ROPE }), ..LLAMA },
    Family { types: &["falcon_h1"], kv_heads: key_heads(8), scale: Scale::RootTimes("key_multiplier"), ..LLAMA },
    Family { types: &["jamba"], kv_heads: key_heads(8), bias: When::Never, rope: None,
        pattern: Pattern::Few { period: ("attn_layer_period", 8), offset: ("attn_layer_offset", 4) }, ..LLAMA },
    Family { types: &["modernbert-decoder"], parts: &[part("layers.{}.attn", Sees::Past)], kv_heads: KeyHeads::AsQueries, head_dim: HeadDim::Split,
        rope: Some(Rope { base: 160_000.0, base_keys: &["global_rope_theta"], sliding_base: Some((&["local_rope_theta"], 10_000.0)), ..ROPE }),
        window: Some(Window { key: "local_attention", otherwise: Some(128), per: 2, ..WINDOW }),
        pattern: Pattern::Every { by: ("global_attn_every_n_layers", 3), first: true, there: Kind::Full, elsewhere: Kind::Sliding }, ..LLAMA },
    Family { types: &["modernbert"], parts: &[part("layers.{}.attn", Sees::All)], kv_heads: KeyHeads::AsQueries, head_dim: HeadDim::Split,
        rope: Some(Rope { base: 160_000.0, base_keys: &["global_rope_theta"], sliding_base: Some((&["local_rope_theta"], 10_000.0)), ..ROPE }),
        window: Some(Window { key: "local_attention", otherwise: Some(128), ..WINDOW }),
        pattern: Pattern::Every { by: ("global_attn_every_n_layers", 3), first: true, there: Kind::Full, elsewhere: Kind::Sliding }, ..LLAMA },
    Family { types: &["eurobert"], parts: &[part("layers.{}.self_attn", Sees::All)], ..LLAMA },
    // Decoders of other builds.
    GPT2,
    Family { types: &["openai-gpt"], parts: &[part("h.{}.attn", Sees::Past)], scale: Scale::Root, ..GPT2 },
    Family { types: &["gpt_bigcode"], kv_heads: KeyHeads::OneIf("multi_query"), packing: &[(When::IfNot("multi_query", true), Packing::Heads)], ..GPT2 },
    Family { types: &["ctrl"], parts: &[part("h.{}.multi_head_attention", Sees::Past)], scale: Scale::Root, ..GPT2 },
    Family { types: &["gpt_neo"], parts: &[part("h.{}.attn.attention", Sees::Past)], heads: &["num_heads"], layers: &["num_layers"], bias: When::Always,
        scale: Scale::By(1.0), window: Some(Window { key: "window_size", otherwise: Some(256), ..WINDOW }),
        pattern: every(2, false, Kind::Sliding, Kind::Full), ..PLAIN },
    Family { types: &["gpt_neox"], parts: &[part("layers.{}.attention", Sees::Past)], bias: When::If("attention_bias", true),
        rope: Some(Rope { base_keys: &["rotary_emb_base"], part: 0.25, part_keys: &["rotary_pct"], ..ROPE }), ..PLAIN },
    Family { types: &["gpt_neox_japanese"], parts: &[part("layers.{}.attention", Sees::Past)],
        rope: Some(Rope { base_keys: &["rotary_emb_base"], part_keys: &["rotary_pct"], ..ROPE }), ..PLAIN },
    Family { types: &["gptj"], parts: &[part("h.{}.attn", Sees::Past)], bias: When::Never, scale: Scale::Root,
        rope: Some(Rope { base_keys: &[], dims: Some(("rotary_dim", Some(64))), ..PAIRS }), ..GPT2 },
    Family { types: &["codegen"], parts: &[part("h.{}.attn", Sees::Past)], bias: When::Never, scale: Scale::Root, packing: &[(When::Always, Packing::Codegen)],
        rope: Some(Rope { base_keys: &[], dims: Some(("rotary_dim", Some(64))), ..PAIRS }), ..GPT2 },
    Family { types: &["bloom"], parts: &[part("h.{}.self_attention", Sees::Past)], width: &["hidden_size", "n_embed"], scale: Scale::Root,
        alibi: When::Always, alibi_form: AlibiForm::Bloom, ..GPT2 },
    Family { types: &["mpt"], parts: &[part("blocks.{}.attn", Sees::Past)], width: &["d_model"], heads: &["n_heads"], layers: &["n_layers"],
        scale: Scale::Key("attn_config.softmax_scale", None), alibi: When::Always, alibi_form: AlibiForm::Mpt,
        refused: &[When::Set("attn_config.clip_qkv")], ..PLAIN },
    Family { types: &["falcon"], alibi: When::If("alibi", false), alibi_form: AlibiForm::Falcon, parts: &[part("h.{}.self_attention", Sees::Past)], kv_heads: KeyHeads::Falcon, bias: When::If("bias", false),
        rope: Some(Rope { when: When::IfNot("alibi", false), ..ROPE }), ..PLAIN },
    Family { types: &["opt"], parts: &[part("decoder.layers.{}.self_attn", Sees::Past)], bias: When::If("enable_bias", true), ..PLAIN },
    Family { types: &["xglm"], width: &["d_model"], heads: &["attention_heads"], layers: &["num_layers"], bias: When::Always, ..PLAIN },
    Family { types: &["biogpt"], bias: When::Always, ..PLAIN },
    // Encoders.
    BERT,
    Family { types: &["roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "bert-generation"], ..BERT },
    Family { types: &["albert"], parts: &[part("albert_layer_groups.0.albert_layers.{}.attention", Sees::All)], layers: &["inner_group_num"], ..BERT },
    Family { types: &["distilbert"], parts: &[part("layer.{}.attention", Sees::All)], width: &["dim"], heads: &["n_heads"], layers: &["n_layers"], ..BERT },
    Family { types: &["mpnet"], parts: &[part("encoder.layer.{}.attention.attn", Sees::All)],
        relative: Some(Relative { buckets: ("", 32), max_distance: ("", 128), ..BUCKETS }), ..BERT },
    Family { types: &["esm"], rope: Some(Rope { when: When::Is("position_embedding_type", "rotary"), ..ROPE }), ..BERT },
    Family { types: &["roformer"], refused: &[When::If("rotary_value", false)], rope: Some(Rope { base_keys: &[], ..PAIRS }), ..BERT },
    Family { types: &["nomic_bert"], parts: &[part("encoder.layers.{}.attn", Sees::All)], bias: When::Never, rope: base(1000.0), ..BERT },
    Family { types: &["wav2vec2", "hubert"], parts: &[part("encoder.layers.{}.attention", Sees::All)], bias: When::Always, ..PLAIN },
    VIT,
    Family { types: &["beit"], relative: Some(Relative { when: When::Either("use_relative_position_bias", "use_shared_relative_position_bias"),
        is_grid: true, buckets: ("", 0), max_distance: ("", 128) }), ..VIT },
    CLIP,
    Family { types: &["siglip"], parts: &[
        Part { config: "text_config", ..part("text_model.encoder.layers.{}.self_attn", Sees::All) },
        Part { config: "vision_config", ..part("vision_model.encoder.layers.{}.self_attn", Sees::All) },
    ], ..CLIP },
    Family { types: &["clip_text_model"], parts: &[part("encoder.layers.{}.self_attn", Sees::Past)], ..CLIP },
    Family { types: &["clip_vision_model", "siglip_text_model", "siglip_vision_model"], parts: &[part("encoder.layers.{}.self_attn", Sees::All)], ..CLIP },
    // Encoder-decoders.
    BART,
    T5,
];
