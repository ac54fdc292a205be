//! Which settings there are: the one table of them, as flags and config files give them.

#![allow(
    clippy::doc_markdown,
    reason = "these comments are the help of flags too, which is plain text"
)]

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::choice::{
    AttnMaskTrue, CausalAlign, DType, DrawInputs, End, Feature, Gate, Init, Input, Mask, NormOver,
    OtherNorm, Packing, PositionTerm, Preset, QkNorm, QkvFormat, Recurrence, Seed, Start, TorchCpu,
};
use super::loss::OutputGradient;
use super::positions::Positions;
use super::queries::Queries;
use super::scores::Scores;
use super::segments::Segments;
use super::text::{FromText, Place};
use super::tiles::Tiles;
use super::tokens::Tokens;
use base::error::{Error, Result};
use program::{
    AlibiForm, EmptyRow, Fill, Pairing, RelativeBias, RopeScaling, SectionOrder, Selection,
};

/// What there is to know of a setting: its key, and what a user interface needs to offer it.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "each is a column of the table")]
pub struct Setting {
    /// The key in config files. A flag has hyphens for its underscores.
    pub key: &'static str,
    /// What it says, in a line.
    pub about: &'static str,
    /// What its value looks like; empty for a switch.
    pub value: &'static str,
    /// The flag's letter.
    pub short: Option<char>,
    /// Other names of the flag, by which other code has the setting.
    pub aliases: &'static [&'static str],
    /// What holds where it is absent, in words; empty if nothing worth a word does.
    pub default: &'static str,
    /// What turning a switch off says, where that is a flag of its own.
    pub off: &'static str,
    /// Whether it is of attention as later models have it.
    pub is_newer: bool,
    /// The other setting that it says more of.
    pub of: Option<&'static str>,
    /// Whose values in a recorded run it replaces: the settings of the files that these can come from.
    pub replaces: &'static [&'static str],
    /// Whether it changes what is computed so that the header of a page tells it, by its key and value.
    pub is_told: bool,
    /// The words that it can be, if it is one of a few.
    pub choices: &'static [&'static str],
    /// Whether it is a list, with commas between.
    pub is_list: bool,
    /// Whether a value can begin with a minus.
    pub is_signed: bool,
    /// The least number that it can be, if it is a whole one: most are sizes.
    pub least: usize,
    /// How a default stands in the config of a recorded run.
    pub(super) record: Recorded,
    pub(super) set: fn(&mut Settings, &str) -> Result<(), String>,
    pub(super) is_set: fn(&Settings) -> bool,
    pub(super) clear: fn(&mut Settings),
}

/// How a setting stands in the config of a recorded run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorded {
    /// Where it says more than its default.
    Stated,
    /// With its default too.
    Always,
    /// Not at all: others say what it led to.
    Never,
}

/// A setting with such a value; the table fills in what its name and its type say.
const fn takes(value: &'static str) -> Setting {
    Setting {
        key: "",
        about: "",
        value,
        short: None,
        aliases: &[],
        default: "",
        off: "",
        is_newer: false,
        of: None,
        replaces: &[],
        is_told: false,
        choices: &[],
        is_list: false,
        is_signed: false,
        least: 1,
        record: Recorded::Stated,
        set: |_, _| Ok(()),
        is_set: |_| false,
        clear: |_| (),
    }
}

/// A setting of later models.
const fn newer(value: &'static str) -> Setting {
    Setting { is_newer: true, ..takes(value) }
}

impl Setting {
    const fn short(self, letter: char) -> Self {
        Self { short: Some(letter), ..self }
    }

