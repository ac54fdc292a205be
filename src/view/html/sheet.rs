//! What a page says of every step, derived from programs and their values.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use candle_core::{DType, Tensor};
use serde::Serialize;
use serde_json::{Value, json};

use super::address::address;
use super::notes::{Note, notes};
use super::thin::{Kept, Sizes};
use crate::explain::words;
use crate::label::{axis_name, beside, constant, fill, is_every, moves, shape, shows_blocked};
use crate::trace::{BLOCKED, DROPPED, KEPT, VISIBLE};
use base::error::{Result, shown};
use config::{Config, Labels};
use file::{dtype_name, json_number};
use program::{
    Axes, Axis, Cell, Dim, Name, Op, Pattern, Program, Role, Step, Term, Trace, unravel,
};

/// The decimals of a page's numbers, as those of the tool's tables.
pub const DECIMALS: usize = 3;
/// A step whose cells have no rule is told cell by cell if it has no more cells than this.
const MOST_CELLS: usize = 1000;

/// What a page says of a step.
pub struct StepSheet {
    pub name: String,
    pub title: Cow<'static, str>,
    pub formula: Option<String>,
    pub constant: Option<String>,
    pub moves: Vec<String>,
    pub why: &'static str,
    pub shape: String,
    pub axes: Sizes,
    /// The steps that it reads.
    pub inputs: Vec<usize>,
    /// Whether it is listed behind the others.
    pub is_detail: bool,
    /// How it compares: the badge's name, and what it says.
    pub badge: Option<(&'static str, String)>,
    /// The cell that is furthest off.
    pub worst: Option<Vec<usize>>,
    /// Its values: of a trace one, of a comparison those of the two sides, or one that both share.
    pub sides: Vec<Option<Tensor>>,
    /// What the script needs beside that.
    pub data: StepData,
}

/// What the script needs of a step.
#[derive(Serialize, Default)]
pub struct StepData {
    axes: Vec<AxisData>,
    inputs: Vec<usize>,
    pattern: Option<Pattern>,
    /// What there is to say of its cells.
    notes: Vec<Note>,
    /// The terms of every cell, where there is no rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    cells: Option<Vec<Value>>,
    /// The steps that say which of its cells are blocked.
    blocked: Vec<usize>,
    /// The text of blocked cells, and the mask that says which.
    fill: Option<(String, usize)>,
    /// The least and the most that its values can be, where that is known: then they are shown from light to dark.
    range: Option<(f64, f64)>,
    is_share: bool,
    /// What a mask that follows from the settings is called in words, by item.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    called: Vec<String>,
    /// Of booleans the sign and the word of false, and those of true.
    flags: Option<[[&'static str; 2]; 2]>,
    /// The place of the head axis before those of a table, or −1.
    head: i8,
    is_given: bool,
    /// Whether it is made of the input, directly or through others.
    is_of_input: bool,
}

#[derive(Serialize)]
struct AxisData {
    name: String,
    size: usize,
    /// What a place on it is called, if not by the axis' name.
    #[serde(skip_serializing_if = "Option::is_none")]
    called: Option<&'static str>,
    /// Whether its only place stands for all.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    every: bool,
    /// The tokens' labels, and positions where only some queries are computed, by item.
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<Vec<Vec<String>>>,
}

impl StepSheet {
    /// `2 × 4 × 4`: a batch of one item says nothing.
    pub fn size(&self) -> String {
        let says = |(at, (name, size)): &(usize, &(String, usize))| {
            *at > 0 || *size != 1 || name != Axis::Batch.name() || self.axes.len() == 1
        };
        let sizes = self.axes.iter().enumerate().filter(says);
        let sizes: Vec<String> = sizes.map(|(_, (_, size))| size.to_string()).collect();
        if sizes.is_empty() { "1".to_owned() } else { sizes.join(" × ") }
    }

    /// A tensor of which a file says no more than this.
    pub fn of_file(
        name: &str,
        axes: Option<&Axes>,
        formula: Option<&str>,
        sides: [Option<&Tensor>; 2],
    ) -> Self {
        let dims = sides.iter().flatten().next().map(|tensor| tensor.dims().to_vec());
        let known_axes = axes.is_some();
        let known = axes.map(|axes| axes.iter().map(|(axis, size)| (axis.name().to_owned(), size)));
        let dims = dims.unwrap_or_default().into_iter().enumerate();
        let axes: Sizes = match known {
            Some(known) => known.collect(),
            None => dims.map(|(at, size)| (tr!("axis {at}", at), size)).collect(),
        };
        let shape = axes.iter().map(|(name, size)| format!("{name} {size}")).collect::<Vec<_>>();
        let of = |(name, size): &(String, usize)| AxisData {
            name: name.clone(),
            size: *size,
            called: Axis::named(name).map(Axis::told).filter(|told| told != name),
            every: false,
            labels: None,
        };
        let is_flags = sides.iter().flatten().all(|tensor| tensor.dtype() == DType::U8);
        let data = StepData {
            axes: axes.iter().map(of).collect(),
            flags: is_flags.then(flags_of_keys),
            // A file that names no axes has heads second.
            head: head_axis(axes.iter().enumerate().map(|(at, (name, _))| {
                if known_axes { name == Axis::Head.name() } else { at == 1 }
            })),
            ..StepData::default()
        };
        Self {
            name: name.to_owned(),
            title: Name::in_files(name).map_or_else(Cow::default, Name::title),
            formula: formula.map(str::to_owned),
            constant: None,
            moves: Vec::new(),
            why: Name::in_files(name).map_or("", Name::why),
            shape: format!("({})", shape.join(", ")),
            axes,
            inputs: Vec::new(),
            is_detail: false,
            badge: None,
            worst: None,
            sides: sides.into_iter().map(Option::<&Tensor>::cloned).collect(),
            data,
        }
    }

    /// The bytes that a number of it takes in all that the page holds of it.
    fn bytes(&self) -> u128 {
        self.sides.iter().flatten().map(|side| held(side.dtype()).size_in_bytes() as u128).sum()
    }

    /// The step as the script reads it.
    fn json(&self, kept: &Kept) -> Result<Value> {
        let mut told = json!(self.data);
        told["name"] = json!(shown(&self.name));
        told["title"] = json!(self.title);
        told["kept"] = self.axes.iter().map(|axis| kept.size(axis)).collect();
        let dtype = self.sides.iter().flatten().next().map(|side| dtype_name(held(side.dtype())));
        told["dtype"] = json!(dtype);
        let side = |side: &Option<Tensor>| match side {
            // One of two sides can have another shape.
            Some(tensor) if tensor.rank() == self.axes.len() && fits(tensor, &self.axes) => {
                Ok(json!(STANDARD.encode(bytes(&kept.cut(&self.axes, tensor)?)?)))
            }
            Some(_) | None => Ok(Value::Null),
        };
        told["sides"] = self.sides.iter().map(side).collect::<Result<_>>()?;
        Ok(told)
    }
}

fn fits(tensor: &Tensor, axes: &Sizes) -> bool {
    tensor.dims().iter().zip(axes).all(|(dim, (_, size))| dim == size)
}

/// The type that a page holds numbers in: its own, but for narrow ones, which are held in f32.
fn held(dtype: DType) -> DType {
    match dtype {
        DType::U8 | DType::F64 => dtype,
        DType::I64 | DType::U32 => DType::F64,
        _ => DType::F32,
    }
}

/// A tensor's numbers, in row-major order, the low byte first.
fn bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let flat = tensor.to_dtype(held(tensor.dtype()))?.flatten_all()?;
    Ok(match flat.dtype() {
        DType::U8 => flat.to_vec1::<u8>()?,
        DType::F64 => flat.to_vec1::<f64>()?.into_iter().flat_map(f64::to_le_bytes).collect(),
        _ => flat.to_vec1::<f32>()?.into_iter().flat_map(f32::to_le_bytes).collect(),
    })
}

/// The data of a page.
pub struct Data {
    pub steps: Vec<Value>,
    /// What it says of numbers that are left out.
    pub notice: Option<String>,
    /// Where it opens.
    pub opens_at: String,
}

/// The data of a page, and where it opens if nothing else is looked for.
pub fn data(steps: &[StepSheet]) -> Result<Data> {
    let sizes: Vec<(Sizes, u128)> =
        steps.iter().map(|step| (step.axes.clone(), step.bytes())).collect();
    let kept = Kept::of(&sizes);
    let opens_at = opening(steps, &kept)?;
    let steps = steps.iter().map(|step| step.json(&kept)).collect::<Result<_>>()?;
    Ok(Data { steps, notice: kept.notice(), opens_at })
}

/// The address of the attention, or of its gradient behind the softmax where there is one: of its first item the largest
/// number off the diagonal.
fn opening(steps: &[StepSheet], kept: &Kept) -> Result<String> {
    let is_gradient = |step: &&StepSheet| {
        let of_scores = [Name::MaskedScores, Name::Scores].map(Name::gradient);
        of_scores.iter().any(|name| name.as_str() == step.name)
    };
    let is_attention = |step: &&StepSheet| {
        (step.data.is_share || is_gradient(step))
            && step.axes.len() == 4
            && !step.is_detail
            && step.sides.iter().any(Option::is_some)
    };
    let attention = || steps.iter().filter(is_attention);
    let Some(step) = attention().find(is_gradient).or_else(|| attention().next()) else {
        return Ok(steps.first().map_or_else(String::new, |step| address(&shown(&step.name), &[])));
    };
    let Some(weights) = step.sides.iter().flatten().next() else { return Ok(String::new()) };
    let numbers = kept.cut(&step.axes, &weights.narrow(0, 0, 1)?)?.to_dtype(DType::F64)?;
    let shape = numbers.dims().to_vec();
    // With a cache, keys have been there before the first query.
    let [.., queries, keys] = weights.dims() else { return Ok(String::new()) };
    let is_off = |cell: &[usize]| match cell {
        [.., query, key] => key + queries != query + keys,
        _ => false,
    };
    let mut best = (f64::NEG_INFINITY, vec![0; shape.len()]);
    for (at, number) in numbers.flatten_all()?.to_vec1::<f64>()?.into_iter().enumerate() {
        let cell = unravel(at, &shape);
        if number.abs() > best.0 && is_off(&cell) {
            best = (number.abs(), cell);
        }
    }
    Ok(address(&shown(&step.name), &best.1))
}

/// Every step of a program, with the values that `sides` gives. Of a trace, what has no rule is told cell by cell.
pub fn sheets<V>(
    program: &Program<V>,
    config: &Config,
    trace: Option<&Trace>,
    sides: impl Fn(&Step<V>) -> Vec<Option<Tensor>>,
) -> Result<Vec<StepSheet>> {
    let labels = config.labels();
    let steps = program.steps().iter().enumerate();
    steps
        .map(|(at, step)| sheet(program, (at, step), config, labels.as_ref(), trace, sides(step)))
        .collect()
}

fn sheet<V>(
    program: &Program<V>,
    (at, step): (usize, &Step<V>),
    config: &Config,
    labels: Option<&Labels>,
    trace: Option<&Trace>,
    sides: Vec<Option<Tensor>>,
) -> Result<StepSheet> {
    let row = step.name.row();
    let facts = step.op.operation().facts();
    let read = program.read_by(step);
    let axes: Vec<&Axes> = read.iter().map(|step| &step.axes).collect();
    let pattern = (step.op != Op::Given).then(|| program.pattern(step));
    let cells = match (&pattern, trace) {
        (Some(Pattern::ByCell), Some(trace)) if !row.is_boolean => cells(trace, step)?,
        _ => None,
    };
    let is_mask = |at: &usize| {
        let name = program.steps().get(*at).map(|step| step.name);
        matches!(name, Some(Name::Mask | Name::AttnBias))
    };
    let shows = shows_blocked(step);
    let above = program.ancestors(at);
    let blocked = (0..at).filter(|at| shows && above.get(*at) == Some(&true)).filter(is_mask);
    let mask = step
        .inputs
        .iter()
        .copied()
        .find(|at| program.steps().get(*at).is_some_and(|step| step.name.row().is_boolean));
    let flags = match row.role {
        _ if !row.is_boolean => None,
        Role::Random => Some([[DROPPED, tr!("dropped")], [KEPT, tr!("kept")]]),
        _ => Some(flags_of_keys()),
    };
    let axis_data = step.axes.iter().map(|axis| axis_data(step, axis, config, labels)).collect();
    Ok(StepSheet {
        name: step.name.to_string(),
        title: step.name.title(),
        formula: (step.op != Op::Given).then(|| program.formula(step)),
        constant: constant(step, DECIMALS),
        moves: moves(program, step),
        why: step.name.why(),
        shape: shape(program, step),
        axes: step.axes.iter().map(|(axis, size)| (axis.name().to_owned(), size)).collect(),
        inputs: step.inputs.clone(),
        is_detail: row.is_detail,
        badge: None,
        worst: None,
        sides,
        data: StepData {
            axes: axis_data,
            inputs: step.inputs.clone(),
            notes: notes(step, pattern.as_ref(), &axes),
            pattern,
            cells,
            blocked: blocked.collect(),
            fill: fill(step).zip(mask),
            range: facts.range,
            is_share: facts.is_share,
            called: mask_names(step),
            flags,
            is_given: step.op == Op::Given,
            head: head_axis(step.axes.iter().map(|(axis, _)| axis == Axis::Head)),
            is_of_input: row.role == Role::Input
                || above
                    .iter()
                    .zip(program.steps())
                    .any(|(is_above, step)| *is_above && step.name.role() == Role::Input),
        },
    })
}

/// What a mask that follows from the settings is called, by item: as the first key that it blocks there says.
fn mask_names<V>(step: &Step<V>) -> Vec<String> {
    let Op::Masking(mask) = &step.op else { return Vec::new() };
    let shape = step.axes.shape();
    let items = if step.axes.iter().next().is_some_and(|(axis, _)| axis == Axis::Batch) {
        shape.first().copied().unwrap_or(1)
    } else {
        1
    };
    let cells = shape.iter().product::<usize>() / items.max(1);
    let of_item = |item: usize| {
        let mut places = (item * cells..(item + 1) * cells).map(|at| unravel(at, &shape));
        places.find_map(|cell| mask.reason(&cell)).map(|reason| words(&reason).mask)
    };
    let names: Vec<Option<String>> = (0..items).map(of_item).collect();
    if names.iter().all(Option::is_none) {
        return Vec::new();
    }
    names.into_iter().map(Option::unwrap_or_default).collect()
}

/// The signs of keys that a query sees, and of those that it may not see.
fn flags_of_keys() -> [[&'static str; 2]; 2] {
    [[VISIBLE, tr!("visible")], [BLOCKED, tr!("blocked")]]
}

/// The place of the head axis before those of a table, or −1.
fn head_axis(axes: impl ExactSizeIterator<Item = bool>) -> i8 {
    let outer = axes.len().saturating_sub(2);
    let at = axes.take(outer).position(|is_head| is_head);
    at.and_then(|at| i8::try_from(at).ok()).unwrap_or(-1)
}

fn axis_data<V>(step: &Step<V>, axis: Dim, config: &Config, labels: Option<&Labels>) -> AxisData {
    let (name, size) = (axis.0.name(), axis.1);
    let called = axis_name(config, step.name, axis.0);
    let sizes = &config.sizes;
    let of_item = |item| -> Vec<String> {
        let beside = |at| beside(config, labels, step.name, axis, item, at).unwrap_or_default();
        (0..size).map(beside).collect()
    };
    let any = labels.is_some() || sizes.queries.is_some();
    let all: Option<Vec<Vec<String>>> = any.then(|| (0..sizes.batch).map(of_item).collect());
    AxisData {
        name: name.to_owned(),
        size,
        called: Some(called).filter(|called| *called != name),
        every: is_every(config, step.name, axis),
        labels: all.filter(|items| items.iter().flatten().any(|label| !label.is_empty())),
    }
}

/// The terms of every cell of a step, where there are few: factors as name and value, and the step and place where they
/// stand, if they are read.
fn cells<V>(trace: &Trace, step: &Step<V>) -> Result<Option<Vec<Value>>> {
    let shape = step.axes.shape();
    let count = shape.iter().product::<usize>();
    if count > MOST_CELLS {
        return Ok(None);
    }
    let terms = |at: usize| {
        let cell = Cell { step: step.name.to_string(), index: unravel(at, &shape) };
        Ok(trace.explain(&cell)?.terms.iter().map(|term| term_json(trace, term)).collect())
    };
    (0..count).map(terms).collect::<Result<_>>().map(Some)
}

fn term_json(trace: &Trace, Term(factors): &Term) -> Value {
    let factor = |factor: &program::Factor| {
        let place = factor
            .cell
            .as_ref()
            .and_then(|cell| Some(json!([trace.position(Name::named(&cell.step)?)?, cell.index])));
        json!([factor.name, json_number(factor.value, DType::F64), place])
    };
    factors.iter().map(factor).collect()
}
