//! What do first guesses, and the words of other tools, stand for here?

use std::path::Path;

use config::Setting;

/// Asks whether one thing was meant.
pub fn did_you_mean(near: impl AsRef<str>) -> String {
    let near = near.as_ref();
    tr!("did you mean {near}?", near)
}

/// What to type in place of a word that is no command.
pub fn command(word: &str) -> Option<&'static str> {
    Some(match word.to_lowercase().as_str() {
        "compare" | "cmp" => "diff",
        "verify" | "validate" | "test" => "check",
        "walk" | "walkthrough" | "view" | "browse" => "step",
        "presets" | "notebook" | "notebooks" => "--preset",
        "version" => "--version",
        "usage" | "commands" | "?" | "/?" | "/help" | "帮助" => "--help",
        "softmax" | "attn" | "attention-weights" | "注意力" => "--steps weights",
        "plot" | "visualize" | "visualise" | "html" | "page" | "gui" | "ui" => "-o run.html",
        "demo" | "tutorial" | "learn" | "intro" | "story" | "guide" | "教程" => "tour",
        "example" | "examples" | "示例" | "例子" => "-h",
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
        "head-size" | "dim-head" | "d-k" | "dk" | "d-head" => "--head-dim",
        "n-head" | "num-of-heads" | "h" => "--heads",
        "length" | "max-length" | "max-len" | "block-size" | "context-length" | "n-ctx"
        | "num-tokens" | "n-tokens" => "--seq-len",
        "key-padding-mask" | "padding-mask" | "src-key-padding-mask" => "--key-mask",
        "padding" | "pad" => "--lengths",
        "show" | "print" | "step" => "--steps",
        "out" | "save" | "output-file" | "export" | "html" | "file" => "-o",
        "plot" | "visualize" | "visualise" => "--heatmap",
        "precision" | "float" | "double" => "--dtype",
        "input-file" | "data" | "embeddings" | "embedding" => "--x",
        "checkpoint" | "model" | "load" => "--weights",
        "words" | "sentence" | "text" | "labels" => "--tokens",
        "language" => "--lang",
        "explain" => "--why",
        "grad" | "gradient" | "backprop" => "--backward",
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
        "epochs" | "lr" | "learning-rate" | "optimizer" | "loss" | "train" | "training"
        | "eval" | "weight-decay" => tr!("nothing is trained here: leave it out"),
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
        ("--mask", "因果" | "tril" | "triu" | "triangular" | "true" | "yes" | "on") => "causal",
        ("--mask", "false" | "no" | "off" | "full" | "无") => "none",
        ("--mask", masks) if masks.contains("padding") => "--lengths",
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
        ("--format", "html" | "md" | "markdown" | "latex" | "tex") => "-o",
        ("--steps", "qkv") => "q,k,v",
        ("--steps", "qk^t" | "qkt" | "qkᵀ" | "q@k.t" | "q·k") => "scores_raw",
        ("--input", _) if value.contains('.') => return Some(format!("--x {value}")),
        ("--edge", all) if is_everything(all) => "--full",
        ("--preset", _) => return preset(value).map(str::to_owned),
        ("--queries", _) => return range(value),
        ("--positions", _) => return counted(value),
        ("--key-mask", _) => return bits(value),
        _ => return None,
    };
    Some(own.to_owned())
}

/// Whether a word asks for drawn numbers.
pub fn is_drawing(word: &str) -> bool {
    ["random", "rand", "randn", "normal", "uniform", "随机"].contains(&word.to_lowercase().as_str())
}

/// Whether a word asks for all that there is.
pub fn is_everything(word: &str) -> bool {
    ["all", "everything", "*", "全部", "所有"].contains(&word.to_lowercase().as_str())
}

/// The preset that is a notebook of that name, or is called so in another spelling.
pub fn preset(name: &str) -> Option<&'static str> {
    let name = Path::new(name).file_stem()?.to_str()?.to_lowercase().replace(['_', ' '], "-");
    let presets = Setting::named("preset")?.choices;
    presets.iter().copied().find(|preset| *preset == name)
}

