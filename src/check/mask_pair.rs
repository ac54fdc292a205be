//! Two masks of one attention, the stated one and the recorded one: where does the one show what the other hides?

use candle_core::{Device, Tensor};

use base::error::Result;
use config::{CausalAlign, Config};
use program::Places;

/// The masks, true where they block: (batch, head, query, key), each 1 or whole.
pub struct Masks {
    pub stated: Tensor,
    pub recorded: Tensor,
    pairs: Vec<(bool, bool)>,
    queries: usize,
    keys: usize,
    /// The place of the first query's own key among the keys.
    first: usize,
    /// Whether the keys are those of another sequence.
    is_cross: bool,
    /// The first key that the stated mask may hide from all queries by their positions alone, and not as padding.
    behind: usize,
    /// Whether the recorded one tells queries apart.
    pub is_of_queries: bool,
    /// What was stated tells of documents packed one behind the other.
    packing: Packing,
}

/// Which rows of a recorded mask may be those of packed documents, of which nothing need be stated.
#[derive(Clone, Copy)]
enum Packing {
    /// Any that see no other.
    Open,
    /// Not those of one length: chunks were stated.
    NotChunks,
    /// Not those as long as the stated window, nor three and more of one length: they are chunks, unless positions start
    /// anew in each.
    NotWindows(usize),
    /// None: the documents were stated.
    Stated,
}

impl Packing {
    fn of(config: &Config) -> Self {
        let restarts = |places: &Places| {
            let mut rows = places.rows.iter().flatten();
            rows.any(|row| row.windows(2).any(|pair| pair[1] < pair[0]))
        };
        match (config.plain.chunk, config.plain.window) {
            _ if config.masks.segments.is_some() => Self::Stated,
            (Some(_), _) => Self::NotChunks,
            (None, Some(window)) if !config.places().as_ref().is_some_and(restarts) => {
                Self::NotWindows(window)
            }
            _ => Self::Open,
        }
    }

    /// Whether equal parts of so many tokens may be documents, where there are so many tokens.
    fn allows(self, length: usize, tokens: usize) -> bool {
        match self {
            Self::NotWindows(window) if window < tokens => {
                length != window && length.saturating_mul(2) >= tokens
            }
            Self::Open | Self::NotWindows(_) => true,
            Self::NotChunks | Self::Stated => false,
        }
    }
}

/// Where masks contradict each other.
#[derive(Debug, Clone, Copy)]
pub struct Conflict {
    /// Whether the recorded one shows what the stated one hides.
    pub shows: bool,
    /// Whether it hides what the stated one shows.
    pub hides: bool,
    /// The first cell that it shows so, or else hides.
    pub query: usize,
    pub key: usize,
}

impl Masks {
    /// The two, the stated one of which may block nothing; nothing where they do not broadcast to each other.
    ///
    /// # Errors
    /// If candle fails.
    pub fn of(stated: Option<Tensor>, recorded: &Tensor, config: &Config) -> Result<Option<Self>> {
        let sizes = &config.sizes;
        let [queries, keys] = [sizes.query_count(), sizes.keys()];
        let is_of_queries = recorded.dims().iter().rev().nth(1).is_some_and(|count| *count > 1);
        let stated = match stated {
            Some(stated) => stated,
            None => Tensor::zeros((queries, keys), candle_core::DType::U8, &Device::Cpu)?,
        };
        let least = |tensor: &Tensor, axis: usize| {
            let dims = tensor.dims();
            (dims.len() + axis).checked_sub(4).and_then(|at| dims.get(at).copied()).unwrap_or(1)
        };
        let leading = [0, 1].map(|axis| least(&stated, axis).max(least(recorded, axis)));
        let shape = [leading[0], leading[1], queries, keys];
        let (Ok(stated), Ok(recorded)) =
            (stated.broadcast_as(&shape[..]), recorded.broadcast_as(&shape[..]))
        else {
            return Ok(None);
        };
        let cells = |mask: &Tensor| -> Result<Vec<u8>> { Ok(mask.flatten_all()?.to_vec1()?) };
        let (own, other) = (cells(&stated)?, cells(&recorded)?);
        let pairs = own.into_iter().zip(other).map(|(own, other)| (own != 0, other != 0)).collect();
        let first = if sizes.is_cross { 0 } else { sizes.first_position() };
        let is_top_left = config.align() == CausalAlign::TopLeft;
        let behind = if is_top_left { queries } else { keys };
        let packing = Packing::of(config);
        Ok(Some(Self {
            stated,
            recorded,
            pairs,
            queries,
            keys,
            first,
            is_cross: sizes.is_cross,
            behind,
            is_of_queries,
            packing,
        }))
    }

