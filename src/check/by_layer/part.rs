//! What does a part of a model compute? It is read as the program that gives the reference's own numbers, or not at all.

use std::collections::HashMap;

use candle_core::Tensor;

use super::super::cells::cells;
use super::measure::apart;
use base::error::Result;
use program::{
    Axes, Axis, Linear, Map, Name, Norm, Op, Part, Program, QueryRows, Scaling, Slip, Trace,
};

/// The parameters of a part, by what stands behind its path.
pub type Parameters = Vec<(String, Tensor)>;

/// A part of a model as a program.
#[derive(Clone)]
pub struct Reading {
    program: Program,
    /// Where each parameter of the program comes from.
    pub taken: Vec<(Name, Taken)>,
    /// The step that the part gives.
    pub output: Name,
}

/// A parameter of a part, or some rows of it, as it stands or transposed.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// What stands behind the part's path.
    pub name: String,
    rows: Option<(usize, usize)>,
    pub is_transposed: bool,
}

impl Taken {
    /// Whether it begins with the first of the rows.
    pub fn is_first(&self) -> bool {
        self.rows.is_none_or(|(first, _)| first == 0)
    }

    /// The parameter among those of a part.
    pub fn of(&self, parameters: &Parameters) -> Result<Option<Tensor>> {
        let Some(own) = named(parameters, &self.name) else { return Ok(None) };
        let own = if self.is_transposed { own.t()?.contiguous()? } else { own.clone() };
        Ok(Some(match self.rows {
            Some((first, count)) => own.narrow(0, first, count)?.contiguous()?,
            None => own,
        }))
    }
}

impl Reading {
    /// What the program gives for rows (1, rows, features); nothing where the parameters are not there.
    pub fn run(&self, x: &Tensor, parameters: &Parameters) -> Result<Option<Trace>> {
        let mut given = HashMap::from([(Name::X, x.clone())]);
        for (name, taken) in &self.taken {
            let Some(own) = taken.of(parameters)? else { return Ok(None) };
            given.insert(*name, own.to_dtype(x.dtype())?);
        }
        let rows = Part::Rows(QueryRows { first: 0, count: x.dim(1)? });
        let Some(program) = self.program.narrowed(rows) else { return Ok(None) };
        program
            .run_with(|step, inputs| match given.get(&step.name) {
                Some(own) => Ok(own.clone()),
                None => step.op.eval(inputs),
            })
            .map(Some)
    }

    /// The numbers of what the part gives.
    pub fn gives(&self, x: &Tensor, parameters: &Parameters) -> Result<Option<Tensor>> {
        let trace = self.run(x, parameters)?;
        Ok(trace.and_then(|trace| trace.step(self.output).map(|step| step.value.clone())))
    }
}

/// The program that gives these rows of what a part gave, of those that its parameters allow, and by how much it is off; the
/// first of a hint, that of an earlier layer, is tried before.
pub fn read(
    [x, output]: [&Tensor; 2],
    parameters: &Parameters,
    eps: Option<f64>,
    hint: &mut Option<usize>,
    tolerance: f64,
) -> Result<Option<Reading>> {
    let mut all = readings(x, output.dim(2)?, parameters, eps)?;
    if parameters.is_empty() && x.dims() == output.dims() {
        all.extend(
            Shape { features: x.dim(2)?, wide: x.dim(2)?, parameters }.functions(x, output)?,
        );
    }
    let off = |reading: &Reading| match reading.gives(x, parameters) {
        Ok(Some(given)) if given.dims() == output.dims() => apart(output, &given),
        _ => Ok(f64::INFINITY),
    };
    if let Some(reading) = hint.and_then(|at| all.get(at))
        && off(reading)? <= tolerance
    {
        return Ok(Some(reading.clone()));
    }
    let mut best = (tolerance, None);
    for (at, reading) in all.iter().enumerate() {
        let own = off(reading)?;
        if own < best.0 || own == 0.0 && best.1.is_none() {
            best = (own, Some(at));
        }
    }
    *hint = best.1;
    Ok(best.1.and_then(|at| all.into_iter().nth(at)))
}

/// All programs that a part with these parameters may be.
fn readings(
    x: &Tensor,
    wide: usize,
    parameters: &Parameters,
    eps: Option<f64>,
) -> Result<Vec<Reading>> {
    let features = x.dim(2)?;
    let matrices: Vec<&str> = of_rank(parameters, 2).collect();
    let shape = Shape { features, wide, parameters };
    let mut all = Vec::new();
    if matrices.is_empty() {
        all.extend(shape.norms(eps)?);
    }
    for is_transposed in [false, true] {
        let taken = |name: &&str| Taken { name: (*name).to_owned(), rows: None, is_transposed };
        let whole: Vec<Taken> = matrices.iter().map(taken).collect();
        all.extend(shape.of_matrices(&whole)?);
        // Gate and first projection may be one matrix, one half behind the other.
        let [one, other] = whole.as_slice() else { continue };
        for (packed, down) in [(one, other), (other, one)] {
            let Some([rows, _]) = shape.size(packed) else { continue };
            let half = |first| Taken { rows: Some((first, rows / 2)), ..packed.clone() };
            all.extend(shape.of_matrices(&[half(0), half(rows / 2), down.clone()])?);
        }
    }
    Ok(all)
}

