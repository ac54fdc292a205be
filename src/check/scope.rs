//! What does a program give for the recorded steps, in the whole run or in a part of it?
//!
//! Every recorded step is computed from what was recorded before it, and hands its recorded value on. So a step is judged by
//! itself, however few were recorded: what lies between recorded steps is computed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use candle_core::{DType, Tensor};

use super::agreement::{Agreement, Claim};
use super::compare::compare;
use super::tolerance::Tolerance;
use base::error::{Error, Result};
use program::{Axis, Name, Op, Part, Program, QueryRows, Role, Step, Trace};

/// A recorded run, or a part of it, in which candidates are tried.
pub struct Scope<'a> {
    /// How it is cut out of the whole run.
    parts: Vec<Part>,
    trace: Trace,
    /// The computed steps that were recorded.
    recorded: HashMap<Name, Tensor>,
    agreement: &'a Agreement,
    expected: Prediction,
}

/// Which step of its name a step is: edits can put several in one's place.
type Place = (Name, usize);

/// As an input, the last step of its name.
const LAST: usize = usize::MAX;

/// A step as a program gives it.
struct Predicted {
    op: Op,
    inputs: Vec<Place>,
    value: Tensor,
    /// What later steps read: the recorded value where there is one.
    handed_on: Tensor,
}

/// What a program gives.
#[derive(Default)]
pub struct Prediction {
    steps: HashMap<Place, Arc<Predicted>>,
    /// The recorded steps that it gives other values than expected, in order.
    pub changed: Vec<Name>,
    /// Those that disagree with what was recorded.
    pub disagreeing: Vec<Name>,
}

impl Prediction {
    fn last(&self, name: Name) -> Option<&Predicted> {
        (0..).map_while(|at| self.steps.get(&(name, at))).last().map(AsRef::as_ref)
    }

    /// The value of a step, computed from what was recorded before it.
    pub fn value(&self, name: Name) -> Option<&Tensor> {
        self.last(name).map(|step| &step.value)
    }
}

/// When a run of a faulty program ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    End,
    Disagreement(Claim),
}

/// Why a run of a faulty program ends.
enum Stop {
    Disagrees,
    Fails(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Fails(error)
    }
}

impl<'a> Scope<'a> {
    /// The whole run. `recorded` may hold given tensors too.
    pub fn whole(
        trace: &Trace,
        recorded: &HashMap<Name, Tensor>,
        agreement: &'a Agreement,
    ) -> Result<Self> {
        let computed = recorded.iter().filter(|(name, _)| trace.computes(**name));
        let recorded = computed.map(|(name, value)| (*name, value.clone())).collect();
        Self {
            parts: Vec::new(),
            trace: trace.clone(),
            recorded,
            agreement,
            expected: Prediction::default(),
        }
        .with_expected()
    }

    fn with_expected(mut self) -> Result<Self> {
        let program = self.trace.unrun();
        match self.run(&program, None, Until::End) {
            Ok(expected) => self.expected = expected,
            Err(Stop::Fails(error)) => return Err(error),
            Err(Stop::Disagrees) => {}
        }
        Ok(self)
    }

    /// A part of this scope; nothing if what it gives depends on the rest.
    pub fn narrowed(&self, part: Part) -> Result<Option<Self>> {
        let Some(program) = self.trace.unrun().narrowed(part) else { return Ok(None) };
        let within = |step: &Step, value: &Tensor| match part.within(step) {
            Some(axis) => part.of(value, axis),
            None => Ok(value.clone()),
        };
        let mut whole = self.trace.steps().iter();
        let trace = program.run_with(|step, inputs| {
            match whole.next().filter(|whole| !whole.is_computed()) {
                Some(whole) => Ok::<_, Error>(by_columns(whole, within(whole, &whole.value)?)?),
                None => step.op.eval(inputs),
            }
        })?;
        let steps =
            self.recorded.iter().filter_map(|(name, value)| Some((self.trace.step(*name)?, value)));
        // What all tokens leave behind is not what the first ones do.
        let is_first = matches!(part, Part::First(_));
        let steps = steps.filter(|(step, _)| !is_first || part.within(step).is_some());
        let recorded = steps.map(|(step, value)| Ok((step.name, within(step, value)?)));
        let recorded = recorded.collect::<Result<_>>()?;
        let parts = self.parts.iter().copied().chain([part]).collect();
        Self { parts, trace, recorded, agreement: self.agreement, expected: Prediction::default() }
            .with_expected()
            .map(Some)
    }

