//! What can be asked of a setting, and of all that are stated.

use serde_json::{Value, json};

use super::{Feature, Setting, Settings};
use program::Name;

impl Setting {
    /// The setting of that key.
    #[must_use]
    pub fn named(key: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|setting| setting.key == key)
    }

    /// Whether the setting is a switch.
    #[must_use]
    pub fn is_switch(&self) -> bool {
        self.value.is_empty()
    }

    /// Sets it to what the text says.
    ///
    /// # Errors
    /// If the text is no value of it, with what would be.
    pub fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        (self.set)(settings, text)
    }

    /// Whether the settings state it.
    #[must_use]
    pub fn is_set(&self, settings: &Settings) -> bool {
        (self.is_set)(settings)
    }
}

impl Settings {
    /// Takes away what is said of a feature.
    pub(super) fn drop_feature(&mut self, feature: Feature) {
        let key = feature.name().replace('-', "_");
        let of = |setting: &Setting| setting.of.and_then(Setting::named);
        for setting in Setting::ALL {
            let about = [Some(setting), of(setting), of(setting).and_then(of)];
            if about.into_iter().flatten().any(|setting| setting.key == key) {
                (setting.clear)(self);
            }
        }
    }

    /// Whether a file is stated that the tensor of that step comes from.
    #[must_use]
    pub fn name_file_of(&self, step: Name) -> bool {
        step.row().file.and_then(Setting::named).is_some_and(|file| file.is_set(self))
    }

    /// Whether something is stated that replaces what a recorded run has from the file of that setting.
    #[must_use]
    pub fn replace(&self, file: &str) -> bool {
        let replaces = |setting: &&Setting| setting.replaces.contains(&file);
        Setting::ALL.iter().filter(replaces).any(|setting| setting.is_set(self))
    }

    /// The settings as a config file states them, without those that are absent.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut value = json!(self);
        if let Value::Object(keys) = &mut value {
            keys.retain(|_, value| !value.is_null());
        }
        value
    }
}
