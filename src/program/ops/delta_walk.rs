//! The numbers of the delta rule: a walk over the tokens of every head, with what goes wrong there.

use candle_core::{DType, Tensor, WithDType};
use rayon::prelude::*;

use super::Precision;
use super::delta::{Delta, DeltaForm, DeltaSlip, DeltaStage, Inputs};
use base::error::Result;

/// The lengths of the axes.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    pub tokens: usize,
    /// Key features.
    pub rows: usize,
    /// Value features.
    pub columns: usize,
}

/// The numbers of one head of one item, or where they begin in those of all.
pub(super) struct Walk<'a, T> {
    pub delta: &'a Delta,
    pub lengths: Lengths,
    pub queries: Option<&'a [T]>,
    pub keys: &'a [T],
    pub values: &'a [T],
    pub beta: Option<&'a [T]>,
    pub decay: Option<&'a [T]>,
    /// Whether every key feature decays by itself.
    pub is_by_feature: bool,
}

/// The state of a head, row by row.
pub(super) type State<T> = Vec<T>;

/// The states before the chunks of all documents of a head so far.
#[derive(Default)]
pub(super) struct Listed {
    /// In order.
    pub states: Vec<Vec<f64>>,
    /// How many chunks of documents before are full.
    pub full: usize,
}

/// Σ left · right.
pub(super) fn dot<T: WithDType>(left: &[T], right: &[T]) -> T {
    left.iter().zip(right).fold(T::zero(), |sum, (left, right)| sum + *left * *right)
}

/// rowᵀ · state.
pub(super) fn read<T: WithDType>(row: &[T], state: &[T], columns: usize) -> Vec<T> {
    let mut sums = vec![T::zero(); columns];
    for (own, state) in row.iter().zip(state.chunks(columns)) {
        for (sum, number) in sums.iter_mut().zip(state) {
            *sum += *own * *number;
        }
    }
    sums
}

/// Adds keyᵀ · written to a state.
pub(super) fn write<T: WithDType>(state: &mut [T], key: &[T], written: &[T]) {
    for (own, state) in key.iter().zip(state.chunks_mut(written.len().max(1))) {
        for (number, written) in state.iter_mut().zip(written) {
            *number += *own * *written;
        }
    }
}

impl Walk<'_, f32> {
    /// The value of a step.
    pub(super) fn value(delta: &Delta, inputs: &Inputs<&Tensor>) -> Result<Tensor> {
        let dtype = inputs.values.dtype();
        // Sums of logarithms lose more than products.
        if dtype == DType::F64 || matches!(delta.form, DeltaForm::Chunks(..)) {
            return Ok(of::<f64>(delta, inputs)?.to_dtype(dtype)?);
        }
        Ok(of::<f32>(delta, inputs)?.to_dtype(dtype)?)
    }
}

fn numbers<T: WithDType>(tensor: &Tensor) -> Result<Vec<T>> {
    Ok(tensor.to_dtype(T::DTYPE)?.flatten_all()?.to_vec1()?)
}

/// The numbers of one head, of which each has so many.
fn part<T>(all: Option<&[T]>, head: usize, each: usize) -> Option<&[T]> {
    all?.get(head * each..(head + 1) * each)
}

