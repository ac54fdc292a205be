//! Which mistakes follow from a program? Every small edit that someone could make without a shape failing.
//!
//! Nothing here is a list of stories. Operations say which of their numbers can be wrong and what people write in their
//! place; the steps, their inputs and their axes give the rest.

mod added;
mod applied;
mod axes;
pub mod bits;
mod blocks;
mod caches;
mod cells;
mod delta;
mod fragments;
mod gradient_tiles;
mod gradients;
mod inputs;
pub mod kernels;
mod loads;
mod lost_splits;
mod mask_indices;
mod masks;
mod merges;
pub mod numbers;
mod packed;
mod padding;
mod page_rows;
mod page_tables;
pub mod pages;
mod part_keys;
mod part_masks;
mod parts;
mod pitches;
mod pointers;
mod read_off;
mod rings;
mod rounded_weights;
mod scale_places;
mod scales;
mod scores;
mod selected;
mod sequences;
mod steps;
mod stored;
mod strides;
mod tile_loops;
mod tile_orders;
mod tiles;
mod turns;
mod twins;
mod windows;

pub use part_keys::Keys;
pub use read_off::{counted, products, scores_and_values, with_keys};

use super::candidate::{Candidate, Edits};
use config::Sizes;
use program::{Change, Documents, Edit, Kind, Masking, Name, Op, Role, Step, Trace};

/// A run whose mistakes are being listed.
pub struct Grammar<'a> {
    right: &'a Trace,
    sizes: &'a Sizes,
    found: Vec<Candidate>,
}

/// Every edit of a run that keeps its shapes.
pub fn grammar(right: &Trace, sizes: &Sizes) -> Vec<Candidate> {
    let mut grammar = Grammar { right, sizes, found: Vec::new() };
    for step in right.steps() {
        match step.name.role() {
            Role::Computed if step.op == Op::Given => {}
            Role::Computed => grammar.computed(step),
            Role::Setting => grammar.setting(step),
            Role::Random => {
                grammar.inserted_setting(step);
                grammar.in_tiles(step);
            }
            Role::Input | Role::Parameter | Role::Cache => {}
        }
    }
    grammar.masks();
    grammar.added();
    grammar.of_inputs();
    grammar.of_cache();
    grammar.preallocated();
    grammar.unpadded();
    grammar.other_types();
    grammar.rounded_positions();
    grammar.of_parts();
    grammar.of_sinks();
    grammar.smoothed_keys();
    grammar.appended_again();
    grammar.rounded_weights();
    grammar.scales_of_one_list();
    grammar.scales_of_other_blocks();
    grammar.scales_along_others();
    grammar.of_tiles();
    grammar.strides();
    grammar.pitch_of_bias();
    grammar.pitch_of_splits();
    grammar.fragments();
    grammar.sequence_starts();
    grammar.of_delta();
    grammar.left_out_tiles();
    grammar.twins();
    grammar.found
}

/// What goes wrong where a kernel computes weights anew: at the log-sum-exp, at the weights, and in the loops over tiles.
pub fn of_kernel(right: &Trace, sizes: &Sizes) -> Vec<Candidate> {
    let mut grammar = Grammar { right, sizes, found: Vec::new() };
    for step in [Name::Lse, Name::Weights].iter().filter_map(|name| right.step(*name)) {
        grammar.computed(step);
    }
    let is_given = |step: &&Step| step.op == Op::Given || step.name == Name::AttnBias;
    right.steps().iter().filter(is_given).for_each(|step| grammar.given(step));
    grammar.mask_with(|grammar, own| grammar.tiles(own));
    grammar.found
}

impl Grammar<'_> {
    /// What can be wrong at a computed step.
    fn computed(&mut self, step: &Step) {
        self.omitted(step);
        self.not_added(step);
        self.repeated(step);
        self.late_bias(step);
        self.moved(step);
        self.turned_whole(step);
        self.in_other_pairs(step);
        self.permuted_for_others(step);
        self.unordered_bias(step);
        self.normed_by_head(step);
        self.siblings(step);
        self.numbers(step);
        self.inputs(step);
        self.axes(step);
        self.inserted(step);
        self.kernels(step);
        self.of_scores(step);
        self.precision(step);
        self.quantised(step);
        self.few_bits(step);
        self.pages(step);
        self.gradients(step);
    }

    /// What can be wrong at a step that follows from the settings.
    fn setting(&mut self, step: &Step) {
        self.siblings(step);
        self.numbers(step);
        self.inserted_setting(step);
        self.selected(step);
        self.pages(step);
    }

    /// Notes a mistake of one step.
    fn add(&mut self, kind: Kind, cost: u32, at: Name, change: Change, told: impl AsRef<str>) {
        self.add_all(kind, cost, vec![Edit::new(at, change)], at, told);
    }

    /// Notes a mistake of several edits, as one of a step.
    fn add_all(&mut self, kind: Kind, cost: u32, edits: Edits, at: Name, told: impl AsRef<str>) {
        let summary = format!("{at}: {}", told.as_ref());
        self.found.push(Candidate::new(kind, cost, edits, summary));
    }

    /// The documents that one row packs, if the run has such.
    fn documents(&self) -> Option<&Documents> {
        documents(self.right)
    }

    /// What a step multiplies all numbers by, if it does.
    fn scale_at(&self, step: Name) -> Option<f64> {
        match &self.right.step(step)?.op {
            Op::Scaling(scaling) => scaling.factor(),
            _ => None,
        }
    }

    /// The names of what a step reads.
    fn read(&self, step: &Step) -> Vec<Name> {
        self.right.read_by(step).iter().map(|read| read.name).collect()
    }
}

/// The documents that one row packs, if a run has such.
pub fn documents(right: &Trace) -> Option<&Documents> {
    match &right.step(Name::DocumentMask)?.op {
        Op::Masking(Masking::Documents(own)) => Some(own),
        _ => None,
    }
}

/// One more operation on a step's value.
fn after(op: impl Into<Op>, beside: &[Name]) -> Change {
    Change::After(op.into(), beside.to_vec())
}
