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
