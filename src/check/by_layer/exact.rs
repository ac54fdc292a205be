//! What does a part add by itself? It is computed again from the port's own inputs, on some of its rows.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use candle_core::{D, DType, Tensor};

use super::super::agreement::{Agreement, Claim};
use super::super::diagnose::Case;
use super::super::report::Report;
use super::super::step_report::StepReport;
use super::super::tolerance::Tolerances;
use super::measure::{Measure, apart, tolerance_of};
use super::part::{Parameters, Reading, read};
use super::sides::Sides;
use super::sums::{terms as terms_of, with_factors};
use base::error::Result;
use config::Settings;
use foreign::{ModelPart, Node};
use program::{Name, Step, Trace, added_up, wide};
use run::{Run, Sources};

/// So many rows tell what a part does.
pub const FEW: usize = 8;
/// So many tell whether it does so in the port, the worst among them.
const MANY: usize = 64;

/// Mistakes are looked for no longer than that.
const PATIENCE: Duration = Duration::from_secs(60);

/// Parts that were read as programs or sums.
pub struct Exact<'a> {
    pub sides: &'a Sides,
    tolerances: &'a Tolerances,
    /// A run of any attention, whose setting stands beside programs that have none.
    beside: Run,
    hints: HashMap<ModelPart, Option<usize>>,
    sums: HashMap<usize, Vec<usize>>,
}

/// What a part adds by itself.
pub struct Own {
    pub error: f64,
    pub agrees: bool,
}

/// A part of the port beside what it should give for the port's own inputs.
pub struct Beside {
    pub trace: Trace,
    pub output: Name,
    recorded: HashMap<Name, Tensor>,
    agreement: Agreement,
}

impl<'a> Exact<'a> {
    pub fn new(sides: &'a Sides, tolerances: &'a Tolerances) -> Result<Self> {
        let beside = Run::new(&Settings::default(), Sources::default())?;
        Ok(Self { sides, tolerances, beside, hints: HashMap::new(), sums: HashMap::new() })
    }

    /// Whether a node is the sum of earlier ones: it is of a residual stream, or what a module gives that has others in it
    /// adds these up.
    pub fn is_sum(&mut self, at: usize) -> Result<bool> {
        let Some(node) = self.sides.nodes().get(at) else { return Ok(false) };
        let before = self.sides.nodes().get(..at).unwrap_or_default();
        let is_within = |other: &Node| {
            let inner = other.path.strip_prefix(node.path.as_str());
            inner.is_some_and(|inner| inner.starts_with('.'))
        };
        // What a module gives as its last part does is what that computes.
        Ok(is_stream(node) || before.iter().any(is_within) && self.terms(at)?.len() > 1)
    }

    /// The nodes that one is the sum of, in the reference: those of its layer, and what was handed to that.
    pub fn terms(&mut self, at: usize) -> Result<Vec<usize>> {
        if let Some(known) = self.sums.get(&at) {
            return Ok(known.clone());
        }
        let rows = self.sides.some_rows(at, 0, FEW);
        let mut found = Vec::new();
        if let Some(own) = self.sides.picked_left(at, &rows)? {
            found = terms_of(&own, &self.earlier(at, &rows, 0)?, tolerance_of(&own)?)?;
        }
        self.sums.insert(at, found.clone());
        Ok(found)
    }

    /// What the sum in a place is made of, in the reference and in the port: names of nodes, with their factors.
    pub fn both_terms(&mut self, at: usize, found: Measure) -> Result<Option<[String; 2]>> {
        let rows = self.sides.some_rows(at, found.row, FEW);
        let Some(both) = self.sides.picked(at, &rows)? else { return Ok(None) };
        let mut told = Vec::new();
        let meant = self.terms(at)?;
        for (side, own) in both.iter().enumerate() {
            let earlier = self.earlier(at, &rows, side)?;
            let tolerance = if side == 0 { tolerance_of(own)? } else { found.tolerance };
            let terms = with_factors(own, &earlier, &meant, tolerance)?;
            told.extend(terms.map(|terms| self.told(&terms)));
        }
        Ok(<[String; 2]>::try_from(told).ok())
    }

