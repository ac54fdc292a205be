//! The delta rule in chunks of tokens, with what goes wrong there: what was carried to a chunk and what it writes itself are kept
//! apart.

use candle_core::WithDType;

use super::delta::{ChunkDecay, ChunkSlip, DeltaStage};
use super::delta_walk::{Lengths, Made, State, Walk, dot, read, write};

/// Numbers added one by one.
fn sum<T: WithDType>(left: &[T], right: &[T]) -> Vec<T> {
    left.iter().zip(right).map(|(left, right)| *left + *right).collect()
}

/// Numbers multiplied by a factor.
fn times<T: WithDType>(all: &[T], factor: f64) -> Vec<T> {
    all.iter().map(|number| *number * T::from_f64(factor)).collect()
}

/// What a chunk has written itself.
struct Own<T> {
    /// As it should be.
    decayed: State<T>,
    /// Without decay; or what its first half has.
    plain: State<T>,
    /// Where nothing is subtracted of what it has written itself; or what a block of it, or its second half, has.
    cut: State<T>,
}

/// The mistake of a token, of which the last one of its chunk, or of the chunk's room, may have one of its own.
fn of_last(
    slip: Option<ChunkSlip>,
    token: usize,
    (end, room): (usize, usize),
) -> Option<ChunkSlip> {
    slip.filter(|slip| match slip {
        ChunkSlip::LastUncorrected(true) => token + 1 == end,
        ChunkSlip::LastUncorrected(false) => token + 1 == room,
        _ => true,
    })
}

/// What a query reads of the chunks before its own: what was carried, and the same decayed up to it. `before` gives it decayed
/// up to the token before.
fn of_chunks_before<T: WithDType>(
    query: &[T],
    [carried, inter]: [&[T]; 2],
    before: impl FnOnce() -> State<T>,
    slip: Option<ChunkSlip>,
) -> Vec<T> {
    let columns = carried.len() / query.len().max(1);
    match slip {
        Some(ChunkSlip::InterTimes(factor)) => times(&read(query, inter, columns), factor),
        Some(ChunkSlip::ReadWithin | ChunkSlip::StateAfter) => vec![T::zero(); columns],
        Some(ChunkSlip::InterUndecayed) => read(query, carried, columns),
        Some(ChunkSlip::InterExclusive) => read(query, &before(), columns),
        _ => read(query, inter, columns),
    }
}

/// What is left of every row after a decay that is taken in another base, where that one is.
fn in_base<T: WithDType>(left: &[T], decay: ChunkDecay, slip: Option<ChunkSlip>) -> Vec<T> {
    match slip {
        Some(ChunkSlip::OtherBase(own, power)) if own == decay => {
            left.iter().map(|left| T::from_f64(left.to_f64().powf(power))).collect()
        }
        _ => left.to_vec(),
    }
}

/// u, where of the two solutions that it is the difference of, those of the values and of the state, one has undecayed keys:
/// `own.cut` has what the one writes, and `own.plain` the other.
fn apart<T: WithDType>(
    (key, beta): (&[T], T),
    [values, before]: [&[T]; 2],
    own: &mut Own<T>,
) -> Vec<T> {
    let solved = |from: &[T], state: &[T]| -> Vec<T> {
        let within = read(key, state, from.len());
        from.iter().zip(&within).map(|(own, within)| beta * (*own - *within)).collect()
    };
    let (of_values, of_state) = (solved(values, &own.cut), solved(before, &own.plain));
    write(&mut own.cut, key, &of_values);
    write(&mut own.plain, key, &of_state);
    of_values.iter().zip(&of_state).map(|(own, state)| *own - *state).collect()
}

/// Whether the inverse is put together from those of two halves.
fn is_merged(slip: Option<ChunkSlip>) -> bool {
    use ChunkSlip::{MergedPlain, MergedWithoutFirst, MergedWithoutSecond};
    matches!(slip, Some(MergedWithoutSecond | MergedWithoutFirst | MergedPlain))
}

