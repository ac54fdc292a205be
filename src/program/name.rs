//! The steps that there can be: one row each, with all that there is to know of it by its name alone.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use super::called::{
    ATTN_OUTPUT, C_KV, CONCAT, CONTEXT, DOT_PRODUCTS, HEADS, HOOKED, INPUT, K_PAST, K_ROT, KEY,
    LOGITS, LSE, MASKED, MEMORY, MEMORY_V, OUTPUT, Q_ROT, QUERY, SCALED, SPLIT_LSE, SPLIT_OUTPUTS,
    V_PAST, VALUE, WEIGHTS, known, ranked,
};
use super::role::{Role, Size};
use super::row::Row;
use base::lang;

macro_rules! steps {
    ($($variant:ident = $name:literal, $title:literal, $row:expr $(, reads [$($read:ident),+])?;)+) => {
        /// The name of a step.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Name {
            $(#[doc = concat!("`", $name, "`: ", $title, ".")] $variant,)+
            /// The gradient of a step.
            Gradient(Forward),
        }

        /// The name of a step of the forward pass.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Forward { $(#[doc = concat!("`", $name, "`.")] $variant,)+ }

        impl Forward {
            /// The step.
            pub fn step(self) -> Name {
                match self { $(Self::$variant => Name::$variant,)+ }
            }

            /// What there is to know of its gradient.
            fn row(self) -> &'static Row {
                match self {
                    $(Self::$variant => {
                        const ROW: Row = $row.gradient().named(concat!("d_", $name), $title);
                        &ROW
                    })+
                }
            }
        }

        impl Name {
            /// Every name there is, those of gradients behind the others.
            pub const ALL: &'static [Self] =
                &[$(Self::$variant,)+ $(Self::Gradient(Forward::$variant)),+];

            /// The name of the step's gradient.
            pub fn gradient(self) -> Self {
                match self {
                    $(Self::$variant => Self::Gradient(Forward::$variant),)+
                    Self::Gradient(_) => self,
                }
            }

            /// What there is to know of the step.
            pub fn row(self) -> &'static Row {
                match self {
                    $(Self::$variant => {
                        const ROW: Row = $row.named($name, $title);
                        &ROW
                    })+
                    Self::Gradient(own) => own.row(),
                }
            }

            /// Whether it is the gradient of another one.
            pub fn is_gradient(self) -> bool {
                matches!(self, Self::Gradient(_))
            }

            /// The steps that it can read; a run has some of them.
            fn reads(self) -> &'static [Self] {
                match self {
                    $(Self::$variant => &[$($(Self::$read),+)?],)+
                    Self::Gradient(_) => &[],
                }
            }
        }
    };
}

use Role::{Cache, Input, Parameter, Random, Setting};
use Size::{
    AllKeys, Batch, BiasedKeys, Chunks, ConcatWidth, HeadDim, Heads, KeyDim, KeyHeads, KeyInput,
    KeyLatent, KeyWidth, Keys, LatentDim, One, OutputHeads, OwnKeys, Pairs, PastKeys, Queries,
    QueryInput, QueryLatent, QueryWidth, RepeatedHeads, ScoreDim, Sequences, SharedDim,
    SharedWidth, Splits, StateDim, Tiles, Tokens, ValueDim, ValueHeads, ValueInput, ValueWidth,
    WeightedDim,
};

/// What keys and values may be scaled by alike.
const KV_SCALE: &[&str] = &["kv_scale", "kv_scales", "kv_descale", "kv_cache_scale"];
/// What brings keys in pages.
const IN_PAGES: &str = "a cache in pages in the file, with block_table or kv_indices";
/// What brings numbers in few bits.
const IN_FEW_BITS: &str = "k and v in few bits in the file, with k_scale and v_scale";
const SCORES: &[Size] = &[Batch, Heads, Queries, AllKeys];
/// Masks and biases of scores, which know nothing of added keys.
const OF_TOKENS: &[Size] = &[Batch, Heads, Queries, Keys];
const OF_SPLITS: &[Size] = &[Splits, Batch, Heads, Queries];
const OF_TILES: &[Size] = &[Tiles, Batch, Heads, Queries];
const OF_QUERIES: &[Size] = &[Batch, Heads, Queries, HeadDim];
const OF_KEYS: &[Size] = &[Batch, KeyHeads, OwnKeys, HeadDim];
const OF_OWN_KEYS: &[Size] = &[Batch, KeyHeads, OwnKeys, KeyDim];
const OF_SHARED_KEYS: &[Size] = &[Batch, One, OwnKeys, SharedDim];
const OF_VALUES: &[Size] = &[Batch, ValueHeads, OwnKeys, ValueDim];
/// A state of every sequence and head.
const OF_STATES: &[Size] = &[Sequences, OutputHeads, HeadDim, StateDim];
/// Relative positions, the same for every item.
const OF_POSITIONS: &[Size] = &[Size::OneItem, Heads, Size::Positions, HeadDim];
const OF_OUTPUTS: &[Size] = &[Batch, OutputHeads, Queries, ValueDim];

