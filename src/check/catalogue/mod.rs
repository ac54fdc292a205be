//! Which mistakes do people really ship in attention code? Each is an edit of the program, with its words.
//!
//! All of them keep every shape valid, so nothing but the numbers tells.

mod backward;
mod delta;
mod delta_decay;
mod delta_states;
mod few_bits;
mod gradients;
mod heads;
mod kernel;
mod mask;
mod projection;
mod rope;
mod scale;
mod scores;
mod softmax;

use std::collections::HashMap;

use candle_core::Tensor;

use super::candidate::{Candidate, Edits, cost};
use super::grammar::grammar;
use base::error::{Error, Result, near_miss};
use base::lang;
use config::Config;
use program::{
    Change, ChunkDecay, ChunkInverse, ChunkMerge, ChunkSlip, Delta, DeltaForm, Edit, Kind, Name,
    Op, Rotary, Trace,
};

/// A known mistake.
#[derive(Debug)]
pub struct Mistake {
    /// The name in reports.
    pub id: &'static str,
    /// The kind of edit that it is.
    pub kind: Kind,
    /// Why nothing fails.
    pub silent: &'static str,
    /// The ways in which it is made.
    pub ways: &'static [Way],
    /// Public threads in which people met it: `owner/repo#number`.
    pub seen: &'static [&'static str],
}

/// A way in which a mistake is made.
#[derive(Debug)]
pub struct Way {
    /// What the faulty code does.
    pub summary: &'static str,
    /// The faulty line, in PyTorch.
    pub wrong: &'static str,
    /// The line as it should be.
    pub right: &'static str,
    edits: fn(&Situation) -> Result<Vec<Edits>>,
}

/// A run in which a mistake may have been made.
pub struct Situation<'a> {
    /// Its setting.
    pub config: &'a Config,
    /// The run without a mistake.
    pub right: &'a Trace,
    /// What was recorded of it.
    pub recorded: &'a HashMap<Name, Tensor>,
}

impl Way {
    /// The edits that make the mistake in this run: none where it makes no difference, several where it has variants.
    ///
    /// # Errors
    /// If candle fails.
    pub fn edits(&self, situation: &Situation) -> Result<Vec<Edits>> {
        (self.edits)(situation)
    }
}

impl Situation<'_> {
    /// A step of the run.
    fn op(&self, name: Name) -> Option<&Op> {
        self.right.step(name).map(|step| &step.op)
    }

    fn has(&self, name: Name) -> bool {
        self.right.step(name).is_some()
    }

    /// The value of a step as it was recorded, or else as it should be.
    fn value(&self, name: Name) -> Option<&Tensor> {
        self.recorded.get(&name).or_else(|| self.right.step(name).map(|step| &step.value))
    }

    /// The names of the steps that a step reads.
    fn inputs(&self, name: Name) -> Vec<Name> {
        let step = self.right.step(name);
        let read = step.map(|step| self.right.read_by(step)).unwrap_or_default();
        read.into_iter().map(|step| step.name).collect()
    }

    /// The shape of a step's value.
    fn shape(&self, name: Name) -> Vec<usize> {
        self.right.step(name).map(|step| step.axes.shape()).unwrap_or_default()
    }
}

/// Edits without variants.
#[allow(clippy::unnecessary_wraps, reason = "it ends what makes a mistake's edits")]
fn one(edits: impl Into<Edits>) -> Result<Vec<Edits>> {
    Ok(vec![edits.into()])
}

/// Nothing, as the mistake cannot be made in this run.
#[allow(clippy::unnecessary_wraps, reason = "it ends what makes a mistake's edits")]
fn none() -> Result<Vec<Edits>> {
    Ok(Vec::new())
}

fn replace(at: Name, op: impl Into<Op>) -> Edit {
    Edit::new(at, Change::Replace(op.into()))
}

fn omit(at: Name) -> Edit {
    Edit::new(at, Change::Omit)
}

/// The step is left out, if the run has it.
fn omitted(run: &Situation, at: Name) -> Result<Vec<Edits>> {
    if run.has(at) { one([omit(at)]) } else { none() }
}

fn after(at: Name, op: impl Into<Op>, beside: &[Name]) -> Edit {
    Edit::new(at, Change::After(op.into(), beside.to_vec()))
}

fn before(at: Name, slot: usize, op: impl Into<Op>, beside: &[Name]) -> Edit {
    Edit::new(at, Change::Before(slot, op.into(), beside.to_vec()))
}

fn read(at: Name, inputs: impl Into<Vec<Name>>) -> Edit {
    Edit::new(at, Change::Read(inputs.into()))
}

/// Every mistake that can be made in a run: those with a name first, then by cost.
pub fn candidates(situation: &Situation) -> Result<Vec<Candidate>> {
    let mut all = known(situation)?;
    let mut others = grammar(situation.right, &situation.config.sizes);
    // One that has a name is told by it.
    others.retain(|made| !all.iter().any(|known| known.edits == made.edits));
    all.extend(others);
    all.sort_by_key(|candidate| candidate.cost);
    Ok(all)
}

