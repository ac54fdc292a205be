//! For eyes: traces, shapes and reports as text. Nothing here is read back.

mod bugs;
mod diagnosis;
mod explain;
mod grid;
mod header;
mod heat;
mod label;
mod number;
mod report;
mod shapes;
mod steps;
mod title;

pub use bugs::{bug_list, bug_page};
pub use explain::{explanation, explanation_json};
pub use report::{Sides, Tables, report_json, report_table};
pub use shapes::{shapes_json, shapes_table};
pub use steps::trace_tables;

use crate::config::Config;
use crate::error::{Error, Result, near_miss};

/// What is shown of a trace, and how.
#[derive(Debug, Clone)]
pub struct View {
    /// The steps to show, in order of execution; by default all but weights, biases and dropout's keep-mask.
    pub steps: Option<Vec<String>>,
    /// The only batch item to show.
    pub batch_item: Option<usize>,
    /// The only head to show.
    pub head: Option<usize>,
    /// Decimals of every number.
    pub decimals: usize,
    /// Items shown at each end of a long axis.
    pub edge: usize,
    /// Show everything, however large.
    pub full: bool,
    /// Show scores and weights as shades.
    pub heatmap: bool,
    /// Columns of text that fit a line.
    pub width: usize,
    /// Whether to use colour.
    pub color: bool,
}

impl Default for View {
    fn default() -> Self {
        Self {
            steps: None,
            batch_item: None,
            head: None,
            decimals: 3,
            edge: 3,
            full: false,
            heatmap: false,
            width: 100,
            color: false,
        }
    }
}

impl View {
    /// Checks that what is asked for is there.
    ///
    /// # Errors
    /// If a step, batch item or head is not one of the run's `steps` and sizes.
    pub fn check(&self, config: &Config, steps: &[&str]) -> Result<()> {
        for name in self.steps.iter().flatten() {
            if !steps.contains(&name.as_str()) {
                let fix = match near_miss(name, steps) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("this run has {}", steps.join(", ")),
                };
                return Err(Error::config(format!("this run has no step {name}"), fix));
            }
        }
        let picked =
            [("batch item", self.batch_item, config.batch), ("head", self.head, config.heads)];
        for (what, picked, size) in picked {
            if let Some(at) = picked
                && at >= size
            {
                let fix = format!("they are counted from 0 to {}", size - 1);
                return Err(Error::config(format!("there is no {what} {at}"), fix));
            }
        }
        Ok(())
    }

    /// Whether the step of that name is to be shown.
    #[must_use]
    pub fn shows(&self, name: &str) -> bool {
        match &self.steps {
            Some(steps) => steps.iter().any(|step| step == name),
            None => !title::is_parameter(name),
        }
    }
}
