//! The flags that say what is computed, and from them to a run.
#![allow(clippy::doc_markdown, reason = "these comments are the help, which is plain text")]

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use mha_trace::config::{
    AttnMaskTrue, CausalAlign, DType, EmptyRows, Feature, Fill, Init, Input, Mask, Preset, QkNorm,
    Queries, Rope, RopeScaling, Seed, Settings, Tokens,
};
use mha_trace::file::{read_config, read_json};
use mha_trace::source::{Sources, key_mask_rows};
use mha_trace::{Error, Result, Run};

/// What is computed.
#[derive(Args, Default)]
#[command(next_help_heading = "Run")]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct RunArgs {
    /// A JSON file with any of these settings, or a recorded trace to run again
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A notebook's whole setting [default: causal-walkthrough]
    #[arg(long, value_name = "NAME", value_parser = choice(Preset::ALL, Preset::name))]
    pub preset: Option<Preset>,
    /// Items in the batch [default: 1]
    #[arg(short, long, value_name = "N")]
    pub batch: Option<usize>,
    /// Tokens in a sequence [default: 4]
    #[arg(short = 't', long, value_name = "N")]
    pub seq_len: Option<usize>,
    /// Features of the model; the heads divide them [default: 8]
    #[arg(short, long, value_name = "N")]
    pub d_model: Option<usize>,
    /// Attention heads [default: 2]
    #[arg(short = 'H', long, value_name = "N")]
    pub heads: Option<usize>,
    /// Seed of PyTorch's generator; −1 means 2^64 − 1 [default: 42]
    #[arg(short, long, value_name = "N", allow_hyphen_values = true)]
    pub seed: Option<Seed>,
    /// Features of the input X [default: d_model]
    #[arg(long, value_name = "N")]
    pub d_in: Option<usize>,
    /// Distribution of X: torch.randn or torch.rand [default: randn]
    #[arg(long, value_name = "NAME", value_parser = choice(Input::ALL, Input::name))]
    pub input: Option<Input>,
    /// Initialisation of the weights: Xavier, or nn.Linear's own [default: xavier-uniform]
    #[arg(long, value_name = "NAME", value_parser = choice(Init::ALL, Init::name))]
    pub init: Option<Init>,
    /// Give all four projections a bias
    #[arg(long, overrides_with = "no_bias")]
    pub bias: bool,
    /// Give none of the projections a bias (the default)
    #[arg(long, overrides_with = "bias")]
    pub no_bias: bool,
    /// Mask between positions [default: causal; none in cross attention]
    #[arg(short, long, value_name = "NAME", value_parser = choice(Mask::ALL, Mask::name))]
    pub mask: Option<Mask>,
    /// Keys to attend to, a string a batch item: 11,01,10 (or a file of 0 and 1; or none)
    #[arg(long, value_name = "ROWS|FILE")]
    pub key_mask: Option<String>,
    /// The same as valid lengths: 3,2
    #[arg(long, value_name = "N,N,…", value_delimiter = ',')]
    pub lengths: Option<Vec<usize>>,
    /// A mask broadcast to (batch, head, query, key): 0 and 1, booleans, or floats to add to the scores
    #[arg(long, value_name = "FILE[:TENSOR]")]
    pub attn_mask: Option<String>,
    /// What 1 or true means in --attn-mask [default: attend]
    #[arg(long, value_name = "NAME", value_parser = choice(AttnMaskTrue::ALL, AttnMaskTrue::name))]
    pub attn_mask_true: Option<AttnMaskTrue>,
    /// What a masked score becomes: a number or -inf [default: -1e9]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub mask_fill: Option<Fill>,
    /// What softmax makes of a row of −inf: nan, as PyTorch, or zero [default: nan]
    #[arg(long, value_name = "NAME", value_parser = choice(EmptyRows::ALL, EmptyRows::name))]
    pub empty_rows: Option<EmptyRows>,
    /// Probability of dropping a weight, as in training [default: 0]
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub dropout: Option<f64>,
    /// Type to compute in: f32, or f64 from the same drawn numbers [default: f32]
    #[arg(long, value_name = "NAME", value_parser = choice(DType::ALL, DType::name))]
    pub dtype: Option<DType>,
    /// X (batch, seq_len, d_in) from a file in place of the drawn one
    #[arg(long, value_name = "FILE[:TENSOR]")]
    pub x: Option<String>,
    /// Weights and biases from a file, such as a checkpoint, in place of the drawn ones
    #[arg(long, value_name = "FILE")]
    pub weights: Option<String>,
    /// The layer whose weights are taken, by the prefix of their names: layers.0.attn
    #[arg(long, value_name = "P")]
    pub prefix: Option<String>,
    /// The settings of a Hugging Face model, from its config.json
    #[arg(long, value_name = "FILE")]
    pub model_config: Option<String>,
    /// The layer of that model, from 0; of --weights it picks the prefix too
    #[arg(long, value_name = "N")]
    pub layer: Option<usize>,
    /// Leave out what the model's config, or --config, says of these
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = choice(Feature::ALL, Feature::name))]
    pub without: Option<Vec<Feature>>,
    /// Labels of the tokens: the,cat,sat (or a JSON file of them)
    #[arg(long, value_name = "A,B,…|FILE")]
    pub tokens: Option<String>,
    /// Labels of the second input's tokens
    #[arg(long, value_name = "A,B,…|FILE")]
    pub memory_tokens: Option<String>,
    /// Say which tensor of a file was taken as what
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten)]
    pub modern: ModernArgs,
}