fn named<'a>(parameters: &'a Parameters, name: &str) -> Option<&'a Tensor> {
    parameters.iter().find(|(own, _)| own == name).map(|(_, own)| own)
}

fn of_rank(parameters: &Parameters, rank: usize) -> impl Iterator<Item = &str> {
    parameters.iter().filter(move |(_, own)| own.rank() == rank).map(|(name, _)| name.as_str())
}

/// What the program of a part is to fit.
struct Shape<'a> {
    features: usize,
    wide: usize,
    parameters: &'a Parameters,
}

impl Shape<'_> {
    fn start(&self) -> (Program, usize) {
        let mut program = Program::default();
        let x = program.given(
            Name::X,
            Axes::new([(Axis::Batch, 1), (Axis::Query, 1), (Axis::Input, self.features)]),
        );
        (program, x)
    }

    /// Whether there is a vector of that name, so long.
    fn has(&self, name: &str, length: usize) -> bool {
        named(self.parameters, name).is_some_and(|own| own.dims() == [length])
    }

    /// (out, in) of a matrix.
    fn size(&self, taken: &Taken) -> Option<[usize; 2]> {
        let &[rows, columns] = named(self.parameters, &taken.name)?.dims() else { return None };
        let [rows, columns] = if taken.is_transposed { [columns, rows] } else { [rows, columns] };
        match taken.rows {
            Some((first, count)) if first + count > rows || count == 0 => None,
            Some((_, count)) => Some([count, columns]),
            None => Some([rows, columns]),
        }
    }

    /// Functions of single numbers: an activation, a factor, a soft cap.
    fn functions(&self, x: &Tensor, output: &Tensor) -> Result<Vec<Reading>> {
        let maps = Map::ALL.into_iter().map(|map| (Name::MlpHidden, Op::from(Slip::Map(map))));
        let scalings = scalings(x, output)?.into_iter().map(|own| (Name::LinearOutput, own.into()));
        let reading = |(name, op): (Name, Op)| {
            let (mut program, x) = self.start();
            program.then(name, op, &[x])?;
            Ok(Reading { program, taken: Vec::new(), output: name })
        };
        maps.chain(scalings).map(reading).collect()
    }

    fn norms(&self, eps: Option<f64>) -> Result<Vec<Reading>> {
        if self.features != self.wide {
            return Ok(Vec::new());
        }
        let own: Vec<&str> =
            of_rank(self.parameters, 1).filter(|name| self.has(name, self.features)).collect();
        let is_bias = |name: &&&str| name.contains("bias") || name.contains("beta");
        let weight = own.iter().find(|name| !is_bias(name));
        let bias = own.iter().find(is_bias).filter(|_| weight.is_some());
        let usual = [1e-5, 1e-6, 1e-12, 1e-8, 1e-3];
        let eps = eps.map_or(usual.to_vec(), |eps| vec![eps]);
        let mut all = Vec::new();
        for eps in eps {
            for (is_centred, offset) in [(false, 0.0), (true, 0.0), (false, 1.0), (true, 1.0)] {
                if offset != 0.0 && weight.is_none() {
                    continue;
                }
                let norm = Norm { is_centred, offset, ..Norm::rms(eps) };
                let (mut program, x) = self.start();
                let (mut read, mut taken) = (vec![x], Vec::new());
                for (name, own) in [(Name::WNorm, weight), (Name::BNorm, bias)] {
                    let Some(own) = own else { continue };
                    read.push(program.given(name, Axes::new([(Axis::Input, self.features)])));
                    taken.push((name, as_it_is(own)));
                }
                program.then(Name::NormOutput, norm, &read)?;
                all.push(Reading { program, taken, output: Name::NormOutput });
            }
        }
        Ok(all)
    }

    /// A linear layer of one matrix, perhaps with an activation behind it; an MLP of two; one with a gate of three.
    fn of_matrices(&self, matrices: &[Taken]) -> Result<Vec<Reading>> {
        let mut all = Vec::new();
        match matrices {
            [only] if self.size(only) == Some([self.wide, self.features]) => {
                let (mut builder, x) = self.builder();
                builder.project(Name::LINEAR, only, x)?;
                all.push(builder.reading(Name::LinearOutput));
                for map in Map::ALL {
                    let (mut builder, x) = self.builder();
                    let up = builder.project(Name::MLP_UP, only, x)?;
                    builder.program.then(Name::MlpHidden, Slip::Map(map), &[up])?;
                    all.push(builder.reading(Name::MlpHidden));
                }
            }
            [first, second] => {
                for [up, down] in [[first, second], [second, first]] {
                    all.extend(self.mlps(None, up, down)?);
                }
            }
            [one, two, three] => {
                for [gate, up, down] in [
                    [one, three, two],
                    [one, two, three],
                    [two, three, one],
                    [two, one, three],
                    [three, one, two],
                    [three, two, one],
                ] {
                    all.extend(self.mlps(Some(gate), up, down)?);
                }
            }
            _ => {}
        }
        Ok(all)
    }

    fn mlps(&self, gate: Option<&Taken>, up: &Taken, down: &Taken) -> Result<Vec<Reading>> {
        let (Some([hidden, from]), Some(last)) = (self.size(up), self.size(down)) else {
            return Ok(Vec::new());
        };
        let gate_fits = gate.is_none_or(|gate| self.size(gate) == Some([hidden, from]));
        if from != self.features || last != [self.wide, hidden] || !gate_fits {
            return Ok(Vec::new());
        }
        let one = |map: Map| {
            let (mut builder, x) = self.builder();
            let gate = gate.map(|gate| builder.project(Name::MLP_GATE, gate, x)).transpose()?;
            let up = builder.project(Name::MLP_UP, up, x)?;
            let hidden = match gate {
                Some(gate) => {
                    builder.program.then(Name::MlpHidden, Scaling::Gate { map }, &[up, gate])?
                }
                None => builder.program.then(Name::MlpHidden, Slip::Map(map), &[up])?,
            };
            builder.project(Name::MLP_DOWN, down, hidden)?;
            Ok(builder.reading(Name::MlpOutput))
        };
        Map::ALL.into_iter().map(one).collect()
    }

    fn builder(&self) -> (Builder<'_>, usize) {
        let (program, x) = self.start();
        (Builder { shape: self, program, taken: Vec::new() }, x)
    }
}

