//! In which slots are pages read that belong to other sequences, to other rows of the table, or elsewhere in their own?

use program::spans;

use super::page_tables::{MANY, MOST, Table};

impl Table {
    /// Pages of other sequences, of which each has so many new keys.
    pub fn of_others(&self, add: &mut dyn FnMut(Vec<usize>, String), new: &[usize]) {
        let count = self.firsts.len();
        let rows: [(&dyn Fn(usize) -> usize, &str); 3] = [
            (&|_| 0, tr!("every sequence reads the table's row of sequence 0")),
            (&|at| (at + 1) % count, tr!("every sequence reads the table's row of the next")),
            (
                &|at| (at + count - 1) % count,
                tr!("every sequence reads the table's row of the one before"),
            ),
        ];
        for (row, told) in rows {
            for (read, told) in self.read_through(told, |at, page| (row(at), page)) {
                add(read, told);
            }
        }
        let most = self.firsts.iter().map(Vec::len).max().unwrap_or_default();
        for shared in 1..most.min(MANY) {
            let read = self.read(|at, page| self.first(if page < shared { 0 } else { at }, page));
            let told = tr!(
                "the first {shared} pages of every sequence are taken to be those of sequence 0 (a prefix that they do not share)",
                shared
            );
            add(read, told);
        }
        for shared in 1..most.min(MANY) {
            let read = |at: usize, page: usize| {
                self.first(at, if page < shared { page } else { page - shared })
            };
            let told = tr!(
                "behind a prefix of {shared} pages the table is read from its first entry on again",
                shared
            );
            add(self.read(read), told);
        }
        let flat = self.firsts.concat();
        let counts: Vec<usize> = self.firsts.iter().map(Vec::len).collect();
        let ends: Vec<usize> = spans(&counts).into_iter().map(|(_, end)| end).collect();
        let starts = spans(new);
        let by_queries = self.read(|at, page| {
            flat.get((starts.get(at).map_or(0, |(start, _)| *start) + page) % flat.len()).copied()
        });
        let told = tr!(
            "the list of each sequence's pages begins where its queries begin: qo_indptr is read in place of kv_indptr"
        );
        add(by_queries, told.to_owned());
        let late = self.read(|at, page| flat.get((ends[at] + page) % flat.len()).copied());
        let told = tr!(
            "each sequence reads the pages of the next one on: indptr is read one sequence further"
        );
        add(late, told.to_owned());
        let early = self.read(|at, page| {
            let first = ends[at].checked_sub(counts[at])?;
            flat.get((first + page).saturating_sub(usize::from(at > 0))).copied()
        });
        let told = tr!(
            "the pages of each sequence but the first are read from one entry earlier in their list"
        );
        add(early, told.to_owned());
        let pages: usize = self.firsts.iter().map(Vec::len).sum();
        if count.saturating_mul(pages) > MOST {
            return;
        }
        for own in 0..count {
            for other in own + 1..count {
                let told = tr!(
                    "sequences {own} and {other} read each other's pages, as where the batch was put in another order than the table",
                    own,
                    other
                );
                let mut rows: Vec<usize> = (0..count).collect();
                rows.swap(own, other);
                for (read, told) in self.read_through(&told, |at, page| (rows[at], page)) {
                    add(read, told);
                }
            }
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
                self.newest_of_other(own, other, add);
                let read =
                    self.read(|at, page| self.first(if at == own { other } else { at }, page));
                add(read, tr!("sequence {own} reads the pages of sequence {other}", own, other));
            }
        }
    }

    /// The newest key of one sequence in the place of another one's newest, or of the one at its own place there.
    fn newest_of_other(&self, own: usize, other: usize, add: &mut dyn FnMut(Vec<usize>, String)) {
        let newest = self.of_keys(|at, key| {
            let is_it = at == own && key + 1 == *self.lengths.get(at)?;
            let (at, key) = if is_it { (other, self.lengths.get(other)? - 1) } else { (at, key) };
            Some(self.first(at, key / self.page)? + key % self.page)
        });
        let told = tr!(
            "the newest key of sequence {own} is that of sequence {other}, as where both write it to a page that they share",
            own,
            other
        );
        add(newest, told);
        let place = self.lengths.get(other).map_or(0, |length| length.saturating_sub(1));
        let shared = self.of_keys(|at, key| {
            let at = if at == own && key == place { other } else { at };
            Some(self.first(at, key / self.page)? + key % self.page)
        });
        let told = tr!(
            "key {place} of sequence {own} is that of sequence {other}, which wrote its newest key into a page that both share",
            place,
            own,
            other
        );
        add(shared, told);
    }

    /// Rows of the table that are taken to be of another length than they are.
    pub fn with_other_rows(&self, add: &mut dyn FnMut(Vec<usize>, String)) {
        for fill in &self.fills {
            self.with_rows_of(*fill, add);
        }
    }

    fn with_rows_of(&self, fill: usize, add: &mut dyn FnMut(Vec<usize>, String)) {
        let most = self.firsts.iter().map(Vec::len).max().unwrap_or_default();
        let count = self.firsts.len();
        if count < 2 {
            return;
        }
        for wide in most..most + 5 {
            let row = |row: &Vec<usize>| {
                let rest = std::iter::repeat_n(fill, wide - row.len());
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
                    add(read, self.with_fill(&told, fill));
                }
            }
        }
    }

    /// Pages of one sequence in another order.
    pub fn exchanged(&self, add: &mut dyn FnMut(Vec<usize>, String)) {
        let reversed =
            self.read(|at, page| self.first(at, self.firsts.get(at)?.len().checked_sub(page + 1)?));
        add(
            reversed,
            tr!("the pages of each sequence are read from the last to the first").to_owned(),
        );
        let in_pairs = |at: usize, page: usize| {
            let other = page ^ 1;
            self.first(at, if other < self.firsts.get(at)?.len() { other } else { page })
        };
        let told = tr!("pages change places in pairs");
        add(self.read(in_pairs), told.to_owned());
        for own in (0..self.firsts.len()).take(MANY) {
            let of_one = self
                .read(|at, page| if at == own { in_pairs(at, page) } else { self.first(at, page) });
            add(of_one, tr!("{told} in sequence {own}", told, own));
            let reversed = self.read(|at, page| {
                let turned = self.firsts.get(at)?.len().checked_sub(page + 1)?;
                self.first(at, if at == own { turned } else { page })
            });
            add(
                reversed,
                tr!("the pages of sequence {own} are read from the last to the first", own),
            );
        }
        let mut sorted = self.firsts.clone();
        for pages in &mut sorted {
            pages.sort_unstable();
        }
        add(
            self.read(|at, page| sorted.get(at)?.get(page).copied()),
            tr!("the pages of each sequence are read in the order of their numbers, not of the table")
                .to_owned(),
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
