//! At which shapes and numbers do kernels break? The table of the sweep.

use candle_core::DType;

use base::choices;

choices! {
    /// The numbers of a case.
    Numbers {
        /// Normal numbers, as PyTorch draws them.
        #[default]
        Random = "random",
        /// Queries and keys ten times as large: exp overflows without the maximum.
        Large = "large",
        /// Queries and keys of one number, so that all seen keys have the same weight.
        Equal = "equal",
        /// All scores near −100: exp underflows without the maximum, and a score of 0 takes all of the weight.
        Low = "low",
        /// Those that the caller gives.
        Own = "own",
    }
}

choices! {
    /// What a kernel has to take beside queries, keys and values for a case.
    Takes {
        /// The number of valid keys of each batch item.
        #[default]
        Lengths = "lengths",
        /// A boolean mask.
        AttnMask = "attn-mask",
    }
}

choices! {
    /// A type of inputs.
    Kind {
        /// 32 bits.
        #[default]
        F32 = "f32",
        /// 16 bits with the range of f32.
        Bf16 = "bf16",
        /// 16 bits with more digits.
        F16 = "f16",
    }
}

impl Numbers {
    /// The name in the language in force.
    pub fn told(self) -> &'static str {
        match self {
            Self::Random => tr!("random"),
            Self::Large => tr!("large"),
            Self::Equal => tr!("equal"),
            Self::Low => tr!("low"),
            Self::Own => tr!("own"),
        }
    }
}

impl Kind {
    /// What tensors call it.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }
}

/// A number of tokens: so many halves of a tile, and so many more.
#[derive(Debug, Clone, Copy)]
pub struct Length(usize, isize);

impl Length {
    /// One that is drawn.
    pub fn drawn(halves: usize, more: usize) -> Self {
        Self(halves, more.try_into().unwrap_or(0))
    }

    /// The number, 1 at least.
    pub fn of(self, tile: usize) -> usize {
        (self.0 * tile / 2).saturating_add_signed(self.1).max(1)
    }
}

/// A row of the sweep; what it leaves open is as stated, or 2 items of 3 heads of 32 features.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// The numbers of queries and of keys.
    pub tokens: (Length, Length),
    /// The batch items.
    pub batch: Option<usize>,
    /// The heads of queries, and those of keys and values.
    pub heads: Option<(usize, usize)>,
    /// The features of a head.
    pub head_dim: Option<usize>,
    /// The numbers.
    pub numbers: Numbers,
    /// What the kernel has to take for it.
    pub takes: Option<Takes>,
}

impl Row {
    const fn new(name: &'static str, queries: Length, keys: Length) -> Self {
        let (batch, heads, head_dim, takes) = (None, None, None, None);
        let (tokens, numbers) = ((queries, keys), Numbers::Random);
        Self { name, tokens, batch, heads, head_dim, numbers, takes }
    }

    /// One of drawn lengths.
    pub fn drawn(queries: Length, keys: Length) -> Self {
        Self::new("drawn", queries, keys)
    }

    const fn heads(self, heads: usize, kv_heads: usize) -> Self {
        Self { heads: Some((heads, kv_heads)), ..self }
    }

    const fn batch(self, items: usize) -> Self {
        Self { batch: Some(items), ..self }
    }

    const fn head_dim(self, features: usize) -> Self {
        Self { head_dim: Some(features), ..self }
    }

    const fn of(self, numbers: Numbers) -> Self {
        Self { numbers, ..self }
    }

    const fn with(self, takes: Takes) -> Self {
        Self { takes: Some(takes), ..self }
    }
}

const fn row(name: &'static str, tokens: Length) -> Row {
    Row::new(name, tokens, tokens)
}

const TILE: Length = Length(2, 0);
const TILE_AND_ONE: Length = Length(2, 1);
const TWO_TILES: Length = Length(4, 0);
const TAIL: Length = Length(3, 4);

const fn tokens(count: isize) -> Length {
    Length(0, count)
}

/// The sweep, in order.
pub const ROWS: &[Row] = &[
    row("one-tile", TILE),
    row("one-token", tokens(1)),
    row("few-tokens", tokens(5)),
    row("tile-minus-1", Length(2, -1)),
    row("tile-plus-1", TILE_AND_ONE),
    row("two-tiles", TWO_TILES),
    row("past-two-tiles", Length(4, 1)),
    row("half-a-tile", Length(1, 0)),
    row("tile-and-half", Length(3, 0)),
    row("tail", TAIL),
    Row::new("decode", tokens(1), Length(2, 16)),
    Row::new("chunk", tokens(5), Length(2, 8)),
    Row::new("fewer-queries", TILE, TAIL),
    Row::new("more-queries", TAIL, TILE),
    row("one-item", TILE_AND_ONE).batch(1),
    row("one-head", TILE_AND_ONE).heads(1, 1),
    row("five-heads", TAIL).heads(5, 5),
    row("grouped-heads", TILE).heads(4, 2),
    row("grouped-tail", TAIL).heads(6, 2),
    row("one-kv-head", TILE_AND_ONE).heads(4, 1),
    row("head-dim-16", TILE_AND_ONE).head_dim(16),
    row("head-dim-80", TILE_AND_ONE).head_dim(80),
    row("head-dim-128", TAIL).head_dim(128),
    row("large", TAIL).of(Numbers::Large),
    row("large-tile", TILE).of(Numbers::Large),
    row("low", TAIL).of(Numbers::Low),
    row("low-tile", TILE).of(Numbers::Low),
    row("equal", TAIL).of(Numbers::Equal),
    Row::new("decode-large", tokens(1), TAIL).of(Numbers::Large),
    row("lengths", TAIL).batch(3).with(Takes::Lengths),
    row("empty-item", TILE_AND_ONE).batch(3).with(Takes::Lengths),
    row("mask", TAIL).with(Takes::AttnMask),
    row("empty-rows", TILE_AND_ONE).with(Takes::AttnMask),
];

/// The rows in which an item, or rows of queries, have no key by what the kernel takes.
pub const EMPTY: &[&str] = &["empty-item", "empty-rows"];
