//! What can be asked of a setting, and of all that are stated.

use serde_json::{Value, json};

use super::choice::{End, Feature};
use super::settings::{Recorded, Setting, Settings};
use program::Name;

impl Setting {
    /// Whether the setting is a switch.
    pub fn is_switch(&self) -> bool {
        self.value.is_empty()
    }

    /// The setting behind whose value this one may stand: the one that it says more of in the end. Switches have no value,
    /// those of lists end nowhere unless they are of a few words, and files have flags of their own for what is to be read of them.
    pub fn behind(&self) -> Option<&'static Self> {
        let next = |setting: &&'static Self| setting.of.and_then(Self::named);
        let first = self.of.and_then(Self::named);
        let last = std::iter::successors(first, next).last()?;
        let is_one = !last.is_switch() && (!last.is_list || !last.choices.is_empty());
        (is_one && !last.value.contains("FILE")).then_some(last)
    }

    /// The settings that may stand behind its value, each with its name there: `eps` of `qk_norm`.
    pub fn more(&'static self) -> impl Iterator<Item = (&'static Self, String)> {
        let has_more = Self::ALL.iter().any(|more| more.of == Some(self.key));
        let is_behind = |more: &Self| more.behind().is_some_and(|of| of.key == self.key);
        let more = Self::ALL.iter().filter(move |more| has_more && is_behind(more));
        more.map(|more| {
            let rest = more.key.strip_prefix(self.key).and_then(|rest| rest.strip_prefix('_'));
            (more, rest.unwrap_or(more.key).replace('_', "-"))
        })
    }

    /// A value, and what stands behind it: `rms,eps=1e-5` says `qk_norm` and `qk_norm_eps`.
    pub fn parts(&'static self, text: &str) -> Vec<(&'static Self, String)> {
        let mut parts: Vec<(&Self, String)> = Vec::new();
        for piece in text.split(',') {
            let (name, value) = piece.split_once('=').unwrap_or((piece, "true"));
            let name = name.trim().replace('_', "-");
            let has_name = |(more, short): &(&Self, String)| {
                (name == *short || name == more.key.replace('_', "-"))
                    && (more.is_switch() || piece.contains('='))
            };
            match (self.more().find(has_name), parts.last_mut()) {
                // The words of a list come one by one.
                (Some((more, _)), own) if own.is_some() || self.is_list => {
                    parts.push((more, value.to_owned()));
                }
                (_, Some((_, last))) => *last = format!("{last},{piece}"),
                (_, None) => parts.push((self, piece.to_owned())),
            }
        }
        parts
    }

    /// Sets it to what the text says.
    ///
    /// # Errors
    /// If the text is no value of it, with what would be.
    pub fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        (self.set)(settings, text)
    }

    /// Whether the settings state it.
    pub fn is_set(&self, settings: &Settings) -> bool {
        (self.is_set)(settings)
    }

    /// What the settings state of it, if it is a switch.
    pub fn switched(&self, settings: &Settings) -> Option<bool> {
        settings.to_json().get(self.key)?.as_bool()
    }

    /// Whether it is a feature that the settings leave out, and do not state all the same.
    pub fn is_left_out(&self, settings: &Settings) -> bool {
        let mut without = settings.without.iter().flatten();
        !self.is_set(settings) && without.any(|feature| feature.key() == self.key)
    }

    /// No longer leaves it out.
    pub fn bring_back(&self, settings: &mut Settings) {
        settings.without.iter_mut().for_each(|left| left.retain(|own| own.key() != self.key));
    }

    /// Takes it away with all that says more of it.
    pub fn take_away(&self, settings: &mut Settings) {
        let of = |setting: &Setting| setting.of.and_then(Setting::named);
        for setting in Setting::ALL {
            let about = [Some(setting), of(setting), of(setting).and_then(of)];
            if about.into_iter().flatten().any(|setting| setting.key == self.key) {
                setting.clear(settings);
            }
        }
    }

    /// Leaves it open.
    pub fn clear(&self, settings: &mut Settings) {
        (self.clear)(settings);
    }
}

impl Feature {
    /// The setting that brings it.
    pub fn key(self) -> String {
        self.name().replace('-', "_")
    }
}

impl Settings {
    /// These settings, and `base` wherever they are silent.
    ///
    /// `key_mask` and `lengths` state one thing in two ways: either replaces both of `base`'s. `without` takes away what
    /// `base` says of a feature.
    pub fn over(self, mut base: Self) -> Self {
        if self.key_mask.is_some() || self.lengths.is_some() {
            (base.key_mask, base.lengths) = (None, None);
        }
        for feature in self.without.iter().flatten() {
            base.drop_feature(*feature);
        }
        self.or(base)
    }

