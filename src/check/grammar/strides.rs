//! Which rows of queries, keys and values do kernels read by the strides or the width of others?

use super::Grammar;
use crate::candidate::cost;
use program::{Change, Kind, Linear, Name, Op, Slip, Step, Strides};

impl Grammar<'_> {
    /// Rows that are read by other strides than they have, or with what stands behind them in memory.
    pub(super) fn strides(&mut self) {
        let pages = |name: Name| Some((name, 0, *self.read(self.right.step(name)?).first()?));
        let products = self.products();
        let of_keys =
            |(reader, slot, _): &(Name, usize, Name)| *reader == Name::ScoresRaw && *slot == 1;
        let of_values = |(reader, ..): &(Name, usize, Name)| *reader != Name::ScoresRaw;
        let find = |is_it: &dyn Fn(&(Name, usize, Name)) -> bool| {
            products.iter().copied().find(|own| is_it(own))
        };
        let in_pages = pages(Name::KGathered).zip(pages(Name::VGathered));
        if in_pages.is_none() {
            self.padded_features();
        }
        let Some((keys, values)) = in_pages.or_else(|| find(&of_keys).zip(find(&of_values))) else {
            return;
        };
        let width = |input: Name| self.right.step(input)?.axes.shape().last().copied();
        for ((reader, slot, input), other) in [(values, keys.2), (keys, values.2)] {
            let (Some(own), Some(other_width)) = (width(input), width(other)) else { continue };
            for right in self.own_strides(input).into_iter().filter(|_| own != other_width) {
                let [item, head, token] = right.strides;
                let all = [item, head, token].map(|stride| stride / own * other_width);
                let rows = if right.is_by_token {
                    [item, head, all[2]]
                } else {
                    [item, head, other_width]
                };
                let of_heads = [item, all[1], token];
                if right.is_by_token && head != all[1] {
                    let told = tr!(
                        "the heads of {input} are read {taken} numbers apart, as those of {other} stand, and are {own} apart",
                        input,
                        taken = all[1],
                        other,
                        own = head
                    );
                    let slip = Slip::Strided(Strides { strides: of_heads, ..right.clone() });
                    self.add(Kind::Axes, cost::PLAIN, reader, Change::before(slot, slip), told);
                }
                for strides in [rows, all] {
                    let told = tr!(
                        "the rows of {input} are read {taken} numbers apart, as those of {other} stand, and are {own} apart",
                        input,
                        taken = strides[2],
                        other,
                        own = token
                    );
                    let slip = Slip::Strided(Strides { strides, ..right.clone() });
                    self.add(Kind::Axes, cost::PLAIN, reader, Change::before(slot, slip), told);
                }
            }
        }
    }

    /// The strides that rows may have in memory.
    fn own_strides(&self, input: Name) -> Vec<Strides> {
        let Some(step) = self.right.step(input) else { return Vec::new() };
        let shape = step.axes.shape();
        let Ok(shape) = <[usize; 4]>::try_from(shape.as_slice()) else { return Vec::new() };
        [false, true].map(|by_token| Strides::of(shape, self.repeats(step), by_token)).to_vec()
    }

    /// How many heads stand for one.
    fn repeats(&self, step: &Step) -> usize {
        let is_repeated = matches!(step.name, Name::KRepeated | Name::VRepeated);
        if is_repeated { self.sizes.heads / self.sizes.kv_heads.max(1) } else { 1 }
    }

    /// Features that are loaded up to the width of a tile, of queries and of keys.
    fn padded_features(&mut self) {
        let Some(scores) = self
            .right
            .step(Name::ScoresRaw)
            .filter(|step| step.op == Op::Linear(Linear::DotProduct))
        else {
            return;
        };
        let read = self.read(scores);
        let [queries, keys] = read[..] else { return };
        let features = self.right.step(queries).and_then(|step| step.axes.shape().last().copied());
        let features = features.unwrap_or_default().max(1);
        let mut widths = vec![features.next_power_of_two()];
        widths.extend([16, 32, 64].map(|tile| features.next_multiple_of(tile)));
        widths.sort_unstable();
        widths.dedup();
        for (width, at) in widths.into_iter().flat_map(|width| [(width, 0), (width, 1)]) {
            if width == features {
                continue;
            }
            let wide = |input: Name| {
                let right = self.own_strides(input).into_iter().nth(at)?;
                Some(Strides { width, ..right })
            };
            let (Some(of_queries), Some(of_keys)) = (wide(queries), wide(keys)) else { return };
            let told = tr!(
                "{width} features of queries and keys are loaded, and they have {features}: the first ones of the next row come in",
                width,
                features
            );
            let slip = Slip::OfStrided([of_queries, of_keys]);
            let change = Change::Become(slip.into(), vec![queries, keys]);
            self.add(Kind::Axes, cost::PLAIN, Name::ScoresRaw, change, told);
        }
    }
}
