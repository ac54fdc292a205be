//! Keys and values in the pages of a cache, as serving engines hold them: which tensors of a file are the pages, the table
//! and the lengths, and in which order do their axes stand?

use candle_core::{DType, Tensor};

use super::arguments::LENGTHS;
use super::arranged::Qkv;
use super::codes::Codes;
use super::few_bits::{Beside, Parts, Slot, ways};
use super::matched::Match;
use super::names::{is_called, meanings};
use super::numbers::{listed, numbers};
use base::error::{Error, Result, quoted};
use config::{QkvFormat, Start};
use file::{Entry, Record};
use program::{Name, whole};

/// A way to read a file's pages: the queries of all sequences one after the other, and the slots of their keys.
pub struct Paged {
    /// The queries, the pages and the slots.
    pub qkv: Qkv,
    /// How many queries each sequence has, as the setting states it.
    pub segments: String,
    /// How many keys each has.
    pub key_segments: String,
    /// The slots that the keys of the run's own tokens were written to, if the file says it; tokens of padding have none.
    pub written: Option<Vec<Option<usize>>>,
}

/// Rows of a cache, each as long as it, are pages too.
const TABLES: &[&str] =
    &["block_table", "block_tables", "page_table", "page_tables", "cache_batch_idx"];
const FIRST_QUERIES: &[&str] = &["query_start_loc", "cu_seqlens_q", "qo_indptr"];
const FIRST_PAGES: &[&str] = &["paged_kv_indptr", "kv_indptr"];
const INDICES: &[&str] = &["paged_kv_indices", "kv_indices", "kv_page_indices"];
const LAST_LENGTHS: &[&str] = &["paged_kv_last_page_len", "kv_last_page_len"];
const BOTH: &[&str] = &["kv_cache", "paged_kv_cache"];
const CACHES: [&[&str]; 2] = [
    &["k_cache", "key_cache", "k_buffer", "paged_k_cache"],
    &["v_cache", "value_cache", "v_buffer", "paged_v_cache"],
];
const SLOT_MAPPING: &str = "slot_mapping";

