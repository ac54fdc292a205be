//! Which numbers do people write in the place of the right one, and what may a number come from?

use super::Grammar;
use crate::candidate::{Candidate, cost};
use crate::mistakes::{Knob, ROPE_BASE, Range, knobs, rotation_factor};
use config::Sizes;
use program::{Change, Kind, Name, Op, Scaling, Slip, Step};

impl Grammar<'_> {
    /// The numbers of a step's operation as people write them.
    pub(super) fn numbers(&mut self, step: &Step) {
        for knob in knobs(&step.op) {
            for value in usual(&knob, self.sizes) {
                self.found.extend(with_number(step.name, &knob, value, self.sizes));
            }
        }
        if knobs(&step.op).iter().all(|knob| knob.name != "scale") {
            let sizes = of_sizes(self.sizes).into_iter().map(|(value, _)| value);
            // Gradients are nothing where code cuts them off.
            let nothing = step.name.is_gradient().then_some(0.0);
            for value in sizes.chain([2.0, 0.5]).chain(nothing) {
                self.found.extend(scaled(step.name, value, self.sizes));
            }
        }
    }
}

/// The mistake that a step's operation has this number.
pub fn with_number(at: Name, knob: &Knob, found: f64, sizes: &Sizes) -> Option<Candidate> {
    #[allow(clippy::float_cmp, reason = "1 exactly is no factor")]
    let has_none = knob.range == Range::Factor && knob.value == 1.0;
    // A gradient that is too large is that, whatever operation gives it.
    let op = (knob.with)(found).filter(|_| !has_none || !at.is_gradient())?;
    // Places and caps are no roots of sizes.
    let reading = match knob.range {
        Range::Factor if is_of_sizes(knob) => told(found, knob.value, sizes),
        Range::Positive if knob.name == ROPE_BASE => as_exponents(found, knob.value),
        Range::Factor
        | Range::Positive
        | Range::Cell
        | Range::Score
        | Range::Stated
        | Range::Whole(..) => String::new(),
    };
    let name = knob.name;
    let told = tr!(
        "{name} is {found} where {value} was meant{reading}",
        name,
        found = short(found),
        value = short(knob.value),
        reading
    );
    let is_usual = |usual: &f64| (usual - found).abs() <= 1e-9 * found.abs();
    let is_usual = !reading.is_empty() || knob.common.iter().any(is_usual);
    let cost = if is_usual { cost::COMMON } else { cost::PLAIN };
    // What has no factor gets one less often than another takes its own for another.
    let cost = cost + u32::from(has_none && !is_usual);
    let made = Candidate::at(at, Kind::Parameter, cost, Change::Replace(op), told);
    Some(made.with_number(name, knob.value, found))
}

/// A fitted factor that is smaller is none that code has.
const NOTHING: f64 = 1e-9;

/// The mistake that a step's value is multiplied by a number.
pub fn scaled(at: Name, factor: f64, sizes: &Sizes) -> Option<Candidate> {
    #[allow(clippy::float_cmp, reason = "1 exactly is no factor")]
    if factor == 1.0 || !factor.is_finite() {
        return None;
    }
    // What rounding leaves of nothing is nothing.
    let factor = if factor.abs() < NOTHING { 0.0 } else { factor };
    let op = Op::from(Scaling::By { factor });
    let told = match factor {
        0.0 if at.is_gradient() => tr!("it is 0 throughout, as if it were detached").to_owned(),
        0.0 if matches!(at, Name::HeadOutputs | Name::Output) => {
            tr!("it is 0, as if it had never been written").to_owned()
        }
        0.0 => tr!("it is 0").to_owned(),
        factor => tr!(
            "it is multiplied by {factor}{sizes}",
            factor = short(factor),
            sizes = told(factor, 1.0, sizes)
        ),
    };
    let change = Change::After(op, Vec::new());
    // Nothing is simpler than nothing.
    let cost = if factor == 0.0 { cost::NOTHING } else { cost::PLAIN };
    Some(Candidate::at(at, Kind::Inserted, cost, change, told).with_number("factor", 1.0, factor))
}

/// Beyond so many times ln 2 it is some number.
const MOST_TIMES: f64 = 64.0;

/// The mistake that a number is added to a step's value.
pub fn shifted(at: Name, addend: f64) -> Candidate {
    let change = Change::after(Slip::Add { factor: 1.0, addend });
    let times = (addend / std::f64::consts::LN_2).round();
    let is_whole = (times.abs() - 1.0).abs() < MOST_TIMES
        && (addend - times * std::f64::consts::LN_2).abs() <= 1e-5 * addend.abs();
    let told = if is_whole {
        tr!(
            "{addend} is added to it, which is {times} ln 2: a power of two in what it is the logarithm of",
            addend = short(addend),
            times
        )
    } else {
        tr!("{addend} is added to it", addend = short(addend))
    };
    Candidate::at(at, Kind::Inserted, cost::RARE, change, told).with_number("addend", 0.0, addend)
}

