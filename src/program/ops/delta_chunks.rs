//! The delta rule in chunks of tokens: the numbers of its form, with what stands in its slots.

use candle_core::WithDType;

use super::delta::DeltaStage;
use super::delta_inverse::{
    eliminated, identity, less, merged, product, substituted, transposed, uncleared,
};
use super::delta_slots::{
    ChunkBeta, ChunkDecay, ChunkInverse, ChunkNumber, ChunkSlip, ChunkState, ChunkUse as Use,
    ChunkWrites,
};
use super::delta_walk::{Lengths, Listed, Made, State, Walk, dot, read, write};

/// What stands in a slot of a part in place of the right value.
macro_rules! at {
    ($head:ident, $part:expr, $slot:ident) => {
        match $head.slip {
            Some(ChunkSlip::$slot(parts, own)) if parts.contains(&$part) => Some(own),
            _ => None,
        }
    };
}

/// Less than that is left of nothing: its logarithm is a number.
const LEAST_LEFT: f64 = 1e-300;

/// A head, and how its chunks are computed.
struct Head {
    stage: DeltaStage,
    size: usize,
    slip: Option<ChunkSlip>,
    lengths: Lengths,
    queries: Option<Vec<f64>>,
    keys: Vec<f64>,
    values: Vec<f64>,
    beta: Option<Vec<f64>>,
    /// Of every place, the sums of the logarithms of the decay of all tokens before it: one, or of every key feature.
    sums: Vec<f64>,
    width: usize,
}

/// The tokens of a chunk, behind those of its sequence that begin with the first.
#[derive(Clone, Copy)]
struct Chunk {
    first: usize,
    start: usize,
    end: usize,
}

impl Chunk {
    fn len(self) -> usize {
        self.end - self.start
    }
}

/// A row of key features, or a state row by row, times what is left of each, or of all alike.
fn times(numbers: &[f64], left: &[f64], columns: usize) -> Vec<f64> {
    let rows = numbers.chunks(columns.max(1)).enumerate();
    let of = |(row, numbers): (usize, &[f64])| {
        let left = left.get(row).or(left.first()).copied().unwrap_or(1.0);
        numbers.iter().map(move |number| number * left).collect::<Vec<_>>()
    };
    rows.flat_map(of).collect()
}

/// Numbers of a head's type.
fn narrowed<T: WithDType>(numbers: &[f64]) -> Vec<T> {
    numbers.iter().copied().map(T::from_f64).collect()
}

impl<T: WithDType> Walk<'_, T> {
    /// Goes through tokens in chunks. Gives the last state.
    pub(super) fn chunks(
        &self,
        (from, to): (usize, usize),
        (first, listed): (&[T], &mut Listed),
        (size, slip): (usize, Option<ChunkSlip>),
        made: &mut Made<T>,
    ) -> State<T> {
        let all = |numbers: &[T]| numbers.iter().map(|own| own.to_f64()).collect::<Vec<_>>();
        let lengths = self.lengths;
        let width = if self.is_by_feature { lengths.rows } else { 1 };
        let mut sums = vec![0.0; (lengths.tokens + 1) * width];
        for (at, left) in self.decay.unwrap_or_default().iter().enumerate() {
            sums[at + width] = sums[at] + left.to_f64().max(LEAST_LEFT).ln();
        }
        let head = Head {
            stage: self.delta.stage,
            size,
            slip,
            lengths,
            queries: self.queries.map(all),
            keys: all(self.keys),
            values: all(self.values),
            beta: self.beta.map(all),
            sums,
            width,
        };
        narrowed(&head.run((from, to), (&all(first), listed), made))
    }
}

impl Head {
    fn run<T: WithDType>(
        &self,
        (from, to): (usize, usize),
        (first, listed): (&[f64], &mut Listed),
        made: &mut Made<T>,
    ) -> State<f64> {
        let columns = self.lengths.columns;
        let (mut state, mut before) = (first.to_vec(), first.to_vec());
        for start in (from..to).step_by(self.size) {
            let chunk = Chunk { first: from, start, end: (start + self.size).min(to) };
            if self.slip == Some(ChunkSlip::FullChunks) && chunk.len() < self.size {
                break;
            }
            match self.slip {
                Some(ChunkSlip::Reset) if start > from => state.fill(0.0),
                Some(ChunkSlip::ResetAll) => state.fill(0.0),
                Some(ChunkSlip::Restart) => state.copy_from_slice(first),
                _ => {}
            }
            listed.states.push(state.clone());
            let other = self.numbered(chunk, listed);
            let states = [&state[..], &before, first, &other];
            let written = match self.stage {
                DeltaStage::Written => self.written(chunk, states),
                _ => self.values[start * columns..chunk.end * columns].to_vec(),
            };
            let next = self.next(chunk, &state, &written);
            let told = match (self.stage, &self.queries) {
                (DeltaStage::Written, _) => Some(written.clone()),
                (_, Some(queries)) => Some(self.read(chunk, queries, states, (&next, &written))),
                _ => None,
            };
            let told = told.iter().flat_map(|told| told.chunks(columns));
            (start..).zip(told).for_each(|(token, own)| made.put(token, &narrowed(own)));
            if matches!(self.stage, DeltaStage::States | DeltaStage::Chunks(_)) {
                self.states(chunk, &state, &written, made);
            }
            before = std::mem::replace(&mut state, next);
        }
        listed.full += (to - from) / self.size;
        state
    }

