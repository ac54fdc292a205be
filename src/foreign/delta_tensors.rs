//! Which tensors of a file of the delta rule are which, and in which order their axes stand.

use candle_core::Tensor;

use super::names::{is_called, meanings};
use super::qkv::one;
use base::error::{Error, Result, quoted};
use config::{QkvFormat, Recurrence, Settings};
use file::{Entry, Record};
use program::Name;

/// Which tensors of a file are which.
pub(super) struct Found<'r> {
    queries: &'r Entry,
    keys: &'r Entry,
    values: &'r Entry,
    beta: &'r Entry,
    /// The logarithm of the decay, or the decay itself.
    gate: Option<(&'r Entry, bool)>,
    initial: Option<&'r Entry>,
}

/// The same in one order of axes.
pub(super) struct Arranged {
    pub format: QkvFormat,
    /// How queries, keys and values stand, in words.
    pub axes: &'static str,
    pub tensors: Vec<(Name, String, Tensor)>,
    pub recurrence: Recurrence,
}

/// Which tensors are which.
pub(super) fn found(record: &Record) -> Result<Found<'_>> {
    let one = |steps: &[Name]| one(record, steps);
    let needed = |steps: &[Name], name: &str| {
        one(steps)?.ok_or_else(|| {
            let fix = tr!("record all that the rule takes: q, k, v and beta, and g if it is gated");
            Error::tensor(name, "is neither recorded nor given", fix)
        })
    };
    let gate = match one(&[Name::G])? {
        Some(gate) => Some((gate, true)),
        // In papers it is α.
        None => one(&[Name::Decay])?
            .or_else(|| record.entries.iter().find(|entry| is_called(&entry.name, &["alpha"])))
            .map(|decay| (decay, false)),
    };
    // Of two states that nothing tells apart the one that is not the last came before.
    let is_state = |entry: &&Entry| meanings(&entry.name).first() == Some(&Name::FinalState);
    let states: Vec<&Entry> = record.entries.iter().filter(is_state).collect();
    let has_last = record.tensor(Name::FinalState.as_str()).is_some();
    let is_before = |entry: &&&Entry| is_called(&entry.name, &["recurrent_state", "state"]);
    let initial = match one(&[Name::InitialState])? {
        None if states.len() == 2 && !has_last => states.iter().find(is_before).copied(),
        found => found,
    };
    Ok(Found {
        queries: needed(&[Name::Q, Name::QHeads], "q")?,
        keys: needed(&[Name::K, Name::KHeads], "k")?,
        values: needed(&[Name::V, Name::VHeads], "v")?,
        beta: needed(&[Name::Beta], "beta")?,
        gate,
        initial,
    })
}

impl<'r> Found<'r> {
    pub(super) fn all(&self) -> impl Iterator<Item = &'r Entry> {
        let gate = self.gate.map(|(gate, _)| gate);
        [self.queries, self.keys, self.values, self.beta]
            .into_iter()
            .chain(gate)
            .chain(self.initial)
    }
}

