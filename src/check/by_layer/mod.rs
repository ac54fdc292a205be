//! Which layer of a whole model goes wrong first? Two recordings, part by part, and the first that errs by itself.

mod align;
mod another_input;
mod attention;
mod clues;
mod computed;
mod cut;
mod decoding;
mod embeddings;
mod entries;
mod exact;
mod experts;
mod facts;
mod false_matches;
mod first;
mod found;
mod join;
mod json;
mod left_over;
mod measure;
mod mixture;
mod mixtures;
mod other_layers;
mod other_parameters;
mod parameters;
mod part;
mod passes;
mod positions;
mod ranks;
mod rows;
mod sides;
mod slips;
mod slots;
mod sums;
mod tokens_first;
mod verdict;
mod within;

use std::collections::HashMap;
use std::path::Path;

use super::report::Report;
use super::step_report::Status;
use super::thresholds::{ALLOWED, USUAL};
use super::tolerance::{Tolerance, Tolerances};
use base::error::{Result, shown};
use exact::Exact;
use foreign::{ModelPart, Node};
use measure::Measure;
use mixtures::usually_off;
use program::{Kind, Name};
use sides::Sides;

pub use found::{ByLayer, How, Line, Named, Open};
pub use left_over::LeftOver;
pub use ranks::{Split, Unshard};

/// Compares two recordings of a whole model, and names the mistake in the first part that is wrong by itself.
///
/// A part whose inputs agree within the tolerances of its types has its whole error by itself. Where they differ, norms, sums
/// and what else is a plain part with its parameters in the recording are computed again from the port's own inputs. Of others
/// it is inferred: a part is taken as wrong where its error is [`ALLOWED`] times what parts of its kind usually make of theirs.
///
/// A side may be of several ranks; `ranks` says what they split, where that is not to be guessed.
///
/// # Errors
/// If a recording cannot be read, or the two have no part in common.
pub fn by_layer(
    left: &Path,
    right: &Path,
    ranks: Option<Unshard>,
    tolerances: &Tolerances,
) -> Result<ByLayer> {
    let mut sides = Sides::open(left, right, ranks)?;
    false_matches::by_numbers(&mut sides)?;
    false_matches::within_layers(&mut sides)?;
    false_matches::left_over(&mut sides)?;
    let of = |at| {
        let Some(found) = sides.measured(at)? else { return Ok(None) };
        let name = sides.nodes().get(at).map_or("", |node| node.name.as_str());
        let stated = tolerances.of(name, Tolerance { rtol: found.tolerance, atol: 0.0 });
        Ok(Some(Measure { tolerance: stated.rtol + stated.atol, ..found }))
    };
    let mut measured = (0..sides.nodes().len()).map(of).collect::<Result<Vec<_>>>()?;
    for at in false_matches::false_ones(&sides, &measured) {
        (measured[at], sides.beside[at]) = (None, vec![None; sides.right.nodes.len()]);
    }
    let left_over = LeftOver::of(&sides, &measured);
    let mut judge = Judge { exact: Exact::new(&sides, tolerances)?, sides: &sides, measured };
    let growth = judge.growth()?;
    let mut lines: Vec<Line> = Vec::new();
    let (mut first, mut named, mut undone) = (None, None, None);
    for at in 0..sides.nodes().len() {
        let (mut line, mut told) = (judge.line(at, &growth)?, None);
        if judge.may_be_checked(at, &line) {
            (line, told) = judge.checked(at, line, tolerances)?;
        }
        if line.is_wrong && judge.is_undone(at) {
            undone.get_or_insert_with(|| line.name.clone());
            line.is_wrong = false;
        }
        if line.is_wrong && first.is_none() {
            let found = judge.measured[at];
            let before = found.map(|found| first::before_it(&sides, &mut judge.exact, (at, found)));
            if let Some((term, off, told)) = before.transpose()?.flatten()
                && let Some(own) = lines.get_mut(term)
            {
                // What each rank has of it is wrong, and the sum of these is not.
                *own = Line { error: Some(off), own: Some(off), is_wrong: true, ..own.clone() };
                (first, named, line.is_wrong) = (Some(term), Some(told), false);
            } else {
                let place = (at, &line, told);
                named = first::named(&sides, &mut judge.exact, place, found, tolerances)?;
                first = Some(at);
            }
        }
        lines.push(line);
    }
    let other_start = judge.other_start();
    let other_names = (0..sides.nodes().len()).filter_map(|at| {
        let [own, other] = false_matches::other_names(&sides, at)?.map(str::to_owned);
        judge.measured[at].map(|_| (own, other))
    });
    let stages = || [&sides.left, &sides.right].into_iter().find_map(|side| side.ranks.odd.clone());
    Ok(ByLayer {
        left: left.display().to_string(),
        right: right.display().to_string(),
        first,
        named,
        matches: other_names.collect(),
        left_over,
        ranks: [&sides.left, &sides.right]
            .into_iter()
            .flat_map(|side| side.ranks.told.clone())
            .collect(),
        undone,
        aligned: sides.aligned_in_words(),
        warning: sides.warning().or(other_start).or_else(stages),
        lines,
    })
}

