//! What if keys and values beside those of tokens are not added?

use super::Grammar;
use crate::candidate::cost;
use candle_core::{Device, Tensor};
use program::{Block, Change, Edit, Kind, Name, Slip};

impl Grammar<'_> {
    /// What is as if there were no learned key, none of zeros, or neither: none of them has a score.
    pub(super) fn added(&mut self) {
        let sizes = self.sizes;
        let (first, count) = (sizes.keys(), sizes.added_keys());
        let learned = usize::from(sizes.has_bias_kv);
        let all = [
            (
                sizes.has_bias_kv,
                Name::KWithBias,
                first,
                1,
                tr!("the learned key and value are not appended"),
            ),
            (
                sizes.has_zero_attn,
                Name::KWithZero,
                first + learned,
                1,
                tr!("the key and value of zeros are not appended"),
            ),
            (
                count == 2,
                Name::KWithBias,
                first,
                2,
                tr!("neither the learned key and value nor those of zeros are appended"),
            ),
        ];
        // Of all of them that is what a mask does which is padded as blocked.
        let is_masked = self.right.mask_of_scores().is_some();
        let is_new = |count: usize| !is_masked || count < sizes.added_keys();
        for (_, at, from, count, told) in
            all.into_iter().filter(|(is_there, _, _, count, _)| *is_there && is_new(*count))
        {
            let hidden = (0..sizes.keys() + sizes.added_keys())
                .map(|key| u8::from((from..from + count).contains(&key)));
            let Ok(cells) = Tensor::from_iter(hidden, &Device::Cpu) else { continue };
            let block = Slip::Block(Block { cells, fill: f64::NEG_INFINITY });
            let hidden = Change::before(0, block);
            let edits = vec![Edit::new(Name::Weights, hidden)];
            self.add_all(Kind::Omitted, cost::COMMON, edits, at, told);
        }
    }
}
