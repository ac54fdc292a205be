//! What was taken as what: the tensors of a file under our names.

use std::fmt;

/// A tensor of a file that was taken as a step of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The step.
    pub step: String,
    /// The tensor's name in its file.
    pub tensor: String,
    /// How it was read, where not simply as it is: "rows 12 to 23", "with axes (batch, query, head, `head_dim`)".
    pub how: Option<String>,
}

impl Taken {
    /// A tensor that was taken as it is.
    pub fn as_it_is(step: impl Into<String>, tensor: impl Into<String>) -> Self {
        Self { step: step.into(), tensor: tensor.into(), how: None }
    }

    /// The same, with how it was read.
    #[must_use]
    pub fn read(mut self, how: impl Into<String>) -> Self {
        self.how = Some(how.into());
        self
    }

    /// Whether nothing but the name was decided.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.how.is_none()
    }
}

impl fmt::Display for Taken {
    /// `w_q = attn.c_attn.weight, columns 0 to 11, transposed`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.step, self.tensor)?;
        self.how.iter().try_for_each(|how| write!(f, ", {how}"))
    }
}
