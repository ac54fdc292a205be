//! What is to be computed, every value decided, and what follows from that.

use super::choice::{CausalAlign, DType, End, PositionTerm, Start};
use super::parts::{Masks, Norm, Packed};
use super::positions::Positions;
use super::rotary::Rotary;
use super::settings::{Plain, Settings};
use super::sizes::Sizes;
use program::{Axis, EmptyRow, Name, Parts, Places, Shift};

/// A run's whole setting, every value decided and checked.
///
/// Made from [`Settings`] by [`Config::resolve`]; as [`Settings`] again it is the `config` of a recorded trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// What single settings say, or their defaults.
    pub plain: Plain,
    /// How long the axes are.
    pub sizes: Sizes,
    /// Where the run starts.
    pub start: Start,
    /// Where it ends.
    pub end: End,
    /// The norm of every head's queries and keys.
    pub norm: Option<Norm>,
    /// Rotary positions.
    pub rope: Option<Rotary>,
    /// What hides keys from queries.
    pub masks: Masks,
    /// What softmax makes of a row that is −∞ throughout.
    pub empty_rows: EmptyRow,
    /// The type that everything is computed in.
    pub dtype: DType,
    /// The settings that say all this.
    pub(super) settings: Settings,
}

impl Config {
    /// The positions of the tokens, where they are stated.
    pub fn places(&self) -> Option<Places> {
        match &self.rope {
            Some(rope) => rope.places.clone(),
            None => self.plain.positions.as_ref().map(Positions::plain),
        }
    }

    /// The steps that are called the output: of a run that starts at its heads, all that follow them.
    pub fn ends(&self) -> &'static [Name] {
        match self.start {
            Start::Inputs => &[Name::Output],
            Start::Projections | Start::Heads => &[Name::Output, Name::Concat, Name::HeadOutputs],
            Start::Scores => &[Name::WeightsDropped, Name::Weights],
        }
    }

    /// Whether a step comes before what the run is given, or behind its end.
    pub fn lies_outside(&self, step: Name) -> bool {
        let leads_to = Name::descendants(&[step]);
        Name::descendants(&[self.end.step()]).contains(&step)
            || self.start.given().iter().any(|given| leads_to.contains(given))
    }

    /// What the dot products are multiplied by: 1/√`d_k`, or of n terms 1/√(n · `d_k`), unless something else is set.
    pub fn scale_factor(&self) -> f64 {
        let of_terms = || 1.0 / (self.sizes.head_dim as f64 * self.terms() as f64).sqrt();
        self.plain.scale.unwrap_or_else(of_terms)
    }

    /// How many products scores are the sum of: that of queries and keys, and those of relative positions.
    pub fn terms(&self) -> usize {
        1 + self.plain.disentangled.as_ref().map_or(0, Vec::len)
    }

    /// Whether scores have that term of relative positions.
    pub fn has_term(&self, term: PositionTerm) -> bool {
        self.plain.disentangled.iter().flatten().any(|own| *own == term)
    }

    /// The splits or tiles that attention goes through, if it does. Splits are those of each packed document.
    pub fn parts(&self) -> Option<Parts> {
        let keys = self.sizes.all_keys();
        if let Some(tiles) = self.plain.tiles {
            let starts: Vec<usize> = (0..keys).step_by(tiles.keys).collect();
            let parts = Parts::starting(Axis::Tile, &starts, &[(0, keys)]);
            return Some(Parts { queries: tiles.queries, ..parts });
        }
        let splits = self.plain.splits.as_deref()?;
        let packed = self.masks.segments.as_ref().filter(|packed| packed.keys.0.len() == 1);
        let documents = packed.map_or_else(|| vec![(0, keys)], |packed| packed.keys.spans());
        let longest = documents.iter().map(|(first, end)| end.saturating_sub(*first)).max();
        let starts = match splits {
            [count] => {
                let each = longest.unwrap_or_default().div_ceil((*count).max(1));
                (0..*count).map(|at| at.saturating_mul(each)).collect()
            }
            starts => starts.to_vec(),
        };
        Some(Parts::starting(Axis::Split, &starts, &documents))
    }

    /// How the causal mask is aligned: as was said; otherwise by positions, or top-left where queries and keys are of two
    /// sequences. In packed documents it is bottom-right, as in `flash_attn_varlen_func`.
    pub fn align(&self) -> CausalAlign {
        let is_apart = self.sizes.is_cross && self.masks.segments.is_none();
        let otherwise = if is_apart { CausalAlign::TopLeft } else { CausalAlign::BottomRight };
        self.plain.causal_align.unwrap_or(otherwise)
    }

    /// In packed rows whose documents have other numbers of keys than queries: from which computed row on the keys are how
    /// much further on, under a causal mask of that alignment.
    pub fn shifts(&self, align: CausalAlign) -> Vec<Shift> {
        let Some(Packed { queries, keys }) = &self.masks.segments else { return Vec::new() };
        let first = i64::try_from(self.sizes.first_query()).unwrap_or(i64::MAX);
        let whole = |(from, to): (usize, usize)| {
            let whole = |place: usize| i64::try_from(place).unwrap_or(i64::MAX);
            (whole(from), whole(to))
        };
        let shift = |(rows, keys): ((usize, usize), (usize, usize))| {
            let ((row, row_end), (key, key_end)) = (whole(rows), whole(keys));
            let by = match align {
                CausalAlign::TopLeft => key - row,
                CausalAlign::BottomRight => key_end - row_end,
            };
            Shift { row: row.saturating_sub(first), by }
        };
        let all: Vec<Shift> = queries.spans().into_iter().zip(keys.spans()).map(shift).collect();
        if all.iter().all(|shift| shift.by == 0) { Vec::new() } else { all }
    }

    /// The last key that the first computed query sees under a causal mask of that alignment; below 0 where it sees none.
    pub fn first_seen(&self, align: CausalAlign) -> i64 {
        let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let first = signed(self.sizes.first_query());
        match align {
            // Each document has a shift of its own.
            _ if self.masks.segments.is_some() => first,
            CausalAlign::TopLeft => first,
            CausalAlign::BottomRight => {
                first + signed(self.sizes.keys()) - signed(self.sizes.seq_len)
            }
        }
    }
}

impl From<&Config> for Settings {
    /// The settings that resolve to this config.
    fn from(config: &Config) -> Self {
        config.settings.clone()
    }
}
