//! What do kernels read whose pointers are not advanced, or are advanced by another stride?

use super::kernels::BLOCKS;
use super::{Grammar, after};
use crate::candidate::cost;
use program::{Along, Axis, Edit, Kind, Name, Op, Role, Slip, Step};

impl Grammar<'_> {
    /// A step's numbers as they are read with the head of another count, or from the start of each tile on.
    pub(super) fn pointers(&self, step: &Step) -> Vec<(Op, String, u32)> {
        let mut all = Vec::new();
        // Whoever writes a backward pass writes a kernel.
        if self.right.step(Name::Delta).is_none() {
            return all;
        }
        for (at, (axis, size)) in step.axes.iter().enumerate() {
            let axis = &axis;
            let mut take = |of: &dyn Fn(usize) -> usize, told: String, cost: u32| {
                let places = Along::Take((0..size).map(of).collect());
                all.push((Slip::Along(at, places).into(), told, cost));
            };
            match axis {
                Axis::Head => {
                    let group = size / self.sizes.kv_heads.max(1);
                    if group < 2 || group == size {
                        continue;
                    }
                    let told = tr!("taken at its key head's number for each query head");
                    take(&|head| head / group, told.to_owned(), cost::PLAIN);
                    let told = tr!("taken from the first query head of its group for each");
                    take(&|head| head / group * group, told.to_owned(), cost::PLAIN);
                    let told = tr!("taken at the head's number modulo the key heads for each");
                    take(&|head| head % (size / group), told.to_owned(), cost::PLAIN);
                }
                Axis::Query | Axis::Key if step.name.role() == Role::Computed => {
                    if let Some(first) = self.firsts(*axis, size) {
                        let told = tr!("taken from the first tokens of the row for each document");
                        take(&|token| token - first[token], told.to_owned(), cost::PLAIN);
                    }
                    for block in BLOCKS.into_iter().filter(|block| (2..size).contains(block)) {
                        let told = tr!(
                            "taken from the first {block} tokens for each tile of {block}",
                            block
                        );
                        take(&|token| token % block, told, cost::RARE);
                    }
                }
                _ => {}
            }
        }
        all
    }

    /// Of every token the first one of its document, where one row packs several.
    fn firsts(&self, axis: Axis, size: usize) -> Option<Vec<usize>> {
        let own = self.documents()?;
        let lengths = if axis == Axis::Query { &own.queries } else { &own.keys };
        let [lengths] = lengths.as_slice() else { return None };
        let mut firsts = Vec::with_capacity(size);
        for length in lengths {
            let first = firsts.len();
            firsts.extend(std::iter::repeat_n(first, *length));
        }
        (firsts.len() == size && lengths.len() > 1).then_some(firsts)
    }

    /// Numbers of pairs of tokens of which every tile reads those of the first.
    pub(super) fn in_tiles(&mut self, step: &Step) {
        let shape = step.axes.shape();
        let [.., queries, keys] = shape[..] else { return };
        if !step.axes.iter().any(|(axis, _)| axis == Axis::Key) || step.axes.rank() < 3 {
            return;
        }
        let longest = queries.max(keys);
        for block in BLOCKS.into_iter().filter(|block| (2..longest).contains(block)) {
            let take = |axis: usize, size: usize| {
                let places = Along::Take((0..size).map(|at| at % block).collect());
                Edit::new(step.name, after(Slip::Along(axis, places), &[]))
            };
            let (of_queries, of_keys) =
                (take(shape.len() - 2, queries), take(shape.len() - 1, keys));
            for (edits, told) in [
                (
                    vec![of_queries, of_keys.clone()],
                    tr!("each tile of {block} queries and {block} keys reads the first", block),
                ),
                (vec![of_keys], tr!("each tile of {block} keys reads the first", block)),
            ] {
                self.add_all(Kind::Axes, cost::RARE, edits, step.name, told);
            }
        }
    }
}
