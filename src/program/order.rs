//! The order in which steps are told: that of the notebooks, where a mask stands where it is used.

use super::graph::{Program, Step};
use super::role::Role;

impl<V: Clone> Program<V> {
    /// The same program in the order in which it is told: as it is run, but masks, biases and whatever else the settings
    /// make, or is drawn, before the first step that reads them.
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
