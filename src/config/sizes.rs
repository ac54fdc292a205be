//! How long the axes of a run are.

use super::choice::Start;
use super::divisors::split;
use super::queries::Queries;
use super::segments::chunks;
use super::settings::Settings;
use super::tokens::{Tokens, file_among};
use base::error::Result;
use program::{QueryRows, Size};

/// The number of heads where nothing says it.
pub const DEFAULT_HEADS: usize = 2;

/// The number of tokens where nothing says it.
const DEFAULT_TOKENS: usize = 4;

/// The distance of the last bucket of relative positions where nothing says it, as in `DeBERTa`'s configs.
const DEFAULT_DISTANCE: usize = 512;

/// How long the axes of a run are, every length decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// Items in the batch, B.
    pub batch: usize,
    /// Tokens in a sequence, T.
    pub seq_len: usize,
    /// Features of the output projection, and of the others unless `head_dim` or `kv_heads` say otherwise, `d_model`.
    pub d_model: usize,
    /// Features of the input X.
    pub d_in: usize,
    /// Attention heads, H. Divides `d_model`, unless `head_dim` is set.
    pub heads: usize,
    /// Heads of the keys and values, `H_kv`, each shared by heads / `kv_heads` query heads.
    pub kv_heads: usize,
    /// Heads of the values, where they are more than key heads, as in recurrences.
    pub v_heads: Option<usize>,
    /// Sequences that have a state of their own: documents of a packed row, or the items of the batch.
    pub sequences: usize,
    /// The states that are kept of an item, one before every chunk of tokens.
    pub chunks: usize,
    /// Features of a head's queries and keys, `d_k`: `d_model` / heads, unless set.
    pub head_dim: usize,
    /// Features of a head's values, `d_v`: as many, unless set.
    pub v_head_dim: usize,
    /// The latents that queries, keys and values are projected from, where the run computes any.
    pub latent: Option<Latent>,
    /// How many heads of queries and keys make one of values and outputs: 2 in differential attention, otherwise 1.
    pub per_output: usize,
    /// Whether keys and values are of a second input: then attention is cross attention.
    pub is_cross: bool,
    /// The number of keys that the run projects itself: of the second input, or of X.
    pub own_keys: usize,
    /// Features of the input that keys and values are of.
    pub d_memory: usize,
    /// Features of the values' own input, where that is not the keys'.
    pub d_memory_v: Option<usize>,
    /// Whether a learned key and value stand behind those of the tokens.
    pub has_bias_kv: bool,
    /// Whether a key and a value of zeros stand behind all others.
    pub has_zero_attn: bool,
    /// The number of keys in the cache, which stand before the run's own.
    pub past_len: usize,
    /// The query rows that are computed; nothing where all are.
    pub queries: Option<QueryRows>,
    /// The number of features that rotary positions turn.
    pub rope_dims: Option<usize>,
    /// Rows of the table of relative position biases.
    pub buckets: Option<usize>,
    /// Relative positions that have an embedding, where scores have terms of them.
    pub positions: Option<RelativePositions>,
}

/// Relative positions that have an embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelativePositions {
    /// How many there are to either side.
    pub span: usize,
    /// The distance of the last one, where they are buckets of distances.
    pub max_distance: usize,
}

impl RelativePositions {
    fn resolve(s: &Settings, keys: usize) -> Option<Self> {
        s.disentangled.as_ref()?;
        let otherwise = if s.position_buckets.is_some() { DEFAULT_DISTANCE } else { keys };
        let max_distance = s.max_relative_positions.unwrap_or(otherwise);
        Some(Self { span: s.position_buckets.unwrap_or(max_distance), max_distance })
    }
}

/// Multi-head latent attention ("DeepSeek-V2", 2024, section 2.1): keys and values are projected from a narrow latent, of
/// which a cache needs no more than that and the key that all heads share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latent {
    /// Features of the latent of queries; nothing where they are projected from X.
    pub queries: Option<usize>,
    /// Features of the latent of keys and values, `d_c`.
    pub keys: usize,
    /// Features of the key that all heads share, `d_r`, which stand behind those of each head's own. They alone turn.
    pub shared: usize,
    /// Whether queries are taken to the latent, where they meet it as the key of all heads, and outputs from it; otherwise
    /// keys and values are made of it.
    pub absorbs: bool,
}

