//! What settings are refused, and why.

use super::{
    AttnMaskTrue, Config, DType, End, Mask, Norm, NormOver, RelativeBias, RelativeBiases, Setting,
    Settings, Sizes, Start, given, positions,
};
use base::error::{Error, Message, Result, quoted};
use program::grid;

/// Refuses settings: what is wrong, and what to do.
pub fn refuse<T>(what: impl Into<Message>, fix: impl Into<Message>) -> Result<T> {
    Err(Error::config(what, fix))
}

/// Features of a head where none are set.
pub fn split(d_model: usize, heads: usize) -> Result<usize> {
    match d_model.checked_div(heads) {
        Some(head_dim) if head_dim * heads == d_model => Ok(head_dim),
        Some(_) => refuse(
            tr!("heads {heads} does not divide d_model {d_model}", heads, d_model),
            tr!(
                "every head gets d_model / heads features: try heads {divisor}, or set `head_dim`",
                divisor = would_divide(heads, d_model)
            ),
        ),
        None => refuse("heads is 0", "give heads at least 1"),
    }
}

/// The nearest divisors, looked for so far as an answer comes at once.
fn would_divide(divisor: usize, size: usize) -> String {
    const FAR: usize = 100_000;
    let divides = |n: &usize| size.is_multiple_of(*n);
    let below = (1..=divisor.min(size)).rev().take(FAR).find(divides).unwrap_or(1);
    let above = (divisor..=size).take(FAR).find(divides);
    match above {
        Some(above) if above != below => tr!("{below} or {above}", below, above),
        _ => below.to_string(),
    }
}

/// Refuses settings that say something of another one that is absent.
pub fn companions(s: &Settings) -> Result<()> {
    if s.attn_mask.is_none() && s.attn_mask_true == Some(AttnMaskTrue::Block) {
        let what = tr!("attn_mask_true is block, and there is no attn_mask");
        return refuse(what, "give attn_mask, or leave attn_mask_true out");
    }
    for setting in Setting::ALL.iter().filter(|setting| setting.is_set(s)) {
        // Those scale queries too.
        let is_used = setting.key == "positions" && s.q_temperature.is_some();
        if let Some(needed) = setting.of.filter(|_| !is_used)
            && Setting::named(needed).is_some_and(|needed| !needed.is_set(s))
        {
            let name = setting.key;
            let what =
                tr!("{name} is set, and {needed}, which it belongs to, is not", name, needed);
            return refuse(what, tr!("give {needed}, or leave {name} out", needed, name));
        }
    }
    given::check(s)?;
    if s.rope_scaling.is_some() && s.rope_freqs.is_some() {
        let what = tr!("rope_scaling changes frequencies, and rope_freqs gives them as they are");
        return refuse(what, "leave one of the two out");
    }
    if let Some(path) = &s.model_config {
        let what = tr!("model_config {path} has not been read", path = quoted(&path.0));
        return refuse(what, "complete the settings by it first");
    }
    Ok(())
}

