//! What is the table of the pages of sequences, and in which other slots may its numbers be read?

use program::spans;

/// So many readings of one table are tried at most.
pub const MOST: usize = 4096;

/// Of so many sequences each is tried by itself.
pub const MANY: usize = 64;

/// So many pages are tried for what fills up rows.
const MOST_FILLS: usize = 9;

/// How many slots pages of a cache of so many can have, the most first.
pub fn pages_of(all: usize) -> impl Iterator<Item = usize> {
    (2..=all).rev().filter(move |page| all.is_multiple_of(*page))
}

/// The pages of sequences.
#[derive(Clone)]
pub struct Table {
    /// How many keys each sequence has.
    pub lengths: Vec<usize>,
    /// How many slots a page has.
    pub page: usize,
    /// The first slot of each page of each sequence.
    pub firsts: Vec<Vec<usize>>,
    /// The first slots of the pages that may fill up shorter rows: page 0, and some that no sequence has.
    pub fills: Vec<usize>,
}

impl Table {
    /// The table that these slots follow from, in the largest pages that they fit.
    pub fn of(slots: &[usize], lengths: Vec<usize>, all: usize) -> Self {
        let starts: Vec<usize> = spans(&lengths).into_iter().map(|(start, _)| start).collect();
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
        let firsts: Vec<Vec<usize>> = firsts.collect();
        let is_free =
            |first: &usize| *first == 0 || !firsts.iter().flatten().any(|own| own == first);
        let fills = (0..all).step_by(page).filter(is_free).take(MOST_FILLS).collect();
        Self { lengths, page, firsts, fills }
    }

    /// The places of the keys of each sequence.
    pub fn sequences(&self) -> impl Iterator<Item = Vec<usize>> {
        spans(&self.lengths).into_iter().map(|(start, end)| (start..end).collect())
    }

    /// The slots of all keys, where each page of each sequence begins at this slot.
    pub fn read(&self, first: impl Fn(usize, usize) -> Option<usize>) -> Vec<usize> {
        self.of_keys(|at, key| Some(first(at, key / self.page)? + key % self.page))
    }

    /// The slots of all keys, by the number of the sequence and the key's place in it.
    pub fn of_keys(&self, slot: impl Fn(usize, usize) -> Option<usize>) -> Vec<usize> {
        let keys = |(at, length): (usize, &usize)| {
            (0..*length).map(|key| slot(at, key).unwrap_or(usize::MAX)).collect::<Vec<_>>()
        };
        self.lengths.iter().enumerate().flat_map(keys).collect()
    }

    /// The first slot of a page of a sequence; of one that it lacks, that of its last.
    pub fn first(&self, at: usize, page: usize) -> Option<usize> {
        let pages = self.firsts.get(at)?;
        pages.get(page).or(pages.last()).copied()
    }

    /// The same; of one that it lacks `fill`, and of one that no row has the last of its row.
    pub fn filled(&self, at: usize, page: usize, fill: usize) -> Option<usize> {
        let most = self.firsts.iter().map(Vec::len).max()?;
        let page = page.min(most.saturating_sub(1));
        Some(self.firsts.get(at)?.get(page).copied().unwrap_or(fill))
    }

    /// The slots of all keys where each page of each sequence is read through another entry of the table, and what that is
    /// called: shorter rows are filled up with their last page, or with another one.
    pub fn read_through(
        &self,
        told: &str,
        entry: impl Fn(usize, usize) -> (usize, usize),
    ) -> Vec<(Vec<usize>, String)> {
        let last = self.read(|at, page| {
            let (row, page) = entry(at, page);
            self.first(row, page)
        });
        let filled = self.fills.iter().map(|fill| {
            let read = self.read(|at, page| {
                let (row, page) = entry(at, page);
                self.filled(row, page, *fill)
            });
            (read, self.with_fill(told, *fill))
        });
        let mut all = vec![(last, told.to_owned())];
        for read in filled {
            if all.iter().all(|(known, _)| *known != read.0) {
                all.push(read);
            }
        }
        all
    }

    pub fn with_fill(&self, told: &str, fill: usize) -> String {
        tr!("{told}, filled up with page {page}", told, page = fill / self.page.max(1))
    }

