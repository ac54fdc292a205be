//! Which keys a query may not see, and what becomes of their scores.

use candle_core::{Device, Tensor};

use super::documents::Documents;
use super::fill::Fill;
use super::linear::QueryRows;
use super::position::{ByPosition, Hides, Shift};
use super::scaling::number;
use crate::axis::Axis::{Batch, Head, Key, Query};
use crate::axis::{Axes, Dim};
use crate::narrow::{Narrowed, Part};
use crate::op::{Misread, Operation, read};
use crate::pattern::{Multiplier, Pattern, Products, Read, When};
use crate::rows::Rows;
use crate::slips::{Kind, Knob, Range, Sibling, whole};
use crate::terms::{Reason, Term, Value, factor};
use crate::working::Working;
use base::error::Result;

/// Masks, true = blocked, and their use.
#[derive(Debug, Clone, PartialEq)]
pub enum Masking {
    /// (query, key): true where a key is hidden by its position.
    ByPosition(ByPosition),
    /// True where nobody may see the key: (batch, 1, 1, key).
    Keys(BlockedKeys),
    /// (batch, 1, query, key): true where a key is of another document.
    Documents(Documents),
    /// True where any of several masks is, broadcast from the right.
    AnyOf,
    /// True where a mask is not.
    Not,
    /// The fill where the mask is true, the score elsewhere. Reads scores and a boolean mask.
    Fill {
        /// What a masked score becomes.
        fill: Fill,
    },
}

/// What says which keys of an item are blocked for all its queries.
#[derive(Debug, Clone, PartialEq)]
pub enum Blocked {
    /// A string of 0 and 1 an item; 0 is blocked.
    Rows(Vec<String>),
    /// The number of valid keys of every item, the first ones.
    Lengths(Vec<usize>),
}

/// A mask of keys.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockedKeys {
    /// What says which.
    pub by: Blocked,
    /// Keys.
    pub keys: usize,
    /// Where the rows of these queries are blocked in place of the columns of the keys: (batch, 1, query, 1).
    pub as_queries: Option<QueryRows>,
}

impl BlockedKeys {
    fn items(&self) -> usize {
        match &self.by {
            Blocked::Rows(rows) => rows.len(),
            Blocked::Lengths(lengths) => lengths.len(),
        }
    }

    /// The lengths of the axes.
    fn shape(&self) -> (usize, usize, usize, usize) {
        match self.as_queries {
            Some(rows) => (self.items(), 1, rows.count, 1),
            None => (self.items(), 1, 1, self.keys),
        }
    }

    fn hides(&self, item: usize, key: usize) -> bool {
        match &self.by {
            Blocked::Rows(rows) => {
                rows.get(item).is_some_and(|row| row.as_bytes().get(key) == Some(&b'0'))
            }
            Blocked::Lengths(lengths) => lengths.get(item).is_some_and(|length| key >= *length),
        }
    }

    fn reason(&self, item: usize, query: usize, key: usize) -> Option<Reason> {
        let key = self.as_queries.map_or(key, |rows| rows.first + query);
        let reason = match &self.by {
            Blocked::Rows(_) => Reason::BlockedKey { item, key },
            Blocked::Lengths(lengths) => {
                Reason::BeyondLength { item, key, length: *lengths.get(item)? }
            }
        };
        self.hides(item, key).then_some(reason)
    }
}

