//! Which cells is a cell made of? A rule for all cells of a step, which readers can follow who have the numbers and not the
//! operation; [`Trace::explain`](super::Trace::explain) follows it, too.

use serde::{Serialize, Serializer};

use super::axis::{Axes, signed};
use super::ops::Map;

/// The rule by which every cell of a value is made of cells of the inputs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// There is no short rule: [`Operation::terms`](super::Operation::terms) tells of each cell.
    ByCell,
    /// The sum of products.
    Sum(Vec<Products>),
    /// exp(s − max) / Σ exp(s − max) over the last axis of the first input, beside the sinks of the second, if there is
    /// one.
    Softmax {
        /// Whether a row of −∞ alone becomes zeros.
        zero: bool,
    },
    /// log Σ exp(s) over the last axis of the first input, beside the sinks of the second, if there is one.
    LogSumExp,
    /// True where one of these is.
    Any(Vec<Read>),
}

/// Products of the same factors: one, or one for every place of an axis that is summed over.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Products {
    /// How many they are. Which one it is, is the place on the axis behind the last of the value.
    pub count: usize,
    /// The cells that have them, if not all do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// The factors.
    pub factors: Vec<Multiplier>,
}

/// Which cells have a product.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Those with a place on an axis from the first of these to before the second.
    Within(usize, [usize; 2]),
    /// Those for which a boolean cell is as said.
    Is(Read, bool),
}

/// A factor. In names, `{}` stands for the cell that is read.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Multiplier {
    /// What stands in a cell.
    Read(Read),
    /// A number: its name, its value, and the cell that its name tells of, if it tells of one.
    Number(String, #[serde(serialize_with = "any_number")] f64, Option<Read>),
    /// A number and its name for every place on an axis of the value.
    Listed(usize, Vec<(String, f64)>),
    /// What a function makes of a cell: its name, the function, and the cell.
    Of(String, Function, Read),
    /// What the row of a cell is multiplied by in a norm: 1 / √(mean of squares + ε).
    Root(String, Row),
    /// The mean of the row of a cell, with the other sign.
    Mean(String, Row),
    /// The cosine of position · frequency, or a sine.
    Turn(Turning),
}

/// A number that may be infinite, which JSON has no sign for.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn any_number<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    match *number {
        f64::INFINITY => serializer.serialize_str("Infinity"),
        f64::NEG_INFINITY => serializer.serialize_str("-Infinity"),
        number => serializer.serialize_f64(number),
    }
}

/// A number, as f32 where f64 has a tail of digits: 1 − 0.8 is 0.2.
#[allow(clippy::cast_possible_truncation, reason = "that is what it is for")]
fn in_few_digits(value: f64) -> String {
    let digits = value.to_string();
    if digits.len() > 12 { (value as f32).to_string() } else { digits }
}

/// A function of one number.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    /// tanh(x / c).
    Tanh(f64),
    /// x, or ±c where it is beyond.
    Clip(f64),
    /// x + c.
    Plus(f64),
    /// A function without a number in it.
    #[serde(untagged)]
    Map(Map),
}

/// The row of the first input that a norm takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Whether it is of all heads.
    pub over_heads: bool,
    /// Whether its mean is subtracted.
    pub centred: bool,
    /// Whether its squares are added up, not averaged.
    pub summed: bool,
    /// What is added to the mean of the squares.
    pub eps: f64,
}

/// The cosine or sine of an angle by which a pair of features is turned.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Turning {
    /// The frequency.
    pub frequency: Read,
    /// The positions of the tokens, item by item; of all items alike where there is one list. A list in it is a token's,
    /// pair by pair where they differ.
    pub positions: Vec<Vec<Vec<usize>>>,
    /// Whether it is the sine.
    pub sine: bool,
    /// The sign, by the feature.
    pub signs: Vec<i8>,
}

/// A cell of an input.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Read {
    /// Which of the inputs.
    pub input: usize,
    /// The place on each of its axes.
    pub at: Vec<Place>,
}

/// A place on an axis of an input: the sum of what places on the value's axes become, and a number.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Place {
    /// An axis of the value; and, by the place on it, what it becomes, if not just that.
    pub of: Vec<(usize, Option<Vec<usize>>)>,
    /// The number.
    pub plus: i64,
}

impl Place {
    /// The place on an axis of the value.
    pub(super) fn on(axis: usize) -> Self {
        Self { of: vec![(axis, None)], plus: 0 }
    }

    /// The same place for all.
    pub(super) fn fixed() -> Self {
        Self::default()
    }

    /// What a place on an axis of the value becomes.
    pub(super) fn listed(axis: usize, list: impl IntoIterator<Item = usize>) -> Self {
        Self { of: vec![(axis, Some(list.into_iter().collect()))], plus: 0 }
    }

    /// Both together.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.of.extend(other.of);
        Self { of: self.of, plus: self.plus + other.plus }
    }

    /// So many places further on.
    pub(super) fn moved(self, by: usize) -> Self {
        Self { plus: self.plus + signed(by), ..self }
    }

    /// So many places before.
    pub(super) fn back(self, by: usize) -> Self {
        Self { plus: self.plus - signed(by), ..self }
    }
}

