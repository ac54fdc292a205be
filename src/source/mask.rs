//! The masks of a run: causal, keys, and a tensor from a file, combined.

use candle_core::{DType, Device, Tensor};

use crate::config::{AttnMaskTrue, Config, Mask};
use crate::error::{Error, Result};

/// The shapes of a run's masks, over the last of (batch, head, query, key).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MaskShapes {
    /// Of the boolean mask.
    pub blocked: Option<Vec<usize>>,
    /// Of the float mask.
    pub added: Option<Vec<usize>>,
}

/// The masks of a run.
#[derive(Debug, Clone, Default)]
pub struct Masks {
    /// Boolean (`U8`), true = blocked, broadcast to (batch, head, query, key) from the right.
    pub blocked: Option<Tensor>,
    /// Float, added to the scores, broadcast likewise.
    pub added: Option<Tensor>,
}

impl MaskShapes {
    /// The shapes of [`Masks::compose`]'s masks, without making them.
    ///
    /// # Errors
    /// If the attention mask does not broadcast to (batch, head, query, key).
    pub fn of(config: &Config, attn_mask: Option<&Tensor>) -> Result<Self> {
        let &Config { batch, seq_len, .. } = config;
        let mut shapes = Self::default();
        let mut added = Vec::new();
        if config.alibi {
            added.push(vec![config.heads, seq_len, seq_len]);
        }
        let mut blocked = Vec::new();
        if config.mask == Mask::Causal {
            blocked.push(vec![seq_len, seq_len]);
        }
        if config.key_mask.is_some() || config.lengths.is_some() {
            blocked.push(vec![batch, 1, 1, seq_len]);
        }
        if let Some(mask) = attn_mask {
            check_shape(config, "attn_mask", mask)?;
            if mask.dtype().is_float() {
                added.push(mask.dims().to_vec());
            } else {
                blocked.push(mask.dims().to_vec());
            }
        }
        let together = |shapes: Vec<Vec<usize>>| {
            shapes.into_iter().reduce(|left, right| broadcast(&left, &right))
        };
        shapes.blocked = together(blocked);
        shapes.added = together(added);
        Ok(shapes)
    }
}

impl Masks {
    /// The masks that the config describes, with `attn_mask` as its file holds it.
    ///
    /// # Errors
    /// If the attention mask does not broadcast to (batch, head, query, key), or is neither float nor 0 and 1.
    pub fn compose(config: &Config, attn_mask: Option<&Tensor>) -> Result<Self> {
        let mut masks = Self::default();
        let mut blocked = Vec::new();
        if config.mask == Mask::Causal {
            blocked.push(causal(config.seq_len, config.window)?);
        }
        for keys in [masked_keys(config), padding(config)].into_iter().flatten() {
            let shape = (config.batch, 1, 1, config.seq_len);
            blocked.push(Tensor::from_vec(keys, shape, &Device::Cpu)?);
        }
        if config.alibi {
            let slopes = alibi_slopes(config.heads);
            masks.added = Some(alibi(&slopes, config.seq_len)?);
        }
        if let Some(mask) = attn_mask {
            check_shape(config, "attn_mask", mask)?;
            if mask.dtype().is_float() {
                if config.attn_mask_true == Some(AttnMaskTrue::Block) {
                    let what =
                        "holds floats, which are added to the scores, and attn_mask_true is block";
                    let fix = "leave attn_mask_true out, or give a mask of 0 and 1";
                    return Err(Error::tensor("attn_mask", what, fix));
                }
                masks.added = Some(match masks.added {
                    Some(alibi) => alibi.broadcast_add(&mask.to_dtype(DType::F64)?)?,
                    None => mask.clone(),
                });
            } else {
                blocked.push(blocked_by(mask, config.attn_mask_true.unwrap_or_default())?);
            }
        }
        masks.added = masks.added.map(|added| added.to_dtype(config.dtype.into())).transpose()?;
        for mask in blocked {
            masks.blocked = Some(match masks.blocked {
                None => mask,
                Some(others) => others.broadcast_maximum(&mask)?,
            });
        }
        Ok(masks)
    }
}

/// (query, key), true where the key comes after the query, or before its window.
fn causal(tokens: usize, window: Option<usize>) -> Result<Tensor> {
    let blocks = |query: usize, key: usize| key > query || before_window(window, query, key);
    let rows =
        (0..tokens).flat_map(|query| (0..tokens).map(move |key| u8::from(blocks(query, key))));
    Ok(Tensor::from_vec(rows.collect(), (tokens, tokens), &Device::Cpu)?)
}

/// Whether a key is too far back to be among the last `window` that a query sees, itself included.
#[must_use]
pub fn before_window(window: Option<usize>, query: usize, key: usize) -> bool {
    window.is_some_and(|window| query.saturating_sub(key) >= window)
}

/// The slopes of the heads' position biases: 2^(−8/n), 2^(−16/n), … for n heads, where n is a power of two; otherwise
/// those of the next lower power, followed by every other one of the next higher, as the paper's code has it ("Train
/// Short, Test Long", Press et al., 2021, section 3).
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "heads are few")]
pub fn alibi_slopes(heads: usize) -> Vec<f64> {
    let of_power = |n: usize| (1..=n).map(move |at| (-8.0 * at as f64 / n as f64).exp2());
    if heads.is_power_of_two() {
        return of_power(heads).collect();
    }
    let lower = heads.next_power_of_two() / 2;
    of_power(lower).chain(of_power(2 * lower).step_by(2)).take(heads).collect()
}