    /// The nodes that what a part computed is added to where its module gives the sum, in the reference and in the port, by
    /// all rows of what it `computed` in both.
    pub fn added_to(
        &self,
        at: usize,
        found: Measure,
        computed: &[Tensor; 2],
    ) -> Result<Option<[String; 2]>> {
        let rows = self.sides.some_rows(at, found.row, FEW);
        let Some(both) = self.sides.picked(at, &rows)? else { return Ok(None) };
        let places = rows.iter().map(|row| u32::try_from(*row).unwrap_or(u32::MAX)).collect();
        let places = Tensor::from_vec::<_, u32>(places, rows.len(), both[0].device())?;
        let mut told = Vec::new();
        for (side, (own, computed)) in both.iter().zip(computed).enumerate() {
            let computed = wide(&computed.flatten_to(D::Minus2)?)?;
            if computed.elem_count() != own.elem_count() / rows.len() * computed.dim(0)? {
                return Ok(None);
            }
            let rest = own.sub(&computed.index_select(&places, 0)?.reshape(own.shape())?)?;
            let terms = terms_of(&rest, &self.earlier(at, &rows, side)?, found.tolerance)?;
            let [term] = terms[..] else { return Ok(None) };
            told.push(self.told(&[(term, 1.0)]));
        }
        Ok(<[String; 2]>::try_from(told).ok().filter(|[meant, made]| meant != made))
    }

    /// A sum of nodes with factors, in words.
    pub fn told(&self, terms: &[(usize, f64)]) -> String {
        let name = |at: usize| self.sides.nodes().get(at).map_or("", |node| node.name.as_str());
        let term = |(at, factor): &(usize, f64)| {
            // Factors that were solved for are as exact as the numbers.
            let is_one = (factor - 1.0).abs() < 1e-3;
            if is_one { name(*at).to_owned() } else { format!("{factor:.4} · {}", name(*at)) }
        };
        terms.iter().map(term).collect::<Vec<_>>().join(" + ")
    }

    /// Rows of the nodes of a layer, and of what was handed to it, before one: of the reference (0), or of the port (1). Before
    /// the first of a layer stand those of the layer before.
    pub fn earlier(&self, at: usize, rows: &[usize], side: usize) -> Result<Vec<(usize, Tensor)>> {
        let before = self.sides.nodes().get(..at.saturating_sub(1)).unwrap_or_default();
        let start = before.iter().rposition(|node| node.part == ModelPart::Layer).unwrap_or(0);
        let count = |at: usize| self.sides.nodes().get(at).map_or(0, Node::rows);
        let mut earlier = Vec::new();
        for place in start..at {
            let own = match self.sides.picked_by(place, at, rows)? {
                Some([left, right]) => Some(if side == 0 { left } else { right }),
                // What is the same for all items, as positions are, may be there once.
                None if side == 0 && count(place) > 0 && count(at).is_multiple_of(count(place)) => {
                    let rows: Vec<usize> = rows.iter().map(|row| row % count(place)).collect();
                    self.sides.picked_left(place, &rows)?
                }
                None => None,
            };
            earlier.extend(own.map(|own| (place, own)));
        }
        Ok(earlier)
    }

    /// What a part adds by itself to the error, where it can be computed again from what it reads.
    pub fn own(&mut self, at: usize, found: Measure, reads: &[usize]) -> Result<Option<Own>> {
        if self.is_sum(at)? {
            return self.of_sum(at, found, reads);
        }
        let Some(beside) = self.beside(at, found, false)? else { return Ok(None) };
        let Some((recorded, expected)) = beside.pair() else { return Ok(None) };
        let agrees = beside.agreement.holds(beside.output, recorded, expected, Claim::Expected)?;
        Ok(Some(Own { error: apart(expected, recorded)?, agrees }))
    }