steps! {
    X = "x", "input", Row::new(Input, &[Batch, Tokens, Size::Input]).file("x").called(INPUT);
    Memory = "memory", "second input", Row::new(Input, &[Batch, OwnKeys, Size::Memory]).file("memory").called(MEMORY);
    MemoryV = "memory_v", "second input of the values", Row::new(Input, &[Batch, OwnKeys, ValueInput]).by("`d_memory_v=N`").file("memory_v").called(MEMORY_V);
    WQ = "w_q", "weight of the query projection", weight(&[QueryWidth, QueryInput]);
    BQ = "b_q", "bias of the query projection", bias(&[QueryWidth]);
    WK = "w_k", "weight of the key projection", weight(&[KeyWidth, KeyInput]);
    BK = "b_k", "bias of the key projection", bias(&[KeyWidth]);
    WV = "w_v", "weight of the value projection", weight(&[ValueWidth, ValueInput]);
    BV = "b_v", "bias of the value projection", bias(&[ValueWidth]);
    WO = "w_o", "weight of the output projection", weight(&[Size::Model, ConcatWidth]);
    BO = "b_o", "bias of the output projection", bias(&[Size::Model]);
    BiasK = "bias_k", "learned key, appended to those of the tokens", weight(&[KeyWidth]).by("`add_bias_kv`").drawn(&["bias_k"]);
    BiasV = "bias_v", "learned value, appended to those of the tokens", weight(&[ValueWidth]).by("`add_bias_kv`").drawn(&["bias_v"]);
    WDq = "w_dq", "weight of the projection to the queries' latent", weight(&[QueryLatent, Size::Input]).by("`q_lora_rank=N`").drawn(&["w_dq"]);
    BDq = "b_dq", "bias of the projection to the queries' latent", bias(&[QueryLatent]).drawn(&["b_dq"]);
    WCqNorm = "w_c_q_norm", "weight of the norm of the queries' latent", weight(&[QueryLatent]).by("`q_lora_rank=N`").stored(&["w_c_q_norm"], 1.0);
    WDkv = "w_dkv", "weight of the projection to the latent of keys and values",
        weight(&[KeyLatent, Size::Memory]).by("`kv_lora_rank=N`").drawn(&["w_dkv"]);
    BDkv = "b_dkv", "bias of the projection to the latent of keys and values", bias(&[KeyLatent]).drawn(&["b_dkv"]);
    WCkvNorm = "w_c_kv_norm", "weight of the norm of the latent of keys and values",
        weight(&[KeyLatent]).by("`kv_lora_rank=N`").stored(&["w_c_kv_norm"], 1.0);
    WKr = "w_kr", "weight of the projection of the shared key", weight(&[SharedWidth, Size::Memory]).by("`qk_rope_head_dim=N`").drawn(&["w_kr"]);
    BKr = "b_kr", "bias of the projection of the shared key", bias(&[SharedWidth]).drawn(&["b_kr"]);
    WQNorm = "w_q_norm", "weight of the queries' norm", weight(&[Heads, HeadDim]).by("`qk_norm=rms`")
        .stored(&["q_norm.weight", "q_layernorm.weight", "q_ln.weight", "query_layernorm.weight", "attn_q_norm.weight", "q_layernorm.norms.{}.weight"], 1.0);
    BQNorm = "b_q_norm", "bias of the queries' norm", weight(&[Heads, HeadDim]).by("`qk_norm=layer`")
        .stored(&["q_norm.bias", "q_layernorm.bias", "q_ln.bias", "query_layernorm.bias"], 0.0);
    WKNorm = "w_k_norm", "weight of the keys' norm", weight(&[KeyHeads, HeadDim]).by("`qk_norm=rms`")
        .stored(&["k_norm.weight", "k_layernorm.weight", "k_ln.weight", "key_layernorm.weight", "attn_k_norm.weight", "k_layernorm.norms.{}.weight"], 1.0);
    BKNorm = "b_k_norm", "bias of the keys' norm", weight(&[KeyHeads, HeadDim]).by("`qk_norm=layer`")
        .stored(&["k_norm.bias", "k_layernorm.bias", "k_ln.bias", "key_layernorm.bias"], 0.0);
    WConcatNorm = "w_concat_norm", "weight of the norm before the output projection", weight(&[ConcatWidth]).by("`concat_norm=rms`")
        .stored(&["attn_sub_norm.weight"], 1.0);
    WGate = "w_gate", "weight of the gate's projection", weight(&[ConcatWidth, Size::Input]).by("`gate=sigmoid`")
        .drawn(&["gate_proj.weight", "g_proj.weight"]);
    BGate = "b_gate", "bias of the gate's projection", bias(&[ConcatWidth]).drawn(&["gate_proj.bias", "g_proj.bias"]);
    LambdaQ1 = "lambda_q1", "first vector of λ's first exponent", lambda(&["lambda_q1"]);
    LambdaK1 = "lambda_k1", "second vector of λ's first exponent", lambda(&["lambda_k1"]);
    LambdaQ2 = "lambda_q2", "first vector of λ's second exponent", lambda(&["lambda_q2"]);
    LambdaK2 = "lambda_k2", "second vector of λ's second exponent", lambda(&["lambda_k2"]);
    WHeadNorm = "w_head_norm", "weight of the norm of every head's output", weight(&[ValueDim]).by("`lambda_init=X`")
        .stored(&["subln.weight"], 1.0);
    Sinks = "sinks", "learned scores that belong to no key, one per head",
        weight(&[Heads]).by("`sinks`").stored(&["sinks", "attn_sink", "attention_sink", "attention_sink_bias", "softmax_offset"], 0.0)
            .called(&[known(&["s_aux", "sink", "attn_sink", "attn_sinks", "attention_sinks", "attention_sink"])]);
    RelativeTable = "relative_bias_table", "biases of relative positions, by bucket",
        weight(&[Size::Buckets, Heads]).by(RELATIVE)
            .stored(&["relative_attention_bias.weight", "relative_position_bias.relative_position_bias_table",
                "attention.relative_position_bias.relative_position_bias_table", "relative_position_bias_table"], 0.0);
    RelEmbeddings = "rel_embeddings", "embeddings of relative positions",
        weight(&[Size::OneItem, Size::Positions, Size::Input]).by(DISENTANGLED).drawn(&["rel_embeddings.weight"]);
    WRelNorm = "w_rel_norm", "weight of the norm of relative positions", weight(&[Size::Input]).by("`rel_norm_eps=X`").stored(&["LayerNorm.weight"], 1.0);
    BRelNorm = "b_rel_norm", "bias of the norm of relative positions", weight(&[Size::Input]).by("`rel_norm_eps=X`").stored(&["LayerNorm.bias"], 0.0);
    WPosK = "w_pos_k", "weight of the key projection of relative positions", weight(&[KeyWidth, Size::Input]).by(DISENTANGLED)
        .drawn(&["pos_key_proj.weight", "self.pos_key_proj.weight"]);
    BPosK = "b_pos_k", "bias of the key projection of relative positions", bias(&[KeyWidth]).drawn(&["pos_key_proj.bias", "self.pos_key_proj.bias"]);
    WPosQ = "w_pos_q", "weight of the query projection of relative positions", weight(&[QueryWidth, Size::Input]).by(DISENTANGLED)
        .drawn(&["pos_query_proj.weight", "self.pos_query_proj.weight"]);
    BPosQ = "b_pos_q", "bias of the query projection of relative positions", bias(&[QueryWidth]).drawn(&["pos_query_proj.bias", "self.pos_query_proj.bias"]);
    RopeFreqs = "rope_freqs", "frequencies of the rotary positions",
        Row::new(Setting, &[Pairs]).detail().by("`rope=half`").file("rope_freqs");
    KPast = "k_past", "keys of the cache", past(&[Batch, KeyHeads, PastKeys, HeadDim]).called(K_PAST);
    VPast = "v_past", "values of the cache", past(&[Batch, ValueHeads, PastKeys, ValueDim]).called(V_PAST);
    KShared = "k_shared", "keys of an earlier layer", shared(&[Batch, KeyHeads, OwnKeys, HeadDim]).called(&[known(&["k_shared", "shared_key", "shared_keys"])]);
    VShared = "v_shared", "values of an earlier layer", shared(OF_VALUES).called(&[known(&["v_shared", "shared_value", "shared_values"])]);
    KScalePages = "k_scale_pages", "scales of the keys in the pages of a cache",
        Row::new(Setting, &[Batch, KeyHeads, Size::Slots, KeyDim]).by(IN_PAGES).called(&[known(&["k_scale_pages"])]);
    VScalePages = "v_scale_pages", "scales of the values in the pages of a cache",
        Row::new(Setting, &[Batch, ValueHeads, Size::Slots, ValueDim]).by(IN_PAGES).called(&[known(&["v_scale_pages"])]);
    Slots = "slots", "slots of the keys in the pages, in order",
        Row::new(Setting, &[OwnKeys]).by(IN_PAGES).called(&[known(&["slots"])]);
    QQuantized = "q_quantized", "queries in few bits", few_bits(OF_QUERIES).called(&[known(&["q_quantized", "quantized_q", "q_quant", "q_fp8", "q_int8", "query_quantized", "query_fp8", "query_int8"])]);
    QScale = "q_scale", "scales of the queries in few bits",
        scale_of(OF_QUERIES).called(&[known(&["q_scale", "q_scales", "q_descale", "query_scale", "query_scales", "q_scale_inv"])]);
    QZeroPoint = "q_zero_point", "zero points of the queries in few bits",
        scale_of(OF_QUERIES).called(&[known(&["q_zero_point", "q_zero_points", "q_zero", "q_zeros", "q_zp"])]);
    KQuantized = "k_quantized", "keys in few bits", few_bits(OF_OWN_KEYS).called(&[known(&["k_quantized", "quantized_k", "k_quant", "k_fp8", "k_int8", "k_int4", "k_fp4", "k_u8", "k_packed", "key_quantized", "key_fp8", "key_int8", "k_cache_fp8", "k_cache_int8", "k_cache_quant"])]);
    KScale = "k_scale", "scales of the keys in few bits",
        scale_of(OF_OWN_KEYS).called(&[known(&["k_scale", "k_scales", "k_descale", "key_scale", "key_scales", "k_scale_cache", "key_scale_cache", "k_cache_scale", "k_cache_scales", "k_scale_inv", "keys_scale", "keys_scales", "k_block_scale", "k_block_scales"]), known(KV_SCALE)]), reads [KScalePages, Slots];
    KZeroPoint = "k_zero_point", "zero points of the keys in few bits",
        scale_of(OF_OWN_KEYS).called(&[known(&["k_zero_point", "k_zero_points", "k_zero", "k_zeros", "k_zp", "key_zero_point", "key_zeros", "keys_zero_point", "keys_zeros"])]);
    VQuantized = "v_quantized", "values in few bits", few_bits(OF_VALUES).called(&[known(&["v_quantized", "quantized_v", "v_quant", "v_fp8", "v_int8", "v_int4", "v_fp4", "v_u8", "v_packed", "value_quantized", "value_fp8", "value_int8", "v_cache_fp8", "v_cache_int8", "v_cache_quant"])]);
    VScale = "v_scale", "scales of the values in few bits",
        scale_of(OF_VALUES).called(&[known(&["v_scale", "v_scales", "v_descale", "value_scale", "value_scales", "v_scale_cache", "value_scale_cache", "v_cache_scale", "v_cache_scales", "v_scale_inv", "values_scale", "values_scales", "v_block_scale", "v_block_scales"]), ranked(KV_SCALE, 1)]), reads [VScalePages, Slots];
    VZeroPoint = "v_zero_point", "zero points of the values in few bits",
        scale_of(OF_VALUES).called(&[known(&["v_zero_point", "v_zero_points", "v_zero", "v_zeros", "v_zp", "value_zero_point", "value_zeros", "values_zero_point", "values_zeros"])]);
    KPages = "k_pages", "keys in the pages of a cache",
        Row::new(Setting, &[Batch, KeyHeads, Size::Slots, KeyDim]).by(IN_PAGES).called(&[known(&["k_pages"])]);
    VPages = "v_pages", "values in the pages of a cache",
        Row::new(Setting, &[Batch, ValueHeads, Size::Slots, ValueDim]).by(IN_PAGES).called(&[known(&["v_pages"])]);
    G = "g", "logarithm of what is left of the state at every token", Row::new(Input, &[Batch, OutputHeads, OwnKeys, HeadDim]).by(GATED).file("g")
        .called(&[known(&["g", "log_decay", "decay_log", "log_g", "gate_log", "g_log"])]);
    Beta = "beta", "how much of the difference each token writes", Row::new(Input, &[Batch, OutputHeads, OwnKeys]).by(RECURRENCE).file("beta")
        .called(&[known(&["beta", "betas", "b_t", "write_strength"])]);
    InitialState = "initial_state", "state before the first token", Row::new(Cache, OF_STATES).by("`initial_state=FILE`").file("initial_state")
        .called(&[known(&["initial_state", "h0", "state_0", "init_state", "initial_states", "past_recurrent_state", "recurrent_state_in"])]);
    CausalMask = "mask_causal", "later keys, which a query may not see", Row::new(Setting, &[Queries, Keys]).boolean().inner();
    WindowMask = "mask_window", "keys outside a query's window", Row::new(Setting, &[Queries, Keys]).boolean().inner();
    ChunkMask = "mask_chunk", "keys of other chunks than a query's", Row::new(Setting, &[Queries, Keys]).boolean().inner();
    KeyMask = "mask_keys", "keys that an item's queries may not see", Row::new(Setting, &[Batch, Heads, Queries, Keys]).boolean().inner();
    LengthMask = "mask_lengths", "keys beyond their item's length", Row::new(Setting, OF_TOKENS).boolean().inner();
    DocumentMask = "mask_documents", "keys of other documents", Row::new(Setting, OF_TOKENS).boolean().inner().by("`segments=N,N`");
    SelectionMask = "mask_selected", "keys that were not chosen for a query", Row::new(Setting, OF_TOKENS).boolean().inner().by("`selected=parents=…` or `selected=keys=…`");
    FileMask = "mask_file", "what the file's mask blocks", Row::new(Setting, OF_TOKENS).boolean().inner().file("attn_mask");
    Mask = "mask", "which keys a query may not see",
        Row::new(Setting, OF_TOKENS).boolean().by("`mask=causal`, `lengths` or `attn_mask=FILE`").file("attn_mask"),
        reads [CausalMask, WindowMask, ChunkMask, KeyMask, LengthMask, DocumentMask, SelectionMask, FileMask];
    AlibiSlopes = "alibi_slopes", "slopes of the heads' position biases", Row::new(Setting, &[Heads]).inner().by("`alibi`");
    Alibi = "alibi", "linear position biases", Row::new(Setting, &[Heads, Queries, Keys]).inner().by("`alibi`"), reads [AlibiSlopes];
    RelativeBias = "relative_bias", "biases of relative positions", Row::new(Setting, &[Heads, Queries, Keys]).inner().by(RELATIVE),
        reads [RelativeTable];
    GivenBias = "bias_given", "the file's position biases", Row::new(Setting, OF_TOKENS).blocked().inner().file("attn_bias");
    FileBias = "bias_file", "the file's float mask", Row::new(Setting, OF_TOKENS).blocked().inner().file("attn_mask");
    AttnBias = "attn_bias", "position biases or float mask",
        Row::new(Setting, OF_TOKENS).blocked().by("`alibi`, `attn_bias=FILE` or `attn_mask=FILE`").file("attn_mask")
            .called(&[known(&["relative_position_bias", "rel_pos_bias", "relative_attention_bias"])]),
        reads [Alibi, RelativeBias, GivenBias, FileBias];
    MaskPadded = "mask_padded", "which keys a query may not see, with the added keys",
        Row::new(Setting, SCORES).boolean().inner().by(ADDED), reads [Mask];
    AttnBiasPadded = "attn_bias_padded", "position biases or float mask, with those of added keys",
        Row::new(Setting, SCORES).blocked().inner().by(ADDED), reads [AttnBias];
    DropoutKeep = "dropout_keep", "weights that dropout keeps", Row::new(Random, SCORES).boolean().by("`dropout=P`");
    DropoutScale = "dropout_scale", "factor of the kept weights", Row::new(Setting, &[]).inner().by("`dropout=P`");
    CQ = "c_q", "latent of the queries", Row::computed(&[Batch, Queries, QueryLatent]).by("`q_lora_rank=N`")
        .called(&[known(&["c_q", "q_a", "q_a_proj", "q_latent", "compressed_q"])]), reads [X, WDq, BDq];
    CQNorm = "c_q_norm", "latent of the queries, normalised",
        Row::computed(&[Batch, Queries, QueryLatent]).by("`q_lora_rank=N`").called(&[known(&["c_q_norm", "q_a_norm", "q_a_layernorm"])]),
        reads [WCqNorm, CQ];
    CKv = "c_kv", "latent of keys and values", Row::computed(&[Batch, OwnKeys, KeyLatent]).by("`kv_lora_rank=N`")
        .called(&[known(C_KV)]), reads [X, Memory, WDkv, BDkv];
    CKvNorm = "c_kv_norm", "latent of keys and values, normalised",
        Row::computed(&[Batch, OwnKeys, KeyLatent]).by("`kv_lora_rank=N`").called(&[known(&["c_kv_norm", "kv_a_norm", "kv_a_layernorm"]), known(&["kv_cache"]), ranked(C_KV, 1)]),
        reads [WCkvNorm, CKv];
    Q = "q", "queries", Row::computed(&[Batch, Queries, QueryWidth]).file("q").called(&[known(QUERY)]), reads [X, WQ, BQ, CQNorm];
    K = "k", "keys", Row::computed(&[Batch, OwnKeys, KeyWidth]).file("k").called(&[known(KEY)]), reads [X, Memory, WK, BK, CKvNorm];
    V = "v", "values", Row::computed(&[Batch, OwnKeys, ValueWidth]).file("v").called(&[known(VALUE)]), reads [X, Memory, MemoryV, K, WV, BV, CKvNorm];
    KR = "k_r", "key that all heads share", Row::computed(&[Batch, OwnKeys, SharedWidth]).by("`qk_rope_head_dim=N`")
        .called(&[known(&["k_r", "k_pe"])]), reads [X, Memory, WKr, BKr];
    QHeads = "q_heads", "queries, split into heads",
        Row::computed(OF_QUERIES).file("q").called(&[known(&["q_heads", "q_split", "q_state", "query_heads", "qh"]), ranked(QUERY, 1)]), reads [Q];
    KHeads = "k_heads", "keys, split into heads",
        Row::computed(OF_OWN_KEYS).file("k").called(&[known(&["k_heads", "k_split", "k_state", "key_heads", "kh"]), ranked(KEY, 1)]), reads [K];
    VHeads = "v_heads", "values, split into heads",
        Row::computed(OF_VALUES).file("v").called(&[known(&["v_heads", "v_split", "v_state", "value_heads", "vh"]), ranked(VALUE, 1)]), reads [V];
    KRHeads = "k_r_heads", "shared key, as one head",
        Row::computed(OF_SHARED_KEYS).by("`qk_rope_head_dim=N`").called(&[known(&["k_r_heads"]), ranked(&["k_r", "k_pe"], 1)]), reads [KR];
    KGathered = "k_gathered", "keys, out of their pages",
        Row::computed(OF_OWN_KEYS).by(IN_PAGES).called(&[known(&["k_gathered", "gathered_k", "key_gathered"])]), reads [KPages, Slots];
    VGathered = "v_gathered", "values, out of their pages",
        Row::computed(OF_VALUES).by(IN_PAGES).called(&[known(&["v_gathered", "gathered_v", "value_gathered"])]), reads [VPages, Slots];
    QDequantized = "q_dequantized", "queries, scaled back from few bits",
        Row::computed(OF_QUERIES).by(IN_FEW_BITS).called(&[known(&["q_dequantized", "q_dequant", "q_dq", "dequantized_q"])]), reads [QQuantized, QScale, QZeroPoint];
    KDequantized = "k_dequantized", "keys, scaled back from few bits",
        Row::computed(OF_OWN_KEYS).by(IN_FEW_BITS).called(&[known(&["k_dequantized", "k_dequant", "keys_dequant", "key_dequant", "k_dq", "dequantized_k"])]), reads [KQuantized, KGathered, KScale, KZeroPoint];
    VDequantized = "v_dequantized", "values, scaled back from few bits",
        Row::computed(OF_VALUES).by(IN_FEW_BITS).called(&[known(&["v_dequantized", "v_dequant", "values_dequant", "value_dequant", "v_dq", "dequantized_v"])]), reads [VQuantized, VGathered, VScale, VZeroPoint];
    QNorm = "q_norm", "queries, every head normalised",
        Row::computed(OF_QUERIES).by("`qk_norm=rms`").called(&[known(&["q_norm", "q_normed"]), ranked(QUERY, 2)]), reads [QHeads, QDequantized, WQNorm, BQNorm];
    KNorm = "k_norm", "keys, every head normalised",
        Row::computed(OF_KEYS).by("`qk_norm=rms`").called(&[known(&["k_norm", "k_normed"]), ranked(KEY, 2)]), reads [KHeads, KDequantized, KGathered, WKNorm, BKNorm];
    VNorm = "v_norm", "values, every head normalised",
        Row::computed(OF_VALUES).by("`v_norm=rms`").called(&[known(&["v_norm", "v_normed"]), ranked(VALUE, 4)]), reads [VHeads, VDequantized, VGathered];
    QClipped = "q_clipped", "queries, clipped to a limit",
        Row::computed(OF_QUERIES).by("`clip_qkv=C`").called(&[known(&["q_clipped", "q_clamped"]), ranked(QUERY, 4)]), reads [QHeads, QDequantized, QNorm];
    KClipped = "k_clipped", "keys, clipped to a limit",
        Row::computed(OF_OWN_KEYS).by("`clip_qkv=C`").called(&[known(&["k_clipped", "k_clamped"]), ranked(KEY, 6)]), reads [KHeads, KDequantized, KGathered, KNorm];
    VClipped = "v_clipped", "values, clipped to a limit",
        Row::computed(OF_VALUES).by("`clip_qkv=C`").called(&[known(&["v_clipped", "v_clamped"]), ranked(VALUE, 5)]), reads [VHeads, VDequantized, VGathered, VNorm];
    VScaled = "v_scaled", "values times a factor",
        Row::computed(OF_VALUES).by("`value_scale=S`").called(&[known(&["v_scaled"]), ranked(VALUE, 6)]), reads [VHeads, VDequantized, VGathered, VNorm, VClipped];
    QRot = "q_rot", "queries, rotated by their positions",
        Row::computed(OF_QUERIES).by("`rope=half` or interleaved").called(&[known(Q_ROT), ranked(QUERY, 3)]),
        reads [QHeads, QDequantized, QNorm, QClipped, RopeFreqs];
    KRot = "k_rot", "keys, rotated by their positions",
        Row::computed(OF_KEYS).by("`rope=half` or interleaved").called(&[known(K_ROT), ranked(KEY, 3)]), reads [KHeads, KDequantized, KGathered, KNorm, KClipped, RopeFreqs];
    KRRot = "k_r_rot", "shared key, rotated by its positions",
        Row::computed(OF_SHARED_KEYS).by("`qk_rope_head_dim=N`").called(&[known(&["k_r_rot", "pe_cache"]), ranked(&["k_r", "k_pe"], 2)]),
        reads [RopeFreqs, KRHeads];
    CHeads = "c_heads", "latent of keys and values, as one head",
        Row::computed(&[Batch, One, OwnKeys, LatentDim]).by("`absorb`").called(&[known(&["c_heads", "latent_heads"]), ranked(C_KV, 2)]),
        reads [CKvNorm];
    KLatent = "k_latent", "latent as a key, followed by the shared key",
        Row::computed(&[Batch, One, OwnKeys, ScoreDim]).by("`absorb`").called(&[known(&["k_latent"]), ranked(KEY, 11)]),
        reads [CHeads, KRHeads, KRRot];
    KJoined = "k_joined", "keys of the heads, each followed by the shared key",
        Row::computed(OF_KEYS).by("`qk_rope_head_dim=N`")
            .called(&[known(&["k_joined"]), ranked(K_ROT, 1), ranked(KEY, 8)]), reads [KHeads, KDequantized, KGathered, KClipped, KRHeads, KRRot];
    VRot = "v_rot", "values, rotated by their positions",
        Row::computed(OF_VALUES).by("`rope_value`")
            .called(&[known(&["v_rot", "rotated_v"]), ranked(VALUE, 9)]), reads [VHeads, VDequantized, VGathered, VNorm, VClipped, VScaled, RopeFreqs];
    QRotNorm = "q_rot_norm", "queries, every head normalised after its rotation",
        Row::computed(OF_QUERIES).by("`qk_norm_after_rope`")
            .called(&[known(&["q_rot_norm"]), ranked(QUERY, 5)]), reads [QHeads, QDequantized, QClipped, QRot, WQNorm, BQNorm];
    KRotNorm = "k_rot_norm", "keys, every head normalised after its rotation",
        Row::computed(OF_KEYS).by("`qk_norm_after_rope`")
            .called(&[known(&["k_rot_norm"]), ranked(KEY, 7)]), reads [KHeads, KDequantized, KGathered, KClipped, KRot, WKNorm, BKNorm];
    QScaled = "q_scaled", "queries, scaled",
        Row::computed(OF_QUERIES).by("`q_temperature=S` or `recurrence`")
            .called(&[known(&["q_scaled"]), ranked(QUERY, 6)]), reads [QHeads, QDequantized, QNorm, QClipped, QRot, QRotNorm];
    QAbsorbed = "q_absorbed", "queries, projected to the latent of keys",
        Row::computed(&[Batch, Heads, Queries, LatentDim]).by("`absorb`")
            .called(&[known(&["q_absorbed", "q_nope_absorbed", "absorbed_q", "ql_nope", "q_nope_out"])]), reads [WK, QHeads, QDequantized, QRot, QScaled];
    QJoined = "q_joined", "queries in the latent, followed by their rotated features",
        Row::computed(&[Batch, Heads, Queries, ScoreDim]).by("`absorb`")
            .called(&[known(&["q_joined"]), ranked(QUERY, 7)]), reads [QHeads, QDequantized, QRot, QScaled, QAbsorbed];
    KCached = "k_cached", "keys, appended to those of the cache",
        Row::computed(&[Batch, KeyHeads, Keys, HeadDim]).by(CACHE).called(&[ranked(KEY, 4)]),
        reads [KPast, KHeads, KDequantized, KGathered, KNorm, KClipped, KRot, KJoined, KRotNorm, KShared];
    VCached = "v_cached", "values, appended to those of the cache",
        Row::computed(&[Batch, ValueHeads, Keys, ValueDim]).by(CACHE).called(&[ranked(VALUE, 2)]),
        reads [VPast, VHeads, VDequantized, VGathered, VNorm, VClipped, VScaled, VRot, VShared];
    KWithBias = "k_with_bias", "keys, followed by the learned one",
        Row::computed(&[Batch, KeyHeads, BiasedKeys, HeadDim]).by("`add_bias_kv`").called(&[ranked(KEY, 9)]),
        reads [BiasK, KHeads, KDequantized, KGathered, KNorm, KClipped, KRot, KJoined, KRotNorm, KShared, KCached];
    VWithBias = "v_with_bias", "values, followed by the learned one",
        Row::computed(&[Batch, ValueHeads, BiasedKeys, ValueDim]).by("`add_bias_kv`").called(&[ranked(VALUE, 7)]),
        reads [BiasV, VHeads, VDequantized, VGathered, VNorm, VClipped, VScaled, VRot, VShared, VCached];
    KWithZero = "k_with_zero", "keys, followed by one of zeros",
        Row::computed(&[Batch, KeyHeads, AllKeys, HeadDim]).by("`add_zero_attn`").called(&[ranked(KEY, 10)]),
        reads [KHeads, KDequantized, KGathered, KNorm, KClipped, KRot, KJoined, KRotNorm, KShared, KCached, KWithBias];
    VWithZero = "v_with_zero", "values, followed by one of zeros",
        Row::computed(&[Batch, ValueHeads, AllKeys, ValueDim]).by("`add_zero_attn`").called(&[ranked(VALUE, 8)]),
        reads [VHeads, VDequantized, VGathered, VNorm, VClipped, VScaled, VRot, VShared, VCached, VWithBias];
    QRepeated = "q_repeated", "queries, one head for every value head",
        Row::computed(&[Batch, RepeatedHeads, Queries, HeadDim]).by("`v_heads=N`")
            .called(&[known(&["q_repeated", "repeated_q", "q_rep"])]), reads [QHeads, QNorm, QScaled];
    KRepeated = "k_repeated", "keys, one head for every query head",
        Row::computed(&[Batch, RepeatedHeads, AllKeys, ScoreDim]).by("`kv_heads=N` or `v_heads=N`")
            .called(&[known(&["k_repeated", "repeated_k", "k_rep"]), ranked(KEY, 5)]),
        reads [CHeads, KLatent, KHeads, KDequantized, KGathered, KNorm, KClipped, KRot, KJoined, KRotNorm, KShared, KCached, KWithBias, KWithZero];
    VRepeated = "v_repeated", "values, one head for every query head",
        Row::computed(&[Batch, OutputHeads, AllKeys, WeightedDim]).by("`kv_heads=N`")
            .called(&[known(&["v_repeated", "repeated_v", "v_rep"]), ranked(VALUE, 3)]),
        reads [CHeads, VHeads, VDequantized, VGathered, VNorm, VClipped, VScaled, VRot, VShared, VCached, VWithBias, VWithZero];
    ScoresRaw = "scores_raw", "dot products of queries and keys",
        Row::computed(SCORES).file("scores").called(&[known(DOT_PRODUCTS), ranked(LOGITS, 4)]),
        reads [QHeads, QDequantized, QNorm, QClipped, QRot, QRotNorm, QScaled, QAbsorbed, QJoined, CHeads, KLatent, KHeads, KDequantized, KGathered, KNorm, KClipped,
            KRot, KJoined, KRotNorm, KShared, KCached, KWithBias, KWithZero, KRepeated];
    Scores = "scores", "scaled scores",
        Row::computed(SCORES).called(&[known(SCALED), ranked(LOGITS, 3), ranked(HOOKED, 3), ranked(DOT_PRODUCTS, 1)]), reads [ScoresRaw];
    ScoresCapped = "scores_capped", "softly capped scores", Row::computed(SCORES).by("`softcap=C`"), reads [Scores];
    RelNorm = "rel_norm", "embeddings of relative positions, normalised",
        Row::computed(&[Size::OneItem, Size::Positions, Size::Input]).by("`rel_norm_eps=X`").called(&[known(&["rel_norm"])]),
        reads [RelEmbeddings, WRelNorm, BRelNorm];
    PosK = "pos_k", "keys of relative positions", Row::computed(&[Size::OneItem, Size::Positions, KeyWidth]).by("`disentangled=c2p`")
        .called(&[known(&["pos_k", "pos_key", "pos_keys"])]), reads [RelEmbeddings, RelNorm, WK, BK, WPosK, BPosK];
    PosQ = "pos_q", "queries of relative positions", Row::computed(&[Size::OneItem, Size::Positions, QueryWidth]).by("`disentangled=p2c`")
        .called(&[known(&["pos_q", "pos_query", "pos_queries"])]), reads [RelEmbeddings, RelNorm, WQ, BQ, WPosQ, BPosQ];
    PosKHeads = "pos_k_heads", "keys of relative positions, split into heads", Row::computed(OF_POSITIONS).by("`disentangled=c2p`")
        .called(&[known(&["pos_k_heads", "pos_key_layer", "pos_key_heads"])]), reads [PosK];
    PosQHeads = "pos_q_heads", "queries of relative positions, split into heads", Row::computed(OF_POSITIONS).by("`disentangled=p2c`")
        .called(&[known(&["pos_q_heads", "pos_query_layer", "pos_query_heads"])]), reads [PosQ];
    C2pProducts = "c2p_products", "dot products of queries and keys of relative positions",
        Row::computed(&[Batch, Heads, Queries, Size::Positions]).by("`disentangled=c2p`").called(&[known(&["c2p_products"]), ranked(C2P, 2)]),
        reads [QHeads, PosKHeads];
    C2pPicked = "c2p_picked", "content to position: the product of each key's distance",
        Row::computed(SCORES).by("`disentangled=c2p`").called(&[known(&["c2p_picked", "c2p_gathered"]), ranked(C2P, 1)]), reads [C2pProducts];
    C2p = "c2p", "content to position, scaled", Row::computed(SCORES).by("`disentangled=c2p`").called(&[known(C2P)]), reads [C2pPicked];
    P2cProducts = "p2c_products", "dot products of keys and queries of relative positions",
        Row::computed(&[Batch, Heads, Keys, Size::Positions]).by("`disentangled=p2c`").called(&[known(&["p2c_products"]), ranked(P2C, 2)]),
        reads [KHeads, PosQHeads];
    P2cPicked = "p2c_picked", "position to content: the product of each query's distance",
        Row::computed(SCORES).by("`disentangled=p2c`").called(&[known(&["p2c_picked", "p2c_gathered"]), ranked(P2C, 1)]), reads [P2cProducts];
    P2c = "p2c", "position to content, scaled", Row::computed(SCORES).by("`disentangled=p2c`").called(&[known(P2C)]), reads [P2cPicked];
    RelAtt = "rel_att", "both terms of relative positions", Row::computed(SCORES).by("`disentangled=c2p,p2c`").called(&[known(&["rel_att"])]), reads [C2p, P2c];
    ScoresRelative = "scores_relative", "scores plus the terms of relative positions",
        Row::computed(SCORES).by(DISENTANGLED).called(&[ranked(LOGITS, 2), ranked(HOOKED, 2), ranked(MASKED, 2), ranked(SCALED, 2)]),
        reads [Scores, ScoresCapped, C2p, P2c, RelAtt];
    ScoresBiased = "scores_biased", "scores plus position biases or a float mask",
        Row::computed(SCORES).blocked().by("`alibi`, `attn_bias=FILE` or `attn_mask=FILE`")
            .called(&[ranked(LOGITS, 1), ranked(HOOKED, 1), ranked(MASKED, 1)]), reads [Scores, ScoresCapped, ScoresRelative, AttnBias, AttnBiasPadded];
    MaskedScores = "masked_scores", "scores after the mask",
        Row::computed(SCORES).blocked().by("`mask=causal`, `lengths` or `attn_mask=FILE`")
            .called(&[known(MASKED), known(LOGITS), known(HOOKED), ranked(SCALED, 1)]), reads [Scores, ScoresCapped, ScoresRelative, ScoresBiased, Mask, MaskPadded];
    Weights = "weights", "attention weights", Row::computed(SCORES).weightless().called(&[known(WEIGHTS)]),
        reads [Sinks, Scores, ScoresCapped, ScoresRelative, ScoresBiased, MaskedScores];
    SplitMax = "split_max", "largest score of each split", Row::computed(OF_SPLITS).blocked().by(SPLITS)
        .called(&[known(&["split_max", "max_logits"])]), reads [Sinks, Scores, ScoresCapped, ScoresRelative, ScoresBiased, MaskedScores];
    SplitSum = "split_sum", "sum of the exponentials of each split", Row::computed(OF_SPLITS).by(SPLITS)
        .called(&[known(&["split_sum", "exp_sums"])]), reads [Sinks, Scores, ScoresCapped, ScoresRelative, ScoresBiased, MaskedScores, SplitMax];
    SplitAcc = "split_acc", "weighted values of each split, not yet divided", Row::computed(&[Splits, Batch, Heads, Queries, WeightedDim]).by(SPLITS)
        .called(&[known(&["split_acc"])]), reads [Scores, ScoresCapped, ScoresRelative, ScoresBiased, MaskedScores, VHeads, VDequantized, VGathered, VNorm, VClipped, VScaled, VRot, VShared, VCached, VWithBias, VWithZero, VRepeated, CHeads, SplitMax];
    SplitOutputs = "split_outputs", "output of each split", Row::computed(&[Splits, Batch, Heads, Queries, WeightedDim]).by(SPLITS)
        .called(&[known(SPLIT_OUTPUTS)]), reads [SplitAcc, SplitSum];
    SplitLse = "split_lse", "log of the sum of exponentials of each split", Row::computed(OF_SPLITS).blocked().by(SPLITS)
        .called(&[known(SPLIT_LSE)]), reads [SplitMax, SplitSum];
    TileMax = "tile_max", "largest score so far, after each tile", Row::computed(OF_TILES).blocked().by(TILES)
        .called(&[known(&["tile_max", "m", "m_i", "m_ij", "row_max", "block_m", "step_m"])]), reads [Scores, ScoresCapped, ScoresRelative, ScoresBiased, MaskedScores];
    TileFactor = "tile_factor", "what a tile multiplies the sums before it by", Row::computed(OF_TILES).by(TILES)
        .called(&[known(&["tile_factor", "alpha_i", "rescale"])]), reads [TileMax];
    TileSum = "tile_sum", "sum of the exponentials so far, after each tile", Row::computed(OF_TILES).by(TILES)
        .called(&[known(&["tile_sum", "l", "l_i", "l_ij", "row_sum", "block_l", "step_l"])]), reads [Scores, ScoresCapped, ScoresRelative, ScoresBiased, MaskedScores, TileMax, TileFactor];
    TileAcc = "tile_acc", "weighted values so far, after each tile, not yet divided", Row::computed(&[Tiles, Batch, Heads, Queries, WeightedDim]).by(TILES)
        .called(&[known(&["tile_acc", "acc", "acc_i", "acc_o", "block_acc", "step_acc"])]), reads [Scores, ScoresCapped, ScoresRelative, ScoresBiased, MaskedScores, VHeads, VDequantized, VGathered, VNorm, VClipped, VScaled, VRot, VShared, VCached, VWithBias, VWithZero, VRepeated, CHeads, TileMax, TileFactor];
    Lse = "lse", "log of the sum of exponentials of each row",
        Row::computed(&[Batch, Heads, Queries])
            .by("`lse`").called(&[known(LSE)]), reads [Sinks, Scores, ScoresCapped, ScoresRelative, ScoresBiased, MaskedScores, SplitLse, TileMax, TileSum];
    SplitWeights = "split_weights", "how much each split weighs", Row::computed(OF_SPLITS).by(SPLITS)
        .called(&[known(&["split_weights", "split_scale"])]), reads [SplitLse, Lse];
    WeightsDropped = "weights_dropped", "attention weights after dropout",
        Row::computed(SCORES).weightless().by("`dropout=P`").called(&[ranked(WEIGHTS, 1)]), reads [Weights, DropoutKeep, DropoutScale];
    WeightsMean = "weights_mean", "mean of the weights over the heads",
        Row::computed(&[Batch, Queries, Keys]).weightless().by("`mean_weights`")
            .called(&[known(&["weights_mean", "mean_weights", "average_weights", "averaged_weights"]), ranked(WEIGHTS, 2)]),
        reads [Weights, WeightsDropped];
    Lambda = "lambda", "λ, by which the second weights of a pair of heads are multiplied",
        Row::computed(&[]).by("`lambda_init=X`").called(&[known(&["lambda", "lambda_full"])]), reads [LambdaQ1, LambdaK1, LambdaQ2, LambdaK2];
    WeightsDiff = "weights_diff", "differences of the weights of each pair of heads",
        Row::computed(&[Batch, OutputHeads, Queries, AllKeys]).weightless().by("`lambda_init=X`")
            .called(&[known(&["weights_diff", "diff_weights", "attn_diff"]), ranked(WEIGHTS, 3)]), reads [Weights, WeightsDropped, Lambda];
    Decay = "decay", "what is left of the state at every token", Row::computed(&[Batch, OutputHeads, OwnKeys, HeadDim]).by(GATED)
        .called(&[known(&["decay", "exp_g", "g_exp"])]), reads [G];
    VNew = "v_new", "what every token writes into the state", Row::computed(&[Batch, OutputHeads, OwnKeys, ValueDim]).by(RECURRENCE)
        .called(&[known(&["v_new", "u", "delta_v", "v_delta", "new_values", "v_written", "pseudo_value", "pseudo_values"]), ranked(&["delta"], 1)]),
        reads [Beta, InitialState, VHeads, KHeads, KNorm, KRepeated, Decay];
    States = "states", "state after every token", Row::computed(&[Batch, OutputHeads, OwnKeys, HeadDim, StateDim]).by("`states`")
        .called(&[known(&["states", "state_history", "all_states", "recurrent_states"])]), reads [InitialState, KHeads, KNorm, KRepeated, Decay, VNew];
    ChunkStates = "chunk_states", "state before every chunk of tokens", Row::computed(&[Batch, OutputHeads, Chunks, HeadDim, StateDim]).by("`state_chunk=N`")
        .called(&[known(&["chunk_states", "h", "chunk_state", "states_at_chunks"])]), reads [InitialState, KHeads, KNorm, KRepeated, Decay, VNew];
    FinalState = "final_state", "state after the last token", Row::computed(OF_STATES).by(RECURRENCE)
        .called(&[known(&["final_state", "last_recurrent_state", "recurrent_state", "last_state", "ht", "state", "s_final", "final_states", "new_state", "recurrent_state_out"])]),
        reads [InitialState, KHeads, KNorm, KRepeated, Decay, VNew];
    LatentOutputs = "latent_outputs", "weighted sum of the latents, for every head",
        Row::computed(&[Batch, Heads, Queries, LatentDim]).by("`absorb`")
            .called(&[known(&["latent_outputs", "latent_output", "o_latent", "attn_latent"])]), reads [Sinks, CHeads, VRepeated, Weights, WeightsDropped, SplitOutputs, SplitWeights, TileAcc, TileSum, TileMax];
    HeadOutputs = "head_outputs", "output of every head",
        Row::computed(OF_OUTPUTS).called(&[known(HEADS), known(CONTEXT), ranked(ATTN_OUTPUT, 2)]),
        reads [QHeads, QNorm, QScaled, QRepeated, KHeads, KNorm, KRepeated, InitialState, Decay, VNew, WV, LatentOutputs, Weights, WeightsDropped, WeightsDiff, VHeads, VDequantized, VGathered, VNorm, VClipped, VScaled, VRot, VShared, VCached, VWithBias,
            VWithZero, VRepeated, Sinks, SplitOutputs, SplitWeights, TileAcc, TileSum, TileMax];
    HeadNorm = "head_norm", "output of every head, normalised",
        Row::computed(OF_OUTPUTS).by("`lambda_init=X`").called(&[known(&["head_norm", "subln"]), ranked(HEADS, 2)]), reads [HeadOutputs, WHeadNorm];
    HeadScaled = "head_scaled", "normalised output of every head, times 1 − λ_init",
        Row::computed(OF_OUTPUTS).by("`lambda_init=X`").called(&[known(&["head_scaled"]), ranked(HEADS, 3)]), reads [HeadNorm];
    Concat = "concat", "heads side by side",
        Row::computed(&[Batch, Queries, ConcatWidth])
            .called(&[known(CONCAT), ranked(HEADS, 1), ranked(CONTEXT, 1), ranked(ATTN_OUTPUT, 1)]), reads [HeadOutputs, HeadScaled];
    ConcatNorm = "concat_norm", "heads side by side, normalised",
        Row::computed(&[Batch, Queries, ConcatWidth]).by("`concat_norm=rms`")
            .called(&[known(&["concat_norm", "attn_sub_norm"]), ranked(ATTN_OUTPUT, 3)]), reads [Concat, WConcatNorm];
    Gate = "gate", "gate of the heads' outputs",
        Row::computed(&[Batch, Queries, ConcatWidth]).by("`gate=sigmoid`")
            .called(&[known(&["gate", "gate_proj", "gate_score", "gate_states"])]), reads [X, WGate, BGate];
    ConcatGated = "concat_gated", "heads side by side, times the gate",
        Row::computed(&[Batch, Queries, ConcatWidth]).by("`gate=sigmoid`")
            .called(&[known(&["concat_gated", "gated"]), ranked(ATTN_OUTPUT, 4)]), reads [Concat, ConcatNorm, Gate];
    Output = "output", "output projection",
        Row::computed(&[Batch, Queries, Size::Model]).called(&[known(OUTPUT), known(ATTN_OUTPUT), ranked(CONTEXT, 2)]),
        reads [Concat, ConcatNorm, ConcatGated, WO, BO];
    WNorm = "w_norm", "weight of a norm between attentions", between(&[Size::Input]);
    BNorm = "b_norm", "bias of a norm between attentions", between(&[Size::Input]);
    NormOutput = "norm_output", "output of a norm between attentions", Row::computed(&[Batch, Queries, Size::Input]).by(WHOLE), reads [X, WNorm, BNorm];
    WLinear = "w_linear", "weight of a linear layer between attentions", between(&[Size::Model, Size::Input]);
    BLinear = "b_linear", "bias of a linear layer between attentions", between(&[Size::Model]);
    LinearOutput = "linear_output", "output of a linear layer between attentions", Row::computed(&[Batch, Queries, Size::Model]).by(WHOLE), reads [X, WLinear, BLinear];
    WMlpGate = "w_mlp_gate", "weight of the MLP's gate", between(&[Size::Model, Size::Input]);
    BMlpGate = "b_mlp_gate", "bias of the MLP's gate", between(&[Size::Model]);
    WMlpUp = "w_mlp_up", "weight of the MLP's first projection", between(&[Size::Model, Size::Input]);
    BMlpUp = "b_mlp_up", "bias of the MLP's first projection", between(&[Size::Model]);
    WMlpDown = "w_mlp_down", "weight of the MLP's last projection", between(&[Size::Input, Size::Model]);
    BMlpDown = "b_mlp_down", "bias of the MLP's last projection", between(&[Size::Input]);
    MlpGate = "mlp_gate", "gate of the MLP", Row::computed(&[Batch, Queries, Size::Model]).by(WHOLE), reads [X, WMlpGate, BMlpGate];
    MlpUp = "mlp_up", "first projection of the MLP", Row::computed(&[Batch, Queries, Size::Model]).by(WHOLE), reads [X, WMlpUp, BMlpUp];
    MlpHidden = "mlp_hidden", "hidden features of the MLP", Row::computed(&[Batch, Queries, Size::Model]).by(WHOLE), reads [MlpGate, MlpUp];
    MlpOutput = "mlp_output", "output of the MLP", Row::computed(&[Batch, Queries, Size::Input]).by(WHOLE), reads [MlpHidden, WMlpDown, BMlpDown];
    Delta = "delta", "for every row of weights the sum of its numbers times their gradients",
        Row::computed(&[Batch, Heads, Queries]).by("`backward`").called(&[known(&["delta", "softmax_d", "dpsum"])]), reads [Weights];
    Within = "within", "a gradient on the way", Row::computed(&[]).inner();
}

