//! What a step is to a run, which sizes it has, and what a mask makes of it.

use super::axis::Axis::{
    self, Batch, Bucket, Head, HeadDim, Input, Key, Model, Query, Slot, Split, Tile,
};

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

table! {
    /// A length that every run has, and that the axes of its steps are made of, with the axis that has it.
    Size: Axis {
        /// Items of the batch, B.
        Batch => Batch,
        /// Tokens of X, T.
        Tokens => Query,
        /// Query rows that are computed.
        Queries => Query,
        /// Keys that the run projects itself.
        OwnKeys => Key,
        /// Keys of the cache, P.
        PastKeys => Key,
        /// The keys of tokens, S.
        Keys => Key,
        /// The same, and the learned one.
        BiasedKeys => Key,
        /// All keys that have a score: of tokens, and those that are added to them.
        AllKeys => Key,
        /// Features of X, `d_in`.
        Input => Input,
        /// Features of the second input, `d_memory`.
        Memory => Input,
        /// Features of the model, `d_model`.
        Model => Model,
        /// Features that queries are projected from: those of their latent, where they have one, or of X.
        QueryInput => Input,
        /// Features that keys and values are projected from: those of their latent, where they have one, or of the input.
        KeyInput => Input,
        /// Features that values are projected from: the same, or those of their own input, `d_memory_v`.
        ValueInput => Input,
        /// Features of the latent of queries.
        QueryLatent => Model,
        /// Features of the latent of keys and values, `d_c`.
        KeyLatent => Model,
        /// Features of all query heads, H · `d_k`.
        QueryWidth => Model,
        /// Features of all key heads as they are projected, `H_kv` · (`d_k` − `d_r`).
        KeyWidth => Model,
        /// Features of all value heads, `H_kv` · `d_v`.
        ValueWidth => Model,
        /// Features of the heads side by side, H · `d_v`.
        ConcatWidth => Model,
        /// Features of the keys that all heads share, before they are a head, `d_r`.
        SharedWidth => Model,
        /// Query heads, H.
        Heads => Head,
        /// Key heads, `H_kv`.
        KeyHeads => Head,
        /// Value heads: as many as key heads, or in differential attention one for each pair of them.
        ValueHeads => Head,
        /// Heads that have an output: as many as query heads, or one for each pair of them.
        OutputHeads => Head,
        /// Heads of queries and keys that are repeated: as many as query heads, or as those of values.
        RepeatedHeads => Head,
        /// One head, which all others share.
        One => Head,
        /// Features of a head's queries and keys, `d_k`.
        HeadDim => HeadDim,
        /// Features of a head's keys of its own, `d_k` − `d_r`.
        KeyDim => HeadDim,
        /// Features of keys that all heads share, `d_r`.
        SharedDim => HeadDim,
        /// Features of the latent of keys and values as a head, `d_c`.
        LatentDim => HeadDim,
        /// Features of queries and keys at their dot product: `d_k`, or of absorbed ones `d_c` + `d_r`.
        ScoreDim => HeadDim,
        /// Features of what is weighted: `d_v`, or of absorbed values `d_c`.
        WeightedDim => HeadDim,
        /// Features of a head's values, `d_v`.
        ValueDim => HeadDim,
        /// The same, in a state that has an axis for those of keys before them.
        StateDim => Axis::ValueDim,
        /// Items of the batch, or the documents that a row packs, each with a state.
        Sequences => Batch,
        /// Chunks of the tokens.
        Chunks => Key,
        /// Pairs of features that are turned, r / 2.
        Pairs => HeadDim,
        /// Rows of a table of relative position biases.
        Buckets => Bucket,
        /// One item, which those of the batch share.
        OneItem => Batch,
        /// Relative positions that have an embedding.
        Positions => Bucket,
        /// Slots of a cache's pages.
        Slots => Slot,
        /// Splits of the keys.
        Splits => Split,
        /// Tiles of the keys.
        Tiles => Tile,
    }
}

impl Size {
    /// The axis that has this length.
    pub fn axis(self) -> Axis {
        self.row()
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
