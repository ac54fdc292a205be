//! Models whose attention is not one that is traced, and why.

use base::lang;

/// What can be done about it.
#[derive(Debug, Clone, Copy)]
enum Fix {
    /// What its attention function gets and gives is an attention.
    Core,
    /// Its keys are picked by a mask, which the function gets.
    Mask,
    /// Nothing: it has no weights of a softmax.
    None,
}

/// By reason, what is not traced and the `model_type`s.
const REFUSED: &[(&str, Fix, &[&str])] = &[
    (
        "its queries and its output are projected by experts that a router picks for every token",
        Fix::Core,
        &["jetmoe"],
    ),
    (
        "an indexer picks the keys that a query sees (sparse attention, DSA)",
        Fix::Mask,
        &[
            "axk2",
            "deepseek_v32",
            "deepseek_v4",
            "dots3_note",
            "dots3_note_text",
            "glm5_next",
            "glm5_next_text",
            "glm_moe_dsa",
            "hy_v4",
            "minimax_m3_vl",
            "minimax_m3_vl_text",
            "mistral_large4",
            "mistral_large4_text",
            "qwen4_exp",
            "qwen4_exp_text",
        ],
    ),
    ("its mask is computed from its values (dynamic mask attention)", Fix::Mask, &["doge"]),
    (
        "its scores have terms of content and relative position, each with projections of its own (disentangled attention)",
        Fix::None,
        &["deberta", "sew-d"],
    ),
    (
        "its scores have a term of relative positions with a projection of its own",
        Fix::None,
        &["xlnet", "funnel", "wav2vec2-conformer", "fastspeech2_conformer", "parakeet_encoder"],
    ),
    ("it subtracts one softmax from another (differential attention)", Fix::None, &["diffllama"]),
    (
        "its layers are recurrent or linear and have no softmax",
        Fix::None,
        &["mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm", "fnet", "poolformer"],
    ),
    (
        "its softmax is approximated (landmarks, hashing or sampling)",
        Fix::None,
        &["nystromformer", "reformer", "yoso", "mra"],
    ),
    (
        "its queries see blocks of keys, some at random or of all tokens",
        Fix::Mask,
        &["big_bird", "longformer", "led", "canine"],
    ),
    (
        "what follows the prompt sees the whole of it, and a window of the rest",
        Fix::Mask,
        &["unlimited_ocr", "unlimited_ocr_text"],
    ),
    ("it mixes attention with a convolution", Fix::Core, &["convbert"]),
    ("it has several streams of n-grams", Fix::Core, &["prophetnet"]),
    (
        "its windows of patches shift",
        Fix::Core,
        &["swin", "swinv2", "donut-swin", "maskformer-swin"],
    ),
    (
        "its rotary angles are of places in two dimensions that are no whole numbers, or turn by frequencies of their own",
        Fix::Core,
        &["dinov3_vit", "pixtral"],
    ),
    ("its position biases are multiplied by what the tokens say (gated)", Fix::Core, &["wavlm"]),
    ("its scores have a term of the layout, or of segments", Fix::None, &["lilt", "cpmant"]),
    ("its projections are convolutions", Fix::Core, &["squeezebert"]),
    ("its layers have tokens before items: (token, batch, model)", Fix::Core, &["fsmt"]),
    ("the output of every head is normalised", Fix::Core, &["muse_spark", "muse_spark_text"]),
];

/// Why a model of that `model_type` is not traced, and what to do.
pub fn why(kind: &str) -> Option<(&'static str, &'static str)> {
    let word = |kind: &str| kind.replace('-', "_");
    let is_it = |types: &[&str]| types.iter().any(|own| word(own) == word(kind));
    let (why, fix, _) = REFUSED.iter().find(|(.., types)| is_it(types))?;
    let fix = match fix {
        Fix::Core => tr!(
            "check the inputs and outputs of its attention function: q, k and v, heads and weights, without this config"
        ),
        Fix::Mask => tr!(
            "check the inputs and outputs of its attention function, with its mask: q, k and v, `attn_mask=FILE`, heads and weights, without this config"
        ),
        Fix::None => tr!("`mha-trace models` lists those that are"),
    };
    Some((lang::text(why), fix))
}
