//! What does the mask of a file block, or add, in a run?

use candle_core::{DType, Tensor};

use base::error::{Error, Result};
use config::{AttnMaskTrue, Config, Positions, Sizes};
use file::one_tensor;
use foreign::{last_segment, meanings};
use program::{Name, first_number, unravel, whole};

/// The mask of a file as the step that it is: what it blocks, or what it adds to the scores.
///
/// # Errors
/// If it does not broadcast to (batch, head, query, key), is neither float nor 0 and 1, or is float though it should say
/// what is blocked.
pub fn of_file(config: &Config, mask: &Tensor) -> Result<(Name, Tensor)> {
    let (name, mask) = shape_of_file(config, mask)?;
    let meaning = config.masks.attn_mask_true.unwrap_or_default();
    if name == Name::FileBias {
        if meaning == AttnMaskTrue::Block {
            let what =
                tr!("holds floats, which are added to the scores, but attn_mask_true is block");
            let fix = tr!("leave attn_mask_true out, or give a mask of 0 and 1");
            return Err(Error::tensor("attn_mask", what, fix));
        }
        return Ok((name, mask));
    }
    let ones = zeros_and_ones("attn_mask", &mask)?;
    Ok((name, if meaning == AttnMaskTrue::Block { ones } else { ones.eq(0_u8)? }))
}

/// The same without a look at its numbers, for its shape.
pub fn shape_of_file(config: &Config, mask: &Tensor) -> Result<(Name, Tensor)> {
    let queries = config.sizes.seq_len;
    let mask = with_heads(config, mask, queries)?;
    check_shape(config, "attn_mask", &mask, queries)?;
    Ok((sort_of_file(&mask), of_queries(config, &mask)?))
}

/// (batch · head, query, key), as `nn.MultiheadAttention` takes it, and (batch, query, key) or (batch, key), to which code
/// adds the axis of heads by itself, with that axis. What broadcasts as it is stays.
pub fn with_heads(config: &Config, mask: &Tensor, queries: usize) -> Result<Tensor> {
    let Sizes { batch, heads, .. } = config.sizes;
    let shape = match *mask.dims() {
        _ if broadcasts(config, mask.dims(), queries) => None,
        [both, queries, keys] if batch.checked_mul(heads) == Some(both) => {
            Some([batch, heads, queries, keys])
        }
        _ => shape_of_items(mask.dims(), batch),
    };
    Ok(shape.map_or(Ok(mask.clone()), |shape| mask.reshape(&shape[..]))?)
}

/// The lengths of (batch, head, query, key) for those of (batch, query, key) or (batch, key); nothing for others.
pub fn shape_of_items(dims: &[usize], batch: usize) -> Option<[usize; 4]> {
    match *dims {
        [items, queries, keys] if items == batch => Some([items, 1, queries, keys]),
        [items, keys] if items == batch => Some([items, 1, 1, keys]),
        _ => None,
    }
}

/// Whether these axes broadcast to (batch, head, query, key) from the right, for so many queries.
fn broadcasts(config: &Config, dims: &[usize], queries: usize) -> bool {
    let Sizes { batch, heads, .. } = config.sizes;
    let full = [batch, heads, queries, config.sizes.keys()];
    let fits = |(size, full): (&usize, &usize)| size == full || *size == 1;
    (1..=full.len()).contains(&dims.len()) && dims.iter().rev().zip(full.iter().rev()).all(fits)
}

/// The position biases of a file, of the queries that are computed.
///
/// # Errors
/// If they do not broadcast to (batch, head, query, key), or are no floats.
pub fn biases_of_file(config: &Config, biases: &Tensor) -> Result<Tensor> {
    if !biases.dtype().is_float() {
        let what = tr!("holds no floats, but it is added to the scores");
        return Err(Error::tensor("attn_bias", what, "give a mask of 0 and 1 by `attn_mask=FILE`"));
    }
    check_shape(config, "attn_bias", biases, config.sizes.seq_len)?;
    of_queries(config, biases)
}

/// Which step the mask of a file is.
pub fn sort_of_file(mask: &Tensor) -> Name {
    if mask.dtype().is_float() { Name::FileBias } else { Name::FileMask }
}

/// The rows of an attention mask that are of the computed queries.
fn of_queries(config: &Config, mask: &Tensor) -> Result<Tensor> {
    let axis = mask.rank().checked_sub(2).filter(|axis| mask.dims().get(*axis) != Some(&1));
    Ok(match (config.sizes.queries, axis) {
        (Some(rows), Some(axis)) => mask.narrow(axis, rows.first, rows.count)?.contiguous()?,
        _ => mask.clone(),
    })
}

