//! What the given steps of a run are.

/// What a given step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// X, the input.
    Input,
    /// The second input, of cross attention.
    Memory,
    /// A weight or bias of a projection, or the weight of a norm.
    Parameter,
    /// The frequencies of rotary positions.
    Frequencies,
    /// Keys or values of a cache.
    Past,
    /// The boolean mask, true = blocked.
    Mask,
    /// The float mask.
    AddedMask,
    /// The weights that dropout keeps.
    Keep,
}

impl Role {
    /// The role of the step of that name; nothing for a computed one.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "x" => Some(Self::Input),
            "memory" => Some(Self::Memory),
            "rope_freqs" => Some(Self::Frequencies),
            "k_past" | "v_past" => Some(Self::Past),
            "w_q_norm" | "w_k_norm" => Some(Self::Parameter),
            "mask" => Some(Self::Mask),
            "attn_bias" => Some(Self::AddedMask),
            "dropout_keep" => Some(Self::Keep),
            _ => matches!(name.split_once('_'), Some(("w" | "b", "q" | "k" | "v" | "o")))
                .then_some(Self::Parameter),
        }
    }

    /// Whether the step's values are booleans.
    #[must_use]
    pub fn is_boolean(self) -> bool {
        matches!(self, Self::Mask | Self::Keep)
    }
}