/// The ways to read a file's pages, the likeliest first; none where it has no table of them.
///
/// # Errors
/// If the table names a slot that there is not, or candle fails.
pub fn find_pages(record: &Record) -> Result<Vec<Paged>> {
    let file = File { record };
    let (Some(sequences), Some(queries)) = (file.sequences()?, file.queries()) else {
        return Ok(Vec::new());
    };
    let Some((rows, counts)) = file.packed(&queries.tensor, sequences.pages.len())? else {
        return Ok(Vec::new());
    };
    let written = file.called(&[SLOT_MAPPING]).map(|entry| numbers(&entry.tensor)).transpose()?;
    let written: Option<Vec<_>> = written.map(|slots| slots.into_iter().map(whole).collect());
    let (mut all, mut refused) = (Vec::new(), None);
    for [keys, values] in file.caches(&rows)? {
        let page = keys.page;
        let (slots, lengths) = match sequences.slots(page, keys.slots.dim(2)?) {
            Ok(found) => found,
            Err(error) => {
                refused = refused.or(Some(error));
                continue;
            }
        };
        let slots: Vec<f32> = slots.into_iter().map(number).collect();
        let slots = Tensor::new(slots, rows.device())?;
        let taken = |step: Name, name: &str| Match::as_it_is(step.as_str(), name);
        let how = tr!("pages of {page} slots, of {count} sequences", page, count = counts.len());
        let mut matches = vec![
            taken(Name::QHeads, &queries.name).read(tr!("all sequences one after the other")),
            taken(Name::KPages, &keys.name).read(keys.how),
            taken(Name::VPages, &values.name).read(values.how),
            taken(Name::Slots, &sequences.name).read(how),
        ];
        matches.extend(file.beside().map(|name| taken(Name::Slots, name)));
        let mut beside = Vec::new();
        for Beside { name, numbers, matched } in keys.beside.into_iter().chain(values.beside) {
            let of_slots = Name::SCALE_PAGES.iter().find(|(scale, _)| *scale == name);
            let at_slots = || numbers.index_select(&slots.to_dtype(DType::U32)?, 2);
            beside.push(match of_slots {
                _ if numbers.elem_count() == 1 => (name, numbers),
                Some((_, pages)) => (*pages, numbers),
                None => (name, at_slots()?),
            });
            matches.push(matched);
        }
        let own = [
            (Name::QHeads, rows.clone()),
            (Name::KPages, keys.slots),
            (Name::VPages, values.slots),
            (Name::Slots, slots),
        ];
        let tensors = own.into_iter().chain(beside).collect();
        all.push(Paged {
            qkv: Qkv { tensors, matches, ..Qkv::of(QkvFormat::Thd, Start::Heads, None) },
            segments: listed(&counts),
            key_segments: listed(&lengths),
            written: written.clone(),
        });
    }
    match refused {
        Some(error) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}

fn number(slot: usize) -> f32 {
    slot as f32
}

/// Which pages the keys of each sequence stand in.
struct Sequences {
    /// The table's name.
    name: String,
    /// The pages of each sequence, in order.
    pages: Vec<Vec<usize>>,
    /// How many keys each has, or how many of them stand in its last page.
    lengths: Vec<usize>,
    is_of_last_page: bool,
}

impl Sequences {
    /// The slots of all keys in pages of so many, and how many keys each sequence has.
    fn slots(&self, page: usize, all: usize) -> Result<(Vec<usize>, Vec<usize>)> {
        let (mut slots, mut lengths) = (Vec::new(), Vec::new());
        for (pages, length) in self.pages.iter().zip(&self.lengths) {
            let before = pages.len().saturating_sub(1).saturating_mul(page);
            let length = if self.is_of_last_page { before + length } else { *length };
            for key in 0..length {
                let slot = pages.get(key / page).map(|own| own * page + key % page);
                let slot = slot.filter(|slot| *slot < all).ok_or_else(|| {
                    let what = tr!(
                        "gives no slot to key {key} of sequence {at}: pages have {page} slots, and the cache {all}",
                        key,
                        at = lengths.len(),
                        page,
                        all
                    );
                    let fix = tr!("give the table, the lengths and the cache of one call");
                    Error::tensor(quoted(&self.name), what, fix)
                })?;
                slots.push(slot);
            }
            lengths.push(length);
        }
        Ok((slots, lengths))
    }
}

/// Pages of keys or of values.
struct Pages {
    /// The tensor's name.
    name: String,
    /// What it holds, as (1, head, slot, `head_dim`).
    slots: Tensor,
    /// How many slots a page has.
    page: usize,
    /// In which order the tensor's axes stand.
    how: String,
    /// Its scales and zero points: one for all, or as (1, head, slot, `head_dim`), features 1 where they are alike.
    beside: Vec<Beside>,
}

/// A file that may have pages.
struct File<'r> {
    record: &'r Record,
}

