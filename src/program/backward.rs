//! The gradients of a program: more steps of a longer one.

use super::adjoint::{Adjoint, Operand};
use super::axis::Axes;
use super::graph::{Program, Step};
use super::name::Name;
use super::op::{Op, Total, of_any};
use super::ops::{Collect, Gradient, Heads};
use super::role::Role;
use base::error::{Error, Result};
use base::lang;

impl Program {
    /// The program, and behind it the gradients of a loss with respect to what it is given, and to all that lies between:
    /// reverse-mode differentiation. The gradient of the step `of` is given. Of what is given those that are `wanted` have a
    /// gradient, or all that can have one where none is named.
    ///
    /// # Errors
    /// If there is no such step, or an operation on the way is not differentiated.
    pub fn backward(&self, of: Name, wanted: &[Name]) -> Result<Self> {
        let end = self.position(of).ok_or_else(|| self.no_step(of.as_str()))?;
        let known = |name: &&Name| self.position(**name).is_none();
        if let Some(missing) = wanted.iter().find(known) {
            return Err(self.no_step(missing.as_str()));
        }
        let mut pass = Pass {
            forward: self,
            program: self.clone(),
            has_gradient: self.have_gradients(end, wanted),
            gradients: vec![Vec::new(); self.steps().len()],
        };
        if pass.has_gradient.get(end) != Some(&true) {
            let what = tr!("depends on nothing that has a gradient");
            return Err(Error::tensor(of, what, "give inputs or parameters that it depends on"));
        }
        for (at, step) in self.steps().iter().enumerate().take(end + 1).rev() {
            if pass.has_gradient.get(at) == Some(&true) {
                let own = if at == end {
                    Some(pass.program.given(of.gradient(), step.axes.clone()))
                } else {
                    pass.total(at, step)?
                };
                own.map_or(Ok(()), |own| pass.hand_back(at, step, own))?;
            }
        }
        Ok(pass.program)
    }

    /// The steps on the way to `end` from what has a gradient.
    fn have_gradients(&self, end: usize, wanted: &[Name]) -> Vec<bool> {
        let leads = self.ancestors(end);
        let mut have: Vec<bool> = Vec::with_capacity(leads.len());
        for (at, step) in self.steps().iter().enumerate() {
            let is_wanted =
                if wanted.is_empty() { can_have(step) } else { wanted.contains(&step.name) };
            let follows = step.inputs.iter().any(|input| have.get(*input) == Some(&true));
            have.push((at == end || leads.get(at) == Some(&true)) && (is_wanted || follows));
        }
        have
    }
}

/// Whether a step that is given has a gradient: numbers that are learned, computed or biases, not masks and frequencies.
fn can_have(step: &Step<()>) -> bool {
    let row = step.name.row();
    let is_bias = row.role == Role::Setting && row.is_of_scores();
    let is_own = matches!(row.role, Role::Input | Role::Parameter | Role::Cache | Role::Computed);
    step.op == Op::Given && !row.is_boolean && (is_own || is_bias)
}

/// A backward pass that is being laid out.
struct Pass<'a> {
    forward: &'a Program,
    program: Program,
    has_gradient: Vec<bool>,
    /// What the readers of each step give back to it so far: an operation, and what that reads.
    gradients: Vec<Vec<(Op, Vec<usize>)>>,
}

impl Pass<'_> {
    /// Adds the gradient of a step: the sum of what its readers give back. Nothing where they give nothing.
    fn total(&mut self, at: usize, step: &Step<()>) -> Result<Option<usize>> {
        // What is handed back last belongs to the reader that comes first.
        let mut parts = self.gradients.get_mut(at).map(std::mem::take).unwrap_or_default();
        parts.reverse();
        // Of several steps of one name the last is meant.
        let is_meant = self.forward.position(step.name) == Some(at);
        let name = if is_meant { step.name.gradient() } else { Name::Within };
        let (op, inputs) = match <[_; 1]>::try_from(parts) {
            Ok([only]) => only,
            Err(parts) if parts.is_empty() => return Ok(None),
            Err(parts) => {
                let inputs = parts.iter().flat_map(|(_, inputs)| inputs.clone()).collect();
                let parts = parts.into_iter().map(|(op, inputs)| (op, inputs.len())).collect();
                (Total(parts).into(), inputs)
            }
        };
        self.program.then(name, op, &inputs).map(Some)
    }

    /// Says of each input of a step what it gets of the step's gradient, which stands at `own`.
    fn hand_back(&mut self, at: usize, step: &Step<()>, own: usize) -> Result<()> {
        let read: Vec<&Axes> = self.forward.read_by(step).iter().map(|read| &read.axes).collect();
        let mut delta = None;
        for (slot, input) in step.inputs.iter().enumerate() {
            if self.has_gradient.get(*input) != Some(&true) {
                continue;
            }
            let (op, operands) = match step.op.operation().adjoint(slot, &read, &step.axes) {
                Adjoint::Nothing => continue,
                Adjoint::Same => (Heads::HandOn.into(), vec![Operand::Gradient]),
                Adjoint::Of(operation, operands) => {
                    (of_any(operation).ok_or_else(|| underived(step))?, operands)
                }
                Adjoint::Unknown => return Err(underived(step)),
            };
            if operands.contains(&Operand::Delta) && delta.is_none() {
                let sum = Gradient::Collect(Collect::over_last(&step.axes));
                delta = Some(self.program.then(Name::Delta, sum, &[own, at])?);
            }
            let place = |operand: &Operand| match operand {
                Operand::Gradient => Some(own),
                Operand::Value => Some(at),
                Operand::Delta => delta,
                Operand::Input(slot) => step.inputs.get(*slot).copied(),
            };
            let inputs: Vec<usize> = operands.iter().filter_map(place).collect();
            if let Some(gradients) = self.gradients.get_mut(*input) {
                gradients.push((op, inputs));
            }
        }
        Ok(())
    }
}

fn underived(step: &Step<()>) -> Error {
    let what = tr!("has an operation whose gradient is not known here");
    Error::tensor(step.name, what, lang::text("leave the backward pass out, or that step"))
}