    /// Slots that are counted wrongly.
    pub fn shifted(&self, add: &mut dyn FnMut(Vec<usize>, String), all: usize) {
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
        for most in (1..self.page).filter(|most| self.page.is_multiple_of(*most)) {
            let wrapped = own.iter().map(|slot| slot - slot % self.page + slot % self.page % most);
            let told = tr!(
                "slots of a page are counted modulo {most}, as where every page of {most} is read as the first of its block of {page} slots",
                most,
                page = self.page
            );
            add(wrapped.collect(), told);
        }
        self.by_bits(add);
        // The last sequence has no entry behind its own.
        let last = own.len() - self.lengths.last().copied().unwrap_or_default().min(own.len());
        for from in [last, own.len()] {
            let next = own[..from].iter().enumerate();
            let next = next.map(|(at, slot)| own.get(at + 1).copied().unwrap_or(*slot));
            let told = tr!("each sequence's keys begin one entry further in the list of slots");
            add(next.chain(own[from..].iter().copied()).collect(), told.to_owned());
        }
        // Nor has the list; what lies behind it is 0.
        let told = tr!(
            "each sequence's keys begin one entry further in the list of slots, and the last of all is slot 0"
        );
        add(own.iter().copied().skip(1).chain([0]).collect(), told.to_owned());
        let told = tr!("each sequence's keys begin one entry early in the list of slots");
        let first = own.first().copied().unwrap_or_default();
        for before in [first, 0, own.last().copied().unwrap_or_default()] {
            let early = [before].into_iter().chain(own.iter().copied()).take(own.len());
            add(early.collect(), told.to_owned());
        }
        let next = |at: usize, key: usize| {
            Some(self.first(at, (key + 1) / self.page)? + (key + 1) % self.page)
        };
        let told = tr!("every key is read one slot further in its sequence");
        add(self.of_keys(next), told.to_owned());
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
        // Rows of a cache, one for each sequence, are pages that hold all keys.
        let longest = self.lengths.iter().max().copied().unwrap_or_default();
        for row in pages_of(all).filter(|row| *row >= longest && all / row >= self.lengths.len()) {
            let told = tr!(
                "sequence i reads row i of the cache, of {row} slots, whatever row is stated for it",
                row
            );
            add(self.of_keys(|at, key| Some(at * row + key)), told);
        }
        let told = tr!("each page is read through the next entry of the table");
        for (read, told) in self.read_through(told, |at, page| (at, page + 1)) {
            add(read, told);
        }
        let around = |at: usize, page| self.first(at, (page + 1) % self.firsts.get(at)?.len());
        add(self.read(around), told.to_owned());
        let before = self.read(|at, page: usize| self.first(at, page.saturating_sub(1)));
        add(before, tr!("each page is read through the entry before in the table").to_owned());
        let counts: Vec<usize> = self.firsts.iter().map(Vec::len).collect();
        let firsts = spans(&counts);
        let packed = self.read(|at, page| Some((firsts.get(at)?.0 + page) * self.page));
        add(packed, tr!("{in_a_row}, each sequence's behind those of the one before", in_a_row));
        for page in (1..=self.page).filter(|page| self.page.is_multiple_of(*page)) {
            for most in [128, 256, 1 << 15, 1 << 16].into_iter().filter(|most| most * page < all) {
                let wrapped = own.iter().map(|slot| slot / page % most * page + slot % page);
                let told =
                    tr!("numbers of pages of {page} slots are kept modulo {most}", page, most);
                add(wrapped.collect(), told);
            }
        }
        for tile in [2, 4] {
            let read = |at: usize, page: usize| {
                Some(self.first(at, page - page % tile)? + page % tile * self.page)
            };
            let told =
                tr!("the pages of a tile of {tile} are taken to lie one behind the other", tile);
            add(self.read(read), told);
        }
    }

