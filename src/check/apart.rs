//! What may a backward pass have computed anew, other than the forward pass did, and what may one of two kernels have wrong?

use std::collections::HashSet;

use super::candidate::{Candidate, cost};
use super::catalogue::Situation;
use super::grammar::of_kernel;
use base::error::Result;
use base::lang;
use program::{Apart, Change, Edit, Kind, Name, Role, Step, Trace};

/// The mistakes of a run, each made for these wrong gradients alone: what else reads the same steps reads them as they
/// are.
pub fn apart(situation: &Situation, by: &[Name], all: &[Candidate]) -> Result<Vec<Candidate>> {
    let right = situation.right;
    let by: Vec<Name> = by.iter().copied().filter(|name| name.is_gradient()).collect();
    let Some(first) = by.first().copied() else { return Ok(Vec::new()) };
    let kernel = as_kernel(right)?;
    let own = of_kernel(&kernel, &situation.config.sizes);
    let reach = Reach::new(situation, &kernel, by);
    let mut made = Vec::new();
    let own = own.iter().map(|candidate| (candidate, false));
    for (candidate, is_tried) in own.chain(all.iter().map(|candidate| (candidate, true))) {
        for kept in reach.kept(candidate, is_tried) {
            let summary = format!("{first}: {}", reach.told(candidate, &kept));
            let edits = candidate.edits.clone();
            let apart = Apart { by: reach.by.clone(), edits, kept };
            made.push(Candidate {
                id: candidate.kind.name(),
                edits: vec![Edit::new(first, Change::Apart(apart))],
                summary,
                cost: candidate.cost.max(cost::NOTHING) + 1,
                ..candidate.clone()
            });
        }
    }
    Ok(made)
}

/// The run as kernels compute its backward pass.
fn as_kernel(right: &Trace) -> Result<Trace> {
    right.unrun().by_lse()?.run_with(|step, inputs| match right.step(step.name) {
        Some(own) if own.name != Name::Within => Ok(own.value.clone()),
        _ => step.op.eval(inputs),
    })
}

/// What leads to wrong gradients, and what else does.
struct Reach<'a> {
    by: Vec<Name>,
    program: &'a Trace,
    /// The steps whose edits may be made for them alone.
    leads: HashSet<Name>,
    /// The recorded gradients that are not among them.
    others: Vec<Name>,
}

impl<'a> Reach<'a> {
    fn new(situation: &Situation, program: &'a Trace, by: Vec<Name>) -> Self {
        let mut leading = vec![false; program.steps().len()];
        let mut read = HashSet::new();
        for at in by.iter().filter_map(|name| program.position(*name)) {
            let step = program.steps().get(at);
            read.extend(
                step.into_iter().flat_map(|step| program.read_by(step)).map(|read| read.name),
            );
            for (place, leads) in program.ancestors(at).into_iter().enumerate() {
                leading[place] |= leads;
            }
        }
        let scores = program.position(Name::ScoresRaw)..program.position(Name::HeadOutputs);
        let steps = program.steps().iter().enumerate().zip(leading).filter(|(_, leads)| *leads);
        let leads = steps.map(|((at, step), _)| (at, step.name)).filter(|(at, name)| {
            let is_setting = matches!(name.role(), Role::Setting | Role::Random);
            let is_of_scores = name.role() == Role::Computed && scores.contains(&Some(*at));
            let is_given = name.role() == Role::Computed && !program.computes(*name);
            // Kernels choose the keys and values of each head in every loop of their own.
            let is_repeated = matches!(name, Name::KRepeated | Name::VRepeated);
            is_repeated
                || is_setting
                || is_of_scores
                || is_backward(*name)
                || is_given
                || read.contains(name)
        });
        let leads = leads.map(|(_, name)| name).collect();
        let is_other = |name: &Name| {
            is_backward(*name) && situation.right.computes(*name) && !by.contains(name)
        };
        let others = situation.recorded.keys().copied().filter(is_other).collect();
        Self { by, program, leads, others }
    }

