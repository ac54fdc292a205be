//! What do people get wrong in the positions of tokens?

use super::{Knob, Range, Sibling};
use program::{Kind, Op, Places, SectionOrder, signed};

/// The position of the first token, which is one of those from a least to a most.
pub fn first<T: Clone + Into<Op> + 'static>(
    own: &T,
    (first, least, most): (usize, i64, i64),
    set: impl Fn(&mut T, f64) -> bool + 'static,
) -> Knob {
    let value = first as f64;
    let common = [0.0, value + 1.0, value - 1.0];
    let name = (tr!("first position"), value);
    Knob::new(own, name, Range::Whole(least, most), &common, set)
}

/// How many tokens may have positions that begin anew, or leave some out, at any of them; of more, where tiles begin.
const MOST: usize = 64;

/// The positions of so many tokens, which are to count up from 0, where they do not go on as they should.
pub fn broken(tokens: usize) -> Vec<(Vec<i64>, String)> {
    let is_tried = |at: &usize| tokens <= MOST || at.is_power_of_two();
    let places = |at: usize, next: usize| -> Vec<i64> {
        (0..tokens)
            .map(|token| signed(if token < at { token } else { token - at + next }))
            .collect()
    };
    let mut all = Vec::new();
    for at in (1..tokens).filter(is_tried) {
        all.push((places(at, 0), tr!("the positions begin anew at token {at}", at)));
        all.push((places(at, at - 1), tr!("token {at} has the position of the one before", at)));
        all.push((places(at, at + 1), tr!("the positions leave one out before token {at}", at)));
    }
    all
}

/// What code takes for given positions by mistake: for the place of a token in its row stands nothing.
pub fn mistaken<T: Into<Op>>(places: &Places, of: impl Fn(Option<Places>) -> T) -> Vec<Sibling> {
    let other = |places, told: &str| Sibling::new(of(places), Kind::Replaced, told);
    let told = tr!("the positions count the tokens: 0, 1, 2 …, not those that are given");
    let mut all = vec![other(None, told)];
    if places.items() > 1 {
        let told = tr!("every item has the positions of the first");
        all.push(other(Some(places.of_item(0)), told));
    }
    all
}

/// The same, and what becomes of several positions of a token.
pub fn exchanged<T: Into<Op>>(places: &Places, of: impl Fn(Option<Places>) -> T) -> Vec<Sibling> {
    let mut all = mistaken(places, &of);
    if !places.is_sectioned() {
        return all;
    }
    let mut add = |places: Places, told: &str| {
        all.push(Sibling::new(of(Some(places)), Kind::Replaced, told));
    };
    for (section, name) in ["time", "height", "width"].into_iter().enumerate() {
        let told = tr!("every pair is turned by the position of {name}: no sections", name);
        add(places.of_section(section), &told);
    }
    let order = match places.order {
        SectionOrder::Chunked => SectionOrder::Interleaved,
        SectionOrder::Interleaved => SectionOrder::Chunked,
    };
    let told = tr!("the sections are {order}, not {order_2}", order, order_2 = places.order);
    add(Places { order, ..places.clone() }, &told);
    let mut rows = places.rows.to_vec();
    rows.swap(1, 2);
    let exchanged = Places { rows: rows.into(), ..places.clone() };
    add(exchanged, tr!("height and width change places"));
    all
}