impl<'r> File<'r> {
    fn called(&self, names: &[&str]) -> Option<&'r Entry> {
        self.record.entries.iter().find(|entry| is_called(&entry.name, names))
    }

    fn queries(&self) -> Option<&'r Entry> {
        let is_it = |entry: &&Entry| meanings(&entry.name).first() == Some(&Name::Q);
        self.record.entries.iter().find(is_it)
    }

    /// The whole numbers of the tensor of one of these names; what is padded with −1 is none.
    fn whole(&self, names: &[&str]) -> Result<Option<(&'r Entry, Vec<usize>)>> {
        self.called(names).map_or(Ok(None), whole_of)
    }

    /// The lengths of the sequences: where two are given, the longer ones, as the others are of what was cached before.
    fn lengths(&self) -> Result<Option<Vec<usize>>> {
        let all = self.of_lengths().map(|entry| Ok(whole_of(entry)?.map(|(_, own)| own)));
        let all: Vec<Option<Vec<usize>>> = all.collect::<Result<_>>()?;
        Ok(all.into_iter().flatten().max_by_key(|own| own.iter().sum::<usize>()))
    }

    fn of_lengths(&self) -> impl Iterator<Item = &'r Entry> {
        self.record.entries.iter().filter(|entry| is_called(&entry.name, LENGTHS))
    }

    /// Keys (0) or values (1) that stand in pages under the names that they have without.
    fn keys_or_values(&self, slot: usize) -> Option<&'r Entry> {
        let name = [Name::K, Name::V][slot];
        let is_it = |entry: &&Entry| {
            meanings(&entry.name).first() == Some(&name) && entry.tensor.rank() > 3
        };
        self.record.entries.iter().find(is_it)
    }

    /// The names of what says where pages stand, beside the table.
    fn beside(&self) -> impl Iterator<Item = &'r str> {
        let names = [FIRST_QUERIES, FIRST_PAGES, LAST_LENGTHS, &[SLOT_MAPPING]];
        let found = names.map(|names| self.called(names)).into_iter().flatten();
        self.of_lengths().chain(found).map(|entry| entry.name.as_str())
    }

    fn sequences(&self) -> Result<Option<Sequences>> {
        if let (Some((entry, table)), Some(lengths)) = (self.whole(TABLES)?, self.lengths()?) {
            if lengths.is_empty() || !table.len().is_multiple_of(lengths.len()) {
                return Ok(None);
            }
            let each = table.len() / lengths.len();
            let pages = table.chunks(each.max(1)).map(<[usize]>::to_vec).collect();
            let (name, is_of_last_page) = (entry.name.clone(), false);
            return Ok(Some(Sequences { name, pages, lengths, is_of_last_page }));
        }
        let (Some((entry, indices)), Some((_, starts))) =
            (self.whole(INDICES)?, self.whole(FIRST_PAGES)?)
        else {
            return Ok(None);
        };
        let of = |pair: &[usize]| indices.get(pair[0]..pair[1]).map(<[usize]>::to_vec);
        let Some(pages) = starts.windows(2).map(of).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let last = self.whole(LAST_LENGTHS)?.map(|(_, last)| last);
        let (name, is_of_last_page) = (entry.name.clone(), last.is_some());
        let lengths = last.unwrap_or_else(|| pages.iter().map(Vec::len).collect());
        let is_whole = lengths.len() == pages.len();
        Ok(is_whole.then_some(Sequences { name, pages, lengths, is_of_last_page }))
    }

    /// Queries of so many sequences, one after the other, as (1, head, token, `head_dim`), and how many each sequence has.
    fn packed(&self, queries: &Tensor, count: usize) -> Result<Option<(Tensor, Vec<usize>)>> {
        let starts = self.whole(FIRST_QUERIES)?.map(|(_, starts)| starts);
        let each: Vec<usize> = match (&starts, queries.dims()) {
            (Some(starts), _) => {
                starts.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect()
            }
            (None, [items, tokens, _, _]) if *items == count => vec![*tokens; count],
            _ => vec![1; count],
        };
        let tokens: usize = each.iter().sum();
        let rows = match *queries.dims() {
            [all, _, _] if all == tokens => queries.clone(),
            [items, _, 1, _] if items == tokens => queries.squeeze(2)?,
            [items, each, _, _] if items * each == tokens => queries.flatten(0, 1)?,
            _ => return Ok(None),
        };
        let rows = rows.transpose(0, 1)?.unsqueeze(0)?.contiguous()?;
        Ok((each.len() == count).then_some((rows, each)))
    }

    /// The caches of keys and values, or the halves of one of both, and in which order these stand.
    fn stored(&self) -> Result<Vec<([Entry; 2], &'static str)>> {
        let Some(both) = self.called(BOTH) else {
            let cache = |slot: usize| {
                let past = [Name::KPast, Name::VPast][slot].as_str();
                let own = self.called(&[past]).or_else(|| self.called(CACHES[slot]));
                own.or_else(|| self.keys_or_values(slot)).cloned()
            };
            return Ok(cache(0).zip(cache(1)).map(|(k, v)| ([k, v], "")).into_iter().collect());
        };
        let axes = [(0, tr!("keys, then values")), (1, tr!("keys and values in each page"))];
        let is_both = |(axis, _): &(usize, _)| both.tensor.dims().get(*axis) == Some(&2);
        let halves = axes.into_iter().filter(is_both).map(|(axis, how)| {
            let half = |at: usize| {
                let half = both.tensor.narrow(axis, at, 1)?.squeeze(axis)?;
                Ok::<_, Error>(Entry::of(both.name.as_str(), half))
            };
            Ok(([half(0)?, half(1)?], how))
        });
        halves.collect()
    }

    /// The ways to read the caches of keys and values, whose heads fit those of the queries.
    fn caches(&self, queries: &Tensor) -> Result<Vec<[Pages; 2]>> {
        let (heads, features) = (queries.dim(1)?, queries.dim(3)?);
        let mut all = Vec::new();
        for (stored, before) in self.stored()? {
            let [keys, values] = [1, 2].map(|slot| Slot::of(self.record, slot, &stored[slot - 1]));
            let layouts = |of: usize| layouts(stored[of].tensor.rank());
            // Keys may have an axis more, in which their values have the slots last.
            let is_split = stored[0].tensor.rank() == 5;
            let of_values = layouts(1).iter().skip(if is_split { 2 } else { 0 });
            for (own, others) in layouts(0).iter().zip(of_values) {
                for (codes, placed) in ways(&[&keys, &values], features)? {
                    let [of_keys, of_values] = &placed[..] else { continue };
                    let key = own.read(&keys, codes, of_keys.as_deref(), before)?;
                    let value = others.read(&values, codes, of_values.as_deref(), before)?;
                    let [_, own, slots, dim] = *key.slots.dims() else { continue };
                    let are_twins =
                        value.slots.dims().starts_with(&[1, own, slots]) && value.page == key.page;
                    if are_twins && dim == features && own > 0 && heads.is_multiple_of(own) {
                        all.push([key, value]);
                    }
                }
            }
        }
        Ok(all)
    }
}