    /// The state of a chunk whose document is taken to have another number of chunks before it.
    fn numbered(&self, chunk: Chunk, listed: &Listed) -> Vec<f64> {
        let Some(ChunkSlip::State(_, ChunkState::Numbered(number))) = self.slip else {
            return Vec::new();
        };
        let first = match number {
            ChunkNumber::OfToken => chunk.first / self.size,
            ChunkNumber::Full => listed.full,
            ChunkNumber::None => 0,
        };
        let at = first + (chunk.start - chunk.first) / self.size;
        listed.states.get(at).cloned().unwrap_or_default()
    }

    /// The states of a chunk's tokens.
    fn states<T: WithDType>(
        &self,
        chunk: Chunk,
        state: &[f64],
        written: &[f64],
        made: &mut Made<T>,
    ) {
        let columns = self.lengths.columns;
        let mut state = state.to_vec();
        for (token, written) in (chunk.start..chunk.end).zip(written.chunks(columns)) {
            made.chunk(token, &narrowed(&state));
            let left: Vec<f64> =
                self.between(token, token + 1, 1.0).into_iter().map(f64::exp).collect();
            state = times(&state, &left, columns);
            write(&mut state, self.key(token), written);
            made.state(token, &narrowed(&state));
        }
    }

    fn key(&self, token: usize) -> &[f64] {
        let rows = self.lengths.rows;
        &self.keys[token * rows..(token + 1) * rows]
    }

    /// What a part is multiplied by.
    fn factor(&self, at: Use) -> f64 {
        match self.slip {
            Some(ChunkSlip::Times(own, factor)) if own == at => factor,
            _ => 1.0,
        }
    }

    /// β of a token, as a part has it.
    fn beta_of(&self, at: Use, token: usize) -> f64 {
        let beta = self.beta.as_ref().and_then(|beta| beta.get(token)).copied().unwrap_or(1.0);
        match at!(self, at, Beta) {
            Some(ChunkBeta::Power(power)) => beta.powi(power),
            _ => beta,
        }
    }

    /// The state that a part reads, of that before the chunk, that before the chunk before, and the first, or the next one.
    fn state_of(&self, at: Use, states: [&[f64]; 4], next: &[f64]) -> Vec<f64> {
        let [own, before, first, numbered] = states;
        let other = at!(self, at, State);
        match other {
            Some(ChunkState::Before) => before.to_vec(),
            Some(ChunkState::First) => first.to_vec(),
            Some(ChunkState::After) => next.to_vec(),
            Some(ChunkState::Numbered(_)) => numbered.to_vec(),
            Some(ChunkState::Transposed) if self.lengths.rows == self.lengths.columns => {
                transposed(own, self.lengths.columns)
            }
            None | Some(ChunkState::Transposed) => own.to_vec(),
        }
    }

    /// The logarithms of what is left from one place to another, to a power.
    fn between(&self, from: usize, to: usize, power: f64) -> Vec<f64> {
        let of = |place: usize| &self.sums[place * self.width..(place + 1) * self.width];
        of(to).iter().zip(of(from)).map(|(to, from)| power * (to - from)).collect()
    }

    /// What a part of a token is decayed by, on the side of its row or of its column, from the start of the chunk on.
    fn side(&self, at: Use, token: usize, is_row: bool, chunk: Chunk) -> Vec<f64> {
        let Chunk { first, start, end } = chunk;
        let is_to_end = is_row && matches!(at, Use::Carried | Use::Written);
        let is_column = matches!(at, Use::Keys | Use::Within | Use::Written);
        let place = if is_to_end { end } else { token + 1 };
        let place = if is_row || is_column { place } else { start };
        let decay = at!(self, at, Decay);
        let (from, to) = match decay {
            // Values are not decayed.
            None if at == Use::Values => (start, start),
            Some(ChunkDecay::Nothing) => (start, start),
            Some(ChunkDecay::Back { row, column }) => {
                let back = if is_row { row } else { column };
                let least = if is_to_end { start + 1 } else { start };
                (start, place.saturating_sub(back).max(least))
            }
            Some(ChunkDecay::Single) => (place.saturating_sub(1).max(start), place),
            Some(ChunkDecay::Before) if start == first => (start, start),
            Some(ChunkDecay::Before) => {
                (start - self.size, if is_to_end { start } else { place - self.size })
            }
            Some(ChunkDecay::FromFirst) if !is_row && !is_column => (start, first),
            Some(ChunkDecay::Parts(size)) => {
                (start + place.saturating_sub(start + 1) / size.max(1) * size, place)
            }
            Some(ChunkDecay::ToEnd) if is_row => (start, end),
            Some(ChunkDecay::Padded) if is_row && chunk.len() < self.size => (start, start),
            _ => (start, place),
        };
        let power = if let Some(ChunkDecay::Power(power)) = decay { power } else { 1.0 };
        self.between(from, to, power)
    }