    /// The keys that some query sees of the recorded mask, 1 where one does: (batch, 1, 1, key). Nothing where queries and
    /// keys are not of one sequence, or heads see other keys.
    ///
    /// # Errors
    /// If candle fails.
    pub fn seen_keys(&self) -> Result<Option<Tensor>> {
        let items = self.recorded.dims().first().copied().unwrap_or(0);
        let plane = self.queries * self.keys;
        if self.queries != self.keys || self.pairs.len() != items * plane {
            return Ok(None);
        }
        let seen = |cells: &[(bool, bool)], key: usize| {
            cells.iter().skip(key).step_by(self.keys).any(|pair| !pair.1)
        };
        let closed = self.closed();
        let of_item = |cells| (0..self.keys).map(move |key| u8::from(seen(cells, key)));
        let cells: Vec<u8> = closed.pairs.chunks(plane.max(1)).flat_map(of_item).collect();
        Ok(Some(Tensor::from_vec(cells, (items, 1, 1, self.keys), &Device::Cpu)?))
    }

    /// Whether the recorded mask hides all keys that stand after their query, as a causal one of either corner does.
    pub fn hides_what_follows(&self) -> bool {
        let hides_behind = |first: usize| {
            let follows = |at: usize| at % self.keys > first + at / self.keys % self.queries;
            let mut cells = self.pairs.iter().enumerate().filter(|(at, _)| follows(*at)).peekable();
            cells.peek().is_some() && cells.all(|(_, pair)| pair.1)
        };
        let corners = [0, self.keys.saturating_sub(self.queries), self.first];
        self.is_of_queries && corners.into_iter().any(hides_behind)
    }

    /// Whether each shows what the other hides.
    pub fn are_opposite(&self) -> bool {
        self.pairs.iter().all(|(stated, recorded)| stated != recorded)
    }

    /// Whether a key stands after a query.
    pub fn is_future(&self, query: usize, key: usize) -> bool {
        self.is_of_queries && key > self.first + query
    }

