//! The order in which steps are told: that of the notebooks, where a mask stands where it is used.

use super::graph::{Program, Step};
use super::role::Role;

impl<V: Clone> Program<V> {
    /// The same program in the order in which it is told: as it is run, but masks, biases and whatever else the settings
    /// make, or is drawn, before the first step that reads them.
    #[must_use]
    pub fn as_told(&self) -> Self {
        let mut order = Vec::with_capacity(self.steps().len());
        let mut waiting: Vec<usize> = Vec::new();
        for (at, step) in self.steps().iter().enumerate() {
            if is_made_before(step) {
                waiting.push(at);
                continue;
            }
            let read = self.ancestors(at);
            let is_read = |at: &usize| read.get(*at) == Some(&true);
            order.extend(waiting.iter().copied().filter(is_read));
            waiting.retain(|at| !is_read(at));
            order.push(at);
        }
        order.extend(waiting);
        self.in_order(&order)
    }
}

/// Whether a step can be made before those that read it are known.
fn is_made_before<V>(step: &Step<V>) -> bool {
    matches!(step.name.role(), Role::Setting | Role::Random)
}

#[cfg(test)]
mod tests {
    use crate::program::Name;
    use crate::{Run, Settings, Sources};

    #[test]
    fn a_mask_is_told_where_it_is_used() {
        let settings = serde_json::from_value(serde_json::json!({
            "lengths": [3], "dropout": 0.5, "rope": "half", "heads": 2, "d_model": 8
        }));
        let settings: Settings = settings.expect("settings");
        let run = Run::new(&settings, Sources::default()).expect("a run");
        let program = run.program();
        let told = program.as_told();
        let at = |name| told.position(name).expect("it is there");
        for (setting, reader) in [
            (Name::Mask, Name::MaskedScores),
            (Name::CausalMask, Name::Mask),
            (Name::RopeFreqs, Name::QRot),
        ] {
            assert!(at(setting) < at(reader), "{setting}");
        }
        assert!(at(Name::Scores) < at(Name::CausalMask));
        assert!(at(Name::Weights) < at(Name::DropoutKeep));
        assert_eq!(at(Name::RopeFreqs) + 1, at(Name::QRot));
        // Every step reads what it read.
        assert_eq!(told.steps().len(), program.steps().len());
        for step in told.steps() {
            let before = program.step(step.name).expect("it is there");
            assert_eq!(told.formula(step), program.formula(before));
            assert!(step.inputs.iter().all(|input| *input < at(step.name)), "{}", step.name);
        }
    }
}
