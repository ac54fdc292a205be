//! The delta rule in chunks is a form with slots: what may stand in each of them in place of the right value?
//!
//! Of a chunk of C tokens, G is the sum of the logarithms of the decay from its first token to each, and E is exp(Gᵢ − Gⱼ).
//! `A = β (k · k) E` where i > j, `T = (I + A)⁻¹`, `u = T β v`, `w = T β k exp(G)`, what is written `v = u − w S`, the outputs
//! `q exp(G) S + (q · k) E v` where i ≥ j, and the next state `exp(G_C) S + (k exp(G_C − G))ᵀ v`.

/// A part of the form, which has a decay, a factor, β, an inverse or a state of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkUse {
    /// A: the keys' matrix.
    Keys,
    /// u: the values.
    Values,
    /// w: what is subtracted of the state.
    Subtracted,
    /// What queries read of the state.
    Read,
    /// What they read within their chunk.
    Within,
    /// What a chunk leaves of the state.
    Carried,
    /// What it writes.
    Written,
}

/// What stands in one slot, or in several that share a tensor, in place of the right value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ChunkSlip {
    /// Another decay.
    Decay(&'static [ChunkUse], ChunkDecay),
    /// Another β.
    Beta(&'static [ChunkUse], ChunkBeta),
    /// The part is multiplied by this; 0 leaves it out.
    Times(ChunkUse, f64),
    /// Another matrix than the inverse, for the values, for what is subtracted of the state, or for both.
    Inverse(&'static [ChunkUse], ChunkInverse),
    /// Another state.
    State(&'static [ChunkUse], ChunkState),
    /// Something else than what is written.
    Writes(&'static [ChunkUse], ChunkWrites),
    /// Each chunk begins with zeros, but for the first.
    Reset,
    /// The first as well, whatever state there is before it.
    ResetAll,
    /// Each begins with the first state.
    Restart,
    /// Queries see the tokens behind them.
    Unmasked,
    /// What is behind the last full chunk is not computed.
    FullChunks,
}

/// A decay that is not the right one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ChunkDecay {
    /// None.
    Nothing,
    /// To this power.
    Power(f64),
    /// Up to so many tokens before, on the side of the rows, or of what the chunk is left with, and on that of the keys.
    Back {
        /// Of the rows.
        row: usize,
        /// Of the keys.
        column: usize,
    },
    /// That of single tokens, which are not added up.
    Single,
    /// That of the chunk before; none in the first.
    Before,
    /// From the first of all tokens.
    FromFirst,
    /// On each side from the start of its own part of so many tokens.
    Parts(usize),
    /// Up to the end of the chunk.
    ToEnd,
    /// Where the last chunk is not full, its end is read behind its tokens, where nothing is added up.
    Padded,
}

impl ChunkDecay {
    /// Whether it is another one there.
    pub(super) fn is_of(self, at: ChunkUse) -> bool {
        use ChunkUse::{Carried, Keys, Read, Subtracted, Within, Written};
        match self {
            Self::Back { column, .. } => column == 0 || matches!(at, Keys | Within | Written),
            Self::FromFirst => matches!(at, Subtracted | Read | Carried),
            Self::ToEnd => !matches!(at, Carried | Written),
            Self::Padded => matches!(at, Carried | Written),
            _ => true,
        }
    }
}

/// What stands in place of the inverse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkInverse {
    /// I.
    LeftOut,
    /// I − A.
    FirstOrder,
    /// Its transpose.
    Transposed,
    /// That of the keys' matrix without its decay.
    Undecayed,
    /// The diagonal of A is not cleared before the forward substitution: 1 − β k · k in place of 1.
    Diagonal,
    /// Neither is what is above it.
    Uncleared,
    /// (I + A)⁻¹ with what is above the diagonal.
    Unmasked,
    /// The forward substitution ends one row early: that of the last row of a chunk, or of its last token.
    EndsEarly {
        /// Whether it is that of the last token that a chunk has.
        is_token: bool,
    },
    /// It is put together from those of blocks of so many tokens.
    Merged(usize, ChunkMerge),
}

/// What stands beside the diagonal in place of −A₂₂⁻¹ A₂₁ A₁₁⁻¹.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkMerge {
    /// Nothing, for these blocks and for all that are made of them.
    Nothing,
    /// +A₂₂⁻¹ A₂₁ A₁₁⁻¹.
    Added,
    /// −A₂₁ A₁₁⁻¹.
    WithoutSecond,
    /// −A₂₂⁻¹ A₂₁.
    WithoutFirst,
    /// −A₂₁.
    Plain,
}

/// A β that is not that of the row's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkBeta {
    /// To this power.
    Power(i32),
    /// That of the column's token, whose key is met.
    Column,
}