    /// Where the recorded mask contradicts the stated one. The rows of padding count in neither, nor those in which one of
    /// the two shows no key. Keys that it hides from all queries are padding, unless it was stated which are. One that
    /// tells no queries apart says nothing of positions. Documents packed one behind the other see themselves alone.
    pub fn conflict(&self, states_keys: bool) -> Option<Conflict> {
        let mut found: Option<Conflict> = None;
        let mut note = |query: usize, key: usize, (stated, recorded): (bool, bool)| {
            let first = Conflict { shows: false, hides: false, query, key };
            let conflict = found.get_or_insert(first);
            if stated && !conflict.shows {
                (conflict.query, conflict.key) = (query, key);
            }
            conflict.shows |= stated;
            conflict.hides |= recorded;
        };
        let plane = self.queries * self.keys;
        for cells in self.pairs.chunks(plane.max(1)) {
            let column = |key: usize, of: fn(&(bool, bool)) -> bool| {
                cells.iter().skip(key).step_by(self.keys).all(of)
            };
            let columns: Vec<(bool, bool)> = (0..self.keys)
                .map(|key| {
                    (key < self.behind && column(key, |pair| pair.0), column(key, |pair| pair.1))
                })
                .collect();
            let own = |query: usize| columns.get(self.first + query).copied().unwrap_or_default();
            // Queries none of which is seen, and that see some key, are no padding: what hides them is another mask.
            let is_padding =
                self.is_cross || (0..self.queries).any(|query| !own(query).0 && !own(query).1);
            let is_other = |(_, pair): &(usize, &(bool, bool))| states_keys && pair.0 != pair.1;
            for (key, pair) in columns.iter().enumerate().filter(is_other) {
                let mut rows = cells.iter().skip(key).step_by(self.keys);
                if let Some(query) = rows.position(|pair| pair.0 != pair.1) {
                    note(query, key, *pair);
                }
            }
            let starts = self.starts(cells);
            for (query, row) in cells.chunks(self.keys.max(1)).enumerate() {
                let own = own(query);
                let is_empty = row.iter().all(|pair| pair.0) || row.iter().all(|pair| pair.1);
                if is_empty || is_padding && (own.0 || own.1) {
                    continue;
                }
                for (key, (stated, recorded)) in row.iter().enumerate() {
                    let of_keys = is_padding && (columns[key].0 || columns[key].1);
                    let is_document = starts.get(query).is_some_and(|start| key < *start);
                    let counts = if of_keys { states_keys } else { self.is_of_queries };
                    if stated != recorded && counts && !(*recorded && is_document) {
                        note(query, key, (*stated, *recorded));
                    }
                }
            }
        }
        found
    }

    /// The same without what transformers does to rows of padding on the left: they see no key, and it shows them all. Such
    /// rows stand at the front, see every key, and no other row sees theirs.
    #[must_use]
    pub fn closed(&self) -> Self {
        let mut pairs = self.pairs.clone();
        for cells in pairs.chunks_mut((self.queries * self.keys).max(1)) {
            let rows = || cells.chunks(self.keys.max(1));
            let opened = rows().take_while(|row| row.iter().all(|pair| !pair.1)).count();
            let own = self.first..self.first + opened;
            let hides = |row: &[(bool, bool)]| {
                row.get(own.clone()).is_none_or(|own| own.iter().all(|pair| pair.1))
            };
            if opened < self.queries && rows().skip(opened).all(hides) {
                cells.iter_mut().take(opened * self.keys).for_each(|pair| pair.1 = true);
            }
        }
        Self { pairs, stated: self.stated.clone(), recorded: self.recorded.clone(), ..*self }
    }

    /// Of packed documents, the first key of every query's own: where a query sees itself and the one before it is hidden,
    /// and so are all keys in front of that from there on. Nothing where the rows are no such.
    fn starts(&self, cells: &[(bool, bool)]) -> Vec<usize> {
        if matches!(self.packing, Packing::Stated) {
            return Vec::new();
        }
        let seen = |query: usize, key: usize| {
            cells.get(query * self.keys + key).is_some_and(|pair| !pair.1)
        };
        let mut starts: Vec<usize> = Vec::with_capacity(self.queries);
        for query in 0..self.queries {
            let own = self.first + query;
            let start = (0..=own).find(|key| seen(query, *key)).unwrap_or(own);
            let before = starts.last().copied();
            let goes_on = before.is_none_or(|before| start == before || start == own);
            let is_whole = (start..=own).all(|key| seen(query, key));
            if !goes_on || !is_whole {
                return Vec::new();
            }
            starts.push(start);
        }
        let length = starts.iter().filter(|start| **start == self.first).count();
        let is_chunk =
            |(query, start): (usize, &usize)| *start == self.first + query / length * length;
        let is_regular = length > 0 && starts.iter().enumerate().all(is_chunk);
        if is_regular && !self.packing.allows(length, self.queries) {
            return Vec::new();
        }
        starts
    }
}
