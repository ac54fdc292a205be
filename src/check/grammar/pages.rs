//! Which slots of a cache can be read in place of the keys'?

use std::collections::HashSet;

use super::{Grammar, after, documents};
use crate::candidate::cost;
use program::{
    Along, ByPosition, Change, Documents, Edit, Heads, Kind, Masking, Name, Op, Shift, Slip, Step,
    Trace, TurnedPages, places,
};

/// So many readings of one table are tried at most.
const MOST: usize = 4096;

/// How many slots pages of a cache of so many can have, the most first.
fn pages_of(all: usize) -> impl Iterator<Item = usize> {
    (2..=all).rev().filter(move |page| all.is_multiple_of(*page))
}

/// How many slots the pages have that a run's keys stand in, as far as the places of the keys tell.
pub fn page_size(right: &Trace) -> Option<usize> {
    let gathered = right.step(Name::KGathered)?;
    let [pages, slots] = right.read_by(gathered)[..] else { return None };
    let slots = places(&slots.value).ok()?;
    let lengths = lengths(documents(right), slots.len());
    let all = pages.axes.shape().get(2).copied().unwrap_or_default();
    Some(Table::of(&slots, lengths, all).page)
}

/// How many keys each sequence has.
fn lengths(own: Option<&Documents>, keys: usize) -> Vec<usize> {
    own.and_then(|own| own.keys.first().cloned()).unwrap_or_else(|| vec![keys])
}

