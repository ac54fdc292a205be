//! For eyes: traces, shapes, reports and explanations as pages of blocks, and pages as text. Nothing here is read back.

#[macro_use]
extern crate base;

mod bugs;
mod by_layer;
mod cut;
mod diagnosis;
mod explain;
mod formula;
mod header;
mod heat;
mod html;
mod label;
mod latex;
mod markdown;
mod models;
mod number;
mod page;
mod palette;
mod report;
mod shapes;
mod text;
mod tour;
mod trace;
#[cfg(feature = "walk")]
pub mod walk;
mod wrap;

pub use bugs::{bug_list, bug_page};
pub use by_layer::by_layer_page;
pub use explain::{Asked, explanation, explanation_json, step_json, step_page};
pub use html::page_texts;
pub use html::{by_layer_html, checked_html, compared_html, trace_html};
pub use latex::latex;
pub use markdown::markdown;
pub use models::model_list;
pub use page::{Block, Grid, Head, Table, Text, Tone};
pub use palette::Palette;
pub use report::{Sides, Tables, report_page};
pub use shapes::{shapes_json, shapes_page};
pub use text::{Style, write_text};
pub use tour::tour_page;
pub use trace::trace_page;
#[cfg(feature = "walk")]
pub use wrap::wrapped;

use base::error::{Error, Result};
use config::Config;
use file::Record;
use foreign::asked;
use program::{Axis, Name, Program, Step, Trace};
use run::to_record;

/// What is shown of a trace, and how.
#[derive(Debug, Clone)]
pub struct View {
    /// The steps to show, in order of execution; by default all but parameters, and what is only a part of a step.
    pub steps: Option<Vec<String>>,
    /// The only batch item to show.
    pub batch_item: Option<usize>,
    /// The only head to show.
    pub head: Option<usize>,
    /// Decimals of every number.
    pub decimals: usize,
    /// Items shown at each end of every longer axis; without it, of those axes that are too long to be shown.
    pub edge: Option<usize>,
    /// Show everything, however large.
    pub full: bool,
    /// Show how high scores and weights are.
    pub heatmap: bool,
    /// Say why each step is there.
    pub why: bool,
    /// Through how many steps a number is followed that is explained.
    pub depth: usize,
}

impl Default for View {
    fn default() -> Self {
        Self {
            steps: None,
            batch_item: None,
            head: None,
            decimals: 3,
            edge: None,
            full: false,
            heatmap: false,
            why: false,
            depth: 1,
        }
    }
}

/// The step that is asked for by its name, or by one that code gives it.
///
/// # Errors
/// If the program has none.
fn step_called<'a, V>(program: &'a Program<V>, name: &str) -> Result<&'a Step<V>> {
    let found = asked(name).into_iter().find_map(|name| program.step(name));
    found.ok_or_else(|| program.no_step(name))
}

impl View {
    /// Items shown at each end of a long axis, unless the view says how many.
    pub const EDGE: usize = 3;

    /// The view with its steps under the names that the program has for them: they may be asked for by any name that
    /// files give them, as `attn_weights`.
    ///
    /// # Errors
    /// If a step, batch item or head is not one of the program's.
    pub fn of<V>(mut self, config: &Config, program: &Program<V>) -> Result<Self> {
        for name in self.steps.iter_mut().flatten() {
            *name = step_called(program, name)?.name.to_string();
        }
        let sizes = &config.sizes;
        let picked = [
            ("batch", tr!("batch item"), self.batch_item, sizes.batch),
            ("heads", tr!("head"), self.head, sizes.heads),
        ];
        for (key, what, picked, size) in picked {
            if let Some(at) = picked
                && at >= size
            {
                let fix = match size {
                    1 => tr!("the only one is 0; `{key}=2` makes two", key),
                    _ => tr!("they are counted from 0 to {size}", size = size - 1),
                };
                return Err(Error::config(tr!("there is no {what} {at}", what, at), fix));
            }
        }
        Ok(self)
    }

    /// The only place of an axis that is shown of a step; of shared key heads, the one of the query head.
    fn place(&self, config: &Config, step: Name, axis: Axis) -> Option<usize> {
        match axis {
            Axis::Batch => self.batch_item,
            Axis::Head if step.row().has_key_heads() => {
                self.head.map(|head| head / config.sizes.shared())
            }
            Axis::Head => self.head,
            _ => None,
        }
    }

    /// What files hold of the steps that are asked for, each cut to the batch item and the head: these axes stay, of
    /// length 1.
    ///
    /// # Errors
    /// If candle fails.
    pub fn record(&self, trace: &Trace, config: &Config) -> Result<Record> {
        let mut record = to_record(trace, config);
        if let Some(steps) = &self.steps {
            record.entries.retain(|entry| steps.contains(&entry.name));
        }
        for entry in &mut record.entries {
            let step = Name::named(&entry.name).and_then(|name| trace.step(name));
            let Some(step) = step else { continue };
            for (at, (axis, size)) in step.axes.iter().enumerate() {
                let place = self.place(config, step.name, axis).filter(|_| size > 1);
                if let Some(place) = place {
                    entry.tensor = entry.tensor.narrow(at, place, 1)?.contiguous()?;
                }
            }
        }
        Ok(record)
    }

    /// Whether the step of that name is to be shown.
    #[must_use]
    pub fn shows(&self, name: Name) -> bool {
        match &self.steps {
            Some(steps) => steps.iter().any(|step| step == name.as_str()),
            None => !name.row().is_detail,
        }
    }
}
