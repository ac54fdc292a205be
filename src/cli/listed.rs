//! Which flags does help list, and what is an example of each?

use clap::{Arg, Command};

use super::language::is_english;
use config::Setting;

/// An example of each flag that is listed, by the flag's id.
pub const SHOWN: &[(&str, &str)] = &[
    ("config", "--config run.json"),
    ("verbose", "-v --weights model.safetensors"),
    ("preset", "--preset simple"),
    ("batch", "-b 2"),
    ("seq_len", "-t 6"),
    ("d_model", "-d 12 -H 3"),
    ("heads", "-H 4"),
    ("seed", "-s 0"),
    ("torch_cpu", "--torch-cpu arm"),
    ("d_in", "--d-in 5"),
    ("input", "--input rand"),
    ("init", "--init linear"),
    ("bias", "--bias"),
    ("kv_len", "--kv-len 6"),
    ("memory", "--memory encoder.npy"),
    ("queries", "--queries T-1..T"),
    ("mask", "--mask none"),
    ("key_mask", "--key-mask 1110"),
    ("lengths", "-b 2 --lengths 4,3"),
    ("attn_mask", "--attn-mask mask.npy"),
    ("attn_mask_true", "--attn-mask mask.npy --attn-mask-true block"),
    ("mask_fill", "--mask-fill -inf"),
    ("scale", "--scale 1"),
    ("empty_rows", "--key-mask 0000 --mask-fill -inf --empty-rows zero"),
    ("dropout", "--dropout 0.1"),
    ("start", "--start scores --scores 1,2"),
    ("end", "--end heads"),
    ("q", "--q q.npy --k k.npy --v v.npy"),
    ("k", "--q q.npy --k k.npy --v v.npy"),
    ("v", "--q q.npy --k k.npy --v v.npy"),
    ("scores", "--scores 112,96 --head-dim 64"),
    ("backward", "--backward"),
    ("d_output", "--backward --d-output randn"),
    ("wrt", "--backward --wrt x,w_q"),
    ("dtype", "--dtype f64"),
    ("x", "--x x.npy"),
    ("weights", "--weights model.safetensors"),
    ("prefix", "--weights model.safetensors --prefix layers.0.attn"),
    ("tokens", "--tokens the,cat,sat,down"),
    ("model_config", "--model-config config.json"),
    ("layer", "--model-config config.json --layer 0"),
    ("without", "--model-config config.json --without rope"),
    // Of today's models.
    ("kv_heads", "-H 4 --kv-heads 2"),
    ("head_dim", "--head-dim 6"),
    ("v_head_dim", "--v-head-dim 6"),
    ("kv_lora_rank", "--kv-lora-rank 6,q-lora-rank=5"),
    ("draw_inputs", "--x x.npy --draw-inputs all"),
    ("qk_norm", "--qk-norm rms,eps=1e-5"),
    ("v_norm", "--v-norm rms,eps=1e-5"),
    ("clip_qkv", "--clip-qkv 2"),
    ("value_scale", "--value-scale 0.5"),
    ("rope", "--rope half,base=500000"),
    ("q_temperature", "--q-temperature 0.1,floor=2"),
    ("memory_v", "--kv-len 6 --memory-v values.npy"),
    ("past", "--past cache.safetensors"),
    ("shared_kv", "--shared-kv cache.safetensors"),
    ("k_eq_v", "--k-eq-v"),
    ("causal_align", "--kv-len 6 --mask causal --causal-align bottom-right"),
    ("window", "--window 2"),
    ("chunk", "--chunk 2"),
    ("alibi", "--alibi"),
    ("alibi_form", "--alibi --alibi-form bloom"),
    ("relative_bias", "--relative-bias bidirectional,relative-buckets=8"),
    ("disentangled", "--disentangled c2p,p2c,position-buckets=4"),
    ("attn_bias", "--attn-bias bias.npy"),
    ("softcap", "--softcap 30"),
    ("lambda_init", "--lambda-init 0.8"),
    ("sinks", "--sinks"),
    ("add_bias_kv", "--add-bias-kv"),
    ("add_zero_attn", "--add-zero-attn"),
    ("concat_norm", "--concat-norm rms,eps=1e-5"),
    ("gate", "--gate sigmoid"),
    ("qkv_format", "--q q.npy --k k.npy --v v.npy --qkv-format bshd"),
    ("segments", "-t 5 --segments 3,2"),
    ("selected", "--selected parents=-1,0,0,1 --mask none"),
    ("splits", "--splits 2"),
    ("tiles", "--tiles 2"),
    ("recurrence", "--recurrence gated-delta,v-heads=4,states"),
    ("lse", "--lse"),
    ("mean_weights", "--mean-weights"),
    ("packing", "--weights model.safetensors --packing heads"),
    ("model_family", "--model-config config.json --model-family llama"),
    // What is shown, and how files are compared.
    ("steps", "--steps q,weights"),
    ("batch_item", "-b 2 --batch-item 1"),
    ("head", "--head 1"),
    ("decimals", "--decimals 5"),
    ("edge", "-t 64 --edge 2"),
    ("full", "-t 64 --full"),
    ("heatmap", "--steps weights --heatmap"),
    ("why", "--why"),
    ("quiet", "-q -o run.json"),
    ("format", "--format json"),
    ("width", "--width 80"),
    ("color", "--color never"),
    ("output", "-o run.html"),
    ("lang", "--lang zh"),
    ("map", "--map attn_probs=weights"),
    ("depth", "--depth all"),
    ("rtol", "--rtol 1e-5"),
    ("atol", "--atol 1e-5,scores=1e-4"),
    ("fail_on_noise", "--fail-on-noise"),
    ("ignore_padding", "--ignore-padding"),
    ("ignore_gradients", "--ignore-gradients"),
    ("by_layer", "--by-layer"),
    ("unshard", "--by-layer --unshard heads=4"),
    ("ignore_missing", "--ignore-missing"),
    ("flash_tolerance", "--flash-tolerance"),
    // Of fuzz.
    ("list", "--list"),
    ("only", "--only tail,decode"),
    ("skip", "--skip head-dim-80"),
    ("cases", "--cases 100"),
    ("dtypes", "--dtypes f32"),
    ("tile_size", "--tile-size 128"),
    ("takes", "--takes lengths,attn-mask"),
    ("timeout", "--timeout 300"),
    ("keep", "--keep failing"),
    ("write", "--write DIR"),
    ("read", "--read DIR"),
];