/// Whether a check found all the same, with what a part gives in the end among it.
fn covers(report: &Report) -> bool {
    let last = [Name::Output, Name::Concat].map(Name::as_str);
    report.is_same() && report.steps.iter().any(|step| last.contains(&step.name.as_str()))
}

/// Whether a check found that what a part gives in the end differs.
fn differs(report: &Report) -> bool {
    let last = [Name::Output, Name::Concat].map(Name::as_str);
    let mut steps = report.steps.iter();
    steps.any(|step| {
        last.contains(&step.name.as_str())
            && [Status::Differs, Status::Inherited].contains(&step.status)
    })
}

/// Whether a check found a single step that was computed in fewer bits than the rest.
fn has_lossy_step(report: &Report) -> bool {
    let findings = report.diagnosis.iter().flat_map(|found| &found.findings);
    findings.into_iter().any(|found| found.kind == Some(Kind::Precision))
}

/// Judges the parts, one after the other.
struct Judge<'a> {
    sides: &'a Sides,
    exact: Exact<'a>,
    measured: Vec<Option<Measure>>,
}

/// How much parts of a kind usually make of the error of their inputs.
type Growth = HashMap<(ModelPart, bool), f64>;

/// An error that is so many times smaller behind a part has no effect.
const FAR: f64 = 1000.0;

/// Rounding in 16 bits adds less than so much of the size of a row to what an attention gives, by its own.
const OF_ROUNDING: f64 = 0.5;

/// Fewer parts of a kind say nothing of what is usual.
const LEAST_PARTS: usize = 3;