    fn of_sum(&mut self, at: usize, found: Measure, reads: &[usize]) -> Result<Option<Own>> {
        let meant = self.terms(at)?;
        if meant.is_empty() {
            return Ok(None);
        }
        if meant != reads {
            return self.of_another_sum(at, found);
        }
        let rows = self.sides.some_rows(at, found.row, MANY);
        let Some([_, recorded]) = self.sides.picked(at, &rows)? else { return Ok(None) };
        let of_port =
            |read: &usize| Ok(self.sides.picked_by(*read, at, &rows)?.map(|[_, own]| own));
        let terms: Option<Vec<Tensor>> = reads.iter().map(of_port).collect::<Result<_>>()?;
        let Some(terms) = terms else { return Ok(None) };
        let error = apart(&added_up(terms.into_iter().map(Ok))?, &recorded)?;
        Ok(Some(Own { error, agrees: error <= found.tolerance }))
    }

    /// What a sum adds by itself of which the port lacks a term: where it is the sum of others in the port, and these do not
    /// make it in the reference, all of its error.
    fn of_another_sum(&self, at: usize, found: Measure) -> Result<Option<Own>> {
        let rows = self.sides.some_rows(at, found.row, FEW);
        let Some([meant, own]) = self.sides.picked(at, &rows)? else { return Ok(None) };
        let earlier = self.earlier(at, &rows, 1)?;
        let terms = terms_of(&own, &earlier, found.tolerance)?;
        if terms.len() < 2 {
            return Ok(None);
        }
        let off = |sum: &Tensor, all: Vec<(usize, Tensor)>| {
            let parts = all.into_iter().filter(|(at, _)| terms.contains(at));
            apart(sum, &added_up(parts.map(|(_, part)| Ok(part)))?)
        };
        let agrees = off(&meant, self.earlier(at, &rows, 0)?)? <= found.tolerance;
        let error = if agrees { off(&own, earlier)? } else { found.error };
        Ok((agrees || !found.agrees()).then_some(Own { error, agrees }))
    }

    /// The port's part beside what its inputs should give; nothing where the part is read as no program. Where the port is right
    /// up to it, what the port does not have of its inputs is what the reference has.
    pub fn beside(
        &mut self,
        at: usize,
        found: Measure,
        is_right_before: bool,
    ) -> Result<Option<Beside>> {
        let Some((input, reading, parameters)) = self.as_program(at)? else { return Ok(None) };
        let rows = self.sides.some_rows(at, found.row, MANY);
        let x = match self.sides.picked_by(input, at, &rows)? {
            Some([_, own]) => Some(own),
            None if is_right_before => self.sides.picked_left(input, &rows)?,
            None => None,
        };
        let (Some(x), Some([_, recorded])) = (x, self.sides.picked(at, &rows)?) else {
            return Ok(None);
        };
        // A port in f64 may have parts in f32, as the reference has.
        let is_wide = self.sides.nodes().get(at).is_some_and(|node| node.dtype == DType::F64);
        let dtype = if is_wide { x.dtype() } else { DType::F32 };
        let (x, recorded) = (x.to_dtype(dtype)?, recorded.to_dtype(dtype)?);
        let Some(trace) = reading.run(&x, &self.of_port(at, parameters, found)?)? else {
            return Ok(None);
        };
        let output = reading.output;
        let mut values: HashMap<Name, Tensor> = trace
            .steps()
            .iter()
            .filter(|step| !step.is_computed())
            .map(|step| (step.name, step.value.clone()))
            .collect();
        values.insert(output, recorded);
        let agreement = Agreement::measured(&trace, &values, found.half, false, self.tolerances)?;
        Ok(Some(Beside { trace, output, recorded: values, agreement }))
    }

