//! What are the terms of one cell by the rule for all of them, and what is worked out on the way?

use candle_core::DType;

use super::misread::Misread;
use super::pattern::{Function, Multiplier, Pattern, Products, Read, Row, Turning, When};
use super::terms::{Factor, Term, Value, factor};
use super::working::{Exponential, Exponentials, Normed, Turned, Working};
use base::error::Result;

/// What a number is worked out to: the terms that add up to it, and what these do not show.
pub type Worked = (Vec<Term>, Working);

impl Pattern {
    /// How the number in a cell is worked out.
    ///
    /// # Errors
    /// If there is no such cell.
    pub(super) fn worked_out(&self, inputs: &[Value], cell: &[usize]) -> Result<Worked> {
        let exponentials = |row: &[usize]| {
            let [scores, sinks @ ..] = inputs else { return Err(Misread.into()) };
            Exponentials::of(scores, sinks.first(), row)
        };
        match self {
            Self::ByCell | Self::Any(_) => Ok((Vec::new(), Working::Plain)),
            Self::Sum(products) => Cell { inputs, index: cell }.sum(products),
            Self::Softmax { zero } => {
                let [row @ .., key] = cell else { return Err(Misread.into()) };
                let row = exponentials(row)?;
                let Exponential { score, exp, .. } = row.keys.get(*key).ok_or(Misread)?;
                let term = if *zero && row.is_empty() {
                    vec![factor(tr!("0, as every key is blocked"), 0.0)]
                } else {
                    let name = tr!("exp({score} − max)", score = score.name);
                    let share = tr!("1 / Σ exp(s − max) over {over}", over = row.over());
                    vec![factor(name, *exp).made_of(score), factor(share, row.sum.recip())]
                };
                Ok((vec![Term(term)], Working::Softmax(row)))
            }
            Self::LogSumExp => {
                let row = exponentials(cell)?;
                let scores = inputs.first().ok_or(Misread)?.name;
                let numbers = if row.largest == f64::NEG_INFINITY {
                    vec![factor(tr!("-inf, as every score is"), row.largest)]
                } else {
                    let largest = tr!("max of the row of {scores}", scores);
                    let log = tr!("log Σ exp(s − max) over {over}", over = row.over());
                    vec![factor(largest, row.largest), factor(log, row.sum.ln())]
                };
                let terms = numbers.into_iter().map(|number| Term(vec![number])).collect();
                Ok((terms, Working::Softmax(row)))
            }
        }
    }
}

/// A cell of a value, or one of the products for it, whose place is the last; and what the value is made of.
struct Cell<'a> {
    inputs: &'a [Value<'a>],
    index: &'a [usize],
}

