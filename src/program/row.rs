//! What there is to know of a step by its name alone: a row of the table of steps.

use super::called::Called;
use super::role::{BlockedCells, Role, Size};

/// All that there is to know of a step by its name.
#[derive(Debug)]
pub struct Row {
    /// The name in files, tables and flags.
    pub name: &'static str,
    /// What it is, in a few words.
    pub title: &'static str,
    /// What it is to a run.
    pub role: Role,
    /// The lengths of its axes, outermost first. Masks and biases have the last of them, each whole or 1.
    pub sizes: &'static [Size],
    /// Whether its values are booleans.
    pub is_boolean: bool,
    /// What a mask's blocked cells are in it.
    pub blocked: BlockedCells,
    /// Whether it is shown only when it is asked for.
    pub is_detail: bool,
    /// Whether it stands for a part of another step: computed and explained, and not written to files.
    pub is_inner: bool,
    /// The setting that brings it, as advice; empty if every run has it.
    pub brought_by: &'static str,
    /// The setting that names the file which it can come from.
    pub file: Option<&'static str>,
    /// What people's code calls it.
    pub called: &'static [Called],
    /// What checkpoints call it behind the layer's prefix, if it is a parameter beside the four projections; `{}` stands
    /// for a head.
    pub stored: &'static [&'static str],
    /// What all its numbers are in a fresh model, if that draws none.
    pub fresh: Option<f64>,
}

impl Row {
    pub(super) const fn new(role: Role, sizes: &'static [Size]) -> Self {
        Self {
            name: "",
            title: "",
            role,
            sizes,
            is_boolean: false,
            blocked: BlockedCells::Unknown,
            is_detail: matches!(role, Role::Parameter | Role::Random),
            is_inner: false,
            brought_by: "",
            file: None,
            called: &[],
            stored: &[],
            fresh: None,
        }
    }

    pub(super) const fn computed(sizes: &'static [Size]) -> Self {
        Self::new(Role::Computed, sizes)
    }

    /// That of the step's gradient.
    pub(super) const fn gradient(self) -> Self {
        let is_of_no_number = self.is_boolean || matches!(self.role, Role::Random);
        Self {
            role: Role::Computed,
            is_boolean: false,
            blocked: BlockedCells::Unknown,
            is_detail: self.is_inner || is_of_no_number,
            is_inner: self.is_inner || is_of_no_number,
            brought_by: "`backward`",
            file: Some("d_output"),
            called: &[],
            stored: &[],
            fresh: None,
            ..self
        }
    }

    pub(super) const fn stored(self, names: &'static [&'static str], fresh: f64) -> Self {
        Self { stored: names, fresh: Some(fresh), ..self }
    }

    pub(super) const fn drawn(self, names: &'static [&'static str]) -> Self {
        Self { stored: names, ..self }
    }

    pub(super) const fn named(self, name: &'static str, title: &'static str) -> Self {
        Self { name, title, ..self }
    }

    pub(super) const fn boolean(self) -> Self {
        Self { is_boolean: true, ..self }
    }

    pub(super) const fn blocked(self) -> Self {
        Self { blocked: BlockedCells::Low, ..self }
    }

    pub(super) const fn weightless(self) -> Self {
        Self { blocked: BlockedCells::Weightless, ..self }
    }

    pub(super) const fn detail(self) -> Self {
        Self { is_detail: true, ..self }
    }

    pub(super) const fn inner(self) -> Self {
        Self { is_inner: true, is_detail: true, ..self }
    }

    pub(super) const fn by(self, setting: &'static str) -> Self {
        Self { brought_by: setting, ..self }
    }

    pub(super) const fn file(self, key: &'static str) -> Self {
        Self { file: Some(key), ..self }
    }

    pub(super) const fn called(self, called: &'static [Called]) -> Self {
        Self { called, ..self }
    }

    /// Whether its heads are those of the keys, which several query heads may share.
    pub fn has_key_heads(&self) -> bool {
        self.role == Role::Computed && self.sizes.contains(&Size::KeyHeads)
    }

    /// Whether its last axis holds the features of one head.
    pub fn is_of_heads(&self) -> bool {
        let of_heads =
            [Size::HeadDim, Size::KeyDim, Size::ValueDim, Size::ScoreDim, Size::WeightedDim];
        self.sizes.last().is_some_and(|last| of_heads.contains(last))
    }

    /// Whether it has a value for every query and key.
    pub fn is_of_scores(&self) -> bool {
        self.sizes.ends_with(&[Size::Queries, Size::Keys])
            || self.sizes.ends_with(&[Size::Queries, Size::AllKeys])
    }
}