impl Settings {
    /// How many heads of queries and keys make one of values and outputs, as [`Sizes::per_output`] has it.
    pub fn heads_per_output(&self) -> usize {
        if self.lambda_init.is_some() { 2 } else { 1 }
    }

    /// Sets the sizes that nothing states by the lists of tokens: as many items as there are rows, lengths or lists of
    /// labels, and as many tokens as the longest has. A single length says nothing of a sequence that has room for it.
    pub(super) fn measure(&mut self) {
        let rows = self.key_mask.as_deref().unwrap_or_default();
        let lengths = self.lengths.as_deref().unwrap_or_default();
        let labels: &[Vec<String>] = match &self.tokens {
            Some(Tokens::PerItem(items)) => items,
            // One label that is a file's name is refused later.
            Some(Tokens::Same(labels)) if file_among(labels).is_none() => {
                std::slice::from_ref(labels)
            }
            Some(Tokens::Same(_)) | None => &[],
        };
        let lists = if matches!(self.tokens, Some(Tokens::PerItem(_))) { labels.len() } else { 0 };
        let items = [rows.len(), lengths.len(), lists].into_iter().max().filter(|items| *items > 0);
        let of_lengths = lengths.iter().copied().max();
        let of_lengths =
            of_lengths.filter(|longest| lengths.len() > 1 || *longest > DEFAULT_TOKENS);
        // Keys of a second input are not the tokens, nor are those with a cache.
        let of_keys = rows.iter().map(String::len).max().or(of_lengths);
        let of_keys = of_keys.filter(|_| self.kv_len.is_none());
        let tokens = labels.iter().map(Vec::len).max().or(of_keys);
        let tokens = tokens.filter(|tokens| *tokens > 0 && self.past_len.is_none());
        self.batch = self.batch.or(items);
        self.seq_len = self.seq_len.or(tokens);
    }
}

impl Sizes {
    pub(super) fn resolve(s: &Settings) -> Result<Self> {
        let d_model = s.d_model.unwrap_or(8);
        let heads = s.heads.unwrap_or(DEFAULT_HEADS);
        let d_in = s.d_in.unwrap_or(d_model);
        let seq_len = s.seq_len.unwrap_or(DEFAULT_TOKENS);
        let head_dim = match s.head_dim {
            Some(head_dim) => head_dim,
            None => split(d_model, heads)?,
        };
        // What starts behind the projections has no latents.
        let latent = s.kv_lora_rank.filter(|_| s.start.unwrap_or_default() == Start::Inputs);
        let latent = latent.map(|keys| {
            let shared = s.qk_rope_head_dim.unwrap_or(0);
            Latent { queries: s.q_lora_rank, keys, shared, absorbs: s.absorb.unwrap_or(false) }
        });
        let shared = latent.map(|latent| latent.shared).filter(|shared| *shared > 0);
        let per_output = s.heads_per_output();
        Ok(Self {
            batch: s.batch.unwrap_or(1),
            seq_len,
            d_model,
            d_in,
            heads,
            kv_heads: s.kv_heads.unwrap_or(heads),
            v_heads: s.v_heads,
            sequences: match s.segments.as_ref().map(|packed| packed.0.as_slice()) {
                Some([documents]) if s.recurrence.is_some() => documents.len(),
                _ => s.batch.unwrap_or(1),
            },
            chunks: chunks(
                s.segments.as_ref(),
                s.kv_len.unwrap_or(seq_len),
                s.state_chunk.unwrap_or(1),
            ),
            head_dim,
            v_head_dim: s.v_head_dim.unwrap_or(head_dim.saturating_mul(per_output)),
            per_output,
            latent,
            is_cross: s.kv_len.is_some(),
            own_keys: s.kv_len.unwrap_or(seq_len),
            d_memory: s.d_memory.unwrap_or(d_in),
            d_memory_v: s.d_memory_v,
            has_bias_kv: s.add_bias_kv.unwrap_or(false),
            has_zero_attn: s.add_zero_attn.unwrap_or(false),
            past_len: s.past_len.unwrap_or(0),
            queries: s.queries.map(|queries| queries.of(seq_len)).transpose()?,
            rope_dims: s.rope.map(|_| s.rope_dims.or(shared).unwrap_or(head_dim)),
            buckets: s.relative_bias.map(|_| s.relative_buckets.unwrap_or(32)),
            positions: RelativePositions::resolve(s, s.kv_len.unwrap_or(seq_len)),
        })
    }