    const fn or(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    const fn off(self, off: &'static str) -> Self {
        Self { off, ..self }
    }

    const fn of(self, other: &'static str) -> Self {
        Self { of: Some(other), ..self }
    }

    const fn or_0(self) -> Self {
        Self { least: 0, ..self }
    }

    const fn told(self) -> Self {
        Self { is_told: true, ..self }
    }

    const fn recorded(self) -> Self {
        Self { record: Recorded::Always, ..self }
    }

    const fn unrecorded(self) -> Self {
        Self { record: Recorded::Never, ..self }
    }

    const fn replaces(self, files: &'static [&'static str]) -> Self {
        Self { replaces: files, ..self }
    }

    /// What is stated, or the default.
    fn decided<T: FromText + Clone>(&self, stated: Option<&T>) -> Result<T> {
        let default = if self.value.is_empty() { "false" } else { self.default };
        let usual = || T::from_text(default).map_err(Error::Compute);
        stated.cloned().map_or_else(usual, Ok)
    }

    /// How a value stands in the settings of a record, which have those before it: not without the setting that it says
    /// more of, and a default only if that is recorded.
    fn recorded_of<T: FromText + Clone + PartialEq>(
        &self,
        value: &T,
        settings: &Settings,
    ) -> Result<Option<T>> {
        let other = self.of.and_then(Setting::named);
        let holds = other.is_none_or(|other| (other.is_set)(settings));
        let says_more = self.record == Recorded::Always || *value != self.decided(None)?;
        Ok(Some(value.clone()).filter(|_| holds && says_more))
    }
}

/// What a row decides: a value, which is its default where nothing is stated; or one that may be absent.
macro_rules! decision {
    (type decided $of:ty) => { $of };
    (type optional $of:ty) => { Option<$of> };
    (of decided $stated:expr, $about:expr) => {{
        const ABOUT: Setting = $about;
        ABOUT.decided($stated.as_ref())?
    }};
    (of optional $stated:expr, $about:expr) => { $stated.clone() };
    (record decided $value:expr, $about:expr, $settings:expr) => {{
        const ABOUT: Setting = $about;
        ABOUT.recorded_of($value, $settings)?
    }};
    (record optional $value:expr, $about:expr, $settings:expr) => { $value.clone() };
}

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $name:ident: $of:ty $(, $sort:ident)? = $about:expr;)+) => {
        /// The settings of a run, as a config file or flags state them; what is absent has its default.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, expecting = "an object of settings")]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $name: Option<$of>,)+
            /// The number of keys in a cache, which only its tensors tell.
            #[serde(skip)]
            pub past_len: Option<usize>,
            /// What was stated before a model's config completed it, by which another layer of the model can be had.
            #[serde(skip)]
            pub before_model: Option<Box<Settings>>,
        }

        impl Setting {
            /// Every setting, in the order of config files.
            #[allow(clippy::large_stack_arrays, reason = "a constant is on no stack")]
            pub const ALL: &'static [Self] = &[$(
                Self {
                    key: stringify!($name),
                    about: concat!($($doc),+).trim_ascii_start(),
                    choices: <$of as FromText>::CHOICES,
                    is_list: <$of as FromText>::IS_LIST,
                    is_signed: <$of as FromText>::IS_SIGNED,
                    set: |settings, text| {
                        settings.$name = Some(FromText::from_text(text)?);
                        Ok(())
                    },
                    is_set: |settings| settings.$name.is_some(),
                    clear: |settings| settings.$name = None,
                    ..$about
                }
            ),+];

            /// The setting of that key.
            pub fn named(key: &str) -> Option<&'static Self> {
                Self::ALL.iter().find(|setting| setting.key == key)
            }
        }

        /// What a setting's row alone decides; [`Settings`] says what each is.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(clippy::struct_excessive_bools, reason = "each is a setting")]
        pub struct Plain {
            $($(
                #[doc = concat!("[`Settings::", stringify!($name), "`].")]
                pub $name: decision!(type $sort $of),
            )?)+
        }

        impl Plain {
            /// What is stated, and the defaults of the table.
            pub(super) fn of(settings: &Settings) -> Result<Self> {
                Ok(Self { $($($name: decision!(of $sort &settings.$name, $about),)?)+ })
            }

            /// States these values in the settings of a record, which have all others.
            pub(super) fn record(&self, settings: &mut Settings) -> Result<()> {
                $($(settings.$name = decision!(record $sort &self.$name, $about, settings);)?)+
                Ok(())
            }
        }

        impl Settings {
            /// These settings, and `base` wherever they are silent.
            pub(super) fn or(self, base: Self) -> Self {
                Self {
                    $($name: self.$name.or(base.$name),)+
                    past_len: self.past_len.or(base.past_len),
                    before_model: self.before_model.or(base.before_model),
                }
            }

            /// These settings as a config file in `folder` states them: its paths are relative to it.
            pub fn in_folder(mut self, folder: &Path) -> Self {
                $(if let Some(value) = &mut self.$name {
                    FromText::move_to(value, folder);
                })+
                self
            }
        }
    };
}

