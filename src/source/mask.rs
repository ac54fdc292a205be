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
        let (queries, keys) = (config.query_count(), config.key_count());
        let mut shapes = Self::default();
        let mut added = Vec::new();
        if config.alibi {
            added.push(vec![config.heads, queries, keys]);
        }
        let mut blocked = Vec::new();
        if config.mask == Mask::Causal {
            blocked.push(vec![queries, keys]);
        }
        if config.key_mask.is_some() || config.lengths.is_some() {
            blocked.push(vec![config.batch, 1, 1, keys]);
        }
        if let Some(mask) = attn_mask {
            check_shape(config, "attn_mask", mask, config.seq_len)?;
            let mask = of_queries(config, mask)?;
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
            let hides = |query, key| key > query || before_window(config.window, query, key);
            blocked.push(causal(config, hides)?);
        }
        for keys in [masked_keys(config), padding(config)].into_iter().flatten() {
            let shape = (config.batch, 1, 1, config.key_count());
            blocked.push(Tensor::from_vec(keys, shape, &Device::Cpu)?);
        }
        if config.alibi {
            masks.added = Some(alibi(config, &alibi_slopes(config.heads))?);
        }
        if let Some(mask) = attn_mask {
            check_shape(config, "attn_mask", mask, config.seq_len)?;
            let mask = of_queries(config, mask)?;
            if mask.dtype().is_float() {
                if config.attn_mask_true == Some(AttnMaskTrue::Block) {
                    let what =
                        "holds floats, which are added to the scores, and attn_mask_true is block";
                    let fix = "leave attn_mask_true out, or give a mask of 0 and 1";
                    return Err(Error::tensor("attn_mask", what, fix));
                }
                masks.added = Some(match masks.added {
                    Some(alibi) => alibi.broadcast_add(&mask.to_dtype(DType::F64)?)?,
                    None => mask,
                });
            } else {
                blocked.push(blocked_by(&mask, config.attn_mask_true.unwrap_or_default())?);
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

/// (query, key), true where a mask by positions hides the key. `hides` gets the last key that the query sees under the
/// causal mask, and the key.
///
/// # Errors
/// If candle fails.
pub fn causal(config: &Config, hides: impl Fn(i64, i64) -> bool) -> Result<Tensor> {
    let (queries, keys) = (config.query_count(), config.key_count());
    let mut cells = Vec::with_capacity(queries.saturating_mul(keys));
    for query in (config.causal_offset()..).take(queries) {
        cells.extend((0_i64..).take(keys).map(|key| u8::from(hides(query, key))));
    }
    Ok(Tensor::from_vec(cells, (queries, keys), &Device::Cpu)?)
}

/// Whether a key is too far back to be among the last `window` that a query sees, itself included.
#[must_use]
pub fn before_window(window: Option<usize>, query: i64, key: i64) -> bool {
    let distance = usize::try_from(query.saturating_sub(key));
    window.is_some_and(|window| distance.is_ok_and(|distance| distance >= window))
}

/// The rows of an attention mask that are of the computed queries.
fn of_queries(config: &Config, mask: &Tensor) -> Result<Tensor> {
    let axis = mask.rank().checked_sub(2).filter(|axis| mask.dims().get(*axis) != Some(&1));
    Ok(match (config.queries, axis) {
        (Some(rows), Some(axis)) => mask.narrow(axis, rows.first, rows.count)?.contiguous()?,
        _ => mask.clone(),
    })
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

/// (head, query, key): −slope · |position of the query − position of the key|, in f64.
///
/// # Errors
/// If candle fails.
#[allow(clippy::cast_precision_loss, reason = "exact below 2^53 tokens")]
pub fn alibi(config: &Config, slopes: &[f64]) -> Result<Tensor> {
    let (queries, keys) = (config.query_count(), config.key_count());
    let mut biases = Vec::with_capacity(slopes.len().saturating_mul(queries).saturating_mul(keys));
    for slope in slopes {
        for query in (config.first_position()..).take(queries) {
            biases.extend((0..keys).map(|key| -slope * query.abs_diff(key) as f64));
        }
    }
    Ok(Tensor::from_vec(biases, (slopes.len(), queries, keys), &Device::Cpu)?)
}

/// (batch, key), true where `key_mask` has a 0.
fn masked_keys(config: &Config) -> Option<Vec<u8>> {
    let rows = config.key_mask.as_ref()?;
    Some(rows.iter().flat_map(|row| row.bytes().map(|c| u8::from(c == b'0'))).collect())
}

/// (batch, key), true from an item's length on.
fn padding(config: &Config) -> Option<Vec<u8>> {
    let count = config.key_count();
    let keys = |length: usize| (0..count).map(move |key| u8::from(key >= length));
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

/// Refuses a mask that does not broadcast to (batch, head, query, key) from the right, for so many queries.
pub fn check_shape(config: &Config, name: &str, mask: &Tensor, queries: usize) -> Result<()> {
    let &Config { batch, heads, .. } = config;
    let keys = config.key_count();
    let full = [batch, heads, queries, keys];
    let dims = mask.dims();
    let fits = |(size, full): (&usize, &usize)| size == full || *size == 1;
    if (1..=full.len()).contains(&dims.len()) && dims.iter().rev().zip(full.iter().rev()).all(fits)
    {
        return Ok(());
    }
    let what = format!(
        "is {dims:?}, which does not broadcast to (batch {batch}, head {heads}, query {queries}, key {keys})"
    );
    let fix = format!(
        "give the last of these axes, each whole or 1, as [{queries}, {keys}] or [{batch}, 1, 1, {keys}]"
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