    /// What may stay as it is where a candidate is made for the wrong gradients alone, in each way that makes a difference
    /// to what was tried for all:
    /// kernels read the log-sum-exp, and delta is a sum over the output.
    fn kept(&self, candidate: &Candidate, is_tried: bool) -> Vec<Vec<Name>> {
        let sites = || candidate.edits.iter().map(|edit| edit.at);
        let is_apart = |edit: &Edit| matches!(edit.change, Change::Apart(_) | Change::Exchange);
        let fits = sites().all(|at| self.leads.contains(&at) && !self.by.contains(&at));
        // Nobody computes anew what is far-fetched the first time.
        let is_odd = match candidate.kind {
            Kind::Inserted => !sites().all(is_backward) && candidate.cost >= cost::RARE,
            _ => candidate.cost >= cost::ODD,
        };
        let fits = fits && !is_odd;
        if !fits || candidate.edits.iter().any(is_apart) {
            return Vec::new();
        }
        let behind = self.behind(candidate);
        let stays = |name: Name| {
            let is_site = sites().any(|at| at == name);
            (!is_site && self.leads.contains(&name) && behind.contains(&name)).then_some(name)
        };
        let is_made = sites().all(|at| at != Name::Weights);
        let lse = stays(Name::Lse).filter(|_| is_made);
        let ways =
            [(lse, stays(Name::Delta)), (lse, None), (None, stays(Name::Delta)), (None, None)];
        let is_masked = self.program.step(Name::MaskedScores).is_some();
        // Kernels mask nothing on the way back.
        let is_at_mask = is_masked && sites().any(|at| at == Name::MaskedScores.gradient());
        let is_plain = is_tried
            && !is_at_mask
            && sites().all(is_backward)
            && self.others(&behind, &[]).next().is_none();
        let mut all: Vec<Vec<Name>> = Vec::new();
        for kept in ways.map(|(lse, delta)| lse.into_iter().chain(delta).collect::<Vec<Name>>()) {
            let is_known = all.contains(&kept) || is_plain && kept.is_empty();
            if !is_known {
                all.push(kept);
            }
        }
        all
    }

    /// The steps that a candidate edits or changes.
    fn behind(&self, candidate: &Candidate) -> HashSet<Name> {
        let is_edited = |name: Name| candidate.edits.iter().any(|edit| edit.at == name);
        let behind = self.program.descendants(|step| is_edited(step.name));
        let behind = behind.into_iter().zip(self.program.steps());
        let is_it = |(is_behind, step): &(bool, &Step)| *is_behind || is_edited(step.name);
        behind.filter(is_it).map(|(_, step)| step.name).collect()
    }

    /// The recorded gradients, neither among the wrong ones nor among those that stay, that stand behind a candidate.
    fn others<'s>(
        &'s self,
        behind: &'s HashSet<Name>,
        kept: &'s [Name],
    ) -> impl Iterator<Item = &'s Name> {
        self.others.iter().filter(|name| behind.contains(name) && !kept.contains(name))
    }

    /// What the faulty code does.
    fn told(&self, candidate: &Candidate, kept: &[Name]) -> String {
        let behind = self.behind(candidate);
        let is_anew = behind.contains(&Name::Weights);
        let summary = &candidate.summary;
        let summary = if is_anew && self.others(&behind, kept).next().is_none() {
            tr!("in the backward pass alone, {summary}", summary)
        } else {
            let names: Vec<&str> = self.by.iter().map(|name| name.as_str()).collect();
            tr!("for {names} alone, {summary}", names = lang::list(&names), summary)
        };
        let is_edited = |name: Name| candidate.edits.iter().any(|edit| edit.at == name);
        match () {
            () if !is_anew || is_edited(Name::Weights) || is_edited(Name::Lse) => summary,
            () if kept.contains(&Name::Lse) => tr!("{summary} (P = exp(s − lse))", summary),
            () => tr!("{summary} (P = softmax(s))", summary),
        }
    }
}

/// Whether a step is of the backward pass.
fn is_backward(name: Name) -> bool {
    matches!(name, Name::Gradient(_) | Name::Delta)
}
