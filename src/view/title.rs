//! What the steps are called in words.

use crate::source::Role;

/// A step's title: what it is, in a few words.
pub fn title(name: &str) -> &str {
    match name {
        "x" => "input",
        "w_q" => "weight of the query projection",
        "b_q" => "bias of the query projection",
        "w_k" => "weight of the key projection",
        "b_k" => "bias of the key projection",
        "w_v" => "weight of the value projection",
        "b_v" => "bias of the value projection",
        "w_o" => "weight of the output projection",
        "b_o" => "bias of the output projection",
        "mask" => "which keys a query may not see",
        "attn_bias" => "position biases or float mask",
        "dropout_keep" => "weights that dropout keeps",
        "q" => "queries",
        "k" => "keys",
        "v" => "values",
        "q_heads" => "queries, split into heads",
        "k_heads" => "keys, split into heads",
        "v_heads" => "values, split into heads",
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
    matches!(Role::of(name), Some(Role::Parameter | Role::Keep))
}
