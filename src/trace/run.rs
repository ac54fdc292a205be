//! From settings to a trace.

use super::attention::attention;
use super::program::{Program, Trace};
use crate::config::{Config, Settings};
use crate::error::Result;
use crate::source::{Sources, Taken};

/// A run that is decided and checked, and not yet started.
#[derive(Debug, Clone)]
pub struct Run {
    config: Config,
    program: Program,
    sources: Sources,
}

impl Run {
    /// Decides the config from the settings and the sources' sizes, and lays out the program. Nothing is
    /// allocated, so any size works.
    ///
    /// # Errors
    /// If the settings contradict themselves or a tensor.
    pub fn new(settings: &Settings, sources: Sources) -> Result<Self> {
        let config = sources.resolve(settings)?;
        let program = attention(&config, &sources.mask_shapes(&config)?)?;
        Ok(Self { config, program, sources })
    }

    /// The setting.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What was taken as what from the files that the run is given.
    #[must_use]
    pub fn taken(&self) -> &[Taken] {
        self.sources.taken()
    }

    /// Draws, loads and computes everything.
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge) before anything is drawn; or if a given tensor does not fit.
    pub fn trace(&self) -> Result<Trace> {
        self.program.fits_memory(self.config.dtype)?;
        self.program.run(&self.sources.given(&self.config)?)
    }
}
