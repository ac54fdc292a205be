//! A step of the delta rule as an operation: keys and values are written into a state, token by token, from which queries read.

use candle_core::Tensor;

use super::delta::{Delta, DeltaStage, Inputs};
use super::delta_walk::Walk;
use crate::adjoint::Adjoint;
use crate::axis::Axis::{Batch, Head, HeadDim, Key, Query, ValueDim};
use crate::axis::{Axes, Dim};
use crate::misread::Misread;
use crate::operation::Operation;
use crate::part::{Part, of_item};
use crate::terms::{Factor, Term, Value, factor};
use base::error::Result;

/// The parts of a cell's number: of each token that writes, and of the first state.
struct Parts<'a> {
    inputs: Inputs<&'a Value<'a>>,
    item: usize,
    head: usize,
    /// The tokens before, and which sequence they are of.
    span: (usize, usize),
    sequence: usize,
}

impl Parts<'_> {
    /// What is left of a key feature of a token's key after the decay of those behind it, before another.
    fn left(&self, feature: usize, from: Option<usize>, until: usize) -> Result<f64> {
        let Some(decay) = self.inputs.decay else { return Ok(1.0) };
        let first = from.map_or(self.span.0, |from| from + 1);
        let mut left = 1.0;
        for token in first..until {
            let at = [self.item, self.head, token, feature];
            let own = if decay.tensor.rank() == 4 { &at[..] } else { &at[..3] };
            left *= decay.at(own)?.value;
        }
        Ok(left)
    }

    /// Σ over key features of a row (or one of them alone) times a token's key, each as far as it is left.
    fn met(
        &self,
        row: Option<(&Value, usize)>,
        feature: Option<usize>,
        from: usize,
        to: usize,
    ) -> Result<(f64, String)> {
        let (item, head) = (self.item, self.head);
        let keys = self.inputs.keys;
        if let Some(feature) = feature {
            let key = keys.at(&[item, head, from, feature])?;
            let left = self.left(feature, Some(from), to + 1)?;
            return Ok((key.value * left, self.decayed(key.name, from, to)));
        }
        let Some((row, token)) = row else { return Err(Misread.into()) };
        let own = row.row(&[item, head, token])?;
        let key = keys.row(&[item, head, from])?;
        let mut sum = 0.0;
        for (at, (own, key)) in own.iter().zip(&key).enumerate() {
            sum += own * key * self.left(at, Some(from), to + 1)?;
        }
        let name =
            format!("({}[{item},{head},{token}] · {}[{item},{head},{from}])", row.name, keys.name);
        Ok((sum, self.decayed(name, from, to)))
    }

    /// What a number is called that decays from one token to another.
    fn decayed(&self, name: String, from: usize, to: usize) -> String {
        match self.inputs.decay {
            Some(decay) if from + 1 < to => {
                tr!(
                    "{name} · {decay} of tokens {first} to {to}",
                    name,
                    decay = decay.name,
                    first = from + 1,
                    to
                )
            }
            Some(decay) if from < to => {
                tr!("{name} · {decay} of token {to}", name, decay = decay.name, to)
            }
            _ => name,
        }
    }

    /// The sum over the first state, decayed by the tokens before one: Σ row · S₀, or one cell of it.
    fn first(
        &self,
        row: Option<(&Value, usize)>,
        feature: Option<usize>,
        value: usize,
        until: usize,
    ) -> Result<Option<Factor>> {
        let Some(initial) = self.inputs.initial else { return Ok(None) };
        let of = |feature: usize| initial.at(&[self.sequence, self.head, feature, value]);
        if let Some(feature) = feature {
            let own = of(feature)?;
            let left = self.left(feature, None, until)?;
            return Ok(Some(factor(tr!("{name}, decayed", name = own.name), own.value * left)));
        }
        let Some((row, token)) = row else { return Ok(None) };
        let mut sum = 0.0;
        for (at, own) in row.row(&[self.item, self.head, token])?.iter().enumerate() {
            sum += own * of(at)?.value * self.left(at, None, until)?;
        }
        let name = tr!(
            "{row} · {initial}, decayed",
            row = format!("{}[{},{},{token}]", row.name, self.item, self.head),
            initial = initial.name
        );
        Ok(Some(factor(name, sum)))
    }
}

