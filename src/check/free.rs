//! Which numbers of a step may be others, for the recorded values to say?

use super::candidate::{Candidate, cost};
use super::fit::Free;
use super::grammar::kernels::{part_of_sum as summed, summed as summed_axes};
use super::grammar::numbers::{of_sizes, scaled, shifted, short, told, usual, with_number};
use super::mistakes::{Knob, Range, knobs};
use base::lang;
use candle_core::DType;
use config::Sizes;
use program::{
    Change, Edit, Kind, Linear, Name, Op, Role, Scaling, ScoreSlip, Slip, Step, Trace, Weighting,
    signed, whole,
};

/// Norms of which code states one ε.
const SHARED: &[&[Name]] = &[
    &[Name::QNorm, Name::KNorm, Name::VNorm],
    &[Name::QNorm, Name::KNorm],
    &[Name::QRotNorm, Name::KRotNorm],
    &[Name::CQNorm, Name::CKvNorm],
];

/// The numbers of a step's operation, and of the settings that it reads: for all that read these, and for the step alone.
pub fn of_operations<'f>(trace: &'f Trace, step: &'f Step, sizes: &'f Sizes) -> Vec<Free<'f>> {
    let settings = trace.read_by(step).into_iter().filter(|read| read.name.role() == Role::Setting);
    let settings = settings.flat_map(|setting| {
        let knobs = || knobs(&setting.op).into_iter();
        let reader = step.name;
        let fed = knobs().map(move |knob| {
            let free = of_knob(setting.name, knob, sizes);
            let with = free.with;
            let with = move |number| fed(&with(number)?, setting.name, reader);
            Free { with: Box::new(with), ..free }
        });
        fed.chain(knobs().map(|knob| of_knob(setting.name, knob, sizes)))
    });
    let own = knobs(&step.op).into_iter().map(|knob| of_knob(step.name, knob, sizes));
    let is_decay = matches!(step.op, Op::Scaling(Scaling::Exp { .. }));
    let bounds =
        [false, true].into_iter().filter(|_| is_decay).map(|above| bound(step.name, above));
    let again = again(trace, step);
    own.chain(settings).chain(bounds).chain(again).chain(of_cap(step, sizes)).collect()
}

/// What the tanh of a soft cap is multiplied by, where that is not the cap.
fn of_cap<'f>(step: &'f Step, sizes: &'f Sizes) -> Option<Free<'f>> {
    let Op::Scaling(Scaling::SoftCap { cap }) = step.op else { return None };
    Some(Free {
        meant: cap,
        range: Range::Positive,
        usual: of_sizes(sizes).into_iter().map(|(size, _)| size).collect(),
        is_rough: false,
        with: Box::new(move |outer| {
            let told = tr!(
                "tanh is multiplied by {outer}, not by the cap{sizes}",
                outer = short(outer),
                sizes = told(outer, cap, sizes)
            );
            let slip = Slip::Scores(ScoreSlip::Cap { outer, inner: cap.recip() });
            let change = Change::Replace(slip.into());
            let made = Candidate::at(step.name, Kind::Parameter, cost::FITTED, change, told);
            Some(made.with_number("softcap", cap, outer))
        }),
    })
}

/// What multiplies all that is added up so far in every tile, as where what belongs at the end is done in the loop.
fn again<'f>(trace: &Trace, step: &Step) -> Option<Free<'f>> {
    let read = trace.read_by(step);
    let slot = read.iter().position(|read| read.name == Name::TileFactor)?;
    let at = step.name;
    let scales = [Name::VScale, Name::KScale, Name::QScale].into_iter();
    let scales: Vec<(Name, f64)> = scales
        .filter_map(|name| {
            let scale = &trace.step(name)?.value;
            let own =
                scale.flatten_all().and_then(|own| own.to_dtype(DType::F64)?.to_vec1()).ok()?;
            <[f64; 1]>::try_from(own).ok().map(|[own]| (name, own))
        })
        .collect();
    Some(Free {
        meant: 1.0,
        range: Range::Positive,
        usual: scales.iter().map(|(_, scale)| *scale).collect(),
        is_rough: false,
        with: Box::new(move |factor| {
            let is_it = |(_, scale): &&(Name, f64)| (scale - factor).abs() <= 1e-3 * scale.abs();
            let told = match scales.iter().find(is_it) {
                Some((name, _)) => tr!(
                    "what was added up before is multiplied by {name}, {factor}, in every tile, not once at the end",
                    name,
                    factor = short(factor)
                ),
                None => tr!(
                    "what was added up before is multiplied by {factor} in every tile",
                    factor = short(factor)
                ),
            };
            let change = Change::before(slot, Scaling::By { factor });
            let made = Candidate::at(at, Kind::Inserted, cost::FITTED, change, told);
            Some(made.with_number("factor", 1.0, factor))
        }),
    })
}