/// An example of what stands behind a command without a flag.
pub const PLACES: &[(&str, &str)] = &[
    ("<FILE|DIR>", "run.json"),
    ("<A>", "a.json"),
    ("<B>", "b.json"),
    ("<STEP|CELL>", "weights"),
    ("<SHELL>", "bash"),
    ("<COMMAND>", "'python kernel.py {in} {out}'"),
];

/// The example of a flag.
pub fn example(arg: &Arg) -> Option<&'static str> {
    let shown = SHOWN.iter().find(|(id, _)| *id == arg.get_id().as_str());
    shown.map(|(_, example)| *example)
}

/// Whether a flag is of today's models, whose flags have a page of their own.
fn is_of_models(arg: &Arg) -> bool {
    Setting::named(arg.get_id().as_str()).is_some_and(|setting| setting.is_newer)
}

/// Whether another flag takes in its value what this one says.
fn is_merged(arg: &Arg) -> bool {
    Setting::named(arg.get_id().as_str()).is_some_and(|setting| setting.behind().is_some())
}

/// The command line with the flags that its help lists, and an example of each.
pub fn listed(command: Command) -> Command {
    let of_flag = |arg: Arg| {
        let is_hidden = is_of_models(&arg) || is_merged(&arg) || arg.is_hide_long_help_set();
        with_example(arg).hide_long_help(is_hidden)
    };
    command.mut_args(of_flag).mut_subcommands(listed)
}

/// A command that has the flags of today's models, each with an example.
pub fn of_models(command: &Command) -> Command {
    let flags = command.get_arguments().filter(|arg| is_of_models(arg) && !is_merged(arg));
    let flags = flags.cloned().map(|arg| with_example(arg).hide_long_help(false));
    let usage = if is_english() { "{usage-heading} " } else { tr!("Usage: ") };
    Command::new(env!("CARGO_PKG_NAME"))
        .disable_help_flag(true)
        .about(tr!("The flags of attention as today's models have it"))
        .help_template(format!("{{about-with-newline}}\n{usage}{{usage}}\n\n{{all-args}}"))
        .args(flags)
}

fn with_example(arg: Arg) -> Arg {
    let Some(example) = example(&arg) else { return arg };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let apart = if is_english() && !help.contains('\n') { " " } else { "\n" };
    arg.help(help + apart + &tr!("[e.g. {example}]", example))
}