/// The value of a step, computed in a type.
fn of<T: WithDType>(delta: &Delta, inputs: &Inputs<&Tensor>) -> Result<Tensor> {
    let (batch, heads, tokens, rows) = inputs.keys.dims4()?;
    let lengths = Lengths { tokens, rows, columns: inputs.values.dim(3)? };
    let all = |tensor: Option<&Tensor>| tensor.map(numbers::<T>).transpose();
    let (keys, values) = (numbers::<T>(inputs.keys)?, numbers::<T>(inputs.values)?);
    let (queries, beta) = (all(inputs.queries)?, all(inputs.beta)?);
    let (decay, initial) = (all(inputs.decay)?, all(inputs.initial)?);
    let is_by_feature = inputs.decay.is_some_and(|decay| decay.rank() == 4);
    let state = rows * lengths.columns;
    let firsts: Vec<usize> = delta
        .spans
        .iter()
        .scan(0, |before, spans| {
            let first = *before;
            *before += spans.len();
            Some(first)
        })
        .collect();
    let of_item = |item: usize, head: usize, last: Option<State<T>>| {
        let at = item * heads + head;
        let each = tokens * rows;
        let walk = Walk {
            delta,
            lengths,
            queries: part(queries.as_deref(), at, each),
            keys: part(Some(&keys), at, each).unwrap_or_default(),
            values: part(Some(&values), at, tokens * lengths.columns).unwrap_or_default(),
            beta: part(beta.as_deref(), at, tokens),
            decay: part(decay.as_deref(), at, if is_by_feature { each } else { tokens }),
            is_by_feature,
        };
        let spans = delta.spans.get(item).map(Vec::as_slice).unwrap_or_default();
        let first = firsts.get(item).copied().unwrap_or_default();
        let before = |span: usize| -> State<T> {
            let at = ((first + span) * heads + head) * state;
            let own = initial.as_ref().and_then(|initial| initial.get(at..at + state));
            own.map_or_else(|| vec![T::zero(); state], <[T]>::to_vec)
        };
        walk.head((item, spans), before, last)
    };
    // Where states go on from item to item, these are one after the other.
    let is_joined = delta.form == DeltaForm::Tokens(Some(DeltaSlip::Joined));
    let made: Vec<Vec<T>> = if is_joined {
        let of_head = |head: usize| {
            let mut last = None;
            let each = (0..batch).map(|item| {
                let (numbers, state) = of_item(item, head, last.take());
                last = state;
                numbers
            });
            each.collect::<Vec<_>>()
        };
        let by_heads: Vec<Vec<Vec<T>>> = (0..heads).into_par_iter().map(of_head).collect();
        let at = |at: usize| by_heads.get(at % heads)?.get(at / heads).cloned();
        (0..batch * heads).filter_map(at).collect()
    } else {
        let each = (0..batch * heads).into_par_iter();
        each.map(|at| of_item(at / heads, at % heads, None).0).collect()
    };
    let (numbers, shape) = match delta.stage {
        DeltaStage::Written | DeltaStage::Read => {
            (made.concat(), vec![batch, heads, tokens, lengths.columns])
        }
        DeltaStage::States => (made.concat(), vec![batch, heads, tokens, rows, lengths.columns]),
        DeltaStage::Chunks(size) => {
            let chunks = delta.chunks(tokens, size);
            (made.concat(), vec![batch, heads, chunks, rows, lengths.columns])
        }
        DeltaStage::Last => {
            // By sequences, of which an item may have several.
            let mut all = Vec::with_capacity(delta.sequences() * heads * state);
            for (item, spans) in delta.spans.iter().enumerate() {
                for span in 0..spans.len() {
                    for head in 0..heads {
                        let own = made.get(item * heads + head).map(Vec::as_slice);
                        let own = own.and_then(|own| own.get(span * state..(span + 1) * state));
                        all.extend_from_slice(own.unwrap_or_default());
                    }
                }
            }
            (all, vec![delta.sequences(), heads, rows, lengths.columns])
        }
    };
    Ok(Tensor::from_vec(numbers, shape, inputs.keys.device())?)
}

/// What a walk makes of a head, as it goes.
pub(super) struct Made<T> {
    numbers: Vec<T>,
    stage: DeltaStage,
    /// Where chunks begin.
    starts: Vec<usize>,
}

