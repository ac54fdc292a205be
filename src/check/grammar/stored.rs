//! What is stored is read in another way than it was written: its bits as another type, from where its padding begins, or
//! made of positions in few bits.

use candle_core::{Device, Tensor};

use super::Grammar;
use crate::candidate::{Edits, cost};
use crate::cells::cells;
use program::{Along, Block, Change, Edit, EightBits, Kind, Name, Op, Precision, Role, Slip, Step};

/// The axis of tokens in (batch, head, token, feature).
const TOKENS: usize = 2;

impl Grammar<'_> {
    /// The steps that read an input, and in which slots.
    pub(super) fn readers(&self, input: Name) -> Vec<(Name, usize)> {
        let slots = |step: &Step| {
            let read = self.read(step).into_iter().enumerate();
            read.filter(|(_, name)| *name == input).map(|(slot, _)| (step.name, slot)).collect()
        };
        self.right.steps().iter().flat_map::<Vec<_>, _>(slots).collect()
    }

    /// Stored numbers of a narrow type whose bits are read as those of another type of as many bits.
    pub(super) fn other_types(&mut self) {
        let is_stored = |step: &&Step| {
            step.op == Op::Given
                && matches!(step.name.role(), Role::Input | Role::Cache | Role::Computed)
                && step.value.dtype().is_float()
                && step.axes.rank() > 2
        };
        let in_few_bits = Name::FEW_BITS.map(|[_, own, ..]| own);
        let stored = self.right.steps().iter().filter(is_stored);
        // Those that have scales are read as others there.
        let stored: Vec<&Step> = stored.filter(|step| !in_few_bits.contains(&step.name)).collect();
        for step in stored {
            let readers = self.readers(step.name);
            let Some((first, _)) = readers.first().copied() else { continue };
            for (own, other, slip) in types(step) {
                let told = tr!(
                    "the bits of {input}, which are of {own}, are read as those of {other}",
                    input = step.name,
                    own,
                    other
                );
                let edit = |(at, slot): &(Name, usize)| {
                    Edit::new(*at, Change::before(*slot, slip.clone()))
                };
                let edits = readers.iter().map(edit).collect();
                self.add_all(Kind::Replaced, cost::COMMON, edits, first, told);
            }
        }
    }

    /// Linear position biases that are given, made of positions in a type that does not hold them all.
    pub(super) fn rounded_positions(&mut self) {
        let Some((slopes, dims, first)) = self.linear_biases() else { return };
        let [items, heads, queries, keys] = dims;
        let readers = self.readers(Name::AttnBias);
        let Some((at, _)) = readers.first().copied() else { return };
        for precision in [Precision::Bf16, Precision::F16] {
            let most = precision.most_whole();
            if first + queries.max(keys) <= most {
                continue;
            }
            let held = |place: usize| precision.of(place as f64);
            let mut more = Vec::with_capacity(items * heads * queries * keys);
            for (slope, query, key) in cells_of(&slopes, queries, keys) {
                let own = (first + query).abs_diff(key) as f64;
                more.push(slope * (own - (held(first + query) - held(key)).abs()));
            }
            let Ok(cells) = Tensor::from_vec(more, &dims[..], &Device::Cpu) else { return };
            let edit = |(at, slot): &(Name, usize)| {
                let other = Slip::Counted(Block { cells: cells.clone(), fill: 0.0 });
                Edit::new(*at, Change::before(*slot, other))
            };
            let told = tr!(
                "the positions that {bias} is made of are rounded to {precision}, which holds whole numbers up to {most} alone",
                bias = Name::AttnBias,
                precision = precision.name(),
                most
            );
            let edits = readers.iter().map(edit).collect();
            self.add_all(Kind::Replaced, cost::COMMON, edits, at, told);
        }
    }

    /// The slope of each head of biases that are −slope · |query − key|, how many cells these have, and the position of
    /// the first query, at which they are 0.
    fn linear_biases(&self) -> Option<(Vec<f64>, [usize; 4], usize)> {
        let bias = self.right.step(Name::AttnBias)?;
        let (items, heads, queries, keys) = bias.value.dims4().ok()?;
        let own = cells(&bias.value).ok()?;
        let first = own.iter().take(keys).position(|own| *own == 0.0).filter(|first| *first > 0)?;
        let distance = |query: usize, key: usize| (first + query).abs_diff(key) as f64;
        let slopes: Vec<f64> =
            own.chunks(queries * keys).map(|head| -head[0] / distance(0, 0)).collect();
        let most = own.iter().fold(0.0, |most: f64, own| most.max(own.abs()));
        let is_it = |(own, (slope, query, key)): (&f64, (f64, usize, usize))| {
            (own + slope * distance(query, key)).abs() <= 1e-5 * most
        };
        let are_linear = own.iter().zip(cells_of(&slopes, queries, keys)).all(is_it);
        (most > 0.0 && are_linear).then_some((slopes, [items, heads, queries, keys], first))
    }

    /// Keys or values alone of which the padding in front of each item is not skipped: those of the first slots are read.
    pub(super) fn unpadded(&mut self) {
        let Some(mask) = self.right.step(Name::KeyMask) else { return };
        let Ok((items, _, _, keys)) = mask.value.dims4() else { return };
        let cells = mask.value.narrow(1, 0, 1).and_then(|own| {
            let last = own.dim(2)?.saturating_sub(1);
            own.narrow(2, last, 1)?.reshape((items, keys))?.to_vec2::<u8>()
        });
        let Ok(rows) = cells else { return };
        let padding = |row: &Vec<u8>| row.iter().take_while(|own| **own == 1).count() % keys.max(1);
        let padding: Vec<usize> = rows.iter().map(padding).collect();
        if padding.iter().all(|count| *count == 0) {
            return;
        }
        for (at, slot, _) in self.products().into_iter().filter(|(_, slot, _)| *slot > 0) {
            let each = padding.iter().enumerate().filter(|(_, count)| **count > 0);
            let edit = |(item, count): (usize, &usize)| {
                let from = (0..keys).map(|key| key.checked_sub(*count).unwrap_or(key)).collect();
                let along = Box::new(Along::Take(from));
                let within = Along::Within { axis: 0, places: vec![item], along };
                Edit::new(at, Change::before(slot, Slip::Along(TOKENS, within)))
            };
            let edits: Edits = each.map(edit).collect();
            let what = if at == Name::ScoresRaw { tr!("keys") } else { tr!("values") };
            let told = tr!(
                "the {what} alone are read from the first slot of each item on: the padding in front of them is not skipped",
                what
            );
            self.add_all(Kind::Axes, cost::COMMON, edits, at, told);
        }
    }
}