    /// Places that are told apart by bits, where a page has no power of two of slots.
    fn by_bits(&self, add: &mut dyn FnMut(Vec<usize>, String)) {
        let page = self.page.max(1);
        if page.is_power_of_two() {
            return;
        }
        let masked = tr!(
            "the slot in a page is the key's place & {mask}, and pages have {page} slots, no power of two",
            mask = page - 1,
            page
        );
        let slot = |at, key| Some(self.first(at, key / page)? + (key & (page - 1)));
        add(self.of_keys(slot), masked.clone());
        for wide in [page.next_power_of_two(), page.next_power_of_two() / 2] {
            let told = tr!(
                "the page of a key is its place / {wide}, and pages have {page} slots, no power of two",
                wide,
                page
            );
            let slot = |at, key| Some(self.first(at, key / wide)? + (key & (page - 1)));
            add(self.of_keys(slot), format!("{told}; {masked}"));
            let slot = |at, key| Some(self.first(at, key / wide)? + key % page);
            add(self.of_keys(slot), told.clone());
            let slot = |at, key| Some(self.first(at, key / wide)? + key % wide);
            add(self.of_keys(slot), tr!("{told}, and so is its slot by {wide}", told, wide));
        }
    }

    /// Pages under other numbers, or of another size than they have.
    pub fn misnumbered(&self, add: &mut dyn FnMut(Vec<usize>, String), all: usize) {
        let page = self.page.max(1);
        let further = |by: usize| self.read(|at, own| Some(self.first(at, own)? + by));
        add(
            further(page),
            tr!("every page is read under a number that is one too large").to_owned(),
        );
        let before = all.saturating_sub(page);
        add(
            further(before),
            tr!("every page is read under a number that is one too small").to_owned(),
        );
        let sizes = [page * 2, page * 4, page * 8, page / 2, page / 4];
        for size in sizes.into_iter().filter(|size| *size > 0 && *size != page) {
            let told = tr!(
                "the table's numbers are taken for those of pages of {size} slots: page i begins at slot i · {size}, not i · {page}",
                size,
                page
            );
            add(self.read(|at, own| Some(self.first(at, own)? / page * size)), told);
        }
        for size in sizes.into_iter().filter(|size| *size > 0 && *size != page) {
            // The entry of a page of another size, whose number counts pages of that size, or of the right one.
            for of in [size, page] {
                let slot = |at: usize, key: usize| {
                    Some(self.first(at, key / size)? / page * of + key % size)
                };
                let told = tr!("pages are taken to have {size} slots, and have {page}", size, page);
                let told = if of == page {
                    tr!("{told}; the table's numbers are taken rightly", told)
                } else {
                    told
                };
                add(self.of_keys(slot), told.clone());
                for fill in &self.fills {
                    let slot = |at: usize, key: usize| {
                        let first = self.firsts.get(at)?.get(key / size).unwrap_or(fill);
                        Some(first / page * of + key % size)
                    };
                    add(self.of_keys(slot), self.with_fill(&told, *fill));
                }
            }
        }
    }

    /// Where the loop begins with the first page of a window of so many keys, and reads the table from its first entry.
    pub fn of_window(&self, add: &mut dyn FnMut(Vec<usize>, String), window: usize) {
        let skipped = |at: usize| {
            let length = self.lengths.get(at).copied().unwrap_or_default();
            length.saturating_sub(window) / self.page.max(1)
        };
        let read = |at: usize, page: usize| {
            let skipped = skipped(at);
            self.first(at, if page < skipped { page } else { page - skipped })
        };
        let told = tr!(
            "the pages of the window are read from the table's first entry on, not from the window's"
        );
        add(self.read(read), told.to_owned());
    }

    /// Where each sequence begins in the list of slots as it did before the `new` keys of each were added.
    pub fn stale(&self, slots: &[usize], add: &mut dyn FnMut(Vec<usize>, String), new: &[usize]) {
        let before = |at: usize| if at == 0 { 0 } else { self.lengths[at - 1] };
        let told = tr!(
            "each sequence begins in the list of slots at the length of the one before, not behind all before it"
        );
        let by_one = |at: usize, key: usize| slots.get(before(at) + key).copied();
        add(self.of_keys(by_one), told.to_owned());
        let ones = vec![1; self.lengths.len()];
        let starts: Vec<usize> = spans(&self.lengths).into_iter().map(|(start, _)| start).collect();
        for new in [new, &ones] {
            let early: Vec<usize> = spans(new).into_iter().map(|(start, _)| start).collect();
            let slot = |at: usize, key: usize| {
                let early = early.get(at).copied().unwrap_or_default();
                slots.get((starts.get(at)? + key).checked_sub(early)?).copied()
            };
            let told = tr!(
                "each sequence begins where it did before the new keys were added: indptr is stale"
            );
            add(self.of_keys(slot), told.to_owned());
        }
    }
}