impl<T: WithDType> Walk<'_, T> {
    pub(super) fn row(numbers: &[T], token: usize, width: usize) -> &[T] {
        numbers.get(token * width..(token + 1) * width).unwrap_or_default()
    }

    pub(super) fn key(&self, token: usize) -> &[T] {
        Self::row(self.keys, token, self.lengths.rows)
    }

    pub(super) fn value_of(&self, token: usize) -> &[T] {
        Self::row(self.values, token, self.lengths.columns)
    }

    pub(super) fn beta_of(&self, token: usize) -> T {
        self.beta.and_then(|beta| beta.get(token)).copied().unwrap_or_else(T::one)
    }

    /// What is left of a key feature after a token's decay.
    pub(super) fn left(&self, token: usize, row: usize) -> T {
        let at = if self.is_by_feature { token * self.lengths.rows + row } else { token };
        self.decay.and_then(|decay| decay.get(at)).copied().unwrap_or_else(T::one)
    }

    /// A state, decayed by a token.
    pub(super) fn decay(&self, state: &mut [T], token: usize) {
        if self.decay.is_none() {
            return;
        }
        if self.delta.form == DeltaForm::Tokens(Some(DeltaSlip::DecayOfValues)) {
            for numbers in state.chunks_mut(self.lengths.columns.max(1)) {
                let numbers = numbers.iter_mut().enumerate();
                numbers.for_each(|(column, number)| *number *= self.left(token, column));
            }
            return;
        }
        for (row, numbers) in state.chunks_mut(self.lengths.columns.max(1)).enumerate() {
            let left = self.left(token, row);
            for number in numbers {
                *number *= left;
            }
        }
    }

    /// The numbers of an item's head, and the state behind the last of its tokens; `last` is that of the item before.
    fn head(
        &self,
        (item, spans): (usize, &[(usize, usize)]),
        before: impl Fn(usize) -> State<T>,
        mut last: Option<State<T>>,
    ) -> (Vec<T>, Option<State<T>>) {
        let Lengths { tokens, rows, columns, .. } = self.lengths;
        let stage = self.delta.stage;
        let of_token = match stage {
            DeltaStage::Written | DeltaStage::Read => columns,
            DeltaStage::States => rows * columns,
            DeltaStage::Chunks(_) | DeltaStage::Last => 0,
        };
        let (starts, chunks) = match stage {
            DeltaStage::Chunks(size) => {
                (self.delta.starts(item, tokens, size), self.delta.chunks(tokens, size))
            }
            _ => (Vec::new(), 0),
        };
        let count = tokens * of_token + chunks * rows * columns;
        let mut made = Made { numbers: vec![T::zero(); count], stage, starts };
        let mut listed = Listed::default();
        for (at, span) in spans.iter().enumerate() {
            // Of tokens that are not of the one sequence, queries read the state.
            let told = if spans.len() == 1 { (0, tokens) } else { *span };
            let end = match self.delta.form {
                DeltaForm::Tokens(slip) => {
                    let first = match (slip, last.take()) {
                        (Some(DeltaSlip::FromZero), _) => vec![T::zero(); rows * columns],
                        (Some(DeltaSlip::Joined), Some(last)) => last,
                        _ => before(at),
                    };
                    self.tokens(*span, told, first, slip, &mut made)
                }
                DeltaForm::Chunks(size, slip) => {
                    let first = before(at);
                    let end =
                        self.chunks(*span, (&first, &mut listed), (size.max(1), slip), &mut made);
                    for (tokens, state) in [(told.0..span.0, &first), (span.1..told.1, &end)] {
                        for token in tokens {
                            self.read(token, state, &mut made);
                            made.state(token, state);
                        }
                    }
                    end
                }
            };
            if stage == DeltaStage::Last {
                made.numbers.extend_from_slice(&end);
            }
            last = Some(end);
        }
        (made.numbers, last)
    }

    /// Goes through tokens one by one; gives the last state. Of those `told` that are not of the sequence, queries read the
    /// state.
    fn tokens(
        &self,
        (from, to): (usize, usize),
        told: (usize, usize),
        mut state: State<T>,
        slip: Option<DeltaSlip>,
        made: &mut Made<T>,
    ) -> State<T> {
        let columns = self.lengths.columns;
        let to =
            if slip == Some(DeltaSlip::BeforeLast) { to.saturating_sub(1).max(from) } else { to };
        for token in told.0..told.1 {
            made.chunk(token, &state);
            if !(from..to).contains(&token) {
                if slip == Some(DeltaSlip::PaddingDecays) && token >= to {
                    self.decay(&mut state, token);
                }
                self.read(token, &state, made);
                made.state(token, &state);
                continue;
            }
            let key = self.key(token);
            let is_late = matches!(slip, Some(DeltaSlip::DecayLate | DeltaSlip::UndecayedDelta));
            let before = (slip == Some(DeltaSlip::ReadBefore)).then(|| state.clone());
            // What is read of the state for the key, where that is not decayed yet.
            let undecayed = (is_late && self.beta.is_some()).then(|| read(key, &state, columns));
            let kept = (slip == Some(DeltaSlip::DecayOnRead)).then(|| state.clone());
            if slip != Some(DeltaSlip::DecayLate) {
                self.decay(&mut state, token);
            }
            let written = match self.delta.stage {
                DeltaStage::Written => {
                    let of_key = undecayed.unwrap_or_else(|| read(key, &state, columns));
                    let written = self.written(token, &of_key, slip);
                    made.put(token, &written);
                    written
                }
                _ => self.value_of(token).to_vec(),
            };
            if slip == Some(DeltaSlip::StrictRead) {
                self.read(token, &state, made);
            }
            if let Some(kept) = kept {
                state = kept;
            }
            write(&mut state, key, &written);
            if slip == Some(DeltaSlip::DecayLate) {
                self.decay(&mut state, token);
            }
            let precision = match slip {
                Some(DeltaSlip::InBf16) => Some(Precision::Bf16),
                Some(DeltaSlip::InF16) => Some(Precision::F16),
                _ => None,
            };
            if let Some(precision) = precision {
                for number in &mut state {
                    *number = T::from_f64(precision.of(number.to_f64()));
                }
            }
            match before {
                Some(before) => self.read(token, &before, made),
                None if slip != Some(DeltaSlip::StrictRead) => self.read(token, &state, made),
                None => {}
            }
            made.state(token, &state);
        }
        state
    }

    /// u, where the state has that for a token's key.
    fn written(&self, token: usize, of_key: &[T], slip: Option<DeltaSlip>) -> Vec<T> {
        let (beta, key) = (self.beta_of(token), self.key(token));
        let own = dot(key, key);
        let of = |(value, of_key): (&T, &T)| match slip {
            Some(DeltaSlip::NoBeta) => *value - *of_key,
            Some(DeltaSlip::BetaTwice) => beta * beta * (*value - *of_key),
            Some(DeltaSlip::BetaOnRead) => *value - beta * *of_key,
            Some(DeltaSlip::BetaOnValue) => beta * *value - *of_key,
            Some(DeltaSlip::BetaTwiceOnValue) => beta * (beta * *value - *of_key),
            Some(DeltaSlip::BetaOnKey) => beta * (*value - beta * *of_key),
            Some(DeltaSlip::Additive) => beta * *value,
            Some(DeltaSlip::Added) => beta * (*value + *of_key),
            Some(DeltaSlip::OwnToken) => beta * (*value - *of_key) / (T::one() + beta * own),
            _ => beta * (*value - *of_key),
        };
        self.value_of(token).iter().zip(of_key).map(of).collect()
    }

    fn read(&self, token: usize, state: &[T], made: &mut Made<T>) {
        let Some(queries) = self.queries else { return };
        let query = Self::row(queries, token, self.lengths.rows);
        made.put(token, &read(query, state, self.lengths.columns));
    }
}