/// A number that the logarithm of a decay is clamped at, from above or from below.
fn bound<'f>(at: Name, above: bool) -> Free<'f> {
    Free {
        meant: 0.0,
        range: Range::Positive,
        usual: vec![0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0],
        is_rough: false,
        with: Box::new(move |size| {
            let bound = -size;
            let (limit, told) = if above {
                let told =
                    tr!("what it reads is clamped from above, at {bound}", bound = short(bound));
                (bound, told)
            } else {
                let told =
                    tr!("what it reads is clamped from below, at {bound}", bound = short(bound));
                (size, told)
            };
            let change = Change::before(0, Slip::Bound { limit, above });
            let made = Candidate::at(at, Kind::Inserted, cost::FITTED, change, told);
            Some(made.with_number("bound", 0.0, bound))
        }),
    }
}

/// A factor and an addend of a step's value; factors of what it reads, where these are none of its value; and multiples of
/// other steps that are added to it.
pub fn of_values<'f>(trace: &'f Trace, step: &'f Step, sizes: &'f Sizes) -> Vec<Free<'f>> {
    let at = step.name;
    let linear = |meant: f64, with: Box<dyn Fn(f64) -> Option<Candidate> + 'f>| {
        let (range, usual, is_rough) = (Range::Factor, vec![2.0, 0.5], false);
        Free { meant, range, usual, is_rough, with }
    };
    let mut all = vec![
        linear(1.0, Box::new(move |factor| scaled(at, factor, sizes))),
        linear(0.0, Box::new(move |addend| Some(shifted(at, addend)))),
    ];
    let is_curved = matches!(
        step.op,
        Op::Weighting(Weighting::Softmax { .. })
            | Op::Scaling(Scaling::SoftCap { .. })
            | Op::Linear(Linear::Project { .. })
    );
    let read = trace.read_by(step).into_iter().enumerate().filter(|_| is_curved);
    all.extend(read.map(|(slot, read)| Free {
        meant: 1.0,
        range: Range::Positive,
        usual: vec![0.1, 0.125, 0.25, 0.5, 2.0, 4.0, 8.0, 10.0],
        is_rough: false,
        with: Box::new(move |factor| {
            let what = tr!(
                "{read}, which it reads, is multiplied by {factor}",
                read = read.name,
                factor = short(factor)
            );
            let change = Change::before(slot, Scaling::By { factor });
            let made = Candidate::at(at, Kind::Inserted, cost::RARE, change, what);
            Some(made.with_number("factor", 1.0, factor))
        }),
    }));
    all.extend(sums(trace, step).into_iter().map(|with| linear(0.0, with)));
    all.extend(part_of_sum(trace, step));
    all
}

/// How many products are added up, of the first or of the last.
fn part_of_sum<'f>(trace: &'f Trace, step: &'f Step) -> Vec<Free<'f>> {
    let of_axis = |axis| part_of_axis(step, axis);
    let axes = summed_axes(trace, step).into_iter();
    let least = if matches!(step.op, Op::Linear(_)) { 3 } else { 2 };
    axes.filter(|(.., size)| (least..=MOST_SUMMED).contains(size)).flat_map(of_axis).collect()
}

/// The same along one axis.
fn part_of_axis(step: &Step, axis: (usize, usize, usize)) -> [Free<'_>; 2] {
    let (.., size) = axis;
    let free = |is_head: bool| Free {
        meant: 0.0,
        range: Range::Whole(1, signed(size) - 1),
        usual: Vec::new(),
        is_rough: false,
        with: Box::new(move |count| {
            let (change, what) = summed(step, is_head, whole(count)?, axis);
            Some(Candidate::at(step.name, Kind::Axes, cost::FITTED, change, what))
        }),
    };
    [true, false].map(free)
}

