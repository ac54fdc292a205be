//! Which keys are seen where chunks are counted from an item's first token?

use candle_core::{Device, Tensor};

use super::found_mask::FoundMask;
use base::error::Result;
use base::memory::lacking;

impl FoundMask {
    /// A mask of keys together with chunks of so many tokens, which transformers counts from the first key of an item that
    /// is no padding; nothing where no item has padding in front, or where there is no room for it.
    ///
    /// # Errors
    /// If candle fails.
    pub fn with_chunks(&self, chunk: Option<usize>) -> Result<Option<Self>> {
        let (&[items, 1, 1, keys], Some(chunk)) = (self.mask.dims(), chunk) else {
            return Ok(None);
        };
        if self.mask.dtype().is_float() || chunk == 0 || keys == 0 {
            return Ok(None);
        }
        let seen = self.mask.ne(0.0)?.flatten_all()?.to_vec1::<u8>()?;
        let first = |item: &[u8]| item.iter().position(|seen| *seen != 0).unwrap_or(0);
        if seen.chunks(keys).all(|item| first(item) == 0) {
            return Ok(None);
        }
        let count = items.saturating_mul(keys).saturating_mul(keys);
        if lacking(count as u128).is_some() {
            return Ok(None);
        }
        let mut cells = Vec::with_capacity(count);
        for item in seen.chunks(keys) {
            let first = first(item);
            // Padding in front is in no chunk of tokens.
            let own = |place: usize| place.checked_sub(first).map(|place| place / chunk);
            for query in 0..keys {
                let is_seen = |(key, seen): (usize, &u8)| *seen != 0 && own(key) == own(query);
                cells.extend(item.iter().enumerate().map(|cell| u8::from(is_seen(cell))));
            }
        }
        let mask = Tensor::from_vec(cells, (items, 1, keys, keys), &Device::Cpu)?;
        let how = tr!(
            "{how}, and chunks of {chunk} are counted from the first token of each item",
            how = self.how,
            chunk
        );
        Ok(Some(Self { mask, how, ..self.clone() }))
    }
}
