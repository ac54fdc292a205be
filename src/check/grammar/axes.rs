//! Which axes can be confused, so that numbers stand in other places?

use super::{Grammar, after};
use crate::candidate::cost;
use program::{
    Along, Axis, Change, Edit, Gradient, Heads, Kind, Name, Op, Rearrange, Role, Scaling, Slip,
    Step,
};

impl Grammar<'_> {
    pub(super) fn axes(&mut self, step: &Step) {
        let name = step.name;
        if let Op::Heads(Heads::Split { .. }) = step.op {
            self.split(step);
        }
        if let Op::Heads(Heads::Merge) = step.op {
            self.merged(step);
        }
        self.weights(step);
        for (op, told, cost) in self.moves(step) {
            self.add(Kind::Axes, cost, name, after(op, &[]), tr!("it is {told}", told));
        }
        // Where an input is more than passed on, what reads it can read it wrongly.
        let is_product = matches!(
            step.op,
            Op::Linear(_)
                | Op::Heads(Heads::Append)
                | Op::Gradient(Gradient::Product(_) | Gradient::Softmax)
                | Op::Slip(Slip::Anew { .. })
                | Op::Scaling(Scaling::Dequantize(_))
        );
        let read = self.right.read_by(step);
        let read: Vec<(usize, &Step)> = read.into_iter().enumerate().collect();
        for (slot, input) in read {
            let is_weight = input.name.role() == Role::Parameter;
            let is_merged = step.op == Op::Heads(Heads::Merge);
            let is_gate = slot > 0 && matches!(step.op, Op::Scaling(Scaling::Gate { .. }));
            if !is_product && !is_weight && !is_merged && !is_gate {
                continue;
            }
            for (op, told, cost) in self.moves(input) {
                let change = Change::Before(slot, op, Vec::new());
                let told = tr!("it reads {input} {told}", input = input.name, told);
                self.add(Kind::Axes, cost, name, change, told);
            }
        }
    }

    /// The ways to put a step's numbers in other places: by its axes, and by the heads that its features are those of.
    pub(super) fn moves(&self, step: &Step) -> Vec<(Op, String, u32)> {
        let mut all = rearrangements(step);
        all.extend(self.pointers(step));
        let (heads, width) = (self.sizes.heads, self.sizes.head_dim);
        let axis = step.axes.rank().saturating_sub(1);
        let is_of_heads =
            step.name == Name::Gate && step.axes.shape().last() == Some(&(heads * width));
        if !is_of_heads || heads < 2 {
            return all;
        }
        let mut take = |from: fn(usize, usize) -> (usize, bool), told: &str| {
            let place = |at: usize| {
                let (head, is_first) = from(at / width, heads);
                head * width + if is_first { 0 } else { at % width }
            };
            let along = Along::Take((0..heads * width).map(place).collect());
            all.push((Slip::Along(axis, along).into(), told.to_owned(), cost::PLAIN));
        };
        take(|head, heads| (heads - 1 - head, false), tr!("with the heads in reverse"));
        take(
            |head, heads| ((head + 1) % heads, false),
            tr!("with that of the next head for each head"),
        );
        take(
            |head, heads| ((head + heads - 1) % heads, false),
            tr!("with that of the head before for each head"),
        );
        take(|_, _| (0, false), tr!("with that of the first head for each head"));
        take(
            |head, _| (head, true),
            tr!("with one number for each head, that of its first feature"),
        );
        all
    }

    /// Weights and biases whose rows are those of heads, laid out with the axes in another order.
    fn weights(&mut self, step: &Step) {
        let head_dim = self.sizes.head_dim.max(1);
        for (slot, name) in self.read(step).into_iter().enumerate() {
            let read = self.right.step(name).filter(|_| name.role() == Role::Parameter);
            let Some(dims) = read.map(|read| read.axes.iter().collect::<Vec<_>>()) else {
                continue;
            };
            let sizes: Vec<usize> = dims.iter().map(|(_, size)| *size).collect();
            let Some((rows, rest)) = sizes.split_first() else { continue };
            if !matches!(step.name, Name::Q | Name::K | Name::V) || rows % head_dim != 0 {
                continue;
            }
            let view = [&[rows / head_dim, head_dim], rest].concat();
            let names = &["head", "feature", "input"][..view.len()];
            for order in permutations(view.len()) {
                let told: Vec<&str> = order.iter().map(|at| names[*at]).collect();
                let told = tr!(
                    "it reads {name} as if it were stored as ({told})",
                    name,
                    told = told.join(", ")
                );
                let stored: Vec<usize> = order.iter().map(|at| view[*at]).collect();
                for (view, order) in [(view.clone(), order.clone()), (stored, inverse(&order))] {
                    let rearrange =
                        Rearrange { blocks: Vec::new(), view, order, result: dims.clone() };
                    let change = Change::before(slot, Heads::Rearrange(rearrange));
                    self.add(Kind::Axes, cost::RARE, step.name, change, &told);
                }
            }
        }
    }

    /// Features that are split into heads with the axes in another order.
    fn split(&mut self, step: &Step) {
        let sizes = step.axes.shape();
        self.reordered(step, "token", tr!("the features are viewed as"), |order| {
            let view = order.iter().map(|at| sizes[*at]).collect();
            Self::viewed(step, view, inverse(order))
        });
    }

    /// Heads that are put side by side with the axes in another order, or as their mean.
    fn merged(&mut self, step: &Step) {
        let Some(heads) = self.right.read_by(step).first().map(|read| read.axes.shape()) else {
            return;
        };
        self.reordered(step, "query", tr!("the heads are merged as"), |order| {
            Self::viewed(step, heads.clone(), order.to_vec())
        });
        let factor = (self.sizes.heads as f64).recip();
        let edits = vec![
            Edit::new(step.name, Change::Replace(Heads::Sum.into())),
            Edit::new(step.name, after(Scaling::By { factor }, &[])),
        ];
        let told = tr!("the mean of the heads stands in every head's place");
        self.add_all(Kind::Axes, cost::PLAIN, edits, step.name, told);
    }

    /// Every order of (batch, head, `tokens`, feature) but the right one.
    fn reordered(&mut self, step: &Step, tokens: &str, told: &str, op: impl Fn(&[usize]) -> Op) {
        let names = ["batch", "head", tokens, "feature"];
        for order in permutations(names.len()) {
            if order == [0, 2, 1, 3] {
                continue;
            }
            let axes: Vec<&str> = order.iter().map(|at| names[*at]).collect();
            let told = format!("{told} ({})", axes.join(", "));
            let cost = if order[0] == 0 { cost::COMMON } else { cost::RARE };
            self.add(Kind::Axes, cost, step.name, Change::Replace(op(&order)), told);
        }
    }
}

