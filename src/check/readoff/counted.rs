//! What does a run give in which keys count otherwise than they should: not at all, or more than once?

use std::collections::BTreeMap;

use candle_core::{Device, Tensor};

use super::blocked::in_words;
use crate::candidate::{Candidate, cost, places_in_words, ranges};
use crate::grammar;
use crate::scope::Scope;
use base::error::Result;
use config::Sizes;
use program::Axis;

/// How often keys count for queries, the same in all heads.
pub struct Counts {
    blocked: Vec<u8>,
    meant: Vec<u8>,
    found: Vec<u8>,
    sizes: [usize; 4],
}

impl Counts {
    /// As often as a mask has it, in which 1 blocks a key, of (item, head, query, key).
    pub fn of(blocked: &[u8], sizes: [usize; 4]) -> Self {
        let [items, heads, queries, keys] = sizes;
        let items = blocked.chunks((heads * queries * keys).max(1)).take(items);
        let first = items.flat_map(|item| item.iter().take(queries * keys));
        let meant: Vec<u8> = first.map(|blocked| u8::from(*blocked == 0)).collect();
        Self { blocked: blocked.to_vec(), found: meant.clone(), meant, sizes }
    }

    /// A key of a query of an item counts so often.
    pub fn set(&mut self, [item, query, key]: [usize; 3], times: u8) {
        let [_, _, queries, keys] = self.sizes;
        if let Some(own) = self.found.get_mut((item * queries + query) * keys + key) {
            *own = times;
        }
    }

    /// The keys that count more than once, in words.
    fn repeated(&self) -> Option<String> {
        let [items, _, queries, keys] = self.sizes;
        let mut all: BTreeMap<u8, [Vec<usize>; 3]> = BTreeMap::new();
        for (at, times) in self.found.iter().enumerate().filter(|(_, times)| **times > 1) {
            let places = [at / keys / queries, at / keys % queries, at % keys];
            for (known, place) in all.entry(*times).or_default().iter_mut().zip(places) {
                known.push(place);
            }
        }
        let told = |(times, mut places): (u8, [Vec<usize>; 3])| {
            for own in &mut places {
                own.sort_unstable();
                own.dedup();
            }
            let [of_items, rows, keys] = places;
            let keys = ranges(&keys);
            let told = if times == 2 {
                tr!("the keys {keys} count twice", keys)
            } else {
                tr!("the keys {keys} count {times} times", keys, times)
            };
            let places = [(Axis::Batch, of_items, items), (Axis::Query, rows, queries)];
            let places = places.into_iter().filter(|(_, own, all)| own.len() < *all);
            places.fold(told, |told, (axis, own, _)| {
                format!("{told}, {}", places_in_words(axis, &own))
            })
        };
        let told: Vec<String> = all.into_iter().map(told).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// Which cells of all heads are blocked: as the mask has them where keys count as they should.
    fn hidden(&self) -> Result<Tensor> {
        let [_, heads, queries, keys] = self.sizes;
        let size = queries * keys;
        let cell = |(at, blocked): (usize, &u8)| {
            let own = at / (heads * size) * size + at % size;
            if self.found[own] == self.meant[own] {
                *blocked
            } else {
                u8::from(self.found[own] == 0)
            }
        };
        let cells: Vec<u8> = self.blocked.iter().enumerate().map(cell).collect();
        Ok(Tensor::from_vec(cells, self.sizes.as_slice(), &Device::Cpu)?)
    }

    /// The logarithms of how often keys count that do more than once.
    fn logs(&self) -> Result<Tensor> {
        let [items, _, queries, keys] = self.sizes;
        let logs = self.found.iter().map(|times| f64::from((*times).max(1)).ln()).collect();
        Ok(Tensor::from_vec(logs, (items, 1, queries, keys), &Device::Cpu)?)
    }
}

/// That keys count so often, if that is another number than it should be.
///
/// # Errors
/// If candle fails.
pub fn candidate(scope: &Scope, sizes: &Sizes, counts: &Counts) -> Result<Option<Candidate>> {
    if counts.found == counts.meant {
        return Ok(None);
    }
    let trace = scope.trace();
    let are_others =
        counts.found.iter().zip(&counts.meant).any(|(own, meant)| *own.min(&1) != *meant);
    let blocked = counts.hidden()?;
    let (mut told, mut cost) = (Vec::new(), cost::FITTED);
    if are_others {
        let (words, of_words) = in_words(trace, &blocked)?;
        cost = of_words;
        told.push(words);
    }
    let logs = counts.logs()?;
    let repeated = counts.repeated();
    let logs = repeated.is_some().then_some(logs);
    if let Some(repeated) = repeated {
        cost = cost::FITTED;
        told.push(repeated);
    }
    let blocked = are_others.then_some(blocked);
    Ok(grammar::counted(trace, sizes, blocked, logs, told.join("; "), cost))
}
