//! Which tokens, features and states does the delta rule leave out, and what else is wrong at all of its steps at once?

use super::applied::functions;
use super::{Grammar, after};
use crate::candidate::{Edits, cost};
use program::{Along, Change, Delta, DeltaSlip, Edit, Kind, Name, Op, Scaling, Slip, Step};

/// The sizes of chunks of which kernels lose a token, and of blocks of features.
const BLOCKS: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];

/// Beyond so many tokens no single ones are looked at.
const MANY_TOKENS: usize = 128;

/// Of more states not every pair is tried.
const MOST_STATES: usize = 32;

/// The first token of a sequence, and the one behind its last.
type Span = (usize, usize);

impl Grammar<'_> {
    /// What goes wrong in the delta rule.
    pub(super) fn of_delta(&mut self) {
        let right = self.right;
        let Some(written) = right.step(Name::VNew) else { return };
        let [values, keys, beta, ..] = right.read_by(written)[..] else { return };
        for slip in DeltaSlip::ALL {
            let other = |_: &Step, own: &Delta| {
                let (_, other) = own.mistaken().into_iter().find(|(made, _)| *made == slip)?;
                Some(Change::Replace(other.into()))
            };
            self.throughout(Kind::Replaced, cost::COMMON, other, slip.told());
        }
        self.unwritten(written);
        self.of_blocks(keys, written);
        for (slot, input) in [(0, values), (2, beta)] {
            for (op, told, cost) in self.moves(input) {
                let told = tr!("it reads {input} {told}", input = input.name, told);
                let change = Change::Before(slot, op, Vec::new());
                self.add(Kind::Axes, cost, written.name, change, told);
            }
        }
        self.of_decay();
        self.of_keys(keys);
        if let Some(initial) = right.step(Name::InitialState) {
            for (op, told, cost) in self.moves(initial) {
                let told = tr!("it reads {input} {told}", input = initial.name, told);
                let last = |step: &Step, _: &Delta| {
                    let slot = step.inputs.len().checked_sub(1)?;
                    Some(Change::Before(slot, op.clone(), Vec::new()))
                };
                self.throughout(Kind::Axes, cost, last, told);
            }
            self.states_of_others(initial);
        }
        self.other_spans();
        self.spans_of_chunks();
    }

    /// One item's head that starts from the initial state of another one.
    fn states_of_others(&mut self, initial: &Step) {
        let [items, heads, ..] = initial.axes.shape()[..] else { return };
        if items * heads > MOST_STATES {
            return;
        }
        let places = || (0..items).flat_map(move |item| (0..heads).map(move |head| (item, head)));
        let all_but = |count: usize, one: usize| (0..count).filter(|at| *at != one).collect();
        for own in places() {
            for other in places().filter(|other| *other != own) {
                // Of all that is taken from elsewhere, one place keeps it.
                let take = |axis, count, from| {
                    (Slip::Along(axis, Along::Take(vec![from; count])), Vec::new())
                };
                let only = |axis, places| (Slip::Only { axis, places }, vec![initial.name]);
                let ops = [
                    take(0, items, other.0),
                    take(1, heads, other.1),
                    only(0, all_but(items, own.0)),
                    only(1, all_but(heads, own.1)),
                ];
                let changes = |step: &Step, _: &Delta| {
                    let slot = step.inputs.len().saturating_sub(1);
                    ops.clone().map(|(op, beside)| Change::Before(slot, op.into(), beside))
                };
                let told = tr!(
                    "head {head} of item {item} starts from the initial state of head {head_2} of item {item_2}",
                    head = own.1,
                    item = own.0,
                    head_2 = other.1,
                    item_2 = other.0
                );
                self.throughout(Kind::Axes, cost::RARE, changes, told);
            }
        }
    }

    /// Notes the same mistake at all steps of the rule that can have it, where there are several.
    fn throughout<C: IntoIterator<Item = Change>>(
        &mut self,
        kind: Kind,
        cost: u32,
        changes: impl Fn(&Step, &Delta) -> C,
        told: impl AsRef<str>,
    ) {
        let mut edits = Edits::new();
        for step in self.right.steps() {
            if let Op::Delta(own) = &step.op {
                edits.extend(changes(step, own).into_iter().map(|one| Edit::new(step.name, one)));
            }
        }
        if let [first, _, ..] = &edits[..] {
            let at = first.at;
            self.add_all(kind, cost, edits, at, told);
        }
    }

    /// An operation on the keys, which all steps read second.
    fn at_keys(&mut self, kind: Kind, cost: u32, op: &Op, told: impl AsRef<str>) {
        let change = |_: &Step, _: &Delta| Some(Change::Before(1, op.clone(), Vec::new()));
        self.throughout(kind, cost, change, told);
    }

    /// Tokens that are not written into the state.
    fn unwritten(&mut self, written: &Step) {
        let tokens = written.axes.shape().get(2).copied().unwrap_or(0);
        let mut all: Vec<(Vec<usize>, String)> = Vec::new();
        if tokens <= MANY_TOKENS {
            all.extend((0..tokens).map(|token| {
                (vec![token], tr!("token {token} is not written into the state", token))
            }));
        }
        for size in BLOCKS.into_iter().filter(|size| *size < tokens) {
            let last = (size - 1..tokens).step_by(size).collect();
            let told =
                tr!("the last token of every chunk of {size} is not written into the state", size);
            all.push((last, told));
            let first = (size..tokens).step_by(size).collect();
            let told = tr!(
                "the first token of every chunk of {size} but the first is not written into the state",
                size
            );
            all.push((first, told));
        }
        for (places, told) in all {
            let none = Slip::Along(2, Along::Zero(places)).into();
            self.at_keys(Kind::Axes, cost::PLAIN, &none, told);
        }
    }

    /// Features that no block of a kernel has.
    fn of_blocks(&mut self, keys: &Step, written: &Step) {
        let behind = |step: &Step| -> Vec<(usize, Op)> {
            let size = step.axes.shape().last().copied().unwrap_or(0);
            let mut counts: Vec<usize> = BLOCKS.into_iter().chain([1, size / 2]).collect();
            counts.sort_unstable();
            counts.dedup();
            let fits = counts.into_iter().filter(|count| (1..size).contains(count));
            fits.map(|count| (count, Slip::Along(3, Along::Zero((count..size).collect())).into()))
                .collect()
        };
        for (count, none) in behind(keys) {
            let told =
                tr!("only the first {count} features of the keys are written and read", count);
            self.at_keys(Kind::Axes, cost::RARE, &none, told);
        }
        for name in [written.name, Name::HeadOutputs] {
            for (count, none) in behind(written) {
                let told = tr!("only its first {count} features are computed", count);
                self.add(Kind::Axes, cost::PLAIN, name, after(none, &[]), told);
            }
        }
    }

    /// What is done to the logarithm of the decay.
    fn of_decay(&mut self) {
        let Some(decay) = self.right.step(Name::Decay) else { return };
        let mean = || Along::Reduce { is_mean: true };
        let all = [
            (2, mean(), tr!("the logarithm of the decay is averaged over the tokens")),
            (3, mean(), tr!("the logarithm of the decay is averaged over the features")),
            (2, Along::Accumulate, tr!("the logarithm of the decay is added up over the tokens")),
        ];
        for (axis, along, told) in all.into_iter().filter(|(axis, ..)| *axis < decay.axes.rank()) {
            let change = Change::before(0, Slip::Along(axis, along));
            self.add(Kind::Axes, cost::PLAIN, decay.name, change, told);
        }
        let tokens = decay.axes.shape().get(2).copied().unwrap_or_default();
        for size in BLOCKS.into_iter().filter(|size| tokens > 1 && *size < 2 * tokens) {
            let before = (0..tokens).map(|token: usize| token.saturating_sub(1)).collect();
            let starts = (0..tokens).step_by(size).collect();
            let edits = [Along::Take(before), Along::Zero(starts)]
                .map(|along| Edit::new(decay.name, Change::before(0, Slip::Along(2, along))));
            let told = if size < tokens {
                tr!(
                    "it is added up over the tokens before in chunks of {size}, without the token's own: each has that of the one before, the first of a chunk none",
                    size
                )
            } else {
                tr!("each token has that of the one before, and the first none").to_owned()
            };
            self.add_all(Kind::Axes, cost::PLAIN, edits.to_vec(), decay.name, told);
        }
    }

    /// Documents that begin with the chunk that their first token stands in, or with the next one.
    fn spans_of_chunks(&mut self) {
        let tokens = self.sizes.own_keys;
        for size in BLOCKS.into_iter().filter(|size| *size < tokens) {
            let up = |place: usize| place.next_multiple_of(size).min(tokens);
            let down = |place: usize| if place == tokens { place } else { place / size * size };
            let all: [(&dyn Fn(usize) -> usize, &str); 2] = [
                (
                    &up,
                    &tr!(
                        "the state is started anew at the first chunk of {size} that begins at a document's first token or behind it, not at that token",
                        size
                    ),
                ),
                (
                    &down,
                    &tr!(
                        "the state is started anew at the chunk of {size} that holds a document's first token, not at that token",
                        size
                    ),
                ),
            ];
            for (place, told) in all {
                let change = |_: &Step, own: &Delta| {
                    let moved = |(from, to): &Span| (place(*from), place(*to));
                    let spans = own.spans.iter().map(|spans| spans.iter().map(moved).collect());
                    let other = Delta { spans: spans.collect(), ..own.clone() };
                    let is_packed = own.spans.iter().any(|spans| spans.len() > 1);
                    (is_packed && other != *own).then(|| Change::Replace(other.into()))
                };
                self.throughout(Kind::Axes, cost::PLAIN, change, told);
            }
        }
    }

    /// What is done to keys at every step that reads them, where they are given, and no step is there to be changed.
    fn of_keys(&mut self, keys: &Step) {
        let factor = (self.sizes.head_dim as f64).sqrt().recip();
        let told = tr!("the keys are scaled like the queries");
        self.at_keys(Kind::Inserted, cost::PLAIN, &Scaling::By { factor }.into(), told);
        if keys.is_computed() {
            return;
        }
        for (op, told) in functions() {
            let told = tr!("{told} is applied to {name}, which it reads", told, name = keys.name);
            self.at_keys(Kind::Inserted, cost::RARE, &op, told);
        }
        for (op, told, cost) in self.moves(keys) {
            let told = tr!("it reads {input} {told}", input = keys.name, told);
            self.at_keys(Kind::Axes, cost, &op, told);
        }
    }

    /// Sequences that begin or end one token off, and what is behind them.
    fn other_spans(&mut self) {
        let tokens = self.sizes.own_keys;
        let moved = |place: usize, is_later: bool| match is_later {
            _ if place == 0 || place == tokens => place,
            true => place + 1,
            false => place - 1,
        };
        let all: [(_, &dyn Fn(Span) -> Span); 3] = [
            (tr!("padding is written into the state"), &|_| (0, tokens)),
            (tr!("sequences end one token too late"), &|(from, to)| {
                (moved(from, true), moved(to, true))
            }),
            (tr!("sequences end one token early"), &|(from, to)| {
                (moved(from, false), moved(to, false))
            }),
        ];
        for (told, span) in all {
            let change = |_: &Step, own: &Delta| {
                let is_packed = own.spans.iter().any(|spans| spans.len() > 1);
                let spans = own.spans.iter().map(|spans| spans.iter().map(|own| span(*own)));
                let spans: Vec<Vec<_>> = spans.map(Iterator::collect).collect();
                let is_whole = is_packed && spans.iter().flatten().all(|own| *own == (0, tokens));
                let other = Delta { spans, ..own.clone() };
                (!is_whole && other != *own).then(|| Change::Replace(other.into()))
            };
            self.throughout(Kind::Axes, cost::PLAIN, change, told);
        }
        let spans = self.right.steps().iter().find_map(|step| match &step.op {
            Op::Delta(own) => Some(own.spans.clone()),
            _ => None,
        });
        for (item, own) in spans.iter().flatten().enumerate() {
            for at in 1..own.len().min(MANY_TOKENS) {
                let change = |_: &Step, own: &Delta| {
                    let mut spans = own.spans.clone();
                    let of_item = spans.get_mut(item)?;
                    of_item.get_mut(at)?.0 = of_item.get(at - 1)?.0;
                    Some(Change::Replace(Delta { spans, ..own.clone() }.into()))
                };
                let told = tr!(
                    "the state is not started anew at document {at} alone: it goes on from the one before",
                    at
                );
                self.throughout(Kind::Replaced, cost::PLAIN, change, told);
            }
        }
    }
}
