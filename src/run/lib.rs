//! From settings and sources to a run, and from a run to a trace.

#[macro_use]
extern crate base;

mod again;
mod core;
mod load;
mod masks;
mod memory;
mod record;
mod sizes;
mod sources;
mod stream;

pub use masks::{key_mask_rows, positions_in, positions_of};
pub use memory::fits_step;
pub use record::to_record;
pub use sources::Sources;

use std::path::PathBuf;

use candle_core::{Device, Tensor};

use attention::attention;
use base::error::{Error, Result};
use config::{Config, OutputGradient, Settings};
use foreign::Match;
use program::{Given, Name, Op, Program, Role, Step, Trace, first_number, of_pairs};

/// A run that is decided and checked, and not yet started.
#[derive(Debug, Clone)]
pub struct Run {
    config: Config,
    program: Program,
    sources: Sources,
}

/// What is added to scores that are blocked is this low at least: the masks of 16-bit models add −10⁴ and less.
pub const LOW: f64 = -1e4;

impl Run {
    /// Decides the config from the settings and the sources' sizes, and lays out the program. Nothing is
    /// allocated, so any size works.
    ///
    /// # Errors
    /// If the settings contradict themselves or a tensor.
    pub fn new(settings: &Settings, mut sources: Sources) -> Result<Self> {
        let config = sources.resolve(settings)?;
        sources.drop_what_follows(&config)?;
        sources.refuse_absorbed_bias(&config)?;
        let program = attention(&config, &sources.outside(&config)?)?;
        Ok(Self { config, program, sources })
    }

    /// The setting.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What was taken as what from the files that the run is given.
    pub fn matches(&self) -> &[Match] {
        self.sources.matches()
    }

    /// The files that the run's numbers were read from.
    pub fn files(&self) -> &[PathBuf] {
        self.sources.files()
    }

    /// The parameters of the layer that no step reads, as their files call them.
    pub fn unread(&self) -> impl Iterator<Item = &str> {
        self.sources.unread(&self.program)
    }

    /// Whether a step that would follow from the settings is given, and is not what follows.
    pub fn is_given_otherwise(&self, step: Name) -> bool {
        self.sources.has(step) && !self.sources.follows(step)
    }