/// The mistakes with a name.
fn known(situation: &Situation) -> Result<Vec<Candidate>> {
    let mut all = Vec::new();
    for mistake in catalogue() {
        for way in mistake.ways {
            for edits in way.edits(situation)? {
                let summary = told(situation, lang::text(way.summary), &edits);
                let candidate = Candidate::new(mistake.kind, cost::KNOWN, edits, summary);
                all.push(Candidate { id: mistake.id, ..candidate });
            }
        }
    }
    Ok(all)
}

/// The size of the chunks that a mistake of the delta rule is made in, and the mistake.
fn in_chunks(edits: &Edits) -> Option<(usize, Option<ChunkSlip>)> {
    edits.iter().find_map(|edit| match edit.change.op()? {
        Op::Delta(Delta { form: DeltaForm::Chunks(size, slip), .. }) => Some((*size, *slip)),
        _ => None,
    })
}

/// The size of the chunks that a mistake of the delta rule is made in.
pub fn chunk_size(edits: &Edits) -> Option<usize> {
    in_chunks(edits).map(|(size, _)| size)
}

/// Whether another mistake is looked for beside this one. Chunks of every size and all that stands in their slots would make
/// more pairs than all else together.
pub fn may_be_one_of_two(edits: &Edits) -> bool {
    in_chunks(edits).is_none_or(|(size, slip)| {
        size > 2 && size.is_power_of_two() && slip.is_none_or(|slip| slip.is_common())
    })
}

/// What a mistake is, with the size of the chunks that it is made in, or the first position that it takes.
fn told(situation: &Situation, summary: &str, edits: &Edits) -> String {
    let first = edits.iter().find_map(|edit| match (edit.change.op()?, situation.op(edit.at)?) {
        (Op::Rotary(Rotary::Rotate(own)), Op::Rotary(Rotary::Rotate(meant))) => {
            Some((own.first, meant.first)).filter(|(own, meant)| own != meant)
        }
        _ => None,
    });
    match (in_chunks(edits), first) {
        (Some((size, slip)), _) => match (slip, slip.and_then(|slip| slip.part())) {
            (Some(ChunkSlip::Decay(_, ChunkDecay::Padded)), _) => tr!(
                "{summary} (chunks of {size} tokens, or of others that leave as many in the last)",
                summary,
                size
            ),
            // Larger chunks give the same where nothing is wrong but two blocks of these.
            (Some(ChunkSlip::Inverse(_, ChunkInverse::Merged(part, merge))), _)
                if merge != ChunkMerge::Nothing =>
            {
                tr!("{summary} (blocks of {part} tokens)", summary, part)
            }
            (_, Some(part)) => {
                tr!("{summary} (chunks of {size} tokens, parts of {part})", summary, size, part)
            }
            _ => tr!("{summary} (chunks of {size} tokens)", summary, size),
        },
        (None, Some((own, meant))) => tr!("{summary}: {own}, not {meant}", summary, own, meant),
        (None, None) => summary.to_owned(),
    }
}

/// Where a known mistake stands in the catalogue.
pub fn place_of(id: &str) -> Option<usize> {
    catalogue().iter().position(|mistake| mistake.id == id)
}

/// Every known mistake, the simplest first.
#[must_use]
pub fn catalogue() -> Vec<&'static Mistake> {
    let groups = [
        scale::ALL,
        mask::ALL,
        softmax::ALL,
        scores::ALL,
        rope::ALL,
        heads::ALL,
        projection::ALL,
        kernel::ALL,
        delta::ALL,
        delta_states::ALL,
        delta_decay::ALL,
        few_bits::ALL,
        gradients::ALL,
    ];
    groups.into_iter().flatten().collect()
}

/// The known mistake of that name.
///
/// # Errors
/// If there is none; a near miss is suggested.
pub fn find(id: &str) -> Result<&'static Mistake> {
    let all = catalogue();
    all.iter().find(|mistake| mistake.id == id).copied().ok_or_else(|| {
        let ids: Vec<&str> = all.iter().map(|mistake| mistake.id).collect();
        let shared = |part: &str| part.chars().zip(id.chars()).take_while(|(a, b)| a == b).count();
        let is_of = |own: &&str| own.split('-').any(|part| part == id || shared(part) > 3);
        let within: Vec<&str> = ids.iter().copied().filter(is_of).collect();
        let fix = match (near_miss(id, &ids), within.as_slice()) {
            (_, [_, _, ..]) if within.len() <= 9 => {
                tr!("did you mean {near}?", near = within.join(tr!(" or ")))
            }
            (Some(near), _) => tr!("did you mean {near}?", near),
            (None, [near]) => tr!("did you mean {near}?", near),
            _ => tr!("mha-trace bugs lists them").to_owned(),
        };
        Error::config(tr!("no known mistake is called {id}", id), fix)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_mistake_stands_once_and_is_documented() {
        let mut ids = HashSet::new();
        for mistake in catalogue() {
            assert!(ids.insert(mistake.id), "{} stands twice", mistake.id);
            assert!(!mistake.silent.is_empty() && !mistake.ways.is_empty(), "{}", mistake.id);
            for way in mistake.ways {
                let texts = [way.summary, way.wrong, way.right];
                assert!(texts.iter().all(|text| !text.is_empty()), "{}", mistake.id);
                assert_ne!(way.wrong, way.right, "{}", mistake.id);
            }
            let is_thread = |thread: &&str| thread.contains('/') && thread.contains('#');
            assert!(mistake.seen.iter().all(is_thread), "{}", mistake.id);
        }
    }
}