/// The ways to put a step's numbers in other places of the same shape: an operation, words that go on behind "it is" or
/// "it reads x", and what it costs.
#[allow(clippy::too_many_lines, reason = "a list of ways, one after the other")]
fn rearrangements(step: &Step) -> Vec<(Op, String, u32)> {
    let dims: Vec<(Axis, usize)> = step.axes.iter().collect();
    let sizes = step.axes.shape();
    let mut all = Vec::new();
    let viewed = |view: &[usize], order: &[usize]| {
        let (view, order) = (view.to_vec(), order.to_vec());
        let rearrange = Rearrange { blocks: Vec::new(), view, order, result: dims.clone() };
        Op::from(Heads::Rearrange(rearrange))
    };
    let label = |at: usize| word(step.name, dims[at].0);
    for order in permutations(sizes.len()) {
        let moved: Vec<usize> = (0..order.len()).filter(|at| order[*at] != *at).collect();
        if moved.iter().all(|at| sizes[*at] == 1) || sizes.len() < 2 {
            continue;
        }
        let names: Vec<&str> = order.iter().map(|at| label(*at)).collect();
        let names = names.join(", ");
        let permuted: Vec<usize> = order.iter().map(|at| sizes[*at]).collect();
        let cost = if moved.len() == 2 { cost::PLAIN } else { cost::ODD };
        if permuted == sizes {
            let told = match moved[..] {
                [first, second] => {
                    tr!(
                        "transposed: {label} and {second} change places",
                        label = label(first),
                        second = label(second)
                    )
                }
                _ => tr!("transposed to ({names})", names),
            };
            all.push((viewed(&sizes, &order), told, cost));
        } else {
            let told = tr!("transposed to ({names}) and viewed in the old shape", names);
            all.push((viewed(&sizes, &order), told, cost + 1));
            let told = tr!("viewed as ({names}), with no transposition", names);
            all.push((viewed(&permuted, &inverse(&order)), told, cost + 1));
        }
    }
    for (axis, size) in sizes.iter().copied().enumerate().filter(|(_, size)| *size > 1) {
        let mut take = |places: Vec<usize>, told: String, cost: u32| {
            all.push((Slip::Along(axis, Along::Take(places)).into(), told, cost));
        };
        let name = label(axis);
        take((0..size).rev().collect(), tr!("reversed along the {name} axis", name), cost::PLAIN);
        let later = (0..size).map(|at| (at + size - 1) % size).collect();
        take(
            later,
            tr!("shifted by one place along the {name} axis, around its end", name),
            cost::PLAIN,
        );
        let earlier = (0..size).map(|at| (at + 1) % size).collect();
        take(
            earlier,
            tr!("shifted back by one place along the {name} axis, around its end", name),
            cost::PLAIN,
        );
        let before = (0..size).map(|at: usize| at.saturating_sub(1)).collect();
        take(before, tr!("one place late along the {name} axis, the first twice", name), cost::ODD);
        let behind = (0..size).map(|at| (at + 1).min(size - 1)).collect();
        take(behind, tr!("one place early along the {name} axis, the last twice", name), cost::ODD);
        take(vec![0; size], tr!("the first of the {name} axis everywhere", name), cost::RARE);
        take(vec![size - 1; size], tr!("the last of the {name} axis everywhere", name), cost::RARE);
        // Value heads, or query heads, taken for the key heads that they share.
        let groups = (2..size).filter(|group| dims[axis].0 == Axis::Head && size % group == 0);
        for group in groups {
            let told = tr!("with that of head h // {group} for head h", group);
            take((0..size).map(|head| head / group).collect(), told, cost::PLAIN);
            let told = tr!("with that of head h % {group} for head h", group);
            take((0..size).map(|head| head % group).collect(), told, cost::PLAIN);
        }
        let mut other = |along: Along, told: String, cost: u32| {
            all.push((Slip::Along(axis, along).into(), told, cost));
        };
        other(
            Along::Slide,
            tr!("one place late along the {name} axis, with 0 first", name),
            cost::PLAIN,
        );
        for (places, which) in [(vec![size - 1], tr!("last")), (vec![0], tr!("first"))] {
            let told = tr!("without the {which} place of the {name} axis, which is 0", which, name);
            other(Along::Zero(places), told, cost::PLAIN);
        }
        if dims[axis].0 != Axis::Key || !step.name.row().is_of_scores() {
            let reduce = |is_mean| Along::Reduce { is_mean };
            other(reduce(false), tr!("summed over the {name} axis", name), cost::PLAIN);
            other(reduce(true), tr!("averaged over the {name} axis", name), cost::PLAIN);
            let told = tr!("added up along the {name} axis, each place to those before", name);
            other(Along::Accumulate, told, cost::RARE);
        }
        let mut take = |places: Vec<usize>, told: String, cost: u32| {
            all.push((Slip::Along(axis, Along::Take(places)).into(), told, cost));
        };
        if size > 2 && size % 2 == 0 {
            let half = size / 2;
            let halves = (0..size).map(|at| (at + half) % size).collect();
            take(halves, tr!("with the halves of the {name} axis exchanged", name), cost::RARE);
            for (from, which) in [(0, tr!("first")), (half, tr!("second"))] {
                let twice = (0..size).map(|at| from + at % half).collect();
                take(
                    twice,
                    tr!("the {which} half of the {name} axis twice", which, name),
                    cost::RARE,
                );
            }
            let pairs = (0..size).map(|at| at ^ 1).collect();
            take(pairs, tr!("with neighbours of the {name} axis exchanged", name), cost::RARE);
        }
        for groups in (2..size).filter(|groups| size % groups == 0) {
            let each = size / groups;
            let tiled = (0..size).map(|at| at % groups * each + at / groups).collect();
            let told =
                tr!("with the {name} axis read as {groups} interleaved groups", name, groups);
            take(tiled, told, cost::RARE);
        }
    }
    all
}

/// What an axis of a step is called.
fn word(step: Name, axis: Axis) -> &'static str {
    match axis {
        Axis::Key | Axis::Query if !step.row().is_of_scores() => "token",
        Axis::Model | Axis::HeadDim | Axis::Input => "feature",
        Axis::ValueDim => "value feature",
        Axis::Bucket => "bucket",
        Axis::Slot => "slot",
        Axis::Split => "split",
        Axis::Tile => "tile",
        Axis::Batch => "batch",
        Axis::Head => "head",
        Axis::Query => "query",
        Axis::Key => "key",
    }
}

/// Every order of so many axes but the one that they have.
fn permutations(count: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..count {
        let longer = |order: &Vec<usize>| {
            let rest = (0..count).filter(|at| !order.contains(at));
            rest.map(|at| [order.as_slice(), &[at]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all.retain(|order| order.iter().enumerate().any(|(at, axis)| at != *axis));
    all
}

fn inverse(order: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; order.len()];
    for (at, axis) in order.iter().enumerate() {
        inverse[*axis] = at;
    }
    inverse
}