/// A tensor with a batch and the heads before the tokens; `width` says how many axes stand behind these, and `heads` how many
/// heads there are, if they may stand side by side.
fn turned(
    tensor: &Tensor,
    format: QkvFormat,
    width: usize,
    heads: Option<usize>,
) -> Result<Option<Tensor>> {
    let tensor = match (tensor.rank().checked_sub(width), heads) {
        (Some(3), _) => tensor.clone(),
        (Some(2), None) => tensor.unsqueeze(0)?,
        (Some(2), Some(heads)) => match *tensor.dims() {
            [batch, tokens, all] if format != QkvFormat::Bhsd && all.is_multiple_of(heads) => {
                tensor.reshape((batch, tokens, heads, all / heads))?
            }
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(Some(match format {
        QkvFormat::Bhsd => tensor,
        _ => tensor.transpose(1, 2)?.contiguous()?,
    }))
}

/// The orders of axes in which all tensors fit each other.
pub(super) fn arranged(
    found: &Found,
    stated: &Settings,
    is_head_first: Option<bool>,
) -> Result<Vec<Arranged>> {
    let formats = match (stated.qkv_format, is_head_first) {
        (Some(QkvFormat::Bhsd), _) | (None, Some(true)) => vec![QkvFormat::Bhsd],
        (Some(_), _) | (None, Some(false)) => vec![QkvFormat::Bshd],
        (None, None) => vec![QkvFormat::Bshd, QkvFormat::Bhsd],
    };
    let mut all = Vec::new();
    for format in formats {
        all.extend(in_order(found, format, stated.heads)?);
    }
    if !all.is_empty() {
        return Ok(all);
    }
    let told: Vec<String> = found
        .all()
        .map(|entry| format!("{} {:?}", quoted(&entry.name), entry.tensor.dims()))
        .collect();
    let what =
        tr!("the shapes of the delta rule do not fit each other: {told}", told = told.join(", "));
    let fix = tr!(
        "record q and k (batch, token, head, feature), v with as many heads or a multiple of them, and g and beta (batch, token, head), or all with heads before tokens"
    );
    Err(Error::config(what, fix))
}

/// All tensors in one order of axes, if they fit each other so.
fn in_order(found: &Found, format: QkvFormat, heads: Option<usize>) -> Result<Option<Arranged>> {
    // β has the heads alone: with a batch, what has as many axes has heads side by side.
    let own = match *found.beta.tensor.dims() {
        [_, _, own] if own > 0 => Some(own),
        _ => None,
    };
    let shared = own.map(|own| heads.unwrap_or(own).max(1));
    let all = [(found.queries, shared), (found.keys, shared), (found.values, own)];
    let [queries, keys, values] = all.map(|(entry, heads)| turned(&entry.tensor, format, 1, heads));
    let (Some(queries), Some(keys), Some(values)) = (queries?, keys?, values?) else {
        return Ok(None);
    };
    let (&[batch, heads, tokens, features], &[v_batch, v_heads, v_tokens, _]) =
        (queries.dims(), values.dims())
    else {
        return Ok(None);
    };
    let fits = keys.dims() == queries.dims()
        && (v_batch, v_tokens) == (batch, tokens)
        && heads > 0
        && v_heads.is_multiple_of(heads);
    if !fits {
        return Ok(None);
    }
    let other = if format == QkvFormat::Bhsd { QkvFormat::Bshd } else { QkvFormat::Bhsd };
    let of_tokens = |entry: &Entry, width: usize, shape: &[usize]| -> Result<Option<Tensor>> {
        for format in [format, other] {
            let own = turned(&entry.tensor, format, width, own.filter(|_| width > 0))?;
            if let Some(own) = own.filter(|own| own.dims() == shape) {
                return Ok(Some(own));
            }
        }
        Ok(None)
    };
    let shape = [batch, v_heads, tokens];
    let by_feature = [batch, v_heads, tokens, features];
    let Some(beta) = of_tokens(found.beta, 0, &shape)? else { return Ok(None) };
    let (gate, recurrence) = match found.gate {
        None => (None, Recurrence::Delta),
        Some((entry, is_log)) => {
            let alike = of_tokens(entry, 0, &shape)?;
            let own = match alike {
                Some(own) => Some((own, Recurrence::GatedDelta)),
                None => of_tokens(entry, 1, &by_feature)?.map(|own| (own, Recurrence::Kda)),
            };
            let Some((own, recurrence)) = own else { return Ok(None) };
            (Some((entry, if is_log { own } else { own.log()? })), recurrence)
        }
    };
    let mut tensors = vec![
        (Name::QHeads, found.queries.name.clone(), queries),
        (Name::KHeads, found.keys.name.clone(), keys),
        (Name::VHeads, found.values.name.clone(), values),
        (Name::Beta, found.beta.name.clone(), beta),
    ];
    tensors.extend(gate.map(|(entry, own)| (Name::G, entry.name.clone(), own)));
    if let Some(initial) = found.initial {
        let own = match initial.tensor.rank() {
            3 => initial.tensor.unsqueeze(0)?,
            _ => initial.tensor.clone(),
        };
        tensors.push((Name::InitialState, initial.name.clone(), own));
    }
    let axes = match format {
        QkvFormat::Bhsd => "",
        _ if own.is_some() && found.queries.tensor.rank() == 3 => tr!("heads side by side"),
        _ => tr!("axes (batch, token, head, head_dim)"),
    };
    Ok(Some(Arranged { format, axes, tensors, recurrence }))
}
