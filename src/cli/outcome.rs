//! How can a command end, and with which exit code?

use std::process::ExitCode;

/// How a command that could be carried out ended.
pub enum Outcome {
    /// Done, and where something was compared, the same.
    Same,
    /// Compared, and different.
    Different,
    /// Not all could be done, and why has been said.
    Failed,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Same => Self::SUCCESS,
            Outcome::Different => Self::from(1),
            Outcome::Failed => Self::from(2),
        }
    }
}
