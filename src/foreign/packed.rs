//! Which rows of a matrix that holds several projections are of which?

use candle_core::Tensor;

use base::error::{Error, Result};
use config::{NormOver, Packing, Settings};
use program::{Name, Projection};

/// How many heads there are, where the settings say it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Heads {
    /// Query heads.
    pub queries: Option<usize>,
    /// Features of a head.
    pub head_dim: Option<usize>,
    /// How one matrix holds the projections, where its name does not tell.
    pub packing: Option<Packing>,
    /// What one norm of queries and keys runs over.
    pub norm_over: Option<NormOver>,
}

impl From<&Settings> for Heads {
    fn from(settings: &Settings) -> Self {
        let Settings { heads: queries, head_dim, packing, qk_norm_over: norm_over, .. } = *settings;
        Self { queries, head_dim, packing, norm_over }
    }
}

/// Refuses a packed bias that has not as many entries as there are rows.
pub fn refuse_other_size(name: &str, bias: &Tensor, have: &str, rows: usize) -> Result<()> {
    if bias.elem_count() == rows {
        return Ok(());
    }
    let what =
        tr!("is {dims}, and {have} {rows} rows", dims = format!("{:?}", bias.dims()), have, rows);
    Err(Error::tensor(name, what, "give a bias of that size"))
}

/// The rows of a packed matrix that are of one projection.
pub struct Part {
    /// Its weight and bias.
    pub projection: Projection,
    /// From which row on, and how many.
    pub blocks: Vec<(usize, usize)>,
}

impl Part {
    /// Its rows of a matrix, or its entries of a bias.
    ///
    /// # Errors
    /// If the matrix has not so many.
    pub fn of(&self, packed: &Tensor) -> Result<Tensor> {
        let blocks = self.blocks.iter().map(|(from, count)| packed.narrow(0, *from, *count));
        let blocks: Vec<Tensor> = blocks.collect::<Result<_, _>>()?;
        Ok(Tensor::cat(&blocks, 0)?.contiguous()?)
    }

    /// `rows 0..12`; of several blocks the first two.
    pub fn told(&self, stored: &str) -> String {
        let range = |(from, count): &(usize, usize)| format!("{from}..{}", from + count);
        let shown: Vec<String> = self.blocks.iter().take(2).map(range).collect();
        let more = if self.blocks.len() > 2 { ", …" } else { "" };
        format!("{stored} {}{more}", shown.join(", "))
    }
}

/// All queries, all keys, all values; of the queries there are as many as the output projection reads.
pub fn in_blocks(rows: usize, queries: usize) -> Vec<Part> {
    let keys = rows.saturating_sub(queries) / 2;
    let block = |projection, from, count| Part { projection, blocks: vec![(from, count)] };
    let [q, k, v, _] = Name::PROJECTIONS;
    vec![block(q, 0, queries), block(k, queries, keys), block(v, queries + keys, keys)]
}

/// Four times a fourth of the queries, of the values and of the keys, as `CodeGen` has them.
pub fn in_four(name: &str, rows: usize, queries: usize) -> Result<Vec<Part>> {
    let fourth = queries / 4;
    if rows != queries.saturating_mul(3) || !queries.is_multiple_of(4) {
        let what = tr!("has {rows} rows, which do not divide into four blocks of q, v and k", rows);
        return Err(Error::tensor(name, what, "say how it is packed: `packing=blocks`"));
    }
    let part = |projection, at: usize| {
        let block = |of: usize| ((3 * of + at) * fourth, fourth);
        Part { projection, blocks: (0..4).map(block).collect() }
    };
    let [q, k, v, _] = Name::PROJECTIONS;
    Ok(vec![part(q, 0), part(k, 2), part(v, 1)])
}

/// Of every key head its query heads, itself and its value head, as GPT-NeoX, BLOOM and Falcon have them.
pub fn by_heads(name: &str, rows: usize, queries: usize, heads: Heads) -> Result<Vec<Part>> {
    let count = heads.queries.or_else(|| queries.checked_div(heads.head_dim?));
    let Some(count) = count else {
        let what = tr!("packs q, k and v head by head, but nothing says how many heads there are");
        return Err(Error::tensor(name, what, "pass `heads=N`"));
    };
    let wrong = || {
        let what = tr!(
            "has {rows} rows, which {count} heads of q, k and v cannot share evenly",
            rows,
            count
        );
        Error::tensor(name, what, "set heads to the number of heads")
    };
    let head_dim = queries.checked_div(count).filter(|dim| *dim > 0 && dim * count == queries);
    let head_dim = head_dim.ok_or_else(wrong)?;
    let key_heads = rows.saturating_sub(queries) / (2 * head_dim);
    if key_heads == 0 || (count + 2 * key_heads) * head_dim != rows || count % key_heads != 0 {
        return Err(wrong());
    }
    let shared = count / key_heads;
    let group = |at: usize| at * (shared + 2) * head_dim;
    let part = |projection, offset: usize, heads: usize| {
        let block = |at| (group(at) + offset * head_dim, heads * head_dim);
        Part { projection, blocks: (0..key_heads).map(block).collect() }
    };
    let [q, k, v, _] = Name::PROJECTIONS;
    Ok(vec![part(q, 0, shared), part(k, shared, 1), part(v, shared + 1, 1)])
}

/// Whether a packed matrix is stored as (in, out of all).
pub fn stored_in_out(name: &str, matrix: &Tensor, output: &Tensor) -> Result<bool> {
    let [d_model, queries] = *output.dims() else {
        let what = tr!(
            "its output projection is {dims}, not a matrix",
            dims = format!("{:?}", output.dims())
        );
        return Err(Error::tensor(name, what, "give a matrix (out, in)"));
    };
    let [rows, columns] = *matrix.dims() else {
        let what = tr!("is {dims}, not a matrix", dims = format!("{:?}", matrix.dims()));
        return Err(Error::tensor(name, what, "give a matrix (out of q, k and v, in)"));
    };
    let packed = d_model.max(1).saturating_mul(3);
    let is_conv = name.ends_with("c_attn.weight");
    let is_grouped =
        rows > queries && rows <= queries.saturating_mul(3) && (rows - queries).is_multiple_of(2);
    match (rows == packed, columns == packed) {
        (true, true) => Ok(is_conv),
        (rows_fit, columns_fit) if rows_fit != columns_fit => Ok(columns_fit),
        _ if is_grouped => Ok(false),
        _ => {
            let what = tr!(
                "is {dims}, and three projections to {d_model} features would be ({packed}, in)",
                dims = format!("{:?}", matrix.dims()),
                d_model,
                packed
            );
            let fix = tr!("give q, k and v packed below each other, k and v of one size");
            Err(Error::tensor(name, what, fix))
        }
    }
}
