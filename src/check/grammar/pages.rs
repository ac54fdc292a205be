//! Which slots of a cache can be read in place of the keys'?

use std::collections::HashSet;

use super::page_tables::{Table, pages_of};
use super::{Grammar, after, documents};
use crate::candidate::cost;
use program::{
    Along, ByPosition, Change, Dim, Documents, Edit, Heads, Kind, Masking, Name, Op, PageTurn,
    SharedCache, Shift, Slip, Step, Trace, TurnedPages, places, signed,
};

/// Of so many sequences the length of each is tried by itself.
const FEW: usize = 16;

/// So many tokens may be guessed and refused at most, which stand behind the last one then.
const MOST_STALE: usize = 4;

/// How many slots the pages have that a run's keys stand in, as far as the places of the keys tell.
pub fn page_size(right: &Trace) -> Option<usize> {
    let gathered = right.step(Name::KGathered)?;
    let [pages, slots] = right.read_by(gathered)[..] else { return None };
    let slots = places(&slots.value).ok()?;
    let lengths = lengths(documents(right), slots.len());
    let all = pages.axes.shape().get(2).copied().unwrap_or_default();
    Some(Table::of(&slots, lengths, all).page)
}

/// The place of each of so many keys in its sequence.
pub fn key_places(right: &Trace, keys: usize) -> Vec<usize> {
    lengths(documents(right), keys).into_iter().flat_map(|length| 0..length).collect()
}

/// How many keys each sequence has.
fn lengths(own: Option<&Documents>, keys: usize) -> Vec<usize> {
    own.and_then(|own| own.keys.first().cloned()).unwrap_or_else(|| vec![keys])
}

/// How pages of so many slots can be read in another order than they are stored in.
fn turns(page: usize) -> Vec<(PageTurn, String)> {
    let mut all = vec![
        (
            PageTurn::HeadsStored,
            tr!("pages of {page} slots that hold head after head are read slot by slot", page),
        ),
        (
            PageTurn::HeadsRead,
            tr!("pages of {page} slots that hold slot after slot are read head by head", page),
        ),
        (
            PageTurn::FeaturesRead,
            tr!("pages of {page} slots, each with its features, are read feature by feature", page),
        ),
        (
            PageTurn::FeaturesStored,
            tr!(
                "pages of {page} slots that hold feature after feature are read slot by slot",
                page
            ),
        ),
    ];
    for features in [4, 8, 16] {
        let told = tr!(
            "pages of {page} slots that hold {features} features of all slots after each other are read feature by feature",
            page,
            features
        );
        all.push((PageTurn::Split(features), told));
        let told = tr!(
            "pages of {page} slots, each with its features, are read as if they held {features} features of all slots after each other",
            page,
            features
        );
        all.push((PageTurn::SplitRead(features), told.clone()));
        all.push((PageTurn::SplitReadWhole(features), told));
    }
    all
}

/// The lengths of all sequences where one has some keys more than it should, or fewer, with what that is called.
fn of_one_length(table: &Table) -> Vec<(Vec<usize>, String, u32)> {
    let with = |own: usize, length: usize| {
        let mut lengths = table.lengths.clone();
        lengths[own] = length;
        lengths
    };
    let mut all = Vec::new();
    for (own, length) in table.lengths.iter().copied().enumerate().take(FEW) {
        for more in 1..=MOST_STALE {
            let told = tr!(
                "sequence {own} is taken to have {more} keys more than its length: what stands behind its last key, stale or another's, is seen",
                own,
                more
            );
            all.push((with(own, length + more), told, cost::PLAIN));
            let told =
                tr!("sequence {own} is taken to have {more} keys fewer than its length", own, more);
            all.push((with(own, length.saturating_sub(more).max(1)), told, cost::PLAIN));
        }
    }
    all
}

/// The length of a sequence by its number and the length that it has.
type Length<'a> = &'a dyn Fn(usize, usize) -> usize;

