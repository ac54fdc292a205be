//! The parts of a run's setting: what belongs together in it.

use super::{
    AttnMaskTrue, CausalAlign, DrawInputs, Fill, Init, Input, Mask, NormOver, Place, QkNorm,
    RelativeBias, Seed, Segments, Settings, TorchCpu,
};

/// What is drawn, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draws {
    /// The seed of PyTorch's generator (`torch.manual_seed`).
    pub seed: Seed,
    /// The distribution that X is drawn from.
    pub input: Input,
    /// Which inputs are drawn.
    pub inputs: DrawInputs,
    /// How the weights are initialised.
    pub init: Init,
    /// The processor whose numbers are drawn.
    pub torch_cpu: TorchCpu,
}

impl Draws {
    /// What settings say of it, and the defaults.
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            seed: settings.seed.unwrap_or_default(),
            input: settings.input.unwrap_or_default(),
            inputs: settings.draw_inputs.unwrap_or_default(),
            init: settings.init.unwrap_or_default(),
            torch_cpu: settings.torch_cpu.unwrap_or_default(),
        }
    }
}

/// The norm of every head's queries and keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Norm {
    /// Its kind.
    pub kind: QkNorm,
    /// What it adds to the mean square.
    pub eps: f64,
    /// What it runs over.
    pub over: NormOver,
    /// Whether it comes after the rotation.
    pub after_rope: bool,
}

/// The factors 1 + S · ln(1 + ⌊(p + offset) / N⌋) of queries at positions p.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Temperature {
    /// S.
    pub scale: f64,
    /// N.
    pub floor: usize,
    /// What is added to the positions.
    pub offset: usize,
}

/// Learned biases of relative positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelativeBiases {
    /// What the rows of their table are of.
    pub sort: RelativeBias,
    /// The distance from which on all are in the last bucket.
    pub max_distance: usize,
}

/// What hides keys from queries.
#[derive(Debug, Clone, PartialEq)]
pub struct Masks {
    /// The mask between positions.
    pub between: Mask,
    /// Where the causal mask's diagonal starts if queries and keys differ in number; where nothing is said,
    /// [`super::Config::align`] decides.
    pub causal_align: Option<CausalAlign>,
    /// How many keys a query sees: the last ones, itself included; without a causal mask one less on the other side too.
    pub window: Option<usize>,
    /// How many keys the chunks have of which a query sees its own alone, as in Llama 4.
    pub chunk: Option<usize>,
    /// A string of 0 and 1 a batch item; 1 lets every query attend to that key. No strings: no such mask.
    pub key_mask: Option<Vec<String>>,
    /// The number of valid keys of every batch item.
    pub lengths: Option<Vec<usize>>,
    /// The documents that the queries' and the keys' rows are packed from.
    pub segments: Option<Packed>,
    /// What a true (or 1) in the mask of a file means.
    pub attn_mask_true: Option<AttnMaskTrue>,
    /// What a masked score becomes.
    pub fill: Fill,
}

/// The documents that rows are packed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// How many queries each has.
    pub queries: Segments,
    /// How many keys each has.
    pub keys: Segments,
}

/// The files that numbers come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// X.
    pub x: Option<Place>,
    /// The second input.
    pub memory: Option<Place>,
    /// The second input of the values.
    pub memory_v: Option<Place>,
    /// The queries that the run starts at.
    pub q: Option<Place>,
    /// The keys.
    pub k: Option<Place>,
    /// The values.
    pub v: Option<Place>,
    /// The weights.
    pub weights: Option<Place>,
    /// The cache.
    pub past: Option<Place>,
    /// A mask over (batch, head, query, key).
    pub attn_mask: Option<Place>,
    /// Position biases over (batch, head, query, key).
    pub attn_bias: Option<Place>,
}