/// Which of the two it is, a table does not say.
const RELATIVE: &str = "`relative_bias=bidirectional` or `relative_bias=one-sided`";
/// Keys beside those of the tokens.
const ADDED: &str = "`add_bias_kv` or `add_zero_attn`";
const RECURRENCE: &str = "`recurrence=gated-delta`, delta or kda";
const GATED: &str = "`recurrence=gated-delta` or kda";
/// Which of the terms it is.
const DISENTANGLED: &str = "`disentangled=c2p` or `disentangled=p2c`";
const C2P: &[&str] = &["c2p", "c2p_att", "c2p_scores", "content_to_position"];
const P2C: &[&str] = &["p2c", "p2c_att", "p2c_scores", "position_to_content"];
const SPLITS: &str = "`splits=N`";
const TILES: &str = "`tiles=N`";
const WHOLE: &str = "a recording of a whole model";
const CACHE: &str = "`past=FILE`, or k_past and v_past in the file";

const fn weight(sizes: &'static [Size]) -> Row {
    Row::new(Parameter, sizes).file("weights")
}

/// A parameter of what stands between attentions.
const fn between(sizes: &'static [Size]) -> Row {
    Row::new(Parameter, sizes).by(WHOLE)
}

const fn bias(sizes: &'static [Size]) -> Row {
    weight(sizes).by("`bias`")
}

