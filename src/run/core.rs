//! What given queries, keys and values, or scores, say of the run that starts at them.

use candle_core::Tensor;

use super::masks::dims;
use super::sources::Sources;
use base::error::{Error, Result};
use config::{Config, DEFAULT_HEADS, Settings, Start, split};
use program::Name;

impl Sources {
    /// Where the run starts by its tensors, if it is given queries.
    pub fn start(&self) -> Option<Start> {
        [Start::Scores, Start::Heads, Start::Projections]
            .into_iter()
            .find(|start| start.given().iter().any(|step| self.given_as(*step).is_some()))
    }

    /// A step that a run starts at, or what stands for it in few bits, and its tensor.
    pub(super) fn given_as(&self, step: Name) -> Option<(Name, &Tensor)> {
        std::iter::once(step)
            .chain(step.stand_ins())
            .find_map(|step| self.tensor(step).map(|tensor| (step, tensor)))
    }

    /// What the shapes of given queries, keys and values say of the run.
    pub(super) fn core_sizes(&self, start: Start, settings: &Settings) -> Result<Settings> {
        if start == Start::Scores {
            return self.score_sizes(settings);
        }
        let tensor = |slot: usize| {
            let step = start.given()[slot];
            let missing = || {
                let fix = tr!("give all three: q, k and v");
                Error::tensor(["q", "k", "v"][slot], "is neither recorded nor given", fix)
            };
            self.given_as(step).ok_or_else(missing)
        };
        let [queries, keys, values] = [tensor(0)?, tensor(1)?, tensor(2)?];
        // (batch, head, token, feature), of what is not yet split into heads as `split` has it.
        let in_heads = |tensor: (Name, &Tensor), split: &Split| {
            if start == Start::Heads {
                return heads_of(tensor);
            }
            let [batch, tokens, width] = projected(tensor)?;
            let (heads, features) = split(width)?;
            Ok([batch, heads, tokens, features])
        };
        let of_q = in_heads(queries, &|width| shared(queries.0, width, settings))?;
        let [batch, heads, tokens, head_dim] = of_q;
        let of_k = in_heads(keys, &|width| {
            if width.is_multiple_of(head_dim) {
                return Ok((width / head_dim, head_dim));
            }
            let what = tr!(
                "has {width} features, which do not divide into heads of {head_dim}",
                width,
                head_dim
            );
            Err(Error::tensor(keys.0, what, "set heads so that head_dim fits"))
        })?;
        let slots = self.tensor(Name::Slots).map(Tensor::elem_count);
        let of_k = [of_k[0], of_k[1], slots.unwrap_or(of_k[2]), of_k[3]];
        let [_, kv_heads, own_keys, _] = of_k;
        // Values have as many heads as keys, or one for each pair of them, and perhaps other features.
        let value_heads = match (settings.recurrence, start) {
            (Some(_), Start::Heads) => heads_of(values)?[1],
            _ => kv_heads / settings.heads_per_output(),
        };
        let of_v = in_heads(values, &|width| {
            let each = width.checked_div(value_heads).filter(|each| each * value_heads == width);
            Ok((value_heads, each.unwrap_or(0)))
        })?;
        let of_v = [of_v[0], of_v[1], slots.unwrap_or(of_v[2]), of_v[3]];
        refuse_misfits([(queries, of_q), (keys, of_k), (values, of_v)], value_heads)?;
        // Of some rows alone the number of all is stated.
        let stated = settings.seq_len.filter(|stated| {
            let rows = settings.queries.and_then(|queries| queries.of(*stated).ok());
            rows.is_some_and(|rows| rows.count == tokens)
        });
        let seq_len = stated.unwrap_or(tokens);
        Ok(Settings {
            start: Some(start),
            batch: Some(batch),
            seq_len: Some(seq_len),
            heads: Some(heads),
            kv_heads: Some(kv_heads),
            v_heads: Some(value_heads)
                .filter(|own| settings.recurrence.is_some() && *own != kv_heads),
            head_dim: Some(head_dim),
            v_head_dim: Some(of_v[3]),
            d_model: heads.checked_mul(head_dim),
            kv_len: Some(own_keys).filter(|keys| *keys != seq_len || settings.kv_len.is_some()),
            ..Settings::default()
        })
    }

    /// The settings of a run that starts at scores: what the model and its heads have says what a head has. Scores can be
    /// of one head of them.
    pub(super) fn of_scored_heads(&self, settings: &Settings) -> Result<Settings> {
        let mut settings = settings.clone();
        let heads = self.tensor(Name::ScoresRaw).and_then(|scores| scores.dims().get(1).copied());
        if let (Some(Start::Scores), Some(own), Some(d_model), Some(heads)) =
            (self.start(), heads, settings.d_model, settings.heads)
            && settings.head_dim.is_none_or(|head_dim| head_dim.checked_mul(heads) == Some(d_model))
        {
            settings.head_dim = Some(split(d_model, heads)?);
            if own == 1 {
                (settings.d_model, settings.heads) = (None, None);
            }
        }
        Ok(settings)
    }