/// A program that is being made.
struct Builder<'a> {
    shape: &'a Shape<'a>,
    program: Program,
    taken: Vec<(Name, Taken)>,
}

impl Builder<'_> {
    /// Adds a projection: the names of its weight, its bias and what it gives.
    fn project(&mut self, [weight, bias, step]: [Name; 3], own: &Taken, x: usize) -> Result<usize> {
        let [out, from] = self.shape.size(own).unwrap_or_default();
        let read = self.program.given(weight, Axes::new([(Axis::Model, out), (Axis::Input, from)]));
        self.taken.push((weight, own.clone()));
        let mut inputs = vec![x, read];
        let path = own.name.strip_suffix("weight").or(own.name.strip_suffix("kernel"));
        let beside = path.map(|path| format!("{path}bias"));
        let whole = own.rows.map_or(out, |(_, count)| count * 2);
        if let Some(name) = beside.filter(|name| self.shape.has(name, whole)) {
            inputs.push(self.program.given(bias, Axes::new([(Axis::Model, out)])));
            self.taken.push((bias, Taken { name, is_transposed: false, ..own.clone() }));
        }
        let op: Op = Linear::Project { tokens: Axis::Query, rows: None }.into();
        self.program.then(step, op, &inputs)
    }

    fn reading(self, output: Name) -> Reading {
        Reading { program: self.program, taken: self.taken, output }
    }
}

/// The factor, and the soft cap, that make the largest number of `x` what it became.
fn scalings(x: &Tensor, output: &Tensor) -> Result<Vec<Scaling>> {
    let (inputs, outputs) = (cells(x)?, cells(output)?);
    let finite = inputs.iter().zip(&outputs).filter(|(x, y)| x.is_finite() && y.is_finite());
    let Some((x, y)) = finite.max_by(|left, right| left.0.abs().total_cmp(&right.0.abs())) else {
        return Ok(Vec::new());
    };
    let (x, y) = (*x, *y);
    let mut all = vec![Scaling::By { factor: y / x }];
    if x * y > 0.0 && y.abs() < x.abs() {
        // cap · tanh(x / cap) grows with the cap.
        let (mut low, mut high) = (y.abs(), y.abs() * MOST_CAP);
        for _ in 0..BISECTIONS {
            let cap = f64::midpoint(low, high);
            if cap * (x.abs() / cap).tanh() < y.abs() { low = cap } else { high = cap }
        }
        // Caps are numbers of few digits.
        let digits = 10_f64.powf(4.0 - high.log10().ceil());
        all.push(Scaling::SoftCap { cap: (high * digits).round() / digits });
    }
    Ok(all
        .into_iter()
        .filter(|own| !matches!(own, Scaling::By { factor } if !factor.is_finite()))
        .collect())
}

/// A cap that is so many times a number leaves it as it is, in f32.
const MOST_CAP: f64 = 1e4;
/// So many halves of that are as exact as f64.
const BISECTIONS: usize = 100;

fn as_it_is(name: &str) -> Taken {
    Taken { name: name.to_owned(), rows: None, is_transposed: false }
}
