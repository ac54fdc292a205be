//! What the notebooks set, by their names.

use super::choice::{Init, Input, Mask, Preset, Seed};
use super::settings::Settings;
use program::Fill;

impl Preset {
    /// What the preset sets; everything else has its default.
    pub fn settings(self) -> Settings {
        match self {
            Self::CausalWalkthrough => Settings::default(),
            Self::Simple => Settings {
                batch: Some(2),
                seq_len: Some(6),
                d_in: Some(3),
                d_model: Some(4),
                heads: Some(2),
                seed: Some(Seed(123)),
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
            crate::Config::resolve(&settings).expect("a preset is valid");
        }
    }
}
