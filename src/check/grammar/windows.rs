//! Which windows and chunks do people make in the place of a sliding window?

use super::Grammar;
use super::cells::Cells;
use crate::candidate::cost;
use program::{Hides, Masking, Name, Op};

impl Grammar<'_> {
    /// Windows and chunks of other shapes.
    pub(super) fn windows(&self, own: &Cells, add: &mut dyn FnMut(Cells, String, u32)) {
        let first = i64::try_from(self.sizes.first_position()).unwrap_or_default();
        let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let distance = |query: usize, key: usize| signed(query) + first - signed(key);
        let hides = |name: Name| match self.right.step(name).map(|step| &step.op) {
            Some(Op::Masking(Masking::ByPosition(mask))) => Some(mask.hides),
            Some(_) | None => None,
        };
        let (window, chunk) = (hides(Name::WindowMask), hides(Name::ChunkMask));
        let is_causal = self.right.step(Name::CausalMask).is_some();
        let is_future = |q: usize, k: usize| distance(q, k) < 0;
        let padding = self.padding(own);
        let is_padding = |b: usize, q: usize, k: usize| {
            padding.as_ref().is_some_and(|padding| padding.at(b, q, k))
        };
        let of = |is_blocked: &dyn Fn(usize, usize) -> bool| {
            own.of(|b, q, k| is_blocked(q, k) || is_padding(b, q, k))
        };
        let mut common = |is_blocked: &dyn Fn(i64, i64) -> bool, told: String| {
            let cells = of(&|q, k| is_blocked(signed(q) + first, signed(k)));
            add(cells, told, cost::COMMON);
        };
        if let Some(Hides::OutsideWindow(size)) = window {
            both_sides(signed(size), &mut common);
        }
        if let Some(Hides::OtherChunk(size)) = chunk {
            chunks(signed(size.max(1)), is_causal, &mut common);
        }
        let Some(Hides::BeforeWindow(size)) = window else { return };
        let size_signed = signed(size);
        add(
            of(&|q, k| distance(q, k).abs() >= size_signed),
            tr!("the window of {size} reaches both ways, into later keys too", size),
            cost::COMMON,
        );
        add(
            of(&|q, k| distance(q, k).abs() > size_signed / 2),
            tr!("half of the window of {size} lies on either side of the query", size),
            cost::COMMON,
        );
        add(
            of(&|q, k| distance(q, k) < 0 || distance(q, k) > size_signed / 2),
            tr!("the window of {size} is half as long", size),
            cost::PLAIN,
        );
        add(
            of(&|q, k| distance(q, k) != 0),
            tr!("the window of {size} reaches no key but the query's own", size),
            cost::COMMON,
        );
        add(
            of(&|q, k| distance(q, k) < size_signed && distance(q, k) >= 0),
            tr!("the keys within the window are blocked").to_owned(),
            cost::PLAIN,
        );
        add(
            of(&|q, k| is_future(q, k) || distance(q, k) < size_signed),
            tr!("the keys within the window are blocked, and later ones").to_owned(),
            cost::PLAIN,
        );
        add(
            of(&|q, k| {
                is_future(q, k) || (signed(q) + first) / size_signed != signed(k) / size_signed
            }),
            tr!("chunks of {size} tokens in place of a sliding window", size),
            cost::COMMON,
        );
        add(
            of(&|q, k| (signed(q) + first) / size_signed != signed(k) / size_signed),
            tr!("chunks of {size} tokens, not causal, in place of a sliding window", size),
            cost::PLAIN,
        );
        add(
            of(&|q, k| is_future(q, k) || signed(k) >= size_signed),
            tr!("only the first {size} keys are visible", size),
            cost::PLAIN,
        );
        let last = signed(own.keys) - size_signed;
        add(
            of(&|q, k| is_future(q, k) || signed(k) < last),
            tr!("only the last {size} keys are visible, for every query", size),
            cost::PLAIN,
        );
    }
}

/// Takes a mask by the positions of query and key, and what is said of it.
type Add<'a> = dyn FnMut(&dyn Fn(i64, i64) -> bool, String) + 'a;

/// In the place of a window to both sides.
fn both_sides(size: i64, add: &mut Add) {
    add(
        &|query, key| key > query || query - key >= size,
        tr!("the window lies before the query alone, not on both sides").to_owned(),
    );
    add(
        &|query, key| query - key >= size,
        tr!("every later key is visible, beside the window before the query").to_owned(),
    );
    add(
        &|query, key| (query - key).abs() >= 2 * size - 1,
        tr!("the window is as long on each side as it is in all").to_owned(),
    );
    add(
        &|query, key| 2 * (query - key).abs() >= size,
        tr!("half of the window lies on either side of the query").to_owned(),
    );
}

/// In the place of chunks.
fn chunks(size: i64, is_causal: bool, add: &mut Add) {
    add(
        &|query, key| (is_causal && key > query) || (query - key).abs() >= size,
        tr!("a sliding window of {size} in place of chunks", size),
    );
    add(&|query, key| is_causal && key > query, tr!("the chunks are left out").to_owned());
    add(
        &|query, key| query / size != key / size,
        tr!("chunks of {size} tokens, of which later keys are visible too", size),
    );
}