/// An order in which the axes of pages can stand.
struct Layout {
    axes: &'static [&'static str],
    /// Puts them as (page, slot, head, `head_dim`).
    put: fn(&Tensor) -> candle_core::Result<Tensor>,
}

/// The whole numbers of a tensor, if they are such; what is padded with −1 is 0.
fn whole_of(entry: &Entry) -> Result<Option<(&Entry, Vec<usize>)>> {
    let numbers = numbers(&entry.tensor)?.into_iter().map(|number| whole(number.max(0.0)));
    Ok(numbers.collect::<Option<Vec<_>>>().map(|numbers| (entry, numbers)))
}

fn layouts(rank: usize) -> &'static [Layout] {
    match rank {
        3 => &[Layout { axes: &["slot", "head", "head_dim"], put: |x| x.unsqueeze(1) }],
        4 => &[
            Layout { axes: &["page", "slot", "head", "head_dim"], put: |x| Ok(x.clone()) },
            Layout { axes: &["page", "head", "slot", "head_dim"], put: |x| x.transpose(1, 2) },
            Layout {
                axes: &["page", "head", "head_dim", "slot"],
                put: |x| x.permute((0, 3, 1, 2)),
            },
        ],
        5 => &[Layout {
            axes: &["page", "head", "head_dim / x", "slot", "x"],
            put: |x| x.permute((0, 3, 1, 2, 4))?.flatten(3, 4),
        }],
        _ => &[],
    }
}

impl Layout {
    /// As (1, head, slot, `head_dim`).
    fn slots(&self, tensor: &Tensor) -> candle_core::Result<Tensor> {
        (self.put)(tensor)?.flatten(0, 1)?.transpose(0, 1)?.unsqueeze(0)?.contiguous()
    }

    /// Keys or values that stand so, with scales of this shape.
    fn read(
        &self,
        stored: &Slot,
        codes: Codes,
        shape: Option<&[usize]>,
        before: &str,
    ) -> Result<Pages> {
        let Parts { numbers, how, beside, .. } = stored.parts(codes, shape, self.axes)?;
        let page = (self.put)(&numbers)?.dim(1)?;
        let order = tr!("axes ({axes})", axes = self.axes.join(", "));
        let how = [before, order.as_str(), how.as_str()];
        let how: Vec<&str> = how.into_iter().filter(|own| !own.is_empty()).collect();
        let all = |Beside { name, numbers: own, matched }: Beside| {
            let numbers = if own.elem_count() == 1 {
                own.reshape((1, 1, 1, 1))?
            } else {
                let features = self.axes.iter().position(|axis| axis.starts_with("head_dim"));
                let are_alike = features.is_none_or(|at| own.dims().get(at) == Some(&1));
                let all = self.slots(&own.broadcast_as(numbers.shape())?)?;
                if are_alike { all.narrow(3, 0, 1)?.contiguous()? } else { all }
            };
            Ok(Beside { name, numbers, matched })
        };
        Ok(Pages {
            name: stored.name().to_owned(),
            page,
            slots: self.slots(&numbers)?,
            how: how.join(", "),
            beside: beside.into_iter().map(all).collect::<Result<_>>()?,
        })
    }
}
