//! Which other part's keys and values does the loop over parts load, and in which tiles does it not rescale?

use candle_core::{Device, Tensor};

use super::{Grammar, after};
use crate::candidate::{Edits, cost};
use base::error::Result;
use program::{
    Along, Axis, Block, Change, Edit, Heads, Kind, Name, Op, Parts, Rearrange, Scaling, Slip,
};

/// The first key that a part loads; none for none.
type Start<'a> = &'a dyn Fn(usize) -> Option<usize>;

/// Parts so many places away are tried.
const NEAR: usize = 3;
/// Where the maximum grows by less than this, kernels may leave the rescaling out: in natural logarithms, or in those of base 2.
const GROWTHS: [f64; 8] = [0.5, 1.0, 2.0, 3.0, 4.0, 8.0, 10.0, 16.0];

impl Grammar<'_> {
    /// Features that are multiplied in blocks, of which one side's pointer does not move on.
    pub(super) fn blocks_of_features(&mut self) {
        for (reader, slot, input) in self.products() {
            let features = self.right.step(input).map(|step| step.axes.shape());
            let features = features.and_then(|shape| shape.last().copied()).unwrap_or_default();
            let is_of_scores = reader == Name::ScoresRaw;
            let is_read_first = is_of_scores && slot == 0;
            for count in
                [8, 16, 32, 64, 128].into_iter().filter(|count| is_read_first && *count < features)
            {
                let told = tr!(
                    "only the first {count} of {features} features of queries and keys are multiplied",
                    count,
                    features
                );
                let zero = Slip::Along(3, Along::Zero((count..features).collect()));
                self.add(Kind::Axes, cost::COMMON, reader, Change::before(slot, zero), told);
            }
            for block in [16, 32, 64, 128].into_iter().filter(|own| is_of_scores && *own < features)
            {
                let take = Along::Take((0..features).map(|feature| feature % block).collect());
                let told = tr!(
                    "features are multiplied in blocks of {block}, and {input} is read from its first feature on for each block: its pointer does not move on",
                    block,
                    input
                );
                let change = Change::before(slot, Slip::Along(3, take));
                self.add(Kind::Axes, cost::COMMON, reader, change, told);
            }
        }
    }

    /// Parts that load the keys or values of others: of those before them, or those that another stride leads to.
    pub(super) fn other_loads(&mut self, parts: &Parts, acc: Name) {
        let keys = self.sizes.keys();
        let one = |spans: &Vec<(usize, usize)>| <[_; 1]>::try_from(spans.as_slice()).ok();
        let Some(spans) = parts.keys.iter().map(one).collect::<Option<Vec<_>>>() else { return };
        let spans: Vec<(usize, usize)> = spans.into_iter().flatten().collect();
        let Some(size) = spans.first().map(|(from, to)| to - from).filter(|size| *size > 0) else {
            return;
        };
        // The key that is loaded in each one's place; none behind the last.
        let places = |start: Start| -> Vec<Option<usize>> {
            let mut places: Vec<Option<usize>> = (0..keys).map(Some).collect();
            for (at, (first, end)) in spans.iter().enumerate() {
                let own = places.iter_mut().enumerate().take(*end).skip(*first);
                for (key, place) in own {
                    let other = start(at).map(|start| start + key - first);
                    *place = other.filter(|other| *other < keys);
                }
            }
            places
        };
        let name = parts.axis.told();
        let mut all: Vec<(Vec<Option<usize>>, String)> = Vec::new();
        for by in (1..spans.len()).take(NEAR) {
            let before = |at: usize| Some(spans[at.checked_sub(by).unwrap_or(at)].0);
            all.push((places(&before), tr!("those of the {name} {by} before it", name, by)));
            let later = |at: usize| Some(spans.get(at + by).unwrap_or(&spans[at]).0);
            all.push((places(&later), tr!("those of the {name} {by} behind it", name, by)));
            // As where two buffers take turns.
            for (rest, which) in [(0, tr!("even")), (1, tr!("odd"))] {
                let of: [(Start, String); 2] = [
                    (
                        &before,
                        tr!(
                            "those of the {name} {by} before it in every {name} of {which} number",
                            name,
                            by,
                            which
                        ),
                    ),
                    (
                        &later,
                        tr!(
                            "those of the {name} {by} behind it in every {name} of {which} number",
                            name,
                            by,
                            which
                        ),
                    ),
                ];
                for (other, told) in of {
                    let turns =
                        |at: usize| if at % 2 == rest { other(at) } else { Some(spans[at].0) };
                    all.push((places(&turns), told));
                }
            }
        }
        let strides = [parts.queries.unwrap_or(size), 1, size / 2, size + 1, size * 2];
        for stride in strides.into_iter().filter(|stride| *stride != size && *stride > 0) {
            let from = |at: usize| Some(at * stride);
            let told = tr!(
                "those from key {stride} · i on in {name} i, not {size} · i",
                stride,
                name,
                size
            );
            all.push((places(&from), told));
        }
        for (places, told) in all {
            let edits = |edit: &dyn Fn(Slip) -> Option<Edit>, axis: usize| -> Edits {
                let taken = places.iter().map(|place| place.unwrap_or(0)).collect();
                let none: Vec<usize> = (0..keys).filter(|key| places[*key].is_none()).collect();
                let zero = (!none.is_empty()).then(|| Slip::Along(axis, Along::Zero(none)));
                [zero, Some(Slip::Along(axis, Along::Take(taken)))]
                    .into_iter()
                    .flatten()
                    .filter_map(edit)
                    .collect()
            };
            let values =
                self.right.step(acc).and_then(|step| self.right.read_by(step).get(2).copied());
            let of_values = |slip: Slip| values.map(|_| Edit::new(acc, Change::before(2, slip)));
            let of_keys = |slip: Slip| Some(Edit::new(Name::ScoresRaw, after(slip, &[])));
            // Closer to the step is what was made before.
            let mut values = edits(&of_values, 2);
            values.reverse();
            let keys = edits(&of_keys, 3);
            let both = [keys.clone(), values.clone()].concat();
            for (edits, at, what) in [
                (values, acc, tr!("its values are {told}", told)),
                (keys, Name::ScoresRaw, tr!("its keys are {told}", told)),
                (both, Name::ScoresRaw, tr!("its keys and values are {told}", told)),
            ] {
                self.add_all(Kind::Axes, cost::PLAIN, edits, at, what);
            }
        }
    }

    /// Tiles that load the queries of other rows.
    pub(super) fn other_queries(&mut self, rows: usize) {
        let count = self.sizes.query_count();
        if rows < 2 || rows >= count {
            return;
        }
        let last = (count - 1) / rows * rows;
        let all: [(&dyn Fn(usize) -> usize, String); 4] = [
            (
                &|row| if row < last { row } else { row - (last + rows - count) },
                tr!(
                    "the last tile of {rows} queries loads the last {rows} rows, and gives them as its own",
                    rows
                ),
            ),
            (
                &|row| row.checked_sub(rows).unwrap_or(row),
                tr!("each tile of {rows} queries loads those of the tile before", rows),
            ),
            (
                &|row| if row + rows < count { row + rows } else { row },
                tr!("each tile of {rows} queries loads those of the next tile", rows),
            ),
            (&|row| row % rows, tr!("each tile of {rows} queries loads those of the first", rows)),
        ];
        for (row, told) in all {
            let places: Vec<usize> = (0..count).map(row).collect();
            if places.iter().copied().eq(0..count) {
                continue;
            }
            let take = Slip::Along(2, Along::Take(places));
            self.add(Kind::Axes, cost::PLAIN, Name::ScoresRaw, Change::before(0, take), told);
        }
    }

    /// Position biases whose tiles are loaded transposed, each in its place.
    pub(super) fn turned_bias(&mut self, (rows, size): (usize, usize)) {
        let Some(step) = self.right.step(Name::ScoresBiased) else { return };
        let Some(bias) = self.right.read_by(step).get(1).copied() else { return };
        let result: Vec<(Axis, usize)> = bias.axes.iter().collect();
        let shape = bias.axes.shape();
        let [outer @ .., queries, keys] = &shape[..] else { return };
        if rows != size || queries % size != 0 || keys % size != 0 || size < 2 {
            return;
        }
        let view = [outer, &[queries / size, size, keys / size, size]].concat();
        let at = outer.len();
        let mut order: Vec<usize> = (0..view.len()).collect();
        order.swap(at + 1, at + 3);
        let turned = Heads::Rearrange(Rearrange { blocks: Vec::new(), view, order, result });
        let told = tr!("each tile of {size} x {size} biases is loaded transposed", size);
        self.add(Kind::Axes, cost::PLAIN, step.name, Change::before(1, turned), told);
    }

    /// A last part that is read on to its full length where nothing is masked: what stands behind is of the next head.
    pub(super) fn beyond_its_head(&mut self, parts: &Parts, steps: [Name; 3]) {
        let length = |spans: &Vec<(usize, usize)>| spans.iter().map(|(from, to)| to - from).sum();
        let lengths: Vec<usize> = parts.keys.iter().map(length).collect();
        let (Some(first), Some(last)) = (lengths.first(), lengths.last()) else { return };
        let room = first.saturating_sub(*last);
        if room == 0 || room > self.sizes.keys() || self.right.step(Name::MaskedScores).is_some() {
            return;
        }
        // The whole tile; or one key, as where its place is compared by ≤ in place of <.
        let counts = if room == 1 { &[1][..] } else { &[room, 1] };
        for count in counts {
            self.with_keys_beyond(parts, steps, (*count, false));
            if self.sizes.batch > 1 {
                self.with_keys_beyond(parts, steps, (*count, true));
            }
        }
    }

    /// A last part that reads so many keys more, of the next head, or of the next item where tokens stand before heads.
    fn with_keys_beyond(
        &mut self,
        parts: &Parts,
        steps: [Name; 3],
        (count, is_by_token): (usize, bool),
    ) {
        // Key heads are repeated behind that.
        let longer = |repeated: Name, (reader, slot): (Name, usize)| {
            let (at, slot) =
                if self.right.step(repeated).is_some() { (repeated, 0) } else { (reader, slot) };
            Edit::new(at, Change::before(slot, Slip::Beyond { count, is_by_token }))
        };
        let mut spans = parts.keys.clone();
        spans.last_mut().into_iter().flatten().for_each(|(_, end)| *end += count);
        let mut edits: Edits = vec![
            longer(Name::KRepeated, (Name::ScoresRaw, 1)),
            longer(Name::VRepeated, (steps[2], 2)),
        ];
        edits.extend(steps.iter().filter_map(|at| self.with_keys(*at, &spans)));
        let told = tr!(
            "the last {name} is not masked, and reads on behind its own keys and values: {count} of the next {owner}",
            name = parts.axis.told(),
            count,
            owner = if is_by_token { tr!("item") } else { tr!("head") }
        );
        self.add_all(Kind::Axes, cost::PLAIN, edits, steps[0], told);
    }

    /// Tiles in which what was summed before is not rescaled: those that the mask blocks a part of, the others, or those in
    /// which the maximum grows by little.
    pub(super) fn not_rescaled(&mut self, [of_sum, of_acc]: [Name; 2], size: (usize, usize)) {
        let mut all: Vec<(Tensor, String)> = Vec::new();
        all.extend(self.at_the_edge(size).unwrap_or_default());
        all.extend(self.of_little_growth().unwrap_or_default());
        all.extend(self.decided_by_others(size.0).unwrap_or_default());
        for (cells, told) in all {
            let edit = |at: Name| {
                let read = self.right.step(at).map(|step| self.read(step))?;
                let slot = read.iter().position(|read| *read == Name::TileFactor)?;
                let one = Slip::Block(Block { cells: cells.clone(), fill: 1.0 });
                Some(Edit::new(at, Change::before(slot, one)))
            };
            let own = [of_acc, of_sum].map(|at| (at, edit(at)));
            let both: Edits = own.iter().filter_map(|(_, edit)| edit.clone()).collect();
            for (at, edits) in own
                .map(|(at, edit)| (at, edit.into_iter().collect()))
                .into_iter()
                .chain([(of_sum, both)])
            {
                let told = tr!("what was summed before is not rescaled {told}", told);
                self.add_all(Kind::Replaced, cost::PLAIN, edits, at, told);
            }
        }
    }

    /// Where tiles are, as (tile, item, head, query): those that the mask blocks a part of, and those it does not.
    fn at_the_edge(&self, (m, n): (usize, usize)) -> Result<Vec<(Tensor, String)>> {
        let Some(own) = self.own_mask().filter(|own| own.blocked.contains(&true)) else {
            return Ok(Vec::new());
        };
        let counts = own.in_tiles((m, n));
        let tiles = own.keys.div_ceil(n);
        let mut all = Vec::new();
        for (is_edge, told) in [
            (true, tr!("in tiles that the mask blocks a part of")),
            (false, tr!("in tiles that the mask blocks nothing of")),
        ] {
            let mut cells = Vec::with_capacity(tiles * own.items * own.queries);
            for tile in 0..tiles {
                for (item, query) in
                    (0..own.items).flat_map(|item| (0..own.queries).map(move |query| (item, query)))
                {
                    let [seen, blocked] = counts(item, query, tile * n);
                    cells.push(u8::from(seen > 0 && (blocked > 0) == is_edge));
                }
            }
            let cells = Tensor::from_vec(cells, (tiles, own.items, 1, own.queries), &Device::Cpu)?;
            all.push((cells, told.to_owned()));
        }
        Ok(all)
    }

    /// Where the maximum grows by less than some numbers.
    fn of_little_growth(&self) -> Result<Vec<(Tensor, String)>> {
        let Some(step) = self.right.step(Name::TileFactor) else { return Ok(Vec::new()) };
        let cells = |growth: f64| {
            let natural = tr!("where the maximum grows by less than {growth}", growth);
            let binary = tr!("where the maximum grows by less than {growth} in base 2", growth);
            let factor = growth * std::f64::consts::LN_2;
            [(growth, natural), (factor, binary)]
        };
        let cells = GROWTHS.into_iter().flat_map(cells);
        cells.map(|(growth, told)| Ok((step.value.gt((-growth).exp())?, told))).collect()
    }

    /// Scores that are not capped, or not scaled, in one part alone.
    pub(super) fn undone_in_one(&mut self, parts: &Parts) {
        for (at, before, what) in [
            (Name::ScoresCapped, Name::Scores, tr!("the soft cap is left out")),
            (Name::Scores, Name::ScoresRaw, tr!("the scale is left out")),
        ] {
            if self.right.step(at).is_none_or(|step| self.read(step) != [before]) {
                continue;
            }
            for (part, spans) in parts.keys.iter().enumerate() {
                let places = spans.iter().flat_map(|(first, end)| *first..*end).collect();
                let only = Slip::Only { axis: 3, places };
                let told =
                    tr!("{what} in {name} {part} alone", what, name = parts.axis.told(), part);
                self.add(Kind::Omitted, cost::PLAIN, at, after(only, &[before]), told);
            }
        }
    }

    /// Scores that have another scale in one part alone: that of the head's size, or the stated one twice.
    pub(super) fn scaled_otherwise_in_one(&mut self, parts: &Parts) {
        let Some(scale) = self.scale_at(Name::Scores) else { return };
        let plain = (self.sizes.head_dim as f64).sqrt().recip();
        for (other, what) in [
            (plain, tr!("the scale is 1/√d_k, not the one that is stated,")),
            (scale * scale, tr!("the scale is applied twice")),
            (
                scale * std::f64::consts::LOG2_E,
                tr!("the scores are in base 2, and exp is taken of them,"),
            ),
            (
                scale * std::f64::consts::LN_2,
                tr!("exp2 is taken of the scores, which are not in base 2,"),
            ),
        ] {
            let factor = other / scale;
            if (factor - 1.0).abs() < 1e-6 {
                continue;
            }
            for (part, spans) in parts.keys.iter().enumerate() {
                let places: Vec<usize> =
                    spans.iter().flat_map(|(first, end)| *first..*end).collect();
                let change = Box::new(after(Scaling::By { factor }, &[]));
                let told =
                    tr!("{what} in {name} {part} alone", what, name = parts.axis.told(), part);
                self.add(
                    Kind::Parameter,
                    cost::PLAIN,
                    Name::Scores,
                    Change::Confined(change, 3, places),
                    told,
                );
            }
        }
    }

    /// Scores that are capped behind the mask in the tiles that it blocks a part of: what is blocked there becomes the cap's
    /// lower end, and is seen.
    pub(super) fn capped_at_the_edge(&mut self, size: (usize, usize)) {
        let cap = self.right.step(Name::ScoresCapped).and_then(|step| match step.op {
            Op::Scaling(Scaling::SoftCap { cap }) => Some(cap),
            _ => None,
        });
        let (Some(cap), Some(own)) = (cap, self.own_mask()) else { return };
        let counts = own.in_tiles(size);
        let edge = own.of(|b, q, k| own.at(b, q, k) && counts(b, q, k)[0] > 0);
        let Ok(cells) = edge.tensor() else { return };
        let low = Slip::Block(Block { cells, fill: -cap });
        let told = tr!(
            "the soft cap is behind the mask in tiles that this blocks a part of: what is blocked there has the score −{cap}",
            cap
        );
        let at = self.right.step(Name::MaskedScores).map(|step| step.name);
        let Some(at) = at else { return };
        self.add(Kind::Replaced, cost::PLAIN, at, after(low, &[]), told);
    }
}