    /// The settings with these sizes in them, those that others make superfluous left out.
    pub(super) fn stated(&self, s: Settings) -> Settings {
        let usual = self.head_dim.saturating_mul(self.per_output);
        Settings {
            batch: Some(self.batch),
            seq_len: Some(self.seq_len),
            d_model: Some(self.d_model),
            heads: Some(self.heads),
            kv_heads: Some(self.kv_heads).filter(|kv_heads| *kv_heads != self.heads),
            v_heads: self.v_heads.filter(|v_heads| *v_heads != self.kv_heads),
            head_dim: Some(self.head_dim)
                .filter(|_| self.query_width() != self.d_model || s.scores.is_some()),
            v_head_dim: Some(self.v_head_dim).filter(|v_head_dim| *v_head_dim != usual),
            q_lora_rank: self.latent.and_then(|latent| latent.queries),
            kv_lora_rank: self.latent.map(|latent| latent.keys),
            qk_rope_head_dim: self.latent.map(|latent| latent.shared).filter(|shared| *shared > 0),
            absorb: self.latent.filter(|latent| latent.absorbs).map(|_| true),
            d_in: Some(self.d_in),
            kv_len: s.kv_len,
            d_memory: s.kv_len.map(|_| self.d_memory),
            add_bias_kv: self.has_bias_kv.then_some(true),
            add_zero_attn: self.has_zero_attn.then_some(true),
            past_len: Some(self.past_len).filter(|length| *length > 0),
            relative_buckets: self.buckets,
            max_relative_positions: self.positions.map(|own| own.max_distance),
            queries: self.queries.map(Queries::from),
            ..s
        }
    }

    /// The length of that name.
    pub fn of(&self, size: Size) -> usize {
        match size {
            Size::Batch => self.batch,
            Size::Tokens => self.seq_len,
            Size::Queries => self.query_count(),
            Size::OwnKeys => self.own_keys,
            Size::PastKeys => self.past_len,
            Size::Keys => self.keys(),
            Size::BiasedKeys => self.keys().saturating_add(usize::from(self.has_bias_kv)),
            Size::AllKeys => self.all_keys(),
            Size::Input => self.d_in,
            Size::Memory => self.d_memory,
            Size::Model => self.d_model,
            Size::QueryInput => self.latent.and_then(|own| own.queries).unwrap_or(self.d_in),
            Size::KeyInput => self.latent.map_or(self.d_memory, |own| own.keys),
            Size::ValueInput => self.d_memory_v.unwrap_or_else(|| self.of(Size::KeyInput)),
            Size::QueryLatent => self.latent.and_then(|own| own.queries).unwrap_or(0),
            Size::KeyLatent => self.latent.map_or(0, |own| own.keys),
            Size::QueryWidth => self.query_width(),
            Size::KeyWidth => self.kv_heads * self.key_dim(),
            Size::ValueWidth => self.value_heads() * self.v_head_dim,
            Size::ConcatWidth => self.of(Size::OutputHeads) * self.v_head_dim,
            Size::SharedWidth | Size::SharedDim => self.shared_dim(),
            Size::Heads => self.heads,
            Size::KeyHeads => self.kv_heads,
            Size::ValueHeads => self.value_heads(),
            Size::OutputHeads => self.v_heads.unwrap_or(self.heads / self.per_output),
            Size::RepeatedHeads => self.v_heads.unwrap_or(self.heads),
            Size::Sequences => self.sequences,
            Size::Chunks => self.chunks,
            // Settings say which splits and tiles there are.
            Size::One | Size::OneItem | Size::Splits | Size::Tiles => 1,
            Size::Positions => self.positions.map_or(0, |own| own.span.saturating_mul(2)),
            Size::LatentDim => self.of(Size::KeyLatent),
            Size::ScoreDim if self.absorbs() => self.of(Size::KeyLatent) + self.shared_dim(),
            Size::WeightedDim if self.absorbs() => self.of(Size::KeyLatent),
            Size::HeadDim | Size::ScoreDim => self.head_dim,
            Size::KeyDim => self.key_dim(),
            Size::ValueDim | Size::StateDim | Size::WeightedDim => self.v_head_dim,
            Size::Pairs => self.rope_dims.unwrap_or(0) / 2,
            Size::Buckets => self.buckets.unwrap_or(0),
            // A file says how many there are.
            Size::Slots => 0,
        }
    }