    /// Takes away what records do not have.
    pub(super) fn drop_unrecorded(&mut self) {
        let unrecorded = Setting::ALL.iter().filter(|setting| setting.record == Recorded::Never);
        unrecorded.for_each(|setting| (setting.clear)(self));
    }

    /// Takes away what is said of a feature.
    fn drop_feature(&mut self, feature: Feature) {
        if let Some(setting) = Setting::named(&feature.key()) {
            setting.take_away(self);
        }
    }

    /// The gradient that a backward pass starts from, if there is one.
    pub fn first_gradient(&self) -> Option<Name> {
        let end = self.end.unwrap_or(End::of(self.start.unwrap_or_default()));
        self.backward.unwrap_or_default().then(|| end.step().gradient())
    }

    /// The computed steps that a run is given: those that it starts at, forward and backward.
    pub fn given_steps(&self) -> Vec<Name> {
        let start = self.start.unwrap_or_default().given().iter().copied();
        start.chain(self.first_gradient()).collect()
    }

    /// Whether a file is stated that the tensor of that step comes from.
    pub fn name_file_of(&self, step: Name) -> bool {
        step.row().file.and_then(Setting::named).is_some_and(|file| file.is_set(self))
    }

    /// Whether something is stated that replaces what a recorded run has from the file of that setting.
    pub fn replace(&self, file: &str) -> bool {
        let replaces = |setting: &&Setting| setting.replaces.contains(&file);
        Setting::ALL.iter().filter(replaces).any(|setting| setting.is_set(self))
    }

    /// The settings as a config file states them, without those that are absent.
    pub fn to_json(&self) -> Value {
        let mut value = json!(self);
        if let Value::Object(keys) = &mut value {
            keys.retain(|_, value| !value.is_null());
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pairing, Preset, Seed};

    #[test]
    fn lengths_replace_a_key_mask_below_them() {
        let base = Preset::FormalPadding.settings();
        let flags = Settings { lengths: Some(vec![1, 2, 2]), ..Settings::default() };
        let both = flags.over(base);
        assert_eq!((both.key_mask, both.lengths), (None, Some(vec![1, 2, 2])));
    }

    #[test]
    fn what_is_silent_has_the_base_value() {
        let both =
            Settings { heads: Some(4), ..Settings::default() }.over(Preset::Simple.settings());
        assert_eq!((both.heads, both.d_in, both.seed), (Some(4), Some(3), Some(Seed(123))));
    }

    #[test]
    fn a_feature_goes_with_all_that_is_said_of_it() {
        let base = Settings {
            rope: Some(Pairing::Half),
            rope_freqs: Some("freqs.npy".into()),
            rope_attention_factor: Some(2.0),
            window: Some(3),
            ..Settings::default()
        };
        let without = Settings { without: Some(vec![Feature::Rope]), ..Settings::default() };
        let left = Settings { window: Some(3), ..without.clone() };
        assert_eq!(without.over(base), left);
    }

    #[test]
    fn what_is_said_more_of_a_value_stands_behind_it() {
        let parts = |key, text| {
            let setting = Setting::named(key).expect("a setting");
            let parts = setting.parts(text).into_iter();
            parts.map(|(setting, text)| format!("{}: {text}", setting.key)).collect::<Vec<_>>()
        };
        assert_eq!(
            parts("rope", "half,base=5e5,sections=1,2,1,at-end"),
            ["rope: half", "rope_base: 5e5", "rope_sections: 1,2,1", "rope_at_end: true"]
        );
        assert_eq!(
            parts("rope", "half,rope_freqs=f.npy,attention_factor=2"),
            ["rope: half", "rope_freqs: f.npy", "rope_attention_factor: 2"]
        );
        let scaling = "half,scaling={\"rope_type\": \"linear\", \"factor\": 4}";
        assert_eq!(
            parts("rope", scaling)[1],
            scaling.replacen("half,scaling=", "rope_scaling: ", 1)
        );
        assert_eq!(parts("segments", "3,2"), ["segments: 3,2"]);
        assert_eq!(parts("qk_norm", "eps=1"), ["qk_norm: eps=1"], "its own value comes first");
        assert_eq!(parts("weights", "a,prefix=b"), ["weights: a,prefix=b"], "of a file");
        assert_eq!(parts("qk_norm", "rms,of=1"), ["qk_norm: rms,of=1"], "of nothing known");
    }

    /// What a setting says more of, and whose file's values it replaces, are settings.
    #[test]
    fn settings_name_settings() {
        for setting in Setting::ALL {
            assert!(!setting.about.is_empty() && !setting.about.ends_with('.'), "{}", setting.key);
            for other in setting.of.iter().chain(setting.replaces) {
                assert!(Setting::named(other).is_some(), "{}: {other}", setting.key);
            }
        }
        for feature in Feature::ALL {
            assert!(Setting::named(&feature.name().replace('-', "_")).is_some(), "{feature}");
        }
    }
}