    /// What is left of a part of a token, by each key feature or of all alike.
    fn left(&self, at: Use, token: usize, chunk: Chunk) -> Vec<f64> {
        let [row, column] = [true, false].map(|is_row| self.side(at, token, is_row, chunk));
        row.iter().zip(&column).map(|(row, column)| (row - column).exp()).collect()
    }

    /// Rows times the keys of a chunk, each product as far as it is left: below the diagonal and on it, or all.
    fn met(&self, rows: &[f64], at: Use, chunk: Chunk, is_all: bool) -> Vec<f64> {
        let count = chunk.len();
        let sides = |is_row: bool| -> Vec<Vec<f64>> {
            (chunk.start..chunk.end).map(|token| self.side(at, token, is_row, chunk)).collect()
        };
        let (row_sides, column_sides) = (sides(true), sides(false));
        let mut met = vec![0.0; count * count];
        for (cell, met) in met.iter_mut().enumerate() {
            let (row, column) = (cell / count, cell % count);
            if column > row && !is_all {
                continue;
            }
            let own = &rows[row * self.lengths.rows..(row + 1) * self.lengths.rows];
            let key = self.key(chunk.start + column);
            let left = row_sides[row].iter().zip(&column_sides[column]);
            let left = left.map(|(row, column)| (row - column).exp());
            *met = match self.width {
                1 => dot(own, key) * left.sum::<f64>(),
                _ => own.iter().zip(key).zip(left).map(|((own, key), left)| own * key * left).sum(),
            };
        }
        met
    }

    /// What the tokens of a chunk write.
    fn written(&self, chunk: Chunk, states: [&[f64]; 4]) -> Vec<f64> {
        let columns = self.lengths.columns;
        let state = self.state_of(Use::Subtracted, states, states[0]);
        let (mut values, mut subtracted) = (Vec::new(), Vec::new());
        for token in chunk.start..chunk.end {
            let left = self.left(Use::Values, token, chunk).first().copied().unwrap_or(1.0);
            let beta = left * self.beta_of(Use::Values, token);
            let own = self.values[token * columns..(token + 1) * columns].iter();
            values.extend(own.map(|value| beta * value));
            let key = times(self.key(token), &self.left(Use::Subtracted, token, chunk), 1);
            let beta = self.beta_of(Use::Subtracted, token);
            subtracted.extend(read(&key, &state, columns).iter().map(|own| beta * own));
        }
        let factor = self.factor(Use::Subtracted);
        if !matches!(self.slip, Some(ChunkSlip::Inverse(..))) {
            return self.solved(Use::Values, &less(&values, &subtracted, factor), chunk);
        }
        let of = [(Use::Values, &values), (Use::Subtracted, &subtracted)];
        let [values, subtracted] = of.map(|(at, own)| self.solved(at, own, chunk));
        less(&values, &subtracted, factor)
    }

    /// The state behind a chunk.
    fn next(&self, chunk: Chunk, state: &[f64], written: &[f64]) -> Vec<f64> {
        let columns = self.lengths.columns;
        let factor = self.factor(Use::Carried);
        let left = self.left(Use::Carried, chunk.end - 1, chunk);
        let left: Vec<f64> = left.iter().map(|left| factor * left).collect();
        let mut next = times(state, &left, columns);
        let factor = self.factor(Use::Written);
        let written = self.writes(Use::Written, chunk, state, written);
        for (token, written) in (chunk.start..chunk.end).zip(written.chunks(columns)) {
            let left = self.left(Use::Written, token, chunk);
            let left: Vec<f64> = left.iter().map(|left| factor * left).collect();
            write(&mut next, &times(self.key(token), &left, 1), written);
        }
        next
    }

