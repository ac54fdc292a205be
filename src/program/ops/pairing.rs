//! Which features are turned together.

choices! {
    /// Which features of a head rotary positions turn together ("`RoFormer`", Su et al., 2021, section 3.4).
    Pairing {
        /// i and i + r/2 of the r that are rotated, as in Llama and GPT-NeoX.
        #[default]
        Half = "half",
        /// 2i and 2i + 1, as in the paper and in GPT-J.
        Interleaved = "interleaved",
    }
}

impl Pairing {
    /// The pair of a feature, of so many pairs, and whether it is the first of its two.
    pub(super) fn pair(self, feature: usize, pairs: usize) -> (usize, bool) {
        match self {
            Self::Half => (feature % pairs, feature < pairs),
            Self::Interleaved => (feature / 2, feature.is_multiple_of(2)),
        }
    }

    /// The other feature of its pair.
    pub(super) fn partner(self, feature: usize, pairs: usize) -> usize {
        match self {
            Self::Half => (feature + pairs) % (2 * pairs),
            Self::Interleaved => feature ^ 1,
        }
    }
}
