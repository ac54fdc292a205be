//! Which keys a query may not see, and what becomes of their scores.

use std::fmt;
use std::str::FromStr;

use candle_core::{Device, Tensor};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::linear::QueryRows;
use super::scores::{number, same};
use crate::error::Result;
use crate::program::axis::Axis::{Batch, Head, Key, Query};
use crate::program::axis::{Axes, Dim};
use crate::program::op::{Misread, Op, Operation, read};
use crate::program::terms::{Reason, Term, Value, factor};

/// Which side of the diagonal a causal mask hides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hidden {
    /// The keys after the query, as it should be.
    Future,
    /// The keys before it.
    Past,
}

/// (query, key): true where the key lies after the query. Query row r is at position r + `first`.
#[derive(Debug, Clone, PartialEq)]
pub struct Causal {
    /// The last key that the first row sees; below 0 where it sees none.
    pub first: i64,
    /// Query rows.
    pub queries: usize,
    /// Keys.
    pub keys: usize,
    /// Which keys are hidden.
    pub hidden: Hidden,
}

impl Causal {
    fn hides(&self, position: i64, key: i64) -> bool {
        match self.hidden {
            Hidden::Future => key > position,
            Hidden::Past => key < position,
        }
    }
}

impl Operation for Causal {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [] = read(inputs)?;
        by_position(self.first, self.queries, self.keys, |position, key| self.hides(position, key))
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let [] = read(inputs)?;
        Ok(vec![(Query, self.queries), (Key, self.keys)])
    }

    fn formula(&self, _: &[&str]) -> Result<String, Misread> {
        let sign = match self.hidden {
            Hidden::Future => '>',
            Hidden::Past => '<',
        };
        Ok(match self.first {
            0 => format!("key {sign} query"),
            first if first < 0 => format!("key {sign} query − {}", first.unsigned_abs()),
            first => format!("key {sign} query + {first}"),
        })
    }

    fn terms(&self, _: &[Value], _: &[usize]) -> Result<Vec<Term>> {
        Ok(Vec::new())
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }

    fn reason(&self, cell: &[usize]) -> Option<Reason> {
        let &[query, key] = cell else { return None };
        let position = signed(query).saturating_add(self.first);
        let reason = match self.hidden {
            Hidden::Future => Reason::LaterKey { query, key },
            Hidden::Past => Reason::EarlierKey { query, key },
        };
        self.hides(position, signed(key)).then_some(reason)
    }
}

/// (query, key): true where the key lies before the last `window` that the query sees, itself included. Query row r is
/// at position r + `first`.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// The last key that the first row sees.
    pub first: i64,
    /// Query rows.
    pub queries: usize,
    /// Keys.
    pub keys: usize,
    /// How many keys a query sees.
    pub window: usize,
}

impl Window {
    fn hides(&self, position: i64, key: i64) -> bool {
        usize::try_from(position.saturating_sub(key)).is_ok_and(|distance| distance >= self.window)
    }
}

impl Operation for Window {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [] = read(inputs)?;
        by_position(self.first, self.queries, self.keys, |position, key| self.hides(position, key))
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let [] = read(inputs)?;
        Ok(vec![(Query, self.queries), (Key, self.keys)])
    }

    fn formula(&self, _: &[&str]) -> Result<String, Misread> {
        let first = match self.first {
            0 => String::new(),
            first if first < 0 => format!(" − {}", first.unsigned_abs()),
            first => format!(" + {first}"),
        };
        Ok(format!("query{first} − key ≥ {}", self.window))
    }

    fn terms(&self, _: &[Value], _: &[usize]) -> Result<Vec<Term>> {
        Ok(Vec::new())
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }

    fn reason(&self, cell: &[usize]) -> Option<Reason> {
        let &[query, key] = cell else { return None };
        let position = signed(query).saturating_add(self.first);
        let reason = Reason::BeforeWindow { query, key, window: self.window };
        self.hides(position, signed(key)).then_some(reason)
    }
}

