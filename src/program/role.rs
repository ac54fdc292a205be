//! What a step is to a run, which sizes it has, and what a mask makes of it.

use super::axis::Axis;

/// What a step is to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Tokens that the run starts from.
    Input,
    /// What a model has learned: weights, biases.
    Parameter,
    /// Keys or values of earlier tokens.
    Cache,
    /// What is drawn as the run goes: the weights that dropout keeps.
    Random,
    /// What follows from the settings alone, unless a file gives it: masks, position biases, frequencies.
    Setting,
    /// What is computed from the others.
    Computed,
}

/// A length that every run has, and that the axes of its steps are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Items of the batch, B.
    Batch,
    /// Tokens of X, T.
    Tokens,
    /// Query rows that are computed.
    Queries,
    /// Keys that the run projects itself.
    OwnKeys,
    /// Keys of the cache, P.
    PastKeys,
    /// The keys of tokens, S.
    Keys,
    /// The same, and the learned one.
    BiasedKeys,
    /// All keys that have a score: of tokens, and those that are added to them.
    AllKeys,
    /// Features of X, `d_in`.
    Input,
    /// Features of the second input, `d_memory`.
    Memory,
    /// Features of the model, `d_model`.
    Model,
    /// Features that queries are projected from: those of their latent, where they have one, or of X.
    QueryInput,
    /// Features that keys and values are projected from: those of their latent, where they have one, or of the input.
    KeyInput,
    /// Features that values are projected from: the same, or those of their own input, `d_memory_v`.
    ValueInput,
    /// Features of the latent of queries.
    QueryLatent,
    /// Features of the latent of keys and values, `d_c`.
    KeyLatent,
    /// Features of all query heads, H · `d_k`.
    QueryWidth,
    /// Features of all key heads as they are projected, `H_kv` · (`d_k` − `d_r`).
    KeyWidth,
    /// Features of all value heads, `H_kv` · `d_v`.
    ValueWidth,
    /// Features of the heads side by side, H · `d_v`.
    ConcatWidth,
    /// Features of the keys that all heads share, before they are a head, `d_r`.
    SharedWidth,
    /// Query heads, H.
    Heads,
    /// Key heads, `H_kv`.
    KeyHeads,
    /// One head, which all others share.
    One,
    /// Features of a head's queries and keys, `d_k`.
    HeadDim,
    /// Features of a head's keys of its own, `d_k` − `d_r`.
    KeyDim,
    /// Features of keys that all heads share, `d_r`.
    SharedDim,
    /// Features of the latent of keys and values as a head, `d_c`.
    LatentDim,
    /// Features of queries and keys at their dot product: `d_k`, or of absorbed ones `d_c` + `d_r`.
    ScoreDim,
    /// Features of what is weighted: `d_v`, or of absorbed values `d_c`.
    WeightedDim,
    /// Features of a head's values, `d_v`.
    ValueDim,
    /// Pairs of features that are turned, r / 2.
    Pairs,
    /// Rows of a table of relative position biases.
    Buckets,
}

impl Size {
    /// The axis that has this length.
    #[must_use]
    pub fn axis(self) -> Axis {
        match self {
            Self::Batch => Axis::Batch,
            Self::Tokens | Self::Queries => Axis::Query,
            Self::OwnKeys | Self::PastKeys | Self::Keys | Self::BiasedKeys | Self::AllKeys => {
                Axis::Key
            }
            Self::Input | Self::Memory | Self::QueryInput | Self::KeyInput | Self::ValueInput => {
                Axis::Input
            }
            Self::Model
            | Self::QueryLatent
            | Self::KeyLatent
            | Self::QueryWidth
            | Self::KeyWidth
            | Self::ValueWidth
            | Self::ConcatWidth
            | Self::SharedWidth => Axis::Model,
            Self::Heads | Self::KeyHeads | Self::One => Axis::Head,
            Self::HeadDim
            | Self::KeyDim
            | Self::SharedDim
            | Self::LatentDim
            | Self::ScoreDim
            | Self::WeightedDim
            | Self::ValueDim
            | Self::Pairs => Axis::HeadDim,
            Self::Buckets => Axis::Bucket,
        }
    }
}

/// What the cells that a mask blocks are in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockedCells {
    /// No mask has been applied.
    Unknown,
    /// Low scores: −∞ is no fault there.
    Low,
    /// Weights of 0.
    Weightless,
}