/// What models have added to attention since.
#[derive(Args, Default)]
#[command(next_help_heading = "Run: attention as today's models have it")]
pub struct ModernArgs {
    /// Heads of the keys and values, each shared by heads / N query heads [default: heads]
    #[arg(long, value_name = "N")]
    pub kv_heads: Option<usize>,
    /// Features of a head [default: d_model / heads]
    #[arg(long, value_name = "N")]
    pub head_dim: Option<usize>,
    /// Normalise every head's queries and keys to a root mean square of 1, times a weight
    #[arg(long, value_name = "NAME", value_parser = choice(QkNorm::ALL, QkNorm::name))]
    pub qk_norm: Option<QkNorm>,
    /// What that norm adds to the mean square [default: 1e-6]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub qk_norm_eps: Option<f64>,
    /// Rotary positions: pairs of features (i, i + r/2), or (2i, 2i + 1)
    #[arg(long, value_name = "PAIRS", value_parser = choice(Rope::ALL, Rope::name))]
    pub rope: Option<Rope>,
    /// What their frequencies are powers of [default: 10000]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub rope_base: Option<f64>,
    /// Turn only the first N features of every head [default: all]
    #[arg(long, value_name = "N")]
    pub rope_dims: Option<usize>,
    /// Position of the first token [default: the length of the cache]
    #[arg(long, value_name = "N")]
    pub rope_offset: Option<usize>,
    /// How a checkpoint's config scales the frequencies: {"rope_type": "linear", "factor": 4} (or a JSON file)
    #[arg(long, value_name = "JSON|FILE")]
    pub rope_scaling: Option<String>,
    /// The frequencies themselves, one a pair, from a file
    #[arg(long, value_name = "FILE[:TENSOR]")]
    pub rope_freqs: Option<String>,
    /// What cosine and sine are multiplied by, beside --rope-freqs [default: 1]
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub rope_attention_factor: Option<f64>,
    /// Cross attention: keys and values from a second input of N tokens
    #[arg(long, value_name = "N")]
    pub kv_len: Option<usize>,
    /// Features of the second input [default: d_in]
    #[arg(long, value_name = "N")]
    pub d_memory: Option<usize>,
    /// The second input (batch, kv_len, d_memory) from a file
    #[arg(long, value_name = "FILE[:TENSOR]")]
    pub memory: Option<String>,
    /// A cache: k_past and v_past (batch, kv_heads, key, head_dim) of a file stand before the run's own keys
    #[arg(long, value_name = "FILE")]
    pub past: Option<String>,
    /// Compute these query rows only: 2..4, or T-1..T for the last
    #[arg(long, value_name = "A..B")]
    pub queries: Option<Queries>,
    /// Where the causal mask starts if queries and keys differ in number [default: by positions; top-left across]
    #[arg(long, value_name = "CORNER", value_parser = choice(CausalAlign::ALL, CausalAlign::name))]
    pub causal_align: Option<CausalAlign>,
    /// Keys that a query sees under the causal mask: the last N, itself included [default: all]
    #[arg(long, value_name = "N")]
    pub window: Option<usize>,
    /// Add linear position biases to the scores: −slope · distance, a slope a head
    #[arg(long)]
    pub alibi: bool,
    /// Cap the scores softly: C · tanh(scores / C)
    #[arg(long, value_name = "C", allow_hyphen_values = true)]
    pub softcap: Option<f64>,
    /// What the dot products are multiplied by [default: 1/√d_k]
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub scale: Option<f64>,
}

impl RunArgs {
    /// The flags as settings, completed by the model's.
    pub fn settings(&self) -> Result<Settings> {
        self.flags()?.with_model()
    }