impl Config {
    pub(super) fn check(&self) -> Result<()> {
        if self.start == Start::Scores && self.end != End::Weights {
            let what =
                tr!("end is {end}, and a run that starts at scores has no values", end = self.end);
            return refuse(what, "leave out end: it ends at the weights");
        }
        let Sizes { heads, kv_heads, head_dim, .. } = &self.sizes;
        let sizes = [
            ("batch", self.sizes.batch),
            ("seq_len", self.sizes.seq_len),
            ("d_model", self.sizes.d_model),
            ("heads", *heads),
            ("kv_heads", *kv_heads),
            ("head_dim", *head_dim),
            ("v_head_dim", self.sizes.v_head_dim),
            ("d_in", self.sizes.d_in),
            ("kv_len", self.sizes.own_keys),
            ("d_memory", self.sizes.d_memory),
            ("d_memory_v", self.sizes.d_memory_v.unwrap_or(1)),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return refuse(tr!("{name} is 0", name), tr!("give {name} at least 1", name));
        }
        let larger = *head_dim.max(&self.sizes.v_head_dim);
        if heads.checked_mul(larger).is_none() {
            let what = tr!(
                "{heads} heads of {larger} features are more than can be counted",
                heads,
                larger
            );
            return refuse(what, "give smaller heads or head_dim");
        }
        if !heads.is_multiple_of(*kv_heads) {
            let what = tr!("kv_heads {kv_heads} does not divide heads {heads}", kv_heads, heads);
            let fix = tr!("every key head serves heads / kv_heads query heads");
            return refuse(
                what,
                tr!("{fix}: try kv_heads {heads}", fix, heads = would_divide(*kv_heads, *heads)),
            );
        }
        if !(0.0..=1.0).contains(&self.dropout) {
            let what = tr!("dropout {dropout} is not a probability", dropout = self.dropout);
            return refuse(what, "give a number from 0 to 1");
        }
        self.check_latent()?;
        self.check_added()?;
        self.check_positions()?;
        self.check_scores()?;
        self.check_fill()?;
        self.check_key_mask()?;
        self.check_lengths()?;
        self.check_segments()?;
        self.check_tokens()
    }

    /// What speaks of positions needs one sequence.
    fn check_positions(&self) -> Result<()> {
        if self.sizes.is_cross {
            let of_one_sequence = [
                ("rope", self.rope.is_some(), tr!("turns queries and keys by their positions")),
                ("alibi", self.alibi.is_some(), tr!("is the distance of queries and keys")),
                (
                    "relative_bias",
                    self.relative.is_some(),
                    tr!("is of the distances of queries and keys"),
                ),
                ("past", self.sizes.past_len > 0, tr!("holds earlier keys")),
            ];
            if let Some((name, _, why)) = of_one_sequence.iter().find(|(_, is_set, _)| *is_set) {
                let what =
                    tr!("{name} {why} in one sequence, and cross attention has two", name, why);
                return refuse(what, tr!("leave {name} out, or kv_len and memory", name));
            }
        }
        if self.masks.causal_align.is_some() && self.masks.between == Mask::None {
            let what = tr!("causal_align is of the causal mask, and mask is none");
            return refuse(what, "pass `mask=causal`, or leave causal_align out");
        }
        if let Some(relative) = self.relative {
            self.check_relative(relative)?;
        }
        self.check_norms()?;
        if let (None, Some(positions)) = (&self.rope, &self.positions) {
            positions::check(&positions.plain(), &self.sizes, 0)?;
        }
        self.rope.as_ref().map_or(Ok(()), |rope| rope.check(&self.sizes))
    }