impl Grammar<'_> {
    pub(super) fn pages(&mut self, step: &Step) {
        let (Op::Heads(Heads::Gather), [pages, slots]) = (&step.op, &self.right.read_by(step)[..])
        else {
            return;
        };
        let Ok(right) = places(&slots.value) else { return };
        let all = pages.axes.shape().get(2).copied().unwrap_or_default();
        let table = Table::of(&right, lengths(self.documents(), right.len()), all);
        let mut known = HashSet::from([right.clone()]);
        let mut add = |read: Vec<usize>, told: String| {
            // Beyond the last slot a cache is read from its beginning.
            let read: Vec<usize> = read.into_iter().map(|slot| slot % all.max(1)).collect();
            if read.len() == right.len() && known.insert(read.clone()) {
                let change =
                    Change::Become(Slip::Slots { read, turned: None }.into(), vec![pages.name]);
                self.add(Kind::Axes, cost::PLAIN, step.name, change, told);
            }
        };
        table.shifted(&mut add, all);
        table.of_others(&mut add);
        table.exchanged(&mut add);
        table.with_other_rows(&mut add);
        for page in pages_of(all).filter(|page| *page <= 512) {
            for (heads_first, told) in [
                (
                    true,
                    tr!(
                        "pages of {page} slots that hold head after head are read slot by slot",
                        page
                    ),
                ),
                (
                    false,
                    tr!(
                        "pages of {page} slots that hold slot after slot are read head by head",
                        page
                    ),
                ),
            ] {
                let turned = Some(TurnedPages { page, heads_first });
                let slip = Slip::Slots { read: right.clone(), turned };
                let change = Change::Become(slip.into(), vec![pages.name]);
                self.add(Kind::Axes, cost::PLAIN, step.name, change, told);
            }
        }
        self.unwritten_keys(&table, step.name);
        self.longer(&table, step.name);
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

    /// Keys behind the last one of each sequence, in the slots that its last page has left.
    fn longer(&mut self, table: &Table, at: Name) {
        let steps = [Name::KGathered, Name::VGathered];
        let Some(own) = self.documents().filter(|own| own.queries.len() == 1 && at == steps[0])
        else {
            return;
        };
        let (own, page) = (own.clone(), table.page.max(1));
        let (more, full) = (
            |length: usize| (length + 1).min(length.next_multiple_of(page)),
            |length: usize| length.next_multiple_of(page),
        );
        let all: [(&dyn Fn(usize) -> usize, &str); 2] = [
            (
                &more,
                tr!(
                    "each sequence has one key more: the slot behind its last one (last_page_len + 1)"
                ),
            ),
            (
                &full,
                tr!("the last page of each sequence is read whole, whatever last_page_len says"),
            ),
        ];
        for (length, told) in all {
            let lengths: Vec<usize> = table.lengths.iter().map(|own| length(*own)).collect();
            if lengths == table.lengths {
                continue;
            }
            let longer = Table { lengths: lengths.clone(), page, firsts: table.firsts.clone() };
            let read = longer.read(|at, page| longer.first(at, page));
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
            edits.extend(self.masks_of_lengths(&own, lengths));
            self.add_all(Kind::Mask, cost::COMMON, edits, steps[0], told);
        }
    }

    /// The masks of packed sequences that have so many keys.
    fn masks_of_lengths(&self, own: &Documents, lengths: Vec<usize>) -> Vec<Edit> {
        let queries = own.queries.first().cloned().unwrap_or_default();
        let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
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

/// The pages of sequences.
struct Table {
    /// How many keys each sequence has.
    lengths: Vec<usize>,
    /// How many slots a page has.
    page: usize,
    /// The first slot of each page of each sequence.
    firsts: Vec<Vec<usize>>,
}

impl Table {
    /// The table that these slots follow from, in the largest pages that they fit.
    fn of(slots: &[usize], lengths: Vec<usize>, all: usize) -> Self {
        let mut starts = Vec::new();
        let mut start = 0;
        for length in &lengths {
            starts.push(start);
            start += length;
        }
        let slot = |start: usize, key: usize| slots.get(start + key).copied().unwrap_or_default();
        let fits = |page: &usize| {
            starts.iter().zip(&lengths).all(|(start, length)| {
                (0..*length).all(|key| {
                    let first = slot(*start, key - key % page);
                    first % page == 0 && slot(*start, key) == first + key % page
                })
            })
        };
        let page = pages_of(all).find(fits).unwrap_or(1);
        let firsts = starts.iter().zip(&lengths);
        let firsts = firsts.map(|(start, length)| {
            (0..*length).step_by(page).map(|key| slot(*start, key)).collect()
        });
        Self { firsts: firsts.collect(), lengths, page }
    }

    /// The places of the keys of each sequence.
    fn sequences(&self) -> impl Iterator<Item = Vec<usize>> {
        let mut start = 0;
        self.lengths.iter().map(move |length| {
            start += length;
            (start - length..start).collect()
        })
    }

    /// The slots of all keys, where each page of each sequence begins at this slot.
    fn read(&self, first: impl Fn(usize, usize) -> Option<usize>) -> Vec<usize> {
        let of = |at: usize, key: usize| Some(first(at, key / self.page)? + key % self.page);
        let keys = |(at, length): (usize, &usize)| {
            (0..*length).map(|key| of(at, key).unwrap_or(usize::MAX)).collect::<Vec<_>>()
        };
        self.lengths.iter().enumerate().flat_map(keys).collect()
    }

    /// The first slot of a page of a sequence; of one that it lacks, that of its last.
    fn first(&self, at: usize, page: usize) -> Option<usize> {
        let pages = self.firsts.get(at)?;
        pages.get(page).or(pages.last()).copied()
    }

    /// Slots that are counted wrongly.
    fn shifted(&self, add: &mut dyn FnMut(Vec<usize>, String), all: usize) {
        let own = self.read(|at, page| self.first(at, page));
        let further = |by: usize| own.iter().map(|slot| slot + by).collect::<Vec<_>>();
        add(further(1), tr!("every key is read one slot further").to_owned());
        add(further(all.saturating_sub(1)), tr!("every key is read one slot before").to_owned());
        let within = |by: usize| {
            let turned = |slot: &usize| slot - slot % self.page + (slot + by) % self.page;
            own.iter().map(turned).collect::<Vec<_>>()
        };
        add(within(1), tr!("every key is read one slot further in its page").to_owned());
        let told = tr!("every key is read one slot before in its page");
        add(within(self.page - 1), told.to_owned());
        // The last sequence has no entry behind its own.
        let last = own.len() - self.lengths.last().copied().unwrap_or_default().min(own.len());
        for from in [last, own.len()] {
            let next = own[..from].iter().enumerate();
            let next = next.map(|(at, slot)| own.get(at + 1).copied().unwrap_or(*slot));
            let told = tr!("each sequence's keys begin one entry further in the list of slots");
            add(next.chain(own[from..].iter().copied()).collect(), told.to_owned());
        }
        let next = |at: usize, key: usize| {
            Some(self.first(at, (key + 1) / self.page)? + (key + 1) % self.page)
        };
        let keys = self.lengths.iter().enumerate();
        let keys = keys.flat_map(|(at, length)| (0..*length).map(move |key| next(at, key)));
        let next: Option<Vec<usize>> = keys.collect();
        let told = tr!("every key is read one slot further in its sequence");
        add(next.unwrap_or_default(), told.to_owned());
        let in_a_row = tr!("the table is not used: each sequence's pages are read in a row");
        let from_first = self.read(|at, page| Some(self.first(at, 0)? + page * self.page));
        add(from_first, tr!("{in_a_row}, from its first one on", in_a_row));
        let most = self.firsts.iter().map(Vec::len).max().unwrap_or_default();
        let blocks = all / self.page.max(1);
        for wide in most..=(most + 2).min(blocks) {
            let each = self.read(|at, page| Some((at * wide + page) * self.page));
            add(each, tr!("{in_a_row}, {wide} for each sequence", in_a_row, wide));
        }
        add(
            self.read(|_, page| Some(page * self.page)),
            tr!("{in_a_row}, from page 0 on", in_a_row),
        );
        let told = tr!("each page is read through the next entry of the table");
        add(self.read(|at, page| self.first(at, page + 1)), told.to_owned());
        let around = |at: usize, page| self.first(at, (page + 1) % self.firsts.get(at)?.len());
        add(self.read(around), told.to_owned());
        let before = self.read(|at, page: usize| self.first(at, page.saturating_sub(1)));
        add(before, tr!("each page is read through the entry before in the table").to_owned());
        for tile in [2, 4] {
            let read = |at: usize, page: usize| {
                Some(self.first(at, page - page % tile)? + page % tile * self.page)
            };
            let told =
                tr!("the pages of a tile of {tile} are taken to lie one behind the other", tile);
            add(self.read(read), told);
        }
    }

    /// Pages of other sequences.
    fn of_others(&self, add: &mut dyn FnMut(Vec<usize>, String)) {
        let count = self.firsts.len();
        let of_first = self.read(|_, page| self.first(0, page));
        add(of_first, tr!("every sequence reads the table's row of sequence 0").to_owned());
        let next = self.read(|at, page| self.first((at + 1) % count, page));
        add(next, tr!("every sequence reads the table's row of the next").to_owned());
        let before = self.read(|at, page| self.first((at + count - 1) % count, page));
        add(before, tr!("every sequence reads the table's row of the one before").to_owned());
        let pages: usize = self.firsts.iter().map(Vec::len).sum();
        if count.saturating_mul(pages) > MOST {
            return;
        }
        for (own, pages) in self.firsts.iter().enumerate() {
            for other in (0..count).filter(|other| *other != own) {
                for wrong in 0..pages.len() {
                    let is_it = |at: usize, page: usize| (at, page) == (own, wrong);
                    let from = |at, page| if is_it(at, page) { other } else { at };
                    let read = self.read(|at, page| self.first(from(at, page), page));
                    let told = tr!(
                        "page {wrong} of sequence {own} is that of sequence {other}",
                        wrong,
                        own,
                        other
                    );
                    add(read, told);
                }
                let read =
                    self.read(|at, page| self.first(if at == own { other } else { at }, page));
                add(read, tr!("sequence {own} reads the pages of sequence {other}", own, other));
            }
        }
    }

    /// Rows of the table that are taken to be of another length than they are; what fills them up is taken for 0.
    fn with_other_rows(&self, add: &mut dyn FnMut(Vec<usize>, String)) {
        let most = self.firsts.iter().map(Vec::len).max().unwrap_or_default();
        let count = self.firsts.len();
        if count < 2 {
            return;
        }
        for wide in most..most + 5 {
            let row = |row: &Vec<usize>| {
                let rest = std::iter::repeat_n(0, wide - row.len());
                row.iter().copied().chain(rest).collect::<Vec<_>>()
            };
            let flat: Vec<usize> = self.firsts.iter().flat_map(row).collect();
            for apart in (1..wide + 3).filter(|apart| *apart != wide) {
                let told = tr!(
                    "rows of the table are taken to be {apart} entries apart, and are {wide}",
                    apart,
                    wide
                );
                let read = self.read(|at, page| flat.get(at * apart + page).copied());
                if read.iter().all(|slot| *slot < usize::MAX / 2) {
                    add(read, told);
                }
            }
        }
    }

    /// Pages of one sequence in another order.
    fn exchanged(&self, add: &mut dyn FnMut(Vec<usize>, String)) {
        let reversed =
            self.read(|at, page| self.first(at, self.firsts.get(at)?.len().checked_sub(page + 1)?));
        add(
            reversed,
            tr!("the pages of each sequence are read from the last to the first").to_owned(),
        );
        let pages: usize = self.firsts.iter().map(Vec::len).sum();
        if pages > MOST {
            return;
        }
        for (own, pages) in self.firsts.iter().enumerate() {
            for left in 0..pages.len() {
                for right in left + 1..pages.len().min(left + 8) {
                    let place = |at: usize, page: usize| match page {
                        page if at == own && page == left => right,
                        page if at == own && page == right => left,
                        page => page,
                    };
                    let told = tr!(
                        "pages {left} and {right} of sequence {own} change places",
                        left,
                        right,
                        own
                    );
                    add(self.read(|at, page| self.first(at, place(at, page))), told);
                }
            }
        }
    }
}