/// A tensor of any type as a boolean one (`U8`).
///
/// # Errors
/// If it holds anything but 0 and 1.
pub fn zeros_and_ones(name: &str, tensor: &Tensor) -> Result<Tensor> {
    #[allow(clippy::float_cmp, reason = "0 and 1 exactly")]
    let is_other = |value: f64| value != 0.0 && value != 1.0;
    if let Some((at, value)) = first_number(tensor, is_other)? {
        let what = tr!(
            "holds {value} at {dims}, which is neither 0 nor 1",
            value,
            dims = format!("{:?}", unravel(at, tensor.dims()))
        );
        return Err(Error::tensor(name, what, "give 0 and 1, or booleans"));
    }
    Ok(tensor.to_dtype(DType::U8)?)
}

/// Refuses a mask that does not broadcast to (batch, head, query, key) from the right, for so many queries.
pub fn check_shape(config: &Config, name: &str, mask: &Tensor, queries: usize) -> Result<()> {
    let Sizes { batch, heads, .. } = config.sizes;
    let (keys, dims) = (config.sizes.keys(), mask.dims());
    if broadcasts(config, dims, queries) {
        return Ok(());
    }
    let what = tr!(
        "is {dims}, which does not broadcast to (batch {batch}, head {heads}, query {queries}, key {keys})",
        dims = format!("{dims:?}"),
        batch,
        heads,
        queries,
        keys
    );
    let fix = tr!(
        "give the last of these axes, each in full or as 1: for example [{queries}, {keys}] or [{batch}, 1, 1, {keys}]",
        queries,
        keys,
        batch
    );
    Err(Error::tensor(name, what, fix))
}

/// The rows of a key mask (batch, key), as a config states them, from `FILE` or `FILE:TENSOR`.
///
/// # Errors
/// If the file cannot be read, or does not hold such a tensor of 0 and 1.
pub fn key_mask_rows(place: &str) -> Result<Vec<String>> {
    let may_be = |name: &str| meanings(name).contains(&Name::KeyMask);
    let (mask, _) = one_tensor(place, "key_mask", may_be)?;
    let [rows, _] = dims(&mask, "key_mask", "(batch, key)")?;
    let shape = format!("{:?}", mask.dims());
    let fix = "give a row of 0 and 1 for every batch item";
    if rows == 0 {
        return Err(Error::tensor("key_mask", tr!("is {shape}, which has no rows", shape), fix));
    }
    // A file of no byte can say that it has any number of such rows.
    if mask.elem_count() == 0 {
        return Err(Error::tensor("key_mask", tr!("is {shape}, which has no keys", shape), fix));
    }
    let rows = zeros_and_ones("key_mask", &mask)?.to_vec2::<u8>()?;
    let text = |row: Vec<u8>| row.into_iter().map(|bit| if bit == 1 { '1' } else { '0' }).collect();
    Ok(rows.into_iter().map(text).collect())
}

/// Positions of tokens, as a config states them, from `FILE` or `FILE:TENSOR`: (token), (batch, token), or of time, height
/// and width (3, batch, token).
///
/// # Errors
/// If the file cannot be read, or does not hold such a tensor of whole numbers from 0 up.
pub fn positions_of(place: &str) -> Result<Positions> {
    let may_be = |name: &str| last_segment(name).eq_ignore_ascii_case("position_ids");
    positions_in(&one_tensor(place, "positions", may_be)?.0)
}

/// The same of a tensor.
///
/// # Errors
/// If it does not hold such whole numbers.
pub fn positions_in(tensor: &Tensor) -> Result<Positions> {
    let axes = tr!("(token), (batch, token) or (3, batch, token)");
    let [sections, items, tokens] = match *tensor.dims() {
        [tokens] => [1, 1, tokens],
        [items, tokens] => [1, items, tokens],
        _ => dims(tensor, "positions", axes)?,
    };
    if tensor.elem_count() == 0 {
        let what = tr!("is {shape}, which has no tokens", shape = format!("{:?}", tensor.dims()));
        return Err(Error::tensor("positions", what, "give whole numbers from 0 up"));
    }
    let numbers = tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()?;
    let position = |number: &f64| {
        whole(*number).ok_or_else(|| {
            let what = tr!("holds {number}, which is not a position", number);
            Error::tensor("positions", what, "give whole numbers from 0 up")
        })
    };
    let numbers = numbers.iter().map(position).collect::<Result<Vec<usize>>>()?;
    let row = |at: usize| numbers.iter().skip(at * tokens).take(tokens).copied().collect();
    let of = |section: usize| (0..items).map(|item| row(section * items + item)).collect();
    Ok(Positions::new((0..sections).map(of).collect()))
}

/// The lengths of a tensor's axes, as many as `axes` names.
pub fn dims<const N: usize>(
    tensor: &Tensor,
    name: impl Into<String>,
    axes: &str,
) -> Result<[usize; N]> {
    <[usize; N]>::try_from(tensor.dims()).map_err(|_| {
        let what = tr!(
            "is {dims}, which has {rank} axes; {axes} is needed",
            dims = format!("{:?}", tensor.dims()),
            rank = tensor.rank(),
            axes
        );
        Error::tensor(name, what, tr!("give a tensor of shape {axes}", axes))
    })
}
