//! Where may a rotation by positions stand that does not belong there, and a norm of heads before or behind the split?

use super::{Grammar, after};
use crate::candidate::cost;
use program::{
    Along, Change, Edit, Kind, Linear, Name, Norm, Op, Pairing, Rotary, Scaling, Slip, Step,
};

impl Grammar<'_> {
    /// Queries and keys that are turned by their positions in a run that has no rotation.
    pub(super) fn turned_anyway(&mut self, step: &Step) {
        if self.right.step(Name::QRot).is_some() {
            return;
        }
        for pairing in [Pairing::Half, Pairing::Interleaved] {
            let rope = || Slip::Rope { pairing, base: 10_000.0 }.into();
            let turn = |slot| Edit::new(step.name, Change::Before(slot, rope(), Vec::new()));
            let pairs = pairing.name();
            let told = tr!(
                "queries and keys are turned by their positions ({pairs} pairs, base 10000)",
                pairs
            );
            let edits = vec![turn(0), turn(1)];
            self.add_all(Kind::Inserted, cost::PLAIN, edits, step.name, told);
        }
    }

    /// A rotation of all features of a token, before they are split into heads.
    pub(super) fn turned_whole(&mut self, step: &Step) {
        let projection = match step.name {
            Name::QRot => Name::Q,
            Name::KRot => Name::K,
            _ => return,
        };
        let freqs = self.right.read_by(step).get(1).map(|read| &read.op);
        let (Op::Rotary(Rotary::Rotate(own)), Some(Op::Rotary(Rotary::Frequencies(freqs)))) =
            (&step.op, freqs)
        else {
            return;
        };
        for pairing in [Pairing::Half, Pairing::Interleaved] {
            let cost = cost::PLAIN + u32::from(pairing != own.pairing);
            let rope = Slip::Rope { pairing, base: freqs.base };
            let told = tr!(
                "the rotation runs over all features of a token, before they are split into heads"
            );
            let omitted = Edit::new(step.name, Change::Omit);
            let edits = vec![Edit::new(projection, after(rope.clone(), &[])), omitted];
            self.add_all(Kind::Moved, cost, edits, step.name, told);
            // Where the projection was recorded before it is turned, it is turned on the way to here.
            let read = self.right.read_by(step);
            let Some(split) = read.first() else { continue };
            if matches!(split.name, Name::QHeads | Name::KHeads) {
                let own = Change::Become(split.op.clone(), vec![projection]);
                let turned = Change::before(0, rope);
                let edits = [own, turned].map(|change| Edit::new(step.name, change));
                self.add_all(Kind::Moved, cost, edits.into(), step.name, told);
            }
        }
    }

    /// The other pairs are turned, and what comes of it is put in the order that is meant: the same as the order of the features
    /// before.
    pub(super) fn in_other_pairs(&mut self, step: &Step) {
        let Op::Rotary(Rotary::Rotate(own)) = &step.op else { return };
        let (axis, width) = (step.axes.rank().saturating_sub(1), step.axes.last_size() as usize);
        let pairs =
            self.right.read_by(step).get(1).and_then(|freqs| freqs.axes.shape().last().copied());
        let Some(pairs) = pairs.filter(|pairs| *pairs > 1 && 2 * pairs <= width) else { return };
        let first = if own.is_at_end { width - 2 * pairs } else { 0 };
        let orders: [(&dyn Fn(usize) -> usize, &str); 2] = [
            (
                &|at| at / 2 + at % 2 * pairs,
                tr!(
                    "halves of the features are paired, not neighbours, and what comes of it is put side by side"
                ),
            ),
            (
                &|at| at % pairs * 2 + at / pairs,
                tr!(
                    "neighbours are paired, not halves of the features, and what comes of it is put into halves"
                ),
            ),
        ];
        for (from, told) in orders {
            let place = |at: usize| match at.checked_sub(first) {
                Some(own) if own < 2 * pairs => first + from(own),
                _ => at,
            };
            let take = Slip::Along(axis, Along::Take((0..width).map(place).collect()));
            self.add(Kind::Axes, cost::COMMON, step.name, Change::before(0, take), told);
        }
    }

    /// A bias that is left in its order, where the rows of its weight are put in that of other pairs, which are turned then.
    pub(super) fn unordered_bias(&mut self, step: &Step) {
        let (turned, heads) = match step.name {
            Name::Q => (Name::QRot, self.sizes.heads),
            Name::K => (Name::KRot, self.sizes.kv_heads),
            _ => return,
        };
        let ([_, _, _], Op::Linear(Linear::Project { .. })) = (&self.read(step)[..], &step.op)
        else {
            return;
        };
        let freqs =
            self.right.step(turned).and_then(|turned| self.right.read_by(turned).get(1).copied());
        let pairs = freqs.and_then(|freqs| freqs.axes.shape().last().copied()).unwrap_or(0);
        let width = step.axes.last_size() as usize;
        let Some(head) = width.checked_div(heads).filter(|head| pairs > 1 && 2 * pairs <= *head)
        else {
            return;
        };
        let orders: [&dyn Fn(usize) -> usize; 2] =
            [&|at| at % pairs * 2 + at / pairs, &|at| at / 2 + at % 2 * pairs];
        for order in orders {
            let from = |at: usize| match at % head {
                within if within < 2 * pairs => at - within + order(within),
                _ => at,
            };
            let take = Slip::Along(0, Along::Take((0..width).map(from).collect()));
            let told = tr!(
                "its bias is not put in the order of pairs that the rows of its weight are put in"
            );
            self.add(Kind::Axes, cost::COMMON, step.name, Change::before(2, take), told);
        }
    }

    /// The rows of a projection that are put in the order of neighbouring pairs, for a rotation of such, with the number of
    /// the other heads: of queries for the keys, or of key heads for the queries.
    pub(super) fn permuted_for_others(&mut self, step: &Step) {
        let (flat, own, others, whose) = match step.name {
            Name::QRot => (Name::Q, self.sizes.heads, self.sizes.kv_heads, tr!("key heads")),
            Name::KRot => (Name::K, self.sizes.kv_heads, self.sizes.heads, tr!("query heads")),
            _ => return,
        };
        let is_half =
            matches!(&step.op, Op::Rotary(Rotary::Rotate(own)) if own.pairing == Pairing::Half);
        let is_normed =
            [Name::QNorm, Name::KNorm].iter().any(|name| self.right.step(*name).is_some());
        let Some(projected) = self.right.step(flat).filter(|_| is_half && !is_normed) else {
            return;
        };
        let (axis, width) =
            (projected.axes.rank().saturating_sub(1), projected.axes.last_size() as usize);
        // Half of a head, for so many heads.
        let half = |heads: usize| {
            (heads > 0 && width.is_multiple_of(2 * heads)).then(|| width / heads / 2)
        };
        let (Some(meant), Some(half)) = (half(own), half(others).filter(|_| own != others)) else {
            return;
        };
        // Row `at` of the reference's order stands behind the wrong permutation in the right one's place, which holds that row.
        let from = |at: usize| {
            let (head, within) = (at / (2 * meant), at % (2 * meant));
            let place = head * 2 * meant + within % meant * 2 + within / meant;
            let (head, within) = (place / (2 * half), place % (2 * half));
            head * 2 * half + within % 2 * half + within / 2
        };
        let take = Slip::Along(axis, Along::Take((0..width).map(from).collect()));
        let told = tr!(
            "its projection is put in the order of neighbouring pairs with the number of {whose} ({others}), not with that of its own heads ({own})",
            whose,
            others,
            own
        );
        let edits = vec![Edit::new(flat, after(take, &[]))];
        self.add_all(Kind::Axes, cost::COMMON, edits, step.name, told);
    }

    /// A norm of the heads side by side that runs over each of them.
    pub(super) fn normed_by_head(&mut self, step: &Step) {
        let Op::Scaling(Scaling::Norm(norm)) = &step.op else { return };
        let read = self.right.read_by(step);
        let (Some(merged), None) = (read.first(), read.get(2)) else { return };
        if merged.name != Name::Concat {
            return;
        }
        let of_head = Norm { offset: 0.0, ..norm.clone() };
        let merge = Change::Become(merged.op.clone(), self.read(merged));
        let normed = Change::before(0, of_head);
        let weight = read.get(1).map(|weight| after(Slip::Product, &[weight.name]));
        let edits = [merge, normed].into_iter().chain(weight);
        let edits = edits.map(|change| Edit::new(step.name, change)).collect();
        let told = tr!("the norm runs over the features of a head, not over those of all heads");
        self.add_all(Kind::Axes, cost::PLAIN, edits, step.name, told);
    }
}
