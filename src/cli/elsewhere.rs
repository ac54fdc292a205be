//! What do first guesses, and the words of other tools, stand for here?

/// What to type in place of a word that is no command.
pub fn command(word: &str) -> Option<&'static str> {
    Some(match word.to_lowercase().as_str() {
        "compare" | "cmp" => "diff",
        "verify" | "validate" | "test" => "check",
        "walk" | "walkthrough" | "view" | "browse" => "step",
        "preset" | "presets" | "notebook" | "notebooks" => "--preset NAME",
        "version" => "--version",
        "usage" | "?" | "/?" | "/help" | "帮助" => "--help",
        "softmax" | "attn" | "attention-weights" | "注意力权重" => "--steps weights",
        "plot" | "visualize" | "visualise" => "-o run.html",
        "bug" | "mistakes" => "bugs",
        _ => return None,
    })
}

/// Whether a word names what the command does when nothing is said.
pub fn is_a_run(word: &str) -> bool {
    let word = word.to_lowercase();
    ["run", "trace", "start", "show", "print", "forward", "attention", "main"]
        .contains(&word.as_str())
}

/// The flag here of one that other code has.
pub fn flag(name: &str) -> Option<&'static str> {
    Some(match name {
        "no-causal" | "not-causal" | "bidirectional" => "--no-mask",
        "random-seed" | "random-state" | "manual-seed" => "--seed",
        "dim" | "n-embd" | "embed-size" | "embedding-size" | "emb-size" => "--d-model",
        "n-head" | "num-of-heads" | "h" => "--heads",
        "length" | "max-length" | "max-len" | "block-size" | "context-length" | "n-ctx" => {
            "--seq-len"
        }
        "key-padding-mask" | "padding-mask" | "src-key-padding-mask" => "--key-mask",
        "padding" | "pad" => "--lengths",
        "show" | "print" | "step" => "--steps",
        "out" | "save" | "output-file" | "export" | "html" => "-o FILE",
        "plot" | "visualize" | "visualise" => "--heatmap",
        "precision" | "float" | "double" => "--dtype",
        "input-file" | "data" => "--x",
        "checkpoint" | "model" | "load" => "--weights",
        "words" | "sentence" | "text" | "labels" => "--tokens",
        "language" => "--lang",
        "explain" => "--why",
        _ => return None,
    })
}

/// Why a flag that other tools have would change nothing here.
pub fn useless_flag(name: &str) -> Option<&'static str> {
    Some(match name {
        "device" | "cuda" | "gpu" | "cpu" | "mps" | "use-cuda" | "no-cuda" => {
            tr!("mha-trace runs on the CPU: leave it out")
        }
        "num-layers" | "n-layers" | "n-layer" | "layers" | "num-hidden-layers" | "ffn-dim"
        | "d-ff" | "intermediate-size" | "vocab-size" | "num-classes" => {
            tr!("a run is one attention layer: leave it out")
        }
        "epochs" | "lr" | "learning-rate" | "optimizer" | "loss" | "train" | "eval"
        | "weight-decay" => tr!("nothing is trained here: leave it out"),
        "top-k" | "top-p" | "max-new-tokens" | "do-sample" | "num-beams" | "prompt" => {
            tr!("no text is generated here: leave it out")
        }
        "temperature" => {
            tr!("to divide the scores by T as well, pass --scale S with S = 1 / (T · √d_k)")
        }
        "batch-first" => tr!("the batch is always the first axis: leave it out"),
        _ => return None,
    })
}

/// What a value of a flag stands for: another value of it, or another flag.
pub fn value(flag: &str, value: &str) -> Option<String> {
    let lower = value.to_lowercase();
    let own = match (flag, lower.trim_start_matches("torch.")) {
        ("--mask", "因果" | "tril" | "triu" | "triangular") => "causal",
        ("--mask", masks) if masks.contains("padding") => "--lengths N,N",
        ("--mask", _) if value.contains('.') => return Some(format!("--attn-mask {value}")),
        ("--dtype", "float" | "float32" | "fp32" | "single") => "f32",
        ("--dtype", "float64" | "fp64" | "double") => "f64",
        ("--input", "randn" | "normal" | "gaussian") => "randn",
        ("--input", "rand" | "uniform") => "rand",
        ("--init", "kaiming" | "nn.linear" | "default") => "linear",
        ("--lang", "cn" | "chinese" | "中文" | "zh-cn" | "zh_cn" | "zh-hans") => "zh",
        ("--lang", "english" | "en-us" | "en_us") => "en",
        ("--color", "yes" | "true" | "on" | "1") => "always",
        ("--color", "no" | "false" | "off" | "0") => "never",
        ("--format", "html" | "md" | "markdown" | "latex" | "tex") => "-o FILE",
        _ => return None,
    };
    Some(own.to_owned())
}