const fn lambda(names: &'static [&'static str]) -> Row {
    weight(&[HeadDim]).by("`lambda_init=X`").stored(names, 0.0)
}

/// Numbers in few bits, as a file has them.
const fn few_bits(sizes: &'static [Size]) -> Row {
    Row::new(Cache, sizes).by(IN_FEW_BITS)
}

/// What such numbers are scaled by, or counted from: for each, or for all of an axis alike.
const fn scale_of(sizes: &'static [Size]) -> Row {
    Row::new(Setting, sizes).by(IN_FEW_BITS)
}

const fn shared(sizes: &'static [Size]) -> Row {
    Row::new(Cache, sizes).by("`shared_kv=FILE`").file("shared_kv")
}

const fn past(sizes: &'static [Size]) -> Row {
    Row::new(Cache, sizes).by("`past=FILE`").file("past")
}

/// The weight and the bias of a projection.
pub type Projection = (Name, Name);

impl Name {
    /// The parameters of the projections of queries, keys, values and heads.
    pub const PROJECTIONS: [Projection; 4] =
        [(Self::WQ, Self::BQ), (Self::WK, Self::BK), (Self::WV, Self::BV), (Self::WO, Self::BO)];

    /// The parameters of the projections to the latents of queries and of keys and values, and of the key that all heads
    /// share.
    pub const LATENT: [Projection; 3] =
        [(Self::WDq, Self::BDq), (Self::WDkv, Self::BDkv), (Self::WKr, Self::BKr)];