    /// The letters that formulas use for a length: those of the plainest length that it cannot be told from.
    pub fn symbol(&self, size: Size) -> &'static str {
        match size {
            Size::Sequences if self.sequences != self.batch => "documents",
            Size::Batch | Size::Sequences => "B",
            Size::Chunks => "chunks",
            Size::ValueHeads | Size::OutputHeads | Size::RepeatedHeads
                if self.v_heads.is_some() =>
            {
                "H_v"
            }
            Size::Queries if self.query_count() == self.seq_len => "T",
            Size::Queries => "T_q",
            Size::OwnKeys | Size::Keys if self.is_cross => "S",
            Size::Tokens | Size::OwnKeys => "T",
            Size::BiasedKeys | Size::AllKeys if self.of(size) == self.keys() => {
                self.symbol(Size::Keys)
            }
            Size::BiasedKeys | Size::AllKeys => {
                match (self.of(size) - self.keys(), self.symbol(Size::Keys)) {
                    (1, "T") => "T+1",
                    (1, _) => "S+1",
                    (_, "T") => "T+2",
                    (_, _) => "S+2",
                }
            }
            Size::Keys if self.keys() == self.seq_len => "T",
            Size::Keys => "S",
            Size::PastKeys if self.past_len == self.seq_len => "T",
            Size::PastKeys => "P",
            Size::Memory if self.is_cross && self.d_memory != self.d_in => "d_memory",
            Size::QueryInput if self.latent.is_none_or(|own| own.queries.is_none()) => {
                self.symbol(Size::Input)
            }
            Size::KeyInput if self.latent.is_none() => self.symbol(Size::Memory),
            Size::ValueInput if self.d_memory_v.is_none() => self.symbol(Size::KeyInput),
            Size::ValueInput => "d_memory_v",
            Size::Input | Size::Memory if self.d_in == self.d_model => "d_model",
            Size::Input | Size::Memory => "d_in",
            Size::WeightedDim if !self.absorbs() => self.symbol(Size::ValueDim),
            Size::ScoreDim if !self.absorbs() => self.symbol(Size::HeadDim),
            Size::ScoreDim if self.shared_dim() > 0 => "d_c+d_r",
            Size::QueryInput | Size::QueryLatent => "d_cq",
            Size::KeyInput
            | Size::KeyLatent
            | Size::LatentDim
            | Size::ScoreDim
            | Size::WeightedDim => "d_c",
            Size::SharedWidth | Size::SharedDim => "d_r",
            Size::KeyWidth if self.shared_dim() > 0 && self.kv_heads < self.heads => {
                "H_kv·(d_k−d_r)"
            }
            Size::KeyWidth if self.shared_dim() > 0 => "H·(d_k−d_r)",
            Size::KeyWidth if self.kv_heads < self.heads => "H_kv·d_k",
            Size::ValueWidth
                if self.of(size) == self.of(Size::KeyWidth) && self.shared_dim() == 0 =>
            {
                self.symbol(Size::KeyWidth)
            }
            Size::ConcatWidth if self.of(size) == self.query_width() => {
                self.symbol(Size::QueryWidth)
            }
            Size::ValueWidth if self.is_differential() && self.kv_heads < self.heads => {
                "H_kv/2·d_v"
            }
            Size::ValueWidth if self.kv_heads < self.heads => "H_kv·d_v",
            Size::ValueWidth | Size::ConcatWidth if self.is_differential() => "H/2·d_v",
            Size::ValueWidth | Size::ConcatWidth => "H·d_v",
            Size::QueryWidth | Size::KeyWidth if self.query_width() != self.d_model => "H·d_k",
            Size::Model | Size::QueryWidth | Size::KeyWidth => "d_model",
            Size::ValueHeads if self.is_differential() && self.kv_heads < self.heads => "H_kv/2",
            Size::ValueHeads | Size::OutputHeads if self.is_differential() => "H/2",
            Size::KeyHeads | Size::ValueHeads if self.kv_heads < self.heads => "H_kv",
            Size::Heads
            | Size::KeyHeads
            | Size::ValueHeads
            | Size::OutputHeads
            | Size::RepeatedHeads => "H",
            Size::One | Size::OneItem => "1",
            Size::KeyDim if self.shared_dim() > 0 => "d_k−d_r",
            Size::ValueDim | Size::StateDim if self.v_head_dim != self.head_dim => "d_v",
            Size::HeadDim | Size::KeyDim | Size::ValueDim | Size::StateDim => "d_k",
            Size::Pairs => "r/2",
            Size::Buckets => "buckets",
            Size::Positions => "positions",
            Size::Slots => "slots",
            Size::Splits => "splits",
            Size::Tiles => "tiles",
        }
    }

    /// The number of query rows that are computed.
    pub fn query_count(&self) -> usize {
        self.queries.map_or(self.seq_len, |rows| rows.count)
    }

    /// The first query row that is computed.
    pub fn first_query(&self) -> usize {
        self.queries.map_or(0, |rows| rows.first)
    }

    /// The number of keys of tokens, S: those of the cache, and the run's own.
    pub fn keys(&self) -> usize {
        self.past_len.saturating_add(self.own_keys)
    }

    /// All keys that have a score: those of tokens, and those that are added to them.
    pub fn all_keys(&self) -> usize {
        self.keys().saturating_add(self.added_keys())
    }

    /// How many keys are added to those of tokens.
    pub fn added_keys(&self) -> usize {
        usize::from(self.has_bias_kv) + usize::from(self.has_zero_attn)
    }

    /// The position of the first computed query among the keys of its sequence.
    pub fn first_position(&self) -> usize {
        self.past_len + self.first_query()
    }

    /// Features of a head's own keys, without those that all heads share.
    pub fn key_dim(&self) -> usize {
        self.head_dim.saturating_sub(self.shared_dim())
    }

    /// Features of the key that all heads share.
    pub fn shared_dim(&self) -> usize {
        self.latent.map_or(0, |latent| latent.shared)
    }

    /// Heads of the values: those of the keys, or one for each pair of them.
    pub fn value_heads(&self) -> usize {
        self.v_heads.unwrap_or(self.kv_heads / self.per_output)
    }

    /// Whether pairs of heads have one output.
    pub fn is_differential(&self) -> bool {
        self.per_output > 1
    }

    /// Whether queries are taken to the latent of keys and values.
    pub fn absorbs(&self) -> bool {
        self.latent.is_some_and(|latent| latent.absorbs)
    }

    /// Features of the queries of all heads.
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// How many query heads share a key head.
    pub fn shared(&self) -> usize {
        self.heads / self.kv_heads.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn symbol(size: Size, past: usize, settings: Settings) -> &'static str {
        let settings = Settings {
            seq_len: Some(4),
            d_model: Some(12),
            heads: Some(3),
            past_len: Some(past),
            ..settings
        };
        Config::resolve(&settings).expect("valid").sizes.symbol(size)
    }

    #[test]
    fn lengths_that_differ_have_letters_of_their_own() {
        let plain = Settings::default;
        assert_eq!(symbol(Size::PastKeys, 2, plain()), "P");
        assert_eq!(symbol(Size::PastKeys, 4, plain()), "T");
        assert_eq!(symbol(Size::Keys, 2, plain()), "S");
        assert_eq!(symbol(Size::Keys, 0, plain()), "T");
    }
}