/// Of longer sums the usual parts are tried alone, which the grammar has.
const MOST_SUMMED: usize = 128;

/// So many times another step is added to a step's value, or to what it reads first in its place.
fn sums<'f>(trace: &'f Trace, step: &'f Step) -> Vec<Box<dyn Fn(f64) -> Option<Candidate> + 'f>> {
    let at = step.name;
    let first = trace.read_by(step).first().map(|read| read.name);
    let bases = [None, first.filter(|first| trace.computes(*first))];
    let bases = bases.into_iter().enumerate().filter(|(place, base)| *place == 0 || base.is_some());
    let others = || trace.steps().iter().filter(|other| other.name != at && other.axes.count() > 1);
    let mut all: Vec<Box<dyn Fn(f64) -> Option<Candidate> + 'f>> = Vec::new();
    for (_, base) in bases {
        for other in others().map(|other| other.name) {
            all.push(Box::new(move |factor| {
                if factor.abs() < 1e-6 {
                    return None;
                }
                let op = Op::from(Slip::Add { factor, addend: 0.0 });
                let (change, what) = match base {
                    None => (Change::After(op, vec![other]), tr!("it")),
                    Some(first) => (Change::Become(op, vec![first, other]), first.as_str()),
                };
                let told = tr!(
                    "{factor} times {other} is added to {what}",
                    factor = short(factor),
                    other,
                    what
                );
                let made = Candidate::at(at, Kind::Inserted, cost::FITTED, change, told);
                Some(made.with_number("factor", 0.0, factor))
            }));
        }
    }
    all
}

/// The ε of norms: of those that share one first, then of each alone.
pub fn of_norms<'f>(trace: &'f Trace, sizes: &'f Sizes) -> Vec<Free<'f>> {
    let has_eps = |name: &Name| trace.step(*name).is_some_and(|step| eps(step).is_some());
    let shared =
        SHARED.iter().filter(|names| names.iter().all(has_eps)).map(|names| names.to_vec());
    let alone = trace.steps().iter().map(|step| vec![step.name]);
    let norms = shared.chain(alone.filter(|names| names.iter().all(has_eps)));
    let free = norms.filter_map(|norms| {
        let knob = eps(trace.step(*norms.first()?)?)?;
        let with = move |found| with_eps(trace, &norms, found, sizes);
        let free = of_knob(Name::QNorm, knob, sizes);
        Some(Free { is_rough: true, with: Box::new(with), ..free })
    });
    free.collect()
}

fn eps(step: &Step) -> Option<Knob> {
    knobs(&step.op).into_iter().find(|knob| knob.name == "eps")
}

/// The candidate that these norms have another ε, which is as likely in whatever digits.
fn with_eps(trace: &Trace, norms: &[Name], found: f64, sizes: &Sizes) -> Option<Candidate> {
    let one = |name: &Name| with_number(*name, &eps(trace.step(*name)?)?, found, sizes);
    let all = norms.iter().map(one).collect::<Option<Vec<Candidate>>>()?;
    let first = all.first()?;
    let names: Vec<&str> = norms.iter().map(|name| name.as_str()).collect();
    let told = first.summary.strip_prefix(names.first()?)?;
    Some(Candidate {
        summary: format!("{}{told}", lang::list(&names)),
        edits: all.iter().flat_map(|made| made.edits.clone()).collect(),
        cost: cost::COMMON,
        ..first.clone()
    })
}

fn of_knob(at: Name, knob: Knob, sizes: &Sizes) -> Free<'_> {
    Free {
        meant: knob.value,
        range: knob.range,
        usual: usual(&knob, sizes),
        is_rough: false,
        with: Box::new(move |number| with_number(at, &knob, number, sizes)),
    }
}

/// The same mistake at one reader of a setting alone.
fn fed(made: &Candidate, setting: Name, reader: Name) -> Option<Candidate> {
    let [Edit { change: Change::Replace(op), .. }] = made.edits.as_slice() else { return None };
    Some(Candidate {
        edits: vec![Edit::new(reader, Change::Feed(1, op.clone(), Vec::new()))],
        summary: made.summary.replacen(setting.as_str(), reader.as_str(), 1),
        cost: made.cost + 1,
        ..made.clone()
    })
}