impl<T: WithDType> Made<T> {
    /// Sets the numbers of a token.
    pub(super) fn put(&mut self, token: usize, numbers: &[T]) {
        if matches!(self.stage, DeltaStage::Written | DeltaStage::Read) {
            self.set(token, numbers);
        }
    }

    fn set(&mut self, at: usize, numbers: &[T]) {
        let width = numbers.len();
        if let Some(own) = self.numbers.get_mut(at * width..(at + 1) * width) {
            own.copy_from_slice(numbers);
        }
    }

    /// Takes the state after a token.
    pub(super) fn state(&mut self, token: usize, state: &[T]) {
        if self.stage == DeltaStage::States {
            self.set(token, state);
        }
    }

    /// Takes the state before a token, if a chunk begins with it.
    pub(super) fn chunk(&mut self, token: usize, state: &[T]) {
        if let Ok(chunk) = self.starts.binary_search(&token) {
            self.set(chunk, state);
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::axis::unravel;
    use crate::name::Name;
    use crate::operation::Operation;
    use crate::terms::{Term, Value};

    /// Numbers from −1 to 1 in this shape.
    fn numbers(shape: &[usize], step: f64) -> Tensor {
        let count = u32::try_from(shape.iter().product::<usize>()).expect("few");
        let all = Tensor::arange(0, count, &Device::Cpu).and_then(|all| all.to_dtype(DType::F64));
        let all = all.and_then(|all| (all * step)?.sin()?.reshape(shape));
        all.expect("fits")
    }

    /// The chunked form is the recurrent one, whatever the size of the chunks, for every stage of the rule, and each number is
    /// the sum of its terms.
    #[test]
    fn chunks_and_terms_give_what_tokens_give() {
        let (batch, heads, tokens, rows, columns) = (2, 3, 11, 4, 5);
        let keys = numbers(&[batch, heads, tokens, rows], 0.7);
        let queries = numbers(&[batch, heads, tokens, rows], 0.3);
        let values = numbers(&[batch, heads, tokens, columns], 1.3);
        let beta = numbers(&[batch, heads, tokens], 0.9).sqr().expect("numbers");
        let alike = numbers(&[batch, heads, tokens], 0.11).sqr().expect("numbers");
        let by_feature = numbers(&[batch, heads, tokens, rows], 0.13).sqr().expect("numbers");
        let initial = numbers(&[batch, heads, rows, columns], 0.5);
        let packed = numbers(&[3, heads, rows, columns], 0.5);
        let whole = (vec![vec![(0, 11)], vec![(0, 11)]], &initial);
        let padded = (vec![vec![(0, 11)], vec![(2, 9)]], &initial);
        let packed = (vec![vec![(0, 5), (5, 11)], vec![(0, 11)]], &packed);
        for ((spans, initial), decay, (stage, own)) in [whole, padded, packed]
            .into_iter()
            .flat_map(|spans| [&alike, &by_feature].map(|decay| (spans.clone(), decay)))
            .flat_map(|(spans, decay)| {
                let all = [
                    (DeltaStage::Written, vec![&values, &keys, &beta]),
                    (DeltaStage::Read, vec![&queries, &keys, &values]),
                    (DeltaStage::States, vec![&values, &keys]),
                    (DeltaStage::Chunks(4), vec![&values, &keys]),
                    (DeltaStage::Last, vec![&values, &keys]),
                ];
                all.map(|own| (spans.clone(), decay, own))
            })
        {
            let inputs: Vec<&Tensor> = own.into_iter().chain([decay, initial]).collect();
            let of = |form: DeltaForm| {
                let (is_gated, has_initial) = (true, true);
                Delta { stage, spans: spans.clone(), is_gated, has_initial, form }
            };
            let value = |form| of(form).value(&inputs).expect("fits");
            let flat = |own: &Tensor| own.flatten_all().and_then(|own| own.to_vec1::<f64>());
            let right = value(DeltaForm::Tokens(None));
            let numbers = flat(&right).expect("numbers");
            let near = |other: &[f64], what: &str| {
                assert_eq!(numbers.len(), other.len());
                // Of numbers below 10, sums of a hundred products.
                let apart = numbers.iter().zip(other).map(|(l, r)| (l - r).abs());
                assert!(apart.fold(0.0, f64::max) < 1e-9, "{stage:?} {spans:?}: {what}");
            };
            if spans.iter().flatten().all(|span| *span != (2, 9)) {
                for size in [1, 2, 3, 8, 16] {
                    let chunked = flat(&value(DeltaForm::Chunks(size, None)));
                    near(&chunked.expect("numbers"), "chunks");
                }
            }
            let given: Vec<Value> =
                inputs.iter().map(|tensor| Value { name: Name::X, tensor }).collect();
            let sum = |flat: usize| {
                let cell = unravel(flat, right.dims());
                let terms = of(DeltaForm::Tokens(None)).terms(&given, &cell).expect("terms");
                let product =
                    |term: &Term| term.0.iter().map(|factor| factor.value).product::<f64>();
                terms.iter().map(product).sum::<f64>()
            };
            near(&(0..numbers.len()).map(sum).collect::<Vec<f64>>(), "terms");
        }
    }
}