settings! {
    /// All settings of a notebook
    preset: Preset = takes("NAME").default("causal-walkthrough").unrecorded();
    /// Items in the batch
    batch: usize = takes("N").short('b').or(&["batch-size"]).default("1");
    /// Tokens in a sequence
    seq_len: usize = takes("N").short('t').or(&["seq-length", "sequence-length"]).default("4");
    /// Features of the model; must be divisible by the heads, unless `head_dim` is given
    d_model: usize = takes("N").short('d').default("8")
        .or(&["hidden-dim", "hidden-size", "embed-dim", "emb-dim", "embedding-dim", "model-dim", "d-out"]);
    /// Attention heads
    heads: usize = takes("N").short('H').or(&["num-heads", "n-heads", "nhead", "head-num", "num-attention-heads"]).default("2");
    /// Heads of the keys and values, each shared by heads / N query heads
    kv_heads: usize = newer("N").or(&["num-kv-heads", "n-kv-heads", "num-key-value-heads"]).default("heads");
    /// Features of a head
    head_dim: usize = newer("N").default("d_model / heads");
    /// Features of a head's values
    v_head_dim: usize = newer("N").default("head_dim");
    /// Multi-head latent attention: project keys and values from a latent of N features, normalised by an RMS norm
    kv_lora_rank: usize = newer("N").told();
    /// Project queries from a latent of N features too
    q_lora_rank: usize = newer("N").of("kv_lora_rank").default("none").told();
    /// The last N features of every key are shared by all heads; only the last N are rotated
    qk_rope_head_dim: usize = newer("N").or_0().of("kv_lora_rank").default("0").told();
    /// Project the queries to the latent and the outputs back from it, instead of computing keys and values from it
    absorb: bool = newer("").of("kv_lora_rank").told();
    /// Epsilon of the norms of the latents
    lora_norm_eps: f64, decided = newer("X").of("kv_lora_rank").default("1e-6").recorded();
    /// Seed of PyTorch's generator; −1 means 2^64 − 1
    seed: Seed, decided = takes("N").short('s').default("42").recorded();
    /// Draw normal numbers as PyTorch does on this processor: x86 with AVX2, or Arm; only the last bits differ
    torch_cpu: TorchCpu, decided = takes("NAME").default("x86");
    /// Features of the input X
    d_in: usize = takes("N").default("d_model");
    /// Distribution of X: torch.randn or torch.rand
    input: Input, decided = takes("NAME").default("randn").recorded();
    /// Which inputs to draw before the weights: those that no file gives, or all, even those that a file replaces
    draw_inputs: DrawInputs, decided = newer("NAME").default("missing");
    /// Initialisation of the weights: Xavier, or nn.Linear's own
    init: Init, decided = takes("NAME").default("xavier-uniform").recorded();
    /// Give all four projections a bias
    bias: bool, decided = takes("").off("Give none of the projections a bias (the default)").recorded();
    /// Normalise every head's queries and keys: to a root mean square of 1, or by LayerNorm; then times a weight; or to a
    /// length of 1 (l2)
    qk_norm: QkNorm, optional = newer("NAME").told();
    /// Epsilon of `qk_norm`
    qk_norm_eps: f64 = newer("X").of("qk_norm").default("1e-6; 1e-5 for layer");
    /// What `qk_norm` runs over: each head (one weight for all), each head with its own weight, or all heads together
    qk_norm_over: NormOver, decided = newer("NAME").of("qk_norm").default("head");
    /// Normalise after the rotation, not before it
    qk_norm_after_rope: bool, decided = newer("").of("qk_norm").told();
    /// Normalise every head's values to a root mean square of 1, without a weight
    v_norm: OtherNorm, optional = newer("NAME").told();
    /// Epsilon of `v_norm`
    v_norm_eps: f64, decided = newer("X").of("v_norm").default("1e-6").recorded();
    /// Clip queries, keys and values to numbers from −C to C
    clip_qkv: f64, optional = newer("C").told();
    /// Multiply the values by S
    value_scale: f64, optional = newer("S").told();
    /// Rotary positions: pairs of features (i, i + r/2), or (2i, 2i + 1)
    rope: Pairing = newer("PAIRS").replaces(FREQUENCIES).told();
    /// Base of the rotary frequencies
    rope_base: f64 = newer("X").of("rope").default("10000").replaces(FREQUENCIES);
    /// Rotate only the first N features of every head
    rope_dims: usize = newer("N").of("rope").default("all").replaces(FREQUENCIES);
    /// Rotate the last features of every head, not the first
    rope_at_end: bool = newer("").of("rope").told();
    /// Rotate the values, too
    rope_value: bool = newer("").of("rope").told();
    /// Position of the first token
    rope_offset: usize = newer("N").or_0().of("rope").default("the length of the cache");
    /// Rotate by minus the angles
    rope_backwards: bool = newer("").of("rope").told();
    /// Positions of the tokens, if they are not 0,1,2,…: 0,0,1,2 (per item: 0,1/0,0; or a file)
    positions: Positions, optional = newer("N,N,…|FILE").of("rope");
    /// Numbers of feature pairs rotated by time, height and width (mrope): 16,24,24
    rope_sections: Vec<usize> = newer("N,N,N").of("rope");
    /// Order of the pairs of `rope_sections`
    rope_section_order: SectionOrder = newer("NAME").of("rope_sections").default("chunked");
    /// How a checkpoint's config scales the frequencies: {"rope_type": "linear", "factor": 4} (or a JSON file)
    rope_scaling: RopeScaling = newer("JSON|FILE").of("rope").replaces(FREQUENCIES);
    /// The frequencies themselves, one per pair, from a file
    rope_freqs: Place = newer("FILE[:TENSOR]").of("rope").replaces(FREQUENCIES);
    /// Factor of cosine and sine with `rope_freqs`
    rope_attention_factor: f64 = newer("X").of("rope_freqs").default("1");
    /// Multiply the query at position p by 1 + S · ln(1 + ⌊p / N⌋)
    q_temperature: f64, optional = newer("S").told();
    /// N in `q_temperature`
    q_temperature_floor: usize, decided = newer("N").of("q_temperature").default("8192").told().recorded();
    /// Added to p in `q_temperature`: 1 counts positions from 1
    q_temperature_offset: usize, decided = newer("N").or_0().of("q_temperature").default("0");
    /// Cross attention: keys and values from a second input of N tokens
    kv_len: usize = takes("N");
    /// Features of the second input
    d_memory: usize = newer("N").of("kv_len").default("d_in");
    /// The second input (batch, kv_len, d_memory) from a file
    memory: Place, optional = takes("FILE[:TENSOR]").replaces(&["memory"]);
    /// Take the values from an input of their own, with N features
    d_memory_v: usize = newer("N").of("kv_len").default("none: from the keys' input");
    /// The values' own input (batch, kv_len, d_memory_v) from a file
    memory_v: Place, optional = newer("FILE[:TENSOR]").replaces(&["memory_v"]);
    /// A cache from a file: k_past and v_past (batch, kv_heads, key, head_dim), which come before the run's own keys
    /// and values
    past: Place = newer("FILE").replaces(&["past", "attn_mask"]);
    /// Keys and values of an earlier layer instead of own ones: k_shared and v_shared (batch, kv_heads, key, head_dim)
    shared_kv: Place, optional = newer("FILE").replaces(&["shared_kv"]).told();
    /// Use the projected keys (before norm and rotation) as the values too
    k_eq_v: bool, decided = newer("").told();
    /// Compute these query rows only: 2..4 (rows 2 and 3), or T-1..T for the last
    queries: Queries = takes("A..B").replaces(MASKS);
    /// Mask: each token sees only itself and earlier ones (causal), or all (none)
    mask: Mask = takes("NAME").short('m').default("causal; none in cross attention").replaces(MASKS);
    /// Where the causal mask starts if queries and keys differ in number
    causal_align: CausalAlign, optional = newer("CORNER").default("by positions; top-left in cross attention").replaces(MASKS);
    /// Keys to attend to, one string per batch item: 11,01,10 (or a file of 0 and 1; or none)
    key_mask: Vec<String> = takes("ROWS|FILE").or(&["attention-mask"]).replaces(MASKS);
    /// Padding: the number of valid keys per batch item: 3,2
    lengths: Vec<usize>, optional = takes("N,N,…").or(&["seq-lens"]).replaces(MASKS);
    /// A mask broadcast to (batch, head, query, key): 0 and 1, booleans, or floats to add to the scores
    attn_mask: Place, optional = takes("FILE[:TENSOR]").replaces(MASKS);
    /// What 1 or true means in `attn_mask`
    attn_mask_true: AttnMaskTrue = takes("NAME").default("attend").replaces(MASKS);
    /// What a masked score becomes: a number or -inf
    mask_fill: Fill = takes("X").default("-1e9");
    /// Let a query see only the last N keys, itself included; without a causal mask also the next N − 1
    window: usize, optional = newer("N").default("all").replaces(MASKS);
    /// Let a query see only the keys of its own chunk of N
    chunk: usize, optional = newer("N").default("all").replaces(MASKS);
    /// Add linear position biases to the scores: −slope · distance, with one slope per head
    alibi: bool, decided = newer("").replaces(MASKS).told();
    /// How ALiBi is computed: as in the paper, or as in a model
    alibi_form: AlibiForm, decided = newer("NAME").of("alibi").default("paper").replaces(MASKS);
    /// Add learned biases for relative positions, from the layer's own table: T5's buckets, or positions of a grid
    relative_bias: RelativeBias, optional = newer("NAME").replaces(MASKS).told();
    /// Rows of the `relative_bias` table
    relative_buckets: usize = newer("N").of("relative_bias").default("32").replaces(MASKS);
    /// From this distance on, all keys are in the last bucket of the table
    relative_max_distance: usize, decided = newer("N").of("relative_bias").default("128").replaces(MASKS).recorded();
    /// Disentangled attention: add to the scores what queries say of relative positions (c2p), relative positions of keys
    /// (p2c), or both: c2p,p2c
    disentangled: Vec<PositionTerm>, optional = newer("TERM,…").told();
    /// Relative positions to either side: buckets of distances, by their logarithm from N / 2 on
    position_buckets: usize, optional = newer("N").of("disentangled").default("every distance has a position").told();
    /// The distance of the last bucket; without buckets, the relative positions to either side
    max_relative_positions: usize = newer("N").of("disentangled").default("512; without buckets, the keys");
    /// Project relative positions as tokens are, not by weights of their own
    share_att_key: bool, decided = newer("").of("disentangled").told();
    /// Normalise the embeddings of relative positions by LayerNorm with the epsilon X
    rel_norm_eps: f64, optional = newer("X").of("disentangled").default("no norm").told();
    /// Position biases broadcast to (batch, head, query, key), added to the scaled scores
    attn_bias: Place, optional = newer("FILE[:TENSOR]").replaces(MASKS);
    /// Multiply the dot products by S
    scale: f64, optional = takes("S").default("1/√d_k").told();
    /// Cap the scores softly: C · tanh(scores / C)
    softcap: f64, optional = newer("C").told();
    /// Differential attention: of each pair of heads, subtract λ times the second's weights from the first's; X is λ_init
    lambda_init: f64, optional = newer("X").told();
    /// Epsilon of the norm of every head's output, which `lambda_init` brings
    head_norm_eps: f64, decided = newer("X").of("lambda_init").default("1e-5").recorded();
    /// Add a learned score per head to the softmax that belongs to no key (gpt-oss)
    sinks: bool, decided = newer("").told();
    /// Append a learned key and value, which every query sees, to those of the tokens, as nn.MultiheadAttention does
    add_bias_kv: bool = newer("").told();
    /// Append a key and a value of zeros, which every query sees, after all others
    add_zero_attn: bool = newer("").told();
    /// Normalise the concatenated heads to a root mean square of 1, times a weight, before the output projection
    concat_norm: OtherNorm, optional = newer("NAME").told();
    /// Epsilon of `concat_norm`
    concat_norm_eps: f64, decided = newer("X").of("concat_norm").default("1e-6").recorded();
    /// Multiply the concatenated heads by a function of one more projection of X, before the output projection
    gate: Gate, optional = newer("NAME").told();
    /// What softmax makes of a row of −inf: nan, as PyTorch, or zero
    empty_rows: EmptyRow = takes("NAME").default("nan");
    /// Probability of dropping a weight, as in training
    dropout: f64, decided = takes("P").or(&["attention-dropout"]).default("0").recorded();
    /// Where the run starts: at X (inputs), at q, k, v before or after the split (projections, heads), or at scores
    start: Start = takes("STEP").default("inputs; if files give q, k and v: where these are");
    /// Where the run ends: at the output, the concatenated heads (concat), each head's output (heads), or the weights
    end: End = takes("STEP").default("output; heads if q, k and v are given as heads");
    /// Queries from a file: the run starts at them, without X and projections
    q: Place, optional = takes("FILE[:TENSOR]").replaces(&["q"]);
    /// Keys from a file
    k: Place, optional = takes("FILE[:TENSOR]").of("q").replaces(&["k"]);
    /// Values from a file
    v: Place, optional = takes("FILE[:TENSOR]").of("q").replaces(&["v"]);
    /// Order of axes of q, k, v in files (b batch, h head, s sequence, d head_dim, t token of packed documents)
    qkv_format: QkvFormat = newer("AXES").default("bhsd").replaces(CORE);
    /// Start at these dot products of queries and keys and end at the weights: 112,96, nested lists, or a JSON file
    scores: Scores = takes("N,N,…|JSON|FILE").replaces(&["scores"]);
    /// Documents packed into one row, by their lengths: 3,2,4 (or 3,2/4,1 by batch item); a token sees only its own
    /// document
    segments: Segments = newer("N,N,…").replaces(MASKS);
    /// Lengths of the documents' keys, if they differ
    key_segments: Segments = newer("N,N,…").of("segments").default("segments").replaces(MASKS);
    /// Keys that each query may see: the parents of a tree's tokens (parents=-1,0,0), a list of keys for each query
    /// (keys=0;0,1;1,2), or lists of blocks of keys for tiles of queries (blocks=1x4:0;0,1)
    selected: Selection, optional = newer("SELECTION").replaces(MASKS);
    /// Attend to the keys in splits, and merge them, as decoding kernels do: how many, or the first key of each: 0,8,16
    splits: Vec<usize>, optional = newer("N|N,N,…").told();
    /// Attend to the keys tile by tile with a running maximum, as FlashAttention does: keys of a tile, or queries and
    /// keys: 128x64
    tiles: Tiles, optional = newer("N|NxN").told();
    /// Linear attention in place of softmax: write keys and values into a state by the delta rule, and read it by queries
    recurrence: Recurrence, optional = newer("NAME").told();
    /// The logarithm of the decay (batch, head, token), for `kda` also (…, head_dim), from a file
    g: Place, optional = newer("FILE[:TENSOR]").of("recurrence").replaces(&["g"]);
    /// Beta (batch, head, token) from a file: how much of the difference each token writes
    beta: Place, optional = newer("FILE[:TENSOR]").of("recurrence").replaces(&["beta"]);
    /// The state before the first token (batch, head, head_dim, v_head_dim) from a file
    initial_state: Place, optional = newer("FILE[:TENSOR]").of("recurrence").default("zeros").replaces(&["initial_state"]);
    /// Heads of the values, if there are more than key heads
    v_heads: usize = newer("N").of("recurrence").default("kv_heads").or(&["num-v-heads"]);
    /// Also keep the state after every token
    states: bool, decided = newer("").of("recurrence");
    /// Also keep the state before every chunk of N tokens
    state_chunk: usize, optional = newer("N").of("recurrence").default("none");
    /// Also compute the log-sum-exp of every row of scores
    lse: bool, decided = newer("");
    /// Also compute the mean of the weights over the heads, as nn.MultiheadAttention returns it
    mean_weights: bool, decided = newer("");
    /// Also compute gradients: of inputs and parameters, and of every step on the way back to them
    backward: bool, decided = takes("").told();
    /// The output's gradient that `backward` starts from: ones (that of its sum), normal numbers (randn), or a file
    d_output: OutputGradient, decided = takes("ones|randn|FILE").of("backward").default("ones").replaces(&["d_output"]).told();
    /// Compute only the gradients of these inputs, parameters or steps, and those on the way to them: x,w_q
    wrt: Vec<String>, optional = takes("NAME,…").of("backward").default("all");
    /// Type to compute in: f32, or f64 from the same drawn numbers
    dtype: DType = takes("NAME").default("f32");
    /// X (batch, seq_len, d_in) from a file instead of the drawn one
    x: Place, optional = takes("FILE[:TENSOR]").replaces(&["x"]);
    /// Weights and biases from a file, such as a checkpoint, instead of the drawn ones
    weights: Place, optional = takes("FILE").replaces(&["weights"]);
    /// The layer to take from the weights, by the prefix of its names: layers.0.attn
    prefix: String = takes("P").of("weights").replaces(&["weights"]);
    /// How one matrix of `weights` holds queries, keys and values
    packing: Packing = newer("NAME").default("by its name").replaces(&["weights"]).unrecorded();
    /// Labels of the tokens: the,cat,sat (or a JSON file of them)
    tokens: Tokens, optional = takes("A,B,…|FILE");
    /// Labels of the second input's tokens
    memory_tokens: Tokens, optional = takes("A,B,…|FILE").of("kv_len");
    /// The settings of a Hugging Face model, from its config.json
    model_config: Place = takes("FILE").unrecorded();
    /// Read the config as this family instead of the one it names (`mha-trace models` lists them)
    model_family: String = newer("NAME").of("model_config").unrecorded();
    /// The layer of the model, from 0; also picks that layer in `weights`
    layer: usize = takes("N").or_0().of("model_config").unrecorded();
    /// Leave out these features of the model's config or of `config`
    without: Vec<Feature> = takes("NAME,…").unrecorded();
}

/// Queries, keys and values.
const CORE: &[&str] = &["q", "k", "v"];
const FREQUENCIES: &[&str] = &["rope_freqs"];
/// Masks and position biases.
const MASKS: &[&str] = &["attn_mask"];
