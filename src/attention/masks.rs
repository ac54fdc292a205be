//! What hides keys from queries, and what is added to their scores.

use candle_core::DType;

use super::Builder;
use base::error::Result;
use config::Mask;
use program::{
    Added, AlibiForm, Biasing, Blocked, BlockedKeys, ByPosition, Distances, Documents, Hides,
    Masking, Name, QueryRows, Relative, Selected, Size, alibi_slopes,
};

impl Builder<'_> {
    /// The boolean mask: what any of its parts blocks.
    pub(super) fn mask(&mut self) -> Result<Option<usize>> {
        if let Some(given) = self.given_outside(Name::Mask) {
            return Ok(Some(given));
        }
        let (config, sizes) = (self.config, &self.config.sizes);
        let (queries, keys) = (sizes.query_count(), sizes.keys());
        let masks = &config.masks;
        let mut parts = Vec::new();
        let is_causal = masks.between == Mask::Causal;
        let (first, shifts) = (config.first_seen(config.align()), config.shifts(config.align()));
        let window = if is_causal { Hides::BeforeWindow } else { Hides::OutsideWindow };
        let by_position = [
            (Name::CausalMask, is_causal.then_some(Hides::Future)),
            (Name::WindowMask, config.plain.window.map(window)),
            (Name::ChunkMask, config.plain.chunk.map(Hides::OtherChunk)),
        ];
        for (name, hides) in by_position {
            if let Some(hides) = hides {
                let shifts = shifts.clone();
                let mask = ByPosition { first, queries, keys, hides, shifts };
                parts.push(self.setting(name, Masking::ByPosition(mask), &[])?);
            }
        }
        let by_key = [
            (Name::KeyMask, masks.key_mask.clone().map(Blocked::Rows)),
            (Name::LengthMask, config.plain.lengths.clone().map(Blocked::Lengths)),
        ];
        for (name, by) in by_key {
            if let Some(by) = by {
                let blocked = BlockedKeys { by, keys, as_queries: None };
                parts.push(self.setting(name, Masking::Keys(blocked), &[])?);
            }
        }
        if let Some(packed) = &masks.segments {
            let rows = QueryRows { first: sizes.first_query(), count: queries };
            let (queries, keys) = (packed.queries.0.clone(), packed.keys.0.clone());
            let documents = Masking::Documents(Documents { queries, keys, rows });
            parts.push(self.setting(Name::DocumentMask, documents, &[])?);
        }
        if let Some(by) = config.plain.selected.clone() {
            let rows = QueryRows { first: sizes.first_query(), count: queries };
            let selected = Selected { by, rows, keys, heads: sizes.heads };
            parts.push(self.setting(Name::SelectionMask, selected, &[])?);
        }
        parts.extend(self.given_outside(Name::FileMask));
        if parts.is_empty() {
            return Ok(None);
        }
        self.then(Name::Mask, Masking::AnyOf, &parts).map(Some)
    }

    /// A mask or bias with columns of zeros for the keys that are added to those of tokens.
    pub(super) fn padded(&mut self, name: Name, mask: Option<usize>) -> Result<Option<usize>> {
        let (keys, count) = (self.config.sizes.keys(), self.config.sizes.added_keys());
        let Some(mask) = mask.filter(|_| count > 0) else { return Ok(mask) };
        let columns = Added::Columns { keys, count, is_blocked: false };
        self.then(name, columns, &[mask]).map(Some)
    }

    /// What is added to the scores: position biases, and a float mask.
    pub(super) fn attn_bias(&mut self, table: Option<usize>) -> Result<Option<usize>> {
        if let Some(given) = self.given_outside(Name::AttnBias) {
            return Ok(Some(given));
        }
        let (config, sizes) = (self.config, &self.config.sizes);
        let mut parts = Vec::new();
        let (queries, keys, first) = (sizes.query_count(), sizes.keys(), sizes.first_position());
        if config.plain.alibi {
            let form = config.plain.alibi_form;
            let slopes = Biasing::Slopes { slopes: alibi_slopes(sizes.heads) };
            let slopes = self.setting(Name::AlibiSlopes, slopes, &[])?;
            // Distances are those in a document.
            let shifts = config.shifts(config.align());
            let plain = Distances::new(form.distance(), first, queries, keys);
            let plain = Distances { shifts, ..plain };
            let scale = config.scale_factor();
            let narrow = |factor| Distances { is_narrow: true, factor, ..plain.clone() };
            let alibi = match form {
                AlibiForm::Falcon => narrow(scale),
                AlibiForm::FalconEager => narrow(2.0 * scale),
                AlibiForm::Paper | AlibiForm::Bloom | AlibiForm::Mpt => plain,
            };
            parts.push(self.setting(Name::Alibi, Biasing::Distances(alibi), &[slopes])?);
        }
        if let Some((sort, table)) = config.plain.relative_bias.zip(table) {
            let max_distance = config.plain.relative_max_distance;
            let buckets = sizes.of(Size::Buckets);
            let (is_backwards, is_linear) = (false, false);
            let relative = Biasing::Relative(Relative {
                sort,
                buckets,
                max_distance,
                first,
                queries,
                keys,
                is_backwards,
                is_linear,
            });
            parts.push(self.setting(Name::RelativeBias, relative, &[table])?);
        }
        parts.extend(self.given_outside(Name::GivenBias));
        parts.extend(self.given_outside(Name::FileBias));
        if parts.is_empty() {
            return Ok(None);
        }
        let sum = Biasing::Sum { dtype: DType::from(config.dtype) };
        self.then(Name::AttnBias, sum, &parts).map(Some)
    }
}