impl Read {
    /// The cell of an input at these places.
    pub(super) fn of(input: usize, at: impl Into<Vec<Place>>) -> Self {
        Self { input, at: at.into() }
    }

    /// The same cell of an input.
    pub(super) fn same(input: usize, axes: &Axes) -> Self {
        Self::of(input, (0..axes.rank()).map(Place::on).collect::<Vec<_>>())
    }

    /// The cell of an input that is broadcast to a value with so many axes.
    pub(super) fn broadcast(input: usize, axes: &Axes, rank: usize) -> Self {
        let skipped = rank.saturating_sub(axes.rank());
        let place = |(at, size)| if size == 1 { Place::fixed() } else { Place::on(skipped + at) };
        Self::of(input, axes.shape().into_iter().enumerate().map(place).collect::<Vec<_>>())
    }
}

impl From<Read> for Multiplier {
    fn from(read: Read) -> Self {
        Self::Read(read)
    }
}

impl Products {
    /// One product.
    pub(super) fn one(factors: impl Into<Vec<Multiplier>>) -> Self {
        Self { count: 1, when: None, factors: factors.into() }
    }

    /// So many products of two numbers.
    pub(super) fn many(count: usize, left: Read, right: impl Into<Multiplier>) -> Self {
        Self { count, when: None, factors: vec![left.into(), right.into()] }
    }

    /// The same of inputs that stand so many places further on.
    pub(super) fn further(mut self, by: usize) -> Self {
        if let Some(When::Is(read, _)) = &mut self.when {
            read.input += by;
        }
        for factor in &mut self.factors {
            match factor {
                Multiplier::Read(read)
                | Multiplier::Of(_, _, read)
                | Multiplier::Number(_, _, Some(read)) => read.input += by,
                Multiplier::Turn(turning) => turning.frequency.input += by,
                Multiplier::Number(_, _, None)
                | Multiplier::Listed(..)
                | Multiplier::Root(..)
                | Multiplier::Mean(..) => {}
            }
        }
        self
    }

    /// The formula, where it is plain: of numbers, functions of numbers, or two matrices.
    fn formula<'a>(&self, name: impl Fn(&Read) -> Option<&'a str>) -> Option<String> {
        let factor = |factor: &Multiplier| match factor {
            Multiplier::Read(read) => name(read).map(str::to_owned),
            Multiplier::Number(_, value, None) => Some(in_few_digits(*value)),
            Multiplier::Of(told, _, read) => Some(told.replace("{}", name(read)?)),
            _ => None,
        };
        let factors = self.factors.iter().map(factor).collect::<Option<Vec<_>>>()?;
        let product = factors.join(" · ");
        match self.factors.as_slice() {
            _ if self.when.is_some() => None,
            [Multiplier::Read(left), Multiplier::Read(right)] => {
                // Matrices have each an axis that the other has not, and sums are along rows where both end in one axis.
                let is_own =
                    |at: &&Place, other: &Read| !at.of.is_empty() && !other.at.contains(at);
                let differ = |one: &Read, other: &Read| one.at.iter().any(|at| is_own(&at, other));
                let is_sum = differ(left, right) && differ(right, left);
                let is_of_rows = is_sum && left.at.last() == right.at.last();
                Some(if is_of_rows { format!("{product}ᵀ") } else { product })
            }
            _ => Some(product).filter(|_| self.count == 1),
        }
    }

    /// The same, of some cells.
    pub(super) fn when(self, when: When) -> Self {
        Self { when: Some(when), ..self }
    }
}

impl Pattern {
    /// What stands in one cell of an input.
    pub(super) fn moved(read: Read) -> Self {
        Self::Sum(vec![Products::one([read.into()])])
    }

    /// What the first input holds, and on an axis behind that, in so many places, something else.
    pub(super) fn behind(
        inputs: &[&Axes],
        (axis, count): (usize, usize),
        other: impl Into<Multiplier>,
    ) -> Self {
        let Some(first) = inputs.first() else { return Self::ByCell };
        let own = first.shape().get(axis).copied().unwrap_or(0);
        let within = |range| When::Within(axis, range);
        Self::Sum(vec![
            Products::one([Read::same(0, first).into()]).when(within([0, own])),
            Products::one([other.into()]).when(within([own, own + count])),
        ])
    }

    /// The formula with the names of the inputs in it, where it is plain.
    pub(super) fn formula(&self, names: &[&str]) -> Option<String> {
        let name = |read: &Read| names.get(read.input).copied();
        Some(match self {
            Self::Sum(products) => {
                let products = products.iter().map(|products| products.formula(name));
                let sum = products.collect::<Option<Vec<_>>>()?.join(" + ");
                sum.replace(" + -1 · ", " − ")
            }
            Self::Any(reads) => {
                reads.iter().map(name).collect::<Option<Vec<_>>>()?.join(tr!(" or "))
            }
            Self::ByCell | Self::Softmax { .. } | Self::LogSumExp => return None,
        })
    }
}