impl Cell<'_> {
    fn sum(&self, all: &[Products]) -> Result<Worked> {
        let multipliers = || all.iter().flat_map(|products| &products.factors);
        let row = multipliers().find_map(|factor| match factor {
            Multiplier::Root(_, row) => Some(row),
            _ => None,
        });
        let normed = row.map(|row| self.normed(row)).transpose()?;
        let mut terms = Vec::new();
        for Products { count, when, factors } in all {
            if !self.applies(when.as_ref())? {
                continue;
            }
            for at in 0..*count {
                let cell = Cell { index: &[self.index, &[at]].concat(), ..*self };
                let factors = factors.iter().map(|factor| cell.factor(factor, normed.as_ref()));
                terms.push(Term(factors.collect::<Result<_>>()?));
            }
        }
        let turning = multipliers().find_map(|factor| match factor {
            Multiplier::Turn(turning) => Some(turning),
            _ => None,
        });
        let working = match (normed, turning, all) {
            (Some(normed), ..) => Working::Normed(normed),
            (_, Some(turning), _) => self.turned(turning, &terms)?,
            (_, _, [Products { when: Some(When::Is(mask, _)), factors, .. }, ..]) => {
                let score = self.factor(factors.first().ok_or(Misread)?, None)?;
                Working::Masked { score, is_blocked: self.read(mask)?.value != 0.0 }
            }
            _ => Working::Plain,
        };
        Ok((terms, working))
    }

    fn applies(&self, when: Option<&When>) -> Result<bool> {
        Ok(match when {
            None => true,
            Some(When::Within(axis, [from, to])) => (*from..*to).contains(&self.place(*axis)?),
            Some(When::Is(read, is_true)) => (self.read(read)?.value != 0.0) == *is_true,
        })
    }

    /// The place on an axis of the value.
    fn place(&self, axis: usize) -> Result<usize, Misread> {
        self.index.get(axis).copied().ok_or(Misread)
    }

    /// The cell of an input.
    fn read(&self, read: &Read) -> Result<Factor> {
        let mut index = Vec::with_capacity(read.at.len());
        for place in &read.at {
            let mut at = place.plus;
            for (axis, list) in &place.of {
                let on = self.place(*axis)?;
                let becomes = list.as_ref().map_or(Some(on), |list| list.get(on).copied());
                at = at.saturating_add_unsigned(becomes.ok_or(Misread)? as u64);
            }
            index.push(usize::try_from(at).map_err(|_| Misread)?);
        }
        self.inputs.get(read.input).ok_or(Misread)?.at(&index)
    }

    fn factor(&self, multiplier: &Multiplier, normed: Option<&Normed>) -> Result<Factor> {
        Ok(match multiplier {
            Multiplier::Read(read) => self.read(read)?,
            Multiplier::Number(name, value, None) => factor(name, *value),
            Multiplier::Number(name, value, Some(about)) => {
                factor(name.replace("{}", &self.read(about)?.name), *value)
            }
            Multiplier::Listed(axis, list) => {
                let (name, value) = list.get(self.place(*axis)?).ok_or(Misread)?;
                factor(name, *value)
            }
            Multiplier::Of(name, function, read) => {
                let own = self.read(read)?;
                let value = match function {
                    Function::Tanh(by) => (own.value / by).tanh(),
                    Function::Clip(limit) if own.value.abs() <= *limit => return Ok(own),
                    Function::Clip(limit) => own.value.clamp(-*limit, *limit),
                    Function::Plus(addend) => addend + own.value,
                    Function::Map(map) => map.of(own.value)?,
                };
                factor(name.replace("{}", &own.name), value).made_of(&own)
            }
            Multiplier::Root(name, _) => factor(name, normed.ok_or(Misread)?.root.recip()),
            Multiplier::Mean(name, _) => {
                factor(name, -normed.and_then(|normed| normed.mean).ok_or(Misread)?)
            }
            Multiplier::Turn(turning) => {
                let (position, frequency, angle) = self.angle(turning)?;
                let sign = turning.signs.get(self.place(3)?).copied().unwrap_or(1);
                let minus = if sign < 0 { "−" } else { "" };
                let (function, value) = if turning.sine {
                    ("sin", f64::from(sign) * angle.sin())
                } else {
                    ("cos", angle.cos())
                };
                let name = format!("{minus}{function}({position} · {})", frequency.name);
                factor(name, value).made_of(&frequency)
            }
        })
    }

    /// The position, the frequency, and the angle by which a feature is turned.
    fn angle(&self, turning: &Turning) -> Result<(usize, Factor, f64)> {
        let frequency = self.read(&turning.frequency)?;
        let all = &turning.positions;
        let of_item = all.get(self.place(0)?).or_else(|| all.first()).ok_or(Misread)?;
        let of_token = of_item.get(self.place(2)?).ok_or(Misread)?;
        let pair = frequency.cell.as_ref().and_then(|cell| cell.index.first());
        let own = pair.and_then(|pair| of_token.get(*pair));
        let position = *own.or_else(|| of_token.first()).ok_or(Misread)?;
        let angle = position as f64 * frequency.value;
        // As it is multiplied: in the type of the run.
        let dtype = self.inputs.get(turning.frequency.input).map(|freqs| freqs.tensor.dtype());
        #[allow(clippy::cast_possible_truncation, reason = "the product is rounded so")]
        let angle = if dtype == Some(DType::F32) { f64::from(angle as f32) } else { angle };
        Ok((position, frequency, angle))
    }

    /// The rotation of the pair that a feature belongs to; nothing for one that stays.
    fn turned(&self, turning: &Turning, terms: &[Term]) -> Result<Working> {
        let [Term(own), Term(partner)] = terms else { return Ok(Working::Plain) };
        let feature = |term: &[Factor]| {
            term.first().and_then(|read| read.cell.as_ref()?.index.last().copied()).ok_or(Misread)
        };
        let (own_feature, partner) = (feature(own)?, feature(partner)?);
        let features = [own_feature.min(partner), own_feature.max(partner)];
        let (position, frequency, angle) = self.angle(turning)?;
        let pair = frequency.cell.as_ref().and_then(|cell| cell.index.first()).copied();
        let (pair, factor) = (pair.ok_or(Misread)?, own.get(2).map(|by| by.value));
        Ok(Working::Turned(Turned { pair, features, position, frequency, angle, factor }))
    }

    /// The row that a cell is normed by, and its norm.
    fn normed(&self, row: &Row) -> Result<Normed> {
        let Row { over_heads, centred, summed, eps } = *row;
        let (x, [place @ .., _]) = (self.inputs.first().ok_or(Misread)?, self.index) else {
            return Err(Misread.into());
        };
        let of = |place: &[usize]| -> Result<Vec<Factor>> {
            let numbers = x.row(place)?.into_iter().enumerate();
            Ok(numbers.map(|(d, number)| x.named(&[place, &[d]].concat(), number)).collect())
        };
        let row = match place {
            [item, _, token] if over_heads => {
                let heads = x.tensor.dims().get(1).copied().unwrap_or(0);
                let rows = (0..heads).map(|head| of(&[*item, head, *token]));
                rows.collect::<Result<Vec<_>>>()?.concat()
            }
            _ => of(place)?,
        };
        let numbers = || row.iter().map(|number| number.value);
        let count = row.len() as f64;
        let mean = centred.then(|| numbers().sum::<f64>() / count);
        let less = mean.unwrap_or_default();
        let of = if summed { 1.0 } else { count };
        let squares = numbers().map(|x| (x - less).powi(2)).sum::<f64>() / of;
        let root = (squares + eps).sqrt();
        Ok(Normed { row, mean, squares, eps, root, over_heads, is_sum: summed })
    }
}
