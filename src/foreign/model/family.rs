//! What a family of models is: one row of data, which says where its config holds what, and what the library takes where
//! a config is silent.

use config::{AlibiForm, Gate, NormOver, Pairing, QkNorm, SectionOrder};

/// Models whose attention is computed alike.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Its `model_type`s.
    pub types: &'static [&'static str],
    /// Where its layers stand; several where a model has more than one stack, or cross attention.
    pub parts: &'static [Part],
    /// The key of the model's width.
    pub width: Keys,
    /// The key of the number of heads.
    pub heads: Keys,
    /// The key of the number of layers.
    pub layers: Keys,
    /// How many key heads there are.
    pub kv_heads: KeyHeads,
    /// How many features a head has.
    pub head_dim: HeadDim,
    /// The key of how many features a head's values have, and so many where it is absent; otherwise as many as its keys.
    pub v_head_dim: Option<(&'static str, usize)>,
    /// The latents that queries, keys and values are projected from.
    pub latent: Option<Latent>,
    /// Whether projections have biases.
    pub bias: When,
    /// How one matrix holds the projections, where its name alone does not say it.
    pub packing: &'static [(When, Packing)],
    /// The norm of queries and keys.
    pub norm: Option<Norm>,
    /// The norm of values, without a weight: what it adds.
    pub v_norm: Option<Eps>,
    /// The key of what values are multiplied by, and the factor where it is absent.
    pub value_scale: Option<(&'static str, f64)>,
    /// The key of what queries, keys and values are clipped to.
    pub clip: Option<&'static str>,
    /// The factors of queries by their positions.
    pub temperature: Option<Temperature>,
    /// The norm before the output projection: what it adds.
    pub concat_norm: Option<Eps>,
    /// The gate before the output projection, and when there is one.
    pub gate: Option<(Gate, When)>,
    /// The key of how many layers, the last, take keys and values of an earlier one, and so many where it is absent.
    pub shared: Option<(&'static str, usize)>,
    /// Whether values are the projected keys, in the layers that see all.
    pub k_eq_v: When,
    /// Rotary positions.
    pub rope: Option<Rope>,
    /// What the dot products are multiplied by.
    pub scale: Scale,
    /// The key of the soft cap, and the cap where it is absent.
    pub softcap: Option<(&'static str, f64)>,
    /// How many keys a query sees in layers that slide.
    pub window: Option<Window>,
    /// What a layer is, where the config does not list it.
    pub pattern: Pattern,
    /// Whether heads have linear position biases.
    pub alibi: When,
    /// How those are computed.
    pub alibi_form: AlibiForm,
    /// Learned biases of relative positions.
    pub relative: Option<Relative>,
    /// The key of the length of chunks, and the length where it is absent, in layers that have them.
    pub chunk: Option<(&'static str, usize)>,
    /// The layers whose heads have a score that is no key's.
    pub sinks: Sinks,
    /// Whether its scores have terms of content and relative position, which `pos_att_type` names.
    pub disentangled: When,
    /// Whether its module adds the residual to what it gives.
    pub adds_residual: bool,
    /// What some of its models have and is not traced.
    pub refused: &'static [When],
}

/// The key of what a norm adds to the mean square, and what it does where that is absent.
pub type Eps = (&'static str, f64);

/// Names of one key, of which the first that is there counts.
pub type Keys = &'static [&'static str];

/// Layers of one kind in a model.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The object of the config that says it; empty for the config itself.
    pub config: &'static str,
    /// The names of its modules, with `{}` for the layer.
    pub path: &'static str,
    /// What a query sees.
    pub sees: Sees,
    /// The key of its number of heads, where it has one of its own.
    pub heads: Keys,
}

/// What a query sees of its keys.
#[derive(Debug, Clone, Copy)]
pub enum Sees {
    /// Itself and what stands before.
    Past,
    /// All of its sequence.
    All,
    /// All of another sequence.
    Memory,
    /// What stands before, where a key says so.
    PastIf(When),
    /// What stands before; where a key says so, what the mask shows that the layer is called with, as a prefix that sees
    /// itself both ways.
    PastUnlessMasked(When),
}

/// Whether something holds of a model.
#[derive(Debug, Clone, Copy)]
pub enum When {
    Always,
    Never,
    /// If the key is true; so much where it is absent.
    If(&'static str, bool),
    /// If the key is false; so much for the key where it is absent.
    IfNot(&'static str, bool),
    /// If the key is that word.
    Is(&'static str, &'static str),
    /// If one of the two keys is true.
    Either(&'static str, &'static str),
}

/// How many key heads there are.
#[derive(Debug, Clone, Copy)]
pub enum KeyHeads {
    /// As many as query heads.
    AsQueries,
    /// What the key says; null is as many as query heads, and so is its absence where it has no default.
    Key(&'static str, Option<usize>),
    /// One if the key is true, as it is where it is absent.
    OneIf(&'static str),
    /// The same, and twice as many in the layers that slide.
    TwiceIfSliding(&'static str, usize),
    /// Falcon's: of the new architecture those of `num_kv_heads`, otherwise one or all.
    Falcon,
}

/// How many features a head has.
#[derive(Debug, Clone, Copy)]
pub enum HeadDim {
    /// The width shared among the heads, whatever the config says beside it.
    Split,
    /// What the key says; where it is absent so many, or the width shared among the heads.
    Key(&'static str, Option<usize>),
    /// The sum of two keys' numbers, of features that do not turn and that do; so many where they are absent.
    Parts([(&'static str, usize); 2]),
    /// The same as of one key, and another key and size in the layers that see all.
    KeyOfFull(&'static str, usize, (&'static str, usize)),
}

/// The keys of latents' sizes, and the sizes where they are absent; null and 0 are none.
#[derive(Debug, Clone, Copy)]
pub struct Latent {
    pub queries: (&'static str, usize),
    pub keys: (&'static str, usize),
    pub shared: (&'static str, usize),
}

/// The layers whose heads have a score that is no key's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sinks {
    None,
    All,
    Sliding,
}

/// A norm of queries and keys.
#[derive(Debug, Clone, Copy)]
pub struct Norm {
    /// Whether there is one.
    pub when: When,
    /// What it adds to the mean square.
    pub eps: Eps,
    pub kind: QkNorm,
    /// What it runs over.
    pub over: NormOver,
    /// Whether it comes after the rotation, in the layers that turn alone.
    pub after_rope: bool,
    /// Whether it is of cross attention alone.
    pub of_memory: bool,
}

/// The factors 1 + scale · ln(1 + ⌊position / floor⌋) of queries.
#[derive(Debug, Clone, Copy)]
pub struct Temperature {
    /// Whether there are any.
    pub when: When,
    /// The keys of the scale, and the scale where they are absent.
    pub scale: (Keys, f64),
    /// The keys of the floor, and the floor where they are absent.
    pub floor: (Keys, usize),
    /// What is added to positions.
    pub offset: usize,
    /// Whether they are of the layers alone that do not turn.
    pub of_unturned: bool,
}

/// Learned biases of relative positions: of buckets, one-sided where a query sees what stands before alone, or of places of a
/// grid.
#[derive(Debug, Clone, Copy)]
pub struct Relative {
    /// Whether there are any.
    pub when: When,
    /// Whether they are of places of a grid.
    pub is_grid: bool,
    /// The key of the number of buckets, and the number where it is absent.
    pub buckets: (&'static str, usize),
    /// The same of the distance from which on all are in the last.
    pub max_distance: (&'static str, usize),
}

/// Rotary positions.
#[derive(Debug, Clone, Copy)]
pub struct Rope {
    /// Whether there are any.
    pub when: When,
    pub pairing: Pairing,
    /// When features i and i + r/2 are a pair after all.
    pub halves: When,
    /// Whether the last features of a head turn, not the first.
    pub at_end: bool,
    /// What the frequencies are powers of where nothing says it.
    pub base: f64,
    /// Keys beside `rope_parameters` that say it.
    pub base_keys: Keys,
    /// That of layers that slide, and its key, where they have their own; scalings are of the other layers then.
    pub sliding_base: Option<(Keys, f64)>,
    /// The part of a head that is turned where nothing says it.
    pub part: f64,
    /// Keys beside `rope_parameters` that say it.
    pub part_keys: Keys,
    /// The key of the number of features that are turned, and the number where it is absent, unless a part is stated.
    pub dims: Option<(&'static str, Option<usize>)>,
    /// The key of a list of the layers' bases.
    pub bases: &'static str,
    /// The layers that turn.
    pub layers: Turned,
    /// The scaling where the config has none, as JSON.
    pub scaling: &'static str,
    /// What `longrope` goes by.
    pub long: Long,
    /// The order of sections of pairs, and the sections where the config says none.
    pub sections: Option<(SectionOrder, [usize; 3])>,
    /// Whether the values are turned too.
    pub values: When,
    /// Whether the angles are negative.
    pub backwards: bool,
    /// Whether an `alpha` beside dynamic scaling multiplies the base by its power d / (d − 2), whatever the length.
    pub alpha: bool,
}

/// What `longrope` goes by.
#[derive(Debug, Clone, Copy)]
pub enum Long {
    /// What is said of rotary positions.
    Stated,
    /// A number of positions at first that the config itself says; otherwise so many.
    First(usize),
    /// Always the short factors, and what cos and sin are multiplied by has keys of its own.
    Short,
}

/// The layers that turn their queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turned {
    All,
    /// Those that slide.
    Sliding,
    /// Those that slide; all where there is no window.
    SlidingIfWindow,
    /// Those with a 1 in the list `no_rope_layers`; all but every fourth where there is none.
    Listed,
    /// Those of a type that `rope_parameters` say something of; none where these are null.
    Stated,
}

/// What the dot products are multiplied by.
#[derive(Debug, Clone, Copy)]
pub enum Scale {
    /// 1/√`d_k`.
    Root,
    /// 1/√`d_k` times a key's number.
    RootTimes(&'static str),
    /// One over the root of a key's number, or of this.
    RootOf(&'static str, f64),
    /// A key's number; where it is absent this one, or 1/√`d_k`.
    Key(&'static str, Option<f64>),
    /// 1/√`d_k` times the square of what yarn's factor and `mscale_all_dim` make: 0.1 · mscale · ln factor + 1.
    RootYarn,
    /// One over the root of `d_k` times 1 + n, where `pos_att_type` lists n terms of the scores beside the products.
    RootOfTerms,
    /// This number.
    By(f64),
    /// GPT-2's: 1/√`d_k` unless `scale_attn_weights` is false, divided by the number of the layer if
    /// `scale_attn_by_inverse_layer_idx` is true.
    Gpt2,
}

/// How many keys a query sees.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Its key.
    pub key: &'static str,
    /// The window where the key is absent.
    pub otherwise: Option<usize>,
    /// What the key's number is to be divided by.
    pub per: usize,
    /// The same where a query sees to both sides.
    pub per_side: usize,
    /// Whether there is one at all.
    pub when: When,
}

/// What a layer is, where the config does not list it.
#[derive(Debug, Clone, Copy)]
pub enum Pattern {
    /// All slide, whatever the config lists; without a window none does.
    Uniform,
    /// All are of that kind.
    Each(Kind),
    /// Every `by`-th layer is `there`, from the first on or from the `by`-th, and the others `elsewhere`.
    Every { by: (&'static str, usize), first: bool, there: Kind, elsewhere: Kind },
    /// The first layer and every so-manieth see all, and the others slide.
    FirstAndEvery(usize),
    /// The layers from the key's number on, or this one, slide.
    From(&'static str, usize),
    /// Of the layers before the key's number, or this one, those with an even number slide.
    EvenBefore(&'static str, usize),
    /// The layers that do not turn slide.
    Unturned,
    /// The layers that turn have chunks.
    ChunkedIfTurned,
    /// Every so many layers, from such a one on, one has attention.
    Few { period: (&'static str, usize), offset: (&'static str, usize) },
}

/// What a layer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Its queries see all.
    Full,
    /// Its queries see a window.
    Sliding,
    /// Its queries see their own chunk of the sequence.
    Chunked,
    /// It has no softmax attention.
    Other,
}

/// How one matrix holds the projections.
pub use config::Packing;

impl Family {
    /// Whether it has that `model_type`.
    pub fn is(&self, kind: &str) -> bool {
        let word = |kind: &str| kind.replace('-', "_");
        self.types.iter().any(|own| word(own) == word(kind))
    }

    /// The name that stands for it.
    pub fn name(&self) -> &'static str {
        self.types.first().copied().unwrap_or_default()
    }
}