    /// What queries read, of a state and of what is written.
    fn read(
        &self,
        chunk: Chunk,
        queries: &[f64],
        states: [&[f64]; 4],
        (next, written): (&[f64], &[f64]),
    ) -> Vec<f64> {
        let Lengths { rows, columns, .. } = self.lengths;
        let state = self.state_of(Use::Read, states, next);
        let queries = &queries[chunk.start * rows..chunk.end * rows];
        let (of_state, within) = (self.factor(Use::Read), self.factor(Use::Within));
        let is_all = self.slip == Some(ChunkSlip::Unmasked);
        let met = self.met(queries, Use::Within, chunk, is_all);
        let own = product(&met, &self.writes(Use::Within, chunk, states[0], written), columns);
        let tokens = (chunk.start..chunk.end).zip(queries.chunks(rows));
        let read = tokens.flat_map(|(token, query)| {
            let query = times(query, &self.left(Use::Read, token, chunk), 1);
            read(&query, &state, columns)
        });
        let both = read.zip(&own);
        both.map(|(of_before, own)| of_state * of_before + within * own).collect()
    }

    /// The keys' matrix, as another inverse than the right one may need it.
    fn matrix(&self, other: Option<ChunkInverse>, chunk: Chunk) -> Vec<f64> {
        let keys = &self.keys[chunk.start * self.lengths.rows..chunk.end * self.lengths.rows];
        let is_all = matches!(other, Some(ChunkInverse::Unmasked | ChunkInverse::Uncleared));
        // Values are not decayed.
        let is_undecayed = other == Some(ChunkInverse::Undecayed);
        let decayed_as = if is_undecayed { Use::Values } else { Use::Keys };
        let mut a = self.met(keys, decayed_as, chunk, is_all);
        let is_column = at!(self, Use::Keys, Beta) == Some(ChunkBeta::Column);
        let count = chunk.len();
        for (at, cell) in a.iter_mut().enumerate() {
            let token = chunk.start + if is_column { at % count } else { at / count };
            *cell *= self.beta_of(Use::Keys, token) * self.factor(Use::Keys);
        }
        a
    }

    /// What a part has in place of what is written. `(I + A) u = β v`, and `u − v` is what is subtracted of the state.
    fn writes(&self, at: Use, chunk: Chunk, state: &[f64], written: &[f64]) -> Vec<f64> {
        let Some(other) = at!(self, at, Writes) else { return written.to_vec() };
        let columns = self.lengths.columns;
        let of_state = (chunk.start..chunk.end).flat_map(|token| {
            let key = times(self.key(token), &self.left(Use::Subtracted, token, chunk), 1);
            let beta = self.beta_of(Use::Subtracted, token);
            read(&key, state, columns).into_iter().map(move |own| beta * own)
        });
        let of_state: Vec<f64> = of_state.collect();
        let solved = less(written, &self.solved(Use::Subtracted, &of_state, chunk), -1.0);
        if other == ChunkWrites::Solved {
            return solved;
        }
        let mut a = self.matrix(None, chunk);
        a.iter_mut().step_by(chunk.len() + 1).for_each(|own| *own = 0.0);
        let mut values = less(&solved, &product(&a, &solved, columns), -1.0);
        if other == ChunkWrites::Plain {
            for (token, row) in (chunk.start..).zip(values.chunks_mut(columns)) {
                let beta = self.beta_of(Use::Values, token);
                for own in row {
                    *own /= beta;
                }
            }
        }
        values
    }

    /// What the inverse, or what stands in its place for this part, makes of a matrix.
    fn solved(&self, at: Use, b: &[f64], chunk: Chunk) -> Vec<f64> {
        let count = chunk.len();
        let other = at!(self, at, Inverse);
        let a = self.matrix(other, chunk);
        let columns = b.len() / count;
        match other {
            None | Some(ChunkInverse::Undecayed) => substituted(&a, b, count, None),
            Some(ChunkInverse::LeftOut) => b.to_vec(),
            Some(ChunkInverse::FirstOrder) => {
                let strict = a.iter().enumerate();
                let strict: Vec<f64> = strict
                    .map(|(at, cell)| if at % count < at / count { *cell } else { 0.0 })
                    .collect();
                less(b, &product(&strict, b, columns), 1.0)
            }
            Some(ChunkInverse::Transposed) => {
                let inverse = substituted(&a, &identity(count), count, None);
                product(&transposed(&inverse, count), b, columns)
            }
            Some(ChunkInverse::Diagonal) => product(&uncleared(&a, count, false), b, columns),
            Some(ChunkInverse::Uncleared) => product(&uncleared(&a, count, true), b, columns),
            Some(ChunkInverse::Unmasked) => eliminated(&a, b, count),
            Some(ChunkInverse::EndsEarly { is_token }) => {
                let last = if is_token { count - 1 } else { self.size - 1 };
                substituted(&a, b, count, Some(last))
            }
            Some(ChunkInverse::Merged(block, merge)) => {
                product(&merged(&a, count, (block, merge)), b, columns)
            }
        }
    }
}
