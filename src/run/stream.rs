//! How is a run written as it is made, without keeping its values?

use candle_core::{DType, Tensor};

use super::Run;
use super::memory::{fits_given, fits_step};
use super::record::to_infos;
use base::error::Result;
use file::{Growing, Output};
use program::{Receiver, Step};

/// What takes the numbers of a run: the file that is written, if there is one.
struct Taken<'a> {
    file: Option<&'a Growing<'a>>,
    dtype: DType,
}

impl Taken<'_> {
    /// The file, if it has the step.
    fn file(&self, step: &Step<()>) -> Option<&Growing<'_>> {
        self.file.filter(|_| !step.name.row().is_inner)
    }
}

impl Receiver for Taken<'_> {
    fn before(&self, step: &Step<()>) -> Result<()> {
        fits_step(step, self.dtype)
    }

    fn whole(&self, step: &Step<()>, value: &Tensor) -> Result<()> {
        self.file(step).map_or(Ok(()), |file| file.whole(step.name.as_str(), value))
    }

    fn rows(&self, step: &Step<()>, first: usize, numbers: &[f32]) -> Result<()> {
        self.file(step).map_or(Ok(()), |file| file.part(step.name.as_str(), first, numbers))
    }
}

impl Run {
    /// Draws, loads and computes everything, and writes each value to the file as it is made. No value is kept longer than
    /// the run needs it, so that runs are written whose values together are larger than the memory. The file is the one that
    /// [`Output::write`] writes of the whole trace.
    ///
    /// # Errors
    /// [`Error::TooLarge`](base::error::Error::TooLarge) before anything is drawn if what is given does not fit in memory, or when
    /// the turn of a value comes that does not; if a given tensor does not fit the run; and as [`Output::write`].
    pub fn write(&self, output: Output) -> Result<()> {
        // What there is no room for is refused before anything is written.
        fits_given(&self.program, self.config.dtype.into())?;
        let infos = to_infos(&self.program, &self.config);
        output.write_growing(&infos, &(&self.config).into(), |file| self.stream(Some(file)))
    }

    /// Draws, loads and computes everything, and keeps nothing.
    ///
    /// # Errors
    /// As [`Run::write`], but for the file.
    pub fn compute(&self) -> Result<()> {
        self.stream(None)
    }

    fn stream(&self, file: Option<&Growing>) -> Result<()> {
        self.stream_to(&Taken { file, dtype: self.config.dtype.into() })
    }

    /// Draws, loads and computes everything, and hands the numbers over as they are made.
    ///
    /// # Errors
    /// As [`Run::compute`], and those of `receiver`.
    pub fn stream_to(&self, receiver: &dyn Receiver) -> Result<()> {
        fits_given(&self.program, self.config.dtype.into())?;
        self.program.stream(self.given()?, receiver)
    }
}
