//! Which windows and chunks do people make in the place of a sliding window?

use super::Grammar;
use super::cells::Cells;
use crate::candidate::cost;
use program::{Hides, Masking, Name, Op, signed};

impl Grammar<'_> {
    /// Windows and chunks of other shapes.
    pub(super) fn windows(&self, own: &Cells, add: &mut dyn FnMut(Cells, String, u32)) {
        let first = i64::try_from(self.sizes.first_position()).unwrap_or_default();
        let hides = |name: Name| match self.right.step(name).map(|step| &step.op) {
            Some(Op::Masking(Masking::ByPosition(mask))) => Some(mask.hides),
            Some(_) | None => None,
        };
        let padding = self.padding(own);
        let is_padding = |b: usize, q: usize, k: usize| {
            padding.as_ref().is_some_and(|padding| padding.at(b, q, k))
        };
        let window = hides(Name::WindowMask);
        if window.is_none() && hides(Name::ChunkMask).is_none() {
            for size in (1..own.keys).filter(|size| *size <= MANY || size.is_power_of_two()) {
                let told = tr!("a window of {size} is applied, and none is meant", size);
                let is_it =
                    |b, q, k| own.at(b, q, k) || signed(q) + first - signed(k) >= signed(size);
                add(own.of(is_it), told, cost::PLAIN);
            }
        }
        let mut add = |cost: u32, is_blocked: &dyn Fn(i64, i64) -> bool, told: String| {
            let is_it = |b, q, k| is_blocked(signed(q) + first, signed(k)) || is_padding(b, q, k);
            add(own.of(is_it), told, cost);
        };
        if let Some(Hides::OutsideWindow(size)) = window {
            both_sides(signed(size), &mut add);
        }
        if let Some(Hides::OtherChunk(size)) = hides(Name::ChunkMask) {
            let is_causal = self.right.step(Name::CausalMask).is_some();
            chunks(signed(size.max(1)), is_causal, &mut add);
        }
        if let Some(Hides::BeforeWindow(size)) = window {
            before(signed(size), signed(own.keys), &mut add);
        }
    }
}

impl Grammar<'_> {
    /// The window of the last query of a row, or of a document, for all of its queries.
    pub(super) fn window_of_last(&self, own: &Cells) -> Option<(Cells, String, u32)> {
        let Op::Masking(Masking::ByPosition(mask)) = &self.right.step(Name::WindowMask)?.op else {
            return None;
        };
        let Hides::BeforeWindow(size) = mask.hides else { return None };
        let documents = self.documents().and_then(|own| own.queries.first());
        let lengths = documents.cloned().unwrap_or_else(|| vec![own.queries]);
        let ends = lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(vec![end.saturating_sub(1); *length])
        });
        let ends: Vec<usize> = ends.flatten().collect();
        let is_before = |q: usize, k: usize| {
            let last = ends.get(q).map_or(i64::MIN, |end| mask.position(*end));
            signed(k).saturating_add(signed(size)) <= last
        };
        let cells = own.of(|b, q, k| own.at(b, q, k) || is_before(q, k));
        Some((cells, tr!("all queries have the window of the last one").to_owned(), cost::PLAIN))
    }
}

/// All windows that are so short are tried where none is meant; of longer ones, the powers of 2.
const MANY: usize = 16;

/// Takes the cost of a mask, the mask by the positions of query and key, and what is said of it.
type Add<'a> = dyn FnMut(u32, &dyn Fn(i64, i64) -> bool, String) + 'a;

/// In the place of a window before the query, of so many keys.
fn before(size: i64, keys: i64, add: &mut Add) {
    add(
        cost::COMMON,
        &|query, key| (query - key).abs() >= size,
        tr!("the window of {size} reaches both ways, into later keys too", size),
    );
    add(
        cost::COMMON,
        &|query, key| (query - key).abs() > size / 2,
        tr!("half of the window of {size} lies on either side of the query", size),
    );
    add(
        cost::PLAIN,
        &|query, key| key > query || query - key > size / 2,
        tr!("the window of {size} is half as long", size),
    );
    add(
        cost::COMMON,
        &|query, key| query != key,
        tr!("the window of {size} reaches no key but the query's own", size),
    );
    add(
        cost::PLAIN,
        &|query, key| (0..size).contains(&(query - key)),
        tr!("the keys within the window are blocked").to_owned(),
    );
    add(
        cost::PLAIN,
        &|query, key| query - key < size,
        tr!("the keys within the window are blocked, and later ones").to_owned(),
    );
    add(
        cost::COMMON,
        &|query, key| key > query || query / size != key / size,
        tr!("chunks of {size} tokens in place of a sliding window", size),
    );
    add(
        cost::PLAIN,
        &|query, key| query / size != key / size,
        tr!("chunks of {size} tokens, not causal, in place of a sliding window", size),
    );
    add(
        cost::PLAIN,
        &|query, key| key > query || key >= size,
        tr!("only the first {size} keys are visible", size),
    );
    add(
        cost::PLAIN,
        &|query, key| key > query || key < keys - size,
        tr!("only the last {size} keys are visible, for every query", size),
    );
}

/// In the place of a window to both sides.
fn both_sides(size: i64, add: &mut Add) {
    add(
        cost::COMMON,
        &|query, key| key > query || query - key >= size,
        tr!("the window lies before the query alone, not on both sides").to_owned(),
    );
    add(
        cost::COMMON,
        &|query, key| query - key >= size,
        tr!("every later key is visible, beside the window before the query").to_owned(),
    );
    add(
        cost::COMMON,
        &|query, key| (query - key).abs() >= 2 * size - 1,
        tr!("the window is as long on each side as it is in all").to_owned(),
    );
    add(
        cost::COMMON,
        &|query, key| 2 * (query - key).abs() >= size,
        tr!("half of the window lies on either side of the query").to_owned(),
    );
}

/// In the place of chunks.
fn chunks(size: i64, is_causal: bool, add: &mut Add) {
    add(
        cost::COMMON,
        &|query, key| (is_causal && key > query) || (query - key).abs() >= size,
        tr!("a sliding window of {size} in place of chunks", size),
    );
    add(
        cost::COMMON,
        &|query, key| is_causal && key > query,
        tr!("the chunks are left out").to_owned(),
    );
    add(
        cost::COMMON,
        &|query, key| query / size != key / size,
        tr!("chunks of {size} tokens, of which later keys are visible too", size),
    );
}