/// What says which keys of an item are blocked for all its queries.
#[derive(Debug, Clone, PartialEq)]
pub enum Blocked {
    /// A string of 0 and 1 an item; 0 is blocked.
    Rows(Vec<String>),
    /// The number of valid keys of every item, the first ones.
    Lengths(Vec<usize>),
}

/// (batch, 1, 1, key): true where nobody may see the key.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockedKeys {
    /// What says so.
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

    /// The places that are shown: all keys, or those of some queries.
    fn places(&self) -> QueryRows {
        self.as_queries.unwrap_or(QueryRows { first: 0, count: self.keys })
    }

    fn hides(&self, item: usize, key: usize) -> bool {
        match &self.by {
            Blocked::Rows(rows) => {
                rows.get(item).is_some_and(|row| row.as_bytes().get(key) == Some(&b'0'))
            }
            Blocked::Lengths(lengths) => lengths.get(item).is_some_and(|length| key >= *length),
        }
    }
}

impl Operation for BlockedKeys {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [] = read(inputs)?;
        let QueryRows { first, count } = self.places();
        let cells = |item| (first..first + count).map(move |key| u8::from(self.hides(item, key)));
        let cells: Vec<u8> = (0..self.items()).flat_map(cells).collect();
        let shape = match self.as_queries {
            Some(_) => (self.items(), 1, count, 1),
            None => (self.items(), 1, 1, count),
        };
        Ok(Tensor::from_vec(cells, shape, &Device::Cpu)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let [] = read(inputs)?;
        let (queries, keys) = match self.as_queries {
            Some(rows) => (rows.count, 1),
            None => (1, self.keys),
        };
        Ok(vec![(Batch, self.items()), (Head, 1), (Query, queries), (Key, keys)])
    }

    fn formula(&self, _: &[&str]) -> Result<String, Misread> {
        Ok(match &self.by {
            Blocked::Rows(rows) => format!("where {} has a 0", rows.join(",")),
            Blocked::Lengths(lengths) => {
                let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
                format!("key ≥ length, of {}", lengths.join(","))
            }
        })
    }

    fn terms(&self, _: &[Value], _: &[usize]) -> Result<Vec<Term>> {
        Ok(Vec::new())
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }

    fn reason(&self, cell: &[usize]) -> Option<Reason> {
        let &[item, _, query, key] = cell else { return None };
        let place = if self.as_queries.is_some() { query } else { key } + self.places().first;
        let reason = match &self.by {
            Blocked::Rows(_) => Reason::BlockedKey { item, key: place },
            Blocked::Lengths(lengths) => {
                Reason::BeyondLength { item, key: place, length: *lengths.get(item)? }
            }
        };
        self.hides(item, place).then_some(reason)
    }

    fn of_item(&self, item: usize) -> Option<Op> {
        let by = match &self.by {
            Blocked::Rows(rows) => Blocked::Rows(vec![rows.get(item)?.clone()]),
            Blocked::Lengths(lengths) => Blocked::Lengths(vec![*lengths.get(item)?]),
        };
        Some(Self { by, ..self.clone() }.into())
    }
}

/// True where any of several masks is, broadcast from the right.
#[derive(Debug, Clone, PartialEq)]
pub struct AnyOf;

impl Operation for AnyOf {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [first, others @ ..] = inputs else { return Err(Misread.into()) };
        let join = |all: Tensor, mask: &&Tensor| all.broadcast_maximum(mask);
        Ok(others.iter().try_fold((*first).clone(), join)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        joined(inputs)
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        Ok(names.join(" or "))
    }

    fn terms(&self, _: &[Value], _: &[usize]) -> Result<Vec<Term>> {
        Ok(Vec::new())
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }
}

/// True where a mask is not.
#[derive(Debug, Clone, PartialEq)]
pub struct Not;

impl Operation for Not {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [mask] = read(inputs)?;
        Ok(mask.eq(0_u8)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        same(inputs)
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [mask] = read(names)?;
        Ok(format!("not {mask}"))
    }

