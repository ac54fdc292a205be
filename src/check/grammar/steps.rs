//! Which steps can be left out, made twice, exchanged, replaced, rounded, or put in where they do not belong?

use super::applied::functions;
use super::numbers::short;
use super::{Grammar, after};
use crate::candidate::cost;
use crate::mistakes::siblings;
use program::{
    Change, Edit, EmptyRow, Heads, Kind, Linear, Map, Masking, Name, Norm, Op, Rearrange, Role,
    Rotary, Rotate, Scaling, ScoreSlip, Slip, Step, Weigh, Weighting,
};

impl Grammar<'_> {
    pub(super) fn omitted(&mut self, step: &Step) {
        let first = self.right.read_by(step).first().map(|read| read.axes.shape());
        // Slots of which each is read once in a row are told as that.
        let is_other = step.op == Op::Heads(Heads::Gather) || self.terms(step).is_some();
        if first == Some(step.axes.shape()) && !is_other {
            let own = self.right.read_by(step);
            let own = own.first().filter(|read| read.axes != step.axes).map(|read| read.name);
            let change = match own {
                None => Change::Omit,
                // The axes have other names.
                Some(first) => {
                    let shape = step.axes.shape();
                    let order = (0..shape.len()).collect();
                    Change::Become(Self::viewed(step, shape, order), vec![first])
                }
            };
            self.add(Kind::Omitted, cost::COMMON, step.name, change, tr!("the step is left out"));
        }
        if step.op == Op::Linear(Linear::WeightedSum)
            && self.sizes.query_count() == self.sizes.keys()
        {
            let change = Change::before(0, Slip::Scores(ScoreSlip::Identity));
            let told = tr!("the step is left out: it is the values as they are");
            self.add(Kind::Omitted, cost::PLAIN, step.name, change, told);
        }
        // A bias or a second parameter that is not used.
        let read = self.read(step);
        if let ([first, second, _], Op::Linear(Linear::Project { .. })) = (&read[..], &step.op) {
            let change = Change::Read(vec![*first, *second]);
            self.add(Kind::Omitted, cost::COMMON, step.name, change, tr!("the bias is not added"));
        }
        if let ([x, weight, bias @ ..], Op::Scaling(Scaling::Norm(norm))) = (&read[..], &step.op) {
            let own = |read: Vec<Name>, offset: f64| {
                Change::Become(Norm { offset, ..norm.clone() }.into(), read)
            };
            let all = match bias {
                [bias] => tr!(
                    "the norm's weight and bias, {weight} and {bias}, are not used",
                    weight,
                    bias
                ),
                _ => tr!("the norm's weight, {weight}, is not used", weight),
            };
            self.add(Kind::Omitted, cost::COMMON, step.name, own(vec![*x], 0.0), all);
            if let [bias] = bias {
                let told = tr!("the norm's bias, {bias}, is not added", bias);
                let change = own(vec![*x, *weight], norm.offset);
                self.add(Kind::Omitted, cost::COMMON, step.name, change, told);
                let told = tr!("the norm's weight, {weight}, is not used", weight);
                let biased = after(Slip::SUM, &[*bias]);
                let edits = [own(vec![*x], 0.0), biased].map(|change| Edit::new(step.name, change));
                self.add_all(Kind::Omitted, cost::COMMON, edits.into(), step.name, told);
            }
        }
        if let ([scores, _], Op::Weighting(_)) = (&read[..], &step.op)
            && read.contains(&Name::Sinks)
        {
            let change = Change::Read(vec![*scores]);
            self.add(Kind::Omitted, cost::COMMON, step.name, change, tr!("the sinks are not used"));
        }
    }

    pub(super) fn repeated(&mut self, step: &Step) {
        let read = self.read(step);
        let [_, beside @ ..] = &read[..] else { return };
        let change = after(step.op.clone(), beside);
        let told = if let Op::Rotary(Rotary::Rotate(_)) = step.op {
            tr!("the step is made twice, as if positions were twice as large")
        } else {
            tr!("the step is made twice")
        };
        self.add(Kind::Repeated, cost::COMMON, step.name, change, told);
        if let ([_, _, bias], Op::Linear(Linear::Project { .. })) = (&read[..], &step.op) {
            let twice = after(Slip::SUM, &[*bias]);
            self.add(Kind::Repeated, cost::PLAIN, step.name, twice, tr!("the bias is added twice"));
        }
    }

    /// A bias that is added behind the scaling of the queries, or behind the rotation of heads.
    pub(super) fn late_bias(&mut self, step: &Step) {
        let read = self.read(step);
        let ([x, weight, bias], Op::Linear(Linear::Project { .. })) = (&read[..], &step.op) else {
            return;
        };
        let scale = self.scale_at(Name::Scores).filter(|scale| *scale > 0.0);
        if let Some(scale) = scale.filter(|_| step.name == Name::Q) {
            let unscaled = Slip::Add { factor: scale.recip() - 1.0, addend: 0.0 };
            let told = tr!("{bias} is added behind the scaling, and is not scaled", bias);
            self.add(
                Kind::Moved,
                cost::COMMON,
                step.name,
                after(unscaled.clone(), &[*bias]),
                &told,
            );
            // What was recorded as the queries may have its bias already.
            let of_scores = Change::Before(0, unscaled.into(), vec![*bias]);
            self.add(Kind::Moved, cost::COMMON, Name::ScoresRaw, of_scores, told);
        }
        let turned = [(Name::Q, Name::QRot), (Name::K, Name::KRot)];
        let turned = turned.into_iter().find(|(own, _)| *own == step.name);
        if let Some(turned) = turned.and_then(|(_, turned)| self.right.step(turned)) {
            let edits = vec![
                Edit::new(step.name, Change::Read(vec![*x, *weight])),
                Edit::new(turned.name, after(Slip::SUM, &[*bias])),
            ];
            // What was recorded before it may have the bias.
            let without = Slip::Add { factor: -1.0, addend: 0.0 };
            let of_turned = vec![
                Edit::new(turned.name, Change::Before(0, without.into(), vec![*bias])),
                Edit::new(turned.name, after(Slip::SUM, &[*bias])),
            ];
            let told = tr!("{bias} is added behind the rotation, and is not turned", bias);
            for edits in [edits, of_turned] {
                self.add_all(Kind::Moved, cost::COMMON, edits, turned.name, &told);
            }
        }
    }

    /// A step before the one that it reads first: under its own name, and in that one's place.
    pub(super) fn moved(&mut self, step: &Step) {
        let Some(first) = self.right.read_by(step).first().copied() else { return };
        if !first.is_computed() || first.axes != step.axes {
            return;
        }
        let told = tr!("it comes before {value}, and should come after it", value = first.name);
        self.add(Kind::Moved, cost::COMMON, step.name, Change::Exchange, &told);
        let (own, others) = (self.read(step), self.read(first));
        let ([_, own @ ..], [from, others @ ..]) = (&own[..], &others[..]) else { return };
        let earlier = Change::Become(step.op.clone(), [&[*from], own].concat());
        let later = Change::Become(first.op.clone(), [&[first.name], others].concat());
        let edits = vec![Edit::new(first.name, earlier), Edit::new(step.name, later)];
        self.add_all(Kind::Moved, cost::COMMON, edits, step.name, &told);
        // What was recorded in the other's place may be what it had read.
        let behind = Edit::new(step.name, after(first.op.clone(), others));
        let edits = vec![Edit::new(first.name, Change::Omit), behind];
        self.add_all(Kind::Moved, cost::COMMON, edits, step.name, told);
    }

    pub(super) fn siblings(&mut self, step: &Step) {
        let read = self.right.read_by(step);
        let axes: Vec<_> = read.iter().map(|read| &read.axes).collect();
        for sibling in siblings(&step.op, &axes) {
            self.add(sibling.kind, cost::COMMON, step.name, sibling.change, sibling.told);
        }
    }

    /// What people put behind a step, or before it: activations, norms, residuals.
    pub(super) fn inserted(&mut self, step: &Step) {
        // What a kernel has of parts of its keys goes through nothing else.
        if matches!(step.op, Op::Parted(_)) {
            return;
        }
        for (op, told) in functions() {
            let told = tr!("{told} is applied to it", told);
            self.add(Kind::Inserted, cost::RARE, step.name, after(op, &[]), told);
        }
        self.before(step);
        if step.name == Name::Weights || step.name == Name::WeightsDropped {
            let softmax = Weighting::softmax(EmptyRow::Nan);
            self.add(
                Kind::Repeated,
                cost::PLAIN,
                step.name,
                after(softmax, &[]),
                tr!("softmax is applied twice"),
            );
            let linear = after(Slip::Weigh(Weigh::Linear), &[]);
            let told = tr!("each row is divided by its sum once more");
            self.add(Kind::Inserted, cost::PLAIN, step.name, linear, told);
            self.dropped_before_sum(step);
        } else if step.axes.rank() == 4 {
            let softmax = Weighting::softmax(EmptyRow::Nan);
            self.add(
                Kind::Inserted,
                cost::RARE,
                step.name,
                after(softmax, &[]),
                tr!("softmax is applied to it"),
            );
        }
        for other in self.same_shape(step) {
            let told = tr!("{other} is added to it", other);
            self.add(Kind::Inserted, cost::RARE, step.name, after(Slip::SUM, &[other]), told);
            let told = tr!("it is multiplied by {other}", other);
            self.add(Kind::Inserted, cost::ODD, step.name, after(Slip::Product, &[other]), told);
        }
        for parameter in self.read(step).into_iter().filter(|name| name.role() == Role::Parameter) {
            let told = tr!("it is multiplied by {parameter} once more", parameter);
            self.add(
                Kind::Repeated,
                cost::PLAIN,
                step.name,
                after(Slip::Product, &[parameter]),
                told,
            );
        }
        for bias in Name::PROJECTIONS.map(|(_, bias)| bias) {
            let own = self.read(step);
            let fits = self.right.step(bias).is_some_and(|_| !own.contains(&bias));
            if fits {
                let told = tr!("{bias} is added to it", bias);
                self.add(Kind::Inserted, cost::RARE, step.name, after(Slip::SUM, &[bias]), told);
            }
        }
        self.of_others(step);
        self.gated(step);
    }

    /// Dropout of the exponentials, before they are summed: what it leaves of a row is divided by its own sum.
    fn dropped_before_sum(&mut self, step: &Step) {
        let Op::Weighting(Weighting::Dropout { p }) = step.op else { return };
        let scaled = Edit::new(step.name, after(Scaling::By { factor: (1.0 - p).recip() }, &[]));
        for weigh in [Weigh::LinearOrZero, Weigh::Linear] {
            let normed = Edit::new(step.name, after(Slip::Weigh(weigh), &[]));
            let told = tr!("dropout comes before the row's sum, which lacks what is dropped");
            // The later edit is made closer to the step.
            for edits in [vec![normed.clone()], vec![scaled.clone(), normed]] {
                self.add_all(Kind::Replaced, cost::COMMON, edits, step.name, told);
            }
        }
    }

    /// Operations of other steps of the run, on the step's value and on what it reads.
    fn of_others(&mut self, step: &Step) {
        let reads = self.read(step);
        for own in self.right.steps().iter().filter(|own| own.name != step.name) {
            let is_function = matches!(own.op, Op::Rotary(Rotary::Rotate(_)) | Op::Scaling(_))
                || matches!(own.op, Op::Weighting(Weighting::Dropout { .. }));
            let read = self.read(own);
            let [first, beside @ ..] = &read[..] else { continue };
            if !is_function {
                continue;
            }
            if *first != step.name && !step.name.row().is_boolean {
                for op in from_start(&own.op, step.op == Op::Heads(Heads::Append)) {
                    let told =
                        tr!("the operation of {own} is applied to its result, too", own = own.name);
                    self.add(Kind::Inserted, cost::PLAIN, step.name, after(op, beside), told);
                }
            }
            let numbers = reads.iter().enumerate();
            let numbers = numbers.filter(|(_, input)| *input != first && !input.row().is_boolean);
            for (slot, input) in numbers {
                for op in from_start(&own.op, input.role() == Role::Cache) {
                    let told = tr!(
                        "the operation of {own} is applied to {input}, which it reads",
                        own = own.name,
                        input
                    );
                    let change = Change::Before(slot, op, beside.to_vec());
                    self.add(Kind::Inserted, cost::RARE, step.name, change, told);
                }
            }
        }
    }

    /// What people do to what a step reads: the same, where the step is more than that.
    fn before(&mut self, step: &Step) {
        let read = self.right.read_by(step);
        let names: Vec<(usize, Name, bool)> = read
            .iter()
            .enumerate()
            .map(|(slot, read)| (slot, read.name, read.name.row().is_boolean))
            .collect();
        let is_own = matches!(step.op, Op::Linear(_) | Op::Weighting(_) | Op::Scaling(_))
            || step.name == Name::VNew
            || step.op == Op::Heads(Heads::Merge);
        let names = names.into_iter().filter(|(_, _, is_boolean)| is_own && !is_boolean);
        for (slot, name, _) in names.collect::<Vec<_>>() {
            if name == Name::DropoutScale {
                continue;
            }
            for (op, told) in functions() {
                let told = tr!("{told} is applied to {name}, which it reads", told, name);
                let change = Change::Before(slot, op, Vec::new());
                self.add(Kind::Inserted, cost::RARE, step.name, change, told);
            }
            self.added_before(step, slot, name);
            for factor in [std::f64::consts::LN_2, std::f64::consts::LOG2_E] {
                let told = tr!(
                    "{name}, which it reads, is multiplied by {factor}",
                    name,
                    factor = short(factor)
                );
                let op = Scaling::By { factor }.into();
                self.add(
                    Kind::Inserted,
                    cost::RARE,
                    step.name,
                    Change::Before(slot, op, Vec::new()),
                    told,
                );
            }
            if name == Name::Sinks {
                let twice = Slip::Add { factor: 1.0, addend: std::f64::consts::LN_2 }.into();
                let change = Change::Before(slot, twice, Vec::new());
                self.add(
                    Kind::Repeated,
                    cost::PLAIN,
                    step.name,
                    change,
                    tr!("the sinks count twice"),
                );
            }
            if name == Name::Sinks
                && let Some(cap) = self.right.step(Name::ScoresCapped)
            {
                let change = Change::Before(slot, cap.op.clone(), Vec::new());
                self.add(
                    Kind::Moved,
                    cost::PLAIN,
                    step.name,
                    change,
                    tr!("the sinks are capped too"),
                );
            }
        }
        if let Op::Linear(Linear::DotProduct) = step.op {
            let norm = || Norm { is_mean: false, ..Norm::rms(0.0) }.into();
            let edits =
                (0..2).map(|slot| Edit::new(step.name, Change::Before(slot, norm(), Vec::new())));
            let told = tr!(
                "cosine similarity, the dot product over both norms, in place of the dot product"
            );
            self.add_all(Kind::Replaced, cost::PLAIN, edits.collect(), step.name, told);
            self.turned_anyway(step);
        }
    }

    /// Heads side by side that are gated by another step, as gated attention does.
    fn gated(&mut self, step: &Step) {
        if step.op != Op::Heads(Heads::Merge) && step.name != Name::Output {
            return;
        }
        for other in self.same_shape(step) {
            for map in [Map::Sigmoid, Map::Silu] {
                let told = tr!("it is multiplied by {value} of {other}", value = map.name(), other);
                let change = after(Scaling::Gate { map }, &[other]);
                self.add(Kind::Inserted, cost::RARE, step.name, change, told);
            }
        }
    }

    /// What is added to what a step reads: another tensor of that shape, or a bias that belongs elsewhere.
    fn added_before(&mut self, step: &Step, slot: usize, name: Name) {
        let Op::Linear(Linear::Project { .. }) = step.op else { return };
        if slot != 0 {
            return;
        }
        let Some(read) = self.right.step(name) else { return };
        let shape = read.axes.shape();
        let own = self.read(step);
        let before = self.right.steps().iter().take_while(|other| other.name != step.name);
        let others: Vec<(Name, bool)> = before
            .filter(|other| other.name != name && !other.name.row().is_boolean)
            .filter(|other| {
                let own = other.axes.shape();
                own == shape || (own.len() == 1 && own.last() == shape.last())
            })
            .map(|other| (other.name, own.get(2) == Some(&other.name)))
            .collect();
        for (other, is_own_bias) in others {
            let add = Change::Before(slot, Slip::SUM.into(), vec![other]);
            let told = tr!("{other} is added to {name}, which it reads", other, name);
            if is_own_bias {
                let without = Change::Read(own.iter().copied().take(2).collect());
                let edits = vec![Edit::new(step.name, without), Edit::new(step.name, add)];
                let told = tr!("{other} is added before the projection, not after it", other);
                self.add_all(Kind::Moved, cost::COMMON, edits, step.name, told);
            } else {
                self.add(Kind::Inserted, cost::RARE, step.name, add, told);
            }
        }
    }

    /// What goes wrong with masks and biases as a whole.
    pub(super) fn inserted_setting(&mut self, step: &Step) {
        if step.name.row().is_boolean || step.axes.rank() == 0 {
            if step.name.role() == Role::Random {
                let not = after(Masking::Not, &[]);
                self.add(
                    Kind::Random,
                    cost::PLAIN,
                    step.name,
                    not,
                    tr!("it is inverted: what it should keep is dropped"),
                );
                self.axes(step);
            }
            return;
        }
        self.axes(step);
        self.rounded(step);
        let change = after(Slip::Map(Map::Negative), &[]);
        self.add(Kind::Inserted, cost::PLAIN, step.name, change, tr!("it has the other sign"));
    }

    /// The steps before a step that have its shape.
    fn same_shape(&self, step: &Step) -> Vec<Name> {
        let shape = step.axes.shape();
        let before = self.right.steps().iter().take_while(|other| other.name != step.name);
        let fits = |other: &&Step| {
            let is_number = !other.name.row().is_boolean && other.name.role() != Role::Setting;
            is_number && other.axes.shape() == shape
        };
        before.filter(fits).map(|other| other.name).collect()
    }

    /// A rearrangement that only names axes otherwise.
    pub(super) fn viewed(step: &Step, view: Vec<usize>, order: Vec<usize>) -> Op {
        let result = step.axes.iter().collect();
        Heads::Rearrange(Rearrange { blocks: Vec::new(), view, order, result }).into()
    }
}

/// An operation, and where all keys are meant, a rotation that begins at the first of them.
fn from_start(op: &Op, is_of_all: bool) -> Vec<Op> {
    let mut all = vec![op.clone()];
    if let (Op::Rotary(Rotary::Rotate(rotate)), true) = (op, is_of_all) {
        all.push(Rotary::Rotate(Rotate { first: 0, ..rotate.clone() }).into());
    }
    all
}