impl Judge<'_> {
    /// The nodes that one follows from: those that the recording says, or what it is the sum of; else all of its layer
    /// that are before it.
    fn reads(&mut self, at: usize) -> Result<(Vec<usize>, bool)> {
        let Some(node) = self.sides.nodes().get(at) else { return Ok((Vec::new(), false)) };
        if node.part == ModelPart::Embedding {
            return Ok((Vec::new(), self.sides.alignment.has_tokens()));
        }
        let reads = if self.exact.is_sum(at)? { self.exact.terms(at)? } else { node.reads.clone() };
        let is_measured = |at: &usize| self.measured.get(*at).is_some_and(Option::is_some);
        if !reads.is_empty() && reads.iter().all(is_measured) {
            return Ok((reads, true));
        }
        let before = self.sides.nodes().get(..at).unwrap_or_default();
        let start = before.iter().rposition(|node| node.part == ModelPart::Layer).unwrap_or(0);
        let of_layer: Vec<usize> = (start..at).filter(is_measured).collect();
        // Of a layer in which nothing before it was recorded, it follows from the layer before.
        Ok((if of_layer.is_empty() { self.of_layer_before(at) } else { of_layer }, false))
    }

    /// The measured nodes of the last layer before a node that has any.
    fn of_layer_before(&self, at: usize) -> Vec<usize> {
        let layer = |at: usize| self.sides.nodes().get(at).and_then(|node| node.layer);
        let measured = (0..at).filter(|at| self.measured.get(*at).is_some_and(Option::is_some));
        let measured: Vec<usize> = measured.collect();
        let last = measured.last().map(|last| layer(*last));
        measured.into_iter().filter(|at| Some(layer(*at)) == last).collect()
    }

    fn inherited(&self, reads: &[usize]) -> f64 {
        let errors = reads.iter().filter_map(|at| self.measured.get(*at)?.map(|found| found.error));
        errors.fold(0.0, f64::max)
    }

    /// The middle of what parts of each kind make of the error of their inputs, where there are enough of them.
    fn growth(&mut self) -> Result<Growth> {
        let mut all: HashMap<(ModelPart, bool), Vec<f64>> = HashMap::new();
        for (at, node) in self.sides.nodes().iter().enumerate() {
            let (reads, _) = self.reads(at)?;
            let inherited = self.inherited(&reads);
            if let Some(found) = self.measured[at].filter(|_| inherited > 0.0) {
                all.entry((node.part, node.is_input)).or_default().push(found.error / inherited);
            }
        }
        let middle = |mut all: Vec<f64>| {
            let at = (all.len() - 1) / 2;
            (all.len() >= LEAST_PARTS).then(|| *all.select_nth_unstable_by(at, f64::total_cmp).1)
        };
        let all = all.into_iter().filter_map(|(kind, all)| Some((kind, middle(all)?.max(1.0))));
        Ok(all.collect())
    }

    fn line(&mut self, at: usize, growth: &Growth) -> Result<Line> {
        let (reads, are_known) = self.reads(at)?;
        let Node { name, path, part, layer, is_input, .. } = self.sides.nodes()[at].clone();
        let tolerance = self.measured[at].map_or(0.0, |found| found.tolerance);
        let line = Line {
            name,
            path,
            part,
            layer,
            error: None,
            inherited: None,
            own: None,
            how: How::EqualInputs,
            tolerance,
            is_wrong: false,
            open: None,
        };
        let Some(found) = self.measured[at] else { return Ok(line) };
        let inherited = self.inherited(&reads);
        let line = Line { error: Some(found.error), inherited: Some(inherited), ..line };
        // What the recording begins with brings its error along.
        let is_start = is_input && reads.is_empty();
        let line = if is_start { Line { inherited: Some(found.error), ..line } } else { line };
        if found.error == 0.0 || is_start {
            return Ok(Line { own: Some(0.0), ..line });
        }
        let are_equal = are_known && inherited <= tolerance;
        // Norms and sums cost little; what they add may hide in the tolerance of their type.
        let is_exact = part == ModelPart::Norm || !(are_equal && found.agrees());
        if let Some(exact) =
            is_exact.then(|| self.exact.own(at, found, &reads)).transpose()?.flatten()
        {
            // What is right was made of what it should be, whatever was taken as its terms.
            let is_right = part == ModelPart::Layer
                || inherited > tolerance * FAR
                || exact.error > FAR * found.error.max(inherited);
            if !exact.agrees && is_right && found.agrees() {
                return Ok(Line { own: Some(found.error), how: How::Inferred, ..line });
            }
            return Ok(Line {
                own: Some(exact.error),
                how: How::Recomputed,
                is_wrong: !exact.agrees,
                ..line
            });
        }
        let usual = growth.get(&(part, is_input)).copied();
        let share = usual.unwrap_or(1.0) * inherited;
        let allowed = tolerance + ALLOWED * share;
        // Where all agrees that was recorded before it, nothing needs to be known of what is usual.
        let is_told = are_equal || usual.is_some() || inherited <= tolerance;
        let is_off = found.error > allowed;
        let chooses = !found.agrees() && self.sides.left.chooses(&line.path);
        // Where a mixture can be computed again, most rows show whether it is right.
        if chooses
            && let Some(own) = usually_off(self.sides, at, found)?
            && own > USUAL * tolerance
        {
            return Ok(Line { own: Some(own), how: How::Recomputed, is_wrong: true, ..line });
        }
        // Rounding may choose other experts in some rows, and in few of them.
        let may_choose = inherited > 0.0 && found.usual <= allowed && chooses;
        let open = match is_off {
            true if may_choose => Some(Open::Experts),
            true if !is_told => Some(Open::Unknown),
            _ => None,
        };
        let line = Line { is_wrong: is_off && open.is_none(), open, ..line };
        if are_equal {
            return Ok(Line { own: Some(found.error), ..line });
        }
        Ok(Line { own: Some((found.error - share).max(0.0)), how: How::Inferred, ..line })
    }

    /// Whether a check of a part can tell more of it than how errors grow: it is an attention that adds more than rounding.
    fn may_be_checked(&self, at: usize, line: &Line) -> bool {
        let is_off = line.own.is_some_and(|own| own > line.tolerance);
        let is_attention =
            self.sides.nodes().get(at).is_some_and(|node| node.part == ModelPart::Attention);
        is_attention && is_off && line.how != How::Recomputed
    }

    /// The line of an attention as a check of the port's record of it has it, with the port's own inputs: wrong where that
    /// names a mistake, and right where it finds all the same. Rounding of a sharp softmax may be larger than its type's. With
    /// what that check says.
    fn checked(
        &mut self,
        at: usize,
        line: Line,
        tolerances: &Tolerances,
    ) -> Result<(Line, Option<Named>)> {
        let Some(found) = self.measured[at] else { return Ok((line, None)) };
        let told = first::of_attention(self.sides, &self.exact, (at, found), tolerances)?;
        let Some(told) = told else { return Ok((line, None)) };
        if told.names_a_mistake() {
            let line = Line { how: How::Recomputed, is_wrong: true, open: None, ..line };
            return Ok((line, Some(told)));
        }
        // What was computed again from the port's own inputs inherits nothing, and no rounding is as large as a row: a single
        // step in few bits may still do so much.
        let is_much = line.own.is_some_and(|own| own > OF_ROUNDING);
        let is_other =
            is_much && told.report.as_ref().is_some_and(|own| differs(own) || has_lossy_step(own));
        let is_right = told.report.as_ref().is_some_and(covers) && !is_other;
        let how = if is_other { How::Recomputed } else { line.how };
        let line = Line { is_wrong: (line.is_wrong || is_other) && !is_right, how, ..line };
        Ok((line, Some(told)))
    }

    /// That the two recordings begin with other numbers: what went into the first part is off by more than rounding adds up
    /// to before it.
    fn other_start(&mut self) -> Option<String> {
        let (at, node) = self.sides.nodes().iter().enumerate().next()?;
        let found = self.measured.get(at).copied().flatten().filter(|_| node.is_input)?;
        (found.error > ALLOWED * found.tolerance).then(|| {
            tr!(
                "the two were not called with the same inputs: what the recordings begin with differs ({name})",
                name = shown(&node.name)
            )
        })
    }
}
