//! What an operation works out on the way to a number, which its terms alone do not show.

use super::terms::{Factor, Value};
use base::error::Result;

/// What an operation works out on the way to a number.
#[derive(Debug, Clone, PartialEq)]
pub enum Working {
    /// Nothing but the terms.
    Plain,
    /// The exponentials of a row of scores.
    Softmax(Exponentials),
    /// What a mask makes of a score.
    Masked {
        /// The score before the mask.
        score: Factor,
        /// Whether the mask replaces it.
        is_blocked: bool,
    },
    /// What dropout makes of a weight.
    Dropped {
        /// Whether it is kept.
        is_kept: bool,
        /// The probability of dropping a weight.
        p: f64,
    },
    /// The rotation of a pair of features.
    Turned(Turned),
    /// The norm of a row.
    Normed(Normed),
    /// The place of a feature of all heads in its own: feature = head · `head_dim` + own.
    Moved {
        /// The head.
        head: usize,
        /// The features of a head.
        head_dim: usize,
        /// The place among the features of the head.
        own: usize,
        /// Whether the heads are split, and not put side by side.
        is_split: bool,
    },
}

/// How numbers move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// The same numbers in the same order under another shape: `reshape`, `view`.
    Reshape,
    /// The second and the third axis change places: `transpose(1, 2)`.
    Transpose,
}

/// The exponentials of a row of scores, and their sum.
#[derive(Debug, Clone, PartialEq)]
pub struct Exponentials {
    /// A score for each key.
    pub keys: Vec<Exponential>,
    /// The score that is no key's, if the head has one.
    pub sink: Option<Exponential>,
    /// The largest score of the row, that of the sink included.
    pub largest: f64,
    /// The sum of all exponentials.
    pub sum: f64,
}

/// A score on its way to a weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Exponential {
    /// The score.
    pub score: Factor,
    /// The score less the largest of the row.
    pub less: f64,
    /// The exponential of that.
    pub exp: f64,
}

impl Exponentials {
    /// Those of a row (batch, head, query) of scores, and of the head's sink where there is one.
    ///
    /// # Errors
    /// If there is no such row.
    pub fn of(scores: &Value, sinks: Option<&Value>, row: &[usize]) -> Result<Self> {
        let numbers = scores.row(row)?.into_iter().enumerate();
        let keys: Vec<Factor> =
            numbers.map(|(key, score)| scores.named(&[row, &[key]].concat(), score)).collect();
        let head = row.get(1).copied().unwrap_or_default();
        let sink = sinks.map(|sinks| sinks.at(&[head])).transpose()?;
        let all = keys.iter().chain(&sink).map(|score| score.value);
        let largest = all.fold(f64::NEG_INFINITY, f64::max);
        let exponential = |score: Factor| {
            let less = score.value - largest;
            Exponential { score, less, exp: less.exp() }
        };
        let keys: Vec<Exponential> = keys.into_iter().map(exponential).collect();
        let sink = sink.map(exponential);
        let sum = keys.iter().chain(&sink).map(|key| key.exp).sum();
        Ok(Self { keys, sink, largest, sum })
    }

    /// Whether every key's score is −∞, so that there is nothing to share.
    pub fn is_empty(&self) -> bool {
        self.keys.iter().all(|key| key.score.value == f64::NEG_INFINITY)
    }

    /// What the sum is over, in words.
    pub fn over(&self) -> &'static str {
        if self.sink.is_some() { tr!("keys and the sink") } else { tr!("keys") }
    }
}

/// The rotation of a pair of features.
#[derive(Debug, Clone, PartialEq)]
pub struct Turned {
    /// The place of the pair among the head's pairs.
    pub pair: usize,
    /// Its two features: (a, b) becomes (a · cos − b · sin, b · cos + a · sin), with the other sign backwards.
    pub features: [usize; 2],
    /// The token's position.
    pub position: usize,
    /// The pair's frequency, in radians a position.
    pub frequency: Factor,
    /// Position · frequency, in radians.
    pub angle: f64,
    /// What cosine and sine are multiplied by, if not by 1.
    pub factor: Option<f64>,
}

/// The norm of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Normed {
    /// The numbers of the row.
    pub row: Vec<Factor>,
    /// Their mean, if it is subtracted.
    pub mean: Option<f64>,
    /// The mean of their squares, after the mean is subtracted.
    pub squares: f64,
    /// What is added to that.
    pub eps: f64,
    /// The root of the sum, by which the row is divided.
    pub root: f64,
    /// Whether the row is of all heads.
    pub over_heads: bool,
    /// Whether it is the sum of the squares, not their mean.
    pub is_sum: bool,
}

impl Working {
    /// The cells beside those of the terms that the number is worked out from.
    pub fn reads(&self) -> impl Iterator<Item = &Factor> {
        let (keys, sink, row): (&[Exponential], _, &[Factor]) = match self {
            Self::Softmax(row) => (&row.keys, row.sink.as_ref(), &[]),
            Self::Normed(normed) => (&[], None, &normed.row),
            Self::Plain
            | Self::Masked { .. }
            | Self::Dropped { .. }
            | Self::Turned(_)
            | Self::Moved { .. } => (&[], None, &[]),
        };
        keys.iter().chain(sink).map(|key| &key.score).chain(row)
    }
}
