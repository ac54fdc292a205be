//! What does a file say of a setting, beside what is stated?

use candle_core::{DType, Tensor};

use config::{Setting, Settings};
use file::Entry;
use program::Name;

/// How far a number is off that was rounded to a tensor's type.
pub fn precision(tensor: &Tensor) -> f64 {
    match tensor.dtype() {
        DType::F64 => 1e-9,
        DType::F16 => 1e-3,
        DType::BF16 => 1e-2,
        _ => 1e-6,
    }
}

/// What a file says of a setting beside what is stated.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The setting that says the same.
    pub key: &'static str,
    /// The first step that another value makes another.
    pub step: Name,
    /// The tensor that says it; empty where it is said by what the file lacks.
    pub tensor: String,
    /// What it says, as the setting's text; empty for none.
    pub text: String,
    /// What it may say as well.
    pub or: Option<String>,
    /// How far a number is off that was rounded to the tensor's type.
    pub precision: f64,
}

impl Evidence {
    /// What a tensor of a file says.
    pub fn of(key: &'static str, step: Name, entry: &Entry, text: String) -> Self {
        let precision = precision(&entry.tensor);
        Self { key, step, tensor: entry.name.clone(), text, or: None, precision }
    }

    /// What the tensors of a file say of a setting by their shapes, or by being there; nothing by `None`.
    pub fn of_tensor(key: &'static str, tensor: Name, text: Option<String>) -> Self {
        let is_there = text.is_some();
        let name = if is_there { tensor.to_string() } else { String::new() };
        let text = text.unwrap_or_default();
        Self { key, step: tensor, tensor: name, text, or: None, precision: 0.0 }
    }

    /// What the recorded heads say of their number, or of what one has.
    pub fn of_heads(key: &'static str, number: usize, tensor: &str) -> Self {
        let (step, text) = (Name::QHeads, number.to_string());
        Self { key, step, tensor: tensor.to_owned(), text, or: None, precision: 0.0 }
    }

    /// The settings with what was recorded in place of what was stated; nothing where that is none.
    pub fn applied(&self, settings: &Settings) -> Option<Settings> {
        let others: &[&str] = match self.key {
            "positions" => &["rope_offset"],
            "rope_offset" => &["positions"],
            "lengths" => &["key_mask"],
            // The shapes say these then.
            "heads" => &["head_dim", "kv_heads"],
            "head_dim" => &["heads"],
            "window" => &["chunk"],
            "chunk" => &["window"],
            _ => &[],
        };
        let mut settings = settings.clone();
        for key in others.iter().chain([&self.key]) {
            if let Some(setting) = Setting::named(key) {
                setting.clear(&mut settings);
                setting.bring_back(&mut settings);
            }
        }
        if let Some(setting) = Setting::named(self.key).filter(|_| !self.text.is_empty()) {
            setting.set(&mut settings, &self.text).ok()?;
        }
        Some(settings)
    }
}
