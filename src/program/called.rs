//! What people's code calls the steps.

/// Names that people's code gives to a step.
#[derive(Debug, Clone, Copy)]
pub struct Called {
    /// The names, in lower case.
    pub names: &'static [&'static str],
    /// How many other steps are likelier to be meant by them.
    pub rank: u8,
}

/// Names that mean this step first of all.
pub const fn known(names: &'static [&'static str]) -> Called {
    Called { names, rank: 0 }
}

/// Names for which as many other steps as `rank` says are likelier.
pub const fn ranked(names: &'static [&'static str], rank: u8) -> Called {
    Called { names, rank }
}

/// X.
pub const INPUT: &[Called] =
    &[known(&["x", "input", "inputs", "hidden_states", "hidden_state", "embeddings", "embedding"])];
/// The latent of keys and values.
pub const C_KV: &[&str] = &["c_kv", "kv_c", "kv_latent", "compressed_kv"];
/// The second input.
pub const MEMORY: &[Called] = &[known(&[
    "memory",
    "encoder_hidden_states",
    "key_value_states",
    "encoder_output",
    "encoder_outputs",
])];
/// The second input of the values.
pub const MEMORY_V: &[Called] = &[known(&["memory_v"])];
/// Cached keys.
pub const K_PAST: &[Called] =
    &[known(&["k_past", "past_key", "past_keys", "key_cache", "k_cache"])];
/// Cached values.
pub const V_PAST: &[Called] =
    &[known(&["v_past", "past_value", "past_values", "value_cache", "v_cache"])];
/// Queries, projected or later.
pub const QUERY: &[&str] =
    &["q", "query", "queries", "q_proj", "query_states", "query_layer", "hook_q"];
/// Keys, projected or later.
pub const KEY: &[&str] = &["k", "key", "keys", "k_proj", "key_states", "key_layer", "hook_k"];
/// Values, projected or later.
pub const VALUE: &[&str] =
    &["v", "value", "values", "v_proj", "value_states", "value_layer", "hook_v"];
/// Rotated queries.
pub const Q_ROT: &[&str] = &["q_rot", "q_rotary", "q_embed", "q_rope", "rotated_q", "hook_rot_q"];
/// Rotated keys.
pub const K_ROT: &[&str] = &["k_rot", "k_rotary", "k_embed", "k_rope", "rotated_k", "hook_rot_k"];
/// Unscaled scores.
pub const DOT_PRODUCTS: &[&str] =
    &["scores_raw", "qk", "qkt", "dot_products", "raw_scores", "unscaled_scores"];
/// Scores at any stage.
pub const LOGITS: &[&str] = &[
    "attn_scores",
    "attention_scores",
    "attention_score",
    "attn_logits",
    "attention_logits",
    "logits",
    "energy",
    "dots",
    "sim",
    "s",
];
/// Scaled scores, or later ones.
pub const SCALED: &[&str] =
    &["scores", "scaled_scores", "scaled_attn_scores", "scaled_attention_scores", "scaled_logits"];
/// `TransformerLens`' scores, which are masked and never unscaled.
pub const HOOKED: &[&str] = &["hook_attn_scores"];
/// Masked scores.
pub const MASKED: &[&str] = &[
    "masked_scores",
    "scores_masked",
    "masked_attn_scores",
    "attn_scores_masked",
    "masked_attention_scores",
];
/// Attention weights.
pub const WEIGHTS: &[&str] = &[
    "weights",
    "attn_weights",
    "attn_output_weights",
    "attention_weights",
    "attention_weight",
    "attn",
    "attention",
    "attentions",
    "attn_probs",
    "attention_probs",
    "probs",
    "p_attn",
    "p",
    "alpha",
    "pattern",
    "hook_pattern",
];
/// Logarithms of the rows' sums of exponentials.
pub const LSE: &[&str] =
    &["lse", "softmax_lse", "logsumexp", "log_sum_exp", "softmax_logsumexp", "output_lse"];
/// Log-sum-exps of single splits.
pub const SPLIT_LSE: &[&str] =
    &["split_lse", "softmax_lse_accum", "lse_accum", "tmp_s", "block_lse", "mid_lse", "mid_o_lse"];
/// Outputs of single splits.
pub const SPLIT_OUTPUTS: &[&str] = &[
    "split_outputs",
    "split_output",
    "out_accum",
    "o_accum",
    "tmp_out",
    "tmp_v",
    "block_out",
    "mid_o",
];
/// Outputs of single heads.
pub const HEADS: &[&str] = &[
    "head_outputs",
    "z",
    "hook_z",
    "head_out",
    "heads_out",
    "head_output",
    "output_per_head",
    "attn_output_per_head",
    "output_mid",
    "core_attn_out",
];
/// Weighted values, of every head or side by side.
pub const CONTEXT: &[&str] =
    &["context", "contexts", "context_vec", "context_vector", "context_layer", "ctx"];
/// The output, or what the output projection gets.
pub const ATTN_OUTPUT: &[&str] = &["attn_output", "attention_output"];
/// Outputs of the heads side by side.
pub const CONCAT: &[&str] = &[
    "concat",
    "concatenated",
    "concat_heads",
    "concat_attention",
    "combined",
    "merged",
    "attn_output_concat",
];
/// The output.
pub const OUTPUT: &[&str] = &[
    "output",
    "out",
    "o",
    "y",
    "o_proj",
    "out_proj",
    "attn_out",
    "hook_attn_out",
    "final_output",
    "result",
];
