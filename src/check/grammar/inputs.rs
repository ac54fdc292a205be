//! Which steps may read another tensor of the same shape?

use super::Grammar;
use super::numbers::of_sizes;
use crate::candidate::cost;
use program::{
    Axis, Biasing, Change, Edit, Heads, Kind, Linear, Name, Op, Role, Scaling, Slip, Step, Strides,
};

/// Two steps that in these slots read what the other one does.
fn exchanged(
    slots: &[usize],
    (step, read): (Name, &[Name]),
    (other, other_read): (Name, &[Name]),
) -> Vec<Edit> {
    let with = |own: &[Name], others: &[Name]| {
        let of = |(slot, own): (usize, &Name)| {
            others.get(slot).filter(|_| slots.contains(&slot)).copied().unwrap_or(*own)
        };
        Change::Read(own.iter().enumerate().map(of).collect())
    };
    vec![Edit::new(other, with(other_read, read)), Edit::new(step, with(read, other_read))]
}

impl Grammar<'_> {
    pub(super) fn inputs(&mut self, step: &Step) {
        let read = self.read(step);
        for (slot, own) in read.iter().enumerate() {
            for other in self.of_shape_of(*own, step.name) {
                let mut names = read.clone();
                if let Some(name) = names.get_mut(slot) {
                    *name = other;
                }
                // What stands further off is less likely to be taken for it.
                let cost = if is_kin(*own, other) { cost::COMMON } else { cost::RARE };
                let told = tr!("it reads {other} in place of {own}", other, own);
                self.add(Kind::Input, cost, step.name, Change::Read(names), told);
                if let Some(made) = self.found.last_mut() {
                    made.instead = Some(other);
                }
            }
        }
        self.two_exchanged(step, &read);
        self.of_another(step, &read);
        self.exchanged(step, &read);
    }

    /// A projection by the weight and the bias of another one.
    fn of_another(&mut self, step: &Step, read: &[Name]) {
        let [x, weight, bias] = read else { return };
        for (other, other_bias) in Name::PROJECTIONS {
            let shape = |name: Name| self.right.step(name).map(|step| step.axes.shape());
            if other != *weight
                && shape(other) == shape(*weight)
                && shape(other_bias) == shape(*bias)
                && shape(*bias).is_some()
            {
                let change = Change::Read(vec![*x, other, other_bias]);
                let told = tr!(
                    "it reads {other} and {other_bias} in place of {weight} and {bias}",
                    other,
                    other_bias,
                    weight,
                    bias
                );
                self.add(Kind::Input, cost::COMMON, step.name, change, told);
            }
        }
    }

    /// A step and an earlier one of the same sort, with each other's inputs in one slot.
    fn exchanged(&mut self, step: &Step, read: &[Name]) {
        let earlier: Vec<(Name, Vec<Name>)> = self
            .right
            .steps()
            .iter()
            .take_while(|other| other.name != step.name)
            .filter(|other| other.is_computed() && is_sort(&other.op, &step.op))
            .map(|other| (other.name, self.read(other)))
            .collect();
        for (other, other_read) in earlier {
            for (slot, (own, others)) in read.iter().zip(&other_read).enumerate() {
                let shape = |name: &Name| self.right.step(*name).map(|step| step.axes.shape());
                if own == others || shape(own) != shape(others) || self.right.computes(*own) {
                    continue;
                }
                let edits = exchanged(&[slot], (step.name, read), (other, &other_read));
                let told = tr!(
                    "{own} and {others} change places, at {other} and here",
                    own,
                    others,
                    other
                );
                self.add_all(Kind::Input, cost::COMMON, edits, step.name, told);
            }
            self.parameters_exchanged(step, read, (other, &other_read));
        }
    }

    /// A projection and an earlier one with each other's weight and bias.
    fn parameters_exchanged(
        &mut self,
        step: &Step,
        read: &[Name],
        (other, other_read): (Name, &[Name]),
    ) {
        let ([_, weight, bias], [_, other_weight, other_bias]) = (read, other_read) else {
            return;
        };
        let shape = |name: &Name| self.right.step(*name).map(|step| step.axes.shape());
        let is_alike = [(weight, other_weight), (bias, other_bias)]
            .iter()
            .all(|(own, others)| own != others && shape(own) == shape(others));
        if !is_alike || !matches!(step.op, Op::Linear(Linear::Project { .. })) {
            return;
        }
        let edits = exchanged(&[1, 2], (step.name, read), (other, other_read));
        let told = tr!(
            "{weight} and {other_weight}, and their biases, change places, at {other} and here",
            weight,
            other_weight,
            other
        );
        self.add_all(Kind::Input, cost::COMMON, edits, step.name, told);
    }

    /// What a step adds up, where both are computed.
    pub(super) fn terms(&self, step: &Step) -> Option<[Name; 2]> {
        let read = self.right.read_by(step);
        let is_own = |read: &Step| read.name.role() == Role::Computed && read.axes == step.axes;
        let is_computed = read.iter().all(|read| is_own(read));
        let names: Vec<Name> = read.iter().map(|read| read.name).collect();
        let is_sum = step.op == Op::Biasing(Biasing::Add) && is_computed;
        names.try_into().ok().filter(|_| is_sum)
    }

    /// A sum without one of its terms.
    pub(super) fn not_added(&mut self, step: &Step) {
        let Some([first, second]) = self.terms(step) else { return };
        for (left, term) in [(first, second), (second, first)] {
            let alone = Change::Become(Heads::HandOn.into(), vec![left]);
            let told = tr!("{term} is not added", term);
            self.add(Kind::Omitted, cost::COMMON, step.name, alone, told);
        }
    }

    /// Two inputs of one step in each other's place.
    fn two_exchanged(&mut self, step: &Step, read: &[Name]) {
        // With keys and values exchanged a state is the transposed one, which axes tell.
        if step.axes.iter().any(|(axis, _)| axis == Axis::ValueDim) {
            return;
        }
        for left in 0..read.len() {
            for right in left + 1..read.len() {
                let shape = |at: usize| {
                    read.get(at)
                        .and_then(|name| self.right.step(*name))
                        .map(|step| step.axes.shape())
                };
                let is_append = step.op == Op::Heads(Heads::Append);
                if shape(left) != shape(right) && !is_append {
                    continue;
                }
                let mut names = read.to_vec();
                names.swap(left, right);
                let told = tr!(
                    "{left} and {right} change places in it",
                    left = read[left],
                    right = read[right]
                );
                self.add(Kind::Input, cost::PLAIN, step.name, Change::Read(names), told);
            }
        }
    }

    /// The steps before one that have the shape of what it reads, and are numbers or booleans like that.
    fn of_shape_of(&self, own: Name, reader: Name) -> Vec<Name> {
        let Some(right) = self.right.step(own) else { return Vec::new() };
        let before = self.right.steps().iter().take_while(|other| other.name != reader);
        let fits = |other: &&Step| {
            other.name != own
                && other.name.row().is_boolean == own.row().is_boolean
                && (other.is_computed() || other.name.role() == own.role())
                && other.axes.shape() == right.axes.shape()
        };
        before.filter(fits).map(|other| other.name).collect()
    }

    /// Tokens that are multiplied by a root of a size, as embeddings are, for all that reads them, or the gradient that the
    /// backward pass starts from, as a loss that is a mean, or a scaled one, makes it.
    fn scaled_inputs(&mut self) {
        let steps = self.right.steps().iter();
        let first = steps.filter(|step| step.op == Op::Given && step.name.is_gradient());
        let first = first.map(|step| step.name);
        let tokens = [Name::X, Name::Memory, Name::MemoryV];
        let inputs: Vec<Name> = tokens.into_iter().chain(first).collect();
        for input in inputs {
            let slots = |step: &Step| {
                let read = self.read(step).into_iter().enumerate();
                let read = read.filter(|(_, name)| *name == input);
                read.map(|(slot, _)| (step.name, slot)).collect::<Vec<_>>()
            };
            let readers: Vec<(Name, usize)> = self.right.steps().iter().flat_map(slots).collect();
            let Some((first, _)) = readers.first().copied() else { continue };
            // A mean, or a loss that is counted twice; what is 2 anyway needs no size.
            let plain: &[f64] = if input.is_gradient() { &[2.0, 0.5, -1.0] } else { &[] };
            let mut factors = of_sizes(self.sizes);
            factors.retain(|(factor, name)| {
                let is_root = input.is_gradient() && name.ends_with("/4)");
                !is_root && plain.iter().all(|own| (own - factor).abs() > 1e-9)
            });
            let of_sizes = factors.into_iter().map(|(factor, name)| (factor, name, cost::RARE));
            let plain = plain.iter().map(|own| (*own, own.to_string(), cost::COMMON));
            for (factor, name, cost) in of_sizes.chain(plain) {
                let scaled = |(reader, slot): &(Name, usize)| {
                    let op = Scaling::By { factor }.into();
                    Edit::new(*reader, Change::Before(*slot, op, Vec::new()))
                };
                let told =
                    tr!("{input} is multiplied by {name} for all that reads it", input, name);
                let edits = readers.iter().map(scaled).collect();
                self.add_all(Kind::Inserted, cost, edits, first, told);
            }
        }
    }

    /// What x and memory may be to all that reads them.
    /// Values that are features of the keys, as of latents, and are taken from other features of them.
    fn values_of_keys(&mut self) {
        // Heads are repeated behind that.
        let first = |(reader, slot, input): (Name, usize, Name)| {
            let is_repeated = matches!(input, Name::KRepeated | Name::VRepeated);
            let read = self.right.step(input).and_then(|step| self.read(step).first().copied());
            read.filter(|_| is_repeated).map_or((reader, slot, input), |read| (input, 0, read))
        };
        let (keys, values): (Vec<_>, Vec<_>) = self
            .products()
            .into_iter()
            .filter(|(_, slot, _)| *slot > 0)
            .partition(|(reader, ..)| *reader == Name::ScoresRaw);
        let (Some(keys), Some(values)) = (keys.first().copied(), values.first().copied()) else {
            return;
        };
        let ((.., keys), (reader, slot, values)) = (first(keys), first(values));
        let dims = |name| self.right.step(name).map(|step| step.axes.iter().collect::<Vec<_>>());
        let (Some(of_keys), Some(of_values)) = (dims(keys), dims(values)) else { return };
        let ([rows @ .., (_, all)], [others @ .., (_, width)]) = (&of_keys[..], &of_values[..])
        else {
            return;
        };
        let (width, shape) = (*width, of_keys.iter().map(|(_, size)| *size).collect::<Vec<_>>());
        let Ok(shape) = <[usize; 4]>::try_from(shape) else { return };
        if rows != others || *all <= width {
            return;
        }
        for (first, which) in [(all - width, tr!("last")), (0, tr!("first"))] {
            let taken = Slip::Strided(Strides { first, width, ..Strides::of(shape, 1, false) });
            let change = Change::Feed(slot, taken.into(), vec![keys]);
            let told =
                tr!("the values are the {which} {width} features of {keys}", which, width, keys);
            self.add(Kind::Input, cost::COMMON, reader, change, told);
        }
    }

    pub(super) fn of_inputs(&mut self) {
        self.scaled_inputs();
        self.values_of_keys();
        self.moved_together();
        let shape = |name| self.right.step(name).map(|step| step.axes.shape());
        let inputs = [Name::X, Name::Memory, Name::MemoryV];
        let pairs = inputs.iter().flat_map(|own| inputs.map(|other| (*own, other)));
        for (own, other) in pairs.filter(|(own, other)| own != other) {
            if shape(own).is_none() || shape(own) != shape(other) {
                continue;
            }
            let told = tr!("{other} is read in place of {own}", other, own);
            self.read_everywhere(|name| if name == own { other } else { name }, &told);
            if own < other {
                let told =
                    tr!("{own} and {other} change places for all that reads them", own, other);
                let exchanged = |name| match name {
                    name if name == own => other,
                    name if name == other => own,
                    name => name,
                };
                self.read_everywhere(exchanged, &told);
            }
        }
    }

    /// What if all that reads an input reads another one?
    fn read_everywhere(&mut self, other: impl Fn(Name) -> Name, told: &str) {
        let edit = |reader: &Step| {
            let own = self.read(reader);
            let names: Vec<Name> = own.iter().map(|name| other(*name)).collect();
            (names != own).then(|| Edit::new(reader.name, Change::Read(names)))
        };
        let edits: Vec<Edit> = self.right.steps().iter().filter_map(edit).collect();
        if let [first, _, ..] = &edits[..] {
            let first = first.at;
            self.add_all(Kind::Input, cost::COMMON, edits, first, told);
        }
    }
}

/// Whether two operations are of one sort.
fn is_sort(left: &Op, right: &Op) -> bool {
    std::mem::discriminant(left) == std::mem::discriminant(right)
}

/// Whether one is easily taken for the other: parameters of one sort, or stages of one stream.
fn is_kin(own: Name, other: Name) -> bool {
    own.role() == other.role()
}