    /// What the shape of given scores says of the run.
    fn score_sizes(&self, settings: &Settings) -> Result<Settings> {
        let Some(scores) = self.tensor(Name::ScoresRaw) else { return Ok(Settings::default()) };
        let axes = "(batch, head, query, key)";
        let [batch, heads, queries, keys] = dims(scores, Name::ScoresRaw, axes)?;
        if settings.head_dim.is_none() && settings.scale.is_none() {
            let fix = tr!(
                "set `head_dim`, or `d_model` and `heads`: scores are divided by the root of what a head has; or pass \
                 `scale=1` for scores that are scaled already"
            );
            return Err(Error::config("scores alone do not say what they are divided by", fix));
        }
        Ok(Settings {
            start: Some(Start::Scores),
            batch: Some(batch),
            seq_len: Some(queries),
            heads: Some(heads),
            d_model: settings
                .head_dim
                .and_then(|head_dim| heads.checked_mul(head_dim))
                .or(Some(heads)),
            kv_len: Some(keys).filter(|keys| *keys != queries || settings.kv_len.is_some()),
            ..Settings::default()
        })
    }

    /// The rows of given queries that are computed.
    pub(super) fn computed_rows(config: &Config, step: Name, tensor: Tensor) -> Result<Tensor> {
        let axis = match step {
            Name::Q => 1,
            Name::QHeads => 2,
            _ => return Ok(tensor),
        };
        match config.sizes.queries {
            Some(rows) if tensor.dims().get(axis) == Some(&config.sizes.seq_len) => {
                Ok(tensor.narrow(axis, rows.first, rows.count)?.contiguous()?)
            }
            Some(_) | None => Ok(tensor),
        }
    }
}

/// How a width is shared among heads: their number, and the features of each.
type Split<'a> = dyn Fn(usize) -> Result<(usize, usize)> + 'a;

/// Refuses queries, keys and values, each with its shape (batch, head, token, feature), that do not fit each other. Values
/// are to have so many heads.
fn refuse_misfits(
    [(queries, of_q), (keys, of_k), (values, of_v)]: [((Name, &Tensor), [usize; 4]); 3],
    value_heads: usize,
) -> Result<()> {
    let fits = [
        (of_k[0] == of_q[0], keys, tr!("as many batch items as queries")),
        (of_k[3] == of_q[3], keys, tr!("as many features per head as queries have")),
        (
            of_q[1].is_multiple_of(of_k[1].max(1)),
            keys,
            tr!("a number of heads that divides the number of query heads"),
        ),
        (
            of_v[..3] == [of_k[0], value_heads, of_k[2]],
            values,
            tr!("the same batch, heads and tokens as the keys"),
        ),
        (of_v[3] > 0, values, tr!("as many features in each of the keys' heads")),
    ];
    let Some((_, (step, tensor), needed)) = fits.into_iter().find(|(fits, ..)| !fits) else {
        return Ok(());
    };
    let (other, beside) = if step == keys.0 { queries } else { keys };
    let what = tr!(
        "is {dims}, but {other} is {dims_2}; it needs {needed}",
        dims = format!("{:?}", tensor.dims()),
        other,
        dims_2 = format!("{:?}", beside.dims()),
        needed
    );
    let fix =
        tr!("give q, k and v of the same attention; `qkv_format` gives the order of their axes");
    Err(Error::tensor(step, what, fix))
}

fn heads_of((step, tensor): (Name, &Tensor)) -> Result<[usize; 4]> {
    not_empty(step, tensor)?;
    dims(tensor, step, "(batch, head, token, head_dim)")
}

fn projected((step, tensor): (Name, &Tensor)) -> Result<[usize; 3]> {
    not_empty(step, tensor)?;
    dims(tensor, step, "(batch, token, heads · head_dim)")
}

fn not_empty(step: Name, tensor: &Tensor) -> Result<()> {
    if tensor.elem_count() > 0 {
        return Ok(());
    }
    let what = tr!("is {dims}, which is empty", dims = format!("{:?}", tensor.dims()));
    Err(Error::tensor(step, what, "give at least one token, head and feature"))
}

/// The heads that a width is shared by, and the features of each.
fn shared(step: Name, width: usize, settings: &Settings) -> Result<(usize, usize)> {
    let preset = settings.preset.unwrap_or_default().settings();
    let heads = match (settings.heads, settings.head_dim) {
        (None, Some(head_dim)) => width.checked_div(head_dim).unwrap_or(0),
        (heads, _) => heads.or(preset.heads).unwrap_or(DEFAULT_HEADS),
    };
    let head_dim = width.checked_div(heads).unwrap_or(0);
    if heads.checked_mul(head_dim) == Some(width) {
        return Ok((heads, head_dim));
    }
    let what = tr!("has {width} features, which {heads} heads cannot share evenly", width, heads);
    Err(Error::tensor(step, what, "set heads, or head_dim, to a divisor"))
}