/// (head, query, key): −slope · |query − key|, in f64.
///
/// # Errors
/// If candle fails.
#[allow(clippy::cast_precision_loss, reason = "exact below 2^53 tokens")]
pub fn alibi(slopes: &[f64], tokens: usize) -> Result<Tensor> {
    let mut biases = Vec::with_capacity(slopes.len() * tokens * tokens);
    for slope in slopes {
        for query in 0..tokens {
            biases.extend((0..tokens).map(|key| -slope * query.abs_diff(key) as f64));
        }
    }
    Ok(Tensor::from_vec(biases, (slopes.len(), tokens, tokens), &Device::Cpu)?)
}

/// (batch, key), true where `key_mask` has a 0.
fn masked_keys(config: &Config) -> Option<Vec<u8>> {
    let rows = config.key_mask.as_ref()?;
    Some(rows.iter().flat_map(|row| row.bytes().map(|c| u8::from(c == b'0'))).collect())
}

/// (batch, key), true from an item's length on.
fn padding(config: &Config) -> Option<Vec<u8>> {
    let keys = |length: usize| (0..config.seq_len).map(move |key| u8::from(key >= length));
    Some(config.lengths.as_ref()?.iter().copied().flat_map(keys).collect())
}

/// A mask of 0 and 1 (or of booleans) as true = blocked.
fn blocked_by(mask: &Tensor, meaning: AttnMaskTrue) -> Result<Tensor> {
    let ones = zeros_and_ones("attn_mask", mask)?;
    Ok(if meaning == AttnMaskTrue::Block { ones } else { ones.eq(0_u8)? })
}

/// A tensor of any type as a boolean one (`U8`).
///
/// # Errors
/// If it holds anything but 0 and 1.
pub fn zeros_and_ones(name: &str, tensor: &Tensor) -> Result<Tensor> {
    let values = tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()?;
    #[allow(clippy::float_cmp, reason = "0 and 1 exactly")]
    let other = values.iter().enumerate().find(|(_, value)| **value != 0.0 && **value != 1.0);
    if let Some((at, value)) = other {
        let what = format!("holds {value} at {:?}, neither 0 nor 1", unravel(at, tensor.dims()));
        return Err(Error::tensor(name, what, "give 0 and 1, or booleans"));
    }
    Ok(tensor.to_dtype(DType::U8)?)
}

/// The index of the element that stands at `at` in row-major order.
#[must_use]
pub fn unravel(at: usize, dims: &[usize]) -> Vec<usize> {
    let mut rest = at;
    let mut index: Vec<usize> = dims
        .iter()
        .rev()
        .map(|dim| {
            let here = rest % dim.max(&1);
            rest /= dim.max(&1);
            here
        })
        .collect();
    index.reverse();
    index
}

/// Refuses a mask that does not broadcast to (batch, head, query, key) from the right.
pub fn check_shape(config: &Config, name: &str, mask: &Tensor) -> Result<()> {
    let &Config { batch, heads, seq_len, .. } = config;
    let full = [batch, heads, seq_len, seq_len];
    let dims = mask.dims();
    let fits = |(size, full): (&usize, &usize)| size == full || *size == 1;
    if (1..=full.len()).contains(&dims.len()) && dims.iter().rev().zip(full.iter().rev()).all(fits)
    {
        return Ok(());
    }
    let what = format!(
        "is {dims:?}, which does not broadcast to (batch {batch}, head {heads}, query {seq_len}, key {seq_len})"
    );
    let fix = format!(
        "give the last of these axes, each whole or 1, as [{seq_len}, {seq_len}] or [{batch}, 1, 1, {seq_len}]"
    );
    Err(Error::tensor(name, what, fix))
}

/// The shape that two shapes broadcast to, aligned from the right.
fn broadcast(left: &[usize], right: &[usize]) -> Vec<usize> {
    let rank = left.len().max(right.len());
    let at = |shape: &[usize], from_right: usize| {
        shape.len().checked_sub(from_right).and_then(|at| shape.get(at)).copied().unwrap_or(1)
    };
    (1..=rank).rev().map(|from_right| at(left, from_right).max(at(right, from_right))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Press et al., 2021: eight heads have 1/2, 1/4 … 1/256; twelve have four of sixteen's after those.
    #[test]
    fn slopes_are_those_of_the_paper() {
        let halves: Vec<f64> = (1..=8).map(|at| 0.5_f64.powi(at)).collect();
        assert_eq!(alibi_slopes(8), halves);
        let sixteen = alibi_slopes(16);
        let some_of_sixteen = [sixteen[0], sixteen[2], sixteen[4], sixteen[6]];
        assert_eq!(alibi_slopes(12), [halves.as_slice(), &some_of_sixteen].concat());
        assert_eq!(sixteen[..1], [0.5_f64.sqrt()]);
        assert_eq!(alibi_slopes(1), [0.5_f64.powi(8)]);
        assert_eq!(alibi_slopes(3).len(), 3);
    }

    #[test]
    fn a_window_holds_the_query_itself() {
        assert!(!before_window(Some(1), 4, 4) && before_window(Some(1), 4, 3));
        assert!(!before_window(Some(3), 4, 2) && before_window(Some(3), 4, 1));
        assert!(!before_window(None, 400, 0));
    }
}
