//! A mask of a file: what do people call it, and how is it read?

use candle_core::Tensor;

use super::contradiction::Contradiction;
use super::matched::Match;
use super::names::is_called;
use super::steps::Unmatched;

/// A mask that a file has under the name of an argument, as `attn_mask` takes it.
#[derive(Clone)]
pub struct FoundMask {
    /// Its name in the file.
    pub name: String,
    /// True where a query attends, or floats to add: broadcast to (batch, head, query, key).
    pub mask: Tensor,
    /// What its numbers mean.
    pub how: String,
    /// The other masks of the file that are in it.
    pub also: Vec<Match>,
    /// Those that are not.
    pub aside: Vec<String>,
    /// What is wrong if this is what was applied, and the mask that was to be, unless no run has such a one.
    pub against: Option<(Contradiction, Tensor)>,
}

impl FoundMask {
    /// One alone, with nothing against it.
    pub fn of(name: impl Into<String>, mask: Tensor, how: impl Into<String>) -> Self {
        let (name, how) = (name.into(), how.into());
        Self { name, mask, how, also: Vec::new(), aside: Vec::new(), against: None }
    }

    /// What is told of it where the run goes by the settings.
    pub fn left_out(&self) -> Unmatched {
        let why = tr!("the settings say which keys are seen, and it fits no better").to_owned();
        Unmatched { tensor: self.name.clone(), why }
    }
}

/// What people call masks, in lower case, whose keys they are of where there is a memory too, what 1 means in those
/// that hold no floats to add, and what their first axis is. `attn_mask` is that of
/// `scaled_dot_product_attention`; in `nn.MultiheadAttention`, which takes X, true is the other way round.
pub const MASKS: &[(&str, Keys, Meaning, Of)] = &[
    ("attn_mask", Keys::Either, Meaning::AttendIfCore, Of::Any),
    ("custom_mask", Keys::Either, Meaning::Attend, Of::Any),
    ("packed_custom_mask", Keys::Either, Meaning::Attend, Of::Any),
    ("attention_mask", Keys::Own, Meaning::Attend, Of::ItemsUnlessSquare),
    ("encoder_attention_mask", Keys::Memory, Meaning::Attend, Of::ItemsUnlessSquare),
    ("key_padding_mask", Keys::Either, Meaning::Ignore, Of::Items),
    ("src_key_padding_mask", Keys::Own, Meaning::Ignore, Of::Items),
    ("memory_key_padding_mask", Keys::Memory, Meaning::Ignore, Of::Items),
    // Where it holds 0 and 1, it is also read as the step of that name.
    ("mask", Keys::Either, Meaning::Either, Of::Any),
    ("extended_attention_mask", Keys::Own, Meaning::Either, Of::ItemsUnlessSquare),
    ("causal_mask", Keys::Own, Meaning::Either, Of::Any),
    ("padding_mask", Keys::Own, Meaning::Either, Of::Items),
    ("src_mask", Keys::Own, Meaning::Either, Of::Any),
    ("tgt_mask", Keys::Own, Meaning::Either, Of::Any),
    ("memory_mask", Keys::Memory, Meaning::Either, Of::Any),
    ("valid_mask", Keys::Either, Meaning::Attend, Of::Items),
    // Where dropout was stated, it is that of dropout.
    ("keep_mask", Keys::Either, Meaning::Attend, Of::Any),
];

/// Whether the name of a mask says that its first axis is that of the items.
pub fn states_items(FoundMask { name, mask, .. }: &FoundMask) -> bool {
    let is_square = matches!(mask.dims(), [queries, keys] if queries == keys);
    let row = MASKS.iter().find(|(own, ..)| is_called(name, &[own]));
    row.is_some_and(|(.., of)| match of {
        Of::Items => true,
        Of::ItemsUnlessSquare => !is_square,
        Of::Any => false,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    Own,
    Memory,
    Either,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    Attend,
    AttendIfCore,
    Ignore,
    Either,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Items,
    /// People call one of queries and keys so, too.
    ItemsUnlessSquare,
    Any,
}