/// The rows from one to another, as `--queries` takes them: the end does not count.
fn range(text: &str) -> Option<String> {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let (from, to) = text.split_once([':', '-', ',']).unwrap_or((text, ""));
    let from = number(from)?;
    let is_one = text.trim().parse::<usize>().is_ok();
    let end = if is_one { from.checked_add(1)? } else { number(to)? };
    let end = if text.contains(':') || is_one { end } else { end.checked_add(1)? };
    Some(format!("{from}..{end}"))
}

/// The numbers from one to another, both included.
fn counted(text: &str) -> Option<String> {
    let (from, to) = text.split_once('-')?;
    let (from, to) = (from.trim().parse::<usize>().ok()?, to.trim().parse::<usize>().ok()?);
    let is_short = to.checked_sub(from).is_some_and(|more| more < 16);
    let all = || (from..=to).map(|at| at.to_string()).collect::<Vec<_>>().join(",");
    is_short.then(all)
}

/// Rows of true and false, in letters, words or lists, as the 1 and 0 that masks are written with.
fn bits(text: &str) -> Option<String> {
    let lower = text.to_lowercase().replace("true", "1").replace("false", "0");
    let is_list = lower.starts_with('[') || lower.split(',').all(|key| key.trim().len() == 1);
    let rows = lower.trim_matches(['[', ']']).replace("],", "/").replace(';', "/");
    let rows = if is_list { rows } else { rows.replace(',', "/") };
    let bit = |c: char| match c {
        't' | 'y' | '1' => Some('1'),
        'f' | 'n' | '0' => Some('0'),
        _ => None,
    };
    let is_key = |c: &char| !matches!(c, '[' | ']' | ',' | ' ');
    let row = |row: &str| row.chars().filter(is_key).map(bit).collect::<Option<String>>();
    Some(rows.split('/').map(row).collect::<Option<Vec<_>>>()?.join(","))
}

/// Other spellings of a number: in words, with a decimal comma, as a fraction or in percent.
pub fn number(text: &str) -> Vec<String> {
    const WORDS: [&str; 11] =
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    let text = text.trim().to_lowercase();
    let float = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let times = |text: Option<&str>, factor: f64| text.and_then(float).map(|own| own * factor);
    let root = |text: &str| {
        let inner = text.strip_prefix('√').or_else(|| text.strip_prefix("sqrt"));
        let inner = inner.map(|inner| inner.trim_matches(['(', ')']));
        inner.map_or_else(|| float(text), |inner| float(inner).map(f64::sqrt))
    };
    let divided = text.split_once('/').and_then(|(over, under)| Some(root(over)? / root(under)?));
    let word = WORDS.iter().position(|word| *word == text || text.starts_with(&format!("{word} ")));
    let found = [
        word.map(|at| at.to_string()),
        float(&text.replacen(',', ".", 1)).map(|number| number.to_string()),
        times(text.strip_suffix('%'), 0.01).map(|number| number.to_string()),
        times(text.strip_suffix('k'), 1e3).map(|number| number.to_string()),
        divided.filter(|number| number.is_finite()).map(|number| number.to_string()),
    ];
    found.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_known_in_other_spellings() {
        let cases = [
            ("two", "2"),
            ("0,1", "0.1"),
            ("10%", "0.1"),
            ("10k", "10000"),
            ("1/8", "0.125"),
            ("1/sqrt(64)", "0.125"),
            ("4.0", "4"),
        ];
        for (typed, meant) in cases {
            assert_eq!(number(typed), [meant], "{typed}");
        }
        assert!(number("sqrt").is_empty() && number("1,2,3").is_empty());
    }

    #[test]
    fn values_are_known_in_other_forms() {
        let cases = [
            ("--queries", "2", Some("2..3")),
            ("--queries", "0:2", Some("0..2")),
            ("--queries", "1-2", Some("1..3")),
            ("--positions", "0-3", Some("0,1,2,3")),
            ("--key-mask", "TTFF", Some("1100")),
            ("--key-mask", "True,True,False", Some("110")),
            ("--key-mask", "[[1, 1], [1, 0]]", Some("11,10")),
            ("--key-mask", "TT,TF", Some("11,10")),
            ("--key-mask", "mask", None),
            ("--preset", "examples/causal_walkthrough.ipynb", Some("causal-walkthrough")),
            ("--edge", "all", Some("--full")),
        ];
        for (flag, typed, meant) in cases {
            assert_eq!(value(flag, typed).as_deref(), meant, "{flag} {typed}");
        }
    }
}
