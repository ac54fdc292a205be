//! What goes wrong with gradients in particular?

use super::kernels::part_of_sum;
use super::{Grammar, after};
use crate::candidate::cost;
use crate::mistakes::siblings;
use program::{
    Change, Collect, Edit, GateSlip, Gradient, GradientSlip, Kind, Map, Masking, Name, Op, Role,
    Scaling, Slip, Step, Total,
};

impl Grammar<'_> {
    pub(super) fn gradients(&mut self, step: &Step) {
        if !matches!(step.name, Name::Gradient(_) | Name::Delta) {
            return;
        }
        if let Op::Total(total) = &step.op {
            self.parts_of_total(step, total);
        }
        if let ([d, x, weight], Op::Gradient(Gradient::Norm(_))) = (&self.read(step)[..], &step.op)
        {
            let told = tr!("the norm's weight, {weight}, is not used", weight);
            self.add(Kind::Omitted, cost::COMMON, step.name, Change::Read(vec![*d, *x]), told);
        }
        if let ([d, x, gate], Op::Gradient(Gradient::Gate { map })) =
            (&self.read(step)[..], &step.op)
        {
            for slip in GateSlip::ALL {
                let other = Slip::Gradient(GradientSlip::Gate(slip, *map));
                let change = Change::Become(other.into(), vec![*gate, *d, *x]);
                self.add(Kind::Replaced, cost::COMMON, step.name, change, slip.told());
            }
        }
        if step.name == Name::Delta {
            self.other_deltas(step);
        }
        if step.op == Gradient::Sinks.into() {
            self.unweighted_sinks(step);
        }
        self.cut_off(step);
        self.under_mask(step);
        self.carried_on(step);
        self.counted_twice(step);
        self.scaled_each_round(step);
        self.of_other_tiles_back(step);
        self.in_each_others_place(step);
    }

    /// A sum of what several readers give back, without one of them or with one twice.
    fn parts_of_total(&mut self, step: &Step, Total(parts): &Total) {
        let read = self.read(step);
        let mut own = Vec::new();
        let mut first = 0;
        for (op, count) in parts {
            own.push((op, read.get(first..first + count).unwrap_or_default()));
            first += count;
        }
        for (at, (op, reads)) in own.iter().enumerate() {
            let from = reads.first().map_or("", |name| name.as_str());
            let others: Vec<_> = own.iter().enumerate().filter(|(other, _)| *other != at).collect();
            let total = others.iter().map(|(_, (op, reads))| ((*op).clone(), reads.len()));
            let total = Op::from(Total(total.collect()));
            let names: Vec<Name> =
                others.iter().flat_map(|(_, (_, reads))| reads.to_vec()).collect();
            let told = tr!("the part that comes from {from} is left out", from);
            self.add(Kind::Omitted, cost::COMMON, step.name, Change::Become(total, names), told);
            let total = parts.iter().cloned().chain([((*op).clone(), reads.len())]);
            let names = read.iter().chain(*reads).copied().collect();
            let change = Change::Become(Total(total.collect()).into(), names);
            let told = tr!("the part that comes from {from} counts twice", from);
            self.add(Kind::Repeated, cost::COMMON, step.name, change, told);
        }
    }

    /// Delta of a part of the features of the heads' outputs, as kernels sum it, or summed along another axis.
    fn other_deltas(&mut self, step: &Step) {
        let outputs = [Name::HeadOutputs, Name::HeadOutputs.gradient()];
        if let Some(output) =
            self.right.step(outputs[0]).filter(|_| self.right.step(outputs[1]).is_some())
        {
            let (sum, axis) = (Collect::over_last(&output.axes), output.axes.rank() - 1);
            let width = output.axes.shape().last().copied().unwrap_or_default();
            let vectors = [4, 8, 16, 32].map(|by| (true, width / by * by));
            let halves = [(true, width / 2), (true, width - 1), (false, width / 2)];
            let some = |(_, count): &(bool, usize)| (1..width).contains(count);
            for (is_head, count) in halves.into_iter().chain(vectors).filter(some) {
                let (part, told) = part_of_sum(step, is_head, count, (0, axis, width));
                let whole = Change::Become(Gradient::Collect(sum.clone()).into(), outputs.to_vec());
                let edits = vec![Edit::new(step.name, whole), Edit::new(step.name, part)];
                self.add_all(Kind::Axes, cost::RARE, edits, step.name, told);
            }
        }
        let Op::Gradient(Gradient::Collect(own)) = &step.op else { return };
        if let Some(d) = self.right.step(Name::Weights.gradient()) {
            let sum = Gradient::Collect(Collect::over_last(&d.axes));
            let told = tr!("the weights are left out: it is the sum of {d}", d = d.name);
            let whole = Edit::new(step.name, Change::Become(sum.into(), vec![d.name]));
            let mask = self.right.mask_of_scores().map(|mask| {
                let zero = Masking::Fill { fill: program::Fill(0.0) };
                Edit::new(step.name, Change::Before(0, zero.into(), vec![mask.name]))
            });
            for edits in mask.map(|mask| vec![whole.clone(), mask]).into_iter().chain([vec![whole]])
            {
                self.add_all(Kind::Omitted, cost::COMMON, edits, step.name, &told);
            }
        }
        let over = own.view.len().saturating_sub(2);
        let mut axes = own.view.clone();
        axes.truncate(over);
        axes.extend(own.view.last());
        let summed = Collect { over: vec![over], axes, ..own.clone() };
        let change = Change::Become(Gradient::Collect(summed).into(), self.read(step));
        let told = tr!("it is summed over the queries, not over the keys");
        self.add(Kind::Axes, cost::COMMON, step.name, change, told);
    }

    /// The gradient of sinks without the weights that rows give them.
    fn unweighted_sinks(&mut self, step: &Step) {
        let [.., delta] = self.right.read_by(step)[..] else { return };
        let (view, axes) = (delta.axes.iter().collect(), step.axes.iter().collect());
        let sum = Collect { slice: None, view, over: vec![0, 2], axes };
        let whole = Change::Become(Gradient::Collect(sum).into(), vec![delta.name]);
        let negated = after(Scaling::By { factor: -1.0 }, &[]);
        let edits = vec![Edit::new(step.name, negated), Edit::new(step.name, whole)];
        let one = Edit::new(step.name, Change::before(2, Slip::Map(Map::Exp)));
        let none = Scaling::By { factor: 0.0 };
        let none = Edit::new(step.name, Change::before(2, none));
        let told = tr!(
            "{delta} is left out: it is minus the sum of the sink's weights",
            delta = delta.name
        );
        self.add_all(Kind::Omitted, cost::COMMON, vec![none, one], step.name, told);
        let told = tr!(
            "the weight that each query gives to the sink is left out: it is −Σ {delta}",
            delta = delta.name
        );
        self.add_all(Kind::Omitted, cost::COMMON, edits, step.name, told);
    }

    /// The gradient of what stands behind a cache, cut from its beginning.
    fn cut_off(&mut self, step: &Step) {
        let Op::Gradient(Gradient::Collect(own)) = &step.op else { return };
        let Some((axis, first)) = own.slice.filter(|(_, first)| *first > 0) else { return };
        let other = Gradient::Collect(Collect { slice: Some((axis, 0)), ..own.clone() });
        let told =
            tr!("it is cut off from the beginning, where it should be from {first} on", first);
        self.add(Kind::Axes, cost::COMMON, step.name, Change::Replace(other.into()), told);
    }

    /// What is wrong in the scores' gradient and masked behind it.
    fn under_mask(&mut self, step: &Step) {
        let mask = self.right.mask_of_scores().map(|mask| mask.name);
        let (Some(mask), Op::Gradient(own @ Gradient::Softmax)) = (mask, &step.op) else { return };
        for sibling in siblings(&Op::from(own.clone()), &[]) {
            let zero = Masking::Fill { fill: program::Fill(0.0) };
            let masked = Edit::new(step.name, after(zero, &[mask]));
            let edits = vec![masked, Edit::new(step.name, sibling.change)];
            self.add_all(sibling.kind, cost::PLAIN, edits, step.name, sibling.told);
        }
    }

    /// Two gradients of one shape that are handed out in each other's place.
    fn in_each_others_place(&mut self, step: &Step) {
        let shape = step.axes.shape();
        let before = self.right.steps().iter().take_while(|other| other.name != step.name);
        let is_pair = |other: &&Step| {
            let is_gradient = other.name.is_gradient() && other.is_computed();
            is_gradient
                && other.axes.shape() == shape
                && self.read(other).iter().all(|read| *read != step.name)
        };
        for other in before.filter(is_pair).map(|other| other.name).collect::<Vec<_>>() {
            let Some(other) = self.right.step(other) else { continue };
            if self.read(step).contains(&other.name) || step.name == Name::Delta {
                continue;
            }
            let as_other = |own: &Step, of: &Step| {
                Edit::new(own.name, Change::Become(of.op.clone(), self.read(of)))
            };
            let edits = vec![as_other(other, step), as_other(step, other)];
            let told = tr!("it and {other} change places", other = other.name);
            self.add_all(Kind::Input, cost::COMMON, edits, step.name, told);
        }
    }

    /// Keys and values that are given, both in the same other places.
    pub(super) fn moved_together(&mut self) {
        let given = |name| self.right.step(name).filter(|step: &&Step| step.op == Op::Given);
        let (Some(keys), Some(values)) = (given(Name::KHeads), given(Name::VHeads)) else { return };
        if keys.axes.shape() != values.axes.shape() {
            return;
        }
        for (op, told, cost) in self.moves(keys) {
            let edits = [keys, values].map(|step| Edit::new(step.name, after(op.clone(), &[])));
            let told = tr!("it and {other} are {told}", other = values.name, told);
            self.add_all(Kind::Axes, cost, edits.to_vec(), keys.name, told);
        }
    }

    /// What is given to a kernel, in other places or not read.
    pub(super) fn given(&mut self, step: &Step) {
        let name = step.name;
        if step.axes.rank() < 3 {
            return;
        }
        if name == Name::KHeads {
            self.moved_together();
        }
        if name.row().is_boolean || name.role() == Role::Setting {
            return self.in_tiles(step);
        }
        for (op, told, cost) in self.moves(step) {
            self.add(Kind::Axes, cost, name, after(op, &[]), tr!("it is {told}", told));
        }
        self.in_tiles(step);
        if name.is_gradient() {
            let none = Edit::new(name, after(Scaling::By { factor: 0.0 }, &[]));
            let one = Edit::new(name, after(Slip::Map(Map::Exp), &[]));
            let told = tr!("it is not read: it counts as 1 throughout");
            self.add_all(Kind::Replaced, cost::PLAIN, vec![one, none], name, told);
        }
    }
}