    /// The run as it should be.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The noise of the run.
    pub fn agreement(&self) -> &'a Agreement {
        self.agreement
    }

    /// What was recorded of a computed step.
    pub fn recorded(&self, name: Name) -> Option<&Tensor> {
        self.recorded.get(&name)
    }

    /// What a step should be, by what was recorded before it.
    pub fn expected(&self, name: Name) -> Option<&Tensor> {
        self.expected.value(name)
    }

    /// What later steps read of a step: what was recorded, or else what it should be.
    pub fn known(&self, name: Name) -> Option<&Tensor> {
        self.expected.last(name).map(|step| &step.handed_on)
    }

    /// What was recorded of a step beside what it should be, where these have one shape.
    pub fn pair(&self, name: Name) -> Option<(&Tensor, &Tensor)> {
        let (recorded, expected) = (self.recorded(name)?, self.expected(name)?);
        (recorded.dims() == expected.dims()).then_some((recorded, expected))
    }

    /// What a step reads.
    pub fn inputs(&self, step: &Step) -> Option<Vec<&Tensor>> {
        self.trace.read_by(step).into_iter().map(|read| self.known(read.name)).collect()
    }

    /// Whether all that a step reads was recorded or is given.
    pub fn is_direct(&self, step: &Step) -> bool {
        let is_known = |read: &&Step| !read.is_computed() || self.recorded.contains_key(&read.name);
        self.trace.read_by(step).iter().all(is_known)
    }

    /// The recorded steps that are not as they should be.
    pub fn wrong(&self) -> &[Name] {
        &self.expected.disagreeing
    }

    /// Whether these are all that a step follows from but for what was recorded: the step, and what it reads by way of steps
    /// that were not recorded.
    pub fn segment(&self, of: &[Name]) -> HashSet<Name> {
        let mut segment: HashSet<Name> = of.iter().copied().collect();
        for step in self.trace.steps().iter().rev().filter(|step| of.contains(&step.name)) {
            let mut open = vec![step];
            while let Some(step) = open.pop() {
                for read in self.trace.read_by(step) {
                    if !self.recorded.contains_key(&read.name) && segment.insert(read.name) {
                        open.push(read);
                    }
                }
            }
        }
        segment
    }

    /// The same part of another program; nothing where it depends on the rest.
    pub fn part_of(&self, program: &Program) -> Option<Program> {
        let part = self.parts.iter().try_fold(program.clone(), |part, cut| part.narrowed(*cut))?;
        let hides_as_much = || what_hides(part.steps()) == what_hides(self.trace.steps());
        (!self.has_few_keys() || hides_as_much()).then_some(part)
    }

    /// Whether its query rows see few keys, and it has no others.
    pub fn has_few_keys(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Keys(_)))
    }

    /// What a faulty program gives, up to the first recorded step that disagrees with what it `claim`s; nothing where it
    /// fails: code that fails is no mistake that is shipped. The program is one of this part.
    pub fn predict(&self, program: &Program, claim: Claim) -> Option<Prediction> {
        self.run(program, Some(&self.expected), Until::Disagreement(claim)).ok()
    }

    /// The same to its end, whatever disagrees.
    pub fn predict_all(&self, program: &Program) -> Option<Prediction> {
        self.run(program, Some(&self.expected), Until::End).ok()
    }

    /// Runs a program; what is as in `base` is not computed again.
    fn run(
        &self,
        program: &Program,
        base: Option<&Prediction>,
        until: Until,
    ) -> std::result::Result<Prediction, Stop> {
        let mut prediction = Prediction::default();
        let places = places(program);
        let mut at = 0;
        program.run_with(|step, inputs: &[&(Tensor, bool)]| {
            let (place, is_last) = places[at];
            at += 1;
            // The last of a name is the name's, whatever an edit put before it.
            let read = step.inputs.iter().map(|input| match places[*input] {
                ((name, _), true) => (name, LAST),
                (place, false) => place,
            });
            let read: Vec<Place> = read.collect();
            let is_reached = inputs.iter().any(|(_, is_changed)| *is_changed);
            let known = base.and_then(|base| base.steps.get(&place));
            let known =
                known.filter(|known| !is_reached && known.op == step.op && known.inputs == read);
            let recorded = self.recorded.get(&step.name);
            if let Some(known) = known {
                prediction.steps.insert(place, Arc::clone(known));
                // What an edit is made behind hands on what it gives.
                let is_freed = recorded.is_some() && !is_last;
                let handed_on = if is_freed { &known.value } else { &known.handed_on };
                return Ok((handed_on.clone(), is_freed));
            }
            let inputs: Vec<&Tensor> = inputs.iter().map(|(value, _)| value).collect();
            let value = match self.trace.step(step.name) {
                Some(given) if step.op == Op::Given => given.value.clone(),
                Some(right) if base.is_none() && !is_reached => right.value.clone(),
                _ => step.op.eval(&inputs)?,
            };
            let recorded = recorded.filter(|_| is_last);
            if let Some(recorded) = recorded {
                prediction.changed.push(step.name);
                let claim = match until {
                    Until::End => Claim::Expected,
                    Until::Disagreement(claim) => claim,
                };
                if !self.holds(step.name, recorded, &value, claim)? {
                    prediction.disagreeing.push(step.name);
                    if until != Until::End {
                        return Err(Stop::Disagrees);
                    }
                }
            }
            let is_changed =
                base.is_some() && recorded.is_none() || base.is_none() && recorded.is_some();
            let handed_on = recorded.unwrap_or(&value).clone();
            let predicted = Predicted {
                op: step.op.clone(),
                inputs: read,
                value,
                handed_on: handed_on.clone(),
            };
            prediction.steps.insert(place, Arc::new(predicted));
            Ok((handed_on, is_changed || base.is_none() && is_reached))
        })?;
        Ok(prediction)
    }

    /// Whether a value is what was recorded of a step, where anything reads it.
    pub fn holds(
        &self,
        name: Name,
        recorded: &Tensor,
        value: &Tensor,
        claim: Claim,
    ) -> Result<bool> {
        let seen = where_seen(&self.trace, name, recorded, value)?;
        self.agreement.holds(name, seen.as_ref().unwrap_or(recorded), value, claim)
    }

    /// The parts of this scope in which most candidates already fail, the smallest first: the item and the rows in which a
    /// step is furthest off, and of those the keys that they see where a mask hides most.
    pub fn parts(&self, step: Name) -> Result<Vec<Self>> {
        let (mut parts, mut few_keys): (Vec<Self>, _) = (Vec::new(), None);
        for cut in self.worst(step)? {
            let last = parts.last().unwrap_or(self);
            if matches!(cut, Part::Rows(_)) {
                few_keys = last.of_few_keys(step)?;
            }
            let narrowed = last.narrowed(cut)?;
            parts.extend(narrowed);
        }
        parts.extend(few_keys);
        let first = parts.last().unwrap_or(self).of_first_tokens(step)?;
        parts.extend(first);
        parts.reverse();
        Ok(parts)
    }

    /// The item and the rows in which a step is furthest off, where there are more.
    fn worst(&self, step: Name) -> Result<Vec<Part>> {
        let (Some(step), Some((recorded, expected))) = (self.trace.step(step), self.pair(step))
        else {
            return Ok(Vec::new());
        };
        let tolerance =
            Tolerance::of(recorded.dtype()).at_loss(Some(step.name), self.agreement.loss());
        let worst = compare(recorded, expected, tolerance)?.worst;
        let place = |part: Part| {
            let axis = part.within(step)?;
            Some((*worst.get(axis)?, *recorded.dims().get(axis)?))
        };
        let item = place(Part::Item(0)).map(|(item, _)| Part::Item(item));
        let rows = place(Part::Rows(QueryRows { first: 0, count: ROWS }));
        let rows = rows.filter(|(_, size)| *size >= 2 * ROWS).map(|(row, size)| {
            let first = row.saturating_sub(ROWS / 2).min(size - ROWS);
            Part::Rows(QueryRows { first, count: ROWS })
        });
        Ok(item.into_iter().chain(rows).collect())
    }

    /// The tokens up to the first ones that are off, where none reads a later one, as in the delta rule, or where none does
    /// but of its own chunk.
    fn of_first_tokens(&self, name: Name) -> Result<Vec<Self>> {
        let is_token = |(axis, _): (Axis, usize)| matches!(axis, Axis::Query | Axis::Key);
        let is_read_in_turn = self.trace.steps().iter().any(|step| matches!(step.op, Op::Delta(_)));
        let step = self.trace.step(name).filter(|_| is_read_in_turn && name != Name::ChunkStates);
        let axis = step.and_then(|step| step.axes.iter().position(is_token));
        let Some((at, tokens)) = axis.and_then(|at| Some((at, self.recorded(name)?.dim(at).ok()?)))
        else {
            return Ok(Vec::new());
        };
        let count = self.first_off(name, at)?.unwrap_or(0) + ROWS;
        let ends = CHUNKS.into_iter().chain([1]).map(|size| count.next_multiple_of(size));
        let mut counts: Vec<usize> = ends.filter(|count| *count < tokens).collect();
        counts.dedup();
        let parts = counts.into_iter().map(|count| self.narrowed(Part::First(count)));
        Ok(parts.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// The first query rows that are off, with the keys alone that they see, where a mask hides most of the others from
    /// them. What a mistake makes of the hidden keys and values need not be computed there.
    fn of_few_keys(&self, name: Name) -> Result<Option<Self>> {
        let (Some(step), Some(weights)) = (self.trace.step(name), self.expected(Name::Weights))
        else {
            return Ok(None);
        };
        let at = step.axes.iter().position(|(axis, size)| axis == Axis::Query && size >= 2 * ROWS);
        let (Some(at), &[_, _, queries, keys]) = (at, weights.dims()) else { return Ok(None) };
        let first = self.first_off(name, at)?.unwrap_or(0);
        let rows = QueryRows { first: first.min(queries - ROWS), count: ROWS };
        let seen = weights.narrow(2, rows.first, rows.count)?.to_dtype(DType::F64)?;
        let seen = seen.flatten(0, 2)?.abs()?.max(0)?.to_vec1::<f64>()?;
        let count = seen.iter().rposition(|most| *most != 0.0).map_or(keys, |last| last + 1);
        let has_keys_of_its_own = |step: &Step| {
            let mut axes = step.axes.iter();
            axes.any(|(axis, size)| axis == Axis::Key && (size != keys || step.op == Op::Given))
        };
        if 2 * count > keys || self.trace.steps().iter().any(has_keys_of_its_own) {
            return Ok(None);
        }
        let tokens = Part::Tokens { count: count.max(rows.first + ROWS), all: queries };
        let mut part = self.narrowed(Part::Rows(rows))?;
        for cut in [Part::Keys(count), tokens] {
            part = part.map_or(Ok(None), |part| part.narrowed(cut))?;
        }
        Ok(part)
    }

    /// Along each axis of a step, the places where it is wrong, if it is right at others; the narrowest first.
    pub fn places_off(&self, name: Name) -> Result<Vec<(usize, Vec<usize>)>> {
        let (Some(step), Some((recorded, expected))) = (self.trace.step(name), self.pair(name))
        else {
            return Ok(Vec::new());
        };
        let mut off = Vec::new();
        for (axis, (_, size)) in step.axes.iter().enumerate().filter(|(_, (_, size))| *size > 1) {
            let places = self.off_along(name, (recorded, expected), axis);
            let places: Vec<usize> = places.collect::<Result<_>>()?;
            if !places.is_empty() && places.len() < size {
                off.push((axis, places, size));
            }
        }
        off.sort_by(|(_, left, of_left), (_, right, of_right)| {
            (left.len() * of_right).cmp(&(right.len() * of_left))
        });
        Ok(off.into_iter().map(|(axis, places, _)| (axis, places)).collect())
    }

    /// The first place of an axis at which a step is wrong.
    fn first_off(&self, name: Name, axis: usize) -> Result<Option<usize>> {
        let Some(pair) = self.pair(name) else { return Ok(None) };
        self.off_along(name, pair, axis).next().transpose()
    }

    /// The places of an axis at which what was recorded of a step is not what is expected, as they are asked for.
    fn off_along(
        &self,
        name: Name,
        (recorded, expected): (&Tensor, &Tensor),
        axis: usize,
    ) -> impl Iterator<Item = Result<usize>> {
        let is_off = move |place: usize| -> Result<bool> {
            let slice = |tensor: &Tensor| tensor.narrow(axis, place, 1)?.contiguous();
            let (recorded, expected) = (slice(recorded)?, slice(expected)?);
            Ok(!self.agreement.holds(name, &recorded, &expected, Claim::Mistake)?)
        };
        let count = recorded.dims().get(axis).copied().unwrap_or(0);
        (0..count).filter_map(move |place| match is_off(place) {
            Ok(is_off) => is_off.then_some(Ok(place)),
            Err(error) => Some(Err(error)),
        })
    }
}

/// How many query rows are looked at first.
const ROWS: usize = 8;

/// How long chunks of kernels are, the longest first: shorter ones end there as well.
const CHUNKS: [usize; 3] = [64, 32, 16];

/// Of every step of a program, which one of its name it is, and whether it is the last, whose value is the name's.
fn places(program: &Program) -> Vec<(Place, bool)> {
    let mut counts: HashMap<Name, usize> = HashMap::new();
    let mut place = |step: &Step<()>| {
        let count = counts.entry(step.name).or_default();
        *count += 1;
        (step.name, *count - 1)
    };
    let places: Vec<Place> = program.steps().iter().map(&mut place).collect();
    let is_last = |(name, at): &Place| counts.get(name) == Some(&(at + 1));
    places.into_iter().map(|place| (place, is_last(&place))).collect()
}

/// A weight with its columns one behind the other, as products of a few rows with its transpose read it: gathered anew for
/// each of them, they take most of the time.
fn by_columns(step: &Step, value: Tensor) -> candle_core::Result<Tensor> {
    match value.rank() {
        2 if step.name.role() == Role::Parameter => value.t()?.contiguous()?.t(),
        _ => Ok(value),
    }
}

/// The steps that tell which keys have no weight, and what they read: masks, and from the masked scores on all that have an
/// axis for keys or read one.
fn what_hides<V>(steps: &[Step<V>]) -> Vec<(&Op, Vec<Name>)> {
    let has_keys = |step: &Step<V>| step.axes.iter().any(|(axis, _)| axis == Axis::Key);
    let masked = steps.iter().position(|step| step.name == Name::MaskedScores);
    let mut hiding = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let read: Vec<&Step<V>> = step.inputs.iter().filter_map(|at| steps.get(*at)).collect();
        let is_behind = masked.is_some_and(|masked| at >= masked);
        let is_mask = step.name.role() == Role::Setting && step.op != Op::Given;
        if is_mask || is_behind && (has_keys(step) || read.iter().any(|read| has_keys(read))) {
            hiding.push((&step.op, read.iter().map(|read| read.name).collect()));
        }
    }
    hiding
}

/// Scores before the mask, with other ones in the cells that it blocks: nothing reads those. Nothing for other steps.
pub fn where_seen(
    trace: &Trace,
    name: Name,
    recorded: &Tensor,
    value: &Tensor,
) -> Result<Option<Tensor>> {
    let is_before = trace.position(name) < trace.position(Name::MaskedScores);
    let mask = trace.mask_of_scores().filter(|_| name.row().is_of_scores() && is_before);
    match mask {
        Some(mask) if recorded.dims() == value.dims() => {
            let value = value.to_dtype(recorded.dtype())?;
            Ok(Some(mask.value.broadcast_as(value.shape())?.where_cond(&value, recorded)?))
        }
        Some(_) | None => Ok(None),
    }
}