impl Operation for Masking {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(match self {
            Self::ByPosition(mask) => {
                let [] = read(inputs)?;
                let mut cells = Vec::with_capacity(mask.queries.saturating_mul(mask.keys));
                for position in (0..mask.queries).map(|row| mask.position(row)) {
                    let hides = |key| u8::from(mask.hides(position, key));
                    cells.extend((0_i64..).take(mask.keys).map(hides));
                }
                Tensor::from_vec(cells, (mask.queries, mask.keys), &Device::Cpu)?
            }
            Self::Keys(mask) => {
                let [] = read(inputs)?;
                let QueryRows { first, count } =
                    mask.as_queries.unwrap_or(QueryRows { first: 0, count: mask.keys });
                let places = first..first + count;
                let hides = |item| places.clone().map(move |key| u8::from(mask.hides(item, key)));
                let cells: Vec<u8> = (0..mask.items()).flat_map(hides).collect();
                Tensor::from_vec(cells, mask.shape(), &Device::Cpu)?
            }
            Self::Documents(mask) => {
                let [] = read(inputs)?;
                Tensor::from_vec(mask.cells(), mask.shape(), &Device::Cpu)?
            }
            Self::AnyOf => {
                let [first, others @ ..] = inputs else { return Err(Misread.into()) };
                let join = |all: Tensor, mask: &&Tensor| all.broadcast_maximum(mask);
                others.iter().try_fold((*first).clone(), join)?
            }
            Self::Not => read::<1, _>(inputs)?[0].eq(0_u8)?,
            Self::Fill { fill } => {
                let [scores, mask] = read(inputs)?;
                let (fill, shape) = (number(fill.0, scores)?, scores.shape());
                mask.broadcast_as(shape)?.where_cond(&fill.broadcast_as(shape)?, scores)?
            }
        })
    }

    #[allow(clippy::cast_possible_truncation, reason = "the type of the scores")]
    fn rows<'a>(&'a self, read: &[usize], others: &[&'a Tensor]) -> Option<Rows<'a>> {
        let (Self::Fill { fill }, [mask]) = (self, others) else { return None };
        let fill = fill.0 as f32;
        Rows::with(read, mask, move |score, blocked: u8| if blocked == 0 { score } else { fill })
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match (self, inputs) {
            (Self::ByPosition(mask), []) => Ok(vec![(Query, mask.queries), (Key, mask.keys)]),
            (Self::Keys(_) | Self::Documents(_), []) => {
                let (items, heads, queries, keys) = match self {
                    Self::Documents(mask) => mask.shape(),
                    Self::Keys(mask) => mask.shape(),
                    _ => return Err(Misread),
                };
                Ok(vec![(Batch, items), (Head, heads), (Query, queries), (Key, keys)])
            }
            (Self::AnyOf, _) => joined(inputs),
            (Self::Not, [mask]) => Ok(mask.to_vec()),
            (Self::Fill { .. }, [scores, mask]) if broadcasts(mask, scores) => Ok(scores.to_vec()),
            (
                Self::ByPosition(_)
                | Self::Keys(_)
                | Self::Documents(_)
                | Self::Not
                | Self::Fill { .. },
                _,
            ) => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        Ok(match (self, names) {
            (Self::ByPosition(ByPosition { first, hides, .. }), _) => {
                let position = match first {
                    0 => "query".to_owned(),
                    first if *first < 0 => format!("query − {}", first.unsigned_abs()),
                    first => format!("query + {first}"),
                };
                match hides {
                    Hides::Future => format!("key > {position}"),
                    Hides::Past => format!("key < {position}"),
                    Hides::BeforeWindow(window) => format!("{position} − key ≥ {window}"),
                    Hides::OutsideWindow(window) => format!("|{position} − key| ≥ {window}"),
                    Hides::OtherChunk(chunk) if *first == 0 => {
                        format!("⌊key / {chunk}⌋ ≠ ⌊query / {chunk}⌋")
                    }
                    Hides::OtherChunk(chunk) => {
                        format!("⌊key / {chunk}⌋ ≠ ⌊({position}) / {chunk}⌋")
                    }
                }
            }
            (Self::Keys(BlockedKeys { by: Blocked::Rows(rows), .. }), _) => {
                tr!("where {rows} has a 0", rows = rows.join(","))
            }
            (Self::Keys(BlockedKeys { by: Blocked::Lengths(lengths), .. }), _) => {
                let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
                tr!("key ≥ length, of {lengths}", lengths = lengths.join(","))
            }
            (Self::Documents(Documents { queries, keys, .. }), _) => {
                let told = Documents::told(queries);
                let of_keys = if keys == queries {
                    String::new()
                } else {
                    tr!(" and {told} keys", told = Documents::told(keys))
                };
                tr!("the key is of another document, of {told} tokens{of_keys}", told, of_keys)
            }
            (Self::AnyOf, _) => names.join(tr!(" or ")),
            (Self::Not, _) => tr!("not {names}", names = names.join(", ")),
            (Self::Fill { fill }, [scores, mask]) => {
                tr!("{fill} where {mask}, else {scores}", fill, mask, scores)
            }
            (Self::Fill { .. }, _) => return Err(Misread),
        })
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let (Self::Fill { fill }, [scores, mask]) = (self, inputs) else { return Ok(Vec::new()) };
        let blocked = mask.broadcast_at(cell)?;
        Ok(vec![Term(vec![if blocked.value == 0.0 {
            scores.at(cell)?
        } else {
            factor(tr!("mask_fill, as {blocked} blocks", blocked = blocked.name), fill.0)
        }])])
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let broadcast = |(input, axes): (usize, &&Axes)| {
            let rank = inputs.iter().map(|axes| axes.rank()).max().unwrap_or(0);
            Read::broadcast(input, axes, rank)
        };
        match (self, inputs) {
            (Self::Fill { fill }, [scores, mask]) => {
                let mask = broadcast((1, mask));
                let name = tr!("mask_fill, as {blocked} blocks", blocked = "{}");
                let filled = Multiplier::Number(name, fill.0, Some(mask.clone()));
                Pattern::Sum(vec![
                    Products::one([Read::same(0, scores).into()])
                        .when(When::Is(mask.clone(), false)),
                    Products::one([filled]).when(When::Is(mask, true)),
                ])
            }
            (Self::AnyOf, _) => Pattern::Any(inputs.iter().enumerate().map(broadcast).collect()),
            (
                Self::ByPosition(_)
                | Self::Keys(_)
                | Self::Documents(_)
                | Self::Not
                | Self::Fill { .. },
                _,
            ) => Pattern::ByCell,
        }
    }

    fn working(&self, inputs: &[Value], cell: &[usize]) -> Result<Working> {
        let (Self::Fill { .. }, [scores, mask]) = (self, inputs) else { return Ok(Working::Plain) };
        let is_blocked = mask.broadcast_at(cell)?.value != 0.0;
        Ok(Working::Masked { score: scores.at(cell)?, is_blocked })
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }

    fn reason(&self, cell: &[usize]) -> Option<Reason> {
        match (self, cell) {
            (Self::ByPosition(mask), &[query, key]) => mask.reason(query, key),
            (Self::Documents(mask), &[item, _, query, key]) => mask.reason(item, query, key),
            (Self::Keys(mask), &[item, _, query, key]) => mask.reason(item, query, key),
            (
                Self::ByPosition(_)
                | Self::Keys(_)
                | Self::Documents(_)
                | Self::AnyOf
                | Self::Not
                | Self::Fill { .. },
                _,
            ) => None,
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "places are below 2^52")]
    fn knobs(&self) -> Vec<Knob> {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        match self {
            Self::ByPosition(own) => {
                let (of_first, of_window) = (own.clone(), own.clone());
                let bound = count(own.keys.max(own.queries));
                let mut knobs = vec![Knob {
                    name: tr!("mask offset"),
                    value: own.first as f64,
                    range: Range::Whole(-bound, bound),
                    common: vec![own.first as f64 + 1.0, own.first as f64 - 1.0],
                    with: Box::new(move |first| {
                        #[allow(clippy::cast_possible_truncation, reason = "a whole number")]
                        let mask = ByPosition { first: first as i64, ..of_first.clone() };
                        Some(Self::ByPosition(mask).into())
                    }),
                }];
                if let Some((name, number, with)) = own.hides.number() {
                    let number = number as f64;
                    knobs = vec![Knob {
                        name,
                        value: number,
                        range: Range::Whole(1, bound + 1),
                        common: vec![number - 1.0, number + 1.0, number * 2.0, number / 2.0],
                        with: Box::new(move |number| {
                            let hides = with(whole(number).filter(|number| *number > 0)?);
                            Some(Self::ByPosition(ByPosition { hides, ..of_window.clone() }).into())
                        }),
                    }];
                }
                knobs
            }
            Self::Fill { fill } => vec![Knob {
                name: "fill",
                value: fill.0,
                range: Range::Cell,
                common: vec![0.0, -1.0, -10.0, -100.0, -1e3, -1e4, 1e9, f64::INFINITY],
                with: Box::new(|fill| Some(Self::Fill { fill: Fill(fill) }.into())),
            }],
            Self::Keys(_) | Self::Documents(_) | Self::AnyOf | Self::Not => Vec::new(),
        }
    }

    fn siblings(&self, _: &[&Axes]) -> Vec<Sibling> {
        let mask = |op: Self, told: String| Sibling::new(op, Kind::Mask, told);
        match self {
            Self::Keys(own) => own
                .siblings()
                .into_iter()
                .map(|(by, told)| mask(Self::Keys(BlockedKeys { by, ..own.clone() }), told))
                .collect(),
            Self::ByPosition(_)
            | Self::Documents(_)
            | Self::AnyOf
            | Self::Not
            | Self::Fill { .. } => Vec::new(),
        }
    }

    fn fill(&self) -> Option<f64> {
        match self {
            Self::Fill { fill } => Some(fill.0),
            Self::ByPosition(_) | Self::Keys(_) | Self::Documents(_) | Self::AnyOf | Self::Not => {
                None
            }
        }
    }

    fn narrowed(&self, part: Part, _: &[&Axes], whole: &Axes) -> Narrowed {
        match (self, part) {
            (Self::ByPosition(own), Part::Rows(rows)) => {
                let first = own.first.saturating_add_unsigned(rows.first as u64);
                let from = i64::try_from(rows.first).unwrap_or(i64::MAX);
                let later = |shift: &Shift| Shift { row: shift.row.saturating_sub(from), ..*shift };
                let shifts = own.shifts.iter().map(later).collect();
                let mask = ByPosition { first, queries: rows.count, shifts, ..own.clone() };
                Narrowed::To(Self::ByPosition(mask).into())
            }
            (Self::ByPosition(own), Part::Keys(keys)) => {
                Narrowed::To(Self::ByPosition(ByPosition { keys, ..own.clone() }).into())
            }
            (Self::Keys(_) | Self::Documents(_), Part::Keys(_)) => Narrowed::Mixed,
            (Self::Keys(own), Part::Item(item)) => {
                let by = match &own.by {
                    Blocked::Rows(rows) => {
                        rows.get(item).map(|row| Blocked::Rows(vec![row.clone()]))
                    }
                    Blocked::Lengths(all) => all.get(item).map(|own| Blocked::Lengths(vec![*own])),
                };
                match by {
                    Some(by) => Narrowed::To(Self::Keys(BlockedKeys { by, ..own.clone() }).into()),
                    None => Narrowed::Same,
                }
            }
            (Self::Keys(own), Part::Rows(rows)) if part.position(whole).is_some() => {
                let as_queries = own
                    .as_queries
                    .map(|all| QueryRows { first: all.first + rows.first, count: rows.count });
                Narrowed::To(Self::Keys(BlockedKeys { as_queries, ..own.clone() }).into())
            }
            (Self::Documents(own), _) => Narrowed::To(Self::Documents(own.narrowed(part)).into()),
            (
                Self::ByPosition(_) | Self::Keys(_) | Self::AnyOf | Self::Not | Self::Fill { .. },
                Part::Item(_) | Part::Rows(_) | Part::Keys(_) | Part::Tokens { .. },
            ) => Narrowed::Same,
        }
    }
}

/// The axes that several broadcast to, aligned from the right.
pub(super) fn joined(inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
    let mut all: Vec<Dim> = inputs.iter().max_by_key(|dims| dims.len()).ok_or(Misread)?.to_vec();
    for dims in inputs {
        for ((axis, size), (own_axis, own)) in all.iter_mut().rev().zip(dims.iter().rev()) {
            if axis != own_axis || (*size != *own && *size != 1 && *own != 1) {
                return Err(Misread);
            }
            *size = (*size).max(*own);
        }
    }
    Ok(all)
}

/// Whether a mask's axes, aligned from the right, each are the scores' or 1.
pub(super) fn broadcasts(mask: &[Dim], scores: &[Dim]) -> bool {
    joined(&[mask, scores]).is_ok_and(|all| all == scores)
}