    /// The parameters of the projections of relative positions: of their keys, and of their queries.
    pub const OF_POSITIONS: [Projection; 2] =
        [(Self::WPosK, Self::BPosK), (Self::WPosQ, Self::BPosQ)];

    /// The parameters of the gate's projection.
    pub const GATE: Projection = (Self::WGate, Self::BGate);

    /// Of a linear layer between attentions: weight, bias, and what it gives.
    pub const LINEAR: [Self; 3] = [Self::WLinear, Self::BLinear, Self::LinearOutput];
    /// The same of the projections of an MLP.
    pub const MLP_GATE: [Self; 3] = [Self::WMlpGate, Self::BMlpGate, Self::MlpGate];
    /// The first one.
    pub const MLP_UP: [Self; 3] = [Self::WMlpUp, Self::BMlpUp, Self::MlpUp];
    /// The last one.
    pub const MLP_DOWN: [Self; 3] = [Self::WMlpDown, Self::BMlpDown, Self::MlpOutput];

    /// Of queries, keys and values: the heads, and where these are given in few bits, the numbers, their scales, their zero
    /// points, and what they stand for.
    pub const FEW_BITS: [[Self; 5]; 3] = [
        [Self::QHeads, Self::QQuantized, Self::QScale, Self::QZeroPoint, Self::QDequantized],
        [Self::KHeads, Self::KQuantized, Self::KScale, Self::KZeroPoint, Self::KDequantized],
        [Self::VHeads, Self::VQuantized, Self::VScale, Self::VZeroPoint, Self::VDequantized],
    ];