    /// What norms add, and what later models do beside them.
    fn check_norms(&self) -> Result<()> {
        let added = [
            ("lora_norm_eps", Some(self.latent_eps)),
            ("qk_norm_eps", self.norm.map(|norm| norm.eps)),
            ("v_norm_eps", self.v_norm_eps),
            ("concat_norm_eps", self.concat_norm_eps),
        ];
        for (name, eps) in added {
            if let Some(eps) = eps.filter(|eps| !(*eps >= 0.0 && eps.is_finite())) {
                let what = tr!("{name} {eps} is no number to add", name, eps);
                return refuse(what, "give a small one, such as 1e-6");
            }
        }
        if let Some(Norm { kind, over: NormOver::PerHead, .. }) = self.norm
            && !kind.has_weight()
        {
            let what =
                tr!("qk_norm_over per-head gives each head a weight, and {kind} has none", kind);
            return refuse(what, "leave qk_norm_over out");
        }
        if let Some(Norm { over: NormOver::All, after_rope: true, .. }) = self.norm {
            let what = tr!("qk_norm_over all is of queries and keys before their rotation");
            return refuse(what, "leave qk_norm_over or qk_norm_after_rope out");
        }
        if let Some(limit) = self.clip_qkv.filter(|limit| !(*limit > 0.0 && limit.is_finite())) {
            let what = tr!("clip_qkv {limit} is no limit", limit);
            return refuse(what, "give a number above 0, such as 8");
        }
        let factors = [
            ("value_scale", self.value_scale),
            ("q_temperature", self.temperature.map(|own| own.scale)),
        ];
        if let Some((name, Some(factor))) =
            factors.into_iter().find(|(_, factor)| factor.is_some_and(|own| !own.is_finite()))
        {
            return refuse(
                tr!("{name} {factor} is not a number", name, factor),
                "give one, such as 0.1",
            );
        }
        if self.temperature.is_some_and(|own| own.floor == 0) {
            let what = tr!("q_temperature_floor 0 divides nothing");
            return refuse(what, "give it at least 1, such as 8192");
        }
        let offset = self.temperature.map_or(0, |own| own.offset);
        if offset >= 1 << 24 {
            let what = tr!("q_temperature_offset {offset} is beyond what f32 counts", offset);
            return refuse(what, "give a position below 2^24");
        }
        if self.gate.is_some() && self.start != Start::Inputs && self.end == End::Output {
            let what = tr!("gate is a projection of x, and the run starts behind it");
            return refuse(what, "leave gate out, or end before it: `end=concat`");
        }
        Ok(())
    }

    /// Buckets are enough to be told apart, and a grid has as many places as there are tokens.
    fn check_relative(&self, relative: RelativeBiases) -> Result<()> {
        let buckets = self.sizes.buckets.unwrap_or(0);
        let exact = match relative.sort {
            RelativeBias::Bidirectional => buckets / 4,
            RelativeBias::OneSided => buckets / 2,
            RelativeBias::Grid => {
                let Some((side, has_class)) = grid(buckets) else {
                    let what =
                        tr!("relative_buckets {buckets} are not those of a square grid", buckets);
                    let fix =
                        tr!("give (2 side − 1)², or 3 more where the first token is none of it");
                    return refuse(what, fix);
                };
                let (tokens, keys) = (side * side + usize::from(has_class), self.sizes.keys());
                if tokens == keys {
                    return Ok(());
                }
                let what = tr!(
                    "relative_buckets {buckets} are of {tokens} tokens, not {keys}",
                    buckets,
                    tokens,
                    keys
                );
                return refuse(what, "give a table of the same grid, or other tokens");
            }
        };
        if exact == 0 {
            let what =
                tr!("relative_buckets {buckets} are too few to tell distances apart", buckets);
            return refuse(what, "give at least 4, such as 32");
        }
        if relative.max_distance <= exact {
            let distance = relative.max_distance;
            let what = tr!(
                "relative_max_distance {distance} is within the {exact} distances with a bucket each",
                distance,
                exact
            );
            return refuse(what, "give a larger one, such as 128");
        }
        Ok(())
    }

    /// Labels are of all tokens, in every batch item.
    fn check_tokens(&self) -> Result<()> {
        let Sizes { batch, seq_len, past_len, own_keys, .. } = self.sizes;
        let with_cache = past_len.saturating_add(seq_len);
        let labelled = [
            ("tokens", &self.tokens, [seq_len, with_cache]),
            ("memory_tokens", &self.memory_tokens, [own_keys; 2]),
        ];
        for (name, tokens, sizes) in labelled {
            if let Some(tokens) = tokens {
                tokens.check(name, batch, sizes)?;
            }
        }
        Ok(())
    }

