//! What goes wrong where a run reads keys and values of earlier tokens from a cache?

use std::f64::consts::LN_2;

use candle_core::{Device, Tensor};

use super::{Grammar, after};
use crate::candidate::{Edits, cost};
use crate::cells::cells;
use program::{Along, Block, Change, Edit, Kind, Name, Slip};

/// The axes of what a cache holds: (batch, head, key, `head_dim`).
const BATCH: usize = 0;
const KEY: usize = 2;

impl Grammar<'_> {
    /// New keys that stand in the cache, and are appended to it once more: each counts twice.
    pub(super) fn appended_again(&mut self) {
        let keys = self.sizes.keys();
        let one = (vec![self.sizes.query_count()], vec![keys]);
        let all = self
            .documents()
            .and_then(|own| Some((own.queries.first()?.clone(), own.keys.first()?.clone())));
        let (queries, lengths) = all.unwrap_or(one);
        let mut added = Vec::with_capacity(keys);
        for (new, length) in queries.iter().zip(&lengths) {
            let is_new = |key: usize| key + new >= *length && new < length;
            added.extend((0..*length).map(|key| if is_new(key) { LN_2 } else { 0.0 }));
        }
        let scores = self.right.step(Name::Weights).and_then(|own| self.read(own).first().copied());
        let Some(scores) = scores.filter(|_| added.len() == keys && added.contains(&LN_2)) else {
            return;
        };
        let Ok(cells) = Tensor::from_vec(added, (1, 1, 1, keys), &Device::Cpu) else { return };
        let counted = after(Slip::Counted(Block { cells, fill: 0.0 }), &[]);
        let told = tr!(
            "the new keys count twice: they stand in the cache already, and are appended once more"
        );
        self.add(Kind::Repeated, cost::COMMON, scores, counted, told);
    }

    /// Slots of the cache that are those of another item or token, or empty.
    pub(super) fn of_cache(&mut self) {
        let [cached, past] = [Name::KCached, Name::KPast].map(|name| {
            let shape = self.right.step(name).map(|step| step.axes.shape())?;
            <[usize; 4]>::try_from(shape).ok()
        });
        let (Some([items, _, keys, _]), Some([_, _, past, _])) = (cached, past) else { return };
        if past == 0 || past >= keys {
            return;
        }
        let along = |axis: usize, along: Along| Slip::Along(axis, along);
        let take = |place: &dyn Fn(usize) -> usize| {
            vec![(along(KEY, Along::Take((0..keys).map(place).collect())), None)]
        };
        let zero = |places: Vec<usize>| vec![(along(KEY, Along::Zero(places)), None)];
        // The later edit is made closer to the step: the new tokens are as they were.
        let of_item = |item: &dyn Fn(usize) -> usize| {
            let only = Slip::Only { axis: KEY, places: (past..keys).collect() };
            let other = along(BATCH, Along::Take((0..items).map(item).collect()));
            vec![(other, None), (only, Some(()))]
        };
        let new = keys - past;
        let mut all = vec![
            (zero((0..past).collect()), tr!("the slots of earlier tokens are read as 0").to_owned()),
            (zero(vec![0]), tr!("the first slot of the cache is read as 0").to_owned()),
            (zero(vec![past - 1]), tr!("the last slot of the cache is read as 0").to_owned()),
            (zero((past..keys).collect()), tr!("the slots of the new tokens are read as 0").to_owned()),
            (
                take(&|key| if key < past { key } else { key.saturating_sub(new) }),
                tr!("the slots of the new tokens hold what stands before them: they are read before they are written").to_owned(),
            ),
            (
                take(&|key| if key < past { key.saturating_sub(1) } else { key }),
                tr!("the slots of earlier tokens are read one place late, the first twice").to_owned(),
            ),
            (
                take(&|key| if key < past { (key + 1).min(past - 1) } else { key }),
                tr!("the slots of earlier tokens are read one place early, the last twice").to_owned(),
            ),
            (
                take(&|key| if key < past { past - 1 - key } else { key }),
                tr!("the slots of earlier tokens are read in reverse").to_owned(),
            ),
        ];
        if items > 1 {
            let others = |told: &str| tr!("the slots of earlier tokens are those of {told}", told);
            all.push((of_item(&|item| (item + 1) % items), others(tr!("the next item"))));
            all.push((of_item(&|_| 0), others(tr!("the first item"))));
            if items > 2 {
                let before = of_item(&|item| (item + items - 1) % items);
                all.push((before, others(tr!("the item before"))));
                let reversed = of_item(&|item| items - 1 - item);
                all.push((reversed, others(tr!("the items in reverse"))));
            }
        }
        let readers = |name: Name| -> Vec<(Name, usize)> {
            let steps = self.right.steps().iter();
            let slots = steps.flat_map(|step| {
                let read = self.read(step).into_iter().enumerate();
                read.filter(move |(_, read)| *read == name).map(|(slot, _)| (step.name, slot))
            });
            slots.collect()
        };
        let of = [Name::KCached, Name::VCached].map(|name| (name, readers(name)));
        let Some((first, _)) = of[0].1.first().copied() else { return };
        for (ops, told) in all {
            let edits = of.each_ref().map(|(name, readers)| -> Edits {
                let each = readers.iter().flat_map(|(at, slot)| {
                    ops.iter().map(move |(op, is_beside)| {
                        let beside = is_beside.map(|()| *name).into_iter().collect();
                        Edit::new(*at, Change::Before(*slot, op.clone().into(), beside))
                    })
                });
                each.collect()
            });
            let [of_keys, of_values] = edits;
            let both = [of_keys.clone(), of_values.clone()].concat();
            for (edits, what) in [
                (both, tr!("of keys and values, {told}", told)),
                (of_keys, tr!("of keys, {told}", told)),
                (of_values, tr!("of values, {told}", told)),
            ] {
                let at = edits.first().map_or(first, |edit| edit.at);
                self.add_all(Kind::Axes, cost::RARE, edits, at, what);
            }
        }
    }

    /// All slots of a preallocated cache are read, those behind the new tokens, too, to which nothing was written yet. It may have
    /// been recorded before or after the new tokens were written to it.
    pub(super) fn preallocated(&mut self) {
        let past = self.right.step(Name::KPast).map(|step| &step.value);
        let sizes = past.and_then(|past| past.abs().and_then(|own| own.sum((0, 1, 3))).ok());
        let sizes = sizes.and_then(|own| cells(&own).ok()).unwrap_or_default();
        let (past, keys) = (sizes.len(), self.sizes.keys());
        let empty = sizes.iter().rev().take_while(|size| **size == 0.0).count();
        if empty == 0 || empty == past || keys <= past {
            return;
        }
        let (filled, new) = (past - empty, keys - past);
        let place = |key: usize| match key {
            key if key < filled => key,
            key if key < filled + new => past + key - filled,
            key => key - new,
        };
        for along in
            [Along::Zero((past..keys).collect()), Along::Take((0..keys).map(place).collect())]
        {
            let edit = |name| Edit::new(name, after(Slip::Along(KEY, along.clone()), &[]));
            let told = tr!("empty slots of the cache, behind the new tokens, are attended to");
            let edits = [Name::KCached, Name::VCached].map(edit).to_vec();
            self.add_all(Kind::Axes, cost::COMMON, edits, Name::KCached, told);
        }
    }
}
