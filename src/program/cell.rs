//! Cells of traces.

use std::fmt;
use std::str::FromStr;

use base::error::shown;

/// A cell of a step, written as `scores[0,1,2,3]`; that of a single number by its name alone, `lambda`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cell {
    /// The step's name.
    pub step: String,
    /// An index an axis, outermost first.
    pub index: Vec<usize>,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.index.is_empty() {
            return f.write_str(&self.step);
        }
        let index: Vec<String> = self.index.iter().map(ToString::to_string).collect();
        write!(f, "{}[{}]", self.step, index.join(","))
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.trim().strip_suffix(']').and_then(|text| text.split_once('['));
        let wrong = || tr!("`{text}` is not a cell, such as scores[0,1,2,3]", text = shown(text));
        let (step, index) = parts.ok_or_else(wrong)?;
        let index: Result<Vec<usize>, _> = index.split(',').map(|at| at.trim().parse()).collect();
        Ok(Self { step: step.trim().to_owned(), index: index.map_err(|_| wrong())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_reads() {
        let cell = Cell { step: "scores".to_owned(), index: vec![0, 1, 2, 3] };
        assert_eq!("scores[0,1,2,3]".parse(), Ok(cell.clone()));
        assert_eq!(" scores[0, 1,2, 3] ".parse(), Ok(cell.clone()));
        assert_eq!(cell.to_string(), "scores[0,1,2,3]");
        let single = Cell { step: "lambda".to_owned(), index: Vec::new() };
        assert_eq!(single.to_string(), "lambda");
        for text in ["scores", "scores[]", "scores[a]", "scores[0", "scores[-1]"] {
            assert!(text.parse::<Cell>().is_err(), "{text}");
        }
    }
}