/// The slope, the query and the key of every cell, in order.
fn cells_of(
    slopes: &[f64],
    queries: usize,
    keys: usize,
) -> impl Iterator<Item = (f64, usize, usize)> {
    let cells = move |slope: f64| {
        (0..queries).flat_map(move |query| (0..keys).map(move |key| (slope, query, key)))
    };
    slopes.iter().copied().flat_map(cells)
}

/// The types of as many bits as the one that an input's numbers may be of: the names of both, and the reading.
fn types(step: &Step) -> Vec<(&'static str, &'static str, Slip)> {
    let mut all = Vec::new();
    let floats = [EightBits::E4m3, EightBits::E5m2, EightBits::E4m3Fnuz, EightBits::E5m2Fnuz];
    let bytes = [EightBits::Int8, EightBits::Uint8];
    let held = EightBits::holding(&step.value).unwrap_or_default();
    for own in floats.into_iter().filter(|own| held.contains(own)) {
        let others = floats.into_iter().chain(bytes).filter(|other| *other != own);
        all.extend(others.map(|other| (own.name(), other.name(), Slip::ReadAs(own, other))));
    }
    let half = [Precision::Bf16, Precision::F16];
    for (own, other) in [(half[0], half[1]), (half[1], half[0])] {
        if own.holds_all(&step.value).unwrap_or(false) {
            all.push((own.name(), other.name(), Slip::ReadBits(own, other)));
        }
    }
    all
}