    fn check_scores(&self) -> Result<()> {
        match self.masks.chunk {
            Some(0) => return refuse("chunk 0 shows no key", "give chunk at least 1"),
            Some(_) if self.sizes.is_cross => {
                let what = tr!("chunk is of one sequence, and cross attention has two");
                return refuse(what, "leave chunk out, or kv_len and memory");
            }
            Some(_) | None => {}
        }
        match (self.masks.window, self.masks.between, self.softcap, self.scale) {
            (Some(0), ..) => refuse("window 0 shows no key", "give window at least 1"),
            (Some(_), Mask::None, ..) if self.sizes.is_cross => refuse(
                "window is under the causal mask, which cross attention has only if it is asked for",
                "pass `mask=causal`, or leave window out",
            ),
            (_, _, Some(cap), _) if !(cap > 0.0 && cap.is_finite()) => {
                refuse(tr!("softcap {cap} caps nothing", cap), "give a number above 0, such as 50")
            }
            (.., Some(scale)) if !scale.is_finite() => {
                refuse(tr!("scale {scale} is not a number", scale), "give one, such as 0.125")
            }
            _ => Ok(()),
        }
    }

    fn check_fill(&self) -> Result<()> {
        let fill = self.masks.fill.0;
        #[allow(clippy::cast_possible_truncation, reason = "asks whether it fits")]
        let fits = self.dtype == DType::F64 || (fill as f32).is_finite();
        if fill == f64::NEG_INFINITY || (fill.is_finite() && fits) {
            return Ok(());
        }
        let what = tr!(
            "mask_fill {fill} is not a number in {dtype}",
            fill = self.masks.fill,
            dtype = self.dtype
        );
        refuse(what, "give -inf, or a number such as -1e9")
    }

    fn check_key_mask(&self) -> Result<()> {
        let Some(rows) = &self.masks.key_mask else { return Ok(()) };
        let (batch, keys) = (self.sizes.batch, self.sizes.keys());
        let fix = tr!(
            "give each batch item ({batch} in all) a string of {keys} characters, 1 = attend and 0 = blocked",
            batch,
            keys
        );
        if rows.len() != batch {
            let what = tr!("{rows} rows for a batch of {batch}", rows = rows.len(), batch);
            return Err(Error::tensor("key_mask", what, fix));
        }
        for (item, row) in rows.iter().enumerate() {
            if let Some(other) = row.chars().find(|c| !matches!(c, '0' | '1')) {
                let what = tr!(
                    "row {item} is \"{row}\", and '{other}' is neither 0 nor 1",
                    item,
                    row = quoted(row),
                    other = quoted(&other.to_string())
                );
                return Err(Error::tensor("key_mask", what, fix));
            }
            if row.len() != keys {
                let what = tr!(
                    "row {item} is \"{row}\", {row_2} keys where {keys_name} is {keys}",
                    item,
                    row,
                    row_2 = row.len(),
                    keys_name = self.keys_name(),
                    keys
                );
                return Err(Error::tensor("key_mask", what, fix));
            }
        }
        Ok(())
    }

    fn check_lengths(&self) -> Result<()> {
        let Some(lengths) = &self.masks.lengths else { return Ok(()) };
        let (batch, keys) = (self.sizes.batch, self.sizes.keys());
        let fix =
            tr!("give each batch item ({batch} in all) a number from 0 to {keys}", batch, keys);
        if lengths.len() != batch {
            let what =
                tr!("{lengths} numbers for a batch of {batch}", lengths = lengths.len(), batch);
            return Err(Error::tensor("lengths", what, fix));
        }
        match lengths.iter().find(|length| **length > keys) {
            Some(length) => {
                let what = tr!(
                    "{length} is longer than {keys_name} {keys}",
                    length,
                    keys_name = self.keys_name(),
                    keys
                );
                Err(Error::tensor("lengths", what, fix))
            }
            None => Ok(()),
        }
    }

    /// What the number of keys is called.
    fn keys_name(&self) -> &'static str {
        match (self.sizes.is_cross, self.sizes.past_len) {
            (true, _) => "kv_len",
            (false, 0) => "seq_len",
            (false, _) => tr!("the number of keys with the cache"),
        }
    }
}