    /// Keys and values: the heads, and where these are given in the pages of a cache, these, and what stands at their slots.
    pub const PAGES: [[Self; 3]; 2] = [
        [Self::KHeads, Self::KPages, Self::KGathered],
        [Self::VHeads, Self::VPages, Self::VGathered],
    ];

    /// The scales of keys and values, and those of all slots of a cache, of which these are taken.
    pub const SCALE_PAGES: [(Self, Self); 2] =
        [(Self::KScale, Self::KScalePages), (Self::VScale, Self::VScalePages)];

    /// What can be given in the place of heads.
    pub fn stand_ins(self) -> impl Iterator<Item = Self> {
        let few_bits = Self::FEW_BITS.into_iter().map(|[heads, own, ..]| (heads, own));
        let pages = Self::PAGES.into_iter().map(|[heads, own, _]| (heads, own));
        few_bits.chain(pages).filter(move |(heads, _)| *heads == self).map(|(_, own)| own)
    }

    /// The vectors that λ of differential attention is made of.
    pub const LAMBDA: [Self; 4] = [Self::LambdaQ1, Self::LambdaK1, Self::LambdaQ2, Self::LambdaK2];

    /// The name in files, tables and flags.
    pub fn as_str(self) -> &'static str {
        self.row().name
    }

    /// The step of that very name.
    pub fn named(name: &str) -> Option<Self> {
        // Files of many tensors ask for each of their names, again and again.
        static NAMED: LazyLock<HashMap<&'static str, Name>> =
            LazyLock::new(|| Name::ALL.iter().map(|step| (step.as_str(), *step)).collect());
        NAMED.get(name).copied()
    }

    /// The step of that very name, if it is one that files hold.
    pub fn in_files(name: &str) -> Option<Self> {
        Self::named(name).filter(|step| !step.row().is_inner)
    }

    /// What it is, in a few words.
    pub fn title(self) -> Cow<'static, str> {
        let own = lang::text(self.row().title);
        match self {
            Self::Gradient(_) => tr!("gradient: {title}", title = own).into(),
            _ => own.into(),
        }
    }

    /// What the step is to a run.
    pub fn role(self) -> Role {
        self.row().role
    }

    /// The steps that can read one of these, directly or through others.
    pub fn descendants(from: &[Self]) -> HashSet<Self> {
        let mut reached = HashSet::new();
        // A step reads only such as stand before it.
        for name in Self::ALL {
            if name.reads().iter().any(|read| from.contains(read) || reached.contains(read)) {
                reached.insert(*name);
            }
        }
        // The gradient of a step follows from those of what reads it, and from what these read beside it.
        for name in Self::ALL.iter().rev() {
            let Self::Gradient(own) = name else { continue };
            let is_of = |other: &Self| from.contains(other) || reached.contains(other);
            let mut readers =
                Self::ALL.iter().filter(|reader| reader.reads().contains(&own.step()));
            if readers.any(|reader| {
                [*reader, reader.gradient(), Self::Delta].iter().chain(reader.reads()).any(is_of)
            }) {
                reached.insert(*name);
            }
        }
        reached
    }

    /// Whether the step can come from outside; a computed one cannot.
    pub fn is_given(self) -> bool {
        self.role() != Role::Computed
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.as_str().to_owned()
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::named(text).ok_or_else(|| format!("no step is called `{text}`"))
    }
}

impl serde::Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn names_read_back_and_differ() {
        let names: HashSet<&str> = Name::ALL.iter().map(|name| name.as_str()).collect();
        assert_eq!(names.len(), Name::ALL.len());
        for name in Name::ALL {
            assert_eq!(name.as_str().parse(), Ok(*name));
            assert!(!name.row().title.is_empty(), "{name}");
        }
    }

    #[test]
    fn a_step_reads_such_as_stand_before_it() {
        for name in Name::ALL {
            assert!(name.reads().iter().all(|read| read < name), "{name}");
        }
    }

    /// Of several steps that a foreign name may mean, each is likelier than the next.
    #[test]
    fn the_steps_of_a_foreign_name_have_an_order() {
        let mut ranks: HashMap<&str, Vec<u8>> = HashMap::new();
        for called in Name::ALL.iter().flat_map(|name| name.row().called) {
            called.names.iter().for_each(|name| ranks.entry(name).or_default().push(called.rank));
        }
        for (name, mut ranks) in ranks {
            ranks.sort_unstable();
            let expected: Vec<u8> = (0..).take(ranks.len()).collect();
            assert_eq!(ranks, expected, "{name}");
        }
    }
}