    /// What files give to the run and holds NaN, which all becomes that is computed from it.
    ///
    /// # Errors
    /// If candle fails.
    pub fn not_numbers(&self) -> Result<Vec<Name>> {
        let mut found = Vec::new();
        for (name, tensor) in self.sources.given(&self.config)? {
            if first_number(&tensor, f64::is_nan)?.is_some() {
                found.push(name);
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Whether the mask of a file holds 0.0 and 1.0 alone, and is added to the scores as all floats are: it blocks nothing,
    /// which may not be what was meant.
    ///
    /// # Errors
    /// If candle fails.
    pub fn adds_ones(&self) -> Result<bool> {
        Ok(self.sources.with_ones_seen()?.is_some())
    }

    /// Whether running it draws a number, by the seed.
    ///
    /// # Errors
    /// If what is given does not fit.
    pub fn draws(&self) -> Result<bool> {
        let own = self.sources.given(&self.config)?;
        Ok(self.program.steps().iter().any(|step| self.is_drawn(step, &own)))
    }

    /// Whether a step is drawn, where that is given: it is neither that, nor has its like one fresh number, nor follows
    /// from the settings.
    fn is_drawn(&self, step: &Step<()>, own: &Given) -> bool {
        let is_kept = own.contains_key(&step.name);
        let is_made = matches!(step.name.role(), Role::Cache | Role::Setting);
        step.op == Op::Given && !is_kept && self.fresh(step.name).is_none() && !is_made
    }

    /// What all numbers of a step are that is neither given nor drawn: of a fresh model, or of the output's sum.
    fn fresh(&self, name: Name) -> Option<f64> {
        let is_of_sum = self.config.plain.d_output == OutputGradient::Ones;
        match name {
            Name::Gradient(_) => is_of_sum.then_some(1.0),
            _ => name.row().fresh,
        }
    }

    /// Whether the mask of a file blocks all that those of the run's own masks do, and the run has any of them.
    ///
    /// # Errors
    /// If a mask does not fit, or candle fails.
    pub fn file_covers(&self, masks: &[Name]) -> Result<bool> {
        let given = self.sources.given(&self.config)?;
        let own =
            [Name::FileMask, Name::FileBias].iter().find_map(|name| given.get_key_value(name));
        let Some((name, mask)) = own else { return Ok(false) };
        let blocked = blocked_by(*name, mask)?;
        let places = masks.iter().filter_map(|name| self.program.position(*name));
        let places: Vec<usize> = places.collect();
        for at in &places {
            let part = self.program.part(*at);
            memory::fits(&part, self.config.dtype.into())?;
            let part = part.run(&given)?;
            let Some(own) = part.steps().last() else { continue };
            let missed = own.value.broadcast_gt(&blocked)?;
            if missed.flatten_all()?.max(0)?.to_scalar::<u8>()? > 0 {
                return Ok(false);
            }
        }
        Ok(!places.is_empty())
    }

    /// What the run's masks block, true where they do; nothing where it has none.
    ///
    /// # Errors
    /// If a mask does not fit, or candle fails.
    pub fn blocked(&self) -> Result<Option<Tensor>> {
        self.value_of(Name::Mask)
    }

    /// The value of a step that follows from the settings and what is given; nothing where there is no such step.
    ///
    /// # Errors
    /// If what is given does not fit, or candle fails.
    pub fn value_of(&self, name: Name) -> Result<Option<Tensor>> {
        let Some(at) = self.program.position(name) else { return Ok(None) };
        let part = self.program.part(at);
        memory::fits(&part, self.config.dtype.into())?;
        let part = part.run(&self.sources.given(&self.config)?)?;
        Ok(part.steps().last().map(|step| step.value.clone()))
    }

    /// What a mask of a file blocks, true where it does, read as the run would read it.
    ///
    /// # Errors
    /// If it does not fit, or candle fails.
    pub fn blocked_by(&self, mask: &Tensor) -> Result<Tensor> {
        let (name, mask) = masks::of_file(&self.config, mask)?;
        blocked_by(name, &mask)
    }

    /// Draws, loads and computes everything.
    ///
    /// # Errors
    /// [`Error::TooLarge`] before anything is drawn; or if a given tensor does not fit.
    pub fn trace(&self) -> Result<Trace> {
        memory::fits(&self.program, self.config.dtype.into())?;
        self.program.run(&self.given()?)
    }

    /// The tensors that the run is given, loaded or drawn, without what is computed from them.
    ///
    /// # Errors
    /// As [`Run::trace`].
    pub fn inputs(&self) -> Result<Trace> {
        memory::fits(&self.program, self.config.dtype.into())?;
        let steps = self.program.steps().iter();
        let names: Vec<Name> =
            steps.filter(|step| step.op == Op::Given).map(|step| step.name).collect();
        self.program.between(&names, &names).run(&self.given()?)
    }

    /// Every tensor that comes from outside: from the sources, fresh, or drawn.
    fn given(&self) -> Result<Given> {
        let own = self.sources.given(&self.config)?;
        let mut given = Given::new();
        for step in self.program.steps().iter().filter(|step| step.op == Op::Given) {
            if let Some(number) = self.fresh(step.name)
                && !own.contains_key(&step.name)
            {
                let fresh = Tensor::full(number, step.axes.shape(), &Device::Cpu)?;
                given.insert(step.name, fresh.to_dtype(self.config.dtype.into())?);
            }
        }
        // Queries, keys and values that the run starts at are drawn as its input is.
        if self.program.steps().iter().any(|step| self.is_drawn(step, &own)) {
            given.extend(torch::draw(&self.config)?);
        }
        given.extend(own);
        Ok(given)
    }
}

/// What the mask of a file blocks, or adds so much to that nobody sees it.
fn blocked_by(name: Name, mask: &Tensor) -> Result<Tensor> {
    Ok(if name == Name::FileBias { mask.le(LOW)? } else { mask.clone() })
}

impl Sources {
    /// Refuses a bias of keys and values in the absorbed order, which makes none that it could be added to.
    fn refuse_absorbed_bias(&self, config: &Config) -> Result<()> {
        if !config.plain.bias || !config.sizes.absorbs() {
            return Ok(());
        }
        for name in [Name::BK, Name::BV] {
            let is_there = match self.tensor(name) {
                Some(bias) => bias.ne(0.0)?.max_all()?.to_scalar::<u8>()? > 0,
                // It is drawn with its weight.
                None => !self.has(Name::WK),
            };
            if is_there {
                let what =
                    tr!("{name} is of the keys and values of heads, and absorb makes none", name);
                return Err(Error::config(what, "leave absorb out"));
            }
        }
        Ok(())
    }

    /// Drops given masks, biases and frequencies that are what follows from the settings anyway, so that the run knows
    /// how they are made. Frequencies stay as numbers: their last bits differ from machine to machine.
    fn drop_what_follows(&mut self, config: &Config) -> Result<()> {
        for name in [Name::Mask, Name::AttnBias, Name::RopeFreqs] {
            let Some(own) = self.tensor(name).cloned() else { continue };
            let others = self.without(name);
            let program = attention(config, &others.outside(config)?)?;
            let Some(at) = program.position(name).filter(|at| program.steps()[*at].op != Op::Given)
            else {
                continue;
            };
            let follows = program.part(at).run(&others.given(config)?)?;
            let Some(follows) = follows.step(name) else { continue };
            if alike(&own, &follows.value)? {
                self.follow(name, follows.value.dims());
            }
        }
        Ok(())
    }
}

/// Whether two tensors broadcast to the same numbers, but for the last bits of an f32.
fn alike(left: &Tensor, right: &Tensor) -> Result<bool> {
    let shape = if left.elem_count() > right.elem_count() { left.shape() } else { right.shape() };
    let (Ok(left), Ok(right)) = (left.broadcast_as(shape), right.broadcast_as(shape)) else {
        return Ok(false);
    };
    let near = 4.0 * f64::from(f32::EPSILON);
    #[allow(clippy::float_cmp, reason = "equal infinities")]
    let is_near = |(l, r): (&f64, &f64)| l == r || (l - r).abs() <= near * r.abs();
    let parts = of_pairs(&left, &right, |left, right| left.iter().zip(right).all(is_near))?;
    Ok(parts.into_iter().all(|are_near| are_near))
}