impl Operation for Delta {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Walk::value(self, &self.inputs(inputs)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let own = self.inputs(inputs)?;
        let (
            [(Batch, batch), (Head, heads), (Key, tokens), (HeadDim, features)],
            [(Batch, v_batch), (Head, v_heads), (Key, v_tokens), (HeadDim, values)],
        ) = (own.keys, own.values)
        else {
            return Err(Misread);
        };
        let of_tokens = [(Batch, *batch), (Head, *heads), (Key, *tokens)];
        let of_keys = [&of_tokens[..], &[(HeadDim, *features)]].concat();
        let of_queries = [(Batch, *batch), (Head, *heads), (Query, *tokens), (HeadDim, *features)];
        let state = [(HeadDim, *features), (ValueDim, *values)];
        let of_state = [&[(Batch, self.sequences()), (Head, *heads)], &state[..]].concat();
        let fits = (batch, heads, tokens) == (v_batch, v_heads, v_tokens)
            && self.spans.len() == *batch
            && self.spans.iter().flatten().all(|(from, to)| from <= to && to <= tokens)
            && own.beta.is_none_or(|beta| beta == of_tokens)
            && own.decay.is_none_or(|decay| decay == of_tokens || decay == of_keys)
            && own.initial.is_none_or(|initial| initial == of_state)
            && own.queries.is_none_or(|queries| queries == of_queries);
        if !fits {
            return Err(Misread);
        }
        Ok(match self.stage {
            DeltaStage::Written => own.values.to_vec(),
            DeltaStage::States => [&of_tokens[..], &state[..]].concat(),
            DeltaStage::Chunks(size) => {
                let chunks = self.chunks(*tokens, size);
                [&[(Batch, *batch), (Head, *heads), (Key, chunks)], &state[..]].concat()
            }
            DeltaStage::Read => {
                vec![(Batch, *batch), (Head, *heads), (Query, *tokens), (HeadDim, *values)]
            }
            DeltaStage::Last => of_state,
        })
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let Inputs { queries, keys, values, beta, decay, .. } = self.inputs(names)?;
        let decayed = decay.map_or_else(|| "S".to_owned(), |decay| format!("{decay} · S"));
        let state = format!("S = {decayed} + {keys}ᵀ · {values}");
        Ok(match self.stage {
            DeltaStage::Written => {
                let beta = beta.unwrap_or_default();
                tr!(
                    "{beta} · ({values} − {keys} · {decayed}), S = {decayed} + {keys}ᵀ · this, token by token",
                    beta,
                    values,
                    keys,
                    decayed
                )
            }
            DeltaStage::States => tr!("{state}, after every token", state),
            DeltaStage::Chunks(size) => tr!("{state}, before every {size} tokens", state, size),
            DeltaStage::Read => {
                tr!(
                    "{queries} · S, {state}, token by token",
                    queries = queries.unwrap_or_default(),
                    state
                )
            }
            DeltaStage::Last => tr!("{state}, after the last token", state),
        })
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let all: Vec<&Value> = inputs.iter().collect();
        let own = self.inputs(&all)?;
        // Where the cell is: its item and head, the token up to which is written, and the features.
        let (sequence, head, token, features) = match (self.stage, cell) {
            (DeltaStage::Written | DeltaStage::Read, [item, head, token, value]) => {
                (self.sequence_of(*item, *token), *head, Some(*token), (None, *value))
            }
            (DeltaStage::States, [item, head, token, key, value]) => {
                (self.sequence_of(*item, *token), *head, Some(*token), (Some(*key), *value))
            }
            (DeltaStage::Chunks(size), [item, head, chunk, key, value]) => {
                let tokens =
                    all.get(1).map_or(0, |keys| keys.tensor.dims().get(2).copied().unwrap_or(0));
                // Items may have fewer chunks than others: nothing stands behind their last one.
                let starts = self.starts(*item, tokens, size);
                let Some(start) = starts.get(*chunk).copied() else { return Ok(Vec::new()) };
                let at = self.sequence_of(*item, start);
                (at, *head, start.checked_sub(1), (Some(*key), *value))
            }
            (DeltaStage::Last, [sequence, head, key, value]) => {
                let at = self.span_of(*sequence);
                let last = at.and_then(|(_, _, (_, to))| to.checked_sub(1));
                (at, *head, last, (Some(*key), *value))
            }
            _ => return Err(Misread.into()),
        };
        let Some((item, sequence, span)) = sequence else { return Ok(Vec::new()) };
        let parts = Parts { inputs: own, item, head, span, sequence };
        let own = &parts.inputs;
        let (key, value) = features;
        let mut terms = Vec::new();
        let write = |token: usize| own.values.at(&[item, head, token, value]);
        let row = |token: usize| own.queries.map(|queries| (queries, token));
        let last = token.map(|token| token.min(span.1.saturating_sub(1)));
        let Some((token, last)) = token.zip(last).filter(|(_, last)| *last >= span.0) else {
            let row = token.and_then(row);
            let first = parts.first(row, key, value, span.0)?;
            return Ok(first.map(|first| Term(vec![first])).into_iter().collect());
        };
        match self.stage {
            DeltaStage::Written if token > last => {}
            DeltaStage::Written => {
                let Some(beta) = own.beta else { return Err(Misread.into()) };
                let beta = beta.at(&[item, head, token])?;
                terms.push(Term(vec![beta.clone(), write(token)?]));
                let row = Some((own.keys, token));
                let less = Factor { name: format!("−{}", beta.name), value: -beta.value, ..beta };
                if let Some(first) = parts.first(row, None, value, token + 1)? {
                    terms.push(Term(vec![less.clone(), first]));
                }
                let tensors: Vec<&Tensor> = inputs.iter().map(|input| input.tensor).collect();
                let before = self.value(&tensors)?;
                for from in span.0..token {
                    let (met, name) = parts.met(row, None, from, token)?;
                    let at = [item, head, from, value];
                    let name_of = tr!("what token {from} writes", from);
                    let written = Value { name: own.values.name, tensor: &before }.at(&at)?;
                    let written = Factor { name: name_of, cell: None, ..written };
                    terms.push(Term(vec![less.clone(), factor(name, met), written]));
                }
            }
            DeltaStage::Read | DeltaStage::States | DeltaStage::Chunks(_) | DeltaStage::Last => {
                let row = row(token);
                if let Some(first) = parts.first(row, key, value, last + 1)? {
                    terms.push(Term(vec![first]));
                }
                for from in span.0..=last {
                    let (met, name) = parts.met(row, key, from, last)?;
                    terms.push(Term(vec![factor(name, met), write(from)?]));
                }
            }
        }
        Ok(terms)
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        let Ok(own) = self.inputs(inputs) else { return 0 };
        let state = own.keys.count().saturating_mul(own.values.last_size());
        match self.stage {
            // Decayed, read, written.
            DeltaStage::Written | DeltaStage::Read => state.saturating_mul(5),
            DeltaStage::States | DeltaStage::Chunks(_) | DeltaStage::Last => {
                state.saturating_mul(3).max(output.count())
            }
        }
    }

    /// A token needs all that were before it.
    fn narrowed(&self, part: Part, _: &[&Axes], _: &Axes) -> Option<Self> {
        if let Part::First(count) = part {
            let cut = |(from, to): &(usize, usize)| ((*from).min(count), (*to).min(count));
            let spans = self.spans.iter().map(|spans| spans.iter().map(cut).collect()).collect();
            return self.may_end_at(count).then(|| Self { spans, ..self.clone() });
        }
        let Part::Item(item) = part else { return None };
        let is_one = self.spans.iter().all(|spans| spans.len() == 1);
        is_one.then(|| Self { spans: of_item(&self.spans, item), ..self.clone() })
    }

    fn adjoint(&self, _: usize, _: &[&Axes], _: &Axes) -> Adjoint {
        Adjoint::Unknown
    }
}
