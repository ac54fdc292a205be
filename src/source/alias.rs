//! The names that people's code gives to the steps.

/// Steps, and the names that may mean one of them; the likeliest step first.
const ALIASES: &[(&[&str], &[&str])] = &[
    (&["x"], &["x", "input", "inputs", "hidden_states", "hidden_state", "embeddings", "embedding"]),
    (
        &["memory"],
        &[
            "memory",
            "encoder_hidden_states",
            "key_value_states",
            "encoder_output",
            "encoder_outputs",
        ],
    ),
    (&["k_past"], &["k_past", "past_key", "past_keys", "key_cache", "k_cache"]),
    (&["v_past"], &["v_past", "past_value", "past_values", "value_cache", "v_cache"]),
    (&["q_rot"], &["q_rot", "q_rotary", "q_embed", "q_rope", "rotated_q", "hook_rot_q"]),
    (&["k_rot"], &["k_rot", "k_rotary", "k_embed", "k_rope", "rotated_k", "hook_rot_k"]),
    (&["q_norm"], &["q_norm", "q_normed"]),
    (&["k_norm"], &["k_norm", "k_normed"]),
    (&["k_repeated"], &["k_repeated", "repeated_k", "k_rep"]),
    (&["v_repeated"], &["v_repeated", "repeated_v", "v_rep"]),
    (
        &["q", "q_heads", "q_norm", "q_rot"],
        &["q", "query", "queries", "q_proj", "query_states", "query_layer", "hook_q"],
    ),
    (
        &["k", "k_heads", "k_norm", "k_rot", "k_cached", "k_repeated"],
        &["k", "key", "keys", "k_proj", "key_states", "key_layer", "hook_k"],
    ),
    (
        &["v", "v_heads", "v_cached", "v_repeated"],
        &["v", "value", "values", "v_proj", "value_states", "value_layer", "hook_v"],
    ),
    (&["q_heads"], &["q_heads", "q_split", "query_heads", "qh"]),
    (&["k_heads"], &["k_heads", "k_split", "key_heads", "kh"]),
    (&["v_heads"], &["v_heads", "v_split", "value_heads", "vh"]),
    (
        &["scores_raw"],
        &["scores_raw", "qk", "qkt", "dot_products", "raw_scores", "unscaled_scores"],
    ),
    (
        &["masked_scores", "scores_biased", "scores", "scores_raw"],
        &[
            "attn_scores",
            "attention_scores",
            "attn_logits",
            "attention_logits",
            "logits",
            "energy",
            "dots",
            "sim",
        ],
    ),
    (
        &["scores", "masked_scores"],
        &[
            "scores",
            "scaled_scores",
            "scaled_attn_scores",
            "scaled_attention_scores",
            "scaled_logits",
        ],
    ),
    (&["masked_scores", "scores_biased", "scores"], &["hook_attn_scores"]),
    (
        &["masked_scores", "scores_biased"],
        &[
            "masked_scores",
            "scores_masked",
            "masked_attn_scores",
            "attn_scores_masked",
            "masked_attention_scores",
        ],
    ),
    (
        &["weights", "weights_dropped"],
        &[
            "weights",
            "attn_weights",
            "attention_weights",
            "attn",
            "attention",
            "attentions",
            "attn_probs",
            "attention_probs",
            "probs",
            "p_attn",
            "alpha",
            "pattern",
            "hook_pattern",
        ],
    ),
    (
        &["head_outputs", "concat", "output"],
        &["context", "contexts", "context_vec", "context_vector", "context_layer", "ctx"],
    ),
    (&["output", "concat", "head_outputs"], &["attn_output", "attention_output"]),
    (
        &["head_outputs", "concat"],
        &["head_outputs", "z", "hook_z", "head_out", "heads_out", "head_output"],
    ),
    (
        &["concat"],
        &["concat", "concatenated", "concat_heads", "concat_attention", "combined", "merged"],
    ),
    (
        &["output"],
        &[
            "output",
            "out",
            "y",
            "o_proj",
            "out_proj",
            "attn_out",
            "hook_attn_out",
            "final_output",
            "result",
        ],
    ),
];

/// What stands behind a name's last dot.
#[must_use]
pub fn last_segment(name: &str) -> &str {
    name.rsplit(['.', '/']).next().unwrap_or(name)
}

/// The steps that a tensor of that name may be, the likeliest first; none for a name that is not known. Only what
/// stands behind the last dot counts, and not its case.
#[must_use]
pub fn meanings(name: &str) -> &'static [&'static str] {
    let last = last_segment(name).to_ascii_lowercase();
    let row = ALIASES.iter().find(|(_, names)| names.contains(&last.as_str()));
    row.map_or(&[], |(steps, _)| steps)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_last_segment_tells_in_any_case() {
        assert_eq!(meanings("blocks.0.attn.hook_pattern"), ["weights", "weights_dropped"]);
        assert_eq!(meanings("Query"), ["q", "q_heads", "q_norm", "q_rot"]);
        assert!(meanings("q_proj.weight").is_empty());
    }

    #[test]
    fn no_name_stands_in_two_rows() {
        let mut seen = HashSet::new();
        assert!(ALIASES.iter().flat_map(|(_, names)| *names).all(|name| seen.insert(name)));
    }
}