    fn flags(&self) -> Result<Settings> {
        Ok(Settings {
            preset: self.preset,
            batch: self.batch,
            seq_len: self.seq_len,
            d_model: self.d_model,
            heads: self.heads,
            kv_heads: self.modern.kv_heads,
            head_dim: self.modern.head_dim,
            seed: self.seed,
            d_in: self.d_in,
            input: self.input,
            init: self.init,
            bias: (self.bias || self.no_bias).then_some(self.bias),
            qk_norm: self.modern.qk_norm,
            qk_norm_eps: self.modern.qk_norm_eps,
            rope: self.modern.rope,
            rope_base: self.modern.rope_base,
            rope_dims: self.modern.rope_dims,
            rope_offset: self.modern.rope_offset,
            rope_scaling: self.modern.rope_scaling.as_deref().map(json_or_file).transpose()?,
            rope_freqs: self.modern.rope_freqs.clone(),
            rope_attention_factor: self.modern.rope_attention_factor,
            kv_len: self.modern.kv_len,
            d_memory: self.modern.d_memory,
            memory: self.modern.memory.clone(),
            past: self.modern.past.clone(),
            past_len: None,
            queries: self.modern.queries,
            mask: self.mask,
            causal_align: self.modern.causal_align,
            key_mask: self.key_mask.as_deref().map(key_mask).transpose()?,
            lengths: self.lengths.clone(),
            attn_mask: self.attn_mask.clone(),
            attn_mask_true: self.attn_mask_true,
            mask_fill: self.mask_fill,
            window: self.modern.window,
            alibi: self.modern.alibi.then_some(true),
            softcap: self.modern.softcap,
            scale: self.modern.scale,
            empty_rows: self.empty_rows,
            dropout: self.dropout,
            dtype: self.dtype,
            x: self.x.clone(),
            weights: self.weights.clone(),
            prefix: self.prefix.clone(),
            tokens: self.tokens.as_deref().map(tokens).transpose()?,
            memory_tokens: self.memory_tokens.as_deref().map(tokens).transpose()?,
            model_config: self.model_config.clone(),
            layer: self.layer,
            without: self.without.clone(),
        })
    }

    /// The run that the flags, the config below them and the preset below that describe.
    pub fn run(&self) -> Result<Run> {
        let mut flags = self.flags()?;
        let (settings, sources) = if let Some(path) = &self.config {
            let mut record = read_config(path)?;
            let mut config = record.config.take().unwrap_or_default();
            // Another layer of the config's model.
            if flags.model_config.is_none() && config.model_config.is_some() {
                config.layer = flags.layer.take().or(config.layer);
            }
            record.config = Some(config.with_model()?);
            Sources::again(&record, &flags.with_model()?)?
        } else {
            let flags = flags.with_model()?;
            let sources = Sources::load(&flags)?;
            (flags, sources)
        };
        Run::new(&self.drawn(settings), sources)
    }

    /// Without a file of weights, a model's layer picks none, and biases are drawn where it has them.
    fn drawn(&self, settings: Settings) -> Settings {
        if settings.weights.is_some() || self.model_config.is_none() {
            return settings;
        }
        let prefix = self.prefix.clone();
        let bias = settings.bias.or(Some(false));
        Settings { prefix, bias, ..settings }
    }
}

/// `11,01,10` as rows, `none` as no rows, and anything else as a file.
fn key_mask(text: &str) -> Result<Vec<String>> {
    match text {
        "none" => Ok(Vec::new()),
        _ if text.chars().all(|c| matches!(c, '0' | '1' | ',')) => {
            Ok(text.split(',').map(str::to_owned).collect())
        }
        place => key_mask_rows(place),
    }
}

/// `the,cat,sat` as labels, and anything that ends like a JSON file as one.
fn tokens(text: &str) -> Result<Tokens> {
    if Path::new(text).extension().is_some_and(|extension| extension == "json") {
        return read_json(Path::new(text));
    }
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map_err(|error| {
            let fix = "give A,B,…, or a JSON file of labels".to_owned();
            Error::Config { what: format!("tokens: {error}"), fix }
        });
    }
    Ok(Tokens::Same(text.split(',').map(str::to_owned).collect()))
}

/// An object as JSON, or the file that holds it.
fn json_or_file(text: &str) -> Result<RopeScaling> {
    if !text.trim_start().starts_with('{') {
        return read_json(Path::new(text));
    }
    text.parse().map_err(|what: String| {
        let fix = "give it as a checkpoint's config.json states it".to_owned();
        Error::Config { what: format!("rope_scaling: {what}"), fix }
    })
}

/// A parser of one of the library's choices by its name.
fn choice<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let names = all.iter().map(|choice| name(*choice));
    PossibleValuesParser::new(names).try_map(move |text| {
        all.iter().copied().find(|choice| name(*choice) == text).ok_or("not one of the choices")
    })
}