    /// The node that a part reads, what the part is, and its parameters in the reference; nothing where it reads several, or is
    /// read as no program.
    pub fn as_program(&mut self, at: usize) -> Result<Option<(usize, Reading, Parameters)>> {
        let Some((node, [input])) =
            self.sides.nodes().get(at).map(|node| (node, node.reads.as_slice()))
        else {
            return Ok(None);
        };
        let parameters = in_numbers(self.sides.left.parameters(&node.path)?)?;
        let reading = self.reading(at, *input, &parameters)?;
        Ok(reading.map(|reading| (*input, reading, parameters)))
    }

    /// What a part is, by what it gives in the reference.
    fn reading(
        &mut self,
        at: usize,
        input: usize,
        parameters: &Parameters,
    ) -> Result<Option<Reading>> {
        let (Some(node), Some(source)) =
            (self.sides.nodes().get(at), self.sides.nodes().get(input))
        else {
            return Ok(None);
        };
        if source.rows() != node.rows() {
            return Ok(None);
        }
        let rows = self.sides.some_rows(at, 0, FEW);
        let (Some(x), Some(output)) =
            (self.sides.picked_left(input, &rows)?, self.sides.picked_left(at, &rows)?)
        else {
            return Ok(None);
        };
        let hint = self.hints.entry(node.part).or_default();
        let tolerance = tolerance_of(&output)?;
        read([&x, &output], parameters, node.eps, hint, tolerance)
    }

    /// The port's parameters where they are the reference's but for rounding, else the reference's.
    pub fn of_port(&self, at: usize, parameters: Parameters, found: Measure) -> Result<Parameters> {
        let Some((_, node)) = self.sides.partner(at) else { return Ok(parameters) };
        let own = in_numbers(self.sides.right.parameters(&node.path)?)?;
        let taken = parameters.into_iter().map(|(name, right)| {
            let other =
                own.iter().find(|(other, tensor)| *other == name && tensor.dims() == right.dims());
            match other {
                Some((_, tensor)) if apart(&right, tensor)? <= found.tolerance => {
                    Ok((name, tensor.clone()))
                }
                _ => Ok((name, right)),
            }
        });
        taken.collect()
    }

    /// The diagnosis of a part of the port.
    pub fn diagnosed(&self, beside: &Beside, path: &Path) -> Result<Option<Report>> {
        let Some((recorded, expected)) = beside.pair() else { return Ok(None) };
        let axes = beside.trace.step(beside.output).map(|step| step.axes.clone());
        let step = StepReport::of(
            beside.output.as_str(),
            recorded,
            expected,
            axes.as_ref(),
            self.tolerances,
        )?;
        let mut steps = vec![step];
        let case = Case {
            config: self.beside.config(),
            trace: &beside.trace,
            recorded: &beside.recorded,
            agreement: &beside.agreement,
            noise_counts: self.tolerances.noise_counts,
            tried: None,
        };
        let diagnosis = Some(case.diagnose(&mut steps, Some(PATIENCE))?);
        Ok(Some(Report { diagnosis, ..Report::of(path, steps, &Tolerances::default())? }))
    }
}

/// Whether a node is of a residual stream, which no module gives by itself.
fn is_stream(node: &Node) -> bool {
    matches!(node.part, ModelPart::Between | ModelPart::Layer)
}

impl Beside {
    /// What it is, where it is a function of single numbers, without parameters.
    pub fn function(&self) -> Option<String> {
        let step = self.trace.step(self.output)?;
        let reads_x = |read: &Step| read.name == Name::X;
        self.trace.read_by(step).into_iter().all(reads_x).then(|| self.trace.formula(step))
    }

    /// What was recorded, and what it should be.
    fn pair(&self) -> Option<(&Tensor, &Tensor)> {
        let expected = &self.trace.step(self.output)?.value;
        let recorded = self.recorded.get(&self.output)?;
        (recorded.dims() == expected.dims()).then_some((recorded, expected))
    }
}

pub fn in_numbers(parameters: Parameters) -> Result<Parameters> {
    parameters.into_iter().map(|(name, own)| Ok((name, wide(&own)?))).collect()
}
