//! The notebooks' settings by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::choice::choices;
use super::{Fill, Init, Input, Mask, Settings};
use crate::error::near_miss;

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

impl FromStr for Preset {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names: Vec<_> = Self::ALL.iter().map(|preset| preset.name()).collect();
        let known = Self::ALL.iter().find(|preset| preset.name() == name);
        known.copied().ok_or_else(|| match near_miss(name, &names) {
            Some(near) => format!("there is no preset `{name}`; did you mean `{near}`?"),
            None => format!("there is no preset `{name}`; the presets are {}", names.join(", ")),
        })
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
            assert_eq!(preset.name().parse(), Ok(*preset));
        }
    }

    #[test]
    fn a_slip_gets_the_near_miss() {
        assert_eq!(
            "casual-walkthrough".parse::<Preset>(),
            Err("there is no preset `casual-walkthrough`; did you mean `causal-walkthrough`?".into())
        );
    }
}
