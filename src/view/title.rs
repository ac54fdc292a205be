//! What the steps are called in words.

use crate::source::Role;

/// A step's title: what it is, in a few words.
pub fn title(name: &str) -> &str {
    match name {
        "x" => "input",
        "memory" => "second input",
        "w_q" => "weight of the query projection",
        "b_q" => "bias of the query projection",
        "w_k" => "weight of the key projection",
        "b_k" => "bias of the key projection",
        "w_v" => "weight of the value projection",
        "b_v" => "bias of the value projection",
        "w_o" => "weight of the output projection",
        "b_o" => "bias of the output projection",
        "w_q_norm" => "weight of the queries' norm",
        "w_k_norm" => "weight of the keys' norm",
        "rope_freqs" => "frequencies of the rotary positions",
        "k_past" => "keys of the cache",
        "v_past" => "values of the cache",
        "mask" => "which keys a query may not see",
        "attn_bias" => "position biases or float mask",
        "dropout_keep" => "weights that dropout keeps",
        "q" => "queries",
        "k" => "keys",
        "v" => "values",
        "q_heads" => "queries, split into heads",
        "k_heads" => "keys, split into heads",
        "v_heads" => "values, split into heads",
        "q_norm" => "queries, every head normalised",
        "k_norm" => "keys, every head normalised",
        "q_rot" => "queries, turned by their positions",
        "k_rot" => "keys, turned by their positions",
        "k_cached" => "keys behind those of the cache",
        "v_cached" => "values behind those of the cache",
        "k_repeated" => "keys, a head for every query head",
        "v_repeated" => "values, a head for every query head",
        "scores_raw" => "dot products of queries and keys",
        "scores" => "scaled scores",
        "scores_capped" => "softly capped scores",
        "scores_biased" => "scores plus position biases or a float mask",
        "masked_scores" => "scores after the mask",
        "weights" => "attention weights",
        "weights_dropped" => "attention weights after dropout",
        "head_outputs" => "output of every head",
        "concat" => "heads side by side",
        "output" => "output projection",
        other => other,
    }
}

/// Whether a step is a parameter rather than part of the story: shown only when asked for.
pub fn is_parameter(name: &str) -> bool {
    matches!(Role::of(name), Some(Role::Parameter | Role::Keep | Role::Frequencies))
}
