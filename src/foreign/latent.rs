//! The weights of multi-head latent attention, as checkpoints of `DeepSeek`'s build keep them.

use candle_core::Tensor;

use super::layer::{LayerReader, Names};
use super::packed::Part;
use base::error::{Error, Result};
use program::Name;

/// The modules of one way to name them.
pub struct Modules {
    /// Queries from their latent, or from X.
    pub queries: [&'static str; 2],
    /// To the latent of queries, and the norm of that.
    to_queries: [&'static str; 2],
    /// To the latent of keys and values with the key that all heads share behind it, and the norm of the latent.
    to_keys: [&'static str; 2],
    /// Of every head its own keys, then its values.
    pub keys_and_values: &'static str,
}

/// Every way: transformers', that of `DeepSeek`'s own code, and llama.cpp's.
pub const ROWS: [Modules; 3] = [
    Modules {
        queries: ["q_b_proj", "q_proj"],
        to_queries: ["q_a_proj", "q_a_layernorm"],
        to_keys: ["kv_a_proj_with_mqa", "kv_a_layernorm"],
        keys_and_values: "kv_b_proj",
    },
    Modules {
        queries: ["wq_b", "wq"],
        to_queries: ["wq_a", "q_norm"],
        to_keys: ["wkv_a", "kv_norm"],
        keys_and_values: "wkv_b",
    },
    Modules {
        queries: ["attn_q_b", "attn_q"],
        to_queries: ["attn_q_a", "attn_q_a_norm"],
        to_keys: ["attn_kv_a_mqa", "attn_kv_a_norm"],
        keys_and_values: "attn_kv_b",
    },
];

impl<R: Fn(&str) -> Result<Option<Tensor>>> LayerReader<'_, R> {
    /// Queries and what keys and values are projected by, and the latents before them.
    pub(super) fn latent(&mut self, queries: &Names, others: &Names) -> Result<()> {
        let is_it = |row: &&Modules| others.0 == format!("{}.weight", row.keys_and_values);
        let Some(row) = ROWS.iter().find(is_it) else { return Ok(()) };
        let [q, k, v, o] = Name::PROJECTIONS;
        let [of_queries, of_keys, shared] = Name::LATENT;
        let names = |module: &str| (format!("{module}.weight"), format!("{module}.bias"));
        self.separate(q, queries)?;
        let output = self.layer.output.clone();
        self.separate(o, &output)?;
        self.separate(of_queries, &names(row.to_queries[0]))?;
        for (step, module) in [(Name::WCqNorm, row.to_queries[1]), (Name::WCkvNorm, row.to_keys[1])]
        {
            if let Some((name, weight)) = self.tensor(&names(module).0)? {
                self.take(step, &name, weight, None);
            }
        }
        let rows = |name: Name| Some(self.weights.tensors.get(&name)?.dims());
        let (Some(&[q_rows, _]), Some(&[_, o_width])) = (rows(q.0), rows(o.0)) else {
            return Ok(());
        };
        let to_keys = names(row.to_keys[0]);
        let (Some((name, packed)), Some((to_name, to))) =
            (self.tensor(&others.0)?, self.tensor(&to_keys.0)?)
        else {
            let missing = format!("{}{}", self.layer.prefix, to_keys.0);
            let what = tr!("is missing beside the other projections of latents");
            return Err(Error::tensor(missing, what, "give the layer's weights, all of them"));
        };
        let (Ok((kv_rows, rank)), Ok((to_rows, _))) = (packed.dims2(), to.dims2()) else {
            let what = tr!("is {dims}, not a matrix", dims = format!("{:?}", packed.dims()));
            return Err(Error::tensor(name, what, "give weights (out, in)"));
        };
        let features = to_rows.checked_sub(rank).filter(|features| *features > 0);
        let fitting = features.and_then(|each| {
            let (heads, own) = own_keys(q_rows, kv_rows, o_width, each)?;
            Some((heads, each, own))
        });
        let Some((heads, each, own)) = fitting else {
            let what = tr!(
                "is {dims}, which does not fit {q_rows} rows of queries, {to_rows} of the latent and {o_width} columns of the output projection",
                dims = format!("{:?}", packed.dims()),
                q_rows,
                to_rows,
                o_width
            );
            let fix = tr!("give the weights of one layer of multi-head latent attention");
            return Err(Error::tensor(name, what, fix));
        };
        let values = o_width / heads;
        let blocks = |from: usize, count: usize| {
            (0..heads).map(|head| (head * (own + values) + from, count)).collect()
        };
        let part = |projection, blocks| Part { projection, blocks };
        let of_heads = [part(k, blocks(0, own)), part(v, blocks(own, values))];
        let of_latent = [part(of_keys, vec![(0, rank)]), part(shared, vec![(rank, each)])];
        self.split((&name, &packed), &others.1, tr!("rows"), &of_heads)?;
        self.split((&to_name, &to), &to_keys.1, tr!("rows"), &of_latent)
    }
}

/// How many heads there are, and the features of a head's own keys, where so many rows are of queries and of keys and values,
/// so many columns of the output projection, and all heads share `each` features.
fn own_keys(q_rows: usize, kv_rows: usize, o_width: usize, each: usize) -> Option<(usize, usize)> {
    // H · nope = rows of keys and values − H · v, and H · rope = rows of queries − H · nope.
    let own = kv_rows.checked_sub(o_width)?;
    let turned = q_rows.checked_sub(own)?;
    let heads = turned.checked_div(each).filter(|heads| *heads > 0)?;
    let are_shared = [kv_rows, o_width].iter().all(|all| all.is_multiple_of(heads));
    (heads * each == turned && are_shared).then_some((heads, own / heads))
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::layout::{Without, pick};
    use crate::packed::Heads;

    /// What is read of a layer with so many rows of queries, of keys and values, and of latents of 5 features, and so many
    /// columns of the output projection.
    fn read([queries, keys_and_values, latents, output]: [usize; 4]) -> Result<Vec<Vec<usize>>> {
        let shapes = [
            ("q_proj", vec![queries, 6]),
            ("kv_a_proj_with_mqa", vec![latents, 6]),
            ("kv_a_layernorm", vec![5]),
            ("kv_b_proj", vec![keys_and_values, 5]),
            ("o_proj", vec![6, output]),
        ]
        .map(|(module, shape)| (format!("a.{module}.weight"), shape));
        let names: Vec<&str> = shapes.iter().map(|(name, _)| name.as_str()).collect();
        let layer = pick(&names, None, Without::default())?.expect("a layer");
        let weights = layer.weights(Heads::default(), |name| {
            let shape = shapes.iter().find(|(own, _)| own == name).map(|(_, shape)| shape.clone());
            Ok(shape.map(|shape| Tensor::zeros(shape, DType::F32, &Device::Cpu)).transpose()?)
        })?;
        let of = [Name::WQ, Name::WK, Name::WV, Name::WDkv, Name::WKr, Name::WO];
        Ok(of.map(|name| weights.tensors[&name].dims().to_vec()).to_vec())
    }

    /// Two heads with 3 features of their own, 2 that all share, and values of 4.
    #[test]
    fn keys_and_values_are_split_by_what_the_heads_share() {
        let shapes = read([10, 14, 7, 8]).expect("fits");
        assert_eq!(shapes, [[10, 6], [6, 5], [8, 5], [5, 6], [2, 6], [6, 8]]);
    }

    #[test]
    fn weights_whose_heads_do_not_come_out_even_are_refused() {
        for (wrong, sizes) in [
            ("a half of a head's turned features", [11, 14, 7, 8]),
            ("no turned features", [6, 14, 7, 8]),
            ("fewer turned features than those of a head", [10, 14, 13, 8]),
            ("rows of keys and values that heads do not share", [10, 15, 7, 9]),
            ("columns that heads do not share", [12, 16, 7, 9]),
            ("no key that all heads share", [10, 14, 5, 8]),
        ] {
            let error = read(sizes).expect_err(wrong).to_string();
            let [queries, keys_and_values, latents, output] = sizes;
            let said = format!(
                "a.kv_b_proj.weight: is [{keys_and_values}, 5], which does not fit {queries} rows of queries, {latents} \
                 of the latent and {output} columns of the output projection"
            );
            assert_eq!(error, said, "{wrong}");
        }
    }
}