    fn terms(&self, _: &[Value], _: &[usize]) -> Result<Vec<Term>> {
        Ok(Vec::new())
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
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

/// What a masked score becomes: a number or −∞.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fill(pub f64);

impl Default for Fill {
    fn default() -> Self {
        Self(-1e9)
    }
}

impl fmt::Display for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if size.is_finite() && (size >= 1e5 || (size > 0.0 && size < 1e-4)) {
            write!(f, "{:e}", self.0)
        } else {
            write!(f, "{}", self.0)
        }
    }
}

impl FromStr for Fill {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().parse::<f64>() {
            Ok(fill) if !fill.is_nan() => Ok(Self(fill)),
            _ => Err(format!("`{text}` is neither a number nor -inf")),
        }
    }
}

impl Serialize for Fill {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() {
            serializer.serialize_f64(self.0)
        } else {
            serializer.collect_str(self)
        }
    }
}

impl<'de> Deserialize<'de> for Fill {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Fill;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or \"-inf\"")
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Fill, E> {
                Ok(Fill(value))
            }
            #[allow(clippy::cast_precision_loss, reason = "a fill is a floating-point number")]
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Fill, E> {
                Ok(Fill(value as f64))
            }
            #[allow(clippy::cast_precision_loss, reason = "a fill is a floating-point number")]
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Fill, E> {
                Ok(Fill(value as f64))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Fill, E> {
                value.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// The fill where the mask is true, the score elsewhere. Reads scores and a boolean mask.
#[derive(Debug, Clone, PartialEq)]
pub struct MaskFill {
    /// What a masked score becomes.
    pub fill: Fill,
}

impl Operation for MaskFill {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [scores, mask] = read(inputs)?;
        let (fill, shape) = (number(self.fill.0, scores)?, scores.shape());
        Ok(mask.broadcast_as(shape)?.where_cond(&fill.broadcast_as(shape)?, scores)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match inputs {
            [scores, mask] if broadcasts(mask, scores) => Ok(scores.to_vec()),
            _ => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [scores, mask] = read(names)?;
        Ok(format!("{} where {mask}, else {scores}", self.fill))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let [scores, mask] = read(inputs)?;
        let blocked = mask.broadcast_at(cell)?;
        Ok(vec![Term(vec![if blocked.value == 0.0 {
            scores.at(cell)?
        } else {
            factor(format!("mask_fill, as {} blocks", blocked.name), self.fill.0)
        }])])
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }

    fn fill(&self) -> Option<f64> {
        Some(self.fill.0)
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// (query, key), true where `hides` says so of the query's position and the key.
fn by_position(
    first: i64,
    queries: usize,
    keys: usize,
    hides: impl Fn(i64, i64) -> bool,
) -> Result<Tensor> {
    let mut cells = Vec::with_capacity(queries.saturating_mul(keys));
    for position in (first..).take(queries) {
        cells.extend((0_i64..).take(keys).map(|key| u8::from(hides(position, key))));
    }
    Ok(Tensor::from_vec(cells, (queries, keys), &Device::Cpu)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_the_query_itself() {
        let of = |window| Window { first: 0, queries: 5, keys: 5, window };
        assert!(!of(1).hides(4, 4) && of(1).hides(4, 3));
        assert!(!of(3).hides(4, 2) && of(3).hides(4, 1));
        assert!(!of(400).hides(400, 1));
    }

    #[test]
    fn a_fill_reads_and_prints_shortly() {
        for (text, shown) in
            [("-1e9", "-1e9"), ("-inf", "-inf"), ("0", "0"), ("-10000", "-10000"), ("1e-9", "1e-9")]
        {
            assert_eq!(text.parse::<Fill>().expect("reads").to_string(), shown);
        }
        assert!("nan".parse::<Fill>().is_err());
        assert_eq!(serde_json::from_str::<Fill>("-5").ok(), Some(Fill(-5.0)));
    }
}
