//! The notebooks' settings by name.

use super::{Init, Input, Mask, Settings};
use program::Fill;

choices! {
    /// A notebook's whole setting, under its name.
    Preset {
        /// Causal attention over four tokens, seed 42: the default.
        #[default]
        CausalWalkthrough = "causal-walkthrough",
        /// Unmasked attention with biases, from 3 to 4 features, seed 123.
        Simple = "simple",
        /// Padding under −∞ with one item wholly padded: NaN rows. The notebook sets no seed.
        FormalPadding = "formal-padding",
        /// Padding under −∞ with a visible key in every item. The notebook sets no seed.
        FormalPaddingWeights = "formal-padding-weights",
    }
}

impl Preset {
    /// What the preset sets; everything else has its default.
    #[must_use]
    pub fn settings(self) -> Settings {
        match self {
            Self::CausalWalkthrough => Settings::default(),
            Self::Simple => Settings {
                batch: Some(2),
                seq_len: Some(6),
                d_in: Some(3),
                d_model: Some(4),
                heads: Some(2),
                seed: Some(super::Seed(123)),
                init: Some(Init::Linear),
                bias: Some(true),
                mask: Some(Mask::None),
                ..Settings::default()
            },
            Self::FormalPadding => padded(["01", "00", "10"]),
            Self::FormalPaddingWeights => padded(["11", "01", "10"]),
        }
    }
}

fn padded(key_mask: [&str; 3]) -> Settings {
    Settings {
        batch: Some(3),
        seq_len: Some(2),
        d_model: Some(128),
        heads: Some(8),
        input: Some(Input::Rand),
        init: Some(Init::Linear),
        bias: Some(true),
        mask: Some(Mask::None),
        key_mask: Some(key_mask.map(str::to_owned).to_vec()),
        mask_fill: Some(Fill(f64::NEG_INFINITY)),
        dropout: Some(0.1),
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_resolves() {
        for preset in Preset::ALL {
            let settings = Settings { preset: Some(*preset), ..Settings::default() };
            super::super::Config::resolve(&settings).expect("a preset is valid");
        }
    }
}