/// u of a token whose own part is `new`, where the inverse is put together from those of two halves, of which one is missing
/// beside the diagonal, or both are.
fn merged<T: WithDType>(
    (key, beta): (&[T], T),
    new: &[T],
    own: &mut Own<T>,
    (slip, is_second): (Option<ChunkSlip>, bool),
) -> Vec<T> {
    let less = |from: &[T], state: &[T]| -> Vec<T> {
        let read = read(key, state, from.len());
        from.iter().zip(&read).map(|(own, read)| *own - beta * *read).collect()
    };
    let is_without_second =
        matches!(slip, Some(ChunkSlip::MergedWithoutSecond | ChunkSlip::MergedPlain));
    if is_second {
        let within = less(new, &own.cut);
        let written = less(&within, &own.plain);
        write(&mut own.cut, key, if is_without_second { &within } else { &written });
        return written;
    }
    let written = less(new, &own.decayed);
    let is_without_first = slip != Some(ChunkSlip::MergedWithoutSecond);
    write(&mut own.plain, key, if is_without_first { new } else { &written });
    written
}

impl<T: WithDType> Walk<'_, T> {
    /// Goes through tokens in chunks: what was carried to a chunk and what it writes itself are kept apart. Gives the last
    /// state.
    pub(super) fn chunks(
        &self,
        (from, to): (usize, usize),
        first: &[T],
        (size, slip): (usize, Option<ChunkSlip>),
        made: &mut Made<T>,
    ) -> State<T> {
        let Lengths { rows, columns, .. } = self.lengths;
        let none = vec![T::zero(); rows * columns];
        let mut carried = first.to_vec();
        let mut left = vec![T::one(); rows];
        // What all chunks before have left.
        let mut earlier = vec![T::one(); rows];
        // What the chunk before has.
        let mut last = vec![T::one(); rows];
        for start in (from..to).step_by(size) {
            let end = (start + size).min(to);
            if slip == Some(ChunkSlip::FullChunks) && end - start < size {
                break;
            }
            match slip {
                Some(ChunkSlip::Reset) if start > from => carried.clone_from(&none),
                Some(ChunkSlip::ResetAll) => carried.clone_from(&none),
                Some(ChunkSlip::Restart) => carried = first.to_vec(),
                _ => {}
            }
            if slip != Some(ChunkSlip::Cumulative) {
                left = vec![T::one(); rows];
            }
            let mut own = Own { decayed: none.clone(), plain: none.clone(), cut: none.clone() };
            let mut written_all: Vec<Vec<T>> = Vec::new();
            for token in start..end {
                let key = self.key(token);
                if matches!(self.delta.stage, DeltaStage::Chunks(_)) {
                    made.chunk(token, &sum(&self.by_rows(&carried, &left), &own.decayed));
                }
                let before = left.clone();
                for (row, left) in left.iter_mut().enumerate() {
                    *left *= self.left(token, row);
                }
                self.decay_own(&mut own, token - start, token, slip);
                let inter = match slip {
                    Some(ChunkSlip::OtherBase(
                        decay @ (ChunkDecay::Read | ChunkDecay::Subtracted),
                        _,
                    )) => self.by_rows(&carried, &in_base(&left, decay, slip)),
                    Some(ChunkSlip::NothingDecays) => carried.clone(),
                    Some(ChunkSlip::CumulativeRead) => {
                        self.by_rows(&self.by_rows(&carried, &left), &earlier)
                    }
                    _ => self.by_rows(&carried, &left),
                };
                let written = match self.delta.stage {
                    DeltaStage::Written => {
                        let is_second = 2 * (token - start) >= size;
                        let before = [&carried[..], &inter, &left];
                        let slip = of_last(slip, token, (end, start + size));
                        let written = self.written_in((token, is_second), before, &mut own, slip);
                        made.put(token, &written);
                        written
                    }
                    _ => self.value_of(token).to_vec(),
                };
                write(&mut own.decayed, key, &written);
                if let Some(ChunkSlip::Blocks(_)) = slip {
                    write(&mut own.cut, key, &written);
                }
                self.write_plain(&mut own, token, &written, slip);
                if let Some(queries) = self.queries {
                    let query = Self::row(queries, token, rows);
                    let before = || self.by_rows(&carried, &before);
                    let of_before = of_chunks_before(query, [&carried, &inter], before, slip);
                    let of_own = match slip {
                        Some(ChunkSlip::ReadBefore) => vec![T::zero(); columns],
                        Some(ChunkSlip::IntraUndecayed | ChunkSlip::IntraInclusive) => {
                            read(query, &own.plain, columns)
                        }
                        Some(ChunkSlip::IntraTimes(factor)) => {
                            times(&read(query, &own.decayed, columns), factor)
                        }
                        _ => read(query, &own.decayed, columns),
                    };
                    made.put(token, &sum(&of_before, &of_own));
                }
                if self.delta.stage == DeltaStage::States {
                    made.state(token, &sum(&inter, &own.decayed));
                }
                written_all.push(written);
            }
            if slip == Some(ChunkSlip::Unmasked) {
                self.unmasked((start, end), &written_all, made);
            }
            earlier.iter_mut().zip(&left).for_each(|(all, own)| *all *= *own);
            let over = if slip == Some(ChunkSlip::CarryByBefore) { &last } else { &left };
            let [kept, added] = self.at_end((start, end), [&carried, over], &own, slip);
            last.clone_from(&left);
            carried = sum(&kept, &added);
            if slip == Some(ChunkSlip::PaddedEnd) && end - start < size {
                // What was decayed by the whole chunk is decayed by nothing.
                let grown: Vec<T> = left.iter().map(|left| T::one() / *left).collect();
                carried = self.by_rows(&carried, &grown);
            }
            if let (Some(queries), Some(ChunkSlip::StateAfter)) = (self.queries, slip) {
                self.after((start, end), queries, &carried, made);
            }
        }
        carried
    }

    /// Adds what a token writes to what is kept beside the right one, for the slips that read that.
    fn write_plain(&self, own: &mut Own<T>, token: usize, written: &[T], slip: Option<ChunkSlip>) {
        let key = self.key(token);
        match slip {
            Some(
                ChunkSlip::WriteUndecayed
                | ChunkSlip::IntraUndecayed
                | ChunkSlip::IntraDeltaUndecayed
                | ChunkSlip::OtherBase(ChunkDecay::Written, _),
            ) => write(&mut own.plain, key, written),
            Some(ChunkSlip::IntraInclusive) => {
                let rows = key.iter().enumerate();
                let key: Vec<T> = rows.map(|(row, key)| *key * self.left(token, row)).collect();
                write(&mut own.plain, &key, written);
            }
            _ => {}
        }
    }

    /// What was carried to a chunk and what it writes, as they are carried on.
    fn at_end(
        &self,
        (start, end): (usize, usize),
        [carried, left]: [&[T]; 2],
        own: &Own<T>,
        slip: Option<ChunkSlip>,
    ) -> [State<T>; 2] {
        let kept = self.by_rows(carried, &self.left_at_end(left, end, slip));
        let added = match slip {
            Some(ChunkSlip::WriteUndecayed | ChunkSlip::OtherBase(ChunkDecay::Written, _)) => {
                own.plain.clone()
            }
            _ => own.decayed.clone(),
        };
        let (back, is_of) = match slip {
            Some(ChunkSlip::EndBefore(back)) => (back, [true, true]),
            Some(ChunkSlip::CarryEndBefore(back)) => (back, [true, false]),
            Some(ChunkSlip::WriteEndBefore(back)) => (back, [false, true]),
            _ => return [kept, added],
        };
        // What was decayed by the last tokens is not.
        let last = end - back.min(end - start - 1)..end;
        let grown = |row| last.clone().fold(T::one(), |all, token| all / self.left(token, row));
        let grown: Vec<T> = (0..left.len()).map(grown).collect();
        let of = |state: State<T>, is_of| if is_of { self.by_rows(&state, &grown) } else { state };
        [of(kept, is_of[0]), of(added, is_of[1])]
    }

    /// How much a chunk leaves of what was carried to it, of which its decay leaves so much.
    fn left_at_end(&self, left: &[T], end: usize, slip: Option<ChunkSlip>) -> Vec<T> {
        let rows = left.len();
        match slip {
            Some(ChunkSlip::CarryUndecayed | ChunkSlip::NothingDecays) => vec![T::one(); rows],
            Some(ChunkSlip::Overwritten) => vec![T::zero(); rows],
            Some(ChunkSlip::CarryByLast) => {
                (0..rows).map(|row| self.left(end.saturating_sub(1), row)).collect()
            }
            _ => in_base(left, ChunkDecay::Carried, slip),
        }
    }

    /// What a chunk has written before its token at a place, decayed.
    fn decay_own(&self, own: &mut Own<T>, place: usize, token: usize, slip: Option<ChunkSlip>) {
        self.decay(&mut own.decayed, token);
        if let Some(ChunkSlip::Blocks(block)) = slip
            && place.is_multiple_of(block)
        {
            own.cut.fill(T::zero());
        }
        let is_apart = |other| slip == Some(other);
        if matches!(slip, Some(ChunkSlip::FirstOrder | ChunkSlip::Blocks(_)))
            || is_merged(slip)
            || is_apart(ChunkSlip::SubtractedUndecayed)
        {
            self.decay(&mut own.cut, token);
        }
        if is_merged(slip)
            || is_apart(ChunkSlip::ValuesUndecayed)
            || is_apart(ChunkSlip::IntraInclusive)
        {
            self.decay(&mut own.plain, token);
        }
        if let Some(ChunkSlip::OtherBase(decay @ ChunkDecay::Written, _)) = slip {
            let left: Vec<T> = (0..self.lengths.rows).map(|row| self.left(token, row)).collect();
            own.plain = self.by_rows(&own.plain, &in_base(&left, decay, slip));
        }
    }

    /// u of a chunk's token.
    fn written_in(
        &self,
        (token, is_second): (usize, bool),
        [carried, inter, left]: [&[T]; 3],
        own: &mut Own<T>,
        slip: Option<ChunkSlip>,
    ) -> Vec<T> {
        let columns = self.lengths.columns;
        let (key, beta) = (self.key(token), self.beta_of(token));
        if let Some(ChunkSlip::SubtractedUndecayed | ChunkSlip::ValuesUndecayed) = slip {
            return apart((key, beta), [self.value_of(token), &read(key, inter, columns)], own);
        }
        let of_before = match slip {
            Some(ChunkSlip::DeltaWithin) => vec![T::zero(); columns],
            Some(ChunkSlip::DeltaUndecayed) => read(key, carried, columns),
            Some(ChunkSlip::DeltaTwice) => {
                read(key, inter, columns).into_iter().map(|number| number * beta).collect()
            }
            _ => read(key, inter, columns),
        };
        let of_own = match slip {
            Some(ChunkSlip::LastUncorrected(_)) => vec![T::zero(); columns],
            Some(ChunkSlip::IntraDeltaUndecayed) => read(key, &own.plain, columns),
            Some(ChunkSlip::FirstOrder | ChunkSlip::Blocks(_)) => read(key, &own.cut, columns),
            Some(ChunkSlip::OtherSign) => read(key, &own.decayed, columns)
                .into_iter()
                .map(|number| T::zero() - number)
                .collect(),
            _ => read(key, &own.decayed, columns),
        };
        // Where each feature of the keys has a decay of its own, that of the first stands for all.
        let left = left.first().copied().filter(|_| slip == Some(ChunkSlip::ValuesDecayed));
        let kept = left.unwrap_or_else(T::one);
        let values = self.value_of(token).iter().zip(&of_before);
        let new: Vec<T> = values.map(|(value, before)| beta * (kept * *value - *before)).collect();
        if slip == Some(ChunkSlip::FirstOrder) {
            write(&mut own.cut, key, &new);
        }
        if is_merged(slip) {
            return merged((key, beta), &new, own, (slip, is_second));
        }
        let on_diagonal = match slip {
            Some(ChunkSlip::Diagonal) => beta * dot(key, key),
            _ => T::zero(),
        };
        let within = if slip == Some(ChunkSlip::NoBetaWithin) { T::one() } else { beta };
        let of = |(new, own): (&T, &T)| *new - within * *own - on_diagonal * *new;
        new.iter().zip(&of_own).map(of).collect()
    }

    /// Adds what queries read of later tokens of their chunk.
    fn unmasked(&self, (start, end): (usize, usize), written: &[Vec<T>], made: &mut Made<T>) {
        let Some(queries) = self.queries else { return };
        let rows = self.lengths.rows;
        for token in start..end {
            let query = Self::row(queries, token, rows);
            let mut grown = vec![T::one(); rows];
            for (later, written) in (start..end).zip(written).skip(token - start + 1) {
                for (row, grown) in grown.iter_mut().enumerate() {
                    *grown /= self.left(later, row);
                }
                let key = self.key(later);
                let met = query.iter().zip(key).zip(&grown);
                let met = met.fold(T::zero(), |sum, ((q, k), grown)| sum + *q * *k * *grown);
                let more: Vec<T> = written.iter().map(|number| met * *number).collect();
                made.add(token, &more);
            }
        }
    }

    /// Adds what queries read of the state after their chunk.
    fn after(&self, (start, end): (usize, usize), queries: &[T], state: &[T], made: &mut Made<T>) {
        let Lengths { rows, columns, .. } = self.lengths;
        let mut left = vec![T::one(); rows];
        for token in start..end {
            for (row, left) in left.iter_mut().enumerate() {
                *left *= self.left(token, row);
            }
            let query = Self::row(queries, token, rows);
            made.add(token, &read(query, &self.by_rows(state, &left), columns));
        }
    }
}