impl Grammar<'_> {
    pub(super) fn pages(&mut self, step: &Step) {
        let (Op::Heads(Heads::Gather), [pages, slots]) = (&step.op, &self.right.read_by(step)[..])
        else {
            return;
        };
        let Ok(right) = places(&slots.value) else { return };
        let all = pages.axes.shape().get(2).copied().unwrap_or_default();
        let table = Table::of(&right, lengths(self.documents(), right.len()), all);
        let new = self.documents().and_then(|own| own.queries.first().cloned()).unwrap_or_default();
        let window = self.causal().and_then(|(_, window)| usize::try_from(window?).ok());
        let mut known = HashSet::from([right.clone()]);
        let mut add = |read: Vec<usize>, told: String| {
            // Beyond the last slot a cache is read from its beginning, or that slot is read.
            let around = read.iter().map(|slot| slot % all.max(1)).collect();
            let last = read.iter().map(|slot| (*slot).min(all.saturating_sub(1))).collect();
            let at_last = tr!("{told}, and beyond the cache its last slot is read", told);
            for (read, told) in [(around, told), (last, at_last)] {
                let read: Vec<usize> = read;
                if read.len() == right.len() && known.insert(read.clone()) {
                    let slip = Slip::Slots { read, turned: None };
                    let change = Change::Become(slip.into(), vec![pages.name]);
                    self.add(Kind::Axes, cost::PLAIN, step.name, change, told);
                }
            }
        };
        table.shifted(&mut add, all);
        table.misnumbered(&mut add, all);
        table.stale(&right, &mut add, &new);
        if let Some(window) = window {
            table.of_window(&mut add, window);
        }
        table.of_others(&mut add, &new);
        table.exchanged(&mut add);
        table.with_other_rows(&mut add);
        for page in pages_of(all).filter(|page| *page <= 512) {
            for (turn, told) in turns(page) {
                let slip =
                    Slip::Slots { read: right.clone(), turned: Some(TurnedPages { page, turn }) };
                let change = Change::Become(slip.into(), vec![pages.name]);
                self.add(Kind::Axes, cost::PLAIN, step.name, change, told);
            }
        }
        self.unwritten_keys(&table, step.name);
        self.without_page_zero(&right, table.page, step.name);
        self.in_each_others_cache(&right, table.page, step.name);
        self.longer(&table, step.name);
    }

    /// Keys of the page with the number 0, which tables are filled up with, that are not seen.
    fn without_page_zero(&mut self, slots: &[usize], page: usize, at: Name) {
        let Some(own) = self.own_mask().filter(|_| at == Name::KGathered) else { return };
        let is_of_it = |key: usize| slots.get(key).is_some_and(|slot| *slot < page);
        let cells = own.of(|b, q, k| own.at(b, q, k) || is_of_it(k));
        if cells.blocked == own.blocked {
            return;
        }
        let Ok(cells) = cells.tensor() else { return };
        let told = tr!("page 0 is taken for what fills up the table: its keys are not seen");
        self.masked_as(cells, told, cost::COMMON);
    }

    /// Keys and values of one cache, whose axis of two stands elsewhere than it is taken to stand.
    fn in_each_others_cache(&mut self, slots: &[usize], page: usize, at: Name) {
        let both = [Name::KGathered, Name::VGathered];
        let read = both.map(|name| {
            let step = self.right.step(name)?;
            self.right.read_by(step).first().map(|own| (own.name, own.axes.iter().collect()))
        });
        let [Some((keys, axes)), Some((values, other))] = read else { return };
        let axes: Vec<Dim> = axes;
        if at != both[0] || axes != other {
            return;
        }
        let names = ["2", "heads", "pages", "slots", "features"];
        for rest in [[2, 3, 1, 4], [2, 1, 3, 4]] {
            let with_two_at = |place: usize| [&rest[..place], &[0], &rest[place..]].concat();
            let told = |order: &[usize]| {
                order.iter().map(|axis| names[*axis]).collect::<Vec<_>>().join(", ")
            };
            for (stored, taken) in (0..4).flat_map(|own| (0..4).map(move |other| (own, other))) {
                if stored == taken {
                    continue;
                }
                let (stored, taken) = (with_two_at(stored), with_two_at(taken));
                let edits = both.map(|name| {
                    let cache = SharedCache {
                        page,
                        stored: stored.clone(),
                        taken: taken.clone(),
                        is_of_values: name == both[1],
                    };
                    let slip = Slip::Slots { read: slots.to_vec(), turned: None };
                    [
                        Edit::new(name, Change::Become(slip.into(), vec![keys])),
                        Edit::new(
                            name,
                            Change::Before(0, Slip::OfBoth(cache).into(), vec![values]),
                        ),
                    ]
                });
                let told = tr!(
                    "keys and values lie as ({stored}), and are read as ({taken})",
                    stored = told(&stored),
                    taken = told(&taken)
                );
                self.add_all(Kind::Axes, cost::PLAIN, edits.concat(), at, told);
            }
        }
    }

    /// Keys that are 0, as if they had not been written.
    fn unwritten_keys(&mut self, table: &Table, at: Name) {
        let sequences: Vec<Vec<usize>> = table.sequences().collect();
        let new = self.documents().and_then(|own| own.queries.first().cloned());
        let new = new.unwrap_or_default();
        let last = sequences
            .iter()
            .zip(&new)
            .flat_map(|(keys, new)| keys.iter().copied().skip(keys.len().saturating_sub(*new)));
        let told = tr!(
            "the new keys of each sequence are 0, as if they were read before they are written"
        );
        let mut unwritten = vec![(last.collect(), told.to_owned(), cost::PLAIN)];
        for (sequence, keys) in sequences.iter().enumerate() {
            let told = tr!(
                "the last key of sequence {at} is 0, as if it had not been written",
                at = sequence
            );
            unwritten.extend(keys.last().map(|last| (vec![*last], told, cost::RARE)));
        }
        for (keys, told, cost) in unwritten {
            let change = after(Slip::Along(2, Along::Zero(keys)), &[]);
            self.add(Kind::Axes, cost, at, change, told);
        }
    }

    /// Sequences of which more or fewer keys are read than they have.
    fn longer(&mut self, table: &Table, at: Name) {
        let steps = [Name::KGathered, Name::VGathered];
        let Some(own) = self.documents().filter(|own| own.queries.len() == 1 && at == steps[0])
        else {
            return;
        };
        let (own, page) = (own.clone(), table.page.max(1));
        let most = table.lengths.iter().copied().max().unwrap_or_default();
        let new = own.queries.first().cloned().unwrap_or_default();
        let of_last =
            |at: usize| table.lengths[at % table.lengths.len()].saturating_sub(1) % page + 1;
        let count = table.lengths.len();
        let mut upwards = table.lengths.clone();
        upwards.sort_unstable();
        let all: [(Length, &str); 14] = [
            (
                &|_, length| if length > page { length / page * page } else { length },
                &tr!(
                    "the last page of each sequence is not read where it is not full: pages are counted by length // {page}",
                    page
                ),
            ),
            (
                &|_, length| (length + 1).min(length.next_multiple_of(page)),
                tr!(
                    "each sequence has one key more: the slot behind its last one (last_page_len + 1)"
                ),
            ),
            (
                &|_, length| length.next_multiple_of(page),
                tr!("the last page of each sequence is read whole, whatever last_page_len says"),
            ),
            (
                &|_, length| {
                    if length > page && length % page == 0 { length - page } else { length }
                },
                tr!(
                    "the last page of sequences that fill it is not read: its length is taken modulo the page's, which gives 0"
                ),
            ),
            (
                &|at, length| {
                    length - new.get(at).copied().unwrap_or_default().min(length.saturating_sub(1))
                },
                tr!("the lengths do not count the new keys: they are not read"),
            ),
            (
                &|at, length| (length + of_last(at + 1)).saturating_sub(of_last(at)),
                tr!(
                    "the last page of each sequence has the length of the next one's (last_page_len)"
                ),
            ),
            (
                &|at, length| (length + of_last(at + count - 1)).saturating_sub(of_last(at)),
                tr!(
                    "the last page of each sequence has the length of the one's before (last_page_len)"
                ),
            ),
            (
                &|at, _| table.lengths[(at + 1) % count],
                tr!("each sequence has the length of the next one"),
            ),
            (
                &|at, _| table.lengths[(at + count - 1) % count],
                tr!("each sequence has the length of the one before"),
            ),
            (
                &|at, _| table.lengths[(at + 1).min(count - 1)],
                tr!("each sequence has the length of the next one, and the last its own"),
            ),
            (
                &|at, _| table.lengths[at.saturating_sub(1)],
                tr!("each sequence has the length of the one before, and the first its own"),
            ),
            (
                &|at, _| table.lengths[count - 1 - at],
                tr!("the lengths are those of the sequences in reverse"),
            ),
            (
                &|at, _| upwards[at],
                tr!("the lengths are sorted, the shortest first, and the sequences are not"),
            ),
            (
                &|_, _| most,
                tr!("every sequence has as many keys as the longest: its own length is not used"),
            ),
        ];
        let lengths = |length: Length| -> Vec<usize> {
            table.lengths.iter().enumerate().map(|(at, own)| length(at, *own)).collect()
        };
        let all = all
            .into_iter()
            .map(|(own, told)| (lengths(own), told.to_owned(), cost::COMMON))
            .collect();
        self.of_lengths(table, &own, all);
        self.of_lengths(table, &own, of_one_length(table));
    }

    /// Sequences of these lengths.
    fn of_lengths(&mut self, table: &Table, own: &Documents, all: Vec<(Vec<usize>, String, u32)>) {
        let steps = [Name::KGathered, Name::VGathered];
        for (lengths, told, cost) in all {
            if lengths == table.lengths {
                continue;
            }
            let longer = Table { lengths: lengths.clone(), ..table.clone() };
            for (read, told) in longer.read_through(&told, |at, page| (at, page)) {
                let mut edits: Vec<Edit> = Vec::new();
                for name in steps {
                    let Some(pages) =
                        self.right.step(name).and_then(|own| self.read(own).first().copied())
                    else {
                        continue;
                    };
                    let slip = Slip::Slots { read: read.clone(), turned: None };
                    edits.push(Edit::new(name, Change::Become(slip.into(), vec![pages])));
                }
                edits.extend(self.masks_of_lengths(own, lengths.clone()));
                self.add_all(Kind::Mask, cost, edits, steps[0], told);
            }
        }
    }

    /// The masks of packed sequences that have so many keys.
    fn masks_of_lengths(&self, own: &Documents, lengths: Vec<usize>) -> Vec<Edit> {
        let queries = own.queries.first().cloned().unwrap_or_default();
        // The last key that the first query of each sequence sees, less that query's row.
        let (mut row, mut end, mut places) = (0, 0, Vec::new());
        for (queries, keys) in queries.iter().zip(&lengths) {
            end += signed(*keys);
            places.push((row, end - signed(*queries) - row));
            row += signed(*queries);
        }
        let first = places.first().map_or(0, |(_, place)| *place);
        let shifts =
            places.iter().skip(1).map(|(row, place)| Shift { row: *row, by: place - first });
        let shifts: Vec<Shift> = shifts.collect();
        let keys = lengths.iter().sum();
        let mut edits = Vec::new();
        for name in [Name::CausalMask, Name::WindowMask] {
            if let Some(Op::Masking(Masking::ByPosition(mask))) =
                self.right.step(name).map(|step| &step.op)
            {
                let mask = ByPosition { first, keys, shifts: shifts.clone(), ..mask.clone() };
                edits.push(Edit::new(name, Change::Replace(Masking::ByPosition(mask).into())));
            }
        }
        let documents = Documents { keys: vec![lengths], ..own.clone() };
        let documents = Masking::Documents(documents).into();
        edits.push(Edit::new(Name::DocumentMask, Change::Replace(documents)));
        edits
    }
}