/// What stands in place of `v`, what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkWrites {
    /// u: of which nothing of the state is subtracted.
    Solved,
    /// β v: of which nothing is subtracted at all.
    Scaled,
    /// The value.
    Plain,
}

/// The number of the first chunk of a document, where the states of all documents' chunks stand in one list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkNumber {
    /// Its first token, divided by the size and rounded down.
    OfToken,
    /// The number of full chunks before it.
    Full,
    /// 0: documents before it are not counted.
    None,
}

/// A state that is not the one before the chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkState {
    /// That before the chunk before.
    Before,
    /// That after the chunk.
    After,
    /// The first one.
    First,
    /// It is transposed.
    Transposed,
    /// That of another chunk, where the chunks of documents are counted otherwise.
    Numbered(ChunkNumber),
}

impl ChunkSlip {
    /// The parts that it changes.
    pub(super) fn uses(&self) -> &[ChunkUse] {
        match self {
            Self::Decay(uses, _)
            | Self::Beta(uses, _)
            | Self::Inverse(uses, _)
            | Self::Writes(uses, _)
            | Self::State(uses, _) => uses,
            Self::Times(at, _) => std::slice::from_ref(at),
            Self::Unmasked => &[ChunkUse::Within],
            Self::Reset | Self::ResetAll | Self::Restart => &[ChunkUse::Carried],
            Self::FullChunks => &[ChunkUse::Within, ChunkUse::Carried],
        }
    }

    /// Whether it shows in a single chunk, too, where no state is before it, and is no mistake of single tokens there.
    pub fn is_within(&self) -> bool {
        use ChunkUse::{Keys, Values, Within};
        match self {
            Self::Decay([Keys], decay) => !matches!(decay, ChunkDecay::Back { column: 0, .. }),
            Self::Times(Keys, factor) => *factor < 0.0,
            Self::Times(Within, factor) => factor.abs() < f64::EPSILON,
            Self::Decay([Values | Within], _)
            | Self::Beta(_, ChunkBeta::Column)
            | Self::Writes(..)
            | Self::Inverse([_, _], _)
            | Self::State(_, ChunkState::After)
            | Self::Unmasked
            | Self::FullChunks => true,
            _ => false,
        }
    }

    /// Whether a step of the rule may have it alone where others could as well.
    pub fn is_of_one(&self) -> bool {
        let is_decay = matches!(self, Self::Decay(_, ChunkDecay::Nothing | ChunkDecay::Power(_)));
        is_decay || matches!(self, Self::Times(..) | Self::FullChunks)
    }

    /// Whether it is so common that it may have been made beside another mistake.
    pub fn is_common(&self) -> bool {
        match self {
            Self::Decay(_, decay) => matches!(decay, ChunkDecay::Nothing | ChunkDecay::Padded),
            Self::Inverse(uses, inverse) => {
                uses.len() > 1 && !matches!(inverse, ChunkInverse::Merged(..))
            }
            Self::State(..) | Self::Writes(..) => false,
            _ => true,
        }
    }

    /// How many tokens the parts have that it makes of a chunk.
    pub fn part(&self) -> Option<usize> {
        match self {
            Self::Decay(_, ChunkDecay::Parts(size))
            | Self::Inverse(_, ChunkInverse::Merged(size, _)) => Some(*size),
            _ => None,
        }
    }

    /// The same with parts of so many tokens, if it makes any.
    #[must_use]
    pub fn in_parts(self, size: usize) -> Self {
        match self {
            Self::Decay(uses, ChunkDecay::Parts(_)) => Self::Decay(uses, ChunkDecay::Parts(size)),
            Self::Inverse(uses, ChunkInverse::Merged(_, merge)) => {
                Self::Inverse(uses, ChunkInverse::Merged(size, merge))
            }
            other => other,
        }
    }

    /// Whether a token reads what comes behind it.
    pub(super) fn reads_later(&self) -> bool {
        use ChunkInverse::{EndsEarly, Transposed, Uncleared, Unmasked};
        matches!(
            self,
            Self::Unmasked
                | Self::FullChunks
                | Self::State(_, ChunkState::After)
                | Self::Decay(_, ChunkDecay::ToEnd)
                | Self::Inverse(
                    _,
                    Unmasked | Uncleared | Transposed | EndsEarly { is_token: true }
                )
        )
    }
}