/// The numbers that people write where another was meant.
pub fn usual(knob: &Knob, sizes: &Sizes) -> Vec<f64> {
    let mut all = knob.common.clone();
    match knob.range {
        Range::Factor => {
            let roots = of_sizes(sizes).into_iter().filter(|_| is_of_sizes(knob));
            all.extend(roots.map(|(value, _)| value));
            let own = knob.value;
            all.extend([own * own, own.recip(), own.sqrt(), 2.0 * own, own / 2.0, -own]);
        }
        Range::Cell | Range::Score => {}
        Range::Positive | Range::Stated => {
            let own = knob.value;
            all.extend([own * 10.0, own / 10.0, own * 2.0, own / 2.0, own.sqrt(), own * own]);
        }
        Range::Whole(least, most) => {
            let near = (-4..=4).map(|by| knob.value + f64::from(by));
            all.extend(near.chain([0.0, knob.value / 2.0, knob.value * 2.0]));
            all.retain(|value| *value >= least as f64 && *value <= most as f64);
        }
    }
    let mut distinct: Vec<f64> = Vec::new();
    for value in all {
        let is_new = |other: &f64| (value - other).abs() > 1e-12 * value.abs();
        if value.is_finite() && is_new(&knob.value) && distinct.iter().all(is_new) {
            distinct.push(value);
        }
    }
    distinct
}

/// Whether people take a size of the run, or a root of one, for that number.
fn is_of_sizes(knob: &Knob) -> bool {
    knob.name != rotation_factor()
}

/// Roots and powers of a run's sizes, and their names.
pub fn of_sizes(sizes: &Sizes) -> Vec<(f64, String)> {
    // What a head would be wide were the model split among the heads, where it is another.
    let of_model = sizes.d_model as f64 / sizes.heads as f64;
    let is_other = (of_model - sizes.head_dim as f64).abs() > f64::EPSILON;
    let of_model = is_other.then_some(("(d_model/heads)", of_model));
    let named = [
        ("d_k", sizes.head_dim as f64),
        ("d_model", sizes.d_model as f64),
        ("heads", sizes.heads as f64),
        ("kv_heads", sizes.kv_heads as f64),
        ("T", sizes.seq_len as f64),
        ("keys", sizes.keys() as f64),
        ("batch", sizes.batch as f64),
        ("(2·d_k)", 2.0 * sizes.head_dim as f64),
        ("(batch·T)", (sizes.batch * sizes.seq_len) as f64),
    ];
    // Where values are as wide as keys, their width says nothing more.
    let is_wide = sizes.v_head_dim != sizes.head_dim;
    let of_values = [
        ("(d_k/d_v)", sizes.head_dim as f64 / sizes.v_head_dim.max(1) as f64),
        ("d_v", sizes.v_head_dim as f64),
    ];
    let of_values = of_values.into_iter().filter(|_| is_wide);
    let mut all = Vec::new();
    for (name, size) in of_values.chain(named).chain(of_model) {
        all.push((size.sqrt().recip(), format!("1/√{name}")));
        all.push((size.recip(), format!("1/{name}")));
        all.push((size.sqrt(), format!("√{name}")));
        all.push((size, name.to_owned()));
        all.push((size.powf(-0.25), format!("{name}^(−1/4)")));
        all.push((size.powf(0.25), format!("{name}^(1/4)")));
    }
    all.push((std::f64::consts::LN_2, "ln 2".to_owned()));
    all.push((std::f64::consts::LOG2_E, "1/ln 2".to_owned()));
    all.retain(|(value, _)| (value - 1.0).abs() > 1e-9);
    all
}

/// What a number may come from.
pub fn told(found: f64, meant: f64, sizes: &Sizes) -> String {
    let is_it = |value: f64| (value - found).abs() <= 1e-6 * found.abs();
    let mut names: Vec<String> = of_sizes(sizes)
        .into_iter()
        .filter(|(value, _)| is_it(*value))
        .map(|(_, name)| name)
        .collect();
    if is_it(meant * meant) && (meant - 1.0).abs() > 1e-9 {
        names.push(tr!("the meant number squared").to_owned());
    }
    if names.is_empty() && (meant - 1.0).abs() > 1e-9 && meant != 0.0 {
        let times = of_sizes(sizes).into_iter().filter(|(value, _)| is_it(*value * meant));
        names.extend(times.map(|(_, name)| tr!("{name} times the meant number", name)));
    }
    if is_it(-meant) && meant != 0.0 {
        names.push(tr!("the meant number with the other sign").to_owned());
    }
    names.dedup();
    // More names than that say nothing.
    names.truncate(3);
    if names.is_empty() {
        String::new()
    } else {
        tr!("; {found} is {names}", found = short(found), names = names.join(tr!(", or ")))
    }
}

/// What else gives the frequencies of a base: exponents that are so many times as large, or so small a part.
fn as_exponents(found: f64, meant: f64) -> String {
    let power = found.ln() / meant.ln();
    let is_whole = |number: f64| number > 1.5 && (number - number.round()).abs() < 1e-3;
    if is_whole(power) {
        tr!("; so do exponents {times} times as large", times = short(power.round()))
    } else if is_whole(power.recip()) {
        tr!("; so do exponents divided by {by}", by = short(power.recip().round()))
    } else {
        String::new()
    }
}

/// A number in at most six digits.
pub fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() || value.abs() >= 1e6 || value.abs() < 1e-3 {
        let rounded = format!("{value:.6e}").parse().unwrap_or(value);
        return format!("{rounded:e}");
    }
    let whole = value.round();
    if whole.abs() >= 10.0 && (value - whole).abs() <= 1e-7 * whole.abs() {
        return format!("{whole}");
    }
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
