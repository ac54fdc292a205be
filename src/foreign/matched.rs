//! Which tensor of a file was taken as which step.

use std::fmt;

use serde::Serialize;

/// A tensor of a file that was taken as a step of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Match {
    /// The step, or the setting that the tensor tells.
    pub step: String,
    /// The tensor's name in its file.
    pub tensor: String,
    /// How it was read, where not simply as it is: "rows 12 to 23", "with axes (batch, query, head, `head_dim`)".
    pub how: Option<String>,
    /// Whether that was a choice, which a user should know of, rather than how such tensors are always read.
    #[serde(skip)]
    pub chosen: bool,
    /// Whether no file has it: it was filled in for want of a tensor.
    #[serde(skip)]
    pub filled: bool,
}

impl Match {
    /// A tensor that was taken as it is.
    pub fn as_it_is(step: impl Into<String>, tensor: impl Into<String>) -> Self {
        let (step, tensor) = (step.into(), tensor.into());
        Self { step, tensor, how: None, chosen: false, filled: false }
    }

    /// Zeros in place of a tensor that no file has.
    pub fn zeros(step: impl Into<String>) -> Self {
        let how = Some(tr!("zeros").to_owned());
        Self { how, filled: true, ..Self::as_it_is(step, tr!("no tensor")) }
    }

    /// The same, with how it was chosen to be read.
    pub fn read(self, how: impl Into<String>) -> Self {
        Self { how: Some(how.into()), chosen: true, ..self }
    }
}

impl fmt::Display for Match {
    /// `w_q = attn.c_attn.weight, columns 0 to 11, transposed`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.step, self.tensor)?;
        self.how.iter().try_for_each(|how| write!(f, ", {how}"))
    }
}
